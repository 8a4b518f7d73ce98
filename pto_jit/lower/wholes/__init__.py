# SPDX-License-Identifier: MIT
"""What is computed of whole tensors, divided into parts for the blocks and cores of a device.

* `divide`, `totals`: loops over parts of what is stored, and of what is reduced to one value
* `known`, `lines`, `pieces`: what the parts are chosen by: extents and makers of variables, lines that are independent,
  the pieces of a scope that are divided
* `cuts`: groups of operations, by way of memory, where no loop can do them together
* `folded`: columns that are reduced a part at a time
* `parted`: the loops, and the operations on a part
* `handed_on`: tiles that loops and branches hand on, in memory
"""
