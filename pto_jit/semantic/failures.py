# SPDX-License-Identifier: MIT
"""What can fail while a program runs: the code, error class, message and help of each failure.

A target numbers the places that can fail (its sites) and keeps `(error, text, place)` for each.  `text` begins with the
code and is a template over up to three numbers that the failing code reports, {0} {1} {2}; {0.high} and {0.low} are the
two halves of a number, {0.f64}, {0.u64} and {0.truth} what its bits are.
"""

from __future__ import annotations

import struct
from string import Formatter

from pto_jit.errors import BoundsError, LaunchError
from pto_jit.slotted import frozen

_STAY_INSIDE = "compute the index or offset so that it stays inside, or guard the access with an `if`"
_PAD = "give operands that fit; a partial tile loaded with `pl.load(x, offsets, shape, pad=value)` is valid everywhere"


@frozen
class Failure:
    """One kind of failure; `message` is a template for words known at compile time, then for the run-time numbers."""

    code: str
    error: type[LaunchError]
    message: str
    help: str

    def text(self, **words: object) -> str:
        """The template of a site: code, message and help."""
        return f"{self.code}: {self.message.format(**words)}; {self.help}"

    def assertion(self, **words: object) -> tuple[str, str]:
        """The `message` and `told` of an `assert` that fails so: its operands are the condition and the numbers."""
        said, _, way_out = self.text(**words).partition("; ")
        head, number, rest = said.partition("{0}")
        return f"{head}; {way_out}", number + rest

    def at(self, **words: object) -> tuple[type[LaunchError], str]:
        """The error and the text of a site."""
        return self.error, self.text(**words)


class Reported(int):
    """A number that failing code reports; it may hold two numbers of 32 bits, or the bits of an f64."""

    @property
    def high(self) -> int:
        return self >> 32

    @property
    def low(self) -> int:
        return self & 0xFFFFFFFF

    @property
    def u64(self) -> int:
        return self & 0xFFFFFFFFFFFFFFFF

    @property
    def truth(self) -> bool:
        return self != 0

    @property
    def f64(self) -> float:
        return struct.unpack("<d", struct.pack("<q", self))[0]


def filled(template: str, *numbers: int) -> str:
    """The text of a failure, with the numbers that were reported."""
    return template.format(*map(Reported, numbers))


def words(template: str) -> str:
    """A template without its numbers."""
    return "".join(said + ("" if field is None else "...") for said, field, _, _ in Formatter().parse(template))


def assertion(message: str, told: str) -> str:
    """The template of an `assert`: its literal message, with the template `told` inserted before the help (`; ...`)."""
    message = message or ("" if told else "assertion failed")
    message, semicolon, way_out = message.replace("{", "{{").replace("}", "}}").partition("; ")
    return message + told + semicolon + way_out


OFFSET = Failure("PTO-B001", BoundsError, "offset {{0}} along axis {axis} is negative", _STAY_INSIDE)
INDEX = Failure("PTO-B002", BoundsError, "index {{0}} is outside axis {axis} of {{1}} elements", _STAY_INSIDE)
PICK = Failure(
    "PTO-B003",
    BoundsError,
    "{what}: index {{0}} is outside [0, {{1}})",
    "clip the index tile: `pl.clip(index, 0, n - 1)`",
)
SLICE = Failure(
    "PTO-B004",
    BoundsError,
    "a slice of a tile starts at {{0}} with extent {{1}} along axis {axis}",
    "neither may be negative: use `pl.maximum(..., 0)` or an `if`",
)
ELEMENT = Failure(
    "PTO-B005", BoundsError, "index {{0}} is outside the {{1}} valid elements of axis {axis}", _STAY_INSIDE
)
HOLE = Failure(
    "PTO-B006", BoundsError, "{what} of an incomplete tile: {{0}} of {{1}} elements along axis {axis} are valid", _PAD
)
UNIT = Failure("PTO-B007", BoundsError, "reshape of an incomplete tile: an axis of extent 1 is empty", _PAD)
EMPTY = Failure("PTO-B008", BoundsError, "reduce of an empty valid part without an initial value", "give `init=`")

STEP = Failure("PTO-L101", LaunchError, "the step of the loop is 0", "a step is positive or negative")
CHUNK = Failure(
    "PTO-L102",
    LaunchError,
    "the {what} of loop `{var}` is below 1",
    "a chunked loop needs a chunk and a step of 1 or more",
)
FAR = Failure(
    "PTO-L103",
    LaunchError,
    "a bound of the {what} loop `{var}` lies outside of -2**60 to 2**60",
    "leave `chunk=` out: other loops may have any bounds",
)

VALID = Failure(
    "PTO-H201", LaunchError, "the valid extents of the tiles differ along axis {axis}: {{0}} and {{1}}", _PAD
)
DECLARED = Failure(
    "PTO-H202",
    LaunchError,
    "the declared extents of the tiles differ along axis {axis}: {{0}} and {{1}}",
    "an axis broadcasts when its declared extent is the constant 1, as of a parameter "
    "`y: pl.Tensor[[1, None], pl.f32]` or of a row (`y[0]`); otherwise they must be equal",
)
EXTENT = Failure("PTO-H203", LaunchError, "the extent {{0}} along axis {axis} is negative", "extents are at least 0")
RESHAPE = Failure(
    "PTO-H204", LaunchError, "reshape of {{0}} elements to {{1}} elements", "the numbers of elements must be equal"
)
VIEW = Failure(
    "PTO-H205",
    LaunchError,
    "a tensor of {{0}} elements cannot be reshaped to {{1}} elements",
    "the numbers of elements must be equal",
)
TOPK = Failure("PTO-H207", LaunchError, "topk: k = {k} of {{0}} elements", "k is at most the last extent")
MOST_PLACES = 2**31 - 1
"""Elements of a line at most, where i32 numbers say which of them, or how many: `PLACES` is the failure otherwise."""
PLACES = Failure(
    "PTO-H208",
    LaunchError,
    "{what}: {{0}} elements, and its i32 results count to 2**31 - 1",
    "take parts of the line, and add where each begins in i64",
)
SPLIT = Failure(
    "PTO-H209", LaunchError, "pl.split: an axis of extent {{0}} into {parts} parts", "the parts must divide the extent"
)
SCATTER = Failure("PTO-H206", LaunchError, "scatter: {{0}} elements into {{1}} along axis {axis}", _PAD)
