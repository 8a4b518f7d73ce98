# SPDX-License-Identifier: MIT
"""Seeded random kernels of scalar code in a parallel loop: branches, loops, exits, elements at any place.

Every program ends, stays inside its tensors, and writes only what belongs to its own iteration.  Conditions never look
at what came out of a function like exp, so that a difference in the last bit does not change the way that is taken.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

FLOATS = ("f32", "f64")
INTEGERS = ("i32", "i64", "u8", "i16")


@dataclass(frozen=True)
class ScalarProgram:
    """`source` defines `kernel(a, k, table, out, marks, n)`; the arrays are fresh on every read of `args`."""

    seed: int
    source: str
    floats: str
    arrays: tuple[np.ndarray, ...]
    extent: int

    @property
    def args(self) -> list[object]:
        return [*(a.copy() for a in self.arrays), self.extent]


@dataclass
class _Text:
    """Names by class: f(loat), s(oft: floats with rounding errors), k (integers of the tensor's type), n (i64)."""

    rng: random.Random
    lines: list[str] = field(default_factory=list)
    names: dict[str, list[str]] = field(default_factory=lambda: {"f": [], "s": [], "k": [], "n": []})
    count: int = 0
    budget: int = 14
    loop_names: list[str] = field(default_factory=list)

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def fresh(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def name(self, kind: str) -> str:
        return self.rng.choice(self.names[kind])

    # -- expressions ------------------------------------------------------------------------------------------------

    def value(self, kind: str, deep: int = 0) -> str:
        roll = self.rng.random()
        if deep > 2 or roll < 0.3:
            return self.name(kind)
        if roll < 0.4:
            return {"f": "0.5", "s": "1.25", "k": "3", "n": str(self.rng.randint(-5, 5))}[kind]
        x, y = self.value(kind, deep + 1), self.value(kind, deep + 1)
        if roll < 0.5:
            return f"({x} if {self.condition(deep + 1)} else {y})"
        if kind == "f":
            # read off what was loaded or set: a sum of products may be rounded in one step or two
            return self.rng.choice([f"({x} + {y})", f"({x} - {y})", f"abs({x})", f"pl.maximum({x}, {y})", f"(-{x})",
                                    f"pl.where({self.condition(deep + 1)}, {x}, {y})", f"({x} * {y})"])  # fmt: skip
        if kind == "s":
            f = self.value("f", deep + 1)
            return self.rng.choice([f"pl.tanh({f})", f"pl.exp(-abs({f}))", f"({x} * 0.5 + {f})", f"pl.sqrt(abs({f}))",
                                    f"pl.sin({f})", f"({x} + {y})"])  # fmt: skip
        return self.rng.choice([f"({x} + {y})", f"({x} - {y})", f"({x} * {y})", f"({x} // {y})", f"({x} % {y})",
                                f"({x} & {y})", f"({x} ^ {y})", f"pl.minimum({x}, {y})", f"({x} | {y})"])  # fmt: skip

    def condition(self, deep: int = 0) -> str:
        kind = self.rng.choice("fkkn")
        sign = self.rng.choice(["<", "<=", ">", "==", "!="])
        one = f"{self.value(kind, deep + 1)} {sign} {self.value(kind, deep + 1)}"
        roll = self.rng.random()
        if deep > 1 or roll < 0.6:
            return f"({one})"
        if roll < 0.7:
            return f"(n {sign} {self.rng.randint(0, 40)})"
        return f"({one} {self.rng.choice(['and', 'or'])} {self.condition(deep + 1)})"

    # -- statements -------------------------------------------------------------------------------------------------

    def block(self, depth: int, inside: str, deep: int) -> None:
        before = {kind: list(names) for kind, names in self.names.items()}
        for _ in range(self.rng.randint(1, 3)):
            self.statement(depth, inside, deep)
            if self.lines[-1].strip() in ("break", "continue"):
                break
        self.names = before

    def statement(self, depth: int, inside: str, deep: int) -> None:
        self.budget -= 1
        roll = self.rng.random()
        if self.budget < 0 or deep > 3 or roll < 0.4:
            kind = self.rng.choice("ffskkn")
            if self.rng.random() < 0.7:
                self.line(depth, f"{self.name(kind)} = {self.cast(kind, self.value(kind))}")
            else:
                value = self.cast(kind, self.value(kind))
                new = self.fresh(kind)
                self.line(depth, f"{new} = {value}")
                self.names[kind].append(new)
        elif roll < 0.5:
            kind = self.rng.choice("fk")
            source = "a[(" if kind == "f" else "k[("
            new = self.fresh(kind)
            self.line(depth, f"{new} = {source}{self.value('n')}) % n]")
            self.names[kind].append(new)
        elif roll < 0.54:
            self.line(depth, f"marks[j, {self.rng.randint(0, 2)}] = {self.cast('n', self.value('n'))}")
        elif roll < 0.72:
            self.line(depth, f"if {self.condition()}:")
            self.block(depth + 1, inside, deep + 1)
            if self.rng.random() < 0.5:
                self.line(depth, "else:")
                self.block(depth + 1, inside, deep + 1)
        elif roll < 0.78 and inside:
            self.line(depth, f"if {self.condition()}:")
            exits = ["continue"] if inside == "root" else ["continue", "break", "break"]
            self.line(depth + 1, self.rng.choice(exits))
        elif roll < 0.9:
            self.loop(depth, deep)
        else:
            self.count_up(depth, deep)

    def cast(self, kind: str, value: str) -> str:
        return {"f": f"F({value})", "s": f"F({value})", "k": f"K({value})", "n": f"pl.i64({value})"}[kind]

    def loop(self, depth: int, deep: int) -> None:
        """A while loop that a counter ends."""
        guard = self.fresh("w")
        self.line(depth, f"{guard} = pl.i64(0)")
        if self.rng.random() < 0.3:
            self.line(depth, "while True:")
            self.line(depth + 1, f"{guard} += 1")
            self.line(depth + 1, f"if {guard} > {self.rng.randint(1, 5)} or {self.condition()}:")
            self.line(depth + 2, "break")
            self.block(depth + 1, "loop", deep + 1)
            return
        self.line(depth, f"while {guard} < {self.rng.randint(1, 5)} and {self.condition()}:")
        self.line(depth + 1, f"{guard} += 1")
        self.block(depth + 1, "loop", deep + 1)
        self.after(depth, inside="", deep=deep)
        self.names["n"].append(guard)

    def count_up(self, depth: int, deep: int) -> None:
        index = self.fresh("i")
        low = self.rng.choice(["0", "0", "1", "j % 3"])
        high = self.rng.choice(["3", "n % 4", "j % 5", "pl.i64(K(k[j])) % 4"])
        step = self.rng.choice(["", "", ", 2"])
        self.line(depth, f"for {index} in range({low}, {high}{step}):")
        self.names["n"].append(index)
        self.block(depth + 1, "loop", deep + 1)
        self.names["n"].remove(index)
        self.after(depth, inside="", deep=deep)

    def after(self, depth: int, inside: str, deep: int) -> None:
        if self.rng.random() < 0.2:
            self.line(depth, "else:")
            self.block(depth + 1, inside, deep + 1)


def generate(seed: int) -> ScalarProgram:
    """Program number `seed`."""
    rng = random.Random(seed)
    floats, integers = rng.choice(FLOATS), rng.choice(INTEGERS)
    text = _Text(rng)
    text.line(0, "T = pl.Tensor")
    text.line(0, "@pto.jit")
    text.line(0, "def kernel(a: T, k: T, table: T, out: T, marks: T, n: pl.i64):")
    text.line(1, f"F, K = pl.{floats}, pl.{integers}")
    text.line(1, "with pl.incore():")
    kind = rng.choice(["parallel=True", "parallel=True", "chunk=7", "chunk=16", "chunk=64"])
    bounds = rng.choice(["0, n", "0, n", "1, n", "0, n, 3"])
    text.line(2, f"for j in pl.range({bounds}, {kind}):")
    text.line(3, f"f0, k0, n0 = a[j], k[j], {rng.choice(['j', 'pl.i64(0)', 'pl.i64(k[j])'])}")
    text.line(3, "f1, k1, s0 = table[1], K(table[2]), F(table[j % 4])")
    text.names = {"f": ["f0", "f1"], "s": ["s0"], "k": ["k0", "k1"], "n": ["n0", "j"]}
    text.names["n"] = ["n0", "n0", "m0"]
    text.line(3, "m0 = j * 2 - 3")
    for _ in range(rng.randint(3, 6)):
        text.statement(3, "root", 0)
    text.line(3, f"out[j, 0], out[j, 1] = {text.cast('f', text.name('f'))}, {text.cast('s', text.name('s'))}")
    text.line(3, f"marks[j, 0], marks[j, 1] = {text.cast('n', text.name('n'))}, pl.i64({text.name('k')})")
    extent = rng.choice([0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 40])
    data = np.random.default_rng(seed)
    arrays = (
        np.round(data.standard_normal(extent) * 2, 2).astype(floats.replace("f", "float")),
        data.integers(0 if integers == "u8" else -9, 10, extent).astype(
            {"i": "int", "u": "uint"}[integers[0]] + integers[1:]
        ),
        np.array([0.5, -1.5, 2.0, 3.0], floats.replace("f", "float")),
        np.zeros((extent, 2), floats.replace("f", "float")),
        np.zeros((extent, 3), np.int64),
    )
    return ScalarProgram(seed, "\n".join(text.lines) + "\n", floats, arrays, extent)
