# SPDX-License-Identifier: MIT
"""The `pl` names: their marks, their annotations, their examples."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.codegen import builtins  # noqa: F401 - registers the handlers
from pto_jit.codegen.builtins.registry import HANDLERS
from pto_jit.errors import ShapeError, TypeMismatchError

OPERATIONS = [
    "slice", "reshape", "transpose", "empty", "zeros", "ones", "full", "load",
    "store", "exp", "exp2", "log", "log2", "log1p", "expm1", "sqrt",
    "rsqrt", "sin", "cos", "tan", "tanh", "erf", "sigmoid", "silu",
    "gelu", "relu", "abs", "floor", "ceil", "round", "trunc", "sign",
    "square", "reciprocal", "isnan", "isinf", "maximum", "minimum", "where", "clip",
    "fma", "pow", "atan2", "fmod", "sum", "max", "min", "prod",
    "mean", "argmax", "argmin", "any", "all", "reduce", "associative_scan", "cumsum",
    "cumprod", "map", "dot", "concat", "split", "stack", "broadcast_to", "expand_dims",
    "squeeze", "flip", "arange", "cast", "bitcast", "gather", "scatter", "sort",
    "argsort", "topk", "histogram", "rand", "randn", "atomic_add", "atomic_max", "atomic_min",
    "print", "assert_", "breakpoint_static", "static_print", "static_assert", "range", "static_range", "incore", "static",
    "dynamic_value", "reduction", "valid_shape",
]  # fmt: skip
MODULES = [m.name for m in pkgutil.iter_modules(pl.__path__, "pto_jit.language.")]


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_known_to_the_compiler_by_its_name(name: str) -> None:
    assert getattr(pl, name).__pto_builtin__ == name
    assert name in pl.__all__
    assert inspect.getdoc(getattr(pl, name))


def test_everything_exported_exists_and_the_builtin_names_are_unique() -> None:
    marks = [getattr(getattr(pl, name), "__pto_builtin__", None) for name in pl.__all__]
    marked = [m for m in marks if m is not None]
    assert len(marked) == len(set(marked)) >= len(OPERATIONS)


@pytest.mark.parametrize("module", ["pto_jit.language", *MODULES])
def test_the_examples_in_the_docstrings_are_right(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_the_examples_cover_every_operation() -> None:
    for name in OPERATIONS:
        assert ">>>" in (inspect.getdoc(getattr(pl, name)) or ""), name


def test_keyword_names_are_those_of_the_language() -> None:
    def names(fn: object) -> list[str]:
        return list(inspect.signature(fn).parameters)  # type: ignore[arg-type]

    assert names(pl.sum) == ["x", "axis", "keepdims"]
    assert names(pl.dot) == ["a", "b", "acc", "out_dtype"]
    assert names(pl.reduce) == ["x", "axis", "fn", "init", "keepdims"]
    assert names(pl.associative_scan) == ["x", "axis", "fn", "reverse"]
    assert names(pl.load) == ["x", "offsets", "shape", "pad"]
    assert names(pl.arange) == ["start", "stop", "step", "dtype"]
    assert names(pl.sort) == ["x", "descending"]
    assert names(pl.gelu) == ["x", "approximate"]
    assert names(pl.range) == ["bounds", "parallel", "chunk", "chunk_policy", "combine"]
    assert names(pl.reduction) == ["init", "combine"]
    assert names(pl.full) == ["shape", "value", "dtype"]
    assert names(pl.atomic_add) == ["x", "offsets", "tile"]
    assert names(pl.scatter) == ["tile", "index", "axis", "x"]
    assert names(pl.slice) == ["x", "shape", "offset"]


def test_an_annotated_tensor_knows_shape_and_dtype() -> None:
    m = pl.dynamic("M")
    spec = pl.Tensor[[m, 64, None], pl.f32]
    assert spec.shape == (m, 64, None) and spec.dtype == pl.f32 and spec.ndim == 3
    assert m == pl.dynamic("M") and m != pl.dynamic("N") and len({m, pl.dynamic("M")}) == 1


@pytest.mark.parametrize("item", [[4], ([4], "f32"), ([-1], pl.f32), (["n"], pl.f32), ([True], pl.f32)])
def test_a_malformed_annotation_is_refused(item: object) -> None:
    with pytest.raises((TypeMismatchError, ShapeError)):
        pl.Tensor[item]


def test_a_symbol_needs_a_name() -> None:
    with pytest.raises(TypeMismatchError, match="takes a name"):
        pl.dynamic("2 words")


def test_gelu_refuses_an_unknown_approximation() -> None:
    with pytest.raises(TypeMismatchError, match="approximate"):
        pl.gelu(np.zeros(2), approximate="fast")  # type: ignore[arg-type]


def test_operations_have_the_same_parameters_in_kernels() -> None:
    left_out = {"store", "incore", "reduction"}  # which take their operands in several forms
    for name in sorted(set(dir(pl)) - left_out):
        function = getattr(pl, name)
        mark = getattr(function, "__pto_builtin__", None)
        handler = HANDLERS.get(mark) if isinstance(mark, str) else None
        if handler is None:
            continue
        eager = list(inspect.signature(function).parameters.values())
        staged = list(inspect.signature(handler).parameters.values())[1:]
        assert [(p.name, p.kind, p.default) for p in eager] == [(p.name, p.kind, p.default) for p in staged], name


def test_operands_are_named_in_kernels_as_outside() -> None:
    x = np.arange(1, 7, dtype=np.float32)
    m, n = x.reshape(2, 3), np.array([-2, -1, 1, 3])
    kernels: list[tuple[Any, Any]] = [
        (lambda x: pl.flip(pl.load(x)), m),
        (lambda x: pl.flip(pl.load(x), axis=(0, 1)), m),
        (lambda x: pl.flip(pl.load(x), (1,)), m),
        (lambda x: pl.where(condition=x > 2, x=x, y=-x), x),
        (lambda x: pl.fma(x=x, y=x, z=1.0), x),
        (lambda x: pl.maximum(x=x, y=3.0) + pl.minimum(x=x, y=3.0), x),
        (lambda x: pl.fmod(x=x, y=2.0) + pl.atan2(y=x, x=2.0), x),
        (lambda x: pl.pow(x=x, y=-1), n),
        (lambda x: pl.pow(x, y=2), x),
        (lambda x: pl.load(x, None, [3]), x),
    ]
    for kernel, argument in kernels:
        compiled = pto.jit(kernel)
        np.testing.assert_allclose(compiled(argument), compiled.interpret(argument), rtol=1e-6)
    with pytest.raises(TypeMismatchError, match="PTO-T024"):
        pto.jit(lambda x: x**-1)(n)
    with pytest.raises(TypeMismatchError, match="PTO-T029"):
        pto.jit(lambda x: pl.load(x, [0], [8], 7.0))(x)
