# SPDX-License-Identifier: MIT
"""Lanes that are stored side by side (`lower.packs`): those of a mask are moved to the front of their vector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from pto_jit.dtypes import DType
from pto_jit.ir.nodes import Op, Var
from pto_jit.targets.cpu import access
from pto_jit.targets.cpu.constants import I8, I32, I64, Index, Value, number, numbers, undefined, vector
from pto_jit.targets.cpu.elementwise import splat, to_memory
from pto_jit.targets.cpu.loading import Host
from pto_jit.targets.cpu.vector import call_intrinsic

if TYPE_CHECKING:
    from pto_jit.targets.cpu.spmd.lanes import Lanes


_BY_TABLE = (4, 8)  # lanes of a register of AVX2, the order of whose words is looked up
_WORDS = vector(I32, 8)


def can_pack(here: Host, dtypes: Iterable[DType]) -> bool:
    """Whether a processor puts lanes of these elements side by side."""
    features = here.features.split(",")
    narrow = any(dtype.bytes < 4 for dtype in dtypes)
    if here.width == 64:
        return not narrow or "+avx512vbmi2" in features
    return not narrow and here.width == 32 and "+avx2" in features


def store_packed(lanes: Lanes, op: Op) -> None:
    """Store the value of the active lanes from where the counter says, which stays what it is."""
    value, target, *indices = op.args
    w, code = lanes.w, lanes.code
    tensor = w.tensor(target)
    counter, ahead = indices[-1], op.attr("ahead")
    assert isinstance(ahead, int) and tensor.strides[-1] == tensor.dtype.bytes
    place: Index = 0
    for index, stride in zip(indices[:-1], tensor.strides, strict=False):
        place = code.wrapping("add", place, code.wrapping("mul", w.index(index), stride))
    at = code.wrapping("add", w.index(counter), ahead)
    size = tensor.dtype.bytes
    for part, mask in zip(lanes.vectors(value), lanes.full(lanes.mask), strict=True):
        raw = to_memory(code.b, part, tensor.dtype)
        here = code.wrapping("add", place, code.wrapping("mul", at, size))
        address = code.offset(tensor.pointer, here, inbounds=False)  # of no lane it may be anywhere
        if lanes.mask is None:
            access.save(code, address, raw, tensor.dtype, None)
            at = code.wrapping("add", at, lanes.width)
            continue
        count = _active(lanes, mask)
        front = splat(code.b, code.b.trunc(count, I32), lanes.width)
        first = code.b.icmp_signed("<", numbers(I32, tuple(range(lanes.width))), front)
        access.save(code, address, _compressed(lanes, raw, mask), tensor.dtype, first)
        at = code.wrapping("add", at, count)


def count_packed(lanes: Lanes, op: Op) -> None:
    """Add the number of active lanes to a counter."""
    (counter,) = op.args
    assert isinstance(counter, Var)
    code = lanes.code
    total = lanes.w.index(counter)
    for mask in lanes.full(lanes.mask):
        total = code.wrapping("add", total, lanes.width if lanes.mask is None else _active(lanes, mask))
    lanes.w.define(counter, total)


def _active(lanes: Lanes, mask: Value) -> Value:
    """How many lanes of a mask are active."""
    b, bits = lanes.code.b, ir.IntType(lanes.width)
    count = call_intrinsic(b, "ctpop", bits, b.bitcast(mask, bits))
    return count if bits == I64 else b.zext(count, I64)


def _compressed(lanes: Lanes, value: Value, mask: Value) -> Value:
    """The active lanes, in front of any others."""
    b, width = lanes.code.b, lanes.width
    element = value.type.element
    if not isinstance(element, ir.IntType):
        bits = {ir.HalfType: 16, ir.FloatType: 32, ir.DoubleType: 64}[type(element)]
        as_numbers = vector(ir.IntType(bits), width)
        return b.bitcast(_compressed(lanes, b.bitcast(value, as_numbers), mask), value.type)
    by_table = lanes.w.module.host.width == 32 and width in _BY_TABLE
    # a whole register: LLVM 22 ends the process where some vectors are less (or more, which they are not here)
    wide = vector(ir.IntType(256 // width if by_table else max(element.width, 128 // width)), width)
    whole = value if value.type == wide else b.zext(value, wide)
    if by_table:
        which = b.zext(b.bitcast(mask, ir.IntType(width)), I64)
        start = b.gep(_table(b.module, width), [b.mul(which, number(I64, 8))], source_etype=I8)
        order = b.zext(b.load(start, typ=vector(I8, 8), align=8), _WORDS)
        words = lanes.code.call("llvm.x86.avx2.permd", _WORDS, [b.bitcast(whole, _WORDS), order])
        moved = b.bitcast(words, wide)
    else:
        moved = call_intrinsic(b, "experimental.vector.compress", wide, whole, mask, undefined(wide))
    return moved if value.type == wide else b.trunc(moved, value.type)


def _table(module: ir.Module, width: int) -> Value:
    """For every mask of lanes, which words of a register of 8 come to its front."""
    name = f"pto.front.{width}"
    known = module.globals.get(name)
    if known is not None:
        return known
    each = 8 // width
    content = bytearray()
    for mask in range(1 << width):
        words = [each * k + part for k in range(width) if mask >> k & 1 for part in range(each)]
        content += bytes(words + [0] * (8 - len(words)))
    array = ir.Constant(ir.ArrayType(I8, len(content)), content)
    variable: Any = ir.GlobalVariable(module, array.type, name)
    variable.initializer = array
    variable.global_constant = True
    variable.linkage = "internal"
    variable.align = 8
    return variable
