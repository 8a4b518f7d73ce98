# SPDX-License-Identifier: MIT
"""Products of whole tensors as nests over tiles, and long contractions in slices that fit shared memory.

Before::

    %a.1 = tload %a[0, 0] [%m, %k]
    %b.1 = tload %b[0, 0] [%k, %n]
    %t = tdot %a.1, %b.1
    %r = trelu %t
    tstore %r, %c[0, 0]

After::

    FOR %i, 0, %m, 128 {kind=parallel}
      FOR %j, 0, %n, 128 {kind=parallel}
        %acc = tfull 0.0, [128, 128]
        FOR %p, 0, %k, 32
          %a.1 = tload %a[%i, %p] [128, 32]
          %b.1 = tload %b[%p, %j] [32, 128]
          %acc = tdot %a.1, %b.1, %acc
        ENDFOR
        %r = trelu %acc
        tstore %r, %c[%i, %j]

Elementwise operations on the result, and its stores, come into the nest; others find the result in a tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pto_jit.dtypes import i64
from pto_jit.errors import Loc
from pto_jit.ir.flow import Later, Reads
from pto_jit.ir.nodes import Block, Const, For, Func, If, Op, Operand, Scope, Stmt, Var, While
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import block_defs, statements, uses
from pto_jit.lower.groups.axes import is_elementwise, unit_reshape
from pto_jit.lower.names import BOOL, Taken, unused
from pto_jit.slotted import replace
from pto_jit.targets.cuda.batches import batched_nests, covers, is_vector_of
from pto_jit.targets.cuda.forms import TILE, Form, forms_of
from pto_jit.targets.cuda.loops import PARALLEL, touches_tiles, written_tensor
from pto_jit.targets.cuda.slices import Slices, reads_of, views_of

_INDEX = ScalarType(i64)
_ZERO = Const(0, _INDEX)


def tile_products(func: Func, depth: int | None = None) -> Func:
    """Rewrite the products of a flat function; those inside parallel loops are tiles already, and only sliced.

    depth: the slice of the contraction that is taken at a time, if not what suits cuda; then what are tiles stays.
    """
    tiler = Tiler(func, depth)
    return replace(func, body=tiler.block(func.body, Later()))


class Tiler:
    """Rewrites the products of one function."""

    def __init__(self, func: Func, depth: int | None) -> None:
        self.depth = depth
        self.tile = (TILE, TILE)  # of the product that is rewritten
        self.aside: set[str] = set()  # tiles that are computed for each of its tiles, and of loads alone
        self.slice = TILE  # of its contraction
        self.columns: dict[str, Op] = {}  # loads of vectors, by the names of the columns that they are reshaped to
        self.taken = Taken(block_defs(func.body) | {p.name for p in func.params})
        self.views = views_of(func.body)
        self.dims = {s.results[0].name: (s.args[0], s.attr("axis")) for s in statements(func.body)
                     if isinstance(s, Op) and s.op == "dim"}  # fmt: skip
        # of tensors that are made here, those before in the program and those of results
        self.sizes: dict[Operand, tuple[Operand, ...]] = {
            s.results[0]: s.args for s in statements(func.body) if isinstance(s, Op) and s.op == "alloc"
        }
        self.slices = Slices(self.views, reads_of(func.body), self.dims, self.fresh)

    def fresh(self, wish: str, typ: ScalarType | TileType | TensorType = _INDEX) -> Var:
        return Var(unused(wish, self.taken, "."), typ)

    # -- blocks ---------------------------------------------------------------------------------------------------

    def block(self, block: Block, after: Later) -> Block:
        """`after`: what runs later than all of it."""
        out: list[Stmt] = []
        loads: dict[str, Op] = {}
        reads = Reads(block)
        at = 0
        while at < len(block):
            stmt = block[at]
            at += 1
            if isinstance(stmt, For) and stmt.kind in PARALLEL:
                body = stmt.body if self.depth else self.slices.block(stmt.body)
                out += batched_nests(self, stmt) or [replace(stmt, body=body)]
            elif isinstance(stmt, For):
                later = after.and_(reads.end(at), Reads(stmt.body).end(0))
                out.append(replace(stmt, body=self.block(stmt.body, later)))
            elif isinstance(stmt, Scope):
                out.append(replace(stmt, body=self.block(stmt.body, after.and_(reads.end(at)))))
            elif isinstance(stmt, While):
                later = after.and_(reads.end(at), Reads(stmt.before).end(0), Reads(stmt.body).end(0))
                out.append(replace(stmt, body=self.block(stmt.body, later)))
            elif isinstance(stmt, If):
                later = after.and_(reads.end(at))
                out.append(replace(stmt, then=self.block(stmt.then, later), orelse=self.block(stmt.orelse, later)))
            elif isinstance(stmt, Op) and stmt.op == "load" and not stmt.attr("pad"):
                loads[stmt.results[0].name] = stmt
                out.append(stmt)
            elif isinstance(stmt, Op) and self.is_column(stmt, loads):
                self.columns[stmt.results[0].name] = loads[stmt.args[0].name]  # type: ignore[union-attr]
                out.append(stmt)
            elif isinstance(stmt, Op) and self.is_whole(stmt, loads):
                tail, at = self.epilogue(stmt.results[0], block, at, loads, out)
                self._product(stmt, tail, after.and_(reads.end(at)), loads, out)
            else:
                out.append(stmt)
        return tuple(out)

    def is_whole(self, op: Op, loads: dict[str, Op]) -> bool:
        """A product of two loaded tensors, larger than a block holds or of run-time extents."""
        if op.op != "dot" or len(op.args) != 2:
            return False
        left, right = (a.name if isinstance(a, Var) and a.type.rank == 2 else "" for a in op.args)  # type: ignore
        if left not in loads or (right not in loads and right not in self.columns):
            return False
        shapes = [e for a in op.args for e in a.type.shape]  # type: ignore[union-attr]
        return any(e is None or e > TILE for e in shapes)

    def is_column(self, op: Op, loads: dict[str, Op]) -> bool:
        """Whether an operation makes a column of a vector that is loaded."""
        if self.depth or op.op != "reshape" or not isinstance(op.args[0], Var) or op.args[0].name not in loads:
            return False
        have, made = op.args[0].type.shape, op.results[0].type.shape  # type: ignore[union-attr]
        return len(have) == 1 and len(made) == 2 and made == (*have, 1) and unit_reshape(op) is not None

    # -- products of whole tensors --------------------------------------------------------------------------------

    def _product(self, dot: Op, tail: list[Op], after: Later, loads: dict[str, Op], out: list[Stmt]) -> None:
        """Append the nest for a product, and what follows on its tiles, to `out`."""
        rows, columns = self.sides(dot, loads)
        self._without_unread(tail, out)
        result = dot.results[0]
        made = [result, *(s.results[0] for s in tail if s.results and s.results[0].name not in self.aside)]
        kept = [v for v in made if after.names(v.name)]
        memories: list[tuple[Var, Var]] = []
        for var in kept:
            assert isinstance(var.type, TileType)
            extents = tuple(
                e if n != 1 else Const(1, _INDEX) for e, n in zip((rows, columns), var.type.shape, strict=False)
            )
            memory = self.fresh(f"{var.name}.memory", TensorType(var.type.dtype, var.type.shape, "c"))
            out.append(Op("alloc", (memory,), extents, (("dtype", var.type.dtype),), (), dot.loc))
            self.sizes[memory] = extents
            memories.append((var, memory))
        forms, nests = self.nests(dot, tail, loads, memories, out)
        conditions = [self.condition(form, (rows, columns), dot.loc, out) for form in forms[:-1]]
        chosen: Stmt = nests.pop()
        for condition, nest in zip(reversed(conditions), reversed(nests), strict=True):
            chosen = If(condition, (nest,), (chosen,), loc=dot.loc)
        out.append(chosen)
        for var, memory in memories:
            extents = self.sizes[memory]
            load = Op("load", (var,), (memory, *(_ZERO for _ in extents), *extents), (), (), dot.loc)
            loads[var.name] = load
            out.append(load)

    def sides(self, dot: Op, loads: dict[str, Op]) -> tuple[Operand, Operand]:
        """The rows and columns of a product."""
        name = dot.args[1].name  # type: ignore[union-attr]
        columns = loads[name].args[4] if name in loads else Const(1, _INDEX)
        return loads[dot.args[0].name].args[3], columns  # type: ignore[union-attr]

    def _without_unread(self, tail: list[Op], out: Sequence[Stmt]) -> None:
        """Leave out of what follows a product what is computed of loads alone, `out`side, and not read."""
        self.aside = {s.results[0].name for s in tail if any(s is o for o in out)}
        wanted: set[str] = set()
        for k in reversed(range(len(tail))):
            if tail[k].results and tail[k].results[0].name in self.aside - wanted:
                del tail[k]
            else:
                wanted |= {v.name for v in uses(tail[k])}

    def nests(
        self, dot: Op, tail: list[Op], loads: dict[str, Op], memories: list[tuple[Var, Var]], out: Sequence[Stmt]
    ) -> tuple[tuple[Form, ...], list[For]]:  # fmt: skip
        """The forms of a product, and a nest for each."""
        self._without_unread(tail, out)
        name = dot.args[1].name  # type: ignore[union-attr]
        left, right = loads[dot.args[0].name], loads.get(name) or self.columns[name]  # type: ignore[union-attr]
        rows, columns = self.sides(dot, loads)
        forms = self._forms(left, right, dot.results[0], tail)
        nests: list[For] = []
        for form in forms:
            self.tile, self.slice = (form.rows, form.columns), form.depth
            nests.append(self._nest(dot, left, right, tail, loads, memories, (rows, left.args[4], columns)))
        return forms, nests

    def _forms(self, left: Op, right: Op, result: Var, tail: Sequence[Op]) -> tuple[Form, ...]:
        """The tiles that a product may be computed in."""
        rows, columns = result.type.shape  # type: ignore[union-attr]
        if self.depth:  # an extent of 1 is one in every tile
            return (Form(1 if rows == 1 else TILE, 1 if columns == 1 else TILE, self.depth),)
        written = {self.root(x) for s in tail if (x := written_tensor(s)) is not None}
        operand = left.results[0].type.dtype  # type: ignore[union-attr]
        return forms_of(operand, rows, columns, self.root(right.args[0]) not in written)

    def condition(self, form: Form, extents: tuple[Operand, Operand], loc: Loc, out: list[Stmt]) -> Var:
        """Whether the host takes a form: statements appended to `out`."""

        def compute(op: str, *args: Operand, typ: ScalarType = _INDEX) -> Var:
            result = self.fresh(f"product_{op}", typ)
            out.append(Op(op, (result,), args, (), (), loc))
            return result

        if form.most_rows:
            return compute("le", extents[0], Const(form.most_rows, _INDEX), typ=BOOL)
        tiles: list[Operand] = []
        for extent, side in zip(extents, (form.rows, form.columns), strict=True):
            if isinstance(extent, Const):
                tiles.append(Const(-(-int(extent.value) // side), _INDEX))
            else:
                padded = compute("add", extent, Const(side - 1, _INDEX))
                tiles.append(compute("floordiv", padded, Const(side, _INDEX)))
        return compute("ge", compute("mul", *tiles), Const(form.least_tiles, _INDEX), typ=BOOL)

    def root(self, tensor: Operand) -> str:
        """The tensor that a tensor is a view of."""
        assert isinstance(tensor, Var)
        name = tensor.name
        while name in self.views:
            name = self.views[name]
        return name

    def epilogue(
        self, result: Var, block: Block, at: int, loads: dict[str, Op], out: list[Stmt]
    ) -> tuple[list[Op], int]:
        """The statements from `at` on that can run on the tiles of a product, and where they end; host arithmetic moves
        before the nest."""
        members = {result.name}
        aside: set[str] = set()  # what is computed of loads alone, as in `product + bias.to(pl.f32)`
        tail: list[Op] = []
        stored = False
        generated: set[str] = set()
        views: set[str] = set()
        vectors: set[str] = set()  # members that are a vector for the program, a column in the nest
        for k in range(at, len(block)):
            s = block[k]
            if not isinstance(s, Op):
                return tail, k
            if not touches_tiles(s):
                if s.op in ("getelem", "setelem", "alloc") or {v.name for v in uses(s)} & members:
                    return tail, k
                out.append(s)
                continue
            operands = [a.name for a in s.args if isinstance(a, Var) and isinstance(a.type, TileType)]
            if s.op == "load" and not stored and not s.attr("pad"):
                loads[s.results[0].name] = s
                out.append(s)
            elif s.op == "reshape" and operands[0] in members and is_vector_of(s, result):
                members.add(s.results[0].name)
                vectors.add(s.results[0].name)
                tail.append(s)
            elif s.op == "full" and _rank(s.results[0]) == 2:
                generated.add(s.results[0].name)
                tail.append(s)
            elif s.op == "reshape" and operands[0] in loads and unit_reshape(s) and _rank(s.results[0]) == 2:
                views.add(s.results[0].name)
                tail.append(s)
            elif self._stands_aside(s, set(operands), aside, loads, stored):
                aside.add(s.results[0].name)
                tail.append(s)
                out.append(s)
            elif (
                is_elementwise(s)
                and not members.isdisjoint(operands)
                and all(any(o in some for some in (members, loads, generated, views, aside)) for o in operands)
            ):
                flat = bool(set(operands) & vectors)
                if s.results[0].name in members or not covers(result, s.results[0], flat=flat) or (
                    flat and not aside.isdisjoint(operands)  # which are rows
                ):
                    return tail, k
                members.add(s.results[0].name)
                vectors |= {s.results[0].name} if flat else set()
                tail.append(s)
            elif s.op == "store" and operands[0] in members and s.args[1].type.rank == s.args[0].type.rank:  # type: ignore
                root = self.root(s.args[1])
                if any(o.op == "store" and self.root(o.args[1]) == root and o.args[1:] != s.args[1:] for o in tail):
                    return tail, k  # over what another tile has written, perhaps
                stored = True
                tail.append(s)
            else:
                return tail, k
        return tail, len(block)

    def _stands_aside(
        self, op: Op, operands: set[str], aside: set[str], loads: dict[str, Op], stored: bool
    ) -> bool:
        """Whether an operation computes a tile of what is loaded, or makes a row of such a vector."""
        if not op.results or not isinstance(op.results[0].type, TileType):
            return False
        shape = op.results[0].type.shape
        if stored or not operands or not operands <= set(loads) | aside or all(n == 1 for n in shape):
            return False
        if op.op == "reshape":
            return operands <= aside and unit_reshape(op) is not None and len(shape) == 2 and shape[0] == 1
        same = {len(a.type.shape) for a in op.args if isinstance(a.type, TileType)}
        return is_elementwise(op) and len(shape) in (1, 2) and same == {len(shape)}

    def _nest(
        self, dot: Op, left: Op, right: Op, tail: Iterable[Op], loads: dict[str, Op],
        memories: list[tuple[Var, Var]], extents: tuple[Operand, Operand, Operand],
    ) -> For:  # fmt: skip
        rows, depth, columns = extents
        loc = dot.loc
        i, j, p = self.fresh("i"), self.fresh("j"), self.fresh("p")
        kind = dot.results[0].type
        assert isinstance(kind, TileType)
        thin = self.slice
        acc = Var(dot.results[0].name, TileType(kind.dtype, self.tile))
        body: list[Stmt] = []
        if self.tile[1] == 1 and not self.depth:
            inner = self._by_column(acc, left, right, (i, j, p), body)
        else:
            a = self._tile_load(left, (i, p), (self.tile[0], thin), body)
            b = self._tile_load(right, (p, j), (thin, self.tile[1]), body)
            inner = (a, b, Op("dot", (acc,), (a.results[0], b.results[0], acc), dot.attrs, (), loc))
        zero = Const(0.0 if kind.dtype.is_float else 0, ScalarType(kind.dtype))
        sides = tuple(Const(n, _INDEX) for n in self.tile)
        loop = For("sequential", p, _ZERO, depth, Const(thin, _INDEX), inner, loc=loc)
        body += [Op("full", (acc,), (zero, *sides), (), (), loc), loop]
        names = {acc.name: acc}
        for s in tail:
            self._retile(s, (i, j), names, loads, body)
        for var, memory in memories:
            tile = self._as(var, names[var.name], body, loc)
            at = tuple(o if n != 1 else _ZERO for o, n in zip((i, j), tile.type.shape, strict=False))  # type: ignore
            body.append(Op("store", (), (tile, memory, *at), (), (), loc))
        across = For("parallel", j, _ZERO, columns, sides[1], tuple(body), loc=loc)
        return For("parallel", i, _ZERO, rows, sides[0], (across,), loc=loc)

    def _by_column(
        self, acc: Var, left: Op, right: Op, at: tuple[Var, Var, Var], before: list[Stmt]
    ) -> tuple[Op, ...]:
        """What adds a slice of the product by a single column to a tile, elementwise: the column is read as a row."""
        i, j, p = at
        loc, dtype = left.loc, acc.type.dtype  # type: ignore[union-attr]
        out = [self._tile_load(left, (i, p), (self.tile[0], self.slice), before), *self._row(right, j, p, before)]
        parts = [out[0].results[0], out[-1].results[0]]
        for k, part in enumerate(parts):
            assert isinstance(part.type, TileType)
            if part.type.dtype != dtype:
                parts[k] = self.fresh(f"{part.name}.{dtype.name}", TileType(dtype, part.type.shape))
                out.append(Op("cast", (parts[k],), (part,), (("dtype", dtype),), (), loc))
        terms = self.fresh(f"{acc.name}.terms", TileType(dtype, (self.tile[0], self.slice)))
        some = self.fresh(f"{acc.name}.sum", acc.type)  # type: ignore[arg-type]
        out += [Op("mul", (terms,), tuple(parts), (), (), loc),
                Op("sum", (some,), (terms,), (("axes", (1,)), ("keepdims", True)), (), loc),
                Op("add", (acc,), (acc, some), (), (), loc)]  # fmt: skip
        return tuple(out)

    def _row(self, column: Op, j: Var, p: Var, before: list[Stmt]) -> list[Op]:
        """Loads a slice of a column, or of a vector, as a row."""
        tensor = self._region(column, before)
        kind, loc = column.results[0].type, column.loc
        assert isinstance(kind, TileType) and isinstance(tensor.type, TensorType)
        if kind.rank == 2:
            turned = self.fresh(f"{tensor.name}.turned",
                                TensorType(tensor.type.dtype, tensor.type.shape[::-1], "strided"))  # fmt: skip
            before.append(Op("tensor_transpose", (turned,), (tensor,), (("axes", (1, 0)),), (), loc))
            return [self._tile_load(column, (j, p), (1, self.slice), before, turned)]
        size, name = Const(self.slice, _INDEX), column.results[0].name
        part = self.fresh(f"{name}.part", TileType(kind.dtype, (self.slice,)))
        row = self.fresh(f"{name}.row", TileType(kind.dtype, (1, self.slice)))
        return [Op("load", (part,), (tensor, p, size), (), (), loc),
                Op("reshape", (row,), (part, Const(1, _INDEX), size), (), (), loc)]  # fmt: skip

    def _tile_load(
        self, load: Op, at: tuple[Var, Var], size: tuple[int, int], before: list[Stmt], view: Var | None = None
    ) -> Op:
        """A part of what `load` loads, or of a view of that."""
        tensor = view or self._region(load, before)
        var = self.fresh(f"{load.results[0].name}.part", TileType(load.results[0].type.dtype, size))  # type: ignore
        return Op("load", (var,), (tensor, *at, *(Const(n, _INDEX) for n in size)), (), (), load.loc)

    def _region(self, load: Op, before: list[Stmt]) -> Var:
        """The tensor whose bounds are what `load` loads: the tensor itself, or a view."""
        tensor = load.args[0]
        assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
        rank = tensor.type.rank
        offsets, extents = load.args[1 : 1 + rank], load.args[1 + rank : 1 + 2 * rank]
        whole = all(
            o == _ZERO and ((e == Const(1, _INDEX) and tensor.type.shape[k] == 1)
                            or (isinstance(e, Const) and e.value == tensor.type.shape[k])
                            or (isinstance(e, Var) and self.dims.get(e.name) == (tensor, k)))
            for k, (o, e) in enumerate(zip(offsets, extents, strict=True))
        )  # fmt: skip
        if whole or (set(offsets) == {_ZERO} and self.sizes.get(tensor) == extents):
            return tensor
        shape = tuple(int(e.value) if isinstance(e, Const) and o == _ZERO and e.value == n else None
                      for o, e, n in zip(offsets, extents, tensor.type.shape, strict=True))  # fmt: skip
        layout = "strided" if tensor.type.layout == "strided" else "c" if rank == 1 else "inner"
        view = self.fresh(f"{tensor.name}.view", TensorType(tensor.type.dtype, shape, layout))
        before.append(Op("view", (view,), (tensor, *offsets, *extents), (), (), load.loc))
        return view

    def _retile(
        self, op: Op, at: tuple[Var, Var], names: dict[str, Var], loads: dict[str, Op], body: list[Stmt]
    ) -> None:
        """An operation of the epilogue on one tile."""
        made = op.args[0] if op.op == "store" else op.results[0]
        flat = made.type.rank == 1 and made.name not in self.aside  # type: ignore[union-attr]  # a column of the nest
        if op.op == "reshape" and (flat or op.args[0].name in self.aside):  # type: ignore[union-attr]
            names[op.results[0].name] = names[op.args[0].name]  # type: ignore[union-attr]
            return
        if op.op == "reshape":
            source = loads[op.args[0].name]  # type: ignore[union-attr]
            shape = op.results[0].type.shape  # type: ignore[union-attr]
            names[op.results[0].name] = self._loaded(source, shape, at, body, op)
            return
        args: list[Operand] = []
        for a in op.args:
            if not isinstance(a, Var) or not isinstance(a.type, TileType):
                args.append(a)
                continue
            if a.name not in names:
                shape = a.type.shape if a.type.rank == 2 else (*a.type.shape, 1) if flat else (1, *a.type.shape)
                names[a.name] = self._loaded(loads[a.name], shape, at, body, None)
            args.append(names[a.name])
        if op.op == "store":
            offsets = []
            for k, (offset, n) in enumerate(zip(op.args[2:], op.args[0].type.shape, strict=True)):  # type: ignore
                offsets.append(self._sum(offset, at[k], body, op.loc) if n != 1 else offset)
            tile = self._as(op.args[0], args[0], body, op.loc)
            body.append(replace(op, args=(tile, op.args[1], *offsets)))
            return
        if op.op == "full":
            shape = op.results[0].type.shape  # type: ignore[union-attr]
            new = tuple(1 if n == 1 else side for n, side in zip(shape, self.tile, strict=True))
            args = [op.args[0], *(Const(n, _INDEX) for n in new)]
            result = Var(op.results[0].name, TileType(op.results[0].type.dtype, new))  # type: ignore[union-attr]
        else:
            result = self._tile_of(op.results[0])
            if op.results[0].name in self.aside:  # which is a tile of other extents before the loops
                result = self.fresh(f"{result.name}.part", result.type)  # type: ignore[arg-type]
        names[op.results[0].name] = result
        body.append(replace(op, results=(result,), args=tuple(args)))

    def _loaded(
        self, load: Op, shape: tuple[int | None, ...], at: tuple[Var, Var], body: list[Stmt], reshape: Op | None
    ) -> Var:
        """The part of a loaded tile that meets tile `at` of the product: a tile of rank 2."""
        rank = load.results[0].type.rank  # type: ignore[union-attr]
        places = tuple(k for k in range(2) if shape[k] != 1)
        tensor = self._region(load, body)
        dtype = load.results[0].type.dtype  # type: ignore[union-attr]
        if rank == 2:
            size = tuple(self.tile[k] if k in places else 1 for k in range(2))
            offsets = tuple(at[k] if k in places else _ZERO for k in range(2))
            var = self.fresh(f"{load.results[0].name}.part", TileType(dtype, size))
            body.append(Op("load", (var,), (tensor, *offsets, *(Const(n, _INDEX) for n in size)), (), (), load.loc))
            return var
        side, offset = (self.tile[places[0]], at[places[0]]) if places else (1, _ZERO)
        part = self.fresh(f"{load.results[0].name}.part", TileType(dtype, (side,)))
        body.append(Op("load", (part,), (tensor, offset, Const(side, _INDEX)), (), (), load.loc))
        size = tuple(self.tile[k] if k in places else 1 for k in range(2))
        var = self.fresh(f"{load.results[0].name}.tile", TileType(dtype, size))
        loc = reshape.loc if reshape is not None else load.loc
        body.append(Op("reshape", (var,), (part, *(Const(n, _INDEX) for n in size)), (), (), loc))
        return var

    def _as(self, var: Operand, tile: Operand, body: list[Stmt], loc: Loc) -> Var:
        """The part of a variable that a tile of the nest is: of a vector, without the axis of extent 1."""
        assert isinstance(var, Var) and isinstance(tile, Var) and isinstance(tile.type, TileType)
        if var.type.rank == 2:  # type: ignore[union-attr]
            return tile
        size = self.tile[0]
        part = self.fresh(f"{var.name}.part", TileType(tile.type.dtype, (size,)))
        body.append(Op("reshape", (part,), (tile, Const(size, _INDEX)), (), (), loc))
        return part

    def _tile_of(self, var: Var) -> Var:
        assert isinstance(var.type, TileType)
        if var.type.rank == 1 and var.name not in self.aside:  # a column of the nest
            return Var(var.name, TileType(var.type.dtype, self.tile))
        whole = var.type.shape if var.type.rank == 2 else (1, *var.type.shape)
        shape = tuple(1 if n == 1 else side for n, side in zip(whole, self.tile, strict=True))
        return Var(var.name, TileType(var.type.dtype, shape))

    def _sum(self, a: Operand, b: Var, body: list[Stmt], loc: Loc) -> Operand:
        if a == _ZERO:
            return b
        out = self.fresh(f"{b.name}_at")
        body.append(Op("add", (out,), (a, b), (), (), loc))
        return out


def _rank(tile: Operand) -> int:
    return tile.type.rank  # type: ignore[union-attr]
