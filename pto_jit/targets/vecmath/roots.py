# SPDX-License-Identifier: MIT
"""sqrt, rsqrt, reciprocal: the correctly rounded operations every target has."""

from __future__ import annotations

from pto_jit.targets.vecmath.emitter import Emitter, Value


def sqrt(b: Emitter, x: Value) -> Value:
    """The square root, correctly rounded; sqrt(-0) = -0, NaN below zero."""
    return b.sqrt(x)


def rsqrt(b: Emitter, x: Value) -> Value:
    """1 / sqrt(x): both steps correctly rounded; infinity of the sign of x at zero."""
    return b.div(b.const(1.0), b.sqrt(x))


def reciprocal(b: Emitter, x: Value) -> Value:
    """1 / x, correctly rounded."""
    return b.div(b.const(1.0), x)
