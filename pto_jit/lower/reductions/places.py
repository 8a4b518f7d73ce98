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
from pto_jit.ir.walk import TENSOR_VIEWS, defs
from pto_jit.lower.reductions.accumulate import Accumulation, NoReduction, direct, follow
from pto_jit.semantic.table import effects, tensor_arg
from pto_jit.slotted import frozen

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
        self._accesses: list[Access] | None = None
        self.flat = direct(loop.body)
        self.made: dict[str, Op | None] = {loop.var.name: None}
        for stmt in self.flat:
            if type(stmt) is Op and not stmt.regions:
                for var in stmt.results:
                    self.made[var.name] = stmt if var.name not in self.made else None
            else:
                for var in defs(stmt):
                    self.made[var.name] = stmt if isinstance(stmt, Op) and var.name not in self.made else None

    def key(self, operand: Operand) -> Key:
        """The spelling of an operand, None when it may depend on the iteration, as a variable made from itself does."""
        if isinstance(operand, Const):
            return ("const", operand.value)
        if operand.name not in self.made:
            return ("var", operand.name)
        op = self.made[operand.name]
        if op is None or op.regions or op.op == "alloc" or effects(op.op) != "none" or len(op.results) != 1:
            return None
        self.made[operand.name] = None  # while its operands are looked at: met again it is made from itself
        keys = tuple(self.key(a) for a in op.args)
        self.made[operand.name] = op
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
            if type(op) is Op and op.op in TENSOR_VIEWS and type(op.args[0]) is Var:
                name = op.args[0].name
                bases[op.results[0].name] = bases.get(name, name)
        return bases

    def accesses(self, outer: dict[str, str]) -> list[Access]:
        """What the body does to tensors that exist before it; `outer` are the views made outside of it, and the same
        for all who ask."""
        if self._accesses is None:
            self._accesses = self._look(outer)
        return self._accesses

    def _look(self, outer: dict[str, str]) -> list[Access]:
        bases = self.bases()
        found: list[Access] = []

        def root(name: str) -> str:
            name = bases.get(name, name)
            return outer.get(name, name)

        for stmt in self.flat:
            if type(stmt) is Call:
                op = Op("call", (), stmt.args, loc=stmt.loc)
                found += [
                    Access(op, root(a.name), None, True)
                    for a in stmt.args
                    if isinstance(a, Var) and isinstance(a.type, TensorType)
                ]
            if type(stmt) is not Op or (at := tensor_arg(stmt.op)) is None or effects(stmt.op) == "none":
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


def find_places(subscripts: Subscripts, outer: dict[str, str]) -> tuple[list[Place], list[tuple[str, NoReduction, Op]]]:
    """The places that a loop accumulates into, and those read and written by all iterations in another way (with the
    tensor's name and a write)."""
    loop, accesses = subscripts.loop, subscripts.accesses(outer)
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


Interval = tuple[int | None, int | None]  # the first index and how many, where they are constants


def _apart(a: Key, b: Key, first: Op, second: Op) -> bool:
    """Whether two places of one tensor have no element in common, by constants."""
    if a is None or b is None:
        return False
    if a[1] == b[1]:
        x, y = _intervals(a, first), _intervals(b, second)
    else:
        x, y = _in_base(a, first), _in_base(b, second)
    if x is None or y is None or len(x) != len(y):
        return False
    return any(_disjoint(one, other) for one, other in zip(x, y, strict=True))


def _disjoint(a: Interval, b: Interval) -> bool:
    if a[0] is None or b[0] is None:
        return False
    (low, size), (high, _) = (a, b) if a[0] <= b[0] else (b, a)
    assert low is not None and high is not None
    return size is not None and low + size <= high


def _constant(key: Key) -> int | None:
    return key[1] if key[0] == "const" else None


def _intervals(key: Key, op: Op) -> list[Interval]:
    """What an access touches along each axis of the tensor or view that it names."""
    tile = next((v.type for v in (*op.results, *op.args) if isinstance(v.type, TileType)), None)
    sizes = [1] * len(key[2:]) if tile is None else tile.shape
    return [(_constant(at), size) for at, size in zip(key[2:], sizes, strict=True)]


def _in_base(key: Key, op: Op) -> list[Interval] | None:
    """The same along each axis of the tensor below a view; None for other kinds of views."""
    own = _intervals(key, op)
    tensor = key[1]
    if tensor[0] == "var":
        return own
    if tensor[0] != "view" or tensor[2][0] != "var":
        return None
    rank = (len(tensor) - 3) // 2
    drop: Any = dict(tensor[1]).get("drop") or ()
    inner = iter(own)
    found: list[Interval] = []
    for axis in range(rank):
        start, extent = _constant(tensor[3 + axis]), _constant(tensor[3 + rank + axis])
        if axis in drop:
            found.append((start, 1))
            continue
        at, size = next(inner)
        known = start is not None and at is not None
        found.append((start + at, size) if known else (start, extent))  # pyright: ignore[reportOperatorIssue]
    return found
