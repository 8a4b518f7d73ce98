# SPDX-License-Identifier: MIT
"""A failed task names the user's call: its line, the caller's tensors and scalars, run or recorded."""

from __future__ import annotations

import importlib.util
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl


@pto.incore
def pick(src, dst, where):
    dst[...] = pl.load(src, [where, 0], [1, 4])


def helper(table, result, k):
    pick(table, result[k : k + 1, :], 5 - 7 * k)  # called by `helped`


@pto.jit
def shared(x, y, z, n):
    """Two calls that are one program: they share their code, and only the second fails."""
    for j in pl.range(n):
        pick(x, y[j : j + 1, :], j)
        pick(y, z[j : j + 1, :], j - 1)  # fails


@pto.jit
def views(x, y, z, n):
    for j in pl.range(n):
        turned = x[0:8, :].T
        back = turned.T
        pick(back, y[j : j + 1, :], j)
        pick(back[2:6, :], z[j : j + 1, :], 5 - 7 * j)  # fails


@pto.jit
def temporary(x, y, z, n):
    kept = pl.empty([8, 4], pl.f32)
    for j in pl.range(n):
        pick(x, kept[j : j + 1, :], j)
        pick(kept, z[j : j + 1, :], 5 - 7 * j)  # fails


@pto.jit
def helped(x, y, z, n):
    for j in pl.range(n):
        helper(x, z, j)  # calls `helper`


def line_of(remark: str, path: str = __file__) -> int:
    lines = Path(path).read_text().splitlines()
    return 1 + next(k for k, line in enumerate(lines) if line.endswith(f"# {remark}"))


def failure(kernel: Callable[..., Any], recorded: bool, *args: Any) -> pto.TaskError:
    with pytest.raises(pto.TaskError) as caught:
        if recorded:
            kernel.task_graph(*args).run()  # type: ignore[attr-defined]
        else:
            kernel(*args)
    assert caught.value.code == "PTO-A040"
    return caught.value


def arrays() -> list[np.ndarray]:
    return [np.ones((8, 4), np.float32) for _ in range(3)]


@pytest.mark.parametrize("recorded", [False, True], ids=["run", "recorded"])
@pytest.mark.parametrize(
    ("kernel", "after", "told"),
    [
        (shared, "def shared", ("j = 0", "read: nothing of y", "write: z[0:1, 0:4]")),
        (views, "def views", ("j = 1", "read: nothing of x", "write: z[1:2, 0:4]")),
        (temporary, "def temporary", ("j = 1", "read: nothing of kept", "write: z[1:2, 0:4]")),
    ],
    ids=["shared", "views", "temporary"],
)
def test_the_call_and_its_tensors(kernel: Any, after: str, told: tuple[str, ...], recorded: bool) -> None:
    error = failure(kernel, recorded, *arrays(), 4)
    lines = Path(__file__).read_text().splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith(after))
    line = 1 + next(k for k in range(first, len(lines)) if lines[k].endswith("# fails"))
    text = str(error)
    assert f"{Path(__file__)}:{line}:" in text and lines[line - 1].strip().partition("  #")[0] in text
    assert error.loc is not None and error.loc.lineno == line
    assert all(part in text for part in told), text
    cause = error.__cause__
    assert isinstance(cause, pto.BoundsError)
    assert f"called from {Path(__file__)}:{line}:" in str(cause), "the cause knows which call it was"
    assert cause.loc is not None and cause.loc.caller is not None and cause.loc.caller.lineno == line
    entries = traceback.extract_tb(error.__traceback__)
    assert entries[-1].lineno == line and entries[-1].filename == __file__


@pytest.mark.parametrize("recorded", [False, True], ids=["run", "recorded"])
def test_a_call_in_a_helper_has_the_chain_of_calls(recorded: bool) -> None:
    text = str(failure(helped, recorded, *arrays(), 4))
    assert f"{Path(__file__)}:{line_of('called by `helped`')}:" in text
    assert f"called from {Path(__file__)}:{line_of('calls `helper`')}:" in text
    assert "nothing of x" in text and "z[1:2, 0:4]" in text


SOURCE = """
import pto_jit as pto
import pto_jit.language as pl

@pto.incore
def pick(src, dst, where):
    dst[...] = pl.load(src, [where, 0], [1, 4])

@pto.jit
def shared(x, y, z, n):
    for j in pl.range(n):
        pick(x, y[j : j + 1, :], j)
        pick(y, z[j : j + 1, :], j - 1)  # fails
"""


def test_code_from_disk_knows_where_the_call_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pto.config, "cache_dir", tmp_path / "cache")

    def load(name: str, text: str) -> types.ModuleType:
        (tmp_path / name).write_text(text)
        spec = importlib.util.spec_from_file_location("moved", tmp_path / name)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    for name, text, origin in (("a.py", SOURCE, "compiled"), ("b.py", "\n\n\n" + SOURCE, "disk")):
        module = load(name, text)
        error = failure(module.shared, False, *arrays(), 4)
        assert module.shared.specializations()[-1].origin == origin
        line = line_of("fails", str(tmp_path / name))
        assert f"{name}:{line}:" in str(error) and f"{name}:{line}:" in str(error.__cause__)


def test_code_shared_by_calls_in_order_says_no_wrong_call() -> None:
    """Without tasks nothing tells which of the calls failed: the place in the function is what there is."""

    @pto.jit
    def in_order(x, y, z, first, second):
        pick(x, y[0:1, :], first)
        pick(y, z[0:1, :], second)

    x, y, z = arrays()
    with pytest.raises(pto.BoundsError) as caught:
        in_order(x, y, z, 0, -1)
    assert f"{Path(__file__)}:" in str(caught.value) and "pl.load(src, [where, 0], [1, 4])" in str(caught.value)
    wrong = line_of_text("pick(x, y[0:1, :], first)")
    assert f":{wrong}:" not in str(caught.value)


def line_of_text(text: str) -> int:
    return 1 + next(k for k, line in enumerate(Path(__file__).read_text().splitlines()) if line.strip() == text)
