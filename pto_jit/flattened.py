# SPDX-License-Identifier: MIT
"""Calls with FractalTensors without the slow path: their arrays are the arguments of dispatchers.

A `Dispatcher` knows arrays and numbers, not lists.  A list is its leaves and the offsets of its levels, so a call with
lists is one with these in their places; there is a dispatcher for each way in which lists stand among the arguments,
which knows the kernels that such calls have found on the slow path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pto_jit.failures import fail
from pto_jit.fractal.tensor import FractalTensor
from pto_jit.kernel import Kernel
from pto_jit.reading import Arguments
from pto_jit.runtime import Dispatcher, Entry


class Flattened:
    """The dispatchers of one function."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], Dispatcher] = {}

    def call(self, args: tuple[Any, ...]) -> Any:
        """The result of a call with these positional arguments; NotImplemented, and nothing was run, when the slow path
        has to decide."""
        __tracebackhide__ = True
        depths, flat = _flat(args)
        known = self._known.get(depths)
        return NotImplemented if known is None else known(*flat)

    def register(
        self,
        values: Sequence[Any],
        call: Arguments,
        kernel: Kernel,
        guards: Sequence[Any],
        convert: Callable[[Any], Any] | None,
    ) -> None:
        """Let later calls with such values run `kernel`, where the kinds of the arguments decide everything."""
        if call.extents:
            return  # of symbols in annotations
        depths, flat = _flat(values)
        plan: list[str] = []
        for depth, mine in zip(depths, call.plan, strict=True):
            if mine is None and not depth:
                return
            lists = flat[len(plan) : len(plan) + depth]
            if not all(x.flags.c_contiguous for x in lists):
                return  # copies of them are what the kernel gets
            plan += ["tensor"] * depth if mine is None else [mine]
        # A kernel with lists is made for the extents of its tensors, but for the first axis.
        places = [k for k, what in enumerate(plan) if what == "tensor"]
        extents = [
            (k, axis, n)
            for k, (_, view) in zip(places, call.tensors, strict=True)
            for axis, n in enumerate(view.shape)
            if axis
        ]
        if depths not in self._known:
            self._known[depths] = Dispatcher([f"a{k}" for k in range(len(flat))], _unknown)
        self._known[depths].register(tuple(flat), _entry(kernel, depths), plan, tuple(guards), convert, extents)

    def clear(self) -> None:
        """Forget all kernels."""
        for known in self._known.values():
            known.clear()


def _unknown(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    return NotImplemented


def _flat(args: Sequence[Any]) -> tuple[tuple[int, ...], list[Any]]:
    """The depth of each argument that is a list, 0 for the others; the arguments with the arrays of the lists."""
    depths: list[int] = []
    flat: list[Any] = []
    for value in args:
        if type(value) is FractalTensor:
            flat.append(value.leaves)
            flat += value.offsets
            depths.append(1 + len(value.offsets))
        else:
            flat.append(value)
            depths.append(0)
    return tuple(depths), flat


def _entry(kernel: Kernel, depths: tuple[int, ...]) -> Entry:
    """The entry of a kernel for flattened arguments: a failure is told of the lists."""
    own = kernel.entry

    def failed(holder: Kernel, site: int, v0: int, v1: int, v2: int, args: tuple[Any, ...], *more: Any) -> None:
        __tracebackhide__ = True
        rest = iter(args)
        lists = [
            FractalTensor((next(rest),), None, [next(rest) for _ in range(depth - 1)]) if depth else next(rest)
            for depth in depths
        ]
        fail(holder, site, v0, v1, v2, tuple(lists), *more)

    return Entry(
        own.runtime,
        own.address,
        own.results,
        holder=kernel,
        on_failure=failed,
        keep_gil_below=own.keep_gil_below,
        max_threads=own.max_threads,
    )
