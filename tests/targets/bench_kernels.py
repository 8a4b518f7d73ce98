# SPDX-License-Identifier: MIT
"""The kernels of the benchmarks, and kinds of arguments to compile them for on any target."""

from __future__ import annotations

import importlib
from typing import Any

import pto_jit as pto
import pto_jit.language as pl

V, M, T = (pto.spec((None,) * n, pl.f32) for n in (1, 2, 3))
HEADS, BRAIN = pto.spec((None, None, 64), pl.f32), pto.spec((None, None), pl.bf16)
HALVES = pto.spec((None, None, 64), pl.f16)
SPECS: dict[str, tuple[Any, ...]] = {
    "attention.attention": (HEADS,) * 4,
    "attention.attention_causal": (HEADS,) * 4,
    "attention.attention_turned": (HEADS,) * 4,
    "attention.attention_causal_turned": (HEADS,) * 4,
    "attention.attention_wide": (HALVES,) * 4,
    "attention.attention_causal_wide": (HALVES,) * 4,
    "elementwise.add16": (V,) * 3,
    "elementwise.vector_add": (V,) * 3,
    "elementwise.gelu_tanh": (M,) * 2,
    "elementwise.gelu_erf": (M,) * 2,
    "elementwise.silu_mul": (M,) * 3,
    "elementwise.bias_relu": (M, V, M),
    "grids.stencil5": (M,) * 2,
    "grids.conv3x3": (pto.spec((None, None, 64), pl.f32), pto.spec((3, 3, 64, 64), pl.f32), HEADS),
    "grids.mandelbrot": (V, V, pto.spec((None, None), pl.i32)),
    "loops.affine": (V,) * 2,
    "loops.affine_chunked": (V,) * 2,
    "loops.uneven_nest": (M,) * 2,
    "loops.uneven_nest_rows": (M,) * 2,
    "loops.small_rows": (M,) * 2,
    "loops.small_rows_sequential": (M,) * 2,
    "loops.column_first": (M,) * 2,
    "loops.column_first_kept": (M,) * 2,
    "matrix.matmul": (M,) * 3,
    "matrix.matmul_bf16": (BRAIN,) * 3,
    "matrix.matmul_bias_gelu": (M, M, V, M),
    "matrix.matmul_tiled": (M,) * 3,
    "matrix.matmul_bf16_tiled": (BRAIN,) * 3,
    "matrix.matmul_bias_gelu_tiled": (M, M, V, M),
    "matrix.swiglu": (M,) * 5,
    "reductions.column_softmax": (M,) * 2,
    "reductions.log_sum_exp": (V,) * 2,
    "reductions.vector_sum": (V,) * 2,
    "rows.softmax": (M,) * 2,
    "rows.rms_norm": (M, V, M),
    "rows.layer_norm": (M, V, V, M),
    "rows.cross_entropy": (M, pto.spec((None,), pl.i32), V),
}
MODULES = sorted({name.split(".")[0] for name in SPECS})
"""Of the benchmarks' kernels, but for `nests`, whose functions are of nested lists."""


def kernel(name: str) -> Any:
    module, function = name.split(".")
    return getattr(importlib.import_module(f"pto_jit.bench.kernels.{module}"), function)


def names() -> set[str]:
    """Of all kernels that there are."""
    return {
        f"{module}.{name}"
        for module in MODULES
        for name, value in vars(importlib.import_module(f"pto_jit.bench.kernels.{module}")).items()
        if hasattr(value, "__pto_jit__") and hasattr(value, "compile")
    }
