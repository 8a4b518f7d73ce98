# SPDX-License-Identifier: MIT
"""Tiles of three axes and more of which only two are longer than 1, as tiles of two axes.

Before::

    %x.1 = tload %x[0, %at, %at.1] [%n, 1, 64]
    %m = tmean %x.1 {axes=(0,), keepdims=true}      // [1, 1, 64]
    %u = tsub %x.1, %m
    tstore %u, %y[0, %at, %at.1]

After::

    %x.slab = tload %x[0, %at, %at.1] [%n, 1, 64]
    %x.1 = treshape %x.slab, [%n, 64]
    %m = tmean %x.1 {axes=(0,), keepdims=true}      // [1, 64]
    %u = tsub %x.1, %m
    %u.slab = treshape %u, [%n, 1, 64]
    tstore %u.slab, %y[0, %at, %at.1]

The last axis stays, and of the others the one that is longer than 1, whichever it is.  Before whole tensors are
divided, reshapes that insert axes of extent 1 between run-time ones say which axes they keep: as axes that are repeated
once and change places.
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.ir.nodes import Attr, Block, For, Func, If, Op, Operand, Scope, Stmt, Var, While
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.ir.walk import blocks, rewrite_block, statements, uses, vars_made, with_blocks
from pto_jit.lower.groups.axes import is_elementwise, is_reduction, reduced_axes, unit_reshape
from pto_jit.lower.names import Names, index
from pto_jit.lower.wholes.lines import STORES
from pto_jit.slotted import replace
from pto_jit.targets.ascend.values import row_axis
from pto_jit.targets.cuda.shapes import kept_axes, shape_of

_SCANS = frozenset(["cumsum", "cumprod", "assoc_scan"])
_KNOWN = _SCANS | frozenset("copy full broadcast_to transpose valid extent sort argsort map".split())


def with_told_axes(func: Func) -> Func:
    """A flat function whose reshapes of run-time extents that insert axes of extent 1 say which others they keep,
    outside of parallel loops."""
    names = Names(func)

    def visit(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Op) or stmt.op != "reshape" or unit_reshape(stmt) is not None:
            return None
        (source, *extents), (result,) = stmt.args, stmt.results
        of = kept_axes(func.body, stmt)
        assert isinstance(source.type, TileType) and isinstance(result.type, TileType)
        if of is None or [k for k in of if k is not None] != list(range(source.type.rank)):
            return None
        new = of.count(None)
        kept = [j for j, k in enumerate(of) if k is not None]
        typ = TileType(source.type.dtype, (1,) * new + tuple(result.type.shape[j] for j in kept))
        first = result if list(of[:new]) == [None] * new else names.fresh(result.name, typ)
        out = [Op("broadcast_to", (first,), (source, *(index(1),) * new, *(extents[j] for j in kept)), loc=stmt.loc)]
        if first is not result:
            left = iter(range(new))
            axes = tuple(next(left) if k is None else new + k for k in of)
            out.append(Op("transpose", (result,), (first,), (("axes", axes),), loc=stmt.loc))
        return tuple(out)

    def told(block: Block) -> Block:
        out: list[Stmt] = []
        for stmt in block:
            inner = isinstance(stmt, (If, While, Scope)) or (isinstance(stmt, For) and stmt.kind == "sequential")
            new = visit(stmt)
            out += [with_blocks(stmt, tuple(map(told, blocks(stmt))))] if inner else [stmt] if new is None else new
        return tuple(out)

    if not any(isinstance(s, Op) and s.op == "reshape" and unit_reshape(s) is None for s in statements(func.body)):
        return func
    return replace(func, body=told(func.body))


def without_unit_axes(func: Func) -> Func:
    """A flat function whose nests have tiles of two axes, if all of their tiles can be."""
    if not any(_is_between(v) for v in vars_made(statements(func.body))):
        return func
    return replace(func, body=_block(func.body, func.body, Names(func)))


def _block(block: Block, body: Block, names: Names) -> Block:
    """A block of a function's body, whose nests share no tiles with each other."""
    out: list[Stmt] = []
    for stmt in block:
        if _is_host(stmt):
            out.append(with_blocks(stmt, tuple(_block(b, body, names) for b in blocks(stmt))))
            continue
        made = {v.name for v in vars_made(statements((stmt,)))}
        high = any(_is_between(v) for v in vars_made(statements((stmt,))))
        alone = not any(
            isinstance(v.type, TileType) and v.name not in made for s in statements((stmt,)) for v in uses(s)
        )
        fits = high and alone and all(_can_be_rewritten(s, body) for s in statements((stmt,)))
        out.append(_rewritten(stmt, body, names) if fits and not isinstance(stmt, Op) else stmt)
    return tuple(out)


def _is_host(stmt: Stmt) -> bool:
    """Whether it is a loop or branch of the host, around nests."""
    around = isinstance(stmt, (If, While)) or (isinstance(stmt, For) and stmt.kind == "sequential")
    return around and not any(
        isinstance(v.type, TileType)
        for b in blocks(stmt)
        for s in b
        if isinstance(s, Op)
        for v in (*s.args, *s.results)
    )


def _row(typ: TileType) -> int:
    """The axis that becomes the rows of a tile of at least three axes."""
    row = row_axis(typ.shape)
    assert row is not None, "asked before"
    return row


def _is_between(var: Operand) -> bool:
    """Whether a tile has two long axes, which do not lie beside each other."""
    typ = var.type
    return isinstance(typ, TileType) and typ.rank > 2 and row_axis(typ.shape) not in (None, typ.rank - 2)


def _can_be_rewritten(stmt: Stmt, body: Block) -> bool:
    if not isinstance(stmt, Op):
        return not (isinstance(stmt, For) and stmt.reductions)
    tiles = [v for v in (*stmt.args, *stmt.results) if isinstance(v.type, TileType)]
    if any(v.type.rank > 2 and row_axis(v.type.shape) is None for v in tiles):  # type: ignore[union-attr]
        return False
    if all(v.type.rank <= 2 for v in tiles):  # type: ignore[union-attr]
        return True
    if stmt.op in (*STORES, "transpose") or is_reduction(stmt):
        told = stmt.args[0] if stmt.op in STORES else stmt.results[0]
        if isinstance(told.type, TileType) and shape_of(body, told) is None:  # type: ignore[arg-type]
            return False
    if stmt.op in ("load", *STORES):
        return not stmt.attr("inside")
    if stmt.op == "reshape":
        return unit_reshape(stmt) is not None
    if stmt.op == "fold":
        return stmt.args[0].type.shape[int(stmt.attr("axis"))] != 1 and all(  # type: ignore
            shape_of(body, r) is not None for r in stmt.results if isinstance(r.type, TileType)
        )
    if stmt.op in ("argmax", "argmin"):
        return all(stmt.args[0].type.shape[k] != 1 for k in reduced_axes(stmt))  # type: ignore[union-attr]
    return is_elementwise(stmt) or is_reduction(stmt) or stmt.op in _KNOWN


class _Nest:
    """Writes the operations of a nest with tiles of two axes."""

    def __init__(self, body: Block, names: Names) -> None:
        self.body = body
        self.names = names
        self.made: dict[str, Var] = {}

    def of(self, operand: Operand) -> Operand:
        """A tile with two axes."""
        if not isinstance(operand, Var) or not isinstance(operand.type, TileType) or operand.type.rank < 3:
            return operand
        known = self.made.get(operand.name)
        if known is None:
            shape = operand.type.shape
            known = self.made[operand.name] = Var(
                operand.name, TileType(operand.type.dtype, (shape[_row(operand.type)], shape[-1]))
            )
        return known

    def visit(self, stmt: Stmt) -> Block | Stmt | None:
        if not isinstance(stmt, Op):
            return None
        if all(not isinstance(v.type, TileType) or v.type.rank < 3 for v in (*stmt.args, *stmt.results)):
            return None
        plain = replace(stmt, args=tuple(map(self.of, stmt.args)), results=tuple(map(self.of, stmt.results)))  # type: ignore[arg-type]
        match stmt.op:
            case "load":
                (result,) = stmt.results
                slab = self.names.fresh(f"{result.name}.slab", result.type)
                rank = result.type.rank  # type: ignore[union-attr]
                sides = self.pick(result, stmt.args[1 + rank : 1 + 2 * rank])
                return replace(stmt, results=(slab,)), self.reshaped(slab, self.of(result), sides, stmt)
            case "store" | "atomic_add" | "atomic_max" | "atomic_min":
                tile = stmt.args[0]
                slab = self.names.fresh(f"{tile.name}.slab", tile.type)  # type: ignore[union-attr]
                laid = Op("reshape", (slab,), (self.of(tile), *self.told(tile)), (), (), stmt.loc)
                return laid, replace(stmt, args=(slab, *stmt.args[1:]))
            case "full" | "broadcast_to" | "reshape":
                (result,) = stmt.results
                attrs = tuple((key, self.stay(stmt, value) if key == "axes" else value) for key, value in stmt.attrs)
                return replace(plain, args=(plain.args[0], *self.pick(result, stmt.args[1:])), attrs=attrs)
            case "transpose":
                return self.transposed(stmt)
            case "valid" | "extent":
                axis = self.axis(stmt.args[0], int(stmt.attr("axis")))  # type: ignore[call-overload]
                if axis is None:
                    return Op("copy", stmt.results, (index(1),), (), (), stmt.loc)
                return replace(plain, attrs=(("axis", axis),))
            case _ if stmt.op in _SCANS:
                axis = self.axis(stmt.args[0], int(stmt.attr("axis")))  # type: ignore[call-overload]
                others = tuple((key, value) for key, value in stmt.attrs if key != "axis")
                if axis is None:  # of one element each
                    copies = zip(plain.results, plain.args, strict=True)
                    return tuple(Op("copy", (r,), (a,), (), (), stmt.loc) for r, a in copies)
                return replace(plain, attrs=(*others, ("axis", axis)))
            case "fold":
                return self.folded(stmt)
            case _ if is_reduction(stmt):
                return self.reduced(stmt)
            case _:
                return plain

    def pick(self, tile: Var, extents: Sequence[Operand]) -> tuple[Operand, ...]:
        """Of the extents of a tile those of its two axes; of a tile of fewer axes all."""
        typ = tile.type
        assert isinstance(typ, TileType)
        return tuple(extents) if typ.rank < 3 else (extents[_row(typ)], extents[-1])

    def stay(self, op: Op, axes: Attr) -> Attr:
        """Of a reshape that says which axes of its operand stay, for each of the result, the same of two axes."""
        assert isinstance(axes, tuple)
        typ = op.results[0].type
        assert isinstance(typ, TileType)
        kept = axes if typ.rank < 3 else (axes[_row(typ)], axes[-1])
        known = (None if k == -1 else self.axis(op.args[0], int(k)) for k in kept)  # type: ignore[arg-type]
        return tuple(-1 if k is None else k for k in known)

    def told(self, tile: Operand) -> tuple[Operand, ...]:
        """The extents of a tile."""
        assert isinstance(tile, Var)
        found = shape_of(self.body, tile)
        assert found is not None, "asked before"
        return found

    def axis(self, tile: Operand, axis: int) -> int | None:
        """Which one of the two axes one of a tile is; None for one of extent 1 that is left out."""
        typ = tile.type
        assert isinstance(typ, TileType)
        if typ.rank < 3:
            return axis
        return 1 if axis == typ.rank - 1 else 0 if axis == _row(typ) else None

    def reshaped(self, source: Operand, result: Operand, extents: Sequence[Operand], op: Op) -> Op:
        assert isinstance(result, Var)
        return Op("reshape", (result,), (source, *extents), (), (), op.loc)

    def transposed(self, op: Op) -> Op:
        (source,), (result,) = op.args, op.results
        axes, typ = op.attr("axes"), source.type
        assert isinstance(axes, tuple) and isinstance(typ, TileType)
        last = int(axes[-1])  # type: ignore[call-overload]
        if last == typ.rank - 1 or typ.shape[last] == typ.shape[-1] == 1:
            return self.reshaped(self.of(source), self.of(result), self.pick(result, self.told(result)), op)
        return Op("transpose", (self.of(result),), (self.of(source),), (("axes", (1, 0)),), (), op.loc)  # type: ignore

    def reduced(self, op: Op) -> Block:
        (source,), (result,) = op.args, op.results
        over = tuple(sorted({k for a in reduced_axes(op) if (k := self.axis(source, a)) is not None}))
        tile, out = self.of(source), self.of(result)
        typ = tile.type
        assert isinstance(typ, TileType) and isinstance(out, Var)
        if not isinstance(out.type, TileType):
            return (_over(op, tile, out, (0, 1), keepdims=False),)
        shape = tuple(1 if k in over else n for k, n in enumerate(typ.shape))
        dropped = tuple(n for k, n in enumerate(typ.shape) if k not in over)
        if over and out.type.shape in (shape, dropped):
            return (_over(op, tile, out, over, keepdims=out.type.shape == shape),)
        before: list[Op] = []
        if over:
            tile = self.names.fresh(result.name, TileType(out.type.dtype, shape))
            before.append(_over(op, self.of(source), tile, over, keepdims=True))
        elif typ.dtype != out.type.dtype:
            tile = self.names.fresh(result.name, TileType(out.type.dtype, shape))
            attrs = (("dtype", out.type.dtype),)
            before.append(Op("cast", (tile,), (self.of(source),), attrs, (), op.loc))
        return (*before, self.reshaped(tile, out, self.pick(result, self.told(result)), op))

    def folded(self, op: Op) -> Block:
        """By a function: each result in the shape of two axes, one of which is reduced, and then in its own."""
        axis = self.axis(op.args[0], int(op.attr("axis")))  # type: ignore[call-overload]
        results: list[Var] = []
        after: list[Op] = []
        for result in op.results:
            out, typ = self.of(result), self.of(op.args[0]).type
            assert isinstance(out, Var) and isinstance(typ, TileType) and isinstance(out.type, (TileType, ScalarType))
            kept = TileType(out.type.dtype, tuple(1 if k == axis else n for k, n in enumerate(typ.shape)))
            if out.type == kept:
                results.append(out)
                continue
            results.append(self.names.fresh(result.name, kept))
            if isinstance(out.type, ScalarType):
                after.append(Op("extract", (out,), (results[-1], index(0), index(0)), (), (), op.loc))
            else:
                after.append(self.reshaped(results[-1], out, self.pick(result, self.told(result)), op))
        attrs = dict(op.attrs) | {"axis": axis, "keepdims": True}
        args = tuple(map(self.of, op.args))
        return (replace(op, args=args, results=tuple(results), attrs=tuple(attrs.items())), *after)


def _over(op: Op, tile: Operand, out: Var, over: tuple[int, ...], *, keepdims: bool) -> Op:
    """A reduction over other axes."""
    attrs = dict(op.attrs) | {"keepdims": keepdims}
    if "axis" in attrs:
        attrs["axis"] = over[0] if len(over) == 1 else None
    else:
        attrs["axes"] = over
    return replace(op, args=(tile,), results=(out,), attrs=tuple(attrs.items()))


def _rewritten(nest: Stmt, body: Block, names: Names) -> Stmt:
    (out,) = rewrite_block((nest,), _Nest(body, names).visit)
    return out
