# SPDX-License-Identifier: MIT
"""Shared memory through which tiles change their axes: which banks the lanes of a warp use."""

from __future__ import annotations

import ctypes
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pto_jit.targets import toolchain
from pto_jit.targets.cuda import devices

from .harness import needs_compiler

CASES = [("float", run, columns) for run in (1, 2, 4) for columns in (32, 64, 100, 128, 256)]
CASES += [("double", run, columns) for run in (1, 2) for columns in (32, 63, 64, 128)]
CASES += [("float", 8, 256), ("float", 4, 33), ("int8_t", 8, 64)]


def name_of(case: tuple[str, int, int]) -> str:
    return "_".join(map(str, case))


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Where elements lie, and how many elements rows have there."""
    compiler = next(c for c in ("g++", "clang++") if shutil.which(c))
    lines = ['#include "pto_cuda_emulation.h"', '#include "pto_cuda.cuh"']
    for case in CASES:
        typ, run, columns = case
        lines += [f'extern "C" __attribute__((visibility("default"))) int place_{name_of(case)}(int row, int column) {{',
                  f"  return pto::exchanged_place<{typ}, {run}, {columns}>(row, column);", "}",
                  f'extern "C" __attribute__((visibility("default"))) int pitch_{name_of(case)}() {{',
                  f"  return pto::pitch<{typ}>({columns});", "}"]  # fmt: skip
    files = {**devices.headers(), **devices._emulation(".h"), "places.cpp": "\n".join(lines) + "\n"}
    made = toolchain.build([compiler, *devices._FLAGS, "-shared", "places.cpp", "-o", "places.so"], files, "places.so")
    path: Path = tmp_path_factory.mktemp("banks") / "places.so"
    path.write_bytes(made)
    return ctypes.CDLL(str(path))


def conflicts(places: list[int], size: int) -> int:
    """How often the lanes that are served at a time want different words of one bank: 1 where none do."""
    at_a_time = 32 if size <= 4 else 16
    worst = 1
    for first in range(0, len(places), at_a_time):
        words = {place * size // 4 + k for place in places[first : first + at_a_time] for k in range(max(1, size // 4))}
        worst = max(worst, *Counter(word % 32 for word in words).values())
    return worst


@needs_compiler
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_every_element_has_a_place_of_its_own(places: Any, case: tuple[str, int, int]) -> None:
    _, _, columns = case
    rows, place = 70, places[f"place_{name_of(case)}"]
    found = {place(row, column) for row in range(rows) for column in range(columns)}
    assert len(found) == rows * columns
    assert 0 <= min(found) and max(found) < rows * places[f"pitch_{name_of(case)}"]()


@needs_compiler
@pytest.mark.parametrize("case", [c for c in CASES if c[2] in (32, 64, 128, 256) and c[0] != "int8_t"], ids=name_of)
def test_no_two_lanes_want_the_same_bank(places: Any, case: tuple[str, int, int]) -> None:
    """Lanes that write along a row, and lanes that read down a column, each of which has runs of elements."""
    typ, run, columns = case
    size, place = {"float": 4, "double": 8}[typ], places[f"place_{name_of(case)}"]
    for first in range(0, columns, 32 * run):
        for k in range(run):
            lanes = [first + run * lane + k for lane in range(32)]
            for other in (0, 1, 31, 40, 65):
                written = [place(other, column) for column in lanes if column < columns]
                assert conflicts(written, size) == 1
    for k in range(run):
        for column in (0, 1, 31, columns - 1):
            assert conflicts([place(run * lane + k, column) for lane in range(32)], size) == 1
