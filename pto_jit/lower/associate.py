# SPDX-License-Identifier: MIT
"""Compute chains of products in the order that takes the fewest multiply-adds (`fastmath=True`).

Before::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,64x8,f32>, %b: !pto.memref<gm,8x64,f32>, %c: !pto.memref<gm,64x8,f32>) {
      %p = tload %x[0, 0] [64, 8] : !pto.tile<64x8xf32>
      %q = tload %b[0, 0] [8, 64] : !pto.tile<8x64xf32>
      %r = tload %c[0, 0] [64, 8] : !pto.tile<64x8xf32>
      %s = tdot %p, %q : !pto.tile<64x64xf32>
      %t = tdot %s, %r : !pto.tile<64x8xf32>
      tstore %t, %x[0, 0]
      return
    }

After::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,64x8,f32>, %b: !pto.memref<gm,8x64,f32>, %c: !pto.memref<gm,64x8,f32>) {
      %p = tload %x[0, 0] [64, 8] : !pto.tile<64x8xf32>
      %q = tload %b[0, 0] [8, 64] : !pto.tile<8x64xf32>
      %r = tload %c[0, 0] [64, 8] : !pto.tile<64x8xf32>
      %s = tdot %q, %r : !pto.tile<8x8xf32>
      %t = tdot %p, %s : !pto.tile<64x8xf32>
      tstore %t, %x[0, 0]
      return
    }

The order is found by dynamic programming (Godbole, "On Efficient Computation of Matrix Chain Products", 1973), in which
a product that an enclosing loop does not change counts once for the iterations of the loop.  Sums are associated in
another way, which is what `fastmath` allows: the bound of the error, k eps |a| |b| |c| for sums of k products, stays
the same, its value does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product

from pto_jit.errors import Loc
from pto_jit.ir.nodes import Block, Const, For, Func, Module, Op, Stmt, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import block_defs, blocks, def_counts, map_funcs, statements, use_counts, with_blocks
from pto_jit.lower.decisions import Decision
from pto_jit.lower.invariant import Invariants
from pto_jit.lower.names import source_name
from pto_jit.slotted import frozen, replace

ITERATIONS = 16
"""Of a loop whose number of iterations is not known."""

EXTENTS = (1, 32, 1024)
"""An extent that is not known may be any of these: for none of them more may be computed than before.  The order is the
best one for the second."""

GAIN = 1.25
"""An order is worth another rounding if it takes fewer multiply-adds by this factor."""

Order = int | tuple["Order", "Order"]
"""How a chain is computed: one of its matrices by its place, or the product of two parts."""


def associate_products(module: Module, decisions: list[Decision], *, hoists: bool = True) -> Module:
    """Give the chains of products of f32 and f64 the order that takes least; each one changed is a `Decision`.

    hoists: what loops do not change leaves them later, and is computed once for their iterations.
    """

    def transform(func: Func) -> Func:
        if sum(isinstance(s, Op) and s.op == "dot" for s in statements(func.body)) < 2:
            return func
        body = _Associator(func, module, decisions, hoists).block(func.body, None)
        return func if body is func.body else replace(func, body=body)

    return map_funcs(module, transform)


@frozen(eq=False)
class _Chain:
    """A product of several matrices: these, the operations from the first to the last, and the order in which they are
    computed; `places`: where each matrix but the first is multiplied with those before it."""

    matrices: tuple[Var, ...]
    ops: tuple[Op, ...]
    order: Order
    places: tuple[Loc, ...]

    @property
    def extents(self) -> tuple[int | None, ...]:
        """Rows of the first, what neighbours have in common, columns of the last."""
        shapes = [m.type.shape for m in self.matrices if isinstance(m.type, TileType)]
        between = [a[1] if a[1] is not None else b[0] for a, b in pairwise(shapes)]
        return (shapes[0][0], *between, shapes[-1][1])


class _Associator:
    def __init__(self, func: Func, module: Module, decisions: list[Decision], hoists: bool) -> None:
        self.invariants = Invariants(func, module)
        self.decisions = decisions
        self.hoists = hoists
        self.uses, self.counts = use_counts(func.body), def_counts(func.body)

    def block(self, block: Block, loop: For | None) -> Block:
        """A block that is the body of a loop, or in one, or in none."""
        result: list[Stmt] = []
        for stmt in block:
            inner = blocks(stmt)
            around = stmt if isinstance(stmt, For) else loop
            result.append(with_blocks(stmt, tuple(self.block(b, around) for b in inner)) if inner else stmt)
        changed = any(a is not b for a, b in zip(block, result, strict=True))
        for chain in list(self._chains(block)):
            own = loop if loop is not None and loop.body is block else None
            new = self._better(chain, own)
            if new is not None:
                last = chain.ops[-1]
                at = next(k for k, s in enumerate(result) if s is last)
                result[at : at + 1] = _written(chain, new)
                result = [s for s in result if not any(s is op for op in chain.ops)]
                changed = True
        return tuple(result) if changed else block

    def _chains(self, block: Block) -> Iterator[_Chain]:
        """The chains of three or more matrices whose products are all operations of a block."""
        made = {s.results[0].name: s for s in block if isinstance(s, Op) and self._is_plain(s)}
        inner = {a.name for op in made.values() for a in op.args[:2] if isinstance(a, Var) and self._is_part(a, made)}
        at = {id(s): k for k, s in enumerate(block)}
        for name, op in made.items():
            if name in inner:
                continue
            chain = self._chain(op, made)
            first = min(at[id(one)] for one in chain.ops)
            between = block_defs(block[first : at[id(op)]])
            fixed = all(m.name not in between or self.counts[m.name] == 1 for m in chain.matrices)
            if len(chain.matrices) > 2 and fixed:
                yield chain

    def _chain(self, last: Op, made: Mapping[str, Op]) -> _Chain:
        """The chain that ends with a product."""
        matrices: list[Var] = []
        ops: list[Op] = []
        places: dict[int, Loc] = {}

        def order(op: Op) -> Order:
            sides: list[Order] = []
            for k, arg in enumerate(op.args[:2]):
                assert isinstance(arg, Var)
                if k == 1:
                    places[len(matrices)] = op.loc
                if self._is_part(arg, made):
                    sides.append(order(made[arg.name]))
                else:
                    sides.append(len(matrices))
                    matrices.append(arg)
            ops.append(op)
            return sides[0], sides[1]

        found = order(last)
        return _Chain(tuple(matrices), tuple(ops), found, tuple(places[k] for k in range(1, len(matrices))))

    def _is_plain(self, op: Op) -> bool:
        """Whether an operation is a product of two matrices of the dtype in which it is summed."""
        tiles = [v.type for v in (*op.results, *op.args[:2])]
        if op.op != "dot" or self.counts[op.results[0].name] != 1:
            return False
        dtypes = {t.dtype.name for t in tiles if isinstance(t, TileType) and t.rank == 2}
        return len(dtypes) == 1 and dtypes <= {"f32", "f64"} and all(isinstance(t, TileType) for t in tiles)

    def _is_part(self, matrix: object, made: Mapping[str, Op]) -> bool:
        """Whether a matrix is a product that nothing else reads."""
        op = made.get(matrix.name) if isinstance(matrix, Var) else None
        return op is not None and len(op.args) == 2 and self.uses[op.results[0].name] == 1

    def _better(self, chain: _Chain, loop: For | None) -> Order | None:
        """An order of a chain, in this loop, that takes fewer multiply-adds; None: there is none."""
        if chain.extents[1:-1].count(None):
            return None
        alike = [False] * len(chain.matrices)
        if self.hoists and loop is not None and not loop.checked:
            movable = self.invariants.of(loop)
            inside = block_defs(loop.body)
            alike = [m.name in movable or m.name not in inside for m in chain.matrices]
        cost = [_Cost(extents, alike, _iterations(loop)) for extents in _possible(chain.extents)]
        new = cost[len(cost) // 2].best
        before, after = [c.of(chain.order) for c in cost], [c.of(new) for c in cost]
        middle = len(cost) // 2
        if new == chain.order or after[middle] * GAIN > before[middle]:
            return None
        if any(b > a for a, b in zip(before, after, strict=True)):
            return None
        names = [source_name(m.name) for m in chain.matrices]
        share = f"{after[middle] / before[middle]:.2g} of the multiply-adds"
        reason = f"fastmath: {_text(chain.order, names)} is computed as {_text(new, names)}: {share}"
        self.decisions.append(Decision("schedule", (), True, reason, chain.ops[-1].loc))
        return new


class _Cost:
    """Multiply-adds of the products of a chain of matrices with these extents; those of matrices that are `alike` in
    all iterations of a loop are computed once for them."""

    def __init__(self, extents: Sequence[int], alike: Sequence[bool], iterations: int) -> None:
        self.extents, self.alike, self.iterations = extents, alike, iterations
        self._best: dict[tuple[int, int], tuple[float, Order]] = {}

    def _one(self, first: int, middle: int, end: int) -> float:
        once = self.iterations if all(self.alike[first:end]) else 1
        return self.extents[first] * self.extents[middle] * self.extents[end] / once

    @property
    def best(self) -> Order:
        """The order that takes least."""
        return self._least(0, len(self.alike))[1]

    def _least(self, first: int, end: int) -> tuple[float, Order]:
        if end - first == 1:
            return 0.0, first
        known = self._best.get((first, end))
        if known is None:
            ways: list[tuple[float, Order]] = []
            for middle in range(first + 1, end):
                (left, one), (right, other) = self._least(first, middle), self._least(middle, end)
                ways.append((left + right + self._one(first, middle, end), (one, other)))
            known = self._best[first, end] = min(ways, key=lambda way: way[0])
        return known

    def of(self, order: Order) -> float:
        """What an order takes."""
        return self._of(order)[0]

    def _of(self, order: Order) -> tuple[float, int, int]:
        if isinstance(order, int):
            return 0.0, order, order + 1
        (left, first, middle), (right, _, end) = map(self._of, order)
        return left + right + self._one(first, middle, end), first, end


def _iterations(loop: For | None) -> int:
    if loop is None:
        return 1
    if all(isinstance(bound, Const) for bound in (loop.start, loop.stop, loop.step)):
        return max(1, len(range(*(int(bound.value) for bound in (loop.start, loop.stop, loop.step)))))  # type: ignore
    return ITERATIONS


def _possible(extents: Sequence[int | None]) -> list[tuple[int, ...]]:
    """The extents of a chain, for all that those which are not known may be; the usual ones in the middle."""
    return list(product(*(EXTENTS if e is None else (e,) for e in extents)))


def _written(chain: _Chain, order: Order) -> list[Op]:
    """A chain in another order, under the names that it had."""
    last = chain.ops[-1]
    names = iter([op.results[0].name for op in chain.ops[:-1]])
    written: list[Op] = []

    def write(order: Order, *, whole: bool) -> tuple[Var, int]:
        """The variable of a part, and the number of the matrix behind it."""
        if isinstance(order, int):
            return chain.matrices[order], order + 1
        left, middle = write(order[0], whole=False)
        right, end = write(order[1], whole=False)
        assert isinstance(left.type, TileType) and isinstance(right.type, TileType)
        loc = chain.places[middle - 1]
        if whole:
            written.append(replace(last, args=(left, right, *last.args[2:]), loc=loc))
            return last.results[0], end
        result = Var(next(names), TileType(left.type.dtype, (left.type.shape[0], right.type.shape[1])))
        written.append(Op("dot", (result,), (left, right), loc=loc))
        return result, end

    write(order, whole=True)
    return written


def _text(order: Order, names: Sequence[str]) -> str:
    """An order, with parentheses."""
    if isinstance(order, int):
        return names[order]
    return " @ ".join(_text(part, names) if isinstance(part, int) else f"({_text(part, names)})" for part in order)
