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
from pto_jit.targets.c import library

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
