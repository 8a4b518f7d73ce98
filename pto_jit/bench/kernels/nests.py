# SPDX-License-Identifier: MIT
"""Programs on nested lists: map, scan, fold and reduce; schedules are found by the compiler.

Each takes FractalTensors over the arrays of the case and returns new ones, so a function prepares a case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from pto_jit.bench.implementation import Case, Implementation
from pto_jit.bench.workloads.nests import WINDOW


def prepares(build: Callable[[Case], Implementation]) -> Callable[[Case], Implementation]:
    """Mark a function that prepares a case by itself; what is named otherwise is called with the case's arrays."""
    setattr(build, "prepares", True)  # noqa: B010
    return build


def _returning(kernel: Any, case: Case, *arguments: Any) -> Implementation:
    """A kernel that returns lists, whose leaves are the results."""
    shapes = [array.shape for array in case.outputs.values()]

    def collect(result: Any) -> list[np.ndarray[Any, Any]]:
        lists = result if isinstance(result, tuple) else (result,)
        return [x.leaves.reshape(shape) for x, shape in zip(lists, shapes, strict=True)]

    return Implementation(lambda: kernel(*arguments), collect)


def _lists(array: np.ndarray[Any, Any]) -> ft.FractalTensor:
    """`[batch, steps, hidden]` as lists of [1, hidden]."""
    batch, steps, hidden = array.shape
    return ft.from_flat(array.reshape(-1, 1, hidden), [np.arange(batch + 1) * steps])


# -- grid RNN -----------------------------------------------------------------------------------------------------


def vanilla_cell(state, cur, params):
    i2h, h2h, bias = params
    return pl.tanh(cur @ i2h + state @ h2h + bias)


def grid_cell(state, cur, params):
    _, state_y = state
    state_x, (x_t, y_t) = cur
    s = ft.cat(state_x, state_y, axis=1)
    return vanilla_cell(x_t, s, params[0]), vanilla_cell(y_t, s, params[1])


def direction_y(state, cur, params):
    zero = ft.zeros(1, params[0][2].shape[1])
    return ft.scan(grid_cell, ft.zip(state[0], ft.zip(*cur)), initializer=(zero, zero), params=params)


def direction_x(state, params, zeros):
    return ft.zip(*ft.scan(direction_y, state, initializer=(zeros, zeros), params=params))


def one_pair(pair, layers):
    zeros = ft.map(lambda x: ft.zeros(1, x.shape[1]), pair[0])
    return ft.zip(*ft.fold(direction_x, layers, initializer=ft.zip(*ft.product(*pair)), zeros=zeros))


@pto.jit
def grids(src, trg, wx, ux, bx, wy, uy, by):
    """(h_x, h_y) `[batch][target][source]` of the last layer, for sentences of any lengths."""
    along_x = ft.zip(ft.unbind(wx), ft.unbind(ux), ft.slices(bx))
    along_y = ft.zip(ft.unbind(wy), ft.unbind(uy), ft.slices(by))
    return ft.map(one_pair, ft.zip(src, trg), layers=ft.zip(along_x, along_y))


@prepares
def grid_rnn(case: Case) -> Implementation:
    src, trg, *weights = case.inputs.values()
    return _returning(grids, case, _lists(src), _lists(trg), *weights)


@prepares
def grid_rnn_jagged(case: Case) -> Implementation:
    src, trg, src_offsets, trg_offsets, *weights = case.inputs.values()
    sentences = [ft.from_flat(x[:, None], [at]) for x, at in ((src, src_offsets), (trg, trg_offsets))]
    return _returning(grids, case, *sentences, *weights)


# -- stacked RNN --------------------------------------------------------------------------------------------------


def rnn_cell(state, x, params):
    w, u, bias = params
    return pl.tanh(x @ w + state @ u + bias)


def rnn_layer(xs, params):
    return ft.scan(rnn_cell, xs, initializer=ft.zeros(1, params[1].shape[0]), params=params)


@pto.jit
def rnns(batch, w, u, b):
    """The states of the last layer, `[batch][time]`."""
    layers = ft.zip(ft.unbind(w), ft.unbind(u), ft.slices(b))
    return ft.map(lambda xs: ft.fold(rnn_layer, layers, initializer=xs), batch)


@prepares
def stacked_rnn(case: Case) -> Implementation:
    x, *weights = case.inputs.values()
    return _returning(rnns, case, _lists(x), *weights)


# -- block-sparse attention ---------------------------------------------------------------------------------------


def attend(q, ks, vs):
    scores = q @ pl.transpose(ft.cat(ks, axis=0)) * (1.0 / q.shape[1] ** 0.5)
    p = pl.exp(scores - pl.max(scores, axis=1, keepdims=True))
    return p @ ft.cat(vs, axis=0) / pl.sum(p, axis=1, keepdims=True)


def sparse(cur, ks, vs):
    q, chosen, k_near, v_near = cur
    return attend(q, ft.join(k_near, ft.gather(ks, chosen)), ft.join(v_near, ft.gather(vs, chosen)))


@pto.jit
def block_sparse(qs, ks, vs, chosen):
    """(attention of all blocks to the few that they see, of the first to all)."""
    near = ft.zip(qs, chosen, ft.shifted_slide(ks, WINDOW), ft.shifted_slide(vs, WINDOW))
    return ft.map(sparse, near, ks=ks, vs=vs), ft.map(attend, ft.slice(qs, 0, 1), ks=ks, vs=vs)


@prepares
def bigbird(case: Case) -> Implementation:
    q, k, v, chosen = case.inputs.values()
    offsets = np.arange(len(chosen) + 1) * chosen.shape[1]
    picks = ft.from_flat(chosen.reshape(-1), [offsets])
    return _returning(block_sparse, case, ft.from_flat(q), ft.from_flat(k), ft.from_flat(v), picks)


# -- back-to-back products ----------------------------------------------------------------------------------------


def _back_to_back(blocks, b, c):
    """Blocks of rows of (a @ b) @ c."""
    return ft.map(lambda a: (a @ b) @ c, blocks)


back_to_back = pto.jit(_back_to_back)
back_to_back_any = pto.jit(fastmath=True)(_back_to_back)  # products in any order


def _blocks(a: np.ndarray) -> ft.FractalTensor:
    rows = next(r for r in (256, 128, 64, 32, 16, 8, 4, 2, 1) if len(a) % r == 0)
    return ft.from_flat(a.reshape(-1, rows, a.shape[1]))


@prepares
def products(case: Case) -> Implementation:
    a, b, c = case.inputs.values()
    return _returning(back_to_back, case, _blocks(a), b, c)


@prepares
def products_any(case: Case) -> Implementation:
    a, b, c = case.inputs.values()
    return _returning(back_to_back_any, case, _blocks(a), b, c)
