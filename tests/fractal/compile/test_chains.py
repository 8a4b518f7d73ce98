# SPDX-License-Identifier: MIT
"""Layers that are a `dilated_map`: one loop over all elements, in which an iteration follows the one d before it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
from pto_jit.errors import PtoError, ScheduleError
from tests.differential.rounds import share
from tests.fractal.compile.test_nests import H, jagged, schedules_of
from tests.fractal.compile.test_random import flat, interpreted

DRAW = np.random.default_rng(7)
PLANS = (("auto", None), ("sequential", None), ("wavefront", None), ("tasks", None), ("tasks", (1, 2, 3)))


def whole(*lengths: int) -> ft.FractalTensor:
    leaves = DRAW.integers(0, 9, (sum(lengths), 1, 2)).astype(np.float32)
    return ft.from_flat(leaves, [np.cumsum([0, *lengths])])


def weights(count: int) -> ft.FractalTensor:
    return ft.from_flat(DRAW.integers(0, 3, (count, 2, 2)).astype(np.float32))


def cell(s: Any, e: Any, w: Any) -> Any:
    return (s @ w + e * 3 + 1) % 97


def layers(
    outer: str, scan: str, plan: str = "auto", tile: Any = None, *, start: bool = True, pairs: bool = False, by: Any = None
) -> Callable[..., Any]:
    """A stack of strided scans: of two states if `pairs`, from zeros or, without `start`, from the first elements; the
    dilation is `by`, else that of the layer."""

    def initial() -> Any:
        zero = ft.zeros(1, 2)
        return {} if not start else {"initializer": (zero, zero + 1) if pairs else zero}

    def both(s: Any, e: Any, w: Any) -> Any:
        return cell(s[0], e[0] + s[1], w), cell(s[1], e[1], w)

    def layer(xs: Any, cur: Any) -> Any:
        d, w = cur
        body = lambda part: getattr(ft, scan)(both if pairs else cell, part, w=w, **initial())  # noqa: E731
        return ft.dilated_map(body, ft.zip(*xs) if pairs else xs, d if by is None else by)

    def program(x: Any, dilations: Any, w: Any) -> Any:
        def stack(xs: Any) -> Any:
            state = (xs, ft.reverse(xs)) if pairs else xs
            return getattr(ft, outer)(layer, ft.zip(dilations, w), initializer=state)

        return ft.map(stack, x, schedule=plan, tile=tile)

    return program


def check(program: Callable[..., Any], given: tuple[Any, ...], want: list[np.ndarray], what: str) -> set[str]:
    found, plans = interpreted(pto.jit(program), given)
    for f, g in zip(found, want, strict=True):
        np.testing.assert_array_equal(f, g, err_msg=what)
    return plans


@pytest.mark.parametrize("scan", ["scan", "scanr"])
@pytest.mark.parametrize("outer", ["fold", "scan"])
def test_strided_layers_are_planes_and_tasks(outer: str, scan: str) -> None:
    given = whole(7, 0, 1, 4), ft.from_flat(np.array([1, 3, 2])), weights(3)
    want = flat(layers(outer, scan)(*given))
    for plan, tile in PLANS:
        plans = check(layers(outer, scan, plan, tile), given, want, f"{plan} {tile}")
        assert plan == "auto" or plan in plans


def test_random_strided_layers() -> None:
    """Dilations of 1 to more than the list has, empty lists, no layers, states from the first elements, pairs."""
    for seed in range(share(6)):
        rng = random.Random(seed)
        count = rng.randrange(4)
        dilations = ft.from_flat(np.array([rng.randrange(1, 7) for _ in range(count)], np.int64))
        given = whole(*(rng.randrange(8) for _ in range(rng.randrange(1, 4)))), dilations, weights(count)
        outer, scan = rng.choice(["fold", "scan"]), rng.choice(["scan", "scan", "scanr"])
        what = {"start": rng.random() < 0.7, "pairs": rng.random() < 0.4, "by": rng.choice([None, None, 1, 2, 3])}
        try:
            want = flat(layers(outer, scan, **what)(*given))
        except PtoError:  # an empty list whose type a trial does not find out
            continue
        for plan, tile in PLANS:
            try:
                check(layers(outer, scan, plan, tile, **what), given, want, f"{seed} {outer} {scan} {plan} {tile} {what}")
            except ScheduleError:
                assert plan in ("wavefront", "tasks")


def test_the_nest_is_drawn_with_the_distances_of_the_program() -> None:
    given = whole(7, 4), ft.from_flat(np.array([1, 2])), weights(2)
    kernel = pto.jit(layers("fold", "scan", "wavefront")).compile(*given)
    (text,) = (d.reason for d in kernel.decisions if d.kind == "schedule")
    assert text.startswith("wavefront: planes of hyperplane (0, 1, 1)")
    assert text.splitlines()[-1] == "distances over (i, j, l): (0, 0, dilations[j]), (0, 1, 0)"


def test_the_graph_of_a_strided_layer_is_that_of_its_chains() -> None:
    """Ten elements in three chains: of each element but the first three an edge from the one three before."""
    given = whole(10), ft.from_flat(np.array([3])), weights(1)
    graph = pto.jit(layers("scan", "scan", "tasks")).task_graph(*given)
    cells = {task.number for task in graph.tasks if task.name == "cell"}
    assert len(cells) == 10
    assert sum(a in cells and b in cells for a, b in graph.edges) == 7


def test_machine_code_on_two_threads() -> None:
    given = whole(9, 0, 5), ft.from_flat(np.array([1, 2, 4])), weights(3)
    want = flat(layers("scan", "scan")(*given))
    for plan in ("wavefront", "tasks"):
        got = flat(pto.jit(num_threads=2)(layers("scan", "scan", plan))(*given))
        for f, g in zip(got, want, strict=True):
            np.testing.assert_array_equal(f, g)


def doubled(part: Any) -> Any:
    return ft.map(lambda e: e * 2, ft.scan(lambda s, e: s + e, part))


def test_what_is_more_than_a_scan_is_refused_with_its_reason() -> None:
    def program(x: Any, w: Any) -> Any:
        layer = lambda xs, u: ft.dilated_map(doubled, xs, 2)  # noqa: E731
        return ft.map(lambda xs: ft.fold(layer, w, initializer=xs), x, schedule="wavefront")

    with pytest.raises(ScheduleError, match=r"inside the loop over `j`: the body of ft.dilated_map is not one scan"):
        pto.jit(program).compile(whole(3), weights(2))


@pytest.mark.parametrize("name", ["scan", "scanr"])
@pytest.mark.parametrize("start", [
    lambda s, part: ft.zeros(1, H) + 1, lambda s, part: part[0] * 2, lambda s, part: s[0] + ft.last(part),
])  # fmt: skip
def test_a_chain_in_order_starts_from_what_is_computed_for_it(name: str, start: Any) -> None:
    def layer(s: Any, w: Any) -> Any:
        def scanned(part: Any) -> Any:
            return getattr(ft, name)(lambda a, e: a * 0.5 + e, part, initializer=start(s, part))

        return ft.map(lambda e: e * w, ft.dilated_map(scanned, s, 2))

    weights = ft.from_flat(np.arange(3, dtype=np.float32) / 4)
    for length in (1, 2, 7):
        reasons = schedules_of(lambda x, w: ft.fold(layer, w, initializer=x), ft.from_flat(jagged(length).leaves), weights)
        assert reasons[0].startswith("sequential")
