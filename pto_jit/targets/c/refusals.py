# SPDX-License-Identifier: MIT
"""Operations that need more than the shared writers say: sorting and atomic updates; and what the target refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pto_jit.errors import Loc, TargetError
from pto_jit.ir.nodes import Op
from pto_jit.ir.types import ScalarType
from pto_jit.targets.c.values import CPointer, CValue, lift, memory_ctype
from pto_jit.targets.cpu.constants import I64, storage_type

if TYPE_CHECKING:
    from pto_jit.targets.c.function import CFunctionWriter


def refusal(target: str, what: str, loc: Loc, instead: str) -> TargetError:
    """What the target cannot do, and what works."""
    return TargetError(f"the {target} target cannot do {what}", loc, code="PTO-X200", hint=instead)


def refuse(op: Op, dialect: Any) -> None:
    """Raise TargetError for an operation that has no C here.  dialect: the vectors, None for plain C."""
    ranks = [o.type.rank for o in (*op.args, *op.results) if not isinstance(o.type, ScalarType)]
    if ranks and max(ranks) > _MOST_AXES:
        target = "c" if dialect is None else dialect.name
        raise refusal(target, f"`{op.op}` on {max(ranks)} axes", op.loc,
                      f"reshape to at most {_MOST_AXES} axes, or target=\"cpu\"")  # fmt: skip


_MOST_AXES = 8


def write_sort(w: CFunctionWriter, op: Op) -> None:
    """`sort`, `argsort` and `topk`: the order of a row's elements first, then what it picks."""
    from pto_jit.targets.cpu.elements import address, each, give, need_places, new_tile, read, topk_count, write
    from pto_jit.targets.cpu.values import Tile

    code = w.code
    tile = w.tile(op.args[0])
    n = tile.valid[-1]
    descending = bool(op.attr("descending")) or op.op == "topk"
    if op.op == "topk":
        k: Any = op.attr("k")
        count = topk_count(w, op, tile)
        outs = [new_tile(w, r, (*tile.declared[:-1], k), (*tile.valid[:-1], count)) for r in op.results]
    else:
        count = n
        if op.op == "argsort":
            need_places(w, op, tile.valid[-1:], tile.declared[-1:])
        outs = [new_tile(w, op.results[0], tile.declared, tile.valid)]
    block = w.push(code.mul(n, 8))
    order = code.typed(block, "int32_t")
    from pto_jit.dtypes import i32

    indices = Tile(i32, order, (n,), (n,), (4,))
    w.module.sorts.add((tile.dtype, descending))

    def row(i: list[Any]) -> None:
        keys = address(w, tile, [*i, 0])
        stride = w.in_elements(tile.strides[-1], tile.dtype)
        kind = "descending" if descending else "ascending"
        pointer = code.typed(keys, memory_ctype(tile.dtype)) if isinstance(keys, CPointer) else keys
        arguments = (pointer, lift(stride), lift(n), order, lift(code.offset(order, code.mul(n, 4))))
        code.line(f"pto_argsort_{tile.dtype}_{kind}({', '.join(a.text for a in arguments)});")

        def element(j: list[Any]) -> None:
            index = read(w, indices, j)
            if op.op in ("argsort", "topk"):
                write(w, outs[-1], [*i, *j], index)
            if op.op in ("sort", "topk"):
                write(w, outs[0], [*i, *j], read(w, tile, [*i, w.b.sext(index, I64)]))

        each(w, [count], element)

    each(w, tile.valid[:-1], row)
    for r, out in zip(op.results, outs, strict=True):
        give(w, r, out)


def write_atomic(w: CFunctionWriter, op: Op) -> None:
    """Compare and swap on the element's bits, for every dtype and combination alike."""
    from pto_jit.targets.cpu.elements import address, each, read
    from pto_jit.targets.cpu.indirect import settled
    from pto_jit.targets.cpu.tensors import region
    from pto_jit.targets.cpu.values import Tensor

    code = w.code
    kind = {"atomic_add": "add", "atomic_max": "max", "atomic_min": "min"}[op.op]
    tile, tensor = settled(w, op.args[0]), w.tensor(op.args[1])
    pointer, inside = region(w, tensor, [w.index(a) for a in op.args[2:]], tile.valid, op.loc)
    part = Tensor(tensor.dtype, pointer, inside, tensor.strides)
    dtype = tensor.dtype
    bits = {8: "uint8_t", 16: "uint16_t", 32: "uint32_t", 64: "uint64_t"}[dtype.bits]

    def body(i: list[Any]) -> None:
        value = code.named(lift(read(w, tile, i)), "change", keep=True)
        place = code.pointer(f"({bits} *){lift(address(w, part, i)).at(15)}", bits, "place", keep=True)
        old = code.variable("old", bits, f"__atomic_load_n({place.base}, __ATOMIC_RELAXED)", here=True)
        new = code.variable("new_bits", bits, here=True)
        with code.braces("do"):
            raw = CValue(storage_type(dtype), f"pto_from_{dtype}_bits({old.variable})", ctype=memory_ctype(dtype))
            have = w.b.from_memory(raw, dtype)
            out = w.b.to_memory(w.ops.apply(kind, (have, value), dtype, {}, dtype), dtype)
            code.line(f"{new.variable} = pto_to_{dtype}_bits({out.text});")
        swap = f"__atomic_compare_exchange_n({place.base}, &{old.variable}, {new.variable}, 0"
        code.line(f"while (!{swap}, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));")

    each(w, inside, body)


OWN: dict[str, Callable[[CFunctionWriter, Op], None]] = {
    "sort": write_sort, "argsort": write_sort, "topk": write_sort,
    "atomic_add": write_atomic, "atomic_max": write_atomic, "atomic_min": write_atomic,
}  # fmt: skip

__all__ = ["OWN", "refusal", "refuse"]
