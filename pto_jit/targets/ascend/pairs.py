# SPDX-License-Identifier: MIT
"""Tiles of i64 as pairs of tiles of i32: their lower and their upper words.

The vector core computes with 32 bits, and has of i64 but transfers and conversions.  What is computed with such tiles
is computed with their words, with carries between them; those that are loaded are taken apart, and those that are
stored or converted to floats are put together, with shifts by 32 bits, which the writer knows (`words.py`).  A pair
whose upper word is the sign of the lower one, as of what was i32 before, is that one word.

Before::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,8x48,i64>, %y: !pto.memref<gm,8x48,i64>) {
      %x.1 = tload %x[0, 0] [8, 48] : !pto.tile<8x48xi64>
      %t = tadd %x.1, 5 : !pto.tile<8x48xi64>
      tstore %t, %y[0, 0]
      return
    }

After::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,8x48,i64>, %y: !pto.memref<gm,8x48,i64>) {
      %x.1 = tload %x[0, 0] [8, 48] : !pto.tile<8x48xi64>
      %word = tcast %x.1 {dtype=i32} : !pto.tile<8x48xi32>
      %word.1 = tshr %x.1, 32 : !pto.tile<8x48xi64>
      %word.2 = tcast %word.1 {dtype=i32} : !pto.tile<8x48xi32>
      %word.3 = tadd %word, 5:i32 : !pto.tile<8x48xi32>
      %word.4 = tnot %word.3 : !pto.tile<8x48xi32>
      %word.5 = tand %word, %word.4 : !pto.tile<8x48xi32>
      %word.6 = tshr %word.5, 31:i32 : !pto.tile<8x48xi32>
      %word.7 = tsub %word.2, %word.6 : !pto.tile<8x48xi32>
      %word.8 = tcast %word.3 {dtype=i64} : !pto.tile<8x48xi64>
      %word.9 = tshr %word.3, 31:i32 : !pto.tile<8x48xi32>
      %word.10 = tsub %word.7, %word.9 : !pto.tile<8x48xi32>
      %word.11 = tcast %word.10 {dtype=i64} : !pto.tile<8x48xi64>
      %word.12 = tshl %word.11, 32 : !pto.tile<8x48xi64>
      %word.13 = tadd %word.12, %word.8 : !pto.tile<8x48xi64>
      tstore %word.13, %y[0, 0]
      return
    }
"""

from __future__ import annotations

from collections import Counter

from pto_jit.dtypes import i32
from pto_jit.ir.nodes import Block, Const, For, Func, Op, Operand, Stmt, Var
from pto_jit.ir.walk import def_counts, rewrite_block, rewrite_func, statements, substitute, use_counts
from pto_jit.lower.groups.axes import is_reduction, reduced_axes
from pto_jit.lower.names import Names
from pto_jit.slotted import replace
from pto_jit.targets.ascend.carries import (
    BITWISE,
    LONGEST,
    Carries,
    Pair,
    constant,
    dtype_of,
    is_wide,
    number,
    value_of,
)
from pto_jit.targets.cuda.shapes import shape_of

_FIRST = frozenset("reshape broadcast_to transpose tile_slice".split())
"""What has the elements of its first operand; the others are extents and places."""
_COMPARISONS = frozenset("eq ne lt le gt ge".split())
_COMPUTED = _FIRST | _COMPARISONS | BITWISE | frozenset(
    """add sub mul neg abs square sign relu shl shr floordiv mod pow max min copy select cast full arange concat sum
    cumsum gather argmax argmin""".split()
)
_MOST_POWER = 64
_SHORT = frozenset("i32 i16 u16 i8 u8 bool_".split())
"""Types whose numbers one word holds, with its sign."""


def in_pairs(func: Func) -> Func:
    """A flat function whose arithmetic on tiles of i64 is one on words."""
    computed = [s for s in statements(func.body) if type(s) is Op and _is_computed(s, func)]
    return _Pairing(func, computed).func() if computed else func


def _is_computed(op: Op, func: Func) -> bool:
    """Whether an operation is more than a transfer or conversion of tiles of i64, and can be one on words."""
    if op.op not in _COMPUTED or op.regions or not any(map(is_wide, (*op.args, *op.results))):
        return False
    second = int(op.args[1].value) if len(op.args) == 2 and isinstance(op.args[1], Const) else None
    match op.op:
        case "cast":
            return dtype_of(op.results[0]).kind == "b" or dtype_of(op.args[0]).name == "u32"
        case "shl" | "shr":
            return second is None or 0 <= second < 64
        case "argmax" | "argmin":
            assert isinstance(op.args[0], Var)
            return shape_of(func.body, op.args[0]) is not None
        case "pow":
            return second is not None and 0 <= second <= _MOST_POWER
        case "floordiv" | "mod":
            return second is not None and second > 0 and (second <= LONGEST or not second & (second - 1))
        case _:
            return True


class _Pairing:
    """again: names of tiles that are assigned several times, and are pairs of fixed variables; wanted: of tiles whose
    words are read; pairs: the words of tiles, by their names; alone: names of those that are there as words only; same:
    what variables are, that would be copies of it."""

    def __init__(self, func: Func, computed: list[Op]) -> None:
        self.function = func
        self.names = Names(func)
        self.counts = def_counts(func.body)
        self.wanted = {v.name for s in computed for v in s.args if isinstance(v, Var) and is_wide(v)}
        made = {r.name: r for s in computed for r in (*s.args, *s.results) if isinstance(r, Var) and is_wide(r)}
        self.again = {name for name in made if self.counts[name] > 1}
        self.pairs = {name: self._fixed(made[name]) for name in made if name in self.again}
        self.fixed = {word.name for pair in self.pairs.values() for word in (pair.low, pair.high)}  # type: ignore
        self.alone = set(self.again)
        self.same: dict[str, Operand] = {}
        self.words: set[str] = set()  # names of what was made here

    def func(self) -> Func:
        func = rewrite_func(self.function, self._rewritten)
        body = substitute(func.body, self.same)
        while True:  # words that nothing reads
            read = use_counts(body)
            left = rewrite_block(body, lambda s: () if self._is_idle(s, read) else None)  # noqa: B023
            if left is body:
                return replace(func, body=body)
            body = left

    def _is_idle(self, stmt: Stmt, read: Counter[str]) -> bool:
        return type(stmt) is Op and bool(stmt.results) and all(
            r.name in self.words and not read[r.name] for r in stmt.results)  # fmt: skip

    def _fixed(self, var: Var) -> Pair:
        word = replace(var.type, dtype=i32)
        return Pair(self.names.fresh(f"{var.name}_low", word), self.names.fresh(f"{var.name}_high", word))

    def _rewritten(self, stmt: Stmt) -> Block | Stmt:
        if isinstance(stmt, For):  # in order, what is combined needs no telling
            kept = tuple(r for r in stmt.reductions if not any(v.name in self.again for v in r.state))
            return stmt if len(kept) == len(stmt.reductions) else replace(stmt, reductions=kept)
        if not isinstance(stmt, Op) or not any(map(is_wide, (*stmt.args, *stmt.results))):
            return stmt
        steps = Carries(self.names, "word", stmt.loc)
        if _is_computed(stmt, self.function):
            self._computed(stmt, steps)
        else:
            self._moved(stmt, steps)
        self.words.update(r.name for s in steps.ops for r in s.results if r not in stmt.results)
        return tuple(steps.ops)

    # -- operations on words --------------------------------------------------------------------------------------

    def _pair(self, operand: Operand, steps: Carries) -> Pair:
        known = self.pairs.get(operand.name) if isinstance(operand, Var) else None
        return steps.taken_apart(operand) if known is None else known

    def _computed(self, op: Op, steps: Carries) -> None:
        result = op.results[0]
        if op.op == "cast" and is_wide(result):
            low = steps.op("cast", op.args[0], dtype=i32)
            self._assign(result, Pair(low, steps.op("and", low, number(0))), steps)
            return
        if op.op in _COMPARISONS or op.op == "cast":
            a, *others = (self._pair(x, steps) for x in op.args)
            mask = steps.compare(op.op, a, *others) if others else steps.truth(a)
            self._name(mask, result, steps)
            return
        if op.op in ("argmax", "argmin"):
            tile = op.args[0]
            extents = shape_of(self.function.body, tile)  # type: ignore[arg-type]
            assert extents is not None
            place = steps.place(op.op[3:], self._pair(tile, steps), reduced_axes(op), op, extents)
            self._name(place, result, steps)
            return
        out = self._result(op, steps)
        if is_wide(result):
            self._assign(result, out, steps)
        else:
            self._name(steps.put_together(out), result, steps)

    def _result(self, op: Op, steps: Carries) -> Pair:
        """The words of the result of an operation."""
        attrs = dict(op.attrs)
        if op.op == "select":
            return steps.select(op.args[0], *(self._pair(a, steps) for a in op.args[1:]))
        first = self._pair(op.args[0], steps)
        if op.op in _FIRST or op.op == "full":
            return steps.each(op.op, first, op.args[1:], attrs)
        if op.op == "gather":
            index = self._pair(op.args[1], steps).low if is_wide(op.args[1]) else op.args[1]
            return steps.each(op.op, first, (index,), attrs)
        if is_reduction(op) and op.op != "sum":
            return steps.reduced(op.op, first, reduced_axes(op), bool(op.attr("keepdims")))
        if op.op == "arange":
            return steps.counted(first, self._pair(op.args[1], steps), op.args[2])
        others = [self._pair(a, steps) for a in op.args[1:]]
        match op.op:
            case "copy":
                return first
            case "sum" | "cumsum":
                return steps.sums(op.op, first, attrs)
            case "concat":
                return steps.joined(first, *others, attrs=attrs)
            case "shl" | "shr" if not isinstance(op.args[1], Const):
                return steps.shifted(op.op, first, others[0])
            case "shl" | "shr" | "floordiv" | "mod" | "pow":
                return getattr(steps, op.op)(first, value_of(others[0]))
            case "max" | "min":
                return steps.extreme(op.op, first, others[0])
            case name if name in BITWISE:
                return steps.bits(name, first, *others)
            case "square":
                return steps.mul(first, first)
            case "relu":
                return steps.extreme("max", first, constant(0))
            case name:
                return getattr(steps, name)(first, *others)

    def _assign(self, var: Var, pair: Pair, steps: Carries) -> None:
        if var.name in self.again:
            fixed = self.pairs[var.name]
            new = Pair(steps.new(pair.low, self.fixed), steps.new(steps.high(pair), self.fixed))
            self._set(fixed.low, new.low, steps)
            self._set(fixed.high, new.high, steps)
            return
        self.alone.add(var.name)
        low = steps.new(pair.low, self.fixed)  # a name of its own: the other one may get another value
        self.pairs[var.name] = Pair(low, None if pair.high is None else steps.new(pair.high, self.fixed))

    def _set(self, var: Operand | None, value: Operand | None, steps: Carries) -> None:
        assert isinstance(var, Var) and value is not None
        steps.ops.append(Op("copy", (var,), (value,), loc=steps.loc))

    def _name(self, made: Operand, var: Var, steps: Carries) -> None:
        """Give a variable what the last operation made."""
        last = steps.ops[-1]
        assert last.results == (made,)
        steps.ops[-1] = replace(last, results=(var,))

    # -- transfers and conversions --------------------------------------------------------------------------------

    def _moved(self, op: Op, steps: Carries) -> None:
        if op.op == "cast" and self._cast(op, steps):
            return
        args = tuple(self._whole(op, a, steps) if is_wide(a) else a for a in op.args)
        results = tuple(self.names.fresh(r.name, r.type) if r.name in self.again else r for r in op.results)
        steps.ops.append(replace(op, args=args, results=results))
        for var, made in zip(op.results, results, strict=True):
            if made is not var:
                self._assign(var, steps.taken_apart(made), steps)
            elif var.name in self.wanted:
                self.pairs[var.name] = steps.taken_apart(var)

    def _whole(self, op: Op, tile: Operand, steps: Carries) -> Operand:
        """A tile as another operation than arithmetic takes it."""
        assert isinstance(tile, Var)
        pair = self.pairs.get(tile.name)
        if pair is None:
            return tile
        if op.op in ("valid", "extent") or (op.op in ("argsort", "take", "put") and pair.high is None):
            return pair.low
        return steps.put_together(pair) if tile.name in self.alone else tile

    def _cast(self, op: Op, steps: Carries) -> bool:
        """Whether a conversion is one of words."""
        source, result = op.args[0], op.results[0]
        target = dtype_of(result)
        if is_wide(result):
            if dtype_of(source).name not in _SHORT or result.name not in self.pairs.keys() | self.wanted:
                return False
            is_word = isinstance(source, Var) and source.type.dtype == i32 and self.counts.get(source.name, 1) == 1  # type: ignore
            self._assign(result, Pair(source) if is_word else steps.taken_apart(source), steps)
            return True
        pair = self.pairs.get(source.name) if isinstance(source, Var) else None
        if pair is None or (pair.high is not None and target.is_float):
            return False
        if target != i32:
            steps.ops.append(replace(op, args=(pair.low,)))
        elif self.counts[result.name] == 1 and isinstance(pair.low, Var) and pair.low.name not in self.fixed:
            self.same[result.name] = pair.low
        else:
            self._set(result, pair.low, steps)
        return True
