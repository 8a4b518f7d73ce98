# SPDX-License-Identifier: MIT
"""For every row of the operation table: lines of text that are right, and lines that are wrong with the reason.

The lines stand in a function with the parameters and tiles below, so that `%t` is a tile of f32 and so on.
"""

from __future__ import annotations

from pto_jit.ir.nodes import Op, Stmt
from pto_jit.ir.parse import parse
from pto_jit.semantic.table import NAMES

PARAMS = (
    "%f: f32, %d: f64, %h: f16, %i: i32, %n: i64, %k: i64, %b: bool_, %u: u8, "
    "%x: !pto.memref<gm,?x?,f32>, %y: !pto.memref<gm,64x32,f32>, %v: !pto.memref<gm,?,f32>, "
    "%xi: !pto.memref<gm,?x?,i32>, %st: !pto.memref<gm,?x?,f32,strided>, %in: !pto.memref<gm,?x?,f32,inner>, "
    "%z: !pto.memref<gm,f32>"
)
PRELUDE = """\
  %t = tfull %f, [8, 8] : !pto.tile<8x8xf32>
  %t2 = tfull 2.0:f32, [8, 8] : !pto.tile<8x8xf32>
  %w = tfull %f, [8, 4] : !pto.tile<8x4xf32>
  %c = tfull %f, [8, 1] : !pto.tile<8x1xf32>
  %r = tfull %f, [1, 8] : !pto.tile<1x8xf32>
  %l = tfull %f, [8] : !pto.tile<8xf32>
  %q = tload %x[0, 0] [%n, 8] : !pto.tile<?x8xf32>
  %tb = tgt %t, 0.0:f32 : !pto.tile<8x8xbool_>
  %ti = tcast %t {dtype=i32} : !pto.tile<8x8xi32>
  %li = tarange 0:i32, 1:i32, [8] : !pto.tile<8xi32>
  %tu = tcast %ti {dtype=u8} : !pto.tile<8x8xu8>
  %t8 = tcast %ti {dtype=i8} : !pto.tile<8x8xi8>
  %th = tcast %t {dtype=f16} : !pto.tile<8x8xf16>
"""

_NUMERIC2 = ["add", "sub", "mul", "floordiv", "mod", "fmod", "pow", "max", "min"]
_FLOAT2 = ["div", "atan2"]
_BITS2 = ["and", "or", "xor"]
_SHIFT2 = ["shl", "shr"]
_NUMERIC1 = ["neg", "abs", "sign", "square", "relu"]
_FLOAT1 = [
    "exp", "exp2", "expm1", "log",
    "log2", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "tanh", "erf",
    "sigmoid", "silu", "gelu", "floor", "ceil", "round", "trunc",
]  # fmt: skip
_COMPARE = ["eq", "ne", "lt", "le", "gt", "ge"]
_CLASSIFY = ["isnan", "isinf", "isfinite"]

_DTYPES, _RANKS, _EXTENTS = "one dtype", "different ranks", "do not broadcast"

ACCEPTED: dict[str, list[str]] = {}
REJECTED: dict[str, list[tuple[str, str]]] = {}

for _name in (*_NUMERIC2, *_FLOAT2):
    ACCEPTED[_name] = [
        f"%o = t{_name} %t, %t2 : !pto.tile<8x8xf32>",
        f"%o = t{_name} %t, %c : !pto.tile<8x8xf32>",
        f"%o = t{_name} %r, %c : !pto.tile<8x8xf32>",
        f"%o = t{_name} 1.5:f32, %t : !pto.tile<8x8xf32>",
        f"%o = t{_name} %q, %r : !pto.tile<?x8xf32>",
        f"%o = t{_name} %q, %t : !pto.tile<8x8xf32>",
        f"%o = s{_name} %d, 2.0 : f64",
    ]
    REJECTED[_name] = [
        (f"%o = t{_name} %t, %ti : !pto.tile<8x8xf32>", _DTYPES),
        (f"%o = t{_name} %t, %w : !pto.tile<8x8xf32>", _EXTENTS),
        (f"%o = t{_name} %t, %l : !pto.tile<8x8xf32>", _RANKS),
        (f"%o = t{_name} %tb, %tb : !pto.tile<8x8xbool_>", "operands, not bool_"),
        (f"%o = t{_name} %x, %t : !pto.tile<8x8xf32>", "not a tensor"),
        (f"%o = t{_name} %t, %t, %t : !pto.tile<8x8xf32>", "takes 2 operands, got 3"),
        (f"%o = t{_name} %t, %t {{axis=0}} : !pto.tile<8x8xf32>", "has no attribute axis"),
        (f"%o, %p = t{_name} %t, %t : !pto.tile<8x8xf32>, f32", "gives"),
    ]
for _name in _NUMERIC2:
    ACCEPTED[_name].append(f"%o = s{_name} %i, 3:i32 : i32")
for _name in _FLOAT2:
    REJECTED[_name].append((f"%o = s{_name} %i, 3:i32 : i32", "takes floating-point operands, not i32"))
for _name in (*_BITS2, *_SHIFT2):
    ACCEPTED[_name] = [f"%o = t{_name} %ti, %i : !pto.tile<8x8xi32>", f"%o = s{_name} %n, 3 : i64"]
    REJECTED[_name] = [(f"%o = t{_name} %t, %t : !pto.tile<8x8xf32>", "operands, not f32")]
for _name in _BITS2:
    ACCEPTED[_name].append(f"%o = t{_name} %tb, %b : !pto.tile<8x8xbool_>")
for _name in _SHIFT2:
    REJECTED[_name].append((f"%o = s{_name} %b, %b : bool_", "integer operands, not bool_"))
for _name in (*_NUMERIC1, *_FLOAT1):
    ACCEPTED[_name] = [f"%o = t{_name} %t : !pto.tile<8x8xf32>", f"%o = s{_name} %h : f16"]
    REJECTED[_name] = [
        (f"%o = s{_name} %b : bool_", "operands, not bool_"),
        (f"%o = t{_name} %t, %t : !pto.tile<8x8xf32>", "takes 1 operand, got 2"),
    ]
for _name in _NUMERIC1:
    ACCEPTED[_name].append(f"%o = t{_name} %tu : !pto.tile<8x8xu8>")
for _name in _FLOAT1:
    REJECTED[_name].append((f"%o = t{_name} %ti : !pto.tile<8x8xi32>", "floating-point operands, not i32"))
for _name in _COMPARE:
    ACCEPTED[_name] = [
        f"%o = t{_name} %t, %c : !pto.tile<8x8xbool_>",
        f"%o = s{_name} %n, 3 : bool_",
        f"%o = s{_name} %b, true : bool_",
    ]
    REJECTED[_name] = [(f"%o = t{_name} %t, %i : !pto.tile<8x8xbool_>", _DTYPES)]
for _name in _CLASSIFY:
    ACCEPTED[_name] = [f"%o = t{_name} %t : !pto.tile<8x8xbool_>", f"%o = s{_name} inf : bool_"]
    REJECTED[_name] = [(f"%o = s{_name} %i : bool_", "floating-point operands, not i32")]

for _name in ("sum", "prod", "max", "min"):
    ACCEPTED.setdefault(_name, []).extend([
        f"%o = t{_name} %t {{axes=(1,), keepdims=true}} : !pto.tile<8x1xf32>",
        f"%o = t{_name} %q {{axes=(1,), keepdims=false}} : !pto.tile<?xf32>",
        f"%o = t{_name} %t {{axes=(0, 1)}} : f32",
        f"%o = t{_name} %ti {{axes=(0,)}} : !pto.tile<8xi32>",
    ])  # fmt: skip
    REJECTED.setdefault(_name, []).extend([
        (f"%o = t{_name} %tb {{axes=(0,)}} : !pto.tile<8xbool_>", "numeric operands, not bool_"),
        (f"%o = t{_name} %t {{axes=(2,)}} : !pto.tile<8xf32>", "axis 2 does not exist"),
        (f"%o = t{_name} %t {{axes=(1, 0)}} : f32", "ascending"),
        (f"%o = t{_name} %t {{axes=1}} : f32", "tuple of ints"),
        (f"%o = t{_name} %t {{axes=()}} : f32", "no axis"),
        (f"%o = t{_name} %t {{axes=(0,), keepdims=1}} : !pto.tile<8xf32>", "must be a bool"),
        (f"%o = t{_name} %t {{keepdims=true}} : !pto.tile<8xf32>", "the attribute axes is missing"),
    ])  # fmt: skip
for _name in ("any", "all"):
    ACCEPTED[_name] = [f"%o = t{_name} %tb {{axes=(0, 1)}} : bool_", f"%o = t{_name} %tb {{axes=(0,)}} : "
    f"!pto.tile<8xbool_>"]
    REJECTED[_name] = [(f"%o = t{_name} %t {{axes=(0,)}} : !pto.tile<8xbool_>", "bool_ operands, not f32")]
for _name in ("argmax", "argmin"):
    ACCEPTED[_name] = [
        f"%o = t{_name} %t {{axes=(1,), keepdims=false}} : !pto.tile<8xi32>",
        f"%o = t{_name} %t {{axes=none}} : i32",
        f"%o = t{_name} %t {{axes=none, keepdims=true}} : !pto.tile<1x1xi32>",
    ]
    REJECTED[_name] = [(f"%o = t{_name} %t {{axes=(0, 1)}} : i32", "takes one axis")]
for _name in ("cumsum", "cumprod"):
    ACCEPTED[_name] = [f"%o = t{_name} %t {{axis=1, reverse=true}} : !pto.tile<8x8xf32>"]
    REJECTED[_name] = [
        (f"%o = t{_name} %tb {{axis=1}} : !pto.tile<8x8xbool_>", "numeric operands"),
        (f"%o = t{_name} %t {{axis=none}} : !pto.tile<8x8xf32>", "must be an int"),
    ]
for _name in ("rand", "randn"):
    ACCEPTED[_name] = [f"%o = t{_name} %n, 0, [4, %n] : !pto.tile<4x?xf32>"]
    REJECTED[_name] = [(f"%o = t{_name} %i, 0, [4] : !pto.tile<4xf32>", "the seed must be i64, not i32")]
    ACCEPTED[f"{_name}_at"] = [f"%o = t{_name}_at %n, %ti : !pto.tile<8x8xf32>", f"%o = s{_name}_at 1, %i : f32"]
    REJECTED[f"{_name}_at"] = [(f"%o = t{_name}_at %n, %t : !pto.tile<8x8xf32>", "integer operands, not f32")]
for _name in ("atomic_add", "atomic_max", "atomic_min"):
    ACCEPTED[_name] = [f"t{_name} %t, %x[%n, 0]"]
    REJECTED[_name] = [
        (f"t{_name} %ti, %x[%n, 0]", "a value of i32 into a tensor of f32"),
        (f"t{_name} %tb, %x[%n, 0]", "numeric operands"),
    ]

ACCEPTED |= {
    "not": ["%o = tnot %tb : !pto.tile<8x8xbool_>", "%o = snot %i : i32"],
    "fma": ["%o = tfma %t, %f, %c : !pto.tile<8x8xf32>"],
    "select": ["%o = tselect %tb, %t, 0.0:f32 : !pto.tile<8x8xf32>", "%o = sselect %b, %n, 3 : i64"],
    "cast": ["%o = tcast %t {dtype=bf16} : !pto.tile<8x8xbf16>", "%o = scast %i {dtype=bool_} : bool_"],
    "bitcast": ["%o = tbitcast %t {dtype=i32} : !pto.tile<8x8xi32>", "%o = sbitcast %h {dtype=u16} : u16"],
    "copy": ["%o = tcopy %t : !pto.tile<8x8xf32>", "%o = scopy 1 : i64", "%o = tcopy %t : !pto.tile<?x8xf32>"],
    "full": ["%o = tfull %f, [3, %n] : !pto.tile<3x?xf32>", "%o = tfull true, [4] : !pto.tile<4xbool_>"],
    "arange": ["%o = tarange 0:i32, 2:i32, [%n] : !pto.tile<?xi32>", "%o = tarange 0.0, 0.5, [4] : !pto.tile<4xf64>"],
    "load": [
        "%o = tload %x[%n, 0] [16, %k] : !pto.tile<16x?xf32>",
        "%o = tload %st[0, 0] [16, 8], -inf:f32 {pad=true} : !pto.tile<16x8xf32>",
        "%o = tload %y[0, 0] : (!pto.memref) -> !pto.tile<16x8xf32>",
    ],
    "store": ["tstore %t, %x[%n, 0]", "tstore %l, %v[0]"],
    "getelem": ["%o = sgetelem %x[%n, 3] : f32", "%o = sgetelem %z : f32"],
    "setelem": ["ssetelem 1.0:f32, %y[63, 31]", "ssetelem %f, %z"],
    "take": [
        "%o = ttake %x, %li, [] {axis=0} : !pto.tile<8x?xf32>",
        "%o = ttake %y, %li, [0, 0] {axis=1} : !pto.tile<64x8xf32>",
        "%o = ttake %v, %ti {axis=0} : !pto.tile<8x8xf32>",
    ],
    "put": ["tput %t, %ti, %x {axis=1}"],
    "dim": ["%o = sdim %x {axis=1} : i64"],
    "view": [
        "%o = tview %x[%n, 0] [4, 8] : !pto.memref<gm,?x?,f32,inner>",
        "%o = tview %x[%n, 0] [1, 8] {drop=(0,)} : !pto.memref<gm,?,f32>",
        "%o = tview %x[0, %n] [8, 1] {drop=(1,)} : !pto.memref<gm,?,f32,strided>",
        "%o = tview %y[%n, 0] [8, 32] {drop=()} : !pto.memref<gm,?x32,f32>",
        "%o = tview %st[0, 0] [8, 8] : !pto.memref<gm,?x?,f32,strided>",
    ],
    "tensor_reshape": ["%o = ttensor_reshape %y, [32, 64] : !pto.memref<gm,32x64,f32>",
                       "%o = ttensor_reshape %x, [%n] : !pto.memref<gm,?,f32>"],
    "tensor_transpose": ["%o = ttensor_transpose %y {axes=(1, 0)} : !pto.memref<gm,32x64,f32,strided>",
                         "%o = ttensor_transpose %y {axes=(0, 1)} : !pto.memref<gm,64x32,f32>"],
    "tensor_step": ["%o = ttensor_step %y {steps=(1, 3)} : !pto.memref<gm,64x11,f32,strided>",
                    "%o = ttensor_step %x {steps=(2, 1)} : !pto.memref<gm,?x?,f32,inner>",
                    "%o = ttensor_step %y {steps=(1, 1)} : !pto.memref<gm,64x32,f32>"],
    "alloc": ["%o = talloc [%n, 8] {dtype=f32} : !pto.memref<gm,?x8,f32>",
              "%o = talloc [8], 0:i32 {dtype=i32, filled=true} : !pto.memref<gm,8,i32>"],
    "tile_slice": ["%o = ttile_slice %t[2, 0] [6, %n] : !pto.tile<6x?xf32>",
                   "%o = ttile_slice %t[%n, 0] [1, 8] {drop=(0,)} : !pto.tile<8xf32>"],
    "reshape": ["%o = treshape %t, [64] : !pto.tile<64xf32>", "%o = treshape %q, [%n, 2, 4] : !pto.tile<?x2x4xf32>",
                "%o = treshape %r, [1, 1, 8] {axes=(-1, 0, 1)} : !pto.tile<1x1x8xf32>",
                "%o = treshape %c, [8] {axes=(0,)} : !pto.tile<8xf32>"],
    "transpose": ["%o = ttranspose %w {axes=(1, 0)} : !pto.tile<4x8xf32>"],
    "concat": ["%o = tconcat %t, %w {axis=1} : !pto.tile<8x12xf32>", "%o = tconcat %q, %t {axis=0} : "
    "!pto.tile<?x8xf32>"],
    "stack": ["%o = tstack %l, %l {axis=1} : !pto.tile<8x2xf32>"],
    "broadcast_to": ["%o = tbroadcast_to %c, [3, 8, %n] : !pto.tile<3x8x?xf32>"],
    "flip": ["%o = tflip %t {axis=0} : !pto.tile<8x8xf32>"],
    "extract": ["%o = textract %t[%n, 7] : f32"],
    "valid": ["%o = tvalid %t {axis=0} : i64"],
    "extent": ["%o = textent %q {axis=0} : i64"],
    "gather": ["%o = tgather %t, %ti {axis=0} : !pto.tile<8x8xf32>"],
    "map": ["""%o, %o2 = tmap %t, %ti : !pto.tile<8x8xf32>, !pto.tile<8x8xi32> WITH (%p: f32, %p2: i32)
    %p3 = sadd %p, %f : f32
    YIELD %p3, %p2
  ENDWITH"""],
    "fold": ["""%o = tfold %t {axis=1, init=false, keepdims=true, n=1} : !pto.tile<8x1xf32> WITH (%p: f32, %s: f32)
    %p3 = sadd %p, %s : f32
    YIELD %p3
  ENDWITH""", """%o = tfold %l, 0.0:f32 {axis=0, init=true, n=1} : f32 WITH (%p: f32, %s: f32)
    YIELD %p
  ENDWITH"""],
    "assoc_scan": ["""%o = tassoc_scan %t {axis=0, reverse=true} : !pto.tile<8x8xf32> WITH (%p: f32, %s: f32)
    IF %b
      %p3 = smax %p, %s : f32
    ELSE
      %p3 = scopy %p : f32
    ENDIF
    YIELD %p3
  ENDWITH"""],
    "dot": [
        "%o = tdot %t, %w : !pto.tile<8x4xf32>",
        "%o = tdot %t, %w, %w : !pto.tile<8x4xf32>",
        "%o = tdot %th, %th : !pto.tile<8x8xf32>",
        "%o = tdot %th, %th {dtype=f16} : !pto.tile<8x8xf16>",
        "%o = tdot %th, %th, %th {dtype=f16} : !pto.tile<8x8xf16>",
        "%o = tdot %tu, %t8 : !pto.tile<8x8xi32>",
        "%o = tdot %q, %t : !pto.tile<?x8xf32>",
    ],
    "sort": ["%o = tsort %t {descending=true} : !pto.tile<8x8xf32>"],
    "argsort": ["%o = targsort %t {descending=false} : !pto.tile<8x8xi32>"],
    "topk": ["%o, %o2 = ttopk %t {k=3} : !pto.tile<8x3xf32>, !pto.tile<8x3xi32>"],
    "histogram": ["%o = thistogram %ti {bins=16} : !pto.tile<8x16xi32>"],
    "print": ['tprint %t, %n {fmt="t = {}, n = {}"}', 'sprint {fmt="done"}'],
    "assert": ['sassert %b {message="no"}', 'sassert %b {always=true, error="LaunchError", message="no"}'],
}  # fmt: skip

REJECTED |= {
    "not": [("%o = tnot %t : !pto.tile<8x8xf32>", "operands, not f32")],
    "fma": [("%o = tfma %ti, %ti, %ti : !pto.tile<8x8xi32>", "floating-point operands"),
            ("%o = tfma %t, %t : !pto.tile<8x8xf32>", "takes 3 operands, got 2")],
    "select": [("%o = tselect %t, %t, %t : !pto.tile<8x8xf32>", "the condition must be bool_"),
               ("%o = tselect %tb, %t, 1 : !pto.tile<8x8xf32>", _DTYPES)],
    "cast": [("%o = tcast %t : !pto.tile<8x8xf32>", "the attribute dtype is missing"),
             ('%o = tcast %t {dtype="f32"} : !pto.tile<8x8xf32>', "must be a dtype"),
             ("%o = tcast %t {dtype=f16} : !pto.tile<8x8xf32>", "gives")],
    "bitcast": [("%o = tbitcast %t {dtype=f64} : !pto.tile<8x8xf64>", "widths differ")],
    "copy": [("%o = tcopy %x : !pto.memref<gm,?x?,f32>", "not a tensor"),
             ("%o = tcopy %q : !pto.tile<8x8xf32>", "gives")],
    "gelu": [('%o = tgelu %t {approximate="fast"} : !pto.tile<8x8xf32>', "approximate is 'fast'")],
    "full": [("%o = tfull %t, [8] : !pto.tile<8xf32>", "the value must be a scalar"),
             ("%o = tfull %f, [-1] : !pto.tile<8xf32>", "the extent -1 is negative"),
             ("%o = tfull %f, [%i] : !pto.tile<?xf32>", "the extent must be i64, not i32")],
    "arange": [("%o = tarange 0:i32, 1, [4] : !pto.tile<4xi32>", "the step must be i32, not i64"),
               ("%o = tarange %b, %b, [4] : !pto.tile<4xbool_>", "numeric operands")],
    "load": [("%o = tload %x[-1, 0] [8, 8] : !pto.tile<8x8xf32>", "the offset -1 is negative"),
             ("%o = tload %x[0] [8] : !pto.tile<8xf32>", "takes 4 offsets and extents here, got 2"),
             ("%o = tload %t[0, 0] [8, 8] : !pto.tile<8x8xf32>", "the source must be a tensor, not a tile"),
             ("%o = tload %x[0, 0] [8, 8], 0 {pad=true} : !pto.tile<8x8xf32>", "the pad value must be f32, not i64"),
             ("%o = tload %z {pad=false} : !pto.tile<1xf32>", "at least 1 axis"),
             ("%o = tload %x[0, 0] [8, 8] : !pto.tile<8x8xf64>", "gives")],
    "store": [("tstore %t, %v[0]", "takes 1 axes of the tile here, got 2"),
              ("tstore %t, %x[0]", "takes 2 offsets here, got 1"),
              ("tstore %ti, %x[0, 0]", "a value of i32 into a tensor of f32"),
              ("sstore %f, %x[0, 0]", "the value must be a tile, not a scalar")],
    "getelem": [("%o = sgetelem %x[0] : f32", "takes 2 indices here, got 1"),
                ("%o = sgetelem %y[64, 0] : f32", "index 64 is outside axis 0"),
                ("%o = sgetelem %y[0, -1] : f32", "index -1 is outside axis 1"),
                ("%o = sgetelem %y[%i, 0] : f32", "the index must be i64, not i32")],
    "setelem": [("ssetelem %d, %x[0, 0]", "a value of f64 into a tensor of f32")],
    "take": [("%o = ttake %x, %t {axis=0} : !pto.tile<8x8x?xf32>", "the index must be i32 or i64, not f32"),
             ("%o = ttake %x, %li, [0] {axis=0} : !pto.tile<8x?xf32>", "takes 2 offsets here, got 1"),
             ("%o = ttake %x, %li {axis=2} : !pto.tile<8x?xf32>", "axis 2 does not exist")],
    "put": [("tput %t, %ti, %x {axis=2}", "axis 2 does not exist"),
            ("tput %w, %ti, %x {axis=1}", "the extents of tile and index along axis 1 are 4 and 8"),
            ("tput %l, %li, %x {axis=1}", "takes 2 axes of the index here, got 1")],
    "dim": [("%o = tdim %t {axis=0} : i64", "must be a tensor, not a tile"),
            ("%o = sdim %x {axis=2} : i64", "axis 2 does not exist, the rank is 2")],
    "view": [("%o = tview %x[%n, 0] [4, 8] {drop=(0,)} : !pto.memref<gm,8,f32>", "cannot be dropped"),
             ("%o = tview %x[%n, 0] [1, 1] {drop=(0, 1)} : !pto.memref<gm,f32>", "at least 1 axis"),
             ("%o = tview %x[0] [8] : !pto.memref<gm,8,f32>", "takes 4 offsets and extents"),
             ("%o = tview %x[0, 0] [4, 8] : !pto.memref<gm,?x?,f32>", "gives")],
    "tensor_reshape": [("%o = ttensor_reshape %st, [%n] : !pto.memref<gm,?,f32>", "cannot be reshaped without a copy"),
                       ("%o = ttensor_reshape %y, [7] : !pto.memref<gm,7,f32>", "has 2048 elements, (7,) has 7")],
    "tensor_transpose": [("%o = ttensor_transpose %x {axes=(0, 0)} : !pto.memref<gm,?x?,f32>", "not a permutation")],
    "tensor_step": [("%o = ttensor_step %x {steps=(0, 1)} : !pto.memref<gm,?x?,f32>", "an int of at least 1"),
                    ("%o = ttensor_step %x {steps=(2,)} : !pto.memref<gm,?x?,f32>", "takes 2 steps"),
                    ("%o = ttensor_step %x {steps=2} : !pto.memref<gm,?x?,f32>", "must be a tuple")],
    "alloc": [("%o = talloc [8], %f {dtype=i32, filled=true} : !pto.memref<gm,8,i32>", "the value must be i32, not "
    "f32"),
              ("%o = talloc {dtype=i32} : !pto.memref<gm,i32>", "takes at least 1 operand, got 0")],
    "tile_slice": [("%o = ttile_slice %t[4, 0] [6, 8] : !pto.tile<6x8xf32>", "4:10 is outside axis 0"),
                   ("%o = ttile_slice %t[0, 0] [8] : !pto.tile<8xf32>", "takes 4 starts and extents")],
    "reshape": [("%o = treshape %t, [63] : !pto.tile<63xf32>", "(8, 8) has 64 elements, (63,) has 63"),
                ("%o = treshape %t : f32", "takes at least 2 operands, got 1"),
                ("%o = treshape %r, [1, 8] {axes=(1, 0)} : !pto.tile<1x8xf32>", "axes=(1, 0) does not make (1, 8)"),
                ("%o = treshape %r, [1, 8] {axes=(-1,)} : !pto.tile<1x8xf32>", "does not make"),
                ("%o = treshape %t, [8, 8] {axes=(0, -1)} : !pto.tile<8x8xf32>", "does not make")],
    "transpose": [("%o = ttranspose %t {axes=(1,)} : !pto.tile<8x8xf32>", "not a permutation of 2 axes")],
    "concat": [("%o = tconcat %t, %w {axis=0} : !pto.tile<16x8xf32>", "extents along axis 1 are 8 and 4"),
               ("%o = tconcat %t, %ti {axis=0} : !pto.tile<16x8xf32>", _DTYPES),
               ("%o = tconcat %t, %l {axis=0} : !pto.tile<16x8xf32>", "axes of every tile")],
    "stack": [("%o = tstack %t, %w {axis=0} : !pto.tile<2x8x8xf32>", "extents along axis 1 are 8 and 4"),
              ("%o = tstack %l, %l {axis=2} : !pto.tile<8x2xf32>", "axis 2 does not exist")],
    "broadcast_to": [("%o = tbroadcast_to %w, [8, 8] : !pto.tile<8x8xf32>", "axis 1 are 4 and 8"),
                     ("%o = tbroadcast_to %w, [4] : !pto.tile<4xf32>", "takes 2 extents here, got 1")],
    "flip": [("%o = tflip %t {axis=true} : !pto.tile<8x8xf32>", "must be an int, not True")],
    "extract": [("%o = textract %t[0, 8] : f32", "index 8 is outside axis 1"), ("%o = textract %t : f32", "2 indices")],
    "valid": [("%o = svalid %x {axis=0} : i64", "must be a tile, not a tensor"),
              ("%o = tvalid %t {axis=2} : i64", "axis 2 does not exist")],
    "extent": [("%o = sextent %f {axis=0} : i64", "must be a tile, not a scalar")],
    "gather": [("%o = tgather %t, %li {axis=0} : !pto.tile<8xf32>", "takes 2 axes of the index here, got 1"),
               ("%o = tgather %w, %ti {axis=0} : !pto.tile<8x8xf32>", "along axis 1 are 4 and 8")],
    "map": [("%o = tmap %t : !pto.tile<8x8xf32> WITH (%p: i32)\n YIELD %p\n ENDWITH", "is a scalar of i32, it is "
    "given"),
            ("%o = tmap %t : !pto.tile<8x8xf32> WITH (%p: f32, %s: f32)\n YIELD %p\n ENDWITH", "takes 2 values"),
            ("tmap %t WITH (%p: f32)\n YIELD\n ENDWITH", "returns nothing"),
            ("%o = tmap %t : !pto.tile<8x8xf32>", "takes 1 function, got 0")],
    "fold": [("%o = tfold %t {axis=0, n=1} : !pto.tile<8xf32> WITH (%p: f32, %s: f32)\n YIELD %p, %s\n ENDWITH",
    "returns"),
             ("%o = tfold %t {axis=0, n=2} : !pto.tile<8xf32> WITH (%p: f32, %s: f32)\n YIELD %p\n ENDWITH",
              "of 2 tiles takes 2 operands here, got 1"),
             ("%o = tfold %t, %n {axis=0, init=true, n=1} : !pto.tile<8xf32> WITH (%p: f32, %s: f32)\n YIELD %p\n "
             "ENDWITH",
              "the initial value must be f32, not i64")],
    "assoc_scan": [("%o = tassoc_scan %t {axis=0} : !pto.tile<8x8xf32> WITH (%p: f32, %s: f32)\n YIELD %n\n ENDWITH",
                    "returns (i64), the tiles hold (f32)"),
                   ("%o, %o2 = tassoc_scan %t, %w {axis=0} : !pto.tile<8x8xf32>, !pto.tile<8x8xf32> "
                    "WITH (%p: f32, %p2: f32, %s: f32, %s2: f32)\n YIELD %p, %s\n ENDWITH", "axis 1 are 8 and 4")],
    "dot": [("%o = tdot %w, %t : !pto.tile<8x8xf32>", "the contracted extents are 4 and 8"),
            ("%o = tdot %t, %th : !pto.tile<8x8xf32>", _DTYPES),
            ("%o = tdot %t, %l : !pto.tile<8xf32>", "takes 2 axes of the right operand"),
            ("%o = tdot %l, %t : !pto.tile<8xf32>", "takes at least 2 axes"),
            ("%o = tdot %th, %th, %th : !pto.tile<8x8xf32>", "a value of f16 into a product of f32"),
            ("%o = tdot %t, %w, %t : !pto.tile<8x8xf32>", "along axis 1 are 8 and 4"),
            ("%o = tdot %t, %t {dtype=f16} : !pto.tile<8x8xf16>", "cannot give f16"),
            ("%o = tdot %tb, %tb : !pto.tile<8x8xbool_>", "numeric operands")],
    "sort": [("%o = tsort %t {descending=0} : !pto.tile<8x8xf32>", "must be a bool")],
    "argsort": [("%o = targsort %t : !pto.tile<8x8xf32>", "gives")],
    "topk": [("%o, %o2 = ttopk %t {k=9} : !pto.tile<8x9xf32>, !pto.tile<8x9xi32>", "k = 9 of 8 elements"),
             ("%o, %o2 = ttopk %t {k=0} : !pto.tile<8x0xf32>, !pto.tile<8x0xi32>", "at least 1"),
             ("%o = ttopk %t {k=3} : !pto.tile<8x3xf32>", "gives")],
    "histogram": [("%o = thistogram %t {bins=16} : !pto.tile<16xi32>", "integer operands, not f32")],
    "print": [('sprint %x {fmt="x"}', "scalars and tiles, not a tensor"), ("sprint %n {fmt=3}", "fmt must be a str")],
    "assert": [('sassert %i {message="no"}', "the condition must be bool_, not i32"), ("sassert %b {message=1}",
    "str")],
}  # fmt: skip


def program(line: str) -> str:
    """The text of a function that holds one line."""
    return f"func @f({PARAMS}) {{\n{PRELUDE}  {line}\n  return\n}}\n"


def parsed(line: str) -> tuple[tuple[Stmt, ...], Op]:
    """The prelude and the operation of a line, without checking its types."""
    body = parse(program(line), ops=NAMES).funcs[0].body
    op = body[-2]
    assert isinstance(op, Op)
    return body[:-2], op
