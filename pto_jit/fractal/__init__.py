# SPDX-License-Identifier: MIT
"""FractalTensor: nested, jagged lists of tensors (`docs/fractal.md`)."""

from pto_jit.fractal.building import from_flat, from_list
from pto_jit.fractal.tensor import FractalTensor

__all__ = ["FractalTensor", "from_flat", "from_list"]
