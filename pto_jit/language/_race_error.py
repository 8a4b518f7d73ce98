# SPDX-License-Identifier: MIT
"""How a race between two iterations of a loop is told, wherever it was found."""

from __future__ import annotations

from typing import Literal

from pto_jit.errors import NOWHERE, Loc, RaceError, excerpt
from pto_jit.slotted import frozen

Verb = Literal["reads", "writes", "updates"]
_HELP = (
    "use `pl.atomic_add` for a place that differs among iterations, write the update of one place as a reduction "
    "(`v += e`), or make the loop sequential"
)


@frozen
class Access:
    """What a statement does to a tensor (by its name in the source), and where it stands."""

    verb: Verb
    tensor: str
    loc: Loc = NOWHERE


def race_error(
    function: str, loop: str, loop_loc: Loc, now: Access, then: Access, iterations: tuple[int, int],
    element: tuple[int, ...] | None,
) -> RaceError:  # fmt: skip
    """The error for two accesses; `iterations` are the loop variable then and now."""
    first, second = iterations
    place = now.tensor if element is None else f"{now.tensor}[{', '.join(map(str, element))}]"
    if now.verb == then.verb and now.tensor == then.tensor:
        told = f"iterations {first} and {second} of the loop over `{loop}` both {now.verb[:-1]} `{place}`"
    else:
        other = "" if now.tensor == then.tensor else f" as `{then.tensor}`"
        told = f"iteration {second} of the loop over `{loop}` {now.verb} `{place}`, which iteration {first} {then.verb}"
        told += other
    lines = [f"PTO-L900: {function}: {told}"]
    if now.loc.lineno:
        lines += excerpt(now.loc) or [f"  --> {now.loc}"]
    lines += _callers(now.loc)
    lines.append(f"note: iteration {first} {then.verb} it here  {then.loc}")
    if then.loc != now.loc:
        lines += excerpt(then.loc)[2:]
        lines += _callers(then.loc)
    lines.append(f"note: the loop over `{loop}`  {loop_loc}")
    lines.append(f"help: {_HELP}")
    error = RaceError("\n".join(lines))
    error.code, error.loc = "PTO-L900", now.loc
    error.loop, error.iterations, error.tensor, error.element = loop, iterations, now.tensor, element
    error.places = (then.loc, now.loc)
    return error


def _callers(loc: Loc) -> list[str]:
    lines: list[str] = []
    caller = loc.caller
    while caller is not None:
        lines.append(f"called from {caller}")
        caller = caller.caller
    return lines
