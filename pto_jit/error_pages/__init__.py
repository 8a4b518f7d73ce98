# SPDX-License-Identifier: MIT
"""A page for each error code: what it means, a program that provokes it, how to fix it.

The pages are the sections of the Markdown files beside this module; the first code block of a file stands before every
example in it.  Only `python -m pto_jit explain` and the tests read them.
"""

from __future__ import annotations

import re
from pathlib import Path

from pto_jit.slotted import frozen

_BLOCK = re.compile(r"```python\n(.*?)```\n", re.DOTALL)


@frozen
class Page:
    """`text` is Markdown without the title; `example` is a whole program (None: there is none, and `text` says why)."""

    code: str
    title: str
    text: str
    example: str | None


def pages() -> dict[str, Page]:
    """All pages by code, in order."""
    found: dict[str, Page] = {}
    for path in Path(__file__).parent.glob("*.md"):
        head, *sections = re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        prelude = _BLOCK.search(head)
        for section in sections:
            line, _, body = section.partition("\n")
            code, _, title = line.partition(": ")
            block = _BLOCK.search(body)
            example = None if block is None else f"{prelude[1] if prelude else ''}\n{block[1]}"
            found[code] = Page(code, title, body.strip(), example)
    return dict(sorted(found.items()))
