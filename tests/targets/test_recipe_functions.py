# SPDX-License-Identifier: MIT
"""Vector math as functions of a file: the same in every file, each after those that it calls."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from pto_jit.targets.c.recipes import CRecipes
from pto_jit.targets.source import recipes
from pto_jit.targets.source.recipes import RecipeFunctions
from pto_jit.targets.vecmath import RECIPES

FILES: list[Callable[[], RecipeFunctions]] = [CRecipes, lambda: RecipeFunctions("static inline")]


def add(file: RecipeFunctions, name: str) -> None:
    for dtype in ("f32", "f64"):
        file.call(name, dtype, ["x", "y", "z"][: RECIPES[name].arity])


@pytest.mark.parametrize("make", FILES)
def test_a_function_does_not_depend_on_the_file(make: Callable[[], RecipeFunctions], monkeypatch) -> None:
    whole = make()
    for name in sorted(RECIPES):
        add(whole, name)
    monkeypatch.setattr(recipes, "_written", {})  # as in a process that has written none
    files = [whole]
    for name in sorted(RECIPES, reverse=True):
        alone = make()
        add(alone, name)
        assert alone.texts.items() <= whole.texts.items()
        files.append(alone)
    for file in files:
        known: set[str] = set()
        for full, lines in file.texts.items():
            called = set(re.findall(r"\b(\w+)\(", "\n".join(lines))) & set(file.texts)
            known.add(full)
            assert called <= known
