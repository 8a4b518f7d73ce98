# SPDX-License-Identifier: MIT
"""Functions of NumPy and `math` that are given run-time values: what means the same in the language."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

import numpy as np

from pto_jit import language as pl
from pto_jit.codegen import builtins
from pto_jit.codegen.arrays import array, noted
from pto_jit.codegen.frames import MISSING
from pto_jit.codegen.values import Tensor, Tile, is_runtime
from pto_jit.dtypes import f64
from pto_jit.errors import TypeMismatchError
from pto_jit.language import _numpy_functions as functions
from pto_jit.language import _numpy_meaning as meanings

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


def call(g: Generator, fn: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The value of `fn(*args, **kwargs)`, of which an argument is a run-time value."""
    return noted(g, g.node, _called(g, fn, name, args, kwargs))


def _called(g: Generator, fn: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    known = isinstance(fn, Hashable)
    meaning = meanings.MEANING.get(fn) or meanings.COMPILED.get(fn) if known else None
    if meaning is not None:
        return g.inline(meaning, args, kwargs)
    if known and fn in meanings.LIKE and args and is_runtime(args[0]):
        return _like(g, meanings.LIKE[fn], *args, **kwargs)
    if fn in (np.copy, np.array) and len(args) == 1 and isinstance(args[0], (Tile, Tensor)) and not kwargs:
        return _copy(g, args[0])
    if (tensor := as_tensor(g, fn, args, kwargs)) is not MISSING:
        return tensor
    if fn in (np.array, np.asarray) and {"dtype"}.issuperset(kwargs):
        new = array(g, *args, **kwargs)
        if new is not MISSING:
            return new
    from pto_jit.codegen.numpy_names import instead_of  # an error is on its way: not every process's cost

    raise g.error(
        TypeMismatchError,
        f"`{name}` of a run-time value",
        code="PTO-T016",
        hint=instead_of(name),
        notes=g.origin(g.find_runtime((args, kwargs))),
    )


def at_run_time(g: Generator, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The tensor that `np.zeros(4)` and the like make, of an array that meets run-time values; MISSING for others."""
    node = g.node
    new = as_tensor(g, fn, args, kwargs)
    return new if new is MISSING else noted(g, node, new)


def as_tensor(g: Generator, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `np.zeros(4)` and the like, of known extents, make at run time; MISSING for any other function."""
    if not isinstance(fn, Hashable) or not {"shape", "fill_value", "dtype"}.issuperset(kwargs):
        return MISSING
    if fn in meanings.NEW:
        return (_full if fn is np.full else _new)(g, meanings.NEW[fn], *args, **kwargs)
    return g.inline(functions.arange, args, kwargs) if fn is np.arange else MISSING


def method(g: Generator, value: Tile | Tensor, name: str) -> Callable[..., Any] | None:
    """A method of NumPy's arrays that is not one of the language's; None for what kernels do not have."""
    if name == "copy":
        return lambda: noted(g, g.node, _copy(g, value))
    function = meanings.METHODS.get(name)
    if function is not None:
        return lambda *args, **kwargs: g.inline(function, (value, *args), kwargs)
    if name == "fill" and isinstance(value, Tensor):
        return lambda number: builtins.store_subscript(g, value, ..., number)
    return None


def _copy(g: Generator, value: Tile | Tensor) -> Any:
    """A new tensor in the body of a kernel; tiles are values, of which there need be no second one."""
    if isinstance(value, Tile):
        return value
    new = _like(g, pl.empty, value)
    if isinstance(new, Tile):
        return builtins.call("load", g, (value,), {})
    builtins.store_subscript(g, new, ..., value)
    return new


# What is made where it stands is a tensor in the body of a kernel, a tile elsewhere.


def _new(g: Generator, new: Callable[..., Any], shape: Any, dtype: Any = f64) -> Any:
    return g.inline(new, (shape, dtype))


def _full(g: Generator, new: Callable[..., Any], shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    return g.inline(new, (shape, fill_value, dtype))


def _like(g: Generator, new: Callable[..., Any], prototype: Any, *value: Any, dtype: Any = None) -> Any:
    shape = builtins.attribute(g, prototype, "shape")
    return g.inline(new, (shape, *value, prototype.dtype if dtype is None else dtype))
