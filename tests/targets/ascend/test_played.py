# SPDX-License-Identifier: MIT
"""What is found out once is what would be found out each time: recipes as lists of instructions, stretches of work."""

from __future__ import annotations

from typing import Any

import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.bench.kernels import attention, elementwise, reductions, rows
from pto_jit.targets.ascend.flow import Flow
from pto_jit.targets.ascend.form import Barrier, Instruction, SetFlag, WaitFlag
from pto_jit.targets.ascend.functions import FunctionWriter
from pto_jit.targets.ascend.legality import violations
from pto_jit.targets.ascend.machine import PIPES
from pto_jit.targets.ascend.ordering import races
from pto_jit.targets.ascend.steps import Stretch
from pto_jit.targets.ascend.tiles import TileWriter

from .harness import blocks, kernels_of, without_one, written


def _of_tiles(function: Any, shape: tuple[int, int]) -> Any:
    @pto.jit
    def applied(x: pl.Tensor, out: pl.Tensor):
        with pl.incore():
            for r in pl.range(0, x.shape[0], shape[0], parallel=True):
                t = pl.load(x, [r, 0], list(shape))
                same = function(t)
                pl.store(function(same * 2.0) + t, [r, 0], out)

    return applied


@pytest.mark.parametrize("shape", [(8, 64), (8, 1), (1, 64)], ids=["full", "column", "row"])
@pytest.mark.parametrize("name", ["tanh", "erf", "exp2", "expm1", "log1p", "sin"])
def test_a_recipe_that_is_played_is_the_recipe(
    name: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TileWriter, "times", lambda self, operation: 1)  # else it would be a function
    function, spec = getattr(pl, name), pto.spec((None, shape[1]), pl.f32)
    played = written(_of_tiles(function, shape), spec, spec).sources
    direct: list[str] = []

    def write(self: FunctionWriter, name: str, operands: list[Any], to: Any) -> Any:
        from pto_jit.targets.vecmath import RECIPES

        direct.append(name)
        return self._written(RECIPES[name].function, operands, to)

    monkeypatch.setattr(FunctionWriter, "write", write)
    assert written(_of_tiles(function, shape), spec, spec).sources == played
    assert set(direct) == {name}


TURNED = (pto.spec((None, None, 64), pl.f32),) * 4
ROWS = pto.spec((None, 256), pl.f32)


@pytest.mark.parametrize(
    ("kernel", "specs"),
    [(elementwise.gelu_erf, (ROWS,) * 2), (rows.softmax, (pto.spec((None, None), pl.f16),) * 2),
     (reductions.column_softmax, (pto.spec((None, None), pl.f32),) * 2), (attention.attention_causal, TURNED)],
    ids=["gelu_erf", "softmax_f16", "column_softmax", "attention_causal"],
)  # fmt: skip
def test_work_in_stretches_gets_the_flags_and_barriers_of_single_work(
    kernel: Any, specs: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_stretches = written(pto.jit(kernel.__wrapped__), *specs).sources
    longest = 0
    along = Flow._along

    def one_by_one(self: Flow, stretch: Any) -> None:
        nonlocal longest
        longest = max(longest, len(stretch.steps))
        place = stretch.first
        for event in stretch.steps:
            if event is None:
                self._wait_for_all(Barrier(PIPES[stretch.pipe]))
                continue
            if event.stretch is stretch:
                event.stretch = Stretch(stretch.pipe, place, place + 1, [event], event.conflicts)
            along(self, event.stretch)
            place += 1

    monkeypatch.setattr(Flow, "_along", one_by_one)
    assert written(pto.jit(kernel.__wrapped__), *specs).sources == in_stretches
    assert longest > 2


@pto.jit
def called(x: pl.Tensor, out: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t = pl.load(x, [r, 0], [8, 64])
            for _ in pl.range(2):
                t = pl.expm1(t) * pl.expm1(t + 1.0)
            pl.store(t, [r, 0], out)


def test_a_function_is_written_once_and_each_of_its_barriers_is_missed() -> None:
    (kernel,) = kernels_of(written(called, *(pto.spec((None, 64), pl.f32),) * 2))
    (function,) = kernel.functions
    assert races(kernel) == [] and violations(kernel) == []
    calls = [n for b in blocks(kernel.body) for n in b if isinstance(n, Instruction) and n.function is function]
    assert len(calls) == 2
    count = 0
    for what in without_one(kernel, (SetFlag, WaitFlag, Barrier)):
        count += 1
        assert races(kernel, first=True), f"nobody misses it: {what}"
    assert count > sum(isinstance(n, Barrier) for n in function.body) > 10


def test_a_function_has_the_memory_that_it_works_in() -> None:
    (kernel,) = kernels_of(written(called, *(pto.spec((None, 64), pl.f32),) * 2))
    scratch = kernel.functions[0].scratch
    scratch.size *= 2
    assert any("bytes of" in v for v in violations(kernel))
    scratch.size //= 4
    assert any("ends behind what it is given" in v for v in violations(kernel))
