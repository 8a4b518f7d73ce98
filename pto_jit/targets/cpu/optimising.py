# SPDX-License-Identifier: MIT
"""LLVM's optimiser, as much of it as each function of a module is worth.

What this target writes are mostly loops over vectors of its own, for which the passes that clean up are enough.  Scalar
loops get the whole of O2, whose time grows with the module: when most of a module is something else, its scalar loops
are optimised in a module of their own and linked in.  O3 is for loops with a branch that all iterations take the same
way: it makes two loops of such a one, and takes a fifth longer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import llvmlite.binding as llvm

from pto_jit.targets.cpu.code import PLAIN

_HEADING = ";scalar loops: "
_DECIDED_ONCE = ";one takes the same branch in all iterations\n"
# Patterns are compiled by those who need them: most kernels have no scalar loops.
_FUNCTION = r"(?ms)^define [^\n]*\n\{\n.*?^\}\n"
_NAME, _LABEL, _TARGET, _NODE = r'.*?@"?([^"(]+)"?\(', r'"?([^"\s;]+)"?:', r'label %"?([^",]+)"?', r"!(\d+) = "
_EXPORTED = r"(?m)^@[^\n=]* = (?!internal|private)"
_ENTRY = r"(?ms)^define (?!internal|hidden)[^\n]*\n\{\n.*?^\}\n"
_VECTOR = r"<\d+ x "
_NARROW = r"llvm\.masked\.store\.v\d+i(?:8|16|32)\."
_ATTRIBUTES = r"(?:(?:[a-z]+(?:\([^()]*\))?|align \d+) )*"
_MASKED_STORE = (
    r"(?m)^ +(?:tail )?call void @llvm\.masked\.store\.v\d+(?P<kind>i\d+)\.p0\((?P<vector><\d+ x i\d+>) "
    rf"(?P<value>[^\n]*?), ptr {_ATTRIBUTES}(?P<place>[%@][^,\n]*), "
    r"<\d+ x i1> <(?P<mask>[^<>\n]*)>\)(?P<rest>[^\n]*)\n"
)
_ONCE = 200  # lines of an entry without loops, from which on it is not worth the optimiser's time
_ALIKE = 8  # functions, from which on some may be the same code
_LINES = 300  # of functions without scalar loops, from which on these are worth a module of their own


def with_scalar_loops(text: str, names: Sequence[str], *, decided_once: bool = False) -> str:
    """A module as text that says which of its functions have scalar loops, and whether one of these takes the same
    branch in all iterations."""
    if not names:
        return text
    return f"{text}\n{_HEADING}{' '.join(sorted(names))}\n{_DECIDED_ONCE if decided_once else ''}"


def optimised(text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    """A module made by `with_scalar_loops`, parsed and optimised.  The caller holds `LLVM_LOCK`."""
    ref = _optimised(text, machine)
    return _without_single_lanes(ref) if " trunc <" in text and re.search(_NARROW, text) else ref


def _without_single_lanes(ref: llvm.ModuleRef) -> llvm.ModuleRef:
    """Masked stores of one lane that is known are stores of an element.

    LLVM 22 selects such a store of a truncated vector, with AVX-512, as one of an element that is not truncated: what
    lies behind it is overwritten.
    """
    count = 0

    def element(found: re.Match[str]) -> str:
        nonlocal count
        mask = found["mask"].split(", ")
        if mask.count("i1 true") != 1 or mask.count("i1 false") != len(mask) - 1:
            return found[0]
        count += 1
        lane, kind = mask.index("i1 true"), found["kind"]
        value, place = f"%pto.lane.{count}", f"%pto.place.{count}"
        debug = re.search(r", !dbg !\d+", found["rest"])
        return (f"  {value} = extractelement {found['vector']} {found['value']}, i64 {lane}\n"
                f"  {place} = getelementptr inbounds {kind}, ptr {found['place']}, i64 {lane}\n"
                f"  store {kind} {value}, ptr {place}, align 1{debug[0] if debug else ''}\n")  # fmt: skip

    text = re.sub(_MASKED_STORE, element, str(ref))
    return llvm.parse_assembly(text) if count else ref


def _optimised(text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    text, _, notes = text.partition(_HEADING)
    text = _straight(text)
    names, _, decided_once = notes.partition("\n")
    scalar, level = set(names.split()), 3 if decided_once else 2
    if not scalar:
        ref = llvm.parse_assembly(text)
        _clean(ref, machine)
        return ref
    functions = {_name(body): body for body in re.findall(_FUNCTION, text)}
    others = [name for name in functions if name not in scalar]
    if "!dbg" in text or re.search(_EXPORTED, text) or sum(functions[n].count("\n") for n in others) < _LINES:
        ref = llvm.parse_assembly(_marked(text, scalar))
        _whole(ref, machine, level)
        return ref
    around = re.sub(_FUNCTION, "", text)
    ref = llvm.parse_assembly(_part(around, functions, others))
    _clean(ref, machine)
    loops = llvm.parse_assembly(
        _marked(_part(around, functions, [name for name in functions if name in scalar]), scalar)
    )
    _whole(loops, machine, level)
    ref.link_in(loops)
    for name, body in functions.items():
        if body.startswith("define internal"):
            ref.get_function(name).linkage = "internal"
    return ref


def _straight(text: str) -> str:
    """An entry that is long and has no loops takes a microsecond of a launch: its code is selected without delay."""
    if text.count("\n") < _ONCE or "!dbg" in text:
        return text
    entry = re.search(_ENTRY, text)
    if entry is None or entry[0].count("\n") < _ONCE or re.search(_VECTOR, entry[0]):
        return text
    label_of, target, above = re.compile(_LABEL), re.compile(_TARGET), set[str]()
    for line in entry[0].split("\n"):
        if label := label_of.match(line):
            above.add(label[1])
        elif line.startswith("  br ") and not above.isdisjoint(target.findall(line)):
            return text
    first, rest = entry[0].split("\n", 1)
    return f"{text[: entry.start()]}{first} noinline optnone\n{rest}{text[entry.end() :]}"


def _name(body: str) -> str:
    found = re.match(_NAME, body)
    assert found is not None
    return found[1]


def _part(around: str, functions: dict[str, str], mine: Sequence[str]) -> str:
    """The module with the functions `mine` and declarations of the others, all to be found by a linker."""
    texts = [around]
    for name, body in functions.items():
        if name in mine:
            texts.append(body.replace("define internal", "define hidden", 1))
        else:
            first = body[: body.index("\n")]
            texts.append(re.sub("^define (internal )?", "declare ", first) + "\n")
    return "\n".join(texts)


def _options(level: int, loops: bool) -> llvm.PipelineTuningOptions:
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = options.loop_unrolling = options.loop_interleaving = loops
    # The vectoriser of straight code gains nothing here, and an assertion in it (stores whose distance is at a limit of
    # the 64-bit integers; LLVM 22 with assertions, as llvmlite has it) ends the process.
    options.slp_vectorization = False
    return options


def _whole(ref: llvm.ModuleRef, machine: llvm.TargetMachine, level: int) -> None:
    builder = llvm.create_pass_builder(machine, _options(level, True))
    builder.getModulePassManager().run(ref, builder)


def _clean(ref: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    builder = llvm.create_pass_builder(machine, _options(1, False))
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    if len(list(ref.functions)) > _ALIKE:
        passes.add_merge_functions_pass()
    passes.run(ref, builder)


def _marked(text: str, scalar: set[str]) -> str:
    """Mark loops at their branches back: those of all functions but `scalar` as not to be vectorised, and those whose
    names have `PLAIN` in them as to be left as they are.

    The others hold vectors of our own and their remainders, in which LLVM's vectoriser finds nothing to do, and now and
    then aborts the process: LLVM 22 with assertions, as llvmlite has it, on "VPlan cost model and legacy cost model
    disagreed".
    """
    lines = text.split("\n")
    node, label_of, target = map(re.compile, (_NODE, _LABEL, _TARGET))
    off = free = 1 + max((int(m[1]) for m in map(node.match, lines) if m), default=-1)
    name, above, plain = "", set[str](), set[int]()
    for k, line in enumerate(lines):
        if line.startswith("define"):
            name, above = _name(line), set[str]()
        elif label := label_of.match(line):
            above.add(label[1])
        elif line.startswith("  br ") and (name not in scalar or PLAIN in line):
            back = above.intersection(target.findall(line))
            is_plain = any(PLAIN in label for label in back)
            if is_plain or (back and name not in scalar):
                free += 1
                lines[k] = f"{line}, !llvm.loop !{free}"
                plain.update([free] if is_plain else [])
    whole = f'!{free + 1} = !{{!"llvm.loop.unroll.disable"}}'
    lines += [f'!{off} = !{{!"llvm.loop.vectorize.enable", i1 false}}', whole]
    lines += [f"!{k} = distinct !{{!{k}, !{off}{f', !{free + 1}' if k in plain else ''}}}"
              for k in range(off + 1, free + 1)]  # fmt: skip
    return "\n".join([*lines, ""])
