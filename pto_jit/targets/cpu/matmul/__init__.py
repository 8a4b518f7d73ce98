# SPDX-License-Identifier: MIT
"""The matrix product of the CPU target: blocked, packed, vectorised, generated as LLVM IR per combo of dtypes.

`library` is the door: ``Library(externals).ensure(Combo("f32", "f32", "f32"))``.  `shape` decides how a combo is
computed on a processor and `blocking` the block sizes; `kernel`, `panels`, `amx`, `pack` and `gemv` generate the
inner loops, `macro` and `driver` the loops around them, `few` is for few rows, `entries` the choice between the ways
and the public function.  `sums` adds up several products in registers; `tiled`, `pieces` and `piece_tiles` are
products and sums of f32 and f16 by matrix tiles; `rounded` rounds results to 16 bits while they are in the caches.
`irtext`, `vectors` and `parts` are what all of them are written with.
"""
