# SPDX-License-Identifier: MIT
"""Reductions, scans, products and order against plain NumPy."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import pto_jit.language as pl
from pto_jit.errors import BoundsError, LaunchError, ShapeError, TypeMismatchError
from tests.language.test_elementwise import FLOATS, INTS, values

AXES = [(None, False), (0, False), (1, True), (-1, False), ((0, 2), False), ((0, 1, 2), True)]


@pytest.mark.parametrize(("axis", "keepdims"), AXES)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, pl.bool_], ids=str)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "any", "all"])
def test_a_reduction_agrees_with_numpy(name: str, dtype: pl.DType, axis: Any, keepdims: bool) -> None:
    x = values(dtype, (3, 4, 5), 7)
    wide = x.astype(np.float32) if dtype.bits == 16 and dtype.is_float else x
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(wide, axis=axis, keepdims=keepdims)
        kept = expected.dtype if name in ("any", "all") or not dtype.is_float else dtype.numpy
        expected = expected.astype(kept)
    result = getattr(pl, name)(x, axis=axis, keepdims=keepdims)
    assert result.dtype == kept and np.shape(result) == np.shape(expected)
    tolerance = {"f16": 2e-3, "bf16": 2e-2, "f32": 1e-5}.get(dtype.name, 1e-12)
    np.testing.assert_allclose(np.asarray(result, float), np.asarray(expected, float), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS], ids=str)
def test_an_empty_reduction_gives_the_identity(dtype: pl.DType) -> None:
    x = np.zeros((2, 0), dtype.numpy)
    low, high = (-np.inf, np.inf) if dtype.is_float else (np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max)
    for name, identity in (("sum", 0), ("prod", 1), ("max", low), ("min", high), ("any", False), ("all", True)):
        np.testing.assert_array_equal(getattr(pl, name)(x, axis=1), [identity, identity])
        assert getattr(pl, name)(x) == identity
    np.testing.assert_array_equal(pl.argmax(x, axis=1), [0, 0])
    assert np.isnan(pl.mean(x)) and pl.argmin(x) == 0


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_propagates_through_reductions(dtype: pl.DType) -> None:
    x = np.array([[1, np.nan, 3], [4, 5, 6]]).astype(dtype.numpy)
    for name in ("max", "min", "sum", "prod", "mean"):
        result = getattr(pl, name)(x, axis=1).astype(float)
        assert np.isnan(result[0]) and not np.isnan(result[1])
    np.testing.assert_array_equal(pl.argmax(x, axis=1), [1, 2])
    np.testing.assert_array_equal(pl.argmin(x, axis=1), [1, 0])


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS], ids=str)
@pytest.mark.parametrize(("axis", "keepdims"), [(None, False), (0, False), (1, True), (None, True)])
def test_argmax_and_argmin_agree_with_numpy_in_i32(dtype: pl.DType, axis: Any, keepdims: bool) -> None:
    x = (values(dtype, (5, 6), 8) if dtype.is_float else np.arange(30).reshape(5, 6) % 4).astype(dtype.numpy)
    for name in ("argmax", "argmin"):
        result = getattr(pl, name)(x, axis=axis, keepdims=keepdims)
        assert result.dtype == np.int32
        np.testing.assert_array_equal(result, getattr(np, name)(x.astype(np.float64), axis=axis, keepdims=keepdims))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, pl.bool_], ids=str)
def test_running_sums_and_products_agree_with_numpy(dtype: pl.DType, axis: int, reverse: bool) -> None:
    x = (values(dtype, (3, 4), 9) if dtype.is_float else np.arange(12).reshape(3, 4) % 3 + 1).astype(dtype.numpy)
    for name in ("cumsum", "cumprod"):
        source = np.flip(x, axis) if reverse else x
        wide = source.astype(np.float32) if dtype.is_float and dtype.bits == 16 else source
        expected = getattr(np, name)(wide, axis=axis)
        expected = np.flip(expected, axis) if reverse else expected
        result = getattr(pl, name)(x, axis=axis, reverse=reverse)
        assert result.dtype == (dtype.numpy if dtype.is_float else expected.dtype)
        np.testing.assert_allclose(result.astype(float), expected.astype(result.dtype).astype(float), rtol=1e-12)


def test_a_reduction_refuses_wrong_axes() -> None:
    for axis in (2, -3, (0, 0), 1.5):
        with pytest.raises(ShapeError):
            pl.sum(np.zeros((2, 2)), axis=axis)  # type: ignore[arg-type]
    with pytest.raises(TypeMismatchError, match="takes a tile"):
        pl.sum(3.0)


# -- products -----------------------------------------------------------------------------------------------------

SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 1, 3, 4), (6, 4, 5)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTS], ids=str)
def test_dot_agrees_with_matmul_and_accumulates_small_types_wider(dtype: pl.DType, a: Any, b: Any) -> None:
    x, y = values(dtype, a, 10), values(dtype, b, 11)
    result = pl.dot(x, y)
    natural = {"f16": np.float32, "bf16": np.float32, "i8": np.int32, "u8": np.int32, "i16": np.int32, "u16": np.int32}
    kind = natural.get(dtype.name, dtype.numpy)
    expected = np.matmul(x.astype(kind), y.astype(kind))
    assert result.dtype == kind and np.shape(result) == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(np.asarray(pl.load(x) @ pl.load(y)), result)


def test_dot_adds_an_accumulator_and_rounds_once_to_out_dtype() -> None:
    a, b = values(pl.f16, (4, 64), 12), values(pl.f16, (64, 4), 13)
    acc = np.full((4, 4), 1000, np.float32)
    exact = a.astype(np.float32) @ b.astype(np.float32) + acc
    np.testing.assert_allclose(pl.dot(a, b, acc), exact, rtol=1e-6)
    half = pl.dot(a, b, acc, out_dtype=pl.f16)
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half, pl.dot(a, b, acc).astype(np.float16))


def test_dot_of_mixed_signedness_and_promotion() -> None:
    a, b = np.array([[200, 3]], np.uint8), np.array([[-5], [7]], np.int8)
    assert pl.dot(a, b).dtype == np.int32 and pl.dot(a, b)[0, 0] == -979
    assert pl.dot(a, b.astype(np.float32)).dtype == np.float32


def test_dot_refuses_unequal_contractions_numbers_and_bools() -> None:
    with pytest.raises(ShapeError, match="contracted"):
        pl.dot(np.zeros((2, 3)), np.zeros((4, 2)))
    with pytest.raises(TypeMismatchError):
        pl.dot(np.zeros((2, 2)), 2.0)
    with pytest.raises(TypeMismatchError, match="bool_"):
        pl.dot(np.ones((2, 2), bool), np.ones((2, 2), bool))
    with pytest.raises(LaunchError, match="accumulator"):
        pl.dot(np.ones((2, 2)), np.ones((2, 2)), np.ones((3, 2)))


# -- order --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS], ids=str)
def test_sorting_is_stable_in_both_directions(dtype: pl.DType) -> None:
    x = np.random.default_rng(14).integers(0, 4, (3, 17)).astype(dtype.numpy)
    if dtype.is_float:
        x[:, 3] = np.nan
    keys = np.where(np.isnan(x.astype(float)), 99, x.astype(float))
    for descending in (False, True):
        order = pl.argsort(x, descending=descending)
        assert order.dtype == np.int32
        pairs = [sorted(range(17), key=lambda k, row=row: -row[k] if descending else row[k]) for row in keys]
        np.testing.assert_array_equal(order, pairs)
        expected = np.take_along_axis(x, np.array(pairs), -1).astype(float)
        np.testing.assert_array_equal(pl.sort(x, descending=descending).astype(float), expected)


@pytest.mark.parametrize("dtype", [pl.f32, pl.bf16, pl.i8, pl.u64], ids=str)
def test_topk_is_the_head_of_the_descending_sort(dtype: pl.DType) -> None:
    x = np.random.default_rng(15).integers(0, 9, (4, 12)).astype(dtype.numpy)
    best, where = pl.topk(x, 5)
    np.testing.assert_array_equal(best.astype(float), pl.sort(x, descending=True)[:, :5].astype(float))
    np.testing.assert_array_equal(where, pl.argsort(x, descending=True)[:, :5])
    assert best.dtype == dtype.numpy and where.dtype == np.int32
    for k in (0, 13):
        with pytest.raises(ShapeError):
            pl.topk(x, k)


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_histogram_counts_per_row_and_leaves_others_out(dtype: pl.DType) -> None:
    x = np.array([[0, 1, 1, 7], [2, 2, 2, 100]]).astype(dtype.numpy)
    np.testing.assert_array_equal(pl.histogram(x, 3), [[1, 2, 0], [0, 0, 3]])
    with pytest.raises(TypeMismatchError):
        pl.histogram(np.zeros(3), 3)


def test_histogram_leaves_negative_values_out() -> None:
    np.testing.assert_array_equal(pl.histogram(np.array([-1, 0, 0, -128], np.int8), 2), [2, 0])


# -- functions as arguments ---------------------------------------------------------------------------------------


def test_reduce_with_operators_lambdas_and_branches() -> None:
    x = values(pl.f32, (4, 6), 16)
    np.testing.assert_allclose(pl.reduce(x, 1, operator.add), x.sum(1), rtol=1e-5)
    np.testing.assert_array_equal(pl.reduce(x, 0, lambda a, b: a if a > b else b), x.max(0))
    np.testing.assert_array_equal(pl.reduce(x, -1, lambda a, b: min(a, b), keepdims=True), x.min(1, keepdims=True))
    assert pl.reduce(x[0], 0, max) == x[0].max()
    assert pl.reduce(x[:0, :0], 0, operator.add).shape == (0,)  # no place wants a value


def test_reduce_keeps_the_order_of_a_function_that_does_not_commute() -> None:
    x = np.array([3, 1, 2])
    assert pl.reduce(x, 0, lambda a, b: a * 10 + b) == 312
    assert pl.reduce(x, 0, lambda a, b: a * 10 + b, init=4) == 4312


def test_reduce_of_a_tuple_takes_and_returns_tuples() -> None:
    x = values(pl.f32, (3, 8), 17)

    def merge(a: Any, b: Any) -> Any:
        m = pl.maximum(a[0], b[0])
        return m, a[1] * pl.exp(a[0] - m) + b[1] * pl.exp(b[0] - m)

    m, s = pl.reduce((x, np.ones_like(x)), 1, merge, init=(-1e30, 0.0))
    np.testing.assert_array_equal(m, x.max(1))
    np.testing.assert_allclose(s, np.exp(x - x.max(1, keepdims=True)).sum(1), rtol=1e-5)


def test_reduce_of_nothing_is_init_or_an_error() -> None:
    empty = np.zeros((2, 0), np.float32)
    np.testing.assert_array_equal(pl.reduce(empty, 1, operator.add, init=5.0), [5, 5])
    with pytest.raises(BoundsError, match="init"):
        pl.reduce(empty, 1, operator.add)


def test_associative_scan_in_both_directions() -> None:
    x = values(pl.f64, (3, 5), 18)
    np.testing.assert_allclose(pl.associative_scan(x, 1, operator.add), np.cumsum(x, 1))
    np.testing.assert_array_equal(
        pl.associative_scan(x, 0, lambda a, b: a if a > b else b, reverse=True), np.maximum.accumulate(x[::-1], 0)[::-1]
    )


def test_a_linear_recurrence_is_an_associative_scan_of_pairs() -> None:
    a, b = values(pl.f64, (9,), 19, 0.5, 0.9), values(pl.f64, (9,), 20)
    _, h = pl.associative_scan((a, b), 0, lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]))
    state, expected = 0.0, []
    for x, y in zip(a, b, strict=True):
        state = x * state + y
        expected.append(state)
    np.testing.assert_allclose(h, expected)


def test_map_of_scalar_functions_with_one_and_several_results() -> None:
    x = values(pl.f32, (2, 3), 21)
    result = pl.map(lambda v: v if v > 0 else 0.5 * v, x)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, np.where(x > 0, x, np.float32(0.5) * x))
    s, p = pl.map(lambda a, b: (a + b, a * b), x, np.float32(2) * x[:1])
    np.testing.assert_array_equal(s, x + 2 * x[:1])
    np.testing.assert_array_equal(p, x * (2 * x[:1]))
    assert pl.map(lambda v: 1 if v > 0 else 2, np.zeros((0, 3), np.float32)).shape == (0, 3)


def test_an_error_in_the_users_function_is_the_users_error() -> None:
    def broken(a: Any, b: Any) -> Any:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        pl.reduce(np.zeros((2, 3)), 1, broken)
    with pytest.raises(TypeMismatchError, match="returns 1 values for 2"):
        pl.reduce((np.zeros(3), np.zeros(3)), 0, lambda a, b: a[0])
