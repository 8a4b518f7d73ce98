# SPDX-License-Identifier: MIT
"""Random loop nests, and the races in them found by comparing all pairs of accesses.

A program is a tree that is both written as a kernel and walked here: `Program.source` is the kernel's text,
`Program.accesses` the accesses of a run in order, each with its bytes and its place among the iterations.  Subscripts
are sums of loop variables with coefficients that are arguments, so nothing can be decided before the program runs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

NAMES = ("x", "y", "z", "g")
KINDS = ("", ", parallel=True", ", chunk=2", ", chunk=3, chunk_policy='aligned'", ", parallel=True", ", chunk=c0")


@dataclass(frozen=True)
class Subscript:
    """`constant + sum of coefficients[k] * variable`: numbers are those of the arguments `k<number>`."""

    terms: tuple[tuple[int, str], ...]
    constant: int

    def text(self) -> str:
        return " + ".join([*(f"k{number} * {var}" for number, var in self.terms), f"k{self.constant}"])

    def value(self, env: dict[str, int], ks: list[int]) -> int:
        return sum(ks[number] * env[var] for number, var in self.terms) + ks[self.constant]


@dataclass(frozen=True)
class Part:
    """One access: the tensor, the verb, how a subscript becomes elements (`[start, start + extent)` along each axis)."""

    verb: str
    tensor: str
    at: tuple[Subscript, ...]
    extents: tuple[int, ...]
    through: str | None = None
    """A tensor of indices: the subscript is an index of it, and its element the index here."""
    source: Part | None = None
    """Where the stored tile was loaded: its valid extents are what is left of the extents there."""


@dataclass(frozen=True)
class Statement:
    """`text` with `{0}`, `{1}`, ... for the subscripts of its parts in order."""

    text: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Loop:
    var: str
    kind: str
    start: int
    step: int
    trips: int
    body: tuple[Any, ...]

    @property
    def parallel(self) -> bool:
        return self.kind != ""


@dataclass(frozen=True)
class Guard:
    """`if (variable + k) % 2 == 0`"""

    var: str
    constant: int
    body: tuple[Any, ...]


@dataclass(frozen=True)
class Event:
    """An access as it happened: the elements' first bytes in order, the line, and for each loop around it which run of
    the loop and which iteration (its number and the value of the variable)."""

    verb: str
    tensor: str
    line: int
    elements: tuple[tuple[int, tuple[int, ...]], ...]
    size: int
    loops: tuple[tuple[Loop, int, int, int], ...]


@dataclass(frozen=True)
class Race:
    loop: str
    iterations: tuple[int, int]
    tensor: str
    element: tuple[int, ...]
    lines: tuple[int, int]


ORDER = ("writes", "updates", "reads")


def contradict(a: str, b: str) -> bool:
    return "writes" in (a, b) or (a == "updates") != (b == "updates")


def first_race(events: list[Event]) -> Race | None:
    """By definition: every access against all before it."""
    for k, now in enumerate(events):
        for level, (loop, run, number, value) in enumerate(now.loops):
            if not loop.parallel:
                continue
            before = [
                (e, e.loops[level])
                for e in events[:k]
                if level < len(e.loops) and e.loops[level][:2] == (loop, run) and e.loops[level][2] != number
                and contradict(e.verb, now.verb)
            ]  # fmt: skip
            for address, element in now.elements:
                for byte in range(address, address + now.size):
                    hits = [
                        (there[2], ORDER.index(e.verb), there[3], e)
                        for e, there in before
                        if any(a <= byte < a + e.size for a, _ in e.elements)
                    ]
                    if hits:
                        _, _, other, then = min(hits, key=lambda hit: hit[:2])
                        return Race(loop.var, (other, value), now.tensor, element, (then.line, now.line))
    return None


@dataclass
class Program:
    """`layout`: for every tensor its buffer, first byte, dtype and shape."""

    seed: int
    tree: tuple[Any, ...]
    layout: dict[str, tuple[int, int, str, tuple[int, ...]]]
    coefficients: int
    source: str = ""
    lines: dict[int, int] = field(default_factory=dict)
    """id of a statement -> its line in the source."""

    def write(self) -> None:
        names = ", ".join(f"{name}: pl.Tensor" for name in self.layout)
        ks = ", ".join(f"k{n}" for n in range(self.coefficients))
        out = ["@pto.jit(debug=True, cache=False)", f"def kernel({names}, c0, {ks}):", "    with pl.incore():"]

        def block(items: tuple[Any, ...], depth: int) -> None:
            pad = "    " * depth
            for item in items:
                match item:
                    case Loop():
                        bounds = f"{item.start}, k{0} * 0 + {item.start + item.step * item.trips}, {item.step}"
                        out.append(f"{pad}for {item.var} in pl.range({bounds}{item.kind}):")
                        block(item.body, depth + 1)
                    case Guard():
                        out.append(f"{pad}if ({item.var} + k{item.constant}) % 2 == 0:")
                        block(item.body, depth + 1)
                    case Statement():
                        texts = [", ".join(s.text() for s in p.at) for p in item.parts if p.through is None]
                        out.append(pad + item.text.format(*texts))
                        self.lines[id(item)] = len(out)

        block(self.tree, 2)
        self.source = "\n".join(out) + "\n"

    def buffers(self, rng: random.Random) -> list[np.ndarray]:
        count = 1 + max(b for b, *_ in self.layout.values())
        return [np.frombuffer(rng.randbytes(512), np.uint8).copy() for _ in range(count)]

    def arguments(self, buffers: list[np.ndarray]) -> list[np.ndarray]:
        out = []
        for number, start, dtype, shape in self.layout.values():
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            out.append(buffers[number][start : start + size].view(dtype).reshape(shape))
        return out

    def accesses(self, arrays: dict[str, np.ndarray], ks: list[int]) -> list[Event]:
        """Runs the program; values that are read as indices come from `arrays` (nothing writes these)."""
        events: list[Event] = []
        runs = iter(range(1 << 30))

        def block(items: tuple[Any, ...], env: dict[str, int], loops: tuple[Any, ...]) -> None:
            for item in items:
                match item:
                    case Loop():
                        run = next(runs)
                        for number in range(item.trips):
                            value = item.start + number * item.step
                            block(item.body, {**env, item.var: value}, (*loops, (item, run, number, value)))
                    case Guard():
                        if (env[item.var] + ks[item.constant]) % 2 == 0:
                            block(item.body, env, loops)
                    case Statement():
                        for part in item.parts:
                            events.append(self._event(item, part, env, loops, arrays, ks))

        block(self.tree, {}, ())
        return events

    def _event(self, statement: Statement, part: Part, env: dict[str, int], loops: Any, arrays: Any, ks: Any) -> Event:
        buffer, start, dtype, shape = self.layout[part.tensor]
        size = np.dtype(dtype).itemsize
        offsets = [s.value(env, ks) for s in part.at]
        if part.through is not None:
            offsets = [int(arrays[part.through][offsets[0]])]
        extents = part.extents
        if part.source is not None:
            within = self.layout[part.source.tensor][3]
            starts = [s.value(env, ks) for s in part.source.at]
            extents = tuple(max(0, min(e, n - o)) for e, n, o in zip(extents, within, starts, strict=True))
        elements = []
        for index in _rectangle(offsets, extents, shape):
            place = sum(i * s for i, s in zip(index, _packed(shape), strict=True))
            elements.append((buffer * 4096 + start + place * size, index))
        return Event(part.verb, part.tensor, self.lines[id(statement)], tuple(elements), size, loops)


def _packed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))


def _rectangle(offsets: list[int], extents: tuple[int, ...], shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    spans = [range(min(o, n), min(o + e, n)) for o, e, n in zip(offsets, extents, shape, strict=True)]
    yield from ((i,) for i in spans[0]) if len(spans) == 1 else ((i, j) for i in spans[0] for j in spans[1])


class Writer:
    """Makes one random program."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.ks = 1
        self.vars: list[str] = []
        shared = self.rng.random() < 0.4
        self.layout = {
            "x": (0, 0, "float32", (48,)),
            "y": (0 if shared else 1, self.rng.choice((0, 4, 64, 90 * 4)) if shared else 0, "float32", (36,)),
            "z": (2, 0, "float32", (8, 9)),
            "d": (3, 0, "float64", (20,)),
            "b": (3 if self.rng.random() < 0.7 else 4, self.rng.choice((0, 3, 16)), "int8", (150,)),
            "g": (5, 0, "int64", (40,)),
        }

    def constant(self) -> int:
        self.ks += 1
        return self.ks - 1

    def subscript(self) -> Subscript:
        return Subscript(tuple((self.constant(), var) for var in self.vars), self.constant())

    def part(self, verb: str, tensor: str, extent: int = 1) -> Part:
        rank = len(self.layout[tensor][3])
        extents = (extent,) if rank == 1 else (self.rng.randint(1, 2), extent)
        return Part(verb, tensor, tuple(self.subscript() for _ in range(rank)), extents)

    def statement(self) -> Statement:
        rng = self.rng
        form = rng.randrange(8)
        a, b = rng.choice("xy"), rng.choice("xy")
        wide = rng.randint(1, 5)
        if form <= 1:
            parts = (self.part("reads", b), self.part("writes", a))
            return Statement(f"{a}[{{1}}] = {b}[{{0}}] * 0.5", parts)
        if form == 2:
            read, write = self.part("reads", b, wide), self.part("writes", a, wide)
            parts = (read, Part("writes", a, write.at, read.extents, source=read))
            return Statement(f"pl.store(pl.load({b}, [{{0}}], [{wide}]) * 0.5, [{{1}}], {a})", parts)
        if form == 3:
            read, write = self.part("reads", "z", wide), self.part("writes", "z", wide)
            write = Part("writes", "z", write.at, read.extents, source=read)
            text = f"pl.store(pl.load(z, [{{0}}], [{read.extents[0]}, {wide}]) * 0.5, [{{1}}], z)"
            return Statement(text, (read, write))
        if form == 4:
            where = self.part("reads", "g")
            return Statement(f"{a}[g[{{0}}]] = 3.0", (where, Part("writes", a, where.at, (1,), "g")))
        if form == 5:
            part = self.part("updates", a, wide)
            return Statement(f"pl.atomic_add({a}, [{{0}}], pl.full([{wide}], 1.0, pl.f32))", (part,))
        if form == 6:
            return Statement("b[{0}] = 1", (self.part("writes", "b"),))
        return Statement("d[{1}] = b[{0}] * 1.0", (self.part("reads", "b"), self.part("writes", "d")))

    def block(self, depth: int) -> tuple[Any, ...]:
        items: list[Any] = []
        for _ in range(self.rng.randint(1, 2)):
            choice = self.rng.random()
            if depth < 3 and (choice < 0.45 or not self.vars):
                items.append(self.loop(depth))
            elif choice < 0.6 and self.vars:
                var = self.rng.choice(self.vars)
                items.append(Guard(var, self.constant(), (self.statement(),)))
            else:
                items.append(self.statement())
        return tuple(items)

    def loop(self, depth: int) -> Loop:
        var = f"i{len(self.vars)}_{self.ks}"
        kind = self.rng.choice(KINDS[1:] if not self.vars else KINDS)
        start, trips = self.rng.randint(0, 2), self.rng.randint(1, 4)
        step = self.rng.choice((1, 1, 2))
        if "chunk" not in kind and self.rng.random() < 0.2:
            start, step = step * trips, -step
        self.vars.append(var)
        body = self.block(depth + 1)
        self.vars.pop()
        return Loop(var, kind, start, step, trips, body)

    def program(self) -> Program:
        program = Program(self.seed, self.block(0), self.layout, self.ks)
        program.write()
        return program


def coefficients(program: Program, rng: random.Random, sparse: bool) -> list[int]:
    """Values of the arguments; `sparse`: factors that keep iterations apart more often."""
    ks = [0] * program.coefficients

    def subscripts(items: tuple[Any, ...], loops: tuple[Loop, ...]) -> None:
        for item in items:
            match item:
                case Loop():
                    subscripts(item.body, (*loops, item))
                case Guard():
                    ks[item.constant] = rng.randint(0, 1)
                    subscripts(item.body, loops)
                case Statement():
                    for part in item.parts:
                        chosen(part, loops)

    def chosen(part: Part, loops: tuple[Loop, ...]) -> None:
        shape = program.layout[part.tensor][3] if part.through is None else program.layout[part.through][3]
        one = set(part.extents) == {1}
        for subscript, extent in zip(part.at, shape, strict=True):
            room = extent - 1 if one else extent + 2  # elements must lie inside, tiles are clipped
            for (number, _), loop in zip(subscript.terms, loops, strict=True):
                top = max(loop.start, loop.start + (loop.trips - 1) * loop.step)
                most = room // top if top else 3
                ks[number] = min(most, rng.choice((1, 2, 5, 7)) if sparse else rng.choice((0, 0, 1, 1, 2)))
                room -= ks[number] * top
            ks[subscript.constant] = rng.randint(0, max(0, min(room, 9)))

    subscripts(program.tree, ())
    return ks
