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
tested at least once.
"""

from __future__ import annotations

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Break, Continue, For, If, Op, Return, Stmt, Var, While
from pto_jit.ir.walk import block_defs, blocks, def_counts, statements, uses, with_blocks
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.lower.kept import Element, element_of
from pto_jit.slotted import replace

Known = dict[Element, Var]
"""Elements with the variables that have their values."""


def read_once(block: Block) -> Block:
    """A block in which no element is read again that a variable has already."""
    return _block(block, {})


def _block(block: Block, known: Known) -> Block:
    moved = tuple(s for stmt in block for s in (_with_reads_in_front(stmt) if isinstance(stmt, While) else (stmt,)))
    result = tuple(_statement(s, known) for s in moved)
    same = len(result) == len(block) and all(a is b for a, b in zip(block, result, strict=True))
    return block if same else result


def _with_reads_in_front(loop: While) -> Block:
    """A loop behind the elements that its condition reads, if they are the same in every iteration, with what their
    indices are computed from."""
    if any(map(_may_write, statements((loop,)))):
        return (loop,)
    made, carried = def_counts((loop,)), {v.name for v in free_vars((loop,))}
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
