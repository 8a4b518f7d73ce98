# SPDX-License-Identifier: MIT
"""What has to hold of sizes for an analysed definition, as conditions of the generated program.

A comprehension checks its sizes at the call (`results.checked_sizes`); statements inside a kernel check them where they
stand, by the conditions made here.  Both refuse the same sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pto_jit.comprehensions.inference import Inferred
from pto_jit.comprehensions.program import Analysis
from pto_jit.comprehensions.symbolic import Expr, at_least_zero
from pto_jit.errors import Loc
from pto_jit.slotted import frozen


@frozen
class Check:
    """`condition` is Python text over sizes; where it is false, `code` and `message` say what is wrong at `loc`."""

    condition: str
    code: str
    message: str
    loc: Loc
    hint: str


def checks(analysis: Analysis, size: Callable[[Expr], str]) -> Iterator[Check]:
    """The conditions that are not certain, in order; `size` spells an expression over sizes."""
    for inferred in analysis.statements:
        yield from _ranges(inferred, size)
    owners = {id(p): i for i in analysis.statements for p in i.preconditions}
    for p in analysis.preconditions:
        if p.kind != "shape" or p.condition is None:
            continue
        parts = [f"{size(p.condition)} {'==' if p.exact else '>='} 0"]
        owner = owners.get(id(p))
        if owner is not None:  # a statement without elements reads nothing
            parts += [f"{size(length)} == 0" for length in _lengths(owner) if not at_least_zero(length - 1)]
        yield Check(" or ".join(parts), "PTO-R024", f"{p.text}, which does not hold for the sizes here", p.loc,
                    f"pass arrays for which `{p.access}` stays inside its tensor")  # fmt: skip


def _lengths(i: Inferred) -> list[Expr]:
    return list(dict.fromkeys(high - low for low, high in i.ranges.values()))


def _ranges(i: Inferred, size: Callable[[Expr], str]) -> Iterator[Check]:
    """No range is empty, but where it was asked for or some size is 0."""
    for index, (low, high) in i.ranges.items():
        length = high - low
        if at_least_zero(length):
            continue
        solved = next((r.solved[index] for r in i.rounds if index in r.solved), None)
        if index in i.given:
            condition = f"{size(length)} >= 0"
        else:
            zero = [f"{size(s)} == 0" for s in i.scope.sizes.values() if s.names() & length.names()]
            condition = f"{size(length)} >= {1 - bool(zero)}"
            if zero:
                condition += f" and ({size(length)} >= 1 or {' or '.join(zero)})"
        why = f", from {' and '.join(solved.accesses)}" if solved else ""
        loc = solved.places[0] if solved and solved.places else i.statement.loc
        yield Check(condition, "PTO-R023", f"the range of `{index}`, {low}:{high}{why}, is empty for the sizes here",
                    loc, "pass arrays that are large enough")  # fmt: skip
