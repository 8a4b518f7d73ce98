# SPDX-License-Identifier: MIT
"""Comprehension statements: assignments to elements at indices that are `pl.axis` objects."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.registry import builtin
from pto_jit.codegen.values import Scalar, Tensor, Tile
from pto_jit.dtypes import DType, f32, i64
from pto_jit.language._indices import Axis

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


@builtin("axis")
def _axis(g: Generator, low: Any = None, high: Any = None) -> Axis:
    return Axis(low, high)


def _taken(value: Scalar, stored: DType) -> DType:
    """The type of a number: a weak one takes that of the tensor which is written."""
    if not value.weak:
        return value.dtype
    if value.dtype.is_float:
        return stored if stored.is_float else f32
    return stored if stored.is_integer and stored.bits >= 32 and value.dtype.is_integer else value.dtype


def is_comprehension(g: Generator, target: ast.expr) -> bool:
    """Whether a target is an element at indices declared with `pl.axis`."""
    if not isinstance(target, ast.Subscript):
        return False
    items = target.slice.elts if isinstance(target.slice, ast.Tuple) else (target.slice,)
    return any(isinstance(i, ast.Name) and isinstance(g.frame.vars.get(i.id), Axis) for i in items)


def comprehension(g: Generator, node: ast.Assign | ast.AugAssign, target: ast.expr) -> None:
    """Compile `O[i, j] = e` as loops over the inferred ranges of its indices."""
    from pto_jit.comprehensions.inline import no_element, statement_function

    assert isinstance(target, ast.Subscript)
    around: dict[str, Any] = {}
    axes: dict[str, tuple[Any, Any] | None] = {}
    values: dict[str, Any] = {}
    for name in ast.walk(node):
        if not isinstance(name, ast.Name) or name.id in around or name.id in values or name.id in axes:
            continue
        value = g.lookup(ast.copy_location(ast.Name(name.id, ast.Load()), name))
        if isinstance(value, Axis):
            ends: list[Any] = []
            for side, end in (("low", value.low), ("high", value.high)):
                if isinstance(end, Scalar):
                    ends.append(f"{name.id}_{side}")
                    values[ends[-1]] = end
                elif end is not None:
                    ends.append(end)
            axes[name.id] = (ends[0], ends[1]) if ends else None
        elif isinstance(value, (Tensor, Scalar)):
            values[name.id] = value
        elif isinstance(value, Tile):
            raise no_element(g.loc(name), name.id)
        else:
            around[name.id] = value
    tensors = {n: (v.dtype, v.rank) for n, v in values.items() if isinstance(v, Tensor)}
    written = target.value.id if isinstance(target.value, ast.Name) else ""
    stored = tensors[written][0] if written in tensors else f32
    bounds = {end for ends in axes.values() if ends is not None for end in ends if isinstance(end, str)}
    scalars = {
        n: i64 if n in bounds else _taken(v, stored) for n, v in values.items() if isinstance(v, Scalar)
    }
    fn, names = statement_function(g.frame.file, node, written, around, tensors, scalars, axes)
    g.node = node
    g.calls.call(fn, tuple(values[n] for n in names), {})
