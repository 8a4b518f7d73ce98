# SPDX-License-Identifier: MIT
# pyright: reportMissingImports=false
"""NumPy arrays as torch tensors and back, without copies; shared by eager torch and inductor."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch

from pto_jit.bench.workload import dtype_named

Array = np.ndarray[Any, Any]

# torch takes the number of its threads from here, not from every variable that OpenMP reads.
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
torch.set_grad_enabled(False)


def tensor(array: Array) -> torch.Tensor:
    """A tensor over the same memory; torch does not know NumPy's bf16 by itself."""
    if array.dtype == dtype_named("bfloat16"):
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def tensors(arrays: tuple[Array, ...]) -> list[torch.Tensor]:
    """`tensor` of each."""
    return [tensor(array) for array in arrays]


def array(result: torch.Tensor) -> Array:
    """An array over a tensor's memory."""
    if result.dtype == torch.bfloat16:
        return result.contiguous().view(torch.uint16).numpy().view(dtype_named("bfloat16"))
    return result.numpy()


def one(result: torch.Tensor) -> list[Array]:
    """`collect` for a single returned tensor."""
    return [array(result)]


def channels_last(case_arrays: tuple[Array, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Image and weights of the convolution in torch's axis order, memory still channels last."""
    x, weight = tensor(case_arrays[0]), tensor(case_arrays[1])
    image = x.permute(2, 0, 1).unsqueeze(0)
    filters = weight.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    return image, filters


def image_result(result: torch.Tensor) -> list[Array]:
    """`collect` for the convolution."""
    return [np.ascontiguousarray(result[0].permute(1, 2, 0).numpy())]
