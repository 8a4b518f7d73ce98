# SPDX-License-Identifier: MIT
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
"""Halide with hand-written schedules: whole rows per task, vectors of the host's width, register tiles for products.

The products are not packed, so they are good only while the right operand stays in a cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import halide as hl

from pto_jit.bench.implementation import Builder, Case, Implementation, Table, Unsupported
from pto_jit.bench.workloads.rows import EPSILON

TABLE = Table()
Expression = Any

_LANES: int = hl.get_host_target().natural_vector_size(hl.Float(32))
# Rows per task: enough work for a hand-over to another thread, few enough to balance.
_ROWS = 16
# Independent partial results of a reduction, in vectors: hides the latency of the addition.
_PARTIALS = 4
# Register tile of a product: 24 of 32 registers accumulate, four of them along the row of the result.
_ACCUMULATORS, _TILE_VECTORS = (24, 4) if _LANES == 16 else (12, 2)


def _realized(function: Any, case: Case) -> Implementation:
    buffer = hl.Buffer(next(iter(case.outputs.values())))
    function.compile_jit()
    return Implementation(lambda: function.realize(buffer))


def _buffers(case: Case) -> list[Any]:
    return [hl.Buffer(array) for array in case.inputs.values()]


def _var(name: str) -> Any:
    return hl.Var(name)


def _elementwise(expression: Callable[..., Expression]) -> Builder:
    """A grid in which every element is `expression(inputs at its place)`; one-dimensional inputs follow the columns."""

    def build(case: Case) -> Implementation:
        out, c, r, ro = hl.Func("out"), _var("c"), _var("r"), _var("ro")
        out[c, r] = expression(*(one[c, r] if one.dimensions() == 2 else one[c] for one in _buffers(case)))
        out.split(r, ro, r, _ROWS, hl.TailStrategy.GuardWithIf).parallel(ro)
        out.vectorize(c, _LANES, hl.TailStrategy.GuardWithIf)
        return _realized(out, case)

    return build


def _gelu_tanh(x: Expression) -> Expression:
    # 0.5 (1 + tanh(u)) is the logistic function of 2u.
    u = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)
    return x / (1.0 + hl.exp(-2.0 * u))


TABLE.add("gelu_tanh", _elementwise(_gelu_tanh))
TABLE.add("silu_mul", _elementwise(lambda x, y: x / (1.0 + hl.exp(-x)) * y))
TABLE.add("bias_relu", _elementwise(lambda x, bias: hl.max(x + bias, 0.0)))


def _vector_add(chunk: int) -> Builder:
    def build(case: Case) -> Implementation:
        a, b = _buffers(case)
        out, i, io = hl.Func("out"), _var("i"), _var("io")
        out[i] = a[i] + b[i]
        if chunk:
            out.split(i, io, i, chunk, hl.TailStrategy.GuardWithIf).parallel(io)
        out.vectorize(i, _LANES, hl.TailStrategy.GuardWithIf)
        return _realized(out, case)

    return build


TABLE.add("vector_add", _vector_add(1 << 14))
TABLE.add("launch", _vector_add(0))


class _Rows:
    """Functions of a row that share a loop over the rows."""

    def __init__(self, cols: int) -> None:
        self.c, self.r = _var("c"), _var("r")
        self._cols = cols
        self._inside: list[Any] = []

    def reduce(
        self, name: str, first: float, step: Callable[[Expression, Expression], Expression], value: Callable[..., Any]
    ) -> Any:
        """One value per row: `step` over `value(column, row)`, in vectors of partial results."""
        total, k, u, v = hl.Func(name), hl.RDom([hl.Range(0, self._cols)], f"{name}_k"), _var("u"), _var("v")
        total[self.r] = hl.f32(first)
        total[self.r] = step(total[self.r], value(k.x, self.r))
        outer, inner = hl.RVar("outer"), hl.RVar("inner")
        total.update(0).split(k.x, outer, inner, _LANES * _PARTIALS)
        partial = total.update(0).rfactor([(inner, u)])
        partial.vectorize(u, _LANES)
        partial.update(0).reorder(u, outer).split(u, v, u, _LANES).vectorize(u).unroll(v)
        # The last few values meet in the innermost vector.
        total.update(0).atomic().vectorize(inner, _LANES)
        self._inside += [partial, total]
        return total

    def keep(self, name: str, value: Callable[..., Any]) -> Any:
        """A temporary row."""
        kept = hl.Func(name)
        kept[self.c, self.r] = value(self.c, self.r)
        kept.vectorize(self.c, _LANES, hl.TailStrategy.RoundUp)
        self._inside.append(kept)
        return kept

    def finish(self, case: Case, value: Expression) -> Implementation:
        """The output, row by row."""
        out, ro = hl.Func("out"), _var("ro")
        out[self.c, self.r] = value
        out.split(self.r, ro, self.r, _ROWS, hl.TailStrategy.GuardWithIf).parallel(ro)
        out.vectorize(self.c, _LANES, hl.TailStrategy.GuardWithIf)
        for function in self._inside:
            function.compute_at(out, self.r)
        return _realized(out, case)


def _add(one: Expression, two: Expression) -> Expression:
    return one + two


@TABLE.row("softmax")
def softmax(case: Case) -> Implementation:
    """The exponentials of a row are kept in a temporary."""
    (x,) = _buffers(case)
    rows = _Rows(case.size[1])
    top = rows.reduce("top", -math.inf, hl.max, lambda c, r: x[c, r])
    e = rows.keep("e", lambda c, r: hl.exp(x[hl.min(c, case.size[1] - 1), r] - top[r]))
    total = rows.reduce("total", 0.0, _add, lambda c, r: e[c, r])
    return rows.finish(case, e[rows.c, rows.r] * (1.0 / total[rows.r]))


@TABLE.row("rms_norm")
def rms_norm(case: Case) -> Implementation:
    """One reduction."""
    x, weight = _buffers(case)
    rows = _Rows(case.size[1])
    squares = rows.reduce("squares", 0.0, _add, lambda c, r: x[c, r] * x[c, r])
    scale = 1.0 / hl.sqrt(squares[rows.r] / float(case.size[1]) + EPSILON)
    return rows.finish(case, x[rows.c, rows.r] * scale * weight[rows.c])


@TABLE.row("layer_norm")
def layer_norm(case: Case) -> Implementation:
    """Two reductions, the second of centred squares."""
    x, weight, bias = _buffers(case)
    cols = float(case.size[1])
    rows = _Rows(case.size[1])
    total = rows.reduce("total", 0.0, _add, lambda c, r: x[c, r])

    def centred(c: Expression, r: Expression) -> Expression:
        return x[c, r] - total[r] / cols

    squares = rows.reduce("squares", 0.0, _add, lambda c, r: centred(c, r) * centred(c, r))
    scale = 1.0 / hl.sqrt(squares[rows.r] / cols + EPSILON)
    return rows.finish(case, centred(rows.c, rows.r) * scale * weight[rows.c] + bias[rows.c])


@TABLE.row("stencil5")
def stencil5(case: Case) -> Implementation:
    """Strips of rows."""
    (x,) = _buffers(case)
    out, c, r, ro = hl.Func("out"), _var("c"), _var("r"), _var("ro")
    near = x[c + 1, r] + x[c + 1, r + 2] + x[c, r + 1] + x[c + 2, r + 1]
    out[c, r] = 0.2 * (x[c + 1, r + 1] + near)
    out.split(r, ro, r, 2 * _ROWS, hl.TailStrategy.GuardWithIf).parallel(ro)
    out.vectorize(c, _LANES, hl.TailStrategy.GuardWithIf)
    return _realized(out, case)


def _register_tile(product: Any, out: Any, inner: Any, row: Any, steps: list[Any], case: Case) -> None:
    """Schedule `out` in register tiles with `product` accumulating inside each; outer loops over columns are parallel
    where there are few tiles of rows."""
    *_, height, width = next(iter(case.outputs.values())).shape
    if width < _LANES:
        raise Unsupported(f"no schedule for results narrower than {_LANES}")
    # Few rows leave registers for more vectors.  Tiles never exceed the result, so that all have one constant extent.
    vectors = min(width // _LANES, max(_TILE_VECTORS, _ACCUMULATORS // height))
    tile_rows = min(height, max(1, _ACCUMULATORS // vectors))
    outer_c, outer_r, rows = _var("outer_c"), _var("outer_r"), _var("rows")
    tail = hl.TailStrategy.ShiftInwards
    out.tile(inner, row, outer_c, outer_r, inner, rows, vectors * _LANES, tile_rows, tail)
    out.vectorize(inner, _LANES).unroll(inner).unroll(rows)
    if height // tile_rows >= 8:
        out.parallel(outer_r)
    else:
        out.reorder(inner, rows, outer_r, outer_c).parallel(outer_c)
    product.compute_at(out, outer_r if height // tile_rows < 8 else outer_c)
    product.bound_extent(inner, vectors * _LANES).bound_extent(row, tile_rows)
    product.vectorize(inner, _LANES).unroll(inner).unroll(row)
    product.update(0).reorder(inner, row, *steps).vectorize(inner, _LANES).unroll(inner).unroll(row)


def _product(epilogue: Callable[..., Expression]) -> Builder:
    def build(case: Case) -> Implementation:
        a, b, *rest = _buffers(case)
        depth = case.size[1]
        product, out, j, i = hl.Func("product"), hl.Func("out"), _var("j"), _var("i")
        k = hl.RDom([hl.Range(0, depth)], "k")
        product[j, i] = hl.f32(0.0)
        product[j, i] += a[k.x, i] * b[j, k.x]
        out[j, i] = epilogue(product[j, i], *(one[j] for one in rest), depth)
        _register_tile(product, out, j, i, [k.x], case)
        return _realized(out, case)

    return build


TABLE.add("matmul", _product(lambda x, depth: x))
TABLE.add("matmul_bias_gelu", _product(lambda x, bias, depth: _gelu_tanh(x * (1.0 / math.sqrt(depth)) + bias)))


@TABLE.row("conv3x3")
def conv3x3(case: Case) -> Implementation:
    """A register tile of output channels times positions in a row."""
    x, weight = _buffers(case)
    product, out, o, i, y = hl.Func("product"), hl.Func("out"), _var("o"), _var("i"), _var("y")
    k = hl.RDom([hl.Range(0, case.size[2]), hl.Range(0, 3), hl.Range(0, 3)], "k")
    product[o, i, y] = hl.f32(0.0)
    product[o, i, y] += x[k.x, i + k.y, y + k.z] * weight[o, k.x, k.y, k.z]
    out[o, i, y] = product[o, i, y]
    _register_tile(product, out, o, i, [k.x, k.y, k.z], case)
    out.parallel(y)
    return _realized(out, case)
