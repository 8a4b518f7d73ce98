# SPDX-License-Identifier: MIT
"""Running the PTX that NVIDIA's compiler makes of kernels, on the CPU.

The emulation compiles the written source with the host's compiler, and stands in for the instructions that the source
names.  Here these are executed as the PTX ISA says, lanes of a warp go on independently of each other, and every access
is checked: for its address, for races between threads, warps and blocks, and for what nothing has written.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import pto_jit as pto
from pto_jit import dtypes
from pto_jit.targets import toolchain
from pto_jit.targets.cuda import nvrtc
from pto_jit.targets.cuda.copies import joined
from pto_jit.targets.cuda.devices import EmulatedDevice, FailureRecord, FailureSlot, headers
from pto_jit.targets.cuda.spreads import check_shared
from pto_jit.targets.cuda.tensors import DeviceTensor

COMPILER = toolchain.find("g++", "clang++")
available = bool(nvrtc.libraries()) and COMPILER is not None
needs_simulation = pytest.mark.skipif(not available, reason="needs NVRTC and a C++ compiler")


@cache
def _simulator() -> Any:
    assert COMPILER is not None
    sources = sorted(map(str, (Path(__file__).parent / "ptx").glob("*.cpp")))
    flags = ["-std=c++17", "-O2", "-march=native", "-ffp-contract=off", "-frounding-math", "-Wall", "-Wextra", "-Werror"]
    with tempfile.TemporaryDirectory() as directory:
        made = f"{directory}/ptx.so"
        subprocess.run([COMPILER, *flags, "-fPIC", "-shared", *sources, "-o", made], check=True)
        library = ctypes.CDLL(made)
    library.ptx_failure.restype = library.ptx_traffic.restype = ctypes.c_char_p
    library.ptx_module.restype = library.ptx_kernel.restype = ctypes.c_void_p
    library.ptx_kernel.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
    library.ptx_shared_bytes.argtypes = (ctypes.c_void_p,)
    library.ptx_shared_bytes.restype = ctypes.c_size_t
    library.ptx_allocate.argtypes = (ctypes.c_size_t,)
    library.ptx_allocate.restype = ctypes.c_uint64
    library.ptx_free.argtypes = library.ptx_forget.argtypes = (ctypes.c_uint64,)
    library.ptx_know.argtypes = (ctypes.c_uint64, ctypes.c_size_t)
    library.ptx_launch.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_bool,
                                   ctypes.c_void_p)  # fmt: skip
    library.ptx_launch.restype = ctypes.c_bool
    return library


def _failed(what: str) -> pto.LaunchError:
    return pto.LaunchError(f"{what}: {_simulator().ptx_failure().decode()}")


class Memory:
    """Memory of the simulated device, which it keeps apart from all other."""

    def __init__(self, size: int) -> None:
        self._free = _simulator().ptx_free
        self.pointer: int = _simulator().ptx_allocate(size)

    def __del__(self) -> None:
        self._free(self.pointer)


class Accesses(NamedTuple):
    """What an instruction accessed.

    space: "global", "shared" or "local".  requests: of warps.  wanted: bytes that lanes want, each once in a request.
    moved: bytes of the sectors of global memory that these are in; how often banks of shared memory are accessed.
    least: how often they would be if no lanes wanted different words of a bank.
    """

    space: str
    requests: int
    wanted: int
    moved: int
    least: int
    instruction: str


class Traffic(NamedTuple):
    """What kernels did: instructions of warps, and the accesses of memory of each that does some."""

    instructions: int
    accesses: list[Accesses]


def traffic() -> Traffic:
    """Of all that was simulated since the last call."""
    count, *lines = _simulator().ptx_traffic().decode().split("\n")
    fields = [line.split("\t") for line in lines]
    return Traffic(int(count), [Accesses(f[0], *map(int, f[1:5]), instruction=f[5]) for f in fields])


class SimulatedDevice(EmulatedDevice):
    """A `Device` whose memory is the process's.

    seed: who goes first: 0 the first threads, 1 the last ones, other numbers let warps, and lanes of a warp, go on in
    any order.  late: whether asynchronous copies and products happen only when they are waited for.
    """

    def __init__(self, seed: int = 0, late: bool = False) -> None:
        super().__init__(seed)
        self.late = late
        self._failures: list[tuple[FailureRecord, Memory]] = []

    def prepare(self, kernel: Any, spread: Any, shared: int) -> Any:
        check_shared(kernel, shared, self.shared_limit)
        function, static = _loaded(kernel.source, kernel.name, tuple(spread.defines), kernel.fastmath)
        check_shared(kernel, shared + static, self.shared_limit)
        return function

    def launch(
        self, version: Any, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int,
        arguments: Sequence[Any], stream: int,
    ) -> None:  # fmt: skip
        sizes = (ctypes.c_uint32 * 6)(*grid, *block)
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        if _simulator().ptx_launch(version, sizes, shared, self.order, self.late, pointers):
            return
        if not any(record.claimed for record, _ in self._failures):  # else the kernel is allowed to do anything
            raise _failed("simulated")

    def allocate(self, size: int, stream: int) -> Memory:
        return Memory(size)

    def failure_slot(self) -> FailureSlot:
        memory = Memory(ctypes.sizeof(FailureRecord))
        ctypes.memset(memory.pointer, 0, ctypes.sizeof(FailureRecord))
        record = FailureRecord.from_address(memory.pointer)
        self._failures.append((record, memory))
        return FailureSlot(record, memory.pointer)


@cache
def _loaded(source: str, name: str, defines: tuple[tuple[str, Any], ...], fastmath: bool) -> tuple[int, int]:
    """A kernel of the simulator, and how much shared memory it has by itself."""
    arch = "compute_90a" if dict(defines).get("WARPGROUPS") else "compute_90"
    flags = ["-std=c++17", f"--gpu-architecture={arch}", f"--fmad={'true' if fastmath else 'false'}",
             *(f"-D{name}={value}" for name, value in defines)]  # fmt: skip
    text = nvrtc.compile_source(nvrtc.libraries()[0], source, headers(), flags, "PTX")
    module = _simulator().ptx_module(text)
    if module is None:
        raise _failed("not simulated")
    kernel = _simulator().ptx_kernel(module, name.encode())
    return kernel, _simulator().ptx_shared_bytes(kernel)


def simulate(compiled: Any, *args: Any, seed: int = 0, late: bool = False, **kwargs: Any) -> Any:
    """Run a program compiled with target="cuda": what `emulate` does, on the device of this module."""
    call, _ = compiled._matching(args, kwargs)
    device = SimulatedDevice(seed, late)
    known = joined(DeviceTensor(v.pointer, v.shape, v.strides, dtypes.BY_ID[v.dtype], v.owner).span
                   for _, v in call.tensors)  # fmt: skip
    for first, end in known:
        _simulator().ptx_know(first, end - first)
    try:
        return compiled._kernel.run_on(device, call)
    finally:
        for first, _ in known:
            _simulator().ptx_forget(first)
