# SPDX-License-Identifier: MIT
"""From a Python function and what is known of its arguments to a module of loop IR."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from pto_jit.codegen.boundaries import place_scopes
from pto_jit.codegen.frames import Frame, cells_of, names_of
from pto_jit.codegen.generator import Generator, Options, Watch
from pto_jit.codegen.intrinsics import left_debugger
from pto_jit.codegen.params import Param, ParamKind, ScalarParam, StaticParam, TensorParam, filled
from pto_jit.codegen.presence import has_scopes
from pto_jit.codegen.regions import Target
from pto_jit.codegen.spelling import Spelling, places
from pto_jit.codegen.syntax import refuse
from pto_jit.codegen.values import RunTimeValueUsed, Scalar, Tensor
from pto_jit.errors import CompilationError, InternalError, Loc, PtoError, TypeMismatchError
from pto_jit.ir import walk
from pto_jit.ir.nodes import Func, Module, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType
from pto_jit.slotted import field, frozen
from pto_jit.source import locate


@frozen(eq=False)
class Program:
    """The compiled front end of one specialisation.

    `results` is the structure of the returned value: containers and compile-time values with a `Leaf` for each operand
    of the entry's `Return`, and a `Leaf` alone for a single value.  `decisions`: what the front end decided.
    `warnings`: texts and places, still to be issued.  `speaks`: whether compiling it is to be seen.  `typed`: the
    operations that have the types of their rules, by identity, as `verify` takes them.
    """

    module: Module
    results: Any
    decisions: tuple[Any, ...] = ()
    warnings: tuple[tuple[str, Loc], ...] = ()
    speaks: bool = False
    typed: dict[int, Op] = field(default_factory=dict)


def compile_program(
    fn: Any, params: Sequence[Param], *, options: Any = None, watch: Watch | None = None, quiet: bool = False
) -> Program:
    """The IR of a Python function for the given parameters; run-time leaves become IR parameters in order.

    Surplus positional arguments are parameters with the name of `*args`, one each; surplus keywords are parameters with
    names that the function does not declare. A parameter that `params` leaves out has its default.  `watch` is told of
    every statement.  Raises `CompilationError` at the user's line for anything that cannot be compiled.

    `quiet`: nothing is printed and the compiler does not stop, since the program was compiled before.
    """
    if not isinstance(fn, FunctionType):
        raise CompilationError(f"{fn!r} is not a Python function", code="PTO-S004", hint="decorate a `def` or a lambda")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 12_000))
    try:
        return _compiled(fn, params, options or Options(), watch, quiet)
    except RecursionError as error:
        raise CompilationError(
            f"`{fn.__name__}` is nested too deeply to be compiled",
            Loc(fn.__code__.co_filename, fn.__code__.co_firstlineno),
            code="PTO-N043",
            hint="recursion has to end at compile time",
        ) from error
    finally:
        sys.setrecursionlimit(limit)


def _compiled(fn: FunctionType, params: Sequence[Param], options: Any, watch: Watch | None, quiet: bool) -> Program:
    """The program, in which `np.zeros((4, 4))` and the like are arrays that Python makes while compiling, unless that
    does not compile because of run-time values that these arrays meet: then they are tensors."""
    tensors: frozenset[ast.AST] = frozenset()
    before: CompilationError | None = None
    heard = 0
    while True:
        compilation = _Compilation(fn, options, watch, quiet)
        compilation.g.at_run_time, compilation.g.heard = tensors, heard
        try:
            return compilation.run(params)
        except CompilationError as error:
            more = compilation.g.met - tensors
            if not more:
                if before is None or _is_behind(error, before):
                    raise
                raise before from before.__cause__
            tensors, before, heard = tensors | more, error, max(heard, compilation.g.said)


def _is_behind(error: CompilationError, before: CompilationError) -> bool:
    """Whether a compilation came further than the one before it."""
    return error.filename != before.filename or (error.lineno or 0) > (before.lineno or 0)


class _Compilation:
    def __init__(self, fn: FunctionType, options: Any, watch: Watch | None, quiet: bool) -> None:
        self.fn = fn
        self.g = Generator(options, watch)
        self.g.quiet = quiet
        self.params: list[Var] = []
        self.symbols: dict[str, Operand] = {}

    def run(self, params: Sequence[Param]) -> Program:
        g, fn = self.g, self.fn
        located = locate(fn)
        node = located.node
        name = _identifier(fn.__name__)
        frame = Frame(located.file, names_of(located), fn.__globals__, cells_of(fn), None, name, 0, None)
        g.frame, g.node = frame, node
        if isinstance(node, ast.AsyncFunctionDef):
            raise refuse(g, node)
        frame.vars.update(self._arguments(node.args, params))
        for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
            frame.places[argument.arg] = argument
        g.parameter_names = {v.name for v in self.params}
        rest = None if node.args.vararg is None else node.args.vararg.arg
        named = zip(self.params, places(params, rest), strict=True)
        g.spelling = Spelling({v.name: place for v, place in named}, g.e.maker)
        implicit = not has_scopes(g, node, frame)
        g.enter_orchestration(frame, implicit)
        g.inlined.append(name)
        g.returning = Target("entry", 0, 0)
        g.targets.append(g.returning)
        try:
            self._body(node)
            loc = located.file.loc(node)
            implicit = implicit and not g.tasks
            g.node = None  # what is added now stands where the statements do that need it
            body = place_scopes(
                g.e, g.e.finish(), lambda: g.scope_name(None), implicit, lambda v: g.calls.returned.complete_var(v)
            )
        except (PtoError, RecursionError) as error:
            if g.recovery.errors and error is not g.recovery.errors[0]:
                raise g.recovery.summary() from None
            raise
        except Exception as error:
            if g.recovery.errors:
                raise g.recovery.summary() from None
            if isinstance(error, RunTimeValueUsed):
                raise g.misused(error) from None
            if left_debugger(error):
                raise
            raise InternalError(f"{type(error).__name__} while compiling {g.e.loc}: {error}") from error
        returned = g.calls.returned
        func = Func(name, "orchestration", tuple(self.params), returned.types or (), _used_dims(body), loc)
        module = Module(name, (func,), name)
        return Program(module, returned.structure, tuple(g.decisions), tuple(g.warnings), g.speaks, g.e.typed)

    def _body(self, node: Any) -> None:
        g = self.g
        if not isinstance(node.body, list):  # a lambda
            value = g.expressions.visit(node.body)
            g.node = node.body
            if value is not None:
                g.control.return_now_value(value, node.body)
            if g.watch is not None:
                g.watch(g.frame, node.body)
            return
        mark = len(g.control.pending)
        status = g.statements.block(node.body)
        if g.recovery.errors:
            raise g.recovery.summary()
        status = g.control.close_pending(mark, status)
        if status is None:
            if g.calls.returned.types:
                g.node = node.body[-1]
                g.calls.results(None, node.body[-1])  # raises: the other returns give values
        elif isinstance(status, Target):
            g.control.return_now(status, node.body[-1])

    def _arguments(self, spec: ast.arguments, params: Sequence[Param]) -> dict[str, Any]:
        """The parameters' values by name, completed with the function's defaults."""
        fn, whole = self.fn, self.g.node
        named = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, *filter(None, [spec.vararg])]
        nodes: dict[str, ast.arg] = {a.arg: a for a in named}
        positional = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        declared = [*positional, *(a.arg for a in spec.kwonlyargs)]
        rest: list[Any] = []
        keywords: dict[str, Any] = {}
        values: dict[str, Any] = {}
        for param in params:
            self.g.node = nodes.get(param.name, whole)  # where its run-time values come from
            if spec.vararg is not None and param.name == spec.vararg.arg:
                rest.append(self.value(param.what, f"{param.name}_{len(rest)}"))
            else:
                (values if param.name in declared else keywords)[param.name] = self.value(param.what, param.name)
        self.g.node = whole
        defaults = fn.__defaults__ or ()
        for name, default in zip(positional[len(positional) - len(defaults) :], defaults, strict=True):
            values.setdefault(name, default)
        for name, default in (fn.__kwdefaults__ or {}).items():
            values.setdefault(name, default)
        wrong = [f"`{fn.__name__}` needs a value for `{n}`" for n in declared if n not in values]
        if spec.vararg is not None:
            values[spec.vararg.arg] = tuple(rest)
        if spec.kwarg is not None:
            values[spec.kwarg.arg] = self.g.own(keywords)
        else:
            wrong += [f"`{fn.__name__}` has no parameter `{n}`" for n in keywords]
        if wrong:
            raise self.g.error(TypeMismatchError, wrong[0], code="PTO-N044", hint="give one argument per parameter")
        return values

    # -- parameters ---------------------------------------------------------------------------------------------

    def value(self, what: ParamKind, path: str) -> Any:
        """The compile-time stand-in of a parameter."""
        if isinstance(what, StaticParam):
            return what.value
        if isinstance(what, ScalarParam):
            var = self.g.e.fresh(_identifier(path), ScalarType(what.dtype))
            self.params.append(var)
            if what.weak:
                self.g.e.weak.add(var.name)
            return Scalar(var, what.weak, self.g.e.loc)
        if isinstance(what, TensorParam):
            return self._tensor(what, path)
        return filled(what, {key: self.value(item, f"{path}_{key}") for key, item in what.items})

    def _tensor(self, what: TensorParam, path: str) -> Tensor:
        e = self.g.e
        var = e.fresh(_identifier(path), what.type)
        self.params.append(var)
        extents: list[Operand] = []
        for axis, extent in enumerate(what.type.shape):
            symbol = what.symbols[axis] if axis < len(what.symbols) else None
            if extent is not None or symbol is None:
                extents.append(e.dim(var, axis))
            else:
                if symbol not in self.symbols:
                    self.symbols[symbol] = e.dim(var, axis)
                extents.append(self.symbols[symbol])
        e.extents[var.name] = tuple(extents)
        return Tensor(var, tuple(extents), e.loc)


def _identifier(name: str) -> str:
    text = "".join(ch if ch.isalnum() or ch == "_" else "_" for ch in name).strip("_")
    return text if text and not text[0].isdigit() else f"f_{text}" if text else "f"


def _used_dims(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The body without the extents of parameters that nothing reads."""
    read = walk.block_uses(body)
    return tuple(s for s in body if not (isinstance(s, Op) and s.op == "dim" and s.results[0].name not in read))
