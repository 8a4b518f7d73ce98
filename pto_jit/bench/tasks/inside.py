# SPDX-License-Identifier: MIT
"""What runs in the measured processes: called by name through `pto_jit.bench.worker`."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
import time
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

_MS = 1e3


@cache
def _stream(path: str) -> tuple[Any, int, int]:
    """Our driver with the runtime's functions given to it, and the addresses of `build` and `live`."""
    from pto_jit.runtime import symbols

    library = ctypes.CDLL(path)
    taken = [name for name, at in symbols().items() if library.import_symbol(name.encode(), ctypes.c_void_p(at))]
    if len(taken) != 4:
        raise RuntimeError(f"the driver took {taken}")
    library.build.argtypes = [ctypes.c_void_p, ctypes.c_long]
    addresses = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in ("build", "live")]
    return library, addresses[0], addresses[1]


@cache
def _runtime(threads: int) -> Any:
    from pto_jit.runtime import Runtime

    return Runtime(threads)


def _record(path: str, tiles: int, threads: int) -> Any:
    from pto_jit.runtime.graph import TaskGraph

    library, _, _ = _stream(path)
    return TaskGraph.record(lambda address: library.build(address, tiles), _runtime(threads))


def facts(path: str, tiles: int, edges_file: str) -> dict[str, Any]:
    """The measures of the graph; its edges go to a file, for runtimes that cannot find them."""
    graph = _record(path, tiles, 1)
    np.save(edges_file, np.array(graph.edges, np.int64).T.copy())
    return {
        "tasks": graph.num_tasks, "edges": graph.num_edges, "critical_path": graph.critical_path,
        "max_width": graph.max_width, "bytes": graph.bytes_per_task * graph.num_tasks,
    }  # fmt: skip


def pto_once(path: str, tiles: int, threads: int) -> dict[str, float]:
    """Milliseconds: building a recorded graph, its first and second run, and building while running (live)."""
    graph = _record(path, tiles, threads)
    times = {"build": graph.build_seconds * _MS}
    for name in ("run", "rerun"):
        begin = time.perf_counter()
        graph.run(threads, trace=False)
        times[name] = (time.perf_counter() - begin) * _MS
    del graph
    times["live"] = _live(path, tiles, threads)
    return times


def _live(path: str, tiles: int, threads: int) -> float:
    from pto_jit.runtime import Entry

    entry = Entry(_runtime(threads), _stream(path)[2], None, holder=None, on_failure=_failed)
    begin = time.perf_counter()
    entry.launch([tiles, 0])
    return (time.perf_counter() - begin) * _MS


# -- the compiled layer -----------------------------------------------------------------------------------------------


@cache
def _layer(path: str) -> Any:
    """The module with the layer: an orchestration function and its in-core functions."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # annotations of its records are looked up there
    spec.loader.exec_module(module)
    return module


@lru_cache(maxsize=1)
def _weights(path: str, hidden: int, inner: int) -> Any:
    return _layer(path).make_weights(hidden, inner, np.random.default_rng(0))


@lru_cache(maxsize=1)
def _arguments(path: str, tiles: int, sizes: tuple[int, int, int]) -> tuple[Any, ...]:
    layer, (hidden, inner, heads) = _layer(path), sizes
    return layer.layer_arguments(layer.ROWS * tiles, _weights(path, hidden, inner), heads)


_NARROW = (32, 32, 1)  # hidden, inner, heads: what is not run needs no memory


def compiled_facts(path: str, tiles: int) -> dict[str, Any]:
    """The measures of the graph that the compiled layer records."""
    graph = _layer(path).decoder_layer.task_graph(*_arguments(path, tiles, _NARROW))
    return {"tasks": graph.num_tasks, "edges": graph.num_edges, "bytes": graph.bytes_per_task * graph.num_tasks}


def compiled_once(path: str, tiles: int) -> dict[str, float]:
    """Milliseconds of recording the graph of the compiled layer."""
    graph = _layer(path).decoder_layer.task_graph(*_arguments(path, tiles, _NARROW))
    return {"compiled": graph.build_seconds * _MS}


@cache
def _compiled(path: str, sizes: tuple[int, int, int]) -> None:
    """One compilation serves every length: it is made here, and the weights are read once."""
    _layer(path).decoder_layer(*_arguments(path, 1, sizes))


def layer_once(path: str, tiles: int, sizes: tuple[int, int, int]) -> dict[str, float]:
    """Milliseconds of the layer with these sizes (hidden, inner, heads): recording its graph, and a call."""
    _compiled(path, sizes)
    layer, arguments = _layer(path), _arguments(path, tiles, sizes)
    builds = [layer.decoder_layer.task_graph(*arguments).build_seconds for _ in range(3)]
    begin = time.perf_counter()
    layer.decoder_layer(*arguments)
    return {"build": sorted(builds)[1] * _MS, "run": (time.perf_counter() - begin) * _MS}


def _failed(*record: Any) -> None:
    raise RuntimeError(f"the stream failed: {record}")


@cache
def _peer(path: str) -> Any:
    library = ctypes.CDLL(path)
    pointer = ctypes.c_void_p
    library.once.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, pointer, pointer, pointer]
    return library.once


@cache
def _edges(path: str) -> np.ndarray:
    return np.load(path)


def peer_once(path: str, threads: int, tasks: int, edges_file: str | None) -> dict[str, float]:
    """Milliseconds of a peer: building (0 where it cannot be told apart), the first and the second run."""
    times = np.zeros(3)
    none = np.zeros((2, 0), np.int64)
    edges = _edges(edges_file) if edges_file else none
    source, target = np.ascontiguousarray(edges[0]), np.ascontiguousarray(edges[1])
    status = _peer(path)(threads, tasks, edges.shape[1], source.ctypes.data, target.ctypes.data, times.ctypes.data)
    if status != 0:
        raise RuntimeError(f"{Path(path).stem} ended with status {status}")
    return {"build": float(times[0]), "run": float(times[1]), "rerun": float(times[2])}
