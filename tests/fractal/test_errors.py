# SPDX-License-Identifier: MIT
"""What is wrong is said at the user's line, with the index path of the element."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl

NUMBERS = ft.from_list([1, 2, 3])
NESTED = ft.from_list([[1, 2, 3], [], [4, 5, 6, 7]])


def underlined(error: BaseException) -> str:
    """The source that the first excerpt of an error underlines."""
    lines = str(error).splitlines()
    k = next(k for k, line in enumerate(lines) if line.strip(" |") and not line.strip(" |^"))
    marks, source = lines[k], lines[k - 1]
    return source[marks.index("^") : marks.rindex("^") + 1]


ITSELF: list[Any] = [np.zeros(2)]
ITSELF.append(ITSELF)

CASES: list[tuple[Callable[[], Any], type[Exception], str, str, str]] = [
    (lambda: ft.from_list([[1], [2, 3.0]]), pto.TypeMismatchError, "PTO-F011", "the leaf [1][1]",
     "ft.from_list([[1], [2, 3.0]])"),
    (lambda: ft.from_list([[[1]], [2]]), pto.TypeMismatchError, "PTO-F012", "[1][0] is a leaf at depth 2", ""),
    (lambda: ft.from_list(ITSELF), pto.TypeMismatchError, "PTO-F012", "more than 32 deep", "ft.from_list(ITSELF)"),
    (lambda: ft.from_list([[np.zeros(2)], [np.zeros(3)]]), pto.ShapeError, "PTO-F010", "the leaf [1][0]", ""),
    (lambda: ft.from_list([1, None]), pto.TypeMismatchError, "PTO-F013", "[1] is None", ""),
    (lambda: ft.from_list([1], leaf=pto.spec((2,), pl.i64)), pto.ShapeError, "PTO-F010", "leaf= has [2]", ""),
    (lambda: ft.map(lambda row: row[3], NESTED), pto.BoundsError, "PTO-F002", "length 3, at element [0]", ""),
    (lambda: ft.map(lambda row: ft.map(lambda v: NUMBERS[v], row), NESTED), pto.BoundsError, "PTO-F002",
     "index 3 of a list of length 3", "NUMBERS[v]"),
    (lambda: ft.map(lambda row: ft.map(lambda v: NUMBERS[v], row), NESTED), pto.BoundsError, "PTO-F002",
     "at element [0][2]", "NUMBERS[v]"),
    (lambda: ft.map(lambda row: ft.zip(row, NUMBERS), NESTED), pto.ShapeError, "PTO-F020",
     "lists of different lengths: 0, 3, at element [1]", "ft.zip(row, NUMBERS)"),
    (lambda: ft.map(lambda row: ft.scan(lambda s, v: s * 0.5, row, init=np.int64(1)), NESTED), pto.TypeMismatchError,
     "PTO-F028", "the body of ft.scan gives f64 number, its state is i64 number, at element [0][0]",
     "ft.scan(lambda s, v: s * 0.5, row, init=np.int64(1))"),
    (lambda: ft.fold(lambda s, v: s if v < 3 else ft.cat(s, s), NUMBERS, init=np.zeros(1)), pto.TypeMismatchError,
     "PTO-F028", "gives Tensor[[2], f64], its state is Tensor[[1], f64], at element [2]", ""),
    (lambda: ft.fold(lambda s, v: (s, s), NUMBERS, init=1.0), pto.TypeMismatchError, "PTO-F028", "its state is f64", ""),
    (lambda: ft.foldr(lambda s, v: s if v > 2 else None, NUMBERS), pto.TypeMismatchError, "PTO-F022",
     "what the body of ft.foldr gives is None, at element [1]", ""),
    (lambda: ft.map(lambda v: [v], NUMBERS), pto.TypeMismatchError, "PTO-F022", "at element [0]", ""),
    (lambda: ft.map(3, NUMBERS), pto.TypeMismatchError, "PTO-F024", "3, which cannot be called", "ft.map(3, NUMBERS)"),  # type: ignore[arg-type]
    (lambda: ft.map(lambda v: v, np.zeros((2, 2))), pto.TypeMismatchError, "PTO-F021", "a tensor of shape [2, 2]", ""),
    (lambda: ft.reduce(lambda a, b: (a, b), NUMBERS), pto.TypeMismatchError, "PTO-F029", "not associative", ""),
    (lambda: ft.reduce(lambda s, v: s + v, NUMBERS, init=np.float32(0)), pto.TypeMismatchError, "PTO-F029",
     "no body of these is associative", ""),
    (lambda: ft.reduce(lambda s, v: s, ft.zip(NUMBERS, NUMBERS), init=0), pto.TypeMismatchError, "PTO-F029", "", ""),
    (lambda: ft.map(lambda row: ft.fold(lambda s, v: s, row), NESTED), pto.ShapeError, "PTO-F027", "at element [1]", ""),
    (lambda: ft.gather(NUMBERS, [0, 5]), pto.BoundsError, "PTO-F002", "in place 1 of the indices", ""),
    (lambda: ft.map(lambda v: v if v < 2 else v * 0.5, NUMBERS), pto.TypeMismatchError, "PTO-F025",
     "gives f64 number, before it gave i64 number, at element [1]", ""),
    (lambda: ft.join(NUMBERS, ft.zip(NUMBERS, NUMBERS)), pto.TypeMismatchError, "PTO-F035", "(i64 number, i64 number)", ""),
    (lambda: NUMBERS["x":], pto.TypeMismatchError, "PTO-F003", "a bound of a slice", ""),  # type: ignore[misc]
    (lambda: NUMBERS[::0], pto.ShapeError, "PTO-F036", "the step of a slice is 0", "NUMBERS[::0]"),
    (lambda: ft.from_flat(np.zeros(3), 3), pto.TypeMismatchError, "PTO-F016", "the offsets are 3", ""),  # type: ignore[arg-type]
    (lambda: ft.from_flat(np.zeros(3), [[0, [1]]]), pto.TypeMismatchError, "PTO-F016", "offsets[0]", ""),
    (lambda: ft.from_list([], leaf=3), pto.TypeMismatchError, "PTO-F017", "leaf=3", ""),
    (lambda: ft.from_list([], leaf=pto.spec((None,), pl.f32)), pto.TypeMismatchError, "PTO-F017", "", ""),
    (lambda: ft.from_list([2**70]), pto.TypeMismatchError, "PTO-F013", "[0] is 1180591620717411303424", ""),
    (lambda: ft.from_list([pl.load(np.arange(4.0), [2], [4])]), pto.TypeMismatchError, "PTO-F013", "no tensor", ""),
    (lambda: ft.map(lambda v: pl.load(np.arange(4.0), [2], [4]), NUMBERS), pto.TypeMismatchError, "PTO-F022",
     "a partial tile, [2] of [4]", ""),
    (lambda: ft.gather(NUMBERS, [[1], [1, 2]]), pto.TypeMismatchError, "PTO-F039", "", ""),
    (lambda: ft.slide(ft.from_list([True]), 3, padding=1, value=2), pto.TypeMismatchError, "PTO-F041", "", ""),
    (lambda: ft.cat(NESTED), pto.TypeMismatchError, "PTO-F043", "ft.cat of a", ""),
    (lambda: NUMBERS["x"], pto.TypeMismatchError, "PTO-F003", "", 'NUMBERS["x"]'),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[f"{k} {case[2]}" for k, case in enumerate(CASES)])
def test_an_error_has_code_place_and_path(case: Any) -> None:
    program, kind, code, said, source = case
    with pytest.raises(kind) as caught:
        program()
    text = str(caught.value)
    assert text.startswith(f"{code}: ") and said in text and "help: " in text
    assert f"{__file__}:" in text
    assert source in ("", underlined(caught.value))
    assert caught.value.code == code  # type: ignore[attr-defined]


def test_the_body_that_is_to_blame_is_shown() -> None:
    def body(s: Any, e: Any) -> Any:
        return s, e

    with pytest.raises(pto.TypeMismatchError) as caught:
        ft.scan(functools.partial(body), NUMBERS)
    assert f"note: the body is here  {__file__}:{body.__code__.co_firstlineno}:5" in str(caught.value)
    with pytest.raises(pto.TypeMismatchError) as caught:
        ft.scan(np.equal, NUMBERS)
    assert "note: " not in str(caught.value)


def test_other_exceptions_pass_with_the_path_as_a_note() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        ft.map(lambda row: ft.map(lambda v: 1 // int(v - 5), row), NESTED)
    assert caught.value.__notes__ == ["at element [2][1]"]
    with pytest.raises(pto.ShapeError) as shapes:  # of an operation of `pl`, which knows no place
        ft.map(lambda v: np.zeros((2, 3)).view(pl.Tensor) @ np.zeros((2, 3)), NUMBERS)  # type: ignore[arg-type]
    assert shapes.value.__notes__ == ["at element [0]"]


def test_paths_end_with_their_elements() -> None:
    with pytest.raises(pto.BoundsError):
        ft.map(lambda row: row[1], NESTED)
    with pytest.raises(pto.BoundsError) as caught:
        NUMBERS[7]
    assert "at element" not in str(caught.value)


def test_a_list_is_no_operand() -> None:
    with pytest.raises(TypeError):
        np.zeros(3) * NUMBERS  # type: ignore[operator]
    with pytest.raises(pto.TypeMismatchError):
        pl.exp(NUMBERS)
