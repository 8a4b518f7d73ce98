# SPDX-License-Identifier: MIT
"""Groups as tiles over their inner indices: rows of a reduction, or the tile of a matrix product.

What a statement computes stays at hand as a tile for the statements behind it; it is stored once, when the group is
done with it.  Functions of one text are computed once.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from pto_jit import dtypes
from pto_jit.comprehensions.forms import symbolic
from pto_jit.comprehensions.inference import Inferred
from pto_jit.comprehensions.lowering.elements import open_loop
from pto_jit.comprehensions.lowering.expressions import Elements, Text, _in, point
from pto_jit.comprehensions.lowering.plan import Group, inner_axes
from pto_jit.comprehensions.lowering.products import Operand, Product
from pto_jit.comprehensions.nodes import Apply, Binary, Expression, Name, Read, Select, Unary, children
from pto_jit.comprehensions.symbolic import Expr, name
from pto_jit.comprehensions.typing import COMPARISONS, Kind, common
from pto_jit.slotted import mutable

if TYPE_CHECKING:
    from pto_jit.comprehensions.lowering.kernel import Kernel

_ALONE = 20


@mutable(eq=False)
class Held:
    """A tensor whose elements of this iteration are at hand as `text`; `ranges`: of its inner axes."""

    text: str
    ranges: tuple[tuple[Expr, Expr], ...]
    store: str | None


def write(kernel: Kernel, group: Group) -> None:
    """Add the lines of a group to the kernel."""
    first = group.statements[0]
    tile = () if group.product is None else (group.product.rows, group.product.columns)
    places = [k for k, i in enumerate(first.statement.indices[: group.outer]) if i not in tile]
    state = _Group(kernel, places, group)
    with ExitStack() as loops:
        state.variables = [open_loop(kernel, loops, first, first.statement.indices[k], True) for k in places]
        for m in group.statements:
            state.statement(m)
        state.flush()


class _Group:
    """What the statements of a group share. places: the left positions that are loops."""

    def __init__(self, kernel: Kernel, places: list[int], group: Group) -> None:
        self.kernel, self.places, self.product = kernel, places, group.product
        self.variables: list[str] = []
        self.held: dict[str, Held] = {}
        self.known: dict[str, str] = {}  # text -> the name that has its value
        self.loads: dict[str, set[str]] = {}  # tensor -> texts that read it

    def statement(self, m: Inferred) -> None:
        s = m.statement
        outer = {s.indices[k]: v for k, v in zip(self.places, self.variables, strict=True)}
        if self.product is not None:
            axes = tuple(i for i in s.indices if i not in outer)
        else:
            axes = inner_axes(m, len(self.places)) or ()
        writer = Tiles(self, m, outer, axes)
        target = m.scope.tensors[s.target]
        dtype = target.dtype
        assert dtype is not None
        wide = dtypes.f32 if dtype.is_float and dtype.bits < 32 else dtype
        if self.product is not None and m.reduced:
            text = self.multiply(m, writer, self.product)
            own: Kind = dtypes.f64 if wide == dtypes.f64 else dtypes.f32
            if not s.fresh:
                text = f"{writer.of_target()} + {text}"
        elif m.reduced:
            values = writer.let(writer.value(s.value, wide), "t")
            text = f"pl.{s.op}({values}{self._axis(m, axes)})"
            own = wide if not (wide.is_integer and wide.bits < 64 and s.op in ("sum", "prod")) else "int"
            if not s.fresh:
                text = _combined(s.op or "sum", writer.of_target(), text)
        else:
            text, own = writer.value(s.value, dtype), dtype
            missing = tuple(i for i in s.indices if i in axes and i not in writer.axes(s.value))
            if missing:
                text = writer.spread(text, s.value, dtype)
            if s.op is not None and not s.fresh:
                text = _combined(s.op, writer.of_target(), f"({text})")
        if own != dtype:
            text = f"pl.cast({text}, pl.{dtype.name})"
        inner = any(i not in writer.outer for i in s.indices)
        value = writer.let(text, f"{s.target}_{'tile' if inner else 'value'}")
        self.write_target(m, writer, value)

    def _axis(self, m: Inferred, axes: tuple[str, ...]) -> str:
        reduced = [axes.index(i) for i in axes if i in m.reduced]
        if len(reduced) == len(axes):
            return ""
        return f", axis={reduced[0] if len(reduced) == 1 else tuple(reduced)}"

    def write_target(self, m: Inferred, writer: Tiles, value: str) -> None:
        s = m.statement
        target = m.scope.tensors[s.target]
        inner = [i for i in s.indices if i not in writer.outer]
        ranges = tuple(m.ranges[i] for i in inner)
        old = self.held.pop(target.name, None)
        if old is not None and old.store is not None and old.ranges != ranges:
            self.kernel.store(old.store, target.name)
        for text in self.loads.pop(target.name, ()):
            self.known.pop(text, None)
        stored, offsets, extents, kept = writer.rectangle(s.target, tuple(Name(i) for i in s.indices))
        if not inner:
            store = f"{stored}[{', '.join(offsets) or point(target)}] = {value}"
        else:
            whole = value if len(kept) == len(extents) else f"pl.reshape({value}, [{', '.join(extents)}])"
            store = f"pl.store({whole}, [{', '.join(offsets)}], {stored})"
        self.held[target.name] = Held(value, ranges, store)

    def flush(self, tensor: str | None = None) -> None:
        """Store what is held: all, or one tensor."""
        for stored, held in self.held.items():
            if held.store is not None and tensor in (None, stored):
                self.kernel.store(held.store, stored)
                held.store = None

    # -- products -------------------------------------------------------------------------------------------------

    def multiply(self, m: Inferred, writer: Tiles, product: Product) -> str:
        """The product of a statement: its text."""
        kernel = self.kernel
        loops = [i for i in m.reduced if i != product.contracted]
        rows, columns, contracted = (
            kernel.extent(m.ranges[i][1] - m.ranges[i][0], i) for i in product.tile
        )
        acc = ""
        with ExitStack() as stack:
            if loops:
                dtype = dtypes.f64 if m.scope.tensors[m.statement.target].dtype == dtypes.f64 else dtypes.f32
                acc = kernel.names.fresh("acc")
                kernel.lines.add(f"{acc} = pl.zeros([{rows}, {columns}], pl.{dtype.name})")
                for i in loops:
                    writer.variables[i] = open_loop(kernel, stack, m, i, False)
            left = writer.operand(product.left, product.rows, product.contracted, (rows, contracted), False)
            right = writer.operand(product.right, product.columns, product.contracted, (columns, contracted), True)
            if not loops:
                return f"pl.dot({left}, {right})"
            left, right = (self._line(t, n) for t, n in ((left, "left"), (right, "right")))
            kernel.lines.add(f"{acc} = pl.dot({left}, {right}, {acc})")
        return acc

    def _line(self, text: str, wanted: str) -> str:
        found = self.kernel.names.fresh(wanted)
        self.kernel.lines.add(f"{found} = {text}")
        return found


class Tiles(Elements):
    """Writes the expressions of one statement as tiles over `order`, its inner indices."""

    def __init__(self, group: _Group, m: Inferred, outer: dict[str, str], order: tuple[str, ...]) -> None:
        kernel = group.kernel
        typing = kernel.analysis.typing(m.scope)
        super().__init__(m, typing, kernel.names, dict(outer), kernel.stored, kernel.size)
        self.variables: dict[str, str] = dict(outer)
        self.group, self.kernel, self.order, self.outer = group, kernel, order, outer

    def let(self, text: str, wanted: str) -> str:
        """A name for the value of a text."""
        if text.isidentifier():
            return text
        found = self.group.known.get(text)
        if found is None:
            found = self.names.fresh(wanted)
            self.kernel.lines.add(f"{found} = {text}")
            self.group.known[text] = found
        return found

    def axes(self, e: Expression) -> tuple[str, ...]:
        """The inner indices that an expression depends on, in order."""
        found: set[str] = set()

        def look(x: Expression) -> None:
            if isinstance(x, Name):
                found.add(x.name)
            for child in children(x):
                look(child)

        look(e)
        return tuple(i for i in self.order if i in found)

    def extent(self, index: str) -> str:
        low, high = self.inferred.ranges[index]
        return self.kernel.extent(high - low, index)

    # -- memory ---------------------------------------------------------------------------------------------------

    def rectangle(
        self, tensor: str, subscripts: tuple[Expression, ...]
    ) -> tuple[str, list[str], list[str], list[str]]:
        """A tensor with offsets and extents of what is accessed (1 along outer indices), and the inner indices.

        Not a view, where tiles may have many axes: the compiler knows more of accesses to the tensor itself.
        """
        items, offsets, inner = self.places(tensor, subscripts)
        if self.kernel.device and inner and len(items) > max(len(inner), 1) and (
            len(items) > 2 or self.group.product is not None
        ):  # tiles there have two axes at most  # fmt: skip
            view, offsets, inner = self.view(tensor, subscripts)
            return view, offsets, [self.extent(i) for i in inner], inner
        following = iter(zip(offsets, inner, strict=True))
        pairs = [(item, "1") if item is not None else _pair(self, next(following)) for item in items]
        stored = self.stored[self.scope.tensors[tensor].name]
        return stored, [p for p, _ in pairs], [e for _, e in pairs], inner

    def view(self, tensor: str, subscripts: tuple[Expression, ...]) -> tuple[str, list[str], list[str]]:
        """A view without the axes of outer indices, and offsets and inner indices of the others."""
        items, offsets, inner = self.places(tensor, subscripts)
        stored = self.stored[self.scope.tensors[tensor].name]
        if all(i is None for i in items):
            return stored, offsets, inner
        return f"{stored}[{', '.join(':' if i is None else i for i in items)}]", offsets, inner

    def places(
        self, tensor: str, subscripts: tuple[Expression, ...]
    ) -> tuple[list[str | None], list[str], list[str]]:
        """Per axis the place along outer indices, None along an inner one; offsets and indices of the inner ones."""
        info = self.scope.tensors[tensor]
        items: list[str | None] = []
        offsets: list[str] = []
        inner: list[str] = []
        for subscript, low in zip(subscripts, info.lows, strict=True):
            form = symbolic(subscript, self.scope)
            tiles = [*self.order, *(i for i in self.inferred.ranges if i not in self.variables)]
            here = next((i for i in tiles if i in form.names()), None) if form.known else None
            if here is None:
                items.append(self.subscript(subscript, low))
                continue
            items.append(None)
            offsets.append(self.form(form - name(here, signed=True) + self.inferred.ranges[here][0] - low))
            inner.append(here)
        return items, offsets, inner

    def read(self, e: Read) -> str:
        info = self.scope.tensors[e.tensor]
        held = self.group.held.get(info.name)
        if held is not None and self.matches(e, held):
            return held.text
        self.group.flush(info.name)
        self.kernel.loaded.add(info.name)
        stored, offsets, extents, inner = self.rectangle(e.tensor, e.subscripts)
        if inner:
            text = f"pl.load({stored}, [{', '.join(offsets)}], [{', '.join(extents)}])"
            if len(inner) < len(extents):
                text = f"pl.reshape({text}, [{', '.join(map(self.extent, inner))}])"
        else:
            text = f"{stored}[{', '.join(offsets) or point(info)}]"
        found = self.let(text, f"{e.tensor}_tile" if inner else f"{e.tensor}_value")
        self.group.loads.setdefault(info.name, set()).add(text)
        return found

    def matches(self, e: Read, held: Held) -> bool:
        """Whether a read is of all that is held, at the same place."""
        outer: list[str] = []
        ranges: list[tuple[Expr, Expr]] = []
        places = set(self.group.places)
        for k, subscript in enumerate(e.subscripts):
            if not isinstance(subscript, Name):
                return False
            if k in places:
                outer.append(self.variables.get(subscript.name, "?"))
            else:
                if subscript.name not in self.inferred.ranges or subscript.name in self.variables:
                    return False
                ranges.append(self.inferred.ranges[subscript.name])
        return outer == self.group.variables and tuple(ranges) == held.ranges

    def of_target(self) -> str:
        """What the target holds where the statement writes."""
        s = self.inferred.statement
        return self.read(Read(s.target, tuple(Name(i) for i in s.indices), s.target_loc))

    def operand(self, operand: Operand, own: str, contracted: str, extents: tuple[str, str], is_right: bool) -> str:
        """One side of a product: rows by contracted, or contracted by columns."""
        info = self.scope.tensors[operand.read.tensor]
        self.group.flush(info.name)
        self.kernel.loaded.add(info.name)
        view, offsets, inner = self.view(operand.read.tensor, operand.read.subscripts)
        turned = (inner == [contracted, own]) != is_right
        shape = extents if inner == [own, contracted] else extents[::-1]
        whole = all(o == "0" for o in offsets) and all(
            (info.extents or ())[axis] == self.inferred.ranges[i][1] - self.inferred.ranges[i][0]
            for axis, i in zip(self._axes_of(operand, inner, own), inner, strict=True)
        )
        if whole and ":" not in view:
            return f"{view}.T" if turned else view
        if turned and self.kernel.device:  # tiles are not transposed there
            return f"pl.load({view}.T, [{', '.join(offsets[::-1])}], [{', '.join(shape[::-1])}])"
        text = f"pl.load({view}, [{', '.join(offsets)}], [{', '.join(shape)}])"
        return f"{text}.T" if turned else text

    @staticmethod
    def _axes_of(operand: Operand, inner: list[str], own: str) -> list[int]:
        return [operand.own if i == own else operand.contracted for i in inner]

    # -- values ---------------------------------------------------------------------------------------------------

    def aligned(self, e: Expression, text: Text, around: tuple[str, ...]) -> Text:
        """An operand with an axis for each of `around`, as far as broadcasting does not give it."""
        own = self.axes(e)
        if not own or own == around[len(around) - len(own) :]:
            return text
        shape = [self.extent(i) if i in own else "1" for i in around[around.index(own[0]) :]]
        return f"pl.reshape({text[0]}, [{', '.join(shape)}])", _ALONE

    def spread(self, text: str, value: Expression, dtype: dtypes.DType) -> str:
        """A value that does not depend on all inner left indices, for each of them."""
        inner = [i for i in self.inferred.statement.indices if i in self.order]
        shape = ", ".join(map(self.extent, inner))
        if not self.axes(value):
            return f"pl.full([{shape}], {text}, pl.{dtype.name})"
        return f"pl.broadcast_to({self.aligned(value, (text, 0), tuple(inner))[0]}, [{shape}])"

    def binary(self, e: Binary) -> Text:
        around = self.axes(e)
        if not around:
            return super().binary(e)
        op = e.op
        if op in ("&&", "||"):
            left, right = (self.aligned(x, self.condition(x), around) for x in (e.left, e.right))
            return f"({_in(left, 9)}) {'&' if op == '&&' else '|'} ({_in(right, 9)})", 4
        kind = self.operand_kind(e)
        left, right = (self.aligned(x, self.converted(x, kind), around) for x in (e.left, e.right))
        strength = 3 if op in COMPARISONS else {"|": 4, "^": 5, "&": 6, "<<": 7, ">>": 7, "+": 8, "-": 8,
                                                "**": 11}.get(op, 9)  # fmt: skip
        return f"{_in(left, strength + (op == '**' or op in COMPARISONS))} {op} {_in(right, strength + 1)}", strength

    def unary(self, e: Unary) -> Text:
        if (e.op == "!" or (e.op == "~" and self.typing.of(e.operand) == dtypes.bool_)) and self.axes(e):
            return f"~({self.condition(e.operand)[0]})", 10
        return super().unary(e)

    def select(self, e: Select) -> Text:
        around = self.axes(e)
        kind = common(self.typing.of(e.yes), self.typing.of(e.no))
        parts = [
            self.aligned(e.condition, self.condition(e.condition), around)[0],
            *(self.aligned(x, (self.typed(x, kind), 0), around)[0] for x in (e.yes, e.no)),
        ]
        return f"pl.where({', '.join(parts)})", _ALONE

    def arranged(self, e: Expression, text: Text, around: Expression) -> Text:
        return self.aligned(e, text, self.axes(around))

    def applied(self, e: Apply) -> str:
        text = super().applied(e)
        return self.let(text, "t") if self.axes(e) else text


def _pair(tiles: Tiles, place: tuple[str, str]) -> tuple[str, str]:
    """Offset and extent along an inner index."""
    return place[0], tiles.extent(place[1])


def _combined(op: str, a: str, b: str) -> str:
    from pto_jit.comprehensions.lowering.kernel import combined

    return combined(op, a, b)
