# SPDX-License-Identifier: MIT
"""Run-time numbers of interpret mode: they compute as the compiled kernel does.

`Int` and `Float` are the weak numbers (arguments, extents, loop variables): Python's, except that integers wrap at 64
bits and nothing raises where machine code does not.  `Element` is a number with a dtype: an element of a tensor or
tile, or the result of a reduction.  All three have `dtype` and `to`, like the run-time scalars of a kernel.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NoReturn

import numpy as np

from pto_jit import dtypes
from pto_jit.dtypes import DType, f64, i64
from pto_jit.errors import TypeMismatchError
from pto_jit.language import _numpy_ops as ops

interpreting: ContextVar[bool] = ContextVar("pto_interpreting", default=False)
"""Whether a kernel's Python function is being run as interpret mode does."""

_LOW, _HIGH, _RANGE = -(1 << 63), 1 << 63, 1 << 64


def number(value: Any) -> Any:
    """A Python or NumPy number as a run-time number; anything else is itself."""
    kind = type(value)
    if kind is int:
        return Int(value if _LOW <= value < _HIGH else (value - _LOW) % _RANGE + _LOW)
    if kind is float:
        return Float(value)
    if isinstance(value, np.generic) and dtypes.from_numpy(value.dtype) is not None:
        return Element(value)
    return value


def plain(value: Any) -> Any:
    """A run-time number as the Python or NumPy number it is; anything else is itself."""
    kind = type(value)
    if kind is Element:
        return value.value
    if kind is Int:
        return int(value)
    return float(value) if kind is Float else value


def shown(value: Any) -> Any:
    """`number(value)` in interpret mode, `value` in eager mode."""
    return number(value) if interpreting.get() else value


def _whole(value: float) -> int:
    """A float as 64-bit integer: towards zero, saturating, NaN as 0."""
    if math.isnan(value):
        return 0
    return min(max(int(value), _LOW), _HIGH - 1) if math.isfinite(value) else (_LOW if value < 0 else _HIGH - 1)


def _shift_left(a: int, b: int) -> int:
    return a << b if 0 <= b < 64 else 0


def _shift_right(a: int, b: int) -> int:
    return a >> b if 0 <= b < 64 else -(a < 0)


def _power(a: int, b: int) -> Any:
    if b < 0:  # the integer part of the power
        return 0 if abs(a) != 1 else -1 if a == -1 and b & 1 else 1
    return pow(a, b, _RANGE)


def _real(name: str) -> Callable[[float, float], float]:
    """Float arithmetic that gives infinities and NaN where Python raises."""
    exact: Callable[..., Any] = getattr(operator, name)
    loose: Callable[..., Any] = {"truediv": np.true_divide, "floordiv": np.floor_divide, "mod": np.remainder,
                                 "pow": np.float_power}.get(name, exact)  # fmt: skip

    def compute(a: float, b: float) -> float:
        try:
            result = exact(a, b)
        except (ZeroDivisionError, OverflowError):
            result = loose(np.float64(a), np.float64(b))
        return math.nan if isinstance(result, complex) else float(result)

    return compute


_REAL = {name: _real(name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")}
_WHOLE: dict[str, Callable[[int, int], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "pow": _power, "lshift": _shift_left,
    "rshift": _shift_right, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "floordiv": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else 0,
    "truediv": lambda a, b: _REAL["truediv"](float(a), float(b)),
}  # fmt: skip


def _weak(name: str, a: Any, b: Any) -> Any:
    """An operation on Python numbers, by 64-bit rules; NotImplemented for others."""
    if isinstance(a, np.generic) or isinstance(b, np.generic):
        return NotImplemented
    if isinstance(a, int) and isinstance(b, int):
        if name == "pow" and b < 0 and not isinstance(b, Int):  # an exponent known when compiling
            raise TypeMismatchError(
                "an integer to a negative integer power", code="PTO-T024", hint="cast the base to a float dtype first"
            )
        return number(_WHOLE[name](int(a), int(b)))
    if name in _REAL and isinstance(a, (int, float)) and isinstance(b, (int, float)):
        if name == "pow" and _is_root(a, b):
            return Float(np.sqrt(float(a)))
        return Float(_REAL[name](float(a), float(b)))
    return NotImplemented


def _is_root(a: Any, b: Any) -> bool:
    """Whether a power is a square root, as of tiles: of a float, by an exponent known when compiling."""
    return type(b) is float and b == 0.5 and not isinstance(a, int)


class _Weak:
    """What `Int` and `Float` share: operators by 64-bit rules, `dtype` and `to`."""

    __slots__ = ()

    @property
    def dtype(self) -> DType:
        return i64 if isinstance(self, int) else f64

    def to(self, dtype: Any) -> Any:
        """`pl.cast(self, dtype)`: a number with that dtype."""
        from pto_jit.language import _eager  # which needs this module

        return _eager.cast(self, dtype)

    astype = to

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other  # type: ignore[operator]

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __neg__(self) -> Any:
        return number(-plain(self))

    def __abs__(self) -> Any:
        return number(abs(plain(self)))

    def __pos__(self) -> Any:
        return self

    def __round__(self, digits: Any = None) -> Any:
        _no_digits(digits)
        return number(round(_clamped(plain(self))))

    def __floor__(self) -> Any:
        return number(math.floor(_clamped(plain(self))))

    def __ceil__(self) -> Any:
        return number(math.ceil(_clamped(plain(self))))

    def __trunc__(self) -> Any:
        return number(math.trunc(_clamped(plain(self))))

    def __reduce__(self) -> Any:
        return number, (plain(self),)


def _clamped(value: Any) -> Any:
    """A number whose integer part fits 64 bits: rounding saturates."""
    return value if isinstance(value, int) or abs(value) < 2.0**62 else _whole(value)


def _no_digits(digits: Any) -> None:
    if digits is not None:
        raise TypeMismatchError(
            "`round` with digits of a run-time value", code="PTO-T073", hint="scale, round and scale back"
        )


class Int(_Weak, int):
    """A weak run-time integer: 64 bits, wrapping; by zero `//` and `%` give 0, to a negative power 0 or +-1."""

    def __invert__(self) -> Any:
        return number(~int(self))


class Float(_Weak, float):
    """A weak run-time float: division by zero and overflow give infinities and NaN."""

    def __int__(self) -> int:
        return _whole(float(self))


for _name in _WHOLE:
    for _class in (Int, Float):
        if _class is Int or _name in _REAL:
            setattr(_class, f"__{_name}__", lambda a, b, n=_name: _weak(n, a, b))
            setattr(_class, f"__r{_name}__", lambda b, a, n=_name: _weak(n, a, b))


class Element:
    """A number with a dtype; operators are the language's, every result has a dtype again."""

    __slots__ = ("value",)
    __hash__ = None  # type: ignore[assignment]  # as a run-time value of a kernel it is not a key

    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def dtype(self) -> DType:
        found = dtypes.from_numpy(self.value.dtype)
        assert found is not None
        return found

    def to(self, dtype: Any) -> Any:
        """`pl.cast(self, dtype)`."""
        from pto_jit.language import _eager  # which needs this module

        return _eager.cast(self, dtype)

    astype = to

    def item(self) -> Any:
        """The Python number."""
        return self.value.item() if self.value.dtype != dtypes.bf16.numpy else float(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __int__(self) -> int:
        return _whole(float(self.value)) if self.dtype.is_float else int(self.value)

    def __index__(self) -> int:
        if not self.dtype.is_integer:
            raise TypeMismatchError(
                f"a number of {self.dtype} is not an index", code="PTO-T030", hint="convert it with `int(...)`"
            )
        return int(self.value)

    def __round__(self, digits: Any = None) -> Any:
        _no_digits(digits)
        return number(round(_clamped(float(self.value)))) if self.dtype.is_float else self

    def __floor__(self) -> Any:
        return number(math.floor(_clamped(self.item())))

    def __ceil__(self) -> Any:
        return number(math.ceil(_clamped(self.item())))

    def __trunc__(self) -> Any:
        return number(math.trunc(_clamped(self.item())))

    def __neg__(self) -> Any:
        return _applied(operator.neg, self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return _applied(abs, self)

    def __invert__(self) -> Any:
        return _applied(operator.invert, self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other  # type: ignore[operator]

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.value, dtype=dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return number(getattr(ufunc, method)(*(plain(i) for i in inputs), **kwargs))

    def __repr__(self) -> str:
        return f"{self.dtype}({self.item()!r})"

    def __str__(self) -> str:
        return str(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec)

    def __iter__(self) -> NoReturn:
        raise TypeMismatchError("a number cannot be iterated over", code="PTO-T005", hint="loop over `pl.range(n)`")


def _applied(function: Callable[..., Any], *operands: Any) -> Any:
    try:
        with np.errstate(all="ignore"):
            return number(function(*(plain(o) for o in operands)))
    except OverflowError as error:
        raise TypeMismatchError(
            str(error), code="PTO-T012", hint="cast the number with `.to(dtype)` to one that holds both"
        ) from None


def _element(function: Callable[..., Any], a: Any, b: Any) -> Any:
    """An operation with an element; a weak number becomes one of the element's dtype, as a cast would make it."""
    if function is operator.pow and isinstance(a, Element) and a.dtype.is_float and _is_root(a, b):
        return _applied(np.sqrt, a)
    pair = [a, b]
    for k, value in enumerate(pair):
        other = pair[1 - k]
        weak = isinstance(value, (int, float)) and not isinstance(value, bool)
        if weak and isinstance(other, Element) and other.dtype == dtypes.bf16:  # NumPy knows its own dtypes only
            pair[k] = ops.constant(plain(value), other.dtype)
        elif type(value) is Int and isinstance(other, Element) and other.dtype.is_integer and function not in _TO_FLOAT:
            if function in _COMPARISONS and other.dtype.bits <= 16:  # compared as it is
                pair[1 - k] = int(other.value)
                continue
            pair[k] = ops.constant(int(value), other.dtype)
        elif not isinstance(value, (Element, np.generic, bool, int, float)):
            return NotImplemented
    return _applied(function, *pair)


_TO_FLOAT = (operator.truediv,)
_BINARY = {name: getattr(operator, f"{name}_" if name in ("and", "or") else name) for name in _WHOLE}
for _name, _function in _BINARY.items():
    setattr(Element, f"__{_name}__", lambda a, b, f=_function: _element(f, a, b))
    setattr(Element, f"__r{_name}__", lambda b, a, f=_function: _element(f, a, b))
_COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
for _function in _COMPARISONS:
    setattr(Element, f"__{_function.__name__}__", lambda a, b, f=_function: _element(f, a, b))
