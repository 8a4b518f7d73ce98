# SPDX-License-Identifier: MIT
"""Calls with tuples, lists, dicts and objects skip the slow path, and nothing in them is missed."""

from __future__ import annotations

import dataclasses
import enum
import functools
import threading
import types
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

X = np.arange(4, dtype=np.float32)
Pair = namedtuple("Pair", "weight bias")


class Mode(enum.Enum):
    UP = 1
    DOWN = -1


@dataclasses.dataclass
class Layer:
    weight: np.ndarray
    scale: float = 2.0
    mode: Any = Mode.UP
    inner: Any = None

    def factor(self):
        return self.scale * self.mode.value


def total(layers):
    """The sum of what layers hold, a Python function that runs while the kernel is compiled."""
    t = layers[0].weight[:] * layers[0].factor()
    for one in layers[1:]:
        t = t + one.weight[:] * one.factor()
    return t


@pto.jit
def summed(y, layers):
    y[:] = total(layers)


def ran_fast(kernel: Any, *args: Any) -> bool:
    """Whether such a call runs without looking into its arguments one by one."""

    class Slow(Exception):
        pass

    @contextmanager
    def without_reading() -> Iterator[None]:
        classify = kernel._parameters.classify

        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise Slow

        kernel._parameters.classify = refuse
        try:
            yield
        finally:
            kernel._parameters.classify = classify

    try:
        with without_reading():
            kernel(*args)
    except Slow:
        return False
    return True


def run(kernel: Any, *args: Any) -> np.ndarray:
    y = np.zeros(4, np.float32)
    kernel(y, *args)
    return y


def check(kernel: Any, args: tuple[Any, ...], expected: Any, *, known: bool = False) -> None:
    """The result of a call, before and behind the slow path; `known`: such a call was made before."""
    y = np.zeros(4, np.float32)
    assert ran_fast(kernel, y, *args) == known
    for _ in range(2):
        np.testing.assert_allclose(run(kernel, *args), expected)
    assert ran_fast(kernel, y, *args)


def test_changed_fields_other_arrays_and_other_kinds_are_seen() -> None:
    a, b = Layer(X), Layer(X + 1, 3.0)
    check(summed, ([a, b],), 2 * X + 3 * (X + 1))
    check(summed, ([a, a],), 4 * X)  # of other numbers
    check(summed, ([Layer(X * 5), Layer(X, 3.0)],), 13 * X, known=True)  # others of the same numbers
    a.scale = 4.0
    check(summed, ([a, b],), 4 * X + 3 * (X + 1))
    a.mode = Mode.DOWN
    check(summed, ([a, b],), -4 * X + 3 * (X + 1))
    a.weight = X.astype(np.float64)
    check(summed, ([a, b],), -4 * X + 3 * (X + 1))
    a.weight = np.repeat(X, 2)[::2]
    check(summed, ([a, b],), -4 * X + 3 * (X + 1))
    check(summed, ((a, b),), -4 * X + 3 * (X + 1))
    check(summed, ((a,),), -4 * X)
    a.scale = -0.0
    assert np.signbit(run(summed, (a, Layer(-X - 1, 1.0)))).all()
    a.scale = True
    check(summed, ((a,),), -X)
    a.scale = 1
    check(summed, ((a,),), -X)


def test_methods_of_classes_that_are_replaced_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    check(summed, ([Layer(X, 7.0)],), 7 * X)
    monkeypatch.setattr(Layer, "factor", lambda self: self.scale + 1.0)
    check(summed, ([Layer(X, 7.0)],), 8 * X)


def test_read_only_arrays_wrong_shapes_and_failures_are_told_as_before() -> None:
    @pto.jit
    def kernel(y, pair):
        pair["out"][:] = y[:] + pair["in"][:]

    pair = {"in": X, "out": np.zeros(4, np.float32)}
    check(kernel, (pair,), 0 * X)
    pair["out"].flags.writeable = False
    with pytest.raises(pto.ArgumentError, match="read-only"):
        kernel(X, pair)
    with pytest.raises(pto.PtoError, match="3"):
        kernel(X, {"in": X[:3], "out": np.zeros(4, np.float32)})


def test_dicts_named_tuples_namespaces_functions_and_self() -> None:
    @pto.jit
    def kernel(y, d, p, n):
        y[:] = n.f(p.weight[:] * d["k"] + p.bias) + (1.0 if "more" in d else 0.0)

    space = types.SimpleNamespace(f=abs)
    check(kernel, ({"k": -2.0}, Pair(X, 1.0), space), abs(1 - 2 * X))
    check(kernel, ({"k": -2.0}, Pair(X, 3.0), space), abs(3 - 2 * X))
    check(kernel, ({"k": -2.0, "more": 0}, Pair(X, 3.0), space), abs(3 - 2 * X) + 1)
    space.f = pl.square
    check(kernel, ({"k": 0.5}, Pair(X, 0.0), space), X * X / 4)

    class Model:
        def __init__(self, weight: np.ndarray) -> None:
            self.weight, self.lock, self.layers = weight, threading.Lock(), [Layer(weight)]

        @pto.jit
        def forward(self, y):
            y[:] = self.weight[:] + total(self.layers)

        def __call__(self) -> None: ...

    model, y = Model(X), np.zeros(4, np.float32)
    for expected in (3 * X, 3 * X):
        model.forward(y)
        np.testing.assert_array_equal(y, expected)
    assert ran_fast(Model.forward, model, y)
    model.layers.append(Layer(X, 5.0))
    for _ in range(2):
        model.forward(y)
        np.testing.assert_array_equal(y, 8 * X)
    model.bias = 1  # an attribute more
    assert not ran_fast(Model.forward, model, y)


def test_a_changed_field_of_a_dataclass_that_can_be_called_is_seen() -> None:
    @dataclasses.dataclass
    class Scaled:
        by: float

        def __call__(self, v):
            return v * self.by

    @pto.jit
    def kernel(y, f, x):
        y[:] = f(x[:])

    f = Scaled(2.0)
    check(kernel, (f, X), 2 * X)
    f.by = 3.0
    check(kernel, (f, X), 3 * X)


def test_one_array_in_two_places_is_two_arguments() -> None:
    @dataclasses.dataclass(init=False)
    class Ordered:
        first: np.ndarray
        second: np.ndarray

        def __init__(self, first: np.ndarray, second: np.ndarray) -> None:
            self.second, self.first = second, first  # not in the order of the fields

    @pto.jit
    def kernel(y, o):
        y[:] = o.first[:] - 2 * o.second[:]

    check(kernel, (Ordered(X, X),), -X)
    check(kernel, (Ordered(X, X * 3),), -5 * X, known=True)


def test_containers_in_themselves_numbers_of_numpy_and_sets_take_the_slow_path_and_work() -> None:
    @pto.jit
    def kernel(y, o):
        y[:] = o.weight[:] * o.by

    knot = types.SimpleNamespace(weight=X, by=2.0)
    knot.around = [knot, knot]
    for by in (2.0, np.float32(3.0), 4.0):
        knot.by = by
        np.testing.assert_array_equal(run(kernel, knot), X * by)


def test_arrays_of_torch_in_lists() -> None:
    torch = pytest.importorskip("torch")

    @pto.jit
    def kernel(y, items):
        y[:] = items[0][:] + items[1][:]

    check(kernel, ([torch.ones(4), X],), X + 1)
    check(kernel, ([torch.ones(4, dtype=torch.float64), X],), X + 1)


@dataclasses.dataclass
class Point:
    a: Any
    b: Any

    @property
    def squared(self):
        return self.a * self.a + self.b * self.b

    @functools.cached_property
    def largest(self):
        return pl.maximum(self.a, self.b)

    @property
    def kind(self):
        return "point"


@pto.jit
def measured(x, out):
    for i in range(x.shape[0] - 1):
        p = Point(x[i], x[i + 1])
        if p.kind == "point":
            out[i] = p.squared + p.largest


@pto.jit
def measured_arrays(p):
    return p.squared


def test_properties_compute_with_what_an_object_holds_at_run_time(monkeypatch: pytest.MonkeyPatch) -> None:
    want = X[:-1] ** 2 + X[1:] ** 2 + np.maximum(X[:-1], X[1:])
    for call in (measured, measured.interpret):
        out = np.zeros(3, np.float32)
        call(X, out)
        np.testing.assert_allclose(out, want)
    np.testing.assert_allclose(measured_arrays(Point(X, X + 1)), X * X + (X + 1) ** 2)
    monkeypatch.setattr(Point, "squared", property(lambda self: self.a - self.b))
    np.testing.assert_allclose(measured_arrays(Point(X, X + 1)), -np.ones(4))


@dataclasses.dataclass
class Shifted(Point):
    @property
    def squared(self):
        return super().squared + 1


def test_properties_of_a_base_class_are_found_by_super() -> None:
    for call in (measured_arrays, measured_arrays.interpret):
        np.testing.assert_allclose(call(Shifted(X, X + 1)), X * X + (X + 1) ** 2 + 1)
