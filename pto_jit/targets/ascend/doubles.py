# SPDX-License-Identifier: MIT
"""Numbers of f64 in kernels, whose scalar units compute with f32 and with integers of 64 bits: f64 as integers.

Python floats are such numbers: `1.0 / length`, `0.5 * i`.  Their sums, differences, products and quotients have the
bits of IEEE 754's: what is computed exactly, or with a last bit that says that something was lost, is rounded once, to
the nearest, halves to even (J.-M. Muller et al., "Handbook of Floating-Point Arithmetic", 2018, chapter 9).  Each is
some 50 instructions of the scalar unit, a quotient some 500.

The host computes what no loop of a kernel changes (`numbers.py`), and hands the kernel its bits.
"""

from __future__ import annotations

from struct import pack, unpack

from pto_jit.ir.nodes import Func, Op
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import statements

TYPE = "Double"
NAMES = frozenset(
    f"{TYPE} Parts lifted in_parts rounded doubled halved whole_part from_whole least_of most_of size_of".split()
)
_MOVED = frozenset(["cast", "copy", "select", "getelem", "setelem"])

TEXT = """\
// Numbers of f64, as bits: the core has no such arithmetic.
struct Double {
  uint64_t bits;
};
// A number is m * 2^e, and m has its highest bit; kind: 0 is zero, 1 any other, 2 infinite, 3 none.
struct Parts {
  uint64_t sign, m;
  int64_t e;
  int kind;
};
AICORE inline uint64_t lifted(uint64_t m, int64_t &e) {
  for (int k = 32; k > 0; k /= 2) {
    if (m >> (64 - k) == 0) {
      m <<= k;
      e -= k;
    }
  }
  return m;
}
AICORE inline Parts in_parts(Double x) {
  const uint64_t field = x.bits >> 52 & 2047, fraction = x.bits & ((1ull << 52) - 1);
  Parts out = {x.bits >> 63, fraction, (field == 0 ? 1 : (int64_t)field) - 1075, 1};
  if (field == 2047) {
    out.kind = fraction == 0 ? 2 : 3;
  } else if (field == 0 && fraction == 0) {
    out.kind = 0;
  } else {
    if (field != 0) out.m |= 1ull << 52;
    out.m = lifted(out.m, out.e);
  }
  return out;
}
// m * 2^e, whose last bit may say that there is more, as a number with so many bits behind the first one.
AICORE inline uint64_t rounded(uint64_t sign, uint64_t m, int64_t e, int bits, int64_t bias) {
  const uint64_t top = sign << (bits == 52 ? 63 : 31);
  if (m == 0) return top;
  m = lifted(m, e);
  int64_t field = e + 63 + bias, shift = 63 - bits;
  if (field <= 0) {
    shift += 1 - field;
    field = 1;
    if (shift > 64) return top;
  }
  const uint64_t kept = shift == 64 ? 0 : m >> shift, rest = shift == 64 ? m : m & ((1ull << shift) - 1);
  const uint64_t half = 1ull << (shift - 1);
  const uint64_t up = rest > half || (rest == half && (kept & 1) != 0) ? 1 : 0;
  const uint64_t out = ((uint64_t)(field - 1) << bits) + kept + up, most = (uint64_t)(2 * bias + 1) << bits;
  return top | (field > 2 * bias || out > most ? most : out);
}
AICORE inline Double doubled(float x) {
  union {
    float x;
    uint32_t bits;
  } both = {x};
  const uint64_t sign = both.bits >> 31, field = both.bits >> 23 & 255, fraction = both.bits & 0x7fffff;
  if (field == 255) return {sign << 63 | 2047ull << 52 | fraction << 29};
  return {rounded(sign, field == 0 ? fraction : fraction | 1 << 23, (field == 0 ? 1 : (int64_t)field) - 150, 52, 1023)};
}
AICORE inline float halved(Double x) {
  const Parts p = in_parts(x);
  union {
    uint32_t bits;
    float x;
  } both = {(uint32_t)(p.sign << 31)};
  if (p.kind == 3) both.bits |= 0x7fc00000;
  if (p.kind == 2) both.bits |= 0x7f800000;
  if (p.kind == 1) both.bits = (uint32_t)rounded(p.sign, p.m, p.e, 23, 127);
  return both.x;
}
AICORE inline Double from_whole(int64_t x) {
  return {rounded(x < 0 ? 1 : 0, x < 0 ? 0 - (uint64_t)x : (uint64_t)x, 0, 52, 1023)};
}
AICORE inline int64_t whole_part(Double x, int64_t low, int64_t high) {
  const Parts p = in_parts(x);
  if (p.kind == 0 || p.kind == 3 || p.e <= -64) return 0;
  if (p.kind == 2 || p.e >= 0) return p.sign != 0 ? low : high;
  const uint64_t m = p.m >> -p.e;
  if (p.sign != 0) return m > 0 - (uint64_t)low ? low : (int64_t)(0 - m);
  return m > (uint64_t)high ? high : (int64_t)m;
}
AICORE inline Double operator-(Double x) { return {x.bits ^ 1ull << 63}; }
AICORE inline Double size_of(Double x) { return {x.bits & ~(1ull << 63)}; }
AICORE inline Double operator+(Double x, Double y) {
  Parts a = in_parts(x), b = in_parts(y);
  const bool none = a.kind == 3 || b.kind == 3 || (a.kind == 2 && b.kind == 2 && a.sign != b.sign);
  if (none) return {2047ull << 52 | 1ull << 51};
  if (a.kind == 2 || b.kind == 2) return a.kind == 2 ? x : y;
  if (a.kind == 0 || b.kind == 0) return a.kind != 0 ? x : b.kind != 0 ? y : Double{x.bits & y.bits};
  if (a.e < b.e) {
    const Parts c = a;
    a = b;
    b = c;
  }
  const int64_t apart = a.e - b.e;
  const uint64_t m = a.m >> 2, n = b.m >> 2;
  const uint64_t other = apart > 63 ? 1 : n >> apart | (apart > 0 && n << (64 - apart) != 0 ? 1 : 0);
  if (a.sign == b.sign) return {rounded(a.sign, m + other, a.e + 2, 52, 1023)};
  if (m == other) return {0};
  return {m > other ? rounded(a.sign, m - other, a.e + 2, 52, 1023) : rounded(b.sign, other - m, a.e + 2, 52, 1023)};
}
AICORE inline Double operator-(Double x, Double y) { return x + -y; }
AICORE inline Double operator*(Double x, Double y) {
  const Parts a = in_parts(x), b = in_parts(y);
  const uint64_t sign = a.sign ^ b.sign;
  if (a.kind == 3 || b.kind == 3 || a.kind * b.kind == 0) {
    return {a.kind < 2 && b.kind < 2 ? sign << 63 : 2047ull << 52 | 1ull << 51};
  }
  if (a.kind == 2 || b.kind == 2) return {sign << 63 | 2047ull << 52};
  const uint64_t al = a.m & 0xffffffff, ah = a.m >> 32, bl = b.m & 0xffffffff, bh = b.m >> 32;
  const uint64_t low = al * bl, one = ah * bl + (low >> 32), two = al * bh + (one & 0xffffffff);
  const uint64_t high = ah * bh + (one >> 32) + (two >> 32);
  const bool more = ((two << 32) | (low & 0xffffffff)) != 0;
  return {rounded(sign, high | (more ? 1 : 0), a.e + b.e + 64, 52, 1023)};
}
AICORE inline Double operator/(Double x, Double y) {
  const Parts a = in_parts(x), b = in_parts(y);
  const uint64_t sign = a.sign ^ b.sign;
  if (a.kind == 3 || b.kind == 3 || (a.kind == b.kind && a.kind != 1)) return {2047ull << 52 | 1ull << 51};
  if (a.kind == 0 || b.kind == 2) return {sign << 63};
  if (a.kind == 2 || b.kind == 0) return {sign << 63 | 2047ull << 52};
  uint64_t rest = a.m >= b.m ? a.m - b.m : a.m, out = a.m >= b.m ? 1 : 0;
  for (int k = 0; k < 62; ++k) {
    const bool large = rest >> 63 != 0;
    rest <<= 1;
    out <<= 1;
    if (large || rest >= b.m) {
      rest -= b.m;
      out |= 1;
    }
  }
  return {rounded(sign, out | (rest != 0 ? 1 : 0), a.e - b.e - 62, 52, 1023)};
}
AICORE inline bool operator!=(Double x, Double y) {
  const bool ordered = in_parts(x).kind != 3 && in_parts(y).kind != 3;
  return !ordered || (x.bits != y.bits && ((x.bits | y.bits) << 1) != 0);
}
AICORE inline bool operator==(Double x, Double y) { return !(x != y); }
AICORE inline bool operator<(Double x, Double y) {
  if (in_parts(x).kind == 3 || in_parts(y).kind == 3 || x == y) return false;
  const bool down = x.bits >> 63 != 0;
  return down != (y.bits >> 63 != 0) ? down : down ? x.bits > y.bits : x.bits < y.bits;
}
AICORE inline bool operator>(Double x, Double y) { return y < x; }
AICORE inline bool operator<=(Double x, Double y) { return x < y || x == y; }
AICORE inline bool operator>=(Double x, Double y) { return y <= x; }
AICORE inline Double least_of(Double x, Double y) { return x != x || x < y ? x : y; }
AICORE inline Double most_of(Double x, Double y) { return x != x || x > y ? x : y; }
"""


def has_doubles(func: Func) -> bool:
    """Whether a kernel computes with numbers of f64, and does not only round them."""
    return any(
        isinstance(s, Op) and s.op not in _MOVED and all(isinstance(v.type, ScalarType) for v in (*s.args, *s.results))
        and any(v.type.dtype.name == "f64" for v in (*s.args, *s.results))  # type: ignore[union-attr]
        for s in statements(func.body)
    )  # fmt: skip


def bits_of(value: float) -> str:
    """A constant."""
    return f"{TYPE}{{0x{unpack('Q', pack('d', float(value)))[0]:016x}ull}}"
