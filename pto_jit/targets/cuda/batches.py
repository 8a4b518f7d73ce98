# SPDX-License-Identifier: MIT
"""Products of many matrices: products of tiles of more than two axes as loops over the leading ones, and products of
whole matrices that loops of the program go over, which become nests over tiles there.

Before::

    %a.1 = tload %a[0, 0, 0] [%b, %m, %k]
    %w.1 = tload %w[0, 0, 0] [%b, %k, %n]
    %t = tdot %a.1, %w.1
    %r = trelu %t
    tstore %r, %c[0, 0, 0]

After `in_matrices`::

    FOR %a_at, 0, %b, 1 {kind=parallel}
      %a.matrix = tview %a[%a_at, 0, 0] [1, %m, %k] {drop=(0,)}
      %a.2 = tload %a.matrix[0, 0] [%m, %k]
      %w.matrix = tview %w[%a_at, 0, 0] [1, %k, %n] {drop=(0,)}
      %w.2 = tload %w.matrix[0, 0] [%k, %n]
      %t.1 = tdot %a.2, %w.2
      %r.1 = trelu %t.1
      %c.matrix = tview %c[%a_at, 0, 0] [1, %size, %size.1] {drop=(0,)}
      tstore %r.1, %c.matrix[0, 0]
    ENDFOR

Elementwise operations on the result, and its stores, come into the loops; others find the result in a tensor.
`batched_nests` puts the nests of `tiling` inside of such loops, whoever wrote them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from pto_jit.errors import Loc
from pto_jit.ir.nodes import Block, Const, For, Func, If, Op, Operand, Scope, Stmt, Var, While
from pto_jit.ir.types import TensorType, TileType
from pto_jit.ir.walk import block_defs, blocks, defs, rename, rewrite_block, statements, use_counts, uses, with_blocks
from pto_jit.lower.decisions import Decision
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.lower.names import Scalars, index, source_name
from pto_jit.lower.outwards import is_host
from pto_jit.lower.wholes.choose import LoopsOverParts, Parts
from pto_jit.lower.wholes.lines import Lines, root_of
from pto_jit.lower.wholes.parted import DividedLine, PartLoops
from pto_jit.semantic.rules import infer
from pto_jit.slotted import frozen, replace
from pto_jit.targets.cuda.forms import WIDE
from pto_jit.targets.cuda.loops import PARALLEL, touches_tiles
from pto_jit.targets.cuda.starts import product_and_sum

if TYPE_CHECKING:
    from pto_jit.targets.cuda.tiling import Tiler

_Operand = TypeVar("_Operand", Var, Operand)


def in_matrices(func: Func, parts: Parts, most: int, decisions: list[Decision] | None = None) -> Func:
    """A flat function whose products of more than two axes, outside of parallel loops, are loops over products of
    matrices, if these have a run-time extent or more than `most` rows or columns.

    parts: those of the device; each product that becomes loops goes to `decisions`.
    """
    if not any(isinstance(s, Op) and _is_batched(s, most) for s in statements(func.body)):
        return func
    body = _Batches(func, parts, [] if decisions is None else decisions).blocks(func.body, most)
    return replace(func, body=body)


def _is_batched(op: Op, most: int) -> bool:
    if op.op != "dot":
        return False
    shapes = [a.type.shape for a in op.args[:2]]  # type: ignore[union-attr]
    return len(shapes[0]) > 2 and any(n is None or n > most for shape in shapes for n in shape[-2:])


@frozen
class _Group:
    """What comes into the loops of a product.

    ops: in order, with what they load; members: the tiles that are made of the product; before: what is done before
    the loops, too, or instead; end: where the block goes on.
    """

    ops: list[Op]
    members: set[str]
    before: list[Stmt]
    end: int


class _Batches(LoopsOverParts):
    """The products of one function."""

    def blocks(self, block: Block, most: int) -> Block:
        out: list[Stmt] = []
        loads: dict[str, Op] = {}
        at = 0
        block = tuple(part for stmt in block for part in self._without_start(stmt, most))
        while at < len(block):
            stmt = block[at]
            at += 1
            if isinstance(stmt, (If, While, Scope)) or (isinstance(stmt, For) and stmt.kind not in PARALLEL):
                out.append(with_blocks(stmt, tuple(self.blocks(b, most) for b in blocks(stmt))))
                continue
            if isinstance(stmt, Op) and _is_batched(stmt, most):
                group = self._group(stmt, block, at, loads)
                loops = self._loops(group)
                if loops is not None:
                    out += group.before
                    stores = any(op.op == "store" for op in group.ops)
                    behind = [] if stores else _last_loads(out)  # where they are read, not before other kernels
                    out = [*(s for s in out if not any(s is load for load in behind)), *loops, *behind]
                    at = group.end
                    self._note([*group.before, *loops], loads)
                    continue
            out.append(stmt)
            self._note([stmt], loads)
        return tuple(out)

    def _without_start(self, stmt: Stmt, most: int) -> tuple[Stmt, ...]:
        """A product that is added to a tile as a product and a sum."""
        if not isinstance(stmt, Op) or len(stmt.args) != 3 or not _is_batched(stmt, most):
            return (stmt,)
        result = stmt.results[0]
        parts = product_and_sum(stmt, self.known.names.fresh(f"{result.name}.product", result.type).name)
        self.known.replaced((stmt,), parts)
        self.known.add({part.results[0].name: part for part in parts})
        return parts

    def _note(self, stmts: Sequence[Stmt], loads: dict[str, Op]) -> None:
        """Add what statements load, and the same with other axes of extent 1."""
        for s in stmts:
            if not isinstance(s, Op):
                continue
            views = s.op == "reshape" and s.args[0].name in loads and self.kept(s) is not None  # type: ignore[union-attr]
            if views or (s.op == "load" and not s.attr("pad")):
                loads[s.results[0].name] = s

    def _group(self, dot: Op, block: Block, at: int, before: dict[str, Op]) -> _Group:
        """What comes into the loops of a product; `at`: behind it, `before`: what was loaded until then."""
        updated = {self._root(s.args[1]) for s in block[at:] if isinstance(s, Op) and s.op == "store"}
        if not self.parts.flat:  # where one core multiplies and another one updates
            updated = set()
        operands = {a.name for a in dot.args if isinstance(a, Var)}
        loads = {n: op for n, op in before.items() if n in operands or not self._is_of(op, updated, before)}
        members, others = {dot.results[0].name}, set[str]()
        ops, host = [dot], list[Stmt]()
        stored = False
        end = at
        for s in block[at:]:
            if not isinstance(s, Op):
                break
            tiles = [a.name for a in s.args if isinstance(a, Var) and isinstance(a.type, TileType)]
            if is_host(s):
                host.append(s)
            elif s.op == "load" and not stored and not s.attr("pad"):
                host.append(s)
                if not self._is_of(s, updated, loads):
                    loads[s.results[0].name] = s
            elif is_elementwise(s) and tiles and all(t in members or t in loads or t in others for t in tiles):
                of_product = not members.isdisjoint(tiles)
                if of_product and not covers(dot.results[0], s.results[0]):
                    break
                (members if of_product else others).add(s.results[0].name)
                ops.append(s)
                if not of_product:
                    host.append(s)
            elif s.op == "reshape" and (tiles[0] in loads or tiles[0] in others) and self.kept(s) is not None:
                others.add(s.results[0].name)
                ops.append(s)
                host.append(s)
            elif s.op == "store" and tiles[0] in members and s.args[0].type.rank == dot.results[0].type.rank:  # type: ignore
                if self.known.reads_elsewhere([*loads.values(), *ops], s):
                    break
                stored = True
                ops.append(s)
            else:
                break
            end += 1
        return _Group(self._needed(ops, loads, members), members, host, end)

    def _is_of(self, load: Op, tensors: set[str], loads: dict[str, Op]) -> bool:
        """Whether something is loaded from one of these tensors."""
        while load.op == "reshape":
            load = loads[load.args[0].name]  # type: ignore[union-attr]
        return self._root(load.args[0]) in tensors

    def _root(self, tensor: Operand) -> str:
        """The tensor that a tensor is a view of."""
        return root_of(tensor, self.known.views)

    def _needed(self, ops: list[Op], loads: dict[str, Op], members: set[str]) -> list[Op]:
        """Operations on a product, with what they load, without what nobody reads."""
        everything = [*loads.values(), *ops]
        wanted: set[str] = set()
        out: list[Op] = []
        for op in reversed(everything):
            mine = {r.name for r in op.results}
            if op.op == "store" or not mine.isdisjoint(wanted) or not mine.isdisjoint(members):
                wanted.update(a.name for a in op.args if isinstance(a, Var))
                out.insert(0, op)
        return out

    def _loops(self, group: _Group) -> list[Stmt] | None:
        """Operations on a product in loops over its matrices; None where the loops cannot be found."""
        ops = group.ops
        dot = next(op for op in ops if op.op == "dot")
        loaded = {op.results[0].name for op in ops if op.op == "load"}
        made = {r.name for op in ops for r in op.results if op.op not in ("load", "store")}
        read = {v.name for op in ops for v in uses(op) if isinstance(v.type, TileType)}
        if not read <= loaded | made or not {a.name for a in dot.args if isinstance(a, Var)} <= read:
            return None
        inside = use_counts(tuple(ops))
        later = [r for op in ops for r in op.results if r.name in group.members
                 and self.known.uses[r.name] > inside[r.name]]  # fmt: skip
        renamed = self.known.again(ops)
        again = {old.name: new for op, other in zip(ops, renamed, strict=True)
                 for old, new in zip(op.results, other.results, strict=True)}  # fmt: skip
        scalars = Scalars(self.known.names, dot.loc)
        memories: list[tuple[Var, Var, tuple[Operand, ...]]] = []
        for var in later:
            memory = self._memory(again[var.name], renamed, scalars)
            if memory is None:
                return None
            memories.append((var, *memory))
            zeros = tuple(index(0) for _ in memory[1])
            renamed.append(Op("store", (), (again[var.name], memory[0], *zeros), (), (), dot.loc))
        lines = Lines(tuple(renamed), self.kept)
        result = again[dot.results[0].name]
        leading = {k: axis for k, axis in lines.axes(result).items() if k < result.type.rank - 2}  # type: ignore
        found = {axis: self.known.extent(lines, axis, renamed, scalars) for axis in leading.values()}
        chosen = [DividedLine(axis, n, 1) for axis, n in found.items() if n is not None]
        if len(chosen) < len(leading) or not any(op.op == "store" for op in renamed):
            return None
        scope = Scope("", (), named=True, loc=dot.loc)
        loops = PartLoops(chosen, {line.axis: line.extent for line in chosen}, lines, scalars, self.known.names, scope,
                          self.parts.bounded)  # fmt: skip
        if chosen:
            *out, loop = loops.around(renamed)
            nest: Block = (loop,)
        else:  # of one matrix each
            out, nest = list(scalars.block), tuple(renamed)
        if not all(_is_matrix(v) for s in statements(nest) for v in (*uses(s), *_made(s))):
            return None
        self.decisions.append(Decision("grain", (), True, f"a product of many matrices is divided: {loops}", dot.loc))
        out += _without_copies(rewrite_block(nest, self._of_matrices))
        for var, memory, extents in memories:
            zeros = tuple(index(0) for _ in extents)
            declared = [e if n is None else index(n) for n, e in zip(var.type.shape, extents, strict=True)]  # type: ignore
            out.append(Op("load", (var,), (memory, *zeros, *declared), (), (), dot.loc))
        return out

    def _memory(self, tile: Var, ops: list[Op], scalars: Scalars) -> tuple[Var, tuple[Operand, ...]] | None:
        """A new tensor for a tile, and its extents; None where these are not known."""
        assert isinstance(tile.type, TileType)
        lines = Lines(tuple(ops), self.kept)
        axes = lines.axes(tile)
        extents: list[Operand] = []
        for k, n in enumerate(tile.type.shape):
            extent = index(1) if n == 1 else self.known.extent(lines, axes.get(k), ops, scalars, anywhere=True)
            if extent is None:
                return None
            extents.append(extent)
        typ = TensorType(tile.type.dtype, tuple(int(n.value) if isinstance(n, Const) else None for n in extents), "c")
        memory = self.known.names.fresh(f"{source_name(tile.name)}.memory", typ)
        alloc = Op("alloc", (memory,), tuple(extents), (("dtype", tile.type.dtype),), (), scalars.loc)
        scalars.block.append(alloc)
        self.known.add({memory.name: alloc})
        return memory, tuple(extents)

    # -- one matrix -----------------------------------------------------------------------------------------------

    def _of_matrices(self, stmt: Stmt) -> Block | None:
        """An operation on tiles whose leading axes have one element each, on tiles without these."""
        if not isinstance(stmt, Op):
            return None
        made = tuple(map(_matrix, stmt.results))
        match stmt.op:
            case "load" if _rank(stmt.results[0]) > 2:
                rank = _rank(stmt.results[0])
                offsets, extents = stmt.args[1 : 1 + rank], stmt.args[1 + rank : 1 + 2 * rank]
                view = self._view(stmt.args[0], offsets, extents, stmt.loc)
                return view, replace(stmt, results=made, args=(*view.results, index(0), index(0), *extents[-2:]))
            case "store" if _rank(stmt.args[0]) > 2:
                tensor, offsets = stmt.args[1], stmt.args[2:]
                rank = len(offsets)
                scalars = Scalars(self.known.names, stmt.loc)
                sides = [self.known.size(tensor, k, scalars) for k in (rank - 2, rank - 1)]
                ones = [index(1)] * (rank - 2)
                view = self._view(tensor, (*offsets[:-2], index(0), index(0)), (*ones, *sides), stmt.loc)
                at = (_matrix(stmt.args[0]), *view.results, *offsets[-2:])
                return *scalars.block, view, replace(stmt, args=at)
            case "reshape" | "full" | "broadcast_to" if _rank(stmt.results[0]) > 2:
                return (replace(stmt, results=made, args=(_matrix(stmt.args[0]), *stmt.args[-2:]), attrs=()),)
            case _:
                return (replace(stmt, results=made, args=tuple(map(_matrix, stmt.args))),)

    def _view(self, tensor: Operand, offsets: Sequence[Operand], extents: Sequence[Operand], loc: Loc) -> Op:
        """One matrix of a tensor."""
        args, drop = (tensor, *offsets, *extents), tuple(range(len(offsets) - 2))
        (typ,) = infer("view", args, {"drop": drop})
        name = f"{source_name(tensor.name)}.matrix"  # type: ignore[union-attr]
        return Op("view", (self.known.names.fresh(name, typ),), args, (("drop", drop),), (), loc)


def _last_loads(stmts: Sequence[Stmt]) -> list[Stmt]:
    """The loads that nothing among these statements reads, or may change what they read."""
    read = {v.name for s in statements(tuple(stmts)) for v in uses(s)}
    out: list[Stmt] = []
    for s in reversed(stmts):
        if isinstance(s, Op) and s.op == "load" and s.results[0].name not in read:
            out.insert(0, s)
        elif not is_host(s) and not (isinstance(s, Op) and s.op == "load"):
            break
    return out


def _without_copies(block: Block) -> Block:
    """A block without reshapes that leave tiles as they are."""
    names: dict[str, str] = {}

    def visit(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Op) or stmt.op != "reshape" or stmt.args[0].type != stmt.results[0].type:
            return None
        source = stmt.args[0].name  # type: ignore[union-attr]
        names[stmt.results[0].name] = names.get(source, source)
        return ()

    return rename(rewrite_block(block, visit), names)


def _made(stmt: Stmt) -> tuple[Var, ...]:
    return stmt.results if isinstance(stmt, Op) else ()


def _rank(operand: Operand) -> int:
    return operand.type.rank if isinstance(operand.type, TileType) else 0


def _is_matrix(operand: Operand) -> bool:
    """Whether leading axes of a tile, before the last two, have one element each; so of what is no tile."""
    return not isinstance(operand.type, TileType) or all(n == 1 for n in operand.type.shape[:-2])


def _matrix(operand: _Operand) -> _Operand:
    """A tile without leading axes."""
    if not isinstance(operand, Var) or not isinstance(operand.type, TileType) or operand.type.rank <= 2:
        return operand
    return Var(operand.name, TileType(operand.type.dtype, operand.type.shape[-2:]))  # type: ignore[return-value]


# -- nests in loops of the program ------------------------------------------------------------------------------------


def batched_nests(tiler: Tiler, loop: For) -> list[Stmt] | None:
    """A parallel loop that multiplies whole matrices as the same loop around nests, one for each form that the host
    chooses from; None where it does something else, too, or has tiles that are as small as the program says."""
    around, body = _chain(loop)
    before: list[Stmt] = []
    loads: dict[str, Op] = {}
    dot: Op | None = None
    at = 0
    for s in body:
        if not isinstance(s, Op):
            return None
        at += 1
        if s.op == "load" and not s.attr("pad"):
            loads[s.results[0].name] = s
        elif tiler.is_column(s, loads):
            tiler.columns[s.results[0].name] = loads[s.args[0].name]  # type: ignore[union-attr]
        elif s.op == "dot" and tiler.is_whole(s, loads):
            dot = s
            break
        elif not is_host(s):
            return None
        before.append(s)
    inside = block_defs((loop,))
    if dot is None or not _is_the_same(dot, tiler, loads, inside) or not _contracts_wholes(dot, tiler, loads):
        return None
    tail, end = tiler.epilogue(dot.results[0], body, at, loads, before)
    if end < len(body) or not any(s.op == "store" for s in tail) or _clashes(tiler, dot, tail, loads):
        return None
    out: list[Stmt] = []
    forms, nests = tiler.nests(dot, tail, loads, [], before)
    host = [s for s in before if not touches_tiles(s)]
    conditions = [tiler.condition(form, tiler.sides(dot, loads), dot.loc, out) for form in forms[:-1]]
    *loops, chosen = [_around(tiler, around, (*host, nest), renamed=k > 0) for k, nest in enumerate(nests)]
    for condition, other in zip(reversed(conditions), reversed(loops), strict=True):
        chosen = If(condition, (other,), (chosen,), loc=dot.loc)
    return [*out, chosen]


def _chain(loop: For) -> tuple[list[tuple[For | Scope, Block]], Block]:
    """Parallel loops, and scopes, inside each other, with the host's work before the next one; what is inside."""
    around: list[tuple[For | Scope, Block]] = []
    stmt: Stmt = loop
    while True:
        assert isinstance(stmt, (For, Scope))
        inner = [s for s in stmt.body if isinstance(s, Scope) or (isinstance(s, For) and s.kind in PARALLEL)]
        if len(inner) != 1 or not all(s is inner[0] or is_host(s) for s in stmt.body) or stmt.body[-1] is not inner[0]:
            around.append((stmt, ()))
            return around, stmt.body
        around.append((stmt, stmt.body[:-1]))
        stmt = inner[0]


def _around(tiler: Tiler, around: list[tuple[For | Scope, Block]], block: Block, *, renamed: bool) -> Stmt:
    """Loops around other statements; renamed: with other variables."""
    for stmt, before in reversed(around):
        block = (replace(stmt, body=(*before, *block)),)
    if renamed:
        made = {v.name: v.type for s in statements(block) for v in defs(s)}
        block = rename(block, {name: tiler.fresh(name, typ).name for name, typ in made.items()})  # type: ignore[arg-type]
    return block[0]


def _is_the_same(dot: Op, tiler: Tiler, loads: dict[str, Op], inside: set[str]) -> bool:
    """Whether a product has rows or columns that a block has not, and as many each time."""
    sides = tiler.sides(dot, loads)
    many = any(not isinstance(n, Const) or int(n.value) > WIDE for n in sides)
    return many and not any(isinstance(n, Var) and n.name in inside for n in sides)


def _contracts_wholes(dot: Op, tiler: Tiler, loads: dict[str, Op]) -> bool:
    """Whether what is contracted is as much as there is: a constant extent may be more, and is compared with the other
    operand's where the tiles are as they are written."""
    left, right = (a.name for a in dot.args[:2])  # type: ignore[union-attr]

    def is_whole(load: Op, axis: int) -> bool:
        tensor = load.args[0].type
        assert isinstance(tensor, TensorType)
        extent = load.args[1 + tensor.rank + axis]
        return not isinstance(extent, Const) or extent.value == tensor.shape[axis]

    return is_whole(loads[left], 1) and is_whole(loads.get(right) or tiler.columns[right], 0)


def _clashes(tiler: Tiler, dot: Op, tail: Sequence[Op], loads: dict[str, Op]) -> bool:
    """Whether what is stored is read for other tiles of the product."""
    operands = {a.name for a in dot.args if isinstance(a, Var)}
    stores = [s for s in tail if s.op == "store"]
    for name, load in loads.items():
        for store in stores:
            if tiler.root(store.args[1]) != tiler.root(load.args[0]):
                continue
            rank = load.results[0].type.rank  # type: ignore[union-attr]
            same = load.args[: 1 + rank] == store.args[1:]
            if name in operands or name in tiler.columns or not same:
                return True
    return False


def is_vector_of(op: Op, product: Var) -> bool:
    """Whether an operation makes a vector of a product that is one column."""
    rows, columns = product.type.shape  # type: ignore[union-attr]
    return columns == 1 and rows != 1 and op.results[0].type.shape == (rows,)  # type: ignore[union-attr]


def covers(product: Var, result: Var, *, flat: bool = False) -> bool:
    """Whether a product's tiles are those of a result, which one row or column could be broadcast to; flat: of what was
    made of a vector."""
    mine, others = product.type.shape, result.type.shape  # type: ignore[union-attr]
    if flat:
        return others == mine[:1]
    return len(others) == len(mine) and all(a != 1 or b == 1 for a, b in zip(mine, others, strict=True))
