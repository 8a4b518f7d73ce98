# SPDX-License-Identifier: MIT
"""A list between two parallel functions is computed where it is read, unless that costs more than it saves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl

H = 4


def rows(*lengths: int, leaf: tuple[int, ...] = (1, H)) -> ft.FractalTensor:
    leaves = np.random.default_rng(0).standard_normal((sum(lengths), *leaf)).astype(np.float32)
    return ft.from_flat(leaves, [np.cumsum([0, *lengths])])


def weights(count: int) -> ft.FractalTensor:
    return ft.from_flat((np.random.default_rng(1).standard_normal((count, H, H)) / 2).astype(np.float32))


def plus(a: Any, b: Any) -> Any:
    return a + b


def halved(s: Any, e: Any) -> Any:
    return s * 0.5 + e


def scores(k: Any, q: Any) -> tuple[Any, Any]:
    """A product of two values that differ from cell to cell."""
    p = pl.exp(q @ pl.transpose(k))
    return pl.sum(p, axis=1, keepdims=True), p @ k


def sums(x: Any) -> Any:
    return ft.map(lambda r: ft.reduce(plus, ft.map(lambda v: v * v, r), initializer=ft.zeros(1, H)), x)


def from_the_first(x: Any) -> Any:
    return ft.map(lambda r: ft.fold(halved, ft.map(lambda v: pl.tanh(v), r)), x)


def from_the_last(x: Any) -> Any:
    return ft.map(lambda r: ft.foldr(halved, ft.map(lambda v: pl.tanh(v), r)), x)


def partly_from_the_first(x: Any) -> Any:
    """One state starts as what the map gives, the other as an element of the list itself."""

    def both(s: Any, e: Any) -> Any:
        return s[0] * 0.5 + e[1], s[1] * 0.25 + e[0]

    return ft.map(lambda r: ft.reduce(both, ft.zip(ft.map(lambda v: v * v, r), r))[1], x)


def swapped(x: Any) -> Any:
    """Each state becomes what the other one was."""
    return ft.map(lambda r: ft.reduce(lambda s, e: (s[1] + e[0], s[0]), ft.zip(*ft.map(lambda v: (v * v, v), r)))[0], x)


def attention(x: Any) -> Any:
    def attend(q: Any, r: Any) -> Any:
        total, out = ft.reduce(lambda a, b: (a[0] + b[0], a[1] + b[1]), ft.zip(*ft.map(lambda k: scores(k, q), r)))
        return out / total

    return ft.map(lambda r: ft.map(attend, r, r=r), x)


def maps(x: Any) -> Any:
    def one(r: Any) -> Any:
        both = ft.map(lambda v: (v * v, pl.exp(v)), r)
        return ft.map(lambda p: p[0] + p[1], ft.zip(*ft.map(lambda p: (p[1], p[0] * 2.0), ft.zip(*both))))

    return ft.map(one, x)


def reversed_part(x: Any) -> Any:
    made = lambda r: ft.map(lambda v: v * v, r)  # noqa: E731
    return ft.map(lambda r: ft.scan(halved, ft.slice(ft.reverse(made(r)), 1), initializer=ft.zeros(1, H)), x)


def projected(x: Any, ws: Any) -> Any:
    """A layer is a scan of a map."""

    def layer(xs: Any, w: Any) -> Any:
        inputs = ft.map(lambda v: pl.maximum(v @ w, 0.0), xs)
        return ft.scan(lambda h, v: pl.tanh(h @ w + v), inputs, initializer=ft.zeros(1, H))

    return ft.map(lambda xs: ft.fold(layer, ws, initializer=xs), x)


def activated(x: Any, ws: Any) -> Any:
    """A layer is a map of a scan."""

    def layer(xs: Any, w: Any) -> Any:
        states = ft.scan(lambda h, v: pl.tanh(h @ w + v), xs, initializer=ft.zeros(1, H))
        return ft.map(lambda h: pl.maximum(h @ w, 0.0), states)

    return ft.map(lambda xs: ft.fold(layer, ws, initializer=xs), x)


def same(got: Any, want: Any) -> None:
    got, want = (v.leaves if isinstance(v, ft.FractalTensor) else v for v in (got, want))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def fusions(run: Any, *given: Any) -> list[tuple[bool, str]]:
    return [(d.applied, d.reason) for d in run.compile(*given).decisions if d.kind == "fusion"]


def tensors_made(text: str) -> int:
    """How many tensors of f32 a program allocates."""
    return sum("talloc" in line and "dtype=f32" in line for line in text.splitlines())


FUSED = [
    (sums, 1),
    (from_the_first, 1),
    (from_the_last, 1),
    (partly_from_the_first, 1),
    (swapped, 1),
    (attention, 1),
    (maps, 2),
    (reversed_part, 1),
]


@pytest.mark.parametrize(("program", "count"), FUSED)
@pytest.mark.parametrize("threads", [1, 2])
def test_no_list_between(program: Callable[[Any], Any], count: int, threads: int) -> None:
    run = pto.jit(program, cache=False, num_threads=threads)
    x = rows(3, 1, 4)
    for given in (x, rows(1), rows(2, 2)):
        same(run(given), program(given))
    assert [applied for applied, _ in fusions(run, x)] == [True] * count
    assert tensors_made(run.compile(x).ir("source")) == 1  # the result


@pytest.mark.parametrize("program", [projected, activated])
@pytest.mark.parametrize("plan", ["auto", "sequential", "wavefront", "tasks"])
def test_layers_with_maps_are_one_nest(program: Callable[..., Any], plan: str) -> None:
    def planned(x: Any, ws: Any) -> Any:
        return ft.map(lambda r: program(ft.repeat(r, 1), ws)[0], x, schedule=plan)

    program_of = program if plan == "auto" else planned
    run = pto.jit(program_of, cache=False)
    for given in (rows(3, 0, 4), rows(2)):
        same(run(given, weights(3)), program(given, weights(3)))
    if plan == "auto":
        found = [d.reason for d in run.compile(rows(3), weights(3)).decisions if d.kind == "schedule"]
        assert "distances over (i, j, k): (0, 0, 1), (0, 1, 0)" in found[0]


def test_empty_lists() -> None:
    run = pto.jit(sums, cache=False)
    same(run(rows(0, 2, 0)), sums(rows(0, 2, 0)))
    with pytest.raises(pto.errors.ShapeError, match=r"PTO-F190.*empty list without an initializer.*element \[1\]"):
        pto.jit(from_the_first, cache=False)(rows(2, 0))


def numbers(x: Any) -> Any:
    return ft.map(lambda r: ft.fold(plus, ft.map(lambda v: pl.exp(v), r), initializer=np.float32(0)), x)


def batched(x: Any, ws: Any) -> Any:
    """The scan is rows of batches, which the product in the map would not be."""

    def one(r: Any) -> Any:
        made = ft.map(lambda v: pl.exp(v @ pl.transpose(v)) * v, r)
        return ft.fold(lambda s, e: pl.tanh(s @ ws[0] + e), made, initializer=ft.zeros(1, H))

    return ft.map(one, x)


def divided(x: Any, ws: Any) -> Any:
    """No map around: the workers have the elements of the inner one."""

    def one(s: Any, w: Any) -> Any:
        made = ft.map(lambda v: pl.tanh(v @ w), x[0])
        return s + ft.reduce(plus, made)

    return ft.fold(one, ws, initializer=ft.zeros(1, H))


def iterated(x: Any, ws: Any) -> Any:
    """What is made depends on the state around, so that the loops are not a nest."""

    def one(s: Any, w: Any) -> Any:
        made = ft.map(lambda v: pl.tanh(v @ w + s), x[0])
        return ft.fold(halved, made, initializer=ft.zeros(1, H)) + s

    return ft.fold(one, ws, initializer=ft.zeros(1, H))


REFUSED = [
    (numbers, [rows(3, 2, leaf=())], "one of vectors"),
    (batched, [rows(3, 1, 4), weights(1)], "rows of batches"),
    (divided, [rows(3), weights(3)], "divided over the workers"),
    (iterated, [rows(3), weights(3)], "divided over the workers"),
]


@pytest.mark.parametrize(("program", "given", "reason"), REFUSED)
def test_two_loops_are_better(program: Callable[..., Any], given: list[Any], reason: str) -> None:
    run = pto.jit(program, cache=False)
    same(run(*given), program(*given))
    ((applied, said),) = fusions(run, *given)
    assert not applied and reason in said


def read_twice(x: Any) -> Any:
    def one(r: Any) -> Any:
        made = ft.map(lambda v: v * v, r)
        total = ft.fold(plus, made, initializer=ft.zeros(1, H))
        return ft.fold(halved, made, initializer=total)

    return ft.map(one, x)


def neighbours(x: Any) -> Any:
    made = lambda r: ft.map(lambda v: v * v, r)  # noqa: E731
    return ft.map(lambda r: (lambda m: ft.map(lambda p: p[0] - p[1], ft.zip(m, ft.reverse(m))))(made(r)), x)


def returned(x: Any) -> Any:
    def one(r: Any) -> Any:
        made = ft.map(lambda v: v * v, r)
        return made, ft.fold(plus, made, initializer=ft.zeros(1, H))

    return ft.map(one, x)


def one_for_all(x: Any) -> Any:
    def one(r: Any) -> Any:
        made = ft.map(lambda v: v * v, r)
        return ft.map(lambda v: v + made[0], r)

    return ft.map(one, x)


def computed_index(x: Any) -> Any:
    def one(r: Any) -> Any:
        made = ft.map(lambda v: v * v, r)
        return ft.map(
            lambda p: p[1] + made[p[0] - pl.minimum(p[0], pl.cast(pl.max(p[1]) * 0.0, pl.i64))], ft.enumerate(r)
        )

    return ft.map(one, x)


def loop_in_a_branch(x: Any, k: pl.i64) -> Any:
    def both(v: Any, r: Any) -> Any:
        made = ft.map(lambda u: u * v, r)
        total = v
        if k > 1:
            total = ft.fold(halved, made, initializer=v)
        return ft.fold(plus, made, initializer=total)

    return ft.map(lambda r: ft.map(both, r, r=r), x)


@pytest.mark.parametrize("k", [1, 2])
def test_reads_in_branches_are_seen(k: int) -> None:
    x = rows(3, 1, 4)
    same(pto.jit(loop_in_a_branch, cache=False)(x, k), loop_in_a_branch(x, k))


@pytest.mark.parametrize("program", [read_twice, neighbours, returned, one_for_all, computed_index])
def test_lists_that_others_read_stay(program: Callable[[Any], Any]) -> None:
    run = pto.jit(program, cache=False)
    got, want = run(rows(3, 1, 4)), program(rows(3, 1, 4))
    for g, w in zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]:
        same(g, w)
    assert not any(applied for applied, _ in fusions(run, rows(3)))


def test_extents_that_the_first_loop_computes_are_told() -> None:
    def program(x: Any) -> Any:
        return ft.map(lambda r: ft.map(lambda p: pl.sum(p), ft.map(lambda k: pl.zeros([k, 4]), r)), x)

    with pytest.raises(pto.errors.CompilationError, match="PTO-F109"):
        pto.jit(program, cache=False)(ft.from_flat(np.arange(1, 4), [np.array([0, 2, 3])]))

    def before(x: Any, n: pl.i64) -> Any:
        made = lambda r: ft.map(lambda k: pl.zeros([n * 2, 4]) + pl.cast(k, pl.f32), r)  # noqa: E731
        return ft.map(lambda r: ft.reduce(plus, made(r)), x)

    x = ft.from_flat(np.arange(1, 4), [np.array([0, 2, 3])])
    same(pto.jit(before, cache=False)(x, 3), before(x, 3))
