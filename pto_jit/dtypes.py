# SPDX-License-Identifier: MIT
"""Element types: the names a kernel author writes (`pl.f32`) and every stage of the compiler reads.

A dtype is a value: `pl.f32 == pl.f32`, hashable, usable as a dictionary key, a default argument or a compile-time
argument of a kernel.  bf16 is `ml_dtypes.bfloat16` on the NumPy side.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import ml_dtypes
import numpy as np

from pto_jit.slotted import frozen

Kind = Literal["f", "i", "u", "b"]


@frozen
class DType:
    """An element type; called, it converts a number: `pl.f32(2)`.

    `name` is the language's spelling, `kind` is f(loat), i(nteger), u(nsigned) or b(ool), `bits` is the width in
    memory (8 for bool), `id` the number the launch path uses.
    """

    name: str
    kind: Kind
    bits: int
    id: int

    @property
    def bytes(self) -> int:
        """Bytes of an element in memory."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        """Whether it is f16, bf16, f32 or f64."""
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        """Whether it is an integer, signed or not; `bool_` is none."""
        return self.kind in "iu"

    @property
    def is_signed(self) -> bool:
        """Whether it has negative values: floats and signed integers."""
        return self.kind in "fi"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype of the same values."""
        return _numpy_dtype(self.name)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The same: NumPy compares `x.dtype == pl.f32` through this name."""
        return _numpy_dtype(self.name)

    def __eq__(self, other: object) -> bool:
        """Equal to the NumPy dtype of the same values, too, and to its scalar type: `x.dtype == np.float32`."""
        if isinstance(other, DType):
            return self.name == other.name
        if isinstance(other, np.dtype) or (isinstance(other, type) and issubclass(other, np.generic)):
            return self.numpy == other
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"pl.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __call__(self, value: Any) -> Any:
        """Outside a kernel: `value` as a NumPy scalar of this type; inside one, a cast."""
        if type(value).__module__.startswith("pto_jit.language"):  # tiles, and run-time numbers of interpret mode
            return value.to(self)
        if isinstance(value, (str, bytes)):  # NumPy reads numbers in text, ml_dtypes crashes
            raise TypeError(f"pl.{self.name} converts numbers, not text")
        return self.numpy.type(value)

    def __getitem__(self, sizes: Any) -> Annotated:
        """`pl.f32["M", "N"]`: a tensor parameter of a comprehension."""
        return Annotated(self, sizes if isinstance(sizes, tuple) else (sizes,))


@frozen
class Annotated:
    """A dtype with named sizes, as written in a comprehension's parameter list."""

    dtype: DType
    sizes: tuple[Any, ...]


f16 = DType("f16", "f", 16, 0)
bf16 = DType("bf16", "f", 16, 1)
f32 = DType("f32", "f", 32, 2)
f64 = DType("f64", "f", 64, 3)
i8 = DType("i8", "i", 8, 4)
i16 = DType("i16", "i", 16, 5)
i32 = DType("i32", "i", 32, 6)
i64 = DType("i64", "i", 64, 7)
u8 = DType("u8", "u", 8, 8)
u16 = DType("u16", "u", 16, 9)
u32 = DType("u32", "u", 32, 10)
u64 = DType("u64", "u", 64, 11)
bool_ = DType("bool_", "b", 8, 12)

ALL: tuple[DType, ...] = (f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool_)
BY_NAME: dict[str, DType] = {t.name: t for t in ALL}
BY_ID: dict[int, DType] = {t.id: t for t in ALL}

_NUMPY_NAMES = {
    "f16": "float16", "f32": "float32", "f64": "float64", "i8": "int8", "i16": "int16", "i32": "int32",
    "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "bool_": "bool",
}  # fmt: skip


@cache
def _numpy_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16) if name == "bf16" else np.dtype(_NUMPY_NAMES[name])


@cache
def from_numpy(dtype: Any) -> DType | None:
    """The dtype of a NumPy dtype (or anything `np.dtype` takes), or None when the language has no such type."""
    try:
        wanted = np.dtype(dtype)
    except TypeError:
        return None
    for candidate in ALL:
        if candidate.numpy == wanted:
            return candidate
    return None


def promote(a: DType, b: DType) -> DType:
    """The common type of two dtypes, by NumPy's rules; f16 with bf16 gives f32."""
    if a == b:
        return a
    if {a.name, b.name} == {"f16", "bf16"}:
        return f32
    for low, other in ((a, b), (b, a)):
        if low == bf16:  # NumPy has no bf16 of its own: it promotes like f16 would
            if other.is_float:
                return other
            if other.kind == "b" or other.bits <= 8:
                return bf16
            return f32 if other.bits <= 16 else f64
    result = from_numpy(np.promote_types(a.numpy, b.numpy))
    assert result is not None
    return result


def place_dtype(dtype: DType) -> DType:
    """What integers of a dtype are converted to where they say places: i32 or i64.

    Numbers of u64 that i64 does not have become negative, so they are places outside all the same.
    """
    return dtype if dtype in (i32, i64) else i32 if dtype.bits < 32 else i64
