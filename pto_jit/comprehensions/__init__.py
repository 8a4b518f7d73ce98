# SPDX-License-Identifier: MIT
"""Comprehensions: index notation with inferred ranges, as text or as Python (`docs/comprehensions.md`).

Both forms are read into `nodes`; `program` checks a definition and infers the ranges of its statements in rounds;
`lowering` writes the loops as a `@pto.jit` function; `function` is what a user holds.
"""

from pto_jit.comprehensions.function import Comprehension, comprehension
from pto_jit.comprehensions.results import Inference, StatementInference

__all__ = ["Comprehension", "Inference", "StatementInference", "comprehension"]
