# SPDX-License-Identifier: MIT
"""What a vector core converts, and tiles of i64, which are only loaded, converted and stored."""

from __future__ import annotations

from pto_jit.ir.nodes import Func, Op
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import defs, statements, uses

DIRECT = frozenset(
    [("f32", "f16"), ("f16", "f32"), ("f32", "bf16"), ("bf16", "f32"), ("f32", "i32"), ("i32", "f32"), ("f32", "i16"),
     ("i16", "f32"), ("i32", "i16"), ("f16", "i16"), ("i16", "f16"), ("u8", "f16"), ("i8", "f16"), ("f16", "u8"),
     ("f16", "i8"), ("f16", "i32"), ("f32", "i64"), ("i64", "f32"), ("i32", "i64"), ("i64", "i32")]
)  # fmt: skip
"""What the core converts at once."""
NARROWING = frozenset(
    [("f32", "i16"), ("f16", "i16"), ("f16", "u8"), ("f16", "i8"), ("i64", "i32"), ("i32", "i16")]
)  # fmt: skip
"""Of those, where pto-isa has to be told what becomes of numbers that are too large."""
_CONVERTED = frozenset("f32 f16 bf16 i32 i16 bool_".split())


def only_moved(func: Func) -> frozenset[str]:
    """The tiles of i64 that are loaded or converted, and then converted or stored, or tell places in tensors."""
    wide = {r.name for s in statements(func.body) if type(s) is Op for r in s.results
            if type(r.type) is TileType and r.type.dtype.name == "i64"}  # fmt: skip
    if wide:
        for s in statements(func.body):
            if isinstance(s, Op) and s.op in ("take", "put"):  # at places that the scalar unit reads
                wide -= {v.name for v in (*s.results, *uses(s)) if v is not s.args[1]}
            elif not (isinstance(s, Op) and _moves(s)):
                wide -= {v.name for v in (*defs(s), *uses(s))}
    return frozenset(wide)


def _moves(op: Op) -> bool:
    if op.op == "cast":
        kinds = (v.type.dtype.name for v in (op.args[0], op.results[0]) if isinstance(v.type, TileType))
        return all(name in _CONVERTED or name == "i64" for name in kinds)
    return op.op == "store" or (op.op == "load" and not op.attr("pad") and not op.attr("inside"))
