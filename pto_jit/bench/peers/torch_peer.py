# SPDX-License-Identifier: MIT
# pyright: reportMissingImports=false
"""PyTorch, eager: `out=` where an operator has it, in place where a chain allows it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F

from pto_jit.bench.implementation import Case, Implementation, Table
from pto_jit.bench.peers import torch_nests
from pto_jit.bench.peers.torch_arrays import Array, array, channels_last, image_result, one, tensor, tensors
from pto_jit.bench.workloads.rows import EPSILON

TABLE = Table()


@TABLE.row("vector_add")
@TABLE.row("launch")
def vector_add(case: Case) -> Implementation:
    """`torch.add` into the output."""
    a, b, out = tensors(case.arguments)
    return Implementation(lambda: torch.add(a, b, out=out))


@TABLE.row("column_softmax")
@TABLE.row("softmax")
def softmax(case: Case) -> Implementation:
    """`torch.softmax` into the output."""
    x, out = tensors(case.arguments)
    return Implementation(lambda: torch.softmax(x, 1, out=out))


def _returning(function: Callable[..., torch.Tensor]) -> Callable[[Case], Implementation]:
    def build(case: Case) -> Implementation:
        return Implementation(partial(function, *tensors(tuple(case.inputs.values()))), one)

    return build


TABLE.add("vector_sum", _returning(lambda x: x.sum(0, keepdim=True)))
TABLE.add("log_sum_exp", _returning(lambda x: x.logsumexp(0, keepdim=True)))
TABLE.add("rms_norm", _returning(lambda x, weight: F.rms_norm(x, weight.shape, weight, EPSILON)))
TABLE.add("layer_norm", _returning(lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias, EPSILON)))
TABLE.add("gelu_tanh", _returning(lambda x: F.gelu(x, approximate="tanh")))
TABLE.add("gelu_erf", _returning(F.gelu))


@TABLE.row("silu_mul")
def silu_mul(case: Case) -> Implementation:
    """Two operators."""
    x, y, out = tensors(case.arguments)
    return Implementation(lambda: torch.mul(F.silu(x), y, out=out))


@TABLE.row("bias_relu")
def bias_relu(case: Case) -> Implementation:
    """Two operators, the second in place."""
    x, bias, out = tensors(case.arguments)
    return Implementation(lambda: torch.add(x, bias, out=out).relu_())


@TABLE.row("matmul")
@TABLE.row("matmul_bf16")
def matmul(case: Case) -> Implementation:
    """`torch.mm` into the output: MKL for f32, oneDNN for bf16."""
    a, b, c = tensors(case.arguments)
    return Implementation(lambda: torch.mm(a, b, out=c))


def _matmul_bias_gelu(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.gelu(torch.addmm(bias, a, b, alpha=a.shape[1] ** -0.5), approximate="tanh")


def _swiglu(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    return F.silu(x @ gate, inplace=True).mul_(x @ up) @ down


TABLE.add("matmul_bias_gelu", _returning(_matmul_bias_gelu))
TABLE.add("swiglu", _returning(_swiglu))


def _attention(case: Case, causal: bool) -> Implementation:
    q, k, v = (tensor(array)[None] for array in case.inputs.values())
    call = partial(F.scaled_dot_product_attention, q, k, v, is_causal=causal)
    return Implementation(call, lambda result: one(result[0]))


TABLE.add("attention", lambda case: _attention(case, False))
TABLE.add("attention_causal", lambda case: _attention(case, True))


@TABLE.row("cross_entropy")
def cross_entropy(case: Case) -> Implementation:
    """Labels are converted to the 64-bit integers that torch wants, ahead."""
    logits, labels = tensors(tuple(case.inputs.values()))
    wide = labels.to(torch.int64)
    return Implementation(lambda: F.cross_entropy(logits, wide, reduction="none"), one)


@TABLE.row("stencil5")
def stencil5(case: Case) -> Implementation:
    """Slices, added in place."""
    x, out = tensors(case.arguments)
    centre, north, south, west, east = x[1:-1, 1:-1], x[:-2, 1:-1], x[2:, 1:-1], x[1:-1, :-2], x[1:-1, 2:]
    return Implementation(lambda: torch.add(centre, north, out=out).add_(south).add_(west).add_(east).mul_(0.2))


@TABLE.row("conv3x3")
def conv3x3(case: Case) -> Implementation:
    """oneDNN on channels-last memory, the faster of torch's layouts."""
    image, filters = channels_last(tuple(case.inputs.values()))
    return Implementation(lambda: F.conv2d(image, filters), image_result, note="channels last")


def _collect(result: torch.Tensor | tuple[torch.Tensor, ...]) -> list[Array]:
    return [array(x) for x in (result if isinstance(result, tuple) else (result,))]


def _nested(function: Callable[..., object]) -> Callable[[Case], Implementation]:
    return lambda case: Implementation(partial(function, *tensors(tuple(case.inputs.values()))), _collect)


for (_name, _variant), _function in torch_nests.FUNCTIONS.items():
    TABLE.add(_name, _nested(_function), _variant)
