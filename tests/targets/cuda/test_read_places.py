# SPDX-License-Identifier: MIT
"""Parts of tensors whose places are read from memory, in programs and sequential loops that the host runs: it waits for
these numbers, and launches the kernels of one iteration after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.device_kernel import emulate
from pto_jit.targets.cuda.devices import EmulatedDevice

from .harness import emulated, needs_compiler, of_the_emulation
from .test_launcher import Program, needs_compilers

RNG = np.random.default_rng(31)
BEGINS = np.array([0, 20, 20, 53, 70])


@pto.jit
def products(x: pl.Tensor, w: pl.Tensor, begins: pl.Tensor, y: pl.Tensor):
    for g in range(w.shape[0]):
        lo, hi = begins[g], begins[g + 1]
        y[lo:hi] = x[lo:hi] @ w[g]


@pto.jit
def tiles_of_products(x: pl.Tensor, w: pl.Tensor, begins: pl.Tensor, y: pl.Tensor):
    for g in range(w.shape[0]):
        lo, hi = begins[g], begins[g + 1]
        for i in pl.range(lo, hi, 16, parallel=True):
            pl.store(pl.dot(pl.load(x[:hi], [i, 0], [16, 24]), w[g]), [i, 0], y[:hi])


@pto.jit
def added(x: pl.Tensor, w: pl.Tensor, begins: pl.Tensor, y: pl.Tensor):
    for g in range(w.shape[0]):
        lo, hi = begins[g], begins[g + 1]
        y[lo:hi] = x[lo:hi] * 2.0 + y[lo:hi]


@pto.jit
def columns(x: pl.Tensor, w: pl.Tensor, begins: pl.Tensor, y: pl.Tensor):
    for g in range(begins.shape[0] - 1):
        t = x[begins[g] : begins[g + 1]]
        y[g] = pl.sum(t, axis=0)
        y[begins[g + 1] - 1] = pl.sum(t, axis=0) * 2.0


@pto.jit
def one_after_the_other(x: pl.Tensor, w: pl.Tensor, begins: pl.Tensor, y: pl.Tensor):
    """Where an iteration begins the one before has written."""
    for g in range(w.shape[0]):
        lo = begins[g]
        y[lo : lo + 2] = x[g : g + 2] + y[lo : lo + 2]
        begins[g + 1] = lo + 1


@pto.jit
def straight(x: pl.Tensor, w: pl.Tensor, begins: pl.Tensor, y: pl.Tensor):
    lo, hi = begins[1], begins[3]
    y[lo:hi] = x[lo:hi] * 2.0 + y[lo:hi] * w[0, 0, 1]


KERNELS = [products, tiles_of_products, added, columns, one_after_the_other, straight]


def arguments() -> list[np.ndarray]:
    return [RNG.standard_normal((70, 24), np.float32), RNG.standard_normal((4, 24, 24), np.float32), BEGINS.copy(),
            RNG.standard_normal((70, 24), np.float32)]  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_places_that_are_read_from_memory(kernel: Any) -> None:
    given = arguments()
    wanted = [a.copy() for a in given]
    kernel.interpret(*wanted)
    for found, want in zip(emulated(kernel, *given)[1], wanted, strict=True):
        np.testing.assert_allclose(found, want, atol=2e-5)


@needs_compilers
def test_written_programs_read_places(tmp_path: Path) -> None:
    x, w, begins, y = arguments()
    program = Program(products.compile(x, w, begins, y, target="cuda"), tmp_path)
    wanted = y.copy()
    products.interpret(x, w, begins, wanted)
    assert program(x, *x.shape, w, *w.shape, begins, len(begins), y, *y.shape) == 0, program.said()
    np.testing.assert_allclose(y, wanted, atol=2e-5)


@pto.jit
def elements(x: pl.Tensor, w: pl.Tensor, begins: pl.Tensor, y: pl.Tensor):
    for g in range(1, begins.shape[0]):
        y[begins[g], 0] = y[begins[g - 1], 0] * 0.5 + x[g, 0]


def test_elements_one_by_one_are_refused() -> None:
    with pytest.raises(pto.TargetError, match=r"PTO-X100.* a sequential loop over elements"):
        elements.compile(*arguments(), target="cuda")


@needs_compiler
@of_the_emulation
def test_the_host_waits_twice_for_the_elements_of_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    read = EmulatedDevice.read

    def noted(self: Any, pointer: int, size: int, stream: int) -> bytes:
        sizes.append(size)
        return read(self, pointer, size, stream)

    monkeypatch.setattr(EmulatedDevice, "read", noted)
    for kernel, expected in ((products, [8, 40]), (one_after_the_other, [8] * 4)):
        given = arguments()
        emulate(kernel.compile(*given, target="cuda"), *given)
        assert sizes == expected, kernel.__name__
        sizes.clear()
