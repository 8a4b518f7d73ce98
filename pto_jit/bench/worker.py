# SPDX-License-Identifier: MIT
"""The process in which one library runs: it answers requests on a socket until that closes.

A request is `(operation, arguments)`, an answer `("ok", value)` or `("error", kind, message, traceback)`; both are
pickled by `multiprocessing.connection`.  What a library prints goes to standard error, which the parent keeps.
Operations: see the `operation_*` methods of `Worker`.
"""

from __future__ import annotations

import gc
import importlib
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from itertools import repeat
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pto_jit.bench.checking import Check, check, poison
from pto_jit.bench.exchange import read_arrays, read_outputs
from pto_jit.bench.implementation import Case, Implementation, Table, Unsupported
from pto_jit.bench.workload import Size, Workload

# A timed batch starts after at least this long of the same work: caches, clocks and thread pools are then warm.
_WARM_NS = 3_000_000


def resolve(path: str) -> Any:
    """The object that `module:name` stands for."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def time_calls(call: Callable[[], object], calls: int) -> int:
    """Nanoseconds that `calls` calls take, one after the other, without garbage collection in between."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        start = time.perf_counter_ns()
        for _ in repeat(None, calls):
            call()
        return time.perf_counter_ns() - start
    finally:
        if was_enabled:
            gc.enable()


def calibrate(call: Callable[[], object], batch_ns: int) -> int:
    """How many calls take at least `batch_ns`: doubled until a batch is long enough, at least one."""
    calls = 1
    while True:
        elapsed = time_calls(call, calls)
        if elapsed >= batch_ns:
            return calls
        # Aim a little beyond, never more than tenfold on the word of one short batch.
        wanted = calls * 1.2 * batch_ns / max(elapsed, 1)
        calls = max(calls + 1, min(int(wanted) + 1, calls * 10))


class Worker:
    """The state between requests: the library's table and the implementations built so far."""

    def __init__(self) -> None:
        self._table = Table()
        self._case: tuple[str, Case] | None = None
        self._built: dict[int, tuple[Case, Implementation, str]] = {}
        self._next = 0

    def operation_call(self, path: str, arguments: tuple[Any, ...]) -> Any:
        """Call `module:function` and answer with what it returns."""
        return resolve(path)(*arguments)

    def operation_load(self, peer_module: str) -> dict[str, Any]:
        """Import a library's table: `{import_seconds, implementations: [(workload, variant)]}`."""
        start = time.perf_counter()
        module = importlib.import_module(peer_module)
        self._table = module.TABLE
        describe: Callable[[], str] | None = getattr(module, "describe", None)
        return {
            "import_seconds": time.perf_counter() - start,
            "implementations": self._table.keys(),
            "note": describe() if describe else "",
        }

    def operation_build(
        self, catalog: str, name: str, size: Size, variant: str, threads: int, directory: str, batch_ns: int
    ) -> dict[str, Any]:
        """Prepare one variant of one case, run it once, check it and, when right, find the number of calls per batch.

        Answers `{status, message}` with the status `"unsupported"` or `"wrong"`, or, when it is `"ok"`, also
        `{handle, calls, output, note, first_seconds, worst}`.
        """
        if self._case is None or self._case[0] != directory:
            workload: Workload = resolve(catalog)[name]
            self._built.clear()
            inputs = read_arrays(Path(directory), "input")
            outputs = read_outputs(workload, tuple(size))
            self._case = (directory, Case(workload, tuple(size), threads, inputs, outputs))
        case = self._case[1]
        self._poison(case)
        start = time.perf_counter()
        try:
            built = self._table.build(case.workload.implemented_as, variant, case)
            returned = built.call()
        except Unsupported as reason:
            return {"status": "unsupported", "message": str(reason)}
        first_seconds = time.perf_counter() - start
        checked = self._check(case, built, returned, directory)
        if not checked.passed:
            return {"status": "wrong", "message": checked.message}
        calls = calibrate(built.call, batch_ns)
        self._next += 1
        self._built[self._next] = (case, built, directory)
        return {
            "status": "ok",
            "message": "",
            "handle": self._next,
            "calls": calls,
            "output": built.output,
            "note": built.note,
            "first_seconds": first_seconds,
            "worst": checked.worst,
        }

    def operation_time(self, handle: int, calls: int) -> int:
        """Nanoseconds of one batch, after a short warm-up of the same work."""
        call = self._built[handle][1].call
        begin = time.perf_counter_ns()
        while True:
            call()
            if time.perf_counter_ns() - begin >= _WARM_NS:
                break
        return time_calls(call, calls)

    def operation_verify(self, handle: int) -> str:
        """Check once more after the timing: the empty string, or what is wrong."""
        case, built, directory = self._built[handle]
        self._poison(case)
        return self._check(case, built, built.call(), directory).message

    def operation_drop(self) -> None:
        """Forget the case and its arrays."""
        self._built.clear()
        self._case = None
        gc.collect()

    @staticmethod
    def _poison(case: Case) -> None:
        for array in case.outputs.values():
            poison(array)

    @staticmethod
    def _check(case: Case, built: Implementation, returned: object, directory: str) -> Check:
        got: Sequence[Any] = built.collect(returned) if built.collect else list(case.outputs.values())
        return check(got, list(read_arrays(Path(directory), "expected").values()), case.workload.tolerance)


def serve(connection: Connection) -> None:
    """Answer requests until the other side closes."""
    worker = Worker()
    while True:
        try:
            operation, arguments = connection.recv()
        except EOFError:
            return
        try:
            answer = ("ok", getattr(worker, f"operation_{operation}")(*arguments))
        except Exception as error:  # the boundary of the process: whatever a library raises is data for the parent
            answer = ("error", type(error).__name__, str(error), traceback.format_exc())
        connection.send(answer)


def main() -> None:
    """Entry point; the argument of the program is the number of this side of the socket."""
    _die_with_parent()
    with Connection(int(sys.argv[1])) as connection:
        serve(connection)


def _die_with_parent() -> None:
    # A stopped process would outlive a killed parent for ever.
    if sys.platform == "linux":
        import ctypes
        import signal

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


if __name__ == "__main__":
    main()
