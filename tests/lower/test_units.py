# SPDX-License-Identifier: MIT
"""Reductions over axes of extent 1 of which nothing is valid: they give their identity, as over any empty axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from tests.lower.stages import stages_of
from tests.targets.c.harness import needs_compiler

TARGETS = [None, pytest.param("c", marks=needs_compiler)]
SHAPES = [(0, 3), (3, 0), (0, 0), (3, 1), (0, 1), (3, 3), (1, 3)]


@pto.jit
def rows(x, y, o):
    t = pl.load(x, [0, 0], [1, 3])
    pl.store(pl.sum(t, axis=0, keepdims=True), [0, 0], o)
    pl.store(pl.prod(t, axis=0, keepdims=True), [1, 0], o)
    pl.store(pl.min(t, axis=0, keepdims=True), [2, 0], o)


@pto.jit
def columns(x, y, o):
    pl.store(pl.max(x[:, 0:1], axis=1), [0], y)
    pl.store(pl.mean(x[:, 0:1], axis=1, keepdims=True), [0, 0], o)
    pl.store(pl.argmax(x[:, 0:1], axis=1, keepdims=True), [0, 1], o)
    pl.store(pl.any(x[:, 0:1] > 0, axis=1, keepdims=True), [0, 2], o)


@pto.jit
def squeezed(x, y, o):
    pl.store(pl.squeeze(pl.sum(x[:, 0:1] * 2, axis=1, keepdims=True), 1), [0], y)


@pto.jit
def numbers(x, y, o):
    o[0, 0] = pl.prod(pl.load(x, [0, 0], [1, 1]))
    o[0, 1] = pl.max(pl.load(x, [0, 0], [1, 3]))
    pl.store(pl.sum(pl.load(x, [0, 0], [1, 1]), axis=(0, 1), keepdims=True), [1, 1], o)


@pto.jit
def beside(x, y, o):
    t, u = pl.load(x, [0, 0], [1, 3]), pl.load(o, [0, 0], [1, 3])
    pl.store(u + pl.sum(t, axis=(0, 1), keepdims=True), [1, 0], o)
    pl.store(u * pl.sum(t), [2, 0], o)


@pto.jit
def again(x, y, o):
    t = pl.load(x, [0, 0], [3, 1]) * 2
    pl.store(pl.sum(pl.max(t, axis=1, keepdims=True), axis=0, keepdims=True), [0, 0], o)
    pl.store(pl.all(t > 0, axis=(0, 1), keepdims=True), [1, 1], o)


@pto.jit
def numbers_again(x, y, o):
    o[2, 1] = pl.max(pl.sum(pl.load(x, [0, 0], [3, 1]), axis=1) + 3) * 2


@pto.jit
def elements(x, y, o):
    t = pl.load(x, [0, 0], [1, 1])
    pl.store(t, [0, 0], o)
    pl.store(t * 2, [1, 1], o)
    pl.store(pl.sum(t, axis=1, keepdims=True), [2, 2], o)
    pl.store(pl.exp(pl.max(t, axis=0, keepdims=True)), [0, 2], o)


@pto.jit
def stored_beside(x, y, o):
    t, u = pl.load(x, [0, 0], [1, 3]), pl.load(o, [0, 0], [3, 3])
    w = u * 2
    pl.store(w, [0, 0], o)
    pl.store(w + t, [0, 0], o)


@pto.jit
def kept_beside(x, y, o):
    t, u = pl.load(x, [0, 0], [1, 3]), pl.load(o, [0, 0], [3, 3])
    w = pl.exp(u * 0.25)
    pl.store(w * t, [0, 0], o)
    pl.store(pl.sort(w), [1, 0], o)


@pto.jit
def weighted(x, y, o):
    t, u = pl.load(x, [0, 0], [3, 1]), pl.load(o, [0, 0], [3, 3])
    pl.store(pl.sum(u, axis=1), [0], y)
    pl.store(u * t, [0, 0], o)


@pto.jit
def numbers_beside(x, y, o):
    t, u = pl.load(x, [0, 0], [1, 3]), pl.load(o, [0, 0], [1, 3])
    o[2, 0] = pl.sum(t * u) + pl.sum(u)


@pto.jit
def loaded_for_later(x, y, o):
    t = pl.load(x, [0, 0], [1, 1])
    pl.store(pl.load(y, [0], [1], pad=1) * 2, [1], y)
    pl.store(t + pl.load(y, [1], [1], pad=1), [0, 0], o)


@pto.jit
def rows_repeated(x, y, o):
    pl.store(pl.sum(pl.load(x, [0, 0], [1, 3]) * pl.load(o, [0, 0], [3, 3]), axis=0), [0], y)


@pto.jit
def columns_repeated(x, y, o):
    s = pl.max(pl.load(x, [0, 0], [3, 1]) + pl.load(o, [0, 0], [3, 3]), axis=1, keepdims=True)
    pl.store(s * 2 + 1, [0, 1], o)


@pto.jit
def repeated_and_stored(x, y, o):
    t, u = pl.load(x, [0, 0], [1, 3]), pl.load(o, [0, 0], [3, 3])
    w = t * u
    s = pl.sum(w, axis=0, keepdims=True)
    pl.store(w, [0, 0], o)
    pl.store(s * 2 + 1, [2, 0], o)
    pl.store(s + t, [1, 0], o)


@pto.jit
def repeated_elements(x, y, o):
    t = pl.load(x, [0, 0], [1, 1])
    pl.store(pl.sum(pl.broadcast_to(t, [3, 3]), axis=(0, 1), keepdims=True), [1, 1], o)
    y[1] = pl.max(t + pl.load(o, [0, 0], [3, 3]))


def larger(a, b):
    return pl.maximum(a, b)


@pto.jit
def folded(x, y, o):
    t = pl.load(x, [0, 0], [1, 3])
    pl.store(pl.reduce(t, 0, larger, init=-3.0), [0], y)
    pl.store(pl.reduce(t[:, None], (0, 1), larger, init=-2.0, keepdims=True)[0], [0, 0], o)


@pto.jit
def new_axes(x, y, o):
    t = pl.load(x, [0, 0], [1, 3])
    pl.store(pl.squeeze(pl.expand_dims(t, 0) * 2, 0), [0, 0], o)
    pl.store(pl.sum(t[:, None], axis=(0, 1)), [0], y)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "kernel",
    [rows, columns, squeezed, numbers, beside, again, numbers_again, elements, new_axes, folded, repeated_elements],
    ids=lambda k: k.__name__,
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_not_there_gives_the_identity(kernel: Any, target: str | None) -> None:
    _agree(kernel, target, SHAPES)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "kernel", [stored_beside, kept_beside, weighted, numbers_beside, loaded_for_later], ids=lambda k: k.__name__
)
def test_what_is_not_there_leaves_nothing_of_what_is_made_of_it_alone(kernel: Any, target: str | None) -> None:
    _agree(kernel, target, [(3, 0), (3, 1), (3, 3)] if kernel is weighted else [(0, 3), (1, 3), (3, 3)])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", [rows_repeated, columns_repeated, repeated_and_stored], ids=lambda k: k.__name__)
def test_what_is_not_there_and_was_repeated_is_reduced_to_the_identity(kernel: Any, target: str | None) -> None:
    _agree(kernel, target, [(3, 0), (3, 1)] if kernel is columns_repeated else [(0, 3), (1, 3), (3, 3)])


def _agree(kernel: Any, target: str | None, shapes: list[tuple[int, int]]) -> None:
    """With the interpreter."""
    for shape in shapes:
        x = np.arange(shape[0] * shape[1] * 1.0).reshape(shape) + 1
        given = [(x, np.full(3, 7.0), np.full((3, 3), 5.0)) for _ in range(2)]
        kernel.interpret(*given[0])
        kernel.compile(*given[1], target=target)(*given[1])
        for expected, found in zip(*given, strict=True):
            np.testing.assert_array_equal(found, expected, str(shape))


@pto.jit
def complete(x, o):
    acc = pl.zeros([1, 8], pl.f32)
    for i in pl.range(4):
        acc += pl.load(x, [i, 0], [1, 8])
    t = pl.load(x, [3, 0], [1, 8])
    pl.store(pl.sum(acc, axis=0, keepdims=True) + pl.max(t, axis=0, keepdims=True), [0, 0], o)


@pto.jit
def whole(x, o):
    for i in pl.range(x.shape[0]):
        t = pl.load(x, [i, 0], [1, 8])
        pl.store(t * pl.rsqrt(pl.mean(t * t)), [i, 0], o)


def test_what_is_known_to_be_there_and_what_follows_from_it_costs_nothing() -> None:
    x = np.ones((4, 8), np.float32)
    known = pto.spec((4, 8), pl.f32)
    for kernel, args in ((complete, (known, known)), (whole, (x, x))):
        fused = str(stages_of(kernel, args).modules["fused"])
        assert "slice" not in fused and "tvalid" not in fused


@pytest.mark.parametrize("target", TARGETS)
def test_a_sum_over_what_is_there(target: str | None) -> None:
    x, o = np.arange(32, dtype=np.float32).reshape(4, 8), np.zeros((4, 8), np.float32)
    whole.compile(x, o, target=target)(x, o)
    np.testing.assert_allclose(o, x / np.sqrt((x * x).mean(1, keepdims=True)), rtol=1e-6)
