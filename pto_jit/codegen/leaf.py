# SPDX-License-Identifier: MIT
"""What stands in the structure of a result for a returned operand."""

from __future__ import annotations

from pto_jit.slotted import frozen


@frozen
class Leaf:
    """In the structure of a result: the place of the returned operand with this number."""

    number: int
    weak: bool = False
