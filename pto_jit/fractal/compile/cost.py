# SPDX-License-Identifier: MIT
"""What the plans of a nest cost, roughly: what `schedule="auto"` goes by.

A cell is products, other operations and leaves that are read and written.  As a row of a batch its product is one of
many rows, which is faster per row, its leaves pass through memory, and those that are not in the planes already are
copied: a segment of cells at once, or row by row.  As a task it has the runtime's work besides.  The weights were
fitted to 150 nests on one core with vectors of 64 bytes (`docs/fractal.md`); half or twice as much changes few choices.

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
from pto_jit.fractal.compile.dividing import UNIT_ROWS
from pto_jit.fractal.compile.hyperplane import NoSchedule
from pto_jit.fractal.compile.lists import Choose, Leaf, Loop, ReadLeaf, WriteLeaf
from pto_jit.fractal.compile.names import defined
from pto_jit.fractal.compile.nest import Nest, accesses, depends_on, loops_of
from pto_jit.fractal.compile.tiled import refused
from pto_jit.ir.nodes import Const, Op
from pto_jit.ir.types import TileType
from pto_jit.lower.cost import factor
from pto_jit.slotted import frozen, replace

if TYPE_CHECKING:
    from pto_jit.fractal.compile.expr import Symbol
    from pto_jit.fractal.compile.pairs import Pairs
    from pto_jit.fractal.compile.wavefront import Planes
    from pto_jit.fractal.compile.weighted import Weighted

FEW, MANY, STEPS, THREADS = 1, 16, 32, 4
PEAK, ROWS = 310.0, 3.0  # a product of m rows: PEAK * m / (m + ROWS) flops per ns
PRODUCT, OPERATION, ELEMENT = 45.0, 2.5, 0.009  # a product; a loop of other operations; an element of it
NUMBER, DIVIDED = 0.3, 2000.0  # an operation on numbers; dividing a loop over the workers
READ, COPY = 0.006, 0.007  # per byte: what every plan reads and writes; what goes through the memory of planes
LANES = 16  # elements of a vector: columns of a product come in so many
IN_BATCH, SEGMENT, ROW = 95.0, 20.0, 5.5  # a product of a batch; a leaf that is copied: a segment at once, a row
TASK, REGION, IN_TILE, TILE = 40.0, 15.0, 25.0, 4  # a task; a region of it; a cell of several; what these tasks count
WORTH = 1.25  # tasks have to be so many times as fast as the cells in order
NEARLY = 1.1  # the simpler of two plans is taken when the other one is faster by less; tasks may cost so much more
TILES = (1, 2, 4, 8)


@frozen
class Cell:
    """What one cell does.

    products: (rows, flops) of each; elements: of other operations, those that are dear counted several times;
    operations: how many these are; numbers: operations on numbers, counted likewise; reads, written: bytes of leaves
    that differ from cell to cell, and of results; leaves: how many are read and written.
    """

    products: tuple[tuple[int, int], ...]
    elements: int
    operations: int
    numbers: int
    reads: int
    written: int
    leaves: int

    @property
    def flops(self) -> int:
        return sum(f for _, f in self.products) + self.elements + self.numbers

    @property
    def bytes(self) -> int:
        return self.reads + self.written

    def work(self, rows: float = 1) -> float:
        """The operations, of one cell among so many that are computed together."""
        products = sum(PRODUCT / rows + f * (m * rows + ROWS) / (PEAK * m * rows) for m, f in self.products)
        return products + self.operations * OPERATION / rows + self.elements * ELEMENT + self.numbers * NUMBER

    def in_order(self) -> float:
        return self.work() + self.bytes * READ

    def in_batch(self, rows: float, copied: Copied | None = None) -> float:
        fixed = (IN_BATCH - PRODUCT) * len(self.products) * min(rows - 1, 1)  # one row is multiplied as in order
        copies = copied.of(rows) if copied is not None else 0.0
        return self.work(rows) + self.bytes * (READ + COPY) + (fixed + copies) / rows

    def in_pairs(self, rows: float, columns: float) -> float:
        """Of the pairs of so many rows and columns, whose products are one."""
        pairs, lanes = rows * columns, ceil(columns / LANES) * LANES / columns
        products = sum(IN_BATCH / pairs + f * lanes * (rows + ROWS) / (PEAK * rows) for _, f in self.products)
        others = self.operations * OPERATION / pairs + self.elements * ELEMENT + self.numbers * NUMBER
        return products + others + self.bytes * (READ + COPY)

    def as_task(self, cells: int) -> float:
        """Of a task of so many cells."""
        inside, times = (0.0, 1) if cells == 1 else (IN_TILE, TILE)
        return self.work() + self.bytes * READ + inside + times * (TASK + REGION * self.leaves) / cells


@frozen
class Copied:
    """The leaves of a cell that are copied to or from rows: those at once that a segment has, and those row by row;
    `segments`: of a batch that is large enough."""

    at_once: int
    by_row: int
    segments: int

    def of(self, rows: float) -> float:
        """The time for a batch of so many rows."""
        return SEGMENT * self.at_once * min(self.segments, rows) + ROW * self.by_row * rows


def copied_of(nest: Nest, planes: Planes, extents: Sequence[int]) -> Copied:
    """What is copied for a batch of planes: leaves of other arrays, which do not lie as the planes do, and results that
    are kept.  What only the first of several layers reads does not count."""
    own = {id(item.array.root) for item in nest.writes}
    inner = nest.symbols[planes.batch[-1]]
    chosen = {nest.symbols[k] for k in planes.group}
    at_once = by_row = 0
    for item in nest.cell:
        if isinstance(item, ReadLeaf) and not any(id(a.array.root) in own for a in accesses(item.read)):
            used = [a.index for a in accesses(item.read) if depends_on(a, nest.symbols) - chosen]
            strewn = sum(not item.leaf.extents or any(e.coefficient(inner) is None for e in index) for index in used)
            by_row += strewn
            at_once += len(used) - strewn
        elif isinstance(item, WriteLeaf) and not item.array.root.folded and not item.array.root.temporary:
            together = inner == nest.symbols[-1] and bool(item.array.root.leaf.extents)
            by_row += not together
            at_once += together
    return Copied(at_once, by_row, prod(extents[k] for k in planes.batch[:-1]))


def cell_of(items: Sequence[Any], innermost: Symbol) -> Cell:
    """What the records and operations of a cell do; `innermost`: the index of the loop that they are in."""
    products: list[tuple[int, int]] = []
    elements = operations = numbers = reads = written = leaves = 0
    for item in items:
        if isinstance(item, ReadLeaf):
            size = _bytes(item.leaf)
            if depends_on(item.read, (innermost,)) or isinstance(item.read, Choose):
                reads += size
                leaves += 1
        elif isinstance(item, WriteLeaf):
            written += _bytes(item.array.root.leaf)
            leaves += 1
        elif isinstance(item, Op) and item.results and item.op != "load":  # tensors are read where they lie
            if item.op == "dot":
                (rows, inner), columns = _shape(item.args[0])[-2:], _shape(item.args[1])[-1]
                products.append((rows, 2 * rows * inner * columns))
                continue
            if isinstance(item.results[0].type, TileType):
                operations += 1
                elements += prod(_shape(item.results[0])) * factor(item.op)
            else:
                numbers += factor(item.op)
    return Cell(tuple(products), elements, operations, numbers, reads, written, leaves)


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
        times.append((cell.in_order(), cell.in_batch(rows, copied_of(nest, planes, extents))))
        count = 1 + sum(c * (n - 1) for c, n in zip(planes.h, extents, strict=True))
        number = f"{count} planes, {_rows(rows)} a batch"
        said.append(f"{_time(times[-1][1])} ({number})")
    text = f"{_figures(cell)}; in order {_time(cell.in_order())} each, as rows {' or '.join(said)}"
    in_order, together = multiples(times)
    return NEARLY * together <= in_order, text


def are_blocks(nest: Nest) -> tuple[bool, str]:
    """Whether the cells of a nest that carries nothing are better as rows of blocks; the figures.

    Without a product they are so only where a tensor is less than a vector: what is done element by element to others
    takes a row as long alone as among others.
    """
    cell = cell_of(nest.cell, nest.symbols[-1])
    if not cell.products and not _is_small(nest):
        return False, ""
    most = max(AT_ONCE // max((m for m, _ in cell.products), default=1), 1)
    rows = [min(most, prod(lengths(nest, many))) for many in situations(nest)]
    if len(nest.loops) == 1 and nest.loops[0].length.constant is None:
        rows = [min(most, STEPS)]
    times = [(cell.in_order(), cell.in_batch(n)) for n in rows]
    said = " or ".join(f"{_time(t)} ({_rows(n)} a block)" for (_, t), n in zip(times, rows, strict=True))
    in_order, together = multiples(times)
    text = f"{_figures(cell)}; in order {_time(cell.in_order())} each, as rows {said}"
    return NEARLY * together <= in_order, text


def _is_small(nest: Nest) -> bool:
    """Whether no tensor of a cell fills a vector, so that a loop over its elements does."""
    made = [v for i in nest.cell if isinstance(i, Op) for v in i.results]
    sizes = [prod(_shape(v)) for v in made if isinstance(v.type, TileType)]
    return bool(sizes) and max(sizes) <= LANES


def are_pairs(nest: Nest, work: Pairs) -> tuple[bool, str]:
    """Whether the cells of a map are better as `work`, where their sums are one product; the figures.

    What depends on the rows or the columns alone is computed once for each of these.
    """
    innermost = nest.symbols[-1]
    depends = loops_of(nest)
    own = [i for i in nest.cell if any(innermost in depends[n] for n in defined(i)) or isinstance(i, WriteLeaf)]
    parts = [cell_of(items, innermost) for items in work.parts()]
    in_order = cell_of(own, innermost).in_order() + OPERATION * len(parts[2].products)  # a sum to a number is a loop
    gathered = [sum(work.is_gathered(i, side) for i in work.reads if work.side(i) == side) for side in work.sides]
    times: list[tuple[float, float]] = []
    said: list[str] = []
    for many in situations(nest):
        extents = lengths(nest, many)
        columns = prod(extents[len(extents) - len(work.columns) :])
        rows = min(work.at_once, prod(extents[work.chosen : len(extents) - len(work.columns)]))
        alone = (ROW * g / n for g, n in zip(gathered, (columns, rows), strict=True))
        left, right = (c.in_batch(n) / m for c, n, m in zip(parts, (rows, columns), (columns, rows), strict=False))
        time = left + right + sum(alone) + parts[2].in_pairs(rows, columns)
        times.append((in_order, time))
        said.append(f"{_time(time)} ({_rows(rows)} by {columns})")
    text = f"{_figures(cell_of(own, innermost))}; in order {_time(in_order)} each, in one product {' or '.join(said)}"
    first, second = multiples(times)
    return NEARLY * second <= first, text


def goes_through(items: Sequence[Any], loop: Loop, sums: Sequence[Weighted]) -> tuple[bool, str]:
    """Whether the iterations of a map around loops, which do all of these, are better as rows; the figures.  The loops
    inside count once: what they do is the same either way; but `sums` would be products."""
    cell = cell_of(items, loop.symbol)
    added = (2 * (s.loop.length.constant or STEPS) * _bytes(s.leaf) // s.leaf.dtype.bytes for s in sums)
    cell = replace(cell, products=(*cell.products, *((1, flops) for flops in added)))
    if not cell.products:
        return False, ""
    rows = min(AT_ONCE, loop.length.constant or STEPS)
    in_order, together = cell.in_order(), cell.in_batch(rows)
    text = f"{_figures(cell)}; in order {_time(in_order)} each, as rows {_time(together)} ({_rows(rows)} a block)"
    return NEARLY * together <= in_order, text


def as_tasks(nest: Nest) -> tuple[tuple[int, ...] | None, str]:
    """The tile of cells that tasks should have; None: cells in order are as good.  The figures."""
    cell = cell_of(nest.cell, nest.symbols[-1])
    try:
        h = nest.hyperplane()
    except NoSchedule:
        h = (1,) * len(nest.loops)
    tiles = [t for t in _tiles(nest) if max(t) == 1 or refused(nest, t) is None]
    cheap = [t for t in tiles if cell.as_task(prod(t)) <= NEARLY * cell.in_order()]
    tiles = cheap or tiles
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
    overhead = cell.as_task(1) - cell.in_order()
    text = f"{_figures(cell)}; each in order and as {what} ({_time(overhead)} of the runtime's each): {'; '.join(said)}"
    good = bool(cheap) and means[0] >= WORTH * means[best]
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
        return _divided(count * cell.in_batch(min(AT_ONCE, count)), min(threads, ceil(count / AT_ONCE)))
    return _divided(count * cell.in_order(), min(threads, count))


def _of_nest(nest: Nest, planes: Planes | None, threads: int, many: int) -> float:
    """The time of a nest that carries something, in order or as rows of planes."""
    cell = cell_of(nest.cell, nest.symbols[-1])
    extents = lengths(nest, many)
    if planes is None:
        around = extents[0] if nest.loops[0].kind == "parallel" else 1
        return _divided(prod(extents) * cell.in_order(), min(threads, around))
    rows = _batch(planes, extents)
    groups = prod(extents[k] for k in planes.group)
    time = cell.in_batch(rows, copied_of(nest, planes, extents))
    return _divided(prod(extents) * time, min(threads, groups * max(1.0, rows / UNIT_ROWS)))


def _divided(time: float, workers: float) -> float:
    """The time of a loop that so many workers have."""
    return min(time, time / workers + DIVIDED)


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
