# SPDX-License-Identifier: MIT
"""What a loop runs over, and how to tell from the source whether a loop is decided at compile time."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from pto_jit.codegen.builtins.promote import quoted
from pto_jit.codegen.frames import MISSING, KernelFunction, Unusable
from pto_jit.codegen.marks import mark
from pto_jit.codegen.names import FUNCTIONS, LoopNames, stores
from pto_jit.codegen.values import Scalar, is_runtime
from pto_jit.errors import CompilationError, ScheduleError, TypeMismatchError
from pto_jit.language._annotations import not_a_symbol
from pto_jit.slotted import frozen

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


@frozen
class LoopSpec:
    """The value of `pl.range(...)`, and of `range(...)` with run-time bounds."""

    start: Any
    stop: Any
    step: Any = 1
    kind: str = "sequential"  # or "parallel"
    chunk: Any = None
    policy: str = "leading_full"
    combine: str = "sequential"
    place: ast.AST | None = None

    def __iter__(self) -> NoReturn:
        raise CompilationError(
            "a run-time range is iterated at compile time",
            code="PTO-N051",
            hint="loop over it with `for`, or give bounds that are known at compile time",
        )


def loop_spec(
    g: Generator,
    *bounds: Any,
    parallel: Any = None,
    chunk: Any = None,
    chunk_policy: Any = "leading_full",
    combine: Any = "sequential",
) -> LoopSpec:
    """Check the arguments of `pl.range`."""
    if not 1 <= len(bounds) <= 3:
        raise g.error(
            TypeMismatchError,
            f"pl.range takes 1 to 3 bounds, not {len(bounds)}",
            code="PTO-T006",
            hint="pl.range(end), pl.range(start, end) or pl.range(start, end, step)",
        )
    whole = [_integer(g, "a bound of a loop", b) for b in bounds]
    start, stop = (0, whole[0]) if len(whole) == 1 else whole[:2]
    step = whole[2] if len(whole) == 3 else 1
    if isinstance(step, int) and step == 0:
        raise g.error(ScheduleError, "the step of a loop is 0", code="PTO-L010", hint="a step is positive or negative")
    is_parallel = g.static(parallel, "parallel=")
    policy, merge = g.static(chunk_policy, "chunk_policy="), g.static(combine, "combine=")
    if policy not in ("leading_full", "aligned"):
        raise g.error(ScheduleError, f"unknown chunk_policy {quoted(policy)}", code="PTO-L011",
                      hint='write "leading_full" or "aligned"')  # fmt: skip
    if merge not in ("sequential", "tree", "loop"):
        raise g.error(ScheduleError, f"unknown combine {quoted(merge)}", code="PTO-L012",
                      hint='write "sequential", "tree" or "loop"')  # fmt: skip
    if chunk is not None:
        if is_parallel is not None and not is_parallel:
            raise g.error(ScheduleError, "`parallel=False` together with `chunk=`", code="PTO-L013",
                          hint="a chunked loop is parallel: leave one of the two out")  # fmt: skip
        if isinstance(chunk, (bool, np.bool_)) or not isinstance(chunk, (int, np.integer, Scalar)) or (
            isinstance(chunk, Scalar) and not chunk.dtype.is_integer
        ):  # fmt: skip
            raise g.error(ScheduleError, "a chunk is not an integer", code="PTO-L014",
                          hint="give the number of iterations of a chunk")  # fmt: skip
        if not isinstance(chunk, Scalar):
            chunk = int(chunk)
            if chunk < 1:
                raise g.error(ScheduleError, f"a chunk of {chunk} iterations", code="PTO-L015",
                              hint="a chunk has at least one iteration")  # fmt: skip
        if isinstance(step, int) and step < 0:
            raise g.error(ScheduleError, f"`chunk=` with the negative step {step}", code="PTO-L016",
                          hint="count upwards in a chunked loop")  # fmt: skip
    kind = "parallel" if is_parallel or chunk is not None else "sequential"
    return LoopSpec(start, stop, step, kind, chunk, policy, merge)


def _integer(g: Generator, what: str, value: Any) -> Any:
    if isinstance(value, (np.integer, int)) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, Scalar) and value.dtype.is_integer:
        return value
    from pto_jit.codegen.merging import describe

    g.python(not_a_symbol, value)
    raise g.error(TypeMismatchError, f"{what} is {describe(value)}, not an integer", code="PTO-T007",
                  hint="convert it with `int(...)`", notes=g.origin(value))  # fmt: skip


def may_end(loop: ast.While) -> bool:
    """Whether a `while True` has a way out: a `break` of its own, a `return` or a `raise`."""
    stack: list[tuple[ast.AST, bool]] = [(stmt, True) for stmt in loop.body]
    while stack:
        node, own = stack.pop()
        if isinstance(node, (ast.Return, ast.Raise)) or (own and isinstance(node, ast.Break)):
            return True
        if isinstance(node, ast.stmt) and not isinstance(node, FUNCTIONS):
            inside = own and not isinstance(node, (ast.For, ast.While))
            stack += [(child, inside) for child in ast.iter_child_nodes(node)]
            if isinstance(node, (ast.For, ast.While)):
                stack += [(stmt, own) for stmt in node.orelse]
        elif isinstance(node, ast.match_case):
            stack += [(stmt, own) for stmt in node.body]
    return False


def trip_count(spec: LoopSpec) -> int | None:
    """The number of iterations when the bounds are constants."""
    if all(isinstance(v, int) for v in (spec.start, spec.stop, spec.step)):
        return len(range(spec.start, spec.stop, spec.step))
    return None


def reversed_loop(g: Generator, spec: LoopSpec) -> LoopSpec:
    """The iterations of a sequential loop with a constant step from the last to the first."""
    start, stop, step = spec.start, spec.stop, spec.step
    if spec.kind != "sequential" or spec.chunk is not None or not isinstance(step, int):
        raise g.error(CompilationError, "`reversed` of a loop whose iterations have no order, or a run-time step",
                      code="PTO-N071", hint="write a plain `range` with a constant step")  # fmt: skip

    def of(op: type[ast.operator], a: Any, b: Any) -> Any:
        return g.operators.operate(op, a, b)

    last = of(ast.Sub, stop, step)
    if abs(step) != 1:
        rounded = of(ast.FloorDiv, of(ast.Add, of(ast.Sub, stop, start), step - (1 if step > 0 else -1)), step)
        last = of(ast.Add, start, of(ast.Mult, of(ast.Sub, rounded, 1), step))
    return loop_spec(g, last, of(ast.Sub, start, step), -step)


def as_items(spec: LoopSpec) -> range | None:
    """The constants a loop runs over, for comprehensions."""
    return range(spec.start, spec.stop, spec.step) if trip_count(spec) is not None else None


def decides(g: Generator, loop: ast.For, name: str) -> bool:
    """Whether a branch in the loop's body would be decided at compile time if the loop variable `name` were known."""
    names = g.frame.names.loops[loop]
    if not any(name in read for _, read in names.tests):
        return False
    tainted = dict.fromkeys(names.assigned, True)
    tainted[name] = False
    return any(name in read and not may_be_runtime(g, test, tainted) for test, read in names.tests)


_DECIDABLE = (ast.Name, ast.Constant, ast.Attribute, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.cmpop, ast.boolop,
              ast.unaryop, ast.expr_context)  # fmt: skip


def untaken_branches(g: Generator, names: LoopNames) -> frozenset[ast.AST]:
    """Statements of branches in a loop that are certainly not taken, by conditions that the loop cannot change."""
    untaken: set[ast.AST] = set()
    assigned = frozenset(names.assigned)
    reads = dict(names.tests)
    for node in names.branches:
        if reads[node.test] & assigned:
            continue
        parts = list(ast.walk(node.test))
        if not all(isinstance(p, _DECIDABLE) for p in parts) or may_be_runtime(g, node.test, {}):
            continue
        if any(isinstance(p, ast.Name) and _unbound(g, p) for p in parts):
            continue
        before = g.node
        taken = g.python(bool, g.expressions.visit(node.test))
        g.node = before
        untaken.update(node.orelse if taken else node.body)
    return frozenset(untaken)


def _unbound(g: Generator, node: ast.Name) -> bool:
    value = g.resolve(g.frame, node.id)
    return value is MISSING or isinstance(value, Unusable)


# -- whether something may be a run-time value, before compiling it -------------------------------------------------


def may_be_runtime(g: Generator, node: ast.AST, tainted: dict[str, bool]) -> bool:
    """Whether an expression may have a run-time value; `tainted` are names that the code before it binds."""
    if isinstance(node, ast.Name):
        known = tainted.get(node.id)
        if known is not None:
            return known
        value = g.resolve(g.frame, node.id)
        return value is not MISSING and g.find_runtime(value) is not None
    if isinstance(node, (ast.Constant, *FUNCTIONS)):
        return False
    if isinstance(node, ast.Attribute) and node.attr in ("ndim", "dtype"):
        return False
    if isinstance(node, ast.Call) and _makes_runtime(g, node.func):
        return True
    return any(may_be_runtime(g, child, tainted) for child in ast.iter_child_nodes(node))


def _makes_runtime(g: Generator, node: ast.AST) -> bool:
    """Whether a called expression is an operation of the language, or a function that may use one."""
    value = static_value(g, node)
    name = mark(value, "__pto_builtin__")
    if name is not None:
        return name not in ("static", "range", "static_range")
    return isinstance(value, KernelFunction) or mark(value, "__pto_incore__") is not None


def static_value(g: Generator, node: ast.AST) -> Any:
    """The object that a name or a chain of attributes means, without compiling anything; None when unknown."""
    if isinstance(node, ast.Name):
        value = g.resolve(g.frame, node.id)
        return None if value is MISSING else value
    if isinstance(node, ast.Attribute):
        base = static_value(g, node.value)
        if base is None or is_runtime(base):
            return None
        try:
            return getattr(base, node.attr, None)
        except Exception:  # a property of a user's object may raise anything
            return None
    return None


def runtime_guard(g: Generator, loop: ast.While) -> bool:
    """Whether a `while True` is left by a decision made at run time."""
    tainted: dict[str, bool] = {}
    for _ in range(2):  # twice: a name may depend on one that is assigned further down
        for stmt in loop.body:
            _taint(g, stmt, False, tainted)
    return any(_guarded(g, stmt, False, tainted, own=True) for stmt in loop.body)


def _taint(g: Generator, node: ast.AST, runtime: bool, tainted: dict[str, bool]) -> None:
    """Note which names `node` binds to values that may be run-time ones; `runtime`: under a run-time decision."""
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value:
        read = [node.value, node.target] if isinstance(node, ast.AugAssign) else [node.value]
        found = runtime or any(may_be_runtime(g, value, tainted) for value in read)
        for name in stores(node.targets if isinstance(node, ast.Assign) else [node.target]):
            tainted[name] = tainted.get(name, False) or found
    elif isinstance(node, (ast.If, ast.While)):
        runtime = runtime or may_be_runtime(g, node.test, tainted)
    elif isinstance(node, ast.Match):
        runtime = runtime or may_be_runtime(g, node.subject, tainted)
    elif isinstance(node, ast.For):
        runs = _runs(g, node.iter, tainted)
        for name in stores([node.target]):
            tainted[name] = tainted.get(name, False) or runs
        runtime = runtime or runs
    for child in ast.iter_child_nodes(node):
        _taint(g, child, runtime, tainted)


def _runs(g: Generator, node: ast.AST, tainted: dict[str, bool]) -> bool:
    """Whether a `for` over this is a run-time loop."""
    if isinstance(node, ast.Call):
        value = static_value(g, node.func)
        if value is range or mark(value, "__pto_builtin__") == "range":
            return True
    return may_be_runtime(g, node, tainted)


def _guarded(g: Generator, stmt: ast.stmt, runtime: bool, tainted: dict[str, bool], *, own: bool) -> bool:
    """Whether a `break` or `return` of the loop stands under a run-time decision in `stmt`."""
    if isinstance(stmt, ast.Return) or (isinstance(stmt, ast.Break) and own):
        return runtime
    if isinstance(stmt, ast.If):
        under = runtime or may_be_runtime(g, stmt.test, tainted)
        return any(_guarded(g, s, under, tainted, own=own) for s in [*stmt.body, *stmt.orelse])
    if isinstance(stmt, (ast.For, ast.While)):
        runs = _runs(g, stmt.iter, tainted) if isinstance(stmt, ast.For) else may_be_runtime(g, stmt.test, tainted)
        inner = any(_guarded(g, s, runtime or runs, tainted, own=False) for s in stmt.body)
        return inner or any(_guarded(g, s, runtime or runs, tainted, own=own) for s in stmt.orelse)
    if isinstance(stmt, ast.With):
        return any(_guarded(g, s, runtime, tainted, own=own) for s in stmt.body)
    if isinstance(stmt, ast.Match):
        under = runtime or may_be_runtime(g, stmt.subject, tainted)
        return any(_guarded(g, s, under, tainted, own=own) for case in stmt.cases for s in case.body)
    return False
