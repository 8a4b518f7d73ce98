# SPDX-License-Identifier: MIT
"""Items of small tables at run-time indices: `DIRECTIONS[d]`, `WEIGHTS[k % 3]`, `KERNEL[i, j]`.

A table is a tuple, list or array of NumPy that the compiler knows, with numbers, or containers of numbers of one
structure.  Its item is selected among all of them, so tables are short: longer ones are for memory.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pto_jit import dtypes
from pto_jit.codegen import builtins
from pto_jit.codegen.emit import index as number
from pto_jit.codegen.frames import MISSING
from pto_jit.codegen.merging import Disagreement, combine, joined_dtype
from pto_jit.codegen.values import Scalar, Tensor, Tile
from pto_jit.dtypes import i64

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

MOST = 32
"""The most items of a table."""


def item_of(g: Generator, table: Any, index: Any) -> Any:
    """`table[index]` with run-time numbers in the index; MISSING where it is no table, or no index of one."""
    if isinstance(table, np.ndarray):
        return _of_array(g, table, index if isinstance(index, tuple) else (index,))
    if type(table) not in (tuple, list) or not isinstance(index, Scalar):
        return MISSING
    return _chosen(g, table, index)


def _of_array(g: Generator, table: np.ndarray, index: tuple[Any, ...]) -> Any:
    """Constant indices first, then one axis after the other."""
    fits = len(index) == table.ndim and table.size <= MOST and dtypes.from_numpy(table.dtype) is not None
    if not fits or not all(isinstance(i, (Scalar, int, np.integer)) for i in index):
        return MISSING
    rest = g.python(table.__getitem__, tuple(slice(None) if isinstance(i, Scalar) else i for i in index))
    found: Any = _rows(rest)
    for i in index:
        if isinstance(i, Scalar):
            found = _chosen(g, found, i)
            if found is MISSING:
                return MISSING
    return found


def _rows(array: np.ndarray) -> list[Any]:
    return [_rows(row) for row in array] if array.ndim > 1 else list(array)


def _chosen(g: Generator, items: Sequence[Any], index: Scalar) -> Any:
    if not 0 < len(items) <= MOST or index.dtype.is_float:
        return MISSING
    if index.dtype.kind == "b":
        index = g.e.cast(index, i64)
    if index.dtype.kind == "i":
        index = _from_the_start(g, index, len(items))
    is_at = functools.cache(lambda k: g.e.scalar("eq", [index.operand, g.e.cast(k, index.dtype).operand]))

    def leaf(values: Sequence[Any]) -> Any:
        if any(isinstance(v, (Tile, Tensor)) for v in values):
            raise Disagreement("tiles")
        joined_dtype(values)  # which refuses numbers that have no common dtype
        found = values[-1]
        for k in reversed(range(len(values) - 1)):
            found = builtins.call("where", g, (is_at(k), values[k], found), {})
        return found

    try:
        found = combine(list(items), leaf)
    except Disagreement:
        return MISSING
    if g.options.debug:
        wide = g.e.cast(index, i64).operand
        ends = (g.e.scalar(op, [wide, number(end)]).operand for op, end in (("ge", 0), ("lt", len(items))))
        holds = g.e.scalar("and", list(ends)).operand
        g.e.op("assert", [holds], {"error": "BoundsError", "message": f"an index outside of {len(items)} items"})
    return found


def _from_the_start(g: Generator, index: Scalar, count: int) -> Scalar:
    """An index below 0 counts from the end, as Python's do."""
    zero, all_ = (g.e.cast(k, index.dtype).operand for k in (0, count))
    below = g.e.scalar("lt", [index.operand, zero])
    return builtins.call("where", g, (below, g.e.scalar("add", [index.operand, all_]), index), {})
