# SPDX-License-Identifier: MIT
"""Random kernels of the whole language: each is written, ordered and legal, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pto_jit as pto
from pto_jit.targets.ascend.legality import violations
from pto_jit.targets.ascend.ordering import races
from tests.differential import compare, kernels, nests
from tests.differential.rounds import share

from .harness import kernels_of, written

FOUND = {kernels.generate: (82, 212), nests.generate: (32, 35)}  # what once went wrong


@pytest.mark.parametrize(("make", "count"), [(kernels.generate, 24), (nests.generate, 12)], ids=["kernels", "nests"])
def test_random_kernels_are_written_well_or_refused(make: Callable[[int], Any], count: int) -> None:
    for seed in (*range(share(count)), *FOUND[make]):
        kernel = make(seed)
        _, args = kernel.arguments()
        try:
            compiled = written(compare.build(kernel), *args)
        except pto.TargetError as error:
            assert str(error).startswith("PTO-X21") and "help: " in str(error)
            continue
        except (pto.CompilationError, pto.LaunchError):
            continue  # what no target compiles
        for form in kernels_of(compiled):
            assert races(form) == [], f"seed {seed}\n{kernel}"
            assert violations(form) == []
