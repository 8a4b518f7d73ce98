# SPDX-License-Identifier: MIT
"""`FractalTensor`: an ordered list of tensors or of FractalTensors, lengths as they come.

All leaves have one shape and element type and stand at one depth.  The leaves lie in one or more flat buffers; a value
is a sequence of positions in them (`where`) and, for each level but the innermost, the offsets at which its lists start
and end in the level below, as in the compressed rows of a sparse matrix.  Every access operation makes new positions
and offsets over the same buffers: leaves are never moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from pto_jit.dtypes import DType, from_numpy
from pto_jit.errors import BoundsError, CompilationError, ShapeError, TypeMismatchError
from pto_jit.fractal.places import failure
from pto_jit.fractal.trial import trying
from pto_jit.fractal.types import ElementType, FractalSpec, ListType, TensorType, fractal_spec
from pto_jit.language._tile import Tensor, Tile

if TYPE_CHECKING:
    from pto_jit.language._tile import Tensor as Leaf

Array = np.ndarray[Any, Any]
_SHOWN = 6  # lengths that `repr` writes per list


class Positions(np.ndarray):
    """A buffer of indices, whose elements are Python's integers: they take no part in finding an element type, as the
    counter of a loop does not."""


class FractalTensor:
    """A possibly jagged, nested list of tensors of one shape and element type; read by index, never written.

    Made by `ft.from_list` and `ft.from_flat` and by the operations of `pto_jit.fractal`.  `x[i]` is an element: a
    tensor at depth 1, else a FractalTensor; slices are `ft.slice`.  `ft.FractalTensor[pl.Tensor[[1, 64], pl.f32]]`
    is an annotation.

    >>> import numpy as np, pto_jit.fractal as ft
    >>> x = ft.from_flat(np.arange(5.0), [[0, 3, 3, 5]])
    >>> len(x), x.depth, x[2].tolist()
    (3, 2, [np.float64(3.0), np.float64(4.0)])
    """

    __slots__ = ("_leaves", "_offsets", "_pieces", "_positions", "_sample", "tried")
    __array_ufunc__ = None  # `array + list` is an error, not a broadcast over the elements

    def __init__(self, pieces: tuple[Array, ...], where: Array | None, offsets: Sequence[Array], *, sample: Any = None,
                 tried: bool = False) -> None:  # fmt: skip
        """For this package; nothing is checked.

        pieces: buffers of leaves.  where: the position of each leaf in their concatenation (int64); None for all leaves
        of the one buffer there is, whose positions are written down when they are asked for.  offsets: from 0
        (int64), per level, outermost first.  sample: of an empty list, a value like those it would have (see `trial`).
        tried: there is no leaf, and what leaves would be is known from a trial only.
        """
        self._pieces = pieces
        self._positions = where
        self._offsets = tuple(offsets)
        self._leaves: Array | None = _plain(pieces[0]) if where is None else None
        self._sample = sample
        self.tried = tried

    @property
    def _where(self) -> Array:
        if self._positions is None:
            self._positions = np.arange(len(self._pieces[0]), dtype=np.int64)
        return self._positions

    def __class_getitem__(cls, item: Any) -> FractalSpec:
        return fractal_spec(item)

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """Levels of lists: 1 for a list of tensors."""
        return len(self._offsets) + 1

    @property
    def leaf_shape(self) -> tuple[int, ...]:
        """The extents of each leaf; () for a list of numbers."""
        return self._pieces[0].shape[1:]

    @property
    def dtype(self) -> DType:
        """The element type of the leaves."""
        found = from_numpy(self._pieces[0].dtype)
        assert found is not None
        return found

    @property
    def offsets(self) -> tuple[Array, ...]:
        """Per level but the innermost, outermost first: where each list starts in the level below, and the end (int64).

        `([0, 3, 3, 5],)` for lists of 3, 0 and 2 tensors; `()` at depth 1.
        """
        return self._offsets

    @property
    def leaves(self) -> Array:
        """All leaves in order, `[count, *leaf_shape]`, read-only.

        Memory of the list itself where they lie in order there, else gathered on the first use.
        """
        if self._leaves is None:
            found = _in_order(self._pieces, self._where).view(np.ndarray)
            found.flags.writeable = False
            self._leaves = found
        return self._leaves

    @property
    def kind(self) -> ListType:
        """The type: depth, leaf shape and element type, no lengths."""
        kind: ElementType = TensorType(self.leaf_shape, self.dtype)
        for _ in range(self.depth):
            kind = ListType(kind)
        assert isinstance(kind, ListType)
        return kind

    def __len__(self) -> int:
        if self._offsets:
            return len(self._offsets[0]) - 1
        return len(self._pieces[0] if self._positions is None else self._positions)

    # -- elements -----------------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Any:
        """The element at `index` (negative: from the end); for a slice, the list of those elements."""
        if isinstance(index, slice):
            return self.take(sliced(index, len(self)))
        if not len(self) and trying():
            return self.sample()
        return self.element(position(index, len(self)))

    def __pto_refuse_item__(self, generator: Any) -> CompilationError:
        from pto_jit.fractal.zipped import of_the_surrounding_code

        return of_the_surrounding_code(generator, self, "a run-time index of")

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise failure(TypeMismatchError, "PTO-F004", "a list is not written: every position is written once, by what "
                      "made it", "make the new list with `ft.map`, or `ft.join` parts of the old one")  # fmt: skip

    def __iter__(self) -> Iterator[Any]:
        return map(self.element, range(len(self)))

    def element(self, i: int) -> Any:
        """Element `i`, which is in range."""
        if not self._offsets:
            return leaf(self._pieces, int(self._where[i]))
        first, *inner = self._offsets
        low, high = int(first[i]), int(first[i + 1])
        offsets = []
        for level in inner:
            part = level[low : high + 1]
            offsets.append(part - part[0])
            low, high = int(part[0]), int(part[-1])
        return FractalTensor(self._pieces, self._where[low:high], offsets, tried=self.tried)

    def sample(self) -> Any:
        """A value like the elements: the first one, or for an empty list a stand-in."""
        if len(self):
            return self.element(0)
        from pto_jit.fractal.elements import stand_in  # which imports this module

        return stand_in(self.kind.element) if self._sample is None else self._sample

    def take(self, index: Array) -> FractalTensor:
        """The elements at the positions `index` (int64, in range), in that order: a view."""
        sample = self.sample() if not len(index) and self._offsets else None
        offsets = []
        for level in self._offsets:
            starts, counts = level[index], level[index + 1] - level[index]
            offsets.append(from_counts(counts))
            index = np.repeat(starts - offsets[-1][:-1], counts) + np.arange(offsets[-1][-1], dtype=np.int64)
        return FractalTensor(self._pieces, self._where[index], offsets, sample=sample, tried=self.tried)

    def nest(self, offsets: Array, sample: Any = None) -> FractalTensor:
        """The elements as the elements of lists that start and end at `offsets`: a view, one level deeper."""
        return FractalTensor(self._pieces, self._where, (offsets, *self._offsets), sample=sample, tried=self.tried)

    def flat(self, levels: int) -> FractalTensor:
        """The outermost `levels` levels as one: a view."""
        return FractalTensor(self._pieces, self._where, self._offsets[levels - 1 :], tried=self.tried)

    def joined(self, others: Sequence[FractalTensor]) -> FractalTensor:
        """The elements of this list, then those of others of the same type: a view over the buffers of all."""
        pieces: dict[int, Array] = {}
        starts: dict[int, int] = {}
        where: list[Array] = []
        count = 0
        for x in (self, *others):
            shift = np.empty(len(x._pieces), np.int64)
            before = 0
            for k, piece in enumerate(x._pieces):
                if id(piece) not in pieces:
                    pieces[id(piece)], starts[id(piece)] = piece, count
                    count += len(piece)
                shift[k] = starts[id(piece)] - before
                before += len(piece)
            where.append(x._where + (shift[0] if len(shift) == 1 else shift[_owners(x._pieces, x._where)]))
        offsets = [_appended([x._offsets[k] for x in (self, *others)]) for k in range(self.depth - 1)]
        tried = all(x.tried for x in (self, *others))
        return FractalTensor(tuple(pieces.values()), np.concatenate(where), offsets, sample=self._sample, tried=tried)

    def lengths(self) -> Array:
        """The lengths of the elements, which are lists (depth 2 and more)."""
        return np.diff(self._offsets[0])

    def tolist(self) -> list[Any]:
        """Nested Python lists of arrays (copies); of NumPy scalars where the leaves are numbers."""
        items: list[Any] = list(self.leaves.copy())
        for level in reversed(self._offsets):
            items = [items[a:b] for a, b in zip(level[:-1].tolist(), level[1:].tolist(), strict=True)]
        return items

    def __repr__(self) -> str:
        spec = f"pl.Tensor[{list(self.leaf_shape)}, {self.dtype!r}]"
        return f"FractalTensor({_lengths(self)} of {spec})"

    def __reduce__(self) -> Any:
        return _rebuild, (np.ascontiguousarray(self.leaves), self._offsets)


def _rebuild(leaves: Array, offsets: Sequence[Array]) -> FractalTensor:
    return whole(leaves, offsets)


def _plain(array: Array) -> Array:
    return array if type(array) is np.ndarray else array.view(np.ndarray)


def whole(leaves: Array, offsets: Sequence[Array]) -> FractalTensor:
    """The list of all leaves of one buffer, whose memory it keeps."""
    piece = leaves.view()
    piece.flags.writeable = False
    return FractalTensor((piece,), None, offsets)


def made(arrays: Sequence[Array]) -> FractalTensor:
    """The list of leaves and offsets that a kernel made for it, which need not be looked at."""
    for array in arrays:
        array.setflags(write=False)
    return FractalTensor((arrays[0],), None, arrays[1:])


def from_counts(counts: Array) -> Array:
    """Offsets of lists of those lengths."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _appended(levels: Sequence[Array]) -> Array:
    """One level's offsets of lists that stand one after the other."""
    return from_counts(np.concatenate([np.diff(level) for level in levels]))


def _starts(pieces: tuple[Array, ...]) -> Array:
    """Where each buffer starts in their concatenation, and the end."""
    return from_counts(np.array([len(p) for p in pieces], np.int64))


def _owners(pieces: tuple[Array, ...], where: Array) -> Array:
    """The number of the buffer in which each position is."""
    return np.searchsorted(_starts(pieces), where, side="right") - 1


def position(index: Any, length: int) -> int:
    """An index into a list of that length as 0..length-1; negative ones count from the end.

    Raises BoundsError (PTO-F002), TypeMismatchError for what is not an integer (PTO-F003).
    """
    i = integer(index)
    if not -length <= i < length:
        raise failure(BoundsError, "PTO-F002", f"index {i} of a list of length {length}",
                      "indices run from 0 to the length, less one; negative ones from the end")  # fmt: skip
    return i % length


def sliced(index: slice, length: int) -> Array:
    """The positions in a list of that length which a slice stands for, as Python's.

    Raises TypeMismatchError for bounds that are not integers (PTO-F003), ShapeError for a step of 0 (PTO-F036).
    """
    items = (index.start, index.stop, index.step)
    start, stop, step = (None if item is None else integer(item, "a bound of a slice") for item in items)
    if step == 0:
        raise failure(ShapeError, "PTO-F036", "the step of a slice is 0", "give another step")
    return np.arange(*slice(start, stop, step).indices(length), dtype=np.int64)


def integer(value: Any, what: str = "an index of a list") -> int:
    """An integer argument: of Python, of NumPy, or a tensor of one integer.  Raises TypeMismatchError (PTO-F003)."""
    if not isinstance(value, (bool, np.bool_)):
        if isinstance(value, int):
            return value
        if isinstance(value, (np.integer, np.ndarray)) and value.dtype.kind in "iu" and value.size == 1:
            return int(np.asarray(value).reshape(())[()])
        if isinstance(value, Tile) and value.dtype.is_integer and (found := value.numpy()).size == value.size == 1:
            return int(found.reshape(())[()])
    raise failure(TypeMismatchError, "PTO-F003", f"{what} is {value!r:.60}", "give an integer")


def leaf(pieces: tuple[Array, ...], at: int) -> Leaf | np.generic | int:
    """The leaf at a position of the concatenated buffers: a read-only tensor, a NumPy scalar where it is a number."""
    for piece in pieces:
        if at < len(piece):
            if piece.ndim > 1:
                return piece[at].view(Tensor)
            return int(piece[at]) if isinstance(piece, Positions) else piece[at]
        at -= len(piece)
    raise AssertionError("the position of a leaf is in one of the buffers")


def _in_order(pieces: tuple[Array, ...], where: Array) -> Array:
    """The leaves at `where`: a view when they lie one after the other in one buffer, else gathered."""
    count = len(where)
    if count == 0:
        return pieces[0][:0]
    starts = _starts(pieces)
    first, last = np.searchsorted(starts, (int(where[0]), int(where[-1])), side="right") - 1
    if first == last and where[-1] - where[0] == count - 1 and bool(np.all(np.diff(where) == 1)):
        low = int(where[0] - starts[first])
        return pieces[first][low : low + count]
    if len(pieces) == 1:
        return pieces[0][where]
    found = np.empty((count, *pieces[0].shape[1:]), pieces[0].dtype)
    owner = _owners(pieces, where)
    order = np.argsort(owner, kind="stable")
    ends = np.searchsorted(owner[order], np.arange(len(pieces) + 1))
    for k, piece in enumerate(pieces):
        mine = order[ends[k] : ends[k + 1]]
        found[mine] = piece[where[mine] - starts[k]]
    return found


def _lengths(x: FractalTensor) -> str:
    """The lengths, nested as the lists are: `[3, 0, 2]` for a depth of 2."""
    if x.depth == 1:
        return str(len(x))
    some = [_lengths(x.element(i)) for i in range(min(len(x), _SHOWN))]
    return f"[{', '.join(some + ['...'] * (len(x) > _SHOWN))}]"

