# SPDX-License-Identifier: MIT
"""The cuda target: kernels as CUDA C++ sources, launched where there is a GPU, emulated where there is none.

* `program`, `nests`, `between`, `views`, `flatten`, `handed`, `alike`: from a module of loop IR to kernels and a host
  program
* `parts`, `written`, `wholes`, `starts`, `tiling`, `forms`, `slices`, `merged`, `thin`, `along`, `batches`, `turned`,
  `squares`: the IR rewritten for blocks: tiles too large for one, products of whole tensors, long contractions, lines
  that become rows, products of many matrices, and of transposed ones, loops over elements that exchange axes
* `bounds`, `ceilings`, `valid`, `shapes`, `units`, `facts`: extents: what the host computes, what they do not exceed,
  what is known before a kernel is written, axes of extent 1 that may be empty
* `loops`, `order`, `roles`, `spreads`, `regions`: choices: what threads share, which blocks come first, what tiles are
  to products, how tiles are spread, what may overlap
* `kernels`, `overlaps`, `function`, `tiles`, `access`, `elements`, `updates`, `privatised`, `rules`, `folds`, `values`,
  `unused`: a kernel as a source: what must not share memory, loops and scalars, slots of a thread, loads and stores,
  loops over elements, their updates, those that blocks gather, functions of the program, loops that a block shares,
  lines that nobody needs
* `products`, `vectors`, `reductions`, `moves`, `lines`, `places`: operations between threads: products, one row by a
  matrix, folds, transposes, order and running combinations, elements at places that are computed
* `layouts`, `higher`: where tiles of more than two axes lie, and all of these operations for them
* `host`, `hostcode`, `tensors`, `replay`, `passed`, `launcher`: the host program: in Python for launches here, where
  its tensors lie, what a call of it enqueued for calls like it, the numbers that may be others then, in C for programs
  without Python
* `devices`, `driver`, `api`, `compilers`, `nvrtc`, `copies`: devices: the emulated one, GPUs through the driver, its
  functions, compilers, arguments in the CPU's memory
"""
