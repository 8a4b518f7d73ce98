# SPDX-License-Identifier: MIT
"""The generated matrix products against NumPy: dtypes, layouts, sizes, widths, workers, memory around."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from pto_jit.targets.cpu.matmul.blocking import Caches, blocking_of, host_caches
from pto_jit.targets.cpu.matmul.library import Library, Processor, compile_object, module_ir, suffixes
from pto_jit.targets.cpu.matmul.shape import FIXED_A, FIXED_B, Combo, Machine, scheme_of
from tests.targets.matmul_harness import (
    CASES,
    COMBOS,
    DTYPES,
    ENTRY,
    INPUTS,
    OUTPUTS,
    TINY,
    VARIANTS,
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

PRIMES = (1, 2, 3, 5, 7, 13, 17, 31, 47, 61, 97, 127)


def random_case(rng: np.random.Generator, largest: int) -> tuple[tuple[int, int, int], tuple[str, str, str], bool]:
    def size() -> int:
        return int(rng.choice(PRIMES)) if rng.random() < 0.3 else int(rng.integers(1, largest))

    layouts = (str(rng.choice(INPUTS)), str(rng.choice(INPUTS)), str(rng.choice(OUTPUTS)))
    return (size(), size(), size()), layouts, bool(rng.integers(2))


@pytest.mark.parametrize(("variant", "combo"), CASES, ids=lambda x: x if isinstance(x, str) else x.symbol[7:])
def test_random_sizes_and_layouts_agree_with_numpy(
    standin: StandIn, libraries: Callable[..., Library], variant: str, combo: Combo
) -> None:
    rng = np.random.default_rng([3, *combo.symbol.encode()])
    library = libraries(variant)
    for _ in range(20):
        one_product(standin, library, combo, rng, *random_case(rng, 131), workers=(1, 2))


@pytest.mark.parametrize(("variant", "combo"), CASES, ids=lambda x: x if isinstance(x, str) else x.symbol[7:])
def test_few_rows_agree_with_numpy_and_any_number_of_workers_gives_the_same_bits(
    standin: StandIn, libraries: Callable[..., Library], variant: str, combo: Combo
) -> None:
    """With caches so small that B is large and rows of A are copied in parts."""
    rng = np.random.default_rng([7, *combo.symbol.encode()])
    library = libraries(variant, TINY)
    sizes = [(1, 300, 97), (2, 67, 130), (3, 131, 259), (4, 330, 1000), (5, 41, 77), (6, 5, 4600), (7, 77, 66)]
    sizes += [(3, 2500, 500), (8, 1300, 350), (20, 522, 350), (47, 519, 150)]  # so large that workers share them
    for m, n, k in sizes:
        for layouts in (("rows", "rows", "rows"), ("rows", "columns", "rows"), ("columns", "rows", "strided")):
            one_product(standin, library, combo, rng, (m, n, k), layouts, bool(m % 2), workers=(1, 3))
            one_product(standin, library, combo, rng, (n, m, k), layouts, bool(m % 2), workers=(1, 3))


@pytest.mark.parametrize(("variant", "combo"), CASES, ids=lambda x: x if isinstance(x, str) else x.symbol[7:])
def test_products_of_much_k_agree_with_numpy_and_any_number_of_workers_gives_the_same_bits(
    standin: StandIn, libraries: Callable[..., Library], variant: str, combo: Combo
) -> None:
    """Summed in parts of k: two, and several."""
    rng = np.random.default_rng([11, *combo.symbol.encode()])
    for m, n, k in ((60, 35, 4100), (9, 70, 14337)):
        for layouts in (("rows", "rows", "rows"), ("columns", "rows", "strided")):
            one_product(standin, libraries(variant), combo, rng, (m, n, k), layouts, bool(m % 2), workers=(1, 3))


@pytest.mark.parametrize("combo", COMBOS[:1] + COMBOS[3:4] + COMBOS[6:7] + COMBOS[13:14], ids=lambda c: c.symbol[7:])
@pytest.mark.parametrize("variant", ["host", "sse2"])
def test_every_blocking_loop_agrees_with_numpy_and_any_number_of_workers_gives_the_same_bits(
    standin: StandIn, libraries: Callable[..., Library], variant: str, combo: Combo
) -> None:
    if variant not in VARIANTS:
        pytest.skip(f"no {variant} on this processor")
    rng = np.random.default_rng(11)
    library = libraries(variant, TINY)
    for sizes in (
        (200, 150, 260),
        (9, 700, 300),
        (333, 20, 150),
        (65, 310, 131),
        (1, 1500, 400),
        (700, 1, 300),
        (129, 512, 7),
    ):
        for a in ("rows", "columns"):
            for b in ("rows", "columns"):
                one_product(standin, library, combo, rng, sizes, (a, b, "rows"), True, workers=(1, 2, 4))
    one_product(standin, library, combo, rng, (600, 300, 90), ("rows", "strided", "strided"), True, workers=(1, 2, 4))


KEPT = [(*case, None) for case in CASES] + [("host", COMBOS[i], TINY) for i in (0, 3, 6)]


@pytest.mark.parametrize(("variant", "combo", "caches"), KEPT)
def test_an_operand_that_is_kept_packed_changes_no_bit(
    standin: StandIn, libraries: Callable[..., Library], variant: str, combo: Combo, caches: Caches | None
) -> None:
    """The second product of a fixed operand packs it, those after it find it; the operand is not read any more."""
    rng = np.random.default_rng([5, *combo.symbol.encode()])
    entries = libraries(variant, caches).ensure(combo)
    for m, n, k, layout in (
        (60, 70, 90, "rows"),
        (150, 33, 20, "columns"),
        (12, 100, 130, "strided"),
        (97, 64, 7, "rows"),
    ):
        a = laid_out(rng, m, k, DTYPES[combo.a], "rows")
        b = laid_out(rng, k, n, DTYPES[combo.b], layout)
        before = raw(rng, (m, n), DTYPES[combo.c])
        for accumulate in (False, True):
            address = entries.product
            for threads in (1, 3):
                standin.dll.standin_threads(threads)
                plain = before.copy()
                assert call(standin, address, a, b, plain, accumulate) == 0
                standin.dll.standin_forget()
                found, seen = standin.dll.standin_found(), b.copy("K")
                for time in range(4):
                    if time == 3:
                        b[...] = 0  # packed long ago
                    c = before.copy()
                    assert call(standin, address, a, b, c, accumulate, FIXED_B) == 0
                    if time < 3 or standin.dll.standin_found() > found:
                        np.testing.assert_array_equal(c.view(np.uint8), plain.view(np.uint8), err_msg=f"{m}x{n}x{k}")
                repaid = m > 48 or (m > 8 and layout != "rows")
                assert standin.dll.standin_found() - found == (2 if repaid else 0)
                b[...] = seen
                assert standin.dll.standin_live() == 0
    standin.dll.standin_forget()


@pytest.mark.parametrize(("variant", "combo"), CASES, ids=lambda x: x if isinstance(x, str) else x.symbol[7:])
def test_an_operand_beyond_the_caches_that_few_rows_meet_gives_the_same_bits_each_time(
    standin: StandIn, libraries: Callable[..., Library], variant: str, combo: Combo
) -> None:
    """Whether it is packed anew, kept, or read where it lies."""
    rng = np.random.default_rng([13, *combo.symbol.encode()])
    entries = libraries(variant).ensure(combo)
    for m in (7, 21):
        a, b = laid_out(rng, m, 1010, DTYPES[combo.a], "rows"), laid_out(rng, 1010, 1100, DTYPES[combo.b], "rows")
        results = []
        for threads in (1, 3):
            standin.dll.standin_threads(threads)
            standin.dll.standin_forget()
            for _ in range(4):
                results.append(np.zeros((m, 1100), DTYPES[combo.c]))
                assert call(standin, entries.product, a, b, results[-1], False, FIXED_B) == 0
        check(results[0], expected(a, b, results[0], False), (m, combo))
        assert len({c.tobytes() for c in results}) == 1
    standin.dll.standin_forget()


def test_the_left_operand_of_a_product_that_is_written_in_columns_can_be_kept(
    standin: StandIn, libraries: Callable[..., Library]
) -> None:
    rng = np.random.default_rng(8)
    entries = libraries("host").ensure(COMBOS[0])
    a, b = raw(rng, (70, 40), np.dtype("f4")), raw(rng, (40, 90), np.dtype("f4"))
    found = standin.dll.standin_found()
    for _ in range(4):
        c = np.asfortranarray(raw(rng, (70, 90), np.dtype("f4")))
        assert call(standin, entries.product, a, b, c, False, FIXED_A | FIXED_B) == 0
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
    assert standin.dll.standin_found() - found == 2
    standin.dll.standin_forget()


@pytest.mark.parametrize("combo", COMBOS, ids=lambda c: c.symbol[7:])
def test_an_empty_k_writes_zeros_or_leaves_c_alone(
    standin: StandIn, libraries: Callable[..., Library], combo: Combo
) -> None:
    rng = np.random.default_rng(0)
    entries = libraries("host").ensure(combo)
    a, b = np.empty((5, 0), DTYPES[combo.a]), np.empty((0, 7), DTYPES[combo.b])
    address = entries.product
    for threads in (1, 3):
        standin.dll.standin_threads(threads)
        c = raw(rng, (5, 7), DTYPES[combo.c])
        before = c.copy()
        assert call(standin, address, a, b, c, True) == 0
        np.testing.assert_array_equal(c, before)
        assert call(standin, address, a, b[:, :4], c[:, ::2], False) == 0
        assert not c[:, ::2].any()
        np.testing.assert_array_equal(c[:, 1::2], before[:, 1::2])


def test_an_empty_c_touches_nothing(standin: StandIn, libraries: Callable[..., Library]) -> None:
    entries = libraries("host").ensure(COMBOS[0])
    for m, n in ((0, 4), (4, 0), (0, 0)):
        assert ENTRY(entries.product)(standin.worker, m, n, 3, None, 3, 1, None, n, 1, None, n, 1, 0) == 0


def test_writing_c_does_not_read_it(standin: StandIn, libraries: Callable[..., Library]) -> None:
    rng = np.random.default_rng(1)
    for variant, combo in CASES:
        if combo != COMBOS[0]:
            continue
        entries = libraries(variant).ensure(combo)
        for m, n, k in ((1, 33, 9), (7, 50, 64), (40, 100, 600), (300, 70, 40)):
            a, b = raw(rng, (m, k), DTYPES["f32"]), raw(rng, (k, n), DTYPES["f32"])
            for right in (b, np.asfortranarray(b)):
                c = np.full((m, n), np.nan, np.float32)
                assert call(standin, entries.product, a, right, c, False) == 0
                assert np.isfinite(c).all()


def test_infinities_and_nans_stay_in_their_rows_and_columns(
    standin: StandIn, libraries: Callable[..., Library]
) -> None:
    """Padding multiplies by nothing: a NaN in one column of B must not reach another."""
    rng = np.random.default_rng(2)
    for variant, combo in CASES:
        if combo in COMBOS[:4]:
            a, b = raw(rng, (19, 37), DTYPES[combo.a]), raw(rng, (37, 53), DTYPES[combo.b])
            a[4, 11], b[36, 52], b[0, 16] = np.nan, np.nan, np.inf
            c = np.zeros((19, 53), DTYPES[combo.c])
            for right in (b, np.asfortranarray(b)):
                assert call(standin, libraries(variant).ensure(combo).product, a, right, c, False) == 0
                bad = ~np.isfinite(c)
                assert bad[4].all()
                assert bad[:, 52].all()
                assert bad[:, 16].all()
                assert bad.sum() == 53 + 2 * 18


def test_half_precision_values_convert_exactly_with_and_without_hardware(
    standin: StandIn, libraries: Callable[..., Library]
) -> None:
    """Every finite f16 times one, subnormals included."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    every = every[np.isfinite(every)]
    one = np.ones((1, 1), np.float16)
    for variant in ("host", "sse2", "avx2"):
        if variant not in VARIANTS:
            continue
        entries = libraries(variant).ensure(COMBOS[2])
        c = np.empty((1, every.size), np.float32)
        assert call(standin, entries.product, one, every[None], c, False) == 0
        np.testing.assert_array_equal(c[0], every.astype(np.float32))
        c = np.empty((every.size, 1), np.float32)
        assert call(standin, entries.product, every[:, None], one, c, False) == 0
        np.testing.assert_array_equal(c[:, 0], every.astype(np.float32))


def test_the_extreme_bytes_and_words_do_not_saturate(standin: StandIn, libraries: Callable[..., Library]) -> None:
    for variant, combo in CASES:
        if combo.c == "i32":
            low = np.iinfo(DTYPES[combo.a])
            for value in (low.min, low.max):
                a = np.full((9, 70), value, DTYPES[combo.a])
                b = np.full((70, 20), np.iinfo(DTYPES[combo.b]).min, DTYPES[combo.b])
                c = np.empty((9, 20), np.int32)
                assert call(standin, libraries(variant).ensure(combo).product, a, b, c, False) == 0
                np.testing.assert_array_equal(c, a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.skipif(not hasattr(mmap, "MAP_PRIVATE"), reason="needs POSIX memory protection")
@pytest.mark.parametrize(("variant", "combo"), CASES, ids=lambda x: x if isinstance(x, str) else x.symbol[7:])
def test_nothing_outside_the_operands_is_read_or_written(
    standin: StandIn, libraries: Callable[..., Library], variant: str, combo: Combo
) -> None:
    """Each operand ends, or begins, at a page without access; a stray access kills the process."""
    rng = np.random.default_rng(5)
    entries = libraries(variant).ensure(combo)
    for m, n, k in ((1, 3, 5), (3, 1, 7), (5, 17, 33), (13, 49, 67), (1, 130, 61), (1, 65, 130), (50, 75, 19)):
        for at_end in (True, False):
            for transposed in range(8):
                kept, arrays = [], []
                for bit, (rows, columns, name) in enumerate(((m, k, combo.a), (k, n, combo.b), (m, n, combo.c))):
                    shape = (columns, rows) if transposed >> bit & 1 else (rows, columns)
                    room = Guarded(rows * columns * DTYPES[name].itemsize)
                    kept.append(room)
                    array = room.array(shape, DTYPES[name], at_end=at_end)
                    array[...] = raw(rng, shape, DTYPES[name])
                    arrays.append(array.T if transposed >> bit & 1 else array)
                a, b, c = arrays
                truth = expected(a, b, c, True)
                assert call(standin, entries.product, a, b, c, True) == 0
                check(c, truth, (variant, combo, m, n, k, transposed))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("rows", (24, 72))  # one block of rows, and a few
def test_scratch_does_not_grow_with_k(
    standin: StandIn, libraries: Callable[..., Library], variant: str, rows: int
) -> None:
    """Products of few rows, whose B is packed block by block: neither operand is copied whole."""
    rng = np.random.default_rng(11)
    f32, k = np.dtype("f4"), 30001
    entries = libraries(variant, TINY).ensure(COMBOS[0])
    a, b = laid_out(rng, rows, k, f32, "strided"), raw(rng, (k, 100), f32)
    results = []
    for threads in (1, 3):
        standin.dll.standin_threads(threads)
        standin.dll.standin_forget_most()
        results.append(np.zeros((rows, 100), f32))
        assert call(standin, entries.product, a, b, results[-1], False) == 0
        # for each worker what `far` may take with TINY, and blocks of B; and the sums of parts of k
        assert standin.dll.standin_most_held() < threads * (5 << 20) // 4 + 32 * (rows * 512)
        np.testing.assert_allclose(results[-1], a.astype("f8") @ b.astype("f8"), rtol=0, atol=0.02)
    np.testing.assert_array_equal(results[0].view(np.uint8), results[1].view(np.uint8))


ROUNDED = [(variant, combo, caches) for variant, combo in CASES for caches in (None, TINY)
           if scheme_of(combo, Machine.of(VARIANTS[variant].features, VARIANTS[variant].triple)).rounds]  # fmt: skip


@pytest.mark.parametrize(("variant", "combo", "caches"), ROUNDED)
def test_products_that_round_agree_with_numpy_whoever_computes_them(
    standin: StandIn, libraries: Callable[..., Library], variant: str, combo: Combo, caches: Caches | None
) -> None:
    """Strip by strip and at once, from and to any layout; nothing outside C changes."""
    rng = np.random.default_rng(8)
    entries, dtype = libraries(variant, caches).ensure(combo), DTYPES[combo.a]
    cases = [(m, k, n, INPUTS[0], INPUTS[0], "rows")
             for m, k, n in ((1, 33, 70), (5, 0, 9), (20, 8, 1), (600, 130, 24), (601, 260, 17), (300, 100, 200))]  # fmt: skip
    cases += [(330, 150, 26, a, str(rng.choice(INPUTS)), c) for a in INPUTS for c in OUTPUTS]
    for m, k, n, of_a, of_b, of_c in cases:
        a, b = laid_out(rng, m, k, dtype, of_a), laid_out(rng, k, n, dtype, of_b)
        c, what = laid_out(rng, m, n, dtype, of_c), (m, k, n, of_a, of_b, of_c)
        whole = c if c.base is None else c.base
        before, around, results = c.copy(), np.array(whole), []
        value, bound = expected(a, b, np.zeros((m, n), "f4"), False)
        assert bound is not None
        least, most = ((value + far).astype("f4").astype(dtype) for far in (-bound, bound))
        for threads in (1, 3, 16):  # 16: more than there are panels of rows
            standin.dll.standin_threads(threads)
            assert call(standin, entries.named[f"_to_{combo.a}"], a, b, c, False) == 0
            assert ((least <= c) & (c <= most)).all(), what
            results.append(c.copy())
            c[...] = before
            np.testing.assert_array_equal(np.asarray(whole).view(np.uint8), around.view(np.uint8), err_msg=str(what))
        for other in results[1:]:
            np.testing.assert_array_equal(results[0], other, err_msg=str(what))
    assert standin.dll.standin_live() == 0


@pytest.mark.parametrize("of", ["f16", "bf16"])
def test_sums_that_are_rounded_are_not_held_whole(
    standin: StandIn, libraries: Callable[..., Library], of: str
) -> None:
    rng = np.random.default_rng(9)
    entries = libraries("host").ensure(Combo(of, of, "f32"))
    a, b, c = (raw(rng, shape, DTYPES[of]) for shape in ((6000, 64), (64, 300), (6000, 300)))
    standin.dll.standin_threads(1)
    standin.dll.standin_forget_most()
    assert call(standin, entries.named[f"_to_{of}"], a, b, c, False) == 0
    assert standin.dll.standin_most_held() < 6000 * 300 * 4 // 3
    for had in range(1000):  # blocks of scratch memory before there is no more
        standin.dll.standin_fail_after(had)
        failed = call(standin, entries.named[f"_to_{of}"], a, b, c, False)
        standin.dll.standin_fail_after(-1)
        assert standin.dll.standin_live() == 0
        if not failed:
            break
    assert 2 <= had < 999


def test_what_is_rounded_keeps_infinities_and_nans(standin: StandIn, libraries: Callable[..., Library]) -> None:
    for of, large in (("f16", 300), ("bf16", 2e19)):
        one = np.eye(40, dtype=DTYPES[of])
        a = np.full((40, 40), 1, DTYPES[of])
        a[0, 0], a[1, 1], a[2, 2], a[3, 3] = np.nan, np.inf, -np.inf, -np.nan
        a[4:6] = large
        b = one * DTYPES[of].type(large)
        b[~np.eye(40, dtype=bool)] = 0
        for right, row in ((one, 5), (b, 4)):
            c = np.zeros((40, 40), DTYPES[of])
            assert call(standin, libraries("host").ensure(Combo(of, of, "f32")).named[f"_to_{of}"], a, right, c, False) == 0
            with np.errstate(all="ignore"):
                truth = (a.astype("f4") @ right.astype("f4")).astype(DTYPES[of])
            np.testing.assert_array_equal(c.astype("f4"), truth.astype("f4"))
            assert np.isinf(c[row].astype("f4")).all() == (right is b)


SUMMED = [(variant, combo, None) for variant, combo in CASES
          if scheme_of(combo, Machine.of(VARIANTS[variant].features, VARIANTS[variant].triple)).sums]  # fmt: skip
SUMMED += [(variant, combo, TINY) for variant, combo, _ in SUMMED[:1]]


@pytest.mark.parametrize(("variant", "combo", "caches"), SUMMED)
def test_a_sum_of_products_agrees_with_numpy_whoever_computes_it(
    standin: StandIn, libraries: Callable[..., Library], variant: str, combo: Combo, caches: Caches | None
) -> None:
    """Together, and where that is not possible one after another; workers and kept operands change no bit."""
    rng = np.random.default_rng(7)
    entries = libraries(variant, caches).ensure(combo)
    cases = [(m, n, ks, INPUTS[0], "rows") for m, n, ks in
             ((49, 1, (1,)), (60, 33, (64, 64, 64)), (112, 64, (3, 16, 61, 17)), (250, 70, (100, 100, 90, 8)),
              (63, 300, (20, 30)), (20, 40, (8, 9)), (57, 48, (8, 0, 9)), (70, 31, (600, 5)), (62, 250, (300, 520)))]  # fmt: skip
    cases += [(75, 40, (12, 33), a, c) for a in INPUTS for c in OUTPUTS]
    for m, n, ks, layout, out in cases:
        terms = [(laid_out(rng, m, k, DTYPES[combo.a], layout),
                  laid_out(rng, k, n, DTYPES[combo.b], str(rng.choice(INPUTS)))) for k in ks]  # fmt: skip
        c = laid_out(rng, m, n, DTYPES[combo.c], out)
        before, what = c.copy(), (m, n, ks, layout, out)
        a, b = np.concatenate([a for a, _ in terms], 1), np.concatenate([b for _, b in terms], 0)
        for how in (0, 1):
            results, truth = [], expected(a, b, before, bool(how))
            for threads, fixed in ((1, 0), (1, FIXED_B), (1, FIXED_B), (1, FIXED_B), (3, FIXED_B), (3, 0)):
                standin.dll.standin_threads(threads)
                c[...] = before
                assert call_sum(standin, entries.named["_sum"], terms, c, how, fixed) == 0
                check(c, truth, what)
                results.append(c.tobytes())
                assert standin.dll.standin_live() == 0
            assert len(set(results)) == 1, what
            standin.dll.standin_forget()


@pytest.mark.skipif("avx512 without dots" not in VARIANTS, reason="no AVX-512 on this processor")
def test_rows_of_a_are_read_where_they_lie_and_packed_b_is_that_of_all_products(
    standin: StandIn, libraries: Callable[..., Library]
) -> None:
    """Of deep terms, too: scratch is for B alone, a kept copy of which serves products that pack A."""
    rng, f32 = np.random.default_rng(13), np.dtype("f4")
    entries = libraries("avx512 without dots").ensure(COMBOS[0])
    (m, n), depths = (500, 250), (600, 300)
    terms = [(raw(rng, (m, k), f32), raw(rng, (k, n), f32)) for k in depths]
    standin.dll.standin_threads(1)
    standin.dll.standin_forget()
    c = np.zeros((m, n), f32)
    for count in (1, 2):
        standin.dll.standin_forget_most()
        assert call_sum(standin, entries.named["_sum"], terms[:count], c, 0, 0) == 0
        assert standin.dll.standin_most_held() < 4 * 256 * (sum(depths[:count]) + 32) + 4096
        a, b = (np.concatenate([t[i] for t in terms[:count]], 1 - i) for i in (0, 1))
        check(c, expected(a, b, c, False), depths[:count])
    a, b = terms[0]
    for _ in range(2):  # the copy is made when B is met again
        assert call_sum(standin, entries.named["_sum"], terms[:1], c, 0, FIXED_B) == 0
    before = standin.dll.standin_found()
    again = np.zeros((m, n), f32)
    assert call(standin, entries.product, np.asfortranarray(a), b, again, False, FIXED_B) == 0
    assert standin.dll.standin_found() == before + 1
    np.testing.assert_array_equal(again, c)
    standin.dll.standin_forget()


def test_a_sum_without_scratch_is_a_status(standin: StandIn, libraries: Callable[..., Library]) -> None:
    if not SUMMED:
        pytest.skip("no sums of products on this processor")
    rng, f32 = np.random.default_rng(3), np.dtype("f4")
    entries = libraries("host").ensure(COMBOS[0])
    terms = [(raw(rng, (60, 20), f32), raw(rng, (20, 40), f32)) for _ in range(2)]
    standin.dll.standin_fail_after(0)
    status = call_sum(standin, entries.named["_sum"], terms, np.zeros((60, 40), f32), 0, 0)
    standin.dll.standin_fail_after(-1)
    assert status != 0
    assert standin.dll.standin_live() == 0


def test_missing_scratch_is_a_status_and_leaks_nothing(standin: StandIn, libraries: Callable[..., Library]) -> None:
    rng = np.random.default_rng(6)
    for combo in (COMBOS[0], COMBOS[2], COMBOS[6]):
        entries = libraries("host", TINY).ensure(combo)
        a, b = raw(rng, (300, 200), DTYPES[combo.a]), raw(rng, (200, 300), DTYPES[combo.b])
        for c in (np.zeros((300, 300), DTYPES[combo.c]), np.zeros((600, 600), DTYPES[combo.c])[::2, ::2]):
            address = entries.product
            for threads in (1, 3):
                standin.dll.standin_threads(threads)
                standin.dll.standin_fail_after(-1)
                assert call(standin, address, a, b, c, False) == 0
                needed = standin.dll.standin_pushes()
                assert needed > 0
                for n in range(min(needed, 12)):
                    standin.dll.standin_fail_after(n)
                    status = call(standin, address, a, b, c, False)
                    standin.dll.standin_fail_after(-1)
                    assert status != 0
                    assert standin.dll.standin_live() == 0


def test_object_code_is_stored_once_and_loaded_after_that(standin: StandIn) -> None:
    shelf: dict[str, bytes] = {}
    stored: list[str] = []

    def store(key: str, code: bytes) -> None:
        stored.append(key)
        shelf[key] = code

    first = Library(standin.externals, load=shelf.get, store=store)
    second = Library(standin.externals, load=shelf.get, store=store)
    third = Library(standin.externals, caches=TINY, load=shelf.get, store=store)
    for library in (first, second, third):
        one_product(
            standin, library, COMBOS[0], np.random.default_rng(0), (20, 30, 40), ("rows", "rows", "rows"), False
        )
    assert len(stored) == len(set(stored)) == 2


def test_many_threads_asking_for_one_combo_get_one_compilation(standin: StandIn) -> None:
    stored: list[str] = []
    library = Library(standin.externals, store=lambda key, _: stored.append(key))
    found = []
    pool = [threading.Thread(target=lambda: found.append(library.ensure(COMBOS[13]))) for _ in range(6)]
    for thread in pool:
        thread.start()
    for thread in pool:
        thread.join()
    assert len(stored) == 1
    assert len({id(addresses) for addresses in found}) == 1
    assert len(found) == 6


def test_symbols_and_definitions_match() -> None:
    host = Processor.host()
    for combo in COMBOS:
        module = llvm.parse_assembly(module_ir(combo, host.features))
        defined = {f.name for f in module.functions if not f.is_declaration and f.linkage.name == "external"}
        scheme = scheme_of(combo, Machine.of(host.features, host.triple))
        assert defined == {combo.symbol + suffix for suffix in suffixes(scheme)}


@pytest.mark.parametrize("triple", ["aarch64-unknown-linux-gnu", "riscv64-unknown-linux-gnu"])
def test_the_text_for_other_processors_is_valid(triple: str) -> None:
    for combo in COMBOS:
        llvm.parse_assembly(module_ir(combo, "", triple)).verify()


@pytest.mark.parametrize(("combo", "most"), [(Combo("f32", "f32", "f32"), 24_000), (Combo("i8", "i8", "i32"), 7_500)])
def test_the_text_of_a_combo_stays_short(combo: Combo, most: int) -> None:
    """The first product of its dtypes waits until all of it is compiled."""
    vectors = "+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512vnni,+avx512bf16,+fma,+f16c"
    text = module_ir(combo, f"{vectors},+amx-tile,+amx-bf16,+amx-int8", "x86_64-unknown-linux-gnu")
    assert text.count("\n") < most


def test_dtypes_without_a_product_are_refused() -> None:
    machine = Machine.of("", "x86_64")
    for combo in (
        Combo("f32", "i32", "f32"),
        Combo("f64", "f64", "f32"),
        Combo("i8", "i8", "i8"),
        Combo("f16", "f16", "f16"),
    ):
        with pytest.raises(ValueError, match="no matrix product"):
            scheme_of(combo, machine)


def test_the_inner_loop_of_the_largest_tile_keeps_its_sums_in_registers() -> None:
    """No vector is spilled to the stack anywhere in the f32 kernels."""
    from pto_jit.targets.cpu.matmul.library import assembly

    host = Processor.host()
    if Machine.of(host.features, host.triple).arch != "x86":
        pytest.skip("reads x86 assembly")
    for variant in VARIANTS.values():
        if "sse2" in variant.features and "avx2" not in variant.features:
            continue
        text = assembly(COMBOS[0], variant)
        for name in (f"tiles_{v}:" for v in (1, 2)):
            body = text[text.index(f"\n{name}") :]
            body = body[: body.index(".Lfunc_end")]
            spills = [line for line in body.splitlines() if "(%rsp)" in line and ("%zmm" in line or "%ymm" in line)]
            assert not spills, spills[:4]


@pytest.mark.skipif("avx512 without dots" not in VARIANTS, reason="no AVX-512 on this processor")
def test_the_inner_loop_of_packed_operands_is_multiply_adds_and_what_they_need() -> None:
    """An element of A is loaded once for both vectors of B, as an operand in memory or into a register; nothing is
    spilled."""
    from pto_jit.targets.cpu.matmul.library import assembly

    for combo, lanes in ((COMBOS[0], 16), (COMBOS[1], 8)):
        text = assembly(combo, VARIANTS["avx512 without dots"])
        body = text[text.index("\npanels_2:") :]
        body = body[: body.index(".Lfunc_end")]
        assert not [line for line in body.splitlines() if "(%rsp)" in line and "%zmm" in line]
        loop = max(body.split("\n.LBB"), key=lambda part: part.count("vfmadd"))
        instructions = [line.split()[0] for line in loop.splitlines()[1:] if line[:1] == "\t" and line[1:2] not in ".#"]
        multiply_adds, embedded = loop.count("vfmadd"), loop.count(f"{{1to{lanes}}}")
        assert multiply_adds == 4 * 12 * 2
        assert embedded + loop.count("vbroadcasts") == 4 * 12
        assert multiply_adds / len(instructions) > 0.6, loop


def test_block_sizes_follow_the_caches(tmp_path: Path) -> None:
    host = Processor.host()
    scheme = scheme_of(COMBOS[0], Machine.of(host.features, host.triple))
    small, large = blocking_of(scheme, Caches(16 << 10, 256 << 10, 2 << 20)), blocking_of(scheme, Caches())
    assert small.depth <= large.depth
    assert small.near_columns * small.depth <= large.near_columns * large.depth
    for plan in (small, large):
        assert plan.rows % scheme.tile_rows == 0
        assert plan.near_columns % scheme.tile_columns == 0
    assert host_caches(str(tmp_path)) == Caches()
    for index, (level, kind, size) in enumerate(
        (("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M"))
    ):
        place = tmp_path / "cache" / f"index{index}"
        place.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (place / name).write_text(text + "\n")
    assert host_caches(str(tmp_path / "cache")) == Caches(48 << 10, 2 << 20, Caches().l3)


def test_compiled_objects_are_reproducible() -> None:
    host = Processor.host()
    assert compile_object(COMBOS[0], host, TINY) == compile_object(COMBOS[0], host, TINY)


def test_the_parallel_product_gives_the_same_bits_on_pools_of_any_size() -> None:
    """On the real worker pool, called as generated code calls it: from inside an entry, with its worker."""
    runtime = pytest.importorskip("pto_jit.runtime")
    library = Library(runtime.symbols())
    entry_type = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    rng = np.random.default_rng(8)

    def fail(*what: object) -> None:
        raise AssertionError(what)

    for combo, m, n, k in ((COMBOS[0], 300, 700, 520), (COMBOS[0], 3, 5000, 300), (COMBOS[3], 257, 400, 130)):
        a, b = raw(rng, (m, k), DTYPES[combo.a]), raw(rng, (k, n), DTYPES[combo.b])
        address = library.ensure(combo).product
        found = []
        for threads in (1, 2, 4):
            c = np.zeros((m, n), np.float32)

            def body(worker: int, _args: int, _results: int, c: Array = c, address: int = address) -> int:
                ends = (a.ctypes.data, k, 1, b.ctypes.data, n, 1, c.ctypes.data, n, 1)
                return ENTRY(address)(worker, m, n, k, *ends, 0)

            callback = entry_type(body)
            pool = runtime.Runtime(threads)
            place = ctypes.cast(callback, ctypes.c_void_p).value
            runtime.Entry(pool, place, None, holder=None, on_failure=fail).launch([])
            pool.shutdown()
            check(c, expected(a, b, c, False), (combo, m, n, k, threads))
            found.append(c)
        for other in found[1:]:
            np.testing.assert_array_equal(found[0], other)


_AMONG_HOLES = """
import ctypes
import numpy as np
import pto_jit as pto
import pto_jit.language as pl

@pto.jit
def product(a, b, c):
    c[...] = pl.load(a) @ pl.load(b)

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
FAILED = ctypes.c_void_p(-1).value

def mapped(size):
    return libc.mmap(None, size, 0, 0x4022, -1, 0)  # private, anonymous, nothing reserved, no access

mapped(64 << 20)  # what is free above
for page in [mapped(8192) for _ in range(4000)]:
    libc.munmap(page + 4096, 4096)
large = mapped(16 << 30)
assert large != FAILED
while large < mapped(32768) != FAILED:
    pass
a = np.ones((8, 8), np.float32)
c = np.zeros_like(a)
product(a, a, c)
assert (c == 8).all()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="numbers of Linux's mmap")
def test_code_and_constants_lie_together_where_only_holes_between_large_arrays_are_free(tmp_path: Path) -> None:
    """Holes of a page above 16 GiB of memory: a kernel's small sections fit there, its code does not."""
    script = tmp_path / "holes.py"
    script.write_text(_AMONG_HOLES)
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
