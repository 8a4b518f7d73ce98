# SPDX-License-Identifier: MIT
"""Random nests of parallel functions and access operations, on jagged lists, against their definitions on Python's lists.

Leaves are whole numbers modulo a prime, so results are equal bit for bit however they are computed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

import pto_jit.fractal as ft
import pto_jit.language as pl
from tests.differential.rounds import share
from tests.fractal import model
from tests.fractal.data import check, fractal, lists

LEAF = ((1, 2), np.int64)
Nest = Callable[[Any, Any], Any]  # of the operations (ft or the model) and a list
Made = tuple[Nest, int, str]


def mixed(s: Any, e: Any) -> Any:
    return (np.asarray(s) * 5 + np.asarray(e) * 3 + 1) % 97  # NumPy's operators: those of `pl` take long


def zero(m: Any) -> Any:
    return m.zeros(1, 2, dtype=pl.i64)


def one(m: Any) -> Any:
    return m.zeros(1, 2, dtype=pl.i64) + 1


def added(a: Any, b: Any) -> Any:
    return (np.asarray(a) + np.asarray(b)) % 97


def arranged(rng: np.random.Generator, depth: int) -> Made:
    """An access operation: the program, the depth of what it gives, its name."""
    kinds: list[Made] = [
        (lambda m, x: x, 0, "x"),
        (lambda m, x: m.reverse(x), 0, "reverse"),
        (lambda m, x: m.join(x, m.reverse(x)), 0, "join"),
        (lambda m, x: m.slice(x, None, None, 2), 0, "slice"),
        (lambda m, x: m.slide(x, 2), 1, "slide"),
        (lambda m, x: m.shifted_slide(x, 3), 1, "shifted_slide"),
        (lambda m, x: m.product(x, x)[1], 1, "product"),
        (lambda m, x: m.repeat(x, 2), 1, "repeat"),
        (lambda m, x: m.filter(lambda e: m.length(e) > 1, x), 0, "filter") if depth > 1 else (lambda m, x: x, 0, "x"),
        (lambda m, x: m.flatten(x), 1 - depth, "flatten"),
    ]
    program, deeper, name = kinds[rng.integers(len(kinds))]
    return program, depth + deeper, name


def leaf_of(program: Nest, depth: int) -> Nest:
    """The program, then everything it gives folded to one leaf."""
    if depth == 0:
        return program
    return lambda m, x: m.fold(mixed, m.flatten(program(m, x)), init=zero(m))


def nest(rng: np.random.Generator, depth: int, fuel: int) -> Made:
    """A program on a list of that depth, the depth of what it gives (0: a leaf), and its description."""
    if depth == 0:
        return (lambda m, x: mixed(x, x)), 0, "mixed"
    arrange, deep, name = arranged(rng, depth) if fuel else ((lambda m, x: x), depth, "x")
    inner, out, said = nest(rng, deep - 1, max(fuel - 1, 0))
    leaf = leaf_of(inner, out)
    kinds = [
        (lambda m, x: m.map(lambda e: inner(m, e), x), out + 1, "map"),
        (lambda m, x: m.scan(lambda s, e: mixed(s, leaf(m, e)), x, init=zero(m)), 1, "scan"),
        (lambda m, x: m.scanr(lambda s, e: mixed(s, leaf(m, e)), x, init=one(m)), 1, "scanr"),
        (lambda m, x: m.fold(lambda s, e: mixed(s, leaf(m, e)), x, init=one(m)), 0, "fold"),
        (lambda m, x: m.foldr(lambda s, e: mixed(s, leaf(m, e)), x, init=zero(m)), 0, "foldr"),
        (lambda m, x: m.reduce(added, m.map(lambda e: leaf(m, e), x), init=zero(m)), 0, "reduce"),
        (lambda m, x: m.scan(lambda s, e: (mixed(s[0], leaf(m, e)), mixed(s[1], s[0])), x, init=(zero(m), one(m)))[1], 1,
         "scan of pairs"),
        (lambda m, x: m.dilated_map(lambda p: m.scan(lambda s, e: mixed(s, leaf(m, e)), p, init=zero(m)), x, 2), 1, "dilated"),
        (lambda m, x: m.fold(lambda s, e: m.scan(mixed, m.join(s, m.slice(s, 0, 1)), init=leaf(m, e)), x,
                             init=m.repeat(one(m), 2)), 1, "fold of lists"),
        (lambda m, x: m.map(lambda e: mixed(e[0], leaf(m, e[1])), m.zip(m.map(lambda e: leaf(m, e), x), m.reverse(x))), 1,
         "map of pairs"),
        (grid(leaf), 2, "grid"),
    ]  # fmt: skip
    program, depth_out, kind = kinds[rng.integers(len(kinds))]
    return (lambda m, x: program(m, arrange(m, x))), depth_out, f"{kind}({said}, {name})"


def grid(leaf: Nest) -> Nest:
    """Two scans, one along each side of all pairs of elements, as in a grid RNN."""

    def program(m: Any, x: Any) -> Any:
        x = m.map(lambda e: leaf(m, e), x)
        xs, ys = m.product(x, m.slice(x, 1))

        def row(state: Any, cur: Any) -> Any:
            def cell(s: Any, e: Any) -> Any:
                above, (a, b) = e
                return mixed(above[0], a), mixed(s[1], b + s[0])

            return m.zip(*m.scan(cell, m.zip(state, m.zip(*cur)), init=(zero(m), one(m))))

        first = m.zip(m.repeat(zero(m), m.length(x)), m.repeat(one(m), m.length(x)))
        # a list of lists of pairs: the second of each
        return m.map(lambda r: m.map(lambda p: p[1], r), m.scan(row, m.zip(xs, ys), init=first))

    return program


def test_random_nests() -> None:
    seen: set[str] = set()
    for seed in range(share(100)):
        rng = np.random.default_rng(seed)
        depth = int(rng.integers(1, 5))
        x = lists(rng, depth, LEAF, most=3)
        program, _, said = nest(rng, depth, 2)
        seen.update(re.findall(r"[a-z_ ]+(?=\()", said))
        check(program(ft, fractal(x, depth, LEAF)), program(model, x), f"seed {seed}: {said} of {x}\n")
    kinds = {"map", "scan", "scanr", "fold", "foldr", "reduce", "dilated", "fold of lists", "scan of pairs", "grid"}
    assert kinds <= seen or share(100) < 100
