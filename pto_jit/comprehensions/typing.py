# SPDX-License-Identifier: MIT
"""What the names of a statement are, and the element types of its expressions.

An operand of int and float type together is of the float type; two of one family are of the wider one; signed with
unsigned is signed of the larger width.  Literals take the type of what they meet and are i32 and f32 alone; indices and
sizes are i32 as values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pto_jit import dtypes
from pto_jit.comprehensions import nodes
from pto_jit.comprehensions.nodes import (
    Apply,
    Binary,
    Cast,
    Expression,
    Extent,
    HostFunction,
    Name,
    Number,
    Pad,
    Read,
    Select,
    Unary,
    literal,
    rebuilt,
)
from pto_jit.comprehensions.symbolic import Expr
from pto_jit.dtypes import DType
from pto_jit.errors import CompilationError, Loc, Note, RangeInferenceError, ShapeError, TypeMismatchError
from pto_jit.slotted import field, frozen, mutable

Kind = DType | str  # "int" and "float" are literals, which have no width

COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!="})
_FLOATING = frozenset(
    "exp exp2 expm1 log log2 log1p sqrt rsqrt sin cos tan tanh erf sigmoid silu gelu reciprocal atan2 fma".split()
)
_BOOLEAN = frozenset({"isnan", "isinf", "isfinite"})
_KEEPING = frozenset(
    "abs sign square relu floor ceil round trunc maximum minimum clip pow fmod".split()
)
FUNCTIONS = _FLOATING | _BOOLEAN | _KEEPING


@mutable(eq=False)
class Tensor:
    """A tensor as statements see it: stored as `name`, its first element at `lows`, with `extents` (None: not written).

    role: "input", "inout" (a parameter that is returned), "output" or "local".
    """

    name: str
    dtype: DType | None
    rank: int
    role: str
    extents: tuple[Expr, ...] | None = None
    lows: tuple[Expr, ...] = ()
    loc: Loc | None = None
    written: Any = None  # the first statement that wrote it


@frozen
class Scalar:
    """A scalar parameter: how the generated program names it, and its type."""

    text: str
    dtype: DType


@mutable(eq=False)
class Scope:
    """The names of one definition, or of one call of it."""

    definition: nodes.Definition
    sizes: dict[str, Expr] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    scalars: dict[str, Scalar] = field(default_factory=dict)
    host: dict[str, Any] = field(default_factory=dict)

    def is_index(self, name: str) -> bool:
        return not (name in self.sizes or name in self.tensors or name in self.scalars or name in self.host)

    def notes(self) -> tuple[Note, ...]:
        """A note that names the Python call that the text was given to."""
        origin = self.definition.origin
        return () if origin is None else (Note("in the text given to pto.comprehension", origin),)

    def error(self, kind: type[CompilationError], code: str, message: str, loc: Loc, hint: str,
              *notes: Note) -> CompilationError:  # fmt: skip
        return kind(message, loc, code=code, hint=hint, notes=(*notes, *self.notes()))


def width(kind: Kind) -> DType:
    """A literal alone is of 32 bits."""
    if isinstance(kind, DType):
        return kind
    return dtypes.i32 if kind == "int" else dtypes.f32


def common(a: Kind, b: Kind) -> Kind:
    """The type of an operation on two types."""
    if a == b:
        return a
    if isinstance(a, str) or isinstance(b, str):
        if isinstance(a, str) and isinstance(b, str):
            return "float"
        literal, other = (a, b) if isinstance(a, str) else (b, a)
        assert isinstance(other, DType)
        if other.is_float or (literal == "int" and other.is_integer):
            return other
        return width(literal)
    if a.kind == "b" or b.kind == "b":
        return b if a.kind == "b" else a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.is_float:
        return dtypes.f32 if a.bits == b.bits else a if a.bits > b.bits else b
    bits, signed = max(a.bits, b.bits), a.is_signed or b.is_signed
    return dtypes.BY_NAME[f"{'i' if signed else 'u'}{bits}"]


class Typing:
    """Types of expressions in a scope; the answers are kept by identity of the expression."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._known: dict[int, tuple[Expression, Kind]] = {}

    def of(self, e: Expression) -> Kind:
        found = self._known.get(id(e))
        if found is None:
            found = self._known[id(e)] = e, self._of(e)
        return found[1]

    def _of(self, e: Expression) -> Kind:
        if isinstance(e, Number):
            return dtypes.bool_ if isinstance(e.value, bool) else "int" if isinstance(e.value, int) else "float"
        if isinstance(e, Extent):
            return dtypes.i32
        if isinstance(e, Name):
            return self._name(e)
        if isinstance(e, Read):
            return self.scope.tensors[e.tensor].dtype or dtypes.f32
        if isinstance(e, Pad):
            return self.of(e.read)
        if isinstance(e, Cast):
            return e.dtype
        if isinstance(e, Unary):
            kind = self.of(e.operand)
            return dtypes.bool_ if e.op == "!" else dtypes.i32 if e.op == "-" and kind == dtypes.bool_ else kind
        if isinstance(e, Select):
            return common(self.of(e.yes), self.of(e.no))
        if isinstance(e, Binary):
            return self._binary(e)
        return self._apply(e)

    def _name(self, e: Name) -> Kind:
        scope = self.scope
        if e.name in scope.scalars:
            return scope.scalars[e.name].dtype
        value = scope.host.get(e.name)
        if isinstance(value, bool):
            return dtypes.bool_
        if value is not None and not isinstance(value, int):
            return "float"
        return "int" if value is not None else dtypes.i32

    def _binary(self, e: Binary) -> Kind:
        if e.op in COMPARISONS or e.op in ("&&", "||"):
            return dtypes.bool_
        left, right = self.of(e.left), self.of(e.right)
        both = common(left, right)
        if e.op == "/" and not self._floating(both):
            return dtypes.f32
        if both == dtypes.bool_ and e.op not in "&|^":
            return dtypes.i32
        return both

    def _apply(self, e: Apply) -> Kind:
        kinds = [self.of(a) for a in e.arguments]
        if e.function is not None:
            return self._foreign(e, kinds)
        if e.name in _BOOLEAN:
            return dtypes.bool_
        if e.name == "where":
            return common(kinds[1], kinds[2])
        both: Kind = kinds[0]
        for kind in kinds[1:]:
            both = common(both, kind)
        return both if e.name in _KEEPING or self._floating(both) else dtypes.f32

    def _foreign(self, e: Apply, kinds: Sequence[Kind]) -> DType:
        """The type that a function of the user gives, found by trying it on ones."""
        try:
            with np.errstate(all="ignore"):
                result = e.function(*(width(k).numpy.type(1) for k in kinds), **dict(e.keywords))
            found = dtypes.from_numpy(np.asarray(result).dtype)
            if type(result) in (bool, int, float):  # a literal of the function; NumPy's f64 is a float as well
                found = width("int" if isinstance(result, int) else "float")
        except Exception:  # whatever the user's function raises
            found = None
        if found is None:
            raise self.scope.error(
                TypeMismatchError, "PTO-R040", f"the element type of `{e.name}(...)` cannot be found by calling it",
                e.loc, f"write it as a conversion: `pl.f32({e.name}(...))`",
            )  # fmt: skip
        return found

    @staticmethod
    def _floating(kind: Kind) -> bool:
        return kind == "float" or (isinstance(kind, DType) and kind.is_float)

    def integral(self, e: Expression) -> bool:
        kind = self.of(e)
        return kind == "int" or (isinstance(kind, DType) and kind.is_integer)


def checked(e: Expression, typing: Typing, floor: bool) -> Expression:
    """The expression with its reads checked; `floor`: `/` of integers rounds down, as in the text form."""
    scope = typing.scope
    if isinstance(e, Read):
        found = scope.tensors.get(e.tensor)
        if found is None:
            raise scope.error(
                CompilationError, "PTO-R015", f"`{e.tensor}` is used here, but nothing defines such a tensor", e.loc,
                "make it a parameter, or write it in a statement above",
            )  # fmt: skip
        if len(e.subscripts) != found.rank:
            raise scope.error(
                ShapeError, "PTO-R016", f"`{e.tensor}` has {found.rank} "
                f"dimension{'s' * (found.rank != 1)}, found {len(e.subscripts)}", e.loc,
                "give one subscript for each dimension",
            )  # fmt: skip
    if isinstance(e, Name) and e.name in scope.tensors:
        tensor = scope.tensors[e.name]
        return checked(Read(e.name, (), e.loc), typing, floor) if tensor.rank == 0 else _whole(scope, e, tensor)
    if isinstance(e, Apply) and e.function is None and e.name not in FUNCTIONS and e.name != "where":
        raise scope.error(
            CompilationError, "PTO-R030", f"`{e.name}` is not a function of single elements", e.loc,
            "write `pl.sum(...)`, and divide by the sizes in a statement below" if e.name == "mean" else
            "functions of tiles do not stand in a comprehension",
        )  # fmt: skip
    if isinstance(e, Apply) and isinstance(e.function, HostFunction):
        function = scope.host.get(e.function.name)
        if not callable(function):
            raise scope.error(
                TypeMismatchError, "PTO-R038",
                f"`{e.name}` is called, but it is {function!r}", e.loc, "pass a function",
            )  # fmt: skip
        known = getattr(function, "__pto_builtin__", None)
        e = Apply(known or e.name, e.arguments, None if known else function, e.keywords, e.loc)
    made = rebuilt(e, lambda child: checked(child, typing, floor))
    if isinstance(made, Read):
        for subscript in made.subscripts:
            if not typing.integral(subscript):
                raise not_integral(scope, subscript, typing.of(subscript), "a subscript")
    if isinstance(made, Pad):
        _check_pad(made, typing)
    if isinstance(made, Unary) and made.op == "~" and not _bitwise(typing, made.operand):
        raise not_integral(scope, made, typing.of(made.operand), "the operand of `~`")
    if isinstance(made, Binary):
        if made.op == "/" and floor and typing.integral(made.left) and typing.integral(made.right):
            return Binary("//", made.left, made.right, made.loc)
        if made.op in "&|^<<>>" and made.op not in "<>" and not _bitwise(typing, made.left, made.right):
            raise not_integral(scope, made, typing.of(made), f"an operand of `{made.op}`")
    return made


def _bitwise(typing: Typing, *operands: Expression) -> bool:
    return all(typing.integral(o) or typing.of(o) == dtypes.bool_ for o in operands)


def _check_pad(e: Pad, typing: Typing) -> None:
    """What stands outside of a tensor has to be one of its elements."""
    inside, outside, value = typing.of(e.read), typing.of(e.value), literal(e.value)
    whole = value is not None and (isinstance(value, int) or value.is_integer())
    if common(inside, outside) != inside and not whole:
        raise typing.scope.error(
            TypeMismatchError, "PTO-R020", f"`{e.read.tensor}` has {width(inside)}, and {width(outside)} does not "
            "become the narrower type without an explicit cast", e.value.loc,
            f"convert the value: `{width(inside)}(...)`",
        )  # fmt: skip


def _whole(scope: Scope, e: Name, tensor: Tensor) -> Expression:
    raise scope.error(
        ShapeError, "PTO-R016", f"`{e.name}` has {tensor.rank} dimension{'s' * (tensor.rank != 1)}, found 0", e.loc,
        "give one subscript for each dimension",
    )  # fmt: skip


def not_integral(scope: Scope, e: Expression, kind: Kind, what: str) -> CompilationError:
    return scope.error(
        TypeMismatchError, "PTO-R017", f"{what} is an integer, found {width(kind)}", e.loc,
        "convert it: `int32(...)` in text, `pl.i32(...)` in Python",
    )  # fmt: skip


def unreduced(scope: Scope, s: nodes.Statement, index: str, loc: Loc) -> CompilationError:
    return scope.error(
        RangeInferenceError, "PTO-R013", f"`{s.target}` is assigned with `=`, but `{index}` is not on the left: "
        "it needs a reduction", loc, f"write `+=!` (`pl.sum(...)` in Python), or put `{index}` on the left",
    )  # fmt: skip
