# SPDX-License-Identifier: MIT
"""What is kept between groups, and what is computed once for all rows of one."""

from __future__ import annotations

import re

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

RNG = np.random.default_rng(3)
X, W, B = (RNG.standard_normal(shape).astype(np.float32) for shape in ((37, 21), 21, 21))


def kept(kernel, *args) -> list[int]:
    """The ranks of the tiles that each group keeps."""
    text = kernel.compile(*args).ir("fused")
    ranks = {name: type.count("x") for name, type in re.findall(r"(%[\w.]+) = .*!pto.tile<([\w?]+)>", text)}
    return [ranks[name] for line in re.findall(r"FUSE (%.*)", text) for name in line.split(", ") if name in ranks]


@pto.jit(cache=False)
def batch_norm(x, w, b, y):
    mean = pl.mean(x, axis=0)
    d = x - mean
    y[...] = d / pl.sqrt(pl.mean(d * d, axis=0) + 1e-5) * w + b


def test_deviations_are_computed_again_and_roots_once() -> None:
    y = np.empty_like(X)
    assert kept(batch_norm, X, W, B, y) == [1, 1, 1, 1]  # rows: sum, mean, sum of squares, root
    for target in ("cpu", "c"):
        batch_norm.compile(X, W, B, y, target=target)(X, W, B, y)
        np.testing.assert_allclose(y, (X - X.mean(0)) / np.sqrt(X.var(0) + 1e-5) * W + B, rtol=1e-4, atol=1e-5)


@pto.jit(cache=False)
def overwritten(x, y):
    """What the deviations are made of is gone when they are read again."""
    d = x - 1.0
    s = pl.sum(d, axis=0)
    x[...] = 0.0
    y[...] = d * s


@pto.jit(cache=False)
def stored_by_group(x, y):
    """The group that makes them stores to what they are made of."""
    d = x - 1.0
    s = pl.sum(d, axis=0)
    x[...] = d * d
    y[...] = d * s


@pto.jit(cache=False)
def of_two(x, z, y):
    """Two tiles to read instead of one."""
    d = x - z
    s = pl.sum(d, axis=0)
    y[...] = d * s


@pto.jit(cache=False)
def read_in_a_loop(x, y, n):
    """Not every reader is a group of the same block."""
    d = x - 1.0
    s = pl.sum(d, axis=0)
    for _ in range(n):
        y[...] = y + d * s


@pto.jit(cache=False)
def functions(x, y):
    """Exponentials cost more than reading them."""
    d = pl.exp(x)
    s = pl.sum(d, axis=0)
    y[...] = d * s


@pto.jit(cache=False)
def narrow(x, y):
    """Half of the bytes are read."""
    d = pl.cast(x - 1.0, pl.f16)
    s = pl.sum(d, axis=0)
    y[...] = d * s


@pytest.mark.parametrize("kernel", [overwritten, stored_by_group, read_in_a_loop, functions, narrow])
def test_what_cannot_be_made_again_or_costs_more_is_kept(kernel) -> None:
    y = np.zeros(X.shape, np.float16 if kernel is narrow else np.float32)
    args = [X.copy(), y] + [3] * (kernel is read_in_a_loop)
    assert 2 in kept(kernel, *args)
    other = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    kernel(*args)
    kernel.interpret(*other)
    np.testing.assert_allclose(args[1], other[1], rtol=1e-2 if kernel is narrow else 1e-4)


def test_what_is_made_of_two_tiles_is_kept() -> None:
    y = np.empty_like(X)
    assert 2 in kept(of_two, X, X * 3, y)
    of_two(X, X * 3, y)
    np.testing.assert_allclose(y, -2 * X * (-2 * X).sum(0), rtol=1e-4, atol=1e-5)


@pto.jit(cache=False)
def in_steps(x, v, y, n):
    """The row is another one in each step: nothing of it may move before the assignment."""
    r = v[None, :]
    for _ in range(n):
        a = x + 1.0
        r = pl.exp(r) * 0.25
        y[...] = a * pl.sqrt(r) + x


def test_rows_that_are_assigned_again_stay() -> None:
    y = np.empty_like(X)
    v = np.abs(W)
    in_steps(X, v, y, 3)
    r = v.copy()
    for _ in range(3):
        r = np.exp(r) * np.float32(0.25)
    np.testing.assert_allclose(y, (X + 1) * np.sqrt(r) + X, rtol=1e-5, atol=1e-6)


def _annotated(shape: tuple[int, ...]):
    def planes(x, v: pl.Tensor[shape, pl.f32], y):  # pyright: ignore
        y[...] = (x - 1.0) * pl.sqrt(v)

    return planes


@pytest.mark.parametrize("shape", [(4, 1, 9), (1, 5, 9), (9,), (4, 5, 1)])
def test_what_rows_or_planes_share_is_computed_once(shape: tuple[int, ...]) -> None:
    x = RNG.standard_normal((4, 5, 9)).astype(np.float32)
    v = np.abs(RNG.standard_normal(shape)).astype(np.float32)
    y = np.empty_like(x)
    kernel = pto.jit(_annotated(shape), cache=False)
    assert kept(kernel, x, v, y) == [len(shape)]
    kernel(x, v, y)
    np.testing.assert_allclose(y, (x - 1) * np.sqrt(v), rtol=1e-5)
