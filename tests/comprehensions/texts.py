# SPDX-License-Identifier: MIT
"""Random texts that fit the grammar of comprehensions; what they say may be right, wrong or odd."""

from __future__ import annotations

import random

_INDICES = "ijk"
_TYPES = ("float", "float", "float", "int32", "double", "uint8", "int", "bool", "half", "int64")
_FUNCTIONS = {
    "exp": 1, "sqrt": 1, "tanh": 1, "fabs": 1, "floor": 1, "isnan": 1, "tgamma": 1, "rint": 1, "sigmoid": 1, "fmax": 2,
    "fmin": 2, "pow": 2, "min": 2, "max": 2, "fmod": 2, "fma": 3,
}  # fmt: skip
_OPERATORS = ("+", "-", "*", "/", "%", "<", ">=", "==", "&&", "||")
_ASSIGNMENTS = ("=", "=", "+=!", "+=!", "max=!", "min=!", "*=!")


class _Text:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.ranks: dict[str, int] = {}
        self.sizes: set[str] = set()

    def one(self, choices: str | tuple[str, ...] | list[str]) -> str:
        return self.rng.choice(choices)

    def parameter(self, name: str) -> str:
        rank = self.ranks[name] = self.rng.randint(0, 3)
        sizes = [self.one(("N", "M", "3", "N")) for _ in range(rank)]
        self.sizes |= {s for s in sizes if s.isalpha()}
        return f"{self.one(_TYPES)}{'(' + ', '.join(sizes) + ')' if rank else ''} {name}"

    def size(self) -> str:
        return self.one(sorted(self.sizes) or ["3"])

    def element(self, depth: int) -> str:
        name = self.one(list(self.ranks))
        rank = self.ranks[name] if self.rng.random() < 0.97 else self.rng.randint(0, 2)
        return f"{name}({', '.join(self.subscript(depth) for _ in range(rank))})" if rank else name

    def subscript(self, depth: int) -> str:
        i, pick = self.one(_INDICES), self.rng.randint
        kind = pick(0, 11)
        if kind == 4:
            return f"{i} + {self.one(_INDICES)}"
        if kind == 5:
            return f"{pick(-3, 3)}*{i} + {pick(-4, 4)}" if pick(0, 2) else f"{self.size()} - 1 - {i}"
        if kind in (6, 7):
            return f"{i} {'/%'[kind - 6]} {pick(-2, 4)}"
        if kind == 8 and depth < 2:
            return f"{self.one(('min', 'max'))}({self.subscript(depth + 1)}, {self.subscript(depth + 1)})"
        if kind == 9:
            return str(pick(-1, 3))
        if kind == 10 and depth < 2:
            return f"int32({self.expression(depth + 2)})"
        if kind == 11:
            return f"{self.one(list(self.ranks))}({i})" if pick(0, 1) else f"{i}*{self.one(_INDICES)}"
        return i

    def expression(self, depth: int = 0) -> str:
        kind = self.rng.randrange(14)
        inner = lambda: self.expression(depth + 1)  # noqa: E731
        if depth > 3 or kind < 5:
            return self.element(depth)
        if kind == 5:
            return self.one(("1", "0", "2.5", "i", "j", self.size(), "0.0", "1e30", "-3", "300"))
        if kind < 9:
            return f"({inner()} {self.one(_OPERATORS)} {inner()})"
        if kind == 9:
            return f"({inner()} ? {inner()} : {inner()})"
        if kind == 10:
            name = self.one(list(_FUNCTIONS))
            return f"{name}({', '.join(inner() for _ in range(_FUNCTIONS[name]))})"
        if kind == 11:
            return f"{self.one(_TYPES)}({inner()})"
        if kind == 12:
            return f"pad({self.element(depth)}, {self.one(('0', '0.0', '1.5'))})"
        return self.one("-!") + inner()

    def statement(self, outputs: list[str]) -> str:
        rng = self.rng
        target, op = self.one("AABC"), self.one(_ASSIGNMENTS)
        if target in outputs and rng.random() < 0.9:
            left = list(_INDICES[: self.ranks[target]])
        else:
            left = list(_INDICES[: rng.randint(1, 3)]) if op == "=" else rng.sample(_INDICES, rng.randint(0, 3))
        clauses: list[str] = []
        for i in _INDICES:
            if rng.random() < 0.6:
                high = self.one((self.size(), self.size(), "3", "2", f"{self.size()} + 1", f"{self.size()} / 2", "0"))
                clauses.append(f"{i} in {self.one(('0', '0', '1', '-2'))}:{high}")
            elif rng.random() < 0.1:
                clauses.append(f"exists {self.expression(2)}")
        value = self.expression()
        self.ranks[target] = len(left)
        if target not in outputs:
            outputs.append(target)
        return f"    {target}({', '.join(left)}) {op} {value}{' where ' + ', '.join(clauses) if clauses else ''}"

    def definition(self) -> str:
        parameters = ", ".join(map(self.parameter, self.rng.sample("XYZW", self.rng.randint(1, 3))))
        outputs: list[str] = []
        body = "\n".join(self.statement(outputs) for _ in range(self.rng.randint(1, 4)))
        returned = [o for o in outputs if self.rng.random() < 0.8] or outputs[:1]
        return f"def f({parameters}) -> ({', '.join(returned)}) {{\n{body}\n}}"


def random_text(rng: random.Random) -> str:
    """One definition over tensors of small ranks."""
    return _Text(rng).definition()
