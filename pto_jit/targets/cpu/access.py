# SPDX-License-Identifier: MIT
"""Loads and stores of several lanes, under a mask or past the caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from pto_jit.dtypes import DType
from pto_jit.targets.cpu.code import Code
from pto_jit.targets.cpu.constants import I1, I32, I64, PTR, VOID, Index, Value, i64, number, storage_type, vector, zero
from pto_jit.targets.cpu.runs import by_runs, load_runs, save_runs
from pto_jit.targets.cpu.vector import lane_count


def load(code: Code, address: Value, dtype: DType, lanes: int, mask: Value | None) -> Value:
    """Lanes as they lie in memory; zero where the mask (an i1 vector) does not hold."""
    typ: Any = vector(storage_type(dtype), lanes)
    if mask is None:
        return code.b.load(address, typ=typ, align=dtype.bytes)
    if by_runs(dtype, lanes):
        return load_runs(code, address, mask, typ, dtype.bytes)
    name = f"llvm.masked.load.{_mangled(typ)}.p0"
    function = code.module.globals.get(name)
    if function is None:
        function = ir.Function(
            code.module, ir.FunctionType(typ, [PTR, vector(I1, lanes), typ]), name
        )
    return code.b.call(function, [address, mask, zero(typ)])


def save(
    code: Code, address: Value, value: Value, dtype: DType, mask: Value | None, stream: int = 0
    ) -> None:
    """Store lanes where the mask holds; `stream`: past the caches, to an address aligned to so many bytes."""
    if mask is None:
        store = code.b.store(value, address, align=stream or dtype.bytes)
        if stream:
            store.set_metadata("nontemporal", code.module.add_metadata([number(I32, 1)]))
        return
    typ = value.type
    if by_runs(dtype, lane_count(typ)):
        save_runs(code, address, value, mask, dtype.bytes)
        return
    name = f"llvm.masked.store.{_mangled(typ)}.p0"
    function = code.module.globals.get(name)
    if function is None:
        function = ir.Function(
            code.module,
            ir.FunctionType(VOID, [typ, PTR, vector(I1, lane_count(typ))]), name,
        )  # fmt: skip
    code.b.call(function, [value, address, mask])


def prefetch(code: Code, address: Value, size: int) -> None:
    """Fetch so many bytes from an address on, which need not be there."""
    for at in range(0, size, 64):
        arguments = [code.offset(address, at, inbounds=False), number(I32, 0), number(I32, 3), number(I32, 1)]
        code.call("llvm.prefetch.p0", VOID, arguments)


def edges(
    code: Code, head: Index, start: Index, count: Index, lanes: int, body: Callable[[Value, Index], object]
) -> None:
    """What a loop over the aligned part [head, start) of `count` elements leaves: `body(i, stop)`, lanes from i on of
    those before stop, first below head, then from start on; one loop that jumps once."""
    first = code.pick(code.compare(">", head, 0), 0, start)
    before, loop, after = code.b.block, code.block("edges"), code.block("edges.end")
    code.b.cbranch(code.compare("<", first, count), loop, after)
    code.at(loop)
    i = code.b.phi(I64)
    i.add_incoming(i64(first), before)
    early = code.compare("<", i, head)
    body(i, code.pick(early, head, count))
    following = code.add(i, lanes)
    jump = code.all_of([early, code.compare(">=", following, head)])
    following = i64(code.pick(jump, start, following))
    i.add_incoming(following, code.b.block)
    code.b.cbranch(code.compare("<", following, count), loop, after)
    code.at(after)


def _mangled(typ: ir.Type) -> str:
    count = lane_count(typ)
    element = typ.element if isinstance(typ, ir.VectorType) else typ
    name = f"i{element.width}" if isinstance(element, ir.IntType) else {
        ir.HalfType: "f16", ir.FloatType: "f32", ir.DoubleType: "f64"}[type(element)]  # fmt: skip
    return name if count == 1 else f"v{count}{name}"
