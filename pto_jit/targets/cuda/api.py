# SPDX-License-Identifier: MIT
"""NVIDIA's driver API by ctypes: the functions of `libcuda.so.1` that are called, with their types, and its errors."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from pto_jit.errors import LaunchError, TargetError

INT, UINT, SIZE = ctypes.c_int, ctypes.c_uint, ctypes.c_size_t
ADDRESS = ctypes.c_uint64
"""CUdeviceptr."""
POINTER = ctypes.c_void_p
"""Of memory of the host, and what the driver hands out: contexts, modules, functions, streams, events, pools."""
BYTE, SHORT = ctypes.c_ubyte, ctypes.c_ushort

PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cuInit": (UINT,),
    "cuGetErrorString": (INT, POINTER),
    "cuGetErrorName": (INT, POINTER),
    "cuDriverGetVersion": (POINTER,),
    "cuDeviceGetCount": (POINTER,),
    "cuDeviceGet": (POINTER, INT),
    "cuDeviceGetAttribute": (POINTER, INT, INT),
    "cuDevicePrimaryCtxRetain": (POINTER, INT),
    "cuCtxGetCurrent": (POINTER,),
    "cuCtxSetCurrent": (POINTER,),
    "cuCtxGetDevice": (POINTER,),
    "cuPointerGetAttribute": (POINTER, INT, ADDRESS),
    "cuModuleLoadData": (POINTER, POINTER),
    "cuModuleGetFunction": (POINTER, POINTER, POINTER),
    "cuFuncGetAttribute": (POINTER, INT, POINTER),
    "cuFuncSetAttribute": (POINTER, INT, INT),
    "cuLaunchKernel": (POINTER, *[UINT] * 7, POINTER, POINTER, POINTER),
    "cuMemPoolCreate": (POINTER, POINTER),
    "cuMemPoolSetAttribute": (POINTER, INT, POINTER),
    "cuMemAllocFromPoolAsync": (POINTER, SIZE, POINTER, POINTER),
    "cuMemFreeAsync": (ADDRESS, POINTER),
    "cuMemHostAlloc": (POINTER, SIZE, UINT),
    "cuMemHostGetDevicePointer_v2": (POINTER, POINTER, UINT),
    "cuMemcpyDtoHAsync_v2": (POINTER, ADDRESS, SIZE, POINTER),
    "cuMemcpyHtoDAsync_v2": (ADDRESS, POINTER, SIZE, POINTER),
    "cuMemcpyDtoDAsync_v2": (ADDRESS, ADDRESS, SIZE, POINTER),
    "cuMemsetD8Async": (ADDRESS, BYTE, SIZE, POINTER),
    "cuMemsetD16Async": (ADDRESS, SHORT, SIZE, POINTER),
    "cuMemsetD32Async": (ADDRESS, UINT, SIZE, POINTER),
    "cuStreamSynchronize": (POINTER,),
    "cuStreamWaitEvent": (POINTER, POINTER, UINT),
    "cuEventCreate": (POINTER, UINT),
    "cuEventRecord": (POINTER, POINTER),
    "cuEventSynchronize": (POINTER,),
    "cuEventElapsedTime": (POINTER, POINTER, POINTER),
    "cuEventDestroy_v2": (POINTER,),
}
"""The types of the parameters; every function gives a CUresult. Tests compare them with `cuda.h` of the toolkit."""

_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_FORKED = "CUDA does not outlive `fork`: start processes by `multiprocessing.set_start_method('spawn')`"
_OLDER = "the driver is older than the compiler: install a newer driver, or a CUDA toolkit as old (`nvidia-smi`)"
_BROKEN = ("a kernel launched before, by this library or another, has failed, and this process cannot use the device "
           "any more; `compute-sanitizer python ...` finds which")  # fmt: skip
_HELP = {
    2: "free tensors on the device (`torch.cuda.empty_cache()` gives back what torch keeps), or use smaller ones",
    3: _FORKED,
    **dict.fromkeys((200, 209, 218, 222), _OLDER),
    **dict.fromkeys((700, 702, 710, 714, 715, 716, 717, 718, 719), _BROKEN),
    701: "the kernel takes more registers or threads than a block has: use smaller tiles",
    802: "the machine is not ready: where GPUs are joined by NVSwitch, `nvidia-fabricmanager` has to run",
    **dict.fromkeys((803, 804), "the driver's library and its kernel module are of different versions: restart"),
    900: "a stream is being captured: call the program once before the capture",
}
"""What to do about an error, by its CUresult."""


@cache
def library() -> Any:
    """The driver, ready for calls; TargetError where there is none, or no device."""
    try:
        found = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise TargetError("there is no CUDA driver (libcuda.so.1) on this machine", code="PTO-X145",
                          hint="look at `compiled.sources`, or emulate: see docs/cuda.md") from None  # fmt: skip
    for name, types in PROTOTYPES.items():
        function = getattr(found, name, None)
        if function is None:
            raise TargetError(f"the CUDA driver of this machine has no {name}", code="PTO-X145",
                              hint="install a driver of CUDA 11.2 or later")  # fmt: skip
        function.argtypes = types
    status = found.cuInit(0)
    if status == _NO_DEVICE:
        raise without_device()
    check(found, status, "cuInit")
    return found


def check(library: Any, status: int, what: str) -> None:
    """Raise LaunchError with the driver's words, and what to do, unless a call has succeeded."""
    if status == 0:
        return
    text, name = ctypes.c_char_p(), ctypes.c_char_p()
    library.cuGetErrorString(status, ctypes.byref(text))
    library.cuGetErrorName(status, ctypes.byref(name))
    said = f"{text.value.decode()} ({(name.value or b'').decode()})" if text.value else f"error {status}"
    hint = _HELP.get(status, "this is a bug of pto_jit, unless an earlier kernel on this device has failed")
    raise LaunchError(f"PTO-X146: {what} failed: {said}\nhelp: {hint}")


def without_device() -> TargetError:
    return TargetError("this machine has no CUDA device", code="PTO-X142", hint="run where `nvidia-smi` shows one")
