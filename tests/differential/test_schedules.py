# SPDX-License-Identifier: MIT
"""Chunked loops against Python's range, for every small start, stop, step and chunk."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import LaunchError
from pto_jit.ir.nodes import For
from pto_jit.semantic import interpreter
from tests.differential.compare import Kernel, build, lowered

CASES = list(itertools.product(range(-5, 6), range(-5, 8), (1, 2, 3), (1, 2, 3, 5)))
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


@pytest.mark.parametrize("stage", ["chunked", "outlined"])
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


@pytest.mark.parametrize("policy", POLICIES)
def test_constant_bounds_give_the_same_chunks(policy: str) -> None:
    for case in CASES[::7]:
        start, stop, step, size = case
        source = (
            "@pto.jit\ndef kernel(out):\n    with pl.incore():\n"
            f"        for i in pl.range({start}, {stop}, {step}, chunk={size}, chunk_policy={policy!r}):\n"
            f"            out[i + {FAR}] = i\n"
        )
        kernel = Kernel(f"chunks {policy} {case}", source, (np.zeros(40, np.int64),), ("b[0]",))
        module = lowered(build(kernel), kernel.arguments()[1])["fused"]
        chunks = trace(module, [np.zeros(40, np.int64)])
        assert [c for c in chunks if c] == expected(policy, *case), case


@pytest.mark.parametrize(("step", "size"), [(1, 0), (1, -3), (0, 2), (-1, 2)])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_bad_run_time_chunk_or_step_is_refused(policy: str, step: int, size: int) -> None:
    kernel = counting(policy)
    for run in (kernel, kernel.interpret):
        with pytest.raises(LaunchError):
            run(np.zeros(40, np.int64), 0, 5, step, size)
