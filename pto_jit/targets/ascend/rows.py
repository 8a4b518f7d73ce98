# SPDX-License-Identifier: MIT
"""Loops over rows as loops over blocks of rows, and loads out of the loops that they do not depend on.

A vector instruction works on a tile of many rows as well as on one.  Where the iterations of a loop are independent and
each works on one row, a block of them is one iteration.

Before::

    FOR %r:idx, %r_lo:idx, %r_hi:idx, 1:idx {kind=in_chunk}
      %x.1 = tload %x[%r, 0] [1, 256] : !pto.tile<1x256xf32>
      %m = tmax %x.1 {axes=(1,), keepdims=true} : !pto.tile<1x1xf32>
      %w.1 = tload %w[0, 0] [1, 256] : !pto.tile<1x256xf32>
      ...
      tstore %t2, %y[%r, 0]

After, in blocks of 16::

    %w.1 = tload %w[0, 0] [1, 256] : !pto.tile<1x256xf32>
    FOR %r:idx, %r_lo:idx, %r_hi:idx, 16:idx {kind=in_chunk}
      %left = ssub %r_hi, %r : i64
      %rows = smin %left, 16 : i64
      %x.1 = tload %x[%r, 0] [%rows, 256] : !pto.tile<16x256xf32>
      %m = tmax %x.1 {axes=(1,), keepdims=true} : !pto.tile<16x1xf32>
      ...
      tstore %t2, %y[%r, 0]
"""

from __future__ import annotations

from pto_jit.dtypes import i64
from pto_jit.ir.nodes import Block, Const, For, Func, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import block_defs, block_uses, def_counts, rewrite_block, statements, uses
from pto_jit.lower.groups.axes import is_elementwise, is_reduction, reduced_axes
from pto_jit.lower.names import unused
from pto_jit.lower.wholes.lines import STORES
from pto_jit.slotted import replace
from pto_jit.targets.cuda.loops import written_tensor
from pto_jit.targets.cuda.nests import is_parallel, writes

_INDEX = ScalarType(i64)
_MOST = 128
_ORDERS = ("sort", "argsort", "topk")


def hoist_loads(func: Func) -> Func:
    """Loads and unit reshapes that a loop does not change, before the loop."""
    written = {v.name for v in map(written_tensor, statements(func.body)) if v is not None}
    twice = {name for name, count in def_counts(func.body).items() if count > 1}

    def visit(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, For) or not (is_parallel(stmt) or not any(writes(s) for s in statements(stmt.body))):
            return None  # in a loop that runs in order, what is written may be the memory of another argument
        inside = block_defs(stmt.body) | {stmt.var.name}
        out: list[Stmt] = []
        body: list[Stmt] = []
        for s in stmt.body:
            fixed = isinstance(s, Op) and s.op in ("load", "reshape") and isinstance(s.results[0].type, TileType)
            if fixed and s.op == "load":  # type: ignore[union-attr]
                fixed = s.args[0].name not in written and _starts_at_constants(s)  # type: ignore
            if fixed and not ({v.name for v in uses(s)} & inside) and s.results[0].name not in twice:  # type: ignore
                out.append(s)
                inside -= {s.results[0].name}  # type: ignore[union-attr]
            else:
                body.append(s)
        return (*out, replace(stmt, body=tuple(body))) if out else None

    body = rewrite_block(func.body, visit, plain=False)
    return func if body is func.body else replace(func, body=body)


def _starts_at_constants(load: Op) -> bool:
    """Whether what a load reads exists even if the loop around it never runs."""
    source = load.args[0]
    assert isinstance(source.type, TensorType)
    return all(isinstance(a, Const) and a.value == 0 for a in load.args[1 : 1 + source.type.rank])


def block_rows(func: Func, size: int) -> Func:
    """Take blocks of iterations at a time in innermost independent loops over rows; size: bytes of a tile, about."""
    taken = block_defs(func.body) | {p.name for p in func.params}

    def visit(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, For) or not is_parallel(stmt) or stmt.step != Const(1, _INDEX):
            return None
        rows = _rows_of(stmt, size)
        if rows < 2:
            return None
        return (_blocked(stmt, rows, taken),)

    body = rewrite_block(func.body, visit, plain=False)
    return func if body is func.body else replace(func, body=body)


def _rows_of(loop: For, size: int) -> int:
    """How many iterations can be taken at a time; 1 when they have to stay apart."""
    varying: set[str] = set()
    widest = 0
    for s in loop.body:
        if not isinstance(s, Op):
            return 1
        if not _is_row_wise(s, loop.var, varying):
            return 1
        for v in (*s.results, *s.args):
            if isinstance(v.type, TileType):
                last = v.type.shape[-1]
                if last is None:
                    return 1
                widest = max(widest, last * v.type.dtype.bytes)
    if not varying or not widest:
        return 1
    if block_uses(loop.body) & varying - block_defs(loop.body):
        return 1
    scans = any(isinstance(s, Op) and s.op in ("cumsum", "cumprod") for s in loop.body)
    unit = 16 if scans else 8  # tiles that are transposed
    count = min(_MOST, size // widest // unit * unit)
    return count if count >= 2 else 1


def _is_row_wise(op: Op, var: Var, varying: set[str]) -> bool:
    """Whether an operation does to each row of a block what it does to one row; what it makes then varies with rows."""
    if op.op == "load":
        rank = op.args[0].type.rank  # type: ignore[union-attr]
        offsets, extents = op.args[1 : 1 + rank], op.args[1 + rank :]
        if op.attr("pad"):
            return False
        if not any(v == var for v in op.args):
            return True
        if rank < 2 or offsets[-2] != var or extents[-2] != Const(1, _INDEX) or op.args.count(var) != 1:
            return False
        varying.add(op.results[0].name)
        return True
    if op.op in STORES:
        value, offsets = op.args[0], op.args[2:]
        wanted = isinstance(value, Var) and value.name in varying
        return wanted and len(offsets) > 1 and offsets[-2] == var and op.args.count(var) == 1
    if any(v == var for v in op.args):
        return False
    changing = [a for a in op.args if isinstance(a, Var) and a.name in varying]
    if not changing:
        return op.op in ("full", "reshape", "valid") or is_elementwise(op)
    if any(isinstance(r.type, ScalarType) for r in op.results):
        return op.op == "valid" and op.attr("axis") == changing[0].type.rank - 1  # type: ignore[union-attr]
    if is_reduction(op):
        rank = op.args[0].type.rank  # type: ignore[union-attr]
        if (
            not op.attr("keepdims")
            or tuple(reduced_axes(op)) != (rank - 1,)
            or op.op not in ("sum", "max", "min", "prod")
        ):
            return False
    elif op.op in ("cumsum", "cumprod"):
        *_, last = op.args[0].type.shape  # type: ignore[union-attr]
        if op.attr("axis") not in (-1, op.args[0].type.rank - 1) or (last or 1) % 16:  # type: ignore[union-attr]
            return False
    else:
        known = is_elementwise(op) or (op.op in _ORDERS and op.attr("k") != 1)  # of which `sorts` takes single rows
        if not known or any(a.type.rank != 2 for a in op.args if isinstance(a.type, TileType)):
            return False
    if op.results[0].type.rank != 2:  # type: ignore[union-attr]
        return False
    varying.update(r.name for r in op.results)
    return True


def _blocked(loop: For, rows: int, taken: set[str]) -> Stmt:
    def fresh(wish: str) -> Var:
        return Var(unused(wish, taken, "."), _INDEX)

    left, count = fresh(f"{loop.var.name}_left"), fresh(f"{loop.var.name}_rows")
    size = Const(rows, _INDEX)
    whole = isinstance(loop.start, Const) and isinstance(loop.stop, Const) and not (
        int(loop.stop.value) - int(loop.start.value)) % rows  # fmt: skip
    varying: set[str] = set()
    grown: dict[str, Var] = {}
    body: list[Stmt] = [] if whole else [
        Op("sub", (left,), (loop.stop, loop.var), (), (), loop.loc),
        Op("min", (count,), (left, size), (), (), loop.loc),
    ]  # fmt: skip
    extent: Operand = size if whole else count
    for s in loop.body:
        assert isinstance(s, Op)
        _is_row_wise(s, loop.var, varying)
        args = tuple(grown.get(a.name, a) if isinstance(a, Var) else a for a in s.args)
        if s.op == "load" and loop.var in s.args:
            rank = s.args[0].type.rank  # type: ignore[union-attr]
            at = 1 + rank + rank - 2
            args = (*args[:at], extent, *args[at + 1 :])
        for result in s.results:
            if result.name in varying:
                typ = result.type
                assert isinstance(typ, TileType)
                shape = (*typ.shape[:-2], rows if whole else None, typ.shape[-1])
                grown[result.name] = Var(result.name, TileType(typ.dtype, shape))
        results = tuple(grown.get(r.name, r) for r in s.results)
        body.append(replace(s, args=args, results=results))
    return replace(loop, step=size, body=tuple(body))
