# SPDX-License-Identifier: MIT
"""The engine with libraries that work, lie, crash, hang or refuse."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pto_jit.bench.engine import Engine, Settings
from pto_jit.bench.peers import Peer
from pto_jit.bench.record import Result, Row
from tests.bench.fake_catalog import DOUBLE

SETTINGS = Settings(
    rounds=3, batch_seconds=0.001, timeout=60.0, recycle=False, with_limits=False,
    catalog="tests.bench.fake_catalog:WORKLOADS",
)  # fmt: skip
FAKE = Peer("fake", "tests.bench.fake_peers", ("numpy",), "numpy", {"FAKE_NOTE": "noted"})


@pytest.fixture(autouse=True)
def root_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers find the fakes as the tests do."""
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))))
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")


@pytest.fixture(scope="module")
def row() -> Iterator[Row]:
    """One row with everybody in it, measured once for all tests that look at it."""
    root = str(Path(__file__).parents[2])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))))
        with Engine(SETTINGS) as engine:
            absent = Peer("absent", "tests.bench.fake_peers", ("no_such_library_here",), "none")
            broken = Peer("broken", "tests.bench.fake_broken", ("numpy",), "numpy")
            yield engine.row(DOUBLE, (8,), [FAKE, absent, broken], [1])


def result(row: Row, label: str) -> Result:
    found = [one for one in row.results if one.label == label]
    assert len(found) == 1, [one.label for one in row.results]
    return found[0]


def test_a_right_implementation_is_timed_in_every_round(row: Row) -> None:
    right = result(row, "fake")
    assert right.status == "ok"
    assert len(right.seconds) == 3 and min(right.seconds) > 0.0
    assert right.calls * right.median >= 0.0005, "batches are calibrated to about a millisecond"
    assert right.output == "preallocated" and right.worst <= 1.0


def test_a_peer_sees_its_own_environment(row: Row) -> None:
    assert result(row, "fake").note == "noted"


def test_a_returned_result_is_checked_and_marked(row: Row) -> None:
    assert result(row, "fake returned").output == "returned"
    assert result(row, "fake returned").status == "ok"


def test_a_wrong_result_is_reported_and_never_timed(row: Row) -> None:
    wrong = result(row, "fake wrong")
    assert wrong.status == "wrong" and wrong.seconds == ()
    assert wrong.message.startswith("8 of 8 elements wrong; worst at (")


def test_an_element_that_is_never_written_is_a_wrong_result(row: Row) -> None:
    assert result(row, "fake partial").message.startswith("1 of 8 elements wrong; worst at (0,): nan")


def test_a_result_that_changes_from_call_to_call_is_found_after_the_timing(row: Row) -> None:
    drifting = result(row, "fake drifting")
    assert drifting.status == "wrong" and drifting.seconds == ()
    assert drifting.message.startswith("after the timing: ")


def test_an_exception_is_reported_with_its_message(row: Row) -> None:
    assert result(row, "fake raising").status == "error"
    assert result(row, "fake raising").message == "RuntimeError: no such kernel"


def test_a_refusal_is_no_failure(row: Row) -> None:
    assert result(row, "fake refusing").status == "unsupported"
    assert result(row, "fake refusing").message == "only on Tuesdays"


def test_a_crash_is_reported_with_the_last_words(row: Row) -> None:
    assert result(row, "fake crashing").status == "died"
    assert result(row, "fake crashing").message == "exited with status 3: about to crash"


def test_a_crash_while_timed_ends_only_its_own_measurement(row: Row) -> None:
    later = result(row, "fake crashing later")
    assert later.status == "died" and "SIGABRT" in later.message and later.seconds == ()
    assert len(result(row, "fake").seconds) == 3


def test_a_peer_that_does_not_answer_is_ended_and_the_others_are_timed() -> None:
    hanging = Peer("hanging", "tests.bench.fake_hanging", ("numpy",), "numpy")
    plain = Peer("fake", "tests.bench.fake_plain", ("numpy",), "numpy")
    with Engine(replace(SETTINGS, timeout=4.0)) as engine:
        row = engine.row(DOUBLE, (8,), [hanging, plain], [1])
    assert result(row, "hanging").status == "timeout"
    assert result(row, "hanging").message == "no answer within 4 s"
    assert result(row, "fake").status == "ok"


def test_a_missing_library_is_skipped_with_the_reason(row: Row) -> None:
    assert result(row, "absent").status == "missing"
    assert result(row, "absent").message == "no_such_library_here not installed"


def test_a_library_whose_import_fails_is_reported(row: Row) -> None:
    assert result(row, "broken").status == "error"
    assert "libfake.so.1" in result(row, "broken").message


def test_several_thread_counts_share_a_row() -> None:
    plain = Peer("fake", "tests.bench.fake_plain", ("numpy",), "numpy")
    with Engine(SETTINGS) as engine:
        row = engine.row(DOUBLE, (8,), [plain], [1, 2])
    assert [(one.threads, one.status) for one in row.results] == [(1, "ok"), (2, "ok")]
    assert row.threads == 2


def test_workers_end_with_the_engine_and_leave_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Peer("fake", "tests.bench.fake_plain", ("numpy",), "numpy")
    monkeypatch.setattr("pto_jit.bench.engine.scratch_directory", lambda: _made(tmp_path / "case"))
    with Engine(SETTINGS) as engine:
        engine.row(DOUBLE, (8,), [plain], [1])
        pids = engine.pids
        assert len(pids) == 2 and all(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not (tmp_path / "case").exists()


def test_presets_are_dropped_and_kept_on_record() -> None:
    with Engine(SETTINGS) as engine:
        assert engine.dropped["OPENBLAS_CORETYPE"] == "Haswell"
        assert "OPENBLAS_CORETYPE" not in engine.environment


def _made(path: Path) -> Path:
    path.mkdir()
    return path
