# SPDX-License-Identifier: MIT
"""Libraries for programs without Python: a compiled program, the run-time library, and the header that declares them.

What a program is made of is object code (the cpu target) or C (the c and neon targets); the run-time library is always
compiled from its sources, so a C compiler is needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from pto_jit.errors import ArgumentError
from pto_jit.slotted import frozen
from pto_jit.targets import toolchain
from pto_jit.targets.c.native import STANDARD, headers
from pto_jit.targets.c.program import RUNTIME, CSource

Kind = Literal["static", "shared"]
"""What a linker puts into a program, or what is loaded when the program starts."""
_RUNTIME_FLAGS = ("-std=c11", "-O2", "-fPIC", "-pthread")


@frozen
class Tools:
    """The programs that make a library, and the flag for the processor."""

    compiler: str
    archiver: str
    machine: str

    @staticmethod
    def of(dialect: object) -> Tools:
        """Those of this machine, or of the processor that a dialect is for; ToolchainError where they are missing."""
        wanted = getattr(dialect, "compiler", None)
        if wanted is None:
            return Tools(toolchain.need("a library", "cc", "gcc", "clang"), toolchain.need("a library", "ar"),
                         "-march=native")  # fmt: skip
        prefix = wanted.removesuffix("gcc")
        return Tools(toolchain.need("a library", wanted), toolchain.need("a library", f"{prefix}ar"),
                     getattr(dialect, "machine", ""))  # fmt: skip


def source_objects(source: CSource, tools: Tools) -> dict[str, bytes]:
    """A program written in C as object code."""
    command = [tools.compiler, *STANDARD, tools.machine, "-fPIC", "-Wno-psabi", "-c", f"{source.stem}.c"]
    files = {**headers(), **source.headers, f"{source.stem}.c": source.library_text}
    return toolchain.run([command], files, ["*.o"])


def write_library(
    directory: str | Path, name: str, objects: Mapping[str, bytes], header: str, kind: Kind, tools: Tools, store: Any
) -> list[Path]:
    """Write `lib<name>.a` or `lib<name>.so`, `<name>.h` and `pto_runtime.h`; their paths.

    objects: the program, file name -> object code; store: as for `runtime_objects`.  Raises ToolchainError when a
    tool fails.
    """
    if kind not in ("static", "shared"):
        raise ArgumentError(f'PTO-A060: there is no library of kind {kind!r}\nhelp: "static" or "shared"')
    files = {**objects, **{f"runtime_{n}": code for n, code in runtime_objects(tools, store).items()}}
    if kind == "static":
        result = f"lib{name}.a"
        command = [tools.archiver, "rcs", result, *files]
    else:
        result = f"lib{name}.so"
        command = [tools.compiler, "-shared", "-pthread", "-o", result, *files, "-lm"]
    made = toolchain.run([command], files, [result])
    made |= {f"{name}.h": header.encode(), "pto_runtime.h": (RUNTIME / "pto_runtime.h").read_bytes()}
    root = Path(directory)
    root.mkdir(parents=True, exist_ok=True)
    paths = []
    for file, content in made.items():
        (root / file).write_bytes(content)
        paths.append(root / file)
    return paths


def runtime_objects(tools: Tools, store: Any) -> dict[str, bytes]:
    """The run-time library as object code, file name -> bytes.

    store: keeps it on disk, where the compiler takes seconds (an object with `load(key)` and `store(key, metadata,
    code)`); None compiles it.
    """
    sources = {p.name: p.read_bytes() for p in sorted(RUNTIME.glob("*.[ch]"))}
    command = [tools.compiler, *_RUNTIME_FLAGS, "-c", *(n for n in sources if n.endswith(".c"))]
    inputs = (command, sorted(sources.items()), toolchain.identity(tools.compiler))
    key = hashlib.sha256(repr(inputs).encode()).hexdigest()
    found = None if store is None else store.load(key)
    if found is not None:
        sizes, code = found
        ends = list(accumulate(sizes.values()))
        return {name: code[end - size : end] for (name, size), end in zip(sizes.items(), ends, strict=True)}
    objects = toolchain.run([command], sources, ["*.o"])
    if store is not None:
        store.store(key, {name: len(code) for name, code in objects.items()}, b"".join(objects.values()))
    return objects
