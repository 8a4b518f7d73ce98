# SPDX-License-Identifier: MIT
"""`pto-bench tasks`: the stream has the tasks and edges it must have; drivers that cannot be built are left out."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pto_jit.bench.command import main
from pto_jit.bench.tasks.drivers import DRIVERS, BuildError, build_peer, build_stream
from pto_jit.bench.tasks.inside import facts, peer_once, pto_once

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build_stream(tmp_path_factory.mktemp("stream")))


@pytest.mark.parametrize("tiles", [1, 2, 9, 32])
def test_the_stream_has_the_documented_number_of_tasks(stream: str, tiles: int, tmp_path: Path) -> None:
    found = facts(stream, tiles, str(tmp_path / "edges.npy"))
    assert found["tasks"] == 16 * tiles + 3 * tiles * tiles
    edges = np.load(tmp_path / "edges.npy")
    assert edges.shape == (2, found["edges"]) and (edges[0] < edges[1]).all()
    # rmsnorm, product, rope, the first score, two updates a tile, normalise, the eight behind it less the parallel one
    assert found["critical_path"] == 2 * tiles + 12


def test_a_round_has_a_time_for_each_part(stream: str) -> None:
    times = pto_once(stream, 4, 2)
    assert sorted(times) == ["build", "live", "rerun", "run"] and all(value > 0 for value in times.values())


def test_a_peer_runs_the_same_graph(stream: str, tmp_path: Path) -> None:
    openmp = next(driver for driver in DRIVERS if driver.name == "openmp")
    try:
        library = build_peer(openmp, tmp_path, None)
    except BuildError as error:
        pytest.skip(str(error))
    times = peer_once(str(library), 2, 3, None)
    assert times["build"] == 0 and times["run"] > 0 and times["rerun"] > 0


def test_a_driver_that_does_not_compile_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taskflow = next(driver for driver in DRIVERS if driver.name == "taskflow")
    taskflow = replace(taskflow, flags=(*taskflow.flags, "-include", "not/installed.h"))
    with pytest.raises(BuildError, match="needs Taskflow's headers"):
        build_peer(taskflow, tmp_path, None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match="no compiler"):
        build_peer(taskflow, tmp_path, None)


def test_the_command_refuses_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in ((["--peers", "cilk"], "no task runtime cilk"), (["--tiles", "0"], "positive numbers"),
                               (["--layer", "1,2"], "three positive numbers")):
        with pytest.raises(SystemExit) as caught:
            main(["tasks", *arguments])
        assert caught.value.code == 2 and message in capsys.readouterr().err


def test_the_command_prints_the_tables(capfd: pytest.CaptureFixture[str]) -> None:
    layer = ["--layer", "64,96,2"]
    assert main(["tasks", "--tiles", "2", "--threads", "1", "--rounds", "2", "--peers", "none", *layer]) == 0
    captured = capfd.readouterr()
    shown = captured.err + captured.out
    assert "44 empty tasks, 72 edges, 1 thread" in shown and "LLaMA-7B layer" in shown
    assert "@pto.jit" in shown and "hidden 64, 2 heads" in shown
