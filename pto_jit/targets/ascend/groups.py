# SPDX-License-Identifier: MIT
"""Kernels whose matrix products and other work need each other: a cube core and its vector cores, in step.

The three cores of a group have nothing in common but global memory and flags.  Both kinds walk through the loops of the
kernel: the cube core takes the products and the loads of their operands, a vector core everything else.  What one makes
and the other reads passes through a slot of global memory that belongs to the group, in four steps::

    cube core                            vector cores
    wait until the slot was taken
    store the product   (FIX)
    tell: it is ready   (FIX)
                                         wait until it is ready
                                         load it               (MTE2)
                                         tell: it was taken    (MTE2)

and the other way round for tiles that are operands of products.  There is one pair of flags for each direction, because
both sides come past the same values in the same order, and one for products that the cube core takes one iteration
ahead (`ahead`).  Flags count; a vector core's counts when both have raised it.

Each vector core takes half of the rows where `halves` allows it.  Sums of products that other work also touches
(`acc = acc * shrink + p @ v`) are added up on the vector cores.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from pto_jit.dtypes import f32
from pto_jit.errors import Loc
from pto_jit.ir.nodes import For, Func, If, Op, Operand, Stmt, Var, While
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import defs, statements, uses
from pto_jit.slotted import frozen, replace
from pto_jit.targets.ascend.cube import CubeWriter, Matrix, Sum
from pto_jit.targets.ascend.form import (
    Assignment,
    Branch,
    CrossSet,
    CrossWait,
    Global,
    Instruction,
    KernelForm,
    Loop,
    Node,
    Parameter,
    Tile,
    texts_of,
)
from pto_jit.targets.ascend.halves import can_halve
from pto_jit.targets.ascend.machine import element_type, padded
from pto_jit.targets.ascend.plans import TILE_IS_READY, TILE_IS_TAKEN, Plan, check, look_ahead, plan_of
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.ascend.sizes import Tensor, least, names, product, text, total
from pto_jit.targets.ascend.unread import without_unread
from pto_jit.targets.ascend.values import Expr, Size, Span, Value
from pto_jit.targets.ascend.vector import VectorWriter
from pto_jit.targets.ascend.writer import KernelWriter
from pto_jit.targets.cuda.facts import Facts
from pto_jit.targets.cuda.nests import touches_tiles, writes
from pto_jit.targets.source.text import words_of

_OPERANDS = frozenset(["f16", "bf16", "f32"])


def write_group(func: Func, facts: Facts, sizes: dict[str, int]) -> KernelForm:
    """The form of both sides: that of the vector cores, with the cube core's as its partner."""
    plan = plan_of(func)
    check(func, plan, facts)
    look_ahead(func, plan, facts)
    try:
        vector = VectorSide(func, facts, sizes, plan, can_halve(func, plan.fetched))
        vector.block(func.body)
    except CountedEarly:
        plan = plan_of(func)
        look_ahead(func, plan, facts)
        vector = VectorSide(func, facts, sizes, plan, False)
        vector.block(func.body)
    cube = CubeSide(func, facts, sizes, plan)
    cube.block(func.body)
    one, other = vector.form(), cube.form()
    tiles = {TILE_IS_TAKEN} if vector.sends else set[int]()
    _enclosed(one.body, vector.receives, tiles)
    _enclosed(other.body, tiles, vector.receives)
    for form in (one, other):
        form.body[:] = without_unread(form.body)
    parameters = {p.name: p for p in (*one.parameters, *other.parameters)}
    for name, (rows, columns, dtype) in plan.slots.items():
        parameters[name] = Parameter(name, dtype, True, ("slot", rows * columns * (4 if dtype == "float" else 2)))
    limits = one.limits | other.limits
    checks = [*one.checks, *(c for c in other.checks if c not in one.checks)]
    both = list(parameters.values())
    partner = KernelForm(f"{func.name}_cube", "cube", both, other.body, limits, checks)
    return KernelForm(func.name, "vector", both, one.body, limits, checks, partner, functions=one.functions)


def _enclosed(body: list[Node], takes: set[int], gives: set[int]) -> None:
    """All slots are free at first, which those who take from them tell, and again at the end, for which givers wait."""
    body[:0] = [CrossSet("MTE2", flag) for flag in sorted(takes)]
    body += [CrossWait(flag) for flag in sorted(gives)]


class _Side(KernelWriter):
    """What both sides have in common: names that do not depend on the side, and the slots."""

    plan: Plan

    def in_step(self, stmt: If) -> bool:
        return any(isinstance(s, Op) and s.op == "dot" for s in statements((stmt,)))

    def start(self, plan: Plan) -> None:
        self.plan = plan
        for s in statements(self.func.body):
            for v in defs(s):
                self.names.of(v.name)
        for name in sorted(plan.sent | plan.products):
            self.names.of(f"{name}.slot")
            self.names.of(f"{name}.product.slot")

    def slot(self, name: str, dtype: str, shape: tuple[int, int], valid: tuple[int | str, int | str], loc: Loc,
             element: object, transposed: bool = False, at: Size = 0) -> Global:  # fmt: skip
        """The rectangle of a slot that is valid; each group has one of its own."""
        own = self.names.of(f"{name}.slot")
        known = self.plan.slots.setdefault(own, (*shape, dtype))
        here = f"{own} + get_block_idx() * {known[0] * known[1]}" + (f" + {text(at)}" if at != 0 else "")
        strides = ("1", str(known[1])) if transposed else (str(known[1]), "1")
        out = Global(self.names.fresh(f"{own}_here"), element, f"slot {own}", here, valid, strides, transposed)  # type: ignore[arg-type]
        self.declare(out, loc)
        return out


@frozen
class Half:
    """A vector core's part of the rows of a tile: how many, from which on, of how many (which have a name); sure: as
    many as there are in a tensor, not in a tile that is generated and may be cut with another one."""

    rows: Size
    start: Size
    all: Size
    name: str
    sure: bool


class CountedEarly(Exception):
    """Rows are numbered before it is known how they are divided."""


class VectorSide(VectorWriter, _Side):
    """The vector cores' part of a kernel."""

    in_group = True

    def __init__(self, func: Func, facts: Facts, sizes: dict[str, int], plan: Plan, halving: bool) -> None:
        super().__init__(func, facts, sizes)
        self.start(plan)
        self.sends = False
        self.receives: set[int] = set()  # the flags that tell what was taken
        self.elsewhere: dict[str, tuple[tuple[int, int], tuple[Size, Size]]] = {}  # of tiles that the cube core loads
        self.halving = halving
        self.halves: dict[str, Half] = {}  # by this core's rows
        self.starts: dict[str, Size] = {}  # by this core's rows, or those of them that are stored, where they begin
        self.loading = False

    def tile_operation(self, op: Op) -> None:
        name = op.results[0].name if op.results else ""
        if name in self.plan.fetched:
            self.look_at(op)
        elif op.op == "dot":
            self.receive(op)
        elif writes(op):
            value = self.values.get(op.args[0].name) if isinstance(op.args[0], Var) else None
            with self.first_core(op.loc, 1 if value is None or value.span == "row" else value.valid[0]):
                super().tile_operation(op)
        else:
            super().tile_operation(op)
        if name in self.plan.sent:
            self.send(name, op.loc)

    def first_core(self, loc: Loc, rows: Size = 1) -> Any:
        """Where each vector core has rows of its own, the one that has some stores; else the first one stores all."""
        half = self.halves.get(text(rows))
        if half is not None and isinstance(rows, int):  # both have some
            return nullcontext()
        node = Branch("get_subblockid() == 0" if half is None else f"get_subblockid() == 0 || {half.name} > 1", [], [],
                      loc)  # fmt: skip
        self.nodes.append(node)
        return self.inside(node.then)

    # -- halves ---------------------------------------------------------------------------------------------------

    def shape(
        self, operands: tuple[Operand, ...], typ: TileType, loc: Loc
    ) -> tuple[Span, tuple[int, int], tuple[Size, Size]]:
        """Each core has memory for its own rows; those of what is loaded are known when it was cut (`clipped`)."""
        span, (rows, columns), (height, width) = super().shape(operands, typ, loc)
        mine = height if self.loading or rows == 1 else self.half(height, loc, sure=False)
        return span, (self.own(rows), columns), (mine, width)

    def own(self, rows: int) -> int:
        """Of so many rows in memory, how many a core has."""
        return padded(-(-rows // 2), 4) if self.halving and rows > 1 else rows

    def whole(self, value: Value) -> tuple[int, int]:
        """Rows and columns in memory of a tile that each core has its rows of."""
        rows, columns = value.capacity
        return (2 * rows if text(value.valid[0]) in self.halves else rows), columns

    def half(self, rows: Size, loc: Loc, *, sure: bool = True) -> Size:
        """This core's part of the rows of a tile; of one row both have it, and the first one stores it."""
        if not self.halving or rows == 1 or text(rows) in self.halves:
            return rows
        known = next((h for h in self.halves.values() if h.all == rows and self.visible(h.rows)), None)
        if known is not None:
            self.halves[text(known.rows)] = replace(known, sure=known.sure or sure)
            return known.rows
        whole = self.named_early(rows, "rows", loc)
        if isinstance(rows, int) and rows % 2 == 0:
            mine: Size = rows // 2
            start: Size = Expr(f"get_subblockid() * {rows // 2}", frozenset())
        else:
            seen = names(rows) | ({whole} if isinstance(whole, str) else frozenset())
            begin = Expr(f"get_subblockid() == 0 || {whole} == 1 ? 0 : ({whole} + 1) / 2", seen)
            count = Expr(f"get_subblockid() == 0 ? ({whole} + 1) / 2 : larger(1, {whole} / 2)", seen)
            parts = (self.named_early(begin, "first_row", loc), self.named_early(count, "own_rows", loc))
            start, mine = (Expr(str(n), frozenset([str(n)])) for n in parts)
            clip = self.clips.get(text(rows))
            if clip is not None:
                self.clips[text(mine)] = clip
                self.begins[text(mine)] = self.begins[text(rows)]
        self.halves[text(mine)] = Half(mine, start, rows, str(whole), sure)
        self.starts[text(mine)] = start
        return mine

    def start_of(self, rows: Size) -> Size:
        return self.starts.get(text(rows), 0)

    def clipped(self, tensor: Tensor, axis: int, offset: Operand, extent: Size) -> Size:
        out = super().clipped(tensor, axis, offset, extent)
        return self.half(out, self.func.loc) if self.loading and axis == len(tensor.extents) - 2 else out

    def _cut(self, valid: Size, tensor: Tensor, axis: int, offset: Operand) -> Size:
        """Of this core's rows those inside a tensor: they begin behind those of the other one."""
        half = self.halves.get(text(valid)) if axis < len(tensor.extents) - 1 else None
        if half is None:
            return super()._cut(valid, tensor, axis, offset)
        if super()._cut(half.all, tensor, axis, offset) == half.all:
            return valid
        inside = total(total(tensor.extents[axis], self.size(offset), "-"), half.start, "-")
        out = least(valid, inside)
        self.starts[text(out)] = half.start
        return out

    def load(self, op: Op) -> None:
        self.loading = True
        super().load(op)
        self.loading = False

    def transfer(
        self, value: Value, tensor: Tensor, pointer: str, stride: Size, loc: Loc, how: str, row: int = -2
    ) -> None:
        if value.span in ("full", "column"):
            at = product(self.start_of(value.valid[0]), stride)
            pointer = pointer if at == 0 else f"{pointer} + {text(at)}"
        super().transfer(value, tensor, pointer, stride, loc, how, row)

    def reshape(self, op: Op) -> None:
        """Numbers that count rows count them from this core's first one on."""
        super().reshape(op)
        name = op.results[0].name
        out = self.values[name]
        if self.halving and out.span == "column" and op.op == "reshape":
            known = next((h for h in self.halves.values() if h.sure and self.visible(h.rows)), None)
            if known is None:
                raise CountedEarly
            memory = self.own(out.capacity[0]), 1
            out = Value(out.name, out.dtype, out.span, memory, (known.rows, 1), out.buffer, (False, False))
            self.hold(op.results[0], self.elementwise.scaled("TADDS", out, text(known.start), self.temp, op.loc))

    def look_at(self, op: Op) -> None:
        """Shape and valid extents of a tile that the cube core has."""
        name = op.results[0].name
        if op.op == "transpose":
            capacity, valid = self.of(op.args[0])
            self.elsewhere[name] = (capacity[1], capacity[0]), (valid[1], valid[0])
            return
        tensor = self.tensor(op.args[0])
        rank = len(tensor.extents)
        offsets, extents = op.args[1 : 1 + rank], op.args[1 + rank : 1 + 2 * rank]
        if rank < 2:
            raise unsupported("an operand of a product of one axis", op.loc, "load a tile of two axes")
        rows, columns = (self.clipped(tensor, a, offsets[a], self.size(extents[a])) for a in (rank - 2, rank - 1))
        self.elsewhere[name] = (self.bound(extents[-2], op.loc), self.bound(extents[-1], op.loc)), (rows, columns)

    def of(self, operand: Operand) -> tuple[tuple[int, int], tuple[Size, Size]]:
        assert isinstance(operand, Var)
        known = self.elsewhere.get(operand.name)
        if known is not None:
            return known
        value = self.values[operand.name]
        return self.whole(value), value.valid

    def receive(self, op: Op) -> None:
        """The product of two tiles, from the cube core; added to what it is to be added to."""
        (left, rows), (right, columns) = self.of(op.args[0]), self.of(op.args[1])
        shape, valid = (padded(left[0], 4), right[1]), (self.half(rows[0], op.loc), columns[1])
        memory = (self.own(shape[0]) if rows[0] != 1 else shape[0]), shape[1]
        typ = op.results[0].type
        assert isinstance(typ, TileType)
        if typ.rank != 2:
            raise unsupported(
                "a product of matrices along a run-time first axis together with other work", op.loc,
                "multiply two matrices at a time, in a loop over the first axis, or make it a constant",
            )  # fmt: skip
        if typ.dtype != f32 or 1 in shape:
            raise unsupported("this product together with other work", op.loc,
                              "multiply f16, bf16 or f32 tiles of more than one row and column")  # fmt: skip
        to = self.temp if len(op.args) == 3 else self.destination(op.results[0])
        value: Value = to(f32, "full", memory, valid)
        tile = self.tile(value, loc=op.loc)
        name = op.results[0].name if len(op.args) == 2 else f"{op.results[0].name}.product"
        at = product(self.start_of(valid[0]), _whole(shape)[1])
        slot = self.slot(name, "float", _whole(shape), tile.valid, op.loc, f32, at=at)
        ready, taken = self.plan.flags(op.results[0].name)
        self.nodes.append(CrossWait(ready, op.loc))
        self.emit("TLOAD", tile, slot, loc=op.loc)
        self.nodes.append(CrossSet("MTE2", taken, op.loc))
        self.receives.add(taken)
        if len(op.args) == 3:
            to = self.destination(op.results[0])
            self.elementwise.binary("ADD", self.value(op.args[2]), value, to, op.loc)

    def send(self, name: str, loc: Loc) -> None:
        value = self.values[name]
        if value.span != "full" or value.dtype.name not in _OPERANDS:
            raise unsupported(f"a computed operand `{name}` of a product", loc,
                              "use tiles of f16, bf16 or f32 with more than one row and column")  # fmt: skip
        known = self.halves.get(text(value.valid[0]))
        self.plan.extents[name] = value.valid if known is None else (known.all, value.valid[1])
        tile = self.tile(value, loc=loc)
        typ = element_type(value.dtype)
        assert typ is not None
        self.nodes.append(CrossWait(TILE_IS_TAKEN, loc))
        with self.first_core(loc, value.valid[0]):
            shape = _whole(self.whole(value))
            at = product(self.start_of(value.valid[0]), shape[1])
            memory = self.slot(name, typ, shape, tile.valid, loc, value.dtype, at=at)
            self.emit("TSTORE", memory, tile, loc=loc)
        self.nodes.append(CrossSet("MTE3", TILE_IS_READY, loc))
        self.sends = True


class CubeSide(CubeWriter, _Side):
    """The cube core's part of a kernel."""

    def __init__(self, func: Func, facts: Facts, sizes: dict[str, int], plan: Plan) -> None:
        super().__init__(func, facts, sizes)
        self.start(plan)
        self.turned &= plan.turned

    def statement(self, stmt: Stmt) -> None:
        if isinstance(stmt, While) or (isinstance(stmt, If) and {v.name for v in uses(stmt)} & self.plan.unknown):
            return  # without products
        known = isinstance(stmt, For) or touches_tiles(stmt) or not ({v.name for v in uses(stmt)} & self.plan.unknown)
        if not known or (isinstance(stmt, Op) and writes(stmt)):
            return  # the vector cores do it
        super().statement(stmt)

    def loop(self, loop: For) -> None:
        """In a loop with products that go ahead there is one more iteration, if any: each part has its own numbers."""
        parts = self.plan.ahead.get(id(loop))
        if parts is None:
            super().loop(loop)
            return
        var, ahead = self.names.of(loop.var.name), self.names.fresh(f"{loop.var.name}.ahead")
        start, stop, step = (self.size(o) for o in (loop.start, loop.stop, loop.step))
        end = text(total(stop, step))
        if not (isinstance(start, int) and isinstance(stop, int) and start < stop):
            first, last, end = text(start), end, self.names.fresh(f"{loop.var.name}.end")
            self.nodes.append(Assignment("int64_t", end, f"{first} < {text(stop)} ? {last} : {first}", loop.loc))
        node = Loop(ahead, text(start), end, text(step), [], loc=loop.loc, ahead=True)
        self.loop_of[loop.var.name] = loop
        self.nodes.append(node)
        self.loops.append(node)
        with self.inside(node.body):
            self.scopes[-1][ahead] = ahead
            for condition, when, value, body in (
                (f"{ahead} < {text(stop)}", "not last", ahead, parts[0]),
                (f"{ahead} > {text(start)}", "not first", f"{ahead} - {text(step)}", parts[1]),
            ):
                part = Branch(condition, [], [], loop.loc, when)
                self.nodes.append(part)
                with self.inside(part.then):
                    self.nodes.append(Assignment("int64_t", var, value, loop.loc))
                    self.scopes[-1][var] = var
                    self.block(body)
                if var not in words_of(" ".join(texts_of(part.then[1:]))):
                    del part.then[0]
        self.loops.pop()

    def tile_operation(self, op: Op) -> None:
        name = op.results[0].name if op.results else ""
        if name in self.plan.fetched:
            super().tile_operation(op)
        elif op.op == "dot":
            self.product(op)
        if name in self.plan.sent:
            self.fetch(op)

    def product(self, op: Op) -> None:
        plain = Op("dot", (Var(f"{op.results[0].name}.product", op.results[0].type),), op.args[:2], (), (), op.loc)
        self.dot(plain)
        out = self.sums.pop(plain.results[0].name)
        assert out.valid is not None
        self.give(op, out, (out.valid[0], out.valid[1]))

    def give(self, op: Op, out: Sum, valid: tuple[Size, Size]) -> None:
        extents = self.named(valid[0], f"{out.name}_rows", op.loc), self.named(valid[1], f"{out.name}_columns", op.loc)
        name = op.results[0].name if len(op.args) == 2 else f"{op.results[0].name}.product"
        memory = self.slot(name, "float", out.capacity, extents, op.loc, f32)
        tile = self.sum_tile(out, out.dtype, extents, op.loc)
        ready, taken = self.plan.flags(op.results[0].name)
        self.nodes.append(CrossWait(taken, op.loc))
        self.nodes.append(Instruction("TSTORE_ACC", (memory, tile), op.loc))
        self.nodes.append(CrossSet("FIX", ready, op.loc))

    def fetch(self, op: Op) -> None:
        """A tile of the vector cores into L1."""
        name = op.results[0].name
        typ = op.results[0].type
        assert isinstance(typ, TileType)
        rows, columns = self.plan.extents[name]
        if not (self.visible(rows) and self.visible(columns)):
            raise unsupported(f"a computed operand `{name}` of a product whose valid extents are known in a loop only",
                              op.loc, "give tiles constant extents")  # fmt: skip
        shape = self.plan.slots[self.names.of(f"{name}.slot")][:2]
        transposed = name in self.turned
        if transposed:
            rows, columns, shape = columns, rows, (shape[1], shape[0])
        capacity = (_fractals(shape[0]), _fractals(shape[1]))
        matrix = Matrix(name, typ.dtype, capacity, (rows, columns), transposed,
                        self.memory(name, "Mat", capacity[0] * capacity[1] * typ.dtype.bytes))  # fmt: skip
        extents = self.named(rows, f"{name}_rows", op.loc), self.named(columns, f"{name}_columns", op.loc)
        tile = Tile(self.names.fresh(name), typ.dtype, *capacity, extents, "zn" if transposed else "nz", matrix.buffer)
        self.declare(tile, op.loc)
        memory = self.slot(name, "", shape, extents, op.loc, typ.dtype, transposed)
        self.nodes.append(CrossWait(TILE_IS_READY, op.loc))
        self.nodes.append(Instruction("TLOAD_L1", (tile, memory), op.loc))
        self.nodes.append(CrossSet("MTE2", TILE_IS_TAKEN, op.loc))
        self.scopes[-1][f"@{id(matrix.buffer)}"] = tile  # type: ignore[assignment]
        self.matrices[name] = matrix


def _fractals(extent: int) -> int:
    return -(-extent // 16) * 16


def _whole(shape: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of a slot: whole fractals, as products are stored."""
    return _fractals(shape[0]), _fractals(shape[1])
