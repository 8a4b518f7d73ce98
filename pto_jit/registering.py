# SPDX-License-Identifier: MIT
"""What the fast paths of functions and compiled versions share: guards, and what knows calls with containers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.arguments import Parameters
from pto_jit.codegen.fingerprint import MISSING_NAME, Fingerprint, Guard, still_holds
from pto_jit.kernel import Kernel
from pto_jit.reading import Arguments
from pto_jit.runtime import ABSENT

if TYPE_CHECKING:
    from pto_jit.unpacked import Unpacked

RuntimeGuard = tuple[Any, Any, Any]


def runtime_guards(prints: Sequence[Fingerprint]) -> tuple[RuntimeGuard, ...] | None:
    """The guards of fingerprints as a dispatcher checks them; None when what they tell of can change without anything
    changing its identity."""
    if any(p.mutable for p in prints):
        return None
    return tuple({(id(g[0]), g[1]): g for p in prints for g in map(_runtime_guard, p.guards)}.values())


def _runtime_guard(guard: Guard) -> RuntimeGuard:
    kind, container, name, value = guard
    if kind == "held":
        return functools.partial(still_holds, container, value, name), (), True
    return container, None if kind == "cell" else name, ABSENT if value is MISSING_NAME else value


class Containers:
    """What knows the calls of one function with FractalTensors, or with tuples, lists, dicts and objects."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._unpacked: dict[str, Unpacked] = {}

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """The result of a call; NotImplemented, and nothing was run, when the slow path has to decide."""
        __tracebackhide__ = True
        for unpacked in self._unpacked.values():
            found = unpacked.call(args, kwargs)
            if found is not NotImplemented:
                return found
        return NotImplemented

    def register(
        self,
        values: list[Any],
        call: Arguments,
        kernel: Kernel,
        guards: Sequence[RuntimeGuard],
        convert: Callable[[Any], Any] | None,
    ) -> None:
        """Let later calls with such values run `kernel`, where the kinds of the arguments decide everything."""
        if self._parameters.static or len(self._parameters.named) > len(self._parameters.positional):
            return  # numbers that are compile-time values; arguments that have to be named
        self._of(call).register(values, call, kernel, guards, convert)

    def _of(self, call: Arguments) -> Unpacked:
        """What knows calls with such containers; its code is imported by kernels that are called with them."""
        kind = "lists" if call.lists else "aggregates"
        found = self._unpacked.get(kind)
        if found is None:
            if call.lists:
                from pto_jit.flattened import Flattened as Kind
            else:
                from pto_jit.aggregates import Aggregates as Kind
            found = Kind(self._parameters.signature, self._parameters.is_method)
            self._unpacked = {**self._unpacked, kind: found}  # another thread may be going through it
        return found

    def clear(self) -> None:
        """Forget all kernels."""
        for unpacked in self._unpacked.values():
            unpacked.clear()
