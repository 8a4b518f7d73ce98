# SPDX-License-Identifier: MIT
"""Line tables of machine code (`pto.config.debug_info`), read back from the object code."""

from __future__ import annotations

import os
import re
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.targets.cpu.linetable import Row, read

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads ELF objects")

X = np.linspace(-1, 3, 512, dtype=np.float32).reshape(64, 8)


def decay(value: Any, by: Any) -> Any:
    return value * value * by  # in the table as an inlined function


def kernel(x: pl.Tensor, y: pl.Tensor, n: int):
    rows, cols = x.shape
    total = 0.5
    for i in pl.range(n):
        if x[i, 0] > 2:
            total += x[i, 1]
        else:
            total = decay(x[i, 2], total)
    for r in pl.range(0, rows, 2, chunk=4):
        t = pl.load(x, [r, 0], [2, 8])
        e = pl.exp(
            t - pl.max(t, axis=1, keepdims=True))  # fmt: skip
        pl.store(e / pl.sum(e, axis=1, keepdims=True) + total, [r, 0], y)


def table_of(compiled: Any) -> list[Row]:
    return read(compiled._kernel.built.program.object_bytes)[1]


def line(text: str) -> int:
    return next(k for k, found in enumerate(Path(__file__).read_text().splitlines(), 1) if text in found)


def test_every_kind_of_statement_has_its_line() -> None:
    pto.config.debug_info = True
    made = pto.jit(kernel)
    y = np.zeros_like(X)
    rows = table_of(made.compile(X, y, 40))
    assert rows and {r.filename for r in rows} == {__file__}
    found = {r.line for r in rows}
    for text in ("    if x[i, 0] > 2", "total += x[i, 1]", "return value * value * by", "t = pl.load(x, [r, 0]",
                 "e = pl.exp(", "t - pl.max(t, axis=1", "pl.store(e / pl.sum(e"):  # fmt: skip
        assert line(text) in found, text
    first, last = kernel.__code__.co_firstlineno, line("pl.store(e / pl.sum(e")
    assert all(first <= k <= last or k in (0, line("return value * value"), line("def decay")) for k in found)
    functions, _ = read(made.compile(X, y, 40)._kernel.built.program.object_bytes)
    for r in rows:  # each lies in a function
        assert any(f.section == r.section and f.start <= r.address <= f.start + f.size for f in functions)


def test_the_code_is_the_same_and_so_are_the_results() -> None:
    plain, with_lines = np.zeros_like(X), np.zeros_like(X)
    pto.jit(cache=False)(kernel)(X, plain, 40)
    pto.config.debug_info = True
    made = pto.jit(kernel)
    made(X, with_lines, 40)
    assert plain.tobytes() == with_lines.tobytes()
    assert made.specializations()[0].origin == "compiled"


def test_without_the_setting_there_is_none_of_it() -> None:
    compiled = pto.jit(cache=False)(kernel).compile(X, X.copy(), 40)
    assert table_of(compiled) == [] and "!dbg" not in compiled.ir("llvm") and "DILocation" not in compiled.ir("llvm")


def test_the_setting_makes_new_code_of_a_known_kernel_and_back() -> None:
    made = pto.jit(kernel)
    y = np.zeros_like(X)
    for on in (False, True, False):
        pto.config.debug_info = on
        assert bool(table_of(made.compile(X, y, 40))) == on
    assert len(made.specializations()) == 2


def test_the_assembly_says_which_lines_it_is_from() -> None:
    pto.config.debug_info = True
    assembly = pto.jit(kernel).compile(X, X.copy(), 40).ir("assembly")
    assert f'"{__file__}"' in assembly and re.search(rf"\.loc\s+\d+ {line('e = pl.exp(')} ", assembly)


def test_perf_finds_functions_bytes_and_lines(tmp_path: Path) -> None:
    pto.config.debug_info, pto.config.dump_dir = True, tmp_path
    made = pto.jit(kernel)
    y = np.zeros_like(X)
    made(X, y, 40)
    data = (tmp_path / f"jit-{os.getpid()}.dump").read_bytes()
    magic, version, at, _, _, process = struct.unpack_from("<IIIIII", data)
    assert (magic, version, process) == (0x4A695444, 1, os.getpid())
    names, lines = set(), set()
    while at < len(data):
        kind, size, _ = struct.unpack_from("<IIQ", data, at)
        body = data[at + 16 : at + size]
        if kind == 0:
            _, _, _, address, length, _ = struct.unpack_from("<IIQQQQ", body)
            name, _, code = body[40:].partition(b"\0")
            assert len(code) == length and address
            names.add(name.decode())
        else:
            assert kind == 2
            _, count = struct.unpack_from("<QQ", body)
            rest = body[16:]
            for _ in range(count):
                _, number, _ = struct.unpack_from("<Qii", rest)
                filename, _, rest = rest[16:].partition(b"\0")
                assert filename.decode() == __file__
                lines.add(number)
            assert not rest
        at += size
    assert at == len(data) and "pto_entry_kernel" in names
    assert line("e = pl.exp(") in lines and line("if x[i, 0] > 2") in lines


def several_at_a_time(x: pl.Tensor, n: int):
    for _ in range(n):
        for i in range(x.shape[0]):
            x[i] = x[i] * 0.999 + \
                1.0 / (1.0 + x[i])  # fmt: skip


def test_loops_that_run_several_iterations_at_a_time_have_their_lines() -> None:
    pto.config.debug_info = True
    compiled = pto.jit(several_at_a_time).compile(np.ones(100), 3)
    assert {line("1.0 / (1.0 + x[i])  #"), line("x[i] = x[i] * 0.999")} <= {r.line for r in table_of(compiled)}
