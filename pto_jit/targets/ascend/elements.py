# SPDX-License-Identifier: MIT
"""Parallel loops over elements as loops over tiles.

A vector core has no use for single elements.  Where the iterations of an innermost loop are independent, and the
elements they touch lie one after the other, a line of them is one tile.

Before::

    FOR %j:idx, 0:idx, %n:idx, 1:idx {kind=parallel}
      %t0 = sadd %j, 1 : i64
      %t1 = sgetelem %x[%i, %t0] : f32
      %t2 = smul %t1, 2.0:f32 : f32
      ssetelem %t2, %out[%i, %j]

After, 4096 elements at a time::

    FOR %j:idx, 0:idx, %n:idx, 4096:idx {kind=parallel}
      %j_left = ssub %n, %j : i64
      %j_count = smin %j_left, 4096 : i64
      %t0 = sadd %j, 1 : i64
      %t1 = tload %x[%i, %t0] [1, %j_count] {inside=true} : !pto.tile<1x?xf32>
      %t2 = tmul %t1, 2.0:f32 : !pto.tile<1x?xf32>
      tstore %t2, %out[%i, %j] {inside=true}

`inside`: every element was indexed, so the tile is not cut at a border; the core stops if it lies beyond one.

A loop that folds elements into a number (`s += x[i]`) folds a line of them at a time, and then the line's sum.
"""

from __future__ import annotations

from pto_jit.dtypes import bool_, i32, i64
from pto_jit.ir.nodes import Block, Const, For, Func, Op, Operand, Stmt, Var, While
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.ir.walk import block_defs, def_counts, rename, rewrite_block
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.lower.names import unused
from pto_jit.slotted import replace
from pto_jit.targets.ascend.turns import turning_states
from pto_jit.targets.cuda.elements import fold_of, read_outside
from pto_jit.targets.cuda.nests import is_parallel, touches_tiles

_INDEX = ScalarType(i64)
_ELEMENT = 4
_FOLDS = {"add": "sum", "mul": "prod", "max": "max", "maximum": "max", "min": "min", "minimum": "min"}
"""What a line is folded by, before it is combined with a number."""
_NO_TILES = frozenset(["i64", "u16", "u32"])
"""Of what the vector core does not compute with: such elements are stored one by one."""


def take_elements(func: Func, size: int) -> Func:
    """Take lines of elements at a time; size: bytes of a tile, about."""
    taken = block_defs(func.body) | {p.name for p in func.params}
    counts = def_counts(func.body)

    def visit(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, For) or stmt.step != Const(1, _INDEX):
            return None
        ordered = stmt.kind == "sequential"
        folds = () if ordered else fold_of(stmt, read_outside(func.body, stmt), every=True) or ()
        if not folds and (not is_parallel(stmt) or stmt.reductions):
            return None
        states = {f.state.name for f in folds}
        turns = {} if folds else turning_states(stmt)
        if turns is None:
            return None
        if any(counts[name] > 1 for name in block_defs(stmt.body) - states - turns.keys()):
            return None
        line = _Line(stmt, size // _ELEMENT, taken, states, turns).written()
        return None if line is None else (line,)

    body = rewrite_block(func.body, visit, plain=False)
    if body is func.body:
        return func
    return replace(func, body=body)


def _element(operand: Operand) -> Operand:
    """A tile as a number of its type."""
    typ = operand.type
    return Var("", ScalarType(typ.dtype)) if isinstance(typ, TileType) else operand


class _Line:
    """One loop.  starts: numbers that grow by one from iteration to iteration; tiles: what there is one of for each;
    states: numbers that elements are folded into, and what they are on the way; turns: numbers that while loops assign,
    as they are kept in tiles."""

    def __init__(self, loop: For, length: int, taken: set[str], states: set[str], turns: dict[str, Var]) -> None:
        self.loop, self.length, self.taken, self.turns = loop, length, taken, turns
        self.states, self.folds = set(states), bool(states)
        self.starts = {loop.var.name}
        self.tiles: dict[str, Var] = {}
        self.body: list[Stmt] = []
        self.extent: Operand = Const(length, _INDEX)

    def written(self) -> For | None:
        """The loop over tiles; None where it is none."""
        loop = self.loop
        whole = isinstance(loop.start, Const) and isinstance(loop.stop, Const) and not (
            int(loop.stop.value) - int(loop.start.value)) % self.length  # fmt: skip
        if not whole:
            left, count = self._fresh(f"{loop.var.name}_left"), self._fresh(f"{loop.var.name}_count")
            size = Const(self.length, _INDEX)
            self.body += [
                Op("sub", (left,), (loop.stop, loop.var), (), (), loop.loc),
                Op("min", (count,), (left, size), (), (), loop.loc),
            ]
            self.extent = count
        for s in loop.body:
            if isinstance(s, While):
                if not self._repeat(s):
                    return None
            elif not isinstance(s, Op) or touches_tiles(s) or not self._operation(s):
                return None
        if not self.folds and not any(isinstance(s, Op) and s.op == "store" for s in self.body):
            return None
        kind = "combine" if self.folds else loop.kind  # in order
        return replace(loop, step=Const(self.length, _INDEX), body=tuple(self.body), kind=kind, reductions=())

    def _fresh(self, wish: str) -> Var:
        return Var(unused(wish, self.taken, "."), _INDEX)

    def _operation(self, op: Op) -> bool:
        """Write one operation; whether it is one that can be."""
        named = {a.name for a in op.args if isinstance(a, Var)}
        if op.op in ("getelem", "setelem"):
            first = 1 if op.op == "getelem" else 2
            if first == len(op.args):  # of a tensor of rank 0
                return self._element(op, first, along=False)
            *outer, last = op.args[first:]
            along = isinstance(last, Var) and last.name in self.starts
            inner = {a.name for a in outer if isinstance(a, Var)}
            if inner & (self.starts | self.tiles.keys()) or (isinstance(last, Var) and last.name in self.tiles):
                return False
            return self._element(op, first, along)
        if not is_elementwise(op):
            return False
        if op.results[0].name in self.turns:
            self.body.append(self._set(op, op.results[0].name))
            return True
        if named & self.states:
            return self._fold(op)
        if named & self.tiles.keys():
            if named & self.starts:
                return False
            args = tuple(self.tiles.get(a.name, a) if isinstance(a, Var) else a for a in op.args)
            kept = map(_element, args)
            small = any(a.type == _INDEX and a.type != b.type for a, b in zip(op.args, kept, strict=True))
            result = op.results[0]
            if small and result.type == _INDEX:  # counters that tiles keep in 32 bits
                result = Var(result.name, ScalarType(i32))
            self.body.append(replace(op, args=args, results=(self._tile(result, 2),)))
            return True
        if named & self.starts:
            steady = [a for a in op.args if not (isinstance(a, Var) and a.name in self.starts)]
            moves = op.op == "add" or (op.op == "sub" and op.args[1] in steady)
            if not moves or len(steady) != 1 or op.results[0].type != _INDEX:
                return False
            self.starts.add(op.results[0].name)
        self.body.append(op)
        return True

    def _set(self, op: Op, name: str) -> Op:
        """A copy to a number that a while loop assigns: a tile, though it begins as one number for all elements."""
        source = op.args[0]
        tile = self.tiles.get(source.name) if isinstance(source, Var) else None
        var = Var(name, self._type(self.turns[op.results[0].name].type.dtype, 2))  # type: ignore[union-attr]
        if name == op.results[0].name:
            self.tiles[name] = var
        if tile is not None:
            return Op("copy", (var,), (tile,), (), (), op.loc)
        if isinstance(source, Const):
            source = Const(source.value, ScalarType(var.type.dtype))  # type: ignore[union-attr]
        return Op("full", (var,), (source, Const(1, _INDEX), self.extent), (), (), op.loc)

    def _repeat(self, loop: While) -> bool:
        """A while loop of elements: it runs until the last of them is done, and those that are done stay as they are.

        Before::

            WHILE
              %t0 = slt %x, %limit : bool_
            DO %t0
              %x = smul %x, 2.0:f32 : f32
            ENDWHILE

        After::

            %t0 = tlt %x, %limit
            %active = tcopy %t0
            WHILE
              %some = tany %active
            DO %some
              %x.next = tmul %x, 2.0:f32
              %x = tselect %active, %x.next, %x
              %t0.2 = tlt %x, %limit
              %active = tand %active, %t0.2
            ENDWHILE
        """
        outer = self.body
        loc, mask = loop.loc, Var(self._fresh("active").name, self._type(bool_, 2))
        some = Var(self._fresh("some").name, ScalarType(bool_))
        condition = self._condition(loop)
        if condition is None:
            return False
        outer.append(Op("copy", (mask,), (condition,), (), (), loc))
        self.body = inner = []
        now: dict[str, str] = {}  # what the numbers that are assigned are called after that
        for s in loop.body:
            if not isinstance(s, Op) or touches_tiles(s) or not is_elementwise(s):
                return False
            args = tuple(Var(now.get(a.name, a.name), a.type) if isinstance(a, Var) else a for a in s.args)
            s = replace(s, args=args)
            name = s.results[0].name
            if name not in self.turns:
                if not self._operation(s):
                    return False
                continue
            new = self._fresh(f"{name}.next").name
            source = self.tiles.get(s.args[0].name) if isinstance(s.args[0], Var) else None
            if source is None or source.name in self.turns:
                inner.append(self._set(s, new))
                source = inner[-1].results[0]  # type: ignore[union-attr]
            self.tiles[new] = source
            now[name] = new
        for name, new in now.items():
            old = self.tiles[name]
            inner.append(Op("select", (old,), (mask, self.tiles[new], old), (), (), loc))
        again = self._condition(loop, "again")
        if again is None:
            return False
        inner.append(Op("and", (mask,), (mask, again), (), (), loc))
        test = Op("any", (some,), (mask,), (("axes", (0, 1)), ("keepdims", False)), (), loc)
        self.body = outer
        outer.append(While((test,), some, tuple(inner), loc))
        return True

    def _condition(self, loop: While, suffix: str = "") -> Var | None:
        """What a while loop's condition is made of, for all elements; None where it is not elementwise."""
        names = {name: self._fresh(f"{name}.{suffix}").name for name in block_defs(loop.before)} if suffix else {}
        for s in rename(loop.before, names):
            if not isinstance(s, Op) or touches_tiles(s) or not is_elementwise(s) or not self._operation(s):
                return None
        cond = loop.cond
        return self.tiles.get(names.get(cond.name, cond.name)) if isinstance(cond, Var) else None

    def _fold(self, op: Op) -> bool:
        """A step of a fold: what it combines with is folded along the line first."""
        other = [a for a in op.args if not (isinstance(a, Var) and a.name in self.states)]
        if not other:
            self.body.append(op)
        else:
            name = _FOLDS.get(op.op)
            tile = self.tiles.get(other[0].name) if isinstance(other[0], Var) else None
            if name is None or tile is None or len(op.args) != 2 or len(other) != 1:
                return False
            assert isinstance(tile.type, TileType)
            folded = Var(self._fresh(f"{op.results[0].name}_line").name, ScalarType(tile.type.dtype))
            axes = tuple(range(tile.type.rank))
            self.body += [
                Op(name, (folded,), (tile,), (("axes", axes), ("keepdims", False)), (), op.loc),
                replace(op, args=tuple(folded if a is other[0] else a for a in op.args)),
            ]
        self.states.add(op.results[0].name)
        return True

    def _element(self, op: Op, first: int, along: bool) -> bool:
        indices = op.args[first:]
        inside = (("inside", True),)
        if along and op.args[first - 1].type.dtype.name in _NO_TILES:  # type: ignore[union-attr]
            return False
        if op.op == "getelem":
            if not along:
                self.body.append(op)
                return True
            extents = (*(Const(1, _INDEX) for _ in indices[:-1]), self.extent)
            result = self._tile(op.results[0], len(indices))
            self.body.append(Op("load", (result,), (op.args[0], *indices, *extents), inside, (), op.loc))
            return True
        if not along:
            return False
        value = op.args[0]
        tile = self.tiles.get(value.name) if isinstance(value, Var) else None
        if tile is None:  # the same number everywhere
            if isinstance(value, Var) and value.name in self.starts:
                return False
            tile = Var(self._fresh("line").name, self._type(value.type.dtype, 2))
            self.body.append(Op("full", (tile,), (value, Const(1, _INDEX), self.extent), (), (), op.loc))
        self.body.append(Op("store", (), (tile, op.args[1], *indices), inside, (), op.loc))
        return True

    def _type(self, dtype: object, rank: int) -> TileType:
        last = self.length if isinstance(self.extent, Const) else None
        return TileType(dtype, (*(1 for _ in range(rank - 1)), last))  # type: ignore[arg-type]

    def _tile(self, var: Var, rank: int) -> Var:
        out = self.tiles[var.name] = Var(var.name, self._type(var.type.dtype, rank))  # type: ignore[union-attr]
        return out

