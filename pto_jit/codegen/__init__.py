# SPDX-License-Identifier: MIT
"""From Python source to the loop IR.

`compile_program` is the way in.  A kernel's source is evaluated by Python's rules: what is known at compile time is
computed by Python itself, what involves a run-time value is appended to the IR.

* `compilation`, `params`: parameters, the entry function, the module
* `generator`, `recovery`: the state of a compilation: names, places, errors; going on after one
* `expressions`, `statements`, `assignments`, `patterns`: the visitors
* `operators`, `items`, `folding`: operators, comparisons and `in`; comprehensions, generators, what is iterated;
  `sum` and the like of generators as loops
* `tables`: items of small tables at run-time indices
* `unshared`, `changes`: which objects calls make, which a kernel may change; what calls change
* `unused`: warnings for statements that do nothing, and for calls that are made once
* `texts`: f-strings with run-time values, for assertions and `pl.print`
* `calls`, `binding`, `intrinsics`, `construction`, `built`: calls: Python's, the language's, functions compiled into
  their callers, built functions
* `indices`: comprehension statements
* `libraries`, `arrays`, `numpy_names`: functions of NumPy and `math`, arrays that they make, and what to write for
  those that kernels do not have
* `control`, `regions`: run-time branches and early exits
* `choices`: conditional expressions, and/or, functions as IR regions
* `loops`, `loop_body`, `loop_results`, `iteration`, `counting`, `rotation`, `reductions`: loops
* `merging`, `retype`: one value out of several paths
* `boundaries`, `presence`, `remaking`, `valid_extents`: in-core scopes, and what crosses their borders
* `results`, `leaf`: what the entry returns
* `names`, `frames`, `marks`: scopes of names, liveness; how the language's functions are recognised
* `syntax`: every class of ast and what happens to it
* `builtins/`: the operations of pl
* `emit`, `values`: typed IR
* `spelling`: numbers of the IR as the program writes them
* `fingerprint`: identity of callables by content
"""

from typing import TYPE_CHECKING, Any

from pto_jit.codegen.params import ContainerParam, Param, ParamKind, ScalarParam, StaticParam, TensorParam

if TYPE_CHECKING:
    from pto_jit.codegen.compilation import Program, compile_program


def __getattr__(name: str) -> Any:
    """The front end is imported when something is compiled: calls of what the disk cache holds do without."""
    if name in ("Program", "compile_program"):
        from pto_jit.codegen import compilation

        return getattr(compilation, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ContainerParam",
    "Param",
    "ParamKind",
    "Program",
    "ScalarParam",
    "StaticParam",
    "TensorParam",
    "compile_program",
]
