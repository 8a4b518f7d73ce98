# SPDX-License-Identifier: MIT
"""Tiles and single elements of a vector core that come from and go to global memory."""

from __future__ import annotations

from pto_jit.dtypes import DType, f16, f32, i32, i64, u8
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Const, Op, Operand
from pto_jit.ir.types import TileType
from pto_jit.targets.ascend.accesses import walk
from pto_jit.targets.ascend.form import ElementStore, Flush, KernelForm, Require
from pto_jit.targets.ascend.instructions import ROWS
from pto_jit.targets.ascend.machine import CAPACITY, MOST_ROWS, element_type, padded
from pto_jit.targets.ascend.refusals import too_large, unsupported
from pto_jit.targets.ascend.single import REPEATED
from pto_jit.targets.ascend.sizes import Tensor, atom, names, text, total
from pto_jit.targets.ascend.strided import transfer_rows
from pto_jit.targets.ascend.tiles import TILED, TileWriter
from pto_jit.targets.ascend.values import Size, Value, bytes_of, physical, row_axis


class TransferWriter(TileWriter):
    """The part of writing a vector kernel that moves tiles."""

    def load(self, op: Op) -> None:
        tensor = self.tensor(op.args[0])
        rank = len(tensor.extents)
        if op.results[0].name not in self.moved:
            self.checked(u8 if tensor.dtype.kind == "b" and not op.attr("inside") else tensor.dtype, op.loc)
        offsets, extents = op.args[1 : 1 + rank], op.args[1 + rank : 1 + 2 * rank]
        typ = op.results[0].type
        assert isinstance(typ, TileType)
        span, capacity, declared = self.shape(extents, typ, op.loc)
        size = bytes_of(tensor.dtype, span, capacity)
        if size > CAPACITY["Vec"] and all(isinstance(e, Const) for e in extents):
            raise too_large(f"{self.func.name}: a tile takes {size} bytes of {CAPACITY['Vec']} in the unified buffer",
                            op.loc, "use smaller tiles")  # fmt: skip
        for offset in offsets:
            self.not_negative(offset, op.loc)
        if op.attr("pad"):
            to = self.destination(op.results[0])
            if tensor.dtype.bits != 8:
                self._load_padded(op, tensor, offsets, _row_of(typ), to(tensor.dtype, span, capacity, declared))
                return
            wide = self.temp(f16, span, capacity, declared)  # whose words are whole elements
            self._load_padded(op, tensor, offsets, _row_of(typ), wide)
            if tensor.dtype.kind == "b":
                self.elementwise.compare("NE", self.elementwise.wide(wide, op.loc), "0", to=to, loc=op.loc)
            else:
                self.elementwise.converted(wide, tensor.dtype, to, op.loc)
            return
        if op.attr("inside"):
            self._inside_of(tensor, offsets, declared[1], op.loc)
            stride = 1 if rank == 1 else tensor.strides[-2]
            value = self.destination(op.results[0])(tensor.dtype, span, capacity, declared)
            self.transfer(value, tensor, self.pointer(tensor, offsets, op.loc), stride, op.loc, "TLOAD")
            return
        row = _row_of(typ)
        for axis in range(rank - 1):  # a place outside the tensor would be a tile without elements
            if axis != row and not self.is_inside(tensor, axis, offsets[axis]):
                self.nodes.append(Require(self.in_front(tensor, axis, offsets[axis]), op.loc))
        rows: Size = 1 if rank == 1 else self.loaded(tensor, row, offsets[row], declared[0], op.loc)
        columns = self.loaded(tensor, rank - 1, offsets[-1], declared[1], op.loc)
        stride: Size = 1 if rank == 1 else tensor.strides[row]
        truth = tensor.dtype.kind == "b"
        to = self.temp if truth else self.destination(op.results[0])
        value = to(u8 if truth else tensor.dtype, span, capacity, (rows, columns))
        pointer = self.pointer(tensor, offsets, op.loc)
        self.transfer(value, tensor, pointer, stride, op.loc, "TLOAD", row)
        if truth:
            wide = self.elementwise.converted(value, f32, self.temp, op.loc)
            self.elementwise.compare("NE", wide, "0", to=self.destination(op.results[0]), loc=op.loc)

    def _load_padded(self, op: Op, tensor: Tensor, offsets: tuple[Operand, ...], row: int, out: Value) -> None:
        """All of a tile, with the pad value outside the tensor: it is written everywhere, then what was loaded; row:
        the axis that rows lie along."""
        loc, rank = op.loc, len(tensor.extents)
        if self.in_group:
            raise unsupported("a load with a pad value beside matrix products", loc,
                              "load without it, and work on the valid part")  # fmt: skip
        element = u8 if tensor.dtype.kind == "b" else tensor.dtype
        sizes: list[Size] = []
        some: list[str] = []  # conditions for anything to lie inside
        for axis, offset in enumerate(offsets):
            wanted = out.valid[1] if axis == rank - 1 else out.valid[0] if axis == row else 1
            size, sure = self.part_inside(tensor, axis, offset, wanted)
            sizes.append(size)
            if not sure:
                some.append(f"{self.named(size, 'inside', loc)} > 0")
        stride: Size = 1 if rank == 1 else tensor.strides[row]
        inside = 1 if rank == 1 else sizes[row], sizes[-1]
        pointer = self.pointer(tensor, offsets, loc)
        if inside == out.valid and not some:
            whole = out if element == out.dtype else self.temp(element, out.span, out.capacity, out.valid)
            self.transfer(whole, tensor, pointer, stride, loc, "TLOAD", row)
            if whole is not out:
                self.elementwise.converted(whole, out.dtype, lambda *_: out, loc)
            return
        self._fill_with(out, op.args[-1], loc)
        if any(isinstance(size, int) and size <= 0 for size in sizes):
            return
        with self.where(some, loc):
            part = self.temp(element, out.span, out.capacity, inside)
            self.transfer(part, tensor, pointer, stride, loc, "TLOAD", row)
            self.elementwise.laid_over(out, self.elementwise.converted(part, out.dtype, self.temp, loc), loc)

    def _fill_with(self, out: Value, pad: Operand, loc: Loc) -> None:
        """All of a tile with a number; i64 from 32 bits."""
        if out.dtype != i64:
            self.fill(out, self.number(pad), loc)
            return
        if not (isinstance(pad, Const) and -(1 << 31) <= int(pad.value) < 1 << 31):
            raise unsupported("a load of i64 with such a pad value", loc, "take a constant of 32 bits")
        words = self.temp(i32, out.span, out.capacity, out.valid)
        self.fill(words, self.number(pad), loc)
        self.elementwise.converted(words, i64, lambda *_: out, loc)

    def store(self, op: Op) -> None:
        value = self.value(op.args[0])
        assert isinstance(value, Value)
        tensor = self.tensor(op.args[1])
        if value.is_mask:  # bytes in memory
            ones = self.elementwise.select(value, "1", "0", f32, self.temp, op.loc)
            value = self.elementwise.converted(ones, u8, self.temp, op.loc)
        rank = len(tensor.extents)
        offsets = op.args[2:]
        for offset in offsets:
            self.not_negative(offset, op.loc)
        if value.valid[0] == 0 or not (self.visible(value.valid[0]) and self.visible(value.valid[1])):
            raise unsupported("a tile whose valid extents change in a loop, used after it", op.loc,
                              "give it constant extents that divide the tensor's")  # fmt: skip
        if op.attr("inside"):
            self._inside_of(tensor, offsets, value.valid[1], op.loc)
            stride = 1 if rank == 1 else tensor.strides[-2]
            self._store(value, tensor, self.pointer(tensor, offsets, op.loc), value.valid, stride, op.loc)
            return
        how = "TSTORE" if op.op == "store" else f"TSTORE_{op.op.removeprefix('atomic_').upper()}"
        if how != "TSTORE" and value.dtype.name not in ROWS[how].dtypes:
            raise unsupported(f"`pl.{op.op}` of tiles of {value.dtype}", op.loc,
                              "take tiles of f32, f16, bf16, i32, i16 or i8")  # fmt: skip
        assert isinstance(op.args[0].type, TileType)
        row = _row_of(op.args[0].type)
        valid, some = self.stored((value.valid[0], value.valid[1]), tensor, offsets, row)
        if valid is None:
            return
        stride: Size = 1 if rank == 1 else tensor.strides[row]
        pointer = self.pointer(tensor, offsets, op.loc)
        with self.where(some, op.loc):
            self._store(value, tensor, pointer, valid, stride, op.loc, row, how)

    def _inside_of(self, tensor: Tensor, offsets: tuple[Operand, ...], count: Size, loc: Loc) -> None:
        """A line of elements lies inside a tensor, or the core stops."""
        for axis, offset in enumerate(offsets):
            length = count if axis == len(offsets) - 1 else 1
            if self.clipped(tensor, axis, offset, length) != length:
                end = total(self.size(offset), length)
                self.nodes.append(Require(f"{text(end)} <= {text(tensor.extents[axis])}", loc))

    def _store(
        self, value: Value, tensor: Tensor, pointer: str, valid: tuple[Size, Size], stride: Size, loc: Loc,
        row: int = -2, how: str = "TSTORE",
    ) -> None:  # fmt: skip
        shown = Value(value.name, value.dtype, value.span, value.capacity, valid, value.buffer)
        self.transfer(shown, tensor, pointer, stride, loc, how, row)

    def transfer(
        self, value: Value, tensor: Tensor, pointer: str, stride: Size, loc: Loc, how: str, row: int = -2
    ) -> None:
        """Between global memory and a value, whose rows lie along an axis of the tensor; a column in memory with gaps
        goes by way of one block per row.  how: the instruction."""
        apart: Size = tensor.strides[-1] if tensor.strides else 1
        if apart != 1 and value.span in ("full", "row"):
            self._check_gaps(tensor.extents[-1], 1, apart)
            if value.span == "full" or value.dtype == i64:
                transfer_rows(self, value, tensor, pointer, (stride, apart), loc, how)
                return
            room = padded(value.capacity[1], 4), 1  # the elements of a column lie as those of a row
            value = Value(value.name, value.dtype, "column", room, (value.valid[1], 1), value.buffer)
            stride = apart
        scattered = value.span == "column" and stride != 1
        rows = value.capacity[0] if scattered else physical(value.dtype, value.span, value.capacity)[0]
        if rows > MOST_ROWS:
            what = "elements, which lie apart" if scattered else "rows"
            raise too_large(f"a tile of more than {MOST_ROWS} {what}", loc, "use smaller tiles")
        if len(tensor.extents) > 1 and value.span in ("full", "column") and tensor.strides[-1] == 1:
            self._check_gaps(tensor.extents[row], 1 if scattered else tensor.extents[-1], stride)
        if not scattered:
            rows, columns = value.valid
            if value.span in ("column", "one"):
                rows, columns = 1, rows
            tile = self.tile(value, loc=loc)
            extents = (self.named(rows, "rows", loc), self.named(columns, "columns", loc))
            memory = self.rectangle(tensor, f"{tensor.root}_here", pointer, extents, stride, loc)
            self.emit(how, *((tile, memory) if how == "TLOAD" else (memory, tile)), loc=loc)
            return
        if value.dtype == i64:  # of which no instruction takes blocks apart
            line = Value(value.name, i64, "row", (1, value.capacity[0]), (1, value.valid[0]), value.buffer)
            transfer_rows(self, line, tensor, pointer, (0, stride), loc, how)
            return
        dtype = value.dtype if value.dtype.name in REPEATED else f32
        width = 32 // min(dtype.bytes, value.dtype.bytes)
        shape = ("full", (value.capacity[0], width), (value.valid[0], 1))
        memory = self.rectangle(tensor, f"{tensor.root}_here", pointer,
                                (self.named(value.valid[0], "rows", loc), 1), stride, loc)  # fmt: skip
        if how != "TLOAD":
            column = self.elementwise.converted(value, dtype, self.temp, loc)
            wide = self.temp(dtype, *shape)
            self.emit("TROWEXPAND", self.tile(wide, loc=loc), self.tile(column, "column", loc=loc), loc=loc)
            wide = self.elementwise.converted(wide, value.dtype, self.temp, loc)
            self.emit(how, memory, self.tile(wide, loc=loc), loc=loc)
            return
        wide = self.temp(value.dtype, *shape)
        self.emit("TLOAD", self.tile(wide, loc=loc), memory, loc=loc)
        reduced = value.dtype if value.dtype in (f32, i32) else f32
        wide = self.elementwise.converted(wide, reduced, self.temp, loc)
        column = value if reduced == value.dtype else self.temp(reduced, "column", value.capacity, value.valid)
        scratch = self.temp(reduced, "full", wide.capacity, wide.valid)
        self.emit("TROWMAX", self.tile(column, "column", loc=loc), self.tile(wide, loc=loc),
                  self.tile(scratch, loc=loc), loc=loc)  # fmt: skip
        if column is not value:
            self.elementwise.converted(column, value.dtype, lambda *_: value, loc)

    def _check_gaps(self, count: Size, length: Size, apart: Size) -> None:
        """Gaps between pieces of memory, which are what a transfer is told, are not negative.  count: how many pieces a
        tensor has; apart: how far apart they begin, which is checked where a launch is given it."""
        strides = {p.name for p in self.parameters if p.origin[0] == "stride"}
        if not strides & names(apart) or not self.launch_time(apart) or not self.launch_time(length):
            return
        condition = f"{text(length)} <= {text(apart)}"
        if self.launch_time(count):  # of one piece it does not matter
            condition = f"({text(count)} > 1) * {atom(length)} <= ({text(count)} > 1) * {atom(apart)}"
        self.check(condition, "elements that lie apart, and rows, lie one behind the other")

    # -- elements ---------------------------------------------------------------------------------------------------

    def read_written(self, op: Op) -> None:
        """An element of a tensor that the kernel writes, by way of a tile: transfers write what caches do not see."""
        tensor = self.tensor(op.args[0])
        dtype = u8 if tensor.dtype.kind == "b" else tensor.dtype
        if element_type(dtype) is None or self.in_group:
            super().read_written(op)
        value = self.temp(dtype, "one", (1, 1), (1, 1))
        self.transfer(value, tensor, self.pointer(tensor, op.args[1:], op.loc), 1, op.loc, "TLOAD")
        tile = self.tile(value, loc=op.loc)
        element = f"{tile.name}.GetValue(0)" + (" != 0" if tensor.dtype.kind == "b" else "")
        self.scalars.define(op.results[0], element, op.loc, reads=tile)

    def set_element(self, op: Op) -> None:
        value = self.value(op.args[0])
        tensor = self.tensor(op.args[1])
        if isinstance(value, str):
            if self.alone:
                place = f"{tensor.pointer.text}[{text(self.offset(tensor, op.args[2:], op.loc))}]"
                self.nodes.append(ElementStore(tensor.root, place, value, op.loc))
                return
            value = self._element(value, tensor.dtype, op.loc)
        self._store(value, tensor, self.pointer(tensor, op.args[2:], op.loc), (1, 1), 1, op.loc)

    def _element(self, number: str, dtype: DType, loc: Loc) -> Value:
        """A number as a tile of one element: the caches that scalar units write through are not kept in step."""
        if dtype.name in TILED:
            out = self.temp(dtype, "one", (1, 1), (1, 1))
            self.fill(out, number, loc)
            return out
        dtype = u8 if dtype.kind == "b" else dtype
        typ = element_type(dtype)
        if typ is None:
            raise unsupported(f"a store of a single element of {dtype}", loc, "store f32, or i64")
        out = self.temp(dtype, "one", (1, 1), (1, 1))
        self.emit("SetValue", self.tile(out, loc=loc), "0", f"({typ})({number})", loc=loc)
        return out

    def form(self) -> KernelForm:
        stored = [n for n in walk(self.nodes) if isinstance(n, ElementStore)]
        if stored:
            self.nodes.append(Flush(self.names.of(stored[0].root)))
        return super().form()


def _row_of(typ: TileType) -> int:
    """The axis of a tile, and of the tensor that it comes from or goes to, that its rows lie along."""
    row = row_axis(typ.shape)
    assert row is not None, "other tiles are refused"
    return row
