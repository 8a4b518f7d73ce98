# SPDX-License-Identifier: MIT
"""The rectangles that a call of an in-core function is said to touch contain everything that it touches."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.ir.nodes import Const, Func, Module, Op
from pto_jit.ir.parse import parse
from pto_jit.ir.types import TensorType
from pto_jit.lower.footprints import footprints
from pto_jit.semantic import interpreter

_OPS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "min": min,
        "max": max, "cast": lambda a: a}  # fmt: skip


def incore(kernel: Any, *args: Any) -> tuple[Module, Func]:
    module = parse(kernel.compile(*args).ir("outlined"))
    (func,) = [f for f in module.funcs if f.kind == "incore"]
    return module, func


def boxes(func: Func, args: list[Any]) -> list[tuple[int, tuple[slice, ...], bool, bool]]:
    """The footprints for these arguments, cut at the tensors' bounds."""
    found = footprints(func)
    values = {p.name: a for p, a in zip(func.params, args, strict=True)}

    def value(operand: Any) -> Any:
        return operand.value if isinstance(operand, Const) else values[operand.name]

    for op in found.made:
        assert isinstance(op, Op)
        values[op.results[0].name] = _OPS[op.op](*(value(a) for a in op.args))
    result = []
    for box in found.boxes:
        slices = []
        for low, high, extent in zip(box.lows, box.highs, args[box.param].shape, strict=True):
            start = 0 if low is None else min(max(value(low), 0), extent)
            stop = extent if high is None else min(max(value(high), start), extent)
            slices.append(slice(start, stop))
        result.append((box.param, tuple(slices), box.reads, box.writes))
    return result


def touched(module: Module, func: Func, args: list[Any]) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """By running it: for each tensor which elements change, and which elements another result depends on."""

    def run(values: list[Any]) -> list[np.ndarray]:
        copies = [v.copy() if isinstance(v, np.ndarray) else v for v in values]
        interpreter.run(Module(module.name, module.funcs, func.name), copies)
        return copies

    reference = run(args)
    result = {}
    for place, (param, value) in enumerate(zip(func.params, args, strict=True)):
        if not isinstance(param.type, TensorType):
            continue
        reads, writes = np.zeros(value.shape, bool), np.zeros(value.shape, bool)
        for index in np.ndindex(value.shape):
            changed = [v.copy() if isinstance(v, np.ndarray) else v for v in args]
            changed[place][index] += 1000.0
            after = run(changed)
            writes[index] = after[place][index] == reference[place][index]  # not what was put there: written over
            writes[index] |= reference[place][index] != value[index]
            for other, (a, b) in enumerate(zip(after, reference, strict=True)):
                if isinstance(a, np.ndarray):
                    differs = a != b
                    if other == place:
                        differs[index] = False
                    reads[index] |= differs.any()
        result[place] = (reads, writes)
    return result


def check(kernel: Any, args: tuple[Any, ...], scalars: dict[str, list[int]], exact: bool = True) -> None:
    module, func = incore(kernel, *args)
    by_name = dict(zip(kernel.__signature__.parameters, args, strict=True))
    for choice in range(max((len(v) for v in scalars.values()), default=1)):
        values = [scalars[p.name][choice] if p.name in scalars else by_name[p.name] for p in func.params]
        found = touched(module, func, values)
        said = {place: (np.zeros(m.shape, bool), np.zeros(m.shape, bool)) for place, (m, _) in found.items()}
        for place, slices, reads, writes in boxes(func, values):
            if reads:
                said[place][0][slices] = True
            if writes:
                said[place][1][slices] = True
        for place, (reads, writes) in found.items():
            name = func.params[place].name
            assert not (reads & ~said[place][0]).any(), f"{name} is read outside of its footprint"
            assert not (writes & ~said[place][1]).any(), f"{name} is written outside of its footprint"
            if exact:
                assert (said[place][1] == writes).all(), f"the footprint of what is written to {name} is too large"


rng = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


@pto.jit
def row_tile(x, y, r, c):
    with pl.incore():
        t = pl.load(x, [r * 2, c], [2, 3])
        pl.store(pl.exp(t) * 2.0, [r * 2, c + 1], y)


def test_a_tile_at_scalar_offsets_is_exact_and_cut_at_the_bounds() -> None:
    check(row_tile, (array(7, 8), array(7, 8), 1, 2), {"r": [0, 1, 3, 9], "c": [0, 2, 6, 1]})


@pto.jit
def rows(x, y, r0, r1):
    with pl.incore():
        for r in pl.range(r0, r1):
            t = pl.load(x, [r, 0], [1, 5])
            pl.store(t / pl.sum(t, axis=1, keepdims=True), [r, 0], y)


def test_loops_are_replaced_by_their_first_and_last_iteration() -> None:
    check(rows, (array(6, 5), array(6, 5), 0, 3), {"r0": [0, 2, 4], "r1": [3, 6, 5]})


@pto.jit
def backwards(x, y, n):
    with pl.incore():
        for r in pl.range(n, 0, -1):
            for c in pl.range(2):
                y[r, 2 * c + 1] = x[r - 1, c]


def test_negative_steps_and_scaled_variables_are_bounded() -> None:
    check(backwards, (array(5, 4), array(5, 4), 3), {"n": [3, 1, 4]}, exact=False)


@pto.jit
def through_views(x, y, r):
    with pl.incore():
        part = x[r : r + 3, 1:4]
        out = y.T[1:4, r]
        t = pl.load(part, [1, 0], [2, 3])
        for k in pl.range(3):
            out[k] = t[0, k] + t[1, k]


def test_views_add_their_offsets_and_dropped_axes_are_one_element() -> None:
    check(through_views, (array(7, 6), array(7, 6), 2), {"r": [0, 2, 4]}, exact=False)


@pto.jit
def gathered(x, y, idx):
    with pl.incore():
        t = x[pl.load(idx, [0], [4])]
        pl.store(t, [0], y)


def test_a_place_read_from_memory_counts_as_the_whole_tensor() -> None:
    args = (array(9), array(4), np.array([8, 0, 3, 3], np.int32))
    module, func = incore(gathered, *args)
    found = boxes(func, [dict(zip("x y idx".split(), args, strict=True))[p.name] for p in func.params])
    by_name = {func.params[place].name: slices for place, slices, _, _ in found}
    assert by_name == {"x": (slice(0, 9),), "y": (slice(0, 4),), "idx": (slice(0, 4),)}


def test_what_is_read_and_written_is_one_footprint() -> None:
    @pto.jit
    def scale(x, r):
        with pl.incore():
            pl.store(pl.load(x, [r, 0], [1, 4]) * 2.0, [r, 0], x)

    _, func = incore(scale, array(3, 4), 1)
    (box,) = footprints(func).boxes
    assert box.reads and box.writes


@pytest.mark.parametrize("count", [2, 9])
def test_many_rectangles_become_one_of_reads_and_one_of_writes(count: int) -> None:
    @pto.jit
    def several(x, y, r):
        with pl.incore():
            for k in pl.static_range(count):
                y[r, k] = x[k, r]

    args = (array(10, 12), array(10, 12), 3)
    _, func = incore(several, *args)
    assert len(footprints(func).boxes) == (4 if count == 2 else 2)
    check(several, args, {"r": [0, 3, 9]}, exact=False)
