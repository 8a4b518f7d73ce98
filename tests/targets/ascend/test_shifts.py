# SPDX-License-Identifier: MIT
"""Shifts by tiles and by numbers of the launch, and conversions of u32 and u16: run on the CPU, against the interpreter."""

from __future__ import annotations

from inspect import signature
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, needs_compiler, ordered

I32, U32, I64 = (pto.spec((None, 61), t) for t in (pl.i32, pl.u32, pl.i64))
I16, U16, U8 = (pto.spec((None, 61), t) for t in (pl.i16, pl.u16, pl.u8))
F32, BF16, LINE = pto.spec((None, 61), pl.f32), pto.spec((None, 61), pl.bf16), pto.spec((None,), pl.i32)


@pto.jit
def by_tiles(x, counts, out, more):
    out[...] = (x >> counts) + (x << 33) + (x >> 40)
    more[...] = (x << counts) ^ (1 << counts)


@pto.jit
def by_numbers(x, amounts, out):
    """Of memory, some of them below 0 or above 31."""
    for r in pl.range(x.shape[0], parallel=True):
        with pl.incore():
            t, n = pl.load(x, [r, 0], [1, 61]), amounts[r]
            pl.store((t << n) + (t >> n), [r, 0], out)


@pto.jit
def of_16_bits(x, counts, out, more):
    out[...] = (x >> counts) + (x << 17)
    more[...] = (x << counts) ^ (x >> 40)


@pto.jit
def unsigned(x, counts, out, low):
    """The sign is not copied: a hash, with quotients by powers of two."""
    h = (x ^ (x >> 16)) * 0x85EBCA6B
    out[...] = (h ^ (h >> 13)) + (x // 1024) % 256 + x // 0x80000000 + (x >> 0) + x // 1 + x % 1
    low[...] = (x >> counts) ^ (0x80000001 >> counts) + (7 << counts)


@pto.jit
def bytes_of(x, counts, out):
    out[...] = (x >> counts) ^ (x << counts) ^ (x >> 2)


@pto.jit
def nibbles(words, out):
    """Each word holds eight numbers of four bits; which one is a number of a loop."""
    for r in pl.range(words.shape[0], parallel=True):
        with pl.incore():
            v = pl.load(words, [r], [1])
            for k in range(8):
                pl.store(((v >> (4 * k)) & 15).to(pl.f32)[None, :], [r, k], out)


@pto.jit
def converted(x, words, floats, small, back, low, lowest, wide, truth):
    floats[...] = words.to(pl.f32)
    small[...] = words.to(pl.bf16)
    back[...] = x.to(pl.u32)
    low[...] = words.to(pl.u16)
    lowest[...] = words.to(pl.u8)
    wide[...] = words.to(pl.i64) * words.to(pl.i64)
    truth[...] = words.to(pl.bool_)


@pto.jit
def widened(x, middle, narrow, out, other, pairs, wide):
    out[...] = x.to(pl.u32) + 1
    other[...] = middle.to(pl.u32) * 65537 + narrow.to(pl.u32)
    pairs[...] = narrow.to(pl.u16) * 300 + (middle >> 3)
    wide[...] = middle.to(pl.i64) * 70000 * 70000


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "by_tiles": (by_tiles, (I32,) * 4), "by_numbers": (by_numbers, (I32, LINE, I32)), "of_16_bits": (of_16_bits, (I16,) * 4),
    "unsigned": (unsigned, (U32,) * 4), "bytes_of": (bytes_of, (U8,) * 3),
    "nibbles": (nibbles, (pto.spec((None,), pl.u32), F32)),
    "converted": (converted, (F32, U32, F32, BF16, U32, U16, U8, I64, pto.spec((None, 61), pl.bool_))),
    "widened": (widened, (I16, U16, U8, U32, U32, U16, I64)),
}  # fmt: skip
INPUTS = {"by_numbers": 2, "nibbles": 1, "widened": 3}  # others have two
TYPES = {"bf16": ml_dtypes.bfloat16, "i32": np.int32, "i64": np.int64, "u32": np.uint32, "u16": np.uint16, "i16": np.int16,
         "u8": np.uint8, "f32": np.float32, "bool_": np.bool_}  # fmt: skip


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("shifts"))


def zeros(spec: Any) -> np.ndarray:
    return np.zeros((19,) if len(spec.shape) == 1 else (19, 61), TYPES[spec.dtype.name])


def numbers(spec: Any, name: str, rng: np.random.Generator) -> np.ndarray:
    dtype, shape = zeros(spec).dtype, zeros(spec).shape
    if dtype.kind == "f":
        out = (rng.standard_normal(shape) * 2.0 ** rng.integers(-3, 34, shape)).astype(dtype)
        out[0, :6] = [np.nan, -1.5, np.inf, -np.inf, 4294967040.0, 2147483648.0]
        return out
    low = -3 if dtype.kind == "i" else 0
    if name in ("counts", "amounts"):
        return rng.integers(low, dtype.itemsize * 8 + 4, shape).astype(dtype)
    info = np.iinfo(dtype)
    out = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    out.flat[:4] = [info.min, info.max, 0, info.max // 2 + 1 if dtype.kind == "u" else -1]
    return out


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_shifts_and_conversions(programs: Programs, name: str) -> None:
    fn, specs = CASES[name]
    rng = np.random.default_rng(3)
    parameters = list(zip(signature(fn).parameters, specs, strict=True))
    count = INPUTS.get(name, 2)
    inputs = {p: numbers(s, p, rng) for p, s in parameters[:count]}
    outputs = {p: zeros(s) for p, s in parameters[count:]}
    check_interpreted(programs, fn, name, inputs, outputs)
