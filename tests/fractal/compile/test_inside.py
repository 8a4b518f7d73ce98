# SPDX-License-Identifier: MIT
"""Maps of products inside of nests that run in order: rows of blocks in each iteration of the loops around."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from tests.fractal.compile.test_nests import H, deeper, jagged, schedules_of, weights

RNG = np.random.default_rng(11)


def rows_of(program: Callable[..., Any], *given: Any, **options: Any) -> int:
    """How many maps of a program, which gives what it gives eagerly, are rows inside of loops."""
    return sum(reason.startswith("rows: ") for reason in schedules_of(program, *given, **options))


def words(count: int, rows: int = 1) -> ft.FractalTensor:
    return ft.from_flat((RNG.standard_normal((count, rows, H)) / 4).astype(np.float32))


def relu(x: Any) -> Any:
    return pl.maximum(x, 0.0)


def layers(x: Any, w: Any) -> Any:
    return ft.fold(lambda xs, u: ft.map(lambda e: relu(e @ u) + e, xs), w, initializer=x)


@pytest.mark.parametrize("count", [1, 7, 300])
def test_the_layers_of_a_net_are_products_of_all_words(count: int) -> None:
    assert rows_of(layers, words(count), weights(3)) == 1
    text = pto.jit(layers).compile(words(count), weights(3)).ir("source")
    assert "input_rows" not in text and text.count(" tdot ") == 1
    assert rows_of(layers, words(count, rows=4), weights(3)) == 1


@pytest.mark.parametrize("lengths", [(2, 3, 0, 1), (300, 0, 257), ()])
def test_lists_of_lists_in_a_layer_are_rows_of_one_product(lengths: tuple[int, ...]) -> None:
    def inside(x: Any, w: Any) -> Any:
        return ft.scan(lambda xss, u: ft.map(lambda xs: ft.map(lambda e: pl.tanh(e @ u), xs), xss), w, initializer=x)

    def last(x: Any, w: Any) -> Any:
        return ft.fold(lambda xss, u: ft.map(lambda xs: ft.map(lambda e: pl.tanh(e @ u), xs), xss), w, initializer=x)

    def outside(x: Any, w: Any) -> Any:
        return ft.map(lambda xs: layers(xs, w), x)

    for program in (inside, last, outside):
        assert rows_of(program, jagged(*lengths), weights(3)) == 1
        assert "input_rows" not in pto.jit(program).compile(jagged(*lengths), weights(3)).ir("source")
    assert rows_of(outside, jagged(*lengths), weights(3)[:0]) == 1


def test_lists_of_lists_of_lists_are_rows() -> None:
    def program(x: Any, w: Any) -> Any:
        def layer(xsss: Any, u: Any) -> Any:
            return ft.map(lambda xss: ft.map(lambda xs: ft.map(lambda e: e @ u + 1.0, xs), xss), xsss)

        return ft.fold(layer, w, initializer=x)

    assert rows_of(program, deeper([[2, 0, 300], [], [1]]), weights(2)) == 1


def test_what_lies_in_another_order_is_gathered_in_each_layer() -> None:
    def neighbours(x: Any, w: Any) -> Any:
        def layer(xs: Any, u: Any) -> Any:
            return ft.map(lambda e: relu((e[0] + e[1] + e[2]) @ u), ft.slide(xs, 3, padding=1))

        return ft.fold(layer, w, initializer=x)

    def backwards(x: Any, w: Any) -> Any:
        def layer(xss: Any, u: Any) -> Any:
            return ft.map(lambda xs: ft.map(lambda p: p[0] @ u + p[1], ft.zip(ft.reverse(xs), xs)), xss)

        return ft.scan(layer, w, initializer=x)

    def chosen(x: Any, places: Any, w: Any) -> Any:
        return ft.fold(lambda xs, u: ft.map(lambda e: relu(e @ u), ft.gather(xs, places)), w, initializer=x)

    for count in (1, 5, 300):
        assert rows_of(neighbours, words(count), weights(3)) == 1
        places = ft.from_flat(RNG.integers(-count, count, count))
        assert rows_of(chosen, words(count), places, weights(3)) == 1
    for lengths in ((2, 3, 0, 1), (300, 7), ()):
        assert rows_of(backwards, jagged(*lengths), weights(3)) == 1


def test_loops_of_a_layer_choose_operands_that_rows_share() -> None:
    def heads(x: Any, w: Any) -> Any:
        def layer(xs: Any, us: Any) -> Any:
            parts = ft.map(lambda u: ft.map(lambda e: e @ u, xs), us)
            return ft.map(lambda p: p[1] + parts[0][p[0]] - parts[1][p[0]], ft.enumerate(xs))

        return ft.fold(layer, w, initializer=x)

    w = ft.from_flat((RNG.standard_normal((6, H, H)) / 2).astype(np.float32), [[0, 2, 4, 6]])
    for count in (1, 7, 300):
        assert rows_of(heads, words(count), w) == 2  # and the sums of parts


def test_a_layer_with_several_maps_has_rows_for_each() -> None:
    def attention(x: Any, *w: Any) -> Any:
        def layer(xs: Any, us: Any) -> Any:
            query, key, value, out = us
            keys, values = ft.map(lambda e: e @ key, xs), ft.map(lambda e: e @ value, xs)

            def of_one(e: Any) -> Any:
                scores = ft.map(lambda k: pl.exp(pl.minimum(pl.sum(e * k), 5.0)), keys)
                total = ft.reduce(lambda a, b: a + b, scores)
                return ft.reduce(lambda a, b: a + b, ft.map(lambda p: p[0] * p[1], ft.zip(scores, values))) / total

            mixed = ft.map(of_one, ft.map(lambda e: e @ query, xs))
            return ft.map(lambda p: p[0] + relu(p[1] @ out), ft.zip(xs, mixed))

        return ft.fold(layer, ft.zip(*w), initializer=x)

    for count in (1, 7, 20):
        assert rows_of(attention, words(count), *(weights(2) for _ in range(4))) == 7  # and the sums


def test_states_that_are_tensors_are_shared_by_rows() -> None:
    def program(x: Any, w: Any) -> Any:
        def step(s: Any, u: Any) -> Any:
            return s * 0.5 + ft.fold(pl.maximum, ft.map(lambda e: pl.tanh(e @ s + e @ u), x)[1:], initializer=u[0:1])

        return ft.scan(step, w, initializer=ft.zeros(H, H) + 0.1)

    for count in (2, 300):
        assert rows_of(program, words(count), weights(3)) == 1


def test_a_plan_that_was_asked_for_has_no_rows_of_its_own() -> None:
    def asked(x: Any, w: Any) -> Any:
        return ft.fold(lambda xs, u: ft.map(lambda e: relu(e @ u), xs), w, initializer=x, schedule="sequential")

    def within(x: Any, w: Any) -> Any:
        def layer(xs: Any, u: Any) -> Any:
            first = ft.map(lambda e: relu(e @ u), xs, schedule="sequential")
            return ft.map(lambda p: p[0] @ u + p[1], ft.zip(first, ft.reverse(first)))

        return ft.fold(layer, w, initializer=x)

    assert rows_of(asked, words(7), weights(3)) == 0
    assert rows_of(within, words(7), weights(3)) == 1


def test_checks_of_indices_keep_maps_in_order() -> None:
    assert rows_of(layers, words(7), weights(3), debug=True) == 1


def test_planes_of_a_layer_that_are_asked_for_are_rows() -> None:
    def layers(x: Any, w: Any) -> Any:
        return ft.fold(lambda xs, u: ft.map(lambda e: relu(e @ u), xs), w, initializer=x, schedule="wavefront")

    def lists(x: Any, w: Any) -> Any:
        one = lambda xs: ft.fold(lambda s, u: ft.map(lambda e: relu(e @ u), s), w, initializer=xs)  # noqa: E731
        return ft.map(one, x, schedule="wavefront")

    def every(x: Any, w: Any) -> Any:
        return ft.scan(lambda xs, u: ft.map(lambda e: relu(e @ u), xs), w, initializer=x, schedule="wavefront")

    for program, given in ((layers, words(300)), (layers, words(1)), (every, words(7)), (lists, jagged(3, 0, 70))):
        reasons = schedules_of(program, given, weights(3))
        assert reasons[0].startswith("wavefront: planes of hyperplane") and "as rows of blocks" in reasons[0]
        assert any(reason.startswith("rows: ") for reason in reasons)
    empty = ft.from_flat(np.zeros((0, H, H), np.float32))
    for program in (layers, every):
        schedules_of(program, words(5), empty)
