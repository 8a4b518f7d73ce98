# SPDX-License-Identifier: MIT
"""Small in-core functions around one instruction, run compiled and interpreted, before and after text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import pto_jit as pto
from pto_jit import ElementType, MemorySpace, PTOFunctionBuilder, PTOModule
from pto_jit.dtypes import from_numpy
from tests.targets.cpu_programs import agree

GLOBAL = MemorySpace.GLOBAL


def element(array: np.ndarray) -> Any:
    found = from_numpy(array.dtype)
    assert found is not None
    return found


def around(
    step: Callable[[PTOFunctionBuilder], object],
    inputs: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
    *,
    declare: bool = True,
    memory: bool = False,
    module: PTOModule | None = None,
    name: str = "f",
) -> PTOModule:
    """A function: `step` on tiles a, b, c... loaded from `inputs`, its results d0, d1... (declared) stored to `outputs`.

    With `memory` the first input stays a memref, named `a`.
    """
    module = PTOModule("m") if module is None else module
    b = PTOFunctionBuilder(name, module=module).in_core()
    for position, array in enumerate(inputs):
        name = "a" if memory and position == 0 else f"in{position}"
        b.memref(name, GLOBAL, element(array), array.shape)
    for position, array in enumerate(outputs):
        b.memref(f"out{position}", GLOBAL, element(array), array.shape)
    for position, array in enumerate(inputs):
        if not (memory and position == 0):
            b.tile("abcd"[position], *array.shape, element(array)).load("abcd"[position], f"in{position}")
    if declare:
        for position, array in enumerate(outputs):
            b.tile(f"d{position}", *array.shape, element(array))
    step(b)
    for position in range(len(outputs)):
        b.store(f"out{position}", f"d{position}")
    b.build()
    return module


def run(
    module: PTOModule, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], *, compiled: bool = True
) -> list[np.ndarray]:
    """What the function leaves in the inputs and outputs, checked to be the same compiled, interpreted, and as text."""
    assert pto.parse_pto(str(module)) == module
    given = [[x.copy() for x in (*inputs, *outputs)] for _ in range(2)]
    function = module.compile()["f"]
    function.interpret(*given[0])
    if compiled:
        function(*given[1])
        for left, right in zip(*given, strict=True):
            agree(right, left)
    return given[0]


def floats(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def positives(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).random(shape) + 0.5).astype(np.float32)


def integers(*shape: int, seed: int = 0, low: int = -20, high: int = 20, dtype: Any = np.int32) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


__all__ = ["GLOBAL", "ElementType", "around", "element", "floats", "integers", "positives", "run"]
