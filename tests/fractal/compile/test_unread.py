# SPDX-License-Identifier: MIT
"""States of scans that nothing but the next iteration reads, in every plan."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from pto_jit.errors import ScheduleError, ShapeError
from tests.fractal.compile.test_nests import jagged, same

RNG = np.random.default_rng(37)
H = 4
PLANS = ("auto", "sequential", "wavefront", "tasks")


def weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / 2).astype(np.float32)


def step(state: Any, x: Any, w: Any) -> Any:
    s = pl.tanh(state[0] @ w + x)
    return s, s * 2.0 + state[1] * 0.5


def second(x: Any, w: Any, plan: str) -> Any:
    start = (ft.zeros(1, H), ft.zeros(1, H))
    return ft.map(lambda xs: ft.scan(step, xs, initializer=start, w=w)[1], x, schedule=plan)


def backwards(x: Any, w: Any, plan: str) -> Any:
    start = (ft.zeros(1, H), ft.zeros(1, H))
    return ft.map(lambda xs: ft.scanr(step, xs, initializer=start, w=w)[1], x, schedule=plan)


def both(x: Any, w: Any, plan: str) -> Any:
    start = (ft.zeros(1, H), ft.zeros(1, H))
    return ft.map(lambda xs: ft.scan(step, xs, initializer=start, w=w), x, schedule=plan)


def neither(x: Any, w: Any, plan: str) -> Any:
    def of(xs: Any) -> Any:
        states, others = ft.scan(step, xs, initializer=(ft.zeros(1, H), ft.zeros(1, H)), w=w)
        return ft.fold(lambda s, p: s + p[0] * p[1], ft.zip(states, others), initializer=ft.zeros(1, H))

    return ft.map(of, x, schedule=plan)


def without_initializer(x: Any, w: Any, plan: str) -> Any:
    def of(s: Any, e: Any) -> Any:
        return pl.tanh(s[0] @ w + e[0]), s[1] * 0.5 + e[1] + s[0]

    return ft.map(lambda xs: ft.scan(of, ft.zip(xs, ft.reverse(xs)))[1], x, schedule=plan)


def grid(x: Any, w: Any, plan: str) -> Any:
    """A state that is a list, of which the layers behind the last one are not read."""
    def layer(state: Any, k: Any) -> Any:
        rows = ft.scan(lambda s, e: pl.tanh(s @ w + e), state[0], initializer=ft.zeros(1, H))
        return rows, ft.fold(lambda s, e: s + e, rows, initializer=ft.zeros(1, H)) + state[1]

    numbers = ft.repeat(ft.zeros(1, H), 3)
    start = ft.zeros(1, H)
    return ft.map(lambda xs: ft.scan(layer, numbers, initializer=(xs, start))[1], x, schedule=plan)


PROGRAMS = (second, backwards, both, neither, without_initializer, grid)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("lengths", [(3, 0, 5), (), (0,), (1, 1), (40,)])
def test_states_that_nothing_reads(program: Callable[..., Any], lengths: tuple[int, ...], plan: str) -> None:
    x, w = jagged(*lengths), weights(H, H)
    try:
        got = pto.jit(program)(x, w, plan)
    except ScheduleError:
        assert plan in ("wavefront", "tasks")
        return
    same(got, program(x, w, plan))


def states_in_memory(program: Callable[..., Any], *given: Any) -> int:
    """How many states a program has memory for."""
    text = pto.jit(program, cache=False).compile(*given).ir("source")
    return len(re.findall(r"%h\d+(?:\.\d+)? = talloc ", text))


def test_they_have_no_memory() -> None:
    x, w = jagged(3, 0, 5), weights(H, H)
    for program, count in ((second, 1), (backwards, 1), (both, 2), (neither, 0)):
        assert states_in_memory(lambda x, w, of=program: of(x, w, "sequential"), x, w) == count


def retention(q: Any, k: Any, v: Any, gamma: float) -> Any:
    step = lambda s, t: s * gamma + t[1].T @ t[2]  # noqa: E731
    states = ft.scan(step, ft.zip(q, k, v), initializer=ft.zeros(H * 16, H * 16))
    return ft.map(lambda t: t[0] @ t[1], ft.zip(q, states))


def test_a_map_of_large_states_is_part_of_their_scan() -> None:
    for count in (0, 1, 9):
        given = [ft.from_flat(weights(count, 1, H * 16)) for _ in range(3)]
        kernel = pto.jit(retention).compile(*given, 0.9)
        assert [d.applied for d in kernel.decisions if d.kind == "fusion"] == [True]
        got, want = kernel(*given, 0.9), retention(*given, 0.9)
        np.testing.assert_allclose(got.leaves, want.leaves, rtol=1e-4, atol=1e-3)


def test_lists_that_are_checked_to_have_one_length_go_in_step() -> None:
    def heads(q: Any, k: Any, v: Any, gamma: float) -> Any:
        def head(t: Any) -> Any:
            q, k, v = t
            step = lambda s, t: s * gamma + t[0].T @ t[1]  # noqa: E731
            states = ft.scan(step, ft.zip(k, v), initializer=ft.zeros(H * 16, H * 16))
            return ft.map(lambda t: t[0] @ t[1], ft.zip(q, states))

        return ft.map(head, ft.zip(q, k, v))

    def lists(*lengths: int) -> ft.FractalTensor:
        return ft.from_flat(weights(sum(lengths), 1, H * 16), [np.cumsum([0, *lengths])])

    for lengths in ((3, 0, 5), (), (0,), (20,)):
        given = [lists(*lengths) for _ in range(3)]
        kernel = pto.jit(heads).compile(*given, 0.9)
        assert [d.applied for d in kernel.decisions if d.kind == "fusion"] == [True]
        got, want = kernel(*given, 0.9), heads(*given, 0.9)
        np.testing.assert_allclose(got.leaves, want.leaves, rtol=1e-4, atol=1e-3)
    with pytest.raises(ShapeError, match="lists of different lengths: 5, 4, at element"):
        pto.jit(heads)(lists(3, 5), lists(3, 4), lists(3, 4), 0.9)


def test_lengths_that_are_equal_in_another_loop_are_not_known_to_be() -> None:
    def behind(x: Any, y: Any) -> Any:
        states = ft.scan(lambda s, e: s * 0.5 + e, x, initializer=ft.zeros(1, H))
        return ft.map(lambda k: states[k[0]] + k[1], ft.enumerate(y))

    def program(x: Any, y: Any, few: Any) -> Any:
        of_both = lambda e: ft.fold(lambda s, p: s + p[0] * p[1], ft.zip(x, y), initializer=e)  # noqa: E731
        return ft.map(of_both, few), behind(x, y)

    x, y, none = (ft.from_flat(weights(n, 1, H)) for n in (7, 3, 0))
    same(pto.jit(program)(x, y, none)[1], behind(x, y))
