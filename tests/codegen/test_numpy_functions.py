# SPDX-License-Identifier: MIT
"""NumPy's functions of run-time values: compiled, interpreted and eager they give what NumPy gives, in its dtype."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.error_pages import pages
from pto_jit.language import _numpy_calls
from pto_jit.language._numpy_meaning import COMPILED, LIKE, MEANING, METHODS, NEW

DTYPES = ("bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")
UFUNCS = [f for f in (*MEANING, *COMPILED) if isinstance(f, np.ufunc) and f is not np.matmul]
SHIFTS = (np.left_shift, np.right_shift)
W = np.random.default_rng(1).uniform(-3, 3, (5, 7)).astype(np.float32)
V = np.array([3, -1, 4, 1, -5, 9, 2], np.int32)


def _operands(fn: Any, dtype: str) -> list[np.ndarray]:
    rng = np.random.default_rng(len(fn.__name__))
    if dtype == "bool":
        operands = [rng.random(11) > 0.5 for _ in range(fn.nin)]
    elif dtype.startswith("float"):
        operands = [rng.uniform(-3, 3, 11).astype(dtype) for _ in range(fn.nin)]
    else:
        operands = [rng.integers(0 if dtype[0] == "u" else -9, 9, 11).astype(dtype) for _ in range(fn.nin)]
    if fn in SHIFTS or fn is np.power and not dtype.startswith("float"):
        operands[1] = np.abs(operands[1]) % 3
    return operands


def _same(got: Any, wanted: Any) -> None:
    pairs = zip(got, wanted, strict=True) if isinstance(wanted, tuple) else [(got, wanted)]
    for g, w in pairs:
        g, w = np.asarray(g), np.asarray(w)
        assert g.dtype == w.dtype and g.shape == w.shape
        bound = {"float16": 2e-3, "float32": 3e-6, "float64": 1e-13}.get(str(w.dtype), 0)
        np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=bound, atol=bound)


def _takes(fn: Any, operands: list[np.ndarray]) -> bool:
    try:
        fn(*operands)
    except TypeError:
        return False
    return not (fn in SHIFTS and operands[0].dtype == bool)  # the language's take integers


@pytest.mark.parametrize("fn", UFUNCS, ids=lambda f: f.__name__)
def test_functions_of_elements(fn: Any) -> None:
    kernel = pto.jit((lambda x: fn(x)) if fn.nin == 1 else (lambda x, y: fn(x, y)))
    tried = 0
    with np.errstate(all="ignore"):
        for dtype in DTYPES:
            operands = _operands(fn, dtype)
            if not _takes(fn, operands):
                continue
            tried += 1
            wanted = fn(*operands)
            if fn in (np.floor, np.ceil, np.trunc) and not dtype.startswith("float"):
                wanted = operands[0]  # since NumPy 2.1; before that a float
            for call in (kernel, kernel.interpret, lambda *loaded: fn(*map(pl.load, loaded))):
                _same(call(*operands), wanted)
    assert tried >= 2


@pytest.mark.parametrize("fn", UFUNCS, ids=lambda f: f.__name__)
def test_functions_of_numbers(fn: Any) -> None:
    def one(x, y):
        for i in range(len(x)):
            y[i] = fn(x[i])

    def two(x, z, y):
        for i in range(len(x)):
            y[i] = fn(x[i], z[i])

    for dtype in ("float32", "int32"):
        operands = _operands(fn, dtype)
        with np.errstate(all="ignore"):
            if not _takes(fn, operands) or fn.nout > 1:
                continue
            wanted = fn(*operands)
            got = np.empty_like(wanted)
            pto.jit(one if fn.nin == 1 else two)(*operands, got)
        _same(got, wanted)


def variance(x):
    return np.var(x), np.var(x, axis=0), np.var(x, axis=(0, 1), ddof=1), np.var(x, 1, keepdims=True, ddof=2)


def deviation(x):
    return np.std(x), np.std(x, axis=-1), np.std(x, 0, ddof=1)


def sums(x):
    return np.sum(x), np.sum(x, 0), np.sum(x, axis=(0, 1), keepdims=True), np.sum(x, 1, np.float64), np.prod(x, axis=1)


def means(x):
    return np.mean(x), np.mean(x, axis=1), np.mean(x, 0, np.float64), np.mean(x, keepdims=True)


def extremes(x):
    return np.max(x), np.min(x, axis=0), np.amax(x, 1), np.amin(x, keepdims=True), np.ptp(x), np.ptp(x, axis=1)


def places(x):
    return np.argmax(x), np.argmin(x, axis=1), np.argmax(x, axis=0, keepdims=True)


def truths(x):
    return np.any(x > 2), np.all(x > -4, axis=1), np.count_nonzero(x > 0), np.count_nonzero(x > 0, axis=0)


def norms(x):
    return np.linalg.norm(x), np.linalg.norm(x[0]), np.linalg.norm(x, axis=1, keepdims=True)


def scans(x):
    return np.cumsum(x), np.cumsum(x, axis=0), np.cumprod(x, 1), np.cumsum(x, 1, np.float64), np.cumsum(x[1])


def orders(x):
    return np.sort(x), np.sort(x, axis=0), np.sort(x, axis=None), np.argsort(x[0]), np.argsort(x, axis=0)


def choices(x):
    return np.where(x > 0, x, 0.1 * x), np.clip(x, -1, 1), np.clip(x, a_min=0, a_max=None), np.maximum(x, 0)


def shapes(x):
    return (np.reshape(x + 0, (7, 5)), np.transpose(x), np.flip(x, 0), np.flip(x), np.expand_dims(x, 1),
            np.squeeze(np.expand_dims(x, 0)), np.broadcast_to(x[0], (3, 7)))  # fmt: skip


def joined(x):
    return (np.concatenate((x, x)), np.concatenate([x, x], axis=1), np.concatenate((x, x), axis=None),
            np.stack((x[0], x[1])), np.stack([x, x], axis=-1))  # fmt: skip


def products(x):
    return np.dot(x, x.T), np.matmul(x.T, x), np.outer(x[0], x[1]), np.dot(x[0], x[1])


def like(x):
    a, b, c = np.zeros_like(x), np.ones_like(x, dtype=np.int32), np.full_like(x, 2.5)
    for i, row in enumerate(x):
        a[i] = np.cumsum(row)
    d = np.empty_like(a)
    d[...] = x
    return a, b, c, d


def new(x):
    n, m = x.shape
    a, b, c = np.zeros(n), np.ones((n, m), dtype=np.int32), np.empty((m,), np.float32)
    d, e = np.full((n, 2), 7), np.full(m, x[0, 0], np.float64)
    for i in range(n):
        a[i] = i
        b[i, 0] = 5
    c[...] = x[0]
    return a, b, c, d, e, np.arange(n), np.arange(1, n, 2), np.arange(n, dtype=np.float32)


def methods(x):
    return (x.std(), x.std(axis=1), x.var(0, ddof=1), x.cumsum(axis=1), x.cumprod(axis=0), x.clip(-1, 1), x.round(),
            x.dot(x.T), x[0].argsort(), x[:1].squeeze(), x.flatten(), (x * 2).std(axis=0), (x + 1).cumsum(axis=0),
            (x + 0).ravel(), (x + 1).clip(0, 2), (x[0] * 2).flatten())  # fmt: skip


def copies(x):
    a, b, c = x.copy(), np.copy(x[1:]), (x * 2).copy()
    a[0, 0] = 100.0
    b[...] = b * 2
    a[2:].fill(7)
    for i in range(2):
        row = x[i].copy()
        b[i] = row + 1
    return a, b, c


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def of_numbers(x):
    total = 0.0
    for i in range(4):
        total += np.sin(i * 0.5) + np.hypot(x[0, i], 3.0) + np.abs(x[1, i]) + np.fmod(x[0, i], 2)
    return total + np.sqrt(x.shape[0]) + np.copysign(1.0, x[0, 0])


def differences(x):
    return (np.diff(x), np.diff(x, axis=0), np.diff(x, 2), np.diff(x[0]), np.roll(x, 2), np.roll(x, -3, axis=1),
            np.roll(x[0], 9), np.roll(x * 2, 1, 0))  # fmt: skip


def diagonals(x):
    return (np.tril(x), np.triu(x, 1), np.tril(x * 2, -1), np.trace(x), np.trace(x, 2), np.diag(x), np.diag(x[0]))


def middles(x):
    return (np.median(x), np.median(x, axis=1), np.median(x, 0, keepdims=True), np.median(x[0, :4]),
            np.average(x), np.average(x, 0), np.average(x, 1, x[0] + 4), np.average(x, weights=x * x))  # fmt: skip


def other_axes(x):
    return (np.swapaxes(x, 0, 1), np.moveaxis(x, 0, -1), np.vstack((x[0], x[1])), np.vstack([x, x]),
            np.hstack((x[0], x[1])), np.hstack([x, x]), np.inner(x, x), np.inner(x[0], x[1]), np.vdot(x, x))  # fmt: skip


def without_nans(x):
    y = np.where(x > 2, np.nan, x)
    return np.nansum(y), np.nansum(y, axis=0), np.nanmean(y, axis=1, keepdims=True), np.median(y)


FUNCTIONS = [differences, diagonals, middles, other_axes, without_nans, variance, deviation, sums, means, extremes, places, truths, norms, scans, orders, choices, shapes, joined,
             products, like, new, methods, copies, softmax]  # fmt: skip


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_functions_of_arrays(fn: Callable[..., Any], layout: str) -> None:
    x = W if layout == "rows" else np.asfortranarray(W)
    wanted, kernel = fn(x), pto.jit(fn)
    for call in (kernel, kernel.interpret):
        got = call(x)
        for g, w in zip(got, wanted, strict=True) if isinstance(wanted, tuple) else [(got, wanted)]:
            assert np.shape(g) == np.shape(w)
            kinds = {np.asarray(v).dtype for v in (g, w)}
            assert np.isscalar(g) or len(kinds) == 1 or kinds == {np.dtype("i4"), np.dtype("i8")}  # places are i32
            np.testing.assert_allclose(np.asarray(g, np.float64), np.asarray(w, np.float64), rtol=2e-5, atol=2e-5)


def held(x):
    y = np.zeros((5, 7), np.float32)
    y[...] = x
    total = np.empty(5)
    for i, row in enumerate(x):
        total[i] = row.mean()
    return y, total


def counted(x):
    bins = np.zeros(8, np.int64)
    for row in x:
        for v in row:
            bins[int(v) + 3] += 1
    return bins, np.arange(7) * x[0], np.full((5,), 2.0) + x[:, 0], np.ones((5, 1), np.int32) * x


def two_kinds(x):
    weights, sums = np.zeros(4), np.zeros(3)
    for k in range(4):
        weights[k] = k * 0.5
    for i in range(3):
        for k in range(4):
            sums[i] += weights[k] * x[i, k]
    return (sums,)


def views(x):
    y = np.ones((2, 3, 7))
    first = y[0]
    first[1] = x[0]
    y[1][2, 1:] += x[1, 1:]
    return (y,)


@pytest.mark.parametrize("fn", [held, counted, two_kinds, views], ids=lambda f: f.__name__)
def test_arrays_that_meet_run_time_values_are_tensors(fn: Callable[..., Any]) -> None:
    for call in (pto.jit(fn), pto.jit(fn).interpret):
        for g, w in zip(call(W), fn(W), strict=True):
            assert g.dtype == w.dtype
            np.testing.assert_allclose(g, w, rtol=1e-5)


def test_others_are_made_while_compiling() -> None:
    @pto.jit
    def kernel(x):
        extents = np.zeros(2, int)
        extents[0] = 3
        return pl.zeros([int(extents[0])], pl.f32) + x[0, 0], np.zeros(2)

    made, plain = kernel(W)
    assert made.shape == (3,) and plain.tolist() == [0, 0]


def test_what_a_program_says_while_it_is_compiled_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    def kernel(x):
        pl.static_print("begins")
        y, z = np.zeros(2), np.zeros(3)
        y[0] = x[0, 0]
        pl.static_print("goes on")
        z[0] = y[0]
        pl.static_print("ends")
        return z

    assert pto.jit(kernel)(W)[0] == W[0, 0]
    assert capsys.readouterr().out.split("\n") == ["begins", "goes on", "ends", ""]


def known_and_not(x):
    row = np.zeros(7)
    for _ in pl.static_range(int(row[1])):
        x[0] = 1
    row[0] = x[0, 1]
    x[0] = row


def misspelled_behind(x):
    y = np.zeros(3)
    y[0] = x[0, 0]
    return pl.maximun(y, 0)


@pytest.mark.parametrize(("body", "code"), [(known_and_not, "PTO-N067"), (misspelled_behind, "PTO-N017")])
def test_the_error_is_the_one_that_counts(body: Any, code: str) -> None:
    with pytest.raises(pto.CompilationError) as caught:
        pto.jit(body).compile(W)
    assert caught.value.code == code


BESIDE_CONSTANTS: list[Any] = [
    lambda x: np.hypot(x, 3.0), lambda x: np.copysign(x, -1.0), lambda x: np.fmod(x, 2), lambda x: np.round(x),
    lambda x: np.add(x, 1.5), lambda x: np.clip(x, 0.5, 2.5), lambda x: np.where(x > 1, x, 0.5),
    lambda x: np.var(x, axis=0), lambda x: np.var(x[:0], axis=0, ddof=1),
]  # fmt: skip


@pytest.mark.parametrize("body", BESIDE_CONSTANTS)
def test_dtypes_beside_constants_are_numpys(body: Any) -> None:
    kernel = pto.jit(body)
    for dtype in DTYPES:
        x = (np.arange(12).reshape(3, 4) % 5).astype(dtype)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = body(x)
            for call in (kernel, kernel.interpret):
                _same(call(x), wanted)


def test_functions_of_numbers_and_constants() -> None:
    for call in (pto.jit(of_numbers), pto.jit(of_numbers).interpret):
        assert call(W) == pytest.approx(of_numbers(W), rel=1e-5)


def test_partial_tiles_stay_partial() -> None:
    @pto.jit
    def kernel(x, y):
        with pl.incore():
            for r in pl.range(0, x.shape[0], 4):
                t = pl.load(x, [r, 0], [4, 8])
                e = np.exp(t - np.max(t, axis=1, keepdims=True))
                pl.store(e / np.sum(e, axis=1, keepdims=True), [r, 0], y)

    for call in (kernel, kernel.interpret):
        y = np.zeros_like(W)
        call(W, y)
        np.testing.assert_allclose(y, softmax(W), rtol=1e-5)


REFUSED: list[Any] = [
    (lambda x: np.sum(x, out=x), "PTO-T019", "`sum` has no parameter `out`"),
    (lambda x: np.exp(x, where=x > 0), "PTO-T029", "unexpected keyword argument 'where'"),
    (lambda x: np.round(x, 2), "PTO-T019", "`round`"),
    (lambda x: np.add.reduce(x), "PTO-T016", "`add.reduce` of a run-time value"),
    (lambda x: np.add.at(x, 0, x[1, 1]), "PTO-T016", "`add.at` of a run-time value"),
    (lambda x: np.percentile(x, 30), "PTO-T016", "`percentile` of a run-time value"),
    (lambda x: np.poly1d([1, 2])(x), "PTO-T016", "`poly1d` of a run-time value"),
]


@pytest.mark.parametrize(("body", "code", "message"), REFUSED)
def test_what_the_language_lacks_is_refused(body: Any, code: str, message: str) -> None:
    with pytest.raises(pto.CompilationError, match=message) as caught:
        pto.jit(body)(W.copy())
    assert caught.value.code == code


def test_the_page_of_the_error_lists_them() -> None:
    listed = pages()["PTO-T016"].text.split("are i32):\n`")[1].split("`")[0].split()
    functions = {**MEANING, **COMPILED, **NEW, **LIKE}
    names = ["linalg.norm" if f is np.linalg.norm else f.__name__ for f in functions]
    assert sorted(listed) == sorted([*names, "array", "copy"])


def test_tensors_have_the_methods_of_tiles() -> None:
    assert {*_numpy_calls.METHODS, "copy"} == METHODS.keys()
