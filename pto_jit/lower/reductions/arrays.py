# SPDX-License-Identifier: MIT
"""Tensors that a loop accumulates into at many places: `y[j] += x[i, j]` in a loop over i around one over j.

No index depends on the loop's variable, so every iteration updates the same elements.  When each update combines an
element with something by one operation, and nothing else happens to the tensor in the loop, a chunk may work on
elements of its own, which start from the identity; the combine phase merges them element by element.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from pto_jit.dtypes import DType
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Block, For, Op, Operand, Stmt, Var
from pto_jit.ir.types import TensorType
from pto_jit.ir.walk import defs, rename, rewrite_block, uses
from pto_jit.lower.names import Names, index
from pto_jit.lower.reductions.accumulate import NoReduction, follow, identity
from pto_jit.lower.reductions.partials import TRUE, Emit, Partials, stored_in
from pto_jit.lower.reductions.places import Access, Subscripts
from pto_jit.semantic.rules import infer
from pto_jit.slotted import frozen


@frozen
class Array:
    """A tensor that a loop accumulates into by the operation `kind`.

    `fixed` are the indices of axes along which all updates are at one place; the others are kept whole.
    """

    base: str
    tensor: Var
    kind: str
    fixed: tuple[Operand | None, ...]
    accesses: tuple[Op, ...]
    views: tuple[Op, ...]  # of the tensor, made in the loop
    loc: Loc

    @property
    def dtype(self) -> DType:
        return self.tensor.type.dtype

    @property
    def kept(self) -> list[int]:
        return [axis for axis, at in enumerate(self.fixed) if at is None]


def find_arrays(subscripts: Subscripts, outer: dict[str, str]) -> list[Array]:
    """The tensors that every iteration of a loop accumulates into at many places."""
    loop, accesses = subscripts.loop, subscripts.accesses(outer)
    read = {a.base for a in accesses if not a.writes}
    varying: set[str] | None = None
    found: dict[str, Array] = {}
    for write in accesses:
        if not write.writes or write.key is not None or write.base not in read or write.base in found:
            continue
        if write.op.op not in ("setelem", "store"):
            continue
        varying = _varying(loop, subscripts.flat) if varying is None else varying
        if not any(isinstance(a, Var) and a.name in varying for a in write.op.args[1:]):
            mine = [a for a in accesses if a.base == write.base]
            with suppress(NoReduction):  # whether that is wrong is for the check of the promise to say
                found[write.base] = _array(loop, write, mine, subscripts)
    return list(found.values())


def _varying(loop: For, flat: list[Stmt]) -> set[str]:
    """Names whose values depend on the variable of a loop.  A loop inside that starts at one place starts there for
    all iterations, wherever it stops."""
    varying = {loop.var.name}
    while True:
        before = len(varying)
        for stmt in flat:
            read = (stmt.start, stmt.step) if isinstance(stmt, For) else uses(stmt)
            if any(isinstance(a, Var) and a.name in varying for a in read):
                varying.update(v.name for v in defs(stmt))
        if len(varying) == before:
            return varying


def _array(loop: For, write: Access, accesses: Sequence[Access], subscripts: Subscripts) -> Array:
    """What a loop does to one tensor; NoReduction when that is not to accumulate."""
    views = {
        s.results[0].name: s
        for s in subscripts.flat
        if isinstance(s, Op) and s.op == "view" and isinstance(s.args[0], Var) and s.args[0].name not in subscripts.made
    }
    mine: dict[str, Op] = {}
    tensors: set[Var] = set()
    for access in accesses:
        tensor = next(a for a in access.op.args if isinstance(a, Var) and isinstance(a.type, TensorType))
        view = views.get(tensor.name)
        if view is not None and subscripts.made[tensor.name] is view:
            mine[tensor.name] = view
            tensor = view.args[0]
            assert isinstance(tensor, Var)
        tensors.add(tensor)
    if len(tensors) != 1 or (tensor := tensors.pop()).name in subscripts.made:
        raise NoReduction("it is used here", write.op.loc)
    kind, fixed = _reduced(loop, tensor, accesses, mine, subscripts)
    return Array(write.base, tensor, kind, fixed, tuple(a.op for a in accesses), tuple(mine.values()), write.op.loc)


def _reduced(
    loop: For, tensor: Var, accesses: Sequence[Access], views: dict[str, Op], subscripts: Subscripts
) -> tuple[str, tuple[Operand | None, ...]]:
    """The operation of all updates, and the indices that all of them have in common."""
    assert isinstance(tensor.type, TensorType)
    tiles = any(a.op.op in ("load", "store") for a in accesses)
    wanted = ("load", "store") if tiles else ("getelem", "setelem")
    groups: dict[tuple[object, ...], list[Access]] = {}
    once = Counter(v.name for s in subscripts.flat for v in defs(s))
    indices: list[tuple[Operand, ...]] = []
    for access in accesses:
        op = access.op
        if op.op not in wanted or op.attr("pad"):
            raise NoReduction("it is used here", op.loc)
        at = 1 if access.writes else 0
        source = op.args[at]
        assert isinstance(source, Var) and isinstance(source.type, TensorType)
        own = op.args[at + 1 : at + 1 + source.type.rank]
        view = views.get(source.name)
        spelled = () if view is None else (*view.args[1:], *view.attrs)
        if any(isinstance(i, Var) and once[i.name] > 1 for i in (*own, *spelled)):
            raise NoReduction("an index is assigned more than once", op.loc)
        indices.append(own)
        groups.setdefault((*spelled, *own), []).append(access)
    kinds: set[str] = set()
    for group in groups.values():
        reads = [a.op for a in group if not a.writes]
        here = {id(a.op) for a in group}
        if not reads or len(reads) == len(group):
            raise NoReduction("it is used here", group[0].op.loc)
        seeds = [op.results[0].name for op in reads]
        found = follow(
            loop.body, seeds, reads[0].results[0].type,
            lambda op, here=here: id(op) in here and bool(op.results),
            lambda op, here=here: id(op) in here and not op.results,
        )  # fmt: skip
        kinds.add(found.kind)
    if len(kinds) != 1:
        raise NoReduction("it is combined by several operations", loop.loc)
    whole = tiles or bool(views)
    fixed = tuple(None if whole else _common(indices, axis, subscripts) for axis in range(tensor.type.rank))
    return kinds.pop(), fixed


def _common(indices: Sequence[tuple[Operand, ...]], axis: int, subscripts: Subscripts) -> Operand | None:
    """The index that all accesses have along an axis, if it is known before the loop."""
    found = {own[axis] for own in indices}
    if len(found) != 1:
        return None
    (only,) = found
    return None if isinstance(only, Var) and only.name in subscripts.made else only


@frozen
class Copies:
    """A copy of the elements per chunk; `window` is the one of a chunk, inside it."""

    array: Array
    memory: Var
    extents: tuple[Operand, ...]
    window: Var
    views: tuple[tuple[str, Var], ...]  # of the window, by the names of those of the tensor

    @property
    def loc(self) -> Loc:
        return self.array.loc

    @property
    def name(self) -> str:
        return self.array.base

    def _slot(self, e: Emit, at: Operand, result: Var | None = None) -> Var:
        zeros = [index(0)] * len(self.extents)
        return e.op("view", self.memory, at, *zeros, index(1), *self.extents, drop=(0,), result=result,
                    hint=f"{self.memory.name}_slot")  # fmt: skip

    def _load(self, e: Emit, tensor: Var) -> Var:
        return e.op("load", tensor, *[index(0)] * len(self.extents), *self.extents, hint=self.array.base)

    def _store(self, e: Emit, tile: Var, tensor: Var) -> None:
        e.do("store", tile, tensor, *[index(0)] * len(self.extents))

    def start(self, e: Emit, at: Operand) -> None:
        """The identity, in every element."""
        empty = e.op("full", identity(self.array.kind, self.array.dtype), *self.extents)
        self._store(e, empty, self._slot(e, at, self.window))

    def save(self, e: Emit, at: Operand) -> None:
        """Nothing: the elements are where they stay."""

    def merge(self, e: Emit, left: Operand, right: Operand) -> None:
        """Combine the copy `right` into the copy `left`."""
        to = self._slot(e, left)
        both = e.op(self.array.kind, self._load(e, to), self._load(e, self._slot(e, right)))
        self._store(e, both, to)

    def fold(self, e: Emit, at: Operand) -> None:
        """Combine a copy into the tensor."""
        to = self.array.tensor
        if len(self.array.kept) < len(self.array.fixed):
            rest = iter(self.extents)
            starts = [index(0) if i is None else i for i in self.array.fixed]
            sizes = [next(rest) if i is None else index(1) for i in self.array.fixed]
            drop = tuple(axis for axis, i in enumerate(self.array.fixed) if i is not None)
            to = e.op("view", to, *starts, *sizes, drop=drop, hint=f"{to.name}_part")
        both = e.op(self.array.kind, self._load(e, to), self._load(e, self._slot(e, at)))
        self._store(e, both, to)

    def moved(self, op: Op) -> Op:
        """An access of the tensor, or a view of it, as one of the chunk's copy."""
        views = dict(self.views)
        if op.op == "view":
            return Op("view", (views[op.results[0].name],), (self.window, *op.args[1:]), op.attrs, (), op.loc)
        at = 0 if op.results else 1
        source = op.args[at]
        assert isinstance(source, Var)
        if source.name in views:
            return Op(op.op, op.results, (*op.args[:at], views[source.name], *op.args[at + 1 :]), op.attrs, (), op.loc)
        rank = len(self.array.fixed)
        indices = op.args[at + 1 : at + 1 + rank]
        kept = [indices[axis] for axis in self.array.kept]
        args = (*op.args[:at], self.window, *kept, *op.args[at + 1 + rank :])
        return Op(op.op, op.results, args, op.attrs, (), op.loc)


def extents_of(array: Array, e: Emit) -> tuple[Operand, ...]:
    """The extents of the axes that are kept whole."""
    assert isinstance(array.tensor.type, TensorType)
    shape = array.tensor.type.shape
    return tuple(
        e.op("dim", array.tensor, axis=axis, hint=f"{array.base}_d{axis}") if n is None else index(n)
        for axis in array.kept
        for n in (shape[axis],)
    )


def copies_of(array: Array, extents: tuple[Operand, ...], count: Operand, e: Emit, names: Names) -> Copies:
    """Memory for `count` copies."""
    memory = e.op("alloc", count, *extents, dtype=array.dtype, hint=f"{array.base}_parts")
    zeros = (index(0),) * (1 + len(extents))
    (type,) = infer("view", (memory, *zeros, index(1), *extents), {"drop": (0,)})
    window = names.fresh(f"{array.base}_part", type)
    views: list[tuple[str, Var]] = []
    for op in array.views:
        (type,) = infer("view", (window, *op.args[1:]), dict(op.attrs))
        views.append((op.results[0].name, names.fresh(op.results[0].name, type)))
    return Copies(array, memory, extents, window, tuple(views))


def on_partials(body: Block, partials: list[Partials], copies: list[Copies], names: Names) -> Block:
    """A loop's body on the variables of a chunk, and its copies of tensors."""
    moved = {id(op): one for one in copies for op in (*one.array.accesses, *one.array.views)}
    renamed: dict[str, str] = {}
    reads: dict[int, Var] = {}
    writes: dict[int, Var] = {}
    flags: dict[int, list[Var]] = {}
    for one in partials:
        place = one.state.place
        if place is None:
            renamed.update({old.name: new.name for old, new in zip(one.state.vars, one.vars, strict=True)})
        else:
            reads.update((id(op), one.vars[0]) for op in place.reads)
            writes.update((id(op), one.vars[0]) for op in place.writes)
        if one.flag is not None:
            for mark in one.state.updates:
                flags.setdefault(mark, []).append(one.flag)

    def visit(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Op):
            return None
        new: Block = (stmt,)
        if id(stmt) in reads:
            new = (Op("copy", stmt.results, (reads[id(stmt)],), (), (), stmt.loc),)
        elif id(stmt) in moved:
            new = (moved[id(stmt)].moved(stmt),)
        elif id(stmt) in writes:
            new = stored_in(writes[id(stmt)], stmt.args[0], Emit(names, stmt.loc))
        marks = [Op("copy", (flag,), (TRUE,), (), (), stmt.loc) for flag in flags.get(id(stmt), ())]
        return None if new[0] is stmt and not marks else (*new, *marks)

    return rename(rewrite_block(body, visit), renamed)
