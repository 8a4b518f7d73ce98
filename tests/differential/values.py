# SPDX-License-Identifier: MIT
"""What the generator of random kernels knows about a value: dtype, axes, size of its numbers, how exact it is."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

FLOATS = ("f16", "bf16", "f32", "f64")
INTS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
DTYPES = (*FLOATS, *INTS, "bool_")
NUMPY = {
    "f16": "float16", "f32": "float32", "f64": "float64", "bool_": "bool",
    **{name: name.replace("i", "int").replace("uint", "uint") for name in INTS if name[0] == "i"},
    **{name: name.replace("u", "uint") for name in INTS if name[0] == "u"},
}  # fmt: skip


@dataclass(frozen=True)
class Axis:
    """Axes with equal `key` have equal declared and equal valid extents.

    extent: the declared extent as an expression; const: its value when it is written as a constant; full: valid in its
    whole declared extent.
    """

    key: str
    extent: str
    const: int | None
    full: bool


ONE = Axis("1", "1", 1, True)


def constant_axis(extent: int) -> Axis:
    return ONE if extent == 1 else Axis(f"={extent}", str(extent), extent, True)


@dataclass(frozen=True)
class Value:
    """A tile in a variable.

    exact: every evaluation gives the same bits, so that a comparison or a cast to an integer is safe; bound: no
    element is larger in magnitude; generated: fits any valid extent.
    """

    name: str
    dtype: str
    axes: tuple[Axis, ...]
    exact: bool = True
    bound: float = 8.0
    generated: bool = False

    @property
    def rank(self) -> int:
        return len(self.axes)

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    @property
    def is_int(self) -> bool:
        return self.dtype in INTS

    def like(self, name: str, **changes: object) -> Value:
        return replace(self, name=name, **changes)  # type: ignore[arg-type]


def promote(a: str, b: str) -> str:
    """NumPy's promotion; bf16 goes to f32 with everything but bool_ and itself."""
    if a == b:
        return a
    if "bf16" in (a, b):
        other = b if a == "bf16" else a
        if other == "bool_":
            return "bf16"
        return {"f64": "f64"}.get(other, "f32" if other in ("f16", "f32") else "?")
    found = np.promote_types(NUMPY[a], NUMPY[b]).name
    return {v: k for k, v in NUMPY.items()}[found]


def joined(a: Value, b: Value) -> tuple[Axis, ...] | None:
    """The axes of an elementwise operation on two values, or None when they do not fit."""
    rank = max(a.rank, b.rank)
    left = (ONE,) * (rank - a.rank) + a.axes
    right = (ONE,) * (rank - b.rank) + b.axes
    out: list[Axis] = []
    for p, q in zip(left, right, strict=True):
        if p.const == 1:
            out.append(q)
        elif q.const == 1 or p.key == q.key:
            out.append(p)
        elif a.generated and p.extent == q.extent:
            out.append(q)
        elif b.generated and p.extent == q.extent:
            out.append(p)
        else:
            return None
    return tuple(out)
