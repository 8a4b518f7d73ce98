# SPDX-License-Identifier: MIT
"""Assertions: left out, or checked with `debug=True`, by the host code and by the cores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.targets.ascend.legality import violations
from pto_jit.targets.ascend.ordering import races

from .harness import Programs, kernels_of, needs_compiler


@pto.jit
def doubled(x: pl.Tensor, out: pl.Tensor, n: int):
    assert n > 0, "n is positive"
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            pl.assert_(r < n, "no row\nbehind n")
            t = pl.load(x, [r, 0], [8, 40])
            assert pl.max(t) < 10.0
            pl.store(t * 2, [r, 0], out)


@pto.jit
def stepwise(x: pl.Tensor, out: pl.Tensor, n: int):
    for r in pl.range(0, x.shape[0], 8):
        with pl.incore():
            pl.store(pl.load(x, [r, 0], [8, 40]) * 2, [r, 0], out)
        assert out[r, 0] < n


@pto.jit
def plain(x: pl.Tensor, out: pl.Tensor, n: int):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t = pl.load(x, [r, 0], [8, 40])
            pl.store(t * 2, [r, 0], out)


SPECS = (pto.spec((None, 40), pl.f32), pto.spec((None, 40), pl.f32), 3)


def made(fn: Any, debug: bool) -> Any:
    compiled = fn.compile(*SPECS, target="ascend", debug=debug)
    for kernel in kernels_of(compiled):
        assert races(kernel) == [] and violations(kernel) == []
    return compiled


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    compiled = {f"{fn.__name__}{'_debug' * debug}": made(fn, debug) for fn in (doubled, stepwise) for debug in (False, True)}
    return Programs(compiled, tmp_path_factory.mktemp("assertions"))


def given(rows: int = 24) -> dict[str, np.ndarray]:
    return {"x": np.arange(rows * 40, dtype="f4").reshape(rows, 40) / 100, "out": np.zeros((rows, 40), "f4")}


@needs_compiler
@pytest.mark.parametrize("name", ["doubled", "doubled_debug", "stepwise", "stepwise_debug"])
def test_programs_whose_assertions_hold_run(name: str, programs: Programs) -> None:
    arguments = given()
    programs.run(name, n=100, **arguments)
    np.testing.assert_array_equal(arguments["out"], arguments["x"] * 2)


@needs_compiler
def test_assertions_are_checked_with_debug_only(programs: Programs) -> None:
    wrong = given()
    wrong["x"][3, 7] = 11
    for name, n, arguments, message in (("doubled", 0, given(), "n is positive"), ("doubled", 10, given(), "trap"),
                                        ("doubled", 100, wrong, "trap"),
                                        ("stepwise", 7, given(), "assertion failed")):  # fmt: skip
        programs.run(name, n=n, **arguments)
        with pytest.raises(RuntimeError, match=message):
            programs.run(f"{name}_debug", n=n, **arguments)


def test_nothing_is_left_of_assertions_without_debug() -> None:
    def text(fn: Any, debug: bool) -> str:
        sources = made(fn, debug).sources
        lines = next(v for k, v in sources.items() if k.endswith(".cpp")).splitlines()
        return "\n".join(line for line in lines if "// test_" not in line).replace(fn.__name__, "kernel")

    assert text(doubled, False).split("#if")[1:] == text(plain, False).split("#if")[1:]
    assert "if (!(" in text(doubled, True) and "trap();  // no row behind n" in text(doubled, True)
