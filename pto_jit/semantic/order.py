# SPDX-License-Identifier: MIT
"""Sorting and selecting along the last axis, and counting."""

from __future__ import annotations

from pto_jit.dtypes import i32
from pto_jit.errors import ShapeError
from pto_jit.ir.types import TileType
from pto_jit.semantic import checks
from pto_jit.semantic.row import Args, Attrs, OpRow, Regions, Types


def sort(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    t = checks.tile(op, args[0])
    checks.flag(op, attrs, "descending")
    return (t if op == "sort" else TileType(i32, t.shape),)


def topk(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    t, k = checks.tile(op, args[0]), checks.positive(op, attrs["k"], "k")
    last = t.shape[-1]
    if last is not None and k > last:
        raise ShapeError(f"`topk`: k = {k} of {last} elements", code="PTO-H140", hint=f"k is at most {last}")
    shape = (*t.shape[:-1], k)
    return TileType(t.dtype, shape), TileType(i32, shape)


def histogram(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    t = checks.tile(op, args[0])
    checks.kind(op, t.dtype, "iu")
    return (TileType(i32, (*t.shape[:-1], checks.positive(op, attrs["bins"], "bins"))),)


ROWS: tuple[OpRow, ...] = (
    OpRow("sort", "order", "sort(t) {descending}", "the last axis in order; NaN last", sort, 1, 1,
          optional=("descending",)),
    OpRow("argsort", "order", "argsort(t) {descending}", "i32 places of the sorted elements; equal ones keep their "
          "order", sort, 1, 1, optional=("descending",)),
    OpRow("topk", "order", "topk(t) {k}", "the k largest of the last axis, descending, and their i32 places", topk,
          1, 1, required=("k",)),
    OpRow("histogram", "order", "histogram(t) {bins}", "i32 counts of the integers 0 to bins - 1 along the last axis",
          histogram, 1, 1, required=("bins",)),
)  # fmt: skip
