# SPDX-License-Identifier: MIT
"""What tiles are to the products of a kernel: which go from memory to shared memory, and how warps share results."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from pto_jit.ir.nodes import Block, For, Op, Operand, Var
from pto_jit.ir.types import TensorType, TileType
from pto_jit.ir.walk import TENSOR_VIEWS, blocks, statements, uses
from pto_jit.lower.groups.axes import is_elementwise, is_reduction, reduced_axes
from pto_jit.targets.cuda.loops import touches_tiles
from pto_jit.targets.cuda.shapes import axes_of
from pto_jit.targets.cuda.thin import multiplies_matrices

Role = tuple[str, str]
"""What the rows and the columns of a stored tile are to a product: m and n, its result's, or k, contracted."""


def roles_of(whole: Block, mutable: Container[str]) -> dict[str, Role]:
    """Loads (and transposes of them) that nothing but products reads."""
    body = list(statements(whole))
    found: dict[str, Role] = {}
    readers = _readers(whole)
    for s in body:
        if not (isinstance(s, Op) and s.op == "load") or s.attr("pad"):
            continue
        typ = s.results[0].type
        name = s.results[0].name
        if not isinstance(typ, TileType) or typ.rank < 2 or axes_of(typ.shape) > 2 or name in mutable:
            continue
        role = _role(name, readers, mutable, turned=False)
        if role is not None:
            found[name] = role
    return found


def turned_operands(whole: Block, mutable: Container[str]) -> dict[str, Role]:
    """Transposes that nothing but products reads: what the rows and columns of the tile that is turned are to them."""
    readers = _readers(whole)
    found: dict[str, Role] = {}
    for s in statements(whole):
        if isinstance(s, Op) and exchanges_last(s) and s.results[0].name not in mutable:
            role = _role(s.results[0].name, readers, mutable, turned=True)
            if role is not None:
                found[s.results[0].name] = role
    return found


def exchanges_last(op: Op) -> bool:
    """Whether an operation exchanges the last two axes of a tile, those before which have extent 1."""
    if op.op != "transpose" or axes_of(op.args[0].type.shape) > 2:  # type: ignore[union-attr]
        return False
    order = op.attr("axes")
    assert isinstance(order, tuple)
    return order[-2:] == (len(order) - 1, len(order) - 2)


def _readers(whole: Block) -> dict[str, list[Op | None]]:
    """The operations that read each name; None for a statement that is not an operation."""
    readers: dict[str, list[Op | None]] = {}
    for s in statements(whole):
        for v in uses(s):
            readers.setdefault(v.name, []).append(s if isinstance(s, Op) else None)
    return readers


def _role(name: str, readers: dict[str, list[Op | None]], mutable: Container[str], *, turned: bool) -> Role | None:
    roles: set[Role] = set()
    for reader in readers.get(name, [None]):
        if reader is None:
            return None
        if exchanges_last(reader) and not turned and reader.results[0].name not in mutable:
            role = _role(reader.results[0].name, readers, mutable, turned=True)
            if role is None:
                return None
            roles.add(role)
        elif multiplies_matrices(reader):
            for k, arg in enumerate(reader.args):
                if isinstance(arg, Var) and arg.name == name:
                    if k > 1:
                        return None
                    plain = ("m", "k") if k == 0 else ("k", "n")
                    roles.add((plain[1], plain[0]) if turned else plain)
        else:
            return None
    return roles.pop() if len(roles) == 1 else None


def in_shared_alone(body: Block, roles: Mapping[str, Role]) -> set[str]:
    """Tiles that no thread holds: staged loads, and transposes, which are another way to read them."""
    turned = {s.results[0].name for s in statements(body)
              if isinstance(s, Op) and s.op == "transpose" and _name(s.args[0]) in roles}  # fmt: skip
    return turned | set(roles)


def suits_warpgroups(body: Block, roles: Mapping[str, Role]) -> bool:
    """Whether every product can be one of warpgroups: of 16-bit floats, added up by a loop that does nothing else with
    tiles than to load them for it, with constant extents that are multiples of 64."""
    products = [s for s in statements(body) if isinstance(s, Op) and multiplies_matrices(s)]
    summed = [d for s in statements(body) if isinstance(s, For) and (d := accumulated(s, roles)) is not None]
    return bool(products) and all(any(p is d for d in summed) and _in_panels(p) for p in products)


def accumulated(loop: For, roles: Mapping[str, Role]) -> Op | None:
    """The product that a loop does nothing but add up, of tiles that it loads."""
    tiled = [s for s in loop.body if touches_tiles(s)]
    dots = [s for s in tiled if isinstance(s, Op) and s.op == "dot"]
    others = [s for s in tiled if not any(s is d for d in dots)]
    loaded = {s.results[0].name for s in others if isinstance(s, Op) and s.op == "load"} & set(roles)
    turned = {s.results[0].name for s in others
              if isinstance(s, Op) and s.op == "transpose" and _name(s.args[0]) in loaded}  # fmt: skip
    if loop.kind != "sequential" or len(dots) != 1 or len(others) != len(loaded) + len(turned):
        return None
    (dot,) = dots
    adds = len(dot.args) == 3 and dot.results[0] == dot.args[2]
    return dot if adds and {_name(a) for a in dot.args[:2]} <= loaded | turned else None


def _in_panels(dot: Op) -> bool:
    kinds = [a.type for a in dot.args[:2]]
    if not all(isinstance(k, TileType) and k.rank == 2 and k.dtype.kind == "f" and k.dtype.bits == 16 for k in kinds):
        return False
    extents = [e for k in kinds for e in k.shape]  # type: ignore[union-attr]
    same = kinds[0].dtype == kinds[1].dtype  # type: ignore[union-attr]
    return same and all(e is not None and e % 64 == 0 for e in extents)


def wants_whole_rows(body: Block, roles: Mapping[str, Role]) -> bool:
    """Whether the columns of a tile should lie in one warp: for reductions along rows, and results that are left
    operands again."""
    for s in statements(body):
        if not isinstance(s, Op):
            continue
        if is_reduction(s) and s.args and isinstance(s.args[0].type, TileType):
            shape = s.args[0].type.shape
            if any(a == len(shape) - 1 and shape[a] != 1 for a in reduced_axes(s)):
                return True
        if multiplies_matrices(s) and isinstance(s.args[0], Var) and s.args[0].name not in roles:
            made = next((o for o in statements(body) if isinstance(o, Op) and s.args[0] in o.results), None)
            if made is None or made.op != "transpose":
                return True
    return False


def read_in_inner_blocks(
    body: Block, roles: Mapping[str, Role], mutable: Container[str], whole_rows: bool
) -> tuple[set[str], set[str]]:
    """Tiles in registers that products of an inner block read: those that they read from shared memory, where they are
    put once, and those whose fragments are operands as they are, which are rounded to 16 bits once."""
    made_in: dict[str, int] = {}
    read_in: dict[str, set[int]] = {}
    fragments: set[str] = set()

    def walk(block: Block) -> None:
        for s in block:
            if isinstance(s, Op):
                made_in.update((r.name, id(block)) for r in s.results)
                for k, a in enumerate(s.args):
                    if not multiplies_matrices(s) or not isinstance(a, Var) or k > 1:
                        continue
                    on_tensor_cores = a.type.dtype.kind == "f" and a.type.dtype.bits == 16  # type: ignore[union-attr]
                    if k == 0 and on_tensor_cores and whole_rows:
                        fragments.add(a.name)
                    read_in.setdefault(a.name, set()).add(id(block))
            for inner in blocks(s):
                walk(inner)

    walk(body)
    early = {n for n, places in read_in.items()
             if n in made_in and made_in[n] not in places and n not in roles and n not in mutable}  # fmt: skip
    return early - fragments, early & fragments


def blocks_share_operands(body: Block, chain: Sequence[For], roles: Mapping[str, Role]) -> bool:
    """Whether the blocks in a row of the grid read the same of one operand of their products, and those in a column the
    same of the other: each load for products moves with one of the innermost two loops of the grid, and both do."""
    if len(chain) < 2:
        return False
    moved = {loop.var.name: frozenset((loop.var.name,)) for loop in chain[-2:]}
    axes: set[frozenset[str]] = set()
    for s in statements(body):
        if not isinstance(s, Op):
            continue
        by = frozenset[str]().union(*(moved.get(v.name, frozenset()) for v in uses(s)))
        if s.op == "load" and s.results[0].name in roles:
            axes.add(by)
        elif by and not touches_tiles(s):
            moved |= {r.name: by for r in s.results}
    return axes == {frozenset((loop.var.name,)) for loop in chain[-2:]}


def place_of_load(load: Op, made: dict[str, Op], changing: Container[str], body: Block) -> list[Op] | None:
    """The operations of a loop body that a load's place depends on, in order; None when it depends on more than
    arithmetic on indices."""
    wanted: set[int] = set()
    work: list[Operand] = list(load.args)
    while work:
        operand = work.pop()
        if not isinstance(operand, Var):
            continue
        if operand.name in changing:
            return None
        op = made.get(operand.name)
        if op is None or id(op) in wanted:
            continue
        views = op.op in (*TENSOR_VIEWS, "dim")
        if touches_tiles(op) or not (views or (is_elementwise(op) and not isinstance(op.results[0].type, TensorType))):
            return None
        wanted.add(id(op))
        work += op.args
    return [s for s in body if isinstance(s, Op) and id(s) in wanted]


def _name(operand: Operand) -> str:
    return operand.name if isinstance(operand, Var) else ""
