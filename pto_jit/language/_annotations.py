# SPDX-License-Identifier: MIT
"""What a kernel's parameters are annotated with: compile-time values and named extents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pto_jit.dtypes import DType
from pto_jit.errors import ShapeError, TypeMismatchError
from pto_jit.slotted import frozen


@frozen
class Symbol:
    """A named extent: within one call it has one value over all arguments."""

    name: str

    def __repr__(self) -> str:
        return f"pl.dynamic({self.name!r})"


def dynamic(name: str) -> Any:
    """A named run-time extent for `pl.Tensor[[M, 64], pl.f32]`.

    >>> import pto_jit.language as pl
    >>> M = pl.dynamic("M")
    >>> pl.Tensor[[M, 64], pl.f32].shape
    (pl.dynamic('M'), 64)
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise TypeMismatchError(
            f"pl.dynamic takes a name, not {name!r}", code="PTO-T080", hint='write `M = pl.dynamic("M")`'
        )
    return Symbol(name)


@frozen
class TensorSpec:
    """`pl.Tensor[[M, 64], pl.f32]`: what a tensor argument is checked against at the call.

    `shape` holds an int (fixed), a `Symbol` (one value per call) or None (anything) per axis.
    """

    shape: tuple[int | Symbol | None, ...]
    dtype: DType

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __repr__(self) -> str:
        return f"pl.Tensor[[{', '.join(map(repr, self.shape))}], {self.dtype!r}]"


def tensor_spec(item: Any) -> TensorSpec:
    """The value of `pl.Tensor[item]`."""
    if not isinstance(item, tuple) or len(item) != 2:
        raise TypeMismatchError("pl.Tensor[...] takes a list of extents and a dtype", code="PTO-T081",
                                hint="write `pl.Tensor[[M, 64], pl.f32]`")  # fmt: skip
    extents, dtype = item
    if not isinstance(dtype, DType):
        raise TypeMismatchError(
            f"{dtype!r} is not an element type", code="PTO-T028", hint="write `pl.Tensor[[M, 64], pl.f32]`"
        )
    shape = tuple(extents) if isinstance(extents, (list, tuple)) else (extents,)
    for extent in shape:
        fixed = isinstance(extent, int) and not isinstance(extent, bool) and extent >= 0
        if not (fixed or extent is None or isinstance(extent, Symbol)):
            raise ShapeError(
                f"{extent!r} is not an extent", code="PTO-T081", hint='an extent is an int, `pl.dynamic("M")` or None'
            )
    return TensorSpec(shape, dtype)


if TYPE_CHECKING:
    constexpr = Any
else:

    class constexpr:
        """Annotation of a compile-time parameter: `def kernel(x: pl.Tensor, n: pl.constexpr)`.

        The argument may be any hashable Python object; the kernel is specialised on its value.
        """

        def __class_getitem__(cls, item: Any) -> Any:
            return cls
