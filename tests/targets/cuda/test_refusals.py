# SPDX-License-Identifier: MIT
"""What the cuda target does not do is an error that says so, when compiled, launched or run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.bench.kernels import rows
from pto_jit.device_kernel import emulate

from .harness import needs_compiler

F32 = pto.spec((None, None), pl.f32)


def element_loop(x: pl.Tensor, y: pl.Tensor):
    with pl.incore():
        for r in pl.range(1, x.shape[0]):
            y[r, 0] = y[r - 1, 0] + x[r, 0]


def growing(x: pl.Tensor, y: pl.Tensor):
    for r in pl.range(x.shape[0], parallel=True):
        n = pl.cast(pl.sum(pl.load(x, [r, 0], [1, 4])), pl.i64)
        pl.store(pl.load(x, [r, 0], [1, n]), [r, 0], y)


def huge(x: pl.Tensor, y: pl.Tensor):
    for r in pl.range(0, x.shape[0], 512, parallel=True):
        tile = pl.load(x, [r, 0], [512, 1024])
        pl.store(tile - pl.sum(tile), [r, 0], y)


def wide(x: pl.Tensor, y: pl.Tensor):
    for r in pl.range(0, x.shape[0], 128, parallel=True):
        product = pl.load(x, [r, 0], [128, 256]) @ pl.load(x, [0, 0], [256, 128])
        pl.store(pl.sum(pl.sum(product, axis=1, keepdims=True), axis=0, keepdims=True), [r, 0], y)  # lines meet


@pytest.mark.parametrize(("fn", "words"), [(huge, "PTO-X130: .*512 x 1024"), (wide, "PTO-X144: .*shared memory")])
def test_tiles_that_fit_no_block_are_refused_when_they_are_compiled(fn: Any, words: str) -> None:
    with pytest.raises(pto.TargetError, match=words):
        pto.jit(fn).compile(F32, F32, target="cuda")


def printed(x: pl.Tensor, y: pl.Tensor):
    for r in pl.range(x.shape[0], parallel=True):
        pl.print("{}", r)
        y[r, 0] = x[r, 0]


@pytest.mark.parametrize(
    ("fn", "second", "words"),
    [
        (element_loop, F32, "a sequential loop over elements"), (growing, F32, "changes while the kernel runs"),
        (printed, F32, "`pl.print`"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_kernel_is_refused_when_it_is_compiled(fn: Any, second: Any, words: str) -> None:
    with pytest.raises(pto.TargetError, match="PTO-X100") as caught:
        pto.jit(fn).compile(F32, second, target="cuda")
    assert words in str(caught.value) and "help: " in str(caught.value)


def test_compiling_needs_no_device_and_running_without_one_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from pto_jit.targets.cuda import api

    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(api.ctypes, "CDLL", missing)
    api.library.cache_clear()
    x = np.zeros((4, 4), np.float32)
    compiled = rows.softmax.compile(F32, F32, target="cuda")
    assert "softmax_incore_0.cu" in compiled.sources
    with pytest.raises(pto.TargetError, match="PTO-X145"):
        compiled(x, x)


def test_a_spec_has_no_data_and_another_kind_is_not_taken() -> None:
    compiled = rows.softmax.compile(F32, F32, target="cuda")
    with pytest.raises(pto.ArgumentError, match="PTO-A013"):
        emulate(compiled, np.zeros((4, 4)), np.zeros((4, 4)))


@pto.jit
def summed(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor, at):
    for r in pl.range(0, x.shape[0], 8, parallel=True):
        pl.store(pl.load(x, [r, at], [8, 16]) + pl.load(y, [r, 0], [8, 16]), [r, 0], out)


@needs_compiler
@pytest.mark.parametrize(
    ("width", "at", "error", "words"),
    [(16, 0, None, ""), (12, 0, pto.LaunchError, "16 and 12 valid elements"),
     (16, -1, pto.BoundsError, "a negative offset: -1 along axis 1")],
)  # fmt: skip
def test_what_only_shows_while_running_is_recorded_and_raised(width: int, at: int, error: Any, words: str) -> None:
    x, y, out = np.ones((8, 16), np.float32), np.ones((8, width), np.float32), np.zeros((8, 16), np.float32)
    compiled = summed.compile(x, y, out, at, target="cuda")
    if error is None:
        emulate(compiled, x, y, out, at)
        assert (out == 2).all()
        return
    with pytest.raises(error, match=words) as caught:
        emulate(compiled, x, y, out, at)
    assert "test_refusals.py" in str(caught.value)


@needs_compiler
@pytest.mark.parametrize("rows", [64, 256])
def test_assertions_are_checked_in_kernels_that_are_debugged(rows: int) -> None:
    def checked(x: pl.Tensor, y: pl.Tensor):
        for r in pl.range(0, x.shape[0], rows, parallel=True):
            t = pl.load(x, [r, 0], [rows, 128])
            pl.assert_(t[0, 3] < 5.0, "a large element")
            pl.store(t + 1.0, [r, 0], y)

    x, y = np.ones((512, 128), np.float32), np.zeros((512, 128), np.float32)
    emulate(pto.jit(checked, debug=True).compile(x, y, target="cuda"), x, y)
    assert (y == 2).all()
    x[256, 3] = 7
    emulate(pto.jit(checked).compile(x, y, target="cuda"), x, y)
    assert y[256, 3] == 8
    with pytest.raises(pto.KernelAssertionError, match="a large element") as caught:
        emulate(pto.jit(checked, debug=True).compile(x, y, target="cuda"), x, y)
    assert "test_refusals.py" in str(caught.value)


@needs_compiler
def test_assertions_are_checked_by_the_host_of_programs_that_are_debugged() -> None:
    def checked(x: pl.Tensor, y: pl.Tensor, n: int):
        assert n < 2, "too many"
        y[...] = x[...]

    x, y = np.ones(40, np.float32), np.zeros(40, np.float32)
    emulate(pto.jit(checked).compile(x, y, 5, target="cuda"), x, y, 5)
    compiled = pto.jit(checked, debug=True).compile(x, y, 5, target="cuda")
    emulate(compiled, x, y, 1)
    with pytest.raises(pto.KernelAssertionError, match="too many") as caught:
        emulate(compiled, x, y, 5)
    assert "test_refusals.py" in str(caught.value)


@needs_compiler
def test_tensors_that_overlap_in_a_way_that_would_give_other_results_are_refused() -> None:
    memory = np.zeros(80, np.float32)
    x, y = memory[:64].reshape(4, 16), memory[8:72].reshape(4, 16)
    with pytest.raises(pto.LaunchError, match="PTO-X131"):
        emulate(rows.softmax.compile(x, y, target="cuda"), x, y)


@needs_compiler
@pto.jit
def sorted_rows(x, y):
    n, m = x.shape
    with pl.incore():
        for r in pl.range(n, parallel=True):
            pl.store(pl.sort(pl.load(x, [r, 0], [1, m])), [r, 0], y)


def test_rows_and_tiles_that_do_not_fit_a_block_are_refused_at_the_launch() -> None:
    x = np.zeros((1, 1 << 18), np.float32)
    with pytest.raises(pto.LaunchError, match="PTO-X130"):
        emulate(sorted_rows.compile(x, x, target="cuda"), x, np.zeros_like(x))


def test_a_kernel_for_the_device_does_not_take_arrays_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    from pto_jit.targets.cuda import driver

    monkeypatch.setattr(driver, "need_driver", lambda: None)
    x = np.zeros((4, 4), np.float32)
    with pytest.raises(pto.ArgumentError, match="PTO-X133"):
        rows.softmax.compile(x, x, target="cuda")(x, x)
