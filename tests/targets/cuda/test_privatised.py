# SPDX-License-Identifier: MIT
"""Updates of small tensors, which blocks gather in shared memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.device_kernel import emulate
from pto_jit.targets.cuda import nvrtc
from pto_jit.targets.cuda.devices import EmulatedDevice, headers

from .harness import emulated, needs_compiler, of_the_emulation
from .simulation import needs_simulation
from .test_launcher import Program, needs_compilers

RNG = np.random.default_rng(23)


@pto.jit
def sums(x: pl.Tensor, v: pl.Tensor, y: pl.Tensor):
    for i in pl.range(x.shape[0], parallel=True):
        pl.atomic_add(y, [x[i]], v[i])


@pto.jit
def largest(x: pl.Tensor, v: pl.Tensor, y: pl.Tensor):
    for i in pl.range(x.shape[0], parallel=True):
        pl.atomic_max(y, [x[i]], v[i])


@pto.jit
def smallest(x: pl.Tensor, v: pl.Tensor, y: pl.Tensor):
    for i in pl.range(x.shape[0], parallel=True):
        pl.atomic_min(y, [x[i]], v[i])


def rooms(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The macros of each kernel that is prepared from now on."""
    found: list[dict[str, Any]] = []
    prepare = EmulatedDevice.prepare

    def told(self: Any, kernel: Any, spread: Any, shared: int) -> Any:
        found.append(dict(spread.defines))
        return prepare(self, kernel, spread, shared)

    monkeypatch.setattr(EmulatedDevice, "prepare", told)
    return found


@needs_compiler
@of_the_emulation
@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.int64, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("kernel", [sums, largest, smallest], ids=lambda k: k.__name__)
def test_bins_of_all_kinds(kernel: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some places are outside of the tensor; sums of these numbers are the same in any order."""
    found = rooms(monkeypatch)
    x = RNG.integers(0, 60, 3000).astype(np.int32)
    v = RNG.integers(0 if np.dtype(dtype).kind == "u" else -9, 9, 3000).astype(dtype)
    start = RNG.integers(0, 9, 52).astype(dtype)
    start[7] = 0
    v[x == 7] = 0
    if np.dtype(dtype).kind == "f":
        v[x == 7], start[7], start[8] = -0.0, -0.0, np.nan
    wanted = start.copy()
    kernel(x, v, wanted)
    _, (_, _, got) = emulated(kernel, x, v, start.copy())
    np.testing.assert_array_equal(got, wanted)
    if got.dtype.kind == "f":
        assert np.signbit(got[7])
    assert {d["BINS_Y"] for d in found} == {64}


@pto.jit
def of_images(x: pl.Tensor, y: pl.Tensor, top: pl.Tensor, many: pl.Tensor):
    for i in pl.range(x.shape[0], parallel=True):
        for j in pl.range(x.shape[1], parallel=True):
            pl.atomic_add(y, [j % 3, x[i, j], 1], 1)
            pl.atomic_max(top, [j % 3], x[i, j])
            pl.atomic_add(many, [x[i, j]], 1)


@needs_compiler
@of_the_emulation
def test_several_tensors_share_the_memory_and_large_ones_have_no_bins(monkeypatch: pytest.MonkeyPatch) -> None:
    found = rooms(monkeypatch)
    x = RNG.integers(0, 40, (37, 63)).astype(np.int32)
    planes = np.zeros((3, 80, 2), np.int32)
    arguments = [x, planes[:, ::2], np.zeros(3, np.int32), np.zeros(20_000, np.int32)]
    wanted = [x, planes[:, ::2].copy(), *(a.copy() for a in arguments[2:])]
    of_images(*wanted)
    emulate(of_images.compile(*arguments, target="cuda"), *arguments)
    for a, b in zip(arguments, wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    assert {(d["BINS_Y"], d["BINS_TOP"], d["BINS_MANY"]) for d in found} == {(256, 32, 0)}


@pto.jit
def looks(x: pl.Tensor, v: pl.Tensor, y: pl.Tensor):
    for i in pl.range(x.shape[0], parallel=True):
        pl.atomic_add(y, [x[i]], v[i])
        v[i] = y[0]


@pto.jit
def in_two_ways(x: pl.Tensor, v: pl.Tensor, y: pl.Tensor):
    for i in pl.range(x.shape[0], parallel=True):
        pl.atomic_add(y, [x[i]], v[i])
        pl.atomic_max(y, [0], v[i])


@pto.jit
def by_rows(x: pl.Tensor, v: pl.Tensor, y: pl.Tensor):
    for i in pl.range(x.shape[0], parallel=True):
        for j in pl.range(v.shape[0], parallel=True):
            row = y[i : i + 1]
            pl.atomic_add(row, [x[j]], v[j])


@pytest.mark.parametrize("kernel", [looks, in_two_ways, by_rows], ids=lambda k: k.__name__)
def test_what_is_also_touched_otherwise_has_no_bins(kernel: Any) -> None:
    i32 = pto.spec((None,), pl.i32)
    sources = kernel.compile(i32, i32, i32, target="cuda").sources
    assert not any("BINS" in text for text in sources.values())
    assert any("BINS_Y" in text for text in sums.compile(i32, i32, i32, target="cuda").sources.values())


@needs_compiler
@of_the_emulation
def test_few_iterations_update_the_tensor_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    found = rooms(monkeypatch)
    for n, bins, room in ((0, 9, None), (20, 81, 0), (20, 80, 128), (5000, 0, 0), (5000, 8192, 0), (1 << 16, 8193, 0)):
        x, y = np.zeros(n, np.int32), np.zeros(bins, np.int32)
        if n < 1 << 16:
            emulated(sums, x, np.ones(n, np.int32), y, orders=(0,))
            assert [d["BINS_Y"] for d in found] == ([] if room is None else [room])
        found.clear()


@needs_compilers
def test_a_written_program_has_bins_for_tensors_of_known_extents(tmp_path: Path) -> None:
    @pto.jit
    def rows(x: pl.Tensor, y: pl.Tensor):
        for i in pl.range(x.shape[0], parallel=True):
            for j in pl.range(i, x.shape[1], parallel=True):
                pl.atomic_add(y, [x[i, j]], 1)

    places = pto.spec((None, None), pl.i32)
    assert not any("-DBINS_Y=32" in t for t in rows.compile(places, pto.spec((None,), pl.i32), target="cuda").sources.values())
    compiled = rows.compile(places, pto.spec((20,), pl.i32), target="cuda")
    assert "-DBINS_Y=32" in compiled.sources["README.md"]
    program = Program(compiled, tmp_path)
    for shape in ((3, 700), (1500, 300), (5, 0), (0, 5)):
        x, y = RNG.integers(0, 20, shape).astype(np.int32), np.zeros(20, np.int32)
        assert program(x, *shape, y) == 0, program.said()
        np.testing.assert_array_equal(y, np.bincount(x[np.triu_indices(shape[0], 0, shape[1])], minlength=20))


def ptx(source: str, **macros: int) -> str:
    flags = ["-std=c++17", "--gpu-architecture=compute_90", "--fmad=false", *(f"-D{k}={v}" for k, v in macros.items())]
    return nvrtc.compile_source(nvrtc.libraries()[0], source, headers(), flags, "PTX").decode()


@needs_simulation
def test_what_several_iterations_read_is_loaded_before_they_update_bins() -> None:
    """Two loads of each of four; one iteration is loaded at a time where a thread has no more, or none has bins."""
    i32 = pto.spec((None,), pl.i32)
    source = sums.compile(i32, i32, i32, target="cuda").sources["sums_incore_0.cu"]
    body = ptx(source, BINS_Y=64).partition("bar.sync")[2]
    assert body.partition("atom.shared")[0].count("ld.global") >= 8
    assert body.partition("red.global")[0].count("atom.shared") == 4
    for macros in ({"BINS_Y": 0}, {"BINS_Y": 0, "COVERED": 1}):
        assert ptx(source, **macros).count("ld.global") == 2


@pto.jit
def under_conditions(x: pl.Tensor, v: pl.Tensor, y: pl.Tensor, n: pl.Tensor):
    for r in pl.range(x.shape[0], parallel=True):
        for i in pl.range(3, x.shape[1], parallel=True):
            if v[i] > 0:
                pl.atomic_add(y, [x[r, i - 3] % 16, i % 2], v[i])
            pl.atomic_max(n, [x[r, i]], r)


@needs_compiler
def test_iterations_that_are_loaded_together_do_what_they_did_apart() -> None:
    """Some are beyond the end of the loop; of those that update under a condition some do not."""
    x, v = RNG.integers(0, 50, (33, 501)).astype(np.int32), RNG.integers(-3, 4, 501).astype(np.int64)
    y, n = np.zeros((16, 2), np.int64), np.zeros(50, np.int32)
    _, (_, _, sums_, last) = emulated(under_conditions, x, v, y, n)
    under_conditions.interpret(x, v, y, n)
    np.testing.assert_array_equal(sums_, y)
    np.testing.assert_array_equal(last, n)
