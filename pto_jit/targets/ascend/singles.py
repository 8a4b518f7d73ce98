# SPDX-License-Identifier: MIT
"""Tiles of f64 in f32, where that gives the same bits.

What Python's floats are chosen from is of 64 bits, as in NumPy: `pl.where(mask, 1.0, 0.0)`.  Such numbers, and what is
converted from shorter types, f32 holds exactly; a sum, difference, product, quotient or root of them that is rounded to
f64 and then to f32 is the one that is rounded to f32 at once (S. A. Figueroa, "When is double rounding innocuous?",
1995).

Before::

    %hot = tselect %mask, 1.0:f64, 0.0:f64 : !pto.tile<1x64xf64>
    %wide = tcast %p {dtype=f64} : !pto.tile<1x64xf64>
    %d = tsub %wide, %hot : !pto.tile<1x64xf64>
    %out = tcast %d {dtype=f32} : !pto.tile<1x64xf32>

After, with `%d` for `%out` and `%p` for `%wide`::

    %hot = tselect %mask, 1.0:f32, 0.0:f32 : !pto.tile<1x64xf32>
    %d = tsub %p, %hot : !pto.tile<1x64xf32>
"""

from __future__ import annotations

from struct import pack, unpack

from pto_jit.dtypes import DType, f32, f64
from pto_jit.ir.nodes import Block, Const, Func, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import def_counts, defs, rewrite_func, statements, substitute, uses
from pto_jit.slotted import replace

_HELD = frozenset(["f32", "f16", "bf16", "i16", "u16", "i8", "u8", "bool_"])
"""Types all of whose numbers f32 has."""
_MOST = 1 << 24
_FIRST = frozenset("full reshape broadcast_to transpose tile_slice".split())
"""What has the elements of its first operand."""
_CHOSEN = _FIRST | frozenset(
    "select copy concat neg abs relu sign max min maximum minimum floor ceil round trunc".split()
)
"""What gives no other numbers than it is given, but for their signs, and whole ones."""
_ROUNDED = frozenset("add sub mul div sqrt square reciprocal".split())
_COMPARED = frozenset("eq ne lt le gt ge isnan isinf isfinite".split())


def in_single(func: Func) -> Func:
    """A flat function that computes in f32 where that gives the same."""
    if not any(type(s) is Op and any(map(_is_wide, s.results)) for s in statements(func.body)):
        return func
    made = {s.results[0].name: s for s in statements(func.body) if isinstance(s, Op) and len(s.results) == 1}
    counts = def_counts(func.body)
    wide = {name: s for name, s in made.items() if _is_wide(s.results[0]) and counts[name] == 1 and not s.regions}
    if not wide:
        return func
    exact: set[str] = set()
    for name, op in wide.items():  # in the order of the text
        if _is_exact(op, exact, made):
            exact.add(name)
    rounded = {n for n, op in wide.items() if op.op in _ROUNDED and n not in exact and _are_exact(op.args, exact)}
    single = exact | rounded
    while True:
        lost = {v.name for s in statements(func.body) for v in (*uses(s), *defs(s))
                if v.name in single and not _is_done(s, single, exact)}  # fmt: skip
        if not lost:
            break
        single -= lost
    if not single:
        return func
    same: dict[str, Operand] = {}

    def rewritten(stmt: Stmt) -> Block | Stmt:
        if not isinstance(stmt, Op) or not any(v.name in single for v in (*uses(stmt), *defs(stmt))):
            return stmt
        args = tuple(_retyped(a) if isinstance(a, Const) or a.name in single else a for a in stmt.args)
        results = tuple(_retyped_var(r) if r.name in single else r for r in stmt.results)
        if stmt.op != "cast":
            return replace(stmt, args=args, results=results)
        (result,) = results
        dtype = result.type.dtype  # type: ignore[union-attr]
        if args[0].type.dtype != dtype:  # type: ignore[union-attr]
            return replace(stmt, args=args, results=results, attrs=(("dtype", dtype),))
        if counts[result.name] == 1 and isinstance(args[0], Var) and counts.get(args[0].name, 1) == 1:
            same[result.name] = args[0]
            return ()
        return Op("copy", results, args, loc=stmt.loc)

    out = rewrite_func(func, rewritten)
    return replace(out, body=substitute(out.body, same))


def _is_done(stmt: Stmt, single: set[str], exact: set[str]) -> bool:
    """Whether a statement is done in f32; what was rounded is converted to f32 only."""
    if not isinstance(stmt, Op) or stmt.regions:
        return False
    given = [a for a in stmt.args if isinstance(a, Var) and a.name in single]
    if stmt.op == "cast":
        target = stmt.results[0]
        if target.name in single:
            return True
        return all(a.name in exact or _dtype(target) == f32 for a in given)
    if any(a.name not in exact for a in given):
        return False
    if stmt.op in _COMPARED:
        return all(_holds(a, single) for a in stmt.args)
    operands = stmt.args[:1] if stmt.op in _FIRST else stmt.args
    return all(r.name in single for r in stmt.results) and all(_holds(a, single) for a in operands)


def _holds(operand: Operand, single: set[str]) -> bool:
    """Whether an operand is in f32, exactly, or no number of f64."""
    if isinstance(operand, Const):
        return _is_single(operand)
    return operand.name in single or _dtype(operand) != f64


def _is_exact(op: Op, exact: set[str], made: dict[str, Op]) -> bool:
    """Whether f32 has all numbers that an operation gives."""
    if op.op == "cast":
        source = op.args[0]
        return _dtype(source).name in _HELD or (isinstance(source, Var) and _is_small(made.get(source.name), made))
    if op.op not in _CHOSEN:
        return False
    return _are_exact(op.args[:1] if op.op in _FIRST else op.args, exact)


def _are_exact(operands: tuple[Operand, ...], exact: set[str]) -> bool:
    return all(
        _is_single(a) if isinstance(a, Const) else a.name in exact or _dtype(a).kind == "b" for a in operands
    )


def _is_single(number: Const) -> bool:
    value = float(number.value)
    if number.type.dtype != f64 or value != value or value in (float("inf"), float("-inf")):
        return True
    return abs(value) < 3.4e38 and unpack("f", pack("f", value))[0] == value


def _is_small(op: Op | None, made: dict[str, Op]) -> bool:
    """Whether an operation counts up to what f32 can count to."""
    if op is not None and op.op == "reshape":
        return _is_small(made.get(op.args[0].name), made)  # type: ignore[union-attr]
    if op is None or op.op != "arange" or not all(isinstance(a, Const) for a in op.args):
        return False
    start, step, count = (abs(int(a.value)) for a in op.args)  # type: ignore[union-attr]
    return start + step * count <= _MOST


def _dtype(value: Operand) -> DType:
    assert isinstance(value.type, (ScalarType, TensorType, TileType))
    return value.type.dtype


def _is_wide(value: Operand) -> bool:
    return isinstance(value.type, TileType) and value.type.dtype == f64


def _retyped(value: Operand) -> Operand:
    typ = value.type
    if not isinstance(typ, (ScalarType, TileType)) or typ.dtype != f64:
        return value
    return replace(value, type=replace(typ, dtype=f32))


def _retyped_var(var: Var) -> Var:
    out = _retyped(var)
    assert isinstance(out, Var)
    return out
