# SPDX-License-Identifier: MIT
"""What is computed of whole tensors, of any size, is divided among the blocks and cores of devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from tests.targets.ascend.harness import Programs, check_interpreted, ordered
from tests.targets.cuda.harness import emulated, needs_compiler

SHAPES = [(5, 7), (1, 1), (33, 1100), (300, 3), (64, 64)]
UNEVEN = [(5, 7), (33, 1100), (300, 3)]
EMPTY = [(0, 4), (4, 0)]


def shifted(x, z, y):
    y[1:] = x[:-1] + z[1:]
    y += 1.0


def softmax(x, z, y):
    e = pl.exp(x - pl.max(x, axis=1, keepdims=True))
    y[...] = e / pl.sum(e, axis=1, keepdims=True)


def layer_norm(x, z, y):
    n = x.shape[1]
    mean = pl.sum(x, axis=1, keepdims=True) / n
    variance = pl.sum(pl.square(x - mean), axis=1, keepdims=True) / n
    y[...] = (x - mean) * pl.rsqrt(variance + 1e-5) * z[0]


def down(x, z, y):
    y[...] = x - pl.max(x, axis=0)


def of_rows(x, z, y):
    y[:, 0] = pl.sum(x * z, axis=1)


def of_columns(x, z, y):
    y[0] = pl.sum(x, axis=0)


def two_results(x, z, y):
    with pl.incore():
        t = pl.load(x)
        pl.store(t + 1.0, y)
        pl.store(t * t, z)


def in_place(x, z, y):
    y -= 0.125 * z


def generated(x, z, y):
    with pl.incore():
        y[...] = x * pl.full(x.shape, 2.0, pl.f32) + pl.arange(x.shape[1], dtype=pl.f32)


def part(x, z, y):
    """As many rows as there are."""
    with pl.incore():
        pl.store(pl.load(x, [1, 0], [x.shape[0], x.shape[1]]) * 2.0, [0, 0], y)


def of_a_vector(x, z, y):
    """A sum that every row needs."""
    y[...] = x / (pl.sum(z[0] * z[0]) + 1.0)


def outer(x, z, y):
    y[...] = x[:, 0][:, None] * z[0][None, :]


def turned(x, z, y):
    """Of transposed tensors squares are parts, where they are transposed on chip."""
    y[: min(x.shape), : min(x.shape)] = pl.exp(x.T[: min(x.shape), : min(x.shape)]) + z[: min(x.shape), : min(x.shape)]


def turned_sum(x, z, y):
    with pl.incore():
        pl.store(pl.sum(pl.load(x.T) * 2.0, axis=0), [0], y[:, 0])


def moved_within(x, z, y):
    """All of it is read before any of it is written."""
    y[1:] = y[:-1] + z[1:]
    z[:, 1:] = (z[:, :-1] + x[:, 1:]) * 0.5


def means(x, z, y):
    """How many there are is asked for, of the whole row."""
    y[...] = (x - pl.mean(x, axis=1, keepdims=True)) * z


def on_branches(x, z, y):
    for k in pl.range(3):
        if k != 1:
            y[...] = y + x * float(k)


def beside_loops(x, z, y):
    """Loops and branches are those of the host where something inside of them is divided."""
    y += x
    for _ in pl.range(2):
        y[...] = y * 0.5 + x
        if x.shape[0] > 20:
            z[1:] = y[1:] - 1.0
        else:
            z *= 0.5
    n = 1
    while n < x.shape[1]:
        z += float(n) * x
        n = n * 8
    y -= z


def two_at_once(x, z, y):
    """The lines of one are not those of the other, and what is stored last was computed first."""
    t = pl.zeros(x.shape, pl.f32)
    u = x - pl.max(x, axis=1, keepdims=True)
    t[...] = pl.cumsum(x, axis=0)
    z[...] = u
    y[...] = t


def handed_on(x, z, y):
    """Tiles that loops and branches read, make and change."""
    t = x * 2.0
    m = pl.max(x, axis=1, keepdims=True)
    for _ in pl.range(2):
        t = t * 0.5 + y
        if x.shape[0] > 20:
            z += t - m
    u = t
    if x.shape[1] > 20:
        u = u - z
    y[...] = t + u * 2.0


@pto.incore
def scaled(x, y):
    pl.store(pl.load(x) * 3.0, y)
    pl.store(pl.load(y) + 1.0, y)


def by_name(x, z, y):
    scaled(x, y)
    scaled(z, z)


def by_elements(x, z, y):
    """Elements are read by those who need them, and numbers that are made of elements are made there."""
    last = z[0, z.shape[1] - 1]
    y[...] = pl.where(x > last, x * z[0, 0], 1.0 - last) + pl.full(x.shape, pl.exp(last), pl.f32)
    z[0, 0] = last * 2.0


def by_an_element_of_its_own(x, z, y):
    """Which is changed by one part, and read for all."""
    y[...] = (y - y[0, 0]) * z


KERNELS = {fn.__name__: pto.jit(fn) for fn in (
    shifted, softmax, layer_norm, down, of_rows, of_columns, two_results, in_place, generated, part, of_a_vector, outer, turned,
    turned_sum, on_branches, beside_loops, two_at_once, handed_on, by_name, moved_within, means,
    by_elements, by_an_element_of_its_own,
)}  # fmt: skip


def arguments(shape: tuple[int, int]) -> list[np.ndarray]:
    return list(np.random.default_rng(0).standard_normal((3, *shape), np.float32))


def close(got: np.ndarray, wanted: np.ndarray, err_msg: str = "") -> None:
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5, err_msg=err_msg)


@needs_compiler
@pytest.mark.parametrize("name", KERNELS)
def test_cuda_computes_what_the_processor_computes(name: str) -> None:
    """Of one element and of whole tiles where that is a case of its own: every shape has kernels to be compiled."""
    fn, every = KERNELS[name], ("shifted", "softmax", "in_place", "part", "outer", "turned", "beside_loops", "moved_within")
    shapes = SHAPES if name in every else UNEVEN
    for shape in shapes + (EMPTY[1:] if name in ("two_results", "in_place", "generated", "on_branches") else []):
        wanted = arguments(shape)
        fn(*wanted)
        for got, value in zip(emulated(fn, *arguments(shape), orders=(0, 5))[1], wanted, strict=True):
            close(got, value, f"{name} of {shape}")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    spec = pto.spec((None, None), pl.f32)
    return ordered({name: (fn, (spec,) * 3) for name, fn in KERNELS.items()}, tmp_path_factory.mktemp("wholes"))


@needs_compiler
@pytest.mark.parametrize("name", KERNELS)
def test_ascend_computes_what_the_interpreter_computes(programs: Programs, name: str) -> None:
    for shape in SHAPES[:2] if name in ("of_a_vector", "turned_sum") else SHAPES:  # rows of z, columns of x.T stay whole
        x, z, y = arguments(shape)
        check_interpreted(programs, KERNELS[name], name, {"x": x}, {"z": z, "y": y}, close)


@pytest.mark.parametrize("target", ["cuda", "ascend"])
@pytest.mark.parametrize("name", KERNELS)
def test_all_of_it_is_divided(name: str, target: str) -> None:
    spec = pto.spec((None, None), pl.f32)
    text = KERNELS[name].compile(spec, spec, spec, target=target).ir("divided")
    stores = [line for line in text.splitlines() if "tstore" in line]
    assert stores and all(line.startswith("      ") for line in stores), "each is in a loop and a scope"


def test_lines_of_two_operations_take_two_loops_and_loops_are_left() -> None:
    @pto.jit
    def all_of_it(x):
        x -= pl.cumsum(pl.cumsum(x, axis=0), axis=1)

    @pto.jit
    def looped(x):
        for r in pl.range(x.shape[0], parallel=True):
            x[r] = x[r] * 2.0

    spec = pto.spec((None, None), pl.f32)
    assert looped.compile(spec, target="cuda").ir("divided").count("FOR %") == 1
    text = all_of_it.compile(spec, target="cuda").ir("divided")
    fitting = [part.split("ELSE")[0] for part in text.split("IF %fits")[1:]]  # lines that a block has room for
    assert [part.count("FOR %") for part in fitting] == [1, 1]


def normalised(x, z, y):
    """Two values that need all of a tensor, and are needed by all of another one."""
    low = pl.min(x)
    y[...] = (x - low) / (pl.max(x) - low + 1.0)


def softmax_of_all(x, z, y):
    e = pl.exp(x - pl.max(x))
    y[...] = e / pl.sum(e)


def variance(x, z, y):
    y[0, 0] = pl.mean(pl.square(x - pl.mean(x)))


def distance(x, z, y):
    y[0, 0] = pl.max(pl.abs(x - z))


def of_reductions(x, z, y):
    """Rows stay whole, and there are many of them."""
    y[0, 0] = pl.sum(pl.max(x, axis=1))


def kept(x, z, y):
    y[...] = x - pl.max(x, keepdims=True)


def truths(x, z, y):
    y[0, 0] = pl.any(x > 3.0).to(pl.f32) + 2.0 * pl.all(z > -9.0).to(pl.f32)


def places(x, z, y):
    y[0, 0] = pl.argmax(x).to(pl.f32) + pl.argmin(pl.abs(x - z)).to(pl.f32)


def places_of_truths(x, z, y):
    y[:, 0] = pl.argmax(x > 1.0, axis=1).to(pl.f32)
    y[0] = pl.argmin(x < 1.0, axis=0).to(pl.f32)
    y[0, 0] = pl.argmax(x > 2.0).to(pl.f32)


def after_a_store(x, z, y):
    """What is written is read: there is no loop in front of the store."""
    with pl.incore():
        pl.store(pl.load(x) * 2.0, y)
        top = pl.max(pl.load(y))
        pl.store(pl.load(z) * top, z)


def behind_stores(x, z, y):
    """What is reduced was made before something was written that it may be made of."""
    t = x * z
    z[...] = t - pl.max(t, axis=1, keepdims=True)
    y[...] = pl.abs(t)
    y[0, 0] = pl.sum(t * z) + pl.argmax(t).to(pl.f32)


def counted_behind_stores(x, z, y):
    """Truth values are what is kept, and not the integers of 64 bits that are added up."""
    m = x > 0.0
    z[...] = pl.where(m, x, z)
    y[0, 0] = pl.sum(m.to(pl.i32)).to(pl.i32).to(pl.f32)


def of_a_part_behind_stores(x, z, y):
    """Of a part of which less is there than is declared."""
    t = x[1:, :9] * 2.0
    z += 1.0
    y[0, 0] = pl.sum(t * 3.0)


@pto.incore
def below_the_largest(x, y):
    pl.store(pl.load(x) - pl.max(pl.load(x)), y)


def totals_by_name(x, z, y):
    below_the_largest(x, y)
    below_the_largest(z, z)


TOTALS = {fn.__name__: pto.jit(fn) for fn in (
    normalised, softmax_of_all, variance, distance, of_reductions, kept, truths, places, places_of_truths, after_a_store,
    totals_by_name, behind_stores, counted_behind_stores, of_a_part_behind_stores,
)}  # fmt: skip
LARGE = [(5, 7), (33, 1100)]


@needs_compiler
@pytest.mark.parametrize("name", TOTALS)
def test_cuda_reduces_any_number_of_elements_to_one_value(name: str) -> None:
    fn = TOTALS[name]
    for shape in LARGE:
        wanted = arguments(shape)
        fn(*wanted)
        for got, value in zip(emulated(fn, *arguments(shape), orders=(5,))[1], wanted, strict=True):
            close(got, value, f"{name} of {shape}")


@needs_compiler
def test_ascend_reduces_any_number_of_elements_to_one_value(tmp_path: Path) -> None:
    spec = pto.spec((None, None), pl.f32)
    compiled = ordered({name: (fn, (spec,) * 3) for name, fn in TOTALS.items()}, tmp_path)
    for name, fn in TOTALS.items():
        for shape in LARGE:
            x, z, y = arguments(shape)
            check_interpreted(compiled, fn, name, {"x": x}, {"z": z, "y": y}, close)


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int32, np.int8, np.float64])
def test_values_of_vectors_of_any_dtype(dtype: type) -> None:
    @pto.jit
    def values(x, total, most, least, where):
        total[0] = pl.sum(x)
        most[0] = pl.max(x)
        least[0] = pl.min(x)
        where[0] = pl.argmax(x)

    x = np.random.default_rng(0).integers(-5, 6, 30001).astype(dtype)
    x[20000] = 7
    wide = dtype if np.dtype(dtype).kind != "i" else np.int64
    out = [np.zeros(1, wide), np.zeros(1, dtype), np.zeros(1, dtype), np.zeros(1, np.int32)]
    _, (_, total, most, least, where) = emulated(values, x, *out, orders=(0,))
    exact = x.astype(np.float64).sum()
    assert float(total[0]) == float(np.float64(exact).astype(dtype)) if np.dtype(dtype).kind != "i" else exact
    assert (float(most[0]), float(least[0]), int(where[0])) == (7.0, -5.0, 20000)


@needs_compiler
def test_the_place_of_a_nan_is_that_of_the_first_one() -> None:
    @pto.jit
    def place(x):
        return pl.argmax(x), pl.argmin(x), pl.max(x)

    x = np.random.default_rng(0).standard_normal((130, 1200), np.float32)
    x[100, 7] = x[120, 3] = np.nan
    results, _ = emulated(place, x, orders=(0,))
    assert results[:2] == (100 * 1200 + 7, 100 * 1200 + 7) and np.isnan(results[2])
    results, _ = emulated(place, np.zeros((0, 5), np.float32), orders=(0,))
    assert results == place(np.zeros((0, 5), np.float32)) == (0, 0, -np.inf)


@needs_compiler
@pytest.mark.parametrize("shape", [(6, 7), (40, 300)])
def test_places_are_counted_in_what_a_tile_is_declared_to_be(shape: tuple[int, int]) -> None:
    @pto.jit
    def places(x, where):
        n, m = x.shape
        where[0] = pl.argmin(pl.load(x, [2, 3], [n, m]))  # n - 2 rows of m - 3 columns
        where[1] = pl.argmax(pl.load(x, [0, 3], [n, m]))
        for r in pl.range(2, 4):
            where[r] = pl.argmin(pl.load(x, [r, 3], [1, m]))

    x = np.random.default_rng(1).standard_normal(shape, np.float32)
    x[-1, -2:] = 9, -9
    _, (_, where) = emulated(places, x, np.zeros(4, np.int32))
    n, m = shape
    assert where.tolist() == [(n - 3) * m + m - 4, (n - 1) * m + m - 5, *x[2:4, 3:].argmin(axis=1)]


def test_the_parts_of_a_value_are_told() -> None:
    spec = pto.spec((None, None), pl.f32)
    compiled = TOTALS["distance"].compile(spec, spec, spec, target="cuda")
    assert any("what is reduced to one value is divided: parts of 8 x 1024" in str(d) for d in compiled.decisions)


@pto.jit
def returned(x, y):
    return x + y[0], pl.cumsum(x[1:], axis=0), pl.max(x * y, axis=1)


@needs_compiler
@pytest.mark.parametrize("shape", [(5, 7), (300, 700)])
def test_results_are_divided(shape: tuple[int, int]) -> None:
    x, y, _ = arguments(shape)
    results, _ = emulated(returned, x, y, orders=(0,))
    for result, value in zip(results, returned(x, y), strict=True):
        close(np.asarray(result), value)
    text = returned.compile(x, y, target="ascend").ir("divided")
    assert all(line.startswith("      ") for line in text.splitlines() if "tstore" in line)


@needs_compiler
def test_extents_that_differ_are_errors_before_anything_runs() -> None:
    @pto.jit
    def added(x, z, y):
        y[...] = x + z

    x = np.ones((4, 2048), np.float32)
    for other, axis in ((np.ones((4, 1024), np.float32), 1), (np.ones((3, 2048), np.float32), 0)):
        y = np.zeros_like(x)
        for run in (added, lambda *a: emulated(added, *a, orders=(0,))):
            with pytest.raises(pto.LaunchError, match=f"PTO-H202: .* differ along axis {axis}: (.*\n)*.*x \\+ z"):
                run(x, other, y)
        assert not y.any()


@needs_compiler
@pytest.mark.parametrize("rows", [0, 3])
def test_a_load_of_less_than_the_tensor_has(rows: int) -> None:
    @pto.jit
    def some(x, n, y):
        with pl.incore():
            pl.store(pl.load(x, [0, 0], [n, x.shape[1]]) * 2.0, [0, 0], y)

    x = np.ones((5, 1030), np.float32)
    _, (_, _, y) = emulated(some, x, rows, np.zeros_like(x))
    assert (y[:rows] == 2).all() and not y[rows:].any()
    with pytest.raises(pto.LaunchError, match=r"PTO-H203: .*the extent -1 along axis 0 is negative"):
        emulated(some, x, -1, np.zeros_like(x))


def test_the_decision_is_told() -> None:
    spec = pto.spec((None, None), pl.f32)
    compiled = KERNELS["softmax"].compile(spec, spec, spec, target="cuda")
    assert any("what is computed of whole tensors is divided" in str(d) for d in compiled.decisions)


def test_loads_of_the_same_are_one() -> None:
    """On chip, where there is room: a row that is loaded again need not stay there."""
    text = KERNELS["layer_norm"].compile(*[pto.spec((None, None), pl.f32)] * 3, target="cuda").ir("kernels")
    assert text.split("func @")[2].count("tload %x[") == 1
    for columns, loads in ((1024, 1), (None, 3)):
        sources = KERNELS["layer_norm"].compile(*[pto.spec((None, columns), pl.f32)] * 3, target="ascend").sources
        assert next(t for n, t in sources.items() if n.endswith(".cpp")).count("TLOAD(x") == loads


@pto.jit
def attended(x, w, y):
    """Rows of a product of any size."""
    a = x @ w
    e = pl.exp(a - pl.max(a, axis=1, keepdims=True))
    y[...] = e / pl.sum(e, axis=1, keepdims=True)


@needs_compiler
@pytest.mark.parametrize(("rows", "depth", "columns"), [(5, 7, 3), (200, 40, 700)])
def test_what_follows_a_product_is_divided_too(rows: int, depth: int, columns: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((rows, depth), np.float32), rng.standard_normal((depth, columns), np.float32)
    wanted = np.zeros((rows, columns), np.float32)
    attended(x, w, wanted)
    close(emulated(attended, x, w, np.zeros_like(wanted), orders=(0,))[1][2], wanted)
    spec = pto.spec((None, None), pl.f32)
    programs = ordered({"attended": (attended, (spec,) * 3)}, tmp_path)
    check_interpreted(programs, attended, "attended", {"x": x, "w": w}, {"y": np.zeros_like(wanted)}, close)


@pto.jit
def linear(x, w, b, r, y):
    """A bias and a residual that are converted on the way."""
    y[...] = pl.relu(x @ w + b.to(pl.f32)) + r.to(pl.f32) * 2.0


@needs_compiler
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_a_bias_of_16_bits_belongs_to_the_kernel_of_the_product(dtype: type) -> None:
    rng = np.random.default_rng(0)
    x, w, b, r = (rng.standard_normal(s).astype(dtype) for s in ((20, 40), (40, 150), (150,), (20, 150)))
    wanted = np.zeros((20, 150), dtype)
    linear(x, w, b, r, wanted)
    got = emulated(linear, x, w, b, r, np.zeros_like(wanted), orders=(0,))[1][4]
    np.testing.assert_allclose(got.astype(np.float32), wanted.astype(np.float32), rtol=1e-2, atol=1e-2)
    text = linear.compile(x, w, b, r, wanted, target="cuda").ir("kernels")
    assert "talloc" not in text, "nothing goes by way of memory"


@pytest.mark.parametrize("target", ["cuda", "ascend"])
def test_what_is_divided_after_a_product_is_told_too(target: str) -> None:
    spec = pto.spec((None, None), pl.f32)
    told = [str(d) for d in attended.compile(spec, spec, spec, target=target).decisions]
    assert sum("what is computed of whole tensors is divided" in text for text in told) == 1
    explained = pto.jit(target=target)(attended.__wrapped__).explain(spec, spec, spec)
    assert told == [str(d) for d in explained.decisions]


@pto.jit
def beside_a_scan(x, z, y):
    """The scan of any function is no operation that is divided: what it gives is read by the same scope."""
    t = pl.associative_scan(x * 2.0, 1, lambda a, b: pl.maximum(a, b))
    z[...] = x + 1.0
    y[...] = t - pl.max(x, axis=1, keepdims=True)


@pto.jit
def carried(x, z, y):
    t = x * 0.5
    for _ in pl.range(3):
        t = t * 0.5 + x
    z += x
    y[...] = t * 2.0


@needs_compiler
@pytest.mark.parametrize("fn", [beside_a_scan, carried], ids=lambda fn: fn.__name__)
def test_tiles_that_are_made_elsewhere_are_whole(fn: Any) -> None:
    wanted = arguments((5, 70))
    fn(*wanted)
    for got, value in zip(emulated(fn, *arguments((5, 70)), orders=(0,))[1], wanted, strict=True):
        close(got, value)
    if fn is carried:
        spec = pto.spec((None, None), pl.f32)
        assert fn.compile(spec, spec, spec, target="ascend").sources


@pto.jit
def of_known_extents(x: pl.Tensor[[90, 400], pl.f32], y: pl.Tensor[[90, 400], pl.f32]):
    x += 1.0
    t = x * 2.0
    for k in pl.range(2):
        if k > 0:
            y += t
        t = t - pl.max(x, axis=1, keepdims=True)
    return x[1:] + y[1:], pl.cumsum(t, axis=1)


@needs_compiler
def test_tensors_of_known_extents_that_fit_no_block_are_divided() -> None:
    wanted = list(np.random.default_rng(0).standard_normal((2, 90, 400), np.float32))
    mine = [a.copy() for a in wanted]
    results, mine = emulated(of_known_extents, *mine, orders=(0,))
    for value, got in zip((*of_known_extents(*wanted), *wanted), (*results, *mine), strict=True):
        np.testing.assert_allclose(np.asarray(got), value, rtol=1e-4, atol=1e-3)


@pto.jit
def turned_within(x):
    """What one block computes of other elements of the tensor than it writes goes by way of memory, too."""
    x[:, 1:] = pl.flip(x[:, :-1], axis=0)
    x[0] = x[:, 0] + pl.max(x[1], axis=0, keepdims=True)


@needs_compiler
def test_a_block_does_not_read_what_it_writes() -> None:
    x = np.random.default_rng(0).standard_normal((40, 40), np.float32)
    wanted = x.copy()
    turned_within(wanted)
    np.testing.assert_array_equal(emulated(turned_within, x)[1][0], wanted)


@pto.jit
def square_of(x, y):
    y[...] = y @ x


@pto.jit
def of_itself(x, y):
    y[...] = pl.maximum((y + x) @ y, 0.0) + y


@pto.jit
def rows_of_itself(x, y):
    with pl.incore():
        pl.store(pl.load(y, [0, 0], [128, 144]) @ pl.load(x, [0, 0], [144, 144]), [0, 0], y)


@needs_compiler
@pytest.mark.parametrize("kernel", [square_of, of_itself, rows_of_itself])
def test_a_product_may_be_stored_into_its_operand(kernel: Any) -> None:
    """Blocks read the whole tensor, of which each writes a part."""
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-2, 3, (144, 144)).astype(np.float32) for _ in range(2))
    wanted = y.copy()
    kernel(x, wanted)
    np.testing.assert_array_equal(emulated(kernel, x, y)[1][1], wanted)


@needs_compiler
def test_small_tensors_rows_of_itself_are_moved_within() -> None:
    @pto.jit
    def moved(x: pl.Tensor[[8, 8], pl.f32]):
        x[1:] = x[:-1] + 1.0
        x[...] = x.T
        x[0] = x[1] * 2.0

    x = np.random.default_rng(0).standard_normal((8, 8), np.float32)
    wanted = x.copy()
    moved(wanted)
    np.testing.assert_array_equal(emulated(moved, x)[1][0], wanted)
    text = moved.compile(x, target="cuda").ir("divided")
    assert text.count("talloc") == 2, "other rows are no reason"
