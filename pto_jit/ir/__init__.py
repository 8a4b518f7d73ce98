# SPDX-License-Identifier: MIT
"""The loop IR.

* `nodes`, `types`: the grammar on one screen, and its types
* `text`, `parse`, `lexer`, `cursor`, `statements`, `instruction_text`, `variables`, `type_text`, `layout`: text in
  both directions
* `walk`, `flow`, `splice`, `numbering`: walking and rewriting; what a block reads from before it; bodies in the place
  of calls; functions that are the same program
* `verify`, `verifier`: what every pass may rely on, and the walk that looks for it
* `tile_calls`, `instances`, `isa/`: calls as they are written, functions for other types, the instructions of the PTO
  ISA
* `bounds`, `footprint`: bounds of integers, and which part of a tensor a function uses
"""
