# SPDX-License-Identifier: MIT
"""Unsigned integers: what gives the same bits as with signed ones is written, and run on the CPU against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import TargetError
from pto_jit.targets.ascend.ordering import races

from .harness import SEEDS, Programs, kernels_of, needs_compiler, written


@pto.jit
def mixed(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor, same: pl.Tensor, sums: pl.Tensor):
    """Sums and products that wrap, bits, and what is equal; no order, no quotient."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            a, b = pl.load(x, [r, 0], [8, 48]), pl.load(y, [r, 0], [8, 48])
            t = (a * b + (a - b) * 3) << 1
            pl.store(pl.where(a == b, t | a, ~t & b), [r, 0], out)
            pl.store(pl.where(a != 65535, a, b), [r, 0], same)
            pl.store((a + b).to(pl.i32 if a.dtype == pl.u32 else pl.i16), [r, 0], sums)


@pto.jit
def elements(x: pl.Tensor, y: pl.Tensor):
    for i in pl.range(x.shape[0], parallel=True):
        y[i] = x[i] * x[i] - 1


@pto.jit
def ordered(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor, kept: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            a, b = pl.load(x, [r, 0], [8, 48]), pl.load(y, [r, 0], [8, 48])
            pl.store(pl.minimum(pl.maximum(a, b), 40000), [r, 0], out)
            pl.store(pl.where((a < b) | (a >= 60000), a, b), [r, 0], kept)


@pto.jit
def widest(x: pl.Tensor, out: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            pl.store(pl.max(pl.load(x, [r, 0], [8, 48]), axis=1, keepdims=True), [r, 0], out)


@pto.jit
def padded(x: pl.Tensor, out: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            pl.store(pl.load(x, [r, 5], [8, 48], pad=4294967290), [r, 0], out)


@pto.jit
def converted(x: pl.Tensor, y: pl.Tensor, wide: pl.Tensor, small: pl.Tensor, places: pl.Tensor, back: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t = pl.load(x, [r, 0], [8, 48])
            pl.store(t.to(pl.f32) * 0.5, [r, 0], wide)
            pl.store(t.to(pl.f16), [r, 0], small)
            pl.store(t.to(pl.i32) + 1, [r, 0], places)
            pl.store(pl.load(y, [r, 0], [8, 48]).to(pl.u16), [r, 0], back)


@pto.jit
def divided(x: pl.Tensor, y: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            pl.store(pl.load(x, [r, 0], [8, 48]) // 3, [r, 0], y)


U32, U16 = pto.spec((None, 48), pl.u32), pto.spec((None, 48), pl.u16)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    made = {
        "uint32": written(mixed, U32, U32, U32, U32, pto.spec((None, 48), pl.i32)),
        "uint16": written(mixed, U16, U16, U16, U16, pto.spec((None, 48), pl.i16)),
        "ordered_uint32": written(ordered, U32, U32, U32, U32),
        "ordered_uint16": written(ordered, U16, U16, U16, U16),
        "padded": written(padded, U32, U32),
        "converted": written(converted, U16, *(pto.spec((None, 48), t) for t in (pl.f32, pl.f32, pl.f16, pl.i32, pl.u16))),
        "widest": written(widest, U32, pto.spec((None, 1), pl.u32)),
        "elements": written(elements, pto.spec((None,), pl.u32), pto.spec((None,), pl.u32)),
    }
    assert all(races(kernel) == [] for program in made.values() for kernel in kernels_of(program))
    return Programs(made, tmp_path_factory.mktemp("ascend"))


@needs_compiler
@pytest.mark.parametrize("dtype", ["uint32", "uint16"])
def test_what_has_the_same_bits_is_written(programs: Programs, dtype: str) -> None:
    top = np.iinfo(dtype).max
    x, y = np.random.default_rng(2).integers(0, top, (2, 19, 48), dtype=dtype, endpoint=True)
    x[:, ::3], y[::2, ::5], x[3, 4:9] = y[:, ::3], top, 65535
    t = (x * y + (x - y) * x.dtype.type(3)) << x.dtype.type(1)
    wanted = np.where(x == y, t | x, ~t & y), np.where(x != 65535, x, y), (x + y).view(dtype[1:])
    for seed in SEEDS:
        got = [np.zeros_like(w) for w in wanted]
        programs.run(dtype, seed, **dict(zip(("x", "y", "out", "same", "sums"), (x, y, *got), strict=True)))
        assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))


@needs_compiler
@pytest.mark.parametrize("dtype", ["uint32", "uint16"])
def test_an_order_is_that_of_numbers_with_the_other_highest_bit(programs: Programs, dtype: str) -> None:
    top = np.iinfo(dtype).max
    x, y = np.random.default_rng(4).integers(0, top, (2, 19, 48), dtype=dtype, endpoint=True)
    x[:, ::3], y[::2, ::5], x[3, 4:9], x[:, 7] = y[:, ::3], top, 0, top // 2 + 1
    wanted = np.minimum(np.maximum(x, y), 40000), np.where((x < y) | (x >= 60000), x, y)
    got = [np.zeros_like(x) for _ in wanted]
    programs.run(f"ordered_{dtype}", 0, x=x, y=y, out=got[0], kept=got[1])
    assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))


@needs_compiler
def test_conversions_of_16_bits_are_exact(programs: Programs) -> None:
    x = np.random.default_rng(7).integers(0, 2**16, (19, 48), dtype=np.uint16)
    x[2, :6] = [0, 1, 32767, 32768, 65535, 2049]
    y = x.astype(np.float32) + np.float32(0.75)
    y[2, :8] = [-1, 0.5, 70000, 2e9, -2e9, 65535.5, -0.25, 32768]
    wide, small = np.zeros(x.shape, np.float32), np.zeros(x.shape, np.float16)
    places, back = np.zeros(x.shape, np.int32), np.zeros_like(x)
    programs.run("converted", 0, x=x, y=y, wide=wide, small=small, places=places, back=back)
    with np.errstate(over="ignore"):
        assert np.array_equal(small, x.astype(np.float16))
    assert np.array_equal(wide, x * np.float32(0.5))
    assert np.array_equal(places, x.astype(np.int32) + 1)
    np.testing.assert_array_equal(back, np.trunc(y).clip(0, 65535).astype(np.uint16))


@needs_compiler
def test_a_maximum_of_rows(programs: Programs) -> None:
    x = np.random.default_rng(5).integers(0, 2**32, (19, 48), dtype=np.uint32)
    x[3] = np.arange(48)
    out = np.zeros((19, 1), np.uint32)
    programs.run("widest", 0, x=x, out=out)
    assert np.array_equal(out, x.max(1, keepdims=True))


@needs_compiler
def test_a_pad_value_is_the_same_bits(programs: Programs) -> None:
    x = np.random.default_rng(6).integers(0, 2**32, (24, 48), dtype=np.uint32)
    out = np.zeros_like(x)
    programs.run("padded", 0, x=x, out=out)
    assert np.array_equal(out, np.pad(x[:, 5:], ((0, 0), (0, 5)), constant_values=4294967290))


@needs_compiler
def test_elements_are_taken_in_lines(programs: Programs) -> None:
    x = np.random.default_rng(3).integers(0, 2**32, 5000, dtype=np.uint32)
    y = np.zeros_like(x)
    programs.run("elements", 0, x=x, y=y)
    assert np.array_equal(y, x * x - np.uint32(1))


@pto.jit
def folded(x: pl.Tensor, total: pl.Tensor, product: pl.Tensor):
    s, t = x[0], x[1]
    for i in pl.range(x.shape[0], parallel=True):
        s += x[i]
        t *= x[i]
    total[0], product[0] = s, t


@needs_compiler
def test_sums_and_products_of_short_integers_wrap(tmp_path: Path) -> None:
    types = {"u32": np.uint32, "u16": np.uint16, "i16": np.int16, "u8": np.uint8, "i8": np.int8}
    programs = Programs({name: written(folded, *(pto.spec((None,), getattr(pl, name)),) * 3) for name in types}, tmp_path)
    for name, dtype in types.items():
        x = (np.random.default_rng(8).integers(0, 2**40, 300) * 2 + 1).astype(dtype)
        total, product = np.zeros(1, dtype), np.zeros(1, dtype)
        programs.run(name, 1, x=x, total=total, product=product)
        assert total[0] == np.append(x, x[0]).sum(dtype=dtype)
        assert product[0] == np.append(x, x[1]).prod(dtype=dtype)


def test_a_quotient_is_refused_by_the_name_of_the_type() -> None:
    with pytest.raises(TargetError, match=r"PTO-X210: .* tiles of u32 on the vector core"):
        written(divided, U32, U32)
