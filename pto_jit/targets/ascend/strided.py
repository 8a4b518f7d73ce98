# SPDX-License-Identifier: MIT
"""Tiles of tensors whose elements do not lie one after the other, as those of `x[:, ::2]` or `x.T`.

A transfer moves rows of a tile; of such a tensor a row on chip is one element, in a block of its own.  A line of such
rows becomes a column, which is a line of elements (`transfers`).  A tile of several rows goes by way of a piece of
global memory of the core's own, in which they do lie one after the other::

    for (int64_t row = 0; row < x_rows; ++row) {
      TLOAD(element_rows, x_here);       // of x + row * x_s0, elements x_s1 apart
      TSTORE(relay_here, element_rows);  // at relay + row * 64
    }
    TLOAD(t, relay_all);
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pto_jit.errors import Loc
from pto_jit.targets.ascend.form import Loop
from pto_jit.targets.ascend.machine import MOST_ROWS
from pto_jit.targets.ascend.moves import relay
from pto_jit.targets.ascend.refusals import too_large
from pto_jit.targets.ascend.sizes import Tensor, product, text, total
from pto_jit.targets.ascend.values import Expr, Size, Value

if TYPE_CHECKING:
    from pto_jit.targets.ascend.transfers import TransferWriter


def transfer_rows(
    w: TransferWriter, value: Value, tensor: Tensor, pointer: str, strides: tuple[Size, Size], loc: Loc, how: str
) -> None:
    """Between a tile of several rows and global memory where neither rows nor elements need lie together; how: the
    instruction."""
    store = how != "TLOAD"
    length = value.capacity[1]
    if length > MOST_ROWS:
        raise too_large(f"a tile of more than {MOST_ROWS} elements in a row, which lie apart", loc, "use smaller tiles")
    memory = relay(w, tensor.root, value.dtype, (value.capacity[0], length), loc)
    own = memory.pointer.text
    if store:
        w.transfer(value, memory, own, length, loc, "TSTORE")
    rows = w.named(value.valid[0], f"{tensor.root}_rows", loc)
    columns = w.named(value.valid[1], f"{tensor.root}_columns", loc)
    loop = Loop(w.names.fresh("row"), "0", str(rows), "1", [], loc=loc)
    w.nodes.append(loop)
    w.loops.append(loop)
    with w.inside(loop.body):
        w.scopes[-1][loop.var] = loop.var
        row = Expr(loop.var, frozenset([loop.var]))
        apart = w.temp(value.dtype, "full", (length, 32 // value.dtype.bytes), (value.valid[1], 1))
        here = w.rectangle(tensor, f"{tensor.root}_here", f"{pointer} + {text(product(row, strides[0]))}",
                           (columns, 1), strides[1], loc)  # fmt: skip
        line = w.rectangle(memory, f"{tensor.root}_line", text(total(memory.pointer, product(row, length))),
                           (columns, 1), 1, loc)  # fmt: skip
        tile = w.tile(apart, loc=loc)
        w.emit("TLOAD", tile, line if store else here, loc=loc)
        w.emit(how if store else "TSTORE", here if store else line, tile, loc=loc)
    w.loops.pop()
    if not store:
        w.transfer(value, memory, own, length, loc, "TLOAD")
