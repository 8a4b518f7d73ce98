# SPDX-License-Identifier: MIT
"""Orchestration functions as task graphs: run, recorded, and when a task fails."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit import recording
from pto_jit.targets.cpu.loading import LLVM_LOCK

rng = np.random.default_rng(7)


@pto.incore
def scale_into(x, y, factor):
    y[...] = pl.load(x) * factor


@pto.incore
def add_into(x, y):
    y[...] = pl.load(y) + pl.load(x)


@pto.incore
def total_of(x, out):
    out[...] = pl.sum(pl.load(x), axis=1)


@pto.jit
def pipeline(x, y, n):
    """Row blocks: scaled, then added into the block below, one after the other."""
    for k in pl.range(n):
        r = k * 4
        scale_into(x[r : r + 4, :], y[r : r + 4, :], 2.0)
    for k in pl.range(n - 1):
        r = k * 4
        add_into(y[r : r + 4, :], y[r + 4 : r + 8, :])


def dispatch(kernel, *args):
    return [d for d in kernel.compile(*args).decisions if d.kind == "dispatch"]


def test_calls_of_named_functions_in_a_sequential_loop_become_tasks() -> None:
    x = rng.standard_normal((32, 5), dtype=np.float32)
    y = np.zeros_like(x)
    pipeline(x, y, 8)
    expected = np.cumsum((x * 2).reshape(8, 4, 5), axis=0).reshape(32, 5)
    assert np.allclose(y, expected, atol=1e-5)
    (decision,) = dispatch(pipeline, x, y, 8)
    assert decision.applied and "scale_into" in decision.reason


def test_the_recorded_graph_has_the_tasks_and_edges_of_the_program() -> None:
    x, y = np.ones((32, 5), np.float32), np.zeros((32, 5), np.float32)
    graph = pipeline.task_graph(x, y, 8)
    assert graph.num_tasks == 15 and graph.critical_path == 8 and graph.max_width == 8
    assert [t.name for t in graph.tasks] == ["scale_into"] * 8 + ["add_into"] * 7
    assert set(graph.edges) == {(0, 8)} | {(k + 1, k + 8) for k in range(7)} | {(k + 8, k + 9) for k in range(6)}
    assert not y.any(), "recording runs nothing"
    graph.run()
    assert np.array_equal(y[::4, 0], 2 * np.arange(1.0, 9.0))
    y[:] = 0
    graph.run(1)
    assert np.array_equal(y[::4, 0], 2 * np.arange(1.0, 9.0))


def test_regions_are_named_and_cut_at_the_bounds_of_the_tensor() -> None:
    x, y = np.ones((10, 5), np.float32), np.zeros((10, 5), np.float32)
    graph = pipeline.task_graph(x, y, 3)
    read, write = graph.tasks[2].regions
    assert (read.access, read.offsets, read.extents) == ("read", (8, 0), (2, 5))
    assert (write.access, write.offsets, write.extents) == ("write", (8, 0), (2, 5))


@pto.jit
def chunked(x, y):
    with pl.incore():
        for r in pl.range(0, x.shape[0], chunk=8):
            pl.store(pl.load(x, [r, 0], [1, 4]) + 1.0, [r, 0], y)


def test_every_chunk_is_a_task_when_recorded_and_none_when_run() -> None:
    x, y = np.ones((20, 4), np.float32), np.zeros((20, 4), np.float32)
    graph = chunked.task_graph(x, y)
    assert graph.num_tasks == 3 and graph.num_edges == 0
    assert [t.regions[-1].offsets[0] for t in graph.tasks] == [0, 8, 16]
    assert dispatch(chunked, x, y) == []
    graph.run()
    assert (y == 2).all()
    assert chunked.task_graph(x[:0], y[:0]).num_tasks == 0


@pto.jit
def with_temporaries(x, n):
    """A new tensor in every iteration, and a result that outlives the graph."""
    out = pl.zeros(x.shape, pl.f32)
    for _ in pl.range(n):
        t = pl.empty(x.shape, pl.f32)
        scale_into(x, t, 1.0)
        add_into(t, out)
    return out


def test_temporaries_live_until_their_tasks_are_done_and_are_given_back() -> None:
    x = rng.standard_normal((64, 64), dtype=np.float32)
    assert np.allclose(with_temporaries(x, 50), 50 * x, atol=1e-3)
    before = with_temporaries(x, 5), with_temporaries(x, 5)
    assert np.array_equal(*before)
    graph = with_temporaries.task_graph(x, 4)
    assert graph.num_tasks == 8
    graph.run()


@pto.jit
def steps(x, y, limits):
    """The host reads what tasks have written: how often, and where."""
    k = 0
    while y[0, 0] < limits[0]:
        add_into(x, y)
        k += 1
    for j in pl.range(2):
        if y[0, j] > 3.0:
            scale_into(x, y, 10.0)
        else:
            scale_into(x, y, 20.0)
    return k


@pto.incore
def highest_of(t):
    return pl.max(t, axis=1, keepdims=True)


@pto.incore
def powers_of(t, m):
    return pl.exp(t - m)


@pto.incore
def shares_of(e):
    return e / pl.sum(e, axis=1, keepdims=True)


@pto.incore
def doubled(t):
    return t * 2.0


@pytest.mark.parametrize("shape", [(9, 5), (8, 7), (1, 1), (3, 4)])
def test_calls_that_return_partial_tiles_are_tasks(shape: tuple[int, int]) -> None:
    """Orchestration computes the valid extents of the tiles itself: it waits for no call."""

    @pto.jit
    def softmax(x, y, rows, cols):
        for r in pl.range(0, x.shape[0], rows):
            t = x[r : r + rows, 0:cols]
            e = powers_of(t, highest_of(t))
            y[r : r + rows, 0:cols] = shares_of(e)

    x = rng.standard_normal(shape)
    y = np.zeros_like(x)
    graph = softmax.task_graph(x, y, 4, 7)
    blocks = -(-shape[0] // 4)
    assert graph.num_tasks == 4 * blocks and graph.critical_path == 4 and graph.max_width == blocks
    assert not y.any(), "recording runs nothing"
    x[:] = rng.standard_normal(shape)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    graph.run()
    assert np.allclose(y, e / e.sum(axis=1, keepdims=True))
    y[:] = 0
    softmax(x, y, 4, 7)
    assert np.allclose(y, e / e.sum(axis=1, keepdims=True))


def test_the_valid_extents_of_a_tile_that_a_loop_of_calls_changes() -> None:
    @pto.jit
    def kernel(x, y, n, where):
        t = doubled(pl.load(x, [where, 0], [8, 4]))
        for _ in pl.range(n):
            t = doubled(t)
        pl.store(t, [0, 0], y)

    x = rng.standard_normal((5, 4))
    for n, where in ((0, 0), (3, 2), (2, 5)):
        y = np.zeros((9, 4))
        kernel(x, y, n, where)
        assert np.array_equal(y[: 5 - where], x[where:] * 2.0 ** (n + 1)) and not y[5 - where :].any()


def test_the_host_waits_for_the_elements_that_it_reads() -> None:
    x, y = np.ones((4, 4), np.float32), np.zeros((4, 4), np.float32)
    assert steps(x, y, np.array([5.0], np.float32)) == 5
    assert (y == 10).all()
    with pytest.raises(pto.LaunchError, match="would write"):
        steps.task_graph(x, np.zeros_like(y), np.array([5.0], np.float32))


@pto.incore
def move(x, at, to):
    pl.store(pl.load(x, [at, 0], [3, 7]) * 0.5 + 1.0, [to, 1], x)


@pto.jit
def moves(x, places):
    for k in pl.range(places.shape[0]):
        move(x, places[k, 0], places[k, 1])


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_random_overlapping_regions_give_what_a_serial_run_gives(threads: int) -> None:
    kernel = pto.jit(num_threads=threads)(moves.__pto_jit__)
    for seed in range(40):
        random = np.random.default_rng(seed)
        rows = int(random.integers(4, 40))
        x = random.standard_normal((rows, 9), dtype=np.float32)
        places = random.integers(0, rows, (int(random.integers(1, 60)), 2)).astype(np.int64)
        expected = x.copy()
        for at, to in places:
            t = expected[at : at + 3, :7] * np.float32(0.5) + np.float32(1)
            cut = expected[to : to + 3, 1:8]
            cut[: len(t)] = t[: len(cut)]
        recorded = x.copy()
        graph = moves.task_graph(recorded, places)
        graph.run(threads)
        kernel(x, places)
        assert np.array_equal(x, expected) and np.array_equal(recorded, expected), seed


@pto.jit
def changing(x, y, n):
    """A scalar that changes under run-time control flow between the calls that use it."""
    at = 0
    step = 1
    for k in pl.range(n):
        r = at * 2
        if k % 3 == 2:
            step = step + 1
        at = (at + step) % 7
        scale_into(x[r : r + 2, :], y[at : at + 2, :], 1.5)
        add_into(x[at : at + 1, :], y[r : r + 1, :])


@pytest.mark.parametrize("n", [1, 5, 30])
def test_scalars_that_change_are_taken_when_the_call_is_made(n: int) -> None:
    x = rng.standard_normal((16, 3), dtype=np.float32)
    y, expected = np.zeros_like(x), np.zeros_like(x)
    at, step = 0, 1
    for k in range(n):
        r = at * 2
        if k % 3 == 2:
            step += 1
        at = (at + step) % 7
        expected[at : at + 2] = x[r : r + 2] * np.float32(1.5)
        expected[r : r + 1] += x[at : at + 1]
    graph = changing.task_graph(x, y, n)
    graph.run()
    assert np.array_equal(y, expected)
    y[:] = 0
    changing(x, y, n)
    assert np.array_equal(y, expected)


@pto.incore
def offset_store(x, y, at):
    pl.store(pl.load(x), [at], y)


@pto.jit
def failing(x, y, start):
    for k in pl.range(6):
        offset_store(x[k : k + 2], y, start - k)


def test_a_failing_task_is_named_with_its_arguments_and_the_next_call_works() -> None:
    x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
    for _ in range(2):
        with pytest.raises(pto.TaskError, match=r"task 3, `offset_store`") as caught:
            failing(x, y, 2)
        assert "k = 3" in str(caught.value) and "start = 2" in str(caught.value) and "write: y[" in str(caught.value)
        assert isinstance(caught.value.__cause__, pto.BoundsError)
        failing(x, y, 5)
    graph = failing.task_graph(x, y, 2)
    with pytest.raises(pto.TaskError, match="offset_store") as caught:
        graph.run()
    assert isinstance(caught.value.__cause__, pto.BoundsError)


@pto.jit
def anonymous(x, y, start):
    for k in pl.range(3):
        scale_into(x, y, 1.0)
        with pl.incore():
            pl.store(pl.load(x), [start - k], y)


def test_a_failure_in_an_anonymous_scope_is_raised_as_itself() -> None:
    x, y = np.ones(4, np.float32), np.zeros(4, np.float32)
    with pytest.raises(pto.BoundsError):
        anonymous(x, y, 1)
    anonymous(x, y, 2)


def test_a_call_that_returns_a_number_to_the_host_is_made_in_order() -> None:
    @pto.incore
    def first(x):
        return x[0, 0]

    @pto.jit
    def kernel(x, y):
        s = 0.0
        for _ in pl.range(3):
            add_into(x, y)
            s += first(y)
        return s

    x, y = np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)
    assert kernel(x, y) == 6.0


def test_debugging_runs_calls_in_order_and_says_so() -> None:
    kernel = pto.jit(debug=True)(pipeline.__pto_jit__)
    x, y = np.ones((8, 5), np.float32), np.zeros((8, 5), np.float32)
    kernel(x, y, 2)
    (decision,) = dispatch(kernel, x, y, 2)
    assert not decision.applied and "debugging" in decision.reason
    assert np.array_equal(y[::4, 0], [2, 4])


def test_a_program_from_text_has_a_task_graph() -> None:
    module = pto.parse_pto("""
// Function Type: InCore
func @double(%x: !pto.memref<gm,4x4,f32>, %y: !pto.memref<gm,4x4,f32>) {
  %t = tload %x[0, 0] : !pto.tile<4x4xf32>
  %d = tadd %t, %t : !pto.tile<4x4xf32>
  tstore %d, %y[0, 0]
  return
}

// Function Type: Orchestration
func @twice(%x: !pto.memref<gm,4x4,f32>, %y: !pto.memref<gm,4x4,f32>, %z: !pto.memref<gm,4x4,f32>) {
  CALL @double(%x -> %x, %y -> %y)
  CALL @double(%x -> %y, %y -> %z)
  return
}
""")
    compiled = module.compile()
    x, y, z = np.ones((4, 4), np.float32), np.zeros((4, 4), np.float32), np.zeros((4, 4), np.float32)
    graph = compiled["twice"].task_graph(x, y, z)
    assert list(graph.edges) == [(0, 1)]
    graph.run()
    assert (z == 4).all()


def test_code_from_the_disk_cache_names_failed_tasks(tmp_path) -> None:
    x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
    previous = pto.config.cache_dir
    try:
        pto.config.cache_dir = tmp_path
        failing(x, y, 5)
        again = pto.jit(failing.__pto_jit__)
        with pytest.raises(pto.TaskError, match=r"offset_store"):
            again(x, y, 2)
        assert again.specializations()[0].origin == "disk"
        assert again.task_graph(x, y, 5).num_tasks == 6
    finally:
        pto.config.cache_dir = previous


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_child_forked_while_a_graph_is_compiled_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM's lock was once taken in the parent at that moment, and so for ever in the child."""
    begun = threading.Event()
    compile_stages = recording.compile_stages

    def slowly(*args: Any) -> Any:
        with LLVM_LOCK:
            begun.set()
            time.sleep(0.1)
        return compile_stages(*args)

    @pto.jit(cache=False)
    def doubled(x, y):
        for k in pl.range(2):
            scale_into(x[4 * k : 4 * k + 4, :], y[4 * k : 4 * k + 4, :], 2.0)

    x = np.ones((8, 4), np.float32)
    graphs: list[Any] = []
    doubled(x, x.copy())
    monkeypatch.setattr(recording, "compile_stages", slowly)
    other = threading.Thread(target=lambda: graphs.append(doubled.task_graph(x, x.copy())))
    other.start()
    assert begun.wait(30)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if (pto.jit(cache=False)(lambda t: t + 1)(x) == 2).all() else 2
        finally:
            os._exit(status)
    other.join()
    ended, end = (0, 0), time.monotonic() + 30
    while ended[0] == 0 and time.monotonic() < end:
        time.sleep(0.01)
        ended = os.waitpid(child, os.WNOHANG)
    if ended[0] == 0:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the child waits for ever")
    assert os.waitstatus_to_exitcode(ended[1]) == 0
    assert graphs[0].num_tasks == 2


@pto.jit
def staircase(x, y, n):
    for k in range(n):
        scale_into(x[2 * k : 2 * k + 2, 3 * k :], y[2 * k : 2 * k + 2, 3 * k :], 2.0)
        add_into(x.T[3 * k : 3 * k + 3, 2 * k : 2 * k + 2], y.T[3 * k : 3 * k + 3, 2 * k : 2 * k + 2])


@pytest.mark.parametrize("n", [2, 3, 4, 40])
def test_parts_that_begin_behind_the_end_of_a_tensor_are_tasks_without_elements(n: int) -> None:
    x = rng.standard_normal((5, 7)).astype(np.float32)
    y, expected = np.zeros_like(x), np.zeros_like(x)
    staircase(x, y, n)
    staircase.interpret(x, expected, n)
    np.testing.assert_array_equal(y, expected)
    graph = staircase.task_graph(x, y, n)
    assert graph.num_tasks == 2 * n
    assert graph.num_edges == min(n, 3)


@pto.jit
def rows_as_tasks(x, y, n):
    for k in range(n):
        copy_row(x[2 * k, :], y[2 * k, :])


@pto.incore
def copy_row(x, y):
    y[...] = pl.load(x) + 0.0


def test_a_row_behind_the_end_of_a_tensor_is_no_task() -> None:
    x = np.ones((5, 4), np.float32)
    rows_as_tasks(x, np.zeros_like(x), 3)
    for run in (rows_as_tasks, rows_as_tasks.task_graph, rows_as_tasks.interpret):
        with pytest.raises(pto.BoundsError, match=r"index 6"):
            run(x, np.zeros_like(x), 4)
