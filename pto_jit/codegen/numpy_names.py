# SPDX-License-Identifier: MIT
"""What to write in a kernel for names of NumPy, `math`, Triton and Numba: for hints, so imported when an error is on
its way."""

from __future__ import annotations

_UNARY = {
    "absolute": "pl.abs(x)", "fabs": "pl.abs(x)", "negative": "-x", "rint": "pl.round(x)", "invert": "~x",
    "log10": "math.log10(x)", "sinh": "math.sinh(x)", "cosh": "math.cosh(x)", "arcsinh": "math.asinh(x)",
    "arccosh": "math.acosh(x)", "arctanh": "math.atanh(x)", "arcsin": "math.asin(x)", "arccos": "math.acos(x)",
    "arctan": "math.atan(x)", "cbrt": "math.cbrt(x)", "deg2rad": "math.radians(x)", "radians": "math.radians(x)",
    "frexp": "math.frexp(x)", "modf": "math.modf(x)",
    "rad2deg": "math.degrees(x)", "degrees": "math.degrees(x)", "logical_not": "x == 0",
    "nan_to_num": "pl.where(pl.isnan(x), 0.0, x)",
    "amax": "pl.max(x)", "amin": "pl.min(x)", "norm": "pl.sqrt(pl.sum(x * x))",
    "var": "pl.mean(pl.square(x - pl.mean(x)))", "std": "pl.sqrt(pl.mean(pl.square(x - pl.mean(x))))",
    "empty_like": "pl.empty(x.shape, x.dtype)", "zeros_like": "pl.zeros(x.shape, x.dtype)",
    "ones_like": "pl.ones(x.shape, x.dtype)", "copy": "pl.load(x)",
}  # fmt: skip
_BINARY = {
    "add": "a + b", "subtract": "a - b", "multiply": "a * b", "divide": "a / b", "floor_divide": "a // b",
    "remainder": "a % b", "power": "a ** b", "matmul": "a @ b", "arctan2": "pl.atan2(a, b)",
    "hypot": "math.hypot(a, b)", "copysign": "math.copysign(a, b)",
    "ldexp": "math.ldexp(a, b)", "nextafter": "math.nextafter(a, b)",
    "greater": "a > b", "greater_equal": "a >= b", "less": "a < b",
    "less_equal": "a <= b", "equal": "a == b", "not_equal": "a != b", "bitwise_and": "a & b", "bitwise_or": "a | b",
    "bitwise_xor": "a ^ b", "left_shift": "a << b", "right_shift": "a >> b", "logical_and": "(a != 0) & (b != 0)",
    "logical_or": "(a != 0) | (b != 0)", "logaddexp": "pl.maximum(a, b) + pl.log1p(pl.exp(-pl.abs(a - b)))",
    "concatenate": "pl.concat([a, b], 0)", "full_like": "pl.full(a.shape, b, a.dtype)", "take": "a[b]",
}  # fmt: skip
SPELLED: dict[str, str] = {**_UNARY, **_BINARY, "pad": "pl.load(x, offsets, shape, pad=0)"}
"""Function names, and expressions over `x`, or `a` and `b`, that mean the same in a kernel."""

_ELSEWHERE = {
    "program_id": "write the grid as a loop: `for r in pl.range(0, rows, 16, chunk=1):`",
    "num_programs": "write the grid as a loop: `for r in pl.range(0, rows, 16, chunk=1):`",
    "cdiv": "write `-(-a // b)`; a loop over blocks is `pl.range(0, n, block)`, the last one may be partial",
    "next_power_of_2": "tiles have any extents: leave it out",
    "prange": "write `pl.range(n, parallel=True)`",
    "trans": "write `x.T`, or `pl.transpose(x, axes)`",
    "permute": "write `pl.transpose(x, axes)`",
    "swapaxes": "write `pl.transpose(x, axes)`",
    "moveaxis": "write `pl.transpose(x, axes)`",
    "softmax": "write `e = pl.exp(x - pl.max(x, axis=1, keepdims=True))`, then `e / pl.sum(e, axis=1, keepdims=True)`",
    "linspace": "write `start + step * pl.arange(0, n)`",
    "device_print": 'write `pl.print("{}", value)`',
    "device_assert": "write `pl.assert_(condition, message)`",
    "make_block_ptr": "tensors are arguments: `pl.load(x, [r, c], [16, 64])`",
    "make_tensor_descriptor": "tensors are arguments: `pl.load(x, [r, c], [16, 64])`",
    "debug_barrier": "work is ordered by what it reads and writes: leave it out",
    "syncthreads": "work is ordered by what it reads and writes: leave it out",
}
"""What to do without names that users of Triton and Numba look for in `pl`."""


def missing(name: str) -> str | None:
    """The hint where a kernel asks `pl` for a name that it lacks, and others have; None for what nobody has."""
    return f"write `{SPELLED[name]}`" if name in SPELLED else _ELSEWHERE.get(name)


_METHODS = {
    "fill": "x[...] = value", "item": "x[0]",
    "view": "pl.bitcast(x, dtype)", "contiguous": "x", "float": "x.to(pl.f32)", "half": "x.to(pl.f16)",
    "int": "x.to(pl.i32)", "long": "x.to(pl.i64)", "permute": "x.transpose(axes)", "t": "x.T", "numel": "x.size",
    "unsqueeze": "pl.expand_dims(x, axis)", "add_": "x[...] += y", "mul_": "x[...] *= y", "copy_": "x[...] = y",
    "bit_count": "while v: v &= v - 1; n += 1", "bit_length": "while v > 0: v >>= 1; n += 1",
}  # fmt: skip
"""Methods of arrays of NumPy and torch, and of integers, that run-time values lack, and what means the same."""


def method(name: str) -> str | None:
    """The hint where a run-time value is asked for a method that it lacks; None for what nobody has."""
    from pto_jit.codegen.builtins.registry import HANDLERS

    if name in _METHODS:
        return f"write `{_METHODS[name]}`"
    if name in HANDLERS:
        return f"write `pl.{name}(x)`"
    return missing(name)


def instead_of(name: str) -> str:
    """The hint where the function `name` of NumPy or `math` gets a run-time value."""
    from pto_jit import language as pl

    if name in SPELLED:
        return f"write `{SPELLED[name]}`"
    if hasattr(pl, name):
        return f"use `pl.{name}`"
    if name == "einsum":
        return "write index notation, `C[m, n] = pl.sum(A[m, k] * B[k, n])` over `pl.axis()` (docs/comprehensions.md)"
    return "write it with the operations of `pl`"
