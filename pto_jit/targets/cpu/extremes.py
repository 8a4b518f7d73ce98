# SPDX-License-Identifier: MIT
"""Maxima and minima of floats that are NaN when an operand is, one instruction each in chains of them.

The instruction of x86 gives its first operand where a comparison fails, so a NaN there is kept and one of the second
operand is lost.  An extreme of extremes is NaN when anything that they were taken of is: it is computed from the plain
extremes, and what may have been lost on the way is looked for once, at the end.  (The selection of NaN is written
behind every extreme; where only another extreme uses it, the optimiser removes it.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pto_jit.slotted import frozen
from pto_jit.targets.cpu.constants import Value, nan

_MOST = 12  # operands that are looked at together


@frozen(eq=False)
class _Extreme:
    """plain: without what was lost; kept: the operand whose NaN it has; lost: those whose NaN it may lack."""

    plain: Value
    kept: Value
    lost: tuple[Value, ...]


class Extremes:
    """The extremes of one function."""

    def __init__(self, builder: Callable[[], Any]) -> None:
        self._builder = builder
        self._known: dict[int, tuple[Value, _Extreme]] = {}  # by identity of the result, which is kept
        self._masks: dict[Any, tuple[Any, Value]] = {}

    def apply(self, op: str, x: Value, y: Value, *, jumps: bool = False) -> Value:
        """np.maximum, np.minimum: NaN when either operand is, x when they are equal.

        The NaN is a constant, as LLVM would make one comparison of both and lose the instruction.  jumps: of numbers;
        what uses the result does not wait for the comparison.
        """
        b = self._builder()
        first, second = self._read(x), self._read(y)
        lost = tuple(dict.fromkeys((*first.lost, second.kept, *second.lost)))
        if len(lost) > _MOST:
            first, second, lost = _Extreme(x, x, ()), _Extreme(y, y, ()), (y,)
        x, y = first.plain, second.plain
        plain = b.select(b.fcmp_ordered(">" if op == "max" else "<", y, x), y, x)
        if jumps:
            result = self._or_nan(self._any_nan(lost), plain)
        else:
            result = b.select(self._any_nan(lost), nan(y.type), plain)
        self._known[id(result)] = result, _Extreme(plain, first.kept, lost)
        return result

    def _read(self, value: Value) -> _Extreme:
        known = self._known.get(id(value))
        return _Extreme(value, value, ()) if known is None else known[1]

    def _or_nan(self, wrong: Value, plain: Value) -> Value:
        """A number, NaN where something is wrong, by a jump that is nearly never taken."""
        b = self._builder()
        before, beside, after = b.block, b.append_basic_block("nan"), b.append_basic_block("number")
        branch = b.cbranch(wrong, beside, after)
        branch.set_weights([1, 2000])
        b.position_at_end(beside)
        b.branch(after)
        b.position_at_end(after)
        result = b.phi(plain.type)
        result.add_incoming(plain, before)
        result.add_incoming(nan(plain.type), beside)
        return result

    def _any_nan(self, values: tuple[Value, ...]) -> Value:
        """Whether one of the values is NaN; two are asked at once."""
        b = self._builder()
        key = (id(b.block), *map(id, values))
        known = self._masks.get(key)
        if known is not None:
            return known[1]
        if len(values) <= 2:
            first, *_, last = *values, *values
            mask = b.fcmp_unordered("uno", first, last)
        else:
            half = 2 * ((len(values) + 3) // 4)
            mask = b.or_(self._any_nan(values[:half]), self._any_nan(values[half:]))
        self._masks[key] = (b.block, values), mask
        return mask
