# SPDX-License-Identifier: MIT
"""Machine code of built and written modules between processes: found when the program is the same, and only then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
from pto_jit.modules import CompiledModule

X = np.arange(32, dtype=np.float32).reshape(4, 8)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pto.config, "cache_dir", tmp_path / "cache")


def scale(factor: float = 2.0, helper: str = "exp", name: str = "scale", lines: int = 0) -> str:
    """A program of an orchestration that calls an in-core function."""
    return "\n" * lines + f"""\
// Function Type: InCore
func @work(%x: !pto.memref<gm,4x8,f32>, %y: !pto.memref<gm,4x8,f32>) {{
    %t = alloc_tile : !pto.tile<4x8xf32>
    %u = alloc_tile : !pto.tile<4x8xf32>
    %t = tload %x[0, 0] : !pto.tile<4x8xf32>
    %u = tmuls %t, {factor} : !pto.tile<4x8xf32>
    %u = t{helper} %u : !pto.tile<4x8xf32>
    tstore %u, %y[0, 0]
    return
}}

// Function Type: Orchestration
func @{name}(%x: !pto.memref<gm,4x8,f32>, %y: !pto.memref<gm,4x8,f32>) {{
    CALL @work(%x -> %x, %y -> %y)
    return
}}
"""


def compiled(text: str, **options: Any) -> CompiledModule:
    return pto.parse_pto(text).compile(**options)


def origin(module: CompiledModule, name: str = "scale", x: np.ndarray = X, factor: float = 2.0) -> str:
    """Where the code of the call came from; the call is checked."""
    y = np.zeros((4, 8), np.float32)
    module[name](x, y)
    np.testing.assert_allclose(y, np.exp(x * np.float32(factor)), rtol=1e-5)
    return list(module[name]._versions.values())[-1].built.origin  # pyright: ignore[reportPrivateUsage]


def test_the_same_program_is_found_whatever_is_above_it() -> None:
    small = X / 32
    assert origin(compiled(scale()), x=small) == "compiled"
    assert origin(compiled(scale()), x=small) == "disk"
    assert origin(compiled(scale(lines=7)), x=small) == "disk"


def test_what_is_not_the_same_is_not_found() -> None:
    small = X / 32
    assert origin(compiled(scale()), x=small) == "compiled"
    assert origin(compiled(scale(0.5)), x=small, factor=0.5) == "compiled"  # in the function that is called
    assert origin(compiled(scale(name="other")), "other", small) == "compiled"
    assert origin(compiled(scale(), debug=True), x=small) == "compiled"
    assert origin(compiled(scale(), fastmath=True), x=small) == "compiled"
    assert origin(compiled(scale()), x=np.asfortranarray(small)) == "compiled", "another layout"
    assert origin(compiled(scale()), x=np.asfortranarray(small)) == "disk"
    assert origin(compiled(scale(), cache=False), x=small) == "compiled", "not asked for"
    y = np.zeros((4, 8), np.float32)
    compiled(scale(helper="abs"))["scale"](-X, y)
    np.testing.assert_array_equal(y, 2 * X)


def test_a_setting_that_the_code_depends_on_makes_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    module = compiled(scale())
    assert origin(module, x=X / 32) == "compiled"
    monkeypatch.setattr(pto.config, "debug", True)
    assert origin(module, x=X / 32) == "compiled"
    assert len(module["scale"]._versions) == 2  # pyright: ignore[reportPrivateUsage]


def test_a_damaged_entry_is_compiled_again(tmp_path: Path) -> None:
    assert origin(compiled(scale()), x=X / 32) == "compiled"
    for entry in (tmp_path / "cache").rglob("*.pto"):
        data = bytearray(entry.read_bytes())
        data[len(data) // 2] ^= 1
        entry.write_bytes(data)
    assert origin(compiled(scale()), x=X / 32) == "compiled"
    assert origin(compiled(scale()), x=X / 32) == "disk"


FAILING = """\
func @pick(%x: !pto.memref<gm,?x?,f32>, %y: !pto.memref<gm,?x?,f32>, %i: i64) {
    %t = alloc_tile : !pto.tile<1x8xf32>
    %t = tload %x[%i, 0] : !pto.tile<1x8xf32>
    tstore %t, %y[0, 0]
    return
}
"""


def test_a_failure_is_told_at_the_line_where_the_program_is_now(tmp_path: Path) -> None:
    y = np.zeros((1, 8), np.float32)
    for k, lines in enumerate((0, 5)):
        path = tmp_path / f"pick{k}.pto"
        path.write_text("\n" * lines + FAILING)
        function = pto.load_pto(str(path)).compile()["pick"]
        function(X, y, 3)
        np.testing.assert_array_equal(y, X[3:])
        version = next(iter(function._versions.values()))  # pyright: ignore[reportPrivateUsage]
        assert version.built.origin == ("disk" if k else "compiled")
        with pytest.raises(pto.BoundsError) as raised:
            function(X, y, -1)
        assert f"pick{k}.pto:{lines + 3}" in str(raised.value), raised.value


def test_looking_inside_and_task_graphs_do_without_stages_on_disk() -> None:
    small = np.asfortranarray(X / 32)
    origin(compiled(scale()), x=small)
    function = compiled(scale())["scale"]
    y = np.zeros((4, 8), np.float32)
    graph = function.task_graph(small, y)
    assert next(iter(function._versions.values())).built.origin == "disk"  # pyright: ignore[reportPrivateUsage]
    assert graph.num_tasks == 1 and not y.any()
    graph.run()
    np.testing.assert_allclose(y, np.exp(2 * small), rtol=1e-5)
    assert "source" in function.stages and "@work" in function.ir("source")
    assert function.decisions is not None
