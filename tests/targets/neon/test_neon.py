# SPDX-License-Identifier: MIT
"""NEON sources, cross-compiled and run under qemu: operations, whole kernels with two threads, tasks.

The inner loop of matrix products is looked at as instructions.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit import dtypes
from pto_jit.bench.kernels import matrix, rows
from pto_jit.targets.c.native import STANDARD
from tests.targets.c.everything import SUMS, Everything, Products, product
from tests.targets.c.harness import close
from tests.targets.c.standalone import ARM, Programs, needs_arm

DTYPES = ("f16", "bf16", "f32", "f64", "i8", "u16", "i32", "u64")  # floats, and integers of each width
COMPILER = ("aarch64-linux-gnu-gcc", "-march=armv8.2-a", "-static")


WIDTHS = (5, 12, 16, 20, 24, 64, 68)


@pto.jit
def known_widths(x: pl.Tensor[(3, 68), pl.f32], y: pl.Tensor[(len(WIDTHS), 3, 68), pl.f32]):
    """Rows of known lengths, in vectors to their end or with elements left."""
    for k, n in enumerate(WIDTHS):
        t = pl.load(x, [0, 0], [3, n])
        shifted = t - pl.max(t, axis=1, keepdims=True)
        y[k, :, :n] = shifted + pl.sum(shifted * shifted, axis=1, keepdims=True)


@needs_arm
def test_everything_agrees_with_numpy_under_qemu(tmp_path: Path) -> None:
    """Operations, every kernel of the benchmarks, and tasks, in one executable."""
    programs = Programs("neon")
    everything = Everything(programs, DTYPES)
    args = [np.random.default_rng(0).standard_normal((3, 68), np.float32), np.zeros((len(WIDTHS), 3, 68), np.float32)]
    expected = [a.copy() for a in args]
    known_widths.interpret(*expected)
    programs.add(known_widths, *args)
    binary = programs.build(tmp_path, COMPILER)
    for k, (failure, _) in enumerate(programs.run(tmp_path, (ARM[1], str(binary)))):
        assert failure is None, (k, failure)
    everything.compare()
    close(args[1], expected[1], 1e-6, "known widths")


@needs_arm
@pytest.mark.parametrize("machine", ["-march=armv8.2-a+dotprod", "-march=armv8.2-a"])
def test_products_of_every_kind_under_qemu(machine: str, tmp_path: Path) -> None:
    """With and without dot products of bytes."""
    programs = Programs("neon")
    products = Products(programs, SUMS if "dotprod" in machine else ("i8",))
    binary = programs.build(tmp_path, COMPILER, ("-O0", machine))
    for failure, _ in programs.run(tmp_path, (ARM[1], str(binary))):
        assert failure is None
    products.compare()


INNER = (("f32", "", "fmla", 0.87), ("f64", "", "fmla", 0.855), ("i32", "", "mla", 0.87), ("f16", "", "fmla", 0.87),
         ("i8", "+dotprod", "sdot", 0.87), ("u8", "+dotprod", "udot", 0.87))  # fmt: skip


@needs_arm
@pytest.mark.parametrize(("name", "extension", "instruction", "least"), INNER)
def test_the_inner_loop_of_products_is_multiply_adds(
    name: str, extension: str, instruction: str, least: float, tmp_path: Path
) -> None:
    x, y = (pto.spec((None, None), dtypes.BY_NAME[n]) for n in (name, SUMS.get(name, "f32")))
    product.compile(x, x, y, target="neon").write(tmp_path)
    file = next(p.name for p in tmp_path.glob("*.c") if "_block(" in p.read_text())
    command = [COMPILER[0], COMPILER[1] + extension, *STANDARD, "-I.", "-Iruntime", "-S", file, "-o", "product.s"]
    subprocess.run(command, cwd=tmp_path, check=True)
    best, block = (0, 1), []
    for line in map(str.strip, (tmp_path / "product.s").read_text().splitlines()):
        if re.match(r"[.\w]+:", line):
            best, block = max(best, (sum(x.startswith(instruction) for x in block), len(block))), []
        elif line and not line.startswith((".", "#", "//")):
            block.append(line)
    assert best[0] / best[1] >= least, best


def test_loops_are_written_with_intrinsics() -> None:
    x = pto.spec((None, None), pl.f32)
    sources = rows.softmax.compile(x, x, target="neon").sources
    assert {"softmax_incore_0.c", "softmax_orchestration.c", "softmax.h", "softmax.pto", "pto_neon.h", "README.md"} <= set(sources)
    text = sources["softmax_incore_0.c"] + sources["softmax_functions.h"]
    for part in ("vld1q_f32", "vst1q_f32", "pto_exp_f32x4(vsubq_f32(", "vfmaq_f32", "#include \"pto_neon.h\""):
        assert part in text


def test_a_loop_over_a_known_number_of_elements_has_no_rest_where_vectors_end_with_it() -> None:
    types = pto.spec((3, 68), pl.f32), pto.spec((len(WIDTHS), 3, 68), pl.f32)
    sources = known_widths.compile(*types, target="neon").sources
    text = sources["known_widths_incore_0.c"]
    ended = re.findall(r"for \(int64_t j\w* = 0; j\w* < (\d+); j\w* \+= \d+\)", text)
    left = re.findall(r"for \(; j\w* < (\d+); \+\+j\w*\)", text)
    assert {int(n) for n in ended} == {12, 16, 24, 64}
    assert {int(n) for n in left} == {5, 20, 68}


def test_the_text_of_a_loop(golden: Callable[[str, str], None]) -> None:
    """Two vectors at a time, then element by element."""
    x = pto.spec((None, None), pl.f32)
    golden("softmax_incore_0.c", rows.softmax.compile(x, x, target="neon").sources["softmax_incore_0.c"])


def test_the_text_of_a_product(golden: Callable[[str, str], None]) -> None:
    x = pto.spec((None, None), pl.f32)
    golden("matmul_incore_0.c", matrix.matmul.compile(x, x, x, target="neon").sources["matmul_incore_0.c"])


def test_a_launch_on_another_processor_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    x = np.ones((2, 3), np.float32)
    with pytest.raises(pto.TargetError, match="PTO-X201"):
        rows.softmax.compile(x, x.copy(), target="neon")(x, x.copy())


@pto.jit
def running(x, y, n):
    """The online softmax's largest number and weighted sum: rows in memory of known size, of which some are used."""
    most, total = pl.full([16, 1], -1e30, pl.f32), pl.zeros([16, 32], pl.f32)
    for j in pl.range(n):
        t = pl.load(x, [j, 0], [16, 32])
        now = pl.maximum(most, pl.max(t, axis=1, keepdims=True))
        total, most = total * pl.exp(most - now) + t, now
    pl.store(total / most, [0, 0], y)


@needs_arm
def test_what_vectors_leave_of_a_row_is_compiled_without_warnings(tmp_path: Path) -> None:
    x = pto.spec((None, None), pl.f32)
    running.compile(x, x, 3, target="neon").write(tmp_path)
    command = [*COMPILER[:2], *STANDARD, "-Wall", "-Wextra", "-Werror", "-I.", "-Iruntime", "-c", "running_incore_0.c"]
    subprocess.run(command, cwd=tmp_path, check=True)


@pto.jit
def waves(x, y):
    for r in pl.range(x.shape[0]):
        pl.store(pl.sin(pl.load(x, [r, 0], [1, 256])), [r, 0], y)


@needs_arm
def test_the_sine_of_a_vector_is_a_part_of_its_loop(tmp_path: Path) -> None:
    """The way of huge numbers, which is long, is not."""
    x = pto.spec((None, 256), pl.f32)
    waves.compile(x, x, target="neon").write(tmp_path)
    command = [*COMPILER[:2], *STANDARD, "-I.", "-Iruntime", "-S", "waves_incore_0.c", "-o", "waves.s"]
    subprocess.run(command, cwd=tmp_path, check=True)
    called = set(re.findall(r"\tbl\t(\w+)", (tmp_path / "waves.s").read_text()))
    assert "pto_sine_of_huge_f32x4" in called and "pto_sin_f32x4" not in called
