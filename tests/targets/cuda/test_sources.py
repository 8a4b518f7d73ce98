# SPDX-License-Identifier: MIT
"""The written sources: golden text of small kernels, and what NVIDIA's compiler says of them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.bench.kernels import attention, elementwise, grids, matrix, rows
from pto_jit.slotted import replace
from pto_jit.targets import toolchain
from pto_jit.targets.cuda import compilers, nvrtc
from pto_jit.targets.cuda.devices import headers
from pto_jit.targets.cuda.spreads import LARGEST, fit

needs_nvcc = pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")
needs_nvrtc = pytest.mark.skipif(not nvrtc.libraries(), reason="needs NVRTC")
SCALAR, VECTOR, MATRIX, CUBE = (pto.spec((None,) * n, pl.f32) for n in (0, 1, 2, 3))
HALVES, HALF, MANY_ROWS = pto.spec((None,), pl.bf16), pto.spec((None, None), pl.bf16), pto.spec((4096, None), pl.bf16)


@pto.jit
def to_rank_0(x, y):
    """C++ has no arrays without elements; GNU's has."""
    with pl.incore():
        for i in pl.range(0, x.shape[0], 8):
            y[()] += pl.sum(pl.load(x, [i, 0], [8, 64]))


@pto.jit
def of_unsigned(x: pl.Tensor, y: pl.Tensor):
    """Signs that there are not."""
    for r in pl.range(x.shape[0], parallel=True):
        y[r] = abs(x[r] % 7) + x[r] // pl.u32(3) + x[r] ** 3


@pto.jit
def by_key(x: pl.Tensor, v: pl.Tensor, y: pl.Tensor, top: pl.Tensor):
    for i in pl.range(x.shape[0], parallel=True):
        pl.atomic_add(y, [x[i], 1], v[i])
        pl.atomic_max(top, [x[i]], v[i])


KERNELS: dict[str, tuple[Any, tuple[Any, ...], tuple[str, ...]]] = {
    "vector_add": (elementwise.vector_add, (VECTOR,) * 3, ()),
    "softmax": (rows.softmax, (MATRIX,) * 2, ("TC=1024", "TR=1", "MOST_X_D1=16384")),
    "layer_norm": (rows.layer_norm, (MATRIX, VECTOR, VECTOR, MATRIX), ("TC=32", "TR=8", "MOST_X_D1=512")),
    "mandelbrot": (grids.mandelbrot, (VECTOR, VECTOR, pto.spec((None, None), pl.i32)), ()),
    "of_unsigned": (of_unsigned, (pto.spec((None, None), pl.u32),) * 2, ()),
    "by_key": (by_key, (pto.spec((None,), pl.i32), HALVES, pto.spec((None, 2), pl.bf16), HALVES),
               ("BINS_Y=256", "BINS_TOP=128")),
    "to_rank_0": (to_rank_0, (MATRIX, SCALAR), ()),
    "matmul_bf16": (matrix.matmul_bf16, (MANY_ROWS, HALF, MANY_ROWS), ()),
    "matmul_tiled": (matrix.matmul_tiled, (MATRIX,) * 3, ()),
    "attention": (attention.attention, (CUBE,) * 4, ("MOST_Q_D2=64", "STAGES=1")),
}


def kernel_of(name: str) -> tuple[str, str]:
    fn, args, _ = KERNELS[name]
    sources = fn.compile(*args, target="cuda").sources
    return next((n, t) for n, t in sources.items() if n.endswith(".cu"))


@pto.jit
def running_sum(x, y):
    y[...] = pl.cumsum(x, axis=0) * 2.0


def test_a_long_line_in_chunks(golden: Callable[[str, str], None]) -> None:
    """What each chunk is scanned by, from what all before it come to."""
    sources = running_sum.compile(VECTOR, VECTOR, target="cuda").sources
    *_, last = (n for n in sources if n.endswith(".cu"))
    golden("running_sum.cu", sources[last])


@needs_nvcc
def test_all_kernels_of_a_long_line_compile_without_warnings_and_spills() -> None:
    """As the README says, for the parts that they are given."""
    sources = running_sum.compile(VECTOR, VECTOR, target="cuda").sources
    commands = re.findall(r"^nvcc .*-o (\S+)\.cubin (\S+)$", sources["README.md"], re.MULTILINE)
    assert len(commands) == 4
    for line in re.findall(r"^nvcc .*$", sources["README.md"], re.MULTILINE):
        command = [*line.split(), "-Werror", "all-warnings", "-Xptxas", "-Werror,-warn-spills"]
        cubin = command[command.index("-o") + 1]
        toolchain.build(command, sources, cubin)


@pytest.mark.parametrize("name", ["vector_add", "softmax", "matmul_bf16"])
def test_small_kernels_read_as_expected(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}.cu", kernel_of(name)[1])


@needs_nvcc
@pytest.mark.parametrize("name", [n for n in KERNELS if n != "matmul_tiled"])
def test_kernels_compile_without_warnings_and_spills(name: str) -> None:
    file, text = kernel_of(name)
    files = {**headers(), file: text}
    defines = [f"-D{d}" for d in KERNELS[name][2]]
    for arch in ("sm_80", "sm_90") if name in ("softmax", "by_key") else ("sm_90",):
        flags = ["-std=c++17", "-cubin", f"-arch={arch}", "--fmad=false", "-Werror", "all-warnings", "-Xptxas",
                 "-Werror,-warn-spills"]  # fmt: skip
        toolchain.build(["nvcc", *flags, *defines, "-o", "kernel.cubin", file], files, "kernel.cubin")


@needs_nvrtc
@pytest.mark.parametrize("name", [n for n in KERNELS if n != "matmul_tiled"])
def test_kernels_compile_by_nvrtc(name: str) -> None:
    flags = ["-std=c++17", "--gpu-architecture=sm_90", "--fmad=false", *(f"-D{d}" for d in KERNELS[name][2])]
    code = nvrtc.compile_source(nvrtc.libraries()[0], kernel_of(name)[1], headers(), flags)
    assert code.startswith(b"\x7fELF")


def test_a_written_directory_is_complete_and_says_nothing_of_this_machine(tmp_path: Path) -> None:
    compiled = rows.softmax.compile(MATRIX, MATRIX, target="cuda")
    written = {p.name for p in compiled.write(tmp_path)}
    texts = {n: (tmp_path / n).read_text() for n in written}
    for text in texts.values():
        assert all(included in written for included in re.findall(r'#include "(.*)"', text) if "pto" in included)
        assert str(Path.cwd()) not in text
    assert "nvcc" in texts["README.md"] and "softmax_incore_0.cu" in texts["README.md"]


def test_the_last_stage_is_the_program_divided_into_kernels() -> None:
    compiled = matrix.matmul_bias_gelu.compile(MATRIX, MATRIX, VECTOR, MATRIX, target="cuda")
    assert compiled.stages[-1] == "kernels"
    text = compiled.ir("kernels")
    assert text.count("CALL @") == 4 and "tgelu" in text and "{kind=parallel}" in text


def test_loops_are_not_cut_into_pieces_for_workers() -> None:
    compiled = rows.softmax.compile(MATRIX, MATRIX, target="cuda")
    assert "scheduled" not in compiled.stages and all(d.kind != "grain" for d in compiled.decisions)


def test_loops_of_a_nest_are_one_launch() -> None:
    compiled = grids.mandelbrot.compile(*KERNELS["mandelbrot"][1], target="cuda")
    text = compiled.sources["mandelbrot_incore_0.cu"]
    assert "blockIdx.y" in text and "threadIdx.x" in text and text.count("__global__") == 1


@pto.jit
def every_extreme(x, y):
    with pl.incore():
        t = pl.load(x, [0, 0], [128, 256])
        total = pl.sum(t, axis=1, keepdims=True) * pl.sum(t, axis=0, keepdims=True)
        least = pl.min(t, axis=0, keepdims=True) * pl.argmin(t, axis=0, keepdims=True)
        most = pl.max(t, axis=0, keepdims=True) * pl.argmax(t, axis=0, keepdims=True)
        pl.store(total * least * most, [0, 0], y)


@needs_nvcc
def test_all_reductions_of_a_kernel_fit_what_it_may_declare() -> None:
    spec = pto.spec((None, None), pl.f64)
    (kernel,) = every_extreme.compile(spec, spec, target="cuda")._kernel.built.program.host.kernels.values()
    spread, _ = fit(kernel, {}, [(128, 256)], [], LARGEST)
    assert spread.block[0] * spread.block[1] == 1024
    assert compilers.compile_kernel(replace(kernel, store=None), spread, "sm_90").startswith(b"\x7fELF")


@pto.jit
def doubled(x, y):
    y[...] = x * 2.0 + 1.0


@pto.jit
def transposed(x, y):
    n, m = x.shape
    with pl.incore():
        for i in pl.range(0, n, 64, parallel=True):
            for j in pl.range(0, m, 64, parallel=True):
                pl.store(pl.load(x, [i, j], [64, 64]).T, [j, i], y)


@needs_nvcc
@pytest.mark.parametrize("fn", [doubled, transposed, rows.softmax])
@pytest.mark.parametrize("dtype", [pl.f32, pl.f16, pl.f64])
def test_runs_are_stored_as_a_whole(fn: Any, dtype: Any) -> None:
    """Beside each single store there is one of 16 bytes, whose elements the compiler does not store one by one."""
    spec = pto.spec((None, None), dtype)
    sources = fn.compile(spec, spec, target="cuda").sources
    file = next(n for n in sources if n.endswith(".cu"))
    text = toolchain.build(["nvcc", "-std=c++17", "-ptx", "-arch=sm_90", "--fmad=false", "-o", "kernel.ptx", file],
                           {**headers(), file: sources[file]}, "kernel.ptx").decode()  # fmt: skip
    stores = re.findall(r"st\.global(?:\.v(\d))?\.\w(\d+)", text)
    sizes = [int(count or 1) * int(bits) // 8 for count, bits in stores]
    single = dtype.bits // 8
    assert set(sizes) == {16, single} and sizes.count(16) * 16 == sizes.count(single) * single
