# SPDX-License-Identifier: MIT
"""Lines of a written kernel that nobody needs."""

from __future__ import annotations

import re
from collections import Counter

from pto_jit.targets.source.text import words_of

_DECLARATION = re.compile(r"\s*(?:const|constexpr) [\w:<>, ]+? (\w+) = .*;$")
_EXTENT = re.compile(r"\s*int (\w+)(?: = [^;]*)?;$")  # that changes
_ASSIGNMENT = re.compile(r"\s*(\w+) = [^;]*;$")


def without_unused(lines: list[str]) -> list[str]:
    """Lines without constants and extents that nobody reads; what they are made of has no effects."""
    words = Counter(words_of("\n".join(lines)))
    places: dict[str, list[int]] = {}  # of declarations, and of what assigns an extent again
    for k, line in enumerate(lines):
        declared = _DECLARATION.match(line) if "const" in line else _EXTENT.match(line)
        assigned = None if declared else _ASSIGNMENT.match(line)
        if declared:
            places[declared.group(1)] = [k]
        elif assigned and assigned.group(1) in places:
            places[assigned.group(1)].append(k)
    gone: set[int] = set()
    while unread := [name for name, at in places.items() if words[name] == len(at)]:
        for name in unread:
            for k in places.pop(name):
                gone.add(k)
                words.subtract(words_of(lines[k]))
    kept = [line for k, line in enumerate(lines) if k not in gone] if gone else lines
    return [line for k, line in enumerate(kept) if not _idle_comment(kept, k)]


def _idle_comment(lines: list[str], k: int) -> bool:
    """Whether a place is named that nothing follows."""
    if "//" not in lines[k]:
        return False
    following = lines[k + 1].strip() if k + 1 < len(lines) else "}"
    return lines[k].strip().startswith("// ") and (following.startswith("// ") or following in ("}", "};"))
