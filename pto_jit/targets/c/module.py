# SPDX-License-Identifier: MIT
"""What the functions of one C source share: failure sites, calls of the runtime, helpers, finished functions."""

from __future__ import annotations

from typing import Any

from pto_jit.ir.nodes import Block, Module
from pto_jit.targets.c.recipes import CRecipes
from pto_jit.targets.cpu.module import ModuleWriter
from pto_jit.targets.source.identifiers import RESERVED, Identifiers
from pto_jit.targets.source.library_names import LIBRARY


class CModule(ModuleWriter):
    """One C source under construction."""

    globals: dict[str, str] = {"llvm.memset.p0.i64": "llvm.memset.p0.i64"}  # noqa: RUF012

    def __init__(self, program: Module, *, debug: bool, fast: bool, dialect: Any) -> None:
        super().__init__(None, None, debug, fast, program)  # pyright: ignore[reportArgumentType]
        self.recipes = CRecipes()
        self.dialect = dialect
        self.calls: set[str] = set()
        self.names = Identifiers(RESERVED | _TAKEN | LIBRARY | {"slots"})  # of functions; tasks get slots
        self.function_names: dict[str, str] = {}
        self.functions: list[tuple[str, str]] = []
        """What parallel loops and tasks became, with the name of the IR function that they are of."""
        self.called: dict[str, set[str]] = {}
        """The IR functions that each one calls."""
        self.products: dict[str, Any] = {}
        self.sorts: set[Any] = set()
        self._shared: dict[int, Any] = {}
        self._taken: tuple[int, frozenset[str]] = -1, frozenset()

    def taken(self) -> frozenset[str]:
        """Names that variables must not have."""
        if self._taken[0] != len(self.function_names):
            self._taken = len(self.function_names), RESERVED | _TAKEN | set(self.function_names.values())
        return self._taken[1]

    def dialect_headers(self) -> list[str]:
        """What the vector instructions of the target need."""
        return [] if self.dialect is None else list(self.dialect.headers)

    @property
    def vector_bytes(self) -> int:
        return 0

    def reached(self, entry: str) -> set[str]:
        """The IR functions that the entry needs, itself included."""
        seen, work = {entry}, [entry]
        while work:
            new = self.called.get(work.pop(), set()) - seen
            seen |= new
            work += new
        return seen

    def shared_groups(self, body: Block) -> Any:
        """The groups that occur more than once in the body of an IR function."""
        found = self._shared.get(id(body))
        if found is None:
            from pto_jit.targets.c.shared import SharedGroups

            found = self._shared[id(body)] = SharedGroups(body)
        return found

    def product(self, name: str) -> Any:
        """The matrix product that the CPU target calls `name`."""
        if name not in self.products:
            from pto_jit.targets.c.products import Product

            self.products[name] = Product(name, self.dialect)
        return self.products[name]


_TAKEN = frozenset(
    """worker context begin end status memory arguments results y0 y1 yn j0 j1 jn exp log sin cos tan tanh pow sqrt erf
    floor ceil trunc rint fabs fma max min abs div index round signbit remainder gamma time signal stdin stdout stderr
    errno NULL bool true false memset memcpy""".split()
)
