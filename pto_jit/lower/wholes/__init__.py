# SPDX-License-Identifier: MIT
"""What is computed of whole tensors, divided into parts for the blocks and cores of a device.

* `divide`, `totals`: loops over parts of what is stored, and of what is reduced to one value
* `choose`: which axes are divided, and into which parts
* `cut`, `memory`, `long`, `partials`, `running`, `chunks`: several loops where no one does it: what stands between
  them, tiles in memory, lines that are longer than a block has room for, their partial results, what runs along them,
  their chunks
* `passes`, `own_rows`, `flat`: rows that are gone over several times where they may be too long, of whole tensors and
  of loops of the program; planes of these that are rows
* `collapsed`: tensors that are combined element by element, as one row each
* `known`, `sizes`, `lines`, `pieces`: what the parts are chosen by: extents and makers of variables, lines that are
  independent, the pieces of a scope that are divided
* `elements`: elements of tensors that whole tensors are combined with
* `folded`: columns that are reduced a part at a time
* `parted`: the loops, and the operations on a part
* `handed_on`: tiles that loops and branches hand on, in memory
"""
