# SPDX-License-Identifier: MIT
"""An instruction translated where it is read or built."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pto_jit.dtypes import DType
from pto_jit.errors import CompilationError, Loc, TypeMismatchError
from pto_jit.ir.isa.row import Instruction, Last
from pto_jit.ir.nodes import Attr, Const, Op, Operand, Region, Stmt, Var
from pto_jit.ir.types import ScalarType, Type
from pto_jit.slotted import mutable

Infer = Callable[[str, tuple[Operand, ...], dict[str, Attr], tuple[Region, ...]], tuple[Type, ...]]


@mutable(eq=False)
class Expansion:
    """`Emit` for one instruction at `loc`: operations go to `append`, temporaries come from `fresh`.

    declared: the types of the destinations so far; before: the destination's value before the instruction.
    """

    infer: Infer | None
    append: Callable[[Stmt], None]
    fresh: Callable[[Type], Var]
    loc: Loc
    declared: tuple[Type | None, ...]
    before: Callable[[], Operand]

    def __call__(self, op: str, *args: Operand, **attrs: Attr) -> Operand:
        (kind,) = self.types(op, args, attrs)
        result = self.fresh(kind)
        self.append(Op(op, (result,), args, tuple(sorted(attrs.items())), (), self.loc))
        return result

    def types(self, op: str, args: Sequence[Operand], attrs: dict[str, Attr]) -> tuple[Type, ...]:
        if self.infer is None:
            raise TypeMismatchError(f"`{op}` is part of an instruction, which needs types", self.loc, code="PTO-T186",
                                    hint="parse with the typing rules")  # fmt: skip
        try:
            return self.infer(op, tuple(args), attrs, ())
        except CompilationError as error:
            raise error.at(self.loc) from None

    def old(self) -> Operand:
        return self.before()

    def scalar(self, value: Operand | int | float | bool, dtype: DType) -> Operand:
        return value if isinstance(value, (Var, Const)) else constant(value, dtype, self.loc)

    def expand(self, row: Instruction, args: Sequence[object]) -> list[Last]:
        """The last operations of the instruction, those before them appended."""
        try:
            found = row.expand(self, *args)
        except CompilationError as error:
            raise error.at(self.loc) from None
        return found if isinstance(found, list) else [found]


def constant(value: int | float | bool, dtype: DType, loc: Loc | None = None) -> Const:
    """A number as a constant of `dtype`; TypeMismatchError for one that the dtype does not have."""
    kind = ScalarType(dtype)
    number = isinstance(value, (int, float))
    if dtype.kind == "f" and number and not isinstance(value, bool):
        return Const(float(value), kind)
    if dtype.kind == "b" and number and value in (0, 1):
        return Const(bool(value), kind)
    if dtype.is_integer and isinstance(value, int):
        low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
        if low <= value < low + (1 << dtype.bits):
            return Const(int(value), kind)
    raise TypeMismatchError(
        f"{value!r} is not a number of {dtype}", loc, code="PTO-T199", hint="give a number that the dtype has"
    )
