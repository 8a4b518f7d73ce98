# SPDX-License-Identifier: MIT
"""Lists that one iteration makes and reads have memory for one iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl


def lists(*lengths: int, rows: int = 2) -> ft.FractalTensor:
    leaves = np.random.default_rng(0).standard_normal((sum(lengths), rows, 3)).astype(np.float32)
    return ft.from_flat(leaves, [np.cumsum([0, *lengths])])


def squares(row: Any) -> Any:
    return ft.map(lambda v: v * v, row)


def reduced(x: Any) -> Any:
    def one(row: Any) -> Any:
        made = squares(row)
        return ft.reduce(lambda a, b: a + b, ft.join(made, made), initializer=ft.zeros(2, 3))

    return ft.map(one, x)


def pairs(x: Any) -> Any:
    """The rows with each other: a list per row and element, of the row's length."""

    def one(v: Any, row: Any) -> Any:
        near = ft.map(lambda w: pl.exp(v - w), row)
        return ft.fold(lambda s, w: s * 0.5 + w, ft.join(near, ft.reverse(near)), initializer=ft.zeros(2, 3))

    return ft.map(lambda row: ft.map(one, row, row=row), x, schedule="sequential")


def joined(x: Any) -> Any:
    return ft.map(lambda row: pl.sum(ft.cat(ft.join(row, ft.reverse(row)), axis=0), axis=0, keepdims=True), x)


def twice(x: Any) -> Any:
    def one(row: Any) -> Any:
        made = squares(row)
        total = ft.fold(lambda s, v: s + v, made, initializer=ft.zeros(2, 3))
        return ft.fold(lambda s, v: s + pl.exp(-v) * total, made, initializer=total)

    return ft.map(one, x)


def kept(x: Any) -> Any:
    def one(row: Any) -> Any:
        made = squares(row)
        return made, ft.fold(lambda s, v: s + v, made, initializer=ft.zeros(2, 3))

    return ft.map(one, x)


def loops_around_memory(text: str) -> list[int]:
    """How many loops are around each allocation of leaves."""
    found, depth = [], 0
    for line in text.splitlines():
        word = line.split()
        depth += line.lstrip().startswith("FOR ") - (word[:1] == ["ENDFOR"])
        if "talloc" in word and "dtype=f32" in line:
            found.append(depth)
    return found


def same(got: Any, want: Any) -> None:
    if isinstance(want, tuple):
        for a, b in zip(got, want, strict=True):
            same(a, b)
        return
    assert [list(o) for o in got.offsets] == [list(o) for o in want.offsets]
    np.testing.assert_allclose(got.leaves, want.leaves, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("program", "local"), [(reduced, [1]), (pairs, [2]), (joined, [1]), (twice, [1]), (kept, [])])
def test_lists_between_parallel_functions(program: Callable[[Any], Any], local: list[int]) -> None:
    run = pto.jit(program, cache=False, num_threads=2)
    x = lists(3, 1, 4)
    more = () if program is joined else (lists(3, 0, 4), lists(0, 0))  # `ft.cat` of nothing is an error
    for given in (x, lists(2), *more):
        same(run(given), program(given))
    text = run.compile(x).ir("source")
    assert [n for n in loops_around_memory(text) if n] == local
