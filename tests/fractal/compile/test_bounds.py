# SPDX-License-Identifier: MIT
"""Indices outside of their lists are errors of the program: nothing is read there, and no length comes from there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from tests.fractal.data import check, plain

LISTS = ft.from_list([[1.0, 2.0], [], [3.0]])
NUMBERS = ft.from_list([0.0, 1.0, 2.0, 3.0])
TABLE = np.arange(8, dtype=np.float32).reshape(4, 2)


def ints(*items: int) -> ft.FractalTensor:
    return ft.from_flat(np.array(items, np.int64))


def rows_of_rows(x: Any, i: Any) -> Any:
    return ft.map(lambda r: ft.map(lambda e: e * 2, r), ft.gather(x, i))


def one_row(x: Any, i: Any) -> Any:
    return ft.map(lambda e: e * 2, x[i])


def in_a_loop(x: Any, n: Any) -> Any:
    total = 0
    for i in range(n):
        total += len(x[i])
    return total


def of_each_row(x: Any, i: Any) -> Any:
    return ft.map(lambda r: ft.map(lambda k: r[k] + 1, i), x)


CASES: list[Any] = [  # the program, arguments that fit, others, the error
    (rows_of_rows, (LISTS, ints(2, -3, -1)), (LISTS, ints(0, -4)), "index -4 of a list of length 3, at element [1]"),
    (rows_of_rows, (LISTS, ints(2, 0)), (LISTS, ints(1, 2, 3)), "index 3 of a list of length 3, at element [2]"),
    (rows_of_rows, (LISTS, ints()), (ft.slice(LISTS, 0, 0), ints(0)), "index 0 of a list of length 0"),
    (one_row, (LISTS, -3), (LISTS, 3), "index 3 of a list of length 3"),
    (one_row, (LISTS, 2), (LISTS, 2**63 - 1), "index 9223372036854775807 of a list of length 3"),
    (one_row, (LISTS, 0), (LISTS, -(2**63)), "index -9223372036854775808 of a list of length 3"),
    (in_a_loop, (LISTS, 3), (LISTS, 4), "index 3 of a list of length 3"),
    (lambda x, i: ft.map(lambda e: e * 2, ft.gather(x, i)), (NUMBERS, ints(3, -4)), (NUMBERS, ints(0, 1, 4)),
     "index 4 of a list of length 4, at element [2]"),
    (lambda x, i: ft.map(lambda k: x[k] * 2, i), (NUMBERS, ints(3, -4)), (NUMBERS, ints(0, -5)),
     "index -5 of a list of length 4, at element [1]"),
    (lambda t, i: ft.map(lambda k: ft.slices(t)[k], i), (TABLE, ints(3, -1)), (TABLE, ints(0, 4)),
     "index 4 of a list of length 4, at element [1]"),
    (lambda x, n: ft.map(lambda p: p[1] + x[p[0] + n], ft.enumerate(ft.slice(x, 0, 3))), (NUMBERS, 1), (NUMBERS, 2),
     "index 4 of a list of length 4, at element [2]"),
    (lambda x, n: ft.map(lambda e: x[pl.i64(e) + n], x), (NUMBERS, 0), (NUMBERS, 2),
     "index 4 of a list of length 4, at element [2]"),
    (of_each_row, (ft.from_list([[1.0], [2.0, 3.0]]), ints(0, -1)), (ft.from_list([[1.0, 2.0], [3.0]]), ints(0, 1)),
     "index 1 of a list of length 1, at element [1][1]"),
    (lambda x, n: ft.split(x, 2)[n][1], (NUMBERS, -2), (NUMBERS, 2), "index 2 of a list of length 2"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=map(str, range(len(CASES))))
@pytest.mark.parametrize("threads", [1, 2])
def test_an_index_outside_of_its_list_is_an_error(case: Any, threads: int) -> None:
    program, fitting, other, said = case
    kernel = pto.jit(num_threads=threads)(program)
    for _ in range(2):
        got, want = kernel(*fitting), program(*fitting)
        for a, b in zip(*(v.leaves if isinstance(v, ft.FractalTensor) else [v] for v in (got, want)), strict=True):
            np.testing.assert_array_equal(a, b)
        with pytest.raises(pto.BoundsError, match=r"PTO-F190") as caught:
            kernel(*other)
        assert said in str(caught.value)
    with pytest.raises(pto.PtoError):
        program(*other)


def test_the_element_before_the_first_is_none_of_another_list() -> None:
    kernel = pto.jit(lambda x: ft.map(lambda r: ft.map(lambda p: p[1] - r[p[0] - 1], ft.enumerate(r)), x))
    with pytest.raises(pto.BoundsError, match=r"PTO-F190: .*index -1 of a list of length 2, at element \[0\]\[0\]"):
        kernel(LISTS)
    chosen = pto.jit(
        lambda x: ft.map(lambda r: ft.map(lambda p: p[1] - r[p[0] - 1] if p[0] > 0 else p[1], ft.enumerate(r)), x)
    )
    assert [[float(v) for v in r] for r in chosen(LISTS).tolist()] == [[1.0, 1.0], [], [3.0]]


@pytest.mark.parametrize("schedule", ["sequential", "wavefront", "tasks"])
def test_indices_of_a_nest_are_checked_before_it(schedule: str) -> None:
    def program(x: Any, i: Any, b: Any) -> Any:
        def step(s: Any, p: Any) -> Any:
            return s * 0.5 + p[0] + b[p[1]]

        zero = ft.zeros(1, 2)
        return ft.map(lambda r: ft.scan(step, ft.zip(r, i), initializer=zero), x, schedule=schedule)

    x = ft.from_list([[np.ones((1, 2), np.float32) * k for k in (1, 2, 3)]] * 2)
    kernel, b = pto.jit(program), ft.slices(TABLE)
    want = program(x, ints(0, 3, -1), b)
    np.testing.assert_allclose(kernel(x, ints(0, 3, -1), b).leaves, want.leaves)
    with pytest.raises(pto.BoundsError, match=r"PTO-F190: .*index 4 of a list of length 4"):
        kernel(x, ints(0, 4, -1), b)


ROWS = ft.from_list([[1, 2], [], [3, 1]])
ONES = ints(1, 2, 3)
PAIRS = ft.from_list([[1, 2], [2, 3]])
GATHERED: list[Any] = [
    (lambda x, n: ft.gather(x, ft.map(lambda v: v - 2, n)), NUMBERS, ONES),
    (lambda x, n: ft.map(lambda r: ft.map(lambda e: e * 2, r), ft.gather(x, ft.map(lambda v: v - 1, n))), LISTS, ONES),
    (lambda x, n: ft.map(lambda i: ft.gather(x, ft.map(lambda v: v * 2 - 3, i)), n), NUMBERS, ROWS),
    (lambda x, n: ft.gather(x, ft.scan(lambda s, v: (s + v) % 4, n, init=0)), NUMBERS, ONES),
    (lambda x, n: ft.gather(x, ft.join(n, ft.reverse(n))), NUMBERS, ONES),
    (lambda x, n: ft.gather(x, [n[0], n[2], -1, 0]), NUMBERS, ONES),
    (lambda x, n: ft.map(lambda q: ft.gather(x, (q[0], q[1])), n), NUMBERS, PAIRS),
    (lambda x, n: ft.gather(x, (0, -1)), NUMBERS, ONES),
]


@pytest.mark.parametrize("case", GATHERED, ids=map(str, range(len(GATHERED))))
def test_indices_of_a_gather_may_be_computed(case: Any) -> None:
    program, x, n = case
    check(plain(pto.jit(program)(x, n)), plain(program(x, n)))


@pytest.mark.parametrize("case", [(lambda x, n: ft.gather(x, ft.map(lambda v: v + 1, n)), NUMBERS, ONES, 2),
                                  (lambda x, n: ft.map(lambda q: ft.gather(x, [q[0], q[1] + 1]), n), NUMBERS, PAIRS, 1)],
                         ids=["list", "numbers"])  # fmt: skip
def test_computed_indices_are_checked(case: Any) -> None:
    program, x, n, element = case
    with pytest.raises(pto.BoundsError, match=rf"index 4 of a list of length 4, at element \[{element}\]"):
        pto.jit(program)(x, n)


FAR: list[Any] = [  # what a check fetches, an earlier one decides
    lambda x, i: ft.map(lambda k: x[k][0] * 2, i),
    lambda x, i: ft.map(lambda k: ft.map(lambda n: x[k][n - n] * 2, i), i),
    lambda x, i: ft.map(lambda k: x[i[k]][0] * 2, i),
    lambda x, i: ft.map(lambda k: len(x[k][1:]), i),
    lambda x, i: ft.map(lambda r: ft.fold(lambda s, e: s + e, r, init=0.0), ft.gather(x, ft.gather(i, i))),
]


@pytest.mark.parametrize("program", FAR, ids=map(str, range(len(FAR))))
@pytest.mark.parametrize("far", [2**40, -(2**40), 2**62])
def test_an_index_far_outside_reads_nothing(program: Any, far: int) -> None:
    with pytest.raises(pto.BoundsError, match=rf"index {far} of a list of length 3"):
        pto.jit(program)(LISTS, ints(0, 2, far))


@pytest.mark.parametrize("target", ["cuda", "ascend"])
def test_hosts_of_devices_read_no_indices(target: str) -> None:
    """They would wait for each of them; with `debug=True` they do."""
    x, i = ft.from_flat(np.zeros((10, 1, 8), np.float32)), ft.from_flat(np.array([1, 3]))

    def program(x, i):
        return ft.map(lambda r: r * 2, ft.gather(x, i))

    for debug, found in ((False, False), (True, True)):
        sources = pto.jit(program).compile(x, i, target=target, debug=debug).sources
        (host,) = [text for name, text in sources.items() if name.endswith("_orchestration.c")]
        assert ("PTO-F190" in host) == found
