# SPDX-License-Identifier: MIT
"""LLVM's vectoriser is let at scalar loops of the user and at nothing else."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.targets.cpu.loading import LLVM_LOCK, host, target_machine
from pto_jit.targets.cpu.optimising import optimised, with_scalar_loops


@pto.jit(cache=False)
def both(x: pl.Tensor, y: pl.Tensor, z: pl.Tensor):
    with pl.incore():
        pl.store(pl.exp(pl.load(x)), [0], y)
    with pl.incore():
        for i in range(x.shape[0]):
            z[i] = x[i] * 2.0 + 1.0


@pto.jit(cache=False)
def offsets(lengths: pl.Tensor, starts: pl.Tensor, x: pl.Tensor, y: pl.Tensor):
    with pl.incore():
        total = 0
        for i in range(lengths.shape[0]):
            starts[i] = total
            total = total + lengths[i]
    with pl.incore():
        pl.store(pl.exp(pl.load(x)), [0], y)


def _scalar(text: str) -> list[str]:
    (line,) = re.findall(r"^;scalar loops: (.*)$", text, flags=re.M) or [""]
    return line.split()


def test_loops_of_vectors_are_not_for_the_vectoriser_and_scalar_ones_are() -> None:
    x = np.linspace(-1, 1, 1000, dtype=np.float32)
    y, z = np.empty_like(x), np.empty_like(x)
    both(x, y, z)
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)
    np.testing.assert_array_equal(z, x * 2 + 1)
    assert _scalar(both.compile(x, y, z).ir("llvm")) == ["both_incore_1"]


def test_index_arithmetic_beside_tiles_is_not_for_the_vectoriser() -> None:
    lengths = np.arange(5)
    starts = np.empty(5, np.int64)
    x = np.ones(7, np.float32)
    y = np.empty_like(x)
    offsets(lengths, starts, x, y)
    np.testing.assert_array_equal(starts, [0, 0, 1, 3, 6])
    assert _scalar(offsets.compile(lengths, starts, x, y).ir("llvm")) == []


@pto.jit(cache=False)
def looked_up(x: pl.Tensor, places: pl.Tensor, y: pl.Tensor):
    for r in pl.range(0, places.shape[0], 4, parallel=True):
        pl.store(x[pl.load(places, [r], [4]), :] * 2.0, [r, 0], y)


def test_rows_that_are_looked_up_are_not_for_the_vectoriser() -> None:
    x, places, y = np.arange(35, dtype=np.float32).reshape(7, 5), np.arange(9) * 3 % 7, np.zeros((9, 5), np.float32)
    looked_up(x, places, y)
    np.testing.assert_array_equal(y, x[places] * 2)
    assert _scalar(looked_up.compile(x, places, y).ir("llvm")) == []


def _searched(x: pl.Tensor, i: pl.Tensor, y: pl.Tensor, z: pl.Tensor) -> None:
    for r in pl.range(0, x.shape[0], 4, parallel=True):
        t = pl.load(x, [r, 0], [4, 20])
        pl.store(pl.cumsum(t, axis=1), [r, 0], y)
        pl.store(pl.argmax(t, axis=0) + pl.histogram(i[r, :], 20), [0], z[r // 4, :])


def _ordered(x: pl.Tensor, i: pl.Tensor, y: pl.Tensor, z: pl.Tensor) -> None:
    for r in pl.range(x.shape[0], parallel=True):
        values, places = pl.topk(x[r, :], 20)
        y[r, :] = values + pl.gather(x[r, :], i[r, :], axis=0)
        pl.scatter(places, i[r, :], 0, z[r, :])


def _combined(x: pl.Tensor, i: pl.Tensor, y: pl.Tensor, z: pl.Tensor) -> None:
    for r in pl.range(0, x.shape[0], 4, parallel=True):
        t = pl.load(x, [r, 0], [4, 20])
        pl.store(pl.associative_scan(t, 1, lambda a, b: pl.maximum(a, b)), [r, 0], y)
        pl.store(pl.map(lambda a: int(a * 2) if a > 0 else 0, t), [r, 0], z)


@pytest.mark.parametrize("function", [_searched, _ordered, _combined])
def test_operations_on_tiles_are_not_for_the_vectoriser(function: Any) -> None:
    rng = np.random.default_rng(0)
    x, i = rng.standard_normal((8, 20)).astype(np.float32), np.argsort(rng.random((8, 20))).astype(np.int32)
    y, z = np.zeros_like(x), np.zeros_like(i)
    kernel = pto.jit(function, cache=False)
    expected, places = np.zeros_like(x), np.zeros_like(i)
    kernel.interpret(x, i, expected, places)
    kernel(x, i, y, z)
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    np.testing.assert_array_equal(z, places)
    assert _scalar(kernel.compile(x, i, y, z).ir("llvm")) == []


def _told(x: pl.Tensor, n: int, y: pl.Tensor) -> None:
    for j in range(1, x.shape[0]):
        if n == 0:
            y[j] = y[j - 1] + x[j]
        else:
            y[j] = y[j - 1] * x[j]


def _divided(x: pl.Tensor, n: int, y: pl.Tensor) -> None:
    for j in range(1, x.shape[0]):
        y[j] = y[j - 1] + j // n


def _asked(x: pl.Tensor, n: int, y: pl.Tensor) -> None:
    for j in range(1, x.shape[0]):
        if j % 3 == 0:
            n = n + 1
        y[j] = y[j - 1] + (x[j] if n == 0 else j // 2)


@pytest.mark.parametrize(("function", "once"), [(_told, True), (_divided, True), (_asked, False)])
def test_a_branch_that_all_iterations_take_the_same_way_makes_two_loops(function: Any, once: bool) -> None:
    kernel = pto.jit(function, cache=False)
    x, y = np.arange(20, dtype=np.float32), np.zeros(20, np.float32)
    for n in (0, 3):
        if function is not _divided or n:
            kernel(x, n, y)
            expected = np.zeros_like(y)
            function(x, n, expected)
            np.testing.assert_array_equal(y, expected)
    text = kernel.compile(x, 1, y).ir("llvm")
    assert _scalar(text)
    assert (";one takes the same branch" in text) is once


@pto.jit
def life(a, b):
    height, width = a.shape
    for i in pl.range(1, height - 1, parallel=True):
        for j in pl.range(1, width - 1):
            n = a[i - 1, j - 1] + a[i - 1, j] + a[i - 1, j + 1] + a[i, j - 1] + a[i, j + 1]
            n += a[i + 1, j - 1] + a[i + 1, j] + a[i + 1, j + 1]
            if n == 3:
                b[i, j] = 1
            elif n == 2:
                b[i, j] = a[i, j]
            else:
                b[i, j] = 0


def test_rows_with_branches_are_for_the_vectoriser_and_not_for_lanes_across_them() -> None:
    a = np.random.default_rng(0).integers(0, 2, (40, 70)).astype(np.uint8)
    b = np.zeros_like(a)
    life(a, b)
    n = sum(np.roll(a, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)) - a
    expected = (n == 3) | ((a == 1) & (n == 2))
    np.testing.assert_array_equal(b[1:-1, 1:-1], expected[1:-1, 1:-1])
    text = life.compile(a, b).ir("llvm")
    assert _scalar(text) and not re.search(r"<\d+ x i8>", text), "lanes across rows collect every element on its own"


_MODULE = """
define internal i32 @"sum"(ptr %"x", i64 %"n") nounwind
{
entry:
  br label %"loop"
loop:
  %"i" = phi i64 [0, %"entry"], [%"next", %"loop"]
  %"s" = phi i32 [0, %"entry"], [%"t", %"loop"]
  %"p" = getelementptr i32, ptr %"x", i64 %"i"
  %"v" = load i32, ptr %"p"
  %"t" = add i32 %"s", %"v"
  %"next" = add nsw i64 %"i", 1
  %"more" = icmp slt i64 %"next", %"n"
  br i1 %"more", label %"loop", label %"end"
end:
  ret i32 %"t"
}

@"seven" = internal constant i32 7

define i32 @"entry"(ptr %"x", i64 %"n") nounwind
{
entry:
  %"a" = call i32 @"sum"(ptr %"x", i64 %"n")
  %"k" = load i32, ptr @"seven"
LINES  %"b" = add i32 %"a", %"k"
  ret i32 %"b"
}
"""


@pytest.mark.parametrize("lines", [0, 1000])
def test_scalar_loops_are_optimised_apart_when_the_rest_is_large(lines: int) -> None:
    host()
    machine = target_machine(2)
    text = _MODULE.replace("LINES", '  store volatile i32 0, ptr %"x"\n' * lines)
    with LLVM_LOCK:
        ref = optimised(with_scalar_loops(text, ["sum"]), machine)
        ref.verify()
        whole = str(ref)
    assert "x i32>" in whole  # vectors
    assert ("define internal i32 @sum" in whole) == (lines > 0), "else it is inlined"
    assert "hidden" not in whole


@pytest.mark.skipif(not host().triple.startswith("x86"), reason="looks for conditional moves of x86")
def test_choices_that_a_loop_waits_for_are_no_branches() -> None:
    @pto.jit(cache=False)
    def places(a: pl.Tensor, q: pl.Tensor, y: pl.Tensor):
        for i in range(q.shape[0]):
            low = 0
            high = a.shape[0]
            while low < high:
                middle = (low + high) // 2
                if a[middle] < q[i]:
                    low = middle + 1
                else:
                    high = middle
            y[i] = low

    a, q = np.arange(0, 100, 3), np.arange(-2, 104, 5)
    y = np.empty_like(q)
    places(a, q, y)
    np.testing.assert_array_equal(y, np.searchsorted(a, q))
    assert places.compile(a, q, y).ir("assembly").count("cmov") >= 2


@pytest.mark.skipif(not host().triple.startswith("x86"), reason="looks for minima of x86")
def test_minima_of_floats_keep_the_instruction_and_nan() -> None:
    @pto.jit(cache=False)
    def least(x: pl.Tensor, y: pl.Tensor, z: pl.Tensor):
        for i in range(1, x.shape[0]):
            z[i] = min(z[i - 1], x[i]) + min(y[i], x[i])

    nan = np.float32("nan")
    x = np.array([0, 3, nan, 1, -0.0, 2], np.float32)
    y = np.array([0, nan, 1, 2, 0.0, 1], np.float32)
    for first in (5, nan):
        z = np.full(6, first, np.float32)
        expected = z.copy()
        for i in range(1, 6):
            expected[i] = np.minimum(expected[i - 1], x[i]) + np.minimum(y[i], x[i])
        least(x, y, z)
        np.testing.assert_array_equal(z, expected)
    assert "minss" in least.compile(x, y, z).ir("assembly")


@pytest.mark.parametrize("dtype", [pl.bf16, pl.i8, pl.i16, pl.i32])
@pytest.mark.parametrize("columns", [17, 33])
def test_one_lane_that_is_left_writes_one_element(dtype: pto.DType, columns: int) -> None:
    """Of what is computed in wider elements, where LLVM knows that it is one: there is a scalar loop."""

    @pto.jit
    def doubled(y: pl.Tensor[[9, columns], dtype], n):
        k = 0
        while k < n:
            k += 1
        for i in pl.range(9):
            y[i] = pl.cast(pl.cast(y[i], pl.f32 if dtype == pl.bf16 else pl.i64) * 2, dtype)

    y = np.random.default_rng(0).integers(1, 5, (9, columns)).astype(dtype.numpy)
    expected = (y.astype(np.float32) * 2).astype(y.dtype)
    doubled(y, 1)
    np.testing.assert_array_equal(y, expected)


def test_loops_of_numbers_alone_are_optimised() -> None:
    """As loops over elements are: here the sum, with `fastmath`, in vectors."""

    def quarter_turn(n):
        total = 0.0
        for i in range(n):
            x = (i + 0.5) / n
            total += 1.0 / (1.0 + x * x)
        return total / n

    compiled = pto.jit(quarter_turn, fastmath=True, cache=False)
    assert abs(compiled(1000) - np.pi / 4) < 1e-6
    if host().triple.startswith("x86_64"):
        assert "divpd" in compiled.compile(1000).ir("assembly")
