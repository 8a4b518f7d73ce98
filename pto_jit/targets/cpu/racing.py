# SPDX-License-Identifier: MIT
"""Loops that are checked for races while they run (see `semantic.races`): what the code tells the run-time library.

A checked loop runs in order in the function that it stands in.  Every access to a tensor below it, in the functions
that are called there too, hands the rectangle that it touches to `pto_race_access`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pto_jit.errors import RaceError
from pto_jit.ir.nodes import Call, For, Func, Module, Op, Stmt, Var
from pto_jit.ir.walk import statements
from pto_jit.lower.names import source_name
from pto_jit.semantic.races import access_of
from pto_jit.semantic.table import tensor_arg
from pto_jit.targets.cpu.constants import I32, I64, PTR, VOID, Index, Value, i64, number, zero
from pto_jit.targets.cpu.values import Tensor

if TYPE_CHECKING:
    from pto_jit.targets.cpu.function import FunctionWriter

_KINDS = {"reads": 0, "writes": 1, "updates": 2}  # enum pto_access


def write_checked(w: FunctionWriter, stmt: For) -> None:
    """A checked loop: in order, its accesses recorded."""
    code = w.code
    saved = w.recording, w.parallel
    w.recording = w.parallel = True
    start, stop, step = w.index(stmt.start), w.index(stmt.stop), w.index(stmt.step)
    site = number(I32, w.module.site(RaceError, source_name(stmt.var.name), stmt.loc))
    own: bool | Value = True
    if stmt.kind == "in_chunk":  # its chunk loop has begun already, in this function or a caller; or it has none
        inside = code.call("pto_race_inside", I32, [code.worker, site])
        own = code.b.icmp_signed("==", inside, number(I32, 0))
    with code.when(own):
        code.check_status(code.call("pto_race_enter", I32, [code.worker, site]))

    def begin(i: Value) -> None:
        code.call("pto_race_iteration", VOID, [code.worker, i, i64(step)])

    w.sequential(stmt, start, stop, step, begin if stmt.kind != "chunk" else None)
    with code.when(own):
        code.call("pto_race_leave", VOID, [code.worker])
    w.recording, w.parallel = saved


def record(
    w: FunctionWriter, op: Op, tensor: Tensor, pointer: Value, extents: Sequence[Index], strides: Sequence[Index]
) -> None:
    """Fail when the access of a rectangle of `op`'s tensor operand and one of another iteration are a race."""
    code = w.code
    verb, at = access_of(op), tensor_arg(op.op)
    assert verb is not None and at is not None
    operand = op.args[at]
    assert isinstance(operand, Var)
    root = w.root(operand.name)
    site = w.module.site(RaceError, f"{verb} {source_name(root)}", op.loc)
    rank = len(extents)
    status = code.call("pto_race_access", I32, [
        code.worker, number(I32, site), number(I32, _KINDS[verb]), pointer, number(I64, tensor.dtype.bytes),
        number(I32, rank), _shape(w, extents, strides),
    ])  # fmt: skip
    with code.when(code.b.icmp_signed("!=", status, number(I32, 0)), likely=False):
        base = w.env[root]
        assert isinstance(base, Tensor)
        code.call("pto_race_element", VOID, [
            code.worker, base.pointer, number(I32, len(base.extents)), _shape(w, base.extents, base.strides)
        ])  # fmt: skip
        code.leave_with(status)


def record_new(w: FunctionWriter, pointer: Value, size: Index) -> None:
    """Memory that a tensor was allocated in."""
    w.code.call("pto_race_forget", VOID, [w.code.worker, pointer, i64(size)])


def _shape(w: FunctionWriter, extents: Sequence[Index], strides: Sequence[Index]) -> Value:
    if not extents:
        return zero(PTR)
    code = w.code
    block = code.alloca(I64, "shape", count=2 * len(extents), align=16)
    for k, value in enumerate((*extents, *strides)):
        code.b.store(i64(value), code.offset(block, 8 * k), align=8)
    return block


def recorded_functions(module: Module) -> set[str]:
    """The functions that may run in a checked loop."""
    called = {f.name: {s.callee for s in statements(f.body) if isinstance(s, Call)} for f in module.funcs}
    found: set[str] = set()
    more = {s.callee for f in module.funcs for loop in _checked_loops(f) for s in loop if isinstance(s, Call)}
    while more:
        found |= more
        more = {name for caller in more for name in called[caller]} - found
    return found


def _checked_loops(func: Func) -> list[list[Stmt]]:
    loops = [s for s in statements(func.body) if isinstance(s, For) and s.checked]
    return [list(statements(loop.body)) for loop in loops]
