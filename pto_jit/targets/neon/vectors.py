# SPDX-License-Identifier: MIT
"""Elementwise operations on vectors of 16 bytes: floats (those of 16 bits in memory alone), integers, truth values.

Everything in a loop has elements of one width, so that every vector has the same number of lanes.  Truth values
are masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pto_jit.dtypes import DType
from pto_jit.targets.neon.recipes import Names
from pto_jit.targets.vecmath import RECIPES

_BOTH = {"add": "vaddq", "sub": "vsubq", "mul": "vmulq"}
_FLOATS = {
    "div": "vdivq_{k}({0}, {1})", "neg": "vnegq_{k}({0})", "abs": "vabsq_{k}({0})", "sqrt": "vsqrtq_{k}({0})",
    "square": "vmulq_{k}({0}, {0})", "fma": "vfmaq_{k}({2}, {0}, {1})", "floor": "vrndmq_{k}({0})",
    "ceil": "vrndpq_{k}({0})", "trunc": "vrndq_{k}({0})", "round": "vrndnq_{k}({0})", "max": "pto_max_{v}({0}, {1})",
    "min": "pto_min_{v}({0}, {1})", "relu": "pto_relu_{v}({0})", "sign": "pto_sign_{v}({0})",
    "isnan": "pto_isnan_{v}({0})", "isinf": "vceqq_{k}(vabsq_{k}({0}), vdupq_n_{k}(INFINITY))",
    "isfinite": "vcltq_{k}(vabsq_{k}({0}), vdupq_n_{k}(INFINITY))",
}  # fmt: skip
_INTEGERS = {"and": "vandq", "or": "vorrq", "xor": "veorq"}
_COMPARE = {"eq": "vceqq", "lt": "vcltq", "le": "vcleq", "gt": "vcgtq", "ge": "vcgeq"}
_SCALAR_ONLY = ("pow", "fmod", "atan2")  # whose loops differ from lane to lane, or that few kernels use
_TYPES = {"f": "float", "s": "int", "u": "uint"}


def width(dtype: DType) -> int:
    """Bits of an element in a register: 16-bit floats are computed with as f32."""
    return 32 if dtype.kind == "f" and dtype.bits == 16 else dtype.bits


def common_width(dtypes: Iterable[DType]) -> int | None:
    """The width of all elements, truth values apart, which are as wide as the others; None where there are several."""
    widths = {width(d) for d in dtypes if d.kind != "b"}
    return 8 if not widths else widths.pop() if len(widths) == 1 else None


class Vectors:
    """Vectors whose elements have `bits` bits."""

    def __init__(self, bits: int, recipes: Names) -> None:
        self.bits = bits
        self.lanes = 128 // bits
        self.recipes = recipes
        self.kinds = {"f": f"f{bits}", "i": f"s{bits}", "u": f"u{bits}", "b": f"u{bits}"}

    def kind(self, dtype: DType) -> str:
        """What the names of intrinsics end with: f32, s8, u64; truth values are masks."""
        return self.kinds[dtype.kind]

    def suffix(self, dtype: DType) -> str:
        """What the names of `pto_neon.h` end with, such as f32x4."""
        return f"{self.kind(dtype)}x{self.lanes}"

    def type(self, dtype: DType) -> str:
        kind = self.kind(dtype)
        return f"{_TYPES[kind[0]]}{self.bits}x{self.lanes}_t"

    def splat(self, dtype: DType, text: str) -> str:
        """A number in all lanes."""
        if dtype.kind == "b":
            return f"vdupq_n_u{self.bits}({text} ? (uint{self.bits}_t)-1 : 0)"
        return f"vdupq_n_{self.kind(dtype)}({text})"

    # -- memory ---------------------------------------------------------------------------------------------------

    def in_memory(self, dtype: DType) -> bool:
        """Whether neighbours in memory are a vector."""
        return dtype.kind != "b" or self.bits == 8

    def load(self, dtype: DType, place: str) -> str:
        if dtype.kind == "f" and dtype.bits == 16:
            return f"pto_load_{dtype}x4({place})"
        if dtype.kind == "b":
            return f"pto_load_boolx16({place})"
        return f"vld1q_{self.kind(dtype)}({place})"

    def store(self, dtype: DType, place: str, value: str) -> str:
        if dtype.kind == "f" and dtype.bits == 16:
            return f"pto_store_{dtype}x4({place}, {value})"
        if dtype.kind == "b":
            return f"pto_store_boolx16({place}, {value})"
        return f"vst1q_{self.kind(dtype)}({place}, {value})"

    def indices(self, dtype: DType, first: str) -> str | None:
        """`first`, `first` + 1 and so on."""
        if dtype.kind == "b" or self.bits < 32 or dtype.bits == 16:
            return None
        text = f"pto_indices_s{self.bits}x{self.lanes}({first})"
        signed = f"s{self.bits}"
        if dtype.kind == "f":
            return f"vcvtq_{self.kind(dtype)}_{signed}({text})"
        return text if dtype.kind == "i" else f"vreinterpretq_u{self.bits}_{signed}({text})"

    # -- operations -----------------------------------------------------------------------------------------------

    def apply(self, op: str, a: Sequence[str], dtype: DType, attrs: dict[str, Any], result: DType) -> str | None:
        """`op` as an expression of intrinsics; None where there is none: then the loop is written for one element."""
        op = {"maximum": "max", "minimum": "min"}.get(op, op)
        kind = self.kind(dtype)
        if op == "copy":
            return a[0]
        if op == "cast":
            return self._cast(a[0], dtype, result)
        if op == "select":
            return f"vbslq_{kind}({', '.join(a)})"
        if dtype.kind == "b":
            return self._not(a[0], kind) if op == "not" else f"{_INTEGERS[op]}_{kind}({', '.join(a)})" if (
                op in _INTEGERS) else None  # fmt: skip
        if op in _COMPARE:
            return f"{_COMPARE[op]}_{kind}({', '.join(a)})"
        if op == "ne":
            return self._not(f"vceqq_{kind}({', '.join(a)})", f"u{self.bits}")
        if op in _BOTH and not (op == "mul" and dtype.kind != "f" and self.bits == 64):
            return f"{_BOTH[op]}_{kind}({', '.join(a)})"
        return self._float(op, a, dtype, attrs) if dtype.kind == "f" else self._integer(op, a, kind)

    def _float(self, op: str, a: Sequence[str], dtype: DType, attrs: dict[str, Any]) -> str | None:
        if op in _FLOATS:
            return _FLOATS[op].format(*a, k=self.kind(dtype), v=self.suffix(dtype))
        if op == "gelu":
            op = "gelu_tanh" if attrs.get("approximate") == "tanh" else "gelu"
        if op not in RECIPES or op in _SCALAR_ONLY:
            return None
        return self.recipes.call(op, a, "f32" if self.bits == 32 else "f64")

    def _integer(self, op: str, a: Sequence[str], kind: str) -> str | None:
        if op in ("max", "min"):
            name = f"v{op}q_{kind}" if self.bits < 64 else f"pto_{op}_{kind}x{self.lanes}"
            return f"{name}({', '.join(a)})"
        if op in _INTEGERS:
            return f"{_INTEGERS[op]}_{kind}({', '.join(a)})"
        if op == "not":
            return self._not(a[0], kind)
        if op == "square" and self.bits < 64:
            return f"vmulq_{kind}({a[0]}, {a[0]})"
        return f"v{op}q_{kind}({a[0]})" if op in ("neg", "abs") and kind[0] == "s" else None

    def _not(self, x: str, kind: str) -> str:
        return f"vmvnq_{kind}({x})" if self.bits < 64 else f"pto_not_{kind}x2({x})"

    def _cast(self, x: str, source: DType, target: DType) -> str | None:
        """Conversions that keep the width; floats saturate and NaN gives 0, as the instructions do."""
        if source == target or (source.bits == 16 and source.kind == "f" and target.name == "f32"):
            return x
        if {source.kind, target.kind} & {"b"} or (target.kind == "f" and target.bits == 16):
            return None
        to, of = self.kind(target), self.kind(source)
        if "f" in (source.kind, target.kind):
            return f"vcvtq_{to}_{of}({x})" if source.kind != target.kind else None
        return f"vreinterpretq_{to}_{of}({x})"

    # -- reductions -----------------------------------------------------------------------------------------------

    def fold(self, op: str, dtype: DType, x: str, y: str) -> str | None:
        """One step of a reduction, lane by lane."""
        if dtype.kind == "b":
            return None
        name = {"sum": "add", "prod": "mul", "any": "or", "all": "and"}.get(op, op)
        return self.apply(name, (x, y), dtype, {}, dtype)

    def reduced(self, op: str, dtype: DType, x: str) -> str | None:
        """The lanes as one number; None where that is not written with vectors."""
        kind = self.kind(dtype)
        if dtype.kind == "b" or op not in ("sum", "prod", "max", "min"):
            return None
        if dtype.kind == "f":
            name = {"sum": "pto_sum", "prod": "pto_prod", "max": "pto_lanes_max", "min": "pto_lanes_min"}[op]
            return f"{name}_{self.suffix(dtype)}({x})"
        if op == "prod":
            return None
        if op == "sum":
            return f"vaddvq_{kind}({x})"
        return f"v{op}vq_{kind}({x})" if self.bits < 64 else f"pto_lanes_{op}_{kind}x{self.lanes}({x})"
