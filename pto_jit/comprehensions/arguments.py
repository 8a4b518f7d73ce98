# SPDX-License-Identifier: MIT
"""The arguments of a call of a comprehension: shapes, numbers, arrays to write."""

from __future__ import annotations

from typing import Any

import numpy as np

from pto_jit.comprehensions.nodes import Parameter
from pto_jit.dtypes import DType
from pto_jit.errors import ArgumentError, ShapeError


def shape_of(owner: Any, name: str, value: Any) -> tuple[int, ...]:
    """The shape of an argument; ArgumentError for what is not an array."""
    shape: Any = getattr(value, "shape", None)
    if shape is None:
        try:
            shape = memoryview(value).shape
        except TypeError:
            raise ArgumentError(
                f"PTO-R054: argument `{name}` of `{owner.__name__}` is {type(value).__name__}, an array is wanted\n"
                "help: pass a NumPy array, or anything that shows its memory"
            ) from None
    return tuple(shape)


def number(owner: Any, p: Parameter, value: Any) -> Any:
    """A Python number of the parameter's kind; ArgumentError for what is none."""
    if not isinstance(value, (bool, int, float, np.generic)):
        shape = getattr(value, "shape", None)
        if shape != ():
            raise ArgumentError(
                f"PTO-R055: argument `{p.name}` of `{owner.__name__}` is {type(value).__name__}, a number of "
                f"{p.dtype} is wanted\nhelp: pass a Python or NumPy number"
            )
        value = value.item()
    if isinstance(value, np.generic):
        value = value.item()
    assert p.dtype is not None
    if p.dtype.is_integer and isinstance(value, int) and not limits(p.dtype)[0] <= value <= limits(p.dtype)[1]:
        raise ArgumentError(f"{outside(owner.__name__, p.name, p.dtype)}: {value}\nhelp: pass a number of that type")
    if p.dtype.is_integer and isinstance(value, float):
        raise ArgumentError(
            f"PTO-R055: argument `{p.name}` of `{owner.__name__}` is {value}, a number of {p.dtype} is wanted\n"
            "help: pass a whole number"
        )
    return float(value) if p.dtype.is_float else int(value)


def limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest integer of a type."""
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    return low, low + (1 << dtype.bits) - 1


def outside(owner: str, parameter: str, dtype: DType) -> str:
    """What is said of an integer that the type of its parameter does not hold."""
    return f"PTO-R055: argument `{parameter}` of `{owner}` is outside of {dtype}"


def fitting(value: Any, dtype: DType, limits: tuple[int, int], message: str, *place: Any) -> Any:
    """An integer argument as one of a narrower type.

    It is in the programs of comprehensions, which the C dispatcher calls with numbers that nothing else has looked at.
    place: where the parameter is, as `Loc` has it.
    """
    raise NotImplementedError("it is compiled, never run")


fitting.__pto_builtin__ = "comprehension.fitting"  # type: ignore[attr-defined]


def host(value: Any) -> Any:
    """The value of a compile-time parameter: numbers of NumPy, and arrays of one, as those of Python."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.shape == ()):
        return value.item()
    return value


def of_rank_1(value: Any) -> Any:
    """An array of rank 0 as one of one element."""
    return value.reshape(1) if getattr(value, "shape", None) == () else value


def share(a: Any, b: Any) -> bool:
    """Whether two arrays may have memory in common."""
    if type(a) is np.ndarray and type(b) is np.ndarray:
        return np.may_share_memory(a, b)
    try:
        return np.may_share_memory(np.asarray(a), np.asarray(b))
    except (TypeError, ValueError, RuntimeError):  # what NumPy cannot look at is taken as it is
        return a is b


def check_out(owner: Any, name: str, tensor: Any, wanted: tuple[Any, ...], array: Any) -> None:
    """Whether an array can take the result `name`; ShapeError or ArgumentError."""
    shape = shape_of(owner, name, array)
    if shape != tuple(wanted):
        raise ShapeError(
            f"out= for `{name}` has the shape {shape}, the result has {tuple(wanted)}", code="PTO-R056",
            hint="pass an array of that shape",
        )  # fmt: skip
    dtype = getattr(array, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype != tensor.dtype.numpy:
        raise ArgumentError(
            f"PTO-R057: out= for `{name}` holds {dtype}, the result is {tensor.dtype}\n"
            "help: pass an array of that dtype"
        )
