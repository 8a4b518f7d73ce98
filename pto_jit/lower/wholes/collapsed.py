# SPDX-License-Identifier: MIT
"""Contiguous tensors that are combined element by element, as one row each: neither short rows nor odd ones matter.

Stores are cut where their tensors end, so that only tensors of the same extents are one row.  The host compares them;
where they differ, the tensors have the shape that they had.

Before::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?x?,f32>, %y: !pto.memref<gm,?x?,f32>) {
      %n = sdim %x {axis=0} : i64
      %m = sdim %x {axis=1} : i64
      SCOPE @f_incore_0
        %t = tload %x[0, 0] [%n, %m] : !pto.tile<?x?xf32>
        %u = tmul %t, 2.0:f32 : !pto.tile<?x?xf32>
        tstore %u, %y[0, 0]
      ENDSCOPE
      return
    }

After::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?x?,f32>, %y: !pto.memref<gm,?x?,f32>) {
      %n = sdim %x {axis=0} : i64
      %m = sdim %x {axis=1} : i64
      %y_d0 = sdim %y {axis=0} : i64
      %y_d1 = sdim %y {axis=1} : i64
      %same = seq %n, %y_d0 : bool_
      %same.1 = seq %m, %y_d1 : bool_
      %same.2 = sand %same, %same.1 : bool_
      %total = smul %n, %m : i64
      %size = sselect %same.2, 1, %n : i64
      %size.1 = sselect %same.2, %total, %m : i64
      %x_row = ttensor_reshape %x, [%size, %size.1] : !pto.memref<gm,?x?,f32>
      %size.2 = sselect %same.2, 1, %y_d0 : i64
      %size.3 = sselect %same.2, %total, %y_d1 : i64
      %y_row = ttensor_reshape %y, [%size.2, %size.3] : !pto.memref<gm,?x?,f32>
      %x_row_d0 = sdim %x_row {axis=0} : i64
      %x_row_d1 = sdim %x_row {axis=1} : i64
      SCOPE @f_incore_0
        %t = tload %x_row[0, 0] [%x_row_d0, %x_row_d1] : !pto.tile<?x?xf32>
        %u = tmul %t, 2.0:f32 : !pto.tile<?x?xf32>
        tstore %u, %y_row[0, 0]
      ENDSCOPE
      return
    }
"""

from __future__ import annotations

from collections.abc import Mapping

from pto_jit.ir.nodes import Block, Const, Func, Op, Operand, Scope, Stmt, Var
from pto_jit.ir.types import TensorType, TileType
from pto_jit.ir.walk import def_counts, statements, use_counts, uses
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.lower.names import BOOL, I64, Names, Scalars, index, source_name
from pto_jit.semantic.rules import infer
from pto_jit.slotted import replace


def with_collapsed_axes(func: Func) -> Func:
    """Host code whose scopes have rows in place of whole tensors, where these are combined element by element."""
    scopes = [s for s in func.body if isinstance(s, Scope) and _is_elementwise(s)]
    if not scopes:
        return func
    names = Names(func)
    counts = def_counts(func.body)
    makers = {r.name: s for s in statements(func.body) if isinstance(s, Op) for r in s.results}
    read = use_counts(func.body)
    out: list[Stmt] = []
    for stmt in func.body:
        new = None
        if any(stmt is one for one in scopes) and isinstance(stmt, Scope):
            new = _Collapser(names, counts, makers, stmt).scope(read)
        out += new or (stmt,)
    return func if len(out) == len(func.body) else replace(func, body=tuple(out))


def _is_elementwise(scope: Scope) -> bool:
    """Whether a scope loads, combines and stores tiles of one shape, of two axes or more, and does nothing else."""
    shapes: set[tuple[int | None, ...]] = set()
    stores = False
    for s in scope.body:
        if not isinstance(s, Op) or s.regions or s.op in ("setelem", "put", "assert", "print"):
            return False
        tiles = [v.type for v in (*s.args, *s.results) if isinstance(v.type, TileType)]
        if s.attr("pad") or (tiles and s.op not in ("load", "store") and not is_elementwise(s)):
            return False
        stores = stores or s.op == "store"
        shapes |= {t.shape for t in tiles}
    return stores and len(shapes) == 1 and len(shape := next(iter(shapes))) > 1 and None in shape


class _Collapser:
    """rows: of each tensor that with its axes as one; sizes: its extents before."""

    def __init__(self, names: Names, counts: dict[str, int], makers: dict[str, Op], scope: Scope) -> None:
        self.names, self.counts, self.makers, self.body = names, counts, makers, scope
        self.before = Scalars(names, scope.loc)
        self.rows: dict[Var, Var] = {}
        self.sizes: dict[Var, tuple[Operand, ...]] = {}

    def scope(self, read: Mapping[str, int]) -> Block | None:
        """What takes the place of the scope; None where it stays.  read: how often names are, everywhere."""
        scope = self.body
        made = [r.name for s in scope.body if isinstance(s, Op) for r in s.results]
        inside = use_counts(scope.body)
        if any(self.counts[name] != 1 or read[name] > inside[name] for name in made):
            return None
        if not {v.name for s in scope.body for v in uses(s) if isinstance(v.type, TileType)} <= set(made):
            return None
        for op in scope.body:
            assert isinstance(op, Op)
            if op.op in ("load", "store") and not self._is_whole(op, set(made)):
                return None
        self._reshape()
        tiles: dict[str, Var] = {}
        body: list[Stmt] = []
        for op in scope.body:
            assert isinstance(op, Op)
            args = tuple(tiles.get(a.name, a) if isinstance(a, Var) else a for a in op.args)
            if op.op == "store":
                op = replace(op, args=(args[0], self.rows[op.args[1]], *op.args[2:]))  # type: ignore[index]
            elif op.op == "load":
                row = self.rows[op.args[0]]  # type: ignore[index]
                rank = len(self.sizes[op.args[0]])  # type: ignore[index]
                extents = [self._dim(row, k) for k in range(rank)]
                op = self._made(replace(op, args=(row, *op.args[1 : 1 + rank], *extents)), tiles)
            elif op.results and isinstance(op.results[0].type, TileType):
                op = self._made(replace(op, args=args), tiles)
            body.append(op)
        return (*self.before.done(), replace(scope, body=tuple(body)))

    def _made(self, op: Op, tiles: dict[str, Var]) -> Op:
        (result,), (kind,) = op.results, infer(op.op, op.args, dict(op.attrs))
        tiles[result.name] = Var(result.name, kind)
        return replace(op, results=(tiles[result.name],))

    def _is_whole(self, op: Op, made: set[str]) -> bool:
        """Whether all of a contiguous tensor is loaded, or stored from its first element on."""
        tensor = op.args[0] if op.op == "load" else op.args[1]
        assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
        rank = tensor.type.rank
        offsets = op.args[1 : 1 + rank] if op.op == "load" else op.args[2:]
        if tensor.type.layout != "c" or tensor.name in made or self.counts[tensor.name] > 1:
            return False
        if any(o != index(0) for o in offsets):
            return False
        sizes = self.sizes.get(tensor)
        if sizes is None:
            sizes = self.sizes[tensor] = tuple(self._size(tensor, k) for k in range(rank))
        return op.op == "store" or op.args[1 + rank :] == sizes

    def _size(self, tensor: Var, axis: int) -> Operand:
        assert isinstance(tensor.type, TensorType)
        known = tensor.type.shape[axis]
        if known is not None:
            return index(known)
        for maker in self.makers.values():
            if maker.op == "dim" and maker.args[0] == tensor and maker.attr("axis") == axis:
                return maker.results[0]
        return self._dim(tensor, axis)

    def _dim(self, tensor: Var, axis: int) -> Operand:
        assert isinstance(tensor.type, TensorType)
        known = tensor.type.shape[axis]
        if known is not None:
            return index(known)
        key = "dim", tensor, index(axis)
        if key not in self.before.known:
            result = self.before.known[key] = self.names.fresh(f"{source_name(tensor.name)}_d{axis}")
            self.before.block.append(Op("dim", (result,), (tensor,), (("axis", axis),), (), self.before.loc))
        return self.before.known[key]

    def _reshape(self) -> None:
        """The tensors with their axes as one, if all of them have the same extents."""
        first, *others = self.sizes.values()
        pairs = dict.fromkeys((a, b) for other in others for a, b in zip(first, other, strict=True) if a != b)
        same: Operand | bool = not any(isinstance(a, Const) and isinstance(b, Const) for a, b in pairs)
        for a, b in pairs if same else ():
            asked = self._op("eq", a, b)
            same = asked if same is True else self._op("and", same, asked)  # type: ignore[arg-type]
        total: Operand = index(1)
        for size in first:
            total = self.before.op("mul", total, size, "total")
        for tensor, sizes in self.sizes.items():
            wanted = [*(index(1),) * (len(sizes) - 1), total]
            shape = [self._choice(same, a, b) for a, b in zip(wanted, sizes, strict=True)]
            (kind,) = infer("tensor_reshape", (tensor, *shape), {})
            row = self.rows[tensor] = self.names.fresh(f"{source_name(tensor.name)}_row", kind)
            self.before.block.append(Op("tensor_reshape", (row,), (tensor, *shape), (), (), self.before.loc))

    def _op(self, op: str, *args: Operand) -> Var:
        result = self.names.fresh("same" if op != "select" else "size", BOOL if op != "select" else I64)
        self.before.block.append(Op(op, (result,), args, (), (), self.before.loc))
        return result

    def _choice(self, same: Operand | bool, a: Operand, b: Operand) -> Operand:
        if isinstance(same, bool):
            return a if same else b
        return a if a == b else self._op("select", same, a, b)
