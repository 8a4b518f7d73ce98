# SPDX-License-Identifier: MIT
"""The table of docs/cuda.md says what becomes of every kernel of the benchmarks, and is right."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import pto_jit as pto
import pto_jit.language as pl

V, M = (pto.spec((None,) * n, pl.f32) for n in (1, 2))
HEADS, BRAIN = pto.spec((None, None, 64), pl.f32), pto.spec((None, None), pl.bf16)
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
    "reductions.vector_sum": (V,) * 2,
    "rows.softmax": (M,) * 2,
    "rows.rms_norm": (M, V, M),
    "rows.layer_norm": (M, V, V, M),
    "rows.cross_entropy": (M, pto.spec((None,), pl.i32), V),
}
MODULES = sorted({name.split(".")[0] for name in SPECS})
"""Of the benchmarks' kernels, but for `nests`, whose functions are of nested lists."""
_KINDS = {"elements": "a thread per element", "folds": "folds over elements", "rows": "rows", "fragments": "products"}


def kernel(name: str) -> Any:
    module, function = name.split(".")
    return getattr(importlib.import_module(f"pto_jit.bench.kernels.{module}"), function)


def outcome(name: str) -> str:
    """What the table says of a kernel: how its kernels are spread over threads."""
    try:
        program = kernel(name).compile(*SPECS[name], target="cuda")._kernel.built.program
        assert program.sources
    except pto.TargetError as error:
        match = re.match(r"(PTO-X\d+): (?:\w+: )?(.*)", str(error))
        assert match is not None
        return f"refused: `{match[1]}`"
    kinds = [f"{_KINDS[k.kind]}{' on tensor cores' if k.tensor_cores else ''}" for k in program.host.kernels.values()]
    return f"written: {', '.join(dict.fromkeys(kinds))}"


def rows() -> dict[str, str]:
    text = (Path(__file__).parents[3] / "docs" / "cuda.md").read_text()
    table = text.split("## Kernels of the benchmarks")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `([\w.]+)` \| ([^|]*) \|", table, flags=re.MULTILINE))


def test_every_kernel_of_the_benchmarks_has_a_row() -> None:
    found = set()
    for module in MODULES:
        for name, value in vars(importlib.import_module(f"pto_jit.bench.kernels.{module}")).items():
            if hasattr(value, "__pto_jit__") and hasattr(value, "compile"):
                found.add(f"{module}.{name}")
    assert found == set(SPECS), "give a new kernel its argument kinds here, and a row in docs/cuda.md"
    assert set(rows()) == set(SPECS)


@pytest.mark.parametrize("name", SPECS)
def test_the_row_is_right(name: str) -> None:
    assert outcome(name) == rows()[name]
