# SPDX-License-Identifier: MIT
"""What a row of the operation table says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pto_jit.dtypes import BY_NAME, DType
from pto_jit.ir.nodes import Attr, Operand, Region
from pto_jit.ir.types import ScalarType, Type
from pto_jit.slotted import frozen

Effect = Literal["none", "reads", "writes"]
Args = tuple[Operand, ...]
Attrs = dict[str, Attr]
Regions = tuple[Region, ...]
Types = tuple[Type, ...]
Rule = Callable[[str, Args, Attrs, Regions], Types]


@frozen
class OpRow:
    """One operation.

    `signature` and `doc` are for readers.  `min_args` and `max_args` (None: any number) limit the operands; `required`
    and `optional` name the attributes; `regions` is the number of regions.  `effect` says whether the operation reads
    or writes memory, and `tensor` which operand (from 0) is the tensor concerned; an operation that "writes" without a
    tensor (`print`, `assert`) acts on the outside world and may be neither removed nor reordered with others of that
    kind.  `elementwise`: each element of the result depends only on the operands' elements at the same place.
    `generator`: the result is valid everywhere and fits any valid extent.  `unique`: two equal operations give two
    different things (`alloc`).
    """

    name: str
    family: str
    signature: str
    doc: str
    infer: Rule
    min_args: int
    max_args: int | None
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    regions: int = 0
    effect: Effect = "none"
    tensor: int | None = None
    elementwise: bool = False
    generator: bool = False
    commutative: bool = False
    unique: bool = False

    @property
    def arity(self) -> tuple[int, int | None]:
        return self.min_args, self.max_args

    @property
    def attrs(self) -> tuple[str, ...]:
        return self.required + self.optional


SCALAR: dict[DType, ScalarType] = {dtype: ScalarType(dtype) for dtype in BY_NAME.values()}
