# SPDX-License-Identifier: MIT
"""What the operations of `pl`, Python's operators and its functions mean on run-time values.

Every handler takes the code generator and appends typed IR through its emitter.
"""

from __future__ import annotations

from pto_jit.codegen.builtins import debug, matrix, memory, order, reduction, structure  # noqa: F401 - register
from pto_jit.codegen.builtins.elementwise import binary, compare, tested, truth
from pto_jit.codegen.builtins.elementwise import python_unary as unary
from pto_jit.codegen.builtins.python import BoundMethod, attribute, one_axis, python_builtin
from pto_jit.codegen.builtins.registry import call
from pto_jit.codegen.builtins.subscripts import is_mask, store_masked, store_subscript, subscript

__all__ = [
    "BoundMethod",
    "attribute",
    "binary",
    "call",
    "compare",
    "is_mask",
    "one_axis",
    "python_builtin",
    "store_masked",
    "store_subscript",
    "subscript",
    "tested",
    "truth",
    "unary",
]
