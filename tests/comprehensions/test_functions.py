# SPDX-License-Identifier: MIT
# ruff: noqa: F821, UP037
"""Functions that the language has no operation for, against Python's `math` and against integrals; and scans."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
from tests.comprehensions.oracle import check

TURN = np.linspace(0, np.pi, 20001)


def computed(name: str, dtype: str, *xs: Any) -> np.ndarray:
    """A function applied to arrays, by a comprehension."""
    parameters = ", ".join(f"{dtype}(N) X{k}" for k in range(len(xs)))
    arguments = ", ".join(f"X{k}(i)" for k in range(len(xs)))
    c = pto.comprehension(f"def f({parameters}) -> (Y) {{ Y(i) = {name}({arguments}) }}")
    kind = {"float": np.float32, "double": np.float64, "int32": np.int32}[dtype]
    return c(*(np.asarray(x, kind) for x in xs))


def bessel_j(order: int) -> Callable[[float], float]:
    return lambda x: float(np.trapezoid(np.cos(order * TURN - x * np.sin(TURN)), TURN) / np.pi)


def bessel_i(order: int) -> Callable[[float], float]:
    return lambda x: float(np.trapezoid(np.exp(x * np.cos(TURN)) * np.cos(order * TURN), TURN) / np.pi)


def bessel_y(order: int) -> Callable[[float], float]:
    u = np.linspace(0, 12, 60001)
    tail = np.exp(order * u) + (-1) ** order * np.exp(-order * u)
    return lambda x: float(
        np.trapezoid(np.sin(x * np.sin(TURN) - order * TURN), TURN) / np.pi
        - np.trapezoid(tail * np.exp(-x * np.sinh(u)), u) / np.pi
    )


GAMMA = [0.1, 0.5, 0.9, 1.0, 1.5, 2.0, 3.3, 20.0, 33.0, -0.3, -1.5, -6.1]
ERROR = [-3.0, -1.0, 0.0, 0.3, 1.0, 2.9, 3.1, 5.0, 8.0]
UNIT = [-1.0, -0.999, 0.0, 1e-5, 0.3, 0.9999999, 1.0]
POSITIVE = [0.05, 0.7, 2.0, 5.0, 7.9, 8.1, 15.0, 30.0]
CASES: list[tuple[str, list[float], Callable[[float], float], float]] = [
    ("tgamma", GAMMA, math.gamma, 1e-12), ("lgamma", GAMMA, math.lgamma, 1e-12),
    ("erfc", ERROR, math.erfc, 3e-7), ("normcdf", ERROR, lambda x: 0.5 * math.erfc(-x / math.sqrt(2)), 3e-7),
    ("erfcx", ERROR, lambda x: math.exp(x * x) * math.erfc(x), 3e-7),
    ("j0", POSITIVE, bessel_j(0), 1e-7), ("j1", POSITIVE, bessel_j(1), 1e-7), ("y0", POSITIVE, bessel_y(0), 1e-7),
    ("y1", POSITIVE, bessel_y(1), 1e-6), ("cyl_bessel_i0", POSITIVE, bessel_i(0), 3e-7),
    ("cyl_bessel_i1", POSITIVE, bessel_i(1), 3e-7), ("sinpi", ERROR, lambda x: math.sin(math.pi * x), 1e-14),
    ("cospi", ERROR, lambda x: math.cos(math.pi * x), 1e-14),
    ("asin", UNIT, math.asin, 4e-16), ("acos", UNIT, math.acos, 4e-16),
    ("exp10", [0.0, 1.0, -37.5, 38.0, 12.3], lambda x: 10.0**x, 1e-15),
    ("rcbrt", [8.0, -27.0, 1e-30, 3.3], lambda x: math.copysign(abs(x) ** (-1 / 3), x), 1e-15),
    ("logb", [1.0, 2.0, 1023.0, 1024.0, 0.75, 1e-30], lambda x: float(math.frexp(x)[1] - 1), 1e-15),
]  # fmt: skip


@pytest.mark.parametrize(("name", "points", "wanted", "tolerance"), CASES, ids=[c[0] for c in CASES])
def test_a_function_of_the_libraries(
    name: str, points: list[float], wanted: Callable[[float], float], tolerance: float
) -> None:
    for dtype, exact in (("float", 4e-7), ("double", tolerance)):
        found = computed(name, dtype, points)
        assert found.dtype == (np.float32 if dtype == "float" else np.float64)
        at = np.asarray(points, found.dtype).astype(float)
        amplitude = 1.0 if name in ("j0", "j1", "y0", "y1", "sinpi", "cospi", "lgamma") else 0.0
        for x, y in zip(at, found, strict=True):
            right = wanted(float(x))
            assert abs(y - right) <= exact * max(abs(right), amplitude) * 3, (name, x, y, right)


def test_inverses_and_functions_of_two_numbers() -> None:
    for y in (-0.999, -0.5, -1e-3, 0.0, 0.2, 0.9999):
        assert math.isclose(math.erf(computed("erfinv", "double", [y])[0]), y, rel_tol=1e-9, abs_tol=1e-12)
    for y in (1e-20, 1e-5, 0.3, 1.5, 1.999):
        assert math.isclose(math.erfc(computed("erfcinv", "double", [y])[0]), y, rel_tol=1e-5)
    assert abs(computed("normcdfinv", "double", [0.975])[0] - 1.959963984540054) < 1e-9
    np.testing.assert_array_equal(computed("erfinv", "float", [-1, 1, 2]), [-np.inf, np.inf, np.nan])
    np.testing.assert_array_equal(computed("tgamma", "float", [0, -1]), [np.inf, np.nan])
    np.testing.assert_array_equal(computed("lgamma", "float", [0, -1]), [np.inf, np.inf])
    found = computed("copysign", "float", [1, -2, 3, -4], [-1, 1, -0.0, 0.0])
    np.testing.assert_array_equal(found, [-1, 2, -3, 4])
    a, b = [1, -2, 0, np.inf], [2, 0, -1, 0]
    np.testing.assert_array_equal(computed("nextafter", "float", a, b), np.nextafter(np.float32(a), np.float32(b)))
    a, b = [5.0, 5.5, -7.0, 2.5], [3.0, 1.0, 2.0, 1.0]
    np.testing.assert_array_equal(computed("remainder", "float", a, b), [math.remainder(*p) for p in zip(a, b, strict=True)])
    np.testing.assert_allclose(computed("rhypot", "double", [3.0, 1.0], [4.0, 1.0]), [0.2, 2**-0.5], rtol=1e-15)
    np.testing.assert_allclose(computed("hypot", "float", [1e20, 3e-25, 0], [1e20, 4e-25, 0]), [2**0.5 * 1e20, 5e-25, 0],
                               rtol=1e-6)  # fmt: skip
    np.testing.assert_allclose(computed("rhypot", "double", [3e-200, 0], [4e-200, 0]), [2e199, np.inf], rtol=1e-15)
    whole = computed("tgamma", "int32", [3, 5])
    assert whole.dtype == np.float32 and whole.tolist() == [2.0, 24.0]


def test_scaling_by_powers_of_two_rounds_once() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(1, 2, 200) * 2.0 ** rng.integers(-1022, 1023, 200), [2, 1e-300, 5e-324, np.inf, 0]])
    exponents = np.concatenate([-1050 - np.frexp(x[:200])[1], [-1075, 1500, 2097, -5000, 5000]])
    wanted = [math.ldexp(a, int(e)) for a, e in zip(x, exponents, strict=True)]
    np.testing.assert_array_equal(computed("ldexp", "double", x, exponents), wanted)


def test_small_and_large_arguments_of_the_functions_of_the_libraries() -> None:
    tiny, far = [-1e-20, 1e-8], [np.inf, -np.inf]
    np.testing.assert_allclose(computed("sinpi", "double", tiny), np.pi * np.array(tiny), rtol=1e-15)
    np.testing.assert_allclose(computed("erfinv", "double", tiny), np.pi**0.5 / 2 * np.array(tiny), rtol=1e-13)
    np.testing.assert_array_equal(computed("cospi", "double", [1e17, 2.0**52 + 1, 0.5]), [1, -1, 0])
    for name in ("j0", "j1"):
        np.testing.assert_array_equal(computed(name, "double", far), [0, 0])
    for name in ("y0", "y1"):
        np.testing.assert_array_equal(computed(name, "double", far), [0, np.nan])
    np.testing.assert_array_equal(computed("cyl_bessel_i0", "double", far), [np.inf, np.inf])
    np.testing.assert_array_equal(computed("cyl_bessel_i1", "double", far), [np.inf, -np.inf])
    np.testing.assert_array_equal(computed("exp10", "double", far), [np.inf, 0])
    np.testing.assert_array_equal(computed("rcbrt", "double", [np.inf, 0.0]), [0, np.inf])


def test_infinities_are_written_as_divisions() -> None:
    c = pto.comprehension("def f(float(N) X) -> (Y) { Y(i) = (X(i) > 0) ? 1.0/0.0 : -1.0/0 }")
    np.testing.assert_array_equal(c(np.array([1, -1], np.float32)), [np.inf, -np.inf])


def test_the_type_of_a_function_of_the_user_is_that_of_its_result() -> None:
    def halved(x: Any) -> Any:
        return x * 0.5

    @pto.comprehension
    def f(X: pto.language.f64["N"], g: pto.language.constexpr):
        Y[i] = g(X[i])
        return Y

    assert f(np.ones(3), halved).dtype == np.float64


SCANS = [
    ("S(i) +=! (k <= i) ? X(k) : 0.0 where i in 0:N", True),
    ("S(i) +=! (k < i) ? X(k) * X(k) : 0.0 where i in 0:N", True),
    ("S(i) +=! (i < k) ? X(k) : 0 where i in 0:N", True),
    ("S(i) max=! (i > k) ? -1.0/0.0 : X(k) where i in 0:N", True),
    ("S(i) *=! (k >= i) ? X(k) * 1.1 : 1 where i in 0:N", True),
    ("S(i) +=! (k <= i) ? X(k) : 0.0 where i in 0:N - 2", True),
    ("S(i) +=! (k <= i) ? X(k) : 0.0 where i in 3:N", False),  # what stands before 3 is met by none
    ("S(i) +=! (k <= i) ? X(k) : 1.0 where i in 0:N", False),
    ("S(i) +=! (k <= i) ? X(k) * i : 0.0 where i in 0:N", False),
    ("S(i) max=! (k <= i) ? X(k) : 0.0 where i in 0:N", False),
]


@pytest.mark.parametrize(("statement", "is_scan"), SCANS, ids=[s[0] for s in SCANS])
def test_a_reduction_over_what_stands_before_carries_a_value(statement: str, is_scan: bool) -> None:
    c = pto.comprehension(f"def f(float(N) X) -> (S) {{ {statement} }}")
    assert ("running" in c.loops()) == is_scan
    x = np.random.default_rng(2).standard_normal(40).astype(np.float32)
    with np.errstate(divide="ignore"), pytest.warns() if "3:N" in statement else np.errstate():
        check(c, {"X": x})
        check(c, {"X": x[:4]})


def test_scans_of_several_axes_and_short_floats() -> None:
    x = np.random.default_rng(3).standard_normal((30, 7))
    columns = pto.comprehension("def f(float(N, D) X) -> (S) { S(i, d) +=! (k <= i) ? X(k, d) : 0.0 where i in 0:N }")
    rows = pto.comprehension("def f(float16(N, D) X) -> (S) { S(i, d) +=! (k <= d) ? X(i, k) : 0.0 where d in 0:D }")
    assert "running" in columns.loops() and "running" in rows.loops()
    check(columns, {"X": x.astype(np.float32)})
    check(rows, {"X": x.astype(np.float16)}, 2e-3)
    check(rows, {"X": x[:0].astype(np.float16)})
    # In f32 all along: rounding in f16 after every step would be visible.
    ones = np.full((1, 4000), 1.0, np.float16)
    assert rows(ones)[0, -1] == 4000
