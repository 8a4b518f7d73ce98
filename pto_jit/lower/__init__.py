# SPDX-License-Identifier: MIT
"""Transformations of the loop IR, one file each; `pipeline` is their order.

* `promises`, `outside`, `interchange`, `chunk`, `place`, `outwards`, `outline`, `alike`, `inline`: loops and scopes:
  promises checked, and indices; loops exchanged and split, scopes moved, functions made, one for those that are alike
* `borders`, `if_conversion`, `unroll`, `ends`, `late`, `pivot`, `independent`, `scans`, `ordered`, `extrema`, `packs`,
  `kept`, `once`, `jam`: first and last iterations apart, branches as selections, windows written out, least and
  greatest apart, extremes that take last what the iteration before has to give, loops divided at an element that all
  iterations read, sequential loops whose order cannot be seen, running extremes and sums, sums apart from what is
  added, greatest and least elements, elements stored side by side, elements as variables of a loop, and read once;
  several iterations together
* `invariant`, `associate`: products out of loops that do not change them, and chains of products in another order
* `reductions/`, `commuting`, `straight`, `dependence/`: partial results of parallel loops, functions that combine them
  in any order, and without branches; which iterations depend on each other
* `groups/`: tile operations that run as one nest of loops
* `maps`, `coalesce`, `complete`, `simplify`, `planes`, `rename`: tile operations: functions over tiles, values where
  they are kept, axes that are complete, constants, planes of tensors, names
* `wholes/`, `reuse`: tile operations on devices: whole tensors in parts, loads of what is loaded
* `grain`, `cost`, `amount`, `dispatch`, `footprints`, `instrument`: how loops are divided, tasks or not, what calls
  touch, checked loops
* `decisions`, `names`, `called`: what was considered; names and scalars for statements that passes add; programs under
  another name
"""
