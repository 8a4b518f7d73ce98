# SPDX-License-Identifier: MIT
"""A frame while it is written: the memory of its tiles, its variables, and how it ends.

Static scratch is one block per frame, laid out by `arena`; dynamic scratch is pushed and popped with the blocks of
statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from llvmlite import ir

from pto_jit.dtypes import DType
from pto_jit.errors import InternalError
from pto_jit.ir.nodes import Const, Func, Operand, Var
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import def_counts, use_counts
from pto_jit.lower.complete import Complete, complete_axes
from pto_jit.lower.groups.fitting import fitting_axes
from pto_jit.targets.cpu.arena import ALIGN, Arena
from pto_jit.targets.cpu.code import Code
from pto_jit.targets.cpu.constants import I8, I32, I64, PTR, VOID, Index, Text, Value, number, register_type, zero
from pto_jit.targets.cpu.constants import i64 as as_i64
from pto_jit.targets.cpu.elementwise import Elementwise
from pto_jit.targets.cpu.module import ModuleWriter
from pto_jit.targets.cpu.values import Slot, Tensor, Tile, TileSlot


class Frame:
    """Memory and variables of one frame."""

    def __init__(
        self, module: ModuleWriter, func: Func, function: ir.Function, worker: Value, *, parallel: bool
    ) -> None:
        self.module = module
        self.func = func
        self.code = Code(function, worker)
        self.ops = Elementwise(lambda: self.code.b, module.host.scalef, module.fast)
        self.env: dict[str, Any] = {}
        self.parallel = parallel  # already on a worker: nothing below is divided again
        self.mutable = {n for n, k in def_counts(func.body).items() if k > 1}
        self.uses = use_counts(func.body)
        self.generated = fitting_axes(func.body)
        self.arena = Arena()
        self._base: Value | None = None
        self._base_size: Text | None = None
        self.scopes: list[list[Value]] = [[]]  # dynamic scratch blocks by block of statements
        self.owned: dict[str, tuple[int, int]] = {}  # tile variables with a static buffer: offset and size
        self.buffers: set[str] = set()  # tile variables that alone know their memory
        self.dying: set[str] = set()  # tile variables that the current statement is the last to use
        self.zeros: set[str] = set()  # tile variables without memory: zeros that products start from
        self.stacked = 0  # bytes of tensors on the stack
        self.heap: list[Value] = []  # slots of buffers to be freed when the function returns
        self.past_caches = module.host.past_caches
        self.divides_products = False  # products find out themselves how many workers may share them
        self.streams = False  # whether some store does, here or in functions that leave it to their callers
        self.orders = True  # whether such stores are ordered when the function returns

    @property
    def b(self) -> Any:
        """The builder at the place of insertion."""
        return self.code.b

    def close(self) -> None:
        """The last block, and the entry block when everything is known."""
        code = self.code
        code.at(code.leave)
        status = code.b.load(code.status, typ=I32)
        for slot in self.heap:
            pointer = code.b.load(slot, typ=PTR)
            with code.when(code.b.icmp_unsigned("!=", pointer, zero(PTR))):
                code.call("pto_buffer_free", VOID, [code.worker, pointer])
        if self.streams and self.orders:
            self.order_stores()
        if self._base is not None:
            code.call("pto_scratch_pop", VOID, [code.worker, self._base])
        code.b.ret(status)
        if self._base is not None and self._base_size is not None:
            self._base_size.text = str(max(self.arena.size, ALIGN))
            bad = code.block("no_memory")
            with code.at_entry():
                missing = code.b.icmp_unsigned("==", self._base, zero(PTR))
                ready = code.block("ready")
                code.b.cbranch(missing, bad, ready).set_weights([1, 2000])
            code.at(bad)
            code.b.ret(number(I32, 1))
            code._entry_builder.position_at_end(ready)
        code.finish()

    def order_stores(self) -> None:
        """What was stored past the caches comes before whatever is stored from here on, for all processors."""
        self.code.call("llvm.x86.sse.sfence", VOID, [])

    @cached_property
    def complete(self) -> Complete:
        """Along which axes tile variables are always complete."""
        return complete_axes(self.func.body)

    # -- memory of tiles ------------------------------------------------------------------------------------------

    def static(self, size: int) -> tuple[Value, int]:
        """`size` bytes of the frame's scratch block, and their offset in it."""
        if self._base is None:
            self._base_size = Text(I64, "0")
            with self.code.at_entry():
                self._base = self.code.call("pto_scratch_push", PTR, [self.code.worker, self._base_size])
        offset = self.arena.take(size)
        with self.code.at_entry():
            pointer = self.code.offset(self._base, offset)
        return pointer, offset

    def scratch(self, size: Index) -> Value:
        """Memory until the end of the enclosing block of statements."""
        if isinstance(size, int):
            pointer, offset = self.static(size)
            self.transient.append((offset, size))
            return pointer
        return self.push(size)

    def push(self, size: Index) -> Value:
        """A dynamic scratch block, popped at the end of the enclosing block of statements."""
        pointer = self.code.call("pto_scratch_push", PTR, [self.code.worker, as_i64(self.code.max(size, ALIGN))])
        self.got_memory(pointer)
        self.scopes[-1].append(pointer)
        return pointer

    def got_memory(self, pointer: Value) -> None:
        """Leave when an allocation failed; the run-time library has recorded the reason."""
        bad, good = self.code.block("no_memory"), self.code.block("good")
        self.b.cbranch(self.b.icmp_unsigned("!=", pointer, zero(PTR)), good, bad).set_weights([2000, 1])
        self.code.at(bad)
        self.code.leave_with(number(I32, 1))
        self.code.at(good)

    transient: list[tuple[int, int]]

    @contextmanager
    def passing(self) -> Any:
        """Static scratch taken inside is free again afterwards; dynamic blocks are popped."""
        saved = getattr(self, "transient", None)
        self.transient = []
        self.scopes.append([])
        yield
        for offset, size in self.transient:
            self.arena.give(offset, size)
        self._pop(self.scopes.pop())
        if saved is not None:
            self.transient = saved

    def _pop(self, blocks: Sequence[Value]) -> None:
        if self.code.terminated:
            return
        for pointer in reversed(blocks):
            self.code.call("pto_scratch_pop", VOID, [self.code.worker, pointer])

    def buffer(self, name: str, dtype: DType, declared: Sequence[Index]) -> tuple[Value, tuple[Index, ...]]:
        """Memory for the tile variable `name`, C-contiguous in its declared extents: pointer and strides."""
        size = self.code.bytes(dtype.bytes, declared)
        self.buffers.add(name)
        if isinstance(size, int):
            pointer, offset = self.static(max(size, 1))
            self.owned[name] = (offset, max(size, 1))
        else:
            pointer = self.push(size)
        return pointer, self.strides(dtype, declared)

    def variable_memory(self, name: str, dtype: DType, size: int) -> Value:
        """Memory for the tile variable `name`, which is assigned more than once and keeps its memory."""
        return self.static(size)[0]

    def _release(self, names: set[str]) -> None:
        for name in names:
            owned = self.owned.pop(name, None)
            if owned is not None and not any(s == owned for s in self.owned.values()):
                self.arena.give(*owned)

    def share(self, name: str, source: str) -> None:
        """`name` is a view of the memory of `source`, which lives on until both are dead."""
        self.buffers.discard(source)
        if source in self.owned:
            self.owned[name] = self.owned[source]

    def inherit(self, name: str, source: str) -> bool:
        """Whether `name` takes over the memory of `source`: nothing else knows it or will read it."""
        if source not in self.dying or source not in self.buffers or self.tile_named(source).view:
            return False
        self.share(name, source)
        self.buffers.add(name)
        return True

    def local_memory(self, name: str, dtype: DType, count: int) -> Value:
        """Memory of the call, on its stack, for so many elements of a tensor made here."""
        return self.code.alloca(ir.ArrayType(I8, count * dtype.bytes), name, align=ALIGN)

    def tensor_memory(self, name: str, size: Index) -> Value:
        """Memory of the launch for a tensor made here; made again, the tensor gives up what it had."""
        code = self.code
        slot = code.alloca(PTR, name)
        with code.at_entry():
            code.b.store(zero(PTR), slot)
        self.heap.append(slot)
        self.env["alloc " + name] = slot
        if self.func.kind == "orchestration":
            self._new_memory(name, slot, size)
            return code.b.load(slot, typ=PTR)
        held = code.alloca(I64, "held")  # nobody has the memory of the last iteration any more
        with code.at_entry():
            code.b.store(zero(I64), held)
        wanted = as_i64(code.max(size, 1))
        with code.when(code.b.icmp_signed(">", wanted, code.b.load(held, typ=I64)), likely=False):
            self._new_memory(name, slot, size)
            code.b.store(wanted, held)
        return code.b.load(slot, typ=PTR)

    def _new_memory(self, name: str, slot: Value, size: Index) -> None:
        code = self.code
        old = code.b.load(slot, typ=PTR)
        with code.when(code.b.icmp_unsigned("!=", old, zero(PTR)), likely=False):
            code.b.store(zero(PTR), slot)
            self.release_tensor(name, old)
        pointer = code.call("pto_buffer_alloc", PTR, [code.worker, as_i64(code.max(size, 1))])
        self.got_memory(pointer)
        code.b.store(pointer, slot)

    def release_tensor(self, name: str, pointer: Value) -> None:
        """Give the memory of a tensor back."""
        self.code.call("pto_buffer_free", VOID, [self.code.worker, pointer])

    # -- operands -------------------------------------------------------------------------------------------------

    def scalar(self, operand: Operand) -> Value:
        """A scalar in its register type."""
        if isinstance(operand, Const):
            return number(register_type(operand.type.dtype), operand.value)
        value = self.env[operand.name]
        if isinstance(value, Slot):
            return self.b.load(value.pointer, typ=register_type(value.dtype))
        return as_i64(value) if isinstance(value, int) else value

    def index(self, operand: Operand) -> Index:
        """An i64 operand, as a Python int when it is known."""
        if isinstance(operand, Const):
            return int(operand.value)
        value = self.env[operand.name]
        return value if isinstance(value, int) else self.scalar(operand)

    def tensor(self, operand: Operand) -> Tensor:
        assert isinstance(operand, Var)
        value = self.env[operand.name]
        if not isinstance(value, Tensor):
            raise InternalError(f"%{operand.name} is not a tensor here")
        return value

    def tile(self, operand: Operand) -> Tile:
        """A tile as it lies in memory now."""
        assert isinstance(operand, Var)
        return self.tile_named(operand.name)

    def tile_named(self, name: str) -> Tile:
        value = self.env[name]
        return self.read_slot(value) if isinstance(value, TileSlot) else value

    def read_slot(self, slot: TileSlot) -> Tile:
        pointer = slot.pointer
        if slot.capacity is not None:
            pointer = self.b.load(slot.pointer, typ=PTR)
        declared = tuple([d if isinstance(d, int) else self.b.load(d, typ=I64) for d in slot.declared])
        valid = tuple([v if isinstance(v, int) else self.b.load(v, typ=I64) for v in slot.valid])
        fits = tuple([f if isinstance(f, int) else self.b.load(f, typ=I64) for f in slot.fits])
        return Tile(slot.dtype, pointer, declared, valid, self.strides(slot.dtype, declared), fits=fits)

    def strides(self, dtype: DType, extents: Sequence[Index]) -> tuple[Index, ...]:
        """Of a C-contiguous array, in bytes."""
        out: list[Index] = []
        size: Index = dtype.bytes
        for extent in extents[:0:-1]:
            out.append(size)
            size = size * extent if type(size) is int and type(extent) is int else self.code.mul(size, extent)
        return (size, *out[::-1]) if extents else ()

    def define(self, var: Var, value: Any) -> None:
        """Give a scalar variable its value."""
        if var.name not in self.mutable:
            self.env[var.name] = value
            return
        assert isinstance(var.type, ScalarType)
        slot = self.env.get(var.name)
        if not isinstance(slot, Slot):
            slot = Slot(var.type.dtype, self.code.alloca(register_type(var.type.dtype), var.name))
            self.env[var.name] = slot
        self.b.store(as_i64(value) if isinstance(value, int) else value, slot.pointer)
