# SPDX-License-Identifier: MIT
"""Tiles that a scope hands on to its loops and branches, or these to one another, by way of memory.

On devices, where loops and branches in which whole tensors are computed are those of the host, which no tile goes
through.

Before::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?,f32>, %y: !pto.memref<gm,?,f32>, %n: i64) {
      %x_d0 = sdim %x {axis=0} : i64
      SCOPE @f_incore_0
        %t = tload %x[0] [%x_d0] : !pto.tile<?xf32>
        FOR %k:idx, 0:idx, %n:idx, 1:idx
          tstore %t, %y[0]
        ENDFOR
      ENDSCOPE
      return
    }

After::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?,f32>, %y: !pto.memref<gm,?,f32>, %n: i64) {
      %x_d0 = sdim %x {axis=0} : i64
      %t.memory = talloc [%x_d0] {dtype=f32} : !pto.memref<gm,?,f32>
      SCOPE @f_incore_0
        %t.1 = tload %x[0] [%x_d0] : !pto.tile<?xf32>
        tstore %t.1, %t.memory[0]
        FOR %k:idx, 0:idx, %n:idx, 1:idx
          %t.2 = tload %t.memory[0] [%x_d0] : !pto.tile<?xf32>
          tstore %t.2, %y[0]
        ENDFOR
      ENDSCOPE
      return
    }
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby

from pto_jit.ir.nodes import Block, Op, Operand, Scope, Stmt, Var
from pto_jit.ir.types import TensorType, TileType
from pto_jit.ir.walk import block_defs, blocks, defs, uses, with_blocks
from pto_jit.lower.groups.fitting import fitting_axes
from pto_jit.lower.names import Names, Scalars, index, source_name
from pto_jit.lower.wholes.lines import Axis, Lines
from pto_jit.lower.wholes.pieces import host_first
from pto_jit.slotted import field, mutable, replace

Extent = Callable[[Lines, "Axis | None", list[Op], Scalars], "Operand | None"]
"""How many lines an axis has, if that is known; what has to be computed goes to the scalars."""
Measure = Callable[[Var, list[Op], Scalars], "tuple[Operand, ...] | None"]
"""The same of all axes of a tile that operations make."""


class _UnknownError(Exception):
    """Extents that are not known before the scope runs."""


@mutable
class Handing:
    """Puts tiles that several runs of operations read or make into memory.

    assigned: how often variables are; extent, measure: as above; memory: what was made for a tile, with its extents.
    """

    names: Names
    assigned: Mapping[str, int]
    extent: Extent
    measure: Measure
    memory: dict[str, tuple[Var, tuple[Operand, ...]]] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)
    before: list[Stmt] = field(default_factory=list)
    makers: dict[str, Op] = field(default_factory=dict)

    def scope(self, scope: Scope) -> tuple[list[Stmt], Scope] | None:
        """What stands before the scope now, and the scope; None where no tile is handed on, or too little is known."""
        run_of: dict[str, int] = {}
        for number, run in enumerate(_runs(scope.body)):
            for var in (v for s in run for v in (*uses(s), *defs(s)) if isinstance(v.type, TileType)):
                if run_of.setdefault(var.name, number) != number:
                    self.shared.add(var.name)
        if not self.shared or not self.shared.isdisjoint(fitting_axes(scope.body)):
            return None
        self.before, rest = host_first(list(scope.body), self.assigned)
        try:
            body = self._block(tuple(rest), inside=False)
        except _UnknownError:
            return None
        late = block_defs(body)
        if any(v.name in late for s in self.before for v in uses(s)):
            return None
        return self.before, replace(scope, body=body)

    def _block(self, block: Block, *, inside: bool) -> Block:
        out: list[Stmt] = []
        for plain, group in groupby(block, _is_of_run):
            stmts = list(group)
            if plain:
                out += self._run([s for s in stmts if isinstance(s, Op)], inside)
            elif any(isinstance(v, Var) and v.name in self.shared for s in stmts if not blocks(s) for v in uses(s)):
                raise _UnknownError
            else:
                out += [with_blocks(s, tuple(self._block(b, inside=True) for b in blocks(s))) for s in stmts]
        return tuple(out)

    def _run(self, ops: list[Op], inside: bool) -> list[Stmt]:
        """Operations that read what is in memory, and put there what others read."""
        now: dict[str, Var] = {}  # what the shared tiles are called here
        out: list[Op] = []
        stored: list[tuple[Var, str]] = []
        for op in ops:
            for var in uses(op):
                if var.name in self.shared and var.name not in now:
                    if var.name not in self.memory:
                        raise _UnknownError
                    now[var.name] = self.names.fresh(source_name(var.name), var.type)
                    memory, extents = self.memory[var.name]
                    starts = (index(0),) * len(extents)
                    out.append(Op("load", (now[var.name],), (memory, *starts, *extents), (), (), op.loc))
            args = tuple(now.get(a.name, a) if isinstance(a, Var) else a for a in op.args)
            results = tuple(
                self.names.fresh(source_name(r.name), r.type) if r.name in self.shared else r for r in op.results
            )
            out.append(replace(op, args=args, results=results))
            for old, new in zip(op.results, results, strict=True):
                if old is not new:
                    now[old.name] = new
                    stored.append((new, old.name))
        lines = Lines(tuple(out))
        extents_of = [(new, old, self._extents(new, lines, out, inside)) for new, old in stored]
        for new, old, extents in extents_of:
            if old not in self.memory:
                assert isinstance(new.type, TileType)
                memory = self.names.fresh(f"{source_name(old)}.memory", TensorType(new.type.dtype, new.type.shape, "c"))
                alloc = Op("alloc", (memory,), extents, (("dtype", new.type.dtype),), (), ops[0].loc)
                self.makers[memory.name] = alloc
                self.before.append(alloc)
                self.memory[old] = memory, extents
            elif self.memory[old][1] != extents:
                raise _UnknownError
        stmts: list[Stmt] = []
        names = {new.name: old for new, old in stored}
        for op in out:
            stmts.append(op)
            for r in op.results:
                if r.name in names:
                    memory, extents = self.memory[names[r.name]]
                    stmts.append(Op("store", (), (r, memory, *(index(0),) * len(extents)), (), (), op.loc))
        return stmts

    def _extents(self, tile: Var, lines: Lines, ops: list[Op], inside: bool) -> tuple[Operand, ...]:
        """Those of what is in memory already and has the same lines, or what the operations say."""
        assert isinstance(tile.type, TileType)
        own = lines.axes(tile)
        known = {memory.name: extents for memory, extents in self.memory.values()}
        out: list[Operand] = []
        for k, constant in enumerate(tile.type.shape):
            axis = own.get(k)
            found: Operand | None = index(1) if constant == 1 else None
            for op in ops:
                place = lines.place(op.results[0], axis) if axis is not None and op.op == "load" else None
                if place is not None and isinstance(op.args[0], Var) and op.args[0].name in known:
                    found = known[op.args[0].name][place]
            if found is None:
                scalars = Scalars(self.names, ops[0].loc)
                found = self.extent(lines, axis, ops, scalars)
                if inside and any(isinstance(s, Op) and s.op == "assert" for s in scalars.block):
                    raise _UnknownError
                if found is None:
                    scalars.block.clear()
                    whole = self.measure(tile, ops, scalars)
                    found = None if whole is None else whole[k]
                self.before += scalars.block
            if found is None or (constant is not None and found != index(constant)):
                raise _UnknownError  # or less is valid than the tile has, which memory of its extents does not tell
            out.append(found)
        return tuple(out)


def _is_of_run(stmt: Stmt) -> bool:
    return isinstance(stmt, Op)


def _runs(block: Block) -> Iterator[list[Stmt]]:
    """The runs of operations of a block, and of the blocks in it."""
    for plain, group in groupby(block, _is_of_run):
        stmts = list(group)
        if plain:
            yield stmts
        else:
            yield from (run for s in stmts for inner in blocks(s) for run in _runs(inner))
