# SPDX-License-Identifier: MIT
"""The plan "sequential": the loops of the nest in the order of the program.

A state that is a tensor or number is a variable that the loop carries; one that is a list is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.memory import view as view_of
from pto_jit.codegen.builtins.promote import load_all
from pto_jit.codegen.emit import I64, constant, index
from pto_jit.codegen.values import Scalar, Tile, static_extent
from pto_jit.fractal.compile.checks import any_fails, write_check
from pto_jit.fractal.compile.expr import Condition, Expr, Writer, binary, numbering_of, of
from pto_jit.fractal.compile.layout import leaf_of, part_of, place
from pto_jit.fractal.compile.lists import (
    CHECKS,
    Access,
    Array,
    Block,
    Check,
    Choose,
    Compute,
    Computed,
    Filled,
    Index,
    Leaf,
    Loop,
    Part,
    Read,
    ReadLeaf,
    WriteLeaf,
)
from pto_jit.fractal.compile.local import allocate_local
from pto_jit.ir import walk
from pto_jit.ir.nodes import For, If, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.lower.pipeline import DEVICES
from pto_jit.semantic.table import effects
from pto_jit.slotted import replace

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

RECORDS = (Loop, ReadLeaf, WriteLeaf, Compute, Check)
NO_STATE = "no state goes from one iteration to the next, and each writes elements of its own"


def variable_of(value: Scalar | Tile) -> Operand:
    return value.operand if isinstance(value, Scalar) else value.var


def name_of(value: Scalar | Tile) -> str:
    """The name of the variable of a value that is not a constant."""
    var = variable_of(value)
    assert isinstance(var, Var)
    return var.name


class Sequential:
    """Writes records as IR; `kept`: arrays that are read from memory; `local`: see `local_arrays`."""

    def __init__(
        self, g: Generator, kept: set[int], local: Mapping[int, Sequence[tuple[Array, int]]] | None = None
    ) -> None:
        self.g = g
        self.turned: set[str] = set()  # what operations exchange axes of
        self.e = g.e
        self.kept = kept
        self.local = local or {}
        self.carriers: dict[int, Var] = {}  # state arrays that are variables
        self.last: set[int] = set()  # those of which only the value behind the loop is read from memory
        self.checking = False  # in a loop around checks alone

    def block(self, items: Sequence[Any], writer: Writer) -> None:
        pending: list[tuple[Var, Operand]] = []
        self.turned |= transposed(items)
        start, states = len(self.e.current), self.states(items)
        for item in items:
            match item:
                case Loop():
                    self.loop(item, writer)
                case ReadLeaf():
                    if name_of(item.value) not in states:
                        self.read_leaf(item, writer)
                case WriteLeaf():
                    carrier = self.carriers.get(id(item.array))
                    if carrier is not None:
                        pending.append((carrier, variable_of(item.value)))
                    if carrier is None or (id(item.array.root) in self.kept and id(item.array) not in self.last):
                        self.write(item, writer)
                case Compute():
                    self.assign(item.var, writer.expr(item.expr))
                case Check():
                    write_check(self.g, item, writer, alone=self.checking)
                case _:
                    self.e.append(self.inside(item, writer))
        self.together([(var, states.get(getattr(value, "name", ""), value)) for var, value in pending])
        if states:
            self.e.current[start:] = walk.substitute(tuple(self.e.current[start:]), states)

    def states(self, items: Sequence[Any]) -> dict[str, Operand]:
        """The tensors that are states, with the variables that hold them: until these are assigned, behind all else."""
        if any(isinstance(i, Loop) for i in items):  # which may run beside each other, each with states of its own
            return {}
        return {
            name_of(i.value): self.carriers[id(i.state)]
            for i in items
            if isinstance(i, ReadLeaf) and i.leaf.extents and id(i.state) in self.carriers
            if name_of(i.value) not in self.turned
        }

    def inside(self, stmt: Stmt, writer: Writer) -> Stmt:
        """A statement of the user's program whose blocks may have records."""
        inner = walk.blocks(stmt)
        if not any(has_records(b) for b in inner):
            return stmt
        new = []
        for block in inner:
            with self.e.block() as written:
                self.block(block, writer)
            new.append(tuple(written))
        return walk.with_blocks(stmt, tuple(new))

    def together(self, pending: Sequence[tuple[Var, Operand]]) -> None:
        """Assignments as if they happened at once."""
        targets = {var.name for var, _ in pending}
        saved: dict[str, Var] = {}
        for _, source in pending:
            if isinstance(source, Var) and source.name in targets and source.name not in saved:
                saved[source.name] = self.e.fresh(f"{source.name}_old", source.type)
                self.assign(saved[source.name], source)
        for var, source in pending:
            self.assign(var, saved.get(source.name, source) if isinstance(source, Var) else source)

    def assign(self, var: Var, value: Operand) -> None:
        if not (isinstance(value, Var) and value.name == var.name):
            numbering_of(self.e).assigned.add(var.name)
            self.e.append(Op("copy", (var,), (value,), (), (), self.e.loc))

    # -- loops -----------------------------------------------------------------------------------------------------

    def loop(self, loop: Loop, writer: Writer) -> None:
        e = self.e
        if loop.chains is not None:
            self.chains(loop, loop.chains, writer)
            return
        if loop.schedule == CHECKS and not self.checking and self.g.options.target not in DEVICES:
            self.checks(loop, writer)
            return
        self.carried(loop, writer)
        stop = writer.expr(loop.length)
        var = e.fresh(loop.symbol.name, I64)
        last = self.last_values(loop)
        self.last |= {id(item.array) for item in last}
        with e.block() as block:
            self.iteration(loop, loop.body, writer.but({loop.symbol: var}))
        kind = "parallel" if loop.kind == "parallel" else "sequential"
        proof = NO_STATE if kind == "parallel" and not has_effects(loop.body) else ""
        e.append(For(kind, var, index(0), stop, index(1), tuple(block), loc=loop.loc, proof=proof))
        self.leave(loop, last, writer)

    def checks(self, loop: Loop, writer: Writer) -> None:
        """A loop around checks alone: one after the other, to tell the first that fails, where one does."""
        wrong = any_fails(self.g, loop, writer)
        with self.e.block() as told:
            self.checking = True
            self.loop(loop, writer)
            self.checking = False
        self.e.append(If(wrong, tuple(told), (), loop.loc))

    def last_values(self, loop: Loop) -> list[WriteLeaf]:
        """The states of a loop that are variables, and of which the value behind the loop is read from memory."""
        states = {id(i.state) for i in own_records(loop.body) if isinstance(i, ReadLeaf) and i.state is not None}
        writes = [i for i in own_records(loop.body) if isinstance(i, WriteLeaf) and id(i.array) in states]
        kept = [i for i in writes if i.array.temporary and id(i.array.root) in self.kept]
        return list({id(i.array): i for i in kept}.values())

    def leave(self, loop: Loop, last: Sequence[WriteLeaf], writer: Writer) -> None:
        """Write the states to memory, behind their loop, if it had an iteration."""
        if not last:
            return
        with self.e.block() as block:
            for item in last:
                at = tuple(x.replace({loop.symbol: loop.length - 1}) for x in item.index)
                var = self.carriers[id(item.array)]
                value = Tile(var, item.array.leaf.extents) if item.array.leaf.extents else Scalar(var, False)
                self.write(replace(item, index=at, value=value), writer)
        some = writer.op("gt", writer.expr(loop.length), index(0))
        self.e.append(If(some, tuple(block), (), self.e.loc))

    def chains(self, loop: Loop, d: Expr, writer: Writer) -> None:
        """A loop over the chains, whose iterations do not depend on each other, around one over those of a chain.

        What a chain starts from is computed once for it: it stood between the two loops in the program.
        """
        from pto_jit.fractal.compile.names import of_initial_states

        e, before = self.e, of_initial_states(loop.body)
        rest = [item for item in loop.body if not any(item is other for other in before)]
        chain, k = e.fresh("chain", I64), e.fresh(loop.symbol.name, I64)
        chains = writer.expr(binary("min", d, loop.length))
        with e.block() as outer:
            first = writer.but({loop.symbol: chain})
            self.block(before, first)
            self.carried(loop, first)
            stop = first.expr(binary("floordiv", loop.length - of(loop.symbol) + d - 1, d))
            with e.block() as inner:
                at = e.scalar("add", [e.scalar("mul", [k, writer.expr(d)]).operand, chain]).operand
                self.iteration(loop, rest, writer.but({loop.symbol: at}))
            e.append(For("sequential", k, index(0), stop, index(1), tuple(inner), loc=loop.loc))
        proof = "" if has_effects(loop.body) else f"by the distance {d}: the parts of a list do not read each other"
        e.append(For("parallel", chain, index(0), chains, index(1), tuple(outer), loc=loop.loc, proof=proof))

    def carried(self, loop: Loop, writer: Writer) -> None:
        for item in own_records(loop.body):
            if isinstance(item, ReadLeaf) and item.state is not None:
                self.carry(item, writer)

    def iteration(self, loop: Loop, items: Sequence[Any], inside: Writer) -> None:
        for array, outer in self.local.get(id(loop), ()):
            allocate_local(inside, array, outer)
        around, self.checking = self.checking, loop.schedule == CHECKS
        self.block(items, inside)
        self.checking = around

    def carry(self, item: ReadLeaf, writer: Writer) -> None:
        """A variable for a state, with its initial value."""
        assert item.state is not None and isinstance(item.read, Choose)
        var = self.e.fresh("state", variable_of(item.value).type)
        if item.leaf.extents:
            self.e.extents[var.name] = item.leaf.extents
        self.carriers[id(item.state)] = var
        first = item.read.then
        if item.state.elements is not None:  # there may be none to read
            first = Choose(Condition("positive", item.state.elements - 1), first, Filled(0))
        self.read(first, item.leaf, var, writer)

    # -- leaves ----------------------------------------------------------------------------------------------------

    def read_leaf(self, item: ReadLeaf, writer: Writer) -> None:
        target = variable_of(item.value)
        assert isinstance(target, Var)
        for array in (item.state, item.final):
            if array is not None and id(array) in self.carriers:
                self.assign(target, self.carriers[id(array)])
                return
        self.chosen(item.read, item.leaf, target, writer)

    def chosen(self, read: Read, leaf: Leaf, target: Var, writer: Writer) -> None:
        """Assign the leaf to `target`, whose axes may be exchanged: for that a value has to be assigned once, and what
        a choice reads is assigned in both of its branches."""
        if not isinstance(read, Choose) or target.name not in self.turned:
            self.read(read, leaf, target, writer)
            return
        either = self.e.fresh(target.name, target.type)
        self.e.extents[either.name] = leaf.extents
        self.read(read, leaf, either, writer)
        self.assign(target, either)

    def read(self, read: Read, leaf: Leaf, target: Var, writer: Writer) -> None:
        """Assign the leaf to `target`."""
        if isinstance(read, Choose):
            cond = writer.condition(read.condition)
            with self.e.block() as then:
                self.read(read.then, leaf, target, writer)
            with self.e.block() as otherwise:
                self.read(read.otherwise, leaf, target, writer)
            self.e.append(If(cond, tuple(then), tuple(otherwise), self.e.loc))
            return
        self.assign(target, self.value(read, leaf, writer))

    def value_of(self, read: Read, leaf: Leaf, writer: Writer) -> Scalar | Tile:
        """The leaf as a value."""
        if leaf.extents:
            kind: Any = TileType(leaf.dtype, tuple(static_extent(x) for x in leaf.extents))
            var = self.e.fresh("x", kind)
            self.e.extents[var.name] = leaf.extents
            self.read(read, leaf, var, writer)
            return Tile(var, leaf.extents)
        var = self.e.fresh("x", ScalarType(leaf.dtype))
        self.read(read, leaf, var, writer)
        return Scalar(var, leaf.weak)

    def value(self, read: Read, leaf: Leaf, writer: Writer) -> Operand:
        e = self.e
        match read:
            case Access():
                tensor, row = place(writer, read.array, read.index)
                if not leaf.extents:
                    return e.scalar("getelem", [tensor.var, row]).operand
                return load_all(self.g, leaf_of(self.g, tensor, row)).var
            case Block():
                tensor, row = place(writer, read.array, read.index)
                zeros = [index(0)] * (tensor.rank - 1)
                rows = view_of(self.g, tensor, [row, *zeros], [writer.expr(read.count), *tensor.extents[1:]])
                tile = load_all(self.g, rows)
                return e.op("reshape", [tile.var, *leaf.extents])[0]
            case Index():
                return writer.expr(read.value)
            case Computed():
                return e.cast(read.value, leaf.dtype).operand if isinstance(read.value, Scalar) else read.value.var
            case Part():
                starts = [writer.expr(x) for x in read.starts]
                if not leaf.extents:
                    op = "extract" if isinstance(read.source, Tile) else "getelem"
                    return e.scalar(op, [read.source.var, *starts]).operand
                part = part_of(self.g, read, starts, leaf.extents, self.is_inside(read))
                tile = part if isinstance(part, Tile) else load_all(self.g, part)
                if tile.extents != leaf.extents:
                    tile = e.tile("reshape", [tile.var, *leaf.extents], extents=leaf.extents)
                return tile.var
            case Filled():
                number = constant(read.value, leaf.dtype)
                if not leaf.extents:
                    return number
                return e.tile("full", [number, *leaf.extents], extents=leaf.extents).var
        raise AssertionError(read)

    def is_inside(self, part: Part) -> bool:
        """Whether a part is known to lie in its tensor: what knows the loops around it says so."""
        return False

    def write(self, item: WriteLeaf, writer: Writer) -> None:
        tensor, row = place(writer, item.array, item.index)
        if not item.array.leaf.extents:
            self.e.op("setelem", [variable_of(item.value), tensor.var, row])
            return
        target = leaf_of(self.g, tensor, row)
        assert isinstance(item.value, Tile)
        self.e.op("store", [item.value.var, target.var, *([index(0)] * target.rank)])


# -- what records read and write -----------------------------------------------------------------------------------


def has_records(block: Sequence[Any]) -> bool:
    return any(
        isinstance(item, RECORDS) or (not isinstance(item, Op) and any(has_records(b) for b in walk.blocks(item)))
        for item in block
    )


def records(items: Sequence[Any]) -> Iterator[Any]:
    """All records, at any depth."""
    for item in items:
        if isinstance(item, RECORDS):
            yield item
            if isinstance(item, Loop):
                yield from records(item.body)
        elif not isinstance(item, Op):
            for block in walk.blocks(item):
                yield from records(block)


def own_records(items: Sequence[Any]) -> Iterator[Any]:
    """The records of one loop, those in branches, too."""
    for item in items:
        if isinstance(item, RECORDS):
            yield item
        elif not isinstance(item, Op):
            for block in walk.blocks(item):
                yield from own_records(block)


def has_effects(items: Sequence[Any]) -> bool:
    """Whether operations of the user's program, or checks, act on something besides their results."""
    for item in items:
        if isinstance(item, (Check, Loop)):
            if isinstance(item, Check) or has_effects(item.body):
                return True
        elif not isinstance(item, RECORDS) and (
            (isinstance(item, Op) and effects(item.op) == "writes") or any(has_effects(b) for b in walk.blocks(item))
        ):
            return True
    return False


def transposed(items: Sequence[Any]) -> set[str]:
    """The values whose axes are exchanged."""
    return {a.name for i in items if isinstance(i, Op) and i.op == "transpose" for a in i.args if isinstance(a, Var)}


def accessed(read: Read) -> Iterator[Array]:
    if isinstance(read, Choose):
        yield from accessed(read.then)
        yield from accessed(read.otherwise)
    elif isinstance(read, (Access, Block)):
        yield read.array.root


def read_by(items: Sequence[Any]) -> set[int]:
    """The arrays that are read."""
    return {id(a) for item in records(items) if isinstance(item, ReadLeaf) for a in accessed(item.read)}
