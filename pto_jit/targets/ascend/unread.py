# SPDX-License-Identifier: MIT
"""Numbers that nobody reads, and loops and branches in which then nothing is left.

Before::

    for j:
      const int32_t t5 = n[i * n_d1 + j];    // of a sum that is not stored
      t = t + x[i * x_d1 + j];

After::

    for j:
      t = t + x[i * x_d1 + j];
"""

from __future__ import annotations

from collections import Counter

from pto_jit.targets.ascend.accesses import walk
from pto_jit.targets.ascend.form import Assignment, Branch, Loop, Node
from pto_jit.targets.ascend.printing import print_body
from pto_jit.targets.source.text import words_of


def without_unread(body: list[Node]) -> list[Node]:
    """The body without numbers that are computed and not read."""
    body = _without_idle(body, set())
    while True:
        blocks = _blocks(body)
        body = _without_idle(body, _unread(body))
        if _blocks(body) == blocks:  # else their conditions and bounds may be read no more
            return body


def _blocks(body: list[Node]) -> int:
    return sum(isinstance(n, (Loop, Branch)) for n in walk(body))


def may_have_unread(body: list[Node]) -> bool:
    """Whether there are numbers that are read from memory, or assigned several times: others that are not read are gone
    before a form is made."""
    return any(isinstance(n, Assignment) and (n.memory is not None or not n.constant) for n in walk(body))


def _unread(body: list[Node]) -> set[str]:
    """Names of numbers that only other such numbers are made of."""
    made = [n for n in walk(body) if isinstance(n, Assignment)]
    times = Counter(n.name for n in made)  # those that both parts of a loop need are computed in both
    inputs: dict[str, list[str]] = {name: [] for name in times}
    for n in made:
        words = words_of(n.expression)
        times[n.name] += words.count(n.name)  # what only makes the number itself
        inputs[n.name] += [w for w in words if w != n.name]
    counts = Counter(words_of(print_body(body)))
    out: set[str] = set()
    while True:
        new = {name for name in inputs if counts[name] == times[name]} - out
        if not new:
            return out
        out |= new
        for name in new:
            counts.subtract(inputs[name])


def _without_idle(nodes: list[Node], unread: set[str]) -> list[Node]:
    """Without unread numbers and what then is an empty loop or branch."""
    out: list[Node] = []
    for node in nodes:
        if isinstance(node, Assignment) and node.name in unread:
            continue
        if isinstance(node, Loop):
            node.body[:] = _without_idle(node.body, unread)
            if not node.body:
                continue
        elif isinstance(node, Branch):
            node.then[:] = _without_idle(node.then, unread)
            node.orelse[:] = _without_idle(node.orelse, unread)
            if not node.then and not node.orelse:
                continue
        out.append(node)
    return out
