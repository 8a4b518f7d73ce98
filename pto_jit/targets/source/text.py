# SPDX-License-Identifier: MIT
"""Lines of a C-family source under construction."""

from __future__ import annotations

import linecache
import re
from functools import cache
from pathlib import Path, PurePath

from pto_jit.errors import NOWHERE, Loc, shown_file

INDENT = "  "
_WORDS = "".join(chr(i) if chr(i).isalnum() or chr(i) == "_" else " " for i in range(128))


def words_of(text: str) -> list[str]:
    """The identifiers of a source, and the digits and letters of its numbers, in order."""
    return text.translate(_WORDS).split()


@cache
def _last_part(path: str) -> str:
    return "".join(c if c.isprintable() and c != "\\" else "?" for c in PurePath(path).name)  # it ends no comment


def file_name(path: str) -> str:
    """How comments and messages in generated sources name a file: without its directory; `In[3]` for a cell."""
    return _last_part(shown_file(path))


def made_here(path: str) -> bool:
    """Whether a "file" is a text that this package made, or was given without a file: readers of generated sources do
    not have it."""
    return path.startswith(("<loops of ", "<comprehension "))


def place_of(loc: Loc) -> str:
    """How comments in generated sources name a line: `softmax.py:14`; the line itself where there is no such file."""
    if made_here(loc.filename):
        return linecache.getline(loc.filename, loc.lineno).strip().rstrip("\\")
    return f"{file_name(loc.filename)}:{loc.lineno}"


@cache
def text_of(path: Path) -> str:
    """The text of a file of this package, which goes into written programs as it is; read once."""
    return path.read_text(encoding="utf-8")


@cache
def files_in(directory: Path, pattern: str) -> tuple[Path, ...]:
    """The files of a directory of this package whose names match, in the order of their names."""
    return tuple(sorted(directory.glob(pattern)))


class Braces:
    """A block of lines."""

    __slots__ = ("head", "tail", "text")

    def __init__(self, text: SourceText, head: str, tail: str) -> None:
        self.text, self.head, self.tail = text, head, tail

    def __enter__(self) -> None:
        self.text.line(f"{self.head} {{" if self.head else "{")
        self.text.indent += INDENT

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self.text.indent = self.text.indent[: -len(INDENT)]
            self.text.line(self.tail)


class SourceText:
    """Indented lines; `place` puts one comment per line of the user's source."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.indent = ""
        self._place: tuple[str, int] = "", 0

    def line(self, text: str = "") -> None:
        self.lines.append(self.indent + text if text else "")

    def place(self, loc: Loc) -> None:
        """Say which line of the user's source the following lines are for, unless that was said already."""
        place = loc.filename, loc.lineno
        if place == self._place or loc is NOWHERE or not loc.lineno:
            return
        last, self._place = self._place, place
        if (loc.lineno != last[1] or file_name(loc.filename) != file_name(last[0])) and (text := place_of(loc)):
            self.line(f"// {text}")

    def block(self, head: str, tail: str = "}") -> Braces:
        """`head {`, the lines written inside, `}`."""
        return Braces(self, head, tail)

    def wrapped(self) -> str:
        """The text, long lines broken."""
        lines = [wrapped(s, len(s) - len(s.lstrip()) + 2 * len(INDENT)) if len(s) > LIMIT else s for s in self.lines]
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"



LIMIT = 120
"""Columns of a line of generated sources, where it can be broken."""
_PLACES = re.compile(
    r'''"(?:\\.|[^"\\])*(?:"|$)|'(?:\\.|[^'\\])+'|//'''  # strings, comments
    r"|[([{]|[\])}]|(?<=\w)<+(?=\S)|(?<=[\w)*])>+"  # brackets
    r"|, |; | = | [-+*/?:] | && | \|\| "
)
_OPENING, _CLOSING, _ENDING = frozenset("([{<"), frozenset(")]}>"), frozenset((", ", "; ", " = "))


def wrapped(text: str, indent: int) -> str:
    """A long line of C on several: broken behind commas and before operators, in as few brackets as can be, or where
    the arguments of a call begin.  Comments, directives and lines without such a place stay as they are."""
    if text.lstrip().startswith(("//", "#")) or text.endswith("\\"):
        return text
    lines: list[str] = []
    while len(text) > LIMIT:
        cut = _place(text, indent if lines else len(text) - len(text.lstrip()) + 2)
        if not cut:
            break
        lines.append(text[:cut].rstrip())
        text = " " * indent + text[cut:].lstrip()
    return "\n".join([*lines, text])


def _place(line: str, first: int) -> int:
    """Where to break a line: as late as can be in the second half of what fits, or else of the whole; 0 for nowhere."""
    depth = 0
    best = (False, 0.0, 0)
    conditional = line.lstrip().startswith(("if (", "while ("))
    for found in _PLACES.finditer(line, 0, LIMIT + 3):
        sign, inside = found[0], float(depth)
        if sign in _ENDING:
            at = found.end()
        elif sign[0] == " ":
            at = found.start() + 1
        elif sign[0] in _OPENING:
            depth += 1
            at = found.start() + 1
            if sign != "(" or not (line[at - 2].isalnum() or line[at - 2] in "_>"):
                continue
            inside += 0.5
        elif sign[0] in _CLOSING:
            depth -= 1
            if not conditional or depth:
                continue
            conditional = False
            if line.endswith("{"):
                continue
            inside, at = 0.0, found.start() + 2
        elif sign == "//":
            break
        else:  # a string
            continue
        if first < at <= LIMIT:
            best = max(best, (2 * at >= LIMIT, -inside, at))
    return best[2]
