# SPDX-License-Identifier: MIT
"""Loads of blocks of rank 3 that are tiles of rank 2 once their leading axes are one, and stores of tiles of rank 2 as
rows of such a block: of a tensor of rank 2 over the same memory.

Before::

    %x = tload %list[%i, 0, 0] [%n, 4, 8]          // whole rows of a contiguous tensor
    %y = treshape %x, [%m, 8]

After::

    %d = sdim %list {axis=0}
    %rows = smul %d, 4
    %flat = treshape %list, [%rows, 8]
    %at = smul %i, 4
    %wanted = smul %n, 4
    sassert %wanted == %m                          // unless that is known: %n = a - b, %m = 4 * a - 4 * b
    %y = tload %flat[%at, 0] [%m, 8]

Before::

    %y = treshape %x, [%n, 1, 8]                   // %x has %n rows of 8
    tstore %y, %list[%i, 0, 0]                     // rows of a contiguous tensor

After::

    %d = sdim %list {axis=0}
    %flat = treshape %list, [%d, 8]
    tstore %x, %flat[%i, 0]
"""

from __future__ import annotations

from collections import Counter
from math import prod

from pto_jit.dtypes import bool_, i64
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Attr, Block, Const, Func, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import block_defs, defs, map_blocks, statements, uses
from pto_jit.lower.dependence.values import NONE, numbers_of
from pto_jit.lower.names import unused
from pto_jit.semantic.failures import RESHAPE
from pto_jit.slotted import replace
from pto_jit.targets.cuda.loops import writes
from pto_jit.targets.cuda.shapes import shape_of

_INDEX = ScalarType(i64)
_ZERO = Const(0, _INDEX)
OTHER_SIZE = f"{RESHAPE.code}: reshape to another number of elements"


def merge_leading_axes(func: Func) -> Func:
    """Rewrite the loads of a flat function that a reshape alone reads, and the reshapes that a store alone reads."""
    if not any(_is_high(s) or _is_row_by_row(s) for s in statements(func.body)):
        return func
    readers: dict[str, int] = {}
    for s in statements(func.body):
        for v in uses(s):
            readers[v.name] = readers.get(v.name, 0) + 1
    merger = _Merger(func, block_defs(func.body) | {p.name for p in func.params}, readers)
    return replace(func, body=map_blocks(func.body, merger.block))


def _is_high(stmt: Stmt) -> bool:
    """A load of a tile of rank 3 or more."""
    return isinstance(stmt, Op) and stmt.op == "load" and not stmt.attr("pad") and stmt.results[0].type.rank > 2  # type: ignore[union-attr]


def _is_row_by_row(stmt: Stmt) -> bool:
    """A reshape of a tile of several rows that gives each row axes of extent 1."""
    if not isinstance(stmt, Op) or stmt.op != "reshape" or not isinstance(stmt.args[0].type, TileType):
        return False
    old, new = stmt.args[0].type.shape, stmt.results[0].type.shape  # type: ignore[union-attr]
    return len(old) == 2 < len(new) and old[0] != 1 != old[1] and [n for n in new[1:] if n != 1] == [old[1]] != [None]


class _Merger:
    def __init__(self, func: Func, taken: set[str], readers: dict[str, int]) -> None:
        made = [v.name for s in statements(func.body) for v in defs(s)]
        self.body = func.body
        self.changing = {name for name, times in Counter(made).items() if times > 1}
        self.numbers = numbers_of(func, self.changing)
        self.taken = taken
        self.readers = readers

    def block(self, block: Block) -> Block:
        out: list[Stmt] = list(block)
        changed = False
        for load in [s for s in block if _is_high(s)]:
            assert isinstance(load, Op)
            at = out.index(load)
            reader = next((k for k in range(at + 1, len(out)) if load.results[0] in uses(out[k])), None)
            if reader is None or self.readers[load.results[0].name] != 1:
                continue
            reshape = out[reader]
            if any(writes(s) for between in out[at + 1 : reader] for s in statements((between,))):
                continue
            if isinstance(reshape, Op) and reshape.op == "reshape":
                new = self._merged(load, reshape)
                if new is not None:
                    out[reader : reader + 1] = new
                    del out[at]
                    changed = True
        for reshape in [s for s in block if _is_row_by_row(s)]:
            assert isinstance(reshape, Op)
            result = reshape.results[0]
            store = next((s for s in out if isinstance(s, Op) and s.op == "store" and s.args[0] == result), None)
            if store is None or self.readers[result.name] != 1 or reshape.args[0].name in self.changing:  # type: ignore
                continue
            new = self._stored(reshape, store)
            if new is not None:
                at = out.index(store)
                out[at : at + 1] = new
                out.remove(reshape)
                changed = True
        return tuple(out) if changed else block

    def _merged(self, load: Op, reshape: Op) -> list[Stmt] | None:
        """The statements that take the place of both; None where rows of the result are not rows of the tensor."""
        tensor, result = load.args[0], reshape.results[0]
        assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType) and isinstance(result.type, TileType)
        rank, inner = tensor.type.rank, tensor.type.shape[1:]
        offsets, extents = load.args[1 : 1 + rank], load.args[1 + rank : 1 + 2 * rank]
        if tensor.type.layout != "c" or None in inner or result.type.rank > 2:
            return None
        size = prod(n for n in inner if n is not None)
        width = result.type.shape[1] if result.type.rank == 2 else 1
        whole = all(isinstance(e, Const) and e.value == n and o == _ZERO
                    for o, e, n in zip(offsets[1:], extents[1:], inner, strict=True))  # fmt: skip
        if not whole or width is None or size % width:
            return None
        count, out = Const(size // width, _INDEX), _Statements(self, load.loc)
        rows = out.number("mul", out.first_extent(tensor), count)
        shape = (rows,) if result.type.rank == 1 else (rows, Const(width, _INDEX))
        known = None if tensor.type.shape[0] is None else tensor.type.shape[0] * (size // width)
        kind = TensorType(tensor.type.dtype, (known, width)[: len(shape)], "c")
        flat = Var(self.fresh(f"{tensor.name}.flat"), kind)
        out.append("tensor_reshape", flat, tensor, *shape)
        wanted, given = out.number("mul", extents[0], count), reshape.args[1]
        known = self.numbers.of(wanted)
        if wanted != given and (known is None or known != self.numbers.of(given)):
            same = Var(self.fresh("same"), ScalarType(bool_))
            out.append("eq", same, wanted, given)
            attrs = (("always", True), ("error", "LaunchError"), ("message", OTHER_SIZE), ("told", ": {0} rows to {1}"))
            out.append("assert", None, same, wanted, given, attrs=attrs)
        first = offsets[0] if offsets[0] == _ZERO else out.number("mul", offsets[0], count)
        places = (first, _ZERO)[: len(shape)]
        out.statements.append(Op("load", (result,), (flat, *places, *reshape.args[1:]), (), (), reshape.loc))
        return out.statements

    def _stored(self, reshape: Op, store: Op) -> list[Stmt] | None:
        """The statements that take the place of both; None where a row of the tile is not a row of the tensor."""
        tile, tensor = reshape.args[0], store.args[1]
        assert isinstance(tile, Var) and isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
        shape = reshape.results[0].type.shape  # type: ignore[union-attr]
        known = shape_of(self.body, tile)
        if (
            tensor.type.layout != "c"
            or tensor.type.shape[1:] != shape[1:]
            or any(o != _ZERO for o in store.args[3:])
            or known is None
            or known[0] != reshape.args[1]
        ):
            return None
        out = _Statements(self, store.loc)
        rows, width = out.first_extent(tensor), prod(n for n in shape[1:] if n is not None)
        flat = Var(self.fresh(f"{tensor.name}.flat"), TensorType(tensor.type.dtype, (tensor.type.shape[0], width), "c"))
        out.append("tensor_reshape", flat, tensor, rows, Const(width, _INDEX))
        out.append("store", None, tile, flat, store.args[2], _ZERO)
        return out.statements

    def fresh(self, wish: str) -> str:
        return unused(wish, self.taken)


class _Statements:
    def __init__(self, merger: _Merger, loc: Loc) -> None:
        self.merger = merger
        self.loc = loc
        self.statements: list[Stmt] = []

    def append(self, op: str, result: Var | None, *args: Operand, attrs: tuple[tuple[str, Attr], ...] = ()) -> None:
        made = Op(op, () if result is None else (result,), args, attrs, (), self.loc)
        if result is not None and result.type == _INDEX:
            self.merger.numbers.record(made, NONE)
        self.statements.append(made)

    def first_extent(self, tensor: Var) -> Operand:
        """How many rows a tensor has: a constant where its type says it."""
        assert isinstance(tensor.type, TensorType)
        known = tensor.type.shape[0]
        return self.number("dim", tensor, attrs=(("axis", 0),)) if known is None else Const(known, _INDEX)

    def number(self, op: str, *args: Operand, attrs: tuple[tuple[str, Attr], ...] = ()) -> Operand:
        """A number of 64 bits; constants are folded."""
        if op == "mul" and all(isinstance(a, Const) for a in args):
            return Const(prod(int(a.value) for a in args), _INDEX)  # type: ignore[union-attr]
        result = Var(self.merger.fresh("rows"), _INDEX)
        self.append(op, result, *args, attrs=attrs)
        return result
