# SPDX-License-Identifier: MIT
"""Values of several lanes: registers, variables, elements of tensors.

`parts` vectors of `width` lanes are computed side by side; lane k of part p is iteration `p * width + k` of a group.  A
mask is a vector of i1 per part, None when all lanes are active.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from pto_jit.dtypes import DType, i64
from pto_jit.ir.nodes import Const, Op, Operand, Var
from pto_jit.ir.types import ScalarType
from pto_jit.lower.packs import COUNT, PACK
from pto_jit.lower.scans import BEFORE, PREFIX
from pto_jit.slotted import frozen
from pto_jit.targets.cpu import access
from pto_jit.targets.cpu.constants import (
    F32,
    I1,
    I8,
    I32,
    I64,
    PTR,
    VOID,
    Index,
    Value,
    number,
    numbers,
    register_type,
    storage_type,
    vector,
    zero,
)
from pto_jit.targets.cpu.constants import i64 as as_i64
from pto_jit.targets.cpu.elementwise import from_memory, splat, to_memory
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.spmd.packing import count_packed, store_packed
from pto_jit.targets.cpu.spmd.prefixes import Prefixes
from pto_jit.targets.cpu.spmd.squares import read_squares
from pto_jit.targets.cpu.spmd.variance import Variance
from pto_jit.targets.cpu.values import Slot, Tensor
from pto_jit.targets.cpu.vector import call_intrinsic

Mask = list[Value] | None


_AHEAD = 4096
"""Bytes in front of what is read: the hardware's prefetchers begin anew with each page, and loops over several rows are
new to them oftener."""


@frozen
class Linear:
    """An index that grows by `step` from lane to lane."""

    base: Index
    step: Index


class Lanes:
    """Variables of `width * parts` lanes next to those of the function around, which hold what is uniform."""

    def __init__(self, w: FunctionWriter, variance: Variance, width: int, parts: int) -> None:
        self.w = w
        self.code = w.code
        self.variance = variance
        self.width = width
        self.parts = parts
        self.mask: Mask = None
        self.phase: Value | None = None  # of the squares that the loop being written reads
        self.streams = False  # whole vectors are stored past the caches, to aligned addresses
        self.values: dict[str, list[Value] | Linear] = {}
        self.slots: dict[str, list[Value]] = {}
        self.prefixes = Prefixes(w, width)

    @property
    def count(self) -> int:
        return self.width * self.parts

    # -- masks ------------------------------------------------------------------------------------------------------

    def both(self, x: Mask, y: Mask) -> Mask:
        if x is None or y is None:
            return x if y is None else y
        return [self.code.b.and_(p, q) for p, q in zip(x, y, strict=True)]

    def without(self, x: Mask, y: list[Value]) -> list[Value]:
        """The lanes of x that are not in y."""
        inverse = [self.code.b.xor(q, number(vector(I1, self.width), True)) for q in y]
        if x is None:
            return inverse
        return [self.code.b.and_(p, q) for p, q in zip(x, inverse, strict=True)]

    def full(self, mask: Mask) -> list[Value]:
        """A mask as vectors."""
        return [number(vector(I1, self.width), True)] * self.parts if mask is None else mask

    def any(self, mask: Mask) -> bool | Value:
        """Whether a lane is in a mask."""
        if mask is None:
            return True
        b = self.code.b
        joint = mask[0]
        for part in mask[1:]:
            joint = b.or_(joint, part)
        bits = ir.IntType(self.width)
        return b.icmp_unsigned("!=", b.bitcast(joint, bits), number(bits, 0))

    def first(self, rest: Index) -> list[Value]:
        """The mask of the first `rest` lanes (any number)."""
        b = self.code.b
        left = b.trunc(as_i64(self.code.min(rest, self.count)), I32)
        typ = vector(I32, self.width)
        many = splat(b, left, self.width)
        return [
            b.icmp_signed("<", _numbers(typ, range(p * self.width, (p + 1) * self.width)), many)
            for p in range(self.parts)
        ]

    def mask_slots(self) -> list[Value]:
        """Memory for a mask (which becomes registers)."""
        return [self.code.alloca(self._mask_memory(), "mask") for _ in range(self.parts)]

    @property
    def _mask_bits(self) -> int:
        """Bits per lane of a mask that is kept: one where masks have registers of their own, else as wide as the lanes,
        as comparisons give them."""
        here = self.w.module.host.width
        return 1 if here == 64 else 8 * min(8, max(1, here // self.width))

    def _wide_mask(self) -> ir.Type:
        return vector(ir.IntType(self._mask_bits), self.width)

    def _mask_memory(self) -> ir.Type:
        bits = self._mask_bits
        return self._wide_mask() if self.width == 1 or bits == 1 else vector(F32, self.width * bits // 32)

    def save_mask(self, mask: Mask, slots: Sequence[Value]) -> None:
        for part, slot in zip(self.full(mask), slots, strict=True):
            self._save_part(self._widened(part), slot)

    def narrow_mask(self, slots: Sequence[Value], conditions: Sequence[list[Value]]) -> None:
        """Leave the lanes in a mask in memory for which all conditions hold."""
        for p, slot in enumerate(slots):
            mask = self._load_part(slot)
            for cond in conditions:
                mask = self.code.b.and_(mask, self._widened(cond[p]))
            self._save_part(mask, slot)

    def load_mask(self, slots: Sequence[Value]) -> list[Value]:
        raw = list(map(self._load_part, slots))
        if raw[0].type == vector(I1, self.width):
            return raw
        return [self.code.b.icmp_signed("<", r, zero(r.type)) for r in raw]

    def _widened(self, mask: Value) -> Value:
        wide = self._wide_mask()
        return mask if mask.type == wide else self.code.b.sext(mask, wide)

    def _load_part(self, slot: Value) -> Value:
        typ, wide = self._mask_memory(), self._wide_mask()
        part = self.code.b.load(slot, typ=typ)
        return part if typ == wide else self.code.b.bitcast(part, wide)

    def _save_part(self, part: Value, slot: Value) -> None:
        b, typ = self.code.b, self._mask_memory()
        if typ != part.type:  # the optimiser would keep a bit per lane, of which numbers are made again and again
            part = call_intrinsic(b, "arithmetic.fence", typ, b.bitcast(part, typ))
        b.store(part, slot)

    # -- variables ------------------------------------------------------------------------------------------------

    def varies(self, operand: Operand) -> bool:
        return isinstance(operand, Var) and operand.name in self.variance.varying

    def vectors(self, operand: Operand) -> list[Value]:
        """An operand in every lane."""
        assert isinstance(operand.type, ScalarType)
        typ = vector(register_type(operand.type.dtype), self.width)
        if isinstance(operand, Const):
            return [number(typ, operand.value)] * self.parts
        if operand.name not in self.variance.varying:
            return [splat(self.code.b, self.w.scalar(operand), self.width)] * self.parts
        slots = self.slots.get(operand.name)
        if slots is not None:
            return [self.code.b.load(s, typ=typ) for s in slots]
        value = self.values[operand.name]
        return self._spread(value) if isinstance(value, Linear) else value

    def _spread(self, value: Linear) -> list[Value]:
        b = self.code.b
        typ = vector(I64, self.width)
        out = []
        if isinstance(value.step, int):
            base = splat(b, as_i64(value.base), self.width)
            for p in range(self.parts):
                lanes = [value.step * (p * self.width + k) for k in range(self.width)]
                out.append(b.add(base, _numbers(typ, lanes)))
            return out
        step = splat(b, value.step, self.width)
        base = splat(b, as_i64(value.base), self.width)
        for p in range(self.parts):
            lanes = _numbers(typ, range(p * self.width, (p + 1) * self.width))
            out.append(b.add(base, b.mul(step, lanes)))
        return out

    def index(self, operand: Operand) -> Index | Linear | list[Value]:
        """An i64 operand in its simplest form."""
        if not self.varies(operand):
            return self.w.index(operand)
        assert isinstance(operand, Var)
        return self.vectors(operand) if operand.name in self.slots else self.values[operand.name]

    def declare(self, var: Var) -> None:
        """Memory for a variable that is not a value (which becomes registers)."""
        assert isinstance(var.type, ScalarType)
        typ = register_type(var.type.dtype)
        if var.name in self.variance.varying:
            if var.name not in self.slots:
                self.slots[var.name] = [self.code.alloca(vector(typ, self.width), var.name) for _ in range(self.parts)]
        elif not isinstance(self.w.env.get(var.name), Slot):
            self.w.env[var.name] = Slot(var.type.dtype, self.code.alloca(typ, var.name))

    def assign(self, var: Var, value: list[Value] | Linear, mask: Mask) -> None:
        """Give a varying variable its value in the lanes of a mask."""
        if var.name not in self.variance.form.slots:
            self.values[var.name] = value
            return
        if isinstance(value, Linear):
            value = self._spread(value)
        self.declare(var)
        b = self.code.b
        for k, (v, slot) in enumerate(zip(value, self.slots[var.name], strict=True)):
            if mask is not None:
                v = b.select(mask[k], v, b.load(slot, typ=v.type))
            b.store(v, slot)

    def move(self, target: Var, source: Operand, mask: Mask) -> None:
        """Copy an operand (perhaps a variable without a value yet) into a variable in the lanes of a mask."""
        if isinstance(source, Var) and source.name in self.variance.form.slots:
            self.declare(source)
        if target.name in self.variance.varying:
            self.assign(target, self.vectors(source), mask)
        else:
            self.w.define(target, self.w.scalar(source))

    # -- operations -------------------------------------------------------------------------------------------------

    def operate(self, op: Op, masked: bool) -> None:
        """One operation in the active lanes."""
        if op.op == "setelem":
            self._setelem(op)
            return
        if op.op in (PACK, COUNT):
            (store_packed if op.op == PACK else count_packed)(self, op)
            return
        if op.op not in (PREFIX, BEFORE) and not any(self.varies(a) for a in op.args):
            self.w.op(op)
            result = op.results[0]
            if result.name in self.variance.varying:  # not for all lanes
                value = self.w.env.pop(result.name)
                typ = register_type(result.type.dtype)  # pyright: ignore[reportAttributeAccessIssue]
                value = self.code.b.load(value.pointer, typ=typ) if isinstance(value, Slot) else as_i64(value)
                self.assign(result, [splat(self.code.b, value, self.width)] * self.parts, self.mask if masked else None)
            return
        if op.op == "getelem":
            value = self._getelem(op)
        elif op.op in (PREFIX, BEFORE):
            value = self.prefixes.apply(op, self.vectors(op.args[0]))
        else:
            value = self._linear(op)
            if value is None:
                value = self._elementwise(op)
        self.assign(op.results[0], value, self.mask if masked else None)

    def _elementwise(self, op: Op) -> list[Value]:
        data = op.args[1] if op.op in ("select", "rand_at", "randn_at") else op.args[0]
        result = op.results[0].type
        assert isinstance(data.type, ScalarType) and isinstance(result, ScalarType)
        each = [self.vectors(a) for a in op.args]
        return [
            self.w.ops.apply(op.op, [a[p] for a in each], data.type.dtype, dict(op.attrs), result.dtype)
            for p in range(self.parts)
        ]

    def _linear(self, op: Op) -> Linear | None:
        """Index arithmetic that stays linear in the lane."""
        if op.op not in ("add", "sub", "mul", "copy") or op.results[0].type != ScalarType(i64):
            return None
        if op.args[0].type != ScalarType(i64) or op.results[0].name in self.variance.form.slots:
            return None
        pairs: list[Linear] = []
        for a in op.args:
            value = self.index(a)
            if isinstance(value, list):
                return None
            pairs.append(value if isinstance(value, Linear) else Linear(value, 0))
        wrapping = self.code.wrapping  # linear modulo 2**64, as the numbers themselves are
        if op.op == "copy":
            return pairs[0]
        x, y = pairs
        if op.op in ("add", "sub"):
            return Linear(wrapping(op.op, x.base, y.base), wrapping(op.op, x.step, y.step))
        for factor, other in ((x, y), (y, x)):
            if isinstance(factor.base, int) and isinstance(factor.step, int) and factor.step == 0:
                return Linear(wrapping("mul", other.base, factor.base), wrapping("mul", other.step, factor.base))
        return None

    # -- elements -------------------------------------------------------------------------------------------------

    def _distance(self, tensor: Tensor, indices: Sequence[Operand]) -> tuple[Linear, list[list[Value]]]:
        """Where elements lie, in bytes: a linear part, and terms per part that are not linear."""
        code = self.code
        base: Index = 0
        step: Index = 0
        terms: list[list[Value]] = []
        for operand, stride in zip(indices, tensor.strides, strict=True):
            at = self.index(operand)
            if isinstance(at, Linear):
                base = code.wrapping("add", base, code.wrapping("mul", at.base, stride))
                step = code.wrapping("add", step, code.wrapping("mul", at.step, stride))
            elif isinstance(at, list):
                if isinstance(stride, int):
                    many: Value = number(vector(I64, self.width), stride)
                else:
                    many = splat(code.b, stride, self.width)
                terms.append([code.b.mul(v, many) for v in at])
            else:
                base = code.wrapping("add", base, code.wrapping("mul", at, stride))
        return Linear(base, step), terms

    def _pointers(self, tensor: Tensor, distance: Linear, terms: list[list[Value]]) -> list[Value]:
        b = self.code.b
        offsets = self._spread(distance)
        out = []
        for p, total in enumerate(offsets):
            for term in terms:
                total = b.add(total, term[p])
            pointers = b.gep(tensor.pointer, [total], source_etype=I8)
            pointers.type = vector(PTR, self.width)
            out.append(pointers)
        return out

    def _part(self, tensor: Tensor, distance: Linear, p: int) -> Value:
        """The address of the first element of a part, for consecutive elements."""
        # lanes that are not active may be anywhere
        at = self.code.wrapping("add", distance.base, p * self.width * tensor.dtype.bytes)
        return self.code.offset(tensor.pointer, at, inbounds=False)

    def consecutive(self, tensor: Tensor, indices: Sequence[Operand]) -> Value | None:
        """The address of the first of consecutive elements; None where they lie apart."""
        distance, terms = self._distance(tensor, indices)
        if terms or not isinstance(distance.step, int) or distance.step != tensor.dtype.bytes:
            return None
        return self._part(tensor, distance, 0)

    def _getelem(self, op: Op) -> list[Value]:
        tensor = self.w.tensor(op.args[0])
        distance, terms = self._distance(tensor, op.args[1:])
        dtype = tensor.dtype
        if not terms and isinstance(distance.step, int) and distance.step == dtype.bytes:
            if self.streams:
                self._prefetch(tensor, distance)
            raw = [
                access.load(self.code, self._part(tensor, distance, p), dtype, self.width,
                            None if self.mask is None else self.mask[p])
                for p in range(self.parts)
            ]  # fmt: skip
        elif self.phase is not None and id(op) in self.variance.squares:
            column = self.w.index(op.args[-1])
            masks = [None] * self.parts if self.mask is None else self.mask

            def rows() -> list[Value]:
                return self._pointers(tensor, distance, terms)

            raw = read_squares(self.code, tensor, self.width, rows, masks, column, self.phase)
        else:
            raw = [
                self._gather(pointers, dtype, None if self.mask is None else self.mask[p])
                for p, pointers in enumerate(self._pointers(tensor, distance, terms))
            ]
        return [from_memory(self.code.b, r, dtype) for r in raw]

    def _prefetch(self, tensor: Tensor, distance: Linear) -> None:
        """Fetch what will be read soon, in a loop that streams."""
        for p in range(self.parts):
            at = self.code.offset(self._part(tensor, distance, p), _AHEAD, inbounds=False)
            self.code.call("llvm.prefetch.p0", VOID, [at, number(I32, 0), number(I32, 3), number(I32, 1)])

    def _gather(self, pointers: Value, dtype: DType, mask: Value | None) -> Value:
        b = self.code.b
        element = storage_type(dtype)
        typ = vector(element, self.width)
        if self.width == 1:
            assert mask is None
            return b.load(pointers, typ=typ, align=dtype.bytes)
        if self.w.module.host.width == 64 and dtype.bits >= 32:
            every = number(vector(I1, self.width), True) if mask is None else mask
            align = number(I32, dtype.bytes)
            return call_intrinsic(
                b, "masked.gather", typ, pointers, align, every, zero(typ), overloads=(typ, pointers.type)
            )
        if mask is not None:  # a lane that is not active reads a place that can be read
            spare = self.code.alloca(I64, "spare")
            b.store(number(I64, 0), spare)
            many = b.insert_element(ir.Constant(pointers.type, ir.Undefined), spare, number(I32, 0))
            many = b.shuffle_vector(
                many, ir.Constant(pointers.type, ir.Undefined), ir.Constant(vector(I32, self.width), None)
            )
            pointers = b.select(mask, pointers, many)
        out: Value = ir.Constant(typ, ir.Undefined)
        for k in range(self.width):
            address = b.extract_element(pointers, number(I32, k))
            out = b.insert_element(out, b.load(address, typ=element, align=dtype.bytes), number(I32, k))
        return out

    def _setelem(self, op: Op) -> None:
        value, target, *indices = op.args
        if not any(self.varies(a) for a in (value, *indices)):
            self.w.op(op)
            return
        tensor = self.w.tensor(target)
        dtype = tensor.dtype
        distance, terms = self._distance(tensor, indices)
        values = [to_memory(self.code.b, v, dtype) for v in self.vectors(value)]
        if not terms and isinstance(distance.step, int) and distance.step == dtype.bytes:
            for p, v in enumerate(values):
                mask = None if self.mask is None else self.mask[p]
                stream = self.w.module.host.width if self.streams else 0
                access.save(self.code, self._part(tensor, distance, p), v, dtype, mask, stream)
            return
        for p, pointers in enumerate(self._pointers(tensor, distance, terms)):
            if self.width == 1:
                assert self.mask is None
                self.code.b.store(values[p], pointers, align=dtype.bytes)
                continue
            call_intrinsic(
                self.code.b, "masked.scatter", VOID, values[p], pointers, number(I32, dtype.bytes),
                self.full(self.mask)[p], overloads=(values[p].type, pointers.type),
            )  # fmt: skip


def _numbers(typ: ir.Type, values: Sequence[int]) -> Value:
    """A constant vector; of one lane the number itself."""
    if not isinstance(typ, ir.VectorType):
        return number(typ, values[0])
    if len(values) == 1:
        return number(typ.element, values[0])
    return numbers(typ.element, tuple(values))
