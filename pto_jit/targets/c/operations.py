# SPDX-License-Identifier: MIT
"""Elementwise operations as C expressions of `pto_elements.h` names; vector math as functions written from recipes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pto_jit.dtypes import DType, f32, f64, i64
from pto_jit.targets.c.recipes import CRecipes
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
    UNARY,
    CValue,
    lift,
    memory_ctype,
    register_ctype,
)
from pto_jit.targets.cpu.constants import I1, I64, register_type
from pto_jit.targets.vecmath import RECIPES

_COMPARE = {"eq": ("==", EQUALITY), "ne": ("!=", EQUALITY), "lt": ("<", RELATION), "le": ("<=", RELATION),
            "gt": (">", RELATION), "ge": (">=", RELATION)}  # fmt: skip
_SIGNS = {"add": ("+", ADD), "sub": ("-", ADD), "mul": ("*", MUL)}
_EXTREMES = {"maximum": "max", "minimum": "min"}
_BITS = {"and": ("&", BIT_AND), "or": ("|", BIT_OR), "xor": ("^", BIT_XOR)}
_BOOLS = {"and": ("&&", AND), "or": ("||", OR), "xor": ("!=", EQUALITY)}
_FLOATS = {"abs": "fabs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint",
           "fma": "fma"}  # fmt: skip


class Operations:
    """`apply` as the CPU target's `Elementwise` has it, on C values."""

    def __init__(self, code: Any, recipes: CRecipes) -> None:
        self.code = code
        self.recipes = recipes

    def apply(self, op: str, args: Sequence[Any], dtype: DType, attrs: dict[str, Any], result: DType) -> CValue:
        """`op` on operands of `dtype` (the type of the first data operand), giving `result`."""
        op = _EXTREMES.get(op, op)
        values = [lift(a) for a in args]
        if op == "copy":
            return values[0]
        if op == "cast":
            return self.convert(values[0], dtype, result)
        if op == "select":
            text = f"{values[0].at(OR)} ? {self._in(values[1], dtype)} : {self._in(values[2], dtype)}"
            return self._made(result, text, CHOICE)
        if op in ("rand_at", "randn_at"):
            counter = self.convert(values[1], dtype, i64)
            if op == "randn_at":  # which is written with log1p and cos
                self.recipes.call("log1p", "f64", ("0",))
                self.recipes.call("cos", "f64", ("0",))
                self.recipes.normal = True
            return self._made(f32, f"pto_{op[:-3]}({values[0].text}, {counter.text})", ATOM)
        values = [self._as(v, dtype) for v in values]
        if op == "bitcast":
            return self._bitcast(values[0], dtype, result)
        b = self.code.b
        if op in _COMPARE:
            sign, level = _COMPARE[op]
            known = _decided(op, values, dtype)
            if known is not None:
                return CValue(I1, "true" if known else "false")
            if dtype.kind in "iu":
                return (b.icmp_signed if dtype.kind == "i" else b.icmp_unsigned)(sign, *values)
            if dtype.kind == "b" and level == RELATION:
                x, y = values if op in ("gt", "ge") else values[::-1]
                joint, joined = ("&&", AND) if op in ("lt", "gt") else ("||", OR)
                return CValue(I1, f"{x.at(BIT_OR)} {joint} !{y.at(UNARY)}", joined)
            return CValue(I1, f"{values[0].at(level + 1)} {sign} {values[1].at(level + 1)}", level)
        if dtype.kind == "f":
            return self._float(op, values, dtype, attrs, result)
        if dtype.kind == "b":
            return self._bool(op, values, result)
        return self._integer(op, values, dtype, result)

    def _made(self, dtype: DType, text: str, level: int) -> CValue:
        typ, ctype = register_type(dtype), register_ctype(dtype)
        if typ is I64:
            value = CValue(I64, text, level, ctype=ctype)
            return self.code.named(value, text=text) if level < UNARY else value
        return CValue(typ, text, level, ctype=ctype)

    def _as(self, x: CValue, dtype: DType) -> CValue:
        """An operand with the C type of its dtype: variables of the shared writers have lost the sign."""
        wanted = register_ctype(dtype)
        if x.ctype == wanted or dtype.kind != "u":
            return x
        return CValue(x.type, f"({wanted}){x.at(UNARY)}", UNARY, ctype=wanted)

    def _in(self, x: CValue, dtype: DType) -> str:
        return self._as(x, dtype).at(CHOICE)

    def _bitcast(self, x: CValue, source: DType, target: DType) -> CValue:
        raw = self.code.b.to_memory(x, source)
        out = CValue(register_type(target), f"pto_bitcast_{source}_{target}({raw.text})", ctype=memory_ctype(target))
        self.recipes.bitcasts.add((source.name, target.name))
        return self.code.b.from_memory(out, target)

    # -- conversions ----------------------------------------------------------------------------------------------

    def convert(self, x: CValue, source: DType, target: DType) -> CValue:
        """NumPy's conversions; floats saturate to integers and NaN gives 0."""
        if source == target:
            return x
        x = self._as(x, source)
        to = register_ctype(target)
        if target.kind == "b":
            return CValue(I1, f"{x.at(RELATION)} != 0", EQUALITY)
        if target.kind == "f" and target.bits == 16:
            wide = "_f64" if source == f64 else ""
            value = x.text if source.kind == "f" else f"(float){x.at(UNARY)}"
            return self._made(target, f"pto_rounded_{target}{wide}({value})", ATOM)
        if source.kind == "f" and target.kind != "f":
            from_ = "f64" if source == f64 else "f32"
            return self._made(target, f"pto_saturated_{target}_{from_}({x.text})", ATOM)
        if x.ctype == to:
            return CValue(register_type(target), x.text, x.level, ctype=to)
        return self._made(target, f"({to}){x.at(UNARY)}", UNARY)

    # -- floats ---------------------------------------------------------------------------------------------------

    def _float(self, op: str, a: Sequence[CValue], dtype: DType, attrs: dict[str, Any], result: DType) -> CValue:
        if op in _SIGNS:
            sign, level = _SIGNS[op]
            return self._made(result, f"{a[0].at(level)} {sign} {a[1].at(level + 1)}", level)
        name = "f64" if dtype == f64 else "f32"
        texts = [x.text for x in a]
        arguments = ", ".join(texts)
        if op == "div":
            return self._made(result, f"{a[0].at(MUL)} / {a[1].at(MUL + 1)}", MUL)
        if op == "neg":
            text = a[0].at(UNARY)
            return self._made(result, f"-({text})" if text.startswith("-") else f"-{text}", UNARY)
        if op == "square":
            return self._made(result, f"pto_square_{name}({arguments})", ATOM)
        if op in _FLOATS:
            return self._made(result, f"{_FLOATS[op]}{'' if name == 'f64' else 'f'}({arguments})", ATOM)
        if op in ("isnan", "isinf", "isfinite"):
            if op == "isnan":
                return CValue(I1, f"{a[0].at(RELATION)} != {a[0].at(RELATION)}", EQUALITY)
            sign, level = ("==", EQUALITY) if op == "isinf" else ("<", RELATION)
            return CValue(I1, f"fabs{'' if name == 'f64' else 'f'}({arguments}) {sign} INFINITY", level)
        if op in ("max", "min", "relu", "sign"):
            return self._made(result, f"pto_{op}_{name}({arguments})", ATOM)
        if op in ("floordiv", "mod"):
            rest = self.recipes.call("fmod", name, texts)
            return self._made(result, f"pto_{op}_{name}({arguments}, {rest})", ATOM)
        if op == "gelu":
            op = "gelu_tanh" if attrs.get("approximate") == "tanh" else "gelu"
        if op not in RECIPES:
            raise KeyError(op)
        return self._made(result, self.recipes.call(op, name, texts), ATOM)

    # -- bools and integers ---------------------------------------------------------------------------------------

    def _bool(self, op: str, a: Sequence[CValue], result: DType) -> CValue:
        if op in _BOOLS:
            sign, level = _BOOLS[op]
            inside = RELATION if level == EQUALITY else BIT_OR
            return CValue(I1, f"{a[0].at(inside)} {sign} {a[1].at(inside)}", level)
        if op == "not":
            return CValue(I1, f"!{a[0].at(UNARY)}", UNARY)
        raise KeyError(f"{op} on bool")

    def _integer(self, op: str, a: Sequence[CValue], dtype: DType, result: DType) -> CValue:
        b = self.code.b
        ctype = register_ctype(dtype)
        if op in ("add", "sub", "mul") and ctype != "uint64_t":
            return getattr(b, op)(*a)
        if op in _SIGNS or op in _BITS:
            sign, level = {**_SIGNS, **_BITS}[op]
            text = f"{a[0].at(level)} {sign} {a[1].at(level + 1)}"
            if dtype.bits >= 32:
                return self._made(dtype, text, level)
            return self._made(dtype, f"({ctype})({text})", UNARY)
        if op == "not":
            text = f"~{a[0].at(UNARY)}"
            return self._made(dtype, text if dtype.bits >= 32 else f"({ctype})({text})", UNARY)
        if op == "neg":
            text = f"-{a[0].at(UNARY)}".replace("--", "-(-") + (")" if a[0].at(UNARY).startswith("-") else "")
            return self._made(dtype, text if dtype.bits >= 32 else f"({ctype})({text})", UNARY)
        known = ("square", "abs", "relu", "sign", "max", "min", "shl", "shr", "floordiv", "mod", "fmod", "pow")
        if op not in known:
            raise KeyError(f"{op} on {dtype}")
        if op in ("max", "min") and dtype == i64:
            return CValue(I64, f"pto_{op}({a[0].text}, {a[1].text})")
        return self._made(dtype, f"pto_{op}_{dtype}({', '.join(x.text for x in a)})", ATOM)


_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_CONSTANT = re.compile(r"(?:\(u?int\d+_t\))?(-?\d+)u?(?:ll)?")


def _decided(op: str, values: Sequence[CValue], dtype: DType) -> bool | None:
    """What every element of integers gives where it is compared with a limit of its type; compilers warn about that."""
    if dtype.kind not in "iu" or op not in _MIRRORED:
        return None
    unsigned = dtype.kind == "u"
    low, high = (0, 2**dtype.bits - 1) if unsigned else (-(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1)
    for way, limit in ((op, values[1]), (_MIRRORED[op], values[0])):
        found = _CONSTANT.fullmatch(limit.text)
        if found is None:
            continue
        number = int(found[1]) % 2**dtype.bits if unsigned else int(found[1])
        if number == (low if way in ("lt", "ge") else high):
            return way in ("ge", "le")
    return None
