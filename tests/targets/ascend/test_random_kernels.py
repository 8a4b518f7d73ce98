# SPDX-License-Identifier: MIT
"""Random kernels of the whole language: each is written, ordered and legal, or refused by name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
from pto_jit.semantic import interpreter
from pto_jit.targets.ascend.legality import violations
from pto_jit.targets.ascend.ordering import races
from tests.differential import compare, kernels, nests
from tests.differential.rounds import share

from .harness import SEEDS, Programs, kernels_of, needs_compiler, written

_NARROW = {"f64": "f32", "i64": "i32", "u64": "i32", "u32": "i32", "u16": "i16", "u8": "i16", "i8": "i16"}
_NUMPY = {
    "f64": np.float32,
    "i64": np.int32,
    "u64": np.int32,
    "u32": np.int32,
    "u16": np.int16,
    "u8": np.int16,
    "i8": np.int16,
}


def of_device(seed: int) -> compare.Kernel:
    """A kernel with element types that the device computes with in the place of those that it does not."""
    kernel = kernels.generate(seed)
    source = re.sub(rf"\bpl\.({'|'.join(_NARROW)})\b(?!\()", lambda found: f"pl.{_NARROW[found[1]]}", kernel.source)
    kinds = {np.dtype(kernels.NUMPY[name]): np.dtype(kind) for name, kind in _NUMPY.items()}
    return replace(kernel, source=source, buffers=tuple(b.astype(kinds.get(b.dtype, b.dtype)) for b in kernel.buffers))


# what once went wrong
FOUND: dict[Any, tuple[int, ...]] = {
    kernels.generate: (82, 212),
    nests.generate: (32, 35, 30036, 30159),
    of_device: (74, 138, 1169, 20058, 20131, 21045, 21213, 21267),
}


@pytest.mark.parametrize(
    ("make", "count"),
    [(kernels.generate, 24), (nests.generate, 12), (of_device, 12)],
    ids=["kernels", "nests", "of_device"],
)
def test_random_kernels_are_written_well_or_refused(make: Callable[..., Any], count: int) -> None:
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


RUN = (4, 8, 31, 63, 104, 161)
"""Kernels that this target takes."""


@needs_compiler
def test_random_kernels_give_the_numbers_of_the_interpreter(tmp_path: Path) -> None:
    made = {f"kernel_{seed}": kernels.generate(seed) for seed in RUN}
    functions = {name: compare.build(kernel) for name, kernel in made.items()}
    compiled = {name: written(functions[name], *kernel.arguments()[1]) for name, kernel in made.items()}
    programs = Programs(compiled, tmp_path)
    for name, kernel in made.items():
        names = list(inspect.signature(functions[name].__pto_jit__).parameters)
        _, expected = kernel.arguments()
        interpreter.run(compiled[name]._lowered().modules["source"], expected)
        for seed in SEEDS:
            _, mine = kernel.arguments()
            programs.run(name, seed, **dict(zip(names, mine, strict=True)))
            for ours, theirs in zip(mine, expected, strict=True):
                if isinstance(ours, np.ndarray):
                    close = 2e-3 if ours.dtype.itemsize == 2 else 2e-5
                    np.testing.assert_allclose(
                        ours.astype(np.float64), theirs.astype(np.float64), rtol=close, atol=close, err_msg=str(kernel)
                    )
