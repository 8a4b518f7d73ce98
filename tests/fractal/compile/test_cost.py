# SPDX-License-Identifier: MIT
"""What `schedule="auto"` chooses, and the figures that it gives; plans have the bits of the program."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from pto_jit.codegen.compilation import compile_program
from pto_jit.fractal.compile.cost import multiples
from pto_jit.options import Options
from tests.fractal.compile.test_nests import same

DRAW = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return (DRAW.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)


def sequences(lengths: list[int], rows: int, columns: int) -> ft.FractalTensor:
    return ft.from_flat(floats(sum(lengths), rows, columns), [np.cumsum([0, *lengths])])


def layers(step: Callable[[Any, Any, Any], Any], rows: int, columns: int) -> Callable[..., Any]:
    """Layers of scans over a batch."""

    def layer(xs: Any, w: Any) -> Any:
        return ft.scan(step, xs, initializer=ft.zeros(rows, columns), w=w)

    return lambda x, w: ft.map(lambda xs: ft.fold(layer, w, initializer=xs), x)


def product(state: Any, x: Any, w: Any) -> Any:
    return pl.tanh(state @ w + x)


def own_product(state: Any, x: Any, w: Any) -> Any:
    """No row: both factors differ from cell to cell."""
    return pl.tanh(x @ pl.transpose(x) * w + state)


def decision(program: Callable[..., Any], *given: Any) -> str:
    """What is said of the nest that carries something, which is not compiled further."""
    kernel = pto.jit(program)
    call = kernel._parameters.classify(*kernel._parameters.bind(given, {}))
    found = compile_program(kernel.__pto_jit__, call.params, options=Options()).decisions
    return next(d.reason for d in found if d.kind == "schedule" and "no loop carries a state" not in d.reason)


@pytest.mark.parametrize(
    ("step", "rows", "columns", "plan"),
    [
        (product, 1, 64, "wavefront: planes of hyperplane (0, 1, 1) over (i, j, k), cells over i as rows"),
        (product, 64, 128, "tasks: one task per cell, in program order"),
        (lambda s, x, w: s * 0.5 + x * w, 1, 64, "sequential: cells cost less by themselves than gathered to rows"),
        (own_product, 64, 64, "tasks: one task per cell, in program order"),
        (own_product, 32, 32, "tasks: one task per tile of (1, 4, 4) cells, in program order"),
        (lambda s, x, w: s * 0.5 + x * w, 1, 8, "wavefront: planes of hyperplane (0, 1, 1) over (i, j, k), cells over i, j"),
        (product, 1, 8, "wavefront: planes of hyperplane (0, 1, 1) over (i, j, k), cells over i as rows"),
        (own_product, 4, 4, "sequential: every loop that could follow from the plane chooses shared operands"),
    ],
)
def test_the_plan_is_chosen_by_what_a_cell_costs(step: Any, rows: int, columns: int, plan: str) -> None:
    shape = (2, columns, columns) if step is product else (2, 1, columns)
    reason = decision(layers(step, rows, columns), sequences([3, 1], rows, columns), ft.from_flat(floats(*shape)))
    assert reason.startswith(plan), reason
    figures = [line for line in reason.split("\n") if line.startswith("a cell has ")]
    assert figures, reason
    if (step, rows, columns) == (product, 1, 64):  # a product, a sum, and tanh, which counts 20 times; three leaves
        operations = 2 * columns**2 + columns + 20 * columns
        assert figures[0].startswith(f"a cell has {operations} operations on {3 * 4 * columns} bytes; in order "), reason


def test_tasks_that_were_chosen_give_what_the_program_gives() -> None:
    """Not where another nest of the function would not be divided any more."""
    x, w = sequences([4, 0, 3], 32, 32), ft.from_flat(floats(3, 1, 32))
    program = layers(own_product, 32, 32)
    same(pto.jit(program)(x, w), program(x, w))

    def beside(x: Any, w: Any) -> Any:
        return program(ft.map(lambda xs: ft.map(lambda e: pl.exp(e) * e, xs), x), w)

    assert decision(beside, x, w).startswith("sequential: every loop")


def test_a_leaf_whose_axes_are_exchanged_is_assigned_once_in_order_too() -> None:
    """A product reads it where it lies then; it is one of two leaves."""

    def program(x: Any, w: Any) -> Any:
        def layer(xs: Any, u: Any) -> Any:
            return ft.scan(own_product, xs, initializer=ft.zeros(8, 8), w=u)

        return ft.map(lambda xs: ft.fold(layer, w, initializer=xs), x, schedule="sequential")

    x, w = sequences([4, 0, 3], 8, 8), ft.from_flat(floats(3, 1, 8))
    text = pto.jit(program).compile(x, w).ir("scheduled")
    (name,) = re.findall(r"ttranspose (%[\w.]+) ", text)
    assert text.count(f"{name} = ") == 1
    same(pto.jit(program)(x, w), program(x, w))


def test_multiples_of_the_best_are_compared_by_their_geometric_mean() -> None:
    assert multiples([(1, 2), (4, 1)]) == [2.0, pytest.approx(2**0.5)]
    assert multiples([(3, 3, 6)]) == [1.0, 1.0, 2.0]
