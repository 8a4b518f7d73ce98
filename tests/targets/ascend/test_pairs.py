# SPDX-License-Identifier: MIT
"""Integers of 64 bits, computed in words of 32: run on the CPU, against the interpreter."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, needs_compiler, ordered

WIDE, LINE, TRUTH = pto.spec((None, 13), pl.i64), pto.spec((None,), pl.i64), pto.spec((None, 13), pl.bool_)
PLACES = pto.spec((None,), pl.i32)
FLOATS, WORDS = pto.spec((None, 13), pl.f32), pto.spec((None, 13), pl.i32)


@pto.jit
def arithmetic(x, y, total, less, times, other):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            a, b = pl.load(x, [r, 0], [8, 13]), pl.load(y, [r, 0], [8, 13])
            pl.store(a + b, [r, 0], total)
            pl.store(a - b, [r, 0], less)
            pl.store(a * b, [r, 0], times)
            pl.store(-a + pl.abs(b) * pl.sign(a), [r, 0], other)


@pto.jit
def with_numbers(x, out, n: int):
    """Constants of one word and of two, and a number of the launch."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            a = pl.load(x, [r, 0], [8, 13])
            b = (5 - a) * 3 + 0x123456789ABCDEF - (a - 0xFFFFFFFF) * n
            pl.store(b * b * -70000 + n * a + r, [r, 0], out)


@pto.jit
def bits(x, y, out, more):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            a, b = pl.load(x, [r, 0], [8, 13]), pl.load(y, [r, 0], [8, 13])
            pl.store((a ^ b) & 0xFFF0F0F0F0F0 | (~b & 7), [r, 0], out)
            pl.store((a >> 3) + (a << 5) + (b >> 40) - (b << 33) + (a >> 0) + (b >> 63), [r, 0], more)


@pto.jit
def quotients(x, powers, rest, more, few):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            a = pl.load(x, [r, 0], [8, 13])
            pl.store(a // 128 + a // 0x10000000000, [r, 0], powers)
            pl.store(a % 64 + a % 0x1000000000, [r, 0], rest)
            pl.store(a // 777 + a // 32768, [r, 0], more)
            pl.store(a % 777 - a % 32767, [r, 0], few)


@pto.jit
def choices(x, y, out, low, mask):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            a, b = pl.load(x, [r, 0], [8, 13]), pl.load(y, [r, 0], [8, 13])
            pl.store(pl.where((a < b) & (a != 7) | (a >= 0x100000000), a, pl.where(b <= a, -1, b)), [r, 0], out)
            pl.store(pl.minimum(a, 100) - pl.maximum(b, -0x123456789), [r, 0], low)
            pl.store((a > b) ^ (a == 5) ^ b.to(pl.bool_), [r, 0], mask)


@pto.jit
def reductions(x, rows, columns, high, low):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            a = pl.load(x, [r, 0], [8, 13])
            pl.store(pl.sum(a, axis=1), [r], rows)
            pl.store(pl.sum(a, axis=0, keepdims=True), [r // 8, 0], columns)
            pl.store(pl.max(a, axis=1), [r], high)
            low[r] = pl.min(a) + pl.sum(a)


@pto.jit
def small_reductions(x, rows, floats, ran, low):
    """Of numbers of 32 bits, whose sums have more."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            a = pl.load(x, [r, 0], [8, 13])
            total = pl.sum(a, axis=1)
            pl.store(total, [r], rows)
            pl.store(a.to(pl.f32) - (pl.sum(a, axis=1, keepdims=True) // 13).to(pl.f32), [r, 0], floats)
            pl.store(pl.cumsum(a, axis=1), [r, 0], ran)
            s = pl.sum(a)
            if s > 1000000000000:
                low[r] = s + pl.max(a)


@pto.jit
def carried(x, out, floats):
    """What a loop goes on with, and a swap."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            a, b = pl.load(x, [r, 0], [8, 13]), pl.full([8, 13], 0x100000001, pl.i64)
            for i in pl.range(0, 5):
                a, b = b, a + b * i
                if i > 2:
                    a = a - 1
            pl.store(a, [r, 0], out)
            pl.store(b.to(pl.f32), [r, 0], floats)


@pto.jit
def shapes(x, out, row, picked):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            a = pl.load(x, [r, 0], [8, 13], )
            column = pl.sum(a, axis=1, keepdims=True)
            at = pl.arange(0, 13).to(pl.i64)
            pl.store(a + column * at, [r, 0], out)
            pl.store(pl.reshape(column, [8]) + 1, [r], row)
            index = pl.broadcast_to((at * 5) % 13, [8, 13])
            pl.store(pl.gather(a + 1, index, axis=1), [r, 0], picked)


@pto.jit
def whole_tensors(x, y, out, rows, total):
    out[...] = pl.where(x > y, x - y, y - x) // 8
    rows[...] = pl.sum(x * 3, axis=1)
    total[0] = pl.sum(x) + pl.max(y)


@pto.jit
def clipped(tokens, table, out):
    """Rows of a table at places of 64 bits, moved to those that there are."""
    with pl.incore():
        for i in pl.range(0, tokens.shape[0], 8, parallel=True):
            t = pl.load(tokens, [i], [8])
            at = pl.minimum(pl.maximum(t, 0), table.shape[0] - 1)
            pl.store(pl.where(t >= 0, 1.0, 0.0).to(pl.f32)[:, None] * table[at, :], [i, 0], out)


@pto.jit
def padded(x, out):
    for r in pl.range(0, out.shape[0], 8, parallel=True):
        with pl.incore():
            pl.store(pl.load(x, [r, 5], [8, 13], pad=-100) - 1, [r, 0], out)


@pto.jit
def columns(x, keys, out):
    """Elements that lie apart, of lists of pairs."""
    keys[...] = x[:, 0] * 1000 + x[:, 12]
    out[:, 3] = x[:, 1] + x[:, 2]
    out[:, 4::2] = x[:, :5]
    for r in pl.range(x.shape[0], parallel=True):
        out[r, 0:3] = x[r, ::5] - 1


@pto.jit
def searched(x, rows, columns, all_of):
    for r in pl.range(0, x.shape[0], 8, parallel=True):
        with pl.incore():
            t = pl.load(x, [r, 0], [8, 13])
            pl.store(pl.argmax(t, axis=1), [r], rows)
            pl.store(pl.argmin(t >> 40, axis=0), [r // 8 * 13], columns)
            all_of[r // 8] = pl.argmax(t)


@pto.jit
def of_whole_tensors(x, out, at):
    out[...] = pl.flip(x, axis=1) ** 3 - x**2 + x**0
    at[...] = pl.argmin(x, axis=1)


@pto.jit
def shifted(x, y, out, each):
    """By tiles, and single numbers by numbers, some of them below 0 or above 63."""
    counts = y >> 56
    out[...] = (x << counts) ^ (x >> counts) ^ (1 << counts)
    for i in pl.range(x.shape[0], parallel=True):
        each[i] = (x[i, 0] << (y[i, 0] >> 57)) ^ (x[i, 1] >> (y[i, 1] >> 57))


@pto.jit
def by_an_extent(x, out):
    """The host takes its words."""
    m = x.shape[0] * 1000000007
    pl.store(pl.sum(pl.load(x, [0, 0], [8, 13]), axis=0, keepdims=True) * m, [0, 0], out)


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "shifted": (shifted, (WIDE, WIDE, WIDE, LINE)), "by_an_extent": (by_an_extent, (WIDE, WIDE)),
    "searched": (searched, (WIDE, PLACES, PLACES, PLACES)), "of_whole_tensors": (of_whole_tensors, (WIDE, WIDE, PLACES)),
    "padded": (padded, (WIDE, WIDE)), "columns": (columns, (WIDE, LINE, WIDE)),
    "arithmetic": (arithmetic, (WIDE,) * 6), "with_numbers": (with_numbers, (WIDE, WIDE, 3)),
    "bits": (bits, (WIDE,) * 4), "quotients": (quotients, (WIDE,) * 5), "choices": (choices, (*(WIDE,) * 4, TRUTH)),
    "reductions": (reductions, (WIDE, LINE, WIDE, LINE, LINE)),
    "small_reductions": (small_reductions, (WORDS, LINE, FLOATS, WIDE, LINE)),
    "carried": (carried, (WIDE, WIDE, FLOATS)), "shapes": (shapes, (WIDE, WIDE, LINE, WIDE)),
    "whole_tensors": (whole_tensors, (WIDE, WIDE, WIDE, LINE, LINE)),
    "clipped": (clipped, (LINE, FLOATS, FLOATS)),
}  # fmt: skip
SPECIAL = np.array([0, 1, -1, 7, 2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**32, 5, -(2**32), 2**63 - 1, -(2**63)])


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("pairs"))


def integers(seed: int, rows: int) -> np.ndarray:
    """Of all sizes, and those where something carries."""
    rng = np.random.default_rng(seed)
    out = rng.integers(-(2**62), 2**62, (rows, 13)) >> rng.integers(0, 62, (rows, 13))
    out[rng.random((rows, 13)) < 0.3] = rng.choice(SPECIAL, (rows, 13))[0, 0]
    out.flat[seed : seed + 13] = SPECIAL
    return out


def like(spec: Any, rows: int) -> np.ndarray:
    dtype = {"i64": np.int64, "f32": np.float32, "i32": np.int32, "bool_": np.bool_}[spec.dtype.name]
    return np.zeros((rows,) if len(spec.shape) == 1 else (rows, 13), dtype)


@needs_compiler
@pytest.mark.parametrize("rows", [24, 19])
@pytest.mark.parametrize("name", [n for n in CASES if n not in ("with_numbers", "clipped")])
def test_words_with_carries(programs: Programs, name: str, rows: int) -> None:
    fn, specs = CASES[name]
    given = {"x": integers(1, rows), "y": integers(14, rows)}
    if name == "small_reductions":
        given["x"] = (given["x"] >> 30).astype(np.int32)
        given["x"][8:16] = 2**31 - 1 - np.arange(13, dtype=np.int32)
    parameters = dict(zip(signature(fn).parameters, specs, strict=True))
    inputs = {p: given[p] for p in parameters if p in given}
    room = 39 if name == "searched" else rows
    check_interpreted(programs, fn, name, inputs, {p: like(s, room) for p, s in parameters.items() if p not in given})


@needs_compiler
@pytest.mark.parametrize("n", [3, -5000000000])
def test_numbers_of_the_launch(programs: Programs, n: int) -> None:
    x = integers(2, 19)
    out, wanted = np.zeros_like(x), np.zeros_like(x)
    with_numbers.interpret(x, wanted, n)
    programs.run("with_numbers", x=x, out=out, n=n)
    np.testing.assert_array_equal(out, wanted)


@needs_compiler
def test_places_of_rows(programs: Programs) -> None:
    tokens = np.array([3, -1, 2**40, 0, 6, 5, 2**31, -(2**33), 1, 4, 2])
    table = np.random.default_rng(0).standard_normal((7, 13), np.float32)
    check_interpreted(programs, clipped, "clipped", {"tokens": tokens, "table": table}, {"out": like(FLOATS, 11)})
