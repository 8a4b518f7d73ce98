# SPDX-License-Identifier: MIT
"""Launches through the driver API, with a driver that runs emulated kernels in this process."""

from __future__ import annotations

import ctypes
import gc
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit import device_kernel
from pto_jit.bench.kernels import matrix, rows
from pto_jit.targets import toolchain
from pto_jit.targets.cuda import devices, driver

pytestmark = pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("g++")), reason="needs gcc and g++")


class OnDevice:
    """An array as another library shows memory of the device."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": array.dtype.str, "data": (array.ctypes.data, False),
            "strides": array.strides, "version": 3,
        }  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("fake") / "libcuda.so.1"
    source = Path(__file__).parent / "fake_driver.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", path, source, "-ldl"], check=True)
    loaded = ctypes.CDLL(str(path))
    loaded.fake_record.restype = ctypes.c_char_p
    return loaded


@pytest.fixture
def fake(library: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    def compile_kernel(kernel: Any, spread: Any, arch: str) -> bytes:
        assert arch == "sm_90"
        defines = [f"-D{name}={value}" for name, value in spread.defines]
        files = {**devices.headers(), "kernel.cu": kernel.source, "launch.cpp": devices._launcher(kernel)}
        command = ["g++", "-std=c++17", "-O0", "-ffp-contract=off", "-fPIC", "-shared", "-w", *defines, "launch.cpp",
                   "-o", "kernel.so"]  # fmt: skip
        path = tmp_path / f"{kernel.name}.so"
        path.write_bytes(toolchain.build(command, files, "kernel.so"))
        return str(path).encode()

    monkeypatch.setattr(driver.ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(driver, "compile_kernel", compile_kernel)
    driver._library.cache_clear()
    driver.current.cache_clear()
    library.fake_forget()
    yield library
    driver._library.cache_clear()
    driver.current.cache_clear()


def test_tensors_of_the_device_go_to_a_kernel_as_they_are(fake: Any) -> None:
    x = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32)
    y = np.zeros_like(x)
    compiled = rows.softmax.compile(OnDevice(x), OnDevice(y), target="cuda")
    compiled(OnDevice(x), OnDevice(y))
    compiled(OnDevice(x), OnDevice(y))
    e = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(axis=1, keepdims=True), rtol=1e-5)
    said = fake.fake_record().decode()
    assert said.count("launch on stream 0") == 2 and said.count("softmax_incore_0 1") == 1
    assert "synchronise" not in said and "pinned 2" in said and "context 1" in said


def test_large_shared_memory_is_asked_for_and_temporaries_are_freed(fake: Any) -> None:
    rng = np.random.default_rng(1)
    x, gate, up, down = (rng.standard_normal(s).astype(np.float32) for s in ((5, 30), (30, 20), (30, 20), (20, 30)))
    out = np.zeros((5, 30), np.float32)
    matrix.swiglu.compile(*map(OnDevice, (x, gate, up, down, out)), target="cuda")(
        *map(OnDevice, (x, gate, up, down, out))
    )
    g = x @ gate
    np.testing.assert_allclose(out, (g / (1 + np.exp(-g)) * (x @ up)) @ down, rtol=1e-3, atol=1e-3)
    gc.collect()
    said = fake.fake_record().decode()
    assert "shared 1" in said and said.count("allocate 400;") == said.count("free 1;") == 2


@pto.jit(target="cuda")
def doubled(x):
    n, m = x.shape
    y = pl.empty([n, m], pl.f32)
    with pl.incore():
        for r in pl.range(n, parallel=True):
            pl.store(pl.load(x, [r, 0], [1, m]) * 2.0, [r, 0], y)
    return y, y[0, 0]


def test_results_are_memory_of_the_device_and_numbers(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_kernel, "_stream", lambda call: 7)
    x = np.arange(12, dtype=np.float32).reshape(3, 4) + 1
    y, first = doubled(OnDevice(x))
    interface = y.__cuda_array_interface__
    assert first == 2 and interface["shape"] == (3, 4) and interface["stream"] == 7
    raw = ctypes.string_at(interface["data"][0], 48)
    np.testing.assert_array_equal(np.frombuffer(raw, np.float32).reshape(3, 4), x * 2)
    said = fake.fake_record().decode()
    assert "launch on stream 7" in said and "synchronise 7" in said


def test_an_error_of_the_driver_is_a_launch_error(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_kernel, "_stream", lambda call: 666)
    with pytest.raises(pto.LaunchError, match="PTO-X146: cuLaunchKernel failed: an illegal address"):
        doubled(OnDevice(np.zeros((3, 4), np.float32)))


@pto.jit(target="cuda")
def shifted(x, out, at):
    for r in pl.range(x.shape[0], parallel=True):
        pl.store(pl.load(x, [r, at], [1, 4]), [r, 0], out)


def test_a_failure_of_a_kernel_is_raised_by_a_later_call_and_then_forgotten(fake: Any) -> None:
    x, out = OnDevice(np.ones((3, 4), np.float32)), OnDevice(np.zeros((3, 4), np.float32))
    shifted(x, out, -2)
    with pytest.raises(pto.BoundsError, match="a negative offset: -2 along axis 1"):
        shifted(x, out, 0)
    shifted(x, out, 0)
    assert (out.array == 1).all()
