# SPDX-License-Identifier: MIT
"""Reductions as machine code: equal to NumPy within rounding, to the bit whatever the number of workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.semantic import interpreter
from tests.differential.compare import lowered

COMBINE = ["sequential", "tree", "loop"]
WORKERS = [1, 2, 4]
FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
INTEGERS = [np.int8, np.uint32, np.int64]


def on_all(fn: Any, make: Callable[[], list[Any]]) -> list[Any]:
    """The arguments after a run, which must be the same bits for any number of workers."""
    results: list[list[Any]] = []
    for workers in WORKERS:
        pto.config.num_threads = workers
        args = make()
        fn(*args)
        results.append(args)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            if isinstance(a, np.ndarray):
                assert a.tobytes() == b.tobytes()
    return results[0]


def interpreted(fn: Any, make: Callable[[], list[Any]]) -> list[Any]:
    """The arguments after the interpreter ran the program as the target gets it."""
    args = make()
    modules = lowered(fn, args)
    interpreter.run(modules["fused"], args)
    return args


def scalars(combine: str, chunk: int | None) -> Any:
    @pto.jit
    def kernel(x, y, n):
        total = 0
        product = 1
        low = x[0]
        high = x[0]
        positive = 0
        for i in pl.range(n, parallel=True, chunk=chunk, combine=combine):
            total += x[i]
            product = x[i] * product
            low = pl.minimum(x[i], low)
            high = max(high, x[i])
            if x[i] > 1:
                positive += 1
        y[0] = total
        y[1] = product
        y[2] = low
        y[3] = high
        y[4] = positive

    return kernel


@pytest.mark.parametrize("combine", COMBINE)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=lambda t: np.dtype(t).name)
def test_every_form_in_every_dtype(dtype: Any, combine: str) -> None:
    rng = np.random.default_rng(1)
    n = 203
    x = rng.integers(1, 4, n).astype(dtype) if dtype in INTEGERS else rng.uniform(0.9, 1.1, n).astype(dtype)

    def make() -> list[Any]:
        return [x.copy(), np.zeros(5, dtype), n]

    kernel = scalars(combine, 16)
    (_, y, _), (_, z, _) = on_all(kernel, make), interpreted(kernel, make)
    wide = x.astype(np.float64)
    with np.errstate(over="ignore"):
        exact = [x.sum(dtype=dtype), x.prod(dtype=dtype)] if dtype in INTEGERS else [wide.sum(), wide.prod()]
    expected = [*exact, x.min(), x.max(), (x > 1).sum().astype(dtype)]
    if dtype in INTEGERS:
        assert y.tolist() == z.tolist() == [int(v) for v in expected]
        return
    eps = float(ml_dtypes.finfo(dtype).eps)
    for got in (y, z):
        # a sum of n terms: at most n roundings of partial sums no larger than the sum of magnitudes
        np.testing.assert_allclose(got.astype(np.float64), np.array(expected, np.float64), rtol=n * eps)
        assert got[2:4].tolist() == [x.min(), x.max()]


@pytest.mark.parametrize("chunk", [None, 7, 1000])
@pytest.mark.parametrize("n", [1, 64, 50_000])
def test_sums_of_any_length(n: int, chunk: int | None) -> None:
    x = np.random.default_rng(2).integers(-1000, 1000, n).astype(np.float32)  # exact in any order
    y = on_all(scalars("tree", chunk), lambda: [x.copy(), np.zeros(5, np.float32), n])[1]
    assert (y[0], y[2], y[3], y[4]) == (x.sum(dtype=np.float64), x.min(), x.max(), (x > 1).sum())


def test_nan_reaches_the_result_and_negative_zero_stays() -> None:
    @pto.jit
    def kernel(x, y):
        high = -1e30
        total = y[1]
        for i in pl.range(x.shape[0], chunk=8):
            high = pl.maximum(high, x[i])
            total += x[i] * 0.0
        y[0] = high
        y[1] = total

    x = np.arange(64, dtype=np.float32)
    x[37] = np.nan
    assert np.isnan(on_all(kernel, lambda: [x.copy(), np.zeros(2, np.float32)])[1]).all()
    y = on_all(kernel, lambda: [-np.ones(64, np.float32), np.full(2, -0.0, np.float32)])[1]
    assert np.signbit(y).all() and y[1] == 0


def merge_welford(a, b):
    n = a[0] + b[0]
    delta = b[1] - a[1]
    if n == 0.0:
        return (0.0, 0.0, 0.0)
    return (n, a[1] + delta * b[0] / n, a[2] + b[2] + delta * delta * a[0] * b[0] / n)


def merge_softmax(a, b):
    m = pl.maximum(a[0], b[0])
    return m, a[1] * pl.exp(a[0] - m) + b[1] * pl.exp(b[0] - m)


def first_largest(a, b):
    take = b[0] > a[0]
    return pl.where(take, b[0], a[0]), pl.where(take, b[1], a[1])


@pytest.mark.parametrize("chunk", [None, 7])
@pytest.mark.parametrize("combine", COMBINE)
def test_coupled_state_of_scalars(combine: str, chunk: int | None) -> None:
    @pto.jit
    def kernel(x, y):
        n = x.shape[0]
        moments = pl.reduction(init=(0.0, 0.0, 0.0), combine=merge_welford)
        online = pl.reduction(init=(-1e30, 0.0), combine=merge_softmax)
        where = pl.reduction(init=(-1e30, -1), combine=first_largest)
        for i in pl.range(n, parallel=True, chunk=chunk, combine=combine):
            moments.update(1.0, x[i], 0.0)
            online.update(x[i], 1.0)
            where.update(x[i], i)
        count, mean, spread = moments.value
        m, s = online.value
        y[0] = count
        y[1] = mean
        y[2] = spread / count
        y[3] = m
        y[4] = s
        y[5] = where.value[1]

    x = np.random.default_rng(3).standard_normal(20_011)
    x[[5000, 9000, 15_000]] = 7.0  # the first of equals wins: partial results are merged in order
    expected = [x.size, x.mean(), x.var(), 7.0, np.exp(x - 7.0).sum(), 5000]
    make = lambda: [x.copy(), np.zeros(6)]  # noqa: E731
    np.testing.assert_allclose(on_all(kernel, make)[1], expected, rtol=1e-10)


@pytest.mark.parametrize("rows", [8, 5])
@pytest.mark.parametrize("combine", COMBINE)
def test_a_softmax_whose_columns_are_split(combine: str, rows: int) -> None:
    @pto.jit
    def kernel(x, y):
        cols = x.shape[1]
        with pl.incore():
            start = (pl.full([8, 1], -1e30, pl.f32), pl.zeros([8, 1], pl.f32))
            state = pl.reduction(init=start, combine=merge_softmax)
            for j in pl.range(0, cols, 16, chunk=3, combine=combine):
                t = pl.load(x, [0, j], [8, 16])
                m = pl.max(t, axis=1, keepdims=True)
                state.update(m, pl.sum(pl.exp(t - m), axis=1, keepdims=True))
            m, s = state.value
            for j in pl.range(0, cols, 16, chunk=3):
                pl.store(pl.exp(pl.load(x, [0, j], [8, 16]) - m) / s, [0, j], y)

    x = np.random.default_rng(4).standard_normal((rows, 333)).astype(np.float32)
    e = np.exp(x - x.max(1, keepdims=True))
    make = lambda: [x.copy(), np.zeros_like(x)]  # noqa: E731
    for _, y in (on_all(kernel, make), interpreted(kernel, make)):
        np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)
    tops = [node.kind for node in kernel.compile(*make()).loop_nest()]
    assert tops == ["chunk", "incore", "chunk"]  # both loops have left the scope


@pytest.mark.parametrize("k", [64, 50])
@pytest.mark.parametrize("combine", COMBINE)
def test_a_product_whose_inner_axis_is_split(combine: str, k: int) -> None:
    @pto.jit
    def kernel(a, b, c):
        with pl.incore():
            acc = pl.zeros([16, 16], pl.f32)
            for j in pl.range(0, a.shape[1], 8, chunk=2, combine=combine):
                acc += pl.dot(pl.load(a, [0, j], [16, 8]), pl.load(b, [j, 0], [8, 16]))
            pl.store(acc, [0, 0], c)

    rng = np.random.default_rng(5)
    a, b = (rng.integers(-3, 4, s).astype(np.float32) for s in ((13, k), (k, 11)))
    c = on_all(kernel, lambda: [a.copy(), b.copy(), np.zeros((13, 11), np.float32)])[2]
    assert np.array_equal(c, a @ b)


@pytest.mark.parametrize("combine", COMBINE)
def test_tiles_that_some_chunks_do_not_touch(combine: str) -> None:
    @pto.jit
    def kernel(x, y, limit):
        with pl.incore():
            acc = pl.zeros([8], pl.f32)
            for i in pl.range(0, x.shape[0], chunk=2, combine=combine):
                if i >= limit:
                    acc += pl.load(x, [i, 0], [1, 8])[0, :]
            pl.store(acc, [0], y)

    x = np.arange(60, dtype=np.float32).reshape(12, 5)  # 5 of 8 columns are valid
    for limit in (0, 5, 12):
        y = on_all(kernel, lambda limit=limit: [x.copy(), np.full(8, 9, np.float32), limit])[1]
        valid = 5 if limit < 12 else 8  # a tile that was never added to is whole
        assert y.tolist() == [*x[limit:].sum(0).tolist(), *[0.0 if valid == 8 else 9.0] * 3]


@pytest.mark.parametrize("whole", [np.s_[:, :], np.s_[...]])
def test_a_slice_that_is_all_of_a_tensor_is_one_place(whole: Any) -> None:
    @pto.jit
    def kernel(x, high):
        rows, cols = x.shape
        low = pl.full([rows, 1], 0.0, pl.f32)
        for c in pl.range(0, cols, 8, chunk=3):
            t = pl.load(x, [0, c], [rows, 8])
            high[whole] = pl.maximum(high[whole], pl.max(t, axis=1, keepdims=True))
            low[whole] = pl.minimum(pl.min(t, axis=1, keepdims=True), low[whole])
        high[...] = high - low

    x = np.random.default_rng(0).standard_normal((5, 100), dtype=np.float32)
    (_, result) = on_all(kernel, lambda: [x, np.zeros((5, 1), np.float32)])
    np.testing.assert_array_equal(result, np.ptp(x, axis=1, keepdims=True))


@pytest.mark.parametrize("combine", COMBINE)
def test_slices_and_elements_of_tensors(combine: str) -> None:
    @pto.jit
    def kernel(x, y, k):
        for i in pl.range(0, x.shape[0], chunk=3, combine=combine):
            y[0, :] += x[i, :]
            y[k, 1] = pl.maximum(x[i, 0], y[k, 1])
            if x[i, 1] > 0.5:
                y[k, 2] -= 1.0

    x = np.random.default_rng(6).integers(-4, 5, (20, 7)).astype(np.float32)

    def make() -> list[Any]:
        return [x.copy(), np.ones((3, 7), np.float32), 2]

    with pytest.raises(pto.errors.ScheduleError, match="one place of `y`"):  # k may be 0
        kernel(*make())

    @pto.jit
    def apart(x, y):
        for i in pl.range(0, x.shape[0], chunk=3, combine=combine):
            y[0, :] += x[i, :]
            y[2, 1] = pl.maximum(x[i, 0], y[2, 1])
            if x[i, 1] > 0.5:
                y[2, 2] -= 1.0

    expected = np.ones((3, 7), np.float32)
    expected[0] += x.sum(0)
    expected[2, 1] = max(1, x[:, 0].max())
    expected[2, 2] -= (x[:, 1] > 0.5).sum()
    for args in (on_all(apart, lambda: make()[:2]), interpreted(apart, lambda: make()[:2])):
        assert np.array_equal(args[1], expected)


def test_a_nest_is_balanced_whatever_its_shape() -> None:
    @pto.jit
    def kernel(x, y):
        for i in pl.range(x.shape[0], parallel=True):
            for j in pl.range(x.shape[1], parallel=True):
                y[0] += x[i, j]

    for shape in ((3, 40_000), (40_000, 3), (300, 300), (1, 1), (0, 5), (5, 0)):
        x = np.random.default_rng(7).integers(-9, 9, shape).astype(np.float32)
        assert on_all(kernel, lambda x=x: [x.copy(), np.ones(1, np.float32)])[1][0] == 1 + x.sum(dtype=np.float64)


def test_reductions_per_iteration_of_a_parallel_loop() -> None:
    @pto.jit
    def kernel(x, y, z):
        for i in pl.range(x.shape[0], parallel=True):
            s = 0.0
            for j in pl.range(x.shape[1], parallel=True):
                s += x[i, j]
                z[i] = pl.maximum(z[i], x[i, j])
            y[i] = s

    x = np.random.default_rng(8).integers(-9, 9, (70, 130)).astype(np.float32)
    _, y, z = on_all(kernel, lambda: [x.copy(), np.zeros(70, np.float32), np.zeros(70, np.float32)])
    assert np.array_equal(y, x.sum(1)) and np.array_equal(z, np.maximum(x.max(1), 0))


def test_a_reduction_inside_sequential_loops_and_between_them() -> None:
    @pto.jit
    def kernel(x, y, rounds):
        for r in pl.range(rounds):
            s = 1.0
            for i in pl.range(x.shape[0], chunk=5, combine="tree"):
                for _ in pl.range(r + 1):
                    s += x[i]
            y[r] = s

    x = np.arange(33, dtype=np.float32)
    y = on_all(kernel, lambda: [x.copy(), np.zeros(4, np.float32), 4])[1]
    assert y.tolist() == [1 + (r + 1) * x.sum() for r in range(4)]


def test_partial_tiles_that_do_not_go_together_are_an_error() -> None:
    @pto.jit
    def kernel(x, y):
        with pl.incore():
            acc = pl.load(y, [0], [8])
            for i in pl.range(0, x.shape[0], 8, chunk=1):
                acc += pl.load(x, [i], [8])
            pl.store(acc, [0], y)

    with pytest.raises(pto.errors.LaunchError, match="valid extents"):
        kernel(np.ones(20, np.float32), np.ones(8, np.float32))
    y = on_all(kernel, lambda: [np.ones(24, np.float32), np.ones(8, np.float32)])[1]
    assert y.tolist() == [4.0] * 8


@pytest.mark.parametrize("combine", COMBINE)
def test_the_columns_of_a_matrix_are_summed_in_a_loop_over_its_rows(combine: str) -> None:
    @pto.jit
    def kernel(x, y, z):
        for i in pl.range(x.shape[0], parallel=True, combine=combine):
            for j in pl.range(x.shape[1]):
                y[1, j] += x[i, j]
            for j in pl.range(0, x.shape[1], 32):
                z[j : j + 32] = pl.maximum(z[j : j + 32], x[i, j : j + 32])

    x = np.random.default_rng(9).integers(-9, 9, (301, 70)).astype(np.float32)
    make = lambda: [x.copy(), np.ones((2, 70), np.float32), np.zeros(70, np.float32)]  # noqa: E731
    for _, y, z in (on_all(kernel, make), interpreted(kernel, make)):
        assert np.array_equal(y[1], 1 + x.sum(0)) and (y[0] == 1).all() and np.array_equal(z, np.maximum(x.max(0), 0))


@pytest.mark.parametrize("combine", COMBINE)
@pytest.mark.parametrize("shape", [(9, 50), (3, 1000), (1, 1), (5, 64)])
def test_rows_are_reduced_element_by_element_in_a_loop_over_their_columns(combine: str, shape: tuple[int, int]) -> None:
    """Section 8 of the loop specification; the loops are exchanged, and the iterations of a chunk share its copies."""

    @pto.jit
    def softmax(x, y, high, total):
        with pl.incore():
            for j in pl.range(0, x.shape[1], chunk=24, combine=combine):
                for r in pl.range(x.shape[0]):
                    high[r] = pl.maximum(high[r], x[r, j])
            for j in pl.range(0, x.shape[1], chunk=24, combine=combine):
                for r in pl.range(x.shape[0]):
                    total[r] += pl.exp(x[r, j] - high[r])
            for j in pl.range(0, x.shape[1], chunk=24):
                for r in pl.range(x.shape[0]):
                    y[r, j] = pl.exp(x[r, j] - high[r]) / total[r]

    x = np.random.default_rng(8).standard_normal(shape).astype(np.float32)
    y, high, total = np.zeros_like(x), np.full(shape[0], -np.inf, np.float32), np.zeros(shape[0], np.float32)
    softmax(x, y, high, total)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    assert np.array_equal(high, x.max(axis=1))
    assert np.allclose(y, e / e.sum(axis=1, keepdims=True), rtol=1e-5, atol=0)
    nest = softmax.compile(x, y, high, total).loop_nest()[0]
    assert str(nest) == "chunk j\n└─ incore softmax_incore_0\n   └─ sequential r\n      └─ in_chunk j"


@pytest.mark.parametrize("combine", COMBINE)
def test_the_inner_of_two_loops_that_reduce_the_same_accumulates_into_an_array_of_its_own(combine: str) -> None:
    @pto.jit
    def kernel(x, columns, total):
        for j in pl.range(0, x.shape[1], chunk=3, combine=combine):
            for i in pl.range(0, x.shape[0], chunk=2, combine=combine):
                for k in pl.range(x.shape[2]):
                    columns[k, j] += x[i, j, k]
                    total[0] = pl.maximum(total[0], x[i, j, k])

    x = np.random.default_rng(3).integers(-9, 9, (5, 7, 4)).astype(np.float32)
    make = lambda: [x.copy(), np.ones((4, 7), np.float32), np.zeros(1, np.float32)]  # noqa: E731
    for _, columns, total in (on_all(kernel, make), interpreted(kernel, make)):
        assert np.array_equal(columns, 1 + x.sum(axis=0).T) and total[0] == x.max()


def test_the_check_of_the_promise_knows_reductions() -> None:
    @pto.jit(debug=True)
    def kernel(x, y, z):
        s = 0.0
        for i in pl.range(x.shape[0], parallel=True):
            s += x[i, 0]
            z[0] = pl.maximum(z[0], x[i, 1])
            for j in pl.range(x.shape[1]):
                y[j] += x[i, j]
        z[1] = s

    x = np.random.default_rng(10).integers(-9, 9, (50, 4)).astype(np.float32)
    _, y, z = on_all(kernel, lambda: [x.copy(), np.zeros(4, np.float32), np.zeros(2, np.float32)])
    assert np.array_equal(y, x.sum(0)) and z.tolist() == [max(0, x[:, 1].max()), x[:, 0].sum()]


@pytest.mark.parametrize("combine", COMBINE)
@pytest.mark.parametrize("chunks", [(None, None), (3, 4), (1, 4), (None, 1), (3, None)], ids=str)
def test_a_function_that_does_not_commute_combines_a_nest_in_the_order_of_the_source(chunks: Any, combine: str) -> None:
    outer, inner = ({"parallel": True} if chunk is None else {"chunk": chunk} for chunk in chunks)

    def product(a, b):  # of 2 x 2 matrices
        return (
            a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3],
            a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3],
        )  # fmt: skip

    @pto.jit
    def kernel(x, y):
        acc = pl.reduction(init=(1, 0, 0, 1), combine=product)
        for i in pl.range(x.shape[0], combine=combine, **outer):
            for j in pl.range(x.shape[1], combine=combine, **inner):
                acc.update(x[i, j], 1, -1, i - j)
        for k, value in enumerate(acc.value):
            y[k] = value

    for shape in ((7, 9), (100, 3), (0, 4)):
        x = np.random.default_rng(11).integers(-3, 4, shape)
        expected = np.eye(2, dtype=np.int64)
        for (i, j), value in np.ndenumerate(x):
            expected = expected @ np.array([[value, 1], [-1, i - j]])
        make = lambda x=x: [x.copy(), np.zeros(4, np.int64)]  # noqa: E731
        args = make()
        kernel.interpret(*args)
        for _, y in (on_all(kernel, make), interpreted(kernel, make), args):
            assert np.array_equal(y, expected.ravel())


@pytest.mark.parametrize("combine", COMBINE)
@pytest.mark.parametrize("step", [1, 2, 5, 40])
def test_aligned_chunks_that_a_step_goes_over_have_no_partial_result(step: int, combine: str) -> None:
    @pto.jit
    def kernel(x, y, step):
        with pl.incore():
            acc = pl.zeros([8], pl.f64)
            for i in pl.range(1, x.shape[0], step, chunk=2, chunk_policy="aligned", combine=combine):
                acc += pl.sum(pl.load(x, [i, 0], [1, 8]), axis=0)  # the tile is narrower than the accumulator
                y[1, :] += x[i, :]
            pl.store(acc, [0], y[0, :])

    for rows in (2, 9, 50):
        x = np.random.default_rng(12).integers(-9, 9, (rows, 5)).astype(np.float64)
        make = lambda x=x: [x.copy(), np.zeros((2, 5)), step]  # noqa: E731
        for _, y, _ in (on_all(kernel, make), interpreted(kernel, make)):
            assert np.array_equal(y[0], x[1::step].sum(0)) and np.array_equal(y[1], y[0])


@pytest.mark.parametrize("combine", COMBINE)
def test_what_is_added_may_have_the_extents_of_the_place_at_run_time_only(combine: str) -> None:
    @pto.jit
    def kernel(x, y):
        acc = pl.zeros([1, 1], pl.f64)
        for r in pl.range(0, x.shape[0], 2, chunk=1, combine=combine):
            acc += pl.sum(pl.load(x[r : r + 2]), axis=0, keepdims=True)
        pl.store(acc, [0, 0], y)

    for rows in (0, 1, 9):
        x = np.random.default_rng(13).integers(-9, 9, (rows, 1)).astype(np.float64)
        make = lambda x=x: [x.copy(), np.zeros((1, 1))]  # noqa: E731
        for _, y in (on_all(kernel, make), interpreted(kernel, make)):
            assert y[0, 0] == x.sum()


@pto.jit
def tiles_of_run_time_extents(x, y, n, start, stop, step):
    a, b, c = pl.load(y, [0], [n]), pl.full((n,), 3.0, pl.f32), pl.load(y, [0], [n]) * 2.0
    for i in pl.range(x.shape[0], parallel=True, chunk=8):
        row = pl.squeeze(pl.load(x, [i, 0], [1, n]), 0)
        a += row
        b += row
        c = pl.maximum(c, row)
    pl.store(a * b - c, [0], y)


@pto.jit
def inside_while_loops(x, y, n, start, stop, step):
    for r in pl.range(8, parallel=True, chunk=2):
        k, s = 0, 0.0
        while k < n:
            for i in pl.range(8, parallel=True):
                s += x[8 * r + i, k]
                y[r] += x[8 * r + i, k]
            k += 1
        y[8 + r] = s


@pto.jit
def steps_of_any_sign(x, y, n, start, stop, step):
    """A place that no iteration touches is not written."""
    for r in pl.range(8, parallel=True, chunk=2):
        s, m = 1.0, x[r, 0]
        for i in pl.range(start, stop, step, parallel=True):
            s += x[8 * r + i, 0]
            m = max(m, x[8 * r + i, 1])
            y[r] += x[8 * r + i, 2]
            y[r] += x[8 * r + i, 3]
        y[8 + r] = s * m


@pto.jit
def results_read_between_parallel_loops(x, y, n, start, stop, step):
    with pl.incore():
        acc = pl.zeros((4,), pl.f32)
        for i in pl.range(64, parallel=True, chunk=8):
            acc += pl.squeeze(pl.load(x, [i, 0], [1, 4]), 0)
        twice = acc * 2.0
        for i in pl.range(3, parallel=True):
            pl.store((acc * twice) * (1.0 * i), [4 * i], y)
        pl.store(twice - acc, [12], y)


@pytest.mark.parametrize(
    ("kernel", "steps"),
    [(tiles_of_run_time_extents, (0, 8, 1)), (inside_while_loops, (0, 8, 1)),
     (results_read_between_parallel_loops, (0, 8, 1)),
     *((steps_of_any_sign, steps) for steps in ((0, 8, 3), (7, -1, -2), (0, 8, -3), (3, 3, 1)))],
)  # fmt: skip
def test_reductions_within_what_is_known_at_run_time(kernel: Any, steps: tuple[int, int, int]) -> None:
    def make() -> list[Any]:
        return [np.abs(np.random.default_rng(3).standard_normal((64, 4), np.float32)), np.ones(16, np.float32), 3, *steps]

    (_, got, *_), reference = on_all(kernel, make), make()
    kernel.interpret(*reference)
    np.testing.assert_allclose(got, reference[1], rtol=1e-5)
