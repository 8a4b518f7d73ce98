# SPDX-License-Identifier: MIT
# pyright: reportMissingImports=false
"""JAX: `jit` of the plain expression, waited for in every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pto_jit.bench.implementation import Case, Implementation, Table
from pto_jit.bench.peers import jax_nests
from pto_jit.bench.workloads.grids import LIMIT
from pto_jit.bench.workloads.rows import EPSILON

TABLE = Table()
Function = Callable[..., Any]


def _jitted(function: Function, note: str = "") -> Callable[[Case], Implementation]:
    def build(case: Case) -> Implementation:
        arguments = [jax.device_put(array) for array in case.inputs.values()]
        compiled: Function = jax.jit(function)

        def call() -> Any:
            return jax.block_until_ready(compiled(*arguments))

        def collect(result: Any) -> list[np.ndarray[Any, Any]]:
            return [np.asarray(one) for one in (result if isinstance(result, tuple) else (result,))]

        return Implementation(call, collect, note)

    return build


def _rms_norm(x: jax.Array, weight: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=1, keepdims=True) + EPSILON) * weight


def _layer_norm(x: jax.Array, weight: jax.Array, bias: jax.Array) -> jax.Array:
    centred = x - jnp.mean(x, axis=1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + EPSILON) * weight + bias


def _matmul_bias_gelu(a: jax.Array, b: jax.Array, bias: jax.Array) -> jax.Array:
    return jax.nn.gelu((a @ b) * a.shape[1] ** -0.5 + bias, approximate=True)


def _swiglu(x: jax.Array, gate: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
    return (jax.nn.silu(x @ gate) * (x @ up)) @ down


def _attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("hqd,hkd->hqk", q, k) * q.shape[2] ** -0.5
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, axis=-1), v)


def _attention_causal(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("hqd,hkd->hqk", q, k) * q.shape[2] ** -0.5
    seen = jnp.tril(jnp.ones((q.shape[1], q.shape[1]), bool))
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1), v)


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    chosen = jnp.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
    return jax.nn.logsumexp(logits, axis=1) - chosen


def _stencil5(x: jax.Array) -> jax.Array:
    return 0.2 * (x[1:-1, 1:-1] + x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])


def _conv3x3(x: jax.Array, weight: jax.Array) -> jax.Array:
    axes = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x[None], weight, (1, 1), "VALID", dimension_numbers=axes)[0]


def _mandelbrot(re: jax.Array, im: jax.Array) -> jax.Array:
    shape = (len(im), len(re))
    cx, cy = jnp.broadcast_to(re[None, :], shape), jnp.broadcast_to(im[:, None], shape)

    def body(_: Any, state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        x, y, counts = state
        xx, yy = x * x, y * y
        return xx - yy + cx, 2.0 * x * y + cy, counts + (xx + yy <= 4.0)

    return jax.lax.fori_loop(0, LIMIT, body, (cx, cy, jnp.zeros(shape, jnp.int32)))[2]


_FUNCTIONS: dict[str, Function] = {
    "vector_add": lambda a, b: a + b,
    "launch": lambda a, b: a + b,
    "softmax": lambda x: jax.nn.softmax(x, axis=1),
    "column_softmax": lambda x: jax.nn.softmax(x, axis=1),
    "vector_sum": lambda x: jnp.sum(x, keepdims=True),
    "log_sum_exp": lambda x: jax.nn.logsumexp(x, keepdims=True),
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "gelu_erf": lambda x: jax.nn.gelu(x, approximate=False),
    "silu_mul": lambda x, y: jax.nn.silu(x) * y,
    "bias_relu": lambda x, bias: jax.nn.relu(x + bias),
    "matmul": jnp.matmul,
    "matmul_bf16": jnp.matmul,
    "matmul_bias_gelu": _matmul_bias_gelu,
    "attention": _attention,
    "attention_causal": _attention_causal,
    "swiglu": _swiglu,
    "cross_entropy": _cross_entropy,
    "stencil5": _stencil5,
    "conv3x3": _conv3x3,
    "mandelbrot": _mandelbrot,
}
_NOTES = {"attention_causal": "computes the whole square", "mandelbrot": "all points iterate to the end"}
for _name, _function in _FUNCTIONS.items():
    TABLE.add(_name, _jitted(_function, _NOTES.get(_name, "")))
for (_name, _variant), _function in jax_nests.FUNCTIONS.items():
    TABLE.add(_name, _jitted(_function), _variant)
