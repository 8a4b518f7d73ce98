# SPDX-License-Identifier: MIT
"""The explicit form of a reduction over a loop: `pl.reduction`, `update` and `value`.

A loop carries the state like any variable, and `update` compiles the combine function in place.  For a parallel loop
the function is compiled once more, over two states, so that later passes can merge partial results with it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.promote import tile_of
from pto_jit.codegen.iteration import static_value
from pto_jit.codegen.merging import Disagreement, Phi, combine, describe, joined_type, operand_of
from pto_jit.codegen.names import LoopNames
from pto_jit.codegen.regions import Target
from pto_jit.codegen.values import Scalar, Tensor, Tile
from pto_jit.errors import CompilationError, Loc, Note, TypeMismatchError
from pto_jit.ir.nodes import Op, Operand, Reduction, Region, Var
from pto_jit.ir.types import ScalarType
from pto_jit.semantic.checks import describe as type_text
from pto_jit.semantic.rules import effects

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


class ReductionState:
    """`pl.reduction(init=, combine=)`: a state that `update` combines into, carried by loops like a variable."""

    __slots__ = ("combine", "finished", "generator", "holder", "init", "loc", "node", "open", "single", "static_loops")

    def __init__(self, g: Generator, init: Any, combine: Callable[..., Any]) -> None:
        self.generator = g
        self.combine = combine
        self.init = init
        self.single = not isinstance(init, tuple)
        self.loc: Loc = g.e.loc
        self.node: ast.AST | None = g.node  # of the last update
        self.static_loops = g.static_loops
        self.open: list[tuple[str, Loc]] = []  # kinds and places of the run-time loops being compiled that update it
        self.finished: tuple[str, Loc] | None = None  # the outermost loop that has updated it
        self.holder = Target("value", g.depth, len(g.loops))
        self.holder.vars["value"] = init
        if g.node is not None:
            self.holder.places["value"] = g.node

    @property
    def value(self) -> Any:
        for kind, loc in self.open:
            if kind == "parallel":
                raise self._error(
                    "`value` is read inside a parallel loop that updates the reduction",
                    "PTO-L007",
                    "read it after the loop: inside there are only partial results",
                    Note("this loop updates it", loc),
                )
        return self.holder.vars["value"]

    def update(self, *values: Any) -> None:
        g = self.generator
        if len(g.loops) <= self.holder.loops and g.static_loops <= self.static_loops:
            raise self._error("`update` stands outside of a loop", "PTO-L006", "update a reduction in a loop after it")
        state = self.holder.vars["value"]
        count = 1 if self.single else len(state)
        if len(values) != count:
            raise g.error(
                TypeMismatchError,
                f"`update` takes {count} value{'s' if count > 1 else ''} like `init`, not {len(values)}",
                code="PTO-T008",
                hint="give one new value per item of `init`",
                notes=(Note("`init` stands here", self.loc),),
            )
        self.node = g.node
        new = g.inline(self.combine, (state, values[0] if self.single else tuple(values)), {})
        self._check(new, count)
        g.bind(self.holder, "value", new, g.node)

    update.__pto_native__ = True  # type: ignore[attr-defined]

    def _check(self, new: Any, count: int) -> None:
        if not self.single and (not isinstance(new, tuple) or len(new) != count):
            raise self.generator.error(
                TypeMismatchError,
                f"the combine function returns no tuple of {count} values",
                code="PTO-T009",
                hint="it takes two states and returns one",
                notes=(Note("`init` stands here", self.loc),),
            )

    def _error(self, message: str, code: str, hint: str, *notes: Note) -> CompilationError:
        where = Note("the reduction is made here", self.loc)
        return self.generator.error(CompilationError, message, code=code, hint=hint, notes=(*notes, where))

    # -- loops that update it ---------------------------------------------------------------------------------------

    def enter(self, kind: str, loc: Loc) -> None:
        """A run-time loop that updates the state begins."""
        before = self.finished
        if not self.open and before is not None and "parallel" in (kind, before[0]):
            raise CompilationError(
                "a reduction is updated in two loops, and one of them is parallel",
                loc,
                code="PTO-L008",
                hint="make a `pl.reduction` for each loop and combine their values",
                notes=(Note("the other loop", before[1]), Note("the reduction is made here", self.loc)),
            )
        self.open.append((kind, loc))

    def leave(self) -> None:
        """The loop ends."""
        loop = self.open.pop()
        if not self.open:
            self.finished = loop

    def node_of(self, header: Any, phis: Sequence[Phi]) -> Reduction:
        """The IR of the reduction, for a loop that carries the state in the variables of `phis`."""
        g = self.generator
        before, g.node = g.node, self.node
        left, params = _on_parameters(g, header, phis, "left")
        right, more = _on_parameters(g, header, phis, "right")

        def finish(value: Any) -> tuple[Operand, ...]:
            g.node = self.node
            self._check(value, 1 if self.single else len(self.init))
            return self._operands(value, header, phis)

        block, results = g.choices.function_block(self.combine, (left, right), finish)
        init = self._operands(self.init, header, phis)
        g.node = before
        return Reduction(tuple(p.var for p in phis), init, Region((*params, *more), tuple(block), results))

    def _operands(self, value: Any, header: Any, phis: Sequence[Phi]) -> tuple[Operand, ...]:
        """The numbers and tiles of a state as operands of the types that the loop carries."""
        g = self.generator
        found: list[Operand] = []

        def leaf(items: Sequence[Any]) -> Any:
            phi = _phi(items[0], phis)
            if phi is not None:
                kind, _ = joined_type([_settled(items[0], phi), items[1]])
                if isinstance(kind, ScalarType) and kind != phi.var.type:
                    raise Disagreement(f"{type_text(phi.var.type)} and {describe(items[1])}", "keep one dtype")
                found.append(operand_of(g.e, items[1], phi.var.type))
            return items[0]

        try:
            combine([header, value], leaf, every=True)
        except Disagreement as problem:
            raise g.error(
                TypeMismatchError,
                f"the combine function changes the type of the state: {problem.message}",
                code="PTO-T001",
                hint=problem.hint or "it takes two states and returns one of the same types",
                notes=(Note("`init` stands here", self.loc),),
            ) from None
        return tuple(found)


def _phi(value: Any, phis: Sequence[Phi]) -> Phi | None:
    operand = value.operand if isinstance(value, Scalar) else value.var if isinstance(value, Tile) else None
    return next((p for p in phis if isinstance(operand, Var) and p.var.name == operand.name), None)


def _settled(value: Any, phi: Phi) -> Any:
    return Scalar(phi.var, phi.weak, value.origin) if isinstance(value, Scalar) else value


def _on_parameters(g: Generator, header: Any, phis: Sequence[Phi], name: str) -> tuple[Any, list[Var]]:
    """A state like `header` in fresh variables."""
    made = {p.var.name: g.e.fresh(name, p.var.type) for p in phis}

    def leaf(items: Sequence[Any]) -> Any:
        phi = _phi(items[0], phis)
        if phi is None:
            return items[0]
        var = made[phi.var.name]
        if isinstance(items[0], Tile):
            return g.e.note(Tile(var, items[0].extents, False, items[0].origin))
        if phi.weak:
            g.e.weak.add(var.name)
        return Scalar(var, phi.weak, items[0].origin)

    return combine([header], leaf, every=True), [made[p.var.name] for p in phis]


def reduction(g: Generator, init: Any = None, combine: Any = None) -> ReductionState:
    """The handler of `pl.reduction`."""
    if init is None or not callable(combine):
        raise g.error(
            CompilationError,
            "pl.reduction takes `init=` and `combine=`, a function of two states",
            code="PTO-N016",
            hint="pl.reduction(init=(m0, l0), combine=fn)",
        )
    init = tuple(_initial(g, item) for item in init) if isinstance(init, tuple) else _initial(g, init)
    return ReductionState(g, init, combine)


def _initial(g: Generator, value: Any) -> Any:
    """An item of `init`: `pl.zeros` at the top level of a kernel made a tensor, the state is a tile."""
    if not isinstance(value, Tensor):
        return value
    made = g.e.allocated.get(value.var.name)
    for stmt in reversed(g.e.current):
        if made is not None and stmt is made and made.attr("filled"):
            return g.e.tile("full", [made.args[-1], *value.extents], extents=value.extents, generated=True)
        if not isinstance(stmt, Op) or effects(stmt.op) != "none":
            break  # it may have been written
    return tile_of(g, value, "init")


def updated_reductions(g: Generator, names: LoopNames) -> list[ReductionState]:
    """The reductions that a loop body updates."""
    found: list[ReductionState] = []
    for node in names.updates:
        value = static_value(g, node)
        if isinstance(value, ReductionState) and value not in found:
            found.append(value)
    return found
