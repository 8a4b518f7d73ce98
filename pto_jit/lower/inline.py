# SPDX-License-Identifier: MIT
"""Put functions into the place of their calls, where caller and callee run in one place.

An in-core function called from in-core code, or an orchestration function called from orchestration, is part of its
caller; a call of an in-core function from orchestration stays and is a task.  A callee that returns before its end
stays a function.

Before::

    // Function Type: InCore
    func @one(%x: !pto.memref<gm,?,f32>, %i: i64) {
      ssetelem 1.0:f32, %x[%i]
      return
    }

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?,f32>, %n: i64) {
      CALL @one(%x -> %x, %i -> %n)
      return
    }

After::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?,f32>, %n: i64) {
      ssetelem 1.0:f32, %x[%n]
      return
    }
"""

from __future__ import annotations

from collections.abc import Callable

from pto_jit.ir.nodes import Block, Call, Func, Module, Stmt
from pto_jit.ir.splice import can_splice, reachable, splice
from pto_jit.ir.walk import map_funcs, rewrite_func
from pto_jit.lower.names import Names


def inline_calls(module: Module) -> Module:
    """Inline what can be, callees first; functions that nothing calls any more are dropped, but the entry."""
    done: dict[str, Func] = {}

    def inlined(name: str) -> Func:
        if name not in done:
            done[name] = module.func(name)
            done[name] = _inline(done[name], inlined)
        return done[name]

    after = map_funcs(module, lambda func: inlined(func.name))
    if after is module:
        return module
    return reachable(after)


def _inline(func: Func, inlined: Callable[[str], Func]) -> Func:
    names = Names(func)

    def visit(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Call):
            return None
        callee = inlined(stmt.callee)
        if callee.kind != func.kind or not can_splice(callee):
            return None
        return splice(callee, stmt.args, stmt.results, names.fresh, stmt.loc)

    return rewrite_func(func, visit)
