# SPDX-License-Identifier: MIT
"""Several iterations of a loop around an innermost loop together, where that one updates the same elements in each.

In ``c[i, j] += a[i, k] * b[k, j]`` along j, for one k after the other, a row of `c` is read and written for each k: as
many loads and stores as multiplications.  Where four k are computed together it is read and written once for the four.
Each element is updated in the same order as before, so results are the same to the bit.  (Unroll-and-jam: D. Callahan,
S. Carr and K. Kennedy, "Improving register allocation for subscripted variables", PLDI 1990.)

Two iterations instead of four.  Before::

    // Function Type: InCore
    func @f(%a: !pto.memref<gm,?,f32>, %b: !pto.memref<gm,?x?,f32>, %c: !pto.memref<gm,?,f32>, %n: i64, %m: i64) {
      FOR %k:idx, 0:idx, %n:idx, 1:idx
        %s = sgetelem %a[%k] : f32
        FOR %j:idx, 0:idx, %m:idx, 1:idx
          %c0 = sgetelem %c[%j] : f32
          %b0 = sgetelem %b[%k, %j] : f32
          %p = smul %s, %b0 : f32
          %t = sadd %c0, %p : f32
          ssetelem %t, %c[%j]
        ENDFOR
      ENDFOR
      return
    }

After::

    // Function Type: InCore
    func @f(%a: !pto.memref<gm,?,f32>, %b: !pto.memref<gm,?x?,f32>, %c: !pto.memref<gm,?,f32>, %n: i64, %m: i64) {
      FOR %k:idx, 0:idx, %n:idx, 2:idx
        %s = sgetelem %a[%k] : f32
        %k.x1 = sadd %k, 1:idx : i64
        %s.x1 = sgetelem %a[%k.x1] : f32
        FOR %j:idx, 0:idx, %m:idx, 1:idx
          %c0 = sgetelem %c[%j] : f32
          %b0 = sgetelem %b[%k, %j] : f32
          %p = smul %s, %b0 : f32
          %t = sadd %c0, %p : f32
          %c0.x1 = scopy %t : f32
          %b0.x1 = sgetelem %b[%k.x1, %j] : f32
          %p.x1 = smul %s.x1, %b0.x1 : f32
          %t.x1 = sadd %c0.x1, %p.x1 : f32
          ssetelem %t.x1, %c[%j]
        ENDFOR
      ENDFOR
      return
    }

This means the same where `c` shares no memory with `a` and `b` and %n is even; both are for the caller to make sure.
"""

from __future__ import annotations

from collections.abc import Callable

from pto_jit.dtypes import bool_
from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Const, For, Op, Operand, Stmt, Var
from pto_jit.ir.walk import block_defs, rename
from pto_jit.lower.kept import ELEMENTS, Element, element_of, is_scalar
from pto_jit.lower.names import index
from pto_jit.slotted import replace

TOGETHER = 4
_MOST = 12  # operations of an innermost loop; there are four times as many afterwards


def jammed(loop: For, root: Callable[[str], str], together: int = TOGETHER) -> For | None:
    """A loop of which one iteration is `together` of `loop`; None where that may mean something else, or does not pay.

    root: the name of the tensor that a tensor is a view of.  That nothing behind the loop reads what the body assigns
    is for the caller to make sure, too.
    """
    inner = loop.body[-1] if loop.body else None
    if not isinstance(inner, For) or not _is_simple(loop, inner):
        return None
    updates = _updates(loop, inner, root)
    if not updates:
        return None
    ahead, before, inside = loop.body[:-1], list[Stmt](), list[Stmt]()
    made = (loop.var.name, *block_defs(ahead), *block_defs(inner.body))
    latest: dict[Element, Operand] = {}
    for k in range(together):
        names = {name: f"{name}.x{k}" for name in made} if k else {}
        if k:
            var = Var(names[loop.var.name], loop.var.type)
            before.append(Op("add", (var,), (loop.var, index(k)), loc=loop.loc))
        before += rename(ahead, names)
        for at, op in enumerate(rename(inner.body, names)):
            assert isinstance(op, Op)
            element = updates.get(at)
            if element is None:
                inside.append(op)
            elif op.op == "setelem":
                latest[element] = op.args[0]
                if k == together - 1:
                    inside.append(op)
            elif k:
                inside.append(replace(op, op="copy", args=(latest[element],)))
            else:
                inside.append(op)
    return replace(loop, step=index(together), body=(*before, replace(inner, body=tuple(inside))))


def _is_simple(loop: For, inner: For) -> bool:
    """Whether two loops in each other run over all pairs of iterations, of scalars and elements that no iteration hands
    on to another but in memory, and only the inner one writes."""
    ahead = loop.body[:-1]
    for each in (loop, inner):
        if each.kind != "sequential" or each.step != index(1) or each.checked or each.reductions or each.proof:
            return False
        if not block_defs(each.body).isdisjoint(v.name for v in free_vars(each.body)):
            return False
    if len(inner.body) > _MOST or not all(isinstance(s, Op) and is_scalar(s) for s in (*ahead, *inner.body)):
        return False
    if any(isinstance(s, Op) and s.op == "setelem" for s in ahead):
        return False
    return _of_iteration(loop).isdisjoint(map(_name, (inner.start, inner.stop)))


def _of_iteration(loop: For) -> set[str]:
    """The variables ahead of the inner loop that may differ from one iteration to another."""
    names = {loop.var.name}
    for op in loop.body[:-1]:
        if isinstance(op, Op) and (op.op == "getelem" or not names.isdisjoint(map(_name, op.args))):
            names.update(r.name for r in op.results)
    return names


def _updates(loop: For, inner: For, root: Callable[[str], str]) -> dict[int, Element]:
    """The accesses of the inner loop, by place, to elements that its iterations read and then write, each its own and
    the same ones in every iteration of the outer one.  Empty where something else is written, or read where it may have
    been written, or not along the last axis."""
    ops = [s for s in inner.body if isinstance(s, Op)]
    outer = _of_iteration(loop)
    along, steps = {inner.var.name}, {inner.var.name}  # what depends on the inner variable; itself, shifted
    numbers: dict[Op, Operand] = {}  # equal indices have one name
    known: dict[str, Operand] = {}
    found, read, written = dict[int, Element](), set[Element](), dict[str, Element]()
    others = [op for op in loop.body[:-1] if isinstance(op, Op) and op.op == "getelem"]
    for at, op in enumerate(ops):
        names = {_name(a) for a in op.args}
        results = {r.name for r in op.results}
        outer |= results if names & outer else set()
        along |= results if names & along else set()
        if op.op not in ELEMENTS:
            if op.op in ("add", "sub"):
                args = tuple(known.get(_name(a), a) for a in op.args)
                (result,) = op.results
                known[result.name] = numbers.setdefault(Op(op.op, (), args), result)
                steps |= results if _name(args[0]) in steps and isinstance(args[1], Const) else set()
            continue
        element = element_of(op)
        element = replace(element, indices=tuple(known.get(_name(i), i) for i in element.indices))
        *rows, last = map(_name, element.indices)
        if not along.isdisjoint(rows) or (last in along and last not in steps):
            return {}
        found[at] = element
        if op.op == "getelem":
            read.add(element)
            if element in written.values():
                return {}
            continue
        owner = root(element.tensor.name)
        fixed = last in steps and outer.isdisjoint((*rows, last))
        stored = element.dtype != bool_ and not (element.dtype.kind == "f" and element.dtype.bits == 16)
        if not fixed or not stored or element not in read or owner in written:
            return {}
        written[owner] = element
    updates = {at: element for at, element in found.items() if element in written.values()}
    others += [op for at, op in enumerate(ops) if at in found and at not in updates]
    return updates if all(root(element_of(op).tensor.name) not in written for op in others) else {}


def _name(operand: Operand) -> str:
    return operand.name if isinstance(operand, Var) else ""
