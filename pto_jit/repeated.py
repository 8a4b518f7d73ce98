# SPDX-License-Identifier: MIT
"""The fast path of kernels for devices: calls like earlier ones enqueue what those did, with other pointers.

What a program enqueues is recorded when it is called with such arguments for the second time (`targets.cuda.replay`);
the first one may be the only one.  Numbers that decide more than an argument of a kernel are compared by value: a call
with new ones takes the slow path.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.errors import ArgumentError
from pto_jit.runtime.tensors import TensorView, as_tensor
from pto_jit.slotted import frozen
from pto_jit.targets.cuda.replay import ALIGNMENT, Recorded

if TYPE_CHECKING:
    from pto_jit.device_kernel import DeviceKernel
    from pto_jit.reading import Arguments

_VALUES = (int, float, bool, str, type(None))
_MOST = 256  # kinds of calls of a function, and numbers of calls of a kind, that are remembered


@frozen(eq=False)
class _Kind:
    """Calls with tensors of the same extents, strides and alignments, and with the same compile-time values.

    recorded: by the numbers that decide something; once: such numbers that were met once.
    """

    kernel: DeviceKernel
    recorded: dict[tuple[str, ...], Recorded | None]
    once: set[tuple[str, ...]]

    def decisive(self, arguments: Sequence[Any]) -> tuple[str, ...]:
        """Numbers that are more than arguments of kernels; as text, because not all that are equal are the same."""
        passed = self.kernel.passed
        return tuple([repr(a) for k, a in enumerate(arguments) if type(a) in (int, float) and k not in passed])


class Repeated:
    """What knows the calls of one function, or of one compiled version of it."""

    def __init__(self, static: Collection[str]) -> None:
        """static: the names of parameters that are compile-time values."""
        self._static = static
        self._kinds: dict[tuple[Any, ...], _Kind] = {}
        self._pays = True

    def call(
        self, names: Sequence[str], values: Sequence[Any], content: Any,
        found: Callable[[], tuple[DeviceKernel, Arguments]],
    ) -> Any:  # fmt: skip
        """The result of a call with such arguments.

        content: tells what else a compiled program depends on.  found: the slow path, which gives the kernel and what
        it found of the arguments.
        """
        __tracebackhide__ = True
        kinds = self._kinds  # another one when the settings have changed meanwhile
        seen = self._seen(names, values) if self._pays else None
        if seen is None:
            kernel, call = found()
            return kernel.launch(call, tuple(values))
        key, arguments, views = (content, *seen[0]), seen[1], seen[2]
        kind = kinds.get(key)
        numbers = () if kind is None else kind.decisive(arguments)
        recorded = None if kind is None else kind.recorded.get(numbers)
        if kind is not None and recorded is not None:
            result = kind.kernel.launch_again(recorded, arguments, views)
            if result is not NotImplemented:
                return result
        kernel, call = found()
        result = kernel.launch(call, tuple(values))
        if kind is None:
            if len(kinds) >= _MOST:
                kinds.clear()
            kind = kinds[key] = _Kind(kernel, {}, set())
            kind.once.add(kind.decisive(arguments))
        elif numbers not in kind.recorded:
            self._note(kind, numbers, call)
        return result

    def _note(self, kind: _Kind, numbers: tuple[str, ...], call: Arguments) -> None:
        """Remember a call that was launched; what it enqueues, if there was one like it."""
        if numbers in kind.once:
            if len(kind.recorded) >= _MOST:
                kind.recorded.clear()
            kind.recorded[numbers] = kind.kernel.recorded(call)
        elif len(kind.once) < _MOST:
            kind.once.add(numbers)
        elif kind.recorded:
            kind.once.clear()
        else:
            self._pays = False  # its numbers are always new

    def clear(self) -> None:
        """Forget all calls."""
        self._kinds, self._pays = {}, True

    def _seen(
        self, names: Sequence[str], values: Sequence[Any]
    ) -> tuple[list[Any], list[Any], list[TensorView]] | None:
        """What a program may depend on in arguments but for numbers, the arguments that it has at run time, and the
        tensors among them; None where the slow path has to look."""
        key: list[Any] = []
        arguments: list[Any] = []
        views: list[TensorView] = []
        first: dict[int, int] = {}
        for name, value in zip(names, values, strict=True):
            kind = type(value)
            if kind in _VALUES:
                key.append(kind)
                if kind in (int, float) and name not in self._static:
                    arguments.append(value)
                else:
                    key.append(repr(value) if kind is float else value)
                continue
            try:
                view = as_tensor(value, device=True)
            except ArgumentError:
                return None
            if view is None or view.device != "cuda":
                return None
            same = first.setdefault(view.pointer, len(views))
            key.append((view.dtype, view.shape, view.strides, view.layout, view.writable, view.is_torch,
                        view.pointer % ALIGNMENT, same))  # fmt: skip
            arguments.append(value)
            views.append(view)
        return key, arguments, views
