# SPDX-License-Identifier: MIT
"""What operations mean: their table, their types, the reference interpreter.

* `table`, `row`, `rules`, `checks`: the table of operations, what a row says, typing, the checks of all families
* `elementwise`, `reduction`, `matrix`, `order`, `memory`, `tensor`, `tile`, `debug`: the rows, by family
* `mathematics`, `special`: functions that are not operations, in Python over `pl`
* `interpreter`, `evaluation`: what a program means, and what each operation computes
* `failures`, `races`: what can fail while a program runs; races between iterations
"""
