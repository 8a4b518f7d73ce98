# SPDX-License-Identifier: MIT
"""Reductions of numbers in parallel loops by functions of the program, and of some iterations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.bench.kernels.reductions import log_sum_exp, merge
from pto_jit.ir.nodes import For
from pto_jit.ir.parse import parse
from pto_jit.ir.walk import statements
from pto_jit.lower.commuting import commutes

from .harness import emulated, needs_compiler

pytestmark = needs_compiler
RNG = np.random.default_rng(31)


def first_largest(a, b):
    return pl.maximum(a[0], b[0]), pl.where(b[0] > a[0], b[1], a[1])


def after(a, b):
    """One affine function after the other."""
    return a[0] * b[0], a[1] * b[0] + b[1]


@pto.jit
def largest(x: pl.Tensor, out: pl.Tensor):
    best = pl.reduction(init=(-1e30, -1), combine=first_largest)
    for i in pl.range(x.shape[0], parallel=True):
        best.update(x[i], i)
    out[0] = best.value[1]


@pto.jit
def affine(x: pl.Tensor, out: pl.Tensor, scale):
    acc = pl.reduction(init=(1.0, 0.0), combine=after)
    for i in pl.range(1, x.shape[0], 3, parallel=True):
        acc.update(0.9 + scale * x[i], x[i])
    out[0], out[1] = acc.value


def expected_of(fn: Any, x: np.ndarray, *args: Any) -> np.ndarray:
    out = np.full(3, 7, x.dtype)
    fn(x, out, *args)
    return out


@pytest.mark.parametrize("n", [0, 1, 37, 20_000])
@pytest.mark.parametrize("fn, args", [(log_sum_exp, ()), (largest, ()), (affine, (0.01,))], ids=lambda v: getattr(v, "__name__", ""))
def test_functions_of_several_numbers(fn: Any, args: tuple[float, ...], n: int) -> None:
    """As many threads as there are iterations, fewer, and several blocks; equal numbers in different ones."""
    x = RNG.standard_normal(n).astype(np.float32)
    if n > 10:
        x[[5, 7, n - 1]] = 9
    _, (_, out, *_) = emulated(fn, x, np.full(3, 7, np.float32), *args)
    np.testing.assert_allclose(out, expected_of(fn, x, *args), rtol=2e-5, atol=1e-30)


def test_iterations_follow_each_other_in_a_thread_unless_their_order_makes_no_difference() -> None:
    """Neighbouring threads read neighbouring elements where they may."""
    vector = pto.spec((None,), pl.f32)
    kernels = [fn.compile(vector, vector, target="cuda").sources[f"{fn.__name__}_incore_0.cu"] for fn in (log_sum_exp, largest)]
    assert ["pto::share_of<TC>" in text for text in kernels] == [False, True]
    assert "i += TC" in kernels[0] and "++i" not in kernels[1]


@pytest.mark.parametrize(
    "combine, either_way",
    [
        (merge, True), (first_largest, False), (after, False),
        (lambda a, b: (b[0] + a[0], pl.minimum(a[1], b[1])), True),
        (lambda a, b: (a[0], b[1]), False), (lambda a, b: (b[1] + a[0], b[0] + a[1]), False),
        (lambda a, b: (pl.where(b[0] > a[0], 1.0, 0.0) + pl.where(b[0] < a[0], 1.0, 0.0), a[1] * b[1]), True),
        (lambda a, b: (a[0] - b[0], a[1] + b[1]), False),
    ],
)  # fmt: skip
def test_functions_that_commute_are_found_by_their_operations(combine: Any, either_way: bool) -> None:
    @pto.jit
    def kernel(x, out):
        acc = pl.reduction(init=(0.0, 0.0), combine=combine)
        for i in pl.range(x.shape[0], parallel=True):
            acc.update(x[i], x[i])
        out[0], out[1] = acc.value

    module = parse(kernel.compile(pto.spec((None,), pl.f32), pto.spec((None,), pl.f32)).ir("source"))
    (loop,) = (s for s in statements(module.funcs[0].body) if isinstance(s, For))
    assert commutes(loop.reductions[0].combine) == either_way


@pto.jit
def several(x: pl.Tensor, out: pl.Tensor):
    low = pl.reduction(init=(1e30, -1), combine=lambda a, b: (pl.minimum(a[0], b[0]), pl.where(b[0] < a[0], b[1], a[1])))
    count, total, seen = 0, 0.0, 0
    for i in pl.range(x.shape[0], parallel=True):
        if x[i] > 0.5:
            low.update(x[i], i)
            count += 1
        total += x[i]
        seen |= 1 << (i % 20)
    out[0], out[1], out[2], out[3] = low.value[1], count, total, seen


@pytest.mark.parametrize("n", [0, 5, 9000])
def test_several_reductions_of_one_loop(n: int) -> None:
    """Those that have rules beside those that have functions, under conditions."""
    x = RNG.standard_normal(n)
    _, (_, out) = emulated(several, x, np.zeros(4))
    chosen = np.flatnonzero(x > 0.5)
    where = chosen[np.argmin(x[chosen])] if len(chosen) else -1
    np.testing.assert_allclose(out, [where, len(chosen), x.sum(), (1 << min(n, 20)) - 1], rtol=1e-12, atol=1e-12)


@pto.jit
def of_rows(x: pl.Tensor, out: pl.Tensor):
    for r in pl.range(x.shape[0], parallel=True):
        acc = pl.reduction(init=(-1e30, 0.0), combine=merge)
        for i in pl.range(x.shape[1], parallel=True):
            acc.update(x[r, i], 1.0)
        out[r] = acc.value[0] + pl.log(acc.value[1])


@pto.jit
def of_matrix(x: pl.Tensor, out: pl.Tensor):
    best = pl.reduction(init=(-1e30, -1), combine=first_largest)
    for i in pl.range(x.shape[0], chunk=8):
        for j in pl.range(x.shape[1], chunk=16):
            best.update(x[i, j], i * 100 + j)
    out[0] = best.value[1]


def test_reductions_in_loops_and_of_nests() -> None:
    x = RNG.standard_normal((37, 61))
    _, (_, out) = emulated(of_rows, x, np.zeros(37))
    np.testing.assert_allclose(out, np.log(np.exp(x).sum(1)), rtol=1e-12)
    _, (_, out) = emulated(of_matrix, x, np.zeros(1))
    assert out[0] == divmod(int(x.argmax()), 61)[0] * 100 + divmod(int(x.argmax()), 61)[1]


def in_place(combine: str) -> Any:
    @pto.jit
    def kernel(x, out):
        total = 0.0
        for i in pl.range(x.shape[0], chunk=64, combine=combine):
            total += x[i]
            if x[i] > 0:
                out[0] += x[i]
            else:
                out[1] = pl.minimum(out[1], x[i])
        out[2] = total

    return kernel


@pytest.mark.parametrize("combine", ["sequential", "tree", "loop"])
@pytest.mark.parametrize("n", [0, 50, 900])
def test_elements_that_some_iterations_reduce_into(combine: Any, n: int) -> None:
    x = np.arange(n, dtype=np.float32) - n // 3
    _, (_, out) = emulated(in_place(combine), x, np.float32([1, -5, 0]))
    np.testing.assert_array_equal(out, [1 + x[x > 0].sum(), min(-5, *x, 0), x.sum()])


def greatest_divisor(a, b):
    while b != 0:
        a, b = b, a % b
    return a


@pto.jit
def common_divisor(x: pl.Tensor, out: pl.Tensor):
    acc = pl.reduction(init=0, combine=greatest_divisor)
    for i in pl.range(x.shape[0], parallel=True):
        acc.update(x[i])
    out[0] = acc.value


@pytest.mark.parametrize("n", [0, 1, 300])
def test_functions_with_loops(n: int) -> None:
    x = RNG.integers(1, 1000, n) * 6
    _, (_, out) = emulated(common_divisor, x, np.zeros(1, np.int64))
    assert out[0] == (np.gcd.reduce(x) if n else 0)


def test_a_function_that_leaves_its_loop_is_refused() -> None:
    def divisor(a, b):
        while True:
            if b == 0:
                break
            a, b = b, a % b
        return a

    @pto.jit
    def kernel(x, out):
        acc = pl.reduction(init=0, combine=divisor)
        for i in pl.range(x.shape[0], parallel=True):
            acc.update(x[i])
        out[0] = acc.value

    vector = pto.spec((None,), pl.i64)
    with pytest.raises(pto.TargetError, match="by a function that does more than compute numbers"):
        kernel.compile(vector, vector, target="cuda")


@pto.jit
def sums_of_columns(x: pl.Tensor, y: pl.Tensor):
    acc = pl.zeros([1, 70], pl.f32)
    with pl.incore():
        for i in pl.range(0, x.shape[0], 2, parallel=True):
            acc = acc + pl.sum(pl.load(x, [i, 0], [2, 70]), axis=0, keepdims=True)
        y[...] = acc[0]


@pto.jit
def of_several_kinds(x: pl.Tensor, y: pl.Tensor):
    acc, n, total = pl.zeros([70], pl.f32), 0, 0.0
    with pl.incore():
        for i in pl.range(x.shape[0], parallel=True):
            row = x[i, :]
            acc += row * row
            n += 1
            total += pl.sum(row)
        y[...] = acc / n + total


@pto.jit
def of_states(x: pl.Tensor, y: pl.Tensor):
    with pl.incore():
        state = pl.reduction(init=(pl.full([1, 70], -1e30, pl.f32), pl.zeros([1, 70], pl.f32)), combine=merge)
        for i in pl.range(x.shape[0], chunk=2):
            state.update(pl.load(x, [i, 0], [1, 70]), pl.full([1, 70], 1.0, pl.f32))
        top, total = state.value
        y[...] = (top + pl.log(total))[0]


@pto.jit
def into_a_row(x: pl.Tensor, y: pl.Tensor):
    with pl.incore():
        for i in pl.range(x.shape[0], parallel=True):
            y[...] += x[i, :]


@pytest.mark.parametrize("fn", [sums_of_columns, of_several_kinds, of_states, into_a_row], ids=lambda f: f.__name__)
@pytest.mark.parametrize("n", [1, 33, 100])
def test_tiles_are_merged_in_two_steps(fn: Any, n: int) -> None:
    """Sixteen partial results by a block each, then what these have; of tiles that end where their tensor does, too."""
    for columns in (70, 50) if fn in (of_states, into_a_row) else (70,):
        x = RNG.standard_normal((n, columns)).astype(np.float32)
        wanted = np.zeros(columns, np.float32)
        fn(x, wanted)
        _, (_, found) = emulated(fn, x, np.zeros(columns, np.float32))
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
