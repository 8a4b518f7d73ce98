# SPDX-License-Identifier: MIT
"""Worker threads: parallel loops, several callers, fork, rest."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_jit.runtime import Runtime, default_runtime, symbols


def count_up(entry: Any, n: int, *, grain: int = 1, work: int = 0, fail_from: int = -1, nested: int = 0) -> np.ndarray:
    out = np.zeros(n, np.int64)
    entry.launch([out.ctypes.data, n, 8, grain, work, fail_from, nested], (out,))
    return out


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Polls; for what other threads bring about soon, however busy the machine is."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


# ---- options ----


def test_a_runtime_has_the_threads_it_was_asked_for() -> None:
    assert Runtime(3).num_threads == 3
    assert Runtime().num_threads == len(os.sched_getaffinity(0))
    assert "3" in repr(Runtime(3))


@pytest.mark.parametrize(
    "options",
    [
        {"num_threads": 0},
        {"num_threads": 1025},
        {"num_threads": 2.0},
        {"num_threads": True},
        {"spin_microseconds": -1},
        {"cache_bytes": -1},
        {"scratch_bytes": "1"},
    ],
)
def test_options_outside_their_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Runtime(**options)


def test_the_default_runtime_is_one_per_number_of_threads() -> None:
    assert default_runtime() is default_runtime()
    assert default_runtime() is default_runtime(default_runtime().num_threads)
    assert default_runtime(5) is default_runtime(5)
    assert default_runtime(5).num_threads == 5


def test_every_function_of_the_header_has_an_address() -> None:
    found = symbols()
    for name in "parallel_for scratch_push scratch_pop buffer_alloc buffer_free fail print worker_index parallel_width in_piece launch".split():
        assert found[f"pto_{name}"] != 0
    assert len(set(found.values())) == len(found)


# ---- parallel loops ----


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [0, 1, 2, 7, 64, 1000])
def test_every_iteration_runs_exactly_once(kernels: Any, threads: int, n: int) -> None:
    entry = kernels.entry(Runtime(threads), "count_up")
    for grain in (1, 3, 64, 10_000):
        for work in (0, 200):
            assert (count_up(entry, n, grain=grain, work=work) == 1).all()


def test_no_thread_is_started_before_a_loop_needs_it(kernels: Any) -> None:
    runtime = Runtime(4)
    entry = kernels.entry(runtime, "count_up")
    count_up(entry, 100, grain=100)
    assert runtime.statistics().threads_started == 0
    count_up(entry, 100, grain=50)
    assert runtime.statistics().threads_started == 1
    count_up(entry, 100, grain=1)
    assert runtime.statistics().threads_started == 3


def test_other_threads_take_part(kernels: Any) -> None:
    out = np.full(40, -1, np.int64)
    entry = kernels.entry(Runtime(2), "who_is_it")
    for _ in range(50):  # on a busy machine a launch may be over before its second thread gets a processor
        entry.launch([out.ctypes.data, 40, 8])
        if set(out.tolist()) == {0, 1}:
            break
    assert set(out.tolist()) == {0, 1}


def test_a_launch_can_be_limited_to_fewer_threads(kernels: Any) -> None:
    runtime = Runtime(4)
    out = np.full(40, -1, np.int64)
    kernels.entry(runtime, "who_is_it", max_threads=1).launch([out.ctypes.data, 40, 8])
    assert set(out.tolist()) == {0}
    assert runtime.statistics().threads_started == 0
    kernels.entry(runtime, "who_is_it", max_threads=2).launch([out.ctypes.data, 40, 8])
    assert len(set(out.tolist())) <= 2
    assert runtime.statistics().threads_started == 1


@pytest.mark.parametrize(("threads", "limit", "width"), [(1, 0, 1), (4, 0, 4), (4, 2, 2), (4, 1, 1), (2, 9, 2)])
def test_how_many_threads_a_loop_may_use(kernels: Any, threads: int, limit: int, width: int) -> None:
    out = np.full(20, -1, np.int64)
    kernels.entry(Runtime(threads), "how_wide", max_threads=limit).launch([out.ctypes.data, 20, 8])
    assert out[0] == width
    assert (out[1:] == 1).all()  # inside a loop


@pytest.mark.parametrize(("threads", "limit", "shared"), [(1, 0, 0), (4, 0, 1), (4, 1, 0)])
def test_pieces_are_told_whether_there_may_be_others(kernels: Any, threads: int, limit: int, shared: int) -> None:
    out = np.full(20, -1, np.int64)
    kernels.entry(Runtime(threads), "in_pieces", max_threads=limit).launch([out.ctypes.data, 20, 8])
    assert out.tolist() == [0, 0, *[shared] * 18]


def test_a_launch_that_keeps_the_gil_stays_on_its_thread(kernels: Any) -> None:
    runtime = Runtime(4)
    out = np.full(40, -1, np.int64)
    slots = [out.ctypes.data, 40, 8]
    kernels.entry(runtime, "who_is_it", keep_gil_below=41).launch(slots, (), 40)
    assert runtime.statistics().threads_started == 0
    kernels.entry(runtime, "who_is_it", keep_gil_below=40).launch(slots, (), 40)
    assert runtime.statistics().threads_started == 3


def test_a_loop_inside_a_loop_runs(kernels: Any) -> None:
    assert (count_up(kernels.entry(Runtime(3), "count_up"), 200, nested=1) == 1).all()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_first_failing_piece_is_reported_whatever_the_threads(kernels: Any, threads: int) -> None:
    entry = kernels.entry(Runtime(threads), "count_up")
    for fail_from in (0, 1, 50, 97, 195):
        with pytest.raises(kernels.error) as caught:
            count_up(entry, 200, grain=4, work=100, fail_from=fail_from)
        first = (fail_from + 3) // 4 * 4
        assert caught.value.args[1:3] == (5, (first, first + 4, 0))
    assert (count_up(entry, 200, grain=4) == 1).all()


def test_a_grain_below_one_is_a_failure(kernels: Any) -> None:
    with pytest.raises(kernels.error) as caught:
        count_up(kernels.entry(Runtime(2), "count_up"), 10, grain=0)
    assert caught.value.args[1:3] == (-3, (0, 0, 0))


# ---- several callers, several runtimes ----


def test_many_python_threads_launch_at_once(kernels: Any) -> None:
    runtime = Runtime(3)
    entry = kernels.entry(runtime, "count_up")
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for i in range(40):
            n = 50 + seed * 37 + i
            try:
                if i % 5 == 4:
                    with pytest.raises(kernels.error) as caught:
                        count_up(entry, n, grain=3, work=50, fail_from=30)
                    assert caught.value.args[2][0] == 30
                else:
                    assert (count_up(entry, n, grain=3, work=50, nested=i % 2) == 1).all()
            except BaseException as error:
                wrong.append(error)
                return

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []
    assert runtime.statistics().threads_started == 2


def test_the_gil_is_released_while_a_kernel_runs(kernels: Any) -> None:
    out = np.zeros(1, np.int64)
    entry = kernels.entry(Runtime(1), "count_up")
    started, progress = threading.Event(), []

    def long_kernel() -> None:
        started.set()
        entry.launch([out.ctypes.data, 1, 8, 1, 400_000_000, -1, 0])

    thread = threading.Thread(target=long_kernel)
    thread.start()
    started.wait()
    while thread.is_alive():
        progress.append(1)
        time.sleep(0.001)
    thread.join()
    assert len(progress) > 3  # with the GIL held there would be one round at most
    assert out.tolist() == [1]


def test_many_runtimes_live_and_go_side_by_side(kernels: Any) -> None:
    runtimes = [Runtime(1 + i % 4) for i in range(20)]
    entries = [kernels.entry(r, "count_up") for r in runtimes]
    for entry in entries:
        assert (count_up(entry, 100) == 1).all()
    del runtimes
    while entries:
        entries.pop(len(entries) // 2)
        gc.collect(1)
        assert all((count_up(e, 60) == 1).all() for e in entries[:2])


# ---- rest ----


def test_idle_threads_sleep_and_use_no_processor(kernels: Any) -> None:
    runtime = Runtime(4)
    entry = kernels.entry(runtime, "count_up")
    assert (count_up(entry, 1000) == 1).all()
    assert wait_until(lambda: runtime.statistics().threads_parked == 3)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.1  # three spinning threads would use 1.5 s, or 0.5 s of one core
    assert (count_up(entry, 1000) == 1).all()


def test_shutdown_ends_the_threads_and_they_come_back(kernels: Any) -> None:
    runtime = Runtime(4)
    entry = kernels.entry(runtime, "count_up")
    for _ in range(3):
        assert (count_up(entry, 100) == 1).all()
        assert runtime.statistics().threads_started == 3
        runtime.shutdown()
        assert runtime.statistics().threads_started == 0


def native_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_a_runtime_takes_its_threads_with_it(kernels: Any) -> None:
    gc.collect()  # runtimes of other tests end their threads now, not while they are counted
    before = native_threads()
    entry = kernels.entry(Runtime(6), "count_up")
    count_up(entry, 100)
    # The system may list a thread for a moment after it was waited for: those of other tests, too.
    assert wait_until(lambda: native_threads() <= before + 5)
    with_it = native_threads()
    del entry
    gc.collect()
    assert wait_until(lambda: native_threads() <= with_it - 5)


def test_signals_reach_pythons_own_thread(kernels: Any) -> None:
    entry = kernels.entry(Runtime(4), "count_up")
    count_up(entry, 100)
    seen: list[int] = []
    old = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(threading.get_ident()))
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert wait_until(lambda: bool(seen))
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert seen == [threading.main_thread().ident]


# ---- print ----


def test_prints_come_from_every_thread_with_the_holder(kernels: Any) -> None:
    seen: list[Any] = []
    holder = object()
    runtime = Runtime(3, on_print=lambda *what: seen.append(what))
    entry = kernels.entry(runtime, "talkative", holder=holder)
    entry.launch([50])
    assert sorted(values for _, _, values in seen) == [(i, i + 1) for i in range(50)]
    assert all(h is holder and site == 3 for h, site, _ in seen)
    runtime.on_print = None
    entry.launch([50])
    assert len(seen) == 50


def test_a_print_handler_may_launch_a_kernel(kernels: Any) -> None:
    totals: list[int] = []
    runtime = Runtime(2)
    other = kernels.entry(runtime, "count_up")
    runtime.on_print = lambda holder, site, values: totals.append(int(count_up(other, 30).sum()))
    kernels.entry(runtime, "talkative").launch([10])
    assert totals == [30] * 10


def test_an_exception_in_a_print_handler_is_reported_not_lost(kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: reported.append(what.exc_type))
    runtime = Runtime(1, on_print=lambda *what: 1 / 0)
    kernels.entry(runtime, "talkative").launch([2])
    assert reported == [ZeroDivisionError] * 2


# ---- fork ----


def in_child(work: Callable[[], bool]) -> int:
    """The exit status of a forked child that runs `work`: 0 when it returned True."""
    child = os.fork()
    if child == 0:
        code = 3
        try:
            signal.alarm(30)
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_computes_with_threads_of_its_own(kernels: Any) -> None:
    runtime = Runtime(4)
    entry = kernels.entry(runtime, "count_up")
    filled = kernels.entry(runtime, "filled", ("tensor", 3, 1))
    count_up(entry, 100)
    kept = filled.launch([1000, 1.0])

    def work() -> bool:
        nonlocal kept
        started = runtime.statistics().threads_started
        right = (count_up(entry, 500) == 1).all() and started == 0 and runtime.statistics().threads_started == 3
        kept = None
        grandchild = in_child(lambda: bool((count_up(entry, 100) == 1).all()))
        runtime.shutdown()
        return bool(right and filled.launch([10, 2.0]).sum() == 20.0 and grandchild == 0)

    for _ in range(5):
        assert in_child(work) == 0
    assert (count_up(entry, 500) == 1).all()
    assert kept.sum() == 1000.0


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_child_forked_while_other_threads_launch_works(kernels: Any) -> None:
    runtime = Runtime(3)
    entry = kernels.entry(runtime, "count_up")
    filled = kernels.entry(runtime, "filled", ("tensor", 3, 1))
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            count_up(entry, 50, work=100)
            filled.launch([500, 1.0])

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for t in threads:
        t.start()
    try:
        statuses = [
            in_child(lambda: bool((count_up(entry, 300) == 1).all() and filled.launch([10, 2.0]).sum() == 20.0))
            for _ in range(10)
        ]
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert statuses == [0] * 10


def test_the_interpreter_ends_cleanly_with_kernels_in_use(kernels: Any) -> None:
    program = textwrap.dedent(
        f"""
        import ctypes, threading
        import numpy as np
        from pto_jit.runtime import Dispatcher, Entry, default_runtime, symbols
        lib = ctypes.CDLL({kernels.library._name!r})
        for name, at in symbols().items():
            lib.import_symbol(name.encode(), ctypes.c_void_p(at))
        address = lambda name: ctypes.cast(getattr(lib, name), ctypes.c_void_p).value
        runtime = default_runtime(4)
        out = np.zeros(100, np.int64)
        entry = Entry(runtime, address("count_up"), None, holder=None, on_failure=print)
        entry.launch([out.ctypes.data, 100, 8, 1, 0, -1, 0])
        kept = Entry(runtime, address("filled"), ("tensor", 3, 1), holder=None, on_failure=print).launch([10, 1.0])
        d = Dispatcher(("x",), print)
        d.register((d,), entry, ["static"])
        def run():
            while True:
                entry.launch([out.ctypes.data, 100, 8, 1, 1000, -1, 0])
        threading.Thread(target=run, daemon=True).start()
        print("done")
        """
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
