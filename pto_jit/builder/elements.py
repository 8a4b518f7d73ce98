# SPDX-License-Identifier: MIT
"""Element types and memory spaces by the names of the PTO ISA."""

from __future__ import annotations

from enum import Enum

from pto_jit.dtypes import BY_NAME, DType
from pto_jit.errors import Loc, TypeMismatchError


class ElementType(Enum):
    """The type of the elements of tiles and memrefs, and of scalars. `pl` dtypes are taken as well."""

    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    BOOL = "bool_"
    INDEX = "i64"  # noqa: PIE796 - an alias: loop variables and offsets are i64

    @property
    def dtype(self) -> DType:
        """The dtype of the language."""
        return BY_NAME[self.value]


class MemorySpace(Enum):
    """Where a memref lies. Tiles need no space: the compiler places them."""

    GLOBAL = "gm"
    GM = "gm"  # noqa: PIE796 - an alias


def element_type(value: object, loc: Loc | None) -> DType:
    """The dtype that an `ElementType`, a `pl` dtype or a name stands for; TypeMismatchError for anything else."""
    if isinstance(value, ElementType):
        return value.dtype
    if isinstance(value, DType):
        return value
    found = BY_NAME.get(value) if isinstance(value, str) else None
    if found is None:
        raise TypeMismatchError(
            f"{value!r} is not an element type",
            loc,
            code="PTO-T185",
            hint="give an `ElementType`, as `ElementType.F32`",
        )
    return found
