# SPDX-License-Identifier: MIT
"""Kernels in copies and in pickles: by name, as functions are, or with their code, where the pickler ships code.

pickle stores functions by name; cloudpickle and dill store those of `__main__`, lambdas and results of factories by
value.  A kernel leaves that to the pickler: its pickle holds its *carrier*, a copy of its Python function that is found
under `<kernel>.__pto_carrier__`.  The carrier has the text of the file beside it, since kernels compile from source.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from functools import reduce
from types import FunctionType
from typing import Any, Self
from weakref import WeakValueDictionary

_kernels: WeakValueDictionary[int, Any] = WeakValueDictionary()  # by the id of their carriers, which they keep
_ENDING = ".__pto_carrier__"


class CopiedLikeFunction:
    """Copied like a function: not at all."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self


def reduced(kernel: Any, fn: Callable[..., Any], protocol: int, *rest: Any) -> Any:
    """What `__reduce_ex__` returns for a kernel made as `type(kernel)(fn, *rest)`."""
    importable = kernel.__module__ != "__main__" and _named(kernel.__module__, kernel.__qualname__) is kernel
    if importable or protocol < 4 or not isinstance(fn, FunctionType):
        return kernel.__qualname__
    return _restored, (type(kernel), kernel.__pto_carrier__, *rest)


def carrier(kernel: Any, fn: FunctionType, annotations: dict[str, Any]) -> FunctionType:
    """The function that stands for a kernel of `fn` in pickles; the same one at every call.

    annotations: as values, since their text may have a meaning in this process only.
    """
    found = kernel.__dict__.get("_carrier")
    if found is None:
        found = FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
        found.__kwdefaults__, found.__annotations__ = fn.__kwdefaults__, dict(annotations)
        found.__module__, found.__qualname__, found.__doc__ = fn.__module__, fn.__qualname__ + _ENDING, fn.__doc__
        found.__dict__["_file"] = "".join(linecache.getlines(fn.__code__.co_filename, fn.__globals__))
        kernel.__dict__["_carrier"] = found
        _kernels[id(found)] = kernel
    return found


def _named(module: str, qualname: str) -> Any:
    try:
        return reduce(getattr, qualname.split("."), sys.modules[module])
    except (KeyError, AttributeError):
        return None


def _restored(kind: Callable[..., Any], fn: FunctionType, *rest: Any) -> Any:
    """The kernel of a carrier: that of this process, or a new one of a function that came with its code."""
    kernel = _kernels.get(id(fn))
    if kernel is not None:
        return kernel
    text, name = fn.__dict__.pop("_file", ""), fn.__code__.co_filename
    if text and not linecache.getlines(name):
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    fn.__qualname__ = fn.__qualname__.removesuffix(_ENDING)
    return kind(fn, *rest)
