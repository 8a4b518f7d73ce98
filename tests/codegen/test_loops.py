# SPDX-License-Identifier: MIT
# ruff: noqa: B007 - kernels are written the way the test needs them
"""`pl.range`: what its arguments become, and reductions in parallel loops."""

from __future__ import annotations

import numpy as np
import pytest

import pto_jit.language as pl
from pto_jit.ir.nodes import Const, For, Var
from tests.codegen.harness import all_statements, check, count, execute, ir

X = np.array([3, -1, 4, 1, -5, 9, 2, 6], np.float32)


def out(n: int = 8) -> np.ndarray:
    return np.zeros(n, np.float32)


def loops(module) -> list[For]:
    return [s for s in all_statements(module) if isinstance(s, For)]


def test_the_arguments_of_a_range_are_on_the_loop():
    def f(x, y, n, c):
        for i in pl.range(n):
            y[i] = x[i]
        for i in pl.range(1, n, 2, parallel=True):
            y[i] = x[i]
        for i in pl.range(n, chunk=4, chunk_policy="aligned", combine="tree"):
            y[i] = x[i]
        for i in pl.range(n, chunk=c):
            y[i] = x[i]
        for i in pl.range(n, parallel=False):
            y[i] = x[i]

    a, b, c, d, e = loops(ir(f, X, out(), 8, 3))
    assert (a.kind, a.chunk) == ("sequential", None)
    assert (b.kind, b.chunk, b.start.value, b.step.value) == ("parallel", None, 1, 2)
    assert (c.kind, c.policy, c.combine) == ("parallel", "aligned", "tree") and isinstance(c.chunk, Const)
    assert d.kind == "parallel" and isinstance(d.chunk, Var)
    assert e.kind == "sequential"
    check(f, X, out(), 8, 3)


@pytest.mark.parametrize("form", range(9))
def test_reductions_keep_the_loop_parallel(form):
    def add(x, y, n):
        s = 0.0
        for i in pl.range(n, parallel=True):
            s += x[i]
        y[0] = s

    def add_other_order(x, y, n):
        s = 0.0
        for i in pl.range(n, chunk=2):
            s = x[i] * 2 + s
        y[0] = s

    def multiply(x, y, n):
        p = 1.0
        for i in pl.range(n, parallel=True):
            p *= x[i]
        y[0] = p

    def maximum(x, y, n):
        m = -1e30
        for i in pl.range(n, parallel=True):
            m = pl.maximum(m, x[i])
        y[0] = m

    def python_min(x, y, n):
        m = 1e30
        for i in pl.range(n, parallel=True):
            m = min(x[i], m)
        y[0] = m

    def conditional(x, y, n):
        s = 0.0
        k = 0
        for i in pl.range(n, parallel=True):
            if x[i] > 0:
                s += x[i]
                k += 1
        y[0] = s
        y[1] = k

    def nested(x, y, n):
        s = 0.0
        for i in pl.range(n, parallel=True):
            for j in pl.range(2):
                s += x[i] * j
        y[0] = s

    def tiles(x, y, n):
        with pl.incore():
            acc = pl.zeros([4], pl.f32)
            for i in pl.range(2, chunk=1):
                acc += pl.load(x, [i * 4], [4])
            pl.store(acc, [0], y)

    def elements(x, y, n):
        for i in pl.range(n, parallel=True):
            y[0] += x[i]

    fn = [add, add_other_order, multiply, maximum, python_min, conditional, nested, tiles, elements][form]
    check(fn, X, out(), 8)
    assert loops(ir(fn, X, out(), 8))[0].kind == "parallel"


def test_a_temporary_of_a_parallel_loop_is_no_carried_variable():
    def f(x, y, n):
        t = 5.0
        for i in pl.range(n, parallel=True):
            t = x[i]
            t = t * 2
            y[i] = t

    check(f, X, out(), 8)


def test_the_variable_of_a_parallel_loop_afterwards():
    def f(x, y):
        for i in pl.range(2, 7, 2, parallel=True):
            y[i] = x[i]
        y[0] = i

    y = out()
    execute(f, X, y)  # plain Python runs parallel loops in a shuffled order
    assert y[0] == 6


def test_explicit_reductions_of_coupled_state():
    def combine(a, b):
        m = pl.maximum(a[0], b[0])
        return m, a[1] * pl.exp(a[0] - m) + b[1] * pl.exp(b[0] - m)

    def f(x, y, n):
        with pl.incore():
            acc = pl.reduction(init=(-1e30, 0.0), combine=combine)
            for i in pl.range(n):
                acc.update(x[i], 1.0)
            m, s = acc.value
            y[0] = m
            y[1] = s

    check(f, X, out(), 8)


def test_explicit_reductions_of_tiles_in_chunked_loops():
    def f(x, y, n):
        with pl.incore():
            acc = pl.reduction(init=pl.full([4], -1e30, pl.f32), combine=pl.maximum)
            for i in pl.range(n, chunk=1):
                acc.update(pl.load(x, [i * 4], [4]))
            pl.store(acc.value, [0], y)

    check(f, X, out(), 2)
    assert loops(ir(f, X, out(), 2))[0].kind == "parallel"


def test_bounds_of_numpy_integers_and_run_time_scalars():
    def f(x, y, n):
        for i in range(np.int64(2), n):
            y[i] = x[i]
        for i in pl.range(x.shape[0] - 1, n - 1, -1):
            y[i] = y[i] + 1

    check(f, X, out(), 5)


def test_each_body_is_compiled_once_at_any_depth():
    seen = []

    def note():
        seen.append(1)
        return 1.0

    def f(x, y, n):
        s = 0.0
        for a in range(n):
            for b in range(n):
                for c in range(n):
                    for d in range(n):
                        s += x[a] * note()
        y[0] = s

    module = ir(f, X, out(), 2)
    assert len(seen) == 1 and count(module, For) == 4


def test_a_loop_over_nothing():
    def f(x, y, n):
        for i in range(0):
            y[i] = undefined  # noqa: F821
        for i in pl.static_range(0):
            y[i] = undefined  # noqa: F821
        y[0] = 1.0

    with pytest.raises(Exception, match="undefined"):
        ir(f, X, out(), 2)  # a run-time loop is compiled even when it never runs


def test_the_extent_of_a_carried_tile_may_be_computed_again():
    def f(packed, y):
        n = packed.shape[1]
        with pl.incore():
            last = pl.zeros([n * 2], pl.u8)
            for i in pl.range(packed.shape[0]):
                t = packed[i, :]
                last = pl.reshape(pl.stack([last[0:n], t], axis=1), [n * 2])
            y[:] = last

    packed = (np.arange(12, dtype=np.uint8) * 21).reshape(3, 4)
    y = np.zeros(8, np.uint8)
    execute(f, packed, y)
    last = np.zeros(8, np.uint8)
    for row in packed:
        last = np.stack([last[:4], row], axis=1).reshape(8)
    np.testing.assert_array_equal(y, last)


def test_a_product_added_to_a_carried_tile_has_its_extents():
    def f(x, w, y, z):
        rows, columns = y.shape
        acc = pl.zeros([rows, columns], pl.f32)
        for q in range(3):
            acc = pl.dot(x[q : q + rows, :], w, acc)
        y[...] = acc
        state = pl.load(z)
        for _ in range(2):
            state = pl.dot(pl.load(x[0 : z.shape[0], :]), w, acc=state) * 0.5
        z[...] = state

    rng = np.random.default_rng(1)
    x, w = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((10, 4), (4, 5)))
    check(f, x, w, np.zeros((7, 5), np.float32), np.ones((6, 5), np.float32))


def test_a_number_that_becomes_a_float_is_read_in_functions_and_returned():
    def in_functions(x, y, n):
        s = 0
        k = 0
        for i in range(n):
            t = pl.load(x, [0], [4])
            y[1] = pl.reduce(t, 0, lambda a, b, s=s: a + b * s)
            k = s
            s = s + pl.sum(pl.map(lambda v, s=s: v * s, t)) + x[i]
        y[0] = s
        y[2] = k

    def returned(x, n):
        s = 0
        for i in range(n):
            if x[i] > 100.0:
                return s
            s = s + x[i]
        return s

    x = np.arange(6, dtype=np.float64) + 0.5
    for n in (0, 1, 3):
        check(in_functions, x, np.zeros(4), n)
        check(returned, x, n)
        check(returned, x * 90.0, n)
