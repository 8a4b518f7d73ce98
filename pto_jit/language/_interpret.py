# SPDX-License-Identifier: MIT
"""Running a kernel's original Python function on NumPy: what interpret mode is made of.

Arguments that are arrays (also inside tuples, lists, dictionaries and the fields of objects) become `Tensor`s over the
same memory, so that views remember the extents they were asked for; numbers become run-time numbers, which compute as
compiled code does; results become plain arrays and Python numbers.  Accesses to memory are noted, so that iterations of
a parallel loop that touch one element are a RaceError.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from pto_jit.dtypes import DType
from pto_jit.errors import CompilationError, Loc, TypeMismatchError, UnsupportedSyntaxError
from pto_jit.language import _races as races
from pto_jit.language._loops import set_loop_seed
from pto_jit.language._number import interpreting, number, plain
from pto_jit.language._scopes import kernel
from pto_jit.language._tile import Tensor, Tile, tensor

_NUMBERS = (int, float, np.generic)
_OPAQUE = (*_NUMBERS, str, bytes, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, DType, Tile)


def active() -> bool:
    """Whether `run` is under way in this context: kernels that are called now run as Python, too."""
    return interpreting.get()


def run(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    seed: int = 0,
    static: frozenset[str] = frozenset(),
    scoped: bool = False,
) -> Any:
    """Call `fn` as interpret mode does; `seed` chooses the order of parallel loops, `static` names the parameters
    whose numbers are compile-time values, `scoped`: the function has in-core scopes, so its body is orchestration.

    Raises RaceError when two iterations of a parallel loop touch one element and at least one writes it, LaunchError
    for an element of `pl.empty` that is read before it is written; and what the function itself raises.

    >>> import numpy as np, pto_jit.language as pl
    >>> def double(x):
    ...     with pl.incore():
    ...         pl.store(pl.load(x) * 2, [0], x)
    ...     return x[0]
    >>> x = np.array([1.5, 2.0])
    >>> run(double, (x,), {}), x
    (3.0, array([3., 4.]))
    """
    _require_plain(fn)
    wrap = _Wrapping()
    bound = inspect.signature(fn).bind(*args, **kwargs)
    for name, value in bound.arguments.items():
        several = bound.signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        if name not in static:
            bound.arguments[name] = tuple(map(wrap.argument, value)) if several else wrap.argument(value)
    arrays = [pair for name, value in bound.arguments.items() for pair in races.named(name, value)]
    nested = interpreting.set(True)
    noting = races.start(fn, [*arrays, *wrap.fields])
    before = set_loop_seed(seed)
    try:
        with np.errstate(all="ignore"):
            return _plain(inside(fn, bound.args, bound.kwargs, scoped), [array for _, array in arrays], [])
    finally:
        set_loop_seed(before)
        races.stop(noting)
        interpreting.reset(nested)


def inside(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], scoped: bool) -> Any:
    """Call a kernel's function where interpret mode is under way."""
    before = kernel.set((fn.__code__, scoped)) if isinstance(fn, types.FunctionType) else None
    try:
        return fn(*args, **kwargs)
    finally:
        if before is not None:
            kernel.reset(before)


def _require_plain(fn: Any) -> None:
    """Refuse what the compiler refuses and Python would not run: calling it makes a coroutine or a generator."""
    code = getattr(fn, "__code__", None)
    if code is None:
        return
    place = Loc(code.co_filename, code.co_firstlineno)
    if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise UnsupportedSyntaxError(
            "`async def` is not supported in a kernel", place, code="PTO-S020",
            hint="write a plain `def`: loops are made parallel with `pl.range(..., parallel=True)`",
        )  # fmt: skip
    if code.co_flags & inspect.CO_GENERATOR:
        raise UnsupportedSyntaxError(
            "`yield` is not supported in a kernel", place, code="PTO-S024",
            hint="return a tuple, or store the values to a tensor",
        )  # fmt: skip


class _Wrapping:
    """Arguments as interpret mode passes them; an object is wrapped once, however often it is met."""

    def __init__(self) -> None:
        self.known: dict[int, Any] = {}
        self.fields: list[tuple[str, np.ndarray]] = []  # arrays in objects, by the names of their fields

    def argument(self, value: Any) -> Any:
        """A whole argument: a number is a run-time number (inside a container it is a compile-time value)."""
        return number(value) if type(value) is not bool and isinstance(value, _NUMBERS) else self.value(value)

    def value(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return tensor(value)
        if isinstance(value, (tuple, list)):
            items = [self.value(v) for v in value]
            if all(a is b for a, b in zip(items, value, strict=True)):
                return value  # a list without arrays stays the caller's list
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        if type(value) is dict:
            items = {k: self.value(v) for k, v in value.items()}
            return value if all(items[k] is value[k] for k in value) else items
        if isinstance(value, _OPAQUE) or value is None:
            return value  # a number in here, too: it is a compile-time value
        if hasattr(type(value), "__dlpack__"):  # objects of the user's may answer to any name
            return tensor(np.asarray(value) if hasattr(value, "__array_interface__") else np.from_dlpack(value))
        return self.object(value)

    def object(self, value: Any) -> Any:
        """An object whose fields hold arrays: a copy of it that holds the tensors."""
        known = self.known.get(id(value))
        if known is not None:
            return known
        self.known[id(value)] = value
        if dataclasses.is_dataclass(value):
            names = [f.name for f in dataclasses.fields(value)]
        else:
            names = list(getattr(value, "__dict__", ()))
        changed = {}
        for name in names:
            field = getattr(value, name, None)
            wrapped = self.value(field)
            if wrapped is not field:
                changed[name] = wrapped
                self.fields += races.named(name, wrapped)
        if changed:
            twin = self.known[id(value)] = copy.copy(value)
            for name, wrapped in changed.items():
                object.__setattr__(twin, name, wrapped)
            return twin
        return value


def _plain(value: Any, arguments: list[np.ndarray], returned: list[np.ndarray]) -> Any:
    """What the caller gets: its own memory, none of the `arguments`' and each array once.

    Raises TypeMismatchError for an argument itself, as the compiler does.
    """
    value = plain(value)
    if isinstance(value, Tensor) and any(value is argument for argument in arguments):
        raise TypeMismatchError(
            "a tensor argument is returned", code="PTO-T046",
            hint="the caller has it already: return nothing, or a new tensor made with `pl.empty`",
        )  # fmt: skip
    if isinstance(value, Tensor) and value.ndim:
        array = value.view(np.ndarray)
        if any(np.may_share_memory(array, other) for other in (*arguments, *returned)):
            array = array.copy()
        returned.append(array)
        return array
    if isinstance(value, Tensor):
        value = value.view(np.ndarray)[()]
    if isinstance(value, Tile):
        return value.numpy()
    if isinstance(value, ml_dtypes.bfloat16):
        return float(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_plain(v, arguments, returned) for v in value))
    if type(value) in (tuple, list):
        return type(value)(_plain(v, arguments, returned) for v in value)
    if type(value) is dict:
        return {k: _plain(v, arguments, returned) for k, v in value.items()}
    if isinstance(value, types.GeneratorType):
        raise CompilationError(
            "a generator is returned", code="PTO-N040", hint="return a tuple, a list or a dict of them"
        )
    return value
