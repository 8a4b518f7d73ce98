# SPDX-License-Identifier: MIT
"""Parameters with the names that written code uses itself."""

from __future__ import annotations

import re

import numpy as np

import pto_jit as pto
import pto_jit.language as pl
from tests.targets.cuda.harness import emulated


@pto.jit
def counted(hist, bins, hist_bins):
    for i in pl.range(bins.shape[0], parallel=True):
        pl.atomic_add(hist, [bins[i]], hist_bins[i])


@pto.jit
def product(memory, into, ahead):
    for i in pl.range(0, ahead.shape[0], 64, parallel=True):
        for j in pl.range(0, ahead.shape[1], 64, parallel=True):
            acc = pl.zeros([64, 64], pl.f32)
            for k in pl.range(0, memory.shape[1], 32):
                acc = pl.dot(pl.load(memory, [i, k], [64, 32]), pl.load(into, [k, j], [32, 64]), acc)
            pl.store(acc, [i, j], ahead)


def doubled(doubled_enqueue, y):
    y[...] = doubled_enqueue * 2


def test_bins_are_no_parameters() -> None:
    places = np.random.default_rng(0).integers(0, 5, 90).astype(np.int32)
    weights = np.arange(90, dtype=np.int32)
    _, (hist, *_) = emulated(counted, np.zeros(5, np.int32), places, weights)
    np.testing.assert_array_equal(hist, np.bincount(places, weights))


def test_panels_of_products_are_no_parameters() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((64, 96), (96, 64)))
    _, (*_, c) = emulated(product, a, b, np.zeros((64, 64), np.float32))
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-4, atol=1e-4)


def test_the_function_that_enqueues_is_no_parameter() -> None:
    x = np.ones((4, 4), np.float32)
    host = pto.jit(doubled).compile(x, x, target="cuda").sources["doubled_orchestration.c"]
    (name,) = re.findall(r"static int32_t (\w+enqueue\w*)\(", host)
    assert name != "doubled_enqueue" and f"{name}(worker" in host
