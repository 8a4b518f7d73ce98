# SPDX-License-Identifier: MIT
"""Launches on an NVIDIA GPU through the driver API, in this process: `libcuda.so.1` by ctypes, code by nvcc or NVRTC.

The context is the primary one of the device that the tensors are on, which torch and cupy use too.  Memory of
temporaries comes from the driver's stream-ordered allocator.  Failures are recorded in pinned host memory that kernels
can write, so looking at them needs no synchronisation.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from pto_jit.config import config
from pto_jit.errors import ArgumentError, LaunchError, TargetError
from pto_jit.targets import toolchain
from pto_jit.targets.cuda import nvrtc
from pto_jit.targets.cuda.devices import FailureRecord, FailureSlot, headers
from pto_jit.targets.cuda.kernels import Kernel
from pto_jit.targets.cuda.spreads import Spread, check_shared

_STATIC_SHARED, _DYNAMIC_SHARED = 1, 8  # CU_FUNC_ATTRIBUTE_[SHARED|MAX_DYNAMIC_SHARED]_SIZE_BYTES
_SHARED_LIMIT, _MAJOR, _MINOR = 97, 75, 76  # CU_DEVICE_ATTRIBUTE_...
_MAPPED = 2  # CU_MEMHOSTALLOC_DEVICEMAP
_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_PAGE = 128  # records of failures in a piece of pinned memory
_PLAIN_SHARED = 48 * 1024
LOWEST = 80
"""The oldest compute capability that the sources are written for: asynchronous copies, bf16."""


def compile_kernel(kernel: Kernel, spread: Spread, arch: str) -> bytes:
    """The machine code of a version of a kernel for an architecture, such as "sm_90": by nvcc, or else by NVRTC.

    What was compiled before is in the kernel's store, if it has one.  Raises ToolchainError
    when there is no compiler, or when it fails.
    """
    flags = ["-std=c++17", f"--gpu-architecture={arch}", *(f"-D{name}={value}" for name, value in spread.defines),
             f"--fmad={'true' if kernel.fastmath else 'false'}"]  # fmt: skip
    files = headers()
    if toolchain.find("nvcc") is None and nvrtc.library() is not None:
        compiler = nvrtc.identity()

        def build() -> bytes:
            return nvrtc.compile_cubin(kernel.source, files, flags)
    else:
        program = toolchain.need("the cuda target (where NVRTC is missing, too)", "nvcc")
        compiler = toolchain.identity(program)

        def build() -> bytes:
            command = [program, "-cubin", *flags, "-o", "kernel.cubin", "kernel.cu"]
            return toolchain.build(command, {**files, "kernel.cu": kernel.source}, "kernel.cubin")

    if kernel.store is None:
        return build()
    key = hashlib.sha256(repr((compiler, flags, sorted(files.items()), kernel.source)).encode()).hexdigest()
    found = kernel.store.load(key)
    if found is not None:
        return found[1]
    code = build()
    kernel.store.store(key, {"cuda": kernel.name}, code)
    return code


@cache
def _library() -> Any:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise TargetError("there is no CUDA driver (libcuda.so.1) on this machine", code="PTO-X145",
                          hint="look at `compiled.sources`, or emulate: see docs/cuda.md") from None  # fmt: skip
    status = library.cuInit(0)
    if status == _NO_DEVICE:
        raise _without_device()
    _check(library, status, "cuInit")
    return library


def _check(library: Any, status: int, what: str) -> None:
    if status == 0:
        return
    text, name = ctypes.c_char_p(), ctypes.c_char_p()
    library.cuGetErrorString(status, ctypes.byref(text))
    library.cuGetErrorName(status, ctypes.byref(name))
    said = f"{text.value.decode()} ({(name.value or b'').decode()})" if text.value else f"error {status}"
    raise LaunchError(f"PTO-X146: {what} failed: {said}\nhelp: an earlier kernel on this device may have failed")


def _without_device() -> TargetError:
    return TargetError("this machine has no CUDA device", code="PTO-X142", hint="run where `nvidia-smi` shows one")


def need_driver() -> None:
    """Raise TargetError where there is no driver, or no device."""
    _library()


@cache
def device(ordinal: int) -> CudaDevice:
    """A CUDA device by its number; TargetError when there is no such device, or when it is too old."""
    return CudaDevice(ordinal)


def device_of(pointers: Iterable[int]) -> CudaDevice:
    """The device that memory is on: the current one when there is no memory to go by.

    Raises ArgumentError when it is on several.
    """
    library = _library()
    found = {_ordinal_of(library, pointer) for pointer in pointers if pointer}
    if len(found) > 1:
        raise ArgumentError(f"PTO-X134: tensors on the devices {', '.join(map(str, sorted(found)))} in one launch\n"
                            "help: copy them to one of these devices first")  # fmt: skip
    return device(found.pop() if found else _current_ordinal(library))


def _ordinal_of(library: Any, pointer: int) -> int:
    ordinal = ctypes.c_int()
    status = library.cuPointerGetAttribute(ctypes.byref(ordinal), _ORDINAL, ctypes.c_uint64(pointer))
    _check(library, status, "cuPointerGetAttribute")
    return ordinal.value


def _current_ordinal(library: Any) -> int:
    """The device of the context that is current in this thread; the first one without a context."""
    context, handle = ctypes.c_void_p(), ctypes.c_int()
    _check(library, library.cuCtxGetCurrent(ctypes.byref(context)), "cuCtxGetCurrent")
    if not context.value:
        return 0
    _check(library, library.cuCtxGetDevice(ctypes.byref(handle)), "cuCtxGetDevice")
    count, one = ctypes.c_int(), ctypes.c_int()
    _check(library, library.cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
    for ordinal in range(count.value):
        _check(library, library.cuDeviceGet(ctypes.byref(one), ordinal), "cuDeviceGet")
        if one.value == handle.value:
            return ordinal
    return 0


class DeviceMemory:
    """Memory of the device, freed in the order of its stream."""

    def __init__(self, device: CudaDevice, size: int, stream: int) -> None:
        self._device, self._stream = device, stream
        pointer = ctypes.c_uint64()
        device.call("cuMemAllocAsync", ctypes.byref(pointer), ctypes.c_size_t(max(size, 1)), ctypes.c_void_p(stream))
        self.pointer: int = pointer.value

    def __del__(self) -> None:
        if getattr(self, "pointer", 0) and not sys.is_finalizing():  # then the driver may have ended, and frees all
            with self._device.active():  # the default stream is one of the current context
                self._device.library.cuMemFreeAsync(ctypes.c_uint64(self.pointer), ctypes.c_void_p(self._stream))


class CudaDevice:
    """A GPU, as a `Device`."""

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self.library = _library()
        handle, context = ctypes.c_int(), ctypes.c_void_p()
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        if count.value <= ordinal:
            raise _without_device()
        self.call("cuDeviceGet", ctypes.byref(handle), ordinal)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
        self._context = context
        self.capability = 10 * self._attribute(handle, _MAJOR) + self._attribute(handle, _MINOR)
        if self.capability < LOWEST:
            found = f"{self.capability / 10:.1f}"
            raise TargetError(f"the cuda target needs compute capability 8.0, this device has {found}",
                              code="PTO-X143", hint="run on an A100 or later")  # fmt: skip
        self.shared_limit: int = self._attribute(handle, _SHARED_LIMIT)
        self._versions: dict[str, Any] = {}
        self._free: list[FailureSlot] = []

    @property
    def warpgroups(self) -> bool:
        return config.warpgroups and self.capability == 90  # later devices have other instructions

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver; LaunchError when it fails."""
        _check(self.library, getattr(self.library, name)(*arguments), name)

    def _attribute(self, handle: Any, which: int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), which, handle)
        return value.value

    @contextmanager
    def active(self) -> Iterator[None]:
        """Inside, the device's primary context is the current one of this thread."""
        before = ctypes.c_void_p()
        self.call("cuCtxGetCurrent", ctypes.byref(before))
        if before.value == self._context.value:
            yield
            return
        self.call("cuCtxSetCurrent", self._context)
        try:
            yield
        finally:
            if before.value:  # without one before, this one is as good for what comes next
                self.call("cuCtxSetCurrent", before)

    def prepare(self, kernel: Kernel, spread: Spread, shared: int) -> Any:
        check_shared(kernel, shared, self.shared_limit)
        key = hashlib.sha256(repr((kernel.source, spread.defines)).encode()).hexdigest()
        known = self._versions.get(key)
        if known is None:
            own = "a" if dict(spread.defines).get("WARPGROUPS") else ""  # what no later device has
            code = compile_kernel(kernel, spread, f"sm_{self.capability}{own}")
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            self.call("cuModuleLoadData", ctypes.byref(module), code)
            self.call("cuModuleGetFunction", ctypes.byref(function), module, kernel.name.encode())
            static = ctypes.c_int()  # what reductions exchange, which counts, too
            self.call("cuFuncGetAttribute", ctypes.byref(static), _STATIC_SHARED, function)
            check_shared(kernel, shared + static.value, self.shared_limit)
            if shared + static.value > _PLAIN_SHARED:
                self.call("cuFuncSetAttribute", function, _DYNAMIC_SHARED, shared)
            known = self._versions[key] = function
        return known

    def launch(
        self, version: Any, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int,
        arguments: Sequence[Any], stream: int,
    ) -> None:  # fmt: skip
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        self.call("cuLaunchKernel", version, *grid, *block, shared, ctypes.c_void_p(stream), pointers, None)

    def allocate(self, size: int, stream: int) -> DeviceMemory:
        return DeviceMemory(self, size, stream)

    def read(self, pointer: int, size: int, stream: int) -> bytes:
        data = ctypes.create_string_buffer(size)
        self.call(
            "cuMemcpyDtoHAsync_v2", data, ctypes.c_uint64(pointer), ctypes.c_size_t(size), ctypes.c_void_p(stream)
        )
        self.call("cuStreamSynchronize", ctypes.c_void_p(stream))
        return data.raw

    def write(self, pointer: int, data: bytes, stream: int) -> None:
        # Pageable memory: the driver takes its own copy before it returns.
        self.call(
            "cuMemcpyHtoDAsync_v2", ctypes.c_uint64(pointer), data, ctypes.c_size_t(len(data)), ctypes.c_void_p(stream)
        )

    def failure_slot(self) -> FailureSlot:
        if not self._free:
            host, address = ctypes.c_void_p(), ctypes.c_uint64()
            size = ctypes.sizeof(FailureRecord)
            self.call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(_PAGE * size), _MAPPED)
            ctypes.memset(host, 0, _PAGE * size)
            self.call("cuMemHostGetDevicePointer_v2", ctypes.byref(address), host, 0)
            start = host.value or 0
            self._free = [FailureSlot(FailureRecord.from_address(start + k * size), address.value + k * size)
                          for k in range(_PAGE)]  # fmt: skip
        return self._free.pop()
