# SPDX-License-Identifier: MIT
"""The text form: from characters to definitions, by hand-written descent with one precedence table.

::

    def     := 'def' id '(' param,* ')' '->' ( id | '(' ret,* ')' ) '{' stmt* '}'
    param   := type [ '(' dim,* ')' ] id
    ret     := id | type [ '(' dim,* ')' ] id
    stmt    := id [ '(' id,* ')' ] assign exp [ '<=>' id '(' exp,* ')' ] [ 'where' clause,* ]
             | id,* '=' id '(' id,* ')'                              another def of the text
    assign  := '=' | '+=' | '*=' | 'min=' | 'max=' | '+=!' | '*=!' | 'min=!' | 'max=!'
    clause  := id 'in' exp ':' exp | id '=' exp | 'exists' exp
    exp     := number | id | id '(' exp,* ')' | id '.' int | type '(' exp ')' | 'pad' '(' read ',' exp ')'
             | unary | binary | exp '?' exp ':' exp | '(' exp ')'

`#` starts a comment; white space and newlines mean nothing.  Everything that does not fit is a ParseError.
"""

from __future__ import annotations

import linecache
import re
from typing import Any, NoReturn

from pto_jit import dtypes
from pto_jit.comprehensions import functions
from pto_jit.comprehensions.nodes import (
    Binary,
    CallStatement,
    Cast,
    Definition,
    Expression,
    Extent,
    Name,
    Number,
    Pad,
    Parameter,
    Range,
    Read,
    Return,
    Select,
    Statement,
    Unary,
    rebuilt,
)
from pto_jit.errors import CompilationError, Loc, Note, ParseError
from pto_jit.slotted import frozen

TYPES = {
    "bool": dtypes.bool_, "int8": dtypes.i8, "int16": dtypes.i16, "int32": dtypes.i32, "int64": dtypes.i64,
    "uint8": dtypes.u8, "uint16": dtypes.u16, "uint32": dtypes.u32, "uint64": dtypes.u64, "int": dtypes.i32,
    "float16": dtypes.f16, "bfloat16": dtypes.bf16, "float32": dtypes.f32, "float64": dtypes.f64,
    "float": dtypes.f32, "double": dtypes.f64, "half": dtypes.f16,
}  # fmt: skip
KEYWORDS = frozenset(TYPES) | {"def", "where", "in", "exists", "min", "max"}

_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n\f\v]+|\#[^\n]*)"
    r"|(?P<number>(?:\d+\.\d*|(?<![\w)])\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?|\d+)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<sign><=>|->|\+=!|\*=!|=!|\+=|\*=|<=|>=|==|!=|&&|\|\||[-+*/%<>=!?:,.(){}])"
)
_REDUCTIONS = {"+": "sum", "*": "prod", "min": "min", "max": "max"}
# From loose to tight; `?:` is looser than all, unary signs are tighter.
_PRECEDENCE = {
    "||": 1, "&&": 2, "<": 3, "<=": 3, ">": 3, ">=": 3, "==": 3, "!=": 3, "+": 4, "-": 4, "*": 5, "/": 5, "%": 5,
}  # fmt: skip
_DEEPEST = 100  # nested brackets, conditions and signs


@frozen
class Token:
    """`kind` is number, word, sign or end."""

    kind: str
    text: str
    start: int
    end: int


def parse(text: str, filename: str, origin: Loc | None = None) -> tuple[Definition, ...]:
    """The definitions of a text; `origin` is the Python call that it was given to.

    Raises ParseError for what does not fit the grammar, CompilationError for a call of what is not defined.
    """
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    return _Parser(text, filename, origin).definitions()


class _Parser:
    def __init__(self, text: str, filename: str, origin: Loc | None) -> None:
        self.text, self.filename, self.origin = text, filename, origin
        self.starts = [0, *(m.end() for m in re.finditer("\n", text))]
        self.known: dict[str, Definition] = {}
        self.tokens = self._tokens()
        self.at = 0
        self.depth = 0
        self.lets: dict[str, Expression] = {}

    # -- tokens ---------------------------------------------------------------------------------------------------

    def _tokens(self) -> list[Token]:
        tokens: list[Token] = []
        position = 0
        while position < len(self.text):
            match = _TOKEN.match(self.text, position)
            if match is None:
                self.fail(f"{self.text[position]!r} has no meaning here", position)
            if match.lastgroup != "space":
                tokens.append(Token(match.lastgroup or "", match.group(), position, match.end()))
            position = match.end()
        tokens.append(Token("end", "the end of the text", len(self.text), len(self.text)))
        return tokens

    def place(self, position: int) -> tuple[int, int]:
        """Line from 1 and column from 0."""
        low, high = 0, len(self.starts) - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.starts[middle] <= position else (low, middle - 1)
        return low + 1, position - self.starts[low]

    def fail(self, message: str, position: int) -> NoReturn:
        line, column = self.place(position)
        lines = self.text.split("\n")
        if self.origin is not None:
            message += f" (in the text given to pto.comprehension at {self.origin})"
        raise ParseError(message, self.filename, line, column, lines[line - 1].rstrip("\r"))

    def notes(self) -> tuple[Note, ...]:
        return () if self.origin is None else (Note("in the text given to pto.comprehension", self.origin),)

    def loc(self, first: Token, last: Token | None = None) -> Loc:
        """From the start of one token to the end of another (the one before the current)."""
        last = last or self.tokens[max(self.at - 1, 0)]
        return Loc(self.filename, *self.place(first.start), *self.place(max(last.end, first.start)))

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def look(self, text: str, ahead: int = 0) -> bool:
        token = self.tokens[min(self.at + ahead, len(self.tokens) - 1)]
        return token.text == text and token.kind != "end"

    def take(self) -> Token:
        token = self.token
        self.at += token.kind != "end"
        return token

    def accept(self, text: str) -> bool:
        found = self.look(text)
        self.at += found
        return found

    def expect(self, text: str, why: str) -> Token:
        if not self.look(text):
            self.unexpected(f"`{text}` {why}")
        return self.take()

    def unexpected(self, wanted: str) -> NoReturn:
        found = self.token.text if self.token.kind == "end" else f"`{self.token.text}`"
        self.fail(f"expected {wanted}, found {found}", self.token.start)

    def identifier(self, what: str) -> Token:
        if self.token.kind != "word" or self.token.text in KEYWORDS:
            self.unexpected(what)
        return self.take()

    # -- definitions ----------------------------------------------------------------------------------------------

    def definitions(self) -> tuple[Definition, ...]:
        while self.token.kind != "end":
            made = self.definition()
            self.known[made.name] = made
        if not self.known:
            self.fail("expected `def`, found nothing", self.token.start)
        return tuple(self.known.values())

    def definition(self) -> Definition:
        first = self.expect("def", "at the start of a definition")
        named = self.identifier("the name of the definition")
        if named.text in self.known:
            self.fail(f"`{named.text}` is defined twice", named.start)
        self.expect("(", "before the parameters")
        parameters: list[Parameter] = []
        while not self.look(")"):
            parameters.append(self.parameter())
            if not self.accept(","):
                break
        self.expect(")", "or `,` after a parameter")
        self.expect("->", "before the results")
        returns: list[Return] = []
        if self.accept("("):
            while not self.look(")"):
                returns.append(self.returned())
                if not self.accept(","):
                    break
            self.expect(")", "or `,` after a result")
        else:  # one name without brackets, as in much older text
            returns.append(self.returned())
        self.expect("{", "before the statements")
        body: list[Statement | CallStatement] = []
        while not self.look("}"):
            if self.token.kind == "end":
                self.unexpected("a statement or `}`")
            body.append(self.statement())
        self.take()
        return Definition(
            named.text, tuple(parameters), tuple(returns), tuple(body), True, None, self.loc(first), self.origin
        )

    def type_name(self) -> dtypes.DType:
        if self.token.text not in TYPES:
            self.unexpected("a type like `float`")
        return TYPES[self.take().text]

    def sizes(self) -> tuple[str | int, ...]:
        found: list[str | int] = []
        if self.accept("("):
            while not self.look(")"):
                if self.token.kind == "number":
                    found.append(self.integer())
                else:
                    found.append(self.identifier("a size: a name or a number").text)
                if not self.accept(","):
                    break
            self.expect(")", "or `,` after a size")
        return tuple(found)

    def integer(self) -> int:
        token = self.token
        if token.kind != "number" or not token.text.isdigit():
            self.unexpected("a whole number")
        self.take()
        if len(token.text) > 18:
            self.fail(f"{token.text[:18]}... does not fit 64 bits", token.start)
        return int(token.text)

    def parameter(self) -> Parameter:
        first = self.token
        dtype = self.type_name()
        sizes = self.sizes()
        return Parameter(self.identifier("the name of the parameter").text, dtype, sizes, self.loc(first))

    def returned(self) -> Return:
        first = self.token
        if first.text in TYPES:
            dtype = self.type_name()
            sizes = self.sizes()
            return Return(self.identifier("the name of the result").text, dtype, sizes, self.loc(first))
        return Return(self.identifier("the name of a result").text, loc=self.loc(first))

    # -- statements -----------------------------------------------------------------------------------------------

    def statement(self) -> Statement | CallStatement:
        first = self.identifier("a statement or `}`")
        if self.look(",") or (
            self.look("=")
            and self.tokens[min(self.at + 1, len(self.tokens) - 1)].text in self.known
            and self.look("(", 2)
        ):
            return self.call(first)
        indices: list[str] = []
        if self.accept("("):
            while not self.look(")"):
                index = self.token
                if index.kind == "word" and index.text not in KEYWORDS and not self.look("(", 1):
                    indices.append(self.take().text)
                else:
                    self.unexpected("an index: subscripts on the left are plain names")
                if not self.accept(","):
                    break
            self.expect(")", "or `,` after an index")
        target_loc = self.loc(first)
        op, fresh = self.assignment()
        self.lets = {}
        value = self.expression()
        if self.accept("<=>"):  # names a library function that computes the same; nothing is made of it
            self.identifier("the name of a function")
            self.expect("(", "after the name of a function")
            self.arguments()
        ranges: dict[str, Range] = {}
        exists: list[Expression] = []
        if self.accept("where"):
            while True:
                self.clause(ranges, exists)
                if not self.accept(","):
                    break
        value = self.with_lets(value)
        held = tuple(self.with_lets(e) for e in exists)
        limits = tuple(ranges[name] for name in sorted(ranges))
        for limit in limits:
            if limit.name in self.lets:
                self.undefined_range(limit)
        return Statement(first.text, tuple(indices), op, fresh, value, limits, held, self.loc(first), target_loc)

    def undefined_range(self, limit: Range) -> NoReturn:
        raise CompilationError(
            f"`{limit.name}` is a name for an expression, it has no range", limit.loc, code="PTO-R001",
            hint=f"remove `{limit.name} in ...`, or use another name for the index", notes=self.notes(),
        )  # fmt: skip

    def assignment(self) -> tuple[Any, bool]:
        token = self.take()
        if token.text == "=":
            return None, True
        if token.text in ("min", "max"):
            if self.accept("="):
                fresh = self.accept("!")
            else:
                self.expect("=!", f"after `{token.text}` on the left of a statement")
                fresh = True
            return _REDUCTIONS[token.text], fresh
        if token.text in ("+=", "*=", "+=!", "*=!"):
            return _REDUCTIONS[token.text[0]], token.text.endswith("!")
        self.at -= token.kind != "end"
        self.unexpected("an assignment: `=`, `+=`, `*=`, `min=` or `max=`, with `!` to start anew")

    def clause(self, ranges: dict[str, Range], exists: list[Expression]) -> None:
        if self.accept("exists"):
            exists.append(self.expression())
            return
        first = self.identifier("`exists`, `index in low:high` or `name = expression`")
        if self.accept("in"):
            low = self.expression(ranged=True)
            self.expect(":", "between the bounds of a range")
            high = self.expression(ranged=True)
            if first.text in ranges:
                self.fail(f"`{first.text}` has two ranges", first.start)
            if first.text in self.lets:
                self.undefined_range(Range(first.text, low, high, self.loc(first, first)))
            ranges[first.text] = Range(first.text, self.with_lets(low), self.with_lets(high), self.loc(first))
            return
        if self.look("="):
            self.take()
            self.lets[first.text] = self.with_lets(self.expression())
            return
        self.unexpected("`in` or `=`")

    def with_lets(self, e: Expression) -> Expression:
        """The expression with the names of `where name = expression` replaced."""
        if isinstance(e, Name) and e.name in self.lets:
            return self.lets[e.name]
        return rebuilt(e, self.with_lets) if self.lets else e

    def call(self, first: Token) -> CallStatement:
        targets = [first.text]
        while self.accept(","):
            targets.append(self.identifier("the name of a result").text)
        self.expect("=", "before the call of another definition")
        callee = self.identifier("the name of a definition")
        if callee.text not in self.known:
            raise CompilationError(
                f"`{callee.text}` is not defined above", self.loc(callee, callee), code="PTO-R002",
                hint="define what is called before its caller", notes=self.notes(),
            )  # fmt: skip
        self.expect("(", "after the name of a definition")
        arguments: list[str] = []
        while not self.look(")"):
            arguments.append(self.identifier("the name of a tensor").text)
            if not self.accept(","):
                break
        self.expect(")", "or `,` after an argument")
        return CallStatement(tuple(targets), self.known[callee.text], tuple(arguments), self.loc(first))

    # -- expressions ----------------------------------------------------------------------------------------------

    def expression(self, ranged: bool = False) -> Expression:
        """`ranged`: a `:` at the top ends the expression."""
        self.depth += 1
        if self.depth > _DEEPEST:
            self.fail("the expression is nested too deeply", self.token.start)
        first = self.token
        value = self.binary(1)
        if self.accept("?"):
            yes = self.expression()
            self.expect(":", "after the first choice of `?`")
            value = Select(value, yes, self.expression(ranged), self.loc(first))
        self.depth -= 1
        return value

    def binary(self, lowest: int) -> Expression:
        first = self.token
        left = self.unary()
        operators = 0
        while (strength := _PRECEDENCE.get(self.token.text, 0)) >= lowest and self.token.kind == "sign":
            op = self.take().text
            left = Binary(op, left, self.binary(strength + 1), self.loc(first))
            operators += 1
            if operators > 2 * _DEEPEST:
                self.fail("the expression has too many operators", self.token.start)
        return left

    def unary(self) -> Expression:
        first = self.token
        if self.look("-") or self.look("!"):
            op = self.take().text
            self.depth += 1
            if self.depth > _DEEPEST:
                self.fail("the expression is nested too deeply", first.start)
            operand = self.unary()
            self.depth -= 1
            return Unary(op, operand, self.loc(first))
        return self.primary()

    def primary(self) -> Expression:
        token = self.token
        if token.kind == "number":
            if token.text.isdigit():
                return Number(self.integer(), self.loc(token))
            self.take()
            return Number(float(token.text), self.loc(token))
        if self.accept("("):
            inner = self.expression()
            self.expect(")", "to close the bracket")
            return inner
        if token.text in TYPES:
            dtype = self.type_name()
            self.expect("(", "after a type: a conversion is `float(x)`")
            operand = self.expression()
            self.expect(")", "to close the conversion")
            return Cast(dtype, operand, self.loc(token))
        if token.text in ("min", "max"):
            self.take()
            self.expect("(", f"after `{token.text}`")
            return self.applied(token, token.text, self.arguments())
        if token.kind != "word" or token.text in KEYWORDS:
            self.unexpected("an expression")
        self.take()
        if self.accept("."):
            return Extent(token.text, self.integer(), self.loc(token))
        if not self.accept("("):
            return Name(token.text, self.loc(token))
        args = self.arguments()
        if token.text == "pad":
            read = Read(args[0].name, (), args[0].loc) if args and isinstance(args[0], Name) else args and args[0]
            if len(args) != 2 or not isinstance(read, Read):
                self.fail("`pad` takes an element of a tensor and a value", token.start)
            return Pad(read, args[1], self.loc(token))
        known = functions.base(token.text)
        if known in functions.NAMES:
            return self.applied(token, known, args)
        return Read(token.text, args, self.loc(token)) if args else Name(token.text, self.loc(token))

    def applied(self, token: Token, known: str, args: tuple[Expression, ...]) -> Expression:
        count = functions.arity(known)
        if len(args) != count:
            self.fail(f"`{token.text}` takes {count} argument{'s' * (count > 1)}, not {len(args)}", token.start)
        return functions.apply(known, args, self.loc(token))

    def arguments(self) -> tuple[Expression, ...]:
        """What stands between brackets, the first of which is read already."""
        found: list[Expression] = []
        while not self.look(")"):
            found.append(self.expression())
            if not self.accept(","):
                break
        self.expect(")", "or `,` in the list")
        return tuple(found)
