# SPDX-License-Identifier: MIT
"""Run-time printing and assertions."""

from __future__ import annotations

from string import Formatter
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.elementwise import tested, truth
from pto_jit.codegen.builtins.promote import value_of
from pto_jit.codegen.builtins.registry import builtin
from pto_jit.codegen.emit import constant
from pto_jit.codegen.texts import RunTimeText, check
from pto_jit.codegen.values import Scalar, Tensor, Tile
from pto_jit.dtypes import DType, i64
from pto_jit.errors import Loc, TypeMismatchError
from pto_jit.ir.nodes import Op, Operand

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


@builtin("print")
def print_(cg: Generator, fmt: Any, *values: Any) -> None:
    text = fmt
    if isinstance(fmt, RunTimeText):
        if values:
            raise cg.error(TypeMismatchError, "pl.print: an f-string with run-time values, and values behind it",
                           code="PTO-T083", hint="write all of them into the f-string, or behind a format")  # fmt: skip
        text, values = fmt.template, tuple(f.value for f in fmt.fields)
    elif not isinstance(text, str):
        values = (fmt, *values)
        text = " ".join("{}" for _ in values)
    operands: list[Operand] = []
    for value in values:
        item = (
            value_of(cg, value, "an argument of pl.print") if not isinstance(value, (Scalar, Tile, Tensor)) else value
        )
        item = value_of(cg, item)
        operands.append(item.operand if isinstance(item, Scalar) else item.var)
    cg.e.op("print", operands, {"fmt": text})
    if values and not any(field is not None for _, field, _, _ in Formatter().parse(text)):
        from pto_jit.codegen.unused import warn

        warn(cg, f"pl.print: {text!r} has no place for a value: `{{}}` prints one")


@builtin("comprehension.fitting")
def fitting(cg: Generator, value: Any, dtype: DType, limits: tuple[int, int], message: str, *place: Any) -> Any:
    """An integer argument of a comprehension as one of a narrower type, which has to hold it."""
    number = value_of(cg, value, "an argument")
    if isinstance(number, Scalar) and number.dtype == i64:
        ends = zip(("ge", "le"), limits, strict=True)
        low, high = (cg.e.scalar(op, [number.operand, constant(end, i64)]).operand for op, end in ends)
        holds = cg.e.scalar("and", [low, high]).operand
        attrs = (("always", True), ("error", "ArgumentError"), ("message", message))
        cg.e.append(Op("assert", (), (holds,), attrs, (), Loc(*place)))
    return cg.e.cast(number, dtype)


@builtin("assert_")
def assert_(cg: Generator, cond: Any, msg: Any = "") -> None:
    message = msg if isinstance(msg, RunTimeText) else cg.static(msg, "the message of an assertion")
    if isinstance(cond, Tile):
        from pto_jit.codegen.builtins.registry import call

        cond = call("all", cg, (cond,), {})
    cond = tested(cg, cond)
    if not isinstance(cond, (Scalar, Tensor)) and not cond:
        said = message.shortened if isinstance(message, RunTimeText) else message
        raise cg.error(TypeMismatchError, f"assertion failed at compile time: {said}", code="PTO-N020",
                       hint="the condition is a compile-time value and is false")  # fmt: skip
    if isinstance(cond, Scalar) and isinstance(message, RunTimeText):
        check(cg, truth(cg, cond), message)
    elif isinstance(cond, Scalar):
        cg.e.op("assert", [truth(cg, cond).operand], {"message": str(message)})
