# SPDX-License-Identifier: MIT
"""Checks of lengths and indices while a program runs, which say at which element of the lists it was.

A failure reports three numbers of 64 bits.  Where the lengths and the index path are more, two of 32 bits share one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.emit import I64, constant, index
from pto_jit.dtypes import bool_
from pto_jit.fractal.compile.expr import Expr, Fetch, Writer, number, numbering_of
from pto_jit.fractal.compile.lists import Check, Loop
from pto_jit.ir.nodes import For, If, Op, Operand, Scope, Var
from pto_jit.ir.types import ScalarType
from pto_jit.slotted import replace

if TYPE_CHECKING:
    from pto_jit.codegen.emit import Emitter
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


def any_fails(g: Generator, loop: Loop, writer: Writer) -> Var:
    """Whether a check in a loop around checks alone fails, without a branch for each of them: loops over integers that
    machine code goes through several at a time, and no loop where the first or last iteration decides."""
    wrong = g.e.fresh("wrong", ScalarType(bool_))
    numbering_of(g.e).assigned.add(wrong.name)
    g.e.append(Op("copy", (wrong,), (constant(False, bool_),), (), (), g.e.loc))
    _look(g, [loop], writer, wrong)
    return wrong


def _look(g: Generator, items: Sequence[Any], writer: Writer, wrong: Var) -> None:
    """Set `wrong` where one of the checks in records fails.  What a check fetches an earlier one may decide, whose
    failure would have stopped the program: it is fetched only while nothing is wrong."""
    e = g.e
    fetched: set[Fetch] | None = None  # before the first check
    for item in items:
        new = _fetched(item)
        apart = fetched is not None and (isinstance(item, Loop) or bool(new - fetched))
        fetched = new if fetched is None else fetched | new
        with e.block() as block:
            if isinstance(item, Check):
                fails = e.scalar("not", [_holds(e, item, writer)]).operand
                found = e.scalar("or", [wrong, fails]).operand
                e.append(Op("copy", (wrong,), (found,), (), (), e.loc))
            else:
                _look_through(g, item, writer, wrong)
        if apart:
            _unless(e, wrong, block)
        else:
            e.current.extend(block)


def _look_through(g: Generator, loop: Loop, writer: Writer, wrong: Var) -> None:
    e = g.e
    outermost, rest = _at_an_end(loop)
    if outermost:
        some = writer.op("gt", writer.expr(loop.length), index(0))
        with e.block() as block:
            _look(g, outermost, writer, wrong)
        e.append(If(some, tuple(block), (), e.loc))
    if rest:
        with e.block() as around:
            var = e.fresh(loop.symbol.name, I64)
            with e.block() as block:
                _look(g, rest, writer.but({loop.symbol: var}), wrong)
            e.append(For("sequential", var, index(0), writer.expr(loop.length), index(1), tuple(block), loc=e.loc))
        _unless(e, wrong, around)


def _unless(e: Emitter, wrong: Var, block: Sequence[Any]) -> None:
    e.append(If(e.scalar("not", [wrong]).operand, tuple(block), (), e.loc))


def _fetched(item: Any) -> set[Fetch]:
    """What a check fetches."""
    if not isinstance(item, Check):
        return set()
    return {a for x in (item.condition.value, *item.loops) for a in x.atoms() if isinstance(a, Fetch)}


def _at_an_end(loop: Loop) -> tuple[list[Check], list[Any]]:
    """The checks of a loop of which the first or last iteration decides whether they hold, as they are there; and what
    else is in the loop."""
    found: list[Check] = []
    rest: list[Any] = []
    for item in loop.body:
        times = item.condition.value.coefficient(loop.symbol) if isinstance(item, Check) else None
        if times is None or item.condition.kind not in ("negative", "positive") or item.loops:
            rest.append(item)
            continue
        last = (times > 0) == (item.condition.kind == "negative")
        at = loop.length - 1 if last else number(0)
        found.append(replace(item, condition=item.condition.replace({loop.symbol: at})))
    return found, rest


def _holds(e: Emitter, check: Check, writer: Writer) -> Operand:
    """Whether the condition of a check holds, or a loop around it has no iteration."""
    ok = writer.condition(check.condition)
    for length in check.loops:
        empty = e.scalar("lt", [writer.expr(length), index(1)]).operand
        ok = e.scalar("or", [ok, empty]).operand
    return ok


def write_check(g: Generator, check: Check, writer: Writer, *, alone: bool = False) -> None:
    """Stop the program unless the condition holds; outside of loops that costs no task where it does.

    alone: the loops around are around checks alone, so that in a program of tasks the host goes through them.
    """
    e = g.e
    ok = _holds(e, check, writer)
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
