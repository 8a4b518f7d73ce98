# SPDX-License-Identifier: MIT
"""The tutorials compute what they say, at sizes that a test can afford."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

TUTORIALS = Path(__file__).parent.parent / "tutorials"


@pytest.fixture(scope="module")
def llama() -> ModuleType:
    spec = importlib.util.spec_from_file_location("llama7b_layer", TUTORIALS / "llama7b_layer.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_llama_layer(llama: ModuleType) -> None:
    """One compilation for every length and tile height, a last tile row that is not whole among them."""
    weights = llama.make_weights(64, 96, np.random.default_rng(1))
    for seq, rows in ((1, 32), (32, 32), (96, 32), (75, 32), (75, 16), (64, 128)):
        arguments = llama.layer_arguments(seq, weights, 2, rows)
        wanted = llama.reference(*arguments[:5])
        np.testing.assert_allclose(llama.decoder_layer(*arguments), wanted, atol=2e-5, err_msg=f"{seq} in {rows}")
        graph = llama.decoder_layer.task_graph(*arguments)
        tiles = -(-seq // rows)
        assert graph.num_tasks == 16 * tiles + 3 * tiles**2
        # norm, q, rotation, start or score, ..., the N key tiles in a chain, ..., the sum at the end
        assert graph.critical_path == 11 + 3 * tiles
    assert len([s for s in llama.decoder_layer.specializations() if s.origin == "compiled"]) <= 1


def test_the_reference_is_attention(llama: ModuleType) -> None:
    """With one head and weights that only attention sees, the layer is softmax(q k^T / sqrt(d)) v plus its input."""
    rng = np.random.default_rng(2)
    weights = llama.make_weights(8, 8, rng)
    weights.down = np.zeros_like(weights.down)
    weights.attention_norm = np.ones_like(weights.attention_norm)
    x, _, cos, sin, *_ = llama.layer_arguments(5, weights, 1)
    n = x / np.sqrt((x.astype(np.float64) ** 2).mean(axis=1, keepdims=True) + llama.EPS)

    def turned(t: np.ndarray) -> np.ndarray:  # position p turns the pair (i, i + 4) by p / 10000 ** (i / 4)
        angles = np.arange(5)[:, None] / 10000.0 ** (np.arange(4) / 4)
        pairs = (t[:, :4] + 1j * t[:, 4:]) * np.exp(1j * angles)
        return np.concatenate([pairs.real, pairs.imag], axis=1)

    scores = turned(n @ weights.q) @ turned(n @ weights.k).T / np.sqrt(8)
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        llama.reference(x, weights, cos, sin, 1), x + p @ (n @ weights.v) @ weights.o, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seq", "0"], "--seq and --rows must be positive"), (["--rows", "-1"], "--seq and --rows must be positive"),
        (["--graph", "none/layer.svg"], "argument --graph: 'none/layer.svg' is not a file in a directory that exists"),
        (["--graph", "layer.bmp"], "argument --graph: 'layer.bmp' does not end in .svg or .pdf or .png"),
        (["--trace", "run.txt"], "argument --trace: 'run.txt' does not end in .json"),
        (["--trace", "folder.json"], "argument --trace: 'folder.json' is not a file"),
    ],
)  # fmt: skip
def test_what_the_layer_cannot_write_is_said_before_it_runs(
    llama: ModuleType, words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.json").mkdir()
    monkeypatch.setattr(sys, "argv", ["llama7b_layer.py", *words])
    monkeypatch.setattr(llama, "make_weights", None)  # nothing is run
    with pytest.raises(SystemExit, match="2"):
        llama.main()
    assert said in capsys.readouterr().err
