# SPDX-License-Identifier: MIT
"""Planes that loops of the program reduce as a whole are rows: of any length, and without threads left over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.device_kernel import emulate

from .harness import emulated, needs_compiler

pytestmark = needs_compiler
RNG = np.random.default_rng(31)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pto.jit
def instance_norm(x: pl.Tensor, y: pl.Tensor):
    for i in pl.range(x.shape[0], parallel=True):
        for k in pl.range(x.shape[1], parallel=True):
            t = x[i, k]
            d = t - pl.mean(t)
            y[i, k] = d / pl.sqrt(pl.mean(d * d) + 1e-5)


@pto.jit
def group_norm(x: pl.Tensor, w: pl.Tensor, y: pl.Tensor, groups: pl.constexpr):
    images, channels, _, _ = x.shape
    per = channels // groups
    for i in pl.range(images, parallel=True):
        for g in pl.range(groups, parallel=True):
            t = x[i, g * per : (g + 1) * per]
            m = pl.mean(t)
            s = 1.0 / pl.sqrt(pl.mean((t - m) * (t - m)) + 1e-5)
            for k in pl.range(per):
                c = g * per + k
                y[i, c] = (x[i, c] - m) * s * w[c]


@pto.jit
def distances(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor):
    for i in pl.range(x.shape[0], parallel=True):
        d = x[i] - y[i]
        out[i, 0], out[i, 1] = pl.sum(d * d), pl.max(pl.abs(d))


@pto.jit
def upper_rows(x: pl.Tensor, out: pl.Tensor, n: pl.i32):
    for i in pl.range(x.shape[0], parallel=True):
        t = x[i, 1 : n + 1]
        out[i] = pl.mean(t)


def normalised(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return (x - x.mean(axis=axes, keepdims=True)) / np.sqrt(x.var(axis=axes, keepdims=True) + 1e-5)


def is_in_rows(fn: Any, *args: Any) -> bool:
    return "_rows = ttensor_reshape" in fn.compile(*args, target="cuda").ir("divided")


@pytest.mark.parametrize("shape", [(2, 3, 9, 11), (2, 2, 1, 40), (1, 2, 40, 1), (1, 1, 64, 64), (2, 0, 5, 5), (1, 2, 0, 5)])
def test_planes_are_rows(shape: tuple[int, ...]) -> None:
    x, y = floats(*shape), floats(*shape)
    assert is_in_rows(instance_norm, x, y)
    _, (_, found) = emulated(instance_norm, x, y)
    if x.size:
        np.testing.assert_allclose(found, normalised(x, (2, 3)), rtol=1e-4, atol=1e-5)


def test_planes_that_no_block_has_room_for() -> None:
    """360,000 elements: such were refused."""
    x, y = floats(1, 1, 600, 600), floats(1, 1, 600, 600)
    _, (_, found) = emulated(instance_norm, x, y, orders=(0,))
    np.testing.assert_allclose(found, normalised(x, (2, 3)), rtol=1e-3, atol=1e-4)


def test_groups_of_planes_are_rows() -> None:
    x, w, y = floats(2, 12, 9, 11), floats(12), floats(2, 12, 9, 11)
    assert is_in_rows(group_norm, x, w, y, 3)
    _, (_, _, found, *_) = emulated(group_norm, x, w, y, 3)
    wanted = normalised(x.reshape(2, 3, -1), (2,)).reshape(x.shape) * w[:, None, None]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_planes_of_two_tensors_have_to_agree() -> None:
    x, y, out = floats(3, 20, 33), floats(3, 20, 33), floats(3, 2)
    assert is_in_rows(distances, x, y, out)
    _, (_, _, found) = emulated(distances, x, y, out)
    np.testing.assert_allclose(found[:, 0], ((x - y) ** 2).sum(axis=(1, 2)), rtol=1e-4)
    np.testing.assert_array_equal(found[:, 1], np.abs(x - y).max(axis=(1, 2)))
    compiled = distances.compile(x, y, out, target="cuda")
    for other in (floats(3, 33, 20), floats(3, 22, 30), floats(3, 10, 66), floats(3, 19, 33)):
        with pytest.raises(pto.LaunchError, match="extents"):
            emulate(compiled, x, other, out.copy())


def test_what_is_stored_is_cut_as_planes_are() -> None:
    """A plane that is stored where there are fewer columns is no row there."""
    x, y = floats(2, 3, 9, 11), np.zeros((2, 3, 7, 8), np.float32)
    _, (_, found) = emulated(instance_norm, x, y)
    np.testing.assert_allclose(found, normalised(x, (2, 3))[:, :, :7, :8], rtol=1e-4, atol=1e-5)
    y = np.zeros((2, 3, 7, 11), np.float32)
    _, (_, found) = emulated(instance_norm, x, y)
    np.testing.assert_allclose(found, normalised(x, (2, 3))[:, :, :7], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 5, 8, 20])
def test_some_rows_of_planes(n: int) -> None:
    """Of 8 after the first, of which there are fewer than asked for in the end."""
    x, out = floats(3, 9, 11), np.zeros(3, np.float32)
    _, (_, found, _) = emulated(upper_rows, x, out, np.int32(n))
    with np.errstate(invalid="ignore"):
        wanted = x[:, 1 : n + 1].sum(axis=(1, 2)) / (min(n, 8) * 11) if n else np.full(3, np.nan)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_plane_that_is_not_there_is_an_error() -> None:
    @pto.jit
    def places(x: pl.Tensor, at: pl.Tensor, out: pl.Tensor):
        for i in pl.range(at.shape[0], parallel=True):
            out[i] = pl.sum(x[i, at[i]])

    x, out = floats(2, 3, 9, 11), np.zeros(2, np.float32)
    assert is_in_rows(places, x, np.array([2, 1]), out)
    _, (_, _, found) = emulated(places, x, np.array([2, 1]), out)
    np.testing.assert_allclose(found, x[[0, 1], [2, 1]].sum(axis=(1, 2)), rtol=1e-4, atol=1e-5)
    for wrong in ([3, 0], [0, -1]):
        with pytest.raises(pto.LaunchError, match=r"index|offset"):
            emulate(places.compile(x, np.array(wrong), out, target="cuda"), x, np.array(wrong), out)


@pytest.mark.parametrize("x", [floats(3, 18, 11)[:, ::2], floats(3, 9, 22)[:, :, :11], floats(3, 11, 9).transpose(0, 2, 1)])
def test_planes_with_gaps_stay_planes(x: np.ndarray) -> None:
    y, out = floats(3, 9, 11), floats(3, 2)
    assert not is_in_rows(distances, x, y, out)
    _, (_, _, found) = emulated(distances, x, y, out)
    np.testing.assert_allclose(found[:, 0], ((x - y) ** 2).sum(axis=(1, 2)), rtol=1e-4)
