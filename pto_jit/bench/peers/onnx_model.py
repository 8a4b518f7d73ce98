# SPDX-License-Identifier: MIT
"""ONNX models written as protocol-buffer bytes, so that onnxruntime is all a measurement needs.

Field numbers are those of `onnx.proto` (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), wire types those of
the protocol-buffer encoding: 0 a varint, 2 length-delimited bytes, 5 four bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Attribute = int | float | str | Sequence[int]

_OPSET, _IR_VERSION = 20, 9
_ELEMENT = {"float32": 1, "int32": 6, "int64": 7}


@dataclass(slots=True)
class Graph:
    """A graph under construction: `node` adds an operator and names its result."""

    nodes: list[bytes] = field(default_factory=list[bytes])
    constants: list[bytes] = field(default_factory=list[bytes])

    def node(self, operator: str, *inputs: str, domain: str = "", **attributes: Attribute) -> str:
        """Add an operator; an empty input name leaves an optional input out."""
        result = f"t{len(self.nodes)}"
        parts = [*(_text(1, name) for name in inputs), _text(2, result), _text(4, operator), _text(7, domain)]
        parts += [_bytes(5, _attribute(name, value)) for name, value in attributes.items()]
        self.nodes.append(b"".join(parts))
        return result

    def constant(self, value: np.ndarray[Any, Any]) -> str:
        """Add an initializer."""
        name = f"c{len(self.constants)}"
        self.named_constant(name, value)
        return name

    def named_constant(self, name: str, value: np.ndarray[Any, Any]) -> None:
        """Add an initializer with a name."""
        dims = b"".join(_number(1, extent) for extent in value.shape)
        self.constants.append(
            dims + _number(2, _ELEMENT[value.dtype.name]) + _text(8, name) + _bytes(9, value.tobytes())
        )

    def model(self, inputs: Mapping[str, np.ndarray[Any, Any]], result: str, output: np.ndarray[Any, Any]) -> bytes:
        """The serialized model: `inputs` and the output, which is called `output`, have the arrays' types."""
        nodes = [*self.nodes, _text(1, result) + _text(2, "output") + _text(4, "Identity")]
        graph = b"".join(_bytes(1, node) for node in nodes) + _text(2, "graph")
        graph += b"".join(_bytes(5, constant) for constant in self.constants)
        graph += b"".join(_bytes(11, _value(name, array)) for name, array in inputs.items())
        graph += _bytes(12, _value("output", output))
        opsets = (_text(1, "") + _number(2, _OPSET), _text(1, "com.microsoft") + _number(2, 1))
        return _number(1, _IR_VERSION) + _bytes(7, graph) + b"".join(_bytes(8, opset) for opset in opsets)


def _value(name: str, array: np.ndarray[Any, Any]) -> bytes:
    shape = b"".join(_bytes(1, _number(1, extent)) for extent in array.shape)
    tensor = _number(1, _ELEMENT[array.dtype.name]) + _bytes(2, shape)
    return _text(1, name) + _bytes(2, _bytes(1, tensor))


def _attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, int):
        return _text(1, name) + _number(3, value) + _number(20, 2)
    if isinstance(value, float):
        return _text(1, name) + _key(2, 5) + struct.pack("<f", value) + _number(20, 1)
    if isinstance(value, str):
        return _text(1, name) + _text(4, value) + _number(20, 3)
    return _text(1, name) + b"".join(_number(8, one) for one in value) + _number(20, 7)


def _key(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _number(number: int, value: int) -> bytes:
    return _key(number, 0) + _varint(value & (1 << 64) - 1)


def _text(number: int, value: str) -> bytes:
    return _bytes(number, value.encode())


def _bytes(number: int, value: bytes) -> bytes:
    return _key(number, 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
