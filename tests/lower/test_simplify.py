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
