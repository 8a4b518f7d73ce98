# SPDX-License-Identifier: MIT
"""`pl.gather` and `x[index]` of tiles: written programs run on the CPU, against the interpreter."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import TargetError
from pto_jit.targets.ascend.form import Instruction
from pto_jit.targets.ascend.ordering import races

from .harness import Programs, blocks, check_interpreted, kernels_of, mutants, needs_compiler, ordered, written


@pto.jit
def along_rows(x: pl.Tensor, index: pl.Tensor, out: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            out[r : r + 8, :] = pl.gather(pl.load(x, [r, 0], [8, 40]), pl.load(index, [r, 0], [8, 24]), 1)


@pto.jit
def along_columns(x: pl.Tensor, index: pl.Tensor, out: pl.Tensor):
    with pl.incore():
        t = pl.load(x, [0, 0], [8, 24])
        for r in pl.range(0, index.shape[0], 16, parallel=True):
            out[r : r + 16, :] = pl.gather(t, pl.load(index, [r, 0], [16, 24]), 0) * 2


@pto.jit
def largest(x: pl.Tensor, index: pl.Tensor, out: pl.Tensor):
    """One element of each row, and one row of a table for all."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t = pl.load(x, [r, 0], [8, 40])
            at = pl.argmax(t, axis=1, keepdims=True)
            pl.store(pl.gather(t, at, 1), [r, 0], out)


@pto.jit
def table(x: pl.Tensor, index: pl.Tensor, out: pl.Tensor):
    """Of one axis; more than one instruction picks at once."""
    with pl.incore():
        t = pl.load(x)
        pl.store(pl.gather(t, pl.load(index), 0) + 1, [0], out)


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {}
for _dtype in (pl.f32, pl.i32, pl.f16, pl.bf16, pl.i16):
    CASES[f"rows_{_dtype}"] = (along_rows, (pto.spec((None, 40), _dtype), pto.spec((None, 24), pl.i32),
                                            pto.spec((None, 24), _dtype)))  # fmt: skip
CASES["columns"] = (along_columns, (pto.spec((8, 24), pl.f32), pto.spec((None, 24), pl.i32),
                                    pto.spec((None, 24), pl.f32)))  # fmt: skip
CASES["largest"] = (largest, (pto.spec((None, 40), pl.f32), pto.spec((1,), pl.i32), pto.spec((None, 1), pl.f32)))
CASES["short"] = (table, (pto.spec((300,), pl.f32), pto.spec((37,), pl.i32), pto.spec((37,), pl.f32)))
CASES["table"] = (table, (pto.spec((300,), pl.f32), pto.spec((5000,), pl.i32), pto.spec((5000,), pl.f32)))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("gathers"))


def given(name: str, rows: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    rng = np.random.default_rng(rows)
    dtype = {"bf16": ml_dtypes.bfloat16}.get(name[5:], {"f16": "f2", "i32": "i4", "i16": "i2"}.get(name[5:], "f4"))
    if name.startswith("rows"):
        x = (rng.standard_normal((rows, 40)) * 100).astype(dtype)
        return {"x": x, "index": rng.integers(0, 40, (rows, 24)).astype("i4")}, {"out": np.zeros((rows, 24), dtype)}
    if name == "columns":
        return ({"x": rng.standard_normal((8, 24)).astype("f4"), "index": rng.integers(0, 8, (rows, 24)).astype("i4")},
                {"out": np.zeros((rows, 24), "f4")})  # fmt: skip
    if name == "largest":
        x = rng.standard_normal((rows, 40)).astype("f4")
        return {"x": x, "index": np.zeros(1, "i4")}, {"out": np.zeros((rows, 1), "f4")}
    count = 37 if name == "short" else 5000
    return ({"x": rng.standard_normal(300).astype("f4"), "index": rng.integers(0, 300, count).astype("i4")},
            {"out": np.zeros(count, "f4")})  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("rows", [8, 21])
@pytest.mark.parametrize("name", CASES)
def test_elements_are_picked(name: str, rows: int, programs: Programs) -> None:
    inputs, outputs = given(name, rows)
    check_interpreted(programs, CASES[name][0], name, inputs, outputs)


@needs_compiler
def test_places_outside_read_elements_of_the_tile(programs: Programs) -> None:
    inputs, outputs = given("table", 8)
    inputs["index"][:3] = [-7, 10**6, 299]
    programs.run("table", **inputs, **outputs)
    np.testing.assert_array_equal(outputs["out"][:3], inputs["x"][[0, -1, -1]] + 1)


@needs_compiler
def test_lines_and_indices_of_different_numbers_are_errors(programs: Programs) -> None:
    inputs, outputs = given("rows_f32", 21)
    with pytest.raises(RuntimeError):
        programs.run("rows_f32", x=inputs["x"], index=inputs["index"][:20].copy(), **outputs)


def test_a_long_tile_is_picked_in_parts_and_every_flag_is_needed() -> None:
    (kernel,) = kernels_of(written(table, *CASES["table"][1]))
    picks = [n for block in blocks(kernel.body) for n in block if isinstance(n, Instruction) and n.name == "TGATHER"]
    assert len(picks) == 2
    for mutant in mutants(kernel):
        assert races(kernel), mutant


@pytest.mark.parametrize(("shape", "dtype", "axis", "message"), [((2, 8, 8), pl.f32, 0, "of a tile of 3 axes")])
def test_what_is_not_picked_says_so(shape: tuple[int, ...], dtype: Any, axis: int, message: str) -> None:
    @pto.jit
    def kernel(x, index, out):
        with pl.incore():
            pl.store(pl.gather(pl.load(x), pl.load(index), axis), [0] * len(shape), out)

    with pytest.raises(TargetError, match=message):
        written(kernel, pto.spec(shape, dtype), pto.spec(shape, pl.i32), pto.spec(shape, dtype))
