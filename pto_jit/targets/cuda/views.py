# SPDX-License-Identifier: MIT
"""Views of tensors that a kernel makes itself: what it reads and writes by two names is known to be one tensor.

The host makes views, and a launch makes sure that no two tensors of a kernel overlap, one of which it writes.  A tensor
and a part of it do.

Before::

    %v = tview %y[2, 0] [1, 64] {drop=(0,)}
    CALL @f_incore_0(%x -> %x, %v -> %v, %y -> %y)

After::

    CALL @f_incore_0(%x -> %x, %y -> %y)       // which begins with %v = tview %y[2, 0] [1, 64] {drop=(0,)}
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Const, Func, Op, Var
from pto_jit.ir.types import TensorType
from pto_jit.ir.walk import TENSOR_VIEWS, def_counts, statements
from pto_jit.targets.cuda.loops import written_tensor
from pto_jit.targets.cuda.slices import views_of


class Views:
    """The views of a host function that are the same whenever they are made of the same numbers."""

    def __init__(self, func: Func) -> None:
        counts = def_counts(func.body) + Counter(p.name for p in func.params)
        self.makers = {
            s.results[0].name: s for s in statements(func.body)
            if isinstance(s, Op) and s.op in TENSOR_VIEWS
            and all(counts[v.name] == 1 for v in (*s.args, *s.results) if isinstance(v, Var))
        }  # fmt: skip

    def made_inside(self, body: Block) -> Block:
        """A kernel that makes those of its views that overlap another of its tensors, and one of both is written."""
        tensors = [v for v in free_vars(body) if isinstance(v.type, TensorType)]
        inside = views_of(body)
        written = {v.name for s in statements(body) if (v := written_tensor(s)) is not None}
        while not written.isdisjoint(inside):
            written = {inside.get(name, name) for name in written}
        made: dict[str, Op] = {}
        for a, b in combinations(sorted(tensors, key=lambda v: v.name), 2):
            if a.name not in written and b.name not in written:
                continue
            ours, theirs = self._chain(a.name), self._chain(b.name)
            if b.name in (op.args[0].name for op in ours):  # type: ignore[union-attr]
                made |= self._up_to(ours, b.name)
            elif a.name in (op.args[0].name for op in theirs):  # type: ignore[union-attr]
                made |= self._up_to(theirs, a.name)
            elif ours and theirs and _overlap(ours[0], theirs[0]):
                made |= {a.name: ours[0], b.name: theirs[0]}
        if not made:
            return body
        # what is made of others comes after these; and now the kernel has the tensor itself
        first = sorted(made.values(), key=lambda op: len(self._chain(op.results[0].name)))
        return self.made_inside((*first, *body))

    def _chain(self, name: str) -> list[Op]:
        """The view, what it is a view of, and so on."""
        out: list[Op] = []
        while name in self.makers:
            out.append(self.makers[name])
            name = out[-1].args[0].name  # type: ignore[union-attr]
        return out

    def _up_to(self, chain: list[Op], tensor: str) -> dict[str, Op]:
        names = [op.args[0].name for op in chain]  # type: ignore[union-attr]
        return {op.results[0].name: op for op in chain[: names.index(tensor) + 1]}


def _overlap(a: Op, b: Op) -> bool:
    """Whether two views are known to have elements in common."""
    if a.op != "view" or b.op != "view" or a.args[0] != b.args[0]:
        return False
    rank = a.args[0].type.rank  # type: ignore[union-attr]
    spans: list[tuple[range, range]] = []
    for axis in range(rank):
        numbers = [op.args[k] for op in (a, b) for k in (1 + axis, 1 + rank + axis)]
        if numbers[:2] == numbers[2:]:
            continue  # the same lines; where there are none, nothing is the matter
        if not all(isinstance(n, Const) for n in numbers):
            return False
        first, count, other, length = (int(n.value) for n in numbers if isinstance(n, Const))
        spans.append((range(first, first + count), range(other, other + length)))
    return all(max(one.start, two.start) < min(one.stop, two.stop) for one, two in spans)
