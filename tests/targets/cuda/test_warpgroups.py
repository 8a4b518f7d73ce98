# SPDX-License-Identifier: MIT
"""Products by warpgroups: the emulated instruction reads operands by its descriptors, and finds those that change."""

from __future__ import annotations

import shutil
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.bench.kernels import matrix
from pto_jit.device_kernel import emulate
from pto_jit.errors import LaunchError
from pto_jit.slotted import replace
from pto_jit.targets import toolchain
from pto_jit.targets.cuda import devices, forms
from pto_jit.targets.cuda.kernels import Kernel
from pto_jit.targets.cuda.spreads import LARGEST, SMALLEST, fit

from .harness import emulated, needs_compiler, of_the_emulation

pytestmark = needs_compiler
RNG = np.random.default_rng(8)


@pytest.fixture
def warpgroups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.EmulatedDevice, "warpgroups", True)


def normal(*shape: int, dtype: type = np.float16) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def kernels_of(fn: Any, *args: Any) -> list[Kernel]:
    return list(fn.compile(*args, target="cuda")._kernel.built.program.host.kernels.values())


def turned_product(m: int, n: int, left: bool, right: bool) -> Any:
    """c = a @ b, tiles of m x n; `left`, `right`: that operand is stored as its transpose."""

    @pto.jit
    def product(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
        (rows, columns), depth = c.shape, a.shape[0] if left else a.shape[1]
        for i in pl.range(0, rows, m, parallel=True):
            for j in pl.range(0, columns, n, parallel=True):
                acc = pl.zeros([m, n], pl.f32)
                for p in pl.range(0, depth, 64):
                    x = pl.load(a, [p, i], [64, m]).T if left else pl.load(a, [i, p], [m, 64])
                    y = pl.load(b, [j, p], [n, 64]).T if right else pl.load(b, [p, j], [64, n])
                    acc = pl.dot(x, y, acc)
                pl.store(acc, [i, j], c)

    return product


@pytest.mark.parametrize(
    ("m", "n", "left", "right", "depth"),
    [(128, 128, False, True, 300), (64, 192, True, False, 130), (128, 64, True, True, 64), (192, 64, False, False, 20)],
)
def test_operands_are_read_as_they_are_stored(
    warpgroups: None, m: int, n: int, left: bool, right: bool, depth: int
) -> None:
    a, b = normal(m + 10, depth), normal(depth, n + 8)
    c = np.zeros((m + 10, n + 8), np.float32)
    given = np.ascontiguousarray(a.T) if left else a, np.ascontiguousarray(b.T) if right else b
    fn = turned_product(m, n, left, right)
    assert kernels_of(fn, *given, c)[0].warpgroups
    _, (*_, out) = emulated(fn, *given, c, orders=(0, 5))
    np.testing.assert_allclose(out, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-5, atol=1e-4)


def test_whole_products_in_wide_tiles(warpgroups: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "_BLOCKS", 1)
    a, b = normal(130, 200, dtype=ml_dtypes.bfloat16), normal(200, 270, dtype=ml_dtypes.bfloat16)
    _, (*_, c) = emulated(matrix.matmul_bf16, a, b[:, 1:], np.zeros((130, 269), ml_dtypes.bfloat16), orders=(1,))
    expected = a.astype(np.float32) @ b[:, 1:].astype(np.float32)
    np.testing.assert_allclose(c.astype(np.float32), expected, rtol=2**-7, atol=2e-2)


def test_a_version_for_warpgroups_has_one_for_64_rows() -> None:
    """Of three stages or four, as lets two blocks run on a multiprocessor; or else it is the one of any device."""
    half = pto.spec((4096, 4096), pl.bf16)
    for fn, args, size, limit, expected in (
        (matrix.matmul_bf16, (half,) * 3, (128, 256), LARGEST, (8, 1, 4)),
        (matrix.matmul_bf16, (half,) * 3, (128, 256), SMALLEST, (8, 1, 3)),
        (turned_product(128, 128, False, False), (half, half, pto.spec((None, None), pl.f32)), (128, 128), LARGEST,
         (8, 1, 3)),
        (turned_product(192, 64, False, False), (half, half, pto.spec((None, None), pl.f32)), (192, 64), LARGEST,
         (4, 1, 3)),
    ):  # fmt: skip
        (kernel,) = kernels_of(fn, *args)
        spread, shared = fit(kernel, {}, [size], [9, 9], limit, warpgroups=True)
        defines = dict(spread.defines)
        assert (defines["WM"], defines["WN"], defines["STAGES"]) == expected and defines["WARPGROUPS"] == 1
        assert spread.block == (32 * expected[0], 1, 1) and shared == expected[2] * 128 * sum((size[0], size[1]))
    (kernel,) = kernels_of(matrix.matmul_bf16, *(half,) * 3)
    for limit, warpgroups in ((LARGEST, False), (3 * 48 * 1024 - 1, True)):
        assert dict(fit(kernel, {}, [(128, 256)], [9, 9], limit, warpgroups)[0].defines)["WARPGROUPS"] == 0


@pto.jit
def scores(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
    """The product of a product: its left operand is computed."""
    for i in pl.range(0, c.shape[0], 64, parallel=True):
        t = pl.load(a, [i, 0], [64, 64]) @ pl.load(b, [0, 0], [64, 64])
        pl.store(t.to(pl.f16) @ pl.load(b, [0, 0], [64, 64]), [i, 0], c)


def test_other_products_are_left_to_warps() -> None:
    half, single = pto.spec((None, None), pl.f16), pto.spec((None, None), pl.f32)
    assert not kernels_of(matrix.matmul, *(single,) * 3)[0].warpgroups
    assert not kernels_of(turned_product(32, 64, False, False), half, half, single)[0].warpgroups
    assert not kernels_of(turned_product(64, 96, False, False), half, half, single)[0].warpgroups
    assert not kernels_of(scores, half, half, single)[0].warpgroups


def run_without(line: str) -> None:
    """Run a product by warpgroups whose kernel lacks a line."""
    a, b, c = np.ones((64, 640), np.float16), np.ones((640, 64), np.float16), np.zeros((64, 64), np.float32)
    a[:] = np.arange(640)
    compiled = turned_product(64, 64, False, False).compile(a, b, c, target="cuda")
    ((name, kernel),) = compiled._kernel.built.program.host.kernels.items()
    assert kernel.source.count(line) == 1
    compiled._kernel.built.program.host.kernels[name] = replace(kernel, source=kernel.source.replace(line, ""))
    emulate(compiled, a, b, c)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("pto::show_copies<WARPGROUPS>();", "copies that the tensor cores do not see"),
        ("pto::wait_for_products<WARPGROUPS, 1>();", "an operand that changes while it is multiplied"),
        ("pto::complete_products<WARPGROUPS>(acc);", "sums that are read before they are complete"),
    ],
)
@of_the_emulation
def test_the_emulation_finds_missing_waits(line: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.EmulatedDevice, "warpgroups", True)
    with pytest.raises(LaunchError, match=said):
        run_without(line)


@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")
def test_the_version_for_warpgroups_compiles_without_warnings_and_spills() -> None:
    half = pto.spec((4096, 4096), pl.bf16)
    (kernel,) = kernels_of(matrix.matmul_bf16, *(half,) * 3)
    spread, _ = fit(kernel, {}, [(128, 256)], [9, 9], LARGEST, warpgroups=True)
    flags = ["-std=c++17", "-cubin", "-arch=sm_90a", "--fmad=false", "-Werror", "all-warnings", "-Xptxas",
             "-Werror,-warn-spills"]  # fmt: skip
    defines = [f"-D{name}={value}" for name, value in spread.defines]
    files = {**devices.headers(), "kernel.cu": kernel.source}
    toolchain.build(["nvcc", *flags, *defines, "-o", "kernel.cubin", "kernel.cu"], files, "kernel.cubin")
