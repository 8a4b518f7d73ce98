# SPDX-License-Identifier: MIT
"""What a new process pays until its first result: imports, compilation, and what a disk cache saves of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pto_jit.bench.engine import Contestant, Engine
from pto_jit.bench.exchange import scratch_directory
from pto_jit.bench.peers import Peer
from pto_jit.bench.process import FIND_THIS_PACKAGE, WorkerFailure
from pto_jit.bench.record import FirstCall
from pto_jit.bench.summary import median
from pto_jit.bench.workload import Size, Workload

_IMPORT = "import time; s = time.perf_counter(); import {}; print(time.perf_counter() - s)"


class FirstCallError(Exception):
    """A first call whose result is wrong or that the library cannot do."""


def measure_first_calls(
    engine: Engine,
    workload: Workload,
    size: Size,
    peers: list[Peer],
    repeats: int,
    timeout: float,
    step: Callable[[str], None],
) -> list[FirstCall]:
    """For every library: `repeats` times a process with an empty cache and one after it that finds that cache."""
    directory = scratch_directory()
    try:
        engine.prepare(workload, size, directory)
        found: list[FirstCall] = []
        for peer in peers:
            step(f"{workload.name}: {peer.name}")
            reason = peer.missing()
            if reason:
                found.append(FirstCall(peer.name, "missing", reason))
                continue
            try:
                found.append(_measure(engine, workload, size, peer, directory, repeats, timeout))
            except WorkerFailure as failure:
                found.append(FirstCall(peer.name, failure.kind, str(failure)))
            except FirstCallError as failure:
                found.append(FirstCall(peer.name, "error", str(failure)))
        return found
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _measure(
    engine: Engine, workload: Workload, size: Size, peer: Peer, directory: Path, repeats: int, timeout: float
) -> FirstCall:
    cold: list[tuple[float, float]] = []
    warm: list[tuple[float, float]] = []
    for _ in range(repeats):
        caches = tempfile.mkdtemp(prefix="pto-bench-cache-")
        try:
            cold.append(_process(engine, workload, size, peer, directory, caches, timeout))
            warm.append(_process(engine, workload, size, peer, directory, caches, timeout))
        finally:
            shutil.rmtree(caches, ignore_errors=True)
    return FirstCall(
        peer=peer.name,
        status="ok",
        import_seconds=median([_import_seconds(engine, peer) for _ in range(repeats)]),
        cold_first=median([first for first, _ in cold]),
        cold_total=median([total for _, total in cold]),
        warm_first=median([first for first, _ in warm]),
        warm_total=median([total for _, total in warm]),
        repeats=repeats,
    )


def _process(
    engine: Engine, workload: Workload, size: Size, peer: Peer, directory: Path, caches: str, timeout: float
) -> tuple[float, float]:
    contestant = Contestant(peer, "", 1)
    start = time.perf_counter()
    with engine.start(contestant, _cache_environment(caches)) as worker:
        worker.request("load", peer.module, timeout=timeout)
        arguments = engine.build_arguments(workload, size, contestant, directory, batch_seconds=0.0)
        built = worker.request("build", *arguments, timeout=timeout)
        total = time.perf_counter() - start
    if built["status"] != "ok":
        raise FirstCallError(built["message"])
    return built["first_seconds"], total


def _cache_environment(directory: str) -> dict[str, str]:
    return {
        "PTO_CACHE_DIR": f"{directory}/pto",
        "NUMBA_CACHE_DIR": f"{directory}/numba",
        "TORCHINDUCTOR_CACHE_DIR": f"{directory}/inductor",
        "TRITON_CACHE_DIR": f"{directory}/triton",
        "JAX_COMPILATION_CACHE_DIR": f"{directory}/jax",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def _import_seconds(engine: Engine, peer: Peer) -> float:
    module = "pto_jit" if peer.name == "pto" else peer.requires[0]
    command = [sys.executable, "-c", f"{FIND_THIS_PACKAGE}; {_IMPORT.format(module)}"]
    done = subprocess.run(command, env=engine.environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FirstCallError(done.stderr.strip().splitlines()[-1] if done.stderr else "the import failed")
    return float(done.stdout.split()[-1])
