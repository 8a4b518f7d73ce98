# SPDX-License-Identifier: MIT
"""Vector pieces of LLVM IR that every generator here uses: masks, masked memory, broadcasts, prefetches."""

from __future__ import annotations

from pto_jit.targets.cpu.matmul.irtext import I64, PTR, Function, Value, vector


def lane_mask(f: Function, bits: Value, lanes: int) -> Value:
    """The low bits of an i64 as a vector of i1."""
    narrow = f.emit(f"i{lanes}", f"trunc i64 {bits.ref} to i{lanes}") if lanes < 64 else bits
    return f.emit(vector(lanes, "i1"), f"bitcast i{lanes} {narrow.ref} to {vector(lanes, 'i1')}")


def masked_load(f: Function, type_: str, pointer: Value, mask: Value) -> Value:
    """Lanes outside the mask are zero and not touched in memory."""
    name = f"llvm.masked.load.{mangled(type_)}.p0"
    f.module.declare(name, f"declare {type_} @{name}(ptr, {mask.type}, {type_})")
    return f.emit(
        type_, f"call {type_} @{name}(ptr align 1 {pointer.ref}, {mask.type} {mask.ref}, {type_} zeroinitializer)"
    )


def masked_store(f: Function, value: Value, pointer: Value, mask: Value) -> None:
    """Lanes outside the mask are not touched."""
    name = f"llvm.masked.store.{mangled(value.type)}.p0"
    f.module.declare(name, f"declare void @{name}({value.type}, ptr, {mask.type})")
    f.line(f"call void @{name}({value.type} {value.ref}, ptr align 1 {pointer.ref}, {mask.type} {mask.ref})")


def mangled(type_: str) -> str:
    """``<16 x float>`` as it stands in the names of intrinsics: ``v16f32``."""
    short = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16"}
    if type_.startswith("<"):
        count, _, element = type_[1:-1].split()
        return f"v{count}{short.get(element, element)}"
    return short.get(type_, type_)


def splat(f: Function, scalar: Value, lanes: int) -> Value:
    """A scalar in every lane."""
    type_ = vector(lanes, scalar.type)
    one = f.emit(type_, f"insertelement {type_} poison, {scalar.type} {scalar.ref}, i64 0")
    return f.emit(type_, f"shufflevector {type_} {one.ref}, {type_} poison, <{lanes} x i32> zeroinitializer")


def low_bits(f: Function, count: Value, lanes: int) -> Value:
    """An i64 with the low ``count`` bits set, 0 <= count <= lanes <= 64."""
    some = f.emit(I64, f"shl nsw i64 -1, {count.ref}")
    some = f.emit(I64, f"xor i64 {some.ref}, -1")
    return f.select(count >= lanes, -1, some)


def clamp(f: Function, count: Value, lanes: int) -> Value:
    """Bring a count into 0 .. lanes."""
    return f.maximum(f.minimum(count, lanes), 0)


def prefetch(f: Function, at: Value, *, write: bool = False, level: int = 1) -> None:
    """Ask for a line that will be used soon, to be near in the cache of that level; never faults."""
    f.module.declare("llvm.prefetch.p0", "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    f.line(f"call void @llvm.prefetch.p0(ptr {at.ref}, i32 {int(write)}, i32 {4 - level}, i32 1)")


def opaque(f: Function, pointer: Value) -> Value:
    """The same pointer as if it came from elsewhere: no instruction, but its sums and loads stay behind this place."""
    return f.emit(PTR, f'call ptr asm "", "=r,0"(ptr {pointer.ref})')
