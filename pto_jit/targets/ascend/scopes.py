# SPDX-License-Identifier: MIT
"""Names, numbers and extents of a kernel that is being written, and the blocks they are visible in."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import Any

from pto_jit.dtypes import DType, f64, i64
from pto_jit.errors import NOWHERE, Loc
from pto_jit.ir.nodes import Const, For, Func, Op, Operand, Var
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.ir.walk import statements
from pto_jit.targets.ascend import doubles
from pto_jit.targets.ascend.form import Assignment, Loop, Node, Parameter
from pto_jit.targets.ascend.lengths import is_positive, widens
from pto_jit.targets.ascend.machine import element_type
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.ascend.scalars import Scalars
from pto_jit.targets.ascend.sizes import Tensor, names, product
from pto_jit.targets.ascend.values import Expr, Size
from pto_jit.targets.cuda.facts import Facts
from pto_jit.targets.cuda.loops import written_tensor
from pto_jit.targets.source.identifiers import RESERVED, Identifiers

_WORD = re.compile(r"[A-Za-z_]\w*")
_NAMES = frozenset(
    """get_block_idx get_block_num get_subblockid flags set_flag wait_flag pipe_barrier trap half bfloat16_t Tile
    TileLeft TileRight TileAcc GlobalTensor Layout Rectangle pto Shape Stride DYNAMIC cores stream larger smaller modulo
    floor_divide VECTOR_CORES CUBE_CORES AICORE event_t""".split()
) | doubles.NAMES


class Scopes:
    """What a kernel's statements are written into.

    sizes: assumed bounds of run-time extents, by the name of the variable.
    """

    def __init__(self, func: Func, facts: Facts, sizes: dict[str, int]) -> None:
        self.func, self.facts, self.sizes = func, facts, sizes
        self.names = self.fresh_names()
        self.nodes: list[Node] = []
        self.around: list[list[Node]] = []  # the blocks around this one, which end with what this one is a part of
        self.scopes: list[dict[Any, Any]] = [{}]  # C++ names that are visible, expressions that have a name, tiles
        self.loops: list[Loop] = []
        self.tensors: dict[str, Tensor] = {}
        self.has_doubles = doubles.has_doubles(func)
        self.scalars = Scalars(self)
        self.parameters: list[Parameter] = []
        self.checks: list[tuple[str, str]] = []
        self.reach: dict[tuple[Size, Size], int] = {}  # how far tiles go beyond a place on an axis, by both
        self.branches = 0  # around what is being written, and while loops
        self.limited: dict[str, int] = {}
        self.clips: dict[str, tuple[Size, Size, Size]] = {}  # expression -> extent, limit and offset it comes from
        self.begins: dict[str, tuple[Operand, Size]] = {}  # clipped extent -> where it begins, of how much
        self.loop_of: dict[str, For] = {}
        self.written = {facts.roots[x.name] for s in statements(func.body) if (x := written_tensor(s)) is not None}
        self.defined: dict[str, Op] = {s.results[0].name: s for s in statements(func.body)
                                       if isinstance(s, Op) and len(s.results) == 1}  # fmt: skip
        self._parameters()

    @staticmethod
    def fresh_names() -> Identifiers:
        return Identifiers(RESERVED | _NAMES)

    # -- parameters -----------------------------------------------------------------------------------------------

    def _parameters(self) -> None:
        given = {p.name for p in self.func.params}
        for k, p in enumerate(self.func.params):
            name = self.names.of(p.name)
            if isinstance(p.type, TensorType):
                typ = element_type(p.type.dtype)
                if typ is None:
                    typ = {"b": "uint8_t", "f": "double", "u": "uint64_t"}[p.type.dtype.kind]
                self.parameters.append(Parameter(name, typ, True, ("argument", k)))
            else:
                assert isinstance(p.type, ScalarType)
                typ = "int64_t" if p.type.dtype == i64 else self.scalar_type(p.type.dtype, NOWHERE)
                if typ == doubles.TYPE:  # a launch hands over bits
                    typ, self.scalars.inline[p.name] = "uint64_t", f"{doubles.TYPE}{{{name}}}"
                self.parameters.append(Parameter(name, typ, False, ("argument", k)))
            self.scopes[0][name] = name
        for k, p in enumerate(self.func.params):
            if isinstance(p.type, TensorType):
                self._tensor(p, k, given)

    def _tensor(self, p: Var, k: int, given: set[str]) -> None:
        """Extents and strides of a tensor parameter: constants, parameters there are, or parameters of their own."""
        typ = p.type
        assert isinstance(typ, TensorType)
        name = self.names.of(p.name)
        extents: list[Size] = []
        for axis, extent in enumerate(typ.shape):
            known = next((n for n in sorted(given) if self.facts.is_dim(n, p.name, axis)), None)
            wish = known or f"{p.name}_d{axis}"
            extents.append(extent if extent is not None else self.parameter(wish, ("extent", k, axis)))
        strides: list[Size] = [1] * typ.rank
        if typ.layout == "c":
            for axis in range(typ.rank - 2, -1, -1):
                strides[axis] = product(strides[axis + 1], extents[axis + 1])
        else:
            last = typ.rank - (1 if typ.layout == "inner" else 0)
            for axis in range(last):
                strides[axis] = self.parameter(f"{p.name}_s{axis}", ("stride", k, axis))
        self.tensors[p.name] = Tensor(p.name, typ.dtype, Expr(name, frozenset([name])), tuple(extents), tuple(strides))

    def parameter(self, wish: str, origin: tuple[str | int, ...]) -> Expr:
        name = self.names.of(wish)
        if name not in self.scopes[0]:
            self.parameters.append(Parameter(name, "int64_t", False, origin))
            self.scopes[0][name] = name
        return Expr(name, frozenset([name]))

    def scalar_type(self, dtype: DType, loc: Loc) -> str:
        if dtype == f64 and self.has_doubles:
            return doubles.TYPE
        if dtype.is_float:
            return "float"
        if dtype.kind == "b":
            return "bool"
        if dtype.name in ("u64",):
            raise unsupported(f"numbers of {dtype}", loc, "use i64")
        return element_type(dtype) or "int64_t"

    # -- scopes and sizes -----------------------------------------------------------------------------------------

    @contextmanager
    def inside(self, nodes: list[Node]) -> Any:
        self.around.append(self.nodes)
        self.nodes = nodes
        self.scopes.append({})
        yield
        self.scopes.pop()
        self.nodes = self.around.pop()

    def visible(self, size: Size) -> bool:
        return all(any(n in scope for scope in self.scopes) for n in names(size))

    def named(self, size: Size, wish: str, loc: Loc) -> int | str:
        """A size as a number or a name; an expression gets a name where it is used first."""
        if isinstance(size, int):
            return size
        for scope in reversed(self.scopes):
            if size.text in scope:
                return scope[size.text]
        if not self.visible(size):
            raise unsupported("a tile whose valid extents change in a loop, used after it", loc,
                              "give it constant extents that divide the tensor's")  # fmt: skip
        name = self.names.fresh(wish)
        self.nodes.append(Assignment("int64_t", name, size.text, loc))
        self.scopes[-1][size.text] = name
        self.scopes[-1][name] = name
        return name

    def named_early(self, size: Size, wish: str, loc: Loc) -> int | str:
        """The same, but the name is given as early as it can be: what is made in a loop is read after it."""
        fixed = [name for name in names(size) if name not in {self.names.of(m) for m in self.facts.mutable}]
        if isinstance(size, int) or any(size.text in scope for scope in self.scopes) or len(fixed) < len(names(size)):
            return self.named(size, wish, loc)
        depth = max((min(k for k, scope in enumerate(self.scopes) if n in scope) for n in fixed), default=0)
        if depth == len(self.scopes) - 1:
            return self.named(size, wish, loc)
        name = self.names.fresh(wish)
        self.around[depth].insert(-1, Assignment("int64_t", name, size.text, loc))
        self.scopes[depth] |= {size.text: name, name: name}
        return name

    def size(self, operand: Operand) -> Size:
        """An index or extent."""
        if isinstance(operand, Const):
            return int(operand.value)
        known = next((e for e in self._dims_of(operand.name)), None)
        if known is not None:
            return known
        name = self.number(operand)
        return Expr(name, frozenset([name])) if name.isidentifier() else Expr(name, frozenset(self._words(name)))

    def _dims_of(self, name: str) -> list[Size]:
        out: list[Size] = []
        for tensor, axis in sorted(self.facts.dims.get(name, ())):
            known = self.tensors.get(tensor)
            if known is not None:
                out.append(known.extents[axis])
        return out

    def _words(self, expression: str) -> list[str]:
        return [w for w in _WORD.findall(expression) if w not in _NAMES]

    def bound(self, operand: Operand, loc: Loc) -> int:
        """The most an extent can be: what tiles have memory for."""
        if isinstance(operand, Const):
            return max(1, int(operand.value))
        known = self.upper(operand)
        if known is not None:
            made = {name: op for name, op in self.defined.items() if name not in self.facts.mutable}
            if not is_positive(operand, made, self.loop_of):
                self.make_sure(0, self.size(operand), loc)
            return max(1, known)
        dims = [s for s in self._dims_of(operand.name) if isinstance(s, int)]
        if dims:
            return max(1, dims[0])
        ceiling = self.facts.ceilings.get(operand.name)
        if ceiling is not None:  # which the host knows
            self.make_sure(0, self.size(operand), loc)
            return self.bound(ceiling, loc)
        if operand.name not in self.sizes:
            raise unsupported(
                f"a tile of a run-time extent `{operand.name}` that is computed in the kernel", loc,
                "give it a bound, as in `pl.minimum(n, 64)`, constant extents, or those of tensors",
            )  # fmt: skip
        self.limited[self.names.of(operand.name)] = self.sizes[operand.name]
        return self.sizes[operand.name]

    def make_sure(self, at: Size, limit: Size, loc: Loc) -> None:
        raise NotImplementedError

    def upper(self, operand: Operand, depth: int = 0) -> int | None:
        """A constant that an integer does not exceed, where its definition says one."""
        if isinstance(operand, Const):
            return int(operand.value)
        op = self.defined.get(operand.name)
        if op is None or operand.name in self.facts.mutable or depth > 4:
            return None
        if op.op == "min":
            found = [b for b in (self.upper(a, depth + 1) for a in op.args) if b is not None]
            return min(found, default=None)
        whole = op.op == "copy" or widens(op)
        return self.upper(op.args[0], depth + 1) if whole else None

    def number(self, operand: Operand) -> str:
        """A number as the scalar unit has it."""
        return self.scalars.read(operand)
