# SPDX-License-Identifier: MIT
"""What loops themselves cost, and what the compiler makes of them; the variants are the same work written otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pto_jit.bench.workload import Output, Size, Tolerance, Work, Workload
from pto_jit.bench.workloads.elementwise import normal

_KERNELS = "pto_jit.bench.kernels.loops"


def _outputs(size: Size) -> dict[str, Output]:
    return {"out": Output(size, "float32")}


def _work(size: Size, expected: Sequence[np.ndarray[Any, Any]]) -> Work:
    nbytes = 4 * int(np.prod(size))
    return Work(0, nbytes, nbytes)


AFFINE = Workload(
    name="affine",
    summary="out = 2 x + 1 in a loop over elements; chunked: in chunks of 4096",
    axes=("n",),
    sizes={"small": (1 << 16,), "medium": (1 << 20,), "large": (1 << 24,)},
    default=("small", "large"),
    unit="GB/s",
    dtype="f32",
    make=lambda size, rng: {"x": normal(rng, size)},
    reference=lambda inputs: [inputs["x"].astype(np.float64) * 2.0 + 1.0],
    outputs=_outputs,
    work=_work,
    tolerance=Tolerance(1e-6, 1e-6),
    kernels={"": f"{_KERNELS}:affine", "chunked": f"{_KERNELS}:affine_chunked"},
)

UNEVEN_NEST = Workload(
    name="uneven_nest",
    summary="exp(x) in a parallel nest of few long rows; rows: only the rows are divided",
    axes=("rows", "cols"),
    sizes={"small": (3, 1 << 16), "medium": (3, 1_000_000), "large": (3, 1 << 23)},
    default=("small", "medium"),
    unit="GB/s",
    dtype="f32",
    make=lambda size, rng: {"x": normal(rng, size)},
    reference=lambda inputs: [np.exp(inputs["x"].astype(np.float64))],
    outputs=_outputs,
    work=_work,
    tolerance=Tolerance(1e-5, 1e-6),
    kernels={"": f"{_KERNELS}:uneven_nest", "rows": f"{_KERNELS}:uneven_nest_rows"},
)

SMALL_ROWS = Workload(
    name="small_rows",
    summary="out = 2 x by rows in a parallel loop of little work; sequential: in a sequential one",
    axes=("rows", "cols"),
    sizes={"small": (4, 64), "medium": (64, 64), "large": (4096, 64)},
    default=("small", "medium", "large"),
    unit="GB/s",
    dtype="f32",
    make=lambda size, rng: {"x": normal(rng, size)},
    reference=lambda inputs: [inputs["x"].astype(np.float64) * 2.0],
    outputs=_outputs,
    work=_work,
    tolerance=Tolerance(0.0, 0.0),
    kernels={"": f"{_KERNELS}:small_rows", "sequential": f"{_KERNELS}:small_rows_sequential"},
)

COLUMN_FIRST = Workload(
    name="column_first",
    summary="out = 2 x + 1 with the loop over rows inside; kept: sequential, which are not exchanged",
    axes=("rows", "cols"),
    sizes={"small": (256, 256), "medium": (2048, 2048), "large": (4096, 4096)},
    default=("medium",),
    unit="GB/s",
    dtype="f32",
    make=lambda size, rng: {"x": normal(rng, size)},
    reference=lambda inputs: [inputs["x"].astype(np.float64) * 2.0 + 1.0],
    outputs=_outputs,
    work=_work,
    tolerance=Tolerance(1e-6, 1e-6),
    kernels={"": f"{_KERNELS}:column_first", "kept": f"{_KERNELS}:column_first_kept"},
)

WORKLOADS = (AFFINE, UNEVEN_NEST, SMALL_ROWS, COLUMN_FIRST)
