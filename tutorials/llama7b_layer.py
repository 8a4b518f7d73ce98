# SPDX-License-Identifier: MIT
"""One LLaMA-7B decoder layer as a task graph: dynamic sequence length, tiles of 32 rows, flash attention.

The layer is an orchestration function that calls in-core functions on tile rows.  Nobody writes down a dependence:
every call becomes a task, and the run-time library orders those that touch a common element.  Per tile row there are 6
tasks before attention (RMS norm, the three projections, two rotary embeddings), 2 + 3N for flash attention over the N
key tiles (start, N times score, softmax update and value update, normalise) and 8 after it (output projection,
residual, RMS norm, gate, up, SiLU * up, down, residual): 16N + 3N^2 in all.  One compilation serves every length and
every height of the tile rows.

    python tutorials/llama7b_layer.py                      small sizes, checked against NumPy
    python tutorials/llama7b_layer.py --real --seq 512     hidden 4096, 32 heads of 128, FFN 11008
    python tutorials/llama7b_layer.py --graph layer.svg    draws the graph (needs graphviz)
    python tutorials/llama7b_layer.py --trace run.json     who ran what and when, for https://ui.perfetto.dev
    python tutorials/llama7b_layer.py --real --rows 256 --seq 512 --torch     timed beside PyTorch, when it is installed

The order of the loops is the order in which memory is read: one weight after the other, each for all tile rows, so that
workers side by side read the same weight.  Real weights are 809 MB; a tile row of 32 reads all of them for 32 rows of
arithmetic, one of 256 for 256, so tall tiles are faster where memory is slow, and short ones are many tasks.

Flash attention: T. Dao et al., "FlashAttention" (2022); the layer: H. Touvron et al., "LLaMA" (2023).
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress

import pto_jit as pto
import pto_jit.language as pl

ROWS = 32  # of a tile row, unless told
EPS = 1e-5


@dataclass
class Weights:
    """The layer's parameters, (in, out) each: x @ w."""

    attention_norm: np.ndarray  # (hidden,)
    q: np.ndarray  # (hidden, hidden)
    k: np.ndarray
    v: np.ndarray
    o: np.ndarray
    ffn_norm: np.ndarray  # (hidden,)
    gate: np.ndarray  # (hidden, ffn)
    up: np.ndarray
    down: np.ndarray  # (ffn, hidden)


# -- in-core functions: one tile row each ---------------------------------------------------------------------------


@pto.incore
def rmsnorm(x, w, out):
    t = pl.load(x)
    mean = pl.mean(t * t, axis=1, keepdims=True)
    out[...] = t * pl.rsqrt(mean + EPS) * pl.expand_dims(pl.load(w), 0)


@pto.incore
def project(x, w, out):
    out[...] = pl.load(x) @ pl.load(w)


@pto.incore
def rope(x, cos, sin, out, heads):
    width = 2 * cos.shape[1]
    half = width // 2
    c, s = pl.load(cos), pl.load(sin)
    for h in pl.range(heads):
        a = pl.load(x[:, h * width : h * width + half])
        b = pl.load(x[:, h * width + half : h * width + width])
        out[:, h * width : h * width + half] = a * c - b * s
        out[:, h * width + half : h * width + width] = a * s + b * c


@pto.incore
def attention_start(m, denom, acc):
    m[...] = pl.full([m.shape[0], m.shape[1]], -math.inf, pl.f32)
    denom[...] = pl.zeros([denom.shape[0], denom.shape[1]], pl.f32)
    acc[...] = pl.zeros([acc.shape[0], acc.shape[1]], pl.f32)


@pto.incore
def score(q, k, s, heads, scale):
    """s: the heads side by side, each as many columns as `k` has rows."""
    width, keys = q.shape[1] // heads, k.shape[0]
    for h in pl.range(heads):
        head = pl.load(q[:, h * width : (h + 1) * width])
        other = pl.load(k[:, h * width : (h + 1) * width])
        s[:, h * keys : (h + 1) * keys] = (head @ other.T) * scale


@pto.incore
def softmax_update(s, m, denom, alpha, heads):
    rows, keys = s.shape[0], s.shape[1] // heads
    for h in pl.range(heads):
        part = pl.load(s, [0, h * keys], [rows, keys])
        old = pl.load(m, [0, h], [rows, 1])
        new = pl.maximum(old, pl.max(part, axis=1, keepdims=True))
        p = pl.exp(part - new)
        a = pl.exp(old - new)
        pl.store(p, [0, h * keys], s)
        pl.store(a, [0, h], alpha)
        pl.store(pl.load(denom, [0, h], [rows, 1]) * a + pl.sum(p, axis=1, keepdims=True), [0, h], denom)
        pl.store(new, [0, h], m)


@pto.incore
def value_update(s, alpha, v, acc, heads):
    width, rows, keys = v.shape[1] // heads, s.shape[0], v.shape[0]
    for h in pl.range(heads):
        p = pl.load(s, [0, h * keys], [rows, keys])
        values = pl.load(v[:, h * width : (h + 1) * width])
        old = pl.load(acc[:, h * width : (h + 1) * width])
        acc[:, h * width : (h + 1) * width] = old * pl.load(alpha, [0, h], [rows, 1]) + p @ values


@pto.incore
def normalise(acc, denom, out, heads):
    width, rows = acc.shape[1] // heads, acc.shape[0]
    for h in pl.range(heads):
        part = pl.load(acc[:, h * width : (h + 1) * width])
        out[:, h * width : (h + 1) * width] = part / pl.load(denom, [0, h], [rows, 1])


@pto.incore
def residual(x, y, out):
    out[...] = pl.load(x) + pl.load(y)


@pto.incore
def silu_mul(gate, up, out):
    out[...] = pl.silu(pl.load(gate)) * pl.load(up)


# -- the orchestration ---------------------------------------------------------------------------------------------


@pto.jit
def decoder_layer(x, w, cos, sin, heads, scale, rows):
    """(seq, hidden) -> (seq, hidden), in tile rows of `rows`; the last one is what is left."""
    seq, hidden = x.shape
    ffn = w.gate.shape[1]
    tiles = (seq + rows - 1) // rows
    normed, attended = pl.empty([seq, hidden], pl.f32), pl.empty([seq, hidden], pl.f32)
    q, k, v = (pl.empty([seq, hidden], pl.f32) for _ in range(3))
    q_rot, k_rot = pl.empty([seq, hidden], pl.f32), pl.empty([seq, hidden], pl.f32)
    s = pl.empty([seq, heads * rows], pl.f32)
    m, denom, alpha = (pl.empty([seq, heads], pl.f32) for _ in range(3))
    acc, projected = pl.empty([seq, hidden], pl.f32), pl.empty([seq, hidden], pl.f32)
    middle, normed2, lowered = (pl.empty([seq, hidden], pl.f32) for _ in range(3))
    gate, up, product = (pl.empty([seq, ffn], pl.f32) for _ in range(3))
    out = pl.empty([seq, hidden], pl.f32)

    for t in pl.range(tiles):
        r = t * rows
        e = min(r + rows, seq)
        rmsnorm(x[r:e, :], w.attention_norm, normed[r:e, :])
    for t in pl.range(tiles):
        r = t * rows
        e = min(r + rows, seq)
        project(normed[r:e, :], w.q, q[r:e, :])
        rope(q[r:e, :], cos[r:e, :], sin[r:e, :], q_rot[r:e, :], heads)
    for t in pl.range(tiles):
        r = t * rows
        e = min(r + rows, seq)
        project(normed[r:e, :], w.k, k[r:e, :])
        rope(k[r:e, :], cos[r:e, :], sin[r:e, :], k_rot[r:e, :], heads)
    for t in pl.range(tiles):
        r = t * rows
        e = min(r + rows, seq)
        project(normed[r:e, :], w.v, v[r:e, :])
    for t in pl.range(tiles):
        r = t * rows
        e = min(r + rows, seq)
        attention_start(m[r:e, :], denom[r:e, :], acc[r:e, :])
        for u in pl.range(tiles):
            b = u * rows
            f = min(b + rows, seq)
            part = s[r:e, 0 : heads * (f - b)]
            score(q_rot[r:e, :], k_rot[b:f, :], part, heads, scale)
            softmax_update(part, m[r:e, :], denom[r:e, :], alpha[r:e, :], heads)
            value_update(part, alpha[r:e, :], v[b:f, :], acc[r:e, :], heads)
        normalise(acc[r:e, :], denom[r:e, :], attended[r:e, :], heads)
    for t in pl.range(tiles):
        r = t * rows
        e = min(r + rows, seq)
        project(attended[r:e, :], w.o, projected[r:e, :])
        residual(x[r:e, :], projected[r:e, :], middle[r:e, :])
        rmsnorm(middle[r:e, :], w.ffn_norm, normed2[r:e, :])
    for t in pl.range(tiles):
        r = t * rows
        e = min(r + rows, seq)
        project(normed2[r:e, :], w.gate, gate[r:e, :])
    for t in pl.range(tiles):
        r = t * rows
        e = min(r + rows, seq)
        project(normed2[r:e, :], w.up, up[r:e, :])
        silu_mul(gate[r:e, :], up[r:e, :], product[r:e, :])
    for t in pl.range(tiles):
        r = t * rows
        e = min(r + rows, seq)
        project(product[r:e, :], w.down, lowered[r:e, :])
        residual(middle[r:e, :], lowered[r:e, :], out[r:e, :])
    return out


# -- the same in NumPy, and a run of both -----------------------------------------------------------------------------


def reference(x: np.ndarray, w: Weights, cos: np.ndarray, sin: np.ndarray, heads: int) -> np.ndarray:
    """The layer in NumPy, attention by its definition."""
    seq, hidden = x.shape
    width = hidden // heads

    def norm(t: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return t / np.sqrt((t * t).mean(axis=1, keepdims=True) + EPS) * scale

    def rotated(t: np.ndarray) -> np.ndarray:
        parts = t.reshape(seq, heads, 2, width // 2)
        a, b = parts[:, :, 0], parts[:, :, 1]
        c, s = cos[:, None], sin[:, None]
        return np.stack([a * c - b * s, a * s + b * c], axis=2).reshape(seq, heads, width)

    n = norm(x, w.attention_norm)
    q, k, v = rotated(n @ w.q), rotated(n @ w.k), (n @ w.v).reshape(seq, heads, width)
    scores = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(width)
    p = np.exp(scores - scores.max(axis=2, keepdims=True))
    p /= p.sum(axis=2, keepdims=True)
    middle = x + np.einsum("hqk,khd->qhd", p, v).reshape(seq, hidden) @ w.o
    n = norm(middle, w.ffn_norm)
    g = n @ w.gate
    return middle + (g / (1 + np.exp(-g)) * (n @ w.up)) @ w.down


def make_weights(hidden: int, ffn: int, rng: np.random.Generator) -> Weights:
    shapes = {"attention_norm": (hidden,), "ffn_norm": (hidden,), "gate": (hidden, ffn), "up": (hidden, ffn),
              "down": (ffn, hidden)}  # fmt: skip

    def matrix(name: str) -> np.ndarray:
        shape = shapes.get(name, (hidden, hidden))
        values = rng.standard_normal(shape, dtype=np.float32)
        return values if len(shape) == 1 else values / np.float32(math.sqrt(shape[0]))

    return Weights(**{f.name: matrix(f.name) for f in fields(Weights)})


def rotary_tables(seq: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin of position * frequency, (seq, width / 2)."""
    frequency = 10000.0 ** (-np.arange(0, width, 2) / width)
    angles = np.arange(seq)[:, None] * frequency
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def layer_arguments(seq: int, weights: Weights, heads: int, rows: int = ROWS, seed: int = 0) -> tuple:
    """Random arguments of `decoder_layer` for these weights."""
    hidden = weights.q.shape[0]
    x = np.random.default_rng(seed).standard_normal((seq, hidden), dtype=np.float32)
    cos, sin = rotary_tables(seq, hidden // heads)
    return x, weights, cos, sin, heads, np.float32(1 / math.sqrt(hidden // heads)), rows


def lengths(longest: int, rows: int) -> Iterator[int]:
    """rows, 2 rows, 4 rows ... up to `longest`: the kernel compiles once for all of them."""
    seq = rows
    while seq < longest:
        yield seq
        seq *= 2
    yield longest


def check_output(parser: argparse.ArgumentParser, option: str, file: str | None, suffixes: tuple[str, ...]) -> None:
    """What cannot be written is said before anything is run."""
    if file is None:
        return
    path = Path(file)
    if path.suffix not in suffixes:
        parser.error(f"argument {option}: {file!r} does not end in {' or '.join(suffixes)}")
    if path.is_dir() or not path.absolute().parent.is_dir():
        parser.error(f"argument {option}: {file!r} is not a file in a directory that exists")


def main() -> None:
    parser = argparse.ArgumentParser(description="A LLaMA-7B decoder layer as a task graph.")
    parser.add_argument("--seq", type=int, default=256, help="the longest sequence")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of a tile (default 32)")
    parser.add_argument("--real", action="store_true", help="hidden 4096, 32 heads of 128, FFN 11008")
    parser.add_argument("--graph", metavar="FILE", help="draw the task graph of the layer (.svg, .pdf, .png)")
    parser.add_argument("--trace", metavar="FILE", help="write a trace of a run, for https://ui.perfetto.dev")
    parser.add_argument("--torch", action="store_true", help="time the longest sequence beside PyTorch's eager mode")
    options = parser.parse_args()
    if options.seq < 1 or options.rows < 1:
        parser.error("--seq and --rows must be positive")
    check_output(parser, "--graph", options.graph, (".svg", ".pdf", ".png"))
    check_output(parser, "--trace", options.trace, (".json",))
    hidden, ffn, heads = (4096, 11008, 32) if options.real else (256, 688, 8)
    console = Console()
    with Progress(console=console) as progress:
        wanted = list(lengths(options.seq, options.rows))
        bar = progress.add_task("weights", total=1 + 2 * len(wanted))
        weights = make_weights(hidden, ffn, np.random.default_rng(0))
        graph, arguments = None, ()
        for seq in wanted:
            progress.update(bar, advance=1, description=f"{seq} tokens: running")
            arguments = layer_arguments(seq, weights, heads, options.rows)
            decoder_layer(*arguments)  # compiles, the first time
            start = time.perf_counter()
            got = decoder_layer(*arguments)
            seconds = time.perf_counter() - start
            graph = decoder_layer.task_graph(*arguments)
            progress.update(bar, advance=1, description=f"{seq} tokens: checking against NumPy")
            error = np.abs(got - reference(*arguments[:5])).max()
            tiles = -(-seq // options.rows)
            console.print(
                f"{seq:5} tokens: {graph.num_tasks:6} tasks (16N + 3N² = {16 * tiles + 3 * tiles**2}), "
                f"{graph.num_edges} edges, critical path {graph.critical_path}, built in "
                f"{1e3 * graph.build_seconds:.3f} ms ({graph.build_seconds / seconds:.4%} of the run); "
                f"run in {1e3 * seconds:.1f} ms; largest error {error:.1e}"
            )
            if not error < 1e-3:
                raise SystemExit("the result differs from NumPy's")
        progress.update(bar, advance=1, description="done")
    compiled = [s for s in decoder_layer.specializations() if s.origin == "compiled"]
    console.print(f"compiled {len(compiled)} time(s) for {len(wanted)} lengths")
    if options.graph and graph is not None:
        try:
            graph.render(options.graph)
        except pto.ToolchainError as error:
            raise SystemExit(str(error)) from None
        console.print(f"drawn: {options.graph}")
    if options.trace and graph is not None:
        graph.run()
        graph.trace(options.trace)
        console.print(f"traced: {options.trace}")
    if options.torch:
        beside_torch(arguments, console)


# -- the same in PyTorch -------------------------------------------------------------------------------------------


def torch_layer(x: np.ndarray, w: Weights, cos: np.ndarray, sin: np.ndarray, heads: int) -> Callable[[], np.ndarray]:
    """The layer in PyTorch's eager mode, on the same memory."""
    import torch
    from torch.nn import functional

    seq, hidden = x.shape
    t = torch.from_numpy(x)
    p = {f.name: torch.from_numpy(getattr(w, f.name)) for f in fields(Weights)}
    c, s = torch.from_numpy(cos)[:, None], torch.from_numpy(sin)[:, None]

    def rotated(y):
        parts = y.view(seq, heads, 2, hidden // heads // 2)
        a, b = parts[:, :, 0], parts[:, :, 1]
        return torch.stack([a * c - b * s, a * s + b * c], 2).view(seq, heads, hidden // heads).transpose(0, 1)

    @torch.no_grad()
    def run() -> np.ndarray:
        n = functional.rms_norm(t, (hidden,), p["attention_norm"], EPS)
        v = (n @ p["v"]).view(seq, heads, hidden // heads).transpose(0, 1)
        a = functional.scaled_dot_product_attention(rotated(n @ p["q"])[None], rotated(n @ p["k"])[None], v[None])
        middle = t + a[0].transpose(0, 1).reshape(seq, hidden) @ p["o"]
        n = functional.rms_norm(middle, (hidden,), p["ffn_norm"], EPS)
        return (middle + (functional.silu(n @ p["gate"]) * (n @ p["up"])) @ p["down"]).numpy()

    return run


def beside_torch(arguments: tuple, console: Console, rounds: int = 7) -> None:
    """Times of both, in turns; a pause before each lets the other's threads go to sleep."""
    try:
        run = torch_layer(*arguments[:5])
    except ImportError as error:
        raise SystemExit(f"--torch needs PyTorch: {error}") from None
    both = {"pto_jit": lambda: decoder_layer(*arguments), "torch eager": run}
    error = np.abs(both["pto_jit"]() - run()).max()
    times: dict[str, list[float]] = {name: [] for name in both}
    for _ in range(rounds):
        for name, layer in both.items():
            time.sleep(0.05)
            start = time.perf_counter()
            layer()
            times[name].append(time.perf_counter() - start)
    for name, seconds in times.items():
        console.print(f"{name:12} median {1e3 * np.median(seconds):8.1f} ms, least {1e3 * min(seconds):8.1f} ms")
    ratio = np.array(times["torch eager"]) / np.array(times["pto_jit"])
    console.print(f"torch eager takes {np.median(ratio):.2f} times as long ({min(ratio):.2f} to {max(ratio):.2f}); "
                  f"largest difference {error:.1e}")  # fmt: skip


if __name__ == "__main__":
    main()
