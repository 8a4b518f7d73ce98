# SPDX-License-Identifier: MIT
"""Compilers that a target may call: found on the PATH, run in a directory of their own."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from pto_jit.errors import ToolchainError


@cache
def find(*names: str) -> str | None:
    """The first of some programs that is installed."""
    return next((path for name in names if (path := shutil.which(name))), None)


def need(what: str, *names: str) -> str:
    """The path of a program; ToolchainError when there is none."""
    found = find(*names)
    if found is None:
        raise ToolchainError(f"PTO-X120: {what} needs {' or '.join(names)}, and none is on the PATH\n"
                             f"help: install it, or look at the sources with `compiled.sources`")  # fmt: skip
    return found


def identity(program: str) -> str:
    """What tells one installation of a compiler from another: the file behind its name, with size and time."""
    path = Path(program).resolve()
    found = path.stat()
    return f"{path}|{found.st_size}|{found.st_mtime_ns // 10**9}"


def build(command: Sequence[str], files: Mapping[str, str], result: str) -> bytes:
    """Run a compiler on some files, name -> text, in an empty directory; the bytes of the file that it makes.

    Raises ToolchainError with what the compiler said when it fails.
    """
    return run([command], files, [result])[result]


def run(
    commands: Sequence[Sequence[str]], files: Mapping[str, str | bytes], results: Sequence[str]
) -> dict[str, bytes]:
    """Run programs one after the other on some files in an empty directory; the files that they make.

    results: patterns of names, as of `Path.glob`.  Raises ToolchainError with what a program said when it fails.
    """
    with tempfile.TemporaryDirectory(prefix="pto_jit_") as directory:
        root = Path(directory)
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        for command in commands:
            done = subprocess.run([*command], cwd=directory, capture_output=True, text=True, errors="replace",
                                  check=False)  # fmt: skip
            if done.returncode != 0:
                said = "\n".join((done.stdout + done.stderr).strip().splitlines()[:20])
                raise ToolchainError(f"PTO-X121: {Path(command[0]).name} failed with code {done.returncode}:\n{said}\n"
                                     "help: this is a bug of pto_jit, unless the compiler is too old")  # fmt: skip
        found = sorted({path for pattern in results for path in root.glob(pattern)})
        return {str(path.relative_to(root)): path.read_bytes() for path in found}
