# SPDX-License-Identifier: MIT
"""Seeded random groups of tile operations: broadcasts, reductions over any axes and stores, of few tiles.

What the fusing of operations into one nest of loops has to keep apart comes together often here: tiles of one to three
axes, axes of extent 1, partial tiles, reductions whose operands lack axes of the others.  All numbers are small
integers, so every evaluation gives the same bits.
"""

from __future__ import annotations

import random

import numpy as np

from pto_jit.slotted import frozen
from tests.differential.compare import Kernel

_LIMIT = 2**22  # of numbers in f32, to be exact
_ELEMENTS = 5 * 7 * 33


@frozen
class Value:
    """A tile: per axis whether it has extent 1 (aligned to the right of the three axes), and a bound of its numbers."""

    name: str
    ones: tuple[bool, ...]
    bound: int


class Writer:
    """The lines of one kernel."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.values: list[Value] = []
        self.outputs: list[tuple[bool, ...]] = []
        self.count = 0

    def define(self, text: str, ones: tuple[bool, ...], bound: int) -> None:
        name = f"v{self.count}"
        self.count += 1
        self.lines.append(f"{name} = {text}")
        self.values.append(Value(name, ones, bound))

    def step(self) -> None:
        kind = self.rng.random()
        v = self.rng.choice(self.values)
        if kind < 0.5:
            self.combine(v, self.rng.choice(self.values))
        elif kind < 0.8:
            self.reduce(v)
        elif kind < 0.85 and len(v.ones) < 3:
            self.define(f"pl.expand_dims({v.name}, 0)", (True, *v.ones), v.bound)
        elif kind < 0.9:
            self.define(f"pl.where({v.name} > {self.rng.randint(-3, 3)}, {v.name}, {self.rng.randint(-3, 3)})", v.ones,
                        max(v.bound, 3))  # fmt: skip
        else:
            self.store(v)

    def combine(self, a: Value, b: Value) -> None:
        op = self.rng.choice(["+", "-", "*", "maximum", "minimum"])
        bound = a.bound * b.bound if op == "*" else a.bound + b.bound
        if bound > _LIMIT or (op == "*" and max(a.bound, b.bound) > 2**10):
            return
        rank = max(len(a.ones), len(b.ones))
        wide = [(True,) * (rank - len(v.ones)) + v.ones for v in (a, b)]
        text = f"{a.name} {op} {b.name}" if len(op) == 1 else f"pl.{op}({a.name}, {b.name})"
        self.define(text, tuple(p and q for p, q in zip(*wide, strict=True)), bound)

    def reduce(self, v: Value) -> None:
        rank = len(v.ones)
        axes = sorted(self.rng.sample(range(rank), self.rng.randint(1, rank)))
        op = self.rng.choice(["sum", "sum", "max", "min", "argmax", "any"])
        if v.bound * _ELEMENTS > _LIMIT and op == "sum":
            op = "max"
        bound = {"sum": v.bound * _ELEMENTS, "argmax": _ELEMENTS, "any": 1}.get(op, v.bound)
        if op == "argmax":
            axes = axes[:1]
        leading = axes == list(range(len(axes)))  # axes that are dropped leave the others where they are
        drop = leading and len(axes) < rank and self.rng.random() < 0.3
        ones = tuple(one or k in axes for k, one in enumerate(v.ones))
        shown = axes[0] if len(axes) == 1 else tuple(axes)
        cast = ".to(pl.i32)" if op == "any" else ""
        self.define(f"pl.{op}({v.name}, axis={shown}{'' if drop else ', keepdims=True'}){cast}",
                    ones[len(axes) :] if drop else ones, bound)  # fmt: skip

    def store(self, v: Value) -> None:
        self.lines.append(f"pl.store({v.name}, {[0] * len(v.ones)}, o{len(self.outputs)})")
        self.outputs.append(v.ones)


def generate(seed: int) -> Kernel:
    """The kernel of a seed; equal seeds give equal kernels."""
    rng = random.Random(seed)
    numbers = np.random.default_rng(seed)
    dtype = rng.choice(["float32", "float32", "float64", "int32", "int64"])
    extents = [rng.choice([1, 2, 3, 5]), rng.choice([1, 2, 4, 7]), rng.choice([1, 8, 16, 17, 33])]
    extents = [rng.choice([2, n]) if n == 1 else n for n in extents]  # fewer axes of extent 1
    more = [rng.choice([0, 0, 1, 3]) if rng.random() < 0.5 and n > 1 else 0 for n in extents]
    declared = [str(n + m) for n, m in zip(extents, more, strict=True)]
    if rng.random() < 0.25:
        declared = [n if n == "1" else f"n{k} + {more[k]}" for k, n in enumerate(declared)]
    w = Writer(rng)
    buffers: list[np.ndarray] = []
    for k in range(rng.randint(2, 3)):
        ones = tuple(rng.random() < 0.15 or extents[-rank] == 1 for rank in range(rng.choice([1, 2, 2, 3, 3]), 0, -1))
        rank = len(ones)
        shape = tuple(1 if one else n for one, n in zip(ones, extents[3 - rank :], strict=True))
        tile = ", ".join("1" if one else n for one, n in zip(ones, declared[3 - rank :], strict=True))
        buffers.append(numbers.integers(-5, 6, shape).astype(dtype))
        w.define(f"pl.load(a{k}, {[0] * rank}, [{tile}])", ones, 5)
    inputs = len(buffers)
    for _ in range(rng.randint(3, 7)):
        w.step()
    for v in w.values[-3:]:
        w.store(v)
    for ones in w.outputs:
        shape = tuple(1 if one else n for one, n in zip(ones, extents[3 - len(ones) :], strict=True))
        buffers.append(np.zeros(shape, "float64"))
    names = [f"a{k}" for k in range(inputs)] + [f"o{k}" for k in range(len(w.outputs))] + ["n0", "n1", "n2"]
    body = "\n".join(f"        {line}" for line in w.lines)
    source = f"@pto.jit\ndef kernel({', '.join(names)}):\n    with pl.incore():\n{body}\n"
    recipes = [f"b[{k}]" for k in range(len(buffers))] + [str(n) for n in extents]
    return Kernel(f"group {seed}", source, tuple(buffers), tuple(recipes))
