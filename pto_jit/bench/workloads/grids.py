# SPDX-License-Identifier: MIT
"""Workloads on grids: stencil, convolution, Mandelbrot."""

from __future__ import annotations

from typing import Any

import numpy as np

from pto_jit.bench.workload import Arrays, Output, Size, Tolerance, Work, Workload
from pto_jit.bench.workloads.elementwise import normal

_KERNELS = "pto_jit.bench.kernels.grids"
# The part of the complex plane that `mandelbrot` shows: real from, real to, imaginary from, imaginary to.
VIEW = (-2.0, 0.6, -1.2, 1.2)
LIMIT = 256


def _stencil(inputs: Arrays) -> list[np.ndarray[Any, Any]]:
    x = inputs["x"].astype(np.float64)
    return [0.2 * (x[1:-1, 1:-1] + x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])]


def _convolution(inputs: Arrays) -> list[np.ndarray[Any, Any]]:
    x, weight = inputs["x"].astype(np.float64), inputs["weight"].astype(np.float64)
    height, width = x.shape[0] - 2, x.shape[1] - 2
    out = np.zeros((height, width, weight.shape[3]))
    for dy in range(3):
        for dx in range(3):
            out += x[dy : dy + height, dx : dx + width] @ weight[dy, dx]
    return [out]


def _plane(size: Size, rng: np.random.Generator) -> Arrays:
    height, width = size
    return {
        "re": np.linspace(VIEW[0], VIEW[1], width, dtype=np.float32),
        "im": np.linspace(VIEW[2], VIEW[3], height, dtype=np.float32),
    }


def _mandelbrot(inputs: Arrays) -> list[np.ndarray[Any, Any]]:
    re, im = np.meshgrid(inputs["re"], inputs["im"])
    counts = np.zeros(re.shape, np.int32)
    x, y = re.copy(), im.copy()
    inside = np.ones(re.shape, bool)
    for _ in range(LIMIT):
        xx, yy = x * x, y * y
        inside &= xx + yy <= np.float32(4.0)
        if not inside.any():
            break
        counts += inside
        # Points that left stay where they are, so that nothing overflows.
        y = np.where(inside, np.float32(2.0) * x * y + im, y)
        x = np.where(inside, xx - yy + re, x)
    return [counts]


STENCIL5 = Workload(
    name="stencil5",
    summary="mean of a point and its four neighbours",
    axes=("rows", "cols"),
    sizes={"small": (512, 512), "large": (4096, 4096)},
    default=("small", "large"),
    unit="GB/s",
    dtype="f32",
    make=lambda size, rng: {"x": normal(rng, (size[0] + 2, size[1] + 2))},
    reference=_stencil,
    outputs=lambda size: {"out": Output(size, "float32")},
    work=lambda size, expected: Work(5 * size[0] * size[1], 4 * (size[0] + 2) * (size[1] + 2), 4 * size[0] * size[1]),
    tolerance=Tolerance(relative=1e-5, absolute=1e-6),
    kernels={"": f"{_KERNELS}:stencil5"},
)

CONV3X3 = Workload(
    name="conv3x3",
    summary="3x3 convolution, channels last, no padding",
    axes=("height", "width", "channels_in", "channels_out"),
    sizes={"small": (28, 28, 32, 32), "large": (112, 112, 64, 64)},
    default=("small", "large"),
    unit="GFLOP/s",
    dtype="f32",
    make=lambda size, rng: {
        "x": normal(rng, (size[0] + 2, size[1] + 2, size[2])),
        "weight": normal(rng, (3, 3, size[2], size[3])) / np.float32(np.sqrt(9 * size[2])),
    },
    reference=_convolution,
    outputs=lambda size: {"out": Output((size[0], size[1], size[3]), "float32")},
    work=lambda size, expected: Work(
        18 * size[0] * size[1] * size[2] * size[3],
        4 * ((size[0] + 2) * (size[1] + 2) * size[2] + 9 * size[2] * size[3]),
        4 * size[0] * size[1] * size[3],
        "f32 product",
    ),
    tolerance=Tolerance(relative=1e-4, absolute=1e-4),
    kernels={"": f"{_KERNELS}:conv3x3"},
)

MANDELBROT = Workload(
    name="mandelbrot",
    summary=f"iterations until |z| > 2, at most {LIMIT}",
    axes=("height", "width"),
    sizes={"small": (256, 256), "large": (1024, 1024)},
    default=("small", "large"),
    unit="GFLOP/s",
    dtype="f32",
    make=_plane,
    reference=_mandelbrot,
    outputs=lambda size: {"counts": Output(size, "int32")},
    # Two squares, their sum and difference, one product, one doubling and two additions for every iteration done.
    work=lambda size, expected: Work(8 * int(expected[0].sum(dtype=np.int64)), 4 * sum(size), 4 * size[0] * size[1]),
    # One fused multiply-add is enough to move a point of the fractal border by an iteration.
    tolerance=Tolerance(0.0, 0.0, outliers=0.02),
    kernels={"": f"{_KERNELS}:mandelbrot"},
)

WORKLOADS = (STENCIL5, CONV3X3, MANDELBROT)
