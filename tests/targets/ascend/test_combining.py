# SPDX-License-Identifier: MIT
"""`pl.associative_scan` and `pl.reduce` by functions of the program: written programs run on the CPU, against the
interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, kernels_of, mutants, needs_compiler, ordered, races, written


def gated(p, q):  # type: ignore[no-untyped-def]
    """A linear recurrence."""
    return p[0] * q[0], q[0] * p[1] + q[1]


def moments(p, q):  # type: ignore[no-untyped-def]
    """Mean, sum of squared differences, and count."""
    count = p[2] + q[2]
    more = (q[0] - p[0]) * q[2] / count
    return p[0] + more, p[1] + q[1] + (q[0] - p[0]) * more * p[2], count


def turning(p, q):  # type: ignore[no-untyped-def]
    """Results that are operands; what two halves were is told by a branch."""
    if q[1] > 0:
        first = q[0]
    else:
        first = p[0]
    return first, pl.maximum(p[1], q[1])


def tile_scans(shape: tuple[int, int], axis: int, reverse: bool) -> Any:
    @pto.jit
    def kernel(a: pl.Tensor, b: pl.Tensor, one: pl.Tensor, two: pl.Tensor, three: pl.Tensor):
        for i in pl.range(0, a.shape[0], shape[0], parallel=True):
            t, u = pl.load(a, [i, 0], shape), pl.load(b, [i, 0], shape)
            pl.store(pl.associative_scan((t, u), axis, gated, reverse=reverse)[1], [i, 0], one)
            pl.store(pl.associative_scan((t, u), axis, turning, reverse=reverse)[0], [i, 0], two)
            pl.store(pl.associative_scan(t, axis, lambda p, q: q, reverse=reverse), [i, 0], three)

    return kernel


def line_scans(length: int, reverse: bool) -> Any:
    @pto.jit
    def kernel(a: pl.Tensor, b: pl.Tensor, one: pl.Tensor, two: pl.Tensor):
        for i in pl.range(a.shape[0], parallel=True):
            t, u = pl.load(a, [i, 0], [1, length]), pl.load(b, [i, 0], [1, length])
            pl.store(pl.associative_scan((t, u), 1, gated, reverse=reverse)[1], [i, 0], one)
            n, m = pl.round(u * 4).to(pl.i32), pl.arange(length)[None, :]
            last = pl.associative_scan((n, m), 1, lambda p, q: (pl.maximum(p[0], q[0]), p[1] + q[1]), reverse=reverse)
            pl.store(last[0] + last[1], [i, 0], two)

    return kernel


def sums_of_lines(length: int, reverse: bool) -> Any:
    @pto.jit
    def kernel(n: pl.Tensor, out: pl.Tensor, products: pl.Tensor):
        for i in pl.range(n.shape[0], parallel=True):
            t = pl.load(n, [i, 0], [1, length])
            pl.store(pl.cumsum(t, axis=1, reverse=reverse), [i, 0], out)
            pl.store(pl.cumprod(t, axis=1, reverse=reverse), [i, 0], products)

    return kernel


def folds(shape: tuple[int, int]) -> Any:
    @pto.jit
    def kernel(a: pl.Tensor, s: float, rows: pl.Tensor, columns: pl.Tensor, kept: pl.Tensor):
        for i in pl.range(0, a.shape[0], shape[0], parallel=True):
            t = pl.load(a, [i, 0], shape)
            mean, m2, _ = pl.reduce((t, t * 0.0, t * 0.0 + 1.0), 1, moments, keepdims=True)
            pl.store(pl.concat([mean, m2], axis=1), [i, 0], rows)
            pl.store(pl.reduce((t, t + 1), 0, gated, (1.0, 0.5), keepdims=True)[1], [i // shape[0], 0], columns)
            pl.store(pl.reduce(t, 1, lambda p, q: q if p > s else pl.minimum(p, q), s), [i], kept)

    return kernel


def line_folds(length: int) -> Any:
    @pto.jit
    def kernel(a: pl.Tensor, out: pl.Tensor):
        for i in pl.range(a.shape[0], parallel=True):
            t = pl.load(a, [i, 0], [1, length])
            mean, m2, n = pl.reduce((t, t * 0.0, t * 0.0 + 1.0), 1, moments)
            out[i, 0] = mean[0]
            out[i, 1] = pl.sqrt(m2[0] / n[0])
            both = pl.reduce(pl.reshape(t, [length]), 0, lambda p, q: pl.maximum(p, q))
            out[i, 2] = pl.exp(both)

    return kernel


def three_axes(axis: int, reverse: bool) -> Any:
    @pto.jit
    def kernel(a: pl.Tensor, b: pl.Tensor, scanned: pl.Tensor, summed: pl.Tensor, kept: pl.Tensor, folded: pl.Tensor):
        for _ in pl.range(1, parallel=True):
            t, u = pl.load(a, [0, 0, 0], THREE), pl.load(b, [0, 0, 0], THREE)
            pl.store(pl.associative_scan((t, u), axis, gated, reverse=reverse)[1], [0, 0, 0], scanned)
            pl.store(pl.cumsum(t, axis, reverse=reverse), [0, 0, 0], summed)
            pl.store(pl.reduce((t, u), axis, gated, keepdims=True)[1], [0, 0, 0], kept)
            pl.store(pl.reduce((t, u), axis, gated, (1.0, 0.5))[1], [0, 0], folded)

    return kernel


@pto.jit
def layers_in_order(a: pl.Tensor, out: pl.Tensor, values: pl.Tensor, places: pl.Tensor):
    for _ in pl.range(1, parallel=True):
        t = pl.load(a, [0, 0, 0], THREE)
        pl.store(pl.sort(t), [0, 0, 0], out)
        largest, at = pl.topk(pl.map(lambda q: q if q > 0 else -q * 2, t), 3)
        pl.store(largest, [0, 0, 0], values)
        pl.store(at, [0, 0, 0], places)


@pto.jit
def whole_rows(a: pl.Tensor, b: pl.Tensor, out: pl.Tensor, largest: pl.Tensor):
    t, u = pl.load(a), pl.load(b)
    out[...] = pl.associative_scan((t, u), 1, gated)[1]
    largest[...] = pl.reduce(t, 1, lambda p, q: pl.maximum(p, q))


@pto.jit
def whole_columns(a: pl.Tensor, b: pl.Tensor, out: pl.Tensor):
    out[...] = pl.associative_scan((pl.load(a), pl.load(b)), 0, gated, reverse=True)[1]


@pto.jit
def whole_planes(x: pl.Tensor, out: pl.Tensor):
    out[:, :, :] = pl.associative_scan(x[:, :, :], 0, lambda p, q: pl.maximum(p, q)) + 1


THREE = (3, 8, 16)
SHAPES = ((16, 64), (5, 20), (1, 40), (24, 1))
LINES = (13, 300)
MATRIX, F = pto.spec((None, None), pl.f32), pl.f32
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {}
for rows, columns in SHAPES:
    matrix = pto.spec((None, None), F)
    for axis in (0, 1):
        for back in (False, True) if rows > 1 and columns > 1 else (True,):
            CASES[f"tile_{rows}_{columns}_{axis}_{back}"] = tile_scans((rows, columns), axis, back), (matrix,) * 5
    CASES[f"fold_{rows}_{columns}"] = folds((rows, columns)), (
        matrix, pto.spec((), F), pto.spec((None, 2), F), matrix, pto.spec((None,), F))  # fmt: skip
for length in LINES:
    for back in (False, True):
        CASES[f"line_{length}_{back}"] = line_scans(length, back), (matrix, matrix, matrix, pto.spec((None, None), pl.i32))
        CASES[f"sums_{length}_{back}"] = sums_of_lines(length, back), (pto.spec((None, None), pl.i32),) * 3
    CASES[f"line_fold_{length}"] = line_folds(length), (matrix, pto.spec((None, 3), F))
CASES["line_1024_exactly"] = line_scans(1024, True), (*(pto.spec((None, 1024), F),) * 3, pto.spec((None, 1024), pl.i32))
CASES["line_fold_exactly"] = line_folds(1024), (pto.spec((None, 1024), F), pto.spec((None, 3), F))
for axis in range(3):
    one = tuple(1 if k == axis else n for k, n in enumerate(THREE))
    two = tuple(n for k, n in enumerate(THREE) if k != axis)
    specs = (*(pto.spec(THREE, F),) * 4, pto.spec(one, F), pto.spec(two, F))
    CASES[f"three_{axis}"] = three_axes(axis, axis != 1), specs
CASES["in_order"] = layers_in_order, (*(pto.spec(THREE, F),) * 2, pto.spec((3, 8, 3), F), pto.spec((3, 8, 3), pl.i32))
CASES["whole_rows"] = whole_rows, (*(MATRIX,) * 3, pto.spec((None,), F))
CASES["whole_planes"] = whole_planes, (pto.spec((None, 6, 16), F),) * 2
CASES["whole_columns"] = whole_columns, (MATRIX,) * 3


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("combining"))


def close(mine: np.ndarray, wanted: np.ndarray, err_msg: str) -> None:
    np.testing.assert_allclose(mine, wanted, rtol=2e-5, atol=1e-4, err_msg=err_msg)


def _numbers(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.uniform(-1, 1, shape).astype(np.float32)


@needs_compiler
@pytest.mark.parametrize("name", [n for n in CASES if n.startswith("tile")])
@pytest.mark.parametrize("cut", [False, True])
def test_scans_of_tiles(programs: Programs, name: str, cut: bool) -> None:
    rows, columns = map(int, name.split("_")[1:3])
    shape = (rows + rows // 2, columns - columns // 3) if cut else (2 * rows, columns)
    rng = np.random.default_rng(1)
    inputs = {"a": _numbers(rng, shape), "b": _numbers(rng, shape)}
    outputs = {n: np.zeros(shape, np.float32) for n in ("one", "two", "three")}
    check_interpreted(programs, CASES[name][0], name, inputs, outputs, close)


@needs_compiler
@pytest.mark.parametrize("name", [n for n in CASES if n.startswith("fold")])
@pytest.mark.parametrize("cut", [False, True])
def test_folds_of_tiles(programs: Programs, name: str, cut: bool) -> None:
    rows, columns = map(int, name.split("_")[1:3])
    shape = (rows + rows // 2, columns - columns // 3) if cut else (2 * rows, columns)
    inputs = {"a": _numbers(np.random.default_rng(2), shape), "s": np.array(0.25, np.float32)}
    outputs = {"rows": np.zeros((shape[0], 2), np.float32), "columns": np.zeros((2, shape[1]), np.float32),
               "kept": np.zeros(shape[0], np.float32)}  # fmt: skip
    check_interpreted(programs, CASES[name][0], name, inputs, outputs, close)


@needs_compiler
@pytest.mark.parametrize("name", [n for n in CASES if n.startswith("line")])
def test_lines(programs: Programs, name: str) -> None:
    length = int(name.split("_")[1]) if name.split("_")[1].isdigit() else 0
    rng = np.random.default_rng(3)
    if "fold" in name:
        length = int(name.split("_")[2]) if name.split("_")[2].isdigit() else 1024
    for width in {length, 1024 if name.endswith("exactly") else max(1, length - 5)}:
        inputs = {"a": _numbers(rng, (2, width))}
        if "fold" in name:
            outputs = {"out": np.zeros((2, 3), np.float32)}
        else:
            inputs["b"] = _numbers(rng, (2, width))
            outputs = {"one": np.zeros((2, width), np.float32), "two": np.zeros((2, width), np.int32)}
        check_interpreted(programs, CASES[name][0], name, inputs, outputs, close)


@needs_compiler
@pytest.mark.parametrize("name", [n for n in CASES if n.startswith("sums")])
def test_sums_of_lines(programs: Programs, name: str) -> None:
    """Those of integers wrap."""
    length = int(name.split("_")[1])
    for width in (length, max(1, length - 5)):
        n = np.random.default_rng(4).integers(-(2**31), 2**31, (2, width)).astype(np.int32)
        check_interpreted(programs, CASES[name][0], name, {"n": n}, {k: np.zeros_like(n) for k in ("out", "products")})


@needs_compiler
@pytest.mark.parametrize("axis", range(3))
def test_tiles_of_three_axes(programs: Programs, axis: int) -> None:
    fn, specs = CASES[f"three_{axis}"]
    rng = np.random.default_rng(axis)
    inputs = {"a": _numbers(rng, THREE), "b": _numbers(rng, THREE)}
    names = ("scanned", "summed", "kept", "folded")
    outputs = {n: np.zeros(s.shape, np.float32) for n, s in zip(names, specs[2:], strict=True)}
    check_interpreted(programs, fn, f"three_{axis}", inputs, outputs, close)


@needs_compiler
def test_layers_in_order(programs: Programs) -> None:
    outputs = {"out": np.zeros(THREE, np.float32), "values": np.zeros((3, 8, 3), np.float32),
               "places": np.zeros((3, 8, 3), np.int32)}  # fmt: skip
    check_interpreted(programs, layers_in_order, "in_order", {"a": _numbers(np.random.default_rng(6), THREE)}, outputs)


@needs_compiler
@pytest.mark.parametrize("shape", [(3, 70), (20, 700), (200, 5)])
def test_whole_tensors(programs: Programs, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(7)
    inputs = {"a": _numbers(rng, shape), "b": _numbers(rng, shape)}
    for name in ("whole_rows", "whole_columns"):
        outputs = {"out": np.zeros(shape, np.float32)}
        if name == "whole_rows":
            outputs["largest"] = np.zeros(shape[0], np.float32)
        check_interpreted(programs, CASES[name][0], name, inputs, outputs, close)


@needs_compiler
@pytest.mark.parametrize("length", [5, 600])
def test_whole_tensors_of_three_axes(programs: Programs, length: int) -> None:
    x = _numbers(np.random.default_rng(8), (length, 6, 16))
    check_interpreted(programs, whole_planes, "whole_planes", {"x": x}, {"out": np.zeros_like(x)})


def test_each_flag_is_needed() -> None:
    (kernel,) = kernels_of(written(tile_scans((16, 16), 1, True), *(pto.spec((16, 16), F),) * 5))
    count = 0
    for what in mutants(kernel):
        count += 1
        assert races(kernel, first=True), what
    assert count > 3


def test_refused() -> None:
    @pto.jit
    def loops(a: pl.Tensor, out: pl.Tensor):
        for i in pl.range(a.shape[0], parallel=True):
            def slow(p, q):  # type: ignore[no-untyped-def]
                for _ in pl.range(a.shape[0]):
                    p = p + q
                return p

            pl.store(pl.reduce(pl.load(a, [i, 0], [1, 40]), 1, slow), [i], out)

    with pytest.raises(pto.TargetError, match="a for loop in a function that tiles are combined by"):
        written(loops, pto.spec((None, 40), F), pto.spec((None,), F))

    @pto.jit
    def wide(a: pl.Tensor, out: pl.Tensor):
        for i in pl.range(a.shape[0], parallel=True):
            pl.store(pl.associative_scan(pl.load(a, [i, 0], [1, 40]), 1, pl.maximum), [i, 0], out)

    with pytest.raises(pto.TargetError, match="tiles of f64"):
        written(wide, *(pto.spec((None, 40), pl.f64),) * 2)


@pto.jit
def halves(w: pl.Tensor, x: pl.Tensor, out: pl.Tensor, high: pl.Tensor, scanned: pl.Tensor):
    with pl.incore():
        pl.store(pl.reduce(pl.load(w), 0, pl.maximum, init=0.75, keepdims=True), [0], out)
        for i in pl.range(0, x.shape[0], 16, parallel=True):
            t = pl.load(x, [i, 0], [16, 32])
            pl.store(pl.reduce(t, 0, lambda p, q: pl.where(p > q, p, q), keepdims=True), [i // 16, 0], high)
            pl.store(pl.associative_scan(t, 0, pl.maximum), [i, 0], scanned)


@needs_compiler
@pytest.mark.parametrize("rows", [1, 7, 33])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_floats_of_16_bits_of_run_time_extents(tmp_path: Path, dtype: Any, rows: int) -> None:
    """What some elements are combined with and others keep is chosen from: no instruction does that with bf16."""
    kind = pto.spec((None,), dtype), pto.spec((None, 32), dtype)
    programs = ordered({"halves": (halves, (*kind, *kind, kind[1]))}, tmp_path)
    rng = np.random.default_rng(rows)
    inputs = {"w": _numbers(rng, (rows,)).astype(dtype), "x": _numbers(rng, (rows, 32)).astype(dtype)}
    outputs = {"out": np.zeros(1, dtype), "high": np.zeros((3, 32), dtype), "scanned": np.zeros((rows, 32), dtype)}
    check_interpreted(programs, halves, "halves", inputs, outputs)
