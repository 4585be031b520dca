# SPDX-License-Identifier: Apache-2.0
"""Rows of cases by family: every module here but `kit`, which says what a row is, adds its own to `CASES`."""

import importlib
import pkgutil

from cases.kit import CASES

for module in sorted(found.name for found in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"cases.{module}")

__all__ = ["CASES"]
