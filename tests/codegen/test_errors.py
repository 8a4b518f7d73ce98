# SPDX-License-Identifier: MIT
# ruff: noqa: F821, F841 - kernels are written the way the test needs them
"""Every kernel here is wrong on the line that says so: `# error: CODE: text` is part of what the user sees there."""

from __future__ import annotations

import ast
import collections
import dataclasses
import functools
import heapq
import inspect
import linecache
import math
import operator
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit import codegen
from pto_jit.codegen.numpy_names import _ELSEWHERE, _UNARY, SPELLED
from pto_jit.errors import (
    CompilationError,
    InternalError,
    ScheduleError,
    ShapeError,
    TypeMismatchError,
    UnsupportedSyntaxError,
)
from tests.codegen.harness import Static, check, ir

X = np.arange(8, dtype=np.float32)
LIST = [1, 2]
HELD = {"items": LIST}
ITEMS = iter(LIST)
CASES: list[tuple[Callable[..., Any], type[CompilationError], tuple[Any, ...]]] = []


def case(cls: type[CompilationError] = CompilationError, *args: Any) -> Callable[[Any], Any]:
    def add(fn: Any) -> Any:
        CASES.append((fn, cls, args))
        return fn

    return add


@dataclasses.dataclass
class State:
    total: Any


class Queue:
    def __init__(self):
        self.items = []

    def add(self, item):
        self.items.append(item)


QUEUE = Queue()


def held_items():
    return HELD["items"]


@functools.lru_cache
def kept(n):
    return [0.0] * n


def helper(v):
    return v.banana  # error: PTO-N011: a run-time scalar has no attribute `banana`


# -- names ----------------------------------------------------------------------------------------------------------


@case()
def a_name_that_does_not_exist(x, y, n):
    valeu = x[0]
    y[0] = value + valeu  # error: PTO-N006: name `value` is not defined


@case()
def used_before_assignment(x, y, n):
    y[0] = later  # error: PTO-N005: `later` is used before it is assigned
    later = 1


@case()
def unset_on_one_path(x, y, n):
    if n > 3:
        v = x[0]
    y[0] = v  # error: PTO-N012: `v` may be unset here


@case()
def unset_when_the_loop_does_not_run(x, y, n):
    for i in range(n):
        v = x[i]
    y[0] = v  # error: PTO-N012: `v` may be unset here


@case()
def loop_variable_of_a_loop_that_may_not_run(x, y, n):
    for i in range(n):
        y[i] = x[i]
    y[0] = i  # error: PTO-N012: `i` may be unset here


@case()
def deleted(x, y, n):
    t = x[0]
    del t
    y[0] = t  # error: PTO-N005: `t` is used before it is assigned


@case()
def set_only_before_a_break_in_an_unrolled_loop(x, y, n):
    for k in pl.static_range(3):
        if x[k] > 0:
            break
        v = x[k]
    y[0] = v  # error: PTO-N012: `v` may be unset here


@case()
def a_missing_attribute_of_a_module(x, y, n):
    y[0] = pl.expp(x[0])  # error: PTO-N017: `pto_jit.language` has no attribute `expp`


@case()
def an_error_in_a_helper(x, y, n):
    y[0] = helper(x[0])


# -- compile time and run time --------------------------------------------------------------------------------------


@case()
def a_static_value_that_is_none(x, y, n):
    if pl.static(n > 2):  # error: PTO-N002: the argument of `pl.static` must be known at compile time
        y[0] = 1.0


@case()
def a_number_that_became_run_time(x, y, n):
    size = 4
    for _ in range(n):
        size = size + 1
    y[0] = [*range(40)][size]  # error: PTO-N018: a compile-time list is indexed with a run-time value


@case()
def a_string_changed_under_a_run_time_branch(x, y, n):
    name = "a"
    if n > 3:
        name = "b"
    y[0] = len(name)  # error: PTO-T001: `name` has no one type here


@case()
def a_list_changed_under_a_run_time_branch(x, y, n):
    values = []
    if n > 3:
        values.append(1)  # error: PTO-N008: `append` changes a compile-time list under run-time control flow


@case()
def a_string_changed_in_a_run_time_loop(x, y, n):
    name = "a"
    for i in range(n):
        y[i] = len(name)
        name = name + "b"  # error: PTO-N014: `name` changes from one iteration to the next


@case()
def a_tuple_of_tensors_becomes_one_of_tiles(x, y, n):
    state = pl.zeros([4], pl.f32), pl.zeros([4], pl.f32)
    for i in range(n):
        state = state[0] + pl.load(x, [i], [4]), state[1]  # error: PTO-N014: `state` changes from one iteration to the next: a tensor and a tile
    y[0] = state[0][0]


@case()
def tuples_of_different_lengths_meet(x, y, n):
    v = (1, 2)
    if n > 2:
        v = (1, 2, 3)
    y[0] = v[0]  # error: PTO-T001: `v` has no one type here: a tuple of 3 and 2 items


@case()
def dicts_of_different_keys_meet(x, y, n):
    v = {"a": 1}
    if n > 2:
        v = {"b": 1}
    y[0] = v["a"]  # error: PTO-T001: `v` has no one type here: a dict with different keys


@case()
def objects_of_different_attributes_meet(x, y, n):
    v = State(x[0])
    if n > 2:
        v = State(x[1])
        v.more = 3
    y[0] = v.total  # error: PTO-T001: `v` has no one type here: a State with different attributes


@case()
def objects_of_different_strings_meet(x, y, n):
    v = State(["s", x[0]])
    if n > 2:
        v = State(["t", x[0]])
    y[0] = v.total[1]  # error: PTO-T001: `v` has no one type here: the compile-time str 't' that differs


@case(TypeMismatchError)
def a_tensor_and_none_meet(x, y, n):
    v = x[0:4] if n > 2 else None  # error: PTO-T002: this expression has no one type here: a tensor and None


@case(TypeMismatchError)
def arrays_of_numpy_meet(x, y, n):
    v = np.arange(300) % 7 if n > 2 else np.ones(300) * 3  # error: PTO-T002: this expression has no one type here: a compile-time ndarray


@case()
def numbers_of_numpy_of_different_dtypes_meet(x, y, n):
    v = np.int16(1)
    if n > 2:
        v = np.int32(5)
    y[0] = v  # error: PTO-T001: `v` has no one type here: i32 and i16


@case()
def an_element_and_a_python_float_meet(x, y, n):
    v = pl.i32(n)
    if n > 2:
        v = 0.5
    y[0] = v  # error: PTO-T001: `v` has no one type here: i32 and a Python float


@case()
def a_truth_value_and_a_python_int_meet(x, y, n):
    v = x[0] > 1
    if n > 2:
        v = 3
    y[0] = v  # error: PTO-T001: `v` has no one type here: bool_ and a Python int


@case()
def tiles_of_different_shapes_meet(x, y, n):
    t = pl.load(x, [0], [4])
    if n > 2:
        t = pl.load(x, [0], [8])
    pl.store(t, [0], y)  # error: PTO-T001: `t` has no one type here: a tile of f32 with shape (8,) and a tile of f32


@case(TypeMismatchError)
def a_tile_changes_its_rank_in_a_loop(x, y, n):
    t = pl.load(x, [0], [4])
    for _ in range(n):
        t = pl.reshape(t, (2, 2))  # error: PTO-T001: `t` changes from one iteration to the next: a tile of f32 with shape


@case(TypeMismatchError)
def a_tile_changes_its_dtype_in_a_loop(x, y, n):
    t = pl.load(x, [0], [4])
    for _ in range(n):
        t = t.to(pl.f64)  # error: PTO-T001: `t` changes from one iteration to the next: a tile of f32 with shape (4,) and


@case()
def a_global_list_changed(x, y, n):
    LIST.append(3)  # error: PTO-N007: `append` would change a list that exists outside the kernel


@case()
def an_item_of_a_global_that_a_method_gives(x, y, n):
    HELD.get("items").append(3)  # error: PTO-N007: `append` would change a list that exists outside the kernel


@case()
def an_item_of_a_global_that_a_function_gives(x, y, n):
    held_items()[0] = x[0]  # error: PTO-N007: this assignment would change a list that exists outside the kernel


@case()
def what_a_cache_keeps(x, y, n):
    kept(3)[0] = x[0]  # error: PTO-N007: this assignment would change a list that exists outside the kernel


@case()
def a_global_list_changed_by_a_method_of_its_type(x, y, n):
    list.append(LIST, 3)  # error: PTO-N007: `append` would change a list that exists outside the kernel


@case()
def a_global_list_changed_by_its_own_method(x, y, n):
    LIST.__setitem__(0, 3)  # error: PTO-N007: `__setitem__` would change a list that exists outside the kernel


@case()
def a_global_list_changed_by_a_function(x, y, n):
    heapq.heappush(LIST, 3)  # error: PTO-N007: `heappush` would change a list that exists outside the kernel


@case()
def a_global_object_changed_by_a_method_of_its_type(x, y, n):
    object.__setattr__(QUEUE, "items", 3)  # error: PTO-N007: `__setattr__` would change a Queue that exists outside


@case()
def a_list_changed_by_a_function_in_a_run_time_loop(x, y, n):
    mine = [1.0]
    for _ in range(n):
        heapq.heappush(mine, 2.0)  # error: PTO-N008: `heappush` changes a compile-time list under run-time control


@case()
def an_object_changed_by_its_method_in_a_run_time_loop(x, y, n):
    mine = Queue()
    for _ in range(n):
        mine.add(2.0)  # error: PTO-N008: `add` changes a compile-time list under run-time control flow
    y[0] = len(mine.items)


@case()
def an_array_changed_by_its_method_in_a_run_time_branch(x, y, n):
    mine = np.arange(300) % 7
    if n > 2:
        mine.fill(1.0)  # error: PTO-N008: `fill` changes a compile-time ndarray under run-time control flow


@case()
def an_array_changed_by_a_function_in_a_run_time_branch(x, y, n):
    mine = np.zeros(3)
    if n > 2:
        np.copyto(mine, 1.0)  # error: PTO-N008: `copyto` changes a compile-time ndarray under run-time control flow


@case()
def a_dict_with_defaults_gets_an_item_in_a_run_time_loop(x, y, n):
    groups = collections.defaultdict(list)
    for _ in range(n):
        y[0] += len(groups[0])  # error: PTO-N008: this item changes a compile-time defaultdict under run-time control


@case()
def a_parallel_loop_reversed(x, y, n):
    for i in reversed(pl.range(n, parallel=True)):  # error: PTO-N071: `reversed` of a loop whose iterations have no order
        y[i] = x[i]


@case()
def an_iterator_read_in_a_run_time_loop(x, y, n):
    items = iter([1.0, 2.0])
    for _ in range(n):
        for v in items:  # error: PTO-N008: going through it changes a compile-time list_iterator under run-time control
            y[0] += v


@case()
def an_iterator_read_by_a_function_in_a_run_time_loop(x, y, n):
    items = iter([1.0, 2.0])
    for _ in range(n):
        y[0] += len(list(items))  # error: PTO-N008: `list` changes a compile-time list_iterator under run-time control


@case()
def a_zip_read_in_a_run_time_branch(x, y, n):
    pairs = zip([1.0, 2.0], [3.0, 4.0])  # noqa: B905
    if n > 2:
        y[0] += max(a for a, b in pairs)  # error: PTO-N008: going through it changes a compile-time zip under run-time


@case()
def a_global_iterator(x, y, n):
    for v in ITEMS:  # error: PTO-N007: going through it would change a list_iterator that exists outside the kernel
        y[0] += v


@case()
def an_item_of_the_kernel_that_a_method_gives_in_a_run_time_loop(x, y, n):
    mine = {"items": [1.0]}
    for _ in range(n):
        mine.get("items").append(2.0)  # error: PTO-N008: `append` changes a compile-time list under run-time control
    y[0] = len(mine["items"])


@case()
def a_nonlocal_string_changed_under_a_run_time_branch(x, y, n):
    name = "a"

    def change():
        nonlocal name
        name = "b"  # error: PTO-N023: `nonlocal name` changes a compile-time value under run-time control flow

    if n > 3:
        change()
    y[0] = len(name)


@case()
def python_raises_at_compile_time(x, y, n):
    y[0] = {}["missing"]  # error: PTO-N004: evaluating this at compile time raised KeyError


@case()
def a_python_helper_computes_with_a_run_time_value(x, y, n):
    y[0] = [1, 2].index(n)  # error: PTO-N003: `index` needs a compile-time value here


@case()
def an_f_string_of_a_run_time_value(x, y, n):
    pl.static_print(f"{n}")  # error: PTO-N002: a value in an f-string must be known at compile time


@case()
def print_of_a_run_time_value(x, y, n):
    print(n)  # error: PTO-N039: `print` of a run-time value


@case()
def a_comprehension_filter_at_run_time(x, y, n):
    y[0] = len([x[i] for i in range(3) if x[i] > 0])  # error: PTO-N002: the condition of a comprehension


@case()
def a_comprehension_over_a_run_time_range(x, y, n):
    y[0] = len([x[i] for i in range(n)])  # error: PTO-N019: a comprehension over a range with run-time bounds


@case()
def a_list_of_a_generator_over_a_run_time_range(x, y, n):
    y[0] = len(tuple(x[i] for i in range(n)))  # error: PTO-N019: a comprehension over a range with run-time bounds


@case()
def a_name_assigned_in_a_generator_over_a_run_time_range(x, y, n):
    y[0] = sum(v for i in range(n) if (v := x[i]) > 0)
    y[1] = v  # error: PTO-N072: `v` is assigned in a generator whose items are counted at run time


@case()
def the_next_of_a_run_time_range_without_a_default(x, y, n):
    y[0] = next(x[i] for i in range(n) if x[i] > 0)  # error: PTO-N073: `next` of a generator whose items are counted at run time needs


@case()
def the_largest_of_a_generator_and_a_number(x, y, n):
    y[0] = max((x[i] for i in range(n)), 3)  # error: PTO-N073: `max` of a generator whose items are counted at run time gets too


@case()
def a_reduction_over_a_run_time_range_without_an_initial_value(x, y, n):
    y[0] = functools.reduce(operator.add, (x[i] for i in range(n)))  # error: PTO-N073: `reduce` of a generator whose items are


@case()
def an_assertion_that_tells_four_values(x, y, n):
    assert n > 2, f"{x[0]} {x[1]} {x[2]} {x[3]}"  # error: PTO-N075: an assertion that tells 4 run-time values


@case()
def an_assertion_that_tells_a_tile(x, y, n):
    assert n > 2, f"{x[0:2] * 2}"  # error: PTO-N076: an assertion that tells a tile


@case(TypeMismatchError)
def values_in_and_behind_an_f_string(x, y, n):
    pl.print(f"{x[0]} {{}}", x[1])  # error: PTO-T083: pl.print: an f-string with run-time values, and values behind it


@case()
def alternatives_with_names_of_a_run_time_number(x, y, n):
    match n:
        case (1 as k) | (2 as k):  # error: PTO-N081: alternatives with names, of a run-time value
            y[0] = k


@case()
def counters_read_at_compile_time(x, y, n):
    a = list(zip(range(n), range(n), strict=False))  # error: PTO-N077: counters of run-time ranges are read at compile
    y[0] = len(a)


@case()
def run_time_ranges_that_have_to_be_equal(x, y, n):
    for i, j in zip(range(n), range(4), strict=True):  # error: PTO-N078: `zip(..., strict=True)` of what run time counts
        y[i] = x[j]


@case()
def a_run_time_range_beside_a_list(x, y, n):
    for i, w in zip(range(n), [1.0, 2.0], strict=False):  # error: PTO-N079: what run time counts beside other items
        y[i] = x[i] * w


@case()
def counters_beside_a_parallel_loop(x, y, n):
    for k, i in enumerate(pl.range(n, parallel=True)):  # error: PTO-N080: counters beside a loop whose iterations have no
        y[k] = x[i]


@case()
def the_largest_tile_of_a_run_time_range(x, y, n):
    y[0:2] = max(x[i : i + 2] for i in range(n))  # error: PTO-N074: `max` of a generator whose items, counted at run time


@case()
def a_static_assertion(x, y, n):
    pl.static_assert(1 > 2, "one is small")  # error: PTO-N037: one is small


@case()
def an_assertion_known_to_fail(x, y, n):
    assert len(LIST) == 5, "wrong list"  # error: PTO-N025: assertion failed at compile time: wrong list


@case()
def a_raise_on_a_static_path(x, y, n):
    if len(LIST) == 2:
        raise ValueError("two items")  # error: PTO-N027: ValueError: two items


@case(UnsupportedSyntaxError)
def a_raise_on_a_run_time_path(x, y, n):
    if n > 2:
        raise ValueError("no")  # error: PTO-S031: `raise` under run-time control flow


# -- types ----------------------------------------------------------------------------------------------------------


@case(TypeMismatchError)
def a_number_that_becomes_a_tile(x, y, n):
    acc = 0.0
    for i in range(n):
        acc = acc + pl.load(x, [i], [4])  # error: PTO-T001: `acc` changes from one iteration to the next
    pl.store(acc, [0], y)


@case(TypeMismatchError)
def a_tile_that_becomes_wider(x, y, n):
    m = pl.load(x, [0], [4])
    for i in range(n):
        bias = (i - pl.arange(0, 4)) * 0.5
        s = pl.load(x, [i], [4]) + bias
        m = pl.maximum(m, s)  # error: PTO-T001: `m` changes from one iteration to the next: a tile of f32
    pl.store(m, [0], y)


@case(TypeMismatchError)
def a_tile_that_changes_shape(x, y, n):
    t = pl.load(x, [0], [4])
    for _ in range(n):
        t = pl.concat([t, t])  # error: PTO-T001: `t` changes from one iteration to the next
    pl.store(t, [0], y)


@case(TypeMismatchError)
def a_tile_whose_run_time_extent_changes(x, y, n):
    t = pl.load(x, [0], [n])
    for _ in range(3):
        n = n + 1
        t = pl.load(x, [0], [n]) + pl.sum(t)  # error: PTO-T001: `t` changes from one iteration to the next: the extent
    pl.store(t, [0], y)


@case(TypeMismatchError)
def a_tile_or_a_number(x, y, n):
    v = pl.load(x, [0], [4]) if n > 3 else 1.0  # error: PTO-T002: this expression has no one type
    pl.store(v, [0], y)


@case(TypeMismatchError)
def a_helper_with_two_results(x, y, n):
    def f(v):
        if v > 2:
            return v
        return "no"  # error: PTO-T018: `f` returns different kinds of value

    y[0] = f(x[0])


@case(TypeMismatchError)
def the_truth_of_a_tile(x, y, n):
    t = pl.load(x, [0], [4])
    if t > 0:  # error: PTO-T026: the truth value of a tile is ambiguous
        y[0] = 1.0


@case(TypeMismatchError)
def a_list_of_what_a_tensor_holds(x, y, n):
    doubled = [v * 2 for v in x]  # error: PTO-T005: a tensor has no items at compile time
    y[0] = doubled[0]


@case()
def a_loop_that_never_ends(x, y, n):
    while True:  # error: PTO-L002: this loop is unrolled at compile time and exceeds the limit
        for i in pl.range(n):
            if i > 2:
                break
        y[0] += 1.0


@case(TypeMismatchError)
def the_largest_of_one_number(x, y, n):
    y[0] = max(n)  # error: PTO-T005: a number is not iterable


@case(TypeMismatchError)
def the_options_of_a_plain_range(x, y, n):
    for i in range(n, chunk=2):  # error: PTO-T017: `range`: takes no keyword arguments
        y[i] = 1.0


@case()
def an_index_beyond_64_bits(x, y, n):
    y[0] = x[n + 2**64]  # error: PTO-N001: the integer 18446744073709551616 does not fit 64 bits


@case(TypeMismatchError)
def a_tile_as_the_seed(x, y, n):
    pl.store(pl.rand(pl.load(x), 0, [4]), [0], y)  # error: PTO-T042: pl.rand: the seed is a tile


@case(TypeMismatchError)
def the_identity_of_a_number(x, y, n):
    one = 1
    y[0] = 1.0 if n is one else x[0]  # error: PTO-T025: `is` of a run-time value


@case(TypeMismatchError)
def a_module_as_a_number(x, y, n):
    y[0] = x[0] * np  # error: PTO-T010: an operand of `*` is the module <module 'numpy'


@case()
def a_generator_that_is_returned(x, y, n):
    return (v for v in range(3))  # error: PTO-N040: a generator is returned


@case()
def a_function_that_is_returned(x, y, n):
    return lambda: x[n]  # error: PTO-N040: a function of the kernel is returned


@case(TypeMismatchError)
def a_tile_rounded_by_math(x, y, n):
    y[...] = math.floor(x)  # error: PTO-T072: `math.floor` takes a number, not a tile


@case(TypeMismatchError)
def an_array_of_the_surroundings_in_a_product(x, y, n):
    y[0] = X @ x  # error: PTO-T011: pl.dot takes a tile, got an array of float32 with shape (8,)


@case()
def an_initial_number_beyond_64_bits(x, y, n):
    s = 10**400
    for i in range(n):  # error: PTO-N001: the integer of 1329 bits does not fit 64 bits
        s += x[i]
    y[0] = s


@case()
def a_range_of_more_than_64_bits(x, y, n):
    y[0] = pl.sum(pl.arange(2**70))  # error: PTO-N001: the integer 1180591620717411303424 does not fit 64 bits


@case(TypeMismatchError)
def an_endless_range(x, y, n):
    y[0] = pl.sum(pl.arange(0.0, float("inf")))  # error: PTO-T030: pl.arange from 0.0 to inf has no length


@case(TypeMismatchError)
def tiles_that_are_not_in_a_list(x, y, n):
    pl.store(pl.stack(pl.load(x), pl.load(x)), [0], y)  # error: PTO-T011: pl.stack takes a list of tiles, got a tile of f32


@case(TypeMismatchError)
def a_function_as_tiles(x, y, n):
    pl.store(pl.concat(max), [0], y)  # error: PTO-T011: pl.concat takes a list of tiles, got the function `max`


@case(TypeMismatchError)
def a_reduction_of_no_tiles(x, y, n):
    y[0] = pl.reduce([], 0, max)  # error: PTO-H024: pl.reduce of no tiles


@case(TypeMismatchError)
def a_scan_of_no_tiles(x, y, n):
    y[0] = pl.associative_scan((), 0, max)  # error: PTO-H024: pl.associative_scan of no tiles


@case(TypeMismatchError)
def a_function_as_a_dtype(x, y, n):
    pl.store(pl.cast(pl.load(x), pl.sum), [0], y)  # error: PTO-T028: the function `sum` is not a dtype


@case(TypeMismatchError)
def a_list_with_run_time_values_as_a_number(x, y, n):
    y[0] = pl.exp([n, 1])  # error: PTO-T010: the argument of exp is a list with run-time values, which is not a number


@case(TypeMismatchError)
def a_symbol_of_a_run_time_value(x, y, n):
    y[0] = pl.dynamic(n)  # error: PTO-T016: `pl.dynamic` of a run-time value


@case(TypeMismatchError)
def a_description_of_a_run_time_value(x, y, n):
    y[0] = pl.Symbol(n)  # error: PTO-T016: `pl.Symbol` of a run-time value


@case()
def an_argument_that_a_dtype_does_not_know(x, y, n):
    y[0] = pl.i32(n, fn=3)  # error: PTO-N004: evaluating this at compile time raised TypeError: DType.__call__() got an


@case()
def text_as_a_number(x, y, n):
    y[0] = pl.bf16("1.5")  # error: PTO-N004: evaluating this at compile time raised TypeError: pl.bf16 converts numbers


@case(TypeMismatchError)
def more_places_than_values_in_a_format(x, y, n):
    pl.print("{} {}", n)  # error: PTO-T172: `print`: '{} {}' does not format its 1 value: Replacement index 1 out of


@case(TypeMismatchError)
def a_number_format_for_a_tile(x, y, n):
    pl.print("{:.2f}", pl.load(x))  # error: PTO-T172: `print`: '{:.2f}' does not format its 1 value: unsupported


@case(TypeMismatchError)
def a_list_as_a_dtype(x, y, n):
    pl.store(pl.bitcast(pl.load(x), [8]), [0], y)  # error: PTO-T028: [8] is not a dtype


@case(TypeMismatchError)
def a_range_of_a_tile(x, y, n):
    pl.store(pl.arange(pl.load(x), 4, 1, pl.f32), [0], y)  # error: PTO-T030: pl.arange takes integers


@case(TypeMismatchError)
def a_tile_where_a_list_is_wanted(x, y, n):
    y[...] = pl.concat(pl.load(x))  # error: PTO-T011: pl.concat takes a list of tiles, got a tile of f32


@case(TypeMismatchError)
def calling_a_number(x, y, n):
    y[0] = n(3)  # error: PTO-T015: a run-time scalar is not callable


@case(TypeMismatchError)
def wrong_number_of_arguments(x, y, n):
    y[0] = helper(x[0], n)  # error: PTO-T019: `helper` takes 1 positional arguments, but 2 are given


@case(TypeMismatchError)
def an_unknown_keyword_of_an_operation(x, y, n):
    t = pl.load(x, [0], shap=[4])  # error: PTO-T029: pl.load: got an unexpected keyword argument 'shap'
    pl.store(t, [0], y)


@case()
def unpacking_too_few(x, y, n):
    a, b, c = x[0], x[1]  # error: PTO-N022: cannot unpack 2 values into 3 names
    y[0] = a + b + c


@case(ShapeError)
def tiles_that_do_not_fit(x, y, n):
    t = pl.load(x, [0], [4]) + pl.load(x, [0], [3])  # error: PTO-H001: tiles of shape (4,) and (3,) do not broadcast
    pl.store(t, [0], y)


@case(TypeMismatchError)
def returning_an_argument(x, y, n):
    return x  # error: PTO-T046: a tensor argument is returned


@case(TypeMismatchError)
def returns_of_different_types(x, y, n):
    if n > 2:
        return x[0]
    return n, n  # error: PTO-T045: this returns i64, i64, another `return` f32


# -- loops ----------------------------------------------------------------------------------------------------------


@case(ScheduleError)
def break_in_a_parallel_loop(x, y, n):
    for i in pl.range(n, parallel=True):
        if x[i] > 3:
            break  # error: PTO-L001: `break` in a parallel or chunked loop


@case(ScheduleError)
def return_in_a_chunked_loop(x, y, n):
    for i in pl.range(n, chunk=4):
        if x[i] > 3:
            return  # error: PTO-L001: `return` in a parallel or chunked loop


@case()
def a_reduction_updated_outside_of_a_loop(x, y, n):
    acc = pl.reduction(init=0.0, combine=max)
    acc.update(x[0])  # error: PTO-L006: `update` stands outside of a loop
    y[0] = acc.value


@case()
def a_reduction_read_inside_its_loop(x, y, n):
    acc = pl.reduction(init=0.0, combine=max)
    for i in pl.range(n, parallel=True):
        acc.update(x[i])
        y[i] = acc.value  # error: PTO-L007: `value` is read inside a parallel loop that updates the reduction


@case()
def a_reduction_updated_in_two_loops(x, y, n):
    acc = pl.reduction(init=0.0, combine=max)
    for i in pl.range(n, parallel=True):
        acc.update(x[i])
    for i in pl.range(n):  # error: PTO-L008: a reduction is updated in two loops, and one of them is parallel
        acc.update(-x[i])
    y[0] = acc.value


def longer(a, b):
    return (a[0] + b[0], a[1], b[1])


@case(TypeMismatchError)
def a_reduction_whose_state_grows(x, y, n):
    acc = pl.reduction(init=(0.0, 0.0), combine=longer)
    for i in pl.range(n, chunk=4):
        acc.update(x[i], 1.0)  # error: PTO-T009: the combine function returns no tuple of 2 values


@case(TypeMismatchError)
def a_reduction_whose_state_changes_its_type(x, y, n):
    acc = pl.reduction(init=pl.zeros([4], pl.f32), combine=lambda a, b: pl.concat([a, b]))
    for i in pl.range(n, chunk=4):
        acc.update(pl.load(x, [i], [4]))  # error: PTO-T001: the state of a reduction changes from one iteration
    pl.store(acc.value, [0], y)


@case()
def the_last_value_of_a_parallel_loop(x, y, n):
    v = 0.0
    for i in pl.range(n, parallel=True):
        v = x[i]
        y[i] = v
    y[0] = v  # error: PTO-L003: `v` has the value of no particular iteration here


@case(ScheduleError)
def step_zero(x, y, n):
    for i in pl.range(0, n, 0):  # error: PTO-L010: the step of a loop is 0
        y[i] = 1.0


@case(ScheduleError)
def parallel_false_with_chunk(x, y, n):
    for i in pl.range(n, parallel=False, chunk=4):  # error: PTO-L013: `parallel=False` together with `chunk=`
        y[i] = 1.0


@case(ScheduleError)
def chunk_of_zero(x, y, n):
    for i in pl.range(n, chunk=0):  # error: PTO-L015: a chunk of 0 iterations
        y[i] = 1.0


@case(ScheduleError)
def chunk_that_is_a_float(x, y, n):
    for i in pl.range(n, chunk=2.0):  # error: PTO-L014: a chunk is not an integer
        y[i] = 1.0


@case(ScheduleError)
def unknown_policy(x, y, n):
    for i in pl.range(n, chunk=2, chunk_policy="round"):  # error: PTO-L011: unknown chunk_policy 'round'
        y[i] = 1.0


@case(ScheduleError)
def chunk_with_a_negative_step(x, y, n):
    for i in pl.range(n, 0, -1, chunk=2):  # error: PTO-L016: `chunk=` with the negative step -1
        y[i] = 1.0


@case()
def too_much_unrolling(x, y, n):
    for i in pl.static_range(10000):  # error: PTO-L002: this loop is unrolled at compile time and exceeds the limit
        y[0] = i


@case()
def an_endless_compile_time_loop(x, y, n):
    k = 0
    while True:  # error: PTO-L002: this loop is unrolled at compile time and exceeds the limit of 4096
        k += 1


@case()
def endless_recursion(x, y, n):
    def f(v):
        return f(v + 1)  # error: PTO-N036: calls are nested more than 100 deep

    y[0] = f(x[0])


# -- syntax ---------------------------------------------------------------------------------------------------------


@case(UnsupportedSyntaxError)
def with_a_file(x, y, n):
    with open("f"):  # error: PTO-S032: `with` other than `pl.incore`  # noqa: PTH123
        y[0] = 1.0


@case(UnsupportedSyntaxError)
def incore_not_called(x, y, n):
    with pl.incore:  # error: PTO-S033: `pl.incore` is called
        y[0] = 1.0


@case(UnsupportedSyntaxError)
def a_try(x, y, n):
    try:  # error: PTO-S028: `try` is not supported in a kernel
        y[0] = 1.0
    finally:
        pass


@case()
def wide_characters_before_the_place(x, y, n):
    y[0] = len("表表表") + x[0].größe  # error: PTO-N011: a run-time scalar has no attribute `größe`


@case()
def tabs_and_continuation_lines(x, y, n):
    y[0] = (x[0] +
            undefined +  # error: PTO-N006: name `undefined` is not defined
            x[1])  # fmt: skip


@case(TypeMismatchError)
def an_option_of_update(x, y, n):
    acc = pl.reduction(init=0.0, combine=max)
    acc.update(x[0], chunk=2)  # error: PTO-T017: `update`: got an unexpected keyword argument


def expected(fn: Callable[..., Any]) -> tuple[str, int, str, str]:
    """(file, line, code, text) of the `# error:` comment of a kernel, or of the helper for the one without."""
    for function in (fn, helper):
        lines, first = inspect.getsourcelines(function)
        for k, line in enumerate(lines):
            found = re.search(r"# error: (PTO-[A-Z]\d+): (.*?)(?:  # .*)?$", line.rstrip("\n"))
            if found:
                return inspect.getfile(fn), first + k, found[1], found[2]
    raise AssertionError(f"{fn.__name__} has no `# error:` comment")


@pytest.mark.parametrize(("fn", "cls", "args"), CASES, ids=[fn.__name__ for fn, _, _ in CASES])
def test_the_error_names_code_text_place_and_a_way_out(fn, cls, args):
    filename, line, code, text = expected(fn)
    with pytest.raises(CompilationError) as caught:
        ir(fn, X, X.copy(), 3, *args)
    error = caught.value
    assert type(error) is cls, str(error)
    assert (error.code, error.lineno) == (code, line), str(error)
    assert text in error.message, str(error)
    assert error.filename == filename and error.hint
    source = linecache.getline(filename, line)
    assert 0 <= error.col_offset < len(source)
    printed = str(error)
    assert "^" in printed and f":{line}:{error.col_offset + 1}" in printed and f"help: {error.hint}" in printed


def test_the_range_is_exact():
    def f(x, y):
        y[0] = x[0] + (undefined) * 2

    with pytest.raises(CompilationError) as caught:
        ir(f, X, X.copy())
    error = caught.value
    line = linecache.getline(error.filename, error.lineno)
    assert line[error.col_offset : error.end_col_offset] == "undefined"


def test_columns_count_characters_not_bytes():
    with pytest.raises(CompilationError) as caught:
        ir(wide_characters_before_the_place, X, X.copy(), 3)
    error = caught.value
    line = linecache.getline(error.filename, error.lineno)
    assert line[error.col_offset : error.end_col_offset] == "x[0].größe"


def test_the_call_chain_is_shown():
    def inner(v):
        return v.banana

    def outer(v):
        return inner(v)

    def f(x, y):
        y[0] = outer(x[0])

    with pytest.raises(CompilationError) as caught:
        ir(f, X, X.copy())
    text = str(caught.value)
    assert text.count("called from") == 2
    first = inner.__code__.co_firstlineno
    assert caught.value.lineno == first + 1
    assert f":{outer.__code__.co_firstlineno + 1}:16" in text and f":{f.__code__.co_firstlineno + 1}:16" in text


def test_where_a_wider_dtype_begins_is_shown():
    with pytest.raises(TypeMismatchError) as caught:
        ir(a_tile_that_becomes_wider, np.zeros(8, np.float32), np.zeros(4, np.float32), 3)
    first = inspect.getsourcelines(a_tile_that_becomes_wider)[1]
    (note,) = (n for n in caught.value.notes if "begin here" in n.message)
    assert note.message == "tiles of f64 begin here: as in NumPy, i32 and fractions are f64"
    assert (note.loc.lineno, note.loc.col_offset) == (first + 4, 15)
    assert "`.to(pl.f32)` or `.to(pl.f64)`" in caught.value.hint


def test_both_places_of_a_conflict_are_shown():
    with pytest.raises(CompilationError) as caught:
        ir(a_number_that_becomes_a_tile, X, X.copy(), 3)
    notes = caught.value.notes
    first = a_number_that_becomes_a_tile.__code__.co_firstlineno
    assert [n.loc.lineno for n in notes if n.loc] == [first + 2, first + 3]
    assert "pl.zeros([4], pl.f32)" in caught.value.hint


def test_an_argument_becomes_a_run_time_value_where_its_parameter_stands() -> None:
    def named(
        x,
        y,
        n,
    ):
        y[0] = len("n is " + n)

    with pytest.raises(CompilationError) as caught:
        ir(named, X, X.copy(), 3)
    (note,) = caught.value.notes
    assert note.loc is not None
    line = linecache.getline(note.loc.filename, note.loc.lineno)
    assert line.strip() == "n," and line[note.loc.col_offset : note.loc.end_col_offset] == "n"


def test_text_and_a_run_time_value_are_sent_to_print() -> None:
    def joined(x, y, n):
        y[0] = len("n is " + n)

    with pytest.raises(TypeMismatchError) as caught:
        ir(joined, X, X.copy(), 3)
    assert caught.value.code == "PTO-T013" and 'pl.print("{}", value)' in (caught.value.hint or "")


def test_what_the_user_raised_is_the_cause():
    for fn in (a_raise_on_a_static_path, python_raises_at_compile_time):
        with pytest.raises(CompilationError) as caught:
            ir(fn, X, X.copy(), 3)
        assert isinstance(caught.value.__cause__, (ValueError, KeyError))


def test_a_list_that_grows_at_run_time_is_sent_to_a_tensor() -> None:
    def grows(x, y, n):
        hits = []
        for i in range(n):
            hits.append(x[i])

    def counts(x, y, n):
        seen = {"hits": 0}
        for i in range(n):
            seen["hits"] = i

    def sums(x, y, n):
        state = State(0.0)
        for i in range(n):
            state.total += x[i]

    told, instead = [], []
    for fn in (grows, counts, sums):
        with pytest.raises(CompilationError) as caught:
            ir(fn, X, X, 3)
        assert caught.value.code == "PTO-N008"
        told.append("`v = pl.empty([most], pl.f32)`, `v[n] = e`, `n += 1`" in caught.value.hint)
        instead.append(re.search("assign a new one .*?`(.*?)`", caught.value.hint).group(1))
    assert told == [True, False, False]  # only a list grows by an index
    assert instead == ["v = [a + 1 for a in v]", "v = {**v, key: v[key] + 1}",
                       "v = dataclasses.replace(v, field=v.field + 1)"]  # fmt: skip


def test_what_is_proposed_instead_of_a_change_computes_what_it_would() -> None:
    def f(x, y, n):
        state, seen = State(0.0), {"sum": 0.0, "last": 0}
        for i in range(n):
            state = dataclasses.replace(state, total=state.total + x[i])
            seen = {**seen, "sum": seen["sum"] + x[i] * 2}
        y[0], y[1] = state.total, seen["sum"]

    check(f, X, X.copy(), 5)


def test_did_you_mean():
    with pytest.raises(CompilationError) as caught:
        ir(a_name_that_does_not_exist, X, X.copy(), 3)
    assert caught.value.hint == "did you mean `valeu`?"
    with pytest.raises(CompilationError) as caught:
        ir(a_missing_attribute_of_a_module, X, X.copy(), 3)
    assert caught.value.hint == "did you mean `exp`?" or "exp" in caught.value.hint


@pytest.mark.parametrize(
    ("expression", "meant"),
    [("pl.float32(x[0])", "f32"), ("pl.zeros([8], 'f31')", "f32"), ("pl.load(x, [0], shap=[8])", "shape"),
     ("list(pl.range(8, chunks=4))", "chunk"), ("scaled(x[0], factr=2)", "factor"), ("x.shap", "shape"),
     ("pl.load(x, [0], [8]).too(pl.i32)", "to"), ("CONFIG.blok", "block"), ("scaeld(x[0])", "scaled")],
)  # fmt: skip
def test_the_near_miss_is_named_for_names_attributes_keywords_and_dtypes(expression, meant):
    from types import SimpleNamespace

    def scaled(v, factor=1):
        return v * factor

    filename, text = f"<near {meant}>", f"def kernel(x, y):\n    y[0] = {expression}\n"
    linecache.cache[filename] = len(text), None, text.splitlines(keepends=True), filename
    names = {"pl": pl, "scaled": scaled, "CONFIG": SimpleNamespace(block=4)}
    exec(compile(text, filename, "exec"), names)
    with pytest.raises(CompilationError) as caught:
        ir(names["kernel"], X, X.copy())
    assert f"did you mean `{meant}`?" in caught.value.hint, str(caught.value)


def test_every_code_is_used_for_one_message():
    """Codes in the sources of the front end: each appears with one message only."""
    messages: dict[str, set[str]] = {}
    for path in sorted(Path(codegen.__file__).parent.glob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                code = next((k.value for k in node.keywords if k.arg == "code"), None)
                texts = [a for a in node.args if isinstance(a, (ast.Constant, ast.JoinedStr))]
                if isinstance(code, ast.Constant) and texts:
                    messages.setdefault(code.value, set()).add(ast.unparse(texts[0]))
    repeated = {code: found for code, found in messages.items() if len(found) > 1}
    assert not repeated, repeated


def test_what_is_proposed_for_functions_of_numpy_computes_what_they_do() -> None:
    floats, more = np.array([0.5, 1.25, 2.0, 0.5]), np.array([1.5, 1.25, 0.5, 2.0])
    whole, few = np.array([4, 7, 0, 9]), np.array([2, 3, 1, 3])
    kinds = set("invert bitwise_and bitwise_or bitwise_xor left_shift right_shift take logical_and ldexp".split())
    found = {name: getattr(np, name, getattr(np.linalg, name, None)) for name in SPELLED if name != "pad"}
    for name, fn in found.items():
        fn = np.arctan if name == "atan" else fn
        a, b = (whole, few) if name in kinds else (floats, more)
        b = 3.0 if name == "full_like" else b
        proposed = pto.jit(_with_source(f"lambda x, a, b: {SPELLED[name]}"))(a, a, b)
        with np.errstate(invalid="ignore"):  # arccos of numbers above 1, NaN for both
            wanted = np.concatenate((a, b)) if name == "concatenate" else fn(a) if name in _UNARY else fn(a, b)
        if name == "empty_like":
            assert proposed.shape == wanted.shape and proposed.dtype == wanted.dtype
        else:
            np.testing.assert_allclose(proposed, wanted, rtol=1e-12, err_msg=name)


def _with_source(text: str) -> Callable[..., Any]:
    place = f"<{text}>"
    linecache.cache[place] = (len(text), None, [text], place)
    return eval(compile(text, place, "eval"), {"pl": pl, "math": math})


def test_functions_of_numpy_are_refused_with_what_to_write_instead() -> None:
    for fn, hint in ((np.take, "write `a[b]`"), (np.reciprocal, "use `pl.reciprocal`"), (np.pad, "write `pl.load(")):
        with pytest.raises(TypeMismatchError) as caught:
            ir(lambda x, f: f(x, 1), X, Static(fn))
        assert caught.value.code == "PTO-T016" and str(caught.value.hint).startswith(hint)


def pick(x):
    x[0] = CAPTURED[pl.argmax(x)]


def keep(x):
    CAPTURED[1:] = x[1:4]


def mask(x):
    t = pl.load(x, [0], [4], mask=True)


def rows(x):
    for row in list(x):
        pl.print("{}", row)


def shown(x):
    text = f"{x[0]}"
    pl.print(text)


CAPTURED = np.arange(40.0)


@pytest.mark.parametrize(
    ("fn", "code", "hint"),
    [
        (pick, "PTO-N067", "pass it to the kernel"),
        (keep, "PTO-N067", "make new ones with `pl.zeros(shape, dtype)`"),
        (mask, "PTO-T029", "no mask is needed; `pad=` is what is read outside; signature: pl.load("),
        (rows, "PTO-N003", "loop over an index: `for i in pl.range(x.shape[0])`"),
        (shown, "PTO-N002", "f-strings that `pl.print`, `assert` and `pl.assert_` are given"),
        (lambda x: pl.zeros_like(x), "PTO-N017", "write `pl.zeros(x.shape, x.dtype)`"),  # type: ignore[attr-defined]
        (lambda x: x.swapaxes(0, 1), "PTO-N011", "write `pl.transpose(x, axes)`"),
        (lambda x: x.sume(), "PTO-N011", "did you mean `sum`?"),
        (lambda x: x.range(), "PTO-N011", "it has dtype, to, shape"),
        (lambda x: pl.float32, "PTO-N017", "did you mean `f32`?"),  # type: ignore[attr-defined]
    ],
)
def test_habits_from_elsewhere_get_what_to_write_here(fn: Callable[..., Any], code: str, hint: str) -> None:
    with pytest.raises(CompilationError) as caught:
        ir(fn, X.copy())
    assert caught.value.code == code and hint in str(caught.value.hint)


@pytest.mark.parametrize("name", _ELSEWHERE)
def test_names_of_triton_and_numba_are_not_guessed_at(name: str) -> None:
    with pytest.raises(CompilationError, match="PTO-N017") as caught:
        ir(_with_source(f"lambda x: pl.{name}(x)"), X.copy())
    assert caught.value.hint == _ELSEWHERE[name]


def test_a_format_without_a_place_for_the_value_is_warned_of(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(UserWarning, match="'sum' has no place for a value: `{}` prints one"):
        pto.jit(lambda x: pl.print("sum", pl.sum(x)))(X.copy())
    assert capfd.readouterr().out == "sum\n"


def masked_read(x):
    y = pl.sum(x[pl.load(x) > 3.0])


def masked_tile(x):
    t = pl.load(x)
    y = t[t > 3.0]


@pytest.mark.parametrize("fn", [masked_read, masked_tile])
def test_instead_of_masks_as_indices_where_is_proposed(fn: Callable[..., Any]) -> None:
    for run in (ir, lambda fn, x: pto.jit(fn).interpret(x)):
        with pytest.raises(TypeMismatchError) as caught:
            run(fn, X.copy())
        assert caught.value.hint == "compute on all elements, and choose: `pl.where(mask, a, b)`"


@pytest.mark.parametrize("value", [object(), 3 + 4j, b"bytes", {1, 2}, len, type, Ellipsis, slice(1)])
def test_no_compile_time_object_reaches_an_internal_error(value):
    def plus(x, y, v):
        y[0] = x[0] + v

    def index(x, y, v):
        y[0] = x[v]

    def call(x, y, v):
        y[0] = v(x)

    def condition(x, y, v):
        if v > x[0]:
            y[0] = 1.0

    def loop(x, y, v):
        for i in range(v):
            y[i] = x[i]

    def item(x, y, v):
        y[0] = v[x[0]]

    def attribute(x, y, v):
        y[0] = v.no

    for fn in (plus, index, call, condition, loop, item, attribute):
        try:
            ir(fn, X, X.copy(), Static(value))
        except InternalError:
            raise
        except CompilationError as error:
            assert error.lineno and error.hint


def test_a_tile_of_zeros_says_where_it_would_have_been_a_tensor() -> None:
    def kernel(x, y):
        a, b = (pl.zeros([4], pl.f32) for _ in range(2))
        a[0] = x[0]

    def loaded(x, y):
        t = pl.load(x)
        t[0] = 1.0

    hints = []
    for fn in (kernel, loaded):
        with pytest.raises(TypeMismatchError, match="PTO-T038") as caught:
            pto.jit(fn).compile(X, X.copy())
        hints.append(str(caught.value.hint))
    assert "the kernel's own body" in hints[0] and hints[1] == "build the new tile with `pl.where`, or write to a tensor"


def test_a_list_of_a_run_time_number_of_items_is_a_tensor() -> None:
    for kernel, part in ((lambda n: ([0.0] * n)[0], "`pl.zeros([n])`"), (lambda n: (1, 2) + n, "one by one")):
        with pytest.raises(TypeMismatchError, match="PTO-T013") as caught:
            ir(kernel, 3)
        assert part in str(caught.value.hint)


def _kept(x, y, n):
    last = None
    for i in range(n):
        y[i] = 0.0 if last is None else last
        last = x[i]


def _found(x, y, n):
    place = None
    for i in range(n):
        if x[i] > 3:
            place = i
    y[0] = place


@pytest.mark.parametrize("fn", [_kept, _found])
def test_none_that_becomes_a_number_is_to_be_a_number_at_first(fn: Callable[..., Any]) -> None:
    with pytest.raises(CompilationError, match="None") as caught:
        ir(fn, X, X.copy(), 3)
    assert caught.value.code in ("PTO-N014", "PTO-T001") and "instead of None" in str(caught.value.hint)
