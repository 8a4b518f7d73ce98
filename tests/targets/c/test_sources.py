# SPDX-License-Identifier: MIT
"""What is written: golden text of small kernels, complete directories, programs without Python, errors."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.targets import toolchain
from pto_jit.targets.c.native import STANDARD
from pto_jit.targets.c.tidy import Line, names_by_line, names_in, tidy, wrapped

from .harness import needs_compiler
from .standalone import Programs

MATRIX, VECTOR = pto.spec((None, None), pl.f32), pto.spec((None,), pl.f32)


@pto.jit
def scale(x: pl.Tensor, y: pl.Tensor, s: float):
    y[...] = x * s


@pto.jit
def largest(x: pl.Tensor, y: pl.Tensor):
    for i in pl.range(x.shape[0], parallel=True):
        y[i] = pl.max(pl.load(x, [i, 0], [1, 64]))


@pto.jit
def collatz(n: int):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@pto.jit
def doubled(x: pl.Tensor):
    y = pl.empty(x.shape, x.dtype)
    y[...] = x + x
    return y, x.shape[0]


@pto.jit
def picked(x: pl.Tensor, i: int):
    t = pl.load(x)
    return t[i : i + 1]


@pytest.mark.parametrize(
    ("kernel", "args"),
    [(scale, (VECTOR, VECTOR, 2.0)), (largest, (MATRIX, VECTOR)), (collatz, (7,))],
    ids=["scale", "largest", "collatz"],
)
def test_the_text_of_a_kernel(kernel: pto.JitFunction, args: tuple, golden: Callable[[str, str], None]) -> None:
    compiled = kernel.compile(*args, target="c")
    golden(f"{kernel.__name__}.c", compiled._kernel.built.source.text)


def test_the_files_of_a_program(golden: Callable[[str, str], None]) -> None:
    """A file per in-core function and orchestration, and headers: with the same text as one translation unit has."""
    sources = largest.compile(MATRIX, VECTOR, target="c").sources
    own = [n for n in sources if not n.startswith("runtime/")]
    assert own == ["largest.pto", "largest_incore_0.c", "largest_orchestration.c", "largest_functions.h", "largest.h",
                   "pto_elements.h", "README.md"]  # fmt: skip
    golden("largest.h", sources["largest.h"])
    unit = largest.compile(MATRIX, VECTOR, target="c")._kernel.built.source.text
    for name in ("largest_incore_0.c", "largest_orchestration.c"):
        for line in sources[name].splitlines()[3:]:
            assert line.startswith(("#include", "int32_t largest")) or line.strip() in unit, line


@needs_compiler
def test_a_launch_in_this_process() -> None:
    x = np.arange(6, dtype=np.float32)
    y = np.zeros_like(x)
    pto.jit(scale.__pto_jit__, target="c")(x, y, 0.5)
    np.testing.assert_array_equal(y, x / 2)
    result, extent = doubled.compile(x, target="c")(x)
    np.testing.assert_array_equal(result, x + x)
    assert extent == 6 and collatz.compile(27, target="c")(27) == 111


@needs_compiler
def test_compiled_sources_are_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time no compiler runs, for the same text; `cache=False` compiles."""
    monkeypatch.setattr(pto.config, "cache_dir", str(tmp_path))
    runs: list[str] = []
    run = toolchain.run
    monkeypatch.setattr(toolchain, "run", lambda *given: runs.append("cc") or run(*given))
    x = np.arange(4, dtype=np.float32)
    for options, count in (({}, 1), ({}, 1), ({"cache": False}, 2)):
        y = np.zeros_like(x)
        pto.jit(scale.__pto_jit__, target="c", **options)(x, y, 3.0)
        np.testing.assert_array_equal(y, 3 * x)
        assert len(runs) == count, options


@needs_compiler
def test_programs_without_python(tmp_path: Path) -> None:
    """A C program that links the sources and the run-time library, with two threads; one of its calls fails."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((50, 64), dtype=np.float32), np.zeros(50, np.float32)
    programs = Programs()
    programs.add(largest, x, y)
    programs.add(doubled, x[0].copy())
    programs.add(collatz, 27)
    programs.add(picked, x[0].copy(), -1)
    binary = programs.build(tmp_path, ("cc", "-march=native"))
    (first, _), (_, (twice, extent)), (_, (steps,)), (failure, _) = programs.run(tmp_path, (str(binary),))
    assert first is None and failure is not None and failure[0] != 0
    np.testing.assert_array_equal(y, x.max(axis=1))
    np.testing.assert_array_equal(twice, x[0] + x[0])
    assert (extent, steps) == (64, 111)


@needs_compiler
def test_a_failure_is_raised_at_its_line() -> None:
    x = np.ones(4, np.float32)
    with pytest.raises(pto.LaunchError, match=r"test_sources\.py"):
        picked.compile(x, -1, target="c")(x, -1)


@needs_compiler
def test_a_written_directory_is_complete(tmp_path: Path) -> None:
    largest.compile(MATRIX, VECTOR, target="c").write(tmp_path)
    for stale in ("largest_incore_1.c", "largest_incore_1.o", "runtime/task_old.c"):  # of an earlier program
        (tmp_path / stale).write_text("this is not C")
    commands = (tmp_path / "README.md").read_text().split("```\n")[1].replace("-O3", "-O0 -Werror -Wall -Wpedantic")
    subprocess.run(["sh", "-e", "-c", commands], cwd=tmp_path, check=True)
    said = subprocess.run(["ar", "t", "liblargest.a"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert {"largest_incore_0.o", "largest_orchestration.o", "task_graph.o"} <= set(said.split())
    assert not {"largest_incore_1.o", "task_old.o"} & set(said.split())
    for stale in ("largest_incore_1.o", "runtime/task_old.c"):
        (tmp_path / stale).unlink()
    assert (tmp_path / "runtime" / "pto_runtime.h").exists()
    for path in tmp_path.rglob("*"):
        assert path.suffix in (".o", ".a") or path.is_dir() or str(Path.home()) not in path.read_text()


@pto.jit
def runtime(NULL, outer, pto_min, linux, complex: float, M_PI):
    for r in pl.range(0, NULL.shape[0], chunk=4):
        e = pl.exp(pl.load(NULL, [r, 0], [1, 64]) * complex)
        pl.store(e + outer + linux, [r, 0], pto_min)
        M_PI[r, 0] = pl.sum(e)


@needs_compiler
def test_names_of_macros_and_of_the_library_may_be_used(tmp_path: Path) -> None:
    runtime.compile(MATRIX, 2, MATRIX, 3, 1.0, MATRIX, target="c").write(tmp_path)
    includes = "".join(f"#include <{name}.h>\n" for name in ("complex", "math", "stdio", "stdlib"))
    (tmp_path / "program.c").write_text(f'{includes}#include "runtime_2.h"\nint main(void) {{ return 0; }}\n')
    sources = [path.name for path in tmp_path.glob("*.c")]
    command = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-fsyntax-only", "-I.", "-Iruntime"]
    subprocess.run([*command, *sources], cwd=tmp_path, check=True)


@pto.jit
def of_the_lowest_integer(y, n, m):
    y[0] = n * -9223372036854775808
    y[1] = m + (-9223372036854775808) * n
    y[2] = (n * -9223372036854775808) * 3 + (-9223372036854775808) * m


@needs_compiler
def test_the_lowest_integer_as_a_factor_is_written_without_a_warning(tmp_path: Path) -> None:
    y = np.zeros(3, np.int64)
    compiled = of_the_lowest_integer.compile(y, 3, 5, target="c")
    compiled.write(tmp_path)
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-fsyntax-only", "-I.", "-Iruntime"]
    subprocess.run([*command, *[path.name for path in tmp_path.glob("*.c")]], cwd=tmp_path, check=True)
    compiled(y, 3, 5)
    assert y.tolist() == [-(2**63), 5 - 2**63, 0]


@pto.jit
def first_largest(x: pl.Tensor, number: pl.Tensor, out: pl.Tensor, axis: pl.constexpr):
    _, place = pl.reduce((x[...], number[...]), axis, lambda a, b: b if b[0] > a[0] else a)
    out[...] = place


@needs_compiler
@pytest.mark.parametrize("shape", [(3, 700), (700, 3)])
def test_a_fold_by_a_function_over_run_time_extents(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(2).integers(0, 50, shape).astype(np.float32)
    for axis in (0, 1):
        out, number = np.zeros(shape[1 - axis], np.int64), np.indices(shape)[axis]
        pto.jit(first_largest.__pto_jit__, target="c")(x, number, out, axis)
        np.testing.assert_array_equal(out, x.argmax(axis))


@pto.jit
def rows_of_tiles(x: pl.Tensor, y: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 16):
            for c in pl.range(0, x.shape[1], 64):
                t = pl.exp(pl.load(x, [r, c], [16, 64]))
                pl.store(t / pl.sum(t, axis=1, keepdims=True), [r, c], y)


@pto.jit
def long_rows(x: pl.Tensor, y: pl.Tensor):
    with pl.incore():
        for r in pl.range(x.shape[0]):
            t = pl.exp(pl.load(x, [r, 0], [1, 100000]))
            pl.store(t / pl.sum(t, axis=1, keepdims=True), [r, 0], y)


def test_rows_of_known_length_have_room_in_the_memory_of_the_function() -> None:
    x = pto.spec((None, None), pl.f32)
    text = rows_of_tiles.compile(x, x, target="c").sources["rows_of_tiles_incore_0.c"]
    assert "= pto_scratch_push(worker, 320);" in text
    assert text.count("= pto_scratch_push(") == 2  # the other where a store has to wait
    text = long_rows.compile(x, x, target="c").sources["long_rows_incore_0.c"]
    assert text.count("= pto_scratch_push(") == 2 and "+ 64, 64));" in text


@pto.jit
def padded_sums(x: pl.Tensor, y: pl.Tensor, first: int):
    with pl.incore():
        for j in pl.range(0, x.shape[1], 64):
            t = pl.load(x, [0, j], [4, 64], pad=1.5)
            u = pl.load(x, [0, j + 1], [4, 64], pad=0.0)
            pl.store(t + u, [0, j], y)
        for j in pl.range(first, x.shape[1], 64):
            pl.store(pl.load(x, [0, j], [4, 64], pad=0.0), [0, j], y)


def test_nothing_is_asked_or_computed_twice() -> None:
    x = pto.spec((None, None), pl.f32)
    text = padded_sums.compile(x, x, 0, target="c").sources["padded_sums_incore_0.c"]
    assert text.count("if (j < 0)") == 0 and text.count("if (j_1 < 0)") == 1  # a loop from 0, and one from anywhere
    assert "float *const x_1 = pto_padded_f32(memory_2, x + j, &stride, 4, 64, x_n0, x_n1 - j, 1.5f);" in text
    assert text.count("pto_padded_f32(") == 3 and text.count(" = x_n1;") == 3


def test_what_tidy_puts_where() -> None:
    lines = [
        Line(1, "a + b", name="sum", ctype="int64_t", level=13, kind="pure"),
        Line(1, "x[0]", name="first", ctype="float", level=16, kind="read"),
        Line(1, "y[0] = 1.0f;"),
        Line(1, "z[sum] = -first;"),
        Line(1, "c", name="unused", ctype="float", level=16, kind="pure"),
    ]
    assert [str(line) for line in tidy(lines)] == [
        "  const float first = x[0];", "  y[0] = 1.0f;", "  z[a + b] = -first;",
    ]  # fmt: skip


def test_long_lines_are_broken_behind_commas() -> None:
    text = "  call(" + ", ".join(["argument"] * 20) + ");"
    assert all(len(line) <= 120 for line in wrapped(text, 4).splitlines())
    assert wrapped(text, 4).replace("\n    ", " ") == text


def test_names_are_found_line_by_line() -> None:
    lines = [Line(1, "x = v.val[0] + w;"), Line(1, "}"), Line(1, "f(1.0f,\n  w, w_2);"), Line(1, "", name="w")]
    assert names_by_line(lines, ["v", "w", "val", "f"]) == [["v", "w"], [], ["f", "w"], []]
    lines = [Line(1, "// v.py:3"), Line(1, "// w.py:4"), Line(1, "f(v);")]
    assert names_by_line(lines, ["v", "w", "py", "f"]) == [[], [], ["f", "v"]]
    assert names_in("// v.py:3") == [] and names_in("f(v);") == ["f", "v"]


@needs_compiler
@pytest.mark.parametrize("name", ["k", "j", "x", "worker", "status"])
def test_files_may_have_the_names_of_variables(name: str, tmp_path: Path) -> None:
    import importlib.util

    (tmp_path / f"{name}.py").write_text(
        "import pto_jit as pto\nimport pto_jit.language as pl\n\n\n"
        "@pto.jit\ndef sums(x, y, n):\n"
        "    pl.store(pl.cumsum(pl.load(x), axis=0), [0, 0], y)\n"
        "    for j in pl.range(1, n, parallel=True):\n"
        "        y[j, 0] = 1.0\n"
    )
    spec = importlib.util.spec_from_file_location(f"named_{name}", tmp_path / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x, y = np.ones((8, 4), np.float32), np.zeros((8, 4), np.float32)
    module.sums.compile(x, y, 8, target="c")(x, y, 8)
    np.testing.assert_array_equal(y[:, 0], np.ones(8))
    np.testing.assert_array_equal(y[:, 1], np.arange(1, 9))


@pytest.mark.parametrize("target", ["c", "neon", "cuda"])
def test_no_variable_of_the_vector_math_is_assigned_to_itself(target: str) -> None:
    @pto.jit
    def rest(x, y):
        y[...] = x[...] % 3.0

    x = np.ones(64, np.float32)
    text = "\n".join(rest.compile(x, x, target=target).sources.values())
    assigned = [line.strip().removesuffix(";").split(" = ") for line in text.splitlines() if line.endswith(";")]
    assert "fmod" in text and [sides for sides in assigned if len(sides) == 2 and sides[0] == sides[1]] == []


@pto.jit
def extremes(x: pl.Tensor, y: pl.Tensor, places: pl.Tensor):
    for i in pl.range(x.shape[0], parallel=True):
        t = pl.load(x, [i, 0], [1, 64])
        y[i, 0:1] = pl.max(t, axis=1)
        y[i, 1:2] = pl.min(t * 2, axis=1)
        positive = t > 0
        places[i, 0:1] = pl.argmax(positive, axis=1)
        places[i, 1:2] = pl.argmin(positive, axis=1)


@needs_compiler
@pytest.mark.parametrize("dtype", [pl.f32, pl.f64, pl.bf16], ids=str)
def test_extremes_are_compiled_without_warnings(dtype: Any, tmp_path: Path) -> None:
    floats, places = pto.spec((None, None), dtype), pto.spec((None, None), pl.i32)
    extremes.compile(floats, floats, places, target="c").write(tmp_path)
    command = ["cc", *STANDARD, "-Wall", "-Wextra", "-Werror", "-I.", "-Iruntime", "-c", "extremes_incore_0.c"]
    subprocess.run(command, cwd=tmp_path, check=True)


@pytest.mark.skipif(shutil.which("clang") is None, reason="needs clang")
@pytest.mark.parametrize("dtype", [pl.f32, pl.f64], ids=str)
def test_clang_has_vectors_for_the_largest_float_of_a_row(dtype: Any, tmp_path: Path) -> None:
    floats, vector = pto.spec((None, None), dtype), pto.spec((None,), dtype)
    largest.compile(floats, vector, target="c").write(tmp_path)
    command = ["clang", *STANDARD, "-Wall", "-Wextra", "-Werror", "-I.", "-Iruntime", "-Rpass=loop-vectorize",
               "-Rpass-missed=loop-vectorize", "-c", "largest_incore_0.c"]  # fmt: skip
    said = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stderr
    assert "remark: vectorized loop" in said and "not vectorized" not in said, said


@pytest.mark.skipif(shutil.which("clang") is None, reason="needs clang")
def test_the_order_in_which_clang_looks_for_the_largest_float(tmp_path: Path) -> None:
    """Zeros, infinities, subnormal numbers and NaNs."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((8, 37)).astype(np.float32)
    rows[1], rows[2] = -np.inf, np.inf
    rows[3], rows[4, 5], rows[5] = -1e-40, np.nan, 0.0
    rows[6] = -np.abs(rows[6])
    largest.compile(MATRIX, VECTOR, target="c").write(tmp_path)
    numbers = ", ".join("NAN" if x != x else f"{'-' if x < 0 else ''}INFINITY" if np.isinf(x) else f"{float(x)!r}f"
                        for x in rows.ravel())  # fmt: skip
    (tmp_path / "main.c").write_text(f"""
#include <math.h>
#include <stdio.h>
#include "largest.h"
static const float x[] = {{{numbers}}};
int main(void) {{
  pto_runtime *runtime = NULL;
  float y[8];
  if (pto_runtime_create(NULL, &runtime) != PTO_OK || largest_launch(runtime, x, 8, 37, y, 8, NULL) != PTO_OK) return 1;
  for (int i = 0; i < 8; ++i) printf("%a\\n", y[i]);
  return 0;
}}
""")
    subprocess.run("clang -std=c11 -O3 -fwrapv -fno-strict-aliasing -fopenmp-simd -I. -Iruntime main.c largest_*.c "
                   "runtime/*.c -o main -lm -pthread", cwd=tmp_path, check=True, shell=True)  # fmt: skip
    said = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()
    np.testing.assert_array_equal(np.array([float.fromhex(s) for s in said], np.float32), np.max(rows, axis=1))
