# SPDX-License-Identifier: Apache-2.0
"""Runs one case of test_numba_gpu.py: numba_gpu_run.py PACKAGE CASE [SETTINGS].

SETTINGS is a JSON object for millpond.numba.use(). A case that is skipped says "skipped: reason".
"""

import json
import sys

import millpond.numba
import numba_gpu_cases  # noqa: F401 - has cases
import numba_gpu_kit as kit
import numba_gpu_streams  # noqa: F401 - has cases
from case_kit import CASES


def main():
    package, name, settings = sys.argv[1], sys.argv[2], json.loads((sys.argv[3:] or ["{}"])[0])
    cuda = kit.choose(package)
    if name != "variable":  # that one has the environment say so
        millpond.numba.use(cuda, **settings)
    try:
        CASES[name](cuda)
    except kit.SkipError as reason:
        print(f"skipped: {reason}")


if __name__ == "__main__":
    main()
