# SPDX-License-Identifier: MIT
"""`//` and `%` of tiles of f32, from the exact remainder, as NumPy and the cpu target define them.

Written for an emitter like the recipes of `targets.vecmath`, of which they use `fmod`.
"""

from __future__ import annotations

from typing import Any

from pto_jit.targets.vecmath import RECIPES


def mod(b: Any, x: Any, y: Any) -> Any:
    """The remainder with the sign of the divisor."""
    rest, zero = RECIPES["fmod"].function(b, x, y), b.const(0.0)
    moved = b.select(_apart(b, rest, y), b.add(rest, y), rest)
    return b.select(b.eq(rest, zero), b.copysign(zero, y), moved)


def floordiv(b: Any, x: Any, y: Any) -> Any:
    """`np.floor_divide`: so that `x // y * y + x % y` is x."""
    rest, zero, one = RECIPES["fmod"].function(b, x, y), b.const(0.0), b.const(1.0)
    quotient = b.div(b.sub(x, rest), y)
    apart = b.mask_and(_apart(b, rest, y), b.ne(rest, zero))
    quotient = b.select(apart, b.sub(quotient, one), quotient)
    down = b.floor(quotient)
    near = b.select(b.gt(b.sub(quotient, down), b.const(0.5)), b.add(down, one), down)
    plain = b.div(x, y)
    out = b.select(b.eq(quotient, zero), b.copysign(zero, plain), near)
    return b.select(b.eq(y, zero), plain, out)


def _apart(b: Any, rest: Any, y: Any) -> Any:
    """Whether one of the two is below zero."""
    zero = b.const(0.0)
    low, other = b.lt(rest, zero), b.lt(y, zero)
    return b.mask_and(b.mask_or(low, other), b.mask_not(b.mask_and(low, other)))
