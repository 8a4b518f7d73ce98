# SPDX-License-Identifier: MIT
"""Which variables a block reads from before it: what is assigned on every path to a read is the block's own."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property

from pto_jit.ir.nodes import (
    Block,
    Break,
    Call,
    Const,
    Continue,
    For,
    Fuse,
    If,
    Op,
    Operand,
    Region,
    Return,
    Scope,
    Stmt,
    Var,
    While,
)
from pto_jit.ir.walk import block_uses, blocks, combines, statements, told_of
from pto_jit.slotted import frozen


def free_vars(block: Block) -> tuple[Var, ...]:
    """The variables whose value from before the block may be read in it, in order of the first such read.

    A variable assigned on every path to a read is not free; one assigned only in a branch, or only in the body of a
    loop that may run zero times, is.
    """
    return tuple(var for var, _ in free_reads(block).values())


def free_reads(block: Block) -> dict[str, tuple[Var, Stmt]]:
    """The free variables of a block by name, each with the first statement that may read it from before the block.  Not
    to be changed."""
    told = told_of(block)
    if told is not None and told.free is not None:
        return told.free
    flow = _Flow()
    flow.block(block)
    if told is not None:
        told.free = flow.free
    return flow.free


def is_left(body: Block) -> bool:
    """Whether a BREAK in the body leaves the loop around it, or a return leaves all: then no iteration but the first is
    sure to run."""
    for stmt in body:
        if isinstance(stmt, (Break, Return)):
            return True
        if isinstance(stmt, (For, While)):
            if any(isinstance(s, Return) for s in statements((stmt,))):
                return True
        elif any(is_left(inner) for inner in blocks(stmt)):
            return True
    return False


class _Flow:
    """Follows what is assigned on every path.

    known: what is, at the statement that is looked at; added: the same names, the last ones last, so that what a branch
    or the body of a loop has added is taken back without a copy of what was known before it.
    """

    def __init__(self) -> None:
        self.free: dict[str, tuple[Var, Stmt]] = {}
        self.known: set[str] = set()
        self.added: list[str] = []
        # for each loop around here: how much was known before it, and what more is where it is left
        self.breaks: list[tuple[int, list[set[str]]]] = []

    def read(self, operands: tuple[Operand, ...], stmt: Stmt) -> None:
        for operand in operands:
            if type(operand) is Var and operand.name not in self.known:
                self.free.setdefault(operand.name, (operand, stmt))

    def assign(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.known:
                self.known.add(name)
                self.added.append(name)

    def taken_back(self, since: int) -> set[str]:
        """What was added after the first `since` names, which is not known any more."""
        new = set(self.added[since:])
        del self.added[since:]
        self.known -= new
        return new

    def block(self, block: Block) -> bool:
        """Follow a block; whether its end is reached.  What is known then, or where it is left, is known after it."""
        known, added = self.known, self.added
        for stmt in block:
            if type(stmt) is Op:
                for arg in stmt.args:
                    if type(arg) is Var and arg.name not in known:
                        self.free.setdefault(arg.name, (arg, stmt))
                for region in stmt.regions:
                    self.region(region, stmt)
                for result in stmt.results:
                    if result.name not in known:
                        known.add(result.name)
                        added.append(result.name)
                continue
            match stmt:
                case Call():
                    self.read(stmt.args, stmt)
                    self.assign([result.name for result in stmt.results])
                case For():
                    self.read((stmt.start, stmt.stop, stmt.step), stmt)
                    if stmt.chunk is not None:
                        self.read((stmt.chunk,), stmt)
                    if stmt.grain is not None:
                        self.read((stmt.grain,), stmt)
                    for reduction in stmt.reductions:
                        self.read(reduction.init, stmt)
                    for region in combines(stmt):
                        self.region(region, stmt)
                    for name, read in free_reads(stmt.body).items():
                        if name not in known and name != stmt.var.name:
                            self.free.setdefault(name, read)
                case While():
                    if not self.loop(stmt):
                        return False
                case If():
                    self.read((stmt.cond,), stmt)
                    before = len(added)
                    ends = self.block(stmt.then)
                    then = self.taken_back(before)
                    if not self.block(stmt.orelse):
                        if not ends:
                            return False
                        self.taken_back(before)
                        self.assign(then)
                    elif ends:
                        self.assign(self.taken_back(before) & then)
                case Scope() | Fuse():
                    if not self.block(stmt.body):
                        return False
                case Return():
                    self.read(stmt.values, stmt)
                    return False
                case Break():
                    if self.breaks:
                        before, left = self.breaks[-1]
                        left.append(set(added[before:]))
                    return False
                case Continue():
                    return False
        return True

    def region(self, region: Region, stmt: Stmt) -> None:
        before = len(self.added)
        self.assign([param.name for param in region.params])
        self.block(region.body)
        self.read(region.results, stmt)
        self.taken_back(before)

    def loop(self, stmt: While) -> bool:
        """Follow a while loop; whether it is left: where its condition is false, after `before`, or at a break."""
        before = len(self.added)
        self.breaks.append((before, []))
        exits: list[set[str]] = []
        if self.block(stmt.before):
            self.read((stmt.cond,), stmt)
            if not (isinstance(stmt.cond, Const) and stmt.cond.value):
                exits.append(set(self.added[before:]))
            self.block(stmt.body)
        self.taken_back(before)
        exits += self.breaks.pop()[1]
        if exits:
            self.assign(set.intersection(*exits))
        return bool(exits)


class Reads:
    """What the statements of a block read, asked about its ends: from each statement on to the last one.

    The block is walked once, when the first is asked about: that takes what asking one of them would.
    """

    def __init__(self, block: Block) -> None:
        self.block = block

    @cached_property
    def found(self) -> _Reads:
        """What a walk over the block finds."""
        return _Reads(self.block)

    def end(self, position: int) -> End:
        """The end of the block that begins with the statement at a position."""
        return End(self, position)


class _Reads:
    """By name where a variable may be read from before the statement, and where it is assigned on every path, both
    ascending; where it is read at all for the last time; and the statements whose end is not reached."""

    def __init__(self, block: Block) -> None:
        self.exposed: dict[str, list[int]] = {}
        self.assigned: dict[str, list[int]] = {}
        self.last: dict[str, int] = {}
        self.left: list[int] = []
        for position, stmt in enumerate(block):
            if type(stmt) is Op and not stmt.regions:
                for arg in stmt.args:
                    if type(arg) is Var:
                        self.exposed.setdefault(arg.name, []).append(position)
                        self.last[arg.name] = position
                for result in stmt.results:
                    self.assigned.setdefault(result.name, []).append(position)
                continue
            flow = _Flow()
            ends = flow.block((stmt,))
            for name in flow.free:
                self.exposed.setdefault(name, []).append(position)
            for name in flow.known:
                self.assigned.setdefault(name, []).append(position)
            if not ends:
                self.left.append(position)
            for name in block_uses((stmt,)):
                self.last[name] = position


@frozen(eq=False)
class End:
    """The statements of a block from a position on."""

    reads: Reads
    position: int

    def begins_with(self, name: str) -> bool:
        """Whether a variable is free in these statements: its value from before them may be read."""
        reads = self.reads.found
        first = _from(reads.exposed.get(name), self.position)
        if first is None:
            return False
        assigned = _from(reads.assigned.get(name), self.position)
        left = _from(reads.left, self.position)
        return (assigned is None or first <= assigned) and (left is None or first <= left)

    def names(self, name: str) -> bool:
        """Whether a variable is read anywhere in these statements."""
        return self.reads.found.last.get(name, -1) >= self.position


def _from(positions: list[int] | None, position: int) -> int | None:
    """The first of ascending positions that is not before another one."""
    if not positions or positions[-1] < position:
        return None
    return positions[bisect_left(positions, position)]


@frozen(eq=False)
class Later:
    """The names of the variables whose values from before them may be read in any of several ends of blocks: in what
    runs later."""

    ends: tuple[End, ...] = ()

    def __contains__(self, name: str) -> bool:
        return any(end.begins_with(name) for end in self.ends)

    def and_(self, *ends: End) -> Later:
        """With further ends."""
        return Later((*self.ends, *ends))

    def names(self, name: str) -> bool:
        """Whether a variable is read anywhere in them, be it from before or not."""
        return any(end.names(name) for end in self.ends)
