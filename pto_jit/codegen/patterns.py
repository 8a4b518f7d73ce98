# SPDX-License-Identifier: MIT
"""`match` on compile-time values, pattern by pattern as Python defines them."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.errors import CompilationError

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

_SELF_MATCHING = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


def matches(g: Generator, pattern: ast.pattern, value: Any, bound: dict[str, Any]) -> bool:
    """Whether `value` matches; names it captures go to `bound`."""
    if isinstance(pattern, ast.MatchAs):
        if pattern.pattern is not None and not matches(g, pattern.pattern, value, bound):
            return False
        if pattern.name is not None:
            bound[pattern.name] = value
        return True
    if isinstance(pattern, ast.MatchOr):
        return any(matches(g, p, value, bound) for p in pattern.patterns)
    if isinstance(pattern, ast.MatchSingleton):
        return value is pattern.value
    if isinstance(pattern, ast.MatchValue):
        wanted = g.expressions.visit(pattern.value)
        g.node = pattern
        equal = g.operators.compare(ast.Eq, g.static(value, "a value compared by a pattern"), wanted)
        return bool(g.python(bool, g.static(equal, "the result of comparing with a pattern")))
    if isinstance(pattern, ast.MatchSequence):
        return _sequence(g, pattern, value, bound)
    if isinstance(pattern, ast.MatchMapping):
        return _mapping(g, pattern, value, bound)
    if isinstance(pattern, ast.MatchClass):
        return _class(g, pattern, value, bound)
    raise AssertionError(type(pattern))


def _sequence(g: Generator, pattern: ast.MatchSequence, value: Any, bound: dict[str, Any]) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray)):
        return False
    parts = pattern.patterns
    star = next((k for k, p in enumerate(parts) if isinstance(p, ast.MatchStar)), None)
    if star is None:
        return len(value) == len(parts) and all(matches(g, p, v, bound) for p, v in zip(parts, value, strict=True))
    after = len(parts) - star - 1
    if len(value) < star + after:
        return False
    middle = parts[star]
    assert isinstance(middle, ast.MatchStar)
    if middle.name is not None:
        bound[middle.name] = g.own(list(value[star : len(value) - after]))
    return all(matches(g, p, v, bound) for p, v in zip(parts[:star], value[:star], strict=True)) and all(
        matches(g, p, v, bound) for p, v in zip(parts[star + 1 :], value[len(value) - after :], strict=True)
    )


def _mapping(g: Generator, pattern: ast.MatchMapping, value: Any, bound: dict[str, Any]) -> bool:
    if not isinstance(value, Mapping):
        return False
    seen: list[Any] = []
    for key_node, part in zip(pattern.keys, pattern.patterns, strict=True):
        key = g.expressions.visit(key_node)
        if key not in value or not matches(g, part, value[key], bound):
            return False
        seen.append(key)
    if pattern.rest is not None:
        bound[pattern.rest] = g.own({k: v for k, v in value.items() if k not in seen})
    return True


def _class(g: Generator, pattern: ast.MatchClass, value: Any, bound: dict[str, Any]) -> bool:
    cls = g.expressions.visit(pattern.cls)
    g.node = pattern
    if not isinstance(cls, type):
        raise g.error(
            CompilationError, "a class pattern needs a class", code="PTO-N030", hint="write `case Config(...)`"
        )
    if not isinstance(value, cls):
        return False
    if pattern.patterns:
        if cls in _SELF_MATCHING and len(pattern.patterns) == 1:
            if not matches(g, pattern.patterns[0], value, bound):
                return False
        else:
            names = getattr(cls, "__match_args__", ())
            if len(pattern.patterns) > len(names):
                raise g.error(CompilationError, f"{cls.__name__} has {len(names)} positional sub-patterns",
                              code="PTO-N049", hint="name the attributes: `case Config(block=b)`")  # fmt: skip
            for name, part in zip(names, pattern.patterns, strict=False):
                if not hasattr(value, name) or not matches(g, part, getattr(value, name), bound):
                    return False
    for name, part in zip(pattern.kwd_attrs, pattern.kwd_patterns, strict=True):
        if not hasattr(value, name) or not matches(g, part, getattr(value, name), bound):
            return False
    return True
