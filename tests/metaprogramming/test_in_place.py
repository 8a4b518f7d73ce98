# SPDX-License-Identifier: MIT
"""Names for tensors, views and tiles under augmented assignment and `return`: interpret mode does what is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from tests.metaprogramming.agreement import agree

X = np.arange(8, dtype=np.float32).reshape(2, 4)


def a_view_has_a_name(x, y):
    row = y[1]
    row += x[0]
    return row


def an_argument(x, y):
    y += x
    y *= 2
    y -= x


def inside_a_scope(x, y):
    with pl.incore():
        y += x
        old = t = pl.load(x)
        t += 1
        pl.store(t * old, [0, 0], x)


def views_of_a_loop(x, y):
    for i in range(2):
        row = y[i]
        row *= x[i]


def a_parallel_loop_reduces(x, y):
    for i in pl.range(2, parallel=True):
        y[0] += x[i]
        y[1, 0:2] *= x[i, 0:2]


def in_a_helper_and_in_containers(x, y):
    def add(v: Any) -> None:
        v += 1

    add(y)
    add(x[0])
    rows = [x[0], y]
    rows[0] += 1
    rows[1] -= 1


def two_names_of_a_new_tensor(x, y):
    acc = pl.zeros([4], pl.i32)
    other = acc
    acc += pl.load(x[1])
    return other, acc


def two_names_of_a_new_tile(x, y):
    with pl.incore():
        acc = pl.zeros([4], pl.i32)
        other = acc
        acc += pl.load(x[1])
        pl.store(other, y[0])
        pl.store(acc, y[1])


def a_new_tile_in_a_loop(x, y):
    for i in range(2):
        acc = pl.zeros([4], pl.f32)
        old = acc
        acc += x[i]
        pl.store(acc + old, y[i])


def an_accumulator_beside_a_narrow_tile(x, y):
    with pl.incore():
        acc = pl.zeros([2, 4], pl.f32)
        acc += pl.load(x, [0, 2], [2, 4])
        acc += 1
        pl.store(acc, [0, 0], y)


def a_kernel_in_a_kernel(x, y):
    an_accumulator(x, y)


@pto.jit
def an_accumulator(x, y):
    acc = pl.zeros([2, 4], pl.f32)
    other = acc
    acc += x
    y[...] = other


@pto.incore
def summed(x):
    acc = pl.zeros([4], pl.f32)
    old = acc
    acc += x[0]
    return acc - old


def an_in_core_function(x, y):
    y[0] = summed(x)


def a_view_is_returned(x, y):
    return x[0], y[:, 1:3]


def a_new_tensor_is_returned_twice(x, y):
    made = pl.ones([2], pl.f32)
    return made, {"again": made}


@pytest.mark.parametrize(
    "fn",
    [
        a_view_has_a_name, an_argument, inside_a_scope, views_of_a_loop, a_parallel_loop_reduces,
        in_a_helper_and_in_containers, two_names_of_a_new_tensor, two_names_of_a_new_tile, a_new_tile_in_a_loop,
        an_accumulator_beside_a_narrow_tile, a_kernel_in_a_kernel, an_in_core_function, a_view_is_returned,
        a_new_tensor_is_returned_twice,
    ],
)  # fmt: skip
def test_interpret_mode_changes_and_returns_what_compiled_code_does(fn: Any) -> None:
    agree(pto.jit(fn), X, X + 10)


def test_what_is_returned_is_the_callers_own() -> None:
    x = X.copy()
    kernel = pto.jit(a_view_is_returned)
    for row, part in (kernel(x, x), kernel.interpret(x, x)):
        assert not np.shares_memory(row, x) and not np.shares_memory(part, x)
    kernel = pto.jit(a_new_tensor_is_returned_twice)
    for made, others in (kernel(x, x), kernel.interpret(x, x)):
        assert not np.shares_memory(made, others["again"])


@pytest.mark.parametrize("how", ["compiled", "interpreted"])
def test_an_argument_is_not_returned_and_a_narrow_tile_not_added_to_a_tensor(how: str) -> None:
    def returned(x):
        y = x
        return {"x": [y]}

    def narrow(x):
        acc = pl.zeros([2, 4], pl.f32)
        return acc + pl.load(x, [0, 2], [2, 4])

    for fn, cls, text in ((returned, pto.TypeMismatchError, "PTO-T046: a tensor argument is returned"),
                          (narrow, pto.LaunchError, "PTO-H201: .*valid extents.*(.*\n)*help: .*pad=value")):  # fmt: skip
        kernel = pto.jit(fn)
        with pytest.raises(cls, match=text):
            (kernel if how == "compiled" else kernel.interpret)(X)
