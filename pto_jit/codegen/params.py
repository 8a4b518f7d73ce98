# SPDX-License-Identifier: MIT
"""What the front end is told about a kernel's arguments: which are run-time values and which are known now.

The run-time leaves of all parameters, in order, are the parameters of the compiled function.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pto_jit.dtypes import DType
from pto_jit.ir.types import TensorType
from pto_jit.slotted import frozen


@frozen
class TensorParam:
    """A tensor argument; extents that an annotation fixes are in `type.shape`.

    Axes with one symbol (over all tensors of a call) have one extent.
    """

    type: TensorType
    symbols: tuple[str | None, ...] = ()


@frozen
class ScalarParam:
    """A run-time number. `weak`: it was a Python int (i64) or float (f64)."""

    dtype: DType
    weak: bool


@frozen
class StaticParam:
    """A compile-time value: the object itself."""

    value: Any


@frozen
class ContainerParam:
    """A tuple, list, dict, dataclass or other object with tensors inside.

    `items` are (index, key or attribute name, what stands there).  For an "object" (a dataclass instance, `self`)
    `value` is the original, or what `hollow` leaves of it; attributes not in `items` are read from it.
    """

    kind: Literal["tuple", "list", "dict", "object"]
    items: tuple[tuple[Any, ParamKind], ...]
    value: Any = None


ParamKind = TensorParam | ScalarParam | StaticParam | ContainerParam


@frozen
class Param:
    """One Python parameter of the kernel (each surplus positional argument of `*args` is one of its own)."""

    name: str
    what: ParamKind


def leaves(what: ParamKind) -> Iterator[TensorParam | ScalarParam]:
    """The run-time values inside `what`, in order."""
    if isinstance(what, (TensorParam, ScalarParam)):
        yield what
    elif isinstance(what, ContainerParam):
        for _, item in what.items:
            yield from leaves(item)


def filled(what: ContainerParam, items: Mapping[Any, Any]) -> Any:
    """The container with other run-time items."""
    if what.kind == "dict":
        return {**(what.value or {}), **items}
    if what.kind == "object":
        clone = copy.copy(what.value)
        for name, value in items.items():
            object.__setattr__(clone, name, value)
        return clone
    values = list(what.value) if what.value is not None else [None] * len(items)
    for key, value in items.items():
        values[key] = value
    if what.kind == "list":
        return values
    template = type(what.value)
    return template(*values) if hasattr(template, "_fields") else tuple(values)


def hollow(what: ParamKind) -> ParamKind:
    """The same without the tensors and numbers of a call, which a kernel that is kept has no use for."""
    if not isinstance(what, ContainerParam):
        return what
    items = tuple((key, hollow(item)) for key, item in what.items)
    return ContainerParam(what.kind, items, filled(what, dict.fromkeys(key for key, _ in items)))
