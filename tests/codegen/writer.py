# SPDX-License-Identifier: MIT
"""Random programs of control flow over numbers, as source text."""

from __future__ import annotations

import linecache
import random
from typing import Any

VARIABLES = ("a", "b", "c", "d")


class Writer:
    """Writes one program."""

    def __init__(self, seed: int, elements: tuple[str, ...]) -> None:
        self.r = random.Random(seed)
        self.elements = elements
        self.lines: list[str] = []
        self.loops = 0
        self.budget = 26

    def expression(self, depth: int = 2) -> str:
        r = self.r
        if depth == 0 or r.random() < 0.3:
            return r.choice([*VARIABLES, *VARIABLES, "n", "m", *self.elements, str(r.randint(-3, 4))])
        kind = r.random()
        left, right = self.expression(depth - 1), self.expression(depth - 1)
        if kind < 0.6:
            return f"({left} {r.choice('+-*')} {right}) % 97"
        if kind < 0.75:
            return f"({left} if {self.condition(1)} else {right})"
        if kind < 0.9:
            return f"{r.choice(['min', 'max'])}({left}, {right})"
        return f"abs({left})"

    def condition(self, depth: int = 2) -> str:
        r = self.r
        if depth == 0 or r.random() < 0.5:
            if r.random() < 0.15:
                return f"{self.expression(0)} <= {self.expression(0)} < {self.expression(0)}"
            return f"{self.expression(1)} {r.choice(['<', '>', '==', '!='])} {self.expression(1)}"
        if r.random() < 0.2:
            return f"not ({self.condition(depth - 1)})"
        return f"({self.condition(depth - 1)} {r.choice(['and', 'or'])} {self.condition(depth - 1)})"

    def line(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def block(self, indent: int, loop: bool, helper: bool) -> None:
        for _ in range(self.r.randint(1, 3)):
            if self.statement(indent, loop, helper):
                return

    def statement(self, indent: int, loop: bool, helper: bool) -> bool:
        """One statement; true when nothing can follow it."""
        r = self.r
        self.budget -= 1
        kind = r.random() if self.budget > 0 and indent < 6 else r.random() * 0.4
        if kind < 0.3:
            self.line(indent, f"{r.choice(VARIABLES)} = {self.expression()}")
        elif kind < 0.37:
            v, w = r.sample(VARIABLES, 2)
            self.line(indent, f"{v}, {w} = {w}, {self.expression(1)}")
        elif kind < 0.42:
            self.line(indent, f"{r.choice(VARIABLES)} {r.choice(['+', '-'])}= {self.expression(1)}")
        elif kind < 0.5 and loop:
            self.line(indent, r.choice(["break", "continue"]))
            return True
        elif kind < 0.56 and helper:
            self.line(indent, f"return {self.expression(1)}")
            return True
        elif kind < 0.78:
            self.branch(indent, loop, helper)
        else:
            self.loop(indent, helper)
        return False

    def branch(self, indent: int, loop: bool, helper: bool) -> None:
        r = self.r
        self.line(indent, f"if {self.condition()}:")
        self.block(indent + 1, loop, helper)
        if r.random() < 0.25:
            self.line(indent, f"elif {self.condition(1)}:")
            self.block(indent + 1, loop, helper)
        if r.random() < 0.45:
            self.line(indent, "else:")
            self.block(indent + 1, loop, helper)

    def loop(self, indent: int, helper: bool) -> None:
        r = self.r
        self.loops += 1
        k = self.loops
        kind = r.random()
        if kind < 0.4:
            bound = r.choice(["n", "m", "3", "n - 1"])
            self.line(indent, f"for i{k} in range({bound}):")
            self.line(indent + 1, f"{r.choice(VARIABLES)} += i{k}")
        elif kind < 0.65:
            self.line(indent, f"for i{k} in pl.static_range({r.randint(0, 3)}):")
            self.line(indent + 1, f"{r.choice(VARIABLES)} += i{k}")
        elif kind < 0.75:
            self.line(indent, f"for i{k} in ({r.randint(0, 5)}, n):")
            self.line(indent + 1, f"{r.choice(VARIABLES)} -= i{k}")
        else:
            self.line(indent, f"w{k} = {r.choice(['n', '3'])}")
            true = r.random() < 0.35
            self.line(indent, "while True:" if true else f"while w{k} > 0 and {self.condition(1)}:")
            self.line(indent + 1, f"w{k} = w{k} - 1")
            if true:
                self.line(indent + 1, f"if w{k} < {r.randint(-2, 1)}:")
                self.line(indent + 2, "break")
        self.block(indent + 1, True, helper)
        if r.random() < 0.3:
            self.line(indent, "else:")
            self.block(indent + 1, False, helper)

    def text(self) -> str:
        start = [f"    {v} = {self.r.randint(-2, 3)}" for v in VARIABLES]
        self.line(1, "def g(a, b):")
        self.line(2, "c, d = 1, b")
        self.block(2, False, True)
        self.block(2, False, True)
        self.line(2, f"return {self.expression(1)}")
        helper, self.lines = self.lines, []
        self.budget = 14
        self.block(1, False, False)
        self.line(1, "a = g(a, b)")
        self.block(1, False, False)
        self.line(1, f"d = d + g({self.expression(0)}, 2)")
        stores = [f"    y[{k}] = {v}" for k, v in enumerate(VARIABLES)]
        return "\n".join(["def f(y, x, n, m):", *start, *helper, *self.lines, *stores]) + "\n"


def defined(text: str, filename: str, scope: dict[str, Any]) -> dict[str, Any]:
    """The names that `text` defines, with its lines where tracebacks and the compiler find them."""
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    exec(compile(text, filename, "exec"), scope)
    return scope
