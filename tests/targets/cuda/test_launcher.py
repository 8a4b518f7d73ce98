# SPDX-License-Identifier: MIT
"""The written host side of CUDA programs, run on a driver whose device is this process, with emulated kernels."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.bench.kernels import matrix, rows
from pto_jit.targets.cuda import devices
from pto_jit.targets.cuda.launcher import versions_of

HERE = Path(__file__).parent
needs_compilers = pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("g++")), reason="needs gcc and g++")
_NVCC = Path(shutil.which("nvcc") or "/nowhere/nowhere").resolve()
TOOLKIT = [d for d in (_NVCC.parents[1] / "include", Path("/usr/local/cuda/include")) if (d / "cuda.h").exists()]
GLUE = """
#include "pto_cuda_host.h"
int glue_size(void) { return (int)sizeof(pto_worker); }
int glue_finish(pto_worker *w) { return pto_cuda_finish(w); }
int glue_site(pto_worker *w, int64_t *v) { memcpy(v, w->v, sizeof w->v); return w->site; }
void glue_begin(void) { cuInit(0); cuCtxSetCurrent((CUcontext)(void *)1); }
void glue_free(pto_worker *w, void *p) { pto_buffer_free(w, p); }
"""


@pto.jit
def smoothed(x, y, n):
    """Two kernels through a tensor made here, in a loop of the host, which reads and writes elements."""
    t = pl.full([x.shape[0], 64], 1.0, pl.f64)
    for k in pl.range(n):
        for r in pl.range(0, x.shape[0], chunk=4):
            pl.store(pl.load(x, [r, 0], [1, 64]) + pl.load(t, [r, 0], [1, 64]), [r, 0], t)
        if k % 2 == 0:
            t[0, 0] = t[1, 1] * 2.0
    for r in pl.range(0, x.shape[0], chunk=4):
        pl.store(pl.load(t, [r, 0], [1, 64]), [r, 0], y)
    return t, x.shape[0] * 2


class Program:
    """A written CUDA program, compiled for the fake driver and loaded."""

    def __init__(self, compiled: Any, directory: Path) -> None:
        compiled.write(directory)
        host = compiled._kernel.built.program.host
        for name, version in versions_of(host.entry, host.all_kernels()).items():
            code = devices.emulated_code(version.kernel, version.spread)
            (directory / f"{name}.cubin").write_bytes(code)
        name = compiled.name
        (directory / "glue.c").write_text(GLUE)
        command = ["gcc", "-std=c11", "-O0", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-fPIC", "-shared",
                   f"-I{HERE / 'include'}", f"{name}_orchestration.c", "glue.c", "-o", "program.so", "-lm"]  # fmt: skip
        subprocess.run(command, cwd=directory, check=True)
        fake = ["gcc", "-shared", "-fPIC", "-w", f"-I{HERE / 'include'}", str(HERE / "fake_driver.c"), "-ldl",
                "-o", "libfake.so"]  # fmt: skip
        subprocess.run(fake, cwd=directory, check=True)
        ctypes.CDLL(str(directory / "libfake.so"), ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(directory / "program.so"))
        self.worker = ctypes.create_string_buffer(self.library.glue_size())
        self.library.glue_begin()
        assert self.library[f"{name}_open"](self.worker, str(directory).encode()) == 0
        self.function = self.library[name]
        self.failure = self.library[f"{name}_failure"]
        self.failure.restype = ctypes.c_char_p

    def __call__(self, *args: Any) -> int:
        """Pass arrays as their addresses, numbers as 64 bits; wait."""
        given = [ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else a for a in args]
        status = self.function(self.worker, *(ctypes.c_int64(a) if isinstance(a, int) else a for a in given))
        return status or self.library.glue_finish(self.worker)

    def said(self) -> str:
        values = (ctypes.c_int64 * 3)()
        site = self.library.glue_site(self.worker, values)
        return self.failure(site).decode().format(*values)


@needs_compilers
def test_a_program_launches_its_kernel_and_reports_failures(tmp_path: Path) -> None:
    matrix_spec = pto.spec((None, None), pl.f32)
    program = Program(rows.softmax.compile(matrix_spec, matrix_spec, target="cuda"), tmp_path)
    x = np.random.default_rng(0).standard_normal((70, 33), dtype=np.float32)
    y = np.zeros_like(x)
    assert program(x, 70, 33, y, 70, 33) == 0
    e = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(axis=1, keepdims=True), rtol=1e-6)
    wide = np.random.default_rng(1).standard_normal((3, 20001), dtype=np.float32)
    narrow = np.zeros_like(wide)
    assert program(wide, 3, 20001, narrow, 3, 20001) == 0  # by the kernel that goes over rows in passes
    e = np.exp(wide - wide.max(axis=1, keepdims=True))
    np.testing.assert_allclose(narrow, e / e.sum(axis=1, keepdims=True), rtol=1e-5)
    assert program(x, 70, 33, x[1:], 69, 33) == 1 and "PTO-X131" in program.said()
    assert program(x, 0, 33, y, 0, 33) == 0  # no iterations: nothing is launched


@needs_compilers
def test_extents_of_parts_are_known(tmp_path: Path) -> None:
    """Programs over vectors of any length are compiled for the parts that these are divided into."""

    @pto.jit
    def summed(x, y):
        y[...] = pl.cumsum(pl.exp(x), axis=0) * 0.5

    spec = pto.spec((None,), pl.f32)
    program = Program(summed.compile(spec, spec, target="cuda"), tmp_path)
    for n in (1, 5003, 16384, 30011):
        x = np.random.default_rng(n).standard_normal(n, dtype=np.float32)
        y = np.zeros_like(x)
        assert program(x, n, y, n) == 0, program.said()
        np.testing.assert_allclose(y, np.cumsum(np.exp(x.astype(np.float64))) * 0.5, rtol=1e-5)


@needs_compilers
def test_host_code_makes_tensors_loops_and_accesses_elements(tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((9, 64))
    y, wanted = np.zeros_like(x), np.zeros_like(x)
    program = Program(smoothed.compile(x, y, 3, target="cuda"), tmp_path)
    expected, count = smoothed.interpret(x, wanted, 3)
    result, rows_, columns, number = ctypes.c_void_p(), ctypes.c_int64(), ctypes.c_int64(), ctypes.c_int64()
    places = [ctypes.byref(p) for p in (result, rows_, columns, number)]
    assert program(x, 9, 64, y, 9, 64, 3, *places) == 0
    np.testing.assert_array_equal(y, wanted)
    assert (rows_.value, columns.value, number.value) == (9, 64, count)
    assert result.value is not None
    values = np.ctypeslib.as_array(ctypes.cast(result, ctypes.POINTER(ctypes.c_double)), (9, 64))
    np.testing.assert_array_equal(values, expected)
    program.library.glue_free(program.worker, result)


@pto.jit
def repeated(x, y, n: pl.i64):
    t = pl.full([n, 64], 1.0, pl.f64)
    for r in pl.range(0, n, chunk=4):
        pl.store(pl.load(x, [r, 0], [1, 64]) + pl.load(t, [r, 0], [1, 64]), [r, 0], y)


@needs_compilers
def test_a_new_tensor_of_a_negative_extent_is_a_failure(tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((9, 64))
    y = np.zeros_like(x)
    program = Program(repeated.compile(x, y, 3, target="cuda"), tmp_path)
    assert program(x, 9, 64, y, 9, 64, 9) == 0
    np.testing.assert_array_equal(y, x + 1)
    assert program(x, 9, 64, y, 9, 64, -3) == 1
    assert "PTO-H203: the extent -3 along axis 0 is negative" in program.said()


@pto.jit
def larger(x, y):
    for r in pl.range(0, x.shape[0], chunk=4):
        pl.store(pl.load(x, [r, 0], [1, 64]) > 0, [r, 0], y)


@pytest.mark.skipif(not TOOLKIT, reason="needs the CUDA toolkit")
@pytest.mark.parametrize(("kernel", "dtypes"), [(matrix.matmul_bf16, "bf16 bf16 bf16"), (larger, "u8 bool_")],
                         ids=["matmul_bf16", "larger"])  # fmt: skip
def test_host_code_compiles_with_nvidias_headers(kernel: Any, dtypes: str, tmp_path: Path) -> None:
    compiled = kernel.compile(*(pto.spec((None, None), getattr(pl, d)) for d in dtypes.split()), target="cuda")
    compiled.write(tmp_path)
    (tmp_path / "use.cc").write_text(f'#include "{compiled.name}.h"\n')
    flags = ["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", f"-I{TOOLKIT[0]}", "-o", "host.o", "-c"]
    for command in (["gcc", "-std=c11", *flags, f"{compiled.name}_orchestration.c"], ["g++", "-std=c++17", *flags, "use.cc"]):
        subprocess.run(command, cwd=tmp_path, check=True)


def test_the_text_of_host_code(golden: Callable[[str, str], None]) -> None:
    x = pto.spec((None, None), pl.f32)
    golden("softmax_orchestration.c", rows.softmax.compile(x, x, target="cuda").sources["softmax_orchestration.c"])
