# SPDX-License-Identifier: MIT
"""With `fastmath` chains of products are computed in the order that takes the fewest multiply-adds."""

from __future__ import annotations

import random
import re
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from pto_jit.ir.parse import parse
from pto_jit.semantic import interpreter

RNG = np.random.default_rng(0)


def orders(compiled: Any) -> list[str]:
    return [d.reason for d in compiled.decisions if d.reason.startswith("fastmath:")]


def multiply_adds(text: str) -> int:
    """Of the products in a program's text, by the types of their results and operands."""
    shapes = {m[1]: tuple(map(int, m[2].split("x"))) for m in re.finditer(r"%([\w.]+) = .*tile<([\dx]+)xf", text)}
    found = re.findall(r"= tdot %([\w.]+), %([\w.]+)", text)
    return sum(shapes[a][0] * shapes[a][1] * shapes[b][1] for a, b in found)


def least(extents: tuple[int, ...]) -> int:
    """Of all orders of a chain."""

    @lru_cache
    def of(i: int, j: int) -> int:
        ways = [of(i, k) + of(k, j) + extents[i] * extents[k] * extents[j] for k in range(i + 1, j)]
        return min(ways, default=0)

    return of(0, len(extents) - 1)


def chain(extents: tuple[int, ...], grouping: Any, dtype: Any) -> Any:
    """A kernel that multiplies matrices as `grouping`, pairs of pairs of places, says."""

    def of(matrices: Any, group: Any) -> Any:
        return matrices[group] if isinstance(group, int) else of(matrices, group[0]) @ of(matrices, group[1])

    types = [pl.Tensor[[m, n], dtype] for m, n in pairwise(extents)]

    def kernel(matrices, y):
        y[:] = of(tuple(pl.load(m, [0, 0], list(t.shape)) for m, t in zip(matrices, types, strict=True)), grouping)

    return pto.jit(fastmath=True, cache=False)(kernel)


def grouped(random: random.Random, first: int, end: int) -> Any:
    if end - first == 1:
        return first
    middle = random.randrange(first + 1, end)
    return grouped(random, first, middle), grouped(random, middle, end)


@pytest.mark.parametrize("seed", range(40))
def test_random_chains_take_no_more_than_they_need(seed: int) -> None:
    """Up to the factor for which another rounding is not worth it."""
    r = random.Random(seed)
    count = r.randrange(3, 7)
    extents = tuple(r.choice((1, 2, 5, 16, 33, 64)) for _ in range(count + 1))
    dtype, name = r.choice(((np.float32, pl.f32), (np.float64, pl.f64)))
    matrices = tuple(RNG.standard_normal((m, n)).astype(dtype) for m, n in pairwise(extents))
    y = np.empty((extents[0], extents[-1]), dtype)
    kernel = chain(extents, grouped(r, 0, count), name)
    compiled = kernel.compile(matrices, y)
    before, after = multiply_adds(compiled.ir("trimmed")), multiply_adds(compiled.ir("associated"))
    assert after <= before
    assert before == after or orders(compiled)
    assert after <= 1.25 * least(extents)
    compiled(matrices, y)
    exact = [m.astype(np.float64) for m in matrices]
    bound, want = np.abs(exact[0]), exact[0]
    for m in exact[1:]:
        bound, want = bound @ np.abs(m), want @ m
    assert (np.abs(y - want) <= sum(extents) * np.finfo(dtype).eps * bound).all()


@pto.jit
def as_written(a: pl.Tensor[[64, 4], pl.f32], b: pl.Tensor[[4, 64], pl.f32], c: pl.Tensor[[64, 4], pl.f32], y):
    y[:] = (a @ b) @ c


@pto.jit(fastmath=True)
def in_any_order(a: pl.Tensor[[64, 4], pl.f32], b: pl.Tensor[[4, 64], pl.f32], c: pl.Tensor[[64, 4], pl.f32], y):
    y[:] = (a @ b) @ c


def test_without_fastmath_the_order_is_that_of_the_program() -> None:
    a, b, c, y = (RNG.standard_normal(s, np.float32) for s in ((64, 4), (4, 64), (64, 4), (64, 4)))
    assert "associated" not in as_written.compile(a, b, c, y).stages
    compiled = in_any_order.compile(a, b, c, y)
    (reason,) = orders(compiled)
    assert "(a @ b) @ c is computed as a @ (b @ c): 0.062 of the multiply-adds" in reason
    compiled(a, b, c, y)
    np.testing.assert_allclose(y, a @ (b @ c), rtol=1e-4, atol=1e-4)


def test_the_interpreter_of_every_stage_agrees() -> None:
    a, b, c = (RNG.standard_normal(s, np.float32) for s in ((64, 4), (4, 64), (64, 4)))
    compiled = in_any_order.compile(a, b, c, np.empty_like(a))
    for stage in ("trimmed", "associated", "hoisted", "outlined", compiled.stages[-3]):
        y = np.empty_like(a)
        interpreter.run(parse(compiled.ir(stage)), [a, b, c, y])
        np.testing.assert_allclose(y, a @ (b @ c), rtol=1e-4, atol=1e-4)


@pto.jit(fastmath=True)
def used_twice(a: pl.Tensor[[64, 4], pl.f32], b: pl.Tensor[[4, 64], pl.f32], c: pl.Tensor[[64, 4], pl.f32], y, z):
    s = a @ b
    y[:] = s @ c
    z[:] = s


def test_a_product_that_is_needed_itself_is_computed() -> None:
    a, b, c, y = (RNG.standard_normal(s, np.float32) for s in ((64, 4), (4, 64), (64, 4), (64, 4)))
    z = np.empty((64, 64), np.float32)
    assert not orders(used_twice.compile(a, b, c, y, z))
    used_twice(a, b, c, y, z)
    np.testing.assert_allclose(z, a @ b, rtol=1e-4, atol=1e-4)


@pto.jit(fastmath=True)
def tiles(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
    return pl.load(a, [0, 0], [64, 4]) @ pl.load(b, [0, 0], [4, 64]) @ pl.load(c, [0, 0], [64, 4])


def test_products_of_integers_and_of_other_ranks_are_left_alone() -> None:
    """Integers have no rounding that could be another one; stacks of matrices stay as they are."""
    a, b, c = (np.ones(s, np.int32) for s in ((64, 4), (4, 64), (64, 4)))
    assert not orders(tiles.compile(a, b, c))
    np.testing.assert_array_equal(tiles(a, b, c), a @ b @ c)


@pto.jit(fastmath=True)
def with_a_sum(
    a: pl.Tensor[[64, 4], pl.f32], b: pl.Tensor[[4, 64], pl.f32], c: pl.Tensor[[64, 4], pl.f32], d: pl.Tensor
):
    with pl.incore():
        acc = pl.load(d, [0, 0], [64, 4])
        acc = pl.dot(pl.dot(pl.load(a, [0, 0], [64, 4]), pl.load(b, [0, 0], [4, 64])), pl.load(c, [0, 0], [64, 4]), acc)
        pl.store(acc, [0, 0], d)


def test_what_a_chain_is_added_to_is_added_once() -> None:
    a, b, c, d = (RNG.standard_normal(s, np.float32) for s in ((64, 4), (4, 64), (64, 4), (64, 4)))
    assert orders(with_a_sum.compile(a, b, c, d))
    want = d + a @ (b @ c)
    with_a_sum(a, b, c, d)
    np.testing.assert_allclose(d, want, rtol=1e-4, atol=1e-4)


@pto.jit(fastmath=True)
def back_to_back(blocks, b, c):
    return ft.map(lambda a: (a @ b) @ c, blocks)


@pytest.mark.parametrize("rows", [1, 32])
def test_a_product_that_the_loop_does_not_change_counts_once(rows: int) -> None:
    """Of one row the order is worth it only because there are many of them."""
    a, b, c = (RNG.standard_normal(s, np.float32) for s in ((96, 16), (16, 64), (64, 16)))
    blocks = ft.from_flat(a.reshape(-1, rows, 16))
    compiled = back_to_back.compile(blocks, b, c)
    assert orders(compiled)
    assert [d for d in compiled.decisions if d.kind == "hoist"]
    np.testing.assert_allclose(back_to_back(blocks, b, c).leaves.reshape(96, 16), a @ (b @ c), rtol=1e-4, atol=1e-4)


def test_operands_that_do_not_fit_are_shown_where_they_are_multiplied() -> None:
    a, b, c = (RNG.standard_normal(s, np.float32) for s in ((96, 16), (16, 64), (63, 16)))
    with pytest.raises(pto.LaunchError) as caught:
        back_to_back(ft.from_flat(a.reshape(-1, 32, 16)), b, c)
    assert "(a @ b) @ c" in str(caught.value)
    assert "64 and 63" in str(caught.value)


@pto.jit(fastmath=True)
def few_rows(x: pl.Tensor[[None, 16], pl.f32], b: pl.Tensor[[16, 32], pl.f32], c: pl.Tensor[[32, 16], pl.f32]):
    y = pl.zeros(x.shape, pl.f32)
    with pl.incore():
        for i in pl.range(0, x.shape[0], 4, parallel=True):
            p = pl.load(x, [i, 0], [4, 16]) @ pl.load(b, [0, 0], [16, 32])
            pl.store(p @ pl.load(c, [0, 0], [32, 16]), [i, 0], y)
    return y


def test_a_product_counts_in_every_iteration_where_it_does_not_leave_the_loop() -> None:
    """On devices it does not: four rows are cheaper as they are written."""
    x, b, c = (RNG.standard_normal(s, np.float32) for s in ((64, 16), (16, 32), (32, 16)))
    assert orders(few_rows.compile(x, b, c))
    np.testing.assert_allclose(few_rows(x, b, c), x @ (b @ c), rtol=1e-4, atol=1e-4)
    compiled = few_rows.compile(x, b, c, target="cuda")
    assert "associated" in compiled.stages
    assert not orders(compiled)
