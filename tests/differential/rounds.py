# SPDX-License-Identifier: MIT
"""How many random programs are tried, and trying many more of them.

``pytest tests/differential --programs 5000`` tries about so many; ``python -m tests.differential.rounds nests 0 5000``
tries the nests of these seeds in every way and prints each kind of disagreement once; with a further number K only
every K-th program is compiled and looked at after every stage, the others are interpreted.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable

from tests.differential import compare, groups, kernels, nests

DEFAULT = 600
GENERATORS: dict[str, Callable[[int], compare.Kernel]] = {
    "groups": groups.generate,
    "kernels": kernels.generate,
    "nests": nests.generate,
}


def share(count: int) -> int:
    """`count` of the default number of programs, scaled to the number that was asked for."""
    return count * int(os.environ.get("PTO_TEST_PROGRAMS", DEFAULT)) // DEFAULT


def try_program(name: str, seed: int, everything: bool = True) -> str | None:
    """What is wrong with a program, or None."""
    kernel = GENERATORS[name](seed)
    stages = None if everything else ("fused",)
    try:
        why = compare.disagreement(kernel, threads=(1, 2), stages=stages, machine=everything)
    except Exception:
        why = traceback.format_exc(limit=-3)
    return None if why is None else f"{why}\n{kernel}"


def kind(text: str) -> str:
    """A disagreement without names and numbers."""
    lines = [line for line in text.splitlines() if line.strip()]
    last = next((line for line in lines if "Error: " in line), lines[0])
    return re.sub(r"`[^`]*`|%\S+|-?\d[\d.e+-]*", "#", last)[:150]


def main(name: str, first: int, last: int, every: int = 1) -> int:
    """Try the programs of a range of seeds; the number of those that disagree."""
    found: Counter[str] = Counter()
    for seed in range(first, last):
        text = try_program(name, seed, seed % every == 0)
        if seed % 500 == 499:
            print(f"-- {seed + 1}", flush=True)
        if text is not None:
            found[kind(text)] += 1
            if found[kind(text)] == 1:
                print(f"== seed {seed}\n{text}", flush=True)
    for what, count in found.most_common():
        print(f"{count:6} {what}")
    print(f"{last - first} programs, {sum(found.values())} disagree")
    return sum(found.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])) > 0)
