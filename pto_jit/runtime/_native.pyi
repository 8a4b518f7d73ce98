# SPDX-License-Identifier: MIT
"""The cffi binding of the C runtime; `csrc/runtime/pto_runtime.h` says what is in `lib`."""

from typing import Any

ffi: Any
lib: Any
