# SPDX-License-Identifier: MIT
"""What is found out once is what would be found out each time: recipes as lists of instructions, stretches of work."""

from __future__ import annotations

from typing import Any

import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.bench.kernels import attention, elementwise, reductions, rows
from pto_jit.targets.ascend.events import Events
from pto_jit.targets.ascend.functions import FunctionWriter

from .harness import written


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
    private: list[bool] = []
    found = Events._conflicts

    def alone(self: Events) -> None:
        found(self)
        for event in self.works.values():
            private.append(event.private)
            event.private = False

    monkeypatch.setattr(Events, "_conflicts", alone)
    assert written(pto.jit(kernel.__wrapped__), *specs).sources == in_stretches
    assert any(private)
