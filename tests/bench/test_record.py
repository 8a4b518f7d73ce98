# SPDX-License-Identifier: MIT
"""A run as JSON and back, and two runs compared."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from pto_jit.bench.compare import Comparison, compare
from pto_jit.bench.machine import Cache, Machine
from pto_jit.bench.record import FirstCall, Reading, Record, Result, Row, from_json, load, to_json
from pto_jit.bench.workload import Work

MACHINE = Machine("a processor", "x86_64", 2, 2, (Cache(1, 49152, 1), Cache(3, 1 << 25, 2)), 1 << 34, "Linux 6", "3.11")


def timed(peer: str, *seconds: float, variant: str = "", threads: int = 1) -> Result:
    return Result(peer, variant, threads, "ok", seconds=seconds, calls=10, output="preallocated", worst=0.5)


def row(*results: Result, workload: str = "softmax") -> Row:
    return Row(workload, (4, 8), "f32", "GB/s", 1, Work(0, 128, 128), results, 1e-6, 0.25)


def record(*rows: Row) -> Record:
    return Record(
        created="2026-01-01T00:00:00+00:00",
        machine=MACHINE,
        versions={"numpy": "2"},
        dropped_environment={"OMP_NUM_THREADS": "7"},
        set_environment={},
        settings={"rounds": 3},
        limits=(Reading("copy", "GB/s", 1, 40.0, 39.0, 41.0, 1 << 20),),
        rows=rows,
        first_calls=(FirstCall("pto", "ok", "", 0.1, 0.2, 0.3, 0.4, 0.5, 3),),
        missing={"jax": "jax not installed"},
    )


def test_a_record_survives_json() -> None:
    made = record(row(timed("pto", 1.0, 2.0, 3.0), Result("torch", "", 1, "died", "killed by SIGSEGV")))
    assert from_json(to_json(made)) == made


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "other"}', '{"format": "pto-bench", "version": 1}'])
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        from_json(text)


def test_another_version_of_the_format_is_named() -> None:
    with pytest.raises(ValueError, match="format 99, not 1"):
        from_json('{"format": "pto-bench", "version": 99}')


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"gone\.json"):
        load(tmp_path / "gone.json")


def only(first: Row, second: Row, label: str = "pto") -> Comparison:
    found, _ = compare(record(first), record(second))
    return next(one for one in found if one.label == label)


def test_half_the_time_is_a_ratio_of_two() -> None:
    one = only(row(timed("pto", 2.0, 2.0, 2.0)), row(timed("pto", 1.0, 1.0, 1.0)))
    assert (one.ratio.value, one.anchor, one.verdict) == (2.0, None, "faster")


def test_overlapping_quartiles_are_noise() -> None:
    one = only(row(timed("pto", 1.0, 2.0, 3.0)), row(timed("pto", 1.1, 1.9, 2.5)))
    assert one.ratio.low < 1.0 < one.ratio.high and one.verdict == "within noise"


def test_a_change_that_the_peers_show_too_is_the_machines() -> None:
    first = row(timed("pto", 2.0, 2.0), timed("numpy", 4.0, 4.0), timed("jax", 6.0, 6.0))
    second = row(timed("pto", 1.0, 1.0), timed("numpy", 2.0, 2.0), timed("jax", 3.0, 3.0))
    one = only(first, second)
    assert one.anchor is not None and one.anchor.value == 2.0
    assert (one.beyond.value, one.verdict) == (1.0, "as the peers")


def test_a_slowdown_beyond_the_peers_is_seen_on_a_faster_machine() -> None:
    first = row(timed("pto", 2.0, 2.0), timed("numpy", 4.0, 4.0))
    second = row(timed("pto", 1.8, 1.8), timed("numpy", 2.0, 2.0))
    one = only(first, second)
    assert one.ratio.value > 1.0 and one.verdict == "slower"


def test_a_machine_twice_as_slow_does_not_hide_an_unchanged_time() -> None:
    first = row(timed("pto", 1.0, 1.0), timed("numpy", 1.0, 1.0))
    second = row(timed("pto", 1.0, 1.0), timed("numpy", 2.0, 2.0))
    assert only(first, second).verdict == "faster"


def test_what_is_in_only_one_run_is_listed() -> None:
    first = record(row(timed("pto", 1.0)), row(timed("pto", 1.0), workload="old"))
    second = record(row(timed("pto", 1.0), timed("numpy", 1.0)), row(timed("pto", 1.0), workload="new"))
    found, unmatched = compare(first, second)
    assert [one.label for one in found] == ["pto"]
    assert len(unmatched) == 3
    assert any("old" in line and "first" in line for line in unmatched)
    assert any("new" in line and "second" in line for line in unmatched)
    assert any("numpy" in line for line in unmatched)


def test_a_failed_result_is_not_compared() -> None:
    failed = dataclasses.replace(timed("pto", 1.0), status="wrong", seconds=())
    assert compare(record(row(failed)), record(row(timed("pto", 1.0))))[0] == []
