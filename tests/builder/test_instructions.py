# SPDX-License-Identifier: MIT
"""Every instruction against NumPy: interpreted, compiled, and after a trip through text."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pto_jit import PTOFunctionBuilder, PTOModule
from pto_jit.ir.isa import INSTRUCTIONS, ROWS
from tests.builder.harness import GLOBAL, around, element, floats, integers, positives, run
from tests.targets.cpu_programs import agree

erf = np.vectorize(math.erf, otypes=[np.float64])

Step = Callable[[PTOFunctionBuilder], object]


@dataclass(frozen=True)
class Case:
    """`step` on tiles a, b, c... gives tiles d0, d1... equal to `expected(*inputs)`."""

    name: str
    inputs: tuple[np.ndarray, ...]
    step: Step
    expected: Callable[..., Any]
    scale: float = 1.0


F, G, P = floats(8, 16), floats(8, 16, seed=1), positives(8, 16)
N, J = integers(8, 16), integers(8, 16, seed=1, low=1, high=9)
COL, ROW = positives(8, 1, seed=2), positives(1, 16, seed=3)
MASK = integers(8, 16, seed=4, low=0, high=2)
A, B, C = floats(8, 12, seed=5), floats(12, 16, seed=6), floats(8, 16, seed=7)
ONE = floats(1, 12, seed=8)
PLACES = np.random.default_rng(9).permutation(128).reshape(8, 16).astype(np.int32)


def binary(name: str, fn: Callable[..., Any], *inputs: np.ndarray) -> list[Case]:
    """The instruction of two tiles and the one of a tile and a scalar."""
    scalar = inputs[1].reshape(-1)[0].item()
    short = f"{name.removesuffix('_')}s"
    return [
        Case(name, inputs, lambda b: getattr(b, name)("d0", "a", "b"), fn),
        Case(short, inputs[:1], lambda b: getattr(b, short)("d0", "a", scalar),
             lambda x: fn(x, np.full_like(x, scalar))),
    ]  # fmt: skip


def unary(name: str, fn: Callable[[np.ndarray], Any], x: np.ndarray = F, scale: float = 1.0) -> Case:
    return Case(name, (x,), lambda b: getattr(b, name)("d0", "a"), lambda a: fn(a).astype(a.dtype), scale)


def truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.trunc(a / b).astype(a.dtype)


def vector(op: str, x: np.ndarray, v: np.ndarray) -> np.ndarray:
    return {"add": x + v, "sub": x - v, "mul": x * v, "div": x / v, "max": np.maximum(x, v), "min": np.minimum(x, v),
            "expdif": np.exp(x - v)}[op].astype(x.dtype)  # fmt: skip


CASES: list[Case] = [
    *binary("add", np.add, F, G), *binary("add", np.add, N, J), *binary("sub", np.subtract, F, G),
    *binary("mul", np.multiply, F, G), *binary("div", np.divide, F, P), *binary("div", truncated, N, J),
    *binary("max", np.maximum, F, G), *binary("min", np.minimum, F, G), *binary("rem", np.mod, F, P),
    *binary("rem", np.mod, N, J), *binary("fmod", np.fmod, F, P), *binary("fmod", np.fmod, N, J),
    *binary("pow", np.power, P, G), *binary("and_", np.bitwise_and, N, J), *binary("or_", np.bitwise_or, N, J),
    *binary("xor", np.bitwise_xor, N, J), *binary("shl", np.left_shift, N, J), *binary("shr", np.right_shift, N, J),
    Case("divs", (P,), lambda b: b.divs("d0", 2.0, "a"), lambda a: (2 / a).astype(a.dtype)),
    Case("subs", (F,), lambda b: b.subs("d0", 1, "a"), lambda a: 1 - a),
    unary("abs", np.abs), unary("abs", np.abs, N), unary("neg", np.negative), unary("neg", np.negative, N),
    unary("not_", np.invert, N), unary("sign", np.sign), unary("square", np.square),
    unary("exp", np.exp), unary("exp2", np.exp2), unary("expm1", np.expm1), unary("log", np.log, P),
    unary("log2", np.log2, P), unary("log1p", np.log1p, P), unary("sqrt", np.sqrt, P),
    unary("rsqrt", lambda x: 1 / np.sqrt(x), P), unary("recip", lambda x: 1 / x, P), unary("sin", np.sin),
    unary("cos", np.cos), unary("tan", np.tan), unary("tanh", np.tanh), unary("erf", erf),
    unary("relu", lambda x: np.maximum(x, 0)), unary("relu", lambda x: np.maximum(x, 0), N),
    unary("sigmoid", lambda x: 1 / (1 + np.exp(-x))), unary("silu", lambda x: x / (1 + np.exp(-x))),
    unary("floor", np.floor), unary("ceil", np.ceil), unary("round", np.round, 4 * F), unary("trunc", np.trunc, 4 * F),
    unary("gelu", lambda x: x * (1 + erf(x / np.sqrt(2))) / 2),
    Case("gelu", (F,), lambda b: b.gelu("d0", "a", "tanh"),
         lambda x: x * (0.5 + 0.5 * np.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3)))),
    Case("lrelu", (F,), lambda b: b.lrelu("d0", "a", 0.1), lambda x: np.where(x > 0, x, x * np.float32(0.1))),
    Case("prelu", (F, G), lambda b: b.prelu("d0", "a", "b"), lambda x, s: np.where(x > 0, x, x * s)),
    Case("addc", (F, G, P), lambda b: b.addc("d0", "a", "b", "c"), lambda a, b, c: a + b + c),
    Case("subc", (F, G, P), lambda b: b.subc("d0", "a", "b", "c"), lambda a, b, c: a - b + c),
    Case("addsc", (F, G), lambda b: b.addsc("d0", "a", 2.0, "b"), lambda a, b: a + 2 + b),
    Case("subsc", (F, G), lambda b: b.subsc("d0", "a", 2.0, "b"), lambda a, b: a - 2 + b),
    Case("axpy", (F, G), lambda b: b.mov("d0", "b").axpy("d0", "a", 3.0), lambda x, y: y + 3 * x),
    Case("axpy", (N, J), lambda b: b.mov("d0", "b").axpy("d0", "a", 3), lambda x, y: y + 3 * x),
    Case("fusedmuladd", (F, G, P), lambda b: b.mov("d0", "c").fusedmuladd("d0", "a", "b"), lambda a, b, c: c * a + b),
    Case("fusedmuladdrelu", (F, G, P), lambda b: b.mov("d0", "c").fusedmuladdrelu("d0", "a", "b"),
         lambda a, b, c: np.maximum(c * a + b, 0)),
    Case("muladddst", (F, G, P), lambda b: b.mov("d0", "c").muladddst("d0", "a", "b"), lambda a, b, c: a * b + c),
    Case("addrelu", (F, G), lambda b: b.addrelu("d0", "a", "b"), lambda a, b: np.maximum(a + b, 0)),
    Case("subrelu", (F, G), lambda b: b.subrelu("d0", "a", "b"), lambda a, b: np.maximum(a - b, 0)),
    Case("addreluconv", (F, G), lambda b: b.addreluconv("d0", "a", "b"),
         lambda a, b: np.maximum(a + b, 0).astype(np.float16)),
    Case("subreluconv", (4 * F, G), lambda b: b.subreluconv("d0", "a", "b"),
         lambda a, b: np.round(np.maximum(a - b, 0)).astype(np.int8)),
    *(Case("cmp", (N, J), lambda b, mode=mode: b.cmp("d0", "a", "b", mode), lambda a, b, fn=fn: fn(a, b))
      for mode, fn in (("eq", np.equal), ("ne", np.not_equal), ("lt", np.less), ("LE", np.less_equal),
                       ("gt", np.greater), ("ge", np.greater_equal))),
    Case("cmp", (F, G), lambda b: b.cmp("d0", "a", "b", "lt"), lambda a, b: (a < b).astype(np.uint8)),
    Case("cmps", (F,), lambda b: b.cmps("d0", "a", 0.25, "gt"), lambda a: a > 0.25),
    Case("sel", (MASK, F, G), lambda b: b.sel("d0", "a", "b", "c"), lambda m, a, b: np.where(m != 0, a, b)),
    Case("sel", (F, G), lambda b: b.cmp("m", "a", "b", "lt").sel("d0", "m", "a", "b"), np.minimum),
    Case("sels", (MASK, F), lambda b: b.sels("d0", "a", "b", -1.0), lambda m, a: np.where(m != 0, a, np.float32(-1))),
    *(Case("cvt", (8 * F,), lambda b, mode=mode: b.cvt("d0", "a", mode), lambda x, fn=fn: fn(x).astype(np.int32))
      for mode, fn in (("rint", np.round), ("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc),
                       ("round", lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5)))),
    Case("cvt", (np.array([[0.5, 1.5, 2.5, -0.5]], np.float32),), lambda b: b.cvt("d0", "a", "round"),
         lambda x: np.array([[1, 2, 3, -1]], np.int32)),
    Case("cvt", (N,), lambda b: b.cvt("d0", "a"), lambda x: x.astype(np.float16)),
    Case("cvt", (F,), lambda b: b.cvt("d0", "a"), lambda x: x.astype(ml_dtypes.bfloat16)),
    Case("quant", (F,), lambda b: b.quant("d0", "a", 10.0, 3), lambda x: np.round(x * 10 + 3).astype(np.int8)),
    Case("quant", (F, COL), lambda b: b.quant("d0", "a", "b"), lambda x, s: np.round(x * s).astype(np.int8)),
    Case("dequant", (N.astype(np.int8),), lambda b: b.dequant("d0", "a", 0.5, 3),
         lambda x: (x.astype(np.float32) - 3) * np.float32(0.5)),
    # reductions and broadcasts
    *(Case(f"{prefix}{name}", (P,), lambda b, n=f"{prefix}{name}": getattr(b, n)("d0", "a"),
           lambda x, fn=fn, axis=axis: fn(x, axis=axis, keepdims=True), 4.0)
      for prefix, axis in (("row", 1), ("col", 0))
      for name, fn in (("sum", np.sum), ("max", np.max), ("min", np.min), ("prod", np.prod))),
    *(Case(f"{prefix}{name}", (F,), lambda b, n=f"{prefix}{name}": getattr(b, n)("d0", "a"),
           lambda x, fn=fn, axis=axis, dtype=dtype: fn(x, axis=axis, keepdims=True).astype(dtype))
      for prefix, axis, dtype in (("row", 1, np.int32), ("col", 0, np.uint32))
      for name, fn in (("argmax", np.argmax), ("argmin", np.argmin))),
    Case("pairreducesum", (F,), lambda b: b.pairreducesum("d0", "a"), lambda x: x[:, ::2] + x[:, 1::2]),
    Case("expands", (F,), lambda b: b.expands("d0", 2.5), lambda x: np.full_like(x, 2.5)),
    Case("expands", (F,), lambda b: b.getval("s", "a", 1, 2).expands("d0", "s"), lambda x: np.full_like(x, x[1, 2])),
    Case("rowexpand", (COL,), lambda b: b.rowexpand("d0", "a"), lambda v: np.repeat(v, 16, 1)),
    Case("rowexpand", (F,), lambda b: b.rowexpand("d0", "a"), lambda v: np.repeat(v[:, :1], 16, 1)),
    Case("colexpand", (ROW,), lambda b: b.colexpand("d0", "a"), lambda v: np.repeat(v, 8, 0)),
    Case("colexpand", (F,), lambda b: b.colexpand("d0", "a"), lambda v: np.repeat(v[:1], 8, 0)),
    *(Case(f"{prefix}expand{op}", (F, v), lambda b, n=f"{prefix}expand{op}": getattr(b, n)("d0", "a", "b"),
           lambda x, v, op=op: vector(op, x, v))
      for prefix, v in (("row", COL), ("col", ROW)) for op in ("add", "sub", "mul", "div", "max", "min", "expdif")),
    # matrix products
    Case("matmul", (A, B), lambda b: b.matmul("d0", "a", "b"), np.matmul, 8.0),
    Case("matmul", (A.astype(np.float16), B.astype(np.float16)), lambda b: b.matmul("d0", "a", "b"),
         lambda a, b: a.astype(np.float32) @ b.astype(np.float32), 8.0),
    Case("matmul", (A.astype(np.float16), B.astype(np.float16)), lambda b: b.matmul("d0", "a", "b"),
         lambda a, b: (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16), 4.0),
    Case("matmul_acc", (A, B, C), lambda b: b.mov("d0", "c").matmul_acc("d0", "a", "b"), lambda a, b, c: c + a @ b, 8.0),
    Case("matmul_acc", (A, B, C), lambda b: b.matmul_acc("d0", "c", "a", "b"), lambda a, b, c: c + a @ b, 8.0),
    Case("matmul_bias", (A, B, ROW), lambda b: b.matmul_bias("d0", "a", "b", "c"), lambda a, b, c: a @ b + c, 8.0),
    Case("gemv", (ONE, B), lambda b: b.gemv("d0", "a", "b"), np.matmul, 8.0),
    Case("gemv_acc", (ONE, B, ROW), lambda b: b.mov("d0", "c").gemv_acc("d0", "a", "b"), lambda a, b, c: c + a @ b, 8.0),
    Case("gemv_bias", (ONE, B, ROW), lambda b: b.gemv_bias("d0", "a", "b", "c"), lambda a, b, c: a @ b + c, 8.0),
    # layout
    Case("mov", (F,), lambda b: b.mov("d0", "a"), lambda x: x),
    Case("mov", (F,), lambda b: b.mov("d0", "a"), lambda x: x.astype(np.float16)),
    Case("trans", (F,), lambda b: b.trans("d0", "a"), np.transpose),
    Case("reshape", (F,), lambda b: b.reshape("d0", "a"), lambda x: x.reshape(4, 32)),
    Case("extract", (F,), lambda b: b.extract("d0", "a", 2, 3), lambda x: x[2:5, 3:8]),
    Case("subview", (F,), lambda b: b.subview("d0", "a", 0, 8), lambda x: x[:4, 8:16]),
    *(Case("insert", (F, part), lambda b, r=r, c=c: b.mov("d0", "a").insert("d0", "b", r, c),
           lambda x, p, r=r, c=c: np.block([[x[:r]], [x[r : r + p.shape[0], :c], p, x[r : r + p.shape[0], c + p.shape[1] :]],
                                            [x[r + p.shape[0] :]]]))
      for part, r, c in ((floats(2, 3), 1, 4), (floats(8, 16, seed=3), 0, 0), (floats(8, 4), 0, 12), (floats(3, 16), 5, 0))),
    Case("concat", (F, G), lambda b: b.concat("d0", "a", "b"), lambda a, b: np.concatenate([a, b], 1)),
    Case("interleave", (F, G), lambda b: b.interleave("d0", "d1", "a", "b"),
         lambda a, b: tuple(np.split(np.stack([a, b], 2).reshape(8, 32), 2, 1))),
    Case("deinterleave", (F, G), lambda b: b.deinterleave("d0", "d1", "a", "b"),
         lambda a, b: (np.concatenate([a, b], 1)[:, ::2], np.concatenate([a, b], 1)[:, 1::2])),
    Case("interleave", (F, G), lambda b: b.interleave("a", "b", "a", "b").deinterleave("d0", "d1", "a", "b"),
         lambda a, b: (a, b)),
    # generated, indirect, ordered
    Case("ci", (F,), lambda b: b.ci("d0", 5), lambda x: np.tile(np.arange(5, 21, dtype=np.int32), (8, 1))),
    Case("ci", (F,), lambda b: b.ci("d0", 20, 1), lambda x: np.arange(20, 4, -1, dtype=np.float32)[None]),
    *(Case("tri", (F,), lambda b, k=k, u=u: b.tri("d0", k, u),
           lambda x, k=k, u=u: (np.triu if u else np.tril)(np.ones_like(x), k))
      for k in (-2, 0, 3) for u in (0, 1)),
    Case("ci", (F,), lambda b: b.ci("d0", 5, 1), lambda x: (5 - np.arange(16)).astype(np.uint8)[None]),
    *(Case("gather", (F, PLACES.astype(dtype)), lambda b: b.gather("d0", "a", "b"), lambda x, i: x.reshape(-1)[i])
      for dtype in (np.int32, np.uint32, np.uint8)),
    *(Case("gatherb", (F, (4 * PLACES).astype(dtype)), lambda b: b.gatherb("d0", "a", "b"),
           lambda x, o: x.reshape(-1)[o // 4]) for dtype in (np.int32, np.uint32, np.uint16)),
    Case("sort", (F,), lambda b: b.sort("d0", "a"), lambda x: np.sort(x, 1)),
    Case("sort", (F,), lambda b: b.sort("d0", "a", 1), lambda x: np.sort(x, 1)[:, ::-1]),
    Case("argsort", (F,), lambda b: b.argsort("d0", "a"), lambda x: np.argsort(x, 1, kind="stable").astype(np.int32)),
    Case("topk", (F,), lambda b: b.topk("d0", "d1", "a", 3),
         lambda x: (np.sort(x, 1)[:, ::-1][:, :3], np.argsort(-x, 1, kind="stable")[:, :3].astype(np.int32))),
    Case("histogram", (J,), lambda b: b.histogram("d0", "a", 9),
         lambda x: np.bincount(x.reshape(-1), minlength=9)[None].astype(np.int32)),
]  # fmt: skip


def wanted(case: Case) -> list[np.ndarray]:
    found = case.expected(*case.inputs)
    return [np.ascontiguousarray(e) for e in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("case", CASES, ids=[f"{k}-{case.name}" for k, case in enumerate(CASES)])
def test_an_instruction_is_what_numpy_computes(case: Case) -> None:
    expected = wanted(case)
    outputs = [np.zeros_like(e) for e in expected]
    module = around(case.step, case.inputs, outputs)
    results = run(module, case.inputs, outputs, compiled=False)
    for actual, reference in zip(results[len(case.inputs) :], expected, strict=True):
        agree(actual, reference, case.scale)


BATCHES = 6


@pytest.mark.parametrize("batch", range(BATCHES))
def test_machine_code_computes_the_same(batch: int) -> None:
    """Many instructions in one program, which costs one compilation: an orchestration function that calls them all."""
    cases = CASES[batch::BATCHES]
    module = PTOModule("m")
    host = PTOFunctionBuilder("all", module=module).not_in_core()
    arrays: list[np.ndarray] = []
    for number, case in enumerate(cases):
        outputs = [np.zeros_like(e) for e in wanted(case)]
        around(case.step, case.inputs, outputs, module=module, name=f"f{number}")
        formals = {}
        for formal, array in zip(module[f"f{number}"].func.params, (*case.inputs, *outputs), strict=True):
            name = formals[formal.name] = f"{formal.name}_{number}"
            host.memref(name, GLOBAL, element(array), array.shape)
            arrays.append(array.copy())
        host.call(f"f{number}", formals)
    host.build()
    module.compile()["all"](*arrays)
    rest = iter(arrays)
    for case in cases:
        for unchanged in case.inputs:
            np.testing.assert_array_equal(next(rest), unchanged)
        for reference in wanted(case):
            try:
                agree(next(rest), reference, case.scale)
            except AssertionError as error:
                raise AssertionError(f"{case.name}: {error}") from None


ELSEWHERE = {"rand", "randn", "mgather", "mscatter", "getval", "print"} | {
    name for name in INSTRUCTIONS if name.startswith("scalar_")
}


def test_every_instruction_has_a_case() -> None:
    assert {row.name for row in ROWS} - {case.name for case in CASES} == ELSEWHERE


def test_a_result_that_nothing_declares_takes_the_type_of_its_value() -> None:
    module = around(lambda b: b.rowsum("s", "a").rowexpandsub("d0", "a", "s"), [F], [F], declare=False)
    assert "%s = tsum %a {axes=(1,), keepdims=true} : !pto.tile<8x1xf32>" in str(module)
    agree(run(module, [F], [np.zeros_like(F)])[1], F - F.sum(1, keepdims=True), 4.0)


def test_random_tiles_are_those_of_the_language() -> None:
    import pto_jit.language as pl

    outputs = [np.zeros((8, 16), np.float32)] * 2
    module = around(lambda b: b.rand("d0", 7, 100).randn("d1", 7), [F], outputs)
    _, uniform, normal = run(module, [F], outputs)
    agree(uniform, np.asarray(pl.rand(7, 100, [8, 16])))
    agree(normal, np.asarray(pl.randn(7, 0, [8, 16])))


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int16, np.uint64])
def test_gather_and_scatter_of_memory_use_places_in_row_major_order(dtype: type) -> None:
    places = PLACES.astype(dtype)
    module = around(lambda b: b.mgather("d0", "a", "b"), [F, places], [F], memory=True)
    agree(run(module, [F, places], [np.zeros_like(F)])[2], F.reshape(-1)[PLACES])
    module = around(lambda b: b.mscatter("a", "c", "b").mov("d0", "c"), [F, places, G], [F], memory=True)
    expected = F.copy()
    expected.reshape(-1)[PLACES] = G
    agree(run(module, [F, places, G], [np.zeros_like(F)])[0], expected)


def test_print_prints_tiles_and_scalars(capfd: pytest.CaptureFixture[str]) -> None:
    module = around(lambda b: b.getval("s", "a", 0, 1).print("s").print("a").mov("d0", "a"), [COL @ ROW], [F])
    module.compile()["f"](COL @ ROW, np.zeros_like(F))
    assert str((COL @ ROW)[0, 1])[:6] in capfd.readouterr().out


def test_arithmetic_in_every_dtype() -> None:
    module = PTOModule("m")
    host = PTOFunctionBuilder("all", module=module).not_in_core()
    arrays: list[np.ndarray] = []
    dtypes = [np.float16, np.float64, ml_dtypes.bfloat16, np.int8, np.int16, np.uint8, np.uint16, np.uint32, np.int64]
    for number, dtype in enumerate(dtypes):
        a, b = (integers(8, 16, seed=seed, low=1, high=9).astype(dtype) for seed in (0, 1))
        around(
            lambda x: x.add("t", "a", "b").muls("u", "t", 3).maxs("d0", "u", 20),
            [a, b],
            [a],
            module=module,
            name=f"f{number}",
        )
        for name, array in (("in0", a), ("in1", b), ("out0", np.zeros_like(a))):
            host.memref(f"{name}_{number}", GLOBAL, element(array), array.shape)
            arrays.append(array)
        host.call(f"f{number}", {name: f"{name}_{number}" for name in ("in0", "in1", "out0")})
    host.build()
    module.compile()["all"](*arrays)
    for a, b, result in zip(arrays[::3], arrays[1::3], arrays[2::3], strict=True):
        agree(result, np.maximum((a + b) * a.dtype.type(3), a.dtype.type(20)))
