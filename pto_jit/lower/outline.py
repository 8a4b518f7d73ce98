# SPDX-License-Identifier: MIT
"""Make every in-core scope a function of its own, called where the scope stood.

What the scope reads becomes parameters (tensors, views, scalars); scalars it computes that are read outside become
results.  Tensors and views that are made in the scope and used outside are made before it.

Before::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?,f32>, %n: i64) {
      SCOPE @f_incore_0
        ssetelem 1.0:f32, %x[%n]
      ENDSCOPE
      return
    }

After::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?,f32>, %n: i64) {
      CALL @f_incore_0(%x -> %x, %n -> %n)
      return
    }

    // Function Type: InCore
    func @f_incore_0(%x: !pto.memref<gm,?,f32>, %n: i64) {
      ssetelem 1.0:f32, %x[%n]
      return
    }
"""

from __future__ import annotations

from collections import Counter

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Call, Func, Module, Op, Operand, Return, Scope, Stmt, Var
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import (
    block_defs,
    def_counts,
    rewrite_func,
    statements,
    use_counts,
    vars_made,
)
from pto_jit.semantic.table import effects
from pto_jit.slotted import field, mutable, replace


def outline_scopes(module: Module) -> Module:
    """Replace all `Scope`s of orchestration functions by calls."""
    state = _Outliner(module, taken={f.name for f in module.funcs})
    funcs = [state.outline(f) if f.kind == "orchestration" else f for f in module.funcs]
    if not state.made:
        return module
    return replace(module, funcs=(*funcs, *state.made))


@mutable
class _Outliner:
    module: Module
    made: list[Func] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    """The names of functions."""
    tried: dict[str, int] = field(default_factory=dict)
    """The number that was tried last for a name."""

    def outline(self, func: Func) -> Func:
        uses = use_counts(func.body)
        assigned = def_counts(func.body)

        def visit(stmt: Stmt) -> Block | None:
            if not isinstance(stmt, Scope):
                return None
            before = _made_before(stmt, uses, assigned)
            if not before:
                return (self._call(stmt, uses),)
            moved = {id(op) for op in before}
            rest = replace(stmt, body=tuple(s for s in stmt.body if id(s) not in moved))
            return (*before, self._call(rest, uses))

        return rewrite_func(func, visit, plain=False)

    def _call(self, scope: Scope, uses: dict[str, int]) -> Call:
        inside = use_counts(scope.body)
        assigned = {v.name: v for v in vars_made(statements(scope.body))}
        read = free_vars(scope.body)
        carried = {v.name for v in read} & set(assigned)  # read again when the scope runs again
        results = tuple(
            v for name, v in sorted(assigned.items())
            if isinstance(v.type, ScalarType) and (uses.get(name, 0) > inside.get(name, 0) or name in carried)
        )  # fmt: skip
        types = tuple(v.type for v in results)
        body = (*scope.body, Return(results, scope.loc))
        params = free_vars(body) if results else read
        # a parameter is a value: what the body assigns again starts as a copy of it
        changed = {p.name: f"{p.name}.before" for p in params if p.name in assigned}
        body = (
            *(
                Op("copy", (p,), (Var(changed[p.name], p.type),), (), (), scope.loc)
                for p in params
                if p.name in changed
            ),
            *body,
        )
        inner = tuple(Var(changed.get(p.name, p.name), p.type) for p in params)
        func = Func(scope.name, "incore", inner, types, body, scope.loc)
        callee = self._add(func)
        return Call(callee, params, results, scope.loc)

    def _add(self, func: Func) -> str:
        name, count = func.name, self.tried.get(func.name, 0)
        while name in self.taken:
            count += 1
            name = f"{func.name}.{count}"
        self.tried[func.name] = count
        self.taken.add(name)
        self.made.append(replace(func, name=name))
        return name


def _made_before(scope: Scope, uses: dict[str, int], assigned: Counter[str]) -> tuple[Op, ...]:
    """The operations that make the tensors and views of a scope that are used outside, with all they need."""
    inside = use_counts(scope.body)
    makers = {v.name: s for s in scope.body if isinstance(s, Op) for v in s.results}
    own = block_defs(scope.body)
    work = [
        name
        for name, op in makers.items()
        if isinstance(op.results[0].type, TensorType) and uses.get(name, 0) > inside.get(name, 0)
    ]
    needed: set[str] = set()
    while work:
        name = work.pop()
        op = makers.get(name)
        if name in needed or name not in own:
            continue
        if op is None or assigned[name] > 1 or effects(op.op) != "none" or any(_is_tile(v) for v in op.args):
            return ()  # what it is made of is computed in the scope
        needed.add(name)
        work += [a.name for a in op.args if isinstance(a, Var)]
    return tuple(s for s in scope.body if isinstance(s, Op) and any(v.name in needed for v in s.results))


def _is_tile(operand: Operand) -> bool:
    return isinstance(operand.type, TileType)
