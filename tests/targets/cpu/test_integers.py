# SPDX-License-Identifier: MIT
"""Integers of every width at their limits: compiled code, the interpreter and NumPy agree, and nothing crashes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.dtypes import BY_NAME
from pto_jit.semantic import interpreter
from pto_jit.targets.cpu.loading import host
from tests.differential.compare import lowered

WIDTHS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]


def every(a: Any, b: Any) -> tuple[Any, ...]:
    """All operations of two integers."""
    quotient, rest = divmod(a, b)
    return (a + b, a - b, a * b, a // b, a % b, a << b, a >> b, -a, abs(a), quotient, rest, a * a + b,
            (a + b) * (a - b) - b * 3)  # fmt: skip


COUNT = 13


def edges(name: str) -> np.ndarray:
    """All pairs of numbers near the limits of a type, as two rows."""
    dtype = BY_NAME[name]
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
    high = low + (1 << dtype.bits) - 1
    some = {low, low + 1, low // 2, -3, -1, 0, 1, 2, 7, high // 2 + 1, high - 1, high}
    some |= {dtype.bits - 1, dtype.bits, dtype.bits + 1}
    numbers = np.array([n for n in sorted(some) if low <= n <= high], dtype.numpy)
    return np.stack([a.reshape(-1) for a in np.meshgrid(numbers, numbers)])


def serial(a: pl.Tensor, out: pl.Tensor):
    with pl.incore():
        for k in pl.range(a.shape[1]):
            for row, value in enumerate(every(a[0, k], a[1, k])):
                out[row, k] = value


def lanes(a: pl.Tensor, out: pl.Tensor):
    with pl.incore():
        for k in pl.range(a.shape[1], parallel=True):
            x, y = a[0, k], a[1, k]
            if x != y:  # lanes take different ways
                for row, value in enumerate(every(x, y)):
                    out[row, k] = value
            else:
                for row, value in enumerate(every(y, x)):
                    out[row, k] = value


def tiles(a: pl.Tensor, out: pl.Tensor):
    for row, value in enumerate(every(pl.load(a[0]), pl.load(a[1]))):
        pl.store(value, [0], out[row])


def mapped(a: pl.Tensor, out: pl.Tensor):
    for row, value in enumerate(pl.map(lambda x, y: every(x, y), pl.load(a[0]), pl.load(a[1]))):
        pl.store(value, [0], out[row])


@pytest.mark.parametrize("form", [serial, lanes, tiles, mapped])
@pytest.mark.parametrize("name", WIDTHS)
def test_operations_on_integers_at_their_limits_are_numpys(name: str, form: Any) -> None:
    kernel = pto.jit(form)
    a = edges(name)
    with np.errstate(all="ignore"):
        expected = np.stack(every(a[0], a[1]))
    out = np.zeros((COUNT, a.shape[1]), a.dtype)
    kernel(a, out)
    np.testing.assert_array_equal(out, expected)
    again = np.zeros_like(out)
    interpreter.run(lowered(kernel, [a, out])["fused"], [a, again])
    np.testing.assert_array_equal(again, expected, "the interpreter")


def test_scalar_arguments_wrap_as_elements_do() -> None:
    @pto.jit
    def kernel(out: pl.Tensor, n: int, m: int):
        with pl.incore():
            out[0] = n + m
            out[1] = n - m
            out[2] = n * m
            out[3] = n * n + m * m
            out[4] = n // m
            out[5] = n % m
            out[6] = (n + 1 > n) * 1
            out[7] = -n
            out[8] = (n * 2 // 2 == n) * 1

    limits = [-(2**63), -(2**63) + 1, -(2**62), -1, 0, 1, 3, 2**62, 2**63 - 1]
    for n, m in itertools.product(limits, limits):
        out = np.zeros(9, np.int64)
        kernel(out, n, m)
        a, b = np.int64(n), np.int64(m)
        with np.errstate(all="ignore"):
            expected = [
                a + b,
                a - b,
                a * b,
                a * a + b * b,
                a // b,
                a % b,
                a + np.int64(1) > a,
                -a,
                a * np.int64(2) // np.int64(2) == a,
            ]
        assert out.tolist() == [int(e) for e in expected], (n, m)


def test_constants_fold_as_they_compute() -> None:
    @pto.jit
    def kernel(out: pl.Tensor):
        with pl.incore():
            top = pl.dynamic_value(2**63 - 1)
            out[0] = top + 1
            out[1] = top * top
            out[2] = -top - 2
            out[3] = (-top - 1) // pl.dynamic_value(-1)
            out[4] = top // pl.dynamic_value(0)
            out[5] = (top + 1) % pl.dynamic_value(-1)
            out[6] = (top + 1 < top) * 1

    top = 2**63 - 1
    out = np.zeros(7, np.int64)
    kernel(out)
    assert out.tolist() == [-(2**63), 1, top, -(2**63), 0, 0, 1]


def bounds() -> list[tuple[int, int, int]]:
    top = 2**63 - 1
    return [
        (top - 2, top, 1), (top - 2, top, 5), (top - 7, top, 2), (top - 7, top, 3), (5, 10, top), (0, 10, 2**62),
        (-top - 1, -top + 4, 2), (-top + 5, -top - 1, -3), (-top + 5, -top - 1, -1), (10, 5, -top - 1), (3, -top - 1, 1),
        (top, -top - 1, 7), (-top - 1, top, -5), (-top - 1, top, 2**62), (top, -top - 1, -(2**62)), (0, top, 2**62),
        (top, top, 1), (-top - 1, -top - 1, -1), (0, 5, 2), (7, -4, -2),
    ]  # fmt: skip


def count(out: Any, start: Any, stop: Any, step: Any) -> None:
    k = pl.i64(0)
    for i in pl.range(start, stop, step):
        out[k] = i
        k += 1
    out[15] = k


@pto.jit
def given(out: pl.Tensor, start: int, stop: int, step: int):
    with pl.incore():
        count(out, start, stop, step)


@pto.jit
def sequential(out: pl.Tensor, start: int, stop: int, step: int):
    with pl.incore():
        for i in pl.range(start, stop, step):
            out[(i % 97 + 97) % 97] = i


@pto.jit
def parallel(out: pl.Tensor, start: int, stop: int, step: int):
    with pl.incore():
        for i in pl.range(start, stop, step, parallel=True):
            out[(i % 97 + 97) % 97] = i


@pto.jit
def inside(out: pl.Tensor, start: int, stop: int):
    with pl.incore():
        for k in pl.range(97, parallel=True):
            found = pl.i64(0)
            for i in pl.range(start, stop, 5):  # lanes share the counter
                if (i % 97 + 97) % 97 == k:
                    found = i
            for i in pl.range(start + k - k, stop, 3):
                if (i % 97 + 97) % 97 == k:
                    found = found ^ i
            out[k] = found


@pytest.mark.parametrize("bound", bounds())
def test_loops_at_the_ends_of_the_integers_are_pythons(bound: tuple[int, int, int]) -> None:
    start, stop, step = bound
    wanted = list(range(start, stop, step))

    def fixed(out: pl.Tensor, low: int):
        with pl.incore():
            count(out, start, stop, step)
            if low > 100:
                count(out, low, stop, step)

    for kernel, arguments in ((given, bound), (pto.jit(fixed), (0,))):
        out = np.zeros(16, np.int64)
        kernel(out, *arguments)
        assert out[15] == len(wanted)
        assert out[: len(wanted)].tolist() == wanted


@pytest.mark.parametrize("kernel", [sequential, parallel])
def test_every_index_at_the_ends_of_the_integers_is_visited(kernel: Any) -> None:
    for bound in bounds():
        out, wanted = np.zeros(97, np.int64), np.zeros(97, np.int64)
        for i in range(*bound):
            wanted[i % 97] = i
        kernel(out, *bound)
        assert out.tolist() == wanted.tolist(), bound


def test_a_loop_in_lanes_ends_at_the_largest_integer() -> None:
    top = 2**63 - 1
    for start, stop in ((top - 11, top), (-top - 1, -top + 20), (top, top), (3, 40), (-7, 8)):
        out, wanted = np.zeros(97, np.int64), np.zeros(97, np.int64)
        for i in range(start, stop, 5):
            wanted[i % 97] = i
        for i in range(start, stop, 3):
            wanted[i % 97] ^= i
        inside(out, start, stop)
        assert out.tolist() == wanted.tolist(), (start, stop)


def test_a_tile_too_large_for_any_memory_is_a_memory_error() -> None:
    @pto.jit
    def kernel(out: pl.Tensor, n: int):
        with pl.incore():
            t = pl.cumsum(pl.full([n, n], 1.0, pl.f64), axis=0)
            out[0] = t[0, 0]

    @pto.jit
    def tensors(n: int):
        return pl.zeros([n, n], pl.f64)

    for run in (lambda n: kernel(np.zeros(1), n), tensors):
        for n in (2**31, 2**32, 2**40, 2**60):
            with pytest.raises(MemoryError):
                run(n)


@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
@pytest.mark.parametrize("target", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_floats_at_the_limits_of_integers_saturate(source: str, target: str) -> None:
    edges = [sign * (2.0**k + e) for k in (7, 8, 15, 16, 31, 32, 63, 64) for e in (-1, -0.5, 0, 1) for sign in (1, -1)]
    edges += [sign * np.nextafter(np.dtype("f4").type(2.0**k), np.float32(0)) for k in (31, 32, 63, 64) for sign in (1, -1)]
    edges += [sign * np.nextafter(2.0**k, 0) for k in (31, 63, 64) for sign in (1, -1)]
    with np.errstate(over="ignore"):
        x = np.array([*edges, np.nan, np.inf, -np.inf, 0.0, -0.0, 0.7, -0.7, 1e38], np.float64).astype(source)
    low, high = int(np.iinfo(target).min), int(np.iinfo(target).max)
    expected = [0 if v != v else low if v <= low else high if v >= high else int(v) for v in x.astype("f8").tolist()]
    dtype = getattr(pl, target.replace("uint", "u").replace("int", "i"))

    def elements(x: pl.Tensor, y: pl.Tensor) -> None:
        for i in range(x.shape[0]):
            y[i] = pl.cast(x[i], dtype)

    y = np.empty(len(x), target)
    pto.jit(elements)(x, y)
    np.testing.assert_array_equal(y, np.array(expected, target))
    np.testing.assert_array_equal(pto.jit(lambda t: t.to(dtype))(x), np.array(expected, target))


@pytest.mark.skipif(not host().triple.startswith("x86"), reason="looks for instructions of x86")
def test_floats_become_integers_by_vectors() -> None:
    x = np.linspace(-300, 300, 1000, dtype=np.float32)
    for dtype in (pl.i8, pl.u8, pl.i32):
        text = pto.jit(lambda t: t.to(dtype)).compile(x).ir("assembly")
        assert "cvttps2dq" in text and text.count("cvttss2si") <= 2
