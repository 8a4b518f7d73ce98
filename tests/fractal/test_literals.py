# SPDX-License-Identifier: MIT
"""Numbers of Python's among what bodies give, in kernels and outside of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft

F32 = ft.from_list([np.float32(v) for v in (1, -2, 3)])
I32 = ft.from_list([np.int32(v) for v in (1, -2, 3)])
ROWS32 = ft.from_list([[np.float32(1), np.float32(-2)], [], [np.float32(-3)]])
INTS32 = ft.from_list([[np.int32(1), np.int32(-2)], [], [np.int32(-3)]])


@pytest.mark.parametrize(
    ("program", "x", "dtype"),
    [
        (lambda x: ft.map(lambda v: max(v, 0.0), x), F32, "f32"),
        (lambda x: ft.map(lambda v: max(v, 0.0), x), ft.slice(F32, 1, 2), "f32"),
        (lambda x: ft.map(lambda e: e if e > 0 else 0.0, x), ft.slice(F32, 1, 2), "f32"),
        (lambda x: ft.map(lambda e: e if e > 0 else 0.0, x), ft.slice(F32, 0, 0), "f32"),
        (lambda x: ft.map(lambda e: e if e < -1 else 0, x), F32, "f32"),
        (lambda x: ft.map(lambda e: min(max(e, 0), 2), x), I32, "i32"),
        (lambda x: ft.map(lambda e: e if e > 0 else 0.5, x), I32, "f64"),
        (lambda x: ft.map(lambda e: e if e > 0 else True, x), I32, "i32"),
        (lambda x: ft.map(lambda e: 1 if e > 0 else 0.5, x), I32, "f64"),
        (lambda x: ft.map(lambda e: (max(e, 0.0), e if e > 0 else 1.0), x)[1], F32, "f32"),
        (lambda x: ft.map(lambda r: ft.map(lambda e: max(e, 0.0), r), x), ROWS32, "f32"),
        (lambda x: ft.scan(lambda s, e: s + e if e > 0 else 0, x, init=np.int32(0)), I32, "i32"),
        (lambda x: ft.scan(lambda s, e: s + e if e > 0 else 0, x, init=np.float32(0)), F32, "f32"),
        (lambda x: ft.scan(lambda s, e: 0, x, init=np.int32(3)), I32, "i32"),
        (lambda x: ft.scan(lambda s, e: max(s + e, 0.0), x, init=0.0), F32, "f32"),
        (lambda x: ft.map(lambda r: ft.scan(lambda s, e: max(s + e, 0.0), r, init=0.0), x), ROWS32, "f32"),
        (lambda x: ft.map(lambda r: ft.fold(lambda s, e: max(s, e), r, init=0), x), INTS32, "i32"),
        (lambda x: ft.map(lambda r: ft.fold(lambda s, e: s + 1, r, init=0), x), ROWS32, "i64"),
    ],
)  # fmt: skip
def test_numbers_of_python_have_the_types_of_those_beside_them(program: Any, x: ft.FractalTensor, dtype: str) -> None:
    """Also where all elements give Python's number; so a type does not depend on the data, and is that in a kernel."""
    found, compiled = program(x), pto.jit(program)(x)
    assert found.dtype.name == compiled.dtype.name == dtype
    np.testing.assert_array_equal(found.leaves, compiled.leaves)


@pytest.mark.parametrize("program", [
    lambda x: ft.map(lambda e: e if e > 0 else np.float64(0), x),
    lambda x: ft.scan(lambda s, e: 0.5, x, init=np.int32(0)),
])  # fmt: skip
def test_numbers_of_other_types_do_not_meet(program: Any) -> None:
    with pytest.raises(pto.TypeMismatchError, match=r"PTO-F02[58]"):
        program(I32)
