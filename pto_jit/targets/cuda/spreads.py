# SPDX-License-Identifier: MIT
"""How the tiles of a launch are spread over threads: the compile-time choices of a version of a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from pto_jit.errors import LaunchError, TargetError
from pto_jit.ir.nodes import Const, For, Var
from pto_jit.ir.walk import defs
from pto_jit.lower.names import source_name
from pto_jit.slotted import frozen, replace
from pto_jit.targets.cuda.flatten import unsupported
from pto_jit.targets.cuda.kernels import SLOTS, THREADS, Kernel
from pto_jit.targets.cuda.privatised import with_bins

MOST_SLOTS = 128  # elements of a tile that a thread can hold at all
MOST_THREADS = 1024
LARGEST = 227 * 1024
"""Bytes of shared memory that a block has at most on any device: those of compute capability 9.0."""
SMALLEST = 163 * 1024
"""What a block has on devices of compute capability 8.0: what is written for any device takes no more."""
_RESERVED = 1024  # bytes of shared memory that each block takes for the system
_MANY = 512  # iterations that fill a device in blocks of a usual size
_STREAMING = 512  # threads of a block that multiplies rows by matrices in memory: enough to keep it busy
_ROWS = 65535  # blocks along the y and z of a grid


BY_TRIPS = ("elements", "folds")
"""Kinds of kernels whose spread depends on how often their loops run."""


@frozen
class Spread:
    """defines: macros of the version; block: threads along x and y; teams: iterations that a block takes at a time;
    most_blocks: so many blocks a grid has at most, where that is not 0."""

    defines: tuple[tuple[str, int], ...]
    block: tuple[int, int, int]
    teams: int
    most_blocks: int = 0


def with_stages(spread: Spread, stages: int) -> Spread:
    """The same with another number of copies of staged tiles."""
    defines = tuple((name, stages if name == "STAGES" else value) for name, value in spread.defines)
    return replace(spread, defines=defines)


def as_matrix(extents: tuple[int, ...]) -> tuple[int, ...]:
    """The extents of a tile as its threads have it: of more than two axes all but the last are its rows."""
    return extents if len(extents) <= 2 else (prod(extents[:-1]), extents[-1])


def fit(
    kernel: Kernel, extents: Mapping[str, int], shapes: Sequence[tuple[int, ...]], trips: Sequence[int], limit: int,
    warpgroups: bool = False, run: int | None = None, elements: tuple[int, ...] = (),
) -> tuple[Spread, int]:  # fmt: skip
    """`choose` with as many stages as pay, and the bytes of shared memory that a block takes.

    warpgroups: the device multiplies by warpgroups.  run, elements: as `choose` has them.  limit: the bytes that a
    block can have.  A multiprocessor has a little more, which blocks share: fewer stages are taken where that lets more
    blocks run at a time, until there are two warps for each of its four schedulers.
    Without room for two stages there is one, and copies are waited for.
    """
    shapes = [as_matrix(s) for s in shapes]
    if warpgroups and kernel.warpgroups:
        found = _of_warpgroups(kernel, extents, shapes, limit)
        if found is not None:
            return found
    spread = choose(kernel, extents, shapes, trips, run, elements)
    versions: list[tuple[Spread, int]] = []
    for stages in range(kernel.stages, 0, -1):
        version = with_stages(spread, stages)
        versions.append((version, kernel.shared_bytes(dict(version.defines))))
    warps = -(-spread.block[0] * spread.block[1] // 32)

    def resident(version: tuple[Spread, int]) -> int:
        bytes_of_all = version[1] + kernel.exchanged_bytes
        return min(8, warps * ((limit + _RESERVED) // (bytes_of_all + _RESERVED))) if bytes_of_all <= limit else 0

    ahead, alone = versions[:-1], versions[-1]
    best = max(ahead, key=resident)  # of equals the first, which has most stages
    return best if resident(best) else alone


def _of_warpgroups(
    kernel: Kernel, extents: Mapping[str, int], shapes: Sequence[tuple[int, ...]], limit: int
) -> tuple[Spread, int] | None:
    """A warpgroup for 64 rows of a result, and as many stages as there is room for: at least three, of which one is
    copied to, one is read, and one belongs to the product that goes on.  None where that does not fit a block."""
    rows, columns = max((s for s in shapes if len(s) == 2), key=prod)
    groups = next((n for n in (4, 2) if rows % (64 * n) == 0), 1)
    if rows * columns > 128 * groups * MOST_SLOTS:
        return None
    versions: list[tuple[Spread, int]] = []
    for stages in (4, 3):
        defines = [("WM", 4 * groups), ("WN", 1), ("STAGES", stages), ("WARPGROUPS", 1), *_capacities(extents)]
        version = Spread(tuple(defines), (128 * groups, 1, 1), 1)
        versions.append((version, kernel.shared_bytes(dict(defines))))
    fitting = [v for v in versions if v[1] + kernel.exchanged_bytes <= limit]
    # Of two blocks on a multiprocessor one multiplies while the other begins or ends.
    return max(fitting, key=lambda v: min(2, (limit + _RESERVED) // (v[1] + _RESERVED)), default=None)


def refuse_misfits(kernel: Kernel, shared_limit: int = LARGEST) -> None:
    """Raise TargetError for a kernel that no launch could run: its host code cannot know the extents of its tiles, or
    they do not fit a block with so many bytes of shared memory, whatever extents are only known when it runs."""
    known = {p.name for p in kernel.func.params}
    for stmt in kernel.first_iteration:
        known |= {stmt.var.name} if isinstance(stmt, For) else {d.name for d in defs(stmt)}
    for extent in (*(e for _, e in kernel.capacities), *(e for shape in kernel.shapes for e in shape)):
        if isinstance(extent, Var) and extent.name not in known:
            raise unsupported(f"a tile whose extent `{source_name(extent.name)}` is computed in the kernel",
                              kernel.func.loc, "give the tile a constant extent: pl.load clips it")  # fmt: skip
    least = [tuple(int(e.value) if isinstance(e, Const) else 1 for e in shape) for shape in kernel.shapes]
    try:
        _, shared = fit(kernel, {macro: 1 for macro, _ in kernel.capacities}, least, [1] * len(kernel.chain),
                        shared_limit)  # fmt: skip
        check_shared(kernel, shared, shared_limit)
    except LaunchError as error:
        code, _, said = str(error).partition(": ")
        message, _, hint = said.partition("\nhelp: ")
        place = kernel.func.loc if kernel.func.loc.lineno else None
        raise TargetError(message, place, code=code, hint=hint) from None


def does_not_fit(error: LaunchError) -> bool:
    """Whether tiles are too large for the registers or the shared memory of a block."""
    return str(error).startswith(("PTO-X130", "PTO-X144"))


def check_shared(kernel: Kernel, shared: int, limit: int) -> None:
    """Raise LaunchError when a version wants more shared memory than a block can have."""
    if shared > limit:
        known = (", or loop over parts of the longest axis, or give extents that are known when it is compiled: tiles "
                 "that do not fit are divided then")  # fmt: skip
        raise LaunchError(f"PTO-X144: {kernel.name}: its tiles take {shared} bytes of shared memory of {limit}\n"
                          f"help: use smaller tiles{known if kernel.capacities else ''}")  # fmt: skip


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def choose(
    kernel: Kernel, extents: Mapping[str, int], shapes: Sequence[tuple[int, ...]], trips: Sequence[int],
    run: int | None = None, elements: tuple[int, ...] = (),
) -> Spread:  # fmt: skip
    """For the run-time extents behind the capacities (by macro), the extents of all tiles, the iterations of the chain.

    run: so many columns at a time the tensors of a launch allow, where they are known; elements: how many each of the
    privatised tensors has, 0 where that is not known.
    Raises LaunchError for tiles that do not fit the registers of a block.
    """
    if kernel.kind == "elements":
        return _elements(kernel, trips, elements)
    if kernel.kind == "folds":
        return _folds(trips)
    if kernel.kind == "fragments":
        return _fragments(kernel, extents, shapes)
    rows = max((s[0] for s in shapes if len(s) == 2), default=1)
    columns = max((s[-1] for s in shapes), default=1)
    run = run or kernel.run
    if not kernel.in_order:  # runs that no access takes as a whole only keep the lanes of a warp apart from each other
        while columns % run:
            run //= 2
    while run > 1 and columns <= 16 * run:  # half of it leaves no threads of a warp without columns
        run //= 2
    if kernel.teamed:
        slots = kernel.slots
        if columns <= 32 * run * max(1, slots // run):
            teams, threads = THREADS // 32, 32
        else:
            wanted = slots if columns <= SLOTS * THREADS else 2 * SLOTS if columns <= 1024 * SLOTS else 4 * SLOTS
            teams, threads = 1, min(MOST_THREADS, max(64, power_of_two(-(-columns // wanted))))
        held = -(-columns // (threads * run)) * run
    else:
        teams, threads = _teams(kernel.whole_rows, rows, -(-columns // run))
        while (held := _held(shapes, teams, threads, run)) > SLOTS:
            if threads * teams >= (MOST_THREADS if held > 2 * SLOTS else 2 * THREADS):
                break
            if teams < rows and not (kernel.whole_rows and threads * run < columns):
                teams *= 2
            else:
                threads *= 2
        if kernel.streams:  # teams share the rows of matrices
            teams = max(teams, _STREAMING // threads)
        held = _held(shapes, teams, threads, run)
    if held > MOST_SLOTS and not kernel.teamed:  # tall tiles beside wide ones want other threads than either
        held, teams, threads, run = _least_held(shapes, run)
    if held > MOST_SLOTS:
        raise _too_large(kernel, rows, columns)
    step = threads * run
    defines = [("TR", teams), ("TC", threads), ("V", run)]
    for macro, extent in extents.items():
        slots = power_of_two(-(-extent // step))
        defines.append((macro, max(1, slots) * step if extent > step else power_of_two(max(extent, 1))))
    return Spread(tuple(defines), (threads, teams, 1), teams if kernel.teamed else 1)


def _held(shapes: Sequence[tuple[int, ...]], teams: int, threads: int, run: int) -> int:
    """The most elements of a tile that a thread holds."""
    sizes = ((s[0] if len(s) == 2 else 1, s[-1], run if s[-1] > 1 else 1) for s in shapes)
    return max((-(-rows // teams) * -(-columns // (threads * own)) * own for rows, columns, own in sizes), default=run)


def _least_held(shapes: Sequence[tuple[int, ...]], run: int) -> tuple[int, int, int, int]:
    """How few elements of a tile a thread of the largest block can hold, with teams, threads and run for that; run: so
    many columns at a time at most."""
    ways = [(MOST_THREADS // threads, threads, some)
            for threads in _powers(32, MOST_THREADS) for some in _powers(1, run)]  # fmt: skip
    return min((_held(shapes, *way), *way) for way in ways)


def _powers(least: int, most: int) -> list[int]:
    """Powers of two from one of them on."""
    return [least << k for k in range((most // least).bit_length())]


def _teams(whole_rows: bool, rows: int, runs: int) -> tuple[int, int]:
    """Teams that share the rows of a tile, and the threads of each that share its columns: `runs` for each row.

    Where rows are reduced, a row is of as few warps as can be: those of one warp meet without waiting for others.
    """
    if whole_rows:
        teams = min(THREADS // 32, power_of_two(rows))
        return teams, min(THREADS // teams, max(32, power_of_two(runs)))
    threads = min(THREADS, max(32, power_of_two(runs)))
    return max(1, min(THREADS // threads, power_of_two(rows))), threads


def _elements(kernel: Kernel, trips: Sequence[int], elements: tuple[int, ...]) -> Spread:
    inner = trips[-1] if trips else 1
    x = min(THREADS, max(32, power_of_two(inner)))
    y = min(THREADS // x, power_of_two(trips[-2])) if len(trips) > 1 else 1
    room, blocks = with_bins(kernel.privatised, elements or (0,) * len(kernel.privatised), prod(trips), x * y)
    return Spread(tuple(room.items()), (x, y, 1), 1, blocks)


def _folds(trips: Sequence[int]) -> Spread:
    """Few iterations get the largest blocks, so that they keep as much of the device busy as they can."""
    threads = THREADS if prod(trips) >= _MANY else MOST_THREADS
    return Spread((("TR", 1), ("TC", threads), ("V", 1)), (threads, 1, 1), 1)


def _fragments(kernel: Kernel, extents: Mapping[str, int], shapes: Sequence[tuple[int, ...]]) -> Spread:
    """Warps so that a thread holds at most 128 elements of the largest tile; rows of a tile stay in one warp when the
    kernel reduces them."""
    covered = {(-(-s[0] // 16) * 16, -(-s[1] // 8) * 8): s for s in shapes if len(s) == 2}  # by fragments of 16 x 8
    rows, columns = max(covered, key=prod, default=(16, 16))
    size = rows * columns
    # On tensor cores a warp with 64 x 64 sums reads least from shared memory, so that the products wait least.
    slots = MOST_SLOTS if kernel.tensor_cores and not kernel.whole_rows else MOST_SLOTS // 2
    warps = 4 if size <= 4 * 32 * slots else 8
    while size > warps * 32 * MOST_SLOTS and warps < 32:
        warps *= 2
    down, across = 1 << (min(warps, max(1, -(-rows // 16))).bit_length() - 1), 1
    if not kernel.whole_rows:
        down, across = _layout(kernel.tensor_cores, warps, rows, columns)
    elif not kernel.tensor_cores:  # rows may meet in shared memory: rather that than elements that no register holds
        while size > down * across * 32 * MOST_SLOTS // 2 and down * across < 32 and 8 * across < columns:
            across *= 2
    largest = covered.get((rows, columns), (rows, columns))
    if prod(largest) > down * across * 32 * MOST_SLOTS:
        raise _too_large(kernel, *largest)
    defines = [("WM", down), ("WN", across), ("STAGES", kernel.stages)]
    defines += [("WARPGROUPS", 0)] if kernel.warpgroups else []
    defines += _capacities(extents)
    return Spread(tuple(defines), (32 * down * across, 1, 1), 1)


def _capacities(extents: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(macro, max(16, -(-extent // 16) * 16)) for macro, extent in extents.items()]


def _layout(tensor_cores: bool, warps: int, rows: int, columns: int) -> tuple[int, int]:
    """How many warps share the rows of a result and how many its columns: so that they read least from shared memory.

    On tensor cores a step of 16 takes a load for 16 rows and one for 16 columns; elsewhere a step of 4 takes one for
    each row of a thread, of which it keeps at most 8 in registers, and two for each column.
    """
    out: tuple[int, int] | None = None
    least = 0
    down = 1 << (min(warps, max(1, -(-rows // 16))).bit_length() - 1)
    while down >= 1:
        across = warps // down
        high, wide = -(-rows // (16 * down)), -(-columns // (8 * across))
        loads = 2 * high + wide if tensor_cores else 2 * high + 4 * wide
        if (out is None or loads < least) and (high <= 4 or out is None):
            out, least = (down, across), loads
        down //= 2
    assert out is not None
    return out


def _too_large(kernel: Kernel, rows: int, columns: int) -> LaunchError:
    known = all(isinstance(extent, Const) for shape in kernel.shapes for extent in shape)
    other = "" if known else ", or give extents that are known when it is compiled: what is reduced is divided then"
    return LaunchError(
        f"PTO-X130: {kernel.name}: a tile of {rows} x {columns} elements does not fit the registers of a block\n"
        f"help: use smaller tiles, or loop over parts of the row{other}"
    )


_BLOCKS = (2**31 - 1, _ROWS, _ROWS)
"""The most blocks along the x, y and z of a grid."""


def covers(kernel: Kernel, trips: Sequence[int], spread: Spread | None = None) -> bool:
    """Whether a grid has a block or thread for every iteration of the loops that say so (`Kernel.covered`); it may,
    where no spread is given."""
    last = len(trips) - 1
    few = spread is not None and spread.most_blocks
    return not few and kernel.covered != () and all(trips[k] <= _BLOCKS[last - k] for k in kernel.covered)


def covering(spread: Spread) -> Spread:
    """The same for launches whose grid covers all iterations."""
    return replace(spread, defines=(*spread.defines, ("COVERED", 1)))


def grid(kernel: Kernel, spread: Spread, trips: Sequence[int]) -> tuple[int, int, int]:
    """Blocks for the innermost three loops of the chain; a block takes several iterations where there are too many."""
    out = [1, 1, 1]
    for axis, trip in zip(range(3), reversed(trips), strict=False):
        per_block = spread.teams if axis == 0 else 1
        if kernel.kind == "elements":
            per_block = spread.block[axis]
        out[axis] = max(1, min(-(-trip // per_block), _BLOCKS[axis]))
    if spread.most_blocks:
        left = spread.most_blocks
        for axis in range(3):
            out[axis] = min(out[axis], left)
            left //= out[axis]
    return out[0], out[1], out[2]
