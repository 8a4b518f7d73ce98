# SPDX-License-Identifier: MIT
"""Whether the pipes of a kernel are ordered: a happens-before check of its form, made without knowing how it was made.

The form is unrolled into a trace for several numbers of iterations and choices of branches.  In a trace, work B happens
after work A when a chain of these connects them (Lamport, 1978):

* a pipe starts its work in the order it was given, and finishes it in that order only where the machine says so (the
  scalar unit, and products that add up in L0C);
* `pipe_barrier(p)`: what p does next starts after all that p did; `PIPE_ALL`: for all pipes;
* `set_flag(a, b, e)` is told when all that a was given before is done; what b does after the matching `wait_flag`
  starts after that;
* the scalar unit gives the work out: what it waited for or read before is before everything that it gives out later;
* `ffts_cross_core_sync(p, f)` is told to the other kind of core when all that p was given before is done; what that
  core gives out after the matching `wait_flag_dev(f)` starts after it.  (Of the two vector cores of a group, which run
  the same code, on rows of their own or of which one stores, one stands for both.)

Every two pieces of work that touch the same bytes, one of them writing, must be connected.  And flags must pair up: no
wait without a flag, no flag left over at the end, none raised again before it was seen, none below 0 or above 7, and no
two cores that wait for each other.

And what is read must still be there (`contents`).

What an instruction reads and writes is told from its name and arguments here, not from the table that the writer uses.
"""

from __future__ import annotations

from collections.abc import Iterator

from pto_jit.slotted import mutable
from pto_jit.targets.ascend.contents import Contents
from pto_jit.targets.ascend.form import (
    RELAY,
    SLOT,
    Assignment,
    Barrier,
    Branch,
    Buffer,
    CrossSet,
    CrossWait,
    ElementStore,
    Global,
    Instruction,
    KernelForm,
    Loop,
    Node,
    SetFlag,
    Tile,
    WaitFlag,
)

_PIPES: tuple[str, ...] = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")
_RUNS = ((3, 3, 3), (2, 2, 0), (1, 3, 1), (2, 3, 2), (0, 0, 0))
"""Iterations of the loops at each depth; the last number is for all deeper ones."""
_FOURS = (0b0000, 0b1111, 0b0101, 0b1010, 0b0011, 0b0110, 0b1100, 0b1001)
_THREES = (0b011, 0b110, 0b101)
_CHOICES = tuple(0b000100010001 * four for four in _FOURS) + tuple(0b1001001001 * three for three in _THREES)
"""Which branches are taken: of twelve in a row, that repeat after four or three, as three inside each other do."""
_SCRATCH = ("TROWSUM", "TROWMAX", "TROWMIN", "TROWPROD", "TSEL", "TTRANS", "TGATHER", "TMRGSORT_")
"""Instructions whose last operand is memory that they work in."""
_IN_PLACE = ("TMULADDDST", "TFUSEDMULADD", "TAXPY", "TSTORE_ADD", "TSTORE_MAX", "TSTORE_MIN", "TSTORE_ACC_ADD")
"""Instructions that read their target."""
_RESERVED = ("Vec", 184 * 1024, 192 * 1024)

_Region = tuple[str, int, int]


@mutable(eq=False)
class _Work:
    name: str
    pipe: str
    index: int
    after: dict[str, int]  # how much of each pipe is done when it starts
    writes: bool
    iterations: tuple[tuple[int, int], ...]  # of the independent loops around it


def races(kernel: KernelForm, *, first: bool = False) -> list[str]:
    """What is not ordered in a kernel, and what is wrong with its flags; empty when all is well.

    A kernel of both kinds of cores is two traces side by side.  first: stop at the first run that has a problem.
    """
    bodies = {"": kernel.body} if kernel.partner is None else {"vector ": kernel.body, "cube ": kernel.partner.body}
    found: dict[str, None] = {}
    branches = any(isinstance(n, Branch) and not n.when for body in bodies.values() for n in _all(body))
    for trips in _RUNS:
        for choice in _CHOICES if branches else (0,):
            found |= dict.fromkeys(_side_by_side(bodies, trips, choice))
            if first and found:
                return list(found)
    return list(found)


def _side_by_side(bodies: dict[str, list[Node]], trips: tuple[int, ...], choice: int) -> list[str]:
    """The problems of one run: each core goes on until it waits for another one."""
    group = _Group([core + pipe for core in bodies for pipe in _PIPES])
    traces = {core: _Trace(group, core, trips, choice) for core in bodies}
    running = {core: traces[core].run(body, 0) for core, body in bodies.items()}
    while running:
        before = group.told
        for core, steps in list(running.items()):
            if next(steps, None) is None:
                del running[core]
        if running and group.told == before:
            group.problems.append(f"the {' and the '.join(c.strip() for c in running)} core wait for each other")
            break
    for trace in traces.values():
        trace.finish()
    for (core, flag), raised in group.counters.items():
        if raised and not group.problems:
            group.problems.append(f"flag {flag} of the {core} cores is left over")
    return group.problems


def _all(nodes: list[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        for block in (getattr(node, name, None) for name in ("body", "then", "orelse")):
            if isinstance(block, list):
                yield from _all(block)


def _least(loop: Loop) -> int:
    """How often a loop runs at least: one with constant bounds once, if it is not dealt to the cores."""
    known = loop.start.isdigit() and loop.stop.isdigit() and loop.step.isdigit() and not loop.grid
    return int(known and bool(range(int(loop.start), int(loop.stop), int(loop.step))))


class _Group:
    """What the traces of a group of cores share: their work, by pipe, and the flags between them."""

    def __init__(self, pipes: list[str]) -> None:
        self.problems: list[str] = []
        self.given: dict[str, int] = dict.fromkeys(pipes, 0)
        self.done: dict[str, dict[str, int]] = {p: dict.fromkeys(pipes, 0) for p in pipes}
        self.history: dict[str, list[tuple[_Work, int, int, bool]]] = {}  # who touched from where to where, writing?
        self.counters: dict[tuple[str, int], list[dict[str, int]]] = {}  # by whom is told: what was done then
        self.told = 0


class _Trace:
    """What one core does.  core: "" or the kind of core, which is part of the names of its pipes and memories."""

    def __init__(self, group: _Group, core: str, trips: tuple[int, ...], choice: int) -> None:
        self.group, self.core = group, core
        self.trips, self.choice, self.met = trips, choice, [0, 0]
        self.problems, self.given, self.done, self.history = group.problems, group.given, group.done, group.history
        self.pipes = [core + p for p in _PIPES]
        self.contents = Contents()
        self.truths: dict[str, bool] = {}  # of variables that were set to one
        self.raised: dict[tuple[str, str, int], dict[str, int]] = {}
        self.seen: dict[tuple[str, str, int], int] = {}  # the waiting pipe's work when it saw the flag last
        self.turn: dict[int, int] = {}
        self.around: list[tuple[Loop, int]] = []
        self.called: dict[str, Tile | Global | str] = {}  # what the function that is called is given
        self.ends: dict[int, tuple[bool, bool]] = {}  # of a loop: whether this is the first, the last iteration

    def run(self, nodes: list[Node], depth: int) -> Iterator[bool]:
        """Work through a block; yields while it waits for another core."""
        for node in nodes:
            if isinstance(node, Loop):
                count = max(self.trips[min(depth, len(self.trips) - 1)], _least(node))
                count += node.ahead and count > 0
                for k in range(count):
                    self.around.append((node, k))
                    self.ends[id(node)] = k == 0, k == count - 1
                    yield from self.run(node.body, depth + 1)
                    self.around.pop()
                    if node.turning:
                        turns = id(node.turns)
                        self.turn[turns] = self.turn.get(turns, 0) ^ 1
            elif isinstance(node, Branch):
                if node.when:  # the first and the last iteration are those of one part only
                    first, last = self.ends[id(self.around[-1][0])]
                    taken = not (last if node.when == "not last" else first)
                elif node.condition in self.truths:
                    taken = self.truths[node.condition]
                else:  # of those that both kinds of cores come past, both take the same side
                    self.met[node.both] += 1
                    taken = bool(self.choice >> (self.met[node.both] + 5 * node.both) % 12 & 1)
                yield from self.run(node.then if taken else node.orelse, depth)
            elif isinstance(node, CrossWait):
                yield from self.hear(node)
            elif isinstance(node, CrossSet):
                self.tell(node)
            elif isinstance(node, SetFlag):
                self.set(node)
            elif isinstance(node, WaitFlag):
                self.wait(node)
            elif isinstance(node, Barrier):
                for p in self.pipes if node.pipe == "ALL" else (self.core + node.pipe,):
                    for q in self.pipes if node.pipe == "ALL" else (p,):
                        self.done[p][q] = max(self.done[p][q], self.given[q])
            elif isinstance(node, Instruction) and node.function is not None:
                yield from self.call(node, depth)
            elif isinstance(node, (Instruction, Assignment, ElementStore)):
                if isinstance(node, Assignment) and node.expression in ("true", "false"):
                    self.truths[node.name] = node.expression == "true"
                self.work(node)

    def call(self, node: Instruction, depth: int) -> Iterator[bool]:
        """Work through a function with the memories that it is given."""
        function = node.function
        assert function is not None
        given = (function.result, function.operand, function.scratch)
        self.called = {buffer.base: tile for buffer, tile in zip(given, node.args, strict=False)}
        yield from self.run(function.body, depth)
        self.called = {}

    # -- flags between cores --------------------------------------------------------------------------------------

    def tell(self, node: CrossSet) -> None:
        pipe = self.core + node.pipe
        self.learn(pipe, self.done[self.core + "S"])  # which gives it out
        self.given[pipe] += 1
        waiting = self.group.counters.setdefault((self.core, node.flag), [])
        waiting.append({**self.done[pipe], pipe: self.given[pipe]})
        if len(waiting) > 15:
            self.problems.append(f"flag {node.flag} between cores counts beyond 15")
        self.group.told += 1

    def hear(self, node: CrossWait) -> Iterator[bool]:
        """The scalar unit, and with it all that follows, waits for the other kind of core."""
        while True:
            told = next((raised for (core, flag), raised in self.group.counters.items()
                         if core != self.core and flag == node.flag and raised), None)  # fmt: skip
            if told:
                break
            yield True
        self.learn(self.core + "S", told.pop(0))
        self.group.told += 1

    # -- flags ----------------------------------------------------------------------------------------------------

    def flag(self, node: SetFlag | WaitFlag) -> tuple[str, str, int]:
        number = node.event
        if node.turning is not None:
            number += self.turn.get(id(node.turning), 0) if node.which is None else node.which
        if not 0 <= number <= 7:
            self.problems.append(f"there is no flag {number} from {node.source} to {node.target}")
        return self.core + node.source, self.core + node.target, number

    def set(self, node: SetFlag) -> None:
        key = self.flag(node)
        if key in self.raised:
            self.problems.append(f"flag {key[2]} from {key[0]} to {key[1]} is raised twice")
        source, target = key[:2]
        self.learn(source, self.done[self.core + "S"])  # which gives the flag out
        last = self.seen.get(key)
        if last is not None and self.done[source][target] < last:
            self.problems.append(f"flag {key[2]} from {key[0]} to {key[1]} may be raised again before it is seen")
        self.given[source] += 1
        self.raised[key] = {**self.done[source], source: self.given[source]}

    def wait(self, node: WaitFlag) -> None:
        key = self.flag(node)
        told = self.raised.pop(key, None)
        self.given[key[1]] += 1
        self.seen[key] = self.given[key[1]]
        if told is None:
            self.problems.append(f"{key[1]} waits for flag {key[2]} from {key[0]}, which nobody raises")
            return
        self.learn(key[1], told)
        if key[1] == self.core + "S":
            self.done[key[1]][key[1]] = self.given[key[1]]

    def learn(self, pipe: str, told: dict[str, int]) -> None:
        for q, count in told.items():
            self.done[pipe][q] = max(self.done[pipe][q], count)

    def finish(self) -> None:
        for source, target, number in self.raised:
            self.problems.append(f"flag {number} from {source} to {target} is left over")

    # -- work -----------------------------------------------------------------------------------------------------

    def work(self, node: Instruction | Assignment | ElementStore) -> None:
        pipe, reads, writes = self.touches(node)
        if not reads and not writes:
            return
        self.follow(node)
        pipe, unit = self.core + pipe, self.core + "S"
        self.given[pipe] += 1
        start = dict(self.done[pipe])
        for q, count in self.done[unit].items():
            start[q] = max(start[q], count)
        if pipe != unit:
            self.done[pipe] = dict(start)
        independent = tuple((id(loop), k) for loop, k in self.around if loop.independent)
        name = node.name if isinstance(node, Instruction) else "an element"
        new = _Work(name, pipe, self.given[pipe], start, bool(writes), independent)
        for space, low, high, write in ((*r, k >= len(reads)) for k, r in enumerate((*reads, *writes))):
            entries = self.history.setdefault(space, [])
            for old, first, last, written in entries:
                if low < last and first < high and (write or written) and old is not new and (
                    not self.apart(space, old, new) and not self.before(old, new)
                ):  # fmt: skip
                    self.problems.append(f"{new.name} ({new.pipe}) does not wait for {old.name} ({old.pipe})")
            if write and not space.startswith("memory "):  # who comes after this came after what it overwrites
                entries[:] = [e for e in entries if e[1] < low or e[2] > high]
            entries.append((new, low, high, write))
        if pipe == unit and not writes:  # a read is over when the next work is given out
            self.done[unit][unit] = self.given[unit]

    def follow(self, node: Instruction | Assignment | ElementStore) -> None:
        """Whose values a node reads, and which it puts in their place."""
        operands = node.args if isinstance(node, Instruction) else (getattr(node, "reads", None),)
        tiles = [a for a in operands if isinstance(a, Tile)]
        stored = isinstance(node, Instruction) and isinstance(node.args[0], Tile)
        name = node.name if isinstance(node, Instruction) else "the scalar unit"
        sources = tiles[1:] if stored else tiles
        if name.startswith(_SCRATCH):
            sources = sources[:-1]
        if name in _IN_PLACE:
            sources = [*sources, tiles[0]]
        for tile in sources:
            other = self.contents.overwritten(self.buffer(tile), self.region(tile)[1])
            if other is not None:
                self.problems.append(f"{name} reads `{tile.name}`, which `{other}` has overwritten")
        if stored:
            self.contents.written(self.buffer(tiles[0]), *self.region(tiles[0])[1:])
        if name.startswith(_SCRATCH):
            self.contents.written(self.buffer(tiles[-1]), *self.region(tiles[-1])[1:])

    def buffer(self, tile: Tile) -> Buffer:
        """The memory of a tile: of a function's operand and result, that of the tile which it is given."""
        given = self.called.get(tile.buffer.base)
        return given.buffer if isinstance(given, Tile) and given.name else tile.buffer

    def before(self, old: _Work, new: _Work) -> bool:
        if new.after[old.pipe] >= old.index:
            return True
        unit = self.core + "S"
        if old.pipe == unit and (new.pipe == unit or not old.writes):
            return True
        return old.pipe == new.pipe == self.core + "M"

    def apart(self, space: str, old: _Work, new: _Work) -> bool:
        """Whether both are of different iterations of an independent loop, which do not meet in memory."""
        return space.startswith("memory ") and any(
            a == b and j != k for a, j in old.iterations for b, k in new.iterations
        )

    def touches(self, node: Instruction | Assignment | ElementStore) -> tuple[str, list[_Region], list[_Region]]:
        """The pipe that works on a node, and what it reads and writes."""
        if isinstance(node, ElementStore):
            return "S", [], [(f"memory {node.root}", 0, 1)]
        if isinstance(node, Assignment):
            reads = [] if node.reads is None else [self.region(node.reads)]
            return "S", reads + ([(f"memory {node.memory}", 0, 1)] if node.memory else []), []
        operands = [a for a in node.args if not isinstance(a, str)]
        target, sources = operands[0], operands[1:]
        reads, writes = [self.region(s) for s in sources], [self.region(target)]
        name = node.name
        if name.startswith(_SCRATCH):
            writes.append(reads[-1])
        if name in _IN_PLACE:
            reads.append(writes[0])
        if name.startswith("TROWEXPAND"):
            reads.append(_RESERVED)
            writes.append(_RESERVED)
        if name.startswith("TLOAD") or name == "TEXPANDS_L1":
            return "MTE2", reads, writes
        if name.startswith("TSTORE"):
            source = sources[0]
            return "FIX" if isinstance(source, Tile) and source.space == "Acc" else "MTE3", reads, writes
        if name.startswith("TEXTRACT"):
            return "MTE1", reads, writes
        if name.startswith("TMATMUL"):
            return "M", reads, writes
        return "S" if name in ("TCI", "SetValue") else "V", reads, writes

    def region(self, operand: Tile | Global) -> _Region:
        if isinstance(operand, Global):
            shared = not operand.root.startswith((SLOT, RELAY))  # by all cores, and all iterations
            return (f"memory {operand.root}" if shared else operand.root), 0, 1
        buffer = operand.buffer
        low = buffer.address or 0
        given = self.called.get(buffer.base)
        if isinstance(given, Tile):
            space, begins, _ = self.region(given)
            return space, begins + low, begins + low + buffer.size
        if buffer.copies == 2 and buffer.loop is not None:
            low += self.turn.get(id(buffer.loop), 0) * buffer.size
        return buffer.space, low, low + buffer.size
