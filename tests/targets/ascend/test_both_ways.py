# SPDX-License-Identifier: MIT
"""Tiles that are multiplied as they are and transposed, and products that are cut where they are stored."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, needs_compiler, ordered


@pto.jit
def gram(x, y):
    with pl.incore():
        for i in pl.range(0, x.shape[0], 32, chunk=1):
            t = pl.load(x, [i, 0], [32, 64])
            pl.store(pl.dot(t, t.T), [i, 0], y)


@pto.jit
def turned_first(x, y):
    with pl.incore():
        for i in pl.range(0, x.shape[0], 32, chunk=1):
            t = pl.load(x, [i, 0], [32, 64])
            pl.store(pl.dot(t.T, t), [i * 2, 0], y)


@pto.jit
def attended(x, y):
    """Each block of rows to itself."""
    with pl.incore():
        for i in pl.range(0, x.shape[0], 32, chunk=1):
            t = pl.load(x, [i, 0], [32, 64])
            p = pl.dot(t, t.T)
            e = pl.exp(p - pl.max(p, axis=1, keepdims=True))
            pl.store(pl.dot(e / pl.sum(e, axis=1, keepdims=True), t), [i, 0], y)


@pto.jit
def covariance(x, y):
    with pl.incore():
        total = pl.zeros([64, 64])
        for i in pl.range(0, x.shape[0], 32):
            t = pl.load(x, [i, 0], [32, 64])
            total += pl.dot(t.T, t)
        pl.store(total, [0, 0], y)


@pto.jit
def computed(x, y):
    """What the vector cores hand over twice."""
    with pl.incore():
        for i in pl.range(0, x.shape[0], 32, chunk=1):
            t = pl.tanh(pl.load(x, [i, 0], [32, 64]))
            pl.store(pl.dot(t, t.T), [i, 0], y)


@pto.jit
def both_computed(x, y):
    with pl.incore():
        for i in pl.range(0, x.shape[0], 32, chunk=1):
            t = pl.load(x, [i, 0], [32, 64])
            pl.store(pl.dot(pl.tanh(t), pl.abs(t).T) + 1.0, [i, 0], y)


@pto.jit
def elsewhere(x, y):
    """At places that have nothing to do with those of the operands."""
    with pl.incore():
        for i in pl.range(0, x.shape[0], 32, chunk=1):
            a, b = pl.load(x, [i, 0], [32, 64]), pl.load(x, [0, 0], [48, 64])
            pl.store(pl.dot(a, b.T), [i + 5, 3], y)


ROWS, ANY = pto.spec((None, 64), pl.f32), pto.spec((None, None), pl.f32)
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "gram": (gram, (ROWS, ANY)),
    "turned_first": (turned_first, (ROWS, ANY)),
    "attended": (attended, (ROWS, ROWS)),
    "covariance": (covariance, (ROWS, ANY)),
    "computed": (computed, (ROWS, ANY)),
    "both_computed": (both_computed, (ROWS, ANY)),
    "elsewhere": (elsewhere, (ROWS, ANY)),
}
ALIKE, CUT = [(0, 32), (0, 33), (0, 4), (200, 70)], [(7, 33), (45, 4), (1, 1)]
SHAPES = {
    "attended": [(0, 64)], "covariance": [(64, 64), (70, 66), (40, 30)],
    "elsewhere": ALIKE + CUT, "turned_first": ALIKE + CUT,
}  # fmt: skip
"""Of the results, elsewhere `ALIKE`; 0: as many rows as there are in the operand."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("both_ways"))


@needs_compiler
@pytest.mark.parametrize("rows", [96, 37, 5])
@pytest.mark.parametrize("name", CASES)
def test_they_give_the_numbers_of_the_interpreter(programs: Programs, name: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows, 64)).astype(np.float32)
    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4)
    for height, width in SHAPES.get(name, ALIKE):
        y = rng.standard_normal((height or rows, width)).astype(np.float32)
        check_interpreted(programs, CASES[name][0], name, {"x": x}, {"y": y}, close)


def test_computed_matrices_of_which_there_are_several_are_refused() -> None:
    @pto.jit
    def products(a, s):
        t = pl.transpose(pl.load(a, [0, 0, 0], [a.shape[0], a.shape[1], 3]), (1, 0, 2))
        pl.store(pl.abs(pl.dot(t, pl.transpose(t, (0, 2, 1)))), [0, 0, 0], s)

    several = pto.spec((None, None, None), pl.f32)
    with pytest.raises(pto.TargetError, match=r"PTO-X210: .* products of more than two axes\n"):
        products.compile(several, several, target="ascend")


@needs_compiler
def test_a_loop_variable_that_one_core_does_not_need_is_left_out(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Warnings are errors there."""

    @pto.jit
    def ahead(x, y):
        with pl.incore():
            for i in pl.range(0, x.shape[0], 32):
                t = pl.load(x, [i, 0], [32, 64])
                first = t.T @ t
                e = pl.exp(-pl.abs(first - 0.5))
                pl.store(pl.maximum(e @ (first * 0.125).T, 0.0), [0, 0], y)

    ordered({"ahead": (ahead, (ROWS, ANY))}, tmp_path_factory.mktemp("ahead"))
