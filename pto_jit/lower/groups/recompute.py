# SPDX-License-Identifier: MIT
"""Compute a tile again in the groups that read it, where that costs no more than to read it, instead of keeping it.

What deviates from the mean of its column, squared and divided.  Before::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,8x64,f32>, %m: !pto.memref<gm,1x64,f32>, %y: !pto.memref<gm,8x64,f32>) {
      FUSE %d, %s
        %a = tload %x[0, 0] [8, 64] : !pto.tile<8x64xf32>
        %b = tload %m[0, 0] [1, 64] : !pto.tile<1x64xf32>
        %d = tsub %a, %b : !pto.tile<8x64xf32>
        %q = tmul %d, %d : !pto.tile<8x64xf32>
        %s = tsum %q {axes=(0,), keepdims=true} : !pto.tile<1x64xf32>
      ENDFUSE
      FUSE
        %e = tdiv %d, %s : !pto.tile<8x64xf32>
        tstore %e, %y[0, 0]
      ENDFUSE
      return
    }

After::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,8x64,f32>, %m: !pto.memref<gm,1x64,f32>, %y: !pto.memref<gm,8x64,f32>) {
      FUSE %s
        %a = tload %x[0, 0] [8, 64] : !pto.tile<8x64xf32>
        %b = tload %m[0, 0] [1, 64] : !pto.tile<1x64xf32>
        %d = tsub %a, %b : !pto.tile<8x64xf32>
        %q = tmul %d, %d : !pto.tile<8x64xf32>
        %s = tsum %q {axes=(0,), keepdims=true} : !pto.tile<1x64xf32>
      ENDFUSE
      FUSE
        %a.1 = tload %x[0, 0] [8, 64] : !pto.tile<8x64xf32>
        %b.1 = tload %m[0, 0] [1, 64] : !pto.tile<1x64xf32>
        %d.1 = tsub %a.1, %b.1 : !pto.tile<8x64xf32>
        %e = tdiv %d.1, %s : !pto.tile<8x64xf32>
        tstore %e, %y[0, 0]
      ENDFUSE
      return
    }

The tile is made by few cheap operations of one tile of its size, of rows, columns and numbers; nothing is written to
memory in between; and all that read it are groups of the same block.
"""

from __future__ import annotations

from pto_jit.ir.nodes import Block, Func, Fuse, Op, Stmt, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import def_counts, map_blocks, rename, statements, use_counts
from pto_jit.lower.complete import Complete, complete_axes
from pto_jit.lower.groups.axes import EXPENSIVE, Axial, is_elementwise, remember_axes, unit_reshape
from pto_jit.lower.groups.units import Units, operations
from pto_jit.lower.names import Names
from pto_jit.semantic.table import effects
from pto_jit.slotted import replace

_MOST = 3  # operations for each element


def recompute(func: Func) -> Func:
    """A function whose groups were formed (`fuse`), keeping fewer tiles between them."""
    groups = [s for s in statements(func.body) if isinstance(s, Fuse)]
    if len(groups) < 2 or not any(group.keep for group in groups):
        return func
    work = _Recomputer(func)
    body = map_blocks(func.body, work.block)
    return func if body is func.body else replace(func, body=body)


class _Recomputer:
    def __init__(self, func: Func) -> None:
        self.func = func
        self.uses = use_counts(func.body)
        self.mutable = {name for name, count in def_counts(func.body).items() if count > 1}
        self.names: Names | None = None
        self.known: Complete | None = None

    def block(self, block: Block) -> Block:
        out = list(block)
        for at in range(len(out)):
            group = out[at]
            if isinstance(group, Fuse) and group.keep and not _writes(group):
                for name in group.keep:
                    self._tile(out, at, name)
        return tuple(out) if any(a is not b for a, b in zip(out, block, strict=True)) else block

    def _tile(self, block: list[Stmt], at: int, name: str) -> None:
        """Replace what is read of a tile that the group at a place of the block keeps."""
        group = block[at]
        assert isinstance(group, Fuse)
        made = self._made(group, name)
        if not made:
            return
        readers: dict[int, Fuse] = {}
        left = self.uses.get(name, 0) - _reads(group, name)
        for after in range(at + 1, len(block)):
            if left == 0:
                break
            stmt = block[after]
            if isinstance(stmt, Fuse) and (count := _reads(stmt, name)):
                again = self._again(stmt, made, name)
                if again is None:
                    return
                readers[after] = again
                left -= count
            if left and _writes(stmt):
                return
        if left == 0:
            block[at] = replace(group, keep=tuple(k for k in group.keep if k != name))
            for after, again in readers.items():
                block[after] = again

    def _made(self, group: Fuse, name: str) -> list[Op]:
        """The operations of a group that make a tile, in order; none where they are more than reading it costs."""
        ops = {op.results[0].name: op for op in operations(group) if len(op.results) == 1}
        last = ops.get(name)
        if last is None or not isinstance(last.results[0].type, TileType) or last.op in ("load", "reshape"):
            return []
        tile = last.results[0].type
        wanted, work, sources, computed = {name}, [last], 0, 0
        while work:
            op = work.pop()
            if op.results[0].name in self.mutable:
                return []
            if is_elementwise(op):
                computed += 1
                if op.op in EXPENSIVE or computed > _MOST:
                    return []
            elif op.op != "load" and not (op.op == "reshape" and unit_reshape(op) is not None):
                return []
            if op.op == "load":
                sources += _cost(op.results[0], tile, op)
            for a in op.args:
                if not isinstance(a, Var) or a.name in wanted:
                    continue
                if a.name in self.mutable:
                    return []
                inside = ops.get(a.name)
                if inside is not None:
                    wanted.add(a.name)
                    work.append(inside)
                elif isinstance(a.type, TileType):
                    sources += _cost(a, tile)
        return [op for op in ops.values() if op.results[0].name in wanted] if sources == 1 else []

    def _again(self, group: Fuse, made: list[Op], name: str) -> Fuse | None:
        """A group that makes a tile before it reads it; None where it would be no group, or another one."""
        if self.names is None:
            self.names = Names(self.func)
        new = {r.name: self.names.fresh(r.name).name for op in made for r in op.results}
        body = (*rename(tuple(made), new), *rename(group.body, {name: new[name]}))
        axial = Axial()
        if not all(isinstance(op, Op) and axial.admit(op) for op in body) or axial.again or axial.pending:
            return None
        again = replace(group, body=body)
        if self.known is None:
            self.known = complete_axes(self.func.body)
        if Units(operations(again), group.keep, self.known).apart:
            return None
        remember_axes(body, axial)
        return again


def _cost(source: Var, tile: TileType, load: Op | None = None) -> int:
    """How often a tile could be read while one that it is made of is read: never for rows, columns and numbers."""
    type = source.type
    assert isinstance(type, TileType)
    if sum(n != 1 for n in type.shape) < sum(n != 1 for n in tile.shape):
        return 0
    if load is not None and load.args[0].type.layout == "strided":  # pyright: ignore[reportAttributeAccessIssue]
        return 2  # it may lie across
    return 1 if type.dtype.bytes <= tile.dtype.bytes else 2


def _reads(group: Fuse, name: str) -> int:
    return sum(isinstance(a, Var) and a.name == name for op in operations(group) for a in op.args)


def _writes(stmt: Stmt) -> bool:
    """Whether something is stored, or may be."""
    inner = stmt.body if isinstance(stmt, Fuse) else (stmt,)
    return not all(isinstance(op, Op) and effects(op.op) != "writes" for op in inner)
