# SPDX-License-Identifier: MIT
"""What errors of calls say: code, kernel, argument, place, and what to do."""

from __future__ import annotations

import json
import pickle
import re
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

X = np.arange(6, dtype=np.float32)


@pto.jit
def kernel(x: pl.Tensor, y: pl.Tensor, n: int = 1):
    y[...] = x * n


@pto.jit
def reading(x: pl.Tensor, offset: int):
    t = pl.load(x, [offset], [2])
    return pl.sum(t)


def lines_of(call: Any, kind: type[Exception]) -> list[str]:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value).splitlines()


def shape_of(text: list[str]) -> list[str]:
    """The skeleton of an error: what kind of line follows what."""
    kinds = []
    for line in text:
        found = re.match(
            r"(PTO-[A-Z]\d{3}: |\s+--> .+:\d+:\d+|\s*\d+ \|.*|\s+\|\s+\^+$|\s+\|$|called from |help: )", line
        )
        kinds.append("?" if found is None else found.group().strip()[:3])
    return kinds


def test_an_argument_error_shows_the_parameter() -> None:
    text = lines_of(lambda: kernel(X, X.astype(complex)), pto.ArgumentError)
    assert text[0] == "PTO-A009: kernel: argument `y` has dtype complex128, which kernels do not have"
    assert re.fullmatch(r"\s+--> .*test_errors\.py:21:26", text[1])
    assert text[3].endswith("| def kernel(x: pl.Tensor, y: pl.Tensor, n: int = 1):")
    assert text[4].split("|")[1].strip() == "^" * len("y: pl.Tensor")
    column = text[3].index("y: pl.Tensor")
    assert text[4].index("^") == column
    assert text[5].startswith("help: convert it to one of f16, bf16")


def test_a_binding_error_shows_the_definition_and_the_signature() -> None:
    text = lines_of(lambda: kernel(X), pto.ArgumentError)
    assert text[0] == "PTO-A001: kernel: missing the argument `y`"
    assert text[-1] == "help: call it as `kernel(x, y, n=1)`"
    assert "def kernel(" in "\n".join(text)


def test_a_failure_while_running_shows_the_place_in_the_kernel() -> None:
    for _ in range(2):
        text = lines_of(lambda: reading(X, -3), pto.BoundsError)
        assert re.fullmatch(r"PTO-B001: reading: .*-3.*negative", text[0])
        assert "    t = pl.load(x, [offset], [2])" in text[3] and "^" in text[4]
        assert text[-1].startswith("help: ")


def test_a_failure_in_an_inlined_function_shows_the_call_chain() -> None:
    def inner(x: Any, i: Any) -> Any:
        return pl.sum(pl.load(x, [i], [2]))

    outer = pto.jit(lambda x, i: inner(x, i) + 1)
    text = lines_of(lambda: outer(X, -1), pto.BoundsError)
    assert any(line.startswith("called from ") and "test_errors.py" in line for line in text)


def test_a_shape_error_of_an_annotation_is_a_compilation_error_with_a_place() -> None:
    N = pl.dynamic("N")

    @pto.jit
    def annotated(a: pl.Tensor[[N], pl.f32], b: pl.Tensor[[N], pl.f32]):
        return a + b

    with pytest.raises(pto.ShapeError) as caught:
        annotated(X, X[:3])
    error = caught.value
    assert error.code == "PTO-H101" and error.filename == __file__ and error.lineno is not None
    assert "annotated: `N` is 6 (axis 0 of `a`) and 3 (axis 0 of `b`)" in str(error)
    assert "^" * len("b: pl.Tensor[[N], pl.f32]") in str(error)
    assert isinstance(error, ValueError)


def test_every_error_of_a_call_has_the_same_build() -> None:
    outside = pto.jit(debug=True)(lambda x, i: x[i])
    cases: list[tuple[Any, type[Exception]]] = [
        (lambda: kernel(X), pto.ArgumentError),
        (lambda: kernel(X, X, 2**70), pto.ArgumentError),
        (lambda: kernel(X, object()), pto.ArgumentError),
        (lambda: kernel(X, X.astype("M8[s]")), pto.ArgumentError),
        (lambda: reading(X, -3), pto.BoundsError),
        (lambda: outside(X, 6), pto.BoundsError),
        (lambda: kernel.compile(X, X)(X, X.astype(float)), pto.ArgumentError),
        (lambda: pto.jit(speed=1), pto.ArgumentError),  # type: ignore[call-overload]
    ]
    for call, kind in cases:
        text = lines_of(call, kind)
        kinds = shape_of(text)
        assert kinds[0] == "PTO" and kinds[-1] == "hel" and "?" not in kinds, "\n".join(text)


def test_errors_are_of_the_classes_that_python_programs_expect() -> None:
    for call, kind in (
        (lambda: kernel(X), TypeError),
        (lambda: reading(X, -3), IndexError),
        (lambda: reading(X, -3), RuntimeError),
        (lambda: reading(X, -3), pto.LaunchError),
        (lambda: kernel(X), pto.PtoError),
    ):
        with pytest.raises(kind):
            call()


def test_a_kernel_works_after_it_failed() -> None:
    with pytest.raises(pto.BoundsError):
        reading(X, -1)
    assert reading(X, 1) == X[1] + X[2]


def test_an_assertion_fails_with_its_message_in_debug_mode_only() -> None:
    @pto.jit
    def checked(x, i: int):
        assert i > 0, "i must be positive"
        return x[i]

    assert checked(X, 0) == 0
    with pytest.raises(pto.KernelAssertionError, match="checked: i must be positive"):
        checked.compile(X, 0, debug=True)(X, 0)


def test_a_compilation_error_says_what_was_compiled_to_people_and_to_tools() -> None:
    @pto.jit
    def kernel(x: pl.Tensor, n: pl.i64, out: pl.Tensor):
        with pl.incore():
            pl.store(_shifted(pl.load(x, [0], [16])), [0], out)

    x = np.zeros(16, np.float32)
    with pytest.raises(pto.CompilationError) as caught:
        kernel(x, 3, x)
    error = caught.value
    assert error.specialization == "kernel(x: f32[?], n: i64, out: f32[?])"
    assert error.__notes__ == [f"while compiling {error.specialization}"]
    found = json.loads(json.dumps(error.as_dict()))
    assert found["code"] == error.code and found["hint"] == error.hint and found["others"] == []
    assert found["specialization"] == error.specialization
    place, (caller,) = found["place"], found["callers"]
    assert place["filename"] == caller["filename"] == __file__
    assert place["lineno"] == error.lineno and place["end_col_offset"] - place["col_offset"] == len("nothing_at_all")
    again = pickle.loads(pickle.dumps(error))
    assert again.as_dict() == error.as_dict() and again.__notes__ == error.__notes__ and str(again) == str(error)


def _shifted(tile: Any) -> Any:
    return tile + nothing_at_all  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


OUTSIDE = np.ones(4, np.float32)


@pto.jit
def adds_an_array_from_outside(x):
    return x + OUTSIDE


@pto.jit
def loads_an_array_from_outside(x):
    return pl.load(OUTSIDE) + x


@pytest.mark.parametrize("kernel", [adds_an_array_from_outside, loads_an_array_from_outside])
def test_an_array_that_is_no_argument(kernel: Any) -> None:
    with pytest.raises(pto.CompilationError, match=r"an array of float32 with shape \(4,\)") as info:
        kernel(OUTSIDE)
    assert info.value.hint == "an array is a tensor where it is an argument: pass it to the kernel"
