# SPDX-License-Identifier: MIT
# ruff: noqa: B007, SIM113 - kernels are written the way the test needs them
"""Control flow does what Python does: every program runs compiled (reference interpreter) and as plain Python."""

from __future__ import annotations

import numpy as np
import pytest

import pto_jit.language as pl
from pto_jit.errors import CompilationError
from pto_jit.ir.nodes import Break, For, If, While
from tests.codegen.harness import Static, check, count, ir

X = np.array([3, -1, 4, 1, -5, 9, 2, 6], np.float32)


def out(n: int = 8) -> np.ndarray:
    return np.zeros(n, np.float32)


def test_a_sum_takes_the_dtype_of_the_elements():
    def total(x, y):
        s = 0.0
        for i in range(x.shape[0]):
            s += x[i]
        y[0] = s

    check(total, X, out())
    module = ir(total, X, out())
    assert count(module, For) == 1 and count(module, "cast") == 1  # the cast to f32 became one of f32 to f32


def test_break_continue_and_else():
    def scan(x, y, n, limit):
        s = 0.0
        k = 0
        for i in range(n):
            if x[i] < 0:
                continue
            if x[i] > limit:
                break
            s += x[i] * 2.0
            k = k + 1
        else:
            k = -k
        y[0] = s
        y[1] = k

    for n in (0, 3, 8):
        for limit in (5.0, 100.0):
            check(scan, X, out(), n, limit)


@pytest.mark.parametrize("n", [0, 2, 9, 25, 97])
def test_a_variable_set_before_every_break_and_in_else(n):
    def divisor(y, n):
        for d in range(2, n):
            if n % d == 0:
                r = d
                break
        else:
            r = -1
        k = 0
        while k < min(n, 6):
            if k * k > n:
                kind = 1
                break
            if y[k] > 0:
                kind = 2
                break
            k += 1
        else:
            kind = 3
        y[7] = r
        y[6] = kind

    check(divisor, out(), n)


def test_a_variable_not_set_before_every_break_is_refused():
    def divisor(y, n):
        for d in range(2, n):
            if n % d == 0:
                r = d
                break
            if d > 5:
                break
        else:
            r = -1
        y[7] = r

    with pytest.raises(CompilationError, match="`r` may be unset here"):
        ir(divisor, out(), 9)


def test_break_out_of_the_inner_of_two_loops():
    def pairs(x, y, n):
        for i in range(n):
            hits = 0
            for j in range(n):
                if j > i:
                    break
                if x[j] < 0:
                    continue
                hits += 1
            else:
                hits += 100
            y[i] = hits

    check(pairs, X, out(), 8)


def test_parallel_assignment_in_a_loop():
    def fibonacci(y, n):
        a, b = 0, 1
        for i in range(n):
            y[i] = a
            a, b = b, a + b

    check(fibonacci, out(), 8)


def test_rotating_three_variables():
    def rotate(y, n):
        a, b, c = 1.0, 2.0, 3.0
        for _ in range(n):
            a, b, c = c, a, b
        y[0] = a
        y[1] = b
        y[2] = c

    for n in range(5):
        check(rotate, out(), n)


def test_while_with_a_run_time_condition():
    def collatz(y, n):
        steps = 0
        while n != 1:
            if n % 2 == 0:
                n = n // 2
            else:
                n = 3 * n + 1
            steps += 1
        y[0] = steps

    check(collatz, out(), 27)
    assert count(ir(collatz, out(), 27), While) == 1


def test_while_with_short_circuit_condition_guards_the_read():
    def find(x, y, limit):
        i = 0
        while i < x.shape[0] and x[i] < limit:
            i += 1
        else:
            y[1] = 7
        y[0] = i

    for limit in (4.0, 100.0, -9.0):
        check(find, X, out(), limit)


def test_while_true_left_by_break():
    def first_negative(x, y):
        i = 0
        while True:
            v = x[i]
            if v < 0:
                break
            i += 1
        y[0] = i
        y[1] = v

    check(first_negative, X, out())
    assert count(ir(first_negative, X, out()), While) == 1


def test_while_true_left_by_return_of_a_helper():
    def use(x, y):
        def find(wanted):
            i = 0
            while True:
                if x[i] == wanted:
                    return i
                i += 1

        y[0] = find(4)
        y[1] = find(-5.0)

    check(use, X, out())


def test_a_compile_time_while_is_unrolled():
    def ladder(x, y, n):
        size = 8
        start = 0
        while size > 0:
            if n & size != 0:
                t = pl.load(x, [start], [size])
                pl.store(t, [start], y)
            start += n & size
            size //= 2

    for n in (0, 5, 8, 7):
        check(ladder, X, out(), n)
    assert count(ir(ladder, X, out(), 5), While) == 0
    assert count(ir(ladder, X, out(), 5), "store") == 4


def test_a_compile_time_while_true():
    def halve(y, n):
        k = 0
        while True:
            if n == 1:
                break
            n //= 2
            k += 1
        y[0] = k

    check(halve, out(), Static(64))
    assert count(ir(halve, out(), Static(64)), While) == 0


def test_static_loop_left_at_run_time():
    def search(x, y):
        where = -1
        for k in pl.static_range(8):
            if x[k] > 4:
                where = k
                break
        else:
            where = 99
        y[0] = where

    check(search, X, out())
    check(search, -X, out())
    check(search, np.zeros(8, np.float32), out())


def test_static_loop_with_run_time_continue():
    def positive(x, y):
        s = 0.0
        for k in pl.static_range(8):
            if x[k] < 0:
                continue
            s += x[k]
        y[0] = s

    check(positive, X, out())
    assert count(ir(positive, X, out()), For) == 0


def test_static_loop_inside_a_run_time_loop_left_by_return():
    def use(x, y):
        def f(limit):
            for i in range(x.shape[0]):
                for k in pl.static_range(2):
                    if x[i] * (k + 1) > limit:
                        return i * 10 + k
            return -1

        y[0] = f(8)
        y[1] = f(100)
        y[2] = f(3.5)

    check(use, X, out())


def test_guard_clauses_become_nested_branches_without_flags():
    def use(x, y):
        def clip(v):
            if v < 0:
                return 0.0
            if v > 4:
                return 4.0
            return v * 1.5

        for i in range(8):
            y[i] = clip(x[i])

    check(use, X, out())
    module = ir(use, X, out())
    assert count(module, If) == 2 and count(module, "not") == 0


def test_partial_return_in_a_branch():
    def use(x, y):
        def f(v):
            r = 1.0
            if v > 0:
                if v > 3:
                    return 100.0
                r = 2.0
            elif v < -4:
                return -100.0
            r = r + v
            if r > 4:
                return r * 10
            return r

        for i in range(8):
            y[i] = f(x[i])

    check(use, X, out())


def test_return_from_nested_loops_of_a_helper():
    def use(x, y, n):
        def pair(total):
            for i in range(n):
                for j in range(n):
                    if j > i and x[i] + x[j] == total:
                        return i * 10 + j
            return -1

        y[0] = pair(7)
        y[1] = pair(1000)

    check(use, X, out(), 8)


def test_a_helper_that_returns_a_tuple_from_both_sides():
    def use(x, y):
        def order(a, b):
            if a < b:
                return a, b
            return b, a

        for i in range(4):
            y[2 * i], y[2 * i + 1] = order(x[2 * i], x[2 * i + 1])

    check(use, X, out())


def test_variables_first_assigned_in_both_branches():
    def f(x, y):
        for i in range(8):
            if x[i] > 0:
                v = x[i] * 2
            else:
                v = 1.0
            y[i] = v

    check(f, X, out())


def test_nested_branches_merge_tuples():
    def f(x, y):
        state = (0.0, 1)
        for i in range(8):
            if x[i] > 0:
                if x[i] > 4:
                    state = (state[0] + x[i], state[1] * 2)
                else:
                    state = (state[0], state[1] + 1)
        y[0], y[1] = state

    check(f, X, out())


def test_tiles_carried_and_merged():
    def f(x, y, n):
        acc = pl.zeros([8], pl.f32)
        best = pl.full([8], -1.0, pl.f32)
        with pl.incore():
            a = pl.load(x, [0], [8])
            for i in range(n):
                t = a * (i + 1)
                if i % 2 == 0:
                    a = t - 1.0
                else:
                    a = t + 1.0
            pl.store(a, [0], y)
        del acc, best

    check(f, X, out(), 4)


def test_accumulating_into_a_top_level_zeros_changes_the_tensor_in_place():
    def f(x, y, n):
        acc = pl.zeros([4], pl.f32)
        for i in range(n):
            acc += pl.load(x, [i * 4], [4])
        pl.store(acc, [0], y)

    check(f, X, out(4), 2)


def test_rebinding_a_tensor_to_a_tile_in_a_loop():
    def f(x, y, n):
        acc = pl.zeros([4], pl.f32)
        for i in range(n):
            acc = acc + pl.load(x, [i * 4], [4])
        pl.store(acc, [0], y)

    check(f, X, out(4), 2)


def test_the_loop_variable_after_the_loop():
    def f(x, y, n):
        i = -7
        for i in range(n):
            if x[i] > 3:
                break
        y[0] = i
        for j in range(5):
            pass
        y[1] = j
        for k in pl.range(10, 0, -3):
            pass
        y[2] = k

    check(f, X, out(), 8)
    check(f, X, out(), 0)


def test_a_short_constant_loop_that_tests_its_variable_is_followed():
    def f(x, y):
        for phase in pl.range(3):
            if phase == 0:
                t = pl.load(x, [0], [8])
            elif phase == 1:
                u = t * 2.0
            else:
                pl.store(u, [0], y)

    check(f, X, out())
    assert count(ir(f, X, out()), For) == 0


def test_a_short_constant_loop_that_does_not_stays_a_loop():
    def f(x, y):
        for i in pl.range(8):
            y[i] = x[i]

    assert count(ir(f, X, out()), For) == 1


def test_conditional_expressions():
    def f(x, y, n):
        for i in range(8):
            y[i] = x[i] if x[i] > 0 else -x[i]
        y[0] = 1.0 if n > 3 else 2
        y[1] = x[n] if n < 8 else 0.0

    for n in (0, 7, 9):
        check(f, X, out(), n)
    assert count(ir(f, X, out(), 1), Break) == 0


def test_conditional_expression_of_tiles():
    def f(x, y, n):
        t = pl.load(x, [0], [8])
        u = t * 2.0 if n > 3 else t
        pl.store(u, [0], y)

    check(f, X, out(), 2)
    check(f, X, out(), 4)


def test_boolean_operators_keep_python_values():
    def f(y, a, b, c):
        y[0] = a and b
        y[1] = a or b
        y[2] = (a > 1 and b > 1) or c > 1
        y[3] = not a
        y[4] = a or 5
        y[5] = a < b < c
        y[6] = a < b > c != 3

    for a, b, c in ((0, 2, 3), (2, 0, 1), (1, 2, 3), (3, 2, 1)):
        check(f, out(), a, b, c)


def test_of_tests_only_the_truth_counts():
    def f(x, y, n):
        for i in range(8):
            if x[0] == 3 and x[i]:
                y[0] += 1.0
            if not (n == 5 or (n == 2 and x[i])):
                y[1] += 1.0
            y[2] += 1.0 if n == 3 or (n == 2 and i) else 0.0
            if (i > 2 and x[i] and n) or n > 2:
                y[3] += 1.0
        k = 8
        while n and (k > 3 or k == 2 and x[k]):
            k -= 1
        y[4] = k

    for n in (0, 2, 3, 5):
        check(f, np.where(X < 0, 0, X).astype(np.float32), out(), n)


def test_chained_comparison_reads_each_operand_once():
    def f(x, y, n):
        y[0] = 1.0 if 0 <= n < x.shape[0] and x[n] > 0 else 0.0

    for n in (-1, 0, 1, 8, 100):
        check(f, X, out(), n)


def test_walrus_in_conditions():
    def f(x, y, n):
        i = 0
        s = 0.0
        while (v := x[i]) != 9 and i < n:
            if (w := v * 2) > 3:
                s += w
            i += 1
        y[0] = s
        y[1] = v

    check(f, X, out(), 8)


def test_a_flag_carried_as_bool():
    def f(x, y):
        found = False
        for i in range(8):
            found = found or x[i] == 9
        y[0] = 1.0 if found else 0.0
        seen = False
        for i in range(8):
            if x[i] < -100:
                seen = True
        y[1] = 1.0 if seen else 2.0

    check(f, X, out())


def test_a_bool_that_becomes_an_int_in_a_while_loop():
    def f(y, n):
        go = True
        k = 0
        while go:
            k += 1
            go = n - k
        y[0] = k

    check(f, out(), 5)


def test_an_int_that_becomes_a_float_in_the_loop():
    def f(y, n):
        s = 0
        for i in range(n):
            s = s + 0.5 * i
        y[0] = s

    check(f, out(), 5)


def test_weak_variables_that_depend_on_each_other():
    def f(x, y):
        a = 0.0
        b = 1.0
        for i in range(8):
            c = a * 2.0 + b
            b = c + 0.5
            a = a + x[i]
        y[0] = a
        y[1] = b

    check(f, X, out())


def test_nested_loops_carry_the_same_variable():
    def f(x, y):
        s = 0.0
        for i in range(4):
            for j in range(2):
                s += x[i * 2 + j]
            s = s * 0.5
        y[0] = s

    check(f, X, out())


def test_nested_while_in_for_with_break_and_continue():
    def f(x, y, n):
        total = 0
        for i in range(n):
            k = i
            while k > 0:
                k -= 1
                if k % 3 == 0:
                    continue
                if k == 7:
                    break
                total += k
        y[0] = total

    check(f, X, out(), 10)


def test_for_over_compile_time_iterables():
    def f(x, y):
        for k, scale in enumerate((1.0, 2.0, 4.0)):
            y[k] = x[k] * scale
        for a, b in zip([3, 4], (5, 6), strict=True):
            y[a] = x[b]
        for name, v in {"p": 5, "q": 6}.items():
            y[v] = len(name)
        for k in reversed(range(2)):
            y[7] = k

    check(f, X, out())
    assert count(ir(f, X, out()), For) == 0


def test_code_after_a_static_return_is_not_compiled():
    def f(x, y, fast):
        if fast:
            y[0] = x[0]
            return
        y[0] = x.no_such_attribute

    check(f, X, out(), True)


def test_static_branches_that_are_not_taken_are_not_compiled():
    def f(x, y, mode):
        if mode == "a":
            y[0] = 1.0
        elif mode == "b":
            y[0] = undefined_name  # noqa: F821
        y[1] = x[1] if mode == "a" else another_undefined_name  # noqa: F821

    check(f, X, out(), "a")


def test_match_on_compile_time_values():
    def f(x, y, mode):
        match mode:
            case "double":
                y[0] = x[0] * 2
            case ("scale", s) | ["scale", s]:
                y[0] = x[0] * s
            case {"add": a, **rest}:
                y[0] = x[0] + a + len(rest)
            case int(n) if n > 3:
                y[0] = n
            case _:
                y[0] = -1.0

    for mode in ("double", ("scale", 3.0), {"add": 5.0, "other": 1}, 7, 2, None):
        check(f, X, out(), Static(mode))


def test_early_return_of_the_kernel():
    def f(x, y, n):
        if n < 0:
            return
        y[0] = x[0]
        for i in range(8):
            if i == n:
                return
            y[i] = x[i] * 2

    for n in (-1, 0, 3, 100):
        check(f, X, out(), n)


def test_a_scope_left_by_return():
    def f(x, y, n):
        with pl.incore():
            t = pl.load(x, [0], [8])
            if n > 3:
                pl.store(t, [0], y)
                return
            pl.store(t * 2.0, [0], y)
        y[0] = 77.0

    check(f, X, out(), 2)
    check(f, X, out(), 5)


def test_values_returned_under_run_time_control_flow():
    def f(x, n):
        if n > 3:
            return x[0], n
        s = 0.0
        for i in range(n):
            if x[i] < 0:
                return x[i], i
            s += x[i]
        return s, n

    for n in (0, 1, 3, 5):
        check(f, X, n)


def test_a_sum_that_becomes_f32_leaves_its_loop_in_containers():
    def returned(x, n):
        s = 0.0
        for i in range(n):
            if x[i] < 0:
                return s, [i, (s, s * 2)]
            s += x[i]
        return s, [-1, (s, 0.0)]

    def kept(x, n):
        s, best = 0.0, (0.0, 0)
        while n > 0:
            n -= 1
            if x[n] < 0:
                best = (s, n)
                break
            s += x[n]
        return best

    for n in (0, 1, 5):
        check(returned, X, n)
        check(kept, X, n)


def test_loops_with_negative_and_run_time_steps():
    def f(y, a, b, s):
        k = 0
        for i in range(a, b, s):
            y[k] = i
            k += 1
        for i in pl.range(7, -1, -2):
            y[i] = y[i] + i

    check(f, out(), 7, 0, -2)
    check(f, out(), 0, 7, 3)
    check(f, out(), 5, 5, 1)


def test_a_nonlocal_number_counted_in_a_run_time_loop():
    def f(y, n):
        k = 0

        def tick():
            nonlocal k
            k += 1
            return k

        for i in range(n):
            y[i] = tick() * 10
        y[7] = k

    check(f, out(), 4)
    check(f, out(), 0)


def test_del_and_rebinding():
    def f(x, y):
        t = x[0]
        del t
        t = x[1]
        y[0] = t

    check(f, X, out())


def test_assignment_in_a_loop_that_certainly_runs_is_known_afterwards():
    def f(x, y):
        for i in range(8):
            last = x[i]
        y[0] = last

    check(f, X, out())


def test_a_variable_that_the_static_branch_leaves_alone_stays_compile_time():
    def f(x, y, grow):
        size = 4
        for i in range(2):
            if grow:
                size = size * 2
            t = pl.load(x, [i * size], [size])
            pl.store(t, [i * 4], y)
        pl.store(pl.full([size], 1.0, pl.f32), [0], y)

    check(f, X, out(), False)


@pytest.mark.parametrize("n", [0, 1, 5, 8])
def test_partial_exits_of_every_kind_at_once(n):
    def use(x, y, n):
        def f(limit):
            s = 0.0
            for i in range(n):
                for k in pl.static_range(3):
                    if x[i] == k:
                        continue
                    if x[i] > limit + k:
                        break
                    if s > 50:
                        return s, i
                    s += x[i] + k
                else:
                    s += 0.25
                if s < -20:
                    break
            else:
                s += 1000
            return s, -1

        y[0], y[1] = f(3)
        y[2], y[3] = f(-2)
        y[4], y[5] = f(100)

    check(use, X, out(), n)


def test_a_list_assigned_anew_is_carried():
    """What the error of a list that is changed in a run-time loop advises."""

    def f(x, y, n):
        sums = [0.0, 1.0]
        for i in range(n):
            sums = [s + x[i] * k for k, s in enumerate(sums)]
        y[0], y[1] = sums

    check(f, np.arange(8, dtype=np.float32), np.zeros(2, np.float32), 5)


def _counted(x):
    n, total = 0, 0.0

    def more(v):
        nonlocal n, total
        if v > 2:
            n += 1
            total = total + v
        else:
            total -= 1

    if x[0] > 0:
        more(x[3])
    for i in range(6):
        more(x[i])
    return n, total


def _left_after_a_change(x):
    n = 0

    def more(v):
        nonlocal n
        if v > 2:
            n = 5
            return 1.0
        n = 7
        return 2.0

    first = more(x[0])
    return first, n, more(x[4]), n


def _changed_by_one_of_any(x):
    n, seen = 0, False

    def above(v):
        nonlocal n, seen
        n += 1
        if v > 3:
            seen = True
        return v > 2

    return any(above(x[i]) for i in range(6)), n, 1 if seen else 0


@pytest.mark.parametrize("kernel", [_counted, _left_after_a_change, _changed_by_one_of_any])
def test_numbers_of_the_enclosing_function_change_at_run_time(kernel):
    check(kernel, np.arange(1, 7, dtype=np.float32))
