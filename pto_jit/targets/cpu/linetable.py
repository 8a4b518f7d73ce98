# SPDX-License-Identifier: MIT
"""Reading the line table of object code back: functions, and which source line each instruction belongs to.

Enough of ELF and of DWARF 4 (section 6.2, the line number program) for what LLVM writes into one relocatable object.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import PurePosixPath

from pto_jit.slotted import frozen


@frozen
class Function:
    """A function of the object: the offset of its first byte in the section (its number), and its size."""

    name: str
    section: int
    start: int
    size: int


@frozen
class Row:
    """From `address` (in the section) on, code belongs to `line` of `filename` (0: to none); `end`: no more code."""

    section: int
    address: int
    filename: str
    line: int
    end: bool = False


@frozen
class _Section:
    name: str
    kind: int
    offset: int
    size: int
    link: int
    info: int


def read(data: bytes) -> tuple[list[Function], list[Row]]:
    """The functions and the line table of an ELF object; both empty for other objects, and rows without a table."""
    if data[:6] != b"\x7fELF\x02\x01":
        return [], []
    sections = _sections(data)
    symbols = list(_symbols(data, sections))
    functions = [Function(name, at, value, size) for name, value, size, kind, at in symbols if kind == 2 and at]
    functions.sort(key=lambda f: (f.section, f.start))
    table = next((s for s in sections if s.name == ".debug_line"), None)
    if table is None:
        return functions, []
    places = {}
    for section in sections:
        if section.name == ".rela.debug_line":
            for at in range(section.offset, section.offset + section.size, 24):
                where, info, addend = struct.unpack_from("<QQq", data, at)
                _, value, _, _, index = symbols[info >> 32]
                places[where] = (index, value + addend)
    program = _Program(data[table.offset : table.offset + table.size], places)
    return functions, sorted(program.rows(), key=lambda r: (r.section, r.address, not r.end))


def _sections(data: bytes) -> list[_Section]:
    (start,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    raw = [struct.unpack_from("<IIQQQQIIQQ", data, start + k * size) for k in range(count)]
    strings = raw[names][4]
    return [_Section(_text(data, strings + r[0]), r[1], r[4], r[5], r[6], r[7]) for r in raw]


def _symbols(data: bytes, sections: list[_Section]) -> Iterator[tuple[str, int, int, int, int]]:
    """Name, value, size, kind (2: a function) and section of each symbol."""
    for section in sections:
        if section.kind == 2:
            strings = sections[section.link].offset
            for at in range(section.offset, section.offset + section.size, 24):
                name, info, _, index, value, size = struct.unpack_from("<IBBHQQ", data, at)
                yield _text(data, strings + name), value, size, info & 15, index


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()


class _Program:
    """A cursor over a `.debug_line` section."""

    def __init__(self, data: bytes, places: dict[int, tuple[int, int]]) -> None:
        self.data, self.places = data, places
        self.at = 0

    def rows(self) -> Iterator[Row]:
        while self.at < len(self.data):
            yield from self._unit()

    def _take(self, form: str) -> int:
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def _number(self, signed: bool = False) -> int:
        """A LEB128 number."""
        value = shift = 0
        while True:
            byte = self._take("B")
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value - (1 << shift) if signed and byte & 64 else value

    def _string(self) -> str:
        text = _text(self.data, self.at)
        self.at += len(text.encode()) + 1
        return text

    def _unit(self) -> Iterator[Row]:
        end = self._take("I") + self.at
        version = self._take("H")
        if version != 4:
            raise ValueError(f"a line table of DWARF {version}")
        start = self._take("I") + self.at
        least, _, _, base, span, first = (self._take(form) for form in "BBBbBB")
        lengths = [self._take("B") for _ in range(first - 1)]
        folders, files = [""], [""]
        while (folder := self._string()) != "":
            folders.append(folder)
        while (name := self._string()) != "":
            files.append(str(PurePosixPath(folders[self._number()], name)))
            self._number()  # time
            self._number()  # size
        self.at = start
        section, address, file, line = 0, 0, 1, 1
        while self.at < end:
            code = self._take("B")
            if code >= first:
                address += (code - first) // span * least
                line += base + (code - first) % span
                yield Row(section, address, files[file], line)
            elif code == 0:
                after = self._number() + self.at
                kind = self._take("B")
                if kind == 1:
                    yield Row(section, address, files[file], line, True)
                    address, file, line = 0, 1, 1
                elif kind == 2:
                    section, address = self.places[self.at]
                self.at = after
            elif code == 1:
                yield Row(section, address, files[file], line)
            elif code == 2:
                address += self._number() * least
            elif code == 3:
                line += self._number(signed=True)
            elif code == 4:
                file = self._number()
            elif code == 8:
                address += (255 - first) // span * least
            elif code == 9:
                address += self._take("H")
            else:  # columns, statements, prologues, instruction sets
                for _ in range(lengths[code - 1]):
                    self._number()
