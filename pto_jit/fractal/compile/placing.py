# SPDX-License-Identifier: MIT
"""Where the rows of what the cells of a batch read are: in a ring, behind one, or gathered in a buffer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pto_jit.fractal.compile.batching import row_extents
from pto_jit.fractal.compile.expr import Expr
from pto_jit.fractal.compile.inputs import Product, first
from pto_jit.fractal.compile.lists import Access, Array, Choose, Filled, ReadLeaf, WriteLeaf, replaced
from pto_jit.fractal.compile.nest import depends_on
from pto_jit.fractal.compile.packing import Packed, Packing
from pto_jit.fractal.compile.sequential import name_of, variable_of
from pto_jit.fractal.compile.wavefront import Planes
from pto_jit.ir.nodes import Op, Var
from pto_jit.slotted import replace


class Placing(Packing):
    """A nest whose cells are rows; `alone`: by a read, the product before the nest that is its only use."""

    alone: dict[str, Product]

    def shared(self, planes: Planes) -> set[str]:
        """The reads that do not differ from cell to cell of a batch."""
        chosen = {self.nest.symbols[k] for k in planes.group}
        return {
            str(getattr(variable_of(i.value), "name", ""))
            for i in self.nest.cell
            if isinstance(i, ReadLeaf) and depends_on(i.read, self.nest.symbols) <= chosen
        }

    def concatenated(self, shared: set[str]) -> dict[str, list[str]]:
        """Concatenations along the last axis of reads that have no other use: they are gathered side by side."""
        reads = {
            name_of(i.value): i.leaf
            for i in self.nest.cell
            if isinstance(i, ReadLeaf) and len(row_extents(i.leaf.extents)) == 1 and i.leaf.extents
        }
        count = Counter(a.name for i in self.nest.cell if isinstance(i, Op) for a in i.args if isinstance(a, Var))
        count.update(v.name for i in self.nest.cell if isinstance(i, WriteLeaf) for v in [variable_of(i.value)])  # type: ignore[union-attr]
        found: dict[str, list[str]] = {}
        for item in self.nest.cell:
            if not isinstance(item, Op) or item.op != "concat":
                continue
            names = [a.name for a in item.args if isinstance(a, Var)]
            (result,) = item.results
            last = item.attr("axis") == len(self.e.extents_of(result) or ()) - 1
            if last and all(n in reads and n not in shared and count[n] == 1 for n in names):
                found[result.name] = names
        return found

    def lending(self, planes: Planes, shared: set[str]) -> dict[str, Choose]:
        """Reads of the rows of another batch or, for some groups, of inputs: these are gathered behind the ring."""
        chosen = {self.nest.symbols[k] for k in planes.group}
        mapping = self.eliminated(planes)
        concatenated = {name for parts in self.concatenated(shared).values() for name in parts}
        found: dict[str, Choose] = {}
        rings: set[int] = set()
        for item in self.nest.cell:
            if not isinstance(item, ReadLeaf) or not item.leaf.extents or name_of(item.value) in concatenated | shared:
                continue
            choice = first(replaced(item.read, mapping), chosen)
            at = self.in_place(planes, choice.otherwise, self.own(planes)) if choice is not None else None
            if choice is not None and at is not None and id(at[0]) not in rings:
                rings.add(id(at[0]))
                found[name_of(item.value)] = choice
        return found

    def is_buffered(self, planes: Planes, item: ReadLeaf | WriteLeaf, name: str) -> bool:
        """Whether rows are put in a buffer of their own, not in a ring; and are needed at all."""
        if isinstance(item, WriteLeaf):
            return not self.nest.distances[id(item.array.root)]
        product = self.alone.get(name)
        if (product is not None and product.condition is None) or name in self.beside:
            return False
        read = replaced(item.read, self.eliminated(planes))
        return name not in self.lent and self.in_place(planes, read, self.own(planes)) is None

    def is_together(self, planes: Planes, item: ReadLeaf, own: Sequence[Expr]) -> bool:
        """Whether a read is of the same batched indices, whatever the cell: then often of the same rows."""
        root = self.of_own_rows(planes, item, own)
        return root is not None and isinstance(planes.rings.get(id(root)), Packed)

    def of_own_rows(self, planes: Planes, item: ReadLeaf, own: Sequence[Expr]) -> Array | None:
        """The array of the nest that a read is of, if it is of the same batched indices, whatever the cell."""
        chosen = {self.nest.symbols[k] for k in planes.group} | {planes.plane}
        read = item.read
        while isinstance(read, Choose):
            if not read.condition.value.symbols() <= chosen or not isinstance(read.then, Filled):
                return None
            read = read.otherwise
        groups = {self.nest.symbols[k] for k in planes.group}
        if not isinstance(read, Access) or not item.leaf.extents or not self.nest.exact.get(id(read.array.root)):
            return None
        if any(loop.length.symbols() & groups for loop in self.nest.loops):
            return None
        return read.array.root if all(read.index[k] == own[k] for k in planes.batch) else None

    def gathered_beside(self, planes: Planes, shared: set[str]) -> dict[str, Array]:
        """Left operands of products that are of the same batched indices in other planes: their rows stay where they
        are in the ring of this array if they are as many there, and are gathered behind it if not.  One for each ring.
        """
        mapping, own = self.eliminated(planes), self.own(planes)
        ops = [i for i in self.nest.cell if isinstance(i, Op)]
        lefts = {op.args[0].name for op in ops if op.op == "dot" and isinstance(op.args[0], Var)}
        others = {a.name for op in ops for k, a in enumerate(op.args) if isinstance(a, Var) and (op.op != "dot" or k)}
        written = [variable_of(i.value) for i in self.nest.cell if isinstance(i, WriteLeaf)]
        others |= {v.name for v in written if isinstance(v, Var)}
        found: dict[str, Array] = {}
        for item in self.nest.cell:
            if not isinstance(item, ReadLeaf) or name_of(item.value) not in lefts - others - shared:
                continue
            read = replaced(item.read, mapping)
            if name_of(item.value) in {*self.lent, *self.alone} or self.in_place(planes, read, own) is not None:
                continue
            root = self.of_own_rows(planes, replace(item, read=read), own)
            if root is not None and all(root is not r for r in found.values()):
                found[name_of(item.value)] = root
        return found
