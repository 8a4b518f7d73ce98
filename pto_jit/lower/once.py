# SPDX-License-Identifier: MIT
"""Elements that a block reads twice, read once.

Before::

    %t = sgetelem %a[%i] : f32
    %less = slt %t, %least : bool
    IF %less
      %u = sgetelem %a[%i] : f32
      ...

After::

    %t = sgetelem %a[%i] : f32
    %less = slt %t, %least : bool
    IF %less
      %u = scopy %t : f32
      ...

where nothing is written in between, whatever the tensor.  (An optimiser of scalar code does as much; this is for code
that runs under masks, where the two are different loads.)

What the condition of a `while` reads, and every test of it the same, is read in front of the loop: the condition is
tested at least once.  So are the elements that all iterations of a `for` read, behind a test that there is one: of

    FOR %j:idx, 0:idx, %n:idx, 1:idx
      %t = sgetelem %p[%i] : f32
      ...

an iteration of the loop over i reads %p[%i] once, where lanes have elements that may lie apart.  What only branches of
the loop read is read early as well, if it is in its tensor.
"""

from __future__ import annotations

from collections.abc import Mapping

from pto_jit.dtypes import bool_, i64
from pto_jit.errors import Loc
from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Break, Const, Continue, For, If, Op, Operand, Return, Stmt, Var, While
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import block_defs, blocks, def_counts, rewrite_block, statements, uses, with_blocks
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.lower.kept import Element, element_of
from pto_jit.slotted import replace

_MOST = 8  # elements that are read early, whether they are wanted or not

Known = dict[Element, Var]
"""Elements with the variables that have their values."""


def read_once(block: Block) -> Block:
    """A block in which no element is read again that a variable has already."""
    return _block(_moved(block), {})


def _block(block: Block, known: Known) -> Block:
    return _or_itself(block, tuple(_statement(s, known) for s in block))


def _moved(block: Block) -> Block:
    """A block in which what loops read early stands in front of them; each loop is looked at once."""
    return _or_itself(block, tuple(s for stmt in block for s in _in_front(_with_moved(stmt))))


def _with_moved(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, (If, For, While)):
        return stmt
    inner = blocks(stmt)
    moved = tuple(map(_moved, inner))
    return stmt if all(a is b for a, b in zip(inner, moved, strict=True)) else with_blocks(stmt, moved)


def _or_itself(block: Block, result: Block) -> Block:
    same = len(result) == len(block) and all(a is b for a, b in zip(block, result, strict=True))
    return block if same else result


def _in_front(stmt: Stmt) -> Block:
    if isinstance(stmt, While):
        return _with_reads_in_front(stmt)
    return _with_same_reads_in_front(stmt) if isinstance(stmt, For) else (stmt,)


def _with_same_reads_in_front(loop: For) -> Block:
    """A loop behind the elements that its iterations read for certain, all of them the same, where it has some."""
    if not isinstance(loop.step, Const) or any(map(_may_write, statements(loop.body))):
        return (loop,)
    made = def_counts(loop.body).copy()
    made[loop.var.name] += 1
    carried = {v.name for v in free_vars(loop.body)}
    moved: list[Stmt] = []
    left = len(loop.body)  # what stands behind this may not be reached
    for k, op in enumerate(loop.body):
        if not isinstance(op, Op):
            if any(isinstance(s, (Break, Continue, Return)) for s in statements((op,))):
                left = k
                break
            continue
        if op.regions or len(op.results) != 1 or not (op.op == "getelem" or is_elementwise(op)):
            continue
        (name,) = (r.name for r in op.results)
        if made[name] == 1 and name not in carried and not any(made[v.name] for v in uses(op)):
            moved.append(op)
            made[name] = 0
    certain = {element_of(op) for op in moved if isinstance(op, Op) and op.op == "getelem"}
    perhaps = [e for e in _perhaps_read(loop.body, left) if e not in certain and not any(made[n] for n in _names(e))]
    perhaps = perhaps[:_MOST]
    if not certain and not perhaps:
        return (loop,)
    gone = set(map(id, moved))
    early = {e: Var(f"{loop.var.name}@early{k}", ScalarType(e.dtype)) for k, e in enumerate(perhaps)}
    body = tuple(s for s in loop.body if id(s) not in gone)
    rest = replace(loop, body=_with_values(body, early) if early else body)
    for element, var in early.items():
        moved += _read_inside(element, var, loop.loc)
    some = Var(f"{loop.var.name}@some", ScalarType(bool_))
    compare = Op("lt" if int(loop.step.value) > 0 else "gt", (some,), (loop.start, loop.stop), loc=loop.loc)
    return (compare, If(some, (*moved, rest), loc=loop.loc))


def _perhaps_read(block: Block, left: int) -> list[Element]:
    """The elements that branches of a block read, in which there are no loops, and its statements from `left` on."""
    found: dict[Element, None] = {}
    for k, stmt in enumerate(block):
        branch = isinstance(stmt, If) and not any(isinstance(s, (For, While)) for s in statements((stmt,)))
        if branch or (k > left and isinstance(stmt, Op)):
            found.update((element_of(s), None) for s in statements((stmt,)) if isinstance(s, Op) and s.op == "getelem")
    return [e for e in found if e.dtype != bool_ and not any(isinstance(i, Const) and i.value < 0 for i in e.indices)]


def _read_inside(element: Element, var: Var, loc: Loc) -> Block:
    """Read an element that is perhaps not wanted, if it is in its tensor; elsewhere nothing may ask for it."""
    out: list[Stmt] = []
    inside: Operand | None = None

    def made(name: str, op: str, typ: ScalarType, *args: Operand, **attrs: int) -> Var:
        made_of = Var(f"{var.name}.{name}", typ)
        out.append(Op(op, (made_of,), args, tuple(attrs.items()), loc=loc))
        return made_of

    truth = ScalarType(bool_)
    for axis, index in enumerate(element.indices):
        extent = made(f"n{axis}", "dim", ScalarType(i64), element.tensor, axis=axis)
        tests = [made(f"above{axis}", "lt", truth, index, extent)]
        if not isinstance(index, Const):
            tests.append(made(f"below{axis}", "ge", truth, index, Const(0, ScalarType(i64))))
        for k, test in enumerate(tests):
            inside = test if inside is None else made(f"in{axis}{k}", "and", truth, inside, test)
    assert inside is not None
    read = Op("getelem", (var,), (element.tensor, *element.indices), loc=loc)
    zero = Const(0.0 if element.dtype.is_float else 0, ScalarType(element.dtype))
    return (*out, If(inside, (read,), (Op("copy", (var,), (zero,), loc=loc),), loc))


def _with_values(block: Block, values: Mapping[Element, Var]) -> Block:
    """A block in which these elements are variables."""

    def value(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Op) or stmt.op != "getelem" or (var := values.get(element_of(stmt))) is None:
            return None
        return (Op("copy", stmt.results, (var,), loc=stmt.loc),)

    return rewrite_block(block, value)


def _with_reads_in_front(loop: While) -> Block:
    """A loop behind the elements that its condition reads, if they are the same in every iteration, with what their
    indices are computed from."""
    if any(map(_may_write, statements((loop,)))):
        return (loop,)
    made, carried = def_counts((loop,)).copy(), {v.name for v in free_vars((loop,))}
    moved: list[Op] = []
    for op in loop.before:
        if not isinstance(op, Op) or op.regions or _may_write(op) or len(op.results) != 1:
            continue
        (name,) = (r.name for r in op.results)
        if made[name] == 1 and name not in carried and not any(made[v.name] for v in uses(op)):
            moved.append(op)
            made[name] = 0
    if not any(op.op == "getelem" for op in moved):
        return (loop,)
    gone = set(map(id, moved))
    return (*moved, replace(loop, before=tuple(s for s in loop.before if id(s) not in gone)))


def _statement(stmt: Stmt, known: Known) -> Stmt:
    """A statement where these elements are known; `known` is changed to what is so behind it."""
    if isinstance(stmt, Op) and not stmt.regions:
        return _operation(stmt, known)
    names, writes = block_defs((stmt,)), any(map(_may_write, statements((stmt,))))
    if isinstance(stmt, (For, While)):  # what one iteration writes the next one reads
        _forget(known, names, writes=writes)
    out = stmt
    if isinstance(stmt, (If, For, While)):
        out = with_blocks(stmt, tuple(_block(b, dict(known)) for b in blocks(stmt)))
    _forget(known, names, writes=writes)
    return out


def _operation(op: Op, known: Known) -> Op:
    if op.op != "getelem":
        _forget(known, {r.name for r in op.results}, writes=_may_write(op))
        return op
    (result,), element = op.results, element_of(op)
    have = known.get(element)
    _forget(known, {result.name}, writes=False)
    if have is not None and have.name != result.name:
        return Op("copy", op.results, (have,), loc=op.loc)
    if result.name not in _names(element):
        known[element] = result
    return op


def _names(element: Element) -> set[str]:
    return {v.name for v in (element.tensor, *element.indices) if isinstance(v, Var)}


def _forget(known: Known, names: set[str], *, writes: bool) -> None:
    """Leave what is no longer known when these names are assigned, or when a tensor is written."""
    for element in list(known):
        if writes or known[element].name in names or names & _names(element):
            del known[element]


def _may_write(stmt: Stmt) -> bool:
    """Whether a statement may itself write to a tensor."""
    if isinstance(stmt, Op):
        return not (stmt.op in ("getelem", "dim") or is_elementwise(stmt))
    return not isinstance(stmt, (If, For, While, Break, Continue, Return))
