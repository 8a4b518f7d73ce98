# SPDX-License-Identifier: MIT
"""Who does what in a kernel of both kinds of cores, and which kernels are such."""

from __future__ import annotations

from pto_jit.ir.nodes import Block, For, Func, If, Op, Stmt, Var, While
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import blocks, statements, uses
from pto_jit.slotted import field, mutable
from pto_jit.targets.ascend.ahead import Parts, parts_of
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.ascend.sums import overwritten
from pto_jit.targets.ascend.values import Size
from pto_jit.targets.cuda.facts import Facts
from pto_jit.targets.cuda.loops import written_tensor
from pto_jit.targets.cuda.nests import touches_tiles

PRODUCT_IS_READY, PRODUCT_IS_TAKEN, TILE_IS_READY, TILE_IS_TAKEN, EARLY_IS_READY, EARLY_IS_TAKEN = range(6)
"""Flags between the kinds of cores: of products, of tiles the other way, of products that are taken ahead."""
_OF_THE_CUBE = frozenset("load store dot transpose full copy cast".split())


@mutable(eq=False)
class Plan:
    """Who does what.

    fetched: tiles that the cube core loads (and transposes) itself; sent: tiles of the vector cores that are operands
    of products; products: results of products; unknown: numbers that the cube core does not have; turned: operands of
    products that are transposed first; slots: of each value
    that changes sides, rows and columns and dtype; extents: valid rows and columns of what is sent, found by the vector
    writer; ahead: how loops are divided in which products go ahead, by the loops' ids; early: these products.
    """

    fetched: set[str]
    sent: set[str]
    products: set[str]
    unknown: set[str]
    turned: set[str]
    slots: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    extents: dict[str, tuple[Size, Size]] = field(default_factory=dict)
    ahead: dict[int, Parts] = field(default_factory=dict)
    early: set[str] = field(default_factory=set)

    def flags(self, product: str) -> tuple[int, int]:
        """Those that tell that a product is ready, and that it was taken."""
        early = product in self.early
        return (EARLY_IS_READY, EARLY_IS_TAKEN) if early else (PRODUCT_IS_READY, PRODUCT_IS_TAKEN)


def needs_group(func: Func) -> bool:
    """Whether a kernel has products and work that a cube core cannot do."""
    ops = [s for s in statements(func.body) if isinstance(s, Op) and touches_tiles(s)]
    if not any(s.op == "dot" for s in ops):
        return False
    plan = plan_of(func)
    generated = {s.results[0].name for s in ops if s.op == "full"} - {s.results[0].name for s in ops if s.op == "dot"}
    if any(s.op == "store" and isinstance(s.args[0], Var) and s.args[0].name in generated for s in ops):
        return True  # L0C holds nothing but products
    if overwritten(func) or plan.sent:
        return True
    return any(s.op not in _OF_THE_CUBE for s in ops) or any(
        s.op == "load" and s.results[0].name not in plan.fetched for s in ops
    )


def plan_of(func: Func) -> Plan:
    ops = [s for s in statements(func.body) if isinstance(s, Op)]
    dots = [s for s in ops if s.op == "dot"]
    operands = {a.name for s in dots for a in s.args[:2] if isinstance(a, Var)}
    read = {v.name for s in statements(func.body) if not (isinstance(s, Op) and s.op == "dot") for v in uses(s)}
    turned = {s.results[0].name: s.args[0].name for s in ops if s.op == "transpose" and isinstance(s.args[0], Var)
              and s.results[0].name in operands - read}  # fmt: skip
    wanted = {turned.get(name, name) for name in operands}
    others = {v.name for s in statements(func.body) if not (isinstance(s, Op) and (s.op == "dot" or (
        s.op == "transpose" and s.results[0].name in turned))) for v in uses(s)}  # fmt: skip
    others |= {s.args[2].name for s in dots if len(s.args) == 3 and isinstance(s.args[2], Var)}
    loads = {s.results[0].name for s in ops if s.op == "load"}
    fetched = {name for name in wanted if name in loads and name not in others}
    unknown: set[str] = set()
    while True:
        grown = unknown | _made_of_tiles(func.body, unknown, inside=False)
        if grown == unknown:
            break
        unknown = grown
    products = {s.results[0].name for s in dots}
    return Plan(fetched | {r for r, a in turned.items()}, wanted - fetched, products, unknown, set(turned.values()))


def _made_of_tiles(block: Block, known: set[str], *, inside: bool) -> set[str]:
    """Numbers that tiles are made into, or numbers that are known to be such, or that are assigned where these decide;
    inside: all that a block assigns is."""
    out: set[str] = set()
    for s in block:
        read = {v.name for v in uses(s)} & known
        if isinstance(s, Op):
            if inside or read or touches_tiles(s):
                out |= {r.name for r in s.results if isinstance(r.type, ScalarType)}
            continue
        for inner in blocks(s):
            out |= _made_of_tiles(inner, known, inside=inside or bool(read))
    return out


def check(func: Func, plan: Plan, facts: Facts) -> None:
    """Refuse what the two sides could not do in step."""
    ops = [s for s in statements(func.body) if isinstance(s, Op)]
    for s in ops:
        if any(r.name in plan.sent and set(r.type.shape[:-2]) - {1} for r in s.results):  # type: ignore[union-attr]
            raise unsupported("products of more than two axes", s.loc, "take one matrix at a time")
        placed = {v.name for v in uses(s)} & plan.unknown
        if placed and any(r.name in plan.fetched for r in s.results):
            raise unsupported(f"an operand of a product that lies where `{min(placed)}` says, which is made of tiles",
                              s.loc, "store it into a tensor, and multiply in another parallel loop")  # fmt: skip
    for s in statements(func.body):
        if isinstance(s, If) and {v.name for v in uses(s)} & plan.unknown and any(
            isinstance(o, Op) and (o.op == "dot" or {r.name for r in o.results} & plan.sent) for o in statements((s,))
        ):  # fmt: skip
            raise unsupported("a product, or an operand of one, in a branch that depends on a tile", s.loc,
                              "multiply before, and choose then")  # fmt: skip
        steering = {v.name for v in _steering(s)} & plan.unknown
        if steering and any(isinstance(o, Op) and o.op == "dot" for o in statements((s,))):
            raise unsupported(f"a loop around products that `{min(steering)}`, made of a tile, steers", s.loc,
                              "use numbers that are known without the tiles")  # fmt: skip
    stored = {facts.roots[v.name] for v in map(written_tensor, ops) if v is not None}
    loaded = {facts.roots[s.args[0].name] for s in ops if s.op == "load"}  # type: ignore[union-attr]
    if stored & loaded:
        raise unsupported(f"a kernel with products that loads from and stores into `{min(stored & loaded)}`", func.loc,
                          "store into another tensor; products are added up in a tile, inside pl.incore()")  # fmt: skip


def _steering(stmt: Stmt) -> list[Var]:
    if isinstance(stmt, For):
        return [o for o in (stmt.start, stmt.stop, stmt.step) if isinstance(o, Var)]
    return list(uses(stmt)) if isinstance(stmt, While) else []


def look_ahead(func: Func, plan: Plan, facts: Facts) -> None:
    """Find the loops in which products go ahead."""
    for s in statements(func.body):
        parts = parts_of(s, plan.sent, facts.mutable) if isinstance(s, For) else None
        if parts is not None:
            plan.ahead[id(s)] = parts
            plan.early |= parts[2]
