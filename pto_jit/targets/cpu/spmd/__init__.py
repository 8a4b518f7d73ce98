# SPDX-License-Identifier: MIT
"""Innermost parallel loops of scalar code, several iterations at a time.

The iterations of such a loop are independent by promise, so one *lane* of a vector can be one iteration, whatever the
body does: the body is written once with vectors, under masks where the lanes take different ways.  This is the
execution model of Pharr and Mark, "ispc: A SPMD compiler for high-performance CPU programming" (2012).

`plan` says whether a loop is written so and with how many lanes; `write` writes it, `write_loop` does both.
`row_writer` does the same for the function of a `map`, `carried_writer` for that of a fold or scan, `argument_writer`
for `argmax` and `argmin`.  `searching` writes loops that look for a greatest or least element, `packing` stores lanes
side by side, `merging` makes one of what lanes reduce.
"""

from pto_jit.targets.cpu.spmd.mapping import Carry, argument_writer, carried_writer, row_writer
from pto_jit.targets.cpu.spmd.planning import Plan, plan, write, write_loop

__all__ = ["Carry", "Plan", "argument_writer", "carried_writer", "plan", "row_writer", "write", "write_loop"]
