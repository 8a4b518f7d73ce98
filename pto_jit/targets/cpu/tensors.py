# SPDX-License-Identifier: MIT
"""Operations on tensors and their elements: extents, views, elements, allocation, assertions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from pto_jit import errors
from pto_jit.dtypes import DType, f32, f64
from pto_jit.errors import KernelAssertionError, Loc
from pto_jit.ir.nodes import Op
from pto_jit.ir.types import TensorType
from pto_jit.semantic import failures
from pto_jit.targets.cpu.bits import BITS
from pto_jit.targets.cpu.constants import I1, I8, I64, PTR, VOID, Index, Value, number, storage_type
from pto_jit.targets.cpu.constants import i64 as as_i64
from pto_jit.targets.cpu.elementwise import cast, from_memory, to_memory
from pto_jit.targets.cpu.values import Tensor

if TYPE_CHECKING:
    from pto_jit.targets.cpu.function import FunctionWriter

BROKEN = "a region is said to lie inside of its tensor and does not: axis {axis}, {{1}} of {{2}} elements from {{0}} on"


def _dim(w: FunctionWriter, op: Op) -> None:
    axis = op.attr("axis")
    assert isinstance(axis, int)
    w.define(op.results[0], w.tensor(op.args[0]).extents[axis])


def _getelem(w: FunctionWriter, op: Op) -> None:
    tensor = w.tensor(op.args[0])
    address = w.element(tensor, [w.index(a) for a in op.args[1:]], op.loc)
    w.record(op, tensor, address)
    raw = w.b.load(address, typ=storage_type(tensor.dtype), align=tensor.dtype.bytes)
    w.define(op.results[0], from_memory(w.b, raw, tensor.dtype))


def _setelem(w: FunctionWriter, op: Op) -> None:
    tensor = w.tensor(op.args[1])
    address = w.element(tensor, [w.index(a) for a in op.args[2:]], op.loc)
    w.record(op, tensor, address)
    w.b.store(to_memory(w.b, w.scalar(op.args[0]), tensor.dtype), address, align=tensor.dtype.bytes)


def region(
    w: FunctionWriter, tensor: Tensor, offsets: Sequence[Index], extents: Sequence[Index], loc: Loc, *,
    promised: bool = False,
) -> tuple[Value, tuple[Index, ...]]:  # fmt: skip
    """The part of a tensor from `offsets` on: its address and how much of `extents` lies inside.

    promised: all of it does, which is believed; when the program is debugged it is looked at.
    """
    code = w.code
    if promised and not w.module.debug:
        return address(w, tensor, offsets), tuple(extents)
    distance: Index = 0
    inside: list[Index] = []
    for axis, (at, extent, size, stride) in enumerate(
        zip(offsets, extents, tensor.extents, tensor.strides, strict=True)
    ):
        need_offset(w, axis, at, loc)
        distance = code.wrapping("add", distance, code.wrapping("mul", at, stride))
        if isinstance(at, int) and at == 0 and (extent is size or (isinstance(extent, int) and extent == size)):
            inside.append(extent)
        else:
            inside.append(code.max(code.min(extent, code.sub(size, at)), 0))
            if promised:
                site = w.module.site(KernelAssertionError, BROKEN.format(axis=axis), loc)
                code.check(code.compare("==", inside[-1], extent), site, at, extent, size)
    return code.offset(tensor.pointer, distance, inbounds=False), tuple(inside)


def need_offset(w: FunctionWriter, axis: int, at: Index, loc: Loc) -> None:
    """A region must not begin before its tensor; it may lie anywhere behind the end, then nothing of it is inside, and
    its address is not used."""
    if isinstance(at, int) and at >= 0:
        return
    behind = w.code.compare(">=", at, 0)
    if behind is not True:
        w.code.check(behind, w.module.site(*failures.OFFSET.at(axis=axis), loc), at)


def address(w: FunctionWriter, tensor: Tensor, offsets: Sequence[Index]) -> Value:
    """Where a region begins."""
    code = w.code
    distance: Index = 0
    for term in [code.wrapping("mul", at, stride) for at, stride in zip(offsets, tensor.strides, strict=True)]:
        distance = code.wrapping("add", distance, term)
    return code.offset(tensor.pointer, distance, inbounds=False)


def _view(w: FunctionWriter, op: Op) -> None:
    tensor = w.tensor(op.args[0])
    rank = len(tensor.extents)
    offsets = [w.index(a) for a in op.args[1 : 1 + rank]]
    extents = [w.index(a) for a in op.args[1 + rank : 1 + 2 * rank]]
    promised = bool(op.attr("inside"))
    pointer, inside = region(w, tensor, offsets, extents, op.loc, promised=promised)
    drop: Any = op.attr("drop") or ()
    for axis in () if promised else drop:  # an index: there is no valid part of it that would be nothing
        ok = w.code.compare("<", offsets[axis], tensor.extents[axis])
        w.code.check(ok, w.module.site(*failures.INDEX.at(axis=axis), op.loc), offsets[axis], tensor.extents[axis])
    kept = [k for k in range(rank) if k not in drop]
    w.env[op.results[0].name] = Tensor(
        tensor.dtype, pointer, tuple(inside[k] for k in kept), tuple(tensor.strides[k] for k in kept)
    )


def _tensor_reshape(w: FunctionWriter, op: Op) -> None:
    tensor = w.tensor(op.args[0])
    extents = tuple(w.index(a) for a in op.args[1:])
    old: Index = w.code.mul(*tensor.extents) if tensor.extents else 1
    new: Index = w.code.mul(*extents) if extents else 1
    site = w.module.site(*failures.VIEW.at(), op.loc)
    w.code.check(w.code.compare("==", old, new), site, old, new)
    w.env[op.results[0].name] = Tensor(tensor.dtype, tensor.pointer, extents, w.strides(tensor.dtype, extents))


def _tensor_transpose(w: FunctionWriter, op: Op) -> None:
    tensor = w.tensor(op.args[0])
    axes: Any = op.attr("axes") or tuple(reversed(range(len(tensor.extents))))
    w.env[op.results[0].name] = Tensor(
        tensor.dtype, tensor.pointer, tuple(tensor.extents[a] for a in axes), tuple(tensor.strides[a] for a in axes)
    )


def _tensor_step(w: FunctionWriter, op: Op) -> None:
    tensor, code = w.tensor(op.args[0]), w.code
    steps: Any = op.attr("steps")
    extents = [code.div(code.add(n, s - 1), s) for n, s in zip(tensor.extents, steps, strict=True)]
    strides = [code.wrapping("mul", n, s) for n, s in zip(tensor.strides, steps, strict=True)]
    w.env[op.results[0].name] = Tensor(tensor.dtype, tensor.pointer, tuple(extents), tuple(strides))


def new_extents(w: FunctionWriter, op: Op) -> tuple[Index, ...]:
    """The extents of a new tensor, which fail where they are negative and the operation is checked, and are 0 else."""
    values = [w.index(a) for a in (op.args[:-1] if op.attr("filled") else op.args)]
    if not op.attr("checked"):
        return tuple(w.code.max(value, 0) for value in values)
    for axis, value in enumerate(values):
        w.code.check(w.code.compare(">=", value, 0), w.module.site(*failures.EXTENT.at(axis=axis), op.loc), value)
    return tuple(values)


ON_STACK = 4096
"""Bytes that an array of one iteration, or call, may have on the stack, where LLVM keeps elements in registers."""
STACK = 16 * ON_STACK
"""Bytes that all of them may have in one function: an unrolled loop makes many, and threads have little."""


def _alloc(w: FunctionWriter, op: Op) -> None:
    code = w.code
    result = op.results[0]
    assert isinstance(result.type, TensorType)
    dtype = result.type.dtype
    filled = bool(op.attr("filled"))
    extents = new_extents(w, op)
    size = code.bytes(dtype.bytes, extents)
    inside = w.func.kind == "incore"  # nothing outlives the call
    if inside and isinstance(size, int) and size <= ON_STACK and w.stacked + size <= STACK:
        w.stacked += size
        pointer = w.local_memory(result.name, dtype, max(size // dtype.bytes, 1))
    else:
        pointer = w.tensor_memory(result.name, size)
    if w.recording:
        from pto_jit.targets.cpu.racing import record_new

        record_new(w, pointer, size)
    tensor = Tensor(dtype, pointer, extents, w.strides(dtype, extents))
    w.env[result.name] = tensor
    if filled:
        value = to_memory(w.b, w.scalar(op.args[-1]), dtype)
        count = code.div(size, dtype.bytes)
        w.module.note_loop(code.function)

        def body(i: Value, _: list[Value]) -> Sequence[Value]:
            code.b.store(value, code.offset(pointer, code.mul(i, dtype.bytes)), align=dtype.bytes)
            return ()

        code.loop(0, count, body=body, name="fill")
    elif op.attr("fill") == "zeros":
        memset = code.module.globals.get("llvm.memset.p0.i64") or ir.Function(
            code.module, ir.FunctionType(VOID, [PTR, I8, I64, I1]), "llvm.memset.p0.i64"
        )
        code.b.call(memset, [pointer, number(I8, 0), as_i64(size), number(I1, False)])


def _assert(w: FunctionWriter, op: Op) -> None:
    if not (w.module.debug or op.attr("always")):
        return
    kind = getattr(errors, str(op.attr("error")), KernelAssertionError) if op.attr("error") else KernelAssertionError
    site = w.module.site(kind, failures.assertion(str(op.attr("message")), str(op.attr("told") or "")), op.loc)
    w.code.check(w.scalar(op.args[0]), site, *(w.index(a) for a in op.args[1:]))


def bits64(w: FunctionWriter, value: Value, dtype: DType) -> Value:
    """A scalar as a 64-bit slot: floats as the bits of an f64, integers extended."""
    if dtype.kind == "f":
        if dtype.bits == 16:  # registers hold more than the dtype
            value = cast(w.b, value, f32, dtype)
        wide = cast(w.b, value, dtype if dtype.bits == 64 else f32, f64)
        return w.b.bitcast(wide, I64)
    if dtype.bits == 64:
        return value
    if dtype.kind == "i":
        return w.b.sext(value, I64)
    return w.b.zext(value, I64)


TENSOR_OPS: dict[str, Callable[[FunctionWriter, Op], None]] = {
    "dim": _dim, "getelem": _getelem, "setelem": _setelem, "view": _view, "tensor_reshape": _tensor_reshape,
    "tensor_transpose": _tensor_transpose, "tensor_step": _tensor_step, "alloc": _alloc, "assert": _assert,
    **{name: lambda w, op: w.elementwise(op) for name in BITS},
}  # fmt: skip
