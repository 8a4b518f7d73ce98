# SPDX-License-Identifier: MIT
"""A kernel compiled and the same Python function interpreted: equal results, equal memory."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np


def agree(kernel: Any, *args: Any, tolerance: float = 1e-5, **kwargs: Any) -> tuple[Any, tuple[Any, ...]]:
    """Run `kernel` compiled and interpreted on copies of the arguments.

    Gives what the compiled kernel returned and the arguments as it left them, after checking that both ways agree.
    """
    first, second = _copies(args), _copies(args)
    compiled = kernel(*first, **kwargs)
    interpreted = kernel.interpret(*second, **kwargs)
    _same(interpreted, compiled, tolerance, "the result")
    for k, (a, b) in enumerate(zip(second, first, strict=True)):
        _same(a, b, tolerance, f"argument {k}")
    return compiled, first


def _copies(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(copy.deepcopy(a) if isinstance(a, (np.ndarray, list, tuple, dict)) else a for a in args)


def _same(got: Any, expected: Any, tolerance: float, what: str) -> None:
    if isinstance(expected, (tuple, list)):
        assert len(got) == len(expected), what
        for k, (a, b) in enumerate(zip(got, expected, strict=True)):
            _same(a, b, tolerance, f"{what}[{k}]")
    elif isinstance(expected, dict):
        assert got.keys() == expected.keys(), what
        for k, b in expected.items():
            _same(got[k], b, tolerance, f"{what}[{k!r}]")
    elif isinstance(expected, np.ndarray):
        assert got.dtype == expected.dtype, what
        assert got.shape == expected.shape, what
        kinds = (np.float64, tolerance) if expected.dtype.kind in "fV" else (expected.dtype, 0)
        np.testing.assert_allclose(got.astype(kinds[0]), expected.astype(kinds[0]), kinds[1], kinds[1], err_msg=what)
    elif isinstance(expected, (int, float)):
        assert type(got) is type(expected), f"{what}: {type(got).__name__} and {type(expected).__name__}"
        np.testing.assert_allclose(float(got), float(expected), tolerance, tolerance, err_msg=what)
