# SPDX-License-Identifier: MIT
"""The table of docs/ascend.md says what becomes of every kernel of the benchmarks, and is right."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import TargetError
from tests.targets.bench_kernels import SPECS as COMMON
from tests.targets.bench_kernels import T, kernel, names

from .harness import kernels_of, written

ROWS, LINE = pto.spec((None, 256), pl.f32), pto.spec((256,), pl.f32)
HALF = pto.spec((None, None), pl.f16)
SPECS: dict[str, tuple[Any, ...]] = COMMON | {
    "grids.conv3x3": (T, pto.spec((3, 3, None, None), pl.f32), T),
    "rows.softmax": (HALF,) * 2,
    "rows.rms_norm": (ROWS, LINE, ROWS),
}


def outcome(name: str) -> str:
    """What the table says of a kernel."""
    try:
        forms = kernels_of(written(kernel(name), *SPECS[name]))
    except TargetError as error:
        first = str(error).splitlines()[0]
        match = re.match(r"PTO-X210: the ascend target does not do (.*)|PTO-X211: \w+: (?:its tiles|a tile) .* in (.*)", first)
        assert match is not None
        return f"refused: {match[1] or f'its tiles do not fit {match[2]}'}"
    kinds = ["cube and vector" if f.partner else f.core for f in forms]
    return f"written: {', '.join(kinds)}"


def rows() -> dict[str, str]:
    text = (Path(__file__).parents[3] / "docs" / "ascend.md").read_text()
    table = text.split("## Kernels of the benchmarks")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `([\w.]+)` \| (.*) \|$", table, flags=re.MULTILINE))


def test_every_kernel_of_the_benchmarks_has_a_row() -> None:
    assert names() == set(SPECS), "give a new kernel its argument kinds here, and a row in docs/ascend.md"
    assert set(rows()) == set(SPECS)


@pytest.mark.parametrize("name", SPECS)
def test_the_row_is_right(name: str) -> None:
    assert outcome(name) == rows()[name]
