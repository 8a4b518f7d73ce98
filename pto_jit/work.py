# SPDX-License-Identifier: MIT
"""A bound on the work of a launch by the size of its arguments.

A launch that is over in a few microseconds is better run on the calling thread with the interpreter lock held: letting
it go costs more than it gives.  The size of the arguments alone does not say so: a product of two 200 x 200 matrices
is 16 million operations, a loop over their elements may run any number of steps.  So the program is asked: when it
has no loops and every operation touches each element of the arguments a bounded number of times, the bound is linear
and small arguments are small work; for all others nothing is assumed.
"""

from __future__ import annotations

from pto_jit.ir.nodes import Block, Call, Fuse, If, Module, Op, Return, Scope, Var
from pto_jit.ir.types import TensorType, TileType
from pto_jit.semantic.table import TABLE

_BUDGET = 32_768  # element operations: some ten microseconds when nothing is vectorised
_CONSTANT = 4096  # elements of a tile with constant extents that count as few
_DEAR = frozenset("exp exp2 expm1 log log2 log1p sin cos tan tanh erf sigmoid silu gelu pow atan2 fmod mod".split())
_LINEAR = frozenset(
    "dim load store getelem setelem view tensor_reshape tensor_transpose tensor_step sum prod any all argmax argmin "
    "cumsum cumprod tile_slice reshape transpose extract flip valid extent".split()
)


def elements_of_small_work(module: Module) -> int:
    """Launches whose tensor arguments have fewer elements together than this are over at once; 0: nothing is known."""
    weight = _of_block(module.func(module.entry).body, module)
    return 0 if weight is None else _BUDGET // max(weight, 1)


def _of_block(block: Block, module: Module) -> int | None:
    """Operations per element of the arguments, None when that is not bounded."""
    total = 0
    for stmt in block:
        match stmt:
            case Op():
                weight = _of_op(stmt)
            case Scope() | Fuse():
                weight = _of_block(stmt.body, module)
            case Call():
                weight = _of_block(module.func(stmt.callee).body, module)
            case If():
                weight = _of_block((*stmt.then, *stmt.orelse), module)
            case Return():
                weight = 0
            case _:
                weight = None
        if weight is None:
            return None
        total += weight
    return total


def _of_op(op: Op) -> int | None:
    if op.regions:
        return None
    results = [r.type for r in op.results]
    tiles = [t for t in results if isinstance(t, TileType)]
    sizes = [_constant_size(t) for t in tiles]
    few = all(size is not None and size <= _CONSTANT for size in sizes)
    if op.op == "alloc":
        return None if op.attr("fill") or op.attr("filled") else 1  # memory that is not filled costs nothing
    if op.op in ("full", "arange", "broadcast_to"):
        return 1 if few and tiles else None
    if not tiles and op.op in _LINEAR:
        return 1
    if TABLE[op.op].elementwise:
        weight = 8 if op.op in _DEAR else 1
        return weight if few or _fits_an_operand(op) else None
    if op.op == "load" and op.attr("pad") is not None and not few:
        return None  # reads the whole declared shape, which may be any size
    return 1 if op.op in _LINEAR else None


def _constant_size(tile: TileType) -> int | None:
    size = 1
    for extent in tile.shape:
        if extent is None:
            return None
        size *= extent
    return size


def _fits_an_operand(op: Op) -> bool:
    """Whether the result is no larger than an operand: no outer product by broadcasting."""
    result = op.results[0].type
    if not isinstance(result, TileType):
        return True
    operands = [a.type for a in op.args if isinstance(a, Var) and isinstance(a.type, (TileType, TensorType))]
    return any(t.shape == result.shape for t in operands)
