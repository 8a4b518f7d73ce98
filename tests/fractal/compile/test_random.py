# SPDX-License-Identifier: MIT
"""Random nests, in every plan, against the same program run eagerly; `PTO_TEST_PROGRAMS` says how many."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from pto_jit.codegen.compilation import compile_program
from pto_jit.errors import PtoError, ScheduleError
from pto_jit.fractal.compile import dividing
from pto_jit.options import Options
from pto_jit.semantic import interpreter
from tests.differential.rounds import share
from tests.fractal.compile import programs

H = 3
CELLS: list[Callable[[Any, Any, Any], Any]] = [
    lambda s, e, w: pl.tanh(s @ w + e),
    lambda s, e, w: s * 0.5 + pl.exp(e * 0.1),
    lambda s, e, w: pl.maximum(s, e) @ w,
    lambda s, e, w: e - s,
]


def random_program(seed: int) -> tuple[Callable[[str], Callable[..., Any]], list[Any]]:
    """A map of a fold or scan over layers of scans or maps, with one state or two; and lists of random lengths."""
    rng = random.Random(seed)
    first, second = rng.choice(CELLS), rng.choice(CELLS)
    inner, outer, pairs = rng.choice(["scan", "scan", "map"]), rng.choice(["fold", "scan"]), rng.random() < 0.5

    def layer(xs: Any, w: Any) -> Any:
        if inner == "map":
            return ft.map(lambda e: first(e, e, w), xs)
        return ft.scan(lambda s, e: first(s, e, w), xs, initializer=ft.zeros(1, H))

    def both(s: Any, e: Any, w: Any) -> Any:
        return first(s[0], e[0], w), second(s[1], e[1], w)

    def pair(state: Any, w: Any) -> Any:
        return ft.scan(both, ft.zip(*state), initializer=(ft.zeros(1, H), ft.zeros(1, H)), w=w)

    def stack(xs: Any, w: Any) -> Any:
        start = (xs, ft.reverse(xs)) if pairs else xs
        return getattr(ft, outer)(pair if pairs else layer, w, initializer=start)

    def program(plan: str) -> Callable[..., Any]:
        return lambda x, w: ft.map(lambda xs: stack(xs, w), x, schedule=plan)

    draw = np.random.default_rng(seed)
    lengths = [rng.randrange(5) for _ in range(rng.randrange(1, 4))]
    x = ft.from_flat(draw.standard_normal((sum(lengths), 1, H)).astype(np.float32), [np.cumsum([0, *lengths])])
    w = ft.from_flat((draw.standard_normal((rng.randrange(4), H, H)) / 2).astype(np.float32))
    return program, [x, w]


def same(got: Any, want: Any) -> None:
    for a, b in zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]:
        for p, q in zip(a.offsets, b.offsets, strict=True):
            np.testing.assert_array_equal(p, q)
        np.testing.assert_allclose(a.leaves, b.leaves, atol=1e-4)


def flat(value: Any) -> list[np.ndarray]:
    """The arrays of a result in the order in which a kernel gives them."""
    if isinstance(value, tuple):
        return [array for item in value for array in flat(item)]
    return [value.leaves, *value.offsets] if isinstance(value, ft.FractalTensor) else [np.asarray(value)]


def interpreted(kernel: Any, given: Any) -> tuple[list[np.ndarray], set[str]]:
    """What the loops of a kernel give by the reference interpreter, and the plans of its nests."""
    parameters = kernel._parameters
    call = parameters.classify(*parameters.bind(tuple(given), {}))
    program = compile_program(kernel.__pto_jit__, call.params, options=Options())
    plans = {d.reason.split(":")[0] for d in program.decisions if d.kind == "schedule"}
    return [np.asarray(r) for r in interpreter.run(program.module, [a for g in given for a in flat(g)])], plans


def check_seed(seed: int) -> set[str]:
    """A random program in each plan that it has, against itself run eagerly; the plans that it took."""
    program, said, given = programs.random_program(seed, "auto")
    try:
        want = flat(program(*given))
    except PtoError:  # an empty list whose type a trial does not find out
        return set()
    taken: set[str] = set()
    for plan in ("auto", "sequential", "wavefront", "tasks", "tiles"):
        tiled = plan == "tiles"
        program, said, given = programs.random_program(seed, "tasks" if tiled else plan, tiled=tiled)
        try:
            found, plans = interpreted(pto.jit(program), given)
        except ScheduleError:
            assert plan in ("wavefront", "tasks", "tiles"), f"seed {seed}, {plan}: {said}"
            continue
        taken |= {plan} if tiled else plans
        for f, w in zip(found, want, strict=True):
            np.testing.assert_array_equal(f, w, err_msg=f"seed {seed}, {plan}: {said}")
    return taken


def test_random_nests_in_all_plans() -> None:
    count = share(12)
    taken = set().union(*(check_seed(seed) for seed in range(count)))
    assert taken >= {"sequential", "wavefront", "tasks", "tiles"} or count < 12


def test_plans_agree_in_machine_code() -> None:
    program, given = random_program(0)
    want = program("auto")(*given)
    for plan in ("sequential", "wavefront", "tasks"):
        same(pto.jit(program(plan))(*given), want)


def test_batches_in_units(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("UNIT_ROWS", 1), ("LEAST_ROWS", 1), ("TILE_ROWS", 1), ("WORTH", 1e-3)):
        monkeypatch.setattr(dividing, name, value)
    assert "wavefront" in set().union(*(check_seed(seed) for seed in range(share(4))))
    program, given = random_program(0)
    same(pto.jit(num_threads=2)(program("wavefront"))(*given), program("auto")(*given))


def test_debugging_and_two_workers() -> None:
    program, given = random_program(3)
    want = program("auto")(*given)
    same(pto.jit(debug=True)(program("auto"))(*given), want)
    same(pto.jit(num_threads=2)(program("wavefront"))(*given), want)
