# SPDX-License-Identifier: MIT
"""Layers that run backwards: their states stand mirrored, and are planes and tasks as those of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
from tests.fractal.compile.test_random import flat, interpreted

DRAW = np.random.default_rng(5)


def whole(*lengths: int) -> ft.FractalTensor:
    leaves = DRAW.integers(0, 9, (sum(lengths), 1, 2)).astype(np.float32)
    return ft.from_flat(leaves, [np.cumsum([0, *lengths])])


def layers(outer: str, plan: str, tile: Any = None) -> Callable[..., Any]:
    def layer(xs: Any, w: Any) -> Any:
        return ft.scanr(lambda s, e: (s @ w + e) % 97, xs, initializer=ft.zeros(1, 2))

    def program(x: Any, w: Any) -> Any:
        body = lambda xs: getattr(ft, outer)(layer, w, initializer=xs)  # noqa: E731
        return ft.map(body, x, schedule=plan, tile=tile)

    return program


def turned(plan: str) -> Callable[..., Any]:
    """Two states, one of which stands mirrored and is read in both orders."""

    def layer(state: Any, w: Any) -> Any:
        xs, ys = state
        a = ft.scanr(lambda s, e: (s @ w + e[0] + e[1] * 2) % 97, ft.zip(xs, ys), initializer=ft.zeros(1, 2))
        return a, ft.map(lambda e: e * 3 % 97, ft.reverse(xs))

    return lambda x, w: ft.map(lambda xs: ft.fold(layer, w, initializer=(xs, xs)), x, schedule=plan)


@pytest.mark.parametrize("outer", ["fold", "scan"])
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_planes_and_tasks_of_layers_that_run_backwards(outer: str, depth: int) -> None:
    x, w = whole(4, 0, 1, 6), ft.from_flat(DRAW.integers(0, 3, (depth, 2, 2)).astype(np.float32))
    want = flat(layers(outer, "auto")(x, w))
    for plan, tile in (("sequential", None), ("wavefront", None), ("tasks", None), ("tasks", (1, 2, 3))):
        found, plans = interpreted(pto.jit(layers(outer, plan, tile)), (x, w))
        assert plan in plans
        for f, g in zip(found, want, strict=True):
            np.testing.assert_array_equal(f, g, err_msg=f"{plan} {tile}")


def test_a_state_is_read_in_both_orders() -> None:
    x, w = whole(3, 0, 5), ft.from_flat(DRAW.integers(0, 3, (3, 2, 2)).astype(np.float32))
    found, _ = interpreted(pto.jit(turned("auto")), (x, w))
    for f, g in zip(found, flat(turned("auto")(x, w)), strict=True):
        np.testing.assert_array_equal(f, g)


def test_the_task_graph_is_that_of_layers_that_run_forwards() -> None:
    x, w = whole(7), ft.from_flat(np.ones((4, 2, 2), np.float32))
    graph = pto.jit(layers("scan", "tasks")).task_graph(x, w)
    cells = {task.number for task in graph.tasks if task.name == "cell"}
    assert len(cells) == 4 * 7
    assert sum(a in cells and b in cells for a, b in graph.edges) == 2 * 4 * 7 - 4 - 7
