# SPDX-License-Identifier: MIT
"""The items of compile-time iterables: comprehensions, generator expressions, `map` and `filter`.

Generators compute their items when they are asked for them, as Python's do: an item sees what memory and variables hold
at that time, and what nobody asks for is not computed.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.changes import is_iterator
from pto_jit.codegen.counting import counted
from pto_jit.codegen.frames import MISSING, Frame
from pto_jit.codegen.iteration import LoopSpec, as_items
from pto_jit.codegen.names import FunctionNames, stores
from pto_jit.codegen.regions import Region
from pto_jit.codegen.syntax import refuse
from pto_jit.codegen.values import Scalar, is_runtime
from pto_jit.errors import CompilationError, Note
from pto_jit.slotted import frozen

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

Step = Callable[[], Any]
"""An item, as what computes it."""

_MOST = 1_000_000
_ANYWHERE = 1 << 30  # deeper than any run-time branch or loop


@frozen(eq=False)
class Source:
    """What a generator expression was made of: its node, the frame around it, what it goes through."""

    node: ast.GeneratorExp
    frame: Frame
    value: Any


class Items:
    """The iterator that a generator expression, `map` or `filter` in a kernel gives.

    `steps` go on in the frame and at the place where the iterator was made.
    """

    __slots__ = ("_frame", "_g", "_node", "_open", "_read_in", "_running", "_steps", "_unsure", "settled",
                 "unread")  # fmt: skip

    def __init__(
        self, g: Generator, steps: Iterator[Step], frame: Frame, node: ast.AST, source: Source | None = None
    ) -> None:
        self._g, self._steps, self._frame, self._node = g, steps, frame, node
        self._open = _enclosing(g.inner)  # the branches and loops that it was made in
        self._read_in: Region | None = None  # where it was read last
        self._unsure: object = None  # the search that read it, which may end before at run time
        self._running = False
        self.settled: deque[Any] | None = None  # the items left, when all were computed
        self.unread = source  # of a generator expression that nobody has asked for an item

    def __iter__(self) -> Items:
        return self

    def __next__(self) -> Any:
        return self.step()()

    def step(self) -> Step:
        """The next item; StopIteration where there is none."""
        self._check()
        self.unread = None
        if self._g.items.undecided:
            self._unsure = self._g.items.undecided[-1]
        if self.settled is not None:
            if not self.settled:
                raise StopIteration
            item = self.settled.popleft()
            return lambda: item
        found = self._in_place(lambda: next(self._steps))
        return lambda: self._in_place(found)

    def settle(self) -> None:
        """Compute all items that are left now."""
        if self.settled is None:
            self.settled = deque(self)

    def leave(self, to_the_end: bool) -> None:
        """A loop reads the items: all of them, or as many as run time decides."""
        self._check()
        self.unread, self.settled = None, deque()
        if not to_the_end:
            self._unsure = self

    def _in_place(self, run: Callable[[], Any]) -> Any:
        g = self._g
        if self._running:
            raise self._error("a generator that asks for its own next item", "PTO-N004", "make a list of its items")
        frame, node, self._running = g.frame, g.node, True
        g.frame, g.node = self._frame, self._node
        g.static_loops += 1
        try:
            return run()
        finally:
            g.frame, g.node, self._running = frame, node, False
            g.static_loops -= 1

    def _check(self) -> None:
        """Refuse to go on where it depends on the run of the program how far it was read."""
        now = _enclosing(self._g.inner)
        known = set(map(id, self._open))
        loop = next((r for r in now if r.loop is not None and id(r) not in known), None)
        left = self._read_in is not None and self._read_in not in now
        unsure = self._unsure is not None and self._unsure not in self._g.items.undecided
        if loop is None and not left and not unsure:
            self._read_in = self._g.inner
            return
        place = () if loop is None else (Note("this loop is decided at run time", loop.loc),)
        raise self._error(
            "how far this generator was read before is only known at run time", "PTO-N068",
            "make a list or a tuple of its items, or write the generator where it is read", place,
        )  # fmt: skip

    def _error(self, message: str, code: str, hint: str, notes: tuple[Note, ...] = ()) -> CompilationError:
        return self._g.error(CompilationError, message, code=code, hint=hint, notes=notes)


def _enclosing(region: Region | None) -> list[Region]:
    found: list[Region] = []
    while region is not None:
        found.append(region)
        region = region.parent
    return found


class ItemsOf:
    """Goes through compile-time iterables, at the current place."""

    def __init__(self, generator: Generator) -> None:
        self.g = generator
        self.undecided: list[object] = []  # searches that may have ended at run time, by what they found before

    def each(self, value: Any, node: ast.AST) -> Iterator[Any]:
        """The items of a compile-time iterable, one by one."""
        return (step() for step in self.steps(value, node))

    def all_of(self, value: Any, node: ast.AST) -> list[Any]:
        """The items of a compile-time iterable."""
        return list(self.each(value, node))

    def steps(self, value: Any, node: ast.AST) -> Iterator[Step]:
        """What gives the items of a compile-time iterable, one by one; those of generators are computed then."""
        g = self.g
        g.node = node
        if isinstance(value, LoopSpec):
            constants = as_items(value)
            value = value if constants is None else constants
        if is_runtime(value):
            raise g.expressions.not_iterable(value)
        if counted(value):
            raise g.error(
                CompilationError,
                "a comprehension over a range with run-time bounds",
                code="PTO-N019",
                hint="write a `for` loop over `pl.range`, or give constant bounds; sum, min, max, any, all, "
                "next, math.prod and functools.reduce take generators over such ranges",
            )
        if isinstance(value, Items):
            return _steps_of(value)
        own = getattr(type(value), "__pto_iterate__", None)
        if own is not None:
            return _at_hand(iter(own(value, g)))
        if is_iterator(value):
            g.check_mutable(value, "going through it")
        return self._of_python(g.python(iter, value))

    def _of_python(self, iterator: Any) -> Iterator[Step]:
        g = self.g
        for _ in range(_MOST):
            item = g.python(next, iterator, MISSING)
            if item is MISSING:
                return
            yield lambda item=item: item
        raise g.error(CompilationError, f"a compile-time iterable with more than {_MOST} items", code="PTO-N021",
                      hint="is it endless?")  # fmt: skip

    def search(self, value: Any, node: ast.AST, end: bool, join: Callable[[Any, Step], Any]) -> Any:
        """Join items to a truth, first `not end`, until it is `end`: a Python bool, by the items that Python reads."""
        found: Any = not end
        search = object()
        for step in self.steps(value, node):
            found = join(found, step)
            if found is end:
                break
            if is_runtime(found) and search not in self.undecided:
                self.undecided.append(search)
        if search in self.undecided:
            self.undecided.remove(search)
        return Scalar(found.operand, True, found.origin) if isinstance(found, Scalar) else found

    # -- comprehensions -----------------------------------------------------------------------------------------

    def comprehension(self, node: Any) -> list[Any]:
        """The items of a comprehension, (key, value) pairs of a dict's; its names are its own."""
        g = self.g
        outer = g.frame
        first = self.each(g.expressions.visit(node.generators[0].iter), node.generators[0].iter)
        g.frame = self._frame(node, g.depth)
        g.static_loops += 1
        results = [step() for step in self._generate(node, 0, first)]
        g.static_loops -= 1
        g.frame = outer
        return results

    def generator(self, node: ast.GeneratorExp) -> Items:
        """A generator expression; as in Python, what it goes through is computed where it stands."""
        g = self.g
        iterable = node.generators[0].iter
        value = g.expressions.visit(iterable)
        # a run-time range is for loops (`folding`): reading it otherwise is an error
        first = self._later(value, iterable) if counted(value) else self.each(value, iterable)
        # its variables belong to the items, not to the branch that one is computed in
        frame = self._frame(node, _ANYWHERE)
        return Items(g, self._generate(node, 0, first), frame, node, Source(node, g.frame, value))

    def _later(self, value: Any, node: ast.AST) -> Iterator[Any]:
        yield from self.each(value, node)

    def _frame(self, node: Any, region: int) -> Frame:
        """The variables of a comprehension."""
        outer = self.g.frame
        names = outer.file.notes.get(node)
        if not isinstance(names, FunctionNames):
            bound = frozenset(stores([c.target for c in node.generators]))
            names = outer.file.notes[node] = FunctionNames((), bound, frozenset(), frozenset(), frozenset())
        frame = Frame(outer.file, names, outer.globals, {}, outer, outer.name, region, outer.caller, True)
        frame.is_orchestration = outer.is_orchestration
        return frame

    def _generate(self, node: Any, k: int, items: Iterator[Any]) -> Iterator[Step]:
        g = self.g
        generator = node.generators[k]
        if generator.is_async:
            raise refuse(g, node, "async comprehension")
        visit = g.expressions.visit
        for item in items:
            g.assignments.assign(generator.target, item)
            if not all(self._keeps(test) for test in generator.ifs):
                continue
            if k + 1 < len(node.generators):
                inner = node.generators[k + 1]
                yield from self._generate(node, k + 1, self.each(visit(inner.iter), inner.iter))
            elif isinstance(node, ast.DictComp):
                yield lambda: (visit(node.key), visit(node.value))
            else:
                yield lambda: visit(node.elt)

    def _keeps(self, test: ast.expr) -> bool:
        g = self.g
        value = g.expressions.condition(test)
        g.node = test
        return bool(g.python(bool, g.static(value, "the condition of a comprehension")))


def _steps_of(items: Items) -> Iterator[Step]:
    while True:
        try:
            step = items.step()
        except StopIteration:
            return
        yield step


def _at_hand(items: Iterator[Any]) -> Iterator[Step]:
    for item in items:
        yield lambda item=item: item
