# SPDX-License-Identifier: MIT
"""Values of a vector core as tiles: where they lie, and how they are seen.

Every value lies in memory of its own, unless an operation can leave its
result where an operand was that nobody reads any more.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from pto_jit.dtypes import DType, i16, u8
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Func, Op, Operand, Var
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import statements, use_counts
from pto_jit.lower.groups.axes import is_elementwise, is_reduction
from pto_jit.targets.ascend.alone import is_alone
from pto_jit.targets.ascend.carried import EQUAL, lasting
from pto_jit.targets.ascend.conversions import only_moved
from pto_jit.targets.ascend.few import turned_operands
from pto_jit.targets.ascend.form import Buffer, Function, Instruction, Loop, Require, Tile
from pto_jit.targets.ascend.machine import padded
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.ascend.scalars import needs_vector_core
from pto_jit.targets.ascend.sizes import names, text
from pto_jit.targets.ascend.values import Expr, Size, Span, Value, bytes_of, physical
from pto_jit.targets.ascend.writer import KernelWriter
from pto_jit.targets.cuda.facts import Facts

_BOUND = (False, False)
"""Valid extents that are those of a tensor, not whatever they meet."""


class HeldWriter(KernelWriter):
    """The part of writing a vector kernel that knows its values."""

    core = "vector"
    in_group = False  # with a cube core

    def __init__(self, func: Func, facts: Facts, sizes: dict[str, int]) -> None:
        super().__init__(func, facts, sizes)
        self.values: dict[str, Value] = {}
        self.left = use_counts(func.body).copy()  # reads that are to come
        self.made_in: dict[str, Loop | None] = {}  # the innermost loop around
        self.outside: dict[str, tuple[int, int]] = {}  # loops and scopes around variables that are assigned again
        self.holders: dict[Buffer, set[str]] = {}  # variables that were given a value there
        self.on_tiles = _numbers_of_tiles(func)
        self.given = [p for p in func.params if p.name in self.on_tiles]
        self.alone = is_alone(func)
        self.turned = turned_operands(func)
        self.moved = only_moved(func)
        self.seen: dict[Value, Tile] = {}  # tiles that are visible, of values as they are
        self.measured: dict[object, tuple[tuple[Any, Any], tuple[Size, Size]]] = {}  # names that are visible, of sizes
        self.visible_texts: set[str] = set()  # of sizes whose names are
        self.visible_here: dict[int, tuple[Size, Size]] = {}  # valid extents whose names are, by their ids
        self.functions: dict[object, Function] = {}  # that are called, by what they compute of which tiles
        self._times: Counter[str] | None = None

    def visible(self, size: Size) -> bool:
        if isinstance(size, int) or size.text in self.visible_texts:
            return True
        found = super().visible(size)
        if found:
            self.visible_texts.add(size.text)
        return found

    # -- values ---------------------------------------------------------------------------------------------------

    def is_tile_work(self, op: Op) -> bool:
        """Numbers made of tiles stay on the vector core as tiles of one element, if tiles can have their type."""
        if op.op == "setelem":
            return any(isinstance(a, Var) and a.name in self.values for a in op.args)
        return is_elementwise(op) and op.results[0].name in self.on_tiles

    def is_on_tiles(self, var: Var) -> bool:
        return var.name in self.on_tiles

    def new(self, name: str, dtype: DType, span: Span, capacity: tuple[int, int], valid: tuple[Size, Size],
            free: tuple[bool, bool] = (False, False)) -> Value:  # fmt: skip
        buffer = Buffer(name, "Vec", padded(bytes_of(dtype, span, capacity), 1))
        return Value(name, dtype, span, capacity, valid, buffer, free)

    def temp(self, dtype: DType, span: Span, capacity: tuple[int, int], valid: tuple[Size, Size],
             free: tuple[bool, bool] = (False, False), sources: tuple[Value, ...] = ()) -> Value:  # fmt: skip
        return self.new("scratch", dtype, span, capacity, valid, free)

    def hold(self, var: Var, value: Value) -> None:
        """Give a variable its value."""
        self.values[var.name] = value
        self.made_in[var.name] = self.loops[-1] if self.loops else None
        self.holders.setdefault(value.buffer, set()).add(var.name)

    def destination(self, var: Var) -> Any:
        """Where an operation's result goes: memory of its variable, of an operand that is used up, or new."""

        def to(dtype: DType, span: Span, capacity: tuple[int, int], valid: tuple[Size, Size],
               free: tuple[bool, bool] = (False, False), sources: tuple[Value, ...] = ()) -> Value:  # fmt: skip
            out = self._place(var, dtype, span, capacity, valid, free, sources)
            self.hold(var, out)
            return out

        return to

    def _place(self, var: Var, dtype: DType, span: Span, capacity: tuple[int, int], valid: tuple[Size, Size],
               free: tuple[bool, bool], sources: tuple[Value, ...]) -> Value:  # fmt: skip
        wish = var.name
        if var.name in self.facts.mutable:
            known = self.values.get(var.name)
            if known is None:
                out = self.new(wish, dtype, span, capacity, valid, free)
                out.given = True
                self.outside[var.name] = len(self.loops), len(self.scopes)
                return out
            if known.span != span or known.capacity != capacity:
                raise unsupported(f"a tile `{wish}` whose extents change when it is assigned again", self.func.loc,
                                  "give it constant extents, and the tiles that it is computed from")  # fmt: skip
            if known.free != free:
                valid = lasting(self, known, valid, free, self.outside[var.name])
            return Value(wish, dtype, span, capacity, valid, known.buffer, free, given=True)
        size = padded(bytes_of(dtype, span, capacity), 1) if sources else 0
        for source in sources:
            if source.buffer.size == size and source.dtype.bits == dtype.bits and self._is_dying(source):
                return Value(wish, dtype, span, capacity, valid, source.buffer, free)
        return self.new(wish, dtype, span, capacity, valid, free)

    def _is_dying(self, value: Value) -> bool:
        """Whether nothing reads a value after the operation that is being written."""
        if value.given or value.is_mask:
            return False
        here = self.loops[-1] if self.loops else None
        held = False
        for name in self.holders.get(value.buffer, ()):
            if self.values[name].buffer is value.buffer:
                if self.left[name] or self.made_in.get(name) is not here:
                    return False
                held = True
        return held

    def value(self, operand: Operand) -> Value | str:
        """A tile, or a number as the instructions take it."""
        if isinstance(operand, Var) and operand.name in self.values:
            return self.values[operand.name]
        return self.scalars.read(operand)

    def tile(self, value: Value, layout: str = "row", valid: tuple[Size, Size] | None = None,
             loc: Loc | None = None, dtype: DType | None = None, offset: int = 0) -> Tile:  # fmt: skip
        """A C++ tile over a value: as rows (a column lies along a row), or as a column.

        valid: rows and columns of the value that count, if not its own.  dtype: of mask words, when they are computed
        with.  offset: bytes before it, for a part of the value.
        """
        own = value.valid
        whole = valid is None or valid is own or (valid[0] is own[0] and valid[1] is own[1])
        plain = whole and layout == "row" and dtype is None and not offset
        known = self.seen.get(value) if plain else None
        if known is None:
            known = self._shown(value, layout, valid or own, loc or self.func.loc, dtype, offset)
            if plain:
                self.seen[value] = known
        return known

    def _shown(
        self, value: Value, layout: str, valid: tuple[Size, Size], loc: Loc, dtype: DType | None, offset: int
    ) -> Tile:
        """The tile of that shape and place, whatever value it was declared for."""
        rows, columns = physical(value.dtype, value.span, value.capacity)
        element = (dtype or u8) if value.is_mask else value.dtype
        words = value.is_mask and element == i16
        height, width = self._measured(value, valid, words, loc)
        if words:
            columns = width = columns // 2
        if layout == "column":
            rows, columns = padded(value.capacity[0], value.dtype.bytes), 1
            height, width = width, 1
        key = value.buffer, element.name, layout, rows, columns, height, width, offset
        for scope in reversed(self.scopes):
            known = scope.get(key)
            if known is not None:
                return known
        wish = value.name if layout == "row" else f"{value.name}_column"
        out = Tile(self.names.fresh(wish), element, rows, columns, (height, width), layout, value.buffer, offset)
        self.declare(out, loc)
        self.scopes[-1][key] = out
        return out

    def _measured(self, value: Value, valid: tuple[Size, Size], words: bool, loc: Loc) -> tuple[Any, Any]:
        """Valid rows and columns of the row-major tile over a value, as numbers or names; words of a mask: its rows."""
        line = value.span in ("column", "one")
        key = id(valid), line, value.is_mask, words
        known = self.measured.get(key)
        if known is None:
            known = self.measured[key] = self._names_of(value, valid, words, loc), valid  # which keeps its id
        return known[0]

    def _names_of(self, value: Value, valid: tuple[Size, Size], words: bool, loc: Loc) -> tuple[Any, Any]:
        rows, columns = valid
        if value.span in ("column", "one"):
            rows, columns = 1, rows
        height = self.named(rows, f"{value.name}_rows", loc)
        if words:
            return height, None
        if not value.is_mask:
            return height, self.named(columns, f"{value.name}_columns", loc)
        bytes_ = -(-columns // 8) if isinstance(columns, int) else _eighth(columns)  # a byte is eight elements
        return height, self.named(bytes_, "mask_bytes", loc)

    def emit(self, name: str, *args: Any, loc: Loc) -> None:
        self.nodes.append(Instruction(name, args, loc))

    def joint_valid(self, values: list[Value], span: Span, loc: Loc) -> tuple[tuple[Size, Size], tuple[bool, bool]]:
        """Valid extents of what is computed from values: those of the ones that do not fit everything."""
        first = values[0]
        if first.span == span and first.free == _BOUND and id(first.valid) in self.visible_here and all(
            v.valid is first.valid and v.span == span and v.free == _BOUND for v in values
        ):  # fmt: skip
            return first.valid, _BOUND
        out: list[Size] = []
        fits: list[bool] = []
        for axis in (0, 1):
            if (span in ("row", "one") and axis == 0) or (span in ("column", "one") and axis == 1):
                out.append(1)
                fits.append(False)
                continue
            taking = [
                v for v in values if v.span == "full" or ((axis == 0) == (v.span == "column") and v.span != "one")
            ]
            taking = taking or values
            sure = [v for v in taking if not v.free[axis]]
            chosen = (sure or taking)[0].valid[axis]
            if not self.visible(chosen):
                raise unsupported("a tile whose valid extents change in a loop, used after it", loc,
                                  "give it constant extents that divide the tensor's")  # fmt: skip
            for other in sure[1:]:
                self.agree(chosen, other.valid[axis], loc)
            out.append(chosen)
            fits.append(not sure)
        if (out[0], out[1]) != first.valid:
            return (out[0], out[1]), (fits[0], fits[1])
        self.visible_here[id(first.valid)] = first.valid
        return first.valid, (fits[0], fits[1])

    def agree(self, a: Size, b: Size, loc: Loc) -> None:
        """Two extents have to be equal: known now, checked by the launch, or by the core."""
        if a == b:
            return
        if isinstance(a, int) and isinstance(b, int):
            raise unsupported(f"an operation on tiles with {a} and {b} valid elements along an axis", loc,
                              "load tiles of one shape")  # fmt: skip
        if self.launch_time(a) and self.launch_time(b):
            self.check(f"{text(a)} == {text(b)}", EQUAL)
            return
        one, other = self.clips.get(text(a)), self.clips.get(text(b))
        alike = one is not None and other is not None and (one[0], one[2]) == (other[0], other[2])
        if one and other and alike and self.launch_time(one[1]) and self.launch_time(other[1]):
            self.check(f"{text(one[1])} == {text(other[1])}", EQUAL)
            return
        if not self.visible(b):
            raise unsupported("a tile whose valid extents change in a loop, used after it", loc,
                              "give it constant extents that divide the tensor's")  # fmt: skip
        self.nodes.append(Require(f"{text(a)} == {text(b)}", loc))

    def _look_again(self) -> None:
        """Other names are visible now."""
        self.seen.clear()
        self.measured.clear()
        self.visible_here.clear()
        self.visible_texts.clear()


def _numbers_of_tiles(func: Func) -> frozenset[str]:
    """Numbers that reductions and functions leave, and what is computed of them in types that tiles can have.

    A variable that is assigned several times is one if it is once.
    """
    ops = [s for s in statements(func.body) if isinstance(s, Op) and s.results]
    found = {r.name for s in ops if is_reduction(s) or s.op == "fold" or needs_vector_core(s)
             for r in s.results if isinstance(r.type, ScalarType)}  # fmt: skip
    plain = [s for s in ops if is_elementwise(s) and isinstance(s.results[0].type, ScalarType) and not any(
        _is_wide(v) for v in (*s.args, *s.results))]  # fmt: skip
    grown = True
    while grown:
        new = {s.results[0].name for s in plain if any(isinstance(a, Var) and a.name in found for a in s.args)} - found
        found |= new
        grown = bool(new)
    return frozenset(found)


def _is_wide(operand: Operand) -> bool:
    return isinstance(operand.type, ScalarType) and operand.type.dtype.bits == 64


def _eighth(size: Size) -> Size:
    return Expr(f"({text(size)} + 7) / 8", names(size))
