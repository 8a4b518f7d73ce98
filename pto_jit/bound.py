# SPDX-License-Identifier: MIT
"""Kernels that are methods, through an object that has them."""

from __future__ import annotations

import copy
import functools
import types
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from pto_jit.source import KernelMethod

if TYPE_CHECKING:
    from pto_jit.compiled import Compiled

P = ParamSpec("P")
R = TypeVar("R")


class BoundKernel(KernelMethod, Generic[P, R]):
    """A compiled method of an object: `layer.forward(x)`, `layer.forward.compile(x)`.

    `__func__` is its `JitFunction`, `__self__` the object.
    """

    __slots__ = ()

    def __init__(self, fn: Any, instance: Any) -> None:
        self.__func__ = fn
        self.__self__ = instance

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.__func__(self.__self__, *args, **kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> Compiled:
        """As `JitFunction.compile`, of this object: what is compiled is called like the method, without the object."""
        return self.__func__.compile(self.__self__, *args, **kwargs).of(self.__self__)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__func__, name)
        if isinstance(found, types.MethodType) and found.__self__ is self.__func__ and name != "specializations":
            return functools.partial(found, self.__self__)
        return found

    @property
    def __signature__(self) -> Any:
        signature = self.__func__.__signature__
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self.__func__.__doc__

    def __eq__(self, other: object) -> bool:
        """As bound methods compare: one function of one object."""
        if not isinstance(other, BoundKernel):
            return NotImplemented
        return self.__func__ is other.__func__ and self.__self__ is other.__self__

    def __hash__(self) -> int:
        return hash((id(self.__func__), id(self.__self__)))

    def __reduce__(self) -> Any:
        """Pickled and copied like a bound method: the method of that name of the object."""
        return getattr, (self.__self__, self.__func__.__name__)

    def __deepcopy__(self, memo: Any) -> BoundKernel[P, R]:
        """The method of a copy of the object."""
        return BoundKernel(self.__func__, copy.deepcopy(self.__self__, memo))

    def __repr__(self) -> str:
        return f"<{self.__func__!r} of {self.__self__!r}>"
