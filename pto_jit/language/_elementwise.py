# SPDX-License-Identifier: MIT
"""Elementwise functions.

Operands are tiles, tensors and views (which are loaded), NumPy values and numbers.  Their declared shapes broadcast
as in NumPy; the result has that shape and, where nothing else is said, the promoted dtype, in which a Python number
takes the dtype of what it meets.  Functions with fractions, such as `exp`, make of integers the float that NumPy
makes of them.  f16 and bf16 are computed in f32.  Accuracy: `docs/vector-math.md`.

Raises TypeMismatchError for operands and dtypes that a function does not take, ShapeError for shapes that do not
broadcast, LaunchError where extents that only run time knows differ.
"""

from __future__ import annotations

from typing import Any, Literal

from pto_jit.errors import TypeMismatchError
from pto_jit.language import _eager as eager
from pto_jit.language._builtin import Operand, builtin


@builtin
def exp(x: Operand) -> Any:
    """e**x.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.exp(np.float32(0))
    np.float32(1.0)
    """
    return eager.elementwise("exp", x)


@builtin
def exp2(x: Operand) -> Any:
    """2**x.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.exp2(np.array([1.0, 3.0]))
    array([2., 8.])
    """
    return eager.elementwise("exp2", x)


@builtin
def log(x: Operand) -> Any:
    """The natural logarithm; -inf at 0, NaN below.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.log(np.array([1.0]))
    array([0.])
    """
    return eager.elementwise("log", x)


@builtin
def log2(x: Operand) -> Any:
    """The logarithm to base 2.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.log2(np.array([8.0]))
    array([3.])
    """
    return eager.elementwise("log2", x)


@builtin
def log1p(x: Operand) -> Any:
    """log(1 + x), accurate near 0.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.log1p(np.array([0.0]))
    array([0.])
    """
    return eager.elementwise("log1p", x)


@builtin
def expm1(x: Operand) -> Any:
    """exp(x) - 1, accurate near 0.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.expm1(np.array([0.0]))
    array([0.])
    """
    return eager.elementwise("expm1", x)


@builtin
def sqrt(x: Operand) -> Any:
    """The square root, correctly rounded; NaN below 0.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.sqrt(np.array([9.0]))
    array([3.])
    """
    return eager.elementwise("sqrt", x)


@builtin
def rsqrt(x: Operand) -> Any:
    """1 / sqrt(x).

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.rsqrt(np.array([4.0]))
    array([0.5])
    """
    return eager.elementwise("rsqrt", x)


@builtin
def sin(x: Operand) -> Any:
    """The sine.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.sin(np.array([0.0]))
    array([0.])
    """
    return eager.elementwise("sin", x)


@builtin
def cos(x: Operand) -> Any:
    """The cosine.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.cos(np.array([0.0]))
    array([1.])
    """
    return eager.elementwise("cos", x)


@builtin
def tan(x: Operand) -> Any:
    """The tangent.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.tan(np.array([0.0]))
    array([0.])
    """
    return eager.elementwise("tan", x)


@builtin
def tanh(x: Operand) -> Any:
    """The hyperbolic tangent.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.tanh(np.array([0.0]))
    array([0.])
    """
    return eager.elementwise("tanh", x)


@builtin
def erf(x: Operand) -> Any:
    """The error function.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.erf(np.array([0.0, np.inf]))
    array([0., 1.])
    """
    return eager.elementwise("erf", x)


@builtin
def sigmoid(x: Operand) -> Any:
    """1 / (1 + exp(-x)).

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.sigmoid(np.array([0.0]))
    array([0.5])
    """
    return eager.elementwise("sigmoid", x)


@builtin
def silu(x: Operand) -> Any:
    """x * sigmoid(x) (Hendrycks and Gimpel, arXiv:1606.08415).

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.silu(np.array([0.0]))
    array([0.])
    """
    return eager.elementwise("silu", x)


@builtin
def relu(x: Operand) -> Any:
    """maximum(x, 0).

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.relu(np.array([-1.0, 2.0]))
    array([0., 2.])
    """
    return eager.elementwise("relu", x)


@builtin
def abs(x: Operand) -> Any:
    """The absolute value; wraps for the lowest integer.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.abs(np.array([-1, 2]))
    array([1, 2])
    """
    return eager.elementwise("abs", x)


@builtin
def floor(x: Operand) -> Any:
    """The largest integer not above x, in x's dtype.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.floor(np.array([-1.5]))
    array([-2.])
    """
    return eager.elementwise("floor", x)


@builtin
def ceil(x: Operand) -> Any:
    """The smallest integer not below x, in x's dtype.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.ceil(np.array([1.5]))
    array([2.])
    """
    return eager.elementwise("ceil", x)


@builtin
def round(x: Operand) -> Any:
    """The nearest integer, ties to even, in x's dtype.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.round(np.array([0.5, 1.5]))
    array([0., 2.])
    """
    return eager.elementwise("round", x)


@builtin
def trunc(x: Operand) -> Any:
    """x without its fraction, in x's dtype.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.trunc(np.array([-1.5]))
    array([-1.])
    """
    return eager.elementwise("trunc", x)


@builtin
def sign(x: Operand) -> Any:
    """-1, 0 or 1, in x's dtype; NaN for NaN.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.sign(np.array([-3, 0, 7]))
    array([-1,  0,  1])
    """
    return eager.elementwise("sign", x)


@builtin
def square(x: Operand) -> Any:
    """x * x.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.square(np.array([3]))
    array([9])
    """
    return eager.elementwise("square", x)


@builtin
def reciprocal(x: Operand) -> Any:
    """1 / x; integers become floats first.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.reciprocal(np.array([4.0]))
    array([0.25])
    """
    return eager.elementwise("reciprocal", x)


@builtin
def isnan(x: Operand) -> Any:
    """True where x is NaN.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.isnan(np.array([np.nan, 1.0]))
    array([ True, False])
    """
    return eager.elementwise("isnan", x)


@builtin
def isinf(x: Operand) -> Any:
    """True where x is +inf or -inf.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.isinf(np.array([np.inf, 1.0]))
    array([ True, False])
    """
    return eager.elementwise("isinf", x)


@builtin
def isfinite(x: Operand) -> Any:
    """True where x is neither infinite nor NaN.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.isfinite(np.array([np.inf, 1.0]))
    array([False,  True])
    """
    return eager.elementwise("isfinite", x)


@builtin
def gelu(x: Operand, approximate: Literal["none", "tanh"] = "none") -> Any:
    """x times the normal distribution function of x (Hendrycks and Gimpel, arXiv:1606.08415).

    `approximate="tanh"` is 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x**3))), another function, not a faster version.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.gelu(np.array([0.0, 10.0]))
    array([ 0., 10.])
    """
    if approximate not in ("none", "tanh"):
        raise TypeMismatchError(
            f"gelu(approximate={approximate!r})", code="PTO-T021", hint='approximate is "none" or "tanh"'
        )
    return eager.elementwise("gelu_tanh" if approximate == "tanh" else "gelu", x)


@builtin
def maximum(x: Operand, y: Operand) -> Any:
    """The larger of two values per element; NaN if either is NaN (as `np.maximum`).

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.maximum(np.array([1, 5]), 3)
    array([3, 5])
    """
    return eager.elementwise("max", x, y)


@builtin
def minimum(x: Operand, y: Operand) -> Any:
    """The smaller of two values per element; NaN if either is NaN (as `np.minimum`).

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.minimum(np.array([1, 5]), 3)
    array([1, 3])
    """
    return eager.elementwise("min", x, y)


@builtin
def where(condition: Operand, x: Operand, y: Operand) -> Any:
    """x where the condition holds, y elsewhere.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.where(np.array([True, False]), np.array([1, 2]), 0)
    array([1, 0])
    """
    return eager.select(condition, x, y)


@builtin
def clip(x: Operand, min: Operand = None, max: Operand = None) -> Any:
    """minimum(maximum(x, min), max), as `np.clip`; None leaves a side open.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.clip(np.array([-1, 2, 9]), 0, 5)
    array([0, 2, 5])
    """
    if min is not None:
        x = maximum(x, min)
    return x if max is None else minimum(x, max)


@builtin
def fma(x: Operand, y: Operand, z: Operand) -> Any:
    """x * y + z with one rounding (f16 and bf16: computed in f32).

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.fma(np.array([2.0]), np.array([3.0]), 1.0)
    array([7.])
    """
    return eager.elementwise("fma", x, y, z)


@builtin
def pow(x: Operand, y: Operand) -> Any:
    """x ** y.  Integers stay integers; a negative integer exponent gives the truncated value (0 unless x is 1 or -1).

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.pow(np.array([2, 3]), 2)
    array([4, 9])
    """
    return eager.elementwise("pow", x, y)


@builtin
def atan2(y: Operand, x: Operand) -> Any:
    """The angle of the point (x, y), in (-pi, pi].

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.atan2(np.array([0.0]), np.array([1.0]))
    array([0.])
    """
    return eager.elementwise("atan2", y, x)


@builtin
def fmod(x: Operand, y: Operand) -> Any:
    """The remainder with the sign of x, as in C; `%` has the sign of y.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.fmod(np.array([-7.0]), 4.0)
    array([-3.])
    """
    return eager.elementwise("fmod", x, y)


@builtin
def cast(x: Operand, dtype: Any) -> Any:
    """x in another dtype.

    Float to integer truncates and saturates, NaN gives 0; integer to integer wraps; to `pl.bool_` is `!= 0`.

    >>> import numpy as np, pto_jit.language as pl
    >>> pl.cast(np.array([-1.5, 300.0, np.nan]), pl.u8)
    array([  0, 255,   0], dtype=uint8)
    """
    return eager.cast(x, dtype)


@builtin
def bitcast(x: Operand, dtype: Any) -> Any:
    """The same bits read as another dtype of the same width.

    >>> import numpy as np, pto_jit.language as pl
    >>> hex(int(pl.bitcast(np.float32(1.0), pl.u32)))
    '0x3f800000'
    """
    return eager.bitcast(x, dtype)
