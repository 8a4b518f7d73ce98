# SPDX-License-Identifier: MIT
"""Lists while a kernel is compiled: dimensions with lengths, and an access map from an index to a leaf.

A list has no memory of its own.  Its `View` says which element of which `Array` (or which computed value) stands at an
index, as expressions over the loops around it and over its own dimensions; access operations make other expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pto_jit.codegen.values import Scalar, Tensor, Tile, static_extent
from pto_jit.dtypes import DType
from pto_jit.errors import TypeMismatchError
from pto_jit.fractal.compile.expr import Condition, Expr, Symbol, number, of
from pto_jit.ir.nodes import Operand
from pto_jit.slotted import field, frozen, mutable


@frozen
class Leaf:
    """The type of a leaf: extents (i64 operands) and element type; no extents: a number, `weak` if Python's."""

    extents: tuple[Operand, ...]
    dtype: DType
    weak: bool = False

    def listed(self) -> Leaf:
        """As an element of a list that a function makes: Python's number has an element type there."""
        return Leaf(self.extents, self.dtype) if self.weak else self

    def same(self, other: Leaf) -> bool:
        return self.extents == other.extents and self.dtype == other.dtype

    def __str__(self) -> str:
        shape = ", ".join("?" if static_extent(e) is None else str(static_extent(e)) for e in self.extents)
        return f"Tensor[[{shape}], {self.dtype}]" if self.extents else f"{self.dtype} number"


@mutable(eq=False)
class Dim:
    """A dimension of an array or list: its index, and its length over the indices before it."""

    symbol: Symbol
    length: Expr


@mutable(eq=False)
class Array:
    """Leaves by a multi-index over `dims`; each is written at most once.

    argument: the flat leaves and the offsets per level of an argument, outermost first.  home: the array that holds
    these leaves instead (the state of a fold and the result of the nest in its body are one).  folded: positions of the
    dimensions along which an element is read one later, and the last one behind the loop, so that two have to be kept.
    temporary: only the state of its loop and the value behind it are read, and they are tensors or numbers.
    elements: of a scan whose first state is the first element: the length of the list, which may have none.
    tensor, layout: its memory, once it is decided.  loops: so many of the loops around it are around all that reads it;
    NO_LOOP: what is behind all nests reads it, too.
    """

    name: str
    dims: tuple[Dim, ...]
    leaf: Leaf
    argument: tuple[Tensor, tuple[Tensor, ...]] | None = None
    home: Array | None = None
    tensor: Any = None
    layout: Any = None
    folded: tuple[int, ...] = ()
    temporary: bool = False
    loops: int = 0
    elements: Expr | None = None

    @property
    def root(self) -> Array:
        array = self
        while array.home is not None:
            array = array.home
        return array


# -- where a leaf comes from ---------------------------------------------------------------------------------------


@frozen(eq=False)
class Access:
    """A leaf of an array."""

    array: Array
    index: tuple[Expr, ...]


@frozen(eq=False)
class Choose:
    """One of two, by a condition over indices: initial values, padding, joined lists."""

    condition: Condition
    then: Read
    otherwise: Read


@frozen(eq=False)
class Index:
    """An integer, as `enumerate` gives it."""

    value: Expr


@frozen(eq=False)
class Computed:
    """A number or tile that was computed under `depth` loops of the nest."""

    value: Scalar | Tile
    depth: int


@frozen(eq=False)
class Part:
    """A rectangle of a tensor, or of a tile that was computed under `depth` loops."""

    source: Tensor | Tile
    starts: tuple[Expr, ...]
    extents: tuple[Operand, ...]
    depth: int


@frozen(eq=False)
class Filled:
    """A leaf full of one compile-time number."""

    value: float | int | bool


@frozen(eq=False)
class Block:
    """`count` leaves of an array one after the other along its innermost dimension, from an index on, as one tensor."""

    array: Array
    index: tuple[Expr, ...]
    count: Expr


Read = Access | Choose | Index | Computed | Part | Filled | Block


def replaced(read: Read, mapping: Mapping[Symbol, Expr]) -> Read:
    """With expressions for symbols."""
    if not mapping:
        return read
    match read:
        case Access():
            return Access(read.array, tuple(e.replace(mapping) for e in read.index))
        case Choose():
            condition = read.condition.replace(mapping)
            known = condition.known()
            if known is not None:
                return replaced(read.then if known else read.otherwise, mapping)
            return Choose(condition, replaced(read.then, mapping), replaced(read.otherwise, mapping))
        case Block():
            return Block(read.array, tuple(e.replace(mapping) for e in read.index), read.count.replace(mapping))
        case Index():
            return Index(read.value.replace(mapping))
        case Part():
            return Part(read.source, tuple(e.replace(mapping) for e in read.starts), read.extents, read.depth)
    return read


def rewritten(read: Read, change: Callable[[Read], Read | None]) -> Read:
    """With what `change` gives for a part (None: look inside)."""
    new = change(read)
    if new is not None:
        return new
    if isinstance(read, Choose):
        return Choose(read.condition, rewritten(read.then, change), rewritten(read.otherwise, change))
    return read


def sources(read: Read) -> Iterator[Read]:
    """The parts that are not a choice."""
    if isinstance(read, Choose):
        yield from sources(read.then)
        yield from sources(read.otherwise)
    else:
        yield read


def expressions(read: Read) -> Iterator[Expr]:
    """All index expressions."""
    match read:
        case Access():
            yield from read.index
        case Choose():
            yield read.condition.value
            yield from expressions(read.then)
            yield from expressions(read.otherwise)
        case Block():
            yield from read.index
            yield read.count
        case Index():
            yield read.value
        case Part():
            yield from read.starts


@frozen(eq=False)
class View:
    """One kind of leaf under the list's dimensions (a list of pairs has two views); no dimensions: the leaf itself."""

    dims: tuple[Dim, ...]
    read: Read
    leaf: Leaf

    def at(self, index: Expr) -> View:
        """The element at an index of the outermost dimension."""
        first, *rest = self.dims
        return View(tuple(rest), self.read, self.leaf).replace({first.symbol: index})

    def replace(self, mapping: Mapping[Symbol, Expr]) -> View:
        if not mapping:
            return self
        dims = tuple(Dim(d.symbol, d.length.replace(mapping)) for d in self.dims)
        return View(dims, replaced(self.read, mapping), self.leaf)

    def renamed(self, fresh: Callable[[str], Symbol]) -> View:
        """With dimensions of its own, so that two uses of it in one expression do not meet."""
        mapping: dict[Symbol, Expr] = {}
        dims: list[Dim] = []
        for d in self.dims:
            symbol = fresh(d.symbol.name)
            dims.append(Dim(symbol, d.length.replace(mapping)))
            mapping[d.symbol] = of(symbol)
        return View(tuple(dims), replaced(self.read, mapping), self.leaf)


def _refused(symbol: str) -> Callable[..., Any]:
    def method(self: Any, *_: Any) -> Any:
        raise TypeMismatchError(
            f"`{symbol}` of a FractalTensor {self!r}, which has no arithmetic",
            code="PTO-F107",
            hint="say what becomes of an element: `ft.map(lambda e: e + 1, x)`; `ft.zip` brings lists together",
        )

    method.__pto_native__ = True  # type: ignore[attr-defined]  # Python calls it, it is not part of a kernel
    return method


class ListLike:
    """What messages call a FractalTensor, how they refuse its arithmetic, and what a `for` over one runs over."""

    __slots__ = ()

    def __pto_iterate__(self, generator: Any) -> Iterator[Any]:
        from pto_jit.fractal.compile.session import session_of

        return session_of(generator).elements(self)

    def __pto_spread__(self, fn: Any) -> list[Any] | None:
        """What `*lists` gives to `ft.zip`, one for each list in the tuples; None for others, which get the elements."""
        return [Spread(self)] if getattr(fn, "__pto_builtin__", None) == "ft.zip" else None


_BINARY = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
           "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>"}  # fmt: skip
_OTHER = {"neg": "-", "pos": "+", "invert": "~", "abs": "abs", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
for _name, _symbol in [*_BINARY.items(), *((f"r{k}", v) for k, v in _BINARY.items()), *_OTHER.items()]:
    setattr(ListLike, f"__{_name}__", _refused(_symbol))


class Lists(ListLike):
    """What a FractalTensor is inside a kernel.

    items: a `View`, or a tuple (of tuples) of what elements consist of, when they are tuples; `around`: how many of the
    dimensions stand around the tuple (of a `View`, whose dimensions say all, always 1).  session: that of the
    compilation.
    """

    __slots__ = ("around", "items", "session")

    def __init__(self, session: Any, items: Any, around: int = 1) -> None:
        self.session = session
        self.items = items
        self.around = around if isinstance(items, tuple) else 1

    # what the front end asks of objects that it does not know

    def __pto_item__(self, generator: Any, item: Any) -> Any:
        return self.session.item(self, item)

    def __pto_length__(self, generator: Any) -> Any:
        return self.session.length(self)

    def __pto_attribute__(self, generator: Any, name: str) -> Any:
        return self.session.attribute(self, name)

    def __pto_result__(self, generator: Any) -> Any:
        return self.session.returned(self)

    def __pto_runtime__(self) -> Any:
        return self

    def __iter__(self) -> Iterator[Any]:
        return self.session.elements(self)

    @property
    def first(self) -> View:
        """Any of the views: all have the same outermost dimension."""
        return next(views_of(self.items))

    @property
    def length(self) -> Expr:
        return self.first.dims[0].length

    def __repr__(self) -> str:
        return f"of depth {len(self.first.dims)}"


Lists.__name__ = "FractalTensor"  # in messages


@frozen(eq=False)
class Spread:
    """`*lists` in a call: `ft.zip(*z)` is the only one that takes it."""

    lists: Any


def map_views(items: Any, fn: Callable[[View], Any]) -> Any:
    """The structure of views with `fn` of each; lists of tuples in it stay such lists."""
    if isinstance(items, Lists):
        return Lists(items.session, map_views(items.items, fn), items.around)
    if isinstance(items, tuple):
        made = [map_views(i, fn) for i in items]
        return items._make(made) if hasattr(items, "_make") else tuple(made)  # type: ignore[attr-defined]
    return fn(items)


def views_of(items: Any) -> Iterator[View]:
    if isinstance(items, Lists):
        yield from views_of(items.items)
    elif isinstance(items, tuple):
        for item in items:
            yield from views_of(item)
    else:
        yield items


# -- statements of a nest that are not yet IR ----------------------------------------------------------------------

NO_LOOP = -1  # `loops` of an array that the function itself reads behind its nests
CHECKS = "checks"  # the schedule of loops around checks alone, of which no decision speaks
BEHIND = "behind"  # the schedule of a map over the last states of folds, which are nests of their own


@mutable(eq=False)
class Loop:
    """A dimension of the nest. kind: "parallel" (map), "reduce" or "carry" (fold, scan).

    tile: what `tile=` of its call says, for it and the loops inside of it.  element: the position of the element, where
    that is not the index of the iteration.  chains: an iteration follows the one so many before it, not the last one,
    so that there are as many chains, which are independent (`chains.py`); why: the reason why it has none.
    """

    symbol: Symbol
    length: Expr
    kind: str
    loc: Any
    body: list[Any] = field(default_factory=list)
    schedule: str = "auto"
    tile: tuple[int, ...] | None = None
    element: Expr | None = None
    chains: Expr | None = None
    why: str = ""


@mutable(eq=False)
class ReadLeaf:
    """`value` becomes the leaf. state: the array whose previous element this is (or the initial value)."""

    value: Scalar | Tile
    read: Read
    leaf: Leaf
    loc: Any
    state: Array | None = None
    final: Array | None = None


@mutable(eq=False)
class WriteLeaf:
    """The leaf of an array at an index becomes `value`."""

    array: Array
    index: tuple[Expr, ...]
    value: Scalar | Tile
    loc: Any


@mutable(eq=False)
class Compute:
    """An integer variable becomes the value of an expression."""

    var: Any
    expr: Expr


@mutable(eq=False)
class Check:
    """What must hold while the program runs, unless one of the loops around it, of those lengths, has no iteration.

    numbers: at most two, which fill the places {} of the message; path: the element that is computed; error: the class.
    """

    condition: Condition
    message: str
    hint: str
    loc: Any
    numbers: tuple[Expr, ...] = ()
    path: tuple[Expr, ...] = ()
    loops: tuple[Expr, ...] = ()
    error: str = "ShapeError"


def zero() -> Expr:
    return number(0)


def lists_in(value: Any) -> Iterator[Lists]:
    """The lists that a returned value consists of."""
    if isinstance(value, Lists):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from lists_in(item)
