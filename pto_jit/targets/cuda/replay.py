# SPDX-License-Identifier: MIT
"""What a program enqueues, kept for later calls: the same again with other pointers.

The host side of most programs depends on the extents, strides and alignment of tensors, on numbers and on which tensors
are the same, and on nothing else: calls that agree in these launch the same kernels with the same arguments but for
addresses, and for numbers that are only passed on (`passed`).  `record` runs the host side once without a device, on
tensors at made-up addresses that tell where each pointer of a launch comes from.  A program that reads elements on the
host, or prints, is not recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from pto_jit.errors import PtoError
from pto_jit.ir.nodes import Op
from pto_jit.slotted import field, frozen, mutable
from pto_jit.targets.cuda.devices import Device
from pto_jit.targets.cuda.host import HostProgram, Run, Site, Version, for_c
from pto_jit.targets.cuda.kernels import Kernel
from pto_jit.targets.cuda.passed import sizes
from pto_jit.targets.cuda.spreads import grid
from pto_jit.targets.cuda.tensors import DeviceTensor, overlap

ALIGNMENT = 16
"""The most bytes on whose multiples accesses depend; memory that is allocated begins at one."""
_APART = 1 << 48  # between made-up addresses: more than any tensor spans
_MOST_STEPS, _MOST_ALLOCATIONS = 256, 16  # of programs that are recorded: others are at work long enough


@frozen
class _Place:
    """Memory: so many bytes behind the first element of an argument, or of an allocation (numbered behind those)."""

    base: int
    offset: int


@frozen(eq=False)
class _Apart:
    """Bytes of two arguments that must not be the same: so many from places on."""

    first: _Place
    size: int
    other: _Place
    other_size: int


@frozen(eq=False)
class _Fill:
    at: _Place
    element: bytes
    count: int


@mutable(eq=False)
class Recorded:
    """Enqueues a program; warpgroups: whether it was recorded for a device that uses them; words: the arguments of
    launches that are tensors, whose first word is a pointer; numbers: those that `computed` gives for the arguments of
    a call, in that order."""

    host: HostProgram
    device: Device
    warpgroups: bool
    sizes: tuple[int, ...]
    words: tuple[tuple[Any, _Place], ...]
    numbers: tuple[Any, ...]
    computed: Callable[..., tuple[Any, ...]]
    apart: tuple[_Apart, ...]
    steps: tuple[_Fill | Callable[[int], None], ...]
    results: tuple[Any, ...]
    busy: threading.Lock = field(default_factory=threading.Lock)  # of `words` and `numbers`

    def run(
        self, arguments: Sequence[Any], pointers: Sequence[int], owners: Sequence[Any], stream: int
    ) -> tuple[Any, ...] | None:
        """Enqueue all on a stream, for such arguments, of which the tensors are at these addresses, in order.

        Returns the results as `HostProgram.run` does; None, and nothing was done, where arguments share memory that
        they must not share, or while another thread does the same.
        """
        for pair in self.apart:
            first = pointers[pair.first.base] + pair.first.offset
            other = pointers[pair.other.base] + pair.other.offset
            if first < other + pair.other_size and other < first + pair.size:
                return None
        if not self.busy.acquire(blocking=False):
            return None
        try:
            memory = [self.device.allocate(size, stream) for size in self.sizes]
            at = [*pointers, *(m.pointer for m in memory)]
            for words, place in self.words:
                words[0] = at[place.base] + place.offset
            if self.numbers:
                found = self.computed(None, *self.host.given(arguments))
                for argument, value in zip(self.numbers, found, strict=True):
                    argument.value = for_c(value)
            for step in self.steps:
                if isinstance(step, _Fill):
                    self.device.fill(at[step.at.base] + step.at.offset, step.element, step.count, stream)
                else:
                    step(stream)
        finally:
            self.busy.release()
        kept = [*owners, *memory]
        return tuple(
            DeviceTensor(at[r[1].base] + r[1].offset, r[0].shape, r[0].strides, r[0].dtype, kept[r[1].base])
            if isinstance(r, tuple) else r for r in self.results
        )  # fmt: skip


def record(host: HostProgram, device: Device, arguments: Sequence[Any]) -> Recorded | None:
    """What a program enqueues for arguments with which it has run; None for a program that cannot be recorded.

    arguments: as `HostProgram.run` takes them.  Tensors at one address are taken for one.
    """
    if host.speaks:
        return None
    tensors = [a for a in arguments if isinstance(a, DeviceTensor)]
    bases = {t.pointer: k for k, t in reversed([*enumerate(tensors)])}
    run = _Recording(host, device, [t.pointer % ALIGNMENT for t in tensors])
    given = [DeviceTensor(run.addresses[bases[a.pointer]], a.shape, a.strides, a.dtype)
             if isinstance(a, DeviceTensor) else a for a in arguments]  # fmt: skip
    try:
        results = host.follow(run, given)
    except (_UnrecordedError, PtoError):
        return None
    numbers, names = [argument for argument, _ in run.numbers], [name for _, name in run.numbers]
    return Recorded(
        host, device, device.warpgroups, tuple(run.sizes), tuple(run.words.values()), tuple(numbers),
        host.passed.arguments(names), tuple(run.pairs), tuple(run.steps),
        tuple((r, run.place(r.pointer)) if isinstance(r, DeviceTensor) else r for r in results),
    )  # fmt: skip


class _UnrecordedError(Exception):
    """The program does what depends on more than extents."""


class _Recording(Run):
    """Runs the host side of a program, and keeps what it would enqueue.

    remainders: of the addresses of the arguments that are tensors, divided by `ALIGNMENT`.
    """

    def __init__(self, program: HostProgram, device: Device, remainders: Sequence[int]) -> None:
        super().__init__(program, device, 0)
        self.addresses: list[int] = []
        for remainder in remainders:
            self._new_address(remainder)
        self.arguments = len(remainders)
        self.sizes: list[int] = []
        self.words: dict[int, tuple[Any, _Place]] = {}
        self.numbers: list[tuple[Any, str]] = []  # as C objects, and their names
        self.pairs: list[_Apart] = []
        self.steps: list[_Fill | Callable[[int], None]] = []

    def _new_address(self, remainder: int) -> int:
        self.addresses.append((len(self.addresses) + 1) * _APART + remainder)
        return self.addresses[-1]

    def place(self, address: int) -> _Place:
        """Where a made-up address is."""
        base = (address + _APART // 2) // _APART - 1
        return _Place(base, address - self.addresses[base])

    def allocated(self, size: int) -> Any:
        if len(self.sizes) == _MOST_ALLOCATIONS:
            raise _UnrecordedError
        self.sizes.append(size)
        return _Memory(self._new_address(0))

    def fill(self, pointer: int, element: bytes, count: int) -> None:
        self._keep(_Fill(self.place(pointer), element, count))

    def getelem(self, op: Op, args: Sequence[Any]) -> tuple[Any, ...]:
        raise _UnrecordedError

    def apart(self, kernel: Kernel, site: Site, args: Sequence[Any]) -> Sequence[Any]:
        for read, written, how in site.overlaps:
            one, two = args[read], args[written]
            if overlap(one, two, how.same):
                raise _UnrecordedError  # what is read is copied, or that is an error
            (low, high), (first, last) = one.span, two.span
            mine, other = self.place(low), self.place(first)
            if mine.base != other.base and max(mine.base, other.base) < self.arguments:
                self.pairs.append(_Apart(mine, high - low, other, last - first))
        return args

    def enqueue(self, site: Site, version: Version, trips: Any, args: Sequence[Any]) -> None:
        values = self.values(version.kernel, args)
        for value, words in zip(args, values, strict=False):  # behind them is where failures are recorded
            if isinstance(value, DeviceTensor):
                self.words[id(words)] = words, self.place(value.pointer)
        self.numbers += [(values[k], name) for k, name in site.passed]
        if not sizes(version.kernel).isdisjoint([version.kernel.func.params[k].name for k, _ in site.passed]):
            raise _UnrecordedError  # of a kernel in passes, which was not written when it was looked at
        where = grid(version.kernel, version.spread, trips)
        self._keep(self.device.prepared(version.compiled, where, version.spread.block, version.shared, values))

    def _keep(self, step: _Fill | Callable[[int], None]) -> None:
        if len(self.steps) == _MOST_STEPS:
            raise _UnrecordedError
        self.steps.append(step)


@frozen
class _Memory:
    """What is to be allocated."""

    pointer: int
