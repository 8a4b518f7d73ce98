# SPDX-License-Identifier: MIT
"""The instructions of the PTO ISA as programs of the operations that the IR has.

One row per instruction: the function builder makes a method of each (`.rowexpandsub("d", "x", "v")`), the `.pto` parser
takes each as a spelling (`%d = trowexpandsub %x, %v : ...`).  A row that is one operation of its own name needs no
translation in text; the others are translated where they are read, so that programs hold operations only.

A form lists the operands by role, the destination first::

    T  the tile that is assigned            t  a tile
    D  the scalar that is assigned          s  a scalar: its name, or a number
    x  a memref                             i  an index: an integer, or the name of an integer scalar
    w  a word (a mode)                      n  a compile-time integer               o  a tile or a scalar

`=` gives a default; one that stands alone makes the operand optional.  `expand` gets what the form lists after the
destinations, in its order, makes all operations but the last through `e`, and returns the last: (operation, operands,
attributes), or a list of them, one for each destination.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pto_jit.dtypes import DType, bool_, f64, i64
from pto_jit.errors import ShapeError, TypeMismatchError
from pto_jit.ir.nodes import Attr, Const, Operand, Var
from pto_jit.ir.types import ScalarType, TileType, Type
from pto_jit.slotted import frozen

Last = tuple[str, Sequence[Operand], dict[str, Attr]]


class Emit(Protocol):
    """Where an expansion stands.

    A scalar operand may still be a Python number; `scalar` makes it a constant of the dtype it stands beside.
    """

    declared: tuple[Type | None, ...]
    """The types that the destinations have so far; None where the operation decides."""

    def __call__(self, op: str, *args: Operand, **attrs: Attr) -> Operand:
        """Append an operation; its one result."""
        ...

    def old(self) -> Operand:
        """The value that the destination has before the instruction."""
        ...

    def scalar(self, value: Operand | int | float | bool, dtype: DType) -> Operand:
        """An operand as it is; a number as a constant of `dtype`, TypeMismatchError when it is none."""
        ...


Expand = Callable[..., Last | list[Last]]
Given = Operand | int | float | bool
I64 = ScalarType(i64)


@frozen
class Parameter:
    """An operand of an instruction by role, see above."""

    role: str
    name: str
    default: int | str | None = None
    optional: bool = False


@frozen
class Instruction:
    """A row. `name` is the builder's method; `spelling` what stands in text."""

    name: str
    family: str
    doc: str
    parameters: tuple[Parameter, ...]
    expand: Expand

    @property
    def destinations(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.parameters if p.role in "TD")

    @property
    def operands(self) -> tuple[Parameter, ...]:
        """What is read: everything but the destinations."""
        return tuple(p for p in self.parameters if p.role not in "TD")

    @property
    def spelling(self) -> str:
        name = self.name.removesuffix("_")
        return f"s{name.removeprefix('scalar_')}" if name.startswith("scalar_") else f"t{name}"

    @property
    def on_tiles(self) -> bool:
        """Whether it is tile work, which belongs in in-core functions."""
        return not self.name.startswith("scalar_") and self.name != "print"


def parameters(form: str) -> tuple[Parameter, ...]:
    """The operands that a form lists."""
    found: list[Parameter] = []
    for word in form.split():
        role, _, rest = word.partition(":")
        name, equals, default = rest.partition("=")
        value: int | str | None = default or None
        if default.lstrip("-").isdigit():
            value = int(default)
        found.append(Parameter(role, name, value, bool(equals)))
    return tuple(found)


def instruction(name: str, family: str, form: str, expand: Expand, doc: str) -> Instruction:
    return Instruction(name, family, doc, parameters(form), expand)


# -- what expansions are made of --------------------------------------------------------------------------------------


def one(op: str, **attrs: Attr) -> Expand:
    """An expansion into one operation; numbers among the operands take the dtype of those that have one."""

    def expand(e: Emit, *args: Given) -> Last:
        return op, alike(e, *args), attrs

    return expand


def alike(e: Emit, *args: Given) -> list[Operand]:
    """Operands of one dtype: that of the first that has one, else the destination's."""
    dtype = dtype_beside(e, *args)
    return [e.scalar(arg, dtype) for arg in args]


def dtype_beside(e: Emit, *args: Given) -> DType:
    for arg in args:
        if isinstance(arg, (Var, Const)):
            return arg.type.dtype
    return declared_dtype(e) or default_dtype(args[0])


def default_dtype(value: Given) -> DType:
    """The dtype of a number that stands beside nothing, as in text."""
    assert not isinstance(value, (Var, Const))
    return bool_ if isinstance(value, bool) else i64 if isinstance(value, int) else f64


def declared_dtype(e: Emit) -> DType | None:
    """The dtype that the destination is declared with."""
    kind = e.declared[0] if e.declared else None
    return None if kind is None else kind.dtype


def converted(e: Emit, gives: DType, last: Last) -> Last:
    """An operation whose result is of `gives`, with the result in the dtype that the destination is declared with."""
    wanted = declared_dtype(e)
    if wanted in (None, gives):
        return last
    op, args, attrs = last
    return "cast", (e(op, *args, **attrs),), {"dtype": wanted}


def index(value: int) -> Const:
    """A constant offset or extent."""
    return Const(value, I64)


def indices(values: Sequence[int]) -> tuple[Const, ...]:
    return tuple(map(index, values))


def wrong_shape(name: str, message: str, hint: str) -> ShapeError:
    return ShapeError(f"`{name}`: {message}", code="PTO-H150", hint=hint)


def mode_among(name: str, value: str, known: Sequence[str]) -> str:
    """A mode in lower case; TypeMismatchError for one that is not known."""
    word = value.lower()
    if word not in known:
        raise TypeMismatchError(
            f"`{name}`: there is no mode {value!r}", code="PTO-T195", hint=f"the modes are {', '.join(known)}"
        )
    return word


def target_shape(e: Emit, name: str) -> tuple[int, ...]:
    """The extents of the destination, which has to be declared."""
    kind = e.declared[0]
    shape = kind.shape if isinstance(kind, TileType) else (None,)
    known = tuple(extent for extent in shape if extent is not None)
    if len(known) != len(shape):
        raise wrong_shape(name, "the shape of the result is not known", "declare it: `.tile(name, rows, cols, dtype)`")
    return known


def matrix(operand: Operand, name: str) -> tuple[int, int]:
    """Rows and columns of a tile of two axes."""
    shape = operand.type.shape if isinstance(operand.type, TileType) else ()
    if len(shape) != 2 or shape[0] is None or shape[1] is None:
        raise wrong_shape(name, f"an operand is {operand.type}", "it takes tiles of known rows and columns")
    return shape[0], shape[1]
