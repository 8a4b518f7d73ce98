# SPDX-License-Identifier: MIT
"""Run a function of a .pto file on arrays from .npy files and on numbers.

A tensor is given as a file, x=in.npy, or as extents, y=32x8 (zeros). One that is only saved is zeros in the shape of
the first given tensor that fits. Results are printed.
"""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from pto_jit.commands.output import show
from pto_jit.errors import ArgumentError
from pto_jit.ir.nodes import Func, Var
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.runtime.files import written

_NAME_AND_VALUE = re.compile(r"([^=]+)=(.*)", re.DOTALL)
_EXTENTS = re.compile(r"\d+(x\d+)*", re.ASCII)


def name_and_value(text: str) -> tuple[str, str]:
    """`NAME=VALUE` taken apart."""
    match = _NAME_AND_VALUE.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return match[1], match[2]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.pto", help="the program")
    parser.add_argument("arguments", nargs="*", type=name_and_value, metavar="NAME=VALUE",
                        help="x=in.npy (an array), y=32x8 (zeros), n=4 (a number)")  # fmt: skip
    parser.add_argument("--entry", metavar="NAME", help="the function to run (default: the program's entry)")
    parser.add_argument("--save", action="append", default=[], type=name_and_value, metavar="NAME=FILE.npy",
                        help="write a tensor argument to a file afterwards; may be repeated")  # fmt: skip
    parser.add_argument("--target", default="cpu", help="what to compile for (default: cpu)")
    parser.add_argument("--debug", action="store_true", help="check element bounds, races and assertions")
    parser.add_argument("--interpret", action="store_true", help="run in the reference interpreter")


def run(given: argparse.Namespace) -> int:
    from pto_jit.assembly import load_pto

    module = load_pto(given.file)
    name = module.entry if given.entry is None else given.entry.removeprefix("@")
    if name not in module:
        raise ArgumentError(
            f"PTO-A035: {given.file} has no function @{name}\n"
            f"help: {module.similar(name) or 'its functions are ' + ', '.join(f'@{n}' for n in module)}"
        )
    func = module[name].func
    values = _values(func, given.arguments, [name for name, _ in given.save])
    targets = _targets(func, given.save)
    function = module.compile(given.target, debug=given.debug)[name]
    call = function.interpret if given.interpret else function
    result = call(*values.values())
    for path, tensor in targets.items():
        with written(path) as file:
            np.save(file, values[tensor])
    if result is not None:
        for value in result if isinstance(result, tuple) else (result,):
            show(str(value))
    return 0


def _targets(func: Func, saved: list[tuple[str, str]]) -> dict[Path, str]:
    """Which tensor each file gets; files that cannot be written are found before anything runs.

    As `numpy.save` does, names get the suffix .npy when they have none.
    """
    found: dict[Path, str] = {}
    for name, text in saved:
        path = Path(text if text.endswith(".npy") else f"{text}.npy")
        if not text or text.endswith(("/", os.sep)) or path.is_dir() or not path.absolute().parent.is_dir():
            raise _error(func, f"`{name}` cannot be saved as {text!r}", "give a file in a directory that exists")
        if found.setdefault(path, name) != name:
            raise _error(func, f"{path} would hold `{found[path]}` and `{name}`", "give each a file of its own")
    return found


def _values(func: Func, arguments: list[tuple[str, str]], saved: list[str]) -> dict[str, Any]:
    """The value of each parameter, in order."""
    params = {p.name: p for p in func.params}
    texts: dict[str, str] = {}
    for name, text in arguments:
        if name in texts:
            raise _error(func, f"`{name}` is given twice", "give it once")
        texts[name] = text
    for name in (*texts, *saved):
        if name not in params:
            raise _error(func, f"there is no parameter `{name}`", f"its parameters are {', '.join(params) or 'none'}")
    for name in saved:
        if isinstance(params[name].type, ScalarType):
            raise _error(func, f"`{name}` is a scalar and cannot be saved", "save tensors")
    found: dict[str, Any] = {name: _value(func, params[name], text) for name, text in texts.items()}
    arrays = [value for value in found.values() if isinstance(value, np.ndarray)]
    for name, param in params.items():
        if name not in found:
            if name not in saved:
                raise _error(func, f"`{name}` is missing", f"give it: {name}={_example(param)}")
            found[name] = _like(func, param, arrays)
    return {name: found[name] for name in params}


def _value(func: Func, param: Var, text: str) -> Any:
    kind = param.type
    if isinstance(kind, TensorType):
        if _EXTENTS.fullmatch(text):
            try:
                return np.zeros([int(extent) for extent in text.split("x")], kind.dtype.numpy)
            except (ValueError, MemoryError) as error:
                message = f"`{param.name}`: {text[:80]} is too large ({error})"
                raise _error(func, message, "give extents that fit") from None
        return _array(func, param, kind, Path(text))
    assert isinstance(kind, ScalarType)
    if kind.dtype.kind == "b" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return float(text) if kind.dtype.is_float else int(text, 0)
    except ValueError:
        raise _error(
            func, f"`{param.name}` is {text!r}, not a number of {kind}", f"as {param.name}={_example(param)}"
        ) from None


def _array(func: Func, param: Var, kind: TensorType, path: Path) -> np.ndarray[Any, Any]:
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise _error(func, f"`{param.name}`: there is no file {path}", "give a .npy file, or extents as 32x8") from None
    except (ValueError, OSError, EOFError) as error:
        raise _error(func, f"`{param.name}`: {path} is not a .npy file ({error})", "write it with numpy.save") from None
    if not isinstance(array, np.ndarray):
        raise _error(func, f"`{param.name}`: {path} holds several arrays", "write it with numpy.save")
    if array.dtype.kind == "V" and array.dtype.itemsize == kind.dtype.bytes:
        return array.view(kind.dtype.numpy)  # NumPy saves dtypes that it does not know, such as bfloat16, as bytes
    return array


def _like(func: Func, param: Var, arrays: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Zeros for a tensor that is only saved: its own extents, or those of an argument that it could be."""
    kind = param.type
    assert isinstance(kind, TensorType)
    shapes = [array.shape for array in arrays]
    if None not in kind.shape:
        shapes.insert(0, tuple(extent for extent in kind.shape if extent is not None))
    for shape in shapes:
        if len(shape) == kind.rank and all(e in (None, n) for e, n in zip(kind.shape, shape, strict=True)):
            return np.zeros(shape, kind.dtype.numpy)
    raise _error(func, f"the extents of `{param.name}` are not known", f"give them: {param.name}={_example(param)}")


def _example(param: Var) -> str:
    kind = param.type
    if isinstance(kind, ScalarType):
        return "1.5" if kind.dtype.is_float else "true" if kind.dtype.kind == "b" else "4"
    return "x".join(str(extent or 32) for extent in kind.shape) or "in.npy"


def _error(func: Func, message: str, hint: str) -> ArgumentError:
    return ArgumentError(f"PTO-A034: {func.name}: {message}\nhelp: {hint}")
