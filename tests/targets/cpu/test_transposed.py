# SPDX-License-Identifier: MIT
"""Tiles of transposed arrays and of arrays in Fortran's order: rows that are packed by transposed blocks, nests that run
along the first axis."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

SHAPES = [(1, 1), (3, 50), (16, 16), (17, 31), (64, 40), (40, 1500), (130, 2000)]
DTYPES = ["float32", "float64", "float16", "int8", "int16", "int64"]


def _array(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 20).astype(dtype)


def _orders(shape: tuple[int, ...], dtype: str) -> list[np.ndarray]:
    """Arrays of a shape that lie differently in memory."""
    x = _array(shape, dtype)
    spread = _array((*shape[:-1], 3 * shape[-1]), dtype, 1)[..., ::3]
    return [x, np.asfortranarray(x), spread, np.asfortranarray(_array(tuple(n + 2 for n in shape), dtype))[1:-1, 1:-1]]


@pto.jit
def affine(x, y):
    pl.store(pl.load(x) * 2 + 1, y)


@pto.jit
def joined(x, y, z):
    pl.store(pl.load(x) + pl.load(y), z)


@pto.jit
def softmax(x, y):
    t = pl.load(x)
    e = pl.exp(t - pl.max(t, axis=1, keepdims=True))
    pl.store(e / pl.sum(e, axis=1, keepdims=True), y)


@pto.jit
def reduced(x, rows, columns):
    t = pl.load(x)
    pl.store(pl.sum(t, axis=1), rows)
    pl.store(pl.max(t, axis=0), columns)
    return pl.sum(t), pl.min(t)


@pto.jit
def positions(x, y, row, column):
    t = pl.load(x) * pl.expand_dims(pl.load(column), 1) + pl.load(row)
    pl.store(pl.where(t > 0, t, pl.expand_dims(pl.arange(0, x.shape[0], dtype=pl.f32), 1)), y)


@pto.jit
def kept(x, y, z):
    t = pl.load(x) * 2
    pl.store(t, y)
    pl.store(pl.sum(t, axis=0), z)


@pto.jit
def planes(x, y):
    pl.store(pl.exp(pl.load(x)), y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_of_every_order_go_to_every_order(dtype: str) -> None:
    for shape in SHAPES:
        for x in _orders(shape, dtype):
            for like in _orders(shape, dtype):
                whole = like if like.base is None else like.base
                like[...] = 0
                before = whole.copy()
                affine(x, like)
                np.testing.assert_array_equal(like, x * np.asarray(2, dtype) + np.asarray(1, dtype))
                like[...] = 0
                assert whole.tobytes() == before.tobytes(), "nothing but the elements is written"


@pytest.mark.parametrize("threads", [1, 2])
def test_operands_of_different_orders_meet(threads: int) -> None:
    kernel = pto.jit(num_threads=threads)(joined.__wrapped__)
    for shape in [*SHAPES, (300, 700)]:
        for x in _orders(shape, "float32"):
            for y in _orders(shape, "float32"):
                for z in (np.empty(shape, "float32"), np.empty(shape[::-1], "float32").T):
                    kernel(x, y, z)
                    np.testing.assert_array_equal(z, x + y)


@pytest.mark.parametrize("threads", [1, 2])
def test_reductions_of_every_order(threads: int) -> None:
    soft, sums = pto.jit(num_threads=threads)(softmax.__wrapped__), pto.jit(num_threads=threads)(reduced.__wrapped__)
    for shape in [*SHAPES, (300, 700), (3, 70000)]:
        for x in _orders(shape, "float32"):
            e = np.exp((x - x.max(1, keepdims=True)).astype("float64"))
            for y in (np.empty(shape, "float32"), np.empty(shape[::-1], "float32").T):
                soft(x, y)
                np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=2e-4, atol=1e-30)
            rows, columns = np.empty(shape[0], "float32"), np.empty(shape[1], "float32")
            total, least = sums(x, rows, columns)
            exact = x.astype("float64")
            np.testing.assert_allclose(rows, exact.sum(1), rtol=1e-4, atol=0.1)
            np.testing.assert_array_equal(columns, x.max(0))
            np.testing.assert_allclose(total, exact.sum(), rtol=1e-3, atol=5)
            assert least == x.min()


def test_what_rows_and_columns_broadcast_and_positions() -> None:
    for shape in SHAPES:
        row, column = _array(shape[1:], "float32", 3), _array(shape[:1], "float32", 4)
        for x in _orders(shape, "float32"):
            for y in (np.empty(shape, "float32"), np.empty(shape[::-1], "float32").T):
                positions(x, y, row, column)
                t = x * column[:, None] + row
                np.testing.assert_allclose(y, np.where(t > 0, t, np.arange(shape[0])[:, None]), rtol=1e-4, atol=1e-4)


def test_a_result_that_is_stored_and_reduced() -> None:
    for shape in SHAPES:
        for x in _orders(shape, "float64"):
            y, z = np.empty(shape[::-1]).T, np.empty(shape[1])
            kept(x, y, z)
            np.testing.assert_array_equal(y, x * 2)
            np.testing.assert_allclose(z, (x * 2).sum(0), atol=1e-9)


@pytest.mark.parametrize("axes", [(2, 1, 0), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1)])
def test_arrays_of_three_axes_in_other_orders(axes: tuple[int, ...]) -> None:
    for shape in [(2, 3, 4), (5, 17, 33), (20, 16, 48)]:
        x = _array(shape, "float32") / 20
        for given, out in ((x, x), (x.transpose(axes).copy(), x), (x.transpose(axes).copy(), x.transpose(axes).copy())):
            back = np.argsort(axes)
            source = given if given is x else given.transpose(back)
            target = np.empty_like(out) if out is x else np.empty_like(out).transpose(back)
            planes(source, target)
            np.testing.assert_allclose(target, np.exp(x), rtol=1e-6)


def _reductions(axis: int | tuple[int, ...]) -> tuple[Any, Any]:
    @pto.jit
    def alone(x, y):
        pl.store(pl.sum(x[...], axis=axis), y)

    @pto.jit
    def several(x, y, least, most, products, means):
        t = x[...]
        pl.store(pl.sum(t, axis=axis), y)
        pl.store(pl.min(t, axis=axis), least)
        pl.store(pl.max(t + 1, axis=axis), most)
        pl.store(pl.prod(t, axis=axis), products)
        pl.store(pl.mean(t, axis=axis), means)

    return alone, several


@pytest.mark.parametrize("axis", [0, 1, 2, 3, (0, 1), (1, 2), (0, 2), (1, 3)])
@pytest.mark.parametrize("rank", [3, 4])
def test_reductions_of_arrays_in_every_order_of_axes(rank: int, axis: int | tuple[int, ...]) -> None:
    if max(np.atleast_1d(axis)) >= rank:
        return
    alone, several = _reductions(axis)
    for shape in [(3, 5, 4, 2), (5, 18, 35, 3), (2, 17, 40, 20)]:
        x = np.random.default_rng(rank).choice([-2, -1, -0.5, 0.5, 1, 2], shape[:rank])
        expected = [f(x, axis=axis) for f in (np.sum, np.min, np.max, np.prod, np.mean)]
        expected[2] += 1
        for order in itertools.permutations(range(rank)):
            given = np.transpose(x.transpose(order).copy(), np.argsort(order))
            for like in ("C", "F"):
                y = np.full(expected[0].shape, np.nan, order=like)
                alone(given, y)
                np.testing.assert_array_equal(y, expected[0])
                out = [np.full(e.shape, np.nan, order=like) for e in expected]
                several(given, *out)
                for o, e in zip(out, expected, strict=True):
                    np.testing.assert_allclose(o, e, rtol=1e-12)


def test_an_array_is_changed_in_place_and_through_its_own_transpose() -> None:
    for n in (5, 16, 40, 90):
        x = np.asfortranarray(_array((n, n), "float32"))
        expected = x * np.float32(2) + np.float32(1)
        affine(x, x)
        np.testing.assert_array_equal(x, expected)
        expected = x.T * np.float32(2) + np.float32(1)
        affine(x.T, x)
        np.testing.assert_array_equal(x, expected)
        expected = x + x.T
        joined(x, x.T, x)
        np.testing.assert_array_equal(x, expected)


def test_kernels_of_contiguous_arrays_have_one_nest_and_others_transpose() -> None:
    x = _array((32, 32), "float32")
    assert "pto.transpose" not in affine.compile(x, x.copy()).ir("llvm")
    mixed = affine.compile(x.T, x.copy()).ir("llvm")
    assert "call void @\"pto.transpose.4\"" in mixed
    strided = affine.compile(x.T, x.copy().T).ir("llvm")
    assert strided.count("fmul") > mixed.count("fmul"), "the nest in both orders"
