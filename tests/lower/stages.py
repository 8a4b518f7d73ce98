# SPDX-License-Identifier: MIT
"""What the passes make of a kernel, without making machine code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pto_jit.arguments import Parameters
from pto_jit.compiled import LoopNode, _nest
from pto_jit.compiler import Stages, lower
from pto_jit.options import Options


def stages_of(kernel: Any, args: Sequence[Any]) -> Stages:
    """The stages of a `@pto.jit` function for arguments: modules, decisions."""
    parameters = Parameters(kernel.__pto_jit__, kernel.__pto_jit__.__globals__)
    call = parameters.classify(*parameters.bind(tuple(args), {}))
    return lower(kernel.__pto_jit__, call.params, Options())


def nest_of(stages: Stages) -> list[LoopNode]:
    """The loops after placement, as `compiled.loop_nest()` gives them."""
    module = stages.modules["trimmed"]
    return _nest(module.func(module.entry).body)
