# SPDX-License-Identifier: MIT
"""Tiles that one kernel makes and another reads: made again where they are read, or kept in a tensor of their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Container, Iterator

from pto_jit.dtypes import i64
from pto_jit.errors import Loc
from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Const, Func, If, Op, Operand, Scope, Stmt, Var
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import block_defs, defs, statements
from pto_jit.lower.names import Taken, source_name, unused
from pto_jit.slotted import frozen
from pto_jit.targets.cuda.flatten import unsupported
from pto_jit.targets.cuda.loops import with_makers
from pto_jit.targets.cuda.shapes import shape_of
from pto_jit.targets.cuda.slices import views_of
from pto_jit.targets.cuda.valid import ValidExtents

_INDEX = ScalarType(i64)


@frozen
class _Kept:
    """Where a tile is between two kernels: its memory, its declared extents, and where a kernel said how much is valid.
    """

    memory: Var
    extents: tuple[Operand, ...]
    marks: Var | None


class TilesBetween(ABC):
    """The part of what divides a program into kernels that sees to tiles between them.

    pending: tiles that can be made again where they are read; spilled: those that have memory; path: the host's loops
    and branches around what is being written; paths: where tiles got their memory, or their place in `pending`.
    """

    def __init__(self, func: Func) -> None:
        self.func = func
        self.taken = Taken(block_defs(func.body) | {p.name for p in func.params})
        self.dims = {s.results[0].name: (s.args[0].name, int(s.attr("axis"))) for s in statements(func.body)  # type: ignore
                     if isinstance(s, Op) and s.op == "dim" and isinstance(s.args[0], Var)}  # fmt: skip
        made_of = {s.op for s in statements(func.body) if isinstance(s, Op)}
        # What says the extents of results outside of the kernels that make them, wherever the program goes.
        told = {"take": "dim", "concat": "add"}
        wanted = {told[op] for op in made_of if op in told}
        self.asked = tuple([s for s in _always(func.body) if s.op in wanted and s.results[0].type == _INDEX])
        self.pending: dict[str, Op] = {}
        self.spilled: dict[str, _Kept] = {}
        self.path: tuple[int, ...] = ()
        self.paths: dict[str, tuple[int, ...]] = {}
        made = Counter(v.name for s in statements(func.body) for v in defs(s) if isinstance(v.type, TileType))
        self.changing = {name for name, count in made.items() if count > 1}
        self.shapes: dict[str, tuple[Operand, ...]] = {}  # declared extents of tiles at this level
        self.roots = views_of(func.body)
        self.created = {s.results[0].name for s in statements(func.body) if isinstance(s, Op) and s.op == "alloc"}

    @abstractmethod
    def _launch(self, body: Block, name: str, out: list[Stmt]) -> None:
        """A new kernel, and its call."""

    def _fresh(self, wish: str) -> str:
        return unused(wish, self.taken)

    def _has_memory(self, name: str) -> bool:
        """Whether a tile that changes was given its memory outside of this loop or branch, and stays there."""
        return name in self.changing and name in self.spilled and self.paths[name] != self.path

    def _declare(self, op: Op) -> None:
        """Remember the declared extents of a tile, for the tensor that may have to hold it."""
        typ = op.results[0].type
        assert isinstance(typ, TileType)
        if op.op == "load":
            self.shapes[op.results[0].name] = op.args[1 + typ.rank : 1 + 2 * typ.rank]
        elif op.op == "full":
            self.shapes[op.results[0].name] = op.args[1:]
        elif op.op == "arange":
            self.shapes[op.results[0].name] = op.args[2:]

    def _with_inputs(self, body: Block) -> Block:
        """`body` with the tiles it reads from outside made again, or loaded from where they were put."""
        wanted = [v for v in free_vars(body) if isinstance(v.type, TileType)]
        makers: dict[str, Block] = {}
        for var in wanted:
            path = self.paths.get(var.name, ())
            if self.path[: len(path)] != path:
                raise unsupported(f"the tile `{source_name(var.name)}`, made in a loop or branch and read after it",
                                  body[0].loc, "store it into a tensor, and load it there")  # fmt: skip
            if var.name in self.spilled:
                makers[var.name] = tuple(self._reloaded(var, body[0].loc))
            elif var.name in self.pending:
                makers[var.name] = (self.pending[var.name],)
            else:
                raise unsupported(f"the tile `{source_name(var.name)}`, made in another part of the program",
                                  body[0].loc, "make it in the same in-core function")  # fmt: skip
        return with_makers(body, makers) if makers else body

    def _spill(self, var: Var, body: Block, out: list[Stmt]) -> Block:
        assert isinstance(var.type, TileType)
        if not always_makes(body, var):
            raise unsupported(f"the tile `{source_name(var.name)}`, made in a loop and read after it", body[0].loc,
                              "store it into a tensor, and load it there")  # fmt: skip
        return (*body, *self._kept(var, self._extents(var, body), body, out))

    def _kept(self, var: Var, extents: tuple[Operand, ...], body: Block, out: list[Stmt]) -> list[Stmt]:
        """What the kernel that makes a tile in `body` does to keep it."""
        loc = body[0].loc
        known = self.spilled.get(var.name)
        if known is None or not self._has_memory(var.name):
            known = self._new_memory(var, extents, body, out)
        elif known.extents != extents:
            raise unsupported(f"the tile `{source_name(var.name)}`, whose extents change in a loop or branch", loc,
                              "store it into a tensor, and load it there")  # fmt: skip
        zeros = tuple(Const(0, _INDEX) for _ in extents)
        kept: list[Stmt] = [Op("store", (), (var, known.memory, *zeros), (), (), loc)]
        for axis in range(len(extents)) if known.marks is not None else ():
            count = Var(self._fresh(f"{var.name}.count"), _INDEX)
            kept.append(Op("valid", (count,), (var,), (("axis", axis),), (), loc))
            kept.append(Op("setelem", (), (count, known.marks, Const(axis, _INDEX)), (), (), loc))  # type: ignore[arg-type]
        return kept

    def _new_memory(self, var: Var, extents: tuple[Operand, ...], body: Block, out: list[Stmt]) -> _Kept:
        """Memory for a tile of `body`; where the host does not know how much is valid, or that changes, marks."""
        loc = body[0].loc
        valid = None if var.name in self.changing else ValidExtents(body, self.dims, self._fresh, out).of(var)
        memory = self._memory(var, extents if valid is None else valid, loc, out)
        marks: Var | None = None
        if valid is None:  # the kernel says how much there is
            marks = Var(self._fresh(f"{var.name}.valid"), TensorType(i64, (len(extents),), "c"))
            out.append(Op("alloc", (marks,), (Const(len(extents), _INDEX),), (("dtype", i64),), (), loc))
        known = self.spilled[var.name] = _Kept(memory, extents, marks)
        self.paths[var.name] = self.path
        return known

    def _reloaded(self, var: Var, loc: Loc) -> list[Stmt]:
        """The statements that get a tile from where another kernel has put it."""
        known = self.spilled[var.name]
        memory, extents, marks = known.memory, known.extents, known.marks
        if marks is None:
            return [_load(var, memory, extents, loc)]
        assert isinstance(memory.type, TensorType)
        rank = len(extents)
        counts = [Var(self._fresh(f"{var.name}.count"), _INDEX) for _ in range(rank)]
        out: list[Stmt] = [Op("getelem", (n,), (marks, Const(k, _INDEX)), (), (), loc) for k, n in enumerate(counts)]
        layout = "c" if rank == 1 else "inner"
        part = Var(self._fresh(f"{var.name}.part"), TensorType(memory.type.dtype, (None,) * rank, layout))
        zeros = tuple(Const(0, _INDEX) for _ in extents)
        out.append(Op("view", (part,), (memory, *zeros, *counts), (("drop", ()),), (), loc))
        return [*out, _load(var, part, extents, loc)]

    def _settle_changed(self, written: Collection[str], later: Container[str], out: list[Stmt]) -> None:
        """Settle the loads that are read later from tensors that a kernel which writes others may change."""
        roots = {self._root(name) for name in written}
        for name, op in list(self.pending.items()) if roots else ():
            if op.op == "load" and name in later and isinstance(op.args[0], Var):
                source = self._root(op.args[0].name)
                # A tensor that the program makes shares memory with no other one.
                if source in roots or (source not in self.created and not roots <= self.created):
                    self._settle(op, out)

    def _forget_unread(self, later: Container[str]) -> None:
        """Forget what was made in this block and nothing reads later, where all is that could ask for it again."""
        unread = [n for n in self.pending if n not in later and n not in self.changing and self.paths[n] == self.path]
        for name in unread:
            del self.pending[name]

    def _root(self, tensor: str) -> str:
        """What a tensor is a view of."""
        while tensor in self.roots:
            tensor = self.roots[tensor]
        return tensor

    def _settle(self, op: Op, out: list[Stmt]) -> None:
        """Put a tile that can be made again into memory of its own: what it was loaded from may be overwritten."""
        var = op.results[0]
        del self.pending[var.name]
        body: Block = (op, *self._kept(var, self.shapes[var.name], (op,), out))
        self._launch(body, f"{self.func.name}_copy", out)

    def _memory(self, var: Var, extents: tuple[Operand, ...], loc: Loc, out: list[Stmt]) -> Var:
        """A new tensor for a tile."""
        assert isinstance(var.type, TileType)
        shape = tuple(int(e.value) if isinstance(e, Const) else None for e in extents)
        memory = Var(self._fresh(f"{var.name}.memory"), TensorType(var.type.dtype, shape, "c"))
        out.append(Op("alloc", (memory,), extents, (("dtype", var.type.dtype),), (), loc))
        self.created.add(memory.name)
        return memory

    def _extents(self, var: Var, body: Block) -> tuple[Operand, ...]:
        """The declared extents of a tile that a kernel makes."""
        found = shape_of((*self.asked, *body) if self.asked else body, var)
        if found is None or any(isinstance(e, Var) and e.name in block_defs(body) for e in found):
            raise unsupported(f"the tile `{source_name(var.name)}` of run-time extents between two kernels",
                              body[0].loc, "give its extents in pl.load, or store it into a tensor")  # fmt: skip
        return found


def _always(body: Block) -> Iterator[Op]:
    """The operations that run whichever way the program goes."""
    for s in body:
        if isinstance(s, Op):
            yield s
        elif isinstance(s, Scope):
            yield from _always(s.body)


def always_makes(body: Block, var: Var) -> bool:
    """Whether statements give a variable a value whichever way they go."""
    for s in body:
        if isinstance(s, Op) and var in s.results:
            return True
        if isinstance(s, If) and always_makes(s.then, var) and always_makes(s.orelse, var):
            return True
    return False


def _load(var: Var, memory: Var, extents: tuple[Operand, ...], loc: Loc) -> Op:
    zeros = tuple(Const(0, _INDEX) for _ in extents)
    return Op("load", (var,), (memory, *zeros, *extents), (), (), loc)
