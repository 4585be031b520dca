# SPDX-License-Identifier: Apache-2.0
"""What tests need of the machine. CI installs all of it, so what is missing there is a failure, no reason to skip."""

import importlib
import os
import shutil

import pytest


def missing(reason):
    """Ends the test: skipped, or failed in CI."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


def program(*names):
    """The path of a program, by the first of its names that is there."""
    found = next(filter(None, map(shutil.which, names)), None)
    return found or missing(f"no {' or '.join(names)} on the path")


def package(name):
    """A Python package."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return missing(f"the package {name} is not installed")
