# SPDX-License-Identifier: MIT
"""Whether the pipes of a kernel are ordered: a happens-before check of its form, made without knowing how it was made.

The form is unrolled into a trace for several numbers of iterations and choices of branches.  In a trace, work B happens
after work A when a chain of these connects them (Lamport, 1978):

* a pipe starts its work in the order it was given, and finishes it in that order only where the machine says so (the
  scalar unit, and products that add up in L0C);
* `pipe_barrier(p)`: what p does next starts after all that p did; `PIPE_ALL`: for all pipes;
* `set_flag(a, b, e)` is told when all that a was given before is done; what b does after the matching `wait_flag`
  starts after that;
* the scalar unit gives the work out: what it waited for or read before is before everything that it gives out later.

Every two pieces of work that touch the same bytes, one of them writing, must be connected.  And flags must pair up: no
wait without a flag, no flag left over at the end, none raised again before it was seen, none below 0 or above 7.

What an instruction reads and writes is told from its name and arguments here, not from the table that the writer uses.
"""

from __future__ import annotations

from collections.abc import Iterator

from pto_jit.slotted import mutable
from pto_jit.targets.ascend.form import (
    Assignment,
    Barrier,
    Branch,
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
_RESERVED = ("Vec", 184 * 1024, 192 * 1024)

_Region = tuple[str, int, int]


@mutable(eq=False)
class _Work:
    name: str
    pipe: str
    index: int
    after: dict[str, int]  # how much of each pipe is done when it starts
    reads: list[_Region]
    writes: list[_Region]
    iterations: tuple[tuple[int, int], ...]  # of the independent loops around it


def races(kernel: KernelForm, *, first: bool = False) -> list[str]:
    """What is not ordered in a kernel, and what is wrong with its flags; empty when all is well.

    first: stop at the first run that has a problem.
    """
    found: dict[str, None] = {}
    choices = (0, 1, 2, 3) if any(isinstance(n, Branch) for n in _all(kernel.body)) else (0,)
    for trips in _RUNS:
        for choice in choices:
            trace = _Trace(trips, choice)
            trace.run(kernel.body, 0)
            trace.finish()
            found |= dict.fromkeys(trace.problems)
            if first and found:
                return list(found)
    return list(found)


def _all(nodes: list[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        for block in (getattr(node, name, None) for name in ("body", "then", "orelse")):
            if isinstance(block, list):
                yield from _all(block)


class _Trace:
    def __init__(self, trips: tuple[int, ...], choice: int) -> None:
        self.trips, self.choice, self.met = trips, choice, 0
        self.problems: list[str] = []
        self.given: dict[str, int] = dict.fromkeys(_PIPES, 0)
        self.done: dict[str, dict[str, int]] = {p: dict.fromkeys(_PIPES, 0) for p in _PIPES}
        self.raised: dict[tuple[str, str, int], dict[str, int]] = {}
        self.seen: dict[tuple[str, str, int], int] = {}  # the waiting pipe's work when it saw the flag last
        self.turn: dict[int, int] = {}
        self.history: dict[str, list[_Work]] = {}
        self.around: list[tuple[Loop, int]] = []

    def run(self, nodes: list[Node], depth: int) -> None:
        for node in nodes:
            if isinstance(node, Loop):
                for k in range(self.trips[min(depth, len(self.trips) - 1)]):
                    self.around.append((node, k))
                    self.run(node.body, depth + 1)
                    self.around.pop()
                    if node.turning:
                        self.turn[id(node)] = self.turn.get(id(node), 0) ^ 1
            elif isinstance(node, Branch):
                self.met += 1
                taken = bool(self.choice >> (self.met % 2) & 1)
                self.run(node.then if taken else node.orelse, depth)
            elif isinstance(node, SetFlag):
                self.set(node)
            elif isinstance(node, WaitFlag):
                self.wait(node)
            elif isinstance(node, Barrier):
                for p in _PIPES if node.pipe == "ALL" else (node.pipe,):
                    told = self.given if node.pipe == "ALL" else {p: self.given[p]}
                    for q, count in told.items():
                        self.done[p][q] = max(self.done[p][q], count)
            elif isinstance(node, (Instruction, Assignment, ElementStore)):
                self.work(node)

    # -- flags ----------------------------------------------------------------------------------------------------

    def flag(self, node: SetFlag | WaitFlag) -> tuple[str, str, int]:
        number = node.event
        if node.turning is not None:
            number += self.turn.get(id(node.turning), 0) if node.which is None else node.which
        if not 0 <= number <= 7:
            self.problems.append(f"there is no flag {number} from {node.source} to {node.target}")
        return node.source, node.target, number

    def set(self, node: SetFlag) -> None:
        key = self.flag(node)
        if key in self.raised:
            self.problems.append(f"flag {key[2]} from {key[0]} to {key[1]} is raised twice")
        last = self.seen.get(key)
        if last is not None and self.done[node.source][node.target] < last:
            self.problems.append(f"flag {key[2]} from {key[0]} to {key[1]} may be raised again before it is seen")
        self.given[node.source] += 1
        self.raised[key] = {**self.done[node.source], node.source: self.given[node.source]}

    def wait(self, node: WaitFlag) -> None:
        key = self.flag(node)
        told = self.raised.pop(key, None)
        self.given[node.target] += 1
        self.seen[key] = self.given[node.target]
        if told is None:
            self.problems.append(f"{key[1]} waits for flag {key[2]} from {key[0]}, which nobody raises")
            return
        for q, count in told.items():
            self.done[node.target][q] = max(self.done[node.target][q], count)

    def finish(self) -> None:
        for source, target, number in self.raised:
            self.problems.append(f"flag {number} from {source} to {target} is left over")

    # -- work -----------------------------------------------------------------------------------------------------

    def work(self, node: Instruction | Assignment | ElementStore) -> None:
        pipe, reads, writes = self.touches(node)
        if not reads and not writes:
            return
        self.given[pipe] += 1
        start = dict(self.done[pipe])
        for q, count in self.done["S"].items():
            start[q] = max(start[q], count)
        if pipe != "S":
            self.done[pipe] = dict(start)
        independent = tuple((id(loop), k) for loop, k in self.around if loop.independent)
        name = node.name if isinstance(node, Instruction) else "an element"
        new = _Work(name, pipe, self.given[pipe], start, reads, writes, independent)
        for region in (*reads, *writes):
            for old in self.history.get(region[0], ()):
                if old is not new and self.collide(old, new) and not self.before(old, new):
                    self.problems.append(f"{new.name} ({new.pipe}) does not wait for {old.name} ({old.pipe})")
        for space in {r[0] for r in (*reads, *writes)}:
            self.history.setdefault(space, []).append(new)
        if pipe == "S" and not writes:  # a read is over when the next work is given out
            self.done["S"]["S"] = self.given["S"]

    def before(self, old: _Work, new: _Work) -> bool:
        if new.after[old.pipe] >= old.index:
            return True
        if old.pipe == "S" and (new.pipe == "S" or not old.writes):
            return True
        return old.pipe == new.pipe == "M"

    def collide(self, old: _Work, new: _Work) -> bool:
        for mine, others in ((new.writes, (*old.reads, *old.writes)), (new.reads, old.writes)):
            for space, low, high in mine:
                for other, first, last in others:
                    if space == other and low < last and first < high:
                        apart = space.startswith("memory ") and any(
                            a == b and j != k for a, j in old.iterations for b, k in new.iterations
                        )
                        if not apart:
                            return True
        return False

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
        if name.startswith(("TROWSUM", "TROWMAX", "TROWMIN", "TROWPROD", "TSEL", "TTRANS")):
            writes.append(reads[-1])
        if name in ("TMULADDDST", "TFUSEDMULADD", "TAXPY"):
            reads.append(writes[0])
        if name.startswith("TROWEXPAND"):
            reads.append(_RESERVED)
            writes.append(_RESERVED)
        if name.startswith("TLOAD"):
            return "MTE2", reads, writes
        if name.startswith("TSTORE"):
            source = sources[0]
            return "FIX" if isinstance(source, Tile) and source.space == "Acc" else "MTE3", reads, writes
        if name.startswith("TEXTRACT"):
            return "MTE1", reads, writes
        if name.startswith("TMATMUL"):
            return "M", reads, writes
        return "S" if name == "TCI" else "V", reads, writes

    def region(self, operand: Tile | Global) -> _Region:
        if isinstance(operand, Global):
            return f"memory {operand.root}", 0, 1
        buffer = operand.buffer
        low = buffer.address or 0
        if buffer.copies == 2 and buffer.loop is not None:
            low += self.turn.get(id(buffer.loop), 0) * buffer.size
        return buffer.space, low, low + buffer.size
