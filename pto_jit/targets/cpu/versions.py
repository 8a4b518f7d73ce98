# SPDX-License-Identifier: MIT
"""Loops in several versions, one for tensors whose last axis is as short as the loop's indices say.

``y[i, j] = x[i, j, 0] + x[i, j, 1] + x[i, j, 2]``: the channels of an image or the coordinates of points mostly are
what such a loop reads, all of them.  With a constant last extent elements lie a constant distance apart, and the loop
vectoriser loads them side by side and takes them apart in registers; at a distance that is known when run alone it
collects them one by one, or leaves the loop as it is.  So the loop is written twice, and the extents decide when it
runs.  Where three elements are read there often are four (an image with its opacity, points that are aligned): that is
a version of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Const, For, If, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.ir.walk import block_defs, blocks
from pto_jit.lower.independent import is_other
from pto_jit.slotted import replace
from pto_jit.targets.cpu.constants import Index
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.spmd.variance import Step, result_step

_MOST = 8  # elements side by side that processors take apart at a profit
_LONG = 64  # operations of a loop that is not worth writing twice


def write_versions(w: FunctionWriter, loop: For, write: Callable[[], None]) -> None:
    """Call `write`, which writes `loop` into this frame: once, or for either version."""
    plain = w.plain or loop.border
    extents = _guesses(w, loop) if w.versions and w.vectors and not (plain or w.recording or w.module.debug) else {}
    if not extents:
        write()
        return
    padded = {name: 4 if extent == 3 else extent for name, extent in extents.items()}
    w.versions = False
    _write(w, [extents] if padded == extents else [extents, padded], write)
    w.versions = True


def _write(w: FunctionWriter, versions: Sequence[dict[str, int]], write: Callable[[], None]) -> None:
    """A version for each of some last extents by tensor, and one for any."""
    if not versions:
        write()
        return
    code, (extents, *others) = w.code, versions
    tensors = {name: w.env[name] for name in extents}

    def narrow() -> tuple[()]:
        for name, tensor in tensors.items():
            shape: tuple[Index, ...] = (*tensor.extents[:-1], extents[name])
            w.env[name] = replace(tensor, extents=shape, strides=w.strides(tensor.dtype, shape))
        write()
        w.env.update(tensors)
        return ()

    def other() -> tuple[()]:
        _write(w, others, write)
        return ()

    alike = code.all_of([code.compare("==", tensors[name].extents[-1], extent) for name, extent in extents.items()])
    code.choose(alike, narrow, other)


def _guesses(w: FunctionWriter, loop: For) -> dict[str, int]:
    """The last extents, unknown while compiling, that the indices of a loop suggest, by tensor."""
    if not isinstance(loop.step, Const) or _carries_floats(w, loop):
        return {}
    ends: dict[str, int] = {}  # of the constant loops inside, by variable
    ops = _straight(loop.body, ends)
    if ops is None or len(ops) > _LONG:
        return {}
    steps: dict[str, Step] = {loop.var.name: int(loop.step.value)}
    assigned = block_defs(loop.body)

    def step(operand: Operand) -> Step:
        if isinstance(operand, Const) or operand.name not in (*assigned, *steps):
            return 0
        return steps.get(operand.name)

    highest: dict[str, int] = {}
    for op in ops:
        if op.op not in ("getelem", "setelem"):
            for result in op.results:
                steps[result.name] = None if result.name in w.mutable else result_step(op, step)
            continue
        tensor, *indices = op.args[op.op == "setelem" :]
        last = _highest(indices[-1], ends) if len(indices) > 1 else None
        if last is None or not isinstance(tensor, Var) or not _has_unknown_end(w, tensor):
            continue
        *outer, moved = map(step, indices[:-1])
        if moved and all(s == 0 for s in outer):
            highest[tensor.name] = max(last, highest.get(tensor.name, 0))
    return {name: last + 1 for name, last in highest.items() if 1 <= last < _MOST}


def _carries_floats(w: FunctionWriter, loop: For) -> bool:
    """Whether an iteration waits for a float of the one before, which keeps the loop as it is."""
    carried = [v for v in free_vars(loop.body) if v.name in block_defs(loop.body)]
    return not w.module.fast and any(isinstance(v.type, ScalarType) and v.type.dtype.kind == "f" for v in carried)


def _straight(block: Block, ends: dict[str, int]) -> list[Op] | None:
    """The operations of a block of elements without other loops than such with constant bounds; None: it is not one."""
    out: list[Op] = []
    for stmt in block:
        if is_other(stmt):
            return None
        if isinstance(stmt, Op):
            out.append(stmt)
            continue
        if not isinstance(stmt, If) and not _is_counted(stmt, ends):
            return None
        for inner in blocks(stmt):
            ops = _straight(inner, ends)
            if ops is None:
                return None
            out += ops
    return out


def _is_counted(stmt: Stmt, ends: dict[str, int]) -> bool:
    """Whether a statement is a loop over constants from 0 on; notes where it ends."""
    if not isinstance(stmt, For) or not isinstance(stmt.stop, Const):
        return False
    if stmt.kind != "sequential" or not (_is(stmt.start, 0) and _is(stmt.step, 1)):
        return False
    ends[stmt.var.name] = int(stmt.stop.value)
    return True


def _is(operand: Operand, value: int) -> bool:
    return isinstance(operand, Const) and operand.value == value


def _highest(index: Operand, ends: dict[str, int]) -> int | None:
    """The highest number that a last index has, where it is a constant or the variable of a counted loop."""
    if isinstance(index, Const):
        return int(index.value)
    return ends[index.name] - 1 if index.name in ends else None


def _has_unknown_end(w: FunctionWriter, tensor: Var) -> bool:
    """Whether a tensor has its elements side by side, in rows whose length is known when run."""
    assert isinstance(tensor.type, TensorType)
    return tensor.type.layout == "c" and not isinstance(w.tensor(tensor).extents[-1], int)
