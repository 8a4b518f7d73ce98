# SPDX-License-Identifier: MIT
"""The c target: readable C11 on the run-time library, from the CPU target's writers.

* `program`, `module`: from a module of loop IR to C sources; what the functions of one share
* `function`, `code`, `builder`, `values`, `tidy`: one function: statements, the interface of targets.cpu.code over C
  expressions, the last look
* `nest`, `shared`, `operations`, `recipes`, `products`: loops over rows, those that occur more than once, elementwise
  operations, vector math, matrix products
* `parallel`, `tasks`, `regions`, `refusals`: divided loops, task graphs, overlaps; what needs more, and what is
  refused
* `native`, `written`, `header`, `library`: compiled and loaded here; written to directories; headers; libraries
"""
