# SPDX-License-Identifier: MIT
"""The values of eager mode: `Tile`, and `Tensor`, a NumPy array whose views remember what they were asked for."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pto_jit import dtypes
from pto_jit.dtypes import DType
from pto_jit.errors import CompilationError, ShapeError, TypeMismatchError
from pto_jit.language import _eager as eager
from pto_jit.language import _indices as indices
from pto_jit.language import _memory_ops as memory
from pto_jit.language import _races as races
from pto_jit.language import _subscript as subscript
from pto_jit.language import _tile_ops as tiles
from pto_jit.language._annotations import tensor_spec
from pto_jit.language._number import interpreting, plain, shown
from pto_jit.language._numpy_calls import METHODS, OfNumPy, method_of_tensors
from pto_jit.language._operators import Operators
from pto_jit.language._places import site
from pto_jit.language._tile_value import TileValue, outside


def _ambiguous() -> TypeMismatchError:
    return TypeMismatchError(
        "the truth value of a tile is ambiguous",
        code="PTO-T026",
        hint="reduce it with `pl.any(t)` or `pl.all(t)`, or select elements with `pl.where`",
    )


def _items(value: Any) -> Iterator[Any]:
    """What a loop over a tile or tensor goes through: elements, or rows."""
    if not value.ndim:
        raise TypeMismatchError("a tile or tensor without axes is not iterable", code="PTO-T005",
                                hint="read its element: `x[()]`")  # fmt: skip
    return (value[k] for k in range(value.shape[0]))


class Tile(Operators, OfNumPy):
    """A value of in-core code: a declared `shape` and a valid part, which `numpy()` gives.

    Made by `pl.load`, `pl.arange` and the operations on tiles; operators, slices `t[1:3, 2:]`, new axes `t[:, None]`
    and elements `t[i, j]` mean what NumPy means on the valid part.
    """

    __slots__ = ("_value",)

    def __init__(self, value: TileValue) -> None:
        self._value = value

    @property
    def value(self) -> TileValue:
        """The tile as data."""
        return self._value

    @property
    def shape(self) -> tuple[int, ...]:
        """The declared extents."""
        return tuple(shown(n) for n in self._value.shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._value.rank

    @property
    def size(self) -> int:
        """The number of declared elements."""
        return int(np.prod(self._value.shape, dtype=np.int64))

    @property
    def dtype(self) -> DType:
        """The element type."""
        found = dtypes.from_numpy(self._value.data.dtype)
        assert found is not None
        return found

    @property
    def T(self) -> Any:
        """`pl.transpose(self)`: the axes in reverse order."""
        return eager.transpose(self, None)

    def numpy(self) -> np.ndarray:
        """A copy of the valid part."""
        return self._value.data.copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._value.data, dtype=dtype)

    def __len__(self) -> int:
        return self._value.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return _items(self)

    def __bool__(self) -> bool:
        raise _ambiguous()

    def __float__(self) -> float:
        raise TypeMismatchError(
            "a tile is not a number", code="PTO-T072", hint="read one element, `t[i, j]`, or reduce it"
        )

    __int__ = __index__ = __complex__ = __float__  # type: ignore[assignment]

    def __getitem__(self, key: Any) -> Any:
        if indices.at_indices(key):
            raise CompilationError("a tile at an index of `pl.axis`: comprehension statements read elements of tensors",
                                   code="PTO-R093", hint="store it to a tensor first")  # fmt: skip
        t, key = self._value, subscript.without_numbers(key)
        if subscript.has_tile(key, (Tile, Tensor, np.ndarray)):
            return self._look_up(key)
        items, new_axes = subscript.expand(key, t.rank, "a tile")
        bounds = [subscript.bounds(item, n) for item, n in zip(items, t.shape, strict=True)]
        if any(b.step != 1 for b in bounds):
            raise ShapeError("a slice of a tile with a step other than 1", code="PTO-H009",
                             hint="slice the tensor that it was loaded from, or use `pl.gather`")
        starts, extents = [b.start for b in bounds], [min(b.extent, max(0, n - b.start)) for b, n in zip(
            bounds, t.shape, strict=True)]  # fmt: skip
        drop = [axis for axis, b in enumerate(bounds) if b.dropped]
        if len(drop) == t.rank and not new_axes:
            return shown(tiles.extract(t, starts))
        for axis in drop:
            extents[axis] = 1
        return Tile(tiles.expand_dims(tiles.tile_slice(t, starts, extents, drop), new_axes))

    def _look_up(self, key: Any) -> Any:
        """`t[index]` of a tile with one axis, in the shape of the index."""
        t = self._value
        if t.rank > 1:
            raise TypeMismatchError(f"a tile of rank {t.rank} indexed with a tile", code="PTO-T036",
                                    hint=subscript.for_masks(key, "use `pl.gather(t, index, axis)`"))  # fmt: skip
        (item,) = (i for i in (key if isinstance(key, tuple) else (key,)) if i is not Ellipsis)
        chosen = eager.tile_of(item, "an index")
        flat = tiles.reshape(chosen, (int(np.prod(chosen.shape)),))
        return Tile(tiles.reshape(tiles.gather(t, flat, 0), chosen.shape))

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeMismatchError("an element of a tile cannot be assigned: tiles are values", code="PTO-T038",
                                hint="build the new tile with `pl.where`, or write to a tensor")  # fmt: skip

    def __repr__(self) -> str:
        t = self._value
        extent = "" if t.complete else f", shape={t.shape}"
        return f"Tile({np.array2string(t.data, separator=', ', prefix='Tile(')}, {self.dtype!r}{extent})"

    def __format__(self, spec: str) -> str:
        return format(self._value.data, spec) if spec else str(self._value.data)

    def astype(self, dtype: Any) -> Any:
        """`pl.cast(self, dtype)`."""
        return eager.cast(self, dtype)

    def sum(self, axis: Any = None, keepdims: bool = False) -> Any:
        """`pl.sum(self, axis, keepdims)`."""
        return eager.reduction("sum", self, axis, keepdims)

    def prod(self, axis: Any = None, keepdims: bool = False) -> Any:
        """`pl.prod(self, axis, keepdims)`."""
        return eager.reduction("prod", self, axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Any:
        """`pl.max(self, axis, keepdims)`."""
        return eager.reduction("max", self, axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Any:
        """`pl.min(self, axis, keepdims)`."""
        return eager.reduction("min", self, axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Any:
        """`pl.mean(self, axis, keepdims)`."""
        return eager.mean(self, axis, keepdims)

    def any(self, axis: Any = None, keepdims: bool = False) -> Any:
        """`pl.any(self, axis, keepdims)`."""
        return eager.reduction("any", self, axis, keepdims)

    def all(self, axis: Any = None, keepdims: bool = False) -> Any:
        """`pl.all(self, axis, keepdims)`."""
        return eager.reduction("all", self, axis, keepdims)

    def argmax(self, axis: Any = None, keepdims: bool = False) -> Any:
        """`pl.argmax(self, axis, keepdims)`."""
        return eager.arg_reduction("argmax", self, axis, keepdims)

    def argmin(self, axis: Any = None, keepdims: bool = False) -> Any:
        """`pl.argmin(self, axis, keepdims)`."""
        return eager.arg_reduction("argmin", self, axis, keepdims)

    def reshape(self, *shape: Any) -> Any:
        """`pl.reshape(self, shape)`, the shape as one sequence or as its extents."""
        return eager.reshape(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Any:
        """`pl.transpose(self, axes)`, the axes as one sequence, one by one, or none: reversed."""
        return eager.transpose(self, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None)


def _called_by_numpy(reduce: Any) -> Any:
    """The method, which functions such as `np.max` call with a `dtype` and an `out` of None besides."""

    @functools.wraps(reduce)
    def method(self: Tile, axis: Any = None, keepdims: bool = False, *, dtype: None = None, out: None = None) -> Any:
        if dtype is not None or out is not None:
            raise TypeError(f"`{reduce.__name__}` of a tile takes no dtype and no out")
        return reduce(self, axis, keepdims)

    return method


for _name in ("sum", "prod", "max", "min", "mean", "any", "all"):
    setattr(Tile, _name, _called_by_numpy(getattr(Tile, _name)))


def _in_place(name: str) -> Any:
    """The method of an augmented operator: it changes the elements of a tensor, as it does with NumPy arrays."""

    def method(self: Tensor, other: Any) -> Any:
        if self._generated or self._target or self._update:
            return _combined(name, self, other)  # a tile; or what was read from a place, and is assigned to it next
        self._update = {"add": "add", "mul": "mul"}.get(name, "")
        try:
            value = _combined(name, self, other)
            if indices.is_unread(value):
                return value
            self._assign(value)
        finally:
            self._update = ""
        return self

    return method


def _combined(name: str, left: Any, right: Any) -> Any:
    return eager.dot(left, right, None, None) if name == "matmul" else eager.elementwise(name, left, right)


class Tensor(OfNumPy, Operators, np.ndarray):
    """A tensor: annotation of a kernel's parameter (`x: pl.Tensor`, `x: pl.Tensor[[M, 64], pl.f32]`), and in interpret
    mode the argument itself.

    It is a NumPy array whose views know the extents they were asked for, so that `x[r0:r0 + 64]` past the end is a
    partial tile of 64 declared rows once it is used in tile arithmetic.
    """

    _declared: tuple[int, ...] | None = None
    _generated: bool = False
    _update: str = ""
    _target: bool = False  # read by an augmented assignment, which assigns it next
    __hash__ = None  # type: ignore[assignment]

    __iadd__, __isub__, __imul__ = _in_place("add"), _in_place("sub"), _in_place("mul")
    __itruediv__, __ifloordiv__, __imod__ = _in_place("div"), _in_place("floordiv"), _in_place("mod")
    __ipow__, __imatmul__ = _in_place("pow"), _in_place("matmul")
    __iand__, __ior__, __ixor__ = _in_place("and"), _in_place("or"), _in_place("xor")
    __ilshift__, __irshift__ = _in_place("shl"), _in_place("shr")

    def __class_getitem__(cls, item: Any) -> Any:
        return tensor_spec(item)

    def __array_finalize__(self, obj: Any) -> None:
        self._declared = None
        self._generated = False
        self._update = ""
        self._target = False

    @property
    def declared(self) -> tuple[int, ...]:
        """The extents that were asked for; `valid_shape` is what there is."""
        return self.view(np.ndarray).shape if self._declared is None else self._declared

    @property
    def shape(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleMethodOverride, reportIncompatibleVariableOverride]
        """The declared extents, as in compiled code: a view past the end of a tensor has what it was asked for."""
        return tuple(shown(n) for n in self.declared)

    @property
    def dtype(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride, reportIncompatibleVariableOverride]
        """In interpret mode the language's dtype, as in compiled code; else NumPy's."""
        found = self.view(np.ndarray).dtype
        return (dtypes.from_numpy(found) or found) if interpreting.get() else found

    @property
    def update(self) -> str:
        """The reduction that this view is the place of, as in `y[0:4] += t`; "" for any other."""
        return self._update

    @property
    def size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return int(np.prod(self.declared, dtype=np.int64))

    def __len__(self) -> int:
        return self.declared[0]

    @property
    def generated(self) -> bool:
        """Made by `pl.zeros`, `ones`, `full` or `empty` and not written since."""
        return self._generated

    @property
    def T(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return view_as(self.view(np.ndarray).T, self.declared[::-1], self._generated)

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        """`pl.cast(self, dtype)` for a `pl` dtype, NumPy's method for others."""
        return eager.cast(self, dtype) if isinstance(dtype, DType) else super().astype(dtype, *args, **kwargs)

    def __iter__(self) -> Iterator[Any]:
        return _items(self) if interpreting.get() else iter(self.view(np.ndarray))

    def __bool__(self) -> bool:
        if self.ndim and interpreting.get():
            raise _ambiguous()
        return bool(self.view(np.ndarray))

    def __getitem__(self, key: Any) -> Any:
        if indices.at_indices(key) and interpreting.get():
            return indices.UNREAD
        base, key = self.view(np.ndarray), subscript.without_numbers(key)
        if subscript.has_tile(key, (Tile,)) or subscript.has_index_tensor(key, Tensor):
            return self._take(key)
        if not subscript.is_plain(key):
            return base[key]  # masks, index arrays, negative steps: NumPy's own, for use in a debugger
        items, new_axes = subscript.expand(key, self.ndim, "a tensor")
        bounds = [subscript.bounds(item, n) for item, n in zip(items, self.declared, strict=True)]
        for axis, (bound, n) in enumerate(zip(bounds, base.shape, strict=True)):
            if bound.dropped and not 0 <= bound.start < n:
                raise outside(f"index {items[axis]} is out of bounds for axis {axis} with extent {n}")
        found = base[tuple(b.index for b in bounds)]
        if not isinstance(found, np.ndarray):
            races.access("read", _one(base, bounds), element=True)
            return Tile(tiles.full(found, (1,) * len(new_axes))) if new_axes else shown(found)
        view = view_as(found, [b.count for b in bounds if not b.dropped], self._generated)
        if new_axes:
            return eager.present(tiles.expand_dims(eager.tile_of(view, "an index with None"), new_axes), (view,))
        if interpreting.get():
            here = site()
            view._target = here.augmented
            view._update = here.update if races.is_recording() else ""
        return view

    def _take(self, key: Any) -> Any:
        if any(i is None for i in (key if isinstance(key, tuple) else (key,))):
            raise _mixed_indices()
        items, _ = subscript.expand(key, self.ndim, "a tensor")
        at = [axis for axis, i in enumerate(items) if isinstance(i, (Tile, Tensor))]
        if len(at) != 1:
            raise _mixed_indices()
        axis = at[0]
        if subscript.is_mask(key) and site().augmented:  # `x[mask] += 1`: what is assigned again next
            races.touch("read", self.view(np.ndarray), "")
            return Tile(eager.tile_of(self.view(np.ndarray)[np.asarray(key)], "what a mask chooses"))
        others = [*items[:axis], slice(None), *items[axis + 1 :]]
        numbers = [n for n, i in enumerate(others) if not isinstance(i, slice)]
        if subscript.moves_to_the_front(axis, numbers):
            raise ShapeError("an index tile apart from a number among the indices", code="PTO-H011",
                             hint="NumPy puts its axis first here; write what is meant in two steps: `x[i][:, index]`")
        part = self if all(i == slice(None) for i in others) else self[tuple(others)]
        chosen = eager.tile_of(items[axis], "an index")
        return Tile(memory.take(part.view(np.ndarray), chosen, axis - sum(n < axis for n in numbers)))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._generated = False
        if indices.is_unread(value) or indices.at_indices(key):
            indices.assigned()
            return
        base, key, value = self.view(np.ndarray), subscript.without_numbers(key), plain(value)
        if subscript.is_mask(key) and (np.ndim(value) == 0 or site().augmented):
            races.touch("write", base, "")
            base[np.asarray(key)] = np.asarray(eager.cast(value, dtypes.from_numpy(base.dtype)))
            return
        if subscript.has_tile(key, (Tile,)) or subscript.has_index_tensor(key, Tensor):
            instead = subscript.for_masks(key, subscript.scatter_instead(self.ndim))
            raise TypeMismatchError("an assignment through an index tile", code="PTO-T039", hint=instead)
        if any(i is None for i in (key if isinstance(key, tuple) else (key,))):
            raise ShapeError("an assignment through a new axis", code="PTO-H016",
                             hint="leave None out: what is assigned broadcasts")  # fmt: skip
        place = self[key] if isinstance(value, (Tile, Tensor)) else None
        dtype = dtypes.from_numpy(base.dtype)
        if dtype is None or not isinstance(value, (Tile, Tensor, np.generic, bool, int, float)):
            base[key] = value
            return
        item = eager.value_of(eager.cast(value, dtype))
        if isinstance(place, Tensor) and isinstance(item, TileValue):
            kept = [n for i, n in zip(subscript.expand(key, self.ndim, "a tensor")[0], base.shape, strict=True)
                    if isinstance(i, slice)]  # fmt: skip
            whole = [n == m for n, m in zip(place.shape, kept, strict=True)] if len(kept) == place.ndim else []
            memory.assign(place.view(np.ndarray), place.declared, item, whole=whole)
            return
        if isinstance(item, TileValue):
            raise TypeMismatchError("a tile assigned to one element", code="PTO-T040",
                                    hint="assign to a slice, or reduce the tile first")  # fmt: skip
        if subscript.is_plain(key) and races.is_noting():
            items, _ = subscript.expand(key, self.ndim, "a tensor")
            bounds = [subscript.bounds(item, n) for item, n in zip(items, self.declared, strict=True)]
            for axis, (bound, n) in enumerate(zip(bounds, base.shape, strict=True)):
                if bound.dropped and not 0 <= bound.start < n:
                    raise outside(f"index {items[axis]} is out of bounds for axis {axis} with extent {n}")
            races.access("write", _one(base, bounds))
        try:
            base[key] = item
        except IndexError as error:
            raise outside(str(error)) from None

    def _assign(self, value: Any) -> None:
        """Write `value` to all of this view."""
        self._generated = False
        base = self.view(np.ndarray)
        dtype = dtypes.from_numpy(base.dtype)
        item = eager.value_of(eager.cast(value, dtype))
        if isinstance(item, TileValue):
            memory.assign(base, self.declared, item, self._update)
        else:
            races.touch("update" if self._update else "write", base, self._update)
            base[...] = item


def _reduced(name: str) -> Any:
    """The method of a tensor: in interpret mode that of the tile which compiled code loads, else NumPy's."""
    of_tile, of_array = getattr(Tile, name), getattr(np.ndarray, name)

    @functools.wraps(of_tile)
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if interpreting.get():
            return of_tile(self, *args, **kwargs)
        return of_array(self.view(np.ndarray), *args, **kwargs)

    return method


for _name in ("sum", "prod", "max", "min", "mean", "any", "all", "argmax", "argmin"):
    setattr(Tensor, _name, _reduced(_name))
for _name in METHODS:
    setattr(Tensor, _name, method_of_tensors(_name))


def _mixed_indices() -> ShapeError:
    return ShapeError("an index tile together with other indices", code="PTO-H011",
                      hint="index one axis with a tile, the others with numbers and slices: `x[index, :]`")  # fmt: skip


def _one(base: np.ndarray, bounds: Sequence[subscript.Bounds]) -> np.ndarray:
    """The part of an array that an index takes, with all axes."""
    return base[(..., *(slice(b.start, b.start + b.extent) for b in bounds))]


def view_as(array: np.ndarray, declared: Sequence[int] | None = None, generated: bool = False) -> Tensor:
    """An array as a `Tensor` over the same memory, with the extents that were asked for."""
    tensor = array.view(Tensor)
    if declared is not None and tuple(declared) != tensor.shape:
        tensor._declared = tuple(int(n) for n in declared)
    tensor._generated = generated
    return tensor


def tensor(array: np.ndarray) -> Tensor:
    """What interpret mode passes for an array argument."""
    return array if isinstance(array, Tensor) else view_as(array)
