# SPDX-License-Identifier: MIT
"""Expressions of a statement as text of the generated program: one element at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from pto_jit import dtypes
from pto_jit.comprehensions.forms import NotLinear, least, symbolic
from pto_jit.comprehensions.inference import Inferred
from pto_jit.comprehensions.lowering.naming import Names
from pto_jit.comprehensions.nodes import (
    Apply,
    Binary,
    Cast,
    Expression,
    Extent,
    Name,
    Number,
    Pad,
    Read,
    Select,
    Unary,
    literal,
    walk,
)
from pto_jit.comprehensions.symbolic import Expr, at_least_zero, name
from pto_jit.comprehensions.typing import COMPARISONS, Kind, Tensor, Typing, common, width
from pto_jit.dtypes import DType
from pto_jit.errors import TypeMismatchError

_STRENGTH = {"|": 4, "^": 5, "&": 6, "<<": 7, ">>": 7, "+": 8, "-": 8, "*": 9, "/": 9, "//": 9, "%": 9, "**": 11}
_NOT, _AND, _OR, _COMPARE, _MINUS = 2, 1, 0, 3, 10
_ALONE = 20  # binds as strongly as a name

# Text and how strongly it binds.
Text = tuple[str, int]


class Elements:
    """Writes the expressions of one statement.

    variables: index -> its loop variable; stored: stored name of a tensor -> name in the program; size: how an
    expression over sizes is written.
    """

    def __init__(self, inferred: Inferred, typing: Typing, names: Names, variables: Mapping[str, str],
                 stored: Mapping[str, str], size: Callable[[Expr], str]) -> None:  # fmt: skip
        self.inferred, self.scope, self.typing = inferred, inferred.scope, typing
        self.names, self.variables, self.stored, self.size = names, variables, stored, size
        self.held: dict[tuple[str, tuple[str, ...]], str] = {}
        self.box = {i: (low, high - 1) for i, (low, high) in inferred.ranges.items()}

    # -- integers -------------------------------------------------------------------------------------------------

    def form(self, e: Expr) -> str:
        """An integer expression over sizes, scalars and indices."""
        return self.size(e.replace(self._variable))

    def _variable(self, text: str) -> Expr | None:
        found = self.variables.get(text)
        return None if found is None or found == text else name(found, signed=True)

    def subscript(self, e: Expression, low: Expr) -> str:
        """The place of an element along an axis whose first element is at `low`."""
        found = symbolic(e, self.scope)
        if found.known:
            return self.form(found - low)
        text, _ = self._integer(e)
        if low.value == 0:
            return text
        offset = self.form(low)
        return f"{text} - {offset}" if offset.isidentifier() or offset.isdigit() else f"{text} - ({offset})"

    def _integer(self, e: Expression) -> Text:
        """A subscript that reads tensors or divides by what is not constant; in 64 bits."""
        found = symbolic(e, self.scope)
        if found.known:
            text = self.form(found)
            return text, _ALONE if text.isidentifier() or text.isdigit() else 8
        if isinstance(e, Binary) and e.op in _STRENGTH:
            strength = _STRENGTH[e.op]
            left, right = self._integer(e.left), self._integer(e.right)
            return f"{_in(left, strength)} {e.op} {_in(right, strength + 1)}", strength
        if isinstance(e, Unary) and e.op == "-":
            return f"-{_in(self._integer(e.operand), _MINUS)}", _MINUS
        if isinstance(e, Apply) and e.function is None and e.name in ("minimum", "maximum"):
            texts = ", ".join(self._integer(a)[0] for a in e.arguments)
            return f"{'min' if e.name == 'minimum' else 'max'}({texts})", _ALONE
        return f"pl.i64({self.text(e)[0]})", _ALONE

    # -- values ---------------------------------------------------------------------------------------------------

    def value(self, e: Expression, dtype: DType) -> str:
        """The value of an expression, in a given type."""
        return self.converted(e, dtype)[0]

    def converted(self, e: Expression, kind: Kind) -> Text:
        """The value in a type; literals stay literals."""
        own = self.typing.of(e)
        if isinstance(kind, str) or own == kind:
            return self.text(e)
        if isinstance(own, str):
            value = literal(e)
            if value is not None and kind.is_integer:
                return self.whole(e, value, kind)
            if isinstance(e, Number) or kind.is_float or own == "int":
                if isinstance(e, (Number, Unary)):
                    return self.text(e)
                return f"pl.{kind.name}({self.text(e)[0]})", _ALONE
            return f"pl.cast({self.text(e)[0]}, pl.{kind.name})", _ALONE
        if isinstance(e, (Name, Extent)) and (integer := self.integer_value(e)) is not None:
            return f"pl.{kind.name}({integer})", _ALONE
        if isinstance(e, Binary) and kind.is_float and self._of_sizes(e):  # exact, however large
            return f"pl.{kind.name}({self.form(symbolic(e, self.scope))})", _ALONE
        return f"pl.cast({self.text(e)[0]}, pl.{kind.name})", _ALONE

    def whole(self, e: Expression, value: int | float, dtype: DType) -> Text:
        """A literal as a number of an integer type, towards zero as conversions are.  Raises TypeMismatchError."""
        low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
        if not math.isfinite(value) or not low <= int(value) < low + (1 << dtype.bits):
            raise self.scope.error(
                TypeMismatchError, "PTO-T012", f"the number {value} does not fit {dtype}", e.loc,
                "convert what it meets to a wider type, or use another number",
            )  # fmt: skip
        return number(int(value))

    def converted_literal(self, e: Cast, value: int | float) -> Text:
        """The conversion of a literal: a number of that type."""
        if e.dtype.kind == "b":
            return f"pl.bool_({value != 0})", _ALONE
        text = self.whole(e.operand, value, e.dtype) if e.dtype.is_integer else number(value)
        return f"pl.{e.dtype.name}({text[0]})", _ALONE

    def _of_sizes(self, e: Expression) -> bool:
        """Whether an expression is made of sizes and whole numbers alone."""
        parts = [x for x in walk(e) if not isinstance(x, Binary)]
        return symbolic(e, self.scope).known and all(
            isinstance(x, Extent) or (isinstance(x, Number) and isinstance(x.value, int))
            or (isinstance(x, Name) and x.name in self.scope.sizes) for x in parts
        )  # fmt: skip

    def integer_value(self, e: Name | Extent) -> str | None:
        """The text of an index, a size or an extent; None for other names."""
        if isinstance(e, Name) and (e.name in self.scope.scalars or e.name in self.scope.host):
            return None
        return self.form(symbolic(e, self.scope))

    def text(self, e: Expression) -> Text:
        """The value in the type that `Typing` says."""
        if isinstance(e, Number):
            return number(e.value)
        if isinstance(e, (Name, Extent)):
            integer = self.integer_value(e)
            if integer is not None:
                return f"pl.i32({integer})", _ALONE
            assert isinstance(e, Name)
            scalar = self.scope.scalars.get(e.name)
            return (scalar.text, _ALONE) if scalar is not None else number(self.scope.host[e.name])
        if isinstance(e, Read):
            return self.read(e), _ALONE
        if isinstance(e, Pad):
            return self.padded(e), _ALONE
        if isinstance(e, Cast):
            value = literal(e.operand)
            return self.converted(e.operand, e.dtype) if value is None else self.converted_literal(e, value)
        if isinstance(e, Unary):
            return self.unary(e)
        if isinstance(e, Select):
            return self.select(e)
        if isinstance(e, Binary):
            return self.binary(e)
        return self.applied(e), _ALONE

    def read(self, e: Read) -> str:
        tensor = self.scope.tensors[e.tensor]
        plain = tuple(s.name if isinstance(s, Name) else "" for s in e.subscripts)
        held = self.held.get((tensor.name, plain))
        if held is not None:
            return held
        places = [self.subscript(s, low) for s, low in zip(e.subscripts, tensor.lows, strict=True)]
        return f"{self.stored[tensor.name]}[{', '.join(places) or point(tensor)}]"

    def padded(self, e: Pad) -> str:
        tensor = self.scope.tensors[e.read.tensor]
        tests: list[str] = []
        for axis, sub in enumerate(e.read.subscripts):
            place = symbolic(sub, self.scope) - tensor.lows[axis]
            extent = (tensor.extents or ())[axis]
            text = self.subscript(sub, tensor.lows[axis])
            if not self._certain(place):
                tests.append(f"{text} >= 0")
            if not self._certain(extent - 1 - place):
                tests.append(f"{text} < {self.form(extent)}")
        kind = self.typing.of(e.read)
        inside, outside = self.read(e.read), self.converted(e.value, kind)[0]
        if not tests:
            return inside
        if isinstance(kind, DType) and isinstance(self.typing.of(e.value), str):
            outside = f"pl.{kind.name}({outside})"
        return f"({inside} if {' and '.join(tests)} else {outside})"

    def _certain(self, form: Expr) -> bool:
        try:
            return form.known and at_least_zero(least(form, self.box))
        except NotLinear:
            return False

    def unary(self, e: Unary) -> Text:
        kind = self.typing.of(e.operand)
        if e.op == "!" or (e.op == "~" and kind == dtypes.bool_):
            return f"not {_in(self.condition(e.operand), _NOT)}", _NOT
        operand = self.converted(e.operand, dtypes.i32) if kind == dtypes.bool_ else self.text(e.operand)
        return f"{e.op}{_in(operand, _MINUS)}", _MINUS

    def condition(self, e: Expression) -> Text:
        if self.typing.of(e) == dtypes.bool_:
            return self.text(e)
        return f"{_in(self.text(e), _COMPARE + 1)} != 0", _COMPARE

    def select(self, e: Select) -> Text:
        kind = common(self.typing.of(e.yes), self.typing.of(e.no))
        condition, yes, no = self.condition(e.condition)[0], self.typed(e.yes, kind), self.typed(e.no, kind)
        if self.inferred.guarded:  # what is not chosen may lie outside of its tensor
            return f"({yes} if {condition} else {no})", _ALONE
        return f"pl.where({condition}, {yes}, {no})", _ALONE

    def typed(self, e: Expression, kind: Kind) -> str:
        """The value with a type of its own, literals too."""
        text = self.converted(e, kind)[0]
        if isinstance(self.typing.of(e), str):
            return f"pl.{width(kind).name}({text})"
        return text

    def binary(self, e: Binary) -> Text:
        op = e.op
        value = literal(e)
        if value is None and op in ("//", "%") and self.typing.of(e) == "int":
            value = _divided(op, literal(e.left), literal(e.right))
        if value is not None:
            return number(value)
        if op in ("&&", "||"):
            strength = _AND if op == "&&" else _OR
            left, right = self.condition(e.left), self.condition(e.right)
            return f"{_in(left, strength)} {'and' if op == '&&' else 'or'} {_in(right, strength + 1)}", strength
        kind = self.operand_kind(e)
        left, right = self.converted(e.left, kind), self.converted(e.right, kind)
        if op in COMPARISONS:
            return f"{_in(left, _COMPARE + 1)} {op} {_in(right, _COMPARE + 1)}", _COMPARE
        strength = _STRENGTH[op]
        if op == "**":
            return f"{_in(left, strength + 1)} {op} {_in(right, strength)}", strength
        return f"{_in(left, strength)} {op} {_in(right, strength + 1)}", strength

    def operand_kind(self, e: Binary) -> Kind:
        """The type in which an operation is computed."""
        kind = common(self.typing.of(e.left), self.typing.of(e.right))
        if e.op == "/" and (kind == "int" or (isinstance(kind, DType) and not kind.is_float)):
            return dtypes.f32
        if kind == dtypes.bool_ and e.op not in COMPARISONS and e.op not in "&|^":
            return dtypes.i32
        return kind

    def applied(self, e: Apply) -> str:
        extra = "".join(f", {key}={value!r}" for key, value in e.keywords)
        if e.function is not None:
            args = [self.typed(a, self.typing.of(a)) for a in e.arguments]
            return f"{self.names.function(e.function, e.name)}({', '.join(args)}{extra})"
        if e.name == "where":
            kind = self.typing.of(e)
            texts = [self.condition(e.arguments[0]), *((self.typed(a, kind), 0) for a in e.arguments[1:])]
            args = [self.arranged(a, text, e)[0] for a, text in zip(e.arguments, texts, strict=True)]
            return f"pl.where({', '.join(args)})"
        kind: Kind = self.typing.of(e.arguments[0])
        for a in e.arguments[1:]:
            kind = common(kind, self.typing.of(a))
        own = self.typing.of(e)
        if own != dtypes.bool_ and isinstance(own, DType) and own.is_float:
            kind = own
        if all(isinstance(self.typing.of(a), str) for a in e.arguments):  # of literals alone
            return f"pl.{e.name}({', '.join(self.typed(a, width(kind)) for a in e.arguments)}{extra})"
        args = [self.arranged(a, self.converted(a, kind), e)[0] for a in e.arguments]
        return f"pl.{e.name}({', '.join(args)}{extra})"

    def arranged(self, e: Expression, text: Text, around: Expression) -> Text:
        """An argument as it stands beside the others of `around`."""
        return text


def _divided(op: str, a: Any, b: Any) -> int | None:
    """Literals divided as integers are: by 0 it is 0."""
    return None if a is None or b is None else 0 if b == 0 else a // b if op == "//" else a % b


def _in(text: Text, strength: int) -> str:
    """The text as an operand of what binds with `strength`."""
    return text[0] if text[1] >= strength else f"({text[0]})"


def point(tensor: Tensor) -> str:
    """The subscript of what is not indexed: parameters of rank 0 have none, what the program makes has one element."""
    return "()" if tensor.role in ("input", "inout") else "0"


def number(value: Any) -> Text:
    """A literal."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")', _ALONE
    return repr(value), _ALONE if value >= 0 else _MINUS
