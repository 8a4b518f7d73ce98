# SPDX-License-Identifier: MIT
"""Reading the statements of a function from `.pto` text."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from pto_jit.dtypes import i64
from pto_jit.errors import CompilationError, TypeMismatchError
from pto_jit.ir.cursor import MAX_DEPTH, SCALARS, Cursor
from pto_jit.ir.lexer import Source, Token
from pto_jit.ir.nodes import (
    Attr,
    Block,
    Break,
    Call,
    Const,
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
from pto_jit.ir.text import mnemonic
from pto_jit.ir.type_text import fits
from pto_jit.ir.types import ScalarType, TileType, Type
from pto_jit.slotted import field, mutable

Infer = Callable[[str, tuple[Operand, ...], dict[str, Attr], tuple[Region, ...]], tuple[Type, ...]]

I64 = ScalarType(i64)
_LOOP_OPTIONS = {
    "kind": ("sequential", "parallel", "chunk", "in_chunk", "combine"),
    "policy": ("leading_full", "aligned"),
    "combine": ("sequential", "tree", "loop"),
}

Fixed = tuple[str, tuple[tuple[str, Attr], ...]]

# instructions of the PTO ISA that are operations with fixed attributes
_INSTRUCTIONS: dict[str, Fixed] = {"tmatmul": ("dot", ())}
for _name in ("sum", "max", "min", "prod"):
    _INSTRUCTIONS[f"trow{_name}"] = (_name, (("axes", (1,)), ("keepdims", True)))
    _INSTRUCTIONS[f"tcol{_name}"] = (_name, (("axes", (0,)), ("keepdims", True)))
for _name in ("add", "sub", "mul", "div", "max", "min"):
    _INSTRUCTIONS[f"trowexpand{_name}"] = (_name, ())


@mutable
class FunctionScope:
    """What is known about the function being parsed."""

    types: dict[str, Type] = field(default_factory=dict)
    declared: dict[str, Var] = field(default_factory=dict)  # by alloc_scalar, not assigned so far
    calls: bool = False


class Statements(Cursor):
    """A cursor that reads statements.

    `ops` are the known operations, `infer` types them; both may be left out.
    """

    def __init__(self, source: Source, tokens: list[Token], ops: Container[str] | None, infer: Infer | None) -> None:
        super().__init__(source, tokens)
        self.ops = ops
        self.infer = infer
        self.scope = FunctionScope()
        self.depth = 0
        # calls that name the callee's parameters, put in order when all functions are known
        self.named: dict[int, tuple[Call, tuple[str, ...], Token]] = {}

    def params(self) -> tuple[Var, ...]:
        self.expect("(")
        params: list[Var] = []
        while not self.accept(")"):
            if params:
                self.expect(",")
            token = self.next("var", "a parameter, `%name: type`")
            self.expect(":")
            params.append(self.define(token, self.type()))
            if params[-1] in params[:-1]:
                self.wrong(CompilationError, f"two parameters are called {token.text}", token, "PTO-P011", "rename one")
        return tuple(params)

    def result_types(self, count: int) -> tuple[Type, ...]:
        """`: T, T`, or `: operand types -> T, T`; the operand types are not needed."""
        if not self.accept(":"):
            if count:
                self.fail("`:` and the type of the result")
            return ()
        start = self.token
        types = self.type_list() if self.token.text == "(" else self.comma_types()
        if self.accept("->"):
            types = self.type_list() if self.token.text == "(" else self.comma_types()
        if len(types) != count:
            self.fail(f"{count} result type{'' if count == 1 else 's'}", start)
        return types

    # -- variables and operands ---------------------------------------------------------------------------------

    def define(self, token: Token, type: Type) -> Var:
        name = self.name(token)
        known = self.scope.types.setdefault(name, type)
        if known != type:
            self.wrong(TypeMismatchError, f"{token.text} is {known} and cannot become {type}", token, "PTO-T191",
                       "a variable has one type; use another name")  # fmt: skip
        self.scope.declared.pop(name, None)
        return Var(name, known)

    def use(self) -> Var:
        token = self.next("var", "a variable")
        name = self.name(token)
        known = self.scope.types.get(name)
        if known is None:
            self.wrong(CompilationError, f"{token.text} is not defined", token, "PTO-P013",
                       "define it above: a parameter, a result, or `alloc_scalar`")  # fmt: skip
        return Var(name, known)

    def is_operand(self) -> bool:
        return self.token.kind in ("var", "number")

    def operand(self) -> Operand:
        """`%x`, `3`, `1.5:f32`, `true`."""
        token = self.token
        if token.kind == "var":
            return self.use()
        if token.kind != "number":
            self.fail("an operand: a variable, a number, `true` or `false`")
        value = self.number()
        _, colon, name = token.text.partition(":")
        if not colon:
            name = "bool_" if isinstance(value, bool) else "i64" if isinstance(value, int) else "f64"
        if name not in SCALARS:
            self.fail("a number with a known dtype, like `1.0:f32`", token)
        return Const(value, SCALARS[name])

    def operands(self) -> tuple[Operand, ...]:
        """Operands and groups of them in brackets, up to something that is none."""
        result: list[Operand] = []
        first = True
        while True:
            if self.token.text == "[":
                self.at += 1
                while not self.accept("]"):
                    result.append(self.operand())
                    if self.token.text != "]":
                        self.expect(",")
            elif first and not self.is_operand():
                return ()
            else:
                result.append(self.operand())
            first = False
            if self.token.text != "[" and not self.accept(","):
                return tuple(result)

    def comma_operands(self) -> tuple[Operand, ...]:
        if not self.is_operand():
            return ()
        result = [self.operand()]
        while self.accept(","):
            result.append(self.operand())
        return tuple(result)

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
        if token.kind == "var":
            self.assignment(token, out)
        elif token.kind == "name":
            handler = _STATEMENTS.get(token.text)
            if handler is not None:
                handler(self, token, out)
            elif token.text[0] in "ts":
                out.append(self.op(token, ()))
            else:
                self.fail(f"a statement or {' or '.join(f'`{end}`' for end in ends)}")
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
            out.append(self.op(start, tuple(targets)))

    def declaration(self, token: Token, targets: list[Token]) -> None:
        wanted = TileType if token.text == "alloc_tile" else ScalarType
        self.expect(":")
        typed = self.token
        type = self.type()
        if not isinstance(type, wanted):
            self.fail("a tile type" if wanted is TileType else "a dtype", typed)
        for target in targets:
            fresh = self.name(target) not in self.scope.types
            var = self.define(target, type)
            if wanted is ScalarType and fresh:
                self.scope.declared[var.name] = var

    def op(self, start: Token, targets: tuple[Token, ...]) -> Op:
        word = self.next("name", "an instruction")
        name, fixed = _INSTRUCTIONS.get(word.text) or (word.text[1:], ())
        if word.text[0] not in "ts" or not name or (self.ops is not None and name not in self.ops):
            self.fail("an instruction (`t` or `s` and the name of an operation)", word)
        args = self.operands()
        attrs = fixed + self.attributes()
        types = self.result_types(len(targets))
        loc = self.loc(start)
        regions = self.regions() if self.accept("WITH") else ()
        results = tuple(self.define(target, type) for target, type in zip(targets, types, strict=True))
        args = self.whole_tile(name, args, results)
        if word.text not in _INSTRUCTIONS and word.text != mnemonic(name, args, results):
            self.fail(f"`{mnemonic(name, args, results)}` for these operands", word)
        if self.infer is not None:
            try:
                inferred = self.infer(name, args, dict(attrs), regions)
            except CompilationError as error:
                raise error.at(loc) from None
            if len(inferred) != len(types) or not all(map(fits, inferred, types)):
                raise TypeMismatchError(
                    f"`{word.text}` gives ({', '.join(map(str, inferred))}), not ({', '.join(map(str, types))})",
                    loc,
                    code="PTO-T193",
                    hint="write the type that the operation gives",
                )
        return Op(name, results, args, attrs, regions, loc)

    @staticmethod
    def whole_tile(name: str, args: tuple[Operand, ...], results: tuple[Var, ...]) -> tuple[Operand, ...]:
        """`tload %x[r, c]` without extents takes them from the result's type."""
        if name != "load" or len(results) != 1:
            return args
        type = results[0].type
        if not isinstance(type, TileType) or len(args) != 1 + type.rank or None in type.shape:
            return args
        return (*args, *(Const(extent, I64) for extent in type.shape if extent is not None))

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
        args: list[Operand] = []
        while not self.accept(")"):
            if args:
                self.expect(",")
            token = self.token
            if token.kind == "var" and self.tokens[self.at + 1].text == "->":
                names.append(self.name(token))
                self.at += 2
            args.append(self.operand())
            if names and len(names) != len(args):
                self.fail("`%formal -> %actual` for every argument", token)
        types = self.result_types(len(targets))
        results = tuple(self.define(target, type) for target, type in zip(targets, types, strict=True))
        call = Call(self.name(callee), tuple(args), results, self.loc(start))
        if names:
            self.named[id(call)] = (call, tuple(names), callee)
        return call

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
        name, count = f"{var.name}.idx", 0
        while name in self.scope.types:
            count += 1
            name = f"{var.name}.idx{count}"
        self.scope.types[name] = I64
        result = Var(name, I64)
        out.append(Op("cast", (result,), (var,), (("dtype", i64),), (), self.loc(token)))
        return result

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
                if value.kind != "number" or not value.text.isdecimal():
                    self.fail("a number of iterations")
                options["grain"] = self.plain_number()
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
        loc = self.loc(start)
        self.end_of_line()
        then = self.block(("ELSE", "ENDIF"))
        orelse: Block = ()
        if self.accept("ELSE"):
            self.end_of_line()
            orelse = self.block(("ENDIF",))
        self.at += 1
        out.append(If(cond, then, orelse, loc))

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
