# SPDX-License-Identifier: MIT
"""Tiles that end before their declared extents do, and tiles that several parts of a program share, on devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.semantic import interpreter
from tests.targets.ascend.harness import Programs, check_interpreted, needs_compiler, ordered

TWO = pto.spec((None, None), pl.f32)
SHAPES = [(5, 12), (12, 9), (20, 40)]


def skipped_elements(x, y):
    """`continue` in a loop beside tiles that are handed on in memory."""
    total = 0.0
    t = x * 2.0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if x[i, j] > 1.0:
                continue
            total += x[i, j]
        y[i, 0] = total
    u = t
    for _ in pl.range(2):
        u = u + t
        y += u


def made_elsewhere(x, y):
    """A tile that a loop stands before is a part of one that stands before it, too."""
    t = x[1:] * 2.0
    total = 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            total += x[i, j]
        y[i, 0] = total
    pl.store(pl.cumsum(pl.cumsum(t[1:], axis=0), axis=1), [0, 0], y)


def behind_the_end(x, y):
    """What is handed on is a part of what is not there: nothing of it is stored."""
    t = pl.transpose(pl.load(x, [2, 1], [32, 8])[30:32, 1:3], (1, 0))
    u = x * 2.0
    total = 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            total += x[i, j]
        y[i, 0] = total
    y += u
    pl.store(pl.any(t > -9.0, axis=0, keepdims=True).to(pl.f32) + 5.0, [0, 0], y)


def largest_of_few(x, y):
    """Of fewer columns than are asked for as many as there are."""
    v, i = pl.topk(pl.load(x, [0, x.shape[1] - 2], [x.shape[0], 16]), 3)
    for k in pl.range(2):
        y += x
        pl.store(v + i.to(pl.f32), [0, k], y)


def reversed_parts(x, y):
    """The rows that are there, of the 16 that are asked for."""
    t = pl.load(x, [2, 0], [16, x.shape[1]]) * 2.0
    pl.store(pl.cumsum(pl.flip(t, axis=0), axis=1), [0, 0], y)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fn", [skipped_elements, made_elsewhere, behind_the_end, largest_of_few, reversed_parts])
def test_what_is_divided_computes_the_same(fn: Any, shape: tuple[int, int]) -> None:
    module = pto.jit(fn).compile(TWO, TWO, target="cuda")._lowered().modules["divided"]
    x, y = np.random.default_rng(0).integers(-4, 5, (2, *shape)).astype(np.float32)
    wanted = y.copy()
    pto.jit(fn).interpret(x, wanted)
    interpreter.run(module, [x, y])
    np.testing.assert_array_equal(y, wanted)


def reversed_rows(x, y):
    pl.store(pl.flip(pl.load(x, [2, 0], [16, x.shape[1]]), axis=0), [0, 0], y)


def reversed_columns(x, y):
    pl.store(pl.flip(pl.load(x, [2, 5], [16, 8]), axis=1) * 2.0, [0, 0], y)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    cases = {fn.__name__: (pto.jit(fn), (TWO, TWO)) for fn in (reversed_rows, reversed_columns)}
    return ordered(cases, Path(tmp_path_factory.mktemp("cut_tiles")))


@needs_compiler
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fn", [reversed_rows, reversed_columns])
def test_ascend_reverses_what_is_there(programs: Programs, fn: Any, shape: tuple[int, int]) -> None:
    x, y = np.random.default_rng(0).standard_normal((2, *shape), np.float32)
    check_interpreted(programs, pto.jit(fn), fn.__name__, {"x": x}, {"y": y})


def of_another_shape(x, y):
    t = pl.reshape(x + 2.0, (x.shape[1], x.shape[0]))
    if x.shape[0] > 1:
        pl.store(t, [0, 0], y)


def test_ascend_does_not_take_a_reshape_for_one_that_moves_nothing() -> None:
    with pytest.raises(pto.TargetError, match=r"PTO-X210: .* that is put together"):
        pto.jit(of_another_shape).compile(TWO, TWO, target="ascend")


def of_the_same_shape(x, y):
    with pl.incore():
        t = pl.reshape(pl.load(x), (x.shape[0], 1, x.shape[1]))
        pl.store(pl.reshape(t * 2.0, (x.shape[0], x.shape[1])), [0, 0], y)


def test_ascend_takes_reshapes_that_move_nothing() -> None:
    assert pto.jit(of_the_same_shape).compile(TWO, TWO, target="ascend").sources
