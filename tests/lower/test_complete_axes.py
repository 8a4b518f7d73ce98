# SPDX-License-Identifier: MIT
"""Along which axes carried tiles are known to be complete, and that they are when the program runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.ir.walk import def_counts
from pto_jit.lower.complete import complete_axes
from tests.targets.c.harness import Batch, needs_compiler

X = np.random.default_rng(0).standard_normal((21, 40), np.float32)
NARROW = np.random.default_rng(1).standard_normal((21, 1), np.float32)
EMPTY = np.zeros((21, 0), np.float32)


@pto.jit(cache=False)
def padded(x: pl.Tensor, m: pl.Tensor, y: pl.Tensor, n: int):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 16):
            acc = pl.zeros([16, 64], pl.f32)
            for j in pl.range(n):
                acc += pl.load(x, [r, j], [16, 64], pad=1.0)
            pl.store(acc, [r, 0], y)


@pto.jit(cache=False)
def cut(x: pl.Tensor, m: pl.Tensor, y: pl.Tensor, n: int):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 16):
            acc = pl.load(x, [r, 0], [16, 64])
            for _ in pl.range(n):
                acc = acc * 0.5
            pl.store(acc, [r, 0], y)


@pto.jit(cache=False)
def rows_cut(x: pl.Tensor[(None, 40), pl.f32], m: pl.Tensor, y: pl.Tensor, n: int):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 16):
            acc = pl.load(x, [r, 0], [16, 40])
            for _ in pl.range(n):
                acc = acc * 0.5 + pl.sum(acc, axis=1, keepdims=True)
            pl.store(acc, [r, 0], y)


@pto.jit(cache=False)
def cut_by_what_it_meets(x: pl.Tensor, m: pl.Tensor, y: pl.Tensor, n: int):
    """Complete where it begins, and generated, so that it takes the extents of what it meets."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 16):
            acc = pl.zeros([16, 64], pl.f32)
            for _ in pl.range(n):
                acc += pl.load(x, [r, 0], [16, 64])
            pl.store(acc, [r, 0], y)


@pto.jit(cache=False)
def beside_a_narrow_tile(x: pl.Tensor, m: pl.Tensor, y: pl.Tensor, n: int):
    """The narrow tile has no column where the tensor has none."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 16):
            acc = pl.load(x, [r, 0], [16, 64], pad=1.0)
            for _ in pl.range(n):
                acc = acc * 2.0 + pl.load(m, [r, 0], [1, 1])
            pl.store(acc, [r, 0], y)


@pto.jit(cache=False)
def products(x: pl.Tensor, m: pl.Tensor, y: pl.Tensor, n: int):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 16):
            acc = pl.zeros([16, 16], pl.f32)
            for j in pl.range(n):
                a = pl.load(x, [r, j], [16, 32], pad=0.0)
                acc += pl.dot(a, pl.transpose(a))
            pl.store(acc, [r, 0], y)


@pto.jit(cache=False)
def products_of_cut_rows(x: pl.Tensor, m: pl.Tensor, y: pl.Tensor, n: int):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 16):
            acc = pl.zeros([16, 16], pl.f32)
            b = pl.load(x, [0, 0], [16, 32], pad=0.0)
            for _ in pl.range(n):
                acc += pl.dot(pl.load(x, [r, 0], [16, 32]), pl.transpose(b))
            pl.store(acc, [r, 0], y)


CASES = [
    (padded, X, NARROW, 64, (True, True)),
    (cut, X, NARROW, 64, (False, False)),
    (rows_cut, X, NARROW, 64, (False, True)),
    (cut_by_what_it_meets, X, NARROW, 64, (False, False)),
    (beside_a_narrow_tile, X, NARROW, 64, (False, False)),
    (beside_a_narrow_tile, X, EMPTY, 64, (False, False)),
    (products, X, NARROW, 16, (True, True)),
    (products_of_cut_rows, X, NARROW, 16, (False, True)),
]


def arguments(x: np.ndarray, m: np.ndarray, columns: int) -> tuple[Any, ...]:
    return x, m, np.full((21, columns), 7, np.float32), 3


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0].__name__)
def test_what_is_known_of_a_carried_tile(case: tuple[Any, ...]) -> None:
    kernel, x, m, columns, wanted = case
    module = kernel.compile(*arguments(x, m, columns), target="c")._kernel.built.module
    body = next(f.body for f in module.funcs if f.name != module.entry)
    carried = {name: axes for name, axes in complete_axes(body).items() if def_counts(body)[name] > 1}
    assert set(carried.values()) == {wanted}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0].__name__)
def test_the_cpu_target_computes_as_much_as_the_interpreter(case: tuple[Any, ...]) -> None:
    kernel, x, m, columns, _ = case
    expected, given = arguments(x, m, columns), arguments(x, m, columns)
    kernel.interpret(*expected)
    kernel(*given)
    np.testing.assert_allclose(given[2], expected[2], rtol=1e-5, atol=1e-5)


@needs_compiler
def test_c_computes_as_much_as_the_interpreter() -> None:
    batch = Batch()
    for kernel, x, m, columns, _ in CASES:
        batch.add(kernel, *arguments(x, m, columns))
    batch.run()
    for (kernel, x, m, columns, _), (_, given, *_) in zip(CASES, batch.items, strict=True):
        expected = arguments(x, m, columns)
        kernel.interpret(*expected)
        np.testing.assert_allclose(given[2], expected[2], rtol=1e-5, atol=1e-5)
