# SPDX-License-Identifier: MIT
"""`python -m pto_jit emit`: written directories and libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from pto_jit.commands import main
from pto_jit.targets.c import library
from tests.targets.c.harness import needs_compiler

KERNELS = """
from __future__ import annotations
import pto_jit as pto
import pto_jit.language as pl

M = pl.dynamic("M")

@pto.jit
def softmax(x: pl.Tensor, y: pl.Tensor):
    rows, cols = x.shape
    with pl.incore():
        for r in pl.range(0, rows, chunk=64):
            t = pl.load(x, [r, 0], [1, 256])
            e = pl.exp(t - pl.max(t, axis=1, keepdims=True))
            pl.store(e / pl.sum(e, axis=1, keepdims=True), [r, 0], y)

@pto.jit
def scaled(x: pl.Tensor[[M, 64], pl.f32], y: pl.Tensor[[M, 64], pl.f32], s: float, width: pl.constexpr = 4):
    for r in pl.range(0, x.shape[0], chunk=width):
        pl.store(pl.load(x, [r, 0], [1, 64]) * s, [r, 0], y)

@pto.incore
def twice(t):
    return t + t

class Layer:
    def __init__(self, factor):
        self.factor = factor

    @pto.jit
    def forward(self, x: pl.Tensor, y: pl.Tensor):
        y[...] = x[...] * self.factor

    @staticmethod
    @pto.jit
    def backward(x: pl.Tensor[[M], pl.f32], y: pl.Tensor[[M], pl.f32]):
        y[...] = x[...]

layer = Layer(2.5)
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    return path


@pytest.mark.parametrize(
    ("target", "directory", "files"),
    [
        ("c", "output_c", ["softmax_incore_0.c", "softmax_orchestration.c", "softmax.h", "softmax.pto", "README.md"]),
        ("neon", "output_arm64", ["softmax_incore_0.c", "pto_neon.h", "runtime/pto_runtime.h", "README.md"]),
        ("cuda", "output_cuda", ["softmax_incore_0.cu", "softmax.pto", "README.md"]),
        ("cpu", "output_cpu", ["softmax.ll", "softmax.pto", "README.md"]),
    ],
)
def test_a_kernel_is_written_for_a_target(
    target: str, directory: str, files: list[str], file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["emit", "kernels.py:softmax", "x=?x?xf32", "y=?x?xf32", "--target", target, "--out", "build"]) == 0
    root = file.parent / "build" / directory / "softmax"
    assert all((root / name).is_file() for name in files)
    assert sorted(capsys.readouterr().out.split()) == sorted(
        str(p.relative_to(file.parent)) for p in root.rglob("*") if p.is_file()
    )


@needs_compiler
def test_the_readme_of_the_cpu_target_makes_a_library(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_RUNTIME_FLAGS", ("-std=c11", "-O0", "-fPIC", "-pthread"))  # sooner compiled
    assert main(["emit", "kernels.py:softmax", "x=?x?xf32", "y=?x?xf32", "--target", "cpu"]) == 0
    monkeypatch.chdir("output_cpu/softmax")
    (line,) = [t for t in Path("README.md").read_text().splitlines() if t.startswith("python -m pto_jit ")]
    assert main(line.split()[3:]) == 0
    assert Path("output_cpu/softmax/libsoftmax.a").is_file()
    assert "int32_t softmax_launch(" in Path("output_cpu/softmax/softmax.h").read_text()


MODULE = """
func @twice(%x: !pto.memref<gm,8x8,f32>, %y: !pto.memref<gm,8x8,f32>) {
  %t = tload %x[0, 0] [8, 8] : !pto.tile<8x8xf32>
  %t = tadd %t, %t : !pto.tile<8x8xf32>
  tstore %t, %y[0, 0]
  return
}
"""


def test_modules_are_written_from_their_text_and_from_python(file: Path) -> None:
    Path("doubling.pto").write_text(f"// PTO Module: doubling\n{MODULE}")
    assert main(["emit", "doubling.pto", "--target", "neon"]) == 0
    assert "vaddq_f32" in Path("output_arm64/doubling/twice.c").read_text()
    assert main(["emit", "doubling.pto:twice", "--target", "cuda"]) == 0
    assert Path("output_cuda/doubling/twice.cu").is_file()
    file.write_text(f"import pto_jit\nm = pto_jit.parse_pto({MODULE!r})\n")
    assert main(["emit", "kernels.py:m", "--target", "c", "--out", "build"]) == 0
    assert list(Path("build/output_c").glob("*/twice.c"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.pto"], "there is no file nothing.pto"),
        (["doubling.pto:thrice"], "has no function `thrice`\nhelp: its functions are twice"),
        (["doubling.pto", "x=1"], "functions of modules declare their types"),
    ],
)
def test_what_is_wrong_with_a_module_is_said(
    arguments: list[str], message: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file.parent / "doubling.pto").write_text(MODULE)
    assert main(["emit", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_an_annotation_that_says_nothing_leaves_its_argument_to_be_given(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("import pto_jit\n\n@pto_jit.jit\ndef k(x, n: {}):\n    x[0] = n\n")
    assert main(["emit", "kernels.py:k", "x=?xf32"]) == 1
    assert "`n` of `k` is not given" in capsys.readouterr().err


def test_annotations_and_values_say_what_arguments_are(file: Path) -> None:
    assert main(["emit", "kernels.py:scaled"]) == 0
    text = Path("output_c/scaled/scaled.pto").read_text()
    assert "%x: !pto.memref<gm,?x64,f32>" in text and "%s: f64" in text
    assert main(["emit", "kernels.py:scaled", "width=8", "--out", "wide"]) == 0
    assert text != Path("wide/output_c/scaled/scaled.pto").read_text()


@pytest.mark.parametrize("target", ["c", "cuda", "ascend"])
def test_a_method_of_an_object_is_written(target: str, file: Path) -> None:
    assert main(["emit", "kernels.py:layer.forward", "x=?xf32", "y=?xf32", "--target", target]) == 0
    (text,) = (p.read_text() for p in Path().glob("output_*/forward/forward.pto"))
    assert "2.5" in text
    assert main(["emit", "kernels.py:Layer.backward", "--target", target]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.py:f"], "there is no file nothing.py"),
        (["kernels.py"], "'kernels.py' is not FILE.py:FUNCTION"),
        (["kernels.py:softmux"], "has no kernel `softmux`\nhelp: its kernels are softmax, scaled"),
        (["kernels.py:Layer.forward", "x=?xf32", "y=?xf32"], "`Layer.forward` is a method, which is compiled for an object\n"
         "help: make one in kernels.py, `model = Layer(...)`, and give kernels.py:model.forward"),
        (["kernels.py:layer.forward", "x=?xf32"], "`y` of `forward` is not given"),
        (["kernels.py:layer.forward", "self=1"], "`forward` has no parameter `self`\nhelp: they are x, y"),
        (["kernels.py:twice"], "`twice` is an in-core function\nhelp: give a @pto.jit function that calls it"),
        (["kernels.py:softmax"], "`x` of `softmax` is not given"),
        (["kernels.py:softmax", "x=?x?xf32", "x=?x?xf64"], "`x` is given twice"),
        (["kernels.py:softmax", "x=9223372036854775808xf32"], "9223372036854775808 is not an extent"),
        (["softmax"], "'softmax' is not FILE.py:FUNCTION\nhelp: as kernels.py:softmax"),
        (["kernels.py:softmax", "x=?x?xf31", "y=1"], "is neither a tensor nor a value"),
        (["kernels.py:softmax", "x={[]}", "y=1"], "x='{[]}' is neither a tensor nor a value"),
        (["kernels.py:softmax", f"x={'9' * 5000}xf32", "y=1"], "9xf32' is neither a tensor nor a value"),
        (["kernels.py:softmax", "x=f32", "z=1"], "`softmax` has no parameter `z`"),
        (["kernels.py:scaled", "--target", "abacus"], "unknown target 'abacus'"),
        (["kernels.py:scaled", "x=?x?xf32", "y=?x?xf32", "--out", "kernels.py"],
         "cannot be written: "),
    ],
)
def test_what_is_wrong_is_said(
    arguments: list[str], message: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["emit", *arguments]) == 1
    assert message in capsys.readouterr().err


@needs_compiler
def test_a_library_has_the_name_that_is_given(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(library, "_RUNTIME_FLAGS", ("-std=c11", "-O0", "-fPIC", "-pthread"))  # sooner compiled
    assert main(["emit", "kernels.py:softmax", "x=?x?xf64", "y=?x?xf64", "--library", "static", "--name", "norm"]) == 0
    assert Path("output_c/norm/libnorm.a").is_file()
    assert "int32_t norm_launch(" in Path("output_c/norm/norm.h").read_text()
    assert main(["emit", "kernels.py:softmax", "x=?x?xf64", "y=?x?xf64", "--name", "two words"]) == 1
    assert "name='two words' is not a name" in capsys.readouterr().err


COMPREHENSIONS = """
import pto_jit as pto
import pto_jit.language as pl

N, K = pl.dynamic("N"), pl.dynamic("K")

@pto.comprehension
def conv1d(x: pl.Tensor[[N], pl.f32], w: pl.Tensor[[K], pl.f32]):
    y[i] = pl.sum(x[i + k] * w[k])
    return y

several = pto.comprehension('''
def matmul(float(M, K) A, float(K, N) B) -> (C) { C(i, j) +=! A(i, k) * B(k, j) }
def scaled(float(N) A, float s, int32 n) -> (C) { C(i) = A(i) * s + float(n) }
def total(float(N) A, float C) -> (C) { C += A(i) }
''')
strided = pto.comprehension("def strided(float(N) A, int32 s) -> (C) { C(i) +=! A(i * s + k) where k in 0:2 }")
"""


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("conv1d", []), ("several.matmul", []), ("several.scaled", []), ("several.scaled", ["s=2.0", "A=8xf32"]),
     ("several.total", []), ("strided", ["s=2"])],
)  # fmt: skip
def test_a_comprehension_declares_its_arguments(name: str, arguments: list[str], file: Path) -> None:
    (file.parent / "sums.py").write_text(COMPREHENSIONS)
    assert main(["emit", f"sums.py:{name}", *arguments]) == 0
    label = name.rpartition(".")[2]
    assert (file.parent / "output_c" / label / f"{label}.h").is_file()


def test_a_comprehension_whose_program_depends_on_an_argument(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file.parent / "sums.py").write_text(COMPREHENSIONS)
    assert main(["emit", "sums.py:strided"]) == 1
    assert "`s` of `strided` is not given" in capsys.readouterr().err
    assert main(["emit", "sums.py:conv1d.y"]) == 1
    assert "its kernels are conv1d, strided, several.matmul, several.scaled, several.total" in capsys.readouterr().err
