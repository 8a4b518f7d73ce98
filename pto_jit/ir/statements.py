# SPDX-License-Identifier: MIT
"""Reading the statements of a function from `.pto` text."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from pto_jit.dtypes import bool_, f32
from pto_jit.errors import Loc, TypeMismatchError
from pto_jit.ir.cursor import MAX_DEPTH
from pto_jit.ir.instruction_text import STATEMENT_WORDS, Instructions
from pto_jit.ir.isa.expansion import Infer, constant
from pto_jit.ir.lexer import Source, Token
from pto_jit.ir.nodes import (
    Block,
    Break,
    Call,
    Continue,
    For,
    Fuse,
    If,
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
from pto_jit.ir.tile_calls import TileArgument, WrittenCall
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.ir.variables import I64

BOOL = ScalarType(bool_)
TEMPORARY = TensorType(f32, (None, None))  # until the calls that use it are known
_LOOP_OPTIONS = {
    "kind": ("sequential", "parallel", "chunk", "in_chunk", "combine"),
    "policy": ("leading_full", "aligned"),
    "combine": ("sequential", "tree", "loop"),
}


class Statements(Instructions):
    """A cursor that reads statements."""

    def __init__(self, source: Source, tokens: list[Token], ops: Container[str] | None, infer: Infer | None) -> None:
        super().__init__(source, tokens, ops, infer)
        self.depth = 0
        # calls that name the callee's parameters, completed when all functions are known
        self.written: dict[int, tuple[Call, WrittenCall]] = {}

    # -- statements ---------------------------------------------------------------------------------------------

    def block(self, ends: tuple[str, ...]) -> Block:
        """Statements up to (not including) one of the words in `ends`."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"at most {MAX_DEPTH} levels of nesting")
        result: list[Stmt] = []
        while True:
            while self.token.kind in ("newline", "comment"):
                self.at += 1
            token = self.token
            if token.text in ends and token.kind in ("name", "punct"):
                break
            if token.kind == "end":
                self.fail(" or ".join(f"`{end}`" for end in ends))
            self.statement(token, result, ends)
        self.depth -= 1
        return tuple(result)

    def statement(self, token: Token, out: list[Stmt], ends: tuple[str, ...]) -> None:
        word = token.text if token.kind == "name" else ""
        if token.kind == "var":
            self.assignment(token, out)
        elif word in _STATEMENTS:
            _STATEMENTS[word](self, token, out)
        elif word in STATEMENT_WORDS:
            self.scalar_statement(token, out)
        elif word.startswith(("t", "s")):
            self.instruction(token, (), out)
        else:
            self.fail(f"a statement or {' or '.join(f'`{end}`' for end in ends)}")
        self.end_of_line()

    def assignment(self, start: Token, out: list[Stmt]) -> None:
        targets = [self.next("var", "a variable")]
        while self.accept(","):
            targets.append(self.next("var", "a variable"))
        self.expect("=")
        token = self.next("name", "an instruction")
        if token.text in ("alloc_tile", "alloc_scalar"):
            self.declaration(token, targets)
        elif token.text == "CALL":
            out.append(self.call(start, targets))
        else:
            self.at -= 1
            self.instruction(start, tuple(targets), out)

    def regions(self) -> tuple[Region, ...]:
        result: list[Region] = []
        while True:
            result.append(self.region())
            if not self.accept("AND"):
                self.expect("ENDWITH")
                return tuple(result)

    def region(self) -> Region:
        params = self.params()
        self.end_of_line()
        body = self.block(("YIELD",))
        self.expect("YIELD")
        values = self.comma_operands()
        self.end_of_line()
        return Region(params, body, values)

    def reductions(self) -> tuple[Reduction, ...]:
        """The `REDUCE` clauses at the head of a loop's body."""
        result: list[Reduction] = []
        while True:
            while self.token.kind in ("newline", "comment"):
                self.at += 1
            if not self.accept("REDUCE"):
                return tuple(result)
            state = [self.use()]
            while self.accept(","):
                state.append(self.use())
            self.expect("FROM")
            init = self.comma_operands()
            if self.accept("BY"):
                combine = self.next("name", "the name of an associative operation").text
            else:
                self.expect("WITH")
                combine = self.region()
                self.expect("ENDREDUCE")
            self.end_of_line()
            result.append(Reduction(tuple(state), init, combine))

    def call(self, start: Token, targets: list[Token]) -> Call:
        self.scope.calls = True
        callee = self.next("func", "a function's name, `@name`")
        self.expect("(")
        names: list[str] = []
        args: list[Operand | TileArgument] = []
        while not self.accept(")"):
            if args:
                self.expect(",")
            token = self.token
            if token.kind == "var" and self.tokens[self.at + 1].text == "->":
                names.append(self.name(token))
                self.at += 2
                args.append(self.actual())
            else:
                args.append(self.operand())
            if names and len(names) != len(args):
                self.fail("`%formal -> %actual` for every argument", token)
        types = self.result_types(len(targets))
        results = tuple(self.define(target, type) for target, type in zip(targets, types, strict=True))
        plain = tuple(arg.tensor if isinstance(arg, TileArgument) else arg for arg in args)
        call = Call(self.name(callee), plain, results, self.loc(start))
        if names:
            end = callee.col + len(callee.text)
            place = Loc(self.source.filename, callee.lineno, callee.col, callee.lineno, end)
            self.written[id(call)] = (call, WrittenCall(tuple(names), tuple(args), place))
        return call

    def actual(self) -> Operand | TileArgument:
        """What a parameter is given: an operand, the name of a temporary, or `(%tensor, row, col)`."""
        if not self.accept("("):
            return self.tensor_or_operand()
        token = self.token
        tensor = self.tensor_or_operand()
        if not isinstance(tensor, Var) or not isinstance(tensor.type, TensorType):
            self.fail("a tensor", token)
        places: list[Operand] = []
        for _ in range(2):
            self.expect(",")
            token, place = self.token, self.operand()
            kind = place.type
            if not isinstance(kind, ScalarType) or not kind.dtype.is_integer:
                self.wrong(TypeMismatchError, f"{token.text} is {kind}, not an integer", token, "PTO-T192", "cast it")
            places.append(place)
        self.expect(")")
        return TileArgument(tensor, places[0], places[1])

    def tensor_or_operand(self) -> Operand:
        """An operand; a variable that nothing defines is a tensor that the calls share."""
        token = self.token
        if token.kind == "var" and self.name(token) not in self.scope.types:
            self.at += 1
            name = self.name(token)
            self.scope.temporaries.add(name)
            self.scope.types[name] = TEMPORARY
            return Var(name, TEMPORARY)
        return self.operand()

    def call_statement(self, start: Token, out: list[Stmt]) -> None:
        self.at += 1
        out.append(self.call(start, []))

    def for_statement(self, start: Token, out: list[Stmt]) -> None:
        self.at += 1
        token = self.next("var", "the loop variable")
        var = self.define(token, self.type() if self.accept(":") else I64)
        start_at, stop, step = self.bound(out), self.bound(out), self.bound(out)
        options = self.loop_options()
        loc = self.loc(start)
        self.end_of_line()
        reductions = self.reductions()
        body = self.block(("ENDFOR",))
        self.at += 1
        kind = options.pop("kind", "sequential")
        out.append(For(kind, var, start_at, stop, step, body, **options, loc=loc, reductions=reductions))

    def bound(self, out: list[Stmt]) -> Operand:
        """An operand of a loop header after its comma; `%n:idx` of another integer type is cast."""
        self.expect(",")
        token = self.token
        if token.kind != "var" or self.tokens[self.at + 1].text != ":":
            return self.operand()
        var = self.use()
        self.at += 1
        wanted = self.type()
        if var.type == wanted:
            return var
        if wanted != I64 or not isinstance(var.type, ScalarType) or not var.type.dtype.is_integer:
            self.wrong(TypeMismatchError, f"{token.text} is {var.type}, not {wanted}", token, "PTO-T192", "cast it")
        return self.index(var, token, out)

    def loop_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if not self.accept("{"):
            return options
        while not self.accept("}"):
            if options:
                self.expect(",")
            key = self.next("name", "a loop option")
            if key.text in options:
                self.fail("each option once", key)
            self.expect("=")
            value = self.token
            if key.text == "chunk":
                options["chunk"] = self.operand()
            elif key.text == "grain":
                if value.kind != "var" and (value.kind != "number" or not value.text.isdecimal()):
                    self.fail("a number of iterations")
                options["grain"] = self.operand()
            elif key.text == "checked":
                if value.text not in ("true", "false"):
                    self.fail("`true` or `false`")
                options["checked"] = value.text == "true"
                self.at += 1
            elif key.text in _LOOP_OPTIONS:
                if value.text not in _LOOP_OPTIONS[key.text]:
                    self.fail(" or ".join(f"`{name}`" for name in _LOOP_OPTIONS[key.text]))
                options[key.text] = value.text
                self.at += 1
            else:
                self.fail("`kind`, `chunk`, `policy`, `combine`, `grain` or `checked`", key)
        return options

    def while_statement(self, start: Token, out: list[Stmt]) -> None:
        self.at += 1
        loc = self.loc(start)
        self.end_of_line()
        before = self.block(("DO",))
        self.at += 1
        cond = self.operand()
        self.end_of_line()
        body = self.block(("ENDWHILE",))
        self.at += 1
        out.append(While(before, cond, body, loc))

    def if_statement(self, start: Token, out: list[Stmt]) -> None:
        self.at += 1
        cond = self.operand()
        if self.accept(":"):  # `%c:u1`
            self.type()
        loc = self.loc(start)
        if isinstance(cond, Var) and isinstance(cond.type, ScalarType) and cond.type.dtype.kind != "b":
            cond = self.nonzero(cond, loc, out)
        self.end_of_line()
        then = self.block(("ELSE", "ENDIF"))
        orelse: Block = ()
        if self.accept("ELSE"):
            self.end_of_line()
            orelse = self.block(("ENDIF",))
        self.at += 1
        out.append(If(cond, then, orelse, loc))

    def nonzero(self, cond: Var, loc: Loc, out: list[Stmt]) -> Var:
        result = self.fresh(f"{cond.name}.set", BOOL)
        out.append(Op("ne", (result,), (cond, constant(0, cond.type.dtype)), (), (), loc))
        return result

    def scope_statement(self, start: Token, out: list[Stmt]) -> None:
        self.at += 1
        name = self.name(self.next("func", "the scope's name, `@name`"))
        named = self.accept("{")
        if named:
            self.expect("named")
            self.expect("}")
        loc = self.loc(start)
        self.end_of_line()
        body = self.block(("ENDSCOPE",))
        self.at += 1
        out.append(Scope(name, body, named, loc))

    def fuse_statement(self, start: Token, out: list[Stmt]) -> None:
        self.at += 1
        keep: list[str] = []
        while self.token.kind == "var":
            keep.append(self.name(self.token))
            self.at += 1
            if not self.accept(","):
                break
        loc = self.loc(start)
        self.end_of_line()
        body = self.block(("ENDFUSE",))
        self.at += 1
        out.append(Fuse(body, tuple(keep), loc))

    def return_statement(self, start: Token, out: list[Stmt]) -> None:
        self.at += 1
        values = self.comma_operands()
        out.append(Return(values, self.loc(start)))

    def break_statement(self, start: Token, out: list[Stmt]) -> None:
        self.at += 1
        out.append(Break(self.loc(start)))

    def continue_statement(self, start: Token, out: list[Stmt]) -> None:
        self.at += 1
        out.append(Continue(self.loc(start)))


_STATEMENTS: dict[str, Callable[[Statements, Token, list[Stmt]], None]] = {
    "FOR": Statements.for_statement,
    "WHILE": Statements.while_statement,
    "IF": Statements.if_statement,
    "SCOPE": Statements.scope_statement,
    "FUSE": Statements.fuse_statement,
    "CALL": Statements.call_statement,
    "return": Statements.return_statement,
    "RETURN": Statements.return_statement,
    "BREAK": Statements.break_statement,
    "CONTINUE": Statements.continue_statement,
}
