# SPDX-License-Identifier: MIT
"""Run-time printing and assertions."""

from __future__ import annotations

from typing import Any

import numpy as np

from pto_jit.dtypes import bool_, i64
from pto_jit.errors import TypeMismatchError
from pto_jit.ir.nodes import Attr, Operand
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.semantic import checks
from pto_jit.semantic.row import Args, Attrs, OpRow, Regions, Types


def _text(op: str, attrs: dict[str, Attr], name: str) -> None:
    if not isinstance(attrs[name], str):
        raise TypeMismatchError(f"`{op}`: {name} must be a str, not {attrs[name]!r}", code="PTO-T170", hint="give text")


def print_(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    _text(op, attrs, "fmt")
    for arg in args:
        if isinstance(arg.type, TensorType):
            message = "`print` takes scalars and tiles, not a tensor"
            raise TypeMismatchError(message, code="PTO-T171", hint="load it first")
    text = str(attrs["fmt"])
    try:
        text.format(*map(_example, args))
    except Exception as error:  # whatever the mini-languages of str.format and of NumPy's types raise
        counted = f"{len(args)} value{'s' * (len(args) != 1)}"
        raise TypeMismatchError(
            f"`print`: {text!r:.60} does not format its {counted}: {error}", code="PTO-T172",
            hint='one `{}` per value, as for `str.format`; a tile has no formats, its elements do: `"{:.2f}", t[0, 0]`',
        ) from None  # fmt: skip
    return ()


def _example(arg: Operand) -> Any:
    """A value as `print` formats it: what a format takes depends on its kind alone."""
    assert isinstance(arg.type, (ScalarType, TileType))
    dtype = arg.type.dtype
    if isinstance(arg.type, TileType):
        return np.ones((1,) * len(arg.type.shape), dtype.numpy)
    one = dtype.numpy.type(1)
    return one if dtype.is_float and dtype.bits < 64 else one.item()


def assert_(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    _text(op, attrs, "message")
    checks.flag(op, attrs, "always")
    if "error" in attrs:
        _text(op, attrs, "error")
    checks.scalar(op, args[0], "condition", bool_)
    if "told" in attrs:
        _text(op, attrs, "told")
    for arg in args[1:]:
        checks.scalar(op, arg, "number that is told", i64)
    return ()


ROWS: tuple[OpRow, ...] = (
    OpRow("print", "debug", "print(*values) {fmt}", "prints scalars and tiles as str.format does", print_, 0, None,
          required=("fmt",), effect="writes"),
    OpRow("assert", "debug", "assert(cond, *numbers) {message, always, error, told}", "stops the program when cond "
          "is false: with debug only, or always; error names the class raised (KernelAssertionError by default); told, "
          "which is said behind the message, has the places {0}, {1} and {2} of up to three i64 numbers, or "
          "{0.high} and {0.low} of a number that is two of 32 bits, {0.f64}, {0.u64}, {0.truth} of bits",
          assert_, 1, 4,
          required=("message",), optional=("always", "error", "told"), effect="writes"),
)  # fmt: skip
