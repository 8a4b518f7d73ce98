# SPDX-License-Identifier: MIT
"""Elementwise operations on four lanes: f32 (16-bit floats in memory too), i32, u32, and masks for truth values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pto_jit.dtypes import DType
from pto_jit.targets.neon.recipes import NeonRecipes
from pto_jit.targets.vecmath import RECIPES

LANES = 4
_KINDS = {"f16": "f32", "bf16": "f32", "f32": "f32", "i32": "s32", "u32": "u32", "bool_": "u32"}
_TYPES = {"f16": "float32x4_t", "bf16": "float32x4_t", "f32": "float32x4_t", "i32": "int32x4_t", "u32": "uint32x4_t",
          "bool_": "uint32x4_t"}  # fmt: skip
_BOTH = {"add": "vaddq", "sub": "vsubq", "mul": "vmulq"}
_FLOATS = {
    "div": "vdivq_f32({}, {})", "neg": "vnegq_f32({})", "abs": "vabsq_f32({})", "sqrt": "vsqrtq_f32({})",
    "square": "vmulq_f32({0}, {0})", "fma": "vfmaq_f32({2}, {0}, {1})", "floor": "vrndmq_f32({})",
    "ceil": "vrndpq_f32({})", "trunc": "vrndq_f32({})", "round": "vrndnq_f32({})", "max": "pto_max_f32x4({}, {})",
    "min": "pto_min_f32x4({}, {})", "relu": "pto_relu_f32x4({})", "sign": "pto_sign_f32x4({})",
    "isnan": "pto_isnan_f32x4({})", "isinf": "vceqq_f32(vabsq_f32({}), vdupq_n_f32(INFINITY))",
    "isfinite": "vcltq_f32(vabsq_f32({}), vdupq_n_f32(INFINITY))",
}  # fmt: skip
_INTEGERS = {"max": "vmaxq", "min": "vminq", "and": "vandq", "or": "vorrq", "xor": "veorq", "not": "vmvnq"}
_MASKS = {"and": "vandq_u32({}, {})", "or": "vorrq_u32({}, {})", "xor": "veorq_u32({}, {})", "not": "vmvnq_u32({})"}
_COMPARE = {"eq": "vceqq", "lt": "vcltq", "le": "vcleq", "gt": "vcgtq", "ge": "vcgeq"}
_SCALAR_ONLY = ("pow", "fmod", "atan2")  # whose loops differ from lane to lane, or that few kernels use


def supported(dtype: DType) -> bool:
    return dtype.name in _KINDS


def vector_type(dtype: DType) -> str:
    return _TYPES[dtype.name]


def splat(dtype: DType, text: str) -> str:
    """A number in all lanes."""
    if dtype.kind == "b":
        return f"vdupq_n_u32({text} ? 0xffffffffu : 0)"
    return f"vdupq_n_{_KINDS[dtype.name]}({text})"


def load(dtype: DType, place: str) -> str:
    if dtype.kind == "f" and dtype.bits == 16:
        return f"pto_load_{dtype}x4({place})"
    return f"vld1q_{_KINDS[dtype.name]}({place})"


def store(dtype: DType, place: str, value: str) -> str:
    if dtype.kind == "f" and dtype.bits == 16:
        return f"pto_store_{dtype}x4({place}, {value})"
    return f"vst1q_{_KINDS[dtype.name]}({place}, {value})"


def memory(dtype: DType) -> bool:
    """Whether four elements in memory are a vector."""
    return dtype.name in ("f16", "bf16", "f32", "i32", "u32")


def apply(
    recipes: NeonRecipes, op: str, a: Sequence[str], dtype: DType, attrs: dict[str, Any], result: DType
) -> str | None:
    """`op` as an expression of intrinsics; None where there is none: then the loop is written for one element."""
    op = {"maximum": "max", "minimum": "min"}.get(op, op)
    if not supported(dtype) or not supported(result):
        return None
    kind = _KINDS[dtype.name]
    if op == "copy":
        return a[0]
    if op == "cast":
        return _cast(a[0], dtype, result)
    if op == "select":
        return f"vbslq_{kind}({', '.join(a)})"
    if dtype.kind == "b":
        return _MASKS[op].format(*a) if op in _MASKS else None
    if op in _COMPARE:
        return f"{_COMPARE[op]}_{kind}({', '.join(a)})"
    if op == "ne":
        return f"vmvnq_u32(vceqq_{kind}({', '.join(a)}))"
    if op in _BOTH:
        return f"{_BOTH[op]}_{kind}({', '.join(a)})"
    if dtype.kind == "f":
        if op in _FLOATS:
            return _FLOATS[op].format(*a)
        if op == "gelu":
            op = "gelu_tanh" if attrs.get("approximate") == "tanh" else "gelu"
        return recipes.call(op, a) if op in RECIPES and op not in _SCALAR_ONLY else None
    if op in _INTEGERS:
        return f"{_INTEGERS[op]}_{kind}({', '.join(a)})"
    if op == "square":
        return f"vmulq_{kind}({a[0]}, {a[0]})"
    if op in ("neg", "abs") and kind == "s32":
        return f"v{op}q_s32({a[0]})"
    return None


def _cast(x: str, source: DType, target: DType) -> str | None:
    """Conversions between f32, i32 and u32; floats saturate and NaN gives 0, as the instructions do."""
    if source == target or (source.bits == 16 and target.name == "f32"):
        return x
    if {source.kind, target.kind} & {"b"} or target.bits == 16:
        return None
    if source.kind == "f":
        return f"vcvtq_{_KINDS[target.name]}_f32({x})"
    if target.kind == "f":
        return f"vcvtq_f32_{_KINDS[source.name]}({x})"
    return f"vreinterpretq_{_KINDS[target.name]}_{_KINDS[source.name]}({x})"


def fold(op: str, dtype: DType, x: str, y: str) -> str | None:
    """One step of a reduction, lane by lane."""
    name = {"sum": "add", "prod": "mul", "any": "or", "all": "and"}.get(op, op)
    if dtype.kind == "b":
        return None
    return apply(_NO_RECIPES, name, (x, y), dtype, {}, dtype)


def reduced(op: str, dtype: DType, x: str) -> str | None:
    """The lanes as one number; None where that is not written with vectors."""
    kind = _KINDS.get(dtype.name)
    if kind == "f32":
        return {"sum": f"pto_sum_f32x4({x})", "prod": f"pto_prod_f32x4({x})", "max": f"pto_lanes_max_f32x4({x})",
                "min": f"pto_lanes_min_f32x4({x})"}.get(op)  # fmt: skip
    if kind in ("s32", "u32") and dtype.kind != "b":
        return {"sum": f"vaddvq_{kind}({x})", "max": f"vmaxvq_{kind}({x})", "min": f"vminvq_{kind}({x})"}.get(op)
    return None


_NO_RECIPES: Any = None
