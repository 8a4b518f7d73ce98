# SPDX-License-Identifier: MIT
"""Launches on an NVIDIA GPU through the driver API, in this process: `libcuda.so.1` by ctypes, code by nvcc or NVRTC.

The context is the primary one of the current device, which torch and cupy use too.  Memory of temporaries comes from
the driver's stream-ordered allocator.  Failures are recorded in pinned host memory that kernels can write, so looking
at them needs no synchronisation.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any

from pto_jit.errors import LaunchError, TargetError
from pto_jit.targets import toolchain
from pto_jit.targets.cuda import nvrtc
from pto_jit.targets.cuda.devices import FailureRecord, headers
from pto_jit.targets.cuda.kernels import Kernel
from pto_jit.targets.cuda.spreads import Spread, check_shared

_SHARED_ATTRIBUTE = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_SHARED_LIMIT, _MAJOR, _MINOR = 97, 75, 76  # CU_DEVICE_ATTRIBUTE_...
_MAPPED = 2  # CU_MEMHOSTALLOC_DEVICEMAP
_PLAIN_SHARED = 48 * 1024
LOWEST = 80
"""The oldest compute capability that the sources are written for: asynchronous copies, bf16."""


def compile_kernel(kernel: Kernel, spread: Spread, arch: str) -> bytes:
    """The machine code of a version of a kernel for an architecture, such as "sm_90": by nvcc, or else by NVRTC.

    Raises ToolchainError when there is neither, or when it fails.
    """
    defines = [f"-D{name}={value}" for name, value in spread.defines]
    defines.append(f"--fmad={'true' if kernel.fastmath else 'false'}")
    if toolchain.find("nvcc") is None and nvrtc.library() is not None:
        flags = ["--std=c++17", f"--gpu-architecture={arch}", *defines]
        return nvrtc.compile_cubin(kernel.source, headers(), flags)
    compiler = toolchain.need("the cuda target (where NVRTC is missing, too)", "nvcc")
    flags = ["-std=c++17", "-cubin", f"-arch={arch}", *defines]
    return toolchain.build([compiler, *flags, "-o", "kernel.cubin", "kernel.cu"],
                           {**headers(), "kernel.cu": kernel.source}, "kernel.cubin")  # fmt: skip


@cache
def _library() -> Any:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise TargetError("PTO-X145: there is no CUDA driver (libcuda.so.1) on this machine\n"
                          "help: look at `compiled.sources`, or emulate: see docs/cuda.md") from None  # fmt: skip
    _check(library, library.cuInit(0), "cuInit")
    return library


def _check(library: Any, status: int, what: str) -> None:
    if status == 0:
        return
    text = ctypes.c_char_p()
    library.cuGetErrorString(status, ctypes.byref(text))
    said = text.value.decode() if text.value else f"error {status}"
    raise LaunchError(f"PTO-X146: {what} failed: {said}\nhelp: an earlier kernel on this device may have failed")


@cache
def current() -> CudaDevice:
    """The first CUDA device; TargetError when there is none."""
    return CudaDevice(0)


class DeviceMemory:
    """Memory of the device, freed in the order of its stream."""

    def __init__(self, device: CudaDevice, size: int, stream: int) -> None:
        self._device, self._stream = device, stream
        pointer = ctypes.c_uint64()
        device.call("cuMemAllocAsync", ctypes.byref(pointer), ctypes.c_size_t(max(size, 1)), ctypes.c_void_p(stream))
        self.pointer: int = pointer.value

    def __del__(self) -> None:
        if getattr(self, "pointer", 0):
            self._device.library.cuMemFreeAsync(ctypes.c_uint64(self.pointer), ctypes.c_void_p(self._stream))


class CudaDevice:
    """A GPU, as a `Device`."""

    def __init__(self, ordinal: int) -> None:
        self.library = _library()
        handle, context = ctypes.c_int(), ctypes.c_void_p()
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        if count.value <= ordinal:
            raise TargetError("PTO-X142: this machine has no CUDA device\nhelp: run where `nvidia-smi` shows one")
        self.call("cuDeviceGet", ctypes.byref(handle), ordinal)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
        self._context = context
        self.capability = 10 * self._attribute(handle, _MAJOR) + self._attribute(handle, _MINOR)
        if self.capability < LOWEST:
            raise TargetError(f"PTO-X143: the cuda target needs compute capability 8.0, this device has "
                              f"{self.capability / 10:.1f}\nhelp: run on an A100 or later")  # fmt: skip
        self.shared_limit: int = self._attribute(handle, _SHARED_LIMIT)
        self._enter()
        host = ctypes.c_void_p()
        self.call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(ctypes.sizeof(FailureRecord)), _MAPPED)
        ctypes.memset(host, 0, ctypes.sizeof(FailureRecord))
        self._record = FailureRecord.from_address(host.value or 0)
        address = ctypes.c_uint64()
        self.call("cuMemHostGetDevicePointer_v2", ctypes.byref(address), host, 0)
        self._record_address = address.value
        self._versions: dict[str, Any] = {}

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver; LaunchError when it fails."""
        _check(self.library, getattr(self.library, name)(*arguments), name)

    def _attribute(self, handle: Any, which: int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), which, handle)
        return value.value

    def _enter(self) -> None:
        """Make the primary context current in this thread, unless one is."""
        now = ctypes.c_void_p()
        self.call("cuCtxGetCurrent", ctypes.byref(now))
        if not now.value:
            self.call("cuCtxSetCurrent", self._context)

    def prepare(self, kernel: Kernel, spread: Spread, shared: int) -> Any:
        self._enter()
        check_shared(kernel, shared, self.shared_limit)
        key = hashlib.sha256(repr((kernel.source, spread.defines)).encode()).hexdigest()
        known = self._versions.get(key)
        if known is None:
            code = compile_kernel(kernel, spread, f"sm_{self.capability}")
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            self.call("cuModuleLoadData", ctypes.byref(module), code)
            self.call("cuModuleGetFunction", ctypes.byref(function), module, kernel.name.encode())
            if shared > _PLAIN_SHARED:
                self.call("cuFuncSetAttribute", function, _SHARED_ATTRIBUTE, shared)
            known = self._versions[key] = function
        return known

    def launch(
        self, version: Any, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int,
        arguments: Sequence[Any], stream: int,
    ) -> None:  # fmt: skip
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        self.call("cuLaunchKernel", version, *grid, *block, shared, ctypes.c_void_p(stream), pointers, None)

    def allocate(self, size: int, stream: int) -> DeviceMemory:
        self._enter()
        return DeviceMemory(self, size, stream)

    def read(self, pointer: int, size: int, stream: int) -> bytes:
        self._enter()
        data = ctypes.create_string_buffer(size)
        self.call(
            "cuMemcpyDtoHAsync_v2", data, ctypes.c_uint64(pointer), ctypes.c_size_t(size), ctypes.c_void_p(stream)
        )
        self.call("cuStreamSynchronize", ctypes.c_void_p(stream))
        return data.raw

    def write(self, pointer: int, data: bytes, stream: int) -> None:
        # Pageable memory: the driver takes its own copy before it returns.
        self._enter()
        self.call(
            "cuMemcpyHtoDAsync_v2", ctypes.c_uint64(pointer), data, ctypes.c_size_t(len(data)), ctypes.c_void_p(stream)
        )

    @property
    def failure_address(self) -> int:
        return self._record_address

    def failure(self) -> FailureRecord | None:
        if self._record.site == 0:
            return None
        found = FailureRecord.from_buffer_copy(self._record)
        self._record.site = 0
        return found
