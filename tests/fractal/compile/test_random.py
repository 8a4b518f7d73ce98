# SPDX-License-Identifier: MIT
"""Random nests, in every plan, against the same program run eagerly; `PTO_TEST_NESTS` says how many."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl

H = 3
CELLS: list[Callable[[Any, Any, Any], Any]] = [
    lambda s, e, w: pl.tanh(s @ w + e),
    lambda s, e, w: s * 0.5 + pl.exp(e * 0.1),
    lambda s, e, w: pl.maximum(s, e) @ w,
    lambda s, e, w: e - s,
]


def random_program(seed: int) -> tuple[Callable[[str], Callable[..., Any]], list[Any]]:
    """A map of a fold or scan over layers of scans or maps, with one state or two; and lists of random lengths."""
    rng = random.Random(seed)
    first, second = rng.choice(CELLS), rng.choice(CELLS)
    inner, outer, pairs = rng.choice(["scan", "scan", "map"]), rng.choice(["fold", "scan"]), rng.random() < 0.5

    def layer(xs: Any, w: Any) -> Any:
        if inner == "map":
            return ft.map(lambda e: first(e, e, w), xs)
        return ft.scan(lambda s, e: first(s, e, w), xs, initializer=ft.zeros(1, H))

    def both(s: Any, e: Any, w: Any) -> Any:
        return first(s[0], e[0], w), second(s[1], e[1], w)

    def pair(state: Any, w: Any) -> Any:
        return ft.scan(both, ft.zip(*state), initializer=(ft.zeros(1, H), ft.zeros(1, H)), w=w)

    def stack(xs: Any, w: Any) -> Any:
        start = (xs, ft.reverse(xs)) if pairs else xs
        return getattr(ft, outer)(pair if pairs else layer, w, initializer=start)

    def program(plan: str) -> Callable[..., Any]:
        return lambda x, w: ft.map(lambda xs: stack(xs, w), x, schedule=plan)

    draw = np.random.default_rng(seed)
    lengths = [rng.randrange(5) for _ in range(rng.randrange(1, 4))]
    x = ft.from_flat(draw.standard_normal((sum(lengths), 1, H)).astype(np.float32), [np.cumsum([0, *lengths])])
    w = ft.from_flat((draw.standard_normal((rng.randrange(4), H, H)) / 2).astype(np.float32))
    return program, [x, w]


def same(got: Any, want: Any) -> None:
    for a, b in zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]:
        for p, q in zip(a.offsets, b.offsets, strict=True):
            np.testing.assert_array_equal(p, q)
        np.testing.assert_allclose(a.leaves, b.leaves, atol=1e-4)


@pytest.mark.parametrize("seed", range(int(os.environ.get("PTO_TEST_NESTS", "2"))))
def test_plans_agree(seed: int) -> None:
    program, given = random_program(seed)
    want = program("auto")(*given)
    for plan in ("sequential", "wavefront", "tasks"):
        same(pto.jit(program(plan))(*given), want)


def test_debugging_and_two_workers() -> None:
    program, given = random_program(3)
    want = program("auto")(*given)
    same(pto.jit(debug=True)(program("auto"))(*given), want)
    same(pto.jit(num_threads=2)(program("wavefront"))(*given), want)
