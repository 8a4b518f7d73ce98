# SPDX-License-Identifier: MIT
"""Lengths that the data decide: `ft.filter`, and `ft.flatten` of jagged lists, in kernels as outside of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from tests.fractal.data import check, plain


def rows(*lengths: int) -> ft.FractalTensor:
    rng = np.random.default_rng(sum(lengths))
    leaves = rng.integers(-4, 5, (sum(lengths), 2)).astype(np.float32)
    return ft.from_flat(leaves, [np.cumsum([0, *lengths])])


def kept(v: Any) -> Any:
    return pl.sum(v) > 0


def total(x: Any) -> Any:
    return ft.fold(lambda s, e: s * 0.5 + e, x, init=ft.zeros(2))


def of_its_mean(r: Any) -> Any:
    bound = pl.sum(total(r))
    return ft.filter(lambda v: pl.sum(v) > bound, r), ft.zeros(2) + bound


def used_again(r: Any) -> Any:
    y = ft.map(lambda v: v * 2 - 1, r)
    return ft.filter(kept, y), y, total(ft.filter(kept, y)) + total(y)


JAGGED = [rows(3, 0, 5), rows(), rows(0, 0), rows(7)]
DEEP = ft.from_list([[[np.full(2, 3, np.float32), np.full(2, -1, np.float32)], []], [], [[np.zeros(2, np.float32)]]])

CASES: dict[str, Callable[[Any], Any]] = {
    "rows": lambda x: ft.map(lambda r: ft.filter(kept, r), x),
    "lists": lambda x: ft.filter(
        lambda r: len(r) > 1, ft.map(lambda r: ft.filter(kept, r), ft.filter(lambda r: len(r) > 1, x))),
    "bounds": lambda x: ft.map(lambda q: ft.filter(lambda v, b: v[0] > b, q[1], b=q[0]), ft.enumerate(x)),
    "of its mean": lambda x: ft.map(of_its_mean, x),
    "used again": lambda x: ft.map(used_again, x),
    "of a scan": lambda x: ft.map(lambda r: ft.filter(kept, ft.scan(lambda s, e: s * 0.5 + e, r, init=ft.zeros(2))), x),
    "in a scan": lambda x: ft.map(lambda r: ft.scanr(lambda s, e: s * 0.5 + e, ft.filter(kept, r)), x),
    "pairs": lambda x: ft.map(
        lambda r: ft.map(lambda q: q[0] - q[1], ft.filter(lambda q: q[0][0] > q[1][0], ft.zip(r, ft.reverse(r)))), x),
    "counts": lambda x: ft.map(lambda r: len(ft.filter(lambda q: q[0] % 2 == 0, ft.enumerate(r))), x),
    "all, none": lambda x: (ft.filter(lambda r: True, x), ft.map(lambda r: ft.filter(lambda v: False, r), x)),
    "parted": lambda x: ft.map(lambda r: ft.join(ft.filter(kept, r), ft.filter(lambda v: pl.sum(v) <= 0, r)), x),
    "flat": lambda x: (ft.flatten(ft.map(lambda r: ft.filter(kept, r), x)), ft.flatten(ft.reverse(x))),
    "flat pairs": lambda x: ft.map(
        lambda v: v[0] - v[1], ft.flatten(ft.map(lambda r: ft.zip(r, ft.reverse(r)), x))),
    "flat prefixes": lambda x: ft.map(
        lambda r: ft.flatten(ft.map(lambda e: ft.slice(r, 0, e[0]), ft.enumerate(r))), x),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_lengths_that_the_data_decide(name: str) -> None:
    kernel = pto.jit(CASES[name])
    for x in JAGGED:
        check(kernel(x), plain(CASES[name](x)), f"{name} of {x}")
    assert len(kernel.specializations()) == 1


def test_deeper_lists() -> None:
    def program(x: Any) -> Any:
        few = ft.map(lambda xs: ft.map(lambda r: ft.filter(kept, r), xs), x)
        return few, ft.map(ft.flatten, few), ft.flatten(x), ft.map(lambda xs: total(ft.flatten(ft.reverse(xs))), x)

    kernel = pto.jit(program)
    for x in (DEEP, DEEP[:0], DEEP[::-1]):
        check(kernel(x), plain(program(x)), str(x))
    check(pto.jit(program).interpret(DEEP), plain(program(DEEP)))


@pytest.mark.parametrize("plan", ["sequential", "wavefront", "tasks"])
def test_every_plan_takes_and_gives_filtered_lists(plan: str) -> None:
    def program(x: Any, w: Any) -> Any:
        def layer(state: Any, u: Any) -> Any:
            return ft.scan(lambda h, e: h * u + e, state, initializer=ft.zeros(2))

        few = ft.map(lambda r: ft.fold(layer, w, initializer=ft.filter(kept, r)), x, schedule=plan)
        return few, ft.map(lambda r: ft.filter(lambda v: v[0] > 0, r), few)

    kernel = pto.jit(program)
    w = ft.from_list([np.float32(0.5), np.float32(-0.25)])
    for x in JAGGED:
        check(kernel(x, w), plain(program(x, w)), f"{x}")
    reasons = [d.reason for d in kernel.compile(x, w).decisions if d.kind == "schedule"]
    assert reasons[0].startswith("sequential: lengths that the data decide") and reasons[1].startswith(plan)


def layers(r: Any, w: Any, layer: Callable[[Any, Any, Any], Any], **start: Any) -> Any:
    return ft.fold(lambda s, u: layer(s, u, r), w, **(start or {"init": ft.zeros(2)}))


def made_before(s: Any, u: Any, r: Any) -> Any:
    """The new state is made of a list that is computed before the nest, for a filter."""
    y = ft.map(lambda v: v * u, r)
    return ft.map(lambda v: v[0] + v[1], ft.zip(y, ft.repeat(total(ft.filter(kept, y)), len(y))))


def made_before_itself(s: Any, u: Any, r: Any) -> Any:
    y = ft.map(lambda v: v * u, r)
    return y, total(ft.filter(kept, y)) + s[1]


def of_each(s: Any, u: Any, r: Any) -> Any:
    return ft.map(lambda q: q[0] * u + q[1] + len(ft.filter(lambda v: v[0] > u, r)), ft.zip(s, r))


STATES: dict[str, Callable[[Any, Any], Any]] = {
    "fold": lambda x, w: ft.fold(lambda s, r: s * 0.5 + total(ft.filter(kept, r)), x, init=ft.zeros(2)),
    "scanr": lambda x, w: ft.scanr(lambda s, r: s * 0.5 + total(ft.filter(kept, r)), x, init=ft.zeros(2)),
    "from the first": lambda x, w: ft.scan(lambda a, b: a * 0.5 + total(ft.filter(kept, ft.repeat(b, 3))), ft.map(total, x)),
    "a number": lambda x, w: ft.fold(lambda s, r: s + len(ft.filter(kept, r)), x, initializer=0),
    "two loops": lambda x, w: ft.map(
        lambda r: layers(r, w, lambda s, u, r: s * 0.5 + total(ft.filter(lambda v: pl.sum(v) * u > 0, r))), x),
    "a scan in it": lambda x, w: ft.map(lambda r: layers(r, w, lambda s, u, r: s + total(
        ft.scan(lambda a, b: a * u + b, ft.filter(lambda v: v[1] * u > 0, r), init=ft.zeros(2)))), x),
    "a list as state": lambda x, w: ft.map(lambda r: layers(r, w, of_each, init=r), x),
    "made before": lambda x, w: ft.map(lambda r: layers(r, w, made_before, init=r), x),
    "made before itself": lambda x, w: ft.map(lambda r: layers(r, w, made_before_itself, init=(r, ft.zeros(2))), x),
    "flat": lambda x, w: ft.fold(lambda s, u: s * u + total(ft.flatten(ft.reverse(x))), w, init=ft.zeros(2)),
}  # fmt: skip


@pytest.mark.parametrize("name", STATES)
def test_filters_in_functions_with_a_state_that_does_not_decide(name: str) -> None:
    kernel = pto.jit(STATES[name])
    w = ft.from_list([np.float32(0.5), np.float32(-0.25), np.float32(2)])
    for x in JAGGED if name != "from the first" else JAGGED[:1]:
        for weights in (w, w[:0]):
            check(kernel(x, weights), plain(STATES[name](x, weights)), f"{name} of {x}")


NESTED: list[Callable[[Any, Any], Any]] = [  # filters whose conditions have other filters in them
    lambda n, x: ft.filter(lambda r: len(ft.filter(lambda v: v > 1, r)) > 0, x),
    lambda n, x: ft.filter(lambda v: len(ft.filter(lambda q: len(ft.filter(lambda p: p + v > q, n)) > 0, n)) > 1, n),
    lambda n, x: ft.map(lambda e: e + 1, ft.filter(lambda v: ft.fold(
        lambda s, e: s + e, ft.filter(lambda q: q > 1, n), init=0) > v, n)),
    lambda n, x: ft.filter(lambda r: len(ft.flatten(ft.map(lambda e: ft.filter(lambda f: f > e, r), r))) > 1, x),
    lambda n, x: ft.map(lambda r: ft.filter(
        lambda v: len(ft.filter(lambda q: q > v, n)) > 1, ft.map(lambda e: e + 1, n)), x),
    lambda n, x: ft.map(lambda r: ft.map(lambda e: e * 2, ft.filter(
        lambda v: len(ft.filter(lambda q: q > v, ft.filter(lambda q: q > 0, r))) > 0, ft.map(lambda e: e + 1, r))), x),
    lambda n, x: ft.map(lambda r: ft.map(lambda v: len(ft.filter(lambda q: q > v, ft.map(lambda e: e + 1, r))), r),
                        ft.filter(lambda r: len(ft.filter(lambda q: q > 1, r)) > 0, x)),
]  # fmt: skip


@pytest.mark.parametrize("program", NESTED, ids=map(str, range(len(NESTED))))
def test_filters_in_the_conditions_of_filters(program: Callable[[Any, Any], Any]) -> None:
    n, x = ft.from_list([1, 2, 3]), ft.from_list([[1, 2, 3], [], [5], [2, 1]])
    check(plain(pto.jit(program)(n, x)), plain(program(n, x)))


def in_a_branch(r: Any) -> Any:
    bound = 0.0
    if len(r) > 2:
        bound = pl.sum(r[0])
    return ft.filter(lambda v: pl.sum(v) > bound, r)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (lambda x: ft.fold(lambda s, r: s + total(ft.filter(lambda v: pl.sum(v - s) > 0, r)), x, init=ft.zeros(2)),
         "F106: ft.filter would let the state of a function around it decide lengths"),
        (lambda x: ft.map(lambda r: ft.fold(lambda s, u: ft.map(lambda e: e + total(ft.filter(kept, s)), s), r, init=r), x),
         "F106: ft.filter would let the state of a function around it decide lengths"),
        (lambda x: ft.map(in_a_branch, x), "F106: ft.filter needs what an `if` or a loop of the function around it computes"),
        (lambda x: ft.map(lambda r: ft.filter(lambda v: pl.sum(v), r), x), "F129: the body of ft.filter gives a run-time f32 scalar"),
        (lambda x: ft.map(lambda r: ft.filter(lambda v: v > 0, r), x), "F129: the body of ft.filter gives a tile of bool_"),
    ],
)  # fmt: skip
def test_what_cannot_be_known_before_is_refused(program: Callable[..., Any], said: str) -> None:
    with pytest.raises(pto.CompilationError) as caught:
        pto.jit(program)(JAGGED[0])
    assert str(caught.value).startswith(f"PTO-{said}") and "ft.filter(" in str(caught.value)
