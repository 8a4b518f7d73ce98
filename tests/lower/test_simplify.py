# SPDX-License-Identifier: MIT
"""What is known about numbers that are not known."""

from __future__ import annotations

import numpy as np

import pto_jit as pto
import pto_jit.language as pl


@pto.jit
def compared(y: pl.Tensor, n: pl.i64):
    same = n
    y[0] = 1.0 if n == same else 2.0
    y[1] = 1.0 if n != same else 2.0
    y[2] = 1.0 if n < same else 2.0
    y[3] = 1.0 if n <= same else 2.0
    y[4] = 1.0 if n > same else 2.0
    y[5] = 1.0 if n >= same else 2.0


@pto.jit
def of_floats(y: pl.Tensor, x: pl.f64):
    y[0] = 1.0 if x == x else 2.0


def test_an_integer_is_equal_to_itself() -> None:
    y = np.zeros(6, np.float32)
    compiled = compared.compile(y, 3)
    compiled(y, 3)
    assert y.tolist() == [1, 2, 2, 1, 2, 1]
    assert "%n, %n" in compiled.ir("source") and "%n, %n" not in compiled.ir("simplified")


def test_a_float_need_not_be() -> None:
    y = np.zeros(1, np.float32)
    for x, wanted in ((1.0, 1), (np.nan, 2)):
        of_floats(y, x)
        assert y[0] == wanted


@pto.jit
def jumps(y: pl.Tensor, x: pl.Tensor, z: pl.Tensor, n: pl.i64):
    for i in pl.range(n):
        y[i] = x[i]
        if n == n:
            break
        y[i] = z[i]
    for i in pl.range(n):
        if n != n:
            y[i] = z[0]
        else:
            continue
        for j in pl.range(i):
            y[j] = z[j]


def test_what_stands_behind_a_jump_that_is_always_taken_is_left_out() -> None:
    """And the tensors that only that reads are no parameters of what is outlined."""
    x, z, y = np.arange(4, dtype=np.float32) + 1, np.full(4, 9, np.float32), np.zeros(4, np.float32)
    compiled = jumps.compile(y, x, z, 3)
    compiled(y, x, z, 3)
    np.testing.assert_array_equal(y, [1, 0, 0, 0])
    assert "%z[" in compiled.ir("source") and "%z[" not in compiled.ir("simplified")


@pto.jit
def in_scopes(y: pl.Tensor, x: pl.Tensor, z: pl.Tensor, n: pl.i64):
    with pl.incore():
        for i in pl.range(n, parallel=True):
            for j in pl.range(i, i + 1):
                y[j] = x[i]
                if n == n:
                    break
                y[j] = z[j]


def test_scopes_do_not_need_what_stands_behind_a_jump() -> None:
    x, z, y = np.arange(4, dtype=np.float32), np.full(4, 9, np.float32), np.zeros(4, np.float32)
    in_scopes(y, x, z, 4)
    np.testing.assert_array_equal(y, x)


@pto.jit
def truths(y: pl.Tensor, n: pl.i64):
    same = n
    y[0] = 1.0 if (n == same) & (n > 3) else 2.0
    y[1] = 1.0 if (n != same) & (n > 3) else 2.0
    y[2] = 1.0 if (n > 3) | (n == same) else 2.0
    y[3] = 1.0 if (n > 3) | (n != same) else 2.0
    y[4] = 1.0 if (n != same) | (n == same) else 2.0
    y[5] = 1.0 if (n == same) & (n != same) else 2.0


def test_one_operand_decides_or_leaves_the_other() -> None:
    for n, wanted in ((3, [2, 2, 1, 2, 1, 2]), (4, [1, 2, 1, 1, 1, 2])):
        y = np.zeros(6, np.float32)
        truths(y, n)
        assert y.tolist() == wanted
    compiled = truths.compile(y, 3)
    assert "sand" in compiled.ir("source")
    assert "sand" not in compiled.ir("simplified")
    assert "sor" not in compiled.ir("simplified")
