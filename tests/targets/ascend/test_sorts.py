# SPDX-License-Identifier: MIT
"""`sort`, `argsort` and `topk`: written programs run on the CPU, against the interpreter."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import TargetError
from pto_jit.targets.ascend.form import Instruction, Tile
from pto_jit.targets.ascend.legality import violations
from pto_jit.targets.ascend.ordering import races

from .harness import Programs, blocks, check_interpreted, kernels_of, mutants, needs_compiler, ordered, written

WIDE = 200


@pto.jit
def blocks_of_rows(x: pl.Tensor, up: pl.Tensor, places: pl.Tensor, top: pl.Tensor, at: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t = pl.load(x, [r, 0], [8, WIDE])
            pl.store(pl.sort(t), [r, 0], up)
            pl.store(pl.argsort(t, descending=True), [r, 0], places)
            values, indices = pl.topk(t, 5)
            pl.store(values, [r, 0], top)
            pl.store(indices, [r, 0], at)


@pto.jit
def single_rows(x: pl.Tensor, down: pl.Tensor, places: pl.Tensor, top: pl.Tensor):
    """Of a run-time length, at most as long as fits."""
    with pl.incore():
        for r in pl.range(x.shape[0], parallel=True):
            down[r, :] = pl.sort(x[r, :], descending=True)
            places[r, :] = pl.argsort(x[r, :])
            top[r, :] = pl.topk(x[r, :], 1)[1]


@pto.jit
def small(x: pl.Tensor, out: pl.Tensor, places: pl.Tensor):
    """Rows that are taken in blocks."""
    for r in pl.range(x.shape[0], parallel=True):
        row = pl.load(x, [r, 0], [1, 40])
        pl.store(pl.sort(row), [r, 0], out)
        pl.store(pl.argsort(row, descending=True), [r, 0], places)


@pto.jit
def odd(x: pl.Tensor, up: pl.Tensor, places: pl.Tensor, top: pl.Tensor):
    """Rows that end within a block of 32 bytes."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 4, parallel=True):
            t = pl.load(x, [r, 0], [4, 33])
            pl.store(pl.sort(t), [r, 0], up)
            pl.store(pl.argsort(t, descending=True), [r, 0], places)
            pl.store(pl.topk(t, 3)[0], [r, 0], top)


@pto.jit
def columns(x: pl.Tensor, out: pl.Tensor, places: pl.Tensor):
    with pl.incore():
        t = pl.load(x, [0, 0], [8, 1])
        pl.store(pl.sort(t), [0, 0], out)
        pl.store(pl.argsort(t), [0, 0], places)


@pto.jit
def first(x: pl.Tensor, top: pl.Tensor, places: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            values, indices = pl.topk(pl.load(x, [r, 0], [8, 40]), 1)
            pl.store(values, [r, 0], top)
            pl.store(indices, [r, 0], places)


def m(columns: int | None, dtype: Any = pl.f32) -> Any:
    return pto.spec((None, columns), dtype)


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "blocks_of_rows": (blocks_of_rows, (m(WIDE), m(WIDE), m(WIDE, pl.i32), m(5), m(5, pl.i32))),
    "single_rows": (single_rows, (m(None), m(None), m(None, pl.i32), m(1, pl.i32))),
    "long_rows": (single_rows, (m(2200), m(2200), m(2200, pl.i32), m(1, pl.i32))),
    "small_f16": (small, (m(40, pl.f16), m(40, pl.f16), m(40, pl.i32))),
    "small_bf16": (small, (m(40, pl.bf16), m(40, pl.bf16), m(40, pl.i32))),
    "small_i16": (small, (m(40, pl.i16), m(40, pl.i16), m(40, pl.i32))),
    "small_i32": (small, (m(40, pl.i32),) * 3),
    "blocks_i32": (blocks_of_rows, (m(WIDE, pl.i32),) * 3 + (m(5, pl.i32),) * 2),
    "odd": (odd, (m(33), m(33), m(33, pl.i32), m(3))),
    "odd_i32": (odd, (m(33, pl.i32),) * 3 + (m(3, pl.i32),)),
    "first": (first, (m(40), m(1), m(1, pl.i32))),
    "first_f16": (first, (m(40, pl.f16), m(1, pl.f16), m(1, pl.i32))),
    "first_i32": (first, (m(40, pl.i32), m(1, pl.i32), m(1, pl.i32))),
    "columns": (columns, (m(1), m(1), m(1, pl.i32))),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("ascend"))


def special(rows: int, columns: int) -> np.ndarray:
    """Few different numbers, zeros of both signs, and rows with infinities and NaNs."""
    x = np.random.default_rng(columns).integers(-9, 9, (rows, columns)).astype(np.float32)
    if rows > 6 and columns > 11:
        x[2, [5, 11]], x[2, [3, 9]], x[2, 1] = np.nan, np.inf, -np.inf
        x[3, 7:11] = np.nan
        x[4], x[5] = -np.inf, 0
        x[5, ::2] = -0.0
        x[6] = np.nan
    return x


def check(programs: Programs, name: str, x: np.ndarray, **outputs: np.ndarray) -> None:
    """Signs of zeros, too."""

    def same(a: np.ndarray, b: np.ndarray, err_msg: str) -> None:
        a, b = a.astype(np.float64), b.astype(np.float64)
        np.testing.assert_array_equal(a, b, err_msg=err_msg)
        np.testing.assert_array_equal(np.signbit(a), np.signbit(b), err_msg=err_msg)

    check_interpreted(programs, CASES[name][0], name, {"x": x}, outputs, same)


@needs_compiler
@pytest.mark.parametrize("rows", [13, 1])
def test_tiles_are_sorted_row_by_row(programs: Programs, rows: int) -> None:
    x = special(rows, WIDE)
    check(programs, "blocks_of_rows", x, up=np.zeros_like(x), places=np.zeros((rows, WIDE), np.int32),
          top=np.zeros((rows, 5), np.float32), at=np.zeros((rows, 5), np.int32))  # fmt: skip


@needs_compiler
@pytest.mark.parametrize(("name", "length"), [("single_rows", 1), ("single_rows", 32), ("single_rows", 37),
                                              ("single_rows", 300), ("long_rows", 2200)])  # fmt: skip
def test_rows_of_any_length(programs: Programs, name: str, length: int) -> None:
    """Runs that are left over are copied, or merged as lists of two, three or four."""
    x = special(8, length)
    check(programs, name, x, down=np.zeros_like(x), places=np.zeros((8, length), np.int32), top=np.zeros((8, 1), np.int32))


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_rows_that_end_within_a_block(programs: Programs, dtype: Any) -> None:
    """All keys are larger than what memory held, or smaller."""
    random = np.random.default_rng(7)
    for sign in (1, -1):
        x = (sign * random.integers(1, 1000, (11, 33))).astype(dtype)
        outputs = {"up": np.zeros_like(x), "places": np.zeros((11, 33), np.int32), "top": np.zeros((11, 3), dtype)}
        check(programs, "odd" if dtype == np.float32 else "odd_i32", x, **outputs)


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int16])
def test_types_whose_elements_f32_holds(programs: Programs, dtype: Any) -> None:
    x = special(19, 40) if dtype != np.int16 else np.random.default_rng(0).integers(-(2**15), 2**15, (19, 40))
    x = x.astype(dtype)
    name = f"small_{'i16' if dtype == np.int16 else 'f16' if dtype == np.float16 else 'bf16'}"
    check(programs, name, x, out=np.zeros_like(x), places=np.zeros((19, 40), np.int32))


@needs_compiler
@pytest.mark.parametrize("name", ["small_i32", "blocks_i32"])
def test_integers_are_sorted_by_halves(programs: Programs, name: str) -> None:
    """Whose upper halves are equal, or whose lower ones; of both signs; and what f32 does not hold."""
    random = np.random.default_rng(3)
    width = 40 if name == "small_i32" else WIDE
    x = random.integers(-(2**31), 2**31, (19, width)).astype(np.int32)
    x[1] = random.integers(-9, 9, width)
    x[2] = 7 + 65536 * random.integers(-9, 9, width)
    x[3] = 2**24 + random.integers(0, 4, width)
    x[4, :6] = -(2**31), 2**31 - 1, -1, 0, -65536, 65535
    if name == "small_i32":
        check(programs, name, x, out=np.zeros_like(x), places=np.zeros_like(x))
    else:
        five = np.zeros((19, 5), np.int32)
        check(programs, name, x, up=np.zeros_like(x), places=np.zeros_like(x), top=five, at=five.copy())


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_the_largest_of_each_row(programs: Programs, dtype: Any) -> None:
    x = special(19, 40)
    if dtype == np.int32:
        x = np.random.default_rng(0).integers(-(2**31), 2**31, (19, 40))
        x[5] = -(2**31)
    x = x.astype(dtype)
    name = {np.float32: "first", np.float16: "first_f16", np.int32: "first_i32"}[dtype]
    check(programs, name, x, top=np.ones((19, 1), dtype), places=np.ones((19, 1), np.int32))


@needs_compiler
def test_rows_of_one_element(programs: Programs) -> None:
    x = np.array([[3], [1], [2]], np.float32)
    check(programs, "columns", x, out=np.zeros_like(x), places=np.ones((3, 1), np.int32))


def test_without_a_flag_or_barrier_a_sort_is_not_ordered() -> None:
    """But for two barriers: in each row the scalar unit waits for the vector core anyway, to hear of NaNs."""
    (kernel,) = kernels_of(written(*_flat("small_f16")))
    needless = [what for what in mutants(kernel) if not races(kernel, first=True)]
    assert len(needless) <= 2 and all("Barrier" in what for what in needless)


def _flat(name: str) -> tuple[Any, ...]:
    fn, specs = CASES[name]
    return fn, *specs


def test_what_sorts_may_not_be_given() -> None:
    (kernel,) = kernels_of(written(*_flat("long_rows")))
    given = {n.name: n for block in blocks(kernel.body) for n in block if isinstance(n, Instruction)}
    assert {"TSORT32", "TMRGSORT", "TMRGSORT_2", "TGATHER", "TODD"} <= set(given) and violations(kernel) == []
    for name in ("TSORT32", "TMRGSORT", "TMRGSORT_2", "TODD"):
        tile = given[name].args[0]
        assert isinstance(tile, Tile)
        tile.columns += 64
        assert any(name in text for text in violations(kernel)), name
        tile.columns -= 64


def test_rows_that_are_too_long_are_refused() -> None:
    with pytest.raises(TargetError) as caught:
        written(single_rows, m(9000), m(9000), m(9000, pl.i32), m(1, pl.i32))
    assert "of rows of 9000 elements" in str(caught.value) and "help: " in str(caught.value)
