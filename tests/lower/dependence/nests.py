# SPDX-License-Identifier: MIT
"""Random loop nests as `.pto` text, and what they really touch: executed and written down."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
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
    """A random function and the ranges of its loop variables."""

    text: str
    module: Module
    names: tuple[str, ...]


def subscript(rng: random.Random, ranges: dict[str, range], most: int = EXTENT) -> Subscript:
    """Coefficients in -2..2, shifted so that all values are indices below `most`."""
    terms = {var: rng.choice([-2, -1, 0, 0, 1, 1, 2]) for var in ranges if rng.random() < 0.8}
    low = sum(min(k * r[0], k * r[-1]) for var, k in terms.items() if (r := ranges[var]))
    return terms, -low + rng.randint(0, 3)


def random_nest(seed: int, *, kinds: Sequence[str] = ("sequential",), tiles: bool = True, ifs: bool = True) -> Nest:
    """Loops up to four deep, some imperfect, some triangular, over elements and tiles of two tensors."""
    rng = random.Random(seed)
    out = Text(rng)
    names: list[str] = []
    statements = rng.randint(1, 3)

    def access(ranges: dict[str, range], write: bool) -> None:
        tensor = rng.choice(["%x", "%x", "%y"])
        rows, cols = (out.form(*subscript(rng, ranges)) for _ in range(2))
        kind = rng.random()
        if tiles and kind < 0.25:
            shape = f"{rng.randint(1, 3)}x{rng.randint(1, 3)}"
            if write:
                value = out.emit(f"tfull 1, [{shape.replace('x', ', ')}]", f"!pto.tile<{shape}xi64>")
                out.line(f"tstore {value}, {tensor}[{rows}, {cols}]")
            else:
                extents = shape.replace("x", ", ")
                out.emit(f"tload {tensor}[{rows}, {cols}] [{extents}]", f"!pto.tile<{shape}xi64>")
            return
        if kind < 0.4:  # through a view
            type_ = f"!pto.memref<gm,?x{EXTENT},i64,inner>"
            view = out.emit(f"tview {tensor}[{rows}, 0] [4, {EXTENT}] {{drop=()}}", type_)
            rows = str(rng.randint(0, 1))
            tensor = view
        elif kind < 0.5:
            type_ = f"!pto.memref<gm,{EXTENT}x{EXTENT},i64,strided>"
            tensor = out.emit(f"ttensor_transpose {tensor} {{axes=(1, 0)}}", type_)
        elif kind < 0.6:
            rows = out.emit(f"sfloordiv {rows}, {rng.choice([2, 3])}")
        elif kind < 0.7:
            cols = out.emit(f"smod {cols}, {rng.choice([2, 3, 4])}")
        if write:
            out.line(f"ssetelem 1, {tensor}[{rows}, {cols}]")
        else:
            out.emit(f"sgetelem {tensor}[{rows}, {cols}]")

    def body(depth: int, ranges: dict[str, range]) -> None:
        for _ in range(rng.randint(1, 2) if depth else statements):
            if ifs and ranges and rng.random() < 0.15:
                terms, const = subscript(rng, ranges)
                compare = rng.choice(["lt", "ge", "eq"])
                cond = out.emit(f"s{compare} {out.form(terms, const)}, {rng.randint(0, 6)}", "bool_")
                out.line(f"IF {cond}")
                out.depth += 1
                access(ranges, rng.random() < 0.6)
                out.depth -= 1
                out.line("ENDIF")
            else:
                access(ranges, rng.random() < 0.6)

    def loop(depth: int, ranges: dict[str, range]) -> None:
        var = "ijkl"[depth]
        var = var if var not in names else f"{var}.{len(names)}"
        names.append(var)
        start, count, step = rng.randint(0, 2), rng.randint(1, 4), rng.choice([1, 1, 1, 2, -1, 3])
        stop = start + count * step
        low = str(start)
        if ranges and step == 1 and rng.random() < 0.2:  # triangular
            outer = rng.choice(list(ranges))
            low, start = f"%{outer}", min(ranges[outer])
        values = range(start, max(stop, start + 1)) if step > 0 else range(stop + 1, start + 1)
        out.line(f"FOR %{var}:idx, {low}:idx, {stop}:idx, {step}:idx {{kind={rng.choice(list(kinds))}}}")
        out.depth += 1
        inner = {**ranges, var: values}
        if depth == 3 or rng.random() < 0.3 * depth:
            body(depth, inner)
        else:
            if rng.random() < 0.3:
                body(1, inner)
            loop(depth + 1, inner)
            if rng.random() < 0.3:
                body(1, inner)
        out.depth -= 1
        out.line("ENDFOR")

    loop(0, {})
    if rng.random() < 0.2:
        loop(0, {})
    kind = f"!pto.memref<gm,{EXTENT}x{EXTENT},i64>"
    text = "\n".join([f"func @f(%x: {kind}, %y: {kind}) {{", *out.lines, "  return", "}"]) + "\n"
    module = parse(text)
    verify(module, infer)
    return Nest(text, module, tuple(names))


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


def record(module: Module) -> dict[int, list[Touch]]:
    """What touches each address when the module's entry runs on fresh tensors."""
    recorder = Recorder(module)
    func = module.func(module.entry)
    arrays = [np.zeros((EXTENT, EXTENT), np.int64) for _ in func.params]
    recorder.call(func, arrays)
    return recorder.touched
