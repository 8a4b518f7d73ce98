# SPDX-License-Identifier: MIT
"""Nests of parallel functions as kernels, in every plan, against the same program run eagerly."""

from __future__ import annotations

import itertools
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from pto_jit.errors import ArgumentError, CompilationError, LaunchError, ScheduleError, ShapeError, TypeMismatchError

RNG = np.random.default_rng(7)
H = 4


def jagged(*lengths: int, rows: int = 1) -> ft.FractalTensor:
    leaves = RNG.standard_normal((sum(lengths), rows, H)).astype(np.float32)
    return ft.from_flat(leaves, [np.cumsum([0, *lengths])])


def deeper(nested: list[list[int]]) -> ft.FractalTensor:
    inner = [n for row in nested for n in row]
    leaves = RNG.standard_normal((sum(inner), 1, H)).astype(np.float32)
    return ft.from_flat(leaves, [np.cumsum([0, *map(len, nested)]), np.cumsum([0, *inner])])


def weights(depth: int) -> ft.FractalTensor:
    return ft.from_flat((RNG.standard_normal((depth, H, H)) / 2).astype(np.float32))


def same(got: Any, want: Any) -> None:
    if isinstance(want, tuple):
        for a, b in zip(got, want, strict=True):
            same(a, b)
    elif isinstance(want, ft.FractalTensor):
        assert got.depth == want.depth
        for a, b in zip(got.offsets, want.offsets, strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(got.leaves, want.leaves, atol=1e-5)
    else:
        np.testing.assert_allclose(got, want, atol=1e-5)


def check(program: Callable[..., Any], *given: Any) -> None:
    same(pto.jit(program)(*given), program(*given))


def schedules_of(program: Callable[..., Any], *given: Any, wanted: Any = None, **options: Any) -> list[str]:
    """Why nests of a program run as they do; its results are those of the program run eagerly, and the same bits with
    one thread and two.

    wanted: these results, where the program has so many cells that another way to compute them saves minutes.
    """
    kernels = [pto.jit(num_threads=n, **options)(program).compile(*given) for n in (1, 2)]
    one, two = (kernel(*given) for kernel in kernels)
    same(two, program(*given) if wanted is None else wanted)
    for a, b in zip(*([r] if not isinstance(r, tuple) else r for r in (one, two)), strict=True):
        np.testing.assert_array_equal(a.leaves, b.leaves)
    return [d.reason for d in kernels[0].decisions if d.kind == "schedule"]


ZERO = ft.zeros(1, H)


def cell(h: Any, x: Any, w: Any) -> Any:
    return pl.tanh(h @ w + x)


# -- each function -------------------------------------------------------------------------------------------------


def test_maps_of_depth_three() -> None:
    check(
        lambda x: ft.map(lambda a: ft.map(lambda b: ft.map(lambda e: pl.exp(e) * 2, b), a), x),
        deeper([[2, 0, 3], [], [1]]),
    )


@pytest.mark.parametrize("name", ["fold", "foldr", "scan", "scanr"])
def test_states(name: str) -> None:
    function = getattr(ft, name)

    def program(x: Any) -> Any:
        return ft.map(lambda row: function(lambda s, e: s * 0.5 + e, row, initializer=ft.zeros(1, H)), x)

    check(program, jagged(3, 0, 1, 4))


def test_scans_without_an_initializer_begin_with_the_first_element() -> None:
    check(lambda x: ft.map(lambda row: ft.scan(lambda s, e: s * 0.5 + e, row), x), jagged(3, 0, 1))


def test_states_that_are_tuples_change_places() -> None:
    def program(x: Any) -> Any:
        return ft.map(lambda row: ft.scan(lambda s, e: (s[1] + e, s[0]), row, initializer=(ft.zeros(1, H),) * 2), x)

    check(program, jagged(4, 0, 2))


def test_a_number_takes_the_type_of_what_it_meets() -> None:
    check(lambda x: ft.map(lambda row: ft.fold(lambda s, e: s + pl.sum(e), row, initializer=0.0), x), jagged(3, 1, 2))


def test_reductions_and_closures() -> None:
    def program(x: Any, w: Any) -> Any:
        scale = w[0]

        def body(row: Any) -> Any:
            return ft.reduce(lambda a, b: a + b, ft.map(lambda e: e @ scale, row))

        return ft.map(body, x)

    check(program, jagged(3, 1, 2), weights(2))


# -- access --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "access",
    [
        lambda row: ft.reverse(row),
        lambda row: ft.slice(row, 1, -1),
        lambda row: row[::2],
        lambda row: ft.slice(row, None, None, -2),
        lambda row: ft.join(row, ft.reverse(row)),
        lambda row: ft.repeat(row, 2),
        lambda row: ft.slide(row, 3, padding=1),
        lambda row: ft.slide(row, 2, stride=2, dilation=2),
        lambda row: ft.shifted_slide(row, 3),
        lambda row: ft.product(row, ft.reverse(row)),
        lambda row: ft.zip(*ft.zip(row, ft.reverse(row))),
        lambda row: ft.map(lambda p: p[1] * p[0], ft.enumerate(row)),
        lambda row: ft.map(lambda s: ft.cat(s, axis=1), ft.slide(row, 2)),
    ],
    ids=[
        "reverse",
        "slice",
        "step",
        "back",
        "join",
        "repeat",
        "slide",
        "dilated",
        "shifted",
        "product",
        "unzip",
        "enumerate",
        "cat",
    ],
)
def test_access_operations(access: Callable[[Any], Any]) -> None:
    check(lambda x: ft.map(access, x), jagged(4, 0, 3))


def test_a_gather_by_an_argument() -> None:
    index = ft.from_flat(np.array([2, 0, 2, 1]))
    check(lambda x, i: ft.map(lambda e: e + 1, ft.gather(x, i)), ft.from_flat(jagged(3).leaves), index)


# -- plans ---------------------------------------------------------------------------------------------------------


def stacked(plan: str) -> Callable[..., Any]:
    def layer(xs: Any, w: Any) -> Any:
        return ft.scan(cell, xs, initializer=ft.zeros(1, H), w=w)

    return lambda x, w: ft.map(lambda xs: ft.fold(layer, w, initializer=xs), x, schedule=plan)


def grid(plan: str, tile: Any = None) -> Callable[..., Any]:
    """Layers of a grid: the loops are (pair, layer, target, source)."""

    def step(state: Any, cur: Any, w: Any) -> Any:
        above, (x, y) = cur
        return pl.tanh(above @ w + x), pl.tanh(state[1] @ w + y + above)

    def row(state: Any, cur: Any, w: Any) -> Any:
        return ft.scan(step, ft.zip(state[0], ft.zip(*cur)), initializer=(ft.zeros(1, H),) * 2, w=w)

    def layer(state: Any, w: Any) -> Any:
        zeros = ft.repeat(ft.zeros(1, H), len(state[0][0]))
        return ft.zip(*ft.scan(row, state, initializer=(zeros, zeros), w=w))

    def pair(st: Any, w: Any) -> Any:
        return ft.zip(*ft.fold(layer, w, initializer=ft.zip(*ft.product(*st))))

    return lambda a, b, w: ft.map(pair, ft.zip(a, b), w=w, schedule=plan, tile=tile)


GRID_OF_TASKS = pto.jit(grid("tasks"))


@pytest.mark.parametrize("plan", ["sequential", "wavefront", "tasks", "auto"])
def test_stacked_layers(plan: str) -> None:
    check(stacked(plan), jagged(4, 0, 1, 6), weights(3))


@pytest.mark.parametrize("depth", [0, 1])
def test_no_layer_gives_the_input(depth: int) -> None:
    check(stacked("wavefront"), jagged(2, 0, 3), weights(depth))


@pytest.mark.parametrize("plan", ["sequential", "wavefront"])
def test_grids(plan: str) -> None:
    check(grid(plan), jagged(3, 5, 1, 0), jagged(4, 2, 1, 3), weights(2))


def widest_plane(extents: Sequence[int]) -> int:
    """The most points of a box whose indices have one sum."""
    return max(Counter(map(sum, itertools.product(*map(range, extents)))).values())


def test_the_task_graph_of_a_grid_is_the_closed_form() -> None:
    for depth, source, target in [(2, 3, 2), (3, 5, 4), (1, 1, 1)]:
        graph = GRID_OF_TASKS.task_graph(jagged(source), jagged(target), weights(depth))
        assert graph.num_tasks == depth * source * target
        assert graph.critical_path == depth + source + target - 2
        extents = (depth, source, target)
        assert graph.max_width == widest_plane(extents)


def test_tasks_of_grids_of_any_lengths() -> None:
    given = jagged(3, 5, 1, 0), jagged(4, 2, 1, 3), weights(2)
    same(GRID_OF_TASKS(*given), grid("auto")(*given))


def test_the_task_graph_of_a_batch_has_the_tasks_of_all_pairs() -> None:
    pairs = [(5, 4), (2, 7), (6, 6), (1, 1)]
    graph = GRID_OF_TASKS.task_graph(jagged(*(s for s, _ in pairs)), jagged(*(t for _, t in pairs)), weights(3))
    assert graph.num_tasks == sum(3 * s * t for s, t in pairs)
    assert graph.critical_path == max(3 + s + t - 2 for s, t in pairs)


def test_a_wavefront_of_cells_that_cannot_be_rows() -> None:
    """The product of two things that differ from cell to cell: the plane is a parallel loop over cells."""

    def step(state: Any, x: Any) -> Any:
        return pl.tanh(state + x @ pl.transpose(x))

    def program(x: Any, n: Any) -> Any:
        def layer(xs: Any, _: Any) -> Any:
            return ft.scan(step, xs, initializer=ft.zeros(H, H))

        return ft.map(lambda xs: ft.fold(layer, n, initializer=xs), x, schedule="wavefront")

    check(program, jagged(3, 0, 4, rows=H), ft.from_flat(np.zeros(2)))


@pytest.mark.parametrize("plan", ["wavefront", "tasks"])
def test_states_that_are_numbers(plan: str) -> None:
    """Leaves that are numbers."""

    def program(x: Any, w: Any) -> Any:
        def layer(xs: Any, f: Any) -> Any:
            return ft.scan(lambda s, e: s * f + e, xs, initializer=np.float32(1))

        return ft.map(lambda xs: ft.fold(layer, w, initializer=xs), x, schedule=plan)

    x = ft.from_flat(RNG.standard_normal(9).astype(np.float32), [[0, 4, 4, 5, 9]])
    check(program, x, ft.from_flat(np.array([0.5, -0.25, 2], np.float32)))


def test_a_fold_over_time_leaves_its_last_state() -> None:
    def program(x: Any, w: Any) -> Any:
        return ft.map(lambda xs: ft.fold(cell, xs, initializer=ft.zeros(1, H), w=w[0]), x)

    check(program, jagged(3, 0, 1, 4), weights(1))


def test_an_unknown_schedule_and_one_that_cannot_be_had() -> None:
    x = jagged(2, 1)
    with pytest.raises(ScheduleError, match=r"PTO-F150.*there is more than one loop, or work between loops"):
        total = lambda s, r: s + ft.reduce(pl.maximum, r)  # noqa: E731
        pto.jit(lambda x: ft.fold(total, x, init=ft.zeros(1, H), schedule="wavefront"))(x)
    with pytest.raises(CompilationError, match="PTO-F121"):
        pto.jit(lambda x: ft.map(lambda r: r, x, schedule="fastest"))(x)


@pytest.mark.parametrize("plan", ["wavefront", "tasks"])
def test_without_states_there_is_one_plane_and_tasks_do_not_wait(plan: str) -> None:
    program = lambda x: ft.map(lambda r: ft.map(lambda e: e + 1, r), x, schedule=plan)  # noqa: E731
    x = jagged(2, 0, 3)
    check(program, x)
    compiled = pto.jit(program).compile(x)
    assert [d.reason.split(":")[0] for d in compiled.decisions if d.kind == "schedule"] == [plan]
    if plan == "tasks":
        graph = pto.jit(program).task_graph(x)
        assert (graph.num_tasks, graph.num_edges, graph.critical_path) == (5, 0, 1)


FOLDS: dict[str, Callable[[Any, Any, str], Any]] = {
    "last states": lambda x, w, plan: ft.map(
        lambda xs: ft.fold(cell, xs, init=ft.zeros(1, H), w=w), x, schedule=plan
    ),
    "used further": lambda x, w, plan: ft.map(
        lambda xs: ft.fold(cell, xs, init=ft.zeros(1, H), w=w) @ w + len(xs), x, schedule=plan
    ),
    "of both ends": lambda x, w, plan: ft.map(
        lambda xs: ft.cat(*(f(cell, xs, init=ft.zeros(1, H), w=w) for f in (ft.fold, ft.foldr))), x, schedule=plan
    ),
    "a pair of states": lambda x, w, plan: ft.map(
        lambda xs: ft.fold(lambda s, e: (s[0] + e, s[1] * s[0]), xs, init=(ft.zeros(1, H), 1.0 + ft.zeros(1, H))),
        x,
        schedule=plan,
    ),
    "without an initializer": lambda x, w, plan: ft.map(
        lambda xs: ft.fold(lambda s, e: s @ w + e, ft.join(xs, xs)), ft.filter(lambda r: len(r) > 0, x), schedule=plan
    ),
}


@pytest.mark.parametrize("plan", ["sequential", "wavefront", "tasks", "auto"])
@pytest.mark.parametrize("name", FOLDS)
def test_folds_of_many_lists_are_a_nest_whatever_is_done_with_their_last_states(name: str, plan: str) -> None:
    x, w = jagged(3, 0, 1, 4), RNG.standard_normal((H, H)).astype(np.float32) / 2
    program = lambda x, w: FOLDS[name](x, w, plan)  # noqa: E731
    check(program, x, w)
    made = [d.reason.split(":")[0] for d in pto.jit(program).compile(x, w).decisions if d.kind == "schedule"]
    assert plan in ("auto", *made)


def test_many_folds_with_products_are_rows() -> None:
    x, w = ft.from_flat(np.ones((8, 1, 64), np.float32), [[0, 3, 3, 4, 8]]), np.ones((64, 64), np.float32)
    encoder = lambda x, w: ft.map(lambda xs: ft.fold(cell, xs, init=ft.zeros(1, 64), w=w), x)  # noqa: E731
    compiled = pto.jit(encoder).compile(x, w)
    (decision,) = (d for d in compiled.decisions if d.kind == "schedule")
    assert decision.reason.startswith("wavefront: planes of hyperplane (0, 1) over (i, j), cells over i as rows")


def test_extents_that_no_element_decides_are_computed_before_the_nest() -> None:
    x, w = jagged(2, 0, 3), np.ones((3, 4), np.float32)
    check(lambda x, w: ft.map(lambda r: pl.full([w.shape[0] * 2, 4], 2.0, pl.f32), x), x, w)
    check(lambda x, w: ft.map(lambda r: ft.map(lambda e: pl.zeros([w.shape[0] - 1, 1], pl.f32) + e[0, 0], r), x), x, w)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: ft.map(lambda r: ft.stack(r), x),
        lambda x: ft.map(lambda r: pl.zeros([len(r), 4], pl.f32), x),
        lambda x: ft.map(lambda e: pl.zeros([e[0] + 1, 4], pl.f32), ft.enumerate(x)),
        lambda x: ft.map(lambda r: ft.fold(operator.add, r, init=pl.zeros([len(r), H], pl.f32)), x),
    ],
)
def test_elements_whose_extents_differ_are_refused(program: Any) -> None:
    with pytest.raises(CompilationError, match="PTO-F109: the extents of a tensor in a list are computed in the loop"):
        pto.jit(program)(jagged(2, 0, 3))


def branching(e: Any, others: Any) -> Any:
    y = e * 2
    if e[0, 0] > 0:
        y = y + others[0] if e[0, 1] > 0 else y - others[1]
    return y


def test_a_branch_decided_by_data_reads_lists() -> None:
    check(
        lambda x, w: ft.map(lambda r: ft.map(lambda e: branching(e, w), r), x),
        jagged(6, 3),
        ft.from_flat(jagged(2).leaves),
    )


def test_checks_do_not_stand_in_the_way_of_a_wavefront() -> None:
    def program(x: Any, y: Any, w: Any, u: Any) -> Any:
        def layer(xs: Any, p: Any) -> Any:
            return ft.scan(lambda h, e: pl.tanh(h @ p[0] + e @ p[1]), xs, initializer=ft.zeros(1, H))

        def one(pair: Any) -> Any:
            first = ft.map(lambda q: q[0] + q[1], ft.zip(*pair))
            return ft.fold(layer, ft.zip(w, u), initializer=first)

        return ft.map(one, ft.zip(x, y), schedule="wavefront")

    given = jagged(4, 0, 1, 6), jagged(4, 0, 1, 6), weights(2), weights(2)
    check(program, *given)
    plans = [d.reason for d in pto.jit(program).compile(*given).decisions if d.kind == "schedule"]
    assert any(p.startswith("wavefront") for p in plans)
    with pytest.raises((LaunchError, ShapeError), match="PTO-F190"):
        pto.jit(program)(given[0], jagged(4, 1, 0, 6), *given[2:])


# -- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (lambda x: ft.scan(lambda s, e: (s, s), x, initializer=ft.zeros(1, H)), "F124"),
        (lambda x: ft.scan(lambda s, e: e[:, :2], x, initializer=ft.zeros(1, H)), "F124"),
        (lambda x: ft.map(3, x), "F120"),  # type: ignore[arg-type]
        (lambda x: ft.filter(lambda e: e[0, 0], x), "F129"),
        (lambda x: ft.map(lambda e: "text", x), "F102"),
        (lambda x: ft.zip(x, x), "F111"),
        (lambda x: ft.map(lambda e: e, 5), "F100"),
        (lambda x: x, "F110"),
    ],
)
def test_what_is_refused_has_a_code(program: Callable[..., Any], code: str) -> None:
    with pytest.raises((TypeMismatchError, CompilationError), match=f"PTO-{code}"):
        pto.jit(program)(ft.from_flat(jagged(3).leaves))


def test_lists_of_the_surrounding_code_are_named_as_such() -> None:
    x = ft.from_flat(jagged(3).leaves)
    z = ft.zip(x, x)
    programs: list[Callable[..., Any]] = [
        lambda y: ft.map(lambda e: e[0], ft.zip(x, y)),
        lambda y: ft.map(lambda e: e[0], z),
        lambda y: ft.map(lambda e: x[e[0]] + z[e[0]][0], ft.enumerate(y)),
    ]
    for program in programs:
        with pytest.raises(TypeMismatchError, match=r"PTO-F100.* of the surrounding code") as info:
            pto.jit(program)(x)
        assert info.value.hint == "pass FractalTensors to the kernel, and zip them there: `ft.zip(a, b)`"
    for argument in (z, (1, z)):
        with pytest.raises(ArgumentError, match=r"PTO-A008.*zipped list") as refused:
            pto.jit(lambda y: ft.map(lambda e: e[0], y))(argument)
        assert "zip them there" in str(refused.value)


def test_lists_of_different_lengths_stop_the_program() -> None:
    kernel = pto.jit(lambda x, y: ft.map(lambda p: p[0] + p[1], ft.zip(x, y)))
    a, b = ft.from_flat(jagged(3).leaves), ft.from_flat(jagged(2).leaves)
    with pytest.raises((LaunchError, ShapeError), match="PTO-F190"):
        kernel(a, b)
    same(kernel(a, a), ft.map(lambda e: e + e, a))


def test_a_fold_of_several_states_outside_of_other_functions() -> None:
    def program(x: Any) -> Any:
        return ft.fold(lambda s, e: (s[0] + e, s[1] * 0.5 + s[0]), x, initializer=(ft.zeros(1, H), ft.zeros(1, H) + 1))

    check(program, jagged(4)[0])


def test_arithmetic_of_a_list_names_what_the_user_wrote() -> None:
    for program in (lambda x: x + 1, lambda x: 2 * x, lambda x: -ft.reverse(x), lambda x: ft.map(lambda e: e, x) < 3):
        with pytest.raises(TypeMismatchError, match=r"PTO-F107: `.*` of a FractalTensor of depth 2"):
            pto.jit(program).compile(jagged(2, 1))


def test_captured_arrays_of_one_number_are_states() -> None:
    start = np.full((1, H), 2, np.float32)
    check(lambda x: ft.map(lambda row: ft.scan(lambda s, e: s * 0.5 + e, row, initializer=start), x), jagged(2, 0, 3))
    start[0, 1] = 3
    with pytest.raises(TypeMismatchError, match=r"PTO-F102: the initializer of ft.scan is an array of float32"):
        pto.jit(lambda x: ft.scan(lambda s, e: s + e, x, initializer=start)).compile(jagged(2)[0])


def test_an_explanation_draws_the_nest_in_every_plan() -> None:
    kinds = ["i < len(x): parallel", "j < len(w): carry", "read x[i][k] if j == 0 else h1[i, j - 1, k]", "read w[j]", "write h1[i, j, k]", "distances over (i, j, k): (0, 0, 1), (0, 1, 0)"]
    for plan in ("sequential", "wavefront", "tasks"):

        def program(x: Any, w: Any, plan: pl.constexpr = plan) -> Any:
            def layer(xs: Any, u: Any) -> Any:
                return ft.scan(cell, xs, initializer=ft.zeros(1, H), w=u)

            return ft.map(lambda xs: ft.fold(layer, w, initializer=xs), x, schedule=plan)

        text = str(pto.jit(program).explain(jagged(2, 1), weights(2)))
        lines = [line.partition("│")[2].strip() for line in text.splitlines()]
        assert f"applied: {plan}: " in text and all(k in lines for k in kinds)


def test_a_nest_that_is_not_perfect_is_drawn_as_it_is() -> None:
    def program(x: Any) -> Any:
        total = lambda xs: ft.fold(lambda s, v: s + v, xs, initializer=ft.zeros(1, 256))  # noqa: E731
        return ft.map(lambda xs: ft.map(lambda e: e * total(xs), xs), x)

    x = ft.from_flat(np.ones((3, 1, 256), np.float32), [[0, 2, 3]])  # cells of fewer elements would be rows
    (decision,) = [d for d in pto.jit(program).compile(x).decisions if d.kind == "schedule"]
    assert "there is more than one loop, or work between loops" in decision.reason
    assert "\n    k < len(x[i]): carry\n" in decision.reason


def test_parallel_loops_of_nests_are_proven_by_what_made_them() -> None:
    def layer(xs: Any, u: Any) -> Any:
        return ft.scan(cell, xs, initializer=ft.zeros(1, H), w=u)

    def reasons(plan: str) -> list[str]:
        program = lambda x, w: ft.map(lambda xs: ft.fold(layer, w, initializer=xs), x, schedule=plan)  # noqa: E731
        kernel = pto.jit(program).compile(jagged(2, 1), weights(2))
        return [d.reason for d in kernel.decisions if d.kind == "parallel"]

    assert set(reasons("sequential")) == {
        "proven: no state goes from one iteration to the next, and each writes elements of its own"
    }
    assert "proven: by the distances (0, 0, 1), (0, 1, 0): no cell of a plane reads another one" in reasons("wavefront")


def test_what_bodies_write_themselves_is_not_proven_by_their_loop() -> None:
    def once(e: Any, out: Any) -> Any:
        out[0:1, :] = e
        return e * 2

    def program(x: Any, out: pl.Tensor) -> Any:
        return ft.map(once, x, out=out)

    with pytest.raises(ScheduleError, match="two iterations of the parallel loop over `i` write `out"):
        pto.jit(program).compile(jagged(3)[0], np.zeros((2, H), np.float32))


def test_states_are_read_where_they_are_kept() -> None:
    """Bodies that read parts of the state, its axes exchanged, or two states that change places."""
    bodies: list[Callable[[Any, Any], Any]] = [
        lambda s, e: ft.cat(s[:, 1:], e[:, :1]),
        lambda s, e: ft.cat(s[:, 2:], s[:, :2]) + e,
        lambda s, e: s @ (pl.transpose(e) @ e) + s,
        lambda s, e: pl.transpose(pl.transpose(s) * 2.0) + e,
        lambda s, e: pl.maximum(s, pl.sum(s, axis=1, keepdims=True)) - e,
        lambda s, e: s if pl.max(e) > 0.5 else e - s,
    ]
    x = jagged(4, 1, 3)
    for body in bodies:

        def program(x: Any, body: Any = body) -> Any:
            return ft.map(lambda xs: ft.fold(body, xs, initializer=ft.zeros(1, H)), x)

        same(pto.jit(lambda x, program=program: program(x), cache=False)(x), program(x))

    def exchanged(x: Any) -> Any:
        def body(s: Any, e: Any) -> Any:
            return s[1], s[0] + e

        return ft.map(lambda xs: ft.fold(body, xs, initializer=(ft.zeros(1, H), ft.zeros(1, H))), x)

    kernel = pto.jit(exchanged, cache=False)
    same(kernel(x), exchanged(x))


def test_a_state_is_not_copied_before_it_is_used() -> None:
    def program(x: Any) -> Any:
        return ft.map(lambda xs: ft.fold(lambda s, e: s * 0.5 + e, xs, initializer=ft.zeros(1, H)), x)

    text = pto.jit(program).compile(jagged(2, 1)).ir("fused")
    inside = text.split("FOR %j")[1].split("ENDFOR")[0]
    assert "tcopy" not in inside


def test_nests_are_drawn_in_the_words_of_the_program() -> None:
    """Lists in containers, from behind, of three levels, and tensors beside them."""

    def drawn(program: Any, *args: Any) -> list[str]:
        (decision,) = [d for d in pto.jit(program).compile(*args).decisions if d.kind == "schedule"]
        return [line.strip() for line in decision.reason.splitlines()[1:]]

    def program(d: Any, w: Any) -> Any:
        return ft.map(lambda xs: ft.scan(lambda s, v: s * w[0, 0] + v, xs[::-1], initializer=0.0), d["k"])

    x = ft.from_list([[1.0, 2.0], [3.0]])
    lines = drawn(program, {"k": x}, np.ones((3, 3)))
    assert {"i < len(d['k']): parallel", "j < len(d['k'][i]): carry", "read d['k'][i][-j - 1]"} <= {*lines}

    def deep(x: Any) -> Any:
        return ft.map(lambda rows: ft.map(lambda row: ft.map(lambda e: e + 1.0, row), rows), x)

    lines = drawn(deep, ft.from_list([[[1.0], [2.0, 3.0]], [[4.0]]]))
    assert {"i < len(x): parallel", "j < len(x[i]): parallel", "k < len(x[i][j]): parallel",
            "read x[i][j][k]"} <= {*lines}  # fmt: skip
    assert not any("%" in line for line in lines)

    lines = drawn(lambda w: ft.map(lambda u: u * 2, ft.slices(w, 0)), np.ones((4, 3), np.float32))
    assert lines[0] == "i < w.shape[0]: parallel"


@pytest.mark.parametrize("count", [3, 1, 0])
def test_lists_made_by_views_are_joined_with_others(count: int) -> None:
    x = ft.from_flat(RNG.standard_normal((count, 1, H)).astype(np.float32))
    check(lambda x: ft.join(ft.repeat(x, 2), ft.map(lambda e: x, x)), x)
    check(lambda x: ft.join(ft.map(lambda e: ft.reverse(x), x), ft.slide(x, 2)), x)
    pairs = lambda x: ft.join(ft.repeat(ft.zip(x, x), 2), ft.map(lambda e: ft.zip(x, ft.reverse(x)), x))  # noqa: E731
    check(lambda x: ft.map(lambda z: ft.map(lambda p: p[0] - p[1], z), pairs(x)), x)
