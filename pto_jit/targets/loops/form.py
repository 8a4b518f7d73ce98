# SPDX-License-Identifier: MIT
"""The element-loop form: what a group of tile operations is as loops over elements.

A *nest* runs over a space of axes: the leading ones are *row axes*, the last one is the *inner* axis.  Per row it does
scalar work (`rows[0]`), then one vector loop over the inner axis (`stages[0]`), scalar work again (`rows[1]`), and so
on: `rows` has one segment more than `stages`.  A row softmax is::

    row 0
    stage 0   %0 = read x            m = fold max %0
    row 1
    stage 1   %0 = read x; %2 = sub %0, m; %3 = exp %2; write %3 -> row buffer 0; s = fold sum %3
    row 2
    stage 2   %5 = read row buffer 0; %6 = div %5, s; write %6 -> store 0

Values are numbered; a value of row level is one number per row, one of inner level one per element.  Operands of a
step are value numbers (`int`), or scalars of the enclosing function (`Var`, `Const`).  Nothing here knows a target:
writers decide lane counts, addresses, masks and what memory the names stand for.
"""

from __future__ import annotations

from typing import Any

from pto_jit.dtypes import DType
from pto_jit.errors import NOWHERE, Loc
from pto_jit.ir.nodes import Op, Operand
from pto_jit.slotted import frozen

Ref = int
Arg = int | Operand
Places = tuple[int | None, ...]
"""Per axis of a tile the axis of the space (0 first), or None for an axis of extent 1."""


@frozen
class Memory:
    """A tile of the enclosing function (or the result of a load of the group) that the nest reads: by name."""

    name: str


@frozen
class Kept:
    """Memory for a result that is read after the group: by name of the result."""

    name: str


@frozen
class Stored:
    """The region that the `number`-th store of the group writes."""

    number: int


@frozen
class RowBuffer:
    """One row of scratch memory, alive within a row."""

    number: int
    dtype: DType


Place = Memory | Kept | Stored | RowBuffer


@frozen
class Read:
    """`dst` is the element of `place` at the current indices."""

    dst: Ref
    place: Place
    axes: Places
    dtype: DType


@frozen
class Position:
    """`dst` is the current index along an axis of the space, as a number of `dtype` (an integer type wraps)."""

    dst: Ref
    axis: int
    dtype: DType


@frozen
class Compute:
    """`dst = op(args)`; `operand` is the dtype of the data operands, `dtype` that of the result."""

    dst: Ref
    op: str
    args: tuple[Arg, ...]
    operand: DType
    dtype: DType
    attrs: tuple[tuple[str, Any], ...] = ()
    loc: Loc = NOWHERE


@frozen
class Fold:
    """Over the whole stage: `dst`, known in the row segment after it, is the reduction of `arg` along the inner axis.

    `op` is sum prod max min any all argmax argmin; the last two give the index of the first extreme.
    """

    dst: Ref
    op: str
    arg: Arg
    operand: DType
    dtype: DType
    loc: Loc = NOWHERE


@frozen
class Write:
    """Put `arg` into `place` at the current indices."""

    place: Place
    axes: Places
    arg: Arg
    dtype: DType


@frozen
class Accumulate:
    """Combine `arg` into the memory of the result `name` at the current indices along `axes`, by a reduction's rule.

    The memory starts from the identity of `op`; the result is complete when the nest is.
    """

    name: str
    op: str
    axes: Places
    arg: Arg
    dtype: DType


Step = Read | Position | Compute | Fold | Write | Accumulate
Segment = tuple[Step, ...]


@frozen
class Source:
    """A tile that is read: `axes` line it up with the space; `until` is the last time it is read.

    Times count segments: row segment k is 2k, stage k is 2k + 1; -1 says that only the extents matter.
    """

    name: str
    axes: Places
    until: int


@frozen
class Store:
    """A store operation of the group: `axes` of the stored value, the time when it writes."""

    op: Op
    axes: Places
    time: int


@frozen
class Result:
    """A tile or scalar of the group that is needed after it.

    `axes` per axis of the tile; `late` results are accumulated by the whole nest, others are written row by row.
    A `scalar` result has no axes: it is either the value `ref` of the last row segment, or late.
    """

    name: str
    axes: Places
    dtype: DType
    late: str | None = None
    scalar: bool = False
    ref: Arg | None = None


@frozen
class Nest:
    """A row nest over `rank` axes; see the module."""

    rank: int
    rows: tuple[Segment, ...]
    stages: tuple[Segment, ...]
    sources: tuple[Source, ...]
    stores: tuple[Store, ...]
    results: tuple[Result, ...]
    loads: tuple[Op, ...]
    scalars: tuple[Op, ...]
    """Operations to be done before the nest, in order: loads (views), and scalars that need no tile values."""
    buffers: tuple[RowBuffer, ...] = ()
    measures: tuple[tuple[str, str, int], ...] = ()
    """Scalars that are extents: (name, tile, axis of the tile)."""
    views: tuple[Op, ...] = ()
    """Kept reshapes of tiles that lie in memory, which the target defines as views."""

    @property
    def flat(self) -> bool:
        """One stage and nothing that belongs to a row: the elements may be taken in rows of any length.

        Reductions over everything are allowed; they are accumulated row by row.  What combines the rows in another way
        than their elements (the sum of the largest of each) needs the rows.
        """
        if len(self.stages) != 1 or self.rows[0] or Accumulate in map(type, self.stages[0]):
            return False
        folds = {s.dst: s.op for s in self.stages[0] if isinstance(s, Fold)}
        return all(isinstance(s, Accumulate) and not s.axes and (not isinstance(s.arg, int) or folds.get(s.arg) == s.op)
                   for s in self.rows[1])  # fmt: skip
