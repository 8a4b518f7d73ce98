# SPDX-License-Identifier: MIT
"""Random nests whose bodies compute something of their inputs alone, or start from it, in every plan."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from pto_jit.errors import PtoError, ScheduleError
from tests.differential.rounds import share
from tests.fractal.compile.test_random import flat, interpreted

H = 4


def small(v: Any) -> Any:
    """Whole numbers, so that results are equal bit for bit in every plan."""
    return v % 97.0


# of an element, a matrix and a position
INPUTS: list[Callable[[Any, Any, Any], Any]] = [
    lambda e, w, i: small(e @ w + 1.0),
    lambda e, w, i: small(small(e @ w) @ w + e),
    lambda e, w, i: small(e * 3.0 + pl.f32(i)),
    lambda e, w, i: small(pl.sum(e @ w) + e),
    lambda e, w, i: small(ft.cat(e, e) @ ft.cat(w, w, axis=0)),
    lambda e, w, i: e,
]
CELLS: list[Callable[[Any, Any, Any, Any], Any]] = [
    lambda s, p, e, w: small(s * 5.0 + p * 3.0 + e),
    lambda s, p, e, w: small(s @ w + p),
    lambda s, p, e, w: small(s + p @ w + p * e),
]
SHAPES = ("scan", "fold", "layers", "two", "grid", "grid")


def random_program(seed: int) -> tuple[Callable[[str], Callable[..., Any]], list[Any], str]:
    """A program by its plan, its arguments, and what it is."""
    rng = random.Random(seed)
    made, other, cell = rng.choice(INPUTS), rng.choice(INPUTS), rng.choice(CELLS)
    shape, scan = rng.choice(SHAPES), rng.choice([ft.scan, ft.scanr])
    zero = lambda: ft.zeros(1, H)  # noqa: E731
    start = rng.choice([lambda e, w, i: zero(), lambda e, w, i: zero() + pl.f32(i), lambda e, w, i: e, other])

    def scanned(xs: Any, w: Any, i: Any) -> Any:
        body = lambda s, c: cell(s, made(c[1], w, c[0]), c[1], w)  # noqa: E731
        return scan(body, ft.enumerate(ft.reverse(xs)), initializer=start(zero() + pl.f32(i), w, i))

    def folded(xs: Any, w: Any) -> Any:
        return other(ft.fold(lambda s, c: cell(s, made(c, w, 0), c, w), xs, initializer=zero()), w, 1)

    def layer(xs: Any, e: Any, w: Any) -> Any:
        k, u = e
        return scan(lambda s, c: cell(s, made(c, w, k), c, u), xs, initializer=zero() + pl.f32(k))

    def both(s: Any, c: Any, w: Any) -> Any:
        return cell(s[0], made(c, w, 1), s[1], w), small(s[1] + other(c, w, 3))

    def grid(p: Any, w: Any) -> Any:
        def row(before: Any, e: Any) -> Any:
            i, e = e
            body = lambda s, c: cell(s, made(c[1], w, i), small(c[0] + e), w)  # noqa: E731
            return scan(body, ft.zip(before, p[1]), initializer=start(e, w, i))

        return ft.fold(row, ft.enumerate(p[0]), initializer=ft.map(lambda e: other(e, w, 1), p[1]))

    def program(plan: str) -> Callable[..., Any]:
        return {
            "scan": lambda x, y, u, w: ft.map(lambda p: scanned(p[1], w, p[0]), ft.enumerate(x), schedule=plan),
            "fold": lambda x, y, u, w: ft.map(lambda xs: folded(xs, w), x, schedule=plan),
            "layers": lambda x, y, u, w: ft.map(
                lambda xs: ft.fold(layer, ft.enumerate(u), initializer=xs, w=w), x, schedule=plan
            ),
            "two": lambda x, y, u, w: ft.map(
                lambda xs: ft.scan(both, xs, initializer=(zero(), zero() + 1.0), w=w)[0], x, schedule=plan
            ),
            "grid": lambda x, y, u, w: ft.map(lambda p: grid(p, w), ft.zip(x, y), schedule=plan),
        }[shape]

    draw, count = np.random.default_rng(seed), rng.randrange(1, 4)

    def lists() -> Any:
        lengths = [rng.randrange(5) for _ in range(count)]
        leaves = draw.integers(0, 97, (sum(lengths), 1, H)).astype(np.float32)
        return ft.from_flat(leaves, [np.cumsum([0, *lengths])])

    weights = draw.integers(0, 5, (1 + rng.randrange(3), H, H)).astype(np.float32)
    return program, [lists(), lists(), ft.from_flat(weights[1:].copy()), weights[0].copy()], f"seed {seed}: {shape}"


def test_what_is_computed_of_inputs_is_the_same_in_all_plans() -> None:
    count = share(16)
    taken: set[str] = set()
    for seed in range(count):
        program, given, said = random_program(seed)
        try:
            want = flat(program("auto")(*given))
        except PtoError:  # an empty list whose type a trial does not find out
            continue
        for plan in ("auto", "sequential", "wavefront", "tasks"):
            try:
                found, plans = interpreted(pto.jit(program(plan)), given)
            except ScheduleError:
                assert plan in ("wavefront", "tasks"), f"{said}, {plan}"
                continue
            taken |= plans
            for f, w in zip(found, want, strict=True):
                np.testing.assert_array_equal(f, w, err_msg=f"{said}, {plan}")
    assert taken >= {"sequential", "wavefront", "tasks"} or count < 16
