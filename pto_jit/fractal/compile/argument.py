# SPDX-License-Identifier: MIT
"""A FractalTensor as the argument of a kernel: its leaves and the offsets of its levels, in memory in their order.

Depth, leaf shape and element type are known at compile time; all lengths are run-time values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pto_jit.codegen.params import ContainerParam, ParamKind, TensorParam
from pto_jit.fractal import results  # noqa: F401 - what is in the disk cache names its class
from pto_jit.fractal.compile.session import Argument
from pto_jit.fractal.tensor import FractalTensor
from pto_jit.ir.types import TensorType

Describe = Callable[[np.ndarray[Any, Any], tuple[int | None, ...]], TensorParam]


def described(value: FractalTensor, tensor: Describe) -> tuple[ParamKind, Any]:
    """What the compiler is told, and the key; `tensor` describes an array with some extents fixed."""
    leaves = np.ascontiguousarray(value.leaves)
    if value.leaves.ndim == 0:
        leaves = leaves.reshape(())
    params = [tensor(leaves, (None, *leaves.shape[1:]))]
    params += [tensor(np.ascontiguousarray(o), (None,)) for o in value.offsets]
    inside = ContainerParam("tuple", tuple(enumerate(params[1:])), (None,) * (len(params) - 1))
    what = ContainerParam("object", (("leaves", params[0]), ("offsets", inside)), Argument(value.depth))
    return what, ("fractal", value.depth, value.dtype.name, tuple(value.leaf_shape))


__all__ = ["TensorType", "described"]
