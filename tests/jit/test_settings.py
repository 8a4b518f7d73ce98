# SPDX-License-Identifier: MIT
"""`pto.config`: what its fields take, and where they come from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
from pto_jit.config import Config


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_threads", 0), ("num_threads", True), ("num_threads", "2"), ("num_threads", 1025), ("cache_dir", None),
        ("cache_dir", ""), ("debug", 1), ("interpret", "yes"), ("log", None), ("log", "specialise"),
        ("dump_dir", 3), ("warpgroups", 1),
    ],
)  # fmt: skip
def test_a_value_that_a_setting_cannot_have_is_refused(name: str, value: Any) -> None:
    before = getattr(pto.config, name)
    with pytest.raises(ValueError, match=rf"pto\.config\.{name} = .* is wanted"):
        setattr(pto.config, name, value)
    assert getattr(pto.config, name) == before


def test_a_setting_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        pto.config.threads = 3  # type: ignore[attr-defined]


def test_the_environment_gives_the_first_values(tmp_path: Path) -> None:
    program = "import pto_jit as pto; c = pto.config; print(c.num_threads, c.cache_dir, c.debug, c.log, c.dump_dir)"
    variables = {
        **os.environ, "PYTHONPATH": str(Path(pto.__file__).parents[1]), "PTO_NUM_THREADS": "3", "PTO_DEBUG": "1",
        "PTO_CACHE_DIR": str(tmp_path), "PTO_LOG": "cache,passes", "PTO_DUMP_DIR": "",
    }  # fmt: skip
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, env=variables, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["3", str(tmp_path), "True", "cache,passes", "None"], done.stderr


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("PTO_NUM_THREADS", "many", "an integer from 1 to 1024"),
        ("PTO_DEBUG", "no", "1 or 0"),
        ("PTO_LOG", "specialize, all", "a string of cache, passes, specialize, separated by commas,"),
    ],
)
def test_the_environment_gives_no_other_values(name: str, value: str, wanted: str) -> None:
    variables = {**os.environ, "PYTHONPATH": str(Path(pto.__file__).parents[1]), name: value}
    run = [sys.executable, "-c", "import pto_jit.config"]
    done = subprocess.run(run, env=variables, capture_output=True, text=True, check=False)
    assert f"{name}={value!r}: {wanted} is wanted" in done.stderr


def test_a_flag_that_is_false_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTO_DEBUG", "False")
    assert not Config().debug
    monkeypatch.setenv("PTO_DEBUG", "true")
    assert Config().debug


def test_without_a_home_kernels_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("PTO_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    monkeypatch.setattr(pto.config, "cache_dir", Config().cache_dir)
    with pytest.warns(RuntimeWarning, match=r"cannot be used .*Set PTO_CACHE_DIR"):
        np.testing.assert_array_equal(pto.jit(lambda x: x * 11)(np.ones(3)), np.full(3, 11.0))


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("PTO_CACHE_DIR", "~/kernels", "kernels"),
        ("XDG_CACHE_HOME", "~/caches", ".cache/pto_jit"),
        ("XDG_CACHE_HOME", "caches", ".cache/pto_jit"),
    ],
)
def test_the_cache_is_in_the_home_where_a_variable_says_so_or_no_absolute_path(
    variable: str, value: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PTO_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(variable, value)
    assert Config().cache_dir == tmp_path / expected


def test_topics_may_have_spaces_around_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pto.config, "log", "cache, passes")
    assert pto.config.logs("passes") and not pto.config.logs("specialize")
