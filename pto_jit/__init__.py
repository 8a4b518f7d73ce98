# SPDX-License-Identifier: MIT
"""pto_jit: tile programs as plain Python functions, compiled to native code.

>>> import numpy as np
>>> import pto_jit as pto, pto_jit.language as pl
>>> @pto.jit
... def double(x: pl.Tensor, y: pl.Tensor):
...     y[...] = x * 2
>>> x, y = np.arange(4.0), np.empty(4)
>>> double(x, y)
>>> y
array([0., 2., 4., 6.])
"""

from typing import TYPE_CHECKING, Any

from pto_jit import language
from pto_jit.arguments import spec
from pto_jit.config import config
from pto_jit.errors import (
    ArgumentError,
    BoundsError,
    CompilationError,
    InternalError,
    KernelAssertionError,
    LaunchError,
    ParseError,
    PtoError,
    RaceError,
    RangeInferenceError,
    ScheduleError,
    ShapeError,
    TargetError,
    TaskError,
    ToolchainError,
    TypeMismatchError,
    UnsupportedSyntaxError,
)
from pto_jit.jit import InCoreFunction, JitFunction, incore, jit
from pto_jit.kernel import Specialization

if TYPE_CHECKING:
    from pto_jit.assembly import load_pto, parse_pto
    from pto_jit.builder import BuiltFunction, ElementType, MemorySpace, PTOFunctionBuilder, PTOModule
    from pto_jit.compiled import Compiled, LoopNode
    from pto_jit.comprehensions import Comprehension, Inference, comprehension
    from pto_jit.lower.decisions import Decision
    from pto_jit.modules import CompiledFunction, CompiledModule

__version__ = "0.1.0"

# What most programs do not need at their start, and where it is: imported when it is asked for.
_LATER = {
    "BuiltFunction": "builder",
    "Compiled": "compiled",
    "CompiledFunction": "modules",
    "CompiledModule": "modules",
    "Comprehension": "comprehensions",
    "Decision": "lower.decisions",
    "ElementType": "builder",
    "Inference": "comprehensions",
    "LoopNode": "compiled",
    "MemorySpace": "builder",
    "PTOFunctionBuilder": "builder",
    "PTOModule": "builder",
    "comprehension": "comprehensions",
    "load_pto": "assembly",
    "parse_pto": "assembly",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


__all__ = [
    "ArgumentError",
    "BoundsError",
    "BuiltFunction",
    "CompilationError",
    "Compiled",
    "CompiledFunction",
    "CompiledModule",
    "Comprehension",
    "Decision",
    "ElementType",
    "InCoreFunction",
    "Inference",
    "InternalError",
    "JitFunction",
    "KernelAssertionError",
    "LaunchError",
    "LoopNode",
    "MemorySpace",
    "PTOFunctionBuilder",
    "PTOModule",
    "ParseError",
    "PtoError",
    "RaceError",
    "RangeInferenceError",
    "ScheduleError",
    "ShapeError",
    "Specialization",
    "TargetError",
    "TaskError",
    "ToolchainError",
    "TypeMismatchError",
    "UnsupportedSyntaxError",
    "comprehension",
    "config",
    "incore",
    "jit",
    "language",
    "load_pto",
    "parse_pto",
    "spec",
]
