# SPDX-License-Identifier: MIT
"""The run time: worker threads, memory and the way from a Python call to a compiled kernel.

`Runtime` is the handle of the C library (`csrc/runtime/pto_runtime.h` is its manual), `Entry` a loaded kernel on it,
`Bound` a prepared launch and `Dispatcher` the callable that picks the entry for its arguments.  `tensors.as_tensor`
reads any tensor-like object without copying.
"""

try:
    from ._dispatch import ABSENT, Bound, Dispatcher, Entry, key_of
except ModuleNotFoundError as error:
    raise ImportError(
        f"the C runtime is not in {__path__[0]}: this is a source tree that was not built. Start Python in another "
        "directory to use an installed pto_jit, or build this one with `pip install -e .`"
    ) from error
from .handles import PrintHandler, Runtime, Statistics, default_runtime, symbols
from .tensors import TensorView, as_tensor

__all__ = [
    "ABSENT",
    "Bound",
    "Dispatcher",
    "Entry",
    "PrintHandler",
    "Runtime",
    "Statistics",
    "TensorView",
    "as_tensor",
    "default_runtime",
    "key_of",
    "symbols",
]
