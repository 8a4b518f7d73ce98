# SPDX-License-Identifier: MIT
"""Names at compile time: the variables of each function being compiled, and what an unusable name remembers."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.names import FunctionNames, analyse
from pto_jit.errors import Loc, Note
from pto_jit.slotted import field, frozen, mutable
from pto_jit.source import FunctionNode, Located, SourceFile

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

BUILTINS: Mapping[str, Any] = vars(builtins)


class Missing:
    """The type of `MISSING`: no binding at all."""

    def __repr__(self) -> str:
        return "<missing>"


MISSING = Missing()


@frozen(eq=False)
class Unusable:
    """A binding that cannot be read: possibly unset, or of two kinds where control flow met.

    Control flow does not fail where paths meet, only where such a name is used.
    """

    message: str
    code: str
    notes: tuple[Note, ...] = ()
    hint: str | None = None
    unset: bool = False  # no value at all (and not: two values that do not go together)
    dead: bool = False  # nothing reads it, by the analysis of the source: its value does not matter
    held: Any = MISSING  # unset: the value where a part of a condition has set it


@mutable(eq=False)
class Frame:
    """The variables of one activation of a function, lambda or comprehension.

    `region` counts the run-time branches and loops open when the frame was made: a change of one of its names under
    a deeper one has to be merged when that one ends.
    """

    file: SourceFile
    names: FunctionNames
    globals: Mapping[str, Any]
    cells: Mapping[str, CellType]
    parent: Frame | None
    name: str
    region: int
    caller: Loc | None
    is_comprehension: bool = False
    vars: dict[str, Any] = field(default_factory=dict)
    places: dict[str, ast.AST] = field(default_factory=dict)  # where each name was bound last
    is_orchestration: bool = False  # a jit body (and not a helper inlined into one)
    given: int = 0  # tensors that were made before it: its callers know them

    def owner(self, name: str) -> Frame | None:
        """The frame whose variable `name` means here; None for cells, globals and builtins."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.vars or (name in frame.names.locals and name not in frame.names.nonlocals):
                return frame
            frame = frame.parent
        return None

    @property
    def function(self) -> Frame:
        """The frame of the enclosing function: where `:=` in a comprehension binds."""
        frame = self
        while frame.is_comprehension and frame.parent is not None:
            frame = frame.parent
        return frame

    def visible(self) -> set[str]:
        """Every name that could be written here, for suggestions."""
        names: set[str] = set()
        frame: Frame | None = self
        while frame is not None:
            names |= frame.vars.keys()
            frame = frame.parent
        return names | self.cells.keys() | set(self.globals) | BUILTINS.keys()


class KernelFunction:
    """A function or lambda written inside a kernel.

    It sees the variables of the frame that defined it, by reference.  Python code that runs at compile time
    (`sorted(key=...)`, `functools.reduce`) can call it like any function, and name it (`functools.wraps`).
    """

    # What is the function's own is no part of `__dict__`, which wrappers get from what they wrap.
    __slots__ = ("__dict__", "__name__", "defaults", "file", "frame", "generator", "kw_defaults", "node")

    def __init__(
        self,
        generator: Generator,
        node: ast.FunctionDef | ast.Lambda,
        frame: Frame,
        defaults: tuple[Any, ...],
        kw_defaults: dict[str, Any],
    ) -> None:
        self.generator = generator
        self.node = node
        self.frame = frame
        self.file = frame.file
        self.defaults = defaults
        self.kw_defaults = kw_defaults
        self.__name__ = self.__qualname__ = node.name if isinstance(node, ast.FunctionDef) else "<lambda>"
        self.__doc__ = ast.get_docstring(node) if isinstance(node, ast.FunctionDef) else None
        self.__module__ = str(frame.globals.get("__name__"))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.generator.inline(self, args, kwargs)

    def __repr__(self) -> str:
        return f"<function {self.__name__}>"


def names_of(located: Located) -> FunctionNames:
    """The (cached) analysis of a function's names."""
    return node_names(located.file, located.node)


def node_names(file: SourceFile, node: FunctionNode) -> FunctionNames:
    known = file.notes.get(node)
    if not isinstance(known, FunctionNames):
        known = file.notes[node] = analyse(node)
    return known


def cells_of(fn: FunctionType) -> dict[str, CellType]:
    """The captured variables of a function, by name."""
    return dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
