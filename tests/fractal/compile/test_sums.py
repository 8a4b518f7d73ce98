# SPDX-License-Identifier: MIT
"""Sums of products of two vectors over all pairs of two lists: one product of matrices."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from tests.differential.rounds import share
from tests.fractal.compile.test_nests import same, schedules_of

RNG = np.random.default_rng(29)
ONE_PRODUCT = "sums of products are one product of matrices"


def words(*shape: int, dtype: Any = np.float32) -> ft.FractalTensor:
    return ft.from_flat(RNG.standard_normal(shape).astype(dtype))


def lists(lengths: tuple[int, ...], *leaf: int, dtype: Any = np.float32) -> ft.FractalTensor:
    leaves = (RNG.standard_normal((sum(lengths), *leaf)) * 2).astype(dtype)
    return ft.from_flat(leaves, [np.cumsum([0, *lengths])])


def is_one_product(program: Callable[..., Any], *given: Any, wanted: Any = None) -> bool:
    """Whether the first nest of a program, which gives what it gives eagerly, or what is wanted, is one."""
    return ONE_PRODUCT in schedules_of(program, *given, wanted=wanted)[0]


def of_windows(
    x: ft.FractalTensor, filters: np.ndarray, combined: Callable[[np.ndarray], np.ndarray], stride: int = 1,
    dilation: int = 1, padding: int = 0, *, filters_first: bool = False,
) -> ft.FractalTensor:  # fmt: skip
    """What a function gives for all pairs of a window of 3 elements of the only list of `x` and a filter, by the
    products of the two as arrays (windows, filters, 3, elements)."""
    xs = np.pad(x.leaves.reshape(-1, 4), ((padding, padding), (0, 0)))
    starts = np.arange(0, len(xs) - 2 * dilation, stride)
    windows = xs[starts[:, None] + np.arange(3) * dilation]
    out = combined(windows[:, None] * filters.reshape(-1, 3, 4))
    out = out.T if filters_first else out
    return ft.from_flat(out.reshape(-1), [np.array([0, len(out)]), np.arange(len(out) + 1) * out.shape[1]])


def gram(x: Any, y: Any) -> Any:
    return ft.map(lambda a: ft.map(lambda b: pl.sum(a * b), y), x)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 3), (300, 7), (2, 300), (0, 3), (3, 0)])
@pytest.mark.parametrize("leaf", [(6,), (1, 6), (2, 3), (1,)])
def test_sums_over_all_pairs(rows: int, columns: int, leaf: tuple[int, ...]) -> None:
    assert is_one_product(gram, words(rows, *leaf), words(columns, *leaf))


def test_sums_keep_their_shape() -> None:
    def kept(x: Any, y: Any) -> Any:
        return ft.map(lambda a: ft.map(lambda b: pl.sum(b * a, axis=1, keepdims=True) * 2.0, y), x)

    def axis(x: Any, y: Any) -> Any:
        return ft.map(lambda a: ft.map(lambda b: pl.exp(pl.sum(a * b, axis=1) * 0.1), y), x)

    for program in (kept, axis):
        assert is_one_product(program, words(5, 1, 6), words(3, 1, 6))


def test_sums_of_vectors_whose_length_is_a_run_time_value() -> None:
    def program(x: Any, m: Any) -> Any:
        made = ft.map(lambda a: a @ m.T, x)
        return gram(made, made)

    def two(x: Any, y: Any) -> Any:  # of lengths that might differ
        return gram(ft.unbind(x, 1), ft.unbind(y, 1))

    m = RNG.standard_normal((9, 6)).astype(np.float32)
    assert any(ONE_PRODUCT in plan for plan in schedules_of(program, words(7, 1, 6), m))
    x, y = (RNG.standard_normal((9, n)).astype(np.float32) for n in (4, 3))
    assert not is_one_product(two, x, y)


def convolution(batch: Any, filters: Any, stride: int = 1, dilation: int = 1, padding: int = 0) -> Any:
    def of_window(w: Any) -> Any:
        return ft.map(lambda k: pl.relu(pl.sum(ft.stack(w) * k)), filters)

    return ft.map(lambda xs: ft.map(of_window, ft.slide(xs, 3, stride, dilation, padding)), batch)


@pytest.mark.parametrize("lengths", [(5, 0, 1, 40), (), (0,), (300,), (3, 2, 4)])
def test_convolutions_of_lists_of_any_lengths(lengths: tuple[int, ...]) -> None:
    def spread(batch: Any, filters: Any) -> Any:
        return convolution(batch, filters, 2, 2, 2)

    def padded(batch: Any, filters: Any) -> Any:
        return convolution(batch, filters, padding=1)

    def backwards(batch: Any, filters: Any) -> Any:
        return ft.map(lambda xs: ft.map(lambda k: ft.map(lambda w: pl.sum(k * ft.stack(w)), ft.slide(xs, 3)), filters),
                      batch)  # fmt: skip

    def joined(batch: Any, filters: Any) -> Any:
        wide = ft.map(lambda k: pl.reshape(k, (12,)), filters)
        one = lambda w: ft.map(lambda k: pl.sum(ft.cat(w) * k), wide)  # noqa: E731
        return ft.map(lambda xs: ft.map(one, ft.slide(xs, 3)), batch)

    def largest(products: np.ndarray) -> np.ndarray:
        return np.maximum(products.sum((2, 3)), 0)

    in_numpy: dict[Any, Callable[..., Any]] = {
        convolution: lambda x, filters: of_windows(x, filters.leaves, largest),
        spread: lambda x, filters: of_windows(x, filters.leaves, largest, 2, 2, 2),
        padded: lambda x, filters: of_windows(x, filters.leaves, largest, padding=1),
        backwards: lambda x, filters: of_windows(x, filters.leaves, lambda p: p.sum((2, 3)), filters_first=True),
    }
    for program, wanted in in_numpy.items():
        for count in (0, 1, 33):
            x, filters = lists(lengths, 4), words(count, 3, 4)
            many = count > 0 and len(lengths) == 1 and sum(lengths) > 0
            assert is_one_product(program, x, filters, wanted=wanted(x, filters) if many else None)
        short, filters = lists((9,), 4), words(2, 3, 4)
        same(program(short, filters), wanted(short, filters))
    plans = schedules_of(joined, lists(lengths, 4), words(5, 3, 4))
    assert any(ONE_PRODUCT in plan for plan in plans)


def test_a_convolution_of_numbers() -> None:
    def program(xs: Any, filters: Any) -> Any:
        return ft.map(lambda w: ft.map(lambda k: pl.sum(ft.stack(w) * k), filters), ft.slide(xs, 5))

    assert is_one_product(program, words(40), words(7, 5))


def test_scores_of_a_layer_in_a_fold() -> None:
    def layer(xs: Any, w: Any) -> Any:
        scores = ft.map(lambda a: ft.map(lambda b: pl.sum(a * b), xs), xs)
        sums = ft.map(lambda row: ft.fold(lambda s, v: s * 0.5 + v, row, initializer=0.0), scores)
        return ft.map(lambda p: p[0] @ w * 0.1 + p[1], ft.zip(xs, sums))

    def layers(x: Any, w: Any) -> Any:
        return ft.fold(layer, w, initializer=x)

    x = ft.from_flat(words(9, 1, 4).leaves / 4)  # what is squared twice stays small
    plans = schedules_of(layers, x, words(2, 4, 4))
    assert any("one product" in plan for plan in plans)


def test_what_is_no_sum_of_pairs_runs_cell_by_cell() -> None:
    def own(x: Any, y: Any) -> Any:
        return ft.map(lambda a: ft.map(lambda b: pl.sum(b * b) + pl.sum(a * a), y), x)

    def mixed(x: Any, y: Any) -> Any:
        return ft.map(lambda a: ft.map(lambda b: pl.sum(a * (a + b)), y), x)

    def rows(x: Any, y: Any) -> Any:
        return ft.map(lambda a: ft.map(lambda b: pl.sum(a * b, axis=0), y), x)

    def twice(x: Any, y: Any) -> Any:
        return ft.map(lambda a: ft.map(lambda b: pl.sum(a * b) + pl.max(a * b), y), x)

    def shared(x: Any, y: Any) -> Any:
        def of_pair(a: Any, b: Any) -> Any:
            terms = a * b
            return pl.sum(terms) + pl.max(terms)

        return ft.map(lambda a: ft.map(lambda b: of_pair(a, b), y), x)

    def alone(x: Any, y: Any) -> Any:
        return ft.map(lambda a: pl.sum(a * a), x)

    for program in (own, mixed, rows, shared, alone):
        assert not is_one_product(program, words(5, 2, 20), words(3, 2, 20))
    assert not is_one_product(gram, words(5, 2, 20), words(3, 1, 20))  # one of the two is repeated
    schedules_of(twice, words(5, 2, 20), words(3, 2, 20))


def test_whole_numbers_are_added_up_exactly() -> None:
    x, y = (ft.from_flat(RNG.integers(-9, 9, (n, 5)).astype(np.int32)) for n in (4, 3))
    kernel = pto.jit(gram).compile(x, y)
    assert not any(ONE_PRODUCT in d.reason for d in kernel.decisions)
    got, want = kernel(x, y), gram(x, y)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got.leaves, want.leaves)


def test_a_plan_that_is_asked_for_keeps_the_order_of_the_sum() -> None:
    def program(x: Any, y: Any) -> Any:
        return ft.map(lambda a: ft.map(lambda b: pl.sum(a * b), y), x, schedule="sequential")

    assert not is_one_product(program, words(5, 6), words(3, 6))


def random_program(seed: int) -> tuple[Callable[..., Any], list[Any]]:
    """Sums of products over pairs of elements, windows or parts of lists, and what becomes of them."""
    rng = random.Random(seed)
    dtype, width = rng.choice([np.float32, np.float64, np.int32]), rng.choice([1, 2, 5])
    made = rng.choice([lambda v: v, lambda v: v * 2, lambda v: v + 1, lambda v: v * v])
    then = rng.choice([lambda s, a, b: s, lambda s, a, b: s * 2 + 1, lambda s, a, b: s + pl.max(a) - pl.max(b)])
    kept, exchanged, inside = rng.random() < 0.3, rng.random() < 0.5, rng.random() < 0.6
    window, padding, stride = rng.choice([0, 2, 3]), rng.choice([0, 0, 1]), rng.choice([1, 1, 2])
    order = rng.choice([lambda x: x, ft.reverse, lambda x: ft.slice(x, 1, None), lambda x: ft.slice(x, None, None, 2)])

    def pair(a: Any, b: Any) -> Any:
        terms = made(b) * a if exchanged else a * made(b)
        return then(pl.sum(terms, keepdims=True) if kept else pl.sum(terms), a, b)

    def pairs(x: Any, y: Any) -> Any:
        if window:
            of_window = lambda w: ft.map(lambda b: pair(ft.stack(w), b), order(y))  # noqa: E731
            rows = ft.map(of_window, ft.slide(x, window, stride, 1, padding))
        else:
            rows = ft.map(lambda a: ft.map(lambda b: pair(a, b), order(y)), x)
        return rows

    def program(x: Any, y: Any) -> Any:
        return ft.map(lambda xs: pairs(xs, y), x) if inside else pairs(x, y)

    draw = np.random.default_rng(seed)
    lengths = [rng.choice([0, 1, 3, 9, 70]) for _ in range(rng.randrange(4))] if inside else [rng.choice([0, 1, 9, 300])]
    leaf = (width,) if window or rng.random() < 0.5 else (1, width)
    x = (draw.standard_normal((sum(lengths), *leaf)) * 3).astype(dtype)
    y = (draw.standard_normal((rng.choice([0, 1, 4, 40]), *([window, *leaf] if window else leaf))) * 3).astype(dtype)
    return program, [ft.from_flat(x, [np.cumsum([0, *lengths])] if inside else ()), ft.from_flat(y)]


def test_random_sums_give_what_they_give_eagerly() -> None:
    products = 0
    for seed in range(share(40)):
        program, given = random_program(seed)
        kernel = pto.jit(program).compile(*given)
        got, want = kernel(*given), program(*given)
        products += any(ONE_PRODUCT in d.reason for d in kernel.decisions)
        assert got.dtype == want.dtype, seed
        for a, b in zip(got.offsets, want.offsets, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=str(seed))
        if got.dtype in (pl.i32, pl.i64):
            np.testing.assert_array_equal(got.leaves, want.leaves, err_msg=str(seed))
        else:
            np.testing.assert_allclose(got.leaves, want.leaves, rtol=1e-3, atol=1e-3, err_msg=str(seed))
    assert products > 5


def of_words(window: Any, part: Any) -> Any:
    """A word of the window times one of the filter, added up."""
    return ft.reduce(lambda a, b: a + b, ft.map(lambda p: pl.sum(p[0] * p[1]), ft.zip(window, part)))


@pytest.mark.parametrize("lengths", [(5, 0, 1, 40), (), (300,)])
def test_short_loops_of_cells_are_written_out(lengths: tuple[int, ...]) -> None:
    def program(batch: Any, filters: Any, padding: int = 0) -> Any:
        one = lambda w: ft.map(lambda f: pl.relu(of_words(w, f)), filters)  # noqa: E731
        return ft.map(lambda xs: ft.map(one, ft.slide(xs, 3, padding=padding)), batch)

    def padded(batch: Any, filters: Any) -> Any:
        return program(batch, filters, 1)

    def started(batch: Any, filters: Any) -> Any:
        def of_pair(w: Any, f: Any) -> Any:
            return ft.fold(lambda s, p: s * 0.5 + pl.sum(p[0] * p[1]), ft.zip(w, f), initializer=1.0)

        return ft.map(lambda xs: ft.map(lambda w: ft.map(lambda f: of_pair(w, f), filters), ft.slide(xs, 3)), batch)

    def largest(products: np.ndarray) -> np.ndarray:
        return np.maximum(products.sum((2, 3)), 0)

    def folded(products: np.ndarray) -> np.ndarray:
        return products.sum(3) @ np.array([0.25, 0.5, 1.0], np.float32) + np.float32(0.125)

    in_numpy: dict[Any, Callable[..., Any]] = {
        program: lambda x, f: of_windows(x, f.leaves, largest),
        padded: lambda x, f: of_windows(x, f.leaves, largest, padding=1),
        started: lambda x, f: of_windows(x, f.leaves, folded),
    }

    def words_of(count: int) -> ft.FractalTensor:
        return ft.from_flat(RNG.standard_normal((3 * count, 1, 4)).astype(np.float32), [np.arange(count + 1) * 3])

    for body, wanted in in_numpy.items():
        for count in (1, 33):
            x, filters = lists(lengths, 1, 4), words_of(count)
            assert is_one_product(body, x, filters, wanted=wanted(x, filters) if len(lengths) == 1 else None)
        short, filters = lists((9,), 1, 4), words_of(2)
        same(body(short, filters), wanted(short, filters))


def test_short_loops_that_others_read_stay() -> None:
    def kept(x: Any, filters: Any) -> Any:
        def of_pair(w: Any, f: Any) -> Any:
            parts = ft.map(lambda p: pl.sum(p[0] * p[1]), ft.zip(w, f))
            return parts, ft.reduce(lambda a, b: a + b, parts)

        return ft.map(lambda w: ft.map(lambda f: of_pair(w, f), filters), ft.slide(x, 3))

    def long(x: Any, filters: Any) -> Any:
        return ft.map(lambda w: ft.map(lambda f: of_words(w, f), filters), ft.slide(x, 20))

    def branches(x: Any, filters: Any) -> Any:
        def term(p: Any) -> Any:
            return pl.sum(p[0] * p[1]) if p[0][0, 0] > 0 else pl.f32(0.0)

        def of_pair(w: Any, f: Any) -> Any:
            return ft.reduce(lambda a, b: a + b, ft.map(term, ft.zip(w, f)))

        return ft.map(lambda w: ft.map(lambda f: of_pair(w, f), filters), ft.slide(x, 3))

    for program, width in ((kept, 3), (long, 20), (branches, 3)):
        filters = ft.from_flat(RNG.standard_normal((5 * width, 1, 4)).astype(np.float32), [np.arange(6) * width])
        assert not is_one_product(program, words(30, 1, 4), filters)
