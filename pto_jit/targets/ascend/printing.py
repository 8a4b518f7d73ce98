# SPDX-License-Identifier: MIT
"""A kernel's form as C++17."""

from __future__ import annotations

from collections.abc import Iterable

from pto_jit.errors import InternalError, Loc
from pto_jit.targets.ascend import doubles
from pto_jit.targets.ascend.accesses import loops_in
from pto_jit.targets.ascend.form import (
    Assignment,
    Barrier,
    Branch,
    CrossSet,
    CrossWait,
    Declaration,
    ElementStore,
    Flush,
    Function,
    Global,
    Instruction,
    KernelForm,
    Loop,
    Node,
    Parameter,
    Require,
    SetFlag,
    Tile,
    WaitFlag,
)
from pto_jit.targets.ascend.instructions import ROWS, spelling
from pto_jit.targets.ascend.machine import element_type
from pto_jit.targets.c.tidy import wrapped
from pto_jit.targets.source.text import INDENT, SourceText, words_of

_HELPERS = {
    "smaller": "AICORE inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }",
    "larger": "AICORE inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }",
    "floor_divide": "AICORE inline int64_t floor_divide(int64_t a, int64_t b) {\n"
    "  return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));\n}",
    "modulo": "AICORE inline int64_t modulo(int64_t a, int64_t b) {\n"
    "  return b == 0 ? 0 : a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);\n}",
}
_SPELLED = {name: spelling(name) for name in ROWS}
_OWN_CALLS = frozenset(
    """SetValue CALL TMRGSORT_2 TMRGSORT_3 TMRGSORT_4 TCI TODD TSTORE_ADD TSTORE_ACC_ADD TSTORE_MAX
    TSTORE_MIN""".split()
)
_ATOMIC = {"f32": "f32", "f16": "f16", "bf16": "bf16", "i32": "s32", "i16": "s16", "i8": "s8"}
_GUARD = {"vector": "__DAV_C220_VEC__", "cube": "__DAV_C220_CUBE__"}


_TOLD = ("products are ready", "products were taken", "tiles are ready", "tiles were taken",
         "products of the next iteration are ready", "products of the next iteration were taken")  # fmt: skip


def print_kernel(kernel: KernelForm, file: str) -> str:
    """The source file of a kernel: the kernel and the function that launches it."""
    parts = [(kernel, print_body(kernel.body))]
    functions = [(function, print_body(function.body)) for function in kernel.functions]
    if kernel.partner is not None:
        parts.append((kernel.partner, print_body(kernel.partner.body)))
    written = "".join(text for _, text in (*functions, *parts))
    cores = kernel.core if kernel.partner is None else "cube and vector"
    text = SourceText()
    text.line("// SPDX-License-Identifier: MIT")
    text.line(f"// Kernel `{kernel.name}` of {file}, written by pto_jit for the {cores} cores of an Ascend 910B.")
    text.line("#include <cstdint>")
    text.line("#include <pto/pto-inst.hpp>")
    text.line("using namespace pto;")
    text.line()
    text.line("// Rows of global memory: an address, their extents, and how far apart they begin.")
    text.line("template <typename T, Layout L = Layout::ND>")
    text.line("using Rectangle = GlobalTensor<")
    text.line("    T, pto::Shape<1, 1, 1, DYNAMIC, DYNAMIC>,")
    text.line("    pto::Stride<1, 1, 1, L == Layout::ND ? DYNAMIC : 1, L == Layout::ND ? 1 : DYNAMIC>, L>;")
    text.line()
    for name, helper in _HELPERS.items():
        if f"{name}(" in written:
            for line in helper.splitlines():
                text.line(line)
    if not doubles.NAMES.isdisjoint(words_of(written)):
        text.lines += doubles.TEXT.splitlines()
    for function, body in functions:
        _function(text, function, body)
    parameters = ", ".join(_parameter(p) for p in kernel.parameters)
    if kernel.partner is None:
        with text.block(wrapped(f'extern "C" __global__ AICORE void {kernel.name}({parameters})', 4)):
            _body(text, *parts[0])
    else:
        for part, body in parts:
            with text.block(wrapped(f"AICORE inline void {kernel.name}_on_{part.core}({parameters})", 4)):
                _body(text, part, body)
            text.line()
        with text.block(wrapped(f'extern "C" __global__ AICORE void {kernel.name}(uint64_t flags, {parameters})', 4)):
            text.line("set_ffts_base_addr(flags);")
            given = ", ".join(p.name for p in kernel.parameters)
            for core, directive in (("cube", "if"), ("vector", "elif")):
                text.lines.append(f"#{directive} defined({_GUARD[core]})")
                text.line(wrapped(f"{kernel.name}_on_{core}({given});", 6))
            text.lines.append("#endif")
    text.line()
    text.line("#if !defined(__CPU_SIM)")
    arguments = ", ".join(f"static_cast<{p.type} *>({p.name})" if p.tensor else p.name for p in kernel.parameters)
    if kernel.partner is not None:
        arguments = f"flags, {arguments}"
        text.line('extern "C" int32_t rtGetC2cCtrlAddr(uint64_t *address, uint32_t *length);')
    with text.block(wrapped(f'extern "C" {launch_head(kernel)}', 4)):
        if kernel.partner is not None:
            text.line("uint64_t flags = 0;  // where the flags between cores are")
            text.line("uint32_t length = 0;")
            text.line("if (const int32_t error = rtGetC2cCtrlAddr(&flags, &length)) return error;")
        text.line(wrapped(f"{kernel.name}<<<cores, nullptr, stream>>>({arguments});", 6))
        if kernel.partner is not None:
            text.line("return 0;")
    text.line("#endif")
    return str(text)


def _function(text: SourceText, function: Function, written: str) -> None:
    text.line()
    text.line(f"// `{function.operation}` of a tile: to where, from where, and in which memory it works.")
    given = (function.result.base, function.operand.base, function.scratch.base, *function.extents)
    parameters = ", ".join(f"int64_t {name}" for name in given)
    with text.block(wrapped(f"AICORE inline void {function.name}({parameters})", 4)):
        text.lines.append(f"#if !defined(__CCE_AICORE__) || defined({_GUARD['vector']})")
        text.lines += [INDENT + line for line in written.splitlines()]
        text.lines.append("#endif")
    text.line()


def _body(text: SourceText, kernel: KernelForm, written: str) -> None:
    text.line("// The file is compiled for either kind of core; the body belongs to one of them.")
    text.lines.append(f"#if !defined(__CCE_AICORE__) || defined({_GUARD[kernel.core]})")
    if kernel.core == "vector":
        text.line("set_mask_norm();")
        text.line("set_vector_mask(-1, -1);")
    for loop in loops_in(kernel.body):
        if loop.turning and loop.goes_on is None:
            text.line(f"int {loop.turn} = 0;  // which of two copies of a buffer is used")
    text.lines += [INDENT + line for line in written.splitlines()]
    text.lines.append("#endif")


def print_body(nodes: Iterable[Node]) -> str:
    """The statements of a kernel."""
    body = SourceText()
    _nodes(body, nodes)
    return str(body)


def launch_head(kernel: KernelForm) -> str:
    """The C function that launches a kernel; one for groups of cores says whether there are flags between them (0)."""
    own = [f"void *{p.name}" if p.tensor else f"{p.type} {p.name}" for p in kernel.parameters]
    result = "void" if kernel.partner is None else "int32_t"
    return f"{result} launch_{kernel.name}({', '.join(['uint32_t cores', 'void *stream', *own])})"


def _parameter(p: Parameter) -> str:
    return f"__gm__ {p.type} *{p.name}" if p.tensor else f"{p.type} {p.name}"


def _nodes(text: SourceText, nodes: Iterable[Node]) -> None:
    here: Loc | None = None
    for node in nodes:
        kind = type(node)
        if kind is Barrier:
            text.line(f"pipe_barrier(PIPE_{node.pipe});")  # pyright: ignore[reportAttributeAccessIssue]
            continue
        loc = getattr(node, "loc", None)
        if loc is not None and loc is not here:
            text.place(loc)
            here = loc
        if kind is Instruction:
            _instruction(text, node)  # pyright: ignore[reportArgumentType]
        elif kind is Declaration:
            _declare_tile(text, what) if type(what := node.what) is Tile else _declare_global(text, what)  # pyright: ignore
        else:
            _statement(text, node)
            here = None  # a block may have told another one


def _instruction(text: SourceText, node: Instruction) -> None:
    args = node.args
    if node.name in _OWN_CALLS:
        if node.name == "SetValue":
            text.line(f"{args[0].name}.SetValue({', '.join(map(str, args[1:]))});")  # type: ignore[union-attr]
            return
        if node.name.startswith("TMRGSORT_"):
            _merge(text, node)
            return
        if node.name == "CALL":
            _call_function(text, node)
            return
        if node.name in ("TSTORE_MAX", "TSTORE_MIN"):
            _extreme(text, node)
            return
        call = _call(node)
    else:
        call = _SPELLED[node.name]
    text.line(f"{call}({', '.join([a if type(a) is str else a.name for a in args])});")  # pyright: ignore


def _statement(text: SourceText, node: Node) -> None:
    match node:
        case Assignment():
            head = f"{'const ' if node.constant else ''}{node.type} " if node.type else ""
            text.line(f"{head}{node.name} = {node.expression};")
        case ElementStore():
            text.line(f"{node.place} = {node.value};")
        case Flush():
            text.line("// The scalar unit writes through a cache.")
            text.line(f"dcci((__gm__ void *){node.pointer}, cache_line_t::ENTIRE_DATA_CACHE);")
            text.line("dsb(DSB_DDR);")
        case SetFlag() | WaitFlag():
            verb = "set" if isinstance(node, SetFlag) else "wait"
            text.line(f"{verb}_flag(PIPE_{node.source}, PIPE_{node.target}, {_event(node)});")
        case CrossSet():
            config = 1 | 2 << 4 | node.flag << 8  # one more, within the group, which counter
            text.line(f"ffts_cross_core_sync(PIPE_{node.pipe}, {config:#x});  // {_TOLD[node.flag]}")
        case CrossWait():
            text.line(f"wait_flag_dev({node.flag});  // {_TOLD[node.flag]}")
        case Require():
            said = " ".join(node.said.split())
            text.line(f"if (!({node.condition})) trap();{f'  // {said}' if said else ''}")
        case Loop():
            _loop(text, node)
        case Branch():
            if not node.then:  # what is skipped by a `continue`
                with text.block(f"if (!({node.condition}))"):
                    _nodes(text, node.orelse)
                return
            with text.block(f"if ({node.condition})"):
                _nodes(text, node.then)
            if node.orelse:
                with text.block("else"):
                    _nodes(text, node.orelse)
        case _:
            raise InternalError(f"no text of a {type(node).__name__}")


def _merge(text: SourceText, node: Instruction) -> None:
    """Lists of their own are merged; how much of each was taken is told, but only of merges that stop early."""
    target, *lists, scratch = (a.name for a in node.args if not isinstance(a, str))
    told = f"{target}_lists"
    text.line(f"MrgSortExecutedNumList {told};")
    types = ", ".join(f"decltype({name})" for name in (target, scratch, *lists))
    text.line(wrapped(f"TMRGSORT<{types}, false>({', '.join((target, told, scratch, *lists))});", 6))


def _call_function(text: SourceText, node: Instruction) -> None:
    assert node.function is not None
    result, tile = (a.name for a in node.args[:2])  # type: ignore[union-attr]
    given = [a if isinstance(a, str) else _address(a) for a in node.args]  # pyright: ignore[reportArgumentType]
    text.line(f"{node.function.name}({', '.join(given)});  // {result}, of {tile}")


def _extreme(text: SourceText, node: Instruction) -> None:
    """A transfer that takes maxima or minima, which the device does as it adds; pto-isa has a name for sums only."""
    memory, tile = (a for a in node.args if not isinstance(a, str))
    text.line(f"set_atomic_{_ATOMIC[tile.dtype.name]}();  // of the transfers from here on")
    text.line(f"set_atomic_{node.name[-3:].lower()}();")
    text.line(f"TSTORE({memory.name}, {tile.name});")
    text.line("set_atomic_none();")


def _call(node: Instruction) -> str:
    """The name of an instruction, with the template arguments that C++ cannot deduce."""
    target = node.args[0]
    if node.name == "TCI":
        return f"TCI<decltype({target.name}), {element_type(target.dtype)}, 0>"  # type: ignore[union-attr]
    if node.name.endswith("_ADD"):
        return f"TSTORE<decltype({node.args[1].name}), decltype({target.name}), AtomicType::AtomicAdd>"  # type: ignore
    types = ", ".join(f"decltype({a.name})" for a in node.args if not isinstance(a, str))
    return f"TGATHER<{types}, MaskPattern::P1010>"


def _event(flag: SetFlag | WaitFlag) -> str:
    if flag.turning is None:
        return f"EVENT_ID{flag.event}"
    if flag.which is not None:
        return f"EVENT_ID{flag.event + flag.which}"
    return f"(event_t)(EVENT_ID{flag.event} + {flag.turning.turn})"


def _loop(text: SourceText, loop: Loop) -> None:
    start, step = loop.start, loop.step
    if loop.grid:
        mine = "get_block_idx()" if step == "1" else f"get_block_idx() * {step}"
        start = mine if start == "0" else f"{start} + (int64_t){mine}"  # numbers of cores may be unsigned
        step = "get_block_num()" if step == "1" else f"get_block_num() * {step}"
    test = "<"
    move = f"++{loop.var}" if step == "1" else f"{loop.var} += {step}"
    if step.startswith("-") and step[1:].isdigit():
        test, move = ">", f"{loop.var} -= {step[1:]}"
    head = f"while ({loop.condition})" if loop.condition else ""
    with text.block(head or f"for (int64_t {loop.var} = {start}; {loop.var} {test} {loop.stop}; {move})"):
        _nodes(text, loop.body)
        if loop.turning:
            text.line(f"{loop.turns.turn} = 1 - {loop.turns.turn};")


_TILES = {
    "row": ("Tile<TileType::Vec, ", ", BLayout::RowMajor, ", ">"),
    "column": ("Tile<TileType::Vec, ", ", BLayout::ColMajor, ", ">"),
    "nz": ("Tile<TileType::Mat, ", ", BLayout::ColMajor, ", ", SLayout::RowMajor, 512>"),
    "zn": ("Tile<TileType::Mat, ", ", BLayout::RowMajor, ", ", SLayout::ColMajor, 512>"),
    "left": ("TileLeftCompact<", ", ", ">"), "right": ("TileRightCompact<", ", ", ">"),
    "acc": ("TileAccCompact<", ", ", ">"),
}  # fmt: skip
"""The type of a tile by its layout: what comes before its shape, between that and its valid extents, and after."""


def _declare_tile(text: SourceText, tile: Tile) -> None:
    rows, columns = tile.valid
    given = ", ".join([v for v in tile.valid if type(v) is str])
    before, between, after = _TILES[tile.layout]
    text.line(
        f"{before}{element_type(tile.dtype)}, {tile.rows}, {tile.columns}{between}"
        f"{'DYNAMIC' if type(rows) is str else rows}, {'DYNAMIC' if type(columns) is str else columns}{after} "
        f"{tile.name}{f'({given})' if given else ''};"
    )
    text.line(f"TASSIGN({tile.name}, {_address(tile)});")
    if tile.aligned:
        text.line(f"{tile.name}.SetKAligned(true);")


def _address(tile: Tile) -> str:
    buffer = tile.buffer
    at = (buffer.address or 0) + tile.offset
    if buffer.base:
        return f"{buffer.base} + {at:#x}" if at else buffer.base
    address = f"{at:#x}"
    if buffer.copies == 2:
        assert buffer.loop is not None
        address = f"{address} + {buffer.loop.turn} * {buffer.size:#x}"
    if tile.moves is not None:
        address = f"{address} + {tile.moves[0]} * {tile.moves[1]:#x}"
    return address


def _declare_global(text: SourceText, memory: Global) -> None:
    rows, columns = memory.extents
    stride = memory.strides[1] if memory.transposed else memory.strides[0]
    typ = f"Rectangle<{element_type(memory.dtype)}{', Layout::DN' if memory.transposed else ''}>"
    text.line(f"{typ} {memory.name}({memory.pointer}, {{{rows}, {columns}}}, {{{stride}}});")
