# SPDX-License-Identifier: MIT
"""What each elementwise operation computes, on NumPy arrays, for eager mode and the interpreter alike.

All operands of an operation have one dtype (the caller promoted them).  f16 and bf16 are computed in f32 and rounded
after every operation; integers wrap; nothing warns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from pto_jit import dtypes
from pto_jit.dtypes import DType
from pto_jit.errors import TypeMismatchError

Array = Any  # an ndarray or a NumPy scalar

BF16 = np.dtype(ml_dtypes.bfloat16)
_HALF = (np.dtype(np.float16), BF16)
_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)


def is_half(dtype: Any) -> bool:
    """Whether a NumPy dtype is one of the two that are computed in f32."""
    return dtype in _HALF


def widen(array: Array) -> Array:
    """f16 and bf16 as f32, everything else as it is."""
    return array.astype(np.float32) if is_half(array.dtype) else array


def _in_f64(fn: Callable[..., Array]) -> Callable[..., Array]:
    """`fn` computed in f64 and rounded once to the operands' dtype."""

    def rounded(*arrays: Array) -> Array:
        return np.asarray(fn(*(np.asarray(a, np.float64) for a in arrays))).astype(arrays[0].dtype)

    return rounded


def _erf64(x: Array) -> Array:
    return np.asarray(_erf(x)).astype(np.float64)


def _sigmoid64(x: Array) -> Array:
    e = np.exp(-np.abs(x))  # never overflows
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def _gated(x: Array, gate: Array) -> Array:
    """x * gate; at minus infinity the limit -0 instead of inf * 0."""
    return np.where(np.isneginf(x), -0.0, x * gate)


def _gelu64(x: Array) -> Array:
    return _gated(x, 0.5 * np.asarray(_erfc(-x / math.sqrt(2))).astype(np.float64))  # 1 + erf would lose the tail


def _gelu_tanh64(x: Array) -> Array:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return _gated(x, _sigmoid64(2 * inner))  # 0.5 * (1 + tanh(inner)), whose tail would be lost


def _fma(a: Array, b: Array, c: Array) -> Array:
    if a.dtype != np.float64:  # the product of two f32 is exact in f64
        return (np.asarray(a, np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(a.dtype)
    return np.asarray(_exact_fma(a, b, c)).astype(np.float64)


def _fma_scalar(a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c
    if not math.isfinite(c):
        return c  # the exact product is finite even when a * b overflows
    (an, ad), (bn, bd), (cn, cd) = a.as_integer_ratio(), b.as_integer_ratio(), c.as_integer_ratio()
    numerator, denominator = an * bn * cd + cn * ad * bd, ad * bd * cd
    if numerator == 0:
        return a * b + c  # the sign of an exact zero is that of the two-step result
    try:
        return numerator / denominator  # integer division in Python is correctly rounded
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


_exact_fma = np.frompyfunc(_fma_scalar, 3, 1)


def _pow(x: Array, y: Array) -> Array:
    if x.dtype.kind not in "iu":
        return np.power(x, y)
    if x.dtype.kind == "u":
        return np.power(x, y)
    negative = y < 0
    positive = np.power(x, np.where(negative, 0, y).astype(x.dtype))
    odd = (y & 1).astype(bool)
    inverse = np.where(x == 1, 1, np.where(x == -1, np.where(odd, -1, 1), 0)).astype(x.dtype)
    return np.where(negative, inverse, positive)


def _for_floats(fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Rounding functions leave integers as they are."""
    return lambda x: fn(x) if _is_float(x) else x


def _classify(fn: Callable[[Array], Array], on_integers: bool) -> Callable[[Array], Array]:
    return lambda x: fn(x) if _is_float(x) else np.full(x.shape, on_integers)


def _is_float(x: Array) -> bool:
    return x.dtype.kind == "f" or x.dtype == BF16


def _rsqrt64(x: Array) -> Array:
    return 1 / np.sqrt(x)


def _reciprocal(x: Array) -> Array:
    return (x.dtype.type(1) / x) if _is_float(x) else np.reciprocal(x)


_NAMED: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "fmod": np.fmod, "pow": _pow, "max": np.maximum, "min": np.minimum, "atan2": np.arctan2,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
    "shl": np.left_shift, "shr": np.right_shift, "fma": _fma,
    "neg": np.negative, "abs": np.abs, "sign": np.sign, "square": np.square,
    "relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "log1p": np.log1p, "expm1": np.expm1,
    "sqrt": np.sqrt, "rsqrt": _in_f64(_rsqrt64), "reciprocal": _reciprocal,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh, "erf": _in_f64(_erf64),
    "sigmoid": _in_f64(_sigmoid64), "silu": _in_f64(lambda x: _gated(x, _sigmoid64(x))),
    "gelu": _in_f64(_gelu64), "gelu_tanh": _in_f64(_gelu_tanh64),
    "floor": _for_floats(np.floor), "ceil": _for_floats(np.ceil), "round": _for_floats(np.rint),
    "trunc": _for_floats(np.trunc),
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "isnan": _classify(np.isnan, False), "isinf": _classify(np.isinf, False), "isfinite": _classify(np.isfinite, True),
}  # fmt: skip

NAMES = frozenset(_NAMED) | {"select", "cast", "bitcast"}
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite"})
FLOAT_ONLY = frozenset(
    {
        "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "tanh",
        "erf", "sigmoid", "silu", "gelu", "gelu_tanh",
    }
)  # fmt: skip


def evaluate(name: str, *arrays: Array) -> Array:
    """The elementwise operation `name` of arrays or scalars of one dtype, which is also that of the result."""
    with np.errstate(all="ignore"):
        half = arrays[0].dtype
        if not is_half(half):
            return _NAMED[name](*arrays)
        result = _NAMED[name](*(a.astype(np.float32) for a in arrays))
        return result if name in COMPARISONS else result.astype(half)


def select(condition: Array, x: Array, y: Array) -> Array:
    """x where the condition holds, y elsewhere; both of one dtype."""
    return np.where(condition, x, y)


def cast(array: Array, dtype: DType) -> Array:
    """`array` in `dtype`: floats saturate to integers and NaN becomes 0; integers wrap; bool_ is `!= 0`."""
    target = dtype.numpy
    if array.dtype == target:
        return array
    with np.errstate(all="ignore"):
        if dtype.kind == "b":
            return array != array.dtype.type(0)
        if dtype.is_integer and _is_float(array):
            return _saturate(np.asarray(array).astype(np.float64), dtype)
        if target == BF16 and array.dtype.kind in "iu":
            return array.astype(np.float32).astype(target)
        return array.astype(target)


def _saturate(x: Array, dtype: DType) -> Array:
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
    high = low + (1 << dtype.bits) - 1
    whole = np.trunc(x)
    inside = (whole >= low) & (whole < float(high + 1))  # high itself may not be a float
    result = np.where(inside, whole, 0.0).astype(dtype.numpy)
    result = np.where(whole >= float(high + 1), dtype.numpy.type(high), result)
    return np.where(whole < low, dtype.numpy.type(low), result)


def bitcast(array: Array, dtype: DType) -> Array:
    """The same bits as `dtype`, which has the same width; bool_ has no bit pattern of its own."""
    source = dtypes.from_numpy(array.dtype)
    if source is None or source.bits != dtype.bits or "b" in (source.kind, dtype.kind):
        raise TypeMismatchError(f"bitcast from {source} to {dtype}: the widths differ or one is bool_", code="PTO-T027",
                                hint="bitcast keeps the bits; use `.to(dtype)` to convert values")  # fmt: skip
    return np.ascontiguousarray(array).view(dtype.numpy).reshape(np.shape(array))


def constant(value: bool | int | float, dtype: DType) -> Any:
    """A Python number as a NumPy scalar of `dtype`, rounded, wrapped or saturated as a cast would."""
    if dtype.kind == "b":
        return np.bool_(value)
    if dtype.is_integer:
        if isinstance(value, float):
            return cast(np.float64(value), dtype)[()]
        low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
        return dtype.numpy.type((int(value) - low) % (1 << dtype.bits) + low)
    with np.errstate(all="ignore"):
        return dtype.numpy.type(float(value))


def float_dtype(dtype: DType) -> DType:
    """The dtype a float function computes an argument in, as NumPy's ufuncs choose it."""
    if dtype.is_float:
        return dtype
    if dtype.bits == 8:
        return dtypes.f16
    return dtypes.f32 if dtype.bits == 16 else dtypes.f64


def widened(dtype: DType) -> DType:
    """The dtype NumPy sums in: small integers and bool_ in 64 bits."""
    if dtype.kind in "ib":
        return dtypes.i64
    return dtypes.u64 if dtype.kind == "u" else dtype


def product_dtype(dtype: DType) -> DType:
    """The dtype a matrix product accumulates in and returns."""
    if dtype.is_float:
        return dtypes.f32 if dtype.bits == 16 else dtype
    return dtypes.i32 if dtype.bits < 32 else dtype
