# SPDX-License-Identifier: MIT
"""Elements that an innermost loop updates again and again, in registers while it runs.

``y[i] += a[i, j] * x[j]`` in a loop over `j` reads and writes one element in every iteration, and every addition waits
for memory, because `a` or `x` may be the same memory as `y`: arguments may overlap.  So the loop is written twice and
the addresses decide when it runs: where the tensors are apart the elements are variables, read before the loop and
written behind it; else everything happens in memory.  (The optimiser does so by itself where it knows that nothing
overlaps.)
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.errors import Loc
from pto_jit.ir.nodes import Block, For, Op, Var
from pto_jit.ir.types import TensorType
from pto_jit.lower.kept import ELEMENTS, Element, element_of, kept_elements, with_variables
from pto_jit.targets.cpu.analysis import may_share
from pto_jit.targets.cpu.constants import I64, Index, Value, i64
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.stores import address_range

_COMPARED = 10  # elements with tensors that are worth comparing


def write_kept(w: FunctionWriter, loop: For, start: Index, stop: Index, step: Index) -> bool:
    """Write `loop` in both ways if it updates elements that can be kept; gives whether it was written."""
    if w.recording or w.module.debug or not isinstance(step, int) or step == 0:
        return False
    elements = kept_elements(loop)
    if not elements:
        return False
    roots = w.module.aliasing.of(w.func)
    pairs = [(e, other) for e, other in _pairs(loop.body, elements)
             if may_share(roots.get(e.tensor.name), roots.get(other.name))]  # fmt: skip
    if not pairs or len(pairs) > _COMPARED:  # the optimiser knows that they are apart
        return False
    code = w.code
    conditions = [code.compare("<" if step > 0 else ">", start, stop)]
    conditions += [_apart(w, element, other, loop.loc) for element, other in pairs]

    def in_registers() -> Sequence[Value]:
        _write(w, loop, elements, start, stop, step)
        return ()

    def in_memory() -> Sequence[Value]:
        w.sequential(loop, start, stop, step)
        return ()

    code.choose(code.all_of(conditions), in_registers, in_memory)
    return True


def _pairs(body: Block, elements: Sequence[Element]) -> list[tuple[Element, Var]]:
    """Each kept element with every other tensor of the loop."""
    tensors = dict.fromkeys(element_of(op).tensor for op in body if isinstance(op, Op) and op.op in ELEMENTS)
    return [(e, other) for e in elements for other in tensors if other.name != e.tensor.name]


def _apart(w: FunctionWriter, element: Element, other: Var, loc: Loc) -> Value:
    """Whether an element lies outside of all that belongs to another tensor: one comparison without signs."""
    code, tensor = w.code, w.tensor(element.tensor)
    at = code.b.ptrtoint(w.element(tensor, [w.index(i) for i in element.indices], loc), I64)
    first, size = _place(w, other)
    beside = tensor.dtype.bytes - 1  # so far before the first byte it still has a part in it
    distance = code.wrapping("add", code.wrapping("sub", at, first), beside)
    return code.b.icmp_unsigned(">=", i64(distance), i64(code.wrapping("add", size, beside)))


def _place(w: FunctionWriter, var: Var) -> tuple[Value, Index]:
    """The address of a tensor and how many bytes it spans, or more where it is empty."""
    tensor = w.tensor(var)
    assert isinstance(var.type, TensorType)
    if var.type.layout == "c" and tensor.extents:
        return w.b.ptrtoint(tensor.pointer, I64), w.code.mul(tensor.extents[0], tensor.strides[0])
    low, high = address_range(w.code, tensor.pointer, tensor.strides, tensor.extents, tensor.dtype.bytes)
    return low, w.code.wrapping("sub", high, low)


def _write(w: FunctionWriter, loop: For, elements: Sequence[Element], start: Index, stop: Index, step: Index) -> None:
    """The loop with variables for `elements`; it has at least one iteration."""
    w.mutable.update(e.variable(k).name for k, e in enumerate(elements))
    for stmt in with_variables(loop, elements):
        if isinstance(stmt, Op):
            w.op(stmt)
        else:
            assert isinstance(stmt, For)
            w.sequential(stmt, start, stop, step)
