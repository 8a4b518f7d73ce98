# SPDX-License-Identifier: MIT
"""Programs in text form, run by the CPU target and by the reference interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from pto_jit import errors
from pto_jit.dtypes import BY_ID, BY_NAME
from pto_jit.ir.nodes import Module
from pto_jit.ir.parse import parse
from pto_jit.lower.coalesce import coalesce
from pto_jit.lower.groups.fuse import fuse
from pto_jit.runtime import Entry, default_runtime
from pto_jit.semantic.interpreter import run
from pto_jit.semantic.rules import infer
from pto_jit.semantic.table import NAMES
from pto_jit.targets import cpu

FLOAT_TOLERANCE = {"f16": 4e-3, "bf16": 3e-2, "f32": 3e-6, "f64": 1e-13}


def module(text: str) -> Module:
    """A checked module; a function without a comment above it is an orchestration function."""
    found = parse(text, ops=NAMES, infer=infer)
    return replace(found, funcs=tuple(
        f if f.name != found.entry else replace(f, kind="orchestration") for f in found.funcs))  # fmt: skip


class Failed(Exception):
    """A run-time failure: the class of the error and its message."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


class Compiled:
    """A loaded program that takes NumPy arrays and numbers."""

    def __init__(self, program: Module, *, fused: bool = True, threads: int = 2, **options: Any) -> None:
        self.module = fuse(coalesce(program)) if fused else program
        self.program = cpu.compile_module(self.module, debug=options.get("debug", False),
                                          fastmath=options.get("fastmath", False))  # fmt: skip
        self.built = self  # what prints reach: a kernel's `built.program`
        self.runtime = default_runtime(threads)
        self.entry = Entry(self.runtime, self.program.entry_address, self.program.result_plan, holder=self,
                           on_failure=self._fail)  # fmt: skip

    @staticmethod
    def _fail(holder: Compiled, site: int, v0: int, v1: int, v2: int, args: tuple[Any, ...]) -> None:
        if site < 0:
            raise Failed("runtime", str(site))
        kind, message, _ = holder.program.sites[site]
        raise Failed(kind, message.format(v0, v1, v2))

    def slots(self, args: Sequence[Any]) -> list[Any]:
        out: list[Any] = []
        for a in args:
            if isinstance(a, np.ndarray):
                out += [a.ctypes.data, *a.shape, *a.strides]
            elif isinstance(a, (bool, np.bool_)):
                out.append(int(a))
            else:
                out.append(a if isinstance(a, float) else int(a))
        return out

    def __call__(self, *args: Any) -> Any:
        return self.entry.launch(self.slots(args), args)


def copies(args: Sequence[Any]) -> list[Any]:
    """Fresh arguments: arrays keep their strides."""
    out: list[Any] = []
    for a in args:
        if isinstance(a, np.ndarray):
            base = a if a.base is None else a.base
            if isinstance(base, np.ndarray) and base is not a:
                fresh = base.copy()
                offset = a.__array_interface__["data"][0] - base.__array_interface__["data"][0]
                out.append(np.ndarray(a.shape, a.dtype, fresh, offset, a.strides))
            else:
                out.append(a.copy())
        else:
            out.append(a)
    return out


def agree(actual: Any, expected: Any, scale: float = 1.0) -> None:
    """Equal for integers, within the dtype's tolerance for floats."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    name = {np.dtype(ml_dtypes.bfloat16): "bf16"}.get(expected.dtype)
    if name is None and expected.dtype.kind == "f":
        name = f"f{expected.dtype.itemsize * 8}"
    if name is None:
        np.testing.assert_array_equal(actual, expected)
        return
    tolerance = FLOAT_TOLERANCE[name] * scale
    np.testing.assert_allclose(actual.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance)


@cache
def _compiled(text: str, fused: bool, options: tuple[tuple[str, Any], ...]) -> Compiled:
    return Compiled(module(text), fused=fused, **dict(options))


def check(text: str, *args: Any, scale: float = 1.0, **options: Any) -> list[Any]:
    """Run both ways (fused, and every operation alone) and compare all arrays and results; a failure must be one in
    both. Gives the interpreter's arrays."""
    found = module(text)
    wanted = copies(args)
    failure: Exception | None = None
    results: Any = ()
    try:
        results = run(found, wanted, debug=options.get("debug", False))
    except errors.PtoError as error:
        failure = error
    for fused in (True, False):
        given = copies(args)
        compiled = _compiled(text, fused, tuple(sorted(options.items())))
        if failure is not None:
            try:
                compiled(*given)
            except Failed as got:
                kind = getattr(errors, got.kind)
                assert isinstance(failure, kind), (failure, got)
                continue
            raise AssertionError(f"it should have failed: {failure}")
        got = compiled(*given)
        for a, b in zip(given, wanted, strict=True):
            if isinstance(a, np.ndarray):
                agree(a, b, scale)
        types = found.func(found.entry).results
        outs = got if isinstance(got, tuple) else () if got is None else (got,)
        for a, b, typ in zip(outs, results, types, strict=True):
            agree(a, np.asarray(b, typ.dtype.numpy), scale)  # pyright: ignore[reportAttributeAccessIssue]
    return wanted


def array(dtype: str, shape: tuple[int, ...], seed: int = 0, low: int = -20, high: int = 20) -> np.ndarray:
    """Seeded numbers of a dtype of the language."""
    rng = np.random.default_rng(seed)
    kind = BY_NAME[dtype]
    if kind.kind == "b":
        return rng.random(shape) < 0.5
    if kind.kind == "f":
        return rng.standard_normal(shape).astype(kind.numpy)
    return rng.integers(0 if kind.kind == "u" else low, high, shape).astype(kind.numpy)


__all__ = ["BY_ID", "Compiled", "Failed", "agree", "array", "check", "copies", "module"]
