# SPDX-License-Identifier: MIT
"""The seven programs against NumPy, for batches of different lengths, empty ones among them."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
from tests.fractal.data import check

TUTORIALS = Path(__file__).parents[2] / "tutorials" / "fractal"
NAMES = [path.stem for path in sorted(TUTORIALS.glob("*.py"))]


def load(name: str) -> ModuleType:
    """A tutorial as a module: `program`, `reference`, `arguments`."""
    full = f"fractal_tutorial_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, TUTORIALS / f"{name}.py")
        assert spec is not None and spec.loader is not None
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


def same(found: Any, wanted: Any) -> None:
    """`found` in lists is close to `wanted`, whose lists may be arrays with more axes."""
    if isinstance(found, tuple):
        for f, w in zip(found, wanted, strict=True):
            same(f, w)
    elif isinstance(wanted, np.ndarray):
        np.testing.assert_allclose(found.leaves.reshape(wanted.shape), wanted, atol=2e-5)
    else:
        assert len(found) == len(wanted)
        for f, w in zip(found, wanted, strict=True):
            same(f, w)


def test_there_are_seven_programs_in_the_tutorials() -> None:
    assert len(NAMES) == 7


@pytest.mark.parametrize("name", NAMES)
def test_a_program_is_its_reference(name: str) -> None:
    module = load(name)
    given = module.arguments()
    found, wanted = module.program(*given), module.reference(*given)
    if isinstance(found, tuple):  # a tuple of lists: a list of tuples is what the references give
        found = list(zip(*found, strict=True))
    same(found, wanted)


@pytest.mark.parametrize("name", NAMES)
def test_interpret_runs_the_eager_program(name: str) -> None:
    module = load(name)
    given = module.arguments()
    found, wanted = pto.jit(module.program).interpret(*given), module.program(*given)
    for got, want in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, wanted)), strict=True):
        check(got, want.tolist())


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_of_nothing_gives_a_list_of_that_type(name: str) -> None:
    module = load(name)
    whole = module.program(*module.arguments())
    for lengths in ((), (0,)) if name != "grid_rnn" else ((), ((0, 0),), ((0, 2),)):
        found = module.program(*module.arguments(lengths))
        for got, want in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, whole)), strict=True):
            assert got.kind == want.kind and len(got) == len(lengths)


@pytest.mark.parametrize("name", NAMES)
def test_a_program_is_short_and_has_no_loop(name: str) -> None:
    text = (TUTORIALS / f"{name}.py").read_text(encoding="utf-8")
    lines = 0
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            if node.name == "reference":
                break
            lines += (node.end_lineno or 0) - node.lineno + 1
            assert not any(isinstance(n, (ast.For, ast.While, ast.comprehension)) for n in ast.walk(node)), node.name
    assert lines <= 40


def test_the_grid_rnn_as_it_was_published() -> None:
    """The program word for word, with embeddings looked up by `slices` and `index`, for one pair of sentences."""
    module = load("grid_rnn")
    src_ids, trg_ids, src_embedding, trg_embedding, *weights = module.arguments(((4, 3),))
    hidden_dim = src_embedding.shape[1]
    wx, ux, bx, wy, uy, by = (ft.unbind(w) for w in weights)
    rnn_params = ft.zip(ft.zip(wx, ux, bx), ft.zip(wy, uy, by))
    ops = ft

    def vanilla_cell(state: Any, cur: Any, rnn_params: Any) -> Any:
        i2h, h2h, bias = rnn_params
        return module.pl.tanh(cur @ i2h + state @ h2h + bias)

    def grid_cell(state: Any, cur_input: Any, block_params: Any) -> Any:
        _, state_y = state
        state_x, (x_t, y_t) = cur_input
        rnn_param_x, rnn_param_y = block_params
        s = ops.cat(state_x, state_y, axis=1)
        h_x = vanilla_cell(x_t, s, rnn_param_x)
        h_y = vanilla_cell(y_t, s, rnn_param_y)
        return h_x, h_y

    def direction_y(state: Any, cur_input: Any, block_params: Any) -> Any:
        state_xs, _ = state
        zero = ops.zeros(1, hidden_dim)
        return ops.scan(
            grid_cell,
            ops.zip(state_xs, ops.zip(*cur_input)),
            initializer=(zero, zero),
            block_params=block_params)  # fmt: skip

    def direction_x(state: Any, block_params: Any) -> Any:
        zeros = ops.repeat(ops.zeros(1, hidden_dim), len(state[0][0]))
        return ops.zip(*ops.scan(
            direction_y,
            state,
            initializer=(zeros, zeros),
            block_params=block_params))  # fmt: skip

    def stacked_grid_rnns(sent_pair: Any) -> Any:
        srcs, trgs = sent_pair
        src_encs = ops.map(
            lambda word: ops.index(ops.slices(src_embedding, axis=0), word), srcs)  # fmt: skip
        trg_encs = ops.map(
            lambda word: ops.index(ops.slices(trg_embedding, axis=0), word), trgs)  # fmt: skip
        return ops.zip(*ops.fold(
            direction_x,
            rnn_params,
            initializer=ops.zip(*ops.product(src_encs, trg_encs))))  # fmt: skip

    grid_out_x, grid_out_y = ops.map(stacked_grid_rnns, ops.zip(src_ids, trg_ids))
    wanted = module.reference(src_ids, trg_ids, src_embedding, trg_embedding, *weights)
    same([(grid_out_x[0], grid_out_y[0])], wanted)
