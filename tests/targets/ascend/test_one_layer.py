# SPDX-License-Identifier: MIT
"""Operations along a leading axis of one element, or over layers that are put together; tiles of four axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import TargetError

from .harness import Programs, check_interpreted, needs_compiler, ordered, written


def stored(operation: Any, layers: int = 1) -> Any:
    """A kernel that stores what an operation makes of a tile that columns end in."""

    @pto.jit
    def kernel(x, index, out):
        for k in pl.range(2, parallel=True):
            t = pl.load(x, [0, 0, k * 8], [layers, 4, 8])
            i = pl.load(index, [0, 0, k * 8], [layers, 4, 8])
            pl.store(operation(t, i), [k * 4, 0, 0], out)

    return kernel


ONE: dict[str, Any] = {
    "sum": lambda t, i: pl.sum(t, axis=0, keepdims=True),
    "mean": lambda t, i: pl.mean(t, axis=0, keepdims=True),
    "product": lambda t, i: pl.prod(t + 1, axis=(0,), keepdims=True),
    "largest_of_rows": lambda t, i: pl.max(t, axis=(0, 2), keepdims=True),
    "place": lambda t, i: t + pl.argmax(t, axis=0, keepdims=True).to(pl.f32),
    "running_sum": lambda t, i: pl.cumsum(t, 0),
    "running_product": lambda t, i: pl.cumprod(t, 0, reverse=True),
    "gather": lambda t, i: pl.gather(t * 2, i, 0),
    "gather_of_16_bits": lambda t, i: pl.gather(t.to(pl.f16), i, 0).to(pl.f32),
    "zeros_first": lambda t, i: pl.concat([pl.zeros([1, 4, 8], pl.f32), t, t * 2]),
    "ones_last": lambda t, i: pl.concat([t, pl.ones([3, 4, 8], pl.f32)]),
}
PUT_TOGETHER = ("zeros_first", "ones_last", "zeros_beside_two")
TWO: dict[str, Any] = {
    "zeros_beside_two": lambda t, i: pl.concat([t, pl.zeros([2, 4, 8], pl.f32)]),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    x, index = (pto.spec((None, None, None), dtype) for dtype in (pl.f32, pl.i32))
    made = {name: stored(operation) for name, operation in ONE.items()}
    made |= {name: stored(operation, 2) for name, operation in TWO.items()}
    return ordered({name: (fn, (x, index, x)) for name, fn in made.items()}, tmp_path_factory.mktemp("one_layer"))


@needs_compiler
@pytest.mark.parametrize("columns", [16, 11])
@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_they_give_the_numbers_of_the_interpreter(programs: Programs, name: str, columns: int) -> None:
    layers = 1 if name in ONE else 2
    x = np.random.default_rng(3).integers(-4, 5, (layers, 4, columns)).astype(np.float32)
    if name in PUT_TOGETHER:
        x[0, 1, 3] = np.nan  # which is not equal to itself
    fn = stored((ONE | TWO)[name], layers)
    out = np.full((8, 4, 8), 7, np.float32)
    check_interpreted(programs, fn, name, {"x": x, "index": np.zeros(x.shape, np.int32)}, {"out": out})


@pytest.mark.parametrize(
    "operation",
    [lambda t: pl.min(t, axis=0), lambda t: pl.any(t, axis=2), lambda t: t[0] + t, lambda t: pl.mean(t, axis=2, keepdims=True)],
)
def test_tiles_of_four_axes_are_refused(operation: Any) -> None:
    """Also where they become tiles of three."""

    @pto.jit
    def kernel(x, out):
        for k in pl.range(2, parallel=True):
            out[k] = pl.max(pl.cast(operation(pl.load(x, [0, 0, 0, 0], [2, 3, 2, 8])), pl.f32))

    with pytest.raises(TargetError, match="PTO-X210: the ascend target does not do a tile of 4 axes like this"):
        written(kernel, pto.spec((None,) * 4, pl.f32), pto.spec((None,), pl.f32))
