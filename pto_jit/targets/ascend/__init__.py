# SPDX-License-Identifier: MIT
"""The ascend target: C++17 for the Ascend 910B on the pto-isa tile library.

* `program`: from a module of loop IR to kernels and the host code that launches them
* `machine`, `instructions`, `refusals`: what the device has, the instructions of pto-isa, what the target does not do
* `fills`, `flips`: new tensors that the cores fill; reversed tiles as picked elements
* `elements`, `layers`, `layers_along`, `unit_axes`, `rows`, `strips`, `jumps`, `together`, `separate`,
  `whole_products`, `apart`, `few`, `both_ways`, `operands`, `lengths`, `numbers`, `places`, `behind`, `ragged`,
  `nothing`, `unread`, `unsigned`, `narrow`, `pairs`, `carries`, `singles`, `foreseen`: the IR rewritten for cores:
  blocks of rows, strips, branches for `continue`, kernels joined and taken apart, operands loaded twice, places that
  are computed once, loops cut at the ends of tensors, branches for sequences without elements, unsigned integers, those
  of 64 bits, f64, products before branches
* `plans`, `halves`, `ahead`: who does what: cube and vector cores, and what runs ahead
* `writer`, `scopes`, `form`, `sizes`, `scalars`, `doubles`, `turns`: a kernel while it is written: statements, names,
  tiles at addresses, numbers, also of f64, while loops
* `vector`, `tiles`, `held`, `values`, `memory`, `transfers`, `strided`, `extents`, `carried`, `alone`: kernels of
  vector cores: tiles, global memory, valid extents, also of what loops add up; recurrences by the scalar unit
* `elementwise`, `single`, `conversions`, `functions`, `called`, `played`, `remainders`, `quotients`, `shifts`,
  `applied`, `scans`, `folds`, `searches`, `sorts`, `gathers`, `indirect`, `histograms`, `randoms`, `moves`, `words`:
  their operations
* `cube`, `sums`, `groups`: kernels of cube cores, and of both kinds in step
* `accesses`, `events`, `steps`, `flow`, `synchronise`: flags and barriers: what touches what, and what has to wait
* `placing`, `copies`: addresses, and copies that are not needed
* `legality`, `ordering`, `contents`: checks of the finished form, made without knowing how it was made
* `printing`, `host`, `host_numbers`, `host_tensors`, `host_parts`: the text: kernels in C++, the host side in C
"""
