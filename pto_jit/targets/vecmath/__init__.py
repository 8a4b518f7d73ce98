# SPDX-License-Identifier: MIT
"""Elementary functions written once, as recipes over the `Emitter` protocol, for every target.

`RECIPES["exp"].function(b, x)` computes exp of `x` through the emitter `b`, whose `dtype` is "f32" or "f64".
`docs/vector-math.md` tells the accuracy and what happens at the special values.
"""

from __future__ import annotations

from collections.abc import Callable

from pto_jit.slotted import frozen
from pto_jit.targets.vecmath import (
    arctangent,
    error_function,
    exponential,
    logarithm,
    logistic,
    power,
    remainder,
    roots,
    trigonometric,
)
from pto_jit.targets.vecmath.emitter import Emitter, Int, Mask, Value, ldexp_by_parts


@frozen
class Recipe:
    """An elementary function: `function(b, *operands)` with `arity` operands of `b.dtype`.

    `ulp_f32` and `ulp_f64` bound the error over the whole range, in units in the last place of the exact result
    (of the smallest subnormal where the result is below it).
    """

    name: str
    arity: int
    function: Callable[..., Value]
    ulp_f32: float
    ulp_f64: float


_ROWS: tuple[tuple[Callable[..., Value], int, float, float], ...] = (
    (exponential.exp, 1, 2, 2),
    (exponential.exp2, 1, 2, 2),
    (exponential.expm1, 1, 2, 2),
    (logarithm.log, 1, 2, 2),
    (logarithm.log2, 1, 2, 2),
    (logarithm.log1p, 1, 2, 2),
    (roots.sqrt, 1, 0.5, 0.5),
    (roots.rsqrt, 1, 2, 2),
    (roots.reciprocal, 1, 0.5, 0.5),
    (trigonometric.sin, 1, 4, 4),
    (trigonometric.cos, 1, 4, 4),
    (trigonometric.tan, 1, 4, 4),
    (logistic.tanh, 1, 4, 4),
    (error_function.erf, 1, 4, 4),
    (logistic.sigmoid, 1, 4, 4),
    (logistic.silu, 1, 4, 4),
    (error_function.gelu, 1, 4, 4),
    (logistic.gelu_tanh, 1, 4, 4),
    (power.pow, 2, 4, 4),
    (arctangent.atan2, 2, 4, 4),
    (remainder.fmod, 2, 0, 0),
)

RECIPES: dict[str, Recipe] = {
    function.__name__: Recipe(function.__name__, arity, function, ulp_f32, ulp_f64)
    for function, arity, ulp_f32, ulp_f64 in _ROWS
}
"""By the language's name; gelu's `approximate="tanh"` is `gelu_tanh`, its `approximate="none"` is `gelu`."""

__all__ = ["RECIPES", "Emitter", "Int", "Mask", "Recipe", "Value", "ldexp_by_parts"]
