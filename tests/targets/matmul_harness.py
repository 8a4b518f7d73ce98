# SPDX-License-Identifier: MIT
"""What the tests of the generated matrix products share: calls, operands of all layouts, memory around them, bounds."""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

from pto_jit.targets.cpu.matmul.blocking import Caches
from pto_jit.targets.cpu.matmul.library import Library, Processor
from pto_jit.targets.cpu.matmul.shape import Combo, Machine

Array = np.ndarray
DTYPES = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    **{f"{s}{b}": np.dtype(f"{'u' if s == 'u' else ''}int{b}") for s in "iu" for b in (8, 16, 32, 64)},
}
COMBOS = [
    Combo(*text.split())
    for text in (
        "f32 f32 f32",
        "f64 f64 f64",
        "f16 f16 f32",
        "bf16 bf16 f32",
        "bf16 f32 f32",
        "f32 f16 f64",
        "i8 i8 i32",
        "u8 i8 i32",
        "u8 u8 u32",
        "i16 i16 i32",
        "u16 u16 u32",
        "i32 i32 i32",
        "u32 i32 i64",
        "i64 i64 i64",
        "u64 u64 u64",
    )
]
ENTRY = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    *[ctypes.c_int64] * 3,
    *[ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64] * 3,
    ctypes.c_int32,
)


@dataclass(frozen=True)
class StandIn:
    """The run-time functions of the tests and a worker."""

    dll: ctypes.CDLL
    worker: int

    @property
    def externals(self) -> dict[str, int]:
        return {name: ctypes.cast(getattr(self.dll, name), ctypes.c_void_p).value or 0 for name in Library.EXTERNALS}


def _variants() -> dict[str, Processor]:
    host = Processor.host()
    made = {"host": host}
    if Machine.of(host.features, host.triple).arch == "x86":
        if host != host.without_tiles():
            made["without tiles"] = host.without_tiles()
        features = llvm.get_host_cpu_features()
        made["sse2"] = Processor(host.triple, "x86-64", "+sse2")
        if all(features.get(name) for name in ("avx2", "fma", "f16c")):
            made["avx2"] = Processor(host.triple, "x86-64", "+avx2,+fma,+f16c,+bmi,+bmi2")
            if features.get("avxvnni"):
                made["avxvnni"] = Processor(host.triple, "x86-64", "+avx2,+fma,+f16c,+avxvnni")
        if all(features.get(name) for name in ("avx512f", "avx512bw", "avx512vl", "avx512dq")):
            plain = "+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx2,+fma,+f16c"
            made["avx512 without dots"] = Processor(host.triple, "x86-64", plain)
    return made


VARIANTS = _variants()
# Every arithmetic of every width; the rest is the same code with other conversions.
DISTINCT = {
    "host": COMBOS,
    "without tiles": [COMBOS[i] for i in (3, 6, 7)],
    "sse2": [COMBOS[i] for i in (0, 1, 2, 6, 9, 13)],
    "avx2": [COMBOS[i] for i in (0, 2, 3, 6, 11)],
    "avxvnni": [COMBOS[i] for i in (6, 7, 9)],
    "avx512 without dots": [COMBOS[i] for i in (0, 1, 3, 6)],
}
CASES = [(variant, combo) for variant in VARIANTS for combo in DISTINCT[variant]]
# Small caches, so that small products walk every loop of the driver.
TINY = Caches(l1=4 << 10, l2=16 << 10, l3=256 << 10)


def raw(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    return rng.standard_normal(shape).astype(dtype)


def laid_out(rng: np.random.Generator, rows: int, columns: int, dtype: np.dtype, layout: str) -> Array:
    match layout:
        case "rows":
            return raw(rng, (rows, columns), dtype)
        case "columns":
            return raw(rng, (columns, rows), dtype).T
        case "inner":
            return raw(rng, (rows, columns + 7), dtype)[:, 3 : columns + 3]
        case "strided":
            return raw(rng, (rows + 3, 2 * columns + 5), dtype)[1 : rows + 1, 2 : 2 * columns + 2 : 2]
        case "reversed":
            return raw(rng, (rows, columns), dtype)[::-1, ::-1]
        case "same row":
            return np.broadcast_to(raw(rng, (1, columns), dtype), (rows, columns))
        case "same column":
            return np.broadcast_to(raw(rng, (rows, 1), dtype), (rows, columns))
    raise AssertionError(layout)


INPUTS = ("rows", "columns", "inner", "strided", "reversed", "same row", "same column")
OUTPUTS = ("rows", "columns", "inner", "strided")


def call(standin: StandIn, address: int, a: Array, b: Array, c: Array, accumulate: bool, fixed: int = 0) -> int:
    def steps(x: Array) -> tuple[int, int, int]:
        return x.ctypes.data, x.strides[0] // x.itemsize, x.strides[1] // x.itemsize

    sizes = (a.shape[0], b.shape[1], a.shape[1])
    return ENTRY(address)(standin.worker, *sizes, *steps(a), *steps(b), *steps(c), int(accumulate) | fixed)


def expected(a: Array, b: Array, c: Array, accumulate: bool) -> tuple[Array, Array | None]:
    """The product and the bound on its error; None: exact."""
    if c.dtype.kind in "iu":
        with np.errstate(over="ignore"):
            return a.astype(c.dtype) @ b.astype(c.dtype) + (c if accumulate else c.dtype.type(0)), None
    # NumPy multiplies longdouble much slower; products of two f32 are exact in f64.
    wide = np.longdouble if c.dtype.itemsize == 8 else np.float64
    wide_a, wide_b = a.astype(wide), b.astype(wide)
    before = c.astype(wide) if accumulate else np.zeros(c.shape, wide)
    # vdpbf16ps rounds products and sums of a pair and flushes subnormals: two roundings more per pair, and a floor.
    k = a.shape[1] + 4
    scale = np.abs(wide_a) @ np.abs(wide_b) + np.abs(before)
    return wide_a @ wide_b + before, scale * float(np.finfo(c.dtype).eps) * k + 1e-36


def check(c: Array, truth: tuple[Array, Array | None], what: object) -> None:
    value, bound = truth
    if bound is None:
        np.testing.assert_array_equal(c, value, err_msg=str(what))
        return
    wrong = ~(np.abs(c - value) <= bound)
    assert not wrong.any(), f"{what}: {int(wrong.sum())} wrong, first at {np.argwhere(wrong)[0].tolist()}"


def one_product(
    standin: StandIn,
    library: Library,
    combo: Combo,
    rng: np.random.Generator,
    sizes: tuple[int, int, int],
    layouts: tuple[str, str, str],
    accumulate: bool,
    workers: tuple[int, ...] = (1, 3),
) -> None:
    """Against NumPy; nothing outside C changes; the number of workers never shows."""
    m, n, k = sizes
    a = laid_out(rng, m, k, DTYPES[combo.a], layouts[0])
    b = laid_out(rng, k, n, DTYPES[combo.b], layouts[1])
    c = laid_out(rng, m, n, DTYPES[combo.c], layouts[2])
    whole = c if c.base is None else c.base
    before, around = c.copy(), np.array(whole)
    truth = expected(a, b, before, accumulate)
    entries = library.ensure(combo)
    what = (combo, sizes, layouts, accumulate)
    results = []
    for threads in workers:
        standin.dll.standin_threads(threads)
        c[...] = before
        assert call(standin, entries.product, a, b, c, accumulate) == 0
        check(c, truth, what)
        results.append(c.copy())
        c[...] = before
        np.testing.assert_array_equal(np.asarray(whole).view(np.uint8), around.view(np.uint8), err_msg=f"stray: {what}")
        assert standin.dll.standin_live() == 0
    for other in results[1:]:
        np.testing.assert_array_equal(results[0].view(np.uint8), other.view(np.uint8), err_msg=f"workers: {what}")


class Guarded:
    """Memory between two pages that must not be touched."""

    def __init__(self, bytes_: int) -> None:
        page = mmap.PAGESIZE
        self.size = max(1, -(-bytes_ // page)) * page
        self.map = mmap.mmap(-1, self.size + 2 * page)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for at in (self.start, self.start + page + self.size):
            if libc.mprotect(at, page, 0):
                pytest.skip("pages cannot be protected here")
        self.bytes = bytes_

    def array(self, shape: tuple[int, int], dtype: np.dtype, *, at_end: bool) -> Array:
        offset = mmap.PAGESIZE + (self.size - self.bytes if at_end else 0)
        room = (ctypes.c_uint8 * self.bytes).from_address(self.start + offset)
        return np.ctypeslib.as_array(room).view(dtype).reshape(shape)


SUM = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 2,
    ctypes.c_int32,
)  # fmt: skip
def call_sum(standin: StandIn, address: int, terms: list[tuple[Array, Array]], c: Array, how: int, fixed: int) -> int:
    rows = [(a.ctypes.data, *a.strides, b.ctypes.data, *b.strides, a.shape[1], fixed) for a, b in terms]
    steps = (c.strides[0] // c.itemsize, c.strides[1] // c.itemsize)
    table = np.array(rows, np.int64)
    return SUM(address)(standin.worker, *c.shape, len(rows), table.ctypes.data, c.ctypes.data, *steps, how)
