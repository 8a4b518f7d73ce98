# SPDX-License-Identifier: MIT
"""Machine code of kernels: by NVRTC, which is faster than a compiler that is started for each, or by nvcc where there
is no NVRTC, or one that is older than the device or newer than the driver."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from pto_jit.errors import ToolchainError
from pto_jit.slotted import frozen
from pto_jit.targets import toolchain
from pto_jit.targets.cuda import nvrtc
from pto_jit.targets.cuda.devices import headers
from pto_jit.targets.cuda.kernels import Kernel
from pto_jit.targets.cuda.spreads import Spread


@frozen
class _Compiler:
    """identity: tells one installation from another; release: the major version of its CUDA, 0 where it does not say;
    known: the compute capabilities that it compiles for, such as 90, as far as it says; compiled: the machine code of a
    source by some flags."""

    name: str
    identity: str
    release: int
    known: frozenset[int]
    compiled: Callable[[str, list[str]], bytes]

    def target(self, arch: str) -> str | None:
        """What to compile for so that a device of an architecture runs it: devices run code made for an earlier one of
        their generation, unless it is for the very device (`sm_90a`).  None: it is too old."""
        number = int(arch.removeprefix("sm_").rstrip("a"))
        if not self.known or number in self.known:
            return arch
        earlier = [n for n in self.known if n // 10 == number // 10 and n < number]
        return f"sm_{max(earlier)}" if earlier and not arch.endswith("a") else None


def compile_kernel(kernel: Kernel, spread: Spread, arch: str, driver: int | None = None) -> bytes:
    """The machine code of a version of a kernel for an architecture, such as "sm_90".

    driver: the major version of CUDA that the driver belongs to, which loads no code of later ones; None: that does not
    matter.  What was compiled before is in the kernel's store, if it has one.  Raises ToolchainError when there is no
    compiler for the architecture and the driver, or when it fails.
    """
    compiler, target = _compiler_for(arch, driver)
    flags = ["-std=c++17", f"--gpu-architecture={target}", *(f"-D{name}={value}" for name, value in spread.defines),
             f"--fmad={'true' if kernel.fastmath else 'false'}"]  # fmt: skip
    if kernel.store is None:
        return compiler.compiled(kernel.source, flags)
    parts = (compiler.identity, flags, sorted(headers().items()), kernel.source)
    key = hashlib.sha256(repr(parts).encode()).hexdigest()
    found = kernel.store.load(key)
    if found is not None:
        return found[1]
    code = compiler.compiled(kernel.source, flags)
    kernel.store.store(key, {"cuda": kernel.name}, code)
    return code


def _compiler_for(arch: str, driver: int | None) -> tuple[_Compiler, str]:
    """The first compiler that makes code for an architecture and a driver, and what it calls the architecture; one that
    does not say what it knows, as old ones do not, only where no other does."""
    old: list[str] = []
    new: list[str] = []
    silent: _Compiler | None = None
    for compiler in _compilers():
        target = compiler.target(arch)
        if driver is not None and compiler.release > driver:
            new.append(compiler.name)
        elif not compiler.known:
            silent = silent or compiler
        elif target is not None:
            return compiler, target
        else:
            old.append(f"{compiler.name} up to sm_{max(compiler.known)}")
    if silent is not None:
        return silent, arch
    if new:
        raise ToolchainError(f"PTO-X120: the driver loads code of CUDA {driver} and before, and what is installed "
                             f"makes later code: {', '.join(new)}\nhelp: install a newer driver, a CUDA toolkit as "
                             f"old as the driver, or `nvidia-cuda-nvrtc-cu{driver}` by pip")  # fmt: skip
    if not old:
        toolchain.need("the cuda target (where NVRTC is missing, too)", "nvcc")
    raise ToolchainError(f"PTO-X120: the device is an {arch}, and what is installed is older: {', '.join(old)}\n"
                         "help: install a newer CUDA toolkit, or a newer `nvidia-cuda-nvrtc` by pip")  # fmt: skip


def _compilers() -> Iterator[_Compiler]:
    for lib in nvrtc.libraries():
        release, minor = nvrtc.version(lib)
        name = f"NVRTC {release}.{minor}"

        def by_nvrtc(source: str, flags: list[str], lib: Any = lib) -> bytes:
            return nvrtc.compile_source(lib, source, headers(), flags)

        yield _Compiler(name, name, release, nvrtc.known(lib), by_nvrtc)
    roots = [root for name in ("CUDA_HOME", "CUDA_PATH") if (root := os.environ.get(name))]
    program = toolchain.find("nvcc", *(f"{root}/bin/nvcc" for root in [*roots, "/usr/local/cuda"]))
    if program is not None:

        def by_nvcc(source: str, flags: list[str]) -> bytes:
            command = [program, "-cubin", *flags, "-o", "kernel.cubin", "kernel.cu"]
            return toolchain.build(command, {**headers(), "kernel.cu": source}, "kernel.cubin")

        yield _Compiler(program, toolchain.identity(program), _release_of(program), _known_to(program), by_nvcc)


@cache
def _release_of(program: str) -> int:
    """The major version of the CUDA that an nvcc belongs to; 0 where it does not say."""
    found = re.search(r"\brelease (\d+)\.", _said(program, "--version"))
    return int(found[1]) if found else 0


@cache
def _known_to(program: str) -> frozenset[int]:
    """The compute capabilities that an nvcc compiles for; none where it does not say."""
    return frozenset(map(int, re.findall(r"\bsm_(\d+)\b", _said(program, "--list-gpu-code"))))


def _said(program: str, option: str) -> str:
    return subprocess.run([program, option], capture_output=True, text=True, errors="replace", check=False).stdout
