# SPDX-License-Identifier: MIT
"""What the target does not do."""

from __future__ import annotations

from pto_jit.errors import Loc, TargetError

TOO_LARGE = "PTO-X211"
"""The code of what does not fit."""


def unsupported(what: str, loc: Loc, instead: str) -> TargetError:
    """A program that this target cannot take: what, where, and the nearest thing that works."""
    place = loc if loc.lineno else None
    return TargetError(f"the ascend target does not do {what}", place, code="PTO-X210", hint=instead)


def too_large(what: str, loc: Loc, instead: str) -> TargetError:
    """A program whose tiles do not fit the memories of a core."""
    place = loc if loc.lineno else None
    return TargetError(what, place, code=TOO_LARGE, hint=instead)


def many_axes(rank: int, loc: Loc) -> TargetError:
    """A tile that has more axes than rows and columns."""
    instead = "take tiles of two axes, or of three of which the first is a constant of at most 32"
    return unsupported(f"a tile of {rank} axes like this", loc, instead)
