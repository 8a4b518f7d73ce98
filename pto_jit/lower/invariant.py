# SPDX-License-Identifier: MIT
"""Compute products that are the same in every iteration of a loop once, before it (loop-invariant code motion).

Before::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?x8,f32>, %b: !pto.memref<gm,8x64,f32>, %c: !pto.memref<gm,64x8,f32>, %n: i64) {
      %y = talloc [%n, 8] {dtype=f32} : !pto.memref<gm,?x8,f32>
      FOR %i:idx, 0:idx, %n:idx, 8:idx
        %p = tload %x[%i, 0] [8, 8] : !pto.tile<8x8xf32>
        %q = tload %b[0, 0] [8, 64] : !pto.tile<8x64xf32>
        %r = tload %c[0, 0] [64, 8] : !pto.tile<64x8xf32>
        %s = tdot %q, %r : !pto.tile<8x8xf32>
        %t = tdot %p, %s : !pto.tile<8x8xf32>
        tstore %t, %y[%i, 0]
      ENDFOR
      return
    }

After::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?x8,f32>, %b: !pto.memref<gm,8x64,f32>, %c: !pto.memref<gm,64x8,f32>, %n: i64) {
      %y = talloc [%n, 8] {dtype=f32} : !pto.memref<gm,?x8,f32>
      %q = tload %b[0, 0] [8, 64] : !pto.tile<8x64xf32>
      %r = tload %c[0, 0] [64, 8] : !pto.tile<64x8xf32>
      %s = tdot %q, %r : !pto.tile<8x8xf32>
      FOR %i:idx, 0:idx, %n:idx, 8:idx
        %p = tload %x[%i, 0] [8, 8] : !pto.tile<8x8xf32>
        %t = tdot %p, %s : !pto.tile<8x8xf32>
        tstore %t, %y[%i, 0]
      ENDFOR
      return
    }

What a product is made of moves with it: reads of memory that the loop does not write, and operations on them.  (Other
operations on tiles stay: where they are, they are fused with what reads them.)  A product whose operands may turn out
not to fit moves to where the loop is known to have an iteration, so that the error is raised when it was before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pto_jit.ir.nodes import Block, Break, Const, Continue, For, Func, If, Module, Op, Operand, Return, Stmt, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import block_defs, blocks, def_counts, map_funcs, rename, statements, use_counts, with_blocks
from pto_jit.lower.complete import loaded_axes
from pto_jit.lower.decisions import Decision
from pto_jit.lower.dependence import Dependences, may_alias
from pto_jit.lower.names import BOOL, Names, source_name
from pto_jit.semantic.table import effects, is_elementwise, is_generator, tensor_arg
from pto_jit.slotted import replace


def hoist_products(module: Module, decisions: list[Decision]) -> Module:
    """Move products out of the loops that they do not depend on; each one is a `Decision`."""

    def transform(func: Func) -> Func:
        loops = [s for s in statements(func.body) if isinstance(s, For)]
        if not any(isinstance(s, Op) and s.op == "dot" for loop in loops for s in loop.body):
            return func
        body = _Hoister(func, module, decisions).block(func.body)
        return func if body is func.body else replace(func, body=body)

    return map_funcs(module, transform)


class Invariants:
    """Which operations of a loop give the same in every iteration, and may be done before the first."""

    def __init__(self, func: Func, module: Module) -> None:
        self.dependences = Dependences(func, module)
        self.counts = Counter(def_counts(func.body))

    def of(self, source: For, loop: For | None = None, *, at_most: bool = False) -> dict[str, Op]:
        """Those of the body by their results, in its order, up to where an iteration may end; `source` is the loop as
        the function has it, `loop` what became of it.  `at_most`: as if the loop wrote no memory, which is quick."""
        body = source.body if loop is None else loop.body
        inside, movable = block_defs(body) | {source.var.name}, dict[str, Op]()
        for stmt in body:
            if any(isinstance(s, (Break, Continue, Return)) for s in statements((stmt,))):
                break  # what follows is not computed in every iteration
            if not isinstance(stmt, Op) or len(stmt.results) != 1 or not self._is_alike(stmt, inside, movable):
                continue
            if at_most or effects(stmt.op) == "none" or not self._is_written(stmt, source):
                movable[stmt.results[0].name] = stmt
        return movable

    def _is_alike(self, op: Op, inside: set[str], movable: Mapping[str, Op]) -> bool:
        """Whether an operation is one, when these are, if it reads no memory that the loop writes."""
        if op.regions or op.op in ("alloc", "copy") or self.counts[op.results[0].name] != 1:
            return False
        if any(isinstance(a, Var) and a.name in inside and a.name not in movable for a in op.args):
            return False
        return effects(op.op) != "writes"

    def _is_written(self, op: Op, source: For) -> bool:
        """Whether the loop may write to the memory that an operation reads."""
        position, found = tensor_arg(op.op), self.dependences.found
        loop = found.loop_of(source)
        if position is None or loop is None:
            return True
        tensor = op.args[position]
        roots = {a.root for a in found.accesses if isinstance(a.op, Op) and _tensor(a.op) == tensor}
        if len(roots) != 1:
            return True
        (root,) = roots
        return any(a.write and may_alias(a.root, root) for a in found.inside(loop))


class _Hoister:
    def __init__(self, func: Func, module: Module, decisions: list[Decision]) -> None:
        self.invariants = Invariants(func, module)
        self.counts = self.invariants.counts
        self.decisions = decisions
        self.names = Names(func)
        self.uses = Counter(use_counts(func.body))
        self.made = {r.name: s for s in statements(func.body) if isinstance(s, Op) for r in s.results}

    def block(self, block: Block) -> Block:
        result: list[Stmt] = []
        for stmt in block:
            inner = blocks(stmt)
            new = with_blocks(stmt, tuple(map(self.block, inner))) if inner else stmt
            if isinstance(stmt, For) and isinstance(new, For) and not stmt.checked:
                result += self.loop(stmt, new)
            else:
                result.append(new)
        return block if len(block) == len(result) and all(map(_same, block, result)) else tuple(result)

    def loop(self, source: For, loop: For) -> Block:
        """A loop behind its products; `source` is the loop as the function has it."""
        hoisted: list[Op] = []
        while (found := self._product(source, loop)) is not None:
            product, cone = found
            moved, loop = self._moved(cone, loop)
            hoisted += moved
            reason = "a product that is the same in every iteration is computed once, before the loop"
            self.decisions.append(Decision("hoist", (source_name(loop.var.name),), True, reason, product.loc))
        if not hoisted:
            return (loop,)
        some = _runs(loop)
        if some is True or all(map(self._is_sure, hoisted)):
            return (*hoisted, loop)
        assert isinstance(some, str)
        runs = self.names.fresh("some", BOOL)
        return Op(some, (runs,), (loop.start, loop.stop), loc=loop.loc), If(runs, (*hoisted, loop), loc=loop.loc)

    def _product(self, source: For, loop: For) -> tuple[Op, list[Op]] | None:
        """A product that every iteration computes alike, and all that it is made of in the loop, itself last."""
        if not any(op.op == "dot" for op in self.invariants.of(source, loop, at_most=True).values()):
            return None
        movable = self.invariants.of(source, loop)
        for op in movable.values():
            if op.op == "dot":
                cone = _cone(op, movable)
                if _runs(loop) is not None or all(map(self._is_sure, cone)):
                    return op, cone
        return None

    def _is_sure(self, op: Op) -> bool:
        """Whether an operation is known to raise no error."""
        if op.op == "dot":
            plain = len(op.args) == 2 and all(isinstance(a.type, TileType) and a.type.rank == 2 for a in op.args)
            return plain and self._is_complete(op.args[0], 1) and self._is_complete(op.args[1], 0)
        if op.op in ("load", "view"):
            numbers = op.args[1:-1] if op.attr("pad") else op.args[1:]
            return all(map(self._is_extent, numbers))
        return op.op in ("dim", "transpose", "cast") or (len(op.args) == 1 and is_elementwise(op.op, 1))

    def _is_extent(self, operand: Operand) -> bool:
        """Whether a number is known not to be negative."""
        if isinstance(operand, Const):
            return operand.value >= 0
        made = self.made.get(operand.name)
        return made is not None and made.op == "dim" and self.counts[operand.name] == 1

    def _is_complete(self, operand: Operand, axis: int) -> bool:
        """Whether all of the declared extent along an axis is constant and valid."""
        if not isinstance(operand, Var) or not isinstance(operand.type, TileType):
            return False
        op = self.made.get(operand.name)
        if op is None or self.counts[operand.name] != 1 or operand.type.shape[axis] is None:
            return False
        match op.op:
            case "load":
                return loaded_axes(op)[axis]
            case "dot" if operand.type.rank == 2:
                return self._is_complete(op.args[axis], axis)
            case "transpose":
                axes = op.attr("axes")
                assert isinstance(axes, tuple)
                return self._is_complete(op.args[0], int(axes[axis]))  # type: ignore[arg-type]
            case _:
                return is_generator(op.op)

    def _moved(self, cone: list[Op], loop: For) -> tuple[list[Op], For]:
        """What a product is made of, itself last, for before a loop, and the loop without it; operations that have
        other readers there are done again."""
        alone = use_counts(tuple(cone))
        names = [op.results[0].name for op in cone[:-1]]
        again = {n: self.names.fresh(n, self.made[n].results[0].type).name for n in names if self.uses[n] > alone[n]}
        moved = [op for op in rename(tuple(cone), again) if isinstance(op, Op)]
        for old, op in zip(cone, moved, strict=True):
            (result,) = op.results
            self.made[result.name], self.counts[result.name] = op, 1
            if old.results[0].name in again:  # what it is made of is read once more
                self.uses.update(a.name for a in old.args if isinstance(a, Var))
        for old, new in again.items():
            self.uses[old] -= alone[old]
            self.uses[new] = alone[old]
        gone = {id(op) for op in cone if op.results[0].name not in again}
        return moved, replace(loop, body=tuple(s for s in loop.body if id(s) not in gone))


def _same(a: Stmt, b: Stmt) -> bool:
    return a is b


def _cone(product: Op, movable: dict[str, Op]) -> list[Op]:
    """What a product is made of, in the order of the body, itself last."""
    wanted, found = {product.results[0].name}, []
    for name, op in reversed(movable.items()):
        if name in wanted:
            found.append(op)
            wanted |= {a.name for a in op.args if isinstance(a, Var)}
    return found[::-1]


def _runs(loop: For) -> str | bool | None:
    """True if a loop has an iteration, else the comparison of its bounds that says so; None: there is none."""
    if not isinstance(loop.step, Const) or loop.step.value == 0:
        return None
    rises = loop.step.value > 0
    if isinstance(loop.start, Const) and isinstance(loop.stop, Const):
        some = loop.start.value < loop.stop.value if rises else loop.start.value > loop.stop.value
        return True if some else None
    return "lt" if rises else "gt"


def _tensor(op: Op) -> Operand | None:
    position = tensor_arg(op.op)
    return None if position is None else op.args[position]
