# SPDX-License-Identifier: MIT
"""A FractalTensor as the argument of a kernel: its leaves and the offsets of its levels, in memory in their order.

Depth, leaf shape and element type are known at compile time; all lengths are run-time values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pto_jit.codegen.params import ContainerParam, Param, ParamKind, TensorParam
from pto_jit.codegen.spelling import Place
from pto_jit.errors import CompilationError, TypeMismatchError
from pto_jit.fractal import results  # noqa: F401 - what is in the disk cache names its class
from pto_jit.fractal.compile.lists import ListLike, Lists
from pto_jit.fractal.tensor import FractalTensor
from pto_jit.slotted import replace

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

ANY_LENGTH = "Python would go through a FractalTensor whose length is a run-time value"
ANY_LENGTH_HINT = "say what becomes of an element: `ft.map`, `ft.fold`, `ft.scan`; a loop is `for i in range(len(x))`"

Describe = Callable[[np.ndarray[Any, Any], tuple[int | None, ...]], TensorParam]


class Argument(ListLike):
    """What stands for a FractalTensor argument: its leaves and offsets as tensors; `depth` levels of lists."""

    __slots__ = ("__weakref__", "depth", "leaves", "lists", "offsets")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.leaves: Any = None
        self.offsets: Any = ()
        self.lists: Any = None

    def of(self, g: Generator) -> Lists:
        """As a list: made once, so that two uses are the same array."""
        if self.lists is None:
            from pto_jit.fractal.compile.session import session_of

            self.lists = session_of(g).argument(self)
        return self.lists

    def __pto_places__(self, text: str) -> Iterator[Place]:
        """How the leaves and the offsets are written, in the order of their parameters."""
        count = {} if self.depth > 1 else {0: (f"len({text})", 0)}
        yield Place(f"{text}.leaves", count)
        for level in range(self.depth - 1):
            yield Place(f"{text}.offsets[{level}]", {} if level else {0: (f"len({text})", 1)})

    def __copy__(self) -> Argument:
        return Argument(self.depth)

    def __repr__(self) -> str:
        return f"of depth {self.depth}"

    def __pto_item__(self, g: Generator, item: Any) -> Any:
        return self.of(g).__pto_item__(g, item)

    def __pto_length__(self, g: Generator) -> Any:
        return self.of(g).__pto_length__(g)

    def __pto_attribute__(self, g: Generator, name: str) -> Any:
        return self.of(g).__pto_attribute__(g, name)

    def __pto_result__(self, g: Generator) -> Any:
        raise g.error(
            TypeMismatchError,
            "a FractalTensor argument is returned",
            code="PTO-F110",
            hint="the caller has it already: return something computed from it",
        )

    def __pto_runtime__(self) -> Any:
        return self

    def __iter__(self) -> Any:
        raise CompilationError(ANY_LENGTH, code="PTO-F108", hint=ANY_LENGTH_HINT)


Argument.__name__ = "FractalTensor"  # in messages


def described(value: FractalTensor, tensor: Describe) -> tuple[ParamKind, Any]:
    """What the compiler is told, and the key; `tensor` describes an array with some extents fixed."""
    leaves = np.ascontiguousarray(value.leaves)
    if value.leaves.ndim == 0:
        leaves = leaves.reshape(())
    params = [tensor(leaves, (None, *leaves.shape[1:]))]
    params += [tensor(np.ascontiguousarray(o), (None,)) for o in value.offsets]
    inside = ContainerParam("tuple", tuple(enumerate(params[1:])), (None,) * (len(params) - 1))
    what = ContainerParam("object", (("leaves", params[0]), ("offsets", inside)), Argument(value.depth))
    return what, ("fractal", value.depth, value.dtype.name, tuple(value.leaf_shape))


def specialised(params: Sequence[Param], shapes: Sequence[tuple[int, ...]]) -> tuple[list[Param], tuple[Any, ...]]:
    """The parameters of a kernel that takes lists: tensors beside them have their extents, but for the first axis.

    They stand for lists of tensors (of weights, of embeddings), whose leaf shape is known at compile time as well; an
    extent of 1 is known on the first axis, too, so that a row [1, n] is added to others as outside of kernels.  Gives
    also what of the shapes is known, for the key.
    """
    rest = iter(shapes)
    known: list[tuple[int | None, ...]] = []

    def fixed(what: ParamKind, listed: bool = False) -> ParamKind:
        if isinstance(what, TensorParam):
            shape = next(rest, None)  # `pto.spec` arguments have no data
            if shape is None or len(shape) != what.type.rank or what.type.rank < 2:
                return what
            axes = tuple(  # the number of leaves of a list is never known, not even that it is 1
                n if k or (n == 1 and not listed) or m is not None else m
                for k, (n, m) in enumerate(zip(shape, what.type.shape, strict=True))
            )
            known.append(axes)
            if axes == what.type.shape:  # the leaves of a list
                return what
            return TensorParam(replace(what.type, shape=axes), what.symbols)
        if isinstance(what, ContainerParam):
            inside = listed or isinstance(what.value, Argument)
            items = tuple((key, fixed(item, inside)) for key, item in what.items)
            if all(new is old for (_, new), (_, old) in zip(items, what.items, strict=True)):
                return what
            return ContainerParam(what.kind, items, what.value)
        return what

    return [Param(p.name, fixed(p.what)) for p in params], tuple(known)
