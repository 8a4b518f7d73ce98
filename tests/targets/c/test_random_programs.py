# SPDX-License-Identifier: MIT
"""Random kernels of the whole language and loop nests as C, against the reference interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pto_jit as pto
from pto_jit.semantic import interpreter
from tests.differential import compare, kernels, nests
from tests.differential.rounds import share

from .harness import Batch, needs_compiler

pytestmark = needs_compiler


@pytest.mark.parametrize(("make", "count"), [(kernels.generate, 20), (nests.generate, 12)], ids=["kernels", "nests"])
def test_random_kernels_of_the_whole_language_agree(make: Callable[[int], Any], count: int) -> None:
    batch, tried = Batch(), []
    for seed in range(share(count)):
        kernel = make(seed)
        _, args = kernel.arguments()
        try:
            batch.add(compare.build(kernel), *args)
        except (pto.CompilationError, pto.LaunchError):
            continue  # what no target compiles
        tried.append((seed, kernel))
    batch.build()
    for (compiled, *_), (seed, kernel) in zip(batch.items, tried, strict=True):
        source = compiled._lowered().modules["source"]  # type: ignore[attr-defined]
        expected = compare.outcome(kernel, lambda a, m=source: interpreter.run(m, a) and None)
        actual = compare.outcome(kernel, lambda a, c=compiled: c(*a) and None)
        assert compare.difference(kernel, expected, actual) is None, f"seed {seed}\n{kernel}"
