# SPDX-License-Identifier: MIT
"""Checks of lengths and indices while a program runs, which say at which element of the lists it was.

A failure reports three numbers of 64 bits.  Where the lengths and the index path are more, two of 32 bits share one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pto_jit.codegen.emit import index
from pto_jit.fractal.compile.expr import Expr, Fetch, Writer, number
from pto_jit.fractal.compile.lists import Check, Loop
from pto_jit.ir.nodes import If, Op, Scope
from pto_jit.slotted import replace

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

WORDS = 3  # that a failure reports


def outside_of(loop: Loop, check: Check) -> Check | None:
    """The check before the loop around it, when it is the same in every iteration and says all that it says there."""
    s = loop.symbol
    if any(s in e.symbols() for e in (check.condition.value, *check.loops, *check.numbers)):
        return None
    path = tuple(e.replace({s: number(0)}) for e in check.path)  # the first iteration is the one that fails
    moved = [new for new, old in zip(path, check.path, strict=True) if new != old]
    if any(isinstance(a, Fetch) for e in moved for a in e.atoms()):  # which a loop without iterations may not read
        return None
    return replace(check, path=path, loops=(*check.loops, loop.length))


def write_check(g: Generator, check: Check, writer: Writer, *, alone: bool = False) -> None:
    """Stop the program unless the condition holds; outside of loops that costs no task where it does.

    alone: the loops around are around checks alone, so that in a program of tasks the host goes through them.
    """
    e = g.e
    ok = writer.condition(check.condition)
    for length in check.loops:
        empty = e.scalar("lt", [writer.expr(length), index(1)]).operand
        ok = e.scalar("or", [ok, empty]).operand
    message, told, words = _reported(check)
    text = f"PTO-F190: {message}; {check.hint}"
    attrs = (("always", True), ("error", check.error), ("message", text), ("told", told))
    stop = Op("assert", (), (ok, *map(writer.expr, words)), attrs, (), check.loc)
    if (g.loops or writer.values) and not (alone and g.tasks):
        e.append(stop)
        return
    wrong = e.scalar("not", [ok]).operand
    e.append(If(wrong, (Scope("check", (stop,), False, check.loc),), (), check.loc))


def _reported(check: Check) -> tuple[str, str, list[Expr]]:
    """The message up to its first number, the rest with the places of what is reported, and the words reported."""
    path = check.path[: 2 * WORDS - len(check.numbers)]
    items = [*check.numbers, *path]
    pairs = max(0, len(items) - WORDS)
    alone = len(items) - 2 * pairs
    halves = zip(items[alone::2], items[alone + 1 :: 2], strict=True)
    words = [*items[:alone], *(high * (1 << 32) + low for high, low in halves)]
    places = [f"{{{k}}}" for k in range(alone)]
    places += [f"{{{k}.{half}}}" for k in range(alone, len(words)) for half in ("high", "low")]
    numbers, at = places[: len(check.numbers)], places[len(check.numbers) :]
    message, *_ = check.message.partition("{}")
    told = check.message[len(message) :].format(*numbers)
    if at:
        told += ", at element " + "".join(f"[{p}]" for p in at) + ("[...]" if len(path) < len(check.path) else "")
    return message, told, words
