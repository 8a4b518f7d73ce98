# SPDX-License-Identifier: MIT
"""pto_jit itself: the kernels that the workloads name, called with the inputs and then the outputs."""

from __future__ import annotations

from pto_jit.bench.catalog import WORKLOADS
from pto_jit.bench.implementation import Builder, Case, Implementation, Table
from pto_jit.bench.specials import SPECIALS
from pto_jit.bench.worker import resolve

TABLE = Table()


def _call(path: str) -> Builder:
    def build(case: Case) -> Implementation:
        kernel, arguments = resolve(path), case.arguments
        if getattr(kernel, "prepares", False):  # it makes lists of the arrays, and returns new ones
            return kernel(case)
        return Implementation(lambda: kernel(*arguments))

    return build


def _bound(path: str) -> Builder:
    def build(case: Case) -> Implementation:
        arguments = case.arguments
        bound = resolve(path).compile(*arguments).bind(*arguments)
        return Implementation(bound, note="prepared launch")

    return build


for _workload in (*WORKLOADS.values(), *SPECIALS.values()):
    if _workload.like:
        continue
    for _variant, _path in _workload.kernels.items():
        TABLE.add(_workload.name, _bound(_path) if _variant == "bound" else _call(_path), _variant)
