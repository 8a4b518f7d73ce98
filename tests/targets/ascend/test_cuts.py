# SPDX-License-Identifier: MIT
"""What is computed of whole tensors in groups, by way of memory: elements that change places, several axes."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, kernels_of, needs_compiler, ordered, written

FLAT = pto.spec((None, None), pl.f32)
LINE = pto.spec((None,), pl.f32)


@pto.jit
def joined(x, y, z):
    z[...] = pl.exp(pl.concat([x + 1.0, y], axis=0)) * 0.5


@pto.jit
def beside(x, y, z):
    t = pl.concat([x, y], axis=1)
    z[...] = t - pl.max(t, axis=1, keepdims=True)


@pto.jit
def rolled(x, y, z):
    z[...] = pl.concat([x[:, 1:], x[:, 0][:, None]], axis=1) * y


@pto.jit
def turned(x, y, z):
    z[...] = pl.transpose(x * 2.0) + y


@pto.jit
def parts(x, y, z):
    z[...] = (pl.maximum(x, 0.5))[2:, 1:] - y


@pto.jit
def flattened(x, y, z):
    count = x.shape[0] * x.shape[1]
    z[...] = pl.reshape(x * 2.0, (count,)) + pl.reshape(y, (count,))


@pto.jit
def both_ways(x, y, z):
    z[...] = pl.cumsum(x, axis=0) + pl.cumsum(y, axis=1)


@pto.jit
def outer(x, y, z):
    z[...] = pl.max(x, axis=0) * pl.sum(y, axis=1, keepdims=True)


@pto.jit
def deviations(x, y, z):
    z[...] = x - pl.mean(pl.sort(y), axis=0)


@pto.jit
def stacked(x, y, z):
    t = pl.stack([x * 2.0, y], axis=1)
    z[...] = pl.sum(t, axis=1) - t[:, 0]


@pto.jit
def in_place(x, y, z):
    """The tensor that is stored into is read before."""
    z[...] = z + pl.concat([z[1:] * x[1:], y[:1]], axis=0)


@pto.jit
def upside_down(x, y, z):
    z[...] = pl.flip(x, axis=0) * 2.0 + pl.flip(y - 1.0, axis=0)


@pto.jit
def backwards(x, y, z):
    z[...] = pl.where(pl.flip(x > 0.0, axis=1), pl.flip(y, axis=1), y)


@pto.jit
def flipped_in_place(x, y, z):
    z[...] = pl.flip(z, axis=0) + pl.flip(x, axis=1)


def shapes(name: str, n: int, m: int) -> tuple[tuple[int, ...], ...]:
    """Of x, y and z."""
    return {
        "joined": ((n, m), (n + 1, m), (2 * n + 1, m)), "beside": ((n, m), (n, m + 3), (n, 2 * m + 3)),
        "turned": ((n, m), (m, n), (m, n)), "parts": ((n + 2, m + 1), (n, m), (n, m)),
        "flattened": ((n, m), (n, m), (n * m,)),
    }.get(name, ((n, m),) * 3)  # fmt: skip


FUNCTIONS = (joined, beside, rolled, turned, parts, flattened, both_ways, outer, deviations, stacked, in_place, upside_down,
             backwards, flipped_in_place)
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    fn.__name__: (fn, (FLAT, FLAT, LINE if fn is flattened else FLAT)) for fn in FUNCTIONS
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("cuts"))


@needs_compiler
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("sides", [(2, 1), (5, 7), (40, 70), (9, 600)])
def test_they_give_the_numbers_of_the_interpreter(programs: Programs, name: str, sides: tuple[int, int]) -> None:
    rng = np.random.default_rng(sum(sides))
    x, y, z = (rng.standard_normal(s, np.float32) for s in shapes(name, *sides))
    close = partial(np.testing.assert_allclose, rtol=2e-5, atol=1e-4)
    check_interpreted(programs, CASES[name][0], name, {"x": x, "y": y}, {"z": z}, close)


@pytest.mark.parametrize("name", CASES)
def test_all_cores_take_part(name: str) -> None:
    fn, specs = CASES[name]
    assert not any(form.alone for form in kernels_of(written(fn, *specs)))


@pto.jit
def tiles(x, y):
    """Of constant extents, inside of a loop, 16 rows or fewer of other types."""
    with pl.incore():
        for i in pl.range(0, x.shape[0], 16, parallel=True):
            t = pl.load(x, [i, 0], [16, 40])
            both = pl.flip(t, axis=1) + pl.flip(t, axis=0)
            pl.store(both + pl.flip(t.to(pl.i32), axis=1).to(pl.f32), [i, 0], y)


@pto.jit
def cut_rows(x, y):
    """A tile of which only some is there, and sums of what that is reversed."""
    y[...] = pl.sum(pl.flip(x[:3, :64], axis=0), axis=0)


@pto.jit
def cut_columns(x, y):
    y[...] = pl.sum(pl.flip(x[:3, :64], axis=1), axis=0)


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_reversed_tile_is_as_large_as_what_is_there(dtype: type, tmp_path: Path) -> None:
    cases = (cut_rows, cut_columns)
    x = np.arange(66).reshape(2, 33).astype(dtype)
    programs = ordered({fn.__name__: (fn, (x, x[0])) for fn in cases}, tmp_path)
    for fn in cases:
        check_interpreted(programs, fn, fn.__name__, {"x": x}, {"y": np.zeros(33, dtype)})


@pto.jit
def lines(x, y):
    with pl.incore():
        y[...] = pl.flip(pl.arange(x.shape[0], dtype=pl.i32), axis=0).to(pl.f32) + pl.flip(x, axis=0)


@needs_compiler
def test_tiles_are_reversed_on_chip(tmp_path: Path) -> None:
    cases = {"tiles": (tiles, (pto.spec((None, 40), pl.f32),) * 2), "lines": (lines, (LINE, LINE))}
    programs = ordered(cases, tmp_path)
    for name, shape in (("tiles", (16, 40)), ("tiles", (43, 40)), ("lines", (5,)), ("lines", (1000,))):
        x = np.random.default_rng(1).standard_normal(shape, np.float32) * 9
        check_interpreted(programs, cases[name][0], name, {"x": x}, {"y": np.zeros_like(x)})


@needs_compiler
def test_iterations_use_the_same_memory(tmp_path: Path) -> None:
    """Of tensors of the program's own there are at most 64."""

    @pto.jit
    def turning(x, y, n):
        for _ in pl.range(n):
            y[...] = pl.concat([y[1:], y[0][None, :]], axis=0) + x

    @pto.jit
    def growing(x, y, n):
        for k in pl.range(n):
            t = pl.zeros((x.shape[0] + k, x.shape[1]), pl.f32)
            with pl.incore():
                t[k : x.shape[0]] = x[k:]
            with pl.incore():
                y[...] += t[: x.shape[0]]

    programs = ordered({fn.__name__: (fn, (FLAT, FLAT, 1)) for fn in (turning, growing)}, tmp_path)
    for fn in (turning, growing):
        x, y = np.ones((5, 7), np.float32), np.arange(35, dtype=np.float32).reshape(5, 7)
        wanted = y.copy()
        fn.interpret(x, wanted, 100)
        programs.run(fn.__name__, 0, x=x, y=y, n=100)
        np.testing.assert_array_equal(y, wanted)


def test_the_host_computes_nothing_that_is_not_needed() -> None:
    """An extent that a kernel was given, and did not need."""

    @pto.jit
    def repeated(x, y, z):
        some = pl.where(x[1:, :] > 2.0, y[:, 1], 0.0)
        z[:, :-1] = pl.sum(pl.broadcast_to(some, (z.shape[0], y.shape[1] - 1, y.shape[0])), axis=2)

    text = written(repeated, *(FLAT,) * 3).sources["repeated_orchestration.c"]
    made = re.findall(r"^ *(?:const int64_t |void \*)(\w+) =", text, re.MULTILINE)
    assert made and not [name for name in made if len(re.findall(rf"\b{name}\b", text)) < 2]


@needs_compiler
def test_tiles_that_do_not_fit_are_named(programs: Programs) -> None:
    x, y, z = (np.zeros(s, np.float32) for s in ((4, 5), (3, 6), (7, 5)))
    with pytest.raises(RuntimeError, match="differ along axis 1"):
        programs.run("joined", 0, x=x, y=y, z=z)
