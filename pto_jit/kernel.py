# SPDX-License-Identifier: MIT
"""One specialisation, ready to run."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from pto_jit.arguments import Parameters
from pto_jit.building import Built
from pto_jit.codegen.params import Param, ScalarParam, StaticParam, TensorParam, leaves
from pto_jit.config import config
from pto_jit.errors import Loc
from pto_jit.failures import fail, show
from pto_jit.ir.types import format_shape
from pto_jit.options import Options
from pto_jit.reading import Arguments
from pto_jit.results import converter, leaf_items, result_plan
from pto_jit.runtime import Bound, Entry, Runtime, default_runtime
from pto_jit.slotted import field, frozen, mutable


@frozen
class Specialization:
    """One compiled version of a kernel.

    signature: the kinds of its arguments; origin: "compiled" or "disk"; reason: why it was needed; seconds: how long
    it took to make or load.
    """

    signature: str
    origin: str
    reason: str
    seconds: float


@mutable(eq=False)
class Kernel:
    """A specialisation with its machine code; the runtime gives it back when a launch fails or prints.

    key: of the arguments it was made for, one item per parameter; places: where failure sites are now, when that had
    to be found out.
    """

    info: Specialization
    built: Built
    function: Callable[..., Any]
    params: list[Param]
    key: tuple[Any, ...]
    options: Options
    entry: Entry = field(init=False)
    places: list[Loc] | None = None

    def __post_init__(self) -> None:
        items = leaf_items(self.built.program.result_plan)
        self.entry = Entry(
            runtime_for(self.options),
            self.built.program.entry_address,
            result_plan(self.built.results, items),
            holder=self,
            on_failure=fail,
            keep_gil_below=self.built.small_below,
        )

    @property
    def name(self) -> str:
        return self.function.__name__

    def converter(self, call: Arguments) -> Callable[[Any], Any] | None:
        """What turns the value of a launch into what a caller with such arguments gets."""
        return converter(self.built.results, call.torch)

    def find_places(self) -> list[Loc]:
        """Where the failure sites are in the source as it is now."""
        from pto_jit.compiler import lower, places_of_failure

        return places_of_failure(lower(self.function, self.params, self.options, quiet=True), self.options)

    def launch(self, call: Arguments, values: tuple[Any, ...]) -> Any:
        __tracebackhide__ = True
        result = self.entry.launch(call.slots, values, call.elements)
        convert = self.converter(call)
        return result if convert is None else convert(result)

    def bind(self, call: Arguments, values: tuple[Any, ...]) -> Bound | Callable[[], Any]:
        """A prepared launch, which keeps the arguments alive."""
        bound = self.entry.bind(call.slots, (*values, *call.owners), call.elements)
        convert = self.converter(call)
        return bound if convert is None else lambda: convert(bound())

    def check_writable(self, call: Arguments, parameters: Parameters) -> None:
        """Raise ArgumentError when a tensor that the kernel writes is read-only."""
        for index, (name, view) in enumerate(call.tensors):
            if not view.writable and index in self.built.program.written:
                raise parameters.error(
                    "PTO-A011", f"argument `{name}` is written by the kernel, but it is read-only",
                    f"pass a writable array, such as `{name}.copy()`", parameters.place(name),
                )  # fmt: skip

    def mismatch(self, call: Arguments) -> str | None:
        """Why this kernel cannot run on such arguments; None when it can."""
        if len(call.params) != len(self.params):
            return f"{len(call.params)} arguments for {len(self.params)}"
        position = 0  # among the tensors of the call
        count = len(self.params)  # a key may end with what is known of extents, which the parameters say as well
        for mine, given, key, wanted in zip(self.params, call.params, call.key[:count], self.key[:count], strict=True):
            a, b = mine.what, given.what
            if isinstance(a, TensorParam) and isinstance(b, TensorParam):
                shape = call.tensors[position][1].shape
                if not _takes(a, b, shape):
                    return f"`{given.name}` is {leaf_text(b, shape)}, {leaf_text(a)} is wanted"
            elif key != wanted:
                return f"`{given.name}` is {param_text(given)}, {param_text(mine)} is wanted"
            position += sum(isinstance(leaf, TensorParam) for leaf in leaves(b))
        return None


_STRICTNESS = {"c": 0, "inner": 1, "strided": 2}


def _takes(mine: TensorParam, given: TensorParam, shape: tuple[int, ...]) -> bool:
    """Whether code for `mine` is right for `given` with these extents: a general layout takes the special ones."""
    a, b = mine.type, given.type
    return (
        a.dtype == b.dtype
        and len(a.shape) == len(shape)
        and _STRICTNESS[a.layout] >= _STRICTNESS[b.layout]
        and all(wanted is None or wanted == extent for wanted, extent in zip(a.shape, shape, strict=True))
    )


def runtime_for(options: Options) -> Runtime:
    """The runtime that a kernel with these options runs on."""
    runtime = default_runtime(options.num_threads or config.num_threads)
    if runtime.on_print is None:
        runtime.on_print = show
    return runtime


def signature_text(call: Arguments) -> str:
    """The kinds of the arguments, for people."""
    return ", ".join(f"{p.name}: {param_text(p)}" for p in call.params)


def param_text(param: Param) -> str:
    kinds = [leaf_text(leaf) for leaf in leaves(param.what)]
    if kinds:
        return f"({' '.join(kinds)})" if len(kinds) > 1 else kinds[0]
    value = param.what.value if isinstance(param.what, StaticParam) else None
    for read in (operator.attrgetter("__name__"), repr):
        try:
            found = read(value)
        except Exception:  # what an object of the user's answers may fail in any way
            continue
        if found and isinstance(found, str):
            return f"{found:.40}"
    return type(value).__name__


def leaf_text(leaf: TensorParam | ScalarParam, shape: tuple[int | None, ...] | None = None) -> str:
    if isinstance(leaf, ScalarParam):
        return str(leaf.dtype)
    layout = "" if leaf.type.layout == "c" else f" {leaf.type.layout}"
    return f"{leaf.type.dtype}[{format_shape(shape or leaf.type.shape)}]{layout}"
