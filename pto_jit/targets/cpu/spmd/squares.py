# SPDX-License-Identifier: MIT
"""Lanes that are rows: what a loop inside reads along them is loaded as vectors of rows and transposed, a square at a
time.

In `for i: for k: s += a[i, k]` lane l of a group needs `a[i + l, k]`, an element in every row.  Every `side` iterations
of k the next `side` elements of every row are loaded and turned into the vectors of the next `side` iterations, which
wait in memory on the stack.  Where a row ends sooner, the rest of its vector is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from llvmlite import ir

from pto_jit.dtypes import i8, i16, i32, i64
from pto_jit.ir.nodes import Const, Op, Operand, Var
from pto_jit.ir.types import TensorType
from pto_jit.targets.cpu.access import load
from pto_jit.targets.cpu.code import PLAIN, Code
from pto_jit.targets.cpu.constants import I1, I8, I32, I64, PTR, VOID, Index, Value, number, numbers
from pto_jit.targets.cpu.constants import i64 as as_i64
from pto_jit.targets.cpu.elementwise import splat
from pto_jit.targets.cpu.spmd.form import Branch, Compute, Node, Repeat
from pto_jit.targets.cpu.spmd.variance import Step, Variance, access_step, result_step
from pto_jit.targets.cpu.strided import transposed
from pto_jit.targets.cpu.values import Tensor
from pto_jit.targets.cpu.vector import call_intrinsic

_WORDS = {d.bytes: d for d in (i8, i16, i32, i64)}

_LEAST = 8  # iterations of a loop inside that is worth squares
LINES = 64  # the most iterations that are read at a time
SIDES = (8, 16)
"""Lanes for which squares pay: smaller ones take as many shuffles as there are elements."""


# -- which accesses ----------------------------------------------------------------------------------------------------


def reads_by_squares(variance: Variance) -> frozenset[int]:
    """The `getelem`s (by `id`) of a settled form that read along the rows of the lanes, in loops inside that no
    compiler takes along these rows.

    They are read ahead of their time, so nothing may be written in such a loop; and they are those that every iteration
    comes to.
    """
    return frozenset(
        id(op) for node in _repeats(variance.form.nodes) if _is_long(node) and _is_serial(node)
        for op in _along(variance, node)
    )  # fmt: skip


def _repeats(nodes: Sequence[Node]) -> Iterator[Repeat]:
    for node in nodes:
        match node:
            case Branch():
                yield from _repeats((*node.then, *node.orelse))
            case Repeat():
                yield node
                yield from _repeats((*node.before, *node.body))
            case _:
                pass


def _computes(nodes: Sequence[Node]) -> Iterator[Compute]:
    for node in nodes:
        match node:
            case Compute():
                yield node
            case Branch():
                yield from _computes((*node.then, *node.orelse))
            case Repeat():
                yield from _computes((*node.before, *node.body))
            case _:
                pass


def _is_long(node: Repeat) -> bool:
    """Whether a loop counts upwards, every lane to its end, and not to a small number."""
    if node.bounds is None or node.leaves or node.bounds[2] != 1:
        return False
    start, stop, _ = node.bounds
    return not (isinstance(start, Const) and isinstance(stop, Const) and stop.value - start.value < _LEAST)


def _is_serial(node: Repeat) -> bool:
    """Whether a loop waits for its last result, in a way that no compiler takes along its rows, and writes nothing."""
    if any(c.op.op == "setelem" for c in _computes(node.body)):
        return False
    if any(v.type.dtype.kind == "f" for v, _ in node.entries):  # pyright: ignore[reportAttributeAccessIssue]
        return True
    return len(node.entries) > 1 and _tests_its_results(node)


def _tests_its_results(node: Repeat) -> bool:
    """Whether lanes part by what earlier iterations found, as in a search for the place of the least element."""
    carried = {mine.name for mine, _ in node.entries}
    for inner in node.body:
        if isinstance(inner, Compute) and any(isinstance(a, Var) and a.name in carried for a in inner.op.args):
            cond = inner.op.args[0]
            if inner.op.op == "select" and isinstance(cond, Var) and cond.name in carried:
                return True
            carried |= {r.name for r in inner.op.results}
        if isinstance(inner, Branch) and inner.varying and inner.cond.name in carried:  # pyright: ignore
            return True
    return False


def _along(variance: Variance, node: Repeat) -> Iterator[Op]:
    """The reads of a loop that differ from lane to lane and move by one element with its counter."""
    assert node.counter is not None
    if not variance.uniform(node.counter):
        return
    inside = {r.name for c in _computes(node.body) for r in c.op.results}
    inside |= {v.name for r in (node, *_repeats(node.body)) for v, _ in (*r.entries, *r.captures)}
    steps: dict[str, Step] = {node.counter.name: 1}

    def step(operand: Operand) -> Step:
        if isinstance(operand, Var):
            return steps.get(operand.name, None if operand.name in inside else 0)
        return 0

    for inner in node.body:
        if not isinstance(inner, Compute):
            continue
        op = inner.op
        if op.op == "getelem":
            tensor, *indices = op.args
            assert isinstance(tensor.type, TensorType)
            turned = not all(map(variance.uniform, indices)) and variance.uniform(indices[-1])
            if turned and access_step(tensor.type, indices, step) == 1:
                yield op
        elif op.op != "setelem" and op.results[0].name not in variance.form.slots:
            steps[op.results[0].name] = result_step(op, step)


# -- how they are read -------------------------------------------------------------------------------------------------


def read_squares(
    code: Code, tensor: Tensor, side: int, rows: Callable[[], list[Value]], masks: Sequence[Value | None],
    column: Index, phase: Value,
) -> list[Value]:  # fmt: skip
    """The vectors of one iteration, the `phase`-th of the squares that begin at `column` in phase 0.

    `rows` writes where the elements of the lanes lie, a vector of addresses for each mask; those of lanes that are not
    in it may be anything.  Some lane is in one.
    """
    line = side * tensor.dtype.bytes
    squares = [code.alloca(I8, "squares", LINES * line, align=64) for _ in masks]
    with code.when(code.compare("==", phase, 0)):
        left = as_i64(code.sub(tensor.extents[-1], column))
        square = _squares_function(code.module, side, tensor.dtype.bytes)
        for target, table in zip(squares, _tables(code, rows(), masks), strict=True):
            code.b.call(square, [target, table, left])
    at = code.mul(phase, line)
    return [load(code, code.offset(target, at), tensor.dtype, side, None) for target in squares]


def _tables(code: Code, rows: Sequence[Value], masks: Sequence[Value | None]) -> list[Value]:
    """Addresses in memory; for lanes that are not in the masks that of one which is."""
    b, typ = code.b, rows[0].type
    first = code.alloca(I64, "rows", typ.count * len(rows), align=64)
    tables = [code.offset(first, 8 * typ.count * p) for p in range(len(rows))]
    for table, places in zip(tables, rows, strict=True):
        b.store(places, table)
    bits: Value = number(I64, 0)
    for p, mask in enumerate(masks):
        if mask is not None:
            here = b.zext(b.bitcast(mask, ir.IntType(typ.count)), I64)
            bits = b.or_(bits, b.shl(here, number(I64, p * typ.count)))
    if any(mask is not None for mask in masks):
        lane = call_intrinsic(b, "cttz", I64, bits, number(I1, True), overloads=(I64,))
        one = splat(b, b.load(code.offset(first, code.mul(lane, 8)), typ=PTR), typ.count)
        for table, places, mask in zip(tables, rows, masks, strict=True):
            b.store(places if mask is None else b.select(mask, places, one), table)
    return tables


def _squares_function(module: ir.Module, side: int, size: int) -> ir.Function:
    """`void squares(to, rows, left)`: element k of row r (`rows` is a table of their addresses) to place r of line k,
    for up to `LINES` elements of rows that have `left`, squares that begin before their end."""
    name = f"pto.squares.{side}.{size}"
    if known := module.globals.get(name):
        return known
    function = ir.Function(module, ir.FunctionType(VOID, [PTR, PTR, I64]), name)
    function.linkage = "internal"
    for attribute in ("noinline", "nounwind"):
        function.attributes.add(attribute)
    to, rows, left = function.args
    code, dtype = Code(function, number(I64, 0)), _WORDS[size]
    places = [code.b.load(code.offset(rows, k * 8), typ=PTR) for k in range(side)]

    def lines(first: Value, mask: Value | None) -> list[Value]:
        distance = code.mul(first, size)
        return [load(code, code.offset(place, distance), dtype, side, mask) for place in places]

    def part(first: Value) -> list[Value]:
        many = splat(code.b, code.b.trunc(code.sub(left, first), I32), side)
        return lines(first, code.b.icmp_signed("<", numbers(I32, tuple(range(side))), many))

    def square(first: Value, _: list[Value]) -> list[Value]:
        whole = code.compare("<=", code.add(first, side), left)
        turned = transposed(code, code.choose(whole, lambda: lines(first, None), lambda: part(first)))
        for k, line in enumerate(turned):
            at = code.mul(code.add(first, k), side * size)
            code.b.store(line, code.offset(to, at), align=side * size)
        return []

    code.loop(0, code.min(left, LINES), side, body=square, name=f"squares.{PLAIN}")
    code.b.branch(code.leave)
    code.at(code.leave)
    code.b.ret_void()
    code.finish()
    return function
