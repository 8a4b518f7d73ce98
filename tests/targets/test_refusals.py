# SPDX-License-Identifier: MIT
"""What a target refuses says where, what and what instead, and has it in attributes."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

import pto_jit as pto
import pto_jit.language as pl

MATRIX = pto.spec((None, None), pl.f32)
NINE = pto.spec((2,) * 9, pl.f32)


@pto.jit
def speaking(x: pl.Tensor, y: pl.Tensor):
    with pl.incore():
        t = pl.load(x, [0, 0], [4, 4])
        pl.print("{}", t)
        pl.store(t, [0, 0], y)


@pto.jit
def of_nine_axes(x: pl.Tensor, y: pl.Tensor):
    pl.store(pl.flip(pl.load(x), axis=8), [0] * 9, y)


@pto.jit
def large(x: pl.Tensor, y: pl.Tensor):
    for r in pl.range(0, x.shape[0], 256, parallel=True):
        pl.store(pl.transpose(pl.load(x, [r, 0], [256, 512])), [0, r], y)


CASES: dict[str, tuple[Any, Any, str, str, str]] = {
    "c": (of_nine_axes, NINE, "PTO-X200", "`load` on 9 axes", "pl.load(x)"),
    "neon": (of_nine_axes, NINE, "PTO-X200", "the neon target cannot do `load` on 9 axes", "pl.load(x)"),
    "cuda": (speaking, MATRIX, "PTO-X100", "`print`", "pl.print("),
    "ascend": (large, MATRIX, "PTO-X211", "bytes of", "pl.load(x, [r, 0], [256, 512])"),
}


@pytest.mark.parametrize("target", CASES)
def test_a_refusal_is_at_its_place(target: str) -> None:
    kernel, spec, code, what, place = CASES[target]
    with pytest.raises(pto.TargetError, match=what) as caught:
        kernel.compile(spec, spec, target=target)
    error = caught.value
    assert (error.code, error.filename, error.specialization is not None) == (code, __file__, True)
    head, arrow, _, line, marks, *rest = str(error).splitlines()
    assert head == f"{code}: {error.message}"
    assert arrow.endswith(f"--> {__file__}:{error.lineno}:{(error.col_offset or 0) + 1}")
    assert place in line and set(marks.split("|")[1]) <= {" ", "^"}
    assert rest == [f"help: {error.hint}"]
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert json.loads(json.dumps(error.as_dict()))["place"]["lineno"] == error.lineno


@pytest.mark.parametrize("target", ["cuda", "ascend"])
def test_a_product_that_starts_from_a_row_has_one_row(target: str) -> None:
    """Where its operands do not say so, a sum would repeat the row."""

    @pto.jit
    def kernel(x, w, y):
        y[...] = pl.dot(x[...], w[...], acc=pl.zeros([3, 1, 4], pl.f32))

    unknown = pto.spec((None, None, None), pl.f32)
    with pytest.raises(pto.TargetError, match="added to a tile with a constant extent of 1"):
        kernel.compile(unknown, unknown, unknown, target=target)
    kernel.compile(pto.spec((3, 1, None), pl.f32), pto.spec((3, None, 4), pl.f32), unknown, target=target)


def test_an_unknown_target_has_no_place() -> None:
    with pytest.raises(pto.TargetError) as caught:
        speaking.compile(MATRIX, MATRIX, target="abacus")
    assert caught.value.code == "PTO-X001" and caught.value.lineno is None
    assert str(caught.value).splitlines()[1] == "help: this version compiles for cpu, c, neon, cuda, ascend"
