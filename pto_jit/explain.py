# SPDX-License-Identifier: MIT
"""`fn.explain(...)`: the user's source, each line with where it runs, what its names are, and what was decided there.

Two sides are put together.  The front end reports every statement that it executes, with the values that names had
then; what it never reports was not compiled.  The program after placement says which lines left code on the host and
which in an in-core scope, and what became of each loop; the decisions carry the line that they are about.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any

from pto_jit.codegen.frames import MISSING, Frame, Unusable
from pto_jit.codegen.params import Param
from pto_jit.codegen.spelling import Place, Spelling, places
from pto_jit.codegen.values import Scalar, Tensor, Tile, is_runtime
from pto_jit.compiler import Stages, lower
from pto_jit.config import config
from pto_jit.errors import Loc, TargetError, shown_file
from pto_jit.ir.nodes import Block, For, If, Module, Op, Operand, Scope, Stmt, Var, While
from pto_jit.ir.walk import def_counts, statements
from pto_jit.lower.decisions import Decision
from pto_jit.lower.names import chunks_inside, kind_in_source, source_name
from pto_jit.lower.pipeline import PLACED
from pto_jit.options import Options
from pto_jit.slotted import field, frozen, mutable
from pto_jit.source import FunctionNode, SourceFile

HOST, IN_CORE, COMPILE_TIME, NOT_COMPILED, NO_CODE = "host", "in-core", "compile time", "not compiled", ""
_MOST = 60  # characters of a compile-time value


@frozen
class ExplainedLine:
    """One source line: its number, text, where it runs ("host", "in-core", both joined by "+", "compile time",
    "not compiled", or "" for what is not a statement), and notes: types, loop kinds, decisions."""

    lineno: int
    text: str
    phase: str
    notes: tuple[str, ...]


@frozen
class ExplainedFunction:
    """The kernel itself, or a helper that was compiled into it."""

    name: str
    filename: str
    lines: tuple[ExplainedLine, ...]


@frozen
class Explanation:
    """What `fn.explain` gives; `str()` is plain text, rich renders it."""

    signature: str
    functions: tuple[ExplainedFunction, ...]
    decisions: tuple[Decision, ...]

    def __str__(self) -> str:
        return "\n".join("".join(text for text, _ in row) for row in self._rows())

    __repr__ = __str__  # what a prompt and a notebook show

    def __rich__(self) -> Any:
        from rich.text import Text

        result = Text(no_wrap=True, overflow="ignore")
        for row in self._rows():
            for text, style in row:
                result.append(text, style=style)
            result.append("\n")
        return result

    def _rows(self) -> Iterator[list[tuple[str, str]]]:
        yield [(self.signature, "bold")]
        for function in self.functions:
            yield [("", "")]
            yield [(f"{shown_file(function.filename)}: {function.name}", "dim")]
            digits = len(str(function.lines[-1].lineno)) if function.lines else 1
            phases = max((len(line.phase) for line in function.lines), default=0)
            for line in function.lines:
                style = _STYLES.get(line.phase, "magenta")
                yield [
                    (f"{line.lineno:{digits}} ", "dim"),
                    (f"{line.phase:{phases}} ", style),
                    ("│ ", "dim"),
                    (line.text, "dim" if line.phase == NOT_COMPILED else ""),
                ]
                indent = " " * (len(line.text) - len(line.text.lstrip()))
                for note in line.notes:
                    for k, part in enumerate(note.split("\n")):  # a drawing has several lines
                        text = f"{indent}    {' ' if k else '·'} {part}"
                        yield [(" " * (digits + phases + 2), ""), ("│ ", "dim"), (text, "dim cyan")]


_STYLES = {HOST: "yellow", IN_CORE: "green", COMPILE_TIME: "blue", NOT_COMPILED: "dim", NO_CODE: ""}


def explain(fn: Callable[..., Any], params: Sequence[Param], options: Options, signature: str) -> Explanation:
    """Run the front end and the passes on `fn`, watching; no machine code is made."""
    watched = _Watched()
    stages = lower(fn, params, options, watched.statement)
    _decide_later(stages, options)
    placed, before = _Code(stages.modules[PLACED]), _Code(stages.modules["source"])
    spelling = _spelling(fn, params, stages.modules["source"])
    functions = tuple(_function(seen, placed, before, stages, spelling) for seen in watched.functions.values())
    return Explanation(signature, functions, tuple(stages.decisions))


def _decide_later(stages: Stages, options: Options) -> None:
    """What is decided for a device when its kernels are written, where they can be."""
    debug = options.debug or config.debug
    with suppress(TargetError):  # which compiling raises
        if options.target == "cuda":  # what is divided depends on what the kernels have room for
            from pto_jit.targets.cuda.program import compile_module  # here: the processor has no use for it

            compile_module(stages.last, fastmath=options.fastmath, debug=debug, decisions=stages.decisions)
        elif options.target == "ascend":
            from pto_jit.targets.ascend.program import in_parts

            in_parts(stages.last, debug=debug, decisions=stages.decisions)


# -- what the front end did -------------------------------------------------------------------------------------


@mutable(eq=False)
class _Seen:
    """A function's statements as they were executed: how often each, and the values that names were given."""

    file: SourceFile
    node: FunctionNode
    parameters: dict[str, Any]
    times: Counter[int] = field(default_factory=Counter)  # by `id` of the statement
    values: dict[int, dict[str, Any]] = field(default_factory=dict)  # by line
    reasons: dict[int, dict[str, str]] = field(default_factory=dict)
    became: dict[str, int] = field(default_factory=dict)  # name -> the first line that has it as a run-time scalar
    called: dict[str, tuple[str, int]] = field(default_factory=dict)  # variable of the IR -> its name, since a line

    def name(self, name: str, value: Any, line: int) -> None:
        """A run-time value has this name from this line on."""
        var = value.operand if isinstance(value, Scalar) else getattr(value, "var", None)
        if isinstance(var, Var):
            self.called.setdefault(var.name, (name, line))

    def names(self, line: int) -> dict[str, str]:
        """What variables of the IR are called in a line: the last that got a name has it."""
        last = {name: var for var, (name, since) in self.called.items() if since <= line}
        return {var: name for name, var in last.items()}


class _Watched:
    """Receives every statement that the front end has executed."""

    def __init__(self) -> None:
        self.functions: dict[int, _Seen] = {}  # by `id` of the function's node
        self._owners: dict[str, dict[int, FunctionNode]] = {}

    def statement(self, frame: Frame, stmt: ast.stmt | ast.expr) -> None:
        """stmt: a statement, or the body of a kernel that is a lambda."""
        node = self._owner(frame.file, stmt)
        if node is None:
            return
        seen = self.functions.get(id(node))
        if seen is None:
            bound = {name for name, _ in _assigned(stmt)}
            args = node.args
            every = [*args.posonlyargs, *args.args, *([args.vararg] if args.vararg else []), *args.kwonlyargs]
            names = [a.arg for a in every if _is_bound(frame.vars.get(a.arg, MISSING)) and a.arg not in bound]
            seen = _Seen(frame.file, node, {name: frame.vars[name] for name in names})
            self.functions[id(node)] = seen
            for name, value in seen.parameters.items():
                seen.name(name, value, node.lineno)
        seen.times[id(stmt)] += 1
        for name, target in _assigned(stmt):
            owner = frame.owner(name)
            value = MISSING if owner is None else owner.vars.get(name, MISSING)
            if not _is_bound(value):
                continue
            line = target.lineno
            seen.values.setdefault(line, {})[name] = value
            seen.name(name, value, line)
            if isinstance(value, Scalar):
                seen.became.setdefault(name, line)
            why = _why(seen, frame, stmt, value)
            if why:
                seen.reasons.setdefault(line, {})[name] = why

    def _owner(self, file: SourceFile, stmt: ast.AST) -> FunctionNode | None:
        """The function that a statement belongs to; None for the loops that stand for a generator."""
        owners = self._owners.get(file.filename)
        if owners is None:
            owners = self._owners[file.filename] = {}
            outer = [node for lambdas in (False, True) for nodes in file.functions(lambdas).values() for node in nodes]
            for function in sorted(outer, key=lambda node: (node.lineno, -(node.end_lineno or 0))):  # inner ones last
                owners.update((id(node), function) for node in ast.walk(function) if isinstance(node, ast.stmt))
                if isinstance(function, ast.Lambda):
                    owners[id(function.body)] = function
        return owners.get(id(stmt))


def _is_bound(value: Any) -> bool:
    """Whether a name has a value that can be used."""
    return value is not MISSING and not isinstance(value, Unusable)


def _assigned(stmt: ast.AST) -> Iterator[tuple[str, ast.Name]]:
    """The names that a statement itself binds (not the ones that statements inside it do)."""
    stack: list[ast.AST] = [stmt]
    while stack:
        node = stack.pop(0)
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                yield node.id, node
        elif node is stmt or not isinstance(node, (ast.stmt, ast.Lambda, ast.FunctionDef, ast.comprehension)):
            stack += ast.iter_child_nodes(node)


def _why(seen: _Seen, frame: Frame, stmt: ast.stmt | ast.expr, value: Any) -> str:
    """What made a scalar a run-time value: the run-time names in its expression, or the place where it became one."""
    source = getattr(stmt, "value", None)
    if not isinstance(value, Scalar):
        return ""
    names = []
    for node in ast.walk(source) if source is not None else ():
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in names:
            owner = frame.owner(node.id)
            if owner is not None and is_runtime(owner.vars.get(node.id)):
                names.append(node.id)
                seen.became.setdefault(node.id, node.lineno)
    if names:
        return "because of " + ", ".join(f"`{name}`" for name in names)
    if value.origin.lineno and value.origin.lineno != stmt.lineno:
        return f"since line {value.origin.lineno}"
    return ""


# -- what the passes made of it ---------------------------------------------------------------------------------


class _Code:
    """Where each source line left code, and the loops and branches that stand there, in the placed program."""

    def __init__(self, module: Module) -> None:
        self.phases: dict[tuple[str, int], set[str]] = defaultdict(set)
        self.kinds: dict[tuple[str, int], list[str]] = defaultdict(list)
        for func in module.funcs:
            self._block(func.body, IN_CORE if func.kind == "incore" else HOST, frozenset())

    def _block(self, body: Block, phase: str, chunks: frozenset[str]) -> None:
        for stmt in body:
            self._statement(stmt, phase, chunks)

    def _statement(self, stmt: Stmt, phase: str, chunks: frozenset[str]) -> None:
        match stmt:
            case Scope():
                place = self._mark(stmt.loc, IN_CORE)
                self._note(place, f"in-core function {stmt.name}")
                self._block(stmt.body, IN_CORE, chunks)
            case For():
                place = self._mark(stmt.loc, phase)
                self._note(place, f"{kind_in_source(stmt, chunks)} loop over {source_name(stmt.var.name)} ({phase})")
                self._block(stmt.body, phase, chunks_inside(stmt, chunks))
            case While():
                self._note(self._mark(stmt.loc, phase), "run-time loop")
                self._block((*stmt.before, *stmt.body), phase, chunks)
            case If():
                self._note(self._mark(stmt.loc, phase), "run-time branch")
                self._block((*stmt.then, *stmt.orelse), phase, chunks)
            case Op():
                self._mark(stmt.loc, phase)
                for region in stmt.regions:
                    self._block(region.body, phase, chunks)
            case _:
                self._mark(stmt.loc, phase)

    def _mark(self, loc: Loc, phase: str) -> tuple[str, int]:
        """The line gets this phase, and so do the lines of the calls that led to it."""
        place: Loc | None = loc
        while place is not None:
            self.phases[place.filename, place.lineno].add(phase)
            place = place.caller
        return loc.filename, loc.lineno

    def _note(self, place: tuple[str, int], text: str) -> None:
        if text not in self.kinds[place]:
            self.kinds[place].append(text)


# -- together ---------------------------------------------------------------------------------------------------


def _spelling(fn: Callable[..., Any], params: Sequence[Param], module: Module) -> Spelling:
    """Numbers of the front end's program as expressions of the kernel."""
    code = getattr(fn, "__code__", None) or fn.__func__.__code__  # type: ignore[attr-defined]
    at = code.co_argcount + code.co_kwonlyargcount
    rest = code.co_varnames[at] if code.co_flags & inspect.CO_VARARGS else None
    func = module.func(module.entry)
    found = {v.name: place for v, place in zip(func.params, places(params, rest), strict=True)}
    every = list(statements(func.body))
    found |= {s.var.name: Place(source_name(s.var.name)) for s in every if isinstance(s, For)}
    made = {r.name: op for op in every if isinstance(op, Op) for r in op.results}
    once = {name for name, count in def_counts(func.body).items() if count == 1}
    return Spelling(found, lambda name: made.get(name) if name in once else None)


def _function(seen: _Seen, code: _Code, before: _Code, stages: Stages, spelling: Spelling) -> ExplainedFunction:
    file, node = seen.file, seen.node
    filename = file.filename
    starts = _statements(node)
    chosen = defaultdict(list)
    for decision in stages.decisions:
        if decision.loc.filename == filename:
            chosen[decision.loc.lineno].append(str(decision).rsplit("  (", 1)[0])
    lines = []
    first, last = node.lineno, node.end_lineno or node.lineno
    for lineno in range(first, last + 1):
        stmts = starts.get(lineno, [])
        notes = list(code.kinds.get((filename, lineno), []))
        phase = NO_CODE
        if lineno == first:
            notes += [_describe(name, value, spelling, {}) for name, value in seen.parameters.items()]
        if stmts:
            reached = any(seen.times[id(s)] for s in stmts)
            rows = [(filename, row) for s in stmts for row in _own_lines(s)]
            found = {phase for row in rows for phase in code.phases.get(row, ())}
            if not found and any(is_runtime(value) for value in seen.values.get(lineno, {}).values()):
                # an extent or an argument under another name, or what nothing uses
                found = {phase for row in rows for phase in before.phases.get(row, ())} or {HOST}
            phase = "+".join(sorted(found)) or (COMPILE_TIME if reached else NOT_COMPILED)
            notes += _static(stmts, seen, notes, reached)
        reasons = seen.reasons.get(lineno, {})
        for name, value in seen.values.get(lineno, {}).items():
            because = f", {reasons[name]}" if name in reasons else ""
            notes.append(_describe(name, value, spelling, seen.names(lineno)) + because)
            if type(value) in (int, float, bool) and name in seen.became:
                notes.append(f"{name} is a run-time value on line {seen.became[name]}")
        text = file.lines[lineno - 1].rstrip("\n")
        lines.append(ExplainedLine(lineno, text, phase, (*notes, *chosen[lineno])))
    name = getattr(node, "name", "<lambda>")
    return ExplainedFunction(name, filename, tuple(lines))


def _statements(function: FunctionNode) -> dict[int, list[ast.stmt | ast.expr]]:
    """Line -> statements of the function that start there (inner functions are explained by themselves)."""
    found: dict[int, list[ast.stmt | ast.expr]] = defaultdict(list)
    if isinstance(function, ast.Lambda):
        found[function.body.lineno].append(function.body)
        return found
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.stmt):
            if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                found[node.lineno].append(node)
            if isinstance(node, ast.FunctionDef):
                continue
        stack += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]
    return found


def _own_lines(stmt: ast.stmt | ast.expr) -> range:
    """The lines of a statement without its body."""
    body = getattr(stmt, "body", None)
    last = body[0].lineno - 1 if isinstance(body, list) and body else stmt.end_lineno or stmt.lineno
    return range(stmt.lineno, max(last, stmt.lineno) + 1)


def _static(stmts: list[ast.stmt | ast.expr], seen: _Seen, notes: list[str], reached: bool) -> list[str]:
    """What the front end decided about branches and loops that left no code of their own."""
    found = []
    for stmt in stmts:
        if not reached or notes or not isinstance(stmt, (ast.If, ast.For, ast.While)):
            continue
        runs = seen.times[id(stmt.body[0])]
        if isinstance(stmt, ast.If):
            found.append("decided at compile time: " + ("taken" if runs else "not taken"))
        else:
            found.append(f"unrolled: {runs} iteration{'' if runs == 1 else 's'}")
    return found


def _describe(name: str, value: Any, spelling: Spelling, names: Mapping[str, str]) -> str:
    """`x: f32[rows, 16] tensor`, `n: i64, run time`, `k = 3, compile time`; names: of variables, in this line."""
    if isinstance(value, (Tensor, Tile)):
        own = [spelling.extent(value.var, axis) for axis in range(len(value.extents))]
        found = zip(value.extents, own, strict=True)
        extents = ", ".join(spelling.of(e, names) or mine or _named(e) for e, mine in found)
        return f"{name}: {value.dtype}[{extents}] {'tensor' if isinstance(value, Tensor) else 'tile'}"
    if isinstance(value, Scalar):
        kind = f"{value.dtype} (takes the dtype of what it meets)" if value.weak else str(value.dtype)
        return f"{name}: {kind}, run time"
    if hasattr(type(value), "__pto_runtime__"):  # a list
        return f"{name}: {_shown(value)}, run time"
    text = getattr(value, "__name__", None) or _shown(value)
    return f"{name} = {text if len(text) <= _MOST else text[: _MOST - 1] + '…'}, compile time"


def _shown(value: Any) -> str:
    """A compile-time value with run-time ones inside it."""
    if is_runtime(value):
        return "<run time>"
    if hasattr(type(value), "__pto_runtime__"):
        return f"{type(value).__name__} {value!r}"
    if type(value) in (tuple, list):
        inner = ", ".join(_shown(item) for item in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    if type(value) is dict:
        return "{" + ", ".join(f"{_shown(k)}: {_shown(v)}" for k, v in value.items()) + "}"
    if is_dataclass(value) and not isinstance(value, type):
        inner = ", ".join(f"{f.name}={_shown(getattr(value, f.name, None))}" for f in fields(value) if f.repr)
        return f"{type(value).__name__}({inner})"
    return repr(value)


def _named(extent: Operand) -> str:
    """The user's variable behind a run-time extent, "?" where there is none."""
    name = source_name(extent.name) if isinstance(extent, Var) else ""
    made = re.fullmatch(r"t\d+", name) is not None
    return name if name.isidentifier() and not name.startswith("_") and not made else "?"
