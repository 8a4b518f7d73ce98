# SPDX-License-Identifier: MIT
"""Comprehensions: index notation with inferred ranges, as text or as Python (`docs/comprehensions.md`).

Both forms are read into `nodes`; `program` checks a definition and infers the ranges of its statements in rounds;
`lowering` writes the loops as a `@pto.jit` function; `function` is what a user holds.

* `text`, `python`, `nodes`: the two forms, and a comprehension as data
* `program`, `inference`, `forms`, `symbolic`, `typing`: analysis: definitions, ranges in rounds, inequalities,
  integer expressions, types
* `lowering/`: loops as the text of a kernel
* `function`, `version`, `arguments`, `results`, `explanation`, `spelling`: what a user holds: calls, compiled
  versions, ranges, explanations
* `functions`: the functions that the forms know (those that are not operations are in `semantic`)
* `inline`, `interpretation`: statements inside kernels, compiled and interpreted
"""

from pto_jit.comprehensions.function import Comprehension, comprehension
from pto_jit.comprehensions.results import Inference, StatementInference

__all__ = ["Comprehension", "Inference", "StatementInference", "comprehension"]
