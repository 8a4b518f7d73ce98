# SPDX-License-Identifier: MIT
"""The form of kernels: golden text, the checks of order and legality on what was written and on what was broken."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit import ElementType, MemorySpace, PTOFunctionBuilder, PTOModule
from pto_jit.bench.kernels import attention, elementwise, grids, loops, matrix, reductions, rows
from pto_jit.errors import TargetError
from pto_jit.targets.ascend.events import Events
from pto_jit.targets.ascend.flow import Flow
from pto_jit.targets.ascend.form import (
    SLOT,
    Barrier,
    Branch,
    Buffer,
    CrossSet,
    CrossWait,
    Declaration,
    Global,
    Instruction,
    KernelForm,
    Loop,
    Node,
    SetFlag,
    Tile,
    WaitFlag,
)
from pto_jit.targets.ascend.legality import violations
from pto_jit.targets.ascend.ordering import races
from pto_jit.targets.ascend.plans import TILE_IS_READY

from .harness import blocks, kernels_of, mutants, without_one, written

VECTOR, MATRIX, CUBE = (pto.spec((None,) * n, pl.f32) for n in (1, 2, 3))
HALF, BRAIN = pto.spec((None, None), pl.f16), pto.spec((None, None), pl.bf16)
ROWS = pto.spec((None, 256), pl.f32)
WRITTEN: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "vector_add": (elementwise.vector_add, (VECTOR,) * 3),
    "gelu_tanh": (elementwise.gelu_tanh, (MATRIX,) * 2),
    "gelu_erf": (elementwise.gelu_erf, (MATRIX,) * 2),
    "stencil5": (grids.stencil5, (MATRIX,) * 2),
    "silu_mul": (elementwise.silu_mul, (ROWS,) * 3),
    "bias_relu": (elementwise.bias_relu, (MATRIX, VECTOR, MATRIX)),
    "softmax": (rows.softmax, (ROWS,) * 2),
    "softmax_f16": (rows.softmax, (HALF,) * 2),
    "layer_norm": (rows.layer_norm, (MATRIX, VECTOR, VECTOR, MATRIX)),
    "cross_entropy": (rows.cross_entropy, (MATRIX, pto.spec((None,), pl.i32), VECTOR)),
    "column_softmax": (reductions.column_softmax, (MATRIX,) * 2),
    "small_rows_sequential": (loops.small_rows_sequential, (MATRIX,) * 2),
    "attention": (attention.attention, (CUBE,) * 4),
    "attention_causal": (attention.attention_causal, (pto.spec((None, None, 64), pl.f32),) * 4),
    "attention_causal_turned": (attention.attention_causal_turned, (pto.spec((None, None, 64), pl.f32),) * 4),
    "matmul": (matrix.matmul, (HALF, HALF, MATRIX)),
    "matmul_tiled": (matrix.matmul_tiled, (MATRIX,) * 3),
    "matmul_bf16_tiled": (matrix.matmul_bf16_tiled, (BRAIN,) * 3),
    "matmul_bias_gelu_tiled": (matrix.matmul_bias_gelu_tiled, (MATRIX, MATRIX, VECTOR, MATRIX)),
    "swiglu": (matrix.swiglu, (MATRIX,) * 5),
}
@pto.jit
def wide(x: pl.Tensor, s: float, out: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            pl.store(pl.load(x, [r, 0], [8, 64]) * (s * pl.cast(r, pl.f64)), [r, 0], out)


@pto.jit
def scattered(x: pl.Tensor, index: pl.Tensor, out: pl.Tensor):
    for r in pl.range(0, x.shape[0], 8, parallel=True):
        pl.scatter(pl.load(x, [r, 0], [8, 64]), pl.load(index, [r, 0], [8, 64]), 1, out[r : r + 8, :])


@pto.jit
def chosen_doubles(x: pl.Tensor, out: pl.Tensor):
    """Numbers of Python, which are f64, and not all f32, for truth values: no tile is of that type before."""
    for r in pl.range(0, x.shape[0], 8, parallel=True):
        pl.store(pl.where(pl.load(x, [r, 0], [8, 64]) > 0, 2.1, 3.0), [r, 0], out)


@pto.jit
def of_doubles(a: pl.Tensor, b: pl.Tensor, out: pl.Tensor):
    pl.store(pl.load(a) @ pl.load(b), [0, 0], out)


BYTES = pto.spec((None, None), pl.u8)
REFUSED: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "scattered": (scattered, (BYTES, pto.spec((None, None), pl.i32), BYTES), "`pl.scatter` like this"),
    "of_doubles": (of_doubles, (pto.spec((None, None), pl.f64),) * 3, "matrix products of f64"),
    "chosen_doubles": (chosen_doubles, (MATRIX, MATRIX), "tiles of f64"),
    "wide": (wide, (MATRIX, 1.5, MATRIX), "tiles of f64, as those of f32 give with numbers of i32"),
}


def forms(name: str) -> list[KernelForm]:
    fn, specs = WRITTEN[name]
    return kernels_of(written(fn, *specs))


@pto.jit
def scaled(x: pl.Tensor, s: float, out: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t = pl.load(x, [r, 0], [8, 64]) * s
            for _ in pl.range(3):
                t = (t + s) * (1.0 - s)
            pl.store(t * s + (1.0 - s), [r, 0], out)


def test_a_number_is_computed_by_the_host_once() -> None:
    """`s` as f32, and `1.0 - s`."""
    (kernel,) = kernels_of(written(scaled, MATRIX, 1.5, MATRIX))
    assert [p.type for p in kernel.parameters if p.type == "float" and not p.tensor] == ["float", "float"]


@pytest.mark.parametrize("name", WRITTEN)
def test_kernels_are_ordered_and_legal(name: str) -> None:
    for kernel in forms(name):
        assert races(kernel) == []
        assert violations(kernel) == []


@pytest.mark.parametrize("name", ["vector_add", "softmax", "cross_entropy", "matmul"])
def test_without_a_flag_or_barrier_a_kernel_is_not_ordered(name: str) -> None:
    """So the check finds what is missing, and nothing is written that is not needed."""
    count = 0
    for kernel in forms(name):
        for what in mutants(kernel):
            count += 1
            assert races(kernel, first=True), f"{kernel.name}: nobody misses it: {what}"
        assert races(kernel) == []
    assert count > 10


@pytest.mark.parametrize("name", ["vector_add", "softmax"])
def test_without_any_two_flags_or_barriers_a_kernel_is_not_ordered(name: str) -> None:
    """What is missing does not hide what else is."""
    (kernel,) = forms(name)
    order = [n for b in blocks(kernel.body) for n in b if isinstance(n, (SetFlag, WaitFlag, Barrier))]
    saved = [(block, list(block)) for block in blocks(kernel.body)]
    for pair in itertools.combinations(order, 2):
        for block, nodes in saved:
            block[:] = [n for n in nodes if not any(n is gone for gone in pair)]
        assert races(kernel, first=True), f"nobody misses {pair[0]} and {pair[1]}"
    for block, nodes in saved:
        block[:] = nodes
    assert len(order) >= 10 and races(kernel) == []


def test_without_a_flag_or_barrier_a_group_is_not_ordered() -> None:
    """All of them are found, of which every ninth is taken here."""
    (kernel,) = forms("attention")
    assert kernel.partner is not None
    sides = [without_one(side, (SetFlag, WaitFlag, Barrier)) for side in (kernel, kernel.partner)]
    for at, what in enumerate(what for side in sides for what in side):
        assert at % 9 or races(kernel, first=True), f"nobody misses it: {what}"
    assert at > 70 and races(kernel) == []


@pytest.mark.parametrize("name", ["attention_causal", "attention_causal_turned", "column_softmax", "conv3x3"])
def test_flags_are_not_used_up(name: str) -> None:
    """A flag that is down is raised again, for something else."""
    images = (pto.spec((None, None, 32), pl.f32), pto.spec((3, 3, 32, 48), pl.f32), pto.spec((None, None, 48), pl.f32))
    kernels = kernels_of(written(grids.conv3x3, *images)) if name == "conv3x3" else forms(name)
    for kernel in kernels:
        for side in (kernel, kernel.partner or kernel):
            assert not any(isinstance(n, Barrier) and n.pipe == "ALL" for block in blocks(side.body) for n in block)


@pto.jit
def sums_in_turn(x: pl.Tensor, w: pl.Tensor, y: pl.Tensor, n: int):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 16, parallel=True):
            acc = pl.load(x, [r, 0], [16, 64])
            for j in pl.range(n):
                acc = acc + pl.load(w, [j, 0], [16, 64])
            for j in pl.range(n):
                acc = acc * pl.load(w, [j + 1, 0], [16, 64])
            for j in pl.range(n):
                acc = acc + pl.load(w, [j + 2, 0], [16, 64])
            for j in pl.range(n):
                acc = acc * pl.load(w, [j + 3, 0], [16, 64])
            for j in pl.range(n):
                acc = acc + pl.load(w, [j + 4, 0], [16, 64])
            pl.store(acc, [r, 0], y)


def test_loops_that_follow_one_another_take_turns_together() -> None:
    """They have one pair of copies and its flags, where five pairs would need ten flags of the eight."""
    matrix = pto.spec((None, 64), pl.f32)
    (kernel,) = kernels_of(written(sums_in_turn, matrix, matrix, matrix, 3))
    nodes = [n for block in blocks(kernel.body) for n in block]
    inner = [n for n in nodes if isinstance(n, Loop) and n.var.startswith("j")]
    tiles = [next(n.what for n in loop.body if isinstance(n, Declaration) and isinstance(n.what, Tile)) for loop in inner]
    assert len(inner) == 5 and {loop.turns.turn for loop in inner} == {inner[0].turn}
    assert len({(tile.buffer.address, tile.buffer.copies) for tile in tiles}) == 1
    for pair in (("MTE2", "V"), ("V", "MTE2")):
        flags = [n for loop in inner for n in loop.body if isinstance(n, SetFlag) and (n.source, n.target) == pair]
        assert len(flags) == 5 and len({n.event for n in flags}) == 1 and all(n.turning is inner[0] for n in flags)
    assert races(kernel) == []
    for at, what in enumerate(without_one(kernel, (SetFlag, WaitFlag, Barrier))):
        assert at % 3 or races(kernel, first=True), f"nobody misses it: {what}"


@pytest.mark.parametrize(("stop", "found"), [("4", 0), ("n", 1)])
def test_a_loop_of_constant_bounds_runs(stop: str, found: int) -> None:
    """So what it waits for needs no other flag: with bounds that are not constant it may run no time."""
    tile = Tile("t", pl.f32, 8, 8, (8, 8), "row", Buffer("t", "Vec", 256, address=0))
    memory = Global("x_here", pl.f32, "x", "x", (8, 8), (8, 1))
    pairs = (("V", "MTE2"), ("MTE2", "V"))  # each pipe sees that the other has seen its flag
    flags: list[Node] = [kind(*pair, 0) for pair in pairs for kind in (SetFlag, WaitFlag)]
    work = [Instruction("TLOAD", (tile, memory)), Instruction("TEXP", (tile, tile))]
    nodes: list[Node] = [work[0], Loop("k", "0", stop, "1", flags), work[1]]
    hazards = Flow(nodes, Events(nodes)).hazards()
    assert [(h.before.node, h.after.node) for h in hazards] == [(work[0], work[1])] * found


def test_where_flags_are_used_up_two_pipes_wait_for_each_other() -> None:
    """A flag of the pair is raised and waited for at one place."""
    (kernel,) = forms("attention_causal_turned")
    assert kernel.partner is not None
    spare = sum(
        isinstance(a, SetFlag) and isinstance(b, WaitFlag) and (a.source, a.target, a.event) == (b.source, b.target, b.event)
        for block in blocks(kernel.partner.body)
        for a, b in itertools.pairwise(block)
    )
    assert spare > 0


@pto.jit
def padded_in_turn(x: pl.Tensor, w: pl.Tensor, y: pl.Tensor, n: int):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 16, parallel=True):
            acc = pl.zeros([16, 64], pl.f32)
            for k in pl.static_range(10):
                t = pl.load(x, [r, k + 1], [16, 64], pad=0.0)
                acc = acc + t * pl.max(t, axis=1, keepdims=True)
                for j in pl.range(n):
                    acc += pl.load(w, [r, j], [16, 64], pad=0.0)
            pl.store(acc, [r, 0], y)


def test_where_flags_are_used_up_what_waits_in_a_branch_does_so_there() -> None:
    """Each of ten loads is in a branch: flags raised before it, which nothing need take down there, are answered."""
    matrix = pto.spec((None, None), pl.f32)
    (kernel,) = kernels_of(written(padded_in_turn, matrix, matrix, pto.spec((None, 64), pl.f32), 3))
    (body,) = (block for block in blocks(kernel.body) if sum(isinstance(n, Loop) for n in block) == 10)
    branches = [n.then for n in body if isinstance(n, Branch)]
    for pair in (("V", "MTE2"), ("MTE2", "V")):
        told, heard = ([[n for n in b if isinstance(n, kind) and (n.source, n.target) == pair] for b in branches]
                       for kind in (SetFlag, WaitFlag))  # fmt: skip
        assert [len(some) for some in told] == [len(some) for some in heard] == [1] * 10
    assert races(kernel) == []
    for at, what in enumerate(without_one(kernel, (SetFlag, WaitFlag))):
        assert at % 9 or races(kernel, first=True), f"nobody misses it: {what}"


def test_without_a_flag_between_cores_a_group_is_not_in_step() -> None:
    (kernel,) = forms("attention")
    assert kernel.partner is not None
    count = 0
    for side in (kernel, kernel.partner):
        for what in without_one(side, (CrossSet, CrossWait)):
            count += 1
            assert races(kernel, first=True), f"{side.name}: nobody misses it: {what}"
    assert count == 22 and races(kernel) == []


def test_a_cube_core_is_one_tile_ahead_of_the_vector_cores() -> None:
    """It stores the scores of a tile before it waits for the weights of the one before."""
    (kernel,) = forms("attention")
    assert kernel.partner is not None
    (loop,) = [n for block in blocks(kernel.partner.body) for n in block if isinstance(n, Loop) and n.ahead]
    first, second = [n for n in loop.body if isinstance(n, Branch)]
    assert (first.when, second.when) == ("not last", "not first")
    assert not any(isinstance(n, CrossWait) and n.flag == TILE_IS_READY for n in first.then)
    assert any(isinstance(n, CrossWait) and n.flag == TILE_IS_READY for n in second.then)
    assert not any(n.ahead for block in blocks(kernel.body) for n in block if isinstance(n, Loop))


@pytest.mark.parametrize(("name", "halved"), [("attention_causal", True), ("attention_turned", False)])
def test_vector_cores_of_a_group_take_half_of_the_rows_each(name: str, halved: bool) -> None:
    """Unless something looks across rows: reductions along columns do."""
    fn = getattr(attention, name)
    compiled = written(fn, *WRITTEN["attention_causal"][1])
    text = next(text for file, text in compiled.sources.items() if "incore" in file)
    assert ("own_rows" in text) == halved
    (kernel,) = kernels_of(compiled)
    rows = {n.what.rows for block in blocks(kernel.body) for n in block
            if isinstance(n, Declaration) and isinstance(n.what, Tile)}  # fmt: skip
    assert (32 in rows) == halved, "memory for its own rows"
    assert ("if (get_subblockid() == 0) {" in text) != halved


@pytest.mark.parametrize("early", ["TSTORE", "TLOAD", "TSTORE_ACC", "TLOAD_L1"])
def test_a_slot_that_is_touched_before_its_flag_is_found(early: str) -> None:
    """The transfer of a value between the cores, and the wait before it, exchanged."""
    (kernel,) = forms("attention")
    assert kernel.partner is not None
    for block in [b for side in (kernel, kernel.partner) for b in blocks(side.body)]:
        for at, node in enumerate(list(block)):
            what = node.then[-1] if isinstance(node, Branch) and node.then else node
            slot = isinstance(what, Instruction) and what.name == early and any(
                isinstance(a, Global) and a.root.startswith(SLOT) for a in what.args)  # fmt: skip
            waits = [k for k in range(at) if isinstance(block[k], CrossWait)]
            if slot and waits:
                block.insert(waits[-1], block.pop(at))
                assert races(kernel)
                return
    pytest.fail("no such transfer")


def test_a_flag_of_another_number_is_found() -> None:
    (kernel,) = forms("softmax")
    for flag in [n for block in blocks(kernel.body) for n in block if isinstance(n, WaitFlag)]:
        flag.event += 1
        assert races(kernel)
        flag.event -= 1
    assert races(kernel) == []


def tiles(kernel: KernelForm) -> list[Tile]:
    return [
        n.what
        for block in blocks(kernel.body)
        for n in block
        if isinstance(n, Declaration) and isinstance(n.what, Tile)
    ]


def test_buffers_that_overlap_while_both_are_needed_are_found() -> None:
    (kernel,) = forms("silu_mul")
    first, *others = tiles(kernel)
    other = next(t for t in others if t.buffer is not first.buffer)
    other.buffer.address = first.buffer.address
    assert races(kernel)


@pytest.mark.parametrize("early", ["weight.1", "bias.1"])
def test_a_value_that_another_overwrites_before_it_is_read_is_found(early: str) -> None:
    """In order as they are: instructions of one pipe, with barriers between them."""
    kernel = forms("layer_norm")[0]
    buffers = {t.buffer.name: t.buffer for t in tiles(kernel)}
    for late in ("sum", "t4"):
        home = buffers[late].address
        buffers[late].address = buffers[early].address
        assert [r for r in races(kernel) if f", which `{late}` has overwritten" in r], late
        buffers[late].address = home
    assert races(kernel) == []


BREAKS: dict[str, Callable[[KernelForm], None]] = {
    "is not a multiple of 32": lambda k: setattr(tiles(k)[0], "columns", 255),
    "ends behind": lambda k: setattr(tiles(k)[0].buffer, "address", 180 * 1024),
    "address": lambda k: setattr(tiles(k)[0].buffer, "address", 8),
    "valid elements": lambda k: setattr(tiles(k)[0], "valid", (1, 300)),
    "in a buffer of": lambda k: setattr(tiles(k)[0], "rows", 4000),
    "has the layout": lambda k: setattr(tiles(k)[0], "layout", "column"),
    "does not take elements": lambda k: [setattr(t, "dtype", pl.i64) for t in tiles(k)],  # type: ignore[func-returns-value]
    "elements of": lambda k: setattr(tiles(k)[0], "dtype", pl.i32),
}


@pytest.mark.parametrize("broken", BREAKS)
def test_a_broken_rule_is_named(broken: str) -> None:
    (kernel,) = forms("softmax")
    BREAKS[broken](kernel)
    assert any(broken in text for text in violations(kernel)), violations(kernel)


def test_a_row_reduction_of_other_rows_is_illegal() -> None:
    (kernel,) = forms("softmax")
    reduction = next(
        n for block in blocks(kernel.body) for n in block if isinstance(n, Instruction) and n.name == "TROWMAX"
    )
    target = reduction.args[0]
    assert isinstance(target, Tile)
    target.rows *= 2
    assert any("TROWMAX" in text for text in violations(kernel))


def test_a_row_reduction_has_room_to_work_in() -> None:
    """For sums of pairs of 64 elements: half of the columns."""
    (kernel,) = forms("attention_causal")
    reduction = next(
        n for block in blocks(kernel.body) for n in block if isinstance(n, Instruction) and n.name == "TROWMAX"
    )
    source, scratch = reduction.args[1:]
    assert isinstance(source, Tile) and isinstance(scratch, Tile)
    assert (source.columns, scratch.columns) == (128, 64)
    scratch.columns = 32
    assert any("x 32 elements of" in text for text in violations(kernel))
    scratch.columns = 64


def test_the_order_of_integers_is_not_compared() -> None:
    """But found by a maximum: the core compares i32 for equality, whatever mode it is given."""
    (kernel,) = forms("attention_causal")
    for compare in [n for b in blocks(kernel.body) for n in b if isinstance(n, Instruction) and n.name == "TCMPS"]:
        right = compare.args
        compare.args = (*right[:-1], "CmpMode::LE")
        assert any("equality" in text for text in violations(kernel))
        compare.args = right
        return
    pytest.fail("no comparison")


@pto.jit
def until_small(x: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t = pl.load(x, [r, 0], [8, 64])
            while pl.max(t) > 1.0:
                t = t * 0.5
            pl.store(t, [r, 0], x)


def test_flag_0_between_vector_core_and_scalar_unit_is_for_instructions() -> None:
    """`TROWEXPAND` and others raise it themselves."""
    (kernel,) = kernels_of(written(until_small, pto.spec((None, 64), pl.f32)))
    flags = [n for b in blocks(kernel.body) for n in b if isinstance(n, WaitFlag) and {n.source, n.target} == {"V", "S"}]
    assert flags and not violations(kernel)
    flags[0].event = 0
    assert any("flag 0" in text for text in violations(kernel))


def test_a_copy_that_hands_a_value_on_is_none() -> None:
    """The state of one loop goes on in the next one: attention to whole tiles, and then to a part of one."""
    (kernel,) = forms("attention_causal")
    accumulators = [t.buffer for t in tiles(kernel) if t.name.startswith("acc")]
    assert len(accumulators) > 3 and len(set(accumulators)) == 1


@pytest.mark.parametrize("name", ["vector_add", "softmax", "matmul"])
def test_small_kernels_read_as_expected(name: str, golden: Callable[[str, str], None]) -> None:
    fn, specs = WRITTEN[name]
    sources = written(fn, *specs).sources
    golden(f"{name}.cpp", next(text for file, text in sources.items() if "incore" in file))
    if name == "softmax":
        golden(f"{name}_orchestration.c", sources[f"{name}_orchestration.c"])


@pto.jit
def half_used(x: pl.Tensor, n: pl.Tensor, out: pl.Tensor):
    for i in pl.range(x.shape[0]):
        total, count = 0.0, 0
        for j in pl.range(x.shape[1]):
            total = pl.maximum(total, pl.abs(x[i, j]))
            count += n[i, j]
        if n[i, 0] > 3:
            count = 0
        out[i] = total


def test_elements_that_nobody_needs_are_not_read() -> None:
    sources = written(half_used, MATRIX, pto.spec((None, None), pl.i32), VECTOR).sources
    text = sources["half_used_incore_0.cpp"]
    assert "n[" not in text and "int32_t *n" not in text and "__builtin_fabsf" in text


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_written_is_refused_by_name(name: str) -> None:
    fn, specs, what = REFUSED[name]
    with pytest.raises(TargetError, match="PTO-X210") as caught:
        written(fn, *specs)
    assert what in str(caught.value) and "help: " in str(caught.value)


@pto.jit(target="ascend")
def doubled(x: pl.Tensor, y: pl.Tensor):
    pl.store(pl.load(x, [0, 0], [8, 16]) * 2.0, [0, 0], y)


@pto.jit
def large(x: pl.Tensor, y: pl.Tensor):
    """Tiles all of which are looked at, in a loop of the program: they are not divided."""
    for r in pl.range(0, x.shape[0], 512, parallel=True):
        t = pl.load(x, [r, 0], [512, 512])
        pl.store(t - pl.max(t), [r, 0], y)


def test_a_launch_is_refused() -> None:
    x = np.ones((8, 16), np.float32)
    with pytest.raises(TargetError, match="PTO-X212"):
        doubled(x, x.copy())


@pto.jit
def narrow(x: pl.Tensor, y: pl.Tensor):
    y[:, :] = x[:, :] - pl.max(x[:, :], axis=0, keepdims=True)


@pto.jit
def of_any_size(x: pl.Tensor, y: pl.Tensor):
    y[:, :] = x[:, :] * 2.0


def test_tiles_of_few_columns_have_as_many_rows_as_one_transfer_takes() -> None:
    kernel, rest = kernels_of(written(narrow, *(pto.spec((None, 8), pl.f32),) * 2))
    assert kernel.limits == {"x_d0": 4080} and violations(kernel) == []
    assert rest.limits == {} and not rest.alone
    (kernel,) = kernels_of(written(of_any_size, *(pto.spec((None, 8), pl.f32),) * 2))
    assert kernel.limits == {} and violations(kernel) == []


def test_tiles_that_do_not_fit() -> None:
    with pytest.raises(TargetError, match=r"PTO-X211: .* 1048576 bytes of 188416 in the unified buffer"):
        written(large, MATRIX, MATRIX)


def test_files_of_a_module_are_named_after_its_functions() -> None:
    module = PTOModule("several")
    for name in ("copied", "entered"):
        build = PTOFunctionBuilder(name, module=module)
        build = build.in_core() if name == "copied" else build.not_in_core()
        for memref in ("a", "b"):
            build = build.memref(memref, MemorySpace.GLOBAL, ElementType.F32, (8, 8))
        if name == "copied":
            build.tile("x", 8, 8, ElementType.F32).load("x", "a").exp("y", "x").store("b", "y").build()
        else:
            build.call("copied", {"a": "a", "b": "b"}).build()
    sources = module.compile(target="ascend").sources
    assert set(sources) == {"README.md", "several.pto", "copied.cpp", "entered_orchestration.c"}
    assert "`entered_orchestration.c` | host code: `entered` enqueues" in sources["README.md"]


def test_a_written_directory_is_complete_and_says_nothing_of_this_machine(tmp_path: Path) -> None:
    compiled = written(matrix.matmul_bias_gelu, MATRIX, MATRIX, VECTOR, MATRIX)
    names = {p.name for p in compiled.write(tmp_path)}
    assert names == {
        "README.md", "matmul_bias_gelu.pto", "matmul_bias_gelu_orchestration.c",
        "matmul_bias_gelu_incore_0_cube.cpp", "matmul_bias_gelu_incore_0_vector.cpp",
    }  # fmt: skip
    readme = (tmp_path / "README.md").read_text()
    for name in names:
        assert str(Path.cwd()) not in (tmp_path / name).read_text()
        assert name == "README.md" or name in readme
    assert "dav-c220-cube" in readme and "dav-c220-vec" in readme
    assert compiled.stages[-1] == "kernels" and compiled.ir("kernels").count("CALL @") == 2


def test_writing_is_quick() -> None:
    """Not a measurement: ten times what it takes on an idle machine."""
    fn, specs = WRITTEN["layer_norm"]
    start = time.perf_counter()
    written(fn, *specs)
    assert time.perf_counter() - start < 3
