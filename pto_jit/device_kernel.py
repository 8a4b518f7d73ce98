# SPDX-License-Identifier: MIT
"""A specialisation that runs on a device: what `kernel.Kernel` is for the CPU."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pto_jit import dtypes
from pto_jit.arguments import Parameters
from pto_jit.cache import disk_cache
from pto_jit.codegen.params import Param, TensorParam, leaves
from pto_jit.compiled import WrittenCompiled, device_files
from pto_jit.compiler import Stages, with_kernels
from pto_jit.config import config
from pto_jit.errors import ArgumentError, TargetError
from pto_jit.kernel import Kernel, Specialization
from pto_jit.options import Options
from pto_jit.reading import Arguments
from pto_jit.repeated import Repeated
from pto_jit.results import arranging, is_arranged, result_plan
from pto_jit.slotted import mutable
from pto_jit.targets.cuda import program as cuda
from pto_jit.targets.cuda.devices import Device, EmulatedDevice
from pto_jit.targets.cuda.host import raise_failure
from pto_jit.targets.cuda.replay import Recorded, record
from pto_jit.targets.cuda.spreads import LARGEST, SMALLEST
from pto_jit.targets.cuda.tensors import DeviceTensor

_LEGACY = 1
"""What the CUDA array interface calls the default stream, whose handle is 0."""


@mutable(eq=False)
class DeviceBuilt:
    """A compiled program with the stages it went through."""

    program: cuda.CudaProgram
    results: Any
    stages: Stages
    seconds: float
    origin: str = "compiled"


@mutable(eq=False)
class DeviceKernel:
    """A specialisation as kernels of a device and the host code that launches them.

    info, params, key, options: as in `Kernel`.
    """

    info: Specialization
    built: DeviceBuilt
    function: Callable[..., Any]
    params: list[Param]
    key: tuple[Any, ...]
    options: Options

    @property
    def name(self) -> str:
        return self.function.__name__

    mismatch = Kernel.mismatch
    check_writable = Kernel.check_writable

    def launch(self, call: Arguments, values: tuple[Any, ...]) -> Any:
        """Enqueue the program on the current stream and return; a failure is raised by a later call."""
        del values
        from pto_jit.targets.cuda import driver  # needs a GPU's driver, which a machine that only compiles lacks

        driver.need_driver()
        self._need_device(call)
        device = driver.device_of(view.pointer for _, view in call.tensors if 0 not in view.shape)
        with device.active():
            raise_failure(self.built.program.host, device)
            with on_stream_of([view for _, view in call.tensors], device) as stream:
                return self._run(device, call, stream)

    @property
    def passed(self) -> frozenset[int]:
        """Which of the arguments that are tensors or numbers are numbers that only kernels see."""
        return self.built.program.host.passed.places

    def recorded(self, call: Arguments) -> Recorded | None:
        """What a call that was launched enqueues; None where that depends on more than `Repeated` compares."""
        from pto_jit.targets.cuda import driver

        device = driver.device_of(view.pointer for _, view in call.tensors if 0 not in view.shape)
        return record(self.built.program.host, device, _arguments(call))

    def launch_again(self, recorded: Recorded, arguments: Sequence[Any], views: Sequence[Any]) -> Any:
        """The same for a call that was recorded with arguments like these, tensors and numbers; NotImplemented, and
        nothing was enqueued, for what needs a closer look.  views: of the tensors."""
        from pto_jit.targets.cuda import driver

        device: Any = recorded.device  # a `CudaDevice`
        where = device if device.alone else driver.device_of(v.pointer for v in views if 0 not in v.shape)
        if not (device is where is driver.device(device.ordinal) and device.is_active):
            return NotImplemented
        if device.warpgroups != recorded.warpgroups:  # a setting, which may change
            return NotImplemented
        raise_failure(self.built.program.host, device)
        with on_stream_of(views, device) as stream:
            results = recorded.run(arguments, [v.pointer for v in views], [v.owner for v in views], stream)
            if results is None:
                return NotImplemented
            torch = bool(views) and views[0].is_torch
            return self._arranged(tuple(_returned(r, device, torch, stream) for r in results))

    def bind(self, call: Arguments, values: tuple[Any, ...]) -> Callable[[], Any]:
        """A prepared launch, which keeps the arguments alive, and is recorded when it is made for the first time."""
        views, arguments = [view for _, view in call.tensors], _arguments(call)
        recorded: list[Recorded | None] = []

        def again() -> Any:
            if recorded and recorded[0] is not None:
                result = self.launch_again(recorded[0], arguments, views)
                if result is not NotImplemented:
                    return result
            result = self.launch(call, values)
            if not recorded:
                recorded.append(self.recorded(call))
            return result

        return again

    def run_on(self, device: Device, call: Arguments) -> Any:
        """Run on a device that shares the memory of the CPU; raises what a kernel recorded."""
        result = self._run(device, call, 0)
        raise_failure(self.built.program.host, device)
        return result

    def run_copies(self, call: Arguments) -> Any:
        """Run on the GPU, with copies of arguments that are in the memory of the CPU; waits, and copies them back."""
        from pto_jit.targets.cuda import driver
        from pto_jit.targets.cuda.copies import Copies

        device = driver.device_of(())
        with device.active():
            copies = Copies(device, _arguments(call))
            host = self.built.program.host
            results = host.run(copies.given, device, 0)
            back = tuple(copies.array(r) if isinstance(r, DeviceTensor) else r for r in results)
            copies.back()
            raise_failure(host, device)
        return self._arranged(back)

    def _need_device(self, call: Arguments) -> None:
        for name, view in call.tensors:
            if view.device != "cuda":
                raise ArgumentError(
                    f"PTO-X133: {self.name}: argument `{name}` is in the memory of the CPU, the kernel runs on a GPU\n"
                    f"help: pass a CUDA tensor, such as `{name}.cuda()` with torch or `cupy.asarray({name})`"
                )

    def _run(self, device: Device, call: Arguments, stream: int) -> Any:
        results = self.built.program.host.run(_arguments(call), device, stream)
        return self._arranged(tuple(_returned(r, device, call.torch, stream) for r in results))

    def _arranged(self, items: tuple[Any, ...]) -> Any:
        structure = self.built.results
        if structure is None:
            return None
        if is_arranged(structure):
            return arranging(structure)(items)
        plan = result_plan(structure, tuple(("value", item) for item in items))
        return _planned(plan)


class DeviceCompiled(WrittenCompiled):
    """`Compiled` for a device: the last stage is the host code and one in-core function per kernel."""

    _device = True

    def __init__(self, parameters: Parameters, kernel: Any) -> None:
        super().__init__(parameters, kernel)
        self._repeated = Repeated(parameters.static)

    def _slow_call(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        __tracebackhide__ = True
        names, given = self._parameters.bind(args, kwargs)
        return self._repeated.call(names, given, None, lambda: (self._kernel, self._matching(args, kwargs or {})[0]))

    def _files(self, name: str | None) -> dict[str, str]:
        """The kernels, the headers they include, the program in `.pto` form, and a README with the command that
        compiles them: name -> text."""
        return device_files(self._kernel.built.program, name)

    def library(
        self, directory: str | Path, kind: Literal["static", "shared"] = "static", *, name: str | None = None
    ) -> list[Path]:
        """Not for devices."""
        raise TargetError(
            f"programs for {self._kernel.options.target} are written as sources, not as libraries",
            code="PTO-X203",
            hint="`compiled.write(directory)`, whose README says how to build them, or a library of target c or cpu",
        )


def make(function: Callable[..., Any], call: Arguments, options: Options, signature: str, reason: str) -> DeviceKernel:
    """Compile for a device: sources now, machine code when a launch knows the sizes of its tiles."""
    start = time.perf_counter()
    stages, program = _written(function, call.params, options)
    built = DeviceBuilt(program, stages.results, stages, time.perf_counter() - start)
    info = Specialization(signature, "compiled", reason, built.seconds)
    return DeviceKernel(info, built, function, call.params, call.key, options)


def _written(function: Callable[..., Any], params: list[Param], options: Options) -> tuple[Stages, cuda.CudaProgram]:
    """The kernels of a program: those of planes for any device, else its nests run in order."""

    def write(stages: Stages, tried: bool) -> cuda.CudaProgram:
        start = time.perf_counter()
        store = disk_cache() if options.cache else None
        program = cuda.compile_module(stages.last, fastmath=options.fastmath, debug=options.debug or config.debug,
                                      store=store, shared_limit=SMALLEST if tried else LARGEST,
                                      decisions=stages.decisions)  # fmt: skip
        stages.modules["kernels"] = program.module
        stages.timings["kernels"] = time.perf_counter() - start
        return program

    return with_kernels(function, params, options, write)


def emulate(compiled: Any, *args: Any, order: int = 0, **kwargs: Any) -> Any:
    """Run a program compiled with target="cuda" on the CPU: for checking, and slow.

    args: as for `compiled(...)`, with arrays in the CPU's memory.  order: how the threads of a block take turns (0
    forwards, 1 backwards, other numbers seed a shuffle); results that depend on it show a missing barrier.  Needs g++.
    """
    call, _ = compiled._matching(args, kwargs)
    return compiled._kernel.run_on(EmulatedDevice(order), call)


def on_gpu(compiled: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a program compiled with target="cuda" on the first GPU, with arrays in the CPU's memory: for checking.

    args: as for `emulate`.  Copies them to the GPU and back, and raises what a kernel recorded.
    """
    call, _ = compiled._matching(args, kwargs)
    return compiled._kernel.run_copies(call)


def _arguments(call: Arguments) -> list[Any]:
    """The run-time leaves of a call: tensors and numbers, in order."""
    out: list[Any] = []
    at = 0
    views: Sequence[Any] = [view for _, view in call.tensors]
    tensors = iter(views)
    for param in call.params:
        for leaf in leaves(param.what):
            if isinstance(leaf, TensorParam):
                view = next(tensors)
                out.append(DeviceTensor(view.pointer, view.shape, view.strides, dtypes.BY_ID[view.dtype], view.owner))
                at += 1 + 2 * len(view.shape)
            else:
                out.append(call.slots[at])
                at += 1
    return out


def _planned(plan: Any) -> Any:
    if isinstance(plan, tuple) and len(plan) == 2 and plan[0] == "value":
        return plan[1]
    return tuple(_planned(p) for p in plan)


@contextmanager
def on_stream_of(views: Sequence[Any], device: Any) -> Iterator[int]:
    """The stream for a launch with tensors: the first on which they are made.  It waits for the others, and they for
    what is enqueued inside."""
    stream, *others = _streams(views, device.ordinal)
    if others:
        device.wait_for(others, stream)
    yield stream
    for other in others:
        device.wait_for((stream,), other)


def _streams(views: Sequence[Any], ordinal: int) -> list[int]:
    """The streams on which tensors are made, each once: the current one of their library, or the one that their
    interface names; cupy's, or the default one, where no tensor has any."""
    found: dict[int, None] = {}
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    for kind in dict.fromkeys(map(_library_of, views)):
        if kind == "torch" and torch is not None:
            found[int(torch.cuda.current_stream(ordinal).cuda_stream)] = None
        elif kind == "cupy" and cupy is not None:
            found[int(cupy.cuda.get_current_stream(ordinal).ptr)] = None
        elif isinstance(kind, int):
            found[0 if kind == _LEGACY else kind] = None
    return list(found) or [int(cupy.cuda.get_current_stream(ordinal).ptr) if cupy is not None else 0]


def _library_of(view: Any) -> str | int | None:
    """"torch" or "cupy", or the stream that a tensor of another library is made on, if it says."""
    if view.is_torch:
        return "torch"
    if isinstance(view.owner, tuple):  # by DLPack, which makes them for the default stream unless asked otherwise
        return _LEGACY
    if type(view.owner).__module__.partition(".")[0] == "cupy":
        return "cupy"
    return getattr(view.owner, "__cuda_array_interface__", {}).get("stream")


class _Interface:
    """Memory of the device for libraries that read `__cuda_array_interface__`.

    stream: on which it is made; None where the reader enqueues on it anyway, and needs to wait for nothing.
    kept: what has to last as long as the memory.
    """

    def __init__(self, tensor: DeviceTensor, stream: int | None, kept: Any = None) -> None:
        self.owner = tensor.owner
        self.kept = kept
        typestr = tensor.dtype.numpy.str if tensor.dtype.name != "bf16" else "<i2"
        self.__cuda_array_interface__ = {
            "shape": tensor.shape, "typestr": typestr, "data": (tensor.pointer, False), "version": 3,
            "strides": tensor.strides, "stream": None if stream is None else stream or _LEGACY,
        }  # fmt: skip


def _returned(value: Any, device: Device, torch_wanted: bool, stream: int) -> Any:
    """A result as the caller gets it: a number, or an array over the same memory."""
    if not isinstance(value, DeviceTensor):
        return value
    if isinstance(device, EmulatedDevice):
        count = int(np.prod(value.shape))
        raw = np.frombuffer(device.read(value.pointer, count * value.dtype.bytes, 0), value.dtype.numpy)
        return raw.reshape(value.shape).copy()
    if torch_wanted:
        torch = sys.modules["torch"]
        place = f"cuda:{device.ordinal}"  # torch copies what is elsewhere than it is asked for
        tensor = torch.as_tensor(_Interface(value, stream), device=place)
        return tensor.view(torch.bfloat16) if value.dtype.name == "bf16" else tensor
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return _Interface(value, stream)
    # cupy ends a stream that nobody has, and memory is freed on its stream
    current = cupy.cuda.get_current_stream(device.ordinal)
    return cupy.asarray(_Interface(value, None if current.ptr == stream else stream, current))
