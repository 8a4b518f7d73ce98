# SPDX-License-Identifier: MIT
"""`python -m pto_jit run|check|format`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
from pto_jit.commands import COMMANDS, main
from pto_jit.runtime import Runtime
from pto_jit.runtime.files import write_text
from pto_jit.runtime.graph import TaskGraph
from tests.builder.harness import floats
from tests.builder.test_programs import softmax, softmax_module

Run = Callable[..., tuple[int, str, str]]
SAVE = ["run", "softmax.pto", "input=in.npy", "num_tiles=4", "--save"]
HALVE = """\
func @halve(%x: !pto.memref<gm,?x?,bf16>, %scale: f32, %on: bool_) -> (i64, f32) {
  %n = sdim %x {axis=0} : i64
  return %n, %scale
}
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line in a directory with softmax.pto, half.pto and in.npy: status, output, errors."""
    monkeypatch.chdir(tmp_path)
    Path("softmax.pto").write_text(str(softmax_module()))
    Path("half.pto").write_text(HALVE)
    np.save("in.npy", floats(32, 8))

    def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            status = main(arguments)
        except SystemExit as end:
            assert isinstance(end.code, int)
            status = end.code
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return command


def test_run_saves_what_a_function_wrote(run: Run) -> None:
    assert run(
        "run", "softmax.pto", "--entry", "@dynamic_softmax", "input=in.npy", "num_tiles=4", "--save", "output=out.npy"
    ) == (0, "", "")
    np.testing.assert_allclose(np.load("out.npy"), softmax(floats(32, 8)), rtol=1e-5)
    assert (
        run(
            "run",
            "softmax.pto",
            "input=in.npy",
            "output=32x8",
            "num_tiles=2",
            "--interpret",
            "--save",
            "output=out.npy",
        )[0]
        == 0
    )
    np.testing.assert_allclose(np.load("out.npy")[:16], softmax(floats(32, 8))[:16], rtol=1e-5)
    assert not np.load("out.npy")[16:].any()
    assert run(*SAVE, "output=bare") == (0, "", "")
    np.testing.assert_allclose(np.load("bare.npy"), softmax(floats(32, 8)), rtol=1e-5)
    assert run("run", "softmax.pto", "--entry", "rowmax", "input=in.npy", "--save", "output=max.npy")[0] == 1
    assert (
        run("run", "softmax.pto", "--entry", "rowmax", "input=in.npy", "output=8x1", "--save", "output=max.npy")[0] == 0
    )
    np.testing.assert_array_equal(np.load("max.npy"), floats(32, 8)[:8].max(1, keepdims=True))


def test_run_prints_results_and_reads_every_kind_of_argument(run: Run) -> None:
    np.save("b.npy", floats(3, 4).astype(ml_dtypes.bfloat16))
    assert run("run", "half.pto", "x=b.npy", "scale=1.5", "on=true") == (0, "3\n1.5\n", "")
    assert run("run", "half.pto", "x=5x2", "scale=1e-3", "on=0", "--debug")[:2] == (0, "5\n0.0010000000474974513\n")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["run", "none.pto"], 1, "No such file"),
        (["run", "softmax.pto", "--entry", "rowmx"], 1, "did you mean `rowmax`?"),
        (["run", "softmax.pto", "input=in.npy", "num_tiles=4"], 1, "`output` is missing"),
        (["run", "softmax.pto", "input=in.npy", "x=3"], 1, "there is no parameter `x`"),
        (["run", "softmax.pto", "input=in.npy", "input=in.npy"], 1, "`input` is given twice"),
        (["run", "softmax.pto", "input=other.npy"], 1, "there is no file other.npy"),
        (["run", "softmax.pto", "input=softmax.pto"], 1, "softmax.pto is not a .npy file"),
        (["run", "softmax.pto", "num_tiles=four"], 1, "`num_tiles` is 'four', not a number of i32"),
        (["run", "softmax.pto", "input=in.npy", "num_tiles=4", "--save", "num_tiles=x.npy"], 1, "is a scalar"),
        (["run", "softmax.pto", "input=4x4", "output=4x4", "num_tiles=1"], 1, "has shape 4x4, ?x8 is wanted"),
        (
            ["run", "softmax.pto", "input=in.npy", "output=32x8", "num_tiles=1", "--target", "abacus"],
            1,
            "unknown target",
        ),
        (["run", "softmax.pto", "input=9999999999999x8", "output=32x8", "num_tiles=1"], 1, "is too large"),
        (["run", "softmax.pto", "input=99999999999999999999x8", "output=32x8", "num_tiles=1"], 1, "is too large"),
        ([*SAVE, "output="], 1, "`output` cannot be saved as ''"),
        ([*SAVE, "output=folder"], 1, "a directory that exists"),
        ([*SAVE, "output=folder.npy/"], 1, "cannot be saved as 'folder.npy/'"),
        ([*SAVE, "output=none/o.npy"], 1, "cannot be saved as 'none/o.npy'"),
        ([*SAVE, "output=o.npy", "--save", "input=o"], 1, "o.npy would hold `output` and `input`"),
        (["run", "folder.npy"], 1, "Is a directory"),
        (["run", "empty.pto"], 1, "empty.pto:1:1"),
        (["check", "empty.pto"], 1, "expected a function, got end of file"),
        (["check", "folder.npy"], 1, "Is a directory"),
        (["format", "empty.pto"], 1, "expected a function, got end of file"),
        (["format", "--write", "in.npy"], 1, "expected text in UTF-8"),
        (["graph", "in.npy", "g.svg"], 1, "expected text in UTF-8"),
        (["graph", "none.txt", "g.svg"], 1, "No such file"),
        (["graph", "folder.npy", "g.svg"], 1, "Is a directory"),
        (["graph", "empty.pto", "g.svg"], 1, "expected '====="),
        (["graph", "dump.txt", "g.bmp"], 2, "a drawing is written as .pdf, .svg, .png"),
        (["graph", "dump.txt", "none/g.dot"], 1, "No such file"),
        (["run", "softmax.pto", "x"], 2, "is not NAME=VALUE"),
        (["run"], 2, "the following arguments are required"),
        (["walk"], 2, "invalid choice: 'walk'"),
        (["check", "in.npy"], 1, "in.npy:1:1"),
        (["format", "--write", "--check", "softmax.pto"], 2, "not allowed with"),
    ],
)
def test_what_is_wrong_is_said_on_standard_error(run: Run, arguments: list[str], status: int, message: str) -> None:
    Path("empty.pto").touch()
    Path("folder.npy").mkdir()
    write_text("dump.txt", TaskGraph(Runtime(1)).dumps())
    before = {path: path.read_bytes() for path in Path().iterdir() if path.is_file()}
    found, out, err = run(*arguments)
    assert (found, out) == (status, "")
    assert message in err.replace("\n", " ")
    assert {path: path.read_bytes() for path in Path().iterdir() if path.is_file()} == before


def test_check_reports_every_file(run: Run) -> None:
    Path("bad.pto").write_text("func @f() {\n  texpp\n}\n")
    status, out, err = run("check", "softmax.pto", "bad.pto", "half.pto")
    assert status == 1
    assert out == "softmax.pto: 6 functions, entry @dynamic_softmax\nhalf.pto: 1 function, entry @halve\n"
    assert "bad.pto:2:3" in err and "expected an instruction" in err
    assert run("check", "--quiet", "softmax.pto") == (0, "", "")


def test_format_prints_writes_and_checks(run: Run) -> None:
    tidy = Path("half.pto").read_text()
    Path("half.pto").write_text("// said\n" + tidy.replace("  ", "     "))
    assert run("format", "half.pto") == (0, "// said\n" + tidy, "")
    assert run("format", "--check", "half.pto") == (1, "half.pto would change\n", "")
    assert run("format", "-w", "half.pto") == (0, "half.pto: changed\n", "")
    assert Path("half.pto").read_text() == "// said\n" + tidy
    assert run("format", "--check", "half.pto") == (0, "", "")
    assert run("format", "--expand", "softmax.pto") == (0, str(softmax_module()), "")
    Path("short.pto").write_text("func @f(%m: !pto.memref<gm,8x8,f32>) {\n%x = tload %m[0,0] : !pto.tile<8x8xf32>\n"
                                 "%s = trowsum %x : !pto.tile<8x1xf32>\ntstore %s, %m[0, 0]\n}\n")  # fmt: skip
    status, out, _ = run("format", "--expand", "short.pto")
    assert status == 0 and "tsum %x {axes=(1,), keepdims=true}" in out
    assert pto.parse_pto(out) == pto.load_pto("short.pto")


def test_it_is_a_module_that_python_runs(tmp_path: Path) -> None:
    found = subprocess.run([sys.executable, "-m", "pto_jit", "--help"], capture_output=True, text=True, check=True)
    for name in COMMANDS:
        assert name in found.stdout
