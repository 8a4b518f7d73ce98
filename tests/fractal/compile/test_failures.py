# SPDX-License-Identifier: MIT
"""What is wrong is said at the user's line with the index path of the element, by kernels as by the same code outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from pto_jit.errors import BoundsError, CompilationError, PtoError, ShapeError, TypeMismatchError
from tests.fractal.compile.test_random import interpreted
from tests.fractal.test_errors import underlined

# Lists of numbers, in which one inner list differs: its place is what has to be told.
X = ft.from_list([[1.0, 2.0, 3.0], [4.0], [], [5.0, 6.0]])
Y = ft.from_list([[1.0, 2.0, 3.0], [4.0], [7.0], [5.0, 6.0]])
DEEP = ft.from_list([[[1.0], [2.0, 3.0]], [], [[4.0], [5.0, 6.0], [7.0, 8.0]]])
OTHER = ft.from_list([[[1.0], [2.0, 3.0]], [], [[4.0], [5.0, 6.0], [7.0]]])


def pairs(x: Any, y: Any) -> Any:
    return ft.map(lambda p: ft.map(lambda q: q[0] + q[1], ft.zip(*p)), ft.zip(x, y))


RUNNING: list[tuple[Callable[..., Any], tuple[Any, ...], str, str]] = [
    (pairs, (X, Y), "ft.zip of lists of different lengths: 0, 1, at element [2]", "ft.zip(*p)"),
    (
        lambda x, y: ft.map(lambda p: pairs(*p), ft.zip(x, y)),
        (DEEP, OTHER),
        "ft.zip of lists of different lengths: 2, 1, at element [2][2]",
        "ft.zip(*p)",
    ),
    (
        lambda x, y: ft.map(lambda p: ft.scanr(lambda s, q: s + ft.fold(lambda t, r: t + r[0], ft.zip(*q), init=0.0),
                                               ft.zip(*p), init=0.0), ft.zip(x, y)),
        (DEEP, OTHER),
        "ft.zip of lists of different lengths: 2, 1, at element [2][2]",
        "ft.zip(*q)",
    ),
    (lambda x: ft.map(lambda r: ft.fold(lambda s, e: s + e, r), x), (X,),
     "ft.fold of an empty list without an initializer, at element [2]", "ft.fold(lambda s, e: s + e, r)"),
    (lambda x, y: ft.map(lambda r: ft.map(lambda q: q[0] * q[1], ft.zip(r, y)), x),
     (X, ft.from_list([1.0, 2.0])), "ft.zip of lists of different lengths: 3, 2, at element [0]", "ft.zip(r, y)"),
    (lambda x, y: ft.map(lambda r: ft.map(lambda e: e, ft.map(lambda q: q[0], ft.zip(y, ft.slice(y, 1)))), x),
     (X, ft.from_list([1.0, 2.0])), "ft.zip of lists of different lengths: 2, 1, at element [0]", "ft.zip(y, ft.slice(y, 1))"),
]  # fmt: skip


@pytest.mark.parametrize("case", RUNNING, ids=map(str, range(len(RUNNING))))
def test_lengths_that_do_not_fit_are_told_with_the_path(case: Any) -> None:
    program, given, said, source = case
    with pytest.raises(PtoError) as outside:
        program(*given)
    assert said in str(outside.value) and source == underlined(outside.value)
    with pytest.raises(ShapeError, match="PTO-F190") as caught:
        interpreted(pto.jit(program), given)
    assert said in str(caught.value)


@pytest.mark.parametrize("threads", [1, 2])
def test_machine_code_tells_as_much(threads: int) -> None:
    kernel = pto.jit(num_threads=threads)(lambda x, y: ft.map(lambda p: pairs(*p), ft.zip(x, y)))
    with pytest.raises(ShapeError, match=r"PTO-F190: .*lengths: 2, 1, at element \[2\]\[2\]\n") as caught:
        kernel(DEEP, OTHER)
    assert underlined(caught.value) == "ft.zip(*p)" and "help: all have one length" in str(caught.value)
    np.testing.assert_array_equal(kernel(DEEP, DEEP).leaves, 2 * DEEP.leaves)  # and the kernel goes on


def test_an_index_outside_of_its_list_when_debugging() -> None:
    kernel = pto.jit(debug=True)(lambda x, i: ft.map(lambda r: r[i], x))
    with pytest.raises(BoundsError, match=r"PTO-F190: .*index 1 of a list of length 1, at element \[1\]\n"):
        kernel(X, 1)


def test_deep_paths_share_the_words_of_a_failure() -> None:
    """Two lengths and four positions are six numbers, which three words of 64 bits report."""

    def around(x: Any, depth: int) -> Any:
        return ft.from_list([x.tolist()] * 2) if depth == 0 else ft.from_list([around(x, depth - 1).tolist()] * 2)

    def program(x: Any, y: Any) -> Any:
        return ft.map(lambda p: ft.map(lambda q: ft.map(lambda r: pairs(*r), ft.zip(*q)), ft.zip(*p)), ft.zip(x, y))

    given = around(X, 1), around(Y, 1)
    given = (ft.from_list([given[0].tolist()]), ft.from_list([given[1].tolist()]))
    with pytest.raises(ShapeError, match=r"different lengths: 0, 1, at element \[0\]\[0\]\[0\]\[2\]"):
        interpreted(pto.jit(program), given)


REFUSED: list[tuple[Callable[..., Any], str, str, str]] = [
    (lambda x: ft.map(lambda r: ft.fold(lambda s, e: (s, e), r, init=0.0), x), "F124",
     "gives (f64 number, f64 number), its state is f64 number", "ft.fold(lambda s, e: (s, e), r, init=0.0)"),
    (lambda x: ft.map(lambda r: ft.scan(lambda s, e: (s[0], e > s[1]), r, init=(0.0, 0.0)), x), "F124",
     "gives (f64 number, bool_ number), its state is (f64 number, f64 number)", ""),
    (lambda x: ft.map(lambda r: ft.fold(lambda s, e: ft.repeat(s, 2), r, init=r), x), "F124",
     "gives FractalTensor[FractalTensor[f64 number]], its state is FractalTensor[f64 number]", ""),
    (lambda x: ft.map(lambda r: ft.scan(lambda s, e: ft.cat(s, s), r, init=ft.zeros(2)), x), "F124",
     "gives Tensor[[4], f32], its state is Tensor[[2], f32]", "ft.scan(lambda s, e: ft.cat(s, s), r, init=ft.zeros(2))"),
    (lambda x: ft.map(lambda r: ft.reduce(lambda s, e: s, r, init=np.float32(0)), x), "F128",
     "elements of type f64 number with a state of type f32 number", "ft.reduce(lambda s, e: s, r, init=np.float32(0))"),
    (lambda x: ft.map(lambda r: ft.reduce(lambda s, e: s, ft.enumerate(r), init=0), x), "F128",
     "elements of type (i64 number, f64 number) with a state of type i64 number", ""),
    (lambda x: ft.map(lambda r: ft.reduce(lambda s, e: s > e, r, init=0.0), x), "F128",
     "makes bool_ number of two of f64 number, so it is not associative", ""),
    (lambda x: ft.map(lambda r: ft.map("r", r), x), "F120", "ft.map of str, which cannot be called", 'ft.map("r", r)'),  # type: ignore[arg-type]
    (lambda x: ft.map(lambda r: ft.join(r, x), x), "F132",
     "ft.join of a FractalTensor[f64 number] and a FractalTensor[FractalTensor[f64 number]]", "ft.join(r, x)"),
    (lambda x: ft.join(ft.zip(x[0], x[0], x[0]), ft.zip(ft.zip(x[0], x[0]), x[0])), "F132",
     "(f64 number, f64 number, f64 number)] and a FractalTensor[((f64 number, f64 number), f64 number)]", ""),
    (lambda x: ft.enumerate(), "F130", "ft.enumerate of nothing", "ft.enumerate()"),
    (lambda x: ft.map(lambda e: e, [1.0, 2.0]), "F100", "ft.map takes a FractalTensor, got a Python list", ""),  # type: ignore[arg-type]
    (lambda x: ft.map(lambda r: ft.reduce(lambda s, e: s + e, ft.map(len, x), init=0.5), x), "F128",
     "elements of type i64 number with a state of type f64 number", ""),
    (lambda x: ft.map(lambda r: [r, r], x), "F102", "what the body of ft.map gives is a Python list", "ft.map(lambda r: [r, r], x)"),
    (lambda x: ft.map(lambda r: ft.zip(r, 3), x), "F100", "ft.zip takes a list, got", "ft.zip(r, 3)"),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=map(str, range(len(REFUSED))))
def test_types_that_do_not_fit_are_told_at_their_line(case: Any) -> None:
    program, code, said, source = case
    with pytest.raises((TypeMismatchError, CompilationError), match=f"PTO-{code}") as caught:
        pto.jit(program).compile(X)
    assert said in str(caught.value) and source in ("", underlined(caught.value))
    with pytest.raises(PtoError, match="PTO-F0"):  # outside of kernels it is an error, too
        program(X)


def test_types_of_arguments_are_told_with_the_path() -> None:
    for lists, code, place in [
        ([[[1.0]], [2.0]], "F012", "[1][0] is a leaf at depth 2, others are at depth 3, as [0][0][0]"),
        ([[1.0, [2.0]], [[3.0]]], "F012", "[0][0] is a leaf at depth 2, others are at depth 3, as [0][1][0]"),
        ([[np.zeros(2)], [np.zeros(2), np.zeros(3)]], "F010", "the leaf [1][1] has shape [3]"),
    ]:
        with pytest.raises(PtoError, match=f"PTO-{code}") as caught:
            ft.from_list(lists)
        assert place in str(caught.value)
    kernel = pto.jit(_annotated)
    with pytest.raises(PtoError) as depth:
        kernel(DEEP)
    assert "depth" in str(depth.value)


def _annotated(x: ft.FractalTensor[ft.FractalTensor[pl.f64]]) -> Any:
    return ft.map(lambda r: ft.fold(lambda s, e: s + e, r, init=0.0), x)


@pytest.mark.parametrize(
    ("program", "said", "source"),
    [
        (lambda x: ft.map(lambda r: ft.map(lambda e: e, r + 1), x), "PTO-F107: `+` of a FractalTensor of depth 1", "r + 1"),
        (lambda x: ft.map(lambda r: ft.slide(r), x), "PTO-T029: ft.slide: missing a required argument: 'window'", "ft.slide(r)"),  # type: ignore[call-arg]
    ],
)  # fmt: skip
def test_what_python_refuses_outside_is_told_at_its_line(program: Callable[..., Any], said: str, source: str) -> None:
    with pytest.raises(TypeError):
        program(X)
    with pytest.raises(TypeMismatchError) as caught:
        pto.jit(program)(X)
    assert str(caught.value).startswith(said) and underlined(caught.value) == source
