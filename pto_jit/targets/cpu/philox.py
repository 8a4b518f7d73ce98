# SPDX-License-Identifier: MIT
"""Philox 4x32-10 on vectors of 64-bit counters: the numbers behind `rand` and `randn`.

Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3; SC 2011.  Key (seed low, seed high),
counter (low, high, 0, 0).  The 32-bit words live in 64-bit lanes, where the products of a round are one instruction.
"""

from __future__ import annotations

from typing import Any

from pto_jit.targets.cpu.constants import F32, F64, number, vector
from pto_jit.targets.cpu.vector import call_intrinsic, lane_count
from pto_jit.targets.vecmath import RECIPES

Value = Any

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


def words(b: Any, seed: Value, counters: Value) -> tuple[Value, Value]:
    """Output words 0 and 1, in the lower halves of 64-bit lanes."""
    typ = counters.type
    low = number(typ, 0xFFFFFFFF)
    half = number(typ, 32)
    nothing = number(typ, 0)
    c: list[Value] = [b.and_(counters, low), b.lshr(counters, half), nothing, nothing]
    k: list[Value] = [b.and_(seed, low), b.lshr(seed, half)]
    for _ in range(10):
        p0, p1 = b.mul(number(typ, _MULTIPLIERS[0]), c[0]), b.mul(number(typ, _MULTIPLIERS[1]), c[2])
        c = [
            b.xor(b.xor(b.lshr(p1, half), c[1]), k[0]), b.and_(p1, low),
            b.xor(b.xor(b.lshr(p0, half), c[3]), k[1]), b.and_(p0, low),
        ]  # fmt: skip
        k = [b.and_(b.add(key, number(typ, weyl)), low) for key, weyl in zip(k, _WEYL, strict=True)]
    return c[0], c[1]


def _unit(b: Any, word: Value) -> Value:
    """A word as f32 in [0, 1): its upper 24 bits."""
    lanes = lane_count(word.type)
    single = b.sitofp(b.lshr(word, number(word.type, 8)), vector(F32, lanes))
    return b.fmul(single, number(single.type, 2.0**-24))


def uniform(b: Any, seed: Value, counters: Value) -> Value:
    """f32 in [0, 1)."""
    return _unit(b, words(b, seed, counters)[0])


def normal(math: Any, seed: Value, counters: Value) -> Value:
    """Standard normal f32 (Box and Muller, Ann. Math. Stat. 29, 1958), computed in f64; `math` is its vector math."""
    b = math.builder
    wide = vector(F64, lane_count(counters.type))
    u0, u1 = (b.fpext(_unit(b, w), wide) for w in words(b, seed, counters))
    log = RECIPES["log1p"].function(math, b.fneg(u0))
    radius = call_intrinsic(b, "sqrt", wide, b.fmul(number(wide, -2.0), log))
    turn = RECIPES["cos"].function(math, b.fmul(number(wide, 6.283185307179586), u1))
    return b.fptrunc(b.fmul(radius, turn), vector(F32, lane_count(counters.type)))
