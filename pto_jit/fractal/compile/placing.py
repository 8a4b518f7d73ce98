# SPDX-License-Identifier: MIT
"""Where the rows of what the cells of a batch read are: in a ring, behind one, or gathered in a buffer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pto_jit.fractal.compile.batching import row_extents
from pto_jit.fractal.compile.expr import Expr
from pto_jit.fractal.compile.inputs import Product, first
from pto_jit.fractal.compile.lists import Access, Choose, Filled, ReadLeaf, WriteLeaf, replaced
from pto_jit.fractal.compile.nest import depends_on
from pto_jit.fractal.compile.packing import Packed, Packing
from pto_jit.fractal.compile.sequential import name_of, variable_of
from pto_jit.fractal.compile.wavefront import Planes
from pto_jit.ir.nodes import Op, Var


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
        if product is not None and product.condition is None:
            return False
        read = replaced(item.read, self.eliminated(planes))
        return name not in self.lent and self.in_place(planes, read, self.own(planes)) is None

    def is_together(self, planes: Planes, item: ReadLeaf, own: Sequence[Expr]) -> bool:
        """Whether a read is of the same batched indices, whatever the cell: then often of the same rows."""
        chosen = {self.nest.symbols[k] for k in planes.group} | {planes.plane}
        read = item.read
        while isinstance(read, Choose):
            if not read.condition.value.symbols() <= chosen or not isinstance(read.then, Filled):
                return False
            read = read.otherwise
        ring = planes.rings.get(id(read.array.root)) if isinstance(read, Access) else None
        if not isinstance(read, Access) or not isinstance(ring, Packed) or not item.leaf.extents:
            return False
        groups = {self.nest.symbols[k] for k in planes.group}
        if any(loop.length.symbols() & groups for loop in self.nest.loops):
            return False
        return all(read.index[k] == own[k] for k in planes.batch)
