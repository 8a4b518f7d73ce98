# SPDX-License-Identifier: MIT
# pyright: reportMissingImports=false
"""OpenVINO: one compiled model per workload, inputs and outputs in the caller's memory; products also with constant
weights, which it packs ahead."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import openvino as ov
import openvino.opset13 as ops

from pto_jit.bench.implementation import Builder, Case, Implementation, Table
from pto_jit.bench.workload import dtype_named
from pto_jit.bench.workloads.rows import EPSILON

TABLE = Table()
Array = np.ndarray[Any, Any]
Node = Any
Graph = Callable[..., Node]

_CORE: Any = ov.Core()
_MODEL: Any = ov.Model
_THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))


def _tensor(array: Array) -> Any:
    if array.dtype == dtype_named("bfloat16"):
        return ov.Tensor(array.view(np.uint16), ov.Shape(array.shape), ov.Type.bf16)
    return ov.Tensor(array, shared_memory=True)


def _type(array: Array) -> Any:
    return ov.Type.bf16 if array.dtype == dtype_named("bfloat16") else ov.Type(array.dtype)


def _constant(array: Array) -> Node:
    return ops.constant(_tensor(array)) if _type(array) == ov.Type.bf16 else ops.constant(array)


def _scalar(value: float) -> Node:
    return ops.constant(np.float32(value))


def _compiled(graph: Graph, case: Case, constant: Sequence[str], note: str) -> Implementation:
    parameters = {
        name: ops.parameter(list(array.shape), _type(array), name=name)
        for name, array in case.inputs.items()
        if name not in constant
    }
    nodes = [parameters[name] if name in parameters else _constant(array) for name, array in case.inputs.items()]
    model: Any = _MODEL([graph(*nodes)], list(parameters.values()), case.workload.name)
    bf16 = case.workload.dtype == "bf16"
    settings = {
        "INFERENCE_NUM_THREADS": _THREADS,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        # The default may compute f32 models in bf16.
        "INFERENCE_PRECISION_HINT": "bf16" if bf16 else "f32",
    }
    request = _CORE.compile_model(model, "CPU", settings).create_infer_request()
    for name in parameters:
        request.set_tensor(name, _tensor(case.inputs[name]))
    request.set_output_tensor(0, _tensor(next(iter(case.outputs.values()))))
    return Implementation(request.infer, note=note)


def _model(graph: Graph, constant: Sequence[str] = (), note: str = "") -> Builder:
    return lambda case: _compiled(graph, case, constant, note)


def _rms_norm(x: Node, weight: Node) -> Node:
    mean = ops.reduce_mean(ops.power(x, _scalar(2.0)), np.array([-1]), keep_dims=True)
    scale = ops.divide(_scalar(1.0), ops.sqrt(ops.add(mean, _scalar(EPSILON))))
    return ops.multiply(ops.multiply(x, scale), weight)


def _layer_norm(x: Node, weight: Node, bias: Node) -> Node:
    normal = ops.mvn(x, np.array([-1]), normalize_variance=True, eps=EPSILON, eps_mode="inside_sqrt")
    return ops.add(ops.multiply(normal, weight), bias)


def _matmul(a: Node, b: Node) -> Node:
    return ops.matmul(a, b, False, False)


def _matmul_bias_gelu(case: Case) -> Graph:
    scale = case.size[1] ** -0.5
    return lambda a, b, bias: ops.gelu(ops.add(ops.multiply(_matmul(a, b), _scalar(scale)), bias), "tanh")


def _swiglu(x: Node, gate: Node, up: Node, down: Node) -> Node:
    return _matmul(ops.multiply(ops.swish(_matmul(x, gate)), _matmul(x, up)), down)


def _attention(causal: bool) -> Graph:
    def graph(q: Node, k: Node, v: Node) -> Node:
        batched = [ops.unsqueeze(node, np.array(0)) for node in (q, k, v)]
        return ops.squeeze(ops.scaled_dot_product_attention(*batched, causal=causal), np.array(0))

    return graph


def _cross_entropy(logits: Node, labels: Node) -> Node:
    chosen = ops.gather_elements(ops.log_softmax(logits, 1), ops.unsqueeze(labels, np.array(1)), 1)
    return ops.negative(ops.squeeze(chosen, np.array(1)))


def _stencil5(case: Case) -> Graph:
    rows, cols = case.size

    def graph(x: Node) -> Node:
        def part(r: int, c: int) -> Node:
            return ops.slice(x, np.array([r, c]), np.array([r + rows, c + cols]), np.array([1, 1]))

        total = part(1, 1)
        for place in ((0, 1), (2, 1), (1, 0), (1, 2)):
            total = ops.add(total, part(*place))
        return ops.multiply(total, _scalar(0.2))

    return graph


def _conv3x3(x: Node, weight: Node) -> Node:
    image = ops.unsqueeze(ops.transpose(x, np.array([2, 0, 1])), np.array(0))
    filters = ops.transpose(weight, np.array([3, 2, 0, 1]))
    result = ops.convolution(image, filters, [1, 1], [0, 0], [0, 0], [1, 1])
    return ops.transpose(ops.squeeze(result, np.array(0)), np.array([1, 2, 0]))


_PACKED = "weights packed ahead"

TABLE.add("vector_add", _model(ops.add))
TABLE.add("launch", _model(ops.add))
TABLE.add("softmax", _model(lambda x: ops.softmax(x, 1)))
TABLE.add("rms_norm", _model(_rms_norm, ("weight",)))
TABLE.add("layer_norm", _model(_layer_norm, ("weight", "bias")))
TABLE.add("gelu_tanh", _model(lambda x: ops.gelu(x, "tanh")))
TABLE.add("gelu_erf", _model(lambda x: ops.gelu(x, "erf")))
TABLE.add("silu_mul", _model(lambda x, y: ops.multiply(ops.swish(x), y)))
TABLE.add("bias_relu", _model(lambda x, bias: ops.relu(ops.add(x, bias)), ("bias",)))
TABLE.add("attention", _model(_attention(causal=False)))
TABLE.add("attention_causal", _model(_attention(causal=True)))
TABLE.add("cross_entropy", _model(_cross_entropy))
TABLE.add("stencil5", lambda case: _compiled(_stencil5(case), case, (), ""))
TABLE.add("conv3x3", _model(_conv3x3, ("weight",), _PACKED))
for _name in ("matmul", "matmul_bf16"):
    TABLE.add(_name, _model(_matmul))
    TABLE.add(_name, _model(_matmul, ("b",), _PACKED), "prepacked")
TABLE.add("matmul_bias_gelu", lambda case: _compiled(_matmul_bias_gelu(case), case, ("bias",), ""))
TABLE.add(
    "matmul_bias_gelu", lambda case: _compiled(_matmul_bias_gelu(case), case, ("b", "bias"), _PACKED), "prepacked"
)
TABLE.add("swiglu", _model(_swiglu))
TABLE.add("swiglu", _model(_swiglu, ("gate", "up", "down"), _PACKED), "prepacked")
