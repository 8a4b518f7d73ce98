# SPDX-License-Identifier: MIT
"""What a comprehension means, with NumPy: every statement over the whole grid of its index ranges, in 64 bits.

Knows nothing of the compiler or of the lowering; the ranges are those of `infer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pto_jit.comprehensions import nodes
from pto_jit.comprehensions.nodes import Apply, Binary, Cast, Extent, Name, Number, Pad, Read, Select, Unary
from pto_jit.dtypes import DType

_FUNCTIONS = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "log2": np.log2,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "tanh": np.tanh, "sin": np.sin, "cos": np.cos,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "relu": lambda x: np.maximum(x, 0), "abs": np.abs,
    "floor": np.floor, "ceil": np.ceil, "maximum": np.maximum, "minimum": np.minimum, "pow": np.power,
    "where": np.where, "fma": lambda a, b, c: a * b + c, "square": np.square, "sign": np.sign, "atan2": np.arctan2,
}  # fmt: skip
_OPERATORS = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.mod, "**": np.power,
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
    "&&": np.logical_and, "||": np.logical_or,
}  # fmt: skip
_REDUCE = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


class Grid:
    """Evaluates expressions at all points of a grid of indices."""

    def __init__(self, definition: nodes.Definition, env: dict[str, Any], origins: Mapping[str, Any],
                 indices: dict[str, np.ndarray]) -> None:  # fmt: skip
        self.definition, self.env, self.origins, self.indices = definition, env, origins, indices

    def at(self, e: nodes.Expression) -> Any:
        if isinstance(e, Number):
            return e.value
        if isinstance(e, Name):
            return self.indices[e.name] if e.name in self.indices else self.env[e.name]
        if isinstance(e, Extent):
            return self.env[e.tensor].shape[e.axis]
        if isinstance(e, Read):
            return self.read(e)[0]
        if isinstance(e, Pad):
            value, inside = self.read(e.read)
            return np.where(inside, value, self.at(e.value))
        if isinstance(e, Cast):
            return _cast(e.dtype, self.at(e.operand))
        if isinstance(e, Unary):
            value = self.at(e.operand)
            return np.logical_not(value) if e.op == "!" else -value
        if isinstance(e, Select):
            return np.where(self.at(e.condition), self.at(e.yes), self.at(e.no))
        if isinstance(e, Apply):
            return (e.function or _FUNCTIONS[e.name])(*(self.at(a) for a in e.arguments))
        assert isinstance(e, Binary)
        a, b = self.at(e.left), self.at(e.right)
        if e.op == "/":
            integral = all(np.issubdtype(np.asarray(x).dtype, np.integer) for x in (a, b))
            return np.floor_divide(a, b) if integral and self.definition.floor else np.divide(a, b)
        return _OPERATORS[e.op](a, b)

    def read(self, e: Read) -> tuple[Any, Any]:
        """Elements, and whether they lie inside; what lies outside is some element."""
        array = np.asarray(self.env[e.tensor])
        lows = self.origins.get(e.tensor, (0,) * array.ndim)
        places: list[Any] = []
        inside: Any = True
        for s, low, extent in zip(e.subscripts, lows, array.shape, strict=True):
            place = self.at(s) - low
            inside = inside & (place >= 0) & (place < extent)
            places.append(np.clip(place, 0, max(extent - 1, 0)))
        return (array[tuple(places)] if places else array[()]), inside


def run(comprehension: Any, arguments: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The tensors that a comprehension (without calls of others) makes, in 64 bits, by name."""
    definition = comprehension.definition
    env: dict[str, Any] = {}
    shapes: dict[str, Any] = {}
    for p in definition.parameters:
        value = arguments[p.name]
        if p.sizes:
            value = np.asarray(value)
            env[p.name] = value.astype(np.float64) if value.dtype.kind == "f" or p.dtype.is_float else value.astype(np.int64)
            shapes[p.name] = value.shape
            env.update({s: n for s, n in zip(p.sizes, value.shape, strict=True) if isinstance(s, str)})
        else:
            env[p.name] = value
            if isinstance(value, int):
                shapes[p.name] = value
    found = comprehension.infer(**shapes)
    made: dict[str, np.ndarray] = {}
    for s in found.statements:
        st = s.inferred.statement
        names = list(s.ranges)
        axes = [np.arange(*s.ranges[n]) for n in names]
        points = dict(zip(names, np.meshgrid(*axes, indexing="ij"), strict=True)) if names else {}
        value = np.asarray(Grid(definition, env, found.origins, points).at(st.value))
        value = np.broadcast_to(value, [len(a) for a in axes])
        if st.op is not None and len(names) > len(st.indices):
            initial = {"min": np.inf, "max": -np.inf}.get(st.op)
            axis = tuple(range(len(st.indices), len(names)))
            if value.dtype.kind in "iub" and initial is not None:
                initial = None if value.size else 0
            value = _REDUCE[st.op].reduce(value, axis=axis, **({} if initial is None else {"initial": initial}))
        if st.target not in env:
            env[st.target] = np.zeros(found.shapes[st.target], np.asarray(value).dtype)
        lows = found.origins.get(st.target, (0,) * len(st.indices))
        region = tuple(
            slice(s.ranges[i][0] - low, s.ranges[i][1] - low) for i, low in zip(st.indices, lows, strict=True)
        )
        old = env[st.target][region]
        new = value if st.op is None or st.fresh else _REDUCE[st.op](old, value)
        env[st.target] = np.array(env[st.target], dtype=np.result_type(env[st.target], np.asarray(new).dtype))
        env[st.target][region] = new
        made[st.target] = env[st.target]
    return made


def _cast(dtype: DType, value: Any) -> Any:
    return np.asarray(value).astype(np.float64 if dtype.is_float else np.int64)


def check(comprehension: Any, arguments: Mapping[str, Any], tolerance: float = 2e-5) -> Any:
    """Run both ways and compare every result; gives what the comprehension gave."""
    expected = run(comprehension, arguments)
    given = comprehension(**arguments)
    results = given if isinstance(given, tuple) else (given,)
    for r, value in zip(comprehension.definition.returns, results, strict=True):
        wanted = expected[r.name]
        assert value.shape == wanted.shape, (r.name, value.shape, wanted.shape)
        scale = max(1.0, float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0))) if wanted.size else 1.0
        np.testing.assert_allclose(np.asarray(value, np.float64), wanted.astype(np.float64), rtol=tolerance,
                                   atol=tolerance * scale, err_msg=r.name)  # fmt: skip
    return given
