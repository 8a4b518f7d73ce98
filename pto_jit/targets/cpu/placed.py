# SPDX-License-Identifier: MIT
"""Tiles whose only use is one store, written to the tensor itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pto_jit.ir.nodes import Fuse, Op, Var
from pto_jit.ir.types import TileType
from pto_jit.targets.cpu.constants import PTR, VOID, Index, Value, i64
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.groups import write_group
from pto_jit.targets.cpu.stores import address_range, ranges_meet
from pto_jit.targets.cpu.tensors import region
from pto_jit.targets.cpu.values import Tile


def write_stored(
    w: FunctionWriter, result: Var, fused: Fuse, operands: Sequence[Tile], declared: Sequence[Index],
    valid: Sequence[Index], compute: Callable[[Tile], None],
) -> None:  # fmt: skip
    """A tile that is only stored (`fused` is nothing but the store), computed from `operands` in the memory that
    `compute` is given: the tensor's where all of the tile fits there and the operands lie elsewhere (decided when it
    runs), else scratch memory, which is stored afterwards.
    """
    code, store = w.code, fused.body[0]
    assert isinstance(store, Op) and isinstance(result.type, TileType)
    dtype, tensor = result.type.dtype, w.tensor(store.args[1])
    pointer, inside = region(w, tensor, [w.index(a) for a in store.args[2:]], valid, store.loc)
    w.record(store, tensor, pointer, inside, tensor.strides)
    reasons: list[bool | Value] = [code.compare("!=", a, b) for a, b in zip(inside, valid, strict=True)]
    stored = address_range(code, pointer, tensor.strides, inside, dtype.bytes)
    for tile in dict.fromkeys(operands):
        if tile.view:
            read = address_range(code, tile.pointer, tile.strides, tile.valid, tile.dtype.bytes)
            reasons.append(ranges_meet(code, stored, read))
    apart = code.any_of(reasons)
    strides = w.strides(dtype, declared)

    def scratch() -> list[Value]:
        size = code.max(code.mul(dtype.bytes, *declared), 64)
        block = code.call("pto_scratch_push", PTR, [code.worker, i64(size)])
        w.got_memory(block)
        return [block, *(i64(s) for s in strides)]

    got = code.choose(apart, scratch, lambda: [pointer, *(i64(s) for s in tensor.strides)])
    found = tuple(s if isinstance(s, int) and isinstance(t, int) and s == t else g
                  for s, t, g in zip(strides, tensor.strides, got[1:], strict=True))  # fmt: skip
    compute(Tile(dtype, got[0], tuple(declared), tuple(valid), found))
    with code.when(apart, likely=False), w.passing():
        w.env[result.name] = Tile(dtype, got[0], tuple(declared), tuple(valid), strides)
        write_group(w, fused)
        code.call("pto_scratch_pop", VOID, [code.worker, got[0]])
