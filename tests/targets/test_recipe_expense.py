# SPDX-License-Identifier: MIT
"""What vector math costs where its results are zero: no operation on the way has a subnormal result.

Processors compute those a hundred times slower than others.  They include products that come close below the
subnormal numbers and are rounded to zero, and `vscalef` down to exponents of -512 (f64: -4096).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pto_jit.targets.vecmath import RECIPES, ldexp_by_parts

LIMITS = {"f32": (np.float32, np.int32, -126, -160, -512), "f64": (np.float64, np.int64, -1022, -1085, -4096)}


class Counting:
    """An emitter that computes with NumPy numbers and notes what is slow on a processor."""

    def __init__(self, dtype: str, scalef: bool) -> None:
        self.dtype = dtype
        self.masks_ldexp = scalef
        self.float, self.int, self.normal, self.far, self.short = LIMITS[dtype]
        self.slow: list[str] = []

    def note(self, what: str, value: Any) -> Any:
        if value != 0 and abs(value) < float(np.finfo(self.float).tiny):
            self.slow.append(f"{what} is subnormal")
        return self.float(value)

    def const(self, value: float) -> Any:
        return self.float(value)

    def iconst(self, value: int) -> Any:
        bits = self.int(0).nbytes * 8
        return self.int((value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1))

    def mul(self, x: Any, y: Any) -> Any:
        if x != 0 and y != 0 and np.isfinite(x) and np.isfinite(y):
            exponent = np.frexp(x)[1] + np.frexp(y)[1]
            if self.far < exponent < self.normal:
                self.slow.append(f"a product of 2**{exponent}")
        return self.float(x * y)

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        return self.note("a sum", self.float(np.float64(x) * np.float64(y) + np.float64(z)))

    def div(self, x: Any, y: Any) -> Any:
        return self.note("a quotient", x / y)

    ratio = div

    def ldexp(self, x: Any, n: Any, kept: Any = None) -> Any:
        if not self.masks_ldexp:
            assert kept is None
            return ldexp_by_parts(self, x, n)  # type: ignore[arg-type]
        if kept is not None and not kept:
            return self.float(0)
        if x != 0 and self.short < n < self.normal:
            self.slow.append(f"a scaling by 2**{n}")
        return self.float(np.ldexp(np.float64(x), np.int32(np.nan_to_num(n)))) if np.isfinite(x) else x

    add = staticmethod(lambda x, y: x + y)
    sub = staticmethod(lambda x, y: x - y)
    neg = staticmethod(lambda x: -x)
    abs = staticmethod(abs)
    min = staticmethod(lambda x, y: x if x < y else y)
    max = staticmethod(lambda x, y: x if x > y else y)
    copysign = staticmethod(np.copysign)
    trunc = staticmethod(np.trunc)
    lt = staticmethod(lambda x, y: x < y)
    le = staticmethod(lambda x, y: x <= y)
    gt = staticmethod(lambda x, y: x > y)
    ge = staticmethod(lambda x, y: x >= y)
    eq = staticmethod(lambda x, y: x == y)
    ne = staticmethod(lambda x, y: x != y)
    mask_and = staticmethod(lambda p, q: p & q)
    mask_or = staticmethod(lambda p, q: p | q)
    mask_not = staticmethod(lambda p: not p)
    select = staticmethod(lambda mask, x, y: x if mask else y)
    iadd = staticmethod(lambda i, j: i + j)
    isub = staticmethod(lambda i, j: i - j)
    iand = staticmethod(lambda i, j: i & j)
    shl = staticmethod(lambda i, count: i << count)
    ashr = staticmethod(lambda i, count: i >> count)
    ilt = staticmethod(lambda i, j: i < j)

    def bits(self, x: Any) -> Any:
        return x.view(self.int)

    def from_bits(self, i: Any) -> Any:
        return i.view(self.float)

    def to_float(self, i: Any) -> Any:
        return self.float(i)


@pytest.mark.parametrize("scalef", [True, False], ids=["vscalef", "by parts"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", ["exp", "exp2", "expm1", "tanh", "erf", "sigmoid", "silu", "gelu", "gelu_tanh"])
def test_results_of_zero_cost_what_others_cost(name: str, dtype: str, scalef: bool) -> None:
    first = 170.0 if dtype == "f32" else 1130.0
    if name.startswith("gelu"):
        first = 16.0 if dtype == "f32" else 40.0
    for size in (first, 3 * first, 1e4, math.inf):
        b = Counting(dtype, scalef)
        with np.errstate(all="ignore"):
            result = RECIPES[name].function(b, b.const(-size))
        assert not b.slow, (size, b.slow)
        assert result in (0.0, -1.0)


@pytest.mark.parametrize("scalef", [True, False], ids=["vscalef", "by parts"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_powers_of_zero_cost_what_others_cost(dtype: str, scalef: bool) -> None:
    for size in (1200.0, 1e4, math.inf):
        b = Counting(dtype, scalef)
        with np.errstate(all="ignore"):
            assert RECIPES["pow"].function(b, b.const(2.0), b.const(-size)) == 0.0
        assert not b.slow, (size, b.slow)


def test_subnormal_results_are_noted() -> None:
    b = Counting("f32", True)
    assert RECIPES["exp"].function(b, b.const(-95.0)) > 0
    assert b.slow
