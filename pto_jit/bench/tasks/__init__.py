# SPDX-License-Identifier: MIT
"""`pto-bench tasks`: building and running the task graph of a LLaMA-7B layer, beside other task runtimes."""
