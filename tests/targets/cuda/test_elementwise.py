# SPDX-License-Identifier: MIT
"""Every elementwise operation, emulated, against the CPU target: the same formulas give the same numbers."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import emulated, needs_compiler, ulps

pytestmark = needs_compiler
RNG = np.random.default_rng(3)
UNARY = """exp exp2 log log2 log1p expm1 sqrt rsqrt sin cos tan tanh erf sigmoid silu relu abs floor ceil round trunc sign
square reciprocal""".split()
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 88.0, -104.5, 3.5, 2.5, -2.5, 1e6, 123456.78]


def apply_unary(x: pl.Tensor, out: pl.Tensor):
    rows, cols = x.shape
    for r in pl.range(rows, parallel=True):
        t = pl.load(x, [r, 0], [1, cols])
        for k, name in enumerate(UNARY):
            pl.store(getattr(pl, name)(t), [k * 2 + r, 0], out)
        pl.store(pl.gelu(t), [2 * len(UNARY) + r, 0], out)
        pl.store(pl.gelu(t, approximate="tanh"), [2 * len(UNARY) + 2 + r, 0], out)


unary = pto.jit(apply_unary)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_functions_of_one_float_give_what_the_cpu_target_gives(dtype: type) -> None:
    x = np.concatenate([np.array(SPECIAL * 2), RNG.standard_normal(40) * 4, RNG.standard_normal(28) * 1000])
    x = x.astype(dtype).reshape(2, 50)
    expected = np.zeros((2 * len(UNARY) + 4, 50), dtype)
    with np.errstate(all="ignore"):
        unary(x, expected)
        _, (_, out) = emulated(unary, x, np.zeros_like(expected))
    for k, name in enumerate([*UNARY, "gelu", "gelu tanh"]):
        assert ulps(out[2 * k : 2 * k + 2], expected[2 * k : 2 * k + 2]) <= 2, name


@pto.jit(fastmath=True)
def fast_exponentials(x: pl.Tensor, out: pl.Tensor):
    t = pl.load(x, [0, 0], [1, x.shape[1]])
    pl.store(pl.exp(t), [0, 0], out)
    pl.store(pl.exp2(t), [1, 0], out)


def test_exponentials_of_the_hardware_where_fastmath_asks_for_them() -> None:
    x = np.concatenate([[0.0, np.inf, -np.inf, np.nan, 88.0, -80.0], RNG.uniform(-80, 80, 58)]).astype(np.float32)
    _, (_, out) = emulated(fast_exponentials, x[None], np.zeros((2, 64), np.float32), orders=(0,))
    for row, exact in zip(out, (np.exp(x.astype(np.float64)), np.exp2(x.astype(np.float64))), strict=True):
        np.testing.assert_allclose(row, exact, rtol=1e-5)  # 2 + |x| units of 2**-23
    files = fast_exponentials.compile(x[None], out, target="cuda").sources
    text = "".join(t for name, t in files.items() if name.endswith(".cu"))
    assert "pto::fast_exp(" in text and "exp_f32" not in text


def apply_ratios(x: pl.Tensor, out: pl.Tensor):
    rows, cols = x.shape
    for r in pl.range(rows, parallel=True):
        t = pl.load(x, [r, 0], [1, cols])
        results = [pl.sigmoid(t), pl.silu(t), pl.gelu(t, approximate="tanh"), pl.gelu(t), pl.tanh(t)]
        for k, y in enumerate(results):
            pl.store(y, [k * rows + r, 0], out)


def exact_ratios(x: np.ndarray) -> list[np.ndarray]:
    """What `apply_ratios` computes, in f64."""
    with np.errstate(all="ignore"):
        root, upwards = np.sqrt(2 / np.pi), np.exp(-np.abs(x))
        sigmoid = np.where(x < 0, upwards / (1 + upwards), 1 / (1 + upwards))
        near = np.clip(x, -40, 40)
        inner = np.exp(-2 * root * np.abs(near + 0.044715 * near**3))
        gelu_tanh = np.where(x > 40, x, near * np.where(near < 0, inner / (1 + inner), 1 / (1 + inner)))
        gelu = np.array([-0.0 if v == -np.inf else v * 0.5 * math.erfc(-v * math.sqrt(0.5)) for v in x.tolist()])
        return [sigmoid, np.where(x == -np.inf, -0.0, x * sigmoid), gelu_tanh, gelu, np.tanh(x)]


@pytest.mark.parametrize("fastmath", [False, True])
def test_ratios_by_the_reciprocal_of_the_hardware_keep_their_bounds(fastmath: bool) -> None:
    """All exponents, both signs, infinities and NaN, where the functions vary, and around the first subnormal results;
    the emulated reciprocal is wrong by a unit as often as not."""
    count = 2**14
    bits = np.arange(count, dtype=np.uint64) * (2**32 // count) + RNG.integers(0, 2**32 // count, count, dtype=np.uint64)
    ranges = [RNG.uniform(-limit, limit, count // 4) for limit in (0.5, 3, 12, 120)]
    near = [np.float32(v) + np.arange(-99, 100) * np.spacing(np.float32(v)) for v in (-103.97, -108.6, -10.75, -14.17)]
    rest = np.resize(SPECIAL + [3.4028235e38, -3.4028235e38, 1e-40, -1e-45], 4096 - 796 % 4096)
    parts = (bits.astype(np.uint32).view(np.float32), *ranges, *near, rest)
    x = np.concatenate([np.asarray(part, np.float32) for part in parts]).reshape(-1, 4096)
    fn = pto.jit(apply_ratios, fastmath=fastmath)
    _, (_, out) = emulated(fn, x, np.zeros((5 * len(x), 4096), np.float32), orders=(0,))
    (text,) = (t for name, t in fn.compile(x, out, target="cuda").sources.items() if name.endswith(".cu"))
    assert text.count("= pto::fast_ratio(" if fastmath else "= pto::ratio(") == 5 and " / " not in text
    for got, exact in zip(out.reshape(5, -1), exact_ratios(x.ravel().astype(np.float64)), strict=True):
        with np.errstate(over="ignore", invalid="ignore"):
            nearest = exact.astype(np.float32)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(exact))
        np.testing.assert_array_equal(got[np.isinf(nearest)], nearest[np.isinf(nearest)])
        np.testing.assert_array_equal(np.signbit(got[exact == 0]), np.signbit(exact[exact == 0]))
        finite = np.isfinite(nearest)
        got, exact = got[finite].astype(np.float64), exact[finite]
        units = np.exp2(np.maximum(np.frexp(exact)[1], -125) - 24.0)
        assert (np.abs(got - exact) / units).max() <= (6 if fastmath else 4)


def apply_binary(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor):
    (n,) = x.shape
    for _ in pl.range(1, parallel=True):
        a, b = pl.load(x, [0], [n]), pl.load(y, [0], [n])
        results = [a + b, a - b, a * b, a / b, a // b, a % b, pl.maximum(a, b), pl.minimum(a, b), pl.pow(pl.abs(a), b),
                   pl.atan2(a, b), pl.fmod(a, b), pl.fma(a, b, a), pl.where(a < b, a, b), pl.clip(a, -1.0, 1.0)]  # fmt: skip
        for k, r in enumerate(results):
            pl.store(pl.reshape(r, [1, n]), [k, 0], out)


binary = pto.jit(apply_binary)


@pytest.mark.parametrize("dtype", [np.float64])
def test_functions_of_two_floats_give_what_the_cpu_target_gives(dtype: type) -> None:
    x = np.array([*SPECIAL, *(RNG.standard_normal(60) * 5)], dtype)
    y = np.array([*SPECIAL[::-1], *(RNG.standard_normal(60) * 3)], dtype)
    expected = np.zeros((14, 76), dtype)
    with np.errstate(all="ignore"):
        binary(x, y, expected)
        _, (*_, out) = emulated(binary, x, y, np.zeros_like(expected))
    for k in range(14):
        assert ulps(out[k], expected[k]) <= 2, k


def apply_integer(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor):
    (n,) = x.shape
    for _ in pl.range(1, parallel=True):
        a, b = pl.load(x, [0], [n]), pl.load(y, [0], [n])
        results = [a + b, a - b, a * b, a // b, a % b, a & b, a | b, a ^ b, ~a, a << b, a >> b, pl.maximum(a, b),
                   pl.minimum(a, b), -a, pl.abs(a), pl.sign(a), pl.square(a), pl.relu(a), pl.where(a > b, a, b)]  # fmt: skip
        for k, r in enumerate(results):
            pl.store(pl.reshape(r, [1, n]), [k, 0], out)


integer = pto.jit(apply_integer)


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint32])
def test_functions_of_integers_give_what_the_cpu_target_gives(dtype: type) -> None:
    info = np.iinfo(dtype)
    ends = [0, 1, 2, info.min, info.max, info.max - 1, info.min + 1, 7, 5]
    x = np.array([*ends * 9, *RNG.integers(info.min, info.max, 60, dtype, endpoint=True)], dtype)
    y = np.array([*np.repeat(np.array(ends, dtype), 9), *RNG.integers(0, 9, 60).astype(dtype)], dtype)
    expected = np.zeros((19, len(x)), dtype)
    integer(x, y, expected)
    _, (*_, out) = emulated(integer, x, y, np.zeros_like(expected))
    np.testing.assert_array_equal(out, expected)


KINDS = [pl.f16, pl.bf16, pl.f32, pl.f64, pl.i8, pl.i16, pl.i32, pl.i64, pl.u8, pl.u32, pl.u64, pl.bool_]


def apply_casts(x: pl.Tensor, outs):
    (n,) = x.shape
    for _ in pl.range(1, parallel=True):
        t = pl.load(x, [0], [n])
        for out in outs:
            pl.store(pl.cast(t, out.dtype), [0], out)


casts = pto.jit(apply_casts)


@pytest.mark.parametrize("dtype", [np.float64, np.uint64])
def test_conversions_give_what_the_cpu_target_gives(dtype: type) -> None:
    values = [0, 1, -1, 0.4, -0.6, 254.7, 300, -200, 65519.9, 65520, 7e4, 2.5**20, 1e-6, 6e-8, 1e20, -1e20, np.inf, -np.inf,
              np.nan, 3.0000001, 1.00048828125, 1.00390625, 2**31, 2**63]  # fmt: skip
    with np.errstate(all="ignore"):
        x = np.array(values, np.float64)
        x = (
            x.astype(dtype)
            if np.dtype(dtype).kind == "f"
            else np.nan_to_num(x).clip(-1e9, 1e9).astype(np.int64).astype(dtype)
        )
        expected = tuple(np.zeros(len(x), k.numpy) for k in KINDS)
        casts(x, expected)
        got = tuple(np.zeros(len(x), k.numpy) for k in KINDS)
        from pto_jit.device_kernel import emulate

        emulate(casts.compile(x, got, target="cuda"), x, got)
    for kind, a, b in zip(KINDS, got, expected, strict=True):
        np.testing.assert_array_equal(a.astype(np.float64), b.astype(np.float64), err_msg=str(kind))


@pto.jit
def one_counted(x: pl.Tensor, y: pl.Tensor):
    t = pl.load(x, [0], [40])
    pl.store(pl.arange(2, 3, dtype=pl.i32) + t, [0], y)
    pl.store(pl.maximum(pl.arange(0, 1, dtype=pl.i32), t), [40], y)


def test_a_range_of_one_element_is_the_same_beside_every_column() -> None:
    x = np.arange(-3, 37, dtype=np.int32)
    _, (_, y) = emulated(one_counted, x, np.zeros(80, np.int32))
    np.testing.assert_array_equal(y, np.concatenate([x + 2, np.maximum(x, 0)]))
