# SPDX-License-Identifier: MIT
"""Random affine comprehensions in both forms, and what they mean by trying all values.

Ranges come from enumeration of the rounds of the algorithm, values from Python loops over them; nothing of the library
is used for either.  ``python -m tests.comprehensions.affine 0 5000 4`` tries the seeds 0 to 5000, and computes the
values of every fourth.
"""

from __future__ import annotations

import itertools
import linecache
import random
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import pto_jit as pto

WINDOW = range(-75, 76)  # where values of indices are tried
MOST = 3_000  # points of a statement whose values are computed
LARGEST = 1 << 22  # values beyond which f32 rounds
Ranges = dict[str, range]
_OPERATIONS = {"=": None, "+=!": "sum", "*=!": "prod", "min=!": "min", "max=!": "max"}
_STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "+=!": lambda a, b: a + b, "*=!": lambda a, b: a * b, "min=!": min, "max=!": max,
}  # fmt: skip


class Subscript:
    """`(sum of factor * index + offset) // divisor`."""

    def __init__(self, factors: dict[str, int], offset: int, divisor: int = 1) -> None:
        self.factors, self.offset, self.divisor = factors, offset, divisor

    def text(self, division: str) -> str:
        terms = "".join(f" {'-' if f < 0 else '+'} {i if abs(f) == 1 else f'{abs(f)}*{i}'}" for i, f in self.factors.items())
        terms = terms[3:] if terms[1] == "+" else f"0 {terms[1:]}"
        offset = f" {'-' if self.offset < 0 else '+'} {abs(self.offset)}" if self.offset else ""
        return f"{terms}{offset}" if self.divisor == 1 else f"({terms}{offset}) {division} {self.divisor}"

    def at(self, point: dict[str, int]) -> int:
        return (sum(f * point[i] for i, f in self.factors.items()) + self.offset) // self.divisor


class Access:
    """An element of a tensor; `padded`: the value outside, and no part in inference."""

    def __init__(self, tensor: str, subscripts: list[Subscript], padded: int | None = None) -> None:
        self.tensor, self.subscripts, self.padded = tensor, subscripts, padded

    def text(self) -> str:
        read = f"{self.tensor}({', '.join(s.text('/') for s in self.subscripts)})"
        return read if self.padded is None else f"pad({read}, {self.padded})"

    def python(self) -> str:
        read = f"{self.tensor}[{', '.join(s.text('//') for s in self.subscripts) or '()'}]"
        return read if self.padded is None else f"pl.pad({read}, {self.padded})"


class Statement:
    """`target(left) op a * b - c where ranges, exists e`."""

    def __init__(self, target: str, left: list[str], op: str, reads: list[Access], signs: list[str],
                 given: dict[str, tuple[int, str]], exists: list[Access]) -> None:  # fmt: skip
        self.target, self.left, self.op, self.reads, self.signs = target, left, op, reads, signs
        self.given, self.exists = given, exists

    def value(self, spelled: Callable[[Access], str]) -> str:
        return "".join(f"{s}{spelled(r)}" for s, r in zip(["", *self.signs], self.reads, strict=True))

    def text(self) -> str:
        clauses = [f"{i} in {low}:{high}" for i, (low, high) in self.given.items()]
        clauses += [f"exists {e.text()}" for e in self.exists]
        where = f" where {', '.join(clauses)}" if clauses else ""
        return f"{self.target}({', '.join(self.left)}) {self.op} {self.value(Access.text)}{where}"

    def python(self) -> list[str]:
        lines = [f"{i} = pl.axis{self.given.get(i, ())}".replace("'", "") for i in self.indices()]
        op = _OPERATIONS[self.op]
        value = self.value(Access.python)
        line = f"{self.target}[{', '.join(self.left) or '()'}] = {value if op is None else f'pl.{op}({value})'}"
        if not self.exists:
            return [*lines, line]
        return [*lines, f"with pl.exists({', '.join(e.python() for e in self.exists)}):", f"    {line}"]

    def indices(self) -> list[str]:
        used = [i for a in (*self.exists, *self.reads) for s in a.subscripts for i in s.factors]
        return list(dict.fromkeys([*self.left, *used, *self.given]))


class Case:
    """A comprehension of random statements; all sizes have names of their own, `N0` and so on."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.inputs: dict[str, list[str]] = {}
        self.kind = rng.choice(("float", "float", "int32", "double"))
        self.ranks: dict[str, int] = {}
        self.statements = [self._statement("A", [])]
        if rng.random() < 0.5:
            self.statements.append(self._statement("B", ["A"]))

    def _subscript(self, indices: list[str], plain: bool = False) -> Subscript:
        rng = self.rng
        used = rng.sample(indices, 1 if plain else rng.randint(1, min(2, len(indices))))
        factors = {i: 1 if plain else rng.choice((1, 1, 1, 2, 3, -1, -2)) for i in used}
        return Subscript(factors, rng.randint(-3, 3), rng.choice((1, 1, 1, 1, 2, 3)))

    def _access(self, indices: list[str], others: list[str]) -> Access:
        rng = self.rng
        padded = rng.choice((0, 1, 2)) if rng.random() < 0.12 else None
        if others and rng.random() < 0.5:
            tensor = rng.choice(others)
            return Access(tensor, [self._subscript(indices, True) for _ in range(self.ranks[tensor])], padded)
        tensor = f"T{len(self.inputs)}"
        sizes = itertools.count(sum(map(len, self.inputs.values())))
        self.inputs[tensor] = [f"N{next(sizes)}" for _ in range(rng.randint(1, 2))]
        return Access(tensor, [self._subscript(indices) for _ in self.inputs[tensor]], padded)

    def _statement(self, target: str, others: list[str]) -> Statement:
        rng = self.rng
        indices = ["i", "j", "k"][: rng.randint(1, 3)]
        reads = [self._access(indices, others) for _ in range(rng.randint(1, 3))]
        exists = [self._access(indices, []) for _ in range(rng.random() < 0.2)]
        for e in exists:
            e.padded = None
        given: dict[str, tuple[int, str]] = {}
        for i in sorted({i for a in (*reads, *exists) for s in a.subscripts for i in s.factors}):
            if rng.random() < 0.15:
                size = rng.choice([*itertools.chain(*self.inputs.values())])
                given[i] = rng.choice(((0, "2"), (1, "4"), (0, size), (-1, "1"), (1, f"{size} + 1"), (0, f"{size} - 1")))
        statement = Statement(target, [], rng.choice(tuple(_OPERATIONS)), reads,
                              [rng.choice((" + ", " - ", " * ")) for _ in reads[1:]], given, exists)  # fmt: skip
        found = statement.indices()
        statement.left = found if statement.op == "=" else [i for i in found if rng.random() < 0.6]
        rng.shuffle(statement.left)
        self.ranks[target] = len(statement.left)
        return statement

    # -- spellings ------------------------------------------------------------------------------------------------

    def text(self) -> str:
        parameters = ", ".join(f"{self.kind}({', '.join(sizes)}) {t}" for t, sizes in self.inputs.items())
        body = "\n".join(f"    {s.text()}" for s in self.statements)
        return f"def f({parameters}) -> ({', '.join(s.target for s in self.statements)}) {{\n{body}\n}}"

    def function(self) -> Any:
        """The Python form, from a source that `inspect` finds."""
        kind = {"float": "f32", "double": "f64", "int32": "i32"}[self.kind]
        names = [f"{t}: pl.{kind}[{', '.join(map(repr, sizes))}]" for t, sizes in self.inputs.items()]
        lines = ["import pto_jit.language as pl", f"def f({', '.join(names)}):"]
        lines += [f"    {line}" for s in self.statements for line in s.python()]
        source = "\n".join([*lines, f"    return {', '.join(s.target for s in self.statements)}"]) + "\n"
        filename = "<affine>"
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        space: dict[str, Any] = {"__name__": "affine"}
        exec(compile(source, filename, "exec"), space)
        return space["f"]

    # -- meaning --------------------------------------------------------------------------------------------------

    def sizes(self) -> dict[str, int]:
        return {s: self.rng.randint(1, 8) for sizes in self.inputs.values() for s in sizes}

    def bounds(self, sizes: dict[str, int]) -> dict[str, list[range]]:
        """Of each parameter, the indices of its axes."""
        return {t: [range(sizes[s]) for s in names] for t, names in self.inputs.items()}

    def arrays(self, sizes: dict[str, int]) -> dict[str, np.ndarray]:
        draw = np.random.default_rng(self.rng.randrange(1 << 30))
        kind = {"float": np.float32, "double": np.float64, "int32": np.int32}[self.kind]
        shapes = {t: [sizes[s] for s in names] for t, names in self.inputs.items()}
        return {t: draw.integers(-2, 3, shape).astype(kind) for t, shape in shapes.items()}


def rounds(s: Statement, bounds: dict[str, list[range]], sizes: dict[str, int]) -> Ranges | str:
    """The rounds of the algorithm by trying all values; a word when they end otherwise.

    bounds: of each tensor, the indices of its axes.  "unsolved": a round solves nothing, "empty": no value fits.
    """
    accesses = [
        (sub, inside) for a in (*s.exists, *s.reads) if a.padded is None
        for sub, inside in zip(a.subscripts, bounds[a.tensor], strict=True)
    ]  # fmt: skip
    solved: Ranges = {i: range(low, eval(high, {}, dict(sizes))) for i, (low, high) in s.given.items()}
    if any(r.stop < r.start for r in solved.values()):
        return "empty"
    names = set(s.indices())
    if names - solved.keys() and not all(solved.values()):
        return "no value"  # for all values of none: anything fits
    while len(solved) < len(names):
        new: Ranges = {}
        for v in sorted(names - solved.keys()):
            mine = [a for a in accesses if v in a[0].factors and all(i == v or i in solved for i in a[0].factors)]
            if not mine:
                continue
            fine = [x for x in WINDOW if all(_always(sub, inside, solved | {v: range(x, x + 1)}) for sub, inside in mine)]
            if not fine:
                return "empty"
            new[v] = range(fine[0], fine[-1] + 1)
        if not new:
            return "unsolved"
        solved.update(new)
    return solved


def _always(sub: Subscript, inside: range, ranges: Ranges) -> bool:
    """Whether a subscript stays inside over a rectangle: monotone in each index, so at its corners."""
    corners = [(r.start, r.stop - 1) for r in (ranges[i] for i in sub.factors)]
    if any(a > b for a, b in corners):
        return True
    return all(sub.at(dict(zip(sub.factors, p, strict=True))) in inside for p in itertools.product(*corners))


def stays_inside(s: Statement, ranges: Ranges, bounds: dict[str, list[range]]) -> bool:
    """Whether no read of a statement leaves its tensor."""
    if any(not r for r in ranges.values()):
        return True
    return all(
        _always(sub, inside, ranges) for a in (*s.exists, *s.reads) if a.padded is None
        for sub, inside in zip(a.subscripts, bounds[a.tensor], strict=True)
    )  # fmt: skip


def points(names: list[str], ranges: Ranges) -> Iterator[dict[str, int]]:
    for values in itertools.product(*(ranges[n] for n in names)):
        yield dict(zip(names, values, strict=True))


def computed(s: Statement, ranges: Ranges, bounds: dict[str, list[range]], arrays: dict[str, np.ndarray]) -> np.ndarray:
    """What a statement makes: one element after the other, in Python's numbers."""

    def element(a: Access, point: dict[str, int]) -> float | int:
        place = [sub.at(point) for sub in a.subscripts]
        if any(p not in inside for p, inside in zip(place, bounds[a.tensor], strict=True)):
            assert a.padded is not None
            return a.padded
        at = tuple(p - inside.start for p, inside in zip(place, bounds[a.tensor], strict=True))
        return np.asarray(arrays[a.tensor]).item(*at)  # a result without axes is a number

    reduced = [i for i in s.indices() if i not in s.left]
    # Without an element an extremum is the identity, which only floats have as a number; 64 bits otherwise.
    start = {"+=!": 0, "*=!": 1, "min=!": float("inf"), "max=!": float("-inf")}.get(s.op)
    made = np.zeros([len(ranges[i]) for i in s.left], object)
    code = compile(s.value(lambda a: f"v{s.reads.index(a)}"), "<value>", "eval")
    for point in points(s.left, ranges):
        total = start
        for inner in points(reduced, ranges):
            here = {**point, **inner}
            value = eval(code, {}, {f"v{n}": element(a, here) for n, a in enumerate(s.reads)})
            total = value if s.op == "=" else _STEPS[s.op](total, value)
        made[tuple(point[i] - ranges[i].start for i in s.left)] = total
    return made


# -- the library against it ---------------------------------------------------------------------------------------


def _word(statements: list[Statement], bounds: dict[str, list[range]], sizes: dict[str, int]) -> tuple[str, list[Ranges]]:
    """What becomes of a comprehension with these sizes: "fine", or why not; and the ranges of its statements.

    `bounds` gets those of what the statements write.
    """
    found: list[Ranges] = []
    for s in statements:
        ranges = rounds(s, bounds, sizes)
        if isinstance(ranges, str):
            return ranges, found
        found.append(ranges)
        if not stays_inside(s, ranges, bounds):
            return "outside", found
        bounds[s.target] = [ranges[i] for i in s.left]
    return "fine", found


def disagreement(seed: int, values: bool, seen: Counter[str] | None = None) -> str | None:
    """What the library says or computes otherwise than this module for the case of a seed; None: nothing.

    `values`: compile it and compare its results, too.  `seen` counts what became of it.
    """
    case, seen = Case(random.Random(seed)), Counter() if seen is None else seen
    text, kinds = case.text(), [case.sizes() for _ in range(3)]
    try:
        c = pto.comprehension(text)
    except (pto.RangeInferenceError, pto.ShapeError) as error:
        words = [_word(case.statements, case.bounds(sizes), sizes)[0] for sizes in kinds]
        seen[f"refused: {error.code}"] += 1
        return f"refused: {error}\n{text}" if "fine" in words else None
    other = pto.comprehension(case.function())
    if other.loops() != c.loops():
        return f"the forms differ:\n{c.loops()}\n{other.loops()}"
    for sizes in kinds:
        bounds = case.bounds(sizes)
        word, ranges = _word(case.statements, bounds, sizes)
        seen[word] += 1
        if word == "no value":
            continue
        for s, mine, wanted in zip(case.statements, c.infer().statements, ranges, strict=False):
            got = {i: tuple(e if isinstance(e, int) else e.evaluate(sizes) for e in ends) for i, ends in mine.ranges.items()}
            if got != {i: (r.start, r.stop) for i, r in wanted.items()}:
                return f"{s.target} has {got}, not {wanted}, with {sizes}\n{text}"
        try:
            c.infer(**{t: tuple(sizes[s] for s in names) for t, names in case.inputs.items()})
        except pto.ShapeError as error:
            if word == "fine":
                return f"refused with {sizes}: {error}\n{text}"
            continue
        if word != "fine":
            return f"accepted with {sizes}, but {word}\n{text}"
        if values and all(np.prod([float(len(r)) for r in one.values()]) <= MOST for one in ranges):
            wrong = _values_differ(case, c, ranges, bounds, sizes, seen)
            if wrong is not None:
                return f"{wrong}\nwith {sizes}\n{text}"
    return None


def _values_differ(case: Case, c: Any, ranges: list[Ranges], bounds: dict[str, list[range]], sizes: dict[str, int],
                   seen: Counter[str]) -> str | None:  # fmt: skip
    arrays = case.arrays(sizes)
    ways = {"compiled": c}
    if sum(np.prod([len(r) for r in one.values()]) for one in ranges) <= 60:  # slow
        ways["interpreted"] = c._versions[()].function(False).interpret
    with np.errstate(all="ignore"):
        results = {way: run(*arrays.values()) for way, run in ways.items()}
    known: dict[str, np.ndarray] = dict(arrays)
    for k, (s, r) in enumerate(zip(case.statements, ranges, strict=True)):
        wanted = computed(s, r, bounds, known)
        largest = max((abs(x) for x in wanted.flat if abs(x) != float("inf")), default=0)
        if largest > LARGEST or (case.kind == "int32" and any(abs(x) == float("inf") for x in wanted.flat)):
            return None
        for way, result in results.items():
            got = np.asarray(result[k] if isinstance(result, tuple) else result)
            got = got.reshape(()) if not s.left else got
            if got.shape != wanted.shape or not np.array_equal(got.astype(np.float64), wanted.astype(np.float64)):
                return f"{s.target}, {way}, is\n{got}\nnot\n{wanted}"
            seen[way] += 1
        known[s.target] = wanted
    return None


def main(first: int, last: int, every: int) -> int:
    """Try the seeds of a range; the number of those that disagree."""
    warnings.simplefilter("ignore", UserWarning)
    seen, bad = Counter(), 0
    for seed in range(first, last):
        try:
            wrong = disagreement(seed, seed % every == 0, seen)
        except Exception:
            wrong = traceback.format_exc(limit=-3)
        if wrong is not None:
            bad += 1
            print(f"== seed {seed}\n{wrong}", flush=True)
    print(f"{last - first} comprehensions, {bad} disagree; {dict(seen)}")
    return bad


if __name__ == "__main__":
    raise SystemExit(bool(main(*map(int, sys.argv[1:4]))))
