# SPDX-License-Identifier: MIT
"""What a launch needs of a device: the `Device` protocol, and the device that runs kernels on the CPU.

`EmulatedDevice` compiles the block-level code with the host's C++ compiler against a header that provides CUDA's
built-ins, so that kernels can be run and compared where there is no GPU.  It is for checking, and slow.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from pto_jit.errors import LaunchError
from pto_jit.targets import toolchain
from pto_jit.targets.cuda.kernels import Kernel
from pto_jit.targets.cuda.spreads import LARGEST, Spread, check_shared
from pto_jit.targets.source.text import text_of

HEADERS = {
    path.name: path
    for directory in (Path(__file__).parent / "device", Path(__file__).parents[1] / "source" / "include")
    for path in sorted(directory.iterdir())
}
"""Headers of the written sources, by name."""
EMULATION = {path.name: path for path in sorted((Path(__file__).parent / "emulation").iterdir())}
"""Headers in place of CUDA's, and what is behind them, by name."""


class FailureRecord(ctypes.Structure):
    """`pto::Failure`."""

    _fields_ = (("site", ctypes.c_int), ("claimed", ctypes.c_int), ("first", ctypes.c_int64),
                ("second", ctypes.c_int64))  # fmt: skip


class FailureSlot:
    """Where the kernels of a program record their first failure; `address` is of the device's memory."""

    def __init__(self, record: FailureRecord, address: int) -> None:
        self._record = record
        self.address = address

    def take(self) -> FailureRecord | None:
        """The first failure recorded so far, which is then forgotten."""
        if self._record.site == 0:
            return None
        found = FailureRecord.from_buffer_copy(self._record)
        self._record.site = 0
        self._record.claimed = 0  # last: from here on a kernel may record another one
        return found


class Device(Protocol):
    """Where kernels run. Addresses are of the device's memory."""

    @property
    def ordinal(self) -> int:
        """The number of the device."""
        ...

    @property
    def shared_limit(self) -> int:
        """Bytes of shared memory that a block can have."""
        ...

    @property
    def warpgroups(self) -> bool:
        """Whether whole warpgroups multiply."""
        ...

    def prepare(self, kernel: Kernel, spread: Spread, shared: int) -> Any:
        """A version of a kernel, compiled and loaded; LaunchError when it wants too much shared memory."""
        ...

    def begin(self, kernel: Kernel, spread: Spread) -> None:
        """Begin to compile a version that `prepare` will be asked for, beside others."""
        ...

    def launch(
        self, version: Any, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int,
        arguments: Sequence[Any], stream: int,
    ) -> None: ...  # fmt: skip

    def prepared(
        self, version: Any, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int,
        arguments: Sequence[Any],
    ) -> Callable[[int], None]:  # fmt: skip
        """A launch on a stream to be given, with what the arguments hold at that time."""
        ...

    def allocate(self, size: int, stream: int) -> Any:
        """Memory that lives as long as the returned object, which has `pointer`."""
        ...

    def read(self, pointer: int, size: int, stream: int) -> bytes:
        """Copy from the device when all earlier work of the stream is done."""
        ...

    def write(self, pointer: int, data: bytes, stream: int) -> None:
        """Copy bytes of the host, when all earlier work of the stream is done; waits."""
        ...

    def copy(self, to: int, pointer: int, size: int, stream: int) -> None:
        """Copy memory to other memory of the device, in the order of the stream."""
        ...

    def fill(self, pointer: int, element: bytes, count: int, stream: int) -> None:
        """Write the bytes of an element of 1, 2, 4 or 8 bytes so many times."""
        ...

    def failure_slot(self) -> FailureSlot:
        """A new place for failures, for as long as the process lives."""
        ...


def headers() -> dict[str, str]:
    """The texts of all headers, by name."""
    return {name: text_of(path) for name, path in HEADERS.items()}


class HostMemory:
    """Memory of the emulated device, which is not zero at first, as on a device."""

    def __init__(self, size: int) -> None:
        self._raw = (ctypes.c_ubyte * (max(size, 1) + 64))()
        base = ctypes.addressof(self._raw)
        ctypes.memset(base, 0xA5, max(size, 1) + 64)
        self.pointer = (base + 63) // 64 * 64


class EmulatedDevice:
    """Runs kernels on the CPU, one block after the other.

    `order`: how the threads of a block take turns: 0 forwards, 1 backwards, others shuffled by that seed.  Results
    that depend on it show a missing barrier.
    """

    ordinal = 0
    shared_limit = LARGEST
    warpgroups = False

    def __init__(self, order: int = 0) -> None:
        self.order = order

    def prepare(self, kernel: Kernel, spread: Spread, shared: int) -> Any:
        check_shared(kernel, shared, self.shared_limit)
        key = hashlib.sha256(repr((kernel.source, spread.defines)).encode()).hexdigest()
        known = _emulated.get(key)
        if known is None:
            known = _emulated[key] = _open(emulated_code(kernel, spread))
        return known, kernel.name

    def begin(self, kernel: Kernel, spread: Spread) -> None:
        """Nothing: what is emulated is compiled when it is needed."""

    def launch(
        self, version: Any, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int,
        arguments: Sequence[Any], stream: int,
    ) -> None:  # fmt: skip
        sizes = (ctypes.c_uint * 6)(*grid, *block)
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        function, name = version
        fault = function(sizes, ctypes.c_size_t(shared), ctypes.c_uint(self.order), pointers)
        if fault is not None:
            raise LaunchError(f"PTO-X147: the emulated kernel {name} failed: {fault.decode()}")

    def prepared(
        self, version: Any, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int,
        arguments: Sequence[Any],
    ) -> Callable[[int], None]:  # fmt: skip
        return lambda stream: self.launch(version, grid, block, shared, arguments, stream)

    def allocate(self, size: int, stream: int) -> HostMemory:
        return HostMemory(size)

    def read(self, pointer: int, size: int, stream: int) -> bytes:
        return ctypes.string_at(pointer, size)

    def write(self, pointer: int, data: bytes, stream: int) -> None:
        ctypes.memmove(pointer, data, len(data))

    def copy(self, to: int, pointer: int, size: int, stream: int) -> None:
        ctypes.memmove(to, pointer, size)

    def fill(self, pointer: int, element: bytes, count: int, stream: int) -> None:
        self.write(pointer, element * count, stream)

    def failure_slot(self) -> FailureSlot:
        record = FailureRecord()
        return FailureSlot(record, ctypes.addressof(record))


def emulated_code(kernel: Kernel, spread: Spread) -> bytes:
    """A shared library whose `pto_emulated_launch` runs a version of a kernel on the CPU."""
    compiler = toolchain.need("the emulation of CUDA kernels", "g++", "clang++")
    flags = ["-O0", *_looking(compiler), *(f"-D{name}={value}" for name, value in spread.defines)]
    files = {**headers(), **_emulation(".h"), "kernel.cu": kernel.source, "launch.cpp": _launcher(kernel),
             _RUNTIME: _runtime(compiler)}  # fmt: skip
    command = [compiler, *_FLAGS, *flags, "-shared", "launch.cpp", _RUNTIME, "-o", "kernel.so", *_LIBRARIES]
    return toolchain.run([command], files, ["kernel.so"])["kernel.so"]


@cache
def _runtime(compiler: str) -> bytes:
    """The object file of what the kernels call, which is the same for all of them: it is compiled once."""
    sources = _emulation(".cpp")
    files = {**headers(), **_emulation(".h"), **sources,
             "runtime.cpp": "".join(f'#include "{name}"\n' for name in sources)}  # fmt: skip
    # What jumps between stacks is no overflow of one; calls are told by their frames.
    flags = ["-O1", "-fno-omit-frame-pointer", "-U_FORTIFY_SOURCE", "-Wno-frame-address"]
    return toolchain.build([compiler, *_FLAGS, *flags, "-c", "runtime.cpp", "-o", _RUNTIME], files, _RUNTIME)


def _emulation(suffix: str) -> dict[str, str]:
    """The texts of the emulation's files of a kind, by name."""
    return {name: text_of(path) for name, path in EMULATION.items() if path.suffix == suffix}


_emulated: dict[str, Any] = {}
_RUNTIME = "runtime.o"
_FLAGS = ("-std=c++17", "-fwrapv", "-ffp-contract=off", "-fno-math-errno", "-fno-exceptions", "-march=native", "-Wall",
          "-Wno-unknown-pragmas", "-Wno-unused-function", "-fPIC", "-fvisibility=hidden",
          "-D_GLIBCXX_BITS_SPECFUN_H=1")  # fmt: skip
"""The last one leaves out the special functions of libstdc++'s `cmath`: to read them takes longer than all the rest."""
_LIBRARIES = ("-nodefaultlibs", "-lm", "-lgcc_s", "-lc")
"""What the compiler links by itself and is called: neither the library of the sanitizer nor that of C++."""


def _looking(compiler: str) -> list[str]:
    """Flags with which accesses of memory are calls first, which `pto_cuda_checks.cpp` defines."""
    volatile = ["-mllvm", "-tsan-distinguish-volatile"] if "clang" in Path(compiler).name else [
        "--param", "tsan-distinguish-volatile=1"]  # fmt: skip
    return ["-fsanitize=thread", *volatile]


def _open(data: bytes) -> Any:
    """Load a shared library that no longer has a file."""
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(data)
        file.flush()
        library = ctypes.CDLL(file.name)
    function = library.pto_emulated_launch
    function.restype = ctypes.c_char_p
    return function


def _launcher(kernel: Kernel) -> str:
    """C++ that runs a kernel for all threads of a grid; its arguments are pointers to values, as for a real launch."""
    inner = kernel.source[kernel.source.index(f"{kernel.name}(") + len(kernel.name) + 1 :]
    parameters = " ".join(inner[: inner.index(") {")].split()).split(", ")
    types: list[str] = []
    pending = ""
    for part in parameters:  # a template's comma is not the end of a parameter
        pending = f"{pending}, {part}" if pending else part
        if pending.count("<") == pending.count(">"):
            types.append(pending.rsplit(" ", 1)[0].replace("Failure*", "Failure*").strip())
            pending = ""
    arguments = [f"*static_cast<{t}*>(list[{k}])" for k, t in enumerate(types)]
    tensors = [f"  emulation::add_tensor({a});" for t, a in zip(types, arguments, strict=True) if "Tensor<" in t]
    known = "\n".join([*tensors, f"  emulation::add_failure({arguments[-1]});"])
    return f"""\
#include "pto_cuda_emulation.h"
#include "kernel.cu"

PTO_UNCHECKED static void body(void* arguments) {{
  void** list = static_cast<void**>(arguments);
  {kernel.name}({", ".join(arguments)});
}}

extern "C" __attribute__((visibility("default"))) PTO_UNCHECKED const char* pto_emulated_launch(
    const unsigned* sizes, size_t shared, unsigned seed, void** list) {{
  const dim3 grid = {{sizes[0], sizes[1], sizes[2]}}, block = {{sizes[3], sizes[4], sizes[5]}};
  emulation::begin_checks();
{known}
  return emulation::launch(grid, block, shared, seed, body, list);
}}
"""
