# SPDX-License-Identifier: MIT
"""Tokens of `.pto` text.

Line ends are tokens, except inside parentheses and brackets.  Comments are dropped but for the three that count:
`// PTO Module:`, `// Entry:` and `// Function Type:`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pto_jit.errors import ParseError


class Token(NamedTuple):
    """`kind` is one of: newline var func string number type name enum punct comment end.

    A number is one token with the dtype that follows it without a space, `1.0:f32`; so are `true` and `false`.
    """

    kind: str
    text: str
    lineno: int
    col: int


_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\f\ufeff]+)
  | (?P<newline>\n)
  | (?P<comment>//[^\n]*)
  | (?P<var>%(?:[\w.]+|"(?:[^"\\\n]|\\.)*"))
  | (?P<func>@(?:[\w.]+|"(?:[^"\\\n]|\\.)*"))
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<type>!pto\.\w+(?:[ ]*<[^<>\n]*>)?)
  | (?P<number>(?:-?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|inf\b|nan\b)|true\b|false\b)(?::[^\W\d]\w*)?)
  | (?P<enum>\#pto\.\w+[ ]*<[ ]*\w+[ ]*>)
  | (?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)
  | (?P<punct>->|[(){}\[\],:=])
    """,
    re.VERBOSE,
)
_COUNTS = re.compile(r"//\s*(PTO Module|Entry|Function Type)\s*:\s*(.*?)\s*$")


class Source:
    """A text and its name, for errors."""

    def __init__(self, text: str, filename: str) -> None:
        self.filename = filename
        self.lines = text.split("\n")

    def error(self, message: str, lineno: int, col: int) -> ParseError:
        line = self.lines[lineno - 1].rstrip("\r") if 0 < lineno <= len(self.lines) else ""
        return ParseError(message, self.filename, lineno, col, line)


def tokenize(text: str, source: Source) -> list[Token]:
    """All tokens of `text`, the last one of kind "end"; `ParseError` at a character that begins none."""
    tokens: list[Token] = []
    position = start = 0
    lineno, depth, end = 1, 0, len(text)
    match_at = _TOKEN.match
    while position < end:
        match = match_at(text, position)
        if match is None:
            raise source.error(_reason(text[position]), lineno, position - start)
        kind = match.lastgroup
        value = match.group()
        if kind == "newline":
            if depth <= 0:
                tokens.append(Token("newline", "end of line", lineno, position - start))
            lineno += 1
            start = match.end()
        elif kind == "comment":
            counts = _COUNTS.match(value)
            if counts:
                tokens.append(Token("comment", f"{counts[1]}:{counts[2]}", lineno, position - start))
        elif kind != "space":
            assert kind is not None
            tokens.append(Token(kind, value, lineno, position - start))
            if kind == "punct":
                depth = max(0, depth + (value in "([") - (value in ")]"))
        position = match.end()
    tokens.append(Token("end", "end of file", lineno, end - start))
    return tokens


def _reason(character: str) -> str:
    if character in "%@":
        return f"expected a name after `{character}`"
    if character == '"':
        return "expected a closing quote on this line"
    if character == "!":
        return "expected a type, `!pto.tile<..>` or `!pto.memref<..>`"
    return f"unexpected character {character!r}"
