# SPDX-License-Identifier: MIT
"""Machine code without nvcc: how NVRTC is called, with a library made for the tests; and what it says, where it is."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.bench.kernels import rows
from pto_jit.slotted import replace
from pto_jit.targets import toolchain
from pto_jit.targets.cuda import driver, nvrtc
from pto_jit.targets.cuda.devices import headers
from pto_jit.targets.cuda.launcher import version_of


def softmax(**options: Any) -> tuple[Any, Any]:
    """A kernel and how it is spread."""
    x = pto.spec((None, 64), pl.f32)
    (kernel,) = rows.softmax.compile(x, x, target="cuda", **options)._kernel.built.program.host.kernels.values()
    return kernel, version_of(kernel).spread


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
def test_nvrtc_is_given_headers_and_macros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "libfake.so"
    source = Path(__file__).parent / "fake_nvrtc.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", path, source], check=True)
    fake = ctypes.CDLL(str(path))
    monkeypatch.setattr(nvrtc, "library", lambda: fake)
    monkeypatch.setattr(toolchain, "find", lambda *names: None)
    kernel, spread = softmax()
    told = driver.compile_kernel(kernel, spread, "sm_90").decode().split()
    for name, text in headers().items():
        assert f"{name}/{len(text)}" in told
    assert "stdint.h/" in " ".join(told) and f"{len(kernel.source)}:" in told
    assert {"--gpu-architecture=sm_90", "--fmad=false", *(f"-D{n}={v}" for n, v in spread.defines)} <= set(told)
    assert b"--fmad=true" in driver.compile_kernel(softmax(fastmath=True)[0], spread, "sm_80")
    with pytest.raises(pto.ToolchainError, match=r"PTO-X121: NVRTC failed:\nkernel.cu.1.: error: it is BROKEN"):
        driver.compile_kernel(replace(kernel, source="BROKEN"), spread, "sm_90")


def test_without_a_compiler_both_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "library", lambda: None)
    monkeypatch.setattr(toolchain, "find", lambda *names: None)
    with pytest.raises(pto.ToolchainError, match=r"NVRTC.*nvcc"):
        driver.compile_kernel(*softmax(), "sm_90")


@pytest.mark.skipif(nvrtc.library() is None, reason="needs NVRTC")
def test_nvrtc_compiles_a_kernel() -> None:
    kernel, spread = softmax()
    flags = ["--std=c++17", "--gpu-architecture=sm_90", *(f"-D{n}={v}" for n, v in spread.defines)]
    assert nvrtc.compile_cubin(kernel.source, headers(), flags).startswith(b"\x7fELF")
