# SPDX-License-Identifier: MIT
"""`python -m pto_jit COMMAND ...`: run, check and format `.pto` programs, and more."""

import sys

from pto_jit.commands import main

if __name__ == "__main__":
    sys.exit(main())
