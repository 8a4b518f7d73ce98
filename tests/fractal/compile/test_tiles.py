# SPDX-License-Identifier: MIT
"""Tasks of several cells: their number and order, the same bits as cells one by one, what is refused and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from pto_jit.errors import ArgumentError, CompilationError, ScheduleError
from tests.fractal.compile.test_nests import GRID_OF_TASKS, grid, jagged, weights, widest_plane
from tests.fractal.compile.test_random import flat, interpreted


def smooth(tile: Any) -> Callable[..., Any]:
    """Layers that read both neighbours of the layer before: distances (1, 1), (1, 0) and (1, -1)."""

    def layer(xs: Any, w: Any) -> Any:
        return ft.map(lambda v: (v[0] + v[1] * w + v[2] * 3) % 97, ft.slide(xs, 3, padding=1))

    return lambda x, w: ft.map(
        lambda xs: ft.fold(layer, w, initializer=xs), x, schedule="tasks" if tile is None else "auto", tile=tile
    )


def whole(*lengths: int) -> ft.FractalTensor:
    """A jagged list of whole numbers, of which results are the same bits in any order."""
    return ft.from_flat(np.arange(sum(lengths), dtype=np.float32) % 7, [np.cumsum([0, *lengths])])


@pytest.mark.parametrize(("depth_tile", "rows", "columns"), [(1, 2, 2), (2, 3, 2)])
def test_tiles_of_a_grid_are_the_closed_form_and_have_the_bits_of_cells(depth_tile: int, rows: int, columns: int) -> None:
    kernel = pto.jit(grid("tasks", (1, depth_tile, rows, columns)))
    for depth, source, target in [(3, 5, 4), (1, 1, 1), (4, 7, 8)]:
        graph = kernel.task_graph(jagged(source), jagged(target), weights(depth))
        extents = (-(-depth // depth_tile), -(-target // rows), -(-source // columns))
        assert graph.num_tasks == extents[0] * extents[1] * extents[2]
        assert graph.critical_path == sum(extents) - 2
        assert graph.max_width == widest_plane(extents)
    given = jagged(3, 5, 1, 0), jagged(4, 2, 1, 3), weights(depth_tile + 1)
    for found, cells in zip(flat(kernel(*given)), flat(GRID_OF_TASKS(*given)), strict=True):
        np.testing.assert_array_equal(found, cells)


@pytest.mark.parametrize("tile", [None, (1, 1, 3), (1, 2, 3), (1, 2), (1, 5, 4)])
def test_negative_distances_are_skewed(tile: Any) -> None:
    given = whole(5, 0, 1, 9), ft.from_flat(np.arange(4, dtype=np.float32))
    found, plans = interpreted(pto.jit(smooth(tile)), given)
    assert "tasks" in plans
    for f, want in zip(found, flat(smooth(None)(*given)), strict=True):
        np.testing.assert_array_equal(f, want)


def test_a_skewed_nest_in_machine_code() -> None:
    kernel = pto.jit(smooth((1, 2, 3)))
    x, w = whole(5, 0, 1, 9), ft.from_flat(np.arange(4, dtype=np.float32))
    np.testing.assert_array_equal(kernel(x, w).leaves, smooth(None)(x, w).leaves)
    said = next(d.reason for d in kernel.compile(x, w).decisions if d.reason.startswith("tasks"))
    assert said.startswith("tasks: one task per tile of (1, 2, 3) cells, in program order, of the skewed loops j + k\n")


@pytest.mark.parametrize("turned", [False, True])
def test_large_leaves_in_tiles_sequences_and_planes_have_the_bits_of_cells(turned: bool) -> None:
    """Leaves of 4 KiB, for which a tile has code of its own where its conditions hold; with their axes exchanged."""

    def step(s: Any, e: Any, w: Any) -> Any:
        return (s * 5 + (pl.transpose(e) if turned else e) * w) % 97

    def program(plan: str, tile: Any) -> Callable[..., Any]:
        def layer(xs: Any, f: Any) -> Any:
            return ft.scan(lambda s, e: step(s, e, f), xs, initializer=ft.zeros(32, 32))

        return lambda x, w: ft.map(lambda xs: ft.fold(layer, w, initializer=xs), x, schedule=plan, tile=tile)

    draw = np.random.default_rng(1)
    x = ft.from_flat(draw.integers(0, 9, (6, 32, 32)).astype(np.float32), [[0, 5, 5, 6]])
    w = ft.from_flat(np.arange(1, 4, dtype=np.float32))
    want = program("auto", None)(x, w).leaves
    for plan, tile in (("tasks", (1, 2, 3)), ("tasks", (1, 1, 2)), ("sequential", None), ("wavefront", None)):
        np.testing.assert_array_equal(pto.jit(program(plan, tile))(x, w).leaves, want, err_msg=f"{plan} {tile}")


def test_sizes_are_those_of_the_outermost_call_that_gives_them() -> None:
    def layer(xs: Any, f: Any) -> Any:
        return ft.scan(lambda s, e: s + e * f, xs, initializer=np.float32(0), tile=4)

    kernel = pto.jit(lambda x, w: ft.fold(layer, w, initializer=x, schedule="tasks", tile=1))
    x, w = whole(9)[0], ft.from_flat(np.ones(2, np.float32))
    graph = kernel.task_graph(x, w)
    assert (graph.num_tasks, graph.critical_path) == (2 * 3, 2 + 3 - 1)
    other = pto.jit(lambda x, w: ft.fold(layer, w, initializer=x, schedule="tasks", tile=(2, 9)))
    assert other.task_graph(x, w).num_tasks == 1


@pytest.mark.parametrize(
    ("tile", "schedule", "reason"),
    [
        (2, "tasks", r"the length of the loop over `k` depends on `i`, so that tiles along `i` are not rectangles"),
        ((1, 1, 2, 2, 2), "tasks", r"`tile=` gives 5 sizes .* 4 loops: i, j, k, l"),
        ((1, 1, 2, 2), "wavefront", r"`tile=` makes tasks of several cells, which schedule='wavefront' has none of"),
        ((1, 1, 2, 2), "sequential", r"which schedule='sequential' has none of"),
    ],
)
def test_tiles_that_cannot_be_had(tile: Any, schedule: str, reason: str) -> None:
    with pytest.raises(ScheduleError, match=f"PTO-F150: schedule='{schedule}' cannot be had: .*{reason}"):
        pto.jit(grid(schedule, tile)).compile(jagged(2), jagged(2), weights(1))


@pytest.mark.parametrize("tile", [0, -1, True, (), (2, 0), "4", 1.5])
def test_tiles_that_are_none(tile: Any) -> None:
    def program(x: Any) -> Any:
        return ft.map(lambda e: e, x, tile=tile)

    with pytest.raises(ArgumentError, match="PTO-F044"):
        program(whole(3)[0])
    with pytest.raises(CompilationError, match="PTO-F127"):
        pto.jit(program).compile(whole(3)[0])


def test_loops_beside_a_nest_of_tasks_run_as_they_are() -> None:
    def program(x: Any, w: Any) -> Any:
        def layer(xs: Any, f: Any) -> Any:
            return ft.scan(lambda s, e: (s + e * f) % 97, xs, initializer=np.float32(0))

        def one(xs: Any) -> Any:
            return ft.fold(layer, w, initializer=ft.map(lambda e: e * 2, xs))

        return ft.map(one, x, schedule="tasks", tile=(1, 1, 2))

    given = whole(4, 0, 5), ft.from_flat(np.arange(1, 4, dtype=np.float32))
    found, plans = interpreted(pto.jit(program), given)
    assert plans == {"sequential", "tasks"}
    for f, want in zip(found, flat(program(*given)), strict=True):
        np.testing.assert_array_equal(f, want)


@pytest.mark.parametrize("tile", [1, 3, 9])
def test_a_fold_whose_state_is_a_number_in_tiles(tile: int) -> None:
    """Its memory is over no loop: one number, of which a cell is a row as of any other memory."""

    def number(x: Any) -> Any:
        return ft.fold(lambda s, e: s + e * 2, x, initializer=np.float32(1), tile=tile)

    def count(x: Any) -> Any:
        return ft.fold(lambda s, e: (e - s[0], s[1] + 1), x, initializer=(np.float32(3), np.int64(5)), tile=tile)

    for length in (0, 1, 7):
        x = ft.from_flat(np.arange(length, dtype=np.float32))
        for program in (number, count):
            assert pto.jit(program)(x) == program(x)
