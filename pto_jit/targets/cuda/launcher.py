# SPDX-License-Identifier: MIT
"""The host side of a CUDA program as C over the driver API, for programs without Python.

The statements are written by the c target's writer; calls become launches.  What a launch in this process chooses from
the extents that it meets is chosen here once, for extents up to a bound, as the sources will be compiled once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pto_jit.dtypes import DType, i64
from pto_jit.errors import BoundsError, LaunchError
from pto_jit.ir.nodes import Call, Const, For, Func, Module, Op, Operand, Var
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.ir.walk import def_counts, statements
from pto_jit.lower.names import source_name
from pto_jit.slotted import frozen
from pto_jit.targets.c.function import CFunctionWriter
from pto_jit.targets.c.header import c_string
from pto_jit.targets.c.module import CModule
from pto_jit.targets.c.native import headers as c_headers
from pto_jit.targets.c.program import file_text, write_with
from pto_jit.targets.c.tidy import wrapped
from pto_jit.targets.c.values import CSlot, CValue, lift, memory_ctype, register_ctype
from pto_jit.targets.cpu.constants import I64, storage_type
from pto_jit.targets.cpu.tensors import new_extents
from pto_jit.targets.cpu.values import Tensor
from pto_jit.targets.cuda.flatten import unsupported
from pto_jit.targets.cuda.host import HostProgram
from pto_jit.targets.cuda.kernels import Kernel
from pto_jit.targets.cuda.privatised import elements_of
from pto_jit.targets.cuda.regions import apart_in
from pto_jit.targets.cuda.spreads import LARGEST, SMALLEST, Spread, check_shared, covering, covers, fit
from pto_jit.targets.source.identifiers import Identifiers, stem_of
from pto_jit.targets.source.rooms import with_rooms
from pto_jit.targets.source.text import file_name, text_of

HOST_HEADER = Path(__file__).parent / "host_include" / "pto_cuda_host.h"
BOUND = 1024
"""What extents known when the program runs are at most, in a written program; less where tiles are too large."""


@frozen
class Version:
    """A kernel as it is compiled once: its macros, its block, and the bytes of shared memory that it takes."""

    kernel: Kernel
    spread: Spread
    shared: int

    def define(self, name: str) -> int:
        return dict(self.spread.defines)[name]


def versions_of(entry: Func, kernels: Sequence[Kernel]) -> dict[str, Version]:
    """How each kernel is compiled that host code launches, by name."""
    known = _bounds(entry, kernels)
    return {k.name: _version_of(k, known[k.name]) for k in kernels}


def _version_of(kernel: Kernel, known: Mapping[str, int]) -> Version:
    """A version for extents of at most what is known of them, and else for the largest bound up to `BOUND`, for which
    the tiles fit a block of any device, or else of some."""
    for most in (known, {}) if known else ({},):
        for limit in (SMALLEST, LARGEST):
            with suppress(LaunchError):
                return _version(kernel, limit, most)
    return _version(kernel, LARGEST, {})


def _version(kernel: Kernel, limit: int, known: Mapping[str, int]) -> Version:
    bound = BOUND
    while True:

        def most(extent: Operand, bound: int = bound) -> int:
            return int(extent.value) if isinstance(extent, Const) else known.get(extent.name, bound)

        extents = {macro: most(extent) for macro, extent in kernel.capacities}
        shapes = [tuple(map(most, shape)) for shape in kernel.shapes]
        try:
            elements = tuple(elements_of(p.param.type.shape) for p in kernel.privatised)  # type: ignore[union-attr]
            trips = [_trip(loop) for loop in kernel.chain]
            spread, shared = fit(kernel, extents, shapes, trips, limit, elements=elements)
            check_shared(kernel, shared, limit)
            return Version(kernel, covering(spread) if covers(kernel, trips, spread) else spread, shared)
        except LaunchError:
            if bound <= 16 or not kernel.capacities:
                raise
            bound //= 2


def _trip(loop: For) -> int:
    """How often a loop runs; more than any grid has blocks where that is only known when the program runs."""
    bounds = [int(o.value) for o in (loop.start, loop.stop, loop.step) if isinstance(o, Const)]
    return len(range(*bounds)) if len(bounds) == 3 else 2**62


class HostWriter(CFunctionWriter):
    """Writes host code: tensors are memory of the device, calls are launches."""

    def __init__(
        self, module: CModule, func: Func, name: str, names: Identifiers, versions: dict[str, Version],
        in_passes: Mapping[str, str],
    ) -> None:  # fmt: skip
        super().__init__(module, func, name, names, parallel=True)
        self.versions = versions
        self.in_passes = in_passes
        self.numbers = {n: k for k, n in enumerate(versions)}
        self.apart_tensors = apart_in(func)

    # -- launches -------------------------------------------------------------------------------------------------

    def _call(self, stmt: Call) -> None:
        self.code.need_status()
        self._launch(self.versions[stmt.callee], stmt)

    def _launch(self, version: Version, stmt: Call, head: str = "") -> None:
        """A launch of a kernel with the arguments of a call; where it has no room for them, of that in passes."""
        kernel, code = version.kernel, self.code
        with code.braces(head):
            saved, self.env = self.env, self._arguments(kernel, stmt)
            mutable, self.mutable = self.mutable, set()
            given = self._given(kernel)
            self._check_overlaps(kernel, stmt)
            trips = self._trips(kernel)
            other = self.in_passes.get(kernel.name)
            if other is None:
                self._check_capacities(version)
                self._enqueue(version, given, trips)
            else:
                room = code.all_of([code.compare("<=", self.index(e), version.define(m)) for m, e in kernel.capacities])
                with code.braces(f"if ({lift(room).text})"):
                    self._enqueue(version, given, trips)
            self.env, self.mutable = saved, mutable
            if other is not None:
                self._launch(self.versions[other], stmt, "else")

    def _enqueue(self, version: Version, given: Sequence[str], trips: Sequence[str]) -> None:
        kernel, code = version.kernel, self.code
        grid = ["1", "1", "1"]
        for axis, trip in zip(range(3), reversed(trips), strict=False):
            per = version.spread.teams if axis == 0 else 1
            if kernel.kind == "elements":
                per = version.spread.block[axis]
            grid[axis] = trip if per == 1 else f"({trip} + {per - 1}) / {per}"
        grid = self._grid(version, grid)
        some = f"{trips[0]} > 0" if trips else ""  # loops inside may be empty in the first iteration alone
        block = ", ".join(map(str, version.spread.block))
        call = (f"pto_cuda_launch(worker, {self.numbers[kernel.name]}, (const int64_t[]){{{', '.join(grid)}}}, "
                f"(const unsigned[]){{{block}}}, {version.shared}, (void *[]){{{', '.join(given)}}})")  # fmt: skip
        text = f"if ((status = {call}) != PTO_OK) return status;"
        if some:
            with code.braces(f"if ({some})"):
                code.line(text)
        else:
            code.line(text)

    def _grid(self, version: Version, blocks: list[str]) -> list[str]:
        """The grid of a launch that would have so many blocks along its axes."""
        most = version.spread.most_blocks
        if not most:
            return blocks
        left, out = str(most), []
        for axis, count in zip("xyz", blocks, strict=True):
            if count == "1":
                out.append(count)
                continue
            some = self.code.names.fresh(f"blocks_{axis}")
            self.code.line(f"const int64_t {some} = {count} < 1 ? 1 : {count} < {left} ? {count} : {left};")
            out.append(some)
            left = f"({left} / {some})"
        return out

    def _arguments(self, kernel: Kernel, stmt: Call) -> Any:
        env = type(self.env)(self.code)
        for formal, actual in zip(kernel.func.params, stmt.args, strict=True):
            value = self.tensor(actual) if isinstance(formal.type, TensorType) else self._scalar_of(actual)
            dict.__setitem__(env, formal.name, value)
        return env

    def _scalar_of(self, operand: Operand) -> Any:
        return self.index(operand) if operand.type.dtype.name == "i64" else self.scalar(operand)

    def _given(self, kernel: Kernel) -> list[str]:
        """Pointers to the kernel's arguments, which become variables."""
        code, out = self.code, []
        for p in kernel.func.params:
            value = self.env[p.name]
            if isinstance(p.type, TensorType):
                words = [f"(int64_t)(uintptr_t){lift(value.pointer).at(15)}", *(lift(e).text for e in value.extents),
                         *(lift(self.in_elements(s, p.type.dtype)).text for s in value.strides)]  # fmt: skip
                name = code.names.fresh(f"{p.name}_words")
                code.line(f"int64_t {name}[] = {{{', '.join(words)}}};")
                out.append(name)
                continue
            ctype = register_ctype(p.type.dtype)
            name = code.names.fresh(f"{p.name}_word")
            code.line(f"{ctype} {name} = {lift(value).text};")
            out.append(f"&{name}")
        return [*out, "&worker->record_address"]

    def _trips(self, kernel: Kernel) -> list[str]:
        """How often each loop of the grid runs when those around it are at their start; the scalars there."""
        trips: list[str] = []
        for stmt in kernel.first_iteration:
            if isinstance(stmt, Op):
                self.statement(stmt)
                continue
            start, stop, step = (self.index(o) for o in (stmt.start, stmt.stop, stmt.step))
            count = CValue(I64, f"pto_trip_count({', '.join(lift(x).text for x in (start, stop, step))})")
            trips.append(self.code.named(count, f"{stmt.var.name}_trips", keep=True).text)
            self.env[stmt.var.name] = start
        return trips

    def _check_capacities(self, version: Version) -> None:
        """Extents that are known now are at most what the kernel is compiled for."""
        kernel = version.kernel
        for macro, extent in kernel.capacities:
            if isinstance(extent, Var) and extent.name not in self.env:
                computed = source_name(extent.name)
                raise unsupported(f"a tile whose extent `{computed}` is computed from tiles or elements",
                                  kernel.func.loc, "give the tile a constant extent")  # fmt: skip
            message = (f"PTO-X130: {kernel.name}: a tile has {{0}} elements along an axis, this program was written "
                       "for at most {1}; give the extent as a number when it is written")  # fmt: skip
            site = self.module.site(LaunchError, message, kernel.func.loc)
            value, bound = self.index(extent), version.define(macro)
            self.code.check(self.code.compare("<=", value, bound), site, value, bound)

    def _check_overlaps(self, kernel: Kernel, stmt: Call) -> None:
        from pto_jit.targets.c.regions import region_text

        given = dict(zip((p.name for p in kernel.func.params), stmt.args, strict=True))
        for overlap in kernel.overlaps:
            if self.apart_tensors(given[overlap.read], given[overlap.written]):
                continue
            parts = [self.env.get(n) for n in (overlap.read, overlap.written)]
            if not all(isinstance(t, Tensor) for t in parts):
                continue
            texts = [region_text(t.pointer, t.dtype.bytes, t.extents, t.strides) for t in parts if t is not None]
            function = "pto_clash" if overlap.same and len({len(t.extents) for t in parts if t}) == 1 else "pto_overlap"
            message = (f"PTO-X131: {kernel.name}: `{overlap.read}` and `{overlap.written}` share memory, and "
                       f"`{overlap.written}` is written; pass tensors that do not overlap")  # fmt: skip
            site = self.module.site(LaunchError, message, kernel.func.loc)
            self.code.line(f"if ({function}({', '.join(texts)})) return pto_fail(worker, {site}, 0, 0, 0);")

    # -- memory of the device -------------------------------------------------------------------------------------

    def op(self, op: Op) -> None:
        match op.op:
            case "getelem":
                self._getelem(op)
            case "setelem":
                self._setelem(op)
            case "alloc":
                self._alloc(op)
            case _:
                super().op(op)

    def _inside(self, op: Op, tensor: Tensor, indices: Sequence[Operand]) -> str:
        """The address of an element; indices outside fail."""
        code = self.code
        values = [self.index(i) for i in indices]
        for axis, (at, extent) in enumerate(zip(values, tensor.extents, strict=True)):
            site = self.module.site(BoundsError, f"index {{0}} is outside axis {axis} of extent {{1}}", op.loc)
            code.check(code.all_of([code.compare(">=", at, 0), code.compare("<", at, extent)]), site, at, extent)
        distance: Any = 0
        for at, stride in zip(values, tensor.strides, strict=True):
            distance = code.add(distance, code.mul(at, stride))
        return lift(code.offset(tensor.pointer, distance)).text

    def _transfer(self, function: str, *arguments: str) -> None:
        self.code.need_status()
        self.code.line(f"if ((status = {function}(worker, {', '.join(arguments)})) != PTO_OK) return status;")

    def _getelem(self, op: Op) -> None:
        tensor = self.tensor(op.args[0])
        address = self._inside(op, tensor, op.args[1:])
        element = self.code.variable("element", memory_ctype(tensor.dtype), "0", here=True)
        self._transfer("pto_cuda_read", f"&{element.variable}", address, str(tensor.dtype.bytes))
        raw = self.code.read(element.variable, storage_type(tensor.dtype), memory_ctype(tensor.dtype))
        self.define(op.results[0], self.b.from_memory(raw, tensor.dtype))

    def _setelem(self, op: Op) -> None:
        tensor = self.tensor(op.args[1])
        address = self._inside(op, tensor, op.args[2:])
        element = self._element(op.args[0], tensor.dtype)
        self._transfer("pto_cuda_fill", address, f"&{element}", str(tensor.dtype.bytes), "1")

    def _element(self, operand: Operand, dtype: DType) -> str:
        value = self.b.to_memory(self.scalar(operand), dtype)
        return self.code.variable("element", memory_ctype(dtype), lift(value).text, here=True).variable

    def _alloc(self, op: Op) -> None:
        code, result = self.code, op.results[0]
        assert isinstance(result.type, TensorType)
        dtype, filled = result.type.dtype, bool(op.attr("filled"))
        extents = new_extents(self, op)
        size = code.bytes(dtype.bytes, extents)
        pointer = self.tensor_memory(result.name, size)
        self.env[result.name] = Tensor(dtype, pointer, extents, self.strides(dtype, extents))
        if filled or op.attr("fill") == "zeros":
            element = self._element(op.args[-1], dtype) if filled else self._element(Const(0, ScalarType(dtype)), dtype)
            count = lift(code.div(size, dtype.bytes)).text
            self._transfer("pto_cuda_fill", lift(pointer).text, f"&{element}", str(dtype.bytes), count)

    def release_tensor(self, name: str, pointer: Any) -> None:
        assert isinstance(pointer, CSlot)
        self.code.line(f"pto_buffer_free(worker, {pointer.variable});")
        self.code.line(f"{pointer.variable} = NULL;")

    def got_memory(self, pointer: Any) -> None:
        self.code.check_memory(pointer)

    def wrapping(self, parameters: Sequence[str], body: str) -> str:
        """The function that enqueues gets the statements; around it, memory of a failed call is given back."""
        name = self.code.names.fresh(f"{self.code.function.name}_enqueue")
        head = f"static int32_t {name}({', '.join(parameters)}) {{"
        self.module.functions.append((self.func.name, f"{wrapped(head, head.index('(') + 1)}\n{body}\n}}"))
        names = [p.rsplit(" ", 1)[1].lstrip("*") for p in parameters]
        return wrapped(f"  return pto_cuda_ended(worker, {name}({', '.join(names)}));", 6)


def _bounds(entry: Func, kernels: Sequence[Kernel]) -> dict[str, dict[str, int]]:
    """For each kernel what its numbers are at most, of those that are the minimum of something and a constant."""
    made = def_counts(entry.body)
    least = {s.results[0].name: min(int(a.value) for a in s.args if isinstance(a, Const))
             for s in statements(entry.body)
             if isinstance(s, Op) and s.op == "min" and made[s.results[0].name] == 1
             and any(isinstance(a, Const) for a in s.args)}  # fmt: skip
    calls: dict[str, list[Call]] = {}
    for s in statements(entry.body):
        if isinstance(s, Call):
            calls.setdefault(s.callee, []).append(s)
    out: dict[str, dict[str, int]] = {}
    for kernel in kernels:
        out[kernel.name] = {}
        for k, param in enumerate(kernel.func.params):
            if param.type != ScalarType(i64):
                continue
            given = [call.args[k] for call in calls.get(kernel.name, ())]
            bounds = [least.get(a.name) if isinstance(a, Var) else int(a.value) for a in given]
            if bounds and None not in bounds:
                out[kernel.name][param.name] = max(1, *(b for b in bounds if b is not None))
    return out


def _rooms(version: Version, call: Call, length: Operand) -> Iterator[int | None]:
    """What a kernel that is launched has room for, of a length that it is given; None for other lengths."""
    given = {p.name: argument for p, argument in zip(version.kernel.func.params, call.args, strict=True)}
    for macro, extent in version.kernel.capacities:
        yield version.define(macro) if isinstance(extent, Var) and given.get(extent.name) == length else None


def host_files(module: Module, host: HostProgram) -> tuple[dict[str, str], dict[str, Version]]:
    """The host side of a module divided into kernels: files, name -> text, and how each kernel has to be compiled."""
    kernels = host.all_kernels()
    in_passes = {k.name: other.name for k in kernels if (other := host.in_passes(k)) is not None}
    entry = module.func(module.entry)
    versions = versions_of(entry, kernels)
    entry = with_rooms(entry, lambda call, length: _rooms(versions[call.callee], call, length))
    out = CModule(module, debug=False, fast=False, dialect=None)
    name = out.function_names[entry.name] = out.names.fresh(stem_of(entry.name))
    writer = HostWriter(out, entry, name, Identifiers(out.taken()), versions, in_passes)
    prototype, body = write_with(writer, entry)
    divided = "\n\n".join(text for _, text in out.functions)
    head = wrapped(f"{prototype} {{", prototype.index("(") + 1)
    loads = [f'  if (status == PTO_OK) status = pto_cuda_load(worker, {k}, directory, "{v.kernel.name}", {v.shared});'
             for k, v in enumerate(versions.values())]  # fmt: skip
    opening = [f"int32_t {name}_open(pto_worker *worker, const char *directory) {{",
               f"  int32_t status = pto_cuda_open(worker, {len(versions)});", *loads,
               "  if (status != PTO_OK) pto_cuda_close(worker);", "  return status;", "}"]  # fmt: skip
    closing = [f"void {name}_close(pto_worker *worker) {{", "  pto_cuda_close(worker);", "}"]
    # Sites of kernels are numbered from 1 and come first; those of the host code follow.
    kernel_sites = [(s.error, s.message, s.loc) for k in kernels for s in k.sites]
    offset = 1 + len(kernel_sites)
    sites = [*kernel_sites, *((s.error.__name__, s.message, s.loc) for s in out.sites)]
    failure = [f"const char *{name}_failure(int32_t site) {{"]
    if sites:
        failure.append("  static const char *const messages[] = {")
        failure += [f"      {c_string(f'{file_name(loc.filename)}:{loc.lineno}: {error}: {message}')},"
                    for error, message, loc in sites]  # fmt: skip
        failure += ["  };", f"  return site > 0 && site <= {len(sites)} ? messages[site - 1] : NULL;", "}"]
    else:
        failure += ["  (void)site;", "  return NULL;", "}"]
    text = _renumbered(f"{divided}\n\n{head}\n{body}\n}}", offset)
    parts = [text, "\n".join(opening), "\n".join(closing), "\n".join(failure)]
    helpers = ["\n".join(lines) for lines in out.recipes.texts.values()]
    guard = f"PTO_{name.upper()}_H"
    header = "\n\n".join([
        f"// SPDX-License-Identifier: MIT\n#ifndef {guard}\n#define {guard}", '#include "pto_cuda_host.h"',
        '#ifdef __cplusplus\nextern "C" {\n#endif',
        f"// Loads the kernels from `directory`/*.cubin into the current context; {name}_close ends that.\n"
        f"int32_t {name}_open(pto_worker *worker, const char *directory);\nvoid {name}_close(pto_worker *worker);",
        f"// Enqueues {name} on worker->stream. Addresses are of the device; `_n` are extents and `_s` strides, in\n"
        f"// elements; 16-bit floats are their bits. Tensors that it makes are given back with pto_buffer_free.\n"
        + wrapped(f"{prototype};", 8),
        "// The message of a failure (worker->site), over the numbers worker->v as {0}, {1} and {2}.\n"
        f"const char *{name}_failure(int32_t site);",
        f"#ifdef __cplusplus\n}}\n#endif\n\n#endif  // {guard}\n",
    ])  # fmt: skip
    includes = (f'#include "{name}.h"', '#include "pto_host.h"')
    elements = c_headers()["pto_elements.h"].replace('#include "pto_runtime.h"', '#include "pto_cuda_host.h"')
    files = {
        f"{name}_orchestration.c": file_text(f"The host side of {module.name}", includes, helpers, parts),
        f"{name}.h": header, "pto_host.h": elements, HOST_HEADER.name: text_of(HOST_HEADER),
    }  # fmt: skip
    return files, versions


def _renumbered(text: str, offset: int) -> str:
    """Sites of the host code behind those of the kernels."""
    return re.sub(r"pto_fail\(worker, (\d+),", lambda m: f"pto_fail(worker, {int(m[1]) + offset},", text)

