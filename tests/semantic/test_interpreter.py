# SPDX-License-Identifier: MIT
"""The reference interpreter on programs in text form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pto_jit.dtypes import bf16, f32, i64
from pto_jit.errors import ArgumentError, BoundsError, InternalError, KernelAssertionError, LaunchError, Loc, ShapeError
from pto_jit.ir.nodes import Const, Func, Module, Op, Return, Var
from pto_jit.ir.parse import parse
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.language import _philox
from pto_jit.semantic import table
from pto_jit.semantic.evaluation import NAMES
from pto_jit.semantic.interpreter import run
from pto_jit.semantic.rules import infer
from tests.semantic.op_cases import ACCEPTED, program

X = np.arange(12, dtype=np.float32).reshape(3, 4)
GM = "!pto.memref<gm,?x?,f32>"
VEC = "!pto.memref<gm,?,f32>"


def module(text: str) -> Module:
    return parse(text, ops=table.NAMES, infer=infer)


def execute(params: str, body: str, *args: Any, results: str = "", debug: bool = False) -> tuple[Any, ...]:
    """Run one function; `results` are the types it returns."""
    tail = "" if results else "\n  return"
    head = f"func @f({params}){f' -> ({results})' if results else ''}"
    return run(module(f"{head} {{\n  {body.strip()}{tail}\n}}\n"), args, debug=debug)


def test_every_operation_of_the_table_has_a_meaning() -> None:
    assert NAMES >= table.NAMES


REFUSED = {  # with these arguments (%n is 8): an index outside its tile, another number of elements
    "tensor_reshape %x": ShapeError, "tile_slice %t[%n, 0] [1, 8]": BoundsError, "extract %t[%n, 7]": BoundsError,
}  # fmt: skip
CASES = [(name, line) for name, lines in ACCEPTED.items() for line in lines]


@pytest.mark.parametrize(("name", "line"), CASES, ids=[f"{n}-{k}" for k, (n, _) in enumerate(CASES)])
def test_every_accepted_form_of_an_operation_runs_and_gives_the_type_it_says(name: str, line: str) -> None:
    wide = np.arange(4096, dtype=np.float32).reshape(64, 64)
    ints = np.zeros((64, 64), np.int32)
    args = [1.5, 2.5, 0.5, 3, 8, 2, True, 7, wide, wide[:, :32].copy(), wide[0].copy(), ints, wide.T, wide[:, :8],
            np.array(3, np.float32)]  # fmt: skip
    refused = next((error for start, error in REFUSED.items() if start in line), None)
    if refused is None:
        assert run(module(program(line)), args, debug=True) == ()  # a wrong result type would be an InternalError
    else:
        with pytest.raises(refused):
            run(module(program(line)), args, debug=True)


def test_a_tiled_softmax() -> None:
    y = np.zeros_like(X)
    execute(f"%x: {GM}, %y: {GM}", """
  %n = sdim %x {axis=0} : i64
  %m = sdim %x {axis=1} : i64
  FOR %r:idx, 0:idx, %n:idx, 1:idx
    %t = tload %x[%r, 0] [1, %m] : !pto.tile<1x?xf32>
    %top = tmax %t {axes=(1,), keepdims=true} : !pto.tile<1x1xf32>
    %d = tsub %t, %top : !pto.tile<1x?xf32>
    %e = texp %d : !pto.tile<1x?xf32>
    %s = tsum %e {axes=(1,), keepdims=true} : !pto.tile<1x1xf32>
    %p = tdiv %e, %s : !pto.tile<1x?xf32>
    tstore %p, %y[%r, 0]
  ENDFOR
""", X, y)  # fmt: skip
    e = np.exp(X - X.max(1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-6)


def test_a_carried_accumulator_takes_the_extents_of_the_product() -> None:
    a, b = np.random.default_rng(0).normal(size=(3, 5)).astype("f"), np.ones((5, 2), np.float32)
    y = np.zeros((3, 2), np.float32)
    execute(f"%a: {GM}, %b: {GM}, %y: {GM}", """
  %z = tfull 0.0:f32, [4, 4] : !pto.tile<4x4xf32>
  %acc = tcopy %z : !pto.tile<4x4xf32>
  FOR %k:idx, 0:idx, 5:idx, 2:idx
    %ta = tload %a[0, %k] [4, 2] : !pto.tile<4x2xf32>
    %tb = tload %b[%k, 0] [2, 4] : !pto.tile<2x4xf32>
    %p = tdot %ta, %tb : !pto.tile<4x4xf32>
    %s = tadd %acc, %p : !pto.tile<4x4xf32>
    %acc = tcopy %s : !pto.tile<4x4xf32>
  ENDFOR
  tstore %acc, %y[0, 0]
""", a, b, y)  # fmt: skip
    np.testing.assert_allclose(y, a @ b, rtol=1e-5)


def test_a_narrower_tile_does_not_go_with_a_wider_one() -> None:
    with pytest.raises(LaunchError, match=r"valid extents 1 and 3(.|\n)*pad=value"):
        execute(f"%x: {VEC}", """
  %a = tload %x[0] [3] : !pto.tile<3xf32>
  %b = tload %x[3] [3] : !pto.tile<3xf32>
  %s = tadd %a, %b : !pto.tile<3xf32>
""", X.reshape(-1)[:4].copy())  # fmt: skip


def test_a_runtime_extent_of_one_does_not_broadcast() -> None:
    body = """
  %a = tload %x[0] [%n] : !pto.tile<?xf32>
  %b = tload %x[0] [3] : !pto.tile<3xf32>
  %s = tadd %a, %b : !pto.tile<3xf32>
  %t = tsum %s {axes=(0,)} : f32
  return %t
"""
    x = np.ones(8, np.float32)
    assert execute(f"%x: {VEC}, %n: i64", body, x, 3, results="f32") == (6.0,)
    with pytest.raises(LaunchError, match="declared extents 1 and 3"):
        execute(f"%x: {VEC}, %n: i64", body, x, 1, results="f32")


@pytest.mark.parametrize("kind", ["sequential", "parallel", "chunk", "in_chunk", "combine"])
def test_loops_of_every_kind_run_in_order(kind: str) -> None:
    body = f"""
  %s = scopy 0:i64 : i64
  FOR %i:idx, %lo:idx, %hi:idx, %st:idx {{kind={kind}}}
    %t = smul %s, 10:i64 : i64
    %u = sadd %t, %i : i64
    %s = scopy %u : i64
  ENDFOR
  return %s
"""
    params = "%lo: i64, %hi: i64, %st: i64"
    assert execute(params, body, 1, 8, 2, results="i64") == (1357,)
    assert execute(params, body, 3, 0, -1, results="i64") == (321,)
    assert execute(params, body, 3, 3, 1, results="i64") == (0,)
    with pytest.raises(LaunchError, match="step"):
        execute(params, body, 0, 3, 0, results="i64")


def test_a_bad_runtime_chunk_is_a_launch_error() -> None:
    body = "FOR %i:idx, 0:idx, 4:idx, 1:idx {kind=parallel, chunk=%c}\n    %t = sadd %i, 1:i64 : i64\n  ENDFOR"
    execute("%c: i64", body, 2)
    with pytest.raises(LaunchError, match="chunk of 0"):
        execute("%c: i64", body, 0)


def test_while_if_break_and_continue() -> None:
    """Sum the odd numbers below a limit that are not above 9, in a loop that is left by break."""
    body = """
  %i = scopy 0:i64 : i64
  %s = scopy 0:i64 : i64
  WHILE
    %c = slt %i, %n : bool_
  DO %c
    %j = sadd %i, 1:i64 : i64
    %i = scopy %j : i64
    %even = smod %i, 2:i64 : i64
    %skip = seq %even, 0:i64 : bool_
    IF %skip
      CONTINUE
    ENDIF
    %high = sgt %i, 9:i64 : bool_
    IF %high
      BREAK
    ELSE
      %t = sadd %s, %i : i64
      %s = scopy %t : i64
    ENDIF
  ENDWHILE
  return %s, %i
"""
    assert execute("%n: i64", body, 6, results="i64, i64") == (9, 6)
    assert execute("%n: i64", body, 100, results="i64, i64") == (25, 11)


def test_return_leaves_nested_loops() -> None:
    body = """
  FOR %i:idx, 0:idx, 9:idx, 1:idx
    FOR %j:idx, 0:idx, 9:idx, 1:idx
      %p = smul %i, %j : i64
      %hit = seq %p, 20:i64 : bool_
      IF %hit
        return %i, %j
      ENDIF
    ENDFOR
  ENDFOR
  return -1:i64, -1:i64
"""
    assert execute("", body, results="i64, i64") == (4, 5)


def test_scopes_fused_groups_and_calls_are_their_bodies() -> None:
    text = f"""
// Function Type: InCore
func @double(%x: {VEC}, %by: f32) {{
  %n = sdim %x {{axis=0}} : i64
  %t = tload %x[0] [%n] : !pto.tile<?xf32>
  %u = tmul %t, %by : !pto.tile<?xf32>
  tstore %u, %x[0]
  return
}}

// Function Type: Orchestration
func @f(%x: {VEC}) {{
  CALL @double(%x -> %x, %by -> 3.0:f32)
  SCOPE @f_incore_0
    FUSE
      %t = tload %x[1] [1] : !pto.tile<1xf32>
      %u = tneg %t : !pto.tile<1xf32>
    ENDFUSE
    tstore %u, %x[1]
  ENDSCOPE
  return
}}
"""
    x = np.arange(3, dtype=np.float32)
    program_text = module(text)
    run(replace(program_text, entry="f"), [x])
    np.testing.assert_array_equal(x, [0, -3, 6])


# -- memory -------------------------------------------------------------------------------------------------------


def test_views_alias_and_loads_copy() -> None:
    x = X.copy()
    (total,) = execute(f"%x: {GM}", """
  %v = tview %x[1, 1] [5, 2] {drop=()} : !pto.memref<gm,?x?,f32,inner>
  %old = tload %v[0, 0] [2, 2] : !pto.tile<2x2xf32>
  %nine = tfull 9.0:f32, [2, 2] : !pto.tile<2x2xf32>
  tstore %nine, %v[0, 0]
  %rows = sdim %v {axis=0} : i64
  %s = tsum %old {axes=(0, 1)} : f32
  ssetelem 7.0:f32, %v[1, 1]
  %e = sgetelem %x[2, 2] : f32
  %r = sadd %s, %e : f32
  return %r
""", x, results="f32")  # fmt: skip
    assert total == X[1:3, 1:3].sum() + 7
    expected = X.copy()
    expected[1:3, 1:3] = 9
    expected[2, 2] = 7
    np.testing.assert_array_equal(x, expected)


def test_arguments_may_share_memory() -> None:
    x = np.arange(6, dtype=np.float32)
    execute(f"%a: {VEC}, %b: {VEC}", """
  %t = tload %a[0] [5] : !pto.tile<5xf32>
  tstore %t, %b[0]
""", x[:5], x[1:])  # fmt: skip
    np.testing.assert_array_equal(x, [0, 0, 1, 2, 3, 4])


def test_new_tensors_are_returned_and_unwritten_elements_show() -> None:
    made, filled = execute("%n: i64", """
  %a = talloc [%n, 2] {dtype=f32} : !pto.memref<gm,?x2,f32>
  %b = talloc [2], 5:i32 {dtype=i32, filled=true} : !pto.memref<gm,2,i32>
  return %a, %b
""", 3, results="!pto.memref<gm,?x2,f32>, !pto.memref<gm,2,i32>")  # fmt: skip
    assert made.shape == (3, 2) and np.isnan(made).all()
    np.testing.assert_array_equal(filled, np.array([5, 5], np.int32))


@pytest.mark.parametrize(("line", "error"), [
    ("%t = tload %x[%n, 0] [2, 2] : !pto.tile<2x2xf32>", BoundsError),
    ("%t = sgetelem %x[%n, 0] : f32", BoundsError),
    ("%v = tview %x[0, %n] [1, 2] : !pto.memref<gm,?x?,f32,inner>", BoundsError),
    ("%a = talloc [%n] {dtype=f32} : !pto.memref<gm,?,f32>", LaunchError),
])  # fmt: skip
def test_a_runtime_check_names_the_place(line: str, error: type[Exception]) -> None:
    parsed = module(f"func @f(%x: {GM}, %n: i64) {{\n  {line}\n  return\n}}\n")
    func = parsed.funcs[0]
    loc = Loc("kernel.py", 17, 4, 17, 9, caller=Loc("outer.py", 3))
    body = tuple(replace(s, loc=loc) if isinstance(s, Op) else s for s in func.body)
    located = replace(parsed, funcs=(replace(func, body=body),))
    with pytest.raises(error, match=r"kernel.py:17:5"):
        run(located, [X.copy(), -1])


# -- functions ----------------------------------------------------------------------------------------------------


def test_a_region_with_branches_runs_per_element_and_sees_the_functions_scalars() -> None:
    y = X.reshape(-1).copy()
    execute(f"%x: {VEC}, %k: f32", """
  %t = tload %x[0] [12] : !pto.tile<12xf32>
  %m = tmap %t : !pto.tile<12xf32> WITH (%v: f32)
    %c = sgt %v, 5.0:f32 : bool_
    %r = scopy %v : f32
    IF %c
      %d = smul %v, %k : f32
      %r = scopy %d : f32
    ENDIF
    YIELD %r
  ENDWITH
  tstore %m, %x[0]
""", y, 10.0)  # fmt: skip
    np.testing.assert_array_equal(y, np.where(X > 5, X * 10, X).reshape(-1))


def test_folds_and_scans_apply_their_region_along_an_axis() -> None:
    y, z = np.zeros((3, 1), np.float32), np.zeros((3, 4), np.float32)
    execute(f"%x: {GM}, %y: {GM}, %z: {GM}", """
  %t = tload %x[0, 0] [3, 4] : !pto.tile<3x4xf32>
  %f = tfold %t, 100.0:f32 {axis=1, init=true, keepdims=true, n=1} : !pto.tile<3x1xf32> WITH (%a: f32, %b: f32)
    %s = sadd %a, %b : f32
    YIELD %s
  ENDWITH
  tstore %f, %y[0, 0]
  %g = tassoc_scan %t {axis=1, reverse=true} : !pto.tile<3x4xf32> WITH (%a2: f32, %b2: f32)
    %s2 = smax %a2, %b2 : f32
    YIELD %s2
  ENDWITH
  tstore %g, %z[0, 0]
""", X % 5, y, z)  # fmt: skip
    np.testing.assert_array_equal(y, 100 + (X % 5).sum(1, keepdims=True))
    np.testing.assert_array_equal(z, np.maximum.accumulate((X % 5)[:, ::-1], 1)[:, ::-1])


# -- numbers ------------------------------------------------------------------------------------------------------


def test_half_precision_rounds_after_every_operation() -> None:
    x = np.array([1.0, 3.0, 0.1]).astype(bf16.numpy)
    (total,) = execute("%x: !pto.memref<gm,?,bf16>", """
  %t = tload %x[0] [3] : !pto.tile<3xbf16>
  %u = tmul %t, %t : !pto.tile<3xbf16>
  %v = tadd %u, 100.0:bf16 : !pto.tile<3xbf16>
  tstore %v, %x[0]
  %s = sgetelem %x[0] : bf16
  return %s
""", x, results="bf16")  # fmt: skip
    start = np.array([1.0, 3.0, 0.1]).astype(bf16.numpy)
    squares = (start.astype("f") ** 2).astype(bf16.numpy)
    np.testing.assert_array_equal(x.astype("f"), (squares.astype("f") + 100).astype(bf16.numpy).astype("f"))
    assert type(total) is float and total == float(x[0])


def test_scalars_have_exact_dtypes_and_results_are_python_numbers() -> None:
    results = execute("%a: i32, %b: f32, %c: bool_", """
  %s = smul %a, 2:i32 : i32
  %t = sadd %b, 0.1:f32 : f32
  %n = snot %c : bool_
  return %s, %t, %n
""", 2**30, 0.2, True, results="i32, f32, bool_")  # fmt: skip
    assert results == (-(2**31), float(np.float32(0.2) + np.float32(0.1)), False)
    assert [type(r) for r in results] == [int, float, bool]


def test_random_tiles_follow_the_generator() -> None:
    x = np.zeros(4, np.float32)
    execute(f"%x: {VEC}", "%t = trand 7:i64, 3:i64, [4] : !pto.tile<4xf32>\n  tstore %t, %x[0]", x)
    np.testing.assert_array_equal(x, _philox.uniform(7, np.arange(3, 7, dtype=np.uint64)))


def test_assertions_run_with_debug_or_always_and_printing_formats(capsys: pytest.CaptureFixture[str]) -> None:
    body = 'sassert %c {message="no luck"}\n  sprint %n {fmt="n is {:>3}"}'
    execute("%c: bool_, %n: i64", body, False, 5)
    assert capsys.readouterr().out == "n is   5\n"
    with pytest.raises(KernelAssertionError, match="no luck"):
        execute("%c: bool_, %n: i64", body, False, 5, debug=True)
    with pytest.raises(ShapeError, match="too wide"):
        execute("%c: bool_", 'sassert %c {message="too wide", always=true, error="ShapeError"}', False)


# -- arguments and wrong modules ----------------------------------------------------------------------------------


@pytest.mark.parametrize("args", [(), (X, X), (X[0],), (X.astype(np.float64),), (3,)])
def test_arguments_that_do_not_fit_are_refused(args: tuple[Any, ...]) -> None:
    with pytest.raises(ArgumentError):
        execute(f"%x: {GM}", "return", *args)


def test_a_wrong_module_is_an_internal_error() -> None:
    scalar = ScalarType(f32)
    v = Var("v", scalar)

    def broken(*body: Any) -> Module:
        return Module("m", (Func("f", "incore", (), (), body),), "f")

    for body in (
        (Op("neg", (v,), (Var("missing", scalar),)),),
        (Op("neg", (Var("v", ScalarType(i64)),), (Const(1.0, scalar),)),),
        (Op("full", (Var("t", TileType(f32, (3,))),), (Const(1.0, scalar), Const(4, ScalarType(i64)))),),
        (Op("no_such_operation", (), ()),),
        (Return((Const(1.0, scalar),)),),
    ):
        with pytest.raises(InternalError):
            run(broken(*body), [])
