# SPDX-License-Identifier: MIT
"""Kernels as tutorials write them: a type checker has nothing to say about them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import pto_jit as pto
import pto_jit.language as pl

M, N = pl.dynamic("M"), pl.dynamic("N")


@pto.jit
def add(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor):
    out[...] = x + y


@pto.jit
def softmax(x: pl.Tensor, y: pl.Tensor):
    rows, cols = x.shape
    with pl.incore():
        for r in pl.range(0, rows, chunk=64):
            t = pl.load(x, [r, 0], [1, cols])
            e = pl.exp(t - pl.max(t, axis=1, keepdims=True))
            pl.store(e / pl.sum(e, axis=1, keepdims=True), [r, 0], y)


@pto.incore
def scale(t: pl.Tile, factor: float) -> pl.Tile:
    return t * factor


@pto.jit
def matmul(
    a: pl.Tensor, b: pl.Tensor, activation: Callable[[pl.Tile], pl.Tile] | None = None, *, block: pl.constexpr = 32
) -> np.ndarray:
    m, k = a.shape
    n = b.shape[1]
    out = pl.zeros([m, n], pl.f32)
    for i in pl.range(0, m, block, parallel=True):
        for j in pl.range(0, n, block, chunk=2, chunk_policy="aligned"):
            acc = pl.zeros([block, block], pl.f32)
            for p in range(0, k, block):
                acc += pl.dot(pl.load(a, [i, p], [block, block]), pl.load(b, [p, j], [block, block]))
            acc = scale(acc, 2.0)
            if activation is not None:
                acc = activation(acc)
            pl.store(acc, [i, j], out)
    return out


@pto.jit
def views(x: pl.Tensor, y: pl.Tensor, n: int, threshold: float) -> tuple[float, int]:
    total, count = 0.0, 0
    for i in range(x.shape[0]):
        if x[i, 0] > threshold and i < n:
            total += x[i, 0]
            count += 1
            y[i, :] = -x[i, :]
    y[0:4, :] += pl.maximum(x[0:4, :], 0).to(pl.f32)
    y[0, 0] = pl.sum(x.T @ x) if x.dtype == pl.f32 else 0.0
    pl.print("{} of {:.2f}", count, total)
    pl.assert_(count >= 0, "counts")
    return total, count


@pto.jit(debug=True)
def checked(x: pl.Tensor[[M, 64], pl.f32], y: pl.Tensor[[M, N], pl.f32]):
    values, places = pl.topk(pl.load(x), 3)
    best, at = pl.reduce((values, places), 1, lambda a, b: (pl.maximum(a[0], b[0]), b[1]))
    pl.store(pl.reshape(best, [-1, 1]), [0, 0], y)
    pl.atomic_add(y, [0, 0], pl.ones([1, 1], pl.f32))
    acc = pl.reduction(init=(0.0, 0), combine=lambda a, b: (a[0] + b[0], a[1] + b[1]))
    for i in pl.range(4, parallel=True):
        acc.update(best[i], 1)
    total, count = acc.value
    y[0, 1] = total / count + at[0]


@dataclasses.dataclass(frozen=True)
class Config:
    block: int = 64
    scale: float = 1.0


class Layer:
    def __init__(self, weight: np.ndarray, config: Config) -> None:
        self.weight = weight
        self.config = config

    @pto.incore
    def part(self, t: pl.Tile) -> pl.Tile:
        return t * self.config.scale

    @pto.jit
    def forward(self, x: pl.Tensor) -> np.ndarray:
        for _ in pl.static_range(self.config.block // 32):
            pl.static_assert(self.config.block % 32 == 0, "whole parts")
        return self.part(pl.load(x)) @ self.weight


def relu(t: pl.Tile, slope: float = 0.0) -> pl.Tile:
    return pl.where(t > 0, t, t * slope)


def use() -> None:
    x = np.ones((64, 64), np.float32)
    add(x, x, np.empty_like(x))
    softmax(x, np.empty_like(x))
    out = matmul(x, x, functools.partial(relu, slope=0.1), block=16)
    total, count = views(x, x, 3, 0.5)
    layer = Layer(x, Config())
    result: np.ndarray = layer.forward(x) + out * total + count
    compiled = matmul.compile(pto.spec((None, 64), pl.f32), x)
    text: str = compiled.ir("fused", source=True) + str(softmax.explain(x, x))
    double: Any = pto.jit(lambda t: t * 2)
    print(double(result), text, [s.reason for s in softmax.specializations()])
