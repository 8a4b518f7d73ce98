# SPDX-License-Identifier: MIT
"""The command line."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from pto_jit.bench import plot, report
from pto_jit.bench.command import main, parser, plan
from pto_jit.bench.peers import PEERS, chosen_peers
from pto_jit.bench.record import Row, from_json, to_json
from pto_jit.bench.specials import ALL
from pto_jit.bench.workload import Workload
from tests.bench.test_record import record, row, timed


def entries(*arguments: object, **options: object) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    return [(item.workload.name, item.size, item.threads) for item in plan(*arguments, **options)]  # type: ignore[arg-type]


def test_a_named_workload_is_run_at_its_default_sizes_with_every_thread_count() -> None:
    assert entries(["softmax"], None, [1, 2]) == [
        ("softmax", (512, 512), (1,)),
        ("softmax", (4096, 1024), (1,)),
        ("softmax", (512, 512), (2,)),
        ("softmax", (4096, 1024), (2,)),
    ]


def test_a_size_is_a_name_or_extents() -> None:
    assert entries(["matmul"], ["row", "3x5x7"], [1]) == [
        ("matmul", (1, 4096, 4096), (1,)),
        ("matmul", (3, 5, 7), (1,)),
    ]


def test_all_sizes_are_run_when_asked_for() -> None:
    assert [size for _, size, _ in entries(["attention"], ["all"], [1])] == list(ALL["attention"].sizes.values())


def test_a_size_that_a_named_workload_lacks_is_an_error_that_lists_its_sizes() -> None:
    with pytest.raises(ValueError, match=r"matmul has no size '3x5': give one of small, .* extents as mxkxn"):
        plan(["matmul"], ["3x5"], [1])


@pytest.mark.parametrize("size", ["0x4", "4x", "-1x4", "4x4x4", "", "big"])
def test_a_malformed_size_is_refused(size: str) -> None:
    with pytest.raises(ValueError, match="has no size"):
        ALL["softmax"].size_of(size)


def test_without_names_everything_runs_that_has_the_size() -> None:
    found = {name for name, _, _ in entries([], ["row"], [1])}
    assert found == {"matmul", "matmul_bf16", "launch", "compile", "threads"}


def test_an_unknown_workload_is_named() -> None:
    with pytest.raises(ValueError, match="no workload sotfmax"):
        plan(["sotfmax"], None, [1])


def test_threads_are_compared_within_one_row() -> None:
    assert entries(["threads"], None, [1]) == [("threads", (384, 512), (1, 2))]
    assert entries(["launch"], None, [1, 2]) == [("launch", (16,), (1,))]


def test_peers_are_chosen_by_name_in_their_own_order() -> None:
    assert [peer.name for peer in chosen_peers("numba,numpy")] == ["numpy", "numba"]
    assert chosen_peers("none") == []
    assert len(chosen_peers("all")) == len(PEERS)
    with pytest.raises(ValueError, match="no peer pandas"):
        chosen_peers("numpy,pandas")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "sotfmax"], "no workload sotfmax"),
        (["run", "softmax", "--size", "3"], "has no size '3'"),
        (["run", "softmax", "--threads", "0"], "positive numbers"),
        (["run", "softmax", "--threads", "100000"], "would measure the scheduler"),
        (["run", "softmax", "--peers", "pandas"], "no peer pandas"),
        (["run", "--rounds", "0"], "must be at least 1"),
        (["run", "--batch", "nan"], "must be above 0"),
        (["compare", "no-such-file.json", "other.json"], "pto-bench: no-such-file.json: No such file or directory\n"),
        (["show", __file__], "test_command.py: not a file written by pto-bench run --json\n"),
        (["chores"], "invalid choice"),
        ([], "required"),
    ],
)
def test_wrong_usage_ends_with_status_two_and_a_message(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_every_option_has_a_help_text() -> None:
    for action in parser()._subparsers._group_actions[0].choices.values():  # type: ignore[union-attr]
        assert all(option.help for option in action._actions if option.option_strings)


def test_the_list_shows_every_workload_and_peer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in (*ALL, *PEERS))
    assert "logits[label]" in shown, "brackets are text, not markup"
    assert "\x1b" not in shown


def test_files_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    one.write_text(to_json(record(row(timed("pto", 2e-6), timed("numpy", 1e-6)))))
    two.write_text(to_json(record(row(timed("pto", 1e-6), timed("numpy", 1e-6)))))
    assert main(["compare", str(one), str(two)]) == 0
    shown = capsys.readouterr().out
    assert "2.00" in shown and "faster" in shown and "numpy" not in shown
    assert main(["compare", str(one), str(two), "--all"]) == 0
    assert "numpy" in capsys.readouterr().out


def test_a_row_shows_the_ratio_the_warning_and_who_failed(capsys: pytest.CaptureFixture[str]) -> None:
    bad = timed("torch", 1e-6)
    made = row(
        timed("pto", 1e-6, 1e-6), timed("numpy", 3e-6, 3e-6), bad.__class__("torch", "", 1, "wrong", "3 of 9 [x]")
    )
    report.print_row(report.console(), made)
    shown = capsys.readouterr().out
    assert "time /" in shown and "3.00" in shown
    assert "torch: WRONG RESULT, not timed: 3 of 9 [x]" in shown
    assert "other processes used 0.2 cores" in shown


def test_no_figure_is_lost_in_a_narrow_terminal() -> None:
    made = row(
        timed("pto", 1.23e-6), timed("pto", 2.34e-6, variant="tiled"), timed("openvino", 3.45e-6, variant="prepacked")
    )
    narrow = Console(width=80, file=io.StringIO())
    report.print_row(narrow, made)
    shown = narrow.file.getvalue()  # type: ignore[attr-defined]
    for figure in ("1.23 us", "2.34 us", "3.45 us", "2.80", "1.47", "0.208"):
        assert figure in shown


def test_ratios_to_plot_are_those_to_the_fastest_pto_variant() -> None:
    made = record(
        row(timed("pto", 2.0), timed("pto", 1.0, variant="tiled"), timed("numpy", 4.0)), row(timed("numpy", 1.0))
    )
    ((title, entries),) = plot.ratios(made)
    assert title == "softmax 4x8 f32, 1 thread"
    assert entries["numpy"].value == 4.0 and list(entries) == ["numpy"]


def test_a_plot_without_matplotlib_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit) as caught:
        main(["run", "softmax", "--plot", "x.png"])
    assert caught.value.code == 2
    assert "pto_jit[viz]" in capsys.readouterr().err


def test_a_run_against_numpy_is_checked_shown_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    command = [
        sys.executable, "-m", "pto_jit.bench", "run", "softmax", "--peers", "numpy", "--size", "5x7", "--threads", "1",
        "--rounds", "2", "--batch", "1", "--no-limits", "--json", str(file),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert "softmax 5x7 f32, 1 thread" in done.stdout, done.stderr
    kept = from_json(file.read_text())
    numpy = next(result for result in kept.rows[0].results if result.peer == "numpy")
    assert numpy.status == "ok" and len(numpy.seconds) == 2
    assert json.loads(file.read_text())["settings"]["rounds"] == 2


def test_a_file_that_cannot_be_written_is_an_error_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", "softmax", "--json", str(tmp_path / "none" / "x.json")])
    assert caught.value.code == 2
    assert "x.json" in capsys.readouterr().err


def test_an_interrupted_run_keeps_the_finished_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def interrupted(self: object, workload: Workload, *rest: object) -> Row:
        if measured:
            raise KeyboardInterrupt
        measured.append(workload.name)
        return row(timed("pto", 1e-6))

    monkeypatch.setattr("pto_jit.bench.engine.Engine.row", interrupted)
    file = tmp_path / "run.json"
    with pytest.raises(SystemExit) as caught:
        main(["run", "softmax", "--threads", "1", "--json", str(file)])
    assert caught.value.code == 130
    assert len(from_json(file.read_text()).rows) == 1
