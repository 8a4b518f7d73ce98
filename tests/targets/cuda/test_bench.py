# SPDX-License-Identifier: MIT
"""`pto-bench cuda`, with a driver whose device is this process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pto_jit.bench import command, cuda
from pto_jit.bench.catalog import WORKLOADS
from pto_jit.bench.worker import resolve
from pto_jit.slotted import replace
from pto_jit.targets.cuda import api

from .test_driver import fake, library  # noqa: F401  (fixtures)

SMALL = (cuda.Row("vector_add", (1000,)), cuda.Row("softmax", (6, 40)))
needs_compilers = pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("g++")), reason="needs gcc and g++")


@pytest.fixture(autouse=True)
def no_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is installed here: torch would look for a GPU of its own."""

    def missing(name: str, arena: Any) -> Any:
        raise cuda._Missing("torch is not installed")

    monkeypatch.setattr(cuda, "_PEERS", {"torch": missing})


@needs_compilers
def test_rows_are_checked_timed_and_kept(fake: Any, tmp_path: Path) -> None:  # noqa: F811
    out = Console(record=True, width=200)
    assert cuda.run(out, ["softmax"], 2, tmp_path / "kept.json", SMALL) == 0
    text = out.export_text()
    assert "torch: torch is not installed" in text
    assert "softmax" in text and "GB/s" in text and "of copy" in text and "vector_add" not in text
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert kept["compute_capability"] == 9.0
    [row] = kept["rows"]
    assert row["size"] == [6, 40] and row["seconds"]["pto"] > 0 and row["seconds"]["copy"] > 0
    said = fake.fake_record().decode()
    assert "copy 960;" in said and "launch on stream 0" in said


def test_a_file_that_cannot_be_written_is_an_error_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cuda, "without_gpu", lambda: None)
    monkeypatch.setattr(cuda, "measure", lambda row, rounds: pytest.fail("it ran"))
    with pytest.raises(ValueError, match=r"kept\.json: No such file or directory"):
        cuda.run(Console(quiet=True), ["softmax"], 1, tmp_path / "none" / "kept.json", SMALL)


@needs_compilers
def test_a_wrong_result_is_told_and_not_timed(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    right = WORKLOADS["softmax"].reference
    wrong = WORKLOADS | {"softmax": _with_reference(lambda inputs: [2 * a for a in right(inputs)])}
    monkeypatch.setattr(cuda, "WORKLOADS", wrong)
    found = cuda.measure(SMALL[1], 1, 0.0)
    assert found.error.startswith("wrong: ") and not found.seconds
    assert cuda.run(Console(quiet=True), ["softmax"], 1, None, SMALL) == 1


def _with_reference(reference: Any) -> Any:
    import dataclasses

    return dataclasses.replace(WORKLOADS["softmax"], reference=reference)


def test_without_a_gpu_the_reason_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(api.ctypes, "CDLL", missing)
    api.library.cache_clear()
    assert command.main(["cuda", "softmax"]) == 0
    assert "nothing is measured: PTO-X145: there is no CUDA driver" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        command.main(["cuda", "nonsense"])
    assert "no row nonsense for a GPU" in capsys.readouterr().err


def test_every_row_has_a_workload_and_peers() -> None:
    for row in cuda.ROWS:
        workload = WORKLOADS[row.workload]
        assert len(row.size) == len(workload.axes)
        assert row.workload in cuda._IN_TORCH and row.aim[0] in ("copy", "torch")
        assert resolve(row.kernel or WORKLOADS[row.workload].kernels[""])


@needs_compilers
def test_attention_is_measured_in_the_form_for_devices(fake: Any) -> None:  # noqa: F811
    [row] = [r for r in cuda.ROWS if r.workload == "attention_causal" and r.size[2] == 64]
    found = cuda.measure(replace(row, size=(1, 140, 64)), 1, 0.0)
    assert not found.error and found.seconds["pto"] > 0


def test_the_share_is_the_peers_time_over_ours() -> None:
    found = cuda.Measured(SMALL[0], {"pto": 2.0, "copy": 1.0})
    assert found.share == 0.5
    assert replace(found, seconds={"pto": 2.0}).share is None
