# SPDX-License-Identifier: MIT
"""The FractalTensor programs of the tutorials as kernels, against themselves run eagerly, and for other lengths."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft

TUTORIALS = Path(__file__).parents[3] / "tutorials" / "fractal"
PROGRAMS = sorted(path.stem for path in TUTORIALS.glob("*.py"))


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"fractal_{name}", TUTORIALS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def same(got: Any, want: Any) -> None:
    if isinstance(want, tuple):
        for a, b in zip(got, want, strict=True):
            same(a, b)
        return
    assert isinstance(got, ft.FractalTensor)
    for a, b in zip(got.offsets, want.offsets, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(got.leaves, want.leaves, atol=2e-5)


def test_all_seven_programs_of_the_tutorials_are_compiled_here() -> None:
    assert len(PROGRAMS) == 7


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_as_a_kernel_what_it_gives_eagerly(name: str) -> None:
    module = load(name)
    kernel = pto.jit(module.program)
    given = module.arguments()
    same(kernel(*given), module.program(*given))
    lengths = ((2, 3), (0, 0), (4, 1)) if name == "grid_rnn" else (4, 2, 0)
    others = module.arguments(lengths=lengths)
    same(kernel(*others), module.program(*others))
    assert len(kernel.specializations()) == 1  # lengths are not part of what is compiled


def test_the_grid_rnn_is_a_wavefront() -> None:
    module = load("grid_rnn")
    compiled = pto.jit(module.program).compile(*module.arguments())
    (decision,) = [d for d in compiled.decisions if d.kind == "schedule"]
    assert decision.loops == ("i", "j", "k", "l")
    assert decision.reason.startswith("wavefront: planes of hyperplane (0, 1, 1, 1)")
    assert "distances over (i, j, k, l): (0, 0, 0, 1), (0, 0, 1, 0), (0, 1, 0, 0)" in decision.reason
