# SPDX-License-Identifier: MIT
"""Libraries of the cpu and c targets, called by a C program that knows nothing of Python."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.cache import DiskCache
from pto_jit.ir.nodes import Call, Func, Module, Return
from pto_jit.lower.called import called
from pto_jit.targets.c import library
from pto_jit.targets.c.native import STANDARD

from .harness import needs_compiler

MATRIX = pto.spec((None, None), pl.f32)
PROGRAM = """
#include <math.h>
#include <stdio.h>
#include "attend.h"
#include "steps.h"

static int fails(const char *what) { printf("%s\\n", what); return 1; }

int main(void) {
  pto_options options;
  pto_options_default(&options);
  options.num_threads = 2;
  pto_runtime *runtime = NULL;
  if (pto_runtime_create(&options, &runtime) != PTO_OK) return fails("create");
  float q[6 * 8], k[5 * 8], *out = NULL;
  for (int i = 0; i < 48; ++i) q[i] = (float)(i % 7) - 3.0f;
  for (int i = 0; i < 40; ++i) k[i] = (float)(i % 5) - 2.0f;
  int64_t rows = 0, columns = 0;
  double best = 0;
  pto_failure failure;
  if (attend_launch(runtime, q, 6, 8, k, 5, 8, 0.5, &out, &rows, &columns, &best, &failure) != PTO_OK)
    return fails("attend");
  if (rows != 6 || columns != 5) return fails("extents");
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j < 5; ++j) {
      float sum = 0;
      for (int p = 0; p < 8; ++p) sum += q[8 * i + p] * k[8 * j + p];
      if (fabsf(out[5 * i + j] - expf(0.125f * sum)) > 1e-4f * expf(0.125f * sum)) return fails("product");
    }
  if (best != 1.5) return fails("number");
  pto_buffer_free(NULL, out);
  if (attend_launch(runtime, q, 6, 8, k, 5, 7, 0.5, &out, &rows, &columns, &best, &failure) == PTO_OK)
    return fails("no failure");
  printf("%s\\n", attend_failure(failure.site));
  float x[32], y[32];
  for (int i = 0; i < 32; ++i) x[i] = y[i] = (float)i;
  if (steps_launch(runtime, x, 8, 4, y, 8, 4, 4, &failure) != PTO_OK) return fails("steps");
  for (int i = 0; i < 32; ++i)
    if (y[i] != 8.0f * (float)(i % 8 + i / 8 * 8)) return fails("tasks");
  pto_runtime_release(runtime);
  printf("done\\n");
  return 0;
}
"""


@pto.jit
def attend(q, k, scale):
    out = pl.empty([q.shape[0], k.shape[0]], pl.f32)
    for r in pl.range(0, q.shape[0], chunk=4):
        t = pl.dot(pl.load(q, [r, 0], [1, 8]), pl.transpose(pl.load(k)))
        pl.store(pl.exp(t * 0.125), [r, 0], out)
    return out, scale * 3


@pto.incore
def double_rows(x, y):
    y[...] = pl.load(x) * 2.0


@pto.jit
def steps(x, y, n):
    for i in pl.range(n):
        r = i * 2
        double_rows(x[r : r + 2, :], y[r : r + 2, :])
        double_rows(y[r : r + 2, :], y[r : r + 2, :])
        double_rows(y[r : r + 2, :], y[r : r + 2, :])


@needs_compiler
@pytest.mark.parametrize("kind", ["static", "shared"])
@pytest.mark.parametrize("target", ["cpu", "c"])
def test_a_c_program_calls_a_library(
    target: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads; a product, a result tensor, a task graph and a failure."""
    monkeypatch.setattr(library, "_RUNTIME_FLAGS", ("-std=c11", "-O0", "-fPIC", "-pthread"))  # compiled once for all
    x = np.zeros((8, 4), np.float32)
    made = [attend.compile(MATRIX, MATRIX, 0.5, target=target).library(tmp_path, kind),
            steps.compile(x, x, 4, target=target).library(tmp_path, kind)]  # fmt: skip
    suffix = {"static": "a", "shared": "so"}[kind]
    assert [p.name for p in made[0]] == [f"libattend.{suffix}", "attend.h", "pto_runtime.h"]
    (tmp_path / "main.c").write_text(PROGRAM)
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]
    subprocess.run(["cc", *warnings, "main.c", "-o", "main", "-L.", "-lattend", "-lsteps", "-lm", "-pthread",
                    "-Wl,-rpath,."], cwd=tmp_path, check=True)  # fmt: skip
    said = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[-1] == "done" and "test_library.py:" in said[0] and "contraction" in said[0]


N = pl.dynamic("N")


@pto.jit
def doubled(x: pl.Tensor[[N], pl.f32], y: pl.Tensor[[N], pl.f32]):
    for i in pl.range(x.shape[0]):
        y[i] = x[i] * 2


added = pto.comprehension("def added(float(N) A, float(N) B) -> (C) {\n  C(i) = A(i) + B(i)\n}")
shifted = pto.comprehension(
    "def shifted(float(N) A, float(M) B, int32 s) -> (C) {\n  C(i) = A(i) + B(2 * i + s) where i in 0:N\n}"
)
SIZES = """
#include <stdio.h>
#include "added.h"
#include "doubled.h"
#include "shifted.h"

static void say(int32_t status, const pto_failure *failure, const char *(*text)(int32_t)) {
  if (status == PTO_OK) printf("ok\\n");
  else printf("%d: %s (%lld, %lld)\\n", status, text(failure->site), (long long)failure->v0, (long long)failure->v1);
}

int main(void) {
  pto_runtime *runtime = NULL;
  if (pto_runtime_create(NULL, &runtime) != PTO_OK) return 1;
  pto_failure failure;
  float x[10] = {0}, y[5] = {0}, *out = NULL;
  int64_t n = 0;
  say(doubled_launch(runtime, x, 5, y, 5, &failure), &failure, doubled_failure);
  say(doubled_launch(runtime, x, 10, y, 5, &failure), &failure, doubled_failure);
  say(doubled_launch(runtime, x, 10, y, -5, &failure), &failure, doubled_failure);
  if (doubled_launch(runtime, x, -1, y, -1, NULL) != PTO_FAILED) return 2;
  say(added_launch(runtime, x, 10, y, 5, &out, &n, &failure), &failure, added_failure);
  say(shifted_launch(runtime, y, 5, x, 10, 0, &out, &n, &failure), &failure, shifted_failure);
  say(shifted_launch(runtime, y, 5, x, 10, 1, &out, &n, &failure), &failure, shifted_failure);
  say(shifted_launch(runtime, y, 5, x, 10, 2, &out, &n, &failure), &failure, shifted_failure);
  say(shifted_launch(runtime, y, 5, x, 10, -1, &out, &n, &failure), &failure, shifted_failure);
  return 0;
}
"""


@needs_compiler
@pytest.mark.parametrize("target", ["cpu", "c"])
def test_sizes_of_arguments_are_checked_for_programs_without_python(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One symbol, or size of a comprehension, has one value; what subscripts demand of sizes; no negative extents."""
    monkeypatch.setattr(library, "_RUNTIME_FLAGS", ("-std=c11", "-O0", "-fPIC", "-pthread"))
    vector = pto.spec((None,), pl.f32)
    for function, more in ((doubled, ()), (added, ()), (shifted, (1,))):
        function.compile(vector, vector, *more, target=target).library(tmp_path)
    (tmp_path / "main.c").write_text(SIZES)
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]
    subprocess.run(["cc", *warnings, "main.c", "-o", "main", "-L.", "-ldoubled", "-ladded", "-lshifted", "-lm",
                    "-pthread"], cwd=tmp_path, check=True)  # fmt: skip
    said = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[0] == "ok"
    assert "test_library.py:" in said[1] and "PTO-H101" in said[1] and said[1].endswith("(10, 5)")
    assert "`N` is {0} (axis 0 of `x`) and {1} (axis 0 of `y`)" in said[1]
    assert said[2] == "1: LaunchError: PTO-H203: axis 0 of `y` has the extent {0}; extents are at least 0 (-5, 0)"
    assert "test_library.py:" in said[3] and "PTO-R021" in said[3] and said[3].endswith("(10, 5)")
    assert said[4:6] == ["ok", "ok"]
    assert all("test_library.py:" in line and "PTO-R024" in line for line in said[6:])


def test_what_is_no_library() -> None:
    with pytest.raises(pto.TargetError, match="PTO-X203"):
        steps.compile(MATRIX, MATRIX, 4, target="cuda").library("out")


@pto.jit
def of_halves(a, b, c):
    with pl.incore():
        pl.store(pl.dot(pl.load(a), pl.load(b)), [0, 0], c)


@needs_compiler
def test_a_product_of_bf16_runs_where_nobody_asked_for_matrix_tiles(tmp_path: Path) -> None:
    halves, sums = pto.spec((40, 40), pl.bf16), pto.spec((40, 40), pl.f32)
    of_halves.compile(halves, halves, sums).library(tmp_path, "static")
    (tmp_path / "main.c").write_text("""
#include <stdio.h>
#include "of_halves.h"
static uint16_t a[1600], b[1600];
static float c[1600];
int main(void) {
  pto_runtime *runtime = NULL;
  pto_failure failure;
  for (int i = 0; i < 1600; ++i) a[i] = b[i] = 0x3f80;
  if (pto_runtime_create(NULL, &runtime) != PTO_OK) return 1;
  if (of_halves_launch(runtime, a, b, c, &failure) != PTO_OK) return 2;
  for (int i = 0; i < 1600; ++i)
    if (c[i] != 40.0f) return 3;
  pto_runtime_release(runtime);
  return 0;
}
""")
    subprocess.run(["cc", "main.c", "-o", "main", "-L.", "-lof_halves", "-lm", "-pthread"], cwd=tmp_path, check=True)
    assert subprocess.run(["./main"], cwd=tmp_path, check=False).returncode == 0


@needs_compiler
def test_the_run_time_library_is_compiled_once_for_its_sources_and_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, runs = tmp_path / "sources", []
    sources.mkdir()
    (sources / "one.c").write_text('#include "both.h"\nint one(void) { return BOTH; }\n')
    (sources / "two.c").write_text('#include "both.h"\nint two(void) { return 2 * BOTH; }\n')
    (sources / "both.h").write_text("#define BOTH 3\n")
    run = library.toolchain.run
    monkeypatch.setattr(library, "RUNTIME", sources)
    monkeypatch.setattr(library.toolchain, "run", lambda *args: runs.append(args) or run(*args))
    tools, store = library.Tools.of(None), DiskCache(tmp_path / "cache")
    made = library.runtime_objects(tools, store)
    assert sorted(made) == ["one.o", "two.o"] and all(made.values()) and len(runs) == 1
    assert library.runtime_objects(tools, store) == made and len(runs) == 1
    assert library.runtime_objects(tools, None) == made and len(runs) == 2
    (sources / "both.h").write_text("#define BOTH 4\n")
    assert library.runtime_objects(tools, store) != made and len(runs) == 3


TWO = """
#include <math.h>
#include <stdio.h>
#include "norm_f32.h"
#include "norm_f64.h"
#include "scaled_2.h"
#include "scaled_3.h"

// The names of what is inside of the libraries are the program's.
int softmax(int x);
int softmax(int x) { return x + 1; }
int shift(void);
int shift(void) { return 7; }
int scaled = 5;

static int fails(const char *what) { printf("%s\\n", what); return 1; }

int main(void) {
  pto_runtime *runtime = NULL;
  pto_failure failure;
  if (pto_runtime_create(NULL, &runtime) != PTO_OK) return fails("create");
  float x[3 * 4], y[3 * 4];
  double u[3 * 4], v[3 * 4];
  for (int i = 0; i < 12; ++i) x[i] = (float)(u[i] = i * 1e-9 + i % 4);
  if (norm_f32_launch(runtime, x, 3, 4, y, 3, 4, &failure) != PTO_OK) return fails("f32");
  if (norm_f64_launch(runtime, u, 3, 4, v, 3, 4, &failure) != PTO_OK) return fails("f64");
  for (int r = 0; r < 3; ++r) {
    double sum = 0;
    for (int i = 4 * r; i < 4 * r + 4; ++i) sum += exp(u[i] - u[4 * r + 3]);
    for (int i = 4 * r; i < 4 * r + 4; ++i) {
      if (fabs(v[i] - exp(u[i] - u[4 * r + 3]) / sum) > 1e-15) return fails("wrong in f64");
      if (fabs((double)y[i] - v[i]) > 1e-6 || (double)y[i] == v[i]) return fails("wrong in f32");
    }
  }
  float a[64], b[64], c[64], d[64];
  for (int i = 0; i < 64; ++i) a[i] = b[i] = i / 8 == i % 8;
  if (scaled_2_launch(runtime, a, b, c, &failure) || scaled_3_launch(runtime, a, b, d, &failure)) return fails("scaled");
  for (int i = 0; i < 64; ++i)
    if (c[i] != 2 * a[i] || d[i] != 3 * a[i]) return fails("wrong factor");
  if (softmax(1) + shift() + scaled != 14) return fails("names");
  pto_runtime_release(runtime);
  printf("done\\n");
  return 0;
}
"""


@pto.incore
def shift(x, y):
    t = pl.load(x)
    e = pl.exp(t - pl.max(t, axis=1, keepdims=True))
    pl.store(e / pl.sum(e, axis=1, keepdims=True), y)


@pto.jit
def softmax(x, y):
    for r in pl.range(0, x.shape[0]):
        shift(x[r : r + 1, :], y[r : r + 1, :])


def scaled_by(factor: float):
    @pto.jit
    def scaled(a, b, c):
        with pl.incore():
            pl.store(pl.dot(pl.load(a), pl.load(b)) * factor, [0, 0], c)

    return scaled


@needs_compiler
@pytest.mark.parametrize("kind", ["static", "shared"])
@pytest.mark.parametrize("target", ["cpu", "c"])
def test_specialisations_of_one_function_go_into_one_program(
    target: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "_RUNTIME_FLAGS", ("-std=c11", "-O0", "-fPIC", "-pthread"))  # compiled once for all
    square = pto.spec((8, 8), pl.f32)
    made = {}
    for dtype in (pl.f32, pl.f64):
        x = pto.spec((None, None), dtype)
        compiled = softmax.compile(x, x, target=target)
        made[f"norm_{dtype}"] = compiled.library(tmp_path, kind, name=f"norm_{dtype}")
    for factor in (2, 3):
        compiled = scaled_by(factor).compile(square, square, square, target=target)
        made[f"scaled_{factor}"] = compiled.library(tmp_path, kind, name=f"scaled_{factor}")
    for name, paths in made.items():
        assert [p.name for p in paths] == [f"lib{name}.{ {'static': 'a', 'shared': 'so'}[kind]}", f"{name}.h",
                                           "pto_runtime.h"]  # fmt: skip
        shown = _symbols(paths[0], kind)
        products = {s for s in shown if s.startswith("pto_mm_")}
        assert {s for s in shown if not s.startswith("pto_")} == set() and f"pto_entry_{name}" in shown
        assert len([s for s in shown if s.startswith("pto_entry_")]) == 1
        assert bool(products) == (name.startswith("scaled") and (target, kind) == ("cpu", "static"))
    (tmp_path / "main.c").write_text(TWO)
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]
    subprocess.run(["cc", *warnings, "main.c", "-o", "main", "-L.", *(f"-l{name}" for name in made), "-lm", "-pthread",
                    "-Wl,-rpath,."], cwd=tmp_path, check=True)  # fmt: skip
    done = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("done\n", 0)


@needs_compiler
def test_specialisations_of_one_function_are_written_into_one_directory(tmp_path: Path) -> None:
    square = pto.spec((8, 8), pl.f32)
    for dtype in (pl.f32, pl.f64):
        x = pto.spec((None, None), dtype)
        softmax.compile(x, x, target="c").write(tmp_path, name=f"norm_{dtype}")
    for factor in (2, 3):
        compiled = scaled_by(factor).compile(square, square, square, target="c")
        files = [p.name for p in compiled.write(tmp_path, name=f"scaled_{factor}")]
        assert {f"scaled_{factor}.pto", f"scaled_{factor}_incore_0.c", f"scaled_{factor}_orchestration.c"} <= {*files}
    assert "@norm_f64_shift(" in (tmp_path / "norm_f64.pto").read_text()
    (tmp_path / "main.c").write_text(TWO)
    sources = sorted(map(str, [*tmp_path.glob("*.c"), *tmp_path.glob("runtime/*.c")]))
    subprocess.run(["cc", *STANDARD, "-O0", "-Iruntime", "-I.", *sources, "-o", "main", "-lm", "-pthread"],
                   cwd=tmp_path, check=True)  # fmt: skip
    done = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("done\n", 0)


@pytest.mark.parametrize("target", ["cpu", "c", "neon", "cuda", "ascend"])
def test_every_file_of_a_program_has_the_name_that_is_given(target: str, tmp_path: Path) -> None:
    compiled = softmax.compile(pto.spec((None, 64), pl.f32), pto.spec((None, 64), pl.f32), target=target)
    own = {f for f in compiled.sources if "softmax" in f or "shift" in f}
    compiled.write(tmp_path, name="norm")
    written = {p.name: p for p in tmp_path.iterdir() if not p.name.startswith("pto_") and p.is_file()}
    assert {f for f in written if f.startswith("norm")} == {_called_norm(f) for f in own} and len(own) >= 2
    for path in (p for p in written.values() if p.suffix != ".ll"):
        said = [line.split("//")[0] for line in path.read_text().splitlines() if "test_library.py" not in line]
        assert not [line for line in said if "softmax" in line]
    with pytest.raises(pto.ArgumentError, match="PTO-A062"):
        compiled.write(tmp_path, name="two words")


def _called_norm(file: str) -> str:
    return file.replace("softmax", "norm") if "softmax" in file else f"norm_{file}"


def test_names_of_functions_stay_apart() -> None:
    funcs = [Func(name, "incore", (), (), (Return(),)) for name in ("step_row", "row", "step_step_row")]
    calls = tuple(Call(f.name, ()) for f in funcs)
    module = Module("step", (Func("step", "orchestration", (), (), calls), *funcs), "step")
    found = called(module, "other")
    assert [f.name for f in found.funcs] == ["other", "other_row", "other_row_2", "other_step_row"]
    assert [c.callee for c in found.func("other").body] == ["other_row", "other_row_2", "other_step_row"]


def _symbols(path: Path, kind: str) -> set[str]:
    """What a linker sees of a library."""
    flags = ["-g", "--defined-only", *(["-D"] if kind == "shared" else [])]
    said = subprocess.run(["nm", *flags, path], capture_output=True, text=True, check=True).stdout
    return {line.split()[2] for line in said.splitlines() if len(line.split()) == 3}


@pytest.mark.parametrize("name", ["two words", "pto_softmax", "double", "", 3])
def test_a_name_that_functions_cannot_have(name: object, tmp_path: Path) -> None:
    for target in ("cpu", "c"):
        with pytest.raises(pto.ArgumentError, match="PTO-A062"):
            softmax.compile(MATRIX, MATRIX, target=target).library(tmp_path, name=name)
