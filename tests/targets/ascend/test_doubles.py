# SPDX-License-Identifier: MIT
"""Numbers of f64 in kernels, as integers: against the processor's, and in kernels against the interpreter."""

from __future__ import annotations

import ctypes
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import TargetError
from pto_jit.targets.ascend import doubles

from .harness import Programs, check_interpreted, needs_compiler, ordered, written

ROWS = pto.spec((None, 32), pl.f32)
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 1, -1,
           2.0**63, -(2.0**63), 2.0**31, 3.4028235677973366e38, 1.4e-45, 7e-46]  # fmt: skip
RUN = """
extern "C" void run(const uint64_t *x, const uint64_t *y, uint64_t *out, float *small, int64_t *whole, int n) {
  for (int k = 0; k < n; ++k) {
    const Double a = {x[k]}, b = {y[k]};
    const uint64_t all[11] = {(a + b).bits, (a - b).bits, (a * b).bits, (a / b).bits, from_whole((int64_t)x[k]).bits,
                              doubled(halved(a)).bits, a < b, a <= b, a == b, a != b, a > b};
    for (int j = 0; j < 11; ++j) out[11 * k + j] = all[j];
    small[k] = halved(a);
    whole[2 * k] = whole_part(a, INT64_MIN, INT64_MAX);
    whole[2 * k + 1] = whole_part(a, -2147483648ll, 2147483647);
  }
}
"""


def numbers(rng: np.random.Generator, count: int) -> np.ndarray:
    """Of all sizes, whole ones, those below the smallest normal one, and special ones."""
    out = rng.integers(0, 2**64, count, dtype=np.uint64).view(np.float64).copy()
    kind = rng.random(count)
    for most, values in ((0.7, rng.standard_normal(count) * 2.0 ** rng.integers(-60, 60, count)),
                         (0.3, rng.integers(-1000, 1000, count)), (0.2, rng.integers(0, 2**53, count) * 5e-324),
                         (0.1, rng.choice(SPECIAL, count))):  # fmt: skip
        out[kind < most] = values[kind < most]
    return out


@needs_compiler
def test_they_are_those_of_the_processor(tmp_path: Path) -> None:
    source = tmp_path / "doubles.cpp"
    source.write_text("#include <cstdint>\n#define AICORE\n" + doubles.TEXT + RUN)
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, str(source), "-o", str(tmp_path / "doubles.so")], check=True)
    library = ctypes.CDLL(str(tmp_path / "doubles.so"))
    rng, count = np.random.default_rng(0), 100_000
    x, y = numbers(rng, count), numbers(rng, count)
    near = rng.random(count) < 0.3
    with np.errstate(all="ignore"):
        y[near] = (x * (1 + rng.integers(-4, 5, count) * 2.0**-52))[near]
        wanted = [x + y, x - y, x * y, x / y, x.view(np.int64).astype(np.float64), x.astype(np.float32).astype(np.float64)]
        compared = [x < y, x <= y, x == y, x != y, x > y]
        small = x.astype(np.float32)
    out = np.zeros((count, 11), np.uint64)
    rounded, whole = np.zeros(count, np.float32), np.zeros((count, 2), np.int64)
    library.run(*(ctypes.c_void_p(a.ctypes.data) for a in (x, y, out, rounded, whole)), count)
    for k, value in enumerate(wanted):
        got = out[:, k].copy().view(np.float64)
        np.testing.assert_array_equal(got, value)
        np.testing.assert_array_equal(np.signbit(got)[~np.isnan(value)], np.signbit(value)[~np.isnan(value)])
    for k, truth in enumerate(compared):
        np.testing.assert_array_equal(out[:, 6 + k] != 0, truth)
    np.testing.assert_array_equal(rounded, small)
    for k, bits in ((0, 63), (1, 31)):
        low, high = -(1 << bits), (1 << bits) - 1
        truncated = [0 if v != v else low if v <= low else high if v >= high else int(v) for v in x.tolist()]
        np.testing.assert_array_equal(whole[:, k], truncated)


@pto.jit
def carried(x, o):
    for r in pl.range(x.shape[0], parallel=True):
        with pl.incore():
            t = pl.load(x, [r, 0], [1, 32])
            s = 1.0
            for _ in pl.range(0, 5):
                t = t * s + 1.0
                s = s * 0.9 - r * 0.01
            pl.store(t, [r, 0], o)


@pto.jit
def chosen(x, o):
    for r in pl.range(x.shape[0], parallel=True):
        with pl.incore():
            t = pl.load(x, [r, 0], [1, 32])
            s = r / 7
            if s > 0.4:
                s = 1.0 / s
            else:
                s = min(s * 3.0, 0.77)
            pl.store(t * s - abs(s - 1.5), [r, 0], o)


@pto.jit
def beside_tiles(x, o):
    """Numbers of tiles, which are of f32, places, and a quotient by an extent."""
    for r in pl.range(x.shape[0], parallel=True):
        with pl.incore():
            t, m = pl.load(x, [int(r * 0.7), 0], [1, 32]), (r + 1) * 0.3
            top = pl.max(t)
            pl.store(pl.where(top > m, t * m, t + top * m) + x.shape[0] / (r + 1), [r, 0], o)


@pto.jit
def products(x, o):
    """On both kinds of cores."""
    for r in pl.range(0, x.shape[0], 16, parallel=True):
        with pl.incore():
            t = pl.load(x, [r, 0], [16, 32])
            s = t @ t.T
            acc = pl.zeros([16, 32], pl.f32)
            for j in pl.range(0, 3):
                acc = acc * (0.5 + j * 0.1) + pl.exp(s * 0.01 * (j + 1)) @ t
            pl.store(acc, [r, 0], o)


@pto.jit
def given(x, a, o):
    for r in pl.range(x.shape[0], parallel=True):
        with pl.incore():
            pl.store(pl.load(x, [r, 0], [1, 32]) * (a * r + a / (r + 1)), [r, 0], o)


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {f.__name__: (f, (ROWS, ROWS)) for f in (carried, chosen, beside_tiles, products)}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered({**CASES, "given": (given, (ROWS, 0.1, ROWS))}, tmp_path_factory.mktemp("doubles"))


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_kernels_that_compute_with_them(programs: Programs, name: str) -> None:
    x = np.random.default_rng(1).standard_normal((19, 32)).astype(np.float32)
    close = partial(np.testing.assert_allclose, rtol=1e-4) if name == "products" else np.testing.assert_array_equal
    check_interpreted(programs, CASES[name][0], name, {"x": x}, {"o": np.zeros_like(x)}, close)


@needs_compiler
def test_a_launch_hands_over_all_bits(programs: Programs) -> None:
    x = np.random.default_rng(1).standard_normal((9, 32)).astype(np.float32)
    for a in (0.1, -1e300):
        out, wanted = np.zeros_like(x), np.zeros_like(x)
        given.interpret(x, a, wanted)
        programs.run("given", x=x, a=a, o=out)
        np.testing.assert_array_equal(out, wanted)


def test_what_there_is_not_is_refused_by_name() -> None:
    @pto.jit
    def decayed(x, o):
        for r in pl.range(x.shape[0], parallel=True):
            with pl.incore():
                pl.store(pl.load(x, [r, 0], [1, 32]) * 0.9**r, [r, 0], o)

    with pytest.raises(TargetError, match="does not do `pow` of numbers of f64 in a kernel"):
        written(decayed, ROWS, ROWS)
