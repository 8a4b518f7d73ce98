# SPDX-License-Identifier: MIT
"""Flags and barriers between the pipes.

The kernel is run in thought, every loop a few times, keeping for each pipe which work of the other pipes is known to be
done when its next instruction starts (vector clocks: Mattern, 1989).  An instruction that touches what another one
touched before, one of them writing, without knowing it done is a hazard; a hazard gets

* a barrier of the pipe, when both are of one pipe;
* a flag from one pipe to the other in the innermost block around both: set after the first, waited for before the
  second;
* when the second is of a later iteration, the same in the body of the loop, with the flag set once before the outermost
  loop around it and waited for once after.

The same is done where a flag might be raised again before its pipe has seen it.  In a loop whose buffers take turns,
there is a flag for each turn.  Where the eight flags between two pipes are used up,
a barrier of all pipes takes their place.  This is repeated until there are no hazards.
"""

from __future__ import annotations

from pto_jit.errors import InternalError
from pto_jit.slotted import frozen, mutable
from pto_jit.targets.ascend.accesses import Access, accesses, pipe_of, walk
from pto_jit.targets.ascend.form import SLOT, Barrier, Branch, Buffer, Loop, Node, SetFlag, WaitFlag
from pto_jit.targets.ascend.machine import EVENTS, IN_ORDER, PIPES, Pipe

_ROUNDS = 60
_PATTERNS = ((3, 3, 9), (2, 0, 9), (2, 1, 9), (2, 2, 1), (2, 2, 2))
"""How often outer and innermost loops run in thought, at most, and from which depth on they do not run at all.  Twice
is enough where nothing takes turns, and once where a loop has nothing but another loop in it."""


def synchronise(nodes: list[Node]) -> None:
    """Insert what orders the pipes, in place."""
    inserter = _Inserter(nodes)
    for _ in range(_ROUNDS):
        if not inserter.round():
            return
    raise InternalError("the pipes of a kernel cannot be ordered")


@frozen(eq=False)
class _Done:
    """A piece of work: the node, its number in its pipe, and the iterations of the loops around it."""

    node: Node
    pipe: Pipe
    number: int
    at: tuple[int, ...]
    write: bool
    told: dict[Pipe, int]  # what a flag set after it says
    time: int


@mutable(eq=False)
class _Where:
    block: list[Node]
    loops: tuple[Loop, ...]
    blocks: tuple[list[Node], ...]  # from the kernel's body to the node's own block


@frozen(eq=False)
class _Plan:
    """A flag: set after `first`, waited for before `second`, statements of `block` at the places `left` and `right`.

    carried: the outermost loop around it, when the second work is of a later iteration; node: what waits.
    """

    source: Pipe
    target: Pipe
    block: list[Node]
    first: Node
    second: Node
    left: int
    right: int
    carried: Loop | None
    turning: Loop | None
    node: Node


def _needed(plans: list[_Plan]) -> list[_Plan]:
    """Plans without those that another one makes true: it tells of more, no later."""
    return [
        plan
        for k, plan in enumerate(plans)
        if not any(
            _covers(other, plan) and (j < k or not _covers(plan, other)) for j, other in enumerate(plans) if j != k
        )
    ]


def _covers(other: _Plan, plan: _Plan) -> bool:
    alike = (other.source, other.target) == (plan.source, plan.target) and other.block is plan.block
    alike = alike and other.carried is plan.carried and other.turning is plan.turning
    return alike and other.left >= plan.left and other.right <= plan.right


class _Inserter:
    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.where: dict[int, _Where] = {}
        self.next_event: dict[tuple[Pipe, Pipe], int] = {}
        self.facts: dict[int, tuple[Pipe | None, tuple[Access, ...]]] = {}
        depth = _depth(nodes)
        self.patterns = [p for k, p in enumerate(_PATTERNS) if k == 0 or (depth and (p[2] == 9 or p[2] < depth - 1))]
        self.branches = (0, 1, 2) if any(isinstance(n, Branch) for n in walk(nodes)) else (0,)

    def round(self) -> bool:
        """Look for hazards and remove them; whether there were any."""
        self.where.clear()
        self._locate(self.nodes, (), (self.nodes,))
        hazards: list[tuple[_Done, _Done, Access]] = []
        for trips in self.patterns:
            for branch in self.branches if trips is self.patterns[0] else self.branches[:2]:
                run = _Run(trips, branch, self.facts)
                run.block(self.nodes, ())
                hazards = run.hazards or run.reuses
                if hazards:
                    break
            if hazards:
                break
        barriers: dict[int, _Done] = {}
        plans: list[_Plan] = []
        for before, after, access in hazards:
            if before.pipe == after.pipe:
                barriers[id(after.node)] = after
            else:
                plans.append(self._plan(before, after, access))
        for after in barriers.values():
            _insert_before(self.where[id(after.node)].block, after.node, Barrier(after.pipe))
        for plan in _needed(plans):
            self._apply(plan)
        return bool(hazards)

    def _locate(self, block: list[Node], loops: tuple[Loop, ...], blocks: tuple[list[Node], ...]) -> None:
        for node in block:
            self.where[id(node)] = _Where(block, loops, blocks)
            if isinstance(node, Loop):
                self._locate(node.body, (*loops, node), (*blocks, node.body))
            elif isinstance(node, Branch):
                self._locate(node.then, loops, (*blocks, node.then))
                self._locate(node.orelse, loops, (*blocks, node.orelse))

    def _plan(self, before: _Done, after: _Done, access: Access) -> _Plan:
        a, b = self.where[id(before.node)], self.where[id(after.node)]
        depth = 0
        while depth < min(len(a.blocks), len(b.blocks)) and a.blocks[depth] is b.blocks[depth]:
            depth += 1
        common = a.blocks[depth - 1]
        loops = [loop for loop, other in zip(a.loops, b.loops, strict=False) if loop is other]
        same = before.at[: len(loops)] == after.at[: len(loops)]
        if not same and loops:  # one of them may be in a branch of the loop: they meet in the loop's body
            common = loops[-1].body
        first, second = self._ancestor(before.node, common), self._ancestor(after.node, common)
        places = {id(n): k for k, n in enumerate(common)}
        return _Plan(before.pipe, after.pipe, common, first, second, places[id(first)], places[id(second)],
                     None if same else loops[0], _turning(loops, access), after.node)  # fmt: skip

    def _apply(self, plan: _Plan) -> None:
        source, target, turning, outermost = plan.source, plan.target, plan.turning, plan.carried
        event = self._event(source, target, 2 if turning else 1)
        if event is None or (outermost is None and plan.first is plan.second):
            _insert_before(self.where[id(plan.node)].block, plan.node, Barrier("ALL"))
            return
        _insert_after(plan.block, plan.first, SetFlag(source, target, event, turning))
        _insert_before(plan.block, plan.second, WaitFlag(source, target, event, turning))
        if outermost is None:
            return
        for which in (0, 1) if turning else (None,):
            _insert_before(self.nodes, outermost, SetFlag(source, target, event, turning, which))
            _insert_after(self.nodes, outermost, WaitFlag(source, target, event, turning, which), last=True)

    def _ancestor(self, node: Node, block: list[Node]) -> Node:
        """The statement of a block that a node is (in)."""
        for candidate in block:
            if candidate is node or any(inner is node for inner in walk([candidate])):
                return candidate
        raise InternalError("a hazard outside of the block around it")

    def _event(self, source: Pipe, target: Pipe, count: int) -> int | None:
        known = self.next_event.get((source, target), 0)
        if known + count > EVENTS:
            return None
        self.next_event[source, target] = known + count
        return known


def _depth(nodes: list[Node]) -> int:
    """How many loops there are inside each other."""
    inner = [n.body for n in nodes if isinstance(n, Loop)]
    inner += [block for n in nodes if isinstance(n, Branch) for block in (n.then, n.orelse)]
    deepest = max((_depth(block) for block in inner), default=0)
    return deepest + any(isinstance(n, Loop) for n in nodes)


def _turning(loops: list[Loop], access: Access) -> Loop | None:
    """The loop whose turns a flag follows: that of the buffer, or the innermost one around both places."""
    own = access.what.loop if isinstance(access.what, Buffer) else None
    if own is not None and any(loop is own for loop in loops):
        return own
    return next((loop for loop in reversed(loops) if loop.turning), None)


def _enough(loop: Loop) -> int:
    """Iterations after which nothing new happens."""
    alone = sum(isinstance(n, Loop) for n in loop.body) == 1 and not any(
        pipe_of(n) is not None or isinstance(n, Branch) for n in loop.body
    )
    return 1 if alone else 3 if loop.turning else 2


def _insert_before(block: list[Node], node: Node, new: Node) -> None:
    at = next(k for k, n in enumerate(block) if n is node)
    block.insert(at, new)


def _insert_after(block: list[Node], node: Node, new: Node, *, last: bool = False) -> None:
    at = 1 + next(k for k, n in enumerate(block) if n is node)
    while last and at < len(block) and isinstance(block[at], WaitFlag):
        at += 1
    block.insert(at, new)


class _Run:
    """One run in thought. trips: one of `_PATTERNS`; branch: which branches are taken."""

    def __init__(
        self, trips: tuple[int, int, int], branch: int, facts: dict[int, tuple[Pipe | None, tuple[Access, ...]]]
    ) -> None:
        self.trips, self.branch, self.choices = trips, branch, 0
        self.known: dict[Pipe, dict[Pipe, int]] = {p: dict.fromkeys(PIPES, 0) for p in PIPES}
        self.count: dict[Pipe, int] = dict.fromkeys(PIPES, 0)
        self.flags: dict[tuple[Pipe, Pipe, int], list[dict[Pipe, int]]] = {}
        self.turns: dict[int, int] = {}
        self.touched: dict[object, list[tuple[_Done, int, int]]] = {}
        self.hazards: list[tuple[_Done, _Done, Access]] = []
        self.seen: dict[tuple[Pipe, Pipe, int], _Done] = {}
        self.reuses: list[tuple[_Done, _Done, Access]] = []
        self.facts = facts
        self.independent: list[Loop] = []
        self.time = 0

    def block(self, nodes: list[Node], at: tuple[int, ...]) -> None:
        for node in nodes:
            match node:
                case Loop():
                    inner = not any(isinstance(n, Loop) for n in node.body)
                    self.independent.append(node)
                    trips = 0 if len(at) >= self.trips[2] else min(_enough(node), self.trips[1 if inner and at else 0])
                    for k in range(trips):
                        self.block(node.body, (*at, k))
                        if node.turning:
                            self.turns[id(node)] = 1 - self.turns.get(id(node), 0)
                    self.independent.pop()
                case Branch():
                    self.choices += 1
                    taken = (True, False, self.choices % 2 == 0)[self.branch]
                    self.block(node.then if taken else node.orelse, at)
                case SetFlag():
                    self._learn(node.source, self.known["S"])
                    self._raised_again(node, at)
                    mine = dict(self.known[node.source])
                    mine[node.source] = self.count[node.source]
                    self.flags.setdefault(self._flag(node), []).append(mine)
                case WaitFlag():
                    told = self.flags.get(self._flag(node))
                    if told:
                        self._learn(node.target, told.pop(0))
                    self._see(node, at)
                case Barrier(pipe="ALL"):
                    for p in PIPES:
                        self.known[p] = dict(self.count)
                case Barrier(pipe=pipe):
                    self.known[pipe][pipe] = self.count[pipe]  # type: ignore[index]
                case _:
                    self._work(node, at)

    def _see(self, node: WaitFlag, at: tuple[int, ...]) -> None:
        """A flag is down when its pipe has come to the wait."""
        pipe = node.target
        self.count[pipe] += 1
        self.time += 1
        told: dict[Pipe, int] = {**self.known[pipe], pipe: self.count[pipe]}
        if pipe == "S":
            self.known[pipe] = told
        self.seen[self._flag(node)] = _Done(node, pipe, self.count[pipe], at, False, told, self.time)

    def _raised_again(self, node: SetFlag, at: tuple[int, ...]) -> None:
        """It must be down before it is raised again."""
        last = self.seen.get(self._flag(node))
        pipe = node.source
        if last is not None and self.known[pipe][last.pipe] < last.number:
            new = _Done(node, pipe, self.count[pipe], at, True, {}, self.time)
            self.reuses.append((last, new, Access("flag", True)))
            self._learn(pipe, last.told)

    def _flag(self, node: SetFlag | WaitFlag) -> tuple[Pipe, Pipe, int]:
        event = node.event
        if node.turning is not None:
            event += node.which if node.which is not None else self.turns.get(id(node.turning), 0)
        return node.source, node.target, event

    def _learn(self, pipe: Pipe, told: dict[Pipe, int]) -> None:
        mine = self.known[pipe]
        for p, n in told.items():
            if n > mine[p]:
                mine[p] = n

    def _work(self, node: Node, at: tuple[int, ...]) -> None:
        fact = self.facts.get(id(node))
        if fact is None:
            fact = self.facts[id(node)] = (pipe_of(node), accesses(node))
        pipe, touches = fact
        if pipe is None:
            return
        self._learn(pipe, self.known["S"])  # the scalar unit hands the instructions out
        self.time += 1
        self.count[pipe] += 1
        number = self.count[pipe]
        found: list[tuple[_Done, Access]] = []
        for access in touches:
            found += [(done, access) for done in self._unordered(pipe, number, at, access)]
        for done, access in sorted(found, key=lambda pair: -pair[0].time):  # what is known of later work says most
            if self.known[pipe][done.pipe] < done.number:
                new = _Done(node, pipe, number, at, access.write, {}, self.time)
                self.hazards.append((done, new, access))
                self._learn(pipe, done.told)
        told: dict[Pipe, int] = {**self.known[pipe], pipe: number}
        for access in touches:
            self._note(_Done(node, pipe, number, at, access.write, told, self.time), access)

    def _place(self, access: Access) -> tuple[object, int, int]:
        what = access.what
        if isinstance(what, str):
            return what, 0, 1
        low = what.address or 0
        if what.loop is not None:
            low += self.turns.get(id(what.loop), 0) * what.size
        return what.space, low, low + what.size

    def _unordered(self, pipe: Pipe, number: int, at: tuple[int, ...], access: Access) -> list[_Done]:
        """Earlier work on the same memory that is not known to be done."""
        space, low, high = self._place(access)
        found: list[_Done] = []
        if isinstance(space, str) and space.startswith(SLOT):
            return found  # flags between the cores keep these apart
        for done, first, last in self.touched.get(space, ()):
            if first >= high or low >= last or not (done.write or access.write):
                continue
            if isinstance(access.what, str) and self._apart(done, at):
                continue
            if done.pipe == pipe and pipe in IN_ORDER:
                continue
            if done.pipe == "S" and not done.write:
                continue  # read before anything that follows was handed out
            if self.known[pipe][done.pipe] < done.number and (done.pipe, done.number) != (pipe, number):
                found.append(done)
        return found

    def _apart(self, done: _Done, at: tuple[int, ...]) -> bool:
        """Whether two accesses to global memory are of different iterations of an independent loop."""
        return any(
            loop.independent and k < len(done.at) and done.at[k] != at[k] for k, loop in enumerate(self.independent)
        )

    def _note(self, done: _Done, access: Access) -> None:
        space, low, high = self._place(access)
        entries = self.touched.setdefault(space, [])
        if not entries:
            pass
        elif access.write and isinstance(access.what, Buffer):  # what it overwrites was looked at
            entries[:] = [e for e in entries if e[1] < low or e[2] > high]
        else:
            entries[:] = [e for e in entries if not (e[0].node is done.node and e[1] == low and not e[0].write)]
        entries.append((done, low, high))
