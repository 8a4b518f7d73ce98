# SPDX-License-Identifier: MIT
"""Random kernels that use Python freely: control flow over numbers and tiles, closures, partials, comprehensions.

All arithmetic is over small integers, also in float tiles, so that every way of running a program gives equal bits.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

import pto_jit as pto
import pto_jit.language as pl
from tests.codegen.writer import VARIABLES, Writer, defined

TILES = ("s", "t", "u")
ROWS, WIDTH = 6, 4
PRELUDE = """\
def scaled(k):
    def by(v, w=1):
        return (v * k + w) % 31
    return by

class Shift:
    def __init__(self, by):
        self.by = by

    def __call__(self, v):
        return v - self.by

    def twice(self, v):
        return self(self(v))

three, five = scaled(3), scaled(5)
table = {"three": three, "five": five, "neg": operator.neg}
"""


class KernelWriter(Writer):
    """Writes one kernel `f(out, x, n, m)` over a matrix `out` and a vector `x`."""

    def statement(self, indent: int, loop: bool, helper: bool) -> bool:
        if not helper and self.r.random() < 0.4:
            self.tile_statement(indent)
            return False
        return super().statement(indent, loop, helper)

    def number(self) -> str:
        return self.r.choice([*VARIABLES, "n", "m", str(self.r.randint(-3, 6))])

    def tile(self, depth: int = 2) -> str:
        r = self.r
        if depth == 0 or r.random() < 0.25:
            return r.choice(TILES)
        left, right = self.tile(depth - 1), self.tile(depth - 1)
        return r.choice([
            f"({left} {r.choice('+-*')} {right}) % 29",
            f"({left} {r.choice('+-*')} {self.number()} % 11) % 23",
            f"pl.{r.choice(['maximum', 'minimum'])}({left}, {right})",
            f"pl.where({left} {r.choice(['<', '>', '!='])} {self.number()}, {left}, {right})",
            f"{r.choice(['three', 'five'])}({left})",
            f"(lambda v: v + {self.number()} % 7)({left})",
            f"functools.partial(three, w={self.number()} % 5)({left})",
            f"(lambda g: g(g({left})))({r.choice(['abs', 'five', 'Shift(2)', 'Shift(1).twice'])})",
            f"table[{r.choice(['three', 'five', 'neg'])!r}]({left})",
            f"[{left} + k for k in range(3) if k != 1][{r.randint(0, 1)}]",
            f"sum([{left}, {right}]) % 19",
            f"functools.reduce(lambda a, b: (a + b) % 13, [{left}, {right}, {left}])",
            f"pl.load(x, [abs({self.number()}) % {WIDTH}], [{WIDTH}], pad=1)",
            f"pl.cumsum({left}).to({left if left in TILES else 't'}.dtype) % 17",
            f"pl.reduce({left}, 0, lambda a, b: (a + b) % 13, keepdims=True) + {right}",
        ])  # fmt: skip

    def tile_statement(self, indent: int) -> None:
        r = self.r
        kind = r.random()
        name = r.choice(TILES)
        if kind < 0.45:
            self.line(indent, f"{name} = {self.tile()}")
        elif kind < 0.55:
            self.line(indent, f"{name} {r.choice('+-')}= {self.number()} % 9")
        elif kind < 0.65:
            a, b = r.sample(TILES, 2)
            self.line(indent, f"{a}, {b} = {b}, {self.tile(1)}")
        elif kind < 0.8:
            whole = r.choice(["int(pl.max({}))", "int(pl.sum({}))", "int({}[2])", "int(pl.argmax({}))"])
            self.line(indent, f"{r.choice(VARIABLES)} = {whole.format(name)} % 13")
        elif kind < 0.9:
            self.line(indent, f"out[abs({self.number()}) % {ROWS}, :] = {name}")
        else:
            self.line(indent, f"pl.store(pl.reshape({self.tile(1)}, [1, {WIDTH}]), [{r.randint(0, ROWS - 1)}, 0], out)")

    def text(self) -> str:
        r = self.r
        body = super().text().splitlines()
        head = next(k for k, line in enumerate(body) if line.startswith("    def g("))
        start = ["    s, t = pl.load(x, [0], [4]), pl.load(x, [1], [4], pad=2)", "    u = s - t"]
        loop = r.choice(["pl.range(4, parallel=True)", "pl.range(4, chunk=3)", "range(4)"])
        end = [
            f"    for p in {loop}:",
            f"        out[p, :] = ({r.choice(TILES)} + p * {r.choice(VARIABLES)} % 7 + {r.choice(TILES)}) % 37",
            "    out[4, 0], out[4, 1], out[4, 2], out[4, 3] = a % 97, b % 97, c % 97, d % 97",
            "    pl.store(pl.reshape(s + t * 2 + u * 3, [1, 4]), [5, 0], out)",
        ]
        kept = [line for line in body[1:] if not line.startswith("    y[")]
        lines = ["def f(out, x, n, m):", *kept[: head - 1], *start, *kept[head - 1 :], *end]
        return "\n".join(lines) + "\n"


def random_kernel(seed: int) -> tuple[Any, str, Any]:
    """The kernel of a seed, its text, and the dtype of its arrays."""
    writer = KernelWriter(seed, ())
    text = PRELUDE + "\n" + writer.text()
    names = {"pl": pl, "functools": functools, "operator": operator}
    scope = defined(text, f"<random kernel {seed}>", names)
    dtype = [np.float32, np.int32, np.int64, np.float64][seed % 4]
    return pto.jit(cache=False)(scope["f"]), text, dtype
