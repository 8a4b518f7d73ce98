# SPDX-License-Identifier: MIT
"""Rows that loops of the program load and reduce, and which may be too long for a block: the same loops go over them in
passes, on both devices."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.ir.nodes import Op
from pto_jit.ir.parse import parse
from pto_jit.lower.names import index
from pto_jit.lower.wholes import choose
from pto_jit.slotted import replace
from pto_jit.targets.source.rooms import with_rooms
from tests.targets.ascend.harness import Programs, check_interpreted, ordered
from tests.targets.ascend.harness import needs_compiler as needs_simulator
from tests.targets.cuda.harness import emulated, needs_compiler

RNG = np.random.default_rng(47)
LINE, FLAT, CUBE = (pto.spec((None,) * n, pl.f32) for n in (1, 2, 3))
NUMBERS = pto.spec((None,), pl.i32)


@pto.jit
def softmax(x, y):
    n, m = x.shape
    with pl.incore():
        for r in pl.range(n, parallel=True):
            row = pl.load(x, [r, 0], [1, m])
            e = pl.exp(row - pl.max(row, axis=1, keepdims=True))
            pl.store(e / pl.sum(e, axis=1, keepdims=True), [r, 0], y)


@pto.jit
def in_place(y, x):
    n, m = x.shape
    for r in pl.range(0, n, chunk=2):
        with pl.incore():
            row = pl.load(x, [r, 0], [1, m])
            total = pl.sum(pl.abs(row)) + 1
            pl.store(row / total, [r, 0], x)


@pto.jit
def cross_entropy(x, labels, loss):
    n, m = x.shape
    for r in pl.range(n, parallel=True):
        with pl.incore():
            row = pl.load(x, [r, 0], [1, m])
            top = pl.max(row)
            loss[r] = pl.log(pl.sum(pl.exp(row - top))) + top - x[r, labels[r]]


@pto.jit
def rms_norm(x, weight, y):
    n, m = x.shape
    with pl.incore():
        for r in pl.range(n, parallel=True):
            row = pl.load(x, [r, 0], [1, m])
            scale = pl.rsqrt(pl.sum(row * row) / m + 1e-6)
            pl.store(row * scale * pl.load(weight, [0], [m]), [r, 0], y)


@pto.jit
def of_heads(x, y):
    heads, n, m = x.shape
    with pl.incore():
        for h in pl.range(heads, parallel=True):
            for r in pl.range(n, parallel=True):
                row = pl.load(x[h], [r, 0], [1, m])
                mean = pl.mean(row, axis=1, keepdims=True)
                centred = row - mean
                var = pl.mean(centred * centred, axis=1, keepdims=True)
                pl.store(centred * pl.rsqrt(var + 1e-5), [r, 0], y[h])


@pto.jit
def backward(x, grad, out, sums):
    """Two rows are loaded, and what is stored beside a row is one number of it."""
    n, m = x.shape
    with pl.incore():
        for r in pl.range(n, parallel=True):
            row, g = pl.load(x, [r, 0], [1, m]), pl.load(grad, [r, 0], [1, m])
            dot = pl.sum(row * g, axis=1, keepdims=True) / m
            pl.store(row * (g - dot), [r, 0], out)
            pl.store(pl.reshape(dot, [1]), [r], sums)


@pto.jit
def places(x, out):
    n, m = x.shape
    with pl.incore():
        for r in pl.range(n, parallel=True):
            out[r] = pl.argmax(pl.load(x, [r, 0], [1, m])).to(pl.i32)


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "softmax": (softmax, (FLAT, FLAT)), "in_place": (in_place, (FLAT, FLAT)),
    "cross_entropy": (cross_entropy, (FLAT, NUMBERS, LINE)), "rms_norm": (rms_norm, (FLAT, LINE, FLAT)),
    "of_heads": (of_heads, (CUBE, CUBE)), "backward": (backward, (FLAT, FLAT, FLAT, LINE)),
    "places": (places, (FLAT, NUMBERS)),
}  # fmt: skip


def arguments(name: str, rows: int, columns: int) -> dict[str, np.ndarray]:
    fn, specs = CASES[name]
    shapes = {1: (rows,), 2: (rows, columns), 3: (2, rows, columns)}
    given = {p: RNG.standard_normal(shapes[len(s.shape)]).astype(np.float32)
             for p, s in zip(fn.__wrapped__.__code__.co_varnames, specs, strict=False)}  # fmt: skip
    if name == "cross_entropy":
        given["labels"] = RNG.integers(0, columns, rows).astype(np.int32)
    if name == "places":
        given["out"] = np.zeros(rows, np.int32)
    if name == "rms_norm":
        given["weight"] = RNG.standard_normal(columns).astype(np.float32)
    return given


close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Rows of some hundred elements are long, so that they can be emulated."""
    monkeypatch.setitem(choose.PARTS, "cuda", replace(choose.PARTS["cuda"], longest=256, beside=256, part=128))
    yield


def compared(fn: Any, given: dict[str, np.ndarray], orders: tuple[int, ...] = (0, 5)) -> None:
    wanted = [a.copy() for a in given.values()]
    _, mine = emulated(fn, *given.values(), orders=orders)
    fn.interpret(*wanted)
    for a, b in zip(mine, wanted, strict=True):
        close(a, b)


@needs_compiler
@pytest.mark.parametrize("shape", [(3, 1), (2, 256), (3, 257), (2, 997)])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("short")
def test_on_cuda(name: str, shape: tuple[int, int]) -> None:
    compared(CASES[name][0], arguments(name, *shape))


@needs_compiler
@pytest.mark.parametrize("name", ["softmax", "cross_entropy"])
def test_a_row_of_a_vocabulary_on_cuda(name: str) -> None:
    compared(pto.jit(CASES[name][0].__wrapped__), arguments(name, 2, 201088), orders=(0,))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("own_rows"))


@needs_simulator
@pytest.mark.parametrize("columns", [1, 8193, 20011, 70001])
@pytest.mark.parametrize("name", CASES)
def test_on_ascend(programs: Programs, name: str, columns: int) -> None:
    given = arguments(name, 2, columns)
    fn, specs = CASES[name]
    stored = {"softmax": ["y"], "in_place": ["x"], "cross_entropy": ["loss"], "rms_norm": ["y"], "of_heads": ["y"],
              "backward": ["out", "sums"], "places": ["out"]}[name]  # fmt: skip
    read = {n: a for n, a in given.items() if n not in stored}
    check_interpreted(programs, fn, name, read, {n: given[n] for n in stored}, close)


def test_the_host_compares_with_what_the_kernel_has_room_for() -> None:
    """On ascend that is known once it is written: 18,560 elements of a row, twice, and of what reduces it."""
    sources = softmax.compile(FLAT, FLAT, target="ascend").sources
    assert "const bool fits_room = x_d1 <= 18560;" in sources["softmax_orchestration.c"]
    assert "float, 1, 18560" in sources["softmax_incore_0.cpp"] and "float, 1, 2048" in sources["softmax_incore_0_1.cpp"]


@pytest.mark.parametrize(("rooms", "most"), [([18560], 18560), ([18560, 9000], 9000), ([18560, None], 8192),
                                             ([100, None], 100), ([], 8192)])  # fmt: skip
def test_an_estimate_is_raised_where_all_that_limits_a_launch_is_compared(rooms: list[int | None], most: int) -> None:
    program = parse("""// Function Type: Orchestration
func @f(%m: i64) {
  %fits.room = sle %m, 8192 : bool_
  IF %fits.room
    CALL @k(%m -> %m)
  ENDIF
  return
}

// Function Type: InCore
func @k(%m: i64) {
  return
}
""")
    entry = with_rooms(program.func("f"), lambda call, length: rooms)
    (compared,) = (s for s in entry.body if isinstance(s, Op))
    assert compared.args[1] == index(most)


@pto.jit
def of_own_lengths(x, lengths, y):
    for r in pl.range(x.shape[0], parallel=True):
        with pl.incore():
            row = pl.load(x, [r, 0], [1, lengths[r]])
            pl.store(row - pl.max(row), [r, 0], y)


@pto.jit
def loaded_again(x, y):
    """The second load reads what was stored."""
    n, m = x.shape
    with pl.incore():
        for r in pl.range(n, parallel=True):
            row = pl.load(x, [r, 0], [1, m])
            pl.store(row - pl.max(row), [r, 0], x)
            pl.store(pl.load(x, [r, 0], [1, m]) * 2, [r, 0], y)


@pto.jit
def sorted_rows(x, y):
    n, m = x.shape
    with pl.incore():
        for r in pl.range(n, parallel=True):
            pl.store(pl.sort(pl.load(x, [r, 0], [1, m])), [r, 0], y)


@needs_compiler
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("fn", [of_own_lengths, loaded_again, sorted_rows], ids=lambda fn: fn.__name__)
def test_what_needs_more_than_parts_stays_as_it_is(fn: Any) -> None:
    given = {"x": RNG.standard_normal((3, 300)).astype(np.float32), "y": np.zeros((3, 300), np.float32)}
    if fn is of_own_lengths:
        given = {"x": given["x"], "lengths": np.array([300, 7, 1], np.int32), "y": given["y"]}
    compiled = fn.compile(*given.values(), target="cuda")
    assert "fits" not in compiled.ir("divided")
    compared(fn, given)
