# SPDX-License-Identifier: MIT
"""FractalTensors themselves: how they are made, stored, read and shown; lists without elements; annotations."""

from __future__ import annotations

import ast
import doctest
import importlib
import pickle
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from tests.fractal.data import LEAVES, check, fractal, lists


def test_lists_and_back() -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        depth, leaf = int(rng.integers(1, 5)), LEAVES[rng.integers(len(LEAVES))]
        x = lists(rng, depth, leaf)
        made = fractal(x, depth, leaf)
        assert (made.depth, made.leaf_shape, made.dtype.numpy) == (depth, leaf[0], leaf[1])
        check(made, x)
        check(made.tolist(), x)
        check(pickle.loads(pickle.dumps(made)), x)
        check(ft.from_flat(made.leaves, made.offsets), x)
        if made.leaves.size:
            again = ft.from_list(x)
            assert again.depth == depth and again.dtype == made.dtype
            check(again, x)
        check(made[::-1][::-1], x)


def test_storage_is_a_flat_buffer_and_offsets() -> None:
    x = ft.from_list([[1, 2, 3], [], [4, 5]])
    assert [level.tolist() for level in x.offsets] == [[0, 3, 3, 5]]
    assert x.leaves.tolist() == [1, 2, 3, 4, 5] and x.leaf_shape == () and x.dtype == pl.i64
    assert ft.length(x) == len(x) == 3 and ft.depth(x) == x.depth == 2 and ft.depth(1.0) == 0
    assert ft.from_list([x, x]).depth == 3  # FractalTensors stand for lists


def test_from_flat_keeps_memory_and_from_list_copies() -> None:
    base = np.zeros((3, 2), np.float32)
    kept, copied = ft.from_flat(base, [[0, 1, 3]]), ft.from_list([base[0], base[1]])
    base[0] = 7
    assert kept[0][0].tolist() == [7, 7] and copied[0].tolist() == [0, 0]
    strided = ft.from_flat(np.arange(12.0).reshape(6, 2)[::2])
    assert strided[1].tolist() == [4, 5] and strided.leaves.tolist() == [[0, 1], [4, 5], [8, 9]]


def test_values_are_read_only() -> None:
    x = ft.from_list([np.zeros(2)])
    for array in (x[0], x.leaves, ft.stack(x)):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1
    x.tolist()[0][...] = 1  # a copy
    assert x[0].tolist() == [0, 0]


def test_elements_by_index_slice_and_iteration() -> None:
    x = ft.from_list([[1, 2], [], [3]])
    assert x[-1][0] == 3 and x[np.int32(0)][np.array([1])] == 2
    check(x[1:], [[], [np.int64(3)]])
    check(list(x), x.tolist())
    assert isinstance(x[0], ft.FractalTensor) and isinstance(x[0][0], np.int64)
    assert isinstance(ft.from_list([np.zeros(2)])[0], np.ndarray)


def test_every_element_type_is_a_leaf() -> None:
    for dtype in (np.float16, ml_dtypes.bfloat16, np.uint8, np.bool_, np.int16):
        x = ft.from_list([[np.ones((1, 2), dtype)], []])
        assert x.dtype.numpy == dtype and x.tolist()[0][0].dtype == dtype
        check(ft.map(lambda r: ft.map(lambda v: v, r), x), x.tolist())


def test_the_repr_of_a_list_shows_lengths_and_type() -> None:
    x = ft.from_list([[1.0, 2.0], []])
    assert repr(x) == "FractalTensor([2, 0] of pl.Tensor[[], pl.f64])"
    assert repr(ft.repeat(x[0], 9)) == "FractalTensor([2, 2, 2, 2, 2, 2, ...] of pl.Tensor[[], pl.f64])"
    assert repr(ft.zip(x, x)).startswith("Zipped(FractalTensor(")


def test_zipped_lists_nest() -> None:
    a, b = ft.from_list([1, 2]), ft.from_list([[3.0], []])
    z = ft.zip(a, ft.zip(b, a))
    check(z, [(np.int64(1), ([np.float64(3)], np.int64(1))), (np.int64(2), ([], np.int64(2)))])
    check(z.tolist(), [(np.int64(1), ([np.float64(3)], np.int64(1))), (np.int64(2), ([], np.int64(2)))])
    assert len(z) == 2 and ft.depth(z) == 1 and z.levels == 1 and ft.slide(z, 2).levels == 2


def test_a_zipped_list_of_any_length_is_taken_apart() -> None:
    """Also an empty one, which leaves `ft.zip(*z)` without arguments."""

    def both(z: Any) -> Any:
        return ft.zip(*z)

    x, y = ft.from_list([1, 2, 3]), ft.from_list([[1.0], [], [2.0]])
    for count in (3, 1, 0):
        a, b = both(ft.zip(x[:count], y[:count]))
        check((a, b), (x.tolist()[:count], y.tolist()[:count]))
        assert a.dtype == pl.i64 and b.dtype == pl.f64 and b.depth == 2
    for _ in ft.zip(x[:0], y[:0]):
        pass
    with pytest.raises(pto.TypeMismatchError, match="PTO-F021"):
        ft.zip()  # an iteration elsewhere is not taken for this one's
    pairs = [(x[0], y[0]), (x[1], y[1])]
    check(ft.zip(*pairs), (x.tolist()[:2], y.tolist()[:2]))


# -- empty lists --------------------------------------------------------------------------------------------------


def test_an_empty_list_gives_an_empty_list_of_the_type_that_the_body_gives() -> None:
    x = ft.from_list([], leaf=pto.spec((1, 4), pl.f32))
    weights = np.ones((4, 2), np.float32)
    y = ft.map(lambda v: v @ weights, x)
    assert (len(y), y.depth, y.leaf_shape, y.dtype) == (0, 1, (1, 2), pl.f32)
    deep = ft.map(lambda v: ft.slices(v, 1), x)
    assert (deep.depth, deep.leaf_shape) == (2, (1, 1))
    a, (b, c) = ft.map(lambda v: (v, (v @ weights, 1)), x)
    assert (a.leaf_shape, b.leaf_shape, c.dtype) == ((1, 4), (1, 2), pl.i64)
    assert ft.scan(lambda s, v: s @ v, x, init=np.ones((2, 1), np.float32)).leaf_shape == (2, 1)
    assert ft.scan(lambda s, v: s, x).leaf_shape == (1, 4)
    assert ft.dilated_map(lambda p: ft.map(lambda v: pl.sum(v), p), x, 2).leaf_shape == ()
    assert ft.fold(lambda s, v: s + 1, x, init=5) == 5


def test_bodies_are_tried_on_lists_like_the_others() -> None:
    """Windows have their width; reductions, indices and stacks of empty lists inside of a trial have a type."""
    empty = ft.from_list([], leaf=pto.spec((1, 4), pl.f32))
    kernel = np.ones((12, 2), np.float32)
    y = ft.map(lambda w: ft.cat(w, axis=1) @ kernel, ft.slide(empty, 3, padding=1))
    assert y.leaf_shape == (1, 2)
    z = ft.map(lambda w: ft.cat(w, axis=1) @ np.ones((6, 5), np.float32), ft.slide(y, 3))
    assert z.leaf_shape == (1, 5)
    assert ft.map(lambda q: ft.reduce(lambda a, b: a + b, empty) + q, empty).leaf_shape == (1, 4)
    assert ft.map(lambda q: empty[3] + ft.gather(empty, [1, 2])[0] + ft.tail(empty), empty).leaf_shape == (1, 4)
    pairs = ft.map(lambda p: p[0] @ p[1], ft.zip(empty, ft.map(lambda v: v.T, empty)))
    assert pairs.leaf_shape == (1, 1)
    with pytest.raises(pto.BoundsError):
        empty[3]  # outside of a trial
    with pytest.raises(pto.ShapeError):
        ft.reduce(lambda a, b: a + b, empty)


def test_what_a_trial_says_gives_way_to_what_was_computed() -> None:
    """A stand-in for a list has one element, so the shape of what is stacked differs from the others'."""
    rows = np.ones((2, 3))
    x = ft.from_list([[[rows[0]] * 4, [rows[1]] * 4], [], [[rows[0]] * 4]])
    y = ft.map(lambda m: ft.map(ft.stack, m), x)
    assert y.leaf_shape == (4, 3) and [len(e) for e in y] == [2, 0, 1]
    backwards = ft.map(lambda m: ft.map(ft.stack, m), ft.from_list([[], [[rows[0]] * 4]], leaf=pto.spec((3,), pl.f64)))
    assert backwards.leaf_shape == (4, 3)
    joined = ft.join(*(ft.map(ft.stack, m) for m in x))
    assert joined.leaf_shape == (4, 3) and len(joined) == 3
    pairs = ft.map(lambda m: (ft.map(ft.stack, m), ft.zip(ft.map(ft.stack, m), m)), x)
    assert pairs[0].leaf_shape == (4, 3) and ft.zip(*ft.flatten(pairs[1]))[0].leaf_shape == (4, 3)


# -- annotations, imports -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["", ".access", ".building", ".parallel", ".tensor", ".tensors", ".zipped"])
def test_examples_in_docstrings(module: str) -> None:
    assert doctest.testmod(importlib.import_module(f"pto_jit.fractal{module}")).failed == 0


def test_annotations() -> None:
    spec = ft.FractalTensor[ft.FractalTensor[pl.Tensor[[1, 64], pl.f32]]]
    assert repr(spec) == "ft.FractalTensor[ft.FractalTensor[pl.Tensor[[1, 64], pl.f32]]]"
    assert ft.FractalTensor[int] == ft.FractalTensor[pl.i64] and ft.FractalTensor[float] == ft.FractalTensor[pl.f64]
    with pytest.raises(pto.TypeMismatchError, match="PTO-F001"):
        ft.FractalTensor["x"]


def test_arguments_of_kernels_are_checked_against_annotations() -> None:
    n = pl.dynamic("N")

    @pto.jit
    def first(x: ft.FractalTensor[pl.Tensor[[1, n], pl.f32]], y: pl.Tensor[[n], pl.f32]):
        return ft.head(x) + y

    def call(*shape: int, dtype: Any = np.float32, nested: bool = False, other: int = 2) -> Any:
        x = ft.from_list([np.ones(shape, dtype)])
        return first(ft.from_list([x]) if nested else x, np.ones(other, np.float32))

    assert np.asarray(call(1, 2)).tolist() == [[2, 2]]
    for code, made in {
        "PTO-A005: first: argument `x` has depth 2": lambda: call(1, 2, nested=True),
        "PTO-A005: first: argument `x` has leaves of rank 1": lambda: call(2),
        "PTO-A006: first: argument `x` has leaves of dtype f64": lambda: call(1, 2, dtype=np.float64),
        "PTO-A002: first: argument `x` must be a list": lambda: first(np.ones((1, 2), np.float32), np.ones(2)),
    }.items():
        with pytest.raises(pto.ArgumentError, match=re.escape(code)):
            made()
    with pytest.raises(pto.ShapeError, match="axis 0 of the leaves of `x` has extent 3"):
        call(3, 2)
    with pytest.raises(pto.ShapeError, match="PTO-H101"):
        call(1, 2, other=3)


def test_importing_the_library_does_not_import_this() -> None:
    """Everything outside imports it inside functions, but for a module that is imported by calls with lists."""
    package = Path(pto.__file__).parent
    for path in package.rglob("*.py"):
        if path.relative_to(package).parts[0] in ("fractal", "bench", "flattened.py"):
            continue
        text = path.read_text(encoding="utf-8")
        stack: list[ast.AST] = [ast.parse(text)] if "fractal" in text else []
        while stack:
            node = stack.pop()
            if isinstance(node, (ast.FunctionDef, ast.Lambda)):
                continue
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                continue
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                assert "pto_jit.fractal" not in ast.unparse(node), path
            stack += ast.iter_child_nodes(node)


def test_operations_have_marks_for_the_compiler() -> None:
    for name in set(ft.__all__) - {"FractalTensor", "Zipped", "from_flat", "from_list"}:
        operation = getattr(ft, name)
        assert operation.__pto_builtin__ == f"ft.{operation.__name__}"
        assert getattr(ft, operation.__name__) is operation and operation.__doc__


def test_an_empty_list_of_lists() -> None:
    one = ft.from_list([], leaf=pto.spec((3,), pl.f32))
    two = ft.from_flat(np.empty((0, 3), np.float32), [[0]])
    three = ft.from_flat(np.empty((0, 3), np.float32), [[0], [0]])
    assert [x.depth for x in (one, two, three)] == [1, 2, 3]
    assert all(len(x) == 0 and x.tolist() == [] and x.leaf_shape == (3,) for x in (one, two, three))
