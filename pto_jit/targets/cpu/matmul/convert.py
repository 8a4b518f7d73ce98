# SPDX-License-Identifier: MIT
"""Vector loads of source elements, whole or partial, and their conversion to packed elements."""

from __future__ import annotations

from pto_jit.targets.cpu.matmul.irtext import I64, PTR, Function, Module, Value, vector
from pto_jit.targets.cpu.matmul.shape import INTEGERS, SIZES, STORAGE, Machine
from pto_jit.targets.cpu.matmul.vectors import lane_mask, low_bits, mangled, masked_load


def read(f: Function, machine: Machine, dtype: str, lanes: int, at: Value, count: Value | None = None) -> Value:
    """``lanes`` elements at ``at``; only the first ``count`` (0 .. lanes) are touched, the others are zero."""
    bits = f"i{8 * SIZES[dtype]}"
    type_ = vector(lanes, bits)
    if count is None:
        raw = f.load(type_, at)
    elif machine.masks and lanes & (lanes - 1) == 0:
        raw = masked_load(f, type_, at, lane_mask(f, low_bits(f, count, lanes), lanes))
    else:
        raw = f.call(_partial(f.module, type_, bits, lanes, SIZES[dtype]), type_, [at, count])
    return _as_storage(f, dtype, raw, lanes)


def _as_storage(f: Function, dtype: str, raw: Value, lanes: int) -> Value:
    storage = vector(lanes, STORAGE[dtype])
    return raw if raw.type == storage else f.emit(storage, f"bitcast {raw.type} {raw.ref} to {storage}")


def _partial(module: Module, type_: str, bits: str, lanes: int, size: int) -> str:
    """A function that reads part of a vector element by element, for machines without masks."""
    name = f"partial_{mangled(type_)}"
    if name not in module.functions:
        f = module.function(name, type_, [(PTR, "at"), (I64, "count")], hot=False)
        at, count = f.parameters
        room = f.alloca(max(64, 2 * lanes * size))
        f.store(Value(f, type_, "zeroinitializer"), room)
        with f.loop(0, count) as loop:
            f.store(f.load(bits, f.offset(at, loop.index * size)), f.offset(room, loop.index * size))
        f.give(f.load(type_, room))
    return name


def converted(f: Function, machine: Machine, dtype: str, packed: str, value: Value) -> Value:
    """Source elements as packed elements; a scalar or a vector."""
    if STORAGE[dtype] == packed:
        return value
    target = shaped(value, packed)
    if dtype in INTEGERS:
        narrow = SIZES[dtype] * 8 > int(packed[1:])
        op = "trunc" if narrow else "sext" if dtype.startswith("i") else "zext"
        return f.emit(target, f"{op} {value.type} {value.ref} to {target}")
    single = shaped(value, "float")
    if dtype == "bf16":
        word = shaped(value, "i32")
        wide = f.emit(word, f"zext {value.type} {value.ref} to {word}")
        value = f.emit(single, f"bitcast {word} {_shifted(f, wide, 16).ref} to {single}")
    elif dtype == "f16":
        if machine.half:
            value = f.emit(single, f"fpext {value.type} {value.ref} to {single}")
        else:
            value = _half_by_bits(f, value)
    if packed == "double":
        value = f.emit(target, f"fpext {value.type} {value.ref} to {target}")
    return value


def shaped(value: Value, element: str) -> str:
    """The type of value with another element type."""
    return f"<{value.type[1:-1].split()[0]} x {element}>" if value.type.startswith("<") else element


def _constant(type_: str, text: str) -> str:
    if not type_.startswith("<"):
        return text
    element = type_[1:-1].split()[2]
    return f"splat ({element} {text})"


def _shifted(f: Function, value: Value, amount: int) -> Value:
    return f.emit(value.type, f"shl {value.type} {value.ref}, {_constant(value.type, str(amount))}")


def _half_by_bits(f: Function, value: Value) -> Value:
    """f16 to f32 in integer arithmetic and one exact multiplication by 2**112 (subnormals come out right)."""
    short, word, single = shaped(value, "i16"), shaped(value, "i32"), shaped(value, "float")
    bits = f.emit(short, f"bitcast {value.type} {value.ref} to {short}")
    bits = f.emit(word, f"zext {short} {bits.ref} to {word}")
    size = f.emit(word, f"and {word} {bits.ref}, {_constant(word, str(0x7FFF))}")
    sign = _shifted(f, f.emit(word, f"and {word} {bits.ref}, {_constant(word, str(0x8000))}"), 16)
    moved = _shifted(f, size, 13)
    moved = f.emit(single, f"bitcast {word} {moved.ref} to {single}")
    scaled = f.emit(single, f"fmul {single} {moved.ref}, {_constant(single, '0x46F0000000000000')}")
    scaled = f.emit(word, f"bitcast {single} {scaled.ref} to {word}")
    test = shaped(value, "i1")
    special = f.emit(test, f"icmp uge {word} {size.ref}, {_constant(word, str(0x7C00))}")
    infinite = f.emit(word, f"or {word} {scaled.ref}, {_constant(word, str(0x7F800000))}")
    chosen = f.emit(word, f"select {test} {special.ref}, {word} {infinite.ref}, {word} {scaled.ref}")
    signed = f.emit(word, f"or {word} {chosen.ref}, {sign.ref}")
    return f.emit(single, f"bitcast {word} {signed.ref} to {single}")
