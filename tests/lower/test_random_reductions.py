# SPDX-License-Identifier: MIT
"""Random nests of loops that reduce: split, they give what the program gives in its order."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pto_jit.ir.parse import parse
from pto_jit.ir.text import to_text
from pto_jit.ir.verify import verify
from pto_jit.ir.walk import statements
from pto_jit.lower.reductions import split_reductions
from pto_jit.semantic import interpreter
from pto_jit.semantic.rules import infer

KINDS = ["add", "add", "mul", "max", "min", "and", "or", "xor", "sub"]
PROGRAMS, BATCH = 120, 30


class Writer:
    """One random program over integers, where every order gives the same result."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0
        self.loops: list[str] = []
        self.scalars = {f"%s{k}": self.rng.choice(KINDS) for k in range(2)}
        self.places = {k: self.rng.choice(KINDS) for k in range(2)}  # elements of %y
        self.array = self.rng.choice(KINDS)  # %z, indexed by one loop's variable
        self.owner: str | None = None

    def fresh(self) -> str:
        self.count += 1
        return f"%t{self.count}"

    def line(self, text: str) -> None:
        self.lines.append("  " * (len(self.loops) + 1) + text)

    def value(self) -> str:
        """An element of %x, at an affine index modulo its extent."""
        total = str(self.rng.randrange(8))
        for var in self.loops:
            scaled, moved = self.fresh(), self.fresh()
            self.line(f"{scaled} = smul {var}, {self.rng.randrange(4)} : i64")
            self.line(f"{moved} = sadd {scaled}, {total} : i64")
            total = moved
        at, got = self.fresh(), self.fresh()
        self.line(f"{at} = smod {total}, 8 : i64")
        self.line(f"{got} = sgetelem %x[{at}] : i64")
        return got

    def combined(self, kind: str, old: str) -> str:
        new, value = self.fresh(), self.value()
        first, second = (old, value) if kind == "sub" or self.rng.random() < 0.5 else (value, old)
        self.line(f"{new} = s{kind} {first}, {second} : i64")
        return new

    def update(self) -> None:
        what = self.rng.random()
        if what < 0.4:
            name, kind = self.rng.choice(list(self.scalars.items()))
            self.line(f"{name} = scopy {self.combined(kind, name)} : i64")
            return
        if what < 0.7 or (self.owner is not None and self.owner not in self.loops):
            at, kind = self.rng.choice(list(self.places.items()))
            place = f"%y[{at}]"
        else:
            self.owner = self.owner or self.rng.choice(self.loops)
            place, kind = f"%z[{self.owner}]", self.array
        old = self.fresh()
        self.line(f"{old} = sgetelem {place} : i64")
        self.line(f"ssetelem {self.combined(kind, old)}, {place}")

    def condition(self) -> str:
        cond = self.fresh()
        self.line(
            f"{cond} = s{self.rng.choice(['gt', 'lt', 'ne'])} {self.value()}, {self.rng.randrange(-3, 4)} : bool_"
        )
        return cond

    def block(self, depth: int) -> None:
        for _ in range(self.rng.randrange(1, 3)):
            what = self.rng.random()
            if depth < 3 and (what < 0.55 or depth == 0):
                self.loop(depth)
            elif what < 0.75:
                self.line(f"IF {self.condition()}")
                self.update()
                self.line("ENDIF")
            elif what < 0.8:
                self.line(f"IF {self.condition()}")
                self.line("CONTINUE")
                self.line("ENDIF")
                self.update()
            else:
                self.update()

    def loop(self, depth: int) -> None:
        var = f"%v{self.count}"
        self.count += 1
        kind = self.rng.choice(["sequential", "parallel", "chunk", "chunk"])
        options = {"sequential": "", "parallel": "kind=parallel", "chunk": "kind=parallel, chunk="}[kind]
        if kind == "chunk":
            options += f"{self.rng.randrange(1, 5)}, combine={self.rng.choice(['sequential', 'tree', 'loop'])}"
            options += self.rng.choice(["", ", policy=aligned"])
        start, step = self.rng.choice(["0", "0", "1", "%n"]), self.rng.choice(["1", "1", "2", "3"])
        stop = self.rng.choice(["%m", "%m", "5", "0"])
        options = f" {{{options}}}" if options else ""
        self.line(f"FOR {var}:idx, {start}:idx, {stop}:idx, {step}:idx{options}")
        self.loops.append(var)
        self.block(depth + 1)
        self.loops.pop()
        self.line("ENDFOR")

    def text(self) -> str:
        self.block(0)
        tensor = "!pto.memref<gm,?,i64>"
        head = f"func @f(%x: {tensor}, %y: {tensor}, %z: {tensor}, %n: i64, %m: i64) {{"
        first = [f"  {name} = scopy {self.rng.randrange(1, 4)} : i64" for name in self.scalars]
        last = [f"  ssetelem {name}, %y[{k + 2}]" for k, name in enumerate(self.scalars)]
        return "\n".join([head, *first, *self.lines, *last, "}"]) + "\n"


@pytest.mark.parametrize("batch", range(PROGRAMS // BATCH))
def test_a_split_program_gives_what_the_program_gives(batch: int) -> None:
    x = np.array([3, -1, 4, 1, -5, 9, 2, -6])
    split = 0
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        text = Writer(seed).text()
        before = parse(text)
        verify(before, infer)
        after = split_reductions(before, [])
        verify(after, infer, properties=["reduced"])
        assert parse(to_text(after)) == after, seed
        split += any(getattr(s, "kind", "") == "combine" for s in statements(after.funcs[0].body))
        for n, m in ((0, 7), (2, 5), (3, 3)):
            results = []
            for module in (before, after):
                y, z = np.arange(1, 5), np.arange(1, 9)
                interpreter.run(module, [x, y, z, n, m])
                results.append((y.tolist(), z.tolist()))
            assert results[0] == results[1], f"seed {seed}, n={n}, m={m}\n{text}"
    assert split > BATCH // 2
