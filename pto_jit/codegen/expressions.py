# SPDX-License-Identifier: MIT
"""Expressions: computed by Python on compile-time values, compiled where a run-time value is involved."""

from __future__ import annotations

import ast
import functools
import operator
import types
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pto_jit.codegen import builtins
from pto_jit.codegen.frames import MISSING, KernelFunction
from pto_jit.codegen.syntax import refuse
from pto_jit.codegen.tables import MOST, item_of
from pto_jit.codegen.values import Scalar, is_runtime
from pto_jit.errors import CompilationError, PtoError, TypeMismatchError

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

class Expressions:
    """Evaluates expression nodes in the current frame."""

    def __init__(self, generator: Generator) -> None:
        self.g = generator
        self._table: dict[type[ast.AST], Callable[[Any], Any]] = {
            ast.Constant: lambda node: node.value,
            ast.Name: generator.lookup,
            ast.BinOp: self.binary,
            ast.Call: lambda node: self.g.calls.visit(node),
            ast.Attribute: self.attribute,
            ast.Subscript: self.subscript,
            ast.Compare: self.compare,
            ast.BoolOp: self.boolean,
            ast.UnaryOp: self.unary,
            ast.IfExp: self.conditional,
            ast.Tuple: self.tuple_,
            ast.List: lambda node: self.g.own(self.items(node.elts)),
            ast.Set: lambda node: self.g.own(self._set(node)),
            ast.Dict: self.dict_,
            ast.Slice: self.slice_,
            ast.NamedExpr: self.named,
            ast.Lambda: self.lambda_,
            ast.JoinedStr: self.joined,
            ast.FormattedValue: self.formatted,
            ast.ListComp: lambda node: self.g.own(self.g.items.comprehension(node)),
            ast.SetComp: lambda node: self.g.own(set(self.g.items.comprehension(node))),
            ast.GeneratorExp: lambda node: self.g.own(self.g.items.generator(node)),
            ast.DictComp: lambda node: self.g.own(dict(self.g.items.comprehension(node))),
        }

    def visit(self, node: ast.AST) -> Any:
        handler = self._table.get(type(node))
        if handler is None:
            raise refuse(self.g, node)
        return handler(node)

    # -- operators ----------------------------------------------------------------------------------------------

    def binary(self, node: ast.BinOp) -> Any:
        left, right = self.visit(node.left), self.visit(node.right)
        self.g.node = node
        return self.g.operators.operate(type(node.op), left, right)

    def unary(self, node: ast.UnaryOp) -> Any:
        value = self.condition(node.operand) if type(node.op) is ast.Not else self.visit(node.operand)
        self.g.node = node
        return self.g.operators.unary(type(node.op), value)

    def compare(self, node: ast.Compare) -> Any:
        left = self.visit(node.left)
        return self._chain(node, left, 0)

    def _chain(self, node: ast.Compare, left: Any, k: int) -> Any:
        """`left op[k] comparator[k] ...`: each comparator is computed once, and only when it is needed."""
        g = self.g
        right = self.visit(node.comparators[k])
        g.node = node
        result = g.operators.compare(type(node.ops[k]), left, right)
        if k + 1 == len(node.ops):
            return result
        return self.g.choices.both(result, lambda: self._chain(node, right, k + 1), node, is_and=True)

    def boolean(self, node: ast.BoolOp) -> Any:
        is_and = isinstance(node.op, ast.And)
        return self._rest(node, self.visit, self.visit(node.values[0]), 1, is_and)

    def _rest(self, node: ast.BoolOp, visit: Callable[[ast.expr], Any], value: Any, k: int, is_and: bool) -> Any:
        if k == len(node.values):
            return value

        def rest() -> Any:
            self.g.choices.reveal(node.values[k - 1], is_and)
            return self._rest(node, visit, visit(node.values[k]), k + 1, is_and)

        return self.g.choices.both(value, rest, node, is_and=is_and)

    def condition(self, node: ast.expr) -> Any:
        """The value of a test, of which only the truth counts: a list stands for its length in it, and what `and` and
        `or` join for the truth of each."""
        if isinstance(node, ast.BoolOp):
            return self._rest(node, self._truth, self._truth(node.values[0]), 1, isinstance(node.op, ast.And))
        value = self.visit(node)
        test = builtins.tested(self.g, value)
        return builtins.truth(self.g, test) if test is not value and is_runtime(test) else test

    def _truth(self, node: ast.expr) -> Any:
        value = self.condition(node)
        self.g.node = node
        return self.g.operators.truth(value)

    def conditional(self, node: ast.IfExp) -> Any:
        g = self.g
        test = self.condition(node.test)
        g.node = node.test
        cond = g.operators.truth(test)
        if not isinstance(cond, Scalar):
            return self.visit(node.body if cond else node.orelse)

        def side(value: ast.expr, truth: bool) -> Any:
            g.choices.reveal(node.test, truth)
            return self.visit(value)

        return g.choices.choose(cond, lambda: side(node.body, True), lambda: side(node.orelse, False), node)

    # -- parts of values ----------------------------------------------------------------------------------------

    def attribute(self, node: ast.Attribute) -> Any:
        value = self.visit(node.value)
        self.g.node = node
        return self.get_attribute(value, node.attr)

    def get_attribute(self, value: Any, name: str) -> Any:
        g = self.g
        if is_runtime(value):
            return builtins.attribute(g, value, name)
        own = getattr(type(value), "__pto_attribute__", None)
        if own is not None:
            return own(value, g, name)
        owner = getattr(value, "__self__") if type(value) is super else value  # noqa: B009  (which stubs do not know)
        computed = _member(value, name)
        if type(computed) in _COMPUTED and g.find_runtime(owner) is not None:  # as a method of the object is compiled
            getter = computed.fget if isinstance(computed, property) else getattr(computed, "func", None)
            if isinstance(getter, types.FunctionType):
                return g.inline(getter, (owner,))
        try:
            return getattr(value, name)
        except AttributeError as error:
            if isinstance(error, PtoError):
                raise
            raise self._no_attribute(value, name) from error
        except PtoError:
            raise
        except Exception:
            return g.python(getattr, value, name)

    def _no_attribute(self, value: Any, name: str) -> CompilationError:
        from difflib import get_close_matches  # an error is on its way: not every compilation's cost

        from pto_jit.codegen.numpy_names import missing

        kind = getattr(value, "__name__", None) or type(value).__name__
        hint = missing(name) if kind == "pto_jit.language" else None
        if hint is None:
            close = get_close_matches(name, dir(value), 1)
            known = "attributes of compile-time objects are looked up by Python while the kernel is compiled"
            hint = f"did you mean `{close[0]}`?" if close else known
        return self.g.error(CompilationError, f"`{kind}` has no attribute `{name}`", code="PTO-N017", hint=hint)

    def subscript(self, node: ast.Subscript) -> Any:
        g = self.g
        value = self.visit(node.value)
        item = self.visit(node.slice)
        g.node = node
        return self.get_item(value, item)

    def get_item(self, value: Any, item: Any) -> Any:
        g = self.g
        if is_runtime(value):
            return builtins.subscript(g, value, item)
        own = getattr(type(value), "__pto_item__", None)
        if own is not None:
            return own(value, g, item)
        if is_runtime(item) and (refuse_item := getattr(type(value), "__pto_refuse_item__", None)) is not None:
            raise refuse_item(value, g)
        if isinstance(value, (tuple, list, np.ndarray)) and g.find_runtime(item) is not None:
            found = item_of(g, value, item)
            if found is not MISSING:
                return found
        if isinstance(value, np.ndarray) and g.find_runtime(item) is not None:
            raise self.array_of_python(value, item)
        if is_runtime(item) and isinstance(value, (tuple, list, dict, str, range)):
            raise g.error(
                CompilationError,
                f"a compile-time {type(value).__name__} is indexed with a run-time value",
                code="PTO-N018",
                hint=f"that is for numbers, {MOST} items at most: keep more in a tensor or tile, or loop with "
                "`pl.static_range`",
                notes=g.origin(item),
            )
        function = getattr(type(value), "__getitem__", None)
        if hasattr(function, "__code__") and g.find_runtime((value, item)) is not None:
            return g.inline(function, (value, item), {})
        if isinstance(value, defaultdict) and value.default_factory is not None and not (
            g.python(operator.contains, value, item)
        ):
            g.check_mutable(value, "this item")
            value[item] = g.made(value.default_factory)
        result = g.python(operator.getitem, value, item)
        return g.own(result) if isinstance(item, slice) and isinstance(result, list) else result

    def array_of_python(self, array: np.ndarray, met: Any) -> CompilationError:
        """The error for an array of NumPy that meets a run-time value as an index or as what it is to hold."""
        self.g.meets(array)
        return self.g.error(
            TypeMismatchError,
            "an array of NumPy is a compile-time object here: it takes no run-time index and holds no run-time value",
            code="PTO-N067",
            hint="pass it to the kernel, where it is a tensor; make new ones with `pl.zeros(shape, dtype)`",
            notes=self.g.origin(self.g.find_runtime(met)),
        )

    def slice_(self, node: ast.Slice) -> slice:
        return slice(*(None if part is None else self.visit(part) for part in (node.lower, node.upper, node.step)))

    # -- containers ---------------------------------------------------------------------------------------------

    def items(self, nodes: list[ast.expr]) -> list[Any]:
        values: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                values.extend(self.spread(node))
            else:
                values.append(self.visit(node))
        return values

    def spread(self, node: ast.Starred) -> list[Any]:
        """The items of `*value`."""
        return self.g.items.all_of(self.visit(node.value), node.value)

    def not_iterable(self, value: Any) -> CompilationError:
        number = isinstance(value, Scalar)
        kind = type(value).__name__.lower()
        return self.g.error(
            TypeMismatchError,
            "a number is not iterable" if number else f"a {kind} has no items at compile time",
            code="PTO-T005",
            hint="count with `pl.range(n)`; `min` and `max` take at least two numbers"
            if number
            else "its length is a run-time value: loop over it with `for`; sum, min, max, any, all, next, math.prod "
            "and functools.reduce take generators over it",
            notes=self.g.origin(value),
        )

    def tuple_(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self.items(node.elts))

    def _set(self, node: ast.Set) -> set[Any]:
        values = self.items(node.elts)
        self.g.node = node
        return self.g.python(set, values)

    def dict_(self, node: ast.Dict) -> dict[Any, Any]:
        g = self.g
        result: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                mapping = self.visit(value)
                g.node = value
                g.python(result.update, mapping)
            else:
                name, item = self.visit(key), self.visit(value)
                g.node = key
                g.python(operator.setitem, result, g.static(name, "the key of a dict"), item)
        return g.own(result)

    # -- names and functions ------------------------------------------------------------------------------------

    def named(self, node: ast.NamedExpr) -> Any:
        g = self.g
        value = self.visit(node.value)
        function = g.frame.function
        g.assignments.bind_name(function, node.target.id, value, node.target)
        return value

    def lambda_(self, node: ast.Lambda) -> KernelFunction:
        return self.make_function(node)

    def make_function(self, node: ast.FunctionDef | ast.Lambda) -> KernelFunction:
        defaults = tuple(self.visit(d) for d in node.args.defaults)
        kw_defaults = {
            a.arg: self.visit(d)
            for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            if d is not None
        }
        return KernelFunction(self.g, node, self.g.frame, defaults, kw_defaults)

    # -- strings ------------------------------------------------------------------------------------------------

    def joined(self, node: ast.JoinedStr) -> str:
        return "".join(str(self.visit(part)) for part in node.values)

    def formatted(self, node: ast.FormattedValue) -> str:
        g = self.g
        value = self.visit(node.value)
        g.node = node.value
        hint = "run-time values may stand in f-strings that `pl.print`, `assert` and `pl.assert_` are given"
        g.static(value, "a value in an f-string", hint)
        return self.format(node, value)

    def format(self, node: ast.FormattedValue, value: Any) -> str:
        """A compile-time value as a part of an f-string."""
        g = self.g
        g.node = node.value
        if node.conversion != -1:
            value = g.python({115: str, 114: repr, 97: ascii}[node.conversion], value)
        spec = "" if node.format_spec is None else self.visit(node.format_spec)
        g.node = node.value
        return g.python(format, value, spec)


_COMPUTED = (property, functools.cached_property)


def _member(value: Any, name: str) -> Any:
    """What the class of an object, or the classes that a `super()` looks into, have under a name."""
    if type(value) is not super:
        return getattr(type(value), name, None)
    base: Any = value
    classes = base.__self_class__.__mro__
    behind = classes[classes.index(base.__thisclass__) + 1 :]
    return next((vars(cls)[name] for cls in behind if name in vars(cls)), None)
