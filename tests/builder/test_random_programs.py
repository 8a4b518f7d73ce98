# SPDX-License-Identifier: MIT
# ruff: noqa: E731 - each step is one expression
"""Random builder programs: text and back, and NumPy, the interpreter and machine code agree."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
from pto_jit import ElementType, MemorySpace, PTOFunctionBuilder, PTOModule
from tests.builder.harness import floats

F, I32, G = ElementType.F32, ElementType.I32, MemorySpace.GLOBAL
ROWS, COLS = 4, 8
Values = dict[str, Any]

_BINARY: dict[str, Callable[..., Any]] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum}  # fmt: skip
_UNARY: dict[str, Callable[..., Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "relu": lambda x: np.maximum(x, 0),
    "floor": np.floor,
}
_ROW: dict[str, Callable[..., Any]] = {"rowmax": np.max, "rowmin": np.min}


class Program:
    """An in-core function of two memrefs and a scalar; `steps` does the same on NumPy values."""

    def __init__(self, seed: int, module: PTOModule, name: str) -> None:
        self.rng = random.Random(seed)
        self.b = PTOFunctionBuilder(name, module=module).in_core().memref("x", G, F).memref("y", G, F).scalar("n", I32)
        self.tiles = ["a"]
        self.b.tile("a", ROWS, COLS, F).load("a", "x")
        self.steps: list[Callable[[Values], None]] = []
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def block(self, size: int, depth: int) -> list[Callable[[Values], None]]:
        steps: list[Callable[[Values], None]] = []
        known = list(self.tiles)
        for _ in range(size):
            steps.append(self.step(depth))
        if depth:
            self.tiles = known
        return steps

    def step(self, depth: int) -> Callable[[Values], None]:
        rng, b = self.rng, self.b
        kind = rng.randrange(8 if depth < 2 else 6)
        source, other = rng.choice(self.tiles), rng.choice(self.tiles)
        # inside a loop or branch only what exists outside is assigned again, so that it is known after it
        target = rng.choice(self.tiles) if depth or rng.random() < 0.3 else self.name()
        if kind == 0:
            op = rng.choice(list(_BINARY))
            getattr(b, op)(target, source, other)
            fn: Callable[[Values], Any] = lambda v: _BINARY[op](v[source], v[other])
        elif kind == 1:
            op, number = rng.choice(list(_BINARY)), rng.choice([0.5, -2.0, 3.0])
            getattr(b, f"{op}s")(target, source, number)
            fn = lambda v: _BINARY[op](v[source], np.float32(number))
        elif kind == 2:
            op = rng.choice(list(_UNARY))
            getattr(b, op)(target, source)
            fn = lambda v: _UNARY[op](v[source])
        elif kind == 3:
            op, combine, column = rng.choice(list(_ROW)), rng.choice(["sub", "max", "add"]), self.name()
            getattr(b, op)(column, source)
            getattr(b, f"rowexpand{combine}")(target, other, column)
            fn = lambda v: _BINARY[combine](v[other], _ROW[op](v[source], axis=1, keepdims=True))
        elif kind == 4:
            mask, mode = self.name(), rng.choice(["lt", "ge"])
            b.cmp(mask, source, other, mode).sel(target, mask, other, source)
            fn = lambda v: np.where(
                v[source] < v[other] if mode == "lt" else v[source] >= v[other], v[other], v[source]
            )
        elif kind == 5:
            b.store("y", source, 0, 0)
            b.mov(target, source)

            def store(v: Values) -> None:
                v["y"][:ROWS] = v[source]
                v[target] = v[source]

            if target not in self.tiles:
                self.tiles.append(target)
            return store
        elif kind == 6:
            return self.loop(depth)
        else:
            return self.branch(depth)
        if target not in self.tiles:
            self.tiles.append(target)

        def assign(v: Values) -> None:
            v[target] = fn(v)

        return assign

    def loop(self, depth: int) -> Callable[[Values], None]:
        var, stop = f"i{self.name()}", self.rng.choice(["n", 2, 0])
        self.b.for_loop(var, 0, stop, 1)
        body = self.block(self.rng.randint(1, 3), depth + 1)
        self.b.end_for()

        def run(v: Values) -> None:
            for _ in range(v["n"] if stop == "n" else int(stop)):
                for step in body:
                    step(v)

        return run

    def branch(self, depth: int) -> Callable[[Values], None]:
        flag, limit = self.name(), self.rng.randrange(4)
        self.b.scalar_cmp(flag, "n", limit, "gt").if_then(flag)
        then = self.block(self.rng.randint(1, 2), depth + 1)
        orelse: list[Callable[[Values], None]] = []
        if self.rng.random() < 0.5:
            self.b.else_branch()
            orelse = self.block(self.rng.randint(1, 2), depth + 1)
        self.b.end_if()

        def run(v: Values) -> None:
            for step in then if v["n"] > limit else orelse:
                step(v)

        return run

    def finish(self) -> Callable[[np.ndarray, np.ndarray, int], None]:
        """Build the function; what it does, on NumPy arrays."""
        steps = self.block(8, 0)
        last = self.tiles[-1]
        self.b.store("y", last).build()

        def run(x: np.ndarray, y: np.ndarray, n: int) -> None:
            values: Values = {"a": x[:ROWS].copy(), "y": y, "n": n}
            for step in steps:
                step(values)
            y[:ROWS] = values[last]

        return run


@pytest.mark.parametrize("batch", range(2))
def test_random_programs_agree(batch: int) -> None:
    """Eight in-core functions, called on one tile each by one orchestration function."""
    module = PTOModule("random")
    host = PTOFunctionBuilder("all", module=module).not_in_core().memref("x", G, F).memref("y", G, F).scalar("n", I32)
    references = [Program(100 * batch + k, module, f"f{k}").finish() for k in range(8)]
    for k in range(len(references)):
        host.call(f"f{k}", {"x": ("x", k, 0), "y": ("y", k, 0), "n": "n"})
    host.build()
    assert pto.parse_pto(str(module)) == module
    function = module.compile()["all"]
    x = floats(ROWS * len(references), COLS, seed=batch)
    for n in (0, 1, 3):
        expected, interpreted, compiled = (np.zeros_like(x) for _ in range(3))
        with np.errstate(all="ignore"):
            for k, reference in enumerate(references):
                part = slice(k * ROWS, (k + 1) * ROWS)
                reference(x[part], expected[part], n)
            function.interpret(x, interpreted, n)
        function(x, compiled, n)
        np.testing.assert_array_equal(interpreted, expected)
        np.testing.assert_allclose(compiled, expected, rtol=1e-5)
