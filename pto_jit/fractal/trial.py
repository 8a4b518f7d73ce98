# SPDX-License-Identifier: MIT
"""Trials: a body called with stand-ins, to learn what it would give for the elements of an empty list.

The list that `ft.map` makes of an empty one has a type all the same: depth, leaf shape, element type.  The body is
asked for it with a value like those that the list would have: zeros; for lists, of the length that they are known to
have (windows), or of one element.  What such a trial says of leaf shapes may depend on those lengths, so it counts for
nothing beside what was truly computed (`elements.agreed`).  During a trial, empty lists answer with such values too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

_trying: ContextVar[bool] = ContextVar("a trial", default=False)


def trying() -> bool:
    """Whether what is computed is a trial."""
    return _trying.get()


@contextmanager
def trial() -> Iterator[None]:
    """What is computed inside is for its type alone."""
    token = _trying.set(True)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        _trying.reset(token)
