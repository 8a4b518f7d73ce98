# SPDX-License-Identifier: MIT
"""Shapes that are given in other ways, counted and asked for, compiled and interpreted, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

A = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
B = A > 0
LINE = A.reshape(-1)
TWO = np.array([[1, 5, 7], [0, 3, 2]], np.int32)
BYTES, SIGNED = (np.arange(64, dtype=t).reshape(4, 16) * 3 for t in (np.uint8, np.int8))


def corner(x):
    """Two of four rows, and six of eight columns, are there."""
    return pl.load(x, [4, 2], [4, 8])


def every(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: (f(a[0], b[0]), pl.maximum(a[1], b[1]))


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "reshape to -1": (lambda x: pl.reshape(x, (-1,)), lambda x: x.reshape(-1), (A,)),
    "reshape to -1 and 4": (lambda x: x.reshape(-1, 4), lambda x: x.reshape(-1, 4), (A,)),
    "reshape of all of a tensor": (
        lambda x: (pl.reshape(x[...], (4, 12)), x[:, :].reshape(8, -1)), lambda x: (x.reshape(4, 12), x.reshape(8, 6)), (A,)),
    "reshape of a tile to 16 and -1": (
        lambda x: pl.load(x, [0, 0], [6, 8]).reshape((16, -1)), lambda x: x.reshape(16, -1), (A,)),
    "reshape to a number of rows": (lambda x, n: pl.reshape(x, (n, -1)), lambda x, n: x.reshape(n, -1), (A, 3)),
    "valid_shape": (lambda x: pl.valid_shape(corner(x)), lambda x: (2, 6), (A,)),
    "size": (lambda x: (x.size, x[1:3].size, corner(x).size, len(corner(x))), lambda x: (48, 16, 32, 4), (A,)),
    "squeeze of all": (lambda x: pl.squeeze(pl.load(x, [1, 2], [1, 1])), lambda x: x[1, 2], (A,)),
    "squeeze of one": (lambda x: pl.squeeze(pl.load(x, [0, 2], [6, 1])), lambda x: x[:, 2], (A,)),
    "squeeze of two": (lambda x: pl.squeeze(pl.load(x, [1, 2], [1, 1]), (0, 1)), lambda x: x[1, 2], (A,)),
    "broadcast_to of a number": (lambda x: pl.broadcast_to(x[1, 2], (3, 2)), lambda x: np.full((3, 2), x[1, 2]), (A,)),
    "concat of one": (lambda x: pl.concat([pl.load(x, [0, 0], [6, 8])], axis=1), lambda x: x, (A,)),
    "full of a number": (lambda x: pl.full((3,), 2.5) + x[0, :3], lambda x: np.float32(2.5) + x[0, :3], (A,)),
    "extents of NumPy": (
        lambda x: pl.load(x, [np.int64(1), np.int32(2)], [np.int64(2), np.uint8(3)]), lambda x: x[1:3, 2:5], (A,)),
    "an index of two axes": (
        lambda x, i: pl.load(x, [0], [48])[pl.load(i, [0, 0], [2, 3])], lambda x, i: x[i], (LINE, TWO)),
    "an index of as many rows": (
        lambda x, i, n: pl.load(x, [0], [x.shape[0]])[pl.load(i, [0, 0], [n, i.shape[1]])],
        lambda x, i, n: x[i[:n]], (LINE, TWO, 2)),
    "reduce over all": (lambda x: pl.reduce(x, None, lambda a, b: a + b * 1.0), lambda x: x.sum(), (A,)),
    "reduce over two axes": (
        lambda x: pl.reduce(x, (1, 0), lambda a, b: pl.maximum(a, b) * 1.0, init=-5.0, keepdims=True),
        lambda x: x.max(keepdims=True), (A,)),
    "reduce of two": (
        lambda x: pl.reduce((x, pl.abs(x)), (0, 1), every(lambda a, b: a + b), init=(0.0, 0.0)),
        lambda x: (x.sum(), np.abs(x).max()), (A,)),
    "products with a vector": (
        lambda x: (pl.dot(x, pl.squeeze(x[0:1], 0)), pl.dot(x[0], x.T)), lambda x: (x @ x[0], x[0] @ x.T), (A,)),
    "a product of vectors": (lambda x: pl.dot(x[0], x[1]), lambda x: x[0] @ x[1], (A,)),
    "a product in another dtype": (
        lambda x: pl.dot(x, x.T, out_dtype=pl.f64), lambda x: (x @ x.T).astype(np.float64), (A,)),
    "a product of u8 and i8": (
        lambda x, y: pl.dot(x, y.T), lambda x, y: x.astype(np.int32) @ y.T.astype(np.int32), (BYTES, SIGNED)),
    "a product added to a vector": (
        lambda x: pl.dot(x, x[0], pl.full((6,), 2.0, pl.f32)), lambda x: x @ x[0] + 2.0, (A,)),
    "truth values": (
        lambda b: (pl.abs(b), pl.relu(b), pl.square(b), pl.maximum(b, ~b), pl.minimum(b, b), b + b, b * ~b),
        lambda b: (b, b, b, b | ~b, b, b, b & ~b), (B,)),
    "truth values in floats": (lambda b: (pl.exp(b), b // 1), lambda b: (np.exp(b), b // 1), (B,)),
    "powers": (
        lambda x: (x ** 1, x ** -1, (x * x) ** 0.5), lambda x: (x, 1 / x, np.sqrt(x * x)), (A,)),
    "powers of integers": (
        lambda n: (n ** 1, n ** 2, n ** 3, n ** 0, 2 ** n), lambda n: (n, n**2, n**3, 1, 2**n), (5,)),
    "functions of integers": (
        lambda n: (pl.fma(n, 2, 3), pl.clip(n, None, 3), pl.clip(n, 7, None), pl.floor(n), round(n)),
        lambda n: (13.0, 3, 7, 5, 5), (5,)),
    "bitcast to itself": (lambda x: pl.bitcast(x, pl.f32), lambda x: x, (A,)),
    "least and greatest": (
        lambda x: (max(v for v in [1, 2, 3]), min(v for v in (x[0, 0], x[0, 1])), max(x[0, 0], 1, x[1, 1])),
        lambda x: (3, min(x[0, 0], x[0, 1]), max(x[0, 0], 1, x[1, 1])), (A,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_compiled_and_interpreted_it_is_what_numpy_gives(name: str) -> None:
    function, reference, args = CASES[name]
    kernel = pto.jit(function)
    expected = reference(*args)
    for run in (kernel, kernel.interpret):
        found = run(*args)
        several = isinstance(expected, tuple)
        for got, wanted in zip(found if several else (found,), expected if several else (expected,), strict=True):
            assert np.shape(got) == np.shape(wanted)
            tolerance = 2e-3 if np.asarray(got).dtype == np.float16 else 1e-5
            np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(wanted, np.float64), tolerance, 1e-5)


ERRORS: dict[str, tuple[Callable[..., Any], str]] = {
    "two extents to compute": (lambda x: pl.reshape(x, (-1, -1)), "PTO-H022"),
    "elements that do not divide": (lambda x: pl.reshape(pl.load(x, [0, 0], [6, 8]), (5, -1)), "PTO-H020"),
    "a part of a tensor": (lambda x: pl.reshape(x[:, 1:], (-1,)), "PTO-H021"),
    "another number of elements": (lambda x: pl.reshape(pl.load(x, [0, 0], [6, 8]), (5, 5)), "PTO-H020"),
    "an order that is none": (lambda x: pl.transpose(x, (0, 0)), "PTO-H023"),
    "no tiles": (lambda x: pl.concat([]), "PTO-H024"),
    "tiles of different rank": (lambda x: pl.concat([x, x[0]]), "PTO-H025"),
    "parts that do not divide": (lambda x: pl.split(pl.load(x, [0, 0], [6, 8]), 3), "PTO-H026"),
    "squeeze of a long axis": (lambda x: pl.squeeze(pl.load(x, [0, 0], [6, 8]), 0), "PTO-H027"),
    "a step of 0": (lambda x: pl.arange(0, 4, 0), "PTO-H028"),
    "an axis twice": (lambda x: pl.sum(x, axis=(0, 0)), "PTO-H030"),
    "a new axis twice": (lambda x: pl.expand_dims(x, (0, 0)), "PTO-H030"),
    "two axes of an order": (lambda x: pl.argmax(x, axis=(0, 1)), "PTO-H031"),
    "too few initial values": (lambda x: pl.reduce((x, x), 0, lambda a, b: (a[0] + b[0], b[1]), init=(0.0,)), "PTO-H032"),
    "contracted extents": (
        lambda x: pl.dot(pl.load(x, [0, 0], [6, 8]), pl.load(x, [0, 0], [6, 8])), "PTO-H040"),
    "more than there are": (lambda x: pl.topk(pl.load(x, [0, 0], [6, 8]), 9), "PTO-H050"),
    "no bins": (lambda x: pl.histogram(x.to(pl.i32), 0), "PTO-H051"),
    "a tile to fill with": (lambda x: pl.full((2,), x), "PTO-T032"),
    "a tile to start from": (lambda x: pl.reduce(x, 0, lambda a, b: a + b * 1.0, init=x[0]), "PTO-T051"),
    "a map of nothing": (lambda x: pl.map(lambda a: a), "PTO-T052"),
    "differences of truth values": (lambda x: (x > 0.0) - (x > 1.0), "PTO-T023"),
    "a sign of truth values": (lambda x: pl.sign(x > 0.0), "PTO-T020"),
    "products of truth values": (lambda x: pl.dot(x > 0.0, x.T > 0.0), "PTO-T060"),
    "digits of a rounded number": (lambda x: round(x[0, 0], 2), "PTO-T073"),
    "the length of a number": (lambda x: len(x[0, 0]), "PTO-T071"),
    "a negative offset": (lambda x: pl.load(x, [-1, 0], [2, 2]), "PTO-H004"),
    "an offset too few": (lambda x: pl.load(x, [0], [2, 2]), "PTO-H003"),
    "a negative extent": (lambda x: pl.load(x, [0, 0], [-1, 2]), "PTO-H002"),
    "an extent of floats": (lambda x: pl.load(x, [0, 0], [2.0, 2]), "PTO-T030"),
    "a random tile of a float": (lambda x: pl.rand(x[0, 0], 0, (2,)), "PTO-T042"),
    "counters of floats": (lambda x: pl.rand(1, x), "PTO-T042"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_what_is_wrong_is_told_by_its_code(name: str) -> None:
    function, code = ERRORS[name]
    with pytest.raises(pto.CompilationError, match=code):
        pto.jit(function)(A)
