# SPDX-License-Identifier: MIT
"""Reductions of numbers as reductions of vectors, and weighted sums of many rows as products of matrices."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from tests.fractal.compile.test_nests import same

RNG = np.random.default_rng(31)
OF_A_VECTOR = "is a reduction of a vector"
TOGETHER = "iterations at a time as rows, through the loops inside"
A_ROW = "is a product of a row and a matrix"


def add(a: Any, b: Any) -> Any:
    return a + b


def lists(lengths: Any, *leaf: int, dtype: Any = np.float32) -> ft.FractalTensor:
    leaves = RNG.standard_normal((sum(lengths), *leaf)).astype(dtype)
    return ft.from_flat(leaves, [np.cumsum([0, *lengths])])


def decided(program: Callable[..., Any], *given: Any, wanted: Any = None, **options: Any) -> str:
    """The decisions of a program, which gives what it gives eagerly and the same bits with one thread and two.

    wanted: what it gives, where the program has so many cells that another way to compute it saves seconds.
    """
    kernels = [pto.jit(num_threads=n, **options)(program).compile(*given) for n in (1, 2)]
    one, two = (kernel(*given) for kernel in kernels)
    same(one, program(*given) if wanted is None else wanted)
    for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (one, two)), strict=True):
        np.testing.assert_array_equal(a.leaves, b.leaves)
    return "\n".join(d.reason for d in kernels[0].decisions)


@pytest.mark.parametrize("op", [operator.add, operator.mul, pl.maximum, pl.minimum])
@pytest.mark.parametrize("leaf", [(), (1,), (1, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_reductions_of_numbers(op: Callable[..., Any], leaf: tuple[int, ...], dtype: Any) -> None:
    def program(x: Any) -> Any:
        return ft.map(lambda row: ft.reduce(op, row), x)

    def started(x: Any) -> Any:
        start = pto.dtypes.from_numpy(np.dtype(dtype))
        zero = ft.zeros(*leaf, dtype=start) + 2.0 if leaf else start(2.0)
        return ft.map(lambda row: ft.reduce(op, row, initializer=zero), x)

    assert OF_A_VECTOR in decided(program, lists((1, 2, 40, 3), *leaf, dtype=dtype))
    assert OF_A_VECTOR in decided(started, lists((1, 0, 40, 3), *leaf, dtype=dtype))
    assert OF_A_VECTOR in decided(started, lists((), *leaf, dtype=dtype))


def test_a_number_that_is_none_stays_none() -> None:
    x = lists((5, 40, 3))
    x = ft.from_flat(np.where(np.arange(48) == 20, np.float32(np.nan), x.leaves), x.offsets)

    def program(x: Any) -> Any:
        return ft.map(lambda row: ft.reduce(pl.maximum, row), x)

    got = pto.jit(program)(x)
    np.testing.assert_array_equal(got.leaves, program(x).leaves)
    assert np.isnan(got.leaves[1])


def test_reductions_that_stay_loops() -> None:
    def fold(x: Any) -> Any:  # which says the order
        return ft.map(lambda row: ft.fold(add, row, initializer=0.0), x)

    def backwards(x: Any) -> Any:
        return ft.map(lambda row: ft.reduce(add, ft.reverse(row), initializer=0.0), x)

    def more(x: Any) -> Any:
        return ft.map(lambda row: ft.reduce(lambda a, b: a + b * a, row), x)

    def asked(x: Any) -> Any:
        return ft.map(lambda row: ft.reduce(add, row), x, schedule="sequential")

    for program in (fold, backwards, more, asked):
        assert OF_A_VECTOR not in decided(program, lists((3, 20, 1)))
    whole = ft.from_flat(RNG.integers(-9, 9, 24), [np.array([0, 4, 24])])
    assert OF_A_VECTOR not in decided(lambda x: ft.map(lambda row: ft.reduce(add, row), x), whole)


def softmax(q: Any, keys: Any, values: Any, score: Callable[[Any, Any], Any]) -> Any:
    scores = ft.map(lambda k: score(q, k), keys)
    most = ft.reduce(pl.maximum, scores)
    p = ft.map(lambda s: pl.exp(s - most), scores)
    return ft.reduce(add, ft.map(lambda t: t[0] * t[1], ft.zip(p, values))) / ft.reduce(add, p)


SCORES: list[Callable[[Any, Any], Any]] = [lambda q, k: pl.sum(q * k), lambda q, k: q @ k.T]


@pytest.mark.parametrize("score", SCORES)
def test_attention_of_one_query_at_a_time_is_products_of_matrices(score: Callable[[Any, Any], Any]) -> None:
    def attention(qs: Any, ks: Any, vs: Any) -> Any:
        return ft.map(lambda q: softmax(q, ks, vs, score), qs)

    def within(x: Any, ks: Any) -> Any:
        return ft.map(lambda xs: attention(xs, ks, ks), x)

    def own(x: Any) -> Any:
        return ft.map(lambda xs: attention(xs, xs, xs), x)

    def in_numpy(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        p = np.exp(q[:, 0] @ k[:, 0].T)
        return ((p / p.sum(1, keepdims=True)) @ v[:, 0])[:, None]

    words = lambda n: ft.from_flat(RNG.standard_normal((n, 1, 6)).astype(np.float32))  # noqa: E731
    for queries, keys in ((1, 1), (5, 3), (70, 40), (0, 3), (200, 1)):
        q, k, v = words(queries), words(keys), words(keys)
        wanted = ft.from_flat(in_numpy(q.leaves, k.leaves, v.leaves))
        said = decided(attention, q, k, v, wanted=wanted if queries > 5 else None)
        assert "as rows" in said and TOGETHER in said and OF_A_VECTOR in said and A_ROW not in said
        if queries == 5:
            same(attention(q, k, v), wanted)
    decided(within, lists((3, 0, 70), 1, 6), words(5))
    x = lists((3, 1, 70), 1, 6)
    parts = np.split(x.leaves, x.offsets[0][1:-1])
    decided(own, x, wanted=ft.from_flat(np.concatenate([in_numpy(e, e, e) for e in parts]), x.offsets))


def test_sums_whose_vectors_differ_are_products_of_a_row_each() -> None:
    def program(numbers: Any, vectors: Any) -> Any:
        def one(t: Any) -> Any:
            return ft.reduce(add, ft.map(lambda p: p[0] * p[1], ft.zip(*t)))

        return ft.map(one, ft.zip(numbers, vectors))

    numbers = ft.split(ft.from_flat(RNG.standard_normal(60).astype(np.float32)), 3)
    vectors = ft.split(ft.from_flat(RNG.standard_normal((60, 1, 5)).astype(np.float32)), 3)
    said = decided(program, numbers, vectors)
    assert A_ROW in said and TOGETHER not in said


def test_last_states_that_are_read_behind_a_map_of_rows() -> None:
    def program(xs: Any, ws: Any) -> Any:
        def one(x: Any) -> Any:
            parts = ft.map(lambda w: x @ w, ws)
            return ft.reduce(add, ft.map(lambda w: x @ w, ws)), ft.map(lambda p: p * 2.0, parts)

        total, parts = ft.map(one, xs)
        return ft.map(lambda t: t + 1.0, total), parts

    xs, ws = (ft.from_flat(RNG.standard_normal(s).astype(np.float32)) for s in ((40, 1, 4), (3, 4, 4)))
    decided(program, xs, ws)


@pytest.mark.parametrize("leaf", [(1,), (1, 1), (3,), (1, 12), (2, 2)])
@pytest.mark.parametrize("lengths", [(5, 0, 1, 300), (), (0,), (17,)])
def test_elements_of_less_than_a_vector_are_rows(leaf: tuple[int, ...], lengths: tuple[int, ...]) -> None:
    def program(x: Any, by: Any) -> Any:
        def of_row(t: Any) -> Any:
            return ft.map(lambda e: (pl.exp(e - t[1]) * 0.5, e / (1.0 + pl.sum(e * e))), t[0])

        return ft.map(of_row, ft.zip(x, by))

    by = ft.from_flat(RNG.standard_normal((len(lengths), *leaf)).astype(np.float32))
    assert "so many at a time as rows" in decided(program, lists(lengths, *leaf), by)


def test_small_elements_that_lie_in_another_order_run_as_they_are() -> None:
    def backwards(x: Any) -> Any:
        return ft.map(lambda e: e * 2.0 + 1.0, ft.reverse(x))

    def large(x: Any) -> Any:
        return ft.map(lambda e: e * 2.0 + 1.0, x)

    words = lambda *s: ft.from_flat(RNG.standard_normal(s).astype(np.float32))  # noqa: E731
    assert "as rows" not in decided(backwards, words(9, 3))
    assert "as rows" not in decided(large, words(9, 40))


def test_stacked_windows_around_the_ends_of_a_list() -> None:
    def windows(x: Any, k: int) -> Any:
        return ft.map(lambda w: pl.sum(ft.stack(w), axis=0), ft.slide(x, k, padding=1))

    for program in (lambda x: windows(x, 3), lambda x: windows(x, 20)):
        for shape in ((30, 2), (30, 1, 2), (30,), (0, 2)):
            decided(program, ft.from_flat(RNG.standard_normal(shape).astype(np.float32)))
