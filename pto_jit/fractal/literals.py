# SPDX-License-Identifier: MIT
"""Numbers of Python's among what bodies give: they have the types of those that stand beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pto_jit.dtypes import from_numpy
from pto_jit.fractal.elements import agreed, is_weak
from pto_jit.fractal.trial import trial
from pto_jit.fractal.types import like


def has_weak(value: Any) -> bool:
    """Whether there are numbers of Python's in a value."""
    return any(map(has_weak, value)) if isinstance(value, tuple) else is_weak(value)


def meeting(a: Any, b: Any) -> Any:
    """A value of the type that two of a body have: numbers of Python's in them take the element types of others, as in
    arithmetic.  None when there is no such type."""
    if isinstance(a, tuple) and isinstance(b, tuple) and (has_weak(a) or has_weak(b)):
        if type(a) is not type(b) or len(a) != len(b):
            return None
        items = [meeting(*of) for of in zip(a, b, strict=True)]
        return None if any(item is None for item in items) else like(type(a), items)
    if is_weak(a) and is_weak(b):
        return max(a, b, key=_rank)
    if not is_weak(a) and not is_weak(b):
        both = agreed([a, b])
        return None if both is None else both[0]
    literal: Any = a if is_weak(a) else b
    other = b if literal is a else a
    if not isinstance(other, np.generic):
        return None
    if not takes(other, literal):
        return _BesideIntegers(literal)
    return None if isinstance(literal, _BesideIntegers) else other


class _BesideIntegers(float):
    """A number of Python's that stands beside others whose type it does not have: both are f64."""


def _rank(literal: Any) -> int:
    return [bool, int, float, _BesideIntegers].index(type(literal))


def takes(number: Any, literal: Any) -> bool:
    """Whether a number of Python's beside a typed one has the type of that."""
    dtype = from_numpy(number.dtype)
    assert dtype is not None
    if isinstance(literal, bool) or dtype.is_float:
        return True
    return dtype.is_integer and isinstance(literal, int)


def typed(value: Any, model: Any) -> Any:
    """The value with the element types of `model`, which many of its kind met in; other numbers are as they were."""
    if isinstance(value, tuple):
        return like(type(value), [typed(a, b) for a, b in zip(value, model, strict=True)])
    if not isinstance(model, np.generic) or (not is_weak(value) and value.dtype == model.dtype):
        return value
    return np.asarray(value).astype(model.dtype)[()]


def learned(common: Any, attempts: Sequence[Callable[[], Any]]) -> Any:
    """A value of the type of what a body gave, its numbers of Python's having the types that they have in what the body
    gives for stand-ins: `max(e, 0.0)` is a number of the list's type, though all elements are below 0."""
    for attempt in attempts:
        if not has_weak(common):
            break
        try:
            with trial():
                found = meeting(common, attempt())
        except Exception:  # it is asked for no more than a type
            continue
        common = common if found is None else found
    return common
