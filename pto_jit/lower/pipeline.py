# SPDX-License-Identifier: MIT
"""The order of the passes, with the reason for each place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from pto_jit.ir.nodes import Module
from pto_jit.lower.alike import share_functions
from pto_jit.lower.borders import part_borders
from pto_jit.lower.chunk import expand_chunks
from pto_jit.lower.coalesce import coalesce
from pto_jit.lower.decisions import Decision
from pto_jit.lower.ends import separate_ends
from pto_jit.lower.grain import choose_grains
from pto_jit.lower.groups.fuse import fuse
from pto_jit.lower.groups.views import move_views
from pto_jit.lower.if_conversion import convert_ifs
from pto_jit.lower.independent import find_independent
from pto_jit.lower.interchange import interchange_loops
from pto_jit.lower.invariant import hoist_products
from pto_jit.lower.late import wait_last
from pto_jit.lower.maps import expand_maps
from pto_jit.lower.outline import outline_scopes
from pto_jit.lower.outside import refuse_outside
from pto_jit.lower.pivot import divide_at_pivots
from pto_jit.lower.place import place_scopes
from pto_jit.lower.planes import load_planes
from pto_jit.lower.promises import refuse_races
from pto_jit.lower.reductions import split_reductions
from pto_jit.lower.simplify import simplify
from pto_jit.lower.unroll import unroll_extrema

Pass = Callable[[Module, list[Decision]], Module]


def _plain(function: Callable[[Module], Module]) -> Pass:
    return lambda module, decisions: function(module)


def _independent(module: Module, decisions: list[Decision]) -> Module:
    return find_independent(divide_at_pivots(module, decisions), decisions)


def _straightened(module: Module, decisions: list[Decision]) -> Module:
    """Branches first, those that only borders have before all: what is unrolled is without.  Then the loops around are
    innermost, perhaps with branches."""
    without = convert_ifs(part_borders(module, decisions))
    unrolled = unroll_extrema(without)
    return wait_last(separate_ends(without if unrolled is without else convert_ifs(unrolled)))


PLACED = "trimmed"  # the stage where every loop and scope is where it stays, and scopes are not functions yet

PIPELINE: tuple[tuple[str, Pass], ...] = (
    # constant bounds make chunk arithmetic constant too, so this comes first; views, before what is moved is a view
    ("simplified", _plain(lambda module: load_planes(simplify(module)))),
    # partial results belong to chunks, so loops that reduce are chunked here; all others are free of carried variables
    ("reduced", split_reductions),
    # on the loops as they were written, without the reductions: what cannot be divided, or lies outside, is an error
    ("analysed", lambda module, decisions: refuse_outside(refuse_races(module, decisions))),
    # placement moves chunk loops, so they must exist
    ("chunked", expand_chunks),
    # outlining fixes what is host and what is core, so every loop must be where it stays
    ("placed", place_scopes),
    # chunk loops are where they stay: what is left is the order of the loops of one core
    ("interchanged", interchange_loops),
    # copies that chunking and placement left behind; fewer values cross the scope
    ("trimmed", _plain(simplify)),
    # out of loops whose places are final; while the allocations of the program are in sight, which share no memory
    ("hoisted", hoist_products),
    ("outlined", lambda module, decisions: share_functions(outline_scopes(module), decisions)),
    # the loops of a function are final, and its parameters what its target can compare
    ("independent", lambda module, decisions: _independent(_straightened(module, decisions), decisions)),
    # a product that accumulates in place is one operation of a fused group, not two
    ("coalesced", _plain(partial(coalesce, rounds=True))),
    # grouping follows the final order of operations
    ("fused", _plain(fuse)),
    # last: costs are those of the final loops.  Targets with their own ways to divide loops start from "fused"
    ("scheduled", choose_grains),
)

DEVICES = ("cuda", "ascend")
"""Where launches run one after the other, and hosts wait for numbers that they read there."""
_CPU = ("independent", "scheduled")
_ELSEWHERE: dict[str, tuple[str, Pass]] = {"coalesced": ("coalesced", _plain(coalesce))}  # products do not round
_ON_DEVICES: dict[str, tuple[str, Pass]] = _ELSEWHERE | {
    # kernels are made of several functions, and constant offsets tell what is inside of tensors: those that are alike
    # are one at the end
    "outlined": ("outlined", lambda module, told: share_functions(outline_scopes(module), told, offsets=False)),
    # their kernels are made of single operations
    "fused": ("expanded", _plain(lambda module: move_views(expand_maps(module)))),
}


def passes_for(target: str) -> tuple[tuple[str, Pass], ...]:
    """The passes of a target: others than the cpu's find their own way to divide loops, most when the program runs, and
    leave vectors of elements to the compilers of what they write; those of devices have no use for groups, and their
    kernels begin with loops, before which nothing stands, and operations on tiles of any size become such loops."""
    if target == "cpu":
        return PIPELINE
    if target not in DEVICES:
        return tuple(_ELSEWHERE.get(name, (name, one)) for name, one in PIPELINE if name not in _CPU)
    from pto_jit.lower.wholes.divide import PARTS, divide_scopes  # here: other targets never need it
    from pto_jit.lower.wholes.totals import divide_totals

    # scopes are what they will be, and not functions yet
    own = _ON_DEVICES | {
        "reduced": ("reduced", partial(split_reductions, device=target)),
        "hoisted": ("divided", partial(divide_scopes, parts=PARTS[target])),
    }
    passes = [own.get(name, (name, one)) for name, one in PIPELINE if name not in _CPU]
    passes.insert(1, ("totalled", partial(divide_totals, target=target)))  # as loops of the program that reduce
    return tuple(passes)


def in_any_order(passes: Sequence[tuple[str, Pass]]) -> tuple[tuple[str, Pass], ...]:
    """The passes of a compilation with `fastmath`: chains of products are associated anew where loops are final, before
    what they do not change moves out of them."""
    from pto_jit.lower.associate import associate_products

    names = [name for name, _ in passes]
    at = 1 + names.index(PLACED)
    return (*passes[:at], ("associated", partial(associate_products, hoists="hoisted" in names)), *passes[at:])


def with_checks(passes: Sequence[tuple[str, Pass]]) -> tuple[tuple[str, Pass], ...]:
    """The passes of a compilation for debugging: loops are marked to be checked while they are those of the source, and
    branches stay, so that what fails in one is told at its place.  The program checks its elements itself."""
    from pto_jit.lower.instrument import check_promises

    at = 1 + next(k for k, (name, _) in enumerate(passes) if name == "simplified")
    others: dict[str, Pass] = {"independent": _independent, "analysed": refuse_races}
    kept = [(name, others.get(name, one)) for name, one in passes[at:]]
    return (*passes[:at], ("checked", check_promises), *kept)
