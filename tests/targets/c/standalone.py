# SPDX-License-Identifier: MIT
"""Generated programs as executables without Python: of this machine, or of AArch64 under qemu."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_jit import dtypes
from pto_jit.compiler import Stages
from pto_jit.targets.c.native import STANDARD
from pto_jit.targets.c.program import INCLUDE, RUNTIME, CSource, translation_unit

from .harness import WARNINGS, compile_named

ARM = ("aarch64-linux-gnu-gcc", "qemu-aarch64")
needs_arm = pytest.mark.skipif(
    not all(map(shutil.which, ARM)), reason=f"needs {' and '.join(ARM)}: gcc-aarch64-linux-gnu and qemu-user"
)


class Programs:
    """Kernels with arguments, compiled into one executable that calls them in order."""

    def __init__(self, target: str = "c") -> None:
        self.target = target
        self.items: list[tuple[Any, Any, CSource]] = []

    def add(self, fn: Any, *args: Any, stages: Stages | None = None) -> None:
        compiled = compile_named(fn, args, self.target, len(self.items), stages)
        call = fn._parameters.classify(*fn._parameters.bind(args, {}))
        self.items.append((compiled, call, compiled._kernel.built.source))

    def build(self, directory: Path, compiler: Sequence[str], flags: Sequence[str] = ("-O0",)) -> Path:
        """The executable; `compiler` with what it needs to compile for its machine."""
        sources = [s for *_, s in self.items]
        (directory / "written.c").write_text(translation_unit(sources))
        includes = [f"-I{INCLUDE}", f"-I{RUNTIME.resolve()}"]
        for name, header in sources[0].headers.items():
            (directory / name).write_text(header)
        includes.append(f"-I{directory}")
        common = [*compiler, *STANDARD, *WARNINGS, *flags, *includes, "-Wno-psabi"]
        subprocess.run([*common, "-c", directory / "written.c", "-o", directory / "written.o"], check=True)
        return link(directory, compiler, [s.entry for s in sources], [directory / "written.o"])

    def run(self, directory: Path, command: Sequence[str], threads: int = 2) -> list[tuple[Any, list[Any]]]:
        """Per call the failure (status, site, values) or None, and its results; tensors are written to."""
        words: list[bytes] = [_words(threads, len(self.items))]
        for k, (_, call, source) in enumerate(self.items):
            plan = _plan(source.plan)
            words.append(_words(k, len(call.slots), len(call.tensors), len(plan), *map(_signed, call.slots)))
            for slot, (_, view) in zip(_tensor_slots(call), call.tensors, strict=True):
                low, data = _span(view)
                words.append(_words(slot, view.pointer - low, len(data)) + data + bytes(-len(data) % 8))
            words += [_words(-1) if p is None else _words(p[1], p[0].bytes) for p in plan]
        (directory / "calls").write_bytes(b"".join(words))
        subprocess.run([*command, str(directory / "calls"), str(directory / "out")], check=True, timeout=120)
        return self._read((directory / "out").read_bytes())

    def _read(self, data: bytes) -> list[tuple[Any, list[Any]]]:
        at = 0

        def take(size: int) -> bytes:
            nonlocal at
            at += size
            return data[at - size : at]

        out = []
        for _, call, source in self.items:
            said = np.frombuffer(take(40), np.int64)
            if said[0] != 0:
                out.append((tuple(said.tolist()), []))
                continue
            for _, view in call.tensors:
                low, old = _span(view)
                _write(low, take(len(old)))
            results: list[Any] = []
            for p in _plan(source.plan):
                if p is None:
                    results.append(int(np.frombuffer(take(8), np.int64)[0]))
                    continue
                shape = tuple(np.frombuffer(take(8 * (1 + p[1])), np.int64)[1:].tolist())
                raw = np.frombuffer(take(int(np.prod(shape)) * p[0].bytes), p[0].numpy)
                results.append(raw.reshape(shape))
            out.append((None, results))
        assert at == len(data)
        return out


def link(directory: Path, compiler: Sequence[str], entries: Sequence[str], objects: Iterable[Path]) -> Path:
    """The executable of programs with these entries, in order."""
    declared = "".join(f"int32_t {e}(pto_worker *, const int64_t *, int64_t *);\n" for e in entries)
    table = ",\n  ".join(entries)
    text = f'#include "pto_runtime.h"\n{declared}const pto_entry_fn programs[] = {{\n  {table}\n}};\n'
    (directory / "programs.c").write_text(text)
    command = [*compiler, *STANDARD, f"-I{RUNTIME.resolve()}", str(directory / "programs.c"), *map(str, objects),
               *_support(tuple(compiler)), "-pthread", "-lm", "-o", str(directory / "program")]  # fmt: skip
    subprocess.run(command, check=True)
    return directory / "program"


@cache
def _support(compiler: tuple[str, ...]) -> list[str]:
    """The driver and the run-time library as object files, compiled once."""
    directory = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    sources = [Path(__file__).with_name("driver.c"), *sorted(RUNTIME.resolve().glob("*.c"))]
    command = [*compiler, "-std=gnu11", "-O0", f"-I{RUNTIME.resolve()}", "-pthread", "-c", *map(str, sources)]
    subprocess.run(command, cwd=directory, check=True)
    return sorted(map(str, Path(directory).glob("*.o")))


def _plan(plan: Any) -> list[Any]:
    """Per result None for a number, or the dtype and rank of a tensor."""
    if plan is None:
        return []
    items = [plan] if isinstance(plan, str) or plan[0] == "tensor" else plan
    return [None if isinstance(p, str) else (dtypes.BY_ID[p[1]], p[2]) for p in items]


def _words(*numbers: int) -> bytes:
    return np.array(numbers, np.int64).tobytes()


def _signed(x: Any) -> int:
    """A slot as a signed integer: floats by their bits."""
    if isinstance(x, float):
        return int(np.array(x).view(np.int64))
    return (int(x) + (1 << 63)) % (1 << 64) - (1 << 63)


def _tensor_slots(call: Any) -> list[int]:
    from pto_jit.codegen.params import TensorParam, leaves

    out, at = [], 0
    for param in call.params:
        for leaf in leaves(param.what):
            if isinstance(leaf, TensorParam):
                out.append(at)
                at += 1 + 2 * leaf.type.rank
            else:
                at += 1
    return out


def _span(view: Any) -> tuple[int, bytes]:
    """The lowest address of an array's elements, and the bytes up to the end of the highest."""
    import ctypes

    size = dtypes.BY_ID[view.dtype].bytes
    if 0 in view.shape:
        return view.pointer, b""
    reach = [(n - 1) * s for n, s in zip(view.shape, view.strides, strict=True)]
    low = view.pointer + sum(min(r, 0) for r in reach)
    high = view.pointer + sum(max(r, 0) for r in reach) + size
    return low, ctypes.string_at(low, high - low)


def _write(address: int, data: bytes) -> None:
    import ctypes

    ctypes.memmove(address, data, len(data))
