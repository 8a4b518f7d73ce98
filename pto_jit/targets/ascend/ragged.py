# SPDX-License-Identifier: MIT
"""Tiles whose extents a kernel computes from memory, as those of sequences of different lengths: some may be empty.

Instructions take no tiles without elements; what is done with them is the one side of a branch, and the other side what
is left where there are none (`nothing`): mostly nothing.

Before::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?x64,f32>, %lengths: !pto.memref<gm,?,i64>, %y: !pto.memref<gm,?x64,f32>) {
      FOR %b:idx, 0:idx, 8:idx, 1:idx {kind=parallel}
        %n = sgetelem %lengths[%b] : i64
        %x.1 = tload %x[0, 0] [%n, 64] : !pto.tile<?x64xf32>
        %sum = tsum %x.1 {axes=(0,), keepdims=true} : !pto.tile<1x64xf32>
        tstore %sum, %y[%b, 0]
      ENDFOR
      return
    }

After::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?x64,f32>, %lengths: !pto.memref<gm,?,i64>, %y: !pto.memref<gm,?x64,f32>) {
      FOR %b:idx, 0:idx, 8:idx, 1:idx {kind=parallel}
        %n = sgetelem %lengths[%b] : i64
        %n_some = slt 0, %n : bool_
        IF %n_some
          %x.1 = tload %x[0, 0] [%n, 64] : !pto.tile<?x64xf32>
          %sum = tsum %x.1 {axes=(0,), keepdims=true} : !pto.tile<1x64xf32>
          tstore %sum, %y[%b, 0]
        ELSE
          %sum.1 = tfull 0.0:f32, [1, 64] : !pto.tile<1x64xf32>
          tstore %sum.1, %y[%b, 0]
        ENDIF
      ENDFOR
      return
    }

Where something else is done with such tiles, the core stops if they have no elements.
"""

from __future__ import annotations

from collections.abc import Set

from pto_jit.ir.nodes import Block, For, Func, If, Op, Operand, Return, Stmt, Var
from pto_jit.ir.walk import (
    block_defs,
    block_uses,
    blocks,
    def_counts,
    defs,
    rename,
    statements,
    use_counts,
    with_blocks,
)
from pto_jit.lower.names import BOOL, Names, index
from pto_jit.slotted import replace
from pto_jit.targets.ascend.lengths import is_positive
from pto_jit.targets.ascend.nothing import Extents, what_is_left
from pto_jit.targets.cuda.bounds import tile_extents
from pto_jit.targets.cuda.loops import is_parallel, touches_tiles


def with_empty_tiles(func: Func, dims: dict[str, tuple[str, int]]) -> Func:
    """The kernel with such branches; dims: which parameters are extents of which tensors."""
    if not any(isinstance(s, Op) and s.op == "getelem" for s in statements(func.body)):
        return func
    refused: set[str] = set()
    while True:
        kernel = _Kernel(func, dims, refused)
        body = kernel.block(func.body, frozenset(), inside=False)
        if not kernel.found:
            return func
        func = replace(func, body=body)


class _Kernel:
    """refused: extents of tiles with which something is done of which it is not known what is left; found: whether
    there is a tile that may be empty, which is now in a branch, or whose extent is refused."""

    def __init__(self, func: Func, dims: dict[str, tuple[str, int]], refused: set[str]) -> None:
        self.func, self.dims, self.refused = func, dims, refused
        self.found = False
        self.counts = def_counts(func.body)
        flat = list(statements(func.body))
        self.made = {s.results[0].name: s for s in flat if isinstance(s, Op) and len(s.results) == 1}
        self.once = {name: op for name, op in self.made.items() if self.counts[name] == 1}
        self.loops = {s.var.name: s for s in flat if isinstance(s, For)}

    def block(self, block: Block, known: Set[str], *, inside: bool) -> Block:
        """A block with the first of its tiles that may be empty in a branch; known: extents of which it is known
        whether they are more than 0; inside: it is part of a loop."""
        for at, s in enumerate(block):
            if isinstance(s, Op):
                extent = self.may_be_nothing(s, known)
                if extent is not None:
                    self.found = True
                    return self.divided(block, at, extent, inside=inside)
                continue
            inner: list[Block] = []
            tested = known | self.tested(s)
            for part in blocks(s):
                inner.append(part if self.found else self.block(part, tested, inside=inside or not isinstance(s, If)))
            if self.found:
                return (*block[:at], with_blocks(s, tuple(inner)), *block[at + 1 :])
        return block

    def tested(self, stmt: Stmt) -> set[str]:
        """The numbers of which a branch tells whether they are more than 0: the one that is compared, and those it is
        the minimum of."""
        test = self.made.get(stmt.cond.name) if isinstance(stmt, If) and isinstance(stmt.cond, Var) else None
        work = [test.args[1]] if test is not None and test.op == "lt" and test.args[0] == index(0) else []
        out: set[str] = set()
        while work:
            number = work.pop()
            if isinstance(number, Var):
                out.add(number.name)
                op = self.made.get(number.name)
                work += op.args if op is not None and op.op == "min" else ()
        return out

    def may_be_nothing(self, op: Op, known: Set[str]) -> Var | None:
        """An extent of the tile that an operation makes which is read from memory, and not known to be more than 0."""
        unknown = [e for e in self.extents(op) if e.name not in known | self.refused and self._axes(op, e)]
        unsure = [e for e in unknown if not is_positive(e, self.once, self.loops)]
        return next((e for e in unsure if self.comes_from_memory(e)), None)

    def extents(self, op: Op) -> list[Var]:
        """What says how many elements a tile has: also those of the view that it is loaded from the beginning of."""
        if not op.results:
            return []
        out = tile_extents(op) if op.op not in ("reshape", "broadcast_to") else []
        if op.op == "load":
            out += [e for _, e in self._of_view(op)]
        return out

    def _of_view(self, op: Op) -> list[tuple[int, Var]]:
        """The extents of the view that a tile is loaded from, by the axes along which it begins with it."""
        view = self.made.get(op.args[0].name)  # type: ignore[union-attr]
        if view is None or view.op != "view":
            return []
        rank = view.args[0].type.rank  # type: ignore[union-attr]
        kept = [a for a in range(rank) if a not in (view.attr("drop") or ())]  # type: ignore[operator]
        sizes = [view.args[1 + rank + a] for a in kept]
        return [(axis, e) for axis, e in enumerate(sizes) if isinstance(e, Var) and op.args[1 + axis] == index(0)]

    def comes_from_memory(self, operand: Operand) -> bool:
        """Whether a number is made of others, and elements of tensors, and of nothing else."""
        found = False
        work, seen = [operand], set[str]()
        while work:
            number = work.pop()
            if not isinstance(number, Var) or number.name in seen:
                continue
            seen.add(number.name)
            op = self.made.get(number.name)
            if op is None and number.name in self.loops:
                continue
            if self.counts[number.name] > 1 or (op is not None and touches_tiles(op)):
                return False
            if op is None or op.op == "dim":
                continue
            if op.op == "getelem":
                found = True
                continue
            work += op.args
        return found

    def divided(self, block: Block, at: int, extent: Var, *, inside: bool) -> Block:
        """A block in which what is done with tiles of an extent, from a place on, is in a branch."""

        def starts(op: Op) -> frozenset[int]:
            return self._axes(op, extent)

        end = self._end(block, at, extent)
        part = block[at:end]
        dealt = not inside and any(map(is_parallel, part))  # to the cores, which branches are not
        left = None if dealt else what_is_left(part, starts, self.func, Extents(self.func, self.dims))
        if left is None:
            self.refused.add(extent.name)
            return block
        names = Names(self.func)
        read, everywhere = use_counts(part), use_counts(self.func.body)
        own = {v.name for s in statements(left) for v in defs(s)
               if self.counts[v.name] <= 1 and everywhere[v.name] == read[v.name]}  # fmt: skip
        left = rename(left, {name: names.fresh(name).name for name in sorted(own)})
        loc = block[at].loc  # type: ignore[union-attr]
        test = names.fresh(f"{extent.name}_some", BOOL)
        compare = Op("lt", (test,), (index(0), extent), (), (), loc)
        return (*block[:at], compare, If(test, part, left, loc), *block[end:])

    def _axes(self, op: Op, extent: Var) -> frozenset[int]:
        """The axes of a tile, from the last, that have so many elements."""
        if not op.results or not hasattr(op.results[0].type, "shape"):
            return frozenset()
        rank = op.results[0].type.rank  # type: ignore[union-attr]
        match op.op:
            case "load":
                tensor = op.args[0].type.rank  # type: ignore[union-attr]
                if tensor != rank:
                    return frozenset()
                sizes = op.args[1 + rank : 1 + 2 * rank]
                own = {axis for axis, e in enumerate(sizes) if e == extent}
                own |= {axis for axis, e in self._of_view(op) if e == extent}
            case "full" | "reshape" | "broadcast_to":
                own = {axis for axis, e in enumerate(op.args[-rank:]) if e == extent}
            case "tile_slice":
                source = op.args[0].type.rank  # type: ignore[union-attr]
                kept = [a for a in range(source) if a not in (op.attr("drop") or ())]  # type: ignore[operator]
                own = {axis for axis, a in enumerate(kept) if op.args[1 + source + a] == extent}
            case "arange":
                own = {0} if op.args[2] == extent else set()
            case _:
                own = set()
        return frozenset(axis - rank for axis in own)

    def _end(self, block: Block, at: int, extent: Var) -> int:
        """Where the part of a block ends that has to do with tiles of an extent, from a place on: it goes to the end of
        the block if what it makes is read behind it."""
        made: set[str] = set()
        end = at
        for k in range(at, len(block)):
            s = block[k]
            ops = [o for o in statements((s,)) if isinstance(o, Op)]
            if made & block_uses((s,)) or any(self._axes(o, extent) for o in ops):
                made |= block_defs((s,))
                end = k + 1
        if block_defs(block[at:end]) & block_uses(block[end:]):
            return len(block) - isinstance(block[-1], Return)
        return end
