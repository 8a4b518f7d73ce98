# SPDX-License-Identifier: MIT
"""Narrow planes run several at a time, each group of them behind the one it reads, with the bits that planes have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from pto_jit.fractal.compile import strips
from tests.fractal.compile.test_nests import same

H = 8
DRAW = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return (DRAW.standard_normal(shape) / 4).astype(np.float32)


def lists(*lengths: int) -> ft.FractalTensor:
    return ft.from_flat(floats(sum(lengths), 1, H), [np.cumsum([0, *lengths])])


def cell(state: Any, x: Any, w: Any) -> Any:
    return pl.tanh(state @ w + x)


def layers(x: Any, w: Any) -> Any:
    def layer(xs: Any, u: Any) -> Any:
        return ft.scan(cell, xs, initializer=ft.zeros(1, H), w=u)

    return ft.map(lambda xs: ft.fold(layer, w, initializer=xs), x, schedule="wavefront")


def ensemble(x: Any, w: Any) -> Any:
    """Groups that do not read each other."""
    return ft.map(
        lambda u: ft.map(lambda xs: ft.scan(cell, xs, initializer=ft.zeros(1, H), w=u), x), w, schedule="wavefront"
    )


def dilated(x: Any, w: Any) -> Any:
    """Cells read planes as far back as the dilation of their layer says."""

    def layer(xs: Any, each: Any) -> Any:
        k, u = each
        body = lambda part: ft.scan(cell, part, initializer=ft.zeros(1, H), w=u)  # noqa: E731
        return ft.dilated_map(body, xs, k + 1)

    return ft.map(lambda xs: ft.fold(layer, ft.enumerate(w), initializer=xs), x, schedule="wavefront")


def grid(x: Any, w: Any) -> Any:
    """The batched loops are long, those of a plane as many as its cells."""

    def layer(rows: Any, u: Any) -> Any:
        return ft.map(lambda xs: ft.scan(cell, xs, initializer=ft.zeros(1, H), w=u), rows)

    return ft.fold(layer, w, initializer=x, schedule="wavefront")


@pytest.mark.parametrize("program", [layers, ensemble, dilated, grid])
def test_planes_of_any_lengths(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one kernel: what is a strip is decided while it runs.  Without strips the bits are the same."""
    run, two = pto.jit(program), pto.jit(num_threads=2)(program)
    assert "%strip" in run.compile(lists(2, 1), floats_of(2)).ir("source")
    cases = [(n, k) for n in [(70,), (33, 0, 7), (1,), (), (0,), (21, 40, 40)] for k in (1, 2, 5)]
    given = [(lists(*n), floats_of(k)) for n, k in cases]
    found = [run(*g) for g in given]
    for g, r in zip(given, found, strict=True):
        same(r, program(*g))
        np.testing.assert_array_equal(two(*g).leaves, r.leaves)
    monkeypatch.setattr(strips, "SPAN", 1)
    plain = pto.jit(cache=False)(program)
    for g, r in zip(given, found, strict=True):
        np.testing.assert_array_equal(plain(*g).leaves, r.leaves)


def floats_of(k: int) -> ft.FractalTensor:
    return ft.from_flat(floats(k, H, H))


def test_strips_are_shorter_where_workers_would_be_idle() -> None:
    """By the number of planes and groups: at least `FEWEST` strips of small cells for each group, then one plane."""
    from pto_jit.fractal.compile.expr import number

    def span(count: int, groups: int, fewest: int) -> int:
        found = strips.span_of(number(count), number(groups), fewest).constant
        assert found is not None
        return found

    assert [span(n, 4, strips.FEWEST) for n in (5, 17, 40, 100)] == [1, 1, 4, 8]
    assert [span(n, 4, strips.FEW) for n in (5, 67, 100, 1000)] == [1, 2, 3, 8]
    assert span(1000, 0, strips.FEW) == 8
