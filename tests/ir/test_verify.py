# SPDX-License-Identifier: MIT
"""What the verifier finds: for each of its rules programs that break it, and that it accepts what is right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pto_jit.dtypes import f32, i64
from pto_jit.errors import NOWHERE, CompilationError, InternalError, Loc, TypeMismatchError
from pto_jit.ir.nodes import Call, Const, For, Func, Module, Op, Return, Stmt, Var
from pto_jit.ir.parse import parse
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.verify import PROPERTIES, check, verify
from pto_jit.ir.walk import map_funcs, rewrite_func
from pto_jit.semantic.rules import infer
from tests.ir.generate import random_module
from tests.ir.test_text import CONSTRUCTS, SEED

I64, F32 = ScalarType(i64), ScalarType(f32)
HERE = Loc("here.py", 1, 0, 1, 1)
PARAMS = "%n: i64, %f: f32, %c: bool_, %x: !pto.memref<gm,?x?,f32>"
TILE = "%t = tload %x[0, 0] [8, 8] : !pto.tile<8x8xf32>"
MAP = f"{TILE}\n%m = tmap %t : !pto.tile<8x8xf32> WITH (%p: f32)\n{{}}\nYIELD %p\nENDWITH"
FOR = "FOR %i:idx, 0:idx, %n:idx, 1:idx"


def incore(text: str, results: str = "") -> Module:
    return parse(f"// Function Type: InCore\nfunc @f({PARAMS}){results} {{\n{text}\n}}\n", "k.pto")


def host(text: str) -> Module:
    return parse(f"// Function Type: Orchestration\nfunc @f({PARAMS}) {{\n{text}\n}}\n", "k.pto")


def built(*body: Stmt, params: tuple[Var, ...] = (), kind: str = "incore") -> Module:
    return Module("m", (Func("f", kind, params, (), body, HERE),), "f")  # type: ignore[arg-type]


def scalar(name: str, *args: Var | Const, result: str = "r") -> Op:
    return Op(name, (Var(result, I64),), args, (), (), HERE)


ONE = Const(1, I64)
N = Var("n", I64)


@pytest.mark.parametrize("seed", range(60))
def test_random_well_formed_modules_pass(seed: int) -> None:
    verify(random_module(seed), infer, properties=("typed",))


def test_the_examples_pass() -> None:
    for text in (CONSTRUCTS, SEED):
        module = parse(text)
        verify(module, infer, properties=("typed", "normalised", "buffers"))
        check(module, infer)


BROKEN: list[tuple[str, Module]] = [
    # 1 the module
    ("there is no function", Module("m", (), "f")),
    ("two functions have one name", Module("m", built().funcs * 2, "f")),
    ("the entry @g is not a function", Module("m", built().funcs, "g")),
    # 2 names
    ("two parameters are called %n", built(params=(N, N))),
    ("%r is i64 and f32", built(scalar("copy", ONE), Op("copy", (Var("r", F32),), (Const(1.0, F32),), loc=HERE))),
    ("%n is i64, read as f32", built(Op("neg", (Var("r", F32),), (Var("n", F32),), loc=HERE), params=(N,))),
    # 3 locations
    ("the statement has no location", built(replace(scalar("copy", ONE), loc=NOWHERE))),
    ("the function has no location", Module("m", (replace(built().funcs[0], loc=NOWHERE),), "f")),
    # 4 reads after assignments
    ("%q is never assigned before this", built(scalar("neg", Var("q", I64)))),
    ("%a may be read before it is assigned", incore("IF %c\n%a = scopy 1 : i64\nENDIF\n%b = sneg %a : i64")),
    ("%a may be read before it is assigned", incore(f"{FOR}\n%a = scopy 1 : i64\nENDFOR\n%b = sneg %a : i64")),
    ("%i may be read before it is assigned", incore(f"{FOR}\nENDFOR\n%b = sneg %i : i64")),
    # 5 constants and types
    ("1.5 is not a constant of i64", built(scalar("copy", Const(1.5, I64)))),
    ("1 is not a constant of f32", built(Op("copy", (Var("r", F32),), (Const(1, F32),), loc=HERE))),
    ("1 is not a constant of bool_", incore("IF 1:bool_\nENDIF")),
    ("300 is not a constant of u8", incore("%a = scopy 300:u8 : u8")),
    ("operands of one dtype", incore("%a = sadd %n, %f : f32")),
    ("has no attribute speed", incore("%a = sneg %n {speed=3} : i64")),
    ("there is no operation `foo`", incore("%a = sfoo %n : i64")),
    ("the operation gives i64, %a is f32", incore("%a = sneg %n : f32")),
    ("the operation has 1 results, 0 are assigned", incore("sneg %n")),
    # 6 loops
    ("a bound, step, chunk or grain is f32, not i64", incore("FOR %i:idx, 0:idx, %f:f32, 1:idx\nENDFOR")),
    ("a bound, step, chunk or grain is f32, not i64", incore(f"{FOR} {{kind=parallel, chunk=%f}}\nENDFOR")),
    ("the loop variable %i is i32, not i64", incore("FOR %i:i32, 0:idx, %n:idx, 1:idx\nENDFOR")),
    ("the step is 0", incore("FOR %i:idx, 0:idx, %n:idx, 0:idx\nENDFOR")),
    ("the body assigns the loop variable %i", incore(f"{FOR}\n%i = scopy 1 : i64\nENDFOR")),
    ("the body assigns the loop variable %i", incore(f"{FOR}\n{FOR}\nENDFOR\nENDFOR")),
    ("a sequential loop asks for a chunk", incore(f"{FOR} {{chunk=4}}\nENDFOR")),
    # 7 leaving loops
    ("there is no loop to leave", incore("BREAK")),
    ("BREAK in a parallel loop", incore(f"{FOR} {{kind=parallel}}\nIF %c\nBREAK\nENDIF\nENDFOR")),
    ("BREAK in a in_chunk loop", incore(f"{FOR} {{kind=in_chunk}}\nBREAK\nENDFOR")),
    ("the condition of a loop cannot leave it", incore("WHILE\nIF %c\nBREAK\nENDIF\nDO %c\nENDWHILE")),
    ("there is no loop to leave", host(f"{FOR}\nSCOPE @s\nCONTINUE\nENDSCOPE\nENDFOR")),
    ("there is no loop to leave", incore(f"{FOR}\n{TILE}\n%m = tmap %t : !pto.tile<8x8xf32> WITH (%p: f32)\n"
                                         "CONTINUE\nYIELD %p\nENDWITH\nENDFOR")),
    # 8 return
    ("return in a parallel loop", incore(f"{FOR} {{kind=parallel}}\nreturn\nENDFOR")),
    ("return in a chunk loop", incore(f"{FOR} {{kind=chunk}}\n{FOR.replace('%i', '%j')}\nreturn\nENDFOR\nENDFOR")),
    ("return in a scope", host("SCOPE @s\nreturn\nENDSCOPE")),
    ("return in a region", incore(MAP.format("return"))),
    ("the function returns (), here (i64)", incore("return %n")),
    ("the function returns (i64), here (f32)", incore("return %f", " -> i64")),
    ("a path through the function returns nothing", incore("IF %c\nreturn %n\nENDIF", " -> i64")),
    ("a path through the function returns nothing", incore("WHILE\nDO true\nBREAK\nENDWHILE", " -> i64")),
    # 9 tiles
    ("the parameter %t is a tile", built(params=(Var("t", TileType(f32, (8,))),))),
    ("the function returns a tile", Module("m", (Func("f", "incore", (), (TileType(f32, (8,)),), (), HERE),), "f")),
    ("the tile %t stands in orchestration, outside a scope", host(TILE)),
    ("the tile %t crosses the boundary of a scope", host(f"SCOPE @a\n{TILE}\nENDSCOPE\n"
                                                         "SCOPE @b\ntstore %t, %x[0, 0]\nENDSCOPE")),
    ("the condition is i64, not bool_", incore("IF 3\nENDIF")),
    ("the condition is f32, not bool_", incore("WHILE\nDO %f\nENDWHILE")),
    # 10 calls
    ("there is no function @g", incore("CALL @g()")),
    ("@f takes (i64, f32, bool_, !pto.memref<gm,?x?,f32>), it is given (i64)", incore("CALL @f(%n)")),
    ("@g returns (), assigned to (i64)",
     Module("m", (*incore("%r = CALL @g() : i64").funcs, *parse("func @g() {\n}").funcs), "f")),
    ("the calls form a cycle: @f -> @f", incore("CALL @f(%n, %f, %c, %x)")),
    ("in-core code calls the orchestration function @g",
     Module("m", (*incore("CALL @g()").funcs, Func("g", "orchestration", (), (), (), HERE)), "f")),
    # 11 regions
    ("the region assigns %f of the enclosing function",
     incore(f"{TILE}\n%m = tmap %t : !pto.tile<8x8xf32> WITH (%p: f32)\n%f = scopy %p : f32\nYIELD %f\nENDWITH")),
    ("%p is also a variable of a region",
     incore(f"{TILE}\n%m = tmap %t : !pto.tile<8x8xf32> WITH (%p: f32)\nYIELD %p\nENDWITH\n%p = scopy %f : f32")),
    ("a region stands in a region",
     incore(MAP.format("%o = tmap %t : !pto.tile<8x8xf32> WITH (%q: f32)\nYIELD %q\nENDWITH"))),
    ("a call stands in a region",
     incore(MAP.format("CALL @f()"))),
    # 12 scopes
    ("a scope stands in an in-core function", incore("SCOPE @s\nENDSCOPE")),
    ("a scope stands in a scope", host("SCOPE @s\nSCOPE @r\nENDSCOPE\nENDSCOPE")),
    # 13 groups
    ("a FUSE group holds a If", incore("FUSE\nIF %c\nENDIF\nENDFUSE")),
    ("the group keeps %q, which it does not assign", incore(f"FUSE %q\n{TILE}\nENDFUSE")),
    ("%t is read outside the group but not kept", incore(f"FUSE\n{TILE}\nENDFUSE\ntstore %t, %x[0, 0]")),
    # 14 attributes
    ("an attribute is given twice", built(replace(scalar("copy", ONE), attrs=(("a", 1), ("a", 2))))),
    ("the attribute a = [1] cannot be written", built(replace(scalar("copy", ONE), attrs=(("a", [1]),)))),  # type: ignore[arg-type]
    ("the attribute a b = 1 cannot be written", built(replace(scalar("copy", ONE), attrs=(("a b", 1),)))),
]  # fmt: skip


@pytest.mark.parametrize(("message", "module"), BROKEN, ids=[f"{i}-{m[0]}" for i, m in enumerate(BROKEN)])
def test_a_broken_program_is_an_internal_error_that_says_why(message: str, module: Module) -> None:
    with pytest.raises(InternalError) as caught:
        verify(module, infer)
    assert message in str(caught.value)
    with pytest.raises(CompilationError) as user:
        check(module, infer)
    assert message in user.value.message


PROPERTY_CASES: list[tuple[str, str, Module]] = [
    ("normalised", "the statement is never reached", incore("return\n%a = scopy 1 : i64")),
    ("normalised", "the condition is a constant", incore("IF true\nENDIF")),
    ("chunked", "the loop still asks for a chunk", incore(f"{FOR} {{kind=parallel, chunk=4}}\nENDFOR")),
    ("placed", "the scope is empty", host("SCOPE @s\nENDSCOPE")),
    ("outlined", "a scope is left after outlining", host(f"SCOPE @s\n{TILE}\nENDSCOPE")),
    ("fused", "the group is empty", incore("FUSE\nENDFUSE")),
    ("fused", "a group stands in orchestration", host(f"SCOPE @s\nFUSE\n{TILE}\nENDFUSE\nENDSCOPE")),
    ("buffers", "a tensor is allocated in in-core code", incore("%y = talloc [8] {dtype=f32} : !pto.memref<gm,8,f32>")),
]


@pytest.mark.parametrize(("name", "message", "module"), PROPERTY_CASES, ids=[f"{p[0]}-{p[1]}" for p in PROPERTY_CASES])
def test_a_property_is_checked_when_it_is_named(name: str, message: str, module: Module) -> None:
    verify(module, infer)
    with pytest.raises(InternalError, match=message):
        verify(module, infer, properties=(name,))
    others = {"outlined"} if name in ("placed", "fused") else set()  # their programs have scopes
    verify(module, infer, properties=set(PROPERTIES) - {name} - others)


def test_an_unknown_property_and_typing_without_rules_are_errors_of_the_caller() -> None:
    with pytest.raises(ValueError, match="unknown properties"):
        verify(incore("return"), properties=("finished",))
    with pytest.raises(ValueError, match="needs `infer`"):
        verify(incore("return"), properties=("typed",))


def test_the_error_names_the_operation_its_place_and_marks_it_in_the_text() -> None:
    module = incore(f"{TILE}\n%u = tadd %t, %n : !pto.tile<8x8xf32>\ntstore %u, %x[0, 0]")
    with pytest.raises(InternalError) as caught:
        verify(module, infer)
    text = str(caught.value)
    assert "`add` at k.pto:4:1" in text
    assert "tadd %t, %n : !pto.tile<8x8xf32>\n  // ^ `add` takes operands of one dtype" in text
    assert "please report it" in text


def test_a_user_sees_the_class_and_the_line_of_what_is_wrong() -> None:
    with pytest.raises(TypeMismatchError) as caught:
        check(incore("%u = sadd %f, %n : f32"), infer)
    assert (caught.value.filename, caught.value.lineno) == ("k.pto", 3)
    with pytest.raises(CompilationError) as plain:
        check(incore("BREAK"), infer)
    assert (plain.value.filename, plain.value.lineno) == ("k.pto", 3)


def test_a_tile_has_at_least_one_axis() -> None:
    with pytest.raises(InternalError, match="the tile %t has no axis"):
        verify(incore("%t = tcopy %f : !pto.tile<f32>"))


def test_operations_known_to_be_right_are_typed_once_and_all_others_still() -> None:
    good, bad = scalar("add", N, ONE), Op("add", (Var("q", F32),), (N, ONE), (), (), HERE)
    typed: dict[int, Op] = {}
    asked: list[str] = []

    def counting(op, args, attrs, regions):
        asked.append(op)
        return infer(op, args, attrs, regions)

    for _ in range(2):
        verify(built(good, params=(N,)), counting, typed=typed)
    assert asked == ["add"]
    with pytest.raises(InternalError, match="the operation gives i64, %q is f32"):
        verify(built(good, bad, params=(N,)), infer, typed=typed)
    with pytest.raises(InternalError, match="%n is never assigned before this"):
        verify(built(good), infer, typed=typed)


def test_loops_may_be_left_where_that_is_sound() -> None:
    verify(incore(f"{FOR} {{kind=parallel}}\nCONTINUE\nENDFOR"), infer)
    verify(incore(f"{FOR}\n{FOR.replace('%i', '%j')} {{kind=parallel}}\nENDFOR\nBREAK\nENDFOR"), infer)
    verify(incore("WHILE\nDO true\nreturn %n\nENDWHILE", " -> i64"), infer)
    verify(incore(f"{FOR}\nIF %c\nreturn %n\nENDIF\nENDFOR\nreturn %n", " -> i64"), infer)


def test_a_result_may_say_less_than_the_operation_gives() -> None:
    verify(incore(TILE.replace("8x8xf32", "?x8xf32")), infer)
    with pytest.raises(InternalError, match="gives"):
        verify(incore(TILE.replace("8x8xf32", "9x8xf32")), infer)
    call = "func @g(%y: !pto.memref<gm,?x?,f32,strided>) {\n}\n"
    module = parse(f"{call}func @f(%x: !pto.memref<gm,8x8,f32>) {{\nCALL @g(%x)\n}}\n")
    verify(module, infer)


def test_dropping_any_location_of_a_random_module_is_found() -> None:
    for seed in range(10):
        module = random_module(seed)
        statement_seen = False

        def drop(stmt: Stmt) -> Stmt | None:
            nonlocal statement_seen
            if statement_seen or not isinstance(stmt, (Op, For, Call, Return)):
                return None
            statement_seen = True
            return replace(stmt, loc=NOWHERE)

        broken = map_funcs(module, lambda func: rewrite_func(func, drop))
        if statement_seen:
            with pytest.raises(InternalError, match="no location"):
                verify(broken, infer)


def test_a_tensor_that_is_returned_may_be_returned_under_a_more_general_type() -> None:
    result = TensorType(f32, (None,), "c")
    body = (
        Op("alloc", (Var("y", TensorType(f32, (8,), "c")),), (Const(8, I64),), (("dtype", f32),), (), HERE),
        Return((Var("y", TensorType(f32, (8,), "c")),), HERE),
    )
    verify(Module("m", (Func("f", "orchestration", (), (result,), body, HERE),), "f"), infer)
