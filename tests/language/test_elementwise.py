# SPDX-License-Identifier: MIT
"""Elementwise functions against plain NumPy, over dtypes and shapes."""

from __future__ import annotations

import math
import operator
from typing import Any

import mpmath
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit import dtypes
from pto_jit.errors import TypeMismatchError

FLOATS = [pl.f16, pl.bf16, pl.f32, pl.f64]
INTS = [pl.i8, pl.i16, pl.i32, pl.i64, pl.u8, pl.u16, pl.u32, pl.u64]
SHAPES = [(), (7,), (3, 5), (2, 3, 4), (0,), (3, 0)]
vectorised = np.vectorize


def values(dtype: pl.DType, shape: tuple[int, ...], seed: int = 0, low: float = -4, high: float = 4) -> Any:
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        return rng.uniform(low, high, shape).astype(dtype.numpy)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    info = np.iinfo(dtype.numpy)
    return rng.integers(info.min, info.max, shape, dtype=dtype.numpy, endpoint=True)


def rounded(fn: Any, *arrays: Any) -> Any:
    """`fn` in f32 for 16-bit floats, rounded to their dtype."""
    dtype = arrays[0].dtype
    if dtype.itemsize > 2:
        return fn(*arrays)
    return np.asarray(fn(*(a.astype(np.float32) for a in arrays))).astype(dtype)


UNARY = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "log1p": np.log1p, "expm1": np.expm1,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh,
    "erf": lambda x: vectorised(math.erf, otypes=[float])(x), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)), "gelu": lambda x: x * vectorised(
        lambda v: 0.5 * math.erfc(-v / math.sqrt(2)), otypes=[float])(x),
    "relu": lambda x: np.where(x > 0, x, 0), "abs": np.abs, "floor": np.floor, "ceil": np.ceil, "round": np.round,
    "trunc": np.trunc, "sign": np.sign, "square": lambda x: x * x, "reciprocal": lambda x: 1 / x,
}  # fmt: skip
POSITIVE = ("log", "log2", "log1p", "sqrt", "rsqrt", "reciprocal")
TOLERANCE = {"f16": 1e-3, "bf16": 8e-3, "f32": 1e-6, "f64": 1e-13}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_a_float_function_agrees_with_numpy_and_keeps_the_dtype(name: str, dtype: pl.DType, shape: Any) -> None:
    x = values(dtype, shape, low=0.25 if name in POSITIVE else -4)
    result = getattr(pl, name)(x[()] if shape == () else x)
    expected = UNARY[name](x.astype(np.float64))
    assert result.dtype == dtype.numpy and np.shape(result) == shape
    np.testing.assert_allclose(
        result.astype(np.float64), expected, rtol=TOLERANCE[dtype.name], atol=TOLERANCE[dtype.name]
    )


@pytest.mark.parametrize("dtype", [*INTS, pl.bool_], ids=str)
@pytest.mark.parametrize("name", ["exp", "sqrt", "tanh", "sigmoid"])
def test_a_float_function_of_integers_has_the_dtype_numpy_chooses(name: str, dtype: pl.DType) -> None:
    x = np.array([0, 1, 3], dtype.numpy)
    assert getattr(pl, name)(x).dtype == np.exp(x).dtype


@pytest.mark.parametrize("dtype", INTS, ids=str)
@pytest.mark.parametrize("name", ["abs", "floor", "ceil", "round", "trunc", "sign", "square", "relu"])
def test_an_integer_function_keeps_the_dtype_and_wraps(name: str, dtype: pl.DType) -> None:
    limits = np.iinfo(dtype.numpy)
    x = np.append(values(dtype, (20,)), np.array([limits.min, limits.max, 0], dtype.numpy))
    with np.errstate(all="ignore"):
        # NumPy before 2.1 rounds integers as f64, which has not all of them
        expected = x if name in ("floor", "ceil", "trunc") else UNARY[name](x).astype(dtype.numpy)
    result = getattr(pl, name)(x)
    assert result.dtype == dtype.numpy
    np.testing.assert_array_equal(result, expected)


def test_special_values_of_the_float_functions() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0])
    np.testing.assert_array_equal(pl.sigmoid(x), [np.nan, 1, 0, 0.5, 0.5])
    np.testing.assert_array_equal(pl.erf(x), [np.nan, 1, -1, 0, 0])
    np.testing.assert_array_equal(pl.relu(x), [np.nan, np.inf, 0, 0, 0])
    np.testing.assert_array_equal(pl.sign(x), [np.nan, 1, -1, 0, 0])
    np.testing.assert_array_equal(pl.exp(x), [np.nan, np.inf, 0, 1, 1])
    np.testing.assert_array_equal(pl.round(np.array([0.5, 1.5, 2.5, -0.5])), [0, 2, 2, -0.0])
    np.testing.assert_array_equal(pl.isnan(x), [True, False, False, False, False])
    np.testing.assert_array_equal(pl.isinf(x), [False, True, True, False, False])
    np.testing.assert_array_equal(pl.isfinite(x), [False, False, False, True, True])
    np.testing.assert_array_equal(pl.isnan(np.array([1, 2])), [False, False])


def test_erf_and_gelu_agree_with_high_precision() -> None:
    x = np.linspace(-5, 5, 41)
    mpmath.mp.dps = 30
    erf = [float(mpmath.erf(v)) for v in x]
    tanh = [
        float(v / 2 * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (v + mpmath.mpf("0.044715") * v**3)))) for v in x
    ]
    np.testing.assert_allclose(pl.erf(x), erf, rtol=1e-14, atol=1e-16)
    np.testing.assert_allclose(pl.gelu(x, approximate="tanh"), tanh, rtol=1e-9, atol=1e-15)


def test_the_negative_tails_of_gelu_keep_their_digits() -> None:
    x = np.linspace(-30, -5, 26)
    mpmath.mp.dps = 400
    inner = [mpmath.sqrt(2 / mpmath.pi) * (v + mpmath.mpf("0.044715") * v**3) for v in map(mpmath.mpf, x)]
    np.testing.assert_allclose(pl.gelu(x), [float(v * mpmath.ncdf(v)) for v in x], rtol=1e-12)
    tanh = [float(v / 2 * (1 + mpmath.tanh(w))) for v, w in zip(x, inner, strict=True)]
    np.testing.assert_allclose(pl.gelu(x, approximate="tanh")[10:], tanh[10:], rtol=1e-11)
    assert pl.gelu(np.float32(-13)) < 0


BINARY = {
    "+": (operator.add, np.add), "-": (operator.sub, np.subtract), "*": (operator.mul, np.multiply),
    "//": (operator.floordiv, np.floor_divide), "%": (operator.mod, np.remainder),
    "maximum": (pl.maximum, np.maximum), "minimum": (pl.minimum, np.minimum), "fmod": (pl.fmod, np.fmod),
}  # fmt: skip


@pytest.mark.parametrize("shape", [((6,), (6,)), ((3, 1), (1, 4)), ((4,), (2, 4)), ((0, 3), (3,)), ((2, 3), ())])
@pytest.mark.parametrize("dtype", FLOATS + INTS, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_arithmetic_agrees_with_numpy_and_broadcasts(name: str, dtype: pl.DType, shape: Any) -> None:
    ours, theirs = BINARY[name]
    a, b = values(dtype, shape[0], 1), values(dtype, shape[1], 2)
    if b.size and dtype.is_integer and b.ndim:
        b.reshape(-1)[0] = 0  # division by zero gives 0
    ta = pl.load(a, [0] * a.ndim, a.shape)
    with np.errstate(all="ignore"):
        expected = rounded(theirs, a, b) if dtype.is_float else theirs(a, b)
    result = ours(ta, b[()])
    assert isinstance(result, pl.Tile) and result.dtype == dtype
    np.testing.assert_array_equal(np.asarray(result), expected)
    reflected = ours(b[()] if b.ndim == 0 else pl.load(b), ta)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(np.asarray(reflected), rounded(theirs, b, a) if dtype.is_float else theirs(b, a))


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_integer_division_by_zero_is_zero_and_the_lowest_by_minus_one_wraps(dtype: pl.DType) -> None:
    info = np.iinfo(dtype.numpy)
    t = pl.load(np.array([info.min, 7, info.max], dtype.numpy))
    np.testing.assert_array_equal((t // 0).numpy(), [0, 0, 0])
    np.testing.assert_array_equal((t % 0).numpy(), [0, 0, 0])
    if dtype.kind == "i":
        np.testing.assert_array_equal((t // -1).numpy(), [info.min, -7, -info.max])


@pytest.mark.parametrize("dtype", INTS, ids=str)
@pytest.mark.parametrize("op", [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift])
def test_bitwise_operators_agree_with_numpy(op: Any, dtype: pl.DType) -> None:
    a, b = values(dtype, (9,), 3), np.arange(9).astype(dtype.numpy)
    np.testing.assert_array_equal(op(pl.load(a), pl.load(b)).numpy(), op(a, b))
    np.testing.assert_array_equal((~pl.load(a)).numpy(), ~a)


def test_bool_tiles_have_logic_and_no_arithmetic_of_their_own() -> None:
    a, b = np.array([True, True, False]), np.array([True, False, False])
    ta, tb = pl.load(a), pl.load(b)
    for op in (operator.and_, operator.or_, operator.xor, operator.add, operator.mul):
        result = op(ta, tb)
        assert result.dtype == pl.bool_
        np.testing.assert_array_equal(result.numpy(), op(a, b))
    np.testing.assert_array_equal((~ta).numpy(), ~a)
    assert (ta + 1).dtype == pl.i64 and (ta / tb).dtype == pl.f64
    for bad in (lambda: ta - tb, lambda: -ta, lambda: ta << tb, lambda: pl.sign(ta)):
        with pytest.raises(TypeMismatchError):
            bad()


def test_bitwise_operators_refuse_floats() -> None:
    with pytest.raises(TypeMismatchError, match="integers"):
        pl.load(np.zeros(3)) & 1


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, pl.bool_], ids=str)
@pytest.mark.parametrize("op", [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge])
def test_comparisons_give_bool(op: Any, dtype: pl.DType) -> None:
    a, b = values(dtype, (8,), 4), values(dtype, (8,), 5)
    b[:3] = a[:3]
    result = op(pl.load(a), pl.load(b))
    assert result.dtype == pl.bool_
    np.testing.assert_array_equal(result.numpy(), op(a.astype(object), b.astype(object)).astype(bool))


@pytest.mark.parametrize("a", dtypes.ALL, ids=str)
@pytest.mark.parametrize("b", dtypes.ALL, ids=str)
def test_two_tiles_promote_as_numpy_promotes(a: pl.DType, b: pl.DType) -> None:
    result = pl.load(np.ones(2, a.numpy)) * pl.load(np.ones(2, b.numpy))
    assert result.dtype == dtypes.promote(a, b)
    if "bf16" not in (a.name, b.name):
        assert result.dtype.numpy == (np.ones(2, a.numpy) * np.ones(2, b.numpy)).dtype


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_python_numbers_are_weak(dtype: pl.DType) -> None:
    t = pl.load(np.ones(2, dtype.numpy))
    assert (t * 2).dtype == (pl.i64 if dtype.kind == "b" else dtype)
    assert (2.0 * t).dtype == (dtype if dtype.is_float else pl.f64)
    assert (t * np.float64(2)).dtype == pl.f64
    assert pl.exp(1.0) == math.exp(1) and type(pl.exp(1.0)) is float and type(pl.maximum(1, 2)) is int


def test_half_arithmetic_rounds_after_every_operation() -> None:
    x = np.array([1.0, 2049.0, 0.1]).astype(np.float16)
    t = pl.load(x)
    expected = (
        (x.astype(np.float32) + np.float32(0.3).astype(np.float16)).astype(np.float16).astype(np.float32) * 3
    ).astype(np.float16)
    np.testing.assert_array_equal(((t + 0.3) * 3).numpy(), expected)


def test_integer_arithmetic_wraps() -> None:
    t = pl.load(np.array([127, -128], np.int8))
    np.testing.assert_array_equal((t + 1).numpy(), np.array([-128, -127], np.int8))
    np.testing.assert_array_equal((t * t).numpy(), np.array([1, 0], np.int8))


def test_powers() -> None:
    x = np.array([2, -3, 1, -1, 0], np.int32)
    np.testing.assert_array_equal((pl.load(x) ** 3).numpy(), x**3)
    np.testing.assert_array_equal(pl.pow(x, np.array([-1, -1, -5, -3, -1], np.int32)), [0, 0, 1, -1, 0])
    np.testing.assert_allclose(pl.pow(np.array([4.0, 2.0]), 0.5), [2, math.sqrt(2)])
    np.testing.assert_array_equal((2 ** pl.load(np.array([0, 5]))).numpy(), [1, 32])


def test_maximum_and_minimum_propagate_nan() -> None:
    a, b = np.array([np.nan, 1.0, 2.0]), np.array([0.0, np.nan, 3.0])
    np.testing.assert_array_equal(pl.maximum(a, b), [np.nan, np.nan, 3])
    np.testing.assert_array_equal(pl.minimum(a, b), [np.nan, np.nan, 2])


def test_where_clip_and_atan2() -> None:
    x = np.linspace(-2, 2, 5, dtype=np.float32)
    np.testing.assert_array_equal(pl.where(x > 0, x, -1), np.where(x > 0, x, np.float32(-1)))
    assert pl.where(x > 0, x, -1).dtype == np.float32
    assert pl.where(True, np.int32(1), np.float32(2)).dtype == np.float64
    np.testing.assert_array_equal(pl.clip(x, -1, 1), np.clip(x, -1, 1))
    np.testing.assert_array_equal(pl.clip(x, None, 1), np.minimum(x, 1))
    np.testing.assert_array_equal(pl.atan2(x, x[::-1]), np.arctan2(x, x[::-1]))


def test_fma_rounds_once() -> None:
    a, b = np.array([0.1, 1e308, 3.0]), np.array([10.0, 10.0, 4.0])
    exact = pl.fma(a, b, np.array([-1.0, -np.inf, 5.0]))
    assert exact[0] == 2.0**-54 and exact[0] != 0.1 * 10 - 1
    assert exact[1] == -np.inf and exact[2] == 17
    x = np.float32(1 + 2**-12)
    assert pl.fma(x, x, np.float32(-1)) == np.float32(np.float64(x) * np.float64(x) - 1)
    assert pl.fma(x, x, np.float32(-1)) != x * x - np.float32(1)


@pytest.mark.parametrize("source", dtypes.ALL, ids=str)
@pytest.mark.parametrize("target", dtypes.ALL, ids=str)
def test_casts_saturate_floats_wrap_integers_and_test_against_zero(source: pl.DType, target: pl.DType) -> None:
    x = values(source, (50,), 6)
    if source.is_float:
        x = np.append(x * 1000, [np.nan, np.inf, -np.inf, -0.5, 0.99, 0.0]).astype(source.numpy)
    result = pl.cast(x, target)
    assert result.dtype == target.numpy
    for before, after in zip(x.tolist() if source.name != "bf16" else x.astype(float).tolist(), result, strict=True):
        if target.kind == "b":
            assert bool(after) == (before != 0)
        elif target.is_integer:
            info = np.iinfo(target.numpy)
            if source.is_float:
                whole = 0 if math.isnan(before) else before
                expected = info.max if whole >= info.max else info.min if whole <= info.min else math.trunc(whole)
            else:
                expected = (int(before) - info.min) % (1 << target.bits) + info.min
            assert int(after) == expected
        else:
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(float(after), float(target.numpy.type(float(before))))


def test_the_largest_floats_below_an_integer_limit_are_kept() -> None:
    below = np.nextafter(2.0**63, 0)
    np.testing.assert_array_equal(
        pl.cast(np.array([below, 2.0**63, -(2.0**63)]), pl.i64), [int(below), 2**63 - 1, -(2**63)]
    )
    np.testing.assert_array_equal(pl.cast(np.array([2.0**64, -1.0]), pl.u64), np.array([2**64 - 1, 0], np.uint64))


def test_bitcast_keeps_the_bits_and_refuses_other_widths() -> None:
    x = np.array([[1.0, -0.0], [np.inf, 2.5]], np.float32)
    np.testing.assert_array_equal(pl.bitcast(x, pl.u32), x.view(np.uint32))
    np.testing.assert_array_equal(pl.bitcast(pl.bitcast(x.T, pl.i32), pl.f32), x.T)
    assert pl.bitcast(np.uint16(0x3F80), pl.bf16) == 1
    for bad in (pl.f64, pl.i16):
        with pytest.raises(TypeMismatchError, match="widths differ"):
            pl.bitcast(x, bad)
    with pytest.raises(TypeMismatchError):
        pl.bitcast(np.array([True]), pl.u8)


def test_plain_arrays_give_plain_arrays_and_tiles_give_tiles() -> None:
    x = np.ones((2, 2), np.float32)
    assert type(pl.exp(x)) is np.ndarray
    assert type(pl.exp(pl.load(x))) is pl.Tile
    assert type(pl.exp(np.float32(1))) is np.float32
    assert type(x + pl.load(x)) is pl.Tile and type(np.float32(2) * pl.load(x)) is pl.Tile
    assert type(pl.sum(x)) is np.float32


def test_what_is_no_value_is_refused() -> None:
    for bad in ("text", None, [1, 2], 1j, np.array(["a"])):
        with pytest.raises(TypeMismatchError):
            pl.exp(bad)


def test_an_integer_to_a_negative_run_time_power_is_rounded_towards_zero_compiled_and_interpreted() -> None:
    @pto.jit
    def power(a: Any, b: Any) -> Any:
        return a**b

    for a in (-3, -1, 0, 1, 2):
        for b in (-3, -2, -1, 0, 3):
            expected = a**b if b >= 0 else {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)
            assert power(a, b) == power.interpret(a, b) == expected


def test_where_of_python_numbers_is_one() -> None:
    """As in compiled code, where it takes the dtype of what it meets."""

    def kernel(x):
        return pl.load(x, [0], [4]) + pl.where(x[0] > 0, 2.0, -1.0), pl.load(x, [0], [4]) * pl.where(x[0] > 0, 1, 3)

    x = np.arange(4, dtype=np.float32) - 1
    found = pto.jit(kernel)
    for results in (found(x), found.interpret(x)):
        assert [r.dtype for r in results] == [np.float32, np.float32]
        np.testing.assert_array_equal(results[0], x - 1)
        np.testing.assert_array_equal(results[1], x * 3)
    assert type(pl.where(x[0] > 0, 2.0, -1.0)) is float and type(pl.where(np.bool_(True), 1, 2)) is int
    assert pl.where(x > 0, 2.0, -1.0).dtype == np.float64


@pytest.mark.parametrize("dtype", [pl.u8, pl.i16, pl.u32, pl.i32, pl.u64, pl.i64], ids=str)
def test_constants_beyond_all_numbers_of_a_dtype_are_compared_as_they_are(dtype: pl.DType) -> None:
    """As in NumPy: one says which is larger, whatever fits."""
    info = np.iinfo(dtype.numpy)
    x = np.array([info.min, info.min + 1, 0, info.max - 1, info.max], dtype.numpy)
    constants = [n for n in (info.min - 1, info.min, info.max, info.max + 1, 2**63) if -(2**63) <= n < 2**64]
    compare = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
    expected = np.stack([f(*pair) for f in compare for c in constants for pair in ((x, c), (c, x))])

    def tiles(x, y):
        t = pl.load(x)
        y[...] = pl.stack([f(*pair) for f in compare for c in constants for pair in ((t, c), (c, t))])

    def elements(x, y):
        for i in range(len(x)):
            found = [f(*pair) for f in compare for c in constants for pair in ((x[i], c), (c, x[i]))]
            for k, v in enumerate(found):
                y[k, i] = v

    for kernel in map(pto.jit, (tiles, elements)):
        for run in (kernel, kernel.interpret):
            y = np.zeros_like(expected)
            run(x, y)
            np.testing.assert_array_equal(y, expected)
