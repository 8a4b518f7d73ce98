# SPDX-License-Identifier: MIT
"""Identifiers and lines of the generated program."""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pto_jit.comprehensions.symbolic import Expr, Sym

_TAKEN = frozenset(keyword.kwlist) | frozenset(dir(builtins)) | {"pl", "pto"}


class Names:
    """One namespace for all that a generated function names."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.callables: dict[str, Any] = {}
        self._of_callable: dict[int, str] = {}

    def fresh(self, wanted: str) -> str:
        """`wanted`, with a number behind it when it is taken."""
        text, number = wanted if wanted.isidentifier() else "v", 1
        while text in _TAKEN or text in self.used:
            number += 1
            text = f"{wanted}_{number}" if wanted.isidentifier() else f"v{number}"
        self.used.add(text)
        return text

    def function(self, function: Any, wanted: str) -> str:
        """The name of a function of the user."""
        found = self._of_callable.get(id(function))
        if found is None:
            found = self._of_callable[id(function)] = self.fresh(wanted)
            self.callables[found] = function
        return found


class Lines:
    """Program text with indentation."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1

    def add(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def indented(self) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1


def is_simple(e: Expr) -> bool:
    """A number or a single name."""
    if e.value is not None:
        return True
    return len(e.terms) == 1 and e.terms[0][1] == 1 and len(e.terms[0][0]) == 1 and isinstance(e.terms[0][0][0], Sym)
