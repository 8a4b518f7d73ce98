# SPDX-License-Identifier: MIT
"""The worker protocol."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pto_jit.bench.process import WorkerFailure, WorkerProcess


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerProcess]:
    root = str(Path(__file__).parents[2])
    with WorkerProcess({**os.environ, "PYTHONPATH": root}, [max(os.sched_getaffinity(0))]) as made:
        yield made


def state(worker: WorkerProcess) -> str:
    return Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_an_answer_comes_back(worker: WorkerProcess) -> None:
    assert worker.request("call", "math:hypot", (3.0, 4.0), timeout=60.0) == 5.0


def test_a_worker_has_the_package_of_its_parent_wherever_it_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pto_jit").mkdir()
    (tmp_path / "pto_jit" / "__init__.py").write_text("raise ImportError('a checkout that is not built')")
    monkeypatch.chdir(tmp_path)
    with WorkerProcess(os.environ) as made:
        assert made.request("call", "math:hypot", (3.0, 4.0), timeout=60.0) == 5.0


def test_a_worker_stands_still_between_requests(worker: WorkerProcess) -> None:
    worker.request("call", "math:hypot", (3.0, 4.0), timeout=60.0)
    assert state(worker) == "T"


def test_a_worker_runs_where_it_was_put_and_the_parent_is_left_alone(worker: WorkerProcess) -> None:
    everything = os.sched_getaffinity(0)
    assert worker.request("call", "os:sched_getaffinity", (0,), timeout=60.0) == {max(everything)}


def test_what_a_library_prints_does_not_disturb_the_protocol(worker: WorkerProcess) -> None:
    assert worker.request("call", "builtins:print", ("noise",), timeout=60.0) is None
    assert worker.request("call", "math:hypot", (3.0, 4.0), timeout=60.0) == 5.0


def test_an_exception_leaves_the_worker_usable(worker: WorkerProcess) -> None:
    with pytest.raises(WorkerFailure, match="ZeroDivisionError") as caught:
        worker.request("call", "operator:truediv", (1, 0), timeout=60.0)
    assert not caught.value.fatal and caught.value.kind == "error"
    assert worker.request("call", "math:hypot", (3.0, 4.0), timeout=60.0) == 5.0


def test_an_unknown_operation_is_an_error_of_the_request(worker: WorkerProcess) -> None:
    with pytest.raises(WorkerFailure, match="operation_nonsense"):
        worker.request("nonsense", timeout=60.0)


def test_a_killed_worker_is_reported_with_the_signal() -> None:
    with WorkerProcess({**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}) as doomed:
        with pytest.raises(WorkerFailure, match="killed by SIGKILL") as caught:
            doomed.request("call", "signal:raise_signal", (9,), timeout=60.0)
        assert caught.value.fatal and caught.value.kind == "died"


def test_a_worker_without_an_answer_is_killed_with_its_children() -> None:
    with WorkerProcess({**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}) as stuck:
        pid = stuck.pid
        start = time.monotonic()
        with pytest.raises(WorkerFailure, match=r"no answer within 0\.5 s") as caught:
            stuck.request("call", "os:system", ("sleep 30",), timeout=0.5)
        assert caught.value.fatal and caught.value.kind == "timeout"
        assert time.monotonic() - start < 25.0
    deadline = time.monotonic() + 25.0
    while alive := members(pid):
        assert time.monotonic() < deadline, f"still running: {alive}"
        time.sleep(0.01)


def members(group: int) -> list[str]:
    """Processes of a group that still run; those that only wait for init to collect them do not."""
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] not in "ZX":
            found.append(str(entry))
    return found
