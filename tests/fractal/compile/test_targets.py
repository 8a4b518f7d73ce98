# SPDX-License-Identifier: MIT
"""The programs of the tutorials through the targets that write sources: they agree, or are refused as the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from pto_jit.device_kernel import emulate
from pto_jit.errors import ScheduleError, TargetError
from tests.fractal.compile import test_blocks, test_fusion, test_hoist
from tests.fractal.compile.test_nests import H, jagged
from tests.fractal.compile.test_nests import same as equal
from tests.fractal.compile.test_programs import PROGRAMS, load, same
from tests.fractal.compile.test_random import random_program
from tests.targets.c.harness import Batch, needs_compiler
from tests.targets.c.standalone import Programs, needs_arm
from tests.targets.cuda.harness import needs_compiler as needs_cpp

PAGE = Path(__file__).parents[3] / "docs" / "fractal.md"


@needs_compiler
def test_programs_in_c_agree_with_themselves_run_eagerly() -> None:
    batch, wanted = Batch(), []
    for name in ("bigbird", "dilated_rnn", "convolution"):
        module = load(name)
        batch.add(pto.jit(module.program), *module.arguments())
        wanted.append(module.program(*module.arguments()))
    for found, want in zip(batch.run(), wanted, strict=True):
        same(found, want)


@needs_compiler
def test_plans_in_c_agree() -> None:
    program, given = random_program(0)
    batch = Batch()
    for plan in ("sequential", "wavefront", "tasks"):
        batch.add(pto.jit(program(plan)), *given)
    for found in batch.run():
        equal(found, program("auto")(*given))


@needs_compiler
def test_filters_in_c_agree() -> None:
    x = jagged(5, 0, 3, 9)

    def kept(row: Any) -> Any:
        return ft.filter(lambda e: pl.max(e) > 1.0, row)

    programs = [
        lambda x: ft.map(kept, x),
        lambda x: ft.map(lambda row: ft.fold(lambda s, e: s + e, kept(row), initializer=ft.zeros(1, H)), x),
        lambda x: ft.map(lambda e: e * 2.0, ft.flatten(x)),
    ]
    batch = Batch()
    for program in programs:
        batch.add(pto.jit(program), x)
    for found, program in zip(batch.run(), programs, strict=True):
        equal(found, program(x))


ONE_LOOP = [test_fusion.sums, test_fusion.partly_from_the_first, test_fusion.attention, test_fusion.maps]


@needs_compiler
def test_one_loop_of_two_in_c_agrees() -> None:
    x, batch = test_fusion.rows(3, 1, 4), Batch()
    for program in ONE_LOOP:
        batch.add(pto.jit(program), x)
    for found, program in zip(batch.run(), ONE_LOOP, strict=True):
        test_fusion.same(found, program(x))


@needs_cpp
def test_one_loop_of_two_for_cuda_agrees_in_the_emulation() -> None:
    x = test_fusion.rows(3, 1, 4)
    compiled = pto.jit(test_fusion.partly_from_the_first).compile(x, target="cuda")
    assert [d.applied for d in compiled.decisions if d.kind == "fusion"] == [True]
    test_fusion.same(emulate(compiled, x), test_fusion.partly_from_the_first(x))


def flat(value: Any) -> list[np.ndarray]:
    """The arrays of a result in the order in which a kernel gives them."""
    if isinstance(value, tuple):
        return [array for item in value for array in flat(item)]
    return [value.leaves, *value.offsets]


@needs_arm
def test_programs_with_neon_agree_under_qemu(tmp_path: Path) -> None:
    programs, wanted = Programs("neon"), []
    for name in ("convolution", "grid_rnn"):
        module = load(name)
        programs.add(pto.jit(module.program), *module.arguments())
        wanted.append(flat(module.program(*module.arguments())))
    binary = programs.build(tmp_path, ("aarch64-linux-gnu-gcc", "-march=armv8.2-a", "-static"))
    for (failure, found), want in zip(programs.run(tmp_path, ["qemu-aarch64", str(binary)]), wanted, strict=True):
        assert failure is None
        for f, w in zip(found, want, strict=True):
            np.testing.assert_allclose(f, w, atol=2e-5)


@needs_cpp
@pytest.mark.parametrize("name", ["products", "convolution"])
def test_programs_for_cuda_agree_in_the_emulation(name: str) -> None:
    module = load(name)
    given = module.arguments()
    compiled = pto.jit(module.program).compile(*given, target="cuda")
    same(emulate(compiled, *given), module.program(*given))


SECTION = PAGE.read_text(encoding="utf-8").split("\n### Targets\n")[1].split("\n### ")[0]
ROWS = re.findall(r"^\| (\w+) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", SECTION, re.MULTILINE)


def test_the_table_of_targets_is_the_truth() -> None:
    """Of C and NEON the tests above run what they have time for; `test_lists` of Ascend runs three of its programs."""
    assert sorted(name for name, *_ in ROWS) == PROGRAMS
    for name, c, neon, cuda, ascend in ROWS:
        assert (c, neon) == ("runs", "runs")
        module = load(name)
        given = module.arguments()
        wanted = {"cuda": cuda} | ({} if name in ("attention", "convolution", "products") else {"ascend": ascend})
        for target, words in wanted.items():
            kernel = pto.jit(target=target)(module.program)
            if words in ("runs", "written"):
                kernel.compile(*given)
                continue
            with pytest.raises(TargetError) as caught:
                kernel.compile(*given)
            code = words.split(": ", 1)[0]
            assert str(caught.value).startswith(f"{code}: the {target} target does not do ")
            assert "help: " in str(caught.value) and f"{name}.py:" in str(caught.value)


@needs_cpp
def test_planes_for_cuda_agree_in_the_emulation() -> None:
    module = load("stacked_lstm")
    given = module.arguments(lengths=(3, 0, 1, *[2] * 15), depth=2)  # more sequences than a block has rows
    compiled = pto.jit(module.program).compile(*given, target="cuda")
    (decision,) = [d for d in compiled.decisions if d.kind == "schedule"]
    assert decision.reason.startswith("wavefront: planes of hyperplane (0, 1, 1)")
    same(emulate(compiled, *given, order=5), module.program(*given))


@needs_cpp
def test_planes_without_layers_for_cuda_agree_in_the_emulation() -> None:
    x, w = jagged(*[2, 0, 3] * 7), np.eye(H, dtype=np.float32) * 0.5

    def program(x: Any, w: Any) -> Any:
        return ft.map(lambda xs: ft.scan(lambda s, e: s @ w + e, xs, initializer=ft.zeros(1, H)), x)

    compiled = pto.jit(program).compile(x, pto.spec((H, H), pl.f32), target="cuda")
    assert [d.reason[:9] for d in compiled.decisions if d.kind == "schedule"] == ["wavefront"]
    equal(emulate(compiled, x, w), program(x, w))


def reasons(compiled: Any, kind: str) -> list[str]:
    return [d.reason for d in compiled.decisions if d.kind == kind]


@needs_cpp
def test_maps_of_products_for_cuda_are_blocks_of_rows() -> None:
    given = jagged(70, 0, 3), test_blocks.weights(1)[0]
    compiled = pto.jit(test_blocks.projected).compile(given[0], pto.spec((H, H), pl.f32), target="cuda")
    (plan,) = reasons(compiled, "schedule")
    assert plan.startswith(test_blocks.AS_ROWS)
    assert " smin 64, " in compiled.ir("source")
    equal(emulate(compiled, *given, order=3), test_blocks.projected(*given))


def kernel_of(program: Any, *given: Any) -> tuple[Any, str]:
    """The kernel that multiplies, and the plan, of a program for cuda."""
    compiled = pto.jit(program).compile(*given, target="cuda")
    kernels = compiled._kernel.built.program.host.kernels.values()
    (plan,) = reasons(compiled, "schedule")
    return next((k for k in kernels if k.kind == "fragments"), None), plan


def test_blocks_of_rows_for_cuda_read_wide_weights_in_slices() -> None:
    x = ft.from_flat(np.zeros((3, 1, 1024), np.float32), [np.array([0, 2, 3])])
    kernel, plan = kernel_of(test_blocks.projected, x, pto.spec((1024, 1024), pl.f32))
    assert plan.startswith(test_blocks.AS_ROWS)
    assert [(t.rows, t.columns) for t in kernel.shared] == [("64", "16"), ("16", "64")], "64 rows and columns a block"
    rows_of_all = lambda x, w: ft.map(lambda xs: ft.map(lambda e: (e @ w) / pl.sum(e @ w), xs), x)  # noqa: E731
    kernel, _ = kernel_of(rows_of_all, x, pto.spec((1024, 1024), pl.f32))
    assert [(t.rows, t.columns) for t in kernel.shared] == [("16", "16"), ("16", "1024")]

    def twice(x: Any, w: Any) -> Any:
        return ft.map(lambda xs: ft.map(lambda e: pl.tanh(e @ w) @ w, xs), x)

    _, plan = kernel_of(twice, x, pto.spec((1024, 1024), pl.f32))
    assert plan.startswith("sequential: no loop carries a state") and ": PTO-X144: " in plan


@needs_cpp
def test_weights_that_outer_loops_choose_for_cuda_are_read_by_blocks_of_rows() -> None:
    def program(x: Any, w: Any) -> Any:
        return ft.map(lambda p: ft.map(lambda e: e @ p[1], p[0]), ft.zip(x, w))

    given = jagged(2, 70, 0, 1), test_blocks.weights(4)
    compiled = pto.jit(program).compile(*given, target="cuda")
    assert test_blocks.AS_ROWS in reasons(compiled, "schedule")[0]
    equal(emulate(compiled, *given, order=3), program(*given))


@needs_cpp
def test_products_of_inputs_for_cuda_are_one_launch_before_the_nest() -> None:
    given = test_hoist.lists(5, 0, 70, 1), test_hoist.matrix(0), test_hoist.matrix(1, 1)
    specs = [pto.spec(w.shape, pl.f32) for w in given[1:]]
    compiled = pto.jit(test_hoist.decayed).compile(given[0], *specs, target="cuda")
    (reason,) = reasons(compiled, "hoist")
    assert reason.startswith("`dot`, `add`, `tanh` of inputs is computed before the nest: rows of products")
    rows, nest = reasons(compiled, "schedule")
    assert rows.startswith(test_blocks.AS_ROWS) and "the cell has no product" in nest
    equal(emulate(compiled, *given), test_hoist.decayed(*given))


def test_cuda_computes_in_the_nest_what_is_no_product_of_inputs() -> None:
    def program(x: Any) -> Any:
        body = lambda s, e: s * 0.5 + pl.tanh(pl.exp(e))  # noqa: E731
        return ft.map(lambda xs: ft.scan(body, xs, initializer=ft.zeros(1, 1024)), x)

    x = ft.from_flat(np.zeros((3, 1, 1024), np.float32), [np.array([0, 2, 3])])
    (reason,) = reasons(pto.jit(program).compile(x, target="cuda"), "hoist")
    assert "could be computed before the nest, which costs more: no product is among it" in reason


def planes_or_not(width: int, cell: Any) -> list[str]:
    """What is decided for a scan of rows of so many columns on cuda; `cell`: of state, element and weights."""
    w = pto.spec((width, None if width == 8 else width), pl.f32)
    x = ft.from_flat(np.zeros((3, 1, width), np.float32), [np.array([0, 2, 3])])

    def program(x: Any, w: Any) -> Any:
        return ft.map(lambda xs: ft.scan(lambda s, e: cell(s, e, w), xs, initializer=ft.zeros(1, width)), x)

    decisions = pto.jit(program).compile(x, w, target="cuda").decisions
    return [d.reason.splitlines()[0] for d in decisions if d.kind == "schedule"]


def test_cuda_runs_in_order_what_has_nothing_to_win_from_planes_or_does_not_fit_as_rows() -> None:
    assert planes_or_not(64, lambda s, e, w: s @ w + e)[0].startswith("wavefront: ")
    assert "the cell has no product" in planes_or_not(64, lambda s, e, w: s + e)[0]
    assert "extents of tiles are known when the program runs" in planes_or_not(8, lambda s, e, w: s @ w + e)[0]
    (reason,) = planes_or_not(4096, lambda s, e, w: s @ w + e)
    assert reason.startswith("sequential: ") and "PTO-X144: " in reason


@pytest.mark.parametrize(("target", "plan"), [("cuda", "tasks"), ("ascend", "tasks"), ("ascend", "wavefront")])
def test_plans_that_devices_do_not_have(target: str, plan: str) -> None:
    program, given = random_program(0)
    with pytest.raises(ScheduleError, match=f"PTO-F150: schedule='{plan}' cannot be had: the {target} target has no"):
        pto.jit(target=target)(program(plan)).compile(*given)
