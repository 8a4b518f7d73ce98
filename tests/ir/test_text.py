# SPDX-License-Identifier: MIT
"""The `.pto` text, both ways."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from pto_jit import dtypes
from pto_jit.dtypes import bf16, f32, i64
from pto_jit.errors import CompilationError, Loc, ParseError
from pto_jit.ir.nodes import Block, Const, For, Func, If, Module, Op, Return, Stmt, Var
from pto_jit.ir.parse import parse
from pto_jit.ir.text import attr_text, operand_text, to_text
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import statements
from pto_jit.semantic.rules import infer
from pto_jit.semantic.table import NAMES
from tests.ir.generate import attributes, random_module

I64 = ScalarType(i64)
HERE = Loc("here.py", 1, 0, 1, 1)


def func(*body: Stmt, params: tuple[Var, ...] = ()) -> Module:
    return Module("m", (Func("f", "incore", params, (), body, HERE),), "f")


def op(name: str, *args: Var | Const, attrs: tuple[tuple[str, object], ...] = ()) -> Op:
    return Op(name, (), args, attrs, (), HERE)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(150))
def test_a_random_module_survives_text(seed: int) -> None:
    module = random_module(seed)
    text = to_text(module)
    again = parse(text, ops=NAMES, infer=infer)
    assert again == module
    assert to_text(again) == text
    assert parse(to_text(module, locations=True)) == module


@pytest.mark.parametrize("seed", range(200))
def test_an_attribute_survives_text_exactly(seed: int) -> None:
    value = attributes(random.Random(seed))
    module = func(op("print", attrs=(("fmt", value),)))
    (stmt,) = parse(to_text(module)).funcs[0].body
    assert isinstance(stmt, Op)
    assert attr_text(stmt.attr("fmt")) == attr_text(value)
    assert type(stmt.attr("fmt")) is type(value)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("value", [0, 1, -1, 127, True, False, 0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, 1e-45])
def test_a_constant_keeps_its_value_its_python_type_and_its_dtype(dtype: dtypes.DType, value: float) -> None:
    const = Const(value, ScalarType(dtype))
    (stmt,) = parse(to_text(func(op("print", const)))).funcs[0].body
    assert isinstance(stmt, Op)
    (back,) = stmt.args
    assert back == const
    assert isinstance(back, Const) and type(back.value) is type(value)


def test_constants_of_the_common_dtypes_need_no_suffix() -> None:
    assert operand_text(Const(3, I64)) == "3"
    assert operand_text(Const(True, ScalarType(dtypes.bool_))) == "true"
    assert operand_text(Const(-0.0, ScalarType(dtypes.f64))) == "-0.0"
    assert operand_text(Const(math.inf, ScalarType(bf16))) == "inf:bf16"


@pytest.mark.parametrize(
    "type",
    [
        TileType(f32, (8, None, 1)),
        TensorType(bf16, (None, 64), "inner"),
        TensorType(f32, (), "c"),
        TensorType(dtypes.bool_, (0,), "strided"),
        ScalarType(dtypes.u64),
    ],
    ids=str,
)
def test_a_type_survives_text(type: ScalarType | TileType | TensorType) -> None:
    module = func(params=(Var("p", type),))
    assert parse(to_text(module)) == module


def test_names_that_are_not_words_are_quoted() -> None:
    module = func(op("print", Var('a "b"\n', I64)), params=(Var('a "b"\n', I64),))
    text = to_text(module)
    assert '%"a \\"b\\"\\n"' in text
    assert parse(text) == module


def test_the_text_of_one_program_of_each_construct(golden: Callable[[str, str], None]) -> None:
    golden("constructs.pto", to_text(parse(CONSTRUCTS, ops=NAMES, infer=infer)))


def test_random_programs_print_as_before(golden: Callable[[str, str], None]) -> None:
    golden("random.pto", "".join(to_text(random_module(seed, 6)) for seed in range(3)))


def test_the_text_parses_to_places_in_the_text() -> None:
    module = parse(CONSTRUCTS, "file.pto")
    for f in module.funcs:
        for stmt in statements(f.body):
            assert stmt.loc.filename == "file.pto"
            line = CONSTRUCTS.split("\n")[stmt.loc.lineno - 1]
            assert line[stmt.loc.col_offset :].strip()
            assert line[: stmt.loc.col_offset].strip() == ""


def test_locations_are_comments_on_request() -> None:
    text = to_text(parse(CONSTRUCTS, "dir/file.pto"), locations=True)
    assert "return  // file.pto:" in text
    assert "//" not in to_text(parse(CONSTRUCTS).funcs[0].body)


def test_a_mark_stands_below_its_statement() -> None:
    module = parse("func @f(%n: i64) {\n  FOR %i:idx, 0:idx, %n:idx, 1:idx\n    CONTINUE\n  ENDFOR\n}")
    (loop,) = module.funcs[0].body
    text = to_text(module.funcs[0], marks={id(loop): "look\nhere"})
    assert "1:idx\n  // ^ look here\n    CONTINUE" in text


def test_a_deep_program_survives_and_a_deeper_one_is_refused() -> None:
    def nest(depth: int) -> Block:
        block: Block = (Return((), HERE),)
        for _ in range(depth):
            block = (If(Const(True, ScalarType(dtypes.bool_)), block, (), HERE),)
        return block

    module = func(*nest(90))
    assert parse(to_text(module)) == module
    with pytest.raises(ParseError, match="levels of nesting"):
        parse(to_text(func(*nest(400))))


def test_a_call_prints_formals_in_a_module_and_positions_alone() -> None:
    module = parse(CONSTRUCTS)
    assert "CALL @work(%x -> %x, %n -> 3)" in to_text(module)
    assert "CALL @work(%x, 3)" in to_text(module.func("main"))
    assert parse(to_text(module).replace("CALL @work(%x -> %x, %n -> 3)", "CALL @work(%x, 3)")) == module
    assert parse(to_text(module).replace("CALL @work(%x -> %x, %n -> 3)", "CALL @work(%n -> 3, %x -> %x)")) == module


CONSTRUCTS = """\
// PTO Module: constructs
// Entry: @main

// Function Type: InCore
func @work(%x: !pto.memref<gm,?x?,f32>, %n: i64) -> (f32, i64) {
  %t = tload %x[%n, 0] [8, 8] : !pto.tile<8x8xf32>
  %p = tload %x[0, 0] [8, 8], -inf:f32 {pad=true} : !pto.tile<8x8xf32>
  FUSE %e
    %d = tsub %t, %p : !pto.tile<8x8xf32>
    %e = texp %d : !pto.tile<8x8xf32>
  ENDFUSE
  %m, %k = tmap %e, %t : !pto.tile<8x8xf32>, !pto.tile<8x8xbool_> WITH (%a: f32, %b: f32)
    %s = sadd %a, %b : f32
    %c = sgt %s, 0.0:f32 : bool_
    YIELD %s, %c
  ENDWITH
  tstore %m, %x[%n, 0]
  %sum = tsum %m {axes=(0, 1), keepdims=false} : f32
  return %sum, %n
}

// Function Type: Orchestration
func @main(%x: !pto.memref<gm,?x?,f32>, %flag: bool_) {
  %n = sdim %x {axis=0} : i64
  %v = tview %x[0, 0] [1, %n] {drop=(0,)} : !pto.memref<gm,?,f32>
  %y = talloc [%n, 8], 0.0:f32 {dtype=f32, filled=true} : !pto.memref<gm,?x8,f32>
  FOR %i:idx, 0:idx, %n:idx, 1:idx {kind=parallel, chunk=64, policy=aligned, combine=tree}
    SCOPE @main_incore_0 {named}
      ssetelem 1.0:f32, %v[%i]
    ENDSCOPE
  ENDFOR
  FOR %c:idx, 0:idx, 4:idx, 1:idx {kind=chunk, grain=4}
    FOR %j:idx, 0:idx, 64:idx, 1:idx {kind=in_chunk}
      CONTINUE
    ENDFOR
  ENDFOR
  %a, %b = CALL @work(%x -> %x, %n -> 3) : f32, i64
  %i2 = scopy 0 : i64
  WHILE
    %go = slt %i2, %b : bool_
  DO %go
    %next = sadd %i2, 1 : i64
    %i2 = scopy %next : i64
    IF %flag
      BREAK
    ELSE
      sprint %a, %i2 {fmt="{} // {}"}
    ENDIF
  ENDWHILE
  return
}
"""


# -- errors -----------------------------------------------------------------------------------------------------

MALFORMED = [
    ("", "expected a function, got end of file", 1, 0),
    ("func f() {\n}", "expected a function's name", 1, 5),
    ("func @f(%x) {\n}", "expected `:`", 1, 10),
    ("func @f(%x: f33) {\n}", "expected a type", 1, 12),
    ("func @f(%x: !pto.tile<8x8xf33>) {\n}", "known dtype", 1, 12),
    ("func @f(%x: !pto.memref<ub,8,f32>) {\n}", "expected the memory space `gm`", 1, 12),
    ("func @f(%x: !pto.vector<8>) {\n}", "`!pto.tile<..>` or `!pto.memref<..>`", 1, 12),
    ("func @f() {\n  %y = texpp %x : f32\n}", "expected an instruction", 2, 7),
    ("func @f() {\n  exp\n}", "expected a statement or `}`", 2, 2),
    ("func @f(%x: f32) {\n  %y = texp %x : f32\n}", "expected `sexp` for these operands", 2, 7),
    ("func @f(%x: f32) {\n  %y = sexp %x\n}", "`:` and the type of the result", 2, 14),
    ("func @f(%x: f32) {\n  %y, %z = sexp %x : f32\n}", "expected 2 result types", 2, 21),
    ("func @f(%x: f32) {\n  %y = sexp 1.0:f33 : f32\n}", "with a known dtype", 2, 12),
    ("func @f(%x: f32) {\n  %y = sexp %x, : f32\n}", "expected an operand", 2, 16),
    ("func @f(%x: f32) {\n  FOR %i:idx, 0:idx, 1:idx\n  ENDFOR\n}", "expected `,`", 2, 26),
    ("func @f(%x: f32) {\n  FOR %i:idx, 0, 1, 1 {kind=odd}\n  ENDFOR\n}", "`sequential` or `parallel`", 2, 28),
    ("func @f(%x: f32) {\n  FOR %i:idx, 0, 1, 1 {size=3}\n  ENDFOR\n}", "`kind`, `chunk`", 2, 23),
    ("func @f(%x: f32) {\n  FOR %i:idx, 0, 1, 1\n}", "expected a statement or `ENDFOR`", 3, 0),
    ("func @f(%x: f32) {\n", "expected `}`, got end of file", 2, 0),
    ("func @f(%x: f32) {\n  return %x %x\n}", "expected the end of the line", 2, 12),
    ('func @f() {\n  sprint {fmt="a}\n}', "expected a closing quote on this line", 2, 14),
    ('func @f() {\n  sprint {fmt="\\q"}\n}', "a string with JSON escapes", 2, 14),
    ("func @f() {\n  sprint {fmt=3, fmt=4}\n}", "each attribute once", 2, 17),
    ("func @f() {\n  $\n}", "unexpected character '$'", 2, 2),
    ("// Function Type: Host\nfunc @f() {\n}", "`InCore` or `Orchestration`, got `Host`", 1, 0),
    ("// Entry: @g\nfunc @f() {\n}", "expected the name of a function of this file, got `@g`", 1, 0),
]


@pytest.mark.parametrize(("text", "message", "lineno", "col"), MALFORMED, ids=[m[0][-40:] for m in MALFORMED])
def test_malformed_text_says_what_was_expected_and_where(text: str, message: str, lineno: int, col: int) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text, "bad.pto", ops=NAMES)
    error = caught.value
    assert message in error.message
    assert (error.filename, error.lineno, error.col_offset) == ("bad.pto", lineno, col)
    assert error.line == text.split("\n")[lineno - 1]
    assert str(error).endswith("^") == bool(error.line)


WRONG = [
    ("func @f() {\n  return %x\n}", "%x is not defined", 2),
    ("func @f() {\n  CALL @g()\n}", None, 0),
    ("func @f() {\n  CALL @g(%a -> 1)\n}", "there is no function @g", 2),
    ("func @g(%a: i64) {\n}\nfunc @f() {\n  CALL @g(%b -> 1)\n}", "@g takes (%a), it is given (%b)", 4),
    ("func @f() {\n}\nfunc @f() {\n}", "there are two functions @f", 3),
    ("func @f(%a: i64, %a: i64) {\n}", "two parameters are called %a", 1),
    ("func @f(%a: i64) {\n  %a = scopy 1.0 : f64\n}", "%a is i64 and cannot become f64", 2),
    ("func @f(%a: f32) {\n  FOR %i:idx, 0:idx, %a:idx, 1:idx\n  ENDFOR\n}", "%a is f32, not i64", 2),
    ("func @f(%a: f32) {\n  %b = sadd %a, 1 : f32\n}", "operands of one dtype, got f32 and i64", 2),
]


@pytest.mark.parametrize(("text", "message", "lineno"), WRONG, ids=[w[0][-40:] for w in WRONG])
def test_well_formed_but_wrong_text_is_a_compilation_error_at_its_line(
    text: str, message: str | None, lineno: int
) -> None:
    if message is None:  # left to the verifier
        assert parse(text, ops=NAMES, infer=infer)
        return
    with pytest.raises(CompilationError) as caught:
        parse(text, "wrong.pto", ops=NAMES, infer=infer)
    assert message in caught.value.message
    assert (caught.value.filename, caught.value.lineno) == ("wrong.pto", lineno)
    assert caught.value.hint


# -- the seed's forms -------------------------------------------------------------------------------------------

SEED = """\
// 模块声明
// PTO Module: softmax_module
// Entry: @dynamic_softmax

// Function Type: InCore
func @rowmax(%input: !pto.memref<gm,...,f32>, %output:
!pto.memref<gm,...,f32>) {
  // Tile 声明
  %x = alloc_tile : !pto.tile<8x8xf32>
  %result = alloc_tile : !pto.tile<8x1xf32>

  // 指令
  %x = tload %input[0, 0] : (!pto.memref) -> !pto.tile<8x8xf32>
  %result = trowmax %x : !pto.tile<8x8xf32> -> !pto.tile<8x1xf32>
  tstore %result, %output[0, 0]

  return
}

func @dynamic_softmax(%input: !pto.memref, %output: !pto.memref) {
  // 标量声明
  %num_tiles = alloc_scalar : i32

  FOR %tile_idx:idx, 0:idx, %num_tiles:idx, 1:idx
    CALL @rowmax(%input -> %input, %output -> %output)
  ENDFOR

  return
}
"""


def test_the_text_of_the_seed_is_a_program(golden: Callable[[str, str], None]) -> None:
    module = parse(SEED, ops=NAMES, infer=infer)
    assert module.name == "softmax_module"
    assert module.entry == "dynamic_softmax"
    assert [f.kind for f in module.funcs] == ["incore", "orchestration"]  # the second by its CALL
    golden("seed.pto", to_text(module))


def test_a_scalar_that_is_never_assigned_is_a_parameter() -> None:
    module = parse(SEED, ops=NAMES, infer=infer)
    assert [p.name for p in module.func("dynamic_softmax").params] == ["input", "output", "num_tiles"]


def test_a_loop_bound_of_another_integer_type_is_cast() -> None:
    cast, loop, _ = parse(SEED).func("dynamic_softmax").body
    assert isinstance(cast, Op) and cast.op == "cast" and cast.attr("dtype") == i64
    assert isinstance(loop, For) and loop.stop == cast.results[0]


def test_without_an_entry_it_is_the_last_orchestration_function() -> None:
    assert parse(SEED.replace("// Entry: @dynamic_softmax\n", "")).entry == "dynamic_softmax"
    assert parse("func @a() {\n}\nfunc @b() {\n}\n").entry == "b"


# -- fuzzing ----------------------------------------------------------------------------------------------------

_PIECES = ["%", "@", "{", "}", "(", ")", "[", "]", ":", ",", "=", "->", '"', "\\", "\n", "//", "FOR", "ENDFOR", "WITH",
           "!pto.tile<", "!pto.memref<gm>", "9" * 400, "-inf:f32", "\x00", "\ud800", "é", "func", "%x",
           "1e999"]  # fmt: skip


def _mutate(text: str, rng: random.Random) -> str:
    for _ in range(rng.randint(1, 4)):
        at, to = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        to = min(to, at + rng.choice([0, 1, 1, 3, 40]))
        match rng.randrange(4):
            case 0:
                text = text[:at] + text[to:]
            case 1:
                text = text[:at] + rng.choice(_PIECES) + text[to:]
            case 2:
                text = text[:at] + text[at:to] * 2 + text[to:]
            case _:
                other = rng.randrange(len(text) + 1)
                text = text[:at] + text[other : other + to - at] + text[to:]
    return text


@pytest.mark.parametrize("seed", range(40))
def test_mutated_text_parses_or_is_refused_with_a_place(seed: int) -> None:
    rng = random.Random(seed)
    sources = [CONSTRUCTS, SEED, to_text(random_module(seed, 5))]
    for _ in range(25):
        text = _mutate(rng.choice(sources), rng)
        try:
            module = parse(text, ops=NAMES, infer=infer)
        except ParseError as error:
            assert 1 <= error.lineno <= text.count("\n") + 1
            assert 0 <= error.col_offset <= len(text.split("\n")[error.lineno - 1])
        except CompilationError as error:
            assert error.loc is not None and error.loc.lineno >= 1
        else:
            assert parse(to_text(module)) == module


def test_a_tile_is_read_behind_what_assigns_it() -> None:
    head = "func @f(%x: !pto.memref<gm,8x8,f32>) {\n  %t = alloc_tile : !pto.tile<8x8xf32>\n"
    read, written = "  tstore %t, %x[0, 0]\n", "  %t = tload %x[0, 0] : !pto.tile<8x8xf32>\n"
    assert parse(head + written + read + "}", ops=NAMES, infer=infer)
    with pytest.raises(CompilationError, match=r"PTO-N063: the tile %t is read before") as caught:
        parse(head + read + written + "}", ops=NAMES, infer=infer)
    assert caught.value.lineno == 3


def test_replacing_a_node_by_hand_shows_in_the_text() -> None:
    module = parse(CONSTRUCTS)
    main = module.func("main")
    renamed = replace(module, funcs=(module.funcs[0], replace(main, name="other")), entry="other")
    assert "// Entry: @other" in to_text(renamed)
    assert parse(to_text(renamed)) == renamed
