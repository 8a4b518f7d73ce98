# SPDX-License-Identifier: MIT
"""f32 and f16 products by matrix tiles: as exact as f32 arithmetic for any numbers, the same bits whoever computes them."""

from __future__ import annotations

import re
from collections.abc import Callable

import llvmlite.binding as llvm
import numpy as np
import pytest

from pto_jit.targets.cpu.matmul.library import Library, Processor, assembly, module_ir, optimised, target_machine
from pto_jit.targets.cpu.matmul.shape import FIXED_B, Combo, Machine, scheme_of
from tests.targets.matmul_harness import (
    DTYPES,
    INPUTS,
    OUTPUTS,
    TINY,
    Array,
    Guarded,
    StandIn,
    call,
    call_sum,
    check,
    expected,
    laid_out,
    one_product,
    raw,
)

F32, SINGLE = np.dtype(np.float32), Combo("f32", "f32", "f32")
F16, HALF = np.dtype(np.float16), Combo("f16", "f16", "f32")
HOST = Processor.host()
TILES = scheme_of(SINGLE, Machine.of(HOST.features, HOST.triple)).pieces
needs_tiles = pytest.mark.skipif(not TILES, reason="no matrix tiles on this processor")
# Every way: whole panels and borders of rows, columns and k, one block of k and several, few rows, few columns.
SIZES = (
    *((128, 128, 128), (145, 161, 127), (110, 160, 260), (64, 300, 200), (600, 80, 64), (300, 257, 130)),
    *((68, 270, 1000), (512, 256, 64), (161, 241, 95), (1000, 112, 64)),
)


def bits(c: Array) -> bytes:
    return np.ascontiguousarray(c).tobytes()


def plain_library(standin: StandIn) -> Library:
    """The same products without tiles."""
    return Library(standin.externals, processor=HOST.without_tiles())


def product(standin: StandIn, library: Library, a: Array, b: Array, c: Array | None = None, *, fixed: int = 0) -> Array:
    """A new C, or a copy of c added to."""
    combo = SINGLE if a.dtype == F32 else HALF
    out = np.full((a.shape[0], b.shape[1]), np.nan, F32) if c is None else c.copy()
    assert call(standin, library.ensure(combo).product, a, b, out, c is not None, fixed) == 0
    assert standin.dll.standin_live() == 0
    return out


def everyone(standin: StandIn, library: Library, a: Array, b: Array, c: Array | None = None) -> Array:
    """The product, the same bits by any number of workers, B kept or not."""
    results = []
    for threads in (1, 2, 3, 16):
        standin.dll.standin_threads(threads)
        for fixed in (0, FIXED_B, FIXED_B, FIXED_B):
            results.append(product(standin, library, a, b, c, fixed=fixed))
        standin.dll.standin_forget()
    standin.dll.standin_threads(1)
    assert len({bits(r) for r in results}) == 1
    return results[0]


@needs_tiles
@pytest.mark.parametrize(("combo", "caches"), [(SINGLE, None), (SINGLE, TINY), (HALF, None)])
def test_all_layouts_agree_with_numpy_and_any_number_of_workers_gives_the_same_bits(
    standin: StandIn, libraries: Callable[..., Library], combo: Combo, caches: object
) -> None:
    rng = np.random.default_rng(3)
    library = libraries("host", caches)
    for sizes in SIZES:
        for a in ("rows", "columns"):
            for b in ("rows", "columns"):
                one_product(standin, library, combo, rng, sizes, (a, b, "rows"), bool(rng.integers(2)), (1, 2, 3, 16))
    for _ in range(30):
        layouts = (str(rng.choice(INPUTS)), str(rng.choice(INPUTS)), str(rng.choice(OUTPUTS)))
        m, n, k = (int(x) for x in rng.integers((49, 49, 32), (330, 330, 400)))
        one_product(standin, library, combo, rng, (m, n, k), layouts, bool(rng.integers(2)), (1, 3))


@needs_tiles
@pytest.mark.parametrize("dtype", [F32, F16])
def test_products_of_these_sizes_are_made_of_tiles(
    standin: StandIn, libraries: Callable[..., Library], dtype: np.dtype
) -> None:
    """Their last bits are others than those of multiply-adds; smaller products have the same."""
    rng = np.random.default_rng(2)
    library, plain = libraries("host"), plain_library(standin)
    for sizes, by_tiles in (*((s, True) for s in SIZES), ((64, 64, 64), False), ((48, 300, 300), False)):
        m, n, k = sizes
        a, b = raw(rng, (m, k), dtype), raw(rng, (k, n), dtype)
        same = product(standin, library, a, b) == product(standin, plain, a, b)
        assert same.all() == (not by_tiles), sizes


@needs_tiles
def test_errors_are_not_larger_than_those_of_f32_arithmetic(
    standin: StandIn, libraries: Callable[..., Library]
) -> None:
    """Of normal numbers, of positive ones, and of such that differ by many orders of magnitude in a row."""
    rng = np.random.default_rng(4)
    tiles, plain = libraries("host"), plain_library(standin)
    standin.dll.standin_threads(1)
    for k in (32, 128, 700):
        for kind in ("normal", "positive", "spread"):
            a, b = raw(rng, (150, k), F32), raw(rng, (k, 160), F32)
            if kind == "positive":
                a, b = np.abs(a), np.abs(b)
            if kind == "spread":
                a *= np.exp2(rng.integers(-30, 30, a.shape)).astype(F32)
                b *= np.exp2(rng.integers(-30, 30, b.shape)).astype(F32)
            exact = a.astype(np.float64) @ b.astype(np.float64)
            scale = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
            of_tiles, of_plain = (np.abs(product(standin, library, a, b) - exact) / scale for library in (tiles, plain))
            # Where one product outweighs the others it is all that is rounded, and more than once by tiles.
            least = 1.15 if kind == "spread" else 0.75
            assert of_tiles.max() <= of_plain.max(), (k, kind)
            assert np.sqrt((of_tiles**2).mean()) <= least * np.sqrt((of_plain**2).mean()), (k, kind)


@needs_tiles
def test_what_f32_arithmetic_computes_exactly_is_exact(standin: StandIn, libraries: Callable[..., Library]) -> None:
    rng = np.random.default_rng(5)
    library = libraries("host")
    # Numbers of all 24 bits by one, on either side.
    x = raw(rng, (160, 160), F32)
    x *= np.exp2(rng.integers(-40, 40, x.shape)).astype(F32)
    one = np.eye(160, dtype=F32)
    np.testing.assert_array_equal(everyone(standin, library, x, one), x)
    np.testing.assert_array_equal(everyone(standin, library, one, x), x)
    # Every finite f16, subnormal ones too.
    every = np.arange(1 << 16, dtype=np.uint16).view(F16)
    every = np.where(np.isfinite(every), every, F16.type(0)).reshape(256, 256)
    np.testing.assert_array_equal(everyone(standin, library, every, np.eye(256, dtype=F16)), every.astype(F32))
    np.testing.assert_array_equal(everyone(standin, library, np.eye(256, dtype=F16), every), every.astype(F32))
    # Integers whose sums have 24 bits.
    for high_a, high_b in ((1 << 9, 1 << 7), (1 << 15, 2), (2, 1 << 15), (1 << 2, 1 << 13)):
        a, b = (rng.integers(-h + 1, h, (130, 130)).astype(F32) for h in (high_a, high_b))
        np.testing.assert_array_equal(everyone(standin, library, a, b), a.astype(np.int64) @ b.astype(np.int64))


def _mixed(rng: np.random.Generator, rows: int, columns: int, *, of_a: bool, share: float) -> Array:
    """Normal numbers with blocks of others: zeros, subnormal, tiny and huge ones, infinities and NaNs."""
    out = raw(rng, (rows, columns), F32)
    special = [0.0, 1e-42, 3e-38, 1e-33, 1e-25, 1e25, 2e37, 3.3e38, np.inf, np.nan]
    for i in range(0, rows, 20):
        for j in range(0, columns, 50):
            if rng.random() < share:
                part = out[i : i + 20, j : j + 50]
                value = F32.type(rng.choice(special if of_a else special[:-4]))
                if rng.random() < 0.5:
                    part[...] = value
                else:
                    part[rng.integers(part.shape[0]), rng.integers(part.shape[1])] = value
    if of_a:
        out[rows // 2, columns // 3] = np.inf
    return out


@needs_tiles
@pytest.mark.parametrize("share", [0.02, 0.3])
def test_numbers_that_do_not_fit_are_left_to_f32_arithmetic(
    standin: StandIn, libraries: Callable[..., Library], share: float
) -> None:
    """Results are within the bound of f32 arithmetic, subnormal ones too, and not finite where its are not."""
    rng = np.random.default_rng(6)
    library, plain = libraries("host"), plain_library(standin)
    seen = 0
    for m, n, k in ((130, 150, 300), (64, 260, 192), (300, 80, 260)):
        for layout in ("rows", "columns"):
            a, b = _mixed(rng, m, k, of_a=True, share=share), _mixed(rng, k, n, of_a=False, share=share)
            a, b = (np.asfortranarray(x) if layout == "columns" else x for x in (a, b))
            for c in (None, raw(rng, (m, n), F32)):
                got = everyone(standin, library, a, b, c)
                truth = product(standin, plain, a, b, c)
                with np.errstate(all="ignore"):
                    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
                    scale = np.abs(wide_a) @ np.abs(wide_b) + (0 if c is None else np.abs(c.astype(np.float64)))
                    exact = wide_a @ wide_b + (0 if c is None else c.astype(np.float64))
                    fine = np.isfinite(truth) & (scale < 1e38)
                    bound = scale * float(np.finfo(F32).eps) * (k + 4) + 1.5e-45 * k
                    assert (np.abs(got - exact) <= bound)[fine].all(), (m, n, k, layout)
                # Sums near the largest number may or may not overflow, depending on their order.
                told = (scale < 1e38) | ~np.isfinite(scale)
                np.testing.assert_array_equal(np.isnan(got)[told], np.isnan(truth)[told])
                np.testing.assert_array_equal(np.isinf(got)[told], np.isinf(truth)[told])
                seen += int((~fine).sum())
    assert seen > 0


@needs_tiles
def test_infinities_and_nans_of_f16_stay_in_their_rows_and_columns(
    standin: StandIn, libraries: Callable[..., Library]
) -> None:
    rng = np.random.default_rng(12)
    a, b = raw(rng, (140, 150), F16), raw(rng, (150, 200), F16)
    a[100, 11], b[140, 52], b[0, 16] = np.nan, np.nan, np.inf
    for left in (a, np.asfortranarray(a)):
        for right in (b, np.asfortranarray(b)):
            c = everyone(standin, libraries("host"), left, right)
            bad = ~np.isfinite(c)
            assert bad[100].all()
            assert bad[:, [16, 52]].all()
            assert bad.sum() == 200 + 2 * 139
            fine = np.delete(np.delete(c, 100, 0), [16, 52], 1)
            truth = np.delete(a, 100, 0), np.delete(b, [16, 52], 1)
            check(fine, expected(*truth, fine, False), "finite")


@needs_tiles
def test_subnormal_results_and_what_is_added_to_are_kept(standin: StandIn, libraries: Callable[..., Library]) -> None:
    """The tiles take them as zero: the sums are written, and added to C, by other instructions."""
    rng = np.random.default_rng(7)
    library = libraries("host")
    tiny = (raw(rng, (128, 128), F32) * F32.type(1e-40)).astype(F32)
    assert (np.abs(tiny[tiny != 0]) < np.finfo(F32).tiny).all()
    a, b = np.zeros((128, 300), F32), raw(rng, (300, 128), F32)
    np.testing.assert_array_equal(everyone(standin, library, a, b, tiny), tiny)
    # the first block of k is of subnormal numbers, the rest is zero
    a[:, :128], b = tiny, np.eye(300, 128, dtype=F32)
    np.testing.assert_array_equal(everyone(standin, library, a, b), tiny)
    b[:128] *= F32.type(2**-20)
    check(everyone(standin, library, a * F32.type(2**20), b), (tiny.astype(np.longdouble), np.full(tiny.shape, 1.5e-45)), "")


@needs_tiles
def test_one_number_costs_its_panel_alone(standin: StandIn, libraries: Callable[..., Library]) -> None:
    """Beside an infinity, the sums are those of the tiles."""
    rng = np.random.default_rng(8)
    library, plain = libraries("host"), plain_library(standin)
    a, b = raw(rng, (160, 160), F32), raw(rng, (160, 192), F32)
    usual, by_f32 = product(standin, library, a, b), product(standin, plain, a, b)
    assert (usual != by_f32).any(axis=1).all()
    a[70, 3] = np.inf
    got = product(standin, library, a, b)
    inside = slice(64, 96)
    assert not np.isfinite(got[70]).any()
    np.testing.assert_array_equal(np.delete(got, inside, 0), np.delete(usual, inside, 0))
    a[70, 3], b[150, 100] = 1, np.inf
    got = product(standin, library, a, b)
    usual = product(standin, library, a, np.where(np.isinf(b), F32.type(1), b))
    assert not np.isfinite(got[:, 100]).any()
    np.testing.assert_array_equal(np.delete(got, slice(64, 128), 1), np.delete(usual, slice(64, 128), 1))


@needs_tiles
def test_sums_of_products_are_those_of_the_terms(standin: StandIn, libraries: Callable[..., Library]) -> None:
    rng = np.random.default_rng(9)
    entries = libraries("host").ensure(SINGLE)
    for m, n, ks in ((130, 128, (128, 256)), (72, 256, (256, 300)), (300, 100, (33, 90, 140)), (700, 512, (130, 64))):
        for layout in ("rows", "columns", "inner"):
            terms = [(laid_out(rng, m, k, F32, layout), laid_out(rng, k, n, F32, str(rng.choice(INPUTS[:3])))) for k in ks]
            a, b = np.concatenate([a for a, _ in terms], 1), np.concatenate([b for _, b in terms], 0)
            before = raw(rng, (m, n), F32)
            for how in (0, 1):
                results, truth = [], expected(a, b, before, bool(how))
                for threads, fixed in ((1, 0), (1, FIXED_B), (1, FIXED_B), (2, FIXED_B), (3, FIXED_B), (16, 0)):
                    standin.dll.standin_threads(threads)
                    c = before.copy()
                    assert call_sum(standin, entries.named["_sum"], terms, c, how, fixed) == 0
                    check(c, truth, (m, n, ks, layout))
                    results.append(bits(c))
                    assert standin.dll.standin_live() == 0
                assert len(set(results)) == 1, (m, n, ks, layout)
                standin.dll.standin_forget()


@needs_tiles
@pytest.mark.parametrize("combo", [SINGLE, HALF])
def test_nothing_outside_the_operands_is_read_or_written(
    standin: StandIn, libraries: Callable[..., Library], combo: Combo
) -> None:
    """Each operand ends, or begins, at a page without access; a stray access kills the process."""
    rng = np.random.default_rng(10)
    library = libraries("host")
    standin.dll.standin_threads(1)
    for m, n, k in ((145, 161, 127), (68, 270, 220), (241, 129, 65)):
        for at_end in (True, False):
            for transposed in range(4):
                kept, arrays = [], []
                for bit, (rows, columns, name) in enumerate(((m, k, combo.a), (k, n, combo.b), (m, n, combo.c))):
                    turned, dtype = bool(transposed >> bit & 1), DTYPES[name]
                    room = Guarded(rows * columns * dtype.itemsize)
                    kept.append(room)
                    x = room.array((columns, rows) if turned else (rows, columns), dtype, at_end=at_end)
                    x[...] = raw(rng, x.shape, dtype)
                    arrays.append(x.T if turned else x)
                a, b, c = arrays
                for accumulate in (False, True):
                    before = c.copy()
                    assert call(standin, library.ensure(combo).product, a, b, c, accumulate) == 0
                    check(c, expected(a, b, before, accumulate), (m, n, k, at_end, transposed))


@needs_tiles
def test_missing_scratch_is_a_status_and_leaks_nothing(standin: StandIn, libraries: Callable[..., Library]) -> None:
    rng = np.random.default_rng(11)
    entries = libraries("host").ensure(SINGLE)
    fine, bad = raw(rng, (300, 200), F32), raw(rng, (300, 200), F32)
    bad[100, 100] = np.inf
    for a in (fine, bad):
        for columns in (300, 100):
            b, c = raw(rng, (200, columns), F32), np.zeros((300, columns), F32)
            for threads in (1, 3):
                standin.dll.standin_threads(threads)
                standin.dll.standin_fail_after(-1)
                assert call(standin, entries.product, a, b, c, False) == 0
                needed = standin.dll.standin_pushes()
                assert needed > 0
                for n in range(needed):
                    standin.dll.standin_fail_after(n)
                    status = call(standin, entries.product, a, b, c, False)
                    standin.dll.standin_fail_after(-1)
                    assert status != 0
                    assert standin.dll.standin_live() == 0


def _with_tiles() -> Processor:
    features = "+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512bf16,+avx2,+fma,+f16c,+amx-tile,+amx-bf16"
    return Processor("x86_64-unknown-linux-gnu", "sapphirerapids", features)


@pytest.mark.skipif(not llvm.get_process_triple().startswith("x86_64"), reason="x86 instructions")
@pytest.mark.parametrize(("combo", "products", "loads"), [(SINGLE, 24, 14), (HALF, 16, 10)])
def test_the_inner_loop_is_products_of_tiles_and_what_they_need(combo: Combo, products: int, loads: int) -> None:
    """Of four pairs of tiles each; nothing else but prefetches, counting, and nothing spilled."""
    text = assembly(combo, _with_tiles())
    body = text[text.index("\npiece_2_2:") : text.index(".size\tpiece_2_2")]
    blocks = [b for b in re.split(r"\n\.LBB\w+:", body) if b.count("tdpbf16ps")]
    assert len(blocks) == 1
    assert blocks[0].count("tdpbf16ps") == products
    assert blocks[0].count("tileloadd") == loads
    assert not re.search(r"%[xyz]mm|\(%rsp\)", blocks[0])


@pytest.mark.skipif(not llvm.get_process_triple().startswith("x86_64"), reason="x86 instructions")
def test_programs_that_do_not_ask_for_tiles_have_none() -> None:
    processor = _with_tiles()
    assert "tdpbf16ps" in module_ir(SINGLE, processor.features, processor.triple)
    assert "tdpbf16ps" not in module_ir(SINGLE, processor.without_tiles().features, processor.triple)
    optimised(module_ir(SINGLE, processor.features, processor.triple), target_machine(processor)).verify()


@pytest.mark.parametrize("combo", [SINGLE, HALF])
def test_masked_loads_do_not_begin_at_null(combo: Combo) -> None:
    """Even if no lane is read, the processor finds a fault first and ignores it then, which takes 20 ns."""
    processor = _with_tiles()
    functions = re.findall(r"^define .*?^}", module_ir(combo, processor.features, processor.triple), re.M | re.S)
    parameters = {re.findall(r"@(\w+)\(", f)[0]: re.findall(r"%\w+", f.split("{")[0]) for f in functions}
    missing: dict[str, set[str]] = {name: set() for name in parameters}
    for text in functions:
        null = {"null", *re.findall(r"(%\w+) = select i1 \S+, (?:ptr \S+, )?ptr null", text)}
        for callee, arguments in re.findall(r"call \w+ @(\w+)\((.*)\)", text):
            given = [argument.split()[-1] for argument in arguments.split(", ")]
            if callee in parameters:
                missing[callee] |= {p for p, v in zip(parameters[callee], given, strict=True) if v in null}
    assert missing["piece_put"]
    for text in functions:
        begins = dict(re.findall(r"(%\w+) = (?:phi ptr \[|getelementptr i8, ptr) (%\w+),", text))
        for place in re.findall(r"@llvm\.masked\.load\.\w+\.p0\(ptr align 1 (%\w+),", text):
            while place in begins:
                place = begins[place]
            assert place not in missing[re.findall(r"@(\w+)\(", text)[0]]
