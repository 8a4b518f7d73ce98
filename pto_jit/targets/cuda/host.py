# SPDX-License-Identifier: MIT
"""The host side of a compiled program: its scalars are evaluated, its launches enqueued, in the program's order.

What it does is a function of Python's (`hostcode`), which calls the methods of `Run`; a tensor is a pointer with
extents and strides.  How a kernel is spread for a size is looked up once.  Nothing waits for the device, except an
element of a tensor that the host reads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from pto_jit import errors
from pto_jit.dtypes import DType
from pto_jit.errors import ArgumentError, BoundsError, InternalError, LaunchError, excerpt
from pto_jit.ir.nodes import Call, Const, Func, Module, Op, Var
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.ir.walk import statements
from pto_jit.semantic.evaluation import argument, number
from pto_jit.semantic.failures import INDEX, filled
from pto_jit.slotted import frozen
from pto_jit.targets.cpu.writing import written_tensors
from pto_jit.targets.cuda.devices import Device, FailureSlot
from pto_jit.targets.cuda.hostcode import first_iteration, host_function, plain
from pto_jit.targets.cuda.kernels import Kernel
from pto_jit.targets.cuda.overlaps import Overlap
from pto_jit.targets.cuda.passed import PassedNumbers
from pto_jit.targets.cuda.regions import apart_in
from pto_jit.targets.cuda.spreads import BY_TRIPS, Spread, covering, covers, does_not_fit, fit, grid
from pto_jit.targets.cuda.tensors import DeviceTensor, Elements, overlap, packed, run_of


@frozen(eq=False)
class Site:
    """A call of a kernel, or of that which does the same in passes.

    overlaps: pairs of its arguments that must not share memory, as `Overlap`s; size: see `hostcode.first_iteration`;
    call: of the program; written: the arguments that it writes; run: columns that a thread takes at a time, where fewer
    may be better for the tensors of a launch, else 1; passed: names of the arguments, by their places, that depend on
    `PassedNumbers`.
    """

    kernel: str
    overlaps: tuple[tuple[int, int, Overlap], ...]
    size: Callable[..., tuple[Any, Any, Any, Any]]
    run: int
    passed: tuple[tuple[int, str], ...]
    call: Call
    written: tuple[int, ...]


@frozen(eq=False)
class Version:
    """A kernel as it was compiled for a launch."""

    kernel: Kernel
    spread: Spread
    shared: int
    compiled: Any


_MOST_VERSIONS = 4096  # launches of different sizes that are remembered
_MOST_AHEAD = 256  # launches of a program that are looked at before it runs


class HostProgram:
    """A compiled module: the host function and its kernels."""

    def __init__(self, entry: Func, kernels: Sequence[Kernel]) -> None:
        self.entry = entry
        self.kernels = {k.name: k for k in kernels}
        self._in_passes: dict[str, Kernel | None] = {}
        self._sites: dict[int, Site] = {}
        self._failures: WeakKeyDictionary[Device, FailureSlot] = WeakKeyDictionary()
        self._versions: WeakKeyDictionary[Device, dict[tuple[Any, ...], Version | LaunchError]] = WeakKeyDictionary()
        self._apart = apart_in(entry)
        self._function: Callable[..., tuple[Any, ...]] | None = None
        self.speaks = any(isinstance(s, Op) and s.op == "print" for s in statements(entry.body))

    @cached_property
    def passed(self) -> PassedNumbers:
        """The numbers that only kernels see."""
        return PassedNumbers(self.entry, self.kernels)

    def in_passes(self, kernel: Kernel) -> Kernel | None:
        """The kernel that does the same in passes (`Kernel.in_passes`), which is written when it is first asked for."""
        if kernel.name not in self._in_passes and kernel.in_passes is not None:
            first = max(k.first_site + len(k.sites) for k in self.written())
            self._in_passes[kernel.name] = kernel.in_passes(first)
        return self._in_passes.get(kernel.name)

    def written(self) -> list[Kernel]:
        """The kernels of the program, and those in passes that have been asked for."""
        return [*self.kernels.values(), *filter(None, self._in_passes.values())]

    def all_kernels(self) -> list[Kernel]:
        """The kernels of the program, and all those in passes."""
        for kernel in self.kernels.values():
            self.in_passes(kernel)
        return self.written()

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
        if device not in self._versions:
            self._versions[device] = {}
            if len(self.kernels) > 1 and not self.speaks:
                with suppress(Exception):  # whatever it is, the run meets it, too
                    self.follow(_LookAhead(self, device, stream), arguments)
        return self.follow(Run(self, device, stream), arguments)

    def follow(self, run: Run, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Let something do what the program says; arguments and results as those of `run`."""
        if self._function is None:
            self._function = host_function(self.entry, self._site)
        values = self._function(run, *self.given(arguments))
        return tuple(number(v) if isinstance(v, np.generic) else v for v in values)

    def given(self, arguments: Sequence[Any]) -> list[Any]:
        """Arguments as the host code has them."""
        return [plain(argument(value, p.type.dtype), p.type) if isinstance(p.type, ScalarType) else value
                for p, value in zip(self.entry.params, arguments, strict=True)]  # fmt: skip

    def kernel_of(self, site: Site) -> Kernel:
        found = self.kernels.get(site.kernel) or self._in_passes[site.call.callee]
        assert found is not None
        return found

    def site_in_passes(self, site: Site) -> Site | None:
        """The same call of the kernel in passes; None where there is none."""
        kernel = self.kernels.get(site.kernel)
        other = None if kernel is None else self.in_passes(kernel)
        if other is not None and id(site) not in self._sites:
            self._sites[id(site)] = self._site(site.call, other)
        return self._sites.get(id(site))

    def _site(self, call: Call, kernel: Kernel | None = None) -> Site:
        kernel = kernel or self.kernels[call.callee]
        places = {p.name: k for k, p in enumerate(kernel.func.params)}
        pairs = [(places[o.read], places[o.written], o) for o in kernel.overlaps]
        overlaps = tuple(pair for pair in pairs if not self._apart(call.args[pair[0]], call.args[pair[1]]))
        run = kernel.run if kernel.kind == "rows" and not kernel.in_order else 1
        passed = tuple((k, a.name) for k, a in enumerate(call.args) if isinstance(a, Var) and self.passed.varies(a))
        written = tuple(written_tensors(Module(kernel.name, (kernel.func,), kernel.func.name)))
        return Site(kernel.name, overlaps, first_iteration(kernel), run, passed, call, written)

    def version(
        self, kernel: Kernel, size: tuple[Any, Any, Any, Any], run: int, device: Device
    ) -> Version | LaunchError:
        """The version of a kernel for a launch of a size, as `Site.size` tells it, whose tensors allow such runs; the
        error that it does not fit a block."""
        trips, extents, shapes, elements = size
        known = self._versions[device]
        by_trips = trips if kernel.kind in BY_TRIPS else ()
        key = (kernel.name, device.warpgroups, covers(kernel, trips), run, extents, shapes, by_trips, elements)
        found = known.get(key)
        if found is None or (isinstance(found, Version) and found.kernel is not kernel):
            if len(known) >= _MOST_VERSIONS:
                known.clear()
            try:
                spread, shared = spread_of(kernel, size, run, device)
                found = Version(kernel, spread, shared, device.prepare(kernel, spread, shared))
            except LaunchError as error:
                if not does_not_fit(error):
                    raise
                found = error
            known[key] = found
        return found


def spread_of(kernel: Kernel, size: tuple[Any, Any, Any, Any], run: int, device: Device) -> tuple[Spread, int]:
    """How a version of a kernel is spread, and the bytes of shared memory that it takes beside its own."""
    trips, extents, shapes, elements = size
    capacities = {macro: n for (macro, _), n in zip(kernel.capacities, extents, strict=True)}
    spread, shared = fit(kernel, capacities, shapes, trips, device.shared_limit, device.warpgroups, run,
                         elements)  # fmt: skip
    return covering(spread) if covers(kernel, trips, spread) else spread, shared


class Run:
    """What the code of `hostcode` calls: tensors of a device, and launches."""

    def __init__(self, program: HostProgram, device: Device, stream: int) -> None:
        self.program = program
        self.device = device
        self.stream = stream
        self.elements = Elements(device, stream)

    # -- tensors --------------------------------------------------------------------------------------------------

    def dim(self, op: Op, args: Sequence[Any]) -> tuple[Any, ...]:
        return (args[0].shape[op.attr("axis")],)

    def offsets(self, op: Op, args: Sequence[int]) -> Sequence[int]:
        """The offsets of a view, of which none is negative."""
        for axis, offset in enumerate(args):
            if offset < 0:
                raise BoundsError(f"a negative offset: {offset} along axis {axis}{_place(op)}")
        return args

    def view(self, op: Op, args: Sequence[Any]) -> tuple[Any, ...]:
        x: DeviceTensor = args[0]
        rank = len(x.shape)
        offsets, extents = self.offsets(op, args[1 : 1 + rank]), args[1 + rank :]
        shape = [max(0, min(e, n - o)) for o, e, n in zip(offsets, extents, x.shape, strict=True)]
        for axis in op.attr("drop") or ():  # type: ignore[union-attr]
            if not shape[axis]:
                said = filled(INDEX.text(axis=axis).partition("; ")[0], offsets[axis], x.shape[axis])
                raise INDEX.error(f"{said}{_place(op)}")
        pointer = x.pointer + sum(o * s for o, s in zip(offsets, x.strides, strict=True))
        drop = op.attr("drop") or ()
        kept = [a for a in range(rank) if a not in drop]  # type: ignore[operator]
        return (
            DeviceTensor(pointer, tuple(shape[a] for a in kept), tuple(x.strides[a] for a in kept), x.dtype, x.owner),
        )

    def tensor_reshape(self, op: Op, args: Sequence[Any]) -> tuple[Any, ...]:
        x: DeviceTensor = args[0]
        shape = tuple(args[1:])
        if int(np.prod(shape)) != int(np.prod(x.shape)):
            raise LaunchError(f"a tensor of shape {x.shape} cannot get the shape {shape}{_place(op)}")
        return (DeviceTensor(x.pointer, shape, packed(shape, x.dtype.bytes), x.dtype, x.owner),)

    def tensor_transpose(self, op: Op, args: Sequence[Any]) -> tuple[Any, ...]:
        x: DeviceTensor = args[0]
        axes = op.attr("axes")
        assert isinstance(axes, tuple)
        return (DeviceTensor(x.pointer, tuple(x.shape[a] for a in axes), tuple(x.strides[a] for a in axes),  # type: ignore
                             x.dtype, x.owner),)  # fmt: skip

    def tensor_step(self, op: Op, args: Sequence[Any]) -> tuple[Any, ...]:
        x: DeviceTensor = args[0]
        steps: Any = op.attr("steps")
        shape = tuple(-(-n // s) for n, s in zip(x.shape, steps, strict=True))
        strides = tuple(n * s for n, s in zip(x.strides, steps, strict=True))
        return (DeviceTensor(x.pointer, shape, strides, x.dtype, x.owner),)

    def alloc(self, op: Op, args: Sequence[Any]) -> tuple[Any, ...]:
        dtype = op.attr("dtype")
        assert isinstance(dtype, DType)
        filled = bool(op.attr("filled"))
        shape = tuple(args[:-1] if filled else args)
        if any(n < 0 for n in shape):
            raise LaunchError(f"a tensor of shape {shape}{_place(op)}")
        count = int(np.prod(shape, dtype=np.int64))
        memory = self.allocated(count * dtype.bytes)
        if filled:
            self.fill(memory.pointer, np.asarray(args[-1], dtype.numpy).tobytes(), count)
        return (DeviceTensor(memory.pointer, shape, packed(shape, dtype.bytes), dtype, memory),)

    def _address(self, op: Op, x: DeviceTensor, indices: Sequence[Any]) -> int:
        out = x.pointer
        for axis, (index, extent, stride) in enumerate(zip(indices, x.shape, x.strides, strict=True)):
            at = index
            if at < 0 and isinstance(op.args[axis + (1 if op.op == "getelem" else 2)], Const):
                at += extent
            if not 0 <= at < extent:
                raise BoundsError(f"index {index} is outside axis {axis} of extent {extent}{_place(op)}")
            out += at * stride
        return out

    def getelem(self, op: Op, args: Sequence[Any]) -> tuple[Any, ...]:
        x: DeviceTensor = args[0]
        raw = self.elements.read(x, self._address(op, x, args[1:]))
        return (plain(np.frombuffer(raw, x.dtype.numpy)[0], op.results[0].type),)

    def setelem(self, op: Op, args: Sequence[Any]) -> tuple[Any, ...]:
        x: DeviceTensor = args[1]
        self.elements.written([x])
        self.fill(self._address(op, x, args[2:]), np.asarray(args[0], x.dtype.numpy).tobytes(), 1)
        return ()

    def allocated(self, size: int) -> Any:
        """Memory for so many bytes."""
        return self.device.allocate(size, self.stream)

    def fill(self, pointer: int, element: bytes, count: int) -> None:
        """Write the bytes of an element so many times."""
        self.device.fill(pointer, element, count, self.stream)

    # -- launches -------------------------------------------------------------------------------------------------

    def launch(self, site: Site, args: Sequence[Any]) -> None:
        kernel = self.program.kernel_of(site)
        if site.overlaps:
            args = self.apart(kernel, site, args)
        size = site.size(_Shapes(self.program, self.device, self.stream), *args)
        trips = size[0]
        if trips and trips[0] == 0:  # loops inside may be empty in the first iteration of those around them alone
            return
        version = self.program.version(kernel, size, self.run_of(site, args), self.device)
        if isinstance(version, LaunchError):
            passes = self.program.site_in_passes(site)
            if passes is None:
                raise version
            self.launch(passes, args)
            return
        self.elements.written(args[k] for k in site.written)
        self.enqueue(site, version, trips, args)

    def enqueue(self, site: Site, version: Version, trips: Any, args: Sequence[Any]) -> None:
        """Launch a version of a kernel whose loops run so often."""
        blocks = grid(version.kernel, version.spread, trips)
        self.device.launch(version.compiled, blocks, version.spread.block, version.shared,
                           self.values(version.kernel, args), self.stream)  # fmt: skip

    def values(self, kernel: Kernel, args: Sequence[Any]) -> list[Any]:
        """The arguments of a launch as C objects: the kernel's, and where it records a failure."""
        values = [_as_argument(value, p.type, kernel) for value, p in zip(args, kernel.func.params, strict=True)]
        values.append(ctypes.c_void_p(self.program.failures(self.device).address))
        return values

    def run_of(self, site: Site, args: Sequence[Any]) -> int:
        """How many columns at a time a thread takes in a launch."""
        return run_of(site.run, args) if site.run > 1 else self.program.kernel_of(site).run

    def apart(self, kernel: Kernel, site: Site, args: Sequence[Any]) -> Sequence[Any]:
        """The arguments of a launch, with copies of what it reads where others write: as if all were read before."""
        clash = [(read, written, how) for read, written, how in site.overlaps
                 if overlap(args[read], args[written], how.same)]  # fmt: skip
        if not clash:
            return args
        for read, written, how in clash:
            if not how.early:
                first, second = (kernel.func.params[k].name for k in (read, written))
                raise LaunchError(
                    f"PTO-X131: {kernel.name}: `{first}` and `{second}` share memory, and `{second}` is written\n"
                    "help: pass tensors that do not overlap"
                )
        out = list(args)
        for read in dict.fromkeys(read for read, _, _ in clash):
            out[read] = self._copied(args[read])
        return out

    def _copied(self, x: DeviceTensor) -> DeviceTensor:
        """A copy of the bytes of a tensor, at an address with the same remainder of 16, which accesses depend on."""
        low, high = x.span
        memory = self.device.allocate(high - low + 16, self.stream)
        start = memory.pointer + (low - memory.pointer) % 16
        self.device.copy(start, low, high - low, self.stream)
        return DeviceTensor(start + x.pointer - low, x.shape, x.strides, x.dtype, memory)


class _LookAhead(Run):
    """Begins to compile what the program will launch, until it asks for something that only the device knows."""

    def __init__(self, program: HostProgram, device: Device, stream: int) -> None:
        super().__init__(program, device, stream)
        self.left = _MOST_AHEAD

    def alloc(self, op: Op, args: Sequence[Any]) -> tuple[Any, ...]:
        dtype = op.attr("dtype")
        assert isinstance(dtype, DType)
        shape = tuple(args[:-1] if op.attr("filled") else args)
        return (DeviceTensor(0, shape, packed(shape, dtype.bytes), dtype),)  # aligned as all memory of devices is

    def getelem(self, op: Op, args: Sequence[Any]) -> tuple[Any, ...]:
        raise _UnknownError

    def setelem(self, op: Op, args: Sequence[Any]) -> tuple[Any, ...]:
        return ()

    def launch(self, site: Site, args: Sequence[Any]) -> None:
        kernel = self.program.kernel_of(site)
        size = site.size(_Shapes(self.program, self.device, self.stream), *args)
        trips = size[0]
        if trips and trips[0] == 0:
            return
        spread, _ = spread_of(kernel, size, self.run_of(site, args), self.device)
        self.device.begin(kernel, spread)
        self.left -= 1
        if not self.left:
            raise _UnknownError


class _UnknownError(Exception):
    """Only the device knows."""


class _Shapes(Run):
    """Views for their extents alone, in the first iteration of loops that may have none."""

    def offsets(self, op: Op, args: Sequence[int]) -> list[int]:
        return [max(0, offset) for offset in args]


def _as_argument(value: Any, kind: Any, kernel: Kernel) -> Any:
    """A kernel's argument as a C object."""
    if isinstance(kind, TensorType):
        if value.words is None:
            value.words = _words(value, kernel)
        return value.words
    return _SCALARS[kind.dtype.name](for_c(value))


def for_c(value: Any) -> int | float | bool:
    """A scalar of the host code as objects of `ctypes` take it."""
    return value if isinstance(value, (int, bool)) else float(value) if value.dtype.kind not in "biu" else value.item()


def _words(value: DeviceTensor, kernel: Kernel) -> Any:
    """`pto::Tensor`, which launches only read."""
    size = value.dtype.bytes
    if any(s % size for s in value.strides):
        raise ArgumentError(f"PTO-X132: {kernel.name}: a tensor whose strides are not whole elements\n"
                            "help: pass a copy of it")  # fmt: skip
    words = (value.pointer, *value.shape, *(s // size for s in value.strides))
    return (ctypes.c_int64 * len(words))(*words)


_SCALARS: dict[str, Any] = {
    **dict.fromkeys(("f16", "bf16", "f32"), ctypes.c_float), "f64": ctypes.c_double, "bool_": ctypes.c_bool,
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
    message = filled(site.message, record.first, record.second)
    lines = [f"{name}: {message}", *(excerpt(site.loc) if site.loc.lineno else [])]
    raise getattr(errors, site.error)("\n".join(lines))


def _site(program: HostProgram, number: int) -> tuple[str, Any]:
    for kernel in program.written():
        if kernel.first_site < number <= kernel.first_site + len(kernel.sites):
            return kernel.name, kernel.sites[number - kernel.first_site - 1]
    raise InternalError(f"a cuda kernel recorded the unknown failure {number}")
