# SPDX-License-Identifier: MIT
"""Which variables a block reads from before it: what is assigned on every path to a read is the block's own."""

from __future__ import annotations

from bisect import bisect_left

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
from pto_jit.ir.walk import block_uses, combines, remembered
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
    told = remembered(block)
    if told is not None and told.free is not None:
        return told.free
    flow = _Flow()
    flow.block(block, set())
    if told is not None:
        told.free = flow.free
    return flow.free


class _Flow:
    """Follows what is assigned on every path."""

    def __init__(self) -> None:
        self.free: dict[str, tuple[Var, Stmt]] = {}
        self.breaks: list[list[set[str]]] = []  # for each loop around here, what is assigned where it is left

    def read(self, operands: tuple[Operand, ...], known: set[str], stmt: Stmt) -> None:
        for operand in operands:
            if type(operand) is Var and operand.name not in known:
                self.free.setdefault(operand.name, (operand, stmt))

    def block(self, block: Block, known: set[str]) -> set[str] | None:
        """What is assigned at the end of a block (`known` is updated for it), None when the end is not reached."""
        for stmt in block:
            if type(stmt) is Op:
                for arg in stmt.args:
                    if type(arg) is Var and arg.name not in known:
                        self.free.setdefault(arg.name, (arg, stmt))
                for region in stmt.regions:
                    self.region(region, known, stmt)
                for result in stmt.results:
                    known.add(result.name)
                continue
            match stmt:
                case Call():
                    self.read(stmt.args, known, stmt)
                    known.update([result.name for result in stmt.results])
                case For():
                    self.read((stmt.start, stmt.stop, stmt.step), known, stmt)
                    if stmt.chunk is not None:
                        self.read((stmt.chunk,), known, stmt)
                    if stmt.grain is not None:
                        self.read((stmt.grain,), known, stmt)
                    for reduction in stmt.reductions:
                        self.read(reduction.init, known, stmt)
                    for region in combines(stmt):
                        self.region(region, known, stmt)
                    self.breaks.append([])
                    self.block(stmt.body, known | {stmt.var.name})
                    self.breaks.pop()
                case While():
                    after = self.loop(stmt, known)
                    if after is None:
                        return None
                    known = after
                case If():
                    self.read((stmt.cond,), known, stmt)
                    then, orelse = self.block(stmt.then, set(known)), self.block(stmt.orelse, set(known))
                    if then is None and orelse is None:
                        return None
                    known = then & orelse if then is not None and orelse is not None else then or orelse or set()
                case Scope() | Fuse():
                    after = self.block(stmt.body, known)
                    if after is None:
                        return None
                    known = after
                case Return():
                    self.read(stmt.values, known, stmt)
                    return None
                case Break():
                    if self.breaks:
                        self.breaks[-1].append(set(known))
                    return None
                case Continue():
                    return None
        return known

    def region(self, region: Region, known: set[str], stmt: Stmt) -> None:
        inner = known | {param.name for param in region.params}
        after = self.block(region.body, inner)
        self.read(region.results, inner if after is None else after, stmt)

    def loop(self, stmt: While, known: set[str]) -> set[str] | None:
        """A while loop is left where its condition is false, after `before`, or at a break."""
        self.breaks.append([])
        tested = self.block(stmt.before, known)
        exits: list[set[str]] = []
        if tested is not None:
            self.read((stmt.cond,), tested, stmt)
            self.block(stmt.body, set(tested))
            if not (isinstance(stmt.cond, Const) and stmt.cond.value):
                exits.append(tested)
        exits += self.breaks.pop()
        return set.intersection(*exits) if exits else None


class Reads:
    """What the statements of a block read, asked about its ends: from each statement on to the last one.

    The block is walked once; of all its ends together that is what asking each of them would take for one.
    """

    def __init__(self, block: Block) -> None:
        self.exposed: dict[str, list[int]] = {}  # where a variable may be read from before the statement, ascending
        self.assigned: dict[str, list[int]] = {}  # where it is assigned on every path
        self.last: dict[str, int] = {}  # where it is read at all for the last time
        self.left: list[int] = []  # statements whose end is not reached
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
            known = flow.block((stmt,), set())
            for name in flow.free:
                self.exposed.setdefault(name, []).append(position)
            for name in known or ():
                self.assigned.setdefault(name, []).append(position)
            if known is None:
                self.left.append(position)
            for name in block_uses((stmt,)):
                self.last[name] = position

    def end(self, position: int) -> End:
        """The end of the block that begins with the statement at a position."""
        return End(self, position)


@frozen(eq=False)
class End:
    """The statements of a block from a position on."""

    reads: Reads
    position: int

    def begins_with(self, name: str) -> bool:
        """Whether a variable is free in these statements: its value from before them may be read."""
        first = _from(self.reads.exposed.get(name), self.position)
        if first is None:
            return False
        assigned = _from(self.reads.assigned.get(name), self.position)
        left = _from(self.reads.left, self.position)
        return (assigned is None or first <= assigned) and (left is None or first <= left)

    def names(self, name: str) -> bool:
        """Whether a variable is read anywhere in these statements."""
        return self.reads.last.get(name, -1) >= self.position


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
