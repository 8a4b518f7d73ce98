# SPDX-License-Identifier: MIT
"""Several planes at a time of each group: for planes of few rows.

A worker that has one batch of a plane reads the operands that the batch shares (the weights of a layer), does little
with them, and waits for the others.  So where planes are narrow, which their lengths say while the program runs, a
worker has a strip of `span` planes of its group, one plane after the other, before all wait.  A cell reads groups up to
its own, in earlier planes: group g is `skew` * g strips behind the first one, so what it reads was done before, or is
in its own strip.  Each batch has the rows that it has otherwise, and the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pto_jit.codegen.emit import index
from pto_jit.fractal.compile.expr import Condition, Expr, Symbol, Writer, binary, number, of, operand
from pto_jit.ir.nodes import Operand
from pto_jit.slotted import frozen

if TYPE_CHECKING:
    from pto_jit.fractal.compile.wavefront import Planes

SPAN = 8
"""Planes that a strip has at most."""
NARROW = 4000.0
"""Nanoseconds: a batch that takes longer is not worth a strip; of cells that take longer, one of one row is."""
SMALL = 1000.0
"""Nanoseconds: waiting shows beside cells that take less, so that strips are as long as `FEWEST` allows."""
FEWEST, FEW = 2, 8
"""Strips that a group has for each group, at least: of small cells, of others.  Fewer would leave workers idle."""


@frozen(eq=False)
class Strips:
    """Strips of `span` planes of the `count` planes of each of `groups` groups, group g `skew` * g strips later."""

    span: Expr
    skew: Expr
    count: Expr
    groups: Expr
    carried: bool  # the index of a group counts for the number of its planes
    number: Symbol  # of the strips that run together

    @property
    def blocks(self) -> Expr:
        """The strips of a group."""
        return binary("floordiv", self.count + self.span - 1, self.span)

    @property
    def steps(self) -> Expr:
        """How often workers wait."""
        return self.blocks + self.skew * (self.groups - 1)

    def bounds(self) -> tuple[Expr, Expr]:
        """The groups [low, high) of a step."""
        if not self.carried:
            return number(0), self.groups
        now = of(self.number)
        behind = self.blocks - 1 - (number(1) - self.skew) * (self.groups - 1)
        return binary("max", number(0), now - behind), binary("min", self.groups, now + 1)

    def planes(self, group: Expr) -> tuple[Expr, Expr]:
        """The first plane of a group in a step, and how many."""
        first = (of(self.number) - self.skew * group) * self.span
        return first, binary("min", self.span, self.count - first)


def strips_of(
    planes: Planes, room: Expr, distances: Sequence[tuple[Expr, ...]], cell: float, writer: Writer
) -> Strips | None:
    """The strips of a nest whose planes have `room` rows a batch at most; None where it cannot have any.

    distances: all of them; cell: nanoseconds that one takes in order.
    """
    if not can_have(planes, distances):
        return None
    (group,) = planes.group
    count = number(1)
    for c, n in zip(planes.h, planes.longest, strict=True):
        count = count + (n - 1) * c
    count, groups = operand(writer.expr(count)), planes.longest[group]
    fewest = FEWEST if cell < SMALL else FEW
    span = span_of(count, groups, fewest)
    narrow = Condition("negative", room - (int(NARROW / cell) + 2))
    span = operand(writer.e.scalar("select", [writer.condition(narrow), writer.expr(span), index(1)]).operand)
    skew = operand(writer.expr(binary("min", number(1), span - 1))) if planes.h[group] else number(0)
    return Strips(span, skew, count, groups, bool(planes.h[group]), planes.strip)


def can_have(planes: Planes, distances: Sequence[tuple[Expr, ...]]) -> bool:
    """Whether there is one loop of groups, which read no later ones."""
    if len(planes.group) != 1 or planes.eliminated is None or planes.h[planes.group[0]] not in (0, 1):
        return False
    along = [d[planes.group[0]].constant for d in distances]
    return all(d is not None and d >= 0 for d in along)


def span_of(count: Expr, groups: Expr, fewest: int) -> Expr:
    """The planes of a strip, so that a group has `fewest` strips for each group at least."""
    return binary("max", number(1), binary("min", number(SPAN), binary("floordiv", count, groups * fewest + 1)))


def kept(strips: Strips, back: Expr, distances: Sequence[tuple[Expr, ...]], group: int) -> Expr:
    """How many planes of an array are kept whose cells are read up to `back` planes later, over these distances."""
    furthest = max((d[group].constant or 0 for d in distances), default=0)
    return strips.span * (strips.skew * furthest + 1) + back


def each_plane(
    strips: Strips, group: Expr, plane: Symbol, writer: Writer, loop: Callable[..., None], body: Callable[..., None]
) -> None:
    """`body` for the planes of a group in a step, in their order."""
    first, many = strips.planes(group)
    start: Operand = writer.expr(first)
    loop(writer, plane, writer.op("add", start, writer.expr(many)), body, start=start)
