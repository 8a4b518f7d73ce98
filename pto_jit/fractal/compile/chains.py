# SPDX-License-Identifier: MIT
"""The strided parts of a list as one loop: `dilated_map` of a body that is a scan, in a function with a state.

Part r of d has the elements p = k * d + r.  The loops over r and k together are a loop over p in which an iteration
follows the one at p - d: the loop keeps d as `Loop.chains`, and the distance along it is d, whatever that is.  So
layers that are a `dilated_map` are planes and tasks as layers that are a `scan`.  In order the parts stay apart, one
chain of iterations each.

Of a body that goes backwards (`scanr`) iteration k is element p = n - 1 - q, q = k * d + (n - 1 - r) mod d, and the
loop is one over q.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.fractal.compile.expr import Atom, Binary, Condition, Expr, Symbol, binary, number, of
from pto_jit.fractal.compile.lists import (
    Access,
    Array,
    Block,
    Check,
    Choose,
    Compute,
    Dim,
    Index,
    Loop,
    Part,
    Read,
    ReadLeaf,
    View,
    WriteLeaf,
)
from pto_jit.fractal.compile.nest import is_pure
from pto_jit.fractal.compile.sequential import records
from pto_jit.ir.nodes import Op
from pto_jit.slotted import frozen, replace

if TYPE_CHECKING:
    from pto_jit.fractal.compile.session import Session


class NoChains(Exception):
    """The parts cannot be one loop; the message says why."""


def size_of_part(n: Expr, d: Expr, r: Expr) -> Expr:
    """How many of the elements r, r + d, r + 2 d, ... a list of n elements has, r < d."""
    return binary("floordiv", n - r + d - 1, d)


def chained(session: Session, loop: Loop, views: Sequence[View], n: Expr, d: Expr) -> list[View] | None:
    """The loop over parts, which has just been closed, becomes one over all elements; what the body gives (`views`,
    under a dimension for the part) as lists over these.  None where the parts stay apart: `loop.why` says why."""
    if all(x.kind == "parallel" for x in session.loops):  # then the parts are rows of batches themselves
        return None
    try:
        chains = _found(session, loop, n, d)
        made = [chains.view(session, v) for v in views]
        changes = list(chains.changes(session, loop))
    except NoChains as problem:
        loop.why = str(problem)
        return None
    for change in changes:
        change()
    return made


def _found(session: Session, loop: Loop, n: Expr, d: Expr) -> Chains:
    inner = [i for i in loop.body if isinstance(i, Loop)]
    if len(inner) != 1 or inner[0].kind != "carry":
        raise NoChains("the body of ft.dilated_map is not one scan")
    at = loop.body.index(inner[0])
    if not all(isinstance(i, (ReadLeaf, Compute)) or (isinstance(i, Op) and _is_cheap(i)) for i in loop.body[:at]):
        raise NoChains("the body of ft.dilated_map computes more than a scan")
    if any(isinstance(i, ReadLeaf) and i.final is not None for i in records([loop])) or loop.body[at + 1 :]:
        raise NoChains("the body of ft.dilated_map uses the last state of its scan, or checks what it gives")
    k = inner[0].symbol
    size = size_of_part(n, d, of(loop.symbol))
    element = of(k) if inner[0].element is None else inner[0].element
    whole = inner[0].length == size
    if not whole and inner[0].length != binary("max", size - 1, number(0)):
        raise NoChains("the scan in the body of ft.dilated_map is not over the part that it gets")
    length = n if whole else binary("max", n - d, number(0))
    return Chains(session.symbol(k.name), loop.symbol, k, n, d, size, element.coefficient(k) == -1, length)


def _is_cheap(op: Op) -> bool:
    """Whether an operation may be repeated for each element, as it is the same for all, or for those of a part."""
    return is_pure(op) and op.op != "dot"


@frozen(eq=False)
class Chains:
    """Loops over parts r and their elements k as one over p (or q: see above).

    size: the length of part r; length: the iterations of the loop, which are fewer than n where the first elements are
    the initial states.
    """

    p: Symbol
    r: Symbol
    k: Symbol
    n: Expr
    d: Expr
    size: Expr
    backwards: bool
    length: Expr

    # -- expressions -----------------------------------------------------------------------------------------------

    def expr(self, e: Expr, k: Expr | None = None) -> Expr:
        """By the index of the new loop; `k`: 0 in what is read by the first iterations of chains alone."""
        at, first = of(self.p), k is not None
        if self.d == number(1):  # the only part
            part = own = number(0)
        elif self.backwards:  # `own`: the first iteration of the chain
            own = at if first else binary("mod", at, self.d)
            part = binary("mod", self.n - 1 - at, self.d)
        else:
            own, part = of(self.r), at if first else binary("mod", at, self.d)
        found = number(e.const)
        for atom, times in e.terms:
            found = found + self._term(atom, times, own)
        return found.replace({self.r: part, self.k: binary("floordiv", at, self.d) if k is None else k})

    def _term(self, atom: Atom, times: int, own: Expr) -> Expr:
        """`times` atoms: multiples of k * d are those of the new index less `own`, those of size * d have no division
        where the body goes backwards; other atoms stay."""
        whole = self.size.terms[0][0] if self.backwards and len(self.size.terms) == 1 else None
        end = self.n - 1 - own - of(self.r) + self.d  # size * d
        factor = self.d.constant
        if factor is not None and times % factor == 0 and atom in (self.k, whole):
            return (of(self.p) - own if atom == self.k else end) * (times // factor)
        if isinstance(atom, Binary) and atom.op == "mul" and self.d in (atom.left, atom.right):
            x = atom.left if atom.right == self.d else atom.right
            terms = dict(x.terms)
            ks, sizes = terms.pop(self.k, 0), 0 if whole is None else terms.pop(whole, 0)
            if ks or sizes:
                rest = sum((of(a) * c for a, c in terms.items()), number(x.const))
                return ((of(self.p) - own) * ks + end * sizes + rest * self.d) * times
        return Expr(((atom, times),))

    def pair(self, r: Expr, k: Expr) -> Expr:
        """The index of the new loop for iteration k of part r, by the own index.  Raises NoChains."""
        if r == of(self.r):
            step = k - of(self.k)
            if not step.symbols() & {self.r, self.k}:
                return of(self.p) + step * self.d
        raise NoChains("the scan in the body of ft.dilated_map reads states of other parts, or of varying distance")

    def index(self, at: Sequence[Expr], place: int) -> tuple[Expr, ...]:
        """That of an array over the loops, whose dimensions at `place` and behind it are r and k."""
        return (
            *(self.expr(e) for e in at[:place]),
            self.pair(at[place], at[place + 1]),
            *(self.expr(e) for e in at[place + 2 :]),
        )

    # -- records ---------------------------------------------------------------------------------------------------

    def arrays(self, session: Session) -> dict[int, tuple[Array, int]]:
        """The arrays over both loops, and where these stand among the dimensions."""
        found: dict[int, tuple[Array, int]] = {}
        for array in session.arrays:
            symbols = [dim.symbol for dim in array.dims]
            if self.r not in symbols:
                continue
            place = symbols.index(self.r)
            if symbols[place + 1 : place + 2] != [self.k] or {place, place + 1} & set(array.folded):
                raise NoChains("the body of ft.dilated_map makes other lists than those of its scan")
            found[id(array)] = array, place
        return found

    def read(self, read: Read, arrays: Mapping[int, tuple[Array, int]], **at: Expr) -> Read:
        match read:
            case Access():
                found = arrays.get(id(read.array))
                if found is not None:
                    return Access(read.array, self.index(read.index, found[1]))
                return Access(read.array, tuple(self.expr(e, **at) for e in read.index))
            case Choose():
                condition = read.condition
                if condition == Condition("zero", of(self.k)):  # the first iteration of its chain
                    first = self.read(read.then, arrays, k=number(0))
                    return Choose(Condition("negative", of(self.p) - self.d), first, self.read(read.otherwise, arrays))
                new = Condition(condition.kind, self.expr(condition.value, **at))
                return Choose(new, self.read(read.then, arrays, **at), self.read(read.otherwise, arrays, **at))
            case Block():
                if id(read.array) in arrays:
                    raise NoChains("the body of ft.dilated_map takes several states as one tensor")
                index = tuple(self.expr(e, **at) for e in read.index)
                return Block(read.array, index, self.expr(read.count, **at))
            case Index():
                return Index(self.expr(read.value, **at))
            case Part():
                return Part(read.source, tuple(self.expr(e, **at) for e in read.starts), read.extents, read.depth)
        return read

    def changes(self, session: Session, loop: Loop) -> Iterator[Callable[[], None]]:
        """What makes the loops one: nothing is changed before all of it is known to fit."""
        arrays = self.arrays(session)
        (inner,) = (i for i in loop.body if isinstance(i, Loop))
        for item in records(loop.body):
            if item is not inner:
                yield from self._changed(item, arrays)
        for array, place in arrays.values():
            yield from _set(array, dims=self.dims(array.dims, place))
            yield from _set(array, folded=tuple(k - (k > place) for k in array.folded))
            yield from _set(array, loops=array.loops - (array.loops > place))
            if array.elements is not None:
                yield from _set(array, elements=self.expr(array.elements))
        first = number(0) if inner.length == self.size else self.d
        position = of(self.p) + first
        element = self.n - 1 - position if self.backwards else position if first != number(0) else None
        asked = loop if loop.schedule != "auto" else inner
        tile = loop.tile if loop.tile is not None else inner.tile
        body = [i for part in loop.body for i in (part.body if part is inner else [part])]
        yield from _set(loop, symbol=self.p, length=self.length, kind="carry", chains=self.d, element=element)
        yield from _set(loop, schedule=asked.schedule, tile=tile, body=body)

    def dims(self, dims: Sequence[Dim], place: int) -> tuple[Dim, ...]:
        rest = (Dim(x.symbol, self.expr(x.length)) for x in dims[place + 2 :])
        return (*dims[:place], Dim(self.p, self.length), *rest)

    def _changed(self, item: Any, arrays: Mapping[int, tuple[Array, int]]) -> Iterator[Callable[[], None]]:
        match item:
            case ReadLeaf():
                yield from _set(item, read=self.read(item.read, arrays))
            case WriteLeaf():
                found = arrays.get(id(item.array))
                if found is None:
                    raise NoChains("the body of ft.dilated_map writes a list of another nest")
                yield from _set(item, index=self.index(item.index, found[1]))
            case Compute():
                yield from _set(item, expr=self.expr(item.expr))
            case Loop():
                element = None if item.element is None else self.expr(item.element)
                yield from _set(item, length=self.expr(item.length), element=element)
            case Check():
                condition = Condition(item.condition.kind, self.expr(item.condition.value))
                numbers, path, loops = (tuple(map(self.expr, es)) for es in (item.numbers, item.path, item.loops))
                yield from _set(item, condition=condition, numbers=numbers, path=path, loops=loops)

    # -- results ---------------------------------------------------------------------------------------------------

    def view(self, session: Session, view: View) -> View:
        """What the body gives for a part, put back in its place: a list over all elements."""
        part, within, *rest = view.dims
        p = session.symbol("k")
        arrays = self.arrays(session)
        own = replace(self, p=p, r=part.symbol, k=within.symbol)
        size = size_of_part(self.n, self.d, of(part.symbol))
        if within.length != size:
            raise NoChains("the body of ft.dilated_map gives a list whose length is not that of its part as it stands")
        back = replace(own, backwards=False, size=size)  # results are in the order of the elements

        def change(read: Read, **at: Expr) -> Read:
            match read:
                case Access() if id(read.array) in arrays:
                    return self._state(read, arrays[id(read.array)][1], back)
                case Choose() if read.condition == Condition("zero", of(back.k)):  # the initial state, an element
                    then = change(read.then, k=number(0))
                    return Choose(Condition("negative", of(p) - self.d), then, change(read.otherwise, **at))
                case Choose():
                    condition = Condition(read.condition.kind, back.expr(read.condition.value, **at))
                    return Choose(condition, change(read.then, **at), change(read.otherwise, **at))
            return back.read(read, {}, **at)

        inner = (Dim(x.symbol, back.expr(x.length)) for x in rest)
        return View((Dim(p, self.n), *inner), change(view.read), view.leaf)

    def _state(self, read: Access, place: int, back: Chains) -> Access:
        """What the body gives of its states, by the position of the element; `back` has the view's indices."""
        r, k = read.index[place : place + 2]
        if self.backwards:
            step = k - (back.size - 1 - of(back.k))
            if r != of(back.r) or step.constant is None:
                raise NoChains("the body of ft.dilated_map gives its states in another order")
            at = self.n - 1 - of(back.p) + self.d * step.constant
        else:
            at = back.pair(r, k)
        head, tail = read.index[:place], read.index[place + 2 :]
        return Access(read.array, (*map(back.expr, head), at, *map(back.expr, tail)))


def _set(item: Any, **values: Any) -> Iterator[Callable[[], None]]:
    def change() -> None:
        for name, value in values.items():
            setattr(item, name, value)

    yield change
