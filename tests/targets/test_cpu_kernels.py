# SPDX-License-Identifier: MIT
"""Whole kernels on the CPU target against the reference interpreter: groups, loops, partial tiles, aliasing."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.cpu_programs import Compiled, array, check, module

SOFTMAX = """
func @softmax(%x: !pto.memref<gm,?x?,{d}{lx}>, %y: !pto.memref<gm,?x?,{d}{ly}>) {{
  %rows = sdim %x {{axis=0}} : i64
  %cols = sdim %x {{axis=1}} : i64
  FOR %r:idx, 0:idx, %rows:idx, {bm}:idx {{kind={kind}}}
    %t = tload %x[%r, 0] [{bm}, %cols] : !pto.tile<{bm}x?x{d}>
    %m = tmax %t {{axes=(1,), keepdims=true}} : !pto.tile<{bm}x1x{d}>
    %s = tsub %t, %m : !pto.tile<{bm}x?x{d}>
    %e = texp %s : !pto.tile<{bm}x?x{d}>
    %z = tsum %e {{axes=(1,), keepdims=true}} : !pto.tile<{bm}x1x{d}>
    %o = tdiv %e, %z : !pto.tile<{bm}x?x{d}>
    tstore %o, %y[%r, 0]
  ENDFOR
  return
}}
"""
SHAPES = [(1, 1), (3, 17), (5, 64), (33, 70), (4, 1000), (0, 5), (3, 0), (2, 257)]


@pytest.mark.parametrize("kind", ["sequential", "parallel", "chunk"])
@pytest.mark.parametrize("bm", [1, 4])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_a_row_softmax_agrees_with_the_interpreter(dtype: str, bm: int, kind: str) -> None:
    text = SOFTMAX.format(d=dtype, bm=bm, kind=kind, lx="", ly="")
    for shape in SHAPES:
        x = array(dtype, shape)
        check(text, x, np.zeros_like(x), scale=2)


@pytest.mark.parametrize("bm", [1, 4])
def test_a_softmax_in_place_reads_before_it_writes(bm: int) -> None:
    compiled = Compiled(module(SOFTMAX.format(d="f32", bm=bm, kind="sequential", lx="", ly="")))
    for shape in SHAPES:
        x = array("f32", shape)
        expected = x.copy()
        compiled(x, expected)
        compiled(x, x)
        np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("shift", [-70, -3, 1, 5, 70, 140])
def test_overlapping_arguments_behave_as_in_program_order(shift: int) -> None:
    text = SOFTMAX.format(d="f32", bm=4, kind="sequential", lx="", ly="")
    found = module(text)
    base = array("f32", (33 * 70 + 400,))
    views = [np.ndarray((33, 70), np.float32, base, 4 * (200 + s), (280, 4)) for s in (0, shift)]
    from pto_jit.semantic.interpreter import run

    wanted = base.copy()
    run(found, [np.ndarray((33, 70), np.float32, wanted, 4 * (200 + s), (280, 4)) for s in (0, shift)])
    Compiled(found)(*views)
    np.testing.assert_allclose(base, wanted, rtol=1e-5, atol=1e-7)


LAYOUTS = [(",strided", ""), ("", ",strided"), (",inner", ",inner"), (",strided", ",strided")]


@pytest.mark.parametrize(("lx", "ly"), LAYOUTS)
def test_strided_arguments_are_read_and_written_where_they_are(lx: str, ly: str) -> None:
    text = SOFTMAX.format(d="f32", bm=4, kind="sequential", lx=lx, ly=ly)

    def argument(layout: str, seed: int) -> np.ndarray:
        base = array("f32", (40, 90), seed)
        if layout == ",strided":
            return array("f32", (80, 180), seed)[::2, ::2][:33, :70]
        return base[:33, 3:73] if layout == ",inner" else np.ascontiguousarray(base[:33, :70])

    check(text, argument(lx, 1), argument(ly, 2))
    if lx == ly == ",strided":
        check(text, array("f32", (33, 70))[::-1, ::-1], array("f32", (33, 70))[::-1, ::-1])
        check(text, array("f32", (70, 33)).T, array("f32", (70, 33)).T)


NORM = """
func @norm(%x: !pto.memref<gm,?x?,f32>, %g: !pto.memref<gm,?,f32>, %y: !pto.memref<gm,?x?,f32>,
           %h: !pto.memref<gm,?x?,f32>) {
  %rows = sdim %x {axis=0} : i64
  %cols = sdim %x {axis=1} : i64
  %gt = tload %g[0] [%cols] : !pto.tile<?xf32>
  FOR %r:idx, 0:idx, %rows:idx, 8:idx
    %t = tload %x[%r, 0] [8, %cols] : !pto.tile<8x?xf32>
    %t2 = tload %y[%r, 0] [8, %cols] : !pto.tile<8x?xf32>
    %a = tadd %t, %t2 : !pto.tile<8x?xf32>
    tstore %a, %h[%r, 0]
    %q = tmul %a, %a : !pto.tile<8x?xf32>
    %s = tsum %q {axes=(1,), keepdims=false} : !pto.tile<8xf32>
    %n = tvalid %t {axis=1} : i64
    %nf = scast %n {dtype=f32} : f32
    %ms = tdiv %s, %nf : !pto.tile<8xf32>
    %me = tadd %ms, 1.0e-5:f32 : !pto.tile<8xf32>
    %rs = trsqrt %me : !pto.tile<8xf32>
    %rc = treshape %rs, [8, 1] : !pto.tile<8x1xf32>
    %o = tmul %a, %rc : !pto.tile<8x?xf32>
    %og = tmul %o, %gt : !pto.tile<8x?xf32>
    tstore %og, %y[%r, 0]
  ENDFOR
  return
}
"""


def test_a_residual_norm_works_in_place_and_apart() -> None:
    reshaped = "%gr = treshape %gt, [1, %cols] : !pto.tile<1x?xf32>\n    %og = tmul %o, %gr"
    text = NORM.replace("%og = tmul %o, %gt", reshaped)
    for shape in [(3, 17), (8, 64), (20, 130)]:
        x, g, y = array("f32", shape), array("f32", shape[1:], 1), array("f32", shape, 2)
        check(text, x, g, y, np.zeros(shape, np.float32))
    compiled = Compiled(module(text))
    x, g, y = array("f32", (20, 130)), array("f32", (130,), 1), array("f32", (20, 130), 2)
    apart = [x.copy(), g, y.copy(), np.zeros_like(x)]
    compiled(*apart)
    compiled(x, g, y, x)  # the sum overwrites its operand
    np.testing.assert_array_equal(x, apart[3])
    np.testing.assert_array_equal(y, apart[2])


@pytest.mark.parametrize("axes", ["(0,)", "(1,)", "(2,)", "(0, 1)", "(0, 2)", "(1, 2)", "(0, 1, 2)"])
@pytest.mark.parametrize("op", ["sum", "max", "prod"])
def test_reductions_over_any_axes(op: str, axes: str) -> None:
    gone = [int(c) for c in axes if c.isdigit()]
    kept = [k for k in range(3) if k not in gone]
    shape = "x".join("?456"[0] if k == 0 else str((5, 6)[k - 1]) for k in kept)
    result = f"!pto.tile<{shape}xf32>" if kept else "f32"
    out = "x".join("?" * max(1, len(kept)))
    after = f"tstore %o, %y[{', '.join('0' for _ in kept)}]\n  return" if kept else "return %o"
    text = f"""
func @f(%x: !pto.memref<gm,?x?x?,f32>, %y: !pto.memref<gm,{out},f32>){'' if kept else ' -> (f32)'} {{
  %n = sdim %x {{axis=0}} : i64
  %t = tload %x[0, 0, 0] [%n, 5, 6] : !pto.tile<?x5x6xf32>
  %e = tmul %t, 1.25:f32 : !pto.tile<?x5x6xf32>
  %o = t{op} %e {{axes={axes}}} : {result}
  {after}
}}
"""
    for rows, cols in [(4, 6), (1, 6), (7, 4), (0, 6)]:
        check(text, array("f32", (rows, 5, cols)), np.zeros((9,) * max(1, len(kept)), np.float32), scale=30)


CARRIED = """
func @f(%a: !pto.memref<gm,?x?,f32>, %b: !pto.memref<gm,?x?,f32>, %c: !pto.memref<gm,?x?,f32>) {
  %m = sdim %a {axis=0} : i64
  %k = sdim %a {axis=1} : i64
  %n = sdim %b {axis=1} : i64
  FOR %i:idx, 0:idx, %m:idx, 16:idx {kind=parallel}
    FOR %j:idx, 0:idx, %n:idx, 24:idx
      %acc = tfull 0.0:f32, [16, 24] : !pto.tile<16x24xf32>
      FOR %p:idx, 0:idx, %k:idx, 8:idx
        %ta = tload %a[%i, %p] [16, 8] : !pto.tile<16x8xf32>
        %tb = tload %b[%p, %j] [8, 24] : !pto.tile<8x24xf32>
        %d = tdot %ta, %tb : !pto.tile<16x24xf32>
        %s = tadd %acc, %d : !pto.tile<16x24xf32>
        %acc = tcopy %s : !pto.tile<16x24xf32>
      ENDFOR
      %z = trelu %acc : !pto.tile<16x24xf32>
      tstore %z, %c[%i, %j]
    ENDFOR
  ENDFOR
  return
}
"""


def test_a_tiled_product_with_a_carried_accumulator() -> None:
    for m, k, n in [(16, 8, 24), (33, 20, 50), (5, 3, 7)]:
        check(CARRIED, array("f32", (m, k)), array("f32", (k, n), 1), np.zeros((m, n), np.float32), scale=20)


FLASH = """
func @f(%q: !pto.memref<gm,?x16,f32>, %k: !pto.memref<gm,?x16,f32>, %v: !pto.memref<gm,?x16,f32>,
        %o: !pto.memref<gm,?x16,f32>) {
  %n = sdim %q {axis=0} : i64
  %s = sdim %k {axis=0} : i64
  FOR %i:idx, 0:idx, %n:idx, 8:idx {kind=parallel}
    %tq = tload %q[%i, 0] [8, 16] : !pto.tile<8x16xf32>
    %m = tfull -inf:f32, [8, 1] : !pto.tile<8x1xf32>
    %l = tfull 0.0:f32, [8, 1] : !pto.tile<8x1xf32>
    %acc = tfull 0.0:f32, [8, 16] : !pto.tile<8x16xf32>
    FOR %j:idx, 0:idx, %s:idx, 8:idx
      %tk = tload %k[%j, 0] [8, 16] : !pto.tile<8x16xf32>
      %tv = tload %v[%j, 0] [8, 16] : !pto.tile<8x16xf32>
      %kt = ttranspose %tk {axes=(1, 0)} : !pto.tile<16x8xf32>
      %p = tdot %tq, %kt : !pto.tile<8x8xf32>
      %pm = tmax %p {axes=(1,), keepdims=true} : !pto.tile<8x1xf32>
      %mn = tmax %m, %pm : !pto.tile<8x1xf32>
      %dm = tsub %m, %mn : !pto.tile<8x1xf32>
      %al = texp %dm : !pto.tile<8x1xf32>
      %ps = tsub %p, %mn : !pto.tile<8x8xf32>
      %pe = texp %ps : !pto.tile<8x8xf32>
      %pl = tsum %pe {axes=(1,), keepdims=true} : !pto.tile<8x1xf32>
      %la = tmul %l, %al : !pto.tile<8x1xf32>
      %ln = tadd %la, %pl : !pto.tile<8x1xf32>
      %sc = tmul %acc, %al : !pto.tile<8x16xf32>
      %pv = tdot %pe, %tv : !pto.tile<8x16xf32>
      %an = tadd %sc, %pv : !pto.tile<8x16xf32>
      %m = tcopy %mn : !pto.tile<8x1xf32>
      %l = tcopy %ln : !pto.tile<8x1xf32>
      %acc = tcopy %an : !pto.tile<8x16xf32>
    ENDFOR
    %r = tdiv %acc, %l : !pto.tile<8x16xf32>
    tstore %r, %o[%i, 0]
  ENDFOR
  return
}
"""


def test_attention_with_a_running_softmax() -> None:
    for n, s in [(8, 8), (16, 40), (19, 29)]:
        arrays = [array("f32", (r, 16), k) for k, r in enumerate((n, s, s))]
        check(FLASH, *arrays, np.zeros((n, 16), np.float32), scale=10)


SCALARS = """
func @f(%x: !pto.memref<gm,?,i64>, %n: i64) -> (i64, i64) {
  %total = scopy 0 : i64
  %count = scopy 0 : i64
  FOR %i:idx, 0:idx, %n:idx, 1:idx
    %v = sgetelem %x[%i] : i64
    %neg = slt %v, 0 : bool_
    IF %neg
      CONTINUE
    ENDIF
    %big = sgt %v, 15 : bool_
    IF %big
      BREAK
    ELSE
      %t = sadd %total, %v : i64
      %total = scopy %t : i64
    ENDIF
    %c = sadd %count, 1 : i64
    %count = scopy %c : i64
  ENDFOR
  %w = scopy %total : i64
  WHILE
    %go = sgt %w, 3 : bool_
  DO %go
    %h = sfloordiv %w, 3 : i64
    %w = scopy %h : i64
    ssetelem %w, %x[0]
  ENDWHILE
  return %count, %w
}
"""


def test_scalar_control_flow() -> None:
    for seed in range(6):
        check(SCALARS, array("i64", (30,), seed, -3, 17), 30)


def test_loops_with_any_step_run_the_iterations_of_python() -> None:
    text = """
func @f(%x: !pto.memref<gm,?,i64>, %start: i64, %stop: i64, %step: i64) -> (i64) {
  %k = scopy 0 : i64
  FOR %i:idx, %start:idx, %stop:idx, %step:idx {kind=KIND}
    %j = sabs %i : i64
    ssetelem %i, %x[%j]
  ENDFOR
  return %k
}
"""
    for kind in ("sequential", "parallel"):
        for bounds in [(0, 10, 1), (10, 0, -1), (9, -1, -3), (3, 3, 1), (5, 1, 1), (0, 10, 4), (1, 8, 0)]:
            check(text.replace("KIND", kind), np.full(40, -99, np.int64), *bounds)


DYNAMIC = """
func @f(%x: !pto.memref<gm,?,f32>, %y: !pto.memref<gm,?,f32>, %n: i64) {
  %a = tload %x[0] [%n] : !pto.tile<?xf32>
  %t = tmul %a, 2.0:f32 : !pto.tile<?xf32>
  %acc = tcopy %t : !pto.tile<?xf32>
  FOR %i:idx, 0:idx, 3:idx, 1:idx
    %u = tadd %acc, %a : !pto.tile<?xf32>
    %v = tflip %u {axis=0} : !pto.tile<?xf32>
    %acc = tcopy %v : !pto.tile<?xf32>
  ENDFOR
  tstore %acc, %y[0]
  return
}
"""


def test_a_carried_tile_of_run_time_extent() -> None:
    for n, size in [(5, 5), (40, 64), (100, 64), (0, 4)]:
        check(DYNAMIC, array("f32", (size,)), np.zeros(64, np.float32), n)


def test_a_load_keeps_what_memory_held_when_it_was_loaded() -> None:
    text = """
func @f(%x: !pto.memref<gm,?x?,f32>) {
  %t = tload %x[0, 0] [4, 8] : !pto.tile<4x8xf32>
  %u = tload %x[1, 0] [4, 8] : !pto.tile<4x8xf32>
  %z = tfull 7.0:f32, [4, 8] : !pto.tile<4x8xf32>
  tstore %z, %x[0, 0]
  tstore %t, %x[2, 0]
  %s = tadd %u, 1.0:f32 : !pto.tile<4x8xf32>
  tstore %s, %x[4, 0]
  tstore %u, %x[1, 1]
  return
}
"""
    check(text, array("f32", (12, 10)))


def test_a_padded_load_is_valid_everywhere() -> None:
    text = """
func @f(%x: !pto.memref<gm,?x?,f32>, %y: !pto.memref<gm,?x?,f32>, %r: i64, %c: i64) {
  %t = tload %x[%r, %c] [4, 8], 9.5:f32 {pad=true} : !pto.tile<4x8xf32>
  %s = tmul %t, 2.0:f32 : !pto.tile<4x8xf32>
  tstore %s, %y[0, 0]
  return
}
"""
    for r, c in [(0, 0), (3, 1), (1, 6), (8, 0), (0, 20), (20, 20), (-1, 0)]:
        check(text, array("f32", (6, 10)), np.zeros((4, 8), np.float32), r, c)


@pytest.mark.parametrize("offset", [(0, 0), (2, 3), (5, 0), (9, 9), (-1, 0)])
def test_stores_are_clipped_at_the_bounds(offset: tuple[int, int]) -> None:
    text = """
func @f(%x: !pto.memref<gm,?x?,f32>, %y: !pto.memref<gm,?x?,f32>, %r: i64, %c: i64) {
  %t = tload %x[0, 0] [4, 8] : !pto.tile<4x8xf32>
  %e = texp %t : !pto.tile<4x8xf32>
  tstore %e, %y[%r, %c]
  return
}
"""
    check(text, array("f32", (6, 10)), np.zeros((6, 6), np.float32), *offset)
    check(text, array("f32", (2, 3)), np.zeros((6, 6), np.float32), *offset)


def test_unequal_valid_extents_are_an_error() -> None:
    text = """
func @f(%x: !pto.memref<gm,?x?,f32>, %y: !pto.memref<gm,?x?,f32>, %z: !pto.memref<gm,?x?,f32>) {
  %t = tload %x[0, 0] [4, 8] : !pto.tile<4x8xf32>
  %u = tload %y[0, 0] [4, 8] : !pto.tile<4x8xf32>
  %s = tadd %t, %u : !pto.tile<4x8xf32>
  tstore %s, %z[0, 0]
  return
}
"""
    out = np.zeros((8, 8), np.float32)
    check(text, array("f32", (4, 8)), array("f32", (4, 7)), out)
    check(text, array("f32", (4, 7)), array("f32", (4, 7)), out)
    check(text, array("f32", (3, 8)), array("f32", (4, 8)), out)


def test_a_function_is_called_with_tensors_and_scalars() -> None:
    text = """
// Function Type: InCore
func @row(%x: !pto.memref<gm,?x?,f32>, %y: !pto.memref<gm,?x?,f32>, %r: i64, %f: f32) -> (f32) {
  %c = sdim %x {axis=1} : i64
  %t = tload %x[%r, 0] [1, %c] : !pto.tile<1x?xf32>
  %s = tmul %t, %f : !pto.tile<1x?xf32>
  tstore %s, %y[%r, 0]
  %z = tsum %s {axes=(0, 1)} : f32
  return %z
}

// Function Type: Orchestration
func @f(%x: !pto.memref<gm,?x?,f32>) -> (!pto.memref<gm,?x?,f32>, f32) {
  %n = sdim %x {axis=0} : i64
  %m = sdim %x {axis=1} : i64
  %y = talloc [%n, %m] {dtype=f32} : !pto.memref<gm,?x?,f32>
  %tmp = talloc [%n, %m], 1.5:f32 {dtype=f32, filled=true} : !pto.memref<gm,?x?,f32>
  %last = scopy 0.0:f32 : f32
  FOR %r:idx, 0:idx, %n:idx, 1:idx
    %z = CALL @row(%x, %y, %r, 2.5:f32) : f32
    %last = scopy %z : f32
  ENDFOR
  FOR %r2:idx, 0:idx, %n:idx, 1:idx {kind=chunk}
    %w = CALL @row(%y, %tmp, %r2, 2.0:f32) : f32
  ENDFOR
  return %y, %last
}
"""
    check("// Entry: @f\n" + text, array("f32", (9, 33)), scale=30)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_large_elementwise_group_gives_the_same_on_any_number_of_threads(threads: int) -> None:
    text = """
func @f(%x: !pto.memref<gm,?x?,f32>, %b: !pto.memref<gm,?,f32>, %y: !pto.memref<gm,?x?,f32>) {
  %r = sdim %x {axis=0} : i64
  %c = sdim %x {axis=1} : i64
  %t = tload %x[0, 0] [%r, %c] : !pto.tile<?x?xf32>
  %g = tload %b[0] [%c] : !pto.tile<?xf32>
  %h = treshape %g, [1, %c] : !pto.tile<1x?xf32>
  %s = tadd %t, %h : !pto.tile<?x?xf32>
  %o = trelu %s : !pto.tile<?x?xf32>
  tstore %o, %y[0, 0]
  return
}
"""
    x, b = array("f32", (700, 401)), array("f32", (401,), 1)
    y = np.zeros_like(x)
    Compiled(module(text), threads=threads)(x, b, y)
    np.testing.assert_array_equal(y, np.maximum(x + b, 0))
    flat = text.replace("tadd %t, %h", "tadd %t, 1.0:f32")
    Compiled(module(flat), threads=threads)(x, b, y)
    np.testing.assert_array_equal(y, np.maximum(x + 1, 0))


def test_large_outputs_stream_past_the_caches_at_any_alignment() -> None:
    text = """
func @f(%x: !pto.memref<gm,?x?,f32>, %y: !pto.memref<gm,?x?,f32,inner>) {
  %r = sdim %x {axis=0} : i64
  %c = sdim %x {axis=1} : i64
  %t = tload %x[0, 0] [%r, %c] : !pto.tile<?x?xf32>
  %s = tmul %t, 3.0:f32 : !pto.tile<?x?xf32>
  tstore %s, %y[0, 0]
  return
}
"""
    compiled = Compiled(module(text))
    x = array("f32", (4099, 1031))
    for start in (0, 1, 5, 15):
        base = np.zeros((4099, 1050), np.float32)
        y = base[:, start : start + 1031]
        compiled(x, y)
        np.testing.assert_array_equal(y, x * 3)
        assert not base[:, :start].any() and not base[:, start + 1031 :].any()


def test_a_product_is_stored_where_it_fits_and_clipped_where_not() -> None:
    text = """
func @f(%a: !pto.memref<gm,?x?,f32>, %b: !pto.memref<gm,?x?,f32>, %c: !pto.memref<gm,?x?,f32,inner>, %r: i64) {
  %ta = tload %a[0, 0] [16, 24] : !pto.tile<16x24xf32>
  %tb = tload %b[0, 0] [24, 40] : !pto.tile<24x40xf32>
  %d = tdot %ta, %tb : !pto.tile<16x40xf32>
  tstore %d, %c[%r, %r]
  return
}
"""
    whole, part = (16, 24, 40), (9, 5, 11)
    for (m, k, n), rows, cols, r in [(whole, 50, 60, 0), (whole, 50, 60, 7), (part, 50, 60, 3), (whole, 10, 60, 0),
                                     (whole, 50, 30, 2), (whole, 5, 5, 9)]:  # fmt: skip
        c = np.zeros((rows, cols + 5), np.float32)[:, :cols]
        check(text, array("f32", (m, k)), array("f32", (k, n), 1), c, r, scale=20)
    compiled = Compiled(module(text))
    a, b = array("f32", (40, 40)), array("f32", (24, 40), 1)
    expected = a[:16, :24] @ b
    compiled(a[:, :24].copy(), b, a, 0)
    np.testing.assert_allclose(a[:16], expected, rtol=1e-4, atol=1e-4)
    square = array("f32", (24, 24))
    expected = (square[:16] @ square)[:, :24]
    compiled(square, square, square, 0)  # the operands are overwritten by the result
    np.testing.assert_allclose(square[:16], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("axes", ["(0,)", "(0, 1)", "(1,)"])
@pytest.mark.parametrize("op", ["sum", "max"])
def test_large_reductions_do_not_depend_on_the_number_of_threads(op: str, axes: str) -> None:
    kept = "!pto.tile<?xf32>" if axes != "(0, 1)" else "f32"
    arrow, last = ("", "tstore %o, %y[0]\n  return") if axes != "(0, 1)" else (" -> (f32)", "return %o")
    text = f"""
func @f(%x: !pto.memref<gm,?x?,f32>, %y: !pto.memref<gm,?,f32>){arrow} {{
  %r = sdim %x {{axis=0}} : i64
  %c = sdim %x {{axis=1}} : i64
  %t = tload %x[0, 0] [%r, %c] : !pto.tile<?x?xf32>
  %s = tmul %t, 0.5:f32 : !pto.tile<?x?xf32>
  %o = t{op} %s {{axes={axes}}} : {kept}
  {last}
}}
"""
    for shape in [(3000, 257), (70, 9001), (2, 200_000), (300_000, 3), (1, 300_000)]:
        x = array("f32", shape)
        results = []
        for threads in (1, 2):
            y = np.zeros(max(shape), np.float32)
            out = Compiled(module(text), threads=threads)(x, y)
            results.append(np.float32(out) if out is not None else y)
        np.testing.assert_array_equal(results[0], results[1])
        exact = getattr(np, op)(x.astype(np.float64) * 0.5, axis=eval(axes))
        mine = results[0] if out is not None else results[0][: exact.size]
        np.testing.assert_allclose(mine, exact, rtol=1e-4, atol=2e-2)


def test_a_large_sum_of_a_vector() -> None:
    text = """
func @f(%x: !pto.memref<gm,?,f32>) -> (f32, f32) {
  %r = sdim %x {axis=0} : i64
  %t = tload %x[0] [%r] : !pto.tile<?xf32>
  %s = tmul %t, %t : !pto.tile<?xf32>
  %o = tsum %s {axes=(0,)} : f32
  %m = tmax %t {axes=(0,)} : f32
  return %o, %m
}
"""
    for size in (0, 1, 100, 16384, 16385, 500_000):
        x = array("f32", (size,))
        outs = [Compiled(module(text), threads=t)(x) for t in (1, 2)]
        assert outs[0] == outs[1]
        np.testing.assert_allclose(outs[0][0], np.sum(x.astype(np.float64) ** 2), rtol=1e-5)
        assert outs[0][1] == np.max(x, initial=-np.inf)
