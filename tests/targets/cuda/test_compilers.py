# SPDX-License-Identifier: MIT
"""How kernels become machine code: by which compiler, with a program and a library made for the tests; and by NVRTC,
where it is."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.bench.kernels import rows
from pto_jit.slotted import replace
from pto_jit.targets import toolchain
from pto_jit.targets.cuda import compilers, nvrtc
from pto_jit.targets.cuda.devices import headers
from pto_jit.targets.cuda.launcher import versions_of


def softmax(**options: Any) -> tuple[Any, Any]:
    """A kernel and how it is spread."""
    x = pto.spec((None, 64), pl.f32)
    host = rows.softmax.compile(x, x, target="cuda", **options)._kernel.built.program.host
    (version,) = versions_of(host.entry, list(host.kernels.values())).values()
    return version.kernel, version.spread


def nvrtc_of(release: int, directory: Path, *flags: str) -> Path:
    """An NVRTC of CUDA `release`.0 that knows sm_80, sm_90 and sm_120."""
    if not shutil.which("gcc"):
        pytest.skip("needs gcc")
    path = directory / f"libnvrtc.so.{release}"
    source = Path(__file__).parent / "fake_nvrtc.c"
    command = ["gcc", "-shared", "-fPIC", "-Wall", "-Werror", f"-DRELEASE={release}", *flags, "-o", path, source]
    subprocess.run(command, check=True)
    return path


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """That of CUDA 13."""
    fake = ctypes.CDLL(str(nvrtc_of(13, tmp_path)))
    monkeypatch.setattr(nvrtc, "libraries", lambda: (fake,))
    monkeypatch.setattr(toolchain, "find", lambda *names: None)
    return fake


@pytest.fixture
def nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An nvcc that knows sm_80 and sm_87; what it is asked for stands in nvcc.calls."""
    program = tmp_path / "nvcc"
    program.write_text('#!/bin/sh\n[ "$1" = --version ] && exit\n[ "$1" = --list-gpu-code ] && echo "sm_80 sm_87" && exit\n'
                       'echo "$@" >> "$0.calls"\nprintf code > kernel.cubin\n')  # fmt: skip
    program.chmod(0o755)
    monkeypatch.setattr(nvrtc, "libraries", tuple)
    monkeypatch.setattr(toolchain, "find", lambda *names: str(program))
    return program


def test_nvrtc_is_given_headers_and_macros(library: Any) -> None:
    kernel, spread = softmax()
    told = compilers.compile_kernel(kernel, spread, "sm_90").decode().split()
    for name, text in headers().items():
        assert f"{name}/{len(text)}" in told
    assert "stdint.h/" in " ".join(told) and f"{len(kernel.source)}:" in told
    assert {"--gpu-architecture=sm_90", "--fmad=false", *(f"-D{n}={v}" for n, v in spread.defines)} <= set(told)
    assert b"--fmad=true" in compilers.compile_kernel(softmax(fastmath=True)[0], spread, "sm_80")
    with pytest.raises(pto.ToolchainError, match=r"PTO-X121: NVRTC failed:\nkernel.cu.1.: error: it is BROKEN"):
        compilers.compile_kernel(replace(kernel, source="BROKEN"), spread, "sm_90")


def test_code_is_kept_on_disk(nvcc: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pto.config, "cache_dir", tmp_path / "cache")
    kernel, spread = softmax()
    assert [compilers.compile_kernel(kernel, spread, arch) for arch in ("sm_87", "sm_87", "sm_80")] == [b"code"] * 3
    compilers.compile_kernel(replace(kernel, store=None), spread, "sm_87")
    assert (tmp_path / "nvcc.calls").read_text().count("-cubin") == 3


def test_the_first_compiler_that_knows_the_device_is_taken(library: Any, nvcc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVRTC, if it does; else nvcc."""
    nvcc.write_text(nvcc.read_text().replace("sm_80 sm_87", "sm_80 sm_100 sm_103"))
    compilers._known_to.cache_clear()
    monkeypatch.setattr(nvrtc, "libraries", lambda: (library,))
    kernel, spread = softmax()
    kernel = replace(kernel, store=None)
    for arch, target in (("sm_80", "sm_80"), ("sm_89", "sm_80"), ("sm_90", "sm_90"), ("sm_90a", "sm_90a"), ("sm_121", "sm_120")):
        told = compilers.compile_kernel(kernel, spread, arch).decode().split()  # devices run what is for earlier ones
        assert f"--gpu-architecture={target}" in told
    assert not nvcc.with_name("nvcc.calls").exists()
    for arch, target in (("sm_100", "sm_100"), ("sm_101", "sm_100"), ("sm_103", "sm_103")):
        assert compilers.compile_kernel(kernel, spread, arch) == b"code"
        assert f"--gpu-architecture={target} " in nvcc.with_name("nvcc.calls").read_text().splitlines()[-1]
    with pytest.raises(pto.ToolchainError, match=r"PTO-X120: the device is an sm_75, .* older: NVRTC 13.0 .*, .*nvcc "):
        compilers.compile_kernel(kernel, spread, "sm_75")


def test_a_compiler_that_does_not_say_what_it_knows_comes_last(library: Any, nvcc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc.write_text(nvcc.read_text().replace('echo "sm_80 sm_87" && exit', "exit 1"))
    compilers._known_to.cache_clear()
    kernel, spread = softmax()
    kernel = replace(kernel, store=None)
    assert compilers.compile_kernel(kernel, spread, "sm_100") == b"code"  # it is all there is
    monkeypatch.setattr(nvrtc, "libraries", lambda: (library,))
    assert b"--gpu-architecture=sm_90" in compilers.compile_kernel(kernel, spread, "sm_90")


def test_without_a_compiler_both_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "libraries", tuple)
    monkeypatch.setattr(toolchain, "find", lambda *names: None)
    with pytest.raises(pto.ToolchainError, match=r"NVRTC.*nvcc"):
        compilers.compile_kernel(*softmax(), "sm_90")


def test_a_compiler_newer_than_the_driver_is_left_out(nvcc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a driver loads no code of a later CUDA."""
    said = '--version ] && echo "Cuda compilation tools, release 13.0, V13.0.48"'
    nvcc.write_text(nvcc.read_text().replace("sm_87", "sm_90").replace("--version ]", said))
    for seen in (compilers._known_to, compilers._release_of):
        seen.cache_clear()
    kernel, spread = softmax()
    kernel = replace(kernel, store=None)
    for driver in (None, 13, 14):
        assert compilers.compile_kernel(kernel, spread, "sm_90", driver) == b"code"
    with pytest.raises(pto.ToolchainError, match=r"PTO-X120: the driver loads code of CUDA 12 .*nvcc\nhelp: .*nvrtc-cu12"):
        compilers.compile_kernel(kernel, spread, "sm_90", 12)
    releases = [ctypes.CDLL(str(nvrtc_of(release, tmp_path))) for release in (13, 12)]
    monkeypatch.setattr(nvrtc, "libraries", lambda: releases)
    assert b"--gpu-architecture=sm_90" in compilers.compile_kernel(kernel, spread, "sm_90", 12)
    assert [c.name[:5] for c in compilers._compilers()] == ["NVRTC", "NVRTC", str(nvcc)[:5]]


def test_every_version_of_nvrtc_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the packages that bring it."""
    for release, place in ((12, "nvidia/cuda_nvrtc/lib"), (13, "nvidia/cu13/lib")):
        (tmp_path / place).mkdir(parents=True)
        nvrtc_of(release, tmp_path / place)
    monkeypatch.setattr(nvrtc, "_NAMES", ("libnvrtc.so.13", "libnvrtc.so.12"))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    nvrtc.libraries.cache_clear()
    try:
        assert {(12, 0), (13, 0)} <= {nvrtc.version(lib) for lib in nvrtc.libraries()}
    finally:
        nvrtc.libraries.cache_clear()


def test_nvrtc_finds_its_builtins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVRTC 13.0 opens them by a bare name, and has no run path that leads to them."""
    builtins = f"libnvrtc-builtins.so.{tmp_path.name}"  # which no other test has loaded
    directory = tmp_path / "nvidia/cu13/lib"
    directory.mkdir(parents=True)
    nvrtc_of(14, directory, f'-DBUILTINS="{builtins}"')
    empty = ["gcc", "-shared", f"-Wl,-soname,{builtins}", "-o", directory / builtins, "-x", "c", "/dev/null"]
    subprocess.run(empty, check=True)
    monkeypatch.setattr(nvrtc, "_NAMES", ("libnvrtc.so.14",))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    nvrtc.libraries.cache_clear()
    try:
        lib = next(lib for lib in nvrtc.libraries() if nvrtc.version(lib) == (14, 0))
        assert b"kernel.cu of 4" in nvrtc.compile_source(lib, "void", {}, ["--gpu-architecture=sm_90"])
    finally:
        nvrtc.libraries.cache_clear()


@pytest.mark.skipif(not nvrtc.libraries(), reason="needs NVRTC")
def test_nvrtc_compiles_a_kernel() -> None:
    lib = nvrtc.libraries()[0]
    assert 90 in nvrtc.known(lib)
    kernel, spread = softmax()
    flags = ["--std=c++17", "--gpu-architecture=sm_90", *(f"-D{n}={v}" for n, v in spread.defines)]
    assert nvrtc.compile_source(lib, kernel.source, headers(), flags).startswith(b"\x7fELF")
