# SPDX-License-Identifier: MIT
"""Compiling test programs: to IR, through the verifier and the reference interpreter, and against plain Python."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

import pto_jit as pto
from pto_jit import dtypes
from pto_jit.codegen import (
    ContainerParam,
    Param,
    ParamKind,
    Program,
    ScalarParam,
    StaticParam,
    TensorParam,
    compile_program,
)
from pto_jit.codegen.results import Leaf
from pto_jit.dtypes import f64, i64
from pto_jit.ir.nodes import Module, Op, Scope, Stmt
from pto_jit.ir.types import TensorType
from pto_jit.ir.verify import verify
from pto_jit.ir.walk import statements
from pto_jit.semantic.interpreter import run
from pto_jit.semantic.rules import infer


class Static:
    """Marks an argument as a compile-time value."""

    def __init__(self, value: Any) -> None:
        self.value = value


def describe(value: Any, leaves: list[Any]) -> ParamKind:
    if isinstance(value, Static):
        return StaticParam(value.value)
    if isinstance(value, np.ndarray):
        dtype = dtypes.from_numpy(value.dtype)
        assert dtype is not None
        leaves.append(value)
        return TensorParam(TensorType(dtype, (None,) * value.ndim))
    if isinstance(value, (bool, str, type(None))):
        return StaticParam(value)
    if isinstance(value, (int, float)):
        leaves.append(value)
        return ScalarParam(i64 if isinstance(value, int) else f64, True)
    if isinstance(value, np.generic):
        dtype = dtypes.from_numpy(value.dtype)
        assert dtype is not None
        leaves.append(value)
        return ScalarParam(dtype, False)
    if isinstance(value, tuple) and any(isinstance(v, np.ndarray) for v in value):
        return ContainerParam("tuple", tuple((k, describe(v, leaves)) for k, v in enumerate(value)), value)
    return StaticParam(value)


def program(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Program, list[Any]]:
    """The front end's output for these arguments, verified, and the run-time arguments."""
    bound = inspect.signature(fn).bind(*args, **kwargs)
    leaves: list[Any] = []
    params: list[Param] = []
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            params += [Param(name, describe(v, leaves)) for v in value]
        elif kind is inspect.Parameter.VAR_KEYWORD:
            params += [Param(k, describe(v, leaves)) for k, v in value.items()]
        else:
            params.append(Param(name, describe(value, leaves)))
    result = compile_program(fn, params)
    verify(result.module, infer)
    return result, leaves


def ir(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Module:
    return program(fn, *args, **kwargs)[0].module


def execute(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What the compiled program returns, by the reference interpreter; arrays are written in place."""
    compiled, leaves = program(fn, *args, **kwargs)
    return _filled(compiled.results, run(compiled.module, leaves))


def _filled(structure: Any, values: tuple[Any, ...]) -> Any:
    if isinstance(structure, Leaf):
        return values[structure.number]
    if isinstance(structure, tuple) and hasattr(structure, "_make"):
        return type(structure)(*(_filled(s, values) for s in structure))
    if isinstance(structure, (tuple, list)):
        return type(structure)(_filled(s, values) for s in structure)
    if isinstance(structure, dict):
        return {k: _filled(v, values) for k, v in structure.items()}
    return structure


def check(fn: Callable[..., Any], *args: Any, tolerance: float = 1e-5, **kwargs: Any) -> Any:
    """The compiled program does what Python does when it runs the function itself; gives the compiled result."""
    first, second = copy.deepcopy((args, kwargs)), copy.deepcopy((args, kwargs))
    plain = [a.value if isinstance(a, Static) else a for a in first[0]]
    expected = fn(*plain, **{k: v.value if isinstance(v, Static) else v for k, v in first[1].items()})
    got = execute(fn, *second[0], **second[1])
    _same(got, expected, tolerance, "the result")
    for k, (mine, theirs) in enumerate(zip(second[0], first[0], strict=True)):
        if isinstance(mine, np.ndarray):
            _same(mine, theirs, tolerance, f"argument {k}")
    return got


def _same(got: Any, expected: Any, tolerance: float, what: str) -> None:
    if isinstance(expected, (tuple, list)):
        assert isinstance(got, (tuple, list)) and len(got) == len(expected), what
        for k, (a, b) in enumerate(zip(got, expected, strict=True)):
            _same(a, b, tolerance, f"{what}[{k}]")
    elif expected is None or isinstance(expected, str):
        assert got == expected, what
    else:
        np.testing.assert_allclose(
            np.asarray(got, np.float64), np.asarray(expected, np.float64), tolerance, tolerance, err_msg=what
        )


def all_statements(module: Module) -> list[Stmt]:
    return list(statements(module.func(module.entry).body))


def count(module: Module, kind: Any) -> int:
    """How many statements of a node class, or operations of a name, the entry has."""
    found = all_statements(module)
    if isinstance(kind, str):
        return sum(isinstance(s, Op) and s.op == kind for s in found)
    return sum(isinstance(s, kind) for s in found)


def scopes(module: Module) -> list[str]:
    return [s.name for s in all_statements(module) if isinstance(s, Scope)]


WAYS = ("cpu", "debug", "c", "interpret")


def as_numpy(kernel: Callable[..., Any], x: np.ndarray, way: str) -> None:
    """`kernel(x, y)` makes of nine zeros what it makes as a function of NumPy, in one of `WAYS`."""
    expected, got = np.zeros(9), np.zeros(9)
    kernel(x, expected)
    if way == "interpret":
        pto.jit(kernel).interpret(x, got)
    else:
        pto.jit(kernel, debug=way == "debug", target="c" if way == "c" else "cpu")(x, got)
    np.testing.assert_allclose(got, expected, rtol=1e-12)
