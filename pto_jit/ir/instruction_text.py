# SPDX-License-Identifier: MIT
"""Reading operations and instructions from `.pto` text.

A word that names an operation and fits it is that operation; else it is the instruction of the PTO ISA of that name,
which becomes the operations that it stands for.
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.errors import CompilationError, Loc, TypeMismatchError
from pto_jit.ir.isa import NO_MEANING, OPERATIONS, SPELLINGS, Instruction
from pto_jit.ir.isa.expansion import Expansion
from pto_jit.ir.lexer import Token
from pto_jit.ir.nodes import Attr, Const, Op, Operand, Region, Stmt, Var
from pto_jit.ir.text import mnemonic
from pto_jit.ir.type_text import fits
from pto_jit.ir.types import ScalarType, TensorType, TileType, Type
from pto_jit.ir.variables import I64, Variables
from pto_jit.slotted import frozen

_MODES = ("mode", "cmpMode", "rmode")  # what other writers call the word of an instruction
# words that name an operation and an instruction of another form; the other words of both mean one thing
_BOTH = frozenset("tdiv sdiv tsort targsort textract tconcat tgather thistogram treshape trand trandn tprint".split())
_HINTS = {"tcolsum": ("isBinary",)}  # attributes that say how, not what
# scalar instructions as statements with the destination first: `ADD %d:i32, %a:i32, 1`
STATEMENT_WORDS = {
    "MOV": "scalar_mov", "CMP": "scalar_cmp", "LI": "scalar_li",
    **{word.upper(): f"scalar_{word}" for word in "add sub mul div rem max min and or xor shl shr neg abs not".split()},
}  # fmt: skip
STATEMENT_WORDS |= {f"S{word}": name for word, name in STATEMENT_WORDS.items()}


@frozen
class _Written:
    """An instruction as it stands in the text. `bare` are numbers without a dtype, by position among `args`."""

    word: Token
    start: Token
    args: tuple[Operand, ...]
    bare: frozenset[int]
    attrs: tuple[tuple[str, Attr], ...]
    loc: Loc


class Instructions(Variables):
    """A cursor that reads operations and instructions."""

    def regions(self) -> tuple[Region, ...]:
        """The regions of an operation, `WITH` read; statements are another class's."""
        raise NotImplementedError

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
            if fresh:
                self.scope.declared[var.name] = var

    def instruction(self, start: Token, targets: tuple[Token, ...], out: list[Stmt]) -> None:
        """An operation or instruction, from its word on."""
        word = self.next("name", "an instruction")
        row = SPELLINGS.get(word.text.replace(".", "_"))
        name = word.text[1:]
        known = word.text[0] in "ts" and bool(name)
        if self.ops is None:
            known = known and (row is None or name in OPERATIONS or word.text in _BOTH)
        else:
            known = known and name in self.ops
        if row is None and not known:
            reason = NO_MEANING.get(word.text)
            extra = f"; {reason}" if reason else ""
            self.fail(f"an instruction (`t` or `s` and the name of an operation){extra}", word)
        self.bare = []
        args = self.operands()
        bare = frozenset(k for k, arg in enumerate(args) if any(arg is number for number in self.bare))
        attrs = self.attributes()
        types = self.result_types(len(targets), several=row is not None)
        loc = self.loc(start)
        written = _Written(word, start, args, bare, attrs, loc)
        if self.accept("WITH"):
            if not known:
                self.fail("the end of the line", self.tokens[self.at - 1])
            out.append(self.operation(written, name, targets, types, self.regions()))
        elif row is None or (known and (word.text not in _BOTH or self.fits_operation(written, name, types))):
            out.append(self.operation(written, name, targets, types, ()))
        else:
            self.expand(written, row, targets, types, out)

    def fits_operation(self, written: _Written, name: str, types: tuple[Type, ...]) -> bool:
        """Whether an instruction with the name of an operation is that operation."""
        if self.infer is None:
            return True
        try:
            found = self.infer(name, whole_tile(name, written.args, types), dict(written.attrs), ())
        except CompilationError:
            return False
        return len(found) == len(types) and all(map(fits, found, types))

    def operation(self, written: _Written, name: str, targets: tuple[Token, ...], types: tuple[Type, ...],
                  regions: tuple[Region, ...]) -> Op:  # fmt: skip
        results = tuple(self.define(target, type) for target, type in zip(targets, types, strict=True))
        args, attrs, word, loc = whole_tile(name, written.args, types), written.attrs, written.word, written.loc
        if word.text != mnemonic(name, args, results):
            self.fail(f"`{mnemonic(name, args, results)}` for these operands", word)
        if self.infer is not None:
            try:
                inferred = self.infer(name, args, dict(attrs), regions)
            except CompilationError as error:
                raise error.at(loc) from None
            if len(inferred) != len(types) or not all(map(fits, inferred, types)):
                raise _wrong_types(word, inferred, types, loc)
        return Op(name, results, args, attrs, regions, loc)

    # -- instructions of the ISA --------------------------------------------------------------------------------

    def expand(self, written: _Written, row: Instruction, targets: tuple[Token, ...], types: tuple[Type | None, ...],
               out: list[Stmt]) -> None:  # fmt: skip
        """The operations that an instruction stands for."""
        wanted, word = row.destinations, written.word
        if len(targets) != len(wanted):
            count = f"{len(wanted)} result{'' if len(wanted) == 1 else 's'}"
            self.fail(f"{count} of `{word.text}`", written.start)

        def before() -> Operand:
            target = targets[0]
            name = self.name(target)
            known = self.scope.types.get(name)
            if known is None:
                self.wrong(CompilationError, f"{target.text} is not defined", target, "PTO-P013",
                           f"`{word.text}` reads its result's variable: assign it above")  # fmt: skip
            return Var(name, known)

        e = Expansion(self.infer, out.append, lambda kind: self.fresh("t", kind), written.loc, types, before)
        lasts = e.expand(row, self.given(written, row, out))
        position = 0
        made: list[Op] = []
        for op, args, attrs in lasts:
            found: Sequence[Type | None]
            found = e.types(op, args, attrs) if self.infer is not None else types
            mine = types[position : position + len(found)]
            if len(mine) != len(found) or any(
                t is not None and f is not None and not fits(f, t) for f, t in zip(found, mine, strict=True)
            ):
                raise _wrong_types(word, found, mine, written.loc)
            results: list[Var] = []
            for kind, inferred in zip(mine, found, strict=True):
                chosen = kind or inferred
                assert chosen is not None
                results.append(self.define(targets[position], chosen))
                position += 1
            made.append(Op(op, tuple(results), tuple(args), tuple(sorted(attrs.items())), (), written.loc))
        out += made

    def given(self, written: _Written, row: Instruction, out: list[Stmt]) -> list[object]:
        """The operands and attributes in the order of the row; numbers without a dtype as they are."""
        attrs = dict(written.attrs)
        for name in _HINTS.get(written.word.text, ()):
            attrs.pop(name, None)
        args = list(enumerate(written.args))
        found: list[object] = []
        for parameter in row.operands:
            if parameter.role in "wn":
                names = (parameter.name, *_MODES) if parameter.role == "w" else (parameter.name,)
                name = next((n for n in names if n in attrs), None)
                value = parameter.default if name is None else attrs.pop(name)
                if parameter.role == "n" and isinstance(value, bool):
                    value = int(value)
                if not isinstance(value, str if parameter.role == "w" else int):
                    what = "a word" if parameter.role == "w" else "an integer"
                    self.fail(f"the attribute {parameter.name}, {what}", written.word)
                found.append(value.lower().removeprefix("cast_") if isinstance(value, str) else value)
            elif args:
                position, arg = args.pop(0)
                found.append(self.one(written, parameter.role, arg, position in written.bare, out))
            elif parameter.optional:
                found.append(Const(parameter.default, I64) if isinstance(parameter.default, int)
                             and parameter.role == "i" else parameter.default)  # fmt: skip
            else:
                self.fail(f"the operand {parameter.name} of `{written.word.text}`", written.word)
        if args or attrs:
            what = f"{len(row.operands)} operands" if args else f"no attribute {next(iter(attrs))}"
            self.fail(f"{what} of `{written.word.text}`", written.word)
        return found

    def one(self, written: _Written, role: str, arg: Operand, bare: bool, out: list[Stmt]) -> object:
        """One operand, checked against its role."""
        kind = arg.type
        good = {"t": TileType, "x": TensorType, "s": ScalarType, "i": ScalarType, "o": (TileType, ScalarType)}[role]
        if not isinstance(kind, good):
            what = {"t": "a tile", "x": "a tensor", "s": "a scalar", "i": "an integer", "o": "a tile or scalar"}[role]
            raise TypeMismatchError(
                f"`{written.word.text}` takes {what} here, not {kind}", written.loc, code="PTO-T188",
                hint="the forms of the instructions are in docs/pto-assembly.md",
            )  # fmt: skip
        if role == "i":
            return self.index(arg, written.word, out)
        return arg.value if bare and isinstance(arg, Const) else arg

    # -- scalar instructions as statements ----------------------------------------------------------------------

    def scalar_statement(self, start: Token, out: list[Stmt]) -> None:
        """`ADD %d:i32, %a:i32, %b`: the destination first, types behind the variables, a mode last."""
        self.at += 1
        row = next(r for r in SPELLINGS.values() if r.name == STATEMENT_WORDS[start.text])
        target = self.next("var", "a variable")
        kind: Type | None = self.scope.types.get(self.name(target))
        if self.accept(":"):
            kind = self.type()
        self.bare = []
        args: list[Operand] = []
        attrs: tuple[tuple[str, Attr], ...] = ()
        while self.accept(","):
            if self.token.kind == "name":
                attrs = (("mode", self.next("name", "a mode").text),)
                break
            args.append(self.operand())
            if self.accept(":"):
                self.type()
        bare = frozenset(k for k, arg in enumerate(args) if any(arg is number for number in self.bare))
        written = _Written(start, start, tuple(args), bare, attrs, self.loc(start))
        self.expand(written, row, (target,), (kind,), out)


def whole_tile(name: str, args: tuple[Operand, ...], types: tuple[Type, ...]) -> tuple[Operand, ...]:
    """`tload %x[r, c]` without extents takes them from the result's type."""
    if name != "load" or len(types) != 1:
        return args
    (type,) = types
    if not isinstance(type, TileType) or len(args) != 1 + type.rank or None in type.shape:
        return args
    return (*args, *(Const(extent, I64) for extent in type.shape if extent is not None))


def _wrong_types(word: Token, found: Sequence[Type | None], types: Sequence[Type | None], loc: Loc) -> CompilationError:
    return TypeMismatchError(
        f"`{word.text}` gives ({', '.join(map(str, found))}), not ({', '.join(map(str, types))})", loc,
        code="PTO-T193", hint="write the type that the operation gives",
    )  # fmt: skip
