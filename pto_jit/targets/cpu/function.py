# SPDX-License-Identifier: MIT
"""One IR function as LLVM code: its statements, operations and calls.

A function is written in *frames*: the function itself, and one for each parallel loop body and each large nest, which
become functions of their own that the run-time library calls for ranges of iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from llvmlite import ir

from pto_jit.dtypes import i64
from pto_jit.errors import InternalError, Loc
from pto_jit.ir.nodes import (
    Block,
    Break,
    Call,
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
from pto_jit.ir.walk import block_names, statements, uses
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.semantic import failures
from pto_jit.targets.cpu.analysis import added_products, loads_to_copy, zero_accumulators
from pto_jit.targets.cpu.code import PLAIN
from pto_jit.targets.cpu.constants import I64, Index, Value, number, register_type
from pto_jit.targets.cpu.constants import i64 as as_i64
from pto_jit.targets.cpu.frame import Frame
from pto_jit.targets.cpu.module import ModuleWriter
from pto_jit.targets.cpu.tensors import TENSOR_OPS
from pto_jit.targets.cpu.values import Tensor


class LoopExits:
    """Where break and continue of the innermost loop go, and how many scratch blocks were open at its body."""

    def __init__(self, leave: ir.Block, again: ir.Block, depth: int) -> None:
        self.leave, self.again, self.depth = leave, again, depth


class FunctionWriter(Frame):
    """Writes the statements of one frame."""

    def __init__(
        self, module: ModuleWriter, func: Func, function: ir.Function, worker: Value, *, parallel: bool
    ) -> None:
        super().__init__(module, func, function, worker, parallel=parallel)
        self.recording = False  # accesses to tensors are compared with those of other iterations (debug)
        self.loops: list[LoopExits] = []
        self.plain = False  # loops are written for the few calls that do not take the fast way
        self.versions = True  # loops may be written for likely extents and for any
        self.apart: bool | None = None  # whether tensors share no memory; None: that is asked loop by loop
        self.results: Callable[[Sequence[Operand]], None] | None = None
        self.callees: dict[str, ir.Function] = {}
        self.hazards: set[str] = set()  # loads that must be copied
        self._roots: dict[str, str] | None = None

    # -- the function as a whole ----------------------------------------------------------------------------------

    def write(self, body: Block) -> None:
        """The whole body, down to the return."""
        self.block(body)
        self.code.go(self.code.leave)
        self.close()

    def parameter(self, var: Var) -> None:
        """A parameter of the entry has its value."""

    # -- statements -----------------------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        """Statements in order; dynamic tile memory taken here goes back at the end."""
        last: dict[str, int] = {}
        mine: dict[str, int] = {}
        for k, stmt in enumerate(block):
            if type(stmt) is Op and not stmt.regions:
                for arg in stmt.args:
                    if type(arg) is Var:
                        last[arg.name] = k
                for result in stmt.results:
                    last[result.name] = k
                    mine.setdefault(result.name, k)
                continue
            read, made = block_names(stmt.body if isinstance(stmt, Fuse) else (stmt,))
            last.update(dict.fromkeys(read, k))
            last.update(dict.fromkeys(made, k))
            if isinstance(stmt, (Op, Fuse, Call)):
                for name in made:
                    mine.setdefault(name, k)
        sums, zeros = self.sums_of_products(block)
        for k, sum_ in sums.items():
            for var in uses(block[k]):
                last[var.name] = max(last[var.name], sum_[-1])  # computed with the last term
        dead: dict[int, set[str]] = {}
        for name, k in last.items():
            if name in mine and name not in self.mutable:
                dead.setdefault(k, set()).add(name)
        self.hazards |= loads_to_copy(block, lambda: self.module.aliasing.of(self.func))
        self.scopes.append([])
        terms: list[Any] = []
        stored = False  # with the statement before
        for k, stmt in enumerate(block):
            if self.code.terminated:
                break
            self.dying = dead.get(k, set())
            if k in sums:
                assert isinstance(stmt, Op)
                stored = self._term(stmt, terms, sums[k][-1] == k, block[k + 1] if k + 1 < len(block) else None)
            elif k in zeros:
                self._zeros(zeros[k])
            elif stored:
                stored = False
            else:
                stored = self._joined(stmt, block[k + 1 : k + 2])
                if not stored:
                    self.statement(stmt)
            self._release(dead.get(k, set()))
        self._pop(self.scopes.pop())

    def sums_of_products(self, block: Block) -> tuple[dict[int, tuple[int, ...]], dict[int, Op]]:
        """By the place of a product the places of all that are computed as one with it, alone or not; by place the
        zeros that are made for such a sum to start from."""
        found = added_products(block, self.uses, self.mutable)
        if not found:
            return {}, {}
        from pto_jit.targets.cpu.products import may_sum

        chains = [part for chain in found for part in ([chain] if may_sum(block, chain) else [(k,) for k in chain])
                  if may_sum(block, part)]  # fmt: skip
        return {k: chain for chain in chains for k in chain}, zero_accumulators(block, chains, self.uses, self.mutable)

    def _zeros(self, op: Op) -> None:
        from pto_jit.targets.cpu.products import write_zeros

        with self.code.lines.statement(self.code, op.loc) if self.code.lines is not None else nullcontext():
            write_zeros(self, op)

    def _term(self, op: Op, terms: list[Any], last: bool, following: Stmt | None) -> bool:
        """Collect a product; with the last of its sum write them all, and whether the store that follows, too."""
        from pto_jit.targets.cpu.products import term_of, write_stored_sum, write_sum

        with self.code.lines.statement(self.code, op.loc) if self.code.lines is not None else nullcontext():
            terms.append(term_of(self, op, terms[-1] if terms else None))
            if not last:
                return False
            sum_, terms[:] = tuple(terms), ()
            store = following if isinstance(following, Fuse) and self._stores(op.results[0], following) else None
            if store is not None and write_stored_sum(self, sum_, store):
                return True
            write_sum(self, sum_)
            return False

    def _joined(self, stmt: Stmt, following: Sequence[Stmt]) -> bool:
        """Write tiles that are joined with the store that follows, if that is their only use."""
        if not isinstance(stmt, Op) or stmt.op not in ("concat", "stack"):
            return False
        if not following or not isinstance(following[0], Fuse) or not self._stores(stmt.results[0], following[0]):
            return False
        from pto_jit.targets.cpu.joining import write_stored_joined

        with self.code.lines.statement(self.code, stmt.loc) if self.code.lines is not None else nullcontext():
            return write_stored_joined(self, stmt, following[0])

    def _stores(self, value: Var, fused: Fuse) -> bool:
        """Whether a group is nothing but the store of a tile that is not a variable, and its only use."""
        if len(fused.body) != 1 or self.uses[value.name] != 1 or value.name in self.mutable:
            return False
        store = fused.body[0]
        return isinstance(store, Op) and store.op == "store" and store.args[0] == value

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
                self.module.tiles = True
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
        code, name = self.code, f"while.{PLAIN}" if self.plain else "while"
        head, body, after = code.block(name), code.block("do"), code.block("done")
        self.module.note_loop(code.function, (*stmt.before, *stmt.body))
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
        inside = list(statements(stmt.body))
        if any(isinstance(s, Op) and s.op in ("getelem", "setelem") for s in inside):
            from pto_jit.targets.cpu.versions import write_versions  # here: kernels of tiles alone never need it

            write_versions(self, stmt, lambda: self._loop(stmt, inside))
        else:
            self._loop(stmt, inside)

    def _loop(self, stmt: For, inside: Sequence[Stmt]) -> None:
        """A loop that this frame has for itself; `inside`: all statements of its body."""
        lanes = stmt.kind in ("parallel", "in_chunk") or any(isinstance(s, For) and s.proof for s in (stmt, *inside))
        if lanes and not self.recording and not any(isinstance(s, (Call, Fuse)) for s in inside):
            from pto_jit.targets.cpu.spmd import write_loop  # here: kernels of tiles alone never need it

            if write_loop(self, stmt):
                return
        start, stop, step = self.index(stmt.start), self.index(stmt.stop), self.index(stmt.step)
        if stmt.kind == "sequential" and any(isinstance(s, Op) and s.op == "setelem" for s in stmt.body):
            from pto_jit.targets.cpu.kept import write_kept

            if write_kept(self, stmt, start, stop, step):
                return
        if stmt.kind == "sequential" and any(isinstance(s, Fuse) and s.keep for s in stmt.body):
            from pto_jit.targets.cpu.strips import write_strips

            if write_strips(self, stmt, start, stop, step):
                return
        if stmt.kind == "sequential" and stmt.body and isinstance(stmt.body[-1], For):
            from pto_jit.targets.cpu.jammed import write_jammed

            if write_jammed(self, stmt, start, stop, step):
                return
        self.sequential(stmt, start, stop, step)

    def sequential(
        self, stmt: For, start: Index, stop: Index, step: Index, begin: Callable[[Value], None] | None = None
    ) -> None:
        """The iterations in order, in this frame; `begin` writes what each starts with."""
        code = self.code
        self.module.note_elements(self.code.function, stmt)
        before_it, self.plain = self.plain, self.plain or stmt.border  # which is not worth the optimiser's time
        plain = self.plain or any(isinstance(s, For) and s.proof for s in statements(stmt.body))
        body, again, after = code.block(f"for.{PLAIN}" if plain else "for"), code.block("next"), code.block("endfor")
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
        self.plain = before_it
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
        args = [v for a in stmt.args for v in self.flattened(a)]
        slots = []
        for r in stmt.results:
            assert isinstance(r.type, ScalarType)
            slots.append(code.alloca(register_type(r.type.dtype)))
        self.enter(stmt.callee, [*args, *slots])
        for r, slot in zip(stmt.results, slots, strict=True):
            assert isinstance(r.type, ScalarType)
            self.define(r, code.b.load(slot, typ=register_type(r.type.dtype)))

    def enter(self, callee: str, args: Sequence[Value]) -> None:
        """Call a function of the module."""
        self.code.check_status(self.b.call(self.callees[callee], [self.code.worker, *args]))
        if callee in self.module.unordered:
            self.streams = True
            if not self.parallel:  # what is divided from here on reads on other workers
                self.order_stores()

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

    def plan(self, fused: Fuse) -> Any:
        """The nest of a group."""
        from pto_jit.targets.loops.plan import plan

        return plan(fused)

    def write_nest(self, fused: Fuse, nest: Any, inputs: Any, divided: Any) -> Any:
        """A nest of a group with the rows of `inputs`; `divided`: what they accumulate, when workers may share them."""
        if divided is not None:
            from pto_jit.targets.cpu.divide import divide_nest

            return divide_nest(self, nest, inputs, divided)
        from pto_jit.targets.cpu.nest import NestWriter, row_count

        writer = NestWriter(self.code, self.ops, nest, inputs, self.module.host.width, self.scratch)
        writer.write(0, row_count(self.code, inputs))
        return writer

    clash: Callable[..., Any] | None = None
    """How a target compares regions of memory, if it has its own way (see `stores`)."""
    fill: Callable[..., Any] | None = None
    """How a target sets so many elements to a value, if it has its own way (see `tiles`)."""
    padded: Callable[..., Any] | None = None
    """How a target loads a tile with a pad value, if it has its own way; None from it where it has not."""
    table: Any = None
    """The rows that a loop over accumulators is being written for (see `strips`)."""
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
            raise InternalError(f"the cpu target does not know the operation `{name}`  ({op.loc})")
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
