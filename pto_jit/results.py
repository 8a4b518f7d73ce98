# SPDX-License-Identifier: MIT
"""The structure of what a kernel returns: for the launch, and as JSON for the disk cache."""

from __future__ import annotations

import sys
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np

from pto_jit.codegen.leaf import Leaf


def leaf_items(plan: Any) -> tuple[Any, ...]:
    """The items of a target's result plan (None, one item, or a tuple of items) as a tuple."""
    if plan is None:
        return ()
    if isinstance(plan, str) or plan[0] == "tensor":
        return (plan,)
    return tuple(plan)


def result_plan(structure: Any, items: tuple[Any, ...]) -> Any:
    """The runtime's result plan: `items[k]` where the structure has leaf k; a flat tuple when `is_arranged`."""
    if structure is None:
        return None
    if is_arranged(structure):
        return items
    if isinstance(structure, Leaf):
        return items[structure.number]
    if type(structure) is tuple:
        return tuple(result_plan(s, items) if s is not None else ("value", None) for s in structure)
    return ("value", structure)


def is_arranged(structure: Any) -> bool:
    """Whether the runtime cannot build the result: lists and dicts (new ones at every call) and named tuples."""
    if isinstance(structure, (list, dict)):
        return True
    if isinstance(structure, tuple):
        return (type(structure) is not tuple and _has_leaf(structure)) or any(is_arranged(s) for s in structure)
    return False


def _has_leaf(structure: Any) -> bool:
    if isinstance(structure, tuple):
        return any(_has_leaf(s) for s in structure)
    return isinstance(structure, (Leaf, list, dict))


def arranging(structure: Any) -> Callable[[Any], Any]:
    """What makes the returned object, its leaves filled in from the flat tuple of a launch."""
    if isinstance(structure, Leaf):
        return itemgetter(structure.number)
    if not isinstance(structure, (dict, list, tuple)):
        return lambda values: structure
    parts = [arranging(part) for part in (structure.values() if isinstance(structure, dict) else structure)]
    if isinstance(structure, dict):
        keys = tuple(structure)
        return lambda values: dict(zip(keys, [part(values) for part in parts], strict=True))
    maker = getattr(structure, "__pto_maker__", None)
    make = type(structure) if maker is None else maker()
    if hasattr(structure, "_make"):
        return lambda values: make(*[part(values) for part in parts])
    return lambda values: make([part(values) for part in parts])


def converter(structure: Any, torch: bool) -> Callable[[Any], Any] | None:
    """What turns the value of a launch into what the caller gets; None when they are the same.

    `torch`: returned arrays become torch tensors over the same memory.
    """
    if not is_arranged(structure):
        return to_torch if torch and _has_leaf(structure) else None
    arranged = arranging(structure)
    return arranged if not torch else lambda values: to_torch(arranged(values))


def to_torch(result: Any) -> Any:
    """Arrays, also inside containers, as torch tensors over the same memory."""
    if isinstance(result, np.ndarray):
        import torch  # pyright: ignore[reportMissingImports] - the caller has it, and gave us a tensor of it

        if result.dtype.name == "bfloat16":
            return torch.from_numpy(result.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(result)
    if isinstance(result, dict):
        return {k: to_torch(v) for k, v in result.items()}
    if isinstance(result, tuple) and hasattr(result, "_make"):
        return type(result)(*(to_torch(v) for v in result))
    if isinstance(result, (tuple, list)):
        return type(result)(to_torch(v) for v in result)
    return result


# -- for the disk cache -----------------------------------------------------------------------------------------------


def encode(structure: Any) -> Any:
    """As a JSON value; None when it holds objects that another process could not make again."""
    if isinstance(structure, Leaf):
        return {"leaf": structure.number, "weak": structure.weak}
    if structure is None or type(structure) in (bool, int, float, str):
        return {"value": structure}
    if type(structure) in (tuple, list):
        return _encoded(type(structure).__name__, structure)
    if type(structure) is dict:
        if not all(type(k) in (str, int) for k in structure):
            return None
        found = _encoded("dict", structure.values())
        return found and {**found, "keys": list(structure)}
    if isinstance(structure, tuple) and hasattr(structure, "_make"):
        cls = type(structure)
        found = _encoded("named", structure) if _named(cls.__module__, cls.__qualname__) is cls else None
        return found and {**found, "class": [cls.__module__, cls.__qualname__]}
    return None


def _encoded(kind: str, items: Any) -> dict[str, Any] | None:
    encoded = [encode(i) for i in items]
    return None if None in encoded else {kind: encoded}


def _named(module: str, qualname: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


def decode(data: Any) -> Any:
    """The inverse of `encode`; a LookupError when a class is not there any more."""
    match data:
        case {"leaf": number, "weak": weak}:
            return Leaf(number, weak)
        case {"tuple": items}:
            return tuple(decode(i) for i in items)
        case {"list": items}:
            return [decode(i) for i in items]
        case {"dict": items, "keys": keys}:
            return dict(zip(keys, map(decode, items), strict=True))
        case {"named": items, "class": [module, qualname]}:
            cls = _named(module, qualname)
            if cls is None:
                raise LookupError(f"{module}.{qualname}")
            return cls(*map(decode, items))
        case _:
            return data["value"]
