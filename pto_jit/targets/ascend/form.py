# SPDX-License-Identifier: MIT
"""A kernel as it is written: tiles at addresses, instructions, flags, loops.

This form is printed one to one by `printing`; `legality` and `ordering` judge it without knowing how it was made.
"""

from __future__ import annotations

from pto_jit.dtypes import DType
from pto_jit.errors import NOWHERE, Loc
from pto_jit.slotted import field, mutable
from pto_jit.targets.ascend.machine import Pipe, Space

Extent = int | str
"""A number, or a C++ expression."""


@mutable(eq=False)
class Buffer:
    """On-chip memory of one value.

    size: bytes of one copy; copies: 2 when iterations of `loop`, and of loops that go on with its turns, alternate
    between two; address: of the first copy, once it is placed; base: of a function's memory, the parameter that
    addresses count from.
    """

    name: str
    space: Space
    size: int
    copies: int = 1
    address: int | None = None
    loop: Loop | None = None
    base: str = ""


@mutable(eq=False)
class Tile:
    """A C++ tile variable: a shape and layout over a buffer.

    rows, columns: the physical extents; valid: of what is computed with.  layout: "row" (row-major), "column"
    (column-major), "nz" and "zn" (L1), "left", "right", "acc".  offset: bytes of the buffer before it; moves: the
    variable of a loop, and how many more bytes are before it in each of its iterations.  aligned: of a left operand of
    f32 in L0A, that each of its rows has whole pairs of blocks of 8 elements.
    """

    name: str
    dtype: DType
    rows: int
    columns: int
    valid: tuple[Extent, Extent]
    layout: str
    buffer: Buffer
    offset: int = 0
    moves: tuple[str, int] | None = None
    aligned: bool = False

    @property
    def space(self) -> Space:
        return self.buffer.space


@mutable(eq=False)
class Global:
    """A C++ variable for a rectangle of global memory.

    root: the tensor parameter it is a part of; pointer: its first element; extents and strides (in elements) of rows
    and columns; transposed: columns are what is contiguous (layout DN).
    """

    name: str
    dtype: DType
    root: str
    pointer: str
    extents: tuple[Extent, Extent]
    strides: tuple[Extent, Extent]
    transposed: bool = False


@mutable(eq=False)
class Instruction:
    """`name(args...)`: destinations first, as in pto-isa; text arguments are scalars or modes.  touches: once somebody
    asked (`accesses`), buffers and tensors, and whether it writes them; function: what a `CALL` calls."""

    name: str
    args: tuple[Tile | Global | str, ...]
    loc: Loc = field(default=NOWHERE)
    touches: list[tuple[Buffer | str, bool]] | None = None
    function: Function | None = None


@mutable(eq=False)
class Function:
    """Instructions of the vector pipe that several places of a kernel need, for tiles of one shape.

    operation: what it computes of the one tile; result, operand: where these are given; scratch: memory that it works
    in; extents: the valid ones that are known at run time only, as their parameters are called; body: without loops
    and branches.
    """

    name: str
    operation: str
    result: Buffer
    operand: Buffer
    scratch: Buffer
    extents: tuple[str, ...]
    body: list[Node]


@mutable(eq=False)
class Assignment:
    """A scalar: `const type name = expression;`, or `name = expression;` for one that is declared already (type "")."""

    type: str
    name: str
    expression: str
    loc: Loc = field(default=NOWHERE)
    reads: Tile | None = None  # the tile whose first element the expression reads
    memory: str | None = None  # the tensor that the expression reads an element of
    constant: bool = True


@mutable(eq=False)
class ElementStore:
    """`pointer = value;`: the scalar unit writes one element of global memory."""

    root: str
    place: str
    value: str
    loc: Loc = field(default=NOWHERE)


@mutable(eq=False)
class Flush:
    """What the scalar unit wrote goes from its cache to memory; pointer: of a tensor that it wrote."""

    pointer: str


@mutable(eq=False)
class Declaration:
    """Tiles and rectangles of global memory come into being here."""

    what: Tile | Global
    loc: Loc = field(default=NOWHERE)


@mutable(eq=False)
class SetFlag:
    """`set_flag`: `source` tells `target` that all it was given so far is done.

    turning: the flag of this turn of a loop, and of those that go on with its turns.
    """

    source: Pipe
    target: Pipe
    event: int
    turning: Loop | None = None
    which: int | None = None  # of a turning flag: a fixed turn, for the flags set before the loop


@mutable(eq=False)
class WaitFlag:
    source: Pipe
    target: Pipe
    event: int
    turning: Loop | None = None
    which: int | None = None


@mutable(eq=False)
class CrossSet:
    """Tells the other kind of cores of the group: what `pipe` was given so far is done.  flag: which counter."""

    pipe: Pipe
    flag: int
    loc: Loc = field(default=NOWHERE)


@mutable(eq=False)
class CrossWait:
    """The core goes on when the other kind has told so."""

    flag: int
    loc: Loc = field(default=NOWHERE)


@mutable(eq=False)
class Barrier:
    """`pipe_barrier`: what follows in this pipe waits for what came before in it; "ALL" for all pipes."""

    pipe: str


@mutable(eq=False)
class Require:
    """The program has no meaning unless a condition holds; the core stops.  said: the program's own words for it."""

    condition: str
    loc: Loc = field(default=NOWHERE)
    said: str = ""


@mutable(eq=False)
class Loop:
    """A counted loop.  grid: iterations are dealt to the cores; turning: two copies of buffers take turns;
    independent: iterations do not touch each other's global memory; ahead: it has one more iteration than what it works
    on, as a part of its body is one ahead of the other (branches with `when`); condition: of
    a loop that is not counted, but goes on while it holds; goes_on: a loop before it whose turns it goes on with."""

    var: str
    start: str
    stop: str
    step: str
    body: list[Node]
    grid: bool = False
    turning: bool = False
    independent: bool = False
    loc: Loc = field(default=NOWHERE)
    turn: str = ""
    ahead: bool = False
    condition: str = ""
    goes_on: Loop | None = None

    @property
    def turns(self) -> Loop:
        """The loop that stands for all that take turns together."""
        return self.goes_on or self


@mutable(eq=False)
class Branch:
    """when: in a loop with a part ahead, "not last" of that part and "not first" of the other one; both: both kinds of
    cores come past it, and take the same side."""

    condition: str
    then: list[Node]
    orelse: list[Node]
    loc: Loc = field(default=NOWHERE)
    when: str = ""
    both: bool = False


Node = (
    Instruction | Assignment | ElementStore | Flush | Declaration | SetFlag | WaitFlag | CrossSet | CrossWait | Barrier
    | Require | Loop | Branch
)  # fmt: skip


def texts_of(nodes: list[Node]) -> set[str]:
    """The C++ of nodes but for the names of tiles and rectangles: what may name parameters."""
    out: set[str] = set()
    for node in nodes:
        match node:
            case Instruction(args=args):
                out.update([a for a in args if type(a) is str])
            case Declaration(what=Tile(valid=valid)):
                out.update([v for v in valid if type(v) is str])
            case Declaration(what=Global() as memory):
                out.update([memory.pointer, *(str(e) for e in (*memory.extents, *memory.strides))])
            case Assignment():
                out.update((node.name, node.expression))
            case ElementStore():
                out.update((node.place, node.value))
            case Flush():
                out.add(node.pointer)
            case Loop():
                out.update((node.start, node.stop, node.step, node.condition), texts_of(node.body))
            case Branch():
                out.update((node.condition,), texts_of(node.then), texts_of(node.orelse))
            case Require():
                out.add(node.condition)
            case _:
                pass
    return out


SLOT = "slot "
"""What the roots of slots begin with: global memory that the cores of a group pass values through."""
RELAY = "relay "
"""What the roots of relays begin with: global memory of one core, by way of which it moves elements."""


@mutable(eq=False)
class Parameter:
    """Of a kernel: a C type and a name; `tensor`: pointer into global memory.

    origin: what a launch passes: ("argument", k), ("extent", k, axis) or ("stride", k, axis) of the k-th argument;
    ("slot", n): memory of n bytes for each core or group.
    """

    name: str
    type: str
    tensor: bool = False
    origin: tuple[str | int, ...] = ()


@mutable(eq=False)
class KernelForm:
    """A kernel.  core: "vector" or "cube"; limits: parameter -> the largest value that the kernel's tiles hold;
    checks: C++ conditions over the parameters that a launch has to meet, each with what it means; partner: of a kernel
    of both kinds of cores, the part of the cube core, while this is that of the vector cores; alone: it is for one core
    (one group), as not all that it writes is dealt to the cores; functions: what its instructions call."""

    name: str
    core: str
    parameters: list[Parameter]
    body: list[Node]
    limits: dict[str, int]
    checks: list[tuple[str, str]]
    partner: KernelForm | None = None
    alone: bool = False
    functions: list[Function] = field(default_factory=list)
