# SPDX-License-Identifier: MIT
"""Write `docs/operations.md`, the reference of the `pl` names, from their docstrings: `python -m pto_jit.docs`."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pto_jit.language as pl

FAMILIES = {
    "_elementwise": "Elementwise",
    "_memory": "Memory",
    "_structure": "Structure, products, order, generated tiles",
    "_reductions": "Reductions, scans, functions over tiles",
    "_indices": "Comprehensions",
    "_loops": "Loops, scopes, compile time and run time",
    "_debug": "Printing and assertions",
    "_annotations": "Annotations",
    "_tile": "Tensors and tiles",
}


def reference() -> str:
    """The reference as Markdown."""
    lines = ["# Operations", "", "Written from the docstrings by `make docs`.", ""]
    for module, title in FAMILIES.items():
        names = [n for n in sorted(pl.__all__) if getattr(getattr(pl, n), "__module__", "").endswith(f".{module}")]
        if not names:
            continue
        lines += [f"## {title}", "", _markdown(sys.modules[f"pto_jit.language.{module}"]), ""]
        for name in names:
            lines += [f"### `pl.{name}{_signature(getattr(pl, name))}`", "", _markdown(getattr(pl, name)), ""]
    return "\n".join(lines)


def _markdown(value: object) -> str:
    """A docstring with its examples fenced."""
    paragraphs = (inspect.getdoc(value) or "").split("\n\n")
    return "\n\n".join(f"```python\n{p}\n```" if p.startswith(">>> ") else p for p in paragraphs)


def _signature(value: object) -> str:
    if isinstance(value, type) or not callable(value):
        return ""
    parameters = inspect.signature(value).parameters.values()
    return str(inspect.Signature([p.replace(annotation=inspect.Parameter.empty) for p in parameters]))


def main() -> None:
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/operations.md")
    target.write_text(reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
