# SPDX-License-Identifier: MIT
"""The element-loop form of in-core code, shared by the targets that write loops."""

from pto_jit.targets.loops.form import (
    Accumulate,
    Compute,
    Fold,
    Kept,
    Memory,
    Nest,
    Position,
    Read,
    Result,
    RowBuffer,
    Segment,
    Source,
    Step,
    Store,
    Stored,
    Write,
)  # fmt: skip
from pto_jit.targets.loops.plan import plan

__all__ = [
    "Accumulate", "Compute", "Fold", "Kept", "Memory", "Nest", "Position", "Read", "Result", "RowBuffer", "Segment",
    "Source", "Step", "Store", "Stored", "Write", "plan",
]  # fmt: skip
