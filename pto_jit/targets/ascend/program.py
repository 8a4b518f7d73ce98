# SPDX-License-Identifier: MIT
"""From a module of loop IR to the sources of an Ascend program: kernels and the host code that launches them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from math import sqrt

from pto_jit.errors import NOWHERE, Loc, TargetError
from pto_jit.ir.nodes import Call, Func, Module, Op, Operand, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.verify import known, verify
from pto_jit.ir.walk import defs, statements
from pto_jit.lower.called import called
from pto_jit.lower.decisions import Decision
from pto_jit.lower.reuse import with_fewer_loads
from pto_jit.lower.wholes.divide import PARTS, divided
from pto_jit.lower.wholes.own_rows import kernel_in_passes
from pto_jit.semantic.rules import infer
from pto_jit.slotted import mutable, replace
from pto_jit.targets.ascend.accesses import loops_in, walk
from pto_jit.targets.ascend.alone import with_numbers, without_thread
from pto_jit.targets.ascend.apart import lists_before
from pto_jit.targets.ascend.behind import without_tiles_behind
from pto_jit.targets.ascend.both_ways import taken_both_ways
from pto_jit.targets.ascend.copies import declare_once
from pto_jit.targets.ascend.cube import CubeWriter, has_products
from pto_jit.targets.ascend.elements import take_elements
from pto_jit.targets.ascend.extents import known_extents
from pto_jit.targets.ascend.few import is_on_vector_cores
from pto_jit.targets.ascend.fills import filled_by_cores
from pto_jit.targets.ascend.flips import without_flips
from pto_jit.targets.ascend.foreseen import with_products_before_branches
from pto_jit.targets.ascend.form import (
    RELAY,
    SLOT,
    Assignment,
    Declaration,
    ElementStore,
    Instruction,
    KernelForm,
    Loop,
    Node,
    texts_of,
)
from pto_jit.targets.ascend.groups import write_group
from pto_jit.targets.ascend.host import HostWriter
from pto_jit.targets.ascend.jumps import without_jumps
from pto_jit.targets.ascend.layers import in_layers
from pto_jit.targets.ascend.legality import check_legal
from pto_jit.targets.ascend.lengths import known_lengths, lengths_once
from pto_jit.targets.ascend.machine import CAPACITY, MOST_ROWS
from pto_jit.targets.ascend.narrow import in_32_bits
from pto_jit.targets.ascend.numbers import numbers_before_loops
from pto_jit.targets.ascend.operands import with_own_operands
from pto_jit.targets.ascend.pairs import in_pairs
from pto_jit.targets.ascend.places import with_places_once
from pto_jit.targets.ascend.placing import place
from pto_jit.targets.ascend.plans import needs_group
from pto_jit.targets.ascend.printing import print_kernel
from pto_jit.targets.ascend.ragged import with_empty_tiles
from pto_jit.targets.ascend.randoms import with_short_counters
from pto_jit.targets.ascend.refusals import TOO_LARGE, too_large, unsupported
from pto_jit.targets.ascend.rows import block_rows, hoist_loads
from pto_jit.targets.ascend.separate import separate
from pto_jit.targets.ascend.singles import in_single
from pto_jit.targets.ascend.strips import in_smaller_parts, in_strips
from pto_jit.targets.ascend.synchronise import synchronise
from pto_jit.targets.ascend.together import together
from pto_jit.targets.ascend.unit_axes import with_told_axes, without_unit_axes
from pto_jit.targets.ascend.unread import may_have_unread, without_unread
from pto_jit.targets.ascend.unsigned import as_signed
from pto_jit.targets.ascend.vector import VectorWriter
from pto_jit.targets.ascend.whole_products import with_whole_products
from pto_jit.targets.cuda.alike import share_kernels
from pto_jit.targets.cuda.batches import in_matrices
from pto_jit.targets.cuda.elements import share_elements
from pto_jit.targets.cuda.facts import gather
from pto_jit.targets.cuda.flatten import Unsupported, flatten, with_words, without_assertions, without_idle
from pto_jit.targets.cuda.merged import merge_leading_axes
from pto_jit.targets.cuda.nests import outline_kernels
from pto_jit.targets.cuda.program import extents_of
from pto_jit.targets.cuda.tiling import tile_products
from pto_jit.targets.source.identifiers import RESERVED, Identifiers
from pto_jit.targets.source.rooms import with_rooms
from pto_jit.targets.source.text import file_name, words_of

_DEPTH = 128
"""Of a product of whole tensors: how much of the contraction is in L1 at a time."""
_TRIAL = 256
_SMALLEST = 16


@mutable(eq=False)
class AscendProgram:
    """module: the program as it was divided into host code and kernels; kernels: their forms; sources: name -> text;
    renamed: the same under another name."""

    module: Module
    kernels: list[KernelForm]
    sources: dict[str, str]
    renamed: Callable[[str], AscendProgram]


def in_parts(module: Module, *, debug: bool, decisions: list[Decision] | None = None) -> Func:
    """A lowered module as one function whose products are made of tiles, and what follows these is divided as they
    are; each that is goes to `decisions`."""
    flat = flatten(module)
    whole = filled_by_cores(with_words(flat) if debug else without_assertions(flat))
    whole = with_told_axes(in_matrices(whole, PARTS["ascend"], 0, decisions))
    tiled = with_whole_products(whole, lambda func: tile_products(func, _DEPTH))
    return divided(tiled, PARTS["ascend"], decisions)


def compile_module(
    module: Module, *, debug: bool = False, decisions: list[Decision] | None = None
) -> AscendProgram:
    """Write a lowered module; TargetError for what this target does not do.  debug: with the program's assertions;
    decisions: where those are told that are made here."""
    for stmt in (s for func in module.funcs for s in statements(func.body)):
        if any(isinstance(v.type, TileType) and 0 in v.type.shape for v in defs(stmt)):
            what = "a load of a tile" if isinstance(stmt, Op) and stmt.op == "load" else "a tile"
            raise unsupported(f"{what} without elements", stmt.loc, "leave it out")
    try:
        flat = merge_leading_axes(in_parts(module, debug=debug, decisions=decisions))
        flat = in_layers(without_unit_axes(without_flips(with_short_counters(flat))))
        flat = in_pairs(in_single(in_32_bits(flat)))
        flat = lengths_once(numbers_before_loops(share_elements(flat, module)))
        split = separate(lists_before(outline_kernels(flat, module.name)))
    except Unsupported as error:
        raise unsupported(error.what, error.loc or NOWHERE, error.hint or "") from None
    split = _lean(known_extents(split))
    dims = extents_of(split.func(split.entry).body)
    split = share_kernels(_lean(together(split, lambda func: _can_be_written(func, dims))), dims)
    verify(split, infer, typed=known(module))
    entry = split.func(split.entry)
    file = file_name(entry.loc.filename)
    kernels = [write_kernel(func, dims) for func in split.funcs if func is not entry]
    sources = {f"{k.name}.cpp": print_kernel(k, file) for k in kernels}
    entry = _with_rooms(entry, {k.name: k for k in kernels})
    host = HostWriter(entry, kernels)
    sources[f"{entry.name}_orchestration.c"] = host.source(file)
    sources["README.md"] = _readme(module.name, entry.name, host.name, kernels)
    return AscendProgram(split, kernels, sources, lambda name: compile_module(called(module, name), debug=debug))


def _with_rooms(entry: Func, kernels: Mapping[str, KernelForm]) -> Func:
    """Host code that launches kernels for lengths that they have room for."""
    dims = {s.results[0].name: (s.args[0], s.attr("axis")) for s in statements(entry.body)
            if isinstance(s, Op) and s.op == "dim"}  # fmt: skip

    def rooms(call: Call, length: Operand) -> Iterator[int | None]:
        kernel = kernels[call.callee]
        for parameter in kernel.parameters:
            if parameter.name not in kernel.limits:
                continue
            kind, k, *axis = parameter.origin
            given = call.args[int(k)] if kind in ("argument", "extent") else None
            if kind == "extent" and isinstance(length, Var):
                same = dims.get(length.name) == (given, int(axis[0]))
            else:
                same = given == length
            yield kernel.limits[parameter.name] if same else None

    return with_rooms(entry, rooms)


class _Sizes(dict[str, int]):
    """The same assumed bound for every extent that the kernel is given."""

    def __init__(self, func: Func, bound: int) -> None:
        super().__init__()
        self.given = {p.name for p in func.params}
        self.given |= {s.results[0].name for s in statements(func.body) if isinstance(s, Op) and s.op == "dim"}
        self.bound = bound

    def __contains__(self, name: object) -> bool:
        return name in self.given

    def __missing__(self, name: str) -> int:
        return self.bound


def _lean(module: Module) -> Module:
    """Of what was divided, the host need not know all."""
    entry = module.func(module.entry)
    lean = replace(entry, body=without_idle(entry.body))
    return replace(module, funcs=tuple(lean if func is entry else func for func in module.funcs))


def _can_be_written(func: Func, dims: dict[str, tuple[str, int]]) -> bool:
    try:
        write_kernel(func, dims)
    except TargetError:
        return False
    return True


def write_kernel(func: Func, dims: dict[str, tuple[str, int]]) -> KernelForm:
    """The kernel of an in-core function, with room for the largest run-time extents that fit."""
    func = with_places_once(without_jumps(func))
    fewer = with_fewer_loads(func)
    if fewer is func:
        return _as_it_is(func, dims)
    try:  # what is loaded again need not stay on chip in between
        once = _as_it_is(fewer, dims)
    except TargetError:
        return _as_it_is(func, dims)
    again = _as_it_is(func, dims) if once.limits else once
    return once if once.limits == again.limits else again


def _as_it_is(func: Func, dims: dict[str, tuple[str, int]]) -> KernelForm:
    try:
        return _kernel(func, dims)
    except TargetError as error:
        signed = None if error.code == TOO_LARGE else as_signed(func)
        if signed is None:
            raise
        try:
            return _kernel(signed, dims)
        except TargetError as other:
            raise (other if other.code == TOO_LARGE else error) from None


def _kernel(func: Func, dims: dict[str, tuple[str, int]]) -> KernelForm:
    func = with_empty_tiles(without_tiles_behind(known_lengths(without_thread(func), dims), dims), dims)
    if has_products(func):
        whole = taken_both_ways(with_own_operands(with_products_before_branches(func)))
    else:
        whole = hoist_loads(func)
    try:
        form = _fitting(whole, dims)
    except TargetError as error:
        thinner = _thinner(func, whole, dims) if error.code == TOO_LARGE else None
        if thinner is None:
            raise
        form = thinner
    if form.partner is None and may_have_unread(form.body):
        form.body[:] = without_unread(form.body)
    form = _without_unused(form)
    form.alone = _is_for_one_core(form)
    declare_once(form.body)
    synchronise(form.body)
    if form.partner is not None:
        synchronise(form.partner.body)
    check_legal(form)
    return form


def _fitting(whole: Func, dims: dict[str, tuple[str, int]]) -> KernelForm:
    """With blocks of as many rows and lines of as many elements as fit; TargetError where its own tiles do not."""
    func, form, used = whole, None, {}
    for size in (16 * 1024, 8 * 1024, 4 * 1024, 2 * 1024):  # of a tile of several rows
        taken = whole if has_products(whole) else block_rows(take_elements(whole, size), size)
        func = with_numbers(taken)
        facts = gather(func, dims, threads=False)
        form, used = _attempt(func, facts, _TRIAL)
        if form.limits:
            form, used = _largest(func, facts, used)
        if _fits(used) or taken is whole:
            break
    assert form is not None
    for space, size in used.items():
        if size > CAPACITY[space]:
            raise too_large(
                f"{func.name}: its tiles take {size} bytes of {CAPACITY[space]} in {_MEMORIES[space]}",
                _loc(func), "use smaller tiles",
            )  # fmt: skip
    return form


def _thinner(func: Func, whole: Func, dims: dict[str, tuple[str, int]]) -> KernelForm | None:
    """In strips of rows, or in smaller parts, the largest that fit, or in passes over rows; None where there are none.
    whole: the kernel with loads before the loops that do not change them."""
    if has_products(func):
        return None
    for thin in chain(in_strips(whole, gather(whole, dims, threads=False)), in_smaller_parts(whole), _passes(func)):
        try:
            form, used = _attempt(thin, gather(thin, dims, threads=False), _TRIAL)
        except TargetError as error:
            if error.code != TOO_LARGE:
                raise
            continue
        if _fits(used) and not form.limits:
            return form
    return None


def _passes(func: Func) -> Iterator[Func]:
    found = kernel_in_passes(func, PARTS["ascend"])
    if found is not None:
        yield found


def _attempt(func: Func, facts: object, bound: int) -> tuple[KernelForm, dict]:  # type: ignore[type-arg]
    sizes = _Sizes(func, bound)
    multiplies = has_products(func) and not is_on_vector_cores(func)
    if multiplies and needs_group(func):
        form = write_group(func, facts, sizes)  # type: ignore[arg-type]
    else:
        writer = (CubeWriter if multiplies else VectorWriter)(func, facts, sizes)  # type: ignore[arg-type]
        writer.block(func.body)
        form = writer.form()
    used = place(form.body)
    if form.partner is not None:
        used |= place(form.partner.body)
    for body in (form.body, [] if form.partner is None else form.partner.body):
        turning = [loop for loop in loops_in(body) if loop.turning and loop.goes_on is None]
        names = Identifiers(RESERVED | {p.name for p in form.parameters} | (_declared(body) if turning else set()))
        for loop in turning:
            loop.turn = names.fresh("turn")
    return form, used


def _declared(body: list[Node]) -> frozenset[str]:
    """The C++ names of a body."""
    return frozenset(
        n.var if isinstance(n, Loop) else n.what.name if isinstance(n, Declaration) else n.name
        for n in walk(body)
        if type(n) is not Instruction and isinstance(n, (Loop, Declaration, Assignment))
    )


def _without_unused(form: KernelForm) -> KernelForm:
    """A kernel without parameters that neither its text nor its checks name."""
    both = [form.body] if form.partner is None else [form.body, form.partner.body]
    used = set(words_of(" ".join(set().union(*(texts_of(body) for body in both)))))
    limits = {name: bound for name, bound in form.limits.items() if name in used}
    wanted = used.union(*(words_of(c) for c, _ in form.checks), limits)
    kept = [p for p in form.parameters if p.name in wanted]
    partner = form.partner
    if partner is not None:
        partner = KernelForm(partner.name, partner.core, kept, partner.body, limits, form.checks)
    return KernelForm(form.name, form.core, kept, form.body, limits, form.checks, partner, functions=form.functions)


def _is_for_one_core(form: KernelForm) -> bool:
    """Whether a kernel writes outside of loops that are dealt to the cores: then no loop of it is dealt."""
    bodies = [form.body] if form.partner is None else [form.body, form.partner.body]
    shared = [n for body in bodies for n in body if not (isinstance(n, Loop) and n.grid)]
    alone = any(
        isinstance(n, ElementStore)
        or (isinstance(n, Instruction) and n.name.startswith("TSTORE") and not n.args[0].root.startswith((SLOT, RELAY)))  # type: ignore[union-attr]
        for n in walk(shared)
    )
    for loop in (loop for body in bodies for loop in loops_in(body)):
        loop.grid &= not alone
    return alone


def _fits(used: dict) -> bool:  # type: ignore[type-arg]
    return all(size <= CAPACITY[space] for space, size in used.items())


def _largest(func: Func, facts: object, used: dict) -> tuple[KernelForm, dict]:  # type: ignore[type-arg]
    """The form with the largest bound for which its tiles fit: a guess from the trial, corrected downwards.

    Tiles grow with one run-time extent, or with the product of two.
    """
    size = max(size / CAPACITY[space] for space, size in used.items())
    square = int(0.95 * _TRIAL / sqrt(size)) // _SMALLEST * _SMALLEST
    if size > 1 and square > _SMALLEST:
        form, used = _attempt(func, facts, square)
        if _fits(used):
            return form, used
    bound = max(_SMALLEST, int(_TRIAL / size) // 64 * 64 or _SMALLEST)
    while True:
        try:
            form, used = _attempt(func, facts, bound)
        except TargetError as error:
            if error.code != TOO_LARGE or bound <= MOST_ROWS:
                raise
            bound = MOST_ROWS // _SMALLEST * _SMALLEST  # of narrow tiles no more are transferred
            continue
        if _fits(used) or bound <= _SMALLEST:
            return form, used
        bound = max(_SMALLEST, bound * 7 // 8 // 16 * 16)


_MEMORIES = {"Vec": "the unified buffer", "Mat": "L1", "Left": "L0A", "Right": "L0B", "Acc": "L0C"}


def _loc(func: Func) -> Loc:
    return func.loc


def _cores(kernel: KernelForm) -> str:
    return f"{kernel.core} cores, which work with the cube" if kernel.partner else kernel.core


def _readme(name: str, entry: str, function: str, kernels: list[KernelForm]) -> str:
    """How the written sources are built: those of a module whose host code is of `entry`, as the C function `function`.
    """
    rows = [
        f"| `{k.name}.cpp` | a kernel of the {_cores(k)} cores, and the function that launches it |" for k in kernels
    ]
    lines = [
        f"# {name}, for the Ascend 910B", "", "| file | what |", "|---|---|", *rows,
        f"| `{entry}_orchestration.c` | host code: `{function}` enqueues the program on a stream |",
        f"| `{name}.pto` | the program as it was divided into host code and kernels |", "",
        "Needs CANN (the compiler `bisheng` and ACL) and the headers of pto-isa in `$PTO_ISA/include`:", "", "```",
    ]  # fmt: skip
    for k in kernels:
        arch = "dav-c220" if k.partner else "dav-c220-vec" if k.core == "vector" else "dav-c220-cube"
        lines.append(
            f"bisheng -xcce --cce-aicore-arch={arch} -std=c++17 -O2 -fPIC -I$PTO_ISA/include "
            f"-c {k.name}.cpp -o {k.name}.o"
        )
    lines.append(f"cc -std=c11 -O2 -fwrapv -fPIC -I$ASCEND_HOME_PATH/include -c {entry}_orchestration.c")
    objects = " ".join(f"{k.name}.o" for k in kernels)
    lines += [
        f"bisheng --cce-fatobj-link -shared -o lib{name}.so {entry}_orchestration.o {objects} "
        "-L$ASCEND_HOME_PATH/lib64 -lascendcl -lruntime", "```", "",
        "`-DVECTOR_CORES=48 -DCUBE_CORES=24` for a device with that many cores.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"
