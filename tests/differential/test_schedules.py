# SPDX-License-Identifier: MIT
"""Chunked loops against Python's range, for every small start, stop, step and chunk."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import LaunchError, ScheduleError
from pto_jit.ir.nodes import For
from pto_jit.semantic import interpreter
from tests.differential.compare import lowered

CASES = list(itertools.product(range(-5, 6), range(-5, 8), (1, 2, 3, 7), (1, 2, 3, 5, 100)))
HUGE = [2**31, 2**61 + 1, 2**62, 2**63 - 1]
POLICIES = ["leading_full", "aligned"]
FAR = 16  # added to an index, which may be negative


class Tracer(interpreter._Interpreter):
    """Notes the ranges of in_chunk loops."""

    def __init__(self, module: Any) -> None:
        super().__init__(module, False)
        self.chunks: list[list[int]] = []

    def loop(self, stmt: For, frame: Any) -> Any:
        if stmt.kind == "in_chunk":
            self.chunks.append(list(range(*(int(self.value(o, frame)) for o in (stmt.start, stmt.stop, stmt.step)))))
        return super().loop(stmt, frame)


def expected(policy: str, start: int, stop: int, step: int, chunk: int) -> list[list[int]]:
    indices = list(range(start, stop, step))
    if policy == "leading_full":
        return [indices[k : k + chunk] for k in range(0, len(indices), chunk)]
    return [list(group) for _, group in itertools.groupby(indices, lambda i: i // chunk)]


def counting(policy: str) -> Any:
    def kernel(out: pl.Tensor, start: int, stop: int, step: int, size: int):
        with pl.incore():
            for i in pl.range(start, stop, step, chunk=size, chunk_policy=policy):
                out[i + FAR] = out[i + FAR] + i + 100

    return pto.jit(kernel)


def trace(module: Any, arguments: list[Any]) -> list[list[int]]:
    tracer = Tracer(module)
    entry = module.func(module.entry)
    tracer.call(entry, [interpreter._argument(p, a) for p, a in zip(entry.params, arguments, strict=True)])
    return tracer.chunks


@pytest.mark.parametrize("stage", ["chunked", "fused"])
@pytest.mark.parametrize("policy", POLICIES)
def test_chunks_are_those_of_the_policy(policy: str, stage: str) -> None:
    module = lowered(counting(policy), [np.zeros(40, np.int64), 0, 1, 1, 1])[stage]
    for case in CASES:
        chunks = trace(module, [np.zeros(40, np.int64), *case])
        assert [c for c in chunks if c] == expected(policy, *case), case
        if policy == "leading_full":
            assert all(chunks), f"an empty chunk: {case}"


@pytest.mark.parametrize("policy", POLICIES)
def test_compiled_chunks_cover_the_range_once(policy: str) -> None:
    kernel = counting(policy)
    for case in CASES:
        out, wanted = np.zeros(40, np.int64), np.zeros(40, np.int64)
        kernel(out, *case)
        for i in range(*case[:3]):
            wanted[i + FAR] += i + 100
        np.testing.assert_array_equal(out, wanted, str(case))


@pytest.mark.parametrize(
    "fixed", ["start stop step size", "start step size", "step size", "start", "stop size", "step"]
)
@pytest.mark.parametrize("policy", POLICIES)
def test_constants_in_the_place_of_numbers_give_the_same_chunks(policy: str, fixed: str) -> None:
    """Many loops in one kernel: the named parts of each are constants."""
    names = ("start", "stop", "step", "size")
    cases = CASES[:: 317 if fixed != "start stop step size" else 149]  # 10 and 20 of them

    def kernel(out: pl.Tensor, given: pl.Tensor):
        with pl.incore():
            for row, case in enumerate(cases):
                parts = [case[k] if name in fixed else given[row, k] for k, name in enumerate(names)]
                for i in pl.range(parts[0], parts[1], parts[2], chunk=parts[3], chunk_policy=policy):
                    out[row, i + FAR] = i + 100

    function = pto.jit(kernel)
    given, out = np.array(cases, np.int64), np.zeros((len(cases), 40), np.int64)
    wanted = out.copy()
    for row, case in enumerate(cases):
        for i in range(*case[:3]):
            wanted[row, i + FAR] = i + 100
    chunks = trace(lowered(function, [out, given])["fused"], [out, given])
    assert [c for c in chunks if c] == [c for case in cases for c in expected(policy, *case)]
    assert out.tolist() == wanted.tolist()
    out[:] = 0
    function(out, given)
    assert out.tolist() == wanted.tolist()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_chunk_or_a_step_may_be_longer_than_any_loop(policy: str) -> None:
    kernel = counting(policy)
    module = lowered(kernel, [np.zeros(40, np.int64), 0, 1, 1, 1])["fused"]
    for start, stop, step, size in itertools.product((-5, 0, 3), (-6, 0, 4, 9), (1, 3, *HUGE), (1, 4, *HUGE)):
        case = (start, stop, step, size)
        out, wanted = np.zeros(40, np.int64), np.zeros(40, np.int64)
        for i in range(*case[:3]):
            wanted[i + FAR] += i + 100
        assert [c for c in trace(module, [np.zeros(40, np.int64), *case]) if c] == expected(policy, *case), case
        kernel(out, *case)
        assert out.tolist() == wanted.tolist(), case


@pytest.mark.parametrize("policy", POLICIES)
def test_chunks_of_a_loop_far_from_zero_are_those_of_the_policy(policy: str) -> None:
    far = 2**60

    @pto.jit
    def kernel(out: pl.Tensor, base: int, start: int, stop: int, step: int, size: int):
        with pl.incore():
            for i in pl.range(start, stop, step, chunk=size, chunk_policy=policy):
                out[i - base] = out[i - base] + 1

    module = lowered(kernel, [np.zeros(40, np.int64), 0, 0, 1, 1, 1])["fused"]
    for base, low, step, size in itertools.product((-far, far - 20), range(0, 8, 3), (1, 3, 7), (1, 4, 9, 2**62)):
        case = (base + low, base + 20, step, size)
        arguments = [base, *case]
        assert [c for c in trace(module, [np.zeros(40, np.int64), *arguments]) if c] == expected(policy, *case), case
        out, wanted = np.zeros(40, np.int64), np.zeros(40, np.int64)
        for i in range(*case[:3]):
            wanted[i - base] += 1
        kernel(out, *arguments)
        assert out.tolist() == wanted.tolist(), case


@pytest.mark.parametrize("bounds", [(0, 2**60 + 1), (-(2**60) - 1, 0), (2**63 - 9, 2**63 - 1), (5, -(2**63))])
@pytest.mark.parametrize("policy", POLICIES)
def test_bounds_that_are_too_far_from_zero_are_refused(policy: str, bounds: tuple[int, int]) -> None:
    kernel = counting(policy)
    module = lowered(kernel, [np.zeros(40, np.int64), 0, 1, 1, 1])["source"]
    for run in (kernel, kernel.interpret, lambda *args: interpreter.run(module, args)):
        with pytest.raises(LaunchError, match=r"2\*\*60"):
            run(np.zeros(40, np.int64), *bounds, 2**58, 4)

    def fixed(out: pl.Tensor, places: pl.Tensor):
        with pl.incore():
            for i in pl.range(*bounds, 2**58, chunk=4, chunk_policy=policy):
                out[places[i & 7]] = i

    with pytest.raises(ScheduleError, match=r"2\*\*60"):
        pto.jit(fixed)(np.zeros(40, np.int64), np.arange(8))


def test_the_order_within_and_of_chunks_is_that_of_the_range() -> None:
    """One worker takes the chunks in order, and the iterations of each."""

    @pto.jit(num_threads=1)
    def kernel(out: pl.Tensor, zeros: pl.Tensor, start: int, stop: int, step: int, size: int):
        with pl.incore():
            for i in pl.range(start, stop, step, chunk=size):
                at = zeros[i + FAR]  # the same place every time, which only the data says
                seen = out[at]
                out[at] = seen + 1
                out[i + 2 * FAR] = seen

    for case in CASES[::11]:
        out = np.zeros(64, np.int64)
        kernel(out, np.zeros(40, np.int64), *case)
        assert [int(out[i + 2 * FAR]) for i in range(*case[:3])] == list(range(len(range(*case[:3])))), case


@pytest.mark.parametrize(("step", "size"), [(1, 0), (1, -3), (0, 2), (-1, 2)])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_bad_run_time_chunk_or_step_is_refused(policy: str, step: int, size: int) -> None:
    kernel = counting(policy)
    for run in (kernel, kernel.interpret):
        with pytest.raises(LaunchError):
            run(np.zeros(40, np.int64), 0, 5, step, size)
