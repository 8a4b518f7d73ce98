# SPDX-License-Identifier: MIT
"""Programs from `.pto` text: `parse(to_text(module)) == module`.

The grammar is in docs/pto-assembly.md.  A recursive-descent parser; what is malformed is a `ParseError` that says
what was expected, what is well formed but wrong (an undefined variable, a wrong type) a `CompilationError` at its
place in the text.
"""

from __future__ import annotations

from collections.abc import Container

from pto_jit.errors import CompilationError, TypeMismatchError
from pto_jit.ir.instances import Instances
from pto_jit.ir.isa.expansion import Infer
from pto_jit.ir.lexer import Source, Token, tokenize
from pto_jit.ir.nodes import Call, Func, FuncKind, Module
from pto_jit.ir.statements import Statements
from pto_jit.ir.text import FUNCTION_TYPES
from pto_jit.ir.tile_calls import complete_calls
from pto_jit.ir.types import ScalarType, Type
from pto_jit.ir.variables import FunctionScope
from pto_jit.ir.walk import statements
from pto_jit.slotted import replace

_KINDS: dict[str, FuncKind] = {text: kind for kind, text in FUNCTION_TYPES.items()}  # pyright: ignore


def parse(
    text: str, filename: str = "<text>", *, ops: Container[str] | None = None, infer: Infer | None = None
) -> Module:
    """The module that `text` describes; its nodes have their places in `filename`.

    `ops` are the known operations (any name is taken without it); `infer` gives the types of an operation's results
    and raises a `CompilationError` for wrong ones, which gets its place here.
    """
    source = Source(text, filename)
    return _Parser(source, tokenize(text, source), ops, infer).module()


class _Parser(Statements):
    """A cursor that reads modules and functions."""

    def __init__(self, source: Source, tokens: list[Token], ops: Container[str] | None, infer: Infer | None) -> None:
        super().__init__(source, tokens, ops, infer)
        self.temporaries: dict[str, set[str]] = {}  # of each function: tensors that only calls name

    def module(self) -> Module:
        name, entry, kind = "module", None, None
        funcs: list[Func] = []
        while True:
            self.newlines()
            token = self.token
            if token.kind == "comment":
                self.at += 1
                key, value = token.text.split(":", 1)
                if key == "PTO Module":
                    name = self.string(token, value) if value.startswith('"') else value or name
                elif key == "Entry":
                    entry = (value, token)
                elif value in _KINDS:
                    kind = _KINDS[value]
                else:
                    self.fail("`InCore` or `Orchestration`", Token("comment", value, token.lineno, token.col))
            elif token.kind == "end":
                break
            else:
                func = self.func(kind)
                if any(func.name == other.name for other in funcs):
                    message = f"there are two functions @{func.name}"
                    self.wrong(CompilationError, message, token, "PTO-P010", "rename one")
                funcs.append(func)
                kind = None
        if not funcs:
            self.fail("a function")
        module = Module(name, self.resolve(funcs), "")
        return replace(module, entry=self.entry(module, entry))

    def entry(self, module: Module, entry: tuple[str, Token] | None) -> str:
        """The named entry; without a name the last orchestration function, else the last function."""
        if entry is None:
            return ([f for f in module.funcs if f.kind == "orchestration"] or list(module.funcs))[-1].name
        text, token = entry
        name = self.string(token, text[1:]) if text.startswith('@"') else text.removeprefix("@")
        if not any(func.name == name for func in module.funcs):
            self.fail("the name of a function of this file", Token("comment", text, token.lineno, token.col))
        return name

    def func(self, kind: FuncKind | None) -> Func:
        start = self.expect("func")
        name = self.name(self.next("func", "a function's name, `@name`"))
        self.scope = scope = FunctionScope()
        params = self.params()
        results: tuple[Type, ...] = ()
        if self.accept("->"):
            results = self.type_list() if self.token.text == "(" else (self.type(),)
        self.expect("{")
        loc = self.loc(start)
        self.end_of_line()
        body = self.block(("}",))
        self.expect("}")
        self.end_of_function()
        self.temporaries[name] = scope.temporaries
        # scalars that nothing assigns are parameters
        missing = tuple(v for v in scope.declared.values() if isinstance(v.type, ScalarType))
        kind = kind or ("orchestration" if scope.calls else "incore")
        return Func(name, kind, params + missing, results, body, loc)

    def end_of_function(self) -> None:
        if self.token.kind not in ("newline", "comment", "end"):
            self.fail("the end of the line")

    def resolve(self, funcs: list[Func]) -> tuple[Func, ...]:
        """Complete the calls as they are written, callees first: what they use decides what a caller passes."""
        if not self.written:
            return tuple(funcs)
        instances = Instances(funcs, self.infer or _untyped)
        written = {key: found for key, (_, found) in self.written.items()}
        done: set[str] = set()

        def complete(name: str) -> None:
            if name in done or name not in instances.funcs:
                return
            done.add(name)
            func = instances.funcs[name]
            for stmt in statements(func.body):
                if isinstance(stmt, Call):
                    complete(stmt.callee)
            temporaries = frozenset(self.temporaries.get(name, ()))
            instances.funcs[name] = complete_calls(func, written, instances, temporaries=temporaries)

        for func in funcs:
            complete(func.name)
        return (*(instances.funcs[func.name] for func in funcs), *instances.made)


def _untyped(op: str, *_: object) -> tuple[Type, ...]:
    raise TypeMismatchError(f"`{op}` is part of a call, which needs types", code="PTO-T243",
                            hint="parse with the typing rules")  # fmt: skip


__all__ = ["Infer", "parse"]
