# SPDX-License-Identifier: MIT
"""The cells of a map as rows of blocks: one product of many rows instead of many of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from pto_jit.dtypes import i64
from pto_jit.fractal.compile.blocks import in_order
from pto_jit.fractal.compile.expr import Fetch, Symbol, number, of
from pto_jit.fractal.compile.lists import Dim
from pto_jit.ir.nodes import Var
from pto_jit.ir.types import TensorType
from tests.fractal.compile.test_nests import H, jagged, same, weights

AS_ROWS = "wavefront: one plane of all cells, so many at a time as rows"


def planned(program: Callable[..., Any], *given: Any) -> tuple[Any, str]:
    """The compiled program, checked against itself run eagerly with one thread and two, and its plans."""
    want = program(*given)
    compiled = pto.jit(program).compile(*given)
    same(compiled(*given), want)
    one, two = (pto.jit(num_threads=n)(program)(*given) for n in (1, 2))
    for a, b in zip(*([r] if not isinstance(r, tuple) else r for r in (one, two)), strict=True):
        np.testing.assert_array_equal(a.leaves, b.leaves)
    return compiled, " ".join(d.reason for d in compiled.decisions if d.kind == "schedule")


def projected(x: Any, w: Any) -> Any:
    return ft.map(lambda xs: ft.map(lambda e: pl.tanh(e @ w + 0.5) + e, xs), x)


@pytest.mark.parametrize("lengths", [(2, 3, 0, 1), (300, 0, 257), ()])
def test_a_map_of_products_reads_lists_where_they_lie(lengths: tuple[int, ...]) -> None:
    compiled, plans = planned(projected, jagged(*lengths), weights(1)[0])
    assert AS_ROWS in plans
    text = compiled.ir("source")
    assert "input_rows" not in text and text.count(" tdot ") == 1


def test_what_lies_in_another_order_is_gathered() -> None:
    def backwards(x: Any, w: Any) -> Any:
        return ft.map(lambda xs: ft.map(lambda e: e[0] @ w + e[1], ft.zip(ft.reverse(xs), xs)), x)

    compiled, plans = planned(backwards, jagged(2, 3, 0, 1), weights(1)[0])
    text = compiled.ir("source")
    assert AS_ROWS in plans and text.count("%input_rows = ") == 1


def test_outer_loops_may_choose_the_right_operand() -> None:
    def heads(x: Any, w: Any) -> Any:
        """By each of the weights all words: a leaf, a number and a place in the list of each."""

        def one(u: Any) -> Any:
            return ft.map(lambda e: (e[1] @ u + pl.f32(e[0]), pl.sum(e[1])), ft.enumerate(ft.flatten(x)))

        return ft.map(one, w)

    def parts(x: Any, w: Any) -> Any:
        return ft.map(lambda p: ft.map(lambda e: e @ p[1], p[0]), ft.zip(x, w))

    compiled, plans = planned(parts, jagged(2, 300, 0, 1), weights(4))
    assert AS_ROWS in plans and "input_rows" not in compiled.ir("source")
    planned(heads, jagged(2, 3, 0, 1), weights(2))


def test_lists_of_other_lists_and_numbers_are_rows() -> None:
    def twice(x: Any, w: Any) -> Any:
        once = ft.map(lambda xs: ft.map(lambda e: (e @ w, pl.max(e)), xs), x)
        again = ft.map(lambda p: ft.map(lambda e: pl.maximum(e[0] @ w, 0.0) * e[1], ft.zip(*p)), ft.zip(*once))
        return again, *once

    compiled, plans = planned(twice, jagged(2, 3, 0, 1), weights(1)[0])
    assert plans.count(AS_ROWS) == 2 and "input_rows" not in compiled.ir("source")


def test_leaves_of_several_rows_are_rows_where_that_pays() -> None:
    rng = np.random.default_rng(0)
    x = ft.from_flat(rng.standard_normal((70, 4, H)).astype(np.float32), [[0, 0, 70]])
    _, plans = planned(projected, x, weights(1)[0])
    assert AS_ROWS in plans


def test_a_product_of_two_values_of_a_cell_is_no_row() -> None:
    def own(x: Any, w: Any) -> Any:
        return ft.map(lambda xs: ft.map(lambda e: (e @ pl.transpose(e)) * e @ w, xs), x)

    _, plans = planned(own, jagged(2, 3, 0, 1), weights(1)[0])
    assert plans.startswith("sequential: ") and "every loop chooses shared operands" in plans


def test_the_order_of_leaves_shows_in_their_expressions() -> None:
    i, j = Symbol("i", 1), Symbol("j", 2)
    table = Var("o", TensorType(i64, (None,)))
    start = of(Fetch(table, (of(i),)))
    dims = (Dim(i, number(3)), Dim(j, of(Fetch(table, (of(i) + 1,))) - start))
    assert in_order(start + of(j), dims) and in_order(start + of(j) + 7, dims)
    assert not in_order(start - of(j), dims) and not in_order(start + of(j) * 2, dims) and not in_order(start, dims)
    square = (Dim(i, number(3)), Dim(j, number(4)))
    assert in_order(of(i) * 4 + of(j), square) and not in_order(of(i) * 5 + of(j), square)
    assert not in_order(of(i) + of(j) * 3, square)


def test_means_of_words_are_rows() -> None:
    def normed(x: Any, w: Any) -> Any:
        def one(e: Any) -> Any:
            apart = e - pl.mean(e)
            return apart / pl.sqrt(pl.mean(apart * apart) + 1e-5) @ w + pl.mean(e, axis=1, keepdims=True)

        return ft.map(lambda xs: ft.map(one, xs), x)

    _, plans = planned(normed, jagged(2, 3, 0, 300), weights(1)[0])
    assert AS_ROWS in plans
    several = ft.from_flat(np.random.default_rng(0).standard_normal((70, 4, H)).astype(np.float32), [[0, 0, 70]])
    _, plans = planned(normed, several, weights(1)[0])
    assert AS_ROWS in plans


def test_values_whose_axes_are_exchanged_are_rows() -> None:
    def turned(x: Any, w: Any) -> Any:
        def one(e: Any) -> Any:
            y = e @ w
            return y.T, pl.transpose(y) * 2.0 + e[0, 0], (e.reshape(2, 2).T + 1.0).reshape(1, H) @ w

        return ft.map(lambda xs: ft.map(one, xs), x)

    def slabs(x: Any, w: Any) -> Any:
        return ft.map(lambda xs: ft.map(lambda e: ((e @ w).T, pl.transpose(e)[0:1] * pl.transpose(e @ w)), xs), x)

    _, plans = planned(turned, jagged(2, 3, 0, 300), weights(1)[0])
    assert AS_ROWS in plans
    _, plans = planned(slabs, jagged(2, 3, 0, 70, rows=3), weights(1)[0])
    assert AS_ROWS in plans


def numbered(*lengths: int) -> Any:
    return ft.from_flat(np.arange(sum(lengths)) * 5 % H, [np.cumsum([0, *lengths])])


def picks(x: Any, i: Any, w: Any) -> Any:
    """A loss: of a row of scores the one that a label names."""
    return ft.map(
        lambda p: ft.map(lambda q: pl.log(pl.sum(pl.exp(q[0] @ w))) - (q[0] @ w)[0, q[1]], ft.zip(*p)), ft.zip(x, i)
    )


def parts(x: Any, i: Any, w: Any) -> Any:
    return ft.map(lambda p: ft.map(lambda q: (q[0] @ w)[:, q[1] // 2 : q[1] // 2 + 2], ft.zip(*p)), ft.zip(x, i))


def picked_from_states(x: Any, i: Any, w: Any) -> Any:
    def step(s: Any, q: Any) -> Any:
        return pl.tanh(s @ w + q[0]) * s[0, q[1]]

    return ft.map(lambda p: ft.scan(step, ft.zip(*p), initializer=ft.zeros(1, H) + 0.5), ft.zip(x, i))


def state_as_an_index(x: Any, i: Any, w: Any) -> Any:
    def step(s: Any, q: Any) -> Any:
        return pl.tanh(s[0] @ w) + q[:, s[1] : s[1] + 1], (s[1] + 3) % H

    return ft.map(lambda r: ft.scan(step, r, initializer=(ft.zeros(1, H), 0))[0], x)


@pytest.mark.parametrize(
    ("program", "rows"), [(picks, True), (parts, False), (picked_from_states, None), (state_as_an_index, None)]
)
def test_an_index_of_a_cell_into_its_rows(program: Callable[..., Any], rows: bool | None) -> None:
    """An element is gathered from the rows; parts, which the ends of a tensor would cut, are taken cell by cell."""
    _, plan = planned(program, jagged(40, 0, 70), numbered(40, 0, 70), weights(1).leaves[0])
    assert rows is None or rows == plan.startswith(AS_ROWS)
    assert rows is not False or "where a part of a tensor begins differs from cell to cell" in plan


def test_states_that_choose_an_element() -> None:
    """The way back of the Viterbi algorithm, by planes."""
    back = ft.from_flat(np.arange(36, dtype=np.int32).reshape(9, 4) * 7 % 4, [[0, 5, 5, 9]])
    for plan in ("auto", "wavefront"):

        def program(x: Any, plan: str = plan) -> Any:
            return ft.map(lambda r: ft.scan(lambda s, row: row[s], r, initializer=np.int32(1)), x, schedule=plan)

        same(pto.jit(program)(back), program(back))
