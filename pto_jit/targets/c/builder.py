# SPDX-License-Identifier: MIT
"""The part of LLVM's instruction builder that the shared writers use, giving C expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.dtypes import DType
from pto_jit.errors import InternalError
from pto_jit.targets.c.values import (
    ADD,
    AND,
    ATOM,
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    CHOICE,
    EQUALITY,
    MUL,
    OR,
    RELATION,
    SHIFT,
    UNARY,
    CPointer,
    CSlot,
    CValue,
    ctype_of,
    lift,
    memory_ctype,
    plus,
    register_ctype,
    times,
)
from pto_jit.targets.cpu.constants import F32, F64, I1, I64, PTR, register_type, storage_type

if TYPE_CHECKING:
    from pto_jit.targets.c.code import CCode

_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_LONG = 72  # characters from which on an expression gets a name


class CBuilder:
    """Expressions; what reads or writes memory becomes a line of the function."""

    def __init__(self, code: CCode) -> None:
        self.code = code

    # -- between memory and registers -----------------------------------------------------------------------------

    def from_memory(self, x: Any, dtype: DType) -> CValue:
        x = lift(x)
        if dtype.kind == "f" and dtype.bits == 16:
            return CValue(F32, f"pto_widened_{dtype}({x.text})")
        typ = register_type(dtype)
        return x if x.type is typ or x.type == I64 else CValue(typ, x.text, x.level, ctype=x.ctype)

    def to_memory(self, x: Any, dtype: DType) -> CValue:
        x = lift(x)
        if dtype.kind == "f" and dtype.bits == 16:
            return CValue(storage_type(dtype), f"pto_narrowed_{dtype}({x.text})", ctype="uint16_t")
        return x

    def cast(self, x: Any, source: DType, target: DType) -> CValue:
        return self.code.operations.convert(lift(x), source, target)

    def as_type(self, x: CValue, ctype: str) -> CValue:
        """`x` converted as C does it; nothing where it has the type already."""
        if x.ctype == ctype:
            return x
        types = {"float": F32, "double": F64, "bool": I1, "int64_t": I64, "uint64_t": I64}
        typ = types.get(ctype, x.type)
        return CValue(typ, f"({ctype}){x.at(UNARY)}", UNARY, ctype=ctype)

    # -- integers -------------------------------------------------------------------------------------------------

    def _polynomial(self, poly: Any) -> CValue:
        out = CValue(I64, poly=poly)
        if len(poly) == 1 and sum(map(len, *poly)) <= _LONG // 2:
            return out  # a multiple of a name or two: its text is not needed to see that it is short
        return self.code.named(out) if len(poly) > 4 or len(out.text) > _LONG else out

    def _binary(self, sign: str, level: int, x: Any, y: Any) -> CValue:
        x, y = lift(x), lift(y)
        text = f"{x.at(level)} {sign} {y.at(level + 1)}"
        if x.type in (F32, F64):
            return CValue(x.type, text, level, ctype=x.ctype)
        if x.type == I1 or x.ctype in ("int32_t", "uint32_t"):
            return CValue(x.type, text, level, ctype=x.ctype)
        if x.type == I64:
            return self.code.named(CValue(I64, text, level, ctype=x.ctype), text=text)
        return CValue(x.type, f"({x.ctype})({text})", UNARY, ctype=x.ctype)  # C computes small integers as int

    def add(self, x: Any, y: Any, flags: Any = ()) -> CValue:
        x, y = lift(x), lift(y)
        if x.type is I64:
            return self._polynomial(plus(x.poly or {}, y.poly or {}))
        return self._binary("+", ADD, x, y)

    def sub(self, x: Any, y: Any, flags: Any = ()) -> CValue:
        x, y = lift(x), lift(y)
        if x.type is I64:
            return self._polynomial(plus(x.poly or {}, y.poly or {}, -1))
        return self._binary("-", ADD, x, y)

    def mul(self, x: Any, y: Any, flags: Any = ()) -> CValue:
        x, y = lift(x), lift(y)
        if x.type is I64:
            if len(x.poly or {}) > 1 and len(y.poly or {}) > 1:
                x, y = self.code.named(x), self.code.named(y)
            return self._polynomial(times(x.poly or {}, y.poly or {}))
        return self._binary("*", MUL, x, y)

    def times(self, x: CValue, factor: int) -> CValue:
        """A 64-bit integer times a constant that is not 0."""
        return self._polynomial({m: c * factor for m, c in (x.poly or {}).items()})

    def udiv(self, x: Any, y: Any) -> CValue:
        return self._binary("/", MUL, x, y)

    def urem(self, x: Any, y: Any) -> CValue:
        return self._binary("%", MUL, x, y)

    def ashr(self, x: Any, y: Any) -> CValue:
        return self._binary(">>", SHIFT, x, y)

    def and_(self, x: Any, y: Any) -> CValue:
        x, y = lift(x), lift(y)
        if x.type == I1:
            return CValue(I1, f"{joined(x, AND)} && {joined(y, AND)}", AND)
        return self._binary("&", BIT_AND, x, y)

    def or_(self, x: Any, y: Any) -> CValue:
        x, y = lift(x), lift(y)
        if x.type == I1:
            return CValue(I1, f"{joined(x, OR)} || {joined(y, OR)}", OR)
        return self._binary("|", BIT_OR, x, y)

    def xor(self, x: Any, y: Any) -> CValue:
        x, y = lift(x), lift(y)
        if x.type == I1:
            return CValue(I1, f"{x.at(RELATION)} != {y.at(RELATION)}", EQUALITY)
        return self._binary("^", BIT_XOR, x, y)

    def not_(self, x: Any) -> CValue:
        x = lift(x)
        if x.opposite:
            return CValue(I1, x.opposite, RELATION, opposite=x.text)
        return CValue(I1, f"!{x.at(UNARY)}", UNARY)

    def select(self, condition: Any, x: Any, y: Any) -> CValue:
        condition, x, y = lift(condition), lift(x), lift(y)
        if x.type != PTR:
            y = self.as_type(y, x.ctype)
        text = f"{condition.at(OR)} ? {x.at(CHOICE)} : {y.at(CHOICE)}"
        if x.type == PTR:
            element = next((p.element for p in (x, y) if isinstance(p, CPointer) and p.element), "")
            parts = [self.code.typed(p, element).text if isinstance(p, CPointer) else f"({element} *){p.text}"
                     for p in (x, y)]  # fmt: skip
            wish = next((p.base for p in (x, y) if isinstance(p, CPointer)), "p")
            return self.code.pointer(f"{condition.at(OR)} ? {parts[0]} : {parts[1]}", element, f"{wish}_at")
        out = CValue(x.type, text, CHOICE, ctype=x.ctype)
        return self.code.named(out, text=text) if x.type == I64 else out

    # -- comparisons ----------------------------------------------------------------------------------------------

    def _compare(self, sign: str, x: CValue, y: CValue, exact: bool) -> CValue:
        level = EQUALITY if sign in ("==", "!=") else RELATION
        left, right = x.at(level + 1), y.at(level + 1)
        if exact and left == right:
            return CValue(I1, "true" if sign in ("<=", ">=", "==") else "false")
        opposite = f"{left} {_OPPOSITE[sign]} {right}" if exact else ""
        return CValue(I1, f"{left} {sign} {right}", level, opposite=opposite)

    def icmp_signed(self, sign: str, x: Any, y: Any) -> CValue:
        return self._compare(sign, lift(x), lift(y), True)

    def icmp_unsigned(self, sign: str, x: Any, y: Any) -> CValue:
        x, y = lift(x), lift(y)
        if sign not in ("==", "!=") and not x.ctype.startswith("uint") and x.type != PTR:
            kind = f"u{x.ctype}" if x.ctype.startswith("int") else x.ctype
            left, right = (f"({kind}){v.at(UNARY)}" if not v.text.isdigit() else v.text for v in (x, y))
            return CValue(I1, f"{left} {sign} {right}", RELATION, opposite=f"{left} {_OPPOSITE[sign]} {right}")
        return self._compare(sign, x, y, True)

    def fcmp_ordered(self, sign: str, x: Any, y: Any) -> CValue:
        x, y = lift(x), lift(y)
        if sign == "ord":
            return CValue(I1, f"{x.at(RELATION)} == {x.at(RELATION)}", EQUALITY)
        return self._compare(sign, x, y, False)

    def fcmp_unordered(self, sign: str, x: Any, y: Any) -> CValue:
        x, y = lift(x), lift(y)
        return self._compare("!=", x, x if sign == "uno" else y, False)

    # -- conversions ----------------------------------------------------------------------------------------------

    def _resized(self, x: Any, typ: Any, signed: bool) -> CValue:
        x = lift(x)
        if x.type == I1 or x.ctype == "bool":
            return CValue(typ, f"({ctype_of(typ)}){x.at(UNARY)}", UNARY)
        text, level = x.text, x.level
        if signed == x.ctype.startswith("u") and x.ctype != "uint64_t":  # the other way to look at the bits
            kind = x.ctype[1:] if signed else f"u{x.ctype}"
            text, level = f"({kind}){x.at(UNARY)}", UNARY
        out = ctype_of(typ)
        return CValue(typ, f"({out}){text if level >= UNARY else f'({text})'}", UNARY)

    def sext(self, x: Any, typ: Any) -> CValue:
        return self._resized(x, typ, True)

    def zext(self, x: Any, typ: Any) -> CValue:
        return self._resized(x, typ, False)

    def trunc(self, x: Any, typ: Any) -> CValue:
        x = lift(x)
        return CValue(typ, f"({ctype_of(typ)}){x.at(UNARY)}", UNARY)

    def sitofp(self, x: Any, typ: Any) -> CValue:
        return CValue(typ, f"({ctype_of(typ)}){lift(x).at(UNARY)}", UNARY)

    def bitcast(self, x: Any, typ: Any) -> CValue:
        x = lift(x)
        if x.type == F64 and typ == I64:
            return CValue(I64, f"pto_bits_f64({x.text})")
        if x.type == typ:
            return x
        raise InternalError(f"the bits of a {x.ctype} as {typ}")

    def ptrtoint(self, x: Any, typ: Any) -> CValue:
        return CValue(I64, f"(int64_t)(uintptr_t){lift(x).at(UNARY)}", UNARY)

    # -- memory ---------------------------------------------------------------------------------------------------

    def load(self, pointer: Any, typ: Any = None, align: int | None = None) -> CValue:
        if isinstance(pointer, CSlot):
            if typ == PTR:
                return CPointer(pointer.variable, pointer.holds.removesuffix(" *").replace("void", ""))
            return self.code.read(pointer.variable, typ, pointer.holds)
        assert isinstance(pointer, CPointer)
        ctype = pointer.element
        if not ctype or not _fits(ctype, typ):
            ctype = ctype_of(typ)
        return self.code.read(pointer.element_text(ctype), typ, ctype)

    def store(self, value: Any, pointer: Any, align: int | None = None) -> None:
        value = lift(value)
        if isinstance(pointer, CSlot):
            self.code.line(f"{pointer.variable} = {value.text};")
            return
        assert isinstance(pointer, CPointer)
        ctype = pointer.element if pointer.element and _fits(pointer.element, value.type) else value.ctype
        self.code.line(f"{pointer.element_text(ctype)} = {value.text};")

    def call(self, function: Any, args: Sequence[Any]) -> Any:
        return self.code.called(function, [lift(a) for a in args])


def joined(x: CValue, level: int) -> str:
    """An operand of && or ||: C compilers warn about an && inside an || without parentheses."""
    return x.text if x.level in (level, ATOM) or x.level >= BIT_OR else f"({x.text})"


def _fits(ctype: str, typ: Any) -> bool:
    """Whether elements of a C type are values of an LLVM type."""
    if typ == I1:
        return ctype == "bool"
    if typ in (F32, F64):
        return ctype == ctype_of(typ)
    if not hasattr(typ, "width"):  # half
        return ctype == "uint16_t"
    widths = {8: ("int8_t", "uint8_t", "bool"), 16: ("int16_t", "uint16_t"), 32: ("int32_t", "uint32_t"),
              64: ("int64_t", "uint64_t")}  # fmt: skip
    return ctype in widths[typ.width]


__all__ = ["CBuilder", "memory_ctype", "register_ctype"]
