# SPDX-License-Identifier: MIT
"""Loops in loops and branches, loops that are left early, recurrences, sums of tiles and of chunks: run on the CPU, against
the interpreter."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import TargetError
from pto_jit.targets.ascend.ordering import races

from .harness import Programs, check_interpreted, kernels_of, mutants, needs_compiler, ordered, written

VECTOR, MATRIX = pto.spec((None,), pl.f32), pto.spec((None, None), pl.f32)


@pto.jit
def decayed(x: pl.Tensor, out: pl.Tensor, counts: pl.Tensor):
    """Each number from the one before, and how often it was above a limit so far."""
    s, n = 0.25, 0
    for i in pl.range(x.shape[0]):
        if x[i] < -2.0:
            break
        s = s * 0.5 + x[i]
        out[i] = s
        if s < 0.5:
            continue
        n += 1
        counts[i] = n


@pto.jit
def filled(x: pl.Tensor, out: pl.Tensor):
    with pl.incore():
        for i in pl.range(2, x.shape[0]):
            out[i] = out[i - 1] * 0.5 + out[i - 2] * 0.25 + x[i]


@pto.jit
def below(x: pl.Tensor, out: pl.Tensor):
    """Tiles at and before the diagonal, as a causal kernel takes them."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 16, parallel=True):
            t = pl.zeros([16, 16], pl.f32)
            for c in pl.range(0, x.shape[1], 16):
                if c > r:
                    continue
                if c == 16:
                    t = t - 1.0
                    continue
                t += pl.load(x, [r, c], [16, 16], pad=0.0)
            pl.store(t, [r, 0], out)


@pto.jit
def until(x: pl.Tensor, out: pl.Tensor):
    """Tiles up to one with a large number."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 16, parallel=True):
            t = pl.zeros([16, 16], pl.f32)
            for c in pl.range(0, x.shape[1], 16):
                u = pl.load(x, [r, c], [16, 16], pad=0.0)
                if pl.max(u) > 3.0:
                    if c > 16:
                        break
                    else:
                        u = u - 1.0
                        pl.store(u, [r, 16], out)
                        continue
                t = t + u
            pl.store(t, [r, 0], out)


@pto.jit
def columns(x: pl.Tensor, out: pl.Tensor):
    """Chunks of a sum, inside a loop that is dealt to the cores already."""
    with pl.incore():
        for c in pl.range(0, x.shape[1], 16, parallel=True):
            total = pl.zeros([1, 16], pl.f32)
            for r in pl.range(0, x.shape[0], 8, parallel=True, chunk=2):
                total += pl.sum(pl.load(x, [r, c], [8, 16]), axis=0, keepdims=True)
            pl.store(total, [0, c], out)


@pto.jit
def added(x: pl.Tensor, out: pl.Tensor):
    """Tiles that are added up, of as many rows as there are."""
    with pl.incore():
        for c in pl.range(0, x.shape[1], 16, parallel=True):
            total = pl.zeros([8, 16], pl.f32)
            for r in pl.range(0, x.shape[0], 8):
                total += pl.load(x, [r, c], [8, 16])
            pl.store(total * 2.0, [0, c], out)


@pto.jit
def updated(x: pl.Tensor, sums: pl.Tensor, out: pl.Tensor):
    """Elements that are read and written, by each core those of its rows: one again and again, and each the next."""
    with pl.incore():
        for r in pl.range(x.shape[0], parallel=True):
            for i in pl.range(x.shape[1]):
                sums[r, 0] += x[r, i]
            for i in pl.range(1, x.shape[1]):
                out[r, i] = out[r, i - 1] * 0.5 + x[r, i]


@pto.jit
def again(x: pl.Tensor, out: pl.Tensor):
    """The iterations of a parallel loop are independent, but not of those of its next run."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            for _ in pl.range(3):
                for c in pl.range(0, x.shape[1], 16, parallel=True):
                    pl.store(pl.load(x, [r, c], [8, 16]) + pl.load(out, [r, c], [8, 16]), [r, c], out)


@pto.jit
def perhaps(x: pl.Tensor, out: pl.Tensor, n: int):
    """Loops in a branch around which there is none."""
    with pl.incore():
        if n > 2:
            for r in pl.range(0, x.shape[0], 8):
                pl.store(pl.load(x, [r, 0], [8, 16]) * 2.0, [r, 0], out)
            for r in pl.range(0, 16, 8):
                pl.store(pl.load(x, [r, 0], [8, 16]) + 2.0, [r, 0], out)
        pl.store(pl.load(x, [8, 0], [8, 16]), [8, 0], out)


@pto.jit
def shifted(x: pl.Tensor, out: pl.Tensor, n: int):
    with pl.incore():
        for r in pl.range(0, out.shape[0], 8, parallel=True):
            pl.store(pl.load(x, [r + n, 0], [8, 16]) * 2.0, [r, 0], out)


@pto.jit
def left(x: pl.Tensor, out: pl.Tensor, counts: pl.Tensor, n: int):
    """While loops that are left: one that never ends otherwise, and one whose condition is made of tiles."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t = pl.load(x, [r, 0], [8, 16])
            k = 0
            while True:
                k += 1
                if k == 3:
                    continue
                if k > n:
                    break
                t = t * 2.0 + 1.0
            while pl.max(t) < 1000.0 and k < 20:
                k += 2
                if k > 12:
                    t = t - 1.0
                    break
                t = t * 1.5 + k
            pl.store(t, [r, 0], out)
            counts[r // 8] = k


@pto.jit
def second(x: pl.Tensor, out: pl.Tensor):
    with pl.incore():
        pl.store(pl.load(x, [8, 0], [8, 16]) * 2.0, [0, 0], out)


@pto.jit
def next_rows(x: pl.Tensor, out: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, out.shape[0], 8, parallel=True):
            pl.store(x[r + 8 : r + 16, :16] * 2.0, [r, 0], out)


@pto.jit
def less(x: pl.Tensor, w: pl.Tensor, out: pl.Tensor, n: int):
    """A line and a tile of one element, which is repeated along it."""
    with pl.incore():
        for r in pl.range(0, w.shape[0]):
            t, one = pl.load(x, [0], [20]), pl.load(w, [r], [1])
            for _ in pl.range(n):
                one = pl.maximum(one, 4.0)
                t = t - one
            pl.store(t * one, [r * 20], out)


@pto.jit
def behind(x: pl.Tensor, out: pl.Tensor, n: int):
    """Whole tiles, stored at places that may be behind the end."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            pl.store(pl.full([8, 16], 2.0, pl.f32), [r + n, 0], out)
            pl.store(pl.load(x, [r, 0], [1, 16]) * 2.0, [r + n, 16], out)


@pto.jit
def on_the_host(x, n):
    """Loops of the host that are left and go on."""
    i = 0
    while True:
        i += 1
        if i == 2:
            continue
        if i >= n:
            break
        with pl.incore():
            pl.store(pl.load(x, [4 * i, 0], [4, 16]) * 2.0 + 1.0, [4 * i, 0], x)
    while i < n + 2:
        with pl.incore():
            pl.store(pl.load(x, [i, 0], [1, 16]) - 1.0, [i, 0], x)
        i += 1


@pto.jit
def left_early(x: pl.Tensor, out: pl.Tensor):
    """Numbers that say that an iteration was left, which nobody asks."""
    for i in pl.range(0, x.shape[0], 16, parallel=True):
        with pl.incore():
            if i > 16:
                continue
            pl.store(pl.load(x, [i, 0], [16, 64]) + 1.0, [i, 0], out)


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "second": (second, (MATRIX, MATRIX)),
    "next_rows": (next_rows, (MATRIX, MATRIX)),
    "less": (less, (VECTOR, VECTOR, VECTOR, 3)),
    "left": (left, (MATRIX, MATRIX, pto.spec((None,), pl.i32), 3)),
    "decayed": (decayed, (VECTOR, VECTOR, pto.spec((None,), pl.i32))),
    "filled": (filled, (VECTOR, VECTOR)),
    "below": (below, (MATRIX, MATRIX)),
    "until": (until, (MATRIX, pto.spec((None, 32), pl.f32))),
    "columns": (columns, (MATRIX, MATRIX)),
    "updated": (updated, (MATRIX, MATRIX, MATRIX)),
    "again": (again, (MATRIX, MATRIX)),
    "perhaps": (perhaps, (MATRIX, MATRIX, 3)),
    "shifted": (shifted, (MATRIX, MATRIX, 3)),
    "behind": (behind, (MATRIX, MATRIX, 3)),
    "added": (added, (MATRIX, MATRIX)),
    "on_the_host": (on_the_host, (MATRIX, 3)),
    "left_early": (left_early, (MATRIX, MATRIX)),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("ascend"))


def check(programs: Programs, name: str, inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray]) -> None:
    check_interpreted(programs, CASES[name][0], name, inputs, outputs, partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5))


@needs_compiler
@pytest.mark.parametrize("last", [40, 90])
def test_recurrences_are_the_work_of_one_scalar_unit(programs: Programs, last: int) -> None:
    x = np.random.default_rng(last).standard_normal(90).astype(np.float32).clip(-1.9, 2)
    x[last:] = -3
    check(programs, "decayed", {"x": x}, {"out": np.full_like(x, 7), "counts": np.zeros(90, np.int32)})
    check(programs, "filled", {"x": x}, {"out": np.ones_like(x)})
    assert "decayed_incore_0(1, stream" in written(*CASES["decayed"][:1], *CASES["decayed"][1]).sources["decayed_orchestration.c"]


@needs_compiler
@pytest.mark.parametrize("shape", [(40, 50), (16, 16), (64, 64)])
def test_loops_over_tiles_that_are_left_early(programs: Programs, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32).clip(-2, 2)
    x[3, 5] = 4
    if shape[1] > 36:
        x[20, 36] = 5
    for name in ("below", "until"):
        check(programs, name, {"x": x}, {"out": np.zeros((shape[0], 32), np.float32)})


@needs_compiler
def test_numbers_that_are_assigned_and_not_read_are_left_out(programs: Programs) -> None:
    x = np.random.default_rng(0).standard_normal((40, 64)).astype(np.float32)
    check(programs, "left_early", {"x": x}, {"out": np.zeros_like(x)})
    program = written(*CASES["left_early"][:1], *CASES["left_early"][1])
    text = program.sources["left_early_incore_0.cpp"]
    assert "= true;" not in text and "if (!(" in text


@needs_compiler
@pytest.mark.parametrize("n", [0, 3])
def test_a_tile_of_one_element_is_repeated(programs: Programs, n: int) -> None:
    """The launch refused it, as tiles of different lengths."""
    x, w = np.arange(33, dtype=np.float32), np.arange(-7, 6, dtype=np.float32)
    out, wanted = np.zeros((2, 13 * 20), np.float32)
    less.interpret(x, w, wanted, n)
    programs.run("less", n, x=x, w=w, out=out, n=n)
    np.testing.assert_array_equal(out, wanted)


@needs_compiler
@pytest.mark.parametrize("n", [0, 2, 5, 11])
def test_while_loops_that_are_left(programs: Programs, n: int) -> None:
    x = np.random.default_rng(n).standard_normal((43, 16)).astype(np.float32) * np.logspace(-1, 3, 43, dtype=np.float32)[:, None]
    outputs = {"out": np.zeros_like(x), "counts": np.zeros(6, np.int32)}
    wanted = {k: v.copy() for k, v in outputs.items()}
    left.interpret(x, *wanted.values(), n)
    programs.run("left", n, x=x, **outputs, n=n)
    for name, out in outputs.items():
        np.testing.assert_allclose(out, wanted[name], rtol=1e-5, atol=1e-5, err_msg=name)


@needs_compiler
@pytest.mark.parametrize("rows", [8, 37, 64])
def test_chunks_of_a_sum_inside_a_parallel_loop(programs: Programs, rows: int) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, 50)).astype(np.float32)
    check(programs, "columns", {"x": x}, {"out": np.zeros((1, 50), np.float32)})


@needs_compiler
def test_loops_inside_others_and_in_branches(programs: Programs) -> None:
    x = np.random.default_rng(2).standard_normal((35, 16)).astype(np.float32)
    check(programs, "again", {"x": x}, {"out": np.ones_like(x)})
    for n in (1, 3):
        wanted, out = np.ones_like(x), np.ones_like(x)
        perhaps.interpret(x, wanted, n)
        programs.run("perhaps", n, x=x, out=out, n=n)
        np.testing.assert_allclose(out, wanted)


@needs_compiler
def test_a_tile_beyond_the_end_stops_the_core(programs: Programs) -> None:
    x, out = np.ones((20, 16), np.float32), np.zeros((16, 16), np.float32)
    programs.run("shifted", x=x, out=out, n=9)
    np.testing.assert_array_equal(out[:, 0], 2.0 * (np.arange(16) < 11))
    with pytest.raises(RuntimeError, match="trap"):
        programs.run("shifted", x=x, out=out, n=12)
    for name, rows, said in (("second", 8, "no tile is without elements: 9 <= x_d0"), ("next_rows", 16, "trap")):
        programs.run(name, x=x, out=out)
        with pytest.raises(RuntimeError, match=said):
            programs.run(name, x=x[:rows].copy(), out=out)


@needs_compiler
@pytest.mark.parametrize("n", [0, 3, 8, 30])
def test_what_is_stored_behind_the_end_is_left_out(programs: Programs, n: int) -> None:
    x = np.random.default_rng(n).standard_normal((20, 16)).astype(np.float32)
    wanted, found = np.zeros((2, 21, 32), np.float32)
    behind.interpret(x, wanted, n)
    programs.run("behind", 1, x=x, out=found, n=n)
    np.testing.assert_array_equal(found, wanted)


@needs_compiler
def test_elements_are_read_that_the_kernel_has_written(programs: Programs) -> None:
    x = np.random.default_rng(1).standard_normal((70, 9)).astype(np.float32)
    check(programs, "updated", {"x": x}, {"sums": np.ones((70, 2), np.float32), "out": np.ones_like(x)})
    check(programs, "updated", {"x": x[:, :0].copy()}, {"sums": np.ones((70, 2), np.float32), "out": np.ones_like(x)})


@needs_compiler
@pytest.mark.parametrize("rows", [0, 5, 8, 32])
def test_a_sum_of_tiles_has_the_rows_that_they_have(programs: Programs, rows: int) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, 32)).astype(np.float32)
    check(programs, "added", {"x": x}, {"out": np.full((8, 32), 7, np.float32)})


@needs_compiler
@pytest.mark.parametrize("rows", [9, 20])
def test_a_sum_of_tiles_of_different_shapes_is_an_error_of_the_launch(programs: Programs, rows: int) -> None:
    x = np.ones((rows, 32), np.float32)
    with pytest.raises(RuntimeError, match="tiles that are combined have as many elements"):
        programs.run("added", x=x, out=np.zeros((8, 32), np.float32))
    with pytest.raises(pto.PtoError, match="extent"):
        added.interpret(x, np.zeros((8, 32), np.float32))


@pytest.mark.parametrize("name", ["below", "until"])
def test_without_a_flag_a_loop_that_is_left_early_is_not_ordered(name: str) -> None:
    for kernel in kernels_of(written(*CASES[name][:1], *CASES[name][1])):
        for what in mutants(kernel):
            assert races(kernel, first=True), f"{kernel.name}: nobody misses it: {what}"


def test_what_follows_two_ways_on_is_not_written_twice() -> None:
    @pto.jit
    def both(x: pl.Tensor, out: pl.Tensor):
        with pl.incore():
            for i in pl.range(1, x.shape[0]):
                if x[i] > 0.0:
                    if x[i] > 2.0:
                        continue
                    out[i] = 1.0
                out[i] = out[i - 1] + x[i]

    with pytest.raises(TargetError, match="a continue in a kernel"):
        written(both, VECTOR, VECTOR)


def test_a_condition_that_reads_memory_is_not_computed_once_more() -> None:
    """An element behind the end would be read."""

    @pto.jit
    def search(x: pl.Tensor, out: pl.Tensor):
        with pl.incore():
            for r in pl.range(0, x.shape[0], 8, parallel=True):
                i, t = r, pl.load(x, [r], [8])
                while x[i] > 0.0:
                    i += 1
                    if i == x.shape[0]:
                        break
                    t = t * 2.0
                pl.store(t, [r], out)

    with pytest.raises(TargetError, match="a break in a kernel"):
        written(search, VECTOR, VECTOR)


def test_what_reads_an_element_waits_for_what_wrote_it() -> None:
    (kernel,) = kernels_of(written(*CASES["updated"][:1], *CASES["updated"][1]))
    found = {what: races(kernel, first=True) for what in mutants(kernel) if "'MTE2'" in what}
    assert len(found) == 3 and all(found.values())  # from stores of elements, and to the scalar unit


@needs_compiler
@pytest.mark.parametrize("n", [0, 2, 4])
def test_loops_of_the_host_are_left_and_go_on(programs: Programs, n: int) -> None:
    x = np.random.default_rng(n).standard_normal((16, 16)).astype(np.float32)
    expected, mine = x.copy(), x.copy()
    on_the_host.interpret(expected, n)
    programs.run("on_the_host", x=mine, n=n)
    np.testing.assert_allclose(mine, expected, rtol=1e-6)
