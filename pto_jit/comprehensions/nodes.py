# SPDX-License-Identifier: MIT
"""A comprehension as data: what the text form and the Python form are read into, and all that follows reads.

Places are left out of comparison, so the two spellings of one computation are equal.  Names of operations are those of
the language (`exp`, `maximum`); `let` names are replaced by what they stand for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Literal

from pto_jit.dtypes import DType
from pto_jit.errors import NOWHERE, Loc
from pto_jit.slotted import field, frozen

# -- expressions ----------------------------------------------------------------------------------------------------


@frozen
class Number:
    """A literal; an int, float or bool without a width of its own."""

    value: int | float | bool
    loc: Loc = field(default=NOWHERE, compare=False)


@frozen
class Name:
    """An index, a size, or a scalar parameter."""

    name: str
    loc: Loc = field(default=NOWHERE, compare=False)


@frozen
class Extent:
    """The size of a tensor along an axis: `A.0`, `A.shape[0]`."""

    tensor: str
    axis: int
    loc: Loc = field(default=NOWHERE, compare=False)


@frozen
class Read:
    """An element of a tensor: `A(i, 2*j)`, `A[i, 2 * j]`; no subscripts for rank 0."""

    tensor: str
    subscripts: tuple[Expression, ...]
    loc: Loc = field(default=NOWHERE, compare=False)


@frozen
class Pad:
    """A read that takes no part in inference and is `value` outside of its tensor."""

    read: Read
    value: Expression
    loc: Loc = field(default=NOWHERE, compare=False)


@frozen
class Unary:
    """`-`, `!` (logical) or `~`."""

    op: str
    operand: Expression
    loc: Loc = field(default=NOWHERE, compare=False)


@frozen
class Binary:
    """`+ - * / // % **`, comparisons, `&&`, `||`, and bitwise `& | ^ << >>`."""

    op: str
    left: Expression
    right: Expression
    loc: Loc = field(default=NOWHERE, compare=False)


@frozen
class Select:
    """`condition ? yes : no`: only the chosen one is evaluated."""

    condition: Expression
    yes: Expression
    no: Expression
    loc: Loc = field(default=NOWHERE, compare=False)


@frozen
class Cast:
    dtype: DType
    operand: Expression
    loc: Loc = field(default=NOWHERE, compare=False)


@frozen
class HostFunction:
    """A function that is a compile-time parameter."""

    name: str


@frozen
class Apply:
    """A function of the language by name, or any other callable (`function`), applied to scalars.

    `keywords` are compile-time arguments: `gelu(x, approximate="tanh")`.
    """

    name: str
    arguments: tuple[Expression, ...]
    function: Any = None
    keywords: tuple[tuple[str, Any], ...] = ()
    loc: Loc = field(default=NOWHERE, compare=False)


Expression = Number | Name | Extent | Read | Pad | Unary | Binary | Select | Cast | Apply

# -- statements -----------------------------------------------------------------------------------------------------

Reduction = Literal["sum", "prod", "min", "max"]


@frozen
class Range:
    """`where name in low:high`, half-open."""

    name: str
    low: Expression
    high: Expression
    loc: Loc = field(default=NOWHERE, compare=False)


@frozen
class Statement:
    """`target(indices) op value where ranges, exists`.

    `fresh`: the result starts from the identity of `op` (`+=!`); otherwise `op` accumulates into what is there (`+=`).
    Without `op` the value is stored.
    """

    target: str
    indices: tuple[str, ...]
    op: Reduction | None
    fresh: bool
    value: Expression
    ranges: tuple[Range, ...] = ()
    exists: tuple[Expression, ...] = ()
    loc: Loc = field(default=NOWHERE, compare=False)
    target_loc: Loc = field(default=NOWHERE, compare=False)


@frozen
class CallStatement:
    """`T = matmul(A, B)`: another comprehension; `callee` is its name, `definition` what it is."""

    targets: tuple[str, ...]
    definition: Definition
    arguments: tuple[str, ...]
    loc: Loc = field(default=NOWHERE, compare=False)


@frozen
class Parameter:
    """A tensor with sizes that are names or numbers; a scalar when `sizes` is empty; a host value without a dtype.

    `tensor`: a tensor of rank 0, not a number.
    """

    name: str
    dtype: DType | None
    sizes: tuple[str | int, ...] = ()
    loc: Loc = field(default=NOWHERE, compare=False)

    @property
    def rank(self) -> int:
        return len(self.sizes)


@frozen
class Return:
    """A returned tensor, with a type when the text gives one."""

    name: str
    dtype: DType | None = None
    sizes: tuple[str | int, ...] | None = None
    loc: Loc = field(default=NOWHERE, compare=False)


@frozen
class Definition:
    """One comprehension."""

    name: str
    parameters: tuple[Parameter, ...]
    returns: tuple[Return, ...]
    body: tuple[Statement | CallStatement, ...]
    floor: bool = field(default=True, compare=False)  # `/` of integers rounds down, as in the text form
    doc: str | None = field(default=None, compare=False)
    loc: Loc = field(default=NOWHERE, compare=False)
    origin: Loc | None = field(default=None, compare=False)  # the Python call that the text was given to


# -- walking --------------------------------------------------------------------------------------------------------


def children(e: Expression) -> tuple[Expression, ...]:
    """The operands of an expression, in order."""
    if isinstance(e, Read):
        return e.subscripts
    if isinstance(e, Pad):
        return (e.read, e.value)
    if isinstance(e, (Unary, Cast)):
        return (e.operand,)
    if isinstance(e, Binary):
        return (e.left, e.right)
    if isinstance(e, Select):
        return (e.condition, e.yes, e.no)
    return e.arguments if isinstance(e, Apply) else ()


def walk(e: Expression) -> Iterator[Expression]:
    """The expression and everything in it, operands after what they belong to."""
    yield e
    for child in children(e):
        yield from walk(child)


def rebuilt(e: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """The expression with `change` applied to its operands."""
    loc = e.loc
    if isinstance(e, Read):
        return Read(e.tensor, tuple(map(change, e.subscripts)), loc)
    if isinstance(e, Pad):
        read = change(e.read)
        assert isinstance(read, Read)
        return Pad(read, change(e.value), loc)
    if isinstance(e, Unary):
        return Unary(e.op, change(e.operand), loc)
    if isinstance(e, Cast):
        return Cast(e.dtype, change(e.operand), loc)
    if isinstance(e, Binary):
        return Binary(e.op, change(e.left), change(e.right), loc)
    if isinstance(e, Select):
        return Select(change(e.condition), change(e.yes), change(e.no), loc)
    if isinstance(e, Apply):
        return Apply(e.name, tuple(map(change, e.arguments)), e.function, e.keywords, loc)
    return e


def names_in(e: Expression) -> Iterator[Name]:
    return (n for n in walk(e) if isinstance(n, Name))


def literal(e: Expression) -> int | float | bool | None:
    """The number that literals with signs and divisions between them are: `-1.0/0.0` is -inf, as in C; None for others.

    A division of integers is left to the one who knows whether it rounds.
    """
    if isinstance(e, Number):
        return e.value
    if isinstance(e, Unary) and e.op == "-":
        value = literal(e.operand)
        return None if value is None else -value
    if isinstance(e, Binary) and e.op == "/":
        a, b = literal(e.left), literal(e.right)
        if a is None or b is None or not (isinstance(a, float) or isinstance(b, float)):
            return None
        if b:
            return a / b
        return math.nan if not a or a != a else math.copysign(math.inf, a) * math.copysign(1.0, b)
    return None
