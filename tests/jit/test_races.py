# SPDX-License-Identifier: MIT
"""`debug=True`: races between iterations of loops that promised independent ones."""

from __future__ import annotations

import inspect
import linecache
import pickle
import random
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.arguments import Parameters
from pto_jit.compiler import lower
from pto_jit.options import Options
from pto_jit.semantic import interpreter
from tests.jit.race_programs import Program, Race, Writer, coefficients, first_race


def build(program: Program) -> Any:
    filename = f"<race program {program.seed}>"
    linecache.cache[filename] = (len(program.source), None, program.source.splitlines(True), filename)
    namespace: dict[str, Any] = {"pto": pto, "pl": pl}
    exec(compile(program.source, filename, "exec"), namespace)
    return namespace["kernel"]


def told(error: pto.RaceError) -> Race:
    then, now = error.places
    assert error.element is not None
    return Race(error.loop, error.iterations, error.tensor, error.element, (then.lineno, now.lineno))


def run(function: Any, program: Program, buffers: list[np.ndarray], ks: list[int]) -> Race | list[np.ndarray]:
    mine = [b.copy() for b in buffers]
    try:
        function(*program.arguments(mine), 2, *ks)
    except pto.RaceError as error:
        return told(error)
    return mine


def check(seed: int, rounds: int) -> tuple[int, int]:
    """Runs one program with several arguments, compiled and interpreted: numbers of racy and of race-free runs."""
    program = Writer(seed).program()
    rng = random.Random(seed)
    kernel = build(program)
    racy = free = 0
    buffers = program.buffers(rng)
    parameters = Parameters(kernel.__pto_jit__, kernel.__pto_jit__.__globals__)
    ks = [0] * program.coefficients
    call = parameters.classify(*parameters.bind((*program.arguments(buffers), 2, *ks), {}))
    stages = lower(kernel.__pto_jit__, call.params, Options(debug=True)).modules
    for number in range(rounds):
        ks = coefficients(program, rng, sparse=number % 2 == 0)
        place, _, _, (count,) = program.layout["g"]
        buffers[place][: 8 * count].view(np.int64)[:] = [rng.randrange(36) for _ in range(count)]
        arrays = dict(zip(program.layout, program.arguments(buffers), strict=True))
        expected = first_race(program.accesses(arrays, ks))
        compiled = run(kernel, program, buffers, ks)
        for stage in ("checked", "fused"):
            module = stages[stage]
            result = run(lambda *args, m=module: interpreter.run(m, args, debug=True), program, buffers, ks)
            same(program, ks, result, compiled, stage)
        if expected is None:
            assert isinstance(compiled, list), f"{program.source}{ks}: {compiled}"
            free += 1
        else:
            assert compiled == expected, f"{program.source}{ks}"
            racy += 1
    return racy, free


def same(program: Program, ks: list[int], a: Any, b: Any, stage: str) -> None:
    if isinstance(a, Race) or isinstance(b, Race):
        assert a == b, f"{stage}: {program.source}{ks}"
    else:
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y, err_msg=f"{stage}: {program.source}{ks}")


@pytest.mark.parametrize("block", range(8))
def test_what_is_reported_is_what_comparing_all_pairs_of_accesses_finds(block: int) -> None:
    racy = free = 0
    for seed in range(4 * block, 4 * block + 4):
        r, f = check(seed, 17)
        racy, free = racy + r, free + f
    assert racy and free


# -- single programs --------------------------------------------------------------------------------------------------


@pto.jit(debug=True)
def scattered(idx: pl.Tensor, x: pl.Tensor) -> None:
    with pl.incore():
        for i in pl.range(0, idx.shape[0], parallel=True):
            x[idx[i]] = 1.0 * i


def line_of(function: Any, text: str) -> int:
    lines, start = inspect.getsourcelines(function.__pto_jit__)
    return next(start + k for k, line in enumerate(lines) if text in line)


def test_the_error_names_the_lines_the_iterations_and_the_element() -> None:
    idx = np.array([4, 0, 6, 2, 0, 6])
    with pytest.raises(pto.RaceError) as info:
        scattered(idx, np.zeros(8, np.float32))
    error = info.value
    line = line_of(scattered, "x[idx[i]]")
    assert (error.loop, error.iterations, error.tensor, error.element) == ("i", (1, 4), "x", (0,))
    assert [place.lineno for place in error.places] == [line, line]
    text = str(error)
    assert text.startswith("PTO-L900: scattered: iterations 1 and 4 of the loop over `i` both write `x[0]`\n")
    assert f"test_races.py:{line}:13" in text and "note: the loop over `i`" in text and "help: " in text


def test_after_a_race_the_next_call_works_and_a_race_leaves_no_memory_behind() -> None:
    x = np.zeros(8, np.float32)
    for _ in range(3):
        with pytest.raises(pto.RaceError):
            scattered(np.array([1, 1]), x)
        scattered(np.arange(8), x)
        np.testing.assert_array_equal(x, np.arange(8))


def test_without_debug_nothing_is_checked_and_no_loop_is_marked() -> None:
    fast = pto.jit(scattered.__pto_jit__)
    fast(np.array([1, 1]), np.zeros(8, np.float32))
    compiled = fast.compile(np.array([1, 1]), np.zeros(8, np.float32))
    assert "checked" not in compiled.ir("fused") and "pto_race" not in compiled.ir("llvm")
    assert "checked" not in compiled.stages


def test_the_setting_turns_it_on_for_every_kernel() -> None:
    plain = pto.jit(scattered.__pto_jit__)
    before = pto.config.debug
    pto.config.debug = True
    try:
        with pytest.raises(pto.RaceError):
            plain(np.array([1, 1]), np.zeros(8, np.float32))
    finally:
        pto.config.debug = before
    plain(np.array([1, 1]), np.zeros(8, np.float32))


def test_arguments_that_share_memory_are_compared_by_address() -> None:
    @pto.jit(debug=True)
    def shifted(x: pl.Tensor, y: pl.Tensor) -> None:
        with pl.incore():
            for i in pl.range(0, 4, chunk=2):
                pl.store(pl.load(x, [4 * i], [4]) * 2.0, [4 * i], y)

    data = np.zeros(24, np.float32)
    shifted(data[:16], data[:16])
    shifted(data[:16], np.zeros(16, np.float32))
    with pytest.raises(pto.RaceError) as info:
        shifted(data[2:18], data[:16])
    # iteration 0 reads data[2:6], iteration 1 writes data[4:8]
    assert info.value.iterations == (0, 1) and info.value.element == (4,)
    assert "iteration 1 of the loop over `i` writes `y[4]`, which iteration 0 reads as `x`" in str(info.value)


def test_only_valid_elements_count() -> None:
    @pto.jit(debug=True)
    def border(x: pl.Tensor, step) -> None:
        with pl.incore():
            for i in pl.range(0, 3, parallel=True):
                pl.store(pl.full([4, 8], 1.0, pl.f32), [step * i, 0], x)

    border(np.zeros((12, 5), np.float32), 4)
    border(np.zeros((3, 5), np.float32), 4)
    with pytest.raises(pto.RaceError) as info:
        border(np.zeros((12, 5), np.float32), 3)
    assert info.value.element == (3, 0)


def test_strided_and_transposed_arguments_are_exact() -> None:
    @pto.jit(debug=True)
    def columns(x: pl.Tensor) -> None:
        with pl.incore():
            for j in pl.range(0, 4, parallel=True):
                pl.store(pl.full([6, 1], 1.0, pl.f32), [0, j], x)

    whole = np.zeros((6, 8), np.float32)
    columns(whole[:, ::2])
    columns(whole.T[:6, :4])
    columns(whole[::-1, 3::-1])
    overlapping = np.lib.stride_tricks.as_strided(whole, (6, 4), (32, 0))
    with pytest.raises(pto.RaceError) as info:
        columns(overlapping)
    assert info.value.iterations == (0, 1)


def test_gather_and_scatter_touch_the_elements_that_they_name() -> None:
    @pto.jit(debug=True)
    def moves(x: pl.Tensor, into: pl.Tensor, out: pl.Tensor, y: pl.Tensor) -> None:
        with pl.incore():
            for i in pl.range(0, 3, parallel=True):
                where = pl.load(into, [i, 0], [1, 4])
                rows = pl.load(out, [4 * i], [4])
                pl.scatter(pl.cast(where, pl.f32), where, 1, x)
                pl.store(y[rows, :], [4 * i, 0], y)

    into = np.arange(12, dtype=np.int32).reshape(3, 4)
    moves(np.zeros((1, 12), np.float32), into, np.arange(12, dtype=np.int32), np.zeros((12, 3), np.float32))
    bad = into.copy()
    bad[2, 1] = 5
    with pytest.raises(pto.RaceError) as info:
        moves(np.zeros((1, 12), np.float32), bad, np.arange(12, dtype=np.int32), np.zeros((12, 3), np.float32))
    assert info.value.element == (0, 5) and info.value.iterations == (1, 2)
    rows = np.arange(12, dtype=np.int32)
    rows[9] = 1
    with pytest.raises(pto.RaceError) as info:
        moves(np.zeros((1, 12), np.float32), into, rows, np.zeros((12, 3), np.float32))
    assert info.value.tensor == "y" and info.value.element == (1, 0) and info.value.iterations == (0, 2)


@pto.jit(debug=True)
def gathered(x: pl.Tensor, at: pl.Tensor) -> None:
    for i in pl.range(0, 4, parallel=True):
        with pl.incore():
            pl.store(pl.sum(x[0, pl.load(at, [0], [3])][None, :], axis=1, keepdims=True), [0, i], x)


@pto.jit(debug=True)
def gathered_columns(x: pl.Tensor, at: pl.Tensor) -> None:
    for i in pl.range(0, 3, parallel=True):
        with pl.incore():
            pl.store(pl.sum(x[:, pl.load(at, [i], [2])], axis=0, keepdims=True), [i, 4], x)


@pto.jit(debug=True)
def put(x: pl.Tensor, at: pl.Tensor) -> None:
    for i in pl.range(0, 3, parallel=True):
        with pl.incore():
            pl.scatter(pl.full([1, 2], 1.0 * i), pl.load(at, [2 * i], [2])[None, :], 1, x)


@pytest.mark.parametrize(
    ("kernel", "at", "raises"),
    [(gathered, (0, 2, 1), True), (gathered, (6, 7, 6), False), (gathered_columns, (0, 1, 2, 3), False),
     (gathered_columns, (0, 5, 2, 3), True), (put, (0, 1, 2, 3, 5, 4), False), (put, (0, 1, 2, 3, 2, 4), True)],
)  # fmt: skip
def test_the_interpreter_of_the_ir_finds_the_races_of_indices(kernel: Any, at: tuple[int, ...], raises: bool) -> None:
    x, index = np.arange(32, dtype=np.float32).reshape(4, 8), np.array(at, np.int32)
    parameters = Parameters(kernel.__pto_jit__, kernel.__pto_jit__.__globals__)
    stages = lower(kernel.__pto_jit__, parameters.classify(*parameters.bind((x, index), {})).params, Options(debug=True)).modules

    def ran(function: Any) -> Any:
        mine = x.copy()
        try:
            function(mine, index)
        except pto.RaceError as error:
            return told(error)
        return mine.tolist()

    compiled = ran(kernel)
    assert isinstance(compiled, Race) == raises
    for stage in ("checked", "fused"):
        assert ran(lambda *args, m=stages[stage]: interpreter.run(m, args, debug=True)) == compiled


def test_atomic_updates_go_with_each_other_but_not_with_reads() -> None:
    @pto.jit(debug=True)
    def counts(x: pl.Tensor, y: pl.Tensor, at) -> None:
        with pl.incore():
            for i in pl.range(0, 4, parallel=True):
                pl.atomic_add(x, [0], pl.full([1], 1.0, pl.f32))
                y[i] = x[at * i]

    with pytest.raises(pto.RaceError) as info:
        counts(np.zeros(8, np.float32), np.zeros(4, np.float32), 0)
    assert "updates" in str(info.value)
    x = np.zeros(8, np.float32)
    with pytest.raises(pto.RaceError):
        counts(x, np.zeros(4, np.float32), 1)  # iteration 0 reads x[0]


@pto.incore
def twice(x: pl.Tensor, y: pl.Tensor, at, to) -> None:
    pl.store(pl.load(x, [at], [4]) * 2.0, [to], y)


def test_functions_called_from_orchestration_are_looked_into() -> None:
    @pto.jit(debug=True)
    def calls(x: pl.Tensor, y: pl.Tensor, step) -> None:
        for i in pl.range(0, 4, chunk=2):
            twice(x, y, 4 * i, step * i)

    calls(np.zeros(16, np.float32), np.zeros(16, np.float32), 4)
    with pytest.raises(pto.RaceError) as info:
        calls(np.zeros(16, np.float32), np.zeros(16, np.float32), 3)
    assert info.value.tensor == "y" and info.value.element == (3,)


def test_a_temporary_of_an_iteration_is_its_own() -> None:
    @pto.jit(debug=True)
    def temporaries(x: pl.Tensor) -> None:
        for i in pl.range(0, 4, parallel=True):
            t = pl.zeros([4], pl.f32)
            twice(x, t, 4 * i, 0)
            twice(t, x, 0, 4 * i)

    x = np.arange(16, dtype=np.float32)
    temporaries(x)
    np.testing.assert_array_equal(x, 4 * np.arange(16))


def test_of_nested_loops_each_is_checked() -> None:
    @pto.jit(debug=True)
    def nest(x: pl.Tensor, a, b) -> None:
        with pl.incore():
            for i in pl.range(0, 3, parallel=True):
                for k in pl.range(0, 2):
                    for j in pl.range(0, 3, chunk=2):
                        x[a * i + b * j] = 1.0 * k

    nest(np.zeros(32, np.float32), 3, 1)
    with pytest.raises(pto.RaceError) as outer:
        nest(np.zeros(32, np.float32), 1, 1)
    assert outer.value.loop == "i"
    with pytest.raises(pto.RaceError) as inner:
        nest(np.zeros(32, np.float32), 3, 0)
    assert inner.value.loop == "j"


def reduce_chunked(x: pl.Tensor, y: pl.Tensor, at) -> None:
    with pl.incore():
        s = 0.0
        for i in pl.range(0, 12, chunk=5):
            s += x[i]
            y[at * i] = x[i]
        y[13] = s


def reduce_nested(x: pl.Tensor, y: pl.Tensor, at) -> None:
    with pl.incore():
        s = 0.0
        for i in pl.range(0, 3, chunk=2):
            for j in pl.range(0, 4, chunk=3):
                s += x[4 * i + j]
                y[at * (4 * i + j)] = x[i]
        y[13] = s


def reduce_backwards(x: pl.Tensor, y: pl.Tensor, at) -> None:
    with pl.incore():
        s = 0.0
        for i in pl.range(11, -1, -1, parallel=True):
            s += x[i]
            y[at * i] = x[i]
        y[13] = s


def reduce_inner(x: pl.Tensor, y: pl.Tensor, at) -> None:
    with pl.incore():
        for i in pl.range(0, 3, parallel=True):
            s = 0.0
            for j in pl.range(0, 4, parallel=True):
                s += x[4 * i + j]
                y[at * (4 * i + j)] = x[j]
            y[13 + i] = s


def reduce_tiles(x: pl.Tensor, y: pl.Tensor, at) -> None:
    with pl.incore():
        s = pl.zeros([2], pl.f64)
        for i in pl.range(0, 6, chunk=4):
            t = pl.load(x, [2 * i], [2])
            s += t
            pl.store(t, [2 * at * i], y)
        pl.store(s, [13], y)


REDUCING = (reduce_chunked, reduce_nested, reduce_inner, reduce_tiles)


@pytest.mark.parametrize("function", REDUCING, ids=lambda f: f.__name__)
def test_a_reduction_is_no_race_and_what_else_its_loop_does_is_checked(function: Any) -> None:
    x = np.arange(12.0)
    plain, checked = np.zeros(16), np.zeros(16)
    pto.jit(function)(x, plain, 1)
    pto.jit(debug=True)(function)(x, checked, 1)
    np.testing.assert_array_equal(checked, plain)
    with pytest.raises(pto.RaceError) as info:
        pto.jit(debug=True)(function)(x, np.zeros(16), 0)
    assert info.value.tensor == "y" and info.value.element == (0,) and info.value.loop in "ij"


def test_a_reduction_in_a_loop_that_counts_down_is_checked_by_the_loops_own_variable() -> None:
    x, y = np.arange(12.0), np.zeros(16)
    pto.jit(debug=True)(reduce_backwards)(x, y, 1)
    assert y[13] == 66
    with pytest.raises(pto.RaceError) as info:
        pto.jit(debug=True)(reduce_backwards)(x, np.zeros(16), 0)
    assert info.value.iterations == (11, 10)


def test_a_kernel_from_the_disk_cache_tells_the_same(tmp_path: Any) -> None:
    before = pto.config.cache_dir
    pto.config.cache_dir = tmp_path
    try:
        texts = []
        for _ in range(2):
            again = pto.jit(debug=True)(scattered.__pto_jit__)
            with pytest.raises(pto.RaceError) as info:
                again(np.array([1, 1]), np.zeros(8, np.float32))
            texts.append((str(info.value), again.specializations()[0].origin))
        assert texts[0][0] == texts[1][0] and [origin for _, origin in texts] == ["compiled", "disk"]
    finally:
        pto.config.cache_dir = before


def test_the_interpreter_tells_the_same_as_the_compiled_program() -> None:
    idx, x = np.array([4, 0, 6, 2, 0, 6]), np.zeros(8, np.float32)
    compiled = scattered.compile(idx, x)
    parameters = Parameters(scattered.__pto_jit__, scattered.__pto_jit__.__globals__)
    call = parameters.classify(*parameters.bind((idx, x), {}))
    module = lower(scattered.__pto_jit__, call.params, Options(debug=True)).last
    with pytest.raises(pto.RaceError) as one:
        compiled(idx, x)
    with pytest.raises(pto.RaceError) as two:
        interpreter.run(module, [idx, x], debug=True)
    assert str(one.value) == str(two.value)


def test_a_race_can_be_pickled() -> None:
    with pytest.raises(pto.RaceError) as info:
        scattered(np.array([1, 1]), np.zeros(8, np.float32))
    again = pickle.loads(pickle.dumps(info.value))
    assert (str(again), again.element, again.places) == (str(info.value), info.value.element, info.value.places)


def test_calls_in_a_sequential_loop_inside_belong_to_the_iteration_around() -> None:
    @pto.jit(debug=True)
    def calls(x: pl.Tensor, y: pl.Tensor, step) -> None:
        for i in pl.range(0, 3, parallel=True):
            for k in pl.range(0, 2):
                twice(x, y, 4 * i, step * i + 4 * k)

    calls(np.zeros(12, np.float32), np.zeros(24, np.float32), 8)
    with pytest.raises(pto.RaceError) as info:
        calls(np.zeros(12, np.float32), np.zeros(24, np.float32), 4)
    assert info.value.iterations == (0, 1) and info.value.element == (4,)
