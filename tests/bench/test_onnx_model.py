# SPDX-License-Identifier: MIT
"""The ONNX writer: bytes as the encoding wants them, models that onnxruntime takes."""

from __future__ import annotations

import numpy as np
import pytest

from pto_jit.bench.checking import check, poison
from pto_jit.bench.implementation import Case
from pto_jit.bench.peers.onnx_model import Graph
from pto_jit.bench.specials import ALL
from pto_jit.bench.workload import aligned_empty, dtype_named

X = np.zeros((2, 300), np.float32)


def test_a_node_holds_its_fields_in_order() -> None:
    graph = Graph()
    assert graph.node("Relu", "x") == "t0"
    assert graph.nodes == [b"\x0a\x01x\x12\x02t0\x22\x04Relu\x3a\x00"]


def test_an_attribute_is_written_by_its_type() -> None:
    graph = Graph()
    graph.node("Op", i=-1, f=0.5, s="ab", many=(3, 300))
    (node,) = graph.nodes
    assert b"\x0a\x01i\x18" + b"\xff" * 9 + b"\x01\xa0\x01\x02" in node, "a negative number takes ten bytes"
    assert b"\x0a\x01f\x15\x00\x00\x00\x3f\xa0\x01\x01" in node
    assert b"\x0a\x01s\x22\x02ab\xa0\x01\x03" in node
    assert b"\x0a\x04many\x40\x03\x40\xac\x02\xa0\x01\x07" in node


def test_a_shape_is_part_of_an_input() -> None:
    graph = Graph()
    model = graph.model({"x": X}, graph.node("Relu", "x"), X)
    assert b"\x0a\x02\x08\x02\x0a\x03\x08\xac\x02" in model, "extents 2 and 300"


# what has no ONNX operator, or is about how loops are divided and has no model
NO_MODEL = ("matmul_bf16", "mandelbrot", "column_softmax", "vector_sum", "log_sum_exp", "affine", "uneven_nest", "small_rows",
            "column_first", "plain_product", "plain_rows", "plain_fir", "plain_viterbi",
            "grid_rnn", "grid_rnn_jagged", "stacked_rnn", "bigbird", "products")  # fmt: skip
ROWS = [
    (workload.name, variant)
    for workload in ALL.values()
    if not workload.like and workload.name not in NO_MODEL
    for variant in ("", "prepacked")
    if not variant or workload.name in ("matmul", "matmul_bias_gelu", "swiglu")
]


@pytest.mark.parametrize(("name", "variant"), ROWS)
def test_every_model_runs_and_is_right(name: str, variant: str) -> None:
    pytest.importorskip("onnxruntime")
    from pto_jit.bench.peers.onnxruntime_peer import TABLE

    workload = ALL[name]
    size = tuple(5 + 3 * place for place in range(len(workload.axes)))
    inputs = workload.make(size, np.random.default_rng(0))
    outputs = {key: aligned_empty(one.shape, dtype_named(one.dtype)) for key, one in workload.outputs(size).items()}
    for array in outputs.values():
        poison(array)
    TABLE.build(name, variant, Case(workload, size, 1, inputs, outputs)).call()
    found = check(list(outputs.values()), workload.reference(inputs), workload.tolerance)
    assert found.passed, found.message
