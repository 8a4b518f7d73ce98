# SPDX-License-Identifier: MIT
"""The host side of a compiled program: its scalars are evaluated, its launches enqueued, in the program's order.

Scalars are computed by the semantic table, as the reference interpreter does; a tensor is a pointer with extents and
strides.  Nothing waits for the device, except an element of a tensor that the host reads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from pto_jit import errors
from pto_jit.dtypes import DType
from pto_jit.errors import ArgumentError, BoundsError, InternalError, LaunchError, excerpt
from pto_jit.ir.nodes import Block, Break, Call, Const, Continue, For, Func, If, Op, Operand, Return, Stmt, While
from pto_jit.ir.types import TensorType
from pto_jit.semantic.evaluation import Context, argument, evaluate, number
from pto_jit.slotted import frozen, mutable
from pto_jit.targets.cuda.devices import Device, FailureSlot
from pto_jit.targets.cuda.flatten import unsupported
from pto_jit.targets.cuda.kernels import Kernel
from pto_jit.targets.cuda.loops import touches_tiles
from pto_jit.targets.cuda.spreads import fit, grid


@frozen(eq=False)
class DeviceTensor:
    """A tensor on the device: strides in bytes; `owner` keeps the memory alive."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    owner: Any = None

    @property
    def span(self) -> tuple[int, int]:
        """The first byte, and one past the last."""
        if 0 in self.shape:
            return self.pointer, self.pointer
        low = sum(min(0, (n - 1) * s) for n, s in zip(self.shape, self.strides, strict=True))
        high = sum(max(0, (n - 1) * s) for n, s in zip(self.shape, self.strides, strict=True))
        return self.pointer + low, self.pointer + high + self.dtype.bytes


@mutable(eq=False)
class _Leave:
    values: tuple[Any, ...] = ()


_BREAK, _CONTINUE = _Leave(), _Leave()


class HostProgram:
    """A compiled module: the host function and its kernels."""

    def __init__(self, entry: Func, kernels: Sequence[Kernel]) -> None:
        self.entry = entry
        self.kernels = {k.name: k for k in kernels}
        self._failures: WeakKeyDictionary[Device, FailureSlot] = WeakKeyDictionary()

    def failures(self, device: Device) -> FailureSlot:
        """Where this program's kernels record failures on a device."""
        slot = self._failures.get(device)
        if slot is None:
            slot = self._failures[device] = device.failure_slot()
        return slot

    def run(self, arguments: Sequence[Any], device: Device, stream: int) -> tuple[Any, ...]:
        """Enqueue everything on a stream; `arguments`: `DeviceTensor`s and numbers.

        Returns the results: `DeviceTensor`s and Python numbers.
        """
        frame: dict[str, Any] = {}
        for param, value in zip(self.entry.params, arguments, strict=True):
            frame[param.name] = value if isinstance(value, DeviceTensor) else argument(value, param.type.dtype)
        leave = _Run(self, device, stream, frame).block(self.entry.body)
        values = leave.values if leave is not None else ()
        return tuple(v if isinstance(v, DeviceTensor) else number(v) for v in values)


class _Run:
    def __init__(self, program: HostProgram, device: Device, stream: int, frame: dict[str, Any]) -> None:
        self.program = program
        self.device = device
        self.stream = stream
        self.frame = frame

    def block(self, block: Block) -> _Leave | None:
        for stmt in block:
            leave = self.statement(stmt)
            if leave is not None:
                return leave
        return None

    def statement(self, stmt: Stmt) -> _Leave | None:
        match stmt:
            case Op():
                self.operation(stmt)
            case Call():
                self.launch(self.program.kernels[stmt.callee], [self.value(a) for a in stmt.args])
            case For():
                start, stop, step = (int(self.value(o)) for o in (stmt.start, stmt.stop, stmt.step))
                if step == 0:
                    raise LaunchError("the step of a loop is 0")
                for index in range(start, stop, step):
                    self.frame[stmt.var.name] = np.int64(index)
                    leave = self.block(stmt.body)
                    if leave is _BREAK:
                        break
                    if leave is not None and leave is not _CONTINUE:
                        return leave
            case While():
                while True:
                    leave = self.block(stmt.before)
                    if leave is not None:
                        return leave
                    if not bool(self.value(stmt.cond)):
                        return None
                    leave = self.block(stmt.body)
                    if leave is _BREAK:
                        return None
                    if leave is not None and leave is not _CONTINUE:
                        return leave
            case If():
                return self.block(stmt.then if bool(self.value(stmt.cond)) else stmt.orelse)
            case Return():
                return _Leave(tuple(self.value(v) for v in stmt.values))
            case Break():
                return _BREAK
            case Continue():
                return _CONTINUE
            case _:
                raise InternalError(f"{type(stmt).__name__} in the host code of a cuda program")
        return None

    def value(self, operand: Operand) -> Any:
        if isinstance(operand, Const):
            return argument(operand.value, operand.type.dtype)
        return self.frame[operand.name]

    def operation(self, op: Op) -> None:
        args = [self.value(a) for a in op.args]
        handler = _HANDLERS.get(op.op)
        if handler is not None:
            results: tuple[Any, ...] = handler(self, op, args)
        elif touches_tiles(op):
            raise InternalError(f"`{op.op}` of tiles in host code")
        else:
            results = evaluate(op, args, Context(False, lambda region, arrays: []))
        for var, result in zip(op.results, results, strict=True):
            self.frame[var.name] = result

    # -- tensors --------------------------------------------------------------------------------------------------

    def dim(self, op: Op, args: list[Any]) -> tuple[Any, ...]:
        return (np.int64(args[0].shape[op.attr("axis")]),)

    def view(self, op: Op, args: list[Any]) -> tuple[Any, ...]:
        x: DeviceTensor = args[0]
        rank = len(x.shape)
        offsets, extents = [int(a) for a in args[1 : 1 + rank]], [int(a) for a in args[1 + rank :]]
        for axis, offset in enumerate(offsets):
            if offset < 0:
                raise BoundsError(f"a negative offset: {offset} along axis {axis}{_place(op)}")
        shape = [max(0, min(e, n - o)) for o, e, n in zip(offsets, extents, x.shape, strict=True)]
        pointer = x.pointer + sum(o * s for o, s in zip(offsets, x.strides, strict=True))
        drop = op.attr("drop") or ()
        kept = [a for a in range(rank) if a not in drop]  # type: ignore[operator]
        return (
            DeviceTensor(pointer, tuple(shape[a] for a in kept), tuple(x.strides[a] for a in kept), x.dtype, x.owner),
        )

    def reshape(self, op: Op, args: list[Any]) -> tuple[Any, ...]:
        x: DeviceTensor = args[0]
        shape = tuple(int(a) for a in args[1:])
        if int(np.prod(shape)) != int(np.prod(x.shape)):
            raise LaunchError(f"a tensor of shape {x.shape} cannot get the shape {shape}{_place(op)}")
        return (DeviceTensor(x.pointer, shape, _packed(shape, x.dtype.bytes), x.dtype, x.owner),)

    def transpose(self, op: Op, args: list[Any]) -> tuple[Any, ...]:
        x: DeviceTensor = args[0]
        axes = op.attr("axes")
        assert isinstance(axes, tuple)
        return (DeviceTensor(x.pointer, tuple(x.shape[a] for a in axes), tuple(x.strides[a] for a in axes),  # type: ignore
                             x.dtype, x.owner),)  # fmt: skip

    def alloc(self, op: Op, args: list[Any]) -> tuple[Any, ...]:
        dtype = op.attr("dtype")
        assert isinstance(dtype, DType)
        filled = bool(op.attr("filled"))
        shape = tuple(int(a) for a in (args[:-1] if filled else args))
        if any(n < 0 for n in shape):
            raise LaunchError(f"a tensor of shape {shape}{_place(op)}")
        count = int(np.prod(shape, dtype=np.int64))
        memory = self.device.allocate(count * dtype.bytes, self.stream)
        if filled:
            self.device.write(memory.pointer, np.full(count, args[-1], dtype.numpy).tobytes(), self.stream)
        return (DeviceTensor(memory.pointer, shape, _packed(shape, dtype.bytes), dtype, memory),)

    def _address(self, op: Op, x: DeviceTensor, indices: Sequence[Any]) -> int:
        out = x.pointer
        for axis, (index, extent, stride) in enumerate(zip(indices, x.shape, x.strides, strict=True)):
            at = int(index)
            if at < 0 and isinstance(op.args[axis + (1 if op.op == "getelem" else 2)], Const):
                at += extent
            if not 0 <= at < extent:
                raise BoundsError(f"index {int(index)} is outside axis {axis} of extent {extent}{_place(op)}")
            out += at * stride
        return out

    def getelem(self, op: Op, args: list[Any]) -> tuple[Any, ...]:
        x: DeviceTensor = args[0]
        raw = self.device.read(self._address(op, x, args[1:]), x.dtype.bytes, self.stream)
        return (np.frombuffer(raw, x.dtype.numpy)[0],)

    def setelem(self, op: Op, args: list[Any]) -> tuple[Any, ...]:
        x: DeviceTensor = args[1]
        self.device.write(self._address(op, x, args[2:]), np.asarray(args[0], x.dtype.numpy).tobytes(), self.stream)
        return ()

    # -- launches -------------------------------------------------------------------------------------------------

    def launch(self, kernel: Kernel, args: list[Any]) -> None:
        frame = dict(zip((p.name for p in kernel.func.params), args, strict=True))
        for overlap in kernel.overlaps:
            _check_overlap(kernel, overlap.read, overlap.written, overlap.same, frame)
        trips, inner = self._first_iteration(kernel, frame)
        if trips and trips[0] == 0:  # loops inside may be empty in the first iteration of those around them alone
            return
        known = {macro: int(_evaluated(extent, inner, kernel)) for macro, extent in kernel.capacities}
        shapes = [tuple(int(_evaluated(e, inner, kernel)) for e in shape) for shape in kernel.shapes]
        spread, shared = fit(kernel, known, shapes, trips, self.device.shared_limit, self.device.warpgroups)
        version = self.device.prepare(kernel, spread, shared)
        values = [_as_argument(frame[p.name], p.type, kernel) for p in kernel.func.params]
        values.append(ctypes.c_void_p(self.program.failures(self.device).address))
        self.device.launch(version, grid(kernel, spread, trips), spread.block, shared, values, self.stream)

    def _first_iteration(self, kernel: Kernel, frame: dict[str, Any]) -> tuple[list[int], dict[str, Any]]:
        """How often each loop of the chain runs when those around it are at their start, and the scalars there.

        A grid made for these counts is right for others too, as the kernel's loops go on from where it ends.
        """
        inner = _Run(self.program, self.device, self.stream, dict(frame))
        trips: list[int] = []
        for stmt in kernel.first_iteration(inner.frame):
            if isinstance(stmt, Op):
                inner.operation(stmt)
                continue
            start, stop, step = (int(inner.value(o)) for o in (stmt.start, stmt.stop, stmt.step))
            if step == 0:
                raise LaunchError("the step of a loop is 0")
            trips.append(max(0, -((start - stop) // step)) if step > 0 else 0)
            inner.frame[stmt.var.name] = np.int64(start)
        return trips, inner.frame


_HANDLERS = {
    "dim": _Run.dim, "view": _Run.view, "tensor_reshape": _Run.reshape, "tensor_transpose": _Run.transpose,
    "alloc": _Run.alloc, "getelem": _Run.getelem, "setelem": _Run.setelem,
}  # fmt: skip


def _packed(shape: Sequence[int], size: int) -> tuple[int, ...]:
    out: list[int] = []
    for extent in reversed(shape):
        out.append(size)
        size *= extent
    return tuple(reversed(out))


def _evaluated(operand: Operand, frame: dict[str, Any], kernel: Kernel) -> Any:
    if isinstance(operand, Const):
        return operand.value
    if operand.name not in frame:
        raise unsupported(f"a tile whose extent `{operand.name}` is computed from tiles or elements", kernel.func.loc,
                          "give the tile a constant extent")  # fmt: skip
    return frame[operand.name]


def _check_overlap(kernel: Kernel, read: str, written: str, same: bool, frame: dict[str, Any]) -> None:
    a, b = frame.get(read), frame.get(written)
    if not isinstance(a, DeviceTensor) or not isinstance(b, DeviceTensor):
        return
    (low, high), (first, last) = a.span, b.span
    if low >= last or first >= high:
        return
    if same and (a.pointer, a.dtype, len(a.shape)) == (b.pointer, b.dtype, len(b.shape)) and all(
        n == 1 or s == t for n, s, t in zip(a.shape, a.strides, b.strides, strict=True)
    ):  # one may be a part of the other, as the valid part of a tile is: an element is where it is in both
        return
    raise LaunchError(
        f"PTO-X131: {kernel.name}: `{read}` and `{written}` share memory, and `{written}` is written\n"
        "help: pass tensors that do not overlap"
    )


def _as_argument(value: Any, kind: Any, kernel: Kernel) -> Any:
    """A kernel's argument as a C object."""
    if isinstance(kind, TensorType):
        size = kind.dtype.bytes
        if any(s % size for s in value.strides):
            raise ArgumentError(f"PTO-X132: {kernel.name}: a tensor whose strides are not whole elements\n"
                                "help: pass a copy of it")  # fmt: skip
        words = (value.pointer, *value.shape, *(s // size for s in value.strides))
        return (ctypes.c_int64 * len(words))(*words)
    name = kind.dtype.name
    if name in ("f16", "bf16"):
        return ctypes.c_float(float(value))
    return _SCALARS[name](value.item())


_SCALARS: dict[str, Any] = {
    "f32": ctypes.c_float, "f64": ctypes.c_double, "bool_": ctypes.c_bool,
    "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
    "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64,
}  # fmt: skip


def _place(op: Op) -> str:
    lines = excerpt(op.loc) if op.loc.lineno else []
    return "".join(f"\n{line}" for line in lines)


def raise_failure(program: HostProgram, device: Device) -> None:
    """Raise what a kernel recorded, if one did."""
    record = program.failures(device).take()
    if record is None:
        return
    name, site = _site(program, record.site)
    message = site.message.format(record.first, record.second)
    lines = [f"{name}: {message}", *(excerpt(site.loc) if site.loc.lineno else [])]
    raise getattr(errors, site.error)("\n".join(lines))


def _site(program: HostProgram, number: int) -> tuple[str, Any]:
    for kernel in program.kernels.values():
        if kernel.first_site < number <= kernel.first_site + len(kernel.sites):
            return kernel.name, kernel.sites[number - kernel.first_site - 1]
    raise InternalError(f"a cuda kernel recorded the unknown failure {number}")
