# SPDX-License-Identifier: MIT
"""The machine as the operating system describes it, and who else is using it."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Variables that set thread counts, kernels or allocators of numeric libraries behind a benchmark's back.
_PRESET_PREFIXES = (
    "OPENBLAS_", "MKL_", "OMP_", "GOMP_", "KMP_", "BLIS_", "GOTO_", "NUMEXPR_", "VECLIB_", "NUMBA_", "XLA_", "JAX_",
    "TORCH_", "TORCHINDUCTOR_", "DNNL_", "ONEDNN_", "HL_", "MALLOC_", "GLIBC_TUNABLES", "NPY_", "PTO_",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache as one core sees it: its size and how many processors share it."""

    level: int
    size: int
    shared_by: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What a reader needs to know about where figures come from."""

    cpu: str
    architecture: str
    processors: int
    cores: int
    caches: tuple[Cache, ...]
    memory: int
    system: str
    python: str


def describe_machine() -> Machine:
    """This machine, restricted to the processors this process may use."""
    return Machine(
        cpu=_cpu_name(),
        architecture=platform.machine(),
        processors=len(allowed_processors()),
        cores=len(core_processors()),
        caches=_caches(),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
    )


def allowed_processors() -> list[int]:
    """The processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def core_processors() -> list[int]:
    """One processor of every core: the second thread of a core adds nothing to arithmetic limits."""
    seen: set[str] = set()
    chosen: list[int] = []
    for processor in allowed_processors():
        siblings = _read(Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")) or str(
            processor
        )
        if siblings not in seen:
            seen.add(siblings)
            chosen.append(processor)
    return chosen


def processors_for(threads: int) -> list[int]:
    """Where a run with so many threads is kept: distinct cores first, the last ones (interrupts favour the first)."""
    cores = core_processors()
    others = [processor for processor in allowed_processors() if processor not in cores]
    return (cores[::-1] + others)[:threads]


def without_presets(environment: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """An environment split into what libraries may see and the presets that were dropped."""
    dropped = {name: value for name, value in environment.items() if name.startswith(_PRESET_PREFIXES)}
    kept = {name: value for name, value in environment.items() if name not in dropped}
    return kept, dropped


class ForeignUse:
    """Processor time that others used on our processors, from `/proc/stat` less our own processes."""

    def __init__(self, own: Sequence[int]) -> None:
        self._own = list(own)
        self._start = self._sample()

    def cores(self) -> float | None:
        """Average number of cores used by others since the construction; None where the system does not tell."""
        now = self._sample()
        if now is None or self._start is None:
            return None
        elapsed = now[0] - self._start[0]
        if elapsed <= 0.0:
            return None
        busy, own = now[1] - self._start[1], now[2] - self._start[2]
        return max(0.0, busy - own) / elapsed

    def _sample(self) -> tuple[float, float, float] | None:
        ticks = os.sysconf("SC_CLK_TCK")
        try:
            lines = Path("/proc/stat").read_text().splitlines()
        except OSError:
            return None
        wanted = {f"cpu{processor}" for processor in allowed_processors()}
        busy = 0
        for line in lines:
            name, *fields = line.split()
            if name in wanted:
                user, nice, system, _idle, _wait, irq, softirq, steal = (int(field) for field in fields[:8])
                busy += user + nice + system + irq + softirq + steal
        own = sum(_process_ticks(pid) for pid in self._own)
        return time.perf_counter(), busy / ticks, own / ticks


def _process_ticks(pid: int) -> int:
    text = _read(Path(f"/proc/{pid}/stat"))
    if text is None:
        return 0
    # The command name may hold blanks and parentheses; the numbers follow the last one.
    fields = text.rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15])


def _cpu_name() -> str:
    for line in (_read(Path("/proc/cpuinfo")) or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor() or "unknown"


def _caches() -> tuple[Cache, ...]:
    found: list[Cache] = []
    first = core_processors()[0]
    for entry in sorted(Path(f"/sys/devices/system/cpu/cpu{first}/cache").glob("index*")):
        kind, size, level = (_read(entry / name) for name in ("type", "size", "level"))
        if kind in ("Data", "Unified") and size and level:
            shared = _read(entry / "shared_cpu_list") or str(first)
            found.append(Cache(int(level), _bytes(size), _list_length(shared)))
    return tuple(found)


def _bytes(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def _list_length(text: str) -> int:
    total = 0
    for part in text.split(","):
        low, _, high = part.partition("-")
        total += int(high or low) - int(low) + 1
    return total


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
