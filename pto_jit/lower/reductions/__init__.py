# SPDX-License-Identifier: MIT
"""Reductions in parallel loops: recognising them, partial results per chunk, and merging these."""

from pto_jit.lower.reductions.split import split_reductions

__all__ = ["split_reductions"]
