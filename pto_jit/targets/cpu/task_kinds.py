# SPDX-License-Identifier: MIT
"""What generated code tells the runtime of a kind of task: the constant `pto_task_kind`, the function, the slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from pto_jit.ir.nodes import Func
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import variables
from pto_jit.targets.cpu.constants import F32, F64, I32, I64, PTR, VOID, Text, Value, number
from pto_jit.targets.cpu.module import ModuleWriter
from pto_jit.targets.cpu.task_regions import WRITE


def to_slot(b: Any, value: Value) -> Value:
    """A register as 64 bits."""
    typ = value.type
    if typ == PTR:
        return b.ptrtoint(value, I64)
    if typ == F64:
        return b.bitcast(value, I64)
    if typ == F32:
        return b.zext(b.bitcast(value, I32), I64)
    return value if typ == I64 else b.zext(value, I64)


def from_slot(b: Any, bits: Value, typ: ir.Type) -> Value:
    if typ == PTR:
        return b.inttoptr(bits, PTR)
    if typ == F64:
        return b.bitcast(bits, F64)
    if typ == F32:
        return b.bitcast(b.trunc(bits, I32), F32)
    return bits if typ == I64 else b.trunc(bits, typ)


class _Plain:
    """The builder of a small function without frames."""

    def __init__(self, function: ir.Function) -> None:
        self.b: Any = ir.IRBuilder(function.append_basic_block("entry"))

    def offset(self, pointer: Value, distance: int) -> Value:
        return self.b.gep(pointer, [number(I64, distance)], source_etype=ir.IntType(8), inbounds=True)


def task_function(module: ModuleWriter, name: str) -> ir.Function:
    function = ir.Function(module.llvm, ir.FunctionType(I32, [PTR, PTR]), module.unique(name))
    function.linkage = "internal"
    function.attributes.add("nounwind")
    return function


def _constant(module: ModuleWriter, name: str, typ: ir.Type, text: str, linkage: str = "internal") -> Text:
    """A constant in memory; its address."""
    variable = ir.GlobalVariable(module.llvm, typ, module.unique(name))
    variable.linkage = linkage
    variable.global_constant = True
    variable.initializer = Text(typ, text)  # type: ignore[assignment]
    return Text(PTR, f'@"{variable.name}"')


_KIND = ir.LiteralStructType([PTR, PTR, I64, I32, I32, PTR])


def task_kind(
    module: ModuleWriter, name: str, function: str, buffer_bytes: int, slots: int, accesses: Sequence[int]
) -> Text:
    """A `pto_task_kind` of pto_runtime.h, under a name by which the loaded program finds it."""
    text = "".join(chr(c) if 32 <= c < 127 and c not in (34, 92) else f"\\{c:02x}" for c in name.encode())
    label = _constant(module, "task.name", ir.ArrayType(ir.IntType(8), len(name.encode()) + 1), f'c"{text}\\00"')
    numbers = ", ".join(f"i32 {a}" for a in accesses)
    table = _constant(module, "task.accesses", ir.ArrayType(I32, len(accesses)), f"[{numbers}]")
    return _constant(
        module, f"pto_kind_{name}", _KIND,
        f'{{ ptr {label.text}, ptr @"{function}", i64 {buffer_bytes}, i32 {slots}, i32 {len(accesses)}, '
        f"ptr {table.text} }}", linkage="",
    )  # fmt: skip


def release_kind(module: ModuleWriter) -> Text:
    """The task that gives the memory of a tensor back."""
    function = task_function(module, "release")
    worker, slots = function.args
    code = _Plain(function)
    release = module.llvm.globals.get("pto_buffer_free") or ir.Function(
        module.llvm, ir.FunctionType(VOID, [PTR, PTR]), "pto_buffer_free"
    )
    code.b.call(release, [worker, code.b.inttoptr(code.b.load(slots, typ=I64, align=8), PTR)])
    code.b.ret(number(I32, 0))
    return task_kind(module, "release", function.name, 0, 1, [WRITE])


def tile_bytes(func: Func) -> int:
    """Bytes of the function's tiles as declared; extents known only when running count as nothing."""
    total = 0
    seen: set[str] = set()
    for var in variables(func.body):
        if isinstance(var.type, TileType) and var.name not in seen and None not in var.type.shape:
            seen.add(var.name)
            size = var.type.dtype.bytes
            for extent in var.type.shape:
                assert extent is not None
                size *= extent
            total += size
    return total
