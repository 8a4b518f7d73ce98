# SPDX-License-Identifier: MIT
"""Matrix products of tiles."""

from __future__ import annotations

from pto_jit.targets.cuda.tiles import TileWriter


class ProductWriter(TileWriter):
    """Writes products; placeholder until below."""
