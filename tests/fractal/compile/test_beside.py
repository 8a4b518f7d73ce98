# SPDX-License-Identifier: MIT
"""States of other planes that products read: where they lie in the ring, if the batch has the same rows there."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from tests.fractal.compile.test_nests import same

H = 8
DRAW = np.random.default_rng(9)
LENGTHS = ((5,) * 70, (3, 0, 7, 7, 1), (1,), (), (0, 2), (9, *(4,) * 66))


def floats(*shape: int) -> np.ndarray:
    return (DRAW.standard_normal(shape) / 4).astype(np.float32)


def scans(x: Any, w: Any) -> Any:
    """One layer; no group."""
    u = w[0]
    return ft.map(
        lambda xs: ft.scan(lambda s, e: pl.tanh(s @ u) + e, xs, initializer=ft.zeros(1, H)), x, schedule="wavefront"
    )


def layers(x: Any, w: Any) -> Any:
    """Rows of the layer before are behind the same ring."""

    def layer(xs: Any, u: Any) -> Any:
        return ft.scan(lambda s, e: pl.tanh(s @ u + e @ u), xs, initializer=ft.zeros(1, H))

    return ft.map(lambda xs: ft.fold(layer, w, initializer=xs), x, schedule="wavefront")


def two(x: Any, w: Any) -> Any:
    """Two states, the second of which is not an operand of a product."""

    def layer(xs: Any, u: Any) -> Any:
        def cell(state: Any, e: Any) -> Any:
            h, c = state
            c = c * 0.5 + pl.tanh(h @ u + e)
            return pl.tanh(c), c

        return ft.scan(cell, xs, initializer=(ft.zeros(1, H), ft.zeros(1, H)))[0]

    return ft.map(lambda xs: ft.fold(layer, w, initializer=xs), x, schedule="wavefront")


def back(x: Any, w: Any) -> Any:
    """From the last element on, with other numbers at the start."""

    def layer(xs: Any, u: Any) -> Any:
        return ft.scanr(lambda s, e: pl.tanh(s @ u + e), xs, initializer=pl.full((1, H), 0.5, dtype=pl.f32))

    return ft.map(lambda xs: ft.fold(layer, w, initializer=xs), x, schedule="wavefront")


@pytest.mark.parametrize("program", [scans, layers, two, back])
@pytest.mark.parametrize("options", [{}, {"num_threads": 2}, {"debug": True}])
def test_lists_of_equal_lengths_and_of_others(program: Any, options: dict[str, Any]) -> None:
    run, w = pto.jit(program, **options), ft.from_flat(floats(3, H, H))
    for lengths in LENGTHS:
        x = ft.from_flat(floats(sum(lengths), 1, H), [np.cumsum([0, *lengths])])
        same(run(x, w), program(x, w))


@pytest.mark.parametrize(("program", "rings"), [(scans, {"h1", "x.1"}), (layers, {"h1"}), (two, {"h1", "h3", "h.1"})])
def test_what_products_read_has_no_memory_beside_the_ring(program: Any, rings: set[str]) -> None:
    """The second state of `two` and the elements of `scans`, which other operations read, are gathered."""
    x, w = ft.from_flat(floats(6, 1, H), [[0, 3, 6]]), ft.from_flat(floats(3, H, H))
    text = pto.jit(program).compile(x, w).ir("source")
    assert set(re.findall(r"%([\w.]+)_rows\S* = talloc", text)) == rings
