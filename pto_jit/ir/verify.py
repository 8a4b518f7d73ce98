# SPDX-License-Identifier: MIT
"""Whether a program is what every pass may rely on.

What `verify` checks, always:

1.  The module has functions with different names, and its entry is one of them.
2.  Parameters of a function have different names; a variable has one type in the whole function.
3.  Every function and statement has a location.
4.  Every read comes after an assignment on all paths to it.
5.  Constants belong to their dtype; with `infer`, every operation's operands and attributes are right and its results
    have the types that it gives (or ones that say less: an unknown extent, a more general layout).
6.  Loops count with i64; a constant step is not 0; a chunk is i64; the body does not assign the loop variable.  Only
    parallel, chunk and in_chunk loops are checked.
7.  BREAK stands in a sequential FOR or a WHILE, CONTINUE in a loop; neither leaves a scope, a region, or the part of a
    WHILE that computes the condition.
8.  return stands outside scopes, regions and all but sequential loops; its values have the function's result types; a
    function with results returns on every path.
9.  Tiles have at least one axis; they are not parameters or results of functions and calls; in an orchestration
    function they live within one scope.  Conditions are bool_ scalars.
10. A call names a function of the module, passes what it takes and assigns what it returns; calls form no cycle; an
    in-core function calls in-core functions only.
11. Regions take and return scalars, contain operations, loops and branches only, and assign none of the enclosing
    function's variables.
12. Scopes stand in orchestration functions and not in each other.
13. A FUSE group holds operations only; it keeps results of its own, and its other results are not read outside it.
14. Attributes have different names and values that can be written as text.
15. Only parallel and in_chunk loops have reductions.  Their variables are scalars or tiles assigned before the loop; an
    associative operation by name combines one, starting from a scalar; a region takes two states and gives one.

And the properties of stages, when they are named:

* `typed`: 5 was checked with `infer` (asking for it without `infer` is an error of the caller).
* `normalised`: no statement follows return, BREAK or CONTINUE in its block; no IF has a constant condition.
* `reduced`: no parallel or chunk loop has reductions any more.
* `chunked`: no loop asks for a chunk any more.
* `placed`: no scope is empty.
* `outlined`: there are no scopes; orchestration functions have no tiles.
* `fused`: groups stand in in-core functions and are not empty.
* `buffers`: tensors are allocated in orchestration functions only, outside scopes.
"""

from __future__ import annotations

from collections.abc import Iterable

from pto_jit.errors import NOWHERE, CompilationError, InternalError
from pto_jit.ir.nodes import Module, Op
from pto_jit.ir.text import to_text
from pto_jit.ir.verifier import PROPERTIES, Infer, Verifier, Violation
from pto_jit.ir.walk import statements


def verify(
    module: Module, infer: Infer | None = None, *, properties: Iterable[str] = (), typed: dict[int, Op] | None = None
) -> None:
    """Raise InternalError for the first thing that is wrong, with the function's text and a mark at the place.

    typed: operations whose attributes and types are known to be right, by identity; those of the module are added.
    What an operation is never changes, and most are the same objects before and after the passes.
    """
    try:
        Verifier(module, frozenset(properties), infer, typed).module_()
    except Violation as wrong:
        raise InternalError(_report(wrong)) from wrong.cause


def known(module: Module) -> dict[int, Op]:
    """What `typed` takes: the operations of a module that was verified, without those inside other operations."""
    return {id(s): s for func in module.funcs for s in statements(func.body) if type(s) is Op}


def check(module: Module, infer: Infer | None = None) -> None:
    """The same for a program that a user wrote as text: CompilationError at the place in the text."""
    try:
        Verifier(module, frozenset(), infer, None).module_()
    except Violation as wrong:
        loc = NOWHERE if wrong.func is None else wrong.func.loc if wrong.stmt is None else wrong.stmt.loc
        if isinstance(wrong.cause, CompilationError):
            raise wrong.cause.at(loc) from None
        place = None if loc == NOWHERE else loc
        hint = "the rules are in docs/pto-assembly.md"
        raise CompilationError(wrong.message, place, code="PTO-P020", hint=hint) from None


def _report(wrong: Violation) -> str:
    if wrong.func is None:
        return f"the program is malformed: {wrong.message}"
    stmt = wrong.stmt
    what = "" if stmt is None else f" in `{stmt.op if isinstance(stmt, Op) else type(stmt).__name__}` at {stmt.loc}"
    marks = {} if stmt is None else {id(stmt): wrong.message}
    return f"@{wrong.func.name} is malformed: {wrong.message}{what}\n{to_text(wrong.func, marks=marks)}"


__all__ = ["PROPERTIES", "Infer", "check", "known", "verify"]
