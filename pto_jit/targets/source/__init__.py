# SPDX-License-Identifier: MIT
"""What the targets that write C-family sources share: text, names, scalar expressions, the vector math as functions."""
