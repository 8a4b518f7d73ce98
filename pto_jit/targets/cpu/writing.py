# SPDX-License-Identifier: MIT
"""A module of loop IR as an LLVM module: its functions, and the entry with its flat arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from pto_jit.config import config
from pto_jit.dtypes import f64
from pto_jit.ir.nodes import Block, Call, For, Func, Fuse, If, Module, Op, Operand, Scope, Stmt, Var, While
from pto_jit.ir.types import ScalarType, TensorType, Type
from pto_jit.ir.walk import TENSOR_VIEWS, WRITES
from pto_jit.targets.cpu.analysis import repeated_products
from pto_jit.targets.cpu.bits import without_bit_loops
from pto_jit.targets.cpu.clipped import with_fitting_casts
from pto_jit.targets.cpu.constants import F64, I32, I64, PTR, Index, Value, i64, number, register_type, zero
from pto_jit.targets.cpu.elementwise import cast
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.loading import Host, Tasks
from pto_jit.targets.cpu.module import ModuleWriter, in_ascii
from pto_jit.targets.cpu.rounded_indices import with_rounded_indices
from pto_jit.targets.cpu.tensors import bits64
from pto_jit.targets.cpu.values import Tensor
from pto_jit.targets.cpu.vector import TargetModule
from pto_jit.targets.cpu.waits import with_waits


def _parameters(func: Func) -> list[ir.Type]:
    out: list[ir.Type] = []
    for p in func.params:
        if isinstance(p.type, TensorType):
            out += [PTR, *[I64] * (2 * p.type.rank)]
        else:
            assert isinstance(p.type, ScalarType)
            out.append(register_type(p.type.dtype))
    return out


def _tensor(
    w: FunctionWriter, type: TensorType, pointer: Value, extents: Sequence[Value], strides: Sequence[Value]
) -> Tensor:
    """A parameter with what its type says: constant extents, packed or unit strides."""
    known: list[Index] = [e if e is not None else v for e, v in zip(type.shape, extents, strict=True)]
    out: list[Index]
    if type.layout == "c":
        out = list(w.strides(type.dtype, known))
    else:
        out = list(strides)
        if type.layout == "inner" and out:
            out[-1] = type.dtype.bytes
    return Tensor(type.dtype, pointer, tuple(known), tuple(out))


def _declare(module: ModuleWriter, func: Func) -> ir.Function:
    results = [PTR] * len(func.results)
    function = ir.Function(
        module.llvm, ir.FunctionType(I32, [PTR, *_parameters(func), *results]), f"{func.name}"
    )
    function.linkage = "internal"
    function.attributes.add("nounwind")
    return function


def _starts(module: ModuleWriter, func: Func) -> None:
    if module.llvm.lines is not None:
        module.llvm.lines.here = func.loc


def _write_callee(module: ModuleWriter, func: Func, function: ir.Function, callees: dict[str, ir.Function],
                  parallel: bool, recording: bool) -> None:  # fmt: skip
    _starts(module, func)
    worker, *args = function.args
    w = FunctionWriter(module, func, function, worker, parallel=parallel)
    w.recording = recording
    w.callees = callees
    at = 0
    for p in func.params:
        if isinstance(p.type, TensorType):
            rank = p.type.rank
            pointer, *numbers = args[at : at + 1 + 2 * rank]
            w.env[p.name] = _tensor(w, p.type, pointer, numbers[:rank], numbers[rank:])
            at += 1 + 2 * rank
        else:
            w.define(p, args[at])
            at += 1
    slots = args[at:]

    def give(values: Sequence[Operand]) -> None:
        for value, slot in zip(values, slots, strict=True):
            w.b.store(w.scalar(value), slot)

    w.results = give
    w.orders = func.name not in module.unordered
    w.write(func.body)
    if not w.streams:
        module.unordered.discard(func.name)


def _entry_writer(module: ModuleWriter, program: Module, function: ir.Function, tasks: Tasks | None) -> FunctionWriter:
    worker, args, _ = function.args
    func = program.func(program.entry)
    if tasks is None:
        return FunctionWriter(module, func, function, worker, parallel=False)
    from pto_jit.targets.cpu.tasks import TaskWriter  # few kernels are task graphs

    return TaskWriter(module, func, function, worker, {f.name: f for f in program.funcs}, args, tasks)


def _write_entry(
    module: ModuleWriter, program: Module, name: str, callees: dict[str, ir.Function], tasks: Tasks | None
) -> Any:
    """The entry; its result plan."""
    func = program.func(program.entry)
    function = ir.Function(module.llvm, ir.FunctionType(I32, [PTR, PTR, PTR]), name)
    function.attributes.add("nounwind")
    args, results = function.args[1:]
    _starts(module, func)
    w = _entry_writer(module, program, function, tasks)
    w.callees = callees
    at = 0

    def slot(typ: ir.Type) -> Value:
        nonlocal at
        value = w.b.load(w.code.offset(args, 8 * at), typ=typ, align=8)
        at += 1
        return value

    for p in func.params:
        if isinstance(p.type, TensorType):
            pointer = slot(PTR)
            extents = [slot(I64) for _ in range(p.type.rank)]
            strides = [slot(I64) for _ in range(p.type.rank)]
            w.env[p.name] = _tensor(w, p.type, pointer, extents, strides)
        else:
            assert isinstance(p.type, ScalarType)
            dtype = p.type.dtype
            if dtype.kind == "f":
                w.define(p, cast(w.b, slot(F64), f64, dtype))
            else:
                raw = slot(I64)
                if dtype.kind == "b":
                    w.define(p, w.b.icmp_unsigned("!=", raw, number(I64, 0)))
                else:
                    w.define(p, raw if dtype.bits == 64 else w.b.trunc(raw, register_type(dtype)))
        w.parameter(p)
    if module.repeated:
        from pto_jit.targets.cpu.products import promise_fixed  # few kernels have products

        tensors = [w.env[p.name] for p in func.params if isinstance(p.type, TensorType)]
        promise_fixed(w, tensors, written_tensors(program))

    def give(values: Sequence[Operand]) -> None:
        k = 0
        for value in values:
            if isinstance(value.type, TensorType):
                tensor = w.tensor(value)
                owner = w.env.get(f"alloc {value.name}")  # pyright: ignore[reportAttributeAccessIssue]
                if owner is not None:
                    w.b.store(zero(PTR), owner)
                for v in (w.b.ptrtoint(tensor.pointer, I64), *(i64(e) for e in tensor.extents)):
                    w.b.store(v, w.code.offset(results, 8 * k), align=8)
                    k += 1
            else:
                assert isinstance(value.type, ScalarType)
                w.b.store(bits64(w, w.scalar(value), value.type.dtype), w.code.offset(results, 8 * k), align=8)
                k += 1

    w.results = give
    w.write(func.body)
    plan = tuple(result_kind(t) for t in func.results)
    return None if not plan else plan[0] if len(plan) == 1 else plan


def result_kind(type: Type) -> Any:
    if isinstance(type, TensorType):
        return ("tensor", type.dtype.id, type.rank)
    assert isinstance(type, ScalarType)
    if type.dtype.name == "u64":  # the others fit a signed slot
        return "uint"
    return {"f": "float", "b": "bool"}.get(type.dtype.kind, "int")


def called_in_parallel(module: Module) -> set[str]:
    """Functions that only ever run on behalf of a parallel loop."""
    inside: set[str] = set()
    outside: set[str] = set()

    def walk(block: Sequence[Stmt], parallel: bool) -> None:
        for stmt in block:
            match stmt:
                case Call():
                    (inside if parallel else outside).add(stmt.callee)
                case For():
                    walk(stmt.body, parallel or stmt.kind in ("parallel", "chunk"))
                case While():
                    walk((*stmt.before, *stmt.body), parallel)
                case If():
                    walk((*stmt.then, *stmt.orelse), parallel)
                case Scope() | Fuse():
                    walk(stmt.body, parallel)
                case _:
                    pass

    for func in module.funcs:
        walk(func.body, False)
    return inside - outside


def written_tensors(module: Module) -> frozenset[int]:
    """Which tensor parameters of the entry may be written, by their place among its tensors."""
    done: dict[str, frozenset[int]] = {}

    def of(func: Func) -> frozenset[int]:
        """Places among the parameters of `func`."""
        if func.name in done:
            return done[func.name]
        roots = {p.name: k for k, p in enumerate(func.params)}
        out: set[int] = set()

        def walk(block: Block) -> None:
            for stmt in block:
                match stmt:
                    case Op():
                        views = stmt.op in TENSOR_VIEWS
                        target = 0 if views else WRITES.get(stmt.op)
                        operand = None if target is None else stmt.args[target]
                        if isinstance(operand, Var) and operand.name in roots:
                            if views:
                                roots[stmt.results[0].name] = roots[operand.name]
                            else:
                                out.add(roots[operand.name])
                    case Call():
                        for k in of(module.func(stmt.callee)):
                            operand = stmt.args[k]
                            if isinstance(operand, Var) and operand.name in roots:
                                out.add(roots[operand.name])
                    case For() | Scope() | Fuse():
                        walk(stmt.body)
                    case While():
                        walk(stmt.before)
                        walk(stmt.body)
                    case If():
                        walk(stmt.then)
                        walk(stmt.orelse)
                    case _:
                        pass

        walk(func.body)
        done[func.name] = frozenset(out)
        return done[func.name]

    entry = module.func(module.entry)
    tensors = [k for k, p in enumerate(entry.params) if isinstance(p.type, TensorType)]
    return frozenset(tensors.index(k) for k in of(entry))


def write_module(
    module: Module, here: Host, *, debug: bool, fastmath: bool, tasks: Tasks | None = None, name: str = ""
) -> tuple[ModuleWriter, str, Any]:
    """The LLVM module of a program, the name of its entry and its result plan.

    `tasks`: the entry's calls become tasks of a graph; `name`: of the entry, if it is given one.
    """
    module = with_rounded_indices(with_fitting_casts(module if debug else without_bit_loops(module)))
    module = with_waits(module)
    llvm = TargetModule(module.name, half=here.half)
    llvm.triple, llvm.data_layout = here.triple, here.layout
    if config.debug_info:
        from pto_jit.targets.cpu.lines import Lines

        llvm.lines = Lines(llvm, module.func(module.entry).loc.filename)
    writer = ModuleWriter(llvm, here, debug, fastmath, module)
    writer.repeated = repeated_products(module)
    parallel = called_in_parallel(module) if tasks is None else {f.name for f in module.funcs}
    if here.past_caches:  # once per range of a loop, or per task: it costs more than the call of a small chunk
        writer.unordered |= parallel - {module.entry}
    recorded: set[str] = set()
    if debug:
        from pto_jit.targets.cpu.racing import recorded_functions

        recorded = recorded_functions(module)
    callees = {f.name: _declare(writer, f) for f in module.funcs if f.name != module.entry}
    for func in module.funcs:
        if func.name != module.entry:
            _write_callee(writer, func, callees[func.name], callees, func.name in parallel,
                          func.name in recorded)  # fmt: skip
    name = name or f"pto_entry_{in_ascii(module.entry)}"
    return writer, name, _write_entry(writer, module, name, callees, tasks)
