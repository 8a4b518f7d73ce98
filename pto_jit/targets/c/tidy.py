# SPDX-License-Identifier: MIT
"""The last look at a generated function: unused names go, names used once are put where they are used.

A line that declares a name is *pure* (its expression is made of names that never change) or a *read* (of memory or of
a variable).  A pure expression may move to any later line; a read may move to the next line only, and not into the
head of a loop, so nothing is read later than it was meant to be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pto_jit.targets.source.text import LIMIT, wrapped

_WORDS = "".join(chr(i) if chr(i).isalnum() or chr(i) in "_." else " " for i in range(128))
_MARK = "\0"  # between lines whose words are looked at all at once
_WORDS_AND_MARKS = _MARK + _WORDS[1:]
_MEMBER = re.compile(r"\.[A-Za-z_]\w*")
_WIDTH = 112


class Line:
    """A line of C; one that declares a constant has a name, a C type and an expression (its text)."""

    __slots__ = ("ctype", "depth", "keep", "kind", "level", "name", "text")

    def __init__(
        self, depth: int, text: str, name: str = "", ctype: str = "", level: int = 0, kind: str = "line",
        keep: bool = False,
    ) -> None:  # fmt: skip
        self.depth, self.text, self.name, self.ctype = depth, text, name, ctype
        self.level, self.kind, self.keep = level, kind, keep

    @property
    def assigns(self) -> str:
        """The variable that it assigns, when it does nothing else; else "".

        Functions that do something are given the worker, as those that take memory or may fail.
        """
        if self.kind != "line" or " = " not in self.text:
            return ""
        found = _ASSIGNED.match(self.text)
        return "" if found is None or "(worker" in found[2] else found[1]

    @property
    def length(self) -> int:
        """Characters of the line, were it not broken."""
        around = len(self.ctype) + len(self.name) + 11 if self.ctype else 0
        return 2 * self.depth + len(self.text) + around

    def __str__(self) -> str:
        text = self.text
        if self.ctype:
            kind = f"{self.ctype}const" if self.ctype.endswith("*") else f"const {self.ctype}"
            text = f"{kind} {self.name} = {text};"
        if text.startswith("#"):
            return text
        text = "  " * self.depth + text
        return text if len(text) <= LIMIT else wrapped(text, 2 * self.depth + 4)


def words_of(text: str) -> list[str]:
    """The identifiers of a piece of C, and its numbers; `v.val` is one."""
    return text.translate(_WORDS).split()


def _words(text: str) -> list[str]:
    """The identifiers of a piece of C, and its numbers; of `v.val` only `v`."""
    words = words_of(text)
    return [w.partition(".")[0] for w in words] if "." in text else words


def names_by_line(lines: Sequence[Line], among: Iterable[str]) -> list[list[str]]:
    """The identifiers of every line that are among some, once for each appearance; of `v.val` only `v`.

    Comments have none: the name of the user's file may be that of a variable.
    """
    texts = ["" if line.text.startswith("//") else line.text for line in lines]
    text = _MEMBER.sub("", "".join([f"{_MARK} {text} " for text in texts]))
    out: list[list[str]] = []
    names: list[str] = []
    for word in filter({*among, _MARK}.__contains__, text.translate(_WORDS_AND_MARKS).split()):
        if word == _MARK:
            names = []
            out.append(names)
        else:
            names.append(word)
    return out


def names_in(text: str) -> list[str]:
    """The identifiers of a piece of C; a comment has none."""
    return [] if text.startswith("//") else [w for w in _words(text) if w.isidentifier()]


def tidy(lines: Sequence[Line]) -> list[Line]:
    """The lines of a function without what is not needed."""
    names = _Names(lines)
    names.drop_unused()
    names.put_in_place()
    gone = names.gone
    return _without_empty([line for k, line in enumerate(lines) if k not in gone])


_REMOVABLE = frozenset(["pure", "read", "variable", "own"])
_ASSIGNED = re.compile(r"([A-Za-z_]\w*) = ([^;]*);$")


class _Names:
    """Which lines make a name and which read it.

    made: the lines that declare a name, or do nothing but assign it, by name; reads: the names of `made` that a line
    reads, by line; where: the lines that read a name, once for each appearance; gone: the lines that are not needed.
    """

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = lines
        self.gone: set[int] = set()
        self.made: dict[str, list[int]] = {}
        assigning: set[int] = set()
        for k, line in enumerate(lines):
            name = line.name
            if line.kind not in _REMOVABLE:
                name = line.assigns
                if not name:
                    continue
                assigning.add(k)
            if name in self.made:
                self.made[name].append(k)
            else:
                self.made[name] = [k]
        where = self.where = {name: [] for name in self.made}
        self.reads = names_by_line(lines, self.made)
        for k, names in enumerate(self.reads):
            if not names:
                continue
            if k in assigning:
                del names[0]
            elif lines[k].name in names:
                names[:] = [name for name in names if name != lines[k].name]
            for name in names:
                where[name].append(k)

    def drop_unused(self) -> None:
        """Names that nothing reads, and assignments of variables that nothing reads."""
        work = [name for name, places in self.where.items() if not places]
        while work:
            for k in self.made[work.pop()]:
                self.gone.add(k)
                for name in self.reads[k]:
                    self.where[name].remove(k)
                    if not self.where[name]:
                        work.append(name)

    def put_in_place(self) -> None:
        """Constants that are read once go to where that is, the last ones first: each knows by then where it goes."""
        for k in range(len(self.lines) - 1, -1, -1):
            line = self.lines[k]
            if line.keep or line.kind not in ("pure", "read") or k in self.gone:
                continue
            places = self.where[line.name]
            if len(places) == 1 and self._may_move(k, places[0]):
                self._move(k, places[0])

    def _may_move(self, k: int, at: int) -> bool:
        line, target = self.lines[k], self.lines[at]
        repeats = target.text.startswith(("for (", "while ("))
        if line.kind == "read":
            following = k + 1
            while following in self.gone:
                following += 1
            if at != following or repeats:
                return False
        if target.length + len(line.text) > _WIDTH or target.text.startswith("#"):
            return False
        return not (repeats or target.depth > line.depth) or _is_simple(line)  # what a loop repeats stays outside

    def _move(self, k: int, at: int) -> None:
        line, target = self.lines[k], self.lines[at]
        target.text = _put(target.text, line, target)
        if line.kind == "read" and target.kind == "pure":
            target.kind = "read"
        for name in self.reads[k]:
            places = self.where[name]
            places[places.index(k)] = at
        self.gone.add(k)


def without_unread(lines: Sequence[str], result: str) -> list[str]:
    """The lines of a straight-line function without constants that nothing reads."""
    out: list[str] = []
    used = set(names_in(result))
    for line in reversed(lines):
        head, _, expression = line.partition(" = ")
        name = head.split(" ")[-1]
        if line.startswith("const ") and name not in used:
            continue
        used.update(names_in(expression or line))
        out.append(line)
    return out[::-1]


def _is_simple(line: Line) -> bool:
    """Whether an expression is short and made of names and additions."""
    return line.level >= 13 and len(line.text) <= 24 and "(" not in line.text


def _put(text: str, line: Line, target: Line) -> str:
    """`text` with the expression in place of the name, in parentheses where they are needed."""
    at = _place(text, line.name)
    before, after = text[:at], text[at + len(line.name) :]
    alone = not before and not after
    left = before.rstrip()
    opened = left.endswith(("(", "[", " =", ",", "return")) or not left
    enclosed = opened and not left.endswith(("==", "!=", "<=", ">="))
    closed = after.startswith((";", ")", "]", ",")) or not after
    if alone:
        target.level = line.level
        return line.text
    if (line.level < 15 and not (enclosed and closed)) or (line.level < 15 and _cast_before(left)) or (
        line.text.startswith("-") and before.endswith("-")
    ):
        return f"{before}({line.text}){after}"
    return before + line.text + after


def _place(text: str, name: str) -> int:
    """Where a name stands in a piece of C (a pattern for each name would take longer to compile than to find)."""
    at = text.index(name)
    while True:
        before, after = text[at - 1 : at], text[at + len(name) : at + len(name) + 1]
        if not (before.isalnum() or before in ("_", ".")) and not (after.isalnum() or after == "_"):
            return at
        at = text.index(name, at + 1)


_CAST = re.compile(r"\((u?int\d+_t|float|double|bool|size_t|[a-z_0-9]+ \*)\)$")


def _cast_before(left: str) -> bool:
    """Whether a cast stands before the place."""
    return _CAST.search(left) is not None


def _without_empty(lines: list[Line]) -> list[Line]:
    """Comments that say where nothing comes from, and blocks without lines."""
    out: list[Line] = []
    for line in lines:
        if out and out[-1].text.startswith("//") and (line.text.startswith(("//", "}"))):
            out.pop()
        out.append(line)
    return out
