# SPDX-License-Identifier: MIT
# pyright: reportMissingImports=false
"""Recurrent networks and block-sparse attention in PyTorch: loops over planes and steps, the rest batched by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from pto_jit.bench.workloads.nests import WINDOW

Function = Callable[..., Any]


def grid_wavefront(src: torch.Tensor, trg: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Layer by layer: the products of the inputs at once, then anti-diagonals, the cells of one in a single product."""
    wx, ux, bx, wy, uy, by = weights
    batch, source, hidden = src.shape
    target = trg.shape[1]
    # Those of the first layer have an extent of 1 for what they do not depend on.
    x, y = src.transpose(0, 1)[None], trg.transpose(0, 1)[:, None]
    for d in range(len(wx)):
        w = torch.cat([wx[d], wy[d]], 1)
        # One more row above and one more column to the left, of zeros: states [T + 1, S + 1, B, (h_x, h_y)].
        h = torch.zeros(target + 1, source + 1, batch, 2 * hidden)
        inner = h[1:, 1:]
        inner[..., :hidden] = (x @ ux[d]).add_(bx[d])
        inner[..., hidden:] = (y @ uy[d]).add_(by[d])
        flat = h.view(-1, batch, 2 * hidden)
        width = source + 1
        for plane in range(target + source - 1):
            low, high = max(0, plane - source + 1), min(target, plane + 1)
            t = torch.arange(low, high)
            at = (t + 1) * width + plane - t + 1
            c = torch.cat([flat[at - width, :, :hidden], flat[at - 1, :, hidden:]], -1)
            states = torch.addmm(flat[at].view(-1, 2 * hidden), c.view(-1, 2 * hidden), w).tanh_()
            flat[at] = states.view(len(t), batch, -1)
        x, y = inner[..., :hidden], inner[..., hidden:]
    return x.permute(2, 0, 1, 3).contiguous(), y.permute(2, 0, 1, 3).contiguous()


def stacked_rnn(x: torch.Tensor, w: torch.Tensor, u: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Layer by layer: the products of the inputs at once, then a product per step."""
    states = x.transpose(0, 1).contiguous()
    for d in range(len(w)):
        states = torch.addmm(b[d], states.view(-1, states.shape[2]), w[d]).view(states.shape)
        h = states[0].tanh_()
        for t in range(1, len(states)):
            h = torch.addmm(states[t], h, u[d], out=states[t]).tanh_()
    return states.transpose(0, 1).contiguous()


def bigbird(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, chosen: torch.Tensor) -> tuple[Any, Any]:
    """Blocks of keys gathered for every block of queries, then batched attention."""
    n, _, dim = q.shape
    near = (torch.arange(n)[:, None] + torch.arange(WINDOW) - WINDOW // 2) % n
    seen = torch.cat([near, chosen], 1)
    out = F.scaled_dot_product_attention(q[None], k[seen].view(1, n, -1, dim), v[seen].view(1, n, -1, dim))[0]
    return out, F.scaled_dot_product_attention(q[None, :1], k.view(1, 1, -1, dim), v.view(1, 1, -1, dim))[0]


FUNCTIONS: dict[tuple[str, str], Function] = {
    ("grid_rnn", "wavefront"): grid_wavefront,
    ("stacked_rnn", ""): stacked_rnn,
    ("bigbird", ""): bigbird,
    ("products", ""): lambda a, b, c: (a @ b) @ c,
    ("products_any", ""): lambda a, b, c: torch.linalg.multi_dot([a, b, c]),
}
