# SPDX-License-Identifier: MIT
"""What `infer` gives: the analysis of a comprehension, symbolic or with sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pto_jit.comprehensions.inference import Inferred, Precondition, Round, Solved
from pto_jit.comprehensions.nodes import Parameter
from pto_jit.comprehensions.program import Analysis
from pto_jit.comprehensions.symbolic import Expr, Sym
from pto_jit.errors import ArgumentError, CompilationError, Loc, Note, ShapeError
from pto_jit.slotted import field, frozen

Bound = Expr | int


@frozen(eq=False)
class StatementInference:
    """One statement: `ranges` {index: (low, high)} half-open, left indices first; `rounds`; `target`."""

    target: str
    ranges: dict[str, tuple[Bound, Bound]]
    rounds: list[Round]
    inferred: Inferred = field(repr=False)


@frozen(eq=False)
class Inference:
    """Ranges, shapes and origins of a comprehension.

    ranges: {index: (low, high)}, half-open, of all statements together (a later one wins); shapes and origins:
    {tensor: extents} and {tensor: first index per axis} of what is written; rounds: which indices were solved, from
    which accesses, one entry per round; preconditions: what has to hold beyond that; warnings: those of them that
    nothing checks; statements: each with its own ranges and rounds.  Bounds are ints when sizes were given, otherwise
    expressions with `.evaluate(N=10)`.
    """

    ranges: dict[str, tuple[Bound, Bound]]
    shapes: dict[str, tuple[Bound, ...]]
    origins: dict[str, tuple[Bound, ...]]
    rounds: list[Round]
    preconditions: list[Precondition]
    warnings: list[str]
    statements: list[StatementInference]
    analysis: Analysis

    def __repr__(self) -> str:
        ranges = ", ".join(f"{i}: {low}:{high}" for i, (low, high) in self.ranges.items())
        shapes = ", ".join(f"{t}: ({', '.join(map(str, s))})" for t, s in self.shapes.items())
        return f"<inference {ranges}; {shapes}>"


def inference(analysis: Analysis, sizes: Mapping[str, int] | None) -> Inference:
    """The analysis with its expressions evaluated, if there are sizes."""

    def at(e: Expr) -> Bound:
        return e if sizes is None else e.evaluate(sizes)

    statements: list[StatementInference] = []
    ranges: dict[str, tuple[Bound, Bound]] = {}
    for i in analysis.statements:
        own = {index: (at(low), at(high)) for index, (low, high) in i.ranges.items()}
        rounds = [Round({n: _at(s, at) for n, s in r.solved.items()}) for r in i.rounds]
        statements.append(StatementInference(i.statement.target, own, rounds, i))
        ranges.update(own)
    shapes: dict[str, tuple[Bound, ...]] = {}
    origins: dict[str, tuple[Bound, ...]] = {}
    for name, tensor in analysis.scope.tensors.items():
        if tensor.role != "input" and tensor.extents is not None:
            shapes[name] = tuple(map(at, tensor.extents))
            origins[name] = tuple(map(at, tensor.lows))
    warnings = [f"not checked: {p}" for p in analysis.preconditions if p.kind == "value"]
    rounds = [r for s in statements for r in s.rounds]
    return Inference(ranges, shapes, origins, rounds, list(analysis.preconditions), warnings, statements, analysis)


def _at(s: Solved, at: Any) -> Solved:
    return Solved(at(s.low), at(s.high), s.accesses, s.places)


def checked_sizes(analysis: Analysis, given: Mapping[str, Any]) -> dict[str, int]:
    """The value of every size and integer parameter, from shapes (and scalars) by name.

    Checks that sizes agree, that no range is empty and that the preconditions hold.  Raises ShapeError.
    """
    definition = analysis.definition
    sizes: dict[str, int] = {}
    first: dict[str, tuple[str, Loc]] = {}  # where each size was met first
    for p in definition.parameters:
        if p.name not in given:
            continue
        value = given[p.name]
        if p.name in analysis.scope.scalars:
            if isinstance(value, (int, float)) and float(value).is_integer():
                sizes[p.name] = int(value)
            continue
        shape = (value,) if isinstance(value, int) else tuple(value)
        _check_parameter(analysis, p, shape, sizes, first)
    missing = [n for n in _needed(analysis) if n not in sizes]
    if missing:
        raise ArgumentError(
            f"PTO-R059: `{definition.name}`: nothing says how large `{missing[0]}` is\n"
            "help: give the shapes of all arguments that have it, and the integers by name"
        )
    _check_ranges(analysis, sizes)
    return sizes


def _needed(analysis: Analysis) -> list[str]:
    found: dict[str, None] = {}
    for i in analysis.statements:
        for ends in i.ranges.values():
            for e in ends:
                found.update(dict.fromkeys(sorted(e.names())))
    for p in analysis.preconditions:
        if p.condition is not None:
            found.update(dict.fromkeys(sorted(p.condition.names())))
    return list(found)


def _error(analysis: Analysis, kind: type[CompilationError], code: str, message: str, loc: Loc, hint: str,
           *notes: Note) -> CompilationError:  # fmt: skip
    return analysis.scope.error(kind, code, message, loc, hint, *notes)


def _check_parameter(analysis: Analysis, p: Parameter, shape: tuple[int, ...], sizes: dict[str, int],
                     first: dict[str, tuple[str, Loc]]) -> None:  # fmt: skip
    if len(shape) != p.rank:
        raise _error(analysis, ShapeError, "PTO-R060", f"`{p.name}` has {p.rank} dimension{'s' * (p.rank != 1)}, found "
                     f"an array of the shape {shape}", p.loc, "pass an array of that rank")  # fmt: skip
    for axis, (size, extent) in enumerate(zip(p.sizes, shape, strict=True)):
        host = analysis.scope.host.get(size) if isinstance(size, str) else size
        if isinstance(host, int):
            if extent != host:
                raise _error(analysis, ShapeError, "PTO-R022",
                             f"dimension {axis} of `{p.name}` is {host}, found {extent}",
                             p.loc, "pass an array of that size")  # fmt: skip
            continue
        assert isinstance(size, str)
        if sizes.setdefault(size, extent) != extent:
            where, loc = first[size]
            here = f"dimension {axis} of `{p.name}`"
            raise _error(
                analysis, ShapeError, "PTO-R021",
                f"mismatched sizes for dimension `{size}`: {sizes[size]} in {where}, but {extent} in {here}",
                p.loc, f"`{size}` is one size: make {where} and {here} equal", Note(f"{where} is {sizes[size]}", loc),
            )  # fmt: skip
        first.setdefault(size, (f"dimension {axis} of `{p.name}`", p.loc))


def _check_ranges(analysis: Analysis, sizes: Mapping[str, int]) -> None:
    zero = any(v == 0 for v in sizes.values()) or any(0 in p.sizes for p in analysis.definition.parameters)
    empty: set[int] = set()
    for i in analysis.statements:
        for index, (low, high) in i.ranges.items():
            a, b = low.evaluate(sizes), high.evaluate(sizes)
            # No element: fine where it was asked for, or where an array has none.
            if b < a or (b == a and index not in i.given and not zero):
                solved = next((r.solved[index] for r in i.rounds if index in r.solved), None)
                why = f", from {' and '.join(solved.accesses)}" if solved else ""
                loc = solved.places[0] if solved and solved.places else i.statement.loc
                raise _error(
                    analysis, ShapeError, "PTO-R023",
                    f"the range of `{index}` is empty for these sizes: {low}:{high} is "
                    f"{a}:{b}{why} ({_values(low, high, sizes)})", loc, "pass arrays that are large enough",
                )  # fmt: skip
            if a == b:
                empty.add(id(i))
    skipped = {id(p) for i in analysis.statements if id(i) in empty for p in i.preconditions}
    for p in analysis.preconditions:
        if p.kind != "shape" or p.condition is None or id(p) in skipped:
            continue
        value = p.condition.evaluate(sizes)
        if value < 0 or (p.exact and value != 0):
            raise _error(
                analysis, ShapeError, "PTO-R024", f"{p.text}, which does not hold for these sizes "
                f"({_values(p.condition, p.condition, sizes)})", p.loc, f"pass arrays for which `{p.access}` stays "
                "inside its tensor",
            )  # fmt: skip


def _values(a: Expr, b: Expr, sizes: Mapping[str, int]) -> str:
    names = sorted({s.name for e in (a, b) for s in e.atoms() if isinstance(s, Sym)})
    return ", ".join(f"{n} = {sizes[n]}" for n in names) or "these are constants"
