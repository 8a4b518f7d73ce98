# SPDX-License-Identifier: MIT
"""Comprehensions for other targets: compiled and run as C, as CUDA sources on the emulation, as NEON sources."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.device_kernel import emulate
from tests.comprehensions.examples import OPERATORS
from tests.comprehensions.test_operators import arguments
from tests.comprehensions.test_statements import kernel_of

BY_NAME = {name: (text, given) for name, text, _, given in OPERATORS}
needs_c = pytest.mark.skipif(not (shutil.which("gcc") or shutil.which("clang")), reason="needs a C compiler")
needs_cpp = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler")


def case(name: str, **options: Any) -> tuple[Any, dict[str, Any], tuple[np.ndarray, ...]]:
    """An operator as a comprehension, with arguments and the results of the default target."""
    text, given = BY_NAME[name]
    c = pto.comprehension(text, **options)
    data = arguments(c.definition, given)
    wanted = pto.comprehension(text)(**data)
    return c, data, wanted if isinstance(wanted, tuple) else (wanted,)


def compare(found: Any, wanted: tuple[np.ndarray, ...]) -> None:
    for a, b in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64).reshape(b.shape), b, rtol=3e-5, atol=3e-5)


@needs_c
@pytest.mark.parametrize("name", ["conv2d", "softmax", "argmin", "prefix_sum"])
def test_c_is_compiled_and_run(name: str) -> None:
    c, data, wanted = case(name, target="c")
    compare(c(**data), wanted)


@needs_cpp
@pytest.mark.parametrize("name", ["bmm", "softmax", "dot", "prefix_sum", "maxpool"])
def test_cuda_runs_on_the_emulation(name: str) -> None:
    c, data, wanted = case(name)
    compiled = c.compile(*data.values(), target="cuda")
    assert any("__global__" in text for text in compiled.sources.values())
    compare(emulate(compiled, *data.values()), wanted)


def test_every_operator_has_cuda_sources() -> None:
    for text, given in BY_NAME.values():
        c = pto.comprehension(text)
        data = arguments(c.definition, given)
        assert any("__global__" in source for source in c.compile(*data.values(), target="cuda").sources.values())


@needs_cpp
@pytest.mark.parametrize("name", ["lefttmm", "argmin", "groupnorm", "prefix_sum"])
def test_statements_in_kernels_run_on_the_emulation(name: str) -> None:
    c, data, wanted = case(name)
    kernel, written = kernel_of(next(fn for n, _, fn, _ in OPERATORS if n == name), BY_NAME[name][0])
    tensors, shapes = c._versions[()].analysis.tensors, c.infer(**{n: a.shape for n, a in data.items()}).shapes
    out = {w: np.full(shapes[w], 7, tensors[w].dtype.numpy) for w in written}
    emulate(kernel.compile(*data.values(), *out.values(), target="cuda"), *data.values(), *out.values())
    compare(tuple(out[r.name] for r in c.definition.returns), wanted)


@pytest.mark.parametrize("name", ["matmul", "softmax", "conv2d", "layernorm"])
def test_neon_sources_have_intrinsics(name: str) -> None:
    c, data, _ = case(name)
    text = "".join(c.compile(*data.values(), target="neon").sources.values())
    assert "arm_neon.h" in text and "vfmaq" in text or "float32x4_t" in text


@needs_c
def test_statements_in_kernels_check_sizes_in_c() -> None:
    @pto.jit(target="c")
    def kernel(B: pl.Tensor, K: pl.Tensor, out: pl.Tensor):
        i, k = pl.axis(), pl.axis()
        out[i] = pl.sum(B[i + k] * K[k])

    b, k, out = np.arange(9, dtype=np.float32), np.ones(3, np.float32), np.zeros(7, np.float32)
    kernel(b, k, out)
    np.testing.assert_allclose(out, np.convolve(b, k, "valid"))
    with pytest.raises(pto.ShapeError, match="of `out` lies in"):
        kernel(b, k, out[:5])


M, N, K = pl.dynamic("M"), pl.dynamic("N"), pl.dynamic("K")


def test_statements_in_kernels_are_sources_for_ascend_whose_host_code_checks_sizes() -> None:
    @pto.jit
    def rows(X: pl.Tensor[[M, N], pl.f32], out: pl.Tensor[[M, N], pl.f32]):
        m, n = pl.axis(), pl.axis()
        total = pl.empty((X.shape[0],), pl.f32)
        total[m] = pl.sum(X[m, n])
        out[m, n] = pl.exp(X[m, n]) / total[m]

    @pto.jit
    def product(A: pl.Tensor[[M, K], pl.f32], B: pl.Tensor[[K, N], pl.f32], out: pl.Tensor[[M, N], pl.f32]):
        m, n, k = pl.axis(), pl.axis(), pl.axis()
        out[m, n] = pl.sum(A[m, k] * B[k, n])

    @pto.jit
    def unequal(A: pl.Tensor, out: pl.Tensor):
        m, n = pl.axis(), pl.axis()
        out[m, n] = A[m, n] * 2

    given = pto.spec((None, None), pl.f32)
    assert "TROWSUM" in "".join(rows.compile(given, given, target="ascend").sources.values())
    assert "TMATMUL" in "".join(product.compile(given, given, given, target="ascend").sources.values())
    host = unequal.compile(given, given, target="ascend").sources["unequal_orchestration.c"]
    assert 'return "PTO-R024: `m` in 0:A.shape[0] of `out` lies in 0:out.shape[0]' in host


@pytest.mark.parametrize("target", ["cpu", pytest.param("c", marks=needs_c)])
def test_what_compile_gives_checks_what_subscripts_demand(target: str) -> None:
    """A call of the comprehension itself does before it launches anything."""
    shifted = pto.comprehension(
        "def shifted(float(N) A, float(M) B, int32 s) -> (C) { C(i) = A(i) + B(2 * i + s) where i in 0:N }"
    )
    vector = pto.spec((None,), pl.f32)
    compiled = shifted.compile(vector, vector, 1, target=target)
    a, b = np.ones(5, np.float32), np.arange(10, dtype=np.float32)
    np.testing.assert_array_equal(compiled(a, b, 1), a + b[1::2])
    for s in (-1, 2):
        with pytest.raises(pto.ShapeError, match="PTO-R024"):
            compiled(a, b, s)
    np.testing.assert_array_equal(compiled(a[:4], b, 2), a[:4] + b[2::2])
