# SPDX-License-Identifier: MIT
"""Which tensors of the host code cannot share memory, so that no launch has to look whether they do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from pto_jit.ir.nodes import Func, Op, Operand, Var
from pto_jit.ir.types import TensorType
from pto_jit.ir.walk import def_counts, statements


def apart_in(entry: Func) -> Callable[[Operand, Operand], bool]:
    """Whether two tensors never share memory: each is an argument or one that the program makes, or a view of it, and
    they are not both of arguments, nor of one tensor.

    Variables that are assigned more than once may be anything.
    """
    counts = def_counts(entry.body) + Counter(p.name for p in entry.params)
    roots = {p.name: "" for p in entry.params if isinstance(p.type, TensorType)}
    for s in statements(entry.body):
        if not isinstance(s, Op) or not s.results or not isinstance(s.results[0].type, TensorType):
            continue
        made, source = s.results[0].name, s.args[0] if s.args else None
        if s.op == "alloc":
            roots[made] = made
        elif isinstance(source, Var) and source.name in roots:
            roots[made] = roots[source.name]
        if counts[made] != 1:
            roots.pop(made, None)

    def apart(a: Operand, b: Operand) -> bool:
        names = [roots.get(x.name) if isinstance(x, Var) and counts[x.name] == 1 else None for x in (a, b)]
        return None not in names and names[0] != names[1]

    return apart
