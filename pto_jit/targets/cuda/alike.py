# SPDX-License-Identifier: MIT
"""Kernels that are the same program are one, which is launched with other arguments (`lower.alike`)."""

from __future__ import annotations

from collections.abc import Mapping

from pto_jit.ir.nodes import Func, Module
from pto_jit.ir.numbering import Numbered
from pto_jit.ir.types import TileType
from pto_jit.lower.alike import share_functions
from pto_jit.lower.groups.fitting import NOTHING, Fitting


def share_kernels(module: Module, dims: Mapping[str, tuple[str, int]], fitting: Fitting = NOTHING) -> Module:
    """The module in which calls of the same kernel call one of them.

    dims: the numbers of host code that are extents of its tensors; fitting: along which axes tiles fit any valid
    extent.  Both decide how a kernel is written.
    """

    def told(func: Func, it: Numbered) -> object:
        places = [dims.get(p.name) for p in func.params]
        known = [None if place is None else (it.numbers.get(place[0], place[0]), place[1]) for place in places]
        tiles = [fitting.get(name) for name, kind in zip(it.numbers, it.types, strict=True)
                 if isinstance(kind, TileType)]  # fmt: skip
        return tuple(known), tuple(tiles)

    return share_functions(module, [], told=told)  # the passes have told of scopes
