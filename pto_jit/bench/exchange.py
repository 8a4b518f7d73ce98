# SPDX-License-Identifier: MIT
"""Inputs and references as files: made once, read by every process that takes part in a case."""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pto_jit.bench.workload import Arrays, Size, Workload, aligned_empty, dtype_named


def scratch_directory() -> Path:
    """A new directory for the arrays of one case, in memory where the system offers that."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and os.access(memory, os.W_OK) and _free_bytes(memory) > 2 << 30
    return Path(tempfile.mkdtemp(prefix="pto-bench-", dir=memory if usable else None))


def write_arrays(directory: Path, role: str, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Keep arrays under a role (`"input"`, `"expected"`), in order, with any dtype."""
    manifest: list[dict[str, Any]] = []
    for name, array in arrays.items():
        data = np.ascontiguousarray(array)
        data.reshape(-1).view(np.uint8).tofile(directory / f"{role}-{name}.bin")
        manifest.append({"name": name, "dtype": data.dtype.name, "shape": list(data.shape)})
    (directory / f"{role}.json").write_text(json.dumps(manifest))


def read_arrays(directory: Path, role: str) -> Arrays:
    """Fresh, cache-line aligned copies of what `write_arrays` kept."""
    arrays: Arrays = {}
    for entry in json.loads((directory / f"{role}.json").read_text()):
        array = aligned_empty(tuple(entry["shape"]), dtype_named(entry["dtype"]))
        with (directory / f"{role}-{entry['name']}.bin").open("rb") as file:
            file.readinto(array.reshape(-1).view(np.uint8).data)
        arrays[entry["name"]] = array
    return arrays


def read_outputs(workload: Workload, size: Size) -> Arrays:
    """Uninitialised arrays for the results of a case."""
    return {name: aligned_empty(one.shape, dtype_named(one.dtype)) for name, one in workload.outputs(size).items()}


def prepare(catalog: str, name: str, size: Size, seed: int, directory: str) -> dict[str, Any]:
    """Make the inputs of a case, compute its reference, keep both; answers with the fields of its `Work`.

    Runs in a process of its own, so that the parent loads no numeric library.
    """
    from pto_jit.bench.worker import resolve

    workload: Workload = resolve(catalog)[name]
    # Inputs depend on the seed, the workload and the size, not on what else is measured in the run.
    rng = np.random.default_rng([seed, zlib.crc32(name.encode()), *size])
    inputs = workload.make(size, rng)
    expected = workload.reference(inputs)
    write_arrays(Path(directory), "input", inputs)
    write_arrays(Path(directory), "expected", {str(index): array for index, array in enumerate(expected)})
    return asdict(workload.work(size, expected))


def _free_bytes(directory: Path) -> int:
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize
