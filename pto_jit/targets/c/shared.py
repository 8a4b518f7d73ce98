# SPDX-License-Identifier: MIT
"""The loops of groups that occur more than once in a function: one C function, called wherever they are.

What the loops take from around them becomes parameters: memory, extents and strides that are known only when the code
runs, numbers, and the float constants in which the groups differ.  Whatever else they depend on is in the key of the
function, so groups share one only where the loops would be the same text.
"""

from __future__ import annotations

from itertools import compress
from math import gcd
from typing import TYPE_CHECKING, Any

from pto_jit.dtypes import BY_NAME
from pto_jit.ir.nodes import Block, Const, Fuse, Op
from pto_jit.targets.c.code import CCode
from pto_jit.targets.c.module import CModule
from pto_jit.targets.c.nest import CNest, row_memory
from pto_jit.targets.c.operations import Operations
from pto_jit.targets.c.tidy import names_in, tidy
from pto_jit.targets.c.values import CPointer, CSlot, CValue, float_constant, lift, memory_ctype, polynomial_text
from pto_jit.targets.cpu.constants import I64, Index, register_type
from pto_jit.targets.cpu.nest import Inputs, Strided
from pto_jit.targets.loops.alike import Alike, Shape, float_key, repeated_groups
from pto_jit.targets.loops.form import Arg, Nest, RowBuffer, Stored
from pto_jit.targets.loops.plan import plan
from pto_jit.targets.source.identifiers import Identifiers
from pto_jit.targets.source.text import place_of, wrapped

if TYPE_CHECKING:
    from pto_jit.targets.c.function import CFunctionWriter

_WORTH = 256  # elements from which on a group is worth a call
_BY_ID = {dtype.id: dtype for dtype in BY_NAME.values()}
_Integer = int | tuple[int, int]  # what is known, or the number of an argument and what it is multiplied with


class SharedGroups:
    """The groups of an IR function that occur more than once, and the C functions for them so far."""

    def __init__(self, body: Block) -> None:
        self.body = body  # by whose parts the groups are known
        self.repeated = repeated_groups(body)
        self.taken: frozenset[str] = frozenset()  # names that parameters must not have
        self.functions: dict[Any, tuple[str, tuple[bool, ...]]] = {}
        """The name of a function, and which arguments of a call it takes; by all that its text depends on."""

    def plan(self, fused: Fuse) -> Nest:
        """The nest of a group."""
        found = self.repeated.get(id(fused))
        return plan(fused) if found is None else found[1].plan(fused, found[0])

    def write(self, w: CFunctionWriter, fused: Fuse, nest: Nest, inputs: Inputs) -> bool:
        """Call the function that has the loops of a group; False where the loops are better written in place."""
        found = self.repeated.get(id(fused))
        if found is None or not _worth(nest, inputs):
            return False
        call = _Call(w, *found, nest, inputs)
        function = self.functions.get(call.key)
        if function is None:
            if not self.taken:
                self.taken = w.module.taken()
            function = self.functions[call.key] = _write_function(w, fused, nest, _Taken(call, self.taken))
        name, taken = function
        w.code.line(f"{name}({', '.join(compress(call.arguments, taken))});")
        return True


def _worth(nest: Nest, inputs: Inputs) -> bool:
    """Whether the loops are long enough for a call, and give nothing but what they write to memory."""
    if any(r.scalar for r in nest.results) or CSlot in [type(m.pointer) for m in inputs.memory.values()]:
        return False
    count = 1
    for extent in (*inputs.extents[:-1], inputs.longest):
        if not isinstance(extent, int):
            return True  # many rows, or long ones, as far as is known
        count *= extent
    return count >= _WORTH


class _Call:
    """A call: its arguments, each of them once, and what the text of the function depends on (`key`).

    What the loops take is known by the numbers of arguments; names are for those who write the function (`_Taken`).
    """

    def __init__(
        self, w: CFunctionWriter, shape: Shape, alike: Alike, nest: Nest, inputs: Inputs
    ) -> None:
        self.arguments: list[str] = []
        self.parameters: list[tuple[str, str]] = []  # C types, and what names they wish for
        self._known: dict[tuple[str, str], int] = {}  # the numbers of arguments by C type and text
        self.flat = inputs.flat is True
        self._key: list[Any] = [id(alike), self.flat]
        self.memory: dict[Any, tuple[int, str, list[_Integer]]] = {}
        for place, strided in inputs.memory.items():
            self._key += (type(place), place.number if isinstance(place, Stored) else shape.numbers[place.name])
            pointer: Any = strided.pointer
            number = self._argument(f"{pointer.element or 'void'} *", pointer.text, pointer.base)
            self.memory[place] = number, pointer.element, [self._integer(s, "stride") for s in strided.strides]
        self.extents = [self._integer(e, "n") for e in inputs.extents]
        self.total = self._integer(inputs.total, "count") if self.flat else 0
        names = sorted(inputs.scalars, key=shape.numbers.__getitem__)
        self.scalars = {name: self._number(lift(inputs.scalars[name]), name) for name in names}
        self.constants = {
            constant: self._number(_constant(constant), "c")
            for constant, number in shape.floats.items() if number in alike.varying
        }  # fmt: skip
        self._key += [constant for constant in shape.floats if constant not in self.constants]
        self.buffers: dict[RowBuffer, tuple[int, str]] = {}
        for buffer in nest.buffers:
            element = memory_ctype(buffer.dtype)
            number = self._argument(f"{element} *", row_memory(w, inputs, buffer.dtype), "row")
            self.buffers[buffer] = number, element
        self.key = tuple(self._key)

    def _argument(self, ctype: str, text: str, wish: str) -> int:
        """The number of an argument; the same one is given once."""
        number = self._known.setdefault((ctype, text), len(self.arguments))
        if number == len(self.arguments):
            self.arguments.append(text)
            self.parameters.append((ctype, wish))
        self._key += (ctype, number)
        return number

    def _integer(self, value: Index, wish: str) -> _Integer:
        """An extent or a stride; what is known stays known, of others the number and the factor of the argument."""
        if isinstance(value, int):
            self._key.append(value)
            return value
        poly = value.poly or {}
        unit = gcd(*poly.values()) or 1  # strides in bytes stay multiples of elements
        self._key.append(unit)
        text = polynomial_text(poly if unit == 1 else {m: c // unit for m, c in poly.items()})[0]
        return self._argument("int64_t", text, wish), unit

    def _number(self, value: CValue, wish: str) -> tuple[int, CValue]:
        return self._argument(value.ctype, value.text, wish), value


class _Taken:
    """What the loops take, as the function has it: a parameter for every argument of the calls.

    parameters: C types and names; inputs, constants, buffers: as `CNest` takes them.
    """

    def __init__(self, call: _Call, taken: frozenset[str]) -> None:
        self.names = Identifiers(taken)
        self.parameters = [(ctype, self.names.fresh(wish)) for ctype, wish in call.parameters]
        memory = {
            place: Strided(self._pointer(number, element), tuple(map(self._integer, strides)))
            for place, (number, element, strides) in call.memory.items()
        }
        scalars = {name: self._number(*value) for name, value in call.scalars.items()}
        self.inputs = Inputs(tuple(map(self._integer, call.extents)), memory, scalars, {}, call.flat,
                             self._integer(call.total))  # fmt: skip
        self.constants = {constant: self._number(*value) for constant, value in call.constants.items()}
        self.buffers = {buffer: self._pointer(*place) for buffer, place in call.buffers.items()}

    def _pointer(self, number: int, element: str) -> CPointer:
        return CPointer(self.parameters[number][1], element)

    def _integer(self, value: _Integer) -> Index:
        return value if isinstance(value, int) else CValue(I64, poly={(self.parameters[value[0]][1],): value[1]})

    def _number(self, number: int, value: CValue) -> CValue:
        return CValue(value.type, self.parameters[number][1], ctype=value.ctype)


def _constant(key: tuple[str, int]) -> CValue:
    """The constant that `float_key` tells."""
    value, dtype = key
    return float_constant(float(value), register_type(_BY_ID[dtype]))


class _SharedNest(CNest):
    """The loops, over parameters."""

    def __init__(self, frame: Any, nest: Nest, taken: _Taken) -> None:
        self.taken = taken
        super().__init__(frame, nest, taken.inputs)

    def _buffer(self, buffer: RowBuffer) -> CPointer:
        return self.taken.buffers[buffer]

    def scalar(self, arg: Arg) -> CValue:
        if isinstance(arg, Const) and arg.type.dtype.kind == "f":
            found = self.taken.constants.get(float_key(arg))
            if found is not None:
                return found
        return super().scalar(arg)


class _Frame:
    """What the writer of loops asks of the function that it writes in."""

    def __init__(self, module: CModule, name: str, names: Identifiers) -> None:
        self.module = module
        self.code: Any = CCode(name, names, module)
        self.ops: Any = Operations(self.code, module.recipes)
        self.code.operations = self.ops


def _write_function(w: CFunctionWriter, fused: Fuse, nest: Nest, taken: _Taken) -> tuple[str, tuple[bool, ...]]:
    """The function for a group: its name, and which of the arguments it takes."""
    module = w.module
    name = module.names.fresh(f"{module.function_names[w.func.name]}_{_title(fused)}")
    frame = _Frame(module, name, taken.names)
    _SharedNest(frame, nest, taken).write()
    body = tidy([*frame.code.prologue, *frame.code.output])
    used = {word for line in body for word in names_in(line.text)}
    reads = tuple([name in used for _, name in taken.parameters])
    parameters = [_declaration(*p) for p in compress(taken.parameters, reads)]
    head = f"static void {name}({', '.join(parameters)}) {{"
    place = f"// {place_of(fused.loc)}, and wherever else the same is done"
    text = "\n".join([place, wrapped(head, head.index("(") + 1), *map(str, body), "}"])
    module.functions.append((w.func.name, text))
    return name, reads


def _title(fused: Fuse) -> str:
    """What a group is called: by its last operation."""
    names = [op.op for op in fused.body if isinstance(op, Op) and op.op not in ("load", "store")]
    return names[-1] if names else "copy"


def _declaration(ctype: str, name: str) -> str:
    return f"{ctype}{'' if ctype.endswith('*') else ' '}{name}"
