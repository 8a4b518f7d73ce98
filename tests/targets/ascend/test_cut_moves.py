# SPDX-License-Identifier: MIT
"""Slices, `concat` and reshapes of tiles that may be cut at borders: they end where the tiles do; where one would be
empty, or a hole be left, the launch or the core stops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import BoundsError

from .harness import Programs, check_interpreted, needs_compiler, ordered

RNG = np.random.default_rng(8)


def stored(operation: Any) -> Any:
    """A kernel that stores what an operation makes of two blocks of rows, of which either may be cut."""

    @pto.jit
    def kernel(x, out):
        for k in pl.range(2, parallel=True):
            t = pl.load(x, [k * 8, 0], [8, 16])
            pl.store(operation(t, k), [k * 8, 0], out)

    return kernel


MOVES: dict[str, Any] = {
    "first_rows": lambda t, k: t[0:2] * 2,
    "columns": lambda t, k: t[:, 3:9] + 1,
    "column": lambda t, k: pl.reshape(t[:, 3] + 1, [8, 1]),
    "column_that_stays": lambda t, k: t[:, 4:5] * 3,
    "computed_row": lambda t, k: t[k : k + 1, :] * 2,
    "computed_block": lambda t, k: t[k : k + 3, 8 * k : 8 * k + 4],
    "side_by_side": lambda t, k: pl.concat([t[:, 8:16], t[:, 0:8] * 2], 1),
    "zeros_first": lambda t, k: pl.concat([pl.zeros([8, 8], pl.f32), t[:, 0:8] * 2], 1),
    "one_below_the_other": lambda t, k: pl.concat([t[0:1] * 2, t])[:8],
    "zeros_above": lambda t, k: pl.concat([pl.zeros([3, 16], pl.f32), t * 2])[:8],
}
WHOLE: dict[str, Any] = {
    "other_rows": lambda t, k: pl.reshape(t, [4, 32])[:, 8:24],
    "below_what_may_be_cut": lambda t, k: pl.concat([t, t[0:1]])[1:],
}
SHAPES = ((16, 16), (19, 40), (11, 16), (16, 13), (9, 12))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    kinds = (pto.spec((None, None), pl.f32),) * 2
    made = {name: (stored(operation), kinds) for name, operation in (MOVES | WHOLE).items()}
    return ordered(made, tmp_path_factory.mktemp("cut_moves"))


@needs_compiler
@pytest.mark.parametrize("name", MOVES)
def test_they_end_where_the_tiles_do(programs: Programs, name: str) -> None:
    checked = 0
    for shape in SHAPES:
        x = RNG.standard_normal(shape, np.float32)
        fn, outputs = stored(MOVES[name]), {"out": np.full((16, 16), 7, np.float32)}
        try:
            fn.interpret(x, outputs["out"].copy())
        except BoundsError:  # an incomplete tile before another one, or an index behind the end
            with pytest.raises(RuntimeError):
                programs.run(name, x=x, **outputs)
            continue
        if name.startswith("computed") and shape[0] == 9:  # a slice without elements
            with pytest.raises(RuntimeError, match="trap"):
                programs.run(name, x=x, **outputs)
            continue
        check_interpreted(programs, fn, name, {"x": x}, outputs)
        checked += 1
    assert checked >= 3


@needs_compiler
@pytest.mark.parametrize("name", WHOLE)
def test_tiles_that_must_be_complete(programs: Programs, name: str) -> None:
    for shape in SHAPES:
        x, out = RNG.standard_normal(shape, np.float32), np.full((16, 16), 7, np.float32)
        fn = stored(WHOLE[name])
        if min(shape) >= 16:
            check_interpreted(programs, fn, name, {"x": x}, {"out": out})
        elif shape[0] % 8 or name == "other_rows":
            with pytest.raises(BoundsError):
                fn.interpret(x, out)
            with pytest.raises(RuntimeError, match=r"trap|as many elements"):
                programs.run(name, x=x, out=out)
