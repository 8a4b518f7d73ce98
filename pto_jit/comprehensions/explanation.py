# SPDX-License-Identifier: MIT
"""`explain`: the rounds of inference in words, with the source."""

from __future__ import annotations

from pto_jit.comprehensions.results import Inference, StatementInference
from pto_jit.errors import Loc, excerpt


def explanation(found: Inference) -> str:
    """Round by round how the range of each index came about, and what it means for results and preconditions."""
    lines = [f"{found.analysis.definition.name}"]
    for number, s in enumerate(found.statements, 1):
        lines.append("")
        lines.append(f"statement {number}: `{s.target}`")
        lines += _excerpt(s.inferred.statement.loc)
        lines += _statement(s)
    lines.append("")
    for name, shape in found.shapes.items():
        origin = found.origins[name]
        text = f"`{name}` has the shape ({', '.join(map(str, shape))})"
        if any(str(o) != "0" for o in origin):
            text += f", its first element is the one of index ({', '.join(map(str, origin))})"
        lines.append(text)
    for p in found.preconditions:
        how = "checked when the sizes are known" if p.kind == "shape" else "not checked, but with debug=True"
        lines.append(f"required: {p} ({how})")
        lines += _excerpt(p.loc)
    return "\n".join(lines)


_VERBS = {"sum": "summed", "prod": "multiplied", "min": "minimised", "max": "maximised"}


def _statement(s: StatementInference) -> list[str]:
    inferred = s.inferred
    lines: list[str] = []
    for index in inferred.ranges:
        if index in inferred.given:
            low, high = s.ranges[index]
            lines.append(f"  given: `{index}` goes from {low} to {high} (exclusive)")
    for number, r in enumerate(s.rounds, 1):
        lines.append(f"  round {number}:")
        for index, solved in r.solved.items():
            lines.append(
                f"    `{index}` is alone in {' and '.join(solved.accesses)}: it goes from {solved.low} to "
                f"{solved.high} (exclusive)"
            )
            for place in dict.fromkeys(solved.places):
                lines += ["  " + line for line in _excerpt(place)[1:]]
    reduced = inferred.reduced
    if reduced:
        verb = _VERBS[inferred.statement.op or "sum"]
        lines.append(f"  {verb} over {', '.join(f'`{i}`' for i in reduced)}")
    return lines


def _excerpt(loc: Loc) -> list[str]:
    return excerpt(loc)[1:]
