# SPDX-License-Identifier: MIT
"""Planes are divided into units of equal work, whatever the cells of their layers cost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
from pto_jit.fractal.compile import dividing
from pto_jit.semantic import interpreter
from tests.fractal.compile.test_random import interpreted, same
from tests.fractal.test_tutorials import load


@pytest.fixture
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("UNIT_ROWS", 4), ("LEAST_ROWS", 1), ("TILE_ROWS", 1), ("WORTH", 1e-3)):
        monkeypatch.setattr(dividing, name, value)


def grid(lengths: Any) -> tuple[Any, list[Any]]:
    """A grid RNN, whose first layer has fewer products per cell than the others, and its arguments."""
    module = load("grid_rnn")
    return module.program, module.arguments(lengths, depth=3, hidden=4)


def products_of_units(monkeypatch: pytest.MonkeyPatch) -> list[list[list[tuple[int, int]]]]:
    """Per plane the products of its units, rows and multiply-adds, filled when a kernel is interpreted."""
    planes: list[list[list[tuple[int, int]]]] = []
    inside: list[Any] = []
    loop, block, op = (getattr(interpreter._Interpreter, name) for name in ("loop", "block", "op"))

    def on_loop(self: Any, stmt: Any, frame: Any) -> Any:
        units = stmt.kind == "parallel" and stmt.var.name.startswith("piece")
        if units:
            planes.append([])
            inside.append(stmt.body)
        found = loop(self, stmt, frame)
        if units:
            inside.pop()
        return found

    def on_block(self: Any, body: Any, frame: Any) -> Any:
        if inside and body is inside[-1]:
            planes[-1].append([])
        return block(self, body, frame)

    def on_op(self: Any, stmt: Any, frame: Any) -> None:
        op(self, stmt, frame)
        if stmt.op == "dot" and inside:
            rows, columns = frame[stmt.results[0].name].shape
            planes[-1][-1].append((rows, rows * columns * frame[stmt.args[0].name].shape[1]))

    for name, new in (("loop", on_loop), ("block", on_block), ("op", on_op)):
        monkeypatch.setattr(interpreter._Interpreter, name, new)
    return planes


@pytest.mark.usefixtures("small_units")
def test_workers_begin_with_equal_work(monkeypatch: pytest.MonkeyPatch) -> None:
    program, given = grid([(6, 6)] * 8)
    planes = products_of_units(monkeypatch)
    interpreted(pto.jit(lambda *a: program(*a)), given)
    wide = [units for units in planes if len(units) >= 4]
    assert len(wide) >= 8
    for units in wide:
        half = len(units) // 2
        first, second = (sum(work for unit in part for _, work in unit) for part in (units[:half], units[half:]))
        assert math.isclose(first, second, rel_tol=0.2), units


@pytest.mark.usefixtures("small_units")
@pytest.mark.parametrize("lengths", [[(6, 6)] * 8, [(9, 2), (1, 7), (0, 3), (5, 5), (4, 1)], [(0, 0)], []])
def test_results_do_not_depend_on_the_number_of_workers(lengths: Any) -> None:
    program, given = grid(lengths)
    one, three = (pto.jit(num_threads=n, cache=False)(program)(*given) for n in (1, 3))
    for a, b in zip(one, three, strict=True):
        np.testing.assert_array_equal(a.leaves, b.leaves)
    if lengths:
        same(one, program(*given))
    assert all(isinstance(x, ft.FractalTensor) for x in one)


def test_batches_are_cut_at_whole_tiles_away_from_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    program, given = grid([(8, 8)] * 20)
    planes = products_of_units(monkeypatch)
    monkeypatch.setattr(dividing, "WORTH", 1e-3)
    monkeypatch.setattr(dividing, "UNIT_ROWS", 32)
    interpreted(pto.jit(lambda *a: program(*a)), given)
    cut = [rows for units in planes for unit in units for rows, _ in unit if rows % 20]  # a plane has 20 of each pair
    assert cut
    assert min(cut) >= dividing.LEAST_ROWS
