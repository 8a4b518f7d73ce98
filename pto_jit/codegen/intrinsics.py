# SPDX-License-Identifier: MIT
"""Functions that the front end itself gives a meaning: control names of `pl`, and Python's on run-time values."""

from __future__ import annotations

import ast
import builtins as python
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pto_jit.codegen import builtins
from pto_jit.codegen.builtins.promote import value_of
from pto_jit.codegen.frames import MISSING, Unusable
from pto_jit.codegen.items import Items, Step
from pto_jit.codegen.iteration import loop_spec
from pto_jit.codegen.operators import NAMES
from pto_jit.codegen.reductions import reduction
from pto_jit.codegen.values import Scalar, Tensor, Tile, is_runtime, static_extent
from pto_jit.errors import CompilationError, PtoError, TypeMismatchError, UnsupportedSyntaxError

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

Handler = Callable[..., Any]

# Python builtins that take run-time values; the operations are in `builtins.python`.
STAGED: frozenset[Any] = frozenset({abs, min, max, sum, len, int, float, bool, round, pow, divmod})

# Standard modules whose Python functions only move values around: Python runs them, never the compiler.
NATIVE_MODULES = frozenset({"dataclasses", "copy", "functools", "collections", "typing", "enum", "itertools", "types"})

UNAVAILABLE: dict[str, str] = {
    "eval": "write the expression itself",
    "exec": "write the statements themselves",
    "globals": "name the global",
    "locals": "name the variable",
    "vars": "name the variable",
    "dir": "name the attribute",
    "input": "pass the value as an argument",
    "breakpoint": "use `kernel.interpret(...)` to debug with Python's tools, or `pl.breakpoint_static()` to look "
    "at the compiler's view",
    "__import__": "import the module at the top of the file",
}


# -- control names of pl --------------------------------------------------------------------------------------------


def _static_range(g: Generator, *bounds: Any) -> Any:
    for bound in bounds:
        g.static(bound, "a bound of `pl.static_range`")
    return g.own(iter(g.python(range, *bounds)))


def _static(g: Generator, value: Any) -> Any:
    return g.static(value, "the argument of `pl.static`")


def _dynamic_value(g: Generator, value: Any) -> Any:
    if is_runtime(value):
        return value
    return value_of(g, value, "the argument of `pl.dynamic_value`")


def _static_print(g: Generator, *values: Any, sep: str = " ", end: str = "\n") -> None:
    if g.speak():
        python.print(*(shown(g, value) for value in values), sep=sep, end=end)


def shown(g: Generator, value: Any) -> str:
    """A value as the compiler knows it: `str` of a compile-time one, kind and dtype and extents of a run-time one."""
    if isinstance(value, Scalar):
        return f"<run-time {value.dtype}>"
    if isinstance(value, (Tile, Tensor)):
        extents = ["?" if static_extent(e) is None else str(static_extent(e)) for e in value.extents]
        return f"<{value.dtype} {type(value).__name__.lower()} [{', '.join(extents)}]>"
    if g.find_runtime(value) is None:
        return g.python(str, value)
    if isinstance(value, (list, tuple)):
        items = ", ".join(shown(g, item) for item in value)
        return f"[{items}]" if isinstance(value, list) else f"({items}{',' * (len(value) == 1)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {shown(g, v)}" for k, v in value.items()) + "}"
    return f"<{type(value).__name__} with run-time values>"


def _static_assert(g: Generator, cond: Any, msg: Any = "") -> None:
    if not g.python(bool, g.static(builtins.tested(g, cond), "the condition of `pl.static_assert`")):
        raise g.error(CompilationError, str(msg) or "static assertion failed", code="PTO-N037",
                      hint="this condition is checked at compile time")  # fmt: skip


def _breakpoint_static(g: Generator) -> None:
    """Stop the compiler here; `names` shows what each variable stands for."""
    if not g.speak():
        return
    python.print(f"{g.e.loc}: the compiler stops here; `names` holds the variables")
    names = {k: shown(g, v) for k, v in g.frame.vars.items() if not isinstance(v, Unusable)}
    for name, text in names.items():
        python.print(f"  {name}{':' if text.startswith('<') else ' ='} {text}")
    python.breakpoint()


def left_debugger(error: Exception) -> bool:
    """Whether the user quit the debugger that `pl.breakpoint_static` started (`bdb` takes long to import)."""
    return type(error).__name__ == "BdbQuit"


def _incore(g: Generator, *args: Any, **kwargs: Any) -> Any:
    raise g.error(UnsupportedSyntaxError, "`pl.incore(...)` outside a `with` statement", code="PTO-S034",
                  hint="write `with pl.incore():`, or decorate a function with `@pto.incore`")  # fmt: skip


CONTROL: dict[str, Handler] = {
    "range": loop_spec,
    "static_range": _static_range,
    "static": _static,
    "dynamic_value": _dynamic_value,
    "static_print": _static_print,
    "static_assert": _static_assert,
    "breakpoint_static": _breakpoint_static,
    "incore": _incore,
    "reduction": reduction,
}


# -- Python functions that call back or look at run-time values -----------------------------------------------------


def _place(g: Generator) -> ast.AST:
    assert g.node is not None
    return g.node


def _map(g: Generator, fn: Any, *iterables: Any) -> Any:
    columns = [g.items.each(i, _place(g)) for i in iterables]

    def steps() -> Iterator[Callable[[], Any]]:
        for row in zip(*columns, strict=False):
            yield lambda row=row: g.inline(fn, row, {})

    return g.own(Items(g, steps(), g.frame, _place(g)))


def _filter(g: Generator, fn: Any, iterable: Any) -> Any:
    items = g.items.each(iterable, _place(g))

    def steps() -> Iterator[Callable[[], Any]]:
        for item in items:
            keep = item if fn is None else g.inline(fn, (item,), {})
            if g.python(bool, g.static(builtins.tested(g, keep), "the condition of `filter`")):
                yield lambda item=item: item

    return g.own(Items(g, steps(), g.frame, _place(g)))


def _reduce(g: Generator, fn: Any, iterable: Any, *initial: Any) -> Any:
    items = itertools.chain(initial, g.items.each(iterable, _place(g)))
    total = next(items, MISSING)
    if total is MISSING:
        raise g.error(CompilationError, "`reduce` of no items and no initial value", code="PTO-N038",
                      hint="give an initial value")  # fmt: skip
    for item in items:
        total = g.inline(fn, (total, item), {})
    return total


def _accumulate(g: Generator, iterable: Any, func: Any = None, *, initial: Any = None) -> Iterator[Any]:
    items = g.items.all_of(iterable, _place(g))
    found: list[Any] = [] if initial is None else [initial]
    for item in items:
        if not found:
            found.append(item)
        elif func is None:
            found.append(g.operators.operate(ast.Add, found[-1], item))
        else:
            found.append(g.inline(func, (found[-1], item), {}))
    return g.own(iter(found))


def _any_all(is_and: bool) -> Handler:
    def handler(g: Generator, values: Any) -> Any:
        name, node = "all" if is_and else "any", _place(g)
        if isinstance(values, (Tile, Tensor)):
            return builtins.call(name, g, (builtins.one_axis(g, name, values),), {})

        def join(found: Any, step: Step) -> Any:
            return g.choices.both(found, lambda: g.operators.truth(step()), node, is_and=is_and)

        return g.items.search(values, node, not is_and, join)

    return handler


def _isinstance(g: Generator, value: Any, kinds: Any) -> bool:
    if not is_runtime(value):
        return g.python(isinstance, value, kinds)
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        if getattr(kind, "__module__", "").startswith("pto_jit.language"):
            if kind.__name__ == type(value).__name__:
                return True
        elif isinstance(value, Scalar) and value.weak:
            kinds_of = {"f": (float,), "i": (int,), "u": (int,), "b": (bool, int)}[value.dtype.kind]
            if kind in (object, *kinds_of):
                return True
        elif kind is object:
            return True
    return False


def _getattr(g: Generator, value: Any, name: Any, *default: Any) -> Any:
    text = g.static(name, "the name given to `getattr`")
    if is_runtime(value) and isinstance(text, str):
        if default:
            try:
                return g.expressions.get_attribute(value, text)
            except PtoError:
                return default[0]
        return g.expressions.get_attribute(value, text)
    return g.python(getattr, value, text, *default)


def _hasattr(g: Generator, value: Any, name: Any) -> bool:
    if not is_runtime(value):
        return g.python(hasattr, value, name)
    block = g.e.push()
    try:
        g.expressions.get_attribute(value, g.static(name, "the name given to `hasattr`"))
    except PtoError:
        return False
    finally:
        g.e.pop(block)
    return True


def _setattr(g: Generator, value: Any, name: Any, new: Any) -> None:
    g.static(value if is_runtime(value) else None, "the object of `setattr`")
    g.assignments.set_attribute(value, g.static(name, "the name given to `setattr`"), new)


def _next(g: Generator, iterator: Any, *default: Any) -> Any:
    g.static(iterator if is_runtime(iterator) else None, "the iterator given to `next`")
    if isinstance(iterator, Items):
        try:
            return next(iterator)
        except StopIteration:
            if default:
                return default[0]
    else:
        g.check_mutable(iterator, "`next`")
    return g.python(next, iterator, *default)


def _type(g: Generator, value: Any, *rest: Any) -> Any:
    if is_runtime(value):
        raise g.error(TypeMismatchError, "`type` of a run-time value", code="PTO-T043",
                      hint="look at its `dtype`", notes=g.origin(value))  # fmt: skip
    return g.python(type, value, *rest)


def _text_or_key(fn: Any) -> Handler:
    """`str`, `repr`, `hash`, ...: they would speak of the compiler's stand-in for a run-time value."""

    def handler(g: Generator, *args: Any, **kwargs: Any) -> Any:
        found = g.find_runtime((args, kwargs))
        if found is not None:
            raise g.error(CompilationError, f"`{fn.__name__}` of a run-time value", code="PTO-N050",
                          hint='print it at run time with `pl.print("{}", value)`; keys are compile-time values',
                          notes=g.origin(found))  # fmt: skip
        return g.python(fn, *args, **kwargs)

    return handler


def _print(g: Generator, *values: Any, **options: Any) -> None:
    found = g.find_runtime(values)
    if found is not None:
        raise g.error(CompilationError, "`print` of a run-time value", code="PTO-N039",
                      hint='print at run time with `pl.print("{}", value)`', notes=g.origin(found))  # fmt: skip
    g.python(python.print, *values, **options)


REPLACED: dict[Any, Handler] = {
    map: _map, filter: _filter, functools.reduce: _reduce, itertools.accumulate: _accumulate,
    any: _any_all(False), all: _any_all(True),
    isinstance: _isinstance, getattr: _getattr, hasattr: _hasattr, setattr: _setattr, next: _next, type: _type,
    python.print: _print, **{fn: _text_or_key(fn) for fn in (str, repr, ascii, hash, format, id)},
}  # fmt: skip


# -- operator.* and math.* ------------------------------------------------------------------------------------------


def _binary(op: type[ast.operator]) -> Handler:
    return lambda g, a, b: g.operators.operate(op, a, b)


def _in_place(op: type[ast.operator]) -> Handler:
    return lambda g, a, b: g.operators.in_place(op, a, b)


def _compare(op: type[ast.cmpop]) -> Handler:
    return lambda g, a, b: g.operators.compare(op, a, b)


def _unary(op: type[ast.unaryop]) -> Handler:
    return lambda g, a: g.operators.unary(op, a)


OPERATORS: dict[str, Handler] = {
    **{name: _binary(op) for name, op in {
        "add": ast.Add, "sub": ast.Sub, "mul": ast.Mult, "truediv": ast.Div, "floordiv": ast.FloorDiv, "mod": ast.Mod,
        "pow": ast.Pow, "matmul": ast.MatMult, "and_": ast.BitAnd, "or_": ast.BitOr, "xor": ast.BitXor,
        "lshift": ast.LShift, "rshift": ast.RShift}.items()},
    **{f"i{name}": _in_place(op) for op, name in NAMES.items()},
    **{name: _compare(op) for name, op in {
        "eq": ast.Eq, "ne": ast.NotEq, "lt": ast.Lt, "le": ast.LtE, "gt": ast.Gt, "ge": ast.GtE, "is_": ast.Is,
        "is_not": ast.IsNot}.items()},
    **{name: _unary(op) for name, op in {
        "neg": ast.USub, "pos": ast.UAdd, "invert": ast.Invert, "inv": ast.Invert, "not_": ast.Not}.items()},
    "abs": lambda g, a: builtins.python_builtin(abs, g, (a,), {}),
    "truth": lambda g, a: g.operators.truth(a),
    "getitem": lambda g, a, b: g.expressions.get_item(a, b),
    "contains": lambda g, a, b: g.operators.compare(ast.In, b, a),
}  # fmt: skip


def _operation(name: str) -> Handler:
    return lambda g, *args: builtins.call(name, g, args, {})


def _whole(name: str) -> Handler:
    def compiled(g: Generator, a: Any) -> Any:
        rounded = builtins.call(name, g, (a,), {})
        if isinstance(rounded, (Tile, Tensor)):
            raise g.error(TypeMismatchError, f"`math.{name}` takes a number, not a tile", code="PTO-T072",
                          hint=f"use `pl.{name}`")  # fmt: skip
        return builtins.python_builtin(int, g, (rounded,), {})

    return compiled


def _scaled(factor: float) -> Handler:
    return lambda g, a: g.operators.operate(ast.Mult, a, factor)


def _mathematics(name: str) -> Handler:
    def compiled(g: Generator, *args: Any) -> Any:
        from pto_jit.semantic import mathematics, special

        return g.inline(mathematics.FUNCTIONS.get(name) or getattr(special, name), args)

    return compiled


def _logarithm(g: Generator, x: Any, base: Any = None) -> Any:
    found = builtins.call("log", g, (x,), {})
    return found if base is None else g.operators.operate(ast.Div, found, g.inline(math.log, (base,)))


def _prod(g: Generator, values: Any, *, start: Any = 1) -> Any:
    """As Python: `start * a * b * ...`."""
    node = _place(g)
    if isinstance(values, (Tile, Tensor)):
        total = builtins.call("prod", g, (builtins.one_axis(g, "prod", values),), {})
        return g.operators.operate(ast.Mult, start, total)
    for item in g.items.each(values, node):
        g.node = node
        start = g.operators.operate(ast.Mult, start, item)
    return start


MATH: dict[str, Handler] = {
    **{name: _operation(name) for name in (
        "exp exp2 expm1 log2 log1p sqrt sin cos tan tanh erf isnan isinf isfinite atan2 fmod pow fma").split()},
    "fabs": _operation("abs"), "degrees": _scaled(180 / math.pi), "radians": _scaled(math.pi / 180),
    "atan": lambda g, a: builtins.call("atan2", g, (a, 1), {}),
    **{name: _whole(name) for name in ("floor", "ceil", "trunc")},
    **{name: _mathematics(name) for name in (
        "asin acos hypot sinh cosh asinh acosh atanh log10 cbrt copysign remainder erfc lgamma frexp modf nextafter "
        "ldexp").split()},
    "gamma": _mathematics("tgamma"), "log": _logarithm, "prod": _prod,
}  # fmt: skip
