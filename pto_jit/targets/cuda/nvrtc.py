# SPDX-License-Identifier: MIT
"""NVIDIA's run-time compiler, for machines without nvcc: a library that comes with torch and cupy, used by ctypes."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pto_jit.errors import ToolchainError

_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
_STANDARD = {
    "stdint.h": "\n".join(
        [f"typedef {sign}{of} {u}int{bits}_t;" for sign, u in (("signed ", ""), ("unsigned ", "u"))
         for bits, of in ((8, "char"), (16, "short"), (32, "int"), (64, "long"))]
        + ["typedef unsigned long uintptr_t;", ""]
    ),
    "string.h": "",
}  # fmt: skip
"""What the library has no headers for; it knows `memcpy` itself."""


def _places() -> Iterator[str]:
    """Names to try: of a library that is loaded already or on the loader's path, then those of Python packages."""
    yield from _NAMES
    for entry in sys.path:
        for pattern in ("nvidia/cuda_nvrtc/lib", "nvidia/cu*/lib"):
            for directory in sorted(Path(entry or ".").glob(pattern), reverse=True):
                yield from (str(directory / name) for name in _NAMES if (directory / name).exists())


@cache
def libraries() -> tuple[Any, ...]:
    """The libraries that there are: the first one of each version."""
    found: dict[tuple[int, int], Any] = {}
    for place in _places():
        try:
            lib = ctypes.CDLL(place)
        except OSError:
            continue
        if found.setdefault(version(lib), lib) is lib:
            _load_builtins(lib)
    return tuple(found.values())


class _Origin(ctypes.Structure):
    """Dl_info."""

    _fields_ = (("path", ctypes.c_char_p), ("base", ctypes.c_void_p),
                ("name", ctypes.c_char_p), ("address", ctypes.c_void_p))  # fmt: skip


def _load_builtins(lib: Any) -> None:
    """Load what a library opens by its bare name when it compiles.

    It is beside the library, where the loader does not look for it: that of CUDA 13.0 has no run path.
    """
    origin = _Origin()
    if ctypes.CDLL(None).dladdr(ctypes.cast(lib.nvrtcVersion, ctypes.c_void_p), ctypes.byref(origin)) == 0:
        return
    for beside in Path(os.fsdecode(origin.path or b"")).parent.glob("libnvrtc-builtins.so.*"):
        with suppress(OSError):  # one that cannot be loaded is missed by NVRTC, which says so
            ctypes.CDLL(str(beside))


def version(lib: Any) -> tuple[int, int]:
    """The version of CUDA that a library belongs to: major and minor."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    lib.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def known(lib: Any) -> frozenset[int]:
    """The compute capabilities that a library compiles for, such as 90."""
    count = ctypes.c_int()
    lib.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    lib.nvrtcGetSupportedArchs(numbers)
    return frozenset(numbers)


def compile_source(
    lib: Any, text: str, headers: Mapping[str, str], flags: Sequence[str], output: Literal["CUBIN", "PTX"] = "CUBIN"
) -> bytes:
    """The machine code of a source, for the architecture that the flags name, or its PTX for a virtual one
    (`compute_90`).

    headers: what it may include, name -> text.  Raises ToolchainError with what the compiler said when it fails.
    """
    files = {**_STANDARD, **headers}
    program = ctypes.c_void_p()
    texts, names, options = (_strings(words) for words in (files.values(), files, flags))
    created = lib.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", len(files), texts, names)
    if created != 0:
        raise _error(f"nvrtcCreateProgram gave {created}")
    try:
        status = lib.nvrtcCompileProgram(program, len(flags), options)
        if status != 0:
            said = _output(lib, program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            raise _error("\n".join(said.strip().splitlines()[:20]) or f"nvrtcCompileProgram gave {status}")
        return _output(lib, program, output)
    finally:
        lib.nvrtcDestroyProgram(ctypes.byref(program))


def _strings(words: Any) -> Any:
    encoded = [word.encode() for word in words]
    return (ctypes.c_char_p * len(encoded))(*encoded)


def _output(lib: Any, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    if lib[f"nvrtcGet{what}Size"](program, ctypes.byref(size)) != 0:
        return b""
    data = ctypes.create_string_buffer(size.value)
    return data.raw if lib[f"nvrtcGet{what}"](program, data) == 0 else b""


def _error(said: str) -> ToolchainError:
    return ToolchainError(f"PTO-X121: NVRTC failed:\n{said}\n"
                          "help: this is a bug of pto_jit, unless the compiler is too old")  # fmt: skip
