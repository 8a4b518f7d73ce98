# SPDX-License-Identifier: MIT
"""A place in `.pto` text, and reading the small things found there: names, types, numbers, attributes."""

from __future__ import annotations

import json
import math
from typing import NoReturn

from pto_jit.dtypes import BY_NAME, i64
from pto_jit.errors import CompilationError, Loc
from pto_jit.ir.lexer import Source, Token
from pto_jit.ir.nodes import Attr
from pto_jit.ir.type_text import parse_type
from pto_jit.ir.types import ScalarType, Type

MAX_DEPTH = 100
SCALARS: dict[str, ScalarType] = {name: ScalarType(dtype) for name, dtype in BY_NAME.items()}
SCALARS["idx"] = SCALARS["index"] = SCALARS[i64.name]
SCALARS["u1"] = SCALARS["i1"] = SCALARS["bool_"]


class Cursor:
    """Tokens and the position of the next one."""

    def __init__(self, source: Source, tokens: list[Token]) -> None:
        self.source = source
        self.tokens = tokens
        self.at = 0

    # -- tokens -------------------------------------------------------------------------------------------------

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def fail(self, expected: str, token: Token | None = None) -> NoReturn:
        token = token or self.token
        got = token.text if token.kind in ("newline", "end") else f"`{token.text:.40}`"
        raise self.source.error(f"expected {expected}, got {got}", token.lineno, token.col)

    def next(self, kind: str, expected: str) -> Token:
        token = self.tokens[self.at]
        if token.kind != kind:
            self.fail(expected)
        self.at += 1
        return token

    def accept(self, text: str) -> bool:
        token = self.tokens[self.at]
        if token.text == text and token.kind in ("punct", "name"):
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> Token:
        token = self.tokens[self.at]
        if not self.accept(text):
            self.fail(f"`{text}`")
        return token

    def newlines(self) -> None:
        while self.tokens[self.at].kind == "newline":
            self.at += 1

    def end_of_line(self) -> None:
        if self.token.kind not in ("newline", "comment", "end"):
            self.fail("the end of the line")
        while self.token.kind in ("newline", "comment"):
            self.at += 1

    def loc(self, start: Token) -> Loc:
        last = self.tokens[max(self.at - 1, 0)]
        return Loc(self.source.filename, start.lineno, start.col, last.lineno, last.col + len(last.text))

    def name(self, token: Token) -> str:
        text = token.text[1:]
        return self.string(token, text) if text.startswith('"') else text

    def string(self, token: Token, text: str) -> str:
        try:
            return json.loads(text)
        except ValueError:
            self.fail("a string with JSON escapes", token)

    def wrong(self, error: type[CompilationError], message: str, token: Token, code: str, hint: str) -> NoReturn:
        end = token.col + len(token.text)
        loc = Loc(self.source.filename, token.lineno, token.col, token.lineno, end)
        raise error(message, loc, code=code, hint=hint)

    # -- types ---------------------------------------------------------------------------------------------------

    def type(self) -> Type:
        token = self.token
        if token.kind == "name" and token.text in SCALARS:
            self.at += 1
            return SCALARS[token.text]
        if token.kind != "type":
            self.fail("a type: a dtype, `!pto.tile<8x8xf32>` or `!pto.memref<gm,8x8,f32>`")
        self.at += 1
        result = parse_type(token.text)
        if isinstance(result, str):
            self.fail(result, token)
        return result

    def type_list(self) -> tuple[Type, ...]:
        self.expect("(")
        types: list[Type] = []
        while not self.accept(")"):
            if types:
                self.expect(",")
            types.append(self.type())
        return tuple(types)

    def comma_types(self) -> tuple[Type, ...]:
        types = [self.type()]
        while self.accept(","):
            types.append(self.type())
        return tuple(types)

    # -- numbers -------------------------------------------------------------------------------------------------

    def plain_number(self) -> int | float | bool:
        """A number without a dtype, in an attribute."""
        if ":" in self.token.text:
            self.fail("a number without a dtype")
        return self.number()

    def number(self) -> int | float | bool:
        token = self.next("number", "a number")
        text = token.text.partition(":")[0]
        if text in ("true", "false"):
            return text == "true"
        if text.endswith("nan"):
            return math.nan
        if text.lstrip("-").isdecimal():
            if len(text) > 100:
                self.fail("a number of at most 100 digits", token)
            return int(text)
        return float(text)

    # -- attributes ---------------------------------------------------------------------------------------------

    def attributes(self) -> tuple[tuple[str, Attr], ...]:
        """`{name=value, ...}` or nothing."""
        if not self.accept("{"):
            return ()
        result: list[tuple[str, Attr]] = []
        while not self.accept("}"):
            if result:
                self.expect(",")
            token = self.next("name", "an attribute, `name=value`")
            if any(token.text == name for name, _ in result):
                self.fail("each attribute once", token)
            self.expect("=")
            result.append((token.text, self.attribute()))
        return tuple(result)

    def attribute(self, depth: int = 0) -> Attr:
        token = self.token
        if token.kind == "string":
            self.at += 1
            return self.string(token, token.text)
        if token.kind == "number":
            return self.plain_number()
        if token.kind == "enum":  # `#pto.cmp<EQ>`
            self.at += 1
            return token.text.partition("<")[2].rstrip("> ").strip()
        if token.kind == "name" and token.text == "none":
            self.at += 1
            return None
        if token.kind == "name" and token.text in BY_NAME:
            self.at += 1
            return BY_NAME[token.text]
        if token.text != "(" or depth > MAX_DEPTH:
            self.fail('a value: a number, "text", `true`, `false`, `none`, a dtype or `(...)`')
        self.at += 1
        items: list[Attr] = []
        while not self.accept(")"):
            items.append(self.attribute(depth + 1))
            if self.token.text != ")":
                self.expect(",")
        return tuple(items)
