# SPDX-License-Identifier: MIT
"""Loops over tensors and tiles, and over several counters: `enumerate`, `zip`, `itertools.product` and `np.ndindex` of
run-time ranges, tensors and tiles.

What goes through its ranges step by step (`enumerate`, `zip`, each of the other, too) is one loop that counts its
iterations, and whose items are computed of the count; those of a tensor are its elements, or its rows.  `product` and
`ndindex` are loops inside each other.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from pto_jit.codegen.builtins.python import attribute
from pto_jit.codegen.builtins.registry import call
from pto_jit.codegen.builtins.subscripts import subscript
from pto_jit.codegen.frames import MISSING
from pto_jit.codegen.iteration import LoopSpec, as_items, loop_spec
from pto_jit.codegen.names import LoopNames, stores
from pto_jit.codegen.values import Tensor, Tile, is_runtime
from pto_jit.errors import CompilationError, TypeMismatchError
from pto_jit.slotted import frozen, replace

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


class _Counted:
    def __iter__(self) -> NoReturn:
        raise CompilationError(
            "counters of run-time ranges are read at compile time",
            code="PTO-N077",
            hint="loop over them with `for`, or give bounds that are known at compile time",
        )


@frozen(eq=False)
class Together(_Counted):
    """The value of `enumerate` or `zip` of run-time ranges, and what a loop over a tensor or tile goes through."""

    spec: LoopSpec  # counts the iterations from 0
    item: Callable[[Any], Any]  # that of the k-th iteration


@frozen(eq=False)
class Inside(_Counted):
    """The value of `itertools.product` or `np.ndindex` of run-time ranges: what the loops go through, from outside."""

    parts: tuple[Any, ...]


def counted(value: Any) -> bool:
    """Whether a `for` over this is a run-time loop because run time counts its iterations."""
    return isinstance(value, (_Counted, Tensor, Tile)) or (isinstance(value, LoopSpec) and as_items(value) is None)


def counters(g: Generator, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`cls(*args, **kwargs)` as loops; MISSING where it is none of these, or Python goes through it."""
    if cls is np.ndindex and not kwargs:
        extents = args[0] if len(args) == 1 and isinstance(args[0], tuple) else args
        return Inside(tuple(loop_spec(g, n) for n in extents)) if any(map(is_runtime, extents)) else MISSING
    if cls not in _KINDS or not any(map(counted, args)):
        return MISSING
    return _KINDS[cls](g, *args, **kwargs)


def items_of(g: Generator, value: Tensor | Tile) -> Together:
    """The elements of what has one axis, the rows of what has more, as in NumPy."""
    if not value.rank:
        raise g.error(TypeMismatchError, f"a {type(value).__name__.lower()} without axes is not iterable",
                      code="PTO-T005", hint="read its element: `x[()]`", notes=g.origin(value))  # fmt: skip
    return Together(LoopSpec(0, attribute(g, value, "shape")[0]), lambda k: subscript(g, value, k))


def _reversed(g: Generator, value: Any) -> Together:
    if not isinstance(value, (Tensor, Tile)):
        return g.made(reversed, value)
    forwards = items_of(g, value)
    last = _minus(g, forwards.spec.stop, 1)
    return Together(forwards.spec, lambda k: forwards.item(_minus(g, last, k)))


def _enumerate(g: Generator, iterable: Any, start: Any = 0) -> Together:
    steps = _steps(g, iterable)
    return Together(steps.spec, lambda k: (_plus(g, start, k), steps.item(k)))


def _zip(g: Generator, *iterables: Any, strict: Any = False) -> Together:
    if strict:
        raise g.error(CompilationError, "`zip(..., strict=True)` of what run time counts", code="PTO-N078",
                      hint="leave `strict` out, and assert that they are equal")  # fmt: skip
    columns = [_steps(g, i) for i in iterables]
    least, *counts = [c.spec.stop for c in columns]
    for n in counts:
        both = isinstance(least, int) and isinstance(n, int)
        least = min(least, n) if both else call("minimum", g, (least, n), {})
    return Together(LoopSpec(0, least), lambda k: tuple(c.item(k) for c in columns))


def _product(g: Generator, *iterables: Any, repeat: Any = 1) -> Inside:
    times = g.static(repeat, "`repeat=` of itertools.product")
    node = g.node
    assert node is not None
    parts = [i if counted(i) else g.items.all_of(i, node) for i in iterables]
    return Inside(tuple(parts * int(times)))


_KINDS: dict[type, Callable[..., Any]] = {enumerate: _enumerate, zip: _zip, itertools.product: _product,
                                           reversed: _reversed}  # fmt: skip


def _steps(g: Generator, value: Any) -> Together:
    """A range, or what counts itself, as a loop over the numbers of its iterations."""
    if isinstance(value, Together):
        return value
    if isinstance(value, (Tensor, Tile)):
        return items_of(g, value)
    if isinstance(value, range):
        value = LoopSpec(value.start, value.stop, value.step)
    if not isinstance(value, LoopSpec):
        raise g.error(CompilationError, "what run time counts beside other items", code="PTO-N079",
                      hint="keep the items in a tensor, or count: `for i in range(n)`")  # fmt: skip
    start, step = value.start, value.step
    if value.kind != "sequential" or not isinstance(step, int):
        raise g.error(CompilationError, "counters beside a loop whose iterations have no order, or a run-time step",
                      code="PTO-N080", hint="write a plain `range` with a constant step, or compute them")  # fmt: skip
    count = value.stop
    if not (isinstance(start, int) and start == 0 and step == 1):
        distance = _minus(g, value.stop, start) if step > 0 else _minus(g, start, value.stop)
        size = abs(step)
        count = distance if size == 1 else _operate(g, ast.FloorDiv, _plus(g, distance, size - 1), size)
    return Together(LoopSpec(0, count), lambda k: _plus(g, start, k if step == 1 else _operate(g, ast.Mult, k, step)))


def _operate(g: Generator, op: type[ast.operator], a: Any, b: Any) -> Any:
    return g.operators.operate(op, a, b)


def _plus(g: Generator, a: Any, b: Any) -> Any:
    return b if isinstance(a, int) and a == 0 else _operate(g, ast.Add, a, b)


def _minus(g: Generator, a: Any, b: Any) -> Any:
    return a if isinstance(b, int) and b == 0 else _operate(g, ast.Sub, a, b)


def nested(g: Generator, node: ast.For, parts: Sequence[Any]) -> ast.For:
    """A `for` over `Inside` as loops inside each other, whose names are noted; `forget` drops these."""
    targets = list(node.target.elts) if isinstance(node.target, (ast.Tuple, ast.List)) else []
    body: list[ast.stmt] = node.body
    if len(targets) != len(parts) or any(isinstance(t, ast.Starred) for t in targets):
        counts = _new_names(g, node, len(parts))
        targets = [ast.Name(name, ast.Store()) for name in counts]
        all_of_them = ast.Tuple([ast.Name(name, ast.Load()) for name in counts], ast.Load())
        body = [ast.Assign([node.target], all_of_them), *body]
    names = g.frame.names.loops
    known: LoopNames = names[node]
    leaves = _breaks(node)
    for k in reversed(range(len(parts))):
        outer = frozenset(stores(targets[:k]))
        inside = k + 1 < len(parts) and leaves
        if inside:  # a loop that was left ends the one around it
            body = [*body, ast.Break()]
        orelse: list[ast.stmt] = node.orelse if k == 0 else [ast.Continue()] if leaves else []
        loop = ast.For(targets[k], ast.Constant(parts[k]), body, orelse)
        names[loop] = known if k == 0 else replace(
            known, assigned=tuple(n for n in known.assigned if n not in outer), exposed=known.exposed | outer,
            live_after=known.exposed | known.live_after | outer,
        )  # fmt: skip
        body = [loop]
    for new in ast.walk(body[0]):
        if "lineno" in new._attributes and not hasattr(new, "lineno"):
            ast.copy_location(new, node.iter if isinstance(new, ast.Constant) else node.target)
    return ast.copy_location(body[0], node)  # type: ignore[type-var]


def forget(g: Generator, loop: ast.For, parts: Sequence[Any]) -> None:
    for _ in parts:
        del g.frame.names.loops[loop]
        loop = loop.body[0]  # type: ignore[assignment]


def _breaks(node: ast.For) -> bool:
    """Whether a `break` of the loop stands in its body."""
    stack: list[ast.AST] = list(node.body)
    while stack:
        at = stack.pop()
        if isinstance(at, ast.Break):
            return True
        if isinstance(at, (ast.For, ast.While)):
            stack += at.orelse
        elif not isinstance(at, (ast.FunctionDef, ast.Lambda)):
            stack += ast.iter_child_nodes(at)
    return False


def _new_names(g: Generator, node: ast.For, count: int) -> list[str]:
    taken = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} | g.frame.names.locals | g.frame.vars.keys()
    names: list[str] = []
    for k in range(count):
        name = f"at_{k}"
        while name in taken:
            name += "_"
        names.append(name)
    return names
