# SPDX-License-Identifier: MIT
"""Conversions between element types, as vectors and scalars, against NumPy and ml_dtypes."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir

from pto_jit import dtypes
from pto_jit.dtypes import DType
from pto_jit.targets.cpu.conversions import convert, register_type
from pto_jit.targets.cpu.vector import TargetModule, splat, vector_of
from tests.targets.cpu.processors import LEVELS, runs_here

WIDTHS = (1, 4, 16)
PAIRS = [(source, target) for source in dtypes.ALL for target in dtypes.ALL]
NARROW = [(source, target) for source, target in PAIRS if {"f16", "bf16"} & {source.name, target.name}]


def _memory_type(dtype: DType, width: int) -> ir.Type:
    return vector_of(ir.IntType(8), width) if dtype.name == "bool_" else register_type(dtype, width)


def _loop(module: ir.Module, source: DType, target: DType, width: int) -> str:
    name = f"{source}_to_{target}_by_{width}"
    i64, pointer = ir.IntType(64), ir.PointerType()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [i64, pointer, pointer]), name)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    entry, body, done = builder.block, function.append_basic_block("body"), function.append_basic_block("done")
    builder.branch(body)
    builder.position_at_end(body)
    index = builder.phi(i64)
    index.add_incoming(ir.Constant(i64, 0), entry)
    address = builder.gep(function.args[2], [index], source_etype=_memory_type(source, 1))
    value = builder.load(address, typ=_memory_type(source, width), align=1)
    if source.name == "bool_":
        value = builder.icmp_unsigned("!=", value, splat(ir.IntType(8), width, 0))
    value = convert(builder, value, source, target)
    assert value.type == register_type(target, width)
    if target.name == "bool_":
        value = builder.zext(value, _memory_type(target, width))
    builder.store(value, builder.gep(function.args[1], [index], source_etype=_memory_type(target, 1)), align=1)
    following = builder.add(index, ir.Constant(i64, width))
    index.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, function.args[0]), body, done)
    builder.position_at_end(done)
    builder.ret_void()
    return name


@functools.cache
def _compiled(level: str) -> tuple[Any, dict[str, int]]:
    """Machine code for the processor at hand, or for one that has no more than "sse2"."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    name, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features()
    if level == "sse2":
        name, features = "x86-64", type(features)({f: f in LEVELS["sse2"] for f in (*features, "64bit")})
    module = TargetModule("conversions", half=level == "host")
    module.triple = llvm.get_default_triple()
    pairs = PAIRS if level == "host" else NARROW
    widths = WIDTHS if level == "host" else WIDTHS[::2]
    names = [_loop(module, source, target, width) for source, target in pairs for width in widths]
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=name, features=features.flatten(), opt=1, jit=True
    )
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    engine = llvm.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    return engine, {name: engine.get_function_address(name) for name in names}


def run(values: Any, source: DType, target: DType, width: int, level: str = "host") -> Any:
    _, addresses = _compiled(level)
    padded = np.ascontiguousarray(np.pad(values, (0, -values.size % width), mode="edge"))
    result = np.empty(padded.shape, target.numpy)
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    function(addresses[f"{source}_to_{target}_by_{width}"])(padded.size, result.ctypes.data, padded.ctypes.data)
    return result[: values.size]


def sample(dtype: DType) -> Any:
    """Every value of the small types; of the large ones a sample of all patterns and the edges of the other types."""
    random = np.random.default_rng(4)
    if dtype.name == "bool_":
        return np.array([False, True])
    if dtype.bits <= 16:
        unsigned = np.arange(2**dtype.bits, dtype=np.uint16 if dtype.bits == 16 else np.uint8)
        return unsigned.view(dtype.numpy)
    raw = random.integers(0, 2**dtype.bits, 20_000, dtype=np.uint64 if dtype.bits == 64 else np.uint32)
    edges = [
        0,
        1,
        2,
        126,
        127,
        128,
        129,
        254,
        255,
        256,
        257,
        32767,
        32768,
        65535,
        65536,
        2049,
        2051,
        4097,
        65504,
        65519,
    ]
    edges += [65520, 16777217, 16777219, 2**31 - 1]
    if dtype.is_integer:
        numbers = np.array(edges, dtype.numpy)
        return np.concatenate([raw.view(dtype.numpy), raw.view(dtype.numpy) >> (dtype.bits // 2), numbers, 0 - numbers])
    large = [2.0**31, 2.0**32, 2.0**63, 2.0**64, 9.2e18, 1e30, np.inf, 0.5, 1.5, 2.5, 0.999, 2.0**-14, 2.0**-24]
    large += [2.0**-25, 1.5 * 2.0**-25, 2.0**-126, 2.0**-133, 2.0**-149, 1 + 2.0**-8, 1 + 2.0**-11, 3.4028235e38]
    large += [v * (1 + e) for v in (1 + 2.0**-11, 1 + 3 * 2.0**-11, 65520.0, 2.0**-25) for e in (2.0**-40, -(2.0**-40))]
    numbers = np.array([*edges, *large], dtype.numpy)
    middle = random.uniform(-300, 300, 4000).astype(dtype.numpy) * random.choice([1e-6, 1.0, 1e3, 1e8, 1e17], 4000)
    quiet = np.array([np.nan, -np.nan], dtype.numpy)
    return np.concatenate([raw.view(dtype.numpy), numbers, -numbers, middle.astype(dtype.numpy), quiet])


def expected(values: Any, source: DType, target: DType) -> Any:
    """What the language says, by NumPy."""
    if target.name == "bool_":
        return values.astype(np.float64) != 0 if source.is_float else values != 0
    if source.is_float and target.is_integer:
        limits = np.iinfo(target.numpy)
        whole = np.trunc(values.astype(np.float64))
        clipped = [0 if v != v else int(max(min(v, float(limits.max)), float(limits.min))) for v in whole.tolist()]
        return np.array([min(v, int(limits.max)) for v in clipped], target.numpy)
    return values.astype(target.numpy)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda dtype: str(dtype))
def test_a_cast_means_what_numpy_means_and_saturates_towards_integers(source: DType, target: DType, width: int) -> None:
    check(source, target, width, "host")


@pytest.mark.parametrize("width", WIDTHS[::2])
@pytest.mark.parametrize(("source", "target"), NARROW, ids=lambda dtype: str(dtype))
def test_a_processor_without_instructions_for_them_converts_short_floats(
    source: DType, target: DType, width: int
) -> None:
    check(source, target, width, "sse2")


@pytest.mark.skipif(not runs_here("avx2"), reason="no instruction to compare with")
def test_conversions_of_f16_give_the_bits_of_the_instructions() -> None:
    """NaNs too, with what they carry."""
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    singles = np.random.default_rng(7).integers(0, 2**32, 100_000, np.uint32)
    singles[:2000] = np.arange(2000) + 0x7F800000 - 1000  # infinities and NaNs
    floats = singles.view(np.float32)
    for values, source, target in ((halves, dtypes.f16, dtypes.f32), (floats, dtypes.f32, dtypes.f16)):
        ours, theirs = (run(values, source, target, 16, level) for level in ("sse2", "host"))
        word = np.uint16 if target.bits == 16 else np.uint32
        assert (ours.view(word) == theirs.view(word)).all()


def check(source: DType, target: DType, width: int, level: str) -> None:
    values = sample(source)
    with np.errstate(all="ignore"):
        want = expected(values, source, target)
    got = run(values, source, target, width, level)
    if target.is_float:
        unsigned = {16: np.uint16, 32: np.uint32, 64: np.uint64}[target.bits]
        with np.errstate(invalid="ignore"):
            same = (got.view(unsigned) == want.view(unsigned)) | ((want != want) & (got != got))
    else:
        same = got == want
    wrong = np.flatnonzero(~same)
    assert not wrong.size, [(values[k], got[k], want[k]) for k in wrong[:5]]


@pytest.mark.parametrize("source", [dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64], ids=str)
def test_a_nan_keeps_its_sign_and_becomes_quiet_in_bf16(source: DType) -> None:
    values = np.array([np.nan, -np.nan], source.numpy)
    got = run(values, source, dtypes.bf16, 4).view(np.uint16)
    assert ((got & 0x7FC0) == 0x7FC0).all()
    assert (np.signbit(values.astype(np.float64)) == (got >> 15).astype(bool)).all()
