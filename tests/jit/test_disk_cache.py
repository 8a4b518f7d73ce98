# SPDX-License-Identifier: MIT
"""Compiled code between processes: found when it is the same, never when anything is not."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.cache import DiskCache, build_id, disk_cache

X = np.arange(5, dtype=np.float32)
SOURCE = """
import numpy as np
import pto_jit as pto
import pto_jit.language as pl

SCALE = 2.0

def helper(x):
    return x * SCALE

def unused(x):
    return x

def outer(n):
    @pto.jit
    def kernel(x):
        return helper(x) + n
    return kernel

kernel = outer(3)

@pto.jit
def failing(x, i: int):
    t = pl.load(x, [i], [2])
    return pl.sum(t)
"""


def load(directory: Path, text: str) -> types.ModuleType:
    """The module with this text, as another process would import it."""
    directory.mkdir(exist_ok=True)
    path = directory / f"kernels_{len(list(directory.glob('*.py')))}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("kernels_of_this_test", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def origin(kernel: pto.JitFunction, *args: object) -> str:
    kernel(*args)
    return kernel.specializations()[-1].origin


def test_the_same_content_is_found_wherever_it_stands(tmp_path: Path) -> None:
    assert origin(load(tmp_path / "m", SOURCE).kernel, X) == "compiled"
    assert origin(load(tmp_path / "m", SOURCE).kernel, X) == "disk"
    moved = load(tmp_path / "m", "# a line\n\n" + SOURCE.replace("def helper(x):", "def helper(x):  # a comment"))
    assert origin(moved.kernel, X) == "disk"
    np.testing.assert_array_equal(moved.kernel(X), X * 2 + 3)
    assert (
        origin(load(tmp_path / "m", SOURCE.replace("unused(x):\n    return x", "unused(x):\n    return -x")).kernel, X)
        == "disk"
    )


@pytest.mark.parametrize(
    ("old", "new", "result"),
    [
        ("SCALE = 2.0", "SCALE = 4.0", X * 4 + 3),
        ("return x * SCALE", "return x / SCALE", X / 2 + 3),
        ("outer(3)", "outer(5)", X * 2 + 5),
        ("outer(3)", "outer(3.0)", X * 2 + 3),
        ("helper(x) + n", "helper(x) - n", X * 2 - 3),
    ],
)
def test_an_edited_helper_constant_or_captured_value_is_compiled_again(
    tmp_path: Path, old: str, new: str, result: np.ndarray
) -> None:
    load(tmp_path / "m", SOURCE).kernel(X)
    edited = load(tmp_path / "m", SOURCE.replace(old, new))
    assert edited.__dict__["kernel"].specializations() == []
    np.testing.assert_array_equal(edited.kernel(X), result)
    assert edited.kernel.specializations()[0].origin == "compiled"


def test_an_edited_module_that_is_used_by_name_is_compiled_again(tmp_path: Path) -> None:
    text = (
        "import pto_jit as pto\nimport kernel_settings\n\n@pto.jit\ndef kernel(x):\n    return x * kernel_settings.F\n"
    )
    for factor, expected in ((2, "compiled"), (3, "compiled"), (2, "disk")):
        settings = types.ModuleType("kernel_settings")
        settings.__dict__["F"] = factor
        sys.modules["kernel_settings"] = settings
        try:
            module = load(tmp_path / "m", text)
        finally:
            del sys.modules["kernel_settings"]
        np.testing.assert_array_equal(module.kernel(X), X * factor)
        assert module.kernel.specializations()[0].origin == expected


def test_flags_and_argument_kinds_have_entries_of_their_own(settings: Path) -> None:
    kernel = pto.jit(lambda x: pl.sum(x))
    for options in ({}, {"debug": True}, {"fastmath": True}):
        kernel.compile(X, **options)
    kernel.compile(X.astype(np.float64))
    kernel.compile(X[::2])
    assert len(list(settings.rglob("*.pto"))) == 5
    pto.config.debug = True
    again = pto.jit(lambda x: pl.sum(x))
    assert again.compile(X)._kernel.info.origin == "disk"


def test_a_failure_in_code_from_disk_is_shown_where_the_source_is_now(tmp_path: Path) -> None:
    first = load(tmp_path / "m", SOURCE)
    with pytest.raises(pto.BoundsError) as caught:
        first.failing(X, -2)
    line = SOURCE.split("\n").index("    t = pl.load(x, [i], [2])") + 1
    assert f"kernels_0.py:{line}:9" in str(caught.value)
    moved = load(tmp_path / "m", "# one\n# two\n# three\n" + SOURCE)
    with pytest.raises(pto.BoundsError) as caught:
        moved.failing(X, -2)
    assert moved.failing.specializations()[0].origin == "disk"
    text = str(caught.value)
    assert f"kernels_1.py:{line + 3}:9" in text and "t = pl.load(x, [i], [2])" in text


def entries(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.pto"))


@pytest.mark.parametrize("damage", ["truncated", "flipped", "emptied", "prefix", "other"])
def test_a_damaged_entry_is_never_loaded(settings: Path, damage: str) -> None:
    function = lambda x: x * 3 + 1  # noqa: E731
    pto.jit(function)(X)
    (path,) = entries(settings)
    data = path.read_bytes()
    position = len(data) * 2 // 3
    changed = {
        "truncated": data[:-1],
        "flipped": data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :],
        "emptied": b"",
        "prefix": data[:20],
        "other": b"something else entirely" * 10,
    }[damage]
    path.write_bytes(changed)
    kernel = pto.jit(function)
    np.testing.assert_array_equal(kernel(X), X * 3 + 1)
    assert kernel.specializations()[0].origin == "compiled"
    assert entries(settings)[0].read_bytes() != changed, "the entry was written again"
    assert origin(pto.jit(function), X) == "disk"


def test_the_entry_of_another_kernel_under_this_name_is_never_loaded(settings: Path) -> None:
    function = lambda x: x * 3 + 2  # noqa: E731
    pto.jit(function)(X)
    (path,) = entries(settings)
    pto.jit(lambda x: x * 9)(X)
    (other,) = (p for p in entries(settings) if p != path)
    path.write_bytes(other.read_bytes())
    kernel = pto.jit(function)
    np.testing.assert_array_equal(kernel(X), X * 3 + 2)
    assert kernel.specializations()[0].origin == "compiled"


def test_a_whole_entry_with_other_contents_counts_as_none(settings: Path) -> None:
    function = lambda x: x * 5  # noqa: E731
    pto.jit(function)(X)
    (path,) = entries(settings)
    for metadata in ([], {"a": 1}, [{"leaf": 0, "weak": False}, 0, {"entry": "x"}], "text"):
        disk_cache().store(path.stem, metadata, b"")
        kernel = pto.jit(function)
        np.testing.assert_array_equal(kernel(X), X * 5)
        assert kernel.specializations()[0].origin == "compiled"


def test_an_unusable_directory_warns_once_and_kernels_are_compiled_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    pto.config.cache_dir = tmp_path / "file" / "cache"
    with pytest.warns(RuntimeWarning, match=r"cannot be used .*Set PTO_CACHE_DIR"):
        np.testing.assert_array_equal(pto.jit(lambda x: x * 7)(X), X * 7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(pto.jit(lambda x: x * 8)(X), X * 8)


def test_nothing_is_left_of_a_write_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        cache.store("ab" * 32, {}, b"code")
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]
    assert cache.load("ab" * 32) is None


def test_what_means_something_in_this_process_only_is_not_kept(settings: Path) -> None:
    lock = __import__("threading").Lock()

    def kernel(x):
        return x + (1 if lock is not None else 2)

    np.testing.assert_array_equal(pto.jit(kernel)(X), X + 1)
    assert entries(settings) == []


def test_matrix_products_are_kept_once_for_all_kernels(settings: Path) -> None:
    a = np.eye(4, dtype=np.float32)
    script = (
        "import numpy as np, pto_jit as pto\n"
        "a = np.arange(16, dtype=np.float32).reshape(4, 4)\n"
        "k = pto.jit(lambda a, b: a @ b + {n})\n"
        "assert (k(a, a) == a @ a + {n}).all()\n"
        "print(k.specializations()[0].origin)\n"
    )
    (settings / "k").mkdir()

    def run(n: int) -> tuple[str, set[Path]]:
        path = settings / "k" / f"run{n}.py"
        path.write_text(script.format(n=n))
        done = python([str(path)], settings)
        return done.stdout.strip(), set(entries(settings))

    assert a is not None
    first, made = run(1)
    second, more = run(2)
    third, same = run(2)
    assert (first, second, third) == ("compiled", "compiled", "disk")
    assert len(made) == 2, "the kernel and the product it uses"
    assert len(more) == 3 and same == more


def python(args: list[str], cache: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(pto.__file__).parents[1])
    variables = {**os.environ, "PTO_CACHE_DIR": str(cache), "PYTHONPATH": root, **environment}
    done = subprocess.run(
        [sys.executable, *args], env=variables, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


MANY = """
import sys
import numpy as np
import pto_jit as pto

x = np.arange(100, dtype=np.float32)
def make(n):
    return pto.jit(lambda t: t * n + n)

for n in range(6):
    kernel = make(n)
    assert (kernel(x) == x * n + n).all()
print("ok")
"""


def test_several_processes_use_one_directory_at_once(settings: Path, tmp_path: Path) -> None:
    script = tmp_path / "many.py"
    script.write_text(MANY)
    root = str(Path(pto.__file__).parents[1])
    variables = {**os.environ, "PTO_CACHE_DIR": str(settings), "PYTHONPATH": root}
    processes = [
        subprocess.Popen([sys.executable, str(script)], env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    for process in processes:
        out, error = process.communicate(timeout=120)
        assert process.returncode == 0 and out.strip() == b"ok" and not error, error.decode()
    assert len(entries(settings)) == 6
    assert not [p for p in settings.rglob("*") if p.is_file() and p.suffix != ".pto"]


WARM = """
import sys
import numpy as np
import pto_jit as pto
import pto_jit.language as pl

@pto.jit
def softmax(x: pl.Tensor, y: pl.Tensor):
    rows, cols = x.shape
    with pl.incore():
        for r in pl.range(0, rows, chunk=64):
            t = pl.load(x, [r, 0], [1, cols])
            e = pl.exp(t - pl.max(t, axis=1, keepdims=True))
            pl.store(e / pl.sum(e, axis=1, keepdims=True), [r, 0], y)

x = np.ones((4, 4), np.float32)
y = np.zeros((4, 4), np.float32)
softmax(x, y)
assert (y == 0.25).all()
loaded = [m for m in ("pto_jit.codegen.compilation", "pto_jit.lower.pipeline", "pto_jit.targets.cpu.program",
                      "pto_jit.compiler", "rich") if m in sys.modules]
print(softmax.specializations()[0].origin, *loaded)
"""


def test_a_warm_start_does_without_the_compiler(settings: Path, tmp_path: Path) -> None:
    script = tmp_path / "warm.py"
    script.write_text(WARM)
    assert python([str(script)], settings).stdout.split()[0] == "compiled"
    assert python([str(script)], settings).stdout.split() == ["disk"]


def test_the_environment_names_the_directory(tmp_path: Path) -> None:
    script = tmp_path / "warm.py"
    script.write_text(WARM)
    python([str(script)], tmp_path / "chosen")
    assert len(entries(tmp_path / "chosen")) == 1


def test_the_compiler_is_the_same_where_times_are_kept_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_seconds(path: str, stat: Any = os.stat) -> Any:
        found = stat(path)
        return types.SimpleNamespace(st_size=found.st_size, st_mtime_ns=found.st_mtime_ns // 10**9 * 10**9)

    here = build_id.__wrapped__()
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", in_seconds)
        there = build_id.__wrapped__()
    assert there == here
