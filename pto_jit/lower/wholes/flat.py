# SPDX-License-Identifier: MIT
"""Planes of contiguous tensors that loops of the program combine element by element, and reduce as a whole, as rows:
their axes make no difference then.  Rows are of any length (`own_rows`), and no threads are left over at their ends.

Before::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?x?x?,f32>, %y: !pto.memref<gm,?,f32>) {
      %n = sdim %x {axis=0} : i64
      %h = sdim %x {axis=1} : i64
      %w = sdim %x {axis=2} : i64
      SCOPE @f_incore_0
        FOR %i:idx, 0:idx, %n:idx, 1:idx {kind=parallel}
          %p = tview %x[%i, 0, 0] [1, %h, %w] {drop=(0,)} : !pto.memref<gm,?x?,f32,inner>
          %t = tload %p[0, 0] [%h, %w] : !pto.tile<?x?xf32>
          %u = tabs %t : !pto.tile<?x?xf32>
          %max = tmax %u {axes=(0, 1), keepdims=false} : f32
          ssetelem %max, %y[%i]
        ENDFOR
      ENDSCOPE
      return
    }

After::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?x?x?,f32>, %y: !pto.memref<gm,?,f32>) {
      %n = sdim %x {axis=0} : i64
      %h = sdim %x {axis=1} : i64
      %w = sdim %x {axis=2} : i64
      %length = smul %h, %w : i64
      %x_rows = ttensor_reshape %x, [%n, %length] : !pto.memref<gm,?x?,f32>
      SCOPE @f_incore_0
        FOR %i:idx, 0:idx, %n:idx, 1:idx {kind=parallel}
          %p = tview %x[%i, 0, 0] [1, %h, %w] {drop=(0,)} : !pto.memref<gm,?x?,f32,inner>
          %t = tload %x_rows[%i, 0] [1, %length] : !pto.tile<1x?xf32>
          %u = tabs %t : !pto.tile<1x?xf32>
          %max = tmax %u {axes=(0, 1), keepdims=false} : f32
          ssetelem %max, %y[%i]
        ENDFOR
      ENDSCOPE
      return
    }
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.errors import NOWHERE
from pto_jit.ir.nodes import Block, Const, For, Func, If, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import block_defs, def_counts, defs, rename, rewrite_block, statements, uses
from pto_jit.lower.dependence.values import numbers_of
from pto_jit.lower.groups.axes import is_elementwise, is_reduction, reduced_axes
from pto_jit.lower.names import BOOL, I64, Names, Scalars, index, source_name
from pto_jit.lower.wholes.partials import EXTREMES
from pto_jit.semantic.rules import infer
from pto_jit.slotted import frozen, replace

_PARALLEL = ("parallel", "chunk", "in_chunk")


def with_flat_planes(func: Func) -> Func:
    """Host code whose loops have rows in place of planes."""
    if not any(isinstance(s, Op) and _is_total(s) for s in statements(func.body)):
        return func
    flattener = _Flattener(func)
    out: list[Stmt] = []
    for stmt in func.body:
        out += flattener.flat(stmt) or (stmt,)
    return func if len(out) == len(func.body) else replace(func, body=tuple(out))


def _is_total(op: Op) -> bool:
    """Whether a plane of unknown extents is reduced to a number, as that of its elements in a row would be."""
    if not is_reduction(op) or op.op in EXTREMES or not isinstance(op.results[0].type, ScalarType):
        return False
    shape = op.args[0].type.shape  # type: ignore[union-attr]
    return len(shape) > 1 and None in shape and 1 not in shape and len(reduced_axes(op)) == len(shape)


class _NotFlat(Exception):
    """A statement that stays as it is."""


@frozen
class _Plane:
    """A part of a contiguous tensor without gaps: the tensor; how many leading axes have one element each, and which;
    where it begins along the next one, and how much it has of it; all of the others."""

    tensor: Var
    single: tuple[Operand, ...]
    begin: Operand
    count: Operand


class _Flattener:
    def __init__(self, func: Func) -> None:
        self.names = Names(func)
        self.counts = def_counts(func.body)
        self.makers = {r.name: s for s in statements(func.body) if isinstance(s, Op) for r in s.results}
        self.numbers = numbers_of(func, {name for name, count in self.counts.items() if count > 1})
        host = [*func.params, *(d for s in func.body if isinstance(s, Op) for d in defs(s))]
        self.host = dict.fromkeys(v.name for v in host if self.counts[v.name] <= 1)

    def flat(self, stmt: Stmt) -> Block | None:
        """What takes the place of a statement of the host; None where it stays."""
        inside = list(statements((stmt,)))
        if isinstance(stmt, Op) or not any(isinstance(s, Op) and _is_total(s) for s in inside):
            return None
        if not any(isinstance(s, For) and s.kind in _PARALLEL for s in inside):
            return None
        self.before = Scalars(self.names, getattr(stmt, "loc", NOWHERE))
        self.rows: dict[tuple[Var, int], Var] = {}
        self.reshapes: list[Stmt] = []
        self.inner: dict[str, tuple[Operand, ...]] = {}  # of a tile: the extents behind its first axis
        self.first: dict[str, Operand | None] = {}  # that of the first one, where the tensor has all of it
        self.compared: dict[tuple[Operand, Operand], None] = {}
        self.flats: dict[str, Var] = {}
        try:
            new = rewrite_block((stmt,), self._statement)
        except _NotFlat:
            return None
        made = block_defs((stmt,))
        own = {v.name: self.names.fresh(source_name(v.name), v.type).name
               for s in statements(new) for v in defs(s) if v.name in made}  # fmt: skip
        if not self.compared:
            return (*self.before.done(), *self.reshapes, *new)
        agree: Operand | None = None
        for a, b in self.compared:
            same = self._asked("eq", a, b)
            agree = same if agree is None else self._asked("and", agree, same)
        assert agree is not None
        return (*self.before.done(), *self.reshapes, If(agree, rename(new, own), (stmt,), loc=self.before.loc))

    def _asked(self, op: str, a: Operand, b: Operand) -> Var:
        result = self.names.fresh("same", BOOL)
        self.before.block.append(Op(op, (result,), (a, b), (), (), self.before.loc))
        return result

    # -- operations -----------------------------------------------------------------------------------------------

    def _statement(self, stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Op):
            if any(isinstance(v.type, TileType) for v in (*uses(stmt), *defs(stmt))):
                raise _NotFlat
            return None
        tiles = [v for v in (*stmt.args, *stmt.results) if isinstance(v.type, TileType)]
        if not tiles:
            return None
        if stmt.regions or any(self.counts[v.name] != 1 for v in tiles if isinstance(v, Var)):
            raise _NotFlat
        if stmt.op == "load" and not stmt.attr("pad"):
            return self._load(stmt)
        if stmt.op == "store":
            return self._store(stmt)
        if stmt.op == "valid":
            return self._valid(stmt)
        if is_elementwise(stmt):
            return self._compute(stmt)
        if _is_total(stmt) and isinstance(stmt.args[0], Var):
            attrs = tuple((k, (0, 1) if k == "axes" else v) for k, v in stmt.attrs if k in ("axes", "keepdims"))
            return (replace(stmt, args=(self._flat(stmt.args[0]),), attrs=attrs),)
        raise _NotFlat

    def _flat(self, tile: Operand) -> Var:
        found = self.flats.get(tile.name) if isinstance(tile, Var) else None
        if found is None:
            raise _NotFlat
        return found

    def _compute(self, op: Op) -> Block:
        given = [a for a in op.args if isinstance(a, Var) and isinstance(a.type, TileType)]
        (result,) = op.results
        if any(a.type.shape != result.type.shape for a in given):  # type: ignore[union-attr]
            raise _NotFlat
        first, *others = (self.inner[a.name] for a in given if self._flat(a))
        for other in others:
            self._agree(first, other)
        made = replace(op, args=tuple(self._flat(a) if a in given else a for a in op.args))
        return (self._made(made, first, self.first[given[0].name]),)

    def _made(self, op: Op, inner: tuple[Operand, ...], first: Operand | None) -> Op:
        """An operation whose result is a row in place of a plane with these extents."""
        (tile,) = op.results
        (kind,) = infer(op.op, op.args, dict(op.attrs))
        self.inner[tile.name], self.first[tile.name] = inner, first
        self.flats[tile.name] = Var(tile.name, kind)
        return replace(op, results=(self.flats[tile.name],))

    def _agree(self, a: Sequence[Operand], b: Sequence[Operand]) -> None:
        """Extents that have to be equal, if planes are to be rows."""
        if len(a) != len(b):
            raise _NotFlat
        for one, other in zip(a, b, strict=True):
            if isinstance(one, Const) and isinstance(other, Const) and one != other:
                raise _NotFlat
            if one != other:
                self.compared[one, other] = None

    # -- tensors --------------------------------------------------------------------------------------------------

    def _plane(self, tensor: Operand, offsets: Sequence[Operand], extents: Sequence[Operand] | None) -> _Plane:
        """Where a tile lies, which is all of a tensor if it has these extents; any where they are not given."""
        assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
        if any(o != index(0) for o in offsets) or self.counts[tensor.name] > 1:
            raise _NotFlat
        view = self.makers.get(tensor.name)
        if view is None or view.op != "view":
            raise _NotFlat  # all of a tensor: no loop goes over its planes
        source = view.args[0]
        assert isinstance(source, Var) and isinstance(source.type, TensorType)
        rank, drop = source.type.rank, view.attr("drop") or ()
        begins, lengths = view.args[1 : 1 + rank], view.args[1 + rank :]
        single = len(drop)  # type: ignore[arg-type]
        if source.type.layout != "c" or drop != tuple(range(single)) or rank - single < 2:
            raise _NotFlat
        if source.name not in self.host or (extents is not None and tuple(extents) != lengths[single:]):
            raise _NotFlat
        for axis in range(single + 1, rank):
            if begins[axis] != index(0) or not self._is_size(lengths[axis], source, axis):
                raise _NotFlat
        return _Plane(source, begins[:single], begins[single], lengths[single])

    def _is_size(self, extent: Operand, tensor: Var, axis: int) -> bool:
        assert isinstance(tensor.type, TensorType)
        if isinstance(extent, Const):
            return tensor.type.shape[axis] == extent.value
        maker = self.makers.get(extent.name)
        return maker is not None and maker.op == "dim" and maker.args[0] == tensor and maker.attr("axis") == axis

    def _is_whole(self, plane: _Plane) -> bool:
        return plane.begin == index(0) and self._is_size(plane.count, plane.tensor, len(plane.single))

    def _size(self, tensor: Var, axis: int) -> Operand:
        """How much a tensor has along an axis."""
        assert isinstance(tensor.type, TensorType)
        known = tensor.type.shape[axis]
        if known is not None:
            return index(known)
        for name, op in self.makers.items():
            if name in self.host and op.op == "dim" and op.args[0] == tensor and op.attr("axis") == axis:
                return op.results[0]
        key = "dim", tensor, index(axis)
        if key not in self.before.known:
            self.before.known[key] = self.names.fresh("size")
            made = Op("dim", (self.before.known[key],), (tensor,), (("axis", axis),), (), self.before.loc)
            self.before.block.append(made)
        return self.before.known[key]

    def _row(self, plane: _Plane) -> tuple[Var, list[Operand], Operand, tuple[Operand, ...], list[Stmt]]:
        """The tensor that has a plane as a part of a row; where that begins, and how long it is; the extents of the
        plane behind its first axis; what computes these numbers in front of the access."""
        tensor, single = plane.tensor, len(plane.single)
        assert isinstance(tensor.type, TensorType)
        inner = tuple(self._size(tensor, k) for k in range(single + 1, tensor.type.rank))
        each: Operand = index(1)
        for extent in inner:
            each = self.before.op("mul", each, extent, "each")
        if (tensor, single) not in self.rows:
            count: Operand = index(1)
            for k in range(single):
                count = self.before.op("mul", count, self._size(tensor, k), "rows")
            length = self.before.op("mul", self._size(tensor, single), each, "length")
            (kind,) = infer("tensor_reshape", (tensor, count, length), {})
            flat = self.rows[tensor, single] = self.names.fresh(f"{source_name(tensor.name)}_rows", kind)
            self.reshapes.append(Op("tensor_reshape", (flat,), (tensor, count, length), (), (), self.before.loc))
        own = Scalars(self.names, self.before.loc)
        row: Operand = index(0)
        for k, at in enumerate(plane.single):
            row = own.op("add", own.op("mul", row, self._size(tensor, k), "row"), at, "row")
        column = own.op("mul", plane.begin, each, "column")
        length = self.before.op("mul", self._on_the_host(plane.count), each, "length")
        return self.rows[tensor, single], [row, column], length, inner, own.block

    def _on_the_host(self, number: Operand) -> Operand:
        """The same number where it is known before the loop, as the length of `x[g * n : (g + 1) * n]` is."""
        if isinstance(number, Const) or number.name in self.host:
            return number
        maker = self.makers.get(number.name)
        if maker is not None and maker.op == "max" and maker.args[1] == index(0):
            return self.before.op("max", self._on_the_host(maker.args[0]), index(0), "count")
        wanted = self.numbers.of(number)
        for name in self.host if wanted is not None else ():
            maker = self.makers.get(name)
            if maker is not None and maker.results[0].type == I64 and self.numbers.of(maker.results[0]) == wanted:
                return maker.results[0]
        raise _NotFlat

    def _load(self, op: Op) -> Block:
        (result,) = op.results
        assert isinstance(result.type, TileType)
        rank = result.type.rank
        plane = self._plane(op.args[0], op.args[1 : 1 + rank], op.args[1 + rank : 1 + 2 * rank])
        flat, begin, length, inner, before = self._row(plane)
        made = replace(op, args=(flat, *begin, index(1), length))
        return (*before, self._made(made, inner, plane.count if self._is_whole(plane) else None))

    def _store(self, op: Op) -> Block:
        tile, tensor, *offsets = op.args
        flat, begin, _, inner, before = self._row(self._plane(tensor, offsets, None))
        value = self._flat(tile)
        self._agree(self.inner[value.name], inner)
        return (*before, replace(op, args=(value, flat, *begin)))

    def _valid(self, op: Op) -> Block:
        """How much of a plane there is along an axis."""
        tile = self._flat(op.args[0])
        axis = int(op.attr("axis"))  # type: ignore[call-overload]
        first = self.first[tile.name]
        if axis == 0 and first is not None:
            return (Op("copy", op.results, (first,), (), (), op.loc),)
        if axis == 0:
            each: Operand = index(1)
            for extent in self.inner[tile.name]:
                each = self.before.op("mul", each, extent, "each")
            columns = self.names.fresh("columns")
            least = self.names.fresh("least")
            return (Op("valid", (columns,), (tile,), (("axis", 1),), (), op.loc),
                    Op("max", (least,), (each, index(1)), (), (), op.loc),
                    Op("floordiv", op.results, (columns, least), (), (), op.loc))  # fmt: skip
        return (Op("copy", op.results, (self.inner[tile.name][axis - 1],), (), (), op.loc),)
