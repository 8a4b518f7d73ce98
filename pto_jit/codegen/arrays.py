# SPDX-License-Identifier: MIT
"""New arrays of NumPy in kernels: tiles where only their values count, tensors where their elements are assigned.

`np.zeros(3)` in a loop is a tile, as `pl.zeros((3,))` is, until an element of it is assigned: then the program is
compiled again with a tensor in its place, which each iteration has for itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from pto_jit import dtypes
from pto_jit import language as pl
from pto_jit.codegen import builtins
from pto_jit.codegen.frames import MISSING
from pto_jit.codegen.values import Scalar, Tensor, Tile
from pto_jit.dtypes import DType
from pto_jit.ir.walk import TENSOR_VIEWS

if TYPE_CHECKING:
    import ast

    from pto_jit.codegen.generator import Generator

MOST = 256
"""Elements of an array that is written out, one by one."""


def noted(g: Generator, node: ast.AST | None, new: Any) -> Any:
    """`new`, which NumPy makes as an array at `node`: a tensor if that is known to be needed, else noted."""
    if not isinstance(new, Tile) or node is None:
        return new
    if node not in g.at_run_time:
        g.new_tiles[new.var.name] = node
        return new
    memory = g.inline(pl.empty, (builtins.attribute(g, new, "shape"), new.dtype))
    builtins.store_subscript(g, memory, ..., new)
    return memory


def values_of(
    g: Generator, name: str, tensor: Tensor, bound: Mapping[str, Any], live: frozenset[str] | None = None
) -> Tile | None:
    """What `name` holds where it gets another array on another path: the elements of the one it is here.

    bound: what this path gives to names, where that is not what they had before; live: the names that are used
    afterwards (None: any may be).  None where elements may not be the same as the array: another name or the caller may
    change it.
    """
    root = _root(g, tensor)
    if root not in list(g.e.allocated)[g.frame.given :]:
        return None
    names = {k: v for k, v in {**g.frame.vars, **bound}.items() if k != name and (live is None or k in live)}
    return None if any(_holds(g, v, root) for v in names.values()) else builtins.call("load", g, (tensor,), {})


def is_shared(g: Generator, name: str, tensor: Tensor) -> bool:
    """Whether a tensor that was made here has another name than `name`, by which it may change in a loop that gives
    `name` other values."""
    root = _root(g, tensor)
    return root in g.e.allocated and any(_holds(g, v, root) for k, v in g.frame.vars.items() if k != name)


def _holds(g: Generator, value: Any, root: str, depth: int = 6) -> bool:
    """Whether a value is, or has somewhere in it, a tensor or a part of it."""
    if isinstance(value, Tensor):
        return _root(g, value) == root
    if isinstance(value, (Scalar, Tile, str, int, float, np.ndarray, type, FunctionType, ModuleType)) or value is None:
        return False
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else getattr(
        value, "__dict__", {}).values()  # fmt: skip
    return bool(items) and (depth == 0 or any(_holds(g, item, root, depth - 1) for item in items))


def _root(g: Generator, tensor: Tensor) -> str:
    """The variable of the tensor that a view is a part of."""
    name = tensor.var.name
    while (op := g.e.definitions.get(name)) is not None and op.op in TENSOR_VIEWS:
        name = op.args[0].name  # type: ignore[union-attr]
    return name


def array(g: Generator, items: Any, dtype: Any = None) -> Any:
    """`np.array` of numbers in lists, some of which are known when the kernel runs; MISSING for anything else."""
    if isinstance(items, (Tile, Tensor)):
        return MISSING
    shape = _shape(items)
    numbers = list(_numbers(items, len(shape)))
    if not shape or not 0 < len(numbers) <= MOST or any(_shape(row) != shape[1:] for row in items):
        return MISSING
    kinds = [_dtype(x) for x in numbers]
    if None in kinds or len(numbers) != np.prod(shape):
        return MISSING
    if dtype is None:
        dtype = dtypes.from_numpy(np.result_type(*[kind.numpy for kind in kinds if kind is not None]))
    return _written(g, shape, dtype, dict(zip(np.ndindex(shape), numbers, strict=True)))


def written_out(g: Generator, values: np.ndarray) -> Any:
    """An array that Python made, as a tensor with its elements; MISSING for large ones and those of other dtypes."""
    dtype = dtypes.from_numpy(values.dtype)
    if dtype is None or not values.ndim or not 0 < values.size <= MOST:
        return MISSING
    numbers = {place: values[place].item() for place in np.ndindex(values.shape)}
    ((first, _),) = Counter(map(repr, numbers.values())).most_common(1)  # by text: -0.0 is not 0.0
    usual = next(number for number in numbers.values() if repr(number) == first)
    others = {place: number for place, number in numbers.items() if repr(number) != first}
    return _written(g, values.shape, dtype, others, usual)


def _written(g: Generator, shape: tuple[int, ...], dtype: Any, numbers: dict[Any, Any], usual: Any = None) -> Any:
    """A tensor of so many elements, `usual` but for `numbers`."""
    g.at_run_time |= {g.node}  # type: ignore[arg-type]
    memory = g.inline(pl.empty, (shape, dtype)) if usual is None else g.inline(pl.full, (shape, usual, dtype))
    for place, number in numbers.items():
        builtins.store_subscript(g, memory, place, number)
    return memory


def _shape(items: Any) -> tuple[int, ...]:
    """The extents of nested lists, as their first items have them."""
    return (len(items), *_shape(items[0])) if isinstance(items, (list, tuple)) and items else ()


def _numbers(items: Any, depth: int) -> Iterator[Any]:
    if depth == 0 or not isinstance(items, (list, tuple)):
        yield items
        return
    for item in items:
        yield from _numbers(item, depth - 1)


def _dtype(number: Any) -> DType | None:
    """The dtype that NumPy gives a number; None for anything else."""
    if isinstance(number, (Scalar, np.generic)):
        return number.dtype if isinstance(number, Scalar) else dtypes.from_numpy(number.dtype)
    if isinstance(number, bool):
        return dtypes.bool_
    return dtypes.i64 if isinstance(number, int) else dtypes.f64 if isinstance(number, float) else None
