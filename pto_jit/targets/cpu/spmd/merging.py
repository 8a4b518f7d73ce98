# SPDX-License-Identifier: MIT
"""What lanes reduce: every lane has a state of its own, and the states of all become one.

Lanes take every n-th iteration where what combines them commutes.  A function that may count on the order of iterations
gets lanes with iterations that follow each other: the first lane the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from pto_jit.ir.nodes import For, Op, Operand, Reduction, Region, Var
from pto_jit.lower.straight import straight_function
from pto_jit.targets.cpu.code import PLAIN, Code
from pto_jit.targets.cpu.constants import I32, Index, Value, i64, number, numbers
from pto_jit.targets.cpu.elementwise import splat
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.spmd.lanes import Lanes, Linear

_LINE = 64  # bytes


def start(lanes: Lanes, reduction: Reduction) -> None:
    """Every lane starts from the identity."""
    for var, init in zip(reduction.state, reduction.init, strict=True):
        lanes.declare(var)
        for part, slot in zip(lanes.vectors(init), lanes.slots[var.name], strict=True):
            lanes.code.b.store(part, slot)


def finish(lanes: Lanes, reduction: Reduction, *, ordered: bool = False) -> None:
    """The lanes are combined with what the variables were before the loop: halves with halves or, in their order, each
    with the next."""
    w = lanes.w
    parts: list[Sequence[Value]] = [*zip(*(lanes.vectors(v) for v in reduction.state), strict=True)]
    while len(parts) > 1 and not ordered:
        parts = [_combined(w, reduction, x, y, lanes.width) for x, y in zip(parts[::2], parts[1::2], strict=True)]
    values: Sequence[Value] = [w.scalar(v) for v in reduction.state]
    for part in parts:
        values = _combined(w, reduction, values, _across(w, reduction, part, lanes.width, ordered), 1)
    for var, value in zip(reduction.state, values, strict=True):
        w.define(var, value)


def _across(
    w: FunctionWriter, reduction: Reduction, values: Sequence[Value], width: int, ordered: bool
) -> Sequence[Value]:  # fmt: skip
    """The states of a vector of lanes as one."""
    b = w.code.b
    while width > 2:
        every, width = range(width), width // 2
        chosen = (every[::2], every[1::2]) if ordered else (every[:width], every[width:])
        low, high = (
            [b.shuffle_vector(v, ir.Constant(v.type, ir.Undefined), numbers(I32, of)) for v in values]
            for of in chosen
        )
        values = _combined(w, reduction, low, high, width)
    if width == 2:
        first, second = ([b.extract_element(v, number(I32, k)) for v in values] for k in range(2))
        values = _combined(w, reduction, first, second, 1)
    return values


def _combined(
    w: FunctionWriter, reduction: Reduction, x: Sequence[Value], y: Sequence[Value], width: int
) -> list[Value]:  # fmt: skip
    """Two states, of so many lanes each, as one."""
    region = reduction.combine
    if isinstance(region, Region):
        region = straight_function(region)
    else:
        dtype = reduction.state[0].type.dtype  # type: ignore[union-attr]
        return [w.ops.apply(region, (*x, *y), dtype, {}, dtype)]
    known = {p.name: v for p, v in zip(region.params, (*x, *y), strict=True)}

    def value(operand: Operand) -> Value:
        if isinstance(operand, Var) and operand.name in known:
            return known[operand.name]
        one = w.scalar(operand)
        return one if width == 1 else splat(w.code.b, one, width)

    for op in region.body:
        assert isinstance(op, Op)
        data = op.args[1] if op.op == "select" else op.args[0]
        (result,) = op.results
        of, to = (v.type.dtype for v in (data, result))  # type: ignore[union-attr]
        known[result.name] = w.ops.apply(op.op, [value(a) for a in op.args], of, dict(op.attrs), to)
    return [value(r) for r in region.results]


def share_of(code: Code, length: Index, count: int, line: int) -> Value:
    """How many elements each of `count` equal shares of a length has: an odd number of cache lines of `line` elements,
    as shares that are whole pages apart would be read through one set of a cache.  The length is at least a line for
    each."""
    lines = code.div(length, count * line)
    return code.mul(code.b.or_(i64(code.sub(lines, 1)), i64(1)), line)  # pyright: ignore[reportReturnType]


def write_shares(
    w: FunctionWriter, loop: For, lanes: Lanes, size: int, first: Index, count: Index, step: Index,
    group: Callable[[Linear], None],
) -> Index:  # fmt: skip
    """Iterations of a loop in equal shares (`share_of`), one for each lane, as `group` writes one of each lane; gives
    how many these are.

    size: bytes of the elements that are read.
    """
    code, line = w.code, _LINE // size

    def shares() -> Sequence[Value]:
        share = share_of(code, count, lanes.count, line)
        for reduction in loop.reductions:
            start(lanes, reduction)

        def body(k: Value, _: list[Value]) -> Sequence[Value]:
            at = code.wrapping("add", first, code.wrapping("mul", k, step))
            group(Linear(at, code.wrapping("mul", share, step)))
            return ()

        code.loop(0, share, 1, body=body, name=f"shares.{PLAIN}")
        for reduction in loop.reductions:
            finish(lanes, reduction, ordered=True)
        return (i64(code.mul(share, lanes.count)),)

    enough = code.compare(">=", count, lanes.count * line)
    (done,) = code.choose(enough, shares, lambda: (i64(0),))
    return done
