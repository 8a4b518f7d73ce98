# SPDX-License-Identifier: MIT
"""Loops that go on behind the end of a tensor, where what they load is tiles without elements.

Instructions take no such tiles, and the core would stop.  What remains of an iteration there is known beforehand
(`nothing`).

Before::

    FOR %j:idx, %first:idx, %stop:idx, 64:idx                // %stop is %i + 128, %x has %n rows
      %t = tload %x[%j, 0] [64, 32]
      %sum = tsum %t {axes=(0,), keepdims=true}
      %acc = tadd %acc, %sum
    ENDFOR

After::

    %end = smin %stop, %n
    FOR %j:idx, %first:idx, %end:idx, 64:idx
      ...
    ENDFOR
    FOR %j.1:idx, %behind:idx, %stop:idx, 64:idx             // %behind: the first place that is not before %n
      %sum.1 = tfull 0.0:f32, [1, 32]
      %acc = tadd %acc, %sum.1
    ENDFOR

This is done to loops up to a sum of the variable of a loop around them and a constant, as in causal attention, unless
their steps show that they stay inside; a loop of which something else is done with such tiles is left as it is.
"""

from __future__ import annotations

import math

from pto_jit.ir.nodes import Block, Const, For, Func, Op, Operand, Stmt, Var
from pto_jit.ir.types import TensorType, TileType
from pto_jit.ir.walk import def_counts, defs, rename, rewrite_block, statements
from pto_jit.lower.names import Names, Scalars, index
from pto_jit.slotted import replace
from pto_jit.targets.ascend.nothing import Extents, what_is_left


def without_tiles_behind(func: Func, dims: dict[str, tuple[str, int]]) -> Func:
    """The kernel with such loops in two parts; dims: which parameters are extents of which tensors."""
    if not any(isinstance(s, For) and isinstance(s.stop, Var) for s in statements(func.body)):
        return func
    kernel = _Kernel(func, dims)
    body = rewrite_block(func.body, lambda s: kernel.divided(s) if isinstance(s, For) else None, plain=False)
    return func if body is func.body else replace(func, body=(*kernel.before.values(), *body))


class _Kernel:
    def __init__(self, func: Func, dims: dict[str, tuple[str, int]]) -> None:
        self.func, self.counts = func, def_counts(func.body)
        self.given = {p.name for p in func.params}
        self.dims = dims
        self.extents = {dims[p.name]: p for p in func.params if p.name in dims}
        self.measures: dict[str, Op] = {}  # what gives those that the kernel is not given
        self.before: dict[str, Op] = {}  # of these, what loops in two parts read
        flat = list(statements(func.body))
        self.made = {s.results[0].name: s for s in flat if isinstance(s, Op) and len(s.results) == 1}
        self.loops = {s.var.name: s for s in flat if isinstance(s, For)}
        self._names: Names | None = None

    def divided(self, loop: For) -> Block | None:
        if loop.reductions or not isinstance(loop.step, Const) or loop.step.value <= 0 or self.stays_inside(loop):
            return None
        extent = next((n for s in loop.body if (n := self.end_of(s, loop.var.name)) is not None), None)
        rest = None if extent is None else self.behind(loop, extent)
        if extent is None or rest is None:
            return None
        self._names = self._names or Names(self.func)
        numbers = Scalars(self._names, loop.loc)
        if isinstance(extent, Var) and extent.name in self.measures:
            self.before[extent.name] = self.measures[extent.name]
        end = numbers.op("min", loop.stop, extent, f"{loop.var.name}_end")
        inside = replace(loop, stop=end)
        if not rest:
            return (*numbers.done(), inside)
        step = int(loop.step.value)
        left = numbers.op("max", numbers.op("sub", extent, loop.start, "left"), index(0), "left")
        steps = numbers.op("floordiv", numbers.op("add", left, index(step - 1), "left"), index(step), "steps")
        first = numbers.op("add", loop.start, numbers.op("mul", steps, loop.step, "length"), f"{loop.var.name}_behind")
        own = {v.name for s in statements((loop,)) for v in defs(s) if self.counts[v.name] <= 1}
        fresh = {name: self._names.fresh(name).name for name in sorted(own)}
        behind = replace(loop, start=first, body=rest)
        return (*numbers.done(), inside, *rename((behind,), fresh))

    def stays_inside(self, loop: For) -> bool:
        """Whether a loop does not go up to a sum of the variable of a loop around it and more than that lets it reach:
        all its places, and where it ends, are multiples of something."""
        stop = self.made.get(loop.stop.name) if isinstance(loop.stop, Var) else None
        if stop is None or stop.op != "add" or self.counts[stop.results[0].name] != 1:
            return True
        place, more = stop.args
        if not isinstance(place, Var) or place.name not in self.loops or not isinstance(more, Const):
            return True
        common = math.gcd(self.divisor(loop.start), self.divisor(loop.step), self.divisor(loop.stop))
        return int(more.value) <= common

    def divisor(self, operand: Operand) -> int:
        """What a number is a multiple of."""
        if isinstance(operand, Const):
            return abs(int(operand.value))
        if self.counts[operand.name] != 1:
            return 1
        loop, op = self.loops.get(operand.name), self.made.get(operand.name)
        if loop is not None:
            return math.gcd(self.divisor(loop.start), self.divisor(loop.step))
        if op is None or op.op not in ("add", "sub", "mul"):
            return 1
        a, b = (self.divisor(x) for x in op.args)
        return a * b if op.op == "mul" else math.gcd(a, b)

    def end_of(self, stmt: Stmt, var: str) -> Operand | None:
        """Of a load at the places of a loop, the extent of the tensor."""
        axis = _axis_of(stmt, var)
        if axis is None:
            return None
        assert isinstance(stmt, Op) and isinstance(stmt.args[0], Var)
        tensor, view = stmt.args[0], self.made.get(stmt.args[0].name)
        if view is not None:
            if view.op != "view" or not isinstance(view.args[0].type, TensorType):
                return None
            rank = view.args[0].type.rank
            axis = [a for a in range(rank) if a not in (view.attr("drop") or ())][axis]  # type: ignore[operator]
            begin, extent = view.args[1 + axis], view.args[1 + rank + axis]
            return extent if begin == index(0) and self._is_given(extent) else None
        known = tensor.type.shape[axis]  # type: ignore[union-attr]
        return index(known) if known is not None else self._extent(tensor, axis)

    def _extent(self, tensor: Var, axis: int) -> Var:
        """The extent of a tensor that the kernel is given: a number that it is given, too, or one of its own."""
        known = self.extents.get((tensor.name, axis))
        if known is None:
            self._names = self._names or Names(self.func)
            known = self.extents[tensor.name, axis] = self._names.fresh(f"{tensor.name}_d{axis}")
            attrs = (("axis", axis),)
            self.measures[known.name] = Op("dim", (known,), (tensor,), attrs, (), self.func.loc)
        return known

    def _is_given(self, extent: Operand) -> bool:
        """Whether a number is known before the loops."""
        return isinstance(extent, Const) or extent.name in self.given or any(
            isinstance(s, Op) and s.results == (extent,) and s.op == "dim" for s in self.func.body
        )  # fmt: skip

    def behind(self, loop: For, extent: Operand) -> Block | None:
        """What an iteration does where the tiles that it loads up to an extent have no elements; None where that is not
        known."""

        def starts(op: Op) -> frozenset[int]:
            axis = _axis_of(op, loop.var.name)
            if axis is None or self.end_of(op, loop.var.name) != extent:
                return frozenset()
            return frozenset([axis - op.results[0].type.rank])  # type: ignore[union-attr]

        return what_is_left(loop.body, starts, self.func, Extents(self.func, self.dims))


def _axis_of(stmt: Stmt, var: str) -> int | None:
    """The axis along which a load follows a loop's variable, several elements at a time."""
    if not isinstance(stmt, Op) or stmt.op != "load" or stmt.attr("pad") or stmt.attr("inside"):
        return None
    rank = stmt.args[0].type.rank  # type: ignore[union-attr]
    typ = stmt.results[0].type
    if not isinstance(typ, TileType) or typ.rank != rank:
        return None
    for axis, offset in enumerate(stmt.args[1 : 1 + rank]):
        if isinstance(offset, Var) and offset.name == var and typ.shape[axis] != 1:
            return axis
    return None
