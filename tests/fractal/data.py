# SPDX-License-Identifier: MIT
"""Random nested lists, and comparing what operations give for them."""

from __future__ import annotations

from typing import Any

import numpy as np

import pto_jit as pto
import pto_jit.fractal as ft

LEAVES = [((), np.int64), ((2,), np.float32), ((1, 3), np.float64), ((2, 1), np.int32)]


def lists(rng: np.random.Generator, depth: int, leaf: tuple[Any, Any], most: int = 4) -> list[Any]:
    """A list of that depth, lengths from 0, of arrays of small whole numbers."""
    shape, dtype = leaf
    count = int(rng.integers(0, most + 1))
    if depth == 1:
        return [rng.integers(-4, 5, shape).astype(dtype)[()] if shape == () else rng.integers(-4, 5, shape).astype(dtype)
                for _ in range(count)]  # fmt: skip
    return [lists(rng, depth - 1, leaf, most) for _ in range(count)]


def fractal(x: list[Any], depth: int, leaf: tuple[Any, Any]) -> ft.FractalTensor:
    """The same as a FractalTensor; the depth of a list without leaves is that which is said."""
    if depth == 1:
        return ft.from_list(x, leaf=pto.spec(leaf[0], leaf[1]))
    inner = [fractal(e, depth - 1, leaf) for e in x]
    if not inner:
        none = np.zeros(1, int)
        return ft.from_flat(np.empty((0, *leaf[0]), leaf[1]), [none] * (depth - 1))
    offsets = np.cumsum([0, *(len(e) for e in inner)])
    rest = [np.concatenate([[0], *(np.diff(e.offsets[k]) for e in inner)]).cumsum() for k in range(depth - 2)]
    return ft.from_flat(np.concatenate([e.leaves for e in inner]), [offsets, *rest])


def plain(x: Any) -> Any:
    """FractalTensors and zipped lists as Python's lists, everywhere in a value."""
    if isinstance(x, (ft.FractalTensor, ft.Zipped)):
        return [plain(e) for e in x]
    if isinstance(x, tuple):
        return tuple(plain(e) for e in x)
    return x


def check(found: Any, wanted: Any, at: str = "") -> None:
    """Equal in structure, and leaves equal in shape, element type and bits."""
    found = plain(found)
    if isinstance(wanted, (list, tuple)):
        assert type(found) is type(wanted), f"{at}: {found!r} is not {wanted!r}"
        assert len(found) == len(wanted), f"{at}: {len(found)} elements, not {len(wanted)}"
        for k, (f, w) in enumerate(zip(found, wanted, strict=True)):
            check(f, w, f"{at}[{k}]")
        return
    got, want = np.asarray(found), np.asarray(wanted)
    assert got.shape == want.shape and got.dtype == want.dtype, f"{at}: {got!r} is not {want!r}"
    assert np.array_equal(got, want), f"{at}: {got!r} is not {want!r}"
