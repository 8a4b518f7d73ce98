# SPDX-License-Identifier: MIT
"""Written programs, kernels and host code, run on the CPU with the pipes in several orders, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.bench.kernels import attention, elementwise, grids, matrix, reductions, rows

from .harness import SEEDS, Programs, needs_compiler, written

VECTOR, MATRIX = pto.spec((None,), pl.f32), pto.spec((None, None), pl.f32)
WIDTH = pto.spec((None, 32), pl.f32)
WIDE = pto.spec((None, 96), pl.f32)
HALF = pto.spec((None, None), pl.f16)
pytestmark = needs_compiler


@pto.jit
def many(x: pl.Tensor, v: pl.Tensor, w: pl.Tensor, out: pl.Tensor, top: pl.Tensor, low: pl.Tensor):
    """Broadcasts in both directions, choices, reductions along both axes."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 16, parallel=True):
            t = pl.load(x, [r, 0], [16, 96])
            column = pl.load(v, [r, 0], [16, 1])
            row = pl.load(w, [0], [96])
            y = (column - t) / (1.0 + pl.abs(row)) + 2.0
            y = pl.where((y > 1.0) & ~(t < 0.25), pl.sqrt(pl.abs(y)), pl.maximum(t, -y) * column)
            y = pl.where(pl.isnan(y), 0.0, y) + pl.sign(t) + pl.floor(t)
            pl.store(y, [r, 0], out)
            pl.store(pl.max(y, axis=1, keepdims=True) - pl.min(t, axis=1, keepdims=True), [r, 0], top)
            pl.store(pl.sum(y, axis=0, keepdims=True), [r // 16, 0], low)


@pto.jit
def whole(n: pl.Tensor, x: pl.Tensor, out: pl.Tensor):
    """Integers, and numbers in f16."""
    with pl.incore():
        for r in pl.range(0, n.shape[0], 8, parallel=True):
            k = pl.load(n, [r, 0], [8, 40])
            h = pl.load(x, [r, 0], [8, 40])
            at = pl.reshape(pl.arange(0, 40), [1, 40])
            k = pl.where(k <= at, k * 3 - 1, pl.maximum(-k, k))
            pl.store(pl.exp(h * 0.5).to(pl.f32) + k.to(pl.f32), [r, 0], out)


@pto.jit
def running(x: pl.Tensor, out: pl.Tensor):
    """State that a loop carries: an online softmax's denominator."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 16, parallel=True):
            top = pl.full([16, 1], -1e30, pl.f32)
            total = pl.zeros([16, 1], pl.f32)
            for c in pl.range(0, x.shape[1], 32):
                t = pl.load(x, [r, c], [16, 32])
                new = pl.maximum(top, pl.max(t, axis=1, keepdims=True))
                total = total * pl.exp(top - new) + pl.sum(pl.exp(t - new), axis=1, keepdims=True)
                top = new
            pl.store(top + pl.log(total), [r, 0], out)


@pto.jit
def product(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
    """a @ b.T, a tile of the result at a time, in slices."""
    (m, k), n = a.shape, b.shape[0]
    with pl.incore():
        for i in pl.range(0, m, 32, parallel=True):
            for j in pl.range(0, n, 48, parallel=True):
                acc = pl.zeros([32, 48], pl.f32)
                for p in pl.range(0, k, 64):
                    acc = pl.dot(pl.load(a, [i, p], [32, 64]), pl.load(b, [j, p], [48, 64]).T, acc)
                pl.store(acc, [i, j], c)


@pto.jit
def leaning(a, b, x, y, out):
    """A row and a column behind a product, on vector cores that take fewer rows at a time."""
    out[...] = (a @ b) * (x + y[:, None])


@pto.jit
def weighted(a: pl.Tensor, b: pl.Tensor, out: pl.Tensor, sums: pl.Tensor):
    """Products before and after other work, a transposed operand that is computed, all in one loop."""
    with pl.incore():
        for i in pl.range(0, a.shape[0], 32, parallel=True):
            scores = pl.load(a, [i, 0], [32, 48]) @ pl.load(b, [0, 0], [64, 48]).T
            weights = pl.exp(scores - pl.max(scores, axis=1, keepdims=True)).to(pl.f16)
            total = pl.sum(weights.to(pl.f32), axis=1, keepdims=True)
            pl.store(weights @ pl.load(b, [0, 0], [64, 48]) / total, [i, 0], out)
            pl.store(pl.dot((weights * 2.0).T, pl.load(a, [i, 0], [32, 48])), [i * 2, 0], sums)


@pto.jit
def counted(x: pl.Tensor, w1: pl.Tensor, w2: pl.Tensor, out: pl.Tensor):
    """Rows that are numbered before the products tell how many there are."""
    with pl.incore():
        for i in pl.range(0, x.shape[0], 16, parallel=True):
            row = i + pl.reshape(pl.arange(0, 16), [16, 1])
            t = pl.load(x, [i, 0], [16, 32]) @ pl.load(w1, [0, 0], [32, 64])
            t = pl.where(pl.reshape(pl.arange(0, 64), [1, 64]) <= row, t, 0.0)
            pl.store(t @ pl.load(w2, [0, 0], [64, 32]), [i, 0], out)


@pto.jit
def summed(a: pl.Tensor, b: pl.Tensor, out: pl.Tensor):
    """Products that are added up in a loop, and what is done with the sum after it."""
    with pl.incore():
        for i in pl.range(0, a.shape[0], 16, parallel=True):
            acc = pl.zeros([16, 48], pl.f32)
            for k in pl.range(0, a.shape[1], 16):
                acc = pl.dot(pl.load(a, [i, k], [16, 16]), pl.load(b, [k, 0], [16, 48]), acc)
            pl.store(acc * 0.5, [i, 0], out)


@pto.jit
def of_bytes(a: pl.Tensor, b: pl.Tensor, out: pl.Tensor):
    """A sum of products of i8, in tiles of fewer elements than a fractal of them has."""
    for i in pl.range(0, a.shape[0], 16, parallel=True):
        for j in pl.range(0, b.shape[1], 16, parallel=True):
            acc = pl.zeros([16, 16], pl.i32)
            for k in pl.range(0, a.shape[1], 48):
                acc += pl.dot(pl.load(a, [i, k], [16, 48]), pl.load(b, [k, j], [48, 16]))
            pl.store(acc, [i, j], out)


@pto.jit
def positive(x: pl.Tensor, out: pl.Tensor):
    """Whole tensors."""
    out[:, :] = x[:, :] > 1.0


@pto.jit
def above(x: pl.Tensor, out: pl.Tensor):
    """Planes of the program's own loop, which are not divided."""
    for _ in pl.range(1, parallel=True):
        t = x[:, :]
        out[:, :] = t > pl.max(t)


@pto.jit
def scans(x: pl.Tensor, along: pl.Tensor, down: pl.Tensor, lines: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], parallel=True):
            t = pl.load(x, [r, 0], [1, 80])
            pl.store(pl.cumsum(t) - pl.cumsum(t, reverse=True), [r, 0], along)
        for r in pl.range(0, x.shape[0], 20, parallel=True):
            t = pl.load(x, [r, 0], [20, 80])
            pl.store(pl.cumprod(t, axis=0) + pl.cumsum(t, axis=0, reverse=True), [r, 0], down)
            pl.store(pl.cumsum(pl.max(t, axis=1, keepdims=True), axis=0, reverse=True), [r, 0], lines)
            pl.store(pl.cumprod(pl.load(x, [r, 3], [1, 50]), axis=1), [r, 1], lines)


@pto.jit
def functions(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor):
    """What the core has no instruction for."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], parallel=True):
            t, u = pl.load(x, [r, 0], [1, 64]), pl.load(y, [r, 0], [1, 64])
            pl.store(pl.gelu(t), [r, 0], out[0])
            pl.store(pl.erf(t), [r, 0], out[1])
            pl.store(pl.tanh(t), [r, 0], out[2])
            pl.store(pl.exp2(t), [r, 0], out[3])
            pl.store(pl.expm1(t), [r, 0], out[4])
            pl.store(pl.log1p(pl.abs(t)), [r, 0], out[5])
            pl.store(pl.pow(pl.abs(t), u), [r, 0], out[6])
            pl.store(pl.atan2(t, u), [r, 0], out[7])
            v = t
            for _ in pl.range(2):
                v = pl.fma(v, u, v)
            pl.store(v, [r, 0], out[8])


@pto.jit
def called(x: pl.Tensor, n: pl.Tensor, out: pl.Tensor):
    """A function several times, of tiles and of columns, and of a variable that it is assigned to; comparisons."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t, k = pl.load(x, [r, 0], [8, 64]), pl.load(n, [r, 0], [8, 64])
            a = pl.tanh(t) + pl.tanh(pl.max(t, axis=1, keepdims=True))
            for _ in pl.range(2):
                a = pl.tanh(a * 2.0)
            none = pl.zeros([8, 64], pl.f32)
            few = pl.where(k < 3, 1.0, none) + pl.where(k <= -4, 2.0, none) + pl.where(k == 5, 4.0, none)
            some = pl.where(k > 1, 8.0, none) + pl.where(k >= 2, 16.0, none) + pl.where(a >= 0.5, 32.0, none)
            pl.store(pl.tanh(a + t) + few + some, [r, 0], out)


@pto.jit
def padded(x: pl.Tensor, h: pl.Tensor, n: pl.Tensor, line: pl.Tensor, s: float, out: pl.Tensor, low: pl.Tensor):
    """Tiles that reach over the ends of their tensors, or lie outside."""
    with pl.incore():
        for r in pl.range(0, out.shape[1], 8, parallel=True):
            pl.store(pl.load(x, [r, 0], [8, 64], pad=-1.0), [r, 0], out[0])
            pl.store(pl.load(x, [r + 3, 7], [8, 64], pad=s), [r, 0], out[1])
            half = pl.load(h, [r, 2], [8, 64], pad=0.5).to(pl.f32)
            whole = pl.load(n, [r, 60], [8, 64], pad=7).to(pl.f32)
            pl.store(half + whole + pl.load(line, [r], [64], pad=2.0), [r, 0], out[2])
            total = pl.zeros([8, 64], pl.f32)
            for c in pl.range(0, 150, 50):
                total += pl.load(x, [r, c], [8, 64], pad=1.0)
            pl.store(total, [r, 0], out[3])
            pl.store(pl.load(low, [r, 1], [8, 1], pad=9.0) + pl.load(low, [r, 0], [8, 1], pad=3.0), [r, 0], low)


@pto.jit
def reduced(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor):
    """Functions that take another way where arguments are large."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], parallel=True):
            t = pl.load(x, [r, 0], [1, 64])
            pl.store(pl.sin(t), [r, 0], out[0])
            pl.store(pl.fmod(t, pl.load(y, [r, 0], [1, 64])), [r, 0], out[1])


@pto.jit
def some_rows(x: pl.Tensor, y: pl.Tensor):
    """Tiles of fewer rows and columns than their tensors have, one after the other."""
    total = pl.load(x, [0, 0], [1, 20]) * 1.0
    for k in pl.static_range(1, 3):
        total = total + pl.load(x, [k, 0], [1, 20]) * float(k + 1)
    pl.store(total, [1, 0], y)


@pto.jit
def tall(x: pl.Tensor, weight: pl.Tensor, out: pl.Tensor):
    """Rows in tiles that are too large for the unified buffer, but for strips of them."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 48, parallel=True):
            best = pl.full([48, 1], -3e38, pl.f32)
            for c in pl.range(0, x.shape[1], 1024):
                t = pl.load(x, [r, c], [48, 1024]) * pl.load(weight, [0, c], [1, 1024])
                best = pl.maximum(best, pl.max(t, axis=1, keepdims=True))
            pl.store(best, [r, 0], out)


@pto.jit
def onto_first(x: pl.Tensor, out: pl.Tensor):
    """Tiles of other rows of one tensor, in strips."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 64, parallel=True):
            pl.store(pl.load(x, [r, 0], [64, 1000]) + pl.load(x, [0, 0], [64, 1000]), [r, 0], out)


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "some_rows": (some_rows, (MATRIX,) * 2),
    "vector_add": (elementwise.vector_add, (VECTOR,) * 3),
    "softmax": (rows.softmax, (WIDE,) * 2),
    "softmax_f16": (rows.softmax, (HALF,) * 2),
    "layer_norm": (rows.layer_norm, (MATRIX, VECTOR, VECTOR, MATRIX)),
    "cross_entropy": (rows.cross_entropy, (MATRIX, pto.spec((None,), pl.i32), VECTOR)),
    "gelu": (elementwise.gelu_tanh, (WIDE,) * 2),
    "many": (many, (WIDE, pto.spec((None, 1), pl.f32), pto.spec((96,), pl.f32), WIDE, pto.spec((None, 1), pl.f32), WIDE)),
    "whole": (whole, (pto.spec((None, 40), pl.i32), pto.spec((None, 40), pl.f16), pto.spec((None, 40), pl.f32))),
    "running": (running, (MATRIX, pto.spec((None, 1), pl.f32))),
    "product": (product, (HALF, HALF, MATRIX)),
    "matmul_bf16": (matrix.matmul_bf16, (pto.spec((None, None), pl.bf16),) * 3),
    "attention": (attention.attention_causal, (pto.spec((None, None, 64), pl.f32),) * 4),
    "turned": (attention.attention_causal_turned, (pto.spec((None, None, 64), pl.f32),) * 4),
    "column_softmax": (reductions.column_softmax, (MATRIX,) * 2),
    "tall": (tall, (MATRIX,) * 3),
    "onto_first": (onto_first, (MATRIX,) * 2),
    "leaning": (leaning, (HALF, HALF, VECTOR, VECTOR, MATRIX)),
    "weighted": (weighted, (pto.spec((None, 48), pl.f16), pto.spec((64, 48), pl.f16), MATRIX, MATRIX)),
    "stencil5": (grids.stencil5, (MATRIX,) * 2),
    "counted": (counted, (WIDTH, pto.spec((32, 64), pl.f32), pto.spec((64, 32), pl.f32), WIDTH)),
    "scans": (scans, (pto.spec((None, 80), pl.f32),) * 4),
    "reduced": (reduced, (pto.spec((None, 64), pl.f32),) * 2 + (pto.spec((2, None, 64), pl.f32),)),
    "functions": (functions, (pto.spec((None, 64), pl.f32),) * 2 + (pto.spec((9, None, 64), pl.f32),)),
    "called": (called, (MATRIX, pto.spec((None, None), pl.i32), MATRIX)),
    "padded": (padded, (MATRIX, HALF, pto.spec((None, None), pl.i32), VECTOR, 2.0, pto.spec((4, None, 64), pl.f32),
                        pto.spec((None, 1), pl.f32))),
    "summed": (summed, (HALF, HALF, MATRIX)),
    "of_bytes": (of_bytes, (pto.spec((None, None), pl.i8),) * 2 + (pto.spec((None, None), pl.i32),)),
    "positive": (positive, (MATRIX, pto.spec((None, None), pl.bool_))),
    "above": (above, (MATRIX, pto.spec((None, None), pl.bool_))),
    "bias_gelu": (matrix.matmul_bias_gelu, (MATRIX, MATRIX, VECTOR, MATRIX)),
}  # fmt: skip


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return Programs(
        {name: written(fn, *specs) for name, (fn, specs) in CASES.items()}, tmp_path_factory.mktemp("ascend")
    )


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def check(programs: Programs, name: str, wanted: dict[str, np.ndarray], rtol: float = 2e-6, **arguments: Any) -> None:
    """Run with every seed; outputs (filled with NaN before) are compared with what is wanted."""
    for seed in SEEDS:
        mine = {k: np.full_like(v, np.nan if v.dtype.kind == "f" else 0) if k in wanted else v
                for k, v in arguments.items()}  # fmt: skip
        programs.run(name, seed, **mine)
        for output, value in wanted.items():
            got = mine[output].astype(np.float64)
            np.testing.assert_allclose(got, value, rtol=rtol, atol=rtol * max(1.0, np.abs(value).max()), err_msg=name)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def test_a_vector_that_ends_inside_a_tile(programs: Programs) -> None:
    a, b = numbers(9000), numbers(9000)[::-1].copy()
    check(programs, "vector_add", {"out": a + b}, rtol=0, a=a, b=b, out=a)


def test_rows_in_blocks(programs: Programs) -> None:
    x = numbers(75, 96)
    check(programs, "softmax", {"y": softmax(x.astype(np.float64))}, x=x, y=x)


def test_f16_is_computed_with_in_f32_where_it_has_to_be(programs: Programs) -> None:
    x = numbers(5, 50, dtype=np.float16)
    check(programs, "softmax_f16", {"y": softmax(x.astype(np.float64))}, rtol=2e-3, x=x, y=x)


def test_run_time_extents(programs: Programs) -> None:
    x, w, b = numbers(9, 77), numbers(77), numbers(77)[::-1].copy()
    c = x - x.mean(1, keepdims=True)
    wanted = c / np.sqrt((c * c).mean(1, keepdims=True) + 1e-5) * w + b
    check(programs, "layer_norm", {"y": wanted}, rtol=1e-5, x=x, weight=w, bias=b, y=x)


def test_numbers_that_are_made_of_tiles(programs: Programs) -> None:
    x = numbers(13, 30)
    labels = np.arange(13, dtype=np.int32) * 2
    wanted = np.log(np.exp(x.astype(np.float64)).sum(1)) - x[np.arange(13), labels]
    check(programs, "cross_entropy", {"loss": wanted}, logits=x, labels=labels, loss=numbers(13))


def test_an_activation(programs: Programs) -> None:
    x = numbers(20, 96) * 3
    check(programs, "gelu", {"out": gelu(x.astype(np.float64))}, x=x, out=x)


def test_functions_are_the_recipes_of_all_targets(programs: Programs) -> None:
    """With a fused multiply-add they give the bits of the cpu target, of special values too."""
    x, y = numbers(30, 64) * 4, numbers(64, 30).reshape(30, 64)
    x[0, :9] = 0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -13, 30, 1
    out, wanted = np.full((2, 9, 30, 64), np.nan, np.float32)
    programs.run("functions", 7, x=x, y=y, out=out)
    functions(x, y, wanted)
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("rows", [24, 19, 5])
def test_loads_with_a_pad_value(programs: Programs, rows: int) -> None:
    x, h, line = numbers(rows, 70), numbers(rows, 40, dtype=np.float16), numbers(30)
    x[2, 3:6] = np.nan, -0.0, 1e-40
    n = np.arange(rows * 64, dtype=np.int32).reshape(rows, 64)
    out, low = np.full((4, 24, 64), np.nan, np.float32), numbers(24, 1)
    wanted = out.copy(), low.copy()
    padded(x, h, n, line, 2.0, *wanted)
    for seed in SEEDS:
        mine = out.copy(), low.copy()
        programs.run("padded", seed, x=x, h=h, n=n, line=line, s=2, out=mine[0], low=mine[1])
        for a, b in zip(mine, wanted, strict=True):
            np.testing.assert_array_equal(a.view(np.int32), b.view(np.int32))


def test_a_function_that_is_called_several_times(programs: Programs) -> None:
    x, n = numbers(21, 50) * 3, np.random.default_rng(2).integers(-6, 7, (21, 50)).astype(np.int32)
    x[1, :6] = 0, -0.0, np.inf, -np.inf, np.nan, 1e-40
    wanted = np.full_like(x, np.nan)
    called(x, n, wanted)
    for seed in SEEDS:
        out = np.full_like(x, np.nan)
        programs.run("called", seed, x=x, n=n, out=out)
        out[1, np.isnan(wanted[1])] = np.nan  # the maximum of the row with a NaN is the core's
        np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("scale", [4, 1e30])
def test_large_arguments_are_reduced_exactly(programs: Programs, scale: float) -> None:
    x, y = (numbers(30, 64) * scale).astype(np.float32), numbers(64, 30).reshape(30, 64)
    x[0, :6] = 0, -0.0, np.inf, -np.inf, np.nan, 1e-40
    out, wanted = np.full((2, 2, 30, 64), np.nan, np.float32)
    programs.run("reduced", 7, x=x, y=y, out=out)
    reduced(x, y, wanted)
    np.testing.assert_array_equal(out, wanted)


def test_broadcasts_choices_and_reductions(programs: Programs) -> None:
    x, v, w = numbers(40, 96), numbers(40, 1), numbers(96)
    out, top, low = x.copy(), v.copy(), numbers(3, 96)
    expected = [out.copy(), top.copy(), low.copy()]
    many.interpret(x, v, w, *expected)
    check(programs, "many", dict(zip(("out", "top", "low"), expected, strict=True)), rtol=1e-5,
          x=x, v=v, w=w, out=out, top=top, low=low)  # fmt: skip


def test_integers_and_f16(programs: Programs) -> None:
    n = np.random.default_rng(1).integers(-50, 50, (19, 40)).astype(np.int32)
    x, out = numbers(19, 40, dtype=np.float16), numbers(19, 40)
    wanted = np.empty_like(out)
    whole.interpret(n, x, wanted)
    check(programs, "whole", {"out": wanted}, rtol=1e-3, n=n, x=x, out=out)


def test_what_a_loop_carries(programs: Programs) -> None:
    x = numbers(37, 150)
    wanted = np.log(np.exp(x.astype(np.float64)).sum(1, keepdims=True))
    check(programs, "running", {"out": wanted}, x=x, out=numbers(37, 1))


def test_a_product_with_ragged_edges(programs: Programs) -> None:
    a, b = numbers(70, 150, dtype=np.float16), numbers(100, 150, dtype=np.float16)
    wanted = a.astype(np.float64) @ b.astype(np.float64).T
    check(programs, "product", {"c": wanted}, a=a, b=b, c=numbers(70, 100))


def test_a_product_of_whole_tensors(programs: Programs) -> None:
    a, b = (numbers(*s).astype(ml_dtypes.bfloat16) for s in ((40, 130), (130, 50)))
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    out = np.zeros((40, 50), ml_dtypes.bfloat16)
    programs.run("matmul_bf16", 0, a=a, b=b, c=out)
    np.testing.assert_allclose(out.astype(np.float64), wanted, rtol=1e-2, atol=1e-1)


def test_a_product_and_what_is_done_with_it(programs: Programs) -> None:
    a, b, bias = numbers(70, 40), numbers(40, 150), numbers(150)
    wanted = gelu((a.astype(np.float64) @ b) * 40**-0.5 + bias)
    check(programs, "bias_gelu", {"c": wanted}, rtol=1e-5, a=a, b=b, bias=bias, c=numbers(70, 150))


def test_elements_are_taken_in_lines(programs: Programs) -> None:
    x, out = numbers(5, 4200), numbers(3, 4198)
    near = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2].astype(np.float64) + x[1:-1, 2:]
    check(programs, "stencil5", {"out": 0.2 * (x[1:-1, 1:-1] + near)}, x=x, out=out)
    with pytest.raises(RuntimeError, match="trap"):  # indices beyond a tensor
        programs.run("stencil5", 0, x=x, out=numbers(3, 4199))


@pytest.mark.parametrize(("name", "heads", "length"), [("attention", 2, 130), ("attention", 21, 1), ("turned", 1, 150),
                                                       ("turned", 1, 261)])  # fmt: skip
def test_attention_on_groups_of_cores(programs: Programs, name: str, heads: int, length: int) -> None:
    q, k, v = (numbers(heads + n, length, 64)[n:] for n in range(3))
    scores = np.einsum("hid,hjd->hij", q.astype(np.float64), k) / 8
    weights = np.exp(scores - scores.max(-1, keepdims=True)) * np.tril(np.ones((length, length)))
    wanted = weights / weights.sum(-1, keepdims=True) @ v
    check(programs, name, {"out": wanted}, q=q, k=k, v=v, out=q)


@pytest.mark.parametrize(("rows", "columns"), [(9, 2 * 16384 + 77), (70, 100)])
def test_a_reduction_in_chunks_of_columns(programs: Programs, rows: int, columns: int) -> None:
    """Three kernels that pass their state through memory: partial results, a tree of sums, the softmax."""
    x = numbers(rows, columns)
    wanted = np.exp(x - x.max(1, keepdims=True).astype(np.float64))
    check(programs, "column_softmax", {"y": wanted / wanted.sum(1, keepdims=True)}, rtol=1e-5, x=x, y=x)


def test_tiles_in_strips(programs: Programs) -> None:
    x, weight = numbers(55, 1030), numbers(1, 1030)
    check(programs, "tall", {"out": (x * weight).max(1, keepdims=True)}, x=x, weight=weight, out=numbers(55, 1))


def test_strips_are_of_tiles_of_as_many_valid_rows(programs: Programs) -> None:
    """Though 16 rows and 64 are whole strips."""
    x = numbers(128, 24)
    wanted = np.concatenate([x[:64] + x[:64], x[64:] + x[:64]])
    check(programs, "onto_first", {"out": wanted}, x=x, out=x)
    with pytest.raises(RuntimeError, match="trap"):
        programs.run("onto_first", x=numbers(80, 24), out=numbers(80, 24))


def test_products_between_other_work(programs: Programs) -> None:
    a, b = numbers(50, 48, dtype=np.float16), numbers(64, 48, dtype=np.float16)
    scores = a.astype(np.float32) @ b.astype(np.float32).T
    weights = np.exp(scores - scores.max(1, keepdims=True)).astype(np.float16).astype(np.float64)
    out, sums = numbers(50, 48), numbers(128, 48)
    wanted = 2 * np.concatenate([weights[:32].T @ a[:32], weights[32:].T @ a[32:]])
    check(programs, "weighted", {"out": weights @ b / weights.sum(1, keepdims=True), "sums": wanted}, rtol=2e-3,
          a=a, b=b, out=out, sums=sums)  # fmt: skip


@pytest.mark.parametrize(("rows", "columns"), [(37, 21), (130, 140)])
def test_rows_and_columns_behind_a_product(programs: Programs, rows: int, columns: int) -> None:
    a, b = numbers(rows, 48, dtype=np.float16), numbers(48, columns, dtype=np.float16)
    x, y = numbers(columns), numbers(rows)
    wanted = (a.astype(np.float64) @ b.astype(np.float64)) * (x + y[:, None])
    check(programs, "leaning", {"out": wanted}, rtol=1e-4, a=a, b=b, x=x, y=y, out=numbers(rows, columns))


@pytest.mark.parametrize("rows", [1, 16, 37])
def test_a_sum_of_products_is_used_after_its_loop(programs: Programs, rows: int) -> None:
    """By vector cores that take half of the rows each, as many as the loop around the products says."""
    a, b = numbers(rows, 70, dtype=np.float16), numbers(70, 48, dtype=np.float16)
    wanted = 0.5 * (a.astype(np.float64) @ b.astype(np.float64))
    check(programs, "summed", {"out": wanted}, rtol=1e-5, a=a, b=b, out=numbers(rows, 48))


def test_a_sum_of_products_of_bytes(programs: Programs) -> None:
    random = np.random.default_rng(3)
    a, b = (random.integers(-128, 128, s).astype(np.int8) for s in ((37, 100), (100, 21)))
    out = np.zeros((37, 21), np.int32)
    for seed in SEEDS:
        programs.run("of_bytes", seed, a=a, b=b, out=out)
        np.testing.assert_array_equal(out, a.astype(np.int32) @ b.astype(np.int32))


def test_tiles_of_two_run_time_extents_are_as_large_as_fit(programs: Programs) -> None:
    x = numbers(70, 80)
    check(programs, "above", {"out": x > x.max()}, x=x, out=x > 0)
    with pytest.raises(RuntimeError, match="x_d1 is at most 80"):
        programs.run("above", x=numbers(3, 400), out=numbers(3, 400) > 0)


@pytest.mark.parametrize("shape", [(90, 100), (3, 4000), (1000, 3)])
def test_whole_tensors_have_any_size(programs: Programs, shape: tuple[int, int]) -> None:
    x = numbers(*shape)
    check(programs, "positive", {"out": x > 1}, x=x, out=x > 0)


def test_rows_that_are_counted_early(programs: Programs) -> None:
    x, w1, w2 = numbers(40, 32), numbers(32, 64), numbers(64, 32)
    wanted = np.where(np.arange(64) <= np.arange(40)[:, None], x.astype(np.float64) @ w1, 0) @ w2
    check(programs, "counted", {"out": wanted}, rtol=1e-5, x=x, w1=w1, w2=w2, out=x)


def test_scans_in_both_directions(programs: Programs) -> None:
    x = numbers(37, 80)
    outputs = {"along": x.copy(), "down": x.copy(), "lines": np.zeros((37, 80), np.float32)}
    wanted = {k: v.copy() for k, v in outputs.items()}
    scans.interpret(x, *wanted.values())
    for seed in SEEDS:
        mine = {k: v.copy() for k, v in outputs.items()}
        programs.run("scans", seed, x=x, **mine)
        for k, v in wanted.items():
            np.testing.assert_allclose(mine[k], v, rtol=1e-5, atol=1e-4, err_msg=k)


def test_tiles_may_be_smaller_than_what_they_are_loaded_from_and_stored_into(programs: Programs) -> None:
    x = numbers(5, 30)
    for shape in ((2, 20), (3, 24)):
        wanted = np.full(shape, np.nan, np.float32)
        wanted[1, :20] = x[0, :20] + 2 * x[1, :20] + 3 * x[2, :20]
        check(programs, "some_rows", {"y": wanted}, x=x, y=wanted)
    with pytest.raises(RuntimeError, match="results are not larger"):
        programs.run("some_rows", x=x, y=numbers(2, 18))


def test_a_launch_says_what_it_cannot_take(programs: Programs) -> None:
    x = numbers(3, 200)
    with pytest.raises(RuntimeError, match="x_d1 is at most"):
        programs.run("above", 0, x=x, out=np.zeros(x.shape, np.bool_))
    with pytest.raises(RuntimeError, match="PTO-H201: the valid extents of the tiles differ along axis 0: 50 and 40"):
        programs.run("layer_norm", 0, x=x[:, :50].copy(), weight=numbers(40), bias=numbers(50), y=x[:, :50].copy())
