# SPDX-License-Identifier: MIT
"""Every operation of the table on the CPU target, over dtypes, shapes and partial tiles, against the interpreter."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from pto_jit.dtypes import BY_NAME
from tests.semantic.op_cases import ACCEPTED
from tests.targets.cpu_programs import array, check

PARAMS = (
    "%f: f32, %d: f64, %h: f16, %i: i32, %n: i64, %k: i64, %b: bool_, %u: u8, "
    "%x: !pto.memref<gm,?x?,f32>, %y: !pto.memref<gm,64x32,f32>, %v: !pto.memref<gm,?,f32>, "
    "%xi: !pto.memref<gm,?x?,i32>, %st: !pto.memref<gm,?x?,f32,strided>, %in: !pto.memref<gm,?x?,f32,inner>"
)
PRELUDE = """\
  %t = tload %x[0, 0] [8, 8] : !pto.tile<8x8xf32>
  %t2 = tload %y[1, 1] [8, 8] : !pto.tile<8x8xf32>
  %w = tload %y[3, 4] [8, 4] : !pto.tile<8x4xf32>
  %c = tload %y[3, 4] [8, 1] : !pto.tile<8x1xf32>
  %r = tload %y[3, 4] [1, 8] : !pto.tile<1x8xf32>
  %l = tload %v[2] [8] : !pto.tile<8xf32>
  %q = tload %x[0, 0] [%n, 8] : !pto.tile<?x8xf32>
  %tb = tgt %t, 0.0:f32 : !pto.tile<8x8xbool_>
  %ti = tload %xi[0, 0] [8, 8] : !pto.tile<8x8xi32>
  %li = tarange 0:i32, 1:i32, [8] : !pto.tile<8xi32>
  %tu = tcast %ti {dtype=u8} : !pto.tile<8x8xu8>
  %t8 = tcast %ti {dtype=i8} : !pto.tile<8x8xi8>
  %th = tcast %t {dtype=f16} : !pto.tile<8x8xf16>
"""
LINES = [line for name, lines in ACCEPTED.items() for line in lines if "%z" not in line and name != "alloc"]
_TYPE = r"!pto\.(?:tile|memref)<[^>]*>|[a-z]+[0-9]*_?"


def outputs(line: str) -> list[tuple[str, str]]:
    """The results of a line with their types."""
    if not line.startswith("%"):
        return []
    first = line.split("\n")[0]
    names = [n.strip() for n in first.split(" = ")[0].split(",")]
    typed = re.search(rf"(?: : |-> )((?:{_TYPE})(?:, (?:{_TYPE}))*)(?: WITH|$)", first)
    assert typed is not None, line
    return list(zip(names, re.findall(_TYPE, typed.group(1)), strict=True))


def program(line: str) -> tuple[str, list[np.ndarray]]:
    """A function that does the line and stores its results, and the arrays for these."""
    params, after, returned, arrays = [PARAMS], [], [], []
    for name, kind in outputs(line):
        shape, _, dtype = (kind[kind.index("<") + 1 : -1] if "<" in kind else kind).rpartition("x")
        if kind.startswith("!pto.tile"):
            rank = shape.count("x") + 1
            params.append(f"{name}out: !pto.memref<gm,{'x'.join('?' * rank)},{dtype}>")
            after.append(f"  tstore {name}, {name}out[{', '.join('0' * rank)}]")
            arrays.append(np.zeros((40,) * rank, BY_NAME[dtype].numpy))
        elif kind.startswith("!pto.memref"):
            _, extents, dtype = kind[len("!pto.memref<") : -1].split(",")[:3]
            after.append(f"  {name}e = sgetelem {name}[{', '.join('0' * (extents.count('x') + 1))}] : {dtype}")
            returned.append((f"{name}e", dtype))
        else:
            returned.append((name, kind))
    arrow = f" -> ({', '.join(t for _, t in returned)})" if returned else ""
    lines = [f"func @f({', '.join(params)}){arrow} {{", PRELUDE.rstrip(), f"  {line}", *after,
             f"  return {', '.join(n for n, _ in returned)}".rstrip(), "}\n"]  # fmt: skip
    return "\n".join(lines), arrays


def arguments(line: str, rows: int) -> list[Any]:
    positive = re.search(r"[ts](log|log2|log1p|sqrt|rsqrt|pow) ", line) is not None
    x, y, v = (array("f32", shape, k) for k, shape in enumerate([(rows, 16), (64, 32), (40,)]))
    if positive:
        x, y = abs(x), abs(y)
    if "tensor_reshape %x" in line:
        x = array("f32", (2, 4))
    strided, inner = array("f32", (40, 40), 3)[::2, ::3], array("f32", (40, 40), 4)[:, 3:30]
    return [1.5, 2.5, 0.5, 7, 8, 6, True, 200, x, y, v, array("i32", (20, 16), 5, 0, 8), strided, inner]


@pytest.mark.parametrize("line", LINES, ids=lambda line: re.sub(r"\s+", " ", line.split("\n")[0])[:60])
def test_an_operation_agrees_with_the_interpreter(line: str) -> None:
    text, arrays = program(line)
    check(text, *arguments(line, 20), *arrays, scale=4)
    if "%q" in line and "reshape" not in line and "dot" not in line:
        check(text, *arguments(line, 5), *arrays, scale=4)  # a partial tile, or an error on both sides


ELEMENTWISE = {
    "i": "add sub mul floordiv mod pow max min and or xor shl shr fmod eq ne lt le gt ge".split(),
    "f": "add sub mul div floordiv mod fmod pow max min atan2 eq ne lt le gt ge".split(),
    "b": "and or xor eq ne".split(),
}
UNARY = {
    "i": "neg abs sign square relu not".split(),
    "f": "neg abs sign square relu exp exp2 expm1 log log2 log1p sqrt rsqrt reciprocal sin cos tan tanh erf sigmoid "
         "silu gelu floor ceil round trunc isnan isinf isfinite".split(),
    "b": ["not"],
}  # fmt: skip
DTYPES = [d for d in BY_NAME if d != "bool_"]
COMPARE = {"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite"}


def elementwise(ops: list[str], dtype: str, binary: bool) -> str:
    """All of the operations in one group, each result stored to a tensor of its own."""
    outs = ", ".join(f"%o{k}: !pto.memref<gm,?x?,{'bool_' if op in COMPARE else dtype}>" for k, op in enumerate(ops))
    body = "\n".join(
        f"  %r{k} = t{op} %a{', %b' if binary else ''} : !pto.tile<?x?x{'bool_' if op in COMPARE else dtype}>"
        for k, op in enumerate(ops)
    )
    stores = "\n".join(f"  tstore %r{k}, %o{k}[0, 0]" for k in range(len(ops)))
    return f"""
func @f(%x: !pto.memref<gm,?x?,{dtype}>, %y: !pto.memref<gm,?x?,{dtype}>, {outs}) {{
  %m = sdim %x {{axis=0}} : i64
  %n = sdim %x {{axis=1}} : i64
  %a = tload %x[0, 0] [%m, %n] : !pto.tile<?x?x{dtype}>
  %b = tload %y[0, 0] [%m, %n] : !pto.tile<?x?x{dtype}>
{body}
{stores}
  return
}}
"""


def special(dtype: str, seed: int) -> np.ndarray:
    """Numbers with the awkward ones among them."""
    kind = BY_NAME[dtype]
    values = array(dtype, (5, 37), seed, -9, 9)
    flat = values.reshape(-1)
    if kind.kind == "f":
        awkward = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 2.0, 0.5]
        flat[: len(awkward)] = np.array(awkward).astype(values.dtype)
        if seed:
            flat[: len(awkward)] = flat[: len(awkward)][::-1].copy()
    elif kind.kind in "iu":
        info = np.iinfo(values.dtype)
        flat[:6] = [0, info.max, info.min, 1, info.max, info.min]
        if seed:
            flat[:6] = [0, info.max, info.max if info.min == 0 else -1 % 1 - 1, 0, 3, info.min]
    return values


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "i8", "i32", "i64", "u8", "u16", "u64", "bool_"])
@pytest.mark.parametrize("binary", [True, False])
def test_elementwise_operations_over_dtypes(dtype: str, binary: bool) -> None:
    kind = BY_NAME[dtype].kind
    table = ELEMENTWISE if binary else UNARY
    ops = table["i" if kind in "iu" else kind]
    for start in range(0, len(ops), 6):
        some = ops[start : start + 6]
        outs = [np.zeros((5, 37), np.bool_ if op in COMPARE else BY_NAME[dtype].numpy) for op in some]
        with np.errstate(all="ignore"):
            check(elementwise(some, dtype, binary), special(dtype, 0), special(dtype, 1), *outs, scale=8)


@pytest.mark.parametrize("source", BY_NAME)
def test_casts_from_a_dtype_to_every_other(source: str) -> None:
    targets = list(BY_NAME)
    outs = ", ".join(f"%o{k}: !pto.memref<gm,?x?,{t}>" for k, t in enumerate(targets))
    body = "\n".join(f"  %r{k} = tcast %a {{dtype={t}}} : !pto.tile<5x37x{t}>\n  tstore %r{k}, %o{k}[0, 0]"
                     for k, t in enumerate(targets) if t != source)  # fmt: skip
    text = f"""
func @f(%x: !pto.memref<gm,?x?,{source}>, {outs}) {{
  %a = tload %x[0, 0] [5, 37] : !pto.tile<5x37x{source}>
{body}
  return
}}
"""
    x = special(source, 0)
    if BY_NAME[source].kind == "f":
        x.reshape(-1)[9:20] = np.array([1e3, -1e3, 7e4, 3e9, -3e9, 2.5, 3.5, -2.5, 255.9, 6e4, 300]).astype(x.dtype)
    with np.errstate(all="ignore"):
        check(text, x, *(np.zeros((5, 37), BY_NAME[t].numpy) for t in targets))


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["f16", "f32", "f64", "i8", "i32", "u64"])
def test_reductions_along_the_last_axis_of_every_length(op: str, dtype: str) -> None:
    result = "i32" if op.startswith("arg") else dtype
    text = f"""
func @f(%x: !pto.memref<gm,?x?,{dtype}>, %o: !pto.memref<gm,?,{result}>) {{
  %m = sdim %x {{axis=0}} : i64
  %n = sdim %x {{axis=1}} : i64
  %a = tload %x[0, 0] [%m, %n] : !pto.tile<?x?x{dtype}>
  %r = t{op} %a {{axes=(1,), keepdims=false}} : !pto.tile<?x{result}>
  tstore %r, %o[0]
  return
}}
"""
    for n in [1, 2, 15, 16, 17, 63, 64, 65, 130, 300]:
        x = array(dtype, (3, n), n)
        if op == "prod" and BY_NAME[dtype].kind == "f":
            x = (1 + x / 64).astype(x.dtype)
        with np.errstate(all="ignore"):
            check(text, x, np.zeros(3, BY_NAME[result].numpy), scale=40)
        if BY_NAME[dtype].kind == "f" and op != "prod":
            x[1, n // 2] = np.nan
            check(text, x, np.zeros(3, BY_NAME[result].numpy), scale=40)
