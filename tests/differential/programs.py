# SPDX-License-Identifier: MIT
"""Seeded random kernels: Python source text of the language, with arguments to run it on.

Every program is legal by construction: the generator tracks dtype and shape class of each value.  Comparisons and
rounding look at loaded values only, so that a last-bit difference between two evaluations never flips a branch.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

FLOAT_UNARY = ["exp", "tanh", "sigmoid", "sqrt", "abs", "square", "relu", "sin", "cos", "erf", "log1p", "neg", "pow"]
INT_UNARY = ["abs", "square", "neg", "sign", "pow"]
FLOAT_BINARY = ["+", "-", "*", "maximum", "minimum", "/"]
INT_BINARY = ["+", "-", "*", "//", "%", "&", "|", "^", "maximum", "minimum"]
SHAPES = ("full", "row", "col", "one")  # [BM, BN], [1, BN], [BM, 1], [1, 1]


@dataclass
class Program:
    """`source` defines `kernel(x, y, out, n)`; `args` are fresh copies on every read."""

    seed: int
    source: str
    arrays: list[np.ndarray]
    scalar: int
    dtype: str

    @property
    def args(self) -> list[object]:
        return [*(a.copy() for a in self.arrays), self.scalar]


@dataclass
class _Value:
    name: str
    shape: str
    loaded: bool


@dataclass
class _Writer:
    rng: random.Random
    dtype: str
    lines: list[str] = field(default_factory=list)
    values: list[_Value] = field(default_factory=list)
    count: int = 0
    block: int = 1
    width: int = 1

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith("f")

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def pick(self, shape: str | None = None, loaded: bool = False) -> _Value:
        fitting = [v for v in self.values if (shape is None or v.shape == shape) and (v.loaded or not loaded)]
        return self.rng.choice(fitting or self.values[:1])

    def define(self, depth: int, expression: str, shape: str, loaded: bool = False) -> _Value:
        value = _Value(self.name(), shape, loaded)
        self.line(depth, f"{value.name} = {expression}")
        self.values.append(value)
        return value

    def constant(self) -> str:
        if self.is_float:
            return self.rng.choice(["0.5", "-1.25", "2", "3.0", "0.1"])
        return str(self.rng.randint(0 if self.dtype == "u8" else -4, 7))

    # -- one statement ------------------------------------------------------------------------------------------

    def step(self, depth: int) -> None:
        choice = self.rng.random()
        if choice < 0.28:
            self.unary(depth)
        elif choice < 0.6:
            self.binary(depth)
        elif choice < 0.72:
            self.reduce(depth)
        elif choice < 0.82:
            self.where(depth)
        elif choice < 0.88:
            self.cast(depth)
        elif choice < 0.94:
            self.branch(depth)
        elif choice < 0.96 and self.is_float:
            self.normal(depth)
        else:
            self.accumulate(depth)

    def unary(self, depth: int) -> None:
        value = self.pick()
        op = self.rng.choice(FLOAT_UNARY if self.is_float else INT_UNARY)
        text = value.name
        if op in ("exp",):
            text = f"pl.minimum({text}, 3.0)"
        elif op in ("sqrt", "log1p"):
            text = f"pl.abs({text})"
        elif op in ("sin", "cos", "square"):
            text = f"pl.clip({text}, {0 if self.dtype == 'u8' else -50}, 50)"
        elif op == "pow":
            self.define(depth, self.power(text), value.shape)
            return
        self.define(depth, f"-{text}" if op == "neg" else f"pl.{op}({text})", value.shape)

    def power(self, text: str) -> str:
        if self.is_float:
            return f"(pl.minimum(pl.abs({text}), 8.0) + 0.5) ** {self.rng.choice(['2', '3', '0.5', '-1.5'])}"
        return f"pl.clip({text}, {0 if self.dtype == 'u8' else -5}, 5) ** {self.rng.choice([0, 2, 3])}"

    def normal(self, depth: int) -> None:
        """Random numbers as a tile of one axis or two."""
        shape, rows, columns = self.rng.choice([("full", self.block, self.width), ("row", 1, self.width)])
        text = f"pl.randn({self.rng.choice(['n', '7'])}, {self.rng.choice(['c', '3'])}, [{rows}, {columns}])"
        value = self.pick(shape)  # of its valid extents
        if value.shape == shape:
            self.define(depth, f"{value.name} + {text}.to(pl.{self.dtype})", shape)

    def binary(self, depth: int) -> None:
        a = self.pick()
        b = self.pick()
        op = self.rng.choice(FLOAT_BINARY if self.is_float else INT_BINARY)
        shape = joined(a.shape, b.shape)
        right = b.name
        if self.rng.random() < 0.25:
            right, shape = self.constant(), a.shape
            if op in ("//", "%"):
                right = str(self.rng.choice([7 if self.dtype == "u8" else -3, 2, 5]))
        if op == "/":
            right = f"(pl.abs({right}) + 1.0)"
        text = f"pl.{op}({a.name}, {right})" if op in ("maximum", "minimum") else f"{a.name} {op} {right}"
        if self.is_float and op == "*":
            text = f"pl.clip({text}, -1e3, 1e3)"
        self.define(depth, text, shape)

    def reduce(self, depth: int) -> None:
        value = self.pick("full")
        if value.shape != "full":
            return
        axis = self.rng.choice([0, 1, 0, 1, (0, 1)])
        op = self.rng.choice(["sum", "max", "min"] + (["mean"] if self.is_float else []))
        text = f"pl.{op}({value.name}, axis={axis}, keepdims=True)"
        if op == "sum" and not self.is_float:
            text = f"{text}.to(pl.{self.dtype})"
        self.define(depth, text, {0: "row", 1: "col"}.get(axis, "one"))

    def where(self, depth: int) -> None:
        test = self.pick(loaded=True)
        a = self.pick(test.shape)
        if a.shape != test.shape:
            return
        kind = self.rng.choice(["<", ">", "<=", "!=", *(["isinf", "isnan", "isfinite"] if self.is_float else [])])
        condition = f"{test.name} {kind} {self.constant()}"
        if kind.startswith("is"):  # numbers below 1 give infinities
            condition = f"pl.{kind}({test.name} / pl.floor({test.name}))"
        self.define(depth, f"pl.where({condition}, {a.name}, {self.constant()})", a.shape)

    def cast(self, depth: int) -> None:
        value = self.pick(loaded=True)
        other = self.rng.choice(["i32", "f64", "f32", "i16"])
        self.define(depth, f"{value.name}.to(pl.{other}).to(pl.{self.dtype})", value.shape)

    def branch(self, depth: int) -> None:
        value = self.pick()
        result = self.name()
        self.line(depth, f"if n > {self.rng.randint(0, 6)}:")
        self.line(depth + 1, f"{result} = {value.name} + {self.constant()}")
        self.line(depth, "else:")
        self.line(depth + 1, f"{result} = {value.name} * {self.constant()}")
        self.values.append(_Value(result, value.shape, False))

    def accumulate(self, depth: int) -> None:
        value = self.pick()
        result = self.name()
        self.line(depth, f"{result} = {value.name} * {1 if not self.is_float else 0.5}")
        self.line(depth, f"for k{result} in range({self.rng.choice(['n', '3', '0', 'n - 2'])}):")
        self.line(depth + 1, f"{result} = {result} + {value.name}")
        if self.rng.random() < 0.4:
            self.line(depth + 1, f"if k{result} == {self.rng.randint(0, 3)}:")
            self.line(depth + 2, self.rng.choice(["break", "continue"]))
            self.line(depth + 1, f"{result} = {result} - {self.constant()}")
        self.values.append(_Value(result, value.shape, False))


def joined(one: str, other: str) -> str:
    """The shape of an elementwise operation on two."""
    if one == other or other == "one":
        return one
    return other if one == "one" else "full"


def generate(seed: int) -> Program:
    """The program of a seed; equal seeds give equal programs."""
    rng = random.Random(seed)
    dtype = rng.choice(["f32", "f32", "f64", "i32", "i64", "i16", "u8"])
    writer = _Writer(rng, dtype)
    rows, cols = rng.randint(0, 40), rng.randint(1, 70)
    block = rng.choice([1, 4, 8, 16])
    width = rng.choice([cols, 16, 32])
    writer.block, writer.width = block, width
    kind = rng.choice(["", "parallel=True", f"chunk={rng.choice([1, 3, 8])}"])
    if kind.startswith("chunk") and rng.random() < 0.4:
        kind += ', chunk_policy="aligned"'
    writer.line(0, "@pto.jit")
    writer.line(0, "def kernel(x, y, out, n):")
    writer.line(1, "rows, cols = x.shape")
    writer.line(1, "with pl.incore():")
    writer.line(2, f"for r in pl.range(0, rows, {block}{', ' + kind if kind else ''}):")
    writer.line(3, f"for c in pl.range(0, cols, {width}):")
    depth = 4
    writer.define(depth, f"pl.load(x, [r, c], [{block}, {width}])", "full", loaded=True)
    writer.define(depth, f"pl.load(y, [r, c], [{block}, {width}])", "full", loaded=True)
    writer.define(depth, f"pl.load(y, [0, c], [1, {width}])", "row", loaded=True)
    for _ in range(rng.randint(2, 9)):
        writer.step(depth)
    total = " + ".join(v.name for v in [writer.values[0], *writer.values[-4:]])  # the last values all count
    writer.line(depth, f"pl.store(({total}).to(pl.{dtype}), [r, c], out)")
    source = "\n".join(writer.lines) + "\n"
    numbers = np.random.default_rng(seed)
    if writer.is_float:
        arrays = [numbers.standard_normal((rows, cols)).astype({"f32": "f4", "f64": "f8"}[dtype]) for _ in range(2)]
    else:
        low, high = (0, 100) if dtype == "u8" else (-50, 50)
        kinds = {"i32": "i4", "i64": "i8", "i16": "i2", "u8": "u1"}
        arrays = [numbers.integers(low, high, (rows, cols)).astype(kinds[dtype]) for _ in range(2)]
    if rng.random() < 0.25:  # a strided argument
        arrays[0] = np.repeat(arrays[0], 2, axis=1)[:, ::2]
    out = np.zeros((rows, cols), arrays[1].dtype)
    return Program(seed, source, [*arrays, out], rng.randint(0, 6), dtype)
