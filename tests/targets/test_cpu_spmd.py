# SPDX-License-Identifier: MIT
"""Parallel loops of scalar code, written lane by lane: the compiled kernels against plain Python over elements."""

from __future__ import annotations

import linecache
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.semantic import interpreter
from pto_jit.targets.cpu.loading import host
from tests.targets.cpu_programs import Compiled, check, module
from tests.targets.scalar_programs import ScalarProgram, generate

T = pl.Tensor
SIZES = [0, 1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 64, 65, 100]
COUNT = int(os.environ.get("PTO_TEST_SCALAR_PROGRAMS", "200"))
BATCH = 20


def numbers(n: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed + n)
    if dtype.startswith("float"):
        return (rng.standard_normal(n) * 3).astype(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, n).astype(bool)
    info = np.iinfo(dtype)
    return rng.integers(max(info.min, -50), min(info.max, 50), n, endpoint=True).astype(dtype)


def is_written_in_lanes(kernel: Any, *args: Any) -> bool:
    sources = kernel.compile(*args, cache=False).sources
    return any("groups" in text for name, text in sources.items() if name.endswith(".ll"))


@pto.jit
def nested_branches(x: T, out: T, n: pl.i64):
    with pl.incore():
        for j in pl.range(0, n, parallel=True):
            v = x[j]
            r = 0.0
            if v > 0.0:
                if v > 2.0:
                    r = v * 2.0
                    if j % 2 == 0:
                        r = r + 1.0
                else:
                    r = v - 1.0
            elif v < -3.0:
                r = -v
            out[j] = r


def nested_branches_python(v: Any, j: int) -> Any:
    r = np.float32(0)
    if v > 0:
        if v > 2:
            r = v * np.float32(2)
            if j % 2 == 0:
                r = r + np.float32(1)
        else:
            r = v - np.float32(1)
    elif v < -3:
        r = -v
    return r


@pytest.mark.parametrize("n", range(67))
def test_nested_branches_at_every_remainder(n: int) -> None:
    x, out = numbers(n), np.full(n + 1, 7, np.float32)
    nested_branches(x, out, n)
    expected = [nested_branches_python(v, j) for j, v in enumerate(x)]
    np.testing.assert_array_equal(out, np.array([*expected, 7], np.float32))
    if n:
        assert is_written_in_lanes(nested_branches, x, out, n)


@pto.jit
def collatz(k: T, out: T, n: pl.i64):
    with pl.incore():
        for j in pl.range(0, n, parallel=True):
            v = k[j]
            steps = 0
            while v != 1:
                if v % 2 == 0:
                    v = v // 2
                else:
                    v = 3 * v + 1
                steps += 1
            out[j] = steps


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("n", SIZES)
def test_a_while_loop_that_lanes_leave_at_different_times(n: int, dtype: str) -> None:
    def steps(v: int) -> int:
        count = 0
        while v != 1:
            v, count = v // 2 if v % 2 == 0 else 3 * v + 1, count + 1
        return count

    k, out = np.arange(1, n + 1, dtype=dtype), np.zeros(n, np.int32)
    collatz(k, out, n)
    np.testing.assert_array_equal(out, [steps(int(v)) for v in k])


@pto.jit
def exits(k: T, out: T, n: pl.i64):
    with pl.incore():
        for j in pl.range(0, n, parallel=True):
            total = pl.i64(0)
            found = pl.i64(-1)
            i = pl.i64(0)
            while i < 12:
                i += 1
                if (k[j] + i) % 3 == 0:
                    continue
                if k[j] * i > 60:
                    found = i
                    break
                total += i
            else:
                total += 1000
            if total == 0:
                continue
            out[j] = total * 100 + found


@pytest.mark.parametrize("n", SIZES)
def test_break_continue_and_else(n: int) -> None:
    k = numbers(n, "int64")
    out = np.full(n, -7, np.int64)
    exits(k, out, n)
    expected = []
    for v in k.tolist():
        total, found, i = 0, -1, 0
        while i < 12:
            i += 1
            if (v + i) % 3 == 0:
                continue
            if v * i > 60:
                found = i
                break
            total += i
        else:
            total += 1000
        expected.append(-7 if total == 0 else total * 100 + found)
    np.testing.assert_array_equal(out, expected)


@pto.jit
def nested_loops(k: T, out: T, n: pl.i64):
    with pl.incore():
        for j in pl.range(0, n, chunk=48):
            count = 0
            a = k[j] % 7
            while a > 0:
                b = a
                while True:
                    b -= 2
                    count += 1
                    if b <= 0:
                        break
                    if count > 9:
                        continue
                    count += 10
                a -= 1
            out[j] = count


@pytest.mark.parametrize("n", SIZES)
def test_loops_in_loops_that_lanes_leave_at_different_times(n: int) -> None:
    k, out = numbers(n, "int64"), np.zeros(n, np.int64)
    nested_loops(k, out, n)
    expected = []
    for v in k.tolist():
        count, a = 0, v % 7
        while a > 0:
            b = a
            while True:
                b -= 2
                count += 1
                if b <= 0:
                    break
                if count > 9:
                    continue
                count += 10
            a -= 1
        expected.append(count)
    np.testing.assert_array_equal(out, expected)


@pto.jit
def triangle(x: T, out: T, n: pl.i64, step: pl.i64):
    with pl.incore():
        for j in pl.range(0, n, parallel=True):
            s = 0.0
            last = pl.i64(-1)
            for i in range(j % 5, j):
                if x[i] < 0.0:
                    continue
                s += x[i]
                last = i
                if s > 20.0:
                    break
            for i in range(step):
                s += x[(j + i) % n]
            out[j, 0] = s
            out[j, 1] = pl.f64(last)


@pytest.mark.parametrize("n", SIZES)
def test_counted_loops_with_bounds_that_differ_between_lanes(n: int) -> None:
    x, out = numbers(n, "float64"), np.zeros((n, 2))
    triangle(x, out, n, 3)
    expected = np.zeros((n, 2))
    for j in range(n):
        s, last = 0.0, -1
        for i in range(j % 5, j):
            if x[i] < 0:
                continue
            s, last = s + x[i], i
            if s > 20:
                break
        for i in range(3):
            s += x[(j + i) % n]
        expected[j] = s, last
    np.testing.assert_array_equal(out, expected)


@pto.jit
def divisions(a: T, b: T, out: T, n: pl.i64):
    with pl.incore():
        for j in pl.range(0, n, parallel=True):
            q = a[j]
            if b[j] != 3:
                q = a[j] // b[j]
            out[j, 0] = q
            out[j, 1] = a[j] % b[j]
            out[j, 2] = (a[j] // 4) % 5


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint32"])
def test_quotients_and_remainders_follow_python_for_negative_numbers_and_zero(dtype: str) -> None:
    n = 101
    a, b = numbers(n, dtype), numbers(n, dtype, 5) % 7 - (0 if dtype.startswith("u") else 3)
    a[0], b[0], b[1] = np.iinfo(dtype).min, 0 if dtype.startswith("u") else -1, 0
    b = b.astype(dtype)
    out = np.zeros((n, 3), dtype)
    divisions(a, b, out, n)
    with np.errstate(all="ignore"):
        q = np.where(b != 3, a // b, a)
        np.testing.assert_array_equal(out, np.stack([q, a % b, (a // 4) % 5], 1).astype(dtype))


@pto.jit
def mixed(f: T, d: T, i: T, u: T, b: T, out: T, n: pl.i64):
    with pl.incore():
        for j in pl.range(0, n, parallel=True):
            v = pl.f64(f[j]) * d[j]
            if b[j]:
                v = v + pl.f64(i[j])
            w = pl.i64(u[j]) * 3 - j
            if w > 50 or not b[j]:
                v = v - pl.f64(w)
            out[j] = pl.f32(v)


@pytest.mark.parametrize("n", SIZES)
def test_different_dtypes_in_one_body(n: int) -> None:
    f, d, i = numbers(n), numbers(n, "float64", 1), numbers(n, "int32", 2)
    u, b, out = numbers(n, "uint8", 3), numbers(n, "bool", 4), np.zeros(n, np.float32)
    mixed(f, d, i, u, b, out, n)
    v = f.astype(float) * d
    v = np.where(b, v + i, v)
    w = u.astype(np.int64) * 3 - np.arange(n)
    np.testing.assert_array_equal(out, np.where((w > 50) | ~b, v - w, v).astype(np.float32))


@pto.jit
def casts(f: T, i: T, u: T, b: T, n: pl.i64):
    with pl.incore():
        for j in pl.range(0, n, parallel=True):
            v = f[j]
            if v == v:
                i[j] = pl.i32(v)
                u[j] = pl.u8(v)
            else:
                i[j] = pl.i32(v) + 1
            b[j] = pl.bool_(v)


def test_casts_saturate_in_every_lane() -> None:
    f = np.array([3e9, -3e9, np.nan, np.inf, -np.inf, 1.9, -1.9, 300, 0, -0.0] * 5, np.float32)
    n = len(f)
    i, u, b = np.zeros(n, np.int32), np.zeros(n, np.uint8), np.zeros(n, bool)
    casts(f, i, u, b, n)
    top, low = 2**31 - 1, -(2**31)
    np.testing.assert_array_equal(i, np.array([top, low, 1, top, low, 1, -1, 300, 0, 0] * 5))
    np.testing.assert_array_equal(u, np.array([255, 0, 0, 255, 0, 1, 0, 255, 0, 0] * 5))
    np.testing.assert_array_equal(b, f != 0)


@pto.jit
def small_floats(x: T, out: T, n: pl.i64):
    with pl.incore():
        for j in pl.range(0, n, parallel=True):
            v = x[j]
            if v > 0.0:
                v = v * v
            while v > 4.0:
                v = v * 0.5
            out[j] = v


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_small_floats_agree_with_scalar_code(dtype: str) -> None:
    import ml_dtypes

    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16
    x = numbers(77).astype(kind)
    out, expected = np.zeros_like(x), np.zeros_like(x)
    small_floats(x, out, 77)
    small_floats.compile(x, expected, 77, debug=True)(x, expected, 77)  # debugging code is scalar
    np.testing.assert_array_equal(out.astype(float), expected.astype(float))


@pto.jit
def gather_scatter(x: T, index: T, out: T, n: pl.i64):
    with pl.incore():
        for j in pl.range(0, n, parallel=True):
            v = x[index[j]]
            if index[j] % 3 != 0:
                v = v + x[n - 1 - j]
                out[index[j], 1] = v
            else:
                out[index[j], 0] = -v


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "int16"])
def test_elements_at_places_from_an_index(dtype: str) -> None:
    for n in SIZES:
        x = numbers(n, dtype)
        index = np.random.default_rng(n).permutation(n).astype(np.int32)
        out, expected = np.zeros((n, 2), dtype), np.zeros((n, 2), dtype)
        gather_scatter(x, index, out, n)
        for j, i in enumerate(index):
            if i % 3:
                expected[i, 1] = x[i] + x[n - 1 - j]
            else:
                expected[i, 0] = np.negative(x[i])
        np.testing.assert_array_equal(out, expected)


@pto.jit
def masked_bounds(x: T, index: T, out: T, n: pl.i64):
    with pl.incore():
        for j in pl.range(0, n, parallel=True):
            i = pl.i64(index[j])
            if i >= 0 and i < n:
                out[j] = x[i]
            else:
                out[j] = 0.5


def test_a_lane_that_is_not_active_reads_nothing() -> None:
    for n in SIZES:
        x, out = numbers(n), np.zeros(n, np.float32)
        index = np.where(np.arange(n) % 4 == 1, 2**40, np.arange(n)[::-1]).astype(np.int64)
        masked_bounds(x, index, out, n)
        np.testing.assert_array_equal(out, [x[i] if 0 <= i < n else 0.5 for i in index.tolist()])


@pto.jit
def uniform_conditions(x: T, table: T, out: T, n: pl.i64, mode: pl.i64):
    with pl.incore():
        for j in pl.range(0, n, parallel=True):
            v = x[j]
            if mode == 1:
                v = v * table[0]
            elif mode == 2:  # noqa: SIM102
                if v < 0.0:
                    v = table[1]
            k = 0
            while k < mode:
                k += 1
                if mode > 5 and k == 3:
                    break
                v = v + 1.0
            if n > 1000000:
                v = table[1000000]
            out[j] = v


@pytest.mark.parametrize("mode", [0, 1, 2, 4, 9])
def test_conditions_that_all_lanes_have_in_common(mode: int) -> None:
    table = np.array([2, 3], np.float32)
    for n in SIZES:
        x, out = numbers(n), np.zeros(n, np.float32)
        uniform_conditions(x, table, out, n, mode)
        v = x * table[0] if mode == 1 else np.where(x < 0, table[1], x) if mode == 2 else x
        for _ in range(2 if mode > 5 else mode):
            v = v + np.float32(1)
        np.testing.assert_array_equal(out, v)


@pto.jit
def strides(x: T, out: T, lo: pl.i64, hi: pl.i64):
    with pl.incore():
        for j in pl.range(lo, hi, 3, parallel=True):
            v = x[j, 1]
            if v > 0.0:
                v = v + x[j, 0]
            out[1, 2 * j] = v
            out[0, j] = v


@pytest.mark.parametrize("bounds", [(0, 0), (5, 2), (0, 1), (1, 50), (2, 98), (0, 100)])
def test_strided_places_and_steps(bounds: tuple[int, int]) -> None:
    x = numbers(300).reshape(100, 3)[:, ::2]
    out, expected = np.zeros((2, 200), np.float32), np.zeros((2, 200), np.float32)
    view = np.zeros((2, 400), np.float32)[:, ::2]
    strides(x, out, *bounds)
    strides(x, view, *bounds)
    for j in range(*bounds, 3):
        v = x[j, 1] + x[j, 0] if x[j, 1] > 0 else x[j, 1]
        expected[1, 2 * j] = expected[0, j] = v
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(view, expected)


@pto.jit
def backwards(x: T, out: T, n: pl.i64):
    with pl.incore():
        for j in pl.range(n - 1, -1, -1, parallel=True):
            v = x[j]
            while v > 1.0:
                v = v * 0.5
            out[j] = v


def test_a_loop_that_counts_down() -> None:
    for n in SIZES:
        x, out = numbers(n), np.zeros(n, np.float32)
        backwards(x, out, n)
        expected = x.copy()
        while (expected > 1).any():
            expected = np.where(expected > 1, expected * np.float32(0.5), expected)
        np.testing.assert_array_equal(out, expected)


@pto.jit
def functions(x: T, out: T, n: pl.i64):
    with pl.incore():
        for j in pl.range(0, n, parallel=True):
            v = x[j]
            r = pl.exp(-abs(v))
            if v > 0.0:
                r = r + pl.sin(v * 100.0)
            else:
                r = r * pl.tanh(v) + pl.sqrt(-v)
            out[j] = r


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_math_functions_under_a_mask_equal_the_scalar_ones(dtype: str) -> None:
    for n in (5, 16, 33, 100):
        x = numbers(n, dtype)
        out, expected = np.zeros_like(x), np.zeros_like(x)
        functions(x, out, n)
        functions.compile(x, expected, n, debug=True)(x, expected, n)
        np.testing.assert_array_max_ulp(out, expected, 2)
        exact = np.exp(-np.abs(x)) + np.where(x > 0, np.sin(x * x.dtype.type(100)), 0)
        positive = x > 0
        np.testing.assert_allclose(out[positive], exact[positive], rtol=1e-4, atol=1e-5)


@pto.jit
def powers(k: T, out: T, n: pl.i64):
    with pl.incore():
        for j in pl.range(0, n, parallel=True):
            v = pl.i64(0)
            if k[j] > 0:
                v = pl.pow(k[j], k[j] % 5)
            out[j] = v << (j % 3)


def test_integer_powers_and_shifts() -> None:
    k = numbers(83, "int64")
    out = np.zeros(83, np.int64)
    powers(k, out, 83)
    np.testing.assert_array_equal(out, [(v ** (v % 5) if v > 0 else 0) << (j % 3) for j, v in enumerate(k.tolist())])


@pto.jit
def hashes(seed: pl.i64, out: T, n: pl.i64):
    with pl.incore():
        for j in pl.range(0, n, parallel=True):
            v = j * 6364136223846793005 + seed
            while v & 3 != 0:
                v = (v ^ (v >> 7)) * 2862933555777941757 + 1
            out[j] = v


def test_integers_wrap() -> None:
    out = np.zeros(70, np.int64)
    hashes(12345, out, 70)
    for j in range(70):
        v = j * 6364136223846793005 + 12345
        v = (v + 2**63) % 2**64 - 2**63
        while v & 3:
            v = ((v ^ (v >> 7)) * 2862933555777941757 + 1 + 2**63) % 2**64 - 2**63
        assert out[j] == v


@pto.jit
def one_lane_writes(x: T, out: T, n: pl.i64):
    with pl.incore():
        for j in pl.range(0, n, parallel=True):
            if j == n // 2:
                out[0] = x[j]
            if x[j] > 1.0e6:
                out[1] = 3.0


def test_one_lane_may_write_one_place() -> None:
    for n in SIZES[1:]:
        x, out = numbers(n), np.zeros(2, np.float32)
        one_lane_writes(x, out, n)
        np.testing.assert_array_equal(out, [x[n // 2], 0])


@pto.jit
def two_dimensional(x: T, y: T, out: T):
    rows, cols = out.shape
    inner = y.shape[0]
    with pl.incore():
        for i in pl.range(0, rows, chunk=2):
            for j in pl.range(0, cols, parallel=True):
                s = 0.0
                for k in pl.range(0, inner):
                    s += x[i, k] * y[k, j]
                out[i, j] = s


@pytest.mark.parametrize("cols", [1, 15, 16, 33, 70])
def test_lanes_along_columns_of_a_product(cols: int) -> None:
    x, y = numbers(5 * 9, "float64").reshape(5, 9), numbers(9 * cols, "float64").reshape(9, cols)
    out = np.zeros((5, cols))
    two_dimensional(x, y, out)
    np.testing.assert_allclose(out, x @ y, rtol=1e-13, atol=1e-13)


@pto.jit
def constant_extent(x: T, out: T):
    with pl.incore():
        for j in pl.range(0, 5, parallel=True):
            v = x[j]
            while v > 1.0:
                v = v - 1.0
            out[j] = v


def test_a_short_constant_extent() -> None:
    x, out = np.array([0.5, 1.5, 9.25, -3, 2], np.float32), np.zeros(6, np.float32)
    constant_extent(x, out)
    np.testing.assert_array_equal(out, np.array([0.5, 0.5, 0.25, -3, 1, 0], np.float32))


def test_element_bounds_are_checked_when_debugging() -> None:
    x, out = numbers(20), np.zeros(10, np.float32)
    with pytest.raises(pto.BoundsError):
        nested_branches.compile(x, out, 20, debug=True)(x, out, 20)


def halve(a: Any, b: Any) -> Any:
    n = 0
    while a * a > b:
        a = a * 0.5
        n += 1
        if n > 20:
            break
    return (a if n % 2 == 0 else -a), n


@pto.jit
def mapped(x: T, y: T, out: T, counts: T):
    rows, cols = x.shape
    with pl.incore():
        for i in pl.range(0, rows, 8):
            a, n = pl.map(halve, pl.load(x, [i, 0], [8, cols]), pl.load(y, [0, 0], [1, cols]))
            pl.store(a, [i, 0], out)
            pl.store(n, [i, 0], counts)


@pytest.mark.parametrize("shape", [(1, 1), (3, 17), (20, 33), (9, 64), (0, 4)])
def test_a_mapped_function_with_control_flow(shape: tuple[int, int]) -> None:
    x = numbers(shape[0] * shape[1], "float64").reshape(shape) * 100
    y = np.abs(numbers(shape[1], "float64")).reshape(1, -1)
    out, counts = np.zeros_like(x), np.zeros(shape, np.int64)
    mapped(x, y, out, counts)
    for i in range(shape[0]):
        for j in range(shape[1]):
            assert (out[i, j], counts[i, j]) == halve(x[i, j], y[0, j])
    assert is_written_in_lanes(mapped, x, y, out, counts)


# -- variables that the front end would split ------------------------------------------------------------------------

BODIES = {
    "a loop in a branch assigns a variable from outside": """
    %s = scopy %v : i64
    IF %odd
      FOR %i:idx, 0:idx, 3:idx, 1:idx
        %s = sadd %s, %i : i64
      ENDFOR
    ELSE
      WHILE
        %c = slt %s, 9 : bool_
      DO %c
        %s = sadd %s, 4 : i64
      ENDWHILE
    ENDIF
    ssetelem %s, %out[%j]
""",
    "what the test of a loop computes is read after it": """
    %s = scopy 0 : i64
    WHILE
      %t = smul %s, %s : i64
      %c = slt %t, %v : bool_
    DO %c
      %s = sadd %s, 1 : i64
    ENDWHILE
    %r = sadd %t, %s : i64
    ssetelem %r, %out[%j]
""",
    "a value made on the only way that goes on": """
    %s = scopy 0 : i64
    FOR %i:idx, 0:idx, 9:idx, 1:idx
      %b = sgt %i, %v : bool_
      IF %b
        BREAK
      ELSE
        %t = sadd %s, %i : i64
      ENDIF
      %s = scopy %t : i64
      IF %odd
        CONTINUE
      ENDIF
      %s = sadd %s, 100 : i64
    ENDFOR
    ssetelem %s, %out[%j]
""",
    "loops in loops carry one variable": """
    %s = scopy %v : i64
    %k = scopy 0 : i64
    WHILE
      %c = slt %k, %v : bool_
    DO %c
      %k = sadd %k, 1 : i64
      FOR %i:idx, %k:idx, %v:idx, 1:idx
        %s = sadd %s, %i : i64
        %b = sgt %s, 60 : bool_
        IF %b
          BREAK
        ENDIF
        %s = sadd %s, %k : i64
      ENDFOR
      IF %odd
        %e = sgt %k, 5 : bool_
        IF %e
          BREAK
        ENDIF
        CONTINUE
      ENDIF
      %s = ssub %s, 7 : i64
    ENDWHILE
    ssetelem %s, %out[%j]
""",
    "a loop that runs no iteration keeps what was there": """
    %s = scopy -5 : i64
    FOR %i:idx, 4:idx, %v:idx, 1:idx
      %s = smul %i, 3 : i64
    ENDFOR
    IF %odd
      FOR %q:idx, 2:idx, 1:idx, 1:idx
        %s = scopy 77 : i64
      ENDFOR
      ssetelem %s, %out[%j]
    ENDIF
""",
    "loops and branches one after the other": """
    %s = scopy 1 : i64
    IF %odd
      %s = sadd %s, 5 : i64
    ENDIF
    WHILE
      %c = slt %s, %v : bool_
    DO %c
      %s = smul %s, 2 : i64
    ENDWHILE
    FOR %i:idx, 0:idx, 2:idx, 1:idx
      %s = sadd %s, %i : i64
    ENDFOR
    WHILE
      %d = slt %s, 30 : bool_
    DO %d
      %s = sadd %s, %s : i64
    ENDWHILE
    ssetelem %s, %out[%j]
""",
    "a loop is left after some have gone on to the next iteration": """
    %s = scopy 0 : i64
    FOR %i:idx, 0:idx, 6:idx, 1:idx
      %s = sadd %s, %i : i64
      %b = slt %i, %v : bool_
      IF %b
        CONTINUE
      ENDIF
      %s = sadd %s, 1000 : i64
      BREAK
    ENDFOR
    ssetelem %s, %out[%j]
""",
    "an element is read on the only way that goes on": """
    %s = scopy 0 : i64
    WHILE
      %c = slt %s, 50 : bool_
    DO %c
      %b = slt %v, 0 : bool_
      IF %b
        BREAK
      ELSE
        %t = sgetelem %x[%j] : i64
      ENDIF
      %s = sadd %s, %t : i64
      %s = sadd %s, 1 : i64
    ENDWHILE
    ssetelem %s, %out[%j]
""",
    "a variable is made in both branches": """
    IF %odd
      %s = sadd %v, 3 : i64
    ELSE
      FOR %q:idx, 0:idx, 2:idx, 1:idx
        %s = sadd %v, %q : i64
      ENDFOR
      %s = smul %v, 2 : i64
    ENDIF
    ssetelem %s, %out[%j]
""",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_variables_that_live_across_loops_and_branches(body: str) -> None:
    text = f"""
func @f(%x: !pto.memref<gm,?,i64>, %out: !pto.memref<gm,?,i64>, %n: i64) {{
  FOR %j:idx, 0:idx, %n:idx, 1:idx {{kind=parallel}}
    %v = sgetelem %x[%j] : i64
    %m = smod %v, 2 : i64
    %odd = sne %m, 0 : bool_
{body}  ENDFOR
  return
}}
"""
    assert "groups" in Compiled(module(text)).program.llvm_ir
    for n in (0, 1, 5, 16, 40):
        check(text, np.random.default_rng(n).integers(-3, 12, n), np.zeros(n, np.int64), n)


# -- random programs ---------------------------------------------------------------------------------------------------


def build(program: ScalarProgram) -> Callable[..., Any]:
    filename = f"<scalar program {program.seed}>"
    linecache.cache[filename] = (len(program.source), None, program.source.splitlines(True), filename)
    namespace: dict[str, Any] = {"pto": pto, "pl": pl}
    exec(compile(program.source, filename, "exec"), namespace)
    return namespace["kernel"]


@pytest.mark.parametrize("batch", range(COUNT // BATCH))
def test_random_scalar_programs_agree_with_the_interpreter(batch: int) -> None:
    lanes = 0
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        program = generate(seed)
        kernel: Any = build(program)
        expected: Any = program.args
        actual: Any = program.args
        with np.errstate(all="ignore"):
            compiled = kernel.compile(*actual, cache=False)
            interpreter.run(compiled._lowered().modules["source"], expected)
        compiled(*actual)
        lanes += any("groups" in text for text in compiled.sources.values())
        note = f"seed {seed}\n{program.source}"
        np.testing.assert_array_equal(actual[4], expected[4], err_msg=note)
        np.testing.assert_array_equal(actual[3][:, 0], expected[3][:, 0], err_msg=note)
        tolerance = 1e-4 if program.floats == "f32" else 1e-11
        np.testing.assert_allclose(actual[3][:, 1], expected[3][:, 1], rtol=tolerance, atol=tolerance, err_msg=note)
    assert lanes > BATCH // 2  # what the comparison is worth


# -- stores past the caches ---------------------------------------------------------------------------------------------


@pto.jit(cache=False)
def shifted_sum(x, y):
    with pl.incore():
        for i in pl.range(0, y.shape[0], parallel=True):
            for j in pl.range(0, y.shape[1], parallel=True):
                y[i, j] = x[i, j] + x[i, j + 1]


@pto.jit(cache=False)
def shifted_exp(x, y):
    with pl.incore():
        for i in pl.range(0, y.shape[0], parallel=True):
            for j in pl.range(0, y.shape[1], parallel=True):
                y[i, j] = pl.exp(x[i, j]) - pl.exp(x[i, j + 1])


@pto.jit(cache=False)
def by_rows(x, y):
    """Each row is read again at once."""
    with pl.incore():
        for i in pl.range(1, y.shape[0]):
            for j in pl.range(0, y.shape[1], parallel=True):
                y[i, j] = y[i - 1, j] + x[i, j]


@pto.jit(cache=False)
def halved(x, y):
    """Half as many bytes are stored as are computed with."""
    with pl.incore():
        for j in pl.range(0, y.shape[0], parallel=True):
            y[j] = pl.cast(x[j] * 2.0, pl.f16)


@pytest.fixture
def streaming(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tensor is too large for the caches."""
    monkeypatch.setattr("pto_jit.targets.cpu.spmd.streaming.STREAM", -1)


@pytest.mark.skipif(not host().triple.startswith("x86_64"), reason="stores past the caches are for x86")
@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("kernel, wanted", [(shifted_sum, lambda a, b: a + b),
                                            (shifted_exp, lambda a, b: np.exp(a) - np.exp(b))])  # fmt: skip
def test_lanes_store_past_the_caches_from_the_first_aligned_element_on(kernel, wanted) -> None:
    """Rows begin at any place of a vector; nothing beside them is written."""
    rng = np.random.default_rng(2)
    for width in (1, 3, 15, 16, 17, 64, 80, 131, 300):
        for at in (0, 1, 7, 15):
            x = rng.standard_normal((3, width + 1)).astype("f4")
            room = np.full((3, width + 40), 7, np.float32)
            kernel(x, room[:, at : at + width])
            np.testing.assert_allclose(room[:, at : at + width], wanted(x[:, :-1], x[:, 1:]), rtol=1e-5, atol=1e-5)
            assert (room[:, :at] == 7).all()
            assert (room[:, at + width :] == 7).all()
    assert "nontemporal" in kernel.compile(x, room).ir("llvm")


@pytest.mark.usefixtures("streaming")
def test_what_is_read_again_is_stored_in_the_caches() -> None:
    x, y = np.ones((5, 70), np.float32), np.zeros((5, 70), np.float32)
    by_rows(x, y)
    np.testing.assert_array_equal(y, np.arange(5, dtype="f4")[:, None] * np.ones(70, "f4"))
    assert "nontemporal" not in by_rows.compile(x, y).ir("llvm")


@pytest.mark.usefixtures("streaming")
def test_parts_of_vectors_are_stored_in_the_caches() -> None:
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float16)
    halved(x, y)
    np.testing.assert_array_equal(y, 2 * x)
    assert "nontemporal" not in halved.compile(x, y).ir("llvm")
