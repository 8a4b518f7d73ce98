# SPDX-License-Identifier: MIT
"""What a nest computes of its inputs alone is computed before it, by maps, where that is better."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from tests.fractal.compile.test_blocks import AS_ROWS
from tests.fractal.compile.test_nests import same

H = 32
LENGTHS = (5, 0, 40, 1)


def lists(*lengths: int) -> ft.FractalTensor:
    draw = np.random.default_rng(len(lengths)).standard_normal((sum(lengths), 1, H)).astype(np.float32)
    return ft.from_flat(draw, [np.cumsum([0, *lengths])])


def matrix(seed: int, rows: int = H) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((rows, H)) / 8).astype(np.float32)


def checked(program: Any, *given: Any, **options: Any) -> tuple[Any, list[Any]]:
    """The compiled program, checked against itself run eagerly, and its decisions of kind "hoist"."""
    want = program(*given)
    compiled = pto.jit(**options)(program).compile(*given)
    same(compiled(*given), want)
    same(pto.jit(num_threads=2, **options)(program)(*given), want)
    return compiled, [d for d in compiled.decisions if d.kind == "hoist"]


def decayed(x: Any, w: Any, b: Any) -> Any:
    zero = ft.zeros(1, H)
    return ft.map(lambda xs: ft.scan(lambda s, e: s * 0.5 + pl.tanh(e @ w + b), xs, initializer=zero), x)


@pytest.mark.parametrize("lengths", [LENGTHS, (), (0,)])
def test_the_largest_part_that_reads_no_state_is_a_map(lengths: tuple[int, ...]) -> None:
    given = lists(*lengths), matrix(0), matrix(1, 1)
    compiled, (hoisted,) = checked(decayed, *given)
    assert hoisted.applied and hoisted.reason.startswith("`dot`, `add`, `tanh` of inputs is computed before the nest: ")
    plans = [d.reason for d in compiled.decisions if d.kind == "schedule"]
    assert len(plans) == 2 and plans[0].startswith(AS_ROWS) and "read inputs1[i, j]" in plans[1]
    checked(decayed, *given, debug=True)


@pytest.mark.parametrize("plan", ["sequential", "tasks"])
def test_cells_of_a_plan_that_is_asked_for_compute_all(plan: str) -> None:
    def program(x: Any, w: Any) -> Any:
        body = lambda s, e: s * 0.5 + pl.tanh(e @ w)  # noqa: E731
        return ft.map(lambda xs: ft.scan(body, xs, initializer=ft.zeros(1, H)), x, schedule=plan)

    _, hoisted = checked(program, lists(*LENGTHS), matrix(0))
    assert not hoisted


def test_an_input_may_have_other_uses_and_several_values_may_move() -> None:
    def cell(s: Any, e: Any, w: Any, u: Any) -> Any:
        gate = pl.exp(e @ w) / (pl.sum(pl.exp(e @ w)) + 1.0)
        return s * gate + (e @ u) * s + e

    def program(x: Any, w: Any, u: Any) -> Any:
        last = ft.map(lambda xs: ft.foldr(cell, ft.reverse(xs), initializer=ft.zeros(1, H) + 1.0, w=w, u=u), x)
        return last, ft.map(lambda e: e * 2.0, last)

    compiled, (hoisted,) = checked(program, lists(*LENGTHS), matrix(0), matrix(1))
    assert hoisted.applied and compiled.ir("source").count("%inputs") >= 2


def test_a_value_of_fewer_loops_is_computed_once_for_these() -> None:
    def row(s: Any, e: Any, w: Any) -> Any:
        return ft.scan(lambda h, c: pl.tanh(h * 0.5 + c[0] + pl.tanh(c[1][0] @ w) + c[1][1]), ft.zip(s, ft.zip(*e)),
                       initializer=ft.zeros(1, H))  # fmt: skip

    def grid(pair: Any, w: Any) -> Any:
        xs, ys = ft.product(*pair)
        start = ft.map(lambda e: ft.zeros(1, H), pair[0])
        return ft.scan(row, ft.zip(xs, ys), initializer=start, w=w)

    def program(x: Any, y: Any, w: Any) -> Any:
        return ft.map(lambda pair: grid(pair, w), ft.zip(x, y))

    compiled, (hoisted,) = checked(program, lists(*LENGTHS), lists(3, 2, 4, 1), matrix(0))
    assert hoisted.applied
    shapes = [d.reason for d in compiled.decisions if d.kind == "schedule"]
    assert any(r.startswith(AS_ROWS) and "j < " not in r for r in shapes), shapes  # over pairs and words


def test_windows_and_pairs_of_inputs_stay_where_they_are() -> None:
    """There would be more of them than of the inputs."""

    def program(x: Any, w: Any) -> Any:
        def window(s: Any, e: Any) -> Any:
            return ft.fold(lambda h, c: h * 0.5 + pl.tanh(c @ w), e, initializer=s)

        return ft.map(lambda xs: ft.scan(window, ft.shifted_slide(xs, 3), initializer=ft.zeros(1, H)), x)

    checked(program, lists(5, 3, 40, 1), matrix(0))
    compiled = pto.jit(program).compile(lists(5, 3, 40, 1), matrix(0))
    assert "%inputs" not in compiled.ir("source")


@pytest.mark.parametrize("plan", ["auto", "wavefront", "sequential"])
def test_what_would_be_read_where_no_cell_does_stays(plan: str) -> None:
    """The other list is empty where `u` is: nothing of it may be read."""

    def program(x: Any, y: Any, u: Any) -> Any:
        def one(e: Any) -> Any:
            return ft.fold(lambda s, c: s * 0.5 + c * pl.tanh(e @ u[0]), y, initializer=ft.zeros(1, H))

        return ft.map(one, x, schedule=plan)

    full = ft.from_flat(matrix(0).reshape(1, H, H)), ft.from_flat(matrix(1).reshape(H, 1, H))
    empty = ft.from_flat(np.zeros((0, H, H), np.float32)), ft.from_flat(np.zeros((0, 1, H), np.float32))
    x = ft.from_flat(matrix(2).reshape(H, 1, H))
    for u, y in (full, empty):
        checked(program, x, y, u)
        checked(program, x, y, u, debug=True)


def test_cheap_work_stays() -> None:
    def program(x: Any, b: Any) -> Any:
        return ft.map(lambda xs: ft.scan(lambda s, e: s * 0.5 + (e + b), xs, initializer=ft.zeros(1, H)), x)

    _, hoisted = checked(program, lists(*LENGTHS), matrix(0, 1))
    assert not any(d.applied for d in hoisted)


def test_a_nest_that_costs_as_much_keeps_its_work_and_says_why() -> None:
    def program(x: Any) -> Any:
        def soft(e: Any) -> Any:
            p = pl.exp(e - pl.max(e, axis=-1, keepdims=True))
            return p / pl.sum(p, axis=-1, keepdims=True)

        return ft.map(lambda xs: ft.scan(lambda s, e: s * 0.5 + soft(e), xs, initializer=ft.zeros(1, H)), x)

    _, hoisted = checked(program, lists(*LENGTHS))
    assert all(not d.applied and "could be computed before the nest, which costs more: " in d.reason for d in hoisted)
    assert hoisted


# -- states that start from computed values --------------------------------------------------------------------------


def edit_distances(a: Any, b: Any, plan: str) -> Any:
    """Of each pair of lists of numbers the last row: the first row and the first column are computed."""

    def cell(state: Any, e: Any) -> Any:
        left, corner = state
        above, differs = e[0], pl.where(e[1] == e[2], 0.0, 1.0)
        return pl.minimum(pl.minimum(left, above) + 1.0, corner + differs), above

    def row(before: Any, e: Any, b: Any) -> Any:
        i, x = e
        others = ft.zip(before, ft.map(lambda _: x, b), b)
        return ft.scan(cell, others, initializer=(pl.f32(i) + 1.0, pl.f32(i)))[0]

    def one(pair: Any) -> Any:
        first = ft.map(lambda e: pl.f32(e[0]) + 1.0, ft.enumerate(pair[1]))
        return ft.fold(lambda s, e: row(s, e, pair[1]), ft.enumerate(pair[0]), initializer=first)

    return ft.map(one, ft.zip(a, b), schedule=plan)


@pytest.mark.parametrize("plan", ["auto", "wavefront", "tasks"])
def test_edit_distances_are_planes_and_tasks(plan: str) -> None:
    draw = np.random.default_rng(0)
    a, b = (
        ft.from_flat(draw.integers(0, 3, sum(n)).astype(np.float32), [np.cumsum([0, *n])])
        for n in ((9, 0, 4, 1), (7, 3, 0, 1))
    )

    def program(a: Any, b: Any) -> Any:
        return edit_distances(a, b, plan)

    compiled, _ = checked(program, a, b)
    plans = [d.reason for d in compiled.decisions if d.kind == "schedule" and "no loop carries" not in d.reason]
    assert plans[0].startswith("sequential: cells cost less" if plan == "auto" else plan), plans
    assert plan == "auto" or "read inputs1[i, j] if k == 0 else " in plans[0]


@pytest.mark.parametrize("plan", ["wavefront", "tasks", "auto"])
def test_rows_may_start_from_products_of_what_lies_outside_of_them(plan: str) -> None:
    def program(x: Any, y: Any, w: Any) -> Any:
        def row(before: Any, e: Any) -> Any:
            body = lambda s, c: pl.maximum(s * 0.5 + c[0] * 0.25, c[1])  # noqa: E731
            return ft.scan(body, ft.zip(before, y), initializer=pl.tanh(e @ w))

        return ft.fold(row, x, initializer=y, schedule=plan)

    x, y = (ft.from_flat(matrix(n, n).reshape(n, 1, H)) for n in (6, 5))
    compiled, _ = checked(program, x, y, matrix(1))
    reason = next(d.reason for d in compiled.decisions if d.kind == "schedule" and "carry" in d.reason)
    assert reason.startswith("wavefront" if plan == "auto" else plan), reason


def test_a_start_that_is_made_of_a_state_stays_in_the_nest() -> None:
    def program(x: Any) -> Any:
        def row(before: Any, e: Any) -> Any:
            return ft.scan(lambda s, c: s * 0.5 + c, before, initializer=pl.tanh(ft.head(before)) + e)

        return ft.fold(row, ft.slice(x, 0, 3), initializer=x)

    compiled, _ = checked(program, ft.from_flat(matrix(0).reshape(H, 1, H)))
    reasons = [d.reason for d in compiled.decisions if d.kind == "schedule"]
    assert any("sequential: " in r and "carry" in r for r in reasons)
