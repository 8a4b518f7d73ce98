# SPDX-License-Identifier: MIT
"""What the passes save: instructions and on-chip bytes of the same kernels with one pass left out at a time.

`python -m tests.lower.savings` prints the tables of docs/savings.md.  It wants a C compiler, and uses valgrind,
aarch64-linux-gnu-gcc and nvcc where they are; the tests look at what needs none of them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pto_jit as pto
import pto_jit.language as pl
from pto_jit import source_kernel
from pto_jit.bench.kernels import attention, elementwise, matrix, rows
from pto_jit.compiler import WRITTEN, Stages, run_passes
from pto_jit.ir.nodes import Op
from pto_jit.ir.parse import parse
from pto_jit.ir.walk import statements
from pto_jit.lower.pipeline import PIPELINE
from pto_jit.options import Options
from pto_jit.semantic.rules import infer
from pto_jit.targets.ascend import program as ascend
from pto_jit.targets.ascend.accesses import RESERVED, accesses, walk
from pto_jit.targets.ascend.form import Buffer, Instruction, KernelForm, Loop
from pto_jit.targets.cpu.arena import Arena

ROWS = 64
_M, _V = pto.spec((None, 256), pl.f32), pto.spec((256,), pl.f32)
_HEADS = pto.spec((None, None, 64), pl.f32)


@pto.jit
def mlp(x: pl.Tensor, a: pl.Tensor, b: pl.Tensor, c: pl.Tensor, y: pl.Tensor):
    """Three products of 64 rows at a time, each of what the one before gave."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 64, parallel=True):
            t = pl.relu(pl.load(x, [r, 0], [64, 256]) @ pl.load(a, [0, 0], [256, 256]))
            t = pl.relu(t @ pl.load(b, [0, 0], [256, 256]))
            pl.store(t @ pl.load(c, [0, 0], [256, 256]), [r, 0], y)


_W = pto.spec((256, 256), pl.f32)
KERNELS: dict[str, tuple[Any, tuple[Any, ...], tuple[tuple[int, ...], ...]]] = {  # with the shapes that are run
    "softmax": (rows.softmax, (_M, _M), ((ROWS, 256),) * 2),
    "layer_norm": (rows.layer_norm, (_M, _V, _V, _M), ((ROWS, 256), (256,), (256,), (ROWS, 256))),
    "silu_mul": (elementwise.silu_mul, (_M,) * 3, ((ROWS, 256),) * 3),
    "matmul_bias_gelu": (matrix.matmul_bias_gelu_tiled, (_M, _W, _V, _M),
                         ((128, 256), (256, 256), (256,), (128, 256))),
    "mlp": (mlp, (_M, _W, _W, _W, _M), ((ROWS, 256), *((256, 256),) * 3, (ROWS, 256))),
    "attention": (attention.attention, (_HEADS,) * 4, ((1, 256, 64),) * 4),
}  # fmt: skip
PASSES = ("fused", "coalesced", "reuse")
"""What is left out: grouping of tile operations, products that add up in place, memory that is used again."""


# -- the c and neon targets -------------------------------------------------------------------------------------------


@contextmanager
def _without(name: str | None) -> Iterator[Sequence[tuple[str, Any]]]:
    """The pipeline without a pass; "reuse": buffers are never given back."""
    give = Arena.give
    if name == "reuse":
        Arena.give = lambda self, start, size: None  # type: ignore[method-assign]
    try:
        yield [p for p in PIPELINE if p[0] != name]
    finally:
        Arena.give = give  # type: ignore[method-assign]


def source_of(kernel: str, without: str | None, target: str = "c") -> Any:
    """The C of a kernel."""
    fn, specs, _ = KERNELS[kernel]
    lowered = fn.compile(*specs, target="c")._lowered()
    stages = Stages()
    stages.modules["source"] = lowered.modules["source"]
    options = Options(target=target)
    with _without(without) as passes:
        run_passes(stages, passes, options)
        if "fused" not in stages.modules:
            stages.modules["fused"] = stages.modules["coalesced"]
        return source_kernel.write_stages(stages, options)


def scratch(source: Any) -> int:
    """Bytes of scratch memory that the functions of a C program take, where their extents are constant."""
    sizes = re.findall(r"pto_scratch_push\([^,]*, (?:INT64_C\()?(\d+)", _text(source))
    return sum(int(n) for n in sizes)


def _own(name: str) -> bool:
    """Whether a file is code of the program, not of the run-time library."""
    return name.endswith(".c") and not name.startswith("runtime/")


def _text(source: Any) -> str:
    from pto_jit.targets.c.written import written_files

    return "\n".join(text for name, text in written_files(source).items() if _own(name))


_MAIN = """\
#include <stdlib.h>
#include "{name}.h"
int main(int argc, char **argv) {{
  pto_options options;
  pto_options_default(&options);
  options.num_threads = 1;
  pto_runtime *runtime = NULL;
  if (argc != 2 || pto_runtime_create(&options, &runtime) != PTO_OK) return 1;
{tensors}
  const int64_t arguments[] = {{{arguments}}};
  int64_t results[1] = {{0}};
  pto_failure failure;
  for (int k = atoi(argv[1]); k > 0; --k)
    if (pto_launch(runtime, pto_entry_{name}, arguments, results, NULL, 0, &failure) != PTO_OK) return 2;
  return 0;
}}
"""


CALLS = """\
// PTO Module: doubled
// Entry: @doubled

// Function Type: InCore
func @row(%x: !pto.memref<gm,?x?,f32>, %y: !pto.memref<gm,?x?,f32>, %r: i64) {
  %t = tload %x[%r, 0] [1, 16] : !pto.tile<1x16xf32>
  %u = tmul %t, 2.0:f32 : !pto.tile<1x16xf32>
  tstore %u, %y[%r, 0]
  return
}

// Function Type: InCore
func @doubled(%x: !pto.memref<gm,?x?,f32>, %y: !pto.memref<gm,?x?,f32>) {
  %n = sdim %x {axis=0} : i64
  FOR %r:idx, 0:idx, %n:idx, 1:idx
    CALL @row(%x -> %x, %y -> %y, %r -> %r)
  ENDFOR
  return
}
"""
CALLS_SHAPES = ((ROWS, 16),) * 2


def source_of_calls(inlined: bool) -> Any:
    """The C of a written module whose loop calls a function for each row, with its body in the loop or not."""
    stages, options = Stages(), Options(target="c")
    stages.modules["source"] = parse(CALLS, infer=infer)
    run_passes(stages, (*(WRITTEN if inlined else WRITTEN[1:]), *PIPELINE), options)
    return source_kernel.write_stages(stages, options)


def executed(source: Any, shapes: Sequence[tuple[int, ...]]) -> int | None:
    """Instructions of one launch on one thread, counted by callgrind; None without valgrind."""
    if not shutil.which("valgrind"):
        return None
    tensors, arguments = [], []
    for k, shape in enumerate(shapes):
        count, step = 1, [4]
        for extent in shape:
            count *= extent
        for extent in shape[:0:-1]:
            step.insert(0, step[0] * extent)
        tensors.append(f"  float *t{k} = malloc({count * 4});\n  for (int i = 0; i < {count}; ++i) t{k}[i] = 0.001f * (i % 999);")
        arguments += [f"(int64_t)t{k}", *map(str, shape), *map(str, step)]
    with tempfile.TemporaryDirectory() as directory:
        files = _write(source, Path(directory))
        main = _MAIN.format(name=source.stem, tensors="\n".join(tensors), arguments=", ".join(arguments))
        (Path(directory) / "main.c").write_text(main)
        flags = [*_FLAGS, "-march=x86-64-v3", "-w", "-I.", "-Iruntime"]  # what valgrind knows
        subprocess.run(["cc", *flags, "main.c", *files, _runtime(directory, flags), "-o", "main", "-lm", "-pthread"],
                       cwd=directory, check=True)  # fmt: skip
        counts = []
        for launches in ("1", "3"):
            said = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "./main", launches],
                                  cwd=directory, check=True, capture_output=True, text=True).stderr  # fmt: skip
            counts.append(int(re.findall(r"Collected : (\d+)", said)[0]))
    return (counts[1] - counts[0]) // 2


_FLAGS = "-std=c11 -O3 -ffp-contract=off -fwrapv -fno-strict-aliasing -fno-math-errno -fno-trapping-math".split()
_built: dict[str, str] = {}


def _runtime(directory: str, flags: Sequence[str]) -> str:
    """The run-time library, compiled once."""
    if "runtime" not in _built:
        out = _built["runtime"] = tempfile.mkdtemp()
        for path in sorted(Path(directory, "runtime").glob("*.c")):
            subprocess.run(["cc", *flags, "-c", str(path), "-o", f"{out}/{path.stem}.o"], cwd=directory, check=True)
        subprocess.run(["ar", "rcs", "runtime.a", *(p.name for p in Path(out).glob("*.o"))], cwd=out, check=True)
    return f"{_built['runtime']}/runtime.a"


def _write(source: Any, directory: Path) -> list[str]:
    """The files of a program; the names of those that are its own code."""
    from pto_jit.targets.c.written import written_files

    own = []
    for name, text in written_files(source).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if _own(name):
            own.append(name)
    return own


def static_neon(kernel: str, without: str | None) -> tuple[int, int] | None:
    """Instructions of the kernel's own functions for AArch64, and how many of them touch memory; None without gcc."""
    if not shutil.which("aarch64-linux-gnu-gcc"):
        return None
    with tempfile.TemporaryDirectory() as directory:
        objects = _write(source_of(kernel, without, "neon"), Path(directory))
        listing = ""
        for name in objects:
            command = ["aarch64-linux-gnu-gcc", *_FLAGS, "-fopenmp-simd", "-march=armv8.2-a", "-I.", "-Iruntime",
                       "-S", name, "-o", "-"]  # fmt: skip
            listing += subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True).stdout
    instructions = re.findall(r"^\t([a-z]\w*)", listing, flags=re.MULTILINE)
    return len(instructions), sum(i.startswith(("ld", "st")) for i in instructions)


# -- ascend -----------------------------------------------------------------------------------------------------------


def ascend_form(kernel: str) -> list[KernelForm]:
    fn, specs, _ = KERNELS[kernel]
    return ascend.compile_module(fn.compile(*specs, target="ascend")._lowered().modules["expanded"]).kernels


def unified_buffer(forms: Sequence[KernelForm]) -> tuple[int, int]:
    """Bytes of the unified buffer: as placed, and if no two buffers shared memory."""
    used = apart = 0
    for form in forms:
        if form.core == "vector":
            touched = [b for n in walk(form.body) if isinstance(n, Instruction) for b, _ in accesses(n)]
            buffers = {b for b in touched if isinstance(b, Buffer) and b is not RESERVED}
            used += max((b.address or 0) + b.size * b.copies for b in buffers)
            apart += sum(b.size * b.copies for b in buffers)
    return used, apart


def instructions_per_row(forms: Sequence[KernelForm], step: str | None = None) -> float:
    """Instructions of the innermost loops of vector kernels for one row."""
    count = 0.0
    for form in forms:
        loops = [n for n in walk(form.body) if isinstance(n, Loop) and not any(isinstance(i, Loop) for i in n.body)]
        for loop in loops:
            size = int(loop.step) if loop.step.isdigit() else 1
            count += sum(isinstance(n, Instruction) for n in walk(loop.body)) / size
    return count


def ascend_by_rows(kernel: str) -> tuple[float, float]:
    """Instructions per row with blocks of rows, and without."""
    after = instructions_per_row(ascend_form(kernel))
    block = ascend.block_rows
    ascend.block_rows = lambda func, size: func  # type: ignore[assignment]
    try:
        return after, instructions_per_row(ascend_form(kernel))
    finally:
        ascend.block_rows = block


# -- operations apart and together: what fusion is on a device ---------------------------------------------------------


@pto.jit
def softmax_apart(x: pl.Tensor, top: pl.Tensor, e: pl.Tensor, total: pl.Tensor, y: pl.Tensor):
    """The softmax of rows with a kernel for each operation, as a library of operations has it."""
    n = x.shape[0]
    with pl.incore():
        for r in pl.range(0, n, parallel=True):
            pl.store(pl.max(pl.load(x, [r, 0], [1, 256]), axis=1, keepdims=True), [r, 0], top)
        for r in pl.range(0, n, parallel=True):
            pl.store(pl.load(x, [r, 0], [1, 256]) - pl.load(top, [r, 0], [1, 1]), [r, 0], e)
        for r in pl.range(0, n, parallel=True):
            pl.store(pl.exp(pl.load(e, [r, 0], [1, 256])), [r, 0], e)
        for r in pl.range(0, n, parallel=True):
            pl.store(pl.sum(pl.load(e, [r, 0], [1, 256]), axis=1, keepdims=True), [r, 0], total)
        for r in pl.range(0, n, parallel=True):
            pl.store(pl.load(e, [r, 0], [1, 256]) / pl.load(total, [r, 0], [1, 1]), [r, 0], y)


@pto.jit
def softmax_together(x: pl.Tensor, y: pl.Tensor):
    """The same as one kernel."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], parallel=True):
            t = pl.load(x, [r, 0], [1, 256])
            e = pl.exp(t - pl.max(t, axis=1, keepdims=True))
            pl.store(e / pl.sum(e, axis=1, keepdims=True), [r, 0], y)


@pto.jit
def silu_mul_apart(x: pl.Tensor, y: pl.Tensor, s: pl.Tensor, out: pl.Tensor):
    n = x.shape[0]
    with pl.incore():
        for r in pl.range(0, n, parallel=True):
            pl.store(pl.sigmoid(pl.load(x, [r, 0], [1, 256])), [r, 0], s)
        for r in pl.range(0, n, parallel=True):
            pl.store(pl.load(x, [r, 0], [1, 256]) * pl.load(s, [r, 0], [1, 256]), [r, 0], s)
        for r in pl.range(0, n, parallel=True):
            pl.store(pl.load(s, [r, 0], [1, 256]) * pl.load(y, [r, 0], [1, 256]), [r, 0], out)


@pto.jit
def silu_mul_together(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], parallel=True):
            pl.store(pl.silu(pl.load(x, [r, 0], [1, 256])) * pl.load(y, [r, 0], [1, 256]), [r, 0], out)


_COLUMN = pto.spec((None, 1), pl.f32)
PAIRS: dict[str, tuple[Any, tuple[Any, ...], Any, tuple[Any, ...]]] = {
    "softmax": (softmax_apart, (_M, _COLUMN, _M, _COLUMN, _M), softmax_together, (_M, _M)),
    "silu_mul": (silu_mul_apart, (_M,) * 4, silu_mul_together, (_M,) * 3),
}


def moved(fn: Any, specs: Sequence[Any]) -> int:
    """Bytes between global memory and a core for each row, from the loads and stores of the program."""
    total = 0
    for func in fn.compile(*specs, target="ascend")._lowered().modules["source"].funcs:
        for s in statements(func.body):
            if isinstance(s, Op) and s.op in ("load", "store"):
                tile = s.results[0].type if s.op == "load" else s.args[0].type
                size = tile.dtype.bytes  # type: ignore[union-attr]
                for extent in tile.shape:  # type: ignore[union-attr]
                    size *= extent or 1
                total += size
    return total


def ascend_pair(fn: Any, specs: Sequence[Any]) -> tuple[int, int, float]:
    """Kernels, bytes moved and instructions for each row."""
    forms = ascend.compile_module(fn.compile(*specs, target="ascend")._lowered().modules["expanded"]).kernels
    return len(forms), moved(fn, specs), instructions_per_row(forms)


def cuda_ptx(fn: Any, specs: Sequence[Any]) -> tuple[int, int] | None:
    """PTX instructions of a program's kernels, and how many of them touch global memory; None without nvcc."""
    if not shutil.which("nvcc"):
        return None
    sources = fn.compile(*specs, target="cuda").sources
    commands = [line.split() for line in sources["README.md"].splitlines() if line.startswith("nvcc ")]
    found: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        for name, text in sources.items():
            (Path(directory) / name).write_text(text)
        for command in commands:
            ptx = ["-ptx" if word == "-cubin" else word for word in command]
            subprocess.run(ptx, cwd=directory, check=True, capture_output=True)
            text = (Path(directory) / ptx[ptx.index("-o") + 1]).read_text()
            found += re.findall(r"^\t(?:@!?%p\d+ )?([a-z][a-z0-9.]*)[^;{]*;$", text, flags=re.MULTILINE)
    return len(found), sum(i.startswith(("ld.global", "st.global")) for i in found)


# -- tables -----------------------------------------------------------------------------------------------------------


def main() -> None:
    print("| kernel | left out | c: executed | c: scratch bytes | neon: instructions | of them loads and stores |")
    print("|---|---|---|---|---|---|")
    for kernel in KERNELS:
        for without in (None, *PASSES):
            neon = static_neon(kernel, without) or ("", "")
            source = source_of(kernel, without)
            print(f"| {kernel} | {without or '-'} | {executed(source, KERNELS[kernel][2])} | {scratch(source)} | {neon[0]} | {neon[1]} |", flush=True)  # fmt: skip
    for inlined in (True, False):
        source = source_of_calls(inlined)
        print(f"| doubled | {'-' if inlined else 'inlined'} | {executed(source, CALLS_SHAPES)} | {scratch(source)} | | |")
    devices()


def devices() -> None:
    print("\n| kernel | unified buffer, bytes | without reuse | instructions per row | without blocks of rows |")
    print("|---|---|---|---|---|")
    for kernel in KERNELS:
        used, apart = unified_buffer(ascend_form(kernel))
        after, before = ascend_by_rows(kernel)
        print(f"| {kernel} | {used} | {apart} | {after:.2f} | {before:.2f} |")
    print("\n| program | kernels | bytes moved per row | ascend: instructions per row | cuda: PTX instructions | of them global |")
    print("|---|---|---|---|---|---|")
    for name, (apart_fn, apart_specs, one, specs) in PAIRS.items():
        for what, fn, given in (("apart", apart_fn, apart_specs), ("one kernel", one, specs)):
            count, size, per_row = ascend_pair(fn, given)
            ptx = cuda_ptx(fn, given) or ("", "")
            print(f"| {name}, {what} | {count} | {size} | {per_row:.2f} | {ptx[0]} | {ptx[1]} |", flush=True)


if __name__ == "__main__":
    main()
