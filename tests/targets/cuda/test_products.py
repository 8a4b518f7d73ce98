# SPDX-License-Identifier: MIT
"""Matrix products: tiles, whole tensors, attention; on the (emulated) tensor cores and off them."""

from __future__ import annotations

import math
import os
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.bench.kernels import attention, grids, matrix
from pto_jit.device_kernel import emulate
from pto_jit.targets.cuda import devices, driver
from pto_jit.targets.cuda.spreads import LARGEST, fit

from .harness import emulated, needs_compiler

pytestmark = needs_compiler
RNG = np.random.default_rng(6)


def normal(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


@pto.jit
def tiled(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
    (m, k), n = a.shape, b.shape[1]
    for i in pl.range(0, m, 32, parallel=True):
        for j in pl.range(0, n, 48, parallel=True):
            acc = pl.zeros([32, 48], c.dtype)
            for p in pl.range(0, k, 16):
                acc = pl.dot(pl.load(a, [i, p], [32, 16]), pl.load(b, [p, j], [16, 48]), acc)
            pl.store(acc, [i, j], c)


@pytest.mark.parametrize("dtype", [np.float64, ml_dtypes.bfloat16, np.int8])
def test_tiled_products_of_every_kind(dtype: type) -> None:
    whole = np.dtype(dtype).kind == "i"
    a, b = ((RNG.integers(-9, 9, s).astype(dtype) if whole else normal(*s, dtype=dtype)) for s in ((45, 50), (50, 70)))
    kind = np.int32 if whole else np.float64 if dtype is np.float64 else np.float32
    _, (*_, c) = emulated(tiled, a, b, np.zeros((45, 70), kind), orders=(0, 5))
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=2e-5, atol=2e-4)


@pto.jit
def large_operands(a: pto.f32[40, 96], b: pto.f32[96, 64], c: pto.f32[40, 64]):
    for i in pl.range(0, 40, 16, parallel=True):
        pl.store(pl.load(a, [i, 0], [16, 96]) @ pl.load(b, [0, 0], [96, 64]) + 1.0, [i, 0], c)


def test_large_operands_of_a_kernel_are_read_in_slices() -> None:
    a, b = normal(40, 96), normal(96, 64)
    given = a, b, np.zeros((40, 64), np.float32)
    specs = [pto.spec(x.shape, pl.f32) for x in given]
    (kernel,) = [t for n, t in large_operands.compile(*specs, target="cuda").sources.items() if n.endswith(".cu")]
    assert "< 96; p += 32" in kernel and "wait_for_stage" in kernel
    _, (*_, c) = emulated(large_operands, *given, orders=(0, 5))
    np.testing.assert_allclose(c, a @ b + 1, rtol=2e-5, atol=2e-4)


def test_operands_of_any_layout() -> None:
    b = normal(48, 70)  # and rows that are a multiple of 16 bytes apart, but begin at none
    wide = np.lib.stride_tricks.as_strided(normal(50 * 56 + 1)[1:], (50, 48), (224, 4))
    _, (*_, c) = emulated(tiled, wide, b, np.zeros((50, 70), np.float32), orders=(0, 1))
    np.testing.assert_allclose(c, wide @ b, rtol=2e-5, atol=2e-4)
    a, b = normal(50, 45), normal(71, 50)
    _, (*_, c) = emulated(tiled, a.T, b.T[:, 1:], np.zeros((45, 70), np.float32), orders=(0, 1))
    np.testing.assert_allclose(c, a.T @ b.T[:, 1:], rtol=2e-5, atol=2e-4)


def test_whole_products_with_what_follows_them() -> None:
    a, b, bias = normal(150, 40), normal(40, 140), normal(140)
    _, (*_, c) = emulated(matrix.matmul_bias_gelu, a, b, bias, np.zeros((150, 140), np.float32), orders=(0, 1))
    x = (a.astype(np.float64) @ b) / math.sqrt(40) + bias
    np.testing.assert_allclose(c, 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
                               rtol=1e-4, atol=1e-4)  # fmt: skip


def test_products_of_products() -> None:
    x, gate, up, down = normal(5, 30), normal(30, 140), normal(30, 140), normal(140, 30)
    _, (*_, out) = emulated(matrix.swiglu, x, gate, up, down, np.zeros((5, 30), np.float32), orders=(0, 1))
    g = x.astype(np.float64) @ gate
    np.testing.assert_allclose(out, (g / (1 + np.exp(-g)) * (x @ up)) @ down, rtol=1e-3, atol=1e-3)


def test_a_long_contraction_in_slices() -> None:
    a, b = normal(20, 300, dtype=ml_dtypes.bfloat16), normal(300, 30, dtype=ml_dtypes.bfloat16)
    _, (*_, c) = emulated(matrix.matmul_bf16_tiled, a, b, np.zeros((20, 30), ml_dtypes.bfloat16), orders=(0, 5))
    expected = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_allclose(c.astype(np.float32), expected, rtol=2**-7, atol=2e-2)


def test_warps_of_a_scheduler_copy_operands_in_turns() -> None:
    """Of the eight warps of a tile four copy before the product, four after it; exact products have no use for that."""
    a, b = normal(50, 330, dtype=ml_dtypes.bfloat16), normal(330, 200, dtype=ml_dtypes.bfloat16)
    compiled = matrix.matmul_bf16_tiled.compile(a, b, np.zeros((50, 200), ml_dtypes.bfloat16), target="cuda")
    [kernel] = compiled._kernel.built.program.host.kernels.values()
    assert fit(kernel, {}, [(128, 256)], [1, 1], 1 << 20)[0].block == (256, 1, 1)
    assert kernel.source.count("if (early && ") == kernel.source.count("if (!early && ") == 1
    exact = matrix.matmul_tiled.compile(*[pto.spec((None, None), pl.f32)] * 3, target="cuda")
    assert "early" not in exact.sources["matmul_tiled_incore_0.cu"]
    _, (*_, c) = emulated(matrix.matmul_bf16_tiled, a, b, np.zeros((50, 200), ml_dtypes.bfloat16), orders=(0, 1, 5))
    expected = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_allclose(c.astype(np.float32), expected, rtol=2**-7, atol=2e-2)


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    q, k, v = (t.astype(np.float64) for t in (q, k, v))
    s = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[2])
    if causal:
        s = np.where(np.tri(s.shape[1], dtype=bool), s, -np.inf)
    e = np.exp(s - s.max(axis=2, keepdims=True))
    return e / e.sum(axis=2, keepdims=True) @ v


@pytest.mark.parametrize("causal", [True])
def test_attention(causal: bool) -> None:
    q, k, v = (normal(2, 150, 24) for _ in range(3))
    fn = attention.attention_causal if causal else attention.attention
    _, (*_, out) = emulated(fn, q, k, v, np.zeros_like(q), orders=(0, 5))
    np.testing.assert_allclose(out, reference(q, k, v, causal), rtol=2e-5, atol=2e-6)


def test_queries_that_do_not_depend_on_each_other_are_divided_among_blocks() -> None:
    q, k, v = (normal(1, 256, 64) for _ in range(3))
    fn, specs = attention.attention_causal_turned, [pto.spec((None, None, 64), pl.f32)] * 4
    compiled = fn.compile(*specs, target="cuda")
    sources = compiled.sources
    assert "For compute capability 8.0" in sources["README.md"]  # keys and weights take turns in one piece of memory
    assert "part < 128" in sources["attention_incore_0.cu"] and "* 64; part" in sources["attention_incore_0.cu"]
    for order in (0, 5):
        out = np.zeros_like(q)
        emulate(compiled, q, k, v, out, order=order)
        np.testing.assert_allclose(out, reference(q, k, v, True), rtol=2e-5, atol=2e-6)


@pto.jit
def turned_twice(a: pto.f32[40, 24], b: pto.f32[24, 48], y: pto.f32[48, 20], z: pto.f32[20, 40]):
    with pl.incore():
        t = pl.exp(pl.load(a, [0, 0], [40, 24]) @ pl.load(b, [0, 0], [24, 48]) * 0.1)
        pl.store(t.T @ pl.load(z, [0, 0], [20, 40]).T, [0, 0], y)
        pl.store(pl.load(y, [0, 0], [48, 20]).T @ t.T, [0, 0], z)


def test_computed_tiles_are_operands_on_either_side_as_they_stand() -> None:
    a, b, z = normal(40, 24), normal(24, 48), normal(20, 40)
    _, (_, _, y, out) = emulated(turned_twice, a, b, np.zeros((48, 20), np.float32), z, orders=(0, 1, 5))
    t = np.exp(a @ b * 0.1)
    np.testing.assert_allclose(y, t.T @ z.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(out, y.T @ t.T, rtol=1e-4, atol=1e-3)


@pto.jit
def attention_16(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, out: pl.Tensor):
    heads, length, dim = q.shape
    for h in pl.range(heads, parallel=True):
        for i in pl.range(0, length, 64, parallel=True):
            queries = pl.load(q[h], [i, 0], [64, dim])
            top = pl.full([64, 1], -math.inf, pl.f32)
            total = pl.zeros([64, 1], pl.f32)
            acc = pl.zeros([64, dim], pl.f32)
            for j in pl.range(0, length, 64):
                scores = (queries @ pl.load(k[h], [j, 0], [64, dim]).T) * 0.2
                new = pl.maximum(top, pl.max(scores, axis=1, keepdims=True))
                shrink, weights = pl.exp(top - new), pl.exp(scores - new)
                total = total * shrink + pl.sum(weights, axis=1, keepdims=True)
                acc = pl.dot(weights.to(q.dtype), pl.load(v[h], [j, 0], [64, dim]), acc * shrink)
                top = new
            pl.store((acc / total).to(q.dtype), [i, 0], out[h])


@pytest.mark.parametrize("dtype", [np.float16])
def test_results_of_a_product_are_operands_of_the_next_in_registers(dtype: type) -> None:
    q, k, v = (normal(2, 100, 40, dtype=dtype) for _ in range(3))
    _, (*_, out) = emulated(attention_16, q, k, v, np.zeros_like(q), orders=(0, 5))
    s = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1) * 0.2
    e = np.exp(s - s.max(axis=2, keepdims=True))
    expected = e / e.sum(axis=2, keepdims=True) @ v.astype(np.float64)
    size = 2e-3 if dtype is np.float16 else 2e-2
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=4 * size, atol=size)
    assert "multiply_from_registers" in next(
        t for n, t in attention_16.compile(q, k, v, out, target="cuda").sources.items() if n.endswith(".cu")
    )


def test_without_room_for_two_copies_of_a_tile_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = normal(45, 50), normal(50, 70)
    compiled = tiled.compile(a, b, np.zeros((45, 70), np.float32), target="cuda")
    (kernel,) = compiled._kernel.built.program.host.kernels.values()
    defines = dict(fit(kernel, {}, [(32, 48)], [2, 2], 1 << 20)[0].defines)
    two = kernel.shared_bytes({**defines, "STAGES": 2})
    for room, stages in ((two - 1, 1), (two, 2), (8 * two, 3)):
        assert dict(fit(kernel, {}, [(32, 48)], [2, 2], room)[0].defines)["STAGES"] == stages
    monkeypatch.setattr(devices.EmulatedDevice, "shared_limit", two - 1)
    _, (*_, c) = emulated(tiled, a, b, np.zeros((45, 70), np.float32), orders=(0, 5))
    np.testing.assert_allclose(c, a @ b, rtol=2e-5, atol=2e-4)


def test_warps_share_a_result_so_that_they_read_least() -> None:
    """64 x 64 sums for a warp on tensor cores; where rows are reduced a warp has whole rows."""
    half, small = pto.spec((4096, 4096), pl.bf16), pto.spec((1024, 1024), pl.bf16)
    heads = pto.spec((None, None, 64), pl.f16)
    for fn, spec, size, expected in (
        (matrix.matmul_bf16, small, (128, 64), (4, 1)), (matrix.matmul_bf16, half, (128, 256), (2, 4)),
        (matrix.matmul_bf16_tiled, half, (128, 256), (2, 4)), (attention_16, heads, (64, 64), (4, 1)),
    ):  # fmt: skip
        args = (spec,) * (3 if fn is not attention_16 else 4)
        (kernel,) = fn.compile(*args, target="cuda")._kernel.built.program.host.kernels.values()
        assert fn is attention_16 or max(tuple(e.value for e in s) for s in kernel.shapes) == size
        defines = dict(fit(kernel, {m: 64 for m, _ in kernel.capacities}, [size], [9, 9], 227 * 1024)[0].defines)
        assert (defines["WM"], defines["WN"], defines["STAGES"]) == (*expected, 3)


@pto.jit
def turned_scores(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, out: pl.Tensor):
    """Attention with a column of scores for each query: the sums of the queries are turned to divide rows."""
    length, dim = q.shape
    for i in pl.range(0, length, 32, parallel=True):
        queries = (pl.load(q, [i, 0], [32, dim]) * 0.2).T
        total = pl.zeros([1, 32], pl.f32)
        acc = pl.zeros([32, dim], pl.f32)
        for j in pl.range(0, length, 48):
            weights = pl.exp(pl.load(k, [j, 0], [48, dim]) @ queries)
            total = total + pl.sum(weights, axis=0, keepdims=True)
            acc = pl.dot(weights.T, pl.load(v, [j, 0], [48, dim]), acc)
        pl.store(acc / total.T, [i, 0], out)


def test_transposes_of_tiles_in_registers() -> None:
    q, k, v = (normal(64, 24) for _ in range(3))
    _, (*_, out) = emulated(turned_scores, q, k[:48], v[:48], np.zeros_like(q), orders=(0, 5))
    e = np.exp(q.astype(np.float64) @ k[:48].T * 0.2)
    np.testing.assert_allclose(out, e / e.sum(axis=1, keepdims=True) @ v[:48], rtol=2e-5, atol=2e-6)


def test_a_convolution_as_products_of_run_time_extents() -> None:
    x, weight = normal(6, 9, 20), normal(3, 3, 20, 24)
    _, (*_, out) = emulated(grids.conv3x3, x, weight, np.zeros((4, 7, 24), np.float32), orders=(0, 1))
    expected = sum(x[dy : dy + 4, dx : dx + 7] @ weight[dy, dx] for dy in range(3) for dx in range(3))
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


@pto.jit
def few_queries(q: pl.Tensor, k: pl.Tensor, out: pl.Tensor):
    """Attention of 4 rows to 512 others, whose scores are more than one warp has registers for."""
    for r in pl.range(0, q.shape[0], 4, parallel=True):
        keys = pl.load(k, [0, 0], [512, 16])
        scores = pl.dot(pl.load(q, [r, 0], [4, 16]), pl.transpose(keys))
        e = pl.exp(scores - pl.max(scores, axis=1, keepdims=True))
        pl.store(pl.dot(e, keys) / pl.sum(e, axis=1, keepdims=True), [r, 0], out)


def test_rows_of_exact_products_are_shared_by_warps_where_one_has_too_few_registers() -> None:
    q, k = normal(6, 16), normal(500, 16)
    if "PTO_TEST_GPU" in os.environ and driver.device_of(()).shared_limit < LARGEST:
        pytest.skip("the tiles need a device whose blocks have 227 KB of shared memory")
    _, (_, _, out) = emulated(few_queries, q, k, np.zeros_like(q), orders=(0, 1))
    e = np.exp((q @ k.T).astype(np.float64))
    np.testing.assert_allclose(out, e / e.sum(axis=1, keepdims=True) @ k, rtol=1e-4, atol=1e-5)
    [kernel] = few_queries.compile(q, k, out, target="cuda")._kernel.built.program.host.kernels.values()
    spread, _ = fit(kernel, {}, [(4, 512)], [2], 1 << 20)
    assert kernel.whole_rows and dict(spread.defines)["WN"] == 4


def test_blocks_that_share_operands_take_places_by_groups() -> None:
    """Where rows of the grid share left operands and columns right ones, on tensor cores."""
    half, single = pto.spec((None, None), pl.bf16), pto.spec((None, None), pl.f32)
    heads = pto.spec((None, None, 64), pl.f16)
    for fn, specs, grouped in (
        (matrix.matmul_bf16, (half,) * 3, True), (matrix.matmul_bf16_tiled, (half,) * 3, True),
        (matrix.matmul, (single,) * 3, False), (attention_16, (heads,) * 4, False),
    ):  # fmt: skip
        for kernel in fn.compile(*specs, target="cuda")._kernel.built.program.host.kernels.values():
            assert ("pto::grouped_place<" in kernel.source) == (grouped and not kernel.streams), fn


def test_attention_in_f16_is_all_on_tensor_cores() -> None:
    """Weights are rounded once, where they become operands; tiles that are valid as a whole are not masked."""
    q, k, v = (normal(1, 160, 64, dtype=np.float16) for _ in range(3))
    compiled = attention.attention_causal_wide.compile(q, k, v, q, target="cuda")
    source = compiled.sources["attention_incore_0.cu"]
    assert "pto::multiply<" not in source and source.count("pto::multiply_from_registers<") == 2
    before, _, loops = source.partition("for (int64_t j")  # queries are rounded before the loops that multiply them
    assert before.count("pto::pack_tile<") == 1 and loops.count("pto::multiply_packed<") == 2
    assert "] = pto::rounded_to_half(" not in source  # products and stores round
    assert source.count("if (Spread::fills_columns(") == 4
    _, (*_, out) = emulated(attention.attention_causal_wide, q, k, v, np.zeros_like(q), orders=(0, 5))
    np.testing.assert_allclose(out.astype(np.float64), reference(q, k, v, True), rtol=4e-3, atol=4e-3)


@pto.jit
def one_left_operand(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
    for i in pl.range(0, a.shape[0], 16, parallel=True):
        x = pl.load(a, [i, 0], [16, 40], pad=0)
        for j in pl.range(0, c.shape[1], 16):
            pl.store((x @ pl.load(b, [0, j], [40, 16]) + pl.sum(x)).to(c.dtype), [i, j], c)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_left_operand_that_a_loop_reads_again_is_prepared_once(dtype: type) -> None:
    """Rounded for tensor cores, or put into shared memory; also where it was loaded and something else reads it."""
    a, b = normal(35, 40, dtype=dtype), normal(40, 70, dtype=dtype)
    compiled = one_left_operand.compile(a, b, np.zeros((35, 70), dtype), target="cuda")
    before, _, loop = compiled.sources["one_left_operand_incore_0.cu"].partition("for (int64_t j")
    prepared = "pto::pack_tile<" if dtype is np.float16 else "pto::keep_tile<"
    assert before.count(prepared) == 1 and prepared not in loop
    _, (*_, c) = emulated(one_left_operand, a, b, np.zeros((35, 70), dtype), orders=(0, 5))
    x = np.zeros((48, 40))
    x[:35] = a
    sums = np.repeat(x.reshape(3, -1).sum(axis=1), 16)[:35, None]
    close = {"rtol": 4e-3, "atol": 2e-1} if dtype is np.float16 else {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(c.astype(np.float64), a.astype(np.float64) @ b + sums, **close)


def test_operands_of_products_that_follow_each_other_have_one_memory() -> None:
    """Of extents that only a launch knows, each with a bound of its own: the memory is that of the largest."""
    args = [pto.spec(s, pl.f32) for s in ((None, None, 64), (3, 3, 64, 64), (None, None, 64))]
    (kernel,) = grids.conv3x3.compile(*args, target="cuda")._kernel.built.program.host.kernels.values()
    macros = [macro for macro, _ in kernel.capacities]
    bounds = {macro: 16 * (k + 1) for k, macro in enumerate(macros)}
    assert len(macros) > 1
    row = 4 * (64 + 4)
    assert kernel.shared_bytes({"WM": 1, "WN": 1, "STAGES": 3, **bounds}) == row * (max(bounds.values()) + 64)


@pto.jit
def few_rows(x: pl.Tensor, w: pl.Tensor[[48, 192], pl.f32], b: pl.Tensor[[1, 192], pl.f32], y: pl.Tensor):
    for r in pl.range(0, x.shape[0], 32, parallel=True):
        t = pl.dot(pl.load(x, [r, 0], [32, 48]), pl.load(w, [0, 0], [48, 192]))
        pl.store(pl.maximum(t + pl.load(b, [0, 0], [1, 192]), 0.0), [r, 0], y)


@pto.jit
def few_rows_twice(x: pl.Tensor, w: pl.Tensor[[48, 192], pl.f32], u: pl.Tensor[[192, 128], pl.f32], y: pl.Tensor):
    for r in pl.range(0, x.shape[0], 32, parallel=True):
        t = pl.dot(pl.load(x, [r, 0], [32, 48]), pl.load(w, [0, 0], [48, 192]))
        pl.store(pl.dot(t, pl.load(u, [0, 0], [192, 128])), [r, 0], y)


def test_columns_of_few_rows_are_divided_among_blocks_where_no_product_is_computed_twice() -> None:
    x, w, b, u = normal(70, 48), normal(48, 192), normal(1, 192), normal(192, 128)
    chains = []
    for fn, given, columns in ((few_rows, (x, w, b), 192), (few_rows_twice, (x, w, u), 128)):
        y = np.zeros((70, columns), np.float32)
        (kernel,) = fn.compile(*given, y, target="cuda")._kernel.built.program.host.kernels.values()
        chains.append([loop.stop for loop in kernel.chain][1:])
        _, (*_, found) = emulated(fn, *given, y, orders=(0, 5))
        wanted = np.maximum(x @ w + b, 0) if fn is few_rows else x @ w @ u
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert [[getattr(stop, "value", None) for stop in stops] for stops in chains] == [[192], []]


@pto.jit
def gram_of_columns(x, y):
    rows, columns = x.shape
    with pl.incore():
        t = pl.load(x, [0, 0], [rows, columns]).T
        pl.store(t @ t.T, [0, 0], y)


def test_what_a_computed_operand_has_beyond_its_tile_is_zero() -> None:
    x = np.arange(16 * 33, dtype=np.int32).reshape(16, 33) % 7
    _, (_, found) = emulated(gram_of_columns, x, np.zeros((33, 33), np.int32), orders=(0,))
    np.testing.assert_array_equal(found, x.T @ x)


def test_blocks_with_most_to_do_come_first() -> None:
    """The last queries of causal attention see most keys; they come first, those of several heads one after the other."""
    compiled = attention.attention_causal_wide.compile(*[pto.spec((None, None, None), pl.f16)] * 4, target="cuda")
    [kernel] = [text for name, text in compiled.sources.items() if name.endswith(".cu")]
    assert "int64_t h = int64_t(pto::grouped_place<16>().y);" in kernel
    assert "int64_t i = (int64_t(gridDim.x - 1 - pto::grouped_place<16>().x)) * 128;" in kernel
    plain = attention.attention_wide.compile(*[pto.spec((None, None, None), pl.f16)] * 4, target="cuda")
    assert not any("gridDim.x - 1" in text for text in plain.sources.values())


@pto.jit
def triangular(x: pl.Tensor, y: pl.Tensor):
    n = x.shape[1]
    for r in pl.range(x.shape[0], parallel=True):
        for i in pl.range(0, n, 8, parallel=True):
            total = pl.zeros([1, 8], pl.f32)
            for j in pl.range(0, min(i // 8 * 8 + 16, n), 8):
                total += pl.load(x, [r, j], [1, 8])
            pl.store(total, [r, i], y)


def test_a_grid_that_runs_backwards_has_all_iterations() -> None:
    x = normal(5, 48)
    _, (_, y) = emulated(triangular, x, np.zeros_like(x), orders=(0, 5))
    steps = np.cumsum(x.reshape(5, 6, 8), axis=1)
    want = np.concatenate([steps[:, 1:], steps[:, -1:]], axis=1).reshape(5, 48)
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)
    compiled = triangular.compile(x, y, target="cuda")
    assert any("gridDim.x - 1 - blockIdx.x" in text for text in compiled.sources.values())


@needs_compiler
def test_one_column_by_what_may_be_one_row() -> None:
    """Both operands have to be known to have the extent 1: the other one does not broadcast."""

    @pto.jit
    def outer(x, y, u):
        for r in pl.range(0, 24, 8, parallel=True):
            pl.store(pl.load(y, [r, 0], [8, 1]) @ pl.load(u, [0, 0], [u.shape[0], 24]), [r, 0], x)

    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 24, 24), np.float32)
    u = rng.standard_normal((1, 24), np.float32)
    np.testing.assert_allclose(emulated(outer, x, y, u)[1][0], y[:, :1] @ u, rtol=1e-5, atol=1e-5)
    with pytest.raises(pto.LaunchError, match=r"contract.* 1 .*2"):
        emulated(outer, x, y, np.ones((2, 24), np.float32), orders=(0,))


@pto.jit
def added_to(x, y, u):
    x += y @ u


@pto.jit
def residual(x, y, u):
    x[...] = pl.maximum(y @ u + x, 0.0)


@pto.jit
def added_to_itself(x, y, u):
    x += x @ u


@needs_compiler
@pytest.mark.parametrize("kernel", [added_to, residual, added_to_itself])
def test_a_whole_tensor_is_added_to_a_product_tile_by_tile(kernel: Any) -> None:
    rng = np.random.default_rng(0)
    x, y, u = (rng.integers(-2, 3, (150, 150)).astype(np.float32) for _ in range(3))
    wanted = x.copy()
    kernel(wanted, y, u)
    np.testing.assert_array_equal(emulated(kernel, x, y, u, orders=(1,))[1][0], wanted)
    text = kernel.compile(*[pto.spec((512, 512), pl.f32)] * 3, target="cuda").ir("kernels")
    assert text.count("tdot") == 1 and "tfull 0.0:f32, [64, 32]" in text


@pytest.mark.parametrize(
    "dtype, out, columns, unit",  # warps across have this many columns together
    [(pl.f32, pl.f32, 96, 8 * 4), (pl.f16, pl.f32, 160, 8 * 4), (pl.f16, pl.f16, 160, 16 * 4)],
)
def test_shared_memory_is_what_staged_tiles_take(dtype: Any, out: Any, columns: int, unit: int) -> None:
    """Columns of results are padded to those of all warps, which have two blocks of 8 where they store 16 bits."""

    @pto.jit
    def product(a, b, c):
        with pl.incore():
            for i in pl.range(0, a.shape[0], 64, parallel=True):
                total = pl.zeros([64, columns], pl.f32)
                for k in pl.range(0, a.shape[1], 32):
                    total = pl.dot(pl.load(a, [i, k], [64, 32]), pl.load(b, [k, 0], [32, columns]), total)
                pl.store(total.to(c.dtype), [i, 0], c)

    specs = pto.spec((128, 64), dtype), pto.spec((64, columns), dtype), pto.spec((128, columns), out)
    (kernel,) = product.compile(*specs, target="cuda")._kernel.built.program.host.kernels.values()
    shapes = [tuple(int(e.value) for e in shape) for shape in kernel.shapes]  # type: ignore[union-attr]
    spread, shared = fit(kernel, {}, shapes, [2], LARGEST)
    assert dict(spread.defines)["WN"] == 4
    padded = -(-columns // unit) * unit
    assert shared == dict(spread.defines)["STAGES"] * (64 * (32 * dtype.bytes + 16) + 32 * (padded * dtype.bytes + 16))
