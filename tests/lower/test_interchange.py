# SPDX-License-Identifier: MIT
"""Which loops are exchanged, what it looks like, and why others are not: golden programs with their decisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.compiler import Stages
from pto_jit.ir.text import to_text
from tests.lower.stages import nest_of, stages_of


def column_first(x, y):
    rows, cols = x.shape
    for j in pl.range(cols, parallel=True):
        for i in pl.range(rows, parallel=True):
            y[i, j] = x[i, j] * 2.0


def column_first_in_place(x, y):
    rows, cols = x.shape
    for j in pl.range(cols - 1):
        k = j + 1
        for i in pl.range(rows):
            x[i, k] = x[i, k] * 2.0


def column_first_over_distinct_arguments(x, y):
    rows, cols = x.shape
    for j in pl.range(cols):
        for i in pl.range(rows):
            y[i, j] = x[i, j] * 2.0


def skewed(x, y):
    rows, cols = x.shape
    for j in pl.range(cols - 1):
        for i in pl.range(1, rows):
            x[i, j] = x[i - 1, j + 1] * 2.0


def triangular(x, y):
    rows, _ = x.shape
    for j in pl.range(rows):
        for i in pl.range(j, rows):
            x[i, j] = x[i, j] * 2.0


def parallel_columns_of_sequential_rows(x, y):
    rows, cols = x.shape
    for j in pl.range(cols, parallel=True):
        for i in pl.range(1, rows):
            y[i, j] = y[i - 1, j] + x[i, j]


def chunks_in_both_directions(x, y):
    rows, cols = x.shape
    with pl.incore():
        for j in pl.range(0, cols, chunk=64):
            for i in pl.range(0, rows, chunk=32):
                y[i, j] = x[i, j] * 2.0


def chunks_inside_a_time_loop(x, y):
    rows, cols = x.shape
    with pl.incore():
        for t in pl.range(1, rows):
            for i in pl.range(0, cols, chunk=64):
                x[t, i] = x[t - 1, i] * 2.0


def chunks_that_depend_on_each_other(x, y):
    rows, cols = x.shape
    with pl.incore():
        for t in pl.range(1, rows):
            for i in pl.range(1, cols - 1, chunk=64):
                x[t, i] = x[t - 1, i - 1] + x[t - 1, i + 1]


def chunks_after_a_statement(x, y):
    rows, cols = x.shape
    with pl.incore():
        for t in pl.range(0, rows):
            y[t, 0] = 1.0
            for i in pl.range(1, cols, chunk=64):
                y[t, i] = 2.0


def accumulated(x, y):
    rows, cols = x.shape
    for i in pl.range(rows):
        for k in pl.range(cols):
            for _ in pl.range(rows):
                x[i, k] = x[i, k] + 2.0 * x[i, k]


def products(x, y):
    n, _ = x.shape
    for i in pl.range(n, parallel=True):
        for j in pl.range(n, parallel=True):
            for k in pl.range(n):
                y[i, j] = y[i, j] + x[i, k] * x[k, j]


KERNELS = [
    column_first, column_first_in_place, column_first_over_distinct_arguments, skewed, triangular,
    parallel_columns_of_sequential_rows, chunks_in_both_directions, chunks_inside_a_time_loop,
    chunks_that_depend_on_each_other, chunks_after_a_statement, accumulated, products,
]  # fmt: skip


def arrays(seed: int = 0, rows: int = 33, cols: int = 40) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((rows, cols)).astype(np.float32) for _ in range(2)]


def explained(stages: Stages) -> str:
    """The nest, what was decided about the order of its loops, and the program."""
    kinds = ("interchange", "placement")
    decisions = [
        f"{d.kind} [{', '.join(d.loops)}]: {'applied' if d.applied else 'refused'}: {d.reason}"
        for d in stages.decisions
        if d.kind in kinds or (d.kind == "chunk" and "workers share" in d.reason)
    ]
    start = min((d.loc.lineno for d in stages.decisions), default=0)
    drawn = [str(n) for n in nest_of(stages)]
    text = "\n".join([*drawn, "", *decisions, "", to_text(stages.modules["trimmed"])])
    for line in range(start - 10, start + 20):  # lines of this file are not part of what is tested
        text = text.replace(f"(line {line})", "(line ...)").replace(f"in line {line} ", "in line ... ")
    return text


@pytest.mark.parametrize("function", KERNELS, ids=lambda f: f.__name__)
def test_the_order_of_the_loops_is_as_expected(function: Any, golden: Callable[[str, str], None]) -> None:
    golden(f"interchange_{function.__name__}.txt", explained(stages_of(pto.jit(function), arrays())))


@pytest.mark.parametrize("function", KERNELS, ids=lambda f: f.__name__)
def test_the_result_is_that_of_the_source(function: Any) -> None:
    size = (7, 7) if function in (products, triangular, accumulated) else (7, 9)
    actual, expected = arrays(1, *size), arrays(1, *size)
    kernel = pto.jit(function)
    kernel(*actual)
    kernel.interpret(*expected)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def order(stages: Stages) -> list[str]:
    """The loops of a perfect nest from the outside."""
    out, nodes = [], nest_of(stages)
    while nodes:
        (node,) = nodes
        out.append(f"{node.kind} {node.var}")
        nodes = node.children
    return out


def test_a_column_first_nest_runs_along_rows() -> None:
    for function in (column_first, column_first_in_place):
        assert [v[-1] for v in order(stages_of(pto.jit(function), arrays()))[1:]] == ["i", "j"]


def test_a_row_first_nest_is_left_alone() -> None:
    def row_first(x, y):
        rows, cols = x.shape
        for i in pl.range(rows, parallel=True):
            for j in pl.range(cols, parallel=True):
                y[i, j] = x[i, j] * 2.0

    stages = stages_of(pto.jit(row_first), arrays())
    assert [v[-1] for v in order(stages)[1:]] == ["i", "j"]
    assert not any(d.kind == "interchange" for d in stages.decisions)


def test_nothing_is_known_of_the_strides_of_a_strided_argument() -> None:
    x, y = (a.T for a in arrays())
    stages = stages_of(pto.jit(column_first), [x, y])
    assert [v[-1] for v in order(stages)[1:]] == ["j", "i"]


def test_a_loop_that_counts_down_stays_outside_because_it_cannot_be_cut_into_chunks() -> None:
    def downwards(x, y):
        rows, cols = x.shape
        for j in pl.range(cols - 1, -1, -1, parallel=True):
            for i in pl.range(1, rows):
                y[i, j] = y[i - 1, j] + x[i, j]

    stages = stages_of(pto.jit(downwards), arrays())
    assert order(stages)[1:] == ["parallel j", "sequential i"]
    (decision,) = [d for d in stages.decisions if d.kind == "interchange"]
    assert not decision.applied and decision.reason == "`j` has no positive constant step"


def test_loops_that_print_keep_their_order() -> None:
    def printing(x, y):
        for j in pl.range(4):
            for i in pl.range(4):
                pl.print("{} {}", i, j)
                x[i, j] = x[i, j] * 2.0

    (decision,) = [d for d in stages_of(pto.jit(printing), arrays()).decisions if d.kind == "interchange"]
    assert not decision.applied and "`print` in line" in decision.reason


def test_a_carried_variable_keeps_the_order() -> None:
    def carrying(x, y):
        rows, cols = x.shape
        count = 0
        for j in pl.range(cols):
            for i in pl.range(rows):
                if x[i, j] > 0.0:
                    count = count + 1
                x[i, j] = count

    assert [v[-1] for v in order(stages_of(pto.jit(carrying), arrays()))[1:]] == ["j", "i"]


def test_a_loop_left_by_break_keeps_the_order() -> None:
    def leaving(x, y):
        rows, cols = x.shape
        for j in pl.range(cols):
            for i in pl.range(rows):
                if x[i, j] > 3.0:
                    break
                x[i, j] = 0.0

    decisions = [d for d in stages_of(pto.jit(leaving), arrays()).decisions if d.kind == "interchange"]
    assert not any(d.applied for d in decisions)


def test_six_loops_take_little_time() -> None:
    def deep(x):
        for f in pl.range(1, 4):
            for e in pl.range(1, 4):
                for d in pl.range(1, 4):
                    for c in pl.range(1, 4):
                        for b in pl.range(1, 4):
                            for a in pl.range(1, 4):
                                x[a, b, c, d, e, f] = x[a - 1, b, c, d, e, f] + x[a, b, c - 1, d, e, f]

    stages = stages_of(pto.jit(deep), [np.zeros((4,) * 6, np.float32)])
    assert [v[-1] for v in order(stages)[1:]] == list("abcdef")
