# SPDX-License-Identifier: MIT
"""`fn.explain(...)` marks every line with where it runs and says what was found there."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from rich.console import Console

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl


def scaled(t, factor):
    doubled = factor * 2
    if doubled > 3:
        t = t * doubled
    else:
        t = t - doubled
    return t


@pto.jit
def softmax(x, y, causal=True, n=3):
    """Row by row."""
    rows, cols = x.shape
    names = {"a": 1}
    with pl.incore():
        for r in pl.range(0, rows, chunk=64):
            t = pl.load(x, [r, 0], [1, cols])
            for s in pl.static_range(3):
                t = t + s
            if causal:
                t = scaled(t, len(names) + 1)
            else:
                t = scaled(t, 5)
            e = pl.exp(t - pl.max(t, axis=1, keepdims=True))
            if n > 2:
                e = e * 2.0
            pl.store(e / pl.sum(e, axis=1, keepdims=True), [r, 0], y)


@pto.jit
def total(x, out):
    s = 0.0
    limit = x.shape[0] // 2
    for i in range(limit):
        s += x[i]
    out[0] = s


X = np.zeros((8, 16), np.float32)


def line_with(explanation, text, function=0):
    (found,) = [line for line in explanation.functions[function].lines if line.text.strip().startswith(text)]
    return found


def test_each_line_says_where_it_runs() -> None:
    explanation = softmax.explain(X, X)
    phases = {
        "rows, cols": "host",
        'names = {"a"': "compile time",
        "with pl.incore": "in-core",
        "for r in": "host+in-core",
        "t = pl.load": "in-core",
        "for s in": "compile time",
        "if causal": "compile time",
        "t = scaled(t, len": "in-core",
        "t = scaled(t, 5)": "not compiled",
        "if n > 2": "in-core",
        '"""Row': "",
        "else:": "",
    }
    assert {text: line_with(explanation, text).phase for text in phases} == phases


def test_loops_branches_types_and_decisions_stand_under_their_line() -> None:
    explanation = softmax.explain(X, X)
    loop = line_with(explanation, "for r in")
    assert "chunk loop over r (host)" in loop.notes and "in_chunk loop over r (in-core)" in loop.notes
    assert any(note.startswith("chunk [r]: applied") for note in loop.notes)
    assert line_with(explanation, "for s in").notes[0] == "unrolled: 3 iterations"
    assert line_with(explanation, "if causal").notes == ("decided at compile time: taken",)
    assert line_with(explanation, "if n > 2").notes == ("run-time branch",)
    assert "t: f32[1, cols] tile" in line_with(explanation, "t = pl.load").notes
    assert "names = {'a': 1}, compile time" in line_with(explanation, "names").notes
    assert "causal = True, compile time" in line_with(explanation, "def softmax").notes


def test_a_helper_compiled_into_the_kernel_is_explained_too() -> None:
    explanation = softmax.explain(X, X)
    assert [f.name for f in explanation.functions] == ["softmax", "scaled"]
    assert line_with(explanation, "doubled = ", 1).notes == ("doubled = 4, compile time",)
    assert line_with(explanation, "t = t - doubled", 1).phase == "not compiled"
    assert line_with(explanation, "t = t * doubled", 1).phase == "in-core"


def test_a_static_flag_changes_what_is_compiled() -> None:
    explanation = softmax.explain(X, X, causal=False)
    assert line_with(explanation, "t = scaled(t, 5)").phase == "in-core"
    assert line_with(explanation, "if causal").notes == ("decided at compile time: not taken",)


def test_it_says_why_a_value_is_a_run_time_one() -> None:
    explanation = total.explain(X[0], np.zeros(1, np.float32))
    accumulate = line_with(explanation, "s += x[i]")
    start = line_with(explanation, "s = 0.0")
    assert start.notes == ("s = 0.0, compile time", f"s is a run-time value on line {accumulate.lineno}")
    assert "s: f32, run time, because of `x`, `i`" in accumulate.notes
    assert any(note.endswith("because of `x`") for note in line_with(explanation, "limit").notes)


def test_plain_text_has_every_source_line_and_rich_renders_the_same() -> None:
    explanation = softmax.explain(X, X)
    text = str(explanation)
    assert text.startswith("softmax(x: f32[?x?]")
    for function in explanation.functions:
        for line in function.lines:
            assert line.text in text and all(note in text for note in line.notes)
    console = Console(file=io.StringIO(), width=400)
    console.print(explanation)
    assert [row.rstrip() for row in console.file.getvalue().rstrip().splitlines()] == [
        row.rstrip() for row in text.splitlines()
    ]


def test_specs_are_enough_and_nothing_is_compiled_or_run() -> None:
    before = len(softmax.specializations())
    explanation = softmax.explain(pto.spec((None, 16), pl.f32), pto.spec((None, 16), pl.f32))
    assert "in_chunk loop over r" in str(explanation)
    assert len(softmax.specializations()) == before


M = pl.dynamic("M")


@dataclass
class Weights:
    first: object
    rows: int = 3


@pto.jit
def named(x: pl.Tensor[[M, 64], pl.f32], weights, table, *rest, n: int):
    whole = pl.load(x)
    first = pl.load(weights.first)
    part = pl.load(table["a"], [0], [n * 2 + 1])
    other = pl.load(rest[1])
    tail = other[:, 1:]
    both = pl.concat([other, other])
    n = n + 1
    fewer = pl.load(table["a"], [0], [n])
    flat = pl.reshape(first, [first.shape[0] * first.shape[1]])
    height = first.shape[0]
    for k in range(n):
        some = pl.load(table["a"], [k], [n - k])
        pl.store(some, [0], table["a"])
    turned = first.T
    return whole, part, tail, both, fewer, flat, height, turned


def test_extents_are_shown_as_the_program_writes_them() -> None:
    """They were names of the compiler: `x_d0`, `t2`."""
    explanation = named.explain(X.repeat(4, axis=1), Weights(X), {"a": X[0]}, X, X, n=3)
    wanted = {
        "def named": "x: f32[M, 64] tensor",
        "whole": "whole: f32[M, 64] tile",
        "first": "first: f32[weights.first.shape[0], weights.first.shape[1]] tile",
        "part": "part: f32[n * 2 + 1] tile",
        "other": "other: f32[rest[1].shape[0], rest[1].shape[1]] tile",
        "tail": "tail: f32[rest[1].shape[0], max(rest[1].shape[1] - 1, 0)] tile",
        "both": "both: f32[rest[1].shape[0] + rest[1].shape[0], rest[1].shape[1]] tile",
        "fewer": "fewer: f32[n] tile",
        "flat": "flat: f32[weights.first.shape[0] * weights.first.shape[1]] tile",
        "some": "some: f32[n - k] tile",
        "turned": "turned: f32[weights.first.shape[1], height] tile",
    }
    for text, note in wanted.items():
        assert note in line_with(explanation, text).notes
    assert "weights = Weights(first=<run time>, rows=3), compile time" in line_with(explanation, "def named").notes


def test_lists_are_shown_as_what_they_are() -> None:
    def doubled(x, y):
        return ft.map(lambda row: ft.map(lambda e: e * 2.0, row), x), ft.map(lambda e: e + 1.0, y)

    kernel = pto.jit(doubled)
    explanation = kernel.explain(ft.from_list([[1.0], [2.0, 3.0]]), ft.from_list([1.0, 2.0]))
    (line,) = [line for line in explanation.functions[-1].lines if line.text.strip().startswith("def doubled")]
    assert line.notes[:2] == ("x: FractalTensor of depth 2, run time", "y: FractalTensor of depth 1, run time")


def test_a_lambda_is_explained() -> None:
    kernel = pto.jit(lambda x, n: (pl.sum(x) +
                                   n))  # fmt: skip
    text = str(kernel.explain(np.ones(5, np.float32), 3))
    assert "<lambda>" in text and "kernel = pto.jit(lambda x, n" in text and "n))" in text
    assert "in-core" in text and "x: f32[x.shape[0]] tensor" in text
