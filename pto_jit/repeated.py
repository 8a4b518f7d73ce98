# SPDX-License-Identifier: MIT
"""The fast path of kernels for devices: calls like earlier ones enqueue what those did, with other pointers.

What a program enqueues is recorded when it is called with such arguments for the second time (`targets.cuda.replay`);
the first one may be the only one.  Numbers are compared by value: a call whose numbers are new takes the slow path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.errors import ArgumentError
from pto_jit.runtime.tensors import TensorView, as_tensor
from pto_jit.targets.cuda.replay import ALIGNMENT, Recorded

if TYPE_CHECKING:
    from pto_jit.device_kernel import DeviceKernel
    from pto_jit.reading import Arguments

_VALUES = (int, bool, str, type(None))
_MOST = 256  # kinds of calls of a function that are remembered


class Repeated:
    """What knows the calls of one function, or of one compiled version of it."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], tuple[DeviceKernel, Recorded | None]] = {}
        self._once: set[tuple[Any, ...]] = set()  # keys of calls that may come again

    def call(
        self, values: Sequence[Any], content: Any, launch: Callable[[], tuple[Any, DeviceKernel, Arguments]]
    ) -> Any:
        """The result of a call with such arguments.

        content: tells what else a compiled program depends on.  launch: the slow path, which gives the result, the
        kernel that ran, and what was found of the arguments.
        """
        __tracebackhide__ = True
        known, once = self._known, self._once  # other ones when the settings have changed meanwhile
        seen = _seen(values) if known or len(once) < _MOST else None  # else its numbers are always new
        if seen is None:
            return launch()[0]
        key, views = (content, *seen[0]), seen[1]
        found = known.get(key)
        if found is not None:
            kernel, recorded = found
            result = NotImplemented if recorded is None else kernel.launch_again(recorded, views)
            return launch()[0] if result is NotImplemented else result
        result, kernel, call = launch()
        if key in once:
            if len(known) >= _MOST:
                known.clear()
            known[key] = kernel, kernel.recorded(call)
        elif len(once) < _MOST:
            once.add(key)
        elif known:
            once.clear()
        return result

    def clear(self) -> None:
        """Forget all calls."""
        self._known, self._once = {}, set()


def _seen(values: Sequence[Any]) -> tuple[list[Any], list[TensorView]] | None:
    """What a program may depend on in arguments, and the tensors among them; None where the slow path has to look."""
    key: list[Any] = []
    views: list[TensorView] = []
    first: dict[int, int] = {}
    for value in values:
        kind = type(value)
        if kind in _VALUES:
            key += (kind, value)
        elif kind is float:
            key.append(repr(value))  # not all that are equal are the same, and NaN is not equal to itself
        else:
            try:
                view = as_tensor(value, device=True)
            except ArgumentError:
                return None
            if view is None or view.device != "cuda":
                return None
            same = first.setdefault(view.pointer, len(views))
            key.append((view.dtype, view.shape, view.strides, view.layout, view.writable, view.is_torch,
                        view.pointer % ALIGNMENT, same))  # fmt: skip
            views.append(view)
    return key, views
