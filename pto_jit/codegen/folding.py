# SPDX-License-Identifier: MIT
"""`sum`, `min`, `max`, `any`, `all`, `next`, `math.prod`, `functools.reduce` of generators whose items run time counts.

Where a generator expression goes through a run-time range, or a run-time condition chooses its items, the function is
a loop: `sum(x[i] for i in range(n) if x[i] > 0)` is compiled as the call of

    def sum(items, total):
        for i in items:
            if x[i] > 0:
                total = total + x[i]
        return total

that stands beside the generator.  What is known while compiling (lists, ranges with constant bounds, conditions) is
unrolled and decided in it, as in every comprehension.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from pto_jit.codegen.builtins.promote import describe, value_of
from pto_jit.codegen.counting import counted
from pto_jit.codegen.frames import MISSING, Unusable
from pto_jit.codegen.items import Items, Source
from pto_jit.codegen.iteration import LoopSpec, as_items, may_be_runtime
from pto_jit.codegen.names import analyse, stores
from pto_jit.codegen.values import Scalar
from pto_jit.errors import CompilationError, Note

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

# What each function does: ITEM stands for an item, the loop over it for those of the generator.
_ADDS = """
def sum(items, total):
    for ITEM in items:
        total = total + ITEM
    return total
"""
_MULTIPLIES = """
def prod(items, total):
    for ITEM in items:
        total = total * ITEM
    return total
"""
_REDUCES = """
def reduce(items, total, function):
    for ITEM in items:
        total = function(total, ITEM)
    return total
"""
_LOOKS_FOR_ONE = """
def any(items):
    for ITEM in items:
        if ITEM:
            return True
    return False
"""
_LOOKS_FOR_NONE = """
def all(items):
    for ITEM in items:
        if not ITEM:
            return False
    return True
"""
_COMPARES = """
def best(items, best, better):
    for ITEM in items:
        best = better(best, ITEM)
    return best
"""
_COMPARES_OR_NOT = """
def best(items, best, better, default):
    none = True
    for ITEM in items:
        best = better(best, ITEM)
        none = False
    return default if none else best
"""
_COMPARES_KEYS = """
def best(items, best, better, key, default):
    none, rank = True, 0
    for ITEM in items:
        item = ITEM
        new = key(item)
        if none or better(new, rank):
            none, best, rank = False, item, new
    return default if none else best
"""
_FINDS = """
def next(items, default):
    for ITEM in items:
        return ITEM
    return default
"""
_LOOKS = """
def look(items, look):
    for ITEM in items:
        look(ITEM)
"""


def as_generator(g: Generator, fn: Any, argument: ast.expr) -> ast.expr:
    """The list that such a function is given as a generator of its items, which all of them are computed of."""
    if type(argument) is not ast.ListComp or type(fn) is not type(sum) or fn not in (sum, min, max, math.prod):
        return argument
    notes, key = g.frame.file.notes, (as_generator, argument)
    if key not in notes:
        notes[key] = ast.copy_location(ast.GeneratorExp(argument.elt, argument.generators), argument)
    return cast(ast.expr, notes[key])


def fold(g: Generator, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The value of `fn(*args, **kwargs)` as a loop; MISSING where Python's way through the items is the way.

    The items are those of a generator, or the numbers of a run-time range.
    """
    takes = _FOLDS.get(fn) if type(fn) is type(sum) else None
    at = 1 if fn is functools.reduce else 0
    items = args[at] if takes is not None and len(args) > at else None
    source = items.unread if type(items) is Items else None
    if type(items) is LoopSpec and fn is not next:
        source = _numbers(g, items)
    if takes is None or source is None or not _counts(g, source):
        return MISSING
    given = _rest(g, fn, takes, (*args[:at], *args[at + 1 :]), kwargs)
    if type(items) is Items:
        items.leave(to_the_end=fn not in (any, all, next))
    return _Folded(g, source)(fn, **given)


def _numbers(g: Generator, loop: LoopSpec) -> Source:
    """The generator `(item for item in loop)`."""
    node = g.node
    assert node is not None
    target, item = (ast.copy_location(ast.Name("item", ctx), node) for ctx in (ast.Store(), ast.Load()))
    place = ast.copy_location(ast.Constant(None), node)  # of what the loop goes through, which is known
    written = ast.copy_location(ast.GeneratorExp(item, [ast.comprehension(target, place, [], 0)]), node)
    return Source(written, g.frame, loop)


def _rest(g: Generator, fn: Any, takes: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The other arguments by name."""
    given = dict(zip(takes, args, strict=False)) | kwargs
    wrong = next((k for k in kwargs if k not in takes), None)
    why, hint = None, "write a `for` loop for what is not there"
    if wrong is not None:
        why = f"does not take `{wrong}=`"
    elif len(args) + len(kwargs) > len(given) or len(args) > (0 if fn in (min, max) else len(takes)):
        why = "gets too many arguments"
    elif fn is functools.reduce and len(given) < len(takes):
        why, hint = "needs an initial value", "give one as the third argument: there may be no item"
    elif fn is next and not given:
        why, hint = "needs a default", "give one as the second argument: there may be no item"
    if why is not None:
        name = getattr(fn, "__name__", "this")
        raise g.error(CompilationError, f"`{name}` of a generator whose items are counted at run time {why}",
                      code="PTO-N073", hint=hint)  # fmt: skip
    return given


def _counts(g: Generator, source: Source) -> bool:
    """Whether run time decides how many items there are."""
    if counted(source.value):
        return True
    frame, g.frame = g.frame, source.frame
    first, *inner = source.node.generators
    tests = list(first.ifs)
    tainted = dict.fromkeys(stores([first.target]), g.find_runtime(source.value) is not None)
    for level in inner:
        tests += level.ifs
        varies = may_be_runtime(g, level.iter, tainted)
        tests += [level.iter] if varies else []
        tainted |= dict.fromkeys(stores([level.target]), varies)
    found = any(may_be_runtime(g, test, tainted) for test in tests)
    g.frame = frame
    return found


class _Folded:
    """A generator as the loops of a function."""

    def __init__(self, g: Generator, source: Source) -> None:
        self.g, self.source = g, source

    def __call__(self, fn: Any, **given: Any) -> Any:
        if fn in (min, max):
            return self._best(fn, **given)
        if fn is functools.reduce:
            return self._run(_REDUCES, total=given["initial"], function=given["function"])
        if fn is next:
            return self._run(_FINDS, default=given["default"])
        if fn in (any, all):
            return self._run(_LOOKS_FOR_ONE if fn is any else _LOOKS_FOR_NONE)
        return self._run(_ADDS, total=given.get("start", 0)) if fn is sum else (
            self._run(_MULTIPLIES, total=given.get("start", 1)))  # fmt: skip

    def _best(self, fn: Any, default: Any = MISSING, key: Any = None) -> Any:
        g = self.g
        item = self._look()
        if not isinstance(item, (Scalar, bool, int, float, np.generic)):
            raise g.error(
                CompilationError,
                f"`{fn.__name__}` of a generator whose items, counted at run time, are {describe(item)}",
                code="PTO-N074",
                hint=f"write a `for` loop with `t = pl.{fn.__name__}imum(t, ...)` that starts with a tile",
            )
        worst = _beyond(value_of(g, item), low=fn is max)
        if key is not None:
            better = operator.lt if fn is min else operator.gt
            return self._run(_COMPARES_KEYS, best=worst, better=better, key=key,
                             default=worst if default is MISSING else default)  # fmt: skip
        if default is MISSING:
            return self._run(_COMPARES, best=worst, better=fn)
        return self._run(_COMPARES_OR_NOT, best=worst, better=fn, default=default)

    def _look(self) -> Any:
        """An item, compiled for its type alone."""
        g = self.g
        seen: list[Any] = [0]
        quiet, warnings = g.quiet, len(g.warnings)
        region, block, g.quiet = g.control.open_region(), g.e.push(), True
        self._run(_LOOKS, look=_native(seen.append))
        g.e.pop(block)
        g.control.close_region(region)
        g.quiet = quiet
        del g.warnings[warnings:]
        return seen[-1]

    def _run(self, text: str, **given: Any) -> Any:
        """What the function gives that is written so."""
        g, source = self.g, self.source
        outer, caller = source.frame, g.node
        values = given | {"items": source.value, "unrolled": _unrolled}
        taken = {n.id for n in ast.walk(source.node) if isinstance(n, ast.Name)}
        names = {name: _free(name, taken) for name in (*values, "none", "rank", "item", "new")}
        written: Any = ast.parse(text).body[0]
        for node in ast.walk(written):
            ast.copy_location(node, source.node)
        written = _Written(source.node, names).visit(written)
        written.args.args.append(ast.copy_location(ast.arg(names["unrolled"]), source.node))
        result = g.calls.inline(
            written.name, outer.file, written, analyse(written), outer.globals, {}, outer,
            {names[name]: value for name, value in values.items()}, caller=outer.caller,
        )  # fmt: skip
        g.node = caller
        for node in ast.walk(source.node):
            if isinstance(node, ast.NamedExpr):  # a variable of the loop: of no use behind it
                self._lose(node)
        return result

    def _lose(self, node: ast.NamedExpr) -> None:
        g, frame, name = self.g, self.source.frame, node.target.id
        lost = Unusable(
            f"`{name}` is assigned in a generator whose items are counted at run time",
            "PTO-N072",
            (Note("it is assigned here", g.loc(node, frame)),),
            "write a `for` loop where its last value is wanted",
        )
        g.bind(frame.function, name, lost, node.target)


class _Written(ast.NodeTransformer):
    """Puts the loops and items of a generator into the function, whose own names become others than the generator's."""

    def __init__(self, node: ast.GeneratorExp, names: dict[str, str]) -> None:
        self.node, self.names = node, names

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.copy_location(ast.arg(self.names[node.arg]), node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == "ITEM":
            return self.node.elt
        return ast.copy_location(ast.Name(self.names[node.id], node.ctx), node)

    def visit_For(self, node: ast.For) -> ast.AST:
        body: list[ast.stmt] = [self.visit(stmt) for stmt in node.body]
        levels = self.node.generators
        for level in reversed(levels):
            for test in reversed(level.ifs):
                body = [ast.copy_location(ast.If(test, body, []), test)]
            items = self.visit(node.iter) if level is levels[0] else level.iter
            unrolled = ast.copy_location(ast.Name(self.names["unrolled"], ast.Load()), level.iter)
            each = ast.copy_location(ast.Call(unrolled, [items], []), level.iter)
            body = [ast.copy_location(ast.For(level.target, each, body, []), level.target)]
        return body[0]


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _native(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that Python calls while the kernel is compiled, with run-time values, too."""

    def native(value: Any) -> Any:
        return fn(value)

    native.__pto_native__ = True  # type: ignore[attr-defined]
    return native


@_native
def _unrolled(value: Any) -> Any:
    """Ranges with constant bounds as lists, which loops go through while they are compiled."""
    if isinstance(value, LoopSpec):
        constants = as_items(value)
        return value if constants is None else list(constants)
    return list(value) if isinstance(value, range) else value


def _beyond(item: Any, low: bool) -> Scalar:
    """What no number of the type of `item` is below (`low`), or above."""
    from pto_jit.codegen.emit import constant

    dtype = item.dtype
    most: Any = math.inf
    if dtype.kind == "b":
        most = True
    elif dtype.is_integer:
        most = (1 << (dtype.bits - (dtype.kind == "i"))) - 1
    least = (-most - 1 if dtype.kind == "i" else 0 if dtype.is_integer or dtype.kind == "b" else -most)
    return Scalar(constant(least if low else most, dtype), item.weak, item.origin)


_FOLDS: dict[Any, tuple[str, ...]] = {
    sum: ("start",), math.prod: ("start",), min: ("default", "key"), max: ("default", "key"), any: (), all: (),
    next: ("default",),
    functools.reduce: ("function", "initial"),
}  # fmt: skip
"""The arguments that they take besides the items."""
