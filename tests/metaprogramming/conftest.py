# SPDX-License-Identifier: MIT
"""Kernels of these tests share a disk cache that is thrown away."""

from tests.jit.conftest import settings

__all__ = ["settings"]
