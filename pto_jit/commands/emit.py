# SPDX-License-Identifier: MIT
"""Write the sources of a kernel for a target: FILE.py:FUNCTION with the kinds of its arguments; or of a module.

A tensor is given by its extents and dtype, x=?x64xf32 (`?`: known when it runs), a compile-time argument by its value,
block=64, and a number that is passed when it runs by any value of its kind, n=1 or s=1.0. Arguments whose annotations
say that much need not be given. A module is FILE.pto or FILE.py:NAME of a PTOModule, which declare their types; what is
written is its entry, or the function of FILE.pto:FUNCTION. The files go to OUT/output_<target>/<module>/.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import inspect
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pto_jit.commands.output import show
from pto_jit.commands.run import name_and_value
from pto_jit.dtypes import BY_NAME
from pto_jit.errors import ArgumentError

_DIRECTORIES = {"neon": "output_arm64", "ascend": "output_ascend910b"}
_TENSOR = re.compile(r"((?:\d{1,99}|\?)x)*(\w+)", re.ASCII)
_NUMBERS: dict[type, Any] = {int: 1, float: 1.0, bool: True}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", metavar="FILE.py:FUNCTION", help="the kernel; or FILE.pto, FILE.pto:FUNCTION")
    parser.add_argument("arguments", nargs="*", type=name_and_value, metavar="NAME=KIND",
                        help="x=?x64xf32 (a tensor), block=64, s=1.0 (numbers)")  # fmt: skip
    parser.add_argument("--target", default="c", help="what to write for (default: c)")
    parser.add_argument("--out", default=".", metavar="DIR", help="where output_<target> goes (default: here)")
    parser.add_argument("--library", choices=("static", "shared"), help="compile a library with a C header, too")
    parser.add_argument("--name", help="of the program and its functions (default: the kernel's or module's)")
    parser.add_argument("--debug", action="store_true", help="check element bounds, races and assertions")
    parser.add_argument("--fastmath", action="store_true", help="allow reassociation and contraction")


def run(given: argparse.Namespace) -> int:
    path, _, name = given.kernel.rpartition(":")
    if not path and name.endswith(".pto"):
        path, name = name, ""
    if not path:
        file = given.kernel if given.kernel.endswith(".py") else "kernels.py"
        raise _error(f"{given.kernel!r} is not FILE.py:FUNCTION", f"as {file}:softmax")
    options = {"target": given.target, "debug": given.debug, "fastmath": given.fastmath}
    if path.endswith(".pto"):
        label, compiled = _of_text(path, name, given, options)
    else:
        found = _find(Path(path), name)
        if _is_kernel(found):
            label, compiled = _of_kernel(found, name, given, options)
        else:
            label, compiled = _of_module(found, given, options)
    output = _DIRECTORIES.get(given.target, f"output_{given.target}")
    directory = Path(given.out, output, given.name or re.sub(r"\W", "_", label))
    try:
        paths = compiled.write(directory, name=given.name)
    except OSError as error:
        what = f"{error.filename or directory} cannot be written: {error.strerror}"
        raise _error(what, "let --out name a directory of your own") from error
    if given.library:
        paths += compiled.library(directory, given.library, name=given.name)
    for written in dict.fromkeys(paths):
        show(str(written))
    return 0


def _of_kernel(kernel: Any, name: str, given: argparse.Namespace, options: dict[str, Any]) -> tuple[str, Any]:
    """The name of a kernel's directory, and what is to be written."""
    values = _values(kernel, given.arguments)
    taken = next((n for n in options if n in values), None)
    if taken is not None:
        raise _error(f"`{name}` has a parameter `{taken}`, which is an option of compilations, too", "rename it")
    compiled = kernel.compile(**values, **options)
    return compiled.name, compiled


def _of_module(
    module: Any, given: argparse.Namespace, options: dict[str, Any], function: str = ""
) -> tuple[str, Any]:  # fmt: skip
    """The same of a module: its entry, or the function that is named."""
    if given.arguments:
        name = given.arguments[0][0]
        raise _error(f"`{name}` is given, and functions of modules declare their types", "leave it out")
    compiled = module.compile(**options)
    if function and function not in compiled.functions:
        raise _error(f"the module has no function `{function}`", f"its functions are {', '.join(compiled.functions)}")
    return module.name, compiled[function] if function else compiled.entry


def _of_text(path: str, function: str, given: argparse.Namespace, options: dict[str, Any]) -> tuple[str, Any]:
    """The same of a `.pto` file."""
    from pto_jit.assembly import load_pto

    if not Path(path).is_file():
        raise _error(f"there is no file {path}", "give the path of a .pto file")
    return _of_module(load_pto(path), given, options, function)


def _find(path: Path, name: str) -> Any:
    """The kernel or module of that name in a Python file, which is run as a module."""
    if not path.is_file():
        raise _error(f"there is no file {path}", "give the path of a Python file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise _error(f"{path} is not a Python file", "give a file whose name ends in .py")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(path.stem)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent.resolve()))
        if before is not None:
            sys.modules[path.stem] = before
    found: Any = module
    owner, part = found, ""
    for part in name.split("."):
        owner, found = found, getattr(found, part, None)
    if inspect.isclass(owner) and hasattr(inspect.getattr_static(owner, part, None), "__pto_jit__"):  # of no object yet
        raise _error(f"`{name}` is a method, which is compiled for an object",
                     f"make one in {path.name}, `model = {owner.__name__}(...)`, and give {path.name}:model.{part}")
    if hasattr(found, "__pto_incore__"):
        raise _error(f"`{name}` is an in-core function", "give a @pto.jit function that calls it")
    if not _is_kernel(found) and not (hasattr(found, "to_pto") and hasattr(found, "compile")):
        kernels = [n for n, value in vars(module).items() if _is_kernel(value)]
        kernels += [f"{n}.{part}" for n, value in vars(module).items() if isinstance(value, SimpleNamespace)
                    for part, inner in vars(value).items() if _is_kernel(inner)]  # fmt: skip
        raise _error(f"{path} has no kernel `{name}`", f"its kernels are {', '.join(kernels) or 'none'}")
    return found


def _is_kernel(value: Any) -> bool:
    """Whether it is a jit function or method, or a comprehension (whose program may depend on arguments)."""
    return hasattr(type(value), "__pto_jit__") or hasattr(value, "__pto_jit__")


def _parameters(kernel: Any) -> dict[str, tuple[bool, Any]]:
    """For each parameter whether it has a default, and what its declaration says of the argument; None: not enough."""
    definition = getattr(kernel, "definition", None)
    if definition is not None:  # a comprehension; `_special`: parameters that its program is made for the values of
        written = {r.name for r in definition.returns}
        return {p.name: (False, None if p.name in kernel._special else _declared(p, p.name in written))
                for p in definition.parameters}  # fmt: skip
    parameters = list(inspect.signature(kernel.__pto_jit__).parameters.values())
    if getattr(kernel, "__self__", None) is not None:  # a method: its object is there
        del parameters[0]
    return {p.name: (p.default is not p.empty, _annotated(kernel, p.name)) for p in parameters}


def _values(kernel: Any, arguments: list[tuple[str, str]]) -> dict[str, Any]:
    """What `compile` gets for each parameter."""
    parameters = _parameters(kernel)
    found: dict[str, Any] = {}
    for name, text in arguments:
        if name not in parameters:
            raise _error(f"`{kernel.__name__}` has no parameter `{name}`", f"they are {', '.join(parameters)}")
        if name in found:
            raise _error(f"`{name}` is given twice", "leave one out")
        found[name] = _value(name, text)
    for name, (optional, known) in parameters.items():
        if name in found or optional:
            continue
        if known is None:
            raise _error(f"`{name}` of `{kernel.__name__}` is not given", f"{name}=?x?xf32 for a tensor, or {name}=1")
        found[name] = known
    return found


def _value(name: str, text: str) -> Any:
    match = _TENSOR.fullmatch(text)
    if match is not None and match[2] in BY_NAME:
        extents = text.split("x")[:-1]
        return _spec(tuple(None if e == "?" else int(e) for e in extents), BY_NAME[match[2]])
    try:
        return ast.literal_eval({"true": "True", "false": "False"}.get(text, text))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # all of them by wrong literals
        raise _error(f"{name}={text!r} is neither a tensor nor a value", f"{name}=?x?xf32, or {name}=1") from None


def _declared(parameter: Any, written: bool) -> Any:
    """What a comprehension says of an argument; one that is written and has no sizes is an array of one element."""
    if written and not parameter.sizes:
        return _spec((1,), parameter.dtype)
    if parameter.sizes:
        return _spec(tuple(e if isinstance(e, int) else None for e in parameter.sizes), parameter.dtype)
    return 1.0 if parameter.dtype.is_float else parameter.dtype.kind == "b" or 1


def _annotated(kernel: Any, name: str) -> Any:
    """What an annotation says of an argument; None where that is not enough."""
    annotation = kernel._parameters.annotations.get(name)
    if not isinstance(annotation, type) and hasattr(annotation, "dtype") and hasattr(annotation, "shape"):
        return _spec(tuple(e if isinstance(e, int) else None for e in annotation.shape), annotation.dtype)
    return _NUMBERS.get(annotation) if isinstance(annotation, type) else None


def _spec(shape: tuple[int | None, ...], dtype: Any) -> Any:
    from pto_jit.arguments import spec

    return spec(shape, dtype)


def _error(message: str, hint: str) -> ArgumentError:
    return ArgumentError(f"PTO-A061: {message}\nhelp: {hint}")
