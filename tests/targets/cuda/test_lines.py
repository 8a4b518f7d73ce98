# SPDX-License-Identifier: MIT
"""Order, running combinations and functions of the program along rows and columns, against the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.device_kernel import emulate
from pto_jit.semantic import interpreter

from .harness import emulated, needs_compiler

pytestmark = needs_compiler
RNG = np.random.default_rng(11)
Array = np.ndarray[Any, Any]


def agree(fn: Any, inputs: list[Any], outputs: list[Array], *rest: Any, orders: tuple[int, ...] = (0, 5)) -> None:
    """What a kernel writes with its threads in several orders is what the interpreter writes: floats are compared
    with room for sums in another order, signs of zeros too."""
    wanted = [o.copy() for o in outputs]
    compiled = pto.jit(fn).compile(*inputs, *outputs, *rest, target="cuda")
    source = compiled._lowered().modules["source"]
    numbers = rest[: len(source.func(source.entry).params) - len(inputs) - len(outputs)]  # others are known before
    with np.errstate(all="ignore"):
        interpreter.run(source, [*inputs, *wanted, *numbers])
    for order in orders:
        got = [o.copy() for o in outputs]
        emulate(compiled, *inputs, *got, *rest, order=order)
        for k, (mine, theirs) in enumerate(zip(got, wanted, strict=True)):
            wide = mine.astype(np.float64), theirs.astype(np.float64)
            room = 1e-2 if mine.dtype.itemsize == 2 else 1e-5
            if mine.dtype.kind in "fV":
                np.testing.assert_allclose(*wide, rtol=room, atol=room, err_msg=f"output {k}")
                numbers = ~np.isnan(wide[0])
                assert (np.signbit(mine) == np.signbit(theirs))[numbers].all(), f"signs in output {k}"
            else:
                np.testing.assert_array_equal(*wide, err_msg=f"output {k}")


def numbers(dtype: Any, rows: int, columns: int) -> Array:
    """Few different numbers, so that many are equal, with what is special about a dtype among them."""
    kind = np.dtype(dtype).kind
    x = RNG.integers(0 if kind == "u" else -40, 40, (rows, columns)).astype(dtype)
    if kind in "iu":
        x.flat[::17], x.flat[5::23] = np.iinfo(dtype).max, np.iinfo(dtype).min
    else:
        x.flat[::17], x.flat[5::23], x.flat[7::31], x.flat[9::31] = np.nan, -0.0, np.inf, -np.inf
    return x


def ordered(x: pl.Tensor, up: pl.Tensor, down: pl.Tensor, largest: pl.Tensor, places: pl.Tensor, first: pl.Tensor,
            R: pl.constexpr, C: pl.constexpr, K: pl.constexpr):  # fmt: skip
    for r in pl.range(0, x.shape[0], R, parallel=True):
        t = pl.load(x, [r, 0], [R, C])
        pl.store(pl.sort(t), [r, 0], up)
        pl.store(pl.sort(t, descending=True), [r, 0], down)
        values, where = pl.topk(t, K)
        pl.store(values, [r, 0], largest)
        pl.store(where, [r, 0], places)
        pl.store(pl.argsort(t), [r, 0], first)


@pytest.mark.parametrize(
    ("dtype", "tile", "shape", "k"),
    [
        (np.float32, (4, 40), (6, 37), 5), (np.float32, (1, 64), (3, 65), 1), (np.float64, (1, 300), (1, 299), 7),
        (np.int8, (1, 1025), (1, 1025), 33), (np.float16, (16, 8), (16, 8), 8), (np.uint64, (2, 33), (3, 33), 2),
    ],
)  # fmt: skip
def test_rows_are_put_in_order(dtype: Any, tile: tuple[int, int], shape: tuple[int, int], k: int) -> None:
    rows, columns = shape[0], shape[1] + 3
    values, places = np.zeros((rows, columns), dtype), np.full((rows, columns), -1, np.int32)
    outputs = [values, values.copy(), values.copy(), places, places.copy()]
    agree(ordered, [numbers(dtype, *shape)], outputs, *tile, k)


def combined(x: pl.Tensor, sums: pl.Tensor, down: pl.Tensor, back: pl.Tensor, most: pl.Tensor):
    for r in pl.range(0, x.shape[0], 16, parallel=True):
        t = pl.load(x, [r, 0], [16, 300])
        pl.store(pl.cumsum(t, axis=1), [r, 0], sums)
        pl.store(pl.cumprod(t * 0.25 + 0.75, axis=0, reverse=True), [r, 0], down)
        pl.store(pl.cumsum(t, axis=1, reverse=True), [r, 0], back)
        pl.store(pl.associative_scan(t, 0, lambda a, b: pl.maximum(a, b)), [r, 0], most)


@pytest.mark.parametrize("shape", [(16, 300), (21, 129)])
def test_running_combinations_along_rows_and_columns(shape: tuple[int, int]) -> None:
    x = (RNG.integers(-3, 4, shape) + 0.5).astype(np.float32)
    agree(combined, [x], [np.zeros(shape, np.float32) for _ in range(4)])


def line_by_line(x: pl.Tensor, y: pl.Tensor, sums: pl.Tensor, ends: pl.Tensor):
    """The recurrence h[t] = y[t] * h[t - 1] + x[t], which is a scan of pairs; a thread has several pieces of a row."""
    def after(earlier, later):
        return later[0] * earlier[0], later[0] * earlier[1] + later[1]

    for r in pl.range(x.shape[0], parallel=True):
        _, h = pl.associative_scan((pl.load(y, [r, 0], [1, 600]), pl.load(x, [r, 0], [1, 600])), 1, after)
        pl.store(h, [r, 0], sums)
        _, last = pl.reduce((pl.load(y, [r, 0], [1, 600]), pl.load(x, [r, 0], [1, 600])), 1, after, init=(1.0, 0.0),
                            keepdims=True)  # fmt: skip
        pl.store(last, [r, 0], ends)


def test_scans_and_folds_of_pairs_by_a_function_keep_its_order() -> None:
    x, y = (RNG.uniform(0.5, 1, (3, 590)).astype(np.float32) for _ in range(2))
    agree(line_by_line, [x, y], [np.zeros((3, 590), np.float32), np.zeros((3, 1), np.float32)])


def folded(x: pl.Tensor, rows: pl.Tensor, columns: pl.Tensor, firsts: pl.Tensor):
    for r in pl.range(0, x.shape[0], 8, parallel=True):
        t = pl.load(x, [r, 0], [8, 40])
        pl.store(pl.reduce(t, 1, lambda a, b: a + b, init=5), [r], rows)
        pl.store(pl.reduce(t, 0, lambda a, b: a ^ b), [r // 8 * 40], columns)
        pl.store(pl.reduce(t, 1, lambda a, b: a, keepdims=True), [r, 0], firsts)


def test_folds_by_a_function() -> None:
    x = RNG.integers(-100, 100, (13, 37)).astype(np.int32)
    agree(folded, [x], [np.zeros(13, np.int32), np.zeros(80, np.int32), np.zeros((13, 1), np.int32)])


def test_a_fold_of_nothing_without_a_start_is_an_error() -> None:
    x, out = np.zeros((8, 0), np.int32), [np.zeros(8, np.int32), np.zeros(40, np.int32), np.zeros((8, 1), np.int32)]
    with pytest.raises(pto.BoundsError, match="empty valid part"):
        emulate(pto.jit(folded).compile(x, *out, target="cuda"), x, *out)


def behind(x: pl.Tensor, y: pl.Tensor):
    for r in pl.range(0, 16, 8, parallel=True):
        pl.store(pl.reduce(pl.load(x, [r, r], [8, 8]), 0, lambda a, b: a + b), [r], y)


def test_a_fold_of_nothing_in_no_place_is_none() -> None:
    agree(behind, [np.ones((5, 6), np.int32)], [np.zeros(16, np.int32)])


def few(x: pl.Tensor, y: pl.Tensor):
    for r in pl.range(x.shape[0], parallel=True):
        values, _ = pl.topk(pl.load(x, [r, 0], [1, x.shape[1]]), 3)
        pl.store(values, [r, 0], y)


def test_there_are_as_many_elements_as_are_wanted() -> None:
    agree(few, [numbers(np.float32, 3, 40)], [np.zeros((3, 3), np.float32)], orders=(0,))
    x, y = np.zeros((3, 2), np.float32), np.zeros((3, 3), np.float32)
    with pytest.raises(pto.LaunchError, match="topk: k = 3 of 2 elements"):
        emulate(pto.jit(few).compile(x, y, target="cuda"), x, y)


def collatz(n):
    steps = 0
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def mapped(x: pl.Tensor, steps: pl.Tensor, low: pl.Tensor, high: pl.Tensor):
    for r in pl.range(0, x.shape[0], 4, parallel=True):
        t = pl.load(x, [r, 0], [4, 40])
        pl.store(pl.map(collatz, t), [r, 0], steps)
        small, large = pl.map(lambda a, b: (pl.minimum(a, b) + r, pl.maximum(a, b)), t, pl.flip(t, 1))
        pl.store(small, [r, 0], low)
        pl.store(large, [r, 0], high)


def spread_by(fn: Callable[..., Any], *specs: Any) -> str:
    """The source of a program's only kernel."""
    (source,) = (s for n, s in pto.jit(fn).compile(*specs, target="cuda").sources.items() if n.endswith(".cu"))
    return source


def many_rows(x: pl.Tensor, up: pl.Tensor, sums: pl.Tensor, last: pl.Tensor):
    for r in pl.range(0, x.shape[0], 64, parallel=True):
        t = pl.load(x, [r, 0], [64, 200])
        pl.store(pl.sort(t), [r, 0], up)
        pl.store(pl.map(lambda v: v + r, pl.cumsum(t, axis=1)), [r, 0], sums)
        pl.store(pl.reduce(t, 1, lambda a, b: b), [r], last)


def test_rows_of_tiles_that_no_block_holds_are_divided_among_blocks() -> None:
    x = RNG.integers(-9, 9, (70, 199)).astype(np.int32)
    assert "part < 64" in spread_by(many_rows, *[pto.spec((None, None), pl.i32)] * 3, pto.spec((None,), pl.i32))
    agree(many_rows, [x], [np.zeros_like(x), np.zeros_like(x), np.zeros(70, np.int32)], orders=(5,))


def multiplied(x: pl.Tensor, y: pl.Tensor, up: pl.Tensor, sums: pl.Tensor, down: pl.Tensor, last: pl.Tensor):
    for r in pl.range(0, x.shape[0], 32, parallel=True):
        product = pl.load(x, [r, 0], [32, 16]) @ pl.load(y, [0, 0], [16, 40])
        pl.store(pl.sort(product), [r, 0], up)
        pl.store(pl.cumsum(product, axis=1, reverse=True), [r, 0], sums)
        pl.store(pl.cumsum(product, axis=0), [r, 0], down)
        pl.store(pl.cumsum(pl.max(product, axis=1)), [r], last)


def test_the_same_of_tiles_that_products_make() -> None:
    x, y = (RNG.integers(-2, 3, s).astype(np.float32) for s in ((40, 16), (16, 37)))
    agree(multiplied, [x, y], [np.zeros((40, 37), np.float32) for _ in range(3)] + [np.zeros(40, np.float32)])


def test_known_functions_need_no_function_of_the_kernel() -> None:
    shape = pto.spec((None, None), pl.f32)
    source = spread_by(combined, *[shape] * 5)
    assert "pto::Maximum<float>()" in source and "Maybe" not in source


@pytest.mark.parametrize("rows", [3, 32, 33])
def test_running_sums_of_a_column(rows: int) -> None:
    """A column that a reduction or `squeeze` leaves lies down the threads, and so do its running sums."""

    @pto.jit
    def kernel(x, o):
        t = pl.load(x, [0, 0], [64, 4])
        column = pl.squeeze(t[:, 0:1], 1)
        pl.store(pl.cumsum(column, reverse=True) + pl.cumsum(pl.sum(t, axis=1)), [0], o)

    x = (np.arange(rows * 4) % 9 - 4).reshape(rows, 4).astype(np.float32)
    expected = np.cumsum(x[::-1, 0])[::-1] + np.cumsum(x.sum(1))
    _, (_, actual) = emulated(kernel, x, np.zeros(rows, np.float32))
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u1", "?"])
@pytest.mark.parametrize(("columns", "k"), [(33, 2), (64, 8), (64, 9), (1000, 5), (7, 8)])
def test_the_few_largest_elements(dtype: str, columns: int, k: int) -> None:
    """Looked for one after the other up to 8, by a sort beyond; of equal ones the first, NaN before all numbers last."""

    @pto.jit
    def kernel(x, values, places):
        for r in pl.range(0, x.shape[0], 2, parallel=True):
            found, at = pl.topk(pl.load(x, [r, 0], [2, max(columns, k)]), k)
            pl.store(found, [r, 0], values)
            pl.store(at, [r, 0], places)

    x = (np.random.default_rng(k).integers(0, 9, (5, columns)) - 4).astype(dtype)
    if dtype[0] == "f":
        x[0, ::5], x[1], x[2, 3:5] = np.nan, -0.0, np.inf
        x[1, 2] = 0.0
    given = [np.zeros((5, k), dtype), np.full((5, k), -1, np.int32)]
    expected = [a.copy() for a in given]
    kernel.interpret(x, *expected)
    _, (_, *actual) = emulated(kernel, x, *given, orders=(1,))
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, b)
        assert (np.signbit(a) == np.signbit(b)).all() if dtype[0] == "f" and a.dtype.kind == "f" else True
