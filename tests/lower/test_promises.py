# SPDX-License-Identifier: MIT
"""What is provably wrong in a parallel or chunked loop is a ScheduleError with both places; the rest is believed."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.compiler import Stages
from tests.lower.stages import stages_of

COUNT = 0


def kernel(body: str) -> Any:
    """A kernel with the tensors x, y and the numbers n, m."""
    global COUNT
    COUNT += 1
    lines = ["def kernel(x, y, n, m):", *(f"    {line}" for line in body.strip("\n").split("\n"))]
    source = "\n".join(lines) + "\n"
    name = f"<promise {COUNT}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    namespace: dict[str, Any] = {"pl": pl}
    exec(compile(source, name, "exec"), namespace)
    return pto.jit(namespace["kernel"])


def compiled(body: str) -> Stages:
    arrays = [np.zeros((16, 16), np.float32) for _ in range(2)]
    return stages_of(kernel(body), [*arrays, 8, 3])


LOOPS = ["parallel=True", "chunk=4", 'chunk=3, chunk_policy="aligned"']


@pytest.mark.parametrize("options", LOOPS)
@pytest.mark.parametrize(
    ("statement", "code", "first", "second"),
    [
        ("y[0, 0] = 1.0", "PTO-L020", 3, 3),
        ("y[m, 3] = x[i, 0]", "PTO-L020", 3, 3),
        ("y[i, 0] = y[i - 1, 0]", "PTO-L021", 3, 3),
        ("y[i, m] = y[i + 1, m] * 2.0", "PTO-L021", 3, 3),
        ("y[i, 0] = 1.0\n    y[i + 1, 0] = 2.0", "PTO-L020", 4, 3),
        ("for j in pl.range(4):\n        y[i + j, 0] = 1.0", "PTO-L020", 4, 4),
        ("for j in pl.range(m):\n        y[j, 0] = 1.0", "PTO-L020", 4, 4),
        ("y[0:1, :] = x[i:i + 1, :]", "PTO-L020", 3, 3),
        ("pl.store(pl.full([1, 4], 1.0, pl.f32), [m, 0], y)", "PTO-L020", 3, 3),
        ("y[i:i + 2, :] = 1.0", "PTO-L020", 3, 3),
        ("pl.store(pl.full([2, 4], 1.0, pl.f32), [i, m], y)", "PTO-L020", 3, 3),
        ("pl.store(pl.load(x, [i, 0], [2, 16]), [i, 0], y)", "PTO-L020", 3, 3),
        ("y[i + 1:i + 3, :] = x[i:i + 2, :] * 2.0 + y[i + 1:i + 3, :]", "PTO-L021", 3, 3),
        ("v = y[2:6, :]\n    v[0, m] = 1.0\n    y[2, m] = 3.0", "PTO-L020", 4, 4),
        ("y.T[i, 0] = y[1, i]\n    y.T[i + 1, 1] = 1.0", "PTO-L021", 3, 4),
    ],
)
def test_two_iterations_that_meet_whatever_the_arguments_are_an_error(
    statement: str, code: str, first: int, second: int, options: str
) -> None:
    with pytest.raises(pto.ScheduleError) as caught:
        compiled(f"for i in pl.range(0, n, {options}):\n    {statement}")
    error = caught.value
    assert error.code == code and error.hint
    places = {error.lineno, *(note.loc.lineno for note in error.notes if note.loc is not None)}
    assert {first, second, 2} <= places
    assert any(note.message.startswith("for example ") for note in error.notes)
    assert "`i`" in error.message


def test_the_error_shows_the_iterations_and_both_places() -> None:
    with pytest.raises(pto.ScheduleError) as caught:
        compiled("for i in pl.range(1, n, chunk=4):\n    t = y[i - 1, 0]\n    y[i, 0] = t * 2.0")
    text = str(caught.value)
    assert "an iteration of the chunked loop over `i` reads `y[i - 1, 0]`, which another iteration writes" in text
    assert "note: `y[i, 0]` is written here" in text and "for example i = 1 writes what i = 2 reads" in text
    assert "t = y[i - 1, 0]" in text and "y[i, 0] = t * 2.0" in text and "help: " in text


@pytest.mark.parametrize(
    "statement",
    [
        "y[i, 0] = x[i, 0]",
        "y[i, 0] = y[i, 1] + y[i, 2]",
        "y[2 * i, 0] = y[2 * i + 1, 0]",
        "y[i, 0] = y[i + 8, 0]",  # right as long as n is at most 8
        "y[i % 4, 0] = 1.0",  # at most 4
        "y[i + m, 0] = y[i, 0]",  # if m is at least n
        "y[i, 0] = x[0, 0]\n    x[i, 1] = 2.0",
        "if x[i, 0] > 0.0:\n        y[0, 0] = 1.0",  # data decides
        "if i == m:\n        y[0, 0] = 1.0",  # once
        "for j in pl.range(m):\n        y[i + j, 0] = 1.0",  # if m is 1
        "for j in pl.range(4):\n        y[4 * i + j, 0] = 1.0",
        "pl.store(pl.load(x, [i, 0], [1, 16]), [i, 0], y)",
        "pl.store(pl.load(x, [0, 0], [2, 16]), [i, 0], y)",  # the load decides how much is stored
        "y[i:i + 2, :] = x[2 * i:2 * i + 2, :]",
        "pl.store(pl.load(x, [2 * i, 0], [2, 16]), [2 * i, 0], y)",
        "pl.atomic_add(y, [0, 0], pl.full([1, 4], 1.0, pl.f32))",
        "t = pl.zeros([4], pl.f32)\n    y[i, 0] = pl.sum(t)",
        "y[i, 0] = y[0, 1]",
        "for j in pl.range(i, m):\n        y[0, j] = 1.0",  # from i = m on it never runs
    ],
)
@pytest.mark.parametrize("options", LOOPS)
def test_what_some_arguments_make_right_is_believed(statement: str, options: str) -> None:
    decisions = compiled(f"for i in pl.range(0, n, {options}):\n    {statement}").decisions
    (decision,) = [d for d in decisions if d.kind == "parallel" and d.loops == ("i",)]
    assert decision.applied and decision.reason.startswith(("proven", "believed"))


@pytest.mark.parametrize("dtype", ["i4", "i8"])
@pytest.mark.parametrize(
    "place", ["y[i]", "y[y[i]] + 2", "(i * y[i + 1]) % 7", "y[i // x.shape[0]]", "3 * y[i]"]
)
def test_places_that_memory_tells_are_named_as_they_are_written(place: str, dtype: str) -> None:
    fn = kernel(f"for i in pl.range(n, parallel=True):\n    x[{place}] = 1.0")
    (decision,) = [d for d in fn.compile(np.zeros(8), np.zeros(8, dtype), 8, 3).decisions if d.kind == "parallel"]
    assert f"`x[{place}]`" in decision.reason.replace("(y[i + 1] * i)", "(i * y[i + 1])")


def test_loops_with_constant_bounds_are_looked_at_as_a_whole() -> None:
    compiled("for i in pl.range(0, 8, parallel=True):\n    y[i, 0] = y[i + 8, 0]")
    with pytest.raises(pto.ScheduleError, match="i = 0 writes what i = 7 reads"):
        compiled("for i in pl.range(0, 8, parallel=True):\n    y[i + 7, 0] = y[i, 0]")
    compiled("for i in pl.range(0, 1, parallel=True):\n    y[0, 0] = 1.0")
    with pytest.raises(pto.ScheduleError):
        compiled("for i in pl.range(0, 9, parallel=True):\n    y[i // 8, i % 4] = 1.0")


def test_a_sequential_loop_may_do_all_of_it() -> None:
    compiled("for i in pl.range(1, n):\n    y[0, 0] = 1.0\n    y[i, 1] = y[i - 1, 1]")


def test_a_loop_that_also_reduces_is_checked() -> None:
    body = "s = 0.0\nfor i in pl.range(0, n, chunk=4):\n    s += x[i, 0]\n    y[0, 0] = 1.0\ny[1, 1] = s"
    with pytest.raises(pto.ScheduleError, match=r"write `y\[0, 0\]`"):
        compiled(body)


def test_what_is_proven_is_said() -> None:
    (decision,) = [d for d in compiled("for i in pl.range(n, parallel=True):\n    y[i, 0] *= 2.0").decisions
                   if d.kind == "parallel"]  # fmt: skip
    assert decision.reason == "proven: no element connects two iterations"


def test_what_is_carried_is_named_in_the_words_of_the_program() -> None:
    with pytest.raises(pto.ScheduleError, match="`s` is carried from one iteration") as caught:
        compiled("s = 1\nfor i in pl.range(n, parallel=True):\n    s = s * pl.i64(x[i, s])\ny[0, 0] = s")
    assert caught.value.lineno == 4
    with pytest.raises(pto.ScheduleError, match="`t` is carried from one iteration") as caught:
        compiled(
            "t = pl.zeros([4], pl.f32)\nfor i in pl.range(n, parallel=True):\n"
            "    with pl.incore():\n        t = t + pl.load(x[0], [i], [4])\npl.store(t, [0], y[0])\ny[1, 1] = n"
        )
    assert caught.value.lineno == 4 and "t_v0" not in str(caught.value)
