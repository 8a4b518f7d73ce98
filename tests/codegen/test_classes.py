# SPDX-License-Identifier: MIT
"""Objects of the user's classes that hold run-time values, or meet them: operators, comparisons, attributes."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import CompilationError, InternalError, TypeMismatchError
from tests.codegen.harness import check, ir

X = np.arange(1, 7, dtype=np.float32)


class Number:
    def __init__(self, v):
        self.v = v

    def __add__(self, other):
        return Number(self.v + (other.v if isinstance(other, Number) else other))

    def __radd__(self, other):
        return Number(other * 10 + self.v)

    def __iadd__(self, other):
        self.v = self.v + 2 * other
        return self

    def __neg__(self):
        return Number(-self.v)

    def __invert__(self):
        return Number(self.v + 0.5)

    def __abs__(self):
        return Number(abs(self.v))

    def __round__(self, digits=0):
        return Number(self.v + digits)

    def __divmod__(self, other):
        return self.v // other, self.v % other

    def __rdivmod__(self, other):
        return other // self.v, other % self.v

    def __pow__(self, other):
        return Number(self.v * other)

    def __lt__(self, other):
        return self.v < (other.v if isinstance(other, Number) else other)

    def __eq__(self, other):
        return self.v == (other.v if isinstance(other, Number) else other)

    def __hash__(self):
        return 3

    def __contains__(self, item):
        return self.v > item

    def __bool__(self):
        return bool(self.v > 1.5)

    def __float__(self):
        return self.v * 1.0


class Refined(Number):
    def __radd__(self, other):
        return Number(self.v - 1000)


class Same(Number):
    pass


class Reluctant(Number):
    def __mul__(self, other):
        return NotImplemented

    def __rmul__(self, other):
        return Number(self.v * 7)


@dataclasses.dataclass(order=True)
class Pair:
    a: Any
    b: Any
    note: Any = dataclasses.field(default=0, compare=False)


@dataclasses.dataclass
class Sized:
    items: Any

    def __len__(self):
        return len(self.items)


CASES: dict[str, Any] = {
    "with another": lambda c, d, x: (c + d).v,
    "with an element": lambda c, d, x: (c + x[1]).v,
    "an element with it": lambda c, d, x: (x[1] + c).v,
    "a number with it": lambda c, d, x: (2 + c).v,
    "negated": lambda c, d, x: (-c).v,
    "inverted": lambda c, d, x: (~c).v,
    "abs": lambda c, d, x: abs(c).v,
    "round": lambda c, d, x: (round(c).v, round(c, 2).v),
    "divmod": lambda c, d, x: (divmod(c, 2), divmod(7.0, c)),
    "pow": lambda c, d, x: (pow(c, 3).v, (c**3).v),
    "compared": lambda c, d, x: (c < d, c > d, c < x[2], c == d, c != d, c == 1, c == x[0], x[0] == c, x[1] != c),
    "contained": lambda c, d, x: (0.5 in c, x[3] in c, x[3] not in c),
    "as a condition": lambda c, d, x: (1 if c else 2, 1 if d else 2, not c, not d, bool(c), any([c, d]), all([c, d])),
    "in containers": lambda c, d, x: (c in [d, c], d in (1.0, 2.0), (c, 1) == (c, 1), [c] == [d]),
    "summed": lambda c, d, x: (sum([c, d], c).v, sum([x[0], c]).v),
    "by operator": lambda c, d, x: (operator.add(c, d).v, operator.neg(c).v, operator.lt(c, d), operator.truth(c)),
    "refined by a subclass": lambda c, d, x: ((c + Refined(x[1])).v, (Refined(x[1]) + c).v),
    "not refined": lambda c, d, x: (c + Same(x[1])).v,
    "given back": lambda c, d, x: (x[1] * Reluctant(x[2])).v,
    "of no comparison": lambda c, d, x: (Sized([x[0]]) == 1, Sized([x[0]]) != (1,), Sized([x[0]]) == Sized([x[1]])),
    "of a length": lambda c, d, x: (1 if Sized([x[0]]) else 2, 1 if Sized([]) else 2, not Sized([x[0]])),
}


@pytest.mark.parametrize("case", CASES)
def test_operators_call_the_methods_that_python_calls(case: str) -> None:
    expression = CASES[case]

    def kernel(x):
        return expression(Number(x[0]), Number(x[1]), x)

    check(kernel, X)


def _pairs(x):
    p, q, r = Pair(x[0], 1, note=x[3]), Pair(x[0], 1, note=x[4]), Pair(x[0], 2)
    return p == q, p != q, p == r, p < r, p >= r, p <= q, p == 3, Pair(1, x[2]) > Pair(1, x[1])


def _tuples(x):
    a, b = (x[0], x[1]), (x[0], x[2])
    return a < b, a > b, a <= a, [x[0]] < [x[0], 1], (x[0], 1) >= (x[0],), a == b[:1], a != b


def _in_place(x):
    c = d = Number(x[0])
    c += x[1]
    holder = [Number(x[2])]
    holder[0] += 1
    return c.v, d.v, c is d, holder[0].v


def _properties(x):
    class_of = Metre(x[0])
    class_of.feet = x[1]
    setattr(class_of, "feet", class_of.feet + x[2])  # noqa: B010
    kept = Doubled(x[0])
    kept.v = x[1]
    described = Described()
    described.d = x[3]
    return class_of.v, class_of.feet, kept.v, described.kept


class Metre:
    def __init__(self, v):
        self.v = v

    @property
    def feet(self):
        return self.v * 3

    @feet.setter
    def feet(self, value):
        self.v = value / 4


class Doubled:
    def __init__(self, v):
        self.v = v

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value * 2)


class _Keeper:
    def __set__(self, owner, value):
        owner.kept = value + 1


class Described:
    d = _Keeper()


@pytest.mark.parametrize("kernel", [_pairs, _tuples, _in_place, _properties])
def test_objects_do_what_python_does(kernel: Any) -> None:
    check(kernel, X)


def test_conditions_of_objects_are_decided_at_run_time() -> None:
    def kernel(x, y):
        n = Number(x[0])
        if n:
            y[0] = 1.0
        y[1] = 1.0 if any([n, Number(x[2])]) else 0.0

    for first in (1.0, 4.0):
        x = X.copy()
        x[0] = first
        check(kernel, x, np.zeros(2, np.float32))


def test_operators_in_place_change_tensors() -> None:
    def kernel(x):
        t = operator.iadd(x, 1.0)
        operator.imul(t, 2.0)
        operator.itruediv(x, 4.0)
        return operator.isub(x[0], 1.0)

    check(kernel, X)


@pytest.mark.parametrize(
    "function",
    [lambda x: Reluctant(x[0]) * Reluctant(x[1]), lambda x: Number(x[0]) - 1, lambda x: Sized([x[0]]) < Sized([x[1]])],
)
def test_operators_that_nothing_takes_are_errors(function: Any) -> None:
    with pytest.raises(CompilationError, match=r"PTO-N004: .* raised TypeError"):
        ir(function, X)


def test_tiles_are_not_compared_with_objects_of_python() -> None:
    for function in (lambda x: x == None, lambda x: pl.load(x) != None, lambda x: x == [1, 2], lambda x: x == "a"):  # noqa: E711
        with pytest.raises(TypeMismatchError, match="PTO-T010"):
            ir(function, X)
    with pytest.raises(TypeMismatchError, match="is not None"):
        ir(lambda x: x != None, X)  # noqa: E711
    check(lambda x: (x is None, x is not None, x[0] == None, x[0] != "a", x in [None, x][1:]), X)  # noqa: E711


# -- objects that answer in ways of their own -----------------------------------------------------------------------


class AttrDict(dict):
    __getattr__ = dict.__getitem__


class Obliging:
    def __getattr__(self, name):
        return 3


class Failing:
    a = 3

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __repr__(self):
        raise ValueError("no text")


@pytest.mark.parametrize("config", [AttrDict(a=3), Obliging(), Failing()], ids=lambda c: type(c).__name__)
def test_the_compiler_asks_objects_for_no_attributes_of_its_own(config: Any) -> None:
    np.testing.assert_array_equal(pto.jit(lambda x: x * config.a)(X), X * 3)
    np.testing.assert_array_equal(pto.jit(lambda x, c: x * c[0].a)(X, [config]), X * 3)
    for function in (lambda x: x * config, lambda x: pl.exp(config), lambda x: config(x), lambda x: pl.sum(x, config)):
        with pytest.raises(pto.PtoError) as caught:
            pto.jit(function)(X)
        assert not isinstance(caught.value, InternalError), caught.value
    np.testing.assert_array_equal(pto.jit(lambda x, c: x * c[0].a).interpret(X, [config]), X * 3)


def test_a_dict_with_attributes_is_an_argument() -> None:
    kernel = pto.jit(lambda x, c: x * c.a)
    np.testing.assert_array_equal(kernel(X, AttrDict(a=3)), X * 3)
    assert "'a': 3" in kernel.specializations()[0].signature


@pytest.mark.parametrize("function", [lambda x: pl.exp(Pair(x[0], 1)), lambda x: max(Number(x[0]), Number(x[1])),
                                      lambda x: pl.exp([[x[0]]])])  # fmt: skip
def test_errors_do_not_show_what_the_compiler_holds(function: Any) -> None:
    with pytest.raises(TypeMismatchError, match="with run-time values") as caught:
        ir(function, X)
    assert "Scalar(" not in str(caught.value) and "operand=" not in str(caught.value)


def test_what_is_nested_too_deep_is_an_error() -> None:
    deep: Any = [1.0]
    for _ in range(3000):
        deep = [deep]
    with pytest.raises(CompilationError, match="PTO-N070"):
        pto.jit(lambda x: x * (2 if deep else 3))(X)
    with pytest.raises(pto.ArgumentError, match="PTO-A036"):
        pto.jit(lambda x, d: x * (2 if d else 3))(X, deep)
