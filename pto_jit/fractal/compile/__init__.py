# SPDX-License-Identifier: MIT
"""Parallel functions inside `@pto.jit` functions: nests of loops with access maps, and their schedules.

`docs/fractal.md` tells what comes of it.

* `handlers`, `session`, `argument`, `returning`: the names inside a kernel, the state of a compilation, lists that
  come in and go out
* `lists`, `expr`, `structure`, `names`: lists as access maps, index expressions, values of bodies taken apart
* `drawing`: nests as text, in the words of the program
* `access`, `windows`, `parts`, `strided`, `tables`, `extents`, `bounds`, `checks`: access operations; tables and
  checks that are computed before a nest
* `functions`, `states`: the parallel functions: a loop each, and whether their states keep their types
* `arranging`, `behind`, `chains`, `fusion`, `unread`, `hoist`, `mirrored`, `local`: nests rewritten before a plan is
  chosen
* `nest`, `hyperplane`, `cost`, `schedule`, `maps`, `told`: perfect nests and their distances, hyperplanes, what plans
  cost, the choice, that of nests without a state, what decisions say
* `layout`: where the leaves of an array lie
* `sequential`, `inside`, `wavefront`, `tasks`, `tiled`, `devices`: the plans
* `rows`, `dividing`, `strips`, `batching`, `blocks`, `pairs`, `through`, `gathering`, `copies`, `packing`, `placing`,
  `inputs`: many cells at once: as rows of tiles, gathered and scattered
* `sums`, `unrolled`, `weighted`, `totals`: sums that are products, cells without short loops, reductions of vectors
"""
