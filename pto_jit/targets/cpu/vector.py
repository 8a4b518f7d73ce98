# SPDX-License-Identifier: MIT
"""The vector math's `Emitter` over LLVM IR.

A value of `width` lanes is an LLVM vector (`<16 x float>`), of width 1 a plain scalar.
"""

from __future__ import annotations

import ctypes
import hashlib
import struct
from collections.abc import Callable, Sequence
from typing import Any, Literal

from llvmlite import ir

from pto_jit.targets.vecmath.emitter import Int, Mask, Value, ldexp_by_parts

IrValue = Any  # `ir.Value`; llvmlite has no annotations, and what can be inferred of it is wrong

_I1, _I32 = ir.IntType(1), ir.IntType(32)


def vector_of(element: ir.Type, width: int) -> ir.Type:
    """The type of `width` lanes of `element`."""
    return element if width == 1 else ir.VectorType(element, width)


def splat(element: ir.Type, width: int, value: Any) -> ir.Constant:
    """`value` (a number in the element's own representation) in every lane."""
    if isinstance(element, ir.IntType):
        value = int(value) & ((1 << element.width) - 1)
    scalar = ir.Constant(element, value)
    return scalar if width == 1 else ir.Constant(ir.VectorType(element, width), [scalar] * width)


class TargetModule(ir.Module):
    """A module for a processor of which the conversions must know one thing.

    `half`: it converts f16 by itself.  (LLVM would call functions that are not there on every system, element by
    element; `conversions` computes with the bits instead.)
    """

    def __init__(self, name: str, *, half: bool, context: ir.Context | None = None) -> None:
        super().__init__(name, context=context or ir.Context())
        self.half = half
        self.lines: Any = None  # `lines.Lines` when places are kept


def lane_count(type_: ir.Type) -> int:
    """1 for a scalar type."""
    return type_.count if isinstance(type_, ir.VectorType) else 1


def lane_type(type_: ir.Type) -> ir.Type:
    """The element type of a vector type; a scalar type as it is."""
    return type_.element if isinstance(type_, ir.VectorType) else type_


def call_intrinsic(
    builder: ir.IRBuilder, name: str, result: ir.Type, *arguments: IrValue, overloads: Sequence[ir.Type] | None = None
) -> IrValue:
    """Call `llvm.NAME`, its name mangled with `overloads` (by default the result type)."""
    types = (result,) if overloads is None else overloads
    full = ".".join(["llvm", name, *map(_mangled, types)])
    declared = builder.module.globals.get(full)
    if declared is None:
        declared = ir.Function(builder.module, ir.FunctionType(result, [a.type for a in arguments]), full)
    return builder.call(declared, arguments)


def round_to_f32(value: float) -> float:
    """The nearest f32 (infinity beyond the range), as a Python float."""
    return ctypes.c_float(value).value


def _mangled(type_: ir.Type) -> str:
    if isinstance(type_, ir.VectorType):
        return f"v{type_.count}{_mangled(type_.element)}"
    if isinstance(type_, ir.IntType):
        return f"i{type_.width}"
    if isinstance(type_, ir.PointerType):
        return "p0"
    return {ir.HalfType: "f16", ir.FloatType: "f32", ir.DoubleType: "f64"}[type(type_)]


class VectorEmitter:
    """The `Emitter` protocol over an `ir.IRBuilder`.

    `scalef`: the CPU has AVX-512F and AVX-512VL, whose `vscalef` is then used in vectors of 128, 256 or 512 bits; the
    results are the same without it.  Wider vectors than the CPU's are legal: LLVM splits them.
    `slow_path` becomes a branch around a call of a cold function; the builder's block changes there, so a caller
    that builds phis reads `builder.block` afterwards.
    """

    __slots__ = ("_float", "_int", "_mask", "builder", "dtype", "scalef", "width")

    def __init__(
        self, builder: ir.IRBuilder, dtype: Literal["f32", "f64"], width: int, *, scalef: bool = False
    ) -> None:
        self.builder = builder
        self.dtype: Literal["f32", "f64"] = dtype
        self.width = width
        self.scalef = scalef
        self._float = vector_of(ir.FloatType() if dtype == "f32" else ir.DoubleType(), width)
        self._int = vector_of(ir.IntType(32 if dtype == "f32" else 64), width)
        self._mask = vector_of(_I1, width)

    # Constants.
    def const(self, value: float) -> Value:
        if self.dtype == "f32":
            value = round_to_f32(value)
        return splat(lane_type(self._float), self.width, value)

    def iconst(self, value: int) -> Int:
        return splat(lane_type(self._int), self.width, value)

    # Float arithmetic.
    def add(self, x: Value, y: Value) -> Value:
        return self.builder.fadd(x, y)

    def sub(self, x: Value, y: Value) -> Value:
        return self.builder.fsub(x, y)

    def mul(self, x: Value, y: Value) -> Value:
        return self.builder.fmul(x, y)

    def div(self, x: Value, y: Value) -> Value:
        return self.builder.fdiv(x, y)

    ratio = div

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        return call_intrinsic(self.builder, "fma", self._float, x, y, z)

    def neg(self, x: Value) -> Value:
        return self.builder.fneg(x)

    def abs(self, x: Value) -> Value:
        return call_intrinsic(self.builder, "fabs", self._float, x)

    def sqrt(self, x: Value) -> Value:
        return call_intrinsic(self.builder, "sqrt", self._float, x)

    def min(self, x: Value, y: Value) -> Value:
        return self.builder.select(self.builder.fcmp_ordered("<", x, y), x, y)

    def max(self, x: Value, y: Value) -> Value:
        return self.builder.select(self.builder.fcmp_ordered(">", x, y), x, y)

    def copysign(self, magnitude: Value, sign: Value) -> Value:
        return call_intrinsic(self.builder, "copysign", self._float, magnitude, sign)

    def round_even(self, x: Value) -> Value:
        return call_intrinsic(self.builder, "roundeven", self._float, x)

    def floor(self, x: Value) -> Value:
        return call_intrinsic(self.builder, "floor", self._float, x)

    def trunc(self, x: Value) -> Value:
        return call_intrinsic(self.builder, "trunc", self._float, x)

    @property
    def masks_ldexp(self) -> bool:
        return self.scalef and self._bits in (128, 256, 512)

    @property
    def _bits(self) -> int:
        return self.width * (32 if self.dtype == "f32" else 64)

    def ldexp(self, x: Value, n: Value, kept: Mask | None = None) -> Value:
        if not self.masks_ldexp:
            return ldexp_by_parts(self, x, n)
        name = f"x86.avx512.mask.scalef.{'ps' if self.dtype == 'f32' else 'pd'}.{self._bits}"
        arguments = [x, n, ir.Constant(self._float, None), self._mask_bits(kept)]
        if self._bits == 512:
            arguments.append(ir.Constant(_I32, 4))  # the rounding mode in force
        return call_intrinsic(self.builder, name, self._float, *arguments, overloads=())

    def _mask_bits(self, mask: Mask | None) -> Value:
        """The mask as the integer that instructions take, of 8 bits at least; all ones for None."""
        bits = ir.IntType(max(self.width, 8))
        if mask is None:
            return ir.Constant(bits, (1 << bits.width) - 1)
        if self.width < bits.width:
            which = ir.Constant(ir.VectorType(_I32, bits.width), [*range(self.width), *[self.width] * (8 - self.width)])
            mask = self.builder.shuffle_vector(mask, ir.Constant(self._mask, None), which)
        return self.builder.bitcast(mask, bits)

    # Comparisons.
    def lt(self, x: Value, y: Value) -> Mask:
        return self.builder.fcmp_ordered("<", x, y)

    def le(self, x: Value, y: Value) -> Mask:
        return self.builder.fcmp_ordered("<=", x, y)

    def gt(self, x: Value, y: Value) -> Mask:
        return self.builder.fcmp_ordered(">", x, y)

    def ge(self, x: Value, y: Value) -> Mask:
        return self.builder.fcmp_ordered(">=", x, y)

    def eq(self, x: Value, y: Value) -> Mask:
        return self.builder.fcmp_ordered("==", x, y)

    def ne(self, x: Value, y: Value) -> Mask:
        return self.builder.fcmp_unordered("!=", x, y)

    # Masks.
    def mask_and(self, p: Mask, q: Mask) -> Mask:
        return self.builder.and_(p, q)

    def mask_or(self, p: Mask, q: Mask) -> Mask:
        return self.builder.or_(p, q)

    def mask_not(self, p: Mask) -> Mask:
        return self.builder.xor(p, splat(_I1, self.width, 1))

    def select(self, mask: Mask, x: Any, y: Any) -> Any:
        return self.builder.select(mask, x, y)

    def aside(self, value: Value, exceptions: Callable[[], Mask], whole: Callable[[], Value]) -> Value | None:
        if self.width > 1:
            return None
        builder = self.builder
        mask = exceptions()
        before = builder.block
        seldom = builder.append_basic_block("vecmath.seldom")
        after = builder.append_basic_block("vecmath.join")
        builder.cbranch(mask, seldom, after).set_weights([1, 2000])
        builder.position_at_end(seldom)
        other = whole()
        last = builder.block
        builder.branch(after)
        builder.position_at_end(after)
        result = builder.phi(self._float)
        result.add_incoming(value, before)
        result.add_incoming(other, last)
        return result

    # Integers.
    def bits(self, x: Value) -> Int:
        return self.builder.bitcast(x, self._int)

    def from_bits(self, i: Int) -> Value:
        return self.builder.bitcast(i, self._float)

    def iadd(self, i: Int, j: Int) -> Int:
        return self.builder.add(i, j)

    def isub(self, i: Int, j: Int) -> Int:
        return self.builder.sub(i, j)

    def iand(self, i: Int, j: Int) -> Int:
        return self.builder.and_(i, j)

    def ior(self, i: Int, j: Int) -> Int:
        return self.builder.or_(i, j)

    def ixor(self, i: Int, j: Int) -> Int:
        return self.builder.xor(i, j)

    def shl(self, i: Int, count: int) -> Int:
        return self.builder.shl(i, self.iconst(count))

    def lshr(self, i: Int, count: int) -> Int:
        return self.builder.lshr(i, self.iconst(count))

    def ashr(self, i: Int, count: int) -> Int:
        return self.builder.ashr(i, self.iconst(count))

    def ieq(self, i: Int, j: Int) -> Mask:
        return self.builder.icmp_signed("==", i, j)

    def ilt(self, i: Int, j: Int) -> Mask:
        return self.builder.icmp_signed("<", i, j)

    # Conversions.
    def to_float(self, i: Int) -> Value:
        return self.builder.sitofp(i, self._float)

    # Structure.
    def lookup(self, table: Sequence[float], index: Int) -> Value:
        builder = self.builder
        base = self._constant_table(tuple(table))
        element = lane_type(self._float)
        if self.width == 1:
            return builder.load(builder.gep(base, [index], inbounds=True, source_etype=element), typ=element)
        result = ir.Constant(self._float, ir.Undefined)
        for lane in range(self.width):
            at = ir.Constant(_I32, lane)
            address = builder.gep(base, [builder.extract_element(index, at)], inbounds=True, source_etype=element)
            result = builder.insert_element(result, builder.load(address, typ=element), at)
        return result

    def _constant_table(self, table: tuple[float, ...]) -> IrValue:
        """An internal constant array, one per module and content."""
        module = self.builder.module
        content = hashlib.sha256(struct.pack(f"<{len(table)}d", *table)).hexdigest()[:16]
        name = f"vecmath.table.{self.dtype}.{content}"
        known = module.globals.get(name)
        if known is not None:
            return known
        element = lane_type(self._float)
        values = [round_to_f32(value) if self.dtype == "f32" else value for value in table]
        array = ir.Constant(ir.ArrayType(element, len(values)), [ir.Constant(element, value) for value in values])
        variable: Any = ir.GlobalVariable(module, array.type, name)
        variable.initializer = array
        variable.global_constant = True
        variable.linkage = "internal"
        variable.unnamed_addr = True
        return variable

    def repeat(self, times: int, body: Callable[..., tuple[Value, ...]], *state: Value) -> tuple[Value, ...]:
        builder = self.builder
        entry = builder.block
        loop = builder.append_basic_block("vecmath.repeat")
        after = builder.append_basic_block("vecmath.repeated")
        builder.branch(loop)
        builder.position_at_end(loop)
        index = builder.phi(_I32)
        index.add_incoming(ir.Constant(_I32, 0), entry)
        carried = [builder.phi(value.type) for value in state]
        for phi, value in zip(carried, state, strict=True):
            phi.add_incoming(value, entry)
        following = body(self, *carried)
        advanced = builder.add(index, ir.Constant(_I32, 1))
        index.add_incoming(advanced, builder.block)
        for phi, value in zip(carried, following, strict=True):
            phi.add_incoming(value, builder.block)
        builder.cbranch(builder.icmp_signed("<", advanced, ir.Constant(_I32, times)), loop, after)
        builder.position_at_end(after)
        return following

    def slow_path(self, mask: Mask, slow: Callable[..., Value], operands: tuple[Value, ...], fast: Value) -> Value:
        builder = self.builder
        function = self._slow_function(slow, len(operands))
        needed = (
            mask
            if self.width == 1
            else builder.icmp_unsigned(
                "!=", builder.bitcast(mask, ir.IntType(self.width)), ir.Constant(ir.IntType(self.width), 0)
            )
        )
        before = builder.block
        cold = builder.append_basic_block("vecmath.slow")
        after = builder.append_basic_block("vecmath.join")
        branch = builder.cbranch(needed, cold, after)
        branch.set_weights([1, 2000])
        builder.position_at_end(cold)
        blended = builder.select(mask, builder.call(function, list(operands)), fast)
        builder.branch(after)
        builder.position_at_end(after)
        result = builder.phi(self._float)
        result.add_incoming(fast, before)
        result.add_incoming(blended, cold)
        return result

    def _slow_function(self, slow: Callable[..., Value], arity: int) -> ir.Function:
        """`slow` as a cold function of the module, made on its first use."""
        module = self.builder.module
        name = f"vecmath.{slow.__name__}.{self.dtype}.{self.width}"
        known = module.globals.get(name)
        if known is not None:
            return known
        function = ir.Function(module, ir.FunctionType(self._float, [self._float] * arity), name)
        function.linkage = "internal"
        for attribute in ("cold", "noinline", "nounwind"):
            function.attributes.add(attribute)
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        inner = VectorEmitter(builder, self.dtype, self.width, scalef=self.scalef)
        builder.ret(slow(inner, *function.args))
        return function
