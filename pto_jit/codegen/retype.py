# SPDX-License-Identifier: MIT
"""Completing a loop body: exits get their copies, and weak variables take the dtype they turned out to have.

A loop body is compiled once.  A number that the loop carries starts as i64, f64 or bool_; when the value at the end
of the body has another dtype (`s = 0.0` before, `s += x[i]` with f32 inside), the variable takes that dtype and the
operations between weak numbers that used it follow, as if it had had that dtype from the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pto_jit.codegen.emit import Emitter, constant
from pto_jit.codegen.merging import Disagreement, Exit, parts, rebuilt
from pto_jit.codegen.values import Scalar
from pto_jit.ir.nodes import Call, Const, For, If, Op, Operand, Reduction, Region, Return, Scope, Stmt, Var, While
from pto_jit.ir.types import ScalarType
from pto_jit.semantic.rules import infer
from pto_jit.slotted import replace

_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


class Retype:
    """Rewrites statements for new dtypes of some variables; `types` grows by the results that follow them."""

    def __init__(self, e: Emitter, types: dict[str, ScalarType]) -> None:
        self.e = e
        self.types = types

    def block(self, stmts: Sequence[Stmt | Exit]) -> list[Stmt]:
        out: list[Stmt] = []
        for stmt in stmts:
            if isinstance(stmt, Exit):
                out.extend(self.block(stmt.statements) if self.types else stmt.statements)
            else:
                self.statement(stmt, out)
        return out

    def statement(self, stmt: Stmt, out: list[Stmt]) -> None:
        if isinstance(stmt, Op):
            out.append(self._operation(stmt, out) if self.types else stmt)
        elif isinstance(stmt, If):
            cond = self._kept(stmt.cond, out)
            out.append(
                replace(stmt, cond=cond, then=tuple(self.block(stmt.then)), orelse=tuple(self.block(stmt.orelse)))
            )
        elif isinstance(stmt, For):
            start, stop, step = (self._kept(x, out) for x in (stmt.start, stmt.stop, stmt.step))
            chunk = None if stmt.chunk is None else self._kept(stmt.chunk, out)
            reductions = tuple(self._reduction(r, out) for r in stmt.reductions)
            body = tuple(self.block(stmt.body))
            out.append(
                replace(stmt, start=start, stop=stop, step=step, chunk=chunk, body=body, reductions=reductions)
            )
        elif isinstance(stmt, While):
            before = self.block(stmt.before)
            cond = self._kept(stmt.cond, before)
            out.append(replace(stmt, before=tuple(before), cond=cond, body=tuple(self.block(stmt.body))))
        elif isinstance(stmt, Scope):
            out.append(replace(stmt, body=tuple(self.block(stmt.body))))
        elif isinstance(stmt, Return):
            out.append(replace(stmt, values=tuple(self._kept(v, out) for v in stmt.values)))
        elif isinstance(stmt, Call):
            out.append(replace(stmt, args=tuple(self._kept(v, out) for v in stmt.args)))
        else:
            out.append(stmt)

    def operand(self, operand: Operand, out: list[Stmt]) -> Operand:
        """`operand`, used after the statements of `out`, in the dtype it was emitted with."""
        return self._kept(operand, out)

    def _changed(self, operand: Operand) -> ScalarType | None:
        """The new type of an operand that was emitted with another one."""
        if isinstance(operand, Var):
            new = self.types.get(operand.name)
            return new if new != operand.type else None
        return None

    def _kept(self, operand: Operand, out: list[Stmt]) -> Operand:
        """`operand` in the dtype it was used with: converted back where its variable has another one now."""
        new = self._changed(operand)
        if new is None:
            return operand
        assert isinstance(operand, Var) and isinstance(operand.type, ScalarType)
        old = operand.type.dtype
        if old.kind in "iu" and new.dtype.is_float:
            raise Disagreement(f"an integer (used as one) and {new.dtype}", "start with a float, e.g. `0.0`")
        result = self.e.fresh("t", operand.type)
        out.append(Op("cast", (result,), (Var(operand.name, new),), (("dtype", old),), (), self.e.loc))
        return result

    def _operation(self, op: Op, out: list[Stmt]) -> Op:
        regions = tuple(self._region(r) for r in op.regions)
        if regions != op.regions:
            op = replace(op, regions=regions)
        target = self.types.get(op.results[0].name) if op.op == "copy" else None
        if target is not None:  # an assignment to a variable that changed
            return replace(op, results=(Var(op.results[0].name, target),), args=(self._to(op.args[0], target, out),))
        changed = [t for t in map(self._changed, op.args) if t is not None]
        if not changed:
            return op
        if op.op == "cast":
            (arg,) = op.args
            assert isinstance(arg, Var)
            return replace(op, args=(Var(arg.name, changed[0]),))
        weak = all(r.name in self.e.weak for r in op.results) and len(op.results) == 1
        if (weak or op.op in _COMPARISONS or op.op == "copy") and self._scalars(op):
            wanted = max(changed, key=lambda t: (t.dtype.is_float, t.dtype.bits))
            boolean = op.op == "select"  # the condition keeps its type
            args = tuple(
                self._to(a, wanted, out) if not (boolean and k == 0) else self._kept(a, out)
                for k, a in enumerate(op.args)
            )
            (new,) = infer(op.op, args, dict(op.attrs), op.regions)
            (result,) = op.results
            if new != result.type:
                assert isinstance(new, ScalarType)
                self.types[result.name] = new
            return replace(op, results=(Var(result.name, new),), args=args)
        return replace(op, args=tuple(self._kept(a, out) for a in op.args))

    def _scalars(self, op: Op) -> bool:
        return all(isinstance(a.type, ScalarType) for a in op.args)

    def _reduction(self, reduction: Reduction, out: list[Stmt]) -> Reduction:
        """A state whose variables have other dtypes: its combine function follows them."""
        kinds = [self.types.get(v.name, v.type) for v in reduction.state]
        combine = reduction.combine
        if all(new == v.type for new, v in zip(kinds, reduction.state, strict=True)) or isinstance(combine, str):
            return reduction
        for param, new in zip(combine.params, kinds + kinds, strict=True):
            if new != param.type:
                assert isinstance(new, ScalarType)
                self.types[param.name] = new
        body = self.block(combine.body)
        params = tuple(Var(p.name, new) for p, new in zip(combine.params, kinds + kinds, strict=True))
        results = tuple(
            self._to(r, new, body) if isinstance(new, ScalarType) else r
            for r, new in zip(combine.results, kinds, strict=True)
        )
        init = tuple(
            self._to(i, new, out) if isinstance(new, ScalarType) else i
            for i, new in zip(reduction.init, kinds, strict=True)
        )
        state = tuple(Var(v.name, new) for v, new in zip(reduction.state, kinds, strict=True))
        return Reduction(state, init, Region(params, tuple(body), results))

    def _region(self, region: Region) -> Region:
        body = self.block(region.body)
        results = tuple(self._kept(r, body) for r in region.results)
        return Region(region.params, tuple(body), results)

    def _to(self, operand: Operand, wanted: ScalarType, out: list[Stmt]) -> Operand:
        """`operand` converted to `wanted`."""
        if isinstance(operand, Const):
            return operand if operand.type == wanted else constant(operand.value, wanted.dtype)
        now = self.types.get(operand.name, operand.type)
        if now == wanted:
            return Var(operand.name, wanted)
        result = self.e.fresh("t", wanted)
        out.append(Op("cast", (result,), (Var(operand.name, now),), (("dtype", wanted.dtype),), (), self.e.loc))
        return result


def retyped(value: Any, types: dict[str, ScalarType]) -> Any:
    """A value, and what stands in containers, as it is when variables have these types."""
    if isinstance(value, Scalar):
        variable = value.operand
        if not isinstance(variable, Var) or variable.name not in types:
            return value
        new = types[variable.name]
        weak = value.weak and new.dtype.name in ("i64", "f64", "bool_")
        return Scalar(Var(variable.name, new), weak, value.origin)
    items = parts(value) if types else None
    if items is None:
        return value
    done = [retyped(item, types) for item in items]
    return value if all(a is b for a, b in zip(items, done, strict=True)) else rebuilt(value, done)
