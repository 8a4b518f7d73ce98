# SPDX-License-Identifier: MIT
"""A module of loop IR as C sources: in-core functions, orchestration, and the entry that a launch calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pto_jit.dtypes import BY_NAME, DType
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Func, Module, Operand
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.slotted import frozen
from pto_jit.targets.c.function import CFunctionWriter
from pto_jit.targets.c.module import CModule
from pto_jit.targets.c.tidy import tidy, wrapped
from pto_jit.targets.c.values import CPointer, CValue, lift, memory_ctype, register_ctype
from pto_jit.targets.cpu.code import I64, register_type
from pto_jit.targets.cpu.loading import PrintSite
from pto_jit.targets.cpu.values import Tensor
from pto_jit.targets.cpu.writing import called_in_parallel, result_kind
from pto_jit.targets.source.identifiers import RESERVED, Identifiers

INCLUDE = Path(__file__).parent / "include"
RUNTIME = Path(__file__).parent / "runtime"


@frozen(eq=False)
class CSource:
    """A program as C: `text` is the translation unit, `entry` the function a launch calls, `function` the one that a C
    program calls; helpers and body: what `text` is made of; sites, print_sites and plan as in `CpuProgram`; calls:
    functions of the runtime that it uses; dialect: the vector instructions that it uses by name, if any."""

    name: str
    helpers: tuple[str, ...]
    body: str
    entry: str
    function: str
    prototype: str
    sites: tuple[tuple[str, str, Loc], ...]
    print_sites: tuple[PrintSite, ...]
    plan: Any
    calls: frozenset[str]
    dialect: Any = None

    @property
    def headers(self) -> dict[str, str]:
        """The files of its own target that it includes, name -> text."""
        return {} if self.dialect is None else self.dialect.files()

    @property
    def text(self) -> str:
        """The translation unit."""
        return translation_unit([self])


def write_source(
    module: Module, *, debug: bool = False, dialect: Any = None, suffix: str = ""
) -> CSource:
    """The C of a lowered module; TargetError for what it cannot be.  `suffix`: of the names that a linker sees."""
    out = CModule(debug=debug, fast=False, dialect=dialect)
    parallel = called_in_parallel(module)
    callees = {f.name: f for f in module.funcs}
    entry = module.func(module.entry)
    order = [*(f for f in module.funcs if f.name != module.entry), entry]
    for func in order:
        out.function_names[func.name] = out.names.fresh(func.name + suffix)
    prototypes: dict[str, str] = {}
    for func in order:
        prototypes[func.name] = _write_function(out, func, callees, func.name in parallel, func is entry)
    called = {name for owner, names in out.called.items() if owner != entry.name for name in names}
    forward = [wrapped(f"static {prototypes[f.name]};", 8) for f in module.funcs if f.name in called]
    launcher = f"pto_entry_{out.function_names[entry.name]}"
    text = "\n\n".join([*(["\n".join(forward)] if forward else []), *out.reached(entry.name),
                        _launcher(launcher, out.function_names[entry.name], entry)])  # fmt: skip
    helpers = (*(h + "\n" for h in out.dialect_headers()), *_helpers(out))
    plans = tuple(result_kind(t) for t in entry.results)
    plan = None if not plans else plans[0] if len(plans) == 1 else plans
    sites = tuple((s.error.__name__, s.message, s.loc) for s in out.sites)
    return CSource(module.name, helpers, text, launcher, out.function_names[entry.name], prototypes[entry.name],
                   sites, tuple(out.print_sites), plan, frozenset(out.calls), dialect)  # fmt: skip


def translation_unit(sources: Sequence[CSource]) -> str:
    """One file of several programs, whose functions must have different names; helpers come once."""
    names = ", ".join(s.name for s in sources)
    helpers = list(dict.fromkeys(h for s in sources for h in s.helpers))
    head = f'// SPDX-License-Identifier: MIT\n// {names}, written by pto_jit.\n#include "pto_elements.h"\n'
    return "\n".join([head, *helpers, "\n\n".join(s.body for s in sources), ""])


def _helpers(out: CModule) -> list[str]:
    """Vector math, products and the like that the functions call."""
    parts = [*("\n".join(lines) + "\n" for lines in out.recipes.texts.values())]
    if out.recipes.normal:
        parts.append(_NORMAL)
    for source, target in sorted(out.recipes.bitcasts):
        a, b = memory_ctype(BY_NAME[source]), memory_ctype(BY_NAME[target])
        body = f"{b} to; memcpy(&to, &from, sizeof to); return to;"
        parts.append(f"static inline {b} pto_bitcast_{source}_{target}({a} from) {{ {body} }}\n")
    for dtype, descending in sorted(out.sorts, key=str):
        kind = "descending" if descending else "ascending"
        key = f"pto_widened_{dtype}" if dtype.kind == "f" and dtype.bits == 16 else "PTO_KEY"
        parts.append(f"PTO_ARGSORT({memory_ctype(dtype)}, {dtype}_{kind}, {key}, PTO_{kind.upper()})\n")
    parts += [p.text() for p in out.products.values()]
    if out.products:
        out.calls.update(("pto_scratch_push", "pto_scratch_pop"))
    return parts


def _parameters(w: CFunctionWriter, func: Func) -> list[str]:
    """The C parameters; the environment of `w` gets what they stand for."""
    code = w.code
    out = ["pto_worker *worker"]
    code.declared["worker"] = "pto_worker *"

    def number(wish: str) -> CValue:
        name = code.names.fresh(wish)
        code.declared[name] = "int64_t"
        out.append(f"int64_t {name}")
        return CValue(I64, name)

    for p in func.params:
        name = code.names.fresh(p.name)
        if isinstance(p.type, TensorType):
            element = memory_ctype(p.type.dtype)
            code.declared[name] = f"{element} *"
            out.append(f"{element} *{name}")
            extents = [e if e is not None else number(f"{p.name}_n{k}") for k, e in enumerate(p.type.shape)]
            size = p.type.dtype.bytes
            strides: list[Any]
            if p.type.layout == "c":
                strides = list(w.strides(p.type.dtype, extents))
            else:
                own = p.type.rank - (p.type.layout == "inner")
                strides = [code.mul(number(f"{p.name}_s{k}"), size) for k in range(own)]
                strides += [size] * (p.type.rank - own)
            tensor = Tensor(p.type.dtype, CPointer(name, element), tuple(extents), tuple(strides))
            dict.__setitem__(w.env, p.name, tensor)
        else:
            assert isinstance(p.type, ScalarType)
            ctype = register_ctype(p.type.dtype)
            code.declared[name] = ctype
            out.append(f"{ctype} {name}")
            w.define(p, CValue(register_type(p.type.dtype), name, ctype=ctype))
    return out


def _write_function(out: CModule, func: Func, callees: dict[str, Func], parallel: bool, entry: bool) -> str:
    """Write one function; its prototype."""
    name = out.function_names[func.name]
    w = CFunctionWriter(out, func, name, Identifiers(RESERVED | out.taken()), parallel=parallel)
    w.callees = callees
    parameters = _parameters(w, func)
    code = w.code
    slots: list[list[str]] = []
    for k, typ in enumerate(func.results):
        result = code.names.fresh("result" if len(func.results) == 1 else f"result{k}")
        if isinstance(typ, TensorType):
            parameters.append(f"{memory_ctype(typ.dtype)} **{result}")
            extents = [code.names.fresh(f"{result}_n{axis}") for axis in range(typ.rank)]
            parameters += [f"int64_t *{e}" for e in extents]
            slots.append([result, *extents])
        else:
            assert isinstance(typ, ScalarType)
            parameters.append(f"{register_ctype(typ.dtype)} *{result}")
            slots.append([result])
        code.declared.update((s, "int64_t *") for s in slots[-1])

    def give(values: Sequence[Operand]) -> None:
        for value, places in zip(values, slots, strict=True):
            if not isinstance(value.type, TensorType):
                code.line(f"*{places[0]} = {lift(w.scalar(value)).text};")
                continue
            tensor = w.tensor(value)
            pointer = code.typed(tensor.pointer, memory_ctype(tensor.dtype))
            code.line(f"*{places[0]} = {pointer.text};")
            for place, extent in zip(places[1:], tensor.extents, strict=True):
                code.line(f"*{place} = {lift(extent).text};")
            owner = w.env.get(f"alloc {value.name}")  # pyright: ignore[reportAttributeAccessIssue]
            if owner is not None:
                code.line(f"{owner.variable} = NULL;")

    w.results = give
    w.write(func.body)
    body = "\n".join(str(line) for line in tidy(w.finished()))
    prototype = f"int32_t {name}({', '.join(parameters)})"
    head = f"{'' if entry else 'static '}{prototype} {{"
    out.functions.append((func.name, f"{wrapped(head, head.index('(') + 1)}\n{body}\n}}"))
    return prototype


def _launcher(name: str, function: str, func: Func) -> str:
    """The entry: arguments and results as 64-bit slots, as `pto_launch` has them."""
    arguments = ["worker"]
    at = 0
    for p in func.params:
        if isinstance(p.type, TensorType):
            rank, size = p.type.rank, p.type.dtype.bytes
            arguments.append(f"({memory_ctype(p.type.dtype)} *)(uintptr_t)arguments[{at}]")
            arguments += [f"arguments[{at + 1 + k}]" for k, e in enumerate(p.type.shape) if e is None]
            if p.type.layout != "c":
                own = rank - (p.type.layout == "inner")
                arguments += [f"arguments[{at + 1 + rank + k}]{f' / {size}' if size > 1 else ''}" for k in range(own)]
            at += 1 + 2 * rank
        else:
            assert isinstance(p.type, ScalarType)
            arguments.append(_from_slot(f"arguments[{at}]", p.type.dtype))
            at += 1
    lines = [f"int32_t {name}(pto_worker *worker, const int64_t *arguments, int64_t *results) {{"]
    after: list[str] = []
    k = 0
    for number, typ in enumerate(func.results):
        if isinstance(typ, TensorType):
            lines.append(f"  {memory_ctype(typ.dtype)} *result{number} = NULL;")
            arguments.append(f"&result{number}")
            after.append(f"  results[{k}] = (int64_t)(uintptr_t)result{number};")
            arguments += [f"&results[{k + 1 + axis}]" for axis in range(typ.rank)]
            k += 1 + typ.rank
        else:
            assert isinstance(typ, ScalarType)
            lines.append(f"  {register_ctype(typ.dtype)} result{number};")
            arguments.append(f"&result{number}")
            after.append(f"  results[{k}] = {_to_slot(f'result{number}', typ.dtype)};")
            k += 1
    if at == 0:
        lines.append("  (void)arguments;")
    if k == 0:
        lines.append("  (void)results;")
    call = f"{function}({', '.join(arguments)})"
    if not after:
        return "\n".join([*lines, wrapped(f"  return {call};", 6), "}"])
    lines += [wrapped(f"  const int32_t status = {call};", 6), "  if (status != PTO_OK) return status;"]
    return "\n".join([*lines, *after, "  return PTO_OK;", "}"])


def _from_slot(slot: str, dtype: DType) -> str:
    if dtype.kind == "f":
        wide = f"pto_from_bits_f64({slot})"
        if dtype.bits == 64:
            return wide
        return f"(float){wide}" if dtype.bits == 32 else f"pto_rounded_{dtype}_f64({wide})"
    if dtype.kind == "b":
        return f"{slot} != 0"
    return slot if dtype.name == "i64" else f"({memory_ctype(dtype)}){slot}"


def _to_slot(name: str, dtype: DType) -> str:
    if dtype.kind == "f":
        value = f"pto_rounded_{dtype}({name})" if dtype.bits == 16 else name
        return f"pto_bits_f64({value})"
    return name if dtype.name == "i64" else f"(int64_t){name}"


_NORMAL = """\
// Standard normal f32 (Box and Muller, Ann. Math. Stat. 29, 1958), computed in f64.
static inline float pto_randn(int64_t seed, int64_t counter) {
  uint32_t words[2];
  pto_philox(seed, counter, words);
  const double u0 = (float)(words[0] >> 8) * 0x1p-24f, u1 = (float)(words[1] >> 8) * 0x1p-24f;
  return (float)(sqrt(-2.0 * pto_log1p_f64(-u0)) * pto_cos_f64(6.283185307179586 * u1));
}
"""
