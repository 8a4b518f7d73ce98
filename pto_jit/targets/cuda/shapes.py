# SPDX-License-Identifier: MIT
"""Declared extents of tiles as operands, for tiles whose types do not say them."""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.dtypes import i64
from pto_jit.ir.nodes import Block, Const, Func, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.ir.walk import block_defs, rewrite_block, statements
from pto_jit.lower.groups.axes import is_elementwise, is_reduction, reduced_axes, unit_reshape
from pto_jit.lower.names import unused
from pto_jit.slotted import replace

_INDEX = ScalarType(i64)
_SAME = frozenset("sort argsort topk histogram cumsum cumprod assoc_scan map flip".split())
"""Operations whose results have the extents of their operands, but for those that types say."""


def axes_of(shape: Sequence[int | None]) -> int:
    """How many axes there are from the first one on that is not of extent 1."""
    return len(shape) - next((k for k, n in enumerate(shape) if n != 1), len(shape))


def is_high(operand: Operand) -> bool:
    """Whether an operand is a tile of more than two axes, leading ones of extent 1 left out."""
    typ = operand.type
    return type(typ) is TileType and len(typ.shape) > 2 and axes_of(typ.shape) > 2


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


def kept_axes(body: Block, op: Op) -> tuple[int | None, ...] | None:
    """For a reshape that only inserts or removes axes of extent 1: per result axis the operand's axis (None: new).

    Run-time extents that operands do not show to be equal are so where there is one alone: the number of elements is.
    """
    which = unit_reshape(op)
    if which is not None:
        return which
    source = op.args[0]
    assert isinstance(source, Var) and isinstance(source.type, TileType)
    have, wanted = shape_of(body, source), op.args[1:]
    one = Const(1, _INDEX)
    old, new = ([k for k, e in enumerate(shape) if e != one] for shape in (have or (), wanted))
    unequal = [(i, j) for i, j in zip(old, new, strict=False) if have is None or have[i] != wanted[j]]
    undecided = not any(have and isinstance(have[i], Const) and isinstance(wanted[j], Const) for i, j in unequal)
    if have is None or len(old) != len(new) or len(unequal) > 1 or not undecided:
        return None
    of = dict(zip(new, old, strict=True))
    return tuple(of.get(j) for j in range(len(wanted)))


def _extent(body: Block, name: str, axis: int, seen: frozenset[str]) -> Operand | None:
    """What the operations that make a tile say of an axis, if they agree.

    A variable that is made in a loop alone starts as a tile with extents of 1, which says nothing.  What is computed
    element by element from its earlier value keeps its extents.
    """
    if name in seen:
        return None
    seen = seen | {name}
    said: dict[Operand, bool] = {}
    makers = _makers(body).get(name, ())
    if len(makers) > 1:
        makers = [op for op in makers if not _keeps_extents(body, op, name)] or makers
    for op in makers:
        found = _said(body, op, axis, seen)
        if found is not None:
            said[found] = said.get(found, False) or op.op != "full" or found != Const(1, _INDEX)
    sure = [extent for extent, counts in said.items() if counts] or list(said)
    return sure[0] if len(sure) == 1 else None


def _keeps_extents(body: Block, op: Op, name: str) -> bool:
    """Whether an operation computes elements of a tile from those of an earlier value of the variable `name`."""
    work, seen = [op], {name}
    while work:
        op = work.pop()
        adds = op.op == "dot" and len(op.args) == 3  # to a tile that has the extents of the product
        if not (is_elementwise(op) or op.op in _SAME or adds):
            continue
        rank = op.results[0].type.rank  # type: ignore[union-attr]
        for arg in op.args[2:] if adds else op.args:
            if isinstance(arg, Var) and isinstance(arg.type, TileType) and arg.type.rank == rank:
                if arg.name == name:
                    return True
                if arg.name not in seen:
                    seen.add(arg.name)
                    work += _makers(body).get(arg.name, ())
    return False


def _taken(body: Block, op: Op, axis: int, seen: frozenset[str]) -> Operand | None:
    """Of `take`: an extent of the index, one that a view is given, or one that an operation of the body asks for."""
    tensor, index = op.args[:2]
    assert isinstance(index, Var) and isinstance(index.type, TileType)
    at = int(op.attr("axis"))  # type: ignore[call-overload]
    if at <= axis < at + index.type.rank:
        return _extent(body, index.name, axis - at, seen)
    wanted = axis if axis < at else axis - index.type.rank + 1
    view = next((v for v in _makers(body).get(tensor.name, ()) if v.op == "view"), None)  # type: ignore[union-attr]
    if view is not None:
        whole, drop = view.args[0].type.rank, view.attr("drop") or ()  # type: ignore[union-attr]
        kept = [k for k in range(whole) if k not in drop]  # type: ignore[operator]
        return view.args[1 + whole + kept[wanted]]
    asked = (s.results[0] for s in statements(body) if isinstance(s, Op) and s.op == "dim"
             and s.args[0] == tensor and s.attr("axis") == wanted)  # fmt: skip
    return next(asked, None)


def with_extents(func: Func) -> Func:
    """The function with operations that compute extents of tiles which types do not say: those of tensors whose rows
    are taken, and sums of those that are joined."""
    tensors = {s.args[0]: None for s in statements(func.body) if isinstance(s, Op) and s.op == "take"
               and s.args[0] in func.params}  # fmt: skip
    joined = any(_joins_unknown(s) for s in statements(func.body))
    if not tensors and not joined:
        return func
    taken = block_defs(func.body) | {p.name for p in func.params}
    before = tuple(
        Op("dim", (Var(unused("extent", taken), _INDEX),), (x,), (("axis", k),), (), func.loc)
        for x in tensors for k, extent in enumerate(x.type.shape) if extent is None  # type: ignore[union-attr]
    )  # fmt: skip
    body = (*before, *func.body) if before else func.body
    while joined:  # tiles that are joined again need the sums of those before
        summed = rewrite_block(body, lambda s, body=body: _with_sum(s, body, taken))
        joined, body = summed is not body, summed
    return replace(func, body=body)


def _joins_unknown(stmt: Stmt) -> bool:
    """Whether a statement joins tiles along an axis of run-time extent."""
    if not isinstance(stmt, Op) or stmt.op != "concat":
        return False
    return stmt.results[0].type.shape[stmt.attr("axis")] is None  # type: ignore[union-attr, index]


def _with_sum(stmt: Stmt, body: Block, taken: set[str]) -> Block | None:
    """Tiles being joined, with the additions before that tell the extent, where `body` lacks them."""
    if not _joins_unknown(stmt):
        return None
    assert isinstance(stmt, Op)
    sums: list[Op] = []
    extents = _joined_extents(body, stmt, frozenset())
    total = extents[0] if extents else None
    for extent in extents[1:]:
        if total is None or extent is None:
            return None
        known = _sum(body, total, extent)
        if known is None:
            known = Var(unused("joined", taken), _INDEX)
            sums.append(Op("add", (known,), (total, extent), (), (), stmt.loc))
        total = known
    return (*sums, stmt) if sums else None


def _joined_extents(body: Block, op: Op, seen: frozenset[str]) -> list[Operand | None]:
    """The extents that tiles have along the axis along which they are joined."""
    axis = int(op.attr("axis"))  # type: ignore[call-overload]
    known = [a.type.shape[axis] for a in op.args]  # type: ignore[union-attr]
    return [Const(n, _INDEX) if n is not None else _extent(body, a.name, axis, seen)  # type: ignore[union-attr]
            for a, n in zip(op.args, known, strict=True)]  # fmt: skip


def _sum(body: Block, first: Operand, second: Operand) -> Operand | None:
    """The sum of two extents, when it is known or an operation of the body adds them."""
    if isinstance(first, Const) and isinstance(second, Const):
        return Const(first.value + second.value, _INDEX)
    added = (s for s in statements(body) if isinstance(s, Op) and s.op == "add" and s.args == (first, second))
    return next((s.results[0] for s in added), None)


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
        case "rand" | "randn":
            return op.args[2 + axis]
        case "tile_slice":
            rank, drop = op.args[0].type.rank, op.attr("drop") or ()  # type: ignore[union-attr]
            return op.args[1 + rank + [k for k in range(rank) if k not in drop][axis]]  # type: ignore[operator]
        case "concat" if axis != op.attr("axis"):
            return _extent(body, op.args[0].name, axis, seen) if isinstance(op.args[0], Var) else None
        case "concat":
            total, *others = _joined_extents(body, op, seen)
            for extent in others:
                total = None if total is None or extent is None else _sum(body, total, extent)
            return total
        case "take":
            return _taken(body, op, axis, seen)
        case "gather":
            return _extent(body, op.args[1].name, axis, seen) if isinstance(op.args[1], Var) else None
        case "stack":
            source, new = op.args[0], int(op.attr("axis"))  # type: ignore[call-overload]
            assert isinstance(source, Var)
            return _extent(body, source.name, axis - (axis > new), seen)
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
