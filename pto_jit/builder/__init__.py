# SPDX-License-Identifier: MIT
"""Programs built call by call: `PTOModule`, `PTOFunctionBuilder`, and the words they use."""

from pto_jit.builder.elements import ElementType, MemorySpace
from pto_jit.builder.function import PTOFunctionBuilder
from pto_jit.builder.module import BuiltFunction, PTOModule

__all__ = ["BuiltFunction", "ElementType", "MemorySpace", "PTOFunctionBuilder", "PTOModule"]
