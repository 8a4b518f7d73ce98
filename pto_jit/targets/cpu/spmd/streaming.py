# SPDX-License-Identifier: MIT
"""Lanes that store past the caches: which loops may, and where their stores are aligned."""

from __future__ import annotations

from pto_jit.ir.nodes import For, Op, Var
from pto_jit.ir.types import TensorType
from pto_jit.ir.walk import TENSOR_VIEWS, statements, uses
from pto_jit.slotted import frozen
from pto_jit.targets.cpu.constants import I64, Index, Value, number
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.nest import STREAM
from pto_jit.targets.cpu.spmd.form import Compute, Form
from pto_jit.targets.cpu.spmd.lanes import Linear
from pto_jit.targets.cpu.spmd.variance import Variance
from pto_jit.targets.cpu.spmd.writer import LaneWriter


@frozen
class Stream:
    """large: whether the tensor is too large for the caches; ahead: iterations before the first aligned store."""

    large: bool | Value
    ahead: Index


def stream_of(w: FunctionWriter, loop: For, form: Form, variance: Variance, width: int, first: Linear) -> Stream | None:
    """The only store of a loop of straight code, if it is to consecutive elements of a tensor that the function does
    not read (what is read again should stay in the caches); None: there is no such store.

    `first`: the loop's variable in the first lanes.
    """
    nodes = [node for node in form.nodes if isinstance(node, Compute)]
    stores = [node.op for node in nodes if node.op.op == "setelem"]
    if len(nodes) < len(form.nodes) or len(stores) != 1 or not w.past_caches:
        return None
    _, target, *indices = stores[0].args
    tensor = w.tensor(target)
    assert isinstance(target, Var)
    if width * tensor.dtype.bytes != w.module.host.width or _is_read(w, target.name):
        return None
    needed, ops = {v.name for v in indices if isinstance(v, Var)}, list[Op]()
    for node in reversed(nodes):
        if any(r.name in needed for r in node.op.results):
            if node.op.op == "getelem" or any(r.name in form.slots for r in node.op.results):
                return None
            ops.append(node.op)
            needed.update(v.name for v in uses(node.op))
    lanes = LaneWriter(w, variance, width, 1)
    lanes.values[loop.var.name] = first
    for op in reversed(ops):
        lanes.operate(op, masked=False)
    address = lanes.consecutive(tensor, indices)
    if address is None:
        return None
    code, b = w.code, w.b
    large = code.compare(">", code.mul(tensor.dtype.bytes, *tensor.extents), STREAM)
    if large is False:
        return None
    w.streams = True
    below = b.and_(b.sub(number(I64, 0), b.ptrtoint(address, I64)), number(I64, w.module.host.width - 1))
    return Stream(large, code.div(below, tensor.dtype.bytes))


def _is_read(w: FunctionWriter, name: str) -> bool:
    """Whether the function reads the tensor, or one that it is a view of, or gives it to another."""
    root = w.root(name)
    for stmt in statements(w.func.body):
        if isinstance(stmt, Op) and stmt.op in (*TENSOR_VIEWS, "dim"):
            continue
        read = stmt.args[2:] if isinstance(stmt, Op) and stmt.op == "setelem" else uses(stmt)
        if any(isinstance(v, Var) and isinstance(v.type, TensorType) and w.root(v.name) == root for v in read):
            return True
    return False
