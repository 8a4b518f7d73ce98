# SPDX-License-Identifier: MIT
"""Reading tile and tensor types from text, and which type may stand for which."""

from __future__ import annotations

from functools import lru_cache

from pto_jit.dtypes import BY_NAME
from pto_jit.ir.types import Extent, Layout, ScalarType, TensorType, TileType, Type

_LAYOUTS: tuple[Layout, ...] = ("c", "inner", "strided")


def fits(inferred: Type, declared: Type) -> bool:
    """Whether a value of type `inferred` may have the declared type: equal, or with less known about it."""
    if inferred is declared or inferred == declared:
        return True
    if type(inferred) is not type(declared) or inferred.dtype != declared.dtype or isinstance(inferred, ScalarType):
        return False
    assert not isinstance(declared, ScalarType)
    if len(inferred.shape) != len(declared.shape):
        return False
    if any(d is not None and d != i for i, d in zip(inferred.shape, declared.shape, strict=True)):
        return False
    if isinstance(inferred, TensorType) and isinstance(declared, TensorType):
        return _LAYOUTS.index(inferred.layout) <= _LAYOUTS.index(declared.layout)
    return True


@lru_cache(1024)
def parse_type(text: str) -> TileType | TensorType | str:
    """The tile or tensor type that `!pto...` text names, or what was expected instead."""
    head, _, inner = text.partition("<")
    parts = [part.strip() for part in inner.removesuffix(">").split(",")]
    if head.strip() == "!pto.tile":
        dims, _, dtype = parts[0].rpartition("x")
        shape = _parse_shape(dims)
        if len(parts) != 1 or shape is None or dtype not in BY_NAME:
            return "a tile type like `!pto.tile<8x8xf32>` with a known dtype"
        return TileType(BY_NAME[dtype], shape)
    if head.strip() != "!pto.memref":
        return "`!pto.tile<..>` or `!pto.memref<..>`"
    if not inner:
        return TensorType(BY_NAME["f32"], (None, None), "inner")
    if parts[0] != "gm":
        return "the memory space `gm`"
    layout: Layout = "c"
    if parts[-1] in _LAYOUTS:
        layout = parts.pop()  # pyright: ignore
    if parts[1:-1] == ["..."] and layout == "c":
        layout = "inner"  # of unknown extents, the row pitch too
    shape = (None, None) if parts[1:-1] == ["..."] else _parse_shape(parts[1]) if len(parts) == 3 else ()
    if len(parts) not in (2, 3) or shape is None or parts[-1] not in BY_NAME:
        return "a tensor type like `!pto.memref<gm,8x8,f32>` with a known dtype"
    return TensorType(BY_NAME[parts[-1]], shape, layout)


def _parse_shape(text: str) -> tuple[Extent, ...] | None:
    if not text:
        return ()
    shape: list[Extent] = []
    for part in text.split("x"):
        part = part.strip()
        if part == "?":
            shape.append(None)
        elif part.isdecimal() and part.isascii() and len(part) <= 18:
            shape.append(int(part))
        else:
            return None
    return tuple(shape)
