# SPDX-License-Identifier: MIT
"""Maps whose cells have loops: rows that go through these loops together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from tests.fractal.compile.test_nests import H, jagged, schedules_of, weights

RNG = np.random.default_rng(17)


def words(count: int, rows: int = 1) -> ft.FractalTensor:
    return ft.from_flat(RNG.standard_normal((count, rows, H)).astype(np.float32))


def through(program: Callable[..., Any], *given: Any, **options: Any) -> bool:
    """Whether the rows of a map go through the loops in it; the program gives what it gives eagerly."""
    return any("through the loops inside" in reason for reason in schedules_of(program, *given, **options))


def add(a: Any, b: Any) -> Any:
    return a + b


def convolved(window: Any, kernel: Any) -> Any:
    return ft.reduce(add, ft.map(lambda p: p[0] @ p[1], ft.zip(window, kernel)))


@pytest.mark.parametrize("count", [3, 4, 9, 300])
def test_windows_are_multiplied_by_a_part_of_the_kernel_at_once(count: int) -> None:
    def plain(x: Any, kernel: Any) -> Any:
        return ft.map(lambda win: convolved(win, kernel), ft.slide(x, 3))

    def started(x: Any, kernel: Any) -> Any:
        def one(win: Any) -> Any:
            step = lambda s, p: s * 0.5 + pl.tanh(p[0] @ p[1])  # noqa: E731
            return ft.fold(step, ft.zip(win, kernel), initializer=ft.zeros(1, H)) + win[0]

        return ft.map(one, ft.slide(x, 3))

    for program in (plain, started):
        assert through(program, words(count), weights(3))
        assert "input_rows" not in pto.jit(program).compile(words(count), weights(3)).ir("source")


def test_windows_that_lie_apart_are_gathered() -> None:
    def padded(x: Any, kernel: Any) -> Any:
        return ft.map(lambda win: convolved(win, kernel), ft.slide(x, 3, padding=1))

    def strided(x: Any, kernel: Any) -> Any:
        return ft.map(lambda win: pl.tanh(convolved(win, kernel)), ft.slide(x, 3, stride=2, dilation=2, padding=2))

    def around(x: Any, kernel: Any) -> Any:
        return ft.map(lambda win: convolved(win, kernel), ft.shifted_slide(x, 3))

    for program in (padded, strided, around):
        for count in (1, 5, 300):
            assert through(program, words(count), weights(3))


def test_gathered_rows_have_the_memory_of_a_block_and_states_keep_theirs() -> None:
    """A state that is what an iteration gathered outlives the gathering of the next one in the same memory."""

    def late(x: Any, kernel: Any) -> Any:
        def one(window: Any) -> Any:
            step = lambda s, p: (p[0], s[1] @ p[1] + s[0], p[2])  # noqa: E731
            start = (ft.zeros(1, H), ft.zeros(1, H), window[2])
            return ft.fold(step, ft.zip(window, kernel, ft.reverse(window)), initializer=start)

        return ft.map(one, ft.shifted_slide(x, 3))

    for count in (1, 5, 300):
        assert through(late, words(count), weights(3))
    text = pto.jit(late).compile(words(5), weights(3)).ir("source")
    assert "%input_rows = talloc" in text.partition("SCOPE @late")[0]
    assert "talloc" not in text.partition("SCOPE @late")[2]  # memory inside would be new in each iteration


@pytest.mark.parametrize("lengths", [(4, 0, 9, 3), (300, 5), (0,), ()])
def test_lists_of_different_lengths(lengths: tuple[int, ...]) -> None:
    def program(x: Any, kernel: Any) -> Any:
        return ft.map(lambda xs: ft.map(lambda win: convolved(win, kernel), ft.slide(xs, 3)), x)

    assert through(program, jagged(*lengths), weights(3))


def test_a_word_by_each_of_several_weights_is_a_product_of_all_words() -> None:
    def heads(x: Any, w: Any) -> Any:
        return ft.map(lambda e: ft.map(lambda u: pl.tanh(e @ u), w), x)

    def of_all(x: Any, w: Any) -> Any:
        return ft.map(lambda xs: heads(xs, w), x)

    def numbers(x: Any, w: Any) -> Any:
        return ft.map(lambda e: ft.map(lambda u: (pl.max(e @ u), e), w), x)

    for depth in (1, 3, 0):
        w = weights(3)[:depth]
        for count in (1, 7, 300):
            assert through(heads, words(count), w)
        assert through(numbers, words(7), w)
        assert through(of_all, jagged(2, 0, 300), w)
        assert through(heads, words(70, rows=3), w)


def test_states_that_change_places() -> None:
    def program(x: Any, w: Any) -> Any:
        def one(e: Any) -> Any:
            first = ft.fold(lambda s, u: (s[1], s[0] @ u), w, initializer=(e, e * 2.0))
            return first[0] + pl.sum(first[1]), ft.fold(lambda s, u: s + pl.sum(e @ u), w, initializer=0.5)

        return ft.map(one, x)

    for count in (1, 7, 300):
        through(program, words(count), weights(3))


def test_what_differs_from_cell_to_cell_runs_cell_by_cell() -> None:
    def own(x: Any, w: Any) -> Any:
        """Each element has weights of its own."""
        return ft.map(lambda p: ft.map(lambda u: p[0] @ u, p[1]), ft.zip(x, w))

    def by_number(x: Any, w: Any) -> Any:
        return ft.map(lambda e: ft.reduce(add, ft.map(lambda u: (e @ u) * pl.f32(pl.sum(e)), w)), x)

    def asked(x: Any, w: Any) -> Any:
        return ft.map(lambda e: ft.map(lambda u: e @ u, w), x, schedule="sequential")

    w = ft.from_flat(RNG.standard_normal((6, H, H)).astype(np.float32), [[0, 2, 4, 6]])
    assert not through(own, words(3), w)
    assert through(by_number, words(3), weights(3))
    assert not through(asked, words(3), weights(3))


def test_branches_of_cells() -> None:
    def program(x: Any, w: Any, flag: Any) -> Any:
        def one(e: Any) -> Any:
            def step(s: Any, u: Any) -> Any:
                if flag > 0:
                    return s @ u
                return s + e @ u

            return ft.fold(step, w, initializer=e)

        return ft.map(one, ft.reverse(x))

    for flag in (0, 1):
        through(program, words(7), weights(3), np.int64(flag))
    through(program, words(7), weights(3), np.int64(1), debug=True)
