# SPDX-License-Identifier: MIT
"""New tensors that are filled with a number: by the cores, unless all bytes of it are the same.

Before::

    %t = alloc %n, %m, 1.5 {dtype=f32, filled=true}

After::

    %t = alloc %n, %m {dtype=f32}
    %count = smul %n, %m
    %t.flat = treshape %t, %count
    FOR %t_at, 0, %count, 2048 {kind=parallel}
      SCOPE
        %left = ssub %count, %t_at
        %some = smin %left, 2048
        %t.part = tfull 1.5, [%some]
        tstore %t.part, %t.flat[%t_at]
"""

from __future__ import annotations

import numpy as np

from pto_jit.dtypes import i32, i64
from pto_jit.ir.nodes import Block, Const, For, Func, If, Op, Operand, Scope, Stmt, While
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import blocks, statements, with_blocks
from pto_jit.lower.names import Names, Scalars, index, source_name
from pto_jit.slotted import replace

_PART = 2048
_FILLED = frozenset("f32 f16 bf16 i32 i16 u32 u16".split())
"""What the vector core fills tiles with."""
_PROOF = "parts of a new tensor"


def filled_by_cores(func: Func) -> Func:
    """A flat function whose host code fills no new tensors but with bytes that are all the same."""
    if not any(isinstance(s, Op) and _is_for_cores(s) for s in statements(func.body)):
        return func
    return replace(func, body=_block(func.body, Names(func), f"{func.name}_fill"))


def repeated_byte(value: Operand) -> int | None:
    """The byte that a constant is made of; None where it is made of several, or not known."""
    if not isinstance(value, Const):
        return None
    dtype = value.type.dtype
    if dtype.is_float:
        found = set(np.array(value.value, dtype.numpy).tobytes())
    else:
        found = set((int(value.value) & (1 << dtype.bits) - 1).to_bytes(dtype.bytes, "little"))
    return found.pop() if len(found) == 1 else None


def _is_for_cores(op: Op) -> bool:
    if op.op != "alloc" or not op.attr("filled"):
        return False
    value = op.args[-1]
    dtype = value.type.dtype  # type: ignore[union-attr]
    if dtype.bits == 8 or repeated_byte(value) is not None:
        return False
    return dtype.name in _FILLED or (dtype == i64 and isinstance(value, Const) and -(2**31) <= value.value < 2**31)


def _block(block: Block, names: Names, kernel: str) -> Block:
    out: list[Stmt] = []
    for stmt in block:
        if isinstance(stmt, Op) and _is_for_cores(stmt):
            out += _filled(stmt, names, kernel)
        elif isinstance(stmt, (If, While)) or (isinstance(stmt, For) and stmt.kind == "sequential"):
            out.append(with_blocks(stmt, tuple(_block(b, names, kernel) for b in blocks(stmt))))
        else:
            out.append(stmt)
    return tuple(out)


def _filled(op: Op, names: Names, kernel: str) -> list[Stmt]:
    """The tensor, and the loop that fills it."""
    (tensor,), value = op.results, op.args[-1]
    typ = tensor.type
    assert isinstance(typ, TensorType)
    name = source_name(tensor.name)
    scalars = Scalars(names, op.loc)
    count: Operand = index(1)
    for extent in op.args[:-1]:
        count = scalars.op("mul", count, extent, "count")
    length = int(count.value) if isinstance(count, Const) else None
    flat = names.fresh(f"{name}.flat", TensorType(typ.dtype, (length,), "c"))
    inner = Scalars(names, op.loc)
    at = names.fresh(f"{name}_at")
    some = inner.op("min", inner.op("sub", count, at, "left"), index(_PART), "some")
    dtype = i32 if typ.dtype == i64 else typ.dtype
    tile = names.fresh(f"{name}.part", TileType(dtype, (None,)))
    number = Const(value.value, ScalarType(dtype)) if isinstance(value, Const) else value
    body: list[Stmt] = [*inner.block, Op("full", (tile,), (number, some), (), (), op.loc)]
    if dtype != typ.dtype:
        wide = names.fresh(f"{name}.part", TileType(typ.dtype, (None,)))
        body.append(Op("cast", (wide,), (tile,), (("dtype", typ.dtype),), (), op.loc))
        tile = wide
    body.append(Op("store", (), (tile, flat, at), (), (), op.loc))
    scope = Scope(kernel, tuple(body), loc=op.loc)
    attrs = tuple((key, known) for key, known in op.attrs if key != "filled")
    return [
        replace(op, args=op.args[:-1], attrs=attrs),
        *scalars.block,
        Op("tensor_reshape", (flat,), (tensor, count), (), (), op.loc),
        For("parallel", at, index(0), count, index(_PART), (scope,), proof=_PROOF, loc=op.loc),
    ]
