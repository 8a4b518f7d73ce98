# SPDX-License-Identifier: MIT
"""Random loop nests as `.pto` text, and what they really touch: executed and written down."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pto_jit.ir.nodes import For, Module, Op
from pto_jit.ir.parse import parse
from pto_jit.ir.verify import verify
from pto_jit.semantic import interpreter
from pto_jit.semantic.rules import infer

EXTENT = 64
Subscript = tuple[dict[str, int], int]


@dataclass
class Text:
    """Lines of a function body, with fresh names."""

    rng: random.Random
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    count: int = 0

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def name(self) -> str:
        self.count += 1
        return f"%t{self.count}"

    def emit(self, text: str, kind: str = "i64") -> str:
        name = self.name()
        self.line(f"{name} = {text} : {kind}")
        return name

    def form(self, terms: dict[str, int], const: int) -> str:
        """A linear form, in any order and with constants anywhere."""
        total: str | None = None
        parts = list(terms.items())
        self.rng.shuffle(parts)
        for var, k in parts:
            if k == 0:
                continue
            term = f"%{var}" if k == 1 else self.emit(f"smul %{var}, {k}")
            total = term if total is None else self.emit(f"sadd {total}, {term}")
        if total is None:
            return str(const)
        return self.emit(f"sadd {total}, {const}") if const else total


@dataclass(frozen=True)
class Nest:
    """A random function, what to call it with besides its two tensors, and the steps of its loops by variable."""

    text: str
    module: Module
    numbers: tuple[int, ...]
    steps: dict[str, int]

    def arguments(self) -> list[Any]:
        values = np.arange(EXTENT * EXTENT, dtype=np.int64).reshape(EXTENT, EXTENT)
        return [values % 97, values % 89, *(np.int64(n) for n in self.numbers)]


def subscript(rng: random.Random, ranges: dict[str, range]) -> Subscript:
    """Coefficients in -2..2, shifted so that all values are indices."""
    terms = {var: rng.choice([-2, -1, 0, 0, 1, 1, 2]) for var in ranges if rng.random() < 0.8}
    low = sum(min(k * r[0], k * r[-1]) for var, k in terms.items() if (r := ranges[var]))
    return terms, -low + rng.randint(0, 3)


def random_nest(seed: int, *, options: Mapping[str, str] | None = None, symbols: bool = False) -> Nest:
    """Loops up to four deep, some imperfect, some triangular, over elements and tiles of two tensors.

    `options` are those of the loops by variable (sequential without); with `symbols` some bounds are arguments.
    """
    rng = random.Random(seed)
    writer = _Writer(rng, options or {}, symbols)
    writer.loop(0, {})
    if rng.random() < 0.2:
        writer.loop(0, {})
    kind = f"!pto.memref<gm,{EXTENT}x{EXTENT},i64>"
    params = ", ".join([f"%x: {kind}", f"%y: {kind}", *(f"%n{k}: i64" for k in range(len(writer.numbers)))])
    head = ["// Function Type: Orchestration", f"func @f({params}) {{", "  SCOPE @f_incore_0"]
    text = "\n".join([*head, *writer.out.lines, "  ENDSCOPE", "  return", "}"]) + "\n"
    module = parse(text)
    verify(module, infer)
    return Nest(text, module, tuple(writer.numbers), writer.steps)


class _Writer:
    def __init__(self, rng: random.Random, options: Mapping[str, str], symbols: bool) -> None:
        self.rng, self.options, self.symbols = rng, options, symbols
        self.out = Text(rng, depth=2)
        self.numbers: list[int] = []
        self.steps: dict[str, int] = {}
        self.reads: list[str] = []  # scalars that were read from memory and are visible
        self.perfect = rng.random() < 0.6

    def access(self, ranges: dict[str, range], *, write: bool) -> None:
        rng, out = self.rng, self.out
        tensor = rng.choice(["%x", "%x", "%y"])
        rows, cols = (out.form(*subscript(rng, ranges)) for _ in range(2))
        kind = rng.random()
        if kind < 0.15:
            extents = f"{rng.randint(1, 3)}, {rng.randint(1, 3)}"
            type_ = f"!pto.tile<{extents.replace(', ', 'x')}xi64>"
            if write:
                value = out.emit(f"tfull {self.value(ranges)}, [{extents}]", type_)
                out.line(f"tstore {value}, {tensor}[{rows}, {cols}]")
            else:
                tile = out.emit(f"tload {tensor}[{rows}, {cols}] [{extents}]", type_)
                self.reads.append(out.emit(f"tsum {tile} {{axes=(0, 1), keepdims=false}}"))
            return
        if kind < 0.25:  # through a view
            type_ = f"!pto.memref<gm,?x{EXTENT},i64,inner>"
            tensor = out.emit(f"tview {tensor}[{rows}, 0] [4, {EXTENT}] {{drop=()}}", type_)
            rows = str(rng.randint(0, 1))
        elif kind < 0.35:
            type_ = f"!pto.memref<gm,{EXTENT}x{EXTENT},i64,strided>"
            tensor = out.emit(f"ttensor_transpose {tensor} {{axes=(1, 0)}}", type_)
        elif kind < 0.42:
            rows = out.emit(f"sfloordiv {rows}, {rng.choice([2, 3])}")
        elif kind < 0.49:
            cols = out.emit(f"smod {cols}, {rng.choice([2, 3, 4])}")
        if write:
            out.line(f"ssetelem {self.value(ranges)}, {tensor}[{rows}, {cols}]")
        else:
            self.reads.append(out.emit(f"sgetelem {tensor}[{rows}, {cols}]"))

    def value(self, ranges: dict[str, range]) -> str:
        """Something to write: it tells the iterations apart."""
        total = self.out.form(dict.fromkeys(ranges, 7), 1)
        for name in self.reads[-2:]:
            total = self.out.emit(f"smul {total}, 3")
            total = self.out.emit(f"sadd {total}, {name}")
        return total

    def body(self, most: int, ranges: dict[str, range]) -> None:
        rng, out = self.rng, self.out
        for _ in range(rng.randint(1, most)):
            if rng.random() < 0.12:
                terms, const = subscript(rng, ranges)
                compare = rng.choice(["lt", "ge", "eq"])
                cond = out.emit(f"s{compare} {out.form(terms, const)}, {rng.randint(0, 6)}", "bool_")
                out.line(f"IF {cond}")
                out.depth += 1
                seen = len(self.reads)
                self.access(ranges, write=rng.random() < 0.6)
                del self.reads[seen:]
                out.depth -= 1
                out.line("ENDIF")
            else:
                self.access(ranges, write=rng.random() < 0.6)

    def loop(self, depth: int, ranges: dict[str, range]) -> None:
        rng, out = self.rng, self.out
        var = f"{'ijkl'[depth]}{len(self.steps)}"
        start, count, step = rng.randint(0, 2), rng.randint(1, 4), rng.choice([1, 1, 1, 2, -1, 3])
        self.steps[var] = step
        stop = start + count * step
        low, high = str(start), str(stop)
        if ranges and step == 1 and rng.random() < 0.15:  # triangular
            outer = rng.choice(list(ranges))
            low, start = f"%{outer}", min(ranges[outer])
        if rng.random() < 0.4 and self.symbols:
            high = f"%n{len(self.numbers)}"
            self.numbers.append(stop)
        values = range(start, max(stop, start + 1)) if step > 0 else range(stop + 1, start + 1)
        options = f" {{{self.options[var]}}}" if var in self.options else ""
        out.line(f"FOR %{var}:idx, {low}:idx, {high}:idx, {step}:idx{options}")
        out.depth += 1
        seen = len(self.reads)
        inner = {**ranges, var: values}
        if depth == 3 or rng.random() < 0.25 * depth:
            self.body(3, inner)
        else:
            if not self.perfect and rng.random() < 0.5:
                self.body(2, inner)
            self.loop(depth + 1, inner)
            if not self.perfect and rng.random() < 0.5:
                self.body(2, inner)
        del self.reads[seen:]
        out.depth -= 1
        out.line("ENDFOR")


# -- what is really touched ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Touch:
    """One execution of an access: which one (by its operation), and where the loops around it were."""

    op: Op
    write: bool
    loops: tuple[tuple[int, int], ...]  # (identity of the loop statement, its index)


class Recorder(interpreter._Interpreter):
    """Executes a module and writes down what touches each address."""

    def __init__(self, module: Module) -> None:
        super().__init__(module, False)
        self.around: list[tuple[int, int]] = []
        self.touched: dict[int, list[Touch]] = {}

    def loop(self, stmt: For, frame: Any) -> Any:
        start, stop, step = (int(self.value(o, frame)) for o in (stmt.start, stmt.stop, stmt.step))
        for count, index in enumerate(range(start, stop, step)):
            frame[stmt.var.name] = np.int64(index)
            self.around.append((id(stmt), index if step == 1 else count))
            self.block(stmt.body, frame)
            self.around.pop()

    def op(self, op: Op, frame: Any) -> None:
        for address in self._addresses(op, [self.value(a, frame) for a in op.args]):
            write = op.op in ("setelem", "store")
            self.touched.setdefault(address, []).append(Touch(op, write, tuple(self.around)))
        super().op(op, frame)

    @staticmethod
    def _addresses(op: Op, args: list[Any]) -> Iterator[int]:
        if op.op in ("getelem", "setelem"):
            tensor, *index = args if op.op == "getelem" else args[1:]
            yield tensor.ctypes.data + sum(int(i) * s for i, s in zip(index, tensor.strides, strict=True))
        elif op.op in ("load", "store"):
            tensor, *places = args if op.op == "load" else args[1:]
            offsets = [int(p) for p in places[: tensor.ndim]]
            extents = [int(p) for p in places[tensor.ndim :]] if op.op == "load" else args[0].shape
            region = tensor[tuple(slice(o, o + e) for o, e in zip(offsets, extents, strict=True))]
            start = region.ctypes.data
            for index in np.ndindex(region.shape):
                yield start + sum(i * s for i, s in zip(index, region.strides, strict=True))


def record(nest: Nest) -> dict[int, list[Touch]]:
    """What touches each address when a nest runs."""
    recorder = Recorder(nest.module)
    recorder.call(nest.module.func("f"), nest.arguments())
    return recorder.touched
