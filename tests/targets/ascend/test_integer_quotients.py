# SPDX-License-Identifier: MIT
"""Integers divided by constants that are no powers of two, over all of their range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import TargetError

from .harness import Programs, check_interpreted, needs_compiler, ordered, written

DIVISORS = (7, -7, 10, -1, 1, 60, 4097, 524287, -524287)


def divided(divisor: int) -> Any:
    def kernel(x: pl.Tensor, whole: pl.Tensor, rest: pl.Tensor):
        whole[...] = x // divisor
        rest[...] = x % divisor

    return pto.jit(kernel)


def case(divisor: int, dtype: Any) -> tuple[Any, tuple[Any, ...]]:
    return divided(divisor), (pto.spec((None,), dtype),) * 3


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    **{f"by_{d}".replace("-", "minus_"): case(d, pl.i32) for d in DIVISORS},
    "short_by_7": case(7, pl.i16), "short_by_minus_300": case(-300, pl.i16),
}  # fmt: skip


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("quotients"))


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_they_give_the_numbers_of_the_interpreter(programs: Programs, name: str) -> None:
    fn, (spec, *_) = CASES[name]
    dtype = spec.dtype.numpy
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    rng = np.random.default_rng(len(name))
    by = int(name.rsplit("_", 1)[1])
    near = rng.integers(low // by, high // by, 500, endpoint=True) * by
    x = np.concatenate([
        rng.integers(low, high, 1000), near, np.minimum(near + 1, high), np.maximum(near - 1, low), np.arange(-40, 40),
        [low, low + 1, high, high - 1],
    ]).astype(dtype)  # fmt: skip
    check_interpreted(programs, fn, name, {"x": x}, {"whole": np.zeros_like(x), "rest": np.zeros_like(x)})


def test_larger_divisors_are_refused() -> None:
    with pytest.raises(TargetError, match="`//` of tiles of i32"):
        written(divided(1 << 20 | 1), *(pto.spec((None,), pl.i32),) * 3)
