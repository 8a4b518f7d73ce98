# SPDX-License-Identifier: MIT
"""Object code in memory: what a launch needs of a compiled module, without the writer of such modules.

A kernel that comes from the disk cache imports nothing else of this target.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from pto_jit.dtypes import BY_NAME, DType
from pto_jit.errors import NOWHERE, InternalError, Loc
from pto_jit.slotted import field, frozen, mutable

# llvmlite's global context is not thread-safe; a signal handler or finalizer may compile while its thread does
LLVM_LOCK = threading.RLock()


@frozen
class Host:
    """The processor that code is written for."""

    cpu: str
    features: str
    width: int
    """Bytes of a vector register."""
    scalef: bool
    """Whether it has AVX-512's `vscalef`."""
    half: bool
    """Whether it converts f16."""
    triple: str
    layout: str
    """LLVM's name of the platform, and its data layout."""

    @property
    def past_caches(self) -> bool:
        """Whether large results are stored past the caches, with the fence of x86 behind them."""
        return self.triple.startswith("x86_64")


@frozen
class PrintSite:
    """A `print`: its format and, per value, how the 64-bit slots are read.

    A kind is a dtype's name for a scalar (one slot), or name and rank (`f32:2`) for a tile: its valid extents, then
    its elements in row-major order, one slot each.
    """

    fmt: str
    kinds: tuple[str, ...]
    loc: Loc = NOWHERE

    def text(self, values: Sequence[int]) -> str:
        """The format applied to what the slots hold."""
        out: list[Any] = []
        at = 0
        for kind in self.kinds:
            name, _, rank = kind.partition(":")
            dtype = BY_NAME[name]
            if not rank:
                number = _numbers(values[at : at + 1], dtype)[0]
                # a Python number, as the user wrote; a short float prints its own digits as one of NumPy only
                out.append(number if dtype.is_float and dtype.bits < 64 else number.item())
                at += 1
                continue
            shape = tuple(values[at : at + int(rank)])
            at += int(rank)
            size = math.prod(shape)
            out.append(_numbers(values[at : at + size], dtype).reshape(shape))
            at += size
        return self.fmt.format(*out)


def _numbers(slots: Sequence[int], dtype: DType) -> Any:
    """Slots as an array of their dtype."""
    raw = np.array([s - (1 << 64) if s >= 1 << 63 else s for s in slots], np.int64)
    if dtype.kind == "f":
        return raw.view(np.float64).astype(dtype.numpy)
    return raw.astype(dtype.numpy)


@frozen
class Tasks:
    """That calls become tasks: of the launch's own graph, or (`recorded`) of one given in the slot after the arguments.

    named: the in-core functions of the user; scopes without a name are the others.
    """

    named: frozenset[str]
    recorded: bool = False


@frozen
class TaskSite:
    """A call that becomes a task: its `pto_task_kind`, the function, and what there is to say about a task of it.

    scalars: (variable, dtype, where: "const", "frame" or "slot", the value or the place there); tensors: the caller's
    tensor of each access; loc: the call.
    """

    symbol: str
    function: str
    named: bool
    scalars: tuple[tuple[str, str, str, int | str], ...]
    tensors: tuple[str, ...]
    loc: Loc


@mutable
class CpuProgram:
    """A loaded module.

    `entry_address` is the address of `int32_t entry(pto_worker *, const int64_t *args, int64_t *results)`.  `sites`
    are the places that can fail, in the order of the numbers given to `pto_fail`: (name of the error class, message
    template over {0} {1} {2}, place).  `result_plan` says how the results are read: None, an item, or a tuple of
    items; an item is "int", "uint", "float", "bool" or ("tensor", dtype id, rank).  `written` are the tensor parameters
    (by their place among the tensors) that may be written.  `symbols` are the outside functions it calls.
    """

    entry_name: str
    entry_address: int
    sites: tuple[tuple[str, str, Loc], ...]
    print_sites: tuple[PrintSite, ...]
    result_plan: Any
    written: frozenset[int]
    symbols: tuple[str, ...]
    object_bytes: bytes
    llvm_ir: str = ""
    timings: dict[str, float] = field(default_factory=dict)
    task_sites: tuple[TaskSite, ...] = ()
    _engine: Any = None
    _assembly: str | None = None

    def assembly(self) -> str:
        """The machine code as text."""
        if self._assembly is None:
            from pto_jit.targets.cpu.machine_code import assembly
            from pto_jit.targets.cpu.optimising import optimised

            with LLVM_LOCK:
                machine = target_machine(2)
                self._assembly = assembly(optimised(self.llvm_ir, machine), machine)
        return self._assembly

    def task_site(self, kind: int) -> TaskSite | None:
        """The call whose `pto_task_kind` is at that address."""
        return next((s for s in self.task_sites if self._engine.get_global_value_address(s.symbol) == kind), None)

    def metadata(self) -> Any:
        """Everything but the object code, as a JSON value for `load`."""
        return {
            "entry": self.entry_name, "symbols": self.symbols, "written": sorted(self.written), "llvm": self.llvm_ir,
            "plan": self.result_plan, "sites": [(k, m, _pack_loc(loc)) for k, m, loc in self.sites],
            "prints": [(p.fmt, p.kinds, _pack_loc(p.loc)) for p in self.print_sites],
            "tasks": [(t.symbol, t.function, t.named, t.scalars, t.tensors, _pack_loc(t.loc)) for t in self.task_sites],
        }  # fmt: skip

    @staticmethod
    def load(metadata: Any, code: bytes, object_cache: Any = None) -> CpuProgram:
        """A program from what an earlier one's `metadata()` and `object_bytes` gave.

        The matrix products it calls come from `object_cache` (see `compile_module`).
        """
        program = load_object(
            code, entry=metadata["entry"], used=metadata["symbols"], written=frozenset(metadata["written"]),
            result_plan=_frozen_plan(metadata["plan"]),
            sites=[(k, m, _unpack_loc(loc)) for k, m, loc in metadata["sites"]],
            print_sites=[PrintSite(f, tuple(k), _unpack_loc(loc)) for f, k, loc in metadata["prints"]],
            object_cache=object_cache,
        )  # fmt: skip
        program.task_sites = tuple(
            TaskSite(symbol, function, named, _frozen_plan(scalars), tuple(tensors), _unpack_loc(loc))
            for symbol, function, named, scalars, tensors, loc in metadata["tasks"]
        )
        program.llvm_ir = metadata["llvm"]
        return program

    def format_print(self, site: int, values: Sequence[int]) -> str:
        """The text of a `print`: its format applied to values that arrive as 64-bit slots."""
        return self.print_sites[site].text(values)


def _pack_loc(loc: Loc) -> Any:
    caller = _pack_loc(loc.caller) if loc.caller else None
    return [loc.filename, loc.lineno, loc.col_offset, loc.end_lineno, loc.end_col_offset, caller]


def _unpack_loc(data: Any) -> Loc:
    *rest, caller = data
    return Loc(*rest, caller=_unpack_loc(caller) if caller else None)


def _frozen_plan(plan: Any) -> Any:
    """JSON turns tuples into lists."""
    return tuple(_frozen_plan(p) for p in plan) if isinstance(plan, list) else plan


@cache
def host() -> Host:
    """The processor this runs on."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    wide = all(features.get(f"avx512{part}") for part in ("f", "bw", "dq", "vl"))  # what the writers take for granted
    width = 64 if wide else 32 if features.get("avx") else 16
    name, text, triple = llvm.get_host_cpu_name(), features.flatten(), llvm.get_process_triple()
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=name, features=text)
    half = bool(features.get("f16c")) or not triple.startswith(("x86", "i386", "i686"))
    return Host(name, text, width, wide, half, triple, str(machine.target_data))


@cache
def host_id() -> str:
    """Identity of the processor and of LLVM: object code is good where this is equal."""
    here = host()
    return f"{here.triple}|{here.cpu}|{here.features}|{'.'.join(map(str, llvm.llvm_version_info))}"


@cache
def target_machine(level: int) -> llvm.TargetMachine:
    here = host()
    features = here.features + (",-prefer-256-bit" if here.width == 64 else "")
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=here.cpu, features=features, opt=level, reloc="static", codemodel="jitdefault", jit=True
    )


# -- code --------------------------------------------------------------------------------------------------------------


def _symbols(used: Sequence[str], given: Mapping[str, int] | None, object_cache: Any) -> dict[str, int]:
    """Addresses of the outside functions: the run-time library's, and the matrix products that are compiled apart."""
    addresses: dict[str, int]
    if given is None:
        from pto_jit.runtime import symbols

        addresses = dict(symbols())
    else:
        addresses = dict(given)
    for name in used:
        if name not in addresses and name.startswith("pto_mm_"):
            from pto_jit.targets.cpu.products import product_address, use_cache  # the writers; few kernels need them

            if object_cache is not None:
                use_cache(object_cache)
            addresses[name] = product_address(name, addresses)
    return addresses


def load_object(
    data: bytes, *, entry: str, sites: Sequence[tuple[str, str, Loc]], print_sites: Sequence[PrintSite],
    result_plan: Any, written: frozenset[int], used: Sequence[str], symbols: Mapping[str, int] | None = None,
    object_cache: Any = None,
) -> CpuProgram:  # fmt: skip
    """Load object code that `compile_module` made (on this kind of processor)."""
    host()
    addresses = _symbols(used, symbols, object_cache)
    with LLVM_LOCK:
        for s in used:
            if s not in addresses:
                raise InternalError(f"no address for the function {s}")
            llvm.add_symbol(s, addresses[s])
        empty = llvm.parse_assembly("")
        engine = llvm.create_mcjit_compiler(empty, _machine_for_engine())
        engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        engine.finalize_object()
        address = engine.get_function_address(entry)
    if not address:
        raise InternalError(f"the object code has no function {entry}")
    return CpuProgram(entry, address, tuple(sites), tuple(print_sites), result_plan, written, tuple(used), data,
                      _engine=engine)  # fmt: skip


def _machine_for_engine() -> llvm.TargetMachine:
    """An engine takes its target machine for itself, so each gets its own."""
    return llvm.Target.from_default_triple().create_target_machine(jit=True, reloc="static", codemodel="jitdefault")
