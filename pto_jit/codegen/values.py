# SPDX-License-Identifier: MIT
"""What a name stands for while a kernel is compiled.

A value that is none of the classes below is an ordinary Python object known at compile time.  These are the run-time
values: they stand for numbers, tiles and arrays that exist only when the compiled program runs.
"""

from __future__ import annotations

from typing import Any, NoReturn

from pto_jit.dtypes import DType
from pto_jit.errors import NOWHERE, Loc
from pto_jit.ir.nodes import Const, Operand, Var
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.slotted import frozen


@frozen(eq=False)
class Scalar:
    """A run-time number.

    `weak` numbers came from Python numbers and take the dtype of what they meet; their operand is i64, f64 or bool_.
    `origin` is where the value became a run-time one (shown when a compile-time value was wanted).
    """

    operand: Operand
    weak: bool = False
    origin: Loc = NOWHERE

    @property
    def dtype(self) -> DType:
        assert isinstance(self.operand.type, ScalarType)
        return self.operand.type.dtype


@frozen(eq=False)
class Tile:
    """A tile; `extents` are its declared extents as i64 operands. A *generated* tile fits any valid extent."""

    var: Var
    extents: tuple[Operand, ...]
    generated: bool = False
    origin: Loc = NOWHERE

    @property
    def type(self) -> TileType:
        assert isinstance(self.var.type, TileType)
        return self.var.type

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def rank(self) -> int:
        return len(self.extents)


@frozen(eq=False)
class Tensor:
    """An array in global memory or a view of one; `extents` are i64 operands (constants where they are known).

    A view like `x[:]` is `all_of` x: tiles are loaded from x and stored to it, so that all that is written of one
    place names it alike.
    """

    var: Var
    extents: tuple[Operand, ...]
    origin: Loc = NOWHERE
    all_of: Var | None = None

    @property
    def memory(self) -> Var:
        """Where tiles of it are loaded from and stored to."""
        return self.all_of or self.var

    @property
    def type(self) -> TensorType:
        assert isinstance(self.var.type, TensorType)
        return self.var.type

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def rank(self) -> int:
        return len(self.extents)


class RunTimeValueUsed(TypeError):
    """Python itself tried to compute with a run-time value (in a function that cannot be compiled)."""

    def __init__(self, value: object) -> None:
        super().__init__("a run-time value was used where Python needs a compile-time one")
        self.value = value


def _refuse(self: Any, *_: object) -> NoReturn:
    raise RunTimeValueUsed(self)


# Python code that runs at compile time may carry run-time values around, never compute with them: without these a
# comparison would silently compare the stand-ins and `bool` would be true.
for _class in (Scalar, Tile, Tensor):
    for _name in (
        "bool eq ne lt le gt ge iter len contains index int float complex getitem neg pos abs invert round "
        "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow matmul rmatmul "
        "and rand or ror xor rxor lshift rlshift rshift rrshift divmod rdivmod format hash"
    ).split():
        setattr(_class, f"__{_name}__", _refuse)


def is_runtime(value: object) -> bool:
    """Whether `value` is a run-time value (and not a compile-time Python object)."""
    return isinstance(value, (Scalar, Tile, Tensor))


def static_extent(operand: Operand) -> int | None:
    """The extent when it is known at compile time."""
    return int(operand.value) if isinstance(operand, Const) else None
