# SPDX-License-Identifier: MIT
"""NumPy's functions and methods that take run-time values, and what means the same in the language."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from pto_jit import language as pl
from pto_jit.language import _numpy_functions as functions
from pto_jit.language import _numpy_matrices as matrices


def _same(module: Any, names: str) -> dict[Any, Callable[..., Any]]:
    """NumPy's functions by these names, and those of the same names in a module of the language or its kin."""
    return {getattr(np, name): getattr(module, name) for name in names.split()}


MEANING: dict[Any, Callable[..., Any]] = {
    **_same(pl, "exp exp2 expm1 log log1p log2 sqrt sin cos tan tanh floor ceil trunc sign isnan isinf isfinite "
                "maximum minimum reshape transpose flip squeeze expand_dims broadcast_to"),
    **_same(functions, "fabs rint round square fmod logical_and logical_or logical_xor logical_not sum prod mean "
                       "max min any all argmax argmin var std ptp count_nonzero cumsum cumprod sort argsort clip where "
                       "ravel concatenate stack outer take_along_axis"),
    **_same(matrices, "diff roll tril triu trace diag median average inner vdot swapaxes moveaxis vstack hstack nansum "
                      "nanmean logaddexp heaviside"),
    np.absolute: pl.abs, np.arctan2: pl.atan2, np.around: functions.round, np.amax: functions.max,
    np.amin: functions.min, np.linalg.norm: functions.norm,
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul, np.true_divide: operator.truediv,
    np.floor_divide: operator.floordiv, np.remainder: operator.mod, np.power: operator.pow, np.matmul: operator.matmul,
    np.dot: operator.matmul, np.negative: operator.neg, np.invert: operator.invert,
    np.bitwise_and: operator.and_, np.bitwise_or: operator.or_, np.bitwise_xor: operator.xor,
    np.left_shift: operator.lshift, np.right_shift: operator.rshift,
    np.equal: operator.eq, np.not_equal: operator.ne, np.less: operator.lt, np.less_equal: operator.le,
    np.greater: operator.gt, np.greater_equal: operator.ge,
}  # fmt: skip
"""NumPy's functions, and what means the same for tiles, tensors and run-time numbers: functions of the language, of
`operator`, and those written for it."""

METHODS: dict[str, Callable[..., Any]] = {
    **{name: getattr(functions, name) for name in "std var cumsum cumprod argsort clip round flatten ravel".split()},
    "squeeze": pl.squeeze, "dot": operator.matmul, "copy": pl.load,
}  # fmt: skip
"""Methods of NumPy's arrays, as functions of a tile or tensor (a copy of a tensor is one in the body of a kernel)."""

_OF_MATH = {name: name for name in "sinh cosh cbrt log10 hypot copysign nextafter frexp modf degrees radians".split()}
_OF_MATH |= {f"arc{name}": f"a{name}" for name in "sin cos tan sinh cosh tanh".split()}
_OF_MATH |= {"rad2deg": "degrees", "deg2rad": "radians"}
COMPILED: dict[Any, Callable[..., Any]] = {
    **{getattr(np, name): functions.of_floats(getattr(math, meaning)) for name, meaning in _OF_MATH.items()},
    np.ldexp: functions.ldexp, np.arange: functions.arange,
}  # fmt: skip
"""The same for compiled code alone: what `math` has, and what is made of numbers, which eager code leaves to NumPy."""

NEW: dict[Any, Callable[..., Any]] = {
    np.zeros: pl.zeros, np.ones: pl.ones, np.empty: pl.empty, np.full: pl.full,
}  # fmt: skip
"""Functions that make a tensor or tile of a shape, and those of the language that do."""

LIKE: dict[Any, Callable[..., Any]] = {
    np.zeros_like: pl.zeros, np.ones_like: pl.ones, np.empty_like: pl.empty, np.full_like: pl.full,
}  # fmt: skip
"""Functions that make one like another, and those of the language that are given its shape and dtype (after the value
of `full`)."""
