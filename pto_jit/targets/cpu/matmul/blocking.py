# SPDX-License-Identifier: MIT
"""Cache sizes and the block sizes that follow from them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pto_jit.slotted import frozen
from pto_jit.targets.cpu.matmul.shape import Scheme

DOT_ROWS = 8
"""See `Blocking`."""


@frozen
class Caches:
    """Bytes of the data caches one core sees."""

    l1: int = 32 << 10
    l2: int = 512 << 10
    l3: int = 8 << 20


@cache
def host_caches(root: str = "/sys/devices/system/cpu/cpu0/cache") -> Caches:
    """Sizes as the kernel reports them; defaults for levels it does not report."""
    found: dict[str, int] = {}
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    for index in sorted(Path(root).glob("index*")):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
            if kind in ("Data", "Unified") and size[:-1].isdigit() and size[-1] in scale:
                found[f"l{level}"] = int(size[:-1]) * scale[size[-1]]
        except OSError:
            continue
    return Caches(**{name: size for name, size in found.items() if name in ("l1", "l2", "l3") and size > 0})


@frozen
class Blocking:
    """Block sizes; rows and columns in elements, depth in groups of k."""

    depth: int  # KC: a panel of B of this depth stays near L1
    rows: int  # MC: a block of A of this many rows and KC stays in L2
    tile_rows: int  # rows of a tile of C that meets all of k: its block of A takes little of L2
    tile_columns: int  # columns of it: it stays in L2 from one block of k to the next
    near_columns: int  # NC when every block of B is used once: KC x NC stays in L2
    near_bytes: int  # packed B that stays in L2
    shallow: int  # up to this many groups of k, tiles of C are computed along its rows
    far_bytes: int  # packed B kept at once when it is used for many row blocks (a part of L3)
    small_bytes: int  # B of this size is read where it lies
    shared_bytes: int  # the same when workers share it
    stream_rows: int  # up to this many rows B is streamed from where it lies
    stream_depth: int  # rows of B streamed side by side
    pass_depth: int  # groups of rows of B that are packed for few rows of A
    few_rows: int  # up to this many rows B is read where it lies, row by row, whatever its dtype
    dot_rows: int  # the same for columns of B that lie along k: dot products
    dot_depth: int  # groups of k of which rows of A are copied for them
    stream_ahead: int  # bytes ahead along a streamed row of B to prefetch
    panel_ahead: int  # bytes ahead in a packed panel of B to prefetch
    split_work: int  # multiply-adds below which a product is not split over workers
    tasks: int  # pieces of C for each worker that shares it
    task_work: int  # multiply-adds of a task, at least


def blocking_of(scheme: Scheme, caches: Caches) -> Blocking:
    """Block sizes for a scheme: KC from L1, MC and NC from L2, the slab of B from L3."""
    unit, columns, rows = scheme.unit, scheme.tile_columns, scheme.panel_rows
    line = scheme.panel_columns * unit
    # A panel of B that is met by many panels of A stays in L1; a wide one is beyond L1 and comes from L2.
    most = 2 * caches.l1 // 3 // line if scheme.panelled else 2 * caches.l1 // line
    depth = max(64, min(512, most)) // 16 * 16
    row_block = max(4, caches.l2 // 4 // (depth * unit * rows)) * rows
    near = max(4, caches.l2 // 2 // (depth * unit * columns)) * columns
    if scheme.tiles and not scheme.integral:
        # A tile of A takes as long to come from L2 as its products take: less deep, B, and some of A, stay in L1, which
        # repays that C is added to more often.
        depth = min(depth, 128)
    tile_rows = max(4, caches.l2 // 16 // (depth * unit * rows)) * rows
    return Blocking(
        depth=depth,
        rows=row_block,
        tile_rows=tile_rows,
        # where arithmetic is fast, packing A again for other columns costs more than C that leaves L2
        tile_columns=caches.l2 // (2 if scheme.tiles else 4) // (tile_rows * scheme.element_c),
        near_columns=near,
        near_bytes=caches.l2 // 2,
        shallow=128,
        far_bytes=max(1 << 20, caches.l3 // 4),
        small_bytes=64 << 10,
        shared_bytes=caches.l2,
        stream_rows=48,
        stream_depth=16,
        pass_depth=min(128, depth),
        few_rows=4,
        dot_rows=DOT_ROWS,
        dot_depth=max(1024, caches.l2 // 2 // unit // DOT_ROWS // 1024 * 1024),
        stream_ahead=6 * scheme.lanes * unit,
        panel_ahead=8 * columns * unit,
        split_work=96 * 96 * 96 * scheme.group,
        tasks=16,
        task_work=64 * 64 * 64 * scheme.group,
    )
