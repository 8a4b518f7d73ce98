# SPDX-License-Identifier: MIT
"""In-core scopes: explicit, named, implicit, and the temporaries that carry tiles between them."""

from __future__ import annotations

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import CompilationError
from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import For, Scope
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import statements
from tests.codegen.harness import Static, all_statements, check, count, ir, scopes

X = np.arange(24, dtype=np.float32).reshape(6, 4) - 7


def out(*shape: int) -> np.ndarray:
    return np.zeros(shape or (6, 4), np.float32)


def tiles_stay_inside(module) -> None:
    for stmt in all_statements(module):
        if isinstance(stmt, Scope):
            assert not [v for v in free_vars(stmt.body) if isinstance(v.type, TileType)]


def test_a_body_without_scopes_is_one():
    def f(x, y):
        t = pl.load(x)
        for i in range(3):
            t = t + i
        pl.store(t, [0, 0], y)

    module = ir(f, X, out())
    check(f, X, out())
    assert scopes(module) == ["f_incore_0"]
    (scope,) = [s for s in module.func("f").body if isinstance(s, Scope)]
    assert any(isinstance(s, For) for s in scope.body)


def test_tensors_made_at_the_top_stay_in_orchestration():
    def f(x):
        rows, cols = x.shape
        t = pl.load(x) * 2.0
        y = pl.empty([rows, cols * 2], pl.f32)
        z = pl.zeros([rows], pl.f32)
        pl.store(t, [0, 0], y)
        pl.store(t, [0, cols], y)
        pl.store(pl.sum(t, axis=1), [0], z)
        return y, z

    module = ir(f, X)
    check(f, X)
    assert len(scopes(module)) == 1 and count(module, "alloc") == 2
    tiles_stay_inside(module)


def test_a_returned_tile_becomes_a_tensor():
    def f(x):
        return pl.load(x) + 1.0

    got = check(f, X)
    assert got.shape == (6, 4)
    assert len(scopes(ir(f, X))) == 1


def test_a_returned_tile_has_its_valid_extents():
    def f(x, r):
        return pl.load(x, [r, 0], [4, 4]) * 2.0

    assert check(f, X, 0).shape == (4, 4)
    assert check(f, X, 4).shape == (2, 4)


def test_the_returned_index_of_all_elements_is_a_tile():
    def f(x, r):
        return pl.argmax(pl.load(x, [r, 0], [4, 4]), keepdims=True)

    for r in (0, 4):
        assert check(f, X, r).shape == (1, 1)


def test_several_returned_tiles_and_numbers():
    def f(x, r):
        t = pl.load(x, [r, 0], [4, 4])
        return t, pl.sum(t, axis=1), pl.max(t), 7

    for r in (0, 3):
        check(f, X, r)


def test_a_tile_used_in_two_scopes_goes_through_a_temporary():
    def f(x, y):
        with pl.incore():
            t = pl.load(x, [0, 0], [4, 4]) * 2.0
        with pl.incore(name="second"):
            pl.store(t + 1.0, [0, 0], y)

    module = ir(f, X, out())
    check(f, X, out())
    assert scopes(module) == ["f_incore_0", "second"] and count(module, "alloc") == 1
    tiles_stay_inside(module)


def test_a_partial_tile_keeps_its_valid_extents_across_scopes():
    def f(x, y, r):
        with pl.incore():
            t = pl.load(x, [r, 0], [4, 4])
        with pl.incore():
            pl.store(pl.sum(t, axis=0, keepdims=True), [0, 0], y)

    check(f, X, out(), 4)
    check(f, X, out(), 1)


def test_numbers_and_views_cross_scopes():
    def f(x, y):
        with pl.incore():
            s = pl.sum(pl.load(x))
            v = y[2:4, :]
        with pl.incore():
            pl.store(pl.full([2, 4], 1.0, pl.f32) * s, v)

    check(f, X, out())


def test_scopes_in_scopes_have_no_effect():
    @pto.incore
    def twice(t):
        return t * 2.0

    def f(x, y):
        with pl.incore():
            with pl.incore():
                t = twice(pl.load(x))
            pl.store(t, [0, 0], y)

    module = ir(f, X, out())
    check(f, X, out())
    assert scopes(module) == ["f_incore_0"]


@pto.incore
def row_max(t):
    return pl.max(t, axis=1, keepdims=True)


@pto.incore
def exp_sub(t, m):
    return pl.exp(t - m)


@pto.incore
def normalise(e, s):
    return e / s


def test_named_in_core_functions_are_scopes_and_their_results_temporaries():
    def f(x, y):
        m = row_max(x)
        e = exp_sub(x, m)
        s = pl.sum(e, axis=1, keepdims=True)
        pl.store(normalise(e, s), ..., y)

    module = ir(f, X, out())
    check(f, X, out())
    assert scopes(module) == ["row_max", "exp_sub", "f_incore_0", "normalise", "f_incore_1"]
    assert [s.named for s in all_statements(module) if isinstance(s, Scope)] == [True, True, False, True, False]
    tiles_stay_inside(module)


def test_the_softmax_of_the_loop_specification():
    class Softmax:
        @pto.incore
        def incore_row_max(self, t):
            return pl.max(t, axis=1, keepdims=True)

        @pto.incore
        def incore_exp_sub(self, t, m):
            return pl.exp(t - m)

        @pto.incore
        def incore_row_sum(self, t):
            return pl.sum(t, axis=1, keepdims=True)

        @pto.incore
        def incore_div(self, e, s):
            return e / s

        def run(self, x, out):
            rows, cols = x.shape
            for t in pl.range(0, 3, chunk=2):
                r_start = t * 2
                r_end = min(r_start + 2, rows)
                x_tile = pl.slice(x, [r_end - r_start, cols], [r_start, 0])
                for phase in pl.range(3):
                    if phase == 0:
                        row_max_tile = self.incore_row_max(x_tile)
                    elif phase == 1:
                        exp_tile = self.incore_exp_sub(x_tile, row_max_tile)
                        row_sum_tile = self.incore_row_sum(exp_tile)
                    else:
                        y_tile = self.incore_div(exp_tile, row_sum_tile)
                        pl.store(y_tile, ..., out[r_start:r_end, :])

    def f(x, y, obj):
        obj.run(x, y)

    x, y = X.copy(), out()
    check(f, x, y, Static(Softmax()))
    module = ir(f, x, y, Static(Softmax()))
    tiles_stay_inside(module)
    names = scopes(module)
    assert names[:4] == ["incore_row_max", "incore_exp_sub", "incore_row_sum", "incore_div"] and len(names) == 5


def test_tile_statements_outside_scopes_form_maximal_runs():
    def f(x, y):
        a = pl.load(x, [0, 0], [4, 4])
        b = a * 2.0
        n = x.shape[0] - 2
        pl.store(b, [n - 4, 0], y)
        with pl.incore(name="middle"):
            pl.store(pl.load(x, [4, 0], [2, 4]), [4, 0], y)
        y[5, 3] = x[0, 0]
        pl.store(a, [0, 0], y)

    module = ir(f, X, out())
    check(f, X, out())
    assert scopes(module) == ["f_incore_0", "middle", "f_incore_1"]
    tiles_stay_inside(module)


def test_elements_are_read_and_written_by_the_host():
    def f(x, y):
        with pl.incore():
            pl.store(pl.load(x) * 2.0, [0, 0], y)
        if y[0, 0] < 0:
            y[0, 1] = 100.0
        with pl.incore():
            pl.store(pl.load(y, [0, 0], [1, 4]), [1, 0], y)

    module = ir(f, X, out())
    check(f, X, out())
    assert any(getattr(s, "op", "") == "getelem" for s in module.func("f").body)


def test_a_tile_carried_by_a_loop_of_orchestration():
    @pto.incore
    def step(t):
        return t * 0.5 + 1.0

    def f(x, y, n):
        t = step(x)
        for _ in pl.range(n):
            t = step(t)
        pl.store(t, ..., y)

    module = ir(f, X, out(), 3)
    for n in (0, 1, 3):
        check(f, X, out(), n)
    tiles_stay_inside(module)


def test_a_tile_chosen_by_a_branch_of_orchestration():
    @pto.incore
    def half(t):
        return t * 0.5

    @pto.incore
    def negative(t):
        return -t

    def f(x, y, n):
        if n > 2:
            t = half(x)
        else:
            t = negative(x)
        pl.store(t, ..., y)

    for n in (1, 3):
        check(f, X, out(), n)
    tiles_stay_inside(ir(f, X, out(), 1))


def test_jit_functions_are_inlined_in_orchestration():
    @pto.jit
    def scale(x, y, k):
        pl.store(pl.load(x) * k, [0, 0], y)

    @pto.jit
    def make(x):
        t = pl.empty([6, 4], pl.f32)
        with pl.incore(name="make"):
            pl.store(pl.load(x) + 1.0, [0, 0], t)
        return t

    def f(x, y):
        t = make(x)
        scale(t, y, 3.0)

    module = ir(f, X, out())
    check(f, X, out())
    assert scopes(module) == ["make", "f_incore_0"] or scopes(module) == ["make", "scale_incore_0"]


def test_zeros_in_a_loop_of_in_core_code_is_a_tile():
    def f(x, y):
        for r in range(3):
            acc = pl.zeros([2, 4], pl.f32)
            acc = acc + pl.load(x, [r * 2, 0], [2, 4])
            pl.store(acc, [r * 2, 0], y)

    module = ir(f, X, out())
    check(f, X, out())
    assert count(module, "alloc") == 0 and count(module, "full") == 1


def test_zeros_in_a_loop_of_orchestration_is_a_tensor():
    def f(x, y):
        for r in range(3):
            acc = pl.zeros([2, 4], pl.f32)
            with pl.incore():
                acc += pl.load(x, [r * 2, 0], [2, 4])
                pl.store(acc, [r * 2, 0], y)

    module = ir(f, X, out())
    check(f, X, out())
    assert count(module, "alloc") == 1


def test_loops_are_left_from_inside_a_scope():
    def f(x, y, n):
        for i in range(6):
            with pl.incore():
                t = pl.load(x, [i, 0], [1, 4])
                if i == n:
                    continue
                if pl.sum(t) > 20.0:
                    break
                pl.store(t, [i, 0], y)
            y[i, 0] = 99.0
        y[5, 3] = i

    for n in (0, 3, 9):
        check(f, X, out(), n)


def test_a_kernel_is_left_from_a_scope_in_a_loop():
    def f(x, y, n):
        for i in range(6):
            with pl.incore():
                t = pl.load(x, [i, 0], [1, 4])
                if i == n:
                    return
                pl.store(t, [i, 0], y)
        y[5, 3] = 7.0

    for n in (0, 3, 9):
        check(f, X, out(), n)


def test_scope_names_are_different():
    def f(x, y):
        for k in pl.static_range(2):
            with pl.incore(name="part"):
                pl.store(pl.load(x, [k, 0], [1, 4]), [k, 0], y)
            with pl.incore():
                y[5, k] = 1.0

    assert scopes(ir(f, X, out())) == ["part", "f_incore_0", "part_1", "f_incore_1"]


def test_a_tile_whose_extents_are_computed_outside_crosses():
    def f(x, y):
        rows, cols = x.shape
        with pl.incore():
            n = rows - 1
            t = pl.load(x, [1, 0], [n, cols])
        with pl.incore():
            pl.store(t, [0, 0], y)

    check(f, X, out())


def test_a_tile_with_a_constant_extent_of_one_of_its_parts_crosses():
    def f(x, y):
        t = pl.concat([pl.load(x), pl.load(y, [4, 0], [2, 4])])
        with pl.incore():
            u = t + 1
        pl.store(u, [0, 0], y)

    def g(x, y):
        t = pl.stack([pl.load(x), pl.load(y, [0, 0], [6, 4])], axis=1)
        with pl.incore():
            u = pl.sum(t * 2, axis=1)
        pl.store(u, [0, 0], y)

    check(f, X, out(10, 4))
    check(g, X, out())


def test_a_tile_whose_extents_are_read_inside_does_not_cross():
    def f(x, y):
        with pl.incore():
            n = int(x[0, 0]) + 9
            t = pl.load(x, [0, 0], [n, 4])
        with pl.incore():
            pl.store(t, [0, 0], y)

    with pytest.raises(CompilationError, match="leaves its in-core scope") as caught:
        ir(f, X, out())
    assert caught.value.hint


def test_a_jit_lambda():
    check(lambda x: pl.load(x) * 2.0, X)
    check(lambda x: x[0, 1], X)


def test_statements_of_a_scope_are_located():
    def f(x, y):
        t = pl.load(x)
        pl.store(t, [0, 0], y)

    for stmt in statements(ir(f, X, out()).func("f").body):
        assert stmt.loc.lineno > 0 and stmt.loc.filename == __file__
