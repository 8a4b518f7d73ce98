# SPDX-License-Identifier: MIT
"""Elements of tensors that are combined with whole tensors, as tiles of one element: loaded where they are needed, not
read by the host, which would wait for the device, before one core does all.

Before::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?x?,f32>, %alpha: !pto.memref<gm,?,f32>, %y: !pto.memref<gm,?x?,f32>, %n: i64, %m: i64) {
      %a = sgetelem %alpha[0] : f32
      %b = ssub 1.0:f32, %a : f32
      %t = tload %x[0, 0] [%n, %m] : !pto.tile<?x?xf32>
      %u = tmul %t, %b : !pto.tile<?x?xf32>
      tstore %u, %y[0, 0]
      return
    }

After::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?x?,f32>, %alpha: !pto.memref<gm,?,f32>, %y: !pto.memref<gm,?x?,f32>, %n: i64, %m: i64) {
      %a.1 = tload %alpha[0] [1] : !pto.tile<1xf32>
      %b.1 = tsub 1.0:f32, %a.1 : !pto.tile<1xf32>
      %t = tload %x[0, 0] [%n, %m] : !pto.tile<?x?xf32>
      %b.1.1 = treshape %b.1, [1, 1] : !pto.tile<1x1xf32>
      %u = tmul %t, %b.1.1 : !pto.tile<?x?xf32>
      tstore %u, %y[0, 0]
      return
    }
"""

from __future__ import annotations

from pto_jit.errors import Loc
from pto_jit.ir.nodes import Attr, Block, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import block_uses, use_counts
from pto_jit.lower.groups.axes import is_elementwise, is_tile
from pto_jit.lower.names import index, source_name
from pto_jit.lower.wholes.known import Known
from pto_jit.semantic.rules import infer
from pto_jit.slotted import replace


def with_loaded_elements(block: Block, known: Known) -> Block:
    """A block of a scope whose elementwise operations on tiles take elements, and numbers that are made of those, as
    tiles of one element; the same if none does."""
    reads = [s for s in block if isinstance(s, Op) and s.op == "getelem"]
    if not reads or not any(isinstance(s, Op) and is_elementwise(s) and any(map(is_tile, s.args)) for s in block):
        return block
    loader = _Loader(block, known)
    if not loader.changed:
        return block
    known.replaced(block, loader.block)
    return loader.block


class _Loader:
    def __init__(self, block: Block, known: Known) -> None:
        self.known = known
        self.tiles: dict[str, Var] = {}  # that numbers are, by their names
        self.views: dict[tuple[str, int], Var] = {}  # of such tiles, with as many axes
        self.ours: set[str] = set()  # these numbers and tiles
        self.changed = False
        out: list[Stmt] = []
        for stmt in block:
            out += self._visit(stmt) if isinstance(stmt, Op) else (stmt,)
        self.block = self._without_unread(out, block) if self.changed else block

    def _visit(self, op: Op) -> tuple[Stmt, ...]:
        number = op.results[0] if len(op.results) == 1 and isinstance(op.results[0].type, ScalarType) else None
        if number is not None and self.known.assigned[number.name] != 1:
            return (op,)
        if op.op == "getelem" and number is not None:
            return op, *self._loaded(op, number)
        mine = tuple([self.tiles.get(a.name, a) if isinstance(a, Var) else a for a in op.args])
        if mine == op.args:
            return (op,)
        if op.op == "full":
            self.changed = True
            return (replace(op, op="broadcast_to", args=mine),)
        if not is_elementwise(op):
            return (op,)
        if number is not None:
            return op, self._made(op.op, number.name, mine, op.attrs, op.loc)
        self.changed = True
        rank = op.results[0].type.rank  # type: ignore[union-attr]
        views: list[Op] = []
        whole = tuple([a if a is b else self._of_rank(a, rank, op, views) for a, b in zip(mine, op.args, strict=True)])
        return *views, replace(op, args=whole)

    def _of_rank(self, tile: Operand, rank: int, like: Op, before: list[Op]) -> Operand:
        """A tile of one element with so many axes."""
        assert isinstance(tile, Var)
        known = tile if rank == 1 else self.views.get((tile.name, rank))
        if known is None:
            (kind,) = infer("reshape", (tile, *(index(1),) * rank), {})
            known = self.views[tile.name, rank] = self.known.names.fresh(tile.name, kind)
            before.append(Op("reshape", (known,), (tile, *(index(1),) * rank), (), (), like.loc))
            self._note(before[-1])
        return known

    def _loaded(self, op: Op, number: Var) -> tuple[Op, ...]:
        """What loads an element as a tile with one axis; a number in a tensor without axes stays one."""
        ones = tuple(index(1) for _ in op.args[1:])
        if not ones:
            return ()
        load = self._made("load", number.name, (*op.args, *ones), op.attrs, op.loc)
        if len(ones) == 1:
            return (load,)
        return load, self._made("reshape", number.name, (load.results[0], index(1)), (), op.loc)

    def _made(
        self, name: str, number: str, args: tuple[Operand, ...], attrs: tuple[tuple[str, Attr], ...], loc: Loc
    ) -> Op:
        """An operation whose result is a number as a tile."""
        (kind,) = infer(name, args, dict(attrs))
        tile = self.known.names.fresh(source_name(number), kind)
        made = Op(name, (tile,), args, attrs, (), loc)
        self.tiles[number] = tile
        self.ours.add(number)
        self._note(made)
        return made

    def _note(self, op: Op) -> None:
        (tile,) = op.results
        self.ours.add(tile.name)
        self.known.add({tile.name: op})
        self.known.assigned[tile.name] += 1

    def _without_unread(self, stmts: list[Stmt], old: Block) -> Block:
        """Without numbers and tiles that nothing reads any more."""
        inside = use_counts(old)
        read = {name for name, count in self.known.uses.items() if count > inside[name]}
        out: list[Stmt] = []
        for s in reversed(stmts):
            made = {r.name for r in s.results} if isinstance(s, Op) else set()
            if made and made <= self.ours and read.isdisjoint(made):
                continue
            read |= block_uses((s,))
            out.insert(0, s)
        return tuple(out)
