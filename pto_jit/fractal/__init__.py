# SPDX-License-Identifier: MIT
"""FractalTensor: nested, jagged lists of tensors, and parallel functions on them (`docs/fractal.md`).

Outside of kernels everything computes at once on NumPy values.

>>> import numpy as np
>>> import pto_jit.fractal as ft, pto_jit.language as pl
>>> sentences = ft.from_list([[np.ones((1, 2))] * 3, [], [np.ones((1, 2))]])
>>> states = ft.map(lambda words: ft.scan(lambda s, w: pl.tanh(s + w), words, init=np.zeros((1, 2))), sentences)
>>> states
FractalTensor([3, 0, 1] of pl.Tensor[[1, 2], pl.f64])
"""

from pto_jit.fractal.access import (
    depth,
    enumerate,
    first,
    flatten,
    gather,
    head,
    index,
    join,
    last,
    length,
    product,
    repeat,
    reverse,
    shifted_slide,
    shifted_window,
    slice,
    slices,
    slide,
    split,
    stack,
    tail,
    unbind,
    window,
)
from pto_jit.fractal.building import from_flat, from_list
from pto_jit.fractal.parallel import (
    dilated_map,
    filter,
    fold,
    foldl,
    foldr,
    map,
    reduce,
    scan,
    scanl,
    scanr,
)
from pto_jit.fractal.tensor import FractalTensor
from pto_jit.fractal.tensors import cat, zeros
from pto_jit.fractal.zipped import Zipped, zip

__all__ = [
    "FractalTensor",
    "Zipped",
    "cat",
    "depth",
    "dilated_map",
    "enumerate",
    "filter",
    "first",
    "flatten",
    "fold",
    "foldl",
    "foldr",
    "from_flat",
    "from_list",
    "gather",
    "head",
    "index",
    "join",
    "last",
    "length",
    "map",
    "product",
    "reduce",
    "repeat",
    "reverse",
    "scan",
    "scanl",
    "scanr",
    "shifted_slide",
    "shifted_window",
    "slice",
    "slices",
    "slide",
    "split",
    "stack",
    "tail",
    "unbind",
    "window",
    "zeros",
    "zip",
]
