# SPDX-License-Identifier: MIT
"""Python's operators: done by Python on compile-time values, by operations of the language on run-time values.

Where objects of the user's classes hold run-time values, or meet them, their methods are compiled, in Python's order.
"""

from __future__ import annotations

import ast
import dataclasses
import operator
import types
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pto_jit.codegen import builtins
from pto_jit.codegen.emit import index
from pto_jit.codegen.items import Step
from pto_jit.codegen.iteration import LoopSpec, as_items
from pto_jit.codegen.merging import is_number
from pto_jit.codegen.values import Scalar, Tensor, Tile, is_runtime
from pto_jit.dtypes import f64, i64, u64
from pto_jit.errors import CompilationError, TypeMismatchError

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

_KINDS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult, ast.BitAnd, ast.BitOr,
          ast.BitXor, ast.LShift, ast.RShift)  # fmt: skip
_NAMES = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
NAMES: dict[type[ast.operator], str] = dict(zip(_KINDS, _NAMES, strict=True))
BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    kind: getattr(operator, f"__{name}__") for kind, name in NAMES.items()
}
IN_PLACE: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    kind: getattr(operator, f"__i{name}__") for kind, name in NAMES.items()
}
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos, ast.USub: operator.neg, ast.Invert: operator.invert, ast.Not: operator.not_,
}  # fmt: skip
_UNARY_METHOD = {ast.UAdd: "__pos__", ast.USub: "__neg__", ast.Invert: "__invert__"}
_COMPARE_METHOD: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("__eq__", "__eq__"), ast.NotEq: ("__ne__", "__ne__"), ast.Lt: ("__lt__", "__gt__"),
    ast.LtE: ("__le__", "__ge__"), ast.Gt: ("__gt__", "__lt__"), ast.GtE: ("__ge__", "__le__"),
}  # fmt: skip
_NUMBERS = frozenset({int, float, bool})
_NEVER_A_NUMBER = (str, tuple, list, dict)


def method_of(value: Any, name: str) -> Any:
    """The method of that name that the user's class of an object has in Python, or None."""
    kind = type(value)
    if kind in _NUMBERS or is_runtime(value) or kind.__module__.startswith("pto_jit."):
        return None
    function = getattr(kind, name, None)
    return function if hasattr(function, "__code__") else None


def is_generated(function: Any) -> bool:
    """Whether `dataclasses` wrote a method: it has no source."""
    qualified = getattr(function, "__qualname__", "")
    code = getattr(function, "__code__", None)
    return "__create_fn__.<locals>." in qualified or (code is not None and code.co_filename == "<string>")


class Operators:
    """What operators give at the current place."""

    def __init__(self, generator: Generator) -> None:
        self.g = generator

    # -- two operands -------------------------------------------------------------------------------------------

    def operate(self, op: type[ast.operator], left: Any, right: Any, *, in_place: bool = False) -> Any:
        """`left op right`, or what `left op= right` binds `left` to."""
        g = self.g
        if type(left) in _NUMBERS and type(right) in _NUMBERS:
            return g.python(BINARY[op], left, right)
        staged = is_runtime(left) or is_runtime(right)
        if staged and (is_number(left) or is_number(right) or (is_runtime(left) and is_runtime(right))):
            return builtins.binary(op, g, left, right)
        name = NAMES[op]
        calls = list(_calls(left, right, f"__{name}__", f"__r{name}__"))
        if in_place and (function := method_of(left, f"__i{name}__")) is not None:
            calls.insert(0, (function, left, right))
        if calls and (staged or g.find_runtime((left, right)) is not None):
            for function, value, other in calls:
                result = g.inline(function, (value, other), {})
                if result is not NotImplemented:
                    return result
            if not staged:
                return g.python(_unsupported, f"__{name}__", left, right)
        if staged:
            if isinstance(left, (tuple, list, str)) or isinstance(right, (tuple, list, str)):
                self._not_numbers(op, left, right)
            return builtins.binary(op, g, left, right)
        if in_place and isinstance(left, (list, set, dict, np.ndarray)):
            g.check_mutable(left, "this assignment")
        result = g.python((IN_PLACE if in_place else BINARY)[op], left, right)
        if isinstance(result, np.ndarray) and result is not left:
            return g.array(result)
        return g.own(result) if isinstance(result, (list, set, dict)) and result is not left else result

    def in_place(self, op: type[ast.operator], left: Any, right: Any) -> Any:
        """What `left op= right` binds `left` to; a tensor's elements are changed, as those of an array of NumPy."""
        if isinstance(left, Tensor):
            g = self.g
            item = Ellipsis if left.rank else ()
            old = left if left.rank else builtins.subscript(g, left, ())
            builtins.store_subscript(g, left, item, self.operate(op, old, right))
            return left
        return self.operate(op, left, right, in_place=True)

    def _not_numbers(self, op: type[ast.operator], left: Any, right: Any) -> None:
        value, other = (left, right) if isinstance(left, (tuple, list, str)) else (right, left)
        hint = "compute with the items one by one, e.g. in a comprehension"
        if isinstance(value, str):
            hint = 'text is made while the kernel is compiled: run-time values print with `pl.print("{}", value)`'
        elif op is ast.Mult and isinstance(other, Scalar) and other.dtype.is_integer:
            hint = f"a {type(value).__name__} has a length known while compiling: make a tensor, `pl.zeros([n])`"
        raise self.g.error(
            TypeMismatchError,
            f"a {type(value).__name__} and a run-time value cannot be combined with this operator",
            code="PTO-T013",
            hint=hint,
            notes=self.g.origin(other),
        )

    # -- one operand --------------------------------------------------------------------------------------------

    def unary(self, op: type[ast.unaryop], value: Any) -> Any:
        g = self.g
        if is_runtime(value):
            return builtins.unary(op, g, value)
        if op is ast.Not:
            truth = self.truth(value)
            return builtins.unary(op, g, truth) if is_runtime(truth) else not truth
        own = self.method(value, _UNARY_METHOD[op])
        return g.python(UNARY[op], value) if own is None else own()

    def method(self, value: Any, name: str, *met: Any) -> Callable[..., Any] | None:
        """A method of an object of the user's that holds run-time values, or meets them in `met`, to be compiled in
        place; None where Python's own meaning holds."""
        function = method_of(value, name)
        if function is None or self.g.find_runtime((value, met)) is None:
            return None
        return lambda *args: self.g.inline(function, (value, *args), {})

    def truth(self, value: Any) -> Scalar | bool:
        """The truth of any value: a run-time bool where it is decided at run time."""
        g, value = self.g, builtins.tested(self.g, value)
        if is_runtime(value):
            return builtins.truth(g, value)
        for name in ("__bool__", "__len__"):
            own = self.method(value, name)
            if own is not None:
                found = own()
                return builtins.truth(g, found) if is_runtime(found) else bool(g.python(bool, found))
        return bool(g.python(bool, value))

    # -- comparisons --------------------------------------------------------------------------------------------

    def compare(self, op: type[ast.cmpop], left: Any, right: Any) -> Any:
        """`left op right` for one comparison."""
        g = self.g
        if op in (ast.Is, ast.IsNot):  # identity with None and other compile-time objects is decided now
            values = [v for v in (left, right) if isinstance(v, (Scalar, Tile)) or is_number(v)]
            if len(values) == 2 and any(map(is_runtime, values)):
                return builtins.compare(op, g, left, right)
            return (left is right) == (op is ast.Is)
        if op in (ast.In, ast.NotIn):
            found = self._contains(left, right)
            return found if op is ast.In else self.unary(ast.Not, found)
        staged = is_runtime(left) or is_runtime(right)
        if staged and (is_number(left) or is_number(right) or (is_runtime(left) and is_runtime(right))):
            return builtins.compare(op, g, left, right)
        calls = list(self._comparisons(op, left, right))
        if calls and (staged or g.find_runtime((left, right)) is not None):
            for call in calls:
                result = call()
                if result is not NotImplemented:
                    return result
            if not staged:
                if op in (ast.Eq, ast.NotEq):
                    return (left is right) == (op is ast.Eq)
                return g.python(_unsupported, _COMPARE_METHOD[op][0], left, right)
        if staged:
            return self._with_runtime(op, left, right)
        for kind in (tuple, list):
            if isinstance(left, kind) and isinstance(right, kind) and g.find_runtime((left, right)) is not None:
                return self._compare_items(op, left, right, 0)
        return g.python(COMPARE[op], left, right)

    def _with_runtime(self, op: type[ast.cmpop], left: Any, right: Any) -> Any:
        """A comparison of a run-time value and what is neither a number nor compares itself."""
        g = self.g
        value, other = (left, right) if is_runtime(left) else (right, left)
        if (other is None or isinstance(other, _NEVER_A_NUMBER)) and op in (ast.Eq, ast.NotEq):
            if isinstance(value, Scalar):
                return op is ast.NotEq  # a number never equals one of these
            if other is None:
                kind = type(value).__name__.lower()
                raise g.error(
                    TypeMismatchError,
                    f"a {kind} is compared with None, element by element",
                    code="PTO-T010",
                    hint="write `is None` or `is not None` to tell whether there is one",
                    notes=g.origin(value),
                )
        return builtins.compare(op, g, left, right)

    def _comparisons(self, op: type[ast.cmpop], left: Any, right: Any) -> Iterator[Callable[[], Any]]:
        """The calls of methods that decide a comparison, in Python's order."""
        name, reflected = _COMPARE_METHOD[op]
        sides = [(left, right, name), (right, left, reflected)]
        if type(right) is not type(left) and issubclass(type(right), type(left)):
            sides.reverse()
        for value, other, wanted in sides:
            negated = False
            function = method_of(value, wanted)
            if function is None and op is ast.NotEq:  # object.__ne__ asks __eq__
                function, negated = method_of(value, "__eq__"), True
            if function is not None:
                yield lambda f=function, v=value, o=other, n=negated: self._compared(f, v, o, n)

    def _compared(self, function: Any, value: Any, other: Any, negated: bool) -> Any:
        found = self._of_fields(function, value, other) if is_generated(function) else MISSED
        if found is MISSED:
            found = self.g.inline(function, (value, other), {})
        return self.unary(ast.Not, found) if negated and found is not NotImplemented else found

    def _of_fields(self, function: Any, value: Any, other: Any) -> Any:
        """What a comparison that a dataclass was given does: it compares the fields as tuples."""
        name = function.__name__
        owner = next((c for c in type(value).__mro__ if vars(c).get(name) is function), None)
        kinds = {methods[0]: op for op, methods in _COMPARE_METHOD.items()}
        if owner is None or name not in kinds or not dataclasses.is_dataclass(owner):
            return MISSED
        if type(other) is not type(value):
            return NotImplemented
        fields = [f.name for f in dataclasses.fields(owner) if f.compare]
        left, right = ([getattr(v, f) for f in fields] for v in (value, other))
        return self._compare_items(kinds[name], left, right, 0)

    def _compare_items(self, op: type[ast.cmpop], left: Sequence[Any], right: Sequence[Any], k: int) -> Any:
        """A comparison of sequences from their items at `k` on: the first that differ decide."""
        if op is ast.NotEq:
            return self.unary(ast.Not, self._compare_items(ast.Eq, left, right, k))
        g = self.g
        node = g.node
        assert node is not None
        if op is ast.Eq:
            equal: Any = len(left) == len(right)
            for a, b in zip(left, right, strict=False):
                equal = g.choices.both(equal, lambda a=a, b=b: self._same(a, b), node, is_and=True)
            return equal
        if k == min(len(left), len(right)):
            return COMPARE[op](len(left), len(right))
        same = self._same(left[k], right[k])
        if not isinstance(same, Scalar):
            return self._compare_items(op, left, right, k + 1) if same else self.compare(op, left[k], right[k])
        return g.choices.choose(same, lambda: self._compare_items(op, left, right, k + 1),
                                lambda: self.compare(op, left[k], right[k]), node)  # fmt: skip

    def _same(self, a: Any, b: Any) -> Scalar | bool:
        """Whether containers take two items for the same: they are identical or equal."""
        return a is b or self.truth(self.compare(ast.Eq, a, b))

    # -- `in` ---------------------------------------------------------------------------------------------------

    def _contains(self, item: Any, container: Any) -> Any:
        g = self.g
        if is_runtime(container):
            raise g.error(
                TypeMismatchError,
                "`in` needs a compile-time container",
                code="PTO-T014",
                hint="for a tile write `pl.any(t == v)`",
                notes=g.origin(container),
            )
        if isinstance(container, LoopSpec):
            container = as_items(container) or container
        own = self.method(container, "__contains__", item)
        if own is not None:
            return self.truth(own(item))
        if g.find_runtime(item) is None and (
            isinstance(container, (dict, set, frozenset)) or g.find_runtime(container) is None
        ):
            return bool(g.python(COMPARE[ast.In], item, container))
        if isinstance(container, range) and isinstance(item, Scalar) and all(
            -(2**63) <= end < 2**63 for end in (*container[:1], *container[-1:])
        ):  # fmt: skip
            return self._in_range(item, container)
        node = g.node
        assert node is not None
        count = 0

        def join(found: Any, step: Step) -> Any:
            nonlocal count
            count += 1
            if count > g.unroll_limit:
                raise g.error(
                    CompilationError,
                    f"this `in` compares with one item after another and exceeds the limit of {g.unroll_limit} items",
                    code="PTO-N069",
                    hint="search a tensor in a loop over `pl.range`, or ask whether a number lies in a `range`",
                )
            return g.choices.both(found, lambda: self._same(item, step()), node, is_and=False)

        return g.items.search(container, node, True, join)

    def _in_range(self, number: Scalar, items: range) -> Any:
        """Whether a run-time number is one of those of a range of 64-bit integers."""
        if not items:
            return False
        e = self.g.e
        checks: list[Scalar] = []

        def check(op: str, value: Scalar, other: int | float) -> None:
            checks.append(e.scalar(op, [value.operand, e.cast(other, value.dtype).operand], weak=True))

        if number.dtype.is_float:
            number = e.cast(number, f64)
            checks.append(e.scalar("eq", [number.operand, e.scalar("trunc", [number.operand]).operand], weak=True))
            check("lt", number, 2.0**63)  # what is below -2**63 becomes that, and what is no number 0
        elif number.dtype == u64:
            check("le", number, 2**63 - 1)
        value = e.cast(number, i64)
        first, last, step = min(items[0], items[-1]), max(items[0], items[-1]), abs(items.step)
        if number.dtype == f64 and first == -(2**63):
            check("ge", number, -(2.0**63))
        check("ge", value, first)
        check("le", value, last)
        if step != 1:
            check("eq", e.scalar("mod", [value.operand, index(step)]), first % step)
        found = checks[0]
        for more in checks[1:]:
            found = e.scalar("and", [found.operand, more.operand], weak=True)
        return found


class _Missed:
    """The type of `MISSED`: a comparison that has to be compiled from its source."""


MISSED = _Missed()


def _calls(left: Any, right: Any, name: str, reflected: str) -> Iterator[tuple[types.FunctionType, Any, Any]]:
    """The methods that `left op right` tries, with their arguments, in Python's order."""
    sides = [(left, right, name)]
    if type(left) is not type(right):
        sides.append((right, left, reflected))
        mine, theirs = getattr(type(left), reflected, None), getattr(type(right), reflected, None)
        if issubclass(type(right), type(left)) and mine is not theirs:  # a subclass that refines it goes first
            sides.reverse()
    for value, other, wanted in sides:
        function = method_of(value, wanted)
        if function is not None:
            yield function, value, other


def _unsupported(method: str, left: Any, right: Any) -> None:
    kinds = f"{type(left).__name__!r} and {type(right).__name__!r}"
    raise TypeError(f"no `{method}` of its operands takes them: {kinds}")

