# SPDX-License-Identifier: MIT
"""Loads and stores of many lanes under a mask, for processors without instructions for it.

x86 has them for 4 and 8 bytes with AVX and for all elements with AVX-512; ARM's vectors of 128 bits have none.  LLVM
would test each lane and access it by itself.  Here a function of the module accesses each run of neighbouring lanes
that the mask holds for in two pieces that may overlap, if runs are few (what the end of a row leaves is one), else each
lane.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from pto_jit.dtypes import DType
from pto_jit.targets.cpu.code import Code
from pto_jit.targets.cpu.constants import I1, I8, I64, PTR, VOID, Value, number, vector, zero
from pto_jit.targets.cpu.loading import host
from pto_jit.targets.cpu.vector import call_intrinsic

_FEW = 8  # lanes that LLVM tests one by one at less cost
_RUNS = 3  # runs of lanes, from more of which on each lane is an access


def by_runs(dtype: DType, lanes: int) -> bool:
    """Whether an access to so many lanes under a mask is better one of this module."""
    here = host()
    native = here.width == 64 or (here.width == 32 and dtype.bytes >= 4)
    return lanes > _FEW and lanes & (lanes - 1) == 0 and not native


def load_runs(code: Code, address: Value, mask: Value, typ: ir.VectorType, size: int) -> Value:
    """The lanes that the mask holds for, of `size` bytes each; the others are zero."""
    function = _function(code.module, typ, size, loads=True)
    return code.b.call(function, [address, _bits(code, mask, typ)])


def save_runs(code: Code, address: Value, value: Value, mask: Value, size: int) -> None:
    """Store the lanes that the mask holds for, of `size` bytes each."""
    function = _function(code.module, value.type, size, loads=False)
    code.b.call(function, [address, _bits(code, mask, value.type), value])


def _bits(code: Code, mask: Value, typ: ir.VectorType) -> Value:
    return code.b.bitcast(mask, ir.IntType(typ.count))


def _function(module: ir.Module, typ: ir.VectorType, size: int, loads: bool) -> ir.Function:
    """`vector load(from, bits)` or `void save(to, bits, vector)`."""
    name = f"pto.{'load' if loads else 'save'}.{typ.count}.{typ.element}"
    known = module.globals.get(name)
    if known is not None:
        return known
    word = ir.IntType(typ.count)
    signature = ir.FunctionType(typ, [PTR, word]) if loads else ir.FunctionType(VOID, [PTR, word, typ])
    function = ir.Function(module, signature, name)
    function.linkage = "internal"
    for attribute in ("noinline", "nounwind"):
        function.attributes.add(attribute)
    _write(function, typ, size, loads)
    return function


def _write(function: ir.Function, typ: ir.VectorType, size: int, loads: bool) -> None:
    """The register lies in memory of the function, into which or out of which the runs are copied."""
    entry, whole, part, lane, decided, run, leave = (
        function.append_basic_block(name) for name in ("entry", "whole", "part", "lane", "decided", "run", "leave")
    )
    b: Any = ir.IRBuilder(entry)
    place, bits, *values = function.args
    word = bits.type
    kept = b.alloca(typ)
    kept.type = PTR
    b.cbranch(b.icmp_signed("==", bits, number(word, -1)), whole, part)

    b.position_at_end(whole)
    if loads:
        b.ret(b.load(place, typ=typ, align=size))
    else:
        b.store(values[0], place, align=size)
        b.ret_void()

    b.position_at_end(part)
    b.store(zero(typ) if loads else values[0], kept)
    starts = b.and_(bits, b.not_(b.shl(bits, number(word, 1))))
    scattered = b.icmp_unsigned(">", call_intrinsic(b, "ctpop", word, starts), number(word, _RUNS))
    b.cbranch(scattered, lane, decided)

    b.position_at_end(lane)  # where runs are short and many no jump is foreseen but those of a loop
    rest = b.phi(word)
    rest.add_incoming(bits, part)
    at = b.mul(_index(b, call_intrinsic(b, "cttz", word, rest, number(I1, True))), number(I64, size))
    _move(b, place, kept, at, typ.element, size, loads)
    others = b.and_(rest, b.sub(rest, number(word, 1)))
    rest.add_incoming(others, lane)
    b.cbranch(b.icmp_signed("==", others, number(word, 0)), leave, lane)

    b.position_at_end(decided)
    b.cbranch(b.icmp_signed("==", bits, number(word, 0)), leave, run)

    b.position_at_end(run)
    left = b.phi(word)
    left.add_incoming(bits, decided)
    first = call_intrinsic(b, "cttz", word, left, number(I1, True))
    behind = b.xor(b.lshr(left, first), number(word, -1))  # not zero: not all bits are set
    length = call_intrinsic(b, "cttz", word, behind, number(I1, True))
    at = b.mul(_index(b, first), number(I64, size))
    over = b.append_basic_block("over")
    lanes = typ.count // 2
    while lanes > 1:  # two pieces that may overlap: one jump that depends on the length
        copy, shorter = b.append_basic_block("copy"), b.append_basic_block("shorter")
        b.cbranch(b.icmp_unsigned(">=", length, number(word, lanes)), copy, shorter)
        b.position_at_end(copy)
        behind = b.mul(_index(b, b.sub(length, number(word, lanes))), number(I64, size))
        for start in (at, b.add(at, behind)):
            _move(b, place, kept, start, vector(typ.element, lanes), size, loads)
        b.branch(over)
        b.position_at_end(shorter)
        lanes //= 2
    _move(b, place, kept, at, typ.element, size, loads)
    b.branch(over)

    b.position_at_end(over)
    lowest = b.and_(left, b.sub(number(word, 0), left))
    following = b.and_(left, b.add(left, lowest))  # the carry clears the lowest run
    left.add_incoming(following, b.block)
    b.cbranch(b.icmp_signed("==", following, number(word, 0)), leave, run)

    b.position_at_end(leave)
    if loads:
        b.ret(b.load(kept, typ=typ))
    else:
        b.ret_void()


def _index(b: Any, value: Value) -> Value:
    return value if value.type == I64 else b.zext(value, I64)


def _move(b: Any, place: Value, kept: Value, at: Value, piece: ir.Type, size: int, loads: bool) -> None:
    """One piece from memory into the register, or the other way."""
    outside, inside = (b.gep(pointer, [at], source_etype=I8) for pointer in (place, kept))
    source, to = (outside, inside) if loads else (inside, outside)
    b.store(b.load(source, typ=piece, align=size), to, align=size)
