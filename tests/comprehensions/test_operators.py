# SPDX-License-Identifier: MIT
"""Operators of machine learning in both forms, against NumPy over the inferred ranges."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
from tests.comprehensions.examples import OPERATORS
from tests.comprehensions.oracle import check


def arguments(definition: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Arrays for shapes, of each parameter's dtype."""
    rng = np.random.default_rng(len(definition.name))
    made: dict[str, Any] = {}
    for p in definition.parameters:
        value = given[p.name]
        if not p.sizes:
            made[p.name] = value
        elif isinstance(value[0], str):
            made[p.name] = rng.integers(0, value[1] + 1, value[2]).astype(p.dtype.numpy)
        else:
            made[p.name] = rng.uniform(0.2, 2.0, value).astype(p.dtype.numpy)
    return made


@pytest.mark.parametrize(("name", "text", "fn", "given"), OPERATORS, ids=[o[0] for o in OPERATORS])
def test_an_operator(name: str, text: str, fn: Any, given: dict[str, Any]) -> None:
    written, spelled = pto.comprehension(text), pto.comprehension(fn)
    if name != "wavenet":  # where the axis has a name of its own
        assert written.definition == spelled.definition
        assert written.loops().split('"""')[-1] == spelled.loops().split('"""')[-1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        check(written, arguments(written.definition, given))
