# SPDX-License-Identifier: MIT
"""Compute what all rows of a group have in common once, before it: `fuse` would compute it again in every row.

Before::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,64x8,f32>, %v: !pto.memref<gm,1x8,f32>, %y: !pto.memref<gm,64x8,f32>) {
      %a = tload %x[0, 0] [64, 8] : !pto.tile<64x8xf32>
      %b = tadd %a, 1.0:f32 : !pto.tile<64x8xf32>
      %c = tload %v[0, 0] [1, 8] : !pto.tile<1x8xf32>
      %d = tsqrt %c : !pto.tile<1x8xf32>
      %e = tmul %b, %d : !pto.tile<64x8xf32>
      tstore %e, %y[0, 0]
      return
    }

After::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,64x8,f32>, %v: !pto.memref<gm,1x8,f32>, %y: !pto.memref<gm,64x8,f32>) {
      FUSE %d
        %c = tload %v[0, 0] [1, 8] : !pto.tile<1x8xf32>
        %d = tsqrt %c : !pto.tile<1x8xf32>
      ENDFUSE
      FUSE
        %a = tload %x[0, 0] [64, 8] : !pto.tile<64x8xf32>
        %b = tadd %a, 1.0:f32 : !pto.tile<64x8xf32>
        %e = tmul %b, %d : !pto.tile<64x8xf32>
        tstore %e, %y[0, 0]
      ENDFUSE
      return
    }

What moves is worth it: functions and divisions, and what they are made of.  A sum is computed again as quickly as it is
read.
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.ir.nodes import Op, Var
from pto_jit.ir.types import TileType
from pto_jit.lower.groups.axes import EXPENSIVE, Axial, is_elementwise

_NONE: frozenset[str] = frozenset()


def common_rows(ops: Sequence[Op], axial: Axial, mutable: set[str]) -> frozenset[str]:
    """What the operations of a group, `axial` after all of them, had better compute before all others: the names of
    the results; mutable: variables that are assigned more than once, which stay where they are."""
    space = axial.found(axial.space)
    if len(space) < 2:
        return _NONE
    movable: dict[str, Op] = {}
    wanted: dict[str, Op] = {}
    for op, axes in zip(ops, axial.given, strict=True):
        if len(op.results) != 1 or not _may_move(op, axial, movable, mutable):
            continue
        (result,) = op.results
        if isinstance(result.type, TileType) and axes is not None and op.op != "load":
            mine = {axial.find(a) for a in axes if a is not None}
            if space[-1] not in mine or space[-2] in mine:
                continue
            if (op.op in EXPENSIVE and result.type.dtype.kind == "f") or any(a.name in wanted for a in _names(op)):
                wanted[result.name] = op
        movable[result.name] = op
    first = set(wanted)
    work = list(wanted.values())
    while work:
        new = {a.name for a in _names(work.pop()) if a.name in movable} - first
        first |= new
        work += [movable[name] for name in new]
    return frozenset(first)


def rows_first(ops: Sequence[Op], names: frozenset[str]) -> Sequence[Op]:
    """The operations with those first that have these results."""
    found = [op for op in ops if op.results and op.results[0].name in names]
    if list(ops[: len(found)]) == found:
        return ops
    return [*found, *(op for op in ops if not op.results or op.results[0].name not in names)]


def _may_move(op: Op, axial: Axial, movable: dict[str, Op], mutable: set[str]) -> bool:
    """Whether an operation can be done before the others of its group, but for those that are movable."""
    (result,) = op.results
    if result.name in mutable or result.name in axial.floating:
        return False
    if any(a.name in mutable or (a.name in axial.inside and a.name not in movable) for a in _names(op)):
        return False
    return op.op == "load" or is_elementwise(op)


def _names(op: Op) -> list[Var]:
    return [a for a in op.args if isinstance(a, Var)]
