# SPDX-License-Identifier: MIT
"""Launches on an NVIDIA GPU through the driver API, in this process.

The context is the primary one of the device that the tensors are on, which torch and cupy use too.  Memory of
temporaries comes from the driver's stream-ordered allocator, out of a pool of this library.  Failures are recorded in
pinned host memory that kernels can write, so looking at them needs no synchronisation.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any

from pto_jit.config import config
from pto_jit.errors import ArgumentError, TargetError
from pto_jit.targets.cuda import api
from pto_jit.targets.cuda.compilers import compile_kernel
from pto_jit.targets.cuda.devices import FailureRecord, FailureSlot
from pto_jit.targets.cuda.kernels import Kernel
from pto_jit.targets.cuda.spreads import Spread, check_shared

_STATIC_SHARED, _DYNAMIC_SHARED = 1, 8  # CU_FUNC_ATTRIBUTE_[SHARED|MAX_DYNAMIC_SHARED]_SIZE_BYTES
_SHARED_LIMIT, _MAJOR, _MINOR = 97, 75, 76  # CU_DEVICE_ATTRIBUTE_...
_MAPPED = 2  # CU_MEMHOSTALLOC_DEVICEMAP
_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
_THRESHOLD = 4  # CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
_PINNED, _ON_DEVICE = 1, 1  # CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE
_KEPT = 1 << 30  # bytes of freed memory that a pool keeps when the host waits for the device
_PAGE = 128  # records of failures in a piece of pinned memory
_PLAIN_SHARED = 48 * 1024
LOWEST = 80
"""The oldest compute capability that the sources are written for: asynchronous copies, bf16."""


def need_driver() -> None:
    """Raise TargetError where there is no driver, or no device."""
    api.library()


@cache
def device(ordinal: int) -> CudaDevice:
    """A CUDA device by its number; TargetError when there is no such device, or when it is too old."""
    return CudaDevice(ordinal)


def device_of(pointers: Iterable[int]) -> CudaDevice:
    """The device that memory is on: the current one when there is no memory to go by (empty tensors have none).

    Raises ArgumentError when it is on several.
    """
    library = api.library()
    found = {_ordinal_of(library, pointer) for pointer in pointers if pointer}
    if len(found) > 1:
        raise ArgumentError(f"PTO-X134: tensors on the devices {', '.join(map(str, sorted(found)))} in one launch\n"
                            "help: copy them to one of these devices first")  # fmt: skip
    return device(found.pop() if found else _current_ordinal(library))


def _ordinal_of(library: Any, pointer: int) -> int:
    ordinal = ctypes.c_int()
    status = library.cuPointerGetAttribute(ctypes.byref(ordinal), _ORDINAL, pointer)
    api.check(library, status, "cuPointerGetAttribute")
    return ordinal.value


def _current_ordinal(library: Any) -> int:
    """The device of the context that is current in this thread; the first one without a context."""
    context, handle = ctypes.c_void_p(), ctypes.c_int()
    api.check(library, library.cuCtxGetCurrent(ctypes.byref(context)), "cuCtxGetCurrent")
    if not context.value:
        return 0
    api.check(library, library.cuCtxGetDevice(ctypes.byref(handle)), "cuCtxGetDevice")
    count, one = ctypes.c_int(), ctypes.c_int()
    api.check(library, library.cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
    for ordinal in range(count.value):
        api.check(library, library.cuDeviceGet(ctypes.byref(one), ordinal), "cuDeviceGet")
        if one.value == handle.value:
            return ordinal
    return 0


class _PoolProps(ctypes.Structure):
    """CUmemPoolProps."""

    _fields_ = (
        ("allocation", ctypes.c_int), ("exported", ctypes.c_int), ("place", ctypes.c_int), ("ordinal", ctypes.c_int),
        ("security", ctypes.c_void_p), ("most", ctypes.c_size_t), ("rest", ctypes.c_ubyte * 56),
    )  # fmt: skip


class DeviceMemory:
    """Memory of the device, freed in the order of its stream."""

    def __init__(self, device: CudaDevice, size: int, stream: int) -> None:
        self._device, self._stream = device, stream
        pointer = ctypes.c_uint64()
        device.call("cuMemAllocFromPoolAsync", ctypes.byref(pointer), max(size, 1), device.pool, stream)
        self.pointer: int = pointer.value

    def __del__(self) -> None:
        if getattr(self, "pointer", 0) and not sys.is_finalizing():  # then the driver may have ended, and frees all
            with self._device.active():  # the default stream is one of the current context
                self._device.library.cuMemFreeAsync(self.pointer, self._stream)


@cache
def _threads() -> ThreadPoolExecutor:
    """Where versions of kernels are compiled that a program needs later: compilers do not hold Python's lock."""
    return ThreadPoolExecutor(max(2, os.cpu_count() or 1), "pto_jit.cuda")


def _key(kernel: Kernel, spread: Spread) -> str:
    return hashlib.sha256(repr((kernel.source, spread.defines)).encode()).hexdigest()


class CudaDevice:
    """A GPU, as a `Device`; alone: there is no other."""

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self.library = api.library()
        handle, context = ctypes.c_int(), ctypes.c_void_p()
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        if count.value <= ordinal:
            raise api.without_device()
        self.alone = count.value == 1
        self.call("cuDeviceGet", ctypes.byref(handle), ordinal)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
        self._context = context
        self.capability = 10 * self._attribute(handle, _MAJOR) + self._attribute(handle, _MINOR)
        if self.capability < LOWEST:
            found = f"{self.capability / 10:.1f}"
            raise TargetError(f"the cuda target needs compute capability 8.0, this device has {found}",
                              code="PTO-X143", hint="run on an A100 or later")  # fmt: skip
        self.shared_limit: int = self._attribute(handle, _SHARED_LIMIT)
        self.call("cuDriverGetVersion", ctypes.byref(count))
        self._release = count.value // 1000  # the major version of the latest CUDA whose code the driver loads
        self._versions: dict[str, Any] = {}
        self._begun: dict[str, Future[bytes]] = {}
        self._free: list[FailureSlot] = []

    @property
    def warpgroups(self) -> bool:
        return config.warpgroups and self.capability == 90  # later devices have other instructions

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver; LaunchError when it fails."""
        api.check(self.library, getattr(self.library, name)(*arguments), name)

    def _attribute(self, handle: Any, which: int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), which, handle)
        return value.value

    @property
    def is_active(self) -> bool:
        """Whether the device's primary context is the current one of this thread."""
        return self._current().value == self._context.value

    def _current(self) -> ctypes.c_void_p:
        context = ctypes.c_void_p()
        self.call("cuCtxGetCurrent", ctypes.byref(context))
        return context

    @contextmanager
    def active(self) -> Iterator[None]:
        """Inside, the device's primary context is the current one of this thread."""
        before = self._current()
        if before.value == self._context.value:
            yield
            return
        self.call("cuCtxSetCurrent", self._context)
        try:
            yield
        finally:
            if before.value:  # without one before, this one is as good for what comes next
                self.call("cuCtxSetCurrent", before)

    @cached_property
    def pool(self) -> ctypes.c_void_p:
        """Where temporaries and results come from.

        The driver's own pool gives back all that is free whenever the host waits, and asks for it again at the next
        call, which takes the longer the larger it is.
        """
        pool, kept = ctypes.c_void_p(), ctypes.c_uint64(_KEPT)
        wanted = _PoolProps(allocation=_PINNED, place=_ON_DEVICE, ordinal=self.ordinal)
        self.call("cuMemPoolCreate", ctypes.byref(pool), ctypes.byref(wanted))
        self.call("cuMemPoolSetAttribute", pool, _THRESHOLD, ctypes.byref(kept))
        return pool

    def begin(self, kernel: Kernel, spread: Spread) -> None:
        key = _key(kernel, spread)
        if key not in self._versions and key not in self._begun:
            self._begun[key] = _threads().submit(self._compiled, kernel, spread)

    def _compiled(self, kernel: Kernel, spread: Spread) -> bytes:
        own = "a" if dict(spread.defines).get("WARPGROUPS") else ""  # what no later device has
        return compile_kernel(kernel, spread, f"sm_{self.capability}{own}", self._release)

    def prepare(self, kernel: Kernel, spread: Spread, shared: int) -> Any:
        check_shared(kernel, shared, self.shared_limit)
        key = _key(kernel, spread)
        known = self._versions.get(key)
        if known is None:
            begun = self._begun.pop(key, None)
            code = self._compiled(kernel, spread) if begun is None else begun.result()
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
        self.prepared(version, grid, block, shared, arguments)(stream)

    def prepared(
        self, version: Any, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int,
        arguments: Sequence[Any],
    ) -> Callable[[int], None]:  # fmt: skip
        function = self.library.cuLaunchKernel
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        sizes = (*grid, *block, shared)

        def launch(stream: int, kept: Any = (pointers, arguments)) -> None:
            status = function(version, *sizes, stream, kept[0], None)
            if status:
                api.check(self.library, status, "cuLaunchKernel")

        return launch

    def wait_for(self, others: Iterable[int], stream: int) -> None:
        """What is enqueued on a stream from here on runs when all that others have now is done."""
        for other in others:
            event = ctypes.c_void_p()
            self.call("cuEventCreate", ctypes.byref(event), _NO_TIMING)
            try:
                self.call("cuEventRecord", event, other)
                self.call("cuStreamWaitEvent", stream, event, 0)
            finally:
                self.call("cuEventDestroy_v2", event)  # which lasts as long as it is waited for

    def allocate(self, size: int, stream: int) -> DeviceMemory:
        return DeviceMemory(self, size, stream)

    def read(self, pointer: int, size: int, stream: int) -> bytes:
        data = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoHAsync_v2", data, pointer, size, stream)
        self.call("cuStreamSynchronize", stream)
        return data.raw

    def write(self, pointer: int, data: bytes, stream: int) -> None:
        self.call("cuMemcpyHtoDAsync_v2", pointer, data, len(data), stream)
        self.call("cuStreamSynchronize", stream)  # the driver may read `data` until then

    def copy(self, to: int, pointer: int, size: int, stream: int) -> None:
        self.call("cuMemcpyDtoDAsync_v2", to, pointer, size, stream)

    def fill(self, pointer: int, element: bytes, count: int, stream: int) -> None:
        if count == 0:
            return
        if len(element) == 8 and element[:4] == element[4:]:
            element, count = element[:4], 2 * count
        if len(element) <= 4:
            bits = int.from_bytes(element, "little")
            self.call(f"cuMemsetD{8 * len(element)}Async", pointer, bits, count, stream)
            return
        for at in (0, 4):  # by value: a graph that captures this has no use for memory of the host later
            self.call("cuMemsetD32Async", pointer + at, int.from_bytes(element[at : at + 4], "little"), 1, stream)
        done, size = len(element), count * len(element)
        while done < size:  # twice as much each time: there is no memset of 8 bytes
            more = min(done, size - done)
            self.call("cuMemcpyDtoDAsync_v2", pointer + done, pointer, more, stream)
            done += more

    def failure_slot(self) -> FailureSlot:
        if not self._free:
            host, address = ctypes.c_void_p(), ctypes.c_uint64()
            size = ctypes.sizeof(FailureRecord)
            self.call("cuMemHostAlloc", ctypes.byref(host), _PAGE * size, _MAPPED)
            ctypes.memset(host, 0, _PAGE * size)
            self.call("cuMemHostGetDevicePointer_v2", ctypes.byref(address), host, 0)
            start = host.value or 0
            self._free = [FailureSlot(FailureRecord.from_address(start + k * size), address.value + k * size)
                          for k in range(_PAGE)]  # fmt: skip
        return self._free.pop()
