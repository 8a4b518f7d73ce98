# SPDX-License-Identifier: MIT
"""Places in memory that every iteration of a loop accumulates into: `y[0] += e`, `y[r, :] = pl.maximum(y[r, :], t)`.

A place is an element, or the rectangle of a load and a store, whose tensor and indices do not depend on the iteration.
Two accesses are to one place when they are written the same way; they are to different places when constants say so.
Everything else may be the same memory.
"""

from __future__ import annotations

from typing import Any

from pto_jit.ir.nodes import Call, Const, For, Op, Operand, Var
from pto_jit.ir.types import TensorType, TileType, Type
from pto_jit.ir.walk import defs
from pto_jit.lower.reductions.accumulate import Accumulation, NoReduction, direct, follow
from pto_jit.semantic.table import effects, tensor_arg
from pto_jit.slotted import frozen

VIEWS = ("view", "tensor_reshape", "tensor_transpose")
Key = Any  # nested tuples that spell an operand, a tensor or a place; None: it may differ from iteration to iteration


@frozen
class Access:
    """One operation that reads or writes a tensor."""

    op: Op
    base: str
    key: Key
    writes: bool


@frozen
class Place:
    """A place that a loop accumulates into, with the operations of the loop that read and write it."""

    base: str
    key: Key
    type: Type  # of the scalar or tile that is read
    reads: tuple[Op, ...]
    writes: tuple[Op, ...]
    found: Accumulation

    @property
    def read(self) -> Op:
        return self.reads[0]

    @property
    def write(self) -> Op:
        return self.writes[0]


class Subscripts:
    """Spells operands by what they are computed from outside of a loop's body."""

    def __init__(self, loop: For) -> None:
        self.loop = loop
        self.flat = list(direct(loop.body))
        self.made: dict[str, Op | None] = {loop.var.name: None}
        for stmt in self.flat:
            for var in defs(stmt):
                self.made[var.name] = stmt if isinstance(stmt, Op) and var.name not in self.made else None

    def key(self, operand: Operand) -> Key:
        """The spelling of an operand, None when it may depend on the iteration."""
        if isinstance(operand, Const):
            return ("const", operand.value)
        if operand.name not in self.made:
            return ("var", operand.name)
        op = self.made[operand.name]
        if op is None or op.regions or op.op == "alloc" or effects(op.op) != "none" or len(op.results) != 1:
            return None
        keys = tuple(self.key(a) for a in op.args)
        return None if None in keys else (op.op, op.attrs, *keys)

    def computed(self, operands: tuple[Operand, ...]) -> list[Op]:
        """The operations of the body that operands with a spelling are computed by, in order."""
        found: dict[str, Op] = {}

        def visit(operand: Operand) -> None:
            op = self.made.get(operand.name) if isinstance(operand, Var) else None
            if op is not None and op.results[0].name not in found:
                for a in op.args:
                    visit(a)
                found[op.results[0].name] = op

        for operand in operands:
            visit(operand)
        return list(found.values())

    def bases(self) -> dict[str, str]:
        """View -> the tensor it looks at, for the views of the body."""
        bases: dict[str, str] = {}
        for op in self.flat:
            if isinstance(op, Op) and op.op in VIEWS and isinstance(op.args[0], Var):
                name = op.args[0].name
                bases[op.results[0].name] = bases.get(name, name)
        return bases

    def accesses(self, outer: dict[str, str]) -> list[Access]:
        """What the body does to tensors that exist before it; `outer` are the views made outside of it."""
        bases = self.bases()
        found: list[Access] = []

        def root(name: str) -> str:
            name = bases.get(name, name)
            return outer.get(name, name)

        for stmt in self.flat:
            if isinstance(stmt, Call):
                op = Op("call", (), stmt.args, loc=stmt.loc)
                found += [
                    Access(op, root(a.name), None, True)
                    for a in stmt.args
                    if isinstance(a, Var) and isinstance(a.type, TensorType)
                ]
            if not isinstance(stmt, Op) or (at := tensor_arg(stmt.op)) is None or effects(stmt.op) == "none":
                continue
            tensor = stmt.args[at]
            assert isinstance(tensor, Var)
            if root(tensor.name) in self.made:
                continue  # a tensor of the iteration's own
            found.append(Access(stmt, root(tensor.name), self._place(stmt, tensor), effects(stmt.op) == "writes"))
        return found

    def _place(self, op: Op, tensor: Var) -> Key:
        assert isinstance(tensor.type, TensorType)
        rank = tensor.type.rank
        match op.op:
            case "getelem":
                what, indices = "element", op.args[1:]
            case "setelem":
                what, indices = "element", op.args[2:]
            case "load" if not op.attr("pad"):
                what, indices = "tile", op.args[1 : 1 + rank]
            case "store":
                what, indices = "tile", op.args[2:]
            case _:
                return None
        keys = (self.key(tensor), *(self.key(i) for i in indices))
        return None if None in keys else (what, *keys)


def find_places(loop: For, outer: dict[str, str]) -> tuple[list[Place], list[tuple[str, NoReduction, Op]]]:
    """The places that `loop` accumulates into, and those read and written by all iterations in another way (with the
    tensor's name and a write)."""
    subscripts = Subscripts(loop)
    accesses = subscripts.accesses(outer)
    places: list[Place] = []
    wrong: list[tuple[str, NoReduction, Op]] = []
    done: set[tuple[str, Key]] = set()
    for write in accesses:
        if not write.writes or write.key is None or (write.base, write.key) in done:
            continue
        done.add((write.base, write.key))
        same = [a for a in accesses if a.base == write.base and a.key == write.key]
        reads = [a.op for a in same if not a.writes]
        if not reads:
            continue
        try:
            places.append(_place(loop, write, same, reads, accesses))
        except NoReduction as problem:
            wrong.append((write.base, problem, write.op))
    return places, wrong


def _place(loop: For, write: Access, same: list[Access], reads: list[Op], accesses: list[Access]) -> Place:
    for other in accesses:
        if other.base == write.base and other.key != write.key and not _apart(write.key, other.key, write.op, other.op):
            raise NoReduction("it may be the same element that is used here", other.op.loc)
    writes = tuple(a.op for a in same if a.writes)
    mine = {id(op) for op in writes}
    sources = {id(op) for op in reads}
    type = reads[0].results[0].type
    found = follow(
        loop.body, [op.results[0].name for op in reads], type, lambda op: id(op) in sources, lambda op: id(op) in mine
    )
    return Place(write.base, write.key, type, tuple(reads), writes, found)


def _apart(a: Key, b: Key, first: Op, second: Op) -> bool:
    """Whether two places of one tensor have no element in common, by constants."""
    if a is None or b is None:
        return False
    if a[1] != b[1]:
        return _views_apart(a[1], b[1])
    sizes = _extents(first), _extents(second)
    for axis, (x, y) in enumerate(zip(a[2:], b[2:], strict=True)):
        if x[0] == y[0] == "const":
            low, high, extent = (x[1], y[1], sizes[0]) if x[1] <= y[1] else (y[1], x[1], sizes[1])
            size = 1 if extent is None else extent[axis]
            if size is not None and low + size <= high:
                return True
    return False


def _extents(op: Op) -> tuple[int | None, ...] | None:
    """The declared extents of a tile access; None: an element."""
    for var in (*op.results, *op.args):
        if isinstance(var.type, TileType):
            return var.type.shape
    return None


def _views_apart(a: Key, b: Key) -> bool:
    if a[0] != "view" or b[0] != "view" or a[2] != b[2]:
        return False
    rank = (len(a) - 3) // 2
    for axis in range(rank):
        low, high = a[3 + axis], b[3 + axis]
        size = a[3 + rank + axis]
        if low[0] == high[0] == "const" and low[1] > high[1]:
            low, high, size = high, low, b[3 + rank + axis]
        if low[0] == high[0] == size[0] == "const" and low[1] + size[1] <= high[1]:
            return True
    return False
