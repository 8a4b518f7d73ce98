# SPDX-License-Identifier: MIT
"""The header by which a C or C++ program calls a compiled one: typed arguments in, slots of `pto_launch` out.

It is the same for every target whose entry is `int32_t entry(pto_worker *, const int64_t *args, int64_t *results)`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.dtypes import DType
from pto_jit.errors import NOWHERE, Loc
from pto_jit.ir.nodes import Var
from pto_jit.ir.types import ScalarType, TensorType, Type
from pto_jit.semantic.failures import EXTENT
from pto_jit.targets.c.values import memory_ctype, register_ctype
from pto_jit.targets.source.identifiers import RESERVED, Identifiers
from pto_jit.targets.source.text import made_here, place_of, wrapped

_OWN = frozenset("runtime failure arguments results status bits memcpy".split())


class Launch:
    """The function `<name>_launch`: its parameters, and how they become slots.

    extents: the parameters that are extents, each with the axis and the tensor that it is of; slots, after: the values
    of the slots, and what reads the results.
    """

    def __init__(self, name: str, params: Sequence[Var], results: Sequence[Type], written: frozenset[int]) -> None:
        self.name = name
        self.parameters: list[str] = []
        self.extents: list[tuple[str, int, str]] = []
        self.slots: list[str] = []
        self.after: list[str] = []
        self.results = 0
        self._names = Identifiers(RESERVED | _OWN)
        tensors = 0
        for p in params:
            if isinstance(p.type, TensorType):
                self._tensor(p.name, p.type, tensors in written)
                tensors += 1
            else:
                assert isinstance(p.type, ScalarType)
                self._scalar(self._names.fresh(p.name), p.type.dtype)
        for k, typ in enumerate(results):
            self._result(self._names.fresh("result" if len(results) == 1 else f"result{k}"), typ)

    def _tensor(self, wish: str, typ: TensorType, written: bool) -> None:
        name = self._names.fresh(wish)
        self.parameters.append(f"{'' if written else 'const '}{memory_ctype(typ.dtype)} *{name}")
        extents = [str(e) if e is not None else self._number(f"{name}_n{k}") for k, e in enumerate(typ.shape)]
        self.extents += [(extents[k], k, wish) for k, e in enumerate(typ.shape) if e is None]
        size = typ.dtype.bytes
        if typ.layout == "c":
            strides = [" * ".join([str(size), *extents[k + 1 :]]) for k in range(typ.rank)]
        else:
            own = typ.rank - (typ.layout == "inner")
            strides = [f"{size} * {self._number(f'{name}_s{k}')}" for k in range(own)]
            strides += [str(size)] * (typ.rank - own)
        self.slots += [f"(int64_t)(uintptr_t){name}", *extents, *strides]

    def _number(self, wish: str) -> str:
        name = self._names.fresh(wish)
        self.parameters.append(f"int64_t {name}")
        return name

    def _scalar(self, name: str, dtype: DType) -> None:
        self.parameters.append(f"{register_ctype(dtype)} {name}")
        self.slots.append(f"pto_slot_of((double){name})" if dtype.kind == "f" else f"(int64_t){name}")

    def _result(self, name: str, typ: Type) -> None:
        at = self.results
        if isinstance(typ, TensorType):
            element = memory_ctype(typ.dtype)
            self.parameters.append(f"{element} **{name}")
            self.after.append(f"*{name} = ({element} *)(uintptr_t)results[{at}];")
            for axis in range(typ.rank):
                extent = self._names.fresh(f"{name}_n{axis}")
                self.parameters.append(f"int64_t *{extent}")
                self.after.append(f"*{extent} = results[{at + 1 + axis}];")
            self.results += 1 + typ.rank
            return
        assert isinstance(typ, ScalarType)
        ctype = register_ctype(typ.dtype)
        self.parameters.append(f"{ctype} *{name}")
        kind = typ.dtype.kind
        value = f"results[{at}]"
        value = f"pto_number_in({value})" if kind == "f" else f"{value} != 0" if kind == "b" else value
        self.after.append(f"*{name} = {value};" if kind == "b" else f"*{name} = ({ctype}){value};")
        self.results += 1

    def prototype(self) -> str:
        """The head of the function."""
        parameters = ", ".join(["pto_runtime *runtime", *self.parameters, "pto_failure *failure"])
        return f"int32_t {self.name}_launch({parameters})"

    def sites(self) -> list[tuple[str, str, Loc]]:
        """What is wrong where an extent is negative, which would reach memory that is not there."""
        return [("LaunchError", f"{EXTENT.code}: axis {axis} of `{tensor}` has the extent {{0}}; {EXTENT.help}",
                 NOWHERE) for _, axis, tensor in self.extents]  # fmt: skip

    def text(self, entry: str, first: int) -> str:
        """The function, which may stand in a header; first: the number of the first of its `sites`."""
        head = f"static inline {self.prototype()} {{"
        values = ", ".join(self.slots) or "0"
        lines = [wrapped(head, head.index("(") + 1)]
        lines += [f"  if ({extent} < 0) return pto_refused(failure, {first + k}, {extent});"
                  for k, (extent, _, _) in enumerate(self.extents)]  # fmt: skip
        lines.append(wrapped(f"  const int64_t arguments[] = {{{values}}};", 6))
        lines.append(f"  int64_t results[{max(self.results, 1)}] = {{0}};")
        call = f"pto_launch(runtime, {entry}, arguments, results, NULL, 0, failure)"
        if not self.after:
            return "\n".join([*lines, f"  return {call};", "}"])
        lines += [f"  const int32_t status = {call};", "  if (status != PTO_OK) return status;"]
        return "\n".join([*lines, *(f"  {line}" for line in self.after), "  return PTO_OK;", "}"])


def launch_header(
    name: str, entry: str, params: Sequence[Var], results: Sequence[Type], written: frozenset[int],
    sites: Sequence[tuple[str, str, Loc]], also: Sequence[str] = (), *, tasks: bool = False,
) -> str:  # fmt: skip
    """The text of `<name>.h`.  written, sites: as in `CpuProgram`; also: further declarations, comments included;
    tasks: whether calls are tasks."""
    launch = Launch(name, params, results, written)
    guard = f"PTO_{name.upper()}_H"
    parts = [
        f"// SPDX-License-Identifier: MIT\n#ifndef {guard}\n#define {guard}",
        '#include <stdbool.h>\n#include <stdint.h>\n#include <string.h>\n\n#include "pto_runtime.h"',
        '#ifdef __cplusplus\nextern "C" {\n#endif',
        f"// The program as pto_launch takes it: every argument and result in slots of 64 bits.\n{_entry(entry)};",
        *also, *_helpers(launch),
        f"{_manual(name, launch, results, tasks)}\n{launch.text(entry, len(sites))}",
        _failures(name, [*sites, *launch.sites()]),
        f"#ifdef __cplusplus\n}}\n#endif\n\n#endif  // {guard}\n",
    ]  # fmt: skip
    return "\n\n".join(parts)


def _entry(entry: str) -> str:
    return f"int32_t {entry}(pto_worker *worker, const int64_t *arguments, int64_t *results)"


def _manual(name: str, launch: Launch, results: Sequence[Type], tasks: bool) -> str:
    lines = [f"Runs {name} on the threads of a runtime and waits for it: PTO_OK, or the status that pto_launch gives;",
             f"`failure` (or NULL) then says what failed, and {name}_failure where."]  # fmt: skip
    if tasks:
        lines += ["Of a task that failed, failure->task is 1 + its number and failure->graph its graph, which the",
                  "caller gives back by pto_graph_destroy (nobody has to when `failure` is NULL)."]  # fmt: skip
    if any("_n" in p or "_s" in p for p in launch.parameters):
        lines.append("`_n` are extents and `_s` strides, in elements.")
    if any("uint16_t" in p for p in launch.parameters):
        lines.append("16-bit floats are their bits.")
    if any(isinstance(t, TensorType) for t in results):
        lines.append("The memory of tensors that it makes is given back by pto_buffer_free(NULL, ...).")
    return "\n".join(f"// {line}" for line in lines)


def _helpers(launch: Launch) -> list[str]:
    out = []
    uses = " ".join([*launch.slots, *launch.after, *(["pto_refused"] if launch.extents else [])])
    guarded: list[tuple[str, str]] = [
        ("pto_slot_of", "static inline int64_t pto_slot_of(double number) {\n  int64_t bits;\n"
                        "  memcpy(&bits, &number, sizeof bits);\n  return bits;\n}"),
        ("pto_number_in", "static inline double pto_number_in(int64_t slot) {\n  double number;\n"
                          "  memcpy(&number, &slot, sizeof number);\n  return number;\n}"),
        ("pto_refused", "static inline int32_t pto_refused(pto_failure *failure, int32_t site, int64_t number) {\n"
                        "  if (failure != NULL) {\n    memset(failure, 0, sizeof *failure);\n"
                        "    failure->status = PTO_FAILED;\n    failure->site = site;\n    failure->v0 = number;\n"
                        "  }\n  return PTO_FAILED;\n}"),
    ]  # fmt: skip
    for name, text in guarded:
        if name in uses:  # headers of several programs may be included together
            out.append(f"#ifndef {name.upper()}\n#define {name.upper()}\n{text}\n#endif")
    return out


def _failures(name: str, sites: Sequence[tuple[str, str, Loc]]) -> str:
    """The messages of the failure sites, over the numbers v0, v1 and v2 of the failure."""
    lines = [
        "// What is wrong at a site of this program (`failure.site`): the line, the error, and its message, in which",
        "// {0}, {1} and {2} are v0, v1 and v2 of the failure. NULL: a site of the runtime, see pto_status_text.",
    ]  # fmt: skip
    if any(".high}" in message for _, message, _ in sites):
        lines.append("// {0.high} and {0.low} are the upper and the lower 32 bits of v0.")
    if any("{{" in message or "}}" in message for _, message, _ in sites):
        lines.append("// {{ and }} are braces.")
    lines.append(f"static inline const char *{name}_failure(int32_t site) {{")
    if not sites:
        return "\n".join([*lines, "  (void)site;", "  return NULL;", "}"])
    lines.append("  static const char *const messages[] = {")
    for error, message, loc in sites:
        place = f"{place_of(loc)}: " if loc.lineno and not made_here(loc.filename) else ""
        lines.append(f"      {c_string(f'{place}{error}: {message}')},")
    lines += ["  };", f"  return site >= 0 && site < {len(sites)} ? messages[site] : NULL;", "}"]
    return "\n".join(lines)


_ESCAPES = {byte: f"\\{byte:03o}" for byte in range(256) if not 32 <= byte < 127}
_ESCAPES |= {ord('"'): '\\"', ord("\\"): "\\\\", ord("\n"): "\\n", ord("?"): "\\?"}


def c_string(text: str) -> str:
    """A string literal of C."""
    if not (text.isascii() and text.isprintable()) or '"' in text or "\\" in text or "?" in text:
        text = text.encode().decode("latin-1").translate(_ESCAPES)
    return f'"{text}"'
