# SPDX-License-Identifier: MIT
"""The index of an extreme of a whole tile is a number like any other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from tests.targets.c.harness import needs_compiler


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_the_place_of_an_extreme_is_stored_returned_and_computed_with(dtype: type) -> None:
    @pto.jit(cache=False)
    def kernel(x, out):
        t = pl.load(x)
        out[0] = pl.argmax(t)
        out[1] = int(pl.argmin(t)) * 10 + 1
        return pl.argmax(t * -1) % 2

    x, out = np.array([3, 1, 4, 2, 9, 2], dtype), np.zeros(2, np.int64)
    assert kernel(x, out) == 1 and out.tolist() == [4, 11]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool"])
def test_the_first_extreme_along_any_axes_is_found_and_nan_before_all(dtype: str) -> None:
    rng = np.random.default_rng(3)
    x = (rng.standard_normal((6, 5, 7)) * 3).round().astype(dtype)
    if dtype.startswith("float"):
        x[[2, 4], [0, 0], [3, 3]] = x[0, 4, 1] = np.nan
    for axis in (None, 0, 1, 2):
        for ours, theirs in ((pl.argmax, np.argmax), (pl.argmin, np.argmin)):
            found = pto.jit(lambda t: ours(t, axis=axis))(x)
            np.testing.assert_array_equal(found, theirs(x, axis=axis))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint16", "int64", "bool"])
@pytest.mark.parametrize("columns", [1, 17, 64, 300])
def test_rows_of_equal_elements_infinities_and_nan_give_the_first(dtype: str, columns: int) -> None:
    rng = np.random.default_rng(columns)
    x = (rng.standard_normal((12, columns)) * 2).round().astype(dtype)
    x[:3] = x.min() if dtype != "bool" else False
    if dtype.startswith("float"):
        x[0], x[1] = -np.inf, np.inf
        x[3:6, columns // 2 :] = np.nan
        x[6:9][rng.random((3, columns)) < 0.2] = np.nan
        x[7:11][rng.random((4, columns)) < 0.2] = -np.inf
        x[11] = -np.nan
    elif dtype.startswith("int"):
        x[0], x[1] = np.iinfo(dtype).min, np.iinfo(dtype).max
    np.testing.assert_array_equal(pto.jit(lambda t: pl.argmax(t, axis=1))(x), np.argmax(x, axis=1))
    np.testing.assert_array_equal(pto.jit(lambda t: pl.argmin(t, axis=1))(x), np.argmin(x, axis=1))


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool"])
def test_whole_tiles_in_one_piece_and_in_several(dtype: str) -> None:
    @pto.jit
    def kernel(x, out):
        out[0] = pl.argmax(x[:, :])
        out[1] = pl.argmin(pl.load(x, [1, 0], [50, 70]))
        out[2] = pl.argmax(pl.transpose(x[:, :]))
        return pl.argmin(x[:, 1:]), pl.argmax(x[0:0, :])

    x = (np.random.default_rng(7).standard_normal((40, 70)) * 2).round().astype(dtype)
    for nan in (False, True):
        if nan and dtype == "float32":
            x[[3, 20], [30, 2]] = np.nan
        for given in (x, np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2]):
            out = np.zeros(3, np.int64)
            assert kernel(given, out) == (np.argmin(x[:, 1:]), 0)
            assert out.tolist() == [np.argmax(x), np.argmin(x[1:]), np.argmax(x.T)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint64"])
def test_columns_are_searched_down_incomplete_tiles_too(dtype: str) -> None:
    @pto.jit
    def kernel(x, least, most):
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t = pl.load(x, [r, 0], [8, 40])
            pl.store(pl.argmin(t, axis=0), [0], least[r // 8, :])
            pl.store(pl.argmax(t, axis=0, keepdims=True), [r // 8, 0], most)

    rng = np.random.default_rng(1)
    for rows in (1, 8, 13):
        x = rng.integers(0, 5, (rows, 37)).astype(dtype)
        if dtype.startswith("float"):
            x[rng.random(x.shape) < 0.1] = np.nan
        found = [np.zeros((-(-rows // 8), 37), np.int32) for _ in range(2)]
        kernel(x, *found)
        for ours, theirs in zip(found, (np.argmin, np.argmax), strict=True):
            np.testing.assert_array_equal(ours, [theirs(x[r : r + 8], axis=0) for r in range(0, rows, 8)])
    none = [np.full((1, 37), 9, np.int32) for _ in range(2)]

    @pto.jit
    def empty(x, n, out):
        pl.store(pl.argmax(pl.load(x, [0, 0], [n, 37]), axis=0), [0], out[0, :])

    empty(x, 0, none[0])
    assert not none[0].any()


ONES = np.broadcast_to(np.uint8(1), (2**31 + 5,))  # a single byte


def _place(x):
    return pl.argmax(pl.load(x))


def _places_in_columns(x):
    return pl.sum(pl.argmin(pl.load(x), axis=0))


def _place_among_results(x):
    t = pl.load(x)
    return pl.argmax(t == 2), pl.max(t)


def _order(x):
    return pl.sum(pl.argsort(pl.load(x)))


def _few(x):
    return pl.sum(pl.topk(pl.load(x), 3)[1])


def _counts(x):
    return pl.sum(pl.histogram(pl.load(x), 3))


@pytest.mark.parametrize("target", ["cpu", pytest.param("c", marks=needs_compiler)])
@pytest.mark.parametrize(
    ("kernel", "shape"),
    [(_place, None), (_place, (2**16, 2**16)), (_places_in_columns, (2**31 + 5, 2)), (_place_among_results, None),
     (_order, None), (_few, None), (_counts, None)],
)  # fmt: skip
def test_lines_that_i32_cannot_count_are_errors(
    kernel: Callable[..., object], shape: tuple[int, ...] | None, target: str
) -> None:
    """Indices wrapped below 0, and so did counts."""
    x = ONES if shape is None else np.broadcast_to(np.uint8(1), shape)
    compiled = pto.jit(kernel, cache=False).compile(x, target=target)
    with pytest.raises(pto.LaunchError, match=r"PTO-H208: .* elements, and its i32 results"):
        compiled(x)


@pytest.mark.parametrize("operation", [pl.argmax, pl.argmin, pl.argsort, lambda t: pl.topk(t, 3),
                                       lambda t: pl.histogram(t, 3)])  # fmt: skip
def test_they_are_errors_of_eager_operations(operation: Callable[..., object]) -> None:
    with pytest.raises(pto.LaunchError, match="PTO-H208"):
        operation(ONES)
    with pytest.raises(pto.LaunchError, match="PTO-H208"):
        pl.argmax(np.broadcast_to(np.uint8(1), (2**16, 2**16)))
