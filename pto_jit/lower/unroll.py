# SPDX-License-Identifier: MIT
"""Small constant loops that take the extremum of floats, iteration by iteration.

Before::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?,f32>, %n: i64, %y: !pto.memref<gm,?,f32>) {
      FOR %i:idx, 0:idx, %n:idx, 1:idx
        %m = sgetelem %x[%i] : f32
        FOR %k:idx, 1:idx, 3:idx, 1:idx
          %j = sadd %i, %k : i64
          %e = sgetelem %x[%j] : f32
          %t = smin %m, %e : f32
          %m = scopy %t : f32
        ENDFOR
        ssetelem %m, %y[%i]
      ENDFOR
      return
    }

After::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?,f32>, %n: i64, %y: !pto.memref<gm,?,f32>) {
      FOR %i:idx, 0:idx, %n:idx, 1:idx
        %m = sgetelem %x[%i] : f32
        %j.1 = sadd %i, 1 : i64
        %e.1 = sgetelem %x[%j.1] : f32
        %t.1 = smin %m, %e.1 : f32
        %j.2 = sadd %i, 2 : i64
        %e.2 = sgetelem %x[%j.2] : f32
        %t.2 = smin %t.1, %e.2 : f32
        %m = scopy %t.2 : f32
        ssetelem %m, %y[%i]
      ENDFOR
      return
    }

An optimiser unrolls such loops by itself.  But an extremum that is NaN where an operand is takes three instructions,
and a chain of them hardly more than one each, as what is written as a chain asks once whether anything was NaN: that
has to be seen by who writes it.
"""

from __future__ import annotations

from collections import Counter

from pto_jit.ir.nodes import Block, Const, For, Func, Module, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.ir.walk import block_defs, map_funcs, map_statements, rewrite_block, statements, use_counts
from pto_jit.lower.kept import is_scalar
from pto_jit.lower.names import Names, index
from pto_jit.lower.simplify import simplified
from pto_jit.slotted import replace

_EXTREMA = frozenset(["max", "min", "maximum", "minimum"])
_MOST = 160  # operations of an unrolled loop


def unroll_extrema(module: Module) -> Module:
    """Unroll loops with small constant bounds over operations on elements, among them extrema of floats, where they are
    inside of other loops."""

    def transform(func: Func) -> Func:
        if not any(isinstance(s, Op) and _is_extremum(s) for s in statements(func.body)):
            return func
        unroller = _Unroller(func)

        def visit(stmt: Stmt) -> Stmt:
            if not isinstance(stmt, For):
                return stmt
            body = rewrite_block(stmt.body, unroller.statement, plain=False)
            return stmt if body is stmt.body else replace(stmt, body=body)

        body = map_statements(func.body, visit)
        return func if body is func.body else simplified(replace(func, body=body))

    return map_funcs(module, transform)


class _Unroller:
    def __init__(self, func: Func) -> None:
        self.names = Names(func)
        self.read: Counter[str] = use_counts(func.body)

    def statement(self, stmt: Stmt) -> Block | None:
        """A loop as its iterations one after the other, if it is worth it."""
        if not isinstance(stmt, For) or stmt.kind != "sequential" or stmt.reductions:
            return None
        bounds = [int(b.value) for b in (stmt.start, stmt.stop, stmt.step) if isinstance(b, Const)]
        if len(bounds) != 3 or bounds[2] == 0 or stmt.var.name in block_defs(stmt.body):
            return None
        body = [s for s in stmt.body if isinstance(s, Op) and is_scalar(s)]
        numbers = range(*bounds)
        if len(body) != len(stmt.body) or not numbers or len(numbers) * len(body) > _MOST:
            return None
        if not any(map(_is_extremum, body)) or self.read[stmt.var.name] > use_counts(stmt.body)[stmt.var.name]:
            return None
        if any(isinstance(r.type, TensorType) for op in body for r in op.results):
            return None
        return self.iterations(stmt, body, numbers)

    def iterations(self, loop: For, body: list[Op], numbers: range) -> Block:
        now: dict[str, Operand] = {}  # what variables are
        out: list[Op] = []
        for number in numbers:
            now[loop.var.name] = index(number)
            for op in body:
                args = tuple(now.get(a.name, a) if isinstance(a, Var) else a for a in op.args)
                if op.op == "copy":
                    now[op.results[0].name] = args[0]
                    continue
                results = tuple(self.names.fresh(r.name, r.type) for r in op.results)
                now.update({r.name: new for r, new in zip(op.results, results, strict=True)})
                out.append(replace(op, results=results, args=args))
        inside = use_counts(loop.body)
        last = {r.name: r for op in body for r in op.results if self.read[r.name] > inside[r.name]}
        copies = [Op("copy", (var,), (now[name],), loc=loop.loc) for name, var in last.items() if now[name] != var]
        if any(isinstance(op.args[0], Var) and op.args[0].name in last for op in copies):  # they change places
            held = [self.names.fresh(op.results[0].name, op.results[0].type) for op in copies]
            out += [replace(op, results=(var,)) for op, var in zip(copies, held, strict=True)]
            copies = [replace(op, args=(var,)) for op, var in zip(copies, held, strict=True)]
        return (*out, *copies)


def _is_extremum(op: Op) -> bool:
    if op.op not in _EXTREMA or len(op.results) != 1:
        return False
    typ = op.results[0].type
    return isinstance(typ, ScalarType) and typ.dtype.kind == "f"
