# SPDX-License-Identifier: MIT
"""Every error a user can see, and how it prints.

A compile-time error reads::

    PTO-T001: `acc` changes type across loop iterations
      --> attention.py:41:9
       |
    41 |         acc = acc + p @ v
       |         ^^^^^^^^^^^^^^^^^ becomes tile<64x64, f32>
    note: first defined here  attention.py:34:5
    called from attention.py:12:1
    help: start with `pl.zeros((64, 64), pl.f32)`

Codes are `PTO-` + a letter (S syntax, T types, H shapes, L loops and schedules, P parsing, R range inference, F lists
and parallel functions, X target, A arguments, tasks and commands, B bounds, N names and values) + a number; each means
one thing and has a page in `error_pages`.
"""

from __future__ import annotations

import linecache
import sys
import unicodedata
from collections.abc import Iterable
from typing import Any

from pto_jit.slotted import field, frozen


def shown_file(filename: str) -> str:
    """A file by the name that its user knows: `In[3]` for a cell of a notebook, else `filename` itself.

    A notebook's kernel compiles cells under names of files that do not exist and differ from process to process.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()  # None outside of IPython
    cell = getattr(getattr(shell, "compile", None), "format_code_name", lambda _: None)(filename)
    return filename if cell is None else cell[1]


@frozen
class Loc:
    """A range of source text: lines from 1, columns from 0 (as in `ast`, but counted in characters, not bytes).

    `caller` is the place of the call that led here, for code inlined from another function; `added` that of the sum
    that a product has become a part of.
    """

    filename: str = "<unknown>"
    lineno: int = 0
    col_offset: int = 0
    end_lineno: int = 0
    end_col_offset: int = 0
    caller: Loc | None = field(default=None, repr=False)
    added: Loc | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{shown_file(self.filename)}:{self.lineno}:{self.col_offset + 1}"


NOWHERE = Loc()


@frozen
class Note:
    """A second place or a remark that belongs to an error."""

    message: str
    loc: Loc | None = None


def display_width(text: str) -> int:
    """Columns that `text` takes in a terminal: wide characters count twice, combining ones not at all."""
    width = 0
    for ch in text:
        if unicodedata.combining(ch):
            continue
        width += 2 if unicodedata.east_asian_width(ch) in "WF" else 1
    return width


def excerpt(loc: Loc) -> list[str]:
    """The source line of `loc` with its range underlined; empty when the source is not at hand."""
    line = linecache.getline(loc.filename, loc.lineno).rstrip("\n")
    if not line:
        return []
    end = loc.end_col_offset if loc.end_lineno == loc.lineno else len(line)
    start = min(loc.col_offset, len(line))
    end = max(min(end, len(line)), start + 1)
    number = str(loc.lineno)
    gap = " " * len(number)
    before = "".join("\t" if ch == "\t" else " " * display_width(ch) for ch in line[:start])
    marks = "^" * max(1, display_width(line[start:end].replace("\t", " ")))
    return [f"  {gap} --> {loc}", f"  {gap} |", f"  {number} | {line}", f"  {gap} | {before}{marks}"]


def similar(word: str, known: Iterable[str]) -> str:
    """"did you mean ...? " when one of the `known` words is close to the given one, else ""."""
    from difflib import get_close_matches  # an error is on its way: not every process's cost

    found = get_close_matches(word, list(known), 1)
    return f"did you mean `{found[0]}`? " if found else ""


def similar_keyword(problem: str, known: Iterable[str]) -> str:
    """The same for the keyword that the text of a TypeError calls unexpected; "" where that is not the problem."""
    _, found, word = problem.partition("unexpected keyword argument ")
    return similar(word.split("'")[1], known) if found else ""


def callers(loc: Loc | None) -> list[str]:
    """The chain of calls that led to `loc`, a line for each; a recursion is one line."""
    lines: list[str] = []
    caller = loc.caller if loc else None
    while caller is not None:
        here, count = caller, 0
        while caller is not None and str(caller) == str(here):
            caller, count = caller.caller, count + 1
        lines.append(f"called from {here}" + (f"  ({count} times)" if count > 1 else ""))
    return lines


class PtoError(Exception):
    """Root of all errors of pto_jit."""


class _PlacedError(PtoError):
    """An error at a place of the source.

    Attributes: `filename lineno col_offset end_lineno end_col_offset` (lines from 1, columns from 0), `code`, `hint`,
    `notes` (a tuple of `Note`), `others` (a tuple of the further errors that the same compilation found),
    `specialization` (the function and the kinds of its arguments that were compiled, None outside of one).
    """

    default_code = "PTO-N000"
    specialization: str | None = None

    def __init__(
        self,
        message: str,
        loc: Loc | None = None,
        *,
        code: str | None = None,
        hint: str | None = None,
        notes: tuple[Note, ...] = (),
        others: tuple[_PlacedError, ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.loc = loc
        self.code = code or self.default_code
        self.hint = hint
        self.notes = notes
        self.others = others

    def __reduce__(self) -> Any:
        arguments = (type(self), self.message, self.loc, self.code, self.hint, self.notes, self.others)
        return _rebuild, arguments, dict(vars(self))

    def during(self, specialization: str) -> None:
        """Say what was compiled: in `specialization`, and below the traceback."""
        if self.specialization is None:
            self.specialization = specialization
            self.add_note(f"while compiling {specialization}")

    def as_dict(self) -> dict[str, Any]:
        """The error as numbers, strings, lists and dicts, for editors and `json.dumps`.

        A place is a dict of `filename lineno col_offset end_lineno end_col_offset`, or None; `callers` are the places
        of the calls that led there, the innermost first.
        """
        chain = []
        caller = self.loc.caller if self.loc else None
        while caller is not None:
            chain.append(_place(caller))
            caller = caller.caller
        return {
            "class": type(self).__name__,
            "code": self.code,
            "message": self.message,
            "place": _place(self.loc),
            "callers": chain,
            "notes": [{"message": note.message, "place": _place(note.loc)} for note in self.notes],
            "hint": self.hint,
            "specialization": self.specialization,
            "others": [other.as_dict() for other in self.others],
        }

    @property
    def filename(self) -> str | None:
        return self.loc.filename if self.loc else None

    @property
    def lineno(self) -> int | None:
        return self.loc.lineno if self.loc else None

    @property
    def col_offset(self) -> int | None:
        return self.loc.col_offset if self.loc else None

    @property
    def end_lineno(self) -> int | None:
        return self.loc.end_lineno if self.loc else None

    @property
    def end_col_offset(self) -> int | None:
        return self.loc.end_col_offset if self.loc else None

    def __str__(self) -> str:
        lines = [f"{self.code}: {self.message}"]
        if self.loc is not None:
            lines += excerpt(self.loc) or [f"  --> {self.loc}"]
        for note in self.notes:
            if note.loc is None:
                lines.append(f"note: {note.message}")
            else:
                lines.append(f"note: {note.message}  {note.loc}")
                lines += excerpt(note.loc)[2:]
        lines += callers(self.loc)
        if self.hint:
            lines.append(f"help: {self.hint}")
        for k, other in enumerate(self.others):
            lines += ["", f"error {k + 2} of {len(self.others) + 1}:", str(other)]
        return "\n".join(lines)


def _place(loc: Loc | None) -> dict[str, Any] | None:
    if loc is None:
        return None
    return {
        "filename": loc.filename,
        "lineno": loc.lineno,
        "col_offset": loc.col_offset,
        "end_lineno": loc.end_lineno,
        "end_col_offset": loc.end_col_offset,
    }


def _rebuild(cls: Any, message: str, loc: Loc | None, code: str, hint: str | None, notes: tuple[Note, ...],
             others: tuple[_PlacedError, ...]) -> Any:  # fmt: skip
    return cls(message, loc, code=code, hint=hint, notes=notes, others=others)


class CompilationError(_PlacedError):
    """The program cannot be compiled.

    Attributes: `filename lineno col_offset end_lineno end_col_offset` (lines from 1, columns from 0), `code`, `hint`,
    `notes` (a tuple of `Note`), `others` (a tuple of the further errors that the same compilation found),
    `specialization` (the function and the kinds of its arguments that were compiled, None outside of one).
    """

    def at(self, loc: Loc) -> CompilationError:
        """Give the error a place if it has none; returns itself."""
        if self.loc is None:
            self.loc = loc
        return self


class UnsupportedSyntaxError(CompilationError):
    """Python syntax that has no meaning in a kernel."""

    default_code = "PTO-S000"


class TypeMismatchError(CompilationError, TypeError):
    """Operand types or dtypes that do not go together."""

    default_code = "PTO-T000"


class ShapeError(CompilationError, ValueError):
    """Shapes that do not go together, at compile time or at the call."""

    default_code = "PTO-H000"


class ScheduleError(CompilationError, ValueError):
    """A loop that cannot be run the way it was asked for."""

    default_code = "PTO-L000"


class RangeInferenceError(CompilationError, ValueError):
    """A comprehension whose index ranges cannot be inferred."""

    default_code = "PTO-R000"


class ParseError(PtoError, ValueError):
    """Malformed text (`.pto`, a comprehension); `lineno` from 1, `col_offset` from 0."""

    def __init__(self, message: str, filename: str, lineno: int, col_offset: int, line: str = "") -> None:
        super().__init__(message, filename, lineno, col_offset, line)
        self.message, self.filename, self.lineno, self.col_offset, self.line = (
            message, filename, lineno, col_offset, line)  # fmt: skip
        self.code = "PTO-P000"

    def __str__(self) -> str:
        head = f"{self.code}: {self.message}\n  --> {self.filename}:{self.lineno}:{self.col_offset + 1}"
        if not self.line:
            return head
        return f"{head}\n  {self.lineno} | {self.line}\n  {' ' * len(str(self.lineno))} | {' ' * self.col_offset}^"


class TargetError(_PlacedError):
    """The target cannot do what the program asks.  Attributes as of `CompilationError`; None without a place."""


class ToolchainError(PtoError):
    """A compiler or a tool is missing or failed."""


class LaunchError(PtoError, RuntimeError):
    """A compiled program could not be run, or failed while running.

    Attributes of what failed while running: `code`, and `loc`, the place in the source (None for other errors).
    """

    code: str | None = None
    loc: Loc | None = None


class ArgumentError(LaunchError, TypeError):
    """Wrong, missing or unknown arguments; dtype, rank, layout; a read-only output."""


class BoundsError(LaunchError, IndexError):
    """An index, offset or region outside its tensor or tile."""


class RaceError(LaunchError):
    """Two iterations of a parallel loop touch one place, and at least one of them writes it (debug=True).

    Attributes: `loop` (its variable), `iterations` (the values of the variable in the earlier and the later iteration),
    `tensor`, `element` (its indices, None when they are not unique), `places` (of the earlier and the later access).
    What the launch wrote before it stopped stays written.
    """

    loop: str = ""
    iterations: tuple[int, int] = (0, 0)
    tensor: str = ""
    element: tuple[int, ...] | None = None
    places: tuple[Loc, Loc] = (NOWHERE, NOWHERE)


class KernelAssertionError(LaunchError, AssertionError):
    """An assertion inside a kernel failed (debug=True)."""


class TaskError(LaunchError):
    """A task of a graph failed; the error itself is `__cause__`."""


class InternalError(PtoError):
    """A bug of pto_jit. Please report it with the program that led here."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message}\nThis is a bug in pto_jit, not in your program; please report it.")
