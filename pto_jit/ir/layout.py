# SPDX-License-Identifier: MIT
"""The layout of `.pto` text: two spaces for each block, one space between words, comments kept.

Works on lines, so it knows nothing of types and keeps every word; the text says the same before and after.
"""

from __future__ import annotations

import re

from pto_jit.ir.lexer import Source, tokenize

_OPENS = frozenset("FOR WHILE IF SCOPE FUSE".split())
_CLOSES = frozenset("ENDFOR ENDWHILE ENDIF ENDSCOPE ENDFUSE ENDWITH ENDREDUCE".split())
_BETWEEN = frozenset("ELSE DO AND".split())
_PIECE = re.compile(r'!pto\.\w+\s*<[^<>]*>|"(?:[^"\\]|\\.)*"|//.*|\s+|,\s*|[^\s",/]+|/', re.DOTALL)


def lay_out(text: str) -> str:
    """`text` laid out; text without a program in it comes back stripped."""
    depth = open_brackets = 0
    lines: list[str] = []
    for line in text.split("\n"):
        words = _spaced(line.strip())
        if not words:
            if lines and lines[-1]:
                lines.append("")
            continue
        if lines and lines[-1] == "}":
            lines.append("")
        first = re.match(r"\w+|\}", words)
        word = first[0] if first else ""
        continued = open_brackets > 0
        if not continued and (word in _CLOSES or word in _BETWEEN or word == "}"):
            depth = max(0, depth - 1)
        lines.append("  " * (depth + 2 * continued) + words)
        bare = _without_comment(words)
        open_brackets = max(0, open_brackets + sum(bare.count(c) for c in "([") - sum(bare.count(c) for c in ")]"))
        if not open_brackets and (word in _BETWEEN or _opens(word, bare)):
            depth += 1
    while lines and not lines[-1]:
        lines.pop()
    return "\n".join(lines) + "\n"


def _opens(word: str, line: str) -> bool:
    """Whether a block begins behind a line."""
    return word in _OPENS or line.endswith("{") or re.search(r"(^|\s)WITH\s*\(", line) is not None


def _spaced(line: str) -> str:
    """One space for several, and one after each comma; strings and comments stay."""
    out: list[str] = []
    for piece in _PIECE.findall(line):
        if piece.isspace():
            out.append(" ")
        elif piece.startswith(","):
            out.append(", ")
        elif piece.startswith((")", "]")) and out and out[-1] == ", ":
            out[-1] = ","
            out.append(piece)
        else:
            out.append(piece)
    return "".join(out).rstrip()


def _without_comment(line: str) -> str:
    """The words of a line, without strings and comments."""
    source = Source(line, "<line>")
    tokens = tokenize(line, source)
    return " ".join(t.text for t in tokens if t.kind not in ("string", "comment", "newline", "end"))


__all__ = ["lay_out"]
