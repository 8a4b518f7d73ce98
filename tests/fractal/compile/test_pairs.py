# SPDX-License-Identifier: MIT
"""Products of all pairs of two lists: one product of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from tests.fractal.compile.test_nests import H, jagged, same, schedules_of

RNG = np.random.default_rng(13)
AS_ROWS = "wavefront: one plane of all cells, so many at a time as rows"


def words(count: int, rows: int = 1) -> ft.FractalTensor:
    return ft.from_flat(RNG.standard_normal((count, rows, H)).astype(np.float32))


def planned(program: Callable[..., Any], *given: Any, wanted: Any = None) -> str:
    """The plans of a program, which gives what it gives eagerly, or what is wanted."""
    return " ".join(schedules_of(program, *given, wanted=wanted))


def pairs_within(
    x: ft.FractalTensor, of_list: Callable[[np.ndarray], np.ndarray], leaf: tuple[int, ...] = ()
) -> ft.FractalTensor:
    """For all pairs of elements of each list what a function of the list gives as a matrix."""
    lists = np.split(x.leaves[:, 0], x.offsets[0][1:-1])
    sizes = np.repeat(np.diff(x.offsets[0]), np.diff(x.offsets[0]))
    leaves = np.concatenate([of_list(rows).reshape(-1, *leaf) for rows in lists])
    return ft.from_flat(leaves, [x.offsets[0], np.cumsum([0, *sizes])])


def scores(x: Any, y: Any) -> Any:
    return ft.map(lambda a: ft.map(lambda b: pl.exp(a @ b.T * 0.25), y), x)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 3), (300, 7), (2, 300), (0, 3), (3, 0)])
def test_scores_of_all_pairs_are_one_product(rows: int, columns: int) -> None:
    plans = planned(scores, words(rows), words(columns))
    assert plans.startswith(AS_ROWS)
    text = pto.jit(scores).compile(words(rows), words(columns)).ir("source")
    assert text.count(" tdot ") == 1 and "input_rows" not in text


def test_columns_may_have_several_rows_each() -> None:
    assert planned(scores, words(7), words(5, rows=3)).startswith(AS_ROWS)
    assert not planned(scores, words(7, rows=2), words(5, rows=3)).startswith(AS_ROWS)


def test_blocks_of_many_columns_have_fewer_rows() -> None:
    def program(x: Any, y: Any) -> Any:
        return ft.map(lambda a: ft.map(lambda b: (a @ b.T)[0, 0], y), x)

    x, y = words(20), words(9000)
    got = pto.jit(program)(x, y)
    np.testing.assert_allclose(got.leaves.reshape(20, 9000), x.leaves[:, 0] @ y.leaves[:, 0].T, atol=1e-5)


@pytest.mark.parametrize("lengths", [(2, 3, 0, 1), (70, 0, 300), ()])
def test_pairs_within_lists_of_different_lengths(lengths: tuple[int, ...]) -> None:
    def within(x: Any) -> Any:
        return ft.map(lambda xs: ft.map(lambda a: ft.map(lambda b: a @ pl.transpose(b) + 1.0, xs), xs), x)

    x = jagged(*lengths)
    wanted = pairs_within(x, lambda rows: rows @ rows.T + 1.0, (1, 1)) if lengths else None
    assert planned(within, x, wanted=wanted).startswith(AS_ROWS) or not lengths
    if 0 < sum(lengths) < 10:
        same(within(x), wanted)


def test_what_depends_on_one_side_is_computed_for_it_and_spread() -> None:
    def distances(x: Any, y: Any, bias: Any) -> Any:
        def of_pair(a: Any, b: Any) -> Any:
            squares = pl.sum(a * a) + pl.sum(b * b)
            return squares - 2.0 * (a @ b.T), (a * 2.0) @ pl.transpose(b + bias), b - a, b * 2.0, a

        return ft.map(lambda a: ft.map(lambda b: of_pair(a, b), y), x)

    bias = RNG.standard_normal((1, H)).astype(np.float32)
    for rows, columns in ((1, 1), (5, 3), (40, 7)):
        assert planned(distances, words(rows), words(columns), bias).startswith(AS_ROWS)


def test_pairs_with_values_of_their_own() -> None:
    def program(x: Any, y: Any, mask: Any) -> Any:
        def of_row(p: Any) -> Any:
            return ft.map(lambda q: (p[0] @ q[0].T)[0, 0] * q[1], ft.zip(y, p[1]))

        return ft.map(of_row, ft.zip(x, mask))

    for rows, columns in ((1, 1), (5, 3), (300, 7)):
        mask = ft.split(ft.from_flat(RNG.standard_normal(rows * columns).astype(np.float32)), rows)
        planned(program, words(rows), words(columns), mask)


def attention(x: Any, keys: Any, values: Any) -> Any:
    def of_one(e: Any) -> Any:
        scores = ft.map(lambda k: pl.exp(e @ k.T * 0.5), keys)
        total = ft.reduce(lambda a, b: a + b, scores)
        return ft.reduce(lambda a, b: a + b, ft.map(lambda p: p[0] * p[1], ft.zip(scores, values))) / total

    return ft.map(of_one, x)


def test_attention_of_one_query_at_a_time_multiplies_all_keys_at_once() -> None:
    def layers(x: Any, w: Any) -> Any:
        return ft.fold(lambda xs, u: ft.map(lambda e: e @ u, attention(xs, xs, xs)), w, initializer=x)

    w = ft.from_flat(RNG.standard_normal((2, H, H)).astype(np.float32) / 2)
    for rows, columns in ((1, 1), (5, 3), (9, 40)):
        assert AS_ROWS in planned(attention, words(rows), words(columns), words(columns))
        assert planned(layers, words(rows), w).count("rows: ") == 3  # scores, their sum, the layer


def test_what_is_no_product_of_pairs_runs_cell_by_cell() -> None:
    def own(x: Any, y: Any) -> Any:
        return ft.map(lambda a: ft.map(lambda b: b @ b.T + a @ a.T, y), x)

    def both(x: Any, y: Any) -> Any:
        return ft.map(lambda a: ft.map(lambda b: a @ pl.transpose(a + b), y), x)

    for program in (own, both):
        assert not planned(program, words(5), words(3)).startswith(AS_ROWS)


def test_what_lies_in_another_order_is_gathered_for_the_rows_or_the_columns() -> None:
    def backwards(x: Any, y: Any) -> Any:
        return ft.map(lambda a: ft.map(lambda b: a @ b.T, ft.reverse(y)), x)

    def windows(x: Any, y: Any) -> Any:
        long = lambda w: ft.cat(w, axis=1)  # noqa: E731
        return ft.map(lambda w: ft.map(lambda b: long(w) @ b.T, y), ft.slide(x, 3, padding=1))

    def within(x: Any, y: Any) -> Any:
        return ft.map(lambda xs: backwards(xs, y), x)

    for rows, columns in ((1, 1), (5, 3), (300, 7), (0, 3), (3, 0)):
        assert planned(backwards, words(rows), words(columns)).startswith(AS_ROWS)
        wide = ft.from_flat(RNG.standard_normal((columns, 1, 3 * H)).astype(np.float32))
        assert planned(windows, words(rows), wide).startswith(AS_ROWS)
    assert planned(within, jagged(3, 0, 70), words(5)).startswith(AS_ROWS)


def test_pairs_of_both_that_lie_in_another_order_run_cell_by_cell() -> None:
    def program(x: Any, y: Any, mask: Any) -> Any:
        def of_row(p: Any) -> Any:
            return ft.map(lambda q: (p[0] @ q[0].T)[0, 0] * q[1], ft.zip(y, ft.reverse(p[1])))

        return ft.map(of_row, ft.zip(x, mask))

    mask = ft.split(ft.from_flat(RNG.standard_normal(15).astype(np.float32)), 5)
    assert not planned(program, words(5), words(3), mask).startswith(AS_ROWS)


def test_pairs_compute_with_their_numbers() -> None:
    def causal(x: Any, y: Any) -> Any:
        def of_row(p: Any) -> Any:
            return ft.map(lambda q: pl.where(q[0] <= p[0], (p[1] @ q[1].T)[0, 0], -1e9), ft.enumerate(y))

        return ft.map(of_row, ft.enumerate(x))

    def places(x: Any, y: Any) -> Any:
        def of_row(p: Any) -> Any:
            return ft.map(lambda q: p[1] @ q[1].T * pl.f32(p[0] % 5) + pl.f32(2 * q[0] - p[0]) * 0.01, ft.enumerate(y))

        return ft.map(of_row, ft.enumerate(x))

    def within(x: Any, y: Any) -> Any:
        return ft.map(lambda xs: causal(xs, xs), ft.split(x, 1))

    def wanted(x: Any) -> Any:
        numbers = np.arange(len(x))
        return pairs_within(
            ft.split(x, 1), lambda v: np.where(numbers <= numbers[:, None], v @ v.T, -1e9).astype(np.float32)
        )

    for rows, columns in ((1, 1), (5, 3), (300, 7), (7, 40)):
        x, y = words(rows), words(columns)
        for program in (causal, places):
            assert AS_ROWS in planned(program, x, y)
        assert AS_ROWS in planned(within, x, y, wanted=wanted(x) if rows > 9 else None)
    same(within(x, y), wanted(x))
