# SPDX-License-Identifier: MIT
"""Kept runs at a glance, and the table of those in `benchmarks/`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from pto_jit.bench.command import main
from pto_jit.bench.overview import markdown, overview
from pto_jit.bench.record import load, to_json
from tests.bench.test_record import record, row, timed

KEPT = Path(__file__).parents[2] / "benchmarks"


def test_the_fastest_kernel_stands_beside_the_fastest_peer() -> None:
    calm = dataclasses.replace(
        row(timed("pto", 4.0, 4.0), timed("pto", 2.0, 2.0, variant="tiled"), timed("numpy", 9.0, 9.0), timed("jax", 3.0, 3.0)),
        foreign_cores=0.0,
    )  # fmt: skip
    (line,) = overview([record(calm)])
    assert line.name == "softmax 4x8 f32" and str(line.standings[1]) == "1.50 (jax)"


def test_a_disturbed_row_and_an_undecided_ratio_are_marked() -> None:
    (line,) = overview([record(row(timed("pto", 1.0, 2.0), timed("numpy", 2.0, 1.0)))])
    assert str(line.standings[1]) == "1.25 ~ ! (numpy)"


def test_a_row_without_a_peer_is_left_out_and_of_equal_rows_the_last_counts() -> None:
    first, second = row(timed("pto", 1.0), timed("numpy", 2.0)), row(timed("pto", 1.0), timed("numpy", 5.0))
    two = dataclasses.replace(row(timed("pto", 1.0, threads=2), timed("numpy", 3.0, threads=2)), threads=2)
    lines = overview([record(first, row(timed("pto", 1.0), workload="alone")), record(second, two)])
    assert markdown(lines) == (
        "|  | 1 thread | 2 threads |\n| --- | --- | --- |\n| softmax 4x8 f32 | 5.00 ! (numpy) | 3.00 ! (numpy) |\n"
    )


def test_the_command_shows_files_and_names_what_it_cannot_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "one.json"
    file.write_text(to_json(record(row(timed("pto", 1.0), timed("numpy", 2.0)))))
    assert main(["show", str(file)]) == 0
    assert "| softmax 4x8 f32 | 2.00 ! (numpy) |" in capsys.readouterr().out
    with pytest.raises(SystemExit) as caught:
        main(["show", str(tmp_path / "gone.json")])
    assert caught.value.code == 2 and "gone.json" in capsys.readouterr().err


@pytest.mark.parametrize("machine", sorted(path.name for path in KEPT.iterdir() if path.is_dir()))
def test_the_table_of_the_kept_runs_is_made_of_them(machine: str) -> None:
    files = sorted((KEPT / machine).glob("*.json"))
    assert files and markdown(overview([load(file) for file in files])) in (KEPT / "README.md").read_text()
