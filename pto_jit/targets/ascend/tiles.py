# SPDX-License-Identifier: MIT
"""The statements of a vector kernel that do not depend on operations: loops, numbers, and tiles that are generated."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import contextmanager
from typing import Any

from pto_jit.dtypes import DType, f32, i32, i64
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Block, Const, Func, Op, Operand, Stmt, Var, While
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.ir.walk import block_defs, statements, use_counts, uses
from pto_jit.targets.ascend.elementwise import Elementwise
from pto_jit.targets.ascend.form import Assignment, KernelForm, Loop, Node
from pto_jit.targets.ascend.held import HeldWriter
from pto_jit.targets.ascend.machine import padded
from pto_jit.targets.ascend.refusals import many_axes, unsupported
from pto_jit.targets.ascend.scalars import operand_text
from pto_jit.targets.ascend.values import Size, Span, Value, physical, row_axis, span_of
from pto_jit.targets.cuda.facts import Facts

_WORD = re.compile(r"[A-Za-z_]\w*")
TILED = frozenset(["f16", "bf16", "f32", "i16", "i32", "i8", "u8"])


class TileWriter(HeldWriter):
    """The part of writing a vector kernel that does not depend on operations."""

    def __init__(self, func: Func, facts: Facts, sizes: dict[str, int]) -> None:
        super().__init__(func, facts, sizes)
        self.elementwise = Elementwise(self)

    # -- functions ------------------------------------------------------------------------------------------------

    def times(self, operation: str) -> int:
        """How often the kernel has an operation."""
        if self._times is None:
            self._times = Counter(s.op for s in statements(self.func.body) if isinstance(s, Op))
        return self._times[operation]

    @contextmanager
    def aside(self, parameters: tuple[str, ...]) -> Any:
        """Write the body of a function, which has names of its own."""
        around = self.nodes, self.scopes, self.names
        self.nodes, self.scopes, self.names = [], [{p: p for p in parameters}], self.fresh_names()
        for p in parameters:
            self.names.of(p)
        yield self.nodes
        self.nodes, self.scopes, self.names = around
        self._look_again()

    def form(self) -> KernelForm:
        form = super().form()
        form.functions = list(self.functions.values())
        return form

    # -- statements -----------------------------------------------------------------------------------------------

    @contextmanager
    def inside(self, nodes: list[Node]) -> Any:
        with super().inside(nodes):
            yield
        self._look_again()

    def block(self, block: Block) -> None:
        while self.given:  # numbers that the kernel is given, and goes on with as tiles
            var = self.given.pop()
            assert isinstance(var.type, ScalarType)
            number = self.scalars.read(var)
            out = self.destination(var)(var.type.dtype, "one", (1, 1), (1, 1))
            self.fill(out, number, self.func.loc)
        super().block(block)

    def statement(self, stmt: Stmt) -> None:
        if isinstance(stmt, Op):
            for v in uses(stmt):
                self.left[v.name] -= 1
        super().statement(stmt)

    def repeat(self, loop: While) -> None:
        """A while loop: what its condition is made of is computed before it and at the end of each iteration."""
        if self.in_group:
            super().repeat(loop)
        made = block_defs(loop.before) - self.facts.mutable
        again = use_counts(loop.before)
        inside = again + use_counts(loop.body)
        inside.update(v.name for v in (loop.cond,) if isinstance(v, Var))
        late = sorted(name for name in made if self.facts.uses[name] > inside[name])
        if late:
            raise unsupported(f"`{late[0]}` of the condition of a while loop, read after the loop", loop.loc,
                              "compute it again there")  # fmt: skip
        self.left.update(again)  # which are read twice
        self.declare_numbers(loop)
        self.block(loop.before)
        more = self.names.fresh("more")
        self.nodes.append(Assignment("bool", more, self.number(loop.cond), loop.loc, constant=False))
        self.scopes[-1][more] = more
        node = Loop("", "", "", "", [], loc=loop.loc, condition=more)
        self.nodes.append(node)
        self.loops.append(node)
        self.branches += 1
        with self.inside(node.body):
            self.block(loop.body)
            self._forget(block_defs(loop.before))
            self.block(loop.before)
            self.nodes.append(Assignment("", more, self.number(loop.cond), loop.loc))
        self.branches -= 1
        self.loops.pop()

    def _forget(self, changed: set[str]) -> None:
        """Names of expressions that are made of variables which get other values."""
        own = {self.names.of(name) for name in changed}
        keys = {f"number {name}" for name in changed}

        def is_changed(key: Any, meaning: object) -> bool:
            if isinstance(key, tuple):  # a tile: its valid extents
                return not own.isdisjoint(key)
            return key in keys or (key != meaning and bool(own & set(_WORD.findall(key))))

        self._look_again()
        for scope in self.scopes:
            for key in [key for key, meaning in scope.items() if is_changed(key, meaning)]:
                del scope[key]

    def number(self, operand: Operand) -> str:
        """A number that may be on the vector core, for the scalar unit."""
        if not isinstance(operand, Var) or operand.name not in self.values:
            return super().number(operand)
        key = f"number {operand.name}"
        if operand.name not in self.facts.mutable:
            for scope in self.scopes:
                if key in scope:
                    return scope[key]
        assert isinstance(operand.type, ScalarType)
        tile = self.tile(self.values[operand.name], loc=self.here)
        name = self.names.fresh(f"{operand.name}_number")
        element = f"{tile.name}.GetValue(0)"
        if operand.type.dtype.kind == "b":
            element = f"({element} & 1) != 0"
        typ = "int64_t" if operand.type.dtype == i64 else self.scalar_type(operand.type.dtype, self.here)
        self.nodes.append(Assignment(typ, name, element, self.here, reads=tile))
        self.scopes[-1] |= {key: name, name: name}
        return name

    def shape(
        self, operands: tuple[Operand, ...], typ: TileType, loc: Loc
    ) -> tuple[Span, tuple[int, int], tuple[Size, Size]]:
        """Span, capacity and extents of a tile with these declared extents."""
        if len(operands) > 2:
            row = row_axis([int(o.value) if isinstance(o, Const) else None for o in operands])
            if row is None:
                raise many_axes(len(operands), loc)
            operands = operands[row], operands[-1]
        pair = operands if len(operands) == 2 else (Const(1, ScalarType(i32)), *operands)
        rows, columns = (self.bound(o, loc) for o in pair)
        if rows > 1:  # as many as the column that a row reduction leaves
            rows = padded(rows, 4)
        constant = [int(o.value) if isinstance(o, Const) else 0 for o in pair]
        if len(typ.shape) == 1:
            constant[0] = 1
            if constant[1] == 1:
                return "one", (1, 1), (1, 1)
        return span_of(*constant), (rows, columns), (self.size(pair[0]), self.size(pair[1]))

    def checked(self, dtype: DType, loc: Loc) -> None:
        if dtype.name not in TILED:
            if dtype == i64:
                raise unsupported(
                    "this with tiles of i64, which the vector core computes with in words of 32 bits", loc,
                    "convert them to i32 and the result back, `(t.to(pl.i32) // n).to(pl.i64)`",
                )  # fmt: skip
            raise unsupported(f"tiles of {dtype} on the vector core", loc, "use f32, f16, bf16, i32 or i16")

    def reduced(
        self, name: str, source: Value, axes: set[int], rank: int, var: Var | None, to: Any, loc: Loc
    ) -> Value:
        raise NotImplementedError

    # -- generated ------------------------------------------------------------------------------------------------

    def full(self, op: Op) -> None:
        typ = op.results[0].type
        assert isinstance(typ, TileType)
        self.checked(typ.dtype, op.loc)
        span, capacity, declared = self.shape(op.args[1:], typ, op.loc)
        out = self.destination(op.results[0])(typ.dtype, span, capacity, declared, (True, True))
        self.fill(out, self.number(op.args[0]), op.loc)

    def fill(self, value: Value, number: str, loc: Loc) -> None:
        """All columns there is memory for: the library writes fewer as if the rows lay one after the other."""
        rows, columns = value.valid
        if value.span == "full" and isinstance(columns, int):
            columns = physical(value.dtype, value.span, value.capacity)[1]
        tile = self.tile(value, valid=(rows, columns), loc=loc)
        self.emit("TEXPANDS", tile, self.scalar(number, value.dtype), loc=loc)

    def scalar(self, number: str, dtype: DType) -> str:
        """A number as an instruction on tiles of a dtype takes it."""
        return operand_text(number, dtype)

    def arange(self, op: Op) -> None:
        start, step, extent = op.args
        typ = op.results[0].type
        assert isinstance(typ, TileType)
        span, capacity, declared = self.shape((extent,), typ, op.loc)
        step_is = step.value if isinstance(step, Const) else None
        target = self.destination(op.results[0])
        if typ.dtype == i32 and step_is == 1:
            out = target(i32, span, capacity, declared, (True, True))
            self.emit("TCI", self.tile(out, loc=op.loc), f"(int32_t){self.number(start)}", loc=op.loc)
            return
        if typ.dtype not in (i32, f32):
            raise unsupported(f"pl.arange of {typ.dtype}", op.loc, "use pl.arange(...) of i32 or f32, and convert it")
        counts = self.temp(i32, span, capacity, declared, (True, True))
        tile = self.tile(counts, loc=op.loc)
        self.emit("TCI", tile, "(int32_t)0", loc=op.loc)
        out = target(typ.dtype, span, capacity, declared, (True, True))
        result = self.tile(out, loc=op.loc)
        if typ.dtype == f32:
            self.emit("TCVT", result, tile, "RoundMode::CAST_RINT", loc=op.loc)
            tile = result
        if step_is != 1:
            self.emit("TMULS", result, tile, self.scalar(self.number(step), typ.dtype), loc=op.loc)
        self.emit("TADDS", result, result, self.scalar(self.number(start), typ.dtype), loc=op.loc)
