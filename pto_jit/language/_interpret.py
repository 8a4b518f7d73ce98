# SPDX-License-Identifier: MIT
"""Running a kernel's original Python function on NumPy: what interpret mode is made of.

Arguments that are arrays (also inside tuples, lists and dictionaries) become `Tensor`s over the same memory, so that
views remember the extents they were asked for; results become plain arrays and Python numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import ml_dtypes
import numpy as np

from pto_jit.language._loops import set_loop_seed
from pto_jit.language._tile import Tensor, Tile, tensor

_active: ContextVar[bool] = ContextVar("pto_interpreting", default=False)


def active() -> bool:
    """Whether `run` is under way in this context: kernels that are called now run as Python, too."""
    return _active.get()


def run(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, seed: int = 0) -> Any:
    """Call `fn` as interpret mode does; `seed` chooses the order of parallel loops.

    >>> import numpy as np, pto_jit.language as pl
    >>> def double(x):
    ...     with pl.incore():
    ...         pl.store(pl.load(x) * 2, [0], x)
    ...     return x[0]
    >>> x = np.array([1.5, 2.0])
    >>> run(double, (x,), {}), x
    (3.0, array([3., 4.]))
    """
    nested = _active.set(True)
    before = set_loop_seed(seed)
    try:
        with np.errstate(all="ignore"):
            return _plain(fn(*(_wrapped(a) for a in args), **{k: _wrapped(v) for k, v in kwargs.items()}))
    finally:
        set_loop_seed(before)
        _active.reset(nested)


def _wrapped(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return tensor(value)
    if isinstance(value, (tuple, list)):
        items = [_wrapped(v) for v in value]
        if all(a is b for a, b in zip(items, value, strict=True)):
            return value  # a list without arrays stays the caller's list
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if type(value) is dict:
        items = {k: _wrapped(v) for k, v in value.items()}
        return value if all(items[k] is value[k] for k in value) else items
    if not isinstance(value, (Tile, np.generic, type)) and hasattr(value, "__dlpack__"):
        return tensor(np.asarray(value) if hasattr(value, "__array_interface__") else np.from_dlpack(value))
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.view(np.ndarray) if value.ndim else _plain(value.view(np.ndarray)[()])
    if isinstance(value, Tile):
        return value.numpy()
    if isinstance(value, ml_dtypes.bfloat16):
        return float(value)
    if isinstance(value, np.generic):
        return value.item()
    if type(value) in (tuple, list):
        return type(value)(_plain(v) for v in value)
    return value
