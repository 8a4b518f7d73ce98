# SPDX-License-Identifier: MIT
"""One loop of two: a list that a parallel function makes for the next one is computed where that one reads it.

`ft.reduce` of a `ft.map`, a layer that is a `ft.scan` of a `ft.map` or a `ft.map` of a `ft.scan`: two loops beside each
other, with a list between them that nothing else reads.  Where the second one reads of it what an iteration of the
first one writes, the body of the first one stands in that iteration of the second one, and there is no list (loop
fusion, and the contraction of the array to a variable: A. Darte, On the complexity of loop fusion, 2000).

A loop whose state starts as the first element of the list has an iteration more then, which only sets the state.
Two maps around loops are one map where loops inside of them can be one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.emit import I64, index
from pto_jit.codegen.values import Tile
from pto_jit.dtypes import bool_
from pto_jit.fractal.compile.batching import demanded
from pto_jit.fractal.compile.expr import Condition, Expr, Known, binary, number, of
from pto_jit.fractal.compile.extents import computed_inside
from pto_jit.fractal.compile.lists import (
    CHECKS,
    Access,
    Array,
    Block,
    Check,
    Choose,
    Compute,
    Computed,
    Dim,
    Filled,
    Loop,
    Part,
    Read,
    ReadLeaf,
    WriteLeaf,
    expressions,
    replaced,
    rewritten,
    sources,
)
from pto_jit.fractal.compile.names import defined
from pto_jit.fractal.compile.nest import depends_on, is_pure, reads_at_most
from pto_jit.fractal.compile.sequential import RECORDS, accessed, has_effects, name_of, records, variable_of
from pto_jit.ir import walk
from pto_jit.ir.nodes import If, Op, Var
from pto_jit.ir.types import ScalarType
from pto_jit.lower.decisions import Decision
from pto_jit.slotted import frozen, replace

if TYPE_CHECKING:
    from pto_jit.fractal.compile.expr import Symbol
    from pto_jit.fractal.compile.session import Session

Symbols = Mapping["Symbol", Expr]


@frozen(eq=False)
class Pair:
    """Two loops of a body, and how the second one reads what the first one writes.

    around: the loops around them, none for those of the function itself; body: that of the innermost one.  reads: of
    the arrays of `first`, in `then`; at: the iteration of `first` that they are of.  starts: the states of `then` that
    start as an element; empty where each has an initializer.  kept: what is behind the loops around reads it, too.
    """

    around: tuple[Loop, ...]
    body: list[Any]
    first: Loop
    then: Loop
    reads: tuple[ReadLeaf, ...]
    at: Expr
    starts: tuple[ReadLeaf, ...] = ()
    kept: bool = False

    @property
    def names(self) -> str:
        return ", ".join(dict.fromkeys(f"`{a.name}`" for r in self.reads for a in accessed(r.read)))


def fuse(session: Session, items: list[Any]) -> None:
    """Make one loop of two of these or inside of them, wherever that is good; decisions of kind "fusion" say where."""
    refused: list[Loop] = []
    while any(_fused(session, pair, refused) for pair in _pairs(session, items, items, ())) or any(
        _nested(session, items, pair, refused) for pair in _maps(items, items, ())
    ):
        pass


def _fused(session: Session, pair: Pair, refused: list[Loop]) -> bool:
    """Fuse the pair unless that costs more than it saves, which is recorded once."""
    if not _told(session, pair, pair.first, refused):
        return False
    _put(pair, _started(session, pair) if pair.starts else _merged(pair))
    return True


def _told(session: Session, pair: Pair, first: Loop, refused: list[Loop]) -> bool:
    """Whether two loops are to be one; a decision says so, or why not, once for each loop `first`."""
    reason = _loss(session, pair)
    if not any(first is loop for loop in refused):
        what, loop = f"what it reads of {pair.names}", f"the loop over `{pair.then.symbol}`"
        said = f"{loop} computes {what}" if reason is None else f"{loop} could compute {what}, but {reason}"
        names = (str(pair.first.symbol), str(pair.then.symbol))
        session.g.decisions.append(Decision("fusion", names, reason is None, said, pair.then.loc))
    if reason is not None:
        refused.append(first)
    return reason is None


def _put(pair: Pair, made: Loop) -> None:
    """One loop for two."""
    pair.body[pair.body.index(pair.then)] = made
    pair.body.remove(pair.first)


# -- which loops ---------------------------------------------------------------------------------------------------


def _pairs(session: Session, items: list[Any], body: list[Any], around: tuple[Loop, ...]) -> Iterator[Pair]:
    """The pairs of a body that can be one, inner ones first; `items` is all there is."""
    loops = [i for i in body if isinstance(i, Loop)]
    for loop in loops:
        yield from _pairs(session, items, loop.body, (*around, loop))
    if len(loops) < 2 or any(loop.schedule == CHECKS for loop in around):
        return
    readers = _readers(items)
    for k, first in enumerate(loops):
        if _is_simple(first) and all(isinstance(i, (Op, *RECORDS)) for i in first.body):
            for then in loops[k + 1 :]:
                pair = _pair(session, around, body, first, then, readers)
                if pair is not None:
                    yield pair


def _readers(items: Sequence[Any]) -> dict[int, list[ReadLeaf]]:
    """What reads an array, by the identity of its root."""
    found: dict[int, list[ReadLeaf]] = {}
    for item in records(items):
        if isinstance(item, ReadLeaf):
            for array in {id(a): a for a in accessed(item.read)}.values():
                found.setdefault(id(array), []).append(item)
    return found


def _is_simple(loop: Loop) -> bool:
    """A loop around no other, that asks for nothing, and whose body acts on nothing but lists."""
    asks = loop.schedule != "auto" or loop.tile is not None
    inner = any(isinstance(i, Loop) for i in records(loop.body))
    return not asks and not inner and loop.chains is None and not has_effects(loop.body)


def _maps(items: list[Any], body: list[Any], around: tuple[Loop, ...]) -> Iterator[Pair]:
    """The pairs of maps around loops that could be one map; `reads` and `at` say nothing in these."""
    loops = [i for i in body if isinstance(i, Loop)]
    maps = [loop for loop in loops if _is_outer(loop)]
    readers = _readers(items) if len(maps) > 1 else {}
    for k, first in enumerate(maps):
        for then in maps[k + 1 :]:
            if _reads_in_step(around, first, then, readers) and _may_move(body, first, then):
                yield Pair(around, body, first, then, (), of(then.symbol))
    for loop in loops:
        yield from _maps(items, loop.body, (*around, loop))


def _is_outer(loop: Loop) -> bool:
    """A map around loops, which asks for nothing, as these do, and acts on nothing but lists."""
    own = [loop, *(i for i in records(loop.body) if isinstance(i, Loop))]
    asks = any(i.schedule != "auto" or i.tile is not None or i.chains is not None for i in own)
    return not asks and len(own) > 1 and not _carries(loop) and not has_effects(loop.body)


def _reads_in_step(around: tuple[Loop, ...], first: Loop, then: Loop, readers: dict[int, list[ReadLeaf]]) -> bool:
    """Whether what an iteration of the first loop writes is read by that one of the second one, and by nothing else."""
    depth = len(around)
    at = (*(of(loop.symbol) for loop in around), of(then.symbol))
    own, inside = ({id(i) for i in records(loop.body)} for loop in (first, then))
    reads = [(root, i) for root in {id(a.root) for a in _written(first)} for i in readers.get(root, ())]
    reads = [(root, i) for root, i in reads if id(i) not in own]
    return (
        bool(reads)
        and first.length == then.length
        and all(
            id(item) in inside and s.index[: depth + 1] == at
            for root, item in reads
            for s in sources(item.read)
            if isinstance(s, (Access, Block)) and id(s.array.root) == root
        )
    )


def _nested(session: Session, items: list[Any], pair: Pair, refused: list[Loop]) -> bool:
    """Make one map of two around loops, where loops in it can be one loop then."""
    first, then, depth = pair.first, pair.then, len(pair.around)
    roots = {id(a.root) for a in _written(first)}
    arrays = [a for a in session.arrays if id(a.root) in roots]
    if any(a.loops < depth for a in arrays) or computed_inside(first.body):
        return False
    symbol = {first.symbol: of(then.symbol)}
    made = replace(then, body=[*(_moved(i, symbol, {}) for i in first.body), *then.body])
    loops = [a.loops for a in arrays]
    for array in arrays:
        array.loops = max(array.loops, depth + 1)
    rest = [made, *(i for i in items if i is not first and i is not then)]
    within = (*pair.around, made)
    simple = (p for p in _pairs(session, rest, made.body, within) if p.body is made.body)
    deeper = (p for p in _maps(rest, made.body, within) if p.body is made.body)
    if not (
        any(_loss(session, p) is None or _told(session, p, first, refused) for p in simple)
        or any(_nested(session, rest, p, refused) for p in deeper)
    ):
        for array, count in zip(arrays, loops, strict=True):
            array.loops = count
        return False
    for array in arrays:
        array.dims = tuple(
            Dim(then.symbol if d.symbol == first.symbol else d.symbol, d.length.replace(symbol)) for d in array.dims
        )
    _put(pair, made)
    return True


def _pair(
    session: Session,
    around: tuple[Loop, ...],
    body: list[Any],
    first: Loop,
    then: Loop,
    readers: dict[int, list[ReadLeaf]],
) -> Pair | None:
    if not _is_simple(then):
        return None
    direct = [i for i in then.body if isinstance(i, ReadLeaf) and i.state is None]
    states = {id(i): i for i in then.body if isinstance(i, ReadLeaf) and i.state is not None}
    own = {id(i) for i in first.body}
    reads: list[ReadLeaf] = []
    starts: list[ReadLeaf] = []
    finals: list[ReadLeaf] = []
    roots = {id(a.root): a.root for a in _written(first)}
    kept = any(a.loops < len(around) for a in session.arrays if id(a.root) in roots)
    if any(r.argument is not None or r.tensor is not None or len(r.dims) != len(around) + 1 for r in roots.values()):
        return None
    for root in roots:
        for item in readers.get(root, ()):
            if any(item is d for d in direct):
                reads.append(item)
            elif id(item) in states:
                starts.append(item)
            elif item.final is not None and any(item.final is s.state for s in states.values()):
                finals.append(item)
            elif id(item) not in own:
                return None
    at = _iteration_read(around, first, then, reads)
    if at is None or computed_inside(first.body) or not _may_move(body, first, then):
        return None
    pair = Pair(around, body, first, then, tuple(reads), at, kept=kept)
    if not starts:
        return pair if not finals and (not _carries(first) or _in_step(session, pair)) else None
    return _starting(replace(pair, starts=tuple(states.values())))


def _written(loop: Loop) -> list[Array]:
    return [i.array for i in records(loop.body) if isinstance(i, WriteLeaf)]


def _in_step(session: Session, pair: Pair) -> bool:
    """Whether the second loop goes along with the first one, which has states; the last ones are not read behind it."""
    first, then = pair.first, pair.then
    states = {id(i.state) for i in first.body if isinstance(i, ReadLeaf) and i.state is not None}
    left = any(isinstance(i, ReadLeaf) and id(i.final) in states for i in records(pair.body))
    own = all(a.root is a for a in _written(first))
    equal = session.are_equal(first.length, then.length, [loop.symbol for loop in pair.around])
    return own and not left and pair.at == of(then.symbol) and equal


def _iteration_read(around: tuple[Loop, ...], first: Loop, then: Loop, reads: Sequence[ReadLeaf]) -> Expr | None:
    """The iteration of the first loop of which everything is that one of the second one reads; None where that is not
    one, or where others read it, too."""
    outer = tuple(of(loop.symbol) for loop in around)
    own = (*outer, of(first.symbol))
    if not reads or any(i.index != own for i in first.body if isinstance(i, WriteLeaf)):
        return None
    found: set[Expr] = set()
    for item in reads:
        if not isinstance(item.read, Access) or item.read.index[:-1] != outer:
            return None
        found.add(item.read.index[-1])
    if len(found) != 1:
        return None
    at = found.pop()
    known = {a.var.name for a in at.atoms() if isinstance(a, Known)}
    inside = set().union(*map(defined, then.body))
    return at if at.coefficient(then.symbol) and not known & inside else None


def _may_move(body: Sequence[Any], first: Loop, then: Loop) -> bool:
    """Whether the first loop may stand where the second one does: nothing between them changes memory.  A check does
    not, and where it fails there is nothing to be seen of a loop without effects."""
    between = [i for i in body[body.index(first) + 1 : body.index(then)] if not isinstance(i, Check)]
    loops = [i for i in between if isinstance(i, Loop) and i.schedule != CHECKS]
    ops = [i for i in between if not isinstance(i, RECORDS)]
    return not has_effects(loops) and all(isinstance(i, Op) and reads_at_most(i) for i in ops)


def _starting(pair: Pair) -> Pair | None:
    """The pair, when its second loop starts with the element before the one that its first iteration reads."""
    first, then = pair.first, pair.then
    before = pair.at.replace({then.symbol: number(-1)})
    n = first.length
    shorter = binary("max", n - 1, number(0)) if n.constant is None else number(max(n.constant - 1, 0))
    if _carries(first) or then.length != shorter:
        return None
    written = _written(then)
    if not all(a.temporary and a.root is a for a in written):
        return None
    if {id(a) for a in written} != {id(s.state) for s in pair.starts}:
        return None
    if not all(_is_start(s.read, then.symbol, pair, before) for s in pair.starts):
        return None
    return pair if all(loop.schedule in ("auto", "sequential") and loop.tile is None for loop in pair.around) else None


def _is_start(read: Read, symbol: Symbol, pair: Pair, before: Expr) -> bool:
    """Whether the first state is a leaf, or the element of the list at `before`."""
    if not isinstance(read, Choose) or read.condition != Condition("zero", of(symbol)):
        return False
    roots = {id(a.root) for a in _written(pair.first)}
    if not any(id(a) in roots for a in accessed(read.then)):
        return not any(symbol in e.symbols() for e in expressions(read.then))
    return isinstance(read.then, Access) and read.then.index[-1] == before


# -- whether that is good ------------------------------------------------------------------------------------------


def _loss(session: Session, pair: Pair) -> str | None:
    """Why two loops are better than one; None where they are not."""
    from pto_jit.fractal.compile.cost import COPY, READ, cell_of

    first, then = pair.first, pair.then
    if pair.kept:
        return "it is stored for what else reads the list"
    if pair.starts and session.g.options.target == "ascend":
        return "the ascend target has no tiles that two branches lay out"
    free = next((loop for loop in (first, then) if not _carries(loop)), None)
    if free is not None and _carries(first) != _carries(then):
        if not any(a.leaf.extents for a in _written(free)):
            return "a loop over numbers that carries no state is one of vectors"
        work, between = cell_of(free.body, free.symbol).work(), cell_of(first.body, first.symbol).written
        if all(map(_carries, pair.around)) and not _is_perfect(pair) and work > between * (READ + COPY):
            return f"the iterations over `{free.symbol}` are divided over the workers as they are"
    apart = not any(map(_carries, pair.around))  # each would be a nest of its own
    for loop, other in ((first, then), (then, first)):
        if _carries(loop) and True in _shared(loop) and (pair.starts or False in _shared(other)):
            return f"the cells over `{loop.symbol}` would be no rows of batches any more"
        if apart and _are_blocks(loop) and (_carries(other) or False in _shared(other)):
            return f"the cells over `{loop.symbol}` would be no rows of blocks any more"
    return None


def _carries(loop: Loop) -> bool:
    return loop.kind != "parallel"


def _is_perfect(pair: Pair) -> bool:
    """Whether the loops around and the two, as one, are a nest with nothing between its loops."""
    between = [i for loop in pair.around for i in loop.body if not isinstance(i, Loop)]
    loops = sum(isinstance(i, Loop) for loop in pair.around for i in loop.body)
    plain = all(isinstance(i, (ReadLeaf, Compute)) or (isinstance(i, Op) and is_pure(i)) for i in between)
    left = any(isinstance(i, ReadLeaf) and i.final is not None for i in between)
    return plain and not left and not pair.starts and loops == len(pair.around) + 1


def _are_blocks(loop: Loop) -> bool:
    """Whether the cells of a map have products that can be those of rows."""
    from pto_jit.fractal.compile.cost import cell_of

    return not _carries(loop) and bool(cell_of(loop.body, loop.symbol).products) and False not in _shared(loop)


def _shared(loop: Loop) -> set[bool]:
    """Whether right operands of products are the same in all iterations, which makes rows of these."""
    names = demanded(loop.body)
    reads = [i for i in loop.body if isinstance(i, ReadLeaf) and name_of(i.value) in names]
    return {i.state is None and not depends_on(i.read, (loop.symbol,)) for i in reads}


# -- one loop ------------------------------------------------------------------------------------------------------


def _merged(pair: Pair) -> Loop:
    """Both bodies in one iteration."""
    first, then = pair.first, pair.then
    if not _carries(first):
        head, tail = _bodies(pair, {first.symbol: pair.at}, {})
        return replace(then, body=[*head, *tail])
    symbol = {then.symbol: of(first.symbol)}
    for array in _written(first):  # only its own loop reads it from now on
        array.temporary, array.folded = True, (len(pair.around),)
    for array in _written(then):
        array.dims = tuple(
            Dim(first.symbol if d.symbol == then.symbol else d.symbol, d.length.replace(symbol)) for d in array.dims
        )
    _, tail = _bodies(pair, {}, symbol)
    return replace(first, body=[*first.body, *tail], loc=then.loc)


def _started(session: Session, pair: Pair) -> Loop:
    """A loop over all elements, the first of which is the state, or part of it."""
    e = session.g.e
    first, then = pair.first, pair.then
    k = session.symbol(then.symbol.name)
    earlier = {then.symbol: of(k) - 1}
    head, rest = _bodies(pair, {first.symbol: pair.at.replace(earlier)}, earlier)
    around, values = tuple(of(loop.symbol) for loop in pair.around), _values(pair)
    start: list[Any] = []
    for item in pair.starts:
        assert item.state is not None and isinstance(item.read, Choose)
        read = item.read.then
        found = next((values[id(a)] for a in accessed(read) if id(a) in values), None)
        if found is None:
            found = session.variable(item.leaf, "x")
            start.append(ReadLeaf(found, read, item.leaf, item.loc))
        start.append(WriteLeaf(item.state, (*around, of(k)), found, item.loc))
    for item in rest:
        if isinstance(item, ReadLeaf) and item.state is not None:
            item.read = Choose(Condition("zero", of(k)), Filled(0), Access(item.state, (*around, of(k) - 1)))
        elif isinstance(item, WriteLeaf):
            item.index = (*around, of(k))
    for array in _written(then):
        array.dims = (*array.dims[:-1], Dim(k, first.length))
    for item in records(pair.body):
        if isinstance(item, ReadLeaf) and item.final is not None and any(item.final is i.state for i in pair.starts):
            item.read = Access(item.final, (*around, first.length - 1))
    at = e.fresh("at", I64)
    is_first = e.fresh("first", ScalarType(bool_))
    test = Op("eq", (is_first,), (at, index(0)), (), (), then.loc)
    branch = If(is_first, tuple(start), tuple(rest), then.loc)
    element = None if then.element is None else then.element.replace(earlier)
    element = None if element == of(k) else element
    body = [*head, Compute(at, of(k)), test, branch]
    return replace(then, symbol=k, length=first.length, element=element, body=body)


def _values(pair: Pair) -> dict[int, Any]:
    """What the first loop writes, by the identity of the array's root."""
    return {id(i.array.root): i.value for i in pair.first.body if isinstance(i, WriteLeaf)}


def _bodies(pair: Pair, first: Symbols, then: Symbols) -> tuple[list[Any], list[Any]]:
    """Both bodies with other symbols; the first one without what it writes, the second one with that for its reads."""
    values = _values(pair)
    tiles: dict[str, Tile] = {}
    numbers: list[Any] = []
    for item in pair.reads:
        (array,) = accessed(item.read)
        value = values[id(array)]
        if isinstance(value, Tile):
            tiles[name_of(item.value)] = value
        else:  # which indices may be made from by its name
            var = variable_of(item.value)
            assert isinstance(var, Var)
            numbers.append(Op("copy", (var,), (variable_of(value),), (), (), item.loc))
    head = [i for i in pair.first.body if not isinstance(i, WriteLeaf)]
    tail = [i for i in pair.then.body if not any(i is r for r in pair.reads)]
    return [_moved(i, first, {}) for i in head], [*numbers, *(_moved(i, then, tiles) for i in tail)]


def _moved(item: Any, symbols: Symbols, tiles: Mapping[str, Tile]) -> Any:
    """A record or statement with expressions for symbols, and with other tiles for some."""
    match item:
        case ReadLeaf():
            return replace(item, read=rewritten(replaced(item.read, symbols), lambda read: _of_tile(read, tiles)))
        case WriteLeaf():
            index = tuple(e.replace(symbols) for e in item.index)
            value = tiles.get(name_of(item.value), item.value) if isinstance(item.value, Tile) else item.value
            return replace(item, index=index, value=value)
        case Compute():
            return replace(item, expr=item.expr.replace(symbols))
        case Loop():
            element = None if item.element is None else item.element.replace(symbols)
            body = [_moved(i, symbols, tiles) for i in item.body]
            return replace(item, length=item.length.replace(symbols), element=element, body=body)
    vars = {name: tile.var for name, tile in tiles.items()}
    item = walk.with_operands(item, lambda o: vars.get(o.name, o) if isinstance(o, Var) else o, None)
    inner = (tuple(_moved(i, symbols, tiles) for i in block) for block in walk.blocks(item))
    return walk.with_blocks(item, tuple(inner))


def _of_tile(read: Read, tiles: Mapping[str, Tile]) -> Read | None:
    """What reads one of these tiles, reading the other one."""
    if isinstance(read, Computed) and isinstance(read.value, Tile) and read.value.var.name in tiles:
        return Computed(tiles[read.value.var.name], read.depth)
    if isinstance(read, Part) and read.source.var.name in tiles:
        return Part(tiles[read.source.var.name], read.starts, read.extents, read.depth)
    return None
