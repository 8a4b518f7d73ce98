# SPDX-License-Identifier: MIT
"""What names stand for after a run-time loop.

A name that the loop carries is its variable, or what it was before where nothing assigned it.  Another name has the
value of the paths that lead out of the loop: the last iteration's end, a `break`, and, where no iteration may run, the
way around it.  Where some of those leave it unset, whoever reads it is told.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.frames import MISSING, Frame, Unusable
from pto_jit.codegen.merging import Phi, joined_type, parts, rebuilt, same_constant
from pto_jit.codegen.regions import Key, Status
from pto_jit.codegen.retype import retyped
from pto_jit.codegen.rotation import Rotation
from pto_jit.codegen.values import Scalar, Tensor, is_runtime
from pto_jit.errors import Loc, Note
from pto_jit.ir.types import ScalarType

if TYPE_CHECKING:
    from pto_jit.codegen.loop_body import Carried, RunTimeLoop

_Path = tuple[Any, ast.AST | None, Status]  # a value, where it was assigned, how the path ends
_Result = tuple[Key, Any, ast.AST | None]


class LoopResults:
    """Names after a loop whose body is compiled and whose carried variables have their types.

    phis: variables that carry nothing into the next iteration; their copies are still to be written.
    broken: whether the loop was left by `break`, for its `else`.
    """

    def __init__(self, loop: RunTimeLoop, types: dict[str, ScalarType]) -> None:
        self.loop = loop
        self.g = loop.g
        self.phis: list[Phi] = []
        self.broken: bool | Scalar = False
        self._ended: list[_Result] = [(c.key, self._carried(c), c.place) for c in loop.carried]
        self._broken: list[_Result] = []
        for key in self._others():
            self._ended.append(self._other(key, types))
        if any(e.kind == "break" for e in loop.record.exits) and loop.node.orelse:
            self._note_breaks()
        for phi in self.phis:
            self._drop_unchanged(phi)

    # -- names --------------------------------------------------------------------------------------------------

    def _carried(self, c: Carried) -> Any:
        if c.unchanged:
            for phi in c.phis:  # nothing assigned it after all: it is still what it was
                phi.sources[1:] = [None] * (len(phi.sources) - 1)
            return c.before
        return self._final(c.header, c.phis)

    def _final(self, header: Any, phis: Sequence[Phi]) -> Any:
        """A carried value with the variables as their types turned out to be."""
        if isinstance(header, Scalar):
            phi = next((p for p in phis if p.holds(header)), None)
            return header if phi is None else Scalar(phi.var, phi.weak, self.loop.loc)
        items = parts(header)
        if items is None:
            return header
        done = [self._final(v, phis) for v in items]
        return header if all(a is b for a, b in zip(items, done, strict=True)) else rebuilt(header, done)

    def _others(self) -> Sequence[Key]:
        """Names that the body assigns, or an exit does, and that no iteration reads before it assigns them."""
        carried = {c.key for c in self.loop.carried}
        keys = [*self.loop.changes, *(k for item in self.loop.record.exits for k in item.values)]
        return [k for k in dict.fromkeys(keys) if k not in carried]

    def _other(self, key: Key, types: dict[str, ScalarType]) -> _Result:
        loop, exits = self.loop, self.loop.record.exits
        holder, name = key
        old, place = holder.vars.get(name, MISSING), loop.changes.get(key, (None, None))[1]
        if isinstance(holder, Frame) and name not in loop.names.live_after:
            return key, _unset(name, loop.loc), place
        if loop.kind == "parallel" and isinstance(holder, Frame):
            return key, _of_no_iteration(name, loop.loc), place
        if loop.turn is not None and holder is self.g.frame and name in loop.turn.tensors:
            return key, self._exchanged(loop.turn, name), place
        paths: list[_Path] = [(old, holder.places.get(name), None)]
        tested = any(e.kind == "test" and key in e.values for e in exits)
        at = [] if loop.runs or loop.forever or tested else [0]
        for k, item in enumerate(exits):
            value = item.values.get(key, loop.start.get(key, old))
            paths.append((retyped(value, types), place, item.target))
            ends = item.kind == "test" if tested else item.kind == "next" and not loop.forever
            if ends or item.kind == "break":
                at.append(k + 1)
        value = self._meeting(key, paths, at)
        if isinstance(value, Unusable) and value.unset and loop.node.orelse:
            ways = [k + 1 for k, item in enumerate(exits) if item.kind == "break"]
            self._broken.append((key, self._meeting(key, paths, ways), place))
        if isinstance(value, Unusable) and value.unset and not value.notes:
            value = _unset(name, loop.loc)
        return key, value, place

    def _exchanged(self, turn: Rotation, name: str) -> Tensor | Unusable:
        if self.loop.count is None or any(e.kind == "break" for e in self.loop.record.exits):
            return turn.unknown(name, self.loop.loc)
        return turn.after(self.loop.count)[name]

    def _meeting(self, key: Key, paths: Sequence[_Path], at: Sequence[int]) -> Any:
        """The value of a name where the paths `at` meet; `phis` gets the variables that it takes."""
        if not at:
            return MISSING
        made: list[Phi] = []
        holder, name = key
        value = self.g.control.meet(name, [paths[k] for k in at], made, holder, inner=True)
        for phi in made:
            sources: list[Any] = [None] * len(paths)
            for k, source in zip(at, phi.sources, strict=True):
                sources[k] = source
            phi.sources = sources
        self.phis += made
        return value

    def _note_breaks(self) -> None:
        """A variable that is set where the loop is left by `break`."""
        type_, _ = joined_type([True])
        var = self.g.e.fresh("broken", type_)
        self.phis.append(Phi(var, [False, *(e.kind == "break" for e in self.loop.record.exits)]))
        self.broken = True if self.loop.forever else Scalar(var, True, self.loop.loc)

    def _drop_unchanged(self, phi: Phi) -> None:
        """No copies at the end of iterations that would only set the value from before the loop again."""
        ends = [k + 1 for k, item in enumerate(self.loop.record.exits) if item.kind == "next"]
        start = phi.sources[0]
        if start is None or is_runtime(start):
            return
        if all(phi.sources[k] is None or same_constant(start, phi.sources[k]) for k in ends):
            for k in ends:
                phi.sources[k] = None

    # -- binding them -------------------------------------------------------------------------------------------

    def bind(self) -> None:
        """Bind the names to what they are after the loop."""
        self._bind(self._ended)

    def bind_broken(self) -> None:
        """Bind the names that have a value where the loop was left by `break`, and maybe none where it ended."""
        self._bind(self._broken)

    def _bind(self, results: Sequence[_Result]) -> None:
        g = self.g
        for (holder, name), value, place in results:
            if value is MISSING:
                g.unbind(holder, name)
            else:
                g.bind(holder, name, g.control.with_extents(value), place)


def _unset(name: str, loc: Loc) -> Unusable:
    notes = (Note("assigned in this loop, which may not run", loc),)
    return Unusable(f"`{name}` may be unset here", "PTO-N012", notes, f"assign `{name}` before the loop", unset=True)


def _of_no_iteration(name: str, loc: Loc) -> Unusable:
    notes = (Note("assigned in this parallel loop", loc),)
    return Unusable(f"`{name}` has the value of no particular iteration here", "PTO-L003", notes,
                    "the iterations of a parallel loop are independent: store the value to a tensor, or make the "
                    "loop sequential")  # fmt: skip
