# SPDX-License-Identifier: MIT
"""Every operation against its definition on Python's lists, on random nested jagged data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from tests.differential.rounds import share
from tests.fractal import model
from tests.fractal.data import LEAVES, check, fractal, lists

Case = Callable[[Any, Any, Any], Any]  # of the operations (ft or the model), a list, and another one


def add(s: Any, e: Any) -> Any:
    return s + e


def pair(s: Any, e: Any) -> Any:
    return s[0] + e, s[1] - s[0]


def zeros(m: Any, x: Any) -> Any:
    return x.dtype.type(0) if x.shape == () else np.zeros(x.shape, x.dtype)


def regular(rows: int) -> Callable[[Any], bool]:
    """Lists of that many rows of one length."""
    return lambda x: len(x) == rows and len({len(e) for e in x}) <= 1


# name: (the program, the depth of its lists (0: any), whether it is asked for such lists)
CASES: dict[str, tuple[Case, int, Callable[[Any], bool]]] = {
    "map": (lambda m, x, y: m.map(lambda e: e * 2, x), 1, lambda x: True),
    "map lists": (lambda m, x, y: m.map(lambda e: m.reverse(e), x), 2, lambda x: True),
    "map maps": (lambda m, x, y: m.map(lambda e: m.map(lambda v: v + v, e), x), 2, lambda x: True),
    "map keywords": (lambda m, x, y: m.map(lambda e, k: e * k, x, k=3), 1, lambda x: True),
    "map tuples": (lambda m, x, y: m.map(lambda e: (e, (e + e, e)), x), 1, len),
    "map zips": (lambda m, x, y: m.map(lambda e: m.zip(e, m.reverse(e)), x), 2, lambda x: True),
    "filter": (lambda m, x, y: m.filter(lambda e: pl.sum(np.atleast_1d(e)) > 0, x), 1, lambda x: True),
    "filter lists": (lambda m, x, y: m.filter(lambda e: len(e) > 1, x), 2, lambda x: True),
    "fold": (lambda m, x, y: m.fold(add, x, init=zeros(m, y)), 1, lambda x: True),
    "foldr": (lambda m, x, y: m.foldr(lambda s, e: s * 2 + e, x, init=zeros(m, y)), 1, lambda x: True),
    "fold without": (lambda m, x, y: m.fold(lambda s, e: s * 2 + e, x), 1, len),
    "foldr without": (lambda m, x, y: m.foldr(lambda s, e: s * 2 + e, x), 1, len),
    "fold tuples": (lambda m, x, y: m.fold(pair, x, init=(zeros(m, y), zeros(m, y))), 1, lambda x: True),
    "fold lists": (lambda m, x, y: m.fold(lambda s, e: m.join(m.reverse(s), e), x), 2, len),
    "scan": (lambda m, x, y: m.scan(add, x, init=zeros(m, y)), 1, lambda x: True),
    "scanr": (lambda m, x, y: m.scanr(lambda s, e: s * 2 + e, x, init=zeros(m, y)), 1, lambda x: True),
    "scan without": (lambda m, x, y: m.scan(add, x), 1, lambda x: True),
    "scanr without": (lambda m, x, y: m.scanr(add, x), 1, lambda x: True),
    "scan tuples": (lambda m, x, y: m.scan(pair, x, init=(zeros(m, y), zeros(m, y))), 1, lambda x: True),
    "scanr tuples": (lambda m, x, y: m.scanr(pair, x, init=(zeros(m, y), zeros(m, y))), 1, lambda x: True),
    "scan lists": (lambda m, x, y: m.scan(lambda s, e: m.join(e, m.slice(s, 1)), x), 2, lambda x: True),
    "reduce": (lambda m, x, y: m.reduce(add, x), 1, len),
    "reduce tuples": (lambda m, x, y: m.reduce(lambda a, b: (a[0] + b[0], a[1] + b[1]), m.zip(x, m.reverse(x))), 1, len),
    "dilated_map": (lambda m, x, y: m.dilated_map(lambda p: m.scan(add, p), x, 2), 1, lambda x: True),
    "dilated_map lists": (lambda m, x, y: m.dilated_map(m.reverse, x, 3), 2, lambda x: True),
    "zip": (lambda m, x, y: m.zip(x, m.reverse(x)), 0, lambda x: True),
    "unzip": (lambda m, x, y: m.zip(*m.zip(x, m.zip(x, m.reverse(x)))), 0, len),
    "enumerate": (lambda m, x, y: m.enumerate(x, m.reverse(x)), 0, lambda x: True),
    "product": (lambda m, x, y: m.product(x, m.slice(x, 1)), 0, lambda x: True),
    "join": (lambda m, x, y: m.join(x, m.reverse(x), m.slice(x, 1, 2)), 0, lambda x: True),
    "slice": (lambda m, x, y: m.slice(x, 1, -1), 0, lambda x: True),
    "slice backwards": (lambda m, x, y: m.slice(x, None, None, -2), 0, lambda x: True),
    "gather": (lambda m, x, y: m.gather(x, [2, 0, -1, 1, 1]), 0, lambda x: len(x) > 2),
    "index": (lambda m, x, y: (m.index(x, 0), m.index(x, -1), m.head(x), m.tail(x)), 0, len),
    "reverse": (lambda m, x, y: m.reverse(x), 0, lambda x: True),
    "repeat": (lambda m, x, y: m.repeat(x, 3), 0, lambda x: True),
    "repeat never": (lambda m, x, y: m.repeat(x, 0), 0, lambda x: True),
    "repeat tensors": (lambda m, x, y: m.repeat(m.index(x, 0), 2), 0, len),
    "length": (lambda m, x, y: np.int64(m.length(x)), 0, lambda x: True),
    "slide": (lambda m, x, y: m.slide(x, 2), 0, lambda x: True),
    "slide far": (lambda m, x, y: m.slide(x, 2, stride=2, dilation=2), 0, lambda x: True),
    "slide padded": (lambda m, x, y: m.slide(x, 3, padding=2, value=7), 1, lambda x: True),
    "slide padded far": (lambda m, x, y: m.slide(x, 2, 3, 2, 3), 1, lambda x: True),
    "slide padded rows": (lambda m, x, y: m.slide(x, 3, padding=1), 2, regular(2)),
    "slide pairs": (lambda m, x, y: m.slide(m.zip(x, m.reverse(x)), 2), 0, lambda x: True),
    "window": (lambda m, x, y: [m.window(x, i, 3, 2, 5) for i in (0, 1, 9)], 1, lambda x: True),
    "window even": (lambda m, x, y: m.window(x, 1, 2), 1, lambda x: True),
    "shifted_slide": (lambda m, x, y: m.shifted_slide(x, 3), 0, lambda x: True),
    "shifted_slide far": (lambda m, x, y: m.shifted_slide(x, 4, 2), 0, lambda x: True),
    "shifted_window": (lambda m, x, y: m.shifted_window(x, -1, 5), 0, lambda x: True),
    "split": (lambda m, x, y: m.split(x, 2), 0, lambda x: len(x) % 2 == 0),
    "flatten": (lambda m, x, y: m.flatten(x), 0, lambda x: True),
    "stack": (lambda m, x, y: m.stack(x), 1, len),
    "many": (lambda m, x, y: m.slide(m.reverse(m.join(x, m.slice(x, 1))), 2, stride=2), 0, lambda x: True),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_operation_is_its_definition(name: str) -> None:
    program, only, wanted = CASES[name]
    done = 0
    for seed in range(share(12)):
        rng = np.random.default_rng(seed)
        while True:
            depth, leaf = only or int(rng.integers(1, 4)), LEAVES[rng.integers(len(LEAVES))]
            x = lists(rng, depth, leaf)
            if wanted(x):
                break
        example = np.zeros(leaf[0], leaf[1])[()]
        done += len(x) > 0
        check(program(ft, fractal(x, depth, leaf), example), program(model, x, example), f"{name} of {x}\n")
    assert done, "no list has elements"


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_tensors_become_lists(axis: int) -> None:
    x = np.arange(24.0).reshape(2, 4, 3)
    for name in ("slices", "unbind"):
        check(getattr(ft, name)(x, axis), getattr(model, name)(x, axis), name)
    check(ft.split(x, x.shape[axis], axis), model.split(x, x.shape[axis], axis))
    check(ft.split(x, 2, 1), model.split(x, 2, 1))
    assert len(ft.slices(np.zeros((0, 3)))) == 0


def test_access_operations_move_nothing() -> None:
    base = np.arange(12.0).reshape(6, 2)
    x = ft.from_flat(base, [[0, 3, 3, 6]])
    made = [x[0], x[::-1], *ft.product(x[0], x[2]), ft.join(x, x), ft.slide(x[0], 2), ft.shifted_slide(x[0], 3),
            ft.repeat(x, 2), ft.gather(x, [2, 0]), ft.flatten(x), ft.split(x[0][:2], 2), *ft.zip(*ft.zip(x, x))]  # fmt: skip
    for y in made:
        while isinstance(y, ft.FractalTensor):
            y = y[0]
        assert np.shares_memory(y, base)
    tensor = np.arange(24.0).reshape(4, 6)
    for y in (ft.slices(tensor, 1), ft.unbind(tensor, 1), ft.split(tensor, 3, 1), ft.split(tensor.T, 3)):
        assert np.shares_memory(y[1], tensor) and np.shares_memory(y.leaves, tensor)
    assert np.shares_memory(ft.stack(ft.slices(tensor)), tensor)


def test_results_are_single_buffers_in_order() -> None:
    x = ft.from_list([[1, 2], [], [3]])
    y = ft.map(lambda row: ft.scan(lambda s, v: s + v, ft.reverse(row)), x)
    assert y.leaves.tolist() == [2, 3, 3] and y.leaves.flags.c_contiguous
    assert y.leaves is y.leaves and np.shares_memory(y[0].leaves, y.leaves)


def test_indices_of_enumerate_are_weak() -> None:
    """As the counter of a loop: they take no part in finding an element type."""
    x = ft.from_list([np.float32(1), np.float32(2)])
    assert ft.map(lambda e: e[0] * e[1], ft.enumerate(x)).dtype == pl.f32
    assert isinstance(ft.reverse(ft.enumerate(x))[0][0], int)


def test_bodies_are_any_callables() -> None:
    from functools import partial

    class Adder:
        def __call__(self, s: Any, e: Any) -> Any:
            return s + e

        def method(self, s: Any, e: Any) -> Any:
            return s + e

    x = ft.from_list([1, 2, 3])
    for body in (add, Adder(), Adder().method, partial(lambda k, s, e: k * (s + e), 1), np.add):
        assert ft.scan(body, x).leaves.tolist() == [1, 3, 6]


def test_bodies_get_tensors_with_the_language_s_operators() -> None:
    x = ft.from_list([np.ones((2, 2), np.float16)])
    assert ft.map(lambda v: v @ v, x).dtype == pl.f32  # as in kernels, not as in NumPy
    assert ft.map(lambda v: pl.tanh(v) / 2, x).dtype == pl.f16
    with pytest.raises(ValueError, match="read-only"):
        ft.map(lambda v: v.__setitem__(0, 0), x)


def test_states_of_python_numbers_take_the_type_that_the_body_makes() -> None:
    x = ft.from_list([np.float32(1), np.float32(2)])
    assert ft.scan(lambda s, e: s + e, x, init=0).dtype == pl.f32
    assert ft.fold(lambda s, e: (s[0] + e, s[1] + 1), x, init=(0.0, 0)) == (np.float32(3), np.int64(2))
    assert ft.fold(lambda s, e: s + e, x[:0], init=0) == 0


def test_named_tuples_stay() -> None:
    from typing import NamedTuple

    class State(NamedTuple):
        h: Any
        c: Any

    x = ft.from_list([1, 2])
    y = ft.scan(lambda s, e: State(s.h + e, s.c * e), x, init=State(0, 1))
    assert isinstance(y, State) and y.h.leaves.tolist() == [1, 3] and y.c.leaves.tolist() == [1, 2]


def test_schedules_are_names_of_plans_and_change_nothing() -> None:
    x = ft.from_list([1, 2, 3])
    for schedule in ("auto", "sequential", "wavefront", "tasks"):
        assert ft.scan(add, x, schedule=schedule, tile=2).leaves.tolist() == [1, 3, 6]


def test_zeros_and_cat_compute_on_numpy_arrays() -> None:
    check(np.asarray(ft.zeros(1, 2)), np.zeros((1, 2), np.float32))
    check(np.asarray(ft.zeros(2, dtype=pl.i32)), np.zeros(2, np.int32))
    x = np.arange(4.0).reshape(2, 2)
    check(np.asarray(ft.cat(x, x)), np.concatenate([x, x], -1))
    for many in ([x, x], (x, x), ft.from_list([x, x])):
        check(np.asarray(ft.cat(many, axis=0)), np.concatenate([x, x], 0))


def test_bodies_may_give_empty_tuples() -> None:
    x, none = ft.from_list([1.0, 2.0, 3.0]), ft.from_list([], leaf=pto.spec((), pl.f64))
    for numbers in (x, none):
        assert ft.map(lambda v: (), numbers) == ft.scan(lambda s, v: (), numbers, init=()) == ()
        assert ft.fold(lambda s, v: (), numbers, init=()) == ft.dilated_map(lambda part: (), numbers, 2) == ()
        first, second = ft.map(lambda v: ((), v), numbers)
        assert first == () and second.tolist() == numbers.tolist()


def test_a_trial_gathers_nothing() -> None:
    none = ft.from_list([], leaf=pto.spec((2,), pl.f32))
    assert repr(ft.map(lambda v: ft.gather(none, []), none)) == "FractalTensor([] of pl.Tensor[[2], pl.f32])"
