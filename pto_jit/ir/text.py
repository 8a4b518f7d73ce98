# SPDX-License-Identifier: MIT
"""Programs as `.pto` text. `pto_jit.ir.parse` reads it back: `parse(to_text(module)) == module`.

The grammar is in docs/pto-assembly.md.  A word about operands: brackets group them for the eye and mean nothing, so
`tload %x[%r, 0] [8, 8]` has the five operands %x, %r, 0, 8, 8.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence

from pto_jit.dtypes import DType
from pto_jit.errors import NOWHERE, Loc, shown_file
from pto_jit.ir.nodes import (
    Attr,
    Block,
    Break,
    Call,
    Const,
    Continue,
    For,
    Func,
    Fuse,
    If,
    Module,
    Op,
    Operand,
    Reduction,
    Region,
    Return,
    Scope,
    Stmt,
    Var,
    While,
)
from pto_jit.ir.types import ScalarType, TileType

FUNCTION_TYPES = {"incore": "InCore", "orchestration": "Orchestration"}
_PLAIN = re.compile(r"[\w.]+\Z")


def to_text(
    node: Module | Func | Block | Stmt, *, locations: bool = False, marks: Mapping[int, str] | None = None,
    above: Mapping[int, str] | None = None,
) -> str:  # fmt: skip
    """The `.pto` text of a program or a part of one.

    `locations` appends each statement's place as a comment.  `marks` maps `id(statement)` to a remark that is printed
    on a line of its own below the statement's first line, `above` to one above it.  A call
    prints its callee's parameter names only as a part of a module, where they are known.
    """
    printer = _Printer(node if isinstance(node, Module) else None, locations, marks or {}, above or {})
    if isinstance(node, Module):
        printer.module(node)
    elif isinstance(node, Func):
        printer.func(node)
    elif isinstance(node, tuple):
        printer.block(node, 0)
    else:
        printer.stmt(node, 0)
    return "\n".join(printer.lines) + ("\n" if printer.lines else "")


def mnemonic(op: str, args: Sequence[Operand], results: Sequence[Var]) -> str:
    """An operation's name in text: `t` before it if it takes a tile or gives a tile or tensor, else `s`."""
    tile = any(isinstance(a.type, TileType) for a in args) or any(not isinstance(r.type, ScalarType) for r in results)
    return ("t" if tile else "s") + op


def var_text(name: str) -> str:
    return f"%{name_text(name)}"


def name_text(name: str) -> str:
    """A name, quoted if it is not made of letters, digits, `_` and `.`."""
    return name if _PLAIN.match(name) else string_text(name)


def string_text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate cannot be written to a file
        return json.dumps(value)
    return json.dumps(value, ensure_ascii=False)


def operand_text(operand: Operand) -> str:
    if isinstance(operand, Var):
        return var_text(operand.name)
    value, dtype = operand.value, operand.type.dtype
    if type(value) is int:
        return str(value) if dtype.name == "i64" else f"{value}:{dtype}"
    if type(value) is bool:
        return _BOOL[value] if dtype.name == "bool_" else f"{_BOOL[value]}:{dtype}"
    return repr(value) if dtype.name == "f64" else f"{value!r}:{dtype}"


_BOOL = {True: "true", False: "false"}


def attr_text(value: Attr) -> str:
    if isinstance(value, bool):
        return _BOOL[value]
    if value is None:
        return "none"
    if isinstance(value, str):
        return string_text(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(attr_text, value))}{',' if len(value) == 1 else ''})"
    return value.name if isinstance(value, DType) else repr(value)


# -- operands in groups -----------------------------------------------------------------------------------------


def _grouped(head: Sequence[Operand], *groups: Sequence[Operand], attach: bool, tail: Sequence[Operand] = ()) -> str:
    """`head[group] [group], tail`, or `head, [group], tail` without `attach`."""
    brackets = " ".join(f"[{_list(group)}]" for group in groups)
    text = _list(head) + ("" if attach else ", " if head else "") + brackets
    return text + (f", {_list(tail)}" if tail else "")


def _list(operands: Sequence[Operand]) -> str:
    return ", ".join([operand_text(operand) for operand in operands])


def _rectangle(op: Op) -> str | None:
    """`x[offsets] [extents]`, for operations whose first operand has that rank."""
    kind = op.args[0].type
    rank = 0 if isinstance(kind, ScalarType) else len(kind.shape)
    if not rank or len(op.args) < 1 + 2 * rank:
        return None
    return _grouped(
        op.args[:1], op.args[1 : 1 + rank], op.args[1 + rank : 1 + 2 * rank], attach=True, tail=op.args[1 + 2 * rank :]
    )


def _indexed(count: int) -> Callable[[Op], str | None]:
    """`a, x[indices]`: the operands after the first `count` in brackets behind them."""

    def layout(op: Op) -> str | None:
        return _grouped(op.args[:count], op.args[count:], attach=True) if len(op.args) > count else None

    return layout


def _shaped(count: int) -> Callable[[Op], str | None]:
    """`a, [extents]`."""

    def layout(op: Op) -> str | None:
        return _grouped(op.args[:count], op.args[count:], attach=False) if len(op.args) > count else None

    return layout


def _alloc(op: Op) -> str | None:
    if op.attr("filled") is True and len(op.args) > 1:
        return _grouped((), op.args[:-1], attach=False, tail=op.args[-1:])
    return _grouped((), op.args, attach=False) if op.args else None


_LAYOUT: dict[str, Callable[[Op], str | None]] = {
    "load": _rectangle, "view": _rectangle, "tile_slice": _rectangle,
    "getelem": _indexed(1), "extract": _indexed(1), "setelem": _indexed(2), "store": _indexed(2),
    "atomic_add": _indexed(2), "atomic_max": _indexed(2), "atomic_min": _indexed(2),
    "full": _shaped(1), "arange": _shaped(2), "rand": _shaped(2), "randn": _shaped(2), "reshape": _shaped(1),
    "broadcast_to": _shaped(1), "tensor_reshape": _shaped(1), "take": _shaped(2), "alloc": _alloc,
}  # fmt: skip


# -- statements -------------------------------------------------------------------------------------------------


class _Printer:
    def __init__(
        self, module: Module | None, locations: bool, marks: Mapping[int, str], above: Mapping[int, str]
    ) -> None:
        self.lines: list[str] = []
        self.locations = locations
        self.marks = marks
        self.above = above
        self.params = {f.name: f.params for f in module.funcs} if module else {}

    def line(self, depth: int, text: str, loc: Loc = NOWHERE) -> None:
        if self.locations and loc != NOWHERE:
            text += f"  // {' '.join(shown_file(loc.filename).rsplit('/', 1)[-1].split())}:{loc.lineno}"
        self.lines.append("  " * depth + text)

    def module(self, module: Module) -> None:
        name = module.name
        if not name or name != name.strip() or not name.isprintable() or name.startswith('"'):
            name = string_text(name)
        self.lines.append(f"// PTO Module: {name}")
        self.lines.append(f"// Entry: @{name_text(module.entry)}")
        for func in module.funcs:
            self.lines.append("")
            self.func(func)

    def func(self, func: Func) -> None:
        params = ", ".join(f"{var_text(p.name)}: {p.type}" for p in func.params)
        results = f" -> ({', '.join(map(str, func.results))})" if func.results else ""
        self.lines.append(f"// Function Type: {FUNCTION_TYPES[func.kind]}")
        self.line(0, f"func @{name_text(func.name)}({params}){results} {{", func.loc)
        self.block(func.body, 1)
        self.lines.append("}")

    def block(self, block: Block, depth: int) -> None:
        for stmt in block:
            self.stmt(stmt, depth)

    def stmt(self, stmt: Stmt, depth: int) -> None:
        mark = self.marks.get(id(stmt))
        if id(stmt) in self.above:
            self.line(depth, f"// {self.above[id(stmt)]}")
        if isinstance(stmt, Op):
            self.op(stmt, depth, mark)
            return
        self.line(depth, self.head(stmt), stmt.loc)
        self.mark(mark, depth)
        match stmt:
            case For():
                for reduction in stmt.reductions:
                    self.reduction(reduction, depth + 1)
                self.block(stmt.body, depth + 1)
                self.line(depth, "ENDFOR")
            case While():
                self.block(stmt.before, depth + 1)
                self.line(depth, f"DO {operand_text(stmt.cond)}")
                self.block(stmt.body, depth + 1)
                self.line(depth, "ENDWHILE")
            case If():
                self.block(stmt.then, depth + 1)
                if stmt.orelse:
                    self.line(depth, "ELSE")
                    self.block(stmt.orelse, depth + 1)
                self.line(depth, "ENDIF")
            case Scope():
                self.block(stmt.body, depth + 1)
                self.line(depth, "ENDSCOPE")
            case Fuse():
                self.block(stmt.body, depth + 1)
                self.line(depth, "ENDFUSE")
            case _:
                pass

    def reduction(self, reduction: Reduction, depth: int) -> None:
        text = f"REDUCE {', '.join(var_text(v.name) for v in reduction.state)} FROM {_list(reduction.init)}"
        combine = reduction.combine
        if isinstance(combine, str):
            self.line(depth, f"{text} BY {combine}")
            return
        self.line(depth, f"{text} WITH {_region_head(combine)}")
        self.region_body(combine, depth)
        self.line(depth, "ENDREDUCE")

    def region_body(self, region: Region, depth: int) -> None:
        self.block(region.body, depth + 1)
        self.line(depth + 1, f"YIELD {_list(region.results)}".rstrip())

    def mark(self, mark: str | None, depth: int) -> None:
        if mark is not None:
            self.line(depth, f"// ^ {' '.join(mark.split())}")

    def head(self, stmt: Stmt) -> str:
        """The first line of a statement that is not an operation."""
        match stmt:
            case For():
                return self.for_head(stmt)
            case While():
                return "WHILE"
            case If():
                return f"IF {operand_text(stmt.cond)}"
            case Scope():
                return f"SCOPE @{name_text(stmt.name)}{' {named}' if stmt.named else ''}"
            case Fuse():
                return f"FUSE {', '.join(map(var_text, stmt.keep))}".rstrip()
            case Call():
                return self.call(stmt)
            case Return():
                return f"return {_list(stmt.values)}".rstrip()
            case Break():
                return "BREAK"
            case Continue():
                return "CONTINUE"
            case _:
                raise TypeError(type(stmt))

    def for_head(self, loop: For) -> str:
        bounds = ", ".join(_bound(operand) for operand in (loop.var, loop.start, loop.stop, loop.step))
        options: list[str] = []
        if loop.kind != "sequential":
            options.append(f"kind={loop.kind}")
        if loop.chunk is not None:
            options.append(f"chunk={operand_text(loop.chunk)}")
        if loop.policy != "leading_full":
            options.append(f"policy={loop.policy}")
        if loop.combine != "sequential":
            options.append(f"combine={loop.combine}")
        if loop.grain is not None:
            options.append(f"grain={operand_text(loop.grain)}")
        if loop.checked:
            options.append("checked=true")
        return f"FOR {bounds}" + (f" {{{', '.join(options)}}}" if options else "")

    def call(self, call: Call) -> str:
        formals = self.params.get(call.callee, ())
        if len(formals) == len(call.args):
            pairs = zip(formals, call.args, strict=True)
            args = ", ".join(f"{var_text(p.name)} -> {operand_text(a)}" for p, a in pairs)
        else:
            args = _list(call.args)
        return f"{_results(call.results)}CALL @{name_text(call.callee)}({args}){_types(call.results)}"

    def op(self, op: Op, depth: int, mark: str | None) -> None:
        layout = _LAYOUT.get(op.op)
        args = (layout(op) if layout and op.args else None) or _list(op.args)
        text = _results(op.results) + mnemonic(op.op, op.args, op.results) + (f" {args}" if args else "")
        if op.attrs:
            text += f" {{{', '.join([f'{name}={attr_text(value)}' for name, value in op.attrs])}}}"
        text += _types(op.results)
        for position, region in enumerate(op.regions):
            head = _region_head(region)
            if position == 0:
                self.line(depth, f"{text} WITH {head}", op.loc)
                self.mark(mark, depth)
            else:
                self.line(depth, f"AND {head}")
            self.region_body(region, depth)
        if op.regions:
            self.line(depth, "ENDWITH")
        else:
            self.line(depth, text, op.loc)
            self.mark(mark, depth)


def _bound(operand: Operand) -> str:
    """An operand of a loop header: with its type, where `idx` is i64."""
    if isinstance(operand, Const):
        text = operand_text(operand)
        return text if ":" in text else f"{text}:{_index_type(operand.type)}"
    kind = operand.type
    return f"{var_text(operand.name)}:{_index_type(kind)}" if isinstance(kind, ScalarType) else var_text(operand.name)


def _index_type(kind: ScalarType) -> str:
    return "idx" if kind.dtype.name == "i64" else kind.dtype.name


def _region_head(region: Region) -> str:
    return f"({', '.join(f'{var_text(p.name)}: {p.type}' for p in region.params)})"


def _results(results: tuple[Var, ...]) -> str:
    return f"{', '.join([var_text(r.name) for r in results])} = " if results else ""


def _types(results: tuple[Var, ...]) -> str:
    return f" : {', '.join([str(r.type) for r in results])}" if results else ""


__all__ = ["attr_text", "mnemonic", "name_text", "operand_text", "string_text", "to_text", "var_text"]
