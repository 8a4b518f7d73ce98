# SPDX-License-Identifier: MIT
"""Loops over elements as they are written for Numba, and what plain Python makes of them.

``check()`` runs all of them compiled and as plain Python, on the processor at hand or what it pretends to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import pto_jit as pto

SIZES = (0, 1, 15, 16, 17, 1000)
INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
DTYPES = (*INTEGERS, np.float16, np.float32, np.float64)
Case = tuple[Callable[..., Any], tuple[Any, ...]]


def prime(x, y):
    """A `while` that is left early, and divides."""
    for i in range(x.shape[0]):
        n = x[i]
        ok = n > 1
        d = 2
        while d * d <= n:
            if n % d == 0:
                ok = False
                break
            d += 1
        y[i] = 1 if ok else 0


def common_divisor(x, y):
    for i in range(x.shape[0]):
        p = x[i]
        q = y[i]
        while q != 0:
            p, q = q, p % q
        y[i] = p


def digits(x, y):
    for i in range(x.shape[0]):
        n = x[i]
        s = 0
        while n > 0:
            s += n % 10
            n //= 10
        y[i] = s


def power_above(x, y):
    """The condition reads an element that no iteration changes."""
    for i in range(x.shape[0]):
        p = 1
        while p < x[i]:
            p *= 2
        y[i] = p


def doubled_up_to(x, y):
    """What the condition reads is what the body writes."""
    for i in range(x.shape[0]):
        y[i] = 1
        while y[i] < x[i]:
            y[i] = y[i] + y[i]


def place(x, y, out):
    """The place of each element of y among the sorted ones of x."""
    n = x.shape[0]
    for i in range(y.shape[0]):
        lo = 0
        hi = n
        while lo < hi:
            mid = (lo + hi) // 2
            if x[mid] < y[i]:
                lo = mid + 1
            else:
                hi = mid
        out[i] = lo


def escapes(x, y, out):
    for i in range(x.shape[0]):
        a = 0.0
        b = 0.0
        n = 0
        while n < 30 and a * a + b * b <= 4.0:
            t = a * a - b * b + x[i]
            b = 2.0 * a * b + y[i]
            a = t
            n += 1
        out[i] = n


def ones(x, y):
    for i in range(x.shape[0]):
        v = x[i]
        n = 0
        while v:
            v &= v - 1
            n += 1
        y[i] = n


def positive_ones(x, y):
    """Of a negative number none are counted, and it stays what it is."""
    for i in range(x.shape[0]):
        v = x[i]
        n = 100
        while v > 0:
            n -= 3
            v = (v - 1) & v
        y[i] = n + int(v)


def length(x, y):
    for i in range(x.shape[0]):
        v = x[i]
        n = 0
        while v > 0:
            v >>= 1
            n += 1
        y[i] = n + int(v)


def logarithm(x, y):
    for i in range(x.shape[0]):
        v = x[i]
        n = 0
        while 1 < v:
            v //= 2
            n += 1
        y[i] = n * 1000 + int(v)


def octal(x, y):
    """Down to three bits."""
    for i in range(x.shape[0]):
        v = x[i]
        n = 0
        while v >= 8:
            v >>= 1
            n += 1
        y[i] = n * 1000 + int(v)


def zeros_below(x, y):
    for i in range(x.shape[0]):
        v = x[i]
        n = 0
        if v != 0:
            while v & 1 == 0:
                v >>= 1
                n += 1
        y[i] = n * 1000 + int(v & 63)


def bits(x, y):
    """Sums of bits, in several ways."""
    for i in range(x.shape[0]):
        v = x[i]
        total = 5
        odd = 3
        fewer = 0
        twice = 0
        while v > 0:
            total += int(v & 1)
            odd ^= int(v & 1)
            fewer -= int(v % 2)
            if v & 1:
                twice += 2
            v >>= 1
        y[i] = total + 100 * odd + 1000 * fewer + 100000 * twice


def last_seen(x, y):
    """What an iteration leaves behind beside its counters."""
    for i in range(x.shape[0]):
        v = x[i]
        last = v
        n = 0
        while v > 0:
            last = v
            v >>= 1
            n += 1
        y[i] = n + int(last)


def differences(x, y):
    """The bits in which neighbours differ, counted through two loops."""
    total = 0
    for i in range(1, x.shape[0]):
        v = x[i] ^ x[i - 1]
        while v != 0:
            v &= v - 1
            total += 1
    for i in range(y.shape[0]):
        y[i] = total
    return total


BIT_LOOPS = (ones, positive_ones, length, logarithm, octal, zeros_below, bits, last_seen, differences)


def marked(x, y, out):
    """Elements that are not read are stored under a condition."""
    for i in range(x.shape[0]):
        if x[i] > 3:
            out[i] = 1


def chosen(x, y, out):
    for i in range(x.shape[0]):
        if x[i] > y[i]:
            out[i] = y[i]


def chosen_outside(x, y, out):
    """Behind some index there is nothing: it must not be read, nor written back."""
    for i in range(x.shape[0]):
        if i < out.shape[0] and x[i] > y[i]:
            out[i] = x[i]


def edit_distance(x, y, row, above):
    n = y.shape[0]
    for j in range(n):
        above[j] = 3 + j
    for i in range(x.shape[0]):
        row[0] = i + 1
        for j in range(1, n):
            cost = 0 if x[i] == y[j] else 1
            row[j] = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + cost)
        for j in range(n):
            above[j] = row[j]


def warped(x, y, table):
    """A table whose elements are least ones of three neighbours, both zeros among them."""
    for i in range(1, x.shape[0]):
        for j in range(1, y.shape[0]):
            table[i, j] = min(table[i, j - 1], table[i - 1, j], table[i - 1, j - 1]) * x[i]


def in_the_middle(x, y):
    """What is waited for is neither the first nor the last operand."""
    m = x[0]
    for i in range(1, x.shape[0]):
        m = max(x[i], y[i - 1], m, y[i], x[i - 1])
        y[i] = m


def both_extremes(x, y):
    m = y[0]
    for i in range(1, x.shape[0]):
        m = max(min(x[i], m, y[i]), x[i - 1])
        y[i] = m


def kept(x, y, out):
    n = 0
    for i in range(x.shape[0]):
        if x[i] > y[i]:
            out[n] = x[i]
            n += 1
    return n


def places(x, y, out):
    """From the last element to the first, behind what is there."""
    n = 2
    for i in range(x.shape[0] - 1, 1, -1):
        if x[i] > y[i]:
            out[n] = i
            n += 1
    return n


def without_repeats(x, out):
    n = 0
    for i in range(x.shape[0]):
        if i == 0 or x[i] != x[i - 1]:
            out[n] = x[i]
            n += 1
    return n


def parted(x, y, small, large, at):
    """Two counters, one of which counts for two tensors, behind a condition within another."""
    n = 0
    m = 0
    for i in range(x.shape[0]):
        if x[i] < y[i]:
            small[n] = x[i]
            n += 1
        elif x[i] > 3:
            m += 1
            large[m] = y[i]
            at[1, m] = i
    return n * 10000 + m


def counted_twice(x, y, out):
    n = 0
    for i in range(x.shape[0]):
        if x[i] > 3:
            out[n] = x[i]
            n += 1
        if y[i] > 3:
            out[n] = y[i]
            n += 1
    return n


def either_way(x, y, out):
    n = 0
    for i in range(x.shape[0]):
        if x[i] > 3:
            out[n] = x[i]
            n += 1
        elif y[i] > 3:
            out[n] = y[i]
            n += 1
    return n


def by_two(x, y, out):
    n = 0
    for i in range(x.shape[0]):
        if x[i] > y[i]:
            out[n] = x[i]
            n += 2
    return n


def overwritten(x, y, out):
    n = 0
    for i in range(x.shape[0]):
        if x[i] > y[i]:
            out[n] = x[i]
            out[n + 1] = y[i]
            n += 1
    return n


def looked_at(x, y, out):
    n = 0
    for i in range(x.shape[0]):
        if x[i] > y[i]:
            out[n] = x[i]
            n += 1
        y[i] = n & 63
    return n


def remembered(x, y, out):
    n = 0
    last = -1
    for i in range(x.shape[0]):
        if x[i] > y[i]:
            out[n] = x[i]
            last = n
            n += 1
    return n * 10000 + last


def up_to(x, y, out):
    n = 0
    for i in range(x.shape[0]):
        if x[i] > y[i] and n < 5:
            out[n] = x[i]
            n += 1
    return n


def without_neighbours(x, y, out):
    """What is stored is read."""
    n = 1
    out[0] = x[0]
    for i in range(1, x.shape[0]):
        if x[i] != out[n - 1]:
            out[n] = x[i]
            n += 1
    return n


PACKED = (kept, places)
NOT_PACKED = (counted_twice, either_way, by_two, overwritten, looked_at, remembered, up_to)


def kept_of(count: int) -> Callable[..., Any]:
    """As many elements as are known while compiling: vectors may be shorter than registers."""

    def function(x, y, out):
        n = 0
        for i in range(count):
            if x[i] > y[i]:
                out[n] = y[i]
                n += 1
        return n

    return function


def _drawn(rng: np.random.Generator, dtype: type, n: int) -> np.ndarray:
    """Small numbers, few of them; of floats also NaN, infinities and both zeros."""
    x = rng.integers(0, 100, n).astype(dtype)
    if np.dtype(dtype).kind == "f" and n > 3:
        x[rng.integers(0, n, n // 4)] = rng.choice(np.array([np.nan, np.inf, -np.inf, -0.0, 0.0], dtype), n // 4)
    elif np.dtype(dtype).kind == "i":
        x[::3] = -x[::3]
    return x


def cases(dtype: type, n: int, rng: np.random.Generator) -> Iterator[Case]:
    """Functions with their arguments, for one dtype and one number of elements."""
    x, y = _drawn(rng, dtype, n), _drawn(rng, dtype, n)
    if np.dtype(dtype).kind != "f":
        yield prime, (x, np.zeros(n, np.int64))
        yield common_divisor, (abs(x), abs(y))
        yield digits, (x, np.zeros(n, np.int32))
        yield power_above, (abs(x) // 2, np.zeros(n, np.int64))
        yield doubled_up_to, (abs(x) // 2, np.zeros(n, dtype))
        limits = np.iinfo(dtype)
        wide = rng.integers(limits.min, limits.max, n, dtype, endpoint=True)
        wide[: n // 4] = rng.choice(np.array([limits.min, limits.max, 0, 1, 2, 7, 8], dtype), n // 4)
        for function in BIT_LOOPS:
            yield function, (wide, np.zeros(n, np.int64))
    else:
        small = rng.uniform(-2, 2, (2, n)).astype(dtype)
        if dtype is not np.float16:
            yield escapes, (small[0], small[1], np.zeros(n, np.int64))
    k = min(n, 40)
    yield edit_distance, (np.sign(x[:k]), np.sign(y[:k]), np.zeros(k, np.int64), np.zeros(k, np.int64))
    numbers = [np.where(np.isfinite(a), a, a.dtype.type(-0.0)) for a in (x, y)]  # Python's `min` loses NaN
    yield warped, (np.sign(numbers[0][:k]), y[:k], np.sign(np.resize(numbers[1], (k, k))))
    if n:
        yield in_the_middle, (numbers[0], numbers[1].copy())
        yield both_extremes, (numbers[0], numbers[1].copy())
    for function in (*PACKED, *NOT_PACKED):
        yield function, (x, y.copy(), np.full(2 * n + 2, 7, np.int64 if function is places else dtype))
    for count in (2, 3, 5, 9, 17) if n == 17 else ():
        yield kept_of(count), (x, y, np.full(n, 7, dtype))
    yield without_repeats, (np.sort(x), np.full(n, 7, dtype))
    yield parted, (x, y, np.full(n + 1, 7, dtype), np.full(n + 1, 7, np.float64), np.full((3, n + 1), 7, np.int32))
    if n:
        yield without_neighbours, (np.sort(x), y, np.full(n, 7, dtype))
        shared = np.concatenate((x, y))
        yield kept, (shared[:n], y, shared[n // 2 : n // 2 + n])  # stored to what is read later
    for z in (y, np.roll(x, 1), np.where(np.arange(n) % 31 == 0, 127, 0).astype(dtype)):
        yield marked, (z, y, np.zeros(n, dtype))
        yield chosen, (x, z, np.ones(n, dtype))
        yield chosen_outside, (x, z, np.ones(2 * n // 3, dtype))
    yield place, (np.sort(x), y, np.zeros(n, np.int64))


def copies(arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Arrays like these, which share memory where these do."""
    memory = {id(base): base.copy() for a in arguments if (base := a.base) is not None}
    out = []
    for a in arguments:
        if a.base is None:
            out.append(memory.get(id(a), a.copy()))
            continue
        start = a.__array_interface__["data"][0] - a.base.__array_interface__["data"][0]
        out.append(np.ndarray(a.shape, a.dtype, memory[id(a.base)], start, a.strides))
    return out


def check() -> None:
    rng = np.random.default_rng(5)
    for dtype in DTYPES:
        for n in SIZES:
            for function, arguments in cases(dtype, n, rng):
                expected = copies(arguments)
                with np.errstate(all="ignore"):
                    result = function(*expected)
                name = f"{function.__name__}, {n} of {np.dtype(dtype)}"
                kernel = pto.jit(function)
                assert kernel(*arguments) == result, name
                for got, wanted in zip(arguments, expected, strict=True):
                    np.testing.assert_array_equal(got, wanted, err_msg=name)
                    if got.dtype.kind == "f":
                        np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted), err_msg=name)
