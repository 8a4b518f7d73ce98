# SPDX-License-Identifier: MIT
"""The operations on lists by their definitions, on Python's lists of arrays: what `pto_jit.fractal` must agree with.

Lists of tuples are lists of tuples here; tuples of lists come of bodies that give tuples.
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

Any_list = list[Any]


def columns(values: Any_list) -> Any:
    """What a parallel function makes of the values that its body gave."""
    if values and isinstance(values[0], tuple):
        return tuple(columns([v[k] for v in values]) for k in range(len(values[0])))
    return values


def map(f: Any, x: Any_list, **kwargs: Any) -> Any:
    return columns([f(e, **kwargs) for e in x])


def filter(f: Any, x: Any_list) -> Any_list:
    return [e for e in x if f(e)]


def states(f: Any, x: Any_list, init: Any) -> Any_list:
    found = []
    rest = x
    if init is None and x:
        found, rest = [x[0]], x[1:]
        init = x[0]
    for e in rest:
        init = f(init, e)
        found.append(init)
    return found


def scan(f: Any, x: Any_list, init: Any = None) -> Any:
    found = states(f, x, init)
    return columns(found) if found or not isinstance(init, tuple) else tuple([] for _ in init)


def scanr(f: Any, x: Any_list, init: Any = None) -> Any:
    found = scan(f, x[::-1], init)
    return tuple(c[::-1] for c in found) if isinstance(found, tuple) else found[::-1]


def fold(f: Any, x: Any_list, init: Any = None) -> Any:
    return states(f, x, init)[-1] if x else init


def foldr(f: Any, x: Any_list, init: Any = None) -> Any:
    return fold(f, x[::-1], init)


reduce = fold


def dilated_map(f: Any, x: Any_list, dilation: int) -> Any_list:
    found: Any_list = [None] * len(x)
    for r in range(builtins.min(dilation, len(x))):
        found[r::dilation] = f(x[r::dilation])
    return found


def zip(*lists: Any) -> Any:
    if lists and isinstance(lists[0], tuple):
        return tuple(list(column) for column in builtins.zip(*lists, strict=True))
    return list(builtins.zip(*lists, strict=True))


def enumerate(*lists: Any_list) -> Any_list:
    return list(builtins.zip(range(len(lists[0])), *lists, strict=True))


def product(x: Any_list, y: Any_list) -> tuple[Any_list, Any_list]:
    return [list(x) for _ in y], [[e] * len(x) for e in y]


def join(*lists: Any_list) -> Any_list:
    return [e for x in lists for e in x]


def index(x: Any_list, i: int) -> Any:
    return x[i]


def slice(x: Any_list, start: Any = None, stop: Any = None, step: Any = None) -> Any_list:
    return x[start:stop:step]


def gather(x: Any_list, indices: Any) -> Any_list:
    return [x[i] for i in indices]


def head(x: Any_list) -> Any:
    return x[0]


def tail(x: Any_list) -> Any:
    return x[-1]


def reverse(x: Any_list) -> Any_list:
    return x[::-1]


def repeat(x: Any, k: int) -> Any_list:
    return [x] * k


def length(x: Any_list) -> int:
    return len(x)


def filled(like: Any, value: Any) -> Any:
    """A list or array of that form with every number `value`."""
    return [filled(e, value) for e in like] if isinstance(like, list) else np.full_like(like, value)


def slide(x: Any_list, window: int, stride: int = 1, dilation: int = 1, padding: int = 0, value: Any = 0) -> Any_list:
    n = len(x)
    count = (n + 2 * padding - dilation * (window - 1) - 1) // stride + 1 if n else 0
    at = [[i * stride - padding + k * dilation for k in range(window)] for i in range(count)]
    return [[x[j] if 0 <= j < n else filled(x[0], value) for j in row] for row in at]


def window(x: Any_list, i: int, width: int, dilation: int = 1, value: Any = 0) -> Any_list:
    at = [i + (k - width // 2) * dilation for k in range(width)]
    return [x[j] if 0 <= j < len(x) else filled(x[0], value) for j in at] if x else []


def shifted_window(x: Any_list, i: int, width: int, dilation: int = 1) -> Any_list:
    return [x[(i + (k - width // 2) * dilation) % len(x)] for k in range(width)] if x else []


def shifted_slide(x: Any_list, window: int, dilation: int = 1) -> Any_list:
    return [shifted_window(x, i, window, dilation) for i in range(len(x))]


def split(x: Any, n: int, axis: int = 0) -> Any_list:
    if isinstance(x, list):
        return [x[i * (len(x) // n) : (i + 1) * (len(x) // n)] for i in range(n)]
    return np.split(x, n, axis)


def slices(x: np.ndarray, axis: int = 0) -> Any_list:
    return np.split(x, x.shape[axis], axis) if x.shape[axis] else []


def unbind(x: np.ndarray, axis: int = 0) -> Any_list:
    return [x.take(i, axis) for i in range(x.shape[axis])]


def flatten(x: Any_list) -> Any_list:
    return [leaf for e in x for leaf in (flatten(e) if isinstance(e, list) else [e])]


def stack(x: Any_list) -> np.ndarray:
    return np.stack(x)


def zeros(*shape: int, dtype: Any) -> np.ndarray:
    return np.zeros(shape, dtype.numpy)
