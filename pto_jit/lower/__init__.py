# SPDX-License-Identifier: MIT
"""Transformations of the loop IR, one file each; `pipeline` is their order.

* `promises`, `interchange`, `chunk`, `place`, `outwards`, `outline`, `inline`: loops and scopes: promises checked,
  loops exchanged and split, scopes moved, functions made
* `pivot`, `independent`, `kept`, `once`: loops divided at an element that all iterations read, sequential loops whose
  order cannot be seen, elements as variables of a loop, and read once
* `invariant`, `associate`: products out of loops that do not change them, and chains of products in another order
* `reductions/`, `dependence/`: partial results of parallel loops; which iterations depend on each other
* `maps`, `views`, `viewed`, `fuse`, `axes`, `rows`, `recompute`, `fitting`, `units`, `coalesce`, `complete`,
  `simplify`, `rename`: tile operations: nests, axes, what rows share, tiles that are not kept, generated tiles, axes of
  extent 1, values where they are kept, constants
* `divide`, `known`, `totals`, `parted`, `pieces`, `handed_on`, `lines`, `reuse`: tile operations on devices: parts for
  blocks and cores, what they are chosen by, what is reduced to one value, tiles between loops, lines that are
  independent, loads of what is loaded
* `grain`, `cost`, `amount`, `dispatch`, `footprints`, `instrument`: how loops are divided, tasks or not, what calls
  touch, checked loops
* `decisions`, `names`, `called`: what was considered; names and scalars for statements that passes add; programs under
  another name
"""
