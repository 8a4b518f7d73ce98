# SPDX-License-Identifier: MIT
"""Split every chunked loop in two: a chunk loop over chunks around an in_chunk loop over their iterations.

The body appears once.  `leading_full`: chunk c covers iterations [c*C, min((c+1)*C, extent)).  `aligned`: chunk
boundaries are multiples of C in index values, whatever the step.

The arithmetic of the bounds must not leave 64 bits.  It cannot when start, step and chunk are constants of moderate
size: the iterations would not come to an end before.  Otherwise the bounds of the loop must lie within `CHUNK_LIMIT`,
which is checked when run, and a larger chunk or step is replaced by one that means the same.

Before::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?,f32>) {
      FOR %i:idx, 0:idx, 10:idx, 1:idx {kind=parallel, chunk=4}
        ssetelem 1.0:f32, %x[%i]
      ENDFOR
      return
    }

After::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?,f32>) {
      FOR %i_chunk:idx, 0:idx, 3:idx, 1:idx {kind=chunk}
        %i_lo = smul %i_chunk, 4 : i64
        %i_end = sadd %i_lo, 4 : i64
        %i_hi = smin %i_end, 10 : i64
        FOR %i:idx, %i_lo:idx, %i_hi:idx, 1:idx {kind=in_chunk}
          ssetelem 1.0:f32, %x[%i]
        ENDFOR
      ENDFOR
      return
    }
"""

from __future__ import annotations

from pto_jit.errors import ScheduleError
from pto_jit.ir.nodes import Block, Const, For, Func, Module, Op, Operand, Stmt
from pto_jit.ir.walk import map_funcs, rewrite_func
from pto_jit.language._loops import CHUNK_LIMIT
from pto_jit.lower.decisions import Decision
from pto_jit.lower.names import BOOL, I64, Names, Scalars, index, source_name
from pto_jit.semantic.failures import CHUNK, FAR
from pto_jit.slotted import frozen, replace

_MODERATE = 1 << 31


def expand_chunks(module: Module, decisions: list[Decision]) -> Module:
    """Expand all chunked loops of `module`; a chunk or step that is not positive is an error, checked when run if it
    is a run-time value."""

    def expand(func: Func) -> Func:
        names: list[Names] = []

        def visit(stmt: Stmt) -> Block | None:
            if not isinstance(stmt, For) or stmt.chunk is None:
                return None
            if not names:
                names.append(Names(func))
            return take_apart(stmt, names[0], decisions).block()

        return rewrite_func(func, visit, plain=False)

    return map_funcs(module, expand)


@frozen
class Expansion:
    """A chunked loop taken apart: what stands before it, the chunk loop (without a body), the statements its body
    begins with, the in_chunk loop."""

    before: Block
    chunk: For
    head: Block
    in_chunk: For

    def block(self) -> Block:
        """The statements that take the loop's place."""
        return (*self.before, replace(self.chunk, body=(*self.head, self.in_chunk)))


def take_apart(loop: For, names: Names, decisions: list[Decision], *, given: bool = True) -> Expansion:
    """Take `loop` apart; `given`: the chunk is the user's, who is told when it is not positive."""
    chunk = loop.chunk
    assert chunk is not None
    var = source_name(loop.var.name)
    outer = Scalars(names, loop.loc)
    if given:
        _require_positive(chunk, f"the chunk of loop `{var}`", loop)
        _require_positive(loop.step, f"the step of the chunked loop `{var}`", loop)
        for operand, what in ((chunk, "chunk"), (loop.step, "step")):
            if not isinstance(operand, Const):
                ok = names.fresh(f"{var}_ok", BOOL)
                outer.block.append(Op("ge", (ok,), (operand, index(1)), (), (), loop.loc))
                attrs = (("always", True), ("error", "LaunchError"), ("message", CHUNK.text(what=what, var=var)))
                outer.block.append(Op("assert", (), (ok,), attrs, (), loop.loc))
    counter = names.fresh(f"{var}_chunk", I64)
    if not all(isinstance(o, Const) and abs(o.value) < _MODERATE for o in (loop.start, loop.step, chunk)):
        _require_bounds(loop, "chunked" if given else "divided", var, outer)
        # a step or a chunk that is longer than the loop can be
        loop = replace(loop, step=outer.op("min", loop.step, index(2 * CHUNK_LIMIT), f"{var}_step"))
        chunk = outer.op("min", chunk, index(2 * CHUNK_LIMIT), f"{var}_size")
    build = _leading_full if loop.policy == "leading_full" else _aligned
    first, last, inner, low, high = build(loop, chunk, counter, var, outer, Scalars(names, loop.loc))
    in_chunk = replace(loop, kind="in_chunk", start=low, stop=high, chunk=None, policy="leading_full")
    chunk_loop = replace(
        loop, kind="chunk", var=counter, start=first, stop=last, step=index(1), chunk=None, policy="leading_full",
        body=(), reductions=(),
    )  # fmt: skip
    size = str(loop.chunk.value) if isinstance(loop.chunk, Const) else "run-time"
    if given:
        reason = f"split into chunks of {size} iterations ({loop.policy})"
        decisions.append(Decision("chunk", (var,), True, reason, loop.loc))
    return Expansion(outer.done(), chunk_loop, inner.done(), in_chunk)


def _require_positive(operand: Operand, what: str, loop: For) -> None:
    if isinstance(operand, Const) and operand.value < 1:
        raise ScheduleError(
            f"{what} is {operand.value}",
            loop.loc,
            code="PTO-L017",
            hint="a chunked loop needs a chunk and a step of 1 or more",
        )


def _require_bounds(loop: For, what: str, var: str, outer: Scalars) -> None:
    """Start and stop within the limit: an error now, or one when run."""
    unknown: list[Operand] = []
    for operand in (loop.start, loop.stop):
        if not isinstance(operand, Const):
            unknown.append(operand)
        elif not -CHUNK_LIMIT <= operand.value <= CHUNK_LIMIT:
            raise ScheduleError(
                FAR.message.format(what=what, var=var), loop.loc, code="PTO-L018", hint=FAR.help
            )
    if not unknown:
        return
    first, last = unknown[0], unknown[-1]
    low, high = (outer.op("min", first, last), outer.op("max", first, last)) if len(unknown) == 2 else (first, last)
    for name, operand, limit in (("ge", low, -CHUNK_LIMIT), ("le", high, CHUNK_LIMIT)):
        ok = outer.names.fresh(f"{var}_ok", BOOL)
        outer.block.append(Op(name, (ok,), (operand, index(limit)), (), (), loop.loc))
        attrs = (("always", True), ("error", "LaunchError"), ("message", FAR.text(what=what, var=var)))
        outer.block.append(Op("assert", (), (ok,), attrs, (), loop.loc))


Bounds = tuple[Operand, Operand, Scalars, Operand, Operand]


def _leading_full(loop: For, chunk: Operand, counter: Operand, var: str, outer: Scalars, inner: Scalars) -> Bounds:
    one = index(1)
    span = outer.op("sub", outer.op("max", loop.stop, loop.start, f"{var}_extent"), loop.start, f"{var}_extent")
    extent = outer.op("floordiv", outer.op("add", span, outer.op("sub", loop.step, one)), loop.step, f"{var}_extent")
    if not (isinstance(chunk, Const) and chunk.value < _MODERATE):  # a chunk of all iterations, so that `stride` fits
        chunk = outer.op("min", chunk, outer.op("max", extent, one), f"{var}_size")
    count = outer.op("floordiv", outer.op("add", extent, outer.op("sub", chunk, one)), chunk, f"{var}_chunks")
    stride = outer.op("mul", chunk, loop.step, f"{var}_stride")
    low = inner.op("add", inner.op("mul", counter, stride, f"{var}_lo"), loop.start, f"{var}_lo")
    high = inner.op("min", inner.op("add", low, stride, f"{var}_end"), loop.stop, f"{var}_hi")
    return index(0), count, inner, low, high


def _aligned(loop: For, chunk: Operand, counter: Operand, var: str, outer: Scalars, inner: Scalars) -> Bounds:
    one = index(1)
    first = outer.op("floordiv", loop.start, chunk, f"{var}_first")
    end = outer.op("max", loop.stop, loop.start, f"{var}_stop")  # so that there are no fewer than no chunks
    last = outer.op("floordiv", outer.op("add", end, outer.op("sub", chunk, one)), chunk, f"{var}_last")
    bound = inner.op("mul", counter, chunk, f"{var}_bound")
    # the first index value of the loop at or past the boundary
    ahead = inner.op("max", inner.op("sub", bound, loop.start), index(0))
    steps = inner.op("floordiv", inner.op("add", ahead, inner.op("sub", loop.step, one)), loop.step)
    low = inner.op("add", loop.start, inner.op("mul", steps, loop.step), f"{var}_lo")
    high = inner.op("min", inner.op("add", bound, chunk, f"{var}_end"), loop.stop, f"{var}_hi")
    return first, last, inner, low, high
