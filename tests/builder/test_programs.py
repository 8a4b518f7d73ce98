# SPDX-License-Identifier: MIT
"""Whole programs from the builder: control flow, scalars, temporaries, calls in every direction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit import ElementType, MemorySpace, PTOFunctionBuilder, PTOModule
from pto_jit.ir.nodes import Call, Op
from pto_jit.ir.walk import statements
from tests.builder.harness import floats, integers

F, I32, G = ElementType.F32, ElementType.I32, MemorySpace.GLOBAL


def core(module: PTOModule, name: str, *memrefs: str) -> PTOFunctionBuilder:
    b = PTOFunctionBuilder(name, module=module).in_core()
    for memref in memrefs:
        b.memref(memref, G, F)
    return b


def host(module: PTOModule, name: str, *memrefs: str) -> PTOFunctionBuilder:
    b = PTOFunctionBuilder(name, module=module).not_in_core()
    for memref in memrefs:
        b.memref(memref, G, F)
    return b


def softmax_module(rows: int = 8, cols: int = 8) -> PTOModule:
    """The seed's program."""
    m = PTOModule("softmax_module")
    for name, step in (("rowmax", "rowmax"), ("rowsum", "rowsum")):
        b = core(m, name, "input", "output").tile("x", rows, cols, F).tile("result", rows, 1, F).load("x", "input")
        getattr(b, step)("result", "x").store("output", "result").build()
    for name in ("rowexpandsub", "rowexpanddiv"):
        b = core(m, name, "input_x", "input_row", "output").tile("x", rows, cols, F).tile("v", rows, 1, F)
        b.load("x", "input_x").load("v", "input_row")
        getattr(b, name)("y", "x", "v").store("output", "y").build()
    core(m, "elem_exp", "input", "output").tile("x", rows, cols, F).load("x", "input").exp("y", "x").store(
        "output", "y"
    ).build()
    (host(m, "dynamic_softmax", "input", "output").scalar("num_tiles", I32)
     .for_loop("tile_idx", 0, "num_tiles", 1)
     .call("rowmax", {"input": ("input", "tile_idx", 0), "output": ("temp_max", "tile_idx", 0)})
     .call("rowexpandsub", {"input_x": ("input", "tile_idx", 0), "input_row": ("temp_max", "tile_idx", 0),
                            "output": ("temp_shifted", "tile_idx", 0)})
     .call("elem_exp", {"input": ("temp_shifted", "tile_idx", 0), "output": ("temp_exp", "tile_idx", 0)})
     .call("rowsum", {"input": ("temp_exp", "tile_idx", 0), "output": ("temp_sum", "tile_idx", 0)})
     .call("rowexpanddiv", {"input_x": ("temp_exp", "tile_idx", 0), "input_row": ("temp_sum", "tile_idx", 0),
                            "output": ("output", "tile_idx", 0)})
     .end_for().build())  # fmt: skip
    return m


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def both(module: PTOModule, name: str, *args: Any, **kwargs: Any) -> list[Any]:
    """The arguments after running compiled; the interpreter and the program read back from text agree."""
    assert pto.parse_pto(str(module)) == module
    copies = [[a.copy() if isinstance(a, np.ndarray) else a for a in args] for _ in range(3)]
    module.compile()[name](*copies[0], **kwargs)
    module.compile()[name].interpret(*copies[1], **kwargs)
    pto.parse_pto(str(module)).compile()[name].interpret(*copies[2], **kwargs)
    for a, b, c in zip(*copies, strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(b, c)
    return copies[0]


def test_the_program_of_the_seed_serves_every_length() -> None:
    m = softmax_module()
    compiled = m.compile(target="cpu")
    for tiles in (0, 1, 4, 7):
        x = floats(8 * tiles, 8)
        y = np.zeros_like(x)
        compiled.dynamic_softmax(x, y, num_tiles=tiles)
        np.testing.assert_allclose(y, softmax(x), rtol=1e-5)
    assert [f.name for f in m.functions][-1] == m.entry == "dynamic_softmax"
    calls = [s for s in statements(m["dynamic_softmax"].func.body) if isinstance(s, Call)]
    assert [call.callee for call in calls] == ["rowmax", "rowexpandsub", "elem_exp", "rowsum", "rowexpanddiv"]


def test_arguments_of_any_layout_and_from_any_library() -> None:
    torch = pytest.importorskip("torch")

    m = softmax_module().compile()
    big, out = floats(16, 24), np.zeros((32, 16), np.float32)
    m.dynamic_softmax(big[:, 8:16], out[::2, 8:], 2)
    np.testing.assert_allclose(out[::2, 8:], softmax(big[:, 8:16]), rtol=1e-5)
    assert not out[1::2].any() and not out[:, :8].any()
    x, y = torch.from_numpy(floats(16, 8)), torch.zeros(16, 8)
    m.dynamic_softmax(output=y, input=x, num_tiles=2)
    np.testing.assert_allclose(y.numpy(), softmax(x.numpy()), rtol=1e-5)


def test_the_text_of_the_seed_runs() -> None:
    text = """\
// PTO Module: softmax_module
// Entry: @dynamic
// Function Type: InCore
func @rowmax(%input: !pto.memref<gm,...,f32>, %output: !pto.memref<gm,...,f32>) {
  %x = alloc_tile : !pto.tile<8x8xf32>
  %result = alloc_tile : !pto.tile<8x1xf32>
  %x = tload %input[0, 0] : (!pto.memref) -> !pto.tile<8x8xf32>
  %result = trowmax %x : !pto.tile<8x8xf32> -> !pto.tile<8x1xf32>
  tstore %result, %output[0, 0]
  return
}
func @shift(%x: !pto.memref<gm,...,f32>, %row: !pto.memref<gm,...,f32>, %y: !pto.memref<gm,...,f32>) {
  %t = tload %x[0, 0] : !pto.tile<8x8xf32>
  %v = tload %row[0, 0] : !pto.tile<8x1xf32>
  %d = trowexpandsub %t, %v : !pto.tile<8x8xf32>, !pto.tile<8x1xf32> -> !pto.tile<8x8xf32>
  %e = tadds %d, %1.0 : !pto.tile<8x8xf32>, f32
  %m = tcmps %e, 0.5 {cmpMode = #pto.cmp<GT>} : !pto.tile<8x8xf32> -> !pto.tile<8x8xbool_>
  %r = tsel %m, %e, %t : !pto.tile<8x8xf32>
  tstore %r, %y[0, 0]
  return
}
// Function Type: Orchestration
func @dynamic(%input: !pto.memref, %output: !pto.memref) {
  %num_tiles = alloc_scalar : i32
  LI %one:i32, 1
  ADD %last:i32, %num_tiles:i32, -1
  CMP %some:u1, %num_tiles:i32, %one:i32, GE
  FOR %i:idx, 0:idx, %num_tiles:idx, 1:idx
    CALL @rowmax(%input -> (%input, %i, 0), %output -> (%temp, %i, 0))
  ENDFOR
  IF %some:u1
    FOR %i:idx, 0:idx, %last:idx, 1:idx
      CALL @shift(%x -> (%input, %i, 0), %row -> (%temp, %i, 0), %y -> (%output, %i, 0))
    ENDFOR
    CALL @shift(%x -> (%input, %last, 0), %row -> (%temp, %last, 0), %y -> (%output, %last, 0))
  ENDIF
  return
}
"""
    m = pto.parse_pto(text)
    x = floats(32, 8)
    (_, y, _) = both(m, "dynamic", x, np.zeros_like(x), 4)
    e = x - x.max(1, keepdims=True) + 1
    np.testing.assert_allclose(y, np.where(e > 0.5, e, x), rtol=1e-5)


def test_tiles_of_a_wider_tensor_get_a_version_of_the_callee() -> None:
    m = softmax_module()
    (PTOFunctionBuilder("blocks", module=m).not_in_core().memref("x", G, F, (None, 32)).memref("y", G, F, (None, 32))
     .scalar("n", I32).for_loop("i", 0, "n", 1).for_loop("j", 0, 4, 1)
     .call("elem_exp", {"input": ("x", "i", "j"), "output": ("y", "i", "j")}).end_for().end_for().build())  # fmt: skip
    x = floats(20, 32)  # the last tiles are short
    (_, y, _) = both(m, "blocks", x, np.zeros_like(x), 3)
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-5)
    assert "elem_exp.1" in m and "elem_exp.2" not in m
    assert len([s for s in statements(m["blocks"].func.body) if isinstance(s, Op) and s.op == "view"]) == 2


def test_temporaries_are_as_large_as_the_tiles_and_rows_used() -> None:
    m = softmax_module()
    (host(m, "f", "x", "y").scalar("n", I32)
     .for_loop("i", 0, "n", 2)
     .scalar_add("j", "i", 1)
     .call("elem_exp", {"input": ("x", 0, 0), "output": ("t", "j", 0)})
     .end_for()
     .for_loop("i", 3, -1, -1)
     .call("elem_exp", {"input": ("t", 1, 0), "output": ("u", "i", 0)})
     .end_for()
     .call("elem_exp", {"input": "u", "output": "y"}).build())  # fmt: skip
    text = m["f"].to_pto()
    x = floats(8, 8) / 8
    (_, y, _) = both(m, "f", x, np.zeros_like(x), 5)
    np.testing.assert_allclose(y, np.exp(np.exp(np.exp(x))), rtol=1e-4)
    assert "%u = talloc [32, 8] {dtype=f32} : !pto.memref<gm,32x8,f32>" in text
    sizes = {s.results[0].name: s.args for s in m["f"].func.body if isinstance(s, Op) and s.op == "alloc"}
    assert set(sizes) == {"t", "u"}


def test_control_flow_in_core() -> None:
    m = PTOModule("m")
    (core(m, "f", "x", "y").scalar("n", I32).scalar("flag", I32).tile("t", 4, 4, F).tile("acc", 4, 4, F)
     .expands("acc", 0.0)
     .for_loop("i", 0, "n", 1)
     .scalar_mul("row", "i", 4)
     .load("t", "x", "row", 0)
     .if_then("flag").add("acc", "acc", "t")
     .else_branch().scalar_rem("odd", "i", 2).if_then("odd").sub("acc", "acc", "t").end_if().end_if()
     .end_for()
     .store("y", "acc").build())  # fmt: skip
    x = floats(20, 4)
    for flag in (0, 1, -3):
        (_, y, *_) = both(m, "f", x, np.zeros((4, 4), np.float32), 5, flag)
        tiles = x.reshape(5, 4, 4)
        expected = tiles.sum(0) if flag else -tiles[1::2].sum(0)
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


def test_scalar_instructions() -> None:
    m = PTOModule("m")
    b = PTOFunctionBuilder("f", module=m).not_in_core().memref("out", G, "f64", (32, 1)).memref("k", G, I32, (4, 4))
    b.scalar("a", I32).scalar("x", "f64").scalar("small", "i16").scalar("wide", "f64")
    b.scalar_li("c", 7).scalar_load("e", "k", 1, 2)
    ints = ["scalar_add", "scalar_sub", "scalar_mul", "scalar_div", "scalar_rem", "scalar_max", "scalar_min", "scalar_and",
            "scalar_or", "scalar_xor", "scalar_shl", "scalar_shr"]  # fmt: skip
    for row, name in enumerate(ints):
        getattr(b, name)(f"r{row}", "a", 3).scalar_mov(f"q{row}", f"r{row}")
    b.scalar_neg("r12", "a").scalar_abs("r13", "a").scalar_not("r14", "a").scalar_mov("r15", "e")
    b.scalar_select("r16", "a", 5, "a").scalar_cmp("t", "a", 0, "lt").scalar_select("r17", "t", 1, "a")
    b.scalar_add("r18", "c", "a")
    for number in range(19):
        b.scalar(f"v{number}", "f64").scalar_cvt(f"v{number}", f"r{number}").scalar_store("out", f"v{number}", number)
    for number, name in enumerate(("exp", "sqrt", "rsqrt", "recip", "log", "neg", "abs"), 19):
        getattr(b, f"scalar_{name}")(f"w{number}", "x").scalar_store("out", f"w{number}", number)
    b.scalar_cvt("small", "x", "floor").scalar_cvt("wide", "small").scalar_store("out", "wide", 26)
    b.build()
    k = integers(4, 4)
    a, x = -17, 2.75
    (out, *_) = both(m, "f", np.zeros((32, 1)), k, a, x)
    c = np.int32
    expected = [a + 3, a - 3, a * 3, int(a / 3), a % 3, max(a, 3), min(a, 3), a & 3, a | 3, a ^ 3, a << 3, a >> 3, -a,
                abs(a), ~a, c(k[1, 2]), 5, 1, 7 + a, np.exp(x), x**0.5, x**-0.5, 1 / x, np.log(x), -x, abs(x), 2.0]  # fmt: skip
    np.testing.assert_allclose(out[:27, 0], np.array(expected, np.float64), rtol=1e-12)


def test_an_in_core_function_inlines_those_it_calls() -> None:
    m = softmax_module()
    (core(m, "whole", "x", "y", "t").call("rowmax", {"input": "x", "output": "t"})
     .call("rowexpandsub", {"input_x": "x", "input_row": "t", "output": "y"})
     .for_loop("i", 0, 2, 1).call("elem_exp", {"input": "y", "output": "y"}).end_for().build())  # fmt: skip
    x = floats(8, 8)
    (_, y, _) = both(m, "whole", x, np.zeros_like(x), np.zeros((8, 1), np.float32))
    np.testing.assert_allclose(y, np.exp(np.exp(x - x.max(1, keepdims=True))), rtol=1e-5)
    assert "CALL @rowmax" in m["whole"].to_pto()
    inlined = m.compile().whole.ir("inlined")
    assert inlined.count("CALL") == 1 and "trowmax" not in inlined and "tmax" in inlined


def test_an_orchestration_function_calls_another() -> None:
    m = softmax_module()
    (host(m, "twice", "x", "t", "y").scalar("n", I32)
     .call("dynamic_softmax", {"input": "x", "output": "t", "num_tiles": "n"})
     .call("dynamic_softmax", {"input": "t", "output": "y", "num_tiles": 2}).build())  # fmt: skip
    x = floats(16, 8)
    (_, _, y, _) = both(m, "twice", x, np.zeros_like(x), np.zeros_like(x), 2)
    np.testing.assert_allclose(y, softmax(softmax(x)), rtol=1e-5)


def test_kernels_call_built_functions() -> None:
    m = softmax_module()
    whole, rowmax = m["dynamic_softmax"], m["rowmax"]

    @pto.jit
    def orchestration(x: pl.Tensor, y: pl.Tensor, r: pl.Tensor):
        whole(x, y, x.shape[0] // 8)
        for i in pl.range(0, x.shape[0], 8):
            rowmax(y[i : i + 8, :], r[i : i + 8, :])

    @pto.jit
    def in_core(x: pl.Tensor, r: pl.Tensor):
        with pl.incore():
            for i in pl.range(0, x.shape[0], 8, parallel=True):
                rowmax(input=x[i : i + 8, :], output=r[i : i + 8, :])

    x = floats(32, 8)
    for run in (orchestration, orchestration.interpret):
        y, r = np.zeros_like(x), np.zeros((32, 1), np.float32)
        run(x, y, r)
        np.testing.assert_allclose(y, softmax(x), rtol=1e-5)
        np.testing.assert_allclose(r, softmax(x).max(1, keepdims=True), rtol=1e-5)
    for run in (in_core, in_core.interpret):
        r = np.zeros((32, 1), np.float32)
        run(x, r)
        np.testing.assert_array_equal(r, x.max(1, keepdims=True))
    nest = orchestration.compile(x, x, r).loop_nest()
    assert [child.var for child in nest[0].children] == ["rowmax", "rowexpandsub", "elem_exp", "rowsum", "rowexpanddiv"]
    with pytest.raises(pto.ShapeError, match="@rowmax takes %input"):
        pto.jit(lambda x, r: rowmax(x, r)).compile(pto.spec((8, 16), pl.f32), r)
    with pytest.raises(pto.TypeMismatchError, match="`rowmax`: missing a required argument: `output`"):
        pto.jit(lambda x: rowmax(x))(x)


def test_modules_call_python_functions_that_are_registered() -> None:
    @pto.incore
    def scale(x: pl.Tensor[[8, 8], pl.f32], y: pl.Tensor[[8, 8], pl.f32], by):
        t = pl.load(x, [0, 0], [8, 8])
        pl.store(pl.map(lambda v: v * by, t) + 1, [0, 0], y)

    m = PTOModule("m")
    assert m.register(scale, by=pl.f32).name == "scale"
    m.register(scale, by=3.0, name="triple")
    (host(m, "f", "x", "y").scalar("n", I32).for_loop("i", 0, "n", 1)
     .call("scale", {"x": ("x", "i", 0), "y": ("t", "i", 0), "by": 0.5})
     .call("triple", {"x": ("t", "i", 0), "y": ("y", "i", 0)}).end_for().build())  # fmt: skip
    x = floats(32, 8)
    (_, y, _) = both(m, "f", x, np.zeros_like(x), 4)
    np.testing.assert_allclose(y, (x * 0.5 + 1) * 3 + 1, rtol=1e-5)
    with pytest.raises(pto.CompilationError, match="the type of `by` of `scale` is not known"):
        m.register(scale, name="other")
    with pytest.raises(pto.TypeMismatchError, match="returns a value"):
        m.register(lambda x: pl.load(x, [0, 0], [8, 8]) * 2, pto.spec((8, 8), pl.f32), name="other")


def test_flash_attention_over_all_key_tiles() -> None:
    """The seed's phase 2: score, online softmax and value update for each pair of tiles."""
    rows, depth = 8, 16
    m = PTOModule("attention")
    (
        core(m, "init", "o", "l", "m")
        .tile("a", rows, depth, F)
        .tile("b", rows, 1, F)
        .tile("c", rows, 1, F)
        .expands("a", 0)
        .expands("b", 0)
        .expands("c", float("-inf"))
        .store("o", "a")
        .store("l", "b")
        .store("m", "c")
        .build()
    )
    (
        core(m, "score", "q", "k", "s")
        .tile("a", rows, depth, F)
        .tile("b", rows, depth, F)
        .load("a", "q")
        .load("b", "k")
        .trans("bt", "b")
        .matmul("c", "a", "bt")
        .muls("d", "c", depth**-0.5)
        .store("s", "d")
        .build()
    )
    (
        core(m, "update", "s", "m", "l", "p", "scale")
        .tile("x", rows, rows, F)
        .tile("old", rows, 1, F)
        .tile("sum", rows, 1, F)
        .load("x", "s")
        .load("old", "m")
        .load("sum", "l")
        .rowmax("top", "x")
        .max("new", "old", "top")
        .sub("dif", "old", "new")
        .exp("factor", "dif")
        .rowexpandexpdif("e", "x", "new")
        .rowsum("part", "e")
        .muladddst("part", "sum", "factor")
        .store("m", "new")
        .store("l", "part")
        .store("p", "e")
        .store("scale", "factor")
        .build()
    )
    (
        core(m, "value", "p", "v", "scale", "o")
        .tile("e", rows, rows, F)
        .tile("b", rows, depth, F)
        .tile("f", rows, 1, F)
        .tile("acc", rows, depth, F)
        .load("e", "p")
        .load("b", "v")
        .load("f", "scale")
        .load("acc", "o")
        .rowexpandmul("acc", "acc", "f")
        .matmul_acc("acc", "e", "b")
        .store("o", "acc")
        .build()
    )
    (
        core(m, "normalise", "o", "l", "out")
        .tile("a", rows, depth, F)
        .tile("s", rows, 1, F)
        .load("a", "o")
        .load("s", "l")
        .rowexpanddiv("r", "a", "s")
        .store("out", "r")
        .build()
    )
    (host(m, "attention", "q", "k", "v", "out").scalar("n", I32)
     .for_loop("i", 0, "n", 1)
     .call("init", {"o": ("o", "i", 0), "l": ("l", "i", 0), "m": ("m", "i", 0)})
     .for_loop("j", 0, "n", 1)
     .call("score", {"q": ("q", "i", 0), "k": ("k", "j", 0), "s": ("s", "i", 0)})
     .call("update", {"s": ("s", "i", 0), "m": ("m", "i", 0), "l": ("l", "i", 0), "p": ("p", "i", 0), "scale": ("f", "i", 0)})
     .call("value", {"p": ("p", "i", 0), "v": ("v", "j", 0), "scale": ("f", "i", 0), "o": ("o", "i", 0)})
     .end_for()
     .call("normalise", {"o": ("o", "i", 0), "l": ("l", "i", 0), "out": ("out", "i", 0)})
     .end_for().build())  # fmt: skip
    q, k, v = (floats(32, depth, seed=s) for s in range(3))
    *_, out, _ = both(m, "attention", q, k, v, np.zeros_like(q), 4)
    np.testing.assert_allclose(out, softmax(q @ k.T * depth**-0.5) @ v, rtol=1e-4, atol=1e-5)


def test_modules_compare_print_and_list_their_functions() -> None:
    m, other = softmax_module(), softmax_module()
    assert m == other and m != softmax_module(8, 16) and m != "m"
    assert list(m) == ["rowmax", "rowsum", "rowexpandsub", "rowexpanddiv", "elem_exp", "dynamic_softmax"]
    assert "rowmax" in m and len(m) == 6 and m["rowmax"].func.kind == "incore"
    assert str(m) == m.to_pto() and "// test_programs.py:" in m.to_pto(locations=True)
    assert m["rowmax"].to_pto().count("func @") == 1
    other.set_entry("rowmax")
    assert other != m and pto.parse_pto(str(other)).entry == "rowmax"
    assert set(dir(m.compile())) >= set(m) and list(m.compile()) == list(m)
    with pytest.raises(KeyError, match="has no function `rowmin`; did you mean `row"):
        m["rowmin"]
    assert str(PTOModule("empty")) == '// PTO Module: "empty"\n'


def test_a_failure_while_running_points_at_the_builder_call() -> None:
    m = PTOModule("m")
    (core(m, "f", "x", "v", "y").tile("a", 8, 8, F).tile("b", 8, 1, F).load("a", "x").load("b", "v")
     .rowexpandmul("c", "a", "b")
     .store("y", "c").build())  # fmt: skip
    x, v = floats(8, 8), floats(5, 1)
    with pytest.raises(pto.LaunchError, match="the valid extents of the tiles differ along axis 0") as caught:
        m.compile().f(x, v, np.zeros_like(x))
    assert '.rowexpandmul("c", "a", "b")' in str(caught.value)


def test_partial_tiles_need_no_masks_and_pads_fill_them() -> None:
    m = PTOModule("m")
    core(m, "f", "x", "y").tile("t", 8, 8, F).load("t", "x").exp("e", "t").store("y", "e").build()
    core(m, "g", "x", "y").tile("t", 8, 8, F).load("t", "x", pad=2.0).rowsum("s", "t").store(
        "y", "s", atomic="add"
    ).build()
    x = floats(5, 8)
    (_, y) = both(m, "f", x, np.zeros((8, 8), np.float32))
    np.testing.assert_allclose(y, np.vstack([np.exp(x), np.zeros((3, 8))]), rtol=1e-5)
    (_, y) = both(m, "g", x, np.ones((8, 1), np.float32))
    np.testing.assert_allclose(y, 1 + np.vstack([x, np.full((3, 8), 2)]).sum(1, keepdims=True), rtol=1e-5)


def test_a_parallel_loop_of_calls() -> None:
    m = softmax_module()
    (host(m, "f", "x", "y").scalar("n", I32).for_loop("i", 0, "n", 1, parallel=True)
     .call("elem_exp", {"input": ("x", "i", 0), "output": ("y", "i", 0)}).end_for().build())  # fmt: skip
    assert "{kind=parallel}" in str(m)
    x = floats(64, 8)
    (_, y, _) = both(m, "f", x, np.zeros_like(x), 8)
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-5)


def test_numbers_of_numpy_are_those_of_python() -> None:
    m = PTOModule("numbers")
    n, half = np.int64(4), np.float32(0.5)
    b = PTOFunctionBuilder("scaled", module=m).memref("x", G, F).memref("y", G, F, shape=(n, None)).scalar("by", F)
    b.tile("a", n, np.int32(8), F).load("a", "x", np.int64(0), np.int16(0)).muls("s", "a", half).muls("t", "s", "by")
    b.store("y", "t", np.int64(0), 0).build()
    b = PTOFunctionBuilder("twice", module=m).not_in_core().memref("x", G, F).memref("y", G, F)
    b.for_loop("i", np.int64(0), np.int8(2), np.int64(1))
    b.call("scaled", {"x": ("x", "i", np.int64(0)), "y": ("y", "i", 0), "by": half}).end_for().build()
    assert pto.parse_pto(str(m)) == m
    x, y = floats(8, 8), np.zeros((8, 8), np.float32)
    m.compile().twice(x, y)
    np.testing.assert_array_equal(y, x / 4)
