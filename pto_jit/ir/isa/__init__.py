# SPDX-License-Identifier: MIT
"""The PTO ISA: instructions by name, and by the word that stands for them in text."""

from pto_jit.ir.isa import elementwise, scalar, structure
from pto_jit.ir.isa.row import Emit, Instruction, Last, Parameter

ROWS: tuple[Instruction, ...] = (*elementwise.ROWS, *structure.ROWS, *scalar.ROWS)
INSTRUCTIONS: dict[str, Instruction] = {row.name: row for row in ROWS}
SPELLINGS: dict[str, Instruction] = {row.spelling: row for row in ROWS}
OPERATIONS: frozenset[str] = elementwise.OPERATIONS
"""Names of instructions that are the operation of the same name, in text one word."""

NO_MEANING: dict[str, str] = dict.fromkeys(
    "tsync tsyncall tassign talloc tpush tpop tfree tput tget tnotify twait ttest tbroadcast treduce".split(),
    "tiles are values and order is kept, so there is nothing to place, to wait for or to send",
)
"""Instructions of the ISA that say nothing on one core, and why."""

__all__ = ["INSTRUCTIONS", "NO_MEANING", "OPERATIONS", "ROWS", "SPELLINGS", "Emit", "Instruction", "Last", "Parameter"]
