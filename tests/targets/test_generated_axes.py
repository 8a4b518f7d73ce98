# SPDX-License-Identifier: MIT
"""Tiles generated along some axes: what of them is counted, stored and fits, on all targets as in interpret mode."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.device_kernel import emulate


def on(kernel: Any, target: str) -> Callable[..., object]:
    if target == "interpret":
        return kernel.interpret
    if target == "debug":
        return pto.jit(debug=True)(kernel)
    if target == "cuda":
        return lambda *args: emulate(kernel.compile(*args, target="cuda"), *args)
    return lambda *args: kernel.compile(*args, target=target)(*args)


TARGETS = ["interpret", "cpu", "debug", "c", "cuda"]


@pto.jit
def beside(x, lens, a, b):
    for i in pl.range(0, x.shape[0], 16, parallel=True):
        t = pl.load(x, [i, 0], [16, 64])
        g = pl.ones([16, 64])
        pl.store(pl.sum(g + t, axis=1), [i], a)
        pl.store(pl.sum(g, axis=1), [i], b)


@pto.jit
def computed(x, lens, a, b):
    for i in pl.range(0, x.shape[0], 16, parallel=True):
        t = pl.load(x, [i, 0], [16, 64])
        g = pl.ones([16, 64])
        pl.store(pl.max(t * g, axis=1) + pl.sum(t, axis=1), [i], a)
        pl.store(pl.max(pl.exp(g * 0.0) * 64.0, axis=1), [i], b)


@pto.jit
def down(x, lens, a, b):
    for i in pl.range(0, x.shape[0], 16, parallel=True):
        t = pl.load(x, [i, 0], [16, 64])
        g = pl.ones([16, 64])
        pl.store(pl.sum(t + g, axis=1), [i], a)
        b[i] = pl.sum(pl.sum(g, axis=0)) / 16


@pto.jit
def masked(x, lens, a, b):
    for i in pl.range(0, x.shape[0], 16, parallel=True):
        t = pl.load(x, [i, 0], [16, 64])
        mask = pl.arange(64)[None, :] < pl.load(lens, [i], [16])[:, None]
        pl.store(pl.sum(pl.where(mask, t, 0.0), axis=1), [i], a)
        pl.store(pl.sum(mask.to(pl.i32), axis=1).to(pl.f32), [i], b)


@pto.jit
def masked_later(x, lens, a, b):
    for i in pl.range(0, x.shape[0], 16, parallel=True):
        mask = pl.arange(64)[None, :] < pl.load(lens, [i], [16])[:, None]
        pl.store(pl.sum(mask.to(pl.i32), axis=1).to(pl.f32), [i], b)
        t = pl.load(x, [i, 0], [16, 64])
        pl.store(pl.sum(pl.where(mask, t, 0.0), axis=1), [i], a)


@pto.jit
def repeated(x, lens, a, b):
    for i in pl.range(0, x.shape[0], 16, parallel=True):
        t = pl.load(x, [i, 0], [16, 64])
        some = pl.broadcast_to(pl.load(lens, [i], [16])[:, None], [16, 64])
        pl.store(pl.sum(pl.where(some > 0, t, 0.0), axis=1), [i], a)
        pl.store(pl.sum((some > 0).to(pl.f32), axis=1), [i], b)


@pto.jit
def carried(x, lens, a, b):
    for i in pl.range(0, x.shape[0], 16, parallel=True):
        t = pl.load(x, [i, 0], [16, 64])
        of_rows = pl.load(lens, [i], [16])[:, None] * pl.ones([16, 64], pl.i32)
        for _ in range(2):
            of_rows = of_rows + 1
        pl.store(pl.sum(pl.where(of_rows > 0, t, 0.0), axis=1), [i], a)
        pl.store(pl.sum((of_rows > 0).to(pl.f32), axis=1), [i], b)


COUNTS = {beside: 64, computed: 64, down: 64, masked: 50, masked_later: 50, repeated: 64, carried: 64}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", COUNTS)
def test_what_is_generated_counts_in_its_whole_extent(kernel: Any, target: str) -> None:
    x, lens = np.ones((20, 20), np.float32), np.full(20, 50, np.int32)
    a, b = np.zeros(20, np.float32), np.zeros(20, np.float32)
    on(kernel, target)(x, lens, a, b)
    assert b[0] == COUNTS[kernel] and (kernel is down or (b == b[0]).all())
    assert a[0] == (40 if kernel in (beside, down) else 21 if kernel is computed else 20) and (a == a[0]).all()


@pto.jit
def stored_first(x, lens, a, b):
    with pl.incore():
        t, g = pl.load(x, [0, 0], [16, 64]), pl.ones([16, 64])
        for _ in range(2):
            pl.store(g, [0, 0], b)
            g = g + t
        pl.store(g, [0, 0], a)


@pytest.mark.parametrize("target", TARGETS)
def test_a_variable_is_stored_as_it_was_before_it_met_others(target: str) -> None:
    x, lens = np.ones((20, 20), np.float32), np.full(20, 50, np.int32)
    a, b = np.zeros((16, 64), np.float32), np.zeros((16, 64), np.float32)
    on(stored_first, target)(x, lens, a, b)
    assert (b[:, :20] == 2).all() and (b[:, 20:] == 1).all()
    assert (a[:, :20] == 3).all() and (a[:, 20:] == 0).all()


@pto.jit
def reduced_meets(x, lens, a, b):
    for i in pl.range(0, x.shape[0], 16, parallel=True):
        t = pl.load(x, [i, 0], [16, 64])
        w = pl.exp(-0.1 * pl.arange(64).to(pl.f32))[None, :] * pl.ones([16, 64])
        pl.store(pl.sum(t * w, axis=1) / pl.sum(w, axis=1), [i], a)


@pto.jit
def other_rows(x, lens, a, b):
    for i in pl.range(0, x.shape[0], 16, parallel=True):
        mask = pl.arange(64)[None, :] < pl.load(lens, [0], [16])[:, None]
        pl.store(pl.sum(pl.where(mask, pl.load(x, [i, 0], [16, 64]), 0.0), axis=1), [i], a)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", [reduced_meets, other_rows])
def test_what_is_not_generated_has_to_agree(kernel: Any, target: str) -> None:
    x, lens = np.ones((20, 20), np.float32), np.full(20, 50, np.int32)
    a, b = np.zeros(20, np.float32), np.zeros(20, np.float32)
    with pytest.raises(pto.LaunchError) as caught:
        on(kernel, target)(x, lens, a, b)
    assert re.search(r"\b4 and 16\b|\b16 and 4\b", str(caught.value))


@pto.jit
def two_variables(x, lens, a, b):
    with pl.incore():
        first, second = pl.ones([16, 64]), pl.ones([16, 64])
        for _ in range(2):
            first = first + pl.load(x, [0, 0], [16, 64])
        for _ in range(2):
            second = second * 2.0 + first
        pl.store(second, [0, 0], a)
        pl.store(first, [0, 0], b)


@pytest.mark.parametrize("target", TARGETS)
def test_a_variable_that_is_generated_so_far_fits_one_that_is_not(target: str) -> None:
    x, lens = np.ones((20, 20), np.float32), np.full(20, 50, np.int32)
    a, b = np.zeros((16, 64), np.float32), np.zeros((16, 64), np.float32)
    on(two_variables, target)(x, lens, a, b)
    assert (a[:, :20] == 13).all() and (b[:, :20] == 3).all() and not a[:, 20:].any() and not b[:, 20:].any()


def _halved(v, w):
    n = v
    while n > 1.5:
        n = n / 2
    return n, n + w


@pto.jit
def joined(x, lens, a, b):
    for i in pl.range(0, x.shape[0], 16, parallel=True):
        t = pl.load(x, [i, 0], [16, 64])
        both = pl.stack([pl.arange(16).to(pl.f32)[:, None] * pl.ones([16, 64]), t], axis=0)
        pl.store(both[1] + both[0], [i, 0], a)
        beside = pl.stack([pl.rand(1, 0, [16, 64]), t, t * 2], axis=1)
        pl.store(pl.sum(beside, axis=1) - beside[:, 0], [i, 0], b)


@pto.jit
def joined_of_three_axes(x, lens, a, b):
    for i in pl.range(0, x.shape[0], 16, parallel=True):
        t = pl.load(x, [i, 0], [16, 64])
        planes = pl.concat([pl.rand(1, 0, [2, 16, 64]), pl.broadcast_to(t[None, :, :], [2, 16, 64])], axis=0)
        pl.store(planes[2] + planes[3], [i, 0], a)
        pl.store(planes[0], [i, 0], b)


@pto.jit
def generated_halves(x, lens, a, b):
    for i in pl.range(0, x.shape[0], 16, parallel=True):
        t = pl.load(x, [i, 0], [16, 64])
        pl.store(pl.concat([pl.zeros([8, 64]), pl.ones([8, 64])], axis=0) + t, [i, 0], a)
        pl.store(pl.stack([pl.zeros([16, 64]), pl.ones([16, 64])], axis=0)[1] + t, [i, 0], b)


@pto.jit
def of_a_function(x, lens, a, b):
    for i in pl.range(0, x.shape[0], 16, parallel=True):
        t = pl.load(x, [i, 0], [16, 64])
        g, h = pl.map(_halved, pl.full([16, 64], 7.0, pl.f32), pl.ones([16, 64], pl.f32))
        pl.store(g + t, [i, 0], a)
        u, _ = pl.map(_halved, pl.full([16, 64], 7.0, pl.f32), t)
        pl.store(h * t + u, [i, 0], b)


@pytest.mark.parametrize("target", TARGETS[1:])
@pytest.mark.parametrize("kernel", [joined, joined_of_three_axes, generated_halves, of_a_function])
def test_generated_tiles_are_joined_to_narrower_ones_and_fit_where_all_of_them_are(kernel: Any, target: str) -> None:
    x, lens = np.random.default_rng(2).standard_normal((20, 20), np.float32), np.full(20, 50, np.int32)
    given = [(np.zeros((20, 20), np.float32), np.zeros((20, 20), np.float32)) for _ in range(2)]
    kernel.interpret(x, lens, *given[0])
    on(kernel, target)(x, lens, *given[1])
    for expected, found in zip(*given, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pto.jit
def in_order(x, lens, a, b):
    for i in pl.range(0, x.shape[0], 16, parallel=True):
        pl.store(pl.sort(pl.rand(1, 0, [16, 64])) + pl.load(x, [i, 0], [16, 64]), [i, 0], a)


@pto.jit
def running(x, lens, a, b):
    for i in pl.range(0, x.shape[0], 16, parallel=True):
        pl.store(pl.cumsum(pl.ones([16, 64]), axis=1) + pl.load(x, [i, 0], [16, 64]), [i, 0], a)


@pto.jit
def largest(x, lens, a, b):
    for i in pl.range(0, x.shape[0], 16, parallel=True):
        pl.store(pl.topk(pl.rand(1, 0, [16, 64]), 1)[0] + pl.load(x, [i, 0], [16, 64]), [i, 0], a)


@pto.jit
def combined(x, lens, a, b):
    for i in pl.range(0, x.shape[0], 16, parallel=True):
        c = pl.reduce(pl.rand(1, 0, [16, 64]), 1, lambda p, q: p + q, keepdims=True)
        pl.store(c + pl.load(x, [i, 0], [16, 64]), [i, 0], a)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", [in_order, running, largest, combined])
def test_what_is_sorted_or_combined_is_not_generated(kernel: Any, target: str) -> None:
    x, lens = np.ones((20, 20), np.float32), np.full(20, 50, np.int32)
    a, b = np.zeros((20, 20), np.float32), np.zeros((20, 20), np.float32)
    with pytest.raises(pto.LaunchError):
        on(kernel, target)(x, lens, a, b)


@pto.jit
def parts(x, lens, a, b):
    with pl.incore():
        t, g = pl.load(x, [0, 0], [16, 64]), pl.ones([16, 64])
        pl.store(t[:, 0:32] + g[:, 32:64], [0, 0], a)
        pl.store(t + pl.concat([g[:, 0:32], g[:, 0:32] * 2.0], axis=1), [0, 0], b)


@pytest.mark.parametrize("target", TARGETS)
def test_parts_of_generated_tiles_are_generated(target: str) -> None:
    x, lens = np.ones((20, 20), np.float32), np.full(20, 50, np.int32)
    a, b = np.zeros((16, 64), np.float32), np.zeros((16, 64), np.float32)
    on(parts, target)(x, lens, a, b)
    for out in (a, b):
        assert (out[:, :20] == 2).all() and not out[:, 20:].any()
