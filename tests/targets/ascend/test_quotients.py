# SPDX-License-Identifier: MIT
"""Tiles over numbers and numbers over tiles, whose instruction may not work where its operand lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.targets.ascend.form import Instruction, Tile
from pto_jit.targets.ascend.legality import violations

from .harness import Programs, blocks, check_interpreted, kernels_of, needs_compiler, ordered, written

F32 = pto.spec((None, None), pl.f32)
F16 = pto.spec((None, None), pl.f16)


@pto.jit
def inverses(x: pl.Tensor, out: pl.Tensor):
    for r in pl.range(0, x.shape[0], 8, parallel=True):
        pl.store(1.0 / pl.load(x, [r, 0], [8, 72]), [r, 0], out)


@pto.jit
def reciprocals(x: pl.Tensor, out: pl.Tensor):
    for r in pl.range(0, x.shape[0], 8, parallel=True):
        pl.store(pl.reciprocal(pl.load(x, [r, 0], [8, 72]) + 1.0), [r, 0], out)


@pto.jit
def numbers_over_tiles(x: pl.Tensor, out: pl.Tensor):
    for r in pl.range(0, x.shape[0], 8, parallel=True):
        pl.store(2.5 / (pl.load(x, [r, 0], [8, 72]) * 3.0), [r, 0], out)


@pto.jit
def thirds(x: pl.Tensor, out: pl.Tensor):
    """Whose last bit differs where a tile is multiplied by the reciprocal."""
    for r in pl.range(0, x.shape[0], 8, parallel=True):
        pl.store(pl.load(x, [r, 0], [8, 72]) / 3.0, [r, 0], out)


@pto.jit
def over_next_to_nothing(x: pl.Tensor, out: pl.Tensor):
    """Whose reciprocal is infinite."""
    for r in pl.range(0, x.shape[0], 8, parallel=True):
        pl.store(pl.load(x, [r, 0], [8, 72]) * 1e-20 / 1e-39, [r, 0], out)


@pto.jit
def again_and_again(x: pl.Tensor, out: pl.Tensor):
    """Variables of a loop, which have memory of their own."""
    for r in pl.range(0, x.shape[0], 8, parallel=True):
        t = pl.load(x, [r, 0], [8, 72])
        for _ in pl.range(3):
            t = 1.0 / t
            t = t / 3.0
        pl.store(t, [r, 0], out)


@pto.jit
def of_rows(x: pl.Tensor, out: pl.Tensor):
    for r in pl.range(0, x.shape[0], 8, parallel=True):
        t = pl.load(x, [r, 0], [8, 72])
        pl.store(t * (1.0 / pl.max(t, axis=1, keepdims=True)), [r, 0], out)


@pto.jit
def in_lines(x: pl.Tensor, out: pl.Tensor):
    for i in pl.range(x.shape[0], parallel=True):
        for j in pl.range(x.shape[1], parallel=True):
            out[i, j] = 1.0 / x[i, j]


CASES: dict[str, Any] = {
    fn.__name__: fn
    for fn in (inverses, reciprocals, numbers_over_tiles, thirds, over_next_to_nothing, again_and_again, of_rows, in_lines)
}


@pto.jit
def logistic(x: pl.Tensor, out: pl.Tensor):
    for r in pl.range(0, x.shape[0], 8, parallel=True):
        t = pl.load(x, [r, 0], [8, 72])
        pl.store(pl.silu(t), [r, 0], out)
        pl.store(pl.silu(t + 1.0), [r, 16], out)
        pl.store(pl.gelu(t, approximate="tanh"), [r, 32], out)
        pl.store(pl.sigmoid(t), [r, 48], out)
        pl.store(pl.sigmoid(t + 1.0), [r, 64], out)


@pto.jit
def of_one_row(x: pl.Tensor, out: pl.Tensor):
    """One element that may not be there: what is true of it is one bit, and words are computed of that."""
    for r in pl.range(8, parallel=True):
        t = pl.load(x, [r + 1, 60], [1, 1])
        pl.store(t // 0.25 + pl.pow(t, t), [r, 60], out)


CASES["of_one_row"] = of_one_row


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    cases = {name: (fn, (F32, F32)) for name, fn in CASES.items()}
    cases |= {"halves": (inverses, (F16, F16)), "logistic": (logistic, (pto.spec((None, 16), pl.f32), F32))}
    return ordered(cases, tmp_path_factory.mktemp("quotients"))


def numbers(dtype: Any) -> np.ndarray:
    return (np.random.default_rng(3).random((11, 61)) + 0.5).astype(dtype)


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_quotients_are_rounded_once(programs: Programs, name: str) -> None:
    check_interpreted(programs, CASES[name], name, {"x": numbers("f4")}, {"out": np.zeros((11, 61), "f4")})


@needs_compiler
def test_quotients_of_halves(programs: Programs) -> None:
    check_interpreted(programs, inverses, "halves", {"x": numbers("f2")}, {"out": np.zeros((11, 61), "f2")})


@needs_compiler
def test_where_a_quotient_is_one_of_infinities_it_is_the_limit(programs: Programs) -> None:
    x = np.array([[-np.inf, np.inf, np.nan, -0.0, -1e30, 1e30, -3e38, -90, -20, *np.linspace(-9, 9, 7)]], np.float32)
    wanted, out = np.zeros((1, 80), np.float32), np.zeros((1, 80), np.float32)
    logistic.interpret(x, wanted)
    programs.run("logistic", x=x, out=out)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-7)
    assert wanted[0, 0] == wanted[0, 16] == wanted[0, 32] == 0 and np.signbit(out[0, [0, 16, 32]]).all()


@pytest.mark.parametrize("name", ["inverses", "thirds", "again_and_again"])
def test_a_quotient_in_the_place_of_its_operand_is_found(name: str) -> None:
    (kernel,) = kernels_of(written(CASES[name], F32, F32))
    found = [n for b in blocks(kernel.body) for n in b if isinstance(n, Instruction) and n.name in ("TDIVS", "TDIV")]
    assert found and not violations(kernel)
    for quotient in (n for n in found if n.name == "TDIVS"):
        out, source = (a for a in quotient.args if isinstance(a, Tile))
        home = out.buffer.address
        out.buffer.address = source.buffer.address
        assert f"TDIVS: {out.name} lies where {source.name} does" in violations(kernel)
        out.buffer.address = home
