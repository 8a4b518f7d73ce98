# SPDX-License-Identifier: MIT
"""Integers of 64 bits in 32, where only their lower halves are wanted, or 32 bits hold all there is.

Sums of integers are of 64 bits, which the vector core does not compute with.  What is converted to 32 bits or fewer in
the end is the same when it is computed in 32, as integers wrap.  Sums of tiles of truth values and of at most 16 bits
with a sign are less than 2**31: a tile that fits the unified buffer has at most 47104 elements of 32 bits.  So are sums
of such values in wider types, `(x > 0).to(pl.i32)`, and of `pl.where(x > 0, 1, 0)`.

Before::

    %t0 = tcast %x {dtype=i64} : !pto.tile<8x48xi64>
    %sum = tsum %t0 {axes=(1,), keepdims=true} : !pto.tile<8x1xi64>
    %t1 = tcast %sum {dtype=i32} : !pto.tile<8x1xi32>

After, of a tile of i32, with `%sum` for `%t1` from here on::

    %sum = tsum %x {axes=(1,), keepdims=true} : !pto.tile<8x1xi32>
"""

from __future__ import annotations

from collections.abc import Container

from pto_jit.dtypes import DType, i32
from pto_jit.ir.nodes import Block, Const, For, Func, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.ir.walk import def_counts, defs, rewrite_func, statements, substitute, uses, vars_made
from pto_jit.lower.names import Names
from pto_jit.slotted import replace

_WIDE = frozenset(["i64", "u64"])
_SMALL = frozenset(["bool_", "i8", "u8", "i16"])
_SUMS = frozenset(["sum", "prod", "cumsum", "cumprod"])
_ALL = _SUMS | frozenset("add sub mul neg and or xor not copy select concat".split())
"""Operations whose lower halves are made of those of their operands."""
_EXTREMES = frozenset(["max", "min"])
_COMPARISONS = frozenset("eq ne lt le gt ge".split())
_FIRST = frozenset("full reshape broadcast_to transpose tile_slice".split())
"""The same of their first operand; the others are extents and places."""


def in_32_bits(func: Func) -> Func:
    """A flat function that computes in 32 bits where that gives the same."""
    wide = {v.name for v in vars_made(statements(func.body)) if _is_wide(v) and isinstance(v.type, TileType)}
    if not wide:
        return func
    return _Narrowing(func, wide).func()


class _Narrowing:
    """narrow: variables of which lower halves will do; held: sums that 32 bits hold, by their names; whole: names of
    what is read with all its bits."""

    def __init__(self, func: Func, wide: set[str]) -> None:
        self.function = func
        self.names = Names(func)
        ops = [s for s in statements(func.body) if isinstance(s, Op)]
        self.counts = counts = def_counts(func.body)
        self.same: dict[str, Operand] = {}  # what variables are, that would be copies of it
        small: set[str] = set()
        for s in ops:
            if s.op in ("cast", "select", "reshape") and counts[s.results[0].name] == 1 and _is_small(s, small):
                small.add(s.results[0].name)
        sums = [s.results[0] for s in ops if s.op in ("sum", "cumsum") and s.args[0].name in small  # type: ignore
                and s.results[0].name not in small and counts[s.results[0].name] == 1]  # fmt: skip
        self.narrow = wide | {s.results[0].name for s in ops if s.op in ("sum", "prod") and _is_wide(s.results[0])}
        self.held = {v.name: self.names.fresh(v.name, replace(v.type, dtype=i32)) for v in sums if _is_wide(v)}
        for s in ops:
            if s.op in _EXTREMES and self._compares(s) and counts[s.results[0].name] == 1:
                var = s.results[0]
                self.held[var.name] = self.names.fresh(var.name, replace(var.type, dtype=i32))
        before = -1
        while before != len(self.narrow):
            before = len(self.narrow)
            for stmt in statements(func.body):
                self._exclude(stmt)
        self.held = {name: var for name, var in self.held.items() if name not in self.narrow}
        others = [s for s in statements(func.body) if not (isinstance(s, Op) and (s.op == "cast" or self._is_done(s)))]
        self.whole = {v.name for s in others for v in uses(s)}

    def func(self) -> Func:
        func = rewrite_func(self.function, self._rewritten)
        return replace(func, body=substitute(func.body, self.same))

    # -- what can be narrow -----------------------------------------------------------------------------------------

    def _exclude(self, stmt: Stmt) -> None:
        """Take out what a statement needs all bits of."""
        if isinstance(stmt, Op) and not stmt.regions and stmt.op == "cast":
            self._exclude_of_cast(stmt)
        elif isinstance(stmt, Op) and not stmt.regions and stmt.op in _ALL | _FIRST:
            if any(map(_is_wide, stmt.results)) and not self._is_done(stmt):
                self._keep(_data(stmt))
        else:
            states = (v for r in stmt.reductions for v in (*r.state, *r.init)) if isinstance(stmt, For) else ()
            self._keep((*defs(stmt), *uses(stmt), *states))

    def _is_done(self, op: Op) -> bool:
        """Whether an operation is done in 32 bits."""
        if op.op in _EXTREMES | _COMPARISONS:
            return self._compares(op) and all(r.name in self.held or not _is_wide(r) for r in op.results)
        return not op.regions and op.op in _ALL | _FIRST and all(
            r.name in self.narrow or r.name in self.held for r in op.results)  # fmt: skip

    def _compares(self, op: Op) -> bool:
        """Whether an operation orders what 32 bits hold, some of it such sums."""
        wide = [a for a in op.args if _is_wide(a)]
        return any(isinstance(a, Var) and isinstance(a.type, TileType) for a in wide) and all(
            (-(1 << 31) <= int(a.value) < 1 << 31) if isinstance(a, Const) else a.name in self.held for a in wide
        )

    def _exclude_of_cast(self, op: Op) -> None:
        source, result = op.args[0], op.results[0]
        if _is_wide(result) and _dtype(source).is_float:
            self._keep((result,))
        narrow = _dtype(result).kind in "iu" and (not _is_wide(result) or result.name in self.narrow)
        if not narrow and not (isinstance(source, Var) and source.name in self.held):
            self._keep((source,))
        elif not narrow:
            self.narrow.discard(source.name)  # type: ignore[union-attr]

    def _keep(self, operands: tuple[Operand, ...]) -> None:
        self.narrow.difference_update(o.name for o in operands if isinstance(o, Var))

    # -- the rewriting ----------------------------------------------------------------------------------------------

    def _rewritten(self, stmt: Stmt) -> Block | Stmt:
        if not isinstance(stmt, Op) or stmt.regions:
            return stmt
        if stmt.op == "cast":
            return self._cast(stmt)
        if not self._is_done(stmt):
            return stmt
        result = stmt.results[0]
        held = self.held.get(result.name)
        before: list[Stmt] = []
        args = tuple(self._operand(a, stmt, before) if a in _data(stmt) else a for a in stmt.args)
        if held is None:
            made = self._narrow(result) if _is_wide(result) else result
            return (*before, replace(stmt, results=(made,), args=args))
        whole = Op("cast", (result,), (held,), (("dtype", _dtype(result)),), loc=stmt.loc)
        return (*before, replace(stmt, results=(held,), args=args), *([whole] if result.name in self.whole else []))

    def _cast(self, op: Op) -> Op | Block:
        source, result = op.args[0], op.results[0]
        if isinstance(source, Var):
            source = self.held.get(source.name) or (self._narrow(source) if source.name in self.narrow else source)
        if result.name in self.narrow:
            result = self._narrow(result)
        if source is op.args[0] and result is op.results[0]:
            return op
        if _dtype(source) == _dtype(result):
            if isinstance(source, Const) or self.counts[result.name] == self.counts.get(source.name, 1) == 1:
                self.same[result.name] = source
                return ()
            return Op("copy", (result,), (source,), loc=op.loc)
        return replace(op, results=(result,), args=(source,), attrs=(("dtype", _dtype(result)),))

    def _operand(self, operand: Operand, op: Op, before: list[Stmt]) -> Operand:
        """An operand of 64 bits in 32."""
        if not _is_wide(operand):
            return operand
        if isinstance(operand, Const):
            return Const((int(operand.value) + (1 << 31)) % (1 << 32) - (1 << 31), ScalarType(i32))
        if operand.name in self.narrow:
            return self._narrow(operand)
        held = self.held.get(operand.name)
        if held is not None:
            return held
        out = self.names.fresh(operand.name, replace(operand.type, dtype=i32))
        before.append(Op("cast", (out,), (operand,), (("dtype", i32),), loc=op.loc))
        return out

    def _narrow(self, var: Var) -> Var:
        return Var(var.name, replace(var.type, dtype=i32))


def _is_small(op: Op, small: Container[str]) -> bool:
    """Whether an operation gives tiles of integers of at most 16 bits with a sign; `small`: those that do."""
    result = op.results[0]
    if not isinstance(result.type, TileType) or result.type.dtype.kind not in "iu":
        return False
    values = op.args[1:] if op.op == "select" else op.args[:1]
    return all(
        (-(1 << 15) <= int(v.value) < 1 << 15 if isinstance(v, Const) else v.name in small or _dtype(v).name in _SMALL)
        for v in values
    )


def _data(op: Op) -> tuple[Operand, ...]:
    """The operands that an operation computes with."""
    return op.args[:1] if op.op in _FIRST else op.args


def _dtype(value: Operand) -> DType:
    assert isinstance(value.type, (ScalarType, TileType))
    return value.type.dtype


def _is_wide(value: Operand) -> bool:
    return isinstance(value.type, (ScalarType, TileType)) and value.type.dtype.name in _WIDE
