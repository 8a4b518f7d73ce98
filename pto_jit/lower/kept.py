# SPDX-License-Identifier: MIT
"""Elements that an innermost loop updates again and again, as variables of the loop.

Before::

    FOR %k:idx, 0:idx, %n:idx, 1:idx
      %s = sgetelem %y[%i] : f32
      %v = sgetelem %a[%i, %k] : f32
      %t = sadd %s, %v : f32
      ssetelem %t, %y[%i]
    ENDFOR

After::

    %some = slt 0:idx, %n:idx : bool
    IF %some
      %y@kept0 = sgetelem %y[%i] : f32
      FOR %k:idx, 0:idx, %n:idx, 1:idx
        %s = scopy %y@kept0 : f32
        %v = sgetelem %a[%i, %k] : f32
        %t = sadd %s, %v : f32
        %y@kept0 = scopy %t : f32
      ENDFOR
      ssetelem %y@kept0, %y[%i]
    ENDIF

which means the same where no other tensor of the loop has a part in the element; that is for the caller to make sure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from pto_jit.dtypes import DType, bool_
from pto_jit.ir.nodes import Block, Const, For, If, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import block_defs, rewrite_block
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.slotted import frozen, replace

ELEMENTS = ("getelem", "setelem")
_LARGEST = 64  # operations of a loop that is worth writing twice


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


def kept_elements(loop: For) -> list[Element]:
    """The elements that every iteration of a loop of scalar operations reads and writes, and that no other access to
    their tensors can be."""
    body = loop.body
    if len(body) > _LARGEST or not all(isinstance(s, Op) and is_scalar(s) for s in body):
        return []
    inside = block_defs(body) | {loop.var.name}
    accesses: dict[str, set[Element]] = {}
    read: set[Element] = set()
    written: set[Element] = set()
    for op in body:
        if isinstance(op, Op) and op.op in ELEMENTS:
            element = element_of(op)
            accesses.setdefault(element.tensor.name, set()).add(element)
            (read if op.op == "getelem" else written).add(element)
    return [
        e for e in dict.fromkeys(element_of(op) for op in body if isinstance(op, Op) and op.op == "setelem")
        if e in read and e.dtype != bool_ and not (e.dtype.kind == "f" and e.dtype.bits == 16)
        and not any(isinstance(i, Var) and i.name in inside for i in (e.tensor, *e.indices))
        and all(other == e or _differ(e, other) for other in accesses[e.tensor.name])
    ]  # fmt: skip


def is_scalar(op: Op) -> bool:
    """Whether an operation reads or writes an element, or computes a number from others."""
    if op.regions or any(isinstance(v.type, TileType) for v in (*op.args, *op.results)):
        return False
    return op.op in ELEMENTS or is_elementwise(op)


def element_of(op: Op) -> Element:
    """The element that a `getelem` or `setelem` is about."""
    tensor, *indices = op.args if op.op == "getelem" else op.args[1:]
    assert isinstance(tensor, Var)
    return Element(tensor, tuple(indices))


def _differ(a: Element, b: Element) -> bool:
    """Whether two elements of a tensor are certainly not the same."""
    return any(isinstance(i, Const) and isinstance(j, Const) and i.value != j.value
               for i, j in zip(a.indices, b.indices, strict=True))  # fmt: skip


def with_variables(loop: For, elements: Sequence[Element]) -> Block:
    """A loop of at least one iteration with variables for `elements`."""
    variables = {e: e.variable(k) for k, e in enumerate(elements)}
    body = tuple(_with_variables(s, variables) for s in loop.body if isinstance(s, Op))
    return (
        *(Op("getelem", (v,), (e.tensor, *e.indices), loc=loop.loc) for e, v in variables.items()),
        replace(loop, body=body),
        *(Op("setelem", (), (v, e.tensor, *e.indices), loc=loop.loc) for e, v in variables.items()),
    )


def keep_elements(block: Block, root: Callable[[str], str]) -> Block:
    """A block with variables for what its innermost sequential loops keep, where tensors of different roots share no
    memory; `root` gives the name of the tensor that a tensor is a view of."""

    def visit(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, For) or stmt.kind != "sequential" or not isinstance(stmt.step, Const):
            return None
        elements = kept_elements(stmt) if stmt.step.value else []
        names = {element_of(op).tensor.name for op in stmt.body if isinstance(op, Op) and op.op in ELEMENTS}
        many = Counter(map(root, names))
        elements = [e for e in elements if many[root(e.tensor.name)] == 1]
        if not elements:
            return None
        some = Var(f"{stmt.var.name}@some", ScalarType(bool_))
        order = "lt" if stmt.step.value > 0 else "gt"
        enters = Op(order, (some,), (stmt.start, stmt.stop), loc=stmt.loc)
        return enters, If(some, with_variables(stmt, elements), loc=stmt.loc)

    return rewrite_block(block, visit, plain=False)


def _with_variables(op: Op, variables: Mapping[Element, Var]) -> Op:
    var = variables.get(element_of(op)) if op.op in ELEMENTS else None
    if var is None:
        return op
    if op.op == "getelem":
        return Op("copy", op.results, (var,), loc=op.loc)
    return Op("copy", (var,), (op.args[0],), loc=op.loc)
