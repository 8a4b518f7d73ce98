# SPDX-License-Identifier: MIT
"""What the plans of a nest cost, roughly: what `schedule="auto"` goes by.

A cell is products, other operations and leaves that are read and written.  In order it is that, and the copies of
states and of what a choice reads.  As a row of a batch its product is one of many rows, which is faster per row, and
its leaves are gathered.  As a task it has the runtime's work besides.  The weights are those of one core of about 3 GHz
with vectors of 64 bytes, measured (`docs/fractal.md` has the table); half or twice as much changes few choices.

Lengths of lists are not known when a kernel is compiled, and neither a plan nor a result may depend on the number of
threads: code is kept on disk and runs with any.  So plans are compared in several situations, and the one is taken
whose times are the least multiples, in the geometric mean, of the best in each: a `map` around all of `FEW` and of
`MANY` elements; and where results are the same bits, one thread and `THREADS` of them.  Other loops whose lengths are
not constants count as `STEPS`.  Times are nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import ceil, prod
from typing import TYPE_CHECKING, Any

from pto_jit.fractal.compile.blocks import AT_ONCE, UNKNOWN
from pto_jit.fractal.compile.hyperplane import NoSchedule
from pto_jit.fractal.compile.lists import Choose, Leaf, ReadLeaf, WriteLeaf
from pto_jit.fractal.compile.nest import Nest, depends_on
from pto_jit.fractal.compile.rows import PIECE_ROWS
from pto_jit.fractal.compile.tiled import refused
from pto_jit.ir.nodes import Const, Op
from pto_jit.ir.types import TileType
from pto_jit.lower.cost import factor
from pto_jit.slotted import frozen

if TYPE_CHECKING:
    from pto_jit.fractal.compile.expr import Symbol
    from pto_jit.fractal.compile.wavefront import Planes

FEW, MANY, STEPS, THREADS = 1, 16, 32, 4
PEAK, ROWS = 100.0, 3.0  # a product of m rows: PEAK * m / (m + ROWS) flops per ns
PRODUCT, OPERATION, ELEMENT = 40.0, 8.0, 0.02  # the call of a product; a loop of other operations; an element of it
READ, COPY = 0.03, 0.06  # per byte
BATCH, IN_BATCH, ROW = 100.0, 10.0, 6.0  # a batch; an operation on it; a leaf of a row
TASK, REGION, IN_TILE = 250.0, 100.0, 150.0  # a task; a region of it; a cell of a task that has several
LEAST_TASK = 1000.0  # cells below are no tasks by themselves
WORTH = 1.25  # tasks have to be so many times as fast as the cells in order
NEARLY = 1.1  # the simpler of two plans is taken when the other one is faster by less
TILES = (1, 2, 4, 8)


@frozen
class Cell:
    """What one cell does.

    products: (rows, flops) of each; elements: of other operations, those that are dear counted several times;
    operations: how many these are; reads, chosen, written: bytes of leaves that differ from cell to cell, of those
    among them that a choice reads or a loop carries, and of results; leaves: how many are read and written.
    """

    products: tuple[tuple[int, int], ...]
    elements: int
    operations: int
    reads: int
    chosen: int
    written: int
    leaves: int

    @property
    def flops(self) -> int:
        return sum(f for _, f in self.products) + self.elements

    @property
    def bytes(self) -> int:
        return self.reads + self.written

    def work(self, rows: float = 1) -> float:
        """The operations, of one cell among so many that are computed together."""
        products = sum(PRODUCT / rows + f * (m * rows + ROWS) / (PEAK * m * rows) for m, f in self.products)
        return products + self.operations * OPERATION / rows + self.elements * ELEMENT

    def in_order(self) -> float:
        return self.work() + self.bytes * READ + self.chosen * COPY

    def in_batch(self, rows: float) -> float:
        fixed = BATCH + IN_BATCH * (self.operations + len(self.products))
        return self.work(rows) + self.bytes * (READ + COPY) + ROW * self.leaves + fixed / rows

    def as_task(self, cells: int) -> float:
        """Of a task of so many cells."""
        inside = 0.0 if cells == 1 else IN_TILE
        return self.work() + self.bytes * READ + inside + (TASK + REGION * self.leaves) / cells


def cell_of(items: Sequence[Any], innermost: Symbol) -> Cell:
    """What the records and operations of a cell do; `innermost`: the index of the loop that they are in."""
    products: list[tuple[int, int]] = []
    elements = operations = reads = chosen = written = leaves = 0
    for item in items:
        if isinstance(item, ReadLeaf):
            size = _bytes(item.leaf)
            if depends_on(item.read, (innermost,)) or isinstance(item.read, Choose):
                reads += size
                leaves += 1
                chosen += size if isinstance(item.read, Choose) or item.state is not None else 0
        elif isinstance(item, WriteLeaf):
            written += _bytes(item.array.root.leaf)
            leaves += 1
        elif isinstance(item, Op) and item.results:
            if item.op == "dot":
                (rows, inner), columns = _shape(item.args[0])[-2:], _shape(item.args[1])[-1]
                products.append((rows, 2 * rows * inner * columns))
                continue
            operations += 1
            elements += prod(_shape(item.results[0])) * factor(item.op)
    return Cell(tuple(products), elements, operations, reads, chosen, written, leaves)


def _shape(value: object) -> tuple[int, ...]:
    kind = getattr(value, "type", None)
    shape = tuple(UNKNOWN if n is None else n for n in kind.shape) if isinstance(kind, TileType) else ()
    return (1,) * (2 - len(shape)) + shape


def _bytes(leaf: Leaf) -> int:
    return leaf.dtype.bytes * prod(int(e.value) if isinstance(e, Const) else UNKNOWN for e in leaf.extents)


def lengths(nest: Nest, many: int) -> tuple[int, ...]:
    """How long the loops are taken to be, with `many` elements in the map around all."""
    found = []
    for k, loop in enumerate(nest.loops):
        known = loop.length.constant
        found.append(max(known, 1) if known is not None else many if k == 0 and loop.kind == "parallel" else STEPS)
    return tuple(found)


def is_batched(nest: Nest, planes: Planes) -> tuple[bool, str]:
    """Whether the cells of planes are better computed together, on one thread as on several; the figures."""
    cell = cell_of(nest.cell, nest.symbols[-1])
    times: list[tuple[float, float]] = []
    said: list[str] = []
    for many in situations(nest):
        extents = lengths(nest, many)
        rows = _batch(planes, extents)
        times.append((cell.in_order(), cell.in_batch(rows)))
        count = 1 + sum(c * (n - 1) for c, n in zip(planes.h, extents, strict=True))
        number = f"{count} planes, {_rows(rows)} a batch"
        said.append(f"{_time(times[-1][1])} ({number})")
    text = f"{_figures(cell)}; in order {_time(cell.in_order())} each, as rows {' or '.join(said)}"
    in_order, together = multiples(times)
    return NEARLY * together <= in_order, text


def are_blocks(nest: Nest) -> tuple[bool, str]:
    """Whether the cells of a nest that carries nothing are better as rows of blocks; the figures.

    Without a product they are not: what is done element by element takes a row as long alone as among others.
    """
    cell = cell_of(nest.cell, nest.symbols[-1])
    if not cell.products:
        return False, ""
    most = max(AT_ONCE // max(m for m, _ in cell.products), 1)
    rows = [min(most, prod(lengths(nest, many))) for many in situations(nest)]
    if len(nest.loops) == 1 and nest.loops[0].length.constant is None:
        rows = [min(most, STEPS)]
    times = [(cell.in_order(), cell.in_batch(n)) for n in rows]
    said = " or ".join(f"{_time(t)} ({_rows(n)} a block)" for (_, t), n in zip(times, rows, strict=True))
    in_order, together = multiples(times)
    text = f"{_figures(cell)}; in order {_time(cell.in_order())} each, as rows {said}"
    return NEARLY * together <= in_order, text


def as_tasks(nest: Nest) -> tuple[tuple[int, ...] | None, str]:
    """The tile of cells that tasks should have; None: cells in order are as good.  The figures."""
    cell = cell_of(nest.cell, nest.symbols[-1])
    try:
        h = nest.hyperplane()
    except NoSchedule:
        h = (1,) * len(nest.loops)
    tiles = [t for t in _tiles(nest) if max(t) == 1 or refused(nest, t) is None]
    times: list[tuple[float, ...]] = []
    cases = [(1, MANY), *((THREADS, many) for many in situations(nest))]
    for threads, many in cases:
        extents = lengths(nest, many)
        around = extents[0] if nest.loops[0].kind == "parallel" else 1
        row = [cell.in_order() / min(threads, around)]
        for tile in tiles:
            count = [ceil(n / t) for n, t in zip(extents, tile, strict=True)]
            width = prod(count) / (1 + sum(c * (n - 1) for c, n in zip(h, count, strict=True)))
            row.append(cell.as_task(prod(tile)) / min(threads, max(width, 1.0)))
        times.append(tuple(row))
    means = multiples(times)
    best = next(k for k in range(1, len(means)) if means[k] <= NEARLY * min(means[1:]))
    tile = tiles[best - 1]
    what = "tasks of one cell" if max(tile) == 1 else f"tasks of {tile} cells"
    said = [
        f"{_case(threads, many, threads > 1 and len(cases) > 2)}: {_time(row[0])}, {_time(row[best])}"
        for (threads, many), row in zip(cases, times, strict=True)
    ]
    overhead = TASK + REGION * cell.leaves
    text = f"{_figures(cell)}; each in order and as {what} ({_time(overhead)} of the runtime's each): {'; '.join(said)}"
    good = cell.in_order() >= LEAST_TASK and means[0] >= WORTH * means[best]
    return (tile if good else None), text


def is_worth_storing(items: Sequence[Any], leaf: Leaf, innermost: Symbol, *, fewer: bool) -> bool:
    """Whether what items compute could be better read from memory: it is computed among many there, or by several
    workers, or (`fewer`) not as often."""
    cell = cell_of(items, innermost)
    again = 0.0 if fewer else cell.work(AT_ONCE) if cell.products else cell.work() / THREADS
    return cell.work() - again > 2 * READ * _bytes(leaf)


def is_better_apart(
    whole: Nest, rest: Nest, maps: Sequence[tuple[Nest, bool]], planes: tuple[Planes | None, Planes | None]
) -> tuple[bool, str]:
    """Whether a nest is worth being taken apart in maps, with whether their cells can be rows, and the rest; figures.

    planes: of the whole and of the rest, where their cells will be rows.
    """
    cases = [(threads, many) for threads in (1, THREADS) for many in situations(whole)]
    times: list[tuple[float, float]] = []
    for threads, many in cases:
        before = sum(_of_map(nest, rows, threads, many) for nest, rows in maps)
        together, behind = (_of_nest(n, p, threads, many) for n, p in zip((whole, rest), planes, strict=True))
        times.append((together, before + behind))
    first, second = multiples(times)
    said = [
        f"{_case(threads, many, True)}: {_time(row[0])}, {_time(row[1])}"
        for (threads, many), row in zip(cases, times, strict=True)
    ]
    return NEARLY * second <= first, "; ".join(said)


def _of_map(nest: Nest, rows: bool, threads: int, many: int) -> float:
    """The time of a nest that carries nothing, in order or by blocks of rows."""
    cell = cell_of(nest.cell, nest.symbols[-1])
    extents = lengths(nest, many)
    count = prod(extents)
    if rows and cell.products:
        return count * cell.in_batch(min(AT_ONCE, count)) / min(threads, ceil(count / AT_ONCE))
    return count * cell.in_order() / min(threads, count)


def _of_nest(nest: Nest, planes: Planes | None, threads: int, many: int) -> float:
    """The time of a nest that carries something, in order or as rows of planes."""
    cell = cell_of(nest.cell, nest.symbols[-1])
    extents = lengths(nest, many)
    if planes is None:
        around = extents[0] if nest.loops[0].kind == "parallel" else 1
        return prod(extents) * cell.in_order() / min(threads, around)
    rows = _batch(planes, extents)
    groups = prod(extents[k] for k in planes.group)
    return prod(extents) * cell.in_batch(rows) / min(threads, groups * max(1.0, rows / PIECE_ROWS))


def _batch(planes: Planes, extents: Sequence[int]) -> float:
    """How many rows a batch of planes has."""
    steps = {k: c * (n - 1) for k, (c, n) in enumerate(zip(planes.h, extents, strict=True))}
    cells = prod(n for k, n in enumerate(extents) if k not in planes.group)
    return cells / (1 + sum(n for k, n in steps.items() if k not in planes.group))


def situations(nest: Nest) -> tuple[int, ...]:
    """The lengths that a map around all may have."""
    outer = nest.loops[0]
    return (FEW, MANY) if outer.kind == "parallel" and outer.length.constant is None else (MANY,)


def multiples(times: Sequence[Sequence[float]]) -> list[float]:
    """Per plan the geometric mean, over situations, of its time as a multiple of the best; times[situation][plan]."""
    columns = zip(*([t / min(row) for t in row] for row in times), strict=True)
    return [prod(column) ** (1 / len(times)) for column in columns]


def _tiles(nest: Nest) -> list[tuple[int, ...]]:
    """One size along the loops that carry something, from the innermost on: one or two of them."""
    dims = len(nest.loops)
    inner = [k for k in nest.carries if k >= dims - 2]
    found: set[tuple[int, ...]] = set()
    for sizes in product(TILES, repeat=len(inner)):
        along = dict(zip(inner, sizes, strict=True))
        found.add(tuple(along.get(k, 1) for k in range(dims)))
    return sorted(found, key=lambda t: (max(t), t))


def _case(threads: int, many: int, several: bool) -> str:
    said = "one thread" if threads == 1 else f"{threads} threads"
    return f"{said}, {many} in the map" if several else said


def _figures(cell: Cell) -> str:
    return f"a cell has {_count(cell.flops)} operations on {_count(cell.bytes)} bytes"


def _rows(n: float) -> str:
    return f"{n:.0f} {'row' if round(n) == 1 else 'rows'}"


def _count(n: float) -> str:
    if n >= 1e6:
        return f"{n / 1e6:.3g} million"
    return f"{n / 1e3:.3g} thousand" if n >= 1e4 else f"{n:.0f}"


def _time(ns: float) -> str:
    return f"{ns / 1000:.3g} us" if ns >= 1000 else f"{ns:.0f} ns"
