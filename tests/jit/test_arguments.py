# SPDX-License-Identifier: MIT
"""What may be an argument, what it becomes, and how the rest is refused."""

from __future__ import annotations

import array
import ctypes
import enum
import fractions
import functools
import mmap
import operator
import types
from collections import namedtuple
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

M = pl.dynamic("M")
DTYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@pto.jit
def double(x, y):
    y[...] = x + x


@pto.jit
def first(x):
    return x[0]


@pto.jit
def increment(x):
    x[0] += 1


# -- tensors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
def test_every_dtype_is_taken_as_it_is(dtype: str) -> None:
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    x, y = np.array([1, 2, 3], kind), np.zeros(3, kind)
    double(x, y)
    np.testing.assert_array_equal(y.astype(float), [2, 4, 6])


def test_a_bool_array_is_a_tensor_of_bool() -> None:
    x = np.array([True, False, True])
    result = pto.jit(lambda a: ~a)(x)
    assert result.dtype == bool
    np.testing.assert_array_equal(result, ~x)


class Exposed:
    """An object that shows memory by `__array_interface__`."""

    def __init__(self, owner: np.ndarray) -> None:
        self.owner = owner

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.owner.__array_interface__


class Lent:
    """An object that shows memory by DLPack alone."""

    def __init__(self, owner: np.ndarray) -> None:
        self.owner = owner

    def __dlpack__(self, **options: Any) -> Any:
        return self.owner.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.owner.__dlpack_device__()


SOURCES = {
    "memoryview": lambda a: memoryview(a),
    "array.array": lambda a: array.array("f", a),
    "ctypes": lambda a: (ctypes.c_float * 3)(*a),
    "interface": Exposed,
    "dlpack": Lent,
    "subclass": lambda a: a.view(np.recarray),
}


@pytest.mark.parametrize("source", SOURCES)
def test_anything_that_shows_its_memory_is_a_tensor_and_nothing_is_copied(source: str) -> None:
    x = SOURCES[source](np.array([1, 2, 3], np.float32))
    assert first(x) == 1.0
    increment(x)
    assert first(x) == 2.0


def test_bytes_are_a_read_only_tensor() -> None:
    assert first(b"\x07\x08") == 7
    with pytest.raises(pto.ArgumentError, match="read-only"):
        increment(b"\x07\x08")
    text = bytearray(b"\x07\x08")
    increment(text)
    assert text[0] == 8


def test_a_read_only_array_may_be_read_and_writing_it_is_refused() -> None:
    x, y = np.ones(3, np.float32), np.zeros(3, np.float32)
    x.flags.writeable = False
    double(x, y)
    np.testing.assert_array_equal(y, 2 * x)
    y.flags.writeable = False
    for _ in range(2):
        with pytest.raises(pto.ArgumentError, match=r"double: argument `y` is written.*\n[^$]*help: .*y\.copy\(\)"):
            double(x, y)
    np.testing.assert_array_equal(y, 2 * x)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (np.zeros(3, np.complex64), "complex64"),
        (np.zeros(3, object), "object"),
        (np.zeros(3, "U5"), "<U5"),
        (np.zeros(3, np.longdouble), "float128"),
        (np.zeros(3, "M8[s]"), "datetime64"),
        (np.zeros(3, [("a", "f4"), ("b", "i4")]), "'a'"),
        (np.zeros(3, ">f4"), ">f4"),
    ],
)
def test_a_dtype_that_kernels_do_not_have_is_refused_by_name(value: np.ndarray, name: str) -> None:
    with pytest.raises(pto.ArgumentError) as caught:
        first(value)
    text = str(caught.value)
    assert "first: argument `x`" in text and name in text and "help: " in text


def test_a_masked_array_is_refused() -> None:
    with pytest.raises(pto.ArgumentError, match=r"masked array[^$]*help: pass `x\.filled\(value\)`"):
        first(np.ma.masked_array(np.ones(3), [True, False, True]))


def test_a_masked_array_is_refused_where_a_plain_one_has_been_before() -> None:
    @pto.jit
    def kernel(x, y):
        y[...] = pl.load(x) * 2

    class Measured(np.ma.MaskedArray):
        pass

    class Named(np.ndarray):
        pass

    x = np.ones(3)
    for _ in range(3):
        kernel(x, x.copy())
    for masked in (np.ma.masked_array(x, [True, False, True]), Measured(x)):
        for args in ((masked, x), (x, masked)):
            with pytest.raises(pto.ArgumentError, match="masked array"):
                kernel(*args)
    y = x.view(Named)
    kernel(x, y)
    assert y.tolist() == [2, 2, 2]


def test_an_unaligned_array_is_refused() -> None:
    memory = np.zeros(17, np.uint8)
    x = memory[1:].view(np.float32)
    with pytest.raises(pto.ArgumentError, match=r"not aligned[^$]*help: pass `x.copy\(\)`"):
        first(x)


def test_negative_and_zero_strides_are_read_where_they_are() -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    copy = pto.jit(lambda x: x + 0)
    repeated = np.broadcast_to(base[0], (5, 6))
    for x in (base[::-1], base[:, ::-1], base[::2, ::3], repeated, base.T[::-1], base[1:3, 2:2]):
        np.testing.assert_array_equal(copy(x), x)


def test_an_array_with_more_than_two_to_the_31_elements_is_indexed_in_64_bits() -> None:
    size = 3 * 2**31 + 11

    @pto.jit
    def mark(x, step: int):
        n = x.shape[0]
        count = 0
        for i in pl.range(0, n, step):
            x[i] = 1
            count += 1
        x[n - 1] = 7
        return count

    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000))
    x = np.frombuffer(memory, np.int8)
    step = 2**30
    for _ in range(2):
        assert mark(x, step) == 7
    assert x[step * 5] == 1 and x[size - 1] == 7 and x[step * 5 + 1] == 0
    load_end = pto.jit(lambda t: pl.sum(pl.load(t, [t.shape[0] - 4], [4])))
    assert load_end(x) == 7
    wide = x[: (size // 3) * 3].reshape(3, -1)
    assert pto.jit(lambda t: t[2, t.shape[1] - 1] + t[2, 0])(wide[:, : wide.shape[1] - 3]) == 0
    del x, wide


def test_a_zero_dimensional_array_is_a_tensor_with_one_element() -> None:
    x, y, row = np.array(3.0, np.float32), np.array(0.0, np.float32), np.ones(4, np.float32)

    @pto.jit
    def kernel(a, out, b):
        out[...] = a * 2
        out[()] += 1
        return b + a

    for value in (3.0, 5.0):
        x[...] = value
        np.testing.assert_array_equal(kernel(x, y, row), row + x)
        assert y == 2 * value + 1
    assert len(kernel.specializations()) == 1


def test_an_empty_array_is_a_tensor() -> None:
    x, y = np.zeros((0, 5), np.float32), np.zeros((0, 5), np.float32)
    double(x, y)
    assert pto.jit(lambda t: t * 2)(x).shape == (0, 5)


# -- numbers ----------------------------------------------------------------------------------------------------------


def test_python_numbers_are_never_specialised_by_value() -> None:
    kernel = pto.jit(lambda x, n, s: x * n + s)
    x = np.ones(3, np.float32)
    for n in (0, 1, 2, -5):
        np.testing.assert_array_equal(kernel(x, n, n + 0.5), x * n + n + 0.5)
    assert len(kernel.specializations()) == 1


def test_numpy_scalars_keep_their_dtype_and_python_numbers_are_weak() -> None:
    kernel = pto.jit(lambda x, s: x * s)
    x = np.ones(3, np.float32)
    for scalar in (2, 2.5):
        assert kernel(x, scalar).dtype == np.float32
    for scalar in (np.float64(2), np.float32(2), np.int64(2), np.int8(2), np.bool_(True), np.float16(2)):
        assert kernel(x, scalar).dtype == (x * scalar).dtype, scalar
    assert kernel(x, ml_dtypes.bfloat16(2)).dtype == np.float32


def test_the_bounds_of_64_bits_are_taken_and_what_is_beyond_is_refused() -> None:
    same = pto.jit(lambda n: n)
    for n in (2**63 - 1, -(2**63), 0):
        assert same(n) == n
    assert same(np.uint64(2**64 - 1)) == 2**64 - 1 and same(np.uint8(255)) == 255
    for n in (2**63, -(2**63) - 1, 10**30):
        with pytest.raises(pto.ArgumentError, match=r"argument `n` is .*does not fit 64 bits"):
            same(n)


def test_subclasses_of_int_and_float_are_numbers() -> None:
    class Count(int):
        pass

    class Length(float):
        pass

    kernel = pto.jit(lambda n: n + 1)
    for value in (Count(3), Length(2.5), Count(4)):
        assert kernel(value) == value + 1


@pytest.mark.parametrize("value", [1 + 2j, np.complex128(1), np.longdouble(1), np.datetime64("2020-01-01")])
def test_a_number_that_kernels_do_not_have_is_refused(value: Any) -> None:
    with pytest.raises(pto.ArgumentError, match=r"argument `n`"):
        pto.jit(lambda n: n + 1)(value)


# -- compile-time values ----------------------------------------------------------------------------------------------


class Mode(enum.Enum):
    ADD = 1
    MULTIPLY = 2


def apply(x: Any, mode: Any) -> Any:
    if mode in (True, "add", Mode.ADD):
        return x + 2
    if mode is None:
        return x + 0
    if isinstance(mode, types.ModuleType):
        return x * mode.FACTOR
    return mode(x) if callable(mode) else x * 3


def test_bools_strings_none_enums_and_functions_choose_code() -> None:
    kernel = pto.jit(lambda x, mode: apply(x, mode))
    x = np.array([1.0, 2.0])
    module = types.ModuleType("chosen")
    module.FACTOR = 5  # type: ignore[attr-defined]
    expected = [
        (True, x + 2), (False, x * 3), ("add", x + 2), ("other", x * 3), (None, x), (Mode.ADD, x + 2),
        (Mode.MULTIPLY, x * 3), (partial(operator.add, 1), x + 1), (lambda t: t - 1, x - 1), (module, x * 5),
    ]  # fmt: skip
    for _ in range(2):
        for mode, result in expected:
            np.testing.assert_array_equal(kernel(x, mode), result)
    module.FACTOR = 6  # type: ignore[attr-defined]
    np.testing.assert_array_equal(kernel(x, module), x * 6)


def test_a_dtype_is_an_argument() -> None:
    kernel = pto.jit(lambda x, dtype: x.to(dtype))
    x = np.array([1.5, 2.5])
    for dtype, wanted in ((pl.f32, np.float32), (pl.i8, np.int8)):
        assert kernel(x, dtype).dtype == wanted


def test_a_constexpr_argument_is_specialised_by_value_and_by_type() -> None:
    @pto.jit
    def kernel(x, n: pl.constexpr):
        return x + (10 if isinstance(n, float) else 0) + len(str(n))

    x = np.zeros(1)
    assert [kernel(x, n)[0] for n in (1, 10, 1.0, 1, True)] == [1, 2, 13, 1, 4]
    assert len(kernel.specializations()) == 4
    assert kernel(x, (1, "a"))[0] == 8 and kernel(x, frozenset())[0] == 11
    with pytest.raises(pto.ArgumentError, match="must be hashable"):
        kernel(x, [1])


def test_nan_as_a_compile_time_value_does_not_compile_again_and_zeros_differ() -> None:
    @pto.jit
    def kernel(x, pair):
        return x + 0 * x if pair[0] != pair[0] else x + (1 if str(pair[0])[0] == "-" else 2)

    x = np.zeros(1)
    for _ in range(3):
        kernel(x, (float("nan"),))
    assert len(kernel.specializations()) == 1
    assert kernel(x, (0.0,))[0] == 2 and kernel(x, (-0.0,))[0] == 1


# -- containers -------------------------------------------------------------------------------------------------------

Pair = namedtuple("Pair", "left right")


@dataclass
class Layer:
    weight: Any
    scale: float
    name: str = "layer"


@dataclass(frozen=True)
class Frozen:
    weight: Any
    factors: tuple[float, ...]


def test_tensors_in_containers_are_tensor_arguments_and_the_rest_is_compared_by_value() -> None:
    @pto.jit
    def kernel(items):
        return items[0] * items[1] + items[2][0]

    a, b = np.array([1.0, 2.0]), np.array([10.0, 20.0])
    np.testing.assert_array_equal(kernel((a, 3, [b])), a * 3 + b)
    np.testing.assert_array_equal(kernel([a, 3, (b,)]), a * 3 + b)
    a[0] = 5
    np.testing.assert_array_equal(kernel((a, 3, [b])), a * 3 + b)
    assert len(kernel.specializations()) == 2
    np.testing.assert_array_equal(kernel((a, 4, [b])), a * 4 + b)
    assert len(kernel.specializations()) == 3


def test_dicts_named_tuples_and_dataclasses_are_taken() -> None:
    a, b = np.array([1.0, 2.0]), np.array([10.0, 20.0])
    by_name = pto.jit(lambda d: d["a"] * d["n"] + d["b"])
    np.testing.assert_array_equal(by_name({"a": a, "n": 2, "b": b}), a * 2 + b)
    pair = pto.jit(lambda p: p.left - p.right)
    np.testing.assert_array_equal(pair(Pair(a, b)), a - b)
    layer = pto.jit(lambda m: m.weight * m.scale)
    model = Layer(a, 2.0)
    np.testing.assert_array_equal(layer(model), a * 2)
    model.scale = 3.0
    np.testing.assert_array_equal(layer(model), a * 3)
    model.weight = b
    np.testing.assert_array_equal(layer(model), b * 3)
    frozen = pto.jit(lambda m: m.weight * m.factors[1])
    np.testing.assert_array_equal(frozen(Frozen(a, (1.0, 4.0))), a * 4)
    space = pto.jit(lambda m: m.w + m.n)
    np.testing.assert_array_equal(space(types.SimpleNamespace(w=a, n=2)), a + 2)


def test_a_kernel_writes_the_tensors_inside_containers() -> None:
    @pto.jit
    def kernel(out):
        out["y"][0][...] = out["x"] * 2

    x, y = np.ones(3), np.zeros(3)
    kernel({"x": x, "y": [y]})
    np.testing.assert_array_equal(y, 2 * x)
    y.flags.writeable = False
    with pytest.raises(pto.ArgumentError, match=r"`out\['y'\]\[0\]` is written"):
        kernel({"x": x, "y": [y]})


def test_containers_that_contain_themselves_end() -> None:
    a = np.ones(2)
    items: list[Any] = [a]
    items.append(items)
    np.testing.assert_array_equal(pto.jit(lambda t: t[0] + len(t))(items), a + 2)
    table: dict[str, Any] = {"a": a}
    table["me"] = {"inner": table}
    np.testing.assert_array_equal(pto.jit(lambda t: t["a"] * 2)(table), a * 2)


def test_values_of_pythons_library_are_compared_by_value_or_identity() -> None:
    kernel = pto.jit(lambda x, o: x * float(o.ratio))
    x = np.ones(2)
    for ratio in (fractions.Fraction(1, 2), fractions.Fraction(1, 4), fractions.Fraction(1, 2)):
        np.testing.assert_array_equal(kernel(x, types.SimpleNamespace(ratio=ratio)), x * float(ratio))


# -- refused ----------------------------------------------------------------------------------------------------------


class Thing:
    pass


@pytest.mark.parametrize("value", [Thing(), iter([1]), object(), Thing])
def test_an_unknown_object_is_refused_with_its_kind(value: Any) -> None:
    if value is Thing:  # a class is a compile-time value, and has no elements
        with pytest.raises(pto.CompilationError):
            first(value)
        return
    with pytest.raises(pto.ArgumentError, match=r"first: argument `x` is an? \S+, which a kernel cannot take"):
        first(value)


class Scaled:
    first = pto.jit(lambda me, x: x[0])


def test_lambdas_that_are_methods_want_self() -> None:
    with pytest.raises(pto.ArgumentError, match="help: name the first parameter of a method `self`, not `me`"):
        Scaled().first(np.ones(2))
    with pytest.raises(pto.ArgumentError, match="help: pass tensors"):
        Scaled.first(Thing(), np.ones(2))


def test_missing_unknown_and_surplus_arguments_show_the_signature() -> None:
    x = np.ones(3)
    for call, reason in (
        (lambda: double(x), "missing the argument `y`"),
        (lambda: double(x, x, x), "too many positional arguments"),
        (lambda: double(x, y=x, z=1), "unexpected keyword argument `z`"),
        (lambda: double(x, z=1), "unexpected keyword argument `z`"),
        (lambda: double(x, x, y=x), "multiple values for argument `y`"),
        (lambda: double(), "missing the argument `x`"),
    ):
        for attempt in (call, call):
            with pytest.raises(pto.ArgumentError) as caught:
                attempt()
            text = str(caught.value)
            assert reason in text and "help: call it as `double(x, y)`" in text and "test_arguments.py" in text
            assert isinstance(caught.value, TypeError)


def test_an_annotated_parameter_is_checked() -> None:
    @pto.jit
    def kernel(a: pl.Tensor[[M, 4], pl.f32], b: pl.Tensor[[M, M], pl.f32], c: pl.Tensor):
        return a[0, 0] + b[0, 0] + c[0]

    def f32(*shape: int) -> np.ndarray:
        return np.zeros(shape, np.float32)

    good = (f32(3, 4), f32(3, 3), f32(1))
    assert kernel(*good) == 0
    for position, value, kind, reason in (
        (0, f32(3, 5), pto.ShapeError, "axis 1 of `a` has extent 5"),
        (0, f32(3), pto.ArgumentError, "has rank 1"),
        (0, np.zeros((3, 4)), pto.ArgumentError, r"has dtype f64.*\n[^$]*astype\('float32'\)"),
        (0, 7, pto.ArgumentError, "must be a tensor"),
        (1, f32(3, 4), pto.ShapeError, "`M` is 3 .* and 4 "),
        (2, 7, pto.ArgumentError, "argument `c` must be a tensor, got the int 7"),
    ):
        args = list(good)
        args[position] = value  # type: ignore[call-overload]
        with pytest.raises(kind, match=reason):
            kernel(*args)


def test_a_kernel_cannot_take_arbitrary_keywords() -> None:
    with pytest.raises(pto.ArgumentError, match=r"cannot take `\*\*options`"):

        @pto.jit
        def kernel(x, **options):
            return x


def test_a_spec_is_not_an_argument_of_a_call() -> None:
    with pytest.raises(pto.ArgumentError, match=r"pto\.spec, which has no data"):
        first(pto.spec((3,), pl.f32))
    with pytest.raises(pto.ArgumentError, match="is not a dtype"):
        pto.spec((3,), "complex64")
    for extent in (-3, 2.0, True, np.True_, "?", 1 << 63):
        with pytest.raises(pto.ArgumentError, match="is not an extent"):
            pto.spec((extent,), pl.f32)  # type: ignore[arg-type]
    with pytest.raises(pto.ArgumentError, match=r"3 is not a shape\nhelp: give a tuple, as \(3,\)"):
        pto.spec(3, pl.f32)  # type: ignore[arg-type]
    shape = pto.spec((np.int64(3), (1 << 63) - 1), pl.f32).shape
    assert shape == (3, (1 << 63) - 1) and type(shape[0]) is int


@pto.jit
def biased(x: pl.Tensor, bias: pl.Tensor = None):  # type: ignore[assignment]
    return x[:] if bias is None else x[:] + bias[:]


@pytest.mark.parametrize("value", ["x", [1.0, 2.0], {}, True, len, pl.f32])
def test_what_is_no_tensor_is_refused_where_one_is_annotated(value: Any) -> None:
    with pytest.raises(pto.ArgumentError, match="argument `x` must be a tensor, got") as caught:
        biased(value)
    assert str(caught.value).startswith("PTO-A002")
    assert ("np.asarray" in str(caught.value)) == isinstance(value, list)


def test_none_stands_for_no_tensor() -> None:
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(biased(x), x)
    np.testing.assert_array_equal(biased(x, None), x)
    np.testing.assert_array_equal(biased(x, x), x + x)


def test_a_function_that_wraps_another_is_compiled_as_it_is_written() -> None:
    def plainly(fn: Any) -> Any:
        @functools.wraps(fn)
        def inner(*args: Any) -> Any:
            return fn(*args)

        return inner

    def with_keywords(fn: Any) -> Any:
        @functools.wraps(fn)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

        return inner

    def twice(x: Any) -> Any:
        return x[:] * 2

    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(pto.jit(plainly(twice))(x), x * 2)
    with pytest.raises(pto.ArgumentError, match=r"(?s)PTO-A000.*write `@pto.jit` below that decorator"):
        pto.jit(with_keywords(twice))


def test_what_numpy_would_make_an_array_of_is_refused_with_the_way() -> None:
    class Column:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return np.arange(3.0)

    with pytest.raises(pto.ArgumentError, match=r"pass an array: `numpy.asarray\(x\)`"):
        pto.jit(lambda x: x + 1)(Column())
