# SPDX-License-Identifier: MIT
"""Calls of NumPy's functions with tiles and tensors of eager mode."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pto_jit.language import _eager as eager
from pto_jit.language._number import interpreting

_OPERATORS: dict[Any, str] = {
    np.add: "add", np.subtract: "sub", np.multiply: "mul", np.true_divide: "div", np.floor_divide: "floordiv",
    np.remainder: "mod", np.power: "pow", np.bitwise_and: "and", np.bitwise_or: "or", np.bitwise_xor: "xor",
    np.left_shift: "shl", np.right_shift: "shr", np.negative: "neg", np.absolute: "abs", np.invert: "not",
    np.equal: "eq", np.not_equal: "ne", np.less: "lt", np.less_equal: "le", np.greater: "gt",
    np.greater_equal: "ge",
}  # fmt: skip


METHODS = ("std", "var", "cumsum", "cumprod", "argsort", "clip", "round", "squeeze", "dot", "flatten", "ravel")
"""Methods of NumPy's arrays that are other functions of the language than of NumPy."""


class OfNumPy:
    """A value that NumPy's functions take: what the language has is the language's, anything else is NumPy's, of plain
    arrays."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "__call__" and not kwargs:
            if ufunc is np.matmul:
                return eager.dot(inputs[0], inputs[1], None, None)
            name = _OPERATORS.get(ufunc)
            if name is not None:
                return eager.elementwise(name, *inputs)
            meaning = self._meaning(ufunc)
            if meaning is not None:
                return meaning(*inputs)
        arrays, options = _plain((inputs, kwargs))
        return getattr(ufunc, method)(*arrays, **options)

    def _meaning(self, function: Any) -> Any:
        """What the language has for a function: outside of kernels a tensor is an array of NumPy's."""
        of_language = interpreting.get() or not isinstance(self, np.ndarray)
        return _meanings().MEANING.get(function) if of_language else None

    def __getattr__(self, name: str) -> Any:
        """The methods of NumPy's arrays that tiles do not have themselves."""
        method = None if name.startswith("_") else _meanings().METHODS.get(name)
        if method is None:
            raise AttributeError(f"a {type(self).__name__.lower()} has no attribute `{name}`")
        return functools.partial(method, self)

    def __array_function__(self, function: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        meaning = self._meaning(function)
        if meaning is not None:
            return meaning(*args, **kwargs)
        if interpreting.get() and function in _meanings().LIKE:
            return _like(_meanings().LIKE[function], *args, **kwargs)
        arrays, options = _plain((args, kwargs))
        return function(*arrays, **options)


def method_of_tensors(name: str) -> Any:
    """In interpret mode the language's, else NumPy's."""
    of_array = getattr(np.ndarray, name)

    @functools.wraps(of_array)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if interpreting.get():
            return _meanings().METHODS[name](self, *args, **kwargs)
        return of_array(self.view(np.ndarray), *args, **kwargs)

    return method


def _meanings() -> Any:
    from pto_jit.language import _numpy_meaning  # which this package's functions make up

    return _numpy_meaning


def _like(new: Any, prototype: Any, *value: Any, dtype: Any = None) -> Any:
    return new(prototype.shape, *value, prototype.dtype if dtype is None else dtype)


def _plain(value: Any) -> Any:
    """The same with NumPy's arrays in place of tiles and tensors."""
    if isinstance(value, OfNumPy):
        return np.asarray(value)
    if isinstance(value, (tuple, list)):
        return type(value)(_plain(item) for item in value)
    return {k: _plain(item) for k, item in value.items()} if isinstance(value, dict) else value
