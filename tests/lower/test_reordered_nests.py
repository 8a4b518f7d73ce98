# SPDX-License-Identifier: MIT
"""Random nests in the order of the source against the order that the passes give them.

Loops are made parallel or chunked at random where enumeration shows that their iterations do not touch each other.  The
transformed program is interpreted with every divided loop run backwards, so that an order it may not rely on shows.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

import pto_jit as pto
from pto_jit.errors import ScheduleError
from pto_jit.ir.nodes import For, Module
from pto_jit.ir.text import to_text
from pto_jit.ir.verify import verify
from pto_jit.ir.walk import statements
from pto_jit.lower.decisions import Decision
from pto_jit.lower.pipeline import PIPELINE
from pto_jit.semantic import interpreter
from pto_jit.semantic.rules import infer
from tests.lower.dependence.nests import Nest, Touch, random_nest, record

COUNT = int(os.environ.get("PTO_TEST_NESTS", "40"))
COMPILED = int(os.environ.get("PTO_TEST_COMPILED_NESTS", "8"))
DIVIDED = ("parallel", "chunk", "in_chunk")


class Backwards(interpreter._Interpreter):
    """Runs divided loops from their last iteration to the first."""

    def loop(self, stmt: For, frame: Any) -> Any:
        if stmt.kind not in DIVIDED or stmt.reductions:
            return super().loop(stmt, frame)
        start, stop, step = (int(self.value(o, frame)) for o in (stmt.start, stmt.stop, stmt.step))
        for index in reversed(range(start, stop, step)):
            frame[stmt.var.name] = np.int64(index)
            self.block(stmt.body, frame)
        return None


def racing(touched: Iterable[list[Touch]]) -> set[int]:
    """The loops (by identity) of which two iterations touch one element, one of them writing."""
    out: set[int] = set()
    for touches in touched:
        places = {touch.loops for touch in touches}
        for write in {touch.loops for touch in touches if touch.write}:
            for place in places:
                for (loop, i), (same, j) in zip(write, place, strict=False):
                    if loop != same:
                        break
                    if i != j:
                        out.add(loop)
                        break
    return out


def divided(seed: int) -> Nest:
    """The nest of a seed with some loops divided, as far as that is right."""
    nest = random_nest(seed, symbols=True)
    bad = racing(record(nest).values())
    rng = random.Random(seed)
    options = {}
    for stmt in statements(nest.module.func("f").body):
        if isinstance(stmt, For) and id(stmt) not in bad and rng.random() < 0.6:
            option = "kind=parallel"
            if nest.steps[stmt.var.name] > 0 and rng.random() < 0.6:
                option += f", chunk={rng.randint(1, 3)}, policy={rng.choice(['leading_full', 'aligned'])}"
            options[stmt.var.name] = option
    return random_nest(seed, options=options, symbols=True)


def transformed(nest: Nest, decisions: list[Decision]) -> Module:
    module = nest.module
    for _, transform in PIPELINE:
        module = transform(module, decisions)
        verify(module, infer)
    return module


def run(module: Module, nest: Nest, kind: type[interpreter._Interpreter] = interpreter._Interpreter) -> list[Any]:
    arguments = nest.arguments()
    kind(module, False).call(module.func("f"), arguments)
    return arguments[:2]


def test_the_order_that_the_passes_choose_gives_the_result_of_the_source() -> None:
    tally: Counter[str] = Counter()
    for seed in range(COUNT):
        nest = divided(seed)
        decisions: list[Decision] = []
        try:
            module = transformed(nest, decisions)
        except ScheduleError:  # right for other arguments: with these, a loop with run-time bounds runs once or never
            assert nest.numbers, nest.text
            tally["race"] += 1
            continue
        for d in decisions:
            tally[f"{d.kind} {'applied' if d.applied else 'refused'}"] += 1
        for actual, expected in zip(run(module, nest, Backwards), run(nest.module, nest), strict=True):
            np.testing.assert_array_equal(actual, expected, f"seed {seed}\n{nest.text}\n{to_text(module)}")
    print(dict(tally))
    assert tally["race"] < COUNT // 4
    for kind in ("interchange applied", "interchange refused", "placement applied", "chunk applied"):
        assert tally[kind] > COUNT // 20, tally


def test_the_compiled_order_gives_the_result_of_the_source() -> None:
    for seed in range(1000, 1000 + COMPILED):
        nest = divided(seed)
        arguments = nest.arguments()
        try:
            pto.parse_pto(nest.text).compile(target="cpu").f(*arguments)
        except ScheduleError:
            assert nest.numbers, nest.text
            continue
        for actual, expected in zip(arguments[:2], run(nest.module, nest), strict=True):
            np.testing.assert_array_equal(actual, expected, f"seed {seed}\n{nest.text}")
