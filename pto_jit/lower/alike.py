# SPDX-License-Identifier: MIT
"""Functions that are the same program but for where in memory it works are one, which is told where.

The scope of a loop that was unrolled, or that a helper has, became as many functions.  Constant offsets in which they
differ become parameters: integers from 0 on without a common divisor, of which the function computes the offsets, so
that inside it is known what divides all of them, how large they can be, and how far they are apart.  Places of the
source are those that the functions have in common.

Before::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?,f32>, %y: !pto.memref<gm,?,f32>) {
      CALL @f_incore_0(%x -> %x, %y -> %y)
      CALL @f_incore_1(%x -> %x, %y -> %y)
    }

    // Function Type: InCore
    func @f_incore_0(%x: !pto.memref<gm,?,f32>, %y: !pto.memref<gm,?,f32>) {
      %t = tload %x[64] [64] : !pto.tile<64xf32>
      tstore %t, %y[64]
      return
    }

    // Function Type: InCore
    func @f_incore_1(%x: !pto.memref<gm,?,f32>, %y: !pto.memref<gm,?,f32>) {
      %t = tload %x[128] [64] : !pto.tile<64xf32>
      tstore %t, %y[128]
      return
    }

After::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?,f32>, %y: !pto.memref<gm,?,f32>) {
      CALL @f_incore_0(%x -> %x, %y -> %y, %at -> 0)
      CALL @f_incore_0(%x -> %x, %y -> %y, %at -> 1)
    }

    // Function Type: InCore
    func @f_incore_0(%x: !pto.memref<gm,?,f32>, %y: !pto.memref<gm,?,f32>, %at: i64) {
      %t.1 = smin %at, 1 : i64
      %t.2 = smax %t.1, 0 : i64
      %t.3 = smul %t.2, 64 : i64
      %t.4 = sadd %t.3, 64 : i64
      %t = tload %x[%t.4] [64] : !pto.tile<64xf32>
      tstore %t, %y[%t.4]
      return
    }
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from math import gcd
from operator import attrgetter, is_

from pto_jit.dtypes import i64
from pto_jit.errors import NOWHERE, Loc
from pto_jit.ir.nodes import Block, Call, Const, Func, Module, Op, Operand, Stmt, Var
from pto_jit.ir.numbering import Numbered, numbered
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.ir.walk import blocks, map_funcs, map_statements, statements, with_blocks
from pto_jit.lower.decisions import Decision
from pto_jit.lower.names import Names, Scalars, index
from pto_jit.slotted import compared, mutable, replace

_OFFSETS = {"view": 1, "load": 1, "getelem": 1, "store": 2, "setelem": 2,
            "atomic_add": 2, "atomic_max": 2, "atomic_min": 2}  # fmt: skip
"""Operations -> the operand at which offsets in a tensor begin, which is the one before: so many as it has axes."""
_NONE = range(0)


def share_functions(
    module: Module, decisions: list[Decision], *, offsets: bool = True,
    told: Callable[[Func, Numbered], Hashable] = lambda func, it: None,
) -> Module:  # fmt: skip
    """The module in which calls of functions that are alike call one of them.

    offsets: whether they may differ in these; told: what else they must have in common to be one.
    """
    entry = module.func(module.entry)
    shapes: dict[object, list[Func]] = {}
    for func in module.funcs:
        if func.kind == "incore" and func is not entry:
            shapes.setdefault(_shape(func), []).append(func)
    alike: dict[object, list[_Family]] = {}
    for func in (f for same in shapes.values() if len(same) > 1 for f in same):
        it = numbered(func, _free if offsets else None)
        place = [_without_caller(s.loc) for s in func.body[:1]]  # in which most of several places differ already
        families = alike.setdefault((it.key, *place, told(func, it)), [])
        if not any(family.takes(func, it.constants) for family in families):
            families.append(_Family(func, [func], [it.constants]))
    shared = [family for families in alike.values() for family in families if len(family.members) > 1]
    if not shared:
        return module
    called: dict[str, tuple[str, tuple[Operand, ...]]] = {}
    made: dict[str, Func] = {}
    for family in shared:
        func, columns = family.made()
        for member, at in zip(family.members, columns, strict=True):
            called[member.name] = func.name, at
        made[func.name] = func
        if columns[0]:
            reason = f"{len(columns)} scopes that differ in offsets alone are one function, `{func.name}`"
            decisions.append(Decision("placement", (), True, reason, func.loc))

    def visit(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Call) or stmt.callee not in called:
            return stmt
        name, at = called[stmt.callee]
        return stmt if name == stmt.callee and not at else replace(stmt, callee=name, args=(*stmt.args, *at))

    funcs = tuple(made.get(f.name, f) for f in module.funcs if f.name not in called or f.name in made)
    return map_funcs(replace(module, funcs=funcs), lambda f: replace(f, body=map_statements(f.body, visit)))


@mutable
class _Family:
    """Functions that are alike: the first of them, with the places that all have in common; its members, and the
    constants of each."""

    first: Func
    members: list[Func]
    constants: list[tuple[int, ...]]

    def takes(self, func: Func, constants: tuple[int, ...]) -> bool:
        """Whether a function is one of them, which it is from now on; not if it stands in another place."""
        merged = _merged(self.first, func)
        if merged is None:
            return False
        self.first = merged
        self.members.append(func)
        self.constants.append(constants)
        return True

    def made(self) -> tuple[Func, list[tuple[Operand, ...]]]:
        """The function that stands for all, and what each of them gives it in addition."""
        columns = list(zip(*self.constants, strict=True))
        names = Names(self.first)
        scalars = Scalars(names, self.first.loc)
        params: dict[tuple[int, ...], Var] = {}

        def offset(column: Sequence[int]) -> Operand:
            least = min(column)
            apart = [value - least for value in column]
            unit = gcd(*apart)
            if not unit:
                return index(least)
            steps = tuple([distance // unit for distance in apart])
            param = params.get(steps)
            if param is None:
                param = params[steps] = names.fresh("at")
            known = scalars.op("max", scalars.op("min", param, index(max(steps))), index(0))  # says what it can be
            return scalars.op("add", scalars.op("mul", known, index(unit)), index(least))

        offsets = iter([offset(column) for column in columns])
        body = self.first.body
        if columns:
            body = map_statements(body, lambda stmt: _with_offsets(stmt, offsets))
        made = replace(self.first, params=(*self.first.params, *params.values()), body=(*scalars.done(), *body))
        return made, [tuple(map(index, steps)) for steps in zip(*params, strict=True)] or [()] * len(self.members)


def _free(op: Op) -> range:
    """The operands of an operation that functions may be told: offsets, and terms of sums of integers."""
    if op.op in ("add", "sub"):
        kind = op.results[0].type
        return range(len(op.args)) if isinstance(kind, ScalarType) and kind.dtype == i64 else _NONE
    first = _OFFSETS.get(op.op)
    if first is None:
        return _NONE
    tensor = op.args[first - 1].type
    return range(first, first + len(tensor.shape)) if isinstance(tensor, TensorType) else _NONE


def _with_offsets(stmt: Stmt, offsets: Iterator[Operand]) -> Stmt:
    """The statement with the next offsets in the place of the constants that functions may be told."""
    if type(stmt) is not Op or stmt.regions:
        return stmt
    places = [k for k in _free(stmt) if type(stmt.args[k]) is Const]
    if not places:
        return stmt
    args = list(stmt.args)
    for k in places:
        args[k] = next(offsets)
    return stmt if args == list(stmt.args) else replace(stmt, args=tuple(args))


def _shape(func: Func) -> object:
    """What functions that are alike have in common, and is found quickly."""
    ops = tuple(getattr(s, "op", type(s)) for s in statements(func.body))
    return tuple(p.type for p in func.params), ops


def _merged(func: Func, other: Func) -> Func | None:
    """The function with the places that both have in common; None where they stand in different places.

    A function that has a name in the source stands wherever it is called, as do the statements that outlining adds.
    """
    whole = _common(func.loc, other.loc)
    whole = func.loc if whole is NOWHERE else whole

    def placed(block: Block, its: Block) -> Block | None:
        out: list[Stmt] = []
        for a, b in zip(block, its, strict=True):
            loc = _common(a.loc, b.loc)
            if loc is NOWHERE:
                if a.loc != func.loc or b.loc != other.loc:
                    return None
                loc = whole
            stmt = a
            if type(a) is not Op or a.regions:
                inside: list[Block] = []
                for mine, theirs in zip(blocks(a), blocks(b), strict=True):
                    known = placed(mine, theirs)
                    if known is None:
                        return None
                    inside.append(known)
                stmt = with_blocks(a, tuple(inside))
            out.append(stmt if loc is stmt.loc else replace(stmt, loc=loc))
        return block if all(map(is_, out, block)) else tuple(out)

    body = placed(func.body, other.body)
    if body is None:
        return None
    return func if body is func.body and whole is func.loc else replace(func, body=body, loc=whole)


def _common(a: Loc, b: Loc) -> Loc:
    """A place without the callers that only one of two has; `NOWHERE` where they are different places."""
    if a is b:
        return a
    if _without_caller(a) != _without_caller(b):
        return NOWHERE
    if a.caller is None:
        return a
    caller = NOWHERE if b.caller is None else _common(a.caller, b.caller)
    return a if caller is a.caller else replace(a, caller=None if caller is NOWHERE else caller)


_without_caller = attrgetter(*(name for name in compared(Loc) if name != "caller"))
