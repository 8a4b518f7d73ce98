# SPDX-License-Identifier: MIT
"""`sum`, `min`, `max`, `any`, `all`, `math.prod` and `functools.reduce` of generators that run time counts are loops."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.codegen import folding
from pto_jit.errors import CompilationError
from pto_jit.ir.nodes import For
from tests.codegen.harness import check, count, ir

X = np.array([0.5, -3.0, 2.0, 4.0, -1.5, 0.25, 7.0], np.float32)
W = np.arange(28, dtype=np.float64).reshape(4, 7) % 5 - 1.5
NARROW = np.array([200, 3, 250, 0, 17], np.uint8)
MINUS = np.array([-5, -3, -128], np.int8)


def _products(a, b, c):
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            c[i, j] = sum(a[i, k] * b[j, k] for k in range(a.shape[1]))


def _nested(a):
    return sum(a[i, j] * (j - i) for i in range(a.shape[0]) if i != 2 for j in range(i, a.shape[1]) if a[i, j] > 0)


def _of_unrolled(x):
    return sum(w * x[i + k] for k, w in enumerate((1.0, 2.0, 1.0)) for i in range(x.shape[0] - 2))


def _inside_of_unrolled(x):
    return sum(w * x[i + k] for i in range(x.shape[0] - 2) for k, w in enumerate((1.0, 2.0, 1.0)) if k != 1)


def _named_alike(x, total, items, unrolled):
    """The loop's own names are others than those that the items use."""
    none, best = 2.0, 0.5
    return sum(total * x[i] + unrolled for i in range(items)), max((best * x[i] for i in range(items)), default=none)


def _of_functions(x):
    def weighted(f):
        return sum(f(i) * x[i] for i in range(len(x)))

    return weighted(lambda i: i + 1), sum(weighted(lambda k: k + i) for i in range(3))


def _assigned(x):
    return sum(y * y for i in range(len(x)) if (y := x[i] - 1) > 0)


def _in_a_loop(a, y):
    for i in pl.range(a.shape[0], parallel=True):
        m = max(a[i, j] for j in range(a.shape[1]))
        y[i] = m + math.log(sum(math.exp(a[i, j] - m) for j in range(a.shape[1])))


def _made_before(x):
    scale = 1.0
    g = (x[i] * scale for i in range(len(x)))
    scale = 3.0
    return sum(g) + sum(g)


def _in_a_comprehension(a):
    return [max(row[j] * k for j in range(a.shape[1])) for k, row in ((1, a[0]), (2, a[1]))]


def _range_of_the_outer_item(a):
    return sum(min(a[i, j] for j in range(i + 1)) for i in range(a.shape[0]))


CASES: dict[str, tuple[Any, ...]] = {
    "sum": (lambda x: sum(x[i] for i in range(len(x))), X),
    "sum of none": (lambda x, n: sum(x[i] for i in range(n)), X, 0),
    "sum from a start": (lambda x: sum((x[i] for i in range(len(x))), 10) + sum((x[i] for i in range(2)), start=1), X),
    "sum backwards": (lambda x: sum(i * x[i] for i in reversed(range(len(x)))), X),
    "sum in steps": (lambda x: sum(x[i] for i in range(1, len(x), 3)), X),
    "a run-time condition": (lambda x: sum(1 for i in range(5) if x[i] > 0), X),
    "a run-time condition on items": (lambda x: sum(v for v in (x[0], x[1], x[2]) if v > 0), X),
    "sum of bools": (lambda x: sum(x[i] > 0 for i in range(len(x))), X),
    "sum of narrow ones": (lambda x: sum(int(x[i]) for i in range(len(x))), NARROW),
    "sum of a list": (lambda x: sum([x[i] for i in range(len(x)) if x[i] < 3]), X),
    "a list that Python counts": (lambda x: sum([k for k in range(10000) if k % 2]) * x[0], X),
    "prod": (lambda x: math.prod(x[i] for i in range(len(x))) + math.prod((x[i] for i in range(3)), start=2), X),
    "prod of a tensor": (lambda x: math.prod(x) * math.prod([x[0], x[1]], start=3), X),
    "max": (lambda x: max(x[i] for i in range(len(x))), X),
    "min of a list": (lambda x: min([abs(x[i]) for i in range(len(x))]), X),
    "max of narrow ones": (lambda x: max(x[i] for i in range(len(x))), NARROW),
    "min of unsigned ones": (lambda x: min(x[i] for i in range(len(x))), NARROW),
    "max of negative ones": (lambda x: max(x[i] for i in range(len(x))), MINUS),
    "max of indices": (lambda x: max(i for i in range(len(x)) if x[i] > 0), X),
    "max of bools": (lambda x: max(x[i] > 6 for i in range(len(x))), X),
    "a default": (lambda x, n: max((x[i] for i in range(n)), default=-1.0), X, 0),
    "no default": (lambda x, n: min((x[i] for i in range(n)), default=-9.0), X, 5),
    "any": (lambda x: any(x[i] > 6 for i in range(len(x))) + any(x[i] > 8 for i in range(len(x))), X),
    "all": (lambda x: all(x[i] > -4 for i in range(len(x))) + all(x[i] > 0 for i in range(len(x))), X),
    "any of rows": (lambda a: any(a[i, j] == 2.5 for i in range(a.shape[0]) for j in range(a.shape[1])), W),
    "reduce": (lambda x: functools.reduce(operator.xor, (x[i] for i in range(len(x))), 5), MINUS),
    "reduce by a function": (lambda x: functools.reduce(lambda a, b: a * 0.5 + b, (x[i] for i in range(len(x))), 1.0), X),
    "products": (_products, W, W[:3].copy(), np.zeros((4, 3))),
    "nested": (_nested, W),
    "of unrolled": (_of_unrolled, X),
    "inside of unrolled": (_inside_of_unrolled, X),
    "named alike": (_named_alike, X, 2.0, 5, 1.0),
    "of functions": (_of_functions, X),
    "assigned": (_assigned, X),
    "in a loop": (_in_a_loop, W, np.zeros(4)),
    "made before": (_made_before, X),
    "in a comprehension": (_in_a_comprehension, W),
    "range of the outer item": (_range_of_the_outer_item, W),
}


@pytest.mark.parametrize("name", CASES)
def test_generators_over_run_time_ranges(name: str) -> None:
    kernel, *args = CASES[name]
    check(kernel, *args)


@pytest.mark.parametrize("name", ["products", "nested", "in a loop", "any of rows", "no default"])
def test_they_run_compiled(name: str) -> None:
    kernel, *args = CASES[name]
    got, wanted = ([a.copy() if isinstance(a, np.ndarray) else a for a in args] for _ in range(2))
    np.testing.assert_allclose(pto.jit(kernel)(*got) or 0, kernel(*wanted) or 0, rtol=1e-12)
    np.testing.assert_allclose(got[-1], wanted[-1], rtol=1e-12)


def test_any_asks_for_no_more_items_than_python() -> None:
    def kernel(x, y, n):
        def seen(i):
            y[i] += 1
            return x[i] > 1

        return any(seen(i) for i in range(n)), all(seen(i) for i in range(n))

    check(kernel, X, np.zeros(7, np.float32), 7)


def test_the_code_is_that_of_the_loop() -> None:
    @pto.jit
    def written(x, y):
        total = 0
        for i in range(len(x)):
            total = total + x[i]
        y[0] = total

    @pto.jit
    def folded(x, y):
        y[0] = sum(x[i] for i in range(len(x)))

    texts = [f.compile(X, X.copy()).ir("source") for f in (folded, written)]
    assert texts[0].replace("folded", "written") == texts[1]


def test_an_item_is_compiled_once_where_only_its_type_was_looked_at() -> None:
    assert count(ir(lambda x: max(x[i] for i in range(len(x))), X), "getelem") == 1


def test_what_is_left_of_a_generator_is_not_guessed() -> None:
    def read_again(x, y):
        g = (x[i] > 2 for i in range(len(x)))
        y[0] = 1.0 if any(g) else 0.0
        y[1] = sum(g)

    def read_in_a_loop(x, y):
        g = (x[i] for i in range(len(x)))
        for k in range(3):
            y[k] = sum(g)

    for kernel in (read_again, read_in_a_loop):
        with pytest.raises(CompilationError, match="PTO-N068"):
            ir(kernel, X, X.copy())


def test_errors_are_at_the_item() -> None:
    def kernel(x, y):
        y[0] = sum(x[i] + missing for i in range(len(x)))  # noqa: F821

    with pytest.raises(CompilationError, match="PTO-N006") as caught:
        ir(kernel, X, X.copy())
    assert "called from" not in str(caught.value) and "missing for i in range" in str(caught.value)


def _by_keys(x):
    n = len(x)
    place = max(range(n), key=lambda i: x[i])
    least = min((i for i in range(n) if x[i] > 0), key=lambda i: abs(x[i] - 1))
    return place, least, min((x[i] for i in range(n)), key=abs), max((x[i] for i in range(n, n)), key=abs, default=2.5)


def _of_equal_keys(x):
    """The first one, also where all keys are the worst there are."""
    return max((i for i in range(2, len(x))), key=lambda i: -math.inf), min(range(len(x)), key=lambda i: i // 4 == 0)


def _of_ranges(x):
    return sum(range(len(x))), max(range(2, len(x), 2)), min(range(len(x), 0, -3))


def _found(x):
    n = len(x)
    first = next((i for i in range(n) if x[i] > 1), -1)
    pair = next(((i, x[i] * 2) for i in range(n) if x[i] < -2 and i > 0), (-1, 0.0))
    return first, pair, next((x[i] for i in range(n) if x[i] > 100), 0.5), next((k for k in range(3) if x[k] < 0), 9)


def test_numbers_of_a_range_that_is_known_are_python_s() -> None:
    def kernel(x):
        total = sum(range(10**7))
        return x[sum(range(3))] + max(range(10**7)) + total % 10, [0] * max(range(3))

    module = ir(kernel, X)
    assert count(module, "getelem") == 1 and count(module, For) == 0


@pytest.mark.parametrize("kernel", [_by_keys, _of_equal_keys, _of_ranges, _found])
def test_the_best_by_a_key_and_the_first(kernel: Any) -> None:
    check(kernel, X)


def test_a_missing_initial_value_is_asked_for() -> None:
    with pytest.raises(CompilationError, match="PTO-N073") as caught:
        ir(lambda x: functools.reduce(max, (x[i] for i in range(len(x)))), X)
    assert "third argument" in str(caught.value.hint)


def test_explain_shows_the_loop() -> None:
    @pto.jit
    def kernel(x, y):
        y[0] = sum(x[i] for i in range(len(x)))

    assert "sequential loop over i" in str(kernel.explain(X, X.copy()))


def test_only_functions_that_go_through_their_items_are_folded() -> None:
    assert all(type(fn) is type(sum) for fn in folding._FOLDS)  # what `fold` looks at first
