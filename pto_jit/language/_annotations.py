# SPDX-License-Identifier: MIT
"""What a kernel's parameters are annotated with: compile-time values and named extents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pto_jit.dtypes import DType
from pto_jit.errors import ShapeError, TypeMismatchError
from pto_jit.language._number import Element, Int
from pto_jit.slotted import frozen


@frozen(eq=False)
class Symbol:
    """A named extent: within one call it has one value over all arguments.

    It is a name in annotations and has no value: what computes with it is an error.
    """

    name: str

    def __repr__(self) -> str:
        return f"pl.dynamic({self.name!r})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (Int, Element)):  # an extent in interpret mode
            not_a_symbol(self)
        return isinstance(other, Symbol) and self.name == other.name

    def __hash__(self) -> int:
        return hash((Symbol, self.name))


def not_a_symbol(value: object) -> None:
    """Where a number is wanted: raises TypeMismatchError for the name of an extent."""
    if isinstance(value, Symbol):
        raise TypeMismatchError(
            f"{value!r} names an extent in annotations, it is not a number", code="PTO-T082",
            hint="take the extent of an argument that has it: `x.shape[axis]`",
        )  # fmt: skip


def _refuse(self: Symbol, *_: object) -> NoReturn:
    not_a_symbol(self)
    raise AssertionError


for _name in (
    "bool lt le gt ge index int float complex neg pos abs invert round trunc floor ceil "
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow matmul rmatmul "
    "and rand or ror xor rxor lshift rlshift rshift rrshift divmod rdivmod"
).split():
    setattr(Symbol, f"__{_name}__", _refuse)


def dynamic(name: str) -> Any:
    """A named run-time extent for `pl.Tensor[[M, 64], pl.f32]`. In the body the extent is `x.shape[0]`, not `M`.

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
