# SPDX-License-Identifier: MIT
"""Sums of vectors times numbers as products, and last states that are written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from tests.fractal.compile.test_nests import H, jagged, same, weights

RNG = np.random.default_rng(19)


def add(a: Any, b: Any) -> Any:
    return a + b


def words(count: int, *leaf: int) -> ft.FractalTensor:
    return ft.from_flat(RNG.standard_normal((count, *leaf)).astype(np.float32))


def products(program: Callable[..., Any], *given: Any, **options: Any) -> int:
    """How many sums of a program are products; the results are those of the program run eagerly."""
    kernel = pto.jit(**options)(program).compile(*given)
    same(kernel(*given), program(*given))
    return sum("is a product of a row and a matrix" in d.reason for d in kernel.decisions)


def weighed(numbers: Any, vectors: Any) -> Any:
    return ft.reduce(add, ft.map(lambda p: p[0] * p[1], ft.zip(numbers, vectors)))


@pytest.mark.parametrize("count", [1, 3, 40])
@pytest.mark.parametrize("leaf", [(), (1, 1)])
def test_weighted_sums_are_products(count: int, leaf: tuple[int, ...]) -> None:
    def program(numbers: Any, vectors: Any) -> Any:
        return ft.map(lambda row: weighed(row, vectors), numbers)

    def started(numbers: Any, vectors: Any) -> Any:
        def one(row: Any) -> Any:
            terms = ft.map(lambda p: p[1] * p[0], ft.zip(row, vectors))
            return ft.reduce(add, terms, initializer=ft.zeros(1, H) + 2.0) / 3.0

        return ft.map(one, numbers)

    numbers = ft.split(words(3 * count, *leaf), 3)
    for vectors in (words(count, 1, H), words(count, 1, 70)):
        assert products(program, numbers, vectors) == 1
    assert products(started, numbers, words(count, 1, H)) == 1
    assert products(started, numbers, words(count, 1, H), debug=True) == 1


def test_weighted_sums_within_lists_of_different_lengths() -> None:
    def attention(x: Any) -> Any:
        def of_word(e: Any, xs: Any) -> Any:
            scores = ft.map(lambda k: pl.exp(pl.sum(e * k) * 0.1), xs)
            return weighed(scores, xs) / ft.reduce(add, scores)

        return ft.map(lambda xs: ft.map(lambda e: of_word(e, xs), xs), x)

    def empty(numbers: Any, vectors: Any) -> Any:
        def one(p: Any) -> Any:
            return ft.reduce(add, ft.map(lambda q: q[0] * q[1], ft.zip(*p)), initializer=ft.zeros(1, H))

        return ft.map(one, ft.zip(numbers, vectors))

    for lengths in ((2, 3, 1), (40, 1), ()):
        assert products(attention, jagged(*lengths)) == 0  # which is one of matrices
    lengths = [0, 3, 0, 20]
    numbers = ft.from_flat(RNG.standard_normal(23).astype(np.float32), [np.cumsum([0, *lengths])])
    assert products(empty, numbers, jagged(*lengths)) == 1


def test_other_sums_are_computed_term_by_term() -> None:
    def folded(numbers: Any, vectors: Any) -> Any:
        """In the order of the program."""
        step = lambda s, p: s + p[0] * p[1]  # noqa: E731
        return ft.map(lambda row: ft.fold(step, ft.zip(row, vectors), initializer=ft.zeros(1, H)), numbers)

    def backwards(numbers: Any, vectors: Any) -> Any:
        return ft.map(lambda row: weighed(row, ft.reverse(vectors)), numbers)

    def twice(numbers: Any, vectors: Any) -> Any:
        return ft.map(lambda row: ft.reduce(add, ft.map(lambda p: p[0] * p[0] * p[1], ft.zip(row, vectors))), numbers)

    def largest(numbers: Any, vectors: Any) -> Any:
        terms = ft.map(lambda row: ft.map(lambda p: p[0] * p[1], ft.zip(row, vectors)), numbers)
        return ft.map(lambda row: ft.reduce(pl.maximum, row), terms)

    numbers = ft.split(words(3 * 20), 3)
    for program in (folded, backwards, twice, largest):
        assert products(program, numbers, words(20, 1, H)) == 0


@pytest.mark.parametrize("lengths", [(4, 0, 9, 3), (1,), ()])
def test_the_last_state_of_each_fold_is_written_behind_it(lengths: tuple[int, ...]) -> None:
    def last(x: Any, w: Any) -> Any:
        states = ft.map(lambda xs: ft.fold(lambda s, e: (s[1], s[0] + e, s[2] + 1), xs,
                                           initializer=(ft.zeros(1, H), ft.zeros(1, H), 0)), x)  # fmt: skip
        return ft.map(lambda s: s @ w, states[0]), states[1], states[2]

    def program(x: Any, w: Any) -> Any:
        return ft.map(lambda xs: ft.fold(lambda s, e: s * 0.5 + e, xs, initializer=ft.zeros(1, H) + 1.0) @ w, x)

    for fn in (last, program):
        for plan in ("auto", "sequential"):
            assert products(lambda x, w: fn(x, w), jagged(*lengths), weights(1)[0]) == 0, plan
