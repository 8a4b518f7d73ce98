# SPDX-License-Identifier: MIT
"""Races between iterations that were promised to be independent: what they are, and which one is reported.

Two iterations race if both access the same element of memory and at least one of them writes it, or if one updates it
atomically and the other reads or writes it.  Checked loops run in order.  Of several races, the reported one is that
whose later access comes first in program order; for that access, the one in the outermost loop, at the first element in
row-major order, with the earliest iteration that it races with (a write before an update before a read).  `Checker`
belongs to the reference interpreter; compiled programs use `csrc/runtime/race.c`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from pto_jit.ir.nodes import Block, For, Op, Var
from pto_jit.ir.walk import TENSOR_VIEWS, statements
from pto_jit.language import _memory_ops as memory
from pto_jit.language._race_error import Access, Verb, race_error
from pto_jit.language._tile_ops import check_indices
from pto_jit.language._tile_value import fitted, joint
from pto_jit.semantic.table import effects, tensor_arg
from pto_jit.slotted import mutable

_ORDER: tuple[Verb, ...] = ("writes", "updates", "reads")
_CONTRADICTS: dict[Verb, tuple[Verb, ...]] = {
    "reads": ("writes", "updates"), "writes": _ORDER, "updates": ("writes", "reads"),
}  # fmt: skip


def access_of(op: Op) -> Verb | None:
    """What an operation does to the elements of its tensor operand."""
    effect = effects(op.op)
    if effect == "none" or tensor_arg(op.op) is None:
        return None
    return "reads" if effect == "reads" else "updates" if op.op.startswith("atomic_") else "writes"


def roots(body: Block) -> dict[str, str]:
    """View -> the tensor of the function (a parameter, or allocated) that it looks at."""
    found: dict[str, str] = {}
    for stmt in statements(body):
        if isinstance(stmt, Op) and stmt.op in TENSOR_VIEWS and isinstance(stmt.args[0], Var):
            name = stmt.args[0].name
            found[stmt.results[0].name] = found.get(name, name)
    return found


# -- the interpreter's check ----------------------------------------------------------------------------------------


@mutable(eq=False)
class _Scope:
    """A checked loop that is running: the first access of each kind to every byte that it touched."""

    loop: For
    number: int | None
    """How many iterations came before the current one; None: none has begun."""
    value: int
    seen: dict[int, dict[Verb, tuple[int, int, Access]]]
    """Byte -> kind of access -> the iteration's number, its value of the loop variable, the access."""


class Checker:
    """Follows one run of a program."""

    def __init__(self, function: str) -> None:
        self.function = function
        self.scopes: list[_Scope] = []

    def enter(self, loop: For) -> None:
        self.scopes.append(_Scope(loop, None, 0, {}))

    def inside(self, loop: For) -> bool:
        """Whether the innermost loop is the chunk loop of this in_chunk loop."""
        if not self.scopes:
            return False
        outer = self.scopes[-1].loop
        return outer.loc == loop.loc and _source(outer.var.name) == _source(loop.var.name)

    def leave(self) -> None:
        self.scopes.pop()

    def iteration(self, value: int) -> None:
        """The innermost loop begins its next iteration."""
        scope = self.scopes[-1]
        scope.number = 0 if scope.number is None else scope.number + 1
        scope.value = value

    def access(self, access: Access, parts: Iterable[np.ndarray], root: np.ndarray) -> None:
        """The elements of `parts`, one array after the other, are accessed. Raises RaceError."""
        for part in parts:
            for scope in self.scopes:
                if scope.number is not None:
                    self._look(scope, scope.number, access, part, root)

    def _look(self, scope: _Scope, number: int, access: Access, part: np.ndarray, root: np.ndarray) -> None:
        for address in _addresses(part):
            for byte in range(address, address + part.itemsize):
                seen = scope.seen.setdefault(byte, {})
                others = [seen[v] for v in _CONTRADICTS[access.verb] if v in seen and seen[v][0] != number]
                if others:
                    _, value, then = min(others, key=lambda found: found[0])
                    element = element_at(address - _start(root), root.shape, root.strides)
                    raise race_error(
                        self.function, _source(scope.loop.var.name), scope.loop.loc, access, then,
                        (value, scope.value), element,
                    )  # fmt: skip
                seen.setdefault(access.verb, (number, scope.value, access))

    def forget(self, array: np.ndarray) -> None:
        """A new array: what was noted about its memory was about something else."""
        for scope in self.scopes:
            for byte in range(_start(array), _start(array) + array.nbytes):
                scope.seen.pop(byte, None)


def _source(name: str) -> str:
    return name.split(".", 1)[0].removesuffix("_chunk")


def _start(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _addresses(part: np.ndarray) -> Iterator[int]:
    start = _start(part)
    for index in np.ndindex(part.shape):
        yield start + sum(i * s for i, s in zip(index, part.strides, strict=True))


def element_at(distance: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """The indices of the element that lies `distance` bytes after the first; None when axes overlap."""
    rest = distance - sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0)
    index = [0] * len(shape)
    for axis in sorted(range(len(shape)), key=lambda a: -abs(strides[a])):
        size = abs(strides[axis])
        at = 0 if size == 0 or shape[axis] == 1 else rest // size
        if not 0 <= at < shape[axis]:
            return None
        rest -= at * size
        index[axis] = shape[axis] - 1 - at if strides[axis] < 0 else at
    return None if rest else tuple(index)


def parts_of(op: Op, args: list[Any]) -> Iterator[np.ndarray]:
    """The parts of its tensor that an access touches, in the order in which it touches them.

    Raises what the operation itself raises for offsets, extents and indices outside.
    """
    at = tensor_arg(op.op)
    assert at is not None
    x: np.ndarray = args[at]
    match op.op:
        case "load":
            offsets, extents = _ints(args[1 : 1 + x.ndim]), _ints(args[1 + x.ndim : 1 + 2 * x.ndim])
            yield x[memory.region(x, offsets, extents, "load")]
        case "getelem" | "setelem":
            index = memory.element(x, _ints(args[at + 1 :]))
            yield x[(*(slice(i, i + 1) for i in index), ...)]
        case "take":
            yield from _taken(op, args)
        case "put":
            yield from _put(op, args)
        case _:
            yield x[memory.region(x, _ints(args[2:]), args[0].valid, op.op)]


def _ints(values: list[Any]) -> list[int]:
    return [int(v) for v in values]


def _axis(op: Op) -> int:
    axis = op.attr("axis")
    assert isinstance(axis, int)
    return axis


def _taken(op: Op, args: list[Any]) -> Iterator[np.ndarray]:
    x, index, axis = args[0], args[1], _axis(op)
    if len(args) > 2:
        offsets = _ints(args[2:])
        x = memory.view(x, offsets, [max(0, n - o) for n, o in zip(x.shape, offsets, strict=True)])
    where = check_indices(index.data, x.shape[axis], "x[index]")
    for lead in np.ndindex(x.shape[:axis]):
        for i in where.reshape(-1):
            yield x[(*(slice(k, k + 1) for k in lead), slice(i, i + 1))]


def _put(op: Op, args: list[Any]) -> Iterator[np.ndarray]:
    t, index, x, axis = args[0], args[1], args[2], _axis(op)
    _, _, valid = joint([t, index])
    where = np.broadcast_to(fitted(index, valid), valid)
    check_indices(where, x.shape[axis], "scatter")
    for place in itertools.product(*map(range, valid)):
        at = list(place)
        at[axis] = int(where[place])
        if all(i < n for i, n in zip(at, x.shape, strict=True)):
            yield x[tuple(slice(i, i + 1) for i in at)]
