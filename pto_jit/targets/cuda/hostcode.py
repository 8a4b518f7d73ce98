# SPDX-License-Identifier: MIT
"""The host side of a program as a Python function: what `host` does statement by statement, as text that is compiled.

Before::

    %t9 = sadd %n, -1 : i64
    FOR %plane:idx, 0:idx, %t9:idx, 1:idx {kind=sequential}
      CALL @grids_incore_4(%x, %t9, %plane)

After::

    v1 = wrapped(v0 - 1)
    for v2 in loop(0, v1, 1):
      run.launch(c0, (v3, v1, v2))

64-bit integers and `bool_` are Python's; other scalars are NumPy's, whose operations are those of the semantic table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pto_jit.errors import InternalError, KernelAssertionError, LaunchError, excerpt
from pto_jit.ir.nodes import Block, Break, Call, Const, Continue, For, Func, If, Op, Operand, Return, Stmt, Var, While
from pto_jit.ir.types import ScalarType
from pto_jit.semantic.evaluation import Context, argument, evaluate
from pto_jit.targets.cuda.kernels import Kernel
from pto_jit.targets.cuda.loops import touches_tiles
from pto_jit.targets.cuda.privatised import elements_of

_LIMIT = 1 << 63

_INTEGERS = {
    "add": "wrapped({} + {})", "sub": "wrapped({} - {})", "mul": "wrapped({} * {})", "min": "min({}, {})",
    "max": "max({}, {})", "eq": "{} == {}", "ne": "{} != {}", "lt": "{} < {}", "le": "{} <= {}", "gt": "{} > {}",
    "ge": "{} >= {}",
}  # fmt: skip
_DIVISIONS = {"floordiv": "{} // {}", "mod": "{} % {}"}  # by constants above 0: others have cases of their own
_TRUTHS = {"and": "{} and {}", "or": "{} or {}", "not": "not {}"}
TENSOR_OPS = ("dim", "view", "tensor_reshape", "tensor_transpose", "tensor_step", "alloc", "getelem", "setelem")
"""Operations on tensors, which are methods of what runs the code."""


def is_number(kind: object, name: str = "i64") -> bool:
    return isinstance(kind, ScalarType) and kind.dtype.name == name


def wrapped(value: int) -> int:
    """A 64-bit integer: what is too large for one wraps."""
    return value if -_LIMIT <= value < _LIMIT else (value + _LIMIT) % (2 * _LIMIT) - _LIMIT


def loop(start: int, stop: int, step: int) -> range:
    """The indices of a loop; LaunchError for a step of 0."""
    if step == 0:
        raise LaunchError("the step of a loop is 0")
    return range(start, stop, step)


def plain(value: Any, kind: object) -> Any:
    """A scalar as the code has it; other values as they are."""
    return int(value) if is_number(kind) else bool(value) if is_number(kind, "bool_") else value


def scalar(value: Any, kind: object) -> Any:
    """The NumPy scalar that the semantic table takes."""
    return argument(value, kind.dtype) if isinstance(kind, ScalarType) else value


_APART = Context(True, lambda region, arrays: [])  # assertions that are not for now are not in the code


def evaluated(op: Op, args: Sequence[Any]) -> tuple[Any, ...]:
    """The results of an operation of the semantic table."""
    try:
        found = evaluate(op, [scalar(v, a.type) for a, v in zip(op.args, args, strict=True)], _APART)
    except LaunchError as error:
        if op.op != "assert":
            raise
        place = excerpt(op.loc) if op.loc.lineno else []
        if isinstance(error, KernelAssertionError):  # whose text is the user's
            raise type(error)("\n".join([str(error), *place])) from None
        reason, _, way_out = str(error).partition("; ")
        raise type(error)("\n".join([reason, *place, f"help: {way_out}"])) from None
    return tuple(plain(v, r.type) for v, r in zip(found, op.results, strict=True))


def host_function(entry: Func, sites: Callable[[Call], Any]) -> Callable[..., tuple[Any, ...]]:
    """`function(run, *arguments)`, which gives the results; `sites`: what `run.launch` gets for a call."""
    writer = _Writer(sites)
    params = [writer.name(p) for p in entry.params]
    writer.block(entry.body, 1)
    writer.line(1, "return ()")
    return writer.function(f"{entry.name} on the host", params)


def first_iteration(kernel: Kernel) -> Callable[..., tuple[Any, Any, Any, Any]]:
    """`function(run, *arguments)`: how often each loop of the grid runs when those around it are at their start; the
    run-time extents behind the capacities, and those of all tiles, there; the elements of privatised tensors.

    A grid made for these counts is right for others too, as the kernel's loops go on from where it ends.
    """
    writer = _Writer(None)
    params = [writer.name(p) for p in kernel.func.params]
    trips: list[str] = []
    for stmt in kernel.first_iteration:
        if isinstance(stmt, Op):
            writer.operation(stmt, 1)
            continue
        start, stop, step = map(writer.value, (stmt.start, stmt.stop, stmt.step))
        trips.append(f"len(loop({start}, {stop}, {step}))")
        writer.line(1, f"{writer.name(stmt.var)} = {start}")
    extents = _together([writer.value(e) for _, e in kernel.capacities])
    shapes = _together([_together([writer.value(e) for e in shape]) for shape in kernel.shapes])
    bins = _together([f"elements_of({writer.name(p.param)}.shape)" for p in kernel.privatised])
    writer.line(1, f"return {_together(trips)}, {extents}, {shapes}, {bins}")
    return writer.function(f"the grid of {kernel.name}", params)


def numbers_function(entry: Func, ops: Sequence[Op], wanted: Sequence[str]) -> Callable[..., tuple[Any, ...]]:
    """`function(run, *arguments)`, which gives some of the numbers that operations compute of the entry's."""
    writer = _Writer(None)
    params = [writer.name(p) for p in entry.params]
    for op in ops:
        writer.operation(op, 1)
    writer.line(1, f"return {_together([writer.names[name] for name in wanted])}")
    return writer.function(f"numbers of {entry.name}", params)


class _Writer:
    def __init__(self, sites: Callable[[Call], Any] | None) -> None:
        self.sites = sites
        self.lines: list[str] = []
        self.names: dict[str, str] = {}
        self.known: dict[str, Any] = {"wrapped": wrapped, "loop": loop, "evaluated": evaluated,
                                      "elements_of": elements_of}  # fmt: skip

    def function(self, title: str, params: Sequence[str]) -> Callable[..., Any]:
        text = "\n".join([f"def function(run, {', '.join(params)}):", *self.lines])
        try:
            code = compile(text, f"<{title}>", "exec")
        except SyntaxError as error:  # of text that is written here: Python's limit of blocks
            raise LaunchError(f"{title}: {error.msg}\nhelp: nest fewer loops outside of parallel ones") from None
        exec(code, self.known)
        return self.known["function"]

    def line(self, depth: int, text: str) -> None:
        self.lines.append(" " * depth + text)

    def name(self, var: Var) -> str:
        return self.names.setdefault(var.name, f"v{len(self.names)}")

    def constant(self, value: Any) -> str:
        name = f"c{len(self.known)}"
        self.known[name] = value
        return name

    def value(self, operand: Operand) -> str:
        if isinstance(operand, Var):
            return self.name(operand)
        found = plain(argument(operand.value, operand.type.dtype), operand.type)
        return f"({found!r})" if isinstance(found, (int, bool)) else self.constant(found)

    # -- statements ------------------------------------------------------------------------------------------------

    def block(self, block: Block, depth: int) -> None:
        for stmt in block:
            self.statement(stmt, depth)
        if not block:
            self.line(depth, "pass")

    def statement(self, stmt: Stmt, depth: int) -> None:
        match stmt:
            case Op():
                self.operation(stmt, depth)
            case Call():
                assert self.sites is not None
                args = _together([self.value(a) for a in stmt.args])
                self.line(depth, f"run.launch({self.constant(self.sites(stmt))}, {args})")
            case For():
                start, stop, step = map(self.value, (stmt.start, stmt.stop, stmt.step))
                self.line(depth, f"for {self.name(stmt.var)} in loop({start}, {stop}, {step}):")
                self.block(stmt.body, depth + 1)
            case While():
                self.line(depth, "while True:")
                self.block(stmt.before, depth + 1)
                self.line(depth + 1, f"if not {self.value(stmt.cond)}: break")
                self.block(stmt.body, depth + 1)
            case If():
                self.line(depth, f"if {self.value(stmt.cond)}:")
                self.block(stmt.then, depth + 1)
                self.line(depth, "else:")
                self.block(stmt.orelse, depth + 1)
            case Return():
                self.line(depth, f"return {_together([self.value(v) for v in stmt.values])}")
            case Break():
                self.line(depth, "break")
            case Continue():
                self.line(depth, "continue")
            case _:
                raise InternalError(f"{type(stmt).__name__} in the host code of a cuda program")

    def operation(self, op: Op, depth: int) -> None:
        text = _expression(op)
        args = [self.value(a) for a in op.args]
        if text:
            self.line(depth, f"{self.name(op.results[0])} = {text.format(*args)}")
            return
        if op.op not in TENSOR_OPS and touches_tiles(op):
            raise InternalError(f"`{op.op}` of tiles in host code")
        function = f"run.{op.op}" if op.op in TENSOR_OPS else "evaluated"
        call = f"{function}({self.constant(op)}, {_together(args)})"
        self.line(depth, f"{_together([self.name(r) for r in op.results])} = {call}" if op.results else call)


def _together(values: Sequence[str]) -> str:
    """A tuple."""
    return f"({''.join(f'{v}, ' for v in values)})"


def _expression(op: Op) -> str:
    """Python's expression for an operation on numbers that it does as the semantic table says; "" for others."""
    if len(op.results) != 1:
        return ""
    if op.op == "copy":
        return "{}"
    kinds = [a.type for a in op.args]
    if all(map(is_number, kinds)):
        divisor = op.args[-1]
        if op.op in _DIVISIONS and isinstance(divisor, Const) and divisor.value > 0:
            return _DIVISIONS[op.op]
        return _INTEGERS.get(op.op, "") if len(kinds) == 2 else ""
    if all(is_number(kind, "bool_") for kind in kinds):
        return _TRUTHS.get(op.op, "")
    return ""
