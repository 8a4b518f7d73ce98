# SPDX-License-Identifier: MIT
"""Indices that are compared with the length of their list while the program runs.

What an index outside of its list would read is the memory of something else; where it decides which list is read, also
the lengths that follow.  So each is compared, before all that depends on it.
"""

from __future__ import annotations

from collections.abc import Callable

from pto_jit.fractal.compile.expr import Condition, Expr, Fetch, Symbol, of, pick
from pto_jit.fractal.compile.lists import CHECKS, Loop
from pto_jit.fractal.compile.session import Session
from pto_jit.lower.pipeline import DEVICES


def is_index(at: Expr) -> bool:
    """Whether an expression is at least 0: sums of the indices of loops."""
    return at.const >= 0 and all(isinstance(atom, Symbol) and times > 0 for atom, times in at.terms)


def from_the_end(at: Expr, length: Expr) -> Expr:
    """An index that the data decide, which counts from the end where it is negative; that of a loop stays affine."""
    if _is_of_a_loop(at):
        return at
    return pick(Condition("negative", at), at + length, at)


def _is_of_a_loop(at: Expr) -> bool:
    return any(isinstance(atom, Symbol) for atom, _ in at.terms)


def _varies(*values: Expr) -> bool:
    return any(isinstance(a, (Symbol, Fetch)) for value in values for a in value.atoms())


def checked(session: Session, at: Expr, length: Expr) -> None:
    """Let the program stop here unless `at` is an index of a list of that length.

    For devices the host would do that, number by number, and wait for each that it reads from there: what loops and
    data decide is compared with `debug=True` alone.
    """
    known = at.constant
    if known is not None:
        needed = known if known >= 0 else -known - 1
        _check(session, Condition("positive", length - 1 - needed), at, length)
        return
    if session.g.options.target in DEVICES and not session.g.options.debug and _varies(at, length):
        return
    if not is_index(at):
        _check(session, Condition("positive", at if _is_of_a_loop(at) else at + length), at, length)
    if not any(at == of(loop.symbol) and loop.length == length for loop in session.loops):
        _check(session, Condition("negative", at - length), at, length)


def all_checked(session: Session, count: Expr, at: Callable[[Expr], Expr], length: Expr) -> None:
    """Let the program stop here unless `at(k)` is an index of a list of that length, for each k < count."""
    symbol = session.symbol(session.loop_name())
    loop = Loop(symbol, count, "carry", session.g.e.loc, [], CHECKS)
    session.loop(loop, lambda: checked(session, at(of(symbol)), length))


def _check(session: Session, condition: Condition, at: Expr, length: Expr) -> None:
    hint = "indices run from 0 to the length less 1"
    session.check(condition, "index {} of a list of length {}", hint, at, length, error="BoundsError")
