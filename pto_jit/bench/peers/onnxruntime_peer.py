# SPDX-License-Identifier: MIT
# pyright: reportMissingImports=false
"""ONNX Runtime, CPU provider: one graph per workload, inputs and outputs bound to the caller's memory; products also
with constant weights, which it packs ahead."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnxruntime

from pto_jit.bench.implementation import Builder, Case, Implementation, Table
from pto_jit.bench.peers.onnx_model import Graph
from pto_jit.bench.workloads.rows import EPSILON

TABLE = Table()
Build = Callable[..., str]

_MICROSOFT = "com.microsoft"
_PACKED = "weights packed ahead"


def _session(build: Build, case: Case, constant: Sequence[str], note: str) -> Implementation:
    graph = Graph()
    for name in constant:
        graph.named_constant(name, case.inputs[name])
    result = build(graph, case, *case.inputs)
    inputs = {name: array for name, array in case.inputs.items() if name not in constant}
    output = next(iter(case.outputs.values()))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    options.inter_op_num_threads = 1
    session: Any = onnxruntime.InferenceSession(
        graph.model(inputs, result, output), options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    binding.bind_output("output", "cpu", 0, output.dtype, output.shape, output.ctypes.data)
    return Implementation(lambda: session.run_with_iobinding(binding), note=note)


def _graph(build: Build, constant: Sequence[str] = (), note: str = "") -> Builder:
    return lambda case: _session(build, case, constant, note)


def _scalar(graph: Graph, value: float) -> str:
    return graph.constant(np.array(value, np.float32))


def _rms_norm(graph: Graph, case: Case, x: str, weight: str) -> str:
    return graph.node("SimplifiedLayerNormalization", x, weight, axis=-1, epsilon=EPSILON)


def _layer_norm(graph: Graph, case: Case, x: str, weight: str, bias: str) -> str:
    return graph.node("LayerNormalization", x, weight, bias, axis=-1, epsilon=EPSILON)


def _silu(graph: Graph, x: str) -> str:
    return graph.node("QuickGelu", x, domain=_MICROSOFT, alpha=1.0)


def _matmul(graph: Graph, case: Case, a: str, b: str) -> str:
    return graph.node("MatMul", a, b)


def _matmul_bias_gelu(graph: Graph, case: Case, a: str, b: str, bias: str) -> str:
    x = graph.node("Gemm", a, b, bias, alpha=case.size[1] ** -0.5)
    return graph.node("Gelu", x, approximate="tanh")


def _swiglu(graph: Graph, case: Case, x: str, gate: str, up: str, down: str) -> str:
    hidden = graph.node("Mul", _silu(graph, graph.node("MatMul", x, gate)), graph.node("MatMul", x, up))
    return graph.node("MatMul", hidden, down)


def _attention(causal: bool) -> Build:
    def build(graph: Graph, case: Case, q: str, k: str, v: str) -> str:
        # Heads take the place of the batch: the operator's own layout would need a transposition.
        return graph.node(
            "MultiHeadAttention", q, k, v, domain=_MICROSOFT, num_heads=1, unidirectional=int(causal)
        )  # fmt: skip

    return build


def _cross_entropy(graph: Graph, case: Case, logits: str, labels: str) -> str:
    return graph.node("SoftmaxCrossEntropyLoss", logits, labels, reduction="none")


def _stencil5(graph: Graph, case: Case, x: str) -> str:
    rows, cols = case.size

    def part(r: int, c: int) -> str:
        bounds = (np.array([r, c]), np.array([r + rows, c + cols]))
        return graph.node("Slice", x, *(graph.constant(bound.astype(np.int64)) for bound in bounds))

    total = part(1, 1)
    for place in ((0, 1), (2, 1), (1, 0), (1, 2)):
        total = graph.node("Add", total, part(*place))
    return graph.node("Mul", total, _scalar(graph, 0.2))


def _conv3x3(graph: Graph, case: Case, x: str, weight: str) -> str:
    image = graph.node("Unsqueeze", graph.node("Transpose", x, perm=(2, 0, 1)), graph.constant(np.array([0], np.int64)))
    result = graph.node("Conv", image, graph.node("Transpose", weight, perm=(3, 2, 0, 1)))
    return graph.node(
        "Transpose", graph.node("Squeeze", result, graph.constant(np.array([0], np.int64))), perm=(1, 2, 0)
    )


TABLE.add("vector_add", _graph(lambda graph, case, a, b: graph.node("Add", a, b)))
TABLE.add("launch", _graph(lambda graph, case, a, b: graph.node("Add", a, b)))
TABLE.add("softmax", _graph(lambda graph, case, x: graph.node("Softmax", x, axis=-1)))
TABLE.add("rms_norm", _graph(_rms_norm, ("weight",)))
TABLE.add("layer_norm", _graph(_layer_norm, ("weight", "bias")))
TABLE.add("gelu_tanh", _graph(lambda graph, case, x: graph.node("Gelu", x, approximate="tanh")))
TABLE.add("gelu_erf", _graph(lambda graph, case, x: graph.node("Gelu", x)))
TABLE.add("silu_mul", _graph(lambda graph, case, x, y: graph.node("Mul", _silu(graph, x), y)))
TABLE.add("bias_relu", _graph(lambda graph, case, x, bias: graph.node("Relu", graph.node("Add", x, bias)), ("bias",)))
TABLE.add("matmul", _graph(_matmul))
TABLE.add("matmul", _graph(_matmul, ("b",), _PACKED), "prepacked")
TABLE.add("matmul_bias_gelu", _graph(_matmul_bias_gelu, ("bias",)))
TABLE.add("matmul_bias_gelu", _graph(_matmul_bias_gelu, ("b", "bias"), _PACKED), "prepacked")
TABLE.add("swiglu", _graph(_swiglu))
TABLE.add("swiglu", _graph(_swiglu, ("gate", "up", "down"), _PACKED), "prepacked")
TABLE.add("attention", _graph(_attention(causal=False)))
TABLE.add("attention_causal", _graph(_attention(causal=True), note="computes the whole square"))
TABLE.add("cross_entropy", _graph(_cross_entropy))
TABLE.add("stencil5", _graph(_stencil5))
TABLE.add("conv3x3", _graph(_conv3x3, ("weight",), _PACKED))
