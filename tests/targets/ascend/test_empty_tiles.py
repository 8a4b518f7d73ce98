# SPDX-License-Identifier: MIT
"""Tiles without elements, which instructions do not take: the launch tells, or the core stops; stores are left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import TargetError

from .harness import SEEDS, Programs, needs_compiler, ordered, written


@pto.jit
def whole(x: pl.Tensor, out: pl.Tensor):
    pl.store(pl.load(x) + 1, [0, 0], out)


@pto.jit
def from_the_first_row(x: pl.Tensor, out: pl.Tensor):
    pl.store(pl.load(x, [0, 2], [16, 8]) + 1, [0, 0], out)


@pto.jit
def view_from_the_first_row(x: pl.Tensor, out: pl.Tensor):
    pl.store(pl.load(x[0:16, 2:10]) + 1, [0, 0], out)


@pto.jit
def view_behind_rows(x: pl.Tensor, out: pl.Tensor):
    pl.store(pl.load(x[20:36, 2:10]) + 1, [0, 0], out)


@pto.jit
def view_behind_columns(x: pl.Tensor, out: pl.Tensor):
    pl.store(pl.load(x[:, 20:28]) + 1, [0, 0], out)


@pto.jit
def sum_of_a_view(x: pl.Tensor, out: pl.Tensor):
    out[0, 0] = pl.sum(pl.load(x[0, 50:60]))


@pto.jit
def in_a_loop(x: pl.Tensor, out: pl.Tensor, n: int):
    """A load that leaves the loop."""
    for r in pl.range(0, n, 16, parallel=True):
        pl.store(pl.load(x, [0, 0], [16, 8]) + 1, [r, 0], out)


@pto.jit
def in_a_branch(x: pl.Tensor, out: pl.Tensor, n: int):
    if n > 0:
        pl.store(pl.load(x, [0, 0], [16, 8]) + 1, [0, 0], out)


@pto.jit
def least_of_two(x: pl.Tensor, out: pl.Tensor, n: int):
    for r in pl.range(0, 16, 16, parallel=True):
        pl.store(pl.load(x, [r, 0], [pl.minimum(n, 16), 8]) + 1, [r, 0], out)


@pto.jit
def stored(out: pl.Tensor):
    with pl.incore():
        pl.store(pl.full([16, 8], 3.0, pl.f32), [0, 0], out)


@pto.jit
def product(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor):
    pl.store(pl.load(x, [0, 0], [16, 16]) @ pl.load(y, [0, 0], [16, 16]), [0, 0], out)


F32 = pto.spec((None, None), pl.f32)
WHOLE: dict[str, tuple[Any, tuple[int, int], tuple[int, int]]] = {
    "from_the_first_row": (from_the_first_row, (16, 17), (0, 17)),
    "view_from_the_first_row": (view_from_the_first_row, (16, 17), (0, 17)),
    "view_behind_rows": (view_behind_rows, (30, 17), (10, 17)),
    "view_behind_columns": (view_behind_columns, (5, 30), (5, 17)),
    "sum_of_a_view": (sum_of_a_view, (1, 60), (1, 20)),
    "whole": (whole, (3, 4), (3, 0)),
}
"""With the shape of a tensor that there is something in, and of one where there is nothing."""
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    **{name: (fn, (F32, F32)) for name, (fn, _, _) in WHOLE.items()},
    **{fn.__name__: (fn, (F32, F32, 3)) for fn in (in_a_loop, in_a_branch, least_of_two)},
    "stored": (stored, (F32,)),
    "product": (product, (F32, F32, F32)),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("empty"))


@needs_compiler
@pytest.mark.parametrize("name", WHOLE)
def test_the_launch_tells_of_a_tile_without_elements(programs: Programs, name: str) -> None:
    fn, something, nothing = WHOLE[name]
    x, out = np.random.default_rng(2).standard_normal(something).astype(np.float32), np.zeros((40, 40), np.float32)
    wanted = out.copy()
    fn.interpret(x, wanted)
    programs.run(name, x=x, out=out)
    np.testing.assert_allclose(out, wanted, rtol=1e-6)
    x = np.ones(nothing, np.float32)
    if name in ("whole", "view_behind_columns"):  # which are divided: loops without iterations
        fn.interpret(x, wanted)
        programs.run(name, x=x, out=out)
        np.testing.assert_allclose(out, wanted, rtol=1e-6)
        return
    with pytest.raises(RuntimeError, match=r"is at most|no tile is without elements: 1 <= x"):
        programs.run(name, x=x, out=out)


@needs_compiler
@pytest.mark.parametrize("name", ["in_a_loop", "in_a_branch"])
def test_what_is_not_loaded_may_be_empty(programs: Programs, name: str) -> None:
    x, out = np.ones((0, 8), np.float32), np.zeros((16, 8), np.float32)
    if name == "in_a_branch":
        programs.run(name, x=x, out=out, n=0)
    with pytest.raises(RuntimeError, match=r"trap|without elements"):
        programs.run(name, x=x, out=out, n=1)
    programs.run(name, x=np.ones((1, 8), np.float32), out=out, n=1)
    np.testing.assert_array_equal(out[:1], 2)


@needs_compiler
def test_extents_of_nothing_stop_the_core(programs: Programs) -> None:
    x, out = np.ones((16, 8), np.float32), np.zeros((16, 8), np.float32)
    programs.run("least_of_two", x=x, out=out, n=1)
    np.testing.assert_array_equal(out[:, 0], [2.0, *[0.0] * 15])
    with pytest.raises(RuntimeError, match="trap"):
        programs.run("least_of_two", x=x, out=out, n=0)


@needs_compiler
@pytest.mark.parametrize("shape", [(0, 8), (20, 0), (3, 5)])
def test_what_has_no_place_is_not_stored(programs: Programs, shape: tuple[int, int]) -> None:
    for seed in SEEDS:
        out = np.zeros(shape, np.float32)
        programs.run("stored", seed, out=out)
        np.testing.assert_array_equal(out, np.full(shape, 3.0))


@needs_compiler
def test_operands_of_products_have_elements(programs: Programs) -> None:
    out = np.zeros((16, 16), np.float32)
    programs.run("product", x=np.ones((16, 3), np.float32), y=np.ones((3, 16), np.float32), out=out)
    np.testing.assert_array_equal(out, 3)
    with pytest.raises(RuntimeError, match="without elements"):
        programs.run("product", x=np.ones((16, 0), np.float32), y=np.ones((0, 16), np.float32), out=out)


@needs_compiler
def test_a_place_behind_a_tensor_of_known_extents_is_not_stored(tmp_path: Path) -> None:
    @pto.jit
    def behind(x, out):
        pl.store(pl.load(x) + 1.0, [1, 0], out)
        pl.store(pl.load(x) * 3.0, [0, 4], out)

    programs = ordered({"behind": (behind, (pto.spec((1, 4), pl.f32), pto.spec((1, 8), pl.f32)))}, tmp_path)
    x, out = np.arange(4, dtype=np.float32).reshape(1, 4), np.zeros((1, 8), np.float32)
    for seed in SEEDS:
        programs.run("behind", seed, x=x, out=out)
        np.testing.assert_array_equal(out, np.concatenate([np.zeros_like(x), x * 3], axis=1))


def test_a_load_of_nothing_is_refused() -> None:
    """Where all extents are constants."""
    with pytest.raises(TargetError, match="a load of a tile without elements"):
        written(from_the_first_row, pto.spec((0, 17), pl.f32), pto.spec((16, 8), pl.f32))


@pto.jit
def of_a_padded_load(x: pl.Tensor, out: pl.Tensor):
    pl.store(pl.load(x, [0, 0], [x.shape[0], 0], pad=0.0) + 1, [0, 0], out)


@pto.jit
def of_a_load(x: pl.Tensor, out: pl.Tensor):
    pl.store(pl.load(x, [0, 0], [16, 0]) + 1, [0, 0], out)


@pto.jit
def of_a_slice(x: pl.Tensor, out: pl.Tensor):
    pl.store(pl.load(x, [0, 0], [16, 8], pad=0.0)[0:16, 2:2] * 2, [0, 0], out)


@pytest.mark.parametrize("fn", [of_a_padded_load, of_a_load, of_a_slice])
def test_tiles_declared_without_elements_are_refused(fn: Any) -> None:
    with pytest.raises(TargetError, match=r"a (load of a )?tile without elements"):
        written(fn, pto.spec((None, None), pl.f32), pto.spec((None, None), pl.f32))
