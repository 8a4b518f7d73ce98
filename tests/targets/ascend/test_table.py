# SPDX-License-Identifier: MIT
"""The table of docs/ascend.md says what becomes of every kernel of the benchmarks, and is right."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import TargetError

from .harness import kernels_of, written

V, M, T = (pto.spec((None,) * n, pl.f32) for n in (1, 2, 3))
ROWS, LINE, HEADS = pto.spec((None, 256), pl.f32), pto.spec((256,), pl.f32), pto.spec((None, None, 64), pl.f32)
HALF, BRAIN = pto.spec((None, None), pl.f16), pto.spec((None, None), pl.bf16)
INTEGERS = pto.spec((None,), pl.i32)
SPECS: dict[str, tuple[Any, ...]] = {
    "attention.attention": (HEADS,) * 4,
    "attention.attention_causal": (HEADS,) * 4,
    "attention.attention_turned": (HEADS,) * 4,
    "attention.attention_causal_turned": (HEADS,) * 4,
    "elementwise.add16": (V,) * 3,
    "elementwise.vector_add": (V,) * 3,
    "elementwise.gelu_tanh": (M,) * 2,
    "elementwise.gelu_erf": (M,) * 2,
    "elementwise.silu_mul": (M,) * 3,
    "elementwise.bias_relu": (M, V, M),
    "grids.stencil5": (M,) * 2,
    "grids.conv3x3": (T, pto.spec((3, 3, None, None), pl.f32), T),
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
    "reductions.vector_sum": (V,) * 2,
    "rows.softmax": (HALF,) * 2,
    "rows.rms_norm": (ROWS, LINE, ROWS),
    "rows.layer_norm": (M, V, V, M),
    "rows.cross_entropy": (M, INTEGERS, V),
}
REFUSED_FOR_SEVERAL_REASONS = ("reductions.column_softmax",)
"""Of which the passes that all devices share may name another one first."""
MODULES = sorted({name.split(".")[0] for name in SPECS})
"""Of the benchmarks' kernels, but for `nests`, whose functions are of nested lists."""


def kernel(name: str) -> Any:
    module, function = name.split(".")
    return getattr(importlib.import_module(f"pto_jit.bench.kernels.{module}"), function)


def outcome(name: str) -> str:
    """What the table says of a kernel."""
    try:
        forms = kernels_of(written(kernel(name), *SPECS[name]))
    except TargetError as error:
        first = str(error).splitlines()[0]
        match = re.match(r"PTO-X210: the ascend target does not do (.*)|PTO-X211: \w+: (?:its tiles|a tile) .* in (.*)", first)
        assert match is not None
        return f"refused: {match[1] or f'its tiles do not fit {match[2]}'}"
    kinds = ["cube and vector" if f.partner else f.core for f in forms]
    return f"written: {', '.join(kinds)}"


def rows() -> dict[str, str]:
    text = (Path(__file__).parents[3] / "docs" / "ascend.md").read_text()
    table = text.split("## Kernels of the benchmarks")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `([\w.]+)` \| (.*) \|$", table, flags=re.MULTILINE))


def test_every_kernel_of_the_benchmarks_has_a_row() -> None:
    found = set()
    for module in MODULES:
        for name, value in vars(importlib.import_module(f"pto_jit.bench.kernels.{module}")).items():
            if hasattr(value, "__pto_jit__") and hasattr(value, "compile"):
                found.add(f"{module}.{name}")
    assert found == set(SPECS), "give a new kernel its argument kinds here, and a row in docs/ascend.md"
    assert set(rows()) == set(SPECS)


@pytest.mark.parametrize("name", SPECS)
def test_the_row_is_right(name: str) -> None:
    found, told = outcome(name), rows()[name]
    if name in REFUSED_FOR_SEVERAL_REASONS:
        assert found.startswith("refused: ") and told.startswith("refused: ")
    else:
        assert found == told
