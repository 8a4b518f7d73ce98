# SPDX-License-Identifier: MIT
"""Nests whose tensors lie in memory as transposed arrays do (the first axis side by side, Fortran's order): the same
nest with its axes in the opposite order, so that its rows run along memory.

The strides are known when the code runs, so both nests are written, for kernels compiled for strided tensors only.
"""

from __future__ import annotations

from pto_jit.ir.nodes import Fuse, Op, Var
from pto_jit.lower.groups.axes import is_reduction
from pto_jit.slotted import frozen, replace
from pto_jit.targets.cpu.code import Code
from pto_jit.targets.cpu.constants import Value
from pto_jit.targets.cpu.nest import Inputs, Strided
from pto_jit.targets.loops.form import Nest, Read, RowBuffer, Write
from pto_jit.targets.loops.plan import plan


@frozen
class Turned:
    """A nest in the opposite order of its axes, what it takes, and when it is the one to run (an i1)."""

    nest: Nest
    inputs: Inputs
    when: bool | Value


def turned(code: Code, fused: Fuse, nest: Nest, inputs: Inputs) -> Turned | None:
    """The group's nest in the opposite order of its axes; None where that is not the same program, or not better.

    It is better where more of the tensors lie so than side by side along the last axis.  `inputs.flat` is that of the
    nest given, and is to be found anew.
    """
    if nest.rank < 2 or not _same_program(fused, nest):
        return None
    steps = [step for stage in nest.stages for step in stage if isinstance(step, (Read, Write))]
    places = {(s.place, s.axes): s.dtype.bytes for s in steps
              if not isinstance(s.place, RowBuffer) and len(set(s.axes) - {None}) == nest.rank}  # fmt: skip
    along = 0
    memory = dict(inputs.memory)
    conditions: list[bool | Value] = []
    for (place, axes), size in places.items():
        have = inputs.memory[place]
        inner, outer = axes.index(nest.rank - 1), axes.index(0)
        if isinstance(have.strides[inner], int):
            along += have.strides[inner] == size
            continue
        conditions.append(code.compare("==", have.strides[outer], size))
        strides = (*have.strides[:outer], size, *have.strides[outer + 1 :])
        memory[place] = Strided(have.pointer, strides)
    if len(conditions) <= along:
        return None
    when = code.all_of(conditions)
    other = plan(fused, turned=True)
    longest = inputs.extents[0]
    return Turned(other, replace(inputs, extents=inputs.extents[::-1], memory=memory, longest=longest), when)


def _same_program(fused: Fuse, nest: Nest) -> bool:
    """Whether the order of the axes makes no difference: every element is stored once, what is reduced is not read in
    the group, nothing that is read is also kept."""
    reductions = {r.name for op in fused.body if isinstance(op, Op) and is_reduction(op) for r in op.results}
    if any(isinstance(op, Op) and op.op in ("argmax", "argmin") for op in fused.body):
        return False
    if any(isinstance(a, Var) and a.name in reductions for op in fused.body if isinstance(op, Op) for a in op.args):
        return False
    whole = set(range(nest.rank))
    if any(set(store.axes) - {None} != whole for store in nest.stores):
        return False
    read = {source.name for source in nest.sources}
    return all(r.name not in read and (r.name in reductions or set(r.axes) - {None} == whole) for r in nest.results)
