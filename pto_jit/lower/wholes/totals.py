# SPDX-License-Identifier: MIT
"""Reductions of tiles of any size to one value, on devices: parallel loops over parts, which have partial results.

`pl.max(x)` of a whole tensor is one tile, which no core has room for, and a value that depends on all of it.  A loop
over parts that reduces is one that the program could have, and `reductions` divides it among the cores.

Before::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?,f32>, %y: !pto.memref<gm,?,f32>) {
      %n = sdim %x {axis=0} : i64
      SCOPE @f_incore_0
        %t = tload %x[0] [%n] : !pto.tile<?xf32>
        %a = tabs %t : !pto.tile<?xf32>
        %m = tmax %a {axes=(0,), keepdims=false} : f32
        ssetelem %m, %y[0]
      ENDSCOPE
      return
    }

After::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?,f32>, %y: !pto.memref<gm,?,f32>) {
      %n = sdim %x {axis=0} : i64
      SCOPE @f_incore_0
        %m = scopy -inf:f32 : f32
        FOR %x_at:idx, 0:idx, %n:idx, 2048:idx {kind=parallel}
          %left = ssub %n, %x_at : i64
          %some = smin %left, 2048 : i64
          %t.1 = tload %x[%x_at] [%some] : !pto.tile<?xf32>
          %a.1 = tabs %t.1 : !pto.tile<?xf32>
          %part = tmax %a.1 {axes=(0,), keepdims=false} : f32
          %m.1 = smax %m, %part : f32
          %m = scopy %m.1 : f32
        ENDFOR
        ssetelem %m, %y[0]
      ENDSCOPE
      return
    }

Parts of tiles of several axes are numbered by one loop, so that there are enough of them whichever axis is long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pto_jit.dtypes import DType, f32, i32
from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Const, For, Func, If, Module, Op, Operand, Scope, Stmt, Var, While
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import block_defs, blocks, map_funcs, rename, statements, use_counts, with_blocks
from pto_jit.lower.decisions import Decision
from pto_jit.lower.groups.axes import is_reduction, reduced_axes
from pto_jit.lower.names import Scalars, index, source_name
from pto_jit.lower.reductions.accumulate import identity
from pto_jit.lower.reductions.partials import Emit
from pto_jit.lower.wholes.choose import PARTS, is_movable
from pto_jit.lower.wholes.divide import Divider
from pto_jit.lower.wholes.elements import with_loaded_elements
from pto_jit.lower.wholes.lines import Lines
from pto_jit.lower.wholes.parted import PROOF, PartLoops
from pto_jit.lower.wholes.partials import COMBINE, EXTREMES, is_marked, places_in_numbers, unmarked, where_it_is
from pto_jit.lower.wholes.sizes import Sizes, UnknownSizeError
from pto_jit.semantic.failures import MOST_PLACES, PLACES
from pto_jit.semantic.table import effects
from pto_jit.slotted import field, mutable, replace

_PARTS = {
    # a part is worth the barriers of a block that reduces it; known extents count: no kernel divides such a tile
    "cuda": replace(PARTS["cuda"], rows=8, elements=8192, constant=True),
    "ascend": PARTS["ascend"],
}
_PARTIALS = {"cuda": 512}
"""How many partial results there are at most: blocks that keep a large device busy; else as of other loops."""


def divide_totals(module: Module, decisions: list[Decision], *, target: str) -> Module:
    """Make loops over parts of what scopes of host code reduce to one value; each is a `Decision`.

    The places of extremes are looked for among numbers from here on.
    """

    def transform(func: Func) -> Func:
        if func.kind != "orchestration":
            return func
        func = places_in_numbers(func)
        if not any(isinstance(s, Op) and _is_total(s) for s in statements(func.body)):
            return func
        totals = _Totals(Divider(func, _PARTS[target], []), decisions, _PARTIALS.get(target))
        body = totals.block(func.body, None)
        return func if body is func.body else replace(func, body=body)

    return map_funcs(module, transform)


@mutable
class _Totals:
    divider: Divider
    decisions: list[Decision]
    partials: int | None
    ours: set[int] = field(default_factory=set)
    """Statements of ours by id, which write no memory; `kept`: these, so that ids stay unique."""
    own_tiles: set[int] = field(default_factory=set)
    """Those that are on tiles, and not in a loop."""
    kept: list[Stmt] = field(default_factory=list)
    host: list[Stmt] = field(default_factory=list)
    """What the host does before a scope."""

    def block(self, block: Block, scope: Scope | None) -> Block:
        """A block of host code, or of a scope where no divided loop is around."""
        out: list[Stmt] = []
        changed = False
        for stmt in block:
            new: Sequence[Stmt] = (stmt,)
            if isinstance(stmt, Scope):
                given = stmt.body
                if any(isinstance(s, Op) and _is_total(s) for s in given):
                    given = with_loaded_elements(given, self.divider.known)
                body = self.block(given, stmt)
                new = (stmt,) if body is stmt.body else (*self.host, replace(stmt, body=body))
                self.host = []
            elif isinstance(stmt, (If, While)) or (isinstance(stmt, For) and stmt.kind == "sequential"):
                old = blocks(stmt)
                inner = tuple(self.block(b, scope) for b in old)
                new = (stmt,) if all(a is b for a, b in zip(old, inner, strict=True)) else (with_blocks(stmt, inner),)
            elif scope is not None and isinstance(stmt, Op) and _is_total(stmt):
                done = self._done(stmt, out, scope) or self._done_of_memory(stmt, out, scope)
                new = () if done else new
            changed |= len(new) != 1 or new[0] is not stmt
            out += new
        return self._without_idle(out, block) if changed else block

    def _done(self, op: Op, before: list[Stmt], scope: Scope) -> bool:
        """Put what does the same in parts behind the statements before it, if that is possible."""
        return bool(self._place(op, before, scope) if op.op in EXTREMES else self._total(op, before, scope))

    def _done_of_memory(self, op: Op, before: list[Stmt], scope: Scope) -> bool:
        """The same of a tile that is made before something is stored: it is stored, too, in a tensor of our own."""
        tile = op.args[0]
        assert isinstance(tile, Var) and isinstance(tile.type, TileType)
        ops = self._makers(tile, before, written=True)
        if ops is None or not any(map(self.divider.may_be_large, ops)):
            return False
        casts: list[Op] = []
        while ops[-1].op == "cast":  # of what is kept, which may be narrower
            casts.insert(0, ops.pop())
            tile = casts[0].args[0]
            assert isinstance(tile, Var) and isinstance(tile.type, TileType)
        known = self.divider.known
        typ = TensorType(tile.type.dtype, tile.type.shape, "c")
        memory = known.names.fresh(f"{source_name(tile.name)}.memory", typ)
        zeros = [index(0)] * tile.type.rank
        store = Op("store", (), (tile, memory, *zeros), (), (), op.loc)
        scalars = Scalars(known.names, op.loc)
        lines = Lines((*ops, store), self.divider.kept)
        own = lines.axes(tile)
        extents = [index(1) if n == 1 else known.extent(lines, own.get(k), [*ops, store], scalars, anywhere=True)
                   for k, n in enumerate(tile.type.shape)]  # fmt: skip
        sizes = [n for n in extents if n is not None]
        typ = TensorType(tile.type.dtype, tuple(int(n.value) if isinstance(n, Const) else None for n in sizes), "c")
        memory = Var(memory.name, typ)  # of the elements that are valid
        store = replace(store, args=(tile, memory, *zeros))
        alloc = Op("alloc", (memory,), tuple(sizes), (("dtype", tile.type.dtype),), (), op.loc)
        late = block_defs(scope.body)
        if len(sizes) < len(extents) or any(v.name in late for v in free_vars((*scalars.block, alloc))):
            return False
        declared = [size if n is None else index(n) for n, size in zip(tile.type.shape, extents, strict=True)]
        load = Op("load", (tile,), (memory, *zeros, *declared), (), (), op.loc)  # type: ignore[arg-type]
        read = known.again([load, *casts])
        known.add({memory.name: alloc})
        known.assigned[memory.name] += 1
        old = list(before)
        before += [store, *read]
        if not self._done(replace(op, args=(read[-1].results[0], *op.args[1:])), before, scope):
            before[:] = old
            return False
        self.host += [*scalars.block, alloc]
        return True

    def _place(self, op: Op, before: list[Stmt], scope: Scope) -> bool:
        """The same for where the first of the largest or smallest elements is: the smallest of the places of those that
        are NaN, or else equal to it."""
        tile, result, names = op.args[0], op.results[0], self.divider.known.names
        assert isinstance(tile, Var) and isinstance(tile.type, TileType)
        old, told = list(before), len(self.decisions)
        best = names.fresh(EXTREMES[op.op], ScalarType(tile.type.dtype))
        axes = tuple(range(tile.type.rank))
        loops = self._total(Op(EXTREMES[op.op], (best,), (tile,), (("axes", axes), ("keepdims", False)), (), op.loc),
                            before, scope)  # fmt: skip
        own = loops.lines.axes(tile) if loops is not None else {}
        if loops is None or any(axis not in loops.found for axis in own.values()):
            before[:] = old
            del self.decisions[told:]
            return False
        e = Emit(names, op.loc)
        extents = [loops.found[own[k]] if k in own else index(1) for k in axes]
        declared = self._declared(tile, extents, e)
        sizes = Scalars(names, op.loc)
        strides: list[Operand] = [index(1)]
        for extent in declared[:0:-1]:
            strides.insert(0, sizes.op("mul", strides[0], extent, "stride"))
        count = sizes.op("mul", strides[0], declared[0], "count")
        self.divider.known.check(sizes.block, "le", count, index(MOST_PLACES), PLACES, op.loc, what=op.op)
        e.block += sizes.block
        narrow = [s if isinstance(s, Const) and s.value == 1 else e.op("cast", s, dtype=i32, hint="stride")
                  for s in strides]  # fmt: skip
        at: Operand = Const(0, ScalarType(i32))
        for k in own:  # along the last axis the numbers are next to each other
            start, step = Const(0, ScalarType(i32)), Const(1, ScalarType(i32))
            numbers: Operand = e.op("arange", start, step, declared[k], hint="at")
            if len(axes) > 1:
                numbers = e.op("reshape", numbers, *[declared[j] if j == k else index(1) for j in axes], hint="at")
            numbers = numbers if isinstance(narrow[k], Const) else e.op("mul", numbers, narrow[k], hint="at")
            at = numbers if isinstance(at, Const) else e.op("add", at, numbers, hint="at")
        places = where_it_is(lambda name, *args: e.op(name, *args, hint="places"), tile, best, at)
        first = names.fresh("first", ScalarType(i32))
        before += e.done()
        self.own_tiles |= set(map(id, e.done()))
        self.kept += e.done()
        reduced = Op("min", (first,), (places,), (("axes", axes), ("keepdims", False)), (), op.loc)
        if self._total(reduced, before, scope) is None:
            before[:] = old
            del self.decisions[told:]
            return False
        end = Emit(names, op.loc)
        value = result if isinstance(result.type, ScalarType) else names.fresh(result.name, ScalarType(i32))
        none = end.op("eq", first, Const(MOST_PLACES, ScalarType(i32)))  # of no elements
        end.op("select", none, Const(0, ScalarType(i32)), end.op(*unmarked(first)) if is_marked(tile) else first,
               result=value)  # fmt: skip
        if isinstance(result.type, TileType):
            end.op("full", value, *[index(1)] * result.type.rank, result=result)
        before += end.done()
        return True

    def _declared(self, tile: Var, valid: list[Operand], e: Emit) -> list[Operand]:
        """The declared extents of a tile, which generated tiles that meet it have and places are counted by; valid: how
        much of it there is."""
        scalars = Scalars(self.divider.known.names, e.loc)
        try:
            sizes = Sizes(self.divider.known, scalars).of(tile)
        except UnknownSizeError:
            return valid
        if all(size.whole for size in sizes):
            return valid
        e.block += scalars.block
        return [n if size.whole else size.declared for n, size in zip(valid, sizes, strict=True)]

    def _total(self, op: Op, before: list[Stmt], scope: Scope) -> PartLoops | None:
        """Put a loop that does what a reduction does among the statements before it; None where there is none."""
        tile, result = op.args[0], op.results[0]
        assert isinstance(tile, Var) and isinstance(tile.type, TileType)
        ops = self._makers(tile, before)
        if ops is None or not any(map(self.divider.may_be_large, ops)):
            return None
        names, dtype = self.divider.known.names, result.type.dtype  # type: ignore[union-attr]
        # as if it were stored: the parts are those of a tile of which there is a tensor
        memory = names.fresh("memory", TensorType(tile.type.dtype, tile.type.shape, "c"))
        store = Op("store", (), (tile, memory, *[index(0)] * tile.type.rank), (), (), op.loc)
        loops = self.divider.loops([*ops, store], scope)
        if loops is None:
            return None
        self._measure(tile, loops, before)
        reason = f"what is reduced to one value is divided: {loops}"
        self.decisions.append(Decision("reduction", (), True, reason, op.loc))
        work = dtype
        if dtype.kind == "f" and dtype.bits == 16 and op.op in ("sum", "prod"):  # rounded once, at the end
            work = f32
        elif op.op in ("any", "all"):  # devices merge numbers
            work = i32
        kind = COMBINE[op.op]
        type = ScalarType(work)
        total = Var(result.name, type) if result.type == type else names.fresh(result.name, type)
        start = Const(0.0, type) if kind == "add" and work.kind == "f" else identity(kind, work)
        out: list[Stmt] = [*loops.scalars.block, Op("copy", (total,), (start,), (), (), op.loc)]
        loops.scalars.block.clear()
        loop = self._loop(op, ops, loops, total, kind)
        out += [*loops.scalars.block, loop]
        self.kept += out
        self.ours |= set(map(id, out))
        if isinstance(result.type, TileType) or work != dtype:
            value: Var = total
            if work != dtype:
                value = names.fresh(result.name, ScalarType(dtype)) if isinstance(result.type, TileType) else result
                out.append(Op("cast", (value,), (total,), (("dtype", dtype),), (), op.loc))
            if isinstance(result.type, TileType):
                out.append(Op("full", (result,), (value, *[index(1)] * result.type.rank), (), (), op.loc))
        at = len(before)  # before tiles, which are divided together
        while at and _makes_tiles(before[at - 1]):
            at -= 1
        before[at:at] = out
        return loops

    def _makers(self, tile: Var, before: Sequence[Stmt], *, written: bool = False) -> list[Op] | None:
        """The operations that make a tile, in order, all of them in its block; None where it is made in another way, or
        of memory that is written again, unless that does not matter (`written`)."""
        needed, ops = {tile.name}, list[Op]()
        for stmt in reversed(before):
            if not needed:
                break
            if id(stmt) in self.ours:
                continue
            if not isinstance(stmt, Op) or stmt.regions:
                return None
            if not any(r.name in needed for r in stmt.results):
                if effects(stmt.op) == "writes" and stmt.op != "assert" and not written:
                    return None
                continue
            if not is_movable(stmt) or any(self.divider.known.assigned[v.name] > 1 for v in (*stmt.args, *stmt.results)
                                           if isinstance(v, Var)):  # fmt: skip
                return None
            ops.append(stmt)
            needed -= {r.name for r in stmt.results}
            needed |= {a.name for a in stmt.args if isinstance(a, Var) and isinstance(a.type, TileType)}
        return None if needed else ops[::-1]

    def _loop(self, op: Op, ops: list[Op], loops: PartLoops, total: Var, kind: str) -> For:
        """The loop over all parts."""
        names, loc, scalars = loops.names, op.loc, loops.scalars
        head = Scalars(names, loc)
        for line in loops.chosen:
            loops.at[line.axis] = loops.first(ops)
        counts: list[Operand] = []
        every: Operand = index(1)
        if len(loops.chosen) > 1 or self.partials is not None:
            counts = [scalars.op("floordiv", scalars.op("add", line.extent, index(line.part - 1)), index(line.part))
                      for line in loops.chosen]  # fmt: skip
            for count in counts:
                every = scalars.op("mul", every, count, "parts")
        chunk: Operand | None = None
        if self.partials is not None:
            share = scalars.op("add", every, index(self.partials - 1))
            chunk = scalars.op("max", scalars.op("floordiv", share, index(self.partials)), index(1), "chunk")
        if len(loops.chosen) == 1:
            (line,) = loops.chosen
            var, stop, step = loops.at[line.axis], line.extent, index(line.part)
        else:
            var, stop, step = loops.first(ops), every, index(1)
            rest: Operand = var
            for k, line in reversed(list(enumerate(loops.chosen))):
                place = rest if k == 0 else head.op("mod", rest, counts[k])
                rest = rest if k == 0 else head.op("floordiv", rest, counts[k])
                head.block.append(Op("mul", (loops.at[line.axis],), (place, index(line.part)), (), (), loc))
        body = loops.on_a_part(ops)
        part = _Part(loops, op, total.type.dtype)  # type: ignore[union-attr]
        more = names.fresh(total.name, total.type)
        combined = (
            Op(kind, (more,), (total, part.value), (), (), loc),
            Op("copy", (total,), (more,), (), (), loc),
        )
        # other statements may need the whole tiles
        own = {r.name: names.fresh(r.name, r.type).name for made in ops for r in made.results}
        body = (*head.block, *rename((*body, *part.stmts), own), *combined)
        return For("parallel", var, index(0), stop, step, body, chunk=chunk, proof=PROOF, loc=loc)

    def _measure(self, tile: Var, loops: PartLoops, before: list[Stmt]) -> None:
        """Extents of the tile that were asked for, as of a mean, are what the loops are over: no tile is made for
        that."""
        asked = [k for k, s in enumerate(before)
                 if isinstance(s, Op) and s.op == "valid" and s.args[0] == tile
                 and loops.lines.axes(tile).get(int(s.attr("axis"))) in loops.found]  # type: ignore[arg-type]  # fmt: skip
        for k in asked:
            op = before[k]
            assert isinstance(op, Op)
            extent = loops.found[loops.lines.axes(tile)[int(op.attr("axis"))]]  # type: ignore[arg-type]
            before[k] = Op("copy", op.results, (extent,), (), (), op.loc)
        if asked:
            before[asked[0] : asked[0]] = loops.scalars.block
            loops.scalars.block.clear()

    def _without_idle(self, out: list[Stmt], block: Block) -> Block:
        """A block without the operations on tiles that only reductions needed which are loops now."""
        before = {id(s) for s in block} | self.own_tiles
        while True:
            used: Counter[str] = use_counts(tuple(out)) + self.divider.known.uses - use_counts(block)
            idle = [s for s in out if isinstance(s, Op) and id(s) in before and is_movable(s) and s.op != "store"
                    and s.results and isinstance(s.results[0].type, TileType)
                    and not any(used[r.name] for r in s.results)]  # fmt: skip
            if not idle:
                return tuple(out)
            gone = set(map(id, idle))
            out = [s for s in out if id(s) not in gone]


class _Part:
    """What a part is reduced to, a `value` of the dtype `work`, by `stmts`."""

    def __init__(self, loops: PartLoops, op: Op, work: DType) -> None:
        names = loops.names
        tile = loops.tile(op.args[0])
        assert isinstance(tile, Var) and isinstance(tile.type, TileType)
        self.stmts: list[Op] = []
        if work != op.results[0].type.dtype:  # type: ignore[union-attr]
            wide = names.fresh(tile.name, TileType(work, tile.type.shape))
            self.stmts.append(Op("cast", (wide,), (tile,), (("dtype", work),), (), op.loc))
            tile = wide
        self.value = names.fresh("part", ScalarType(work))
        attrs = tuple((key, False if key == "keepdims" else value) for key, value in op.attrs)
        name = COMBINE[op.op] if op.op in ("any", "all") else op.op
        self.stmts.append(Op(name, (self.value,), (tile,), attrs, (), op.loc))


def _makes_tiles(stmt: Stmt) -> bool:
    return isinstance(stmt, Op) and is_movable(stmt) and all(isinstance(r.type, TileType) for r in stmt.results) and (
        effects(stmt.op) != "writes")  # fmt: skip


def _is_total(op: Op) -> bool:
    """Whether an operation reduces a tile to one value that parts can have a share in."""
    if op.op not in (*COMBINE, *EXTREMES) or not is_reduction(op):
        return False
    tile = op.args[0].type
    assert isinstance(tile, TileType)
    if len(reduced_axes(op)) < tile.rank:
        return False
    return tile.dtype.kind != "b" or op.op in ("any", "all")
