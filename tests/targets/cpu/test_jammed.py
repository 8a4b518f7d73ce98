# SPDX-License-Identifier: MIT
"""Loops of which four iterations run together, where an inner loop updates the same elements in each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.ir.nodes import For, Func, Stmt
from pto_jit.ir.parse import parse as parse_pto
from pto_jit.ir.walk import statements
from pto_jit.lower.jam import jammed
from pto_jit.semantic.races import roots


def product(c, a, b):
    for i in range(c.shape[0]):
        for k in range(a.shape[1]):
            for j in range(c.shape[1]):
                c[i, j] += a[i, k] * b[k, j]


def divided(c, a, b):
    for i in pl.range(c.shape[0], parallel=True):
        for k in range(a.shape[1]):
            s = a[i, k] * 2 + 1
            for j in range(c.shape[1]):
                c[i, j] = c[i, j] - s * b[k, j]


def shifted(c, a, b):
    for k in range(a.shape[1]):
        for j in range(1, c.shape[1] - 1):
            c[0, j + 1] = max(c[0, j + 1], b[k, j - 1] + a[0, k])


def two(c, a, b):
    for k in range(1, a.shape[1]):
        for j in range(c.shape[1]):
            c[0, j] += b[k, j]
            b[0, j] += a[0, k] * c[0, 0]


def sums(c, a, b):
    for k in range(b.shape[0]):
        for j in range(b.shape[1]):
            c[0, j] += b[k, j]


def transposed(c, a, b):
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            c[1, k] = c[1, k] + a[i, k] * c[0, 0]


TOGETHER = [product, divided, shifted, sums]


def bounded(c, a, b):
    for k in range(a.shape[1]):
        for j in range(k, c.shape[1]):
            c[0, j] += b[k, j]


def in_place(c, a, b):
    for k in range(c.shape[0]):
        for j in range(c.shape[1]):
            c[1, j] += c[k, j]


def gathered(c, a, b):
    for k in range(a.shape[1]):
        for j in range(c.shape[1]):
            c[0, j] += b[k, j // 2]


def to_one(c, a, b):
    for k in range(a.shape[1]):
        for j in range(c.shape[1]):
            c[0, 0] += b[k, j]


def folded(c, a, b):
    for k in range(a.shape[1]):
        for j in range(c.shape[1]):
            c[0, j % 3] += b[k, j]


def neighbours(c, a, b):
    for k in range(a.shape[1]):
        for j in range(1, c.shape[1]):
            c[0, j] += c[0, j - 1] * b[k, j]


def carried(c, a, b):
    s = a[0, 0]
    for k in range(a.shape[1]):
        for j in range(c.shape[1]):
            c[0, j] += s * b[k, j]
        s = s + 1


def written_ahead(c, a, b):
    for k in range(a.shape[1]):
        a[0, k] = 2
        for j in range(c.shape[1]):
            c[0, j] += a[0, k] * b[k, j]


def written_behind(c, a, b):
    for k in range(a.shape[1]):
        for j in range(c.shape[1]):
            c[0, j] += b[k, j]
        a[0, k] = c[0, 0]


def read_ahead(c, a, b):
    for k in range(a.shape[1]):
        s = c[0, k]
        for j in range(c.shape[1]):
            c[0, j] += s * b[k, j]


def read_again(c, a, b):
    for k in range(a.shape[1]):
        for j in range(c.shape[1]):
            c[0, j] += b[k, j]
            c[1, j] = c[0, j]


def of_views(c, a, b):
    row = c[0]
    for k in range(a.shape[1]):
        for j in range(c.shape[1]):
            row[j] += c[k % c.shape[0], j]


def kept_behind(c, a, b):
    last = a[0, 0]
    for k in range(a.shape[1]):
        for j in range(c.shape[1]):
            last = b[k, j]
            c[0, j] += last
    c[1, 0] = last


def ends_early(c, a, b):
    for k in range(a.shape[1]):
        for j in range(c.shape[1]):
            if b[k, j] > 3:
                break
            c[0, j] += b[k, j]


APART = [bounded, in_place, gathered, to_one, folded, neighbours, carried, written_ahead, written_behind, read_ahead,
         read_again, kept_behind, ends_early, two]  # fmt: skip


def operands(m: int, k: int, n: int, dtype: Any) -> list[np.ndarray]:
    rng = np.random.default_rng(m + 10 * k + 100 * n)
    return [rng.integers(-4, 5, shape).astype(dtype) for shape in ((m, n), (m, k), (k, n))]


def together(fn: Any, dtype: str = "float32") -> bool:
    """Whether four iterations of a loop of the kernel run together."""
    compiled = pto.jit(fn).compile(*operands(3, 9, 9, dtype))
    program = parse_pto(compiled.ir("scheduled"))

    def loop(func: Func, stmt: Stmt) -> bool:
        known = roots(func.body)
        return isinstance(stmt, For) and jammed(stmt, lambda name: known.get(name, name)) is not None

    return any(loop(func, stmt) for func in program.funcs for stmt in statements(func.body))


EVERYWHERE = [(fn, dtype) for fn in TOGETHER for dtype in ("float32", "float64", "int32", "int8", "float16")]
ELSEWHERE = [(fn, dtype) for fn in (*APART, of_views, transposed) for dtype in ("float32", "int8")]


@pytest.mark.parametrize(("fn", "dtype"), EVERYWHERE)
@pytest.mark.parametrize("k", [0, 1, 3, 4, 5, 8, 11])
def test_sums_are_those_of_the_loops_in_their_order(fn: Any, dtype: str, k: int) -> None:
    for m, n in ((3, 17), (4, 1), (1, 40)):
        check(fn, operands(m, k, n, dtype))


@pytest.mark.parametrize(("fn", "dtype"), ELSEWHERE)
def test_what_is_connected_stays_in_order(fn: Any, dtype: str) -> None:
    check(fn, operands(9, 9, 17, dtype))
    check(fn, operands(4, 4, 17, dtype))


def check(fn: Any, arguments: list[np.ndarray]) -> None:
    plain = [x.copy() for x in arguments]
    pto.jit(fn)(*arguments)
    pto.jit(fn).interpret(*plain)
    for x, y in zip(arguments, plain, strict=True):
        np.testing.assert_array_equal(x, y)


def test_elements_that_are_rounded_in_memory_are_written_each_time() -> None:
    assert not together(product, "float16")


@pytest.mark.parametrize("fn", TOGETHER)
def test_iterations_run_together(fn: Any) -> None:
    assert together(fn)


@pytest.mark.parametrize("fn", APART)
def test_iterations_that_are_connected_do_not(fn: Any) -> None:
    assert not together(fn)


@pytest.mark.parametrize("shift", range(-3, 4))
def test_arguments_may_share_memory(shift: int) -> None:
    """Rows of `c` are rows of `b`, or overlap them."""
    memory = np.random.default_rng(3).standard_normal(400).astype(np.float32)

    def arguments(memory: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        b = memory[100:260].reshape(8, 20)
        return memory[100 + shift : 160 + shift].reshape(3, 20), memory[300:324].reshape(3, 8), b

    kernel = pto.jit(product)
    mine, plain = memory.copy(), memory.copy()
    kernel(*arguments(mine))
    c, a, b = arguments(plain)
    for i in range(3):
        for k in range(8):
            for j in range(20):
                c[i, j] += a[i, k] * b[k, j]
    np.testing.assert_array_equal(mine, plain)
