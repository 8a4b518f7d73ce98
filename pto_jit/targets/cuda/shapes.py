# SPDX-License-Identifier: MIT
"""Declared extents of tiles as operands, for tiles whose types do not say them."""

from __future__ import annotations

from pto_jit.dtypes import i64
from pto_jit.ir.nodes import Block, Const, Op, Operand, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.ir.walk import statements
from pto_jit.lower.axes import is_elementwise, is_reduction, reduced_axes

_INDEX = ScalarType(i64)
_SAME = frozenset("sort argsort topk histogram cumsum cumprod assoc_scan map flip".split())
"""Operations whose results have the extents of their operands, but for those that types say."""


def shape_of(body: Block, var: Var) -> tuple[Operand, ...] | None:
    """The declared extents of a tile variable of `body`; None when an operation does not say them."""
    assert isinstance(var.type, TileType)
    out: list[Operand] = []
    for axis, extent in enumerate(var.type.shape):
        found = Const(extent, _INDEX) if extent is not None else _extent(body, var.name, axis, frozenset())
        if found is None:
            return None
        out.append(found)
    return tuple(out)


def _extent(body: Block, name: str, axis: int, seen: frozenset[str]) -> Operand | None:
    """What the operations that make a tile say of an axis, if they agree.

    A variable that is made in a loop alone starts as a tile with extents of 1, which says nothing.
    """
    if name in seen:
        return None
    seen = seen | {name}
    said: dict[Operand, bool] = {}
    for op in _makers(body).get(name, ()):
        found = _said(body, op, axis, seen)
        if found is not None:
            said[found] = said.get(found, False) or op.op != "full" or found != Const(1, _INDEX)
    sure = [extent for extent, counts in said.items() if counts] or list(said)
    return sure[0] if len(sure) == 1 else None


_last: list[tuple[Block, dict[str, list[Op]]]] = []
"""What was asked for last: the tiles of one kernel are looked up many times."""


def _makers(body: Block) -> dict[str, list[Op]]:
    """The operations of a block that make each name."""
    if not _last or _last[0][0] is not body:
        made: dict[str, list[Op]] = {}
        for op in statements(body):
            if isinstance(op, Op):
                for result in op.results:
                    made.setdefault(result.name, []).append(op)
        _last[:] = [(body, made)]
    return _last[0][1]


def _said(body: Block, op: Op, axis: int, seen: frozenset[str]) -> Operand | None:
    typ = op.results[0].type
    assert isinstance(typ, TileType)
    match op.op:
        case "load":
            return op.args[1 + typ.rank + axis]
        case "full" | "reshape" | "broadcast_to":
            return op.args[1 + axis]
        case "arange":
            return op.args[2]
        case "dot":
            source = op.args[0] if axis == typ.rank - 2 else op.args[1]
            return _extent(body, source.name, axis, seen) if isinstance(source, Var) else None
        case "transpose":
            axes = op.attr("axes")
            source = op.args[0]
            assert isinstance(axes, tuple) and isinstance(source, Var)
            return _extent(body, source.name, int(axes[axis]), seen)  # type: ignore[arg-type]
        case _:
            pass
    if is_reduction(op) or op.op == "fold":
        source = op.args[0]
        assert isinstance(source, Var) and isinstance(source.type, TileType)
        over = reduced_axes(op)
        kept = [k for k in range(source.type.rank) if op.attr("keepdims") or k not in over]
        return _extent(body, source.name, kept[axis], seen)
    if is_elementwise(op) or op.op in _SAME:
        for arg in op.args:
            if isinstance(arg, Var) and isinstance(arg.type, TileType):
                at = axis - typ.rank + arg.type.rank
                if at >= 0 and arg.type.shape[at] is None:
                    found = _extent(body, arg.name, at, seen)
                    if found is not None:
                        return found
    return None
