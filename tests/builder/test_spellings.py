# SPDX-License-Identifier: MIT
"""An instruction written in `.pto` text is what the builder's method of that name makes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
from pto_jit import PTOFunctionBuilder, PTOModule
from pto_jit.builder import stubs
from pto_jit.builder.methods import Methods
from pto_jit.errors import ParseError
from pto_jit.ir.isa import NO_MEANING, ROWS, SPELLINGS, Instruction
from pto_jit.ir.nodes import Func, Var
from pto_jit.ir.types import TileType, Type
from pto_jit.ir.walk import rename, variables
from tests.builder.harness import GLOBAL, element
from tests.builder.test_instructions import CASES, Case, wanted


class Writer(PTOFunctionBuilder):
    """Writes each instruction down as text, too."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.lines: list[str] = []

    def _instruction(self, row: Instruction, arguments: dict[str, Any]) -> Any:
        result = super()._instruction(row, arguments)
        targets = [arguments[p.name] for p in row.destinations]
        operands: list[str] = []
        attrs: list[str] = []
        for parameter in row.operands:
            value = arguments[parameter.name]
            if parameter.role == "w":
                attrs.append(f'{parameter.name}="{value}"')
            elif parameter.role == "n":
                attrs.append(f"{parameter.name}={value}")
            elif value is not None:
                operands.append(f"%{value}" if isinstance(value, str) else str(value))
        text = f"{', '.join(f'%{t}' for t in targets)} = " if targets else ""
        text += f"{row.spelling} {', '.join(operands)}"
        text += f" {{{', '.join(attrs)}}}" if attrs else ""
        if targets:
            text += f" : {', '.join(str(self._names.types[t]) for t in targets)}"
        self.lines.append(f"  {text}")
        return result


def canonical(func: Func) -> Func:
    """The function with its variables numbered in order of appearance."""
    order: dict[str, str] = {}
    for var in (*func.params, *variables(func.body)):
        order.setdefault(var.name, f"v{len(order)}")
    params = tuple(Var(order[p.name], p.type) for p in func.params)
    return replace(func, params=params, body=rename(func.body, order))


def written(case: Case) -> tuple[PTOModule, str]:
    """The case as a built function, and as text with the instructions as they are spelled."""
    outputs = wanted(case)
    b = Writer("f").in_core()
    assert isinstance(b, Writer)
    head: list[str] = []
    types: dict[str, Type] = {}
    for names, arrays in ((("in", "abcd"), case.inputs), (("out", ("d0", "d1")), outputs)):
        prefix, tiles = names
        for position, array in enumerate(arrays):
            b.memref(f"{prefix}{position}", GLOBAL, element(array), array.shape)
            types[tiles[position]] = TileType(element(array), array.shape)
    for position in range(len(case.inputs)):
        b.tile("abcd"[position], *case.inputs[position].shape, element(case.inputs[position]))
        b.load("abcd"[position], f"in{position}")
        head.append(f"  %{'abcd'[position]} = tload %in{position}[0, 0] : {types['abcd'[position]]}")
    for position, array in enumerate(outputs):
        b.tile(f"d{position}", *array.shape, element(array))
    case.step(b)
    for position in range(len(outputs)):
        b.store(f"out{position}", f"d{position}")
        b.lines.append(f"  tstore %d{position}, %out{position}[0, 0]")
    module = b.build().module
    params = ", ".join(f"%{p.name}: {p.type}" for p in module["f"].func.params)
    return module, "\n".join([f"func @f({params}) {{", *head, *b.lines, "  return", "}"])


@pytest.mark.parametrize("case", CASES, ids=[f"{k}-{case.name}" for k, case in enumerate(CASES)])
def test_the_spelling_of_an_instruction_is_the_method(case: Case) -> None:
    module, text = written(case)
    found = pto.parse_pto(text)["f"].func
    expected = module["f"].func
    if case.name in ("histogram", "divs", "subs"):  # plain operations of those names say it differently, and as much
        assert [p.type for p in found.params] == [p.type for p in expected.params]
    else:
        assert canonical(found) == canonical(expected), text
    given = [[*(x.copy() for x in case.inputs), *(np.zeros_like(e) for e in wanted(case))] for _ in range(2)]
    pto.parse_pto(text).compile()["f"].interpret(*given[0])
    module.compile()["f"].interpret(*given[1])
    for a, b in zip(*given, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_stub_file_is_written_from_the_table() -> None:
    assert stubs.PATH.read_text(encoding="utf-8") == stubs.stubs(), "run python -m pto_jit.builder.stubs"


def test_every_instruction_is_a_documented_method_and_a_word() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS) == len(SPELLINGS)
    for row in ROWS:
        method = getattr(Methods, row.name)
        assert method.__doc__ and method.__signature__.parameters["self"]
        assert row.spelling[0] in "ts"
        assert hasattr(PTOFunctionBuilder, row.name)


def test_instructions_without_a_meaning_here_say_why() -> None:
    with pytest.raises(ParseError, match="nothing to place") as caught:
        pto.parse_pto("func @f() {\n  tsync\n}")
    assert caught.value.lineno == 2 and "there is nothing to place" in caught.value.message
    assert not set(NO_MEANING) & set(SPELLINGS)


WRONG = [
    ("  %d = tadds %a : !pto.tile<8x8xf32>", ParseError, "the operand b of `tadds`"),
    ("  %d = trowsum %a, %a : !pto.tile<8x1xf32>", ParseError, "1 operands of `trowsum`"),
    ("  %d = trowsum %a {axis=1} : !pto.tile<8x1xf32>", ParseError, "no attribute axis of `trowsum`"),
    ("  %d, %e = trowsum %a : !pto.tile<8x1xf32>, f32", ParseError, "1 result of `trowsum`"),
    ("  %d = trowsum %a : !pto.tile<8x8xf32>", pto.TypeMismatchError, "gives (!pto.tile<8x1xf32>), not (!pto.tile<8x8xf32>)"),
    ("  %d = trowsum 1.0 : !pto.tile<8x1xf32>", pto.TypeMismatchError, "takes a tile here, not f64"),
    ("  %d = tmuladddst %a, %a : !pto.tile<8x8xf32>", pto.CompilationError, "%d is not defined"),
    ("  %d = tcmp %a, %a {mode=\"up\"} : !pto.tile<8x8xbool_>", pto.TypeMismatchError, "there is no mode 'up'"),
    ("  %d = tcmp %a, %a {mode=3} : !pto.tile<8x8xbool_>", ParseError, "the attribute mode, a word"),
    ("  %d = ttri {diagonal=1.5} : !pto.tile<8x8xf32>", ParseError, "the attribute diagonal, an integer"),
    ("  %d = textract %a, 1.5, 0 : !pto.tile<4x4xf32>", pto.TypeMismatchError, "is f64, not i64"),
    ("  ADD %d, %q, 1", pto.CompilationError, "%q is not defined"),
    ("  ADD %d 1", ParseError, "the operand a of `ADD`"),
    ("  CALL @f(%m -> (%m, 0))", ParseError, "expected `,`"),
    ("  CALL @f(%m -> (1, 0, 0))", ParseError, "expected a tensor"),
    ("  CALL @f(%m -> (%m, %a, 0))", pto.TypeMismatchError, "not an integer"),
    ("  CALL @g(%m -> %m)", pto.CompilationError, "there is no function @g"),
    ("  CALL @f(%m -> %other)", pto.CompilationError, "there is no tensor %other"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "kind", "message"), WRONG, ids=[w[0].strip() for w in WRONG])
def test_wrong_instructions_in_text_are_errors_at_their_line(line: str, kind: type[Exception], message: str) -> None:
    head = (
        "// Function Type: InCore\nfunc @f(%m: !pto.memref<gm,8x8,f32>) {\n  %a = tload %m[0, 0] : !pto.tile<8x8xf32>\n"
    )
    with pytest.raises(kind) as caught:
        pto.parse_pto(f"{head}{line}\n}}\n", "x.pto")
    error = caught.value
    assert message in str(error.message)  # type: ignore[attr-defined]
    assert error.lineno == 4  # type: ignore[attr-defined]
