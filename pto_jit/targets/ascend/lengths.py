# SPDX-License-Identifier: MIT
"""Lengths that are computed and yet are those of something: `x[dx : dx + width]` has `width` rows (`known_lengths`).

Before::

    %t0 = sadd 1, %width : i64
    %t1 = ssub %t0, 1 : i64
    %t2 = smax %t1, 0 : i64
    %x.1 = tload %x_view[0, 0] [%t2, 64]

After, as `%width` is an extent of a tensor::

    %x.1 = tload %x_view[0, 0] [%width, 64]

And lengths that are read from memory, which several slices are made of, `q[start:stop]` and `k[start:stop]`, are
computed once, and before the loops that do not change them (`lengths_once`): tiles of the same name are of the same
extents, and the host asks for one bound.

Before::

    %t1 = ssub %stop, %start : i64
    %q.1 = tload %q[%start, 0] [%t1, 64]
    %t2 = ssub %stop, %start : i64
    %k.1 = tload %k[%start, 0] [%t2, 64]

After::

    %t1 = ssub %stop, %start : i64
    %q.1 = tload %q[%start, 0] [%t1, 64]
    %k.1 = tload %k[%start, 0] [%t1, 64]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from pto_jit.dtypes import i64
from pto_jit.ir.nodes import Block, Const, For, Func, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import TENSOR_VIEWS, block_uses, def_counts, defs, rewrite_block, statements, substitute
from pto_jit.slotted import replace
from pto_jit.targets.ascend.places import before_loops, computed_once
from pto_jit.targets.cuda.facts import index_operands
from pto_jit.targets.cuda.loops import written_tensor

_INDEX = ScalarType(i64)
_ARITHMETIC = frozenset("add sub mul min max cast copy".split())


def known_lengths(func: Func, extents: Collection[str]) -> Func:
    """The kernel with one name for lengths that are equal; extents: parameters that are extents of tensors."""
    counts = Counter(v.name for s in statements(func.body) for v in defs(s))
    known: dict[str, tuple[Var, int]] = {p.name: (p, 0) for p in func.params if p.name in extents}

    def offset(operand: Operand) -> tuple[Var, int] | int | None:
        return int(operand.value) if isinstance(operand, Const) else known.get(operand.name)

    for s in statements(func.body):
        if not isinstance(s, Op) or s.op not in ("add", "sub", "max", "copy") or s.results[0].type != _INDEX:
            continue
        if counts[s.results[0].name] > 1:
            continue
        a, b = offset(s.args[0]), offset(s.args[1]) if len(s.args) == 2 else 0
        if isinstance(a, int) and s.op in ("add", "max"):
            a, b = b, a
        if not isinstance(a, tuple) or not isinstance(b, int):
            continue
        if s.op == "max":
            found = a if b <= a[1] else None  # an extent is not negative
        else:
            found = a[0], a[1] + (-b if s.op == "sub" else b)
        if found is not None:
            known[s.results[0].name] = found
    equal: dict[str, Operand] = {name: var for name, (var, more) in known.items() if more == 0 and name != var.name}
    if not equal:
        return func
    return replace(func, body=_without_idle(substitute(func.body, equal), known))


def _without_idle(body: Block, known: Collection[str]) -> Block:
    """Without what was computed for lengths that have another name now."""
    read = block_uses(body)

    def visit(stmt: Stmt) -> Block | None:
        idle = isinstance(stmt, Op) and stmt.results and stmt.results[0].name in known
        return () if idle and stmt.results[0].name not in read else None  # type: ignore[union-attr]

    kept = rewrite_block(body, visit)
    return body if kept is body else _without_idle(kept, known)


def lengths_once(func: Func) -> Func:
    """A function with places or extents of tiles that are made of elements of tensors, whose integer arithmetic is done
    once, and so are reads of elements that it does not write."""
    ops = [s for s in statements(func.body) if isinstance(s, Op)]
    made = {s.results[0].name: s for s in ops if len(s.results) == 1}

    def root(tensor: Operand) -> Operand:
        maker = made.get(tensor.name) if isinstance(tensor, Var) else None
        return root(maker.args[0]) if maker is not None and maker.op in TENSOR_VIEWS else tensor

    written = {root(x) for s in ops if (x := written_tensor(s)) is not None}
    assigned = def_counts(func.body)
    plain: set[str] = set()  # results of such operations
    read: set[str] = set()  # those of them that are made of elements
    for s in ops:
        if not s.results or not all(_is_integer(v) for v in s.results) or any(
            isinstance(v, Var) and assigned[v.name] > 1 for v in (*s.args, *s.results)
        ):  # fmt: skip
            continue
        name = s.results[0].name
        if s.op == "getelem" and root(s.args[0]) not in written:
            read.add(name)
            plain.add(name)
        elif s.op in _ARITHMETIC and all(map(_is_integer, s.args)):
            plain.add(name)
            if any(isinstance(a, Var) and a.name in read for a in s.args):
                read.add(name)
    if not any(isinstance(v, Var) and v.name in read for s in ops for v in index_operands(s)):
        return func

    def is_plain(stmt: Stmt) -> bool:
        return isinstance(stmt, Op) and bool(stmt.results) and stmt.results[0].name in plain

    body = before_loops(func.body, lambda s: is_plain(s) and s.op != "getelem")  # type: ignore[union-attr]
    return replace(func, body=computed_once(body, is_plain))


def is_positive(operand: Operand, made: Mapping[str, Op], loops: Mapping[str, For]) -> bool:
    """Whether an extent is known to be more than 0: what is left of a loop's range is.  made: what gives numbers that
    are assigned once; loops: those around it, by their variables."""

    def narrow(operand: Operand) -> Operand:
        """An integer as it was before it was converted to another type: places in memory fit all of them."""
        op = made.get(operand.name) if isinstance(operand, Var) else None
        return narrow(op.args[0]) if op is not None and op.op == "cast" and _is_integer(op.args[0]) else operand

    operand = narrow(operand)
    if isinstance(operand, Const):
        return operand.value > 0
    op = made.get(operand.name)
    if op is None:
        return False
    if op.op == "sub":
        at = narrow(op.args[1])
        loop = loops.get(at.name) if isinstance(at, Var) else None
        up = loop is not None and isinstance(loop.step, Const) and loop.step.value > 0
        return up and narrow(loop.stop) == narrow(op.args[0])  # type: ignore[union-attr]
    if op.op == "max":
        return any(is_positive(a, made, loops) for a in op.args)
    return op.op in ("min", "copy") and all(is_positive(a, made, loops) for a in op.args)


def widens(op: Op) -> bool:
    """Whether an operation converts an integer to one of more bits."""
    if op.op != "cast" or not all(map(_is_integer, (*op.args, *op.results))):
        return False
    source, result = op.args[0].type.dtype, op.results[0].type.dtype  # type: ignore[union-attr]
    return source.kind == result.kind and source.bits <= result.bits


def _is_integer(operand: Operand) -> bool:
    return isinstance(operand.type, ScalarType) and operand.type.dtype.kind in "iu"
