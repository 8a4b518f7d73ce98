# SPDX-License-Identifier: MIT
"""The vector math through the LLVM emitter: accuracy over the whole range, special values, one result at any width.

f32 is checked against f64 functions of NumPy and `math` on samples that contain every exponent, f64 against mpmath.
"""

from __future__ import annotations

import ctypes
import functools
import math
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import mpmath
import numpy as np
import pytest
from llvmlite import ir

from pto_jit.targets.cpu.vector import VectorEmitter, vector_of
from pto_jit.targets.vecmath import RECIPES, Recipe

NUMPY = {"f32": np.float32, "f64": np.float64}
BITS = {"f32": np.uint32, "f64": np.uint64}
INF, NAN = math.inf, math.nan
UNARY = [name for name, recipe in RECIPES.items() if recipe.arity == 1]


# --- compiling ------------------------------------------------------------------------------------------------------


def _loop(module: ir.Module, recipe: Recipe, dtype: Any, width: int, scalef: bool) -> None:
    """`void NAME(i64 n, out, in...)` over n elements, a multiple of the width."""
    element = ir.FloatType() if dtype == "f32" else ir.DoubleType()
    i64, pointer = ir.IntType(64), ir.PointerType()
    signature = ir.FunctionType(ir.VoidType(), [i64, pointer, *[pointer] * recipe.arity])
    function = ir.Function(module, signature, f"run_{recipe.name}")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    entry, body, done = builder.block, function.append_basic_block("body"), function.append_basic_block("done")
    builder.branch(body)
    builder.position_at_end(body)
    index = builder.phi(i64)
    index.add_incoming(ir.Constant(i64, 0), entry)
    emitter = VectorEmitter(builder, dtype, width, scalef=scalef)
    operands: list[Any] = []
    for array in function.args[2:]:
        address = builder.gep(array, [index], source_etype=element)
        operands.append(builder.load(address, typ=vector_of(element, width), align=4))
    result = recipe.function(emitter, *operands)
    builder.store(result, builder.gep(function.args[1], [index], source_etype=element), align=4)
    following = builder.add(index, ir.Constant(i64, width))
    index.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, function.args[0]), body, done)
    builder.position_at_end(done)
    builder.ret_void()


@functools.cache
def _compiled(dtype: str, width: int, scalef: bool) -> tuple[Any, dict[str, int]]:
    """An engine with every recipe, and the addresses of its loops."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = ir.Module()
    module.triple = llvm.get_default_triple()
    for recipe in RECIPES.values():
        _loop(module, recipe, dtype, width, scalef)
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    machine = target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=2, jit=True)
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(2)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(parsed, passes)
    engine = llvm.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    return engine, {name: engine.get_function_address(f"run_{name}") for name in RECIPES}


def _has_scalef() -> bool:
    features = llvm.get_host_cpu_features()
    return bool(features.get("avx512f") and features.get("avx512vl"))


def evaluate(name: str, dtype: str, *operands: Any, width: int | None = None, scalef: bool | None = None) -> Any:
    """The recipe over arrays (or lists) of numbers, by default at the widest vector."""
    width = width or (16 if dtype == "f32" else 8)
    _, addresses = _compiled(dtype, width, _has_scalef() if scalef is None else scalef)
    arrays = [np.asarray(operand, NUMPY[dtype]) for operand in operands]
    count = arrays[0].size
    arrays = [np.ascontiguousarray(np.pad(array, (0, -count % width), mode="edge")) for array in arrays]
    result = np.empty_like(arrays[0])
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * (1 + len(arrays)))(addresses[name])
    function(result.size, result.ctypes.data, *[array.ctypes.data for array in arrays])
    return result[:count]


# --- samples --------------------------------------------------------------------------------------------------------


def stratified(dtype: str, count: int, seed: int) -> Any:
    """Numbers whose bit patterns are spread evenly over all there are: every exponent, both signs, some NaN."""
    random = np.random.default_rng(seed)
    step = 2 ** (32 if dtype == "f32" else 64) // count
    patterns = np.arange(count, dtype=np.uint64) * np.uint64(step) + random.integers(0, step, count, dtype=np.uint64)
    return patterns.astype(BITS[dtype]).view(NUMPY[dtype])


def neighbours(dtype: str, points: list[float], reach: int) -> Any:
    """Each point and the `reach` numbers on both sides of it."""
    bits = np.asarray(points, NUMPY[dtype]).view(BITS[dtype]).astype(np.int64)
    around = bits[:, None] + np.arange(-reach, reach + 1)
    return around.ravel().astype(BITS[dtype]).view(NUMPY[dtype])


# Where the error or the method changes: range ends, reduction boundaries, zeros of the result, subnormal results.
_LN2, _PI = math.log(2.0), math.pi
CRITICAL: dict[str, list[float]] = {
    "exp": [88.722839, -87.33654, -103.97208, 709.782712893384, -708.3964185, -745.1332191019411, _LN2 / 2, 1e-8],
    "exp2": [128.0, -126.0, -149.5, 1024.0, -1022.0, -1074.5, 0.5, 1.5, 1e-8],
    "expm1": [88.722839, 709.782712893384, _LN2 / 2, -_LN2 / 2, 1.5 * _LN2, -17.32868, -37.42995, 2.0**-26, 2.0**-55],
    "log": [1.0, math.sqrt(0.5), math.sqrt(2.0), 2.0**-126, 2.0**-1022, 3.4e38, 1.7e308, 1e-44, 5e-320],
    "log1p": [-1 + 2**-20, -0.2928932, 0.41421356, 1e-30, 1e-300, 3e38, 1.7e308, 1e-40, -1e-40],
    "sin": [_PI * k / 4 for k in range(1, 40)] + [2.0**17, 2.0**30, 16367173 * 2.0**72, 1e-40, 3e38],
    "tanh": [9.01, 19.06, 0.17328, 0.5, 1e-30, 1e-40],
    "erf": [1.0, 3.92, 5.92, 1e-30, 1e-40],
    "sigmoid": [-103.97, -87.3, -745.13, -708.4, 17.0, 36.7, -16.6, 1e-30],
    "silu": [-108.6, -91.9, -751.7, -714.0, -1.2784645, 17.0, -1e-30, -1e-40],
    "gelu": [-14.17, -13.15, -38.4, -37.5, -0.7517916, 5.5, -1e-30, -1e-40],
    "gelu_tanh": [-10.75, -10.05, -21.5, -21.1, -0.7524614, 5.5, -1e-30, -1e-40],
}
CRITICAL["log2"] = CRITICAL["log"]
CRITICAL["cos"] = CRITICAL["tan"] = CRITICAL["sin"]
RANGES = (0.5, 3.0, 12.0, 45.0, 120.0, 800.0, 1e5)


def unary_sample(name: str, dtype: str, count: int) -> Any:
    """Half of it spread over all numbers, half over the ranges where functions vary, and the critical points."""
    random = np.random.default_rng(11)
    each = count // (2 * len(RANGES))
    plain = [random.uniform(-limit, limit, each).astype(NUMPY[dtype]) for limit in RANGES]
    largest = float(np.finfo(NUMPY[dtype]).max)
    critical = [point for point in CRITICAL.get(name, [1.0]) if abs(point) < largest]
    reach = 1000 if count > 100_000 else 3
    return np.concatenate([stratified(dtype, count // 2, 5), *plain, neighbours(dtype, critical, reach)])


def binary_sample(name: str, dtype: str, count: int) -> tuple[Any, Any]:
    """Operands over all numbers, and such whose result is neither trivial nor out of range."""
    random = np.random.default_rng(12)
    kind = NUMPY[dtype]
    x, y = (stratified(dtype, count // 4, seed) for seed in (5, 6))
    y = random.permutation(y)
    spread = count // 4
    base = np.concatenate([np.exp(random.normal(0, 2.5, spread)), 1 + random.normal(0, 0.05, spread)]).astype(kind)
    if name == "pow":
        top = 128.0 if dtype == "f32" else 1024.0
        target = random.uniform(-1.17 * top, top, 2 * spread)
        with np.errstate(divide="ignore"):
            other = (target / np.log2(np.abs(base.astype(np.float64)))).astype(kind)
        sign = np.where(random.random(2 * spread) < 0.3, -1.0, 1.0)
        other = np.where(sign < 0, np.round(other), other).astype(kind)
        base = (base * sign).astype(kind)
    else:
        other = (base * np.exp2(random.uniform(-40, 40, 2 * spread))).astype(kind)
        other *= random.choice([-1, 1], 2 * spread).astype(kind)
        base *= random.choice([-1, 1], 2 * spread).astype(kind)
    pairs = np.concatenate([x, base, other]), np.concatenate([y, other, base])
    return (np.concatenate([x, base]), np.concatenate([y, other])) if name == "pow" else pairs


# --- references -----------------------------------------------------------------------------------------------------


def _each(function: Callable[[float], float]) -> Callable[[Any], Any]:
    return lambda x: np.array([function(v) for v in x.tolist()])


def _sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e / (1 + e), 1 / (1 + e))


def _gelu(v: float) -> float:
    return -0.0 if v == -INF else v * 0.5 * math.erfc(-v * math.sqrt(0.5))


def _gelu_tanh(x: Any) -> Any:
    near = np.clip(x, -40, 40)
    logistic = _sigmoid(2 * math.sqrt(2 / _PI) * (near + 0.044715 * near**3))
    return np.where(x > 40, x, near * logistic)


REFERENCE_F32: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log1p": np.log1p,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh, "erf": _each(math.erf), "sigmoid": _sigmoid,
    "silu": lambda x: np.maximum(x, -1e4) * _sigmoid(x), "gelu": _each(_gelu), "gelu_tanh": _gelu_tanh,
    "pow": np.power, "atan2": np.arctan2,
}  # fmt: skip

_mp: Any = mpmath.mp
REFERENCE_F64: dict[str, Callable[..., Any]] = {
    "exp": _mp.exp, "exp2": lambda x: _mp.mpf(2) ** x, "expm1": _mp.expm1, "log": _mp.log,
    "log2": lambda x: _mp.log(x) / _mp.ln2, "log1p": _mp.log1p, "sqrt": _mp.sqrt, "rsqrt": lambda x: 1 / _mp.sqrt(x),
    "reciprocal": lambda x: 1 / x, "sin": _mp.sin, "cos": _mp.cos, "tan": _mp.tan, "tanh": _mp.tanh, "erf": _mp.erf,
    "sigmoid": lambda x: 1 / (1 + _mp.exp(-x)), "silu": lambda x: x / (1 + _mp.exp(-x)),
    "gelu": lambda x: x * _mp.erfc(-x / _mp.sqrt(2)) / 2,
    "gelu_tanh": lambda x: x / (1 + _mp.exp(-2 * _mp.sqrt(2 / _mp.pi) * (x + _mp.mpf("0.044715") * x**3))),
    "pow": _mp.power, "atan2": _mp.atan2,
}  # fmt: skip


def errors_in_ulp(got: Any, exact: Any) -> Any:
    """The distance of f32 results to f64 references in units of the last place of the reference.

    Where both are NaN, or equal, it is zero; where one is infinite the other counts as the first number beyond the
    range.
    """
    info = np.finfo(np.float32)
    beyond = 2.0**info.maxexp
    equal = (np.isnan(got) & np.isnan(exact)) | (got == exact)
    with np.errstate(invalid="ignore"):
        got, exact = (np.clip(v.astype(np.float64), -beyond, beyond) for v in (got, exact))
        exponent = np.frexp(exact)[1] - 1
        exponent = np.clip(exponent, info.minexp, info.maxexp - 1)
        distance = np.abs(got - exact) / np.exp2(exponent - info.nmant)
    return np.where(equal, 0.0, np.where(np.isnan(distance), INF, distance))


def error_in_ulp_f64(got: float, exact: Any) -> float:
    if math.isnan(got):
        return INF
    beyond = _mp.mpf(2) ** 1024
    exact = min(max(exact, -beyond), beyond)
    value = _mp.mpf(got) if math.isfinite(got) else math.copysign(1, got) * beyond
    exponent = min(max(int(_mp.frexp(exact)[1]) - 1, -1022), 1023) if exact else -1022
    return float(abs(value - exact) / _mp.mpf(2) ** (exponent - 52))


def same_bits(x: Any, y: Any) -> Any:
    """Equal bit patterns, or both NaN."""
    kind = BITS["f32" if x.dtype == np.float32 else "f64"]
    return (x.view(kind) == y.view(kind)) | (np.isnan(x) & np.isnan(y))


# --- accuracy -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "fmod"])
def test_f32_stays_within_its_documented_error_over_the_whole_range(name: str) -> None:
    recipe = RECIPES[name]
    count = 500_000 if name in ("erf", "gelu") else 2_000_000
    operands = (unary_sample(name, "f32", count),) if recipe.arity == 1 else binary_sample(name, "f32", count)
    got = evaluate(name, "f32", *operands)
    with np.errstate(all="ignore"):
        exact = REFERENCE_F32[name](*[operand.astype(np.float64) for operand in operands])
    errors = errors_in_ulp(got, exact)
    worst = int(np.argmax(errors))
    at = [float(operand[worst]) for operand in operands]
    assert errors[worst] <= recipe.ulp_f32, f"{name}{at} is {got[worst]!r}, exactly {exact[worst]!r}"


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "fmod"])
def test_f64_stays_within_its_documented_error_over_the_whole_range(name: str) -> None:
    recipe = RECIPES[name]
    if recipe.arity == 1:
        operands = (unary_sample(name, "f64", 2000),)
    else:
        operands = binary_sample(name, "f64", 2000)
    got = evaluate(name, "f64", *operands)
    with mpmath.workprec(160):
        for result, *point in zip(got.tolist(), *[operand.tolist() for operand in operands], strict=True):
            if not all(map(math.isfinite, point)) or _has_own_rule(name, point):
                continue
            error = error_in_ulp_f64(result, REFERENCE_F64[name](*map(_mp.mpf, point)))
            assert error <= recipe.ulp_f64, f"{name}{point} is {result!r}, {error:.2f} ulp off"


def _has_own_rule(name: str, point: list[float]) -> bool:
    """Outside the domain, or beyond what mpmath can represent: those are in the tables below."""
    x = point[0]
    match name:
        case "log" | "log2" | "rsqrt" | "sqrt":
            return x <= 0
        case "log1p":
            return x <= -1
        case "reciprocal":
            return x == 0
        case "exp" | "exp2" | "expm1" | "sigmoid" | "silu" | "gelu" | "gelu_tanh" | "erf" | "tanh":
            return abs(x) > 1e4
        case "pow":
            return x == 0 or (x < 0 and point[1] != round(point[1])) or abs(point[1]) > 1e15
        case _:
            return False


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_fmod_is_exact(dtype: str) -> None:
    x, y = binary_sample("fmod", dtype, 200_000 if dtype == "f32" else 20_000)
    with np.errstate(all="ignore"):
        expected = np.fmod(x, y)
    got = evaluate("fmod", dtype, x, y)
    wrong = np.flatnonzero(~same_bits(got, expected))
    assert not wrong.size, [(x[k], y[k], got[k], expected[k]) for k in wrong[:5]]


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_the_arguments_closest_to_multiples_of_half_pi_keep_their_accuracy(name: str) -> None:
    # Kahan's worst cases: the remainders are 1.6e-9 (f32) and 4.7e-19 (f64).
    hardest = {"f32": 16367173 * 2.0**72, "f64": 6381956970095103 * 2.0**797}
    for dtype, x in hardest.items():
        for argument in (x, -x):
            with mpmath.workprec(1400):
                exact = REFERENCE_F64[name](_mp.mpf(argument))
                got = float(evaluate(name, dtype, [argument])[0])
                relative = abs(_mp.mpf(got) / exact - 1)
            assert relative < 4 * 2.0 ** (-23 if dtype == "f32" else -52), (name, argument, got)


# --- special values -------------------------------------------------------------------------------------------------

_TINY = {"f32": 2.0**-149, "f64": 2.0**-1074}
SPECIAL: dict[str, list[tuple[float, float]]] = {
    "exp": [(INF, INF), (-INF, 0.0), (0.0, 1.0), (-0.0, 1.0), (1e4, INF), (-1e4, 0.0)],
    "exp2": [(INF, INF), (-INF, 0.0), (0.0, 1.0), (-0.0, 1.0), (10.0, 1024.0), (-3.0, 0.125), (1e4, INF), (-1e4, 0.0)],
    "expm1": [(INF, INF), (-INF, -1.0), (0.0, 0.0), (-0.0, -0.0), (1e4, INF), (-1e4, -1.0)],
    "log": [(INF, INF), (-INF, NAN), (0.0, -INF), (-0.0, -INF), (1.0, 0.0), (-1.0, NAN), (-1e-40, NAN)],
    "log2": [(INF, INF), (-INF, NAN), (0.0, -INF), (-0.0, -INF), (1.0, 0.0), (8.0, 3.0), (2.0**-140, -140.0)],
    "log1p": [(INF, INF), (-INF, NAN), (-1.0, -INF), (0.0, 0.0), (-0.0, -0.0), (-2.0, NAN)],
    "sqrt": [(INF, INF), (-INF, NAN), (0.0, 0.0), (-0.0, -0.0), (-1.0, NAN), (4.0, 2.0)],
    "rsqrt": [(INF, 0.0), (-INF, NAN), (0.0, INF), (-0.0, -INF), (-1.0, NAN), (4.0, 0.5)],
    "reciprocal": [(INF, 0.0), (-INF, -0.0), (0.0, INF), (-0.0, -INF), (4.0, 0.25)],
    "sin": [(INF, NAN), (-INF, NAN), (0.0, 0.0), (-0.0, -0.0)],
    "cos": [(INF, NAN), (-INF, NAN), (0.0, 1.0), (-0.0, 1.0)],
    "tan": [(INF, NAN), (-INF, NAN), (0.0, 0.0), (-0.0, -0.0)],
    "tanh": [(INF, 1.0), (-INF, -1.0), (0.0, 0.0), (-0.0, -0.0), (50.0, 1.0), (-50.0, -1.0)],
    "erf": [(INF, 1.0), (-INF, -1.0), (0.0, 0.0), (-0.0, -0.0), (10.0, 1.0), (-10.0, -1.0)],
    "sigmoid": [(INF, 1.0), (-INF, 0.0), (0.0, 0.5), (-0.0, 0.5), (1e4, 1.0), (-1e4, 0.0)],
    "silu": [(INF, INF), (-INF, -0.0), (0.0, 0.0), (-0.0, -0.0), (1e30, 1e30), (-1e30, -0.0)],
    "gelu": [(INF, INF), (-INF, -0.0), (0.0, 0.0), (-0.0, -0.0), (1e30, 1e30), (-1e30, -0.0)],
    "gelu_tanh": [(INF, INF), (-INF, -0.0), (0.0, 0.0), (-0.0, -0.0), (1e30, 1e30), (-1e30, -0.0)],
}
ODD_THROUGH_ZERO = ["expm1", "log1p", "sin", "tan", "tanh"]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", UNARY)
def test_special_values_give_the_limits_with_the_right_signs(name: str, dtype: str) -> None:
    arguments = [x for x, _ in SPECIAL[name]]
    expected = np.array([y for _, y in SPECIAL[name]], NUMPY[dtype])
    got = evaluate(name, dtype, arguments)
    assert same_bits(got, expected).all(), list(zip(arguments, got.tolist(), expected.tolist(), strict=True))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", UNARY)
def test_every_nan_stays_a_nan(name: str, dtype: str) -> None:
    quiet, one = (0x7FC00000, 0x7F800001) if dtype == "f32" else (0x7FF8 << 48, (0x7FF0 << 48) + 1)
    top = 1 << (31 if dtype == "f32" else 63)
    patterns = [quiet, quiet + 1, quiet + 12345, one, one + 76543, quiet | top, one | top, top - 1, 2 * top - 1]
    assert np.isnan(evaluate(name, dtype, np.array(patterns, BITS[dtype]).view(NUMPY[dtype]))).all()


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", ODD_THROUGH_ZERO)
def test_subnormal_arguments_are_their_own_image(name: str, dtype: str) -> None:
    tiny = _TINY[dtype] * np.array([1, 2, 3, 1001, 2.0**22 + 1])
    for sign in (1, -1):
        arguments = (sign * tiny).astype(NUMPY[dtype])
        assert np.array_equal(evaluate(name, dtype, arguments), arguments)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_pow_has_the_exact_cases_of_annex_f(dtype: str) -> None:
    odd, large_odd, even = 3.0, 2.0**24 - 1 if dtype == "f32" else 2.0**53 - 1, 2.0**60
    cases = [
        (0.0, -odd, INF), (-0.0, -odd, -INF), (0.0, -2.0, INF), (-0.0, -2.0, INF), (-0.0, -2.5, INF),
        (0.0, -INF, INF), (-0.0, -INF, INF), (0.0, odd, 0.0), (-0.0, odd, -0.0), (-0.0, 2.0, 0.0), (-0.0, 0.5, 0.0),
        (-1.0, INF, 1.0), (-1.0, -INF, 1.0), (1.0, NAN, 1.0), (1.0, INF, 1.0), (1.0, -5.0, 1.0), (NAN, 0.0, 1.0),
        (NAN, -0.0, 1.0), (INF, 0.0, 1.0), (-2.0, 0.0, 1.0), (-8.0, 1 / 3, NAN), (-1e-40, 0.5, NAN), (NAN, 1.0, NAN),
        (2.0, NAN, NAN), (-1.0, NAN, NAN), (0.5, -INF, INF), (-0.5, -INF, INF), (2.0, -INF, 0.0), (-2.0, -INF, 0.0),
        (0.5, INF, 0.0), (-0.5, INF, 0.0), (2.0, INF, INF), (-2.0, INF, INF), (-INF, -odd, -0.0), (-INF, -2.0, 0.0),
        (-INF, -0.5, 0.0), (-INF, odd, -INF), (-INF, 2.0, INF), (-INF, 0.5, INF), (INF, -1.0, 0.0), (INF, 1.0, INF),
        (-1.0, large_odd, -1.0), (-1.0, even, 1.0), (-2.0, large_odd, -INF), (-2.0, -large_odd, -0.0),
        (-2.0, even, INF),
        (2.0, 10.0, 1024.0), (-2.0, 3.0, -8.0), (9.0, 0.5, 3.0), (10.0, 2.0, 100.0), (2.0, -140.0, 2.0**-140),
        (7.0, 1.0, 7.0), (1.5, 3.0, 3.375), (0.0, NAN, NAN), (INF, NAN, NAN),
    ]  # fmt: skip
    x, y, expected = (np.array(column, NUMPY[dtype]) for column in zip(*cases, strict=True))
    got = evaluate("pow", dtype, x, y)
    wrong = [
        case for case, value, ok in zip(cases, got, same_bits(got, expected), strict=True) if not ok or value is None
    ]
    assert not wrong


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_atan2_has_the_exact_cases_of_annex_f(dtype: str) -> None:
    values = [0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, _TINY[dtype], -_TINY[dtype], 3.0e38, -3.0e38]
    y, x = (np.array(v, NUMPY[dtype]) for v in zip(*[(a, b) for a in values for b in values], strict=True))
    expected = np.arctan2(y, x)
    got = evaluate("atan2", dtype, y, x)
    assert (np.isnan(got) == np.isnan(expected)).all()
    assert (np.signbit(got) == np.signbit(expected))[~np.isnan(got)].all()
    assert np.allclose(got, expected, rtol=4e-7 if dtype == "f32" else 8e-16, atol=0.0, equal_nan=True)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_fmod_of_zeros_and_infinities_is_that_of_c(dtype: str) -> None:
    values = [0.0, -0.0, INF, -INF, NAN, 1.0, -1.5, _TINY[dtype], -_TINY[dtype], float(np.finfo(NUMPY[dtype]).max)]
    x, y = (np.array(v, NUMPY[dtype]) for v in zip(*[(a, b) for a in values for b in values], strict=True))
    with np.errstate(all="ignore"):
        assert same_bits(evaluate("fmod", dtype, x, y), np.fmod(x, y)).all()


# --- one result -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("width", [1, 4, 8, 16])
def test_every_width_gives_the_same_bits(dtype: str, width: int) -> None:
    for name, recipe in RECIPES.items():
        if recipe.arity == 1:
            operands = (np.random.default_rng(3).permutation(unary_sample(name, dtype, 4000)),)
        else:
            operands = binary_sample(name, dtype, 4000)
        ours, widest = evaluate(name, dtype, *operands, width=width), evaluate(name, dtype, *operands)
        assert same_bits(ours, widest).all(), name


@pytest.mark.parametrize("name", ["log", "log2", "log1p", "pow"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_one_lane_does_not_wait_for_special_cases(dtype: str, name: str) -> None:
    for width, branches in ((1, True), (4, False)):
        module = ir.Module()
        _loop(module, RECIPES[name], dtype, width, scalef=False)
        assert ("vecmath.seldom" in str(module)) == branches


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="vscalef is an x86 instruction")
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_scaling_by_parts_gives_the_same_bits_as_the_instruction(dtype: str) -> None:
    if not _has_scalef():
        pytest.skip("this CPU has no AVX-512VL")
    for name in ("exp", "exp2", "pow"):
        recipe = RECIPES[name]
        operands = (unary_sample(name, dtype, 40_000),) if recipe.arity == 1 else binary_sample(name, dtype, 40_000)
        with_it, without = (evaluate(name, dtype, *operands, width=8, scalef=scalef) for scalef in (True, False))
        assert same_bits(with_it, without).all(), name


def test_every_elementary_function_of_the_language_has_a_recipe() -> None:
    names = """exp exp2 log log2 log1p expm1 sqrt rsqrt sin cos tan tanh erf sigmoid silu gelu reciprocal
        pow atan2 fmod"""
    assert set(names.split()) | {"gelu_tanh"} == set(RECIPES)


def test_the_documented_bounds_are_those_that_are_tested() -> None:
    page = Path(__file__).parents[2] / "docs" / "vector-math.md"
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.read_text("utf-8").splitlines()]
    bounds = {name: row[1] for row in rows if len(row) == 5 for name in re.findall(r"`(\w+)`", row[0])}
    for name, recipe in RECIPES.items():
        wanted = "exact" if recipe.ulp_f32 == 0 else f"{recipe.ulp_f32:g}"
        assert bounds[name] == wanted and recipe.ulp_f64 == recipe.ulp_f32, name
