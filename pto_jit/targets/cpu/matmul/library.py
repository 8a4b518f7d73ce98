# SPDX-License-Identifier: MIT
"""Compiled matrix products, one LLVM module per combo of dtypes.

``Library(externals).ensure(combo)`` compiles (or takes object code from a store), links against the run-time functions
of `Library.EXTERNALS`, and gives the addresses of

``int32_t pto_mm_<a>_<b>_<c>(pto_worker *w, int64_t m, int64_t n, int64_t k,
const void *a, int64_t a_rs, int64_t a_cs, const void *b, int64_t b_rs, int64_t b_cs,
void *c, int64_t c_rs, int64_t c_cs, int32_t how)``

with strides in elements (any sign; 0 repeats an input).  how is 0 or a sum of `shape.ACCUMULATE` (C is added to, not
written), `FIXED_A` and `FIXED_B` (a packed copy may be kept for later products).  C must not overlap A
or B.  The result is 0, or non-zero when scratch memory could not be had (what was pushed has been popped then).
Where the scheme has `sums`, there are besides

``int32_t pto_mm_<a>_<b>_<c>_sum(pto_worker *w, int64_t m, int64_t n, int64_t count, const void *terms,
void *c, int64_t c_rs, int64_t c_cs, int32_t how)``

for the sum of so many products, each told in eight words as `sums.TERM` says.  For each dtype of 16 bits that the
scheme ``rounds`` to there is ``pto_mm_<a>_<b>_f32_to_<dtype>``, like the first, for a C of that dtype, which is
written: ACCUMULATE is not allowed.
C is split over the threads that may share it, one inside a divided loop; the bits of the result do not depend on them.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files

import llvmlite.binding as llvm

from pto_jit.slotted import frozen
from pto_jit.targets.cpu import machine_code
from pto_jit.targets.cpu.matmul.amx import add_tile_kernels, add_tile_macro, allowed
from pto_jit.targets.cpu.matmul.blocking import Caches, blocking_of, host_caches
from pto_jit.targets.cpu.matmul.driver import add_driver
from pto_jit.targets.cpu.matmul.entries import add_entries
from pto_jit.targets.cpu.matmul.gemv import add_gemv
from pto_jit.targets.cpu.matmul.irtext import Module
from pto_jit.targets.cpu.matmul.kernel import add_kernels
from pto_jit.targets.cpu.matmul.macro import add_macro
from pto_jit.targets.cpu.matmul.pack import add_packing
from pto_jit.targets.cpu.matmul.panels import add_panels
from pto_jit.targets.cpu.matmul.parts import Parts
from pto_jit.targets.cpu.matmul.rounded import add_rounded
from pto_jit.targets.cpu.matmul.shape import Combo, Machine, Scheme, scheme_of
from pto_jit.targets.cpu.matmul.sums import add_sums
from pto_jit.targets.cpu.matmul.tiled import add_tiled

Load = Callable[[str], bytes | None]
Store = Callable[[str, bytes], None]


@frozen
class Processor:
    """What code is generated for, in LLVM's words."""

    triple: str
    name: str
    features: str

    @staticmethod
    @cache
    def host() -> Processor:
        """The processor this runs on, with what the system lets this process use of it."""
        features = llvm.get_host_cpu_features().flatten()
        found = Processor(llvm.get_process_triple(), llvm.get_host_cpu_name(), features)
        return found if "+amx-tile" not in features or allowed() else found.without_tiles()

    def without_tiles(self) -> Processor:
        """The same, for programs that do not ask the system for the tiles of AMX as `host` does."""
        features = self.features.replace("+amx-bf16", "-amx-bf16").replace("+amx-int8", "-amx-int8")
        return Processor(self.triple, self.name, features)


@frozen
class Addresses:
    """The entries of a loaded combo by the suffixes of their names."""

    named: Mapping[str, int]

    @property
    def product(self) -> int:
        """One product."""
        return self.named[""]


def entry_of(name: str) -> tuple[Combo, str]:
    """The dtypes and the suffix in the name of an entry."""
    a, b, c, *kind = name.removeprefix("pto_mm_").split("_")
    return Combo(a, b, c), "".join(f"_{word}" for word in kind)


def suffixes(scheme: Scheme) -> tuple[str, ...]:
    """Of the names of a combo's entries: one product, a sum of them, results of 16 bits."""
    return ("", *(("_sum",) if scheme.sums else ()), *(f"_to_{dtype}" for dtype in scheme.rounds))


def module_ir(combo: Combo, features: str, triple: str = "", caches: Caches | None = None) -> str:
    """The LLVM IR of one combo for a feature string; raises ValueError for dtypes without a product."""
    triple = triple or llvm.get_process_triple()
    scheme = scheme_of(combo, Machine.of(features, triple))
    module = Module()
    (add_tile_kernels if scheme.tiles else add_kernels)(module, scheme)
    add_packing(module, scheme)
    add_gemv(module, scheme)
    module.declare("pto_scratch_push", "declare noalias ptr @pto_scratch_push(ptr, i64)")
    module.declare("pto_scratch_pop", "declare void @pto_scratch_pop(ptr, ptr)")
    module.declare("pto_kept_find", "declare ptr @pto_kept_find(ptr, ptr, i64, ptr)")
    module.declare("pto_kept_done", "declare void @pto_kept_done(ptr)")
    module.declare("pto_parallel_width", "declare i32 @pto_parallel_width(ptr)")
    module.declare("pto_parallel_for", "declare i32 @pto_parallel_for(ptr, ptr, ptr, i64, i64, i64)")
    parts = Parts(module, scheme, blocking_of(scheme, caches or host_caches()))
    add_macro(parts)
    if scheme.tiles:
        add_tile_macro(parts)
    if scheme.panelled:
        add_panels(parts)
    add_driver(parts)
    add_entries(parts)
    if scheme.sums:
        add_sums(parts)
    if scheme.pieces:
        add_tiled(parts)
    add_rounded(parts)
    width = 8 * scheme.machine.vector_bytes
    wide = f'"min-legal-vector-width"="{width}" "prefer-vector-width"="{width}"'
    kinds = ("nounwind", "nounwind noinline", "nounwind noinline optnone")
    attributes = [f"attributes #{number} = {{ {kind} {wide} }}\n" for number, kind in enumerate(kinds)]
    return module.text(f'target triple = "{triple}"') + "".join(attributes)


_initialised = threading.RLock()
_ready = False


def initialise() -> None:
    """Prepare LLVM's code generator for the host, once."""
    global _ready
    with _initialised:
        if not _ready:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            _ready = True


def target_machine(processor: Processor) -> llvm.TargetMachine:
    """The code generator: O2, the processor's own instructions."""
    initialise()
    target = llvm.Target.from_triple(processor.triple)
    return target.create_target_machine(
        cpu=processor.name, features=processor.features, opt=2, reloc="pic", codemodel="default", jit=False
    )


def optimised(text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    """Parsed, and put through the few passes that the generator leaves work for."""
    module = llvm.parse_assembly(text)
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(2))
    passes.run(module, builder)
    return module


def compile_object(
    combo: Combo, processor: Processor, caches: Caches | None = None, *, hidden: bool = False
) -> bytes:  # fmt: skip
    """Relocatable object code of one combo; hidden: a shared library made of it does not show its functions."""
    machine = target_machine(processor)
    module = optimised(module_ir(combo, processor.features, processor.triple, caches), machine)
    if hidden:
        for function in module.functions:
            if not function.is_declaration and function.linkage == llvm.Linkage.external:
                function.visibility = llvm.Visibility.hidden
    return machine_code.object_code(module, machine)


def assembly(combo: Combo, processor: Processor) -> str:
    """The machine code as text, for reading."""
    machine = target_machine(processor)
    text = module_ir(combo, processor.features, processor.triple)
    return machine_code.assembly(optimised(text, machine), machine)


@cache
def _generator_digest() -> str:
    """A digest of this package's sources: other sources may write other code."""
    sources = sorted(
        (item.name, item.read_bytes())
        for item in files("pto_jit.targets.cpu.matmul").iterdir()
        if item.name.endswith(".py")
    )
    return hashlib.sha256(repr(sources).encode()).hexdigest()


def object_key(combo: Combo, processor: Processor, caches: Caches) -> str:
    """What object code is stored under: every input of its making, without making the text."""
    parts = (combo, processor, caches, llvm.llvm_version_info, machine_code.X86_OPTIONS, _generator_digest())
    return f"{combo.symbol}-{hashlib.sha256(repr(parts).encode()).hexdigest()}"


class Library:
    """The loaded products of one processor description; thread-safe, alive as long as this object is.

    externals: addresses of the run-time functions.  load and store, when given, keep object code under a key that
    covers the generator, the processor, the cache sizes and LLVM's version; they may be called from any thread.
    """

    EXTERNALS = (
        *("pto_scratch_push", "pto_scratch_pop", "pto_parallel_for", "pto_parallel_width"),
        *("pto_kept_find", "pto_kept_done"),
    )

    def __init__(
        self,
        externals: Mapping[str, int],
        *,
        processor: Processor | None = None,
        caches: Caches | None = None,
        load: Load | None = None,
        store: Store | None = None,
    ) -> None:
        self._externals = {name: externals[name] for name in self.EXTERNALS}
        self.processor = processor or Processor.host()
        self.caches = caches or host_caches()
        self._load, self._store = load, store
        self._lock = threading.RLock()
        self._jit: llvm.LLJIT | None = None
        self._loaded: dict[Combo, tuple[Addresses, llvm.ResourceTracker]] = {}

    def ensure(self, combo: Combo) -> Addresses:
        """Compile and load a combo unless that has been done; raises ValueError for dtypes without a product."""
        found = self._loaded.get(combo)
        if found is None:
            with self._lock:
                if combo not in self._loaded:
                    code = self._object(combo)
                    if combo not in self._loaded:  # a signal handler may have made it meanwhile
                        self._loaded[combo] = self._link(combo, code)
                found = self._loaded[combo]
        return found[0]

    def _object(self, combo: Combo) -> bytes:
        if self._load is None and self._store is None:
            return compile_object(combo, self.processor, self.caches)
        key = object_key(combo, self.processor, self.caches)
        code = self._load(key) if self._load is not None else None
        if code is None:
            code = compile_object(combo, self.processor, self.caches)
            if self._store is not None:
                self._store(key, code)
        return code

    def _link(self, combo: Combo, code: bytes) -> tuple[Addresses, llvm.ResourceTracker]:
        if self._jit is None:
            initialise()
            # This linker places the sections of an object side by side.  The other one maps each apart; in a process
            # with large arrays they come to lie further apart than code can reach, and LLVM ends the process.
            self._jit = llvm.create_lljit_compiler(
                target_machine(self.processor), use_jit_link=True, suppress_errors=True
            )
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name, address in self._externals.items():
            builder.import_symbol(name, address)
        scheme = scheme_of(combo, Machine.of(self.processor.features, self.processor.triple))
        names = {suffix: combo.symbol + suffix for suffix in suffixes(scheme)}
        for name in names.values():
            builder.export_symbol(name)
        tracker = builder.link(self._jit, combo.symbol)
        return Addresses({suffix: tracker[name] for suffix, name in names.items()}), tracker
