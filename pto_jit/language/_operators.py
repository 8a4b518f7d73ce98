# SPDX-License-Identifier: MIT
"""Python's operators on the values of eager mode."""

from __future__ import annotations

from typing import Any

from pto_jit.language import _eager as eager  # which imports this module by way of `_tile`


class Operators:
    """Python's operators and the methods that tiles and tensors share; every result is a new value."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # equality is elementwise

    def __add__(self, other: Any) -> Any:
        return eager.elementwise("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return eager.elementwise("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return eager.elementwise("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return eager.elementwise("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return eager.elementwise("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return eager.elementwise("mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return eager.elementwise("div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return eager.elementwise("div", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return eager.elementwise("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return eager.elementwise("floordiv", other, self)

    def __mod__(self, other: Any) -> Any:
        return eager.elementwise("mod", self, other)

    def __rmod__(self, other: Any) -> Any:
        return eager.elementwise("mod", other, self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __pow__(self, other: Any) -> Any:
        return eager.elementwise("pow", self, other)

    def __rpow__(self, other: Any) -> Any:
        return eager.elementwise("pow", other, self)

    def __matmul__(self, other: Any) -> Any:
        return eager.dot(self, other, None, None)

    def __rmatmul__(self, other: Any) -> Any:
        return eager.dot(other, self, None, None)

    def __and__(self, other: Any) -> Any:
        return eager.elementwise("and", self, other)

    def __rand__(self, other: Any) -> Any:
        return eager.elementwise("and", other, self)

    def __or__(self, other: Any) -> Any:
        return eager.elementwise("or", self, other)

    def __ror__(self, other: Any) -> Any:
        return eager.elementwise("or", other, self)

    def __xor__(self, other: Any) -> Any:
        return eager.elementwise("xor", self, other)

    def __rxor__(self, other: Any) -> Any:
        return eager.elementwise("xor", other, self)

    def __lshift__(self, other: Any) -> Any:
        return eager.elementwise("shl", self, other)

    def __rlshift__(self, other: Any) -> Any:
        return eager.elementwise("shl", other, self)

    def __rshift__(self, other: Any) -> Any:
        return eager.elementwise("shr", self, other)

    def __rrshift__(self, other: Any) -> Any:
        return eager.elementwise("shr", other, self)

    def __lt__(self, other: Any) -> Any:
        return eager.elementwise("lt", self, other)

    def __le__(self, other: Any) -> Any:
        return eager.elementwise("le", self, other)

    def __gt__(self, other: Any) -> Any:
        return eager.elementwise("gt", self, other)

    def __ge__(self, other: Any) -> Any:
        return eager.elementwise("ge", self, other)

    def __eq__(self, other: object) -> Any:
        return eager.elementwise("eq", self, other)

    def __ne__(self, other: object) -> Any:
        return eager.elementwise("ne", self, other)

    def __neg__(self) -> Any:
        return eager.elementwise("neg", self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return eager.elementwise("abs", self)

    def __invert__(self) -> Any:
        return eager.elementwise("not", self)

    def __round__(self) -> Any:
        return eager.elementwise("round", self)

    def to(self, dtype: Any) -> Any:
        """`pl.cast(self, dtype)`."""
        return eager.cast(self, dtype)
