# SPDX-License-Identifier: MIT
# ruff: noqa: F821, UP037
"""Comprehensions as functions: arguments, outputs, sizes, origins, versions, and looking inside."""

from __future__ import annotations

import importlib.util
import os
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from tests.comprehensions.oracle import check, run

MATMUL = "def matmul(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, r_k) * B(r_k, n) }"


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def test_it_writes_into_given_arrays() -> None:
    matmul = pto.comprehension(MATMUL)
    a, b = array(4, 5), array(5, 6)
    c = np.empty((4, 6), np.float32)
    for _ in range(2):  # the second call takes the short way
        assert matmul(a, b, out=c) is c
        np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)
        c[...] = 0


def test_an_output_that_overlaps_an_argument_is_that_of_the_program() -> None:
    matmul = pto.comprehension(MATMUL)
    a, b = array(5, 5), array(5, 5)
    wanted = a @ b
    for _ in range(2):
        target = a.copy()
        matmul(target, b, out=target)
        np.testing.assert_allclose(target, wanted, rtol=1e-5, atol=1e-5)
    shift = pto.comprehension("def shift(float(N) O, float(M) X) -> (O) { O(i) = X(i + 1) where i in 0:M - 1 }")
    memory = np.arange(6, dtype=np.float32)
    shift(memory[1:], memory[:5])
    np.testing.assert_array_equal(memory, [0, 1, 2, 3, 4, 5])


def test_a_returned_parameter_is_written_in_place() -> None:
    text = """def update(float(N) total, float() peak, float(N, K) X) -> (total, peak) {
        total(n) += X(n, k)
        peak max= X(n, k)
    }"""

    @pto.comprehension
    def update(total: pl.f32["N"], peak: pl.f32[()], X: pl.f32["N", "K"]):
        total[n] += X[n, k]
        peak[()] = pl.max(X[n, k], init=peak[()])
        return total, peak

    assert pto.comprehension(text).definition == update.definition
    x = np.abs(array(3, 40))
    total, peak = np.ones(3, np.float32), np.array(1.5, np.float32)
    results = update(total, peak, x)
    assert results[0] is total and results[1] is peak
    np.testing.assert_allclose(total, 1 + x.sum(1), rtol=1e-5)
    assert peak == max(1.5, x.max())


def test_several_definitions_and_calls_of_them() -> None:
    both = pto.comprehension(MATMUL + """
    def first(float(N) X) -> (Y) { Y(i) = X(i + 1) where i in 1:N - 1 }
    def chain(float(M, K) A, float(K, N) B, float(N, L) D, float(L) v) -> (E, w) {
        T = matmul(A, B)
        E = matmul(T, D)
        w = first(v)
        w(i) = w(i) * 2
    }""")  # fmt: skip
    a, b, d, v = array(3, 4), array(4, 5), array(5, 6), array(6)
    e, w = both.chain(a, b, d, v)
    np.testing.assert_allclose(e, a @ b @ d, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(w, v[2:] * 2)
    first = both.first

    @pto.comprehension
    def twice(X: pl.f32["N"]):
        A = first(X)
        B = first(A)
        return B

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(twice(v), v[4:])


def test_an_index_of_a_callee_may_have_the_name_of_a_size() -> None:
    c = pto.comprehension("""
    def copy(float(A) X) -> (Y) { Y(M) = X(M) }
    def f(float(M, M) X, float(M) v) -> (O) { t = copy(v) O(i) = X(i, i) + t(i) }""").f
    x, v = array(3, 3), array(3)
    np.testing.assert_array_equal(c(x, v), np.diag(x) + v)


def test_results_that_start_elsewhere() -> None:
    text = "def f(float(N) X) -> (A) { A(i) = X(i - 2) }"
    f = pto.comprehension(text)
    x = array(5)
    with pytest.warns(UserWarning, match="is the one of index 2"):
        np.testing.assert_array_equal(f(x), x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(x)
        f(array(7))
    assert f.infer(X=(5,)).origins == {"A": (2,)}
    with pytest.raises(pto.RangeInferenceError, match="does not start at 0 but at 2") as caught:
        pto.comprehension(text, strict_origin=True)
    assert caught.value.code == "PTO-R028"
    later = pto.comprehension("def f(float(N) X) -> (A) { A(i) = X(5 - i) }", strict_origin=True)
    assert later(array(6)).shape == (6,)
    with pytest.raises(pto.RangeInferenceError, match="does not start at 0"):
        later(array(5))


def test_a_reader_of_a_shifted_tensor_sees_its_indices() -> None:
    f = pto.comprehension("def f(float(N) X) -> (A, B) { A(i) = X(i - 2) B(j) = A(j + 1) * X(j) }")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(f, {"X": array(7)})


def test_values_outside_are_found_with_debug() -> None:
    text = "def lut(float(J) B, int32(I) C) -> (A) { A(i) = B(C(i)) }"
    b, c = array(4), np.array([0, 3, 2], np.int32)
    f = pto.comprehension(text)
    with pytest.warns(UserWarning, match=r"not checked: B\(C\(i\)\): C\(i\) < J"):
        np.testing.assert_array_equal(f(b, c), b[c])
    checked = pto.comprehension(text, debug=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(checked(b, c), b[c])
    with pytest.raises(pto.BoundsError):
        checked(b, np.array([0, 4], np.int32))
    with pytest.raises(pto.BoundsError):
        checked(b, np.array([0, -1], np.int32))


def test_what_a_condition_does_not_choose_is_not_read() -> None:
    x, far = np.arange(1, 6, dtype=np.float32), np.array([0, 4, -(2**31), 2**31 - 1, 5], np.int32)
    wanted = [1, 5, 0.5, 0.5, 0.5]
    for debug in (False, True):
        safe = "def f(float(N) X, int32(K) C) -> (A) { A(i) = (C(i) < N && 0 <= C(i)) ? X(C(i)) : 0.5 }"
        np.testing.assert_array_equal(pto.comprehension(safe, debug=debug)(x, far), wanted)
        flag = "def f(float(N) X, int32(K) C, bool(K) F) -> (A) { A(i) = F(i) ? X(C(i)) : 0.5 }"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            chosen = (far >= 0) & (far < 5)
            np.testing.assert_array_equal(pto.comprehension(flag, debug=debug)(x, far, chosen), wanted)
    later = pto.comprehension("def f(float(N) X, float(M) Y) -> (A) { A(i) = (i < M) ? X(i) : 0.0 where i in 0:6 }")
    np.testing.assert_array_equal(later(x, x[:3]), [1, 2, 3, 0, 0, 0])
    with pytest.raises(pto.ShapeError, match=r"6 <= N or M <= N.*M = 5, N = 3"):
        later(x[:3], x)


def test_every_assignment_in_both_forms() -> None:
    x, start = np.array([[1, 2, 3], [4, 5, 7]], np.float32), np.array([9, 2], np.float32)

    @pto.comprehension
    def given(S: pl.f32["N"], P: pl.f32["N"], L: pl.f32["N"], H: pl.f32["N"], X: pl.f32["N", "M"]):
        S[i] += X[i, j]
        P[i] *= X[i, j]
        L[i] = pl.min(X[i, j], init=L[i])
        H[i] = pl.max(X[i, j], init=H[i])
        A[i, j] = X[i, j]
        s[i] = pl.sum(X[i, j])
        p[i] = pl.prod(X[i, j])
        l[i] = pl.min(X[i, j])
        h[i] = pl.max(X[i, j])
        c[i] = pl.max(S[i] * 2)
        return S, P, L, H, A, s, p, l, h, c

    text = pto.comprehension("""def given(float(N) S, float(N) P, float(N) L, float(N) H, float(N, M) X)
            -> (S, P, L, H, A, s, p, l, h, c) {
        S(i) += X(i, j)  P(i) *= X(i, j)  L(i) min= X(i, j)  H(i) max= X(i, j)
        A(i, j) = X(i, j)  s(i) +=! X(i, j)  p(i) *=! X(i, j)  l(i) min=! X(i, j)  h(i) max=! X(i, j)
        c(i) max=! S(i) * 2  # nothing is reduced: this is `=`
    }""")
    assert text.definition == given.definition
    for c in (text, given):
        found = c(*(start.copy() for _ in range(4)), x)
        wanted = [start + x.sum(1), start * x.prod(1), [1, 2], [9, 7], x, x.sum(1), x.prod(1), [1, 4], [3, 7],
                  2 * (start + x.sum(1))]  # fmt: skip
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(a, b)


def test_arrays_of_other_libraries_and_lists_of_numbers() -> None:
    class Exported:
        """An array that others see through DLPack alone."""

        def __init__(self, array: np.ndarray) -> None:
            self.array, self.shape, self.dtype = array, array.shape, array.dtype

        def __dlpack__(self, **given: Any) -> Any:
            return self.array.__dlpack__(**given)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.array.__dlpack_device__()

    matmul = pto.comprehension(MATMUL)
    a, b = array(4, 5), array(5, 6)
    for x, y in ((Exported(a), Exported(b)), (memoryview(a), b)):  # type: ignore[arg-type]
        for _ in range(2):
            np.testing.assert_allclose(matmul(x, y), a @ b, rtol=1e-5, atol=1e-5)
    made = np.zeros((4, 6), np.float32)
    assert matmul(Exported(a), b, out=made) is made
    np.testing.assert_allclose(made, a @ b, rtol=1e-5, atol=1e-5)


def test_reductions_have_the_same_bits_on_any_number_of_threads() -> None:
    x = array(300, 700)
    text = "def f(float(M, N) X) -> (S, C, T) { S(m) +=! X(m, n) C(n) +=! X(m, n) T +=! X(m, n) * X(m, n) }"
    one, two = (pto.comprehension(text, num_threads=n)(x) for n in (1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_strides_windows_and_functions_from_outside() -> None:
    strided = pto.comprehension("def f(float(N) X, int32 S, int32 K) -> (A) { A(i) +=! X(S*i + k) where k in 0:K }")
    x = array(11)
    for s, k in ((1, 1), (2, 3), (3, 2)):
        wanted = [x[s * i : s * i + k].sum() for i in range((11 - k) // s + 1)]
        np.testing.assert_allclose(strided(x, s, k), wanted, rtol=1e-5, atol=1e-6)
    assert strided.infer(X=(11,), S=2, K=3).shapes == {"A": (5,)}
    with pytest.raises(pto.ArgumentError, match="PTO-R052"):
        strided.infer()
    with pytest.raises(pto.RangeInferenceError):
        strided(x, 0, 1)

    scale = 3.0

    def swish(v: Any) -> Any:
        return v / (1.0 + pl.exp(-v))

    @pto.comprehension
    def apply(X: pl.f32["N"], f: pl.constexpr, step: pl.constexpr):
        t = scale * X[step * i]
        Y[i] = f(t) + swish(t)
        return Y

    for f, g in ((pl.tanh, np.tanh), (lambda v: v * v, np.square)):
        t = scale * x[::2]
        np.testing.assert_allclose(apply(x, f, 2), g(t) + t / (1 + np.exp(-t)), rtol=1e-5, atol=1e-6)


def test_types_are_those_of_the_text_form() -> None:
    for text, wanted in (
        ("def f(int32(N) X, float(N) Y) -> (A) { A(i) = X(i) * Y(i) }", np.float32),
        ("def f(int32(N) X, int64(N) Y) -> (A) { A(i) = X(i) / Y(i) }", np.int64),
        ("def f(uint8(N) X, int16(N) Y) -> (A) { A(i) = X(i) - Y(i) }", np.int16),
        ("def f(int32(N) X, int32(N) Y) -> (A) { A(i) = X(i) < Y(i) }", np.bool_),
        ("def f(float(N) X, double(N) Y) -> (A) { A(i) = X(i) + 2 * Y(i) }", np.float64),
        ("def f(float16(N) X, float16(N) Y) -> (A) { A(i) = X(i) + Y(i) }", np.float16),
        ("def f(int32(N) X, int32(N) Y) -> (float(N) A) { A(i) = X(i) + Y(i) }", np.float32),
        ("def f(int32(N) X, int32(N) Y) -> (A) { A(i) = exp(X(i)) + i }", np.float32),
        ("def f(int32(N) X, int32(N) Y) -> (A) { A(i) = N - i + X(i) % 3 }", np.int32),
        ("def f(bfloat16(N) X, bfloat16(N) Y) -> (A) { A +=! X(i) * Y(i) }", pl.bf16.numpy),
    ):
        c = pto.comprehension(text)
        kinds = [p.dtype.numpy for p in c.definition.parameters]
        result = check(c, {"X": np.arange(1, 8).astype(kinds[0]), "Y": np.arange(3, 10).astype(kinds[1])}, 1e-2)
        assert result.dtype == wanted, text


def test_conversions_of_literals_are_numbers_of_that_type() -> None:
    x = np.arange(4, dtype=np.int32)
    for text, wanted in (
        ("int32(2.7) * X(i)", 2 * x), ("-(X(i) > 1)", -(x > 1).astype(np.int32)), ("bool(2.5) + X(i)", x + 1),
        ("int8(-1.5) - X(i)", -1 - x), ("fma(X(i), X(i), 1)", (x * x + 1).astype(np.float32)),
        ("pad(X(i - 1), 7.0)", np.array([7, 0, 1, 2], np.int32)), ("0 % 0 + X(i)", x),
    ):  # fmt: skip
        made = pto.comprehension(f"def f(int32(N) X) -> (A) {{ A(i) = {text} where exists X(i) }}")(x)
        assert made.dtype == wanted.dtype, text
        np.testing.assert_array_equal(made, wanted, err_msg=text)
    total = pto.comprehension("def f(int32(N) X) -> (A) { A *=! int32(2.5) where exists X(i) }")
    assert total(x) == 16

    @pto.comprehension
    def inverted(X: pl.f32["N"]):
        T[()] = pl.sum(X[i])
        A[i] = pl.f32(~(X[i] > 1)) + T[()] + pl.pad(T[()], 0)
        return A

    np.testing.assert_array_equal(inverted(x.astype(np.float32)), (x <= 1) + np.float32(12))


def test_functions_of_the_mathematics_library() -> None:
    x = np.linspace(0.1, 0.9, 9, dtype=np.float32)
    for name, fn in (
        ("log10", np.log10), ("exp10", lambda v: 10**v), ("sinh", np.sinh), ("cosh", np.cosh), ("asin", np.arcsin),
        ("acos", np.arccos), ("atan", np.arctan), ("asinh", np.arcsinh), ("atanh", np.arctanh), ("cbrt", np.cbrt),
        ("expf", np.exp), ("fabs", np.abs), ("rint", np.rint), ("rcbrt", lambda v: 1 / np.cbrt(v)),
    ):  # fmt: skip
        f = pto.comprehension(f"def f(float(N) X) -> (Y) {{ Y(i) = {name}(X(i)) }}")
        np.testing.assert_allclose(f(x), fn(x.astype(np.float64)), rtol=3e-6, atol=3e-6, err_msg=name)


def test_the_loops_can_be_pasted(tmp_path: Any) -> None:
    softmax = pto.comprehension("""def softmax(float(N, D) I) -> (O) {
        mx(n) max=! I(n, d)
        s(n) +=! exp(I(n, d) - mx(n))
        O(n, d) = exp(I(n, d) - mx(n)) / s(n)
    }""")
    text = softmax.loops()
    assert text.count("pl.exp(") == 1 and "mx = pl.empty" not in text  # computed once; nothing needs `mx` in memory
    path = tmp_path / "pasted.py"
    path.write_text(text)
    space: dict[str, Any] = {"__name__": "pasted"}
    exec(compile(text, str(path), "exec"), space)
    x = array(5, 9)
    np.testing.assert_array_equal(space["softmax"](x), softmax(x))
    np.testing.assert_allclose(space["softmax"].interpret(x), softmax(x), rtol=1e-6)


def test_explain_tells_the_rounds() -> None:
    f = pto.comprehension("def f(float(N) B, float(T) K) -> (A) { A(i) +=! B(i + k) * K(k) }")
    text = f.explain()
    for part in ("round 1:", "`k` is alone in K(k): it goes from 0 to T", "round 2:", "0 to N - T + 1", "^^^^^^^^",
                 "summed over `k`", "`A` has the shape (N - T + 1)"):  # fmt: skip
        assert part in text
    assert "0 to 17" in f.explain(B=(20,), K=(4,))


def test_other_targets_take_it() -> None:
    matmul = pto.comprehension(MATMUL)
    compiled = matmul.compile(pto.spec((None, None), pl.f32), pto.spec((None, None), pl.f32))
    assert "source" in compiled.stages and "dot" in compiled.ir("source")
    cuda = matmul.compile(pto.spec((None, None), pl.f32), pto.spec((None, None), pl.f32), target="cuda")
    assert any("__global__" in text for text in cuda.sources.values())


def test_tensors_without_elements_give_empty_sums() -> None:
    matmul = pto.comprehension(MATMUL)
    assert matmul(array(0, 3), array(3, 4)).shape == (0, 4)
    np.testing.assert_array_equal(matmul(array(2, 0), array(0, 4)), np.zeros((2, 4)))


def test_views_of_any_layout() -> None:
    f = pto.comprehension("def f(float(M, N) X) -> (S, T) { S(m) +=! X(m, n) T(n, m) = X(m, n) * 2 }")
    x = array(9, 8)
    for view in (x.T, x[::2], x[:, ::3], x[::-1]):
        check(f, {"X": view})


# -- random programs ----------------------------------------------------------------------------------------------


def random_program(rng: random.Random) -> str:
    """Three statements over what was made before, some of which share loops."""
    lines: list[str] = []
    indices = {"X": ["n", "d"], "Y": ["n", "d"], "v": ["n"]}  # of each tensor
    for k in range(3):
        left = rng.choice((["n", "d"], ["n"], ["d", "n"], ["d"], []))
        reads = [rng.choice(list(indices)) for _ in range(rng.randint(1, 3))]
        texts = [f"{name}({', '.join(indices[name])})" for name in reads]
        value = rng.choice((" + ", " * ", " - ")).join(texts)
        form = rng.choice(("{}", "exp(({}) * 0.1)", "fmax({}, 0.3)", "({} > 0.5) ? 1.0 : ({}) * 0.5"))
        complete = len(left) == 2
        op = rng.choice(("=", "+=!", "max=!")) if complete else rng.choice(("+=!", "max=!", "min=!"))
        lines.append(f"T{k}({', '.join(left)}) {op} {form.replace('{}', value)} where exists X(n, d)")
        indices[f"T{k}"] = left
    body = "\n".join(lines)
    return f"def f(float(N, D) X, float(N, D) Y, float(N) v) -> (T0, T1, T2) {{\n{body}\n}}"


def test_random_programs_compute_what_their_statements_say() -> None:
    rng = random.Random(3)
    for _ in range(int(os.environ.get("PTO_TEST_PROGRAMS", "8"))):
        text = random_program(rng)
        data = {"X": array(6, 11), "Y": array(6, 11) + 1, "v": array(6)}
        c = pto.comprehension(text)
        with np.errstate(over="ignore", invalid="ignore"):
            if all(np.abs(t).max() < 1e6 for t in run(c, data).values()):  # else f32 may overflow
                check(c, data, 1e-4)


def test_the_tutorial_computes_what_it_says(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(__file__).parents[2] / "tutorials" / "comprehensions.py"
    spec = importlib.util.spec_from_file_location("comprehensions_tutorial", path)
    assert spec is not None and spec.loader is not None
    tutorial = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tutorial)
    monkeypatch.setattr("sys.argv", ["comprehensions.py"])
    tutorial.main()
    printed = capsys.readouterr().out
    assert "`h` is alone in x(c, 2*h + kh, 2*w + kw): it goes from 0 to H//2" in printed
    assert "mismatched sizes for dimension `H`" in printed


def test_calls_that_need_no_checks_are_the_dispatchers() -> None:
    scaled = pto.comprehension("def f(float(N) X, float s) -> (Y, T) { Y(i) = X(i) * s T +=! Y(i) }")
    x = array(5)
    for _ in range(2):
        y, t = scaled(x, 2.0)
        np.testing.assert_array_equal(y, x * 2)
        assert t.shape == () and np.isclose(t, y.sum(), rtol=1e-5)
    assert len(scaled.entries()) == 1
    np.testing.assert_array_equal(scaled(x, 3)[0], x * 3)  # a whole number is converted first
    assert scaled(X=x, s=2.0)[1] == t
    y, t = np.empty_like(x), np.empty((), np.float32)
    assert scaled(x, 2.0, out=(y, t))[1] is t and np.array_equal(y, x * 2)
    matmul = pto.comprehension(MATMUL)
    matmul(array(3, 4), array(4, 5))
    with pytest.raises(pto.ShapeError, match="mismatched sizes for dimension `K`"):
        matmul(array(3, 4), array(5, 4))
    with pytest.raises(pto.ArgumentError, match="PTO-R051"):
        matmul(array(3, 4))
    pto.config.debug = not pto.config.debug  # forgets what was registered
    try:
        assert not scaled.entries()
        np.testing.assert_array_equal(scaled(x, 2.0)[0], x * 2)
    finally:
        pto.config.debug = not pto.config.debug
    moving = pto.comprehension("def f(float(N) X) -> (Y) { Y(i) +=! X(i + k) where k in 0:3 }")
    for _ in range(3):
        assert moving(array(9)).shape == (7,)
        with pytest.raises(pto.ShapeError, match="the range of `i` is empty"):
            moving(array(2))


@pytest.mark.parametrize("text", ["Y(i) = X(i) * 2", "Y(i) +=! X(i + k) where k in 0:3"])
def test_calls_with_an_output_are_the_dispatchers(text: str) -> None:
    c = pto.comprehension(f"def f(float(N) X) -> (Y) {{ {text} }}")
    slow, seen = c.slow_path, []

    def noted(args: Any, kwargs: Any) -> Any:
        seen.append(args)
        return slow(args, kwargs)

    c.slow_path = noted
    for n in (9, 12, 9):
        x = array(n)
        wanted, y = c(x), np.zeros_like(c(x))
        c(x, out=y)
        y[...] = 0
        before = len(seen)
        assert c(x, out=y) is y and np.array_equal(y, wanted)
        if n == 9 and before < 5:
            assert len(seen) == before  # nothing of Python has run
            np.testing.assert_array_equal(c(x), wanted)
            assert len(seen) == before
    memory = array(12)
    wanted = c(memory[:9].copy())
    c(memory[:9], out=memory[2 : 2 + len(wanted)])
    np.testing.assert_array_equal(memory[2 : 2 + len(wanted)], wanted)
    with pytest.raises(pto.ShapeError, match="PTO-R056"):
        c(array(9), out=np.zeros(3, np.float32))
    assert c._writer.entries()
    pto.config.debug = not pto.config.debug  # forgets what was registered
    try:
        assert not c._writer.entries() and not c.entries()
    finally:
        pto.config.debug = not pto.config.debug


def test_updates_and_several_names_at_once() -> None:
    @pto.comprehension
    def normalised(X: pl.f32["N", "D"]):
        total[n] = pl.sum(X[n, d] * X[n, d])
        low, high = X[n, d] - 1.0, X[n, d] + 1.0
        Y[n, d] = low * high
        Y[n, d] /= total[n]
        Y[n, d] **= 2
        return Y

    x = array(4, 6)
    np.testing.assert_allclose(normalised(x), ((x - 1) * (x + 1) / (x * x).sum(1, keepdims=True)) ** 2, rtol=1e-4)
    with pytest.raises(pto.CompilationError, match="divide by the sizes"):

        @pto.comprehension
        def mean(X: pl.f32["N", "D"]):
            Y[n] = pl.mean(X[n, d])
            return Y


def test_local_tensors_that_nothing_reads_are_not_computed() -> None:
    unread = pto.comprehension("""def f(int32(N) X) -> (A) {
        T(i, j) = X(i) where j in 0:3
        A(i) = X(i)
        U(i, j) +=! T(i, j) * X(k)
        V(i, j, l) = U(i, j) where l in 0:2
    }""")
    x = np.arange(5, dtype=np.int32)
    np.testing.assert_array_equal(unread(x), x)
    assert not any(name in unread.loops() for name in ("T_", "U_", "V_", "T[", "U[", "V[", "T ="))
    updated = pto.comprehension("""def f(int32(N) X) -> (A) {
        T(i) = X(i)
        T(i) += X(i) * X(k)
        A(i) = T(i)
    }
    def g(int32(N) X) -> (A) {
        T = f(X)
        A = f(X)
    }""")
    np.testing.assert_array_equal(updated.f(x), x + x * x.sum())
    np.testing.assert_array_equal(updated.g(x), x + x * x.sum())


def test_an_argument_that_does_not_fit_is_shown_where_the_user_wrote_it() -> None:
    @pto.comprehension
    def added(A: pl.f32["M"], B: pl.f32["M"]):
        O[i] = A[i] + B[i]
        return O

    x = np.ones(3, np.float32)
    with pytest.raises(pto.ArgumentError) as caught:
        added(x, x.astype(np.float64))
    assert "argument `B` has dtype f64, f32 is wanted" in str(caught.value)
    assert "def added(A: pl.f32" in str(caught.value) and "loops of" not in str(caught.value)
    text = pto.comprehension("def added(float(M) A, float(M) B) -> (O) { O(i) = A(i) + B(i) }")
    with pytest.raises(pto.ArgumentError, match="<comprehension") as caught:
        text(x.astype(">f4"), x)
    assert "added(float(M) A, float(M) B)" in str(caught.value)


def every_other(x: pl.f32["N"], S: pl.constexpr):
    y[i] = x[S * i]
    return y


@pytest.mark.parametrize("source", ["def f(float(N) x, int32 S) -> (y) { y(i) = x(S * i) }", every_other])
@pytest.mark.parametrize("stride", [5, np.int64(5), np.int32(5), np.uint8(5), np.array(5)], ids=repr)
def test_a_stride_is_any_integer(source: Any, stride: Any) -> None:
    x = np.arange(12, dtype=np.float32)
    f = pto.comprehension(source)
    np.testing.assert_array_equal(f(x, stride), x[::5])
    assert str(f.infer(S=stride).ranges) == str(f.infer(S=5).ranges) and f.loops(S=stride) == f.loops(S=5)


@pytest.mark.parametrize(
    ("kind", "fitting", "others"),
    [("int32", (-(2**31), 2**31 - 1), (2**31, -(2**31) - 1, 2**40 + 3)), ("uint8", (0, 255), (-1, 256, 300, 2**63 - 1))],
)
def test_an_integer_that_its_type_does_not_hold_is_an_error(kind: str, fitting: Any, others: Any) -> None:
    """Also where the C dispatcher calls the kernel, as it does after the first calls."""
    x = np.ones(3, np.float32)
    for known in (False, True):
        f = pto.comprehension(f"def f(float(N) x, {kind} c) -> (y) {{ y(i) = x(i) * c }}")
        for c in fitting if known else ():
            np.testing.assert_array_equal(f(x, c), np.full(3, c, np.float32))
        for c in others:
            for value in (c, np.int64(c)):
                with pytest.raises(pto.ArgumentError, match=r"PTO-R055: .*argument `c` of `f` is outside of"):
                    f(x, value)
    c = fitting[1]
    np.testing.assert_array_equal(f(x, np.dtype(kind).type(c)), np.full(3, c, np.float32))
