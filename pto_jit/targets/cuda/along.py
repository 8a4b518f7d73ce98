# SPDX-License-Identifier: MIT
"""Operations along one axis of a tile: order, running combinations, folds by a function.

In kernels with products lines are rows, whose elements lie side by side in the threads that share them, and so they are
in tiles of more than two axes.  There reductions run along the last axis, too, one axis at a time, but for those over
all axes or all but the last.

Before::

    %s = tcumsum %t {axis=0}

After::

    %t.turned = ttranspose %t {axes=(1, 0)}
    %s.turned = tcumsum %t.turned {axis=1}
    %s = ttranspose %s.turned {axes=(1, 0)}
"""

from __future__ import annotations

from collections.abc import Iterable

from pto_jit.ir.nodes import Attr, Func, Op, Operand, Stmt, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import block_defs, rewrite_block, statements
from pto_jit.lower.groups.axes import REDUCTIONS, is_reduction, reduced_axes
from pto_jit.lower.names import unused
from pto_jit.lower.wholes.lines import axis_along
from pto_jit.slotted import replace
from pto_jit.targets.cuda.shapes import axes_of


def along_rows(func: Func, *, products: bool) -> Func:
    """The function with all of these along the last axis of tiles: others are of transposed tiles.

    products: of tiles of two axes, too.
    """
    if not any(isinstance(s, Op) and _axis_to_turn(s, products) is not None for s in statements(func.body)):
        return func
    taken = block_defs(func.body) | {p.name for p in func.params}

    def turned(s: Stmt) -> tuple[Stmt, ...] | None:
        axis = _axis_to_turn(s, products) if isinstance(s, Op) else None
        if axis is None:
            return None
        assert isinstance(s, Op)
        if is_reduction(s) and len(_wide(s, reduced_axes(s))) > 1:
            first, rest = _first_axis(s, axis, taken)
            return (*(turned(first) or (first,)), *(turned(rest) or (rest,)))
        return _turned(s, axis, taken)

    return replace(func, body=rewrite_block(func.body, turned))


def _axis_to_turn(op: Op, products: bool) -> int | None:
    """The axis that has to be the last one; None for an operation that runs as it is."""
    along = axis_along(op)
    if along is None and (op.op not in REDUCTIONS or not is_reduction(op)):
        return None
    shape = op.args[0].type.shape  # type: ignore[union-attr]
    last = len(shape) - 1
    if along is not None:
        rows = along == last - 1 and axes_of(shape) <= 2  # else rows are other axes, also where this has extent 1
        down = along != last and (not rows or (products and shape[along] != 1))
        return along if down else None
    every, over = _wide(op, range(len(shape))), _wide(op, reduced_axes(op))
    if axes_of(shape) <= 2 or over in ([], [last], every, [a for a in every if a != last]):
        return None
    return over[0]


def _wide(op: Op, axes: Iterable[int]) -> list[int]:
    """Those of some axes of an operand that have not the extent 1."""
    return [a for a in sorted(axes) if op.args[0].type.shape[a] != 1]  # type: ignore[union-attr]


def _first_axis(op: Op, axis: int, taken: set[str]) -> tuple[Op, Op]:
    """A reduction over one of its axes alone, and one over the others of what that gives."""
    source, result = op.args[0], op.results[0]
    assert isinstance(source, Var) and isinstance(source.type, TileType) and isinstance(result.type, TileType)
    shape = tuple(1 if k == axis else n for k, n in enumerate(source.type.shape))
    folded = Var(unused(f"{source.name}.folded", taken), TileType(result.type.dtype, shape))
    others = tuple((key, value) for key, value in op.attrs if key not in ("axes", "keepdims"))
    first = replace(op, results=(folded,), attrs=(*others, ("axes", (axis,)), ("keepdims", True)))
    return first, replace(op, args=(folded, *op.args[1:]))


def _turned(op: Op, axis: int, taken: set[str]) -> tuple[Stmt, ...]:
    """An operation on tiles that have an axis as their last one, and what turns its operands and results."""
    rank = op.args[0].type.rank  # type: ignore[union-attr]
    order = (*(k for k in range(rank) if k != axis), axis)
    back = tuple(order.index(k) for k in range(rank))
    before: list[Stmt] = []
    after: list[Stmt] = []
    known: dict[Operand, Var] = {}

    def other_way(var: Var) -> Var:
        assert isinstance(var.type, TileType)
        shape = tuple(var.type.shape[k] for k in order)
        return Var(unused(f"{var.name}.turned", taken), TileType(var.type.dtype, shape))

    def operand(arg: Operand) -> Operand:
        if not isinstance(arg, Var) or not isinstance(arg.type, TileType):
            return arg
        if arg not in known:
            known[arg] = other_way(arg)
            before.append(Op("transpose", (known[arg],), (arg,), (("axes", order),), (), op.loc))
        return known[arg]

    def result(var: Var) -> Var:
        if not isinstance(var.type, TileType) or var.type.rank < rank:
            return var
        made = other_way(var)
        after.append(Op("transpose", (var,), (made,), (("axes", back),), (), op.loc))
        return made

    args, results = tuple(map(operand, op.args)), tuple(map(result, op.results))
    last: dict[str, Attr] = {"axis": rank - 1}
    if is_reduction(op):  # over this axis, and others of extent 1
        last["axes"] = tuple(sorted(back[a] for a in reduced_axes(op)))
    attrs = tuple((key, last.get(key, value)) for key, value in op.attrs)
    return (*before, replace(op, args=args, results=results, attrs=attrs), *after)
