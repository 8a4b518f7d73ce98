# SPDX-License-Identifier: MIT
"""The text of a random program as it grows: lines, indentation, new names; and blocks that hide what they define."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass
class Growing:
    """A program being written.  `SCOPED` names the lists of a writer that hold what is visible at the end of the text."""

    SCOPED: ClassVar[tuple[str, ...]] = ()

    rng: random.Random
    lines: list[str] = field(default_factory=list, kw_only=True)
    depth: int = field(default=1, kw_only=True)
    count: int = field(default=0, kw_only=True)

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def name(self, prefix: str = "v") -> str:
        """A name that is not used yet."""
        self.count += 1
        return f"{prefix}{self.count}"

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """An indented block; what it defines is not visible after it."""
        self.line(header)
        self.depth += 1
        seen = {name: list(getattr(self, name)) for name in self.SCOPED}
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1
        for name, visible in seen.items():
            setattr(self, name, visible)
