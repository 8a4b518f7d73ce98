# SPDX-License-Identifier: MIT
"""Parallel functions inside `@pto.jit` functions: nests of loops with access maps, and their schedules.

See `docs/fractal.md`."""
