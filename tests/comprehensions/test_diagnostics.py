# SPDX-License-Identifier: MIT
"""Everything that can be wrong with a comprehension, with its code and place."""
# ruff: noqa: F821, UP037

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

# (text, error, code, what is underlined, a part of the message); `@` marks the place
WRONG: list[tuple[str, type[Exception], str, str, str]] = [
    ("def f(float(N) X) -> (A) { A(i) = X(i + j) where @j in 0:2 }", pto.RangeInferenceError, "R013", "", "reduction"),
    ("def f(float(N, M) X) -> (A) { A(i) = X(i, @k) }", pto.RangeInferenceError, "R013", "k", "`k` is not on the left"),
    ("def f(float(N) X) -> (A) { @A(i, j) +=! X(i + j) }", pto.RangeInferenceError, "R010", "A(i, j)", "where clause"),
    ("def f(float(N) X, int(1) S) -> (A) { @A(i) = X(S(0) * i) }", pto.RangeInferenceError, "R010", "A(i)", "X(S(0)*i)"),
    ("def f(float(N) X, int s) -> (A) { A(i) = X(i) where exists X(@j) }", pto.RangeInferenceError, "R013", "j", "`j`"),
    ("def f(float(N) X) -> (A) { A(i) +=! X(i) where k in @8:4 }", pto.RangeInferenceError, "R011", "", "8:4"),
    ("def f(float(3) X, float(4) K) -> (A) { A(i) +=! @X(i + k) * K(k) }", pto.RangeInferenceError, "R011", "X(i + k)",
     "inferred an empty range for `i`: 0:0"),
    ("def f(float(N) X, float c) -> (A) { @A(i) = c }", pto.RangeInferenceError, "R012", "A(i)", "was not solved"),
    ("def f(float(N) X) -> (A) { @X(i) = 1 A(i) = X(i) }", pto.CompilationError, "R014", "X(i)", "inputs are immutable"),
    ("def f(float(N) X, float c) -> (A) { @c = 1.0 A(i) = X(i) }", pto.CompilationError, "R014", "c", "immutable"),
    ("def f(float(J) B, float(I) C) -> (A) { A(i) = B(@C(i)) }", pto.TypeMismatchError, "R017", "C(i)", "found f32"),
    ("def f(float(J) B, float c) -> (A) { A(i) = B(i) where i in 0:@c }", pto.TypeMismatchError, "R017", "c", "f32"),
    ("def f(float(N) X) -> (A) { A(i) = @X(i, i) }", pto.ShapeError, "R016", "X(i, i)", "has 1 dimension, found 2"),
    ("def f(float(N) X) -> (A) { A(i) = X(i) + @X }", pto.ShapeError, "R016", "X", "found 0"),
    ("def f(float(N) X) -> (A) { A(i) = X(i) @A(i, j) = X(i) * X(j) }", pto.ShapeError, "R016", "A(i, j)", "found 2"),
    ("def f(float(N) X) -> (A) { A(i) = @foo(i) }", pto.CompilationError, "R015", "foo(i)", "`foo` is used here"),
    ("def f(float(N) X) -> (A) { A(i) = @B(i) B(i) = X(i) }", pto.CompilationError, "R015", "B(i)", "`B` is used here"),
    ("def f(float(N) X) -> (A) { A(i) = X(i) where t = X(i), @t in 0:2 }", pto.CompilationError, "R001", "", "no range"),
    ("def f(float(N) X, int32(1) S) -> (A) { A(i) = X(i) where i in 0:@S(0) }", pto.CompilationError, "R018", "S(0)",
     "cannot be used in a range"),
    ("def f(float(N) X) -> (A) { A(i) = X(i) where i in 0:@foo }", pto.CompilationError, "R031", "foo",
     "undefined variable `foo`"),
    ("def f(float(N) X) -> (A) { A(i) = X(i) where @N in 0:3 }", pto.CompilationError, "R036", "", "not an index"),
    ("def f(float(N) X) -> (A) { A(i) = X(i) where i in 0:@N*N/N }", pto.RangeInferenceError, "R037", "", "divide"),
    ("def f(double(N) X) -> (float(N) A) { A(i) = @X(i) }", pto.TypeMismatchError, "R020", "X(i)", "narrower type"),
    ("def f(double(N) X, float(N) Y) -> (A) { A(i) = Y(i) A(i) = @X(i) }", pto.TypeMismatchError, "R020", "X(i)",
     "without an explicit cast"),
    ("def f(float(N) X) -> (A) { @A(i) += X(i) }", pto.CompilationError, "R019", "A(i)", "nothing has initialised"),
    ("def f(float(N) X) -> (@B) { A(i) = X(i) }", pto.CompilationError, "R025", "B", "no statement writes it"),
    ("def f(@float(N) X, float(N) N) -> (A) { A(i) = X(i) }", pto.CompilationError, "R026", "float(N) X", "two things"),
    ("def f(float(N) X, @float X) -> (A) { A(i) = X(i) }", pto.CompilationError, "R026", "float X", "two things"),
    ("def f(float(N) X) -> (A) { A(i) = X(i) A(i) = @A(i - 1) where i in 1:N }", pto.CompilationError, "R029",
     "A(i - 1)", "order"),
    ("def f(float(N) X) -> (A) { @A(i, i) = X(i) }", pto.CompilationError, "R034", "A(i, i)", "twice"),
    ("def f(float(N) X) -> (A) { @A(N) = X(N) }", pto.CompilationError, "R035", "A(N)", "not an index"),
    ("def f(float(3) X, float(3) Y, float(4) Z) -> (A) { A(i, j) = X(i) * Y(j) * @Z(i + j) }", pto.ShapeError, "R042",
     "Z(i + j)", "leaves its tensor"),
    ("def f(float(N) X) -> (@float(N, N) A) { A(i) = X(i) }", pto.ShapeError, "R043", "float(N, N) A", "2 dimensions"),
    ("def f(float(3) X) -> (@float(4) A) { A(i) = X(i) }", pto.ShapeError, "R044", "float(4) A", "4 is declared"),
    ("def g(float(N) X) -> (A) { A(i) = X(i) } def f(float(N) X) -> (B) { @B = g(X, X) }", pto.TypeMismatchError, "R045",
     "B = g(X, X)", "takes 1 arguments"),
    ("def g(double(N) X) -> (A) { A(i) = X(i) } def f(float(N) X) -> (B) { @B = g(X) }", pto.TypeMismatchError, "R048",
     "B = g(X)", "takes f64"),
    ("def f(int8(N) X) -> (A) { A(i) = X(i) * @1000 }", pto.TypeMismatchError, "T012", "1000", "1000 does not fit i8"),
    ("def f(int32(N) X) -> (A) { A(i) = X(i) + uint8(@1e30) }", pto.TypeMismatchError, "T012", "1e30", "does not fit u8"),
    ("def f(int32(N) X) -> (A) { A(i) = pad(X(i - 1), @0.5) where exists X(i) }", pto.TypeMismatchError, "R020", "0.5",
     "`X` has i32, and f32 does not become"),
    ("def f(float(N) X) -> (A, B) { A, B = @g(X) }", pto.CompilationError, "R002", "g", "not defined above"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "code", "marked", "message"), WRONG, ids=[f"{w[2]}-{k}" for k, w in enumerate(WRONG)])
def test_a_wrong_text(text: str, kind: type[Exception], code: str, marked: str, message: str) -> None:
    column = text.index("@")
    with pytest.raises(kind) as caught:
        pto.comprehension(text.replace("@", ""))
    error: Any = caught.value
    assert error.code == f"PTO-{code}", str(error)
    assert message in str(error) and error.hint, str(error)
    assert any("pto.comprehension" in n.message and __file__ == n.loc.filename for n in error.notes)
    assert error.lineno == 1
    if marked:
        assert error.col_offset == column, str(error)
        assert text.replace("@", "")[error.col_offset : error.end_col_offset] == marked
    else:
        assert error.col_offset <= column


SYNTAX = [
    ("", 1, 0, "expected `def`"),
    ("def", 1, 3, "the name of the definition"),
    ("def f float x", 1, 6, "before the parameters"),
    ("def f(float(N) X) -> (A) {\n  A(i) = X(i\n}", 3, 0, "`)` or `,` in the list"),
    ("def f(float(N) X) -> (A) {\n  A(2*i) = X(i) }", 2, 4, "plain names"),
    ("def f(float(N) X) -> (A) { A(i) X(i) }", 1, 32, "an assignment"),
    ("def f(float(N) X) -> (A) { A(i) = }", 1, 34, "an expression"),
    ("def f(float(N) X) -> (A) { A(i) = exp(X(i), 2) }", 1, 34, "`exp` takes 1 argument, not 2"),
    ("def f(float(N) X) -> (A) { A(i) = min(X(i)) }", 1, 34, "`min` takes 2 arguments, not 1"),
    ("def f(float(N) X) -> (A) { A(i) = X(i) where i in 0..2 }", 1, 52, "expected"),
    ("def f(float(N) X) -> (A) { A(i) = X(i) where i in 0:2, i in 0:3 }", 1, 55, "two ranges"),
    ("def f(floot(N) X) -> (A) { A(i) = X(i) }", 1, 6, "a type like `float`"),
    ("def f(float(N) X) -> (A) { A(i) = X(i) $ }", 1, 39, "'$' has no meaning"),
    ("def f(float(N) X) -> (A) { A(i) = X(i)", 1, 38, "found the end of the text"),
    ("def f(float(1.5) X) -> (A) { A(i) = X(i) }", 1, 12, "a whole number"),
    ("def f(float(N) X) -> (A) { A(i) = X(i) }\ndef f(float(N) X) -> (A) { A(i) = X(i) }", 2, 4, "defined twice"),
]


@pytest.mark.parametrize(("text", "line", "column", "message"), SYNTAX)
def test_malformed_text_is_a_parse_error_at_its_place(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(pto.ParseError) as caught:
        pto.comprehension(text)
    error = caught.value
    assert (error.lineno, error.col_offset) == (line, column), str(error)
    assert message in str(error) and "test_diagnostics.py" in str(error)


def wrong_forms() -> list[tuple[Any, str, str]]:
    k = 3

    def slices(x: pl.f32["N"]):
        y[i] = x[i:2]
        return y

    def loops(x: pl.f32["N"]):
        for i in range(3):
            y[i] = x[i]
        return y

    def untyped(x):
        y[i] = x[i]
        return y

    def nested(x: pl.f32["N"]):
        y[i] = x[i] / pl.sum(x[j])
        return y

    def around(x: pl.f32["N"]):
        y[i] = pl.sum(x[k])
        return y

    def unknown(x: pl.f32["N"]):
        y[i] = nothing(x[i])
        return y

    def nowhere(x: pl.f32["N"]):
        y[i] = x[i]

    def computed(x: pl.f32["N"]):
        y[2 * i] = x[i]
        return y

    def tiles(x: pl.f32["N"]):
        y[i] = pl.sort(x[i])
        return y

    def other_init(x: pl.f32["N", "M"]):
        y[i] = pl.max(x[i, j], init=z[i])
        return y

    def unsolved(x: pl.f32["N"]):
        y[i, j] = pl.sum(x[i + j])
        return y

    def empty(x: pl.f32[3], w: pl.f32[4]):
        y[i] = pl.sum(x[i + t] * w[t])
        return y

    def unused(x: pl.f32["N"], c: pl.f32):
        y[i] = c
        return y

    def unreduced(x: pl.f32["N", "M"]):
        y[i] = x[i, j]
        return y

    def immutable(x: pl.f32["N"]):
        x[i] = 1.0
        y[i] = x[i]
        return y

    def undefined(x: pl.f32["N"]):
        y[i] = z[i]
        return y

    def ranks(x: pl.f32["N"]):
        y[i] = x[i, i]
        return y

    def floating(x: pl.f32["N"], w: pl.f32["M"]):
        y[i] = x[w[i]]
        return y

    def read_in_range(x: pl.f32["N"], w: pl.i32["M"]):
        i = pl.axis(0, w[0])
        y[i] = x[i]
        return y

    def uninitialised(x: pl.f32["N"]):
        y[i] += x[i]
        return y

    def narrow(x: pl.f64["N"], y: pl.f32["N"]):
        y[i] = x[i]
        return y

    def unwritten(x: pl.f32["N"]):
        y[i] = x[i]
        return z

    def ordered(x: pl.f32["N"]):
        y[i] = x[i]
        i = pl.axis(1, N)
        y[i] = y[i - 1]
        return y

    def twice(x: pl.f32["N"]):
        y[i, i] = x[i]
        return y

    def outside(x: pl.f32["N"]):
        i = pl.axis(0, N)
        y[i] = x[i - 2]
        return y

    def too_large(x: pl.i8["N"]):
        y[i] = x[i] * 1000
        return y

    assert k
    semantic = [(unsolved, "R010", "y[i, j]"), (empty, "R011", "x[i + t]"), (unused, "R012", "y[i]"), (unreduced, "R013", "j]"),
                (immutable, "R014", "x[i]"), (undefined, "R015", "z[i]"), (ranks, "R016", "x[i, i]"), (floating, "R017", "w[i]"),
                (read_in_range, "R018", "w[0]"), (uninitialised, "R019", "y[i]"), (narrow, "R020", "x[i]"),
                (unwritten, "R025", "z"), (ordered, "R029", "y[i - 1]"), (twice, "R034", "y[i, i]"),
                (outside, "R042", "x[i - 2]"), (too_large, "T012", "1000")]  # fmt: skip
    return semantic + [(slices, "R080", "i:2"), (loops, "R069", "for"), (untyped, "R066", "x"), (nested, "R083", "pl.sum(x[j])"),
            (around, "R082", "k"), (unknown, "R030", "nothing"), (nowhere, "R063", "def"), (computed, "R076", "2 * i"),
            (tiles, "R030", "pl.sort(x[i])"), (other_init, "R078", "z[i]")]  # fmt: skip


@pytest.mark.parametrize(("fn", "code", "marked"), wrong_forms(), ids=[w[0].__name__ for w in wrong_forms()])
def test_a_wrong_function(fn: Any, code: str, marked: str) -> None:
    with pytest.raises(pto.CompilationError) as caught:
        pto.comprehension(fn)
    error = caught.value
    assert error.code == f"PTO-{code}", str(error)
    assert error.filename == __file__ and error.hint
    assert error.lineno is not None and error.col_offset is not None
    from pathlib import Path

    line = Path(__file__).read_text().splitlines()[error.lineno - 1]
    assert line[error.col_offset :].startswith(marked), str(error)
    if code in ("R010", "R012"):
        assert "pl.axis(0, ...)" in error.hint


def test_sizes_that_disagree_name_both_places() -> None:
    mm = pto.comprehension("def mm(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }")
    with pytest.raises(pto.ShapeError, match="`K`: 4 in dimension 1 of `A`, but 5 in dimension 0 of `B`") as caught:
        mm(np.zeros((3, 4), np.float32), np.zeros((5, 6), np.float32))
    assert caught.value.code == "PTO-R021" and len(caught.value.notes) == 2
    with pytest.raises(pto.ShapeError, match="2 dimensions, found an array of the shape"):
        mm(np.zeros(3, np.float32), np.zeros((5, 6), np.float32))
    fixed = pto.comprehension("def f(float(3) A) -> (B) { B(i) = A(i) }")
    with pytest.raises(pto.ShapeError, match="dimension 0 of `A` is 3, found 4") as caught:
        fixed(np.zeros(4, np.float32))
    assert caught.value.code == "PTO-R022"


def test_wrong_arguments_are_errors_with_a_code() -> None:
    f = pto.comprehension("def f(float(N) A, int32 s) -> (B) { B(i) = A(i) * s }")
    x = np.zeros(3, np.float32)
    for args, kwargs, code in (
        ((x,), {}, "R051"), ((x, 1, 2), {}, "R051"), ((x, 1), {"t": 2}, "R051"), ((x, 1), {"s": 2}, "R051"),
        ((x, 1.5), {}, "R055"), ((x, "a"), {}, "R055"), ((3, 1), {}, "R054"), ((x, 1), {"out": (x, x)}, "R053"),
        ((x, 1), {"out": np.zeros(3)}, "R057"),
    ):  # fmt: skip
        with pytest.raises(pto.ArgumentError, match=f"PTO-{code}"):
            f(*args, **kwargs)
    with pytest.raises(pto.ShapeError, match=r"out= for `B` has the shape \(2,\)"):
        f(x, 1, out=np.zeros(2, np.float32))
    with pytest.raises(pto.ArgumentError):
        f(np.zeros(3), 1)
    with pytest.raises(pto.ArgumentError, match="PTO-R058"):
        pto.comprehension(3)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f(float(N) B) -> (B) { }", "computes nothing"),
        ("def f(float(N) B) -> () { A(i) = B(i) }", "returns nothing"),
        ("def f(float(N) B, int32 S) -> () { A(i) = B(S * i) }", "returns nothing"),
    ],
)
def test_a_definition_computes_and_returns_something(text: str, said: str) -> None:
    with pytest.raises(pto.CompilationError, match=f"PTO-R063: `f` {said}"):
        pto.comprehension(text)


def test_a_function_without_a_statement() -> None:
    def same(x: pl.f32["N"]):
        return x

    with pytest.raises(pto.CompilationError, match="PTO-R063: `same` computes nothing"):
        pto.comprehension(same)
