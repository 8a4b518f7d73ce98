# SPDX-License-Identifier: MIT
"""Values decided at run time: conditional expressions, `and`/`or`, and functions as IR regions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen import builtins
from pto_jit.codegen.builtins.promote import value_of
from pto_jit.codegen.frames import MISSING, Unusable
from pto_jit.codegen.merging import describe
from pto_jit.codegen.names import set_by
from pto_jit.codegen.regions import Status, Target
from pto_jit.codegen.values import Scalar
from pto_jit.dtypes import bool_
from pto_jit.errors import CompilationError, Note, TypeMismatchError
from pto_jit.ir import nodes
from pto_jit.ir.nodes import Op, Operand, Stmt
from pto_jit.ir.types import ScalarType

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

# Operations that cannot fail and cost about as much as a branch: both sides of a choice may compute them.
CHEAP = frozenset(
    "add sub mul neg abs max min eq ne lt le gt ge and or xor not select cast dim extent valid copy square relu sign "
    "isnan isinf isfinite".split()
)
Run = Callable[[], Status]


class Choices:
    """Compiles expressions whose parts are computed on some paths only."""

    def __init__(self, generator: Generator) -> None:
        self.g = generator

    def both(self, value: Any, rest: Callable[[], Any], node: ast.AST, *, is_and: bool) -> Any:
        """`value and rest()` or `value or rest()`, computing the rest only when it decides."""
        g = self.g
        g.node = node
        cond = g.operators.truth(value)
        if not isinstance(cond, Scalar):
            return rest() if cond == is_and else value
        if not isinstance(value, Scalar) or value.dtype != bool_:
            sides = (rest, lambda: value) if is_and else (lambda: value, rest)
            return self.choose(cond, *sides, node, hold=True)
        return self._logical(value, rest, node, is_and)

    def _logical(self, value: Scalar, rest: Callable[[], Any], node: ast.AST, is_and: bool) -> Any:
        """Both sides bool: one `and`/`or` when computing the second side can do no harm."""
        g = self.g
        control = g.control
        region = control.open_region()
        block = g.e.push()
        other = rest()
        g.e.pop(block)
        changes = control.close_region(region)
        g.node = node
        if (
            not changes
            and cheap(block)
            and (isinstance(other, bool) or (isinstance(other, Scalar) and other.dtype == bool_))
        ):
            g.e.current.extend(block)
            if isinstance(other, bool):
                return value if other == is_and else other
            return g.e.scalar("and" if is_and else "or", [value.operand, other.operand], weak=value.weak and other.weak)
        branch_block = list(block)

        def replay() -> Any:
            g.e.current.extend(branch_block)
            control.apply(changes)
            return other

        sides = (replay, lambda: value) if is_and else (lambda: value, replay)
        return self.choose(value, *sides, node, hold=True)

    def reveal(self, test: ast.expr, truth: bool) -> None:
        """Where a test was `truth`, names that `and` and `or` in it have set then can be read."""
        g = self.g
        frame = g.frame.function
        for name in set_by(test, truth):
            value = frame.vars.get(name)
            if isinstance(value, Unusable) and value.held is not MISSING:
                g.bind(frame, name, value.held, frame.places.get(name))

    def choose(
        self, cond: Scalar, then: Callable[[], Any], orelse: Callable[[], Any], node: ast.AST, *, hold: bool = False
    ) -> Any:
        """`then if cond else orelse`: a `select` when both sides are cheap, else a branch (`hold`: of `merge_if`)."""
        g = self.g
        holder = Target("value", g.depth, len(g.loops))

        def side(value: Callable[[], Any]) -> Run:
            def run() -> Status:
                g.bind(holder, "value", value(), node)
                return None

            return run

        a, b = g.control.branch(side(then)), g.control.branch(side(orelse))
        g.node = node
        va, vb = a.changes[holder, "value"][0], b.changes[holder, "value"][0]
        scalars = all(isinstance(v, (Scalar, bool, int, float)) for v in (va, vb))
        if scalars and len(a.changes) == len(b.changes) == 1 and cheap(a.block) and cheap(b.block):
            g.e.current.extend([*a.block, *b.block])
            try:
                return builtins.call("where", g, (cond, va, vb), {})
            except TypeMismatchError:
                pass
        g.control.merge_if(cond, a, b, g.loc(node), None, hold=hold)
        value = holder.vars.get("value", MISSING)
        if isinstance(value, Unusable):
            raise g.error_at(node, TypeMismatchError, value.message.replace("`value` has", "this expression has"),
                             code="PTO-T002", hint=value.hint)  # fmt: skip
        return value

    def function_region(
        self, fn: Any, param_types: Sequence[ScalarType], pack: Callable[..., tuple[Any, ...]] | None
    ) -> tuple[nodes.Region, Any]:
        """A callable over scalars as an IR region."""
        g = self.g
        node = g.node
        params = [g.e.fresh("p", t) for t in param_types]
        scalars = [Scalar(p, False, g.e.loc) for p in params]
        operands: list[Operand] = []

        def finish(value: Any) -> Any:
            g.node = node
            for item in list(value) if isinstance(value, (tuple, list)) else [value]:
                number = value_of(g, item, "the function's result")
                if not isinstance(number, Scalar):
                    raise g.error(
                        TypeMismatchError,
                        f"`{g.function_name(fn)}` returns {describe(item)} where a number is expected",
                        code="PTO-T003",
                        hint="a function given to map, reduce or scan computes with single elements",
                    )
                operands.append(number.operand)
            return value

        block, value = self.function_block(fn, pack(*scalars) if pack else scalars, finish)
        return nodes.Region(tuple(params), tuple(block), tuple(operands)), value

    def function_block(self, fn: Any, args: Sequence[Any], finish: Callable[[Any], Any]) -> tuple[list[Stmt], Any]:
        """A call of a callable in a block of its own, and what `finish` makes of its value, in that block, too."""
        g = self.g
        region = g.control.open_region()
        loops, g.loops = g.loops, []
        targets, g.targets = g.targets, []
        block = g.e.push()
        value = finish(g.inline(fn, args, {}))
        g.e.pop(block)
        g.loops, g.targets = loops, targets
        for holder, name in g.control.close_region(region):
            raise g.error(
                CompilationError,
                f"`{g.function_name(fn)}` changes `{name}`, a variable of the code around it",
                code="PTO-N013",
                hint="a function given to map, reduce, scan or reduction only computes results from its arguments",
                notes=(Note("the variable", g.loc(holder.places[name])),) if name in holder.places else (),
            )
        return block, value


def cheap(block: Sequence[Stmt]) -> bool:
    return len(block) <= 4 and all(
        isinstance(s, Op) and s.op in CHEAP and all(isinstance(r.type, ScalarType) for r in s.results) for s in block
    )
