# SPDX-License-Identifier: MIT
"""Random programs of parallel functions for kernels: nests of depth up to four, layers, grids, jagged lists.

Leaves are [1, 2] of whole numbers modulo 97 in f32, so that results are equal bit for bit in every plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pto_jit.fractal as ft
from tests.fractal.data import fractal, lists

LEAF = ((1, 2), np.float32)
Body = Callable[[Any, Any, Any], Any]  # of a list or leaf, a list of weights, and a weight
Made = tuple[Body, int, str]  # the program, the depth of what it gives, its name


def mixed(s: Any, e: Any) -> Any:
    return (s * 5 + e * 3 + 1) % 97


def zero() -> Any:
    return ft.zeros(1, 2)


def one() -> Any:
    return ft.zeros(1, 2) + 1


CELLS: list[Callable[[Any, Any, Any], Any]] = [
    lambda s, e, w: (s @ w + e) % 97,
    lambda s, e, w: mixed(s, e),
    lambda s, e, w: (s @ w + e @ w + 1) % 97,
]
LEAVES: list[Made] = [(lambda x, ws, w: (x @ w + x) % 97, 0, "product"), (lambda x, ws, w: mixed(x, x), 0, "mixed")]


def arranged(rng: np.random.Generator, depth: int) -> tuple[Callable[[Any], Any], int, str]:
    """An access operation, the depth of what it gives, its name."""
    kinds: list[tuple[Callable[[Any], Any], int, str]] = [
        *[(lambda x: x, 0, "x")] * 4,
        (lambda x: ft.reverse(x), 0, "reverse"),
        (lambda x: ft.join(x, ft.reverse(x)) if depth == 1 else x, 0, "join"),
        (lambda x: ft.slice(x, None, None, 2), 0, "slice"),
        (lambda x: ft.slide(x, 2), 1, "slide"),
        (lambda x: ft.shifted_slide(x, 3), 1, "shifted_slide"),
        (lambda x: ft.product(x, x)[0], 1, "product"),
        (lambda x: ft.product(x, x)[1], 1, "product"),
        (lambda x: ft.repeat(x, 2), 1, "repeat"),
    ]
    program, deeper, name = kinds[rng.integers(len(kinds))]
    return program, depth + deeper, name


def folded(y: Any, depth: int, w: Any) -> Any:
    """Everything in a list of that depth, as one leaf."""
    if depth == 0:
        return y
    if depth == 1:
        return ft.fold(lambda s, e: (s @ w + e) % 97, y, initializer=zero())
    return ft.fold(lambda s, e: mixed(s, folded(e, depth - 1, w)), y, initializer=zero())


def nest(rng: np.random.Generator, depth: int, fuel: int, asked: dict[str, Any] | None = None) -> Made:
    """A program on a list of that depth; `asked`: keywords of its outermost parallel function."""
    if depth == 0:
        return LEAVES[rng.integers(len(LEAVES))]
    kw = asked or {}
    arrange, deep, name = arranged(rng, depth) if fuel else ((lambda x: x), depth, "x")
    inner, out, said = nest(rng, deep - 1, max(fuel - 1, 0))
    cell, other = (CELLS[k] for k in rng.integers(len(CELLS), size=2))
    state = str(rng.choice(["scan", "scanr", "fold", "foldr"]))

    def leaf(e: Any, ws: Any, w: Any) -> Any:
        return folded(inner(e, ws, w), out, w)

    def carried(x: Any, ws: Any, w: Any) -> Any:
        return getattr(ft, state)(lambda s, e: cell(s, leaf(e, ws, w), w), x, initializer=zero(), **kw)

    def pairs(x: Any, ws: Any, w: Any) -> Any:
        both = ft.scan(
            lambda s, e: (cell(s[0], leaf(e, ws, w), w), mixed(s[1], s[0])), x, initializer=(zero(), one()), **kw
        )
        return both[1]

    def dilated(x: Any, ws: Any, w: Any) -> Any:
        body = lambda part: ft.scan(lambda s, e: cell(s, leaf(e, ws, w), w), part, initializer=zero())  # noqa: E731
        return ft.dilated_map(body, x, 2, **kw)

    def reduced(x: Any, ws: Any, w: Any) -> Any:
        return ft.reduce(lambda a, b: (a + b) % 97, ft.map(lambda e: leaf(e, ws, w), x), initializer=zero(), **kw)

    def zipped(x: Any, ws: Any, w: Any) -> Any:
        both = ft.zip(ft.map(lambda e: leaf(e, ws, w), x), ft.reverse(x))
        return ft.map(lambda e: mixed(e[0], leaf(e[1], ws, w)), both, **kw)

    def layers(x: Any, ws: Any, w: Any) -> Any:
        def layer(xs: Any, u: Any) -> Any:
            return ft.scan(lambda s, e: cell(s, e, u), xs, initializer=zero())

        return ft.fold(layer, ws, initializer=ft.map(lambda e: leaf(e, ws, w), x), **kw)

    def started(x: Any, ws: Any, w: Any) -> Any:
        """The state starts as the first of what a map gives."""
        y = ft.join(ft.map(lambda e: leaf(e, ws, w), x), ft.repeat(one(), 1))
        made = ft.map(lambda e: (mixed(e, e), cell(e, one(), w)), ft.reverse(y) if ways == "scan" else y)
        body = lambda s, e: (cell(s[0], e[0], w), other(s[1], e[1] + s[0], w))  # noqa: E731
        return (ft.foldr if ways == "fold" else ft.reduce)(body, ft.zip(*made), **kw)[1]

    def with_maps(x: Any, ws: Any, w: Any) -> Any:
        """Layers that are a scan between maps."""

        def layer(xs: Any, u: Any) -> Any:
            before = ft.map(lambda e: other(e, e, u), xs)
            states = getattr(ft, turns)(lambda s, e: cell(s, e, u), before, initializer=zero())
            return ft.map(lambda e: mixed(e, zero()), states)

        return ft.fold(layer, ws, initializer=ft.map(lambda e: leaf(e, ws, w), x), **kw)

    def chained(x: Any, ws: Any, w: Any) -> Any:
        made = ft.map(lambda e: (mixed(e, e), e), ft.map(lambda e: leaf(e, ws, w), x))
        return ft.map(lambda e: cell(e[0], e[1], w), ft.slice(ft.zip(*made), None, None, 1 + fuel % 2), **kw)

    def two_states(x: Any, ws: Any, w: Any) -> Any:
        def layer(xs: Any, u: Any) -> Any:
            body = lambda s, e: (cell(s[0], e[0], u), other(s[1], e[1] + s[0], u))  # noqa: E731
            return ft.scan(body, ft.zip(*xs), initializer=(zero(), one()))

        xs = ft.map(lambda e: leaf(e, ws, w), x)
        return ft.fold(layer, ws, initializer=(xs, ft.reverse(xs)), **kw)[1]

    def backwards(x: Any, ws: Any, w: Any) -> Any:
        def layer(xs: Any, u: Any) -> Any:
            return ft.scanr(lambda s, e: cell(s, e, u), xs, initializer=zero())

        return getattr(ft, ways)(layer, ws, initializer=ft.map(lambda e: leaf(e, ws, w), x), **kw)

    def turned(x: Any, ws: Any, w: Any) -> Any:
        def layer(xs: Any, u: Any) -> Any:
            body = lambda s, e: (cell(s[0], e[0], u), other(s[1], e[1] + s[0], u))  # noqa: E731
            a, b = ft.scanr(body, ft.zip(*xs), initializer=(zero(), one()))
            return (a, ft.reverse(b)) if ways == "fold" else (ft.reverse(b), xs[0])

        xs = ft.map(lambda e: leaf(e, ws, w), x)
        return ft.fold(layer, ws, initializer=(xs, ft.reverse(xs)), **kw)[1]

    def over_pairs(xs: Any, asked: dict[str, Any], first: Any, u: Any) -> Any:
        def row(s: Any, cur: Any) -> Any:
            body = lambda s, e: (cell(e[0][0], e[1][0], u), other(s[1], e[1][1] + s[0], u))  # noqa: E731
            return ft.scan(body, ft.zip(ft.zip(*s), ft.zip(*cur)), initializer=(zero(), one()))

        start = ft.map(lambda e: zero(), first), ft.map(lambda e: one(), first)
        return ft.scan(row, ft.zip(*xs), initializer=start, **asked)

    def grid(x: Any, ws: Any, w: Any) -> Any:
        xs = ft.map(lambda e: leaf(e, ws, w), x)
        return over_pairs(ft.product(xs, ft.slice(xs, 1)), kw, xs, w)[1]

    def grids(x: Any, ws: Any, w: Any) -> Any:
        xs = ft.map(lambda e: leaf(e, ws, w), x)
        return ft.fold(lambda s, u: over_pairs(s, {}, xs, u), ws, initializer=ft.product(xs, xs), **kw)[0]

    ways = "fold" if fuel % 2 else "scan"
    turns = str(rng.choice(["scan", "scan", "scanr"]))
    scheduled: list[Made] = [
        (layers, 1, "layers"),
        (with_maps, 1, f"layers of maps and a {turns}"),
        (two_states, 1, "two states"),
        (grid, 2, "grid"),
        (grids, 2, "grids"),
        (backwards, 1 + (ways == "scan"), f"layers backwards, {ways}"),
        (turned, 1, f"states turned, {ways}"),
    ]
    kinds: list[Made] = [
        (lambda x, ws, w: ft.map(lambda e: inner(e, ws, w), x, **kw), out + 1, "map"),
        (carried, int("scan" in state), state),
        (pairs, 1, "scan of pairs"),
        (dilated, 1, "dilated"),
        (reduced, 0, "reduce"),
        (zipped, 1, "map of pairs"),
        (chained, 1, "maps of maps"),
        (started, 0, "reduce from the first"),
        *scheduled,
    ]
    among = scheduled if asked is not None and rng.random() < 0.6 else kinds
    program, depth_out, kind = among[rng.integers(len(among))]
    return (lambda x, ws, w: program(arrange(x), ws, w)), depth_out, f"{kind}({said}, {name})"


def random_program(seed: int, plan: str, *, tiled: bool = False) -> tuple[Callable[..., Any], str, tuple[Any, ...]]:
    """A program that asks for a plan, its description, and its arguments: a list, a list of weights, a weight.

    tiled: it asks for several cells per task, too.
    """
    rng = np.random.default_rng(seed)
    depth, fuel, batch = int(rng.integers(1, 4)), int(rng.integers(0, 3)), bool(rng.integers(2))
    x = fractal(lists(np.random.default_rng((seed, 1)), depth + batch, LEAF, most=3), depth + batch, LEAF)
    draw = np.random.default_rng((seed, 2))
    ws = ft.from_flat(draw.integers(0, 3, (draw.integers(0, 4), 2, 2)).astype(np.float32))
    w = draw.integers(0, 3, (2, 2)).astype(np.float32)
    sizes = [int(n) for n in np.random.default_rng((seed, 3)).integers(1, 4, 3)]
    tile = ((1,) if batch else ()) + tuple(sizes[: 1 + sizes[0] % 2])
    asked = {"schedule": plan, "tile": tile if tiled else None}
    program, _, said = nest(rng, depth, fuel, {} if batch else asked)
    if not batch:
        return program, said, (x, ws, w)
    return (lambda x, ws, w: ft.map(lambda e: program(e, ws, w), x, **asked)), f"batch of {said}", (x, ws, w)
