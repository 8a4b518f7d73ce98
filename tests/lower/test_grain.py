# SPDX-License-Identifier: MIT
"""Grains: what an iteration costs, what goes to a worker at a time, and nests of two divided loops as one."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.ir.nodes import Const, For, Module
from pto_jit.ir.parse import parse
from pto_jit.ir.text import to_text
from pto_jit.ir.verify import verify
from pto_jit.ir.walk import statements
from pto_jit.lower import cost, grain
from pto_jit.lower.decisions import Decision
from pto_jit.lower.grain import PIECE, choose_grains
from pto_jit.semantic import interpreter
from pto_jit.semantic.rules import infer
from pto_jit.slotted import replace
from tests.lower.test_docstrings import programs


def scheduled(text: str) -> tuple[Module, list[Decision]]:
    decisions: list[Decision] = []
    module = choose_grains(parse(text), decisions)
    verify(module, infer)
    return module, decisions


def loops(module: Module) -> list[For]:
    return [s for f in module.funcs for s in statements(f.body) if isinstance(s, For)]


def constant_grain(text: str) -> int:
    loop = loops(scheduled(text)[0])[0]
    assert isinstance(loop.grain, Const)
    return int(loop.grain.value)


ROWS = """// Function Type: InCore
func @f(%x: !pto.memref<gm,4096x{n},f32>) {{
  FOR %i:idx, 0:idx, {m}:idx, 1:idx {{kind=parallel}}
    %t = tload %x[%i, 0] [1, {n}] : !pto.tile<1x{n}xf32>
    %e = t{op} %t : !pto.tile<1x{n}xf32>
    tstore %e, %x[%i, 0]
  ENDFOR
  return
}}
"""


def test_a_loop_of_little_work_is_one_piece() -> None:
    module, (decision,) = scheduled(ROWS.format(m=8, n=64, op="exp"))
    (loop,) = loops(module)
    assert isinstance(loop.grain, Const) and loop.grain.value >= 8
    assert decision.kind == "grain" and decision.applied and decision.loops == ("i",)
    assert "not worth another worker" in decision.reason


def test_dearer_iterations_are_given_in_smaller_numbers_and_no_loop_in_more_than_128_pieces() -> None:
    cheap, dear = (constant_grain(ROWS.format(m=4096, n=1024, op=op)) for op in ("neg", "exp"))
    assert dear < cheap
    assert constant_grain(ROWS.format(m=4096, n=1 << 20, op="exp")) == 4096 // 128
    assert constant_grain(ROWS.format(m=100, n=1 << 20, op="exp")) == 1


def test_a_grain_of_run_time_extents_is_computed_when_the_loop_runs() -> None:
    @pto.jit
    def rows(x: pl.Tensor) -> None:
        with pl.incore():
            for i in pl.range(0, x.shape[0], parallel=True):
                pl.store(pl.exp(pl.load(x, [i, 0], [1, x.shape[1]])), [i, 0], x)

    compiled = rows.compile(pto.spec((None, None), pl.f32))
    (decision,) = [d for d in compiled.decisions if d.kind == "grain"]
    assert decision.applied and "run-time extents" in decision.reason
    assert "grain=%grain" in compiled.ir("scheduled")


def test_the_calls_of_a_chunk_loop_cost_what_the_function_does() -> None:
    text = """// Function Type: Orchestration
func @f(%x: !pto.memref<gm,1048576,f32>) {{
  FOR %c:idx, 0:idx, 64:idx, 1:idx {{kind=chunk}}
    %lo = smul %c, {chunk} : i64
    %hi = sadd %lo, {chunk} : i64
    CALL @g(%x -> %x, %lo -> %lo, %hi -> %hi)
  ENDFOR
  return
}}

// Function Type: InCore
func @g(%x: !pto.memref<gm,1048576,f32>, %lo: i64, %hi: i64) {{
  FOR %i:idx, %lo:idx, %hi:idx, 1:idx {{kind=in_chunk}}
    %v = sgetelem %x[%i] : f32
    %e = ssin %v : f32
    ssetelem %e, %x[%i]
  ENDFOR
  return
}}
"""
    few, many = constant_grain(text.format(chunk=4)), constant_grain(text.format(chunk=16384))
    assert few >= 64
    assert many == 1


def test_a_triangular_nest_counts_with_its_middle_row() -> None:
    text = """// Function Type: InCore
func @f(%x: !pto.memref<gm,{n},f32>) {{
  FOR %i:idx, 0:idx, {n}:idx, 1:idx {{kind=parallel}}
    FOR %j:idx, 0:idx, {stop}:idx, 1:idx
      %v = sgetelem %x[%j] : f32
      ssetelem %v, %x[%i]
    ENDFOR
  ENDFOR
  return
}}
"""
    triangle = constant_grain(text.format(n=8192, stop="%i"))
    assert triangle == constant_grain(text.format(n=8192, stop="4096"))


def test_only_the_outermost_divided_loop_gets_a_grain() -> None:
    text = ROWS.format(m=64, n=1024, op="exp").replace(
        "FOR %i", "FOR %k:idx, 0:idx, 500:idx, 1:idx {kind=parallel}\nFOR %i"
    )
    outer, inner = loops(scheduled(text.replace("ENDFOR", "ENDFOR\nENDFOR"))[0])
    assert outer.grain is not None and inner.grain is None


def test_loops_that_are_checked_are_left_alone() -> None:
    text = ROWS.format(m=64, n=64, op="exp").replace("kind=parallel", "kind=parallel, checked=true")
    module = parse(text)
    assert choose_grains(module, []) is module


NEST = """// Function Type: InCore
func @f(%x: !pto.memref<gm,64x64,i64>, %m: i64, %n: i64, %a: i64, %b: i64) {{
  FOR %i:idx, %a:idx, %m:idx, 1:idx {{kind={outer}}}
    %r = smul %i, 1 : i64
    FOR %j:idx, %b:idx, %n:idx, 1:idx {{kind={inner}}}
      %old = sgetelem %x[%r, %j] : i64
      %new = sadd %old, 1 : i64
      ssetelem %new, %x[%r, %j]
    ENDFOR
  ENDFOR
  return
}}
"""


@pytest.mark.parametrize(("outer", "inner"), [("parallel", "parallel"), ("chunk", "chunk"), ("parallel", "chunk")])
@pytest.mark.parametrize("piece", [1, 20_000, PIECE])
def test_two_loops_as_one_visit_every_pair_once(
    outer: str, inner: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grain, "PIECE", piece)
    monkeypatch.setattr(grain, "_ALIGN", 1)
    module, decisions = scheduled(NEST.format(outer=outer, inner=inner))
    assert loops(module)[0].var.name == "i.block" and decisions[0].loops == ("i", "j")
    rng = random.Random(piece)
    for _ in range(40):
        m, n, a, b = (rng.choice((0, 1, 2, 3, 17, 63, 64)) for _ in range(4))
        x = np.zeros((64, 64), np.int64)
        interpreter.run(module, [x, m, n, a, b])
        expected = np.zeros((64, 64), np.int64)
        expected[a:m, b:n] += 1
        np.testing.assert_array_equal(x, expected, err_msg=f"{m} {n} {a} {b}")


THREE = """// Function Type: InCore
func @f(%x: !pto.memref<gm,16x16x64,i64>, %k: i64, %m: i64, %n: i64, %a: i64, %b: i64, %c: i64) {
  FOR %h:idx, %a:idx, %k:idx, 1:idx {kind=parallel}
    FOR %i:idx, %b:idx, %m:idx, 3:idx {kind=parallel}
      %r = smul %i, 1 : i64
      FOR %j:idx, %c:idx, %n:idx, 2:idx {kind=parallel}
        %old = sgetelem %x[%h, %r, %j] : i64
        %new = sadd %old, 1 : i64
        ssetelem %new, %x[%h, %r, %j]
      ENDFOR
    ENDFOR
  ENDFOR
  return
}
"""


@pytest.mark.parametrize("piece", [1, 3000, 20_000, 200_000, PIECE])
def test_three_loops_as_one_visit_all_of_their_iterations_once(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grain, "PIECE", piece)
    monkeypatch.setattr(grain, "_ALIGN", 1)
    module, decisions = scheduled(THREE)
    assert loops(module)[0].var.name == "h.block" and decisions[0].loops == ("h", "i", "j")
    rng = random.Random(piece)
    for _ in range(60):
        k, m, a, b = (rng.choice((0, 1, 2, 3, 15, 16)) for _ in range(4))
        n, c = (rng.choice((0, 1, 2, 3, 17, 63, 64)) for _ in range(2))
        x = np.zeros((16, 16, 64), np.int64)
        interpreter.run(module, [x, k, m, n, a, b, c])
        expected = np.zeros((16, 16, 64), np.int64)
        expected[a:k, b:m:3, c:n:2] += 1
        np.testing.assert_array_equal(x, expected, err_msg=f"{k} {m} {n} {a} {b} {c}")


def pieces(module: Module) -> int:
    (outer, *_) = loops(module)
    assert isinstance(outer.stop, Const) and isinstance(outer.grain, Const)
    return -(-int(outer.stop.value) // int(outer.grain.value))


def test_few_dear_iterations_of_inner_loops_are_one_piece_each() -> None:
    """Of tiles, of loops in vectors along their rows, and of three loops; blocks of elements are whole vectors."""
    tiles = ROWS.format(m=8, n=1 << 19, op="exp")
    around = "FOR %{0}:idx, 0:idx, 1:idx, 1:idx {{kind=parallel}}\nFOR %i"
    two = tiles.replace("FOR %i", around.format("a")).replace("ENDFOR", "ENDFOR\nENDFOR")
    assert pieces(scheduled(two)[0]) == 8
    three = two.replace("FOR %i", around.format("b")).replace("ENDFOR\nENDFOR", "ENDFOR\nENDFOR\nENDFOR")
    assert pieces(scheduled(three)[0]) == 8
    steps = tiles.replace("8:idx, 1:idx", "64:idx, 8:idx")
    assert pieces(scheduled(steps.replace("FOR %i", around.format("a")).replace("ENDFOR", "ENDFOR\nENDFOR"))[0]) == 8
    for proof, expected in (("", 2), ("in rows", 40)):
        module = parse("""// Function Type: InCore
func @f(%x: !pto.memref<gm,64x1000000,f32>) {
  FOR %a:idx, 0:idx, 1:idx, 1:idx {kind=parallel}
    FOR %i:idx, 0:idx, 40:idx, 1:idx {kind=parallel}
      FOR %j:idx, 0:idx, 1000000:idx, 1:idx
        %v = sgetelem %x[%i, %j] : f32
        %e = sexp %v : f32
        ssetelem %e, %x[%i, %j]
      ENDFOR
    ENDFOR
  ENDFOR
  return
}
""")
        (func,) = module.funcs
        _, i, j = loops(module)
        nest = replace(loops(module)[0], body=(replace(i, body=(replace(j, proof=proof),)),))
        module = replace(module, funcs=(replace(func, body=(nest, *func.body[1:])),))
        assert pieces(choose_grains(module, [])) == expected


def test_few_outer_iterations_are_divided_with_the_inner_ones_and_many_are_not() -> None:
    module, _ = scheduled(NEST.format(outer="parallel", inner="parallel").replace("%a:idx, %m:idx", "0:idx, 300:idx"))
    assert loops(module)[0].var.name == "i"


@pytest.mark.parametrize("change", [("%b:idx, %n:idx", "%i:idx, %n:idx"), ("1:idx {kind=parallel}\n    %r", "%b:idx {kind=parallel}\n    %r"),
                                    ("    %r", "    %q = sgetelem %x[0, 0] : i64\n    %r")])  # fmt: skip
def test_loops_that_are_no_plain_nest_stay_two(change: tuple[str, str]) -> None:
    module, _ = scheduled(NEST.format(outer="parallel", inner="parallel").replace(*change))
    assert [loop.var.name for loop in loops(module)] == ["i", "j"]


@pytest.mark.parametrize("shape", [(1, 1, 100_000), (1, 3, 70_001), (2, 100, 1000), (300, 2, 2), (0, 5, 5), (5, 5, 0)])
def test_the_compiled_nest_of_three_gives_the_same_on_any_number_of_workers(shape: tuple[int, int, int]) -> None:
    def nest(x: pl.Tensor, y: pl.Tensor) -> None:
        for h in pl.range(x.shape[0], parallel=True):
            for i in pl.range(x.shape[1], parallel=True):
                for j in pl.range(0, x.shape[2], 128, parallel=True):
                    pl.store(pl.exp(pl.load(x[h, i], [j], [128])), [j], y[h, i])

    x = np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    results: list[Any] = []
    for threads in (1, 2, 4):
        y = np.ones(shape, np.float32)
        pto.jit(num_threads=threads)(nest)(x, y)
        results.append(y)
    np.testing.assert_allclose(results[0], np.exp(x), rtol=1e-6)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


@pytest.mark.parametrize("shape", [(1, 1), (3, 100_000), (2, 70_001), (200, 300), (0, 5), (5, 0), (7, 64)])
def test_the_compiled_nest_gives_the_same_on_any_number_of_workers(shape: tuple[int, int]) -> None:
    def nest(x: pl.Tensor, y: pl.Tensor) -> None:
        with pl.incore():
            for i in pl.range(0, x.shape[0], parallel=True):
                for j in pl.range(0, x.shape[1], parallel=True):
                    y[i, j] = pl.exp(x[i, j]) + y[i, j]

    x = np.linspace(-1, 1, shape[0] * shape[1], dtype=np.float32).reshape(shape)
    results: list[Any] = []
    for threads in (1, 2, 4):
        y = np.ones(shape, np.float32)
        pto.jit(num_threads=threads)(nest)(x, y)
        results.append(y)
    np.testing.assert_allclose(results[0], np.exp(x) + 1, rtol=1e-6)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


def test_the_pass_does_what_its_docstring_shows_and_keeps_what_it_does_not_change() -> None:
    before, after = programs(str(grain.__doc__))
    assert to_text(scheduled(before)[0]) == to_text(parse(after))
    empty = parse("// Function Type: InCore\nfunc @f(%x: !pto.memref<gm,?,f32>) {\n  return\n}\n")
    assert choose_grains(empty, []) is empty


def test_costs_follow_the_bytes_and_the_functions() -> None:
    assert cost.factor("exp") > cost.factor("div") > cost.factor("add") == 1
