# SPDX-License-Identifier: MIT
"""Kernels of these tests share a disk cache that is thrown away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

import pto_jit as pto


@pytest.fixture(autouse=True)
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A fresh cache directory for every test; all settings are put back afterwards."""
    before = {f.name: getattr(pto.config, f.name) for f in fields(pto.config)}
    directory = tmp_path_factory.mktemp("cache")
    pto.config.cache_dir = directory
    yield directory
    for name, value in before.items():
        setattr(pto.config, name, value)
