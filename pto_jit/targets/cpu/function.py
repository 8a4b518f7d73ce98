# SPDX-License-Identifier: MIT
"""One IR function as LLVM code: statements, scalars, tensors, calls, and the memory of its tiles.

A function is written in *frames*: the function itself, and one for each parallel loop body and each large nest, which
become functions of their own that the run-time library calls for ranges of iterations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from pto_jit.dtypes import DType, i64
from pto_jit.errors import InternalError, Loc, TargetError
from pto_jit.ir.nodes import (
    Block,
    Break,
    Call,
    Const,
    Continue,
    For,
    Func,
    Fuse,
    If,
    Op,
    Operand,
    Return,
    Scope,
    Stmt,
    Var,
    While,
)  # fmt: skip
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import block_defs, defs, statements, uses, variables
from pto_jit.lower.axes import fitting_tiles, is_elementwise
from pto_jit.semantic import failures
from pto_jit.targets.cpu.analysis import loads_to_copy
from pto_jit.targets.cpu.arena import ALIGN, Arena
from pto_jit.targets.cpu.code import (
    I32,
    I64,
    PTR,
    VOID,
    Code,
    Index,
    Text,
    Value,
    number,
    register_type,
    zero,
)  # fmt: skip
from pto_jit.targets.cpu.code import i64 as as_i64
from pto_jit.targets.cpu.elementwise import Elementwise
from pto_jit.targets.cpu.module import ModuleWriter
from pto_jit.targets.cpu.tensors import TENSOR_OPS
from pto_jit.targets.cpu.values import Slot, Tensor, Tile, TileSlot

_ELEMENTS = ("getelem", "setelem", "extract")  # loops around these are worth the optimiser's loop passes


class LoopExits:
    """Where break and continue of the innermost loop go, and how many scratch blocks were open at its body."""

    def __init__(self, leave: ir.Block, again: ir.Block, depth: int) -> None:
        self.leave, self.again, self.depth = leave, again, depth


class FunctionWriter:
    """Writes the statements of one frame."""

    def __init__(
        self, module: ModuleWriter, func: Func, function: ir.Function, worker: Value, *, parallel: bool
    ) -> None:
        self.module = module
        self.func = func
        self.code = Code(function, worker)
        self.ops = Elementwise(lambda: self.code.b, module.host.scalef, module.fast)
        self.env: dict[str, Any] = {}
        self.parallel = parallel  # already on a worker: nothing below is divided again
        self.recording = False  # accesses to tensors are compared with those of other iterations (debug)
        self._roots: dict[str, str] | None = None
        counts = Counter(v.name for s in statements(func.body) for v in defs(s))
        self.mutable = {n for n, k in counts.items() if k > 1}
        self.uses = Counter(v.name for s in statements(func.body) for v in uses(s))
        self.generated = fitting_tiles(func.body)
        self.arena = Arena()
        self._base: Value | None = None
        self._base_size: Text | None = None
        self.scopes: list[list[Value]] = [[]]  # dynamic scratch blocks by block of statements
        self.loops: list[LoopExits] = []
        self.owned: dict[str, tuple[int, int]] = {}  # tile variables with a static buffer: offset and size
        self.buffers: set[str] = set()  # tile variables that alone know their memory
        self.dying: set[str] = set()  # tile variables that the current statement is the last to use
        self.heap: list[Value] = []  # slots of buffers to be freed when the function returns
        self.streams = False
        self.results: Callable[[Sequence[Operand]], None] | None = None
        self.callees: dict[str, ir.Function] = {}
        self.hazards: set[str] = set()  # loads that must be copied

    @property
    def b(self) -> Any:
        """The builder at the place of insertion."""
        return self.code.b

    # -- the function as a whole ----------------------------------------------------------------------------------

    def write(self, body: Block) -> None:
        """The whole body, down to the return."""
        self.block(body)
        self.code.go(self.code.leave)
        self.close()

    def parameter(self, var: Var) -> None:
        """A parameter of the entry has its value."""

    def close(self) -> None:
        """The last block, and the entry block when everything is known."""
        code = self.code
        code.at(code.leave)
        status = code.b.load(code.status, typ=I32)
        for slot in self.heap:
            pointer = code.b.load(slot, typ=PTR)
            with code.when(code.b.icmp_unsigned("!=", pointer, zero(PTR))):
                code.call("pto_buffer_free", VOID, [code.worker, pointer])
        if self.streams:
            code.call("llvm.x86.sse.sfence", VOID, [])
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

    def tensor_memory(self, name: str, size: Index) -> Value:
        """Memory of the launch for a tensor made here; made again, the tensor gives up what it had."""
        code = self.code
        slot = code.alloca(PTR, name)
        with code.at_entry():
            code.b.store(zero(PTR), slot)
        self.heap.append(slot)
        old = code.b.load(slot, typ=PTR)
        with code.when(code.b.icmp_unsigned("!=", old, zero(PTR)), likely=False):
            code.b.store(zero(PTR), slot)
            self.release_tensor(name, old)
        pointer = code.call("pto_buffer_alloc", PTR, [code.worker, as_i64(code.max(size, 1))])
        self.got_memory(pointer)
        code.b.store(pointer, slot)
        self.env["alloc " + name] = slot
        return pointer

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
        declared = tuple(d if isinstance(d, int) else self.b.load(d, typ=I64) for d in slot.declared)
        valid = tuple(self.b.load(v, typ=I64) for v in slot.valid)
        fits = 0 if slot.fits is None else self.b.load(slot.fits, typ=I64)
        return Tile(slot.dtype, pointer, declared, valid, self.strides(slot.dtype, declared), fits=fits)

    def strides(self, dtype: DType, extents: Sequence[Index]) -> tuple[Index, ...]:
        """Of a C-contiguous array, in bytes."""
        out: list[Index] = []
        size: Index = dtype.bytes
        for extent in reversed(extents):
            out.append(size)
            size = self.code.mul(size, extent)
        return tuple(reversed(out))

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

    # -- statements -----------------------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        """Statements in order; dynamic tile memory taken here goes back at the end."""
        last: dict[str, int] = {}
        mine: dict[str, int] = {}
        for k, stmt in enumerate(block):
            last.update((v.name, k) for v in variables((stmt,)))
            if isinstance(stmt, (Op, Fuse, Call)):
                for name in block_defs((stmt,)):
                    mine.setdefault(name, k)
        dead: dict[int, set[str]] = {}
        for name, k in last.items():
            if name in mine and name not in self.mutable:
                dead.setdefault(k, set()).add(name)
        self.hazards |= loads_to_copy(block)
        self.scopes.append([])
        for k, stmt in enumerate(block):
            if self.code.terminated:
                break
            self.dying = dead.get(k, set())
            self.statement(stmt)
            self._release(dead.get(k, set()))
        self._pop(self.scopes.pop())

    def _stored_product(self, stmt: Stmt, following: Block) -> bool:
        """Write a product together with the store that is its only use."""
        if not isinstance(stmt, Op) or stmt.op != "dot" or len(stmt.args) != 2 or stmt.results[0].name in self.mutable:
            return False
        fused = following[0] if following else None
        if not isinstance(fused, Fuse) or len(fused.body) != 1 or self.uses[stmt.results[0].name] != 1:
            return False
        store = fused.body[0]
        if not isinstance(store, Op) or store.op != "store" or store.args[0] != stmt.results[0]:
            return False
        from pto_jit.targets.cpu.products import write_stored_dot

        return write_stored_dot(self, stmt, fused)

    def statement(self, stmt: Stmt) -> None:
        if self.code.lines is None:
            self._statement(stmt)
            return
        with self.code.lines.statement(self.code, stmt.loc):
            self._statement(stmt)

    def _statement(self, stmt: Stmt) -> None:
        match stmt:
            case Op():
                self.op(stmt)
            case Fuse():
                from pto_jit.targets.cpu.groups import write_group

                with self.passing_results():
                    write_group(self, stmt)
            case For():
                self._for(stmt)
            case While():
                self._while(stmt)
            case If():
                self._if(stmt)
            case Scope():
                self.block(stmt.body)
            case Call():
                self._call(stmt)
            case Return():
                self._return(stmt)
            case Break():
                self._unwind(self.loops[-1].depth)
                self.b.branch(self.loops[-1].leave)
            case Continue():
                self._unwind(self.loops[-1].depth)
                self.b.branch(self.loops[-1].again)

    @contextmanager
    def passing_results(self) -> Any:
        """Static scratch taken for the group itself is free again afterwards; its results stay."""
        saved = getattr(self, "transient", [])
        self.transient = []
        yield
        for offset, size in self.transient:
            self.arena.give(offset, size)
        self.transient = saved

    def _unwind(self, depth: int) -> None:
        for blocks in reversed(self.scopes[depth:]):
            self._pop(blocks)

    def _if(self, stmt: If) -> None:
        code = self.code
        then, after = code.block("if"), code.block("endif")
        orelse = code.block("else") if stmt.orelse else after
        code.b.cbranch(self.scalar(stmt.cond), then, orelse)
        code.at(then)
        self.block(stmt.then)
        code.go(after)
        if stmt.orelse:
            code.at(orelse)
            self.block(stmt.orelse)
            code.go(after)
        code.at(after)

    def _while(self, stmt: While) -> None:
        code = self.code
        head, body, after = code.block("while"), code.block("do"), code.block("done")
        self.module.loops.add(code.function.name)
        code.b.branch(head)
        code.at(head)
        self.block(stmt.before)
        code.b.cbranch(self.scalar(stmt.cond), body, after)
        code.at(body)
        self.loops.append(LoopExits(after, head, len(self.scopes)))
        self.block(stmt.body)
        self.loops.pop()
        code.go(head)
        code.at(after)

    def root(self, name: str) -> str:
        """The tensor of the function that the tensor `name` is a view of."""
        if self._roots is None:
            from pto_jit.semantic.races import roots

            self._roots = roots(self.func.body)
        return self._roots.get(name, name)

    def record(
        self, op: Op, tensor: Tensor, pointer: Value, extents: Sequence[Index] = (), strides: Sequence[Index] = ()
    ) -> None:
        """`op` is about to access a rectangle of its tensor operand."""
        if self.recording:
            from pto_jit.targets.cpu.racing import record

            record(self, op, tensor, pointer, extents, strides)

    def record_new(self, pointer: Value, size: Index) -> None:
        """A tensor was allocated in this memory."""
        if self.recording:
            from pto_jit.targets.cpu.racing import record_new

            record_new(self, pointer, size)

    def _for(self, stmt: For) -> None:
        if stmt.checked and self.module.debug:
            from pto_jit.targets.cpu.racing import write_checked

            write_checked(self, stmt)
            return
        divided = stmt.kind in ("parallel", "chunk") or (stmt.kind == "combine" and stmt.grain is not None)
        if divided and not self.parallel:
            from pto_jit.targets.cpu.parallel import write_parallel

            write_parallel(self, stmt)
            return
        tiles = any(isinstance(s, (Call, Fuse)) for s in statements(stmt.body))
        if stmt.kind in ("parallel", "in_chunk") and not tiles and not self.recording:
            from pto_jit.targets.cpu.spmd import write_loop  # here: kernels of tiles alone never need it

            if write_loop(self, stmt):
                return
        self.sequential(stmt, self.index(stmt.start), self.index(stmt.stop), self.index(stmt.step))

    def sequential(
        self, stmt: For, start: Index, stop: Index, step: Index, begin: Callable[[Value], None] | None = None
    ) -> None:
        """The iterations in order, in this frame; `begin` writes what each starts with."""
        code = self.code
        if any(isinstance(s, Op) and s.op in _ELEMENTS for s in statements(stmt.body)):
            self.module.loops.add(code.function.name)
        body, again, after = code.block("for"), code.block("next"), code.block("endfor")
        if isinstance(step, int):
            if step == 0:
                code.check(False, self.module.site(*failures.STEP.at(), stmt.loc))
            enter = code.compare("<" if step > 0 else ">", start, stop)
            up: Any = step > 0
        else:
            ok = code.compare("!=", step, 0)
            code.check(ok, self.module.site(*failures.STEP.at(), stmt.loc))
            up = code.compare(">", step, 0)
            enter = code.b.select(up, code.b.icmp_signed("<", as_i64(start), as_i64(stop)),
                                  code.b.icmp_signed(">", as_i64(start), as_i64(stop)))  # fmt: skip
        before = code.b.block
        if enter is True:
            code.b.branch(body)
        elif enter is False:
            code.b.branch(after)
        else:
            code.b.cbranch(enter, body, after)
        code.at(body)
        i = code.b.phi(I64, name=stmt.var.name)
        i.add_incoming(as_i64(start), before)
        self.define(stmt.var, i)
        if begin is not None:
            begin(i)
        self.loops.append(LoopExits(after, again, len(self.scopes)))
        self.block(stmt.body)
        self.loops.pop()
        code.go(again)
        code.at(again)
        # used only when there is one more iteration: then it is between this one and the end
        following = code.b.add(i, as_i64(step), flags=("nsw",))
        if isinstance(step, int) and abs(step) <= 1:
            more = code.b.icmp_signed("<" if step > 0 else ">", following, as_i64(stop))
        else:  # whether more than a step is left; the distance to the end fits 64 bits without a sign
            ahead, behind = code.b.sub(as_i64(stop), i), code.b.sub(i, as_i64(stop))
            back = -step if isinstance(step, int) else code.b.sub(number(I64, 0), step)
            upwards = code.b.icmp_unsigned(">", ahead, as_i64(step))
            downwards = code.b.icmp_unsigned(">", behind, as_i64(back))
            more = code.pick(up, upwards, downwards)
        code.b.cbranch(more, body, after)
        i.add_incoming(following, again)
        if enter is False:  # keep the phi complete: the block is unreachable
            i.incomings[:] = [(following, again)]
        code.at(after)

    def _call(self, stmt: Call) -> None:
        code = self.code
        callee = self.callees[stmt.callee]
        args: list[Value] = [code.worker]
        for a in stmt.args:
            args += self.flattened(a)
        slots = []
        for r in stmt.results:
            assert isinstance(r.type, ScalarType)
            slots.append(code.alloca(register_type(r.type.dtype)))
        code.check_status(code.b.call(callee, args + slots))
        for r, slot in zip(stmt.results, slots, strict=True):
            assert isinstance(r.type, ScalarType)
            self.define(r, code.b.load(slot, typ=register_type(r.type.dtype)))

    def flattened(self, operand: Operand) -> list[Value]:
        """An argument as the callee takes it."""
        if not isinstance(operand.type, TensorType):
            return [self.scalar(operand)]
        tensor = self.tensor(operand)
        return [tensor.pointer, *(as_i64(e) for e in tensor.extents), *(as_i64(s) for s in tensor.strides)]

    def _return(self, stmt: Return) -> None:
        assert self.results is not None
        self.results(stmt.values)
        self._unwind(1)
        self.b.branch(self.code.leave)
        self.code.at(self.code.block("unreached"))
        self.b.unreachable()

    # -- operations -----------------------------------------------------------------------------------------------

    def write_nest(self, nest: Any, inputs: Any, divided: Any) -> Any:
        """A nest with the rows of `inputs`; `divided`: what they accumulate, when workers may share them."""
        if divided is not None:
            from pto_jit.targets.cpu.divide import divide_nest

            return divide_nest(self, nest, inputs, divided)
        from pto_jit.targets.cpu.nest import NestWriter, row_count

        writer = NestWriter(self.code, self.ops, nest, inputs, self.module.host.width, self.scratch)
        writer.write(0, row_count(self.code, inputs))
        return writer

    clash: Callable[..., Any] | None = None
    """How a target compares regions of memory, if it has its own way (see `stores`)."""
    vectors = True
    """Whether loops over elements are written in vectors here, not by a compiler behind."""

    def op(self, op: Op) -> None:
        """One operation outside of a group."""
        name = op.op
        handler = TENSOR_OPS.get(name)
        if handler is not None:
            handler(self, op)
            return
        tiles = any(isinstance(v.type, TileType) for v in (*op.args, *op.results))
        if not tiles and is_elementwise(op):
            self.elementwise(op)
            return
        from pto_jit.targets.cpu.operations import TILE_OPS  # the writers of all operations; many kernels need none

        handler = TILE_OPS.get(name)
        if handler is None:
            raise TargetError(f"the cpu target does not know the operation `{name}`  ({op.loc})")
        handler(self, op)

    def elementwise(self, op: Op) -> None:
        """A scalar operation; index arithmetic on known numbers folds."""
        result = op.results[0]
        assert isinstance(result.type, ScalarType)
        data = op.args[1] if op.op in ("select", "rand_at", "randn_at") else op.args[0]
        assert isinstance(data.type, ScalarType)
        operand, dtype = data.type.dtype, result.type.dtype
        if dtype == i64 and operand == i64 and op.op in ("add", "sub", "mul", "min", "max", "copy"):
            args = [self.index(a) for a in op.args]
            if op.op in ("add", "sub", "mul"):  # numbers of the program: they wrap
                self.define(result, self.code.wrapping(op.op, *args))
                return
            if all(isinstance(a, int) for a in args):
                self.define(result, min(args) if op.op == "min" else max(args))
                return
        args = [self.scalar(a) for a in op.args]
        self.define(result, self.ops.apply(op.op, args, operand, dict(op.attrs), dtype))

    def element(self, tensor: Tensor, indices: Sequence[Index], loc: Loc) -> Value:
        """The address of an element; checked when compiled for debugging."""
        code = self.code
        distance: Index = 0
        for k, (at, stride, extent) in enumerate(zip(indices, tensor.strides, tensor.extents, strict=True)):
            if self.module.debug:
                ok = code.all_of([code.compare(">=", at, 0), code.compare("<", at, extent)])
                code.check(ok, self.module.site(*failures.INDEX.at(axis=k), loc), at, extent)
            distance = code.add(distance, code.mul(at, stride))
        return code.offset(tensor.pointer, distance)
