# SPDX-License-Identifier: MIT
"""What the first layer of a wavefront reads: products of inputs are computed once, inputs lie beside the rows of layers."""

from __future__ import annotations

from typing import Any

import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from tests.fractal.compile.test_nests import H, jagged, same, weights

LENGTHS = (2, 3, 0, 1)


def over_pairs(layers: bool, residual: bool) -> Any:
    """A grid over all pairs of a list's elements; `residual`: a cell uses its input otherwise, too."""

    def cell(state: Any, cur: Any, w: Any) -> Any:
        above, (x, y) = cur
        h = pl.tanh(x @ w + above[0] * 0.5 + state[1])
        return (h + x if residual else h), pl.maximum(state[1], y @ w)

    def row(state: Any, cur: Any, w: Any) -> Any:
        zero = ft.zeros(1, H)
        return ft.scan(cell, ft.zip(ft.zip(*state), ft.zip(*cur)), initializer=(zero, zero), w=w)

    def layer(state: Any, w: Any) -> Any:
        first, _ = state
        zeros = ft.map(lambda e: ft.zeros(1, H), first[0])
        return ft.scan(row, ft.zip(*state), initializer=(zeros, zeros), w=w)

    def grid(pair: Any, w: Any) -> Any:
        xs, ys = ft.product(*pair)
        return ft.fold(layer, w, initializer=(xs, ys)) if layers else layer((xs, ys), w)

    return lambda x, y, w: ft.map(lambda pair: grid(pair, w), ft.zip(x, y), schedule="wavefront")


@pytest.mark.parametrize(("layers", "residual"), [(True, True), (False, False)])
def test_products_of_inputs_are_computed_once(layers: bool, residual: bool) -> None:
    program = over_pairs(layers, residual)
    batches = [
        (2, jagged(*LENGTHS), jagged(*(n + 1 for n in LENGTHS))),
        (0, jagged(2), jagged(1)),
        (1, jagged(), jagged()),
    ]
    given = [(x, y, weights(depth) if layers else weights(1)[0]) for depth, x, y in batches]
    compiled = pto.jit(program).compile(*given[0])
    for each in given:
        same(compiled(*each), program(*each))
    text = compiled.ir("source")
    assert "%inputs" in text
    assert text.count(" tdot ") == (4 if layers else 2)  # with layers: those of the words, and those of the other layers
