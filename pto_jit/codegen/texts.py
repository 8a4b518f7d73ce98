# SPDX-License-Identifier: MIT
"""f-strings with run-time values: what `assert`, `pl.assert_` and `pl.print` say when the program runs."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.promote import value_of
from pto_jit.codegen.emit import constant
from pto_jit.codegen.regions import Status
from pto_jit.codegen.values import Scalar, Tensor, Tile, is_runtime
from pto_jit.dtypes import bool_, f64, i64, u64
from pto_jit.errors import CompilationError
from pto_jit.slotted import frozen

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

MOST = 3
"""Numbers that a failure reports."""


@frozen(eq=False)
class Field:
    """A run-time value in a text."""

    value: Scalar | Tile | Tensor
    conversion: str  # "", or "!r" and the like
    format: str

    def place(self, what: str) -> str:
        """Where `str.format` puts it; `what`: nothing, or the number of an argument and what it is read as."""
        return f"{{{what}{self.conversion}{':' if self.format else ''}{self.format}}}"


@frozen(eq=False)
class RunTimeText:
    """The parts of an f-string; what is known while compiling is text already."""

    parts: tuple[str | Field, ...]

    @property
    def fields(self) -> list[Field]:
        return [p for p in self.parts if isinstance(p, Field)]

    @property
    def template(self) -> str:
        """For `str.format`, with the values in order."""
        return "".join(p.place("") if isinstance(p, Field) else _literal(p) for p in self.parts)

    @property
    def shortened(self) -> str:
        """Without the values."""
        return "".join("..." if isinstance(p, Field) else p for p in self.parts)


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def text_of(g: Generator, node: ast.expr) -> Any:
    """The value of an expression; of an f-string with run-time values a RunTimeText."""
    if not isinstance(node, ast.JoinedStr):
        return g.expressions.visit(node)
    parts: list[str | Field] = []
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            value = g.expressions.visit(part.value)
            if is_runtime(value):
                spec = "" if part.format_spec is None else str(g.expressions.visit(part.format_spec))
                parts.append(Field(value, "" if part.conversion == -1 else f"!{chr(part.conversion)}", spec))
            else:
                parts.append(g.expressions.format(part, value))
        else:
            parts.append(str(g.expressions.visit(part)))
    if any(isinstance(p, Field) for p in parts):
        return RunTimeText(tuple(parts))
    return "".join(str(p) for p in parts)


def check(g: Generator, holds: Scalar, text: RunTimeText) -> None:
    """An assertion with such a text, whose values are at hand."""
    numbers = [_number(g, field.value) for field in text.fields]
    if len(numbers) > MOST:
        raise g.error(CompilationError, f"an assertion that tells {len(numbers)} run-time values", code="PTO-N075",
                      hint=f"it can tell {MOST}: the ones that say most")  # fmt: skip
    if not g.options.debug:
        g.e.op("assert", [holds.operand], {"message": text.shortened})
        return
    bits = [_bits(g, number).operand for number in numbers]
    places = iter([f"{k}{_READ.get(n.dtype, '.f64' if n.dtype.is_float else '')}" for k, n in enumerate(numbers)])
    told = "".join(p.place(next(places)) if isinstance(p, Field) else _literal(p) for p in text.parts)
    g.e.op("assert", [holds.operand, *bits], {"message": "", "told": told})


_READ = {u64: ".u64", bool_: ".truth"}  # what the text makes of the 64 bits that are told


def _number(g: Generator, value: Any) -> Scalar:
    number = value_of(g, value, "a value in the text of an assertion")
    if not isinstance(number, Scalar):
        raise g.error(CompilationError, "an assertion that tells a tile", code="PTO-N076",
                      hint="tell a number: `pl.max(t)`, or an element")  # fmt: skip
    return number


def _bits(g: Generator, number: Scalar) -> Scalar:
    if number.dtype.is_float:
        return g.e.scalar("bitcast", [g.e.cast(number, f64).operand], {"dtype": i64})
    return g.e.cast(number, i64)


def check_by(g: Generator, holds: Scalar, node: ast.expr) -> None:
    """An assertion whose text is made where it fails, as in Python: what is read for it may not be there otherwise."""
    place = g.node
    assert place is not None
    made: list[Any] = []

    def look() -> Status:
        made.append(text_of(g, node))
        return None

    g.control.branch(look)  # of which nothing stays: it says what the text is
    g.node = place
    text = made[-1]
    if not isinstance(text, RunTimeText):
        g.e.op("assert", [holds.operand], {"message": str(g.static(text, "the message of an assertion"))})
    elif not g.options.debug:
        check(g, holds, text)
    else:

        def fail() -> Status:
            found = text_of(g, node)
            assert isinstance(found, RunTimeText)
            g.node = place
            check(g, Scalar(constant(False, bool_), False, g.e.loc), found)
            return None

        g.control.run_if(holds, lambda: None, fail, place, None)
