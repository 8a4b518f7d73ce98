# SPDX-License-Identifier: MIT
"""Modules of the builder, as sources of every target; those of the c target run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pto_jit as pto
from tests.builder.test_programs import softmax_module
from tests.targets.c.harness import needs_compiler


@needs_compiler
def test_functions_of_modules_run_as_c() -> None:
    """Orchestration with tasks, and an in-core function by itself."""
    module = softmax_module().compile(target="c", cache=False)
    x = np.random.default_rng(0).standard_normal((32, 8)).astype(np.float32)
    y, rows_ = np.zeros_like(x), np.zeros((8, 1), np.float32)
    module.dynamic_softmax(x, y, num_tiles=4)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(axis=1, keepdims=True), rtol=1e-6)
    module.rowmax(x[8:16], rows_)
    np.testing.assert_array_equal(rows_[:, 0], x[8:16].max(axis=1))
    with pytest.raises(pto.TargetError, match="PTO-X090"):
        module.dynamic_softmax.task_graph(x, y, num_tiles=4)


@pytest.mark.parametrize(("target", "kernel"), [("c", "rowmax.c"), ("neon", "rowmax.c"), ("cuda", "rowmax.cu"),
                                                ("ascend", "rowmax.cpp")])  # fmt: skip
def test_modules_are_written_for_every_target(target: str, kernel: str, tmp_path: Path) -> None:
    module = softmax_module().compile(target=target)
    written = {p.name for p in module.write(tmp_path)}
    assert {kernel, "README.md", "softmax_module.pto"} <= written and any("orchestration" in name for name in written)
    assert module.dynamic_softmax.stages[0] == "source" and "@dynamic_softmax" in module.dynamic_softmax.ir("source")
    if target in ("cuda", "ascend"):
        x = np.zeros((8, 8), np.float32)
        with pytest.raises(pto.TargetError, match="PTO-X202"):
            module.dynamic_softmax(x, x.copy(), num_tiles=1)
        with pytest.raises(pto.TargetError, match="PTO-X203"):
            module.dynamic_softmax.library(tmp_path)
