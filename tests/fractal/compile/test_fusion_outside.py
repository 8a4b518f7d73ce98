# SPDX-License-Identifier: MIT
"""Parallel functions that stand in the function itself are one loop where those in a body would be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from tests.fractal.compile.test_fusion import fusions, halved, plus, rows, tensors_made
from tests.fractal.compile.test_nests import same

H = 64
W = (np.random.default_rng(2).standard_normal((H, H)) / 2).astype(np.float32)


def lists(*lengths: int) -> ft.FractalTensor:
    return rows(*lengths, leaf=(1, H))


def flat(n: int) -> ft.FractalTensor:
    return lists(n)[0] if n else lists(1)[0][:0]


def equal(found: Any, wanted: Any) -> None:
    both = isinstance(wanted, tuple)
    for f, w in zip(found, wanted, strict=True) if both else [(found, wanted)]:
        same(f, w)


def maps(x: Any) -> Any:
    doubled = ft.map(lambda v: v * 2.0, x)
    squares = ft.map(lambda v: v * v, doubled)
    return ft.map(lambda p: p[0] - p[1], ft.zip(squares, x))


def diamond(x: Any) -> Any:
    a = ft.map(lambda v: v * 2.0, x)
    return ft.map(lambda p: p[0] - p[1], ft.zip(a, ft.map(lambda v: v + 1.0, a)))


def mapped_scan(x: Any) -> Any:
    return ft.map(lambda v: v + 1.0, ft.scan(halved, ft.map(lambda v: v * 2.0, x), initializer=ft.zeros(1, H)))


def reduced(x: Any) -> Any:
    total = ft.reduce(plus, ft.map(lambda v: v * 2.0, x), initializer=ft.zeros(1, H))
    return total * 0.5


def from_the_first(x: Any) -> Any:
    return ft.scan(halved, ft.map(lambda v: v * 2.0, ft.reverse(x))), ft.fold(halved, ft.map(lambda v: v + 1.0, x))


def helped(x: Any) -> Any:
    """Calls in functions of the user's; operations between."""

    def scaled(y: Any, by: float) -> Any:
        return ft.map(lambda v: v * by, y)

    y = scaled(x, 2.0)
    shift = pl.exp(ft.zeros(1, H)) * 3.0
    return ft.map(lambda v: v + shift, y)


@pytest.mark.parametrize(
    ("program", "count", "tensors"),
    [(maps, 2, 1), (diamond, 2, 1), (mapped_scan, 2, 1), (reduced, 1, 2), (helped, 1, 1)],
)
@pytest.mark.parametrize("options", [{"num_threads": 1}, {"num_threads": 2}, {"debug": True}])
def test_calls_are_one_loop(program: Callable[[Any], Any], count: int, tensors: int, options: dict[str, Any]) -> None:
    run = pto.jit(program, cache=False, **options)
    for n in (5, 1, 0):
        equal(run(flat(n)), program(flat(n)))
    assert [applied for applied, _ in fusions(run, flat(5))] == [True] * count
    assert tensors_made(run.compile(flat(5)).ir("source")) == tensors


def test_states_that_start_as_the_first_element() -> None:
    run = pto.jit(from_the_first, cache=False)
    for n in (5, 1):
        equal(run(flat(n)), from_the_first(flat(n)))
    with pytest.raises(pto.errors.ShapeError, match=r"PTO-F190.*ft\.fold of an empty list"):
        run(flat(0))


def nested(x: Any) -> Any:
    doubled = ft.map(lambda r: ft.map(lambda v: v * 2.0, r), x)
    squares = ft.map(lambda r: ft.map(lambda v: v * v, r), doubled)
    return ft.map(lambda r: ft.fold(halved, r, initializer=ft.zeros(1, H)), squares)


def three_deep(x: Any) -> Any:
    doubled = ft.map(lambda r: ft.map(lambda q: ft.map(lambda v: v * 2.0, q), r), ft.map(lambda r: ft.repeat(r, 2), x))
    return ft.map(lambda r: ft.map(lambda q: ft.scan(halved, q, initializer=ft.zeros(1, H)), r), doubled)


@pytest.mark.parametrize(("program", "count"), [(nested, 2), (three_deep, 1)])
def test_maps_around_loops_are_one_map(program: Callable[[Any], Any], count: int) -> None:
    run = pto.jit(program, cache=False)
    for given in (lists(3, 0, 4), lists(1), lists()):
        equal(run(given), program(given))
    assert [applied for applied, _ in fusions(run, lists(3, 4))] == [True] * count
    assert tensors_made(run.compile(lists(3, 4)).ir("source")) == 1


def returned(x: Any) -> Any:
    y = ft.map(lambda v: v * 2.0, x)
    return y, ft.map(lambda v: v + 1.0, y)


def in_a_dict(x: Any) -> Any:
    y = ft.map(lambda r: ft.map(lambda v: v * 2.0, r), x)
    z = ft.map(lambda r: ft.map(lambda v: v + 1.0, r), y)
    return {"z": z, "y": [ft.reverse(y)]}


def read_behind_a_branch(x: Any, k: pl.i64) -> Any:
    y = ft.map(lambda v: v * 2.0, x)
    z = ft.map(lambda v: v + 1.0, y)
    if k > 1:
        total = ft.fold(halved, y, initializer=ft.zeros(1, H))
    else:
        total = ft.zeros(1, H)
    return ft.map(lambda v: v - total, z), y


def windows(x: Any) -> Any:
    return ft.map(lambda w: w[0] - w[1], ft.slide(ft.map(lambda v: v * 2.0, x), 2))


def first_of_all(x: Any) -> Any:
    y = ft.map(lambda v: v * 2.0, x)
    return ft.map(lambda v: v + y[0], y)


@pytest.mark.parametrize(
    ("program", "given", "told"),
    [
        (returned, [flat(4)], 1),
        (read_behind_a_branch, [flat(4), 1], 1),
        (read_behind_a_branch, [flat(4), 2], 1),
        (windows, [flat(4)], 0),
        (first_of_all, [flat(4)], 0),
    ],
)
def test_lists_that_others_read_stay(program: Callable[..., Any], given: list[Any], told: int) -> None:
    run = pto.jit(program, cache=False)
    equal(run(*given), program(*given))
    found = fusions(run, *given)
    assert [applied for applied, _ in found] == [False] * told
    assert all("stored for what else reads the list" in said for _, said in found)


def test_lists_in_containers_that_are_returned_stay() -> None:
    run = pto.jit(in_a_dict, cache=False)
    found, wanted = run(lists(3, 0, 2)), in_a_dict(lists(3, 0, 2))
    same(found["z"], wanted["z"])
    same(found["y"][0], wanted["y"][0])


def stored_between(x: Any, t: pl.Tensor[[1, H], pl.f32]) -> Any:
    """The first map reads what is changed behind it."""
    y = ft.map(lambda v: v + t, x)
    t[0, 0] = 100.0
    return ft.map(lambda v: v * t, y)


def test_what_changes_memory_stays_in_its_place() -> None:
    t = np.ones((1, H), np.float32)
    found = pto.jit(stored_between, cache=False)(flat(3), t)
    assert t[0, 0] == 100
    want = np.array([(v + 1) for v in flat(3)])
    want[..., 0] *= 100
    np.testing.assert_array_equal(found.leaves, want)


def test_products_of_maps_stay_rows_of_blocks() -> None:
    def smoothed(x: Any, w: Any) -> Any:
        y = ft.map(lambda r: ft.scan(halved, r, initializer=ft.zeros(1, H)), x)
        return ft.map(lambda r: ft.map(lambda v: pl.tanh(v @ w), r), y)

    def squared(x: Any, w: Any) -> Any:
        return ft.map(lambda v: v @ w, ft.map(lambda v: pl.transpose(v) @ v, ft.flatten(x)))

    for program in (smoothed, squared):
        run = pto.jit(program, cache=False)
        same(run(lists(5, 1), W), program(lists(5, 1), W))
        ((applied, said),) = fusions(run, lists(5, 1), W)
        assert not applied and "no rows of blocks" in said


def test_extents_and_lengths_that_earlier_calls_compute() -> None:
    def program(x: Any, b: Any) -> Any:
        count = ft.fold(lambda s, k: s + k, ft.map(lambda k: k * 2, x), initializer=0)
        made = ft.map(lambda k: pl.zeros([count, 2]) + pl.cast(k, pl.f32), x)
        y = ft.map(lambda v: v * 2.0, b)
        kept = ft.map(lambda v: ft.length(ft.filter(lambda u: pl.sum(u) > pl.sum(v), y)), b)
        numbers = ft.fold(lambda s, v: s + ft.length(ft.filter(lambda u: pl.sum(u) > 0.0, y)) * 0.5, b, initializer=0)
        return made, kept, numbers

    x, b = ft.from_list([np.int64(1), np.int64(2)]), flat(4)
    equal(pto.jit(program, cache=False)(x, b), program(x, b))


def test_errors_name_the_call_that_they_are_about() -> None:
    def program(x: Any) -> Any:
        y = ft.scan(lambda s, v: s + (v if pl.sum(v) > 0.0 else s), x, init=ft.zeros(1, H), schedule="tasks", tile=2)
        return ft.map(lambda v: v * 2.0, y)

    line = program.__code__.co_firstlineno + 1
    with pytest.raises(pto.errors.ScheduleError, match=rf"PTO-F150[^$]*{__file__.rsplit('/', 1)[-1]}:{line}:"):
        pto.jit(program, cache=False)(flat(3))


def test_checks_fail_in_the_order_of_the_program() -> None:
    def program(x: Any, y: Any, z: Any) -> Any:
        a = ft.map(lambda v: v * 2.0, x)
        b = ft.map(lambda p: p[0] + p[1], ft.zip(a, y))
        return ft.map(lambda p: p[0] * p[1], ft.zip(b, z))

    run = pto.jit(program, cache=False)
    same(run(flat(3), flat(3), flat(3)), program(flat(3), flat(3), flat(3)))
    assert [applied for applied, _ in fusions(run, flat(3), flat(3), flat(3))] == [True, True]
    with pytest.raises(pto.errors.ShapeError, match=r"PTO-F190.*different lengths: 3, 2"):
        run(flat(3), flat(2), flat(1))
    with pytest.raises(pto.errors.ShapeError, match=r"PTO-F190.*different lengths: 3, 1"):
        run(flat(3), flat(3), flat(1))


def test_plans_that_are_asked_for_are_those_of_each_call() -> None:
    def program(x: Any) -> Any:
        y = ft.map(lambda v: v * 2.0, x, schedule="tasks")
        return ft.map(lambda v: v + 1.0, y, schedule="tasks")

    run = pto.jit(program, cache=False)
    same(run(flat(4)), program(flat(4)))
    graph = run.task_graph(flat(4))
    assert (len(graph.tasks), graph.critical_path) == (8, 2)
