# SPDX-License-Identifier: MIT
"""The syntax tree of a callable, found by position.

A whole file is parsed once (cached by its text) and a function is the node that its code object was compiled from: the
`def` or `lambda` that starts on the code's first line and encloses all positions the code records.  Nothing is
dedented, cut out or searched for with a pattern, so several lambdas on one line, decorators, nested functions and
multi-line strings are not special cases.  Source comes through `linecache`, which also knows the cells of notebooks,
doctests and, from Python 3.13, the interactive prompt and the text after `-c`; of older ones that text is a word of the
command, and what was typed is in the history of the line editor.
"""

from __future__ import annotations

import ast
import linecache
import re
import sys
import time
import weakref
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

from pto_jit.errors import CompilationError, Loc
from pto_jit.slotted import field, frozen, mutable

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_STARTED = time.time()
_KEPT_FILES = 64
_CLOSING_LINES = 4  # of a statement at the prompt, after the last line of a function in it


class KernelMethod:
    """What `types.MethodType` is to functions for kernels: one with the object that is its first argument."""

    __slots__ = ("__func__", "__self__")
    __func__: Any
    __self__: Any


METHODS = (MethodType, KernelMethod)


@mutable(eq=False)
class SourceFile:
    """A parsed file. `defs` maps a first line (decorators included) to the `def`s that start there."""

    filename: str
    text: str
    tree: ast.Module
    lines: list[str]
    defs: dict[int, list[FunctionNode]]
    ascii: bool
    lambdas: dict[int, list[FunctionNode]] | None = None  # found when the first one is looked for
    codes: set[tuple[object, ...]] | None = None
    notes: dict[object, object] = field(default_factory=dict)  # analyses of nodes, kept as long as the file

    def functions(self, lambdas: bool) -> dict[int, list[FunctionNode]]:
        """The lambdas, or the `def`s, by the line on which they start."""
        if not lambdas:
            return self.defs
        if self.lambdas is None:
            self.lambdas = {}
            for node in every_node([self.tree]):
                if isinstance(node, ast.Lambda):
                    self.lambdas.setdefault(node.lineno, []).append(node)
        return self.lambdas

    def column(self, lineno: int, offset: int) -> int:
        """The character column of a UTF-8 byte offset."""
        if self.ascii or not 0 < lineno <= len(self.lines):
            return offset
        line = self.lines[lineno - 1]
        return offset if line.isascii() else len(line.encode()[:offset].decode(errors="replace"))

    def loc(self, node: ast.AST, caller: Loc | None = None) -> Loc:
        """The place of a node that has a position."""
        lineno: int = node.lineno  # type: ignore[attr-defined]
        end: int = node.end_lineno  # type: ignore[attr-defined]
        return Loc(
            self.filename,
            lineno,
            self.column(lineno, node.col_offset),  # type: ignore[attr-defined]
            end,
            self.column(end, node.end_col_offset),  # type: ignore[attr-defined]
            caller,
        )


@frozen(eq=False)
class Located:
    """A function's node and the file it stands in."""

    file: SourceFile
    node: FunctionNode


_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")
_LEAVES = frozenset({ast.Name, ast.Constant, ast.Pass, ast.Break, ast.Continue})
_fields: dict[type, tuple[str, ...]] = {}  # of node classes: the fields that may hold nodes
_files: dict[str, SourceFile] = {}
_located: weakref.WeakKeyDictionary[CodeType, Located] = weakref.WeakKeyDictionary()


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes directly inside a node, operators and contexts left out (they hold nothing); kept with the node."""
    kind = type(node)
    if kind in _LEAVES:
        return []
    known = node.__dict__.get("_inside")
    if known is not None:
        return known
    found: list[ast.AST] = []
    fields = _fields.get(kind)
    if fields is None:
        fields = _fields[kind] = tuple(name for name in node._fields if name not in ("ctx", "op", "ops"))
    for name in fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            found += [item for item in value if isinstance(item, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    node._inside = found  # type: ignore[attr-defined]
    return found


def every_node(roots: Iterable[ast.AST]) -> list[ast.AST]:
    """All nodes of some trees but operators and contexts, in no particular order (much faster than `ast.walk`)."""
    found: list[ast.AST] = list(roots)
    for node in found:  # grows while it is read
        if type(node) not in _LEAVES:
            found += node.__dict__.get("_inside") or children(node)
    return found


def locate(fn: FunctionType) -> Located:
    """The source of `fn`.

    Raises `CompilationError` (PTO-S001 no source, PTO-S002 edited since import, PTO-S003 cannot tell apart).
    """
    code = fn.__code__
    found = _located.get(code)
    if found is None or not _is_of(found.file, code.co_filename):  # equal code may be in another file
        found = _locate(code, fn)
        _located[code] = found
    return found


def _is_of(file: SourceFile, filename: str) -> bool:
    """Whether that is the file of this name as it is now, or a statement typed at the prompt."""
    typed = filename == "<stdin>" and file.filename.startswith("<stdin-")
    return (typed or file.filename == filename) and file is _files.get(file.filename)


def _locate(code: CodeType, fn: FunctionType) -> Located:
    _keep_lines(code)
    for attempt in (0, 1):
        if attempt:
            linecache.checkcache(code.co_filename)
        file = _file_of(code, fn)
        if file is None:
            continue
        candidates = _candidates(file, code)
        if len(candidates) > 1 and not _has_columns(code):
            raise CompilationError(
                f"cannot tell which of {len(candidates)} functions on line {code.co_firstlineno} this is",
                Loc(code.co_filename, code.co_firstlineno),
                code="PTO-S003",
                hint="put the lambdas on lines of their own, or run Python without -X no_debug_ranges",
            )
        if candidates and not (_changed_since_start(code.co_filename) and not _same_code(file, code)):
            return Located(file, min(candidates, key=_extent))
    if _file_of(code, fn) is None:
        file = _typed(code) if code.co_filename == "<stdin>" else None
        if file is not None:
            return Located(file, min(_candidates(file, code), key=_extent))
        raise CompilationError(
            f"the source of `{fn.__qualname__}` is not available (its code says it is from {code.co_filename!r})",
            code="PTO-S001",
            hint="define the function in a file, a notebook cell or at the prompt; for code made with `exec`, register "
            "the text under its file name in `linecache.cache` before calling",
        )
    raise CompilationError(
        f"the source of `{fn.__qualname__}` changed after it was imported",
        Loc(code.co_filename, code.co_firstlineno),
        code="PTO-S002",
        hint="import the module again (importlib.reload) or restart Python",
    )


def _file_of(code: CodeType, fn: FunctionType) -> SourceFile | None:
    """The parsed file that a code object says it is from, None when there is no such text.

    "<string>" is the text after `-c` from Python 3.13 on, but also what `exec` calls any text (the methods that
    dataclasses and named tuples make, for example): only code that comes out of that text is from it.
    """
    file = load_file(code.co_filename, fn.__globals__)
    if file is not None and code.co_filename == "<string>" and not _same_code(file, code):
        return None
    return file


def _keep_lines(code: CodeType) -> None:
    """Give `linecache`, where all look for it, what it does not have by its name: what was typed or given after `-c`,
    which releases after 3.13.0 tell by its code alone, and 3.11 and 3.12 as a word of the command."""
    if code.co_filename in linecache.cache or not code.co_filename.startswith("<"):
        return
    text = "".join(getattr(linecache, "_getlines_from_code", lambda code: [])(code))
    if not text and code.co_filename == "<string>":
        text = next((word for option, word in pairwise(sys.orig_argv) if re.fullmatch("-[A-Za-z]*c", option)), "")
    if text:
        lines: list[str] = [*text.splitlines(keepends=True)]
        linecache.cache[code.co_filename] = (len(text), None, lines, code.co_filename)


def load_file(filename: str, module: dict[str, Any]) -> SourceFile | None:
    """The parsed file of that name, None when there is no such text; `module`: the globals of code from it."""
    lines = linecache.getlines(filename, module)
    if not lines:
        return None
    text = "".join(lines)
    known = _files.get(filename)
    if known is not None and known.text == text:
        return known
    try:
        tree = ast.parse(text, filename)
    except (SyntaxError, ValueError):
        return None
    defs: dict[int, list[FunctionNode]] = {}
    stack: list[ast.AST] = [*tree.body]
    while stack:  # `def`s stand in statements
        node = stack.pop()
        for name in _BLOCKS:
            stack += getattr(node, name, ())
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            defs.setdefault(first, []).append(node)
    file = SourceFile(filename, text, tree, text.splitlines(), defs, text.isascii())
    if len(_files) >= _KEPT_FILES:
        _files.pop(next(iter(_files)))
    _files[filename] = file
    return file


def _typed(code: CodeType) -> SourceFile | None:
    """The statement, typed at the prompt of Python 3.11 or 3.12, that `code` is from; None when it cannot be found.

    All such statements are "<stdin>" and start at line 1.  The history of the line editor has their lines, those of
    earlier sessions before them; the last stretch of it that compiles to this very code is the statement, and gets a
    file name of its own.  The editor leaves out empty lines, and a line that is equal to the one before it.
    """
    editor = sys.modules.get("readline")  # there in interactive sessions only; importing it would change the terminal
    if editor is None:
        return None
    typed = [editor.get_history_item(k + 1) or "" for k in range(editor.get_current_history_length())]
    height = max((line for inner in (code, *_nested(code)) for _, _, line in inner.co_lines() if line), default=1)
    name = "lambda" if code.co_name == "<lambda>" else code.co_name
    for start in reversed(range(len(typed) - height + 1)):
        for end in range(start + height, min(start + height + _CLOSING_LINES, len(typed)) + 1):
            text = "".join(f"{line}\n" for line in typed[start:end])
            if name in text and _outline(code) in _outlines(text, code.co_filename):
                filename = f"<stdin-{start + 1}>"
                linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
                file = load_file(filename, {})
                if file is not None and _candidates(file, code):
                    return file
    return None


def _candidates(file: SourceFile, code: CodeType) -> list[FunctionNode]:
    """Functions that start where the code does and enclose every position it records."""
    known = file.functions(code.co_name == "<lambda>").get(code.co_firstlineno, [])
    wanted = [node for node in known if getattr(node, "name", "<lambda>") == code.co_name]
    if len(wanted) < 2:
        return wanted
    # Two functions of one name on one line: only the positions tell them apart.
    spans = [
        ((line, column), (end, end_column))
        for line, end, column, end_column in code.co_positions()
        if line and end and column is not None and end_column is not None and (line, column) != (end, end_column)
    ]
    fitting = [
        node
        for node in wanted
        if all(_start(node) <= low and high <= (node.end_lineno or 0, node.end_col_offset or 0) for low, high in spans)
    ]
    return fitting


def _start(node: FunctionNode) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _extent(node: FunctionNode) -> tuple[int, int]:
    """A measure of the text a node covers: the smallest of several enclosing nodes is the innermost."""
    return (node.end_lineno or 0) - node.lineno, (node.end_col_offset or 0) - node.col_offset


def _has_columns(code: CodeType) -> bool:
    return any(column is not None for _, _, column, _ in code.co_positions())


def _changed_since_start(filename: str) -> bool:
    """Whether the file was written after this process began; only then can a loaded function be out of date."""
    try:
        return Path(filename).stat().st_mtime > _STARTED
    except OSError:
        return False


def _same_code(file: SourceFile, code: CodeType) -> bool:
    if file.codes is None:
        file.codes = _outlines(file.text, file.filename)
    return _outline(code) in file.codes


def _outlines(text: str, filename: str) -> set[tuple[object, ...]]:
    """Of all functions in a text; none when it does not compile."""
    try:
        whole = compile(text, filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return set()
    return {_outline(inner) for inner in _nested(whole)}


def _outline(code: CodeType) -> tuple[object, ...]:
    constants = tuple(repr(c) for c in code.co_consts if not isinstance(c, CodeType))
    return code.co_name, code.co_firstlineno, code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars


def _nested(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _nested(constant)
