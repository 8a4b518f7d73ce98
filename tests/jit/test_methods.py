# SPDX-License-Identifier: MIT
"""Kernels that are methods: `self` is a compile-time object compared by value at every call."""

from __future__ import annotations

import copy
import inspect
import logging
import pickle
import threading
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl


class Layer:
    """A layer with a tensor, plain fields, a helper and a named in-core function."""

    bias = 0.5

    def __init__(self, weight: np.ndarray, scale: float = 2.0) -> None:
        self.weight = weight
        self.scale = scale
        self.activation: Any = None

    def scaled(self, x: Any) -> Any:
        return x * self.scale

    @pto.incore
    def shifted(self, x: Any) -> Any:
        return x + self.bias

    @pto.jit
    def forward(self, x, y):
        """Doc of forward."""
        t = self.scaled(x) * self.weight
        if self.activation is not None:
            t = self.activation(t)
        y[...] = t + self.bias


def run(layer: Any, x: np.ndarray) -> np.ndarray:
    y = np.zeros_like(x)
    layer.forward(x, y)
    return y


def test_a_method_reads_the_fields_methods_and_tensors_of_its_object() -> None:
    x, w = np.arange(4.0), np.array([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(run(Layer(w), x), x * 2 * w + 0.5)


def test_a_changed_field_is_seen_and_a_changed_tensor_needs_no_new_code() -> None:
    x, w = np.arange(4.0), np.ones(4)
    layer = Layer(w)
    run(layer, x)
    count = len(Layer.forward.specializations())
    w[1] = 7
    np.testing.assert_array_equal(run(layer, x), x * 2 * w + 0.5)
    layer.weight = np.full(4, 3.0)
    np.testing.assert_array_equal(run(layer, x), x * 6 + 0.5)
    assert len(Layer.forward.specializations()) == count
    layer.scale = 5.0
    np.testing.assert_array_equal(run(layer, x), x * 15 + 0.5)
    assert len(Layer.forward.specializations()) == count + 1
    np.testing.assert_array_equal(run(Layer(layer.weight, 5.0), x), x * 15 + 0.5)
    assert len(Layer.forward.specializations()) == count + 1, "an equal object is the same"


def test_a_changed_class_attribute_method_or_function_field_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(4.0)
    layer = Layer(np.ones(4))
    run(layer, x)
    monkeypatch.setattr(Layer, "bias", 10.0)
    np.testing.assert_array_equal(run(layer, x), x * 2 + 10)
    layer.activation = lambda t: t + 100
    np.testing.assert_array_equal(run(layer, x), x * 2 + 110)
    layer.activation = lambda t: t + 200
    np.testing.assert_array_equal(run(layer, x), x * 2 + 210)
    monkeypatch.setattr(Layer, "scaled", lambda self, t: t * 0)
    np.testing.assert_array_equal(run(layer, x), x * 0 + 210)


def test_a_subclass_uses_its_own_methods() -> None:
    class Tripled(Layer):
        def scaled(self, x: Any) -> Any:
            return x * 3

    x = np.arange(4.0)
    np.testing.assert_array_equal(run(Tripled(np.ones(4)), x), x * 3 + 0.5)


def test_a_cyclic_object_graph_ends() -> None:
    class Node:
        def __init__(self) -> None:
            self.weight = np.arange(3.0)
            self.gain = 2
            self.me = self
            self.children = [Child(self)]

        @pto.jit
        def forward(self, x):
            return x * self.children[0].factor + self.weight * self.me.gain + self.children[0].weight

        @pto.jit
        def around(self, x):
            return x + self.me.weight

    class Child:
        def __init__(self, parent: Any) -> None:
            self.parent = parent
            self.factor = 3
            self.weight = np.full(3, 100.0)

    node = Node()
    x = np.ones(3)
    np.testing.assert_array_equal(node.forward(x), 3 + node.weight * 2 + 100)
    node.gain = 5
    np.testing.assert_array_equal(node.forward(x), 3 + node.weight * 5 + 100)
    with pytest.raises(pto.PtoError, match="reference back"):
        node.around(x)


def test_a_logger_or_a_lock_in_an_object_is_not_looked_into() -> None:
    class Service:
        def __init__(self) -> None:
            self.log = logging.getLogger("pto_jit.tests")
            self.lock = threading.Lock()
            self.n = 3

        @pto.jit
        def forward(self, x):
            return x * self.n

    service = Service()
    x = np.ones(2)
    np.testing.assert_array_equal(service.forward(x), x * 3)
    logging.getLogger("pto_jit.tests.another")
    np.testing.assert_array_equal(service.forward(x), x * 3)
    assert len(Service.forward.specializations()) == 1


def test_attributes_in_slots_are_fields() -> None:
    class Small:
        __slots__ = ("scale", "weight")

        def __init__(self) -> None:
            self.weight, self.scale = np.ones(3), 4

        @pto.jit
        def forward(self, x):
            return self.weight * self.scale + x

    small = Small()
    np.testing.assert_array_equal(small.forward(np.ones(3)), np.full(3, 5.0))
    small.scale = 6
    np.testing.assert_array_equal(small.forward(np.ones(3)), np.full(3, 7.0))


def test_class_methods_and_static_methods_work() -> None:
    class Tools:
        FACTOR = 3

        @classmethod
        @pto.jit
        def scaled(cls, x):
            return x * cls.FACTOR

        @staticmethod
        @pto.jit
        def doubled(x):
            return x * 2

    x = np.ones(3)
    np.testing.assert_array_equal(Tools.scaled(x), x * 3)
    np.testing.assert_array_equal(Tools().doubled(x), x * 2)
    Tools.FACTOR = 4
    np.testing.assert_array_equal(Tools.scaled(x), x * 4)


def test_a_bound_method_can_be_looked_into_without_naming_its_object() -> None:
    layer = Layer(np.ones(4))
    x, y = np.arange(4.0), np.zeros(4)
    compiled = layer.forward.compile(x, y)
    compiled(x, y)
    np.testing.assert_array_equal(y, x * 2 + 0.5)
    layer.scale = 3.0
    with pytest.raises(pto.ArgumentError, match="this version was compiled for"):
        compiled(x, y)
    layer.scale = 2.0
    bound = compiled.bind(x, y)
    x += 1
    bound()
    np.testing.assert_array_equal(y, x * 2 + 0.5)
    Layer.forward.compile(layer, x, y)(layer, x, y)
    for target in ("c", "cuda"):
        assert layer.forward.compile(x, y, target=target).sources.keys() > {"forward.pto"}
    z = np.zeros(4)
    layer.forward.interpret(x, z)
    np.testing.assert_array_equal(z, y)
    assert layer.forward.specializations() == Layer.forward.specializations()
    assert list(inspect.signature(layer.forward).parameters) == ["x", "y"]
    assert layer.forward.__name__ == "forward" and layer.forward.__doc__ == "Doc of forward."
    with pytest.raises(pto.ArgumentError, match="missing the argument `y`"):
        layer.forward(x)


def test_a_method_with_loops_over_its_layers() -> None:
    class Model:
        def __init__(self, count: int) -> None:
            self.layers = [Layer(np.full(4, float(k + 1)), k + 1.0) for k in range(count)]

        @pto.jit
        def forward(self, x, y):
            t = x + 0
            for layer in self.layers:
                t = layer.scaled(t) * layer.weight
            y[...] = t

    x, y = np.ones(4), np.zeros(4)
    for count in (1, 3):
        Model(count).forward(x, y)
        np.testing.assert_array_equal(y, np.prod([(k + 1.0) ** 2 for k in range(count)]) * x)


def test_a_named_incore_method_is_a_task_of_orchestration() -> None:
    class Worker:
        def __init__(self) -> None:
            self.gain = 3.0

        @pto.incore
        def work(self, x: Any, y: Any) -> None:
            pl.store(pl.load(x) * self.gain, [0], y)

        @pto.jit
        def forward(self, x, y):
            self.work(x, y)

    x, y = np.arange(4.0), np.zeros(4)
    worker = Worker()
    worker.forward(x, y)
    np.testing.assert_array_equal(y, x * 3)
    worker.gain = 4.0
    worker.forward(x, y)
    np.testing.assert_array_equal(y, x * 4)


def test_a_bound_kernel_is_compared_copied_and_pickled_as_a_bound_method() -> None:
    layer = Layer(np.full(3, 2.0))
    assert layer.forward == layer.forward and len({layer.forward, layer.forward}) == 1
    assert layer.forward != Layer(layer.weight).forward and layer.forward != 3
    other = copy.deepcopy(layer.forward)
    other.__self__.scale = 5.0
    assert other.__self__.weight is not layer.weight and copy.copy(layer.forward) == layer.forward
    for forward, factor in ((layer.forward, 4.0), (other, 10.0), (pickle.loads(pickle.dumps(other)), 10.0)):
        y = np.zeros(3)
        forward(np.ones(3), y)
        assert y.tolist() == [factor + 0.5] * 3


def test_kernels_call_the_kernels_of_objects() -> None:
    class Scaled:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        @pto.jit
        def times(self, x):
            return x * self.scale

    class Shifted(Scaled):
        @pto.jit
        def times(self, x):
            return super().times(x) + 1

        @pto.jit
        def twice(self, x):
            return self.times(self.times(x))

    @pto.jit
    def apply(f, x):
        return f(x)

    x, shifted, scaled = np.arange(3.0), Shifted(2.0), Scaled(3.0)
    np.testing.assert_array_equal(shifted.twice(x), (x * 2 + 1) * 2 + 1)
    for f in (shifted.times, scaled.times):  # one function of two objects is two functions
        np.testing.assert_array_equal(apply(f, x), f(x))
    scaled.scale = 4.0
    np.testing.assert_array_equal(apply(f, x), x * 4)


class Named:
    """Methods whose first parameters have other names."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    @pto.jit
    def forward(this, x):
        return x * this.scale + this.shifted(x)

    @pto.incore
    def shifted(me, x):
        return pl.load(x) + me.scale

    @staticmethod
    @pto.jit
    def twice(x):
        return x * 2


def test_a_method_may_call_its_object_as_it_likes() -> None:
    x = np.arange(4, dtype=np.float32)
    layer = Named(3.0)
    for scale in (3.0, 4.0):
        layer.scale = scale
        np.testing.assert_array_equal(layer.forward(x), x * scale + x + scale)
    np.testing.assert_array_equal(layer.forward.compile(x)(x), layer.forward.interpret(x))
    np.testing.assert_array_equal(Named.forward(layer, x), x * 5 + 4)
    for twice in (layer.twice, Named.twice):
        np.testing.assert_array_equal(twice(x), x * 2)
