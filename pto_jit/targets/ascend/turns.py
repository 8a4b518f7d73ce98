# SPDX-License-Identifier: MIT
"""What while loops over elements assign, and how tiles keep it: counters of 64 bits as 32, where they stay small."""

from __future__ import annotations

from pto_jit.dtypes import i32, i64
from pto_jit.ir.nodes import Const, For, Op, Operand, Var, While
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import block_defs, block_uses, defs, statements

_LIMIT = 2**30


def turning_states(loop: For) -> dict[str, Var] | None:
    """The numbers that while loops in the body of a loop over elements assign, with the types that tiles keep them in.

    None where that is not possible: a while loop inside of another statement, what a condition is made of read after
    the loop, numbers of 64 bits that are not counters with a constant limit.
    """
    whiles = [s for s in loop.body if isinstance(s, While)]
    if not whiles:
        return {}
    if sum(isinstance(s, While) for s in statements(loop.body)) != len(whiles) or len(whiles) > 1:
        return None
    (turning,) = whiles
    body = [s for s in turning.body if isinstance(s, Op)]
    before = [s for s in turning.before if isinstance(s, Op)]
    if len(body) != len(turning.body) or len(before) != len(turning.before):
        return None
    rest = tuple(s for s in loop.body if s is not turning)
    outside = block_defs(rest)
    made = {v.name: v for s in body for v in defs(s)}
    carried = {name: var for name, var in made.items() if name in outside}
    if (block_defs(turning.before) | (made.keys() - carried.keys())) & block_uses(rest):
        return None
    out: dict[str, Var] = {}
    for name, var in carried.items():
        writes = [s for s in statements(loop.body) if any(v.name == name for v in defs(s))]
        if any(not isinstance(s, Op) or s.op != "copy" for s in writes) or not isinstance(var.type, ScalarType):
            return None
        if var.type.dtype == i64:
            if not _is_small(var, turning, before, body, rest):
                return None
            var = Var(name, ScalarType(i32))
        elif var.type.dtype.name not in ("f32", "i32"):
            return None
        out[name] = var
    return out


def _is_small(var: Var, loop: While, before: list[Op], body: list[Op], rest: tuple[object, ...]) -> bool:
    """Whether a number counts from a constant upwards while it is below a constant."""
    made = {r.name: s for s in (*before, *body) for r in s.results}

    def conjuncts(operand: Operand) -> list[Op]:
        op = made.get(operand.name) if isinstance(operand, Var) else None
        if op is None:
            return []
        return [c for a in op.args for c in conjuncts(a)] if op.op == "and" else [op]

    limits = [_constant(c.args[1]) for c in conjuncts(loop.cond) if c.op in ("lt", "le") and _is(c.args[0], var)]
    starts = [_constant(s.args[0]) for s in rest if isinstance(s, Op) and any(_is(r, var) for r in s.results)]
    steps: list[int | None] = []
    for s in body:
        if any(_is(r, var) for r in s.results):
            step = made.get(s.args[0].name) if isinstance(s.args[0], Var) else None
            counts = step is not None and step.op == "add" and _is(step.args[0], var)
            steps.append(_constant(step.args[1]) if counts and step is not None else None)
        elif any(_is(a, var) for a in s.args) and s.op != "add":
            return False
    read = [s for s in rest if isinstance(s, Op) and any(_is(a, var) for a in s.args)]
    if not limits or any(s.op != "cast" for s in read):
        return False
    return all(n is not None and 0 <= n < _LIMIT for n in (*limits, *starts, *steps))


def _constant(operand: Operand) -> int | None:
    return int(operand.value) if isinstance(operand, Const) else None


def _is(operand: Operand, var: Var) -> bool:
    return isinstance(operand, Var) and operand.name == var.name
