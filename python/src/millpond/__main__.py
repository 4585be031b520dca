# SPDX-License-Identifier: Apache-2.0
"""`python -m millpond` is the command line."""

import sys

from millpond.cli import main

if __name__ == "__main__":
    sys.exit(main())
