# SPDX-License-Identifier: MIT
"""Divide operations on tiles of any size, which no loop goes over, into parts that the blocks of a device take.

`y[...] = x * s` works on a whole tensor.  A processor goes over it row by row; on a device a tile is as large as the
registers or the memory of one core, and one core would do it all.  Lines along an axis that do not depend on each other
become the iterations of a parallel loop, whose tiles are small.

Before::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?x64,f32>, %y: !pto.memref<gm,?x64,f32>) {
      %n = sdim %x {axis=0} : i64
      SCOPE @f_incore_0
        %t = tload %x[0, 0] [%n, 64] : !pto.tile<?x64xf32>
        %m = tmax %t {axes=(1,), keepdims=true} : !pto.tile<?x1xf32>
        %u = tsub %t, %m : !pto.tile<?x64xf32>
        tstore %u, %y[0, 0]
      ENDSCOPE
      return
    }

After::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?x64,f32>, %y: !pto.memref<gm,?x64,f32>) {
      %n = sdim %x {axis=0} : i64
      FOR %x_at:idx, 0:idx, %n:idx, 1:idx {kind=parallel}
        SCOPE @f_incore_0
          %t = tload %x[%x_at, 0] [1, 64] : !pto.tile<1x64xf32>
          %m = tmax %t {axes=(1,), keepdims=true} : !pto.tile<1x1xf32>
          %u = tsub %t, %m : !pto.tile<1x64xf32>
          tstore %u, %y[%x_at, 0]
        ENDSCOPE
      ENDFOR
      return
    }

Tiles that meet have to agree in their extents, as before; the host compares them, before the loops.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from itertools import groupby

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Const, For, Func, If, Module, Op, Operand, Scope, Stmt, Var, While
from pto_jit.ir.types import TensorType, TileType
from pto_jit.ir.walk import (
    block_defs,
    blocks,
    defs,
    map_funcs,
    statements,
    use_counts,
    uses,
    with_blocks,
)
from pto_jit.lower.decisions import Decision
from pto_jit.lower.names import BOOL, Scalars, index, source_name
from pto_jit.lower.outwards import is_host
from pto_jit.lower.wholes.choose import PARTS as PARTS
from pto_jit.lower.wholes.choose import LoopsOverParts, Parts
from pto_jit.lower.wholes.collapsed import with_collapsed_axes
from pto_jit.lower.wholes.cut import Cutter
from pto_jit.lower.wholes.elements import with_loaded_elements
from pto_jit.lower.wholes.flat import with_flat_planes
from pto_jit.lower.wholes.handed_on import Handing
from pto_jit.lower.wholes.lines import STORES, Lines
from pto_jit.lower.wholes.own_rows import with_passes
from pto_jit.lower.wholes.partials import ROOM, room
from pto_jit.lower.wholes.pieces import (
    Piece,
    host_first,
    late_names,
    leaves,
    places_read,
    segments,
    without_crossing_tiles,
)
from pto_jit.lower.wholes.sizes import Sizes, UnknownSizeError
from pto_jit.slotted import mutable, replace


def divide_scopes(module: Module, decisions: list[Decision], *, parts: Parts) -> Module:
    """Divide what the scopes of host code do where no parallel loop is around, and rows of loops where they are too
    long; each is a `Decision`."""

    def one(func: Func) -> Func:
        if func.kind != "orchestration":
            return func
        flat = with_collapsed_axes(with_flat_planes(func)) if parts.bounded else func
        return divided(with_passes(flat, parts, decisions), parts, decisions)

    return map_funcs(module, one)


def divided(func: Func, parts: Parts, decisions: list[Decision] | None = None) -> Func:
    """The same for one function."""
    if not any(isinstance(s, Scope) for s in statements(func.body)):
        return func
    body = Divider(func, parts, [] if decisions is None else decisions).block(func.body)
    return func if body is func.body else replace(func, body=body)


@mutable
class Divider(LoopsOverParts):
    """Divides the scopes of one function."""

    def block(self, block: Block) -> Block:
        out: list[Stmt] = []
        for stmt in block:
            if isinstance(stmt, Scope):
                out += self._scope(stmt)
            elif isinstance(stmt, (If, While)) or (isinstance(stmt, For) and stmt.kind == "sequential"):
                old = blocks(stmt)
                new = tuple(map(self.block, old))
                out.append(stmt if all(a is b for a, b in zip(new, old, strict=True)) else with_blocks(stmt, new))
            else:
                out.append(stmt)
        return block if len(out) == len(block) and all(a is b for a, b in zip(out, block, strict=True)) else tuple(out)

    def _scope(self, scope: Scope) -> Sequence[Stmt]:
        """The scope, or what takes its place."""
        if not any(map(self.may_be_large, statements(scope.body))) and not self._clashes(scope):
            return (scope,)
        body = with_loaded_elements(scope.body, self.known)
        if body is not scope.body:
            loaded = replace(scope, body=body)
            out = self._in_pieces(loaded)
            if out != (loaded,):
                return out
            self.known.replaced(body, scope.body)
        return self._in_pieces(scope)

    def _in_pieces(self, scope: Scope) -> Sequence[Stmt]:
        """A scope of large tiles, or what takes its place."""
        said = len(self.decisions)
        out = self._pieces(scope)
        left = self._left(out)
        handed = self.handed(scope) if left and not (self.parts.flat and _hands_on_loads(scope)) else None
        if handed is None:
            return out
        told = self.decisions[said:]
        del self.decisions[said:]
        other = self._pieces(handed[1])
        if self._left(other) < left:
            return [*handed[0], *other]
        self.decisions[said:] = told
        return out

    def handed(self, scope: Scope) -> tuple[list[Stmt], Scope] | None:
        """What stands before a scope whose tiles that loops and branches hand on are in memory, and the scope; None
        where it hands none on, or too little is known of them."""
        handing = Handing(self.known.names, self.known.assigned, partial(self.known.extent, anywhere=True),
                          self.measured)
        out = handing.scope(scope)
        self.known.add(handing.makers)
        return out

    def measured(self, tile: Var, ops: list[Op], scalars: Scalars) -> tuple[Operand, ...] | None:
        """How much of a tile is valid along its axes, where all of it is; None where that is not known."""
        sizes = Sizes(self.known, scalars)
        sizes.made.update({r.name: op for op in ops for r in op.results})
        try:
            own = sizes.of(tile)
        except UnknownSizeError:
            return None
        return tuple(size.valid for size in own) if not self.parts.flat and all(size.whole for size in own) else None

    def _left(self, stmts: Sequence[Stmt]) -> int:
        """How many operations on large tiles are in no loop over parts."""
        count = 0
        for s in stmts:
            if isinstance(s, Scope):
                count += self._left(s.body)
            elif isinstance(s, (If, While)) or (isinstance(s, For) and s.kind == "sequential"):
                count += sum(map(self._left, blocks(s)))
            else:
                count += self.may_be_large(s)
        return count

    def _pieces(self, scope: Scope) -> Sequence[Stmt]:
        """The scope in pieces, some of them divided."""
        inside = use_counts(scope.body)
        used = {name for name in block_defs(scope.body) if self.known.uses[name] > inside[name]}  # elsewhere
        used |= {v.name for v in free_vars(scope.body)}
        late = late_names(scope.body)
        pieces: list[Piece] = []
        begin = 0
        for plain, run in groupby(scope.body, self._is_plain):
            stmts = list(run)
            begin += len(stmts)
            if plain:
                after = {v.name for v in free_vars(scope.body[begin:])}
                pieces += self._run(stmts, scope, used | after) or [(stmts, None)]
            else:
                pieces += [([s], self._lifted(s, scope, late)) for s in stmts]
        pieces = without_crossing_tiles(pieces)
        if all(loops is None for _, loops in pieces):
            return (scope,)
        out: list[Stmt] = []
        for divided, group in groupby(pieces, lambda piece: piece[1] is not None):
            stmts = [s for whole, loops in group for s in (whole if loops is None else loops)]
            if divided or scope.named:
                out += stmts
                continue
            host, rest = host_first(stmts, self.known.assigned)
            out += host
            if rest:
                alone = all(is_host(s) or (isinstance(s, Op) and s.op == "getelem") for s in rest)
                out += rest if alone else [replace(scope, body=tuple(rest))]
        return (replace(scope, body=tuple(out)),) if scope.named else out

    def _is_plain(self, stmt: Stmt) -> bool:
        """Whether a statement is one operation, which can be done at another place of a run of them."""
        if not isinstance(stmt, Op) or (stmt.regions and not self.is_movable(stmt)):
            return False
        return not is_host(stmt) or all(self.known.assigned[r.name] == 1 for r in stmt.results)

    def _lifted(self, stmt: Stmt, scope: Scope, late: Collection[str]) -> list[Stmt] | None:
        """A loop or a branch of the host, of which something inside is divided; None where nothing is.

        late: what the host does not know before the scope runs.
        """
        if isinstance(stmt, If):
            told: tuple[Operand, ...] = (stmt.cond,)
        elif isinstance(stmt, While) and all(map(is_host, stmt.before)):
            told = (stmt.cond,)
        elif isinstance(stmt, For) and stmt.kind == "sequential" and not (stmt.reductions or stmt.checked):
            told = (stmt.start, stmt.stop, stmt.step)
        else:
            return None
        if any(isinstance(v, Var) and v.name in late for v in told):
            return None
        if any(isinstance(v.type, TileType) for v in free_vars((stmt,))):
            return None
        said, changed = len(self.decisions), False
        new: list[Block] = []
        for block in blocks(stmt):
            if all(map(is_host, block)):
                new.append(block)
                continue
            whole = replace(scope, body=block)
            now = tuple(self._scope(whole))
            changed |= now != (whole,)
            if scope.named:
                now = tuple(s for part in now for s in (part.body if isinstance(part, Scope) else (part,)))
            new.append(now)
        if not changed or any(isinstance(s, Scope) and leaves(s.body) for block in new for s in statements(block)):
            del self.decisions[said:]
            return None
        return [with_blocks(stmt, tuple(new))]

    def _run(self, run: list[Stmt], scope: Scope, used: set[str]) -> list[Piece] | None:
        """Operations one after the other, those that are divided as loops; None where none is.  `used`: what is read
        before it is made here, or after."""
        host: list[Stmt] = []
        tiles: list[Stmt] = []  # with the scalars that are made of them
        of_tiles: set[str] = set()
        places = places_read(run) if self.parts.bounded else set[int]()
        for s in run:
            if isinstance(s, Op) and s.op == "assert" and not s.attr("always"):
                return None
            apart = (is_host(s) or id(s) in places) and not any(v.name in of_tiles for v in uses(s))
            (host if apart else tiles).append(s)
            if not apart:
                of_tiles.update(d.name for d in defs(s))
        made = [d.name for s in tiles for d in defs(s)]
        if len(set(made)) < len(made):
            return None
        self.asked = of_tiles & used
        whole = self._divided(tiles, scope)
        if whole is not None:
            return [(host, None), (tiles, self._or_pieces(tiles, whole, scope))]
        parts = segments(tiles, self.known.makers)
        pieces = [(s, (self._at_once(s, scope) if len(parts) > 1 else None) or self._by_way_of_memory(s, scope)
                   or self._cut(s, scope)) for s in parts]  # fmt: skip
        return None if all(loops is None for _, loops in pieces) else [(host, None), *pieces]

    def _at_once(self, tiles: list[Stmt], scope: Scope) -> list[Stmt] | None:
        """The same; in pieces where the tiles of a part do not fit a block."""
        whole = self._divided(tiles, scope)
        return whole if whole is None else self._or_pieces(tiles, whole, scope)

    def _or_pieces(self, tiles: list[Stmt], whole: list[Stmt], scope: Scope) -> list[Stmt]:
        """Loops over parts, or other ones where the tiles of a part may be larger than a block has room for."""
        ops, loops = [s for s in tiles if isinstance(s, Op)], self.latest
        if loops is None or self.asked:
            return whole
        scalars = Scalars(self.known.names, scope.loc)
        limit = room(loops.lines, loops.chosen, ops, self.known, scalars, self.parts.limits())
        if limit is None:
            return whole
        told = len(self.decisions)
        mine = self.known.again(ops)
        if limit.row is not None:
            other = self.in_passes(mine, scope)
        else:
            other = Cutter(self, scope, mine, scalars, long=True, branch=1).stmts()
        if other is None:
            del self.decisions[told:]
            return whole
        if isinstance(limit.elements, Const):
            return [*scalars.block, *other]
        fits = self.known.names.fresh("fits" if limit.row is None else ROOM, BOOL)
        compared = Op("le", (fits,), (limit.elements, index(limit.most)), (), (), scope.loc)
        return [*scalars.block, compared, If(fits, tuple(whole), tuple(other), loc=scope.loc)]

    def _cut(self, tiles: list[Stmt], scope: Scope) -> list[Stmt] | None:
        """The same in several loops, with tiles in memory between them."""
        ops = [s for s in tiles if isinstance(s, Op)]
        if not any(map(self.may_be_large, ops)):
            return None
        told = len(self.decisions)
        scalars = Scalars(self.known.names, scope.loc)
        out = Cutter(self, scope, ops, scalars).stmts()
        if out is None:
            del self.decisions[told:]
        return out

    def _by_way_of_memory(self, tiles: list[Stmt], scope: Scope) -> list[Stmt] | None:
        """The same for what is stored where other parts read, as `x[1:] = x[:-1] + 1.0`: first into a new tensor.
        Threads of one block would read what others have written, too."""
        ops = [s for s in tiles if isinstance(s, Op) and s.op not in STORES]
        stores = [s for s in tiles if isinstance(s, Op) and s.op in STORES]
        if [s.op for s in stores] != ["store"]:
            return None
        clash = self.parts.bounded and self.known.reads_elsewhere(ops, stores[0])
        if not clash and not all(map(self.is_movable, ops)):
            return None
        store = stores[0]
        tile = store.args[0]
        assert isinstance(tile, Var) and isinstance(tile.type, TileType)
        lines = Lines((*ops, store), self.kept)
        scalars = Scalars(self.known.names, scope.loc)
        extents: list[Operand] = []
        for k, n in enumerate(tile.type.shape):
            axis = lines.axes(tile).get(k)
            known = None if n is None else index(n)
            extent = known or self.known.extent(lines, axis, [*ops, store], scalars, anywhere=True)
            if extent is None:
                return None
            extents.append(extent)
        hint = source_name(tile.name)
        memory = self.known.names.fresh(f"{hint}.memory", TensorType(tile.type.dtype, tile.type.shape, "c"))
        zeros = tuple(index(0) for _ in extents)
        first = replace(store, args=(tile, memory, *zeros))
        alloc = Op("alloc", (memory,), tuple(extents), (("dtype", tile.type.dtype),), (), store.loc)
        self.known.makers[memory.name] = alloc
        again = self.known.names.fresh(hint, tile.type)
        load = Op("load", (again,), (memory, *zeros, *extents), (), (), store.loc)
        told = len(self.decisions)
        there = self._at_once([*ops, first], scope) if all(map(self.is_movable, ops)) else None
        if there is None and clash:
            there = [*ops, first] if scope.named else [replace(scope, body=(*ops, first))]
        last: list[Stmt] = [load, replace(store, args=(again, *store.args[1:]))]
        back = self._divided(last, scope)
        if back is None and clash and not scope.named:
            back = [replace(scope, body=tuple(last))]
        if there is None or back is None:
            del self.decisions[told:]
            return None
        return [*scalars.block, alloc, *there, *back]

    def _clashes(self, scope: Scope) -> bool:
        """Whether a tensor is read and written at different places, which threads of one block cannot do."""
        ops = [s for s in scope.body if isinstance(s, Op)]
        if not self.parts.bounded or scope.named:
            return False
        return any(op.op in STORES and self.known.reads_elsewhere(ops, op) for op in ops)


def _hands_on_loads(scope: Scope) -> bool:
    """Whether only loaded tiles go into loops of a scope, which are parallel ones: their kernels load them."""
    made = {r.name: s for s in scope.body if isinstance(s, Op) for r in s.results if isinstance(r.type, TileType)}
    reading = [(s, v.name) for s in scope.body if not isinstance(s, Op) for v in free_vars((s,)) if v.name in made]
    return bool(reading) and all(
        isinstance(s, For) and s.kind != "sequential" and made[name].op == "load" for s, name in reading
    )
