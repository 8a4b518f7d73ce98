# SPDX-License-Identifier: MIT
"""Numbers of the IR as the program writes them: `x.shape[0]`, `len(xs)`, `n * 2`.

For texts that the user reads.  A parameter is written as the place among the arguments where it stands, a number that
was computed as the operation on numbers that computed it.  What the program has no expression for has no text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pto_jit.codegen.params import ContainerParam, Param, ParamKind, StaticParam, TensorParam
from pto_jit.ir.nodes import Const, Op, Operand, Var
from pto_jit.slotted import field, frozen

_SIGNS = {"add": ("+", 1), "sub": ("-", 1), "mul": ("*", 2), "floordiv": ("//", 2), "mod": ("%", 2)}
_CALLS = ("min", "max")
_MOST = 60
"""Characters of an expression; longer ones say less than a question mark."""


@frozen
class Place:
    """How a run-time value among the arguments is written.

    lengths: by axis, what its extent is instead of `.shape[axis]`, and how much more it is: offsets of n lists are
    n + 1 numbers.
    """

    text: str
    lengths: Mapping[int, tuple[str, int]] = field(default_factory=dict)


def places(params: Sequence[Param], rest: str | None) -> list[Place]:
    """The places of all run-time values of some parameters, in order; rest: the name of `*args`."""
    out: list[Place] = []
    surplus = 0
    for param in params:
        if param.name == rest:
            out += _inside(param.what, f"{rest}[{surplus}]")
            surplus += 1
        else:
            out += _inside(param.what, param.name)
    return out


def _inside(what: ParamKind, text: str) -> Iterator[Place]:
    if isinstance(what, StaticParam):
        return
    if not isinstance(what, ContainerParam):
        symbols = what.symbols if isinstance(what, TensorParam) else ()
        yield Place(text, {axis: (symbol, 0) for axis, symbol in enumerate(symbols) if symbol is not None})
        return
    own: Any = getattr(type(what.value), "__pto_places__", None) if what.kind == "object" else None
    if own is not None:
        yield from own(what.value, text)
        return
    for key, item in what.items:
        yield from _inside(item, f"{text}.{key}" if what.kind == "object" else f"{text}[{key!r}]")


class Spelling:
    """places: of variables, by name; made_by: the operation that made a variable, where it is known."""

    def __init__(self, places: Mapping[str, Place], made_by: Callable[[str], Op | None]) -> None:
        self._places = places
        self._made_by = made_by

    def of(self, value: Operand, names: Mapping[str, str] | None = None) -> str | None:
        """A number as an expression; names: what the program calls variables that are not parameters."""
        found = self._number(value, names or {}, 6)
        return found[0] if found is not None and len(found[0]) <= _MOST else None

    def place(self, name: str) -> str | None:
        """Where a parameter stands among the arguments."""
        found = self._places.get(name)
        return None if found is None else found.text

    def extent(self, tensor: Var, axis: int) -> str | None:
        """The extent of a parameter as an expression."""
        found = self._dim(tensor, axis, {})
        return None if found is None else found[0]

    def length(self, tensor: Var, axis: int) -> tuple[str, int] | None:
        """The extent of a parameter: an expression, and what is added to it."""
        place = self._places.get(tensor.name)
        return None if place is None else place.lengths.get(axis, (f"{place.text}.shape[{axis}]", 0))

    def sum_of(self, value: Var) -> tuple[str, int] | None:
        """A number as an expression and what is added to it."""
        op = self._made_by(value.name)
        if op is not None and op.op == "dim" and isinstance(op.args[0], Var):
            return self.length(op.args[0], int(op.attr("axis")))  # type: ignore[arg-type]
        text = self.of(value)
        return None if text is None else (text, 0)

    def _number(self, value: Operand, names: Mapping[str, str], depth: int) -> tuple[str, int] | None:
        """The text and how strongly it binds: 1 a sum, 2 a product, 3 anything else."""
        if isinstance(value, Const):
            return str(value.value), 3
        name = names.get(value.name)
        if name is not None:
            return name, 3
        place = self._places.get(value.name)
        if place is not None:
            return place.text, 3
        op = self._made_by(value.name)
        if op is None or depth == 0:
            return None
        if op.op == "dim" and isinstance(op.args[0], Var):
            return self._dim(op.args[0], int(op.attr("axis")), names)  # type: ignore[arg-type]
        if op.op not in _SIGNS and op.op not in _CALLS:
            return None
        left, right = (self._number(a, names, depth - 1) for a in op.args)
        if left is None or right is None:
            return None
        if op.op == "add" and left[0] == "0":
            return right
        if op.op in _CALLS:
            return f"{op.op}({left[0]}, {right[0]})", 3
        sign, binds = _SIGNS[op.op]
        first = left[0] if left[1] >= binds else f"({left[0]})"
        second = right[0] if right[1] > binds or (right[1] == binds and op.op == "add") else f"({right[0]})"
        return f"{first} {sign} {second}", binds

    def _dim(self, tensor: Var, axis: int, names: Mapping[str, str]) -> tuple[str, int] | None:
        found = self.length(tensor, axis)
        if found is None:
            name = names.get(tensor.name)
            return None if name is None else (f"{name}.shape[{axis}]", 3)
        text, more = found
        return (text, 3) if not more else (f"{text} + {more}", 1)
