# SPDX-License-Identifier: MIT
"""Conflicts between iterations of parallel loops, and reads of memory that nothing wrote, in interpret mode.

While a kernel's Python function runs, every access to tensor memory is noted for every parallel loop around it: who
wrote an element last, who updated it (by a reduction or atomically), and two iterations that read it.  Two readers are
enough to know whether an iteration other than the current one read it.  An entry is the number of the iteration, which
only grows, and the place of the access; entries older than the loop are nobody's, so nothing is ever cleared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal

import numpy as np

from pto_jit.errors import LaunchError, Loc, RaceError, excerpt
from pto_jit.language._number import number
from pto_jit.language._places import Site, loop_variable, site, user_frame
from pto_jit.language._race_error import Access, Verb, race_error
from pto_jit.slotted import field, mutable

Kind = Literal["read", "write", "update"]

_SITE_BITS = 20
_WRITER, _UPDATER, _READER, _SECOND = range(4)  # the planes of a shadow
_PLANES: tuple[Kind, ...] = ("write", "update", "read", "read")  # what an entry of each plane did
_VERBS: dict[Kind, Verb] = {"read": "reads", "write": "writes", "update": "updates"}


@mutable(eq=False)
class _Loop:
    """A parallel loop that is being run; `entered` is the number of the last iteration of any loop before it."""

    variable: str
    loc: Loc
    entered: int
    iteration: int = 0
    value: Any = None
    values: dict[int, Any] = field(default_factory=dict)  # iteration number -> loop variable


@mutable(eq=False)
class _Memory:
    """What is known about one piece of memory, from address `low` on; a cell stands for `unit` bytes.

    `born`: the number of the iteration that made it (0: it was there before); `written`: the bytes that were written,
    when it began without contents; `shadows`: per depth of loops, four planes of cells.
    """

    low: int
    bytes: int
    born: int = 0
    unit: int = 0
    written: np.ndarray | None = None
    kept: np.ndarray | None = None  # what `written` is about: its address is not used again
    shadows: list[list[np.ndarray]] = field(default_factory=list)


@mutable(eq=False)
class Record:
    """The accesses of one run of a kernel."""

    function: Any
    arguments: list[tuple[str, np.ndarray]]
    memories: dict[int, _Memory] = field(default_factory=dict)
    spans: list[tuple[int, int]] = field(default_factory=list)  # of the arguments, those that overlap joined
    loops: list[_Loop] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    numbers: dict[Site, int] = field(default_factory=dict)
    count: int = 0  # iterations so far, of all loops


_record: ContextVar[Record | None] = ContextVar("pto_accesses", default=None)


def start(function: Any, arguments: Sequence[tuple[str, np.ndarray]]) -> Any:
    """Begin to note the accesses of a kernel; `arguments` are its arrays by name.  Gives what `stop` takes."""
    spans: list[tuple[int, int]] = []
    for low, high in sorted(_bounds(_root(array)) for _, array in arguments):
        if spans and low < spans[-1][1]:
            spans[-1] = spans[-1][0], max(high, spans[-1][1])
        else:
            spans.append((low, high))
    return _record.set(Record(function, list(arguments), spans=spans))


def stop(token: Any) -> None:
    _record.reset(token)


def iterations(order: Sequence[int]) -> Iterator[Any]:
    """The iterations of a parallel loop in this order, each known to the record while it runs."""
    record = _record.get()
    if record is None:
        return iter(order)
    frame = user_frame()
    return _iterations(record, _Loop(loop_variable(frame), site().loc, record.count), order)


def _iterations(record: Record, loop: _Loop, order: Sequence[int]) -> Iterator[Any]:
    record.loops.append(loop)
    depth = len(record.loops)
    try:
        for value in order:
            record.count += 1
            loop.iteration, loop.value = record.count, value
            loop.values[record.count] = value
            yield number(value)
            del record.loops[depth:]  # of inner loops that were left early
    finally:
        if loop in record.loops:
            del record.loops[record.loops.index(loop) :]


def made(array: np.ndarray, empty: bool) -> None:
    """New memory; `empty`: nothing was written to it yet."""
    record = _record.get()
    if record is None or not array.size:
        return
    low, high = _bounds(array)
    written = np.zeros(high - low, np.bool_) if empty else None
    record.memories[low] = _Memory(low, high - low, record.count, 0, written, array if empty else None)


def touch(kind: Kind, part: np.ndarray, update: str = "", element: bool = False) -> None:
    """An access to all of `part`; `update`: the operation that an "update" combines with; `element`: of one number.

    Raises RaceError for a conflict with another iteration of a parallel loop, LaunchError for an element that is read
    and was never written.
    """
    record = _record.get()
    if record is None or not part.size or not (record.loops or record.memories):
        return
    memory = _memory(record, part)
    if memory.written is not None:
        _note_written(memory, kind, part, element)
    for depth, loop in enumerate(record.loops):
        if memory.born <= loop.entered:  # else the iteration made it for itself
            _note(record, memory, depth, loop, kind, part, update)


def access(kind: Literal["read", "write"], part: np.ndarray, element: bool = False) -> None:
    """An access written in the user's code, which is an update where it belongs to a reduction."""
    if is_noting():
        update = update_here()
        touch("update" if update else kind, part, update, element)


def is_noting() -> bool:
    """Whether accesses are noted."""
    return _record.get() is not None


def is_recording() -> bool:
    """Whether a parallel loop is being run with a record."""
    record = _record.get()
    return record is not None and bool(record.loops)


def update_here() -> str:
    """The reduction that the access being evaluated belongs to."""
    return site().update


# -- memory -----------------------------------------------------------------------------------------------------


def _root(array: np.ndarray) -> np.ndarray:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _bounds(array: np.ndarray) -> tuple[int, int]:
    """The addresses from the first to behind the last byte."""
    low = high = _address(array)
    for extent, stride in zip(np.ndarray.shape.__get__(array), array.strides, strict=True):  # not the declared extents
        reach = (extent - 1) * stride
        low, high = low + min(reach, 0), high + max(reach, 0)
    return low, high + array.itemsize


def _memory(record: Record, part: np.ndarray) -> _Memory:
    low, high = _bounds(_root(part))
    found = record.memories.get(low)
    if found is not None and low + found.bytes >= high:
        return found
    for first, last in record.spans:
        if first <= low and high <= last:
            low, high = first, last
    found = record.memories.get(low)
    if found is None or low + found.bytes < high:
        found = record.memories[low] = _Memory(low, high - low)
    return found


def _cells(flat: np.ndarray, memory: _Memory, unit: int, part: np.ndarray) -> np.ndarray:
    """The cells of the elements of `part`: an array of its shape, and an axis more where an element has several."""
    offset = (_address(part) - memory.low) // unit
    per = part.itemsize // unit
    shape = np.ndarray.shape.__get__(part)
    strides = [s // unit * flat.itemsize for s in part.strides]
    return np.lib.stride_tricks.as_strided(flat[offset:], (*shape, per), (*strides, flat.itemsize))


def _note_written(memory: _Memory, kind: Kind, part: np.ndarray, element: bool) -> None:
    assert memory.written is not None
    cells = _cells(memory.written, memory, 1, part)
    if kind != "read":
        cells[...] = True
    elif element and not cells.all():
        where = site().loc
        raise LaunchError("\n".join(["PTO-B010: an element is read that was never written", *excerpt(where),
                                     "help: write it first, or make the tensor with `pl.zeros`"]))  # fmt: skip


def _shadow(memory: _Memory, depth: int, part: np.ndarray) -> list[np.ndarray]:
    """The planes of a depth, fine enough for the elements of `part`."""
    size = part.itemsize
    if memory.unit == 0:
        aligned = (_address(part) - memory.low) % size == 0 and memory.bytes % size == 0
        memory.unit = size if aligned else 1
    misfit = (_address(part) - memory.low) % memory.unit or any(s % memory.unit for s in part.strides)
    if size % memory.unit or misfit:
        memory.shadows = [[np.repeat(plane, memory.unit) for plane in planes] for planes in memory.shadows]
        memory.unit = 1
    while len(memory.shadows) <= depth:
        memory.shadows.append([np.zeros(memory.bytes // memory.unit, np.int64) for _ in range(4)])
    return memory.shadows[depth]


# -- conflicts --------------------------------------------------------------------------------------------------


def _note(record: Record, memory: _Memory, depth: int, loop: _Loop, kind: Kind, part: np.ndarray, update: str) -> None:
    here = site()
    if update and here.update != update:
        here = Site(here.loc, update, here.tensor, follows=here.follows)
    mark = (loop.iteration << _SITE_BITS) | _site_number(record, here)
    views = [_cells(plane, memory, memory.unit, part) for plane in _shadow(memory, depth, part)]
    first = (loop.entered + 1) << _SITE_BITS
    others = {
        "read": (_WRITER, _UPDATER),
        "write": (_WRITER, _UPDATER, _READER, _SECOND),
        "update": (_WRITER, _UPDATER, _READER, _SECOND),
    }[kind]
    for plane in others:
        cells = views[plane]
        wrong = (cells >= first) & (cells >> _SITE_BITS != loop.iteration)
        if plane == _UPDATER and kind == "update" and wrong.any():
            fixed = loop.variable not in here.follows  # else the iterations update whatever they find: no reduction
            same = np.array([fixed and s.update == update and loop.variable not in s.follows for s in record.sites])
            wrong &= ~same[cells & ((1 << _SITE_BITS) - 1)]
        if wrong.any():
            at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
            raise _race(record, loop, kind, here, plane, int(cells[at]), part, at[:-1])
    if kind == "read":
        old = views[_READER].copy()
        mine = (old < first) | (old >> _SITE_BITS == loop.iteration)
        views[_READER][mine] = mark
        views[_SECOND][~mine] = mark
    else:
        views[_WRITER if kind == "write" else _UPDATER][...] = mark


def _site_number(record: Record, here: Site) -> int:
    found = record.numbers.get(here)
    if found is None:
        found = record.numbers[here] = len(record.sites)
        record.sites.append(here)
    return found


def _race(
    record: Record, loop: _Loop, kind: Kind, here: Site, plane: int, entry: int, part: np.ndarray, at: Sequence[Any]
) -> RaceError:
    other = record.sites[entry & ((1 << _SITE_BITS) - 1)]
    before = loop.values[entry >> _SITE_BITS]
    place = _argument_element(record, part, at)
    name, element = place or (here.tensor or "a tensor", None)
    now, then = Access(_VERBS[kind], name, here.loc), Access(_VERBS[_PLANES[plane]], name, other.loc)
    function = getattr(record.function, "__name__", "the kernel")
    return race_error(function, loop.variable or "?", loop.loc, now, then, (before, loop.value), element)


def _argument_element(record: Record, part: np.ndarray, at: Sequence[Any]) -> tuple[str, tuple[int, ...]] | None:
    """The argument and its indices that an element of `part` is; None when it is in no argument."""
    address = _address(part) + sum(int(i) * s for i, s in zip(at, part.strides, strict=True))
    for name, array in record.arguments:
        offset = address - _address(array)
        indices: dict[int, int] = {}
        axes = sorted(range(array.ndim), key=lambda axis, strides=array.strides: -abs(strides[axis]))
        for axis in axes:
            stride = array.strides[axis]
            indices[axis], offset = divmod(offset, stride) if stride else (0, offset)
        shape = np.ndarray.shape.__get__(array)
        if offset == 0 and all(0 <= indices[axis] < shape[axis] for axis in axes):
            return name, tuple(indices[axis] for axis in range(array.ndim))
    return None


def named(name: str, value: Any) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays in an argument, with what the kernel would write to get at them."""
    if isinstance(value, np.ndarray):
        yield name, value
    elif isinstance(value, (tuple, list)):
        for k, item in enumerate(value):
            yield from named(f"{name}[{k}]", item)
    elif isinstance(value, Mapping):
        for k, item in value.items():
            yield from named(f"{name}[{k!r}]", item)
