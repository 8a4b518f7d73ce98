# SPDX-License-Identifier: MIT
"""With PTO_TEST_GPU=1 what the tests of this folder emulate runs on a GPU: they are skipped where there is none."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

import pto_jit as pto
from pto_jit import device_kernel


def _without_gpu() -> str | None:
    """Why nothing can run on a GPU here; None if it can."""
    from pto_jit.targets.cuda import driver

    try:
        driver.device_of(())
    except (pto.TargetError, pto.LaunchError) as error:
        return str(error).splitlines()[0]
    return None


def _on_gpu(compiled: Any, *args: Any, order: int = 0, **kwargs: Any) -> Any:
    del order  # the GPU has one of its own
    return device_kernel.on_gpu(compiled, *args, **kwargs)


@pytest.fixture(autouse=True)
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.environ.get("PTO_TEST_GPU"):
        return
    emulated: Callable[..., Any] | None = getattr(request.module, "emulate", None)
    harness = getattr(request.module, "emulated", None)
    if emulated is None and harness is None:
        return
    why = _without_gpu()
    if why is not None:
        pytest.skip(f"PTO_TEST_GPU is set, but {why}")
    monkeypatch.setattr(device_kernel, "emulate", _on_gpu)
    if emulated is not None:
        monkeypatch.setattr(request.module, "emulate", _on_gpu)
    if harness is not None:
        monkeypatch.setattr(f"{harness.__module__}.emulate", _on_gpu)
