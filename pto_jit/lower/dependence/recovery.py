# SPDX-License-Identifier: MIT
"""A walk through a function that notes every access to tensor memory with what holds there.

Loops, conditions and views around a statement are known when it is reached; a variable that is assigned again has a
version for each place where its value is a new one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from pto_jit.ir.flow import is_left
from pto_jit.ir.nodes import Block, Break, Call, Continue, For, Func, If, Module, Op, Operand, Return, Var, While
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import TENSOR_VIEWS, block_defs, blocks, def_counts, defs, statements
from pto_jit.lower.dependence.accesses import ANYWHERE, ATOMIC, Access, Accesses, Loop, Root, Space, Span, View
from pto_jit.lower.dependence.linear import ONE, ZERO, Linear, atom
from pto_jit.lower.dependence.values import I64, NONE, Atom, Conditions, Loops
from pto_jit.lower.names import source_name
from pto_jit.semantic.table import effects, is_elementwise, is_generator, tensor_arg
from pto_jit.slotted import replace


def collect(func: Func, module: Module | None = None) -> Accesses:
    """All accesses of `func`; `module` says what the functions it calls write (without it: anything)."""
    return _Collector(func, module).run()


class _Collector:
    def __init__(self, func: Func, module: Module | None) -> None:
        self.out = Accesses(func)
        self.values = self.out.values
        self.module = module
        counts = Counter(def_counts(func.body))
        counts.subtract(v.name for s in statements(func.body) if isinstance(s, For) for v in defs(s))
        params = {p.name for p in func.params}
        self.mutable = {n for n, k in counts.items() if k > 1 or n in params}
        self.versions: Counter[str] = Counter()
        self.assigned: list[set[str]] = []  # per loop around: what its body assigns of the mutable variables
        self.views: dict[str, View] = {}
        self.whole: set[str] = set()  # tiles that are valid in their whole declared shape
        self.loaded: dict[str, tuple[Linear, ...]] = {}  # where tiles were loaded from, along their axes
        self.extents: dict[str, tuple[Linear, ...]] = {}  # declared extents of tiles where one is a run-time value
        self.stack: tuple[int, ...] = ()
        self.here: Loops = NONE
        self.conditions: tuple[tuple[int, Conditions], ...] = ()
        self.broken: list[int] = []  # depths of loops whose iterations may be cut short by what came before
        self.returned = False

    def run(self) -> Accesses:
        for param in self.out.func.params:
            if isinstance(param.type, TensorType):
                self.views[param.name] = self._whole(Root(param.name, "argument"), param.type)
            elif param.type == I64:
                self.values.known[param.name] = self.values.symbol(param.name)
            elif isinstance(param.type, ScalarType):
                identities = self.values.identities
                self.values.others[param.name] = identities.setdefault(("param", param.name), len(identities)), NONE
        self.block(self.out.func.body)
        return self.out

    # -- statements -----------------------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        for stmt in block:
            kind = type(stmt)
            if kind is Op:
                self.op(stmt)  # pyright: ignore[reportArgumentType]
            elif kind is For or kind is While:
                self.loop(stmt)  # pyright: ignore[reportArgumentType]
            elif isinstance(stmt, If):
                self.branch(stmt)
            elif isinstance(stmt, Call):
                self.call(stmt)
            elif isinstance(stmt, Return):
                self.returned = True
            elif isinstance(stmt, (Break, Continue)):
                self.broken.append(len(self.stack))
            else:
                for inner in blocks(stmt):
                    self.block(inner)

    def loop(self, stmt: For | While) -> None:
        number = len(self.out.loops)
        outer = (*self.stack, number)
        varies = frozenset((number,))
        if isinstance(stmt, For):
            loop = self._counted(stmt, number, outer)
            hidden = self.values.known.get(stmt.var.name)
            self.values.known[stmt.var.name] = loop.value
        else:
            counter = self.values.unknown(("while", number), "while", varies)
            loop = Loop(number, stmt, outer, counter.terms[0][0], counter, None, ONE, None)
            hidden = None
        self.out.loops.append(loop)
        saved = self.stack, self.here, self.conditions
        self.stack, self.here = outer, self.here | varies
        if self.mutable:
            inside = set().union(*(block_defs(b) for b in blocks(stmt)))
            self.assigned.append(inside & self.mutable)
            self.versions.update(self.assigned[-1])  # what an iteration sees may come from the one before
        else:
            self.assigned.append(set())
        before = len(self.broken)
        if isinstance(stmt, While) or is_left(stmt.body):
            self.conditions = (*self.conditions, (len(outer), None))
        for inner in blocks(stmt):
            self.block(inner)
        del self.broken[before:]
        if self.mutable:
            self.versions.update(self.assigned[-1])
        self.assigned.pop()
        self.stack, self.here, self.conditions = saved
        if isinstance(stmt, For):
            last = self.values.unknown(("last", number), source_name(stmt.var.name), self.here)
            self.values.known[stmt.var.name] = last if hidden is None else hidden

    def _counted(self, stmt: For, number: int, outer: tuple[int, ...]) -> Loop:
        """A loop and what is known of its variable."""
        values, name = self.values, stmt.var.name
        start, stop, step = (self._index(o) for o in (stmt.start, stmt.stop, stmt.step))
        known = len(values.atoms)
        me = atom(known)
        rising = step.const > 0 if not step.terms else True if stmt.chunk is not None or _is_chunk(stmt) else None
        value, facts = me, ()
        if step == ONE or step.terms:  # steps of run-time size are handled as differences of the variable
            if rising:
                lows = values.bounds("max", start)
                highs = values.bounds("min", stop)
                facts = (*(me - low for low in lows), *((high - me).plus(-1) for high in highs))
            elif step.terms:
                value = me
        elif step.const:
            value = start + me.times(step.const)
            sign = 1 if step.const > 0 else -1
            ends = values.bounds("min" if sign > 0 else "max", stop)
            facts = (me, *((end - value).times(sign).plus(-1) for end in ends))
        counts = (start, step.const) if value != me else None
        made = Atom(source_name(name), frozenset((number,)), facts, free=not step.terms, counts=counts)
        values.add(("loop", number), made)
        return Loop(number, stmt, outer, known, value, start, step, rising)

    def branch(self, stmt: If) -> None:
        saved = self.conditions
        depth = len(self.stack)
        yes, no = (None, None)
        if isinstance(stmt.cond, Var) and stmt.cond.name not in self.mutable:
            yes, no = self.values.truths.get(stmt.cond.name, (None, None))
        self.conditions = (*saved, (depth, yes))
        self.block(stmt.then)
        self.conditions = (*saved, (depth, no))
        self.block(stmt.orelse)
        self.conditions = saved

    # -- operands -------------------------------------------------------------------------------------------------

    def _index(self, operand: Operand) -> Linear:
        """An i64 operand, read here."""
        if isinstance(operand, Var) and operand.name in self.mutable:
            return self._changing(operand.name)
        form = self.values.of(operand)
        if form is not None:
            return form
        assert isinstance(operand, Var)
        return self.values.unknown(("read", operand), source_name(operand.name), self.here)

    def _changing(self, name: str) -> Linear:
        """A variable that is assigned more than once: it changes in the loops that assign it, and at assignments."""
        depth = max((k + 1 for k, names in enumerate(self.assigned) if name in names), default=0)
        key = ("changing", name, self.versions[name], self.stack[:depth])
        return self.values.unknown(key, source_name(name), frozenset(self.stack[:depth]))

    # -- operations -----------------------------------------------------------------------------------------------

    def op(self, op: Op) -> None:
        for region in op.regions:
            self._region(region.params, region.body)
        name = op.op
        if name in TENSOR_VIEWS:
            self._view(op)
            return
        if name == "dim":
            self.values.known[op.results[0].name] = self._dim(op)
            return
        if name == "alloc":
            assert isinstance(op.results[0].type, TensorType)
            root = Root(op.results[0].name, "alloc", self.here)
            self.views[root.name] = self._whole(root, op.results[0].type, [self._index(a) for a in self._extents(op)])
        effect = effects(name)
        if effect != "none":
            if tensor_arg(name) is not None:
                self._access(op, write=effect == "writes")
            elif effect == "writes" and not (name == "assert" and not op.attr("always")):
                self.out.outside.append((op, self.stack))
        for result in op.results:
            if isinstance(result.type, TensorType):
                if result.name not in self.views or result.name in self.mutable:
                    self.views[result.name] = self._anything(result.name, result.type)
            elif isinstance(result.type, ScalarType) and result.name not in self.mutable and len(op.results) == 1:
                self._scalar(op)
            elif isinstance(result.type, TileType) and result.name not in self.mutable:
                self._tile(op, result)
            if result.name in self.mutable:
                self.versions[result.name] += 1

    def _scalar(self, op: Op) -> None:
        if any(isinstance(a, Var) and a.name in self.mutable for a in op.args):
            for a in op.args:  # so that the operation sees it as it is now
                if isinstance(a, Var) and a.name in self.mutable and a.type == I64:
                    self.values.known[a.name] = self._changing(a.name)
            self.values.record(op, self.here)
            for a in op.args:
                if isinstance(a, Var) and a.name in self.mutable:
                    self.values.known.pop(a.name, None)
            return
        self.values.record(op, self.here)

    def _tile(self, op: Op, result: Var) -> None:
        """Whether a tile is complete, and its run-time extents: elementwise operations pass both on."""
        assert isinstance(result.type, TileType)
        follows = is_elementwise(op.op, len(op.args))
        tiles = [a for a in op.args if isinstance(a, Var) and isinstance(a.type, TileType)]
        partial = [t.name for t in tiles if t.name not in self.whole] if follows else []
        if partial:
            place = self.loaded.get(partial[0])
            if place is not None and all(self.loaded.get(name) == place for name in partial[1:]):
                self.loaded[result.name] = place
        elif follows or is_generator(op.op) or op.attr("pad"):
            self.whole.add(result.name)
        if None not in result.type.shape:
            return
        rank = result.type.rank
        if op.op == "load" or op.op == "full":
            numbers = op.args[1 + rank : 1 + 2 * rank] if op.op == "load" else op.args[1:]
            self.extents[result.name] = tuple(self._index(a) for a in numbers)
        elif follows:
            known = [(t.type.shape, self.extents[t.name]) for t in tiles if t.name in self.extents]  # pyright: ignore
            axes = [next((e[k] for s, e in known if len(s) == rank and s[k] is None), None) for k in range(rank)]
            shape = [axis if n is None else Linear(n) for axis, n in zip(axes, result.type.shape, strict=True)]
            if all(e is not None for e in shape):
                self.extents[result.name] = tuple(e for e in shape if e is not None)

    @staticmethod
    def _extents(op: Op) -> tuple[Operand, ...]:
        return op.args[:-1] if op.attr("filled") else op.args

    def _region(self, params: tuple[Var, ...], body: Block) -> None:
        """The body of a function given to an operation runs any number of times."""
        saved = self.conditions
        self.conditions = (*saved, (len(self.stack), None))
        for param in params:
            if param.type == I64:
                key = ("region", param.name, len(self.out.accesses), len(self.values.atoms))
                self.values.known[param.name] = self.values.unknown(key, param.name, frozenset((-1,)))
        here, self.here = self.here, self.here | {-1}  # a loop that is never the same iteration twice
        self.block(body)
        self.conditions, self.here = saved, here

    def _dim(self, op: Op) -> Linear:
        view, axis = self._tensor(op.args[0]), op.attr("axis")
        assert isinstance(axis, int) and isinstance(op.args[0], Var)
        type_ = op.args[0].type
        assert isinstance(type_, TensorType)
        extent = type_.shape[axis]
        if extent is not None:
            return Linear(extent)
        if axis < len(view.order):
            where = view.order[axis]
            span = view.spans[where]
            whole = span.low == ZERO and span.highs == (view.space.extents[where],)
            if whole and view.steps[axis] == 1:
                return view.space.extents[where]
        name = op.args[0].name
        varies = self.here if name in self.mutable or view.space.root.kind != "argument" else self._varies(view)
        return self._extent(("dim", name, axis), f"{source_name(name)}.shape[{axis}]", varies)

    def _varies(self, view: View) -> Loops:
        forms = [f for s in view.spans if s.low is not None for f in (s.low, *s.highs)]
        return self.values.varies(*forms, *view.space.extents)

    def _extent(self, key: Hashable, text: str, varies: Loops) -> Linear:
        number = self.values.found.get(key)
        if number is None:
            number = len(self.values.atoms)
            made = Atom(text, varies, (Linear(0, ((number, 1),)),), free=not varies)
            self.values.add(key, made)
        return atom(number)

    # -- tensors --------------------------------------------------------------------------------------------------

    def _whole(self, root: Root, type_: TensorType, extents: list[Linear] | None = None) -> View:
        shape = []
        for axis, extent in enumerate(type_.shape):
            if extent is not None:
                shape.append(Linear(extent))
            elif extents is not None:
                shape.append(extents[axis])
            else:
                shape.append(self._extent(("dim", root.name, axis), f"{source_name(root.name)}.shape[{axis}]", NONE))
        strides = self._strides(shape) if type_.layout == "c" else None
        space = Space(root, None, tuple(shape), ZERO, strides, type_.layout != "strided")
        spans = tuple(Span(ZERO, (extent,)) for extent in shape)
        return View(space, spans, tuple(range(type_.rank)), (1,) * type_.rank)

    def _strides(self, extents: list[Linear]) -> tuple[Linear, ...]:
        out, size = [], ONE
        for extent in reversed(extents):
            out.append(size)
            size = self.values.product(size, extent)
        return tuple(reversed(out))

    def _anything(self, name: str, type_: TensorType) -> View:
        """A tensor variable of which nothing is known."""
        root = Root(name, "unknown")
        space = Space(root, ("unknown", name), (ZERO,) * type_.rank, None, None, False)
        return View(space, (ANYWHERE,) * type_.rank, tuple(range(type_.rank)), (1,) * type_.rank)

    def _tensor(self, operand: Operand) -> View:
        assert isinstance(operand, Var) and isinstance(operand.type, TensorType)
        view = None if operand.name in self.mutable else self.views.get(operand.name)
        return view if view is not None else self._anything(operand.name, operand.type)

    def _view(self, op: Op) -> None:
        name = op.results[0].name
        source, type_ = self._tensor(op.args[0]), op.results[0].type
        assert isinstance(type_, TensorType)
        if name in self.mutable:
            self.versions[name] += 1
            return
        if op.op == "tensor_transpose":
            axes = op.attr("axes") or tuple(reversed(range(len(source.order))))
            assert isinstance(axes, tuple)
            order, steps = (tuple(now[int(a)] for a in axes) for now in (source.order, source.steps))  # pyright: ignore
            self.views[name] = View(source.space, source.spans, order, steps)
            return
        if op.op == "tensor_step":
            by = op.attr("steps")
            assert isinstance(by, tuple)
            steps = tuple(old * int(new) for old, new in zip(source.steps, by, strict=True))  # pyright: ignore
            self.views[name] = View(source.space, source.spans, source.order, steps)
            return
        numbers = [self._index(a) for a in op.args[1:]]
        if op.op == "tensor_reshape":
            self.views[name] = self._reshaped(source, numbers)
            return
        rank = len(source.order)
        spans = self._placed(source, numbers[:rank], numbers[rank:])
        drop = op.attr("drop") or ()
        assert isinstance(drop, tuple)
        order, steps = (tuple(a for k, a in enumerate(now) if k not in drop) for now in (source.order, source.steps))
        self.views[name] = View(source.space, spans, order, steps)

    def _reshaped(self, source: View, extents: list[Linear]) -> View:
        space = source.space
        offset: Linear | None = space.offset
        if space.strides is None or offset is None:
            offset = None
        else:  # the view's first element; the elements of a contiguous view follow without gaps
            for span, stride in zip(source.spans, space.strides, strict=True):
                offset = None if offset is None or span.low is None else offset + self.values.product(span.low, stride)
        key = (space.key, source.spans, source.order, tuple(extents))
        new = Space(space.root, key, tuple(extents), offset, self._strides(extents), True)
        rank = len(extents)
        return View(new, tuple(Span(ZERO, (e,)) for e in extents), tuple(range(rank)), (1,) * rank)

    @staticmethod
    def _placed(view: View, offsets: list[Linear], extents: list[Linear]) -> tuple[Span, ...]:
        """The rectangle of the view's space at `offsets` of the view, clipped as the view is; between the elements of a
        view with steps others lie in it."""
        spans = list(view.spans)
        for axis, step, offset, extent in zip(view.order, view.steps, offsets, extents, strict=True):
            old = spans[axis]
            if old.low is None:
                continue
            low = old.low + offset.times(step)
            if extent == ONE:
                spans[axis] = Span(low, (low.plus(1),))
                continue
            highs = [low + extent.plus(-1).times(step).plus(1)]
            for high in old.highs:
                if (high - highs[0]).terms:
                    highs.append(high)
                elif high.const < highs[0].const:
                    highs[0] = high
            spans[axis] = Span(low, tuple(highs))
        return tuple(spans)

    def _touched(self, view: View, offsets: list[Linear], extents: list[Linear]) -> tuple[Span, ...]:
        """The same of a tile that is loaded or stored: along axes with a step anywhere, but for single elements."""
        spans = list(self._placed(view, offsets, extents))
        for axis, step, extent in zip(view.order, view.steps, extents, strict=True):
            if step != 1 and extent != ONE:
                spans[axis] = ANYWHERE
        return tuple(spans)

    # -- accesses -------------------------------------------------------------------------------------------------

    def _access(self, op: Op, *, write: bool) -> None:
        at = tensor_arg(op.op)
        assert at is not None
        view = self._tensor(op.args[at])
        rank = len(view.order)
        numbers = op.args[at + 1 :]
        certain, whole, aligned = True, True, False
        if op.op in ("getelem", "setelem"):
            spans = self._placed(view, [self._index(a) for a in numbers], [ONE] * rank)
        elif op.op == "load":
            places = [self._index(a) for a in numbers[: 2 * rank]]
            spans = self._touched(view, places[:rank], places[rank:])
            place = _place(view, spans)
            if place is not None and op.results[0].name not in self.mutable:
                self.loaded[op.results[0].name] = place
        elif op.op == "store" or op.op in ATOMIC:
            tile = op.args[0].type
            shape = [self._tile_extent(op.args[0], k, e) for k, e in enumerate(tile.shape)]  # pyright: ignore
            spans = self._touched(view, [self._index(a) for a in numbers], shape)
            certain = op.op == "store"
            name = op.args[0].name if isinstance(op.args[0], Var) else ""
            whole = certain and name in self.whole
            there, here = self.loaded.get(name), _place(view, spans)
            if certain and there is not None and here is not None and len(there) == len(here):
                aligned = all(not (t - h).terms for t, h in zip(there, here, strict=True))
        else:  # take, put: anywhere in the view
            spans, certain = view.inside, False
        made = self._made(op, view, spans, write, certain, whole)
        self.out.accesses.append(replace(made, aligned=True) if aligned and made.certain else made)

    def _tile_extent(self, tile: Operand, axis: int, extent: int | None) -> Linear:
        if extent is not None:
            return Linear(extent)
        assert isinstance(tile, Var)
        known = self.extents.get(tile.name)
        if known is not None:
            return known[axis]
        # the same number wherever the tile is used, so it changes with the loops around here
        key = ("tile", tile.name, axis, self.versions[tile.name] if tile.name in self.mutable else 0)
        return self._extent(key, f"{source_name(tile.name)}.shape[{axis}]", self.here)

    def call(self, call: Call) -> None:
        written, read = self._effects(call)
        for k, arg in enumerate(call.args):
            if isinstance(arg.type, TensorType):
                view = self._tensor(arg)
                for write, which in ((True, written), (False, read)):
                    if which is None or k in which:
                        self.out.accesses.append(self._made(call, view, view.inside, write, False, False))
        for result in call.results:
            if result.name in self.mutable:
                self.versions[result.name] += 1
            elif result.type == I64:
                self.values.known[result.name] = self.values.unknown(result.name, source_name(result.name), self.here)

    def _effects(self, call: Call) -> tuple[set[int] | None, set[int] | None]:
        """Which arguments the callee writes and reads; None: any."""
        if self.module is None:
            return None, None
        callee = self.module.func(call.callee)
        inner = collect(callee, self.module)
        positions = {p.name: k for k, p in enumerate(callee.params)}
        sides: list[set[int] | None] = []
        for write in (True, False):
            names = {a.root.name for a in inner.accesses if a.write == write}
            known = all(n in positions or any(a.root.kind == "alloc" and a.root.name == n for a in inner.accesses)
                        for n in names)  # fmt: skip
            sides.append({positions[n] for n in names if n in positions} if known else None)
        return sides[0], sides[1]

    def _made(
        self, op: Op | Call, view: View, spans: tuple[Span, ...], write: bool, certain: bool, whole: bool
    ) -> Access:
        conditions = self.conditions
        if self.returned:
            conditions = (*conditions, (1 << 30, None))
        if self.broken:
            conditions = (*conditions, *((depth, None) for depth in self.broken))
        order = len(self.out.accesses)
        certain = certain and all(s.low is not None for s in spans)
        return Access(op, op.loc, view.space, spans, write, self.stack, conditions, order, certain, certain and whole)


def _place(view: View, spans: tuple[Span, ...]) -> tuple[Linear, ...] | None:
    """The first position along each axis of a view."""
    lows = [spans[axis].low for axis in view.order]
    return None if None in lows else tuple(low for low in lows if low is not None)


def _is_chunk(stmt: For) -> bool:
    return stmt.kind in ("chunk", "in_chunk")
