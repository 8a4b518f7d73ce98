# SPDX-License-Identifier: MIT
"""Rows that loops of the program load and reduce, of unknown extents: the same loops go over them in passes where they
are too long for a block, as `passes` does for whole tensors.

Before::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?x?,f32>, %y: !pto.memref<gm,?x?,f32>) {
      %n = sdim %x {axis=0} : i64
      %m = sdim %x {axis=1} : i64
      SCOPE @f_incore_0
        FOR %r:idx, 0:idx, %n:idx, 1:idx {kind=parallel}
          %t = tload %x[%r, 0] [1, %m] : !pto.tile<1x?xf32>
          %max = tmax %t {axes=(0, 1), keepdims=false} : f32
          %u = tsub %t, %max : !pto.tile<1x?xf32>
          tstore %u, %y[%r, 0]
        ENDFOR
      ENDSCOPE
      return
    }

After::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?x?,f32>, %y: !pto.memref<gm,?x?,f32>) {
      %n = sdim %x {axis=0} : i64
      %m = sdim %x {axis=1} : i64
      %most = smin %m, 8192 : i64
      %fits.room = sle %m, 65536 : bool_
      IF %fits.room
        SCOPE @f_incore_0
          FOR %r:idx, 0:idx, %n:idx, 1:idx {kind=parallel}
            %t = tload %x[%r, 0] [1, %m] : !pto.tile<1x?xf32>
            %max = tmax %t {axes=(0, 1), keepdims=false} : f32
            %u = tsub %t, %max : !pto.tile<1x?xf32>
            tstore %u, %y[%r, 0]
          ENDFOR
        ENDSCOPE
      ELSE
        SCOPE @f_incore_0
          FOR %r.1:idx, 0:idx, %n:idx, 1:idx {kind=parallel}
            %max.5 = tfull -inf:f32, [1, 1] : !pto.tile<1x1xf32>
            FOR %x_at.2:idx, 0:idx, %m:idx, 8192:idx
              %left.2 = ssub %m, %x_at.2 : i64
              %some.2 = smin %left.2, %most : i64
              %t.2 = tload %x[%r.1, %x_at.2] [1, %some.2] : !pto.tile<1x?xf32>
              %max.3 = tmax %t.2 {axes=(1,), keepdims=true} : !pto.tile<1x1xf32>
              %max.4 = tmax %max.5, %max.3 : !pto.tile<1x1xf32>
              %max.5 = tcopy %max.4 : !pto.tile<1x1xf32>
            ENDFOR
            %max.6 = tcopy %max.5 : !pto.tile<1x1xf32>
            %max.7 = tmax %max.6 {axes=(0, 1), keepdims=false} : f32
            FOR %x_at.3:idx, 0:idx, %m:idx, 8192:idx
              %left.3 = ssub %m, %x_at.3 : i64
              %some.3 = smin %left.3, %most : i64
              %t.3 = tload %x[%r.1, %x_at.3] [1, %some.3] : !pto.tile<1x?xf32>
              %u.1 = tsub %t.3, %max.7 : !pto.tile<1x?xf32>
              tstore %u.1, %y[%r.1, %x_at.3]
            ENDFOR
          ENDFOR
        ENDSCOPE
      ENDIF
      return
    }

The launch takes the kernel that has room: on ascend its own limit takes the place of the estimate (`rooms`).  There
a tile may be of several rows, and kernels whose rows are known to be too long have passes only (`kernel_in_passes`).
For kernels with tiles of several long axes, products among what makes them, there is another one that goes over one of
these axes (`kernel_along_an_axis`).
"""

from __future__ import annotations

from collections import Counter
from math import prod

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Const, For, Func, If, Op, Operand, Return, Scope, Stmt, Var, While
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import block_defs, blocks, defs, rename, statements, use_counts, uses, with_blocks
from pto_jit.lower.decisions import Decision
from pto_jit.lower.groups.axes import is_reduction, reduced_axes, touches_tiles
from pto_jit.lower.names import BOOL, Scalars, index, source_name
from pto_jit.lower.outwards import is_host
from pto_jit.lower.wholes.choose import LoopsOverParts, Parts
from pto_jit.lower.wholes.known import Known
from pto_jit.lower.wholes.lines import SCANS, STORES, Axis, Lines, root_of
from pto_jit.lower.wholes.parted import DividedLine, PartLoops
from pto_jit.lower.wholes.partials import EXTREMES, ROOM, along, room
from pto_jit.lower.wholes.passes import body_in_passes
from pto_jit.semantic.rules import infer
from pto_jit.semantic.table import effects
from pto_jit.slotted import frozen, replace

_FEW, _LEAST, _SCANNED = 128, 64, 256
"""Lines of an axis that is not gone over in passes, at most; elements of a row that are taken at a time, at least, and
those of several rows that are scanned, at most."""


def with_passes(func: Func, parts: Parts, decisions: list[Decision]) -> Func:
    """Host code whose loops go over rows in passes where these are too long; each is a `Decision`."""
    if not any(isinstance(s, Scope) for s in statements(func.body)):
        return func
    divider = LoopsOverParts(func, parts, decisions)

    def visit(block: Block) -> Block:
        out: list[Stmt] = []
        for stmt in block:
            if isinstance(stmt, (If, While)) or (isinstance(stmt, For) and stmt.kind == "sequential"):
                old = blocks(stmt)
                new = tuple(map(visit, old))
                out.append(stmt if all(a is b for a, b in zip(new, old, strict=True)) else with_blocks(stmt, new))
            else:
                out += _in_passes_if_long(divider, stmt) or (stmt,)
        return block if len(out) == len(block) and all(a is b for a, b in zip(out, block, strict=True)) else tuple(out)

    body = visit(func.body)
    return func if body is func.body else replace(func, body=body)


def _in_passes_if_long(divider: LoopsOverParts, stmt: Stmt) -> list[Stmt] | None:
    """A scope with loops inside, or loops with one, or the same in passes where the host finds that rows are too long;
    None where no row may be, or where what is done with them needs more than parts."""
    found = _innermost(stmt)
    if found is None:
        return None
    body, scope = found
    rows = _Rows.of(body, scope, divider) if any(map(_may_be_long, body)) else None
    if rows is None:
        return None
    scalars = Scalars(divider.known.names, scope.loc)
    lines = Lines(tuple(rows.ops), divider.kept)
    limit = room(lines, rows.short(lines), rows.ops, divider.known, scalars, divider.parts.limits())
    if limit is None or isinstance(limit.elements, Const) or (limit.row is None and not divider.parts.flat):
        return None
    passes = rows.in_passes(lines, scalars)
    if passes is None:
        return None
    names = divider.known.names
    fits = names.fresh(ROOM, BOOL)
    scalars.block.append(Op("le", (fits,), (limit.elements, index(limit.most)), (), (), scope.loc))
    host = _on_the_host(stmt, scalars.block, {fits.name} | {v.name for v in free_vars(passes)})
    if host is None:
        return None  # rows of their own lengths
    other = _with_innermost(stmt, passes)
    made = block_defs((stmt,))
    early = {v.name: names.fresh(source_name(v.name), v.type).name for s in host for v in defs(s) if v.name in made}
    own = {v.name: names.fresh(source_name(v.name), v.type).name for s in statements((other,)) for v in defs(s)}
    reason = f"what is reduced along rows is, {divider.parts.part} elements at a time, where they are too long"
    divider.decisions.append(Decision("reduction", (), True, reason, scope.loc))
    return [*rename(host, early), If(fits, (stmt,), rename((other,), own), loc=scope.loc)]


def kernel_in_passes(func: Func, parts: Parts) -> Func | None:
    """A kernel whose innermost loop goes over long rows in passes; None where more than parts of them are needed."""
    divider = LoopsOverParts(func, parts, [])
    tail = tuple(s for s in func.body if isinstance(s, Return))
    kernel = Scope(func.name, tuple(s for s in func.body if not isinstance(s, Return)), loc=func.loc)
    found = _innermost(kernel)
    rows = None if found is None else _Rows.of(found[0], kernel, divider)
    if rows is None:
        return None
    scalars = Scalars(divider.known.names, func.loc)
    passes = rows.in_passes(Lines(tuple(rows.ops), divider.kept), scalars)
    if passes is None:
        return None
    read = {v.name for v in free_vars(passes)}
    before: list[Stmt] = []
    for s in reversed(scalars.block):  # the extents of rows, not those of other axes
        made = {v.name for v in defs(s)}
        if not made or made & read:
            before.insert(0, s)
            read |= {v.name for v in uses(s)}
    whole = _with_innermost(kernel, (*before, *passes))
    assert isinstance(whole, Scope)
    return replace(func, body=(*whole.body, *tail))


def kernel_along_an_axis(func: Func, parts: Parts) -> Func | None:
    """A kernel of which an axis of unknown extent is gone over in passes, the other axes of its tiles being short: that
    along which most of its tiles are reduced, or multiplied.  None where more than parts of it are needed."""
    divider = LoopsOverParts(func, parts, [])
    tail = tuple(s for s in func.body if isinstance(s, Return))
    kernel = Scope(func.name, tuple(s for s in func.body if not isinstance(s, Return)), loc=func.loc)
    found = _innermost(kernel)
    rows = None if found is None else _Rows.of(found[0], kernel, divider)
    if rows is None:
        return None
    lines = Lines(tuple(rows.ops), divider.kept)
    for axis in _long_axes(rows.ops, lines):
        scalars = Scalars(divider.known.names, func.loc)
        passes = rows.along(axis, scalars)
        if passes is not None:
            whole = _with_innermost(kernel, passes)
            assert isinstance(whole, Scope)
            return replace(func, body=(*whole.body, *tail))
    return None


def _long_axes(ops: list[Op], lines: Lines) -> list[Axis]:
    """The axes of unknown extents of tiles of several, along which elements are combined; those of most tiles first."""
    tiles = dict.fromkeys(_tiles(ops))
    count = Counter(axis for v in tiles for axis in lines.axes(v).values())
    wide = {axis for v in tiles if len(lines.axes(v)) > 1 for axis in lines.axes(v).values()}
    known = _declared(list(tiles), lines).keys()
    combined: dict[Axis, None] = {}
    for op in ops:
        over = along(op) if op.op != "dot" else (op.args[0].type.rank - 1,)  # type: ignore[union-attr]
        own = lines.axes(op.args[0]) if over else {}
        combined |= dict.fromkeys([own[k] for k in over if k in own])
    return sorted((a for a in combined if a in wide - known), key=lambda a: -count[a])


def _tiles(ops: list[Op]) -> list[Var]:
    return [v for op in ops for v in (*op.args, *op.results) if isinstance(v, Var) and isinstance(v.type, TileType)]


def _declared(tiles: list[Var], lines: Lines) -> dict[Axis, int]:
    """The axes of tiles whose extents are known, with these."""
    out: dict[Axis, int] = {}
    for v in tiles:
        assert isinstance(v.type, TileType)
        for k, axis in lines.axes(v).items():
            if (extent := v.type.shape[k]) is not None:
                out[axis] = extent
    return out


def _may_be_long(op: Stmt) -> bool:
    """Whether an operation reduces a row of unknown extent."""
    if not isinstance(op, Op) or not (over := along(op)):
        return False
    typ = op.args[0].type
    return isinstance(typ, TileType) and any(typ.shape[k] is None for k in over)


def _on_the_host(stmt: Stmt, block: list[Stmt], names: set[str]) -> Block | None:
    """What computes variables before some loops: of a block its checks and what makes the variables, not the extents of
    tiles along other axes; and what these need of what the loops compute themselves, in the order of the program.  None
    where that depends on the iteration."""
    inside = {r.name: s for s in statements((stmt,)) if isinstance(s, Op) and is_host(s) for r in s.results}
    made = block_defs((stmt,))
    out: list[Stmt] = []
    for s in reversed(block):
        own = {v.name for v in defs(s)}
        if not own or own & names:
            out.insert(0, s)
            names = names | {v.name for v in uses(s)}
    wanted = [v.name for s in out for v in uses(s)]
    early: dict[str, Op] = {}
    while wanted:
        name = wanted.pop()
        if name not in made or name in early:
            continue
        if name not in inside:
            return None
        early[name] = inside[name]
        wanted += [v.name for v in uses(inside[name])]
    return (*(s for name, s in inside.items() if name in early), *out)


def _innermost(stmt: Stmt) -> tuple[Block, Scope] | None:
    """What the innermost of some loops does, all of which is in one scope, and this; None where there is no loop, or
    more than one in another."""
    scope: Scope | None = None
    loops = 0
    block: Block = (stmt,)
    while True:
        inner = [s for s in block if not is_host(s)]
        if len(inner) != 1 or not isinstance(inner[0], (Scope, For)):
            break
        if isinstance(inner[0], Scope):
            scope = inner[0]
        elif inner[0].reductions or inner[0].checked:
            return None
        else:
            loops += 1
        block = inner[0].body
    plain = all(isinstance(s, Op) for s in block)
    return (block, scope) if scope is not None and loops and plain else None


def _with_innermost(stmt: Stmt, body: Block) -> Stmt:
    """The loops with another body in the innermost."""
    assert isinstance(stmt, (Scope, For))
    inner = next((s for s in stmt.body if not is_host(s)), None)
    if isinstance(inner, (Scope, For)):
        body = tuple(_with_innermost(s, body) if s is inner else s for s in stmt.body)
    return replace(stmt, body=body)


@frozen
class _Rows:
    """The operations of an iteration: what does not depend on tiles, the others, and elements that are stored last."""

    first: list[Op]
    ops: list[Op]
    last: list[Op]
    scope: Scope
    divider: LoopsOverParts

    @staticmethod
    def of(body: Block, scope: Scope, divider: LoopsOverParts) -> _Rows | None:
        """None where the order of the operations matters more than passes keep it."""
        known = divider.known
        made = block_defs(body)
        inside = use_counts(body)
        carried = {v.name for v in free_vars(body)} & made
        if carried or any(known.assigned[name] > 1 or known.uses[name] > inside[name] for name in made):
            return None
        first, ops, last = list[Op](), list[Op](), list[Op]()
        of_tiles: set[str] = set()
        read, written = list[tuple[str, tuple[Operand, ...]]](), list[tuple[str, tuple[Operand, ...]]]()
        for op in body:
            assert isinstance(op, Op)
            if op.op in ("load", "getelem"):
                read.append(_place(op, 0, known))
            if op.op in STORES or op.op == "setelem":
                written.append(_place(op, 1, known))
            if op.op == "setelem":
                last.append(op)
            elif is_host(op) and not any(isinstance(a, Var) and a.name in of_tiles for a in op.args):
                first.append(op)
            elif op.op == "assert" or (effects(op.op) == "writes" and op.op not in STORES):
                return None
            else:
                of_tiles.update(r.name for r in op.results)
                ops += _as_tile(op, divider)
        # A part that is stored is no other part that is loaded later.  Tensors of other names may share memory: that is
        # looked at where kernels are launched.
        tensors = [name for name, _ in written]
        shared = [(name, place) for name, place in read if name in tensors]
        if len(set(tensors)) < len(tensors) or (shared and (len(written) > 1 or set(shared) != set(written))):
            return None
        return _Rows(first, ops, last, scope, divider)

    def short(self, lines: Lines) -> list[DividedLine]:
        """The axes of few lines, so many that each is in all parts of rows, where tiles have several rows."""
        if not self.divider.parts.flat:
            return []
        found: dict[Axis, int] = {}
        for v in (v for op in self.ops for v in (*op.args, *op.results) if isinstance(v.type, TileType)):
            for k, axis in lines.axes(v).items():
                extent = v.type.shape[k]  # type: ignore[union-attr]
                if extent is not None and extent <= _FEW:
                    found[axis] = extent
        return [DividedLine(axis, index(extent), extent) for axis, extent in found.items()]

    def in_passes(self, lines: Lines, scalars: Scalars) -> Block | None:
        """The same, in passes over the rows."""
        known, part = self.divider.known, self.divider.parts.part
        ops = [made for op in self.ops for made in self.divider.without_places(op, scalars)]
        if ops != self.ops:
            lines = Lines(tuple(ops), self.divider.kept)
        every = [axis for op in ops for v in (*op.args, *op.results) for axis in lines.axes(v).values()]
        rows: list[DividedLine] = []
        short = {line.axis: line.part for line in self.short(lines)}
        if any(n > 1 for n in short.values()):
            part = max(_LEAST, min(part, 2 * part // prod(short.values())))
            part = min(part, _SCANNED) if any(op.op in SCANS for op in ops) else part
        for row in dict.fromkeys(every):
            if row in short:
                continue
            extent = known.extent(lines, row, ops, scalars, anywhere=True)
            if extent is None:
                return None
            rows.append(DividedLine(row, extent, part))
        loops = PartLoops([], {}, lines, scalars, known.names, self.scope, self.divider.parts.bounded)
        passes = body_in_passes(loops, ops, rows) if rows else None
        return None if passes is None else (*self.first, *passes, *self.last)

    def along(self, axis: Axis, scalars: Scalars) -> Block | None:
        """The same, in passes over an axis that tiles of several axes have."""
        known = self.divider.known
        numbers, ops = list[Op](), list[Op]()  # what extents may depend on, elements of tensors too, and the rest
        of_tiles: set[str] = set()
        for op in self.ops:
            if touches_tiles(op) or any(isinstance(a, Var) and a.name in of_tiles for a in op.args):
                of_tiles.update(r.name for r in op.results)
                ops += self.divider.without_places(op, scalars)
            else:
                numbers.append(op)
        stores = [op for op in ops if op.op in STORES]
        read = {root_of(op.args[0], known.views) for op in ops if op.op in ("load", "take")}
        if not read & {root_of(op.args[1], known.views) for op in stores}:
            ops = [*(op for op in ops if op.op not in STORES), *stores]
        lines = Lines(tuple(ops), self.divider.kept)
        axis = lines.find(axis)
        tiles = _tiles(ops)
        extents: dict[Axis, Operand] = {own: index(n) for own, n in _declared(tiles, lines).items()}  # or less
        for own in dict.fromkeys(own for v in tiles for own in lines.axes(v).values()):
            extent = extents.get(own) or known.extent(lines, own, ops, scalars, anywhere=True)
            if extent is None:
                return None
            extents[own] = extent
        tiles = [v for v in tiles if lines.place(v, axis) is not None]
        beside = max(prod([_size(extents[own]) for own in lines.axes(v).values() if own != axis]) for v in tiles)
        part = max(_LEAST, self.divider.parts.part // max(8, beside))
        loops = PartLoops([], {}, lines, scalars, known.names, self.scope, False, extents=extents)
        passes = body_in_passes(loops, ops, [DividedLine(axis, extents[axis], part)], products=True)
        return None if passes is None else (*self.first, *numbers, *scalars.block, *passes, *self.last)


def _size(extent: Operand) -> int:
    """How many lines an axis beside a long one has, or is taken to have where that is not known."""
    return int(extent.value) if isinstance(extent, Const) else _FEW


def _place(op: Op, at: int, known: Known) -> tuple[str, tuple[Operand, ...]]:
    """The tensor that an operation reads or writes, and which view of it from where on; at: which operand it is."""
    tensor = op.args[at]
    assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
    return root_of(tensor, known.views), (tensor, *op.args[at + 1 : at + 1 + tensor.type.rank])


def _as_tile(op: Op, divider: LoopsOverParts) -> list[Op]:
    """A reduction of a row to a number as one to a tile of one element, which is taken out of it."""
    result = op.results[0] if op.results else None
    if result is None or not isinstance(result.type, ScalarType) or not (is_reduction(op) or op.op in EXTREMES):
        return [op]
    axes = reduced_axes(op)
    assert isinstance(op.args[0].type, TileType)
    long = [k for k in axes if op.args[0].type.shape[k] != 1]
    if len(long) != 1:
        return [op]
    attrs = {"axes": (long[0],), "keepdims": True}
    (typ,) = infer(op.op, op.args, attrs)
    one = divider.known.names.fresh(source_name(result.name), typ)
    row = replace(op, results=(one,), attrs=tuple(attrs.items()))
    divider.known.add({one.name: row})
    kind = "max" if op.op in EXTREMES else op.op
    return [row, Op(kind, (result,), (one,), (("axes", axes), ("keepdims", False)), (), op.loc)]
