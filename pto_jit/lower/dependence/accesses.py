# SPDX-License-Identifier: MIT
"""Every access of a function to tensor memory: which tensor, which rectangle, in which loops, under which conditions.

An element is a rectangle of one element; tile loads and stores are rectangles as large as their declared extents, so
they may be larger than what is touched, never smaller.  Views, slices and transposes are followed to the tensor they
look at; a reshaped tensor has coordinates of its own and is compared by the flat position of its elements.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Literal

from pto_jit.errors import Loc
from pto_jit.ir.nodes import Call, For, Func, Op, While
from pto_jit.lower.dependence.linear import ZERO, Linear
from pto_jit.lower.dependence.values import NONE, Conditions, Loops, Values
from pto_jit.lower.names import source_name
from pto_jit.slotted import field, frozen, mutable

if TYPE_CHECKING:
    from pto_jit.lower.dependence.conflicts import Conflict

ATOMIC = ("atomic_add", "atomic_max", "atomic_min")


@frozen
class Span:
    """Positions along one axis from `low` to before each of `highs`; `low` None: any."""

    low: Linear | None
    highs: tuple[Linear, ...] = ()

    @property
    def point(self) -> bool:
        return self.low is not None and len(self.highs) == 1 and self.highs[0] == self.low.plus(1)


ANYWHERE = Span(None)


@frozen
class Root:
    """Where memory comes from: an argument, an allocation (a new one in each iteration of its loops), or unknown."""

    name: str
    kind: Literal["argument", "alloc", "unknown"]
    loops: Loops = NONE


@frozen
class Space:
    """A system of coordinates on a root: the root's own (`key` None) or that of a reshaped part of it.

    `offset` and `strides` give the flat position of an element among those of the root; None: not known.
    """

    root: Root
    key: Hashable
    extents: tuple[Linear, ...]
    offset: Linear | None
    strides: tuple[Linear, ...] | None
    contiguous: bool  # neighbours along the last axis lie side by side


@frozen
class View:
    """A tensor variable: the rectangle of its space that it shows, the space's axis of each of its own, and from one
    element to the next along these."""

    space: Space
    spans: tuple[Span, ...]
    order: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def inside(self) -> tuple[Span, ...]:
        """Where its elements are: along axes that it steps over anywhere."""
        apart = {axis for axis, step in zip(self.order, self.steps, strict=True) if step != 1}
        return tuple(ANYWHERE if axis in apart else span for axis, span in enumerate(self.spans))


@frozen
class Loop:
    """A loop around accesses.

    `value` is its variable, in terms of `atom`: the variable itself when the step is 1, else the number of the
    iteration.  `rising`: the variable grows from one iteration to the next (False: it falls; None: not known).
    """

    number: int
    stmt: For | While
    outer: tuple[int, ...]  # the loops around it, itself last
    atom: int
    value: Linear
    start: Linear | None
    step: Linear
    rising: bool | None

    @property
    def counted(self) -> bool:
        """Whether the atom is the number of the iteration."""
        return self.value.terms != ((self.atom, 1),) or self.value.const != 0

    @property
    def name(self) -> str:
        return source_name(self.stmt.var.name) if isinstance(self.stmt, For) else "while"


@frozen
class Access:
    """One access; `conditions` are those it stands under, each with the number of loops around the condition."""

    op: Op | Call
    loc: Loc
    space: Space
    spans: tuple[Span, ...]
    write: bool
    stack: tuple[int, ...]
    conditions: tuple[tuple[int, Conditions], ...]
    order: int
    certain: bool  # touches the first element of its rectangle, if that lies inside the tensor
    whole: bool  # and all other elements inside the tensor, too
    aligned: bool = False  # a store of a tile loaded at a constant distance: what the tensors there have, it has

    @property
    def root(self) -> Root:
        return self.space.root

    def shares_root(self, other: Access) -> bool:
        """Whether both are accesses of one tensor."""
        one, two = self.space.root, other.space.root
        return one is two or (one.name == two.name and one == two)

    @property
    def atomic(self) -> str | None:
        return self.op.op if isinstance(self.op, Op) and self.op.op in ATOMIC else None


@mutable
class Accesses:
    """What `collect` finds in a function, in the order of the text."""

    func: Func
    values: Values = field(default_factory=Values)
    loops: list[Loop] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    outside: list[tuple[Op, tuple[int, ...]]] = field(default_factory=list)  # effects on the outside world
    distances: dict[tuple[int, int], dict[int, int] | None] = field(default_factory=dict)  # see `quick.distances`
    answers: dict[tuple[object, ...], Conflict] = field(default_factory=dict)  # see `conflict`
    _by_stmt: dict[int, Loop] = field(default_factory=dict)  # loops by the ids of their statements
    _by_loop: dict[int, list[Access]] = field(default_factory=dict)  # accesses by the numbers of the loops around them

    def loop_of(self, stmt: For) -> Loop | None:
        """The loop of a statement of the function, by identity."""
        if len(self._by_stmt) != len(self.loops):
            self._by_stmt = {id(loop.stmt): loop for loop in reversed(self.loops)}
        return self._by_stmt.get(id(stmt))

    def loop_named(self, name: str) -> Loop | None:
        """The loop with this variable; None when there is none or more than one."""
        found = [loop for loop in self.loops if isinstance(loop.stmt, For) and loop.stmt.var.name == name]
        return found[0] if len(found) == 1 else None

    def inside(self, loop: Loop) -> Sequence[Access]:
        """The accesses inside a loop, of all that were found."""
        if not self._by_loop:
            for access in self.accesses:
                for number in access.stack:
                    self._by_loop.setdefault(number, []).append(access)
        return self._by_loop.get(loop.number, ())

    def text(self, access: Access, *, line: bool = True) -> str:
        """An access as the user would write it, with its line."""
        name = source_name(access.root.name)
        at = f" (line {access.loc.lineno})" if line else ""
        if access.space.key is not None or not access.spans:
            return f"`{name}`{at}"
        parts = [self._span_text(span, n) for span, n in zip(access.spans, access.space.extents, strict=True)]
        return f"`{name}[{', '.join(parts)}]`{at}"

    def _span_text(self, span: Span, extent: Linear) -> str:
        if span.low is None:
            return "..."
        low = self.values.text(span.low)
        if span.point:
            return low
        if span.low == ZERO and extent in span.highs:
            return ":"
        return f"{low}:{self.values.text(span.highs[0])}" if span.highs else f"{low}:"
