# SPDX-License-Identifier: MIT
"""Conversions between the element types, in LLVM IR.

In registers a bool is an `i1`; bf16 is its bit pattern in an `i16`; f16 is `half`.
"""

from __future__ import annotations

from llvmlite import ir

from pto_jit.dtypes import DType
from pto_jit.targets.cpu.vector import IrValue, TargetModule, call_intrinsic, lane_count, lane_type, splat, vector_of

_I1, _I16, _I32 = ir.IntType(1), ir.IntType(16), ir.IntType(32)


def register_type(dtype: DType, width: int) -> ir.Type:
    """How `width` lanes of `dtype` are held in registers."""
    return vector_of(_register_element(dtype), width)


def _register_element(dtype: DType) -> ir.Type:
    match dtype.name:
        case "bool_":
            return _I1
        case "f16":
            return ir.HalfType()
        case "f32":
            return ir.FloatType()
        case "f64":
            return ir.DoubleType()
        case _:
            return ir.IntType(dtype.bits)


def convert(builder: ir.IRBuilder, value: IrValue, source: DType, target: DType) -> IrValue:
    """A cast between any two dtypes, of vectors and scalars in their register form.

    Float to integer saturates and NaN gives 0; integer to integer wraps; anything to bool asks whether it is not
    zero (NaN is true); the rest rounds to nearest even, once (to bf16: from f64 and integers by way of f32, as
    `ml_dtypes` does).  NaN stays NaN.
    """
    width = lane_count(value.type)
    if source.name == target.name:
        return value
    if target.name == "bool_":
        return _is_nonzero(builder, value, source)
    if source.name == "bool_":
        if target.bits == 16 and target.is_float:
            one = 0x3F80 if target.name == "bf16" else 0x3C00
            bits = builder.select(value, splat(_I16, width, one), splat(_I16, width, 0))
            return bits if target.name == "bf16" else builder.bitcast(bits, vector_of(ir.HalfType(), width))
        one, zero = (splat(_register_element(target), width, number) for number in (1, 0))
        return builder.select(value, one, zero)
    if target.is_integer:
        if source.is_integer:
            return _resize(builder, value, source, target)
        if source.bits == 16:
            value = to_f32(builder, value, source)
        return _saturated(builder, value, 53 if source.bits == 64 else 24, target)
    if source.is_integer:
        wide = register_type(target, width) if target.bits > 16 else vector_of(ir.FloatType(), width)
        value = builder.sitofp(value, wide) if source.is_signed else builder.uitofp(value, wide)
        return value if target.bits > 16 else from_f32(builder, value, target)
    if target.name == "f64":
        if source.bits == 16:
            value = to_f32(builder, value, source)
        return builder.fpext(value, register_type(target, width))
    if source.name == "f64":
        if target.name == "f16":
            return from_f32(builder, _f64_to_f32_odd(builder, value), target)
        value = builder.fptrunc(value, vector_of(ir.FloatType(), width))
        return value if target.name == "f32" else from_f32(builder, value, target)
    if source.bits == 16:
        value = to_f32(builder, value, source)
    return value if target.name == "f32" else from_f32(builder, value, target)


def _saturated(builder: ir.IRBuilder, value: IrValue, digits: int, target: DType) -> IrValue:
    """f32 or f64 lanes (of so many binary digits) as integers.

    Not by LLVM's own saturating conversions: they take vectors apart.
    """
    width, floats = lane_count(value.type), lane_type(value.type)
    bits, signed = target.bits, target.is_signed
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    wide = ir.IntType(max(bits, 32))

    def truncated(x: IrValue) -> IrValue:
        whole = builder.fptosi if signed or bits < 32 else builder.fptoui
        return whole(x, vector_of(wide, width))

    least = splat(floats, width, float(low))
    if signed and bits == 64:  # nothing waits for the comparisons
        known = builder.select(builder.fcmp_ordered(">=", value, splat(floats, width, float(high + 1))),
                               splat(wide, width, high), truncated(value))  # fmt: skip
        unknown = builder.select(builder.fcmp_unordered("uno", value, value), splat(wide, width, 0),
                                 splat(wide, width, low))  # fmt: skip
        return builder.select(builder.fcmp_ordered(">=", value, least), known, unknown)
    if signed:
        value = builder.select(builder.fcmp_unordered("uno", value, value), splat(floats, width, 0.0), value)
        below = builder.fcmp_ordered("<", value, least)
    else:
        below = builder.fcmp_unordered("<=", value, least)  # or NaN
    value = builder.select(below, least, value)
    if bits - signed <= digits:  # the highest integer is a float
        most = splat(floats, width, float(high))
        value = builder.select(builder.fcmp_ordered(">", value, most), most, value)
        whole = truncated(value)
        return whole if bits == wide.width else builder.trunc(whole, vector_of(ir.IntType(bits), width))
    above = builder.fcmp_ordered(">=", value, splat(floats, width, float(high + 1)))
    return builder.select(above, splat(wide, width, high), truncated(value))


def fitting(builder: ir.IRBuilder, value: IrValue, target: DType) -> IrValue:
    """f32 or f64 lanes that fit in a signed integer unless they are NaN, which gives 0."""
    width = lane_count(value.type)
    wrong = builder.fcmp_unordered("uno", value, value)
    whole = builder.fptosi(value, register_type(target, width))
    return builder.select(wrong, splat(_register_element(target), width, 0), whole)


def as_index(builder: ir.IRBuilder, value: IrValue) -> IrValue:
    """One f32 or f64 as an i64.

    Saturating as `convert` does, by a jump that is nearly never taken: nothing else of a scalar loop waits for it.
    """
    typ, limit = ir.IntType(64), ir.Constant(value.type, 2.0**63)
    whole = builder.fptosi(value, typ)
    inside = builder.fcmp_ordered("<", call_intrinsic(builder, "fabs", value.type, value), limit)
    before, beside, after = builder.block, builder.append_basic_block("limit"), builder.append_basic_block("limited")
    branch = builder.cbranch(inside, after, beside)
    branch.set_weights([2000, 1])
    builder.position_at_end(beside)
    positive = builder.fcmp_ordered(">", value, ir.Constant(value.type, 0.0))
    end = builder.select(positive, ir.Constant(typ, 2**63 - 1), ir.Constant(typ, -(2**63)))
    end = builder.select(builder.fcmp_unordered("uno", value, value), ir.Constant(typ, 0), end)
    builder.branch(after)
    builder.position_at_end(after)
    result = builder.phi(typ)
    result.add_incoming(whole, before)
    result.add_incoming(end, beside)
    return result


def _resize(builder: ir.IRBuilder, value: IrValue, source: DType, target: DType) -> IrValue:
    if source.bits == target.bits:
        return value
    result = register_type(target, lane_count(value.type))
    if source.bits > target.bits:
        return builder.trunc(value, result)
    return builder.sext(value, result) if source.is_signed else builder.zext(value, result)


def _is_nonzero(builder: ir.IRBuilder, value: IrValue, source: DType) -> IrValue:
    width = lane_count(value.type)
    if source.name == "bf16":
        value = builder.and_(value, splat(ir.IntType(16), width, 0x7FFF))
    elif source.name == "f16":
        bits = builder.bitcast(value, vector_of(ir.IntType(16), width))
        value = builder.and_(bits, splat(ir.IntType(16), width, 0x7FFF))
    elif source.is_float:
        return builder.fcmp_unordered("!=", value, splat(_register_element(source), width, 0.0))
    return builder.icmp_unsigned("!=", value, splat(lane_type(value.type), width, 0))


def to_f32(builder: ir.IRBuilder, value: IrValue, source: DType) -> IrValue:
    """f16 (`half`) or bf16 (`i16`) lanes as f32, exactly."""
    width = lane_count(value.type)
    single = vector_of(ir.FloatType(), width)
    if source.name == "f16":
        return builder.fpext(value, single) if _converts_half(builder) else _half_to_f32(builder, value)
    bits = builder.zext(value, vector_of(_I32, width))
    return builder.bitcast(builder.shl(bits, splat(_I32, width, 16)), single)


def from_f32(builder: ir.IRBuilder, value: IrValue, target: DType) -> IrValue:
    """f32 lanes rounded to nearest even f16 (`half`) or bf16 (`i16`); a NaN keeps its sign and becomes quiet."""
    width = lane_count(value.type)
    if target.name == "f16":
        if not _converts_half(builder):
            return _f32_to_half(builder, value)
        return builder.fptrunc(value, vector_of(ir.HalfType(), width))

    def constant(number: int) -> ir.Constant:
        return splat(_I32, width, number)

    bits = builder.bitcast(value, vector_of(_I32, width))
    upper = builder.lshr(bits, constant(16))
    rounding = builder.add(builder.and_(upper, constant(1)), constant(0x7FFF))
    rounded = builder.lshr(builder.add(bits, rounding), constant(16))
    quiet = builder.or_(upper, constant(0x40))
    nan = builder.fcmp_unordered("uno", value, value)
    return builder.trunc(builder.select(nan, quiet, rounded), vector_of(ir.IntType(16), width))


def _half_to_f32(builder: ir.IRBuilder, value: IrValue) -> IrValue:
    """f16 lanes as f32 without an instruction for it.

    With its exponent and mantissa in the places of f32, the number is too small by the difference of the biases; one
    multiplication mends that and normalises the subnormal ones.
    """
    width = lane_count(value.type)
    single, word = vector_of(ir.FloatType(), width), vector_of(_I32, width)

    def constant(number: int) -> ir.Constant:
        return splat(_I32, width, number)

    half = builder.zext(builder.bitcast(value, vector_of(_I16, width)), word)
    magnitude = builder.shl(builder.and_(half, constant(0x7FFF)), constant(13))
    scaled = builder.fmul(builder.bitcast(magnitude, single), splat(ir.FloatType(), width, 2.0**112))
    bits = builder.bitcast(scaled, word)
    special = builder.icmp_unsigned(">=", magnitude, constant(0x7C00 << 13))
    bits = builder.or_(bits, builder.select(special, constant(0x7F800000), constant(0)))
    nan = builder.icmp_unsigned(">", magnitude, constant(0x7C00 << 13))
    bits = builder.or_(bits, builder.select(nan, constant(1 << 22), constant(0)))  # a quiet one
    sign = builder.shl(builder.and_(half, constant(0x8000)), constant(16))
    return builder.bitcast(builder.or_(bits, sign), single)


def _f32_to_half(builder: ir.IRBuilder, value: IrValue) -> IrValue:
    """f32 lanes rounded to nearest even f16 without an instruction for it.

    Normal results round by an addition to the bits; for subnormal ones the adder of f32 does it, next to 0.5, whose
    last bit is worth as much as theirs.
    """
    width = lane_count(value.type)
    single, word = vector_of(ir.FloatType(), width), vector_of(_I32, width)

    def constant(number: int) -> ir.Constant:
        return splat(_I32, width, number)

    bits = builder.bitcast(value, word)
    magnitude = builder.and_(bits, constant(0x7FFFFFFF))
    upper = builder.lshr(magnitude, constant(13))
    rounding = builder.add(builder.and_(upper, constant(1)), constant(0xFFF - (112 << 23)))
    normal = builder.lshr(builder.add(magnitude, rounding), constant(13))
    near_half = builder.fadd(builder.bitcast(magnitude, single), splat(ir.FloatType(), width, 0.5))
    tiny = builder.sub(builder.bitcast(near_half, word), constant(0x3F000000))
    nan = builder.or_(builder.and_(upper, constant(0x3FF)), constant(0x7E00))
    result = builder.select(builder.icmp_unsigned("<", magnitude, constant(113 << 23)), tiny, normal)
    result = builder.select(builder.icmp_unsigned(">=", magnitude, constant(143 << 23)), constant(0x7C00), result)
    result = builder.select(builder.icmp_unsigned(">", magnitude, constant(0x7F800000)), nan, result)
    result = builder.or_(result, builder.and_(builder.lshr(bits, constant(16)), constant(0x8000)))
    return builder.bitcast(builder.trunc(result, vector_of(_I16, width)), vector_of(ir.HalfType(), width))


def _f64_to_f32_odd(builder: ir.IRBuilder, value: IrValue) -> IrValue:
    """f64 lanes as f32 rounded to odd, so that a second rounding to a shorter type is the only one that counts.

    The method of Boldo and Melquiond, "When double rounding is odd" (2005): truncate, then set the last bit when
    anything was cut off.
    """
    width = lane_count(value.type)
    single, word = vector_of(ir.FloatType(), width), vector_of(_I32, width)
    nearest = builder.fptrunc(value, single)
    back = builder.fpext(nearest, value.type)
    outward = builder.fcmp_ordered(
        ">", call_intrinsic(builder, "fabs", value.type, back), call_intrinsic(builder, "fabs", value.type, value)
    )
    bits = builder.bitcast(nearest, word)
    bits = builder.sub(bits, builder.zext(outward, word))
    bits = builder.or_(bits, builder.zext(builder.fcmp_ordered("!=", back, value), word))
    return builder.bitcast(bits, single)


def _converts_half(builder: ir.IRBuilder) -> bool:
    module = builder.module
    return module.half if isinstance(module, TargetModule) else True
