# SPDX-License-Identifier: MIT
"""A module of loop IR as C sources: in-core functions, orchestration, and the entry that a launch calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pto_jit.dtypes import BY_NAME, DType
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Func, Module, Operand, Var
from pto_jit.ir.types import ScalarType, TensorType, Type
from pto_jit.slotted import frozen
from pto_jit.targets.c.function import CFunctionWriter
from pto_jit.targets.c.module import CModule
from pto_jit.targets.c.tidy import tidy
from pto_jit.targets.c.values import CPointer, CValue, lift, memory_ctype, register_ctype
from pto_jit.targets.cpu.constants import I64, register_type
from pto_jit.targets.cpu.loading import PrintSite, TaskSite
from pto_jit.targets.cpu.values import Tensor
from pto_jit.targets.cpu.writing import called_in_parallel, result_kind, written_tensors
from pto_jit.targets.source.identifiers import Identifiers, entry_name, stem_of
from pto_jit.targets.source.text import wrapped

INCLUDE = Path(__file__).parent / "include"
RUNTIME = Path(__file__).parent / "runtime"


@frozen(eq=False)
class CFunction:
    """One IR function in C.

    name: in C; in_core: whether it is one, not an orchestration; called: whether another function calls it; prototype:
    without `static` and semicolon; divided: the functions of its parallel loops and tasks; body: its own, from `{` on.
    """

    name: str
    in_core: bool
    called: bool
    prototype: str
    divided: str
    body: str

    def definition(self, *, static: bool) -> str:
        """The text of the function with those it was divided into."""
        head = f"{'static ' if static else ''}{self.prototype} {{"
        whole = f"{wrapped(head, head.index('(') + 1)}\n{self.body}\n}}"
        return f"{self.divided}\n\n{whole}" if self.divided else whole

    def declaration(self, *, static: bool) -> str:
        """The line that lets others call it."""
        return wrapped(f"{'static ' if static else ''}{self.prototype};", 8)


@frozen(eq=False)
class CSource:
    """A program as C.

    entry: the function that a launch calls, with its text in `launcher`; functions: the IR functions that the program
    needs, the orchestration last; helpers: vector math, products and the like by the name that functions call, each
    after those that it needs; includes: the lines for headers; params, results: of the orchestration; sites,
    print_sites and plan as in `CpuProgram`; written: the tensors of the orchestration, by their place among them, that
    it writes; task_sites: its calls that are tasks; calls: functions of the runtime that it uses; dialect: the vector
    instructions that it uses by name, if any.  Of a translation unit a linker sees nothing but `entry` (and `kinds`).
    """

    name: str
    functions: tuple[CFunction, ...]
    helpers: tuple[tuple[str, str], ...]
    includes: tuple[str, ...]
    entry: str
    launcher: str
    params: tuple[Var, ...]
    results: tuple[Type, ...]
    sites: tuple[tuple[str, str, Loc], ...]
    print_sites: tuple[PrintSite, ...]
    plan: Any
    written: frozenset[int]
    task_sites: tuple[TaskSite, ...]
    calls: frozenset[str]
    dialect: Any = None

    @property
    def main(self) -> CFunction:
        """The orchestration."""
        return self.functions[-1]

    @property
    def stem(self) -> str:
        """The name as an identifier: of files and of functions for programs that call this one."""
        return stem_of(self.name)

    @property
    def headers(self) -> dict[str, str]:
        """The files of its own target that it includes, name -> text."""
        return {} if self.dialect is None else self.dialect.files()

    @property
    def text(self) -> str:
        """The program as one translation unit, for this process."""
        return translation_unit([self])

    @property
    def library_text(self) -> str:
        """The same for programs without Python, which do not look for kinds of tasks."""
        return file_text(self.name, self.includes, [text for _, text in self.helpers], [self.body])

    @property
    def body(self) -> str:
        """What comes after the helpers in a translation unit of its own: all is static but the launcher."""
        parts = [f.declaration(static=True) for f in self.functions if f.called]
        out = ["\n".join(parts)] if parts else []
        out += [f.definition(static=True) for f in self.functions]
        return "\n\n".join([*out, self.launcher])

    @property
    def kinds(self) -> str:
        """The array by which a process that loaded the program finds its kinds of tasks, in the order of the sites."""
        return f"{self.entry}_kinds"


def write_source(
    module: Module, *, debug: bool = False, dialect: Any = None, suffix: str = "", tasks: frozenset[str] | None = None
) -> CSource:
    """The C of a lowered module; TargetError for what it cannot be.

    suffix: of the functions' names, for many programs in one file; tasks: the named in-core functions, when calls
    become tasks.
    """
    out = CModule(module, debug=debug, fast=False, dialect=dialect)
    parallel = called_in_parallel(module) if tasks is None else {f.name for f in module.funcs}
    callees = {f.name: f for f in module.funcs}
    entry = module.func(module.entry)
    order = [*(f for f in module.funcs if f.name != module.entry), entry]
    for exported in ("launch", "failure"):  # functions of the header
        out.names.fresh(f"{stem_of(module.name)}_{exported}")
    for func in order:
        out.function_names[func.name] = out.names.fresh(func.name + suffix)
    written = {
        f.name: _write_function(out, f, callees, f.name in parallel, tasks if f is entry else None) for f in order
    }
    called = {name for owner, names in out.called.items() if owner != entry.name for name in names}
    reached = out.reached(entry.name)
    divided: dict[str, list[str]] = {}
    for owner, text in out.functions:
        divided.setdefault(owner, []).append(text)
    functions = tuple(
        CFunction(out.function_names[f.name], f.kind != "orchestration" and f is not entry, f.name in called,
                  written[f.name][0], "\n\n".join(divided.get(f.name, ())), written[f.name][1])
        for f in order if f.name in reached
    )  # fmt: skip
    launcher = f"{entry_name(module.name)}{suffix}"
    plans = tuple(result_kind(t) for t in entry.results)
    plan = None if not plans else plans[0] if len(plans) == 1 else plans
    sites = tuple((s.error.__name__, s.message, s.loc) for s in out.sites)
    helpers = _helpers(out)
    return CSource(module.name, functions, helpers, ('#include "pto_elements.h"', *out.dialect_headers()), launcher,
                   _launcher(launcher, functions[-1].name, entry), entry.params, entry.results, sites,
                   tuple(out.print_sites), plan, written_tensors(module), tuple(out.task_sites),
                   frozenset(out.calls), dialect)  # fmt: skip


def translation_unit(sources: Sequence[CSource]) -> str:
    """One file of several programs, whose functions must have different names; helpers come once."""
    names = ", ".join(s.name for s in sources)
    includes = dict.fromkeys(line for s in sources for line in s.includes)
    helpers = dict(h for s in sources for h in s.helpers)
    bodies = [part for s in sources for part in (s.body, *_kinds(s))]
    return file_text(names, includes, helpers.values(), bodies)


def _kinds(source: CSource) -> list[str]:
    """The array that `CSource.kinds` names, if there are tasks."""
    if not source.task_sites:
        return []
    kinds = ", ".join(f"&{site.symbol}" for site in source.task_sites)
    return [f"extern const pto_task_kind *const {source.kinds}[];\n"
            + wrapped(f"const pto_task_kind *const {source.kinds}[] = {{{kinds}}};", 4)]  # fmt: skip


def file_text(names: str, includes: Iterable[str], helpers: Iterable[str], parts: Iterable[str]) -> str:
    """A file of generated C: includes, helpers, then the functions."""
    head = "\n".join(["// SPDX-License-Identifier: MIT", f"// {names}, written by pto_jit.", *includes, ""])
    return "\n".join([head, *(f"{h}\n" for h in helpers), "\n\n".join(parts), ""])


def _helpers(out: CModule) -> tuple[tuple[str, str], ...]:
    """Vector math, products and the like that the functions call, by name."""
    parts = [(name, "\n".join(lines)) for name, lines in out.recipes.texts.items()]
    if out.recipes.normal:
        parts.append(("pto_randn", _NORMAL))
    for source, target in sorted(out.recipes.bitcasts):
        a, b = memory_ctype(BY_NAME[source]), memory_ctype(BY_NAME[target])
        name, body = f"pto_bitcast_{source}_{target}", f"{b} to; memcpy(&to, &from, sizeof to); return to;"
        parts.append((name, f"static inline {b} {name}({a} from) {{ {body} }}"))
    for dtype, descending in sorted(out.sorts, key=str):
        kind = "descending" if descending else "ascending"
        key = f"pto_widened_{dtype}" if dtype.kind == "f" and dtype.bits == 16 else "PTO_KEY"
        text = f"PTO_ARGSORT({memory_ctype(dtype)}, {dtype}_{kind}, {key}, PTO_{kind.upper()})"
        parts.append((f"pto_argsort_{dtype}_{kind}", text))
    for product in out.products.values():
        parts += [(name, text.rstrip()) for name, text in product.helpers()]
        out.calls.update(("pto_scratch_push", "pto_scratch_pop", *(["pto_parallel_for"] if product.divided else [])))
    return tuple(parts)


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


def _writer(
    out: CModule, func: Func, callees: dict[str, Func], parallel: bool, tasks: frozenset[str] | None
) -> CFunctionWriter:
    name, names = out.function_names[func.name], Identifiers(out.taken())
    if tasks is not None:
        from pto_jit.targets.c.tasks import CTaskWriter  # few kernels are task graphs

        return CTaskWriter(out, func, name, names, callees, tasks)
    w = CFunctionWriter(out, func, name, names, parallel=parallel)
    w.callees = callees
    return w


def _write_function(
    out: CModule, func: Func, callees: dict[str, Func], parallel: bool, tasks: frozenset[str] | None
) -> tuple[str, str]:
    return write_with(_writer(out, func, callees, parallel, tasks), func)


def write_with(w: CFunctionWriter, func: Func) -> tuple[str, str]:
    """One function: its prototype, and its body; what it is divided into goes to the module."""
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
    w.begin()
    w.write(func.body)
    body = "\n".join(map(str, tidy(w.finished())))
    prototype = f"int32_t {w.module.function_names[func.name]}({', '.join(parameters)})"
    return prototype, w.wrapping(parameters, body)


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
}"""
