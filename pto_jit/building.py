# SPDX-License-Identifier: MIT
"""The machine code of a specialisation: from the disk cache when it is there, else compiled."""

from __future__ import annotations

import gc
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from pto_jit.cache import build_id, disk_cache
from pto_jit.codegen.params import Param
from pto_jit.config import config, log
from pto_jit.options import Options
from pto_jit.results import decode, encode
from pto_jit.slotted import mutable
from pto_jit.targets import cpu

if TYPE_CHECKING:
    from pto_jit.compiler import Stages


making = threading.RLock()
"""One program is made at a time: compilation runs under the interpreter lock anyway, and LLVM's context is one."""
if hasattr(os, "register_at_fork"):  # no compilation is under way in a child, neither here nor inside LLVM
    os.register_at_fork(before=making.acquire, after_in_parent=making.release, after_in_child=making.release)


@mutable
class Built:
    """Machine code with what is needed to launch it and to explain its failures.

    results: the structure of what it returns; small_below: launches on fewer elements than this are short (0: not
    known); origin: "compiled" or "disk"; stages: None when it came from disk.
    """

    program: cpu.CpuProgram
    results: Any
    small_below: int
    origin: str
    seconds: float
    stages: Stages | None
    recorder: Any = None  # `recording.Recorder`, when its task graph was asked for


def build(fn: Callable[..., Any], params: Sequence[Param], key: str | None, options: Options) -> Built:
    """The loaded program of `fn` for `params`; `key` identifies the function's content and the arguments' kinds."""

    def make(store: Any) -> tuple[Stages, cpu.CpuProgram, int]:
        from pto_jit.compiler import compile_kernel  # the whole compiler: imported by the first kernel that needs it

        return compile_kernel(fn, params, options, store)

    return found_or_made(make, key, options)


def found_or_made(
    make: Callable[[Any], tuple[Stages, cpu.CpuProgram, int]], key: str | None, options: Options
) -> Built:
    """The program of this key from the disk cache, or what `make` gives for the cache (None when it is off).

    `key` covers all that the program is made from but the options and this compiler; None: it means something in this
    process only, so nothing is kept on disk.
    """
    start = time.perf_counter()
    store = disk_cache() if options.cache else None
    fresh = config.debug_info or config.dump_dir is not None  # with the lines as they are now; with every stage
    digest = _digest(key, options) if store is not None and key is not None and not fresh else None
    if store is not None and digest is not None:
        found = _load(store, digest)
        if found is not None:
            program, structure, small_below = found
            return Built(program, structure, small_below, "disk", time.perf_counter() - start, None)
    with collector_paused():
        stages, program, small_below = make(store)
    structure = encode(stages.results)
    if store is not None and digest is not None and structure is not None and not stages.speaks:
        store.store(digest, [structure, small_below, program.metadata()], program.object_bytes)
    return Built(program, stages.results, small_below, "compiled", time.perf_counter() - start, stages)


@contextmanager
def collector_paused() -> Iterator[None]:
    """No cyclic garbage collection inside: a compilation makes many objects that live, and few cycles that die."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            _grow_old()
            gc.enable()


_FEW = 1000  # objects: Python 3.12 keeps some hundreds of its own frozen


@cache
def _grow_old() -> None:
    """Once in a process: take all objects for old ones.  Most that the first compilation makes are modules, functions
    and classes, and the collector would look at all of them as soon as it goes on: for a tenth of that compilation."""
    if gc.get_freeze_count() < _FEW:  # else somebody keeps objects frozen
        gc.freeze()
        gc.unfreeze()


def _digest(key: str, options: Options) -> str:
    debug = options.debug or config.debug
    return hashlib.sha256(f"{build_id()}|{cpu.host_id()}|{debug}|{options.fastmath}|{key}".encode()).hexdigest()


def _load(store: Any, digest: str) -> tuple[cpu.CpuProgram, Any, int] | None:
    found = store.load(digest)
    if found is None:
        return None
    metadata, code = found
    try:
        structure, small_below, program = metadata
        return cpu.CpuProgram.load(program, code, store), decode(structure), small_below
    except (LookupError, TypeError, ValueError) as error:
        # The checksum was right, so this is an entry of another format: as good as none.
        log("cache", "entry %s cannot be used (%r); compiling again", digest[:12], error)
        return None
