# SPDX-License-Identifier: MIT
"""Atomic sums, maxima and minima: written programs run on the CPU, against the interpreter."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import (
    Programs,
    check_interpreted,
    kernels_of,
    mutants,
    needs_compiler,
    ordered,
    races,
    violations,
    written,
)


@pto.jit
def embedding_gradient(ids: pl.Tensor, dy: pl.Tensor, table: pl.Tensor):
    for i in pl.range(ids.shape[0], parallel=True):
        pl.atomic_add(table, [ids[i], 0], pl.load(dy, [i, 0], [1, 96]))


@pto.jit
def layer_norm_gradients(x: pl.Tensor, dy: pl.Tensor, dw: pl.Tensor, db: pl.Tensor):
    for i in pl.range(0, x.shape[0], 8, parallel=True):
        a, g = pl.load(x, [i, 0], [8, 48]), pl.load(dy, [i, 0], [8, 48])
        pl.atomic_add(dw, [0], pl.sum(a * g, axis=0))
        pl.atomic_add(db, [0], pl.sum(g, axis=0))


@pto.jit
def elements(places: pl.Tensor, x: pl.Tensor, n: pl.Tensor, out: pl.Tensor, counts: pl.Tensor):
    for i in pl.range(places.shape[0], parallel=True):
        pl.atomic_add(out, [places[i]], pl.full([1], x[i], pl.f32))
        pl.atomic_add(counts, [places[i]], pl.full([1], n[i], pl.i32))


@pto.jit
def all_types(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor, d: pl.Tensor, e: pl.Tensor,
              out_a: pl.Tensor, out_b: pl.Tensor, out_c: pl.Tensor, out_d: pl.Tensor, out_e: pl.Tensor):  # fmt: skip
    """Columns of the results are cut, and sums of integers wrap."""
    for i in pl.range(0, a.shape[0], 4, parallel=True):
        pl.atomic_add(out_a, [0, 3], pl.load(a, [i, 0], [4, 24]))
        pl.atomic_add(out_b, [0, 3], pl.load(b, [i, 0], [4, 24]))
        pl.atomic_add(out_c, [0, 3], pl.load(c, [i, 0], [4, 24]))
        pl.atomic_add(out_d, [0, 3], pl.load(d, [i, 0], [4, 24]))
        pl.atomic_add(out_e, [0, 3], pl.load(e, [i, 0], [4, 24]))


@pto.jit
def lying_apart(x: pl.Tensor, columns: pl.Tensor, rows: pl.Tensor, planes: pl.Tensor, three: pl.Tensor):
    """Elements that lie apart in memory, and tiles of three axes."""
    for i in pl.range(0, x.shape[0], 8, parallel=True):
        t = pl.load(x, [i, 0], [8, 16])
        pl.atomic_add(columns, [0, 1], pl.sum(t, axis=1, keepdims=True))
        pl.atomic_add(rows.T, [0, 0], t)
        for k in pl.range(2):
            pl.atomic_add(planes[:, k], [0], pl.sum(t, axis=0))
        pl.atomic_add(three, [0, 0, 0], pl.reshape(t, [2, 4, 16]))


@pto.jit
def split_contraction(a: pl.Tensor, b: pl.Tensor, out: pl.Tensor):
    """Each core multiplies a part of the rows of `b`."""
    for k in pl.range(0, b.shape[0], 32, parallel=True):
        acc = pl.zeros([32, 48], pl.f32)
        acc += pl.dot(pl.load(a, [0, k], [32, 32]), pl.load(b, [k, 0], [32, 48]))
        pl.atomic_add(out, [0, 0], acc)


@pto.jit
def beside_products(q: pl.Tensor, w: pl.Tensor, place: pl.Tensor, out: pl.Tensor):
    """What vector cores make of products: each of the two stores its rows once."""
    for i in pl.range(0, q.shape[0], 32, parallel=True):
        for j in pl.range(0, w.shape[1], 32):
            t = pl.dot(pl.load(q, [i, 0], [32, 64]), pl.load(w, [0, j], [64, 32]))
            pl.atomic_add(out, [place[i // 32], 0], pl.maximum(t, 0.0))


@pto.jit
def in_order(x: pl.Tensor, out: pl.Tensor):
    """A sum that is read again by the iteration after it."""
    with pl.incore():
        for i in pl.range(x.shape[0]):
            pl.atomic_add(out, [0, 0], pl.load(x, [i, 0], [1, 40]))
            pl.store(pl.load(out, [0, 0], [1, 40]) * 2.0, [0, 0], out)


def _whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: object = np.float32) -> np.ndarray:
    return rng.integers(-4, 5, shape).astype(dtype)


@pto.jit
def extremes(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor, d: pl.Tensor, e: pl.Tensor,
             out_a: pl.Tensor, out_b: pl.Tensor, out_c: pl.Tensor, out_d: pl.Tensor, out_e: pl.Tensor):  # fmt: skip
    """Columns of the results are cut."""
    for i in pl.range(0, a.shape[0], 4, parallel=True):
        pl.atomic_max(out_a, [0, 3], pl.load(a, [i, 0], [4, 24]))
        pl.atomic_min(out_b, [0, 3], pl.load(b, [i, 0], [4, 24]))
        pl.atomic_max(out_c, [0, 3], pl.load(c, [i, 0], [4, 24]))
        pl.atomic_min(out_d, [0, 3], pl.load(d, [i, 0], [4, 24]))
        pl.atomic_max(out_e, [0, 3], pl.load(e, [i, 0], [4, 24]))


@pto.jit
def pooled(x: pl.Tensor, group: pl.Tensor, n: pl.Tensor, high: pl.Tensor, low: pl.Tensor, last: pl.Tensor):
    """Of rows of groups, of columns that lie apart, and of single elements."""
    for i in pl.range(x.shape[0], parallel=True):
        t = pl.load(x, [i, 0], [1, 40])
        pl.atomic_max(high, [group[i], 0], t)
        pl.atomic_min(low, [0, group[i]], pl.reshape(t, [40, 1]))
        pl.atomic_max(last, [group[i]], pl.full([1], n[i], pl.i32))


@pto.jit
def best_products(q: pl.Tensor, w: pl.Tensor, out: pl.Tensor):
    for i in pl.range(0, q.shape[0], 16, parallel=True):
        t = pl.load(q, [i, 0], [16, 64]) @ pl.load(w, [0, 0], [64, 32])
        pl.atomic_max(out, [0, 0], pl.max(t, axis=0, keepdims=True))


@pto.jit
def of_columns(x: pl.Tensor, out: pl.Tensor):
    """A whole tensor, which is divided."""
    pl.atomic_max(out, [0], pl.max(x[...], axis=0))


_TYPES = (np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint16)
_PL = (pl.f32, pl.f16, pl.bf16, pl.i8, pl.u16)
_EXTREMES = (pl.f32, pl.f16, pl.bf16, pl.i8, pl.i32)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    f, i = pl.f32, pl.i32
    return ordered({
        "embedding": (embedding_gradient, (pto.spec((None,), pl.i64), pto.spec((None, 96), f), pto.spec((None, None), f))),
        "norm": (layer_norm_gradients, (*(pto.spec((None, 48), f),) * 2, *(pto.spec((48,), f),) * 2)),
        "elements": (elements, (pto.spec((None,), i), pto.spec((None,), f), pto.spec((None,), i), pto.spec((None,), f),
                                pto.spec((None,), i))),
        "types": (all_types, (*(pto.spec((None, 24), t) for t in _PL), *(pto.spec((4, None), t) for t in _PL))),
        "apart": (lying_apart, (pto.spec((None, 16), f), pto.spec((8, 3), f), pto.spec((16, 8), f), pto.spec((16, 2), f),
                                pto.spec((2, 4, 16), f))),
        "split": (split_contraction, (pto.spec((32, None), pl.f16), pto.spec((None, 48), pl.f16), pto.spec((32, 48), f))),
        "beside": (beside_products, (pto.spec((None, 64), f), pto.spec((64, None), f), pto.spec((None,), i),
                                     pto.spec((None, 32), f))),
        "extremes": (extremes, (*(pto.spec((None, 24), t) for t in _EXTREMES), *(pto.spec((4, None), t) for t in _EXTREMES))),
        "pooled": (pooled, (pto.spec((None, 40), f), *(pto.spec((None,), i),) * 2, pto.spec((None, 40), f),
                            pto.spec((40, None), f), pto.spec((None,), i))),
        "best": (best_products, (pto.spec((None, 64), f), pto.spec((64, None), f), pto.spec((None, 32), f))),
        "of_columns": (of_columns, (pto.spec((None, None), f), pto.spec((None,), f))),
        "in_order": (in_order, (pto.spec((None, 40), f), pto.spec((1, 40), f))),
    }, tmp_path_factory.mktemp("atomics"))  # fmt: skip


@needs_compiler
@pytest.mark.parametrize(("count", "width"), [(1, 96), (37, 96), (20, 70)])
def test_rows_of_a_table(programs: Programs, count: int, width: int) -> None:
    rng = np.random.default_rng(count)
    inputs = {"ids": rng.integers(0, 5, count), "dy": _whole(rng, (count, 96))}
    check_interpreted(programs, embedding_gradient, "embedding", inputs, {"table": _whole(rng, (5, width))})


@needs_compiler
@pytest.mark.parametrize("count", [8, 43])
def test_columns_of_blocks(programs: Programs, count: int) -> None:
    rng = np.random.default_rng(count)
    inputs = {"x": _whole(rng, (count, 48)), "dy": _whole(rng, (count, 48))}
    outputs = {"dw": _whole(rng, (48,)), "db": np.zeros(48, np.float32)}
    check_interpreted(programs, layer_norm_gradients, "norm", inputs, outputs)


@needs_compiler
def test_single_elements(programs: Programs) -> None:
    rng = np.random.default_rng(3)
    inputs = {"places": rng.integers(0, 7, 50).astype(np.int32), "x": _whole(rng, (50,)), "n": _whole(rng, (50,), np.int32)}
    outputs = {"out": _whole(rng, (7,)), "counts": np.zeros(7, np.int32)}
    check_interpreted(programs, elements, "elements", inputs, outputs)


@needs_compiler
@pytest.mark.parametrize("width", [27, 20])
def test_element_types(programs: Programs, width: int) -> None:
    rng = np.random.default_rng(width)
    names = "abcde"
    inputs = {n: _whole(rng, (12, 24)).astype(t) for n, t in zip(names, _TYPES, strict=True)}
    inputs["d"][:] += 100  # with 100 more, and more, beyond what i8 hold
    outputs = {f"out_{n}": _whole(rng, (4, width)).astype(t) for n, t in zip(names, _TYPES, strict=True)}
    check_interpreted(programs, all_types, "types", inputs, outputs)


@needs_compiler
@pytest.mark.parametrize("width", [27, 20])
def test_maxima_and_minima_of_all_types(programs: Programs, width: int) -> None:
    rng = np.random.default_rng(width)
    names = "abcde"
    kinds = (np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.int32)
    inputs = {n: _whole(rng, (12, 24)).astype(t) for n, t in zip(names, kinds, strict=True)}
    inputs["e"] *= 2**24 + 1
    outputs = {f"out_{n}": np.zeros((4, width), t) for n, t in zip(names, kinds, strict=True)}
    check_interpreted(programs, extremes, "extremes", inputs, outputs)


@needs_compiler
def test_maxima_of_groups(programs: Programs) -> None:
    rng = np.random.default_rng(4)
    inputs = {"x": _whole(rng, (30, 40)), "group": rng.integers(0, 5, 30).astype(np.int32),
              "n": _whole(rng, (30,), np.int32)}  # fmt: skip
    outputs = {"high": np.full((5, 40), -np.inf, np.float32), "low": np.zeros((40, 5), np.float32),
               "last": np.zeros(5, np.int32)}  # fmt: skip
    check_interpreted(programs, pooled, "pooled", inputs, outputs)


@needs_compiler
def test_maxima_of_products_and_of_whole_tensors(programs: Programs) -> None:
    rng = np.random.default_rng(9)
    inputs = {"q": _whole(rng, (80, 64)), "w": _whole(rng, (64, 32))}
    check_interpreted(programs, best_products, "best", inputs, {"out": np.zeros((1, 32), np.float32)})
    x = _whole(rng, (300, 90))
    check_interpreted(programs, of_columns, "of_columns", {"x": x}, {"out": np.zeros(90, np.float32)})


@needs_compiler
def test_elements_that_lie_apart(programs: Programs) -> None:
    rng = np.random.default_rng(5)
    outputs = {"columns": _whole(rng, (8, 3)), "rows": _whole(rng, (16, 8)), "planes": _whole(rng, (16, 2)),
               "three": _whole(rng, (2, 4, 16))}  # fmt: skip
    check_interpreted(programs, lying_apart, "apart", {"x": _whole(rng, (24, 16))}, outputs)


@needs_compiler
def test_products(programs: Programs) -> None:
    rng = np.random.default_rng(6)
    inputs = {"a": _whole(rng, (32, 96), np.float16), "b": _whole(rng, (96, 48), np.float16)}
    check_interpreted(programs, split_contraction, "split", inputs, {"out": _whole(rng, (32, 48))})


@needs_compiler
def test_beside_products(programs: Programs) -> None:
    rng = np.random.default_rng(7)
    inputs = {"q": _whole(rng, (80, 64)), "w": _whole(rng, (64, 96)), "place": np.array([1, 0, 1], np.int32)}
    check_interpreted(programs, beside_products, "beside", inputs, {"out": _whole(rng, (40, 32))})


@needs_compiler
def test_sums_that_are_read(programs: Programs) -> None:
    rng = np.random.default_rng(8)
    check_interpreted(programs, in_order, "in_order", {"x": _whole(rng, (6, 40))}, {"out": _whole(rng, (1, 40))})


def test_each_flag_is_needed() -> None:
    (kernel,) = kernels_of(written(in_order, pto.spec((None, 40), pl.f32), pto.spec((1, 40), pl.f32)))
    found = list(mutants(kernel))
    assert len(found) > 4
    for what in mutants(kernel):
        assert races(kernel), what


def test_instructions_are_atomic() -> None:
    (kernel,) = kernels_of(written(split_contraction, pto.spec((32, None), pl.f16), pto.spec((None, 48), pl.f16),
                                   pto.spec((32, 48), pl.f32)))  # fmt: skip
    assert violations(kernel) == []
    assert "TSTORE<decltype(" in written(
        embedding_gradient, pto.spec((None,), pl.i64), pto.spec((None, 96), pl.f32), pto.spec((None, None), pl.f32)
    ).sources["embedding_gradient_incore_0.cpp"]


def test_transfers_that_take_maxima_are_told_so() -> None:
    """And those after them are not."""
    kinds = (*(pto.spec((None, 24), t) for t in _EXTREMES), *(pto.spec((4, None), t) for t in _EXTREMES))
    text = written(extremes, *kinds).sources["extremes_incore_0.cpp"]
    for kind, how in (("f32", "max"), ("f16", "min"), ("bf16", "max"), ("s8", "min"), ("s32", "max")):
        lines = text.split(f"set_atomic_{kind}();")[1].splitlines()[1:4]
        assert [line.split("(")[0].strip() for line in lines] == [f"set_atomic_{how}", "TSTORE", "set_atomic_none"]


@pytest.mark.parametrize("dtype", [pl.u16, pl.u32])
def test_maxima_of_unsigned_integers_are_refused(dtype: object) -> None:
    @pto.jit
    def kernel(x: pl.Tensor, out: pl.Tensor):
        for i in pl.range(x.shape[0], parallel=True):
            pl.atomic_max(out, [0, 0], pl.load(x, [i, 0], [1, 32]))

    with pytest.raises(pto.TargetError, match=f"tiles of {dtype}"):
        written(kernel, pto.spec((None, 32), dtype), pto.spec((1, 32), dtype))  # type: ignore[arg-type]


@pytest.mark.parametrize(("dtype", "said"), [(pl.u8, "tiles of u8"), (pl.f64, "tiles of f64")])
def test_refused_types(dtype: object, said: str) -> None:
    @pto.jit
    def kernel(x: pl.Tensor, out: pl.Tensor):
        for i in pl.range(x.shape[0], parallel=True):
            pl.atomic_add(out, [0, 0], pl.load(x, [i, 0], [1, 32]))

    with pytest.raises(pto.TargetError, match=said):
        written(kernel, pto.spec((None, 32), dtype), pto.spec((1, 32), dtype))  # type: ignore[arg-type]
