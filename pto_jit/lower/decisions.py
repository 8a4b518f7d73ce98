# SPDX-License-Identifier: MIT
"""What the compiler considered, whether it did it, and why."""

from __future__ import annotations

from typing import Literal

from pto_jit.errors import Loc
from pto_jit.slotted import frozen

DecisionKind = Literal[
    "chunk", "interchange", "placement", "reduction", "parallel", "grain", "fusion", "buffer", "dispatch", "schedule",
    "hoist",
]


@frozen
class Decision:
    """One choice: its kind, the source variables of the loops concerned, whether it was applied, the reason."""

    kind: DecisionKind
    loops: tuple[str, ...]
    applied: bool
    reason: str
    loc: Loc

    def __str__(self) -> str:
        mark = "applied" if self.applied else "refused"
        loops = f" [{', '.join(self.loops)}]" if self.loops else ""
        return f"{self.kind}{loops}: {mark}: {self.reason}  ({self.loc})"
