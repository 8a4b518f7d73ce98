# SPDX-License-Identifier: MIT
"""`Runtime`: the Python handle of a C runtime, and the one that a process uses by default."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from pto_jit.slotted import frozen

from . import _dispatch, _native

_lib, _ffi = _native.lib, _native.ffi

PrintHandler = Callable[[Any, int, tuple[int, ...]], object]


def _read_symbols() -> dict[str, int]:
    count = _ffi.new("int32_t *")
    table = _lib.pto_symbols(count)
    return {
        _ffi.string(table[i].name).decode("ascii"): int(_ffi.cast("uintptr_t", table[i].address))
        for i in range(count[0])
    }


_SYMBOLS = MappingProxyType(_read_symbols())
_PRINT_TO_PYTHON = _dispatch.connect(dict(_SYMBOLS), np.dtype(ml_dtypes.bfloat16))


def symbols() -> dict[str, int]:
    """The addresses of all functions of the C runtime by name, for the linker of generated code."""
    return dict(_SYMBOLS)


@frozen
class Statistics:
    """A snapshot of a runtime: worker threads (the callers' own not counted), buffers in use and kept for reuse."""

    threads_started: int
    threads_parked: int
    buffers_live: int
    bytes_live: int
    buffers_cached: int
    bytes_cached: int


class Runtime:
    """Worker threads, scratch memory and recycled buffers for compiled kernels.

    `num_threads` threads work on one launch, the calling one included (None: the CPUs this process may use); they are
    started by the first parallel loop, look for work for `spin_microseconds` when idle and then sleep.
    `cache_bytes` of freed buffers are kept for reuse (None: an eighth of physical memory, at most 4 GiB) and
    `scratch_bytes` of scratch memory per thread (None: 64 MiB).
    `on_print(holder, site, values)` gets what kernels print: the holder of the running `Entry`, the print's number and
    its values as 64-bit integers; it may be called from several threads.

    A Runtime lives as long as an `Entry` made for it; arrays returned by kernels may outlive both.
    """

    __slots__ = ("__weakref__", "_handle", "on_print")

    def __init__(
        self,
        num_threads: int | None = None,
        *,
        spin_microseconds: int = 50,
        cache_bytes: int | None = None,
        scratch_bytes: int | None = None,
        on_print: PrintHandler | None = None,
    ) -> None:
        options = _ffi.new("pto_options *")
        _lib.pto_options_default(options)
        chosen = {
            "num_threads": (num_threads, 1, 1024),
            "spin_microseconds": (spin_microseconds, 0, 1_000_000),
            "cache_bytes": (cache_bytes, 0, 2**62),
            "scratch_bytes": (scratch_bytes, 0, 2**62),
        }
        for name, (value, least, most) in chosen.items():
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise ValueError(f"{name} must be an int from {least} to {most}, not {value!r}")
            setattr(options, name, value)
        options.print = _ffi.cast("pto_print_fn", _PRINT_TO_PYTHON)
        options.print_context = _ffi.cast("void *", id(self))  # used while an Entry runs, which keeps self alive
        self.on_print = on_print
        out = _ffi.new("pto_runtime **")
        status = _lib.pto_runtime_create(options, out)
        if status != _lib.PTO_OK:
            raise MemoryError(_ffi.string(_lib.pto_status_text(status)).decode("ascii"))
        self._handle = _ffi.gc(out[0], _lib.pto_runtime_release)

    @property
    def address(self) -> int:
        """The `pto_runtime *` as a number."""
        return int(_ffi.cast("uintptr_t", self._handle))

    @property
    def num_threads(self) -> int:
        return _lib.pto_runtime_num_threads(self._handle)

    def statistics(self) -> Statistics:
        out = _ffi.new("pto_statistics *")
        _lib.pto_runtime_statistics(self._handle, out)
        return Statistics(
            out.threads_started,
            out.threads_parked,
            out.buffers_live,
            out.bytes_live,
            out.buffers_cached,
            out.bytes_cached,
        )

    def trim(self) -> None:
        """Give buffers kept for reuse, and the scratch memory of idle callers, back to the system."""
        _lib.pto_runtime_trim(self._handle)

    def shutdown(self) -> None:
        """End the worker threads; the next parallel loop starts them again."""
        _lib.pto_runtime_shutdown(self._handle)

    def __repr__(self) -> str:
        return f"Runtime(num_threads={self.num_threads})"


_runtimes: dict[int, Runtime] = {}


def default_runtime(num_threads: int | None = None) -> Runtime:
    """The runtime that kernels of this process share: one per number of threads, made when first asked for."""
    if num_threads is None:
        num_threads = _available_cpus()
    found = _runtimes.get(num_threads) if type(num_threads) is int else None
    # setdefault decides between two threads; a runtime that loses has started nothing yet
    return found if found is not None else _runtimes.setdefault(num_threads, Runtime(num_threads))


def _available_cpus() -> int:
    options = _ffi.new("pto_options *")
    _lib.pto_options_default(options)
    return options.num_threads
