# SPDX-License-Identifier: MIT
"""`ft.zeros` and `ft.cat`: the two operations on tensors that programs on lists need beside those of `pl`."""

from __future__ import annotations

from typing import Any

from pto_jit.dtypes import f32
from pto_jit.fractal.access import stacked
from pto_jit.fractal.marking import operation
from pto_jit.fractal.tensor import FractalTensor
from pto_jit.fractal.trial import trying
from pto_jit.language import concat
from pto_jit.language import zeros as filled


@operation
def zeros(*shape: Any, dtype: Any = f32) -> Any:
    """A tensor of zeros: `ft.zeros(1, 64)` is `pl.zeros([1, 64], pl.f32)`.

    >>> import numpy as np, pto_jit.fractal as ft
    >>> np.asarray(ft.zeros(2))
    array([0., 0.], dtype=float32)
    """
    extents = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    return filled(list(extents), dtype)


@operation
def cat(*tensors: Any, axis: int = -1) -> Any:
    """Tensors one after another along `axis`: several, a Python list or tuple of them, or a list of depth 1.

    Of an empty list of depth 1, a tensor like its leaves with nothing along the axis.

    >>> import numpy as np, pto_jit.fractal as ft
    >>> ft.cat(np.array([[1, 2]]), np.array([[3]]))
    array([[1, 2, 3]])
    """
    items = tensors[0] if len(tensors) == 1 else tensors
    if isinstance(items, FractalTensor):
        stacked(items, "ft.cat")  # which refuses lists of lists
        if not len(items):
            one = concat([items.sample()], axis)
            return one if trying() else one[(slice(None),) * (axis % one.ndim) + (slice(0, 0),)]
        items = list(items)
    return concat(items if isinstance(items, (list, tuple)) else [items], axis)
