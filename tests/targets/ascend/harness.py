# SPDX-License-Identifier: MIT
"""Running programs written for an Ascend on the CPU: kernels and host code, against headers that stand for the device.

The kernels of all programs of a test module are one translation unit of C++, as that compiles fastest; the host code is C.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_jit.targets.ascend.form import Barrier, KernelForm, Node, SetFlag, WaitFlag
from pto_jit.targets.ascend.legality import violations
from pto_jit.targets.ascend.ordering import races

HEADERS = Path(__file__).parent / "emulation"
SEEDS = (0, 1, 7)
needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
_STANDARD = "acl/acl.h algorithm cstddef cmath cstdint cstdio cstring pto/pto-inst.hpp".split()
_FLOATS = ("float", "double")


class Programs:
    """Compiled kernels (`fn.compile(..., target="ascend")`) by name, runnable."""

    def __init__(self, compiled: dict[str, Any], directory: Path) -> None:
        parts = [f"#include <{name}>" for name in _STANDARD]
        parts.append("inline double as_double(int64_t slot) {\n  double x;\n  std::memcpy(&x, &slot, 8);\n  return x;\n}")
        self.prototypes: dict[str, list[tuple[str, str]]] = {}
        hosts: list[Path] = []
        for name, program in compiled.items():
            parts.append(f"namespace program_{name} {{")
            sources = program.sources
            for count, (file, text) in enumerate(sources.items()):
                if file.endswith(".cpp"):
                    parts += [f"namespace file_{count} {{", _on_cpu(text, name), "}", f"using namespace file_{count};"]
            parts.append("}")
            runner, host = self._runner(name, program)
            parts.append(runner)
            hosts.append(directory / f"{name}_host.c")
            hosts[-1].write_text(host)
        source = directory / "programs.cpp"
        source.write_text("\n".join(parts) + '\nextern "C" void seed(unsigned s) { emulation::seed = s; }\n'
                          'extern "C" void free_result(void *memory) { aclrtFree(memory); }\n')
        library = directory / "programs.so"
        flags = ["-O0", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-I", str(HEADERS)]
        c = ["gcc", "-std=c11", "-fexceptions", "-Wno-missing-braces", *flags, "-c", *(str(h) for h in hosts)]
        subprocess.run(c, check=True, cwd=directory)
        objects = [str(h.with_suffix(".o")) for h in hosts]
        command = ["g++", "-std=c++17", *flags, "-Wno-unused-function", "-pthread", "-shared", str(source), *objects]
        subprocess.run([*command, "-o", str(library)], check=True)
        self.library = ctypes.CDLL(str(library))

    def _runner(self, name: str, program: Any) -> tuple[str, str]:
        """C++ that calls a program, and its host code with names of its own."""
        host = next(text for file, text in program.sources.items() if file.endswith("_orchestration.c"))
        host = _on_one_line(host)
        match = re.search(r"const char \*(\w+)\(aclrtStream stream, (.*)\) \{", host)
        assert match is not None
        host = host.replace("launch_", f"{name}_launch_").replace(f"*{match[1]}(aclrtStream", f"*{name}_entry(aclrtStream")
        parameters = [tuple(p.replace("*", "* ").rsplit(" ", 1)) for p in match[2].split(", ")]
        self.prototypes[name] = [(typ.replace(" ", ""), p) for typ, p in parameters]
        types = ["void *" if typ.endswith("*") else typ for typ, _ in self.prototypes[name]]
        cast = {"void *": "reinterpret_cast<void *>"} | dict.fromkeys(_FLOATS, "as_double")
        given = [f"{cast.get(typ, f'static_cast<{typ}>')}(slots[{k}])" for k, typ in enumerate(types)]
        return (f"extern \"C\" const char *{name}_entry({', '.join(['void *', *types])});\n"
                f"extern \"C\" const char *run_{name}(const int64_t *slots) {{\n  static std::string message;\n  try {{\n"
                f"    return {name}_entry({', '.join(['nullptr', *given])});\n"
                "  } catch (const std::exception &error) {\n    message = error.what();\n    return message.c_str();\n"
                "  }\n}"), host  # fmt: skip

    def run(self, name: str, seed: int = 0, **arguments: Any) -> None:
        """Run a program; arrays are changed in place. RuntimeError with what the program or the device says.

        results: a list that gets the results: numbers, and for tensors `(address, extents)` (see `taken`).
        """
        results = arguments.pop("results", [])
        known: dict[str, int] = {}
        for parameter, value in arguments.items():
            if isinstance(value, np.ndarray):
                known[parameter] = value.ctypes.data
                known |= {f"{parameter}_d{k}": n for k, n in enumerate(value.shape)}
                known |= {f"{parameter}_s{k}": n // value.itemsize for k, n in enumerate(value.strides)}
            else:
                known[parameter] = value
        given = [(ctypes.c_int64 * 9)() for _ in self.prototypes[name]]  # a Result, or a number
        slots = [ctypes.addressof(given[k]) if p.startswith("result_") else _slot(known[p], typ)
                 for k, (typ, p) in enumerate(self.prototypes[name])]  # fmt: skip
        self.library.seed(ctypes.c_uint(seed))
        function = getattr(self.library, f"run_{name}")
        function.restype = ctypes.c_char_p
        message = function((ctypes.c_int64 * len(slots))(*slots))
        if message is not None:
            raise RuntimeError(message.decode())
        for out, (typ, p) in zip(given, self.prototypes[name], strict=True):
            if p.startswith("result_"):
                results.append((out[0], tuple(out[1:])) if typ == "Result*" else out[0])

    def taken(self, result: tuple[int, tuple[int, ...]], rank: int, dtype: Any) -> np.ndarray:
        """A tensor that a program made, whose memory is given back."""
        address, extents = result[0], result[1][:rank]
        count = int(np.prod(extents)) * np.dtype(dtype).itemsize
        out = np.frombuffer(ctypes.string_at(address, count), dtype).reshape(extents).copy()
        self.library.free_result(ctypes.c_void_p(address))
        return out


def _slot(value: Any, typ: str) -> int:
    """An argument as 64 bits: of a float those of the double."""
    return int(np.float64(value).view(np.int64)) if typ in _FLOATS else int(value)


def _on_one_line(text: str) -> str:
    """Long lines were broken, behind commas and opening brackets."""
    return re.sub(r"\(\n +", "(", re.sub(r",\n +", ", ", text))


def _on_cpu(text: str, program: str) -> str:
    """A kernel's file inside a namespace, its launches as calls; of C are only the functions that launch."""
    text = _on_one_line(text)
    text = re.sub(r"#include <.*>\n", "", text).replace('extern "C" ', "").replace("launch_", f"{program}_launch_")
    text = re.sub(r"^(void|int32_t) (\w+_launch_)", r'extern "C" \1 \2', text, flags=re.MULTILINE)
    text = re.sub(r"^ +if \(const int32_t error = rtGetC2cCtrlAddr\(.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"(\w+)<<<cores, nullptr, stream>>>\(flags, (.*)\);", (
        r"(void)flags, (void)length;\n"
        r"  emulation::launch_groups(cores, [&] { \1_on_cube(\2); }, [&] { \1_on_vector(\2); });"
    ), text)  # fmt: skip
    return re.sub(r"(\w+)<<<cores, nullptr, stream>>>\((.*)\);", r"emulation::launch(cores, [&] { \1(\2); });", text)


def blocks(nodes: list[Node]) -> Iterator[list[Node]]:
    """All blocks of a form, and those of the functions that it calls."""
    yield nodes
    yield from {id(f): f.body for f in (getattr(n, "function", None) for n in nodes) if f is not None}.values()
    for node in nodes:
        for name in ("body", "then", "orelse"):
            inner = getattr(node, name, None)
            if isinstance(inner, list):
                yield from blocks(inner)


def mutants(kernel: KernelForm) -> Iterator[str]:
    """The kernel without one of its flags or barriers, then without both ends of one flag; it is put back each time."""
    yield from without_one(kernel, (SetFlag, WaitFlag, Barrier))
    flags = {_key(n) for block in blocks(kernel.body) for n in block if isinstance(n, (SetFlag, WaitFlag))}
    for key in sorted(flags):
        saved = [(block, list(block)) for block in blocks(kernel.body)]
        for block, _ in saved:
            block[:] = [n for n in block if not isinstance(n, (SetFlag, WaitFlag)) or _key(n) != key]
        yield f"without flag {key}"
        for block, nodes in saved:
            block[:] = nodes


def without_one(kernel: KernelForm, kinds: tuple[type, ...]) -> Iterator[str]:
    """The kernel without one of the nodes of these kinds, which is put back each time."""
    for block in list(blocks(kernel.body)):
        for at, node in enumerate(list(block)):
            if isinstance(node, kinds):
                del block[at]
                yield f"without {type(node).__name__} at {at}"
                block.insert(at, node)


def _key(flag: SetFlag | WaitFlag) -> tuple[str, str, int]:
    return flag.source, flag.target, flag.event


def kernels_of(compiled: Any) -> list[KernelForm]:
    return compiled._kernel.built.program.kernels


def written(fn: Callable[..., Any], *specs: Any) -> Any:
    """A kernel compiled for the target, as it is given."""
    return fn.compile(*specs, target="ascend")  # type: ignore[attr-defined]


def ordered(cases: Mapping[str, tuple[Any, tuple[Any, ...]]], directory: Path) -> Programs:
    """Kernels by name, with the kinds of their arguments, written: all of them are in order and legal."""
    compiled = {name: written(fn, *specs) for name, (fn, specs) in cases.items()}
    for program in compiled.values():
        for form in kernels_of(program):
            assert races(form) == [] and violations(form) == []
    return Programs(compiled, directory)


def check_interpreted(
    programs: Programs,
    fn: Any,
    name: str,
    inputs: dict[str, np.ndarray],
    outputs: dict[str, np.ndarray],
    compare: Callable[..., None] = np.testing.assert_array_equal,
) -> None:
    """A program gives what the interpreter gives of `fn`, inputs before outputs, in several orders of the pipes."""
    wanted = {k: v.copy() for k, v in outputs.items()}
    fn.interpret(*inputs.values(), *wanted.values())
    for seed in SEEDS:
        mine = {k: v.copy() for k, v in outputs.items()}
        programs.run(name, seed, **inputs, **mine)
        for k, v in wanted.items():
            compare(mine[k], v, err_msg=k)
