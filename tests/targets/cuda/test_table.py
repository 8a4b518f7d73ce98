# SPDX-License-Identifier: MIT
"""The table of docs/cuda.md says what becomes of every kernel of the benchmarks, and is right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pto_jit as pto
from tests.targets.bench_kernels import SPECS, kernel, names

_KINDS = {"elements": "a thread per element", "folds": "folds over elements", "rows": "rows", "fragments": "products"}


def outcome(name: str) -> str:
    """What the table says of a kernel: how its kernels are spread over threads."""
    try:
        program = kernel(name).compile(*SPECS[name], target="cuda")._kernel.built.program
        assert program.sources
    except pto.TargetError as error:
        match = re.match(r"(PTO-X\d+): (?:\w+: )?(.*)", str(error))
        assert match is not None
        return f"refused: `{match[1]}`"
    kinds = [f"{_KINDS[k.kind]}{' on tensor cores' if k.tensor_cores else ''}" for k in program.host.kernels.values()]
    return f"written: {', '.join(dict.fromkeys(kinds))}"


def rows() -> dict[str, str]:
    text = (Path(__file__).parents[3] / "docs" / "cuda.md").read_text()
    table = text.split("## Kernels of the benchmarks")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `([\w.]+)` \| ([^|]*) \|", table, flags=re.MULTILINE))


def test_every_kernel_of_the_benchmarks_has_a_row() -> None:
    assert names() == set(SPECS), "give a new kernel its argument kinds here, and a row in docs/cuda.md"
    assert set(rows()) == set(SPECS)


@pytest.mark.parametrize("name", SPECS)
def test_the_row_is_right(name: str) -> None:
    assert outcome(name) == rows()[name]
