# SPDX-License-Identifier: MIT
# pyright: reportMissingImports=false
"""PyTorch through torch.compile: fused C++ code; products also with weights packed ahead."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from pto_jit.bench.implementation import Case, Implementation, Table
from pto_jit.bench.peers.torch_arrays import channels_last, image_result, one, tensor, tensors
from pto_jit.bench.workloads.grids import LIMIT
from pto_jit.bench.workloads.rows import EPSILON

TABLE = Table()
Function = Callable[..., torch.Tensor]

# What torch offers at most for constant weights: they are packed once, and block sizes are searched for.
_PREPACKED: dict[str, Any] = {"freezing": True, "max_autotune": True}


def _compiled(function: Function) -> Callable[[Case], Implementation]:
    def build(case: Case) -> Implementation:
        compiled: Function = torch.compile(function, dynamic=False)
        return Implementation(partial(compiled, *tensors(tuple(case.inputs.values()))), one)

    return build


class _Weights(torch.nn.Module):
    """A function of one activation whose other arguments are parameters, hence constant."""

    def __init__(self, function: Function, weights: list[torch.Tensor]) -> None:
        super().__init__()
        self._function = function
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(one, requires_grad=False) for one in weights])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._function(x, *self.weights)


def _prepacked(function: Function) -> Callable[[Case], Implementation]:
    def build(case: Case) -> Implementation:
        x, *weights = tensors(tuple(case.inputs.values()))
        compiled: Function = torch.compile(_Weights(function, weights).eval(), dynamic=False, options=_PREPACKED)
        return Implementation(partial(compiled, x), one, note="weights packed ahead, autotuned")

    return build


def _matmul_bias_gelu(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.gelu((a @ b) * a.shape[1] ** -0.5 + bias, approximate="tanh")


def _swiglu(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    return (F.silu(x @ gate) * (x @ up)) @ down


def _stencil5(x: torch.Tensor) -> torch.Tensor:
    return (x[1:-1, 1:-1] + x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]) * 0.2


_FUNCTIONS: dict[str, Function] = {
    "vector_add": torch.add,
    "launch": torch.add,
    "softmax": lambda x: torch.softmax(x, 1),
    "rms_norm": lambda x, weight: F.rms_norm(x, weight.shape, weight, EPSILON),
    "layer_norm": lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias, EPSILON),
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_erf": lambda x: F.gelu(x),
    "silu_mul": lambda x, y: F.silu(x) * y,
    "bias_relu": lambda x, bias: F.relu(x + bias),
    "matmul": torch.mm,
    "matmul_bf16": torch.mm,
    "matmul_bias_gelu": _matmul_bias_gelu,
    "swiglu": _swiglu,
    "stencil5": _stencil5,
}
for _name, _function in _FUNCTIONS.items():
    TABLE.add(_name, _compiled(_function))
for _name in ("matmul", "matmul_bf16", "matmul_bias_gelu", "swiglu"):
    TABLE.add(_name, _prepacked(_FUNCTIONS[_name]), "prepacked")


@TABLE.row("attention")
def attention(case: Case) -> Implementation:
    """FlexAttention, torch's generated kernel."""
    return _flex(case, causal=False)


@TABLE.row("attention_causal")
def attention_causal(case: Case) -> Implementation:
    """The same with a block mask: tiles beyond the diagonal are skipped."""
    return _flex(case, causal=True)


def _flex(case: Case, *, causal: bool) -> Implementation:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = (tensor(array)[None] for array in case.inputs.values())
    length = q.shape[2]

    def below(batch: Any, head: Any, query: Any, key: Any) -> Any:
        return query >= key

    mask = create_block_mask(below, None, None, length, length, device="cpu") if causal else None
    compiled: Any = torch.compile(flex_attention, dynamic=False)
    return Implementation(lambda: compiled(q, k, v, block_mask=mask), lambda result: one(result[0]), "flex attention")


@TABLE.row("cross_entropy")
def cross_entropy(case: Case) -> Implementation:
    """Labels are converted to the 64-bit integers that torch wants, ahead."""
    logits, labels = tensors(tuple(case.inputs.values()))
    wide = labels.to(torch.int64)
    compiled: Function = torch.compile(lambda x, y: F.cross_entropy(x, y, reduction="none"), dynamic=False)
    return Implementation(lambda: compiled(logits, wide), one)


@TABLE.row("conv3x3")
def conv3x3(case: Case) -> Implementation:
    """Channels-last memory, constant weights."""
    image, filters = channels_last(tuple(case.inputs.values()))
    module = _Weights(F.conv2d, [filters]).eval()
    compiled: Function = torch.compile(module, dynamic=False, options={"freezing": True})
    return Implementation(lambda: compiled(image), image_result, note="channels last, weights packed ahead")


def _iterate(x: torch.Tensor, y: torch.Tensor, re: torch.Tensor, im: torch.Tensor, counts: torch.Tensor, steps: int):
    for _ in range(steps):
        xx, yy = x * x, y * y
        counts = counts + (xx + yy <= 4.0)
        x, y = xx - yy + re, 2.0 * x * y + im
    return x, y, counts


@TABLE.row("mandelbrot")
def mandelbrot(case: Case) -> Implementation:
    """Sixteen iterations fused at a time; points that left go on to infinity or NaN and count no more."""
    re, im = tensors(tuple(case.inputs.values()))
    compiled: Any = torch.compile(_iterate, dynamic=False)

    def call() -> torch.Tensor:
        cx, cy = re[None, :].expand(len(im), -1), im[:, None].expand(-1, len(re))
        x, y = cx, cy
        counts = torch.zeros(cx.shape, dtype=torch.int32)
        for _ in range(LIMIT // 16):
            x, y, counts = compiled(x, y, re[None, :], im[:, None], counts, 16)
        return counts

    return Implementation(call, one, note="16 iterations at a time")
