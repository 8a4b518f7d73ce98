# SPDX-License-Identifier: MIT
"""What a vector core converts, and tiles of i64, which are only loaded, converted, taken apart and stored."""

from __future__ import annotations

from collections.abc import Container

from pto_jit.ir.nodes import Const, Func, Op, Var
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
    """The tiles of i64 that are loaded or converted, and then converted or stored, or tell places in tensors; and those
    of which words are taken, and that are put together from words (`pairs.py`)."""
    wide = {r.name for s in statements(func.body) if type(s) is Op for r in s.results
            if type(r.type) is TileType and r.type.dtype.name == "i64"}  # fmt: skip
    if wide:
        upper = {s.results[0].name for s in statements(func.body) if isinstance(s, Op) and s.op == "shl"}
        for s in statements(func.body):
            if isinstance(s, Op) and s.op in ("take", "put"):  # at places that the scalar unit reads
                wide -= {v.name for v in (*s.results, *uses(s)) if v is not s.args[1]}
            elif not (isinstance(s, Op) and (_moves(s) or _is_of_words(s, upper))):
                wide -= {v.name for v in (*defs(s), *uses(s))}
    return frozenset(wide)


def _is_of_words(op: Op, upper: Container[str]) -> bool:
    """Whether an operation takes the upper words of a tile, or puts words together; `upper`: what is shifted up."""
    if op.op == "add":
        return isinstance(op.args[0], Var) and op.args[0].name in upper
    return op.op in ("shl", "shr") and isinstance(op.args[1], Const) and op.args[1].value == 32


def _moves(op: Op) -> bool:
    if op.op == "cast":
        kinds = (v.type.dtype.name for v in (op.args[0], op.results[0]) if isinstance(v.type, TileType))
        return all(name in _CONVERTED or name == "i64" for name in kinds)
    return op.op in ("store", "extract", "valid", "extent") or (op.op == "load" and not op.attr("inside"))
