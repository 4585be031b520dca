#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the version. Its one place is MILLPOND_VERSION in include/millpond/millpond.h, which programs of others read.

    version.py
"""

import re
from pathlib import Path

HEADER = Path(__file__).resolve().parent.parent / "include/millpond/millpond.h"
DEFINITION = re.compile(r'^#define MILLPOND_VERSION "(\d+\.\d+\.\d+)"$', re.MULTILINE)


def version():
    return DEFINITION.search(HEADER.read_text(encoding="utf-8")).group(1)


if __name__ == "__main__":
    print(version())
