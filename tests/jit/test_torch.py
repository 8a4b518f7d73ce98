# SPDX-License-Identifier: MIT
"""torch CPU tensors as arguments and results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from tests.jit.test_fast_path import is_registered

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

DTYPES = ["float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_torch_tensor_is_taken_and_given_back_without_a_copy(dtype: str) -> None:
    kind = getattr(torch, dtype)
    x = torch.tensor([0, 1, 2]).to(kind)
    kernel = pto.jit(lambda t: t & t if dtype == "bool" else t + t)
    for _ in range(2):
        result = kernel(x)
        assert isinstance(result, torch.Tensor) and result.dtype == kind
        assert torch.equal(result, x if dtype == "bool" else x + x)
    assert is_registered(kernel, x)


def test_a_kernel_writes_a_torch_tensor_where_it_is() -> None:
    @pto.jit
    def kernel(x, y):
        y[...] = x * 2

    x, y = torch.arange(6.0).reshape(2, 3), torch.zeros(3, 2)
    kernel(x, y.T)
    assert torch.equal(y, (x * 2).T)
    kernel(x.numpy(), y.T)
    assert torch.equal(y, (x * 2).T)


def test_results_are_torch_tensors_when_the_first_tensor_argument_is_one() -> None:
    @pto.jit
    def kernel(n, x, y):
        return {"sum": x + y, "rest": (x * n, x.shape[0])}

    a, b = torch.arange(3.0), np.arange(3, dtype=np.float32)
    for _ in range(2):
        mixed = kernel(2, a, b)
        assert isinstance(mixed["sum"], torch.Tensor) and isinstance(mixed["rest"][0], torch.Tensor)
        assert mixed["rest"][1] == 3
        plain = kernel(2, b, a)
        assert isinstance(plain["sum"], np.ndarray)
    bound = kernel.compile(2, a, b).bind(2, a, b)
    assert isinstance(bound()["sum"], torch.Tensor)


def test_what_cannot_be_taken_says_what_to_do() -> None:
    kernel = pto.jit(lambda x: x + 1)
    for value, reason in (
        (torch.ones(2, requires_grad=True), r"requires grad[^$]*help: pass `x\.detach\(\)`"),
        (torch.ones(2, dtype=torch.complex64), "complex64"),
        (torch.ones(2, 2).to_sparse(), r"sparse[^$]*help: pass `x\.to_dense\(\)`"),
        (torch.empty(2, device="meta"), "meta"),
    ):
        for _ in range(2):
            with pytest.raises(pto.ArgumentError, match=reason):
                kernel(value)


def test_tensors_that_require_grad_are_taken_where_torch_records_nothing() -> None:
    kernel = pto.jit(lambda x: x * 2.0)
    gradient = pto.jit(lambda dy, x: dy * 2.0 + x * 0.0)

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return kernel(x)

        @staticmethod
        def backward(ctx, dy):  # pyright: ignore[reportIncompatibleMethodOverride]
            return gradient(dy, *ctx.saved_tensors)

    x = torch.arange(3.0, requires_grad=True)
    for _ in range(2):
        y = Double.apply(x)
        assert y.requires_grad and torch.equal(y.detach(), 2 * x.detach())
        y.sum().backward()
        with torch.no_grad():
            assert torch.equal(kernel(x), 2 * x)
        with pytest.raises(pto.ArgumentError, match="requires grad"):
            kernel(x)
    assert x.grad is not None and torch.equal(x.grad, torch.full((3,), 4.0))


def test_strided_and_zero_dimensional_torch_tensors_are_read_in_place() -> None:
    base = torch.arange(24.0).reshape(4, 6)
    kernel = pto.jit(lambda x: x * 2)
    for x in (base.T, base[::2, 1:], base[:, ::3], base[0].expand(3, 6)):
        assert torch.equal(kernel(x), x * 2)
    assert pto.jit(lambda x: x[()] * 2)(torch.tensor(3.0)) == 6.0


def test_a_numpy_and_a_torch_call_share_machine_code() -> None:
    kernel = pto.jit(lambda x: pl.exp(x))
    kernel(np.zeros(3, np.float32))
    assert isinstance(kernel(torch.zeros(3)), torch.Tensor)
    assert len(kernel.specializations()) == 1


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_without_memory_of_their_own_are_refused() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    kernel = pto.jit(lambda t: t + 1)
    kernel(torch.ones(2))
    freed = torch.ones(2)
    freed.untyped_storage().resize_(0)
    with FakeTensorMode():
        fake = torch.ones(2)
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    for tensor, message in ((freed, "memory of its own"), (fake, "memory of its own"), (nested, "nested")):
        with pytest.raises(pto.ArgumentError, match=message):
            kernel(tensor)
    with pytest.raises(pto.ArgumentError, match="memory of its own"):
        torch.vmap(kernel)(torch.ones(3, 2))


@pytest.mark.parametrize("shape", [(3,), (1,), (3, 1), (2, 3)])
def test_a_lazily_negated_view_is_refused_where_tensors_are_known(shape: tuple[int, ...]) -> None:
    kernel = pto.jit(lambda t: t + 1)
    z = torch.ones(shape, dtype=torch.complex64) * (1 + 2j)
    assert torch.equal(kernel(z.imag), torch.full(shape, 3.0)) and is_registered(kernel, z.imag)
    with pytest.raises(pto.ArgumentError, match="resolve_neg"):
        kernel(z.conj().imag)
