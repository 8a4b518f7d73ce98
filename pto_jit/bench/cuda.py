# SPDX-License-Identifier: MIT
# pyright: reportMissingImports=false
"""`pto-bench cuda`: kernels on a GPU beside torch, what torch.compile makes of the same (Triton), and a copy.

Results are checked against the reference before they are timed.  Times are those of the device, between two events
around a batch of calls; the implementations of a row take turns, and a time is the median over the rounds.
"""

from __future__ import annotations

import ctypes
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from pto_jit import dtypes
from pto_jit.bench.catalog import WORKLOADS
from pto_jit.bench.checking import check, poison
from pto_jit.bench.record import check_writable, save
from pto_jit.bench.worker import resolve
from pto_jit.bench.workload import Size, Tolerance, dtype_named, size_text
from pto_jit.errors import LaunchError, TargetError, ToolchainError
from pto_jit.slotted import field, frozen, mutable
from pto_jit.targets.cuda import driver
from pto_jit.targets.cuda.tensors import DeviceTensor

Call = Callable[[], object]
_HALF = Tolerance(relative=4e-3, absolute=4e-3)
_BATCH = 20e-3  # seconds that a batch of calls takes at least


@frozen
class Row:
    """What is measured: a workload at a size, `half`: in f16 instead of f32; `aim`: a share of the time of a peer;
    `kernel`: one for devices, when the workload's has the shape of a CPU's caches; `fastmath`: as the peer has it."""

    workload: str
    size: Size
    half: bool = False
    aim: tuple[str, float] = ("copy", 0.9)
    kernel: str = ""
    fastmath: bool = False


def _attention(name: str, size: Size) -> Row:
    kernel = f"pto_jit.bench.kernels.attention:{name}_wide"
    return Row(name, size, half=True, aim=("torch", 0.7), kernel=kernel, fastmath=True)


ROWS: tuple[Row, ...] = (
    Row("vector_add", (1 << 26,)),
    *(Row(name, (16384, 4096)) for name in ("softmax", "rms_norm", "layer_norm", "gelu_tanh", "silu_mul", "bias_relu")),
    Row("matmul_bf16", (4096, 4096, 4096), aim=("torch", 0.6)),
    Row("matmul", (4096, 4096, 4096), aim=("torch", 0.6)),
    *(_attention(name, (64, 4096, 64)) for name in ("attention", "attention_causal")),
    *(_attention(name, (32, 4096, 128)) for name in ("attention", "attention_causal")),
)


@mutable
class Measured:
    """The outcome of a row: seconds of a call by name, or why there are none; notes on peers that are missing."""

    row: Row
    seconds: dict[str, float] = field(default_factory=dict)
    error: str = ""
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def share(self) -> float | None:
        """The time of the peer that the aim names over ours; None when it was not measured."""
        peer = self.seconds.get(self.row.aim[0])
        return peer / self.seconds["pto"] if peer and "pto" in self.seconds else None


def without_gpu() -> str | None:
    """Why nothing can be measured here; None if it can."""
    try:
        driver.device_of(())
    except (TargetError, LaunchError) as error:
        return str(error).splitlines()[0]
    return None


class Arena:
    """The arrays of a row in the memory of a device."""

    def __init__(self, device: Any, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        self.device = device
        self.arrays = arrays
        self.tensors = [self._given(a) for a in arrays]

    def _given(self, array: np.ndarray[Any, Any]) -> DeviceTensor:
        memory = self.device.allocate(array.nbytes, 0)
        self.device.write(memory.pointer, array.tobytes(), 0)
        dtype = next(d for d in dtypes.BY_ID.values() if d.numpy == array.dtype)
        return DeviceTensor(memory.pointer, array.shape, array.strides, dtype, memory)

    def back(self, k: int) -> np.ndarray[Any, Any]:
        """What array `k` holds now."""
        array = self.arrays[k]
        raw = self.device.read(self.tensors[k].pointer, array.nbytes, 0)
        return np.frombuffer(raw, array.dtype).reshape(array.shape)


class _Events:
    """Device time of batches of calls on the default stream."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.first, self.last = (self._event() for _ in range(2))

    def _event(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self.device.call("cuEventCreate", ctypes.byref(event), 0)
        return event

    def seconds(self, call: Call, count: int) -> float:
        self.device.call("cuEventRecord", self.first, None)
        for _ in range(count):
            call()
        self.device.call("cuEventRecord", self.last, None)
        self.device.call("cuEventSynchronize", self.last)
        milliseconds = ctypes.c_float()
        self.device.call("cuEventElapsedTime", ctypes.byref(milliseconds), self.first, self.last)
        return milliseconds.value / 1e3 / count

    def close(self) -> None:
        for event in (self.first, self.last):
            self.device.call("cuEventDestroy_v2", event)


def measure(row: Row, rounds: int, batch: float = _BATCH) -> Measured:
    """Check and time one row on the current device."""
    found = Measured(row)
    device = driver.device_of(())
    with device.active():
        try:
            _measure(row, rounds, batch, device, found)
        except (TargetError, LaunchError, ToolchainError) as error:
            found.error = str(error).splitlines()[0]
    return found


def _measure(row: Row, rounds: int, batch: float, device: Any, found: Measured) -> None:
    workload = WORKLOADS[row.workload]
    inputs = workload.make(row.size, np.random.default_rng(0))
    if row.half:
        inputs = {n: a.astype(np.float16) if a.dtype == np.float32 else a for n, a in inputs.items()}
    outputs = [np.empty(o.shape, np.float16 if row.half and o.dtype == "float32" else dtype_named(o.dtype))
               for o in workload.outputs(row.size).values()]  # fmt: skip
    for output in outputs:
        poison(output)
    wide = {n: a.astype(np.float32) if a.dtype == np.float16 else a for n, a in inputs.items()}
    expected = workload.reference(wide)
    arrays = [*inputs.values(), *outputs]
    arena = Arena(device, arrays)
    kernel = resolve(row.kernel or workload.kernels[""])
    compiled = kernel.compile(*arrays, target="cuda", fastmath=row.fastmath)
    host = compiled._kernel.built.program.host

    def ours() -> None:
        host.run(arena.tensors, device, 0)

    ours()
    got = [arena.back(k) for k in range(len(inputs), len(arrays))]
    failure = host.failures(device).take()
    verdict = check(got, expected, _HALF if row.half else workload.tolerance)
    if failure is not None or not verdict.passed:
        found.error = f"wrong: {verdict.message}" if failure is None else f"failure {failure.site} was recorded"
        return
    moved = sum(a.nbytes for a in arrays) // 2
    calls: dict[str, Call] = {"pto": ours, "copy": _copy(device, moved)}
    for name, make in _PEERS.items():
        try:
            calls[name] = make(row.workload, arena)
        except _Missing as missing:
            found.notes[name] = str(missing)
    found.seconds = _times(calls, rounds, batch, device)


def _times(calls: dict[str, Call], rounds: int, batch: float, device: Any) -> dict[str, float]:
    events = _Events(device)
    counts: dict[str, int] = {}
    for name, call in calls.items():
        call()  # compiles, and asks for memory
        counts[name] = max(1, min(1000, int(batch / max(events.seconds(call, 1), 1e-7))))
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            seconds[name].append(events.seconds(calls[name], counts[name]))
    events.close()
    return {name: statistics.median(of) for name, of in seconds.items()}


def _copy(device: Any, size: int) -> Call:
    """A copy within the device that reads and writes so many bytes each."""
    source, target = (device.allocate(size, 0) for _ in range(2))
    arguments = ctypes.c_uint64(target.pointer), ctypes.c_uint64(source.pointer), ctypes.c_size_t(size), None
    kept = (source, target)

    def call() -> tuple[Any, Any]:
        device.call("cuMemcpyDtoDAsync_v2", *arguments)
        return kept

    return call


# -- torch ------------------------------------------------------------------------------------------------------------


class _Missing(Exception):
    """A peer that cannot take part; the message says why."""


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise _Missing("torch is not installed") from None
    if not torch.cuda.is_available():
        raise _Missing("this torch has no CUDA")
    return torch


class _Shown:
    """Memory of the device as `__cuda_array_interface__`."""

    def __init__(self, tensor: DeviceTensor) -> None:
        typestr = "<i2" if tensor.dtype.name == "bf16" else tensor.dtype.numpy.str
        self.__cuda_array_interface__ = {"shape": tensor.shape, "typestr": typestr, "data": (tensor.pointer, False),
                                         "version": 3, "strides": tensor.strides}  # fmt: skip


def _tensors(torch: Any, arena: Arena) -> list[Any]:
    shown = [torch.as_tensor(_Shown(t), device="cuda") for t in arena.tensors]
    return [s.view(torch.bfloat16) if t.dtype.name == "bf16" else s
            for s, t in zip(shown, arena.tensors, strict=True)]  # fmt: skip


_IN_TORCH: dict[str, Callable[..., Any]] = {
    "vector_add": lambda F, x, y: x + y,
    "softmax": lambda F, x: F.softmax(x, 1),
    "rms_norm": lambda F, x, weight: F.rms_norm(x, weight.shape, weight, 1e-5),
    "layer_norm": lambda F, x, weight, bias: F.layer_norm(x, weight.shape, weight, bias, 1e-5),
    "gelu_tanh": lambda F, x: F.gelu(x, approximate="tanh"),
    "silu_mul": lambda F, x, y: F.silu(x) * y,
    "bias_relu": lambda F, x, bias: F.relu(x + bias),
    "matmul_bf16": lambda F, a, b: a @ b,
    "matmul": lambda F, a, b: a @ b,
    "attention": lambda F, q, k, v: F.scaled_dot_product_attention(q[None], k[None], v[None]),
    "attention_causal": lambda F, q, k, v: F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True),
}
"""The workloads with torch's functions; torch returns new tensors, in memory that it keeps for itself."""


def _eager(name: str, arena: Arena) -> Call:
    torch = _torch()
    inputs = _tensors(torch, arena)[:-1]
    function = _IN_TORCH[name]
    return lambda: function(torch.nn.functional, *inputs)


def _inductor(name: str, arena: Arena) -> Call:
    torch = _torch()
    inputs = _tensors(torch, arena)[:-1]
    function = _IN_TORCH[name]
    compiled = torch.compile(lambda *tensors: function(torch.nn.functional, *tensors))
    return lambda: compiled(*inputs)


_PEERS: dict[str, Callable[[str, Arena], Call]] = {"torch": _eager, "triton": _inductor}


# -- the command ------------------------------------------------------------------------------------------------------


def table(measured: Sequence[Measured]) -> Table:
    """Times, bandwidth or rate, and how they lie to the aims."""
    out = Table(box=None, pad_edge=False)
    for name in ("kernel", "size", "pto", "", "copy", "torch", "triton", "of aim's peer", "aim"):
        out.add_column(name, justify="left" if name in ("kernel", "size") else "right")
    for m in measured:
        name = f"{m.row.workload}{' f16' if m.row.half else ''}"
        if m.error:
            out.add_row(name, size_text(m.row.size), m.error)
            continue
        share, (peer, aim) = m.share, m.row.aim
        out.add_row(name, size_text(m.row.size), _micro(m.seconds.get("pto")), _rate(m),
                    *(_micro(m.seconds.get(p)) for p in ("copy", "torch", "triton")),
                    "-" if share is None else f"{share:.2f} of {peer}", f"{aim:.2f}")  # fmt: skip
    return out


def _micro(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:.1f} us"


def _rate(m: Measured) -> str:
    workload, seconds = WORKLOADS[m.row.workload], m.seconds["pto"]
    outputs = [np.empty(o.shape, np.uint8) for o in workload.outputs(m.row.size).values()]
    work = workload.work(m.row.size, outputs)
    if workload.unit == "GB/s":
        return f"{work.bytes_moved / (2 if m.row.half else 1) / seconds / 1e9:.0f} GB/s"
    return f"{work.flops / seconds / 1e12:.1f} TFLOP/s"


def run(out: Console, names: Sequence[str], rounds: int, file: Path | None, rows: Sequence[Row] = ROWS) -> int:
    """Measure the rows with these workloads (all without names); 1 when a result was wrong."""
    known = list(dict.fromkeys(r.workload for r in rows))
    if unknown := [n for n in names if n not in known]:
        raise ValueError(f"no row {', '.join(unknown)} for a GPU: there are {', '.join(known)}")
    why = without_gpu()
    if why is not None:
        out.print(f"nothing is measured: {why}", highlight=False)
        return 0
    if file is not None:
        check_writable(file)
    measured = [measure(row, rounds) for row in rows if not names or row.workload in names]
    out.print(table(measured))
    notes = {f"{peer}: {text}" for m in measured for peer, text in m.notes.items()}
    for text in sorted(notes):
        out.print(text, highlight=False)
    if file is not None:
        kept = [{"kernel": m.row.workload, "size": m.row.size, "half": m.row.half, "seconds": m.seconds,
                 "error": m.error} for m in measured]  # fmt: skip
        capability = driver.device_of(()).capability
        record = {"when": time.strftime("%Y-%m-%d"), "compute_capability": capability / 10, "rows": kept}
        save(file, json.dumps(record, indent=1) + "\n")
    return int(any(m.error for m in measured))
