# SPDX-License-Identifier: MIT
"""The parent's side of a worker: started, asked, stopped while others are timed, ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

# A new process looks for modules in the current directory first, and a checkout has a `pto_jit` there that may be
# another version, or not built.
FIND_THIS_PACKAGE = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})"
_WORKER = f"{FIND_THIS_PACKAGE}; from pto_jit.bench.worker import main; del sys.path[0]; main()"


class WorkerFailure(Exception):
    """A worker that died, hung or answered with an exception; `fatal` when the process is gone."""

    def __init__(self, message: str, *, fatal: bool, kind: Literal["timeout", "died", "error"]) -> None:
        super().__init__(message)
        self.fatal = fatal
        self.kind: Literal["timeout", "died", "error"] = kind


class WorkerProcess:
    """One library's process.

    It stands still (`SIGSTOP`, its whole process group) except during a request: the idle threads of many libraries
    spin for a while after their work and would steal a core from whoever is timed next.
    """

    def __init__(self, environment: Mapping[str, str], processors: Sequence[int] | None = None) -> None:
        ours, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile(mode="w+b")  # noqa: SIM115 (closed with the worker)
        # The child inherits where this thread may run: libraries size their thread pools by it when imported.
        with theirs, _running_on(processors):
            self._process = subprocess.Popen(
                [sys.executable, "-c", _WORKER, str(theirs.fileno())],
                env=dict(environment),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                start_new_session=True,
            )
        self._connection = Connection(ours.detach())
        self._stopped = False

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def request(self, operation: str, *arguments: object, timeout: float) -> Any:
        """Ask, wait for the answer, leave the process stopped.

        Raises:
            WorkerFailure: the worker raised, died, or did not answer within `timeout` seconds (it is then killed).
        """
        self._resume()
        try:
            self._connection.send((operation, arguments))
            if not self._connection.poll(timeout):
                self.close()
                raise WorkerFailure(f"no answer within {timeout:g} s", fatal=True, kind="timeout")
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._death() from error
        self._stop()
        if answer[0] == "error":
            _, kind, message, trace = answer
            raise WorkerFailure(f"{kind}: {message}", fatal=False, kind="error") from RuntimeError(trace)
        return answer[1]

    def close(self) -> None:
        """End the process and everything it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._connection.close()
        if not self._errors.closed:
            self._errors.close()

    def _death(self) -> WorkerFailure:
        try:
            code = self._process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            code = None
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 2000))
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        self.close()
        how = "closed its connection" if code is None else _exit_text(code)
        return WorkerFailure(how + (f": {lines[-1]}" if lines else ""), fatal=True, kind="died")

    def _stop(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGSTOP)
            # The signal is asynchronous: wait until the kernel says so, leaving an exit for `close` to collect.
            if hasattr(os, "waitid"):
                os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        except (ProcessLookupError, ChildProcessError):
            return
        self._stopped = True

    def _resume(self) -> None:
        if self._stopped:
            try:
                os.killpg(self._process.pid, signal.SIGCONT)
            except ProcessLookupError:
                return
            self._stopped = False


@contextmanager
def _running_on(processors: Sequence[int] | None) -> Iterator[None]:
    if not processors or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _exit_text(code: int) -> str:
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exited with status {code}"
