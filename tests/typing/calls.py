# SPDX-License-Identifier: MIT
"""What a type checker sees of kernels; `test_types.py` compares its findings with the comments here."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np

import pto_jit as pto
import pto_jit.language as pl


@pto.jit
def scale(x: pl.Tensor, factor: float = 2.0, *, shift: int = 0) -> int:
    return 3


@pto.jit(debug=True, num_threads=2)
def checked(x: pl.Tensor) -> tuple[int, float]:
    return 1, 2.0


@pto.incore
def core(x: Any, y: int) -> str:
    return "a"


class Layer:
    @pto.jit
    def forward(self, x: pl.Tensor, n: int) -> float:
        return 1.0


tensor: Any = np.zeros(3)
assert_type(scale(tensor), int)
assert_type(scale(tensor, 3.0, shift=2), int)
assert_type(checked(tensor), tuple[int, float])
assert_type(core(tensor, 1), str)
assert_type(Layer().forward(tensor, 1), float)
assert_type(pto.jit(lambda: 3)(), int)
assert_type(scale.compile(tensor), pto.Compiled)
assert_type(scale.specializations(), list[pto.Specialization])
scale(tensor, shift="a")  # error: shift
scale(tensor, 1.0, 2)  # error: positional
scale()  # error: x
checked(tensor, 1)  # error: positional
core(tensor, "a")  # error: y
Layer().forward(tensor)  # error: n
pto.jit(speed=3)  # error: overload
