# SPDX-License-Identifier: MIT
"""Nests over elements that exchange two axes (`y[j, i] = x[i, j]`), in squares of tiles.

Whichever loop neighbouring threads share, some tensor is accessed across its rows.  Tiles change their axes in shared
memory, and both tensors are accessed along theirs.  Where a loop is short, threads go over elements as before.

Before::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?x?,f32>, %y: !pto.memref<gm,?x?,f32>, %n: i64, %m: i64) {
      FOR %i:idx, 0:idx, %n:idx, 1:idx {kind=parallel}
        FOR %j:idx, 0:idx, %m:idx, 1:idx {kind=parallel}
          SCOPE @f_incore_0
            %v = sgetelem %x[%i, %j] : f32
            %w = smul %v, 2.0:f32 : f32
            ssetelem %w, %y[%j, %i]
          ENDSCOPE
        ENDFOR
      ENDFOR
      return
    }

After::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?x?,f32>, %y: !pto.memref<gm,?x?,f32>, %n: i64, %m: i64) {
      %least = smin %n, %m : i64
      %long = sge %least, 32 : bool_
      IF %long
        FOR %i.1:idx, 0:idx, %n:idx, 64:idx {kind=parallel}
          FOR %j.1:idx, 0:idx, %m:idx, 64:idx {kind=parallel}
            SCOPE @f_incore_0
              %left = ssub %n, %i.1 : i64
              %some = smin %left, 64 : i64
              %left.1 = ssub %m, %j.1 : i64
              %some.1 = smin %left.1, 64 : i64
              %v.1 = tload %x[%i.1, %j.1] [%some, %some.1] : !pto.tile<?x?xf32>
              %w.1 = tmul %v.1, 2.0:f32 : !pto.tile<?x?xf32>
              %w.2 = ttranspose %w.1 {axes=(1, 0)} : !pto.tile<?x?xf32>
              tstore %w.2, %y[%j.1, %i.1]
            ENDSCOPE
          ENDFOR
        ENDFOR
      ELSE
        FOR %i:idx, 0:idx, %n:idx, 1:idx {kind=parallel}
          FOR %j:idx, 0:idx, %m:idx, 1:idx {kind=parallel}
            SCOPE @f_incore_0
              %v = sgetelem %x[%i, %j] : f32
              %w = smul %v, 2.0:f32 : f32
              ssetelem %w, %y[%j, %i]
            ENDSCOPE
          ENDFOR
        ENDFOR
      ENDIF
      return
    }
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.errors import CompilationError
from pto_jit.ir.nodes import Block, Const, For, Func, If, Op, Operand, Scope, Stmt, Var, While
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import TENSOR_VIEWS, block_defs, blocks, def_counts, defs, rename, statements, with_blocks
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.lower.names import BOOL, I64, Names, Scalars, index, source_name
from pto_jit.semantic.rules import infer
from pto_jit.slotted import frozen, replace
from pto_jit.targets.cuda.loops import is_parallel, touches_tiles

_SIDE = 64
_SHORT = 32
"""Iterations that a loop of a square must have: of fewer, most threads of a block would have nothing to do."""


def in_squares(func: Func) -> Func:
    """A flat function whose nests that exchange two axes are on tiles."""
    if not any(isinstance(s, Op) and s.op == "setelem" for s in statements(func.body)):
        return func
    squarer = _Squarer(func)
    body = squarer.block(func.body)
    return func if body is func.body else replace(func, body=body)


class _NoSquares(Exception):
    """A nest that is not one of squares."""


@frozen
class _Place:
    """The index that a loop of the square gives, and what is added to it."""

    axis: int
    more: Operand


class _Squarer:
    def __init__(self, func: Func) -> None:
        self.names = Names(func)
        self.counts = def_counts(func.body)
        for p in func.params:
            self.counts[p.name] += 1
        self.views = {s.results[0].name: s for s in statements(func.body) if isinstance(s, Op) and s.op in TENSOR_VIEWS}

    def block(self, block: Block) -> Block:
        out: list[Stmt] = []
        for stmt in block:
            if is_parallel(stmt):
                out += self._nest(stmt) or (stmt,)
            elif isinstance(stmt, (Scope, If, While, For)):
                old = blocks(stmt)
                new = tuple(map(self.block, old))
                out.append(stmt if all(a is b for a, b in zip(old, new, strict=True)) else with_blocks(stmt, new))
            else:
                out.append(stmt)
        return block if all(a is b for a, b in zip(out, block, strict=False)) and len(out) == len(block) else tuple(out)

    def _nest(self, outermost: Stmt) -> Block | None:
        """What takes the place of a parallel loop of the host; None where it stays."""
        inside = statements((outermost,))
        if touches_tiles(outermost) or not any(isinstance(s, Op) and s.op == "setelem" for s in inside):
            return None
        assert isinstance(outermost, For)
        try:
            nest = _perfect(outermost)
        except _NoSquares:
            return None
        for across in reversed(range(len(nest.loops) - 1)):
            try:
                return _Square(self, nest, across).stmts()
            except (_NoSquares, CompilationError):
                continue
        return None


@frozen
class _Nest:
    """Loops one in the other, from the outermost in, with the operations in front of each and, last, in the innermost;
    scope: that which is inside."""

    loops: tuple[For, ...]
    ops: tuple[tuple[Op, ...], ...]
    scope: Scope | None


def _perfect(outermost: For) -> _Nest:
    loops, ops, scope = [outermost], list[tuple[Op, ...]](), None
    block = outermost.body
    while True:
        head = tuple(s for s in block if isinstance(s, Op))
        rest = list(block[len(head) :])
        if not rest:
            return _Nest(tuple(loops), (*ops, head), scope)
        if len(rest) > 1 or block[: len(head)] != head:
            raise _NoSquares
        inner = rest[0]
        if isinstance(inner, Scope) and not head and scope is None:
            scope, block = inner, inner.body
            continue
        if not isinstance(inner, For) or not is_parallel(inner):
            raise _NoSquares
        ops.append(head)
        loops.append(inner)
        block = inner.body


class _Square:
    """One nest, whose innermost loop and that at `across` become the loops over squares.

    places, tiles: variables that are indices of these loops, and those that they make different; other ones are numbers
    as before.  straight, turned: whether tiles are accessed along rows of these axes, and along columns.
    """

    def __init__(self, squarer: _Squarer, nest: _Nest, across: int) -> None:
        self.squarer, self.nest, self.across = squarer, nest, across
        self.loops = (nest.loops[across], nest.loops[-1])
        self.places = {loop.var.name: _Place(k, index(0)) for k, loop in enumerate(self.loops)}
        self.tiles: dict[str, Var] = {}
        self.loaded: dict[tuple[Var, tuple[Operand | _Place, ...]], Var] = {}
        self.stored: set[str] = set()
        self.straight = self.turned = False
        self.before, self.scalars = (Scalars(squarer.names, self.loops[1].loc) for _ in range(2))
        self.out: list[Stmt] = []
        self.sides: list[Operand] = []

    def stmts(self) -> Block:
        """What takes the place of the nest; raises `_NoSquares`."""
        self._check_loops()
        long = self._are_long()
        nest = self.nest
        for loop in self.loops:
            left = self.scalars.op("sub", loop.stop, loop.var, "left")
            self.sides.append(self.scalars.op("min", left, index(_SIDE), "some"))
        inside = [op for ops in nest.ops[self.across :] for op in ops]
        self._check_tensors(inside)
        for op in inside:
            self._op(op)
        if not (self.straight and self.turned):
            raise _NoSquares
        body: Block = (*self.scalars.done(), *self.out)
        if nest.scope is not None:
            body = (replace(nest.scope, body=body),)
        for loop in reversed(self.loops):
            body = (replace(loop, step=index(_SIDE), body=body),)
        others = [k for k in range(len(nest.loops) - 1) if k != self.across]
        for k in reversed(others):
            body = (replace(nest.loops[k], body=(*(nest.ops[k] if k < self.across else ()), *body)),)
            # what stands in front of the loop itself is in the body of the one around it
        return self._either(long, body)

    def _either(self, long: Operand | bool, body: Block) -> Block:
        names = self.squarer.names
        old = {v.name: v for s in statements(body) for v in defs(s) if v.name in self.squarer.counts}
        new = rename(body, {name: names.fresh(source_name(name), v.type).name for name, v in old.items()})
        if isinstance(long, bool):
            return new
        compared = names.fresh("long", BOOL)
        asked = Op("ge", (compared,), (long, index(_SHORT)), (), (), self.loops[1].loc)
        return (*self.before.done(), asked, If(compared, new, (self.nest.loops[0],), loc=self.loops[1].loc))

    def _check_loops(self) -> None:
        nest = self.nest
        made = block_defs((nest.loops[0],))
        late = {r.name for ops in nest.ops[self.across :] for op in ops for r in op.results} | set(self.places)
        for k, loop in enumerate(nest.loops):
            bounds = {o.name for o in (loop.start, loop.stop, loop.step) if isinstance(o, Var)}
            if loop.reductions or loop.checked or (k > self.across and bounds & late):
                raise _NoSquares
            if any(loop is one for one in self.loops) and (
                loop.kind != "parallel" or loop.step != index(1) or bounds & made
            ):  # fmt: skip
                raise _NoSquares

    def _are_long(self) -> Operand | bool:
        """The smaller number of iterations of the two loops; True where they are known to be enough."""
        counts = [self.before.op("sub", loop.stop, loop.start, "count") for loop in self.loops]
        least = self.before.op("min", counts[0], counts[1], "least")
        if not isinstance(least, Const):
            return least
        if least.value < _SHORT:
            raise _NoSquares
        return True

    # -- tensors --------------------------------------------------------------------------------------------------

    def _root(self, tensor: Operand) -> str:
        assert isinstance(tensor, Var)
        while tensor.name in self.squarer.views:
            source = self.squarer.views[tensor.name].args[0]
            assert isinstance(source, Var)
            tensor = source
        return tensor.name

    def _check_tensors(self, ops: Sequence[Op]) -> None:
        """Elements that are written are read in the same iteration alone, at the same place."""
        accessed: dict[str, set[object]] = {}
        written: set[str] = set()
        for op in ops:
            if op.op in ("getelem", "setelem"):
                tensor, at = (op.args[0], op.args[1:]) if op.op == "getelem" else (op.args[1], op.args[2:])
                accessed.setdefault(self._root(tensor), set()).add((tensor, at))
                written |= {self._root(tensor)} if op.op == "setelem" else set()
        if any(len(accessed[name]) > 1 for name in written):
            raise _NoSquares

    def _indices(self, tensor: Operand, at: Sequence[Operand]) -> tuple[Var, list[Operand | _Place]]:
        """A tensor whose elements lie side by side along its last axis, and the places of an element of it."""
        assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
        found: list[Operand | _Place] = [self._index(o) for o in at]
        while isinstance(tensor.type, TensorType) and tensor.type.layout == "strided":
            maker = self.squarer.views.get(tensor.name)
            if maker is None or maker.op != "tensor_transpose":
                raise _NoSquares
            axes = maker.attr("axes")
            assert isinstance(axes, tuple)
            found = [found[axes.index(k)] for k in range(len(axes))]
            source = maker.args[0]
            assert isinstance(source, Var)
            tensor = source
        used = [p.axis for p in found if isinstance(p, _Place)]
        if len(set(used)) < len(used):
            raise _NoSquares
        return tensor, found

    def _index(self, operand: Operand) -> Operand | _Place:
        if isinstance(operand, Var):
            if operand.name in self.tiles:
                raise _NoSquares  # which memory says
            return self.places.get(operand.name, operand)
        return operand

    # -- operations -----------------------------------------------------------------------------------------------

    def _op(self, op: Op) -> None:
        if any(self.squarer.counts[r.name] > 1 for r in op.results) or op.regions:
            raise _NoSquares
        if op.op == "getelem":
            self._load(op)
        elif op.op == "setelem":
            self._store(op)
        elif not any(isinstance(a, Var) and (a.name in self.places or a.name in self.tiles) for a in op.args):
            if op.op not in ("dim", *TENSOR_VIEWS) and not is_elementwise(op):
                raise _NoSquares
            self.out.append(op)
        elif any(isinstance(a, Var) and a.name in self.places for a in op.args):
            self.places[op.results[0].name] = self._moved(op)
        elif is_elementwise(op):
            self._compute(op)
        else:
            raise _NoSquares

    def _moved(self, op: Op) -> _Place:
        """An index of a loop with something added."""
        place, more = (self._index(a) for a in (*op.args, index(0))[:2])
        if op.op == "add" and isinstance(more, _Place):
            place, more = more, place
        if not isinstance(place, _Place) or isinstance(more, _Place) or op.op not in ("add", "sub", "copy"):
            raise _NoSquares
        if op.results[0].type != I64 or more.type != I64:
            raise _NoSquares
        return place if op.op == "copy" else replace(place, more=self._number(op.op, place.more, more))

    def _number(self, op: str, a: Operand, b: Operand) -> Operand:
        """Arithmetic that stands between the other operations."""
        own = Scalars(self.squarer.names, self.loops[1].loc)
        result = own.op(op, a, b)
        self.out += own.block
        return result

    def _made(self, name: str, args: Sequence[Operand], near: Var | str, **attrs: object) -> Var:
        (kind,) = infer(name, tuple(args), attrs)  # type: ignore[arg-type]
        hint = source_name(near if isinstance(near, str) else near.name)
        result = self.squarer.names.fresh(hint, kind)
        self.out.append(Op(name, (result,), tuple(args), tuple(attrs.items()), (), self.loops[1].loc))  # type: ignore[arg-type]
        return result

    def _compute(self, op: Op) -> None:
        args = [self.tiles.get(a.name, a) if isinstance(a, Var) else a for a in op.args]
        (result,) = op.results
        (kind,) = infer(op.op, tuple(args), dict(op.attrs))
        assert isinstance(result.type, ScalarType)
        if not isinstance(kind, TileType) or kind.dtype != result.type.dtype:
            raise _NoSquares
        tile = self.squarer.names.fresh(source_name(result.name), kind)
        self.out.append(replace(op, results=(tile,), args=tuple(args)))
        self.tiles[result.name] = tile

    def _offsets(self, found: Sequence[Operand | _Place]) -> tuple[list[Operand], list[Operand]]:
        """Where a part of a tensor begins, and its extents."""
        begin: list[Operand] = []
        extents: list[Operand] = []
        for p in found:
            begin.append(self._number("add", self.loops[p.axis].var, p.more) if isinstance(p, _Place) else p)
            extents.append(self.sides[p.axis] if isinstance(p, _Place) else index(1))
        return begin, extents

    def _note(self, found: Sequence[Operand | _Place]) -> bool:
        """Whether the axes of a part are exchanged."""
        axes = [p.axis for p in found if isinstance(p, _Place)]
        last = found[-1]
        if len(axes) == 2:
            if not isinstance(last, _Place):
                raise _NoSquares
            self.straight |= axes == [0, 1]
            self.turned |= axes == [1, 0]
        return axes == [1, 0]

    def _load(self, op: Op) -> None:
        tensor, found = self._indices(op.args[0], op.args[1:])
        (result,) = op.results
        axes = [p.axis for p in found if isinstance(p, _Place)]
        if self._root(tensor) in self.stored:
            raise _NoSquares  # by other threads
        if not axes:
            self.out.append(op)
            return
        key = (tensor, tuple(found))
        if key not in self.loaded:
            turned = self._note(found)
            begin, extents = self._offsets(found)
            tile = self._made("load", (tensor, *begin, *extents), result)
            if len(axes) == 1:
                shape = [self.sides[k] if k == axes[0] else index(1) for k in range(2)]
                if shape != extents:
                    tile = self._made("reshape", (tile, *shape), result)
            else:
                if len(extents) > 2:
                    tile = self._made("reshape", (tile, *(self.sides[k] for k in axes)), result)
                if turned:
                    tile = self._made("transpose", (tile,), result, axes=(1, 0))
            self.loaded[key] = tile
        self.tiles[result.name] = self.loaded[key]

    def _store(self, op: Op) -> None:
        tensor, found = self._indices(op.args[1], op.args[2:])
        value = self.tiles.get(op.args[0].name) if isinstance(op.args[0], Var) else None
        axes = [p.axis for p in found if isinstance(p, _Place)]
        if value is None or len(axes) != 2:
            raise _NoSquares
        turned = self._note(found)
        assert isinstance(value.type, TileType)
        if 1 in value.type.shape:
            value = self._made("broadcast_to", (value, *self.sides), value)
        if turned:
            value = self._made("transpose", (value,), value, axes=(1, 0))
        begin, extents = self._offsets(found)
        if len(extents) > 2:
            value = self._made("reshape", (value, *extents), value)
        self.out.append(replace(op, op="store", args=(value, tensor, *begin)))
        self.stored.add(self._root(tensor))
