# SPDX-License-Identifier: MIT
"""Data dependences: which iterations of loops touch the same elements.

`Dependences` answers three questions about the loops of a function: may two be exchanged, may one run in parallel, what
is a reduction.  `violation` proves that two iterations of a loop touch one element.

The accesses are affine rectangles recovered from the IR (`recovery`, `values`); a question about two of them becomes a
system of linear equations and inequalities over integers (`conflicts`), which quick tests of single subscripts
(`quick`) or the Omega test (`exact`, imported when it is needed) decide.

What is assumed: index arithmetic does not overflow; elements of one tensor at different indices are different memory;
an index lies inside its tensor.  Two different arguments may share memory when something has to be proven safe, and are
taken to be distinct when something has to be proven wrong.

J. R. Allen and K. Kennedy, "Optimizing Compilers for Modern Architectures" (2001); U. Banerjee, "Dependence Analysis
for Supercomputing" (1988); W. Pugh, "The Omega Test" (1991).
"""

from pto_jit.lower.dependence.accesses import Access, Accesses, Loop
from pto_jit.lower.dependence.conflicts import Conflict, conflict, may_alias
from pto_jit.lower.dependence.questions import Answer, Dependences, Order, Pairs, Reduction, Witness
from pto_jit.lower.dependence.recovery import collect

__all__ = [
    "Access", "Accesses", "Answer", "Conflict", "Dependences", "Loop", "Order", "Pairs", "Reduction", "Witness",
    "collect", "conflict", "may_alias",
]  # fmt: skip
