# SPDX-License-Identifier: MIT
"""`match`, pattern by pattern as Python defines them: decided at once, or by comparisons of run-time numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.regions import Status
from pto_jit.codegen.values import Scalar, is_runtime
from pto_jit.dtypes import bool_
from pto_jit.errors import CompilationError

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

_SELF_MATCHING = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)
Truth = bool | Scalar


def match(g: Generator, node: ast.Match) -> Status:
    """The statement."""
    subject = g.expressions.visit(node.subject)
    return _cases(g, node, subject, 0)


def _cases(g: Generator, node: ast.Match, subject: Any, first: int) -> Status:
    """The cases from a number on."""
    for k, case in enumerate(node.cases[first:], first):
        bound: dict[str, Any] = {}
        found = matches(g, case.pattern, subject, bound)
        if found is False:
            continue

        def bind(case: ast.match_case = case, bound: dict[str, Any] = bound) -> None:
            for name, value in bound.items():
                g.assignments.bind_name(g.frame.owner(name) or g.frame, name, value, case.pattern)

        if found is True:
            bind()
        if case.guard is not None:
            found = _guarded(g, case.guard, found, bind)
        if found is False:
            continue
        if found is True:
            return g.statements.block(case.body)

        def run(case: ast.match_case = case, bind: Any = bind) -> Status:
            bind()
            return g.statements.block(case.body)

        g.node = case.pattern
        return g.control.run_if(found, run, lambda k=k: _cases(g, node, subject, k + 1), node, None)
    return None


def _guarded(g: Generator, guard: ast.expr, found: Truth, bind: Any) -> Truth:
    """Whether a case applies whose pattern matches if `found`."""

    def test() -> Any:
        if found is not True:
            bind()
        value = g.operators.truth(g.expressions.condition(guard))
        g.node = guard
        return value

    return test() if found is True else g.choices.both(found, test, guard, is_and=True)


def matches(g: Generator, pattern: ast.pattern, value: Any, bound: dict[str, Any]) -> Truth:
    """Whether `value` matches; names it captures go to `bound`."""
    if isinstance(pattern, ast.MatchAs):
        found: Truth = True
        if pattern.pattern is not None:
            found = matches(g, pattern.pattern, value, bound)
        if pattern.name is not None and found is not False:
            bound[pattern.name] = value
        return found
    if isinstance(pattern, ast.MatchOr):
        return _any(g, pattern, value, bound)
    if isinstance(pattern, ast.MatchSingleton):
        if isinstance(value, Scalar) and value.dtype == bool_ and pattern.value is not None:
            return _compared(g, value, pattern.value, pattern)
        return value is pattern.value
    if isinstance(pattern, ast.MatchValue):
        return _compared(g, value, g.expressions.visit(pattern.value), pattern)
    if isinstance(pattern, ast.MatchSequence):
        return _sequence(g, pattern, value, bound)
    if isinstance(pattern, ast.MatchMapping):
        return _mapping(g, pattern, value, bound)
    if isinstance(pattern, ast.MatchClass):
        return _class(g, pattern, value, bound)
    raise AssertionError(type(pattern))


def _compared(g: Generator, value: Any, wanted: Any, pattern: ast.pattern) -> Truth:
    g.node = pattern
    if isinstance(value, Scalar) and not (is_runtime(wanted) or isinstance(wanted, (bool, int, float))):
        return False  # a number is not a word
    return g.operators.truth(g.operators.compare(ast.Eq, value, wanted))


def _any(g: Generator, pattern: ast.MatchOr, value: Any, bound: dict[str, Any]) -> Truth:
    """The first alternative that matches."""
    found: Truth = False
    for part in pattern.patterns:
        names: dict[str, Any] = {}
        one = matches(g, part, value, names)
        if names and (isinstance(one, Scalar) or (one and isinstance(found, Scalar))):
            raise g.error_at(part, CompilationError, "alternatives with names, of a run-time value", code="PTO-N081",
                             hint="write a case for each")  # fmt: skip
        bound |= names
        if one is True:
            return True
        if isinstance(one, Scalar):
            found = one if found is False else g.e.scalar("or", [found.operand, one.operand])  # type: ignore[union-attr]
    return found


def _all(g: Generator, parts: Iterable[tuple[ast.pattern, Any]], bound: dict[str, Any], found: Truth = True) -> Truth:
    """Whether each part matches."""
    for pattern, value in parts:
        one = matches(g, pattern, value, bound)
        if one is False:
            return False
        if isinstance(one, Scalar):
            found = one if found is True else g.e.scalar("and", [found.operand, one.operand])  # type: ignore[union-attr]
    return found


def _sequence(g: Generator, pattern: ast.MatchSequence, value: Any, bound: dict[str, Any]) -> Truth:
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray)):
        return False
    parts = pattern.patterns
    star = next((k for k, p in enumerate(parts) if isinstance(p, ast.MatchStar)), None)
    if star is None:
        return len(value) == len(parts) and _all(g, zip(parts, value, strict=True), bound)
    after = len(parts) - star - 1
    if len(value) < star + after:
        return False
    middle = parts[star]
    assert isinstance(middle, ast.MatchStar)
    if middle.name is not None:
        bound[middle.name] = g.own(list(value[star : len(value) - after]))
    behind = value[len(value) - after :]
    return _all(g, zip((*parts[:star], *parts[star + 1 :]), (*value[:star], *behind), strict=True), bound)


def _mapping(g: Generator, pattern: ast.MatchMapping, value: Any, bound: dict[str, Any]) -> Truth:
    if not isinstance(value, Mapping):
        return False
    seen = [g.expressions.visit(key) for key in pattern.keys]
    found = all(key in value for key in seen) and _all(
        g, zip(pattern.patterns, (value[key] for key in seen), strict=True), bound
    )  # fmt: skip
    if found is False:
        return False
    if pattern.rest is not None:
        bound[pattern.rest] = g.own({k: v for k, v in value.items() if k not in seen})
    return found


def _class(g: Generator, pattern: ast.MatchClass, value: Any, bound: dict[str, Any]) -> Truth:
    cls = g.expressions.visit(pattern.cls)
    g.node = pattern
    if not isinstance(cls, type):
        raise g.error(
            CompilationError, "a class pattern needs a class", code="PTO-N030", hint="write `case Config(...)`"
        )
    if not g.calls.call(isinstance, (value, cls), {}):
        return False
    parts: list[tuple[ast.pattern, Any]] = []
    if pattern.patterns:
        if cls in _SELF_MATCHING and len(pattern.patterns) == 1:
            parts.append((pattern.patterns[0], value))
        else:
            names = getattr(cls, "__match_args__", ())
            if len(pattern.patterns) > len(names):
                raise g.error(CompilationError, f"{cls.__name__} has {len(names)} positional sub-patterns",
                              code="PTO-N049", hint="name the attributes: `case Config(block=b)`")  # fmt: skip
            for name, part in zip(names, pattern.patterns, strict=False):
                if not hasattr(value, name):
                    return False
                parts.append((part, getattr(value, name)))
    for name, part in zip(pattern.kwd_attrs, pattern.kwd_patterns, strict=True):
        if not hasattr(value, name):
            return False
        parts.append((part, getattr(value, name)))
    return _all(g, parts, bound)
