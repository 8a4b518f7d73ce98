# SPDX-License-Identifier: MIT
"""Calls with containers without the slow path: what is in them become the arguments of dispatchers.

A `Dispatcher` knows arrays and numbers.  A call with containers is one with the arrays in their places; there is a
dispatcher for each *form* that such calls have, which knows the kernels that they have found on the slow path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from inspect import Parameter, Signature
from typing import Any

from pto_jit.failures import fail
from pto_jit.kernel import Kernel
from pto_jit.reading import Arguments
from pto_jit.runtime import Dispatcher, Entry

_MOST = 1024  # forms that are known at a time


class Unpacked:
    """The dispatchers of one function."""

    def __init__(self, signature: Signature) -> None:
        self._known: dict[Any, Dispatcher] = {}
        self._parameters = tuple(signature.parameters.values())
        self._plain = all(p.kind is Parameter.POSITIONAL_OR_KEYWORD for p in self._parameters)

    def unpack(self, values: Sequence[Any]) -> tuple[Any, list[Any]] | None:
        """The form of a call, and the arguments with what is in the containers; None for what the slow path reads."""
        raise NotImplementedError

    def plan(self, values: Sequence[Any], flat: Sequence[Any], call: Arguments) -> list[str] | None:
        """What a dispatcher does with the arguments of `unpack`; None for a call that only the slow path can do."""
        raise NotImplementedError

    def again(self, form: Any, flat: Iterator[Any]) -> tuple[Any, ...]:
        """Values from what `unpack` gave, as far as failures tell of them."""
        raise NotImplementedError

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """The result of a call; NotImplemented, and nothing was run, when the slow path has to decide."""
        __tracebackhide__ = True
        values: Sequence[Any] | None = args
        if kwargs or len(args) < len(self._parameters):
            values = self._bound(args, kwargs or {})
            if values is None:
                return NotImplemented
        unpacked = self.unpack(values)
        known = None if unpacked is None else self._known.get(unpacked[0])
        return NotImplemented if unpacked is None or known is None else known(*unpacked[1])

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """The values of all parameters; None for what `Signature.bind` has to look at."""
        if not self._plain:
            return None
        values, named = list(args), 0
        for p in self._parameters[len(args) :]:
            if p.name in kwargs:
                values.append(kwargs[p.name])
                named += 1
            elif p.default is not Parameter.empty:
                values.append(p.default)
            else:
                return None
        return values if named == len(kwargs) else None

    def register(
        self,
        values: Sequence[Any],
        call: Arguments,
        kernel: Kernel,
        guards: Sequence[Any],
        convert: Callable[[Any], Any] | None,
    ) -> None:
        """Let later calls with such values run `kernel`, where the kinds of the arguments decide everything."""
        unpacked = None if call.extents else self.unpack(values)  # extents: of symbols in annotations
        if unpacked is None:
            return
        form, flat = unpacked
        plan = self.plan(values, flat, call)
        if plan is None:
            return
        if form not in self._known:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[form] = Dispatcher([f"a{k}" for k in range(len(flat))], _unknown)
        self._known[form].register(tuple(flat), self._entry(kernel, form), plan, tuple(guards), convert)

    def clear(self) -> None:
        """Forget all kernels."""
        for known in self._known.values():
            known.clear()

    def _entry(self, kernel: Kernel, form: Any) -> Entry:
        """The entry of a kernel for unpacked arguments: a failure is told of the containers."""
        own = kernel.entry

        def failed(holder: Kernel, site: int, v0: int, v1: int, v2: int, args: tuple[Any, ...], *more: Any) -> None:
            __tracebackhide__ = True
            fail(holder, site, v0, v1, v2, self.again(form, iter(args)), *more)

        return Entry(
            own.runtime,
            own.address,
            own.results,
            holder=kernel,
            on_failure=failed,
            keep_gil_below=own.keep_gil_below,
            max_threads=own.max_threads,
        )


def _unknown(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    return NotImplemented
