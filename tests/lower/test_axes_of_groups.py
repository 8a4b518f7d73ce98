# SPDX-License-Identifier: MIT
"""What is remembered of the axes of a group is what its operations say."""

from __future__ import annotations

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.bench.emission import KERNELS
from pto_jit.bench.frontend import kernel_of
from pto_jit.codegen import compile_program
from pto_jit.compiler import Stages, run_passes
from pto_jit.ir.nodes import Fuse, Op
from pto_jit.ir.walk import statements
from pto_jit.lower.groups.axes import Axial, axes_of_group
from pto_jit.lower.pipeline import passes_for
from pto_jit.options import Options


def told(group: Fuse) -> Axial:
    state = Axial()
    for op in group.body:
        assert isinstance(op, Op) and state.admit(op)
    return state


@pytest.mark.parametrize("what", KERNELS)
def test_groups_are_remembered_as_their_operations_tell(what: str) -> None:
    name, text, arguments = KERNELS[what]()
    function, params = kernel_of(text, f"<axes of {name}>", name, arguments)
    stages = Stages(modules={"source": compile_program(function, params, options=Options(target="c")).module})
    run_passes(stages, passes_for("c"), Options(target="c"))
    groups = [s for f in stages.last.funcs for s in statements(f.body) if isinstance(s, Fuse)]
    assert groups
    for group in groups:
        known = axes_of_group(group.body)
        assert known is axes_of_group(group.body)
        assert known == told(group) == axes_of_group((*group.body,))  # which nobody has asked about
        assert len(known.given) == len(group.body)


def test_a_costly_number_among_tiles_of_unrelated_axes_is_no_tile() -> None:
    @pto.jit
    def scaled(x: pl.Tensor, z: pl.Tensor, y: pl.Tensor, h: float) -> None:
        rows, columns = pl.load(x)[:, None] * 2.0, pl.load(z)[None, :] + 1.0
        y[...] = rows + columns * pl.exp(h)

    x, z = (np.arange(n, dtype=np.float32) for n in (5, 7))
    y = np.zeros((5, 7), np.float32)
    scaled(x, z, y, 0.5)
    np.testing.assert_allclose(y, x[:, None] * 2 + (z + 1) * np.exp(np.float32(0.5)), rtol=1e-6)
