# SPDX-License-Identifier: MIT
"""Products of lists: the cells of a map as rows of blocks, for the cube core; products of inputs before their nest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from pto_jit import ascend_kernel
from pto_jit.ir.text import to_text
from pto_jit.targets.ascend.program import compile_module
from tests.fractal.compile import test_blocks, test_hoist

from .harness import SEEDS, kernels_of, needs_compiler, ordered, written
from .test_lists import flat, given_to


def backwards(x: Any, w: Any) -> Any:
    """Rows that are gathered."""
    return ft.map(lambda xs: ft.map(lambda e: e[0] @ w + e[1], ft.zip(ft.reverse(xs), xs)), x)


def chosen(x: Any, w: Any) -> Any:
    """Weights that the outer loop chooses."""
    return ft.map(lambda p: ft.map(lambda e: e @ p[1], p[0]), ft.zip(x, w))


def case(name: str) -> tuple[Any, list[Any], list[Any]]:
    """A program, its arguments, and what it is compiled for: matrices have constant extents."""
    if name == "chosen":
        weights = ft.from_flat(np.stack([test_hoist.matrix(k) for k in range(4)]))
        given: list[Any] = [test_hoist.lists(2, 70, 0, 1), weights]
        return chosen, given, given
    program = {"decayed": test_hoist.decayed, "projected": test_blocks.projected, "backwards": backwards}[name]
    given = [test_hoist.lists(5, 0, 70, 1), test_hoist.matrix(0)] + [test_hoist.matrix(1, 1)] * (name == "decayed")
    return program, given, [given[0], *(pto.spec(w.shape, pl.f32) for w in given[1:])]


def reasons(compiled: Any, kind: str) -> list[str]:
    return [d.reason for d in compiled.decisions if d.kind == kind]


@needs_compiler
def test_products_of_lists_are_those_of_the_cube_core(tmp_path: Path) -> None:
    names = ("decayed", "projected", "backwards", "chosen")
    cases = {name: case(name) for name in names}
    programs = ordered({name: (pto.jit(program), kinds) for name, (program, _, kinds) in cases.items()}, tmp_path)
    for name, (program, given, _) in cases.items():
        for seed in SEEDS:
            found: list[Any] = []
            programs.run(name, seed, results=found, **given_to(program, given))
            for result, want in zip(found, flat(program(*given)), strict=True):
                np.testing.assert_allclose(programs.taken(result, want.ndim, want.dtype), want, atol=2e-5)


@pytest.mark.parametrize("name", ["decayed", "projected"])
def test_cells_of_a_map_with_products_are_rows(name: str) -> None:
    program, _, kinds = case(name)
    compiled = written(pto.jit(program), *kinds)
    assert reasons(compiled, "schedule")[0].startswith(test_blocks.AS_ROWS)
    assert [k.partner is not None for k in kernels_of(compiled)].count(True) == 1
    hoisted = ["`dot`, `add`, `tanh` of inputs is computed before the nest: rows of products"] * (name == "decayed")
    assert [r[: len(h)] for r, h in zip(reasons(compiled, "hoist"), hoisted, strict=True)] == hoisted


def test_where_rows_of_blocks_are_refused_cells_run_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    program, _, kinds = case("projected")

    def refused(module: Any, **options: Any) -> Any:
        if "smin 64, " in to_text(module):
            raise pto.TargetError("too many rows", code="PTO-X211", hint="none")
        return compile_module(module, **options)

    monkeypatch.setattr(ascend_kernel, "compile_module", refused)
    (plan,) = reasons(written(pto.jit(program), *kinds), "schedule")
    assert plan.startswith("sequential: no loop carries a state") and ": PTO-X211: too many rows" in plan


@pto.jit
def shifted(x: pl.Tensor, w: pl.Tensor, out: pl.Tensor, by: int):
    """Of the rows of a tile, which both vector cores of a group have half of, those that lie in `out` are stored."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 32, parallel=True):
            t = pl.load(x, [r, 0], [32, 48])
            pl.store(pl.exp(pl.dot(t, pl.load(w, [0, 0], [48, 32])) * 0.01), [r + by, 0], out)


@needs_compiler
def test_rows_that_are_stored_in_part_are_those_of_each_core(tmp_path: Path) -> None:
    cases = {  # the rows of `x` and of `out`, and where those of `x` begin in it
        "some": (70, 75, 3), "less": (96, 70, 3), "few": (64, 40, 0),
    }  # fmt: skip
    fixed = (pto.spec((64, 48), pl.f32), pto.spec((48, 32), pl.f32), pto.spec((40, 32), pl.f32), 0)
    some = (pto.spec((None, 48), pl.f32), pto.spec((48, 32), pl.f32), pto.spec((None, 32), pl.f32), 3)
    kinds = {name: fixed if name == "few" else some for name in cases}
    programs = ordered({name: (shifted, kinds[name]) for name in cases}, tmp_path)
    random = np.random.default_rng(0)
    for name, (rows, lines, by) in cases.items():
        x, w = (random.standard_normal(s).astype(np.float32) for s in ((rows, 48), (48, 32)))
        out = np.full((lines, 32), 7, np.float32)
        want = out.copy()
        want[by : by + rows] = np.exp(x @ w * 0.01)[: lines - by]
        programs.run(name, 0, x=x, w=w, out=out, by=by)
        np.testing.assert_allclose(out, want, rtol=1e-4)
