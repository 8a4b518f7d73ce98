# SPDX-License-Identifier: MIT
"""What kernels return, and where its memory comes from."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import LaunchError, PtoError
from pto_jit.results import decode, encode

Parts = namedtuple("Parts", "low high")
X = np.arange(6, dtype=np.float32)


def same(actual: Any, expected: Any) -> None:
    """Equal values of equal types, arrays compared by elements."""
    assert type(actual) is type(expected), (actual, expected)
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        for key in expected:
            same(actual[key], expected[key])
    elif isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            same(a, e)
    elif isinstance(expected, np.ndarray):
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)
    else:
        assert actual == expected


CASES = {
    "nothing": (lambda x: None, None),
    "one tensor": (lambda x: x + 1, X + 1),
    "two tensors": (lambda x: (x + 1, x * 2), (X + 1, X * 2)),
    "a scalar": (lambda x: x[2], 2.0),
    "an int": (lambda x: x.shape[0], 6),
    "a bool": (lambda x: x[2] > 1, True),
    "a mixture": (lambda x: (x + 1, x.shape[0], x[0] < 0, None, "text"), (X + 1, 6, False, None, "text")),
    "nested tuples": (lambda x: ((x + 1, (x[1],)), 3), ((X + 1, (1.0,)), 3)),
    "a list": (lambda x: [x + 1, 2, x.shape[0]], [X + 1, 2, 6]),
    "a list of constants": (lambda x: [1, 2], [1, 2]),
    "a dict": (lambda x: {"a": x + 1, "n": x.shape[0], 3: None}, {"a": X + 1, "n": 6, 3: None}),
    "a named tuple": (lambda x: Parts(x - 1, x + 1), Parts(X - 1, X + 1)),
    "a dict in a tuple": (lambda x: (x.shape[0], {"a": [x + 1]}), (6, {"a": [X + 1]})),
    "constants": (lambda x: (1, 2.5, "a", None, True), (1, 2.5, "a", None, True)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_result_has_the_structure_that_python_gives_it(case: str) -> None:
    function, expected = CASES[case]
    kernel = pto.jit(function)
    for _ in range(3):  # compiled, then on the fast path
        same(kernel(X), expected)
    bound = kernel.compile(X).bind(X)
    same(bound(), expected)
    again = pto.jit(function)  # from the disk cache
    same(again(X), expected)
    assert again.specializations()[0].origin == "disk"


def test_a_returned_list_or_dict_is_a_new_one_at_every_call() -> None:
    kernel = pto.jit(lambda x: ([1, 2], {"a": x[0]}))
    first = kernel(X)
    first[0].append(3)
    first[1]["b"] = 1
    same(kernel(X), ([1, 2], {"a": 0.0}))


def test_the_structure_of_a_result_is_kept_as_json_when_another_process_can_make_it() -> None:
    nested = (1, [2.5, None], {"a": (True,)}, Parts(1, "x"))
    same(decode(encode(nested)), nested)
    Local = namedtuple("Local", "a")
    assert encode(Local(1)) is None
    assert encode(object()) is None and encode([{(1, 2): 3}]) is None


def test_returned_memory_is_used_again_when_the_result_is_gone() -> None:
    kernel = pto.jit(num_threads=3)(lambda x: x + 1)
    x = np.zeros((512, 512), np.float32)
    runtime = kernel.compile(x)._kernel.entry.runtime
    kernel(x)
    before = runtime.statistics()
    pointers = set()
    for _ in range(10):
        result = kernel(x)
        pointers.add(result.ctypes.data)
        del result
    after = runtime.statistics()
    assert len(pointers) == 1
    assert (after.buffers_live, after.bytes_cached) == (before.buffers_live, before.bytes_cached)
    kept = [kernel(x) for _ in range(3)]
    assert len({k.ctypes.data for k in kept}) == 3
    assert runtime.statistics().buffers_live == before.buffers_live + 3
    np.testing.assert_array_equal(kept[0], kept[2])


def test_a_returned_array_outlives_its_kernel() -> None:
    result = pto.jit(lambda x: x + 1)(X)
    view = result[2:]
    del result
    np.testing.assert_array_equal(view, X[2:] + 1)
    view[0] = 5
    assert view.flags.writeable and view[0] == 5


def test_empty_full_and_zeros_are_tensors_of_the_caller() -> None:
    @pto.jit
    def kernel(x):
        out = pl.zeros([x.shape[0]], pl.f32)
        ones = pl.full([2, 3], 1, pl.i32)
        with pl.incore():
            pl.store(pl.load(x) * 2, [0], out)
        return out, ones

    out, ones = kernel(X)
    np.testing.assert_array_equal(out, X * 2)
    np.testing.assert_array_equal(ones, np.ones((2, 3), np.int32))
    assert ones.dtype == np.int32


def test_a_tile_that_is_returned_twice_is_one_piece_of_memory_that_is_freed_once() -> None:
    @pto.jit
    def twice(x, n):
        t = pl.load(x)
        u = t + 1
        if n > 1:
            t = t * 2
            v = u
        else:
            v = u
        return u, (v, u), t

    live = twice.compile(X, 5)._kernel.entry.runtime.statistics().buffers_live
    for _ in range(5):
        u, (v, again), t = twice(X, 5)
        assert np.shares_memory(u, v) and np.shares_memory(u, again) and not np.shares_memory(u, t)
        del u, again
        np.testing.assert_array_equal(v, X + 1)
        np.testing.assert_array_equal(t, X * 2)
        del v, t
    assert twice.compile(X, 5)._kernel.entry.runtime.statistics().buffers_live == live


def test_tensors_may_have_as_many_axes_as_arrays_may() -> None:
    most = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
    x = np.arange(2, dtype=np.float32).reshape((2,) + (1,) * (most - 1))
    y = np.zeros_like(x)

    @pto.jit
    def copied(x, y):
        y[...] = pl.load(x) + 1

    copied(x, y)
    np.testing.assert_array_equal(y, x + 1)
    packed = x.reshape((2,) + (1,) * 31)
    assert pto.jit(lambda t: t * 2)(packed).shape == packed.shape


@pytest.mark.parametrize("debug", [False, True])
def test_a_new_tensor_of_a_negative_extent_is_an_error(debug: bool) -> None:
    def made(n: pl.i64, m: pl.i64) -> Any:
        return pl.empty([n, 3]), pl.zeros([2, m])

    run = pto.jit(made, cache=False, debug=debug)
    assert [t.shape for t in run(0, 2)] == [(0, 3), (2, 2)]
    for given, axis in (((-2, 1), 0), ((2, -1), 1), ((-1, -1), 0)):
        with pytest.raises(LaunchError, match=f"^PTO-H203: made: the extent {given[axis]} along axis {axis} is negative"):
            run(*given)
        with pytest.raises(PtoError, match="negative"):
            run.interpret(*given)


def test_extents_that_cannot_be_negative_are_not_checked() -> None:
    @pto.jit
    def made(x: pl.Tensor, n: pl.i64) -> Any:
        return pl.empty([x.shape[0], 3]), pl.empty([n])

    checked = [line for line in made.compile(X, 2).ir("source").splitlines() if "checked=true" in line]
    assert len(checked) == 1 and "talloc [%n]" in checked[0]


def test_literals_in_a_return_take_the_types_of_another_return() -> None:
    def found(x, low):
        for i in range(x.shape[0]):
            if x[i] > low:
                return i, x[i]
        return -1, 0.0

    def missing(x, low):
        if x.shape[0] < 3:
            return 0.5, {"at": -1}
        for i in range(x.shape[0]):
            if x[i] > low:
                return x[i], {"at": i}
        return 0, {"at": 7}

    for dtype in (np.float32, np.float64, np.float16):
        x = np.array([0.25, 1.5, -2.0, 3.0], dtype)
        for fn in (found, missing):
            kernel = pto.jit(fn)
            for given, low in ((x, 1.0), (x, 2.0), (x, 9.0), (x[:2], 1.0)):
                assert kernel(given, low) == kernel.interpret(given, low)

    def integers(x, n):
        if n > 0:
            return x[n]
        return -1

    for dtype in (np.int8, np.int32, np.int64):
        assert [pto.jit(integers)(np.array([3, 5], dtype), n) for n in (0, 1)] == [-1, 5]
    with pytest.raises(pto.TypeMismatchError, match="PTO-T045"):
        pto.jit(integers)(np.array([3, 5], np.uint8), 1)  # -1 is not a u8
