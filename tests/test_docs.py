# SPDX-License-Identifier: MIT
"""The documentation that is written from the code is current."""

from __future__ import annotations

from pathlib import Path

from pto_jit.docs import reference


def test_the_reference_of_operations_is_current() -> None:
    page = Path(__file__).parent.parent / "docs" / "operations.md"
    assert page.read_text(encoding="utf-8") == reference(), "run `make docs`"
