# SPDX-License-Identifier: MIT
"""Reductions, scans, products, structure, order and indirect access through the whole compiler, against NumPy."""

from __future__ import annotations

import operator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

DTYPES = ["float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool"]
SHAPES = [(1, 1), (3, 17), (5, 64), (33, 70)]


def array(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype.startswith(("int", "uint")):
        return rng.integers(0 if dtype[0] == "u" else -20, 20, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def close(actual: Any, expected: Any, dtype: str) -> None:
    tolerance = {"float16": 4e-3, "float32": 2e-5, "float64": 1e-13}.get(dtype, 0)
    np.testing.assert_allclose(np.asarray(actual, np.float64), np.asarray(expected, np.float64), rtol=tolerance,
                               atol=tolerance)  # fmt: skip


AXES = [(dtype, axis) for dtype in DTYPES for axis in (0, 1, -1, None, (0, 1))
        if dtype in ("float32", "int8") or axis in (0, 1, None)]  # fmt: skip


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(("dtype", "axis"), AXES)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "any", "all", "mean"])
def test_a_reduction_agrees_with_numpy(name: str, dtype: str, axis: Any, keepdims: bool) -> None:
    function = getattr(pl, name)
    kernel = pto.jit(lambda x: function(x, axis=axis, keepdims=keepdims))
    for shape in SHAPES[:3]:
        x = array(dtype, shape)
        if name == "prod":
            x = (np.abs(x) % 2 + 1).astype(dtype) if dtype != "bool" else x
            if dtype.startswith("float"):
                x = (1 + x / 64).astype(dtype)
        expected = getattr(np, name)(x, axis=axis, keepdims=keepdims)
        result = kernel(x)
        close(result, expected, dtype)
        if isinstance(result, np.ndarray):
            assert result.dtype == expected.dtype and result.shape == expected.shape


@pytest.mark.parametrize("dtype", ["bfloat16", "int16", "uint64"])
def test_reductions_scans_and_orders_of_the_other_dtypes_agree_with_numpy(dtype: str) -> None:
    reductions = [pl.sum, pl.max, pl.mean, pl.argmin]

    @pto.jit
    def kernel(x):
        t = pl.load(x)
        results = [f(t, axis=axis) for f in reductions for axis in (0, 1)]
        return *results, pl.cumsum(t, axis=1, reverse=True), pl.sort(t), pl.argsort(t)

    for shape in SHAPES[:3]:
        x = array("int8" if dtype == "bfloat16" else dtype, shape).astype(dtype_of(dtype))
        plain = x.astype(np.float64) if dtype == "bfloat16" else x  # sums are exact
        wanted = [getattr(np, f.__name__)(plain, axis=axis) for f in reductions for axis in (0, 1)]
        wanted.append(np.cumsum(plain[:, ::-1], 1)[:, ::-1])
        wanted += [np.sort(plain, -1), np.argsort(plain, -1, kind="stable")]
        for got, expected in zip(kernel(x), wanted, strict=True):
            close(got, expected, "float16" if dtype == "bfloat16" else "float64")


def test_a_reduction_of_nothing_gives_the_identity() -> None:
    x = np.zeros((4, 0), np.float32)
    np.testing.assert_array_equal(pto.jit(lambda t: pl.sum(t, axis=1))(x), np.zeros(4))
    np.testing.assert_array_equal(pto.jit(lambda t: pl.prod(t, axis=1))(x), np.ones(4))
    np.testing.assert_array_equal(pto.jit(lambda t: pl.max(t, axis=1))(x), np.full(4, -np.inf))
    np.testing.assert_array_equal(pto.jit(lambda t: pl.min(t, axis=1))(x), np.full(4, np.inf))
    assert pto.jit(lambda t: pl.sum(t))(x) == 0


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_place_of_an_extreme_is_the_first_one(name: str, axis: Any, dtype: str) -> None:
    function = getattr(pl, name)
    kernel = pto.jit(lambda x: function(x, axis=axis))
    for shape in SHAPES:
        x = array(dtype, shape)
        if dtype.startswith("float"):
            x = np.round(x)  # ties
        np.testing.assert_array_equal(kernel(x), getattr(np, name)(x, axis=axis))


def test_not_a_number_goes_through_max_and_min() -> None:
    x = np.ones((3, 40), np.float32)
    x[1, 37] = np.nan
    np.testing.assert_array_equal(pto.jit(lambda t: pl.max(t, axis=1))(x), np.max(x, axis=1))
    np.testing.assert_array_equal(pto.jit(lambda t: pl.min(t, axis=1))(x), np.min(x, axis=1))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8"])
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_a_scan_agrees_with_numpy(name: str, dtype: str, axis: int, reverse: bool) -> None:
    function = getattr(pl, name)
    x = array(dtype, (6, 35))
    if name == "cumprod":
        x = (1 + x / 64).astype(dtype) if dtype.startswith("float") else np.sign(x).astype(dtype)
    turned = np.flip(x, axis) if reverse else x
    expected = getattr(np, name)(turned, axis=axis)
    result = pto.jit(lambda t: function(t, axis=axis, reverse=reverse))(x)
    close(result, np.flip(expected, axis) if reverse else expected, dtype)


def test_reduce_and_scan_take_any_function() -> None:
    x = array("float32", (5, 37))
    result = pto.jit(lambda t: pl.reduce(t, 1, lambda a, b: pl.maximum(a, b)))(x)
    np.testing.assert_array_equal(result, x.max(axis=1))
    close(pto.jit(lambda t: pl.reduce(t, 0, operator.add))(x), x.sum(axis=0), "float32")
    close(pto.jit(lambda t: pl.associative_scan(t, 1, operator.add))(x), np.cumsum(x, axis=1), "float32")

    def argmax(left: Any, right: Any) -> Any:
        better = right[0] > left[0]
        return pl.where(better, right[0], left[0]), pl.where(better, right[1], left[1])

    @pto.jit
    def kernel(t: pl.Tensor):
        tile = pl.load(t)
        place = pl.broadcast_to(pl.reshape(pl.arange(0, 37), (1, 37)), (5, 37))
        value, index = pl.reduce((tile, place), 1, argmax)
        return value, index

    value, index = kernel(x)
    np.testing.assert_array_equal(value, x.max(axis=1))
    np.testing.assert_array_equal(index, x.argmax(axis=1))


def test_map_takes_a_scalar_function_with_control_flow() -> None:
    def collatz(n: Any) -> Any:
        steps = 0
        while n > 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        return steps

    x = np.arange(1, 40, dtype=np.int64)
    np.testing.assert_array_equal(pto.jit(lambda t: pl.map(collatz, t))(x), [collatz(int(v)) for v in x])


@pytest.mark.parametrize("shapes", [((5, 7), (7, 3)), ((33, 65), (65, 17)), ((1, 40), (40, 1)), ((0, 4), (4, 3)),
                                    ((3, 0), (0, 2)), ((64, 64), (64, 64))])  # fmt: skip
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "int32", "int64"])
def test_a_matrix_product_agrees_with_numpy(dtype: str, shapes: Any) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    a, b = (array("int8" if dtype == "int8" else "float64", s, k).astype(kind) for k, s in enumerate(shapes))
    result = pto.jit(lambda x, y: x @ y)(a, b)
    if dtype in ("float16", "bfloat16"):
        assert result.dtype == np.float32
        np.testing.assert_allclose(result, a.astype("f8") @ b.astype("f8"), rtol=1e-3, atol=1e-3)
    elif dtype.startswith("float"):
        np.testing.assert_allclose(result, a @ b, rtol=2e-4 if dtype == "float32" else 1e-12,
                                   atol=2e-5 if dtype == "float32" else 1e-12)  # fmt: skip
    else:
        assert result.dtype == (np.int32 if dtype == "int8" else a.dtype)
        np.testing.assert_array_equal(result, a.astype(result.dtype) @ b.astype(result.dtype))


def test_a_product_takes_transposed_batched_and_accumulating_operands() -> None:
    a, b, c = array("float32", (20, 30)), array("float32", (40, 30), 1), array("float32", (20, 40), 2)
    close(pto.jit(lambda x, y: x @ y.T)(a, b), a @ b.T, "float32")
    close(pto.jit(lambda x, y, z: pl.dot(pl.load(x), pl.load(y).T, acc=pl.load(z)))(a, b, c), a @ b.T + c, "float32")
    p, q = array("float32", (3, 9, 11)), array("float32", (3, 11, 5), 1)
    close(pto.jit(lambda x, y: x @ y)(p, q), p @ q, "float32")
    v = array("float32", (30,), 3)
    close(pto.jit(lambda x, y: x @ y)(a, v), a @ v, "float32")
    close(pto.jit(lambda x, y: x @ y)(v, b.T.copy()), v @ b.T, "float32")


@pytest.mark.parametrize("dtype", ["float32", "int16", "bool"])
def test_structure_operations_move_elements_like_numpy(dtype: str) -> None:
    x, y = array(dtype, (6, 10)), array(dtype, (6, 10), 1)
    cases = {
        "reshape": (lambda t, u: pl.reshape(pl.load(t, [0, 0], [6, 10]), (4, 15)), x.reshape(4, 15)),
        "transpose": (lambda t, u: pl.transpose(pl.load(t)), x.T),
        "concat rows": (lambda t, u: pl.concat([pl.load(t), pl.load(u)]), np.concatenate([x, y])),
        "concat columns": (lambda t, u: pl.concat([pl.load(t), pl.load(u)], axis=1), np.concatenate([x, y], 1)),
        "stack": (lambda t, u: pl.stack([pl.load(t), pl.load(u)], axis=1), np.stack([x, y], 1)),
        "flip": (lambda t, u: pl.flip(pl.load(t), 1), np.flip(x, 1)),
        "part": (lambda t, u: pl.load(t)[1:3, 2:], x[1:3, 2:]),
        "row": (lambda t, u: pl.load(t)[2], x[2]),
        "expand": (lambda t, u: pl.expand_dims(pl.load(t), 1), x[:, None]),
        "expand twice": (lambda t, u: pl.expand_dims(pl.load(t), (3, 0)), x[None, :, :, None]),
        "new axis": (lambda t, u: pl.load(t)[:, None], x[:, None]),
        "new axes": (lambda t, u: pl.load(t)[None, 1:3, None, ..., None], x[None, 1:3, None, ..., None]),
        "new axis, row": (lambda t, u: pl.load(t)[2, None], x[2, None]),
        "new axis, element": (lambda t, u: pl.load(t)[2, None, 3], x[2, None, 3]),
        "new axis of a tensor": (lambda t, u: t[1:, np.newaxis, 2], x[1:, None, 2]),
        "new axis of a transposed view": (lambda t, u: t.T[..., None], x.T[..., None]),
        "new axis, element of a tensor": (lambda t, u: t[None, 2, 3, None], x[None, 2, 3, None]),
        "split": (lambda t, u: pl.split(pl.load(t, [0, 0], [6, 10]), 2)[1], x[:, 5:]),
        "broadcast": (
            lambda t, u: pl.broadcast_to(pl.load(t, [0, 0], [1, 10]), (4, 10)),
            np.broadcast_to(x[:1], (4, 10)),
        ),
    }
    for name, (function, expected) in cases.items():
        np.testing.assert_array_equal(pto.jit(function)(x, y), expected, err_msg=name)
        np.testing.assert_array_equal(pto.jit(function).interpret(x, y), expected, err_msg=f"interpreted {name}")


def test_new_axes_broadcast_tiles_at_the_border_and_are_refused_where_they_mean_nothing() -> None:
    @pto.jit
    def scaled(x: pl.Tensor, v: pl.Tensor, y: pl.Tensor) -> None:
        for i in pl.range(0, x.shape[0], 4, chunk=2):
            t, s = pl.load(x, [i, 0], [4, 5]), pl.load(v, [i], [4])
            pl.store(t * s[:, None] + pl.arange(0, 5)[None, :] + v[i : i + 4][:, None], [i, 0], y)

    x, v, y = array("float32", (10, 5)), array("float32", (10,), 1), np.zeros((10, 5), np.float32)
    scaled(x, v, y)
    close(y, x * v[:, None] + np.arange(5) + v[:, None], "float32")

    def assigned(x: pl.Tensor, y: pl.Tensor) -> None:
        y[None, :] = x

    def mixed(x: pl.Tensor, y: pl.Tensor) -> None:
        pl.store(x[pl.arange(0, 2), None], [0, 0, 0], y)

    for function, code in ((assigned, "PTO-H016"), (mixed, "PTO-H011")):
        for call in (pto.jit(function), pto.jit(function).interpret):
            with pytest.raises(pto.ShapeError) as caught:
                call(x, y)
            assert caught.value.code == code


def test_an_index_tile_goes_with_numbers_and_slices_as_in_numpy() -> None:
    a = array("float32", (5, 4, 6))

    @pto.jit
    def parts(a: pl.Tensor, places: pl.Tensor, k: int) -> Any:
        return (a[places, k, :], a[places, k], a[places, 1:4], a[places, k, 1 : k + 2], a[k, places, 2:],
                a[places, :, k], a[:, k, places], a[:, places], a[..., places],
                a[pl.reshape(pl.load(places), [2, 2]), k, :])  # fmt: skip

    at = np.array([0, 2, 1, 3])
    for dtype in (np.int32, np.int64, np.uint8, np.int16, np.uint32):
        expected = (a[at, 2], a[at, 2], a[at, 1:4], a[at, 2, 1:4], a[2, at, 2:], a[at, :, 2],
                    a[:, 2, at], a[:, at], a[..., at], a[at.reshape(2, 2), 2])  # fmt: skip
        for call in (parts, parts.interpret):
            for number, (got, wanted) in enumerate(zip(call(a, at.astype(dtype), 2), expected, strict=True)):
                np.testing.assert_array_equal(got, wanted, err_msg=f"{number} {dtype}")

    def moved(a: pl.Tensor, places: pl.Tensor, y: pl.Tensor) -> None:
        y[:, :] = a[:, places, 0] + a[0, :, places]

    def both(a: pl.Tensor, places: pl.Tensor, y: pl.Tensor) -> None:
        y[:, :] = a[places, places]

    for function in (moved, both):
        for call in (pto.jit(function), pto.jit(function).interpret):
            with pytest.raises(pto.ShapeError) as caught:
                call(a, at, np.zeros((4, 6), np.float32))
            assert caught.value.code == "PTO-H011"


def test_rows_are_written_one_after_the_other() -> None:
    def assigned(x: pl.Tensor, places: pl.Tensor, y: pl.Tensor) -> None:
        y[pl.load(places), :] = x

    def scattered(x: pl.Tensor, places: pl.Tensor, y: pl.Tensor) -> None:
        pl.scatter(pl.load(x), pl.load(places), 0, y)

    x, at, y = array("float32", (3, 5)), np.array([3, 0, 2]), np.zeros((4, 5), np.float32)
    for function in (assigned, scattered):
        for call in (pto.jit(function), pto.jit(function).interpret):
            with pytest.raises(pto.PtoError, match=r"for k in pl.range\(n\): x\[index\[k\], :\] = t\[k, :\]"):
                call(x, at, y)

    @pto.jit
    def rows(x: pl.Tensor, places: pl.Tensor, y: pl.Tensor) -> None:
        t, index = pl.load(x), pl.load(places)
        for k in pl.range(3):
            y[index[k], :] = t[k, :]

    rows(x, at, y)
    np.testing.assert_array_equal(y[at], x)


def test_a_tile_with_one_axis_is_a_table() -> None:
    @pto.jit
    def dequantise(packed: pl.Tensor, code: pl.Tensor, y: pl.Tensor) -> None:
        table = pl.load(code)
        for i in pl.range(packed.shape[0], parallel=True):
            t = packed[i, :]
            y[i, :, 0], y[i, :, 1] = table[t >> 4], pl.gather(table, t & 15, 0)

    @pto.jit
    def wide(code: pl.Tensor, places: pl.Tensor, y: pl.Tensor) -> None:
        for r in pl.range(0, places.shape[0], 2, parallel=True):
            pl.store(pl.load(code)[pl.load(places, [r, 0], [2, 4])], [r, 0], y)

    packed, code = array("uint8", (5, 7)), array("float32", (16,))
    expected = np.stack([code[packed >> 4], code[packed & 15]], axis=2)
    for call in (dequantise, dequantise.interpret):
        y = np.zeros((5, 7, 2), np.float32)
        call(packed, code, y)
        np.testing.assert_array_equal(y, expected)
        places, z = np.arange(16).reshape(4, 4) * 7 % 16, np.zeros((4, 4), np.float32)
        (wide if call is dequantise else wide.interpret)(code, places, z)
        np.testing.assert_array_equal(z, code[places])


def test_an_assignment_leaves_out_leading_axes_of_extent_one() -> None:
    @pto.jit
    def rows(x: pl.Tensor, y: pl.Tensor) -> None:
        for r in pl.range(x.shape[0], parallel=True):
            t = pl.load(x, [r, 0], [1, x.shape[1]])
            y[r, :] = t - pl.max(t, axis=1, keepdims=True)

    x = array("float32", (3, 5))
    for call in (rows, rows.interpret):
        y = np.zeros_like(x)
        call(x, y)
        np.testing.assert_array_equal(y, x - x.max(axis=1, keepdims=True))

    def two(x: pl.Tensor, y: pl.Tensor) -> None:
        y[0, :] = pl.load(x, [0, 0], [2, 5])

    for call in (pto.jit(two), pto.jit(two).interpret):
        with pytest.raises(pto.ShapeError) as caught:
            call(x, x)
        assert caught.value.code == "PTO-H006"


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_sorting_is_stable_and_puts_nan_last(dtype: str, descending: bool) -> None:
    x = array(dtype, (4, 53))
    if dtype == "float32":
        x = np.round(x)
    ordered = pto.jit(lambda t: pl.sort(t, descending=descending))(x)
    places = pto.jit(lambda t: pl.argsort(t, descending=descending))(x)
    key = -x.astype(np.float64) if descending else x
    expected = np.argsort(key, axis=-1, kind="stable")
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(ordered, np.take_along_axis(x, expected, -1))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int16", "uint32", "int64", "bool"])
def test_rows_of_any_length_are_sorted_by_bits_as_by_value(dtype: str) -> None:
    rng = np.random.default_rng(5)
    up, down = pto.jit(lambda t: pl.argsort(t)), pto.jit(lambda t: pl.argsort(t, descending=True))
    some, most = pto.jit(lambda t: pl.topk(t, 2)), pto.jit(lambda t: pl.topk(t, 65))
    for n in (1, 7, 40, 90, 300, 2000):
        if dtype == "bool":
            x = rng.random((2, n)) < 0.5
        elif dtype.startswith("float"):
            x = np.round(rng.standard_normal((2, n)) * 100).astype(dtype)
            if n > 5:
                x[:, :5] = [np.nan, 0.0, -0.0, -np.inf, np.inf]
        else:
            x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (2, n), dtype=dtype, endpoint=True)
            x[1] = x[1] % 3
        order = np.argsort(x, axis=-1, kind="stable")
        backwards = n - 1 - np.argsort(x[:, ::-1], axis=-1, kind="stable")[:, ::-1]  # NaN first, ties in their order
        np.testing.assert_array_equal(up(x), order)
        np.testing.assert_array_equal(down(x[:, ::-1]), down(x[:, ::-1].copy()))
        np.testing.assert_array_equal(down(x), backwards)
        for k, function in ((2, some), (65, most)):
            if k <= n:
                values, places = function(x)
                np.testing.assert_array_equal(places, backwards[:, :k])
                np.testing.assert_array_equal(values, np.take_along_axis(x, backwards[:, :k], -1))


def test_topk_and_histogram() -> None:
    x = array("float32", (3, 29))
    values, indices = pto.jit(lambda t: pl.topk(t, 4))(x)
    expected = np.argsort(-x, axis=-1, kind="stable")[:, :4]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, -1))
    n = np.array([0, 3, 3, 9, -1, 2, 2, 2], np.int32)
    np.testing.assert_array_equal(pto.jit(lambda t: pl.histogram(t, 4))(n), [1, 0, 3, 2])


@pytest.mark.parametrize("target", ["cpu", "c"])
def test_topk_takes_at_most_the_declared_extent(target: str) -> None:
    @pto.jit(target=target)
    def largest(x, y, n):
        for c in pl.range(0, x.shape[0], n):
            pl.store(pl.topk(pl.load(x, [c], [n]), 3)[0], [c], y)

    x = np.arange(6.0)
    y = np.zeros(6)
    largest(x, y, 4)
    np.testing.assert_array_equal(y, [3, 2, 1, 0, 5, 4])  # an incomplete tile gives what it has
    with pytest.raises(pto.LaunchError, match="topk: k = 3 of 2 elements"):
        largest(x, y, 2)


def test_histogram_counts_along_the_last_axis() -> None:
    @pto.jit
    def counts(x: pl.Tensor, y: pl.Tensor):
        for r in pl.range(0, x.shape[0], 4):  # the last tile is partial
            pl.store(pl.histogram(pl.load(x, [r, 0], [4, 8]), 3), [r, 0], y)

    x = np.random.default_rng(0).integers(-1, 5, (6, 7)).astype(np.int32)
    y = np.full((6, 3), -1, np.int32)
    counts(x, y)
    np.testing.assert_array_equal(y, [[np.count_nonzero(row == k) for k in range(3)] for row in x])
    cube = x.reshape(2, 3, 7)
    np.testing.assert_array_equal(pto.jit(lambda t: pl.histogram(t, 3))(cube), y.reshape(2, 3, 3))
    empty = np.zeros((2, 0), np.int32)
    np.testing.assert_array_equal(pl.histogram(empty, 3), np.zeros((2, 3)))


def test_indirect_access_reads_and_writes_like_numpy() -> None:
    x, places = array("float32", (8, 5)), np.array([3, 0, 7, 3], np.int32)
    np.testing.assert_array_equal(pto.jit(lambda t, i: t[pl.load(i), :])(x, places), x[places])
    along = np.argsort(x, axis=1).astype(np.int32)
    np.testing.assert_array_equal(pto.jit(lambda t, i: pl.gather(pl.load(t), pl.load(i), 1))(x, along),
                                  np.take_along_axis(x, along, 1))  # fmt: skip

    @pto.jit
    def put(v: pl.Tensor, i: pl.Tensor, out: pl.Tensor):
        pl.scatter(pl.load(v), pl.load(i), 1, out)

    out, expected = np.zeros_like(x), np.zeros_like(x)
    put(x, along, out)
    np.put_along_axis(expected, along, x, 1)
    np.testing.assert_array_equal(out, expected)


def test_atomics_add_up_over_parallel_iterations() -> None:
    @pto.jit
    def count(x: pl.Tensor, total: pl.Tensor):
        (n,) = x.shape
        for i in pl.range(0, n, parallel=True):
            pl.atomic_add(total, [0], x[i])

    x, total = np.ones(1000, np.int32), np.zeros(1, np.int32)
    count(x, total)
    assert total[0] == 1000


def test_random_numbers_do_not_depend_on_the_tiling() -> None:
    whole = pto.jit(lambda seed: pl.rand(seed, 0, (4, 25)))(7)

    @pto.jit
    def pieces(out: pl.Tensor, seed):
        for r in pl.range(0, 4, chunk=1):
            out[r, :] = pl.rand(seed, r * 25, (25,))

    out = np.empty((4, 25), np.float32)
    pieces(out, 7)
    np.testing.assert_array_equal(out, whole)
    np.testing.assert_array_equal(whole, pl.rand(7, 0, (4, 25)))
    assert whole.min() >= 0 and whole.max() < 1


@pytest.mark.parametrize("shape", [(1, 1), (16, 16), (17, 33), (40, 5)])
def test_partial_tiles_need_no_masks(shape: tuple[int, int]) -> None:
    @pto.jit
    def normalise(x: pl.Tensor, y: pl.Tensor):
        rows, cols = x.shape
        for r in pl.range(0, rows, 16):
            t = pl.load(x, [r, 0], [16, cols])
            pl.store(t - pl.mean(t, axis=1, keepdims=True), [r, 0], y)

    x = array("float32", shape)
    y = np.full_like(x, 9)
    normalise(x, y)
    close(y, x - x.mean(axis=1, keepdims=True), "float32")


def test_a_narrow_last_tile_meets_a_wide_accumulator_only_with_padding() -> None:
    @pto.jit
    def narrow(x: pl.Tensor, out: pl.Tensor):
        acc = pl.load(x, [0, 0], [1, 16])
        for c in pl.range(16, 40, 16):
            acc = acc + pl.load(x, [0, c], [1, 16])
        pl.store(acc, [0, 0], out)

    @pto.jit
    def padded(x: pl.Tensor, out: pl.Tensor):
        acc = pl.load(x, [0, 0], [1, 16])
        for c in pl.range(16, 40, 16):
            acc = acc + pl.load(x, [0, c], [1, 16], pad=0)
        pl.store(acc, [0, 0], out)

    x, out = array("float32", (1, 40)), np.zeros((1, 16), np.float32)
    with pytest.raises(pto.LaunchError, match="pad="):
        narrow(x, out)
    padded(x, out)
    expected = x[:, :16] + x[:, 16:32]
    expected[:, :8] += x[:, 32:]
    close(out, expected, "float32")


def test_an_argument_may_be_its_own_output() -> None:
    @pto.jit
    def softmax(x: pl.Tensor, y: pl.Tensor):
        rows, cols = x.shape
        with pl.incore():
            for r in pl.range(0, rows, chunk=8):
                t = pl.load(x, [r, 0], [1, cols])
                e = pl.exp(t - pl.max(t, axis=1, keepdims=True))
                pl.store(e / pl.sum(e, axis=1, keepdims=True), [r, 0], y)

    x = array("float32", (30, 77))
    e = np.exp(x - x.max(axis=1, keepdims=True))
    expected = e / e.sum(axis=1, keepdims=True)
    softmax(x, x)
    close(x, expected, "float32")


def test_overlapping_arguments_give_the_result_of_the_program_in_order() -> None:
    @pto.jit
    def shift(x: pl.Tensor, y: pl.Tensor):
        t = pl.load(x)
        u = pl.load(x)
        y[...] = t + 1
        y[...] = u + t

    base = array("float32", (101,))
    expected = base.copy()
    x, y = expected[:-1], expected[1:]
    t = x.copy()
    y[...] = t + 1
    y[...] = t + t
    shift(base[:-1], base[1:])
    np.testing.assert_array_equal(base, expected)
