# SPDX-License-Identifier: MIT
# ruff: noqa: C417 - kernels are written the way the test needs them
"""Generator expressions, `map` and `filter` compute an item when it is asked for; `sum`, `any`, `all` and `in` over them
and over other items mean what they mean in Python."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import CompilationError
from tests.codegen.harness import check, count, ir

X = np.arange(1, 7, dtype=np.float32)


def _written_between(x):
    g = (x[i] for i in range(3))
    x[0] = 9.0
    return sum(g)


def _in_a_loop(x):
    total = 0.0
    for v in (x[i] for i in range(4)):
        x[2] = 10.0
        total += v
    return total


def _mapped(x):
    double = map(lambda i: x[i] * 2, range(3))
    x[1] = 20.0
    return list(double)


def _filtered(x):
    odd = filter(lambda i: i % 2, range(4))
    return [x[i] for i in odd]


def _in_step(x):
    a, b = (x[i] for i in range(3)), (x[i] * 10 for i in range(3))
    x[1] = 7.0
    return [p + q for p, q in zip(a, b, strict=False)]


def _through_another(x):
    g = (x[i] for i in range(3))
    h = (v + 1 for v in g)
    first = next(h)
    x[1] = 50.0
    return first, next(h), next(g), next(h, -1.0)


def _name_bound_later(x):
    k = 1
    g = (x[i] * k for i in range(2))
    k = 3
    return sum(g)


def _once_only(x):
    g = (x[i] for i in range(3))
    return sum(g), sum(g), list(g)


def _left_early(x):
    total = 0.0
    for v in (x[i] for i in range(5)):
        if v > 3:
            break
        total += v
    return total


def _reduced(x):
    g = (x[i] for i in range(3))
    x[0] = 4.0
    return functools.reduce(lambda a, b: a * 2 + b, g)


def _unpacked(x):
    g = (x[i] for i in range(3))
    x[2] = 0.5
    a, *rest = g
    return a, rest[0], rest[1]


def _outermost_at_once(x):
    n = 2
    g = (x[i] for i in range(n))
    n = 4
    return sum(g) + n


READ_LATE = [_written_between, _in_a_loop, _mapped, _filtered, _in_step, _through_another, _name_bound_later,
             _once_only, _left_early, _reduced, _unpacked, _outermost_at_once]  # fmt: skip


@pytest.mark.parametrize("kernel", READ_LATE, ids=[f.__name__.strip("_") for f in READ_LATE])
def test_an_item_is_computed_when_it_is_asked_for(kernel: Any) -> None:
    check(kernel, X)


@pytest.mark.parametrize("above", [-1.0, 1.5, 9.0])
def test_any_and_all_ask_for_no_more_items_than_python(above: float) -> None:
    def stores(x, y, above):
        def seen(i):
            y[i] += 1
            return x[i] > above

        first = any(seen(i) for i in range(6))
        second = all(seen(i) for i in range(6))
        return first, second, any(map(seen, range(2))), all([seen(3), seen(4)])

    check(stores, X, np.zeros(6, np.float32), above)


def test_a_decided_any_needs_no_more_code() -> None:
    def kernel(x):
        return any(i == 1 or x[i] > 2 for i in range(1, 6))

    assert count(ir(kernel, X), "getelem") == 0
    check(kernel, X)


def test_any_and_all_are_numbers_of_python() -> None:
    check(lambda x: any([x[0] > 0, x[1] > 9]) + all([x[0] > 0]) + (x[0] in [1.0]) + (x[0] in range(3)), X)


def _read_again(x, y):
    g = (x[i] for i in range(4))
    y[0] = 1.0 if any(v > 2 for v in g) else 0.0
    return sum(g)


def _searched_and_read(x, y):
    g = (x[i] for i in range(4))
    y[0] = 1.0 if 3.0 in g else 0.0
    return sum(g)


def _read_in_a_loop(x, y):
    g = (x[i] for i in range(4))
    for k in pl.range(3):
        y[k] = sum(g)


def _read_in_a_branch(x, y):
    g = (x[i] for i in range(4))
    if x[0] > 2:
        y[0] = next(g)
    y[1] = next(g)


@pytest.mark.parametrize("kernel", [_read_again, _searched_and_read, _read_in_a_loop, _read_in_a_branch])
def test_what_is_left_of_a_generator_at_run_time_is_not_guessed(kernel: Any) -> None:
    with pytest.raises(CompilationError, match="PTO-N068"):
        ir(kernel, X, np.zeros(6, np.float32))


def test_a_generator_made_in_a_loop_is_read_in_it() -> None:
    def kernel(x, y):
        for k in range(3):
            g = (x[k + i] for i in range(3))
            if x[k] > 1:
                y[k] = sum(g)

    check(kernel, X, np.zeros(6, np.float32))


def test_a_generator_that_asks_itself_is_an_error() -> None:
    def kernel(x):
        g = (next(g) for _ in range(2))  # noqa: F821
        return next(g) + x[0]

    with pytest.raises(CompilationError, match="PTO-N004"):
        ir(kernel, X)


def test_an_endless_iterable_is_an_error() -> None:
    with pytest.raises(CompilationError, match="PTO-N021"):
        ir(lambda x: [0 for _ in itertools.repeat(1)], X)


# -- sum ------------------------------------------------------------------------------------------------------------

B8 = np.array([100, 100], np.int8)
MINUS = np.array([-0.0, -0.0], np.float32)
SUMS: dict[str, tuple[Any, Any]] = {
    "bools": (lambda x: sum(x[i] > 2 for i in range(4)), X),
    "one bool": (lambda x: sum([x[0] > 0]), X),
    "bools from True": (lambda x: sum([x[0] > 0, x[1] > 9], True), X),
    "from 0.0": (lambda x: sum([x[0], x[1]], 0.0), B8),
    "integers": (lambda x: sum([x[0], x[1]]), B8),
    "lists": (lambda x: sum([[x[0]], [x[1]]], []), X),  # noqa: RUF017
    "nothing": (lambda x: sum([]) + x[0], X),
    "values of a dict": (lambda x: sum({"a": x[0], "b": x[1]}.values()), X),
    "minus zero": (lambda x: 1 / sum([x[0]]) + 1 / sum([x[0], x[1]]), MINUS),
}


@pytest.mark.parametrize("case", SUMS)
def test_a_sum_begins_with_its_start(case: str) -> None:
    function, x = SUMS[case]
    with np.errstate(all="ignore"):
        check(function, x)


def test_the_sum_of_one_tensor_is_another() -> None:
    def added(x, y):
        s = sum([x])
        s += 1
        y[...] = s

    def written(x, y):
        s = sum([x])
        x[0] = 50.0
        y[...] = s

    for kernel in (added, written):
        check(kernel, X, np.zeros(6, np.float32))


def test_a_sum_of_integers_adds_no_zero() -> None:
    assert count(ir(lambda x: sum([x[0], x[1], x[2]]), np.arange(3)), "add") == 2


@pytest.mark.parametrize("function", [sum, min, max, any, all])
def test_the_rows_of_a_tensor_are_not_summed_or_compared(function: Any) -> None:
    kernel = pto.jit(lambda x: function(x))
    loaded = pto.jit(lambda x: function(pl.load(x)))
    for call in (kernel, loaded):
        with pytest.raises(CompilationError, match="PTO-T005"):
            call(X.reshape(2, 3))
    assert kernel(X) == function(X)


# -- in -------------------------------------------------------------------------------------------------------------

RANGES = [range(5), range(2, 10**7, 3), range(10, -10, -4), range(0), range(3, 4), range(-(2**63), 2**63, 3),
          range(2**63 - 3, 2**63)]  # fmt: skip


@pytest.mark.parametrize("items", RANGES, ids=str)
@pytest.mark.parametrize("dtype", ["int64", "int8", "uint64", "float32", "float64"])
def test_a_number_in_a_range_is_arithmetic(items: range, dtype: str) -> None:
    given = [0, 1, 2, 5, -2, 10, -6, 9, 100, 2.5, 2**63 - 2, 2**63 + 1, -(2**63)]
    kinds = {"int8": given[:8], "uint64": [0, 2, 5, 2**63 - 2, 2**63 + 1]}
    values = kinds.get(dtype, [v for v in given if "float" in dtype or (v == int(v) and v < 2**63)])

    def kernel(x, y):
        for i in pl.static_range(len(values)):
            y[i] = x[i] in items

    x = np.array(values, dtype)
    y = np.zeros(len(values), np.bool_)
    pto.jit(kernel)(x, y)
    assert y.tolist() == [v == int(v) and int(v) in items for v in x.tolist()]  # Python goes through floats


def test_a_weak_number_in_a_range() -> None:
    kernel = pto.jit(lambda n: (n in range(2, 10**7, 3), n not in range(7)))
    assert [kernel(n) for n in (5, 6, 10**7)] == [(True, False), (False, False), (False, True)]


def test_a_long_list_is_not_searched_item_by_item() -> None:
    many = list(range(5000))
    with pytest.raises(CompilationError, match="PTO-N069"):
        ir(lambda x: x[0] in many, X)
    table = dict.fromkeys(range(5000))
    check(lambda x: x[0] if 4999 in {**table, "v": x[0]} else x[1], X)
