# SPDX-License-Identifier: MIT
"""The libraries that can take part.  Their modules are imported in their own processes only."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Peer:
    """A library: the module with its `TABLE`, what must be installed for it, and environment it wants besides."""

    name: str
    module: str
    requires: tuple[str, ...]
    distribution: str
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)

    def missing(self) -> str:
        """Why this peer cannot take part here; the empty string when it can be tried."""
        absent = [name for name in self.requires if importlib.util.find_spec(name) is None]
        return f"{' and '.join(absent)} not installed" if absent else ""

    def version(self) -> str:
        """The installed version, or the empty string."""
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return ""


def _peer(name: str, requires: str, distribution: str, **environment: str) -> Peer:
    module = f"pto_jit.bench.peers.{name}_peer"
    return Peer(name, module, tuple(requires.split()), distribution, MappingProxyType(environment))


PTO = _peer("pto", "llvmlite", "pto_jit")

# In the order in which tables show them.
PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        _peer("numpy", "numpy", "numpy"),
        _peer("torch", "torch", "torch"),
        # A pool of compile processes would run beside the measurement.
        _peer("inductor", "torch", "torch", TORCHINDUCTOR_COMPILE_THREADS="1"),
        _peer("jax", "jax", "jax", JAX_PLATFORMS="cpu"),
        _peer("numba", "numba", "numba"),
        _peer("halide", "halide", "halide"),
        _peer("onnxruntime", "onnxruntime", "onnxruntime"),
        _peer("openvino", "openvino", "openvino"),
    )
}


def chosen_peers(text: str) -> list[Peer]:
    """The peers that `all`, `none` or a comma-separated list stands for.

    Raises:
        ValueError: a name that is not a peer.
    """
    if text == "all":
        return list(PEERS.values())
    if text == "none":
        return []
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        raise ValueError(f"no peer {', '.join(unknown)}: give all, none or some of {', '.join(PEERS)}")
    return [PEERS[name] for name in PEERS if name in names]


def thread_environment(threads: int) -> dict[str, str]:
    """The variables by which libraries learn how many threads to use."""
    names: Sequence[str] = (
        "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "HL_NUM_THREADS",
        "PTO_NUM_THREADS",
    )  # fmt: skip
    return dict.fromkeys(names, str(threads))
