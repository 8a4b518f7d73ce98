# SPDX-License-Identifier: MIT
"""What `schedule=` and `tile=` of a parallel function may be, the same eagerly and in kernels."""

from __future__ import annotations

from operator import index
from typing import Any

PLANS = ("auto", "sequential", "wavefront", "tasks")
TILE_HINT = "give how many cells a task has along this loop, or a tuple for it and the loops inside of it; 1 or more"


def tile_sizes(tile: Any) -> tuple[int, ...] | None:
    """The sizes that `tile=` gives, of the loop of its call and those inside of it; None for None.

    Raises ValueError for anything but an integer of 1 or more, or a tuple or list of such.
    """
    if tile is None:
        return None
    items = tile if isinstance(tile, (tuple, list)) else (tile,)
    try:
        found = tuple(index(n) for n in items if not isinstance(n, bool))
    except TypeError as error:
        raise ValueError from error
    if not found or len(found) != len(items) or min(found) < 1:
        raise ValueError
    return found
