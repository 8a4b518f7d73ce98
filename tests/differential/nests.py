# SPDX-License-Identifier: MIT
"""Seeded random loop nests: all kinds of loops and chunk policies, nested, side by side and around other statements.

Loops have constant, run-time, triangular and data-dependent bounds.  The statements are element accesses, tiles and
views, temporaries, carried numbers, reductions, branches, `break` and `continue`; scopes stand anywhere.

Every program keeps the promise of its parallel loops: an output has the variables of all parallel loops around its
write in its index, or the write is a reduction.  Conditions are exact, so rounding never flips one.
"""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from tests.differential.compare import Kernel
from tests.differential.growing import Growing
from tests.differential.values import NUMPY

EXTENT, SHIFT, WIDTH = 24, 8, 8
"""Extent of an axis that is indexed with a loop variable plus SHIFT, and of one that a tile covers."""
TOLERANCE = {"f32": 2e-3, "f64": 1e-9}


@dataclass(frozen=True)
class Loop:
    """A loop around the current place."""

    var: str
    parallel: bool


@dataclass
class Number:
    """A variable: `level` is the number of loops around its definition; a `reduced` one is only ever updated."""

    name: str
    level: int
    is_int: bool = False
    reduced: bool = False


@dataclass
class NestWriter(Growing):
    """The text of a nest and what is visible at its end."""

    SCOPED: ClassVar = ("numbers", "written")

    dtype: str
    loops: list[Loop] = field(default_factory=list)
    numbers: list[Number] = field(default_factory=list)
    outputs: list[tuple[int, ...]] = field(default_factory=list)
    written: list[tuple[str, tuple[str, ...], int]] = field(default_factory=list)
    """Elements that this iteration wrote: output, loop variables of its index, loops around the write."""
    scoped: bool = False
    budget: int = 16

    @property
    def is_float(self) -> bool:
        return self.dtype[0] == "f"

    # -- expressions ----------------------------------------------------------------------------------------------

    def integer(self) -> str:
        """A small run-time integer."""
        r = self.rng
        atoms = ["n", "m", str(r.randint(0, 4)), *[loop.var for loop in self.loops] * 3]
        atoms += [x.name for x in self.numbers if x.is_int and not x.reduced]
        first = r.choice(atoms)
        roll = r.random()
        if roll < 0.55:
            return first
        if roll < 0.75:
            return f"({first} {r.choice('+-')} {r.choice(atoms)})"
        if roll < 0.9:
            return f"({first} {r.choice(['//', '%'])} {r.randint(2, 4)})"
        return f"{r.choice(['min', 'max'])}({first}, {r.choice(atoms)})"

    def at(self, var: str | None = None) -> str:
        """An index inside: a loop variable (between -8 and 15) plus SHIFT, or a constant."""
        if var is None:
            var = self.rng.choice([loop.var for loop in self.loops]) if self.loops and self.chance(0.8) else None
        return f"{var} + {SHIFT}" if var is not None else str(self.rng.randrange(EXTENT))

    def value(self, depth: int = 2) -> str:
        """A number of the program's dtype."""
        r = self.rng
        if depth == 0 or self.chance(0.35):
            atoms = [f"a[{self.at()}, {self.at()}]", f"v[{self.at()}]"]
            atoms += [x.name for x in self.numbers if not x.is_int and not x.reduced] * 2
            own = [loop.var for loop in self.loops]
            atoms += [
                f"o{o}[{', '.join(self.at(x) for x in index)}]"
                for o, index, _ in self.written
                if set(index) <= set(own)
            ]
            return r.choice(atoms)
        left = self.value(depth - 1)
        roll = r.random()
        if roll < 0.25:
            return f"({left} {r.choice('+-*')} {r.choice(['2', '3', '0.5' if self.is_float else '5'])})"
        if roll < 0.4:
            return f"({left} + {self.integer()})"
        if roll < 0.5:
            return f"{r.choice(['min', 'max'])}({left}, {self.value(depth - 1)})"
        if roll < 0.6:
            return f"({left} if {self.condition()} else {self.value(depth - 1)})"
        return f"({left} {r.choice('+-*' if not self.is_float else '+-+')} {self.value(depth - 1)})"

    def condition(self) -> str:
        r = self.rng
        roll = r.random()
        if roll < 0.6:
            return f"{self.integer()} {r.choice(['<', '>', '==', '!=', '<='])} {self.integer()}"
        if roll < 0.75:
            return f"v[{self.at()}] > {r.randint(-1, 1)}"
        return f"({self.integer()} + {self.integer()}) % {r.randint(2, 3)} == 0"

    # -- statements -----------------------------------------------------------------------------------------------

    def statements(self, least: int = 1, most: int = 3) -> None:
        for _ in range(self.rng.randint(least, most)):
            if self.budget <= 0:
                self.write()
                return
            self.statement()

    def statement(self) -> None:
        self.budget -= 1
        choices = [
            (self.write, 5),
            (self.temporary, 3),
            (self.tile, 2),
            (self.branch, 2),
            (self.carried, 2),
            (self.reduction, 3),
        ]
        if len(self.loops) < 3:
            choices.append((self.loop, 9 - 2 * len(self.loops)))
        if self.loops:
            choices.append((self.skip, 1))
        functions, weights = zip(*choices, strict=True)
        self.rng.choices(functions, weights)[0]()

    def index(self) -> tuple[str, ...]:
        """The variables of an output's index: those of all parallel loops, and some of the others."""
        return tuple(loop.var for loop in self.loops if loop.parallel or self.chance(0.6))

    def output(self, rank: int, tail: tuple[int, ...] = ()) -> int:
        self.outputs.append((EXTENT,) * rank + tail if rank or tail else (1,))
        return len(self.outputs) - 1

    def write(self) -> None:
        index = self.index()
        out = self.output(len(index))
        place = ", ".join(self.at(var) for var in index) or "0"
        sign = self.rng.choice(["=", "=", "=", "+="])
        self.line(f"o{out}[{place}] {sign} {self.value()}")
        if index:
            self.written.append((str(out), index, len(self.loops)))

    def temporary(self) -> None:
        name, is_int = self.name("t"), self.chance(0.3)
        self.line(f"{name} = {self.integer() if is_int else self.value()}")
        self.numbers.append(Number(name, len(self.loops), is_int))

    def tile(self) -> None:
        """A row or a block of the input, worked on and stored to an output of the iteration."""
        index = self.index()
        r = self.rng
        t = self.name("x")
        if r.random() < 0.5:
            source = r.choice([f"pl.load(a, [{self.at()}, {r.choice(['0', '4', '20'])}], [1, {WIDTH}])",
                               f"a[{self.at()}, {r.choice(['0', '9'])}:{WIDTH + 9}]"])  # fmt: skip
        else:
            source = f"pl.load(a, [{self.at()}, {r.choice(['0', '18'])}], [{r.choice(['2', '3', 'n + 1'])}, {WIDTH}])"
        self.line(f"{t} = {source} {r.choice('+-*')} {r.choice(['2', self.integer()])}")
        out = self.output(len(index), (WIDTH,))
        place = ", ".join([*(self.at(var) for var in index), "0"])
        reduced = f"pl.{r.choice(['sum', 'max'])}({t} if True else 0)".replace(" if True else 0", "")
        if "a[" in source:
            self.line(
                f"o{self.output(len(index))}[{', '.join(self.at(v) for v in index) or '0'}] = {reduced}.to(pl.{self.dtype})"
            )
            return
        shape = ", ".join(["1"] * len(index) + [str(WIDTH)])
        text = f"pl.reshape(pl.sum(pl.load(a, [{self.at()}, 0], [2, {WIDTH}]), axis=0).to(pl.{self.dtype}) * {self.integer()}, [{shape}])"
        self.line(f"pl.store({text}, [{place}], o{out})")
        self.line(
            f"o{self.output(len(index))}[{', '.join(self.at(v) for v in index) or '0'}] = {reduced}.to(pl.{self.dtype})"
        )

    def branch(self) -> None:
        with self.block(f"if {self.condition()}:"):
            self.statements(1, 2)
        if self.chance(0.5):
            with self.block("else:"):
                self.statements(1, 2)

    def carried(self) -> None:
        """A number that loops without a parallel one in between carry."""
        mine = [x for x in self.numbers if not x.is_int and not x.reduced and x.name.startswith("c")
                and not any(loop.parallel for loop in self.loops[x.level :])]  # fmt: skip
        if mine and self.chance(0.7):
            name = self.rng.choice(mine).name
            factor = "0.5" if self.is_float else "3"
            self.line(f"{name} = {name} * {factor} + {self.value(1)}")
            return
        name = self.name("c")
        self.line(f"{name} = {self.value(1)}")
        self.numbers.append(Number(name, len(self.loops)))

    def skip(self) -> None:
        """Leave an iteration; a sequential loop, too."""
        self.line(f"if {self.condition()}:")
        word = "continue" if self.loops[-1].parallel or self.chance(0.5) else "break"
        self.lines.append("    " * (self.depth + 1) + word)

    def reduction(self) -> None:
        """A number, or an element of an output, that loops below put together."""
        if len(self.loops) >= 3 or self.budget < 2:
            self.write()
            return
        kind = self.rng.choice(["+", "+", "max", "min", "*" if not self.is_float else "+"])
        index = self.index()
        where: str
        if self.chance(0.6):
            where = self.name("s")
            start = {"+": "0", "*": "1"}.get(kind, self.value(0))
            if self.is_float and kind == "+":
                start = "0.0"
            self.line(f"{where} = {start}")
        else:
            out = self.output(len(index))
            where = f"o{out}[{', '.join(self.at(v) for v in index) or '0'}]"
        self.loop(update=(where, kind))
        if where.startswith("s"):
            out = self.output(len(index))
            self.line(f"o{out}[{', '.join(self.at(v) for v in index) or '0'}] = {where}")

    def update(self, where: str, kind: str) -> None:
        value = self.value(1)
        if kind in "+*":
            text = self.rng.choice(
                [f"{where} {kind}= {value}", f"{where} = {where} {kind} {value}", f"{where} = {value} {kind} {where}"]
            )
        else:
            call = self.rng.choice([f"pl.{kind}imum", kind])
            text = f"{where} = {call}({where}, {value})"
        if self.chance(0.3):
            self.line(f"if {self.condition()}:")
            text = "    " + text
        self.line(text)

    # -- loops ----------------------------------------------------------------------------------------------------

    def bounds(self, parallel: bool) -> str:
        """Start, stop and step; every value lies between -7 and 15."""
        r = self.rng
        outer = [loop.var for loop in self.loops]
        stops = ["n", "m", "n + m", str(r.randint(0, 9)), "rows // 3", "7"]
        stops += [f"{r.choice(outer)} + {r.randint(-1, 3)}"] * 2 if outer and len(outer) < 2 else []
        stops += [f"pl.i64(k[{self.at()}])"] if not parallel and outer else []
        starts = ["0", "0", "0", str(r.randint(-3, 4)), "n - 2"] + ([outer[-1]] if len(outer) == 1 else [])
        start, stop = r.choice(starts), r.choice(stops)
        if start == "0" and self.chance(0.7):
            return stop
        if not parallel and self.chance(0.2):
            return f"{stop}, {start}, {r.choice(['-1', '-2', '-3'])}"
        return f"{start}, {stop}" if self.chance(0.5) else f"{start}, {stop}, {r.choice(['1', '2', '3', 'n + 1'])}"

    def schedule(self) -> str:
        r = self.rng
        if self.chance(0.4):
            return ""
        if self.chance(0.35):
            return ", parallel=True"
        policy = r.choice(["", "", ', chunk_policy="aligned"', ', chunk_policy="leading_full"'])
        return f", chunk={r.choice(['1', '2', '3', '5', '100', 'n + 1', 'm + 2'])}{policy}"

    def loop(self, update: tuple[str, str] | None = None) -> None:
        if self.budget < 2:
            self.write()
            return
        schedule = self.schedule()
        var = self.name("i")
        if update is not None and schedule and self.chance(0.4):
            schedule += f', combine="{self.rng.choice(["sequential", "tree", "loop"])}"'
        opens = not self.scoped and self.chance(0.3)
        function = "pl.range" if schedule or self.chance(0.5) else "range"
        header = f"for {var} in {function}({self.bounds(bool(schedule))}{schedule}):"
        with self.block("with pl.incore():") if opens else nullcontext():
            self.scoped |= opens
            with self.block(header):
                self.loops.append(Loop(var, bool(schedule)))
                hidden = self.hide(bool(schedule))
                inside = not self.scoped and self.chance(0.25)
                with self.block("with pl.incore():") if inside else nullcontext():
                    self.scoped |= inside
                    self.body(update)
                    self.scoped &= not inside
                self.loops.pop()
            self.scoped &= not opens
        self.numbers += hidden

    def body(self, update: tuple[str, str] | None) -> None:
        if update is None:
            self.statements()
            return
        if self.chance(0.4) and self.budget > 3:
            self.statements(1, 2)
        if len(self.loops) < 3 and self.chance(0.3) and self.budget > 3:
            self.loop(update)
        else:
            self.update(*update)

    def hide(self, parallel: bool) -> list[Number]:
        """Nothing is hidden: numbers from outside may be read in every loop."""
        return []


def generate(seed: int) -> Kernel:
    """The kernel of a seed; equal seeds give equal kernels."""
    rng = random.Random(seed)
    data = np.random.default_rng(seed)
    dtype = rng.choice(["i64", "i64", "i32", "i16", "f64", "f64", "f32"])
    w = NestWriter(rng, dtype)
    w.line("rows = a.shape[0]")
    if rng.random() < 0.3:
        with w.block("with pl.incore():"):
            w.scoped = True
            w.statements(2, 4)
    else:
        w.statements(2, 4)
    numpy = NUMPY[dtype]
    if dtype[0] == "f":
        a, v = ((data.integers(-16, 17, shape) / 8).astype(numpy) for shape in ((EXTENT, EXTENT), (EXTENT,)))
    else:
        a, v = (data.integers(-9, 10, shape).astype(numpy) for shape in ((EXTENT, EXTENT), (EXTENT,)))
    buffers = [a, v, data.integers(0, 6, EXTENT), *(np.zeros(shape, numpy) for shape in w.outputs)]
    recipes = [f"b[{k}]" for k in range(len(buffers))]
    if rng.random() < 0.2:
        buffers[0], recipes[0] = np.repeat(a, 2, axis=1), "b[0][:, ::2]"
    elif rng.random() < 0.2:
        buffers[0], recipes[0] = np.ascontiguousarray(a.T), "b[0].T"
    names = ["a", "v", "k", *(f"o{k}" for k in range(len(w.outputs))), "n", "m"]
    recipes += [str(rng.randint(0, 5)), str(rng.randint(0, 5))]
    source = f"@pto.jit\ndef kernel({', '.join(names)}):\n" + "\n".join(w.lines) + "\n"
    tolerance = TOLERANCE.get(dtype, 0.0)
    return Kernel(f"nest {seed}", source, tuple(buffers), tuple(recipes), tolerance, tolerance)
