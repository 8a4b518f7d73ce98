# SPDX-License-Identifier: MIT
"""What a program asks of its nests, and what decisions of kind "schedule" say of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from pto_jit.errors import CompilationError, ScheduleError
from pto_jit.fractal.compile.expr import Writer
from pto_jit.fractal.compile.hyperplane import NoSchedule
from pto_jit.fractal.compile.lists import Loop
from pto_jit.fractal.compile.nest import Nest, perfect
from pto_jit.lower.decisions import Decision

if TYPE_CHECKING:
    from pto_jit.fractal.compile.session import Session

Plan = Callable[[Writer], None] | None
"""What writes a nest by another plan than in order."""


def asked_of(loop: Loop) -> tuple[str, bool]:
    """The schedule that the outermost call which says one asks for; whether one gives `tile=`."""
    asked, tiled = "auto", False
    while True:
        asked = loop.schedule if asked == "auto" else asked
        tiled = tiled or loop.tile is not None
        inner = [i for i in loop.body if isinstance(i, Loop)]
        if len(inner) != 1:
            return asked, tiled
        loop = inner[0]


def decided(session: Session, loop: Loop, plan: str, reason: str, nest: Nest | None) -> None:
    """Record a decision of kind "schedule", with the nest drawn: its distances, too, where it is perfect."""
    if nest is None:
        with suppress(NoSchedule):
            nest = perfect(loop)
    names = tuple(map(str, nest.symbols)) if nest is not None else (str(loop.symbol),)
    picture = session.drawing.nest(nest) if nest is not None else session.drawing.loop(loop)
    session.g.decisions.append(Decision("schedule", names, True, f"{plan}: {reason}\n{picture}", loop.loc))


def unavailable(session: Session, asked: str, reason: str) -> CompilationError:
    return session.g.error(
        ScheduleError,
        f"schedule={asked!r} cannot be had: {reason}",
        code="PTO-F150",
        hint='use schedule="auto", which says in `decisions` what it chose',
    )
