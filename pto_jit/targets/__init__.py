# SPDX-License-Identifier: MIT
"""Targets: what turns checked loop IR into something that runs."""
