# SPDX-License-Identifier: MIT
"""The two extension modules; everything else is in pyproject.toml.

`_native` is the C runtime bound by cffi; `_dispatch` is the launch path against the C APIs of Python and NumPy.  The
runtime's sources are compiled into `_native` only: `_dispatch` gets the functions it calls as addresses at import.
"""

from pathlib import Path

import numpy
from setuptools import Extension, setup

# NumPy's inline C API and the vectorcall flag are what the second module is about, so it is built per Python version.
dispatch = Extension(
    "pto_jit.runtime._dispatch",
    sources=sorted(str(path) for path in Path("csrc/dispatch").glob("*.c")),
    depends=[*map(str, Path("csrc/dispatch").glob("*.h")), "csrc/runtime/pto_runtime.h"],
    include_dirs=["csrc/runtime", "csrc/dispatch", numpy.get_include()],
    extra_compile_args=["-std=gnu11", "-O2", "-fvisibility=hidden"],
)

setup(ext_modules=[dispatch], cffi_modules=["pto_jit/runtime/build.py:builder"])
