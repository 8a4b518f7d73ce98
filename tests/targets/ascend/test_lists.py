# SPDX-License-Identifier: MIT
"""Programs on jagged lists, results, single elements, products of few rows, tiles put together: run on the CPU."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
from pto_jit.targets.ascend.accesses import pipe_of, walk
from pto_jit.targets.ascend.flow import Flow
from pto_jit.targets.ascend.form import Flush, Instruction
from pto_jit.targets.ascend.legality import violations
from pto_jit.targets.ascend.ordering import races
from tests.fractal.compile.programs import random_program
from tests.fractal.compile.test_programs import load

from .harness import SEEDS, Programs, blocks, kernels_of, mutants, needs_compiler, ordered, written

TUTORIALS: dict[str, dict[str, Any]] = {
    "attention": {}, "bigbird": {}, "convolution": {}, "products": {},
    "bigbird of larger blocks": {"lengths": (4, 0, 2), "rows": 20, "size": 24},
}  # fmt: skip


def tutorial(name: str) -> tuple[Any, list[Any]]:
    """The program, and its arguments."""
    module = load(name.split()[0])
    return module.program, module.arguments(**TUTORIALS[name])


def key(name: str) -> str:
    return name.replace(" ", "_")


@pto.jit
def tables(lengths: pl.Tensor, x: pl.Tensor, starts: pl.Tensor, places: pl.Tensor, even: pl.Tensor, small: pl.Tensor):
    with pl.incore():
        for i in pl.range(lengths.shape[0]):
            starts[i + 1] = starts[i] + lengths[i]
    with pl.incore():
        for r in pl.range(0, x.shape[0], parallel=True):
            top = pl.max(pl.load(x, [r, 0], [1, 40]))
            if top > 0.0:
                places[r] = (r - 5) * 2**40
            even[r] = r % 2 == 0
            small[r] = pl.cast(r * 3, pl.u16)


@pto.jit
def results(x: pl.Tensor, n: pl.Tensor):
    """A new tensor and a number."""
    rows, cols = x.shape
    out = pl.zeros([rows, cols], pl.f32)
    for r in pl.range(-2, rows - 2, parallel=True):
        out[r + 2, :] = x[r + 2, :] * 2.0
    return out, rows * 3 + cols


@pto.jit
def exp(x: pl.Tensor, n: pl.Tensor, small: pl.Tensor, out: pl.Tensor, s: float, k: int):
    """Numbers of the host, in a function that has the name of one of C."""
    first = pl.exp(s) + pl.maximum(s, n[0] * 0.5) + abs(-s) + pl.rsqrt(s) * pl.sqrt(s)
    first = pl.minimum(first, float("inf"))
    floor = pl.minimum(k, 7) // 3 + abs(-k) % 5
    n[1] = n[0] - k
    small[1] = small[0] * 2 - 300
    take = pl.zeros([x.shape[0], 40], pl.f32)
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            pl.store(pl.load(x, [r, 0], [8, 40]) * pl.cast(first, pl.f32), [r, 0], take)
            pl.store(pl.load(x, [r, 0], [8, 40]) + pl.cast(floor, pl.f32), [r, 0], out)
    return take, floor


@pto.jit
def few(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor, out: pl.Tensor):
    """Products of one row, of three, with a transposed side, added to another one, in 16 bits."""
    with pl.incore():
        for r in pl.range(0, a.shape[0], parallel=True):
            row = pl.load(a, [r, 0], [1, 24])
            first = pl.dot(row, pl.load(b, [0, 0], [24, 20]))
            three = pl.load(a, [0, 0], [3, 24]) * 0.5
            second = pl.dot(pl.cast(three, pl.f16), pl.cast(pl.load(b, [0, 0], [24, 20]), pl.f16))
            total = pl.dot(row, pl.load(c, [0, 0], [20, 24]).T, first)
            pl.store(total + pl.sum(second, axis=0, keepdims=True), [r, 0], out)


@pto.jit
def joined(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor, parts: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t, u = pl.load(x, [r, 0], [8, 24]), pl.load(y, [r, 0], [8, 5])
            wide = pl.concat([u, t, pl.where(u > 0.5, u, 0.5)], axis=1)
            pl.store(wide + pl.sum(wide, axis=1, keepdims=True), [r, 0], out)
            tall = pl.concat([t[2:5], t[0:8, :]], axis=0)
            pl.store(tall[3:11, 3:19] + pl.reshape(tall[0:8, 8:24], [8, 16]), [r, 0], parts)
            line = pl.reshape(t[0:2, 0:12], [4, 6])
            pl.store(line, [r, 16], parts)


@pto.jit
def columns(x: pl.Tensor, m: pl.Tensor, h: pl.Tensor, k: pl.Tensor, out: pl.Tensor, kept: pl.Tensor, halves: pl.Tensor):
    """Columns with gaps in memory, of elements that the core cannot repeat or take the maximum of."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t, b = pl.load(x, [r, 0], [8, 24]), pl.load(m, [r, 1], [8, 1])
            half, small = pl.load(h, [r, 2], [8, 1]), pl.load(k, [r, 0], [8, 1])
            pl.store(pl.where(b, t, half.to(pl.f32)) + small.to(pl.i32).to(pl.f32), [r, 0], out)
            pl.store(pl.any(t > 1.5, axis=1, keepdims=True) ^ b, [r, 1], kept)
            pl.store(half + pl.max(t, axis=1, keepdims=True).to(pl.bf16), [r, 2], halves)
            pl.store(pl.broadcast_to(half, [8, 24]), [r, 3], halves)


MATRIX, INTEGERS = pto.spec((None, None), pl.f32), pto.spec((None,), pl.i64)
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "tables": (tables, (INTEGERS, pto.spec((None, 40), pl.f32), INTEGERS, INTEGERS, pto.spec((None,), pl.bool_),
                        pto.spec((None,), pl.u16))),
    "results": (results, (pto.spec((None, 40), pl.f32), INTEGERS)),
    "exp": (exp, (pto.spec((None, 40), pl.f32), pto.spec((None,), pl.i32), pto.spec((2,), pl.i16),
                  pto.spec((None, 40), pl.f32), 2.0, 9)),
    "few": (few, (pto.spec((None, 24), pl.f32), pto.spec((24, 20), pl.f32), pto.spec((20, 24), pl.f32),
                  pto.spec((None, 20), pl.f32))),
    "joined": (joined, (pto.spec((16, 24), pl.f32), pto.spec((16, 5), pl.f32), pto.spec((16, 34), pl.f32),
                        pto.spec((16, 22), pl.f32))),
    "columns": (columns, (pto.spec((None, 24), pl.f32), pto.spec((None, 3), pl.bool_), pto.spec((None, 3), pl.bf16),
                          pto.spec((None, 2), pl.i8), pto.spec((None, 24), pl.f32), pto.spec((None, 3), pl.bool_),
                          pto.spec((None, 27), pl.bf16))),
}  # fmt: skip


@pytest.fixture(scope="module")
def compiled() -> dict[str, Any]:
    found = {name: written(fn, *specs) for name, (fn, specs) in CASES.items()}
    for name in TUTORIALS:
        program, given = tutorial(name)
        found[key(name)] = written(pto.jit(program), *given)
    return found


@pytest.fixture(scope="module")
def programs(compiled: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return Programs(compiled, tmp_path_factory.mktemp("ascend"))


@pytest.mark.parametrize("name", [*CASES, *map(key, TUTORIALS)])
def test_kernels_are_ordered_and_legal(compiled: dict[str, Any], name: str) -> None:
    for kernel in kernels_of(compiled[name]):
        assert races(kernel) == []
        assert violations(kernel) == []


@pytest.mark.parametrize("name", ["tables", "joined"])
def test_without_a_flag_or_barrier_a_kernel_is_not_ordered(compiled: dict[str, Any], name: str) -> None:
    for kernel in kernels_of(compiled[name]):
        for what in mutants(kernel):
            assert races(kernel, first=True), f"{kernel.name}: nobody misses it: {what}"


def test_loops_inside_each_other_are_ordered_in_a_few_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for every number of iterations of each, which took 2000 looks at each piece of work."""
    program, _, given = random_program(42005, "auto")
    looked, along = 0, Flow._along

    def counted(flow: Flow, stretch: Any) -> None:
        nonlocal looked
        looked += len(stretch.steps)
        along(flow, stretch)

    monkeypatch.setattr(Flow, "_along", counted)
    kernels = kernels_of(written(pto.jit(program, cache=False), *given))
    works = sum(pipe_of(node) is not None for kernel in kernels for node in walk(kernel.body))
    assert works > 1500 and looked < 60 * works


def test_tables_are_written_by_one_core_and_the_cache_is_written_back(compiled: dict[str, Any]) -> None:
    table, others = kernels_of(compiled["tables"])
    assert table.alone and not others.alone and isinstance(table.body[-1], Flush)
    flush = table.body.pop()
    assert any("stay in its cache" in text for text in violations(table))
    table.body.append(flush)
    table.alone = False
    assert any("of several cores" in text for text in violations(table))
    table.alone = True


def test_products_of_few_rows_are_taken_on_the_vector_core(compiled: dict[str, Any]) -> None:
    (kernel,) = kernels_of(compiled["few"])
    names = [n.name for block in blocks(kernel.body) for n in block if isinstance(n, Instruction)]
    assert kernel.core == "vector" and kernel.partner is None
    assert (names.count("TROWEXPANDMUL"), names.count("TCOLEXPANDMUL"), names.count("TTRANS")) == (4, 1, 0)


@needs_compiler
@pytest.mark.parametrize("seed", SEEDS)
def test_single_elements_of_any_type(programs: Programs, seed: int) -> None:
    random = np.random.default_rng(seed)
    x = random.standard_normal((11, 40)).astype(np.float32)
    x[3] = -1
    given = [random.integers(0, 2**40, 9), x, np.zeros(10, np.int64), np.full(11, 7), np.zeros(11, bool),
             np.zeros(11, np.uint16)]  # fmt: skip
    wanted = [a.copy() for a in given]
    tables.interpret(*wanted)
    programs.run("tables", seed, **dict(zip(inspect.signature(tables.__pto_jit__).parameters, given, strict=True)))
    assert wanted[2][-1] == given[0].sum() and wanted[3][3] == 7
    for got, want in zip(given, wanted, strict=True):
        np.testing.assert_array_equal(got, want)


@needs_compiler
def test_results_are_given_to_the_caller(programs: Programs) -> None:
    x = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32)
    found: list[Any] = []
    programs.run("results", 0, x=x, n=np.zeros(1, np.int64), results=found)
    np.testing.assert_array_equal(programs.taken(found[0], 2, np.float32), x * 2)
    assert found[1] == 55


@needs_compiler
def test_numbers_of_the_host(programs: Programs) -> None:
    x = np.random.default_rng(0).standard_normal((13, 40)).astype(np.float32)
    n, small, out = np.array([7, 0], np.int32), np.array([20000, 0], np.int16), x * 0
    found: list[Any] = []
    programs.run("exp", 0, x=x, n=n, small=small, out=out, s=2, k=9, results=found)
    first = np.float32(np.exp(2.0) + 3.5 + 2 + 1)
    np.testing.assert_allclose(programs.taken(found[0], 2, np.float32), x * first, rtol=1e-6)
    np.testing.assert_array_equal(out, x + np.float32(6))
    assert found[1] == 6 and n[1] == -2 and small[1] == 40000 - 300 - 2**16


@needs_compiler
@pytest.mark.parametrize("seed", SEEDS)
def test_products_of_few_rows(programs: Programs, seed: int) -> None:
    a, b, c = (np.random.default_rng(seed).standard_normal(s).astype(np.float32) for s in ((7, 24), (24, 20), (20, 24)))
    out = np.zeros((7, 20), np.float32)
    programs.run("few", seed, a=a, b=b, c=c, out=out)
    halves = (a[:3] * np.float32(0.5)).astype(np.float16).astype(np.float64) @ b.astype(np.float16).astype(np.float64)
    np.testing.assert_allclose(out, a @ b + a @ c.T + halves.sum(0), rtol=1e-4, atol=1e-4)


@needs_compiler
@pytest.mark.parametrize("seed", SEEDS)
def test_columns_of_any_type_with_gaps_in_memory(programs: Programs, seed: int) -> None:
    random = np.random.default_rng(seed)
    x, h = random.standard_normal((13, 24)).astype(np.float32), random.standard_normal((13, 3)).astype(ml_dtypes.bfloat16)
    m, k = random.random((13, 3)) < 0.5, random.integers(-128, 128, (13, 2)).astype(np.int8)
    given = [np.zeros((13, 24), np.float32), np.zeros((13, 3), bool), np.zeros((13, 27), ml_dtypes.bfloat16)]
    wanted = [g.copy() for g in given]
    columns.interpret(x, m, h, k, *wanted)
    programs.run("columns", seed, x=x, m=m, h=h, k=k, out=given[0], kept=given[1], halves=given[2])
    for got, want in zip(given, wanted, strict=True):
        np.testing.assert_array_equal(got, want)


@needs_compiler
@pytest.mark.parametrize("seed", SEEDS)
def test_tiles_put_together_and_taken_apart(programs: Programs, seed: int) -> None:
    random = np.random.default_rng(seed)
    x, y = random.standard_normal((16, 24)).astype(np.float32), random.standard_normal((16, 5)).astype(np.float32)
    given = [np.zeros((16, 34), np.float32), np.zeros((16, 22), np.float32)]
    wanted = [g.copy() for g in given]
    joined.interpret(x, y, *wanted)
    programs.run("joined", seed, x=x, y=y, out=given[0], parts=given[1])
    for got, want in zip(given, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def flat(value: Any) -> list[np.ndarray]:
    return [a for item in value for a in flat(item)] if isinstance(value, tuple) else [value.leaves, *value.offsets]


def given_to(program: Any, arguments: list[Any]) -> dict[str, np.ndarray]:
    out: dict[str, np.ndarray] = {}
    for name, value in zip(inspect.signature(program).parameters, arguments, strict=False):
        if isinstance(value, ft.FractalTensor):
            out[f"{name}_leaves"] = np.ascontiguousarray(value.leaves)
            out |= {f"{name}_offsets_{k}": np.ascontiguousarray(o) for k, o in enumerate(value.offsets)}
        else:
            out[name] = value
    return out


@needs_compiler
@pytest.mark.parametrize("name", TUTORIALS)
def test_programs_on_lists(programs: Programs, name: str) -> None:
    program, given = tutorial(name)
    wanted = flat(program(*given))
    for seed in SEEDS:
        found: list[Any] = []
        programs.run(key(name), seed, results=found, **given_to(program, given))
        for result, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(programs.taken(result, want.ndim, want.dtype), want, atol=2e-5)


@needs_compiler
def test_lists_that_do_not_fit_each_other_are_named(programs: Programs) -> None:
    module = load("attention")
    given = given_to(module.program, module.arguments())
    given["k_offsets_1"] = given["k_offsets_1"].copy()
    given["k_offsets_1"][1] += 1
    with pytest.raises(RuntimeError, match=r"PTO-F190: .*different lengths: \d+, \d+, at element \[0\]\[0\]"):
        programs.run("attention", 0, results=[], **given)


@pto.jit
def passed_on(x: pl.Tensor, w: pl.Tensor, kept: pl.Tensor, out: pl.Tensor, before: bool) -> None:
    """Rows that are stored, loaded, and multiplied; `before`: they are loaded before, too."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 32, parallel=True):
            old = pl.load(kept if before else x, [r, 0], [32, 32])
            pl.store(pl.load(x, [r, 0], [32, 32]) * 2.0, [r, 0], kept)
            new = pl.load(kept, [r, 0], [32, 32])
            pl.store(pl.dot(new, pl.load(w, [0, 0], [32, 32])) + pl.dot(old, pl.load(w, [0, 0], [32, 32])), [r, 0], out)


@needs_compiler
def test_what_products_load_is_stored_by_a_kernel_before(tmp_path: Path) -> None:
    specs = *[pto.spec((None, 32), pl.f32)] * 4, False
    compiled = written(passed_on, *specs)
    assert [kernel.name for kernel in kernels_of(compiled)] == ["passed_on_incore_0_lists", "passed_on_incore_0"]
    x, w = (np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32) for _ in range(2))
    kept, out = np.zeros_like(x), np.zeros_like(x)
    Programs({"passed": compiled}, tmp_path).run("passed", 0, x=x, w=w, kept=kept, out=out)
    np.testing.assert_allclose(out, x @ w[:32] * 3, rtol=1e-4, atol=1e-4)
    with pytest.raises(pto.TargetError, match="loads from and stores into `kept`"):
        written(passed_on, *specs[:-1], True)


@pto.jit
def both_computed(x: pl.Tensor, w: pl.Tensor, out: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 32, parallel=True):
            left, right = pl.load(x, [r, 0], [32, 48]) * 2.0, pl.load(w, [0, 0], [48, 32]) * 3.0
            pl.store(pl.exp(pl.dot(left, right) * 0.01), [r, 0], out)


@needs_compiler
def test_both_operands_of_a_product_are_computed(tmp_path: Path) -> None:
    """A core that stores neither of them, as its half of the group has, tells after what it waited for, too."""
    specs = pto.spec((64, 48), pl.f32), pto.spec((48, 32), pl.f32), pto.spec((64, 32), pl.f32)
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(s.shape).astype(np.float32) for s in specs[:2])
    out = np.zeros((64, 32), np.float32)
    ordered({"both": (both_computed, specs)}, tmp_path).run("both", 0, x=x, w=w, out=out)
    np.testing.assert_allclose(out, np.exp(x @ w * 0.06), rtol=1e-4)


def test_extents_of_new_tensors_are_not_negative() -> None:
    @pto.jit
    def made(x: pl.Tensor, n: pl.i64) -> Any:
        t = pl.zeros([n, 64])
        for r in pl.range(0, n, parallel=True):
            pl.store(pl.load(x, [r, 0], [1, 64]), [r, 0], t)
        return t

    text = written(made, pto.spec((None, 64), pl.f32), 3).sources["made_orchestration.c"]
    checks = [line.strip() for line in text.splitlines() if "PTO-H203" in line]
    assert len(checks) == 1 and checks[0].startswith("if (n < 0) return release(&memory, ")


@needs_compiler
def test_a_program_that_returns_numbers_only_has_no_function_that_gives_memory(tmp_path: Path) -> None:
    """One that is not used is an error of the C compiler here."""

    @pto.jit
    def positive(x: pl.Tensor, kept: pl.Tensor):
        n = 0
        for i in range(x.shape[0]):
            if x[i] > 0:
                kept[n] = x[i]
                n += 1
        return n

    x, found = np.array([1, -2, 3, -4, 5], np.float32), []
    kept = np.zeros_like(x)
    Programs({"positive": written(positive, x, kept)}, tmp_path).run("positive", 0, x=x, kept=kept, results=found)
    assert found == [3] and kept.tolist() == [1, 3, 5, 0, 0]


@needs_compiler
def test_returns_in_branches_end_the_program(tmp_path: Path) -> None:
    """They were left out: what came after them ran, and had results of its own."""

    @pto.jit
    def early(x: pl.Tensor, n: pl.i64):
        t = pl.full((x.shape[0], x.shape[1]), 2.0, pl.f32)
        if n > 2:
            x[...] = x + 1.0
            return t, 1
        x[...] = x * 3.0
        t[...] = x
        return t, 2

    programs = Programs({"early": written(early, pto.spec((None, None), pl.f32), 1)}, tmp_path)
    for n in (1, 5):
        x, found = np.ones((5, 7), np.float32), []
        wanted = x.copy()
        results = early.interpret(wanted, n)
        programs.run("early", 0, x=x, n=n, results=found)
        np.testing.assert_array_equal(x, wanted)
        np.testing.assert_array_equal(programs.taken(found[0], 2, np.float32), results[0])
        assert found[1:] == [results[1]]
