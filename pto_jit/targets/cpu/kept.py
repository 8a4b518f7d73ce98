# SPDX-License-Identifier: MIT
"""Elements that an innermost loop updates again and again, in registers while it runs.

``y[i] += a[i, j] * x[j]`` in a loop over `j` reads and writes one element in every iteration, and every addition waits
for memory, because `a` or `x` may be the same memory as `y`: arguments may overlap.  So the loop is written twice and
the addresses decide when it runs: where the tensors are apart the elements are variables, read before the loop and
written behind it; else everything happens in memory.  (The optimiser does so by itself where it knows that nothing
overlaps.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pto_jit.dtypes import DType, bool_
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Block, Const, For, Op, Operand, Var
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import block_defs
from pto_jit.lower.axes import is_elementwise
from pto_jit.slotted import frozen, replace
from pto_jit.targets.cpu.analysis import may_share
from pto_jit.targets.cpu.code import I64, Index, Value, i64
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.stores import address_range

_ELEMENTS = ("getelem", "setelem")
_LARGEST = 64  # operations of a loop that is worth writing twice
_COMPARED = 10  # elements with tensors that are worth comparing


@frozen
class Element:
    """One element of a tensor, the same in every iteration."""

    tensor: Var
    indices: tuple[Operand, ...]

    @property
    def dtype(self) -> DType:
        assert isinstance(self.tensor.type, TensorType)
        return self.tensor.type.dtype

    def variable(self, number: int) -> Var:
        """The variable that has its value during the loop."""
        return Var(f"{self.tensor.name}@kept{number}", ScalarType(self.dtype))


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


def kept_elements(loop: For) -> list[Element]:
    """The elements that every iteration of a loop of scalar operations reads and writes, and that no other access to
    their tensors can be."""
    body = loop.body
    if len(body) > _LARGEST or not all(isinstance(s, Op) and _is_scalar(s) for s in body):
        return []
    inside = block_defs(body) | {loop.var.name}
    accesses: dict[str, set[Element]] = {}
    read: set[Element] = set()
    written: set[Element] = set()
    for op in body:
        if isinstance(op, Op) and op.op in _ELEMENTS:
            element = _element(op)
            accesses.setdefault(element.tensor.name, set()).add(element)
            (read if op.op == "getelem" else written).add(element)
    return [
        e for e in dict.fromkeys(_element(op) for op in body if isinstance(op, Op) and op.op == "setelem")
        if e in read and e.dtype != bool_ and not (e.dtype.kind == "f" and e.dtype.bits == 16)
        and not any(isinstance(i, Var) and i.name in inside for i in (e.tensor, *e.indices))
        and all(other == e or _differ(e, other) for other in accesses[e.tensor.name])
    ]  # fmt: skip


def _is_scalar(op: Op) -> bool:
    if op.regions or any(isinstance(v.type, TileType) for v in (*op.args, *op.results)):
        return False
    return op.op in _ELEMENTS or is_elementwise(op)


def _element(op: Op) -> Element:
    tensor, *indices = op.args if op.op == "getelem" else op.args[1:]
    assert isinstance(tensor, Var)
    return Element(tensor, tuple(indices))


def _differ(a: Element, b: Element) -> bool:
    """Whether two elements of a tensor are certainly not the same."""
    return any(isinstance(i, Const) and isinstance(j, Const) and i.value != j.value
               for i, j in zip(a.indices, b.indices, strict=True))  # fmt: skip


def _pairs(body: Block, elements: Sequence[Element]) -> list[tuple[Element, Var]]:
    """Each kept element with every other tensor of the loop."""
    tensors = dict.fromkeys(_element(op).tensor for op in body if isinstance(op, Op) and op.op in _ELEMENTS)
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
    variables = {e: e.variable(k) for k, e in enumerate(elements)}
    for element, var in variables.items():
        w.mutable.add(var.name)
        w.op(Op("getelem", (var,), (element.tensor, *element.indices), loc=loop.loc))
    w.sequential(replace(loop, body=tuple(_with_variables(s, variables) for s in loop.body if isinstance(s, Op))),
                 start, stop, step)  # fmt: skip
    for element, var in variables.items():
        w.op(Op("setelem", (), (var, element.tensor, *element.indices), loc=loop.loc))


def _with_variables(op: Op, variables: Mapping[Element, Var]) -> Op:
    var = variables.get(_element(op)) if op.op in _ELEMENTS else None
    if var is None:
        return op
    if op.op == "getelem":
        return Op("copy", op.results, (var,), loc=op.loc)
    return Op("copy", (var,), (op.args[0],), loc=op.loc)
