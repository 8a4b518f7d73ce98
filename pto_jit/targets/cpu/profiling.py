# SPDX-License-Identifier: MIT
"""Telling perf about machine code: a jitdump file with the functions, their bytes and their lines.

The format is `tools/perf/Documentation/jitdump-specification.txt` of Linux.  `perf record -k mono` notices that the
process maps the file, `perf inject --jit` makes images of its functions, `perf report` and `perf annotate` show lines.
"""

from __future__ import annotations

import atexit
import ctypes
import mmap
import os
import platform
import struct
import threading
import time
from functools import cache
from pathlib import Path
from typing import BinaryIO

from pto_jit.targets.cpu.linetable import read

_MACHINES = {"x86_64": 62, "AMD64": 62, "aarch64": 183, "arm64": 183}
_LOAD, _LINES = 0, 2


def tell_perf(data: bytes, entry: str, address: int, directory: Path | str) -> None:
    """Add the functions of a loaded object to `jit-<process>.dump` in `directory`.

    `address` is where the function `entry` lies.  What is in other sections than it (code that is hardly ever run) is
    left out: where those were loaded is not known.
    """
    functions, rows = read(data)
    first = next((f for f in functions if f.name == entry), None)
    if first is None:
        return
    file = _file(os.getpid(), str(directory))
    base = address - first.start
    for function in functions:
        if function.section != first.section:
            continue
        begin, end = function.start, function.start + function.size
        lines = [r for r in rows if r.section == function.section and begin <= r.address < end and not r.end and r.line]
        body = struct.pack("<QQ", base + begin, len(lines))
        for row in lines:
            body += struct.pack("<Qii", base + row.address, row.line, 0) + row.filename.encode() + b"\0"
        if lines:
            _write(file, _LINES, body)
        code = ctypes.string_at(base + begin, function.size)
        where = struct.pack("<IIQQQQ", os.getpid(), threading.get_native_id(), base + begin, base + begin, len(code),
                            _number(file))  # fmt: skip
        _write(file, _LOAD, where + function.name.encode() + b"\0" + code)
    file.flush()


@cache
def _file(process: int, directory: str) -> BinaryIO:
    """The file of this process (a child after a fork has its own), mapped as code, which is what perf looks for."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    file = (Path(directory) / f"jit-{process}.dump").open("w+b")
    machine = _MACHINES.get(platform.machine(), 0)
    file.write(struct.pack("<IIIIIIQQ", 0x4A695444, 1, 40, machine, 0, process, time.monotonic_ns(), 0))
    file.flush()
    _mapped.append(mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC))
    atexit.register(file.close)
    return file


_mapped: list[mmap.mmap] = []
_numbers: dict[BinaryIO, int] = {}


def _number(file: BinaryIO) -> int:
    """Functions have different numbers, whatever their names."""
    _numbers[file] = _numbers.get(file, 0) + 1
    return _numbers[file]


def _write(file: BinaryIO, kind: int, body: bytes) -> None:
    file.write(struct.pack("<IIQ", kind, 16 + len(body), time.monotonic_ns()) + body)
