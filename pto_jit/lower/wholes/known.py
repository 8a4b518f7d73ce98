# SPDX-License-Identifier: MIT
"""What is known of a function whose whole tensors are divided: what makes its variables, how many lines its tiles have,
and which parts of them read what others write."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from pto_jit.errors import Loc
from pto_jit.ir.nodes import Block, Const, Func, Op, Operand, Stmt, Var
from pto_jit.ir.types import TensorType, TileType
from pto_jit.ir.walk import TENSOR_VIEWS, def_counts, rename, statements, use_counts
from pto_jit.lower.groups.axes import GENERATED, is_reduction
from pto_jit.lower.names import BOOL, I64, Names, Scalars, index, source_name, with_own_regions
from pto_jit.lower.wholes.lines import STORES, Axis, Lines, root_of
from pto_jit.semantic.failures import DECLARED, EXTENT, VALID, Failure

_BLOCK = 32  # rows and columns of a product that are never divided
_SIZED = {"full": 1, "broadcast_to": 1, "reshape": 1, "arange": 2}
"""Operations that say extents, besides loads, with the place of the first one."""
_TOLD = GENERATED | {"load", "broadcast_to", "reshape", "histogram"}
"""Operations whose results are as long as they are told, along axes that their operands do not have."""


class Known:
    """assigned, uses: how often a variable is assigned and read; makers: what makes one that is assigned once; views:
    what a tensor is a view of; bounds: what numbers are at most that are computed for the host; names: those that the
    function has."""

    def __init__(self, func: Func) -> None:
        self.uses: Counter[str] = use_counts(func.body)
        self.assigned: Counter[str] = def_counts(func.body)
        self.names = Names(func)
        self.makers: dict[str, Op] = {}
        self.views: dict[str, Operand] = {}
        self.bounds: dict[str, int] = {}
        flat = [s for s in statements(func.body) if isinstance(s, Op)]
        self.add({r.name: s for s in flat for r in s.results if self.assigned[r.name] == 1})

    def add(self, makers: dict[str, Op]) -> None:
        """There are more of such variables."""
        self.makers |= makers
        self.views |= {name: op.args[0] for name, op in makers.items() if op.op in TENSOR_VIEWS}

    def replaced(self, old: Block, new: Block) -> None:
        """Statements take the place of others."""
        self.uses.update(use_counts(new))
        self.uses.subtract(use_counts(old))

    def again(self, ops: list[Op]) -> list[Op]:
        """The same operations, with results of other names."""
        names = {r.name: self.names.fresh(source_name(r.name), r.type).name for op in ops for r in op.results}
        out = [with_own_regions(op, self.names) for op in rename(tuple(ops), names) if isinstance(op, Op)]
        self.add({r.name: op for op in out for r in op.results})
        self.assigned.update(names.values())
        return out

    def reads_elsewhere(self, ops: list[Op], store: Op) -> bool:
        """Whether the tensor of a store is read by another view, of what may be the same rows, or for a product, whose
        blocks read what is stored by others."""
        written = store.args[1]
        root = root_of(written, self.views)
        read: set[str] = set()  # tiles that are made of it
        for op in ops:
            if op.op == "load" and root_of(op.args[0], self.views) == root:
                read.update(r.name for r in op.results)
            elif any(isinstance(a, Var) and a.name in read for a in op.args):
                if op.op == "dot" and not _is_short(op.results[0]):
                    return True
                read.update(r.name for r in op.results)
        return any(
            op.op in ("load", "take") and op.args[0] != written and root_of(op.args[0], self.views) == root
            and not self._are_other_rows(op.args[0], written)
            for op in ops
        )  # fmt: skip

    def _are_other_rows(self, a: Operand, b: Operand) -> bool:
        """Whether two views of a tensor are of rows that are known to be others."""
        made = [self.makers.get(v.name) for v in (a, b) if isinstance(v, Var)]
        rows: list[range] = []
        for op in made:
            if op is None or op.op != "view" or op.args[0] != made[0].args[0]:  # type: ignore[union-attr]
                return False
            first, count = op.args[1], op.args[1 + op.args[0].type.rank]  # type: ignore[union-attr]
            if not isinstance(first, Const) or not isinstance(count, Const):
                return False
            rows.append(range(int(first.value), int(first.value) + int(count.value)))
        return rows[0].stop <= rows[1].start or rows[1].stop <= rows[0].start

    def extent(
        self, lines: Lines, axis: Axis | None, ops: list[Op], scalars: Scalars, *, anywhere: bool = False
    ) -> Operand | None:
        """How many lines an axis has when it can be divided, or with `anywhere` always, if that is known: operations
        that make sure of it go to `scalars`.  Where nothing is loaded these are as many as generated tiles have."""
        if axis is None or (axis in lines.bound and not anywhere):
            return None
        if any(list(lines.axes(v).values()).count(axis) > 1 for op in ops for v in (*op.args, *op.results)):
            return None
        stores = [op for op in ops if op.op in STORES]
        if not anywhere and (
            any(lines.place(op.args[0], axis) is None for op in stores)
            or not self._apart(ops, lines, axis)
            or _repeats(ops, lines, axis, stores[0])
        ):
            return None
        declared: dict[Operand, tuple[Loc, int]] = {}  # with the place, and which axis it is there
        valid: dict[Operand, tuple[Loc, int]] = {}
        mine = Scalars(self.names, scalars.loc)
        said: list[Operand] = []
        for op in ops:
            k = lines.place(op.results[0], axis) if op.results else None
            if k is None:
                continue
            if op.op not in _TOLD and all(lines.place(a, axis) is None for a in op.args):
                return None  # a part of a tile, say: how much of it is valid is not that of any load here
            shape = op.results[0].type.shape  # type: ignore[union-attr]
            if shape[k] is not None:
                declared.setdefault(index(shape[k]), (op.loc, k))  # type: ignore[arg-type]
            if op.op == "load":
                rank = op.args[0].type.rank  # type: ignore[union-attr]
                offset, extent = op.args[1 + k], op.args[1 + rank + k]
                declared.setdefault(extent, (op.loc, k))
                some = extent if op.attr("pad") else self.valid(op.args[0], k, offset, extent, mine)
                valid.setdefault(some, (op.loc, k))
            elif op.op in _SIZED:
                extent = op.args[_SIZED[op.op]] if op.op == "arange" else op.args[_SIZED[op.op] + k]
                if op.op == "reshape":  # it has that of its operand, or is an error of another kind
                    said.append(extent)
                else:
                    declared.setdefault(extent, (op.loc, k))
        if not declared or any(extent not in declared for extent in said):
            return None
        if not valid:  # all of it is generated
            valid = dict([next(iter(declared.items()))])
        made: list[Stmt] = []
        for extent, (loc, k) in declared.items():
            if isinstance(extent, Var) and not self.is_natural(extent):
                self.check(made, "ge", extent, index(0), EXTENT, loc, axis=k)
        compared: set[tuple[Operand, Operand]] = set()
        for numbers, failure in ((declared, DECLARED), (valid, VALID)):
            for (a, _), (b, (loc, k)) in pairwise(numbers.items()):
                if (a, b) not in compared:
                    self.check(made, "eq", a, b, failure, loc, axis=k)
                compared.add((a, b))
        scalars.block += [*mine.block, *made]
        return next(iter(valid))

    def check(
        self, out: list[Stmt], op: str, a: Operand, b: Operand, failure: Failure, loc: Loc, **words: object
    ) -> None:
        """A comparison that has to hold, or the failure tells of its numbers."""
        ok = self.names.fresh("ok", BOOL)
        message, told = failure.assertion(**words)
        numbers = (a, b) if "{1}" in told else (a,)
        attrs = (("always", True), ("error", failure.error.__name__), ("message", message), ("told", told))
        out.append(Op(op, (ok,), (a, b), (), (), loc))
        out.append(Op("assert", (), (ok, *numbers), attrs, (), loc))

    def size(self, tensor: Operand, axis: int, scalars: Scalars) -> Operand:
        """How many elements a tensor has along an axis."""
        assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
        extent = tensor.type.shape[axis]
        if extent is not None:
            return index(extent)
        made = self.makers.get(tensor.name)
        if made is not None and made.op == "alloc":
            return made.args[axis]
        key = "dim", tensor, index(axis)
        if key not in scalars.known:
            scalars.known[key] = self.names.fresh("size")
            scalars.block.append(Op("dim", (scalars.known[key],), (tensor,), (("axis", axis),), (), scalars.loc))
        return scalars.known[key]

    def valid(self, tensor: Operand, axis: int, offset: Operand, extent: Operand, scalars: Scalars) -> Operand:
        """max(0, min(extent, size of the tensor - offset))."""
        assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
        maker = self.makers.get(extent.name) if isinstance(extent, Var) else None
        whole = maker is not None and maker.op == "dim" and maker.args[0] == tensor and maker.attr("axis") == axis
        made = self.makers.get(tensor.name)
        whole |= made is not None and made.op in ("alloc", "tensor_reshape") and (
            made.args[axis + (made.op == "tensor_reshape")] == extent)  # fmt: skip
        known = tensor.type.shape[axis]
        if offset == index(0) and (whole or (known is not None and index(known) == extent) or (
            made is not None and made.op == "view" and self._is_inside(made, axis, extent))):  # fmt: skip
            return extent
        left = scalars.op("sub", self.size(tensor, axis, scalars), offset, "left")
        valid = scalars.op("max", scalars.op("min", left, extent, "some"), index(0), "valid")
        self.bound(valid, self.most(extent))
        return valid

    def _is_inside(self, view: Op, axis: int, extent: Operand) -> bool:
        """Whether a view has so many lines along an axis, as `x[a:]`, `x[:-b]` and `x[a:-b]` do: max(size - a, 0)."""
        source = view.args[0]
        rank = source.type.rank  # type: ignore[union-attr]
        drop = view.attr("drop") or ()
        k = [k for k in range(rank) if k not in drop][axis]  # type: ignore[operator]
        offset = view.args[1 + k]
        if view.args[1 + rank + k] != extent or not isinstance(extent, Var):
            return False
        if offset == index(0) and self._is_size(extent, source, k):
            return True
        made = self.makers.get(extent.name)
        if made is None or made.op != "max" or made.args[1] != index(0):
            return False
        number, least, past = made.args[0], 0, offset == index(0)
        while isinstance(number, Var) and not self._is_size(number, source, k):
            less = self.makers.get(number.name)
            if less is None or less.op not in ("sub", "add"):
                return False
            number, by = less.args
            if isinstance(by, Const):
                least += int(by.value) if less.op == "sub" else -int(by.value)
            elif less.op == "sub" and by == offset and not past:
                past = True
            else:
                return False
        return isinstance(number, Var) and (least >= 0 if past else (
            isinstance(offset, Const) and 0 <= offset.value <= least))  # fmt: skip

    def _is_size(self, number: Operand, tensor: Operand, axis: int) -> bool:
        """Whether a number is how many elements a tensor has along an axis."""
        assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
        made = self.makers.get(tensor.name)
        if made is not None and made.op == "alloc" and made.args[axis] == number:
            return True
        maker = self.makers.get(number.name) if isinstance(number, Var) else None
        return maker is not None and maker.op == "dim" and maker.args[0] == tensor and maker.attr("axis") == axis

    def most(self, number: Operand) -> int | None:
        """What a number is at most, where that is known."""
        if isinstance(number, Const):
            return int(number.value)
        maker = self.makers.get(number.name)
        if maker is None or maker.op != "min":
            return self.bounds.get(number.name)
        return min((int(a.value) for a in maker.args if isinstance(a, Const)), default=None)

    def bound(self, number: Operand, most: int | None) -> None:
        """A number that is computed is at most so large."""
        if isinstance(number, Var) and most is not None:
            self.bounds[number.name] = most

    def is_natural(self, operand: Operand) -> bool:
        """Whether a number is known to be at least 0."""
        return self._is_natural(operand, set())

    def _is_natural(self, operand: Operand, seen: set[str]) -> bool:
        if isinstance(operand, Const):
            return int(operand.value) >= 0
        maker = self.makers.get(operand.name)
        if maker is None or operand.name in seen:
            return False
        seen.add(operand.name)
        sure = [self._is_natural(a, seen) for a in maker.args if a.type == I64]
        return maker.op == "dim" or (maker.op == "max" and any(sure)) or (
            maker.op in ("min", "add", "mul", "floordiv") and all(sure))  # fmt: skip

    def _apart(self, ops: list[Op], lines: Lines, axis: Axis) -> bool:
        """Whether parts read and write other elements: what is written lies in one tensor where it is read, if it is,
        or written again."""
        accesses = [op for op in ops if op.op in ("load", "take", *STORES)]
        for store in (op for op in accesses if op.op in STORES):
            tensor, rank = store.args[1], store.args[1].type.rank  # type: ignore[union-attr]
            root = root_of(tensor, self.views)
            for other in accesses:
                at = 1 if other.op in STORES else 0
                if other is store or root_of(other.args[at], self.views) != root:
                    continue
                if other.op == "take":
                    return False
                tile = other.args[0] if other.op in STORES else other.results[0]
                if other.args[at] != tensor or other.args[at + 1 : at + 1 + rank] != store.args[2 : 2 + rank]:
                    return False
                if lines.place(tile, axis) != lines.place(store.args[0], axis):
                    return False
        return True


def _is_short(tile: Var) -> bool:
    """Whether one block computes a product."""
    assert isinstance(tile.type, TileType)
    return all(n is not None and n <= _BLOCK for n in tile.type.shape)


def _repeats(ops: list[Op], lines: Lines, axis: Axis, store: Op) -> bool:
    """Whether parts along an axis would reduce as much as they store, each of them the same."""
    stored = store.args[0]
    places = list(lines.axes(stored))
    last = lines.place(stored, axis) == places[-1]
    return any(
        is_reduction(op) and lines.place(op.args[0], axis) is None
        and (last or len(lines.axes(op.args[0])) >= len(places))
        for op in ops
    )  # fmt: skip
